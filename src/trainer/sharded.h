/* strategy=sharded: each rank updates its own part of the flat weights, one contiguous range
 * (lvni_plan_exchange_part), and has the optimizer's state of that part alone. Whole are weights,
 * buffers and averages. Called by update.c in a step, and by save.c to have the state in one place.
 * For this folder. */
#ifndef LEVIN_TRAINER_SHARDED_H
#define LEVIN_TRAINER_SHARDED_H

#include "dist/comm.h"
#include "nn/model.h"
#include "optim/optim.h"

typedef struct lvni_trainer_sharded lvni_trainer_sharded;

/* Of buffers of n elements in host memory; the communicator is borrowed. Not a collective. */
lvn_status lvni_trainer_sharded_create(lvni_dist_comm *comm, int64_t n, lvni_trainer_sharded **out);
void lvni_trainer_sharded_destroy(lvni_trainer_sharded *sharded); /* NULL is fine */
/* The part of n elements that `rank` of `world` updates. */
lvni_optim_range lvni_trainer_sharded_part(int64_t n, int world, int rank);
uint64_t lvni_trainer_sharded_bytes(int64_t n, int world); /* of its memory */

/* Elements [begin, end) of a buffer that lies in parts, `own` being this rank's part: a collective.
 * whole: n elements, or NULL: this rank takes part and does not need them. */
lvn_status lvni_trainer_sharded_gather(lvni_trainer_sharded *sharded, const float *own,
                                       int64_t begin, int64_t end, float *whole);
/* The update of a phase by all ranks: of this one's part of the weights, from its part of the
 * gradient, then of all weights that the phase trains. The bits are those of lvni_optim_step. */
lvn_status lvni_trainer_sharded_step(lvni_trainer_sharded *sharded, lvni_optim *optim, int phase,
                                     lvni_nn_model *model, const float *gradient, double lr,
                                     double scale);

#endif
