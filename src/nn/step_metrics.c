/* What modules report of a micro-batch (levin/nn.h), and its sums (step_metrics.h). */
#include "nn/step_metrics.h"

#include "autograd/placing.h"
#include "autograd/recompute.h"
#include "kernels/flat.h"
#include "tensor/device.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

static lvni_nn_step *step_of(lvn_step *given)
{
    return (lvni_nn_step *)(void *)given;
}

void lvni_nn_step_begin(lvni_nn_step *step, double samples)
{
    step->now = (lvn_step){0};
    step->samples = samples;
    step->weight = samples;
    step->step_first = 0;
    step->numbers = NULL;
    step->numbers_on_device = NULL;
    step->host = NULL;
    step->terms = NULL;
    step->n_metrics = 0;
}

void lvni_nn_terms_begin(lvni_nn_terms *t)
{
    t->n = 0;
    t->n_slots = 0;
}

_Atomic int64_t lvni_nn_host_reads;

const lvn_batch *lvn_step_host(const lvn_step *step)
{
    atomic_fetch_add_explicit(&lvni_nn_host_reads, 1, memory_order_relaxed);
    return ((const lvni_nn_step *)(const void *)step)->host;
}

/* ---- the weight of the micro-batch ---- */

lvn_status lvni_nn_check_weight(double weight, int64_t micro_batch)
{
    if (isfinite(weight) && weight >= 0.0) {
        return LVN_OK;
    }
    if (micro_batch < 0) {
        LVN_FAIL(LVN_ERR_INVALID, "the weight %g: it must be 0 or more, and finite", weight);
    }
    LVN_FAIL(LVN_ERR_INVALID,
             "the weight of micro-batch %lld is %g: it must be 0 or more, and finite",
             (long long)micro_batch, weight);
}

void lvn_step_weigh(lvn_step *given, double weight)
{
    if (lvni_nn_check_weight(weight, -1) != LVN_OK) {
        lvni_autograd_op_fail("lvn_step_weigh");
        return;
    }
    step_of(given)->weight = weight;
}

static bool is_number(const lvn_tensor *t, const char *call)
{
    if (lvn_numel(t) == 1) {
        return true;
    }
    lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__, "the weight has %lld elements, must have 1",
                  (long long)lvn_numel(t));
    lvni_autograd_op_fail(call);
    return false;
}

/* Of a model in stages the last one reports. */
static bool is_here(const char *call, const lvn_tensor **t)
{
    lvn_tensor *given = (lvn_tensor *)(uintptr_t)*t;
    const bool here = lvni_autograd_stages_at_last(call, &given);
    *t = given;
    return here;
}

void lvn_step_weigh_by(lvn_step *given, const lvn_tensor *weight)
{
    lvni_nn_step *step = step_of(given);
    if (weight == NULL || !is_number(weight, "lvn_step_weigh_by") ||
        !is_here("lvn_step_weigh_by", &weight)) {
        return; /* the scope has failed and has the reason */
    }
    if (step->terms == NULL) {
        lvn_step_weigh(given, lvn_item(weight));
    } else if (step->terms->weight != NULL) {
        step->weight = (double)NAN;
        lvni_kernels_flat_number(step->terms->weight, weight);
    }
}

/* ---- metrics ---- */

static lvni_nn_step_metric *metric_of(lvni_nn_step *step, const char *name)
{
    for (int i = 0; i < step->n_metrics; i++) {
        if (strcmp(step->metric[i].name, name) == 0) {
            return &step->metric[i];
        }
    }
    if (step->n_metrics == LVNI_METRICS) {
        return NULL;
    }
    lvni_nn_step_metric *m = &step->metric[step->n_metrics++];
    *m = (lvni_nn_step_metric){0};
    strncpy(m->name, name, sizeof m->name - 1);
    return m;
}

/* What has no weight does not count, whatever it is. */
static void add(lvni_nn_step_metric *m, double value, double weight)
{
    if (weight != 0.0) {
        m->sum += value * weight;
        m->weight += weight;
    }
}

void lvni_nn_step_fold(lvni_nn_step *step, const double *numbers)
{
    lvni_nn_terms *t = step->terms;
    for (int i = 0, at = 0; i < t->n; i++) {
        const bool in_slot = isnan(t->term[i].weight);
        add(&step->metric[t->term[i].metric], numbers[at],
            in_slot ? numbers[at + 1] : t->term[i].weight);
        at += in_slot ? 2 : 1;
    }
    lvni_nn_terms_begin(t);
}

void lvni_nn_step_be_bad(lvni_nn_step *step)
{
    step->n_metrics = 0;
    add(metric_of(step, LVNI_METRIC_BAD), 1.0, 1.0);
}

/* Left on the device. weight: in host memory unless there is weight_on_device. */
static void leave(lvni_nn_step *step, int metric, const lvn_tensor *value, double weight,
                  const lvn_tensor *weight_on_device)
{
    lvni_nn_terms *t = step->terms;
    if (t->n_slots + 2 > LVNI_METRIC_SLOTS) { /* waits */
        double numbers[LVNI_METRIC_SLOTS];
        lvni_tensor_mem_copy(numbers, t->slots, (size_t)t->n_slots * sizeof *numbers);
        lvni_nn_step_fold(step, numbers);
    }
    t->term[t->n].metric = metric;
    t->term[t->n++].weight = weight_on_device == NULL ? weight : (double)NAN;
    lvni_kernels_flat_number(&t->slots[t->n_slots++], value);
    if (weight_on_device != NULL) {
        lvni_kernels_flat_number(&t->slots[t->n_slots++], weight_on_device);
    }
}

static void log_metric(lvni_nn_step *step, const char *name, const lvn_tensor *value, double weight,
                       const lvn_tensor *weight_on_device)
{
    if (lvni_autograd_recompute_again()) {
        return; /* it is reported */
    }
    lvni_nn_step_metric *m =
        strlen(name) < LVNI_METRIC_NAME && lvn_numel(value) == 1 ? metric_of(step, name) : NULL;
    if (m == NULL) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "lvn_log of %s: a metric is one number (this has %lld), with a name of at "
                      "most %d characters, at most %d in a step",
                      name, (long long)lvn_numel(value), LVNI_METRIC_NAME - 1, LVNI_METRICS);
        lvni_autograd_op_fail("lvn_log");
    } else if (!is_here("lvn_log", &value)) {
        return; /* of another stage, or the scope has failed */
    } else if (step->terms != NULL) {
        leave(step, (int)(m - step->metric), value, weight, weight_on_device);
    } else {
        add(m, lvn_item(value), weight);
    }
}

void lvn_log(lvn_step *given, const char *name, const lvn_tensor *value)
{
    if (value != NULL) { /* else the scope has failed and has the reason */
        log_metric(step_of(given), name, value, step_of(given)->samples, NULL);
    }
}

void lvn_log_weighted(lvn_step *given, const char *name, const lvn_tensor *value, double weight)
{
    if (lvni_nn_check_weight(weight, -1) != LVN_OK) {
        lvni_autograd_op_fail("lvn_log_weighted");
    } else if (value != NULL) {
        log_metric(step_of(given), name, value, weight, NULL);
    }
}

void lvn_log_weighted_by(lvn_step *given, const char *name, const lvn_tensor *value,
                         const lvn_tensor *weight)
{
    lvni_nn_step *step = step_of(given);
    if (value == NULL || weight == NULL || !is_number(weight, "lvn_log_weighted_by")) {
        return;
    }
    const bool here = is_here("lvn_log_weighted_by", &value);
    if (!is_here("lvn_log_weighted_by", &weight) || !here) {
        return;
    }
    if (step->terms == NULL) {
        lvn_log_weighted(given, name, value, lvn_item(weight));
    } else {
        log_metric(step, name, value, 0.0, weight);
    }
}

/* ---- after a validation ---- */

double lvn_step_mean(const lvn_step *given, const char *name)
{
    const lvni_nn_step *step = (const lvni_nn_step *)(const void *)given;
    for (int i = 0; i < step->n_metrics; i++) {
        const lvni_nn_step_metric *m = &step->metric[i];
        if (strcmp(m->name, name) == 0 && m->weight != 0.0) {
            return m->sum / m->weight;
        }
    }
    return (double)NAN;
}

void lvn_log_number(lvn_step *step, const char *name, double value)
{
    lvni_nn_step_metric *m =
        strlen(name) < LVNI_METRIC_NAME ? metric_of(step_of(step), name) : NULL;
    if (m == NULL) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "lvn_log_number of %s: names have at most %d characters, and a validation at "
                      "most %d metrics",
                      name, LVNI_METRIC_NAME - 1, LVNI_METRICS);
        return;
    }
    m->sum = value;
    m->weight = 1.0;
}

/* ---- sums ---- */

void lvni_nn_step_copy(lvni_nn_step *to, const lvni_nn_step *from)
{
    to->now = from->now;
    to->samples = from->samples;
    to->weight = from->weight;
    to->host = from->host;
    to->terms = from->terms;
    to->n_metrics = from->n_metrics;
    memcpy(to->metric, from->metric, (size_t)from->n_metrics * sizeof *from->metric);
}

lvn_status lvni_nn_metrics_add(lvni_nn_step *total, const lvni_nn_step *part)
{
    for (int i = 0; i < part->n_metrics; i++) {
        const lvni_nn_step_metric *from = &part->metric[i];
        lvni_nn_step_metric *m = /* most parts have the names of the first, in its order */
            i < total->n_metrics && strcmp(total->metric[i].name, from->name) == 0
                ? &total->metric[i]
                : metric_of(total, from->name);
        if (m == NULL) {
            LVN_FAIL(LVN_ERR_INVALID,
                     "the metric %s: the micro-batches, phases and steps of an epoch report more "
                     "than %d different ones",
                     from->name, LVNI_METRICS);
        }
        m->sum += from->sum;
        m->weight += from->weight;
    }
    return LVN_OK;
}
