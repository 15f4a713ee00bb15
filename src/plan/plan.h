/* The batch plan: which rank computes which samples of which step (docs/reproducibility.md). The
 * one place of this arithmetic; the loader cuts by it, the trainer adds by it, `levin plan` prints
 * it. Pure: no files, no threads, no clock. */
#ifndef LEVIN_PLAN_PLAN_H
#define LEVIN_PLAN_PLAN_H

#include "core/pins.h"
#include "core/str.h"

#include <stdio.h>

enum { LVNI_PLAN_MAX_MICRO_BATCHES = 65536 };

/* A stream beside the training set: the rules of levin/data.h. */
enum { LVNI_PLAN_STREAMS = 4, LVNI_PLAN_ENDLESS = -1 };
typedef enum lvni_plan_rule {
    LVNI_PLAN_CYCLE,
    LVNI_PLAN_ONCE,
    LVNI_PLAN_SHORTENS,
    LVNI_PLAN_LENGTHENS
} lvni_plan_rule;
typedef struct lvni_plan_stream {
    const char *name;
    int64_t n_samples; /* LVNI_PLAN_ENDLESS: without length */
    int64_t batch;     /* samples of a step; 0: `ratio` for each of the effective batch */
    double ratio;      /* 0: 1 */
    const char *order; /* for people: "shuffled" */
    lvni_plan_rule rule;
} lvni_plan_stream;

/* From an epoch on (from 0) so many batches make a step. */
enum { LVNI_PLAN_FACTORS = 32 };
typedef struct lvni_plan_factor {
    int64_t epoch;
    int factor;
    int64_t steps, last_step; /* of such an epoch; of a plan, not of options */
} lvni_plan_factor;

/* What the user gives and the machine has; 0 everywhere means "not given". */
typedef struct lvni_plan_options {
    int64_t n_samples; /* of the training set, at least 1; LVNI_PLAN_ENDLESS: without length */
    /* steps of an epoch, whatever the training set has; 0: one pass through it, or as streams
     * decide, and without a length max_steps */
    int64_t steps_per_epoch;
    int64_t max_steps; /* 0: no limit */
    /* fewer steps of an epoch than it has: those of so many batches (of which a step has
     * accumulate_grad_batches), or this part of all; 0: not given */
    int64_t limit_batches;
    double limit_part;
    const lvni_plan_stream *stream;
    int n_streams;
    /* E of the run that is resumed: with it the two batch sizes are not looked at */
    int64_t effective_batch;
    int64_t batch_size; /* samples over all devices, before accumulation */
    int64_t batch_size_per_device;
    int accumulate_grad_batches; /* A, 1 */
    /* instead of A, by ascending epochs (1 before the first): A is the largest; an epoch is then
     * one pass, and its E in proportion to its factor, S the same throughout */
    const lvni_plan_factor *factor;
    int n_factors;
    int devices; /* W, 1 */
    int rank;    /* 0 .. W-1: whose view of the plan */
    /* of ranks with shares of their own (lvni_plan_balance): where the micro-batches of each begin,
     * and the end; W + 1, borrowed, as long as the plan. NULL: equal shares */
    const int *bounds;
    /* each rank has a stage of the model and works on all micro-batches (stage_order.h) */
    bool staged;
    int micro_batches; /* S, W x A */
    /* consecutive micro-batches that may see each other's values: S, or S / A when coupled */
    int group;
    lvni_core_pins pins; /* by the rules of their table */
    /* micro-batches of a rank at once: min(its micro-batches, its cores) */
    int lanes;
    int cores;               /* that this rank may use, 1 */
    int cores_all;           /* of all ranks, cores x W */
    int64_t eval_batch_size; /* max(largest micro-batch, min(64, E / A)) */
    bool drop_last;          /* leave out the short last step of an epoch */
    bool group_all;          /* coupled micro-batches see all S unless `group` is given */
    int group_nodes;         /* with group_all: those of one of so many nodes, S / nodes; 0: 1 */
    /* the module looks at other micro-batches of its group, which must then run at once */
    bool coupled;
} lvni_plan_options;

typedef struct lvni_plan {
    int64_t n_samples;
    int64_t effective_batch;                    /* E */
    int micro_batches;                          /* S */
    int devices;                                /* W */
    int accumulate;                             /* A */
    int n_factors;                              /* 0: A in every epoch */
    lvni_plan_factor factor[LVNI_PLAN_FACTORS]; /* from epoch 0 on */
    int filled; /* micro-batches of a step that have samples: S; lvni_plan_in_epoch */
    int rank;
    const int *bounds; /* of the options */
    bool staged;
    int micro_batch_begin, micro_batch_end; /* micro-batches of this rank: [begin, end) */
    int group, lanes, cores;
    lvni_core_pins pins;
    bool coupled;      /* the micro-batches of a group run at once */
    bool lanes_raised; /* above the request or the cores, for the sake of a group */
    bool drop_last;
    int64_t steps_per_epoch;
    int64_t last_step; /* samples of an epoch's last step, E or fewer */
    /* steps_per_epoch is not a pass through the training set: pass follows pass, every step has E
     */
    bool cycles;
    int n_streams;
    lvni_plan_stream stream[LVNI_PLAN_STREAMS]; /* with their batches; names are borrowed */
    int64_t eval_batch_size;
    int sub_trees; /* of gradients that this rank owes the others; 1 when W = 1 */
    /* gradient sets that wait for their neighbour; each active lane needs one more
     * (lvni_plan_sets) */
    int waiting_sets;
} lvni_plan;

/* `start` inclusive, `count` samples (or micro-batches, or chunks). */
typedef struct lvni_plan_range {
    int64_t start, count;
} lvni_plan_range;

/* LVN_ERR_USAGE with one sentence: what does not fit and the nearest that does. *out is untouched
 * on failure. */
lvn_status lvni_plan_make(const lvni_plan_options *options, lvni_plan *out);

/* The plan as it is in an epoch (from 0): the same unless A goes by epochs. Then effective_batch,
 * accumulate, steps_per_epoch and last_step are those of the epoch, and of its micro-batches some
 * have no samples: those that have some are as large as ever, and dealt evenly over all. The plan
 * itself has the numbers of the largest factor. */
lvni_plan lvni_plan_in_epoch(const lvni_plan *plan, int64_t epoch);
int64_t lvni_plan_steps_of(const lvni_plan *plan, int64_t epoch);
/* Steps of the epochs before this one; INT64_MAX: more than that. */
int64_t lvni_plan_steps_before(const lvni_plan *plan, int64_t epoch);
/* Batches of an epoch's first `step` steps: A each, in its last step perhaps fewer. */
int64_t lvni_plan_batches_before(const lvni_plan *plan, int64_t step);
/* Where a run is `steps` steps after the beginning of epoch *epoch: the epoch and its step. */
int64_t lvni_plan_locate(const lvni_plan *plan, int64_t steps, int64_t *epoch);
/* "0:1,2:4"; nothing unless A goes by epochs. */
void lvni_plan_print_factors(const lvni_plan *plan, lvni_core_str *out);

/* Positions (in the order of the epoch) of step 0 .. steps_per_epoch-1, and of one micro-batch of
 * it (count may be 0). */
lvni_plan_range lvni_plan_step(const lvni_plan *plan, int64_t step);
lvni_plan_range lvni_plan_micro_batch(const lvni_plan *plan, int64_t step, int micro_batch);
int64_t lvni_plan_largest_micro_batch(const lvni_plan *plan); /* samples */
/* The same of stream i: positions in a pass (LVNI_PLAN_ONCE), else from the run's beginning on.
 * `step` of the epoch, `before` steps before it in the run. */
lvni_plan_range lvni_plan_stream_micro_batch(const lvni_plan *plan, int i, int64_t step,
                                             int64_t before, int micro_batch);
int64_t lvni_plan_stream_largest(const lvni_plan *plan, int i); /* samples of a micro-batch */
int lvni_plan_sets(const lvni_plan *plan);                      /* gradient sets of this rank */
/* The micro-batches from `first` on that this rank works on at once. Coupled: whole groups, as far
 * as they are this rank's, and not two that others share. */
lvni_plan_range lvni_plan_wave(const lvni_plan *plan, int first);
/* The ranks that have micro-batches of group `group`: a contiguous run. */
lvni_plan_range lvni_plan_ranks_of_group(const lvni_plan *plan, int group);
/* Some group lies on several ranks. */
bool lvni_plan_shares_groups(const lvni_plan *plan);
/* Micro-batches of a rank: a contiguous run. */
lvni_plan_range lvni_plan_micro_batches_of(const lvni_plan *plan, int rank);
int lvni_plan_most_micro_batches(const lvni_plan *plan); /* of any rank */
/* Shares for ranks of different speed, cost[rank] being what a micro-batch takes there: at least
 * one each, and the slowest ends as early as it can. bounds: ranks + 1, of the options above. */
void lvni_plan_balance(const double *cost, int ranks, int micro_batches, int *bounds);

/* Evaluation of n samples in index order: how many chunks, the samples of one, the chunks of a rank
 * (contiguous). */
int64_t lvni_plan_eval_chunks(const lvni_plan *plan, int64_t n);
lvni_plan_range lvni_plan_eval_chunk(const lvni_plan *plan, int64_t n, int64_t chunk);
lvni_plan_range lvni_plan_eval_chunks_of(const lvni_plan *plan, int64_t n, int rank);
/* Chunks of a limited evaluation of n samples: `batches` of them (0: all), or this part (0: all). 0
 * chunks: the part is smaller than one. */
int64_t lvni_plan_eval_limit(const lvni_plan *plan, int64_t n, int64_t batches, double part);
/* The same dealt like cards: the first chunk of a rank and how many it gets, each `devices` behind
 * the one before. */
lvni_plan_range lvni_plan_eval_turns_of(const lvni_plan *plan, int64_t n, int rank);

/* Lines for people, without a newline at the end. The batch and who owns which micro-batches; the
 * epoch and the work of this rank (several lines); what reproduces the run elsewhere. */
void lvni_plan_describe_batch(const lvni_plan *plan, lvni_core_str *out);
/* A line for each stream; nothing without streams. */
void lvni_plan_describe_streams(const lvni_plan *plan, lvni_core_str *out);
void lvni_plan_describe_work(const lvni_plan *plan, lvni_core_str *out);
void lvni_plan_describe_pin(const lvni_plan *plan, lvni_core_str *out);
/* All of them, each with its newline. */
lvn_status lvni_plan_print(const lvni_plan *plan, FILE *file);

#endif
