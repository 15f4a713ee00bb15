/* A step as the library sees it: what modules are given (lvn_step), and the metrics they log in it.
 * Written by modules through lvn_log, added up and reported by the trainer. */
#ifndef LEVIN_NN_STEP_METRICS_H
#define LEVIN_NN_STEP_METRICS_H

#include <levin/nn.h>

enum { LVNI_METRICS = 16, LVNI_METRIC_NAME = 32 };
typedef struct lvni_nn_step_metric {
    char name[LVNI_METRIC_NAME];
    double sum, weight; /* mean = sum / weight */
} lvni_nn_step_metric;
/* Values that were logged and are not read yet: term i is left in slot i, in memory of a device. */
enum { LVNI_METRIC_TERMS = 32 };
typedef struct lvni_nn_terms {
    double *slots; /* (LVNI_METRIC_TERMS) */
    int n;
    struct {
        int metric; /* of the step */
        double weight;
    } term[LVNI_METRIC_TERMS];
} lvni_nn_terms;
typedef struct lvni_nn_step {
    lvn_step now;  /* first: what modules are given */
    double weight; /* of the micro-batch in the step's gradient: its samples, unless
                      lvni_nn_step_weigh sets another */
    int n_metrics;
    lvni_nn_step_metric metric[LVNI_METRICS];
    /* the batch in host memory, of which numbers are read without waiting for a device */
    const lvn_batch *host;
    /* where values are left until lvni_nn_step_fold; NULL: they are read when they are logged */
    lvni_nn_terms *terms;
} lvni_nn_step;
/* In a training_step: the loss counts with this weight (0 or more) among the step's micro-batches,
 * as after a weighted mean. Its samples stay the weight of buffers that it pushes and of
 * lvn_log. */
void lvni_nn_step_weigh(lvn_step *step, double weight);
/* lvn_log with a weight of its own. */
void lvni_nn_log_weighted(lvn_step *step, const char *name, const lvn_tensor *value, double weight);
/* Adds the terms, whose numbers are here now, to the metrics in the order of the log. */
void lvni_nn_step_fold(lvni_nn_step *step, const double *numbers);
/* *to = *from, with the metrics that there are: of room for 16 most steps have two. */
void lvni_nn_step_copy(lvni_nn_step *to, const lvni_nn_step *from);
/* total += part, metric by metric, in f64. False: a name found no room. */
bool lvni_nn_metrics_add(lvni_nn_step *total, const lvni_nn_step *part);

#endif
