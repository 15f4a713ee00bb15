/* A trained model as safetensors with the names and layouts of PyTorch: the writer, which training
 * calls beside every checkpoint, and the command `levin export`. exported.c reads such files. */
#include "recipes/exported.h"

#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/escape.h"
#include "core/str.h"
#include "recipes/classify.h"
#include "recipes/options.h"
#include "recipes/output_file.h"
#include "trainer/identity.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 256 };

typedef struct tensors {
    lvni_ckpt_st_tensor *entry;
    float *memory;      /* weights whose order there is another */
    char (*name)[NAME]; /* of the counters */
    int64_t n;
} tensors;

static void tensors_free(tensors *t)
{
    lvni_core_free(t->entry);
    lvni_core_free(t->memory);
    lvni_core_free(t->name);
}

/* PyTorch's batch norm has a counter of batches beside its statistics; only momentum=None looks at
 * it. */
static void add_counters(const lvni_nn_model *m, tensors *t)
{
    static const int64_t zero;
    static const char statistics[] = ".running_mean";
    int n = 0;
    for (int i = 0; i < m->n_buffers; i++) {
        const char *name = m->buffers[i]->name;
        const size_t stem =
            strlen(name) > strlen(statistics) ? strlen(name) - strlen(statistics) : 0;
        if (strcmp(name + stem, statistics) == 0) {
            snprintf(t->name[n], NAME, "%.*s.num_batches_tracked", (int)stem, name);
            t->entry[t->n++] =
                (lvni_ckpt_st_tensor){.name = t->name[n++], .dtype = LVN_I64, .data = &zero};
        }
    }
}

static lvn_status gather(const lvni_nn_model *m, const float *values, tensors *t)
{
    const size_t n_buffers = (size_t)m->n_buffers;
    *t = (tensors){.entry = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)m->n_parameters + 2 * n_buffers,
                                             sizeof *t->entry),
                   .memory = lvni_core_alloc(LVNI_TAG_CKPT, (size_t)m->n_weights * sizeof(float)),
                   .name = lvni_core_calloc(LVNI_TAG_CKPT, n_buffers, NAME),
                   .n = m->n_parameters + m->n_buffers};
    if (t->entry == NULL || t->memory == NULL || t->name == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < m->n_parameters; i++) {
        const lvni_nn_parameter *p = &m->parameters[i];
        t->entry[i] = lvni_ckpt_st_entry(p->name, p->tensor, values + m->offset[i]);
        if (p->layout != LVNI_LAYOUT_PLAIN) {
            lvni_nn_parameter_to_file(p, values + m->offset[i], t->memory + m->offset[i]);
            lvni_nn_parameter_file_shape(p, t->entry[i].shape);
            t->entry[i].data = t->memory + m->offset[i];
        }
    }
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_buffer *b = m->buffers[i];
        t->entry[m->n_parameters + i] =
            lvni_ckpt_st_entry(b->name, b->tensor, values + b->value_offset);
    }
    add_counters(m, t);
    return LVN_OK;
}

void lvni_recipes_classifier_card_print(const lvni_recipes_classifier_card *card,
                                        lvni_core_str *out)
{
    lvni_core_str_append(out, "{\"model\":");
    lvni_core_str_json(out, card->model);
    lvni_core_str_printf(out, ",\"image_size\":%d", card->image_size);
    for (int i = 0; i < LVNI_PIN_COUNT; i++) {
        lvni_core_str_printf(out, ",\"%s\":%d", lvni_core_pin_table[i].key,
                             lvni_core_pins_get(&card->pins, i));
    }
    lvni_core_str_append(out, ",\"dropout\":");
    lvni_core_str_double(out, card->dropout);
    lvni_core_str_printf(out, ",\"eval\":{\"resize\":%d,\"crop\":%d,\"filter\":\"%s\"}",
                         card->eval_resize, card->eval_crop,
                         lvni_data_filter_name(card->eval_filter));
    lvni_core_str_append(out, ",\"ema_decay\":");
    lvni_core_str_double(out, card->ema_decay);
    lvni_core_str_printf(out, ",\"mean\":[%.9g,%.9g,%.9g],\"std\":[%.9g,%.9g,%.9g],\"classes\":[",
                         (double)card->mean[0], (double)card->mean[1], (double)card->mean[2],
                         (double)card->std[0], (double)card->std[1], (double)card->std[2]);
    for (int i = 0; i < card->n_classes; i++) {
        lvni_core_str_append(out, i == 0 ? "" : ",");
        lvni_core_str_json(out, card->class_names[i]);
    }
    lvni_core_str_append(out, "]");
    if (card->data != NULL) {
        lvni_core_str_append(out, ",\"data\":");
        lvni_core_str_json(out, card->data);
        lvni_core_str_append(out, ",\"val_split\":");
        lvni_core_str_double(out, card->val_split);
        lvni_core_str_printf(out, ",\"seed\":%lld", (long long)card->seed);
    }
    lvni_core_str_append(out, "}");
}

lvn_status lvni_recipes_export_model(const lvni_nn_model *model, const float *values,
                                     const lvni_recipes_classifier_card *card, int64_t step,
                                     const char *path)
{
    tensors t;
    lvni_core_str json = {0}, pins = {0};
    lvn_status s = gather(model, values, &t);
    if (card != NULL) {
        lvni_recipes_classifier_card_print(card, &json);
        lvni_core_pin_entries_print(card->pins.entries, " ", &pins);
    }
    if (s == LVN_OK) {
        s = lvni_core_str_status(&json);
    }
    if (s == LVN_OK) {
        s = lvni_core_str_status(&pins);
    }
    if (s == LVN_OK) {
        char at[24];
        lvni_ckpt_st_meta meta[4] = {{"format", "pt"}};
        int64_t n = 1;
        snprintf(at, sizeof at, "%lld", (long long)step);
        if (card != NULL) {
            meta[n++] = (lvni_ckpt_st_meta){LVNI_CARD, lvni_core_str_text(&json)};
        }
        if (pins.len > 0) {
            meta[n++] = (lvni_ckpt_st_meta){LVNI_IDENTITY_PINS, lvni_core_str_text(&pins)};
        }
        if (step >= 0) {
            meta[n++] = (lvni_ckpt_st_meta){LVNI_CKPT_STEP, at};
        }
        s = lvni_ckpt_st_save(path, t.entry, t.n, meta, n);
    }
    tensors_free(&t);
    lvni_core_str_free(&json);
    lvni_core_str_free(&pins);
    return s;
}

/* ---- the command ---- */

static const lvni_core_option export_rows[] = {
    {.name = "config",
     .type = LVNI_OPT_PATH,
     .help = "YAML file with any of these keys.",
     .flags = LVNI_OPT_NOT_SAVED},
    {.name = "model",
     .type = LVNI_OPT_PATH,
     .help = "Run directory, checkpoint or exported .safetensors file."},
    LVNI_OPTION_ALIAS("run", "model"),
    {.name = "checkpoint",
     .type = LVNI_OPT_PATH,
     .help = "best or last of a run directory (unset: best), or the path of a checkpoint."},
    {.name = "use_ema",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .help = "false: of a run with ema.decay, the weights themselves and not their average; needs "
             "the run directory or a checkpoint."},
    {.name = "output",
     .type = LVNI_OPT_PATH,
     .fallback = "model.safetensors",
     .help = "File to write (.safetensors), for load_state_dict of PyTorch; -: stdout."},
    {.name = "card",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .help = "Keep in the file's metadata what levin predict needs: network, image size, "
             "classes, colours."},
};
static const lvni_core_option_table export_table = LVNI_OPTION_TABLE("export", export_rows);

const lvni_core_option_table *lvni_recipes_export_tables(size_t *n)
{
    *n = 1;
    return &export_table;
}

static lvn_status open_model(const lvni_core_config *c, lvni_recipes_exported **out)
{
    const char *model = lvni_core_config_str(c, "model"),
               *checkpoint = lvni_core_config_str(c, "checkpoint");
    const bool use_ema = lvni_core_config_bool(c, "use_ema");
    const bool named =
        checkpoint != NULL && (strcmp(checkpoint, "best") == 0 || strcmp(checkpoint, "last") == 0);
    if (checkpoint != NULL && !named) {
        if (model != NULL) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "model=%s and checkpoint=%s: which one? Of a run directory checkpoint= is "
                     "best or last",
                     model, checkpoint);
        }
        return lvni_recipes_exported_open(checkpoint, NULL, use_ema, out);
    }
    if (model == NULL) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "model= is missing: a run directory, a checkpoint or an exported .safetensors file");
    }
    return lvni_recipes_exported_open(model, checkpoint, use_ema, out);
}

static lvn_status write_file(const lvni_core_config *c)
{
    static const lvni_recipes_output_kind kind = {
        .what = "a model is exported as safetensors", .endings = ".safetensors", .binary = true};
    lvni_recipes_exported *e;
    const char *output = lvni_recipes_output_path(c);
    LVN_TRY(lvni_recipes_output_check(c, &kind));
    LVN_TRY(open_model(c, &e));
    const lvn_status s =
        lvni_recipes_export_model(e->model, e->model->weights,
                                  lvni_core_config_bool(c, "card") ? &e->card : NULL, -1, output);
    if (s == LVN_OK && !lvni_recipes_output_is_stdout(c)) {
        lvni_core_print(
            stdout, "%s: %s with %d class%s, %lld parameters, names and layouts of PyTorch\n",
            output, e->card.model, e->card.n_classes, lvni_core_plural(e->card.n_classes, "", "es"),
            (long long)lvni_nn_model_count(e->model));
    }
    lvni_recipes_exported_close(e);
    return s;
}

lvn_status lvni_recipes_export(int n, const char *const *args)
{
    lvni_core_config *c;
    LVN_TRY(lvni_recipes_read_config(&export_table, 1, "levin help export", NULL, n, args, &c));
    const lvn_status s = write_file(c);
    lvni_core_config_destroy(c);
    return s;
}
