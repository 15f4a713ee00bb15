/* The threads behind lanes.h: each waits for a round number, works, and reports. */
#include "trainer/lanes.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/thread.h"
#include "tensor/device.h"

#include <pthread.h>
#include <stdio.h>

typedef struct lane {
    lvni_trainer_lanes *all;
    int index;
    pthread_t thread;
    bool started;
    lvni_tensor_ctx *ctx;
    lvn_status status;
    lvn_error error;
} lane;

struct lvni_trainer_lanes {
    int n;
    lane *lane;
    pthread_mutex_t lock;
    pthread_cond_t go, done;
    uint64_t round; /* counted up for every run */
    int active;     /* lanes that take part in this round */
    int working;    /* of them, not finished (lane 0 is not counted) */
    bool quit;
    lvni_trainer_lane_work work;
    void *user;
};

static void *lane_main(void *argument)
{
    lane *me = argument;
    lvni_trainer_lanes *all = me->all;
    lvni_core_thread_name("lane", me->index);
    lvni_tensor_thread_set_ftz();
    lvni_tensor_ctx_set(me->ctx);
    uint64_t seen = 0;
    pthread_mutex_lock(&all->lock);
    for (;;) {
        while (!all->quit && all->round == seen) {
            pthread_cond_wait(&all->go, &all->lock);
        }
        if (all->quit) {
            break;
        }
        seen = all->round;
        if (me->index >= all->active) {
            continue;
        }
        pthread_mutex_unlock(&all->lock);
        const uint64_t before = lvn_last_error()->serial;
        me->status = all->work(all->user, me->index);
        if (me->status != LVN_OK) {
            me->error = *lvni_core_error_since(before);
        }
        pthread_mutex_lock(&all->lock);
        if (--all->working == 0) {
            pthread_cond_signal(&all->done);
        }
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

lvn_status lvni_trainer_lanes_create(int n, int team, const lvni_core_pins *pins,
                                     lvni_trainer_lanes **out)
{
    *out = NULL;
    lvni_trainer_lanes *all = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer_lanes);
    if (all == NULL) {
        return LVN_ERR_MEMORY;
    }
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->go, NULL);
    pthread_cond_init(&all->done, NULL);
    all->lane = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)n, sizeof *all->lane);
    const lvni_tensor_ctx *own = lvni_tensor_ctx_get();
    lvn_status s = all->lane == NULL || own == NULL ? LVN_ERR_MEMORY : LVN_OK;
    for (int i = 0; i < n && s == LVN_OK; i++) {
        lane *l = &all->lane[i];
        all->n = i + 1;
        *l = (lane){.all = all, .index = i, .ctx = lvni_tensor_ctx_create(team, pins)};
        if (l->ctx == NULL) {
            s = LVN_ERR_MEMORY;
            break;
        }
        l->ctx->device = own->device;
        if (i > 0 && lvni_core_thread_start(&l->thread, lane_main, l) != 0) {
            s = lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__,
                              "no memory to start the thread of lane %d of %d", i, n);
        } else {
            l->started = i > 0;
        }
    }
    if (s != LVN_OK) {
        lvni_trainer_lanes_destroy(all);
        return s;
    }
    *out = all;
    return LVN_OK;
}

void lvni_trainer_lanes_destroy(lvni_trainer_lanes *all)
{
    if (all == NULL) {
        return;
    }
    pthread_mutex_lock(&all->lock);
    all->quit = true;
    pthread_cond_broadcast(&all->go);
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < all->n; i++) {
        if (all->lane[i].started) {
            pthread_join(all->lane[i].thread, NULL);
        }
    }
    for (int i = 0; i < all->n; i++) {
        lvni_tensor_ctx_destroy(all->lane[i].ctx);
    }
    pthread_cond_destroy(&all->done);
    pthread_cond_destroy(&all->go);
    pthread_mutex_destroy(&all->lock);
    lvni_core_free(all->lane);
    lvni_core_free(all);
}

void lvni_trainer_lanes_set_low(lvni_trainer_lanes *all, lvn_dtype low)
{
    for (int i = 0; i < all->n; i++) {
        all->lane[i].ctx->low = low;
    }
}

lvni_tensor_ctx *lvni_trainer_lanes_context(const lvni_trainer_lanes *all, int i)
{
    return all->lane[i].ctx;
}

int lvni_trainer_lanes_count(const lvni_trainer_lanes *all)
{
    return all->n;
}

static void wake_others(lvni_trainer_lanes *all, int n, lvni_trainer_lane_work work, void *user)
{
    pthread_mutex_lock(&all->lock);
    all->work = work;
    all->user = user;
    all->active = n;
    all->working = n - 1;
    all->round++;
    pthread_cond_broadcast(&all->go);
    pthread_mutex_unlock(&all->lock);
}

lvn_status lvni_trainer_lanes_run(lvni_trainer_lanes *all, int n, lvni_trainer_lane_work work,
                                  void *user)
{
    if (n > 1) {
        wake_others(all, n, work, user);
    }
    lvni_tensor_ctx *own = lvni_tensor_ctx_get();
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    lvni_tensor_ctx_set(all->lane[0].ctx);
    const uint64_t earlier = lvn_last_error()->serial;
    lvn_status s = work(user, 0);
    s = s == LVN_OK ? LVN_OK : lvni_core_error_collect(s, lvni_core_error_since(earlier), "lane 0");
    lvni_tensor_ctx_set(own);
    lvni_tensor_fp_leave(before);
    if (n > 1) {
        pthread_mutex_lock(&all->lock);
        while (all->working > 0) {
            pthread_cond_wait(&all->done, &all->lock);
        }
        pthread_mutex_unlock(&all->lock);
    }
    for (int i = 1; i < n && s == LVN_OK; i++) {
        s = all->lane[i].status;
        if (s != LVN_OK) {
            char who[32];
            snprintf(who, sizeof who, "lane %d", i);
            s = lvni_core_error_collect(s, &all->lane[i].error, who);
        }
    }
    return s;
}

bool lvni_trainer_lanes_failed(lvni_trainer_lanes *all)
{
    lvni_tensor_ctx *own = lvni_tensor_ctx_get();
    bool failed = false;
    for (int i = 0; i <= all->n; i++) {
        lvni_tensor_ctx_set(i < all->n ? all->lane[i].ctx : own);
        failed = lvni_tensor_device_failed() || failed;
    }
    return failed;
}

void lvni_trainer_lanes_forget_errors(lvni_trainer_lanes *all)
{
    lvni_tensor_ctx *own = lvni_tensor_ctx_get();
    for (int i = 0; i <= all->n; i++) {
        lvni_tensor_ctx_set(i < all->n ? all->lane[i].ctx : own);
        lvni_tensor_device_forget_error();
    }
    lvni_tensor_ctx_set(own);
}

lvn_status lvni_trainer_lanes_take_error(lvni_trainer_lanes *all)
{
    lvni_tensor_ctx *own = lvni_tensor_ctx_get();
    lvn_status first = LVN_OK;
    lvn_error error = {0};
    for (int i = 0; i <= all->n; i++) { /* first: what is left out now must not run below */
        lvni_tensor_ctx_set(i < all->n ? all->lane[i].ctx : own);
        (void)lvni_tensor_device_sync();
    }
    for (int i = 0; i <= all->n; i++) {
        lvni_tensor_ctx_set(i < all->n ? all->lane[i].ctx : own);
        const lvn_status s = lvni_tensor_device_take_error();
        if (s != LVN_OK && first == LVN_OK) {
            first = s;
            error = *lvn_last_error();
        }
    }
    return first == LVN_OK ? LVN_OK : lvn_error_adopt(&error);
}
