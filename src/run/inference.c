/* The way of `predict` and `eval` through ranks, model and data (inference.h). */
#include "run/inference.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "run/best_checkpoint.h"
#include "run/devices.h"
#include "run/options.h"
#include "run/output_file.h"
#include "run/run_dir.h"
#include "trainer/left_out.h"

#include <levin/device.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

bool lvni_run_inference_leads(const lvni_run_inference *u)
{
    return u->ranks->rank->rank == 0;
}

lvni_run_exported_place lvni_run_inference_place(const lvni_core_config *c)
{
    return (lvni_run_exported_place){.path = lvni_core_config_str(c, "model"),
                                     .which = lvni_core_config_str(c, "checkpoint"),
                                     .use_ema = lvni_core_config_bool(c, "use_ema")};
}

/* ---- keys ---- */

lvn_status lvni_run_inference_read(const lvni_run_recipe *recipe, const char *command, int n,
                                   const char *const *args, lvni_core_config **out)
{
    char help[LVNI_RUN_HELP];
    const bool predicts = strcmp(command, "predict") == 0;
    LVN_TRY(lvni_run_read_config(predicts ? recipe->predict_keys : recipe->eval_keys,
                                 lvni_run_help_of(recipe, command, help), &(lvni_run_defaults){0},
                                 n, args, out));
    if (!predicts || !lvni_core_config_bool(*out, "json") ||
        lvni_core_config_layer(*out, "output") != LVNI_LAYER_DEFAULT) {
        return LVN_OK;
    }
    const lvn_status s = lvni_core_config_set(*out, "output", "-", "json=true");
    if (s != LVN_OK) {
        lvni_core_config_destroy(*out);
        *out = NULL;
    }
    return s;
}

lvn_status lvni_run_inference_check(const lvni_core_config *c)
{
    if (lvni_core_config_str(c, "model") == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "model= is missing: a run directory or an exported .safetensors file");
    }
    return lvni_run_exported_check(lvni_core_config_str(c, "model"),
                                   lvni_core_config_str(c, "checkpoint"));
}

bool lvni_run_inference_wants_lines(const lvni_core_config *c)
{
    static const char lines[] = ".jsonl";
    return lvni_core_config_bool(c, "json") ||
           lvni_run_output_ends_in(lvni_core_config_str(c, "output"), lines, sizeof lines - 1);
}

lvn_status lvni_run_inference_check_output(const lvni_core_config *c, const char *what)
{
    char text[128];
    const bool json = lvni_core_config_bool(c, "json");
    snprintf(text, sizeof text, "%s are %s", what,
             json ? "JSON lines (json=true)" : "a table or JSON lines");
    const lvni_run_output_kind kind = {.what = text, .endings = json ? ".jsonl" : ".csv|.jsonl"};
    return lvni_run_output_check(c, &kind);
}

static lvn_status check_predict(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_inference_check(c));
    return lvni_run_inference_check_output(c, "predictions");
}

/* ---- a rank's part ---- */

static bool skips_unreadable(const lvni_run_inference *u)
{
    return strcmp(lvni_core_config_str(u->config, "on_error"), "skip") == 0;
}

/* Rank 0 reports the unreadable samples of all ranks. */
static lvn_status report_unreadable(lvni_run_inference *use, const lvni_run_rank *rank,
                                    lvni_data_unreadable *u)
{
    lvni_core_str text = {0};
    LVN_TRY(lvni_trainer_unreadable_settle(u, rank->comm, 0));
    const bool any = lvni_data_unreadable_report(u, &text);
    if (any && use->goes_on && !skips_unreadable(use)) {
        if (rank == use->ranks->rank) { /* the first here; no other rank touches it */
            lvni_core_str_append(&use->unread, lvni_core_str_text(&text));
        }
    } else if (any && rank->rank == 0) {
        lvni_log_line(LVNI_LOG_WARNING, "%s", lvni_core_str_text(&text));
    }
    const lvn_status s = lvni_core_str_status(&text);
    lvni_core_str_free(&text);
    return s;
}

/* Where those that are left out are noted; *out stays NULL where none are. A rank that failed alone
 * could not go on with the others: where they do, it fails behind the last sample, with all. */
static lvn_status make_unreadable(const lvni_run_inference *u, lvni_data_unreadable **out)
{
    const int64_t n = u->data->cls->length(u->data);
    const bool skips = skips_unreadable(u), photos = u->as_run && u->exported->job.headers_read;
    const lvni_data_unreadable_options o = {
        .dataset = u->data,
        .what = "",
        .limit = u->goes_on && !skips ? n : lvni_trainer_unreadable_limit(skips, photos, n)};
    return o.limit == 0 ? LVN_OK : lvni_data_unreadable_create(&o, out);
}

/* Rows in the order of the data come as soon as they are there where ranks have chunks in turn. */
static bool in_turn(const lvni_run_inference *u)
{
    return u->results->output != NULL && !u->results->any_order;
}

static lvn_status make_plan(const lvni_run_inference *u, const lvni_run_rank *rank, lvni_plan *out)
{
    const lvni_core_config *c = u->config;
    LVN_TRY(lvni_data_dataset_check_length(u->data));
    const int64_t n = u->data->cls->length(u->data);
    const lvni_plan_options o = {.n_samples = n,
                                 .batch_size = rank->world,
                                 .devices = rank->world,
                                 .rank = rank->rank,
                                 .cores = rank->cores,
                                 .eval_batch_size = u->chunk};
    LVN_TRY(lvni_plan_make(&o, out));
    const int64_t chunks = in_turn(u) ? lvni_plan_eval_turns_of(out, n, rank->rank).count
                                      : lvni_plan_eval_chunks_of(out, n, rank->rank).count,
                  most = chunks > 1 ? chunks : 1;
    /* what runs with wgrad_threads threads does so in each lane */
    const int fixed = u->exported->card.pins.wgrad_threads,
              fit = rank->cores / (fixed > 1 ? fixed : 1),
              lanes = lvni_core_config_is_set(c, "lanes") ? (int)lvni_core_config_int(c, "lanes")
                      : fit > 1                           ? fit
                                                          : 1;
    out->lanes = lanes > most ? (int)most : lanes;
    return LVN_OK;
}

/* choose=METRIC: a step may log some metrics in some chunks only, so one that the first chunk does
 * not have is refused when a whole checkpoint has been measured; but most are misspelled, and a
 * checkpoint may take hours. None of the chunk's samples may be readable. */
static void warn_metric(const lvni_run_inference *u, const lvni_nn_step *first)
{
    lvni_core_str names = {0};
    double value;
    if (first->n_metrics > 0 && !lvni_run_metric_find(first, u->metric, &value, &names) &&
        lvni_run_inference_leads(u)) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "choose=%s: the validation step logs %s in the first chunk; one checkpoint "
                      "is measured, which shows whether others have it",
                      u->metric, lvni_core_str_text(&names));
    }
    lvni_core_str_free(&names);
}

static lvn_status check_metric(const lvni_run_inference *u, const lvni_nn_model *model,
                               const lvni_data_loader_options *of, lvni_trainer_lanes *lanes,
                               const lvni_run_rank *rank)
{
    lvni_data_loader_options o = *of;
    lvni_data_loader *loader;
    lvni_nn_step first;
    o.max_chunks = 1;
    LVN_TRY(lvni_data_loader_create(&o, &loader));
    const lvn_status s = lvni_trainer_evaluate(model, loader, lanes, rank->comm, &first);
    lvni_data_loader_destroy(loader);
    LVN_TRY(s);
    warn_metric(u, &first);
    return LVN_OK;
}

/* Of a lane's chunk: all ranks get the same. */
static lvn_status measure(lvni_run_inference *u, const lvni_nn_model *model,
                          lvni_data_loader *loader, lvni_trainer_lanes *lanes,
                          const lvni_run_rank *rank)
{
    lvni_nn_step metrics;
    const lvn_status s = lvni_trainer_evaluate(model, loader, lanes, rank->comm, &metrics);
    if (rank == u->ranks->rank) { /* the first here; no other rank touches it */
        u->metrics = metrics;
    }
    return s;
}

static lvn_status take_row(void *user, int64_t sample, const float *value, int64_t k)
{
    lvni_run_inference *u = user;
    return (u->results->row != NULL ? u->results->row : lvni_run_take_row)(u, sample, value, k);
}

/* The rank's chunks of the data through the model on its device; rank 0 gets the rows of all. A
 * collective of the ranks. */
static lvn_status run_chunks(lvni_run_inference *u, const lvni_nn_model *model,
                             const lvni_run_rank *rank)
{
    lvni_plan plan;
    lvni_data_unreadable *unreadable = NULL;
    LVN_TRY(make_plan(u, rank, &plan));
    LVN_TRY(make_unreadable(u, &unreadable));
    const lvni_data_loader_options o = {.dataset = u->data,
                                        .plan = &plan,
                                        .in_turn = in_turn(u),
                                        .workers = rank->workers,
                                        .unreadable = unreadable};
    lvni_data_loader *loader = NULL;
    lvni_trainer_lanes *lanes = NULL;
    const int team = rank->cores / plan.lanes > 1 ? rank->cores / plan.lanes : 1;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_trainer_lanes_create(plan.lanes, team, &u->exported->card.pins, &lanes));
    lvni_trainer_lanes_set_low(lanes, u->low);
    if (u->metric != NULL && !u->again && u->results->output == NULL && u->results->score == NULL) {
        LVNI_TRY_DONE(s, check_metric(u, model, &o, lanes, rank));
    }
    LVNI_TRY_DONE(s, lvni_data_loader_create(&o, &loader));
    LVNI_TRY_DONE(s, u->results->output != NULL
                         ? lvni_trainer_predict(model, loader, lanes, rank->comm,
                                                u->results->output, take_row, u)
                         : measure(u, model, loader, lanes, rank));
    if (unreadable != NULL) {
        LVNI_TRY_DONE(s, report_unreadable(u, rank, unreadable));
    }
done:
    lvni_data_loader_destroy(loader);
    lvni_data_unreadable_destroy(unreadable);
    lvni_trainer_lanes_destroy(lanes);
    return s;
}

static lvn_status rank_work(void *user, const lvni_run_rank *rank)
{
    lvni_run_inference *u = user;
    lvni_nn_model *own = NULL;
    lvni_run_exported *opened = NULL; /* by results that open models themselves */
    const bool first = rank == u->ranks->rank;
    LVN_TRY(lvni_run_accelerator_use(u->config, rank->device));
    lvn_status s;
    if (!first) {
        LVNI_TRY_DONE(s, lvni_cpu_start());
        LVNI_TRY_DONE(s, u->results->open != NULL ? u->results->open(u, &opened)
                                                  : lvni_run_exported_again(u->exported, &own));
    }
    s = run_chunks(u, first ? u->exported->model : opened != NULL ? opened->model : own, rank);
done:
    lvni_run_exported_close(opened);
    lvni_nn_model_destroy(own);
    return s;
}

/* ---- the command ---- */

static void report_model(const lvni_run_inference *u)
{
    const lvni_run_exported *e = u->exported;
    if (!lvni_run_inference_leads(u) || e->file == NULL) { /* weights of another program */
        return;
    }
    if (e->step >= 0) {
        lvni_log_line(LVNI_LOG_INFO, "note: the model of %s, after step %lld of its training",
                      e->file, (long long)e->step);
    } else {
        lvni_log_line(LVNI_LOG_INFO, "note: the model of %s", e->file);
    }
}

/* A file of a run lies in one of its folders; another folder is not looked into. */
static bool is_of_run(const char *folder)
{
    char path[PATH_MAX];
    const char *slash = strrchr(folder, '/'), *name = slash == NULL ? folder : slash + 1;
    const int n = snprintf(path, sizeof path, "%s/../run_id", folder);
    return (strcmp(name, "exported_models") == 0 || strcmp(name, "checkpoints") == 0) &&
           n < PATH_MAX && lvni_core_path_exists(path);
}

/* config.yaml of the run that the model is of: model= is its directory, or a file in a folder of
 * it. NULL: there is none (or no memory). */
static char *config_of_run(const char *model)
{
    char *file = lvni_run_path_join(model, "config.yaml");
    if (file == NULL || lvni_core_path_exists(file)) {
        return file;
    }
    lvni_core_free(file);
    lvni_core_str whole = {0};
    lvni_core_path_absolute(model, &whole);
    char *folder = whole.data, *slash = folder == NULL ? NULL : strrchr(folder, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    file = slash != NULL && is_of_run(folder) ? lvni_run_path_join(folder, "../config.yaml") : NULL;
    lvni_core_str_free(&whole);
    if (file != NULL && !lvni_core_path_exists(file)) {
        lvni_core_free(file);
        file = NULL;
    }
    return file;
}

/* on_error as in the training, unless it is given. A configuration that cannot be read counts as
 * one that is not there. */
static void keep_on_error(lvni_run_inference *u)
{
    static const char key[] = "on_error";
    char *text = NULL, *file = NULL;
    size_t bytes;
    lvni_core_config_place at = {0};
    if (lvni_core_config_layer(u->config, key) == LVNI_LAYER_DEFAULT) {
        file = config_of_run(lvni_core_config_str(u->config, "model"));
    }
    const bool found =
        file != NULL && lvni_core_file_read(file, (size_t)1 << 20, &text, &bytes) == LVN_OK &&
        lvni_core_config_find_place(u->config, key, file, text, bytes, &at) == LVN_OK &&
        at.end - at.at == 4;
    u->as_run = found && strncmp(text + at.at, "stop", 4) == 0;
    if (found && strncmp(text + at.at, "skip", 4) == 0 &&
        lvni_core_config_set(u->config, key, "skip", file) == LVN_OK &&
        lvni_run_inference_leads(u)) {
        lvni_log_line(LVNI_LOG_INFO, "note: on_error=skip, as %s has it", file);
    }
    lvn_clear_error();
    lvni_core_free(text);
    lvni_core_free(file);
}

/* As the training did it, where it is not given, and the numbers of the validation in its
 * precision. */
static void take_keys(lvni_run_inference *u)
{
    static const char size[] = "eval_batch_size";
    const lvni_core_config *keys = u->exported->job.keys;
    if (keys == NULL) {
        return;
    }
    if (lvni_core_config_layer(u->config, size) == LVNI_LAYER_DEFAULT &&
        lvni_core_config_is_set(keys, size)) {
        u->chunk = lvni_core_config_int(keys, size);
    }
    if (u->results->output == NULL) {
        u->low = lvni_trainer_precision_low(
            lvni_trainer_precision_of(lvni_core_config_str(keys, "precision")));
    }
}

/* Of recipes whose predictions have the key. */
static lvn_status take_precision(lvni_run_inference *u)
{
    static const char key[] = "precision";
    if (!lvni_core_config_has(u->config, key)) {
        return LVN_OK;
    }
    u->low =
        lvni_trainer_precision_low(lvni_trainer_precision_of(lvni_core_config_str(u->config, key)));
    return lvni_run_check_precision(u->config);
}

static lvn_status open_model(lvni_run_inference *u)
{
    const lvni_run_exported_place place = lvni_run_inference_place(u->config);
    if (u->results->open != NULL) {
        return u->results->open(u, &u->exported);
    }
    const bool predicts = strcmp(u->command, "predict") == 0;
    LVN_TRY(lvni_run_exported_open(u->recipe, &place, predicts ? LVNI_RUN_PREDICT : LVNI_RUN_EVAL,
                                   u->config, &u->exported));
    return lvni_run_choose_data(u);
}

static lvn_status (*check_of(const lvni_run_results *r,
                             const char *command))(const lvni_core_config *config)
{
    return r->check != NULL                  ? r->check
           : strcmp(command, "predict") == 0 ? check_predict
                                             : lvni_run_inference_check;
}

static lvn_status prepare(lvni_run_inference *u)
{
    const lvni_run_results *r = u->results;
    LVN_TRY(u->goes_on ? check_of(r, u->command)(u->config) : LVN_OK);
    keep_on_error(u);
    LVN_TRY(lvni_cpu_start());
    LVN_TRY(lvni_run_accelerator_use(u->config, u->ranks->rank->device));
    LVN_TRY(open_model(u));
    take_keys(u);
    LVN_TRY(take_precision(u));
    LVN_TRY(r->begin != NULL ? r->begin(u) : LVN_OK);
    return u->metric != NULL && r->check_score != NULL ? r->check_score(u, u->metric) : LVN_OK;
}

/* By rank 0. */
static lvn_status finish(lvni_run_inference *u)
{
    const lvni_run_results *r = u->results;
    return r->finish != NULL   ? r->finish(u)
           : r->output != NULL ? lvni_run_write_rows(u)
                               : lvni_run_print_metrics(u);
}

static lvn_status agree(const lvni_run_inference *u, lvn_status s)
{
    return u->goes_on ? lvni_run_ranks_agree(u->ranks, s) : s;
}

static lvn_status open_and_run(lvni_run_inference *u)
{
    const lvn_status s = prepare(u);
    LVN_TRY(agree(u, s));
    LVN_TRY(s);
    report_model(u);
    LVN_TRY(lvni_run_ranks_each(u->ranks, rank_work, u));
    if (u->unread.len > 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "on_error=stop, which leaves out none: %s",
                 lvni_core_str_text(&u->unread));
    }
    return agree(u, lvni_run_inference_leads(u) ? finish(u) : LVN_OK);
}

/* Called by lvni_run_ranks_run. */
static lvn_status use_model(void *user, lvni_run_ranks *ranks)
{
    lvni_run_inference *u = user;
    u->ranks = ranks;
    if (u->results->each != NULL) {
        return u->results->each(u);
    }
    u->low = LVN_F32;
    u->chunk = lvni_core_config_int(u->config, "eval_batch_size");
    const lvn_status s = open_and_run(u);
    const lvn_error error = *lvn_last_error();
    if (u->results->end != NULL) {
        u->results->end(u);
    }
    lvni_run_exported_close(u->exported);
    lvni_core_str_free(&u->text);
    lvni_core_str_free(&u->unread);
    lvn_device_use(LVN_CPU);
    lvn_error_adopt(&error);
    return s;
}

static lvni_run_inference make_use(const lvni_run_recipe *recipe, const char *command,
                                   const lvni_run_measurement *of, lvni_core_config *config)
{
    const lvni_run_results *r = of->results;
    return (lvni_run_inference){.recipe = recipe,
                                .results = r,
                                .command = command,
                                .config = config,
                                .n_args = of->n,
                                .args = of->args,
                                .user = of->user,
                                .again = of->again,
                                .metric = of->metric,
                                .lines = r->output != NULL && r->row == NULL &&
                                         lvni_run_inference_wants_lines(config)};
}

lvn_status lvni_run_inference_run(const lvni_run_recipe *recipe, const char *command,
                                  const lvni_run_measurement *of, lvni_core_config *config)
{
    lvni_run_inference u = make_use(recipe, command, of, config);
    const lvni_run_ranks_command ranks = {.command = {command, recipe->argument},
                                          .n = of->n,
                                          .args = of->args,
                                          .check = check_of(of->results, command),
                                          .uses = true,
                                          .run = use_model,
                                          .user = &u};
    bool done = false;
    lvn_status s = of->results->is_done != NULL ? of->results->is_done(config, &done) : LVN_OK;
    s = s != LVN_OK || done ? s : lvni_run_ranks_run(config, &ranks);
    lvni_core_config_destroy(config);
    return s;
}

lvn_status lvni_run_inference_on(const lvni_run_recipe *recipe, const char *command,
                                 const lvni_run_measurement *of, lvni_core_config *config,
                                 lvni_run_ranks *ranks)
{
    lvni_run_inference u = make_use(recipe, command, of, config);
    u.goes_on = true;
    lvn_status s = lvni_run_ranks_check_stop(ranks);
    s = s == LVN_OK ? use_model(&u, ranks) : s;
    lvni_core_config_destroy(config);
    return s;
}

static lvn_status run(const lvni_run_recipe *recipe, const char *command,
                      const lvni_run_results *results, int n, const char *const *args)
{
    lvni_core_config *c;
    LVN_TRY(lvni_run_inference_read(recipe, command, n, args, &c));
    if (lvni_run_chooses(recipe, command, c)) {
        return lvni_run_choose(recipe, c, n, args);
    }
    const lvni_run_results *other = results->instead != NULL ? results->instead(c) : NULL;
    const lvni_run_measurement one = {
        .results = other != NULL ? other : results, .n = n, .args = args};
    return lvni_run_inference_run(recipe, command, &one, c);
}

lvn_status lvni_run_predict(const lvni_run_recipe *recipe, int n, const char *const *args)
{
    if (recipe->predict == NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: the recipe %s has no use->predict, without which nothing is predicted (see "
                 "levin/recipe.h)",
                 lvni_run_typed(recipe), recipe->name);
    }
    return run(recipe, "predict", recipe->predict, n, args);
}

lvn_status lvni_run_eval(const lvni_run_recipe *recipe, int n, const char *const *args)
{
    static const lvni_run_results metrics = {0};
    return run(recipe, "eval", recipe->eval != NULL ? recipe->eval : &metrics, n, args);
}
