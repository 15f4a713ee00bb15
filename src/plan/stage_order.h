/* In which order the stages of a model work through the micro-batches of a step (strategy=balance):
 * one forward pass, one backward pass, so that stage i keeps at most (stages - i) tapes; and what
 * that takes, played through before a run begins. Pure. */
#ifndef LEVIN_PLAN_STAGE_ORDER_H
#define LEVIN_PLAN_STAGE_ORDER_H

#include "plan/stage_cut.h"

typedef struct lvni_plan_stage_order {
    int stages, micro_batches;
    bool forwards_first; /* all of a step, before its first backward pass */
} lvni_plan_stage_order;

/* Of stage number `stage`: its k-th piece of work, k from 0 to 2 x micro_batches - 1. */
typedef struct lvni_plan_stage_work {
    int micro_batch;
    bool backward;
} lvni_plan_stage_work;
lvni_plan_stage_work lvni_plan_stage_work_at(const lvni_plan_stage_order *order, int stage, int k);
/* The most tapes that the stage keeps at once. */
int lvni_plan_stage_tapes(const lvni_plan_stage_order *order, int stage);

/* What a micro-batch takes on each stage, and how long its tensors are on their way from a stage to
 * the next one, and their gradients back. */
typedef struct lvni_plan_stage_times {
    double forward, backward, passing;
} lvni_plan_stage_times;

typedef struct lvni_plan_stage_play {
    double step;                 /* from the first piece of work to the end of the last */
    double bubble;               /* part of all stages' time in which they wait, 0 to 1 */
    int tapes[LVNI_PLAN_STAGES]; /* the most at once */
} lvni_plan_stage_play;

/* The k-th piece of work of a stage, as lvni_plan_stage_work_at. */
typedef lvni_plan_stage_work (*lvni_plan_stage_work_of)(const lvni_plan_stage_order *order,
                                                        int stage, int k);
/* A step of stages that work as `work` has it. LVN_ERR_INTERNAL: they wait for each other for ever;
 * the message names a stage and what it waits for. */
lvn_status lvni_plan_stage_play_through(const lvni_plan_stage_order *order,
                                        lvni_plan_stage_work_of work,
                                        const lvni_plan_stage_times *times,
                                        lvni_plan_stage_play *out);

#endif
