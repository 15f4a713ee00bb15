/* A trained model, or a module of it, as safetensors with the names and layouts of PyTorch and a
 * model card, or as a file for torch.load: the writer, which training calls beside every
 * checkpoint, and the command `levin export`. exported.c reads such files. */
#include "run/exported.h"

#include "ckpt/checkpoint.h"
#include "ckpt/torch_file.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/str.h"
#include "log/run_log.h"
#include "run/fit_impl.h"
#include "run/options.h"
#include "run/output_file.h"
#include "run/recipe.h"
#include "trainer/identity.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 256 };

typedef struct tensors {
    lvni_ckpt_st_tensor *entry;
    float *memory;      /* weights whose order there is another */
    char (*name)[NAME]; /* of the counters */
    int64_t n;
    lvni_core_str untrained;
} tensors;

static void tensors_free(tensors *t)
{
    lvni_core_free(t->entry);
    lvni_core_free(t->memory);
    lvni_core_free(t->name);
    lvni_core_str_free(&t->untrained);
}

/* The tensor's name within the module; NULL: it lies outside. */
static const char *name_within(const char *part, const char *name)
{
    const size_t n = part == NULL ? 0 : strlen(part);
    return n == 0 ? name : strncmp(name, part, n) == 0 && name[n] == '.' ? name + n + 1 : NULL;
}

/* PyTorch's batch norm has a counter of batches beside its statistics; only momentum=None looks at
 * it. */
static void add_counters(const lvni_run_export_content *c, tensors *t)
{
    static const int64_t zero;
    static const char statistics[] = ".running_mean";
    int n = 0;
    for (int i = 0; i < c->model->n_buffers; i++) {
        const char *name = name_within(c->part, c->model->buffers[i]->name);
        const size_t length = name == NULL ? 0 : strlen(name),
                     stem = length > strlen(statistics) ? length - strlen(statistics) : 0;
        if (stem > 0 && strcmp(name + stem, statistics) == 0) {
            snprintf(t->name[n], NAME, "%.*s.num_batches_tracked", (int)stem, name);
            t->entry[t->n++] =
                (lvni_ckpt_st_tensor){.name = t->name[n++], .dtype = LVN_I64, .data = &zero};
        }
    }
}

/* Into the order that files have, if that is another. */
static void reorder(const tensors *t, lvni_ckpt_st_tensor *entry, const lvni_nn_parameter *p,
                    const float *values, int64_t offset)
{
    if (p->layout != LVNI_LAYOUT_PLAIN) {
        lvni_nn_parameter_to_file(p, values + offset, t->memory + offset);
        lvni_nn_parameter_file_shape(p, entry->shape);
        entry->data = t->memory + offset;
    }
}

/* "fc" of "fc.weight" and "fc.bias", once. */
static void note_untrained(tensors *t, const char *name)
{
    const char *dot = strrchr(name, '.');
    const size_t n = dot == NULL ? strlen(name) : (size_t)(dot - name), all = t->untrained.len;
    const bool again =
        all >= n && strncmp(lvni_core_str_text(&t->untrained) + all - n, name, n) == 0;
    if (!again) {
        lvni_core_str_printf(&t->untrained, "%s%.*s", all > 0 ? ", " : "", (int)n, name);
    }
}

static void gather_buffers(const lvni_run_export_content *c, tensors *t)
{
    for (int i = 0; i < c->model->n_buffers; i++) {
        const lvn_buffer *b = c->model->buffers[i];
        const char *name = name_within(c->part, b->name);
        if (name == NULL) {
            continue;
        }
        lvni_ckpt_st_tensor *entry = &t->entry[t->n++];
        *entry = lvni_ckpt_st_entry(name, b->tensor, c->values + b->value_offset);
        reorder(t, entry, &b->file, c->values, b->value_offset);
        if (b->rule == LVNI_RULE_FIXED) {
            note_untrained(t, name);
        }
    }
}

static lvn_status gather(const lvni_run_export_content *c, tensors *t)
{
    const lvni_nn_model *m = c->model;
    const size_t n_buffers = (size_t)m->n_buffers;
    *t = (tensors){.entry = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)m->n_parameters + 2 * n_buffers,
                                             sizeof *t->entry),
                   .memory = lvni_core_alloc(LVNI_TAG_CKPT, (size_t)m->n_values * sizeof(float)),
                   .name = lvni_core_calloc(LVNI_TAG_CKPT, n_buffers, NAME)};
    if (t->entry == NULL || t->memory == NULL || t->name == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < m->n_parameters; i++) {
        const lvni_nn_parameter *p = &m->parameters[i];
        const char *name = name_within(c->part, p->name);
        if (name != NULL) {
            lvni_ckpt_st_tensor *entry = &t->entry[t->n++];
            *entry = lvni_ckpt_st_entry(name, p->tensor, c->values + m->offset[i]);
            reorder(t, entry, p, c->values, m->offset[i]);
        }
    }
    gather_buffers(c, t);
    if (t->n == 0) {
        LVN_FAIL(LVN_ERR_INTERNAL, "the model has no module %s to export", c->part);
    }
    add_counters(c, t);
    return lvni_core_str_status(&t->untrained);
}

void lvni_run_card_print(const lvni_run_recipe *recipe, const lvni_run_card *card, const void *own,
                         lvni_core_str *out)
{
    lvni_core_str_printf(out, "{\"version\":%d,\"model\":", LVNI_CARD_VERSION);
    lvni_core_str_json(out, card->model);
    for (int i = 0; i < LVNI_PIN_COUNT; i++) {
        lvni_core_str_printf(out, ",\"%s\":%d", lvni_core_pin_table[i].key,
                             lvni_core_pins_get(&card->pins, i));
    }
    lvni_core_str_append(out, ",\"ema_decay\":");
    lvni_core_str_double(out, card->ema_decay);
    if (card->data != NULL) {
        lvni_core_str_append(out, ",\"data\":");
        lvni_core_str_json(out, card->data);
    }
    lvni_core_str_printf(out, ",\"seed\":%lld", (long long)card->seed);
    recipe->card->write(card, own, out);
    lvni_core_str_append(out, "}");
}

/* The metadata of the file; texts are borrowed. */
typedef struct metadata {
    lvni_core_str card, pins;
    char step[24];
    lvni_ckpt_st_meta entry[6];
    int64_t n;
} metadata;

static void add_entry(metadata *m, const char *key, const char *text)
{
    if (text[0] != '\0') {
        m->entry[m->n++] = (lvni_ckpt_st_meta){key, text};
    }
}

static lvn_status list_metadata(const lvni_run_export_content *c, const tensors *t, metadata *m)
{
    const lvni_run_recipe *recipe = c->recipe;
    add_entry(m, "format", "pt");
    if (recipe != NULL) {
        lvni_run_card_print(recipe, c->card, c->own, &m->card);
        lvni_core_pin_entries_print(c->card->pins.entries, " ", &m->pins);
        add_entry(m, LVNI_CARD_RECIPE, recipe->name);
        add_entry(m, recipe->card->key, lvni_core_str_text(&m->card));
    }
    if (c->step >= 0) {
        snprintf(m->step, sizeof m->step, "%lld", (long long)c->step);
    }
    add_entry(m, LVNI_IDENTITY_PINS, lvni_core_str_text(&m->pins));
    add_entry(m, LVNI_CKPT_STEP, m->step);
    add_entry(m, LVNI_EXPORT_UNTRAINED, lvni_core_str_text(&t->untrained));
    LVN_TRY(lvni_core_str_status(&m->card));
    return lvni_core_str_status(&m->pins);
}

lvn_status lvni_run_export_model(const lvni_run_export_content *c, const char *path)
{
    tensors t;
    metadata m = {.n = 0};
    lvn_status s;
    LVNI_TRY_DONE(s, gather(c, &t));
    if (lvni_run_output_ends_in(path, ".pt", sizeof ".pt" - 1)) {
        s = lvni_ckpt_torch_save(path, t.entry, t.n);
        goto done;
    }
    LVNI_TRY_DONE(s, list_metadata(c, &t, &m));
    s = lvni_ckpt_st_save(path, t.entry, t.n, m.entry, m.n);
done:
    tensors_free(&t);
    lvni_core_str_free(&m.card);
    lvni_core_str_free(&m.pins);
    return s;
}

/* ---- of a training ---- */

const void *lvni_run_own_card(const lvni_run_job *job)
{
    return job->own_card != NULL ? job->own_card : job;
}

static lvni_run_card card_of(const lvni_run_job *q, bool averaged)
{
    const lvni_core_config *c = q->config;
    const bool average = averaged && lvni_core_config_bool(c, "use_ema");
    lvni_run_card card = {.model = q->model,
                          .pins = lvni_run_read_pins(c), /* resolved by now */
                          .ema_decay = average ? lvni_core_config_float(c, "ema.decay") : 0.0,
                          .data = q->data,
                          .seed = lvni_core_config_int(c, "seed")};
    card.pins.entries = q->ranks == NULL ? NULL : q->ranks->pins;
    return card;
}

/* model/ is never the average; whether a checkpoint has one is in its configuration. */
void lvni_run_fit_card(const lvni_run_job *q, lvni_core_str *out)
{
    const lvni_run_card card = card_of(q, false);
    lvni_run_card_print(q->recipe, &card, lvni_run_own_card(q), out);
}

lvn_status lvni_run_fit_export(const lvni_run_job *q, const lvni_nn_model *model,
                               const float *values, int64_t step, const char *path)
{
    const lvni_run_card card = card_of(q, true);
    return lvni_run_export_model(
        &(lvni_run_export_content){.model = model,
                                   .values = values,
                                   .part = q->exported_part,
                                   .recipe = q->recipe->card == NULL ? NULL : q->recipe,
                                   .card = &card,
                                   .own = lvni_run_own_card(q),
                                   .step = step},
        path);
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
    {.name = "weights",
     .type = LVNI_OPT_PATH,
     .help = "In place of a run: weights of another program, as a checkpoint of rcGAN, for a model "
             "that the other arguments are a training of: levin export gan config=FILE "
             "weights=FILE."},
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
     .help = "Keep in the file's metadata what levin predict needs: recipe, network, its "
             "arguments, and what it does with data."},
};
const lvni_core_option_table lvni_run_export_options = LVNI_OPTION_TABLE("export", export_rows);

const lvni_core_option_table *const lvni_run_export_keys[] = {&lvni_run_export_options, NULL};

static lvn_status open_model(const lvni_run_recipe *recipe, lvni_core_config *c,
                             lvni_run_exported **out)
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
        const lvni_run_exported_place alone = {checkpoint, NULL, use_ema};
        return lvni_run_exported_open(recipe, &alone, LVNI_RUN_EXPORT, c, out);
    }
    if (model == NULL) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "model= is missing: a run directory, a checkpoint or an exported .safetensors file");
    }
    const lvni_run_exported_place place = {model, checkpoint, use_ema};
    return lvni_run_exported_open(recipe, &place, LVNI_RUN_EXPORT, c, out);
}

/* Which weights are written: of which file, best or last in its name, and step. */
static void report_weights(const lvni_run_exported *e)
{
    char step[64] = "", average[64] = "";
    if (e->step >= 0) {
        snprintf(step, sizeof step, ", after step %lld of its training", (long long)e->step);
    }
    if (e->card.ema_decay > 0.0) {
        lvni_core_format(average, sizeof average, ", their average (ema.decay=%g)",
                         e->card.ema_decay);
    }
    lvni_log_line(LVNI_LOG_INFO, "note: the weights of %s%s%s", e->file, step, average);
}

/* Of the module that is written; one that follows another has its numbers in buffers. */
static int64_t count_parameters(const lvni_run_export_content *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->model->n_parameters; i++) {
        const lvni_nn_parameter *p = &c->model->parameters[i];
        n += name_within(c->part, p->name) != NULL ? p->numel : 0;
    }
    for (int i = 0; i < c->model->n_buffers; i++) {
        const lvn_buffer *b = c->model->buffers[i];
        const bool counts = b->rule == LVNI_RULE_FOLLOW && strstr(b->name, ".running_") == NULL;
        n += counts && name_within(c->part, b->name) != NULL ? b->numel : 0;
    }
    return n;
}

static lvn_status write_file(const lvni_run_recipe *recipe, lvni_core_config *c)
{
    static const lvni_run_output_kind kind = {
        .what = "a model is exported as safetensors",
        .endings = ".safetensors",
        .others = "of such a file levin ckpt convert FILE.safetensors FILE.pt writes one for "
                  "torch.load",
        .binary = true};
    lvni_run_exported *e;
    const char *output = lvni_run_output_path(c);
    LVN_TRY(lvni_run_output_check(c, &kind));
    LVN_TRY(open_model(recipe, c, &e));
    lvni_core_str more = {0};
    if (recipe->summary != NULL) {
        recipe->summary(&e->job, &more);
    }
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&more));
    const lvni_run_export_content content = {.model = e->model,
                                             .values = e->model->weights,
                                             .part = e->job.exported_part,
                                             .recipe =
                                                 lvni_core_config_bool(c, "card") ? recipe : NULL,
                                             .card = &e->card,
                                             .own = lvni_run_own_card(&e->job),
                                             .step = -1};
    LVNI_TRY_DONE(s, lvni_run_export_model(&content, output));
    report_weights(e);
    if (!lvni_run_output_is_stdout(c)) {
        lvni_core_print(stdout, "%s: %s%s, %lld parameters, names and layouts of PyTorch\n", output,
                        e->card.model, lvni_core_str_text(&more),
                        (long long)count_parameters(&content));
    }
done:
    lvni_core_str_free(&more);
    lvni_run_exported_close(e);
    return s;
}

/* Of the command, whatever a training's keys have by that name. */
static bool is_checkpoint(const char *argument)
{
    static const char name[] = "checkpoint";
    return strncmp(argument + strspn(argument, "-"), name, sizeof name - 1) == 0;
}

/* The other keys are those of a training then. */
static lvn_status find_weights(const lvni_run_recipe *recipe, int n, const char *const *args,
                               bool *found)
{
    lvni_core_config *c;
    const char *name, *text;
    LVN_TRY(lvni_core_config_create(recipe->keys, &c));
    *found = false;
    for (int i = 0; i < n && !*found;) {
        const int used = lvni_core_config_arguments_of(c, n - i, args + i, &name, &text);
        *found = used > 0 && strcmp(name, "weights") == 0 && !is_checkpoint(args[i]);
        i += used > 0 ? used : 1;
    }
    const bool named = lvni_core_config_row(c, "model") != NULL; /* a network, by its name */
    lvni_core_config_destroy(c);
    for (int i = 0; i < n && *found && !named; i++) {
        if (strncmp(args[i], "model=", 6) == 0) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s and weights=: which one? model= is a trained model, and weights= of "
                     "another program come with the keys of a training",
                     args[i]);
        }
    }
    return LVN_OK;
}

lvn_status lvni_run_export(const lvni_run_recipe *recipe, int n, const char *const *args)
{
    lvni_core_config *c;
    char help[LVNI_RUN_HELP];
    bool begins;
    LVN_TRY(find_weights(recipe, n, args, &begins));
    if (begins) {
        return lvni_run_export_start(recipe, n, args);
    }
    LVN_TRY(lvni_run_read_config(recipe->export_keys, lvni_run_help_of(recipe, "export", help),
                                 &(lvni_run_defaults){0}, n, args, &c));
    const lvn_status s = write_file(recipe, c);
    lvni_core_config_destroy(c);
    return s;
}
