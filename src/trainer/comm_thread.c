/* A thread and a ring of jobs (comm_thread.h). */
#include "trainer/comm_thread.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/thread.h"
#include "tensor/ctx.h"

#include <stdbool.h>

struct lvni_trainer_comm_thread {
    pthread_t thread;
    bool started;
    lvni_tensor_ctx *ctx;
    pthread_mutex_t lock; /* a leaf lock */
    pthread_cond_t change;
    struct {
        lvni_trainer_comm_job run;
        void *user;
    } job[LVNI_COMM_JOBS]; /* job n in place n % LVNI_COMM_JOBS */
    uint64_t given, done;
    uint64_t failed;   /* number of the first job that failed; 0: none */
    lvn_status status; /* of that one */
    lvn_error error;
    bool quit;
};

/* Runs job `n`; the lock is held before and after. */
static void run(lvni_trainer_comm_thread *t, uint64_t n)
{
    const bool runs = t->failed == 0;
    pthread_mutex_unlock(&t->lock);
    const uint64_t before = lvn_last_error()->serial;
    const lvn_status s =
        runs ? t->job[n % LVNI_COMM_JOBS].run(t->job[n % LVNI_COMM_JOBS].user) : LVN_OK;
    pthread_mutex_lock(&t->lock);
    if (s != LVN_OK) {
        t->status = s;
        t->error = *lvni_core_error_since(before);
        t->failed = n;
    }
}

static void *thread_main(void *argument)
{
    lvni_trainer_comm_thread *t = argument;
    lvni_core_thread_name("comm", -1);
    lvni_tensor_thread_set_ftz();
    lvni_tensor_ctx_set(t->ctx);
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->done == t->given && !t->quit) {
            pthread_cond_wait(&t->change, &t->lock);
        }
        if (t->done == t->given) {
            break;
        }
        run(t, t->done + 1);
        t->done++;
        pthread_cond_broadcast(&t->change);
    }
    pthread_mutex_unlock(&t->lock);
    lvni_tensor_ctx_set(NULL);
    return NULL;
}

lvn_status lvni_trainer_comm_thread_create(lvni_trainer_comm_thread **out)
{
    *out = NULL;
    const lvni_tensor_ctx *own = lvni_tensor_ctx_get();
    lvni_trainer_comm_thread *t = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer_comm_thread);
    if (own == NULL || t == NULL) {
        lvni_core_free(t);
        return LVN_ERR_MEMORY;
    }
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->change, NULL);
    t->ctx = lvni_tensor_ctx_create(own->team, &own->pins);
    lvn_status s;
    LVNI_TRY_DONE(s, t->ctx == NULL ? LVN_ERR_MEMORY : LVN_OK);
    if (lvni_core_thread_start(&t->thread, thread_main, t) != 0) {
        s = lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__,
                          "no memory to start the communication thread");
        goto done;
    }
    t->started = true;
    *out = t;
    return LVN_OK;
done:
    lvni_trainer_comm_thread_destroy(t);
    return s;
}

void lvni_trainer_comm_thread_destroy(lvni_trainer_comm_thread *t)
{
    if (t == NULL) {
        return;
    }
    if (t->started) {
        pthread_mutex_lock(&t->lock);
        t->quit = true;
        pthread_cond_broadcast(&t->change);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
    }
    lvni_tensor_ctx_destroy(t->ctx);
    pthread_cond_destroy(&t->change);
    pthread_mutex_destroy(&t->lock);
    lvni_core_free(t);
}

uint64_t lvni_trainer_comm_thread_give(lvni_trainer_comm_thread *t, lvni_trainer_comm_job job,
                                       void *user)
{
    pthread_mutex_lock(&t->lock);
    while (t->given - t->done == LVNI_COMM_JOBS) {
        pthread_cond_wait(&t->change, &t->lock);
    }
    const uint64_t n = ++t->given;
    t->job[n % LVNI_COMM_JOBS].run = job;
    t->job[n % LVNI_COMM_JOBS].user = user;
    pthread_cond_broadcast(&t->change);
    pthread_mutex_unlock(&t->lock);
    return n;
}

lvn_status lvni_trainer_comm_thread_wait(lvni_trainer_comm_thread *t, uint64_t job)
{
    pthread_mutex_lock(&t->lock);
    while (t->done < job) {
        pthread_cond_wait(&t->change, &t->lock);
    }
    const bool failed = t->failed != 0 && t->failed <= job;
    pthread_mutex_unlock(&t->lock);
    /* written once, before */
    return failed ? lvni_core_error_collect(t->status, &t->error, "the communication thread")
                  : LVN_OK;
}
