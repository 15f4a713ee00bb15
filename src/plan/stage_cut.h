/* Where a model is cut into stages (strategy=balance): contiguous runs of its units, one for each
 * device, so that the slowest stage takes as little time as it can and none needs more memory than
 * its device has. Pure: what units cost is measured elsewhere. */
#ifndef LEVIN_PLAN_STAGE_CUT_H
#define LEVIN_PLAN_STAGE_CUT_H

#include <levin/status.h>
#include <stdbool.h>
#include <stdint.h>

/* Beyond LVNI_PLAN_ORDERED unequal devices, stages take them in the order in which they come. */
enum { LVNI_PLAN_STAGES = 64, LVNI_PLAN_UNITS = 4096, LVNI_PLAN_ORDERED = 6 };

/* A unit of a model, of one micro-batch on a device of speed 1. */
typedef struct lvni_plan_unit {
    double work;     /* seconds of forward and backward, or anything in proportion to them */
    double crossing; /* the same of what has to be sent if a stage begins with this unit */
    uint64_t fixed;  /* bytes that are there whatever runs: weights, gradients, optimizer */
    uint64_t input;  /* bytes that a micro-batch keeps beside, where a stage begins with it */
    uint64_t kept;   /* bytes that a micro-batch keeps from its forward to its backward pass */
} lvni_plan_unit;

typedef struct lvni_plan_stage_device {
    double speed;    /* above 0 */
    uint64_t memory; /* bytes; 0: any number */
} lvni_plan_stage_device;

typedef struct lvni_plan_cut_options {
    const lvni_plan_unit *unit;
    int n_units;
    const lvni_plan_stage_device *device;
    int stages; /* and devices */
    int micro_batches;
    /* the forward passes of all micro-batches run before the first backward pass */
    bool forwards_first;
} lvni_plan_cut_options;

typedef struct lvni_plan_cut {
    int stages;
    int begin[LVNI_PLAN_STAGES + 1]; /* first unit of each stage, and the number of units */
    int device[LVNI_PLAN_STAGES];    /* of each stage */
    double most;                     /* what a micro-batch takes on the slowest stage */
} lvni_plan_cut;

/* The cut whose slowest stage is the fastest; of several the one with the earliest borders, and
 * devices in the order in which they come. LVN_ERR_USAGE: no cut fits. */
lvn_status lvni_plan_cut_make(const lvni_plan_cut_options *options, lvni_plan_cut *out);
/* begin[] is given: device and most. LVN_ERR_USAGE: a border is out of order. */
lvn_status lvni_plan_cut_take(const lvni_plan_cut_options *options, lvni_plan_cut *cut);

/* Of units [begin, end) as stage number `stage` on a device. */
double lvni_plan_cut_work(const lvni_plan_cut_options *options, int begin, int end, int device);
uint64_t lvni_plan_cut_bytes(const lvni_plan_cut_options *options, int stage, int begin, int end);

#endif
