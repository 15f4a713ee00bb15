/* Using a trained classifier: `predict` writes a table, `eval` measures; both can draw a page of
 * images. Ranks share the chunks of the data, rank 0 takes all rows. An array of images goes to
 * predict_array.c. */
#include "core/alloc.h"
#include "core/config.h"
#include "core/escape.h"
#include "core/math.h"
#include "core/vfs.h"
#include "data/dataset.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "recipes/devices.h"
#include "recipes/class_metrics.h"
#include "recipes/classify.h"
#include "recipes/exported.h"
#include "recipes/fit.h"
#include "recipes/image_data.h"
#include "recipes/output_file.h"
#include "recipes/ranks.h"
#include "recipes/sheet_samples.h"
#include "recipes/options.h"
#include "trainer/trainer.h"

#include <levin/device.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const lvni_core_option_table *lvni_recipes_classify_predict_tables(size_t *n)
{
    static lvni_core_option_table all[4];
    all[0] = lvni_recipes_image_options;
    all[1] = lvni_recipes_inference_options;
    all[2] = lvni_recipes_predict_options;
    all[3] = lvni_recipes_preprocess_options;
    *n = 4;
    return all;
}

const lvni_core_option_table *lvni_recipes_classify_eval_tables(size_t *n)
{
    static lvni_core_option_table all[4];
    all[0] = lvni_recipes_image_options;
    all[1] = lvni_recipes_inference_options;
    all[2] = lvni_recipes_eval_options;
    all[3] = lvni_recipes_preprocess_options;
    *n = 4;
    return all;
}

/* What the rows of a prediction are turned into; with several ranks rank 0 gets them all. */
typedef struct use {
    const lvni_core_config *config;
    lvni_recipes_ranks *ranks;
    /* of the first rank here; the others have one each, on their devices */
    lvni_recipes_exported *exported;
    lvni_recipes_image_data data;
    bool labels;
    lvni_recipes_predict_format format;
    lvni_core_str text;                        /* predict: the rows */
    int64_t n;                                 /* images predicted */
    lvni_recipes_class_metrics *metrics;       /* eval; of known labels */
    lvni_recipes_sheet_samples *samples;       /* for the page; NULL without */
    lvn_status (*finish)(const struct use *u); /* by rank 0, with all rows taken */
} use;

static const char *name_of(const use *u, int64_t sample, char number[24])
{
    const lvn_dataset *d = u->data.train;
    snprintf(number, 24, "%lld", (long long)sample);
    return d->cls->sample_name == NULL ? number : d->cls->sample_name(d, sample);
}

/* -1: not known, as always in `predict`, whose data need not have the model's classes. */
static int64_t label_of(const use *u, int64_t sample)
{
    const lvn_dataset *d = u->data.train;
    const int64_t label = !u->labels || d->cls->label == NULL ? -1 : d->cls->label(d, sample);
    return label < u->exported->card.n_classes ? label : -1;
}

static lvn_status take_row(void *user, int64_t sample, const float *p, int64_t k)
{
    use *u = user;
    int64_t best = 0;
    for (int64_t i = 0; i < k; i++) {
        if (!isfinite(p[i])) {
            LVN_FAIL(LVN_ERR_NON_FINITE,
                     "the model %s gives %g as a probability: its weights are not finite; train "
                     "again with a "
                     "smaller optim.lr",
                     lvni_core_config_str(u->config, "model"),
                     lvni_core_unsigned_nan((double)p[i]));
        }
        best = p[i] > p[best] ? i : best;
    }
    const int64_t label = label_of(u, sample);
    u->n++;
    if (label >= 0) {
        lvni_recipes_class_metrics_add(u->metrics, (int)label, (int)best, p);
    }
    if (u->samples != NULL) {
        const lvni_recipes_sheet_sample pick = {
            .sample = sample, .label = label, .predicted = best, .probability = p[best]};
        LVN_TRY(lvni_recipes_sheet_samples_offer(u->samples, &pick));
    }
    if (!u->labels) {
        char number[24];
        lvni_recipes_predict_row_write(&u->format, name_of(u, sample, number), p, &u->text);
    }
    return lvni_core_str_status(&u->text);
}

static bool leads(const use *u)
{
    return u->ranks->rank->rank == 0;
}

static lvn_status open_model(const use *u, lvni_recipes_exported **out)
{
    const lvni_core_config *c = u->config;
    return lvni_recipes_exported_open(lvni_core_config_str(c, "model"),
                                      lvni_core_config_str(c, "checkpoint"),
                                      lvni_core_config_bool(c, "use_ema"), out);
}

/* ---- a rank's part ---- */

/* Rank 0 reports the unreadable images of all ranks. */
static lvn_status report_unreadable(const lvni_recipes_rank *rank, lvni_data_loader *loader)
{
    lvni_core_str text = {0};
    void *all = NULL;
    size_t *bytes = lvni_core_calloc(LVNI_TAG_DATA, (size_t)rank->world, sizeof *bytes);
    lvni_data_loader_report(loader, &text);
    lvn_status s = bytes == NULL ? LVN_ERR_MEMORY : lvni_core_str_status(&text);
    if (s == LVN_OK && rank->comm == NULL) {
        bytes[0] = text.len;
    } else if (s == LVN_OK) {
        s = lvni_dist_comm_all_gather_sized(rank->comm, lvni_core_str_text(&text), text.len, &all,
                                            bytes);
    }
    const char *at = all != NULL ? all : lvni_core_str_text(&text);
    for (int i = 0; i < rank->world && s == LVN_OK && rank->rank == 0; at += bytes[i++]) {
        if (bytes[i] > 0) {
            lvni_log_line(LVNI_LOG_WARNING, "%.*s", (int)bytes[i], at);
        }
    }
    lvni_core_free(all);
    lvni_core_free(bytes);
    lvni_core_str_free(&text);
    return s;
}

static lvn_status make_plan(const lvni_core_config *c, int64_t n, const lvni_recipes_rank *rank,
                            lvni_plan *out)
{
    const lvni_plan_options o = {.n_samples = n,
                                 .batch_size = rank->world,
                                 .devices = rank->world,
                                 .rank = rank->rank,
                                 .cores = rank->cores,
                                 .eval_batch_size = lvni_core_config_int(c, "eval_batch_size")};
    LVN_TRY(lvni_plan_make(&o, out));
    const int64_t chunks = lvni_plan_eval_turns_of(out, n, rank->rank).count,
                  most = chunks > 1 ? chunks : 1;
    const int lanes =
        lvni_core_config_is_set(c, "lanes") ? (int)lvni_core_config_int(c, "lanes") : rank->cores;
    out->lanes = lanes > most ? (int)most : lanes;
    return LVN_OK;
}

static lvn_tensor *probabilities(const lvn_module *root, const lvn_batch *batch)
{
    return lvn_softmax(lvn_forward(root, batch->image));
}

/* The rank's chunks of the data through the model on its device; rank 0 gets the rows of all, in
 * the order of the data. A collective of the ranks. */
static lvn_status predict_chunks(use *u, const lvni_recipes_exported *exported,
                                 const lvni_recipes_rank *rank)
{
    const lvni_core_config *c = u->config;
    const lvn_dataset *data = u->data.train;
    lvni_plan plan;
    LVN_TRY(make_plan(c, data->cls->length(data), rank, &plan));
    const lvni_data_loader_options o = {
        .dataset = data,
        .plan = &plan,
        .in_turn = true,
        .workers = rank->workers,
        .skip_unreadable = strcmp(lvni_core_config_str(c, "on_error"), "skip") == 0};
    lvni_data_loader *loader = NULL;
    lvni_trainer_lanes *lanes = NULL;
    const int team = rank->cores / plan.lanes > 1 ? rank->cores / plan.lanes : 1;
    LVN_TRY(lvni_data_loader_create(&o, &loader));
    lvn_status s = lvni_trainer_lanes_create(plan.lanes, team, &exported->card.pins, &lanes);
    if (s == LVN_OK) {
        s = lvni_trainer_predict(exported->model, loader, lanes, rank->comm, probabilities,
                                 take_row, u);
    }
    if (s == LVN_OK) {
        s = report_unreadable(rank, loader);
    }
    lvni_data_loader_destroy(loader);
    lvni_trainer_lanes_destroy(lanes);
    return s;
}

static lvn_status rank_work(void *user, const lvni_recipes_rank *rank)
{
    use *u = user;
    lvni_recipes_exported *own = NULL;
    const bool first = rank == u->ranks->rank;
    LVN_TRY(lvni_recipes_accelerator_use(u->config, rank->device));
    lvn_status s = first ? LVN_OK : lvni_cpu_start();
    if (s == LVN_OK && !first) {
        s = open_model(u, &own);
    }
    if (s == LVN_OK) {
        s = predict_chunks(u, first ? u->exported : own, rank);
    }
    lvni_recipes_exported_close(own);
    return s;
}

/* ---- the commands ---- */

static bool ends_in(const char *path, const char *end)
{
    return lvni_recipes_output_ends_in(path, end, strlen(end));
}

static lvn_status check_arguments(const lvni_core_config *c)
{
    const char *sheet = lvni_core_config_str(c, "sheet");
    if (lvni_core_config_str(c, "model") == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "model= is missing: a run directory or an exported .safetensors file");
    }
    if (sheet != NULL && !ends_in(sheet, ".png")) {
        LVN_FAIL(LVN_ERR_USAGE, "sheet=%s: the page is a PNG file; give a name that ends in .png",
                 sheet);
    }
    LVN_TRY(lvni_recipes_exported_check(lvni_core_config_str(c, "model"),
                                        lvni_core_config_str(c, "checkpoint")));
    return lvni_recipes_image_source_check(c);
}

static void report_trained(const use *u)
{
    const int64_t n = u->data.train->cls->length(u->data.train), trained = u->data.n_trained;
    if (trained == n && n == 1) {
        lvni_log_line(LVNI_LOG_INFO, "note: this image was trained on");
    } else if (trained == n) {
        lvni_log_line(LVNI_LOG_INFO, "note: all of these %lld images were trained on",
                      (long long)n);
    } else if (trained > 0) {
        lvni_log_line(
            LVNI_LOG_INFO,
            "note: %lld of these %lld images %s trained on; split=val measures the others",
            (long long)trained, (long long)n, lvni_core_plural(trained, "was", "were"));
    }
}

static bool wants_json(const lvni_core_config *c)
{
    return lvni_core_config_bool(c, "json") || ends_in(lvni_core_config_str(c, "output"), ".jsonl");
}

static lvn_status choose_format(use *u)
{
    const lvni_core_config *c = u->config;
    const int n = u->exported->card.n_classes, top_k = (int)lvni_core_config_int(c, "top_k");
    if (top_k > n) {
        LVN_FAIL(LVN_ERR_USAGE, "top_k=%d: the model %s has %d class%s; give at most %d", top_k,
                 lvni_core_config_str(c, "model"), n, lvni_core_plural(n, "", "es"), n);
    }
    u->format =
        (lvni_recipes_predict_format){.class_names = u->exported->card.class_names,
                                      .n_classes = n,
                                      .top_k = top_k,
                                      .probabilities = lvni_core_config_bool(c, "probabilities"),
                                      .json = wants_json(c)};
    return LVN_OK;
}

static lvn_status open_and_run(use *u)
{
    LVN_TRY(lvni_cpu_start());
    LVN_TRY(lvni_recipes_accelerator_use(u->config, u->ranks->rank->device));
    LVN_TRY(open_model(u, &u->exported));
    const lvni_recipes_classifier_card *card = &u->exported->card;
    LVN_TRY(u->labels ? lvni_recipes_image_data_for_eval(u->config, card, &u->data)
                      : lvni_recipes_image_data_for_model(u->config, card, &u->data));
    report_trained(u);
    if (lvni_core_config_str(u->config, "sheet") != NULL) {
        LVN_TRY(lvni_recipes_sheet_samples_create(card->n_classes, &u->samples));
    }
    if (u->labels) {
        LVN_TRY(lvni_recipes_class_metrics_create(card->class_names, card->n_classes, &u->metrics));
    } else {
        LVN_TRY(choose_format(u));
        lvni_recipes_predict_head(&u->format, &u->text);
    }
    LVN_TRY(lvni_recipes_ranks_each(u->ranks, rank_work, u));
    if (u->n == 0 && leads(u)) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "data=%s: none of its %lld images could be read: see the warning for their names",
                 lvni_core_config_str(u->config, "data"),
                 (long long)u->data.train->cls->length(u->data.train));
    }
    return LVN_OK;
}

/* After the results: a page that cannot be written must not cost them. */
static lvn_status draw_sheet(const use *u)
{
    const char *path = lvni_core_config_str(u->config, "sheet");
    if (path == NULL) {
        return LVN_OK;
    }
    LVN_TRY(lvni_recipes_sheet_samples_draw(u->samples, u->data.train, &u->data.transform,
                                            u->exported->card.class_names, path));
    if (lvni_core_config_bool(u->config, "json") ||
        (!u->labels && lvni_recipes_output_is_stdout(u->config))) {
        return LVN_OK; /* stdout holds results alone */
    }
    lvni_core_print(stdout, "sheet in %s\n", path);
    return LVN_OK;
}

static void use_free(use *u)
{
    lvni_recipes_image_data_free(&u->data);
    lvni_recipes_exported_close(u->exported);
    lvn_device_use(LVN_CPU);
    lvni_core_str_free(&u->text);
    lvni_recipes_sheet_samples_destroy(u->samples);
    lvni_recipes_class_metrics_destroy(u->metrics);
}

static lvn_status write_rows(const use *u)
{
    LVN_TRY(lvni_core_file_write(lvni_recipes_output_path(u->config), lvni_core_str_text(&u->text),
                                 u->text.len));
    if (!lvni_recipes_output_is_stdout(u->config)) {
        lvni_core_print(stdout, "%lld prediction%s in %s\n", (long long)u->n,
                        lvni_core_plural(u->n, "", "s"), lvni_recipes_output_path(u->config));
    }
    return LVN_OK;
}

/* Before any work that an error here would waste. */
static lvn_status check_predict(const lvni_core_config *c)
{
    if (lvni_core_config_str(c, "weights") != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "weights= has no names of classes and no image size: it needs "
                                "data=FILE.npy, an array of images");
    }
    LVN_TRY(check_arguments(c));
    const bool json = lvni_core_config_bool(c, "json");
    const lvni_recipes_output_kind kind = {
        .what = json ? "predictions of images are JSON lines (json=true)"
                     : "predictions of images are a table or JSON lines",
        .endings = json ? ".jsonl" : ".csv|.jsonl"};
    return lvni_recipes_output_check(c, &kind);
}

/* The matrix is written first: where that fails nothing is printed that looks like success. */
static lvn_status report_metrics(const use *u)
{
    lvni_core_str text = {0}, table = {0};
    const lvni_core_config *c = u->config;
    const char *confusion = lvni_core_config_str(c, "confusion");
    lvn_status s = LVN_OK;
    if (confusion != NULL) {
        s = lvni_recipes_class_metrics_csv(u->metrics, &table);
        if (s == LVN_OK) {
            s = lvni_core_file_write(confusion, lvni_core_str_text(&table), table.len);
        }
    }
    if (s == LVN_OK && lvni_core_config_bool(c, "json")) {
        lvni_core_str_append(&text, "{\"model\": ");
        lvni_core_str_json(&text, lvni_core_config_str(c, "model"));
        lvni_core_str_append(&text, ", \"data\": ");
        lvni_core_str_json(&text, lvni_core_config_str(c, "data"));
        lvni_core_str_printf(&text, ", \"split\": \"%s\", ", u->data.split);
        lvni_recipes_class_metrics_json(u->metrics, &text);
        lvni_core_str_append(&text, "}\n");
    } else if (s == LVN_OK) {
        lvni_recipes_class_metrics_print(u->metrics, &text);
    }
    if (s == LVN_OK) {
        s = lvni_core_str_status(&text);
    }
    if (s == LVN_OK) {
        s = lvni_core_file_write(LVNI_STDOUT_PATH, lvni_core_str_text(&text), text.len);
    }
    if (s == LVN_OK && confusion != NULL && !lvni_core_config_bool(c, "json")) {
        lvni_core_print(stdout, "confusion matrix in %s\n", confusion);
    }
    lvni_core_str_free(&text);
    lvni_core_str_free(&table);
    return s;
}

static lvn_status check_eval(const lvni_core_config *c)
{
    const char *confusion = lvni_core_config_str(c, "confusion");
    LVN_TRY(check_arguments(c));
    if (confusion != NULL && !ends_in(confusion, ".csv")) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "confusion=%s: the matrix is a table; give a name that ends in .csv", confusion);
    }
    return confusion == NULL ? LVN_OK : lvni_core_file_check(confusion);
}

static lvn_status run_and_finish(use *u)
{
    LVN_TRY(open_and_run(u));
    if (leads(u)) {
        LVN_TRY(u->finish(u));
        LVN_TRY(draw_sheet(u));
    }
    return LVN_OK;
}

/* Called by lvni_recipes_ranks_run. */
static lvn_status use_model(void *user, lvni_recipes_ranks *ranks)
{
    use *u = user;
    u->ranks = ranks;
    const lvn_status s = run_and_finish(u);
    const lvn_error error = *lvn_last_error();
    use_free(u);
    lvn_error_adopt(&error);
    return s;
}

lvn_status lvni_recipes_classify_predict(int n, const char *const *args)
{
    size_t n_tables;
    const lvni_core_option_table *tables = lvni_recipes_classify_predict_tables(&n_tables);
    lvni_core_config *c;
    LVN_TRY(lvni_recipes_read_config(tables, n_tables, "levin help predict", NULL, n, args, &c));
    lvni_recipes_ranks_command command = {
        .command = {"predict"}, .n = n, .args = args, .uses = true};
    lvn_status s = LVN_OK;
    if (lvni_core_config_bool(c, "json") &&
        lvni_core_config_layer(c, "output") == LVNI_LAYER_DEFAULT) {
        s = lvni_core_config_set(c, "output", "-", "json=true");
    }
    if (s != LVN_OK) {
        lvni_core_config_destroy(c);
        return s;
    }
    if (lvni_recipes_is_array(c)) {
        s = lvni_recipes_predict_array(c, &command);
    } else {
        use u = {.config = c, .finish = write_rows};
        command.check = check_predict;
        command.run = use_model;
        command.user = &u;
        s = lvni_recipes_ranks_run(c, &command);
    }
    lvni_core_config_destroy(c);
    return s;
}

lvn_status lvni_recipes_classify_eval(int n, const char *const *args)
{
    size_t n_tables;
    const lvni_core_option_table *tables = lvni_recipes_classify_eval_tables(&n_tables);
    lvni_core_config *c;
    LVN_TRY(lvni_recipes_read_config(tables, n_tables, "levin help eval", NULL, n, args, &c));
    use u = {.config = c, .labels = true, .finish = report_metrics};
    const lvni_recipes_ranks_command command = {.command = {"eval"},
                                                .n = n,
                                                .args = args,
                                                .check = check_eval,
                                                .uses = true,
                                                .run = use_model,
                                                .user = &u};
    const lvn_status s = lvni_recipes_ranks_run(c, &command);
    lvni_core_config_destroy(c);
    return s;
}
