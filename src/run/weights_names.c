/* What the tensors of a file are called without what wrappers put on their names, and under which
 * prefix a model's tensors are (weights.h). Called by weights.c. */
#include "run/weights.h"

#include "core/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the names of a file ---- */

/* Parts that wrappers put anywhere into a name: torch.compile, FSDP, activation checkpointing,
 * strategies of Lightning. No module is called so. */
static const char *const anywhere[] = {"_orig_mod.", "_fsdp_wrapped_module.",
                                       "_checkpoint_wrapped_module.", "_forward_module."};
/* Parts that DDP, Lightning modules, timm and Hugging Face put in front of all names. */
static const char *const in_front[] = {"module.",     "model.",    "net.",       "network.",
                                       "timm_model.", "backbone.", "base_model."};

static size_t wrapper_at(const char *name)
{
    for (size_t i = 0; i < sizeof anywhere / sizeof *anywhere; i++) {
        const size_t n = strlen(anywhere[i]);
        if (strncmp(name, anywhere[i], n) == 0) {
            return n;
        }
    }
    return 0;
}

/* The name without these parts, zero-terminated; returns its end. */
static char *write_plain(const char *name, char *to)
{
    while (*name != '\0') {
        const size_t skip = wrapper_at(name);
        if (skip > 0) {
            name += skip;
            continue;
        }
        const size_t n = strcspn(name, "."), with_dot = n + (name[n] == '.');
        memcpy(to, name, with_dot);
        to += with_dot;
        name += with_dot;
    }
    *to = '\0';
    return to + 1;
}

static int compare_names(const void *a, const void *b)
{
    const lvni_run_weight_name *x = a, *y = b;
    const int order = strcmp(x->plain, y->plain);
    return order != 0 ? order : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* Behind "under." where only these count; NULL: another. */
static const char *behind(const char *name, const char *under)
{
    const size_t n = under == NULL ? 0 : strlen(under);
    if (under == NULL) {
        return name;
    }
    return strncmp(name, under, n) == 0 && name[n] == '.' ? name + n + 1 : NULL;
}

static const char *name_at(const lvni_ckpt_st_file *file, int64_t i)
{
    const int64_t n = lvni_ckpt_st_count(file);
    return i < n ? lvni_ckpt_st_at(file, i)->name : lvni_ckpt_st_other_at(file, i - n)->name;
}

lvn_status lvni_run_weight_names_make(const lvni_ckpt_st_file *file, const char *path,
                                      const char *under, lvni_run_weight_names *out)
{
    const int64_t all = lvni_ckpt_st_count(file) + lvni_ckpt_st_count_others(file);
    size_t bytes = 1;
    for (int64_t i = 0; i < all; i++) {
        bytes += strlen(name_at(file, i)) + 1;
    }
    *out = (lvni_run_weight_names){.file = file, .under = under};
    out->text = lvni_core_alloc(LVNI_TAG_CKPT, bytes);
    out->entries = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)all, sizeof *out->entries);
    if (out->text == NULL || out->entries == NULL) {
        return LVN_ERR_MEMORY;
    }
    char *to = out->text;
    for (int64_t i = 0; i < all; i++) {
        const char *name = behind(name_at(file, i), under);
        char *end = write_plain(name != NULL ? name : name_at(file, i), to);
        /* "_orig_mod.student.": the key is below what a wrapper put before it */
        const char *plain = name != NULL ? to : behind(to, under);
        if (plain != NULL) {
            out->entries[out->n++] = (lvni_run_weight_name){.plain = plain, .tensor = i};
            to = end;
        }
    }
    if (under != NULL && out->n == 0) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "weights.key=%s: %s has no tensors under this key: no name begins with %s.%s%s",
                 under, path, under, all > 0 ? "; its first is " : "",
                 all > 0 ? name_at(file, 0) : "");
    }
    if (out->n > 1) {
        qsort(out->entries, (size_t)out->n, sizeof *out->entries, compare_names);
    }
    return LVN_OK;
}

void lvni_run_weight_names_free(lvni_run_weight_names *names)
{
    lvni_core_free(names->text);
    lvni_core_free(names->entries);
}

static const lvni_run_weight_name *find_entry(const lvni_run_weight_names *names, const char *plain)
{
    int64_t low = 0, high = names->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (strcmp(names->entries[middle].plain, plain) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < names->n && strcmp(names->entries[low].plain, plain) == 0 ? &names->entries[low]
                                                                           : NULL;
}

static const lvni_run_weight_name *find_ours(const lvni_run_weight_names *names, int naming,
                                             const char *prefix, const char *name)
{
    char full[2 * LVNI_WEIGHT_NAME], theirs[LVNI_WEIGHT_NAME];
    lvni_run_naming_translate(naming, name, theirs);
    snprintf(full, sizeof full, "%s%s", prefix, theirs);
    return find_entry(names, full);
}

const lvni_ckpt_st_tensor *lvni_run_weight_names_find(const lvni_run_weight_names *names,
                                                      int naming, const char *prefix,
                                                      const char *name)
{
    const lvni_run_weight_name *e = find_ours(names, naming, prefix, name);
    return e == NULL ? NULL : lvni_ckpt_st_at(names->file, e->tensor);
}

const lvni_ckpt_st_other *lvni_run_weight_names_find_other(const lvni_run_weight_names *names,
                                                           int naming, const char *prefix,
                                                           const char *name)
{
    const lvni_run_weight_name *e = find_ours(names, naming, prefix, name);
    return e == NULL
               ? NULL
               : lvni_ckpt_st_other_at(names->file, e->tensor - lvni_ckpt_st_count(names->file));
}

/* ---- the prefix ---- */

enum { MOST_CANDIDATES = 128 };

typedef struct candidate {
    char prefix[LVNI_WEIGHT_NAME];
    int naming, found; /* parameters of the model with this prefix */
} candidate;

typedef struct candidates {
    candidate *list;
    int n;
} candidates;

static void count_one(candidates *c, const char *name, size_t n, int naming)
{
    for (int i = 0; i < c->n; i++) {
        candidate *one = &c->list[i];
        if (one->naming == naming && strncmp(one->prefix, name, n) == 0 && one->prefix[n] == '\0') {
            one->found++;
            return;
        }
    }
    if (c->n < MOST_CANDIDATES && n < sizeof c->list->prefix) {
        candidate *one = &c->list[c->n++];
        *one = (candidate){.naming = naming, .found = 1};
        memcpy(one->prefix, name, n);
    }
}

/* Every prefix with which a parameter of the model is in the file. */
static void count_all(const lvni_run_weight_names *names, const lvni_run_weights_wanted *wanted,
                      candidates *c)
{
    for (int naming = 0; naming < LVNI_NAMINGS; naming++) {
        for (int k = 0; k < wanted->n; k++) {
            char theirs[LVNI_WEIGHT_NAME];
            lvni_run_naming_translate(naming, wanted->name[k], theirs);
            const size_t n = strlen(theirs);
            for (int64_t i = 0; i < names->n; i++) {
                const char *name = names->entries[i].plain;
                const size_t all = strlen(name), front = all < n ? 0 : all - n;
                if (all >= n && strcmp(name + front, theirs) == 0 &&
                    (front == 0 || name[front - 1] == '.')) {
                    count_one(c, name, front, naming);
                }
            }
        }
    }
}

/* 0: names as they are; 1: behind parts that wrappers put in front; 2: within a larger model. */
static int rank_of(const char *prefix)
{
    const int rank = prefix[0] == '\0' ? 0 : 1;
    while (*prefix != '\0') {
        size_t n = 0;
        for (size_t i = 0; i < sizeof in_front / sizeof *in_front && n == 0; i++) {
            n = strncmp(prefix, in_front[i], strlen(in_front[i])) == 0 ? strlen(in_front[i]) : 0;
        }
        if (n == 0) {
            return 2;
        }
        prefix += n;
    }
    return rank;
}

static bool is_better(const candidate *a, const candidate *b)
{
    const int x = rank_of(a->prefix), y = rank_of(b->prefix);
    if (a->found != b->found) {
        return a->found > b->found;
    }
    if (x != y) {
        return x < y;
    }
    const size_t n = strlen(a->prefix), m = strlen(b->prefix);
    return n != m ? n < m : a->naming < b->naming;
}

static bool is_same(const lvni_run_weight_names *names, const lvni_run_weights_wanted *wanted,
                    const candidate *a, const candidate *b)
{
    for (int k = 0; k < wanted->n; k++) {
        const char *name = wanted->name[k];
        const lvni_ckpt_st_tensor *x =
                                      lvni_run_weight_names_find(names, a->naming, a->prefix, name),
                                  *y =
                                      lvni_run_weight_names_find(names, b->naming, b->prefix, name);
        if ((x == NULL) != (y == NULL) ||
            (x != NULL && (x->dtype != y->dtype || x->bytes != y->bytes ||
                           (x->data != NULL && memcmp(x->data, y->data, x->bytes) != 0)))) {
            return false;
        }
    }
    return true;
}

/* Two sets that are equally good and differ: the file does not show which one is wanted. */
static lvn_status check_unique(const lvni_run_weight_names *names,
                               const lvni_run_weights_wanted *wanted, const char *path,
                               const candidates *c, const candidate *best)
{
    const char *under = names->under != NULL ? names->under : "",
               *dot = under[0] != '\0' ? "." : "";
    for (int i = 0; i < c->n; i++) {
        const candidate *other = &c->list[i];
        if (other->found == best->found && strcmp(other->prefix, best->prefix) != 0 &&
            rank_of(other->prefix) == rank_of(best->prefix) &&
            !is_same(names, wanted, best, other)) {
            LVN_FAIL(LVN_ERR_MISMATCH,
                     "%s has weights of this model, %s, under %s and under %s; choose: "
                     "weights.key=%s%s%.*s or weights.key=%s%s%.*s",
                     path, wanted->network, best->prefix, other->prefix, under, dot,
                     (int)strlen(best->prefix) - 1, best->prefix, under, dot,
                     (int)strlen(other->prefix) - 1, other->prefix);
        }
    }
    return LVN_OK;
}

lvn_status lvni_run_weight_names_choose(const lvni_run_weight_names *names,
                                        const lvni_run_weights_wanted *wanted, const char *path,
                                        int *naming, char prefix[LVNI_WEIGHT_NAME])
{
    candidates c = {.list = lvni_core_calloc(LVNI_TAG_CKPT, MOST_CANDIDATES, sizeof *c.list)};
    *naming = LVNI_NAMING_OWN;
    prefix[0] = '\0';
    if (c.list == NULL) {
        return LVN_ERR_MEMORY;
    }
    count_all(names, wanted, &c);
    const candidate *best = NULL;
    for (int i = 0; i < c.n; i++) { /* a few names that end alike do not make a prefix */
        const candidate *one = &c.list[i];
        const bool enough = rank_of(one->prefix) < 2 || 2 * one->found >= wanted->n;
        best = enough && (best == NULL || is_better(one, best)) ? one : best;
    }
    lvn_status s = LVN_OK;
    if (best != NULL) {
        *naming = best->naming;
        memcpy(prefix, best->prefix, sizeof best->prefix);
        s = best->prefix[0] == '\0' ? LVN_OK : check_unique(names, wanted, path, &c, best);
    }
    lvni_core_free(c.list);
    return s;
}

/* ---- which network it is ---- */

/* A tensor that only this network has in this shape, and how many it has in all: relatives, such as
 * wider ones or those with other blocks, have others. */
typedef struct network {
    const char *model, *tensor;
    int64_t shape[4];
    int64_t n;
} network;

static const network networks[] = {
    {"resnet18", "layer4.1.conv2.weight", {512, 512, 3, 3}, 102},
    {"resnet34", "layer4.2.conv2.weight", {512, 512, 3, 3}, 182},
    {"resnet50", "layer4.2.conv2.weight", {512, 512, 3, 3}, 267},
    {"resnet101", "layer4.2.conv2.weight", {512, 512, 3, 3}, 522},
    {"resnet152", "layer4.2.conv2.weight", {512, 512, 3, 3}, 777},
    {"convnext_tiny", "features.7.2.block.0.weight", {768, 1, 7, 7}, 182},
    {"convnext_small", "features.7.2.block.0.weight", {768, 1, 7, 7}, 344},
    {"convnext_base", "features.7.2.block.0.weight", {1024, 1, 7, 7}, 344},
    {"convnext_large", "features.7.2.block.0.weight", {1536, 1, 7, 7}, 344},
    {"efficientnet_b0", "features.8.0.weight", {1280, 320, 1, 1}, 311},
    {"efficientnet_b1", "features.8.0.weight", {1280, 320, 1, 1}, 439},
    {"efficientnet_b2", "features.8.0.weight", {1408, 352, 1, 1}, 439},
    {"vit_s_16", "conv_proj.weight", {384, 3, 16, 16}, 152},
    {"vit_b_16", "conv_proj.weight", {768, 3, 16, 16}, 152},
    {"vit_tiny_patch16_224", "patch_embed.proj.weight", {192, 3, 16, 16}, 152},
    {"vit_small_patch16_224", "patch_embed.proj.weight", {384, 3, 16, 16}, 152},
    {"vit_base_patch16_224", "patch_embed.proj.weight", {768, 3, 16, 16}, 152},
    {"dino_vits16", "embeddings.patch_embeddings.projection.weight", {384, 3, 16, 16}, 200},
    {"dino_vitb16", "embeddings.patch_embeddings.projection.weight", {768, 3, 16, 16}, 200},
    {"vits14", "patch_embed.proj.weight", {384, 3, 14, 14}, 178}, /* with a head */
    {"vits14-noreg", "patch_embed.proj.weight", {384, 3, 14, 14}, 177},
    {"vitb14", "patch_embed.proj.weight", {768, 3, 14, 14}, 178},
    {"vitb14-noreg", "patch_embed.proj.weight", {768, 3, 14, 14}, 177},
};
enum { HEAD = 2 }; /* its tensors, or those of a pooler */

/* Length of what stands before the tensor's name, -1: it is another tensor. */
static ptrdiff_t front_of(const lvni_run_weight_names *names, const lvni_run_weight_name *e,
                          const network *w)
{
    const size_t all = strlen(e->plain), own = strlen(w->tensor);
    const lvni_ckpt_st_tensor *t = lvni_ckpt_st_at(names->file, e->tensor);
    const bool named = all >= own && strcmp(e->plain + all - own, w->tensor) == 0 &&
                       (all == own || e->plain[all - own - 1] == '.');
    const bool fits =
        named && t != NULL && t->ndim == 4 && memcmp(t->shape, w->shape, sizeof w->shape) == 0;
    return fits ? (ptrdiff_t)(all - own) : -1;
}

/* Those with the same front, without counters. */
static int64_t count_with(const lvni_run_weight_names *names, const char *front, size_t length)
{
    int64_t n = 0;
    for (int64_t i = 0; i < names->n; i++) {
        const char *plain = names->entries[i].plain;
        n += strncmp(plain, front, length) == 0 && strstr(plain, ".num_batches_tracked") == NULL;
    }
    return n;
}

const char *lvni_run_weight_names_network(const lvni_run_weight_names *names)
{
    for (size_t k = 0; k < sizeof networks / sizeof *networks; k++) {
        const network *w = &networks[k];
        for (int64_t i = 0; i < names->n; i++) {
            const ptrdiff_t front = front_of(names, &names->entries[i], w);
            const int64_t n =
                front < 0 ? 0 : count_with(names, names->entries[i].plain, (size_t)front);
            if (n == w->n || n == w->n - HEAD) {
                return w->model;
            }
        }
    }
    return NULL;
}
