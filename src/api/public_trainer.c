/* lvn_trainer: create, destroy, and the calls of the program, each of which gives the ranks a round
 * and waits for all of them (public_trainer.h). */
#include "api/public_trainer.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/options_struct.h"
#include "core/thread.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "tensor/device.h"

#include <levin/device.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- the training behind it ---- */

static lvn_status open_job(lvni_run_job *request)
{
    lvn_trainer *h = request->state = (void *)(uintptr_t)request->recipe->user;
    LVN_TRY(lvni_run_open_job(&h->job, "a job", request));
    request->drive = lvni_api_host_serve;
    request->host = h;
    request->hooks = lvni_api_host_hooks(h);
    return LVN_OK;
}

static void *trainer_main(void *argument)
{
    static const char *const own_program[2] = {NULL, NULL};
    lvn_trainer *h = argument;
    const lvni_run_recipe recipe = {.name = h->job.module->name,
                                    .defaults.job = h->job.options,
                                    .keys = lvni_run_job_keys,
                                    .open = open_job,
                                    .user = h};
    lvni_core_thread_name("trainer", -1);
    lvni_core_training_set(&h->training);
    lvni_tensor_thread_set_ftz();
    lvni_log_buffer();
    const lvn_status s = lvni_run_train_with(&recipe, own_program, "levin help train", h->n_args,
                                             (const char *const *)h->args);
    pthread_mutex_lock(&h->lock);
    h->status = s;
    h->error = *lvn_last_error();
    h->gone = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static void receive_line(void *user, lvni_log_level level, const char *text)
{
    const lvn_trainer *h = user;
    h->o.log(h->o.user, (lvn_log_level)((int)level - (int)LVNI_LOG_DETAIL), text);
}

/* ---- create and destroy ---- */

static lvn_status copy_text(const lvn_job *job, lvn_trainer *h)
{
    h->job = *job;
    h->job.options = NULL;
    h->job.streams = h->stream;
    for (int i = 0; i < job->n_streams; i++) {
        h->stream[i] = job->streams[i];
        snprintf(h->stream_name[i], sizeof h->stream_name[i], "%s", job->streams[i].name);
        h->stream[i].name = h->stream_name[i];
    }
    h->args = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)h->o.n_args + 1, sizeof *h->args);
    if (h->args == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (; h->n_args < h->o.n_args; h->n_args++) {
        h->args[h->n_args] = lvni_core_strdup(LVNI_TAG_TRAINER, h->o.args[h->n_args]);
        if (h->args[h->n_args] == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    if (job->options != NULL) {
        h->job.options = lvni_core_strdup(LVNI_TAG_TRAINER, job->options);
    }
    return job->options != NULL && h->job.options == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* Everything but the datasets. */
static void free_trainer(lvn_trainer *h)
{
    for (int i = 0; i < h->n_args; i++) {
        lvni_core_free(h->args[i]);
    }
    lvni_core_free(h->args);
    lvni_core_free((void *)(uintptr_t)h->job.options);
    lvni_log_destroy(h->training.log);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    lvni_core_free(h);
}

/* Ranks of other processes, of which a process has one. */
static _Atomic bool launched;

static void end_training(lvn_trainer *h)
{
    pthread_join(h->thread, NULL);
    if (h->o.launched) {
        launched = false;
    }
}

static lvn_status start_training(lvn_trainer *h)
{
    if (h->o.launched && atomic_exchange(&launched, true)) {
        LVN_FAIL(LVN_ERR_USAGE, "this process has a trainer that is a rank of several processes: "
                                "destroy it first");
    }
    if (lvni_core_thread_start(&h->thread, trainer_main, h) != 0) {
        launched = launched && !h->o.launched;
        LVN_FAIL(LVN_ERR_MEMORY, "no memory to start the thread of a trainer");
    }
    pthread_mutex_lock(&h->lock);
    while (!h->gone && (h->here == 0 || h->arrived < h->here)) {
        pthread_cond_wait(&h->changed, &h->lock);
    }
    const bool gone = h->gone;
    pthread_mutex_unlock(&h->lock);
    if (gone) {
        end_training(h);
        return lvni_core_error_collect(h->status, &h->error, "the start of the training");
    }
    return LVN_OK;
}

static lvn_status create(const lvn_job *job, const lvn_trainer_options *options, lvn_trainer *h)
{
    lvni_run_job checked = {0};
    LVN_TRY(lvni_core_options_copy("trainer_create", &h->o, sizeof h->o, options));
    LVN_ARG(h->o.n_args == 0 || (h->o.n_args > 0 && h->o.args != NULL),
            "lvn_trainer_create: n_args is %d, and args %s", h->o.n_args,
            h->o.args == NULL ? "is NULL" : "is not");
    LVN_TRY(lvni_run_open_job(job, "a job", &checked)); /* the thread's error counts */
    LVN_TRY(copy_text(job, h));
    h->training.hosted = true;
    h->training.alone = !h->o.launched;
    h->training.dir_lock = -1;
    LVN_TRY(lvni_log_create(h->o.log != NULL ? receive_line : NULL, h, &h->training.log));
    return start_training(h);
}

lvn_status lvn_trainer_create_with(const lvn_job *job, lvn_trainer **out,
                                   const lvn_trainer_options *options)
{
    *out = NULL;
    lvn_trainer *h = LVNI_NEW(LVNI_TAG_TRAINER, lvn_trainer);
    lvn_status s = LVN_ERR_MEMORY;
    if (h != NULL) {
        pthread_mutex_init(&h->lock, NULL);
        pthread_cond_init(&h->changed, NULL);
        s = create(job, options, h);
    }
    if (s == LVN_OK) {
        *out = h;
        return LVN_OK;
    }
    if (h != NULL) {
        free_trainer(h);
    }
    lvni_run_close_job(job);
    return s;
}

void lvn_trainer_destroy(lvn_trainer *h)
{
    if (h == NULL) {
        return;
    }
    pthread_mutex_lock(&h->lock);
    const bool calling = h->calling;
    if (!calling) {
        h->call = LVNI_HOST_END;
        h->round++;
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    if (calling) {
        (void)lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                            "lvn_trainer_destroy while a call of the trainer runs, or in one of "
                            "its callbacks: it stays");
        return;
    }
    end_training(h);
    lvni_run_close_job(&h->job);
    free_trainer(h);
}

/* ---- calls ---- */

/* With the lock, which is open while the program's function runs. */
static void run_callback(lvn_trainer *h)
{
    const lvn_trainer_callback event = h->event;
    pthread_mutex_unlock(&h->lock);
    const bool stop = event(h->o.user, &h->report);
    pthread_mutex_lock(&h->lock);
    if (stop) {
        lvn_trainer_stop(h);
    }
    h->event = NULL;
    pthread_cond_broadcast(&h->changed);
}

static lvn_status check_call(const lvn_trainer *h, const char *name)
{
    if (h->calling) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "lvn_trainer_%s: another call of this trainer is running, or this is one of its "
                 "callbacks: make the call after it",
                 name);
    }
    if (h->broken) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "lvn_trainer_%s: this trainer has failed (a step or a validation): create another "
                 "one, which may go on from a checkpoint",
                 name);
    }
    return LVN_OK;
}

/* With the lock. */
static lvn_status make_round(lvn_trainer *h, lvni_api_host_call call)
{
    h->calling = true;
    h->call = call;
    h->status = LVN_OK;
    h->working = h->here;
    h->training.stops = call == LVNI_HOST_FIT;
    h->round++;
    pthread_cond_broadcast(&h->changed);
    while (h->working > 0) {
        if (h->event != NULL) {
            run_callback(h);
        } else {
            pthread_cond_wait(&h->changed, &h->lock);
        }
    }
    if (call == LVNI_HOST_FIT) {
        h->training.stops = false;
        h->training.stop = 0;
        h->training.agreed = 0;
    }
    h->calling = false;
    h->broken = h->broken || (h->status != LVN_OK && call < LVNI_HOST_SAVE);
    return h->status == LVN_OK ? LVN_OK : lvni_core_error_collect(h->status, &h->error, "the call");
}

static lvn_status call_ranks(lvn_trainer *h, const char *name, lvni_api_host_call call,
                             const char *path)
{
    pthread_mutex_lock(&h->lock);
    lvn_status s;
    LVNI_TRY_DONE(s, check_call(h, name));
    if (call == LVNI_HOST_STEP && h->ends) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "lvn_trainer_step: the run is at its end, step %lld: larger max_epochs "
                          "or max_steps train on",
                          (long long)h->at.step);
        goto done;
    }
    h->path = path;
    s = make_round(h, call);
done:
    pthread_mutex_unlock(&h->lock);
    return s;
}

lvn_status lvn_trainer_fit(lvn_trainer *h)
{
    return call_ranks(h, "fit", LVNI_HOST_FIT, NULL);
}

void lvn_trainer_stop(lvn_trainer *h)
{
    h->training.stop = LVNI_STOP_ASKED;
}

lvn_status lvn_trainer_step(lvn_trainer *h, const lvn_trainer_report **report)
{
    LVN_TRY(call_ranks(h, "step", LVNI_HOST_STEP, NULL));
    if (report != NULL) {
        *report = &h->report;
    }
    return LVN_OK;
}

lvn_status lvn_trainer_validate(lvn_trainer *h, const lvn_trainer_report **report)
{
    if (h->job.val == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "lvn_trainer_validate: the job has no validation set (.val)");
    }
    LVN_TRY(call_ranks(h, "validate", LVNI_HOST_VALIDATE, NULL));
    if (report != NULL) {
        *report = &h->report;
    }
    return LVN_OK;
}

lvn_status lvn_trainer_save(lvn_trainer *h, const char *path)
{
    LVN_ARG(path != NULL, "lvn_trainer_save: the path is NULL");
    return call_ranks(h, "save", LVNI_HOST_SAVE, path);
}

lvn_status lvn_trainer_load(lvn_trainer *h, const char *path)
{
    return call_ranks(h, "load", LVNI_HOST_LOAD, path);
}

/* ---- what it has ---- */

bool lvn_trainer_finished(const lvn_trainer *h)
{
    pthread_mutex_t *lock = (void *)(uintptr_t)&h->lock;
    pthread_mutex_lock(lock);
    const bool ends = h->ends;
    pthread_mutex_unlock(lock);
    return ends;
}

int64_t lvn_trainer_steps(const lvn_trainer *h)
{
    pthread_mutex_t *lock = (void *)(uintptr_t)&h->lock;
    pthread_mutex_lock(lock);
    const int64_t step = h->at.step;
    pthread_mutex_unlock(lock);
    return step;
}

const lvn_module *lvn_trainer_module(const lvn_trainer *h)
{
    return h->inner->o.model->root;
}

const char *lvn_trainer_tensor_name(const lvn_trainer *h, int i)
{
    const lvni_nn_model *m = h->inner->o.model;
    const int buffer = i - m->n_parameters;
    return i < 0                   ? NULL
           : buffer < 0            ? m->parameters[i].name
           : buffer < m->n_buffers ? m->buffers[buffer]->name
                                   : NULL;
}

lvn_tensor *lvn_trainer_tensor(const lvn_trainer *h, const char *name)
{
    const lvni_nn_model *m = h->inner->o.model;
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, name) == 0) {
            return m->parameters[i].tensor;
        }
    }
    for (int i = 0; i < m->n_buffers; i++) {
        if (strcmp(m->buffers[i]->name, name) == 0) {
            return m->buffers[i]->tensor;
        }
    }
    (void)lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                        "the model has no parameter or buffer %s (lvn_trainer_tensor_name lists "
                        "them)",
                        name);
    return NULL;
}

static lvn_status check_value(const lvn_tensor *mine, const char *name, const lvn_tensor *value)
{
    char want[96], is[96];
    LVN_ARG(value != NULL, "lvn_trainer_write: the value for %s is NULL", name);
    if (value->dtype != LVN_F32 || !lvni_tensor_same_shape(mine, value)) {
        LVN_FAIL(LVN_ERR_SHAPE, "lvn_trainer_write: %s is f32 %s, the value %s %s", name,
                 lvni_tensor_shape_string(mine->ndim, mine->shape, want),
                 lvn_dtype_name(value->dtype),
                 lvni_tensor_shape_string(value->ndim, value->shape, is));
    }
    return LVN_OK;
}

/* Ranks that compute on devices of their own copy it from the host. */
lvn_status lvn_trainer_write(lvn_trainer *h, const char *name, const lvn_tensor *value)
{
    const lvn_tensor *mine = lvn_trainer_tensor(h, name);
    if (mine == NULL) {
        return LVN_ERR_NOT_FOUND;
    }
    LVN_TRY(check_value(mine, name, value));
    lvn_tensor *host = lvn_to_device(value, LVN_CPU);
    if (host == NULL) {
        return lvn_last_error()->code;
    }
    pthread_mutex_lock(&h->lock);
    lvn_status s = check_call(h, "write");
    if (s == LVN_OK) {
        h->path = name;
        h->value = host;
        s = make_round(h, LVNI_HOST_WRITE);
        h->value = NULL;
    }
    pthread_mutex_unlock(&h->lock);
    lvn_release(host);
    return s;
}
