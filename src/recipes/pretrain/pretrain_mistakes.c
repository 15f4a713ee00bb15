/* Mistakes of a training's method_args.*: what belongs to other methods, an optimizer that the
 * method does not train with, a teacher that is missing (pretrain.h). dinov2's are in
 * pretrain_dinov2_keys.c. */
#include "recipes/pretrain/pretrain.h"

#include "core/str.h"

#include <stdlib.h>
#include <string.h>

static const char FRONT[] = "method_args.";

void lvni_pretrain_check_distillation(lvni_core_config *c)
{
    if (lvni_core_config_is_on(c, "resume")) {
        return;
    }
    if (!lvni_core_config_is_set(c, "method_args.teacher") &&
        !lvni_core_config_is_mistaken(c, "method_args.teacher")) {
        lvni_core_config_add_mistake(
            c, "`method_args.teacher` is missing: the network to learn from, as in "
               "method_args.teacher=torchvision/resnet50");
    }
    const char *teacher = lvni_core_config_str(c, "method_args.teacher");
    if (teacher != NULL && lvni_core_config_is_set(c, "method_args.n_teacher_blocks") &&
        lvni_core_config_int(c, "method_args.n_teacher_blocks") > 1 &&
        !lvni_nn_zoo_is_transformer(teacher)) {
        lvni_core_config_add_mistake(
            c,
            "method_args.n_teacher_blocks=%lld: the layers of %s have maps of different sizes; "
            "only transformers have more than one to give",
            (long long)lvni_core_config_int(c, "method_args.n_teacher_blocks"), teacher);
    }
    if (!lvni_core_config_is_set(c, "method_args.teacher_weights")) {
        lvni_core_config_add_mistake(
            c, "`method_args.teacher_weights` is missing: a file with the teacher's weights, as "
               "torchvision, timm, DINOv2 or levin write it; docs/weights.md has where pretrained "
               "ones come from");
    }
}

/* Does the text of a row's fallback mean what the key has? */
static bool is_fallback(const lvni_core_config *c, const lvni_core_option *row)
{
    const char *text = row->fallback;
    switch (row->type) {
    case LVNI_OPT_INT: return text != NULL && lvni_core_config_int(c, row->name) == atoll(text);
    case LVNI_OPT_FLOAT:
        return text != NULL &&
               !(lvni_core_config_float(c, row->name) != lvni_core_strtod(text, NULL));
    case LVNI_OPT_CHOICE:
        return text != NULL && strcmp(lvni_core_config_str(c, row->name), text) == 0;
    case LVNI_OPT_BOOL:
        return text != NULL && lvni_core_config_bool(c, row->name) == (strcmp(text, "true") == 0);
    default: return false;
    }
}

bool lvni_pretrain_is_given(const lvni_core_config *c, const lvni_core_option *row)
{
    const char *key = row->alias_of != NULL ? row->alias_of : row->name;
    const lvni_core_layer layer = lvni_core_config_layer(c, key);
    if (row->alias_of != NULL && strcmp(lvni_core_config_spelled(c, key), row->name) != 0) {
        return false;
    }
    /* the config.yaml of a run has all keys */
    return layer == LVNI_LAYER_ARGUMENTS ||
           (layer == LVNI_LAYER_FILE && lvni_core_config_is_set(c, key) &&
            (row->alias_of != NULL || !is_fallback(c, row)));
}

static bool has(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = strstr(words, word); at != NULL; at = strstr(at + 1, word)) {
        if ((at == words || at[-1] == ' ') && at[n] == ' ') {
            return true;
        }
    }
    return false;
}

static bool trains_with(const lvni_pretrain_method *m, const char *optimizer)
{
    bool found = !m->of_these;
    for (size_t i = 0; i < sizeof m->optim / sizeof *m->optim && m->optim[i].name != NULL; i++) {
        found = found || strcmp(m->optim[i].name, optimizer) == 0;
    }
    return found;
}

/* key: as it is written; of: the row that it sets. A message has room for a few names. */
static void add_foreign(lvni_core_config *c, const lvni_pretrain_method *m, const char *key,
                        const char *of)
{
    enum { MOST = 400 };
    const int n = (int)strlen(m->args) - 1;
    lvni_core_config_add_mistake(c, "%s: method=%s has no such number; %s%.*s  (%s)", key, m->name,
                                 n > MOST ? "`levin help train.pretrain` shows what it has"
                                          : "it has ",
                                 n > MOST ? 0 : n, m->args, lvni_core_config_origin(c, of));
}

void lvni_pretrain_method_check(lvni_core_config *c, const lvni_pretrain_method *m)
{
    if (lvni_core_config_is_on(c, "resume")) { /* the saved run has it */
        return;
    }
    if (lvni_core_config_bool(c, "exact") && !m->limits_steps) {
        lvni_core_config_add_mistake(c,
                                     "exact=true: method=%s has no limited number of steps  (%s)",
                                     m->name, lvni_core_config_origin(c, "exact"));
    }
    for (size_t i = 0; i < lvni_pretrain_method_options.n; i++) {
        const lvni_core_option *row = &lvni_pretrain_method_options.rows[i];
        const char *key = row->name;
        if (strncmp(key, FRONT, sizeof FRONT - 1) != 0 || has(m->args, key + sizeof FRONT - 1)) {
            continue;
        }
        if (lvni_pretrain_is_given(c, row)) {
            add_foreign(c, m, key, row->alias_of != NULL ? row->alias_of : key);
        }
    }
    if (m->check != NULL) {
        m->check(c);
    }
    const char *optimizer = lvni_core_config_str(c, "optim.name");
    if (optimizer != NULL && !trains_with(m, optimizer)) {
        const char *second = m->optim[1].name;
        lvni_core_config_add_mistake(c, "optim=%s: method=%s trains with optim=%s%s%s  (%s)",
                                     optimizer, m->name, m->optim[0].name,
                                     second == NULL ? "" : " or ", second == NULL ? "" : second,
                                     lvni_core_config_origin(c, "optim.name"));
    }
}
