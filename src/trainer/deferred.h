/* Steps whose results are read one step late: on a device, what a step finds out stays there
 * (levin/backend_step.h: the step block), and the host submits the next step before it looks. Used
 * by the engine for ranks on devices. The loss scale of 16-mixed is on both sides: the host's,
 * which checkpoints and reports have, follows the device's when the step is read. */
#ifndef LEVIN_TRAINER_DEFERRED_H
#define LEVIN_TRAINER_DEFERRED_H

#include "nn/step_metrics.h"
#include "plan/plan.h"
#include "trainer/step_message.h"

#include <levin/backend.h>

struct lvni_tensor_device;
struct lvni_trainer_comm_thread;
struct lvni_trainer_engine;
struct lvni_trainer_step_record;
struct lvni_trainer_step_result;

enum { LVNI_DEFERRED_STEPS = 2 }; /* under way at once */

typedef struct lvni_trainer_deferred {
    struct lvni_tensor_device *device;
    const lvni_plan *plan; /* the engine's */
    int n_phases;
    int64_t first, n; /* micro-batches of this rank */
    int n_parameters;
    int64_t n_sums;
    /* Memory of the device: sums of squares of the gradient; and, copied to the host after each
     * step, the block with the numbers behind it: per phase n losses, n weights as far as modules
     * count them on the device, then of each micro-batch LVNI_METRIC_SLOTS numbers that it
     * logged. */
    double *sums;
    lvn_step_block *block;
    double *numbers;
    double *losses; /* several ranks: of all their micro-batches, then the weights; else NULL */
    size_t bytes;   /* of block and numbers */
    size_t got_sums, got_block;
    struct {
        void *landing;        /* host memory that the device knows */
        void *event;          /* the copy has run */
        lvni_nn_step *part;   /* (n_phases, n): what micro-batches logged, without the values */
        lvni_nn_terms *terms; /* (n_phases, n) */
        bool *idle;           /* (n_phases, n_parameters): as the optimizer had it */
        bool counted[LVN_STEP_PHASES]; /* the optimizer's count has an update of the phase */
        bool weighs;                   /* the device counts the weight of a phase */
        /* several ranks: (n_phases), of all of them, when the communication thread has done `job`
         */
        lvni_nn_step *all;
        uint64_t job; /* the step's last; 0: none */
    } step[LVNI_DEFERRED_STEPS];
    int next;
    int phase; /* that is being submitted */
    /* several ranks: */
    struct lvni_trainer_comm_thread *thread; /* NULL until it has a job */
    lvni_trainer_message message;            /* of that thread */
    bool known;      /* the block has the run's counts of updates, and the loss scale */
    lvn_error error; /* that a submission met, maybe of the step before it */
} lvni_trainer_deferred;

/* Whether a run's steps can be read late: the calling thread's context is the rank's. */
bool lvni_trainer_deferred_possible(void);
/* The sums first: the reduction writes them. */
lvn_status lvni_trainer_deferred_create(struct lvni_trainer_engine *engine,
                                        lvni_trainer_deferred **out);
/* When phases are known. */
lvn_status lvni_trainer_deferred_make_steps(lvni_trainer_deferred *deferred,
                                            struct lvni_trainer_engine *engine);
void lvni_trainer_deferred_destroy(lvni_trainer_deferred *deferred); /* NULL is fine */
/* Bytes on the device of a model of that many blocks, as its allocator rounds them. */
uint64_t lvni_trainer_deferred_bytes(const lvni_plan *plan, int n_phases, int64_t n_sums);

/* ---- a step ---- */

/* Writes what is known of the step into the block. */
lvn_status lvni_trainer_deferred_begin(lvni_trainer_deferred *deferred,
                                       const struct lvni_trainer_engine *engine);
/* Where a micro-batch of the current phase leaves its loss and what it logs. */
double *lvni_trainer_deferred_loss(const lvni_trainer_deferred *deferred, int phase,
                                   int64_t micro_batch);
lvni_nn_terms *lvni_trainer_deferred_terms(const lvni_trainer_deferred *deferred, int phase,
                                           int64_t micro_batch);
/* It ran. */
void lvni_trainer_deferred_note(lvni_trainer_deferred *deferred, int phase, int64_t micro_batch,
                                const lvni_nn_step *step);
/* Lets the device decide about the phase's update (update.c). weight: of the step; NAN: the device
 * adds it up. */
void lvni_trainer_deferred_decide(lvni_trainer_deferred *deferred,
                                  struct lvni_trainer_engine *engine, double weight);
/* The step's last kernel. */
void lvni_trainer_deferred_finish(const lvni_trainer_deferred *deferred);
/* All was submitted: *index names the step until it is read. */
lvn_status lvni_trainer_deferred_end(lvni_trainer_deferred *deferred,
                                     const struct lvni_trainer_engine *engine, int *index);
/* What was counted of the step that is being submitted did not happen: it is submitted again. */
void lvni_trainer_deferred_cancel(lvni_trainer_deferred *deferred,
                                  struct lvni_trainer_engine *engine);
/* Submitting has failed with the thread's error: nothing is under way when this returns it, and the
 * host's counts of updates are as they were before the step. */
lvn_status lvni_trainer_deferred_fail(lvni_trainer_deferred *deferred,
                                      struct lvni_trainer_engine *engine);
/* Waits for the step and writes what it found into the result's phases. LVN_ERR_NON_FINITE, or what
 * failed on the device: nothing of the step and of those after it was updated. */
lvn_status lvni_trainer_deferred_read(lvni_trainer_deferred *deferred,
                                      struct lvni_trainer_engine *engine,
                                      const struct lvni_trainer_step_record *record,
                                      struct lvni_trainer_step_result *result);
/* The host's counts of updates as they were before the step. */
void lvni_trainer_deferred_undo(lvni_trainer_deferred *deferred, struct lvni_trainer_engine *engine,
                                const struct lvni_trainer_step_record *record);
/* After a failure: the device has counted other updates than the steps that were read have. */
bool lvni_trainer_deferred_torn(const lvni_trainer_deferred *deferred,
                                const struct lvni_trainer_engine *engine);

/* ---- several ranks (deferred_ranks.c, called by staged.c) ---- */

/* A phase of a step under way. */
typedef struct lvni_trainer_deferred_place {
    int step, phase;
} lvni_trainer_deferred_place;

/* That is being submitted. */
lvni_trainer_deferred_place lvni_trainer_deferred_here(const lvni_trainer_deferred *deferred);
int64_t
lvni_trainer_deferred_micro_batches(const lvni_trainer_deferred *deferred); /* of all ranks */
/* The most bytes of what a rank sends of a phase: losses, weights, and metrics as a message. */
size_t lvni_trainer_deferred_numbers_room(const lvni_trainer_deferred *deferred);
/* This rank's numbers of the phase on their way to the host. */
lvn_status lvni_trainer_deferred_send_numbers(const lvni_trainer_deferred *deferred,
                                              lvni_trainer_deferred_place place, void *stream);
/* The communication thread: they are there. Writes what the rank sends. */
lvn_status lvni_trainer_deferred_write_numbers(lvni_trainer_deferred *deferred,
                                               lvni_trainer_deferred_place place, void *out,
                                               size_t *bytes);
/* The communication thread, of all ranks in their order. losses: (micro-batches of all ranks),
 * then as many weights. */
lvn_status lvni_trainer_deferred_read_numbers(lvni_trainer_deferred *deferred,
                                              lvni_trainer_deferred_place place, int rank,
                                              const void *message, size_t bytes, double *losses);
/* That job of the thread exchanges the phase's numbers. */
void lvni_trainer_deferred_expect(lvni_trainer_deferred *deferred,
                                  lvni_trainer_deferred_place place,
                                  struct lvni_trainer_comm_thread *thread, uint64_t job);
/* All losses and weights, in memory of lvni_tensor_host_take, on their way to the device. */
lvn_status lvni_trainer_deferred_receive_losses(const lvni_trainer_deferred *deferred, void *stream,
                                                const double *losses);
/* What exchanging the numbers of that step failed with. */
lvn_status lvni_trainer_deferred_exchanged(const lvni_trainer_deferred *deferred, int step);

#endif
