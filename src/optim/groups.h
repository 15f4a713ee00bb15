/* How each parameter is treated: learning rate, decay, frozen or not, and its phase, from patterns
 * over names. Called by the trainer's maker with the model's parameters; read by optim.c. */
#ifndef LEVIN_OPTIM_GROUPS_H
#define LEVIN_OPTIM_GROUPS_H

#include "optim/schedule.h"

#include <levin/tensor.h>

/* What a group has in place of its optimizer's; numbers without their flag are 0. */
typedef struct lvni_optim_own {
    bool has_momentum, has_beta1, has_beta2;
    double momentum, beta1, beta2;
} lvni_optim_own;

/* One parameter in the flat buffers. Between it and the next one lie zeros. */
typedef struct lvni_optim_parameter {
    const char *name; /* borrowed: "layer1.conv1.weight" */
    int64_t begin, n; /* elements */
    int ndim;
    int64_t shape[LVN_MAX_NDIM];
    int row_axis;    /* of its matrices, whose columns are the next axis; read with several axes */
    double lr_scale; /* factors on the run's learning rate and weight decay */
    double decay_scale;
    bool frozen;  /* no gradient, no decay, no update */
    int64_t thaw; /* the same in steps before this one */
    /* Rate and decay are 0 at first, while momentum and moments follow the gradient; the rate may
     * then grow to the run's. */
    lvni_optim_hold hold;
    bool norm; /* weight or bias of a normalisation layer */
    int block; /* of the network, in the order of its parameters */
    int phase; /* of the step, in which it is updated */
    lvni_optim_own own;
} lvni_optim_parameter;

/* Which parameters have weight decay. */
typedef enum lvni_optim_decay_of {
    LVNI_DECAY_ALL,
    LVNI_DECAY_MATRICES,      /* not tensors of one axis: biases, and weight and bias of norms */
    LVNI_DECAY_WEIGHTS,       /* nor tokens, positions, layer scales, by their names */
    LVNI_DECAY_NOT_NORM_BIAS, /* all but those of norms, and names that end in "bias" */
    LVNI_DECAY_NOT_NORM_BIAS_SCALE /* nor layer scales */
} lvni_optim_decay_of;

/* A pattern names parameters, or modules and thereby all parameters below them: "head" is
 * "head.weight" and "head.bias". '*' stands for any characters (dots, too), '?' for one. "backbone"
 * is all but the last layer, or the model's module of this name. */
typedef struct lvni_optim_rules {
    lvni_optim_decay_of decay_of;
    const char *const *freeze; /* patterns */
    size_t n_freeze;
    /* "pattern=factor"; of several that match a parameter the last one counts */
    const char *const *lr_scale;
    size_t n_lr_scale;
    /* "pattern:lr=1e-4:weight_decay=0.05": instead of lr and weight_decay, which are the run's, and
     * of momentum, beta1 and beta2 of the optimizer; of several that match a parameter the last one
     * counts for each of them */
    const char *const *groups;
    size_t n_groups;
    double lr, weight_decay;
    /* a factor on the rate for each block behind the parameter's, within the module `backbone`
     * where there is one; 0: 1 */
    double layer_decay;
    const char *const *freeze_until; /* "pattern=1000" steps, or "pattern=5epochs" */
    size_t n_freeze_until;
    /* the same: rate and decay are 0 up to then; with ":0.1:1.5" behind it the rate is then 0.1 of
     * the run's, times 1.5 in each step or epoch that follows, up to the run's */
    const char *const *lr_zero_until;
    size_t n_lr_zero_until;
    const char *held_by; /* what was given in its place, "key=VALUE"; NULL: itself */
    int64_t steps_per_epoch;
} lvni_optim_rules;

/* Sets lr_scale, decay_scale, frozen, thaw, hold and own of n parameters, of which it reads `block`
 * and `norm`.
 * LVN_ERR_USAGE: a pattern without a parameter (with the nearest name), a number that cannot be
 * one, or nothing is left to train. */
lvn_status lvni_optim_rules_apply(const lvni_optim_rules *rules, lvni_optim_parameter *parameter,
                                  int n);
/* Row i of lr_zero_until, and its pattern. */
enum { LVNI_OPTIM_PATTERN = 256 };
lvn_status lvni_optim_rules_hold(const lvni_optim_rules *rules, size_t i,
                                 char pattern[LVNI_OPTIM_PATTERN], lvni_optim_hold *out);
/* The phases of a step: for each the patterns of what it trains, separated by commas ("critic",
 * "encoder,decoder"), then NULL. NULL itself: one phase of everything. */
enum { LVNI_PHASES = 8 };
int lvni_optim_count_phases(const char *const *phases);
/* Sets `phase` of n parameters, after the rules. LVN_ERR_USAGE: too many phases, a pattern without
 * a parameter, a parameter in no phase or in two, a phase in which everything is frozen. */
lvn_status lvni_optim_phases_apply(const char *const *phases, lvni_optim_parameter *parameter,
                                   int n);
/* The first phase from `from` on that names this parameter or buffer; -1: none, or there are no
 * phases. */
int lvni_optim_find_phase(const char *const *phases, int from, const char *name);
/* Does the pattern name this parameter? */
bool lvni_optim_pattern_matches(const char *pattern, const char *name);

#endif
