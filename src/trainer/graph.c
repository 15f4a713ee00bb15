/* Captured steps of the engine (engine.h). What modules and the update leave on the host is kept
 * when a step is captured, and written again for each one that is replayed. */
#include "trainer/graph_impl.h"

#include "core/alloc.h"
#include "log/run_log.h"
#include "trainer/phases.h"
#include "trainer/profile.h"
#include "trainer/trainer.h"

#include <stdio.h>
#include <string.h>

lvni_trainer_graph_mode lvni_trainer_graph_mode_of(const char *name)
{
    return strcmp(name, "on") == 0     ? LVNI_GRAPH_ON
           : strcmp(name, "auto") == 0 ? LVNI_GRAPH_AUTO
                                       : LVNI_GRAPH_OFF;
}

/* ---- creation ---- */

/* NULL: steps can be captured, as far as the options decide. */
static const char *refusal(const lvni_trainer_engine_options *o)
{
    const lvni_plan *plan = &o->plan;
    if (plan->staged) {
        return "the model is in stages (strategy=balance)";
    }
    if (!lvni_trainer_deferred_possible()) {
        return "this rank computes on the CPU";
    }
    if (lvni_tensor_device_backend(lvni_tensor_ctx_get()->device)->capture_begin == NULL) {
        return "the backend of the device does not capture";
    }
    if (plan->devices > 1) {
        return "several ranks exchange gradients in the middle of it";
    }
    if (plan->coupled && plan->group > 1) {
        return "micro-batches wait for each other on the host (sync_batchnorm)";
    }
    for (int i = 0; i < lvni_trainer_phases_count(o->model); i++) {
        if (o->phase[i].every > 1) {
            return "not every step has the same phases (every)";
        }
    }
    if (plan->micro_batch_end - plan->micro_batch_begin > lvni_data_loader_copied(plan)) {
        return "a step has more micro-batches than the device gets ahead of time";
    }
    return o->detect_anomaly ? "detect_anomaly looks at every op" : NULL;
}

lvn_status lvni_trainer_graph_check(const lvni_trainer_engine_options *o)
{
    const char *reason = o->graph == LVNI_GRAPH_ON ? refusal(o) : NULL;
    if (reason != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "cuda_graph=on: a step cannot be captured: %s; use auto or off",
                 reason);
    }
    return LVN_OK;
}

static lvn_status make(const lvni_trainer_engine *e, lvni_trainer_graph *g)
{
    const size_t n = (size_t)g->n, phases = (size_t)e->n_phases,
                 parameters = (size_t)e->o.model->n_parameters;
    g->place = lvni_core_calloc(LVNI_TAG_TRAINER, n, sizeof *g->place);
    g->part = lvni_core_calloc(LVNI_TAG_TRAINER, phases * n, sizeof *g->part);
    g->terms = lvni_core_calloc(LVNI_TAG_TRAINER, phases * n, sizeof *g->terms);
    g->idle = lvni_core_calloc(LVNI_TAG_TRAINER, phases * parameters + 1, sizeof *g->idle);
    return g->place == NULL || g->part == NULL || g->terms == NULL || g->idle == NULL
               ? LVN_ERR_MEMORY
               : LVN_OK;
}

lvn_status lvni_trainer_graph_create(lvni_trainer_engine *e, lvni_trainer_graph **out)
{
    *out = NULL;
    const char *reason = refusal(&e->o);
    if (e->o.graph == LVNI_GRAPH_OFF) {
        return LVN_OK;
    }
    if (reason != NULL) {
        if (e->deferred != NULL && e->o.plan.rank == 0) {
            lvni_log_line(LVNI_LOG_DETAIL, "cuda_graph=auto: steps are not captured: %s", reason);
        }
        return LVN_OK;
    }
    lvni_trainer_graph *g = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer_graph);
    if (g == NULL) {
        return LVN_ERR_MEMORY;
    }
    g->mode = e->o.graph;
    g->device = e->deferred->device;
    g->n = e->o.plan.micro_batch_end - e->o.plan.micro_batch_begin;
    *out = g;
    return make(e, g);
}

/* ---- the end of a captured step ---- */

/* The batches of a step that is being submitted stay until it is. */
static void drop(lvni_trainer_graph *g)
{
    if (g->captured) {
        lvni_tensor_device_capture_drop(g->device);
    }
    g->captured = false;
    g->watched = g->others = 0;
    g->stale = true;
}

/* From here on steps are submitted call by call. */
void lvni_trainer_graph_give_up(lvni_trainer_engine *e, const char *reason)
{
    lvni_trainer_graph *g = e->graph;
    snprintf(g->reason, sizeof g->reason, "%.*s", (int)sizeof g->reason - 1, reason);
    drop(g);
    g->given_up = true;
    g->status = LVN_ERR_UNSUPPORTED;
    if (g->mode == LVNI_GRAPH_AUTO) {
        lvni_log_line(LVNI_LOG_DETAIL, "cuda_graph=auto: steps are not captured: %s", g->reason);
    }
}

static lvn_status fail_given_up(const lvni_trainer_engine *e)
{
    LVN_FAIL(e->graph->status, "cuda_graph=on: a step cannot be captured: %s; use auto or off",
             e->graph->reason);
}

void lvni_trainer_graph_forget(lvni_trainer_graph *g)
{
    if (g != NULL) {
        drop(g);
        lvni_trainer_graph_unload(g);
    }
}

void lvni_trainer_graph_destroy(lvni_trainer_graph *g)
{
    if (g == NULL) {
        return;
    }
    if (g->place != NULL) {
        drop(g);
        lvni_trainer_graph_unload(g);
    }
    lvni_core_free(g->place);
    lvni_core_free(g->part);
    lvni_core_free(g->terms);
    lvni_core_free(g->idle);
    lvni_core_free(g);
}

int64_t lvni_trainer_graph_replays(const lvni_trainer_graph *g)
{
    return g == NULL ? 0 : g->replays;
}

/* ---- what a step does that a replay would not ---- */

typedef struct traffic {
    lvni_tensor_device_traffic device;
    int64_t host_reads;
} traffic;

static traffic traffic_of(const lvni_trainer_graph *g)
{
    return (traffic){lvni_tensor_device_get_traffic(g->device), atomic_load(&lvni_nn_host_reads)};
}

/* Since then; NULL: nothing. */
static const char *broken_by(const lvni_trainer_graph *g, const traffic *before)
{
    const traffic now = traffic_of(g);
    if (now.device.waits != before->device.waits) {
        return "the model waits for the device in the middle of a step (lvn_item)";
    }
    if (now.device.uploads != before->device.uploads) {
        return "the model copies numbers of the host to the device in each step (mixup, "
               "lvn_random_uniform, the masks of method=dinov2)";
    }
    return now.host_reads != before->host_reads
               ? "the model reads its batch, or a number that moves, on the host (lvn_step_host, "
                 "lvn_number_value)"
               : NULL;
}

/* Kernels have the counts of such parameters by value. */
static bool counts_differ(const lvni_trainer_engine *e)
{
    const lvni_optim *o = e->optim;
    for (int phase = 0; phase < e->n_phases; phase++) {
        const bool *idle = e->graph->idle + (size_t)phase * (size_t)o->n_parameters;
        for (int i = 0; i < o->n_parameters && e->graph->counted[phase]; i++) {
            if (o->parameter[i].phase == phase && !o->parameter[i].frozen && !idle[i] &&
                o->missed[i] > 0) {
                return true;
            }
        }
    }
    return false;
}

/* The first step behind this one that trains parameters which this one does not, or at another
 * rate: factors of groups are arguments of captured kernels. */
static int64_t thaws_at(const lvni_trainer_engine *e)
{
    int64_t next = INT64_MAX;
    for (int i = 0; i < e->o.model->n_parameters; i++) {
        const lvni_optim_parameter *p = &e->optim->parameter[i];
        const lvni_trainer_rates rates = lvni_trainer_rates_at(e, p->phase, 0);
        const int64_t until[] = {e->o.model->parameters[i].thaw,
                                 lvni_optim_hold_next(&p->hold, rates.schedule, e->now.step)};
        for (int k = 0; k < 2; k++) {
            next = until[k] > e->now.step && until[k] < next ? until[k] : next;
        }
    }
    return next;
}

/* ---- capture ---- */

static void keep_host(lvni_trainer_engine *e, const lvni_trainer_step_record *r)
{
    lvni_trainer_graph *g = e->graph;
    const lvni_trainer_deferred *l = e->deferred;
    g->record = *r;
    for (int64_t i = 0; i < l->n_phases * l->n; i++) {
        lvni_nn_step_copy(&g->part[i], &l->step[l->next].part[i]);
        g->terms[i] = l->step[l->next].terms[i];
    }
    memcpy(g->idle, l->step[l->next].idle,
           (size_t)l->n_phases * (size_t)l->n_parameters * sizeof *g->idle);
    memcpy(g->counted, l->step[l->next].counted, sizeof g->counted);
    g->weighs = l->step[l->next].weighs;
}

/* All of the step, which has not run. */
static lvn_status record_commands(lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    lvni_trainer_graph *g = e->graph;
    const traffic before = traffic_of(g);
    if (lvni_tensor_device_join(g->device, 0) > 1) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "another trainer computes on the device");
    }
    LVN_TRY(lvni_tensor_device_capture_begin(g->device));
    lvn_status s = lvni_trainer_submit_phases(e, r);
    lvni_trainer_deferred_finish(e->deferred);
    const char *broken = broken_by(g, &before);
    if (s == LVN_OK && broken != NULL) {
        s = lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__, "%s", broken);
    }
    const lvn_error error = *lvn_last_error();
    const lvn_status ended = lvni_tensor_device_capture_end(g->device, s == LVN_OK);
    s = s != LVN_OK ? lvn_error_adopt(&error) : ended;
    if (s == LVN_OK && lvni_trainer_lanes_failed(e->lanes)) { /* or a step before this one */
        lvni_tensor_device_capture_drop(g->device);
        s = lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                          "a part of it could not be submitted");
    }
    return s;
}

/* As if the step had only begun. */
static lvn_status take_back(lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    lvni_trainer_deferred_cancel(e->deferred, e);
    lvni_trainer_record_begin(e, r);
    lvni_trainer_lanes_forget_errors(e->lanes);
    LVN_TRY(lvni_trainer_gradient_sync_abandon(e->gradient_sync));
    return lvni_trainer_deferred_begin(e->deferred, e);
}

static lvn_status replay(lvni_trainer_engine *e, lvni_trainer_step_record *r, bool *lost)
{
    LVN_TRY(lvni_tensor_device_replay(e->graph->device, lost));
    e->graph->replays += *lost ? 0 : 1;
    return *lost ? LVN_OK : lvni_trainer_deferred_end(e->deferred, e, &r->deferred);
}

/* With the thread's error. */
static lvn_status submit_uncaptured(lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    const lvn_status s = lvn_last_error()->code;
    lvni_trainer_graph_give_up(e, lvn_last_error()->message);
    if (s == LVN_ERR_DEVICE_MEMORY) { /* smaller batches have room: `levin tune` runs them */
        e->graph->status = s;
    }
    lvn_clear_error();
    LVN_TRY(take_back(e, r));
    return e->graph->mode == LVNI_GRAPH_ON ? fail_given_up(e) : lvni_trainer_submit_step(e, r);
}

static lvn_status capture(lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    lvni_trainer_graph *g = e->graph;
    bool lost = false;
    if (record_commands(e, r) != LVN_OK) {
        return submit_uncaptured(e, r);
    }
    g->captured = true;
    keep_host(e, r);
    if (counts_differ(e)) {
        lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                      "parameters that missed updates have counts of their own");
        return submit_uncaptured(e, r);
    }
    g->until = thaws_at(e);
    if (!g->reported) {
        lvni_log_line(LVNI_LOG_DETAIL, "step %lld is captured, and replayed from here on",
                      (long long)e->now.step);
    }
    g->reported = true;
    LVN_TRY(replay(e, r, &lost));
    if (lost) {
        LVN_FAIL(LVN_ERR_INTERNAL, "the captured step was lost before it ran");
    }
    return LVN_OK;
}

/* ---- replay ---- */

static void repeat_late(lvni_trainer_engine *e)
{
    const lvni_trainer_graph *g = e->graph;
    lvni_trainer_deferred *l = e->deferred;
    for (int64_t i = 0; i < l->n_phases * l->n; i++) {
        lvni_nn_terms *terms = &l->step[l->next].terms[i];
        lvni_nn_step_copy(&l->step[l->next].part[i], &g->part[i]);
        *terms = g->terms[i];
        l->step[l->next].part[i].terms = g->part[i].terms == NULL ? NULL : terms;
    }
    memcpy(l->step[l->next].idle, g->idle,
           (size_t)l->n_phases * (size_t)l->n_parameters * sizeof *g->idle);
    memcpy(l->step[l->next].counted, g->counted, sizeof g->counted);
    l->step[l->next].weighs = g->weighs;
}

/* What submitting the phases does on the host. */
static void repeat_host(lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    const lvni_trainer_graph *g = e->graph;
    repeat_late(e);
    r->samples = g->record.samples;
    r->signal = e->o.signal_in_message ? lvni_trainer_stop_signal() : 0;
    r->validate = e->validation_due;
    lvni_trainer_stop_record(r->signal);
    for (int i = 0; i < e->n_phases; i++) {
        lvni_trainer_phase_result *p = &r->phase[i];
        const lvni_trainer_rates rates = lvni_trainer_rates_at(e, i, e->scaler.skipped);
        *p = g->record.phase[i];
        r->lr = p->lr = rates.lr;
        lvni_optim_set_rates(e->optim, i, e->now.step, rates.schedule, rates.decay, rates.momentum);
        memcpy(e->optim->idle, g->idle + (size_t)i * (size_t)e->optim->n_parameters,
               (size_t)e->optim->n_parameters * sizeof *g->idle);
        if (g->counted[i]) {
            lvni_optim_end_step(e->optim, i);
        }
    }
    lvni_nn_model_touch(e->o.model);
}

static lvn_status replay_step(lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    bool lost = false;
    lvni_dist_comm_at(e->o.comm, LVNI_PLACE_FORWARD, e->now.step);
    lvni_trainer_profile_at(LVNI_PART_FORWARD);
    repeat_host(e, r);
    LVN_TRY(replay(e, r, &lost));
    if (!lost) {
        return LVN_OK;
    }
    LVN_TRY(take_back(e, r));
    drop(e->graph);
    return lvni_trainer_submit_step(e, r);
}

/* ---- a step ---- */

static lvn_status count_steady_step(lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    const traffic before = traffic_of(e->graph);
    LVN_TRY(lvni_trainer_submit_phases(e, r));
    const char *broken = broken_by(e->graph, &before);
    lvni_trainer_deferred_finish(e->deferred);
    LVN_TRY(lvni_trainer_deferred_end(e->deferred, e, &r->deferred));
    e->graph->watched++;
    if (broken != NULL) { /* cuda_graph=on: this step is whole, the next one fails */
        lvni_trainer_graph_give_up(e, broken);
    }
    return LVN_OK;
}

static lvn_status submit_loaded(lvni_trainer_engine *e, lvni_trainer_step_record *r, bool same)
{
    lvni_trainer_graph *g = e->graph;
    if (same && lvni_trainer_engine_noted(e) == 0) { /* else the host has to count them */
        g->others = 0;
        return g->captured ? replay_step(e, r) : capture(e, r);
    }
    LVN_TRY(lvni_trainer_submit_step(e, r));
    if (++g->others == LVNI_GRAPH_WATCHED) {
        drop(g);
    }
    return LVN_OK;
}

lvn_status lvni_trainer_graph_submit(lvni_trainer_engine *e, lvni_trainer_step_record *r)
{
    lvni_trainer_graph *g = e->graph;
    bool same;
    if (g->captured && e->now.step >= g->until) {
        drop(g);
        lvni_trainer_graph_unload(g);
    }
    if (g->given_up) {
        return g->mode == LVNI_GRAPH_ON ? fail_given_up(e) : lvni_trainer_submit_step(e, r);
    }
    if (!g->captured && g->watched < LVNI_GRAPH_WATCHED) {
        return count_steady_step(e, r);
    }
    lvn_status s = lvni_trainer_graph_load(e, &same);
    if (s == LVN_OK) {
        s = submit_loaded(e, r, same);
    }
    lvni_trainer_graph_unload(g);
    LVN_TRY(s);
    return lvni_trainer_wave_ahead(e);
}
