/* One forward pass, one backward pass, and the play of a step (stage_order.h). */
#include "plan/stage_order.h"

#include "core/alloc.h"
#include "core/error.h"

#include <math.h>

int lvni_plan_stage_tapes(const lvni_plan_stage_order *o, int stage)
{
    const int behind = o->stages - stage;
    return o->forwards_first || behind > o->micro_batches ? o->micro_batches : behind;
}

/* A stage runs forward passes until it has its most tapes; from then on a backward pass makes room
 * for each. */
lvni_plan_stage_work lvni_plan_stage_work_at(const lvni_plan_stage_order *o, int stage, int k)
{
    const int tapes = lvni_plan_stage_tapes(o, stage), n = o->micro_batches;
    if (k < tapes) {
        return (lvni_plan_stage_work){k, false};
    }
    const int behind = k - tapes; /* backward, forward, backward, ... */
    if (behind < 2 * (n - tapes)) {
        return behind % 2 == 0 ? (lvni_plan_stage_work){behind / 2, true}
                               : (lvni_plan_stage_work){tapes + behind / 2, false};
    }
    return (lvni_plan_stage_work){k - n, true};
}

/* When each pass of each stage ends; below 0: it has not run. */
typedef struct play {
    const lvni_plan_stage_order *order;
    lvni_plan_stage_work_of work;
    const lvni_plan_stage_times *times;
    double *end[2];                /* forward, backward: stages x micro-batches */
    double free[LVNI_PLAN_STAGES]; /* from when on the stage is free */
    int next[LVNI_PLAN_STAGES];    /* piece of work */
    int tapes[LVNI_PLAN_STAGES];
} play;

static double *end_of(const play *p, int stage, lvni_plan_stage_work w)
{
    return &p->end[w.backward][stage * p->order->micro_batches + w.micro_batch];
}

/* When what this piece needs is there; below 0: not yet known. */
static double ready_at(const play *p, int stage, lvni_plan_stage_work w)
{
    const int last = p->order->stages - 1;
    double at = 0.0;
    if (!w.backward) {
        at = stage == 0 ? 0.0 : *end_of(p, stage - 1, w);
        return at < 0.0 || stage == 0 ? at : at + p->times[stage - 1].passing;
    }
    const double own = *end_of(p, stage, (lvni_plan_stage_work){w.micro_batch, false});
    if (stage == last || own < 0.0) {
        return own;
    }
    at = *end_of(p, stage + 1, w);
    return at < 0.0 ? at : fmax(own, at + p->times[stage].passing);
}

/* As far as the stage gets. */
static bool advance(play *p, int stage, lvni_plan_stage_play *out)
{
    bool any = false;
    while (p->next[stage] < 2 * p->order->micro_batches) {
        const lvni_plan_stage_work w = p->work(p->order, stage, p->next[stage]);
        const double ready = ready_at(p, stage, w);
        if (ready < 0.0) {
            break;
        }
        const lvni_plan_stage_times *t = &p->times[stage];
        p->free[stage] = fmax(p->free[stage], ready) + (w.backward ? t->backward : t->forward);
        *end_of(p, stage, w) = p->free[stage];
        p->tapes[stage] += w.backward ? -1 : 1;
        out->tapes[stage] =
            p->tapes[stage] > out->tapes[stage] ? p->tapes[stage] : out->tapes[stage];
        p->next[stage]++;
        any = true;
    }
    return any;
}

static lvn_status fail_waiting(const play *p)
{
    int stage = 0;
    while (p->next[stage] == 2 * p->order->micro_batches) {
        stage++;
    }
    const lvni_plan_stage_work w = p->work(p->order, stage, p->next[stage]);
    LVN_FAIL(LVN_ERR_INTERNAL,
             "the stages wait for each other: stage %d of %d has the %s pass of micro-batch %d "
             "next, and what that needs is behind work of another stage that waits",
             stage, p->order->stages, w.backward ? "backward" : "forward", w.micro_batch);
}

static lvn_status play_all(play *p, lvni_plan_stage_play *out)
{
    const int stages = p->order->stages, n = p->order->micro_batches;
    for (bool any = true; any;) {
        any = false;
        for (int i = 0; i < stages; i++) {
            any = advance(p, i, out) || any;
        }
    }
    double busy = 0.0;
    for (int i = 0; i < stages; i++) {
        LVN_TRY(p->next[i] < 2 * n ? fail_waiting(p) : LVN_OK);
        out->step = fmax(out->step, p->free[i]);
        busy += n * (p->times[i].forward + p->times[i].backward);
    }
    out->bubble = out->step > 0.0 ? 1.0 - busy / (out->step * stages) : 0.0;
    return LVN_OK;
}

lvn_status lvni_plan_stage_play_through(const lvni_plan_stage_order *o,
                                        lvni_plan_stage_work_of work,
                                        const lvni_plan_stage_times *times,
                                        lvni_plan_stage_play *out)
{
    *out = (lvni_plan_stage_play){0};
    const size_t n = (size_t)o->stages * (size_t)o->micro_batches;
    double *end = lvni_core_calloc(LVNI_TAG_CONFIG, 2 * n, sizeof *end);
    if (end == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (size_t i = 0; i < 2 * n; i++) {
        end[i] = -1.0;
    }
    play p = {.order = o, .work = work, .times = times, .end = {end, end + n}};
    const lvn_status s = play_all(&p, out);
    lvni_core_free(end);
    return s;
}
