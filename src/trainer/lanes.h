/* Lanes: micro-batches of a rank that run at once, each on a thread with an engine context and an
 * OpenMP team of its own. Lane 0 is the caller's thread. For speed alone: bits do not depend on how
 * many there are. */
#ifndef LEVIN_TRAINER_LANES_H
#define LEVIN_TRAINER_LANES_H

#include "tensor/ctx.h"

typedef struct lvni_trainer_lanes lvni_trainer_lanes;
/* Work on one lane; the thread's context is the lane's. */
typedef lvn_status (*lvni_trainer_lane_work)(void *user, int lane);

/* n lanes of `team` threads each, whose kernels read `pins` (NULL: the smallest). They compute on
 * the device that the caller's context does. */
lvn_status lvni_trainer_lanes_create(int n, int team, const lvni_core_pins *pins,
                                     lvni_trainer_lanes **out);
/* Of lane i, for the calling thread to compute in while the lane does not. */
lvni_tensor_ctx *lvni_trainer_lanes_context(const lvni_trainer_lanes *lanes, int i);
void lvni_trainer_lanes_destroy(lvni_trainer_lanes *lanes);
/* The type of products on all lanes (lvni_tensor_ctx.low); f32 at first. Not while they run. */
void lvni_trainer_lanes_set_low(lvni_trainer_lanes *lanes, lvn_dtype low);
int lvni_trainer_lanes_count(const lvni_trainer_lanes *lanes);
/* Run work(user, 0 .. n - 1), lane i on its thread, and wait for all. The status and error of the
 * lowest lane that failed. */
lvn_status lvni_trainer_lanes_run(lvni_trainer_lanes *lanes, int n, lvni_trainer_lane_work work,
                                  void *user);

/* What a device reports of the lanes' work and of the calling thread's, the lanes' first; all of
 * them run again. */
lvn_status lvni_trainer_lanes_take_error(lvni_trainer_lanes *lanes);
/* What they could not submit is submitted again (lvni_tensor_device_forget_error). */
void lvni_trainer_lanes_forget_errors(lvni_trainer_lanes *lanes);
/* There is such an error, as far as is known now. */
bool lvni_trainer_lanes_failed(lvni_trainer_lanes *lanes);

#endif
