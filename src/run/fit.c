/* The common part of every training command (fit.h): plan, model, run directory, trainer, on each
 * rank. Its reports are in fit_report.c, how runs begin and resume in fit_resume.c. */
#include "run/fit_impl.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "core/signals.h"
#include "core/vfs.h"
#include "data/dataset.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "nn/recomputed.h"
#include "optim/groups.h"
#include "run/devices.h"
#include "run/options.h"
#include "run/output_file.h"
#include "run/requeue.h"
#include "trainer/identity.h"
#include "trainer/memory.h"
#include "trainer/phases.h"

#include <signal.h>
#include <levin/device.h>
#include <stdio.h>
#include <string.h>

static bool leads(const lvni_run_fit_run *r)
{
    return r->rank.rank == 0;
}

/* A host program's run without `out`, a finder's, and fast_dev_run. */
static bool keeps_nothing(const lvni_run_fit_run *r)
{
    return r->dir == NULL && (r->request->drive != NULL || lvni_run_is_dev_run(r->request->config));
}

static bool has_card(const lvni_run_fit_run *r)
{
    return r->request->recipe->card != NULL;
}

/* Of a module there is a file for torch.load, too. */
enum { TORCH, SAFETENSORS };

static char *exported_path(const lvni_run_fit_run *r, const char *name, int form)
{
    return form == TORCH ? lvni_run_dir_torch_file(r->dir, name)
                         : lvni_run_dir_file(r->dir, LVNI_RUN_EXPORTS, name);
}

/* The file with the step is the last: with it both are there. */
static lvn_status export_alone(void *user, const char *name, const float *values, int64_t step)
{
    const lvni_run_fit_run *r = user;
    lvn_status s = LVN_OK;
    for (int form = r->request->exported_part != NULL ? TORCH : SAFETENSORS;
         s == LVN_OK && form <= SAFETENSORS; form++) {
        char *path = exported_path(r, name, form);
        s = path == NULL ? LVN_ERR_MEMORY
                         : lvni_run_fit_export(r->request, r->model, values, step, path);
        lvni_core_free(path);
    }
    return s;
}

static lvn_status link_best(const lvni_run_fit_run *r, int form)
{
    char *last = exported_path(r, "last", form), *best = exported_path(r, "best", form);
    const lvn_status s = last == NULL || best == NULL ? LVN_ERR_MEMORY : lvni_ckpt_link(last, best);
    lvni_core_free(best);
    lvni_core_free(last);
    return s;
}

/* best is the last one just written: the same file */
static lvn_status export_named(void *user, const char *name, const float *values, int64_t step)
{
    const lvni_run_fit_run *r = user;
    if (strcmp(name, "best") != 0) {
        return export_alone(user, name, values, step);
    }
    LVN_TRY(r->request->exported_part != NULL ? link_best(r, TORCH) : LVN_OK);
    return link_best(r, SAFETENSORS);
}

lvn_status lvni_run_fit_options(lvni_run_fit_run *r, lvni_trainer_options *out)
{
    const lvni_core_config *c = r->request->config;
    size_t n_loggers = 0;
    LVN_TRY(lvni_core_config_to_json(c, &r->json));
    if (has_card(r)) {
        lvni_run_fit_card(r->request, &r->card);
        LVN_TRY(lvni_core_str_status(&r->card));
    }
    *out = (lvni_trainer_options){
        .model = r->model,
        .train = r->request->train,
        .val = r->request->val,
        .evaluation = r->request->evaluation,
        .plan = r->plan,
        .schedule = r->schedule,
        .precision = lvni_trainer_precision_of(lvni_core_config_str(c, "precision")),
        .use_ema = lvni_core_config_bool(c, "use_ema"),
        .gradient_clip_val =
            lvni_run_clips_value(c) ? 0.0 : lvni_core_config_float(c, "gradient_clip_val"),
        .detect_anomaly = lvni_core_config_bool(c, "detect_anomaly"),
        .on_bad_batch = lvni_trainer_bad_batch_of(lvni_core_config_str(c, "on_bad_batch")),
        .seed = (uint64_t)lvni_core_config_int(c, "seed"),
        .graph = lvni_run_read_graph(c, lvni_run_is_own(r->request->recipe)),
        .max_epochs = lvni_core_config_int(c, "max_epochs"),
        .max_steps = lvni_core_config_int(c, "max_steps"),
        .workers = r->rank.workers,
        .worker_bytes = r->request->decode_bytes,
        .val_worker_bytes = r->request->val_decode_bytes,
        .balanced = r->request->balanced && !lvni_run_overfits(c),
        .order = lvni_run_overfits(c) ? LVN_ORDER_SEQUENCE : r->request->order,
        .stream = r->request->streams,
        .skip_unreadable = strcmp(lvni_core_config_str(c, "on_error"), "skip") == 0,
        .headers_read = r->request->headers_read,
        .comm = r->rank.comm,
        .control = r->rank.control,
        .bucket_bytes = lvni_core_config_int(c, "bucket_bytes"),
        .sharded_stage = lvni_run_sharded_stage(c),
        .units = &r->units,
        .out = leads(r) ? r->dir : NULL,
        .log_every_n_steps = lvni_core_config_int(c, "log_every_n_steps"),
        .loggers = lvni_core_config_str_list(c, "logger", &n_loggers),
        .sample_flops = r->need.sample_flops,
        .peak_flops = lvni_core_config_float(c, "peak_flops"),
        .log_histograms = lvni_core_config_bool(c, "log_histograms"),
        .quiet = !leads(r) || lvni_core_config_bool(c, "quiet"),
        .profiles = leads(r) && strcmp(lvni_core_config_str(c, "profiler"), "simple") == 0,
        .config_json = lvni_core_str_text(&r->json),
        .run_id = leads(r) && r->dir != NULL ? r->run_id : NULL,
        .machine = r->machine.len > 0 ? lvni_core_str_text(&r->machine) : NULL,
        .same_hardware = strcmp(lvni_core_config_str(c, "same_hardware"), "require") == 0,
        .data_files = r->request->data_files,
        .same_files =
            strcmp(lvni_core_config_str(c, lvni_run_key_name(c, "data_changed")), "error") == 0,
        .model_keys = r->request->recipe->model_keys,
        .export_model = leads(r) && !keeps_nothing(r) ? export_named : NULL,
        .user = r};
    out->n_loggers = n_loggers;
    if (keeps_nothing(r) && !r->request->tunes) {
        LVN_TRY(lvni_core_config_no_effect(c, "logger", "without out=DIR"));
    }
    if (r->request->drive != NULL && !r->request->tunes) {
        LVN_TRY(lvni_core_config_no_effect(c, "profiler", "where a program makes the steps"));
    }
    if (r->request->ranks != NULL && r->request->ranks->rank[0].rank == r->rank.rank) {
        out->hooks = r->request->hooks;
    }
    if (has_card(r)) {
        out->recipe = (lvni_ckpt_st_meta){LVNI_CARD_RECIPE, r->request->recipe->name};
        out->card =
            (lvni_ckpt_st_meta){r->request->recipe->card->key, lvni_core_str_text(&r->card)};
    }
    LVN_TRY(lvni_run_read_optim(c, &out->optim));
    LVN_TRY(lvni_run_read_phases(c, &r->plan, r->request->cls->phases, out->phase));
    LVN_TRY(lvni_run_read_loop(c, out));
    LVN_TRY(lvni_run_read_checkpoints(c, out));
    out->keep.newest_is_best = r->request->newest_is_best;
    LVN_TRY(lvni_run_read_plateau(c, out->val != NULL, &out->plateau));
    LVN_TRY(lvni_run_read_decay(c, r->schedule.total_steps, &out->optim.weight_decay,
                                &out->weight_decay));
    lvni_run_read_rules(c, &r->plan, &out->rules);
    lvni_run_read_ema(c, &out->ema);
    r->previews.job = r->request;
    lvni_run_previews_attach(&r->previews, out);
    out->write_page = lvni_run_preview_write_page;
    return LVN_OK;
}

static lvn_status make_trainer(lvni_run_fit_run *r)
{
    lvni_trainer_options o;
    LVN_TRY(lvni_run_fit_options(r, &o));
    lvni_log_line(LVNI_LOG_DETAIL, "%s", lvni_core_str_text(&r->memory));
    lvni_run_fit_warn_memory(r);
    return lvni_trainer_create(&o, &r->trainer);
}

static lvn_status load_weights(const lvni_run_fit_run *r)
{
    return lvni_run_load_start(r->request, r->model);
}

/* Before there is a trainer: without a checkpoint it is made of the first weights, as at a fresh
 * start (rounded, averaged). */
static lvn_status find_saved(lvni_run_fit_run *r)
{
    const lvn_status s = lvni_run_load_saved(r->request->config, r->dir, &r->saved);
    if (s == LVN_ERR_NOT_FOUND) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "%s has no checkpoint yet: the run starts from its beginning", r->dir);
        return load_weights(r);
    }
    LVN_TRY(s);
    LVN_TRY(lvni_run_check_fixed(r->request, r->saved));
    return lvni_run_check_start(r->request->config, r->saved);
}

static lvn_status resume(lvni_run_fit_run *r)
{
    const lvni_ckpt *ckpt = r->saved;
    LVN_TRY(lvni_run_check_saved_card(r->request->recipe, ckpt, lvni_core_str_text(&r->card)));
    LVN_TRY(lvni_trainer_restore(r->trainer, ckpt));
    lvni_log_line(LVNI_LOG_INFO, "resuming from %s: step %lld, epoch %lld", ckpt->path,
                  (long long)ckpt->at.step, (long long)ckpt->at.epoch + 1);
    LVN_TRY(lvni_trainer_identity_report_layout(r->trainer, ckpt));
    lvni_run_report_moved_end(r, ckpt);
    lvni_run_report_changes(r, ckpt);
    if (leads(r) && lvni_core_config_is_set(r->request->config, "resume_epoch")) {
        LVN_TRY(lvni_run_rewind(r->dir, ckpt, lvni_trainer_finished(r->trainer)));
    }
    const lvni_run_repair_options repair = {
        .dir = r->dir,
        .loaded = ckpt,
        .model = r->model,
        .use_ema = lvni_core_config_bool(r->request->config, "use_ema"),
        .export_model = export_alone,
        .user = r};
    return leads(r) ? lvni_run_repair_exports(&repair) : LVN_OK;
}

/* Before there is a run directory: what the trainer would refuse. */
static lvn_status check_optim(const lvni_run_fit_run *r)
{
    lvni_optim_options optim;
    lvni_optim_rules rules;
    lvni_optim_parameter *parameter;
    LVN_TRY(lvni_run_read_optim(r->request->config, &optim));
    lvni_run_read_rules(r->request->config, &r->plan, &rules);
    lvni_trainer_phase_options phase[LVNI_PHASES];
    LVN_TRY(lvni_trainer_parameters(r->model, &rules, &parameter));
    lvn_status s =
        lvni_run_read_phases(r->request->config, &r->plan, r->request->cls->phases, phase);
    if (s == LVN_OK) {
        s = lvni_run_check_groups(&r->schedule, phase, &optim, parameter, r->model->n_parameters);
    }
    lvni_core_free(parameter);
    LVN_TRY(s);
    return r->request->val == NULL ? LVN_OK : lvni_trainer_phases_check_validation(r->request->cls);
}

static lvn_status build_model(lvni_run_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    const bool sync = lvni_core_config_bool(c, "sync_batchnorm");
    const uint64_t seed = r->request->weights_seed != NULL
                              ? *r->request->weights_seed
                              : (uint64_t)lvni_core_config_int(c, "seed");
    LVN_TRY((sync ? lvni_nn_model_build_sync
                  : lvni_nn_model_build)(r->request->cls, r->request->arguments, seed, &r->model));
    if (sync && !r->model->coupled && /* a run's own config.yaml has what its recipe begins with */
        lvni_core_config_layer(c, "sync_batchnorm") == LVNI_LAYER_ARGUMENTS) {
        LVN_FAIL(LVN_ERR_USAGE, "sync_batchnorm=true: %s has no batch norm; omit the key",
                 r->request->cls->name);
    }
    return LVN_OK;
}

static lvn_status mark_units(lvni_run_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    size_t n;
    const char *const *pattern = lvni_core_config_str_list(c, "recompute", &n);
    LVN_TRY(lvni_nn_model_recompute(r->model, pattern, n, lvni_optim_pattern_matches));
    if (lvni_run_is_staged(c) && n > 0 && strcmp(pattern[0], "none") != 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "recompute=%s with strategy=balance: a unit of a stage is not recomputed so far; "
                 "use strategy=ddp or dp, or recompute=none",
                 pattern[0]);
    }
    return LVN_OK;
}

/* The last rank has the smallest micro-batches: what its network cannot do is refused while nothing
 * has been written. */
static lvn_status try_last_rank(lvni_run_fit_run *r)
{
    const lvni_plan own = r->plan;
    lvni_run_rank last = r->rank;
    last.rank = last.world - 1;
    LVN_TRY(lvni_run_make_plan(r->request->config, &r->data, &last, r->model->coupled, &r->plan));
    const lvn_status s = lvni_run_fit_predict_memory(r);
    r->plan = own;
    lvni_core_str_clear(&r->memory);
    lvni_core_str_clear(&r->scarce);
    return s;
}

_Static_assert((int)LVN_MAX_STREAMS == (int)LVNI_PLAN_STREAMS &&
                   (int)LVN_ENDLESS == (int)LVNI_PLAN_ENDLESS &&
                   (int)LVN_STREAM_CYCLE == (int)LVNI_PLAN_CYCLE &&
                   (int)LVN_STREAM_ONCE == (int)LVNI_PLAN_ONCE &&
                   (int)LVN_STREAM_SHORTENS == (int)LVNI_PLAN_SHORTENS &&
                   (int)LVN_STREAM_LENGTHENS == (int)LVNI_PLAN_LENGTHENS,
               "the plan has the public values");

static lvn_status measure_data(const lvni_run_job *r, lvni_run_plan_data *out)
{
    static const char *const orders[] = {[LVN_ORDER_SHUFFLE] = "shuffled",
                                         [LVN_ORDER_SEQUENCE] = "in sequence",
                                         [LVN_ORDER_REPLACEMENT] = "drawn with replacement"};
    LVN_TRY(r->val == NULL ? LVN_OK : lvni_data_dataset_check_length(r->val));
    if (r->train == NULL) { /* as lvni_run_check_plan */
        out->n_samples = UINT32_MAX;
        return LVN_OK;
    }
    LVN_TRY(lvni_data_dataset_check_length(r->train));
    const int64_t val = r->val == NULL ? 0 : r->val->cls->length(r->val);
    LVN_ARG(val >= 0, "the validation set %s has no length", r->val->cls->name);
    out->n_samples = r->train->cls->length(r->train);
    out->n_streams = r->n_streams;
    for (int i = 0; i < r->n_streams; i++) {
        const lvn_stream *s = &r->streams[i];
        out->stream[i] = (lvni_plan_stream){.name = s->name,
                                            .n_samples = s->dataset->cls->length(s->dataset),
                                            .batch = s->batch,
                                            .ratio = s->ratio,
                                            .order = orders[s->order],
                                            .rule = (lvni_plan_rule)s->rule};
    }
    return LVN_OK;
}

static bool is_first(const lvni_run_fit_run *r)
{
    return r->request->ranks->rank->rank == r->rank.rank;
}

static void end_turn(lvni_run_fit_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->over = true;
    pthread_cond_broadcast(&turn->changed);
    pthread_mutex_unlock(&turn->lock);
}

static void wait_for_turn(lvni_run_fit_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    while (!turn->over) {
        pthread_cond_wait(&turn->changed, &turn->lock);
    }
    pthread_mutex_unlock(&turn->lock);
}

/* No collective. */
static lvn_status prepare(lvni_run_fit_run *r)
{
    lvni_core_config *c = r->request->config;
    LVN_TRY(lvni_cpu_start());
    /* before overwrite=true empties the run that is there */
    LVN_TRY(lvni_run_check_precision(c));
    LVN_TRY(
        lvni_trainer_sharded_check(lvni_run_sharded_stage(c), lvni_run_accelerator_is_device(c)));
    LVN_TRY(lvni_run_accelerator_use(c, r->rank.device));
    LVN_TRY(measure_data(r->request, &r->data));
    LVN_TRY(build_model(r));
    LVN_TRY(mark_units(r));
    LVN_TRY(lvni_run_make_plan(c, &r->data, &r->rank, r->model->coupled, &r->plan));
    LVN_TRY(lvni_run_fit_take_shares(r));
    LVN_TRY(lvni_run_resolve_optim(c));
    LVN_TRY(lvni_run_read_schedule(c, &r->plan, &r->schedule));
    LVN_TRY(check_optim(r));
    LVN_TRY(lvni_run_fit_check_sharded(r));
    LVN_TRY(leads(r) && r->rank.world > 1 ? try_last_rank(r) : LVN_OK);
    LVN_TRY(lvni_run_fit_predict_memory(r));
    LVN_TRY(r->request->complete == NULL ? LVN_OK : r->request->complete(r->request, r->model));
    /* a checkpoint has its own; the file may be gone by then */
    return lvni_core_config_bool(c, "resume") ? LVN_OK : load_weights(r);
}

/* The first rank of a process is through before the others begin. */
static lvn_status prepare_in_turn(lvni_run_fit_run *r)
{
    if (!is_first(r)) {
        wait_for_turn(r->turn);
    }
    const lvn_status s = prepare(r);
    if (is_first(r)) {
        end_turn(r->turn);
    }
    return s;
}

static lvn_status make_dir(lvni_run_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    size_t made;
    LVN_TRY(r->dir == NULL ? lvni_run_dir_claim(r->request->recipe->name, &r->dir, &made) : LVN_OK);
    return lvni_run_dir_make(r->dir, lvni_core_config_bool(c, "overwrite"),
                             lvni_core_config_bool(c, "resume"), r->request->kept_file);
}

/* Rank 0 alone: before anything is computed, its directory is chosen. */
static lvn_status begin_leader(lvni_run_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    lvni_log_set_quiet(lvni_core_config_bool(c, "quiet"));
    lvni_log_set_verbose(lvni_core_config_bool(c, "verbose"));
    LVN_TRY(lvni_run_is_dev_run(c) || r->request->tunes ? LVN_OK : lvni_run_dir_choose(c, &r->dir));
    if (r->dir != NULL && lvni_core_config_bool(c, "resume")) {
        LVN_TRY(lvni_run_check_gone(r->dir));
    }
    LVN_TRY(prepare_in_turn(r));
    return lvni_run_fit_check_memory(r);
}

/* Rank 0 alone, when nothing has failed: its directory, and what is resumed. */
static lvn_status open_run(lvni_run_fit_run *r)
{
    lvni_trainer_stop_install(); /* from here on a stop must save */
    LVN_TRY(keeps_nothing(r) ? LVN_OK : make_dir(r));
    r->has_dir = !keeps_nothing(r);
    lvni_run_fit_banner(r);
    LVN_TRY(lvni_core_config_bool(r->request->config, "resume") ? find_saved(r) : LVN_OK);
    return keeps_nothing(r) ? LVN_OK : lvni_run_dir_identify(r->dir, r->saved, r->run_id);
}

/* All ranks are measured at once, when rank 0 is prepared. */
static lvn_status measure_ranks(lvni_run_fit_run *r)
{
    char ready = 1;
    LVN_TRY(lvni_dist_comm_broadcast(r->rank.comm, &ready, sizeof ready, 0));
    LVN_TRY(leads(r) ? LVN_OK : prepare_in_turn(r));
    return lvni_run_fit_balance(r);
}

/* path: what rank 0 resumes; "": nothing. */
static lvn_status share_saved(const lvni_run_fit_run *r, char *path, size_t room)
{
    path[0] = '\0';
    if (r->rank.world == 1) {
        return LVN_OK;
    }
    if (r->saved != NULL && snprintf(path, room, "%s", r->saved->path) >= (int)room) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "the path %s is too long to send it to the other ranks",
                 r->saved->path);
    }
    return lvni_dist_comm_broadcast(r->rank.comm, path, room, 0);
}

/* Another rank, when it knows what rank 0 resumes. */
static lvn_status begin_follower(lvni_run_fit_run *r, const char *path)
{
    LVN_TRY(r->measures ? LVN_OK : prepare_in_turn(r));
    if (path[0] != '\0') {
        return lvni_ckpt_load(path, &r->saved);
    }
    return lvni_core_config_bool(r->request->config, "resume") ? load_weights(r) : LVN_OK;
}

/* Rank 0 is prepared first and decides; the others wait for it, and what fails for it fails before
 * they have begun. A collective. */
static lvn_status begin_run(lvni_run_fit_run *r)
{
    char path[4096];
    if (leads(r)) {
        LVN_TRY(begin_leader(r));
    } else if (is_first(r)) {
        /* a process of its own; threads of rank 0's have its handlers. Before rank 0 is waited for,
         * which stops all */
        lvni_trainer_stop_install();
    }
    LVN_TRY(r->measures ? measure_ranks(r) : LVN_OK);
    LVN_TRY(leads(r) ? open_run(r) : LVN_OK);
    LVN_TRY(share_saved(r, path, sizeof path));
    return leads(r) ? LVN_OK : begin_follower(r, path);
}

/* At the end of a run that has made steps, so that no thread of another rank reads the
 * configuration: config.yaml gets what its backends have recorded. Checkpoints have it already. */
static lvn_status keep_pins(const lvni_run_fit_run *r)
{
    lvni_core_config *c = r->request->config;
    lvni_core_str pins = {0};
    lvni_core_str_append(&pins, "[");
    lvni_core_pin_entries_print(r->rank.pins, ",", &pins);
    const bool any = pins.len > 1;
    lvni_core_str_append(&pins, "]");
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&pins));
    if (any) {
        LVNI_TRY_DONE(
            s, lvni_core_config_set(c, "pins", lvni_core_str_text(&pins), "recorded by the run"));
        s = lvni_run_dir_write_config(r->dir, c);
    }
done:
    lvni_core_str_free(&pins);
    return s;
}

/* SIGUSR1 ended the run, and its checkpoint is on the disk. */
static lvn_status requeue(const lvni_run_fit_run *r, int64_t first)
{
    const lvn_error error = *lvn_last_error();
    LVN_TRY(lvni_run_requeue(
        &r->rank, r->dir, lvni_core_config_bool(r->request->config, "auto_requeue"),
        lvni_core_config_int(r->request->config, "max_requeues"), r->trainer->at.step != first));
    return lvn_error_adopt(&error);
}

/* Also when a signal ends it. */
static lvn_status train_and_keep(lvni_run_fit_run *r)
{
    const int64_t first = r->trainer->at.step;
    const lvni_run_job *q = r->request;
    const lvn_status s = q->drive != NULL ? q->drive(q->host, q->ranks, &r->rank, r->trainer)
                                          : lvni_trainer_fit(r->trainer);
    if ((s != LVN_OK && s != LVN_ERR_CANCELLED) || r->dir == NULL || r->trainer->at.step == first) {
        return s;
    }
    const lvn_error error = *lvn_last_error();
    LVN_TRY(keep_pins(r));
    return s == LVN_OK ? LVN_OK : lvn_error_adopt(&error);
}

static lvn_status train(lvni_run_fit_run *r)
{
    const int64_t first = r->trainer->at.step;
    if (r->rank.rank == 0 && r->request->drive == NULL &&
        lvni_core_config_bool(r->request->config, "stop_before_limit")) {
        r->trainer->o.stop_ns = lvni_run_requeue_stop_ns();
        r->trainer->o.stop_later = lvni_run_requeue_stop_later;
    }
    const lvn_status s = train_and_keep(r);
    return s == LVN_ERR_CANCELLED && lvni_trainer_stop_signal() == SIGUSR1 ? requeue(r, first) : s;
}

static lvn_status weigh(const lvni_run_fit_run *r)
{
    const lvni_run_job *q = r->request;
    return q->weigh == NULL ? LVN_OK
                            : q->weigh(q->host, q->ranks, &r->rank, r->model, &r->plan, &r->need);
}

/* The whole run of a rank, from the directory to the last checkpoint. A collective of the ranks. */
static lvn_status run_rank(lvni_run_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    r->measures = lvni_run_fit_measures(r);
    LVN_TRY(lvni_run_fit_compare_out(r));
    LVN_TRY(lvni_run_fit_compare_hardware(r));
    LVN_TRY(begin_run(r));
    LVN_TRY(weigh(r));
    LVN_TRY(lvni_run_fit_autotune(r));
    LVN_TRY(make_trainer(r));
    LVN_TRY(r->rank.world > 1 ? lvni_run_fit_compare_runs(r) : LVN_OK);
    LVN_TRY(r->saved != NULL ? resume(r) : LVN_OK);
    lvni_run_fit_check_choices(r);
    if (r->dir != NULL && (r->saved == NULL || !lvni_trainer_finished(r->trainer))) {
        /* only now: keys that do not fit, or train nothing, must not spoil the run that is there */
        LVN_TRY(lvni_run_dir_write_config(r->dir, c));
        LVN_TRY(r->request->write_files == NULL
                    ? LVN_OK
                    : r->request->write_files(r->request->user, r->dir));
        LVN_TRY(lvni_run_previews_open(&r->previews, r->dir));
    }
    LVN_TRY(train(r));
    if (r->trainer->checkpointing.saved_step >= 0 && r->request->drive == NULL) {
        char reason[48];
        lvni_trainer_end_reason(r->trainer, reason, sizeof reason);
        lvni_log_line(
            LVNI_LOG_INFO, "done after %lld step%s%s%s%s; %s/checkpoints/last.safetensors",
            (long long)r->trainer->at.step, lvni_core_plural(r->trainer->at.step, "", "s"),
            reason[0] != 0 ? " (" : "", reason, reason[0] != 0 ? ")" : "", r->dir);
    }
    return LVN_OK;
}

static void run_free(lvni_run_fit_run *r)
{
    lvni_ckpt_free(r->saved);
    lvni_trainer_destroy(r->trainer);
    lvni_run_previews_close(&r->previews);
    lvni_nn_model_destroy(r->model);
    lvni_core_str_free(&r->json);
    lvni_core_str_free(&r->card);
    lvni_core_str_free(&r->memory);
    lvni_core_str_free(&r->stages);
    lvni_trainer_units_free(&r->units);
    lvni_core_str_free(&r->scarce);
    lvni_core_free(r->available);
    lvni_core_str_free(&r->machine);
    lvni_core_str_free(&r->hardware);
    lvni_core_str_free(&r->shares);
    lvni_core_free(r->bounds);
    lvni_core_free(r->dir);
}

typedef struct run_of_process {
    const lvni_run_job *request;
    lvni_run_fit_turn *turn;
} run_of_process;

/* Called by lvni_run_ranks_each on the rank's thread; down to lvni_trainer_fit. */
static lvn_status fit_rank(void *user, const lvni_run_rank *rank)
{
    const run_of_process *run = user;
    lvni_run_ranks *ranks = run->request->ranks;
    lvni_run_fit_run r = {.request = run->request, .turn = run->turn, .rank = *rank};
    const lvn_status s = run_rank(&r);
    const lvn_error error = *lvn_last_error();
    if (is_first(&r)) {
        end_turn(r.turn); /* it may have failed before */
    }
    if (s != LVN_OK && ranks->process != NULL) {
        lvni_core_signals_hold(); /* now the others end, and with the first the launcher ends all */
    }
    /* before the trainer goes, for whose end others may be needed */
    lvni_run_rank_give_up(rank, s);
    if (rank == ranks->rank && r.trainer != NULL) {
        memcpy(ranks->kept, r.trainer->checkpointing.kept, sizeof ranks->kept);
    }
    if (r.has_dir && run->request->dir != NULL) {
        *run->request->dir = r.dir;
        r.dir = NULL;
    }
    run_free(&r);
    lvn_error_adopt(&error);
    return s;
}

lvn_status lvni_run_fit(const lvni_run_job *request)
{
    lvni_run_fit_turn turn = {.lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER};
    run_of_process run = {.request = request, .turn = &turn};
    const lvn_status s = lvni_run_ranks_each(request->ranks, fit_rank, &run);
    const bool goes_on = s == LVN_OK && request->drive == NULL && request->recipe->ended != NULL;
    if (request->ranks->process == NULL && !goes_on) {
        /* else lvni_run_ranks_run has still to leave, or recipe.c to end the training */
        lvni_core_signals_remove();
    }
    return s;
}

lvn_status lvni_run_fit_end(lvn_status status)
{
    const lvn_error *e = lvn_last_error();
    if (status == LVN_ERR_CANCELLED) {
        lvni_log_file_line(LVNI_LOG_INFO, "stopped: %-s", e->message);
    } else if (status != LVN_OK) {
        lvni_log_file_line(LVNI_LOG_ERROR, "%-s",
                           e->message[0] != '\0' ? e->message : lvn_status_text(status));
        for (int i = 0; i < e->n_frames; i++) {
            lvni_log_file_line(LVNI_LOG_ERROR, "  in %s", e->frames[i]);
        }
    }
    lvni_log_close();
    lvni_run_dir_release();
    return status;
}

/* Up to where a run would begin, without its ranks. */
static lvn_status prepare_alone(const lvni_run_job *request,
                                lvn_status (*prepare_for)(lvni_run_fit_run *r),
                                lvn_status (*use)(const lvni_run_fit_run *r))
{
    const lvn_device before = lvn_device_in_use();
    lvni_run_fit_run r = {.request = request};
    lvni_log_set_quiet(lvni_core_config_bool(request->config, "quiet"));
    lvni_core_pin_entries *pins = NULL;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_run_ranks_estimate(request->config, &r.rank));
    LVNI_TRY_DONE(s, lvni_core_pin_entries_create(&pins));
    r.rank.pins = pins;
    LVNI_TRY_DONE(s, prepare_for(&r));
    s = use(&r);
done:
    run_free(&r);
    lvni_core_pin_entries_destroy(pins);
    lvn_device_use(before);
    return s;
}

static lvn_status print_plan(const lvni_run_fit_run *r)
{
    const lvn_status s = lvni_run_fit_print_plan(r);
    lvni_run_fit_check_choices(r);
    if (s == LVN_OK) { /* the run itself may be for another machine */
        lvni_run_fit_warn_memory(r);
    }
    return s;
}

lvn_status lvni_run_fit_plan(const lvni_run_job *request)
{
    return prepare_alone(request, prepare, print_plan);
}

static lvn_status keep_memory(const lvni_run_fit_run *r)
{
    lvni_run_memory *m = r->request->memory;
    m->bytes = r->need.total;
    m->device = r->need.device;
    lvni_core_str_append(&m->line, lvni_core_str_text(&r->memory));
    lvni_core_str_append(&m->scarce, lvni_core_str_text(&r->scarce));
    LVN_TRY(lvni_core_str_status(&m->line));
    return lvni_core_str_status(&m->scarce);
}

lvn_status lvni_run_fit_estimate(const lvni_run_job *request)
{
    return prepare_alone(request, prepare, keep_memory);
}

/* The plan for what the card records of it. */
static lvn_status prepare_export(lvni_run_fit_run *r)
{
    lvni_core_config *c = r->request->config;
    LVN_TRY(lvni_cpu_start());
    LVN_TRY(lvni_run_accelerator_use(c, r->rank.device));
    LVN_TRY(measure_data(r->request, &r->data));
    LVN_TRY(build_model(r));
    LVN_TRY(mark_units(r));
    LVN_TRY(lvni_run_make_plan(c, &r->data, &r->rank, r->model->coupled, &r->plan));
    return load_weights(r);
}

static lvn_status export_start(const lvni_run_fit_run *r)
{
    const lvni_core_config *c = r->request->config;
    const bool given = lvni_core_config_layer(c, "out") == LVNI_LAYER_ARGUMENTS;
    const char *path = given ? lvni_core_config_str(c, "out") : "model.safetensors";
    if (!lvni_run_output_ends_in(path, ".safetensors", sizeof ".safetensors" - 1)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "output=%s: a model is exported as safetensors; give a name that ends in "
                 ".safetensors",
                 path);
    }
    LVN_TRY(lvni_run_fit_export(r->request, r->model, r->model->weights, -1, path));
    lvni_core_print(stdout, "%s: %s with the weights of %s, for model=%s\n", path,
                    r->request->model, lvni_core_config_str(c, "weights"), path);
    return LVN_OK;
}

lvn_status lvni_run_fit_export_start(const lvni_run_job *request)
{
    return prepare_alone(request, prepare_export, export_start);
}
