/* lvn_log, and the sums of what was logged (step_metrics.h). */
#include "nn/step_metrics.h"

#include "autograd/tape.h"
#include "kernels/flat.h"
#include "tensor/device.h"

#include <string.h>

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

void lvni_nn_step_weigh(lvn_step *given, double weight)
{
    ((lvni_nn_step *)given)->weight = weight;
}

void lvn_log(lvn_step *given, const char *name, const lvn_tensor *value)
{
    lvni_nn_log_weighted(given, name, value, ((const lvni_nn_step *)given)->weight);
}

void lvni_nn_log_weighted(lvn_step *given, const char *name, const lvn_tensor *value, double weight)
{
    lvni_nn_step *step = (lvni_nn_step *)given;
    if (value == NULL) {
        return; /* the scope has failed and has the reason */
    }
    lvni_nn_step_metric *m =
        strlen(name) < LVNI_METRIC_NAME && lvn_numel(value) == 1 ? metric_of(step, name) : NULL;
    if (m == NULL) {
        lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                      "lvn_log of %s: a metric is one number (this has %lld), with a name of at "
                      "most %d characters, at most %d in a step",
                      name, (long long)lvn_numel(value), LVNI_METRIC_NAME - 1, LVNI_METRICS);
        lvni_autograd_op_fail("lvn_log");
        return;
    }
    m->weight += weight;
    lvni_nn_terms *t = step->terms;
    if (t == NULL) {
        m->sum += lvn_item(value) * weight;
        return;
    }
    if (t->n == LVNI_METRIC_TERMS) { /* waits */
        double numbers[LVNI_METRIC_TERMS];
        lvni_tensor_mem_copy(numbers, t->slots, sizeof numbers);
        lvni_nn_step_fold(step, numbers);
    }
    t->term[t->n].metric = (int)(m - step->metric);
    t->term[t->n].weight = weight;
    lvni_kernels_flat_number(&t->slots[t->n++], value);
}

void lvni_nn_step_fold(lvni_nn_step *step, const double *numbers)
{
    lvni_nn_terms *t = step->terms;
    for (int i = 0; i < t->n; i++) {
        step->metric[t->term[i].metric].sum += numbers[i] * t->term[i].weight;
    }
    t->n = 0;
}

void lvni_nn_step_copy(lvni_nn_step *to, const lvni_nn_step *from)
{
    to->now = from->now;
    to->weight = from->weight;
    to->terms = from->terms;
    to->n_metrics = from->n_metrics;
    memcpy(to->metric, from->metric, (size_t)from->n_metrics * sizeof *from->metric);
}

bool lvni_nn_metrics_add(lvni_nn_step *total, const lvni_nn_step *part)
{
    bool room = true;
    for (int i = 0; i < part->n_metrics; i++) {
        lvni_nn_step_metric *m = metric_of(total, part->metric[i].name);
        if (m != NULL) {
            m->sum += part->metric[i].sum;
            m->weight += part->metric[i].weight;
        }
        room = room && m != NULL;
    }
    return room;
}
