/* Weights from files, by name (weights.h). */
#include "run/weights.h"

#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/str.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "run/exported.h"
#include "run/run_dir.h"
#include "tensor/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 4 }; /* names in one list of a message */

/* Names with their shapes; the first few. */
typedef struct names {
    lvni_core_str text;
    int n;
} names;

static void add_name(names *list, const char *fmt, ...) LVN_PRINTF(2, 3);
static void add_name(names *list, const char *fmt, ...)
{
    if (list->n++ >= SHOWN) {
        return;
    }
    char one[512];
    va_list args;
    va_start(args, fmt);
    lvni_core_format_args(one, sizeof one, fmt, args);
    va_end(args);
    lvni_core_str_append(&list->text, list->n > 1 ? ", " : "");
    lvni_core_str_append(&list->text, one);
}

static void end_names(names *list)
{
    if (list->n > SHOWN) {
        lvni_core_str_printf(&list->text, ", and %d more", list->n - SHOWN);
    }
}

/* First parts of the names of a network: "layer1", "blocks". */
enum { ROOTS = 64, ROOT = 64 };

typedef struct load {
    const lvni_nn_model *model;
    const char *part;    /* of it, that is loaded; "": all */
    const char *network; /* name of its class */
    const lvni_ckpt_st_file *file;
    const char *path;
    lvni_run_weight_names names_in_file;
    char prefix[LVNI_WEIGHT_NAME];
    int naming; /* LVNI_NAMING_...: what the file calls the model's tensors */
    bool *used; /* (tensors of the file) the model has this one */
    int taken;
    char root[ROOTS][ROOT];
    int n_roots;
    bool checkpoint; /* levin's own layout */
    bool average;    /* of a checkpoint: the averaged weights */
    bool starts;     /* a run that keeps its own constants (lvni_nn_builder_constant) */
    char head[256];  /* "fc.": parameters under it are passed over; "": none */
    bool head_differs;
    float *memory, *here; /* one tensor in the order of the file, and in this model's */
    names missing, different, unread, unused, foreign;
    const char *feature; /* of the other network, by a foreign tensor's name, or NULL */
    int64_t channels[2]; /* of images, of the file's network and of this one, that differ; or 0 */
} load;

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), e = strlen(end);
    return n >= e && strcmp(text + n - e, end) == 0;
}

static const lvni_ckpt_st_tensor *find(const load *l, const char *name)
{
    return lvni_run_weight_names_find(&l->names_in_file, l->naming, l->prefix, name);
}

/* The name within the part that is loaded; NULL: it lies outside. */
static const char *name_within(const load *l, const char *name)
{
    const size_t n = strlen(l->part);
    return n == 0 ? name : strncmp(name, l->part, n) == 0 && name[n] == '.' ? name + n + 1 : NULL;
}

/* By their names as the file may have them. */
static lvn_status choose_among(load *l)
{
    const lvni_nn_model *m = l->model;
    const char **own = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)m->n_parameters + 1, sizeof *own);
    lvni_run_weights_wanted wanted = {.network = l->network, .name = own};
    for (int i = 0; own != NULL && i < m->n_parameters; i++) {
        const char *name = name_within(l, m->parameters[i].name);
        if (name != NULL) {
            own[wanted.n++] = name;
        }
    }
    const lvn_status s = own == NULL ? LVN_ERR_MEMORY
                                     : lvni_run_weight_names_choose(&l->names_in_file, &wanted,
                                                                    l->path, &l->naming, l->prefix);
    lvni_core_free(own);
    return s;
}

/* Is the last parameter there, too? "layer1.0.conv1.weight" ends as "conv1.weight" does. Of a
 * network without a classifier the one in front of it. */
static bool is_whole(const load *l, const char *prefix)
{
    enum { HEAD = 2 };
    const int n = l->model->n_parameters,
              at = n > HEAD && !lvni_nn_zoo_has_classifier(l->network) ? n - 1 - HEAD : n - 1;
    char last[2 * LVNI_WEIGHT_NAME];
    snprintf(last, sizeof last, "%s%s", prefix, l->model->parameters[at].name);
    for (int64_t i = 0; i < l->names_in_file.n; i++) {
        if (strcmp(l->names_in_file.entries[i].plain, last) == 0) {
            return true;
        }
    }
    return false;
}

/* A network may be a part of the checkpoint's model, a backbone behind its heads: what stands
 * before its parameters, where there is one such part. */
static void choose_part_of_checkpoint(load *l, const char *folder)
{
    const char *first = l->model->parameters[0].name;
    char prefix[LVNI_WEIGHT_NAME], found[LVNI_WEIGHT_NAME] = "";
    for (int64_t i = 0; i < l->names_in_file.n; i++) {
        const char *plain = l->names_in_file.entries[i].plain;
        const size_t all = strlen(plain), own = strlen(first);
        if (!starts_with(plain, folder) || !ends_with(plain, first)) {
            continue;
        }
        snprintf(prefix, sizeof prefix, "%.*s", (int)(all - own), plain);
        if (strcmp(prefix, folder) == 0 || (is_whole(l, prefix) && found[0] != '\0')) {
            return; /* the model itself, or one of several */
        }
        if (ends_with(prefix, ".") && is_whole(l, prefix)) {
            snprintf(found, sizeof found, "%s", prefix);
        }
    }
    if (found[0] != '\0') {
        snprintf(l->prefix, sizeof l->prefix, "%s", found);
    }
}

/* A part may be in a checkpoint of the same model, or of the network alone. */
static void choose_in_checkpoint(load *l)
{
    const char *folder = l->average ? LVNI_CKPT_AVERAGE : LVNI_CKPT_MODEL;
    snprintf(l->prefix, sizeof l->prefix, "%s%s%s", folder, l->part, l->part[0] != '\0' ? "." : "");
    if (l->part[0] == '\0' && l->model->n_parameters > 0) {
        choose_part_of_checkpoint(l, folder);
    }
    for (int64_t i = 0; i < l->names_in_file.n; i++) {
        if (starts_with(l->names_in_file.entries[i].plain, l->prefix)) {
            return;
        }
    }
    snprintf(l->prefix, sizeof l->prefix, "%s", folder);
}

/* Prefix and names under which most parameters are found. inner: of a key, what names begin
 * with. */
static lvn_status choose_names(load *l, const char *inner)
{
    if (l->checkpoint && inner != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "weights.key=%s: %s is a checkpoint of levin, which needs no key",
                 inner, l->path);
    }
    LVN_TRY(lvni_run_weight_names_make(l->file, l->path, inner, &l->names_in_file));
    if (l->checkpoint) {
        choose_in_checkpoint(l);
        return LVN_OK;
    }
    return choose_among(l);
}

/* "fc." of "fc.bias": the layer made last. A part has none that is trained. */
static void head_of(const load *l, char head[256])
{
    const lvni_nn_model *m = l->model;
    const bool none = m->n_parameters == 0 || l->part[0] != '\0';
    snprintf(head, 256, "%s", none ? "" : m->parameters[m->n_parameters - 1].name);
    char *dot = strrchr(head, '.');
    if (dot != NULL) {
        dot[1] = '\0';
    }
}

static bool starts_with_name(const char *list, const char *name, size_t n)
{
    return strncmp(list, name, n) == 0 && (list[n] == '\0' || list[n] == ',');
}

/* A file of a network whose authors have no classifier behind it. head: "head." */
static bool lacks_classifier(const load *l, const char *head)
{
    char weight[300];
    if (head[0] == '\0' || lvni_nn_zoo_has_classifier(l->network)) {
        return false;
    }
    const int n = snprintf(weight, sizeof weight, ".%sweight", head);
    for (int64_t i = 0; i < lvni_ckpt_st_count(l->file); i++) {
        const char *name = lvni_ckpt_st_at(l->file, i)->name;
        if (strcmp(name, weight + 1) == 0 || (n > 0 && ends_with(name, weight))) {
            return false;
        }
    }
    return true;
}

/* Nothing trained its layer `head`, "fc.", by the metadata of the file. */
static bool is_untrained(const load *l, const char *head)
{
    const char *list = lvni_ckpt_st_meta_get(l->file, LVNI_EXPORT_UNTRAINED);
    const size_t n = strlen(head) > 0 ? strlen(head) - 1 : 0;
    while (n > 0 && list != NULL && !starts_with_name(list, head, n)) {
        list = strstr(list, ", ");
        list = list == NULL ? NULL : list + 2;
    }
    return n > 0 && list != NULL;
}

static bool same(const lvni_ckpt_st_tensor *e, int ndim, const int64_t *shape)
{
    return e->ndim == ndim && memcmp(e->shape, shape, (size_t)ndim * sizeof *shape) == 0;
}

/* Is it a first layer that differs in the channels of its images alone? Then they are kept. */
static void note_channels(load *l, const lvni_ckpt_st_tensor *e, int ndim, const int64_t *shape)
{
    enum { MOST = 4 };
    const int axis = l->checkpoint ? 3 : 1;
    bool alike = e->ndim == 4 && ndim == 4 && e->shape[axis] <= MOST && shape[axis] <= MOST;
    for (int i = 0; alike && i < 4; i++) {
        alike = i == axis || e->shape[i] == shape[i];
    }
    if (alike) {
        l->channels[0] = e->shape[axis];
        l->channels[1] = shape[axis];
    }
}

/* One tensor of the file, as f32 into `to`; found is left where it is not there, or differs, which
 * is noted. shape: that the model needs. */
static lvn_status read_tensor(load *l, const char *name, int ndim, const int64_t *shape, float *to,
                              int *found)
{
    const lvni_ckpt_st_tensor *e = find(l, name);
    char mine[96], theirs[96], head[LVNI_WEIGHT_NAME];
    lvni_tensor_shape_string(ndim, shape, mine);
    const lvni_ckpt_st_other *other =
        e != NULL ? NULL
                  : lvni_run_weight_names_find_other(&l->names_in_file, l->naming, l->prefix, name);
    if (other != NULL) {
        add_name(&l->unread, "%s (%s)", other->name, other->what);
        return LVN_OK;
    }
    if (e == NULL) {
        lvni_run_naming_translate(l->naming, name, head);
        add_name(&l->missing, "%s %s", head, mine);
        return LVN_OK;
    }
    l->used[e - lvni_ckpt_st_at(l->file, 0)] = true;
    if (!same(e, ndim, shape)) {
        head_of(l, head);
        note_channels(l, e, ndim, shape);
        l->head_differs = l->head_differs || (head[0] != '\0' && starts_with(name, head));
        add_name(&l->different, "%s is %s, this model needs %s", e->name,
                 lvni_tensor_shape_string(e->ndim, e->shape, theirs), mine);
        return LVN_OK;
    }
    ++*found;
    return lvni_ckpt_st_read_f32(e, to);
}

/* One tensor, by its name within the part; parameter NULL: it lies in the file as it does here. */
static lvn_status take(load *l, const char *name, lvn_tensor *t, const lvni_nn_parameter *parameter)
{
    int64_t shape[LVN_MAX_NDIM];
    char part[LVNI_WEIGHT_NAME];
    int found = 0;
    if (parameter != NULL && !l->checkpoint) {
        lvni_nn_parameter_file_shape(parameter, shape);
    } else {
        memcpy(shape, t->shape, sizeof shape);
    }
    const int parts = lvni_run_naming_part(l->naming, name, 0, part);
    const int64_t numel = lvn_numel(t) / parts;
    shape[0] = parts > 1 ? shape[0] / parts : shape[0];
    for (int i = 0; i < parts; i++) {
        (void)lvni_run_naming_part(l->naming, name, i, part);
        LVN_TRY(read_tensor(l, part, t->ndim, shape, l->memory + i * numel, &found));
    }
    if (found < parts) {
        return LVN_OK;
    }
    l->taken++;
    if (parameter != NULL && !l->checkpoint) {
        lvni_nn_parameter_from_file(parameter, l->memory, l->here);
        return lvni_tensor_mem_copy(t->data, l->here, (size_t)lvn_numel(t) * sizeof(float));
    }
    return lvni_tensor_mem_copy(t->data, l->memory, (size_t)lvn_numel(t) * sizeof(float));
}

static void add_root(load *l, const char *name)
{
    char theirs[LVNI_WEIGHT_NAME];
    if (name == NULL) {
        return;
    }
    lvni_run_naming_translate(l->naming, name, theirs);
    const size_t n = strcspn(theirs, ".");
    for (int i = 0; i < l->n_roots; i++) {
        if (strlen(l->root[i]) == n && strncmp(l->root[i], theirs, n) == 0) {
            return;
        }
    }
    if (l->n_roots < ROOTS && n < ROOT) {
        snprintf(l->root[l->n_roots++], ROOT, "%.*s", (int)n, theirs);
    }
}

static void find_roots(load *l)
{
    for (int i = 0; i < l->model->n_parameters; i++) {
        add_root(l, name_within(l, l->model->parameters[i].name));
    }
    for (int i = 0; i < l->model->n_buffers; i++) {
        add_root(l, name_within(l, l->model->buffers[i]->name));
    }
}

/* Would a network with this tensor compute something else? One among ours does (a layer more,
 * squeeze and excitation); beside ours it is mostly another head. Unknown for a model of a user. */
static bool is_foreign(const load *l, const char *name, const lvni_ckpt_st_tensor *e)
{
    int64_t n = 1;
    for (int i = 0; i < e->ndim; i++) {
        n *= e->shape[i];
    }
    if (n <= 1 || lvni_nn_zoo_find(l->network) == NULL) { /* counters of tools: total_ops */
        return false;
    }
    const size_t root = strcspn(name, ".");
    for (int i = 0; i < l->n_roots; i++) {
        if (strlen(l->root[i]) == root && strncmp(l->root[i], name, root) == 0) {
            return true;
        }
    }
    return lvni_run_naming_foreign(name) != NULL;
}

/* name: in the file, without what wrappers put there. */
static void record_unused(load *l, const lvni_ckpt_st_tensor *e, const char *name, bool inside)
{
    char shape[96];
    name += inside ? strlen(l->prefix) : 0;
    const bool foreign = inside && is_foreign(l, name, e);
    add_name(foreign ? &l->foreign : &l->unused, "%s %s", e->name,
             lvni_tensor_shape_string(e->ndim, e->shape, shape));
    if (foreign && l->feature == NULL) {
        l->feature = lvni_run_naming_foreign(name);
    }
}

/* What the model has no place for. PyTorch's counter of batches means nothing to a fixed momentum;
 * of a checkpoint only the model counts. */
static void list_unused(load *l)
{
    char head[LVNI_WEIGHT_NAME];
    lvni_run_naming_translate(l->naming, l->head, head);
    find_roots(l);
    for (int64_t i = 0; i < l->names_in_file.n; i++) {
        const lvni_run_weight_name *name = &l->names_in_file.entries[i];
        const lvni_ckpt_st_tensor *e = lvni_ckpt_st_at(l->file, name->tensor);
        const bool inside = starts_with(name->plain, l->prefix);
        const bool fresh =
            inside && head[0] != '\0' && starts_with(name->plain + strlen(l->prefix), head);
        if (e == NULL) {
            const lvni_ckpt_st_other *other =
                lvni_ckpt_st_other_at(l->file, name->tensor - lvni_ckpt_st_count(l->file));
            add_name(&l->unused, "%s (%s)", other->name, other->what);
        } else if (!l->used[name->tensor] && !fresh && (inside || !l->checkpoint) &&
                   !ends_with(e->name, ".num_batches_tracked")) {
            record_unused(l, e, name->plain, inside);
        }
    }
    end_names(&l->unused);
    end_names(&l->foreign);
}

/* This network is in the file, as a part of a larger one. */
static bool has_inside(const load *l)
{
    char end[LVNI_WEIGHT_NAME];
    const lvni_nn_model *m = l->model;
    const char *first = NULL;
    for (int i = 0; first == NULL && i < m->n_parameters; i++) {
        first = name_within(l, m->parameters[i].name);
    }
    for (int i = 0; first == NULL && i < m->n_buffers; i++) { /* of one that follows another */
        first = name_within(l, m->buffers[i]->name);
    }
    snprintf(end, sizeof end, ".%s", first != NULL ? first : "");
    for (int64_t i = 0; i < l->names_in_file.n; i++) {
        if (ends_with(l->names_in_file.entries[i].plain, end)) {
            return true;
        }
    }
    return false;
}

/* A checkpoint of another model, whose run has exported a network alone, as recipes that pretrain
 * do: which file that is. */
static void append_export(const load *l, lvni_core_str *text)
{
    static const char folder[] = "checkpoints/";
    const char *at = NULL;
    for (const char *next = strstr(l->path, folder); next != NULL;
         next = strstr(next + 1, folder)) {
        at = next;
    }
    if (!l->checkpoint || l->taken > 0 || at == NULL || !has_inside(l)) {
        return;
    }
    lvni_core_str file = {0};
    lvni_core_str_printf(&file, "%.*s" LVNI_RUN_EXPORTS "%s", (int)(at - l->path), l->path,
                         at + sizeof folder - 1);
    if (lvni_core_path_exists(lvni_core_str_text(&file))) {
        lvni_core_str_printf(text, " the model that its run has exported is weights=%s;",
                             lvni_core_str_text(&file));
    }
    lvni_core_str_free(&file);
}

static lvn_status check_loaded(load *l)
{
    lvni_core_str text = {0};
    end_names(&l->missing);
    end_names(&l->different);
    end_names(&l->unread);
    if (l->missing.n + l->different.n + l->unread.n + l->foreign.n == 0) {
        return LVN_OK;
    }
    lvni_core_str_printf(&text, "%s does not fit this model, %s:", l->path, l->network);
    const char *network = lvni_run_weight_names_network(&l->names_in_file);
    if (network != NULL && strcmp(network, l->network) != 0) {
        lvni_core_str_printf(&text, " its tensors are those of model=%s;", network);
    }
    if (l->foreign.n > 0) {
        lvni_core_str_printf(
            &text,
            " it is of another network, with %s%s%d tensor%s more among those of this one: %s;",
            l->feature == NULL ? "" : l->feature, l->feature == NULL ? "" : ", ", l->foreign.n,
            lvni_core_plural(l->foreign.n, "", "s"), lvni_core_str_text(&l->foreign.text));
    }
    if (l->missing.n > 0) {
        lvni_core_str_printf(&text, " %d missing: %s;", l->missing.n,
                             lvni_core_str_text(&l->missing.text));
    }
    if (l->different.n > 0) {
        lvni_core_str_printf(&text, " %d of another shape: %s;", l->different.n,
                             lvni_core_str_text(&l->different.text));
    }
    if (l->channels[0] != l->channels[1]) {
        lvni_core_str_printf(
            &text,
            " the file is for images of %lld channel%s, and those here have %lld: `levin pretrain` "
            "takes it with transform_args.num_channels=%lld, and classify one that was trained "
            "with 3;",
            (long long)l->channels[0], lvni_core_plural(l->channels[0], "", "s"),
            (long long)l->channels[1], (long long)l->channels[0]);
    }
    if (l->unread.n > 0) {
        lvni_core_str_printf(
            &text, " %d that levin does not read, convert %s to f32, f16 or bf16: %s;", l->unread.n,
            lvni_core_plural(l->unread.n, "it", "them"), lvni_core_str_text(&l->unread.text));
    }
    if (l->unused.n > 0) {
        lvni_core_str_printf(&text, " %d in the file that it has no place for: %s;", l->unused.n,
                             lvni_core_str_text(&l->unused.text));
    }
    append_export(l, &text);
    if (l->head_differs) {
        lvni_core_str_append(&text, " reset_head=true draws the last layer again");
    }
    lvn_status s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        size_t n = strlen(lvni_core_str_text(&text));
        n -= lvni_core_str_text(&text)[n - 1] == ';';
        s = lvn_error_set(LVN_ERR_MISMATCH, __FILE__, __LINE__, "%.*s", (int)n,
                          lvni_core_str_text(&text));
    }
    lvni_core_str_free(&text);
    return s;
}

/* A constant is of the data of its run: one that begins has its own, and of another shape it
 * decides nothing. */
static bool keeps_constant(const load *l, const lvn_buffer *b, const char *name)
{
    const lvni_ckpt_st_tensor *e = find(l, name);
    if (e != NULL) {
        l->used[e - lvni_ckpt_st_at(l->file, 0)] = true;
    }
    return l->starts || e == NULL || !same(e, b->tensor->ndim, b->tensor->shape);
}

/* A classifier that is not trained stays as it is where the file has none, or one of other
 * classes. */
static bool is_left(load *l, const lvn_buffer *b, const char *name)
{
    const lvni_ckpt_st_tensor *e = find(l, name);
    if (b->rule != LVNI_RULE_FIXED || b->needed || (e != NULL && l->part[0] == '\0')) {
        return false;
    }
    int64_t shape[LVN_MAX_NDIM];
    lvni_nn_parameter_file_shape(&b->file, shape);
    const bool fits =
        e != NULL && same(e, b->tensor->ndim, l->checkpoint ? b->tensor->shape : shape);
    if (e != NULL) {
        l->used[e - lvni_ckpt_st_at(l->file, 0)] = true;
    }
    return !fits;
}

/* Only means belong to every file of the network: a queue stays as it is at the start, and what
 * follows becomes a copy of what was loaded. */
static lvn_status take_buffer(load *l, const lvn_buffer *b)
{
    const char *name = name_within(l, b->name);
    const bool kept = name != NULL && b->is_constant && keeps_constant(l, b, name);
    if (name == NULL || kept || (b->left_out && l->part[0] == '\0') ||
        lvni_run_naming_lacks(l->naming, b->name) || is_left(l, b, name)) {
        return LVN_OK;
    }
    if (b->rule == LVNI_RULE_MEAN || b->needed || find(l, name) != NULL) {
        return take(l, name, b->tensor, b->file.tensor != NULL ? &b->file : NULL);
    }
    return b->rule == LVNI_RULE_FOLLOW ? lvni_nn_model_copy_leader(b, l->model->weights) : LVN_OK;
}

static lvn_status run(load *l, lvni_nn_model *m, const char *inner)
{
    int64_t largest = 1;
    for (int i = 0; i < m->n_parameters; i++) {
        largest = m->parameters[i].numel > largest ? m->parameters[i].numel : largest;
    }
    for (int i = 0; i < m->n_buffers; i++) {
        largest = m->buffers[i]->numel > largest ? m->buffers[i]->numel : largest;
    }
    l->memory = lvni_core_alloc(LVNI_TAG_CKPT, (size_t)largest * sizeof *l->memory);
    l->here = lvni_core_alloc(LVNI_TAG_CKPT, (size_t)largest * sizeof *l->here);
    l->used =
        lvni_core_calloc(LVNI_TAG_CKPT, (size_t)lvni_ckpt_st_count(l->file) + 1, sizeof *l->used);
    if (l->memory == NULL || l->here == NULL || l->used == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(choose_names(l, inner));
    for (int i = 0; i < m->n_parameters; i++) {
        const lvni_nn_parameter *p = &m->parameters[i];
        const char *name = name_within(l, p->name);
        if (name != NULL && (l->head[0] == '\0' || !starts_with(name, l->head))) {
            LVN_TRY(take(l, name, p->tensor, p));
        }
    }
    for (int i = 0; i < 2 * m->n_buffers; i++) { /* leaders first */
        const lvn_buffer *b = m->buffers[i % m->n_buffers];
        const bool now = (b->rule == LVNI_RULE_FOLLOW) == (i >= m->n_buffers);
        LVN_TRY(now ? take_buffer(l, b) : LVN_OK);
    }
    list_unused(l);
    lvni_nn_model_touch(m);
    return check_loaded(l);
}

static void fill_report(load *l, const lvni_nn_model *model, lvni_run_weights_report *report)
{
    const size_t n = strlen(l->head);
    lvni_core_str_append(&report->prefix, l->checkpoint ? "" : l->prefix);
    report->naming = lvni_run_naming_label(l->naming);
    report->taken = l->taken;
    for (int i = 0; i < model->n_parameters; i++) {
        report->all += name_within(l, model->parameters[i].name) != NULL ? 1 : 0;
    }
    for (int i = 0; i < model->n_buffers; i++) {
        const lvn_buffer *b = model->buffers[i];
        const bool own = l->starts && b->is_constant;
        report->all += !own && name_within(l, b->name) != NULL ? 1 : 0;
    }
    report->unused = l->unused.text;
    lvni_core_str_append_n(&report->head, l->head, n > 0 ? n - 1 : 0);
    l->unused.text = (lvni_core_str){0};
}

static void load_free(load *l)
{
    lvni_core_free(l->memory);
    lvni_core_free(l->here);
    lvni_core_free(l->used);
    lvni_run_weight_names_free(&l->names_in_file);
    lvni_core_str_free(&l->missing.text);
    lvni_core_str_free(&l->different.text);
    lvni_core_str_free(&l->unread.text);
    lvni_core_str_free(&l->unused.text);
    lvni_core_str_free(&l->foreign.text);
}

const char *lvni_run_weights_network(const lvni_nn_model *m, const char *part)
{
    for (int i = 0; part != NULL && i < m->n_modules; i++) {
        if (strcmp(m->modules[i]->path, part) == 0) {
            return m->modules[i]->cls->name;
        }
    }
    return m->root->cls->name;
}

/* A checkpoint of a model with this part. */
static bool holds_within(const load *l, const char *part)
{
    char front[LVNI_WEIGHT_NAME];
    snprintf(front, sizeof front, "%s%s.", LVNI_CKPT_MODEL, part);
    for (int64_t i = 0; l->checkpoint && i < lvni_ckpt_st_count(l->file); i++) {
        if (starts_with(lvni_ckpt_st_at(l->file, i)->name, front)) {
            return true;
        }
    }
    return false;
}

/* l: has file, path and average. */
static lvn_status load_from(lvni_nn_model *model, load *l, const lvni_run_weights_source *from,
                            const char *inner, lvni_run_weights_report *report)
{
    char head[256];
    l->model = model;
    l->starts = from->starts;
    l->checkpoint = lvni_ckpt_st_meta_get(l->file, LVNI_CKPT_FORMAT) != NULL;
    l->part =
        from->part == NULL || (from->or_whole && holds_within(l, from->part)) ? "" : from->part;
    l->network = lvni_run_weights_network(model, l->part[0] != '\0' ? l->part : NULL);
    head_of(l, head);
    const bool untrained = is_untrained(l, head) || lacks_classifier(l, head);
    if (from->reset_head || untrained) {
        memcpy(l->head, head, sizeof head);
    }
    const lvn_status s = run(l, model, inner);
    if (report != NULL) {
        fill_report(l, model, report);
        report->untrained = untrained;
        report->of_part = l->part[0] != '\0';
    }
    load_free(l);
    return s;
}

lvn_status lvni_run_model_load_shown(lvni_nn_model *model, const lvni_ckpt_st_file *file,
                                     const char *part, const char *path, bool average)
{
    load l = {.file = file, .path = path, .average = average};
    return load_from(model, &l, &(lvni_run_weights_source){.part = part}, NULL, NULL);
}

/* All parameters of the model are there, the last layer included. */
static bool has_all(const load *l)
{
    for (int i = 0; i < l->model->n_parameters; i++) {
        if (lvni_run_weight_names_find(&l->names_in_file, LVNI_NAMING_OWN, LVNI_CKPT_MODEL,
                                       l->model->parameters[i].name) == NULL) {
            return false;
        }
    }
    return true;
}

/* The model that a run has exported, where its last checkpoint has that network within another
 * model, as those of recipes that pretrain have; *path (lvni_core_free) NULL: the checkpoint is of
 * this model, or of a third one. Those of other names are files that the user chose. */
static lvn_status find_export_of_run(const load *of, const lvni_run_weights_source *from,
                                     char **path)
{
    load l = *of;
    *path = NULL;
    if (lvni_ckpt_st_meta_get(l.file, LVNI_CKPT_FORMAT) == NULL ||
        strcmp(l.path, from->path) == 0) {
        return LVN_OK;
    }
    l.part = from->part == NULL ? "" : from->part;
    const lvn_status s = lvni_run_weight_names_make(l.file, l.path, NULL, &l.names_in_file);
    if (s == LVN_OK && !has_all(&l) && has_inside(&l)) {
        *path = lvni_run_dir_file(from->path, LVNI_RUN_EXPORTS, "last");
    }
    load_free(&l);
    if (*path != NULL && !lvni_core_path_exists(*path)) {
        lvni_core_free(*path);
        *path = NULL;
    }
    return s;
}

/* *l: its file and path, which the caller closes and frees. */
static lvn_status open_source(const lvni_nn_model *model, const lvni_run_weights_source *from,
                              load *l, lvni_ckpt_st_file **file, char **name, const char **inner)
{
    const char *network = lvni_run_weights_network(model, from->part);
    lvni_run_weights_source other = *from;
    char *exported = NULL;
    LVN_TRY(lvni_run_weights_open(from, network, name, inner, file));
    *l = (load){.model = model, .file = *file, .path = *name};
    lvn_status s = find_export_of_run(l, from, &exported);
    if (s == LVN_OK && exported == NULL) {
        return LVN_OK;
    }
    lvni_ckpt_st_close(*file);
    lvni_core_free(*name);
    *name = NULL;
    if (s == LVN_OK) {
        other.path = exported;
        s = lvni_run_weights_open(&other, network, name, inner, file);
        *l = (load){.file = *file, .path = *name};
    }
    lvni_core_free(exported);
    return s;
}

lvn_status lvni_run_model_load(lvni_nn_model *model, const lvni_run_weights_source *from,
                               lvni_run_weights_report *report)
{
    char *name;
    const char *inner;
    lvni_ckpt_st_file *file;
    load l;
    if (report != NULL) {
        *report = (lvni_run_weights_report){.naming = ""};
    }
    LVN_TRY(open_source(model, from, &l, &file, &name, &inner));
    const lvn_status s = load_from(model, &l, from, inner, report);
    lvni_ckpt_st_close(file);
    if (report != NULL) {
        report->file = name;
    } else {
        lvni_core_free(name);
    }
    return s;
}

/* Rows of the weight of the last layer. */
static lvn_status count_classes(load *l, const char *inner, int *n)
{
    char weight[300];
    head_of(l, l->head);
    snprintf(weight, sizeof weight, "%sweight", l->head);
    LVN_TRY(choose_names(l, inner));
    const lvni_ckpt_st_tensor *e = find(l, weight);
    if (e == NULL || e->ndim != 2 || e->shape[0] < 1 || e->shape[0] > 1000000) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "%s has no %s (classes, features): it holds another network than model=%s",
                 l->path, weight, l->network);
    }
    if (is_untrained(l, l->head)) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "%s is a pretrained network whose last layer, %.*s, has the values of its start: "
                 "levin train classify weights=%s model=%s trains one",
                 l->path, (int)strlen(l->head) - 1, l->head, l->path, l->network);
    }
    *n = (int)e->shape[0];
    return LVN_OK;
}

lvn_status lvni_run_weights_classes(const lvni_nn_model *model, const lvni_run_weights_source *from,
                                    int *n)
{
    char *name;
    const char *inner;
    lvni_ckpt_st_file *file;
    LVN_TRY(lvni_run_weights_open(from, model->root->cls->name, &name, &inner, &file));
    load l = {.model = model,
              .part = "",
              .network = model->root->cls->name,
              .file = file,
              .path = name,
              .checkpoint = lvni_ckpt_st_meta_get(file, LVNI_CKPT_FORMAT) != NULL};
    const lvn_status s = count_classes(&l, inner, n);
    load_free(&l);
    lvni_ckpt_st_close(file);
    lvni_core_free(name);
    return s;
}

void lvni_run_weights_report_log(const lvni_run_weights_report *report, const char *path)
{
    lvni_core_str text = {0};
    lvni_core_str_printf(&text, "weights=%s: ", path);
    if (strcmp(report->file, path) != 0) {
        lvni_core_str_printf(&text, "%s, ", report->file);
    }
    lvni_core_str_printf(&text, "%d of the model's %d tensors %s from it", report->taken,
                         report->all, lvni_core_plural(report->taken, "is", "are"));
    if (report->naming[0] != '\0') {
        lvni_core_str_printf(&text, ", with the names of %s", report->naming);
    }
    if (report->prefix.len > 0) {
        lvni_core_str_printf(&text, "%s %s",
                             report->naming[0] != '\0' ? " behind" : ", with names that begin with",
                             lvni_core_str_text(&report->prefix));
    }
    if (report->head.len > 0) {
        lvni_core_str_printf(
            &text, "; the last layer, %s, is drawn again (%s)", lvni_core_str_text(&report->head),
            report->untrained ? "in the file it is not trained" : "reset_head=true");
    }
    lvni_log_line(LVNI_LOG_INFO, "%s", lvni_core_str_text(&text));
    if (report->unused.len > 0) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "weights=%s: not used, since this model has no place for them: %s", path,
                      lvni_core_str_text(&report->unused));
    }
    lvni_core_str_free(&text);
}

void lvni_run_weights_report_free(lvni_run_weights_report *report)
{
    lvni_core_free(report->file);
    lvni_core_str_free(&report->prefix);
    lvni_core_str_free(&report->head);
    lvni_core_str_free(&report->unused);
}
