/* The common part of every training command (fit.h): configuration, plan, run directory, trainer. Beginnings are in fit_resume.c. */
#include "recipes/fit_impl.h"

#include "core/alloc.h"
#include "core/machine_memory.h"
#include "core/str.h"
#include "core/vfs.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "recipes/accelerator.h"
#include "recipes/fit_resume.h"
#include "recipes/optim_options.h"
#include "recipes/exported.h"
#include "recipes/mend_exports.h"
#include "recipes/run_dir.h"
#include "recipes/saved_classes.h"
#include "recipes/train_options.h"
#include "tensor/device.h"
#include "trainer/memory.h"

#include <levin/version.h>
#include <stdio.h>
#include <string.h>

static lvn_status load_saved(lvni_config *c)
{
    const char *out = lvni_config_str(c, "out");
    if (!lvni_config_bool(c, "resume")) {
        return LVN_OK;
    }
    if (out == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "resume=true needs out=DIR, the run to continue");
    }
    LVN_TRY(lvni_run_dir_check_run(out)); /* before anything else is missed: data=, which the run would know */
    char *saved = lvni_path_join(out, "config.yaml");
    lvn_status s = saved == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK && lvni_path_exists(saved)) {
        s = lvni_config_load_file(c, LVNI_LAYER_SAVED, saved);
    }
    lvni_free(saved);
    return s;
}

/* Words that do nothing are errors, lines of a file warnings. */
static lvn_status check_needs(const lvni_config *c)
{
    lvni_str warnings = {0};
    const lvn_status s = lvni_config_check_needs(c, &warnings);
    for (char *line = warnings.data, *end; s == LVN_OK && line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        lvni_log_line(LVNI_LOG_WARNING, "%s", line);
    }
    lvni_str_free(&warnings);
    return s;
}

lvn_status lvni_read_config(const lvni_option_table *tables, size_t n_tables, const char *help, const char *job, int n,
                            const char *const *words, lvni_config **out)
{
    *out = NULL;
    lvni_config *c;
    LVN_TRY(lvni_config_create(tables, n_tables, &c));
    lvni_config_set_help(c, help);
    lvn_status s = lvni_config_load_job(c, job);
    if (s == LVN_OK) {
        s = lvni_config_load_words(c, n, words);
    }
    if (s == LVN_OK && lvni_config_has(c, "resume")) {
        s = load_saved(c);
    }
    if (s == LVN_OK) {
        s = lvni_config_finish(c);
    }
    s = s == LVN_OK ? check_needs(c) : s;
    s = s == LVN_OK && lvni_config_has(c, "accelerator") ? lvni_accelerator_resolve(c) : s;
    if (s != LVN_OK) {
        lvni_config_destroy(c);
        return s;
    }
    *out = c;
    return LVN_OK;
}

static bool leads(const lvni_fit_run *r)
{
    return r->rank.rank == 0;
}

static void banner(const lvni_fit_run *r)
{
    const lvni_config *c = r->request->config;
    lvni_str plan = {0};
    lvni_plan_describe(&r->plan, &plan);
    lvni_log_line(LVNI_LOG_INFO, "levin %s  %s  out=%s", LEVIN_VERSION, r->request->recipe, r->dir == NULL ? "-" : r->dir);
    lvni_log_line(LVNI_LOG_INFO, "cpu: %s, %d core%s", lvni_cpu_describe(), r->plan.cores, r->plan.cores == 1 ? "" : "s");
    lvni_str device = {0};
    lvni_accelerator_describe(&device);
    if (device.len > 0) {
        lvni_log_line(LVNI_LOG_INFO, "%s", lvni_str_text(&device));
    }
    lvni_str_free(&device);
    if (r->rank.world > 1) {
        lvni_log_line(LVNI_LOG_INFO, "%d ranks: %s (strategy=%s)", r->rank.world, r->request->ranks->how, lvni_config_str(c, "strategy"));
    }
    if (r->request->note != NULL) {
        lvni_log_line(LVNI_LOG_INFO, "%s", r->request->note);
    }
    lvni_log_line(LVNI_LOG_INFO, "model %s: %lld parameters in %d tensors, seed %lld, precision %s", r->request->cls->name,
             (long long)lvni_model_count(r->model), r->model->n_parameters, (long long)lvni_config_int(c, "seed"),
             lvni_config_str(c, "precision"));
    for (char *line = plan.data, *end; line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        lvni_log_line(LVNI_LOG_INFO, "%s", line);
    }
    lvni_str_free(&plan);
}

static lvn_status exported_path(const lvni_fit_run *r, const char *name, char **out)
{
    lvni_str path = {0};
    lvni_str_printf(&path, "%s/exported_models/exported_%s.safetensors", r->dir, name);
    *out = lvni_str_take(&path);
    return *out == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static lvn_status export_alone(void *user, const char *name, const float *values, int64_t step)
{
    const lvni_fit_run *r = user;
    char *path;
    LVN_TRY(exported_path(r, name, &path));
    const lvn_status s = r->request->export_model(r->request->user, r->model, values, step, path);
    lvni_free(path);
    return s;
}

/* best is the last one just written: the same file */
static lvn_status export_named(void *user, const char *name, const float *values, int64_t step)
{
    const lvni_fit_run *r = user;
    char *last, *best;
    if (strcmp(name, "best") != 0) {
        return export_alone(user, name, values, step);
    }
    LVN_TRY(exported_path(r, "last", &last));
    lvn_status s = exported_path(r, "best", &best);
    s = s == LVN_OK ? lvni_ckpt_link(last, best) : s;
    lvni_free(best);
    lvni_free(last);
    return s;
}

static lvn_status make_options(lvni_fit_run *r, lvni_trainer_options *out)
{
    const lvni_config *c = r->request->config;
    LVN_TRY(lvni_config_to_json(c, &r->json));
    if (r->request->describe != NULL) {
        r->request->describe(r->request->user, &r->card);
        LVN_TRY(lvni_str_status(&r->card));
    }
    *out = (lvni_trainer_options){
        .model = r->model,
        .train = r->request->train,
        .val = r->request->val,
        .plan = r->plan,
        .schedule = r->schedule,
        .precision = lvni_precision_of(lvni_config_str(c, "precision")),
        .use_ema = lvni_config_bool(c, "use_ema"),
        .gradient_clip_val = lvni_config_float(c, "gradient_clip_val"),
        .seed = (uint64_t)lvni_config_int(c, "seed"),
        .max_epochs = lvni_config_int(c, "max_epochs"),
        .max_steps = lvni_config_int(c, "max_steps"),
        .workers = lvni_worker_count(c, r->rank.cores),
        .worker_bytes = r->request->decode_bytes,
        .skip_unreadable = strcmp(lvni_config_str(c, "on_error"), "skip") == 0,
        .comm = r->rank.comm,
        .control = r->rank.control,
        .bucket_bytes = lvni_config_int(c, "bucket_bytes"),
        .out = leads(r) ? r->dir : NULL,
        .save_every_n_steps = lvni_config_int(c, "checkpoint.every_n_steps"),
        .log_every_n_steps = lvni_config_int(c, "log_every_n_steps"),
        .quiet = !leads(r) || lvni_config_bool(c, "quiet"),
        .config_json = lvni_str_text(&r->json),
        .card = r->card.len > 0 ? (lvni_st_meta){LVNI_CARD, lvni_str_text(&r->card)} : (lvni_st_meta){0},
        .export_model = r->request->export_model == NULL || !leads(r) ? NULL : export_named,
        .user = r};
    LVN_TRY(lvni_read_optim(c, &out->optim));
    lvni_read_rules(c, &out->rules);
    lvni_read_ema(c, &out->ema);
    return LVN_OK;
}

/* The network cannot work on so few samples (or on such pictures): said before the first step, not after the last of an epoch. */
static lvn_status refuse_size(const lvni_plan *p, int64_t size)
{
    const lvn_error why = *lvn_last_error();
    const bool in_all = size >= lvni_plan_shard(p, 0, p->shards - 1).count;
    if (in_all || p->last_step == p->effective_batch) {
        LVN_FAIL(LVN_ERR_USAGE, "the network cannot do a shard of %lld sample%s: %s", (long long)size, size == 1 ? "" : "s", why.message);
    }
    LVN_FAIL(LVN_ERR_USAGE, "the last step of an epoch has %lld sample%s in %d shard%s (%lld samples in steps of %lld), and the network cannot do a shard of %lld: %s; "
             "drop_last=true leaves that step out, and another batch_size may have none such", (long long)p->last_step, p->last_step == 1 ? "" : "s", p->shards,
             p->shards == 1 ? "" : "s", (long long)p->n_samples, (long long)p->effective_batch, (long long)size, why.message);
}

/* Said, not refused: the forecast is of the peak, and what others take may be free by then. */
static void compare_memory(uint64_t need, lvni_str *out)
{
    const double gib = 1.0 / (1 << 30);
    const uint64_t has = lvni_machine_memory("");
    if (need > has) {
        lvni_str_printf(out, "the run takes about %.1f GiB, and %.1f GiB are available to it here: the system may kill it; a smaller batch_size or image_size, or more "
                        "shards, takes less", (double)need * gib, (double)has * gib);
    }
}

/* What does not fit in any case is refused before there is a run; the rest is a peak of lanes that need not come together. */
static lvn_status compare_device(const lvni_memory_need *n, lvni_str *out)
{
    const double mib = 1.0 / (1 << 20);
    if (n->device_fixed > n->device_limit) {
        LVN_FAIL(LVN_ERR_DEVICE_MEMORY, "weights, gradients and optimizer take %.4g MiB of %s, which has %.4g MiB: a smaller model, fewer shards or lanes=1 need less",
                 (double)n->device_fixed * mib, n->device_name, (double)n->device_limit * mib);
    }
    if (n->device > n->device_limit) {
        lvni_str_printf(out, "%sthe run takes up to %.4g MiB of %s, which has %.4g MiB, and may run out of it; a smaller batch_size or image_size, more shards or fewer lanes "
                        "need less", out->len > 0 ? "; " : "", (double)n->device * mib, n->device_name, (double)n->device_limit * mib);
    }
    return LVN_OK;
}

/* A dry run of each size of shard. What fails in it otherwise says why when it is to run. */
static lvn_status predict_memory(lvni_fit_run *r)
{
    lvni_trainer_options o;
    lvni_memory_need need;
    LVN_TRY(make_options(r, &o));
    const lvn_status s = lvni_trainer_predict_memory(&o, &need);
    lvni_str_clear(&r->json); /* the configuration may still change */
    lvni_str_clear(&r->card);
    if (s == LVN_ERR_SHAPE && need.refused > 0) {
        return refuse_size(&r->plan, need.refused);
    }
    if (s == LVN_ERR_DEVICE_MEMORY) {
        const lvn_error why = *lvn_last_error();
        LVN_FAIL(LVN_ERR_USAGE, "%lld samples at once take more memory than there is (%s): give a smaller batch_size or image_size, or more shards",
                 (long long)need.refused, why.message);
    }
    if (s == LVN_OK) {
        lvni_memory_print(&need, o.plan.lanes, &r->memory);
        compare_memory(need.total * (uint64_t)r->rank.world, &r->scarce);
        LVN_TRY(compare_device(&need, &r->scarce));
    } else {
        lvni_str_printf(&r->memory, "memory: not known (%s)", lvn_last_error()->message);
        lvn_clear_error();
    }
    LVN_TRY(lvni_str_status(&r->scarce));
    return lvni_str_status(&r->memory);
}

static void warn_scarce(const lvni_fit_run *r)
{
    if (r->scarce.len > 0) {
        lvni_log_line(LVNI_LOG_WARNING, "%s", lvni_str_text(&r->scarce));
    }
}

static lvn_status make_trainer(lvni_fit_run *r)
{
    lvni_trainer_options o;
    LVN_TRY(make_options(r, &o));
    lvni_log_line(LVNI_LOG_INFO, "%s", lvni_str_text(&r->memory));
    warn_scarce(r);
    return lvni_trainer_create(&o, &r->trainer);
}

static void warn(void *user, const char *text)
{
    (void)user;
    lvni_log_line(LVNI_LOG_WARNING, "%s", text);
}

static lvn_status load_weights(const lvni_fit_run *r)
{
    return lvni_load_start(r->request->config, r->model);
}

/* Before there is a trainer: without a checkpoint it is made of the first weights, as at a fresh start (rounded, averaged). */
static lvn_status find_saved(lvni_fit_run *r)
{
    char *dir = lvni_path_join(r->dir, "checkpoints");
    const lvn_status s = dir == NULL ? LVN_ERR_MEMORY : lvni_ckpt_newest_valid(dir, warn, NULL, &r->saved);
    lvni_free(dir);
    if (s == LVN_ERR_NOT_FOUND) {
        lvni_log_line(LVNI_LOG_WARNING, "%s has no checkpoint yet: the run starts from its beginning", r->dir);
        return load_weights(r);
    }
    return s == LVN_OK ? lvni_check_start(r->request->config, r->saved) : s;
}

static lvn_status resume(lvni_fit_run *r)
{
    const lvni_ckpt *ckpt = r->saved;
    LVN_TRY(lvni_check_saved_classes(ckpt, lvni_str_text(&r->card)));
    LVN_TRY(lvni_trainer_restore(r->trainer, ckpt));
    lvni_log_line(LVNI_LOG_INFO, "resuming from %s: step %lld, epoch %lld", ckpt->path, (long long)ckpt->at.step, (long long)ckpt->at.epoch + 1);
    lvni_tell_moved_end(r->request->config, &r->schedule, r->plan.n_samples, ckpt);
    lvni_tell_changes(lvni_str_text(&r->json), ckpt);
    const lvni_mend mend = {.dir = r->dir,
                            .loaded = ckpt,
                            .model = r->model,
                            .use_ema = lvni_config_bool(r->request->config, "use_ema"),
                            .export_model = r->request->export_model == NULL ? NULL : export_alone,
                            .user = r};
    return leads(r) ? lvni_mend_exports(&mend) : LVN_OK;
}

/* Before there is a run directory: what the trainer would refuse. */
static lvn_status check_optim(const lvni_fit_run *r)
{
    lvni_optim_options optim;
    lvni_optim_rules rules;
    lvni_optim_parameter *parameter;
    LVN_TRY(lvni_read_optim(r->request->config, &optim));
    lvni_read_rules(r->request->config, &rules);
    LVN_TRY(lvni_trainer_parameters(r->model, &rules, &parameter));
    lvni_free(parameter);
    return LVN_OK;
}

static lvn_status build_model(lvni_fit_run *r)
{
    const lvni_config *c = r->request->config;
    const bool sync = lvni_config_bool(c, "sync_batchnorm");
    LVN_TRY((sync ? lvni_model_build_sync : lvni_model_build)(r->request->cls, r->request->arguments, (uint64_t)lvni_config_int(c, "seed"), &r->model));
    if (sync && !r->model->coupled) {
        LVN_FAIL(LVN_ERR_USAGE, "sync_batchnorm=true: %s has no batch norm; leave the key out", r->request->cls->name);
    }
    return LVN_OK;
}

static lvn_status prepare(lvni_fit_run *r)
{
    lvni_config *c = r->request->config;
    LVN_TRY(lvni_cpu_start());
    LVN_TRY(lvni_check_precision(c)); /* before overwrite=true empties the run that is there */
    LVN_TRY(lvni_accelerator_use(c, r->rank.device));
    const int64_t n = r->request->train->cls->length(r->request->train);
    LVN_TRY(build_model(r));
    LVN_TRY(lvni_make_plan(c, n, &r->rank, r->model->coupled, &r->plan));
    LVN_TRY(lvni_read_schedule(c, &r->plan, &r->schedule));
    LVN_TRY(check_optim(r));
    LVN_TRY(predict_memory(r));
    return lvni_config_bool(c, "resume") ? LVN_OK : load_weights(r); /* a checkpoint has its own; the file may be gone by then */
}

/* What rank 0 does before the others begin. */
static lvn_status lead(lvni_fit_run *r)
{
    const lvni_config *c = r->request->config;
    const bool resuming = lvni_config_bool(c, "resume");
    lvni_log_set_quiet(lvni_config_bool(c, "quiet"));
    LVN_TRY(lvni_run_dir_choose(c, r->request->recipe, &r->dir));
    LVN_TRY(prepare(r));
    lvni_stop_install(); /* from here on there is something to lose */
    LVN_TRY(lvni_run_dir_make(r->dir, lvni_config_bool(c, "overwrite"), resuming, r->request->kept_file));
    banner(r);
    return resuming ? find_saved(r) : LVN_OK;
}

/* The others wait for rank 0, which decides what is resumed; the configuration is resolved by then. */
static lvn_status follow(lvni_fit_run *r)
{
    char path[4096] = "";
    LVN_TRY(lvni_comm_broadcast(r->rank.comm, path, sizeof path, 0));
    lvni_stop_install();
    LVN_TRY(prepare(r));
    const bool fresh = lvni_config_bool(r->request->config, "resume") && path[0] == '\0';
    LVN_TRY(fresh ? load_weights(r) : LVN_OK);
    return path[0] == '\0' ? LVN_OK : lvni_ckpt_load(path, &r->saved);
}

static lvn_status tell_followers(const lvni_fit_run *r)
{
    char path[4096] = "";
    if (r->saved != NULL && snprintf(path, sizeof path, "%s", r->saved->path) >= (int)sizeof path) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "the path %s is too long to tell it to the other ranks", r->saved->path);
    }
    return lvni_comm_broadcast(r->rank.comm, path, sizeof path, 0);
}

lvn_status lvni_fit_rank(lvni_fit_run *r)
{
    const lvni_config *c = r->request->config;
    LVN_TRY(leads(r) ? lead(r) : follow(r));
    LVN_TRY(leads(r) && r->rank.world > 1 ? tell_followers(r) : LVN_OK);
    LVN_TRY(make_trainer(r));
    LVN_TRY(r->saved != NULL ? resume(r) : LVN_OK);
    if (leads(r) && !lvni_trainer_finished(r->trainer)) { /* only now: keys that do not fit, or train nothing, must not spoil the run that is there */
        LVN_TRY(lvni_run_dir_write_config(r->dir, c));
        LVN_TRY(r->request->write_files == NULL ? LVN_OK : r->request->write_files(r->request->user, r->dir));
    }
    LVN_TRY(lvni_trainer_fit(r->trainer));
    if (r->trainer->saved_step >= 0) {
        lvni_log_line(LVNI_LOG_INFO, "done after %lld steps; %s/checkpoints/last.safetensors", (long long)r->trainer->at.step, r->dir);
    }
    return LVN_OK;
}

void lvni_fit_run_free(lvni_fit_run *r)
{
    lvni_ckpt_free(r->saved);
    lvni_trainer_destroy(r->trainer);
    lvni_model_destroy(r->model);
    lvni_str_free(&r->json);
    lvni_str_free(&r->card);
    lvni_str_free(&r->memory);
    lvni_str_free(&r->scarce);
    lvni_free(r->dir);
}

/* How long the whole run is, and whether its directory is free. */
static void print_length(const lvni_fit_run *r)
{
    const lvni_config *c = r->request->config;
    const int64_t epochs = lvni_config_int(c, "max_epochs"), steps = lvni_config_int(c, "max_steps");
    const int64_t all = epochs < 0 ? steps : epochs * r->plan.steps_per_epoch;
    const int64_t total = steps >= 0 && (all < 0 || steps < all) ? steps : all;
    if (total >= 0) {
        printf("the run: %lld steps, %.4g epochs\n", (long long)total, (double)total / (double)r->plan.steps_per_epoch);
    }
    char *dir = NULL;
    if (lvni_run_dir_choose(c, r->request->recipe, &dir) != LVN_OK) {
        printf("but it would not start: %s\n", lvn_last_error()->message);
        lvn_clear_error();
    }
    lvni_free(dir);
}

lvn_status lvni_fit_plan(const lvni_fit_request *request)
{
    const lvn_device before = lvn_device_in_use();
    lvni_fit_run r = {.request = request};
    lvni_log_set_quiet(lvni_config_bool(request->config, "quiet"));
    lvn_status s = lvni_ranks_foresee(request->config, &r.rank);
    s = s == LVN_OK ? prepare(&r) : s;
    if (s == LVN_OK) {
        if (request->note != NULL) {
            printf("%s\n", request->note);
        }
        s = lvni_plan_print(&r.plan, stdout);
        print_length(&r);
        printf("model %s: %lld parameters\n", request->cls->name, (long long)lvni_model_count(r.model));
        printf("%s\n", lvni_str_text(&r.memory));
        fflush(stdout); /* the warning stands behind it */
        warn_scarce(&r);
    }
    lvni_fit_run_free(&r);
    lvn_device_use(before);
    return s;
}
