/* A step as the library sees it: what modules are given (lvn_step), the weight of the micro-batch
 * and the metrics that they report in it. Written by modules (levin/nn.h: lvn_step_weigh, lvn_log),
 * added up and reported by the trainer. */
#ifndef LEVIN_NN_STEP_METRICS_H
#define LEVIN_NN_STEP_METRICS_H

#include <levin/nn.h>

enum { LVNI_METRICS = 64, LVNI_METRIC_NAME = 40 };
typedef struct lvni_nn_step_metric {
    char name[LVNI_METRIC_NAME];
    double sum, weight; /* mean = sum / weight; weight 0: it has none */
} lvni_nn_step_metric;
/* Numbers that were given and are not read yet, in memory of a device: each term has a slot for its
 * value, and the next one for its weight when a tensor holds it. */
enum { LVNI_METRIC_SLOTS = 2 * LVNI_METRICS };
typedef struct lvni_nn_terms {
    double *slots;  /* (LVNI_METRIC_SLOTS) */
    double *weight; /* of the micro-batch, where a tensor holds it; NULL: it counts for nothing */
    int n, n_slots;
    struct {
        int metric;    /* of the step */
        double weight; /* NAN: in a slot */
    } term[LVNI_METRIC_SLOTS];
} lvni_nn_terms;
typedef struct lvni_nn_step {
    lvn_step now;   /* first: what modules are given */
    double samples; /* of the micro-batch: the weight of lvn_log and of what buffers are pushed */
    double weight;  /* of the micro-batch in the step's gradient; NAN: it is in terms->weight */
    int64_t step_first;              /* samples of the step in front of the micro-batch */
    const double *numbers;           /* values of the model's numbers; NULL: there is no step */
    const double *numbers_on_device; /* the same in memory of the device; NULL: nowhere */
    /* the batch in host memory, of which numbers are read without waiting for a device */
    const lvn_batch *host;
    /* where numbers are left until lvni_nn_step_fold; NULL: they are read when they are given */
    lvni_nn_terms *terms;
    int n_metrics;
    lvni_nn_step_metric metric[LVNI_METRICS]; /* what is behind the last one is not set */
} lvni_nn_step;

/* How often modules asked on the host for what differs from step to step, in all: for batches, and
 * for numbers that move. */
extern _Atomic int64_t lvni_nn_host_reads;

/* A step of so many samples, without metrics. Most have two of 64: the rest is not touched. */
void lvni_nn_step_begin(lvni_nn_step *step, double samples);
/* Forgets what is in the slots. */
void lvni_nn_terms_begin(lvni_nn_terms *terms);
/* LVN_ERR_INVALID unless it is a number of 0 or more. micro_batch < 0: not named. */
lvn_status lvni_nn_check_weight(double weight, int64_t micro_batch);
/* Adds the terms, whose numbers are here now, to the metrics in the order of the log. */
void lvni_nn_step_fold(lvni_nn_step *step, const double *numbers);
/* How many micro-batches were left out, since their loss was not finite: a sum and not a mean. */
#define LVNI_METRIC_BAD "bad_batches"
/* Drops the metrics of a micro-batch and counts it as one of those. */
void lvni_nn_step_be_bad(lvni_nn_step *step);
/* *to = *from, with the metrics that there are. */
void lvni_nn_step_copy(lvni_nn_step *to, const lvni_nn_step *from);
/* total += part, metric by metric, in f64. LVN_ERR_INVALID: a name found no room. */
lvn_status lvni_nn_metrics_add(lvni_nn_step *total, const lvni_nn_step *part);

#endif
