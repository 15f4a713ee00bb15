/* The units of a model that stages are made of (strategy=balance): calls of lvn_forward, in the
 * order of a dry run, with what each costs; and the cut into stages. */
#ifndef LEVIN_TRAINER_UNITS_H
#define LEVIN_TRAINER_UNITS_H

#include "autograd/placing.h"
#include "core/str.h"
#include "nn/model.h"
#include "plan/stage_order.h"

typedef struct lvni_trainer_unit {
    const char *path; /* of its first module; the model's */
    double flops;     /* of the forward pass of a micro-batch */
    uint64_t input;   /* bytes of what it is called with */
    uint64_t kept;    /* bytes that it keeps for its backward pass */
    int64_t parameters;
} lvni_trainer_unit;

typedef struct lvni_trainer_units lvni_trainer_units;
struct lvni_trainer_units {
    int n;
    lvni_trainer_unit *unit;
    lvni_plan_unit *cost; /* the same for plan/stage_cut.h */
    /* the modules that are in one: where a stage may begin, and what is called again later */
    int n_modules;
    struct lvni_trainer_unit_module {
        const char *path;
        int unit;
    } * module;
    lvni_plan_cut cut;
    lvni_plan_stage_play play; /* a step of it, in seconds per floating-point operation */

    /* while it is recorded: */
    struct lvni_trainer_unit_event *event;
    int n_events, room;
    bool failed; /* memory is out */
};

void lvni_trainer_units_free(lvni_trainer_units *units);

/* Around the forward pass of a dry run in the calling context; the model's parameters are n. */
lvn_status lvni_trainer_units_record(lvni_trainer_units *units, lvni_autograd_passing *passing,
                                     int n_parameters);
/* What was recorded becomes units: children of the root, and of those that take over a part of
 * 1 / (4 x stages) of the model their children. */
lvn_status lvni_trainer_units_end(lvni_trainer_units *units, const lvni_nn_model *model,
                                  int stages);

typedef struct lvni_trainer_cut_options {
    int stages, micro_batches;
    const uint64_t *memory; /* of each stage, for activations; 0: any number */
    /* balance.cuts: paths of the units with which stages 1, 2, ... begin; n 0: chosen here */
    const char *const *begins;
    size_t n;
} lvni_trainer_cut_options;
/* LVN_ERR_USAGE. */
lvn_status lvni_trainer_units_cut(lvni_trainer_units *units,
                                  const lvni_trainer_cut_options *options);
/* The stage of the unit that this module is; -1: it is none. */
int lvni_trainer_units_stage(const lvni_trainer_units *units, const char *path);
/* Bytes of activations that the stage keeps at most. */
uint64_t lvni_trainer_units_kept(const lvni_trainer_units *units, int stage, int micro_batches);
/* A line for each stage, and one about the step; without a newline at the end. */
void lvni_trainer_units_print(const lvni_trainer_units *units, int micro_batches,
                              lvni_core_str *out);

#endif
