/* Optimizers over a model's flat weights; schedules are in schedule.h. The trainer calls
 * lvni_optim_step once per phase of an optimizer step with the phase's merged gradient; it is made
 * of calls over ranges of the flat buffers, for those who own a part of them. How each parameter is
 * treated comes from groups.h; averages of weights are at the end. */
#ifndef LEVIN_OPTIM_OPTIM_H
#define LEVIN_OPTIM_OPTIM_H

#include "optim/groups.h"
#include "optim/schedule.h"

#include <levin/backend.h>

typedef enum lvni_optim_kind {
    LVNI_OPTIM_SGD,
    LVNI_OPTIM_ADAM,
    LVNI_OPTIM_ADAMW,
    LVNI_OPTIM_LARS,
    LVNI_OPTIM_RMSPROP,
    LVNI_OPTIM_LION,
    LVNI_OPTIM_LAMB,
    LVNI_OPTIM_ADAFACTOR
} lvni_optim_kind;

/* sgd, adam, adamw: the formulas of PyTorch (kernels/flat.h); adam's decay joins the gradient,
 * adamw's does not. lars: You, Gitman & Ginsburg 2017, "Large batch training of convolutional
 * networks". Each tensor of two or more axes that has decay has its own rate: trust = coefficient
 * |w| / (|g| + weight_decay |w| + eps); then sgd with the gradient trust * (g + weight_decay w).
 * Where one of the norms is 0 it is sgd without decay. Tensors without decay and those of one axis
 * (biases, norms) are sgd's. The learning rate stands outside of the momentum buffer, as in sgd;
 * with a rate that does not change this is the paper's algorithm 1. rmsprop: PyTorch's; decay joins
 * the gradient. lion: Chen et al. 2023, "Symbolic discovery of optimization algorithms". lamb: You
 * et al. 2020, "Large batch optimization for deep learning: training BERT in 76 minutes"; the ratio
 * is |w| / |u| of the step u, decay in it, and 1 for tensors of one axis, and where a norm is 0.
 * adafactor: PyTorch's, after Shazeer & Stern 2018, "Adafactor: adaptive learning rates with
 * sublinear memory cost". The average of squares of a matrix is a product of one of its rows and
 * one of its columns, that of a tensor of one axis is as in adam. A tensor of more axes is as many
 * matrices of the last two as PyTorch has them: of a convolution (O, I, H, W) those of H x W, which
 * keep H + W numbers each. */
typedef struct lvni_optim_options {
    lvni_optim_kind kind;
    double lr, weight_decay;
    double momentum;             /* sgd, lars, rmsprop */
    double dampening;            /* sgd, lars */
    bool nesterov;               /* sgd, lars */
    double trust_coefficient;    /* lars */
    double beta1, beta2;         /* adam, adamw, lion, lamb */
    double eps;                  /* all but sgd and lion; adafactor: the first of two */
    double alpha;                /* rmsprop */
    bool centered;               /* rmsprop */
    double beta2_decay, eps2, d; /* adafactor */
    double clip_value;           /* each element of the gradient is clamped to it; 0: none.
                                  * Not lars, adafactor */
} lvni_optim_options;

enum { LVNI_OPTIM_SLOTS = 3 };

/* A part of the flat buffers: elements from `begin`, a border of LVNI_FLAT_BLOCK, to `end`, another
 * one or the buffers' end. */
typedef struct lvni_optim_range {
    int64_t begin, end;
} lvni_optim_range;

/* Neighbours with equal settings: one call of the kernel. */
typedef struct lvni_optim_run {
    int64_t begin, n;              /* elements */
    double lr_scale, weight_decay; /* of the next update */
    lvni_optim_hold hold;          /* both are 0 at first */
    lvni_optim_own own;
    bool trusted;      /* has a rate of its own (lars, lamb): one tensor alone */
    int64_t first_sum; /* trusted: its first one of the partial sums */
    int64_t ratio;     /* and its trust ratio */
    int phase;
    int first, count; /* its parameters */
} lvni_optim_run;

/* What schedules and phases have in place of the options'. */
typedef struct lvni_optim_decays {
    double momentum, beta1, beta2;
} lvni_optim_decays;

/* State as flat buffers: sgd, lars: momentum (when it is not 0); adam, adamw, lamb: exp_avg,
 * exp_avg_sq; rmsprop: square_avg, grad_avg (centered), momentum_buffer (when it is not 0); lion:
 * exp_avg; adafactor: row_var and col_var of matrices, variance of one axis. */
typedef struct lvni_optim {
    lvni_optim_options options[LVNI_PHASES];
    int64_t n;            /* elements of the whole flat buffers */
    lvni_optim_range own; /* whose state is here */
    lvni_optim_run *run;  /* ascending; what is frozen has none */
    int n_runs;
    int n_slots;            /* the most that a phase has */
    int slots[LVNI_PHASES]; /* of each phase */
    /* as in checkpoints: optim/<slot>/<parameter> */
    const char *slot_name[LVNI_PHASES][LVNI_OPTIM_SLOTS];
    /* of element i of the flat buffers at slot[k][i - own.begin], or with `state` of parameter i
     * from slot[k][state[k * n_parameters + i]] on, -1: it has none */
    float *slot[LVNI_OPTIM_SLOTS];
    int64_t slot_length[LVNI_OPTIM_SLOTS]; /* 0: no memory */
    int64_t *state;                        /* adafactor in some phase, else NULL */
    lvni_optim_decays decays[LVNI_PHASES]; /* of each phase; the options' at first */
    int64_t steps[LVNI_PHASES];            /* updates done, of each phase's parameters */
    /* A parameter without a gradient is left alone, as in PyTorch: no decay, no moments, and its
     * own count of updates stays. */
    int n_parameters;
    lvni_optim_parameter *parameter; /* where they lie; without names */
    bool *idle; /* of each parameter: the next step has no gradient of it; the caller's, false */
    /* of each parameter: of its phase's updates, those that it had no gradient in */
    int64_t *missed;
    /* In memory of the device: kernels take learning rate, scale and corrections of a step from
     * here, and update if it is set. NULL: they take those that they are given. The caller's. */
    const lvn_step_block *block;
    double *partial; /* one sum of squares per block */
    /* With trust ratios, where the state lies, else NULL. Sums of squares: for each tensor with a
     * ratio, and each block of the flat buffers that it touches, one of its weights, and n_sums
     * further on one of its gradient (lamb: of its step). Then the ratios. Adafactor: scratch
     * memory of the largest tensor. */
    double *sums, *ratio;
    int64_t n_sums;
    size_t trust_bytes; /* of both */
} lvni_optim;

/* Elements of buffer k of the state, 0 .. LVNI_OPTIM_SLOTS - 1, of flat buffers of n elements; 0:
 * there is none. */
int64_t lvni_optim_slot_length(const lvni_optim_options options[LVNI_PHASES], int64_t n,
                               const lvni_optim_parameter *parameter, int n_parameters, int k);
/* Bytes of sums, trust ratios and scratch memory beside it. */
size_t lvni_optim_trust_bytes(const lvni_optim_options options[LVNI_PHASES],
                              const lvni_optim_parameter *parameter, int n_parameters);
/* LVN_ERR_USAGE: a group has numbers of its own that the optimizer of its phase has not. */
lvn_status lvni_optim_check_groups(const lvni_optim_options options[LVNI_PHASES],
                                   const lvni_optim_parameter *parameter, int n_parameters);
/* LVN_ERR_UNSUPPORTED: the state of one of them cannot be divided over ranks. */
lvn_status lvni_optim_check_parts(const lvni_optim_options options[LVNI_PHASES],
                                  const lvni_optim_parameter *parameter, int n_parameters);
/* As optim.name has it: "adamw". */
const char *lvni_optim_name(lvni_optim_kind kind);
/* n: length of the flat buffers; own: the range whose state is kept, NULL: all; parameters, all of
 * them, in ascending order, borrowed for the call. LVN_ERR_UNSUPPORTED: adafactor with a range. */
lvn_status lvni_optim_create(const lvni_optim_options *options, int64_t n,
                             const lvni_optim_range *own, const lvni_optim_parameter *parameter,
                             int n_parameters, lvni_optim **out);
/* The same with an optimizer for each phase. */
lvn_status lvni_optim_create_phases(const lvni_optim_options options[LVNI_PHASES], int64_t n,
                                    const lvni_optim_range *own,
                                    const lvni_optim_parameter *parameter, int n_parameters,
                                    lvni_optim **out);
void lvni_optim_destroy(lvni_optim *optim);
/* Where parameter i has its state in slot k of an optimizer that owns all, and of which shape; -1:
 * it has none there. One with a range has the state `own.begin` elements further to the front. */
int64_t lvni_optim_state(const lvni_optim *optim, int k, int i, int64_t shape[LVN_MAX_NDIM]);
/* w -= update(g * grad_scale) for the parameters of the phase; lr is the step's learning rate. For
 * an optimizer that owns all: the four calls below over one range. */
void lvni_optim_step(lvni_optim *optim, int phase, float *w, const float *g, double lr,
                     double grad_scale);

/* ---- the same in ranges: the bits do not depend on where the buffers are cut ----
 * First all ranges are prepared, then, with all of them in `sums`, come the trust ratios, the steps
 * of all ranges, and the end, on all who own a range. w and g begin at the range's first element.
 * Adafactor's ranges cut no tensor. */

/* Sets the entries of `sums` that lie in the range; each lies in one block of the flat buffers, and
 * so in one range. Others are as they were. Nothing for an optimizer
 * without trust ratios; lamb's moments move here. */
void lvni_optim_prepare(lvni_optim *optim, int phase, lvni_optim_range range, float *w,
                        const float *g, double grad_scale);
/* The trust ratios of the phase's tensors, before the first of its ranges is stepped. Overwrites
 * the sums. */
void lvni_optim_trust(lvni_optim *optim, int phase, double grad_scale);
/* lvni_optim_step for a range of what the optimizer owns. */
void lvni_optim_step_range(lvni_optim *optim, int phase, lvni_optim_range range, float *w,
                           const float *g, double lr, double grad_scale);
/* Its momentum is `momentum`, not beta1. */
bool lvni_optim_moves_momentum(const lvni_optim_options *options);
/* It has beta1 and beta2. */
bool lvni_optim_has_betas(const lvni_optim_options *options);
/* Before a phase's update: the step, by which groups are held, against the schedule of the phase; a
 * factor on all weight decay, unless a device has it (`block`); and momentum of sgd, lars and
 * rmsprop, beta1 of the others; 0: as created. */
void lvni_optim_set_rates(lvni_optim *optim, int phase, int64_t step,
                          const lvni_optim_schedule *schedule, double decay, double momentum);
/* Counts the update of the phase. */
void lvni_optim_end_step(lvni_optim *optim, int phase);
/* Takes back a count, of a step whose parameters without gradient were these: the device did not
 * update. */
void lvni_optim_undo_step(lvni_optim *optim, int phase, const bool *idle);
/* The part of a device's decision about an update of its phase that is the optimizer's. */
void lvni_optim_describe(const lvni_optim *optim, lvn_step_decision *decision);

/* 2-norm of the gradient, from the sums of squares of its blocks (lvni_kernels_flat_block_sumsq):
 * added in the tree over block numbers, in f64. Not finite when a gradient is not. Those outside of
 * [begin, end), which lies on borders of blocks (or at n), count as zeros and are not read. */
double lvni_optim_norm_of_blocks(lvni_optim *optim, const double *sums, int64_t begin, int64_t end);

/* ---- the exponential moving average of a model's weights and buffers, over flat memory ----
 * Updated by the trainer after each step; validation and exported models take the averaged
 * values. */

typedef struct lvni_optim_ema_options {
    double decay; /* 0: no average */
    bool warmup;
} lvni_optim_ema_options;

typedef struct lvni_optim_ema {
    lvni_optim_ema_options options;
    int64_t n;
    int64_t averaged; /* of n; the rest is what it is in x. Its maker may set it to less than n */
    float *value;
} lvni_optim_ema;

/* The average of n values begins as a copy of x. */
lvn_status lvni_optim_ema_create(const lvni_optim_ema_options *options, const float *x, int64_t n,
                                 lvni_optim_ema **out);
void lvni_optim_ema_destroy(lvni_optim_ema *ema);
/* average += (1 - d) (x - average), with d = decay after t earlier updates; the first update (t =
 * 0) copies x. With warm-up d is at most (1 + t) / (10 + t), so that the average of a short run is
 * not one of its first weights. With a step of a block where the average lies d is the step's, and
 * nothing happens unless it updated. */
void lvni_optim_ema_update(lvni_optim_ema *ema, const float *x, int64_t t,
                           const lvn_step_average *step);

#endif
