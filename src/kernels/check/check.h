/* Compares a backend with the truth: every op over its cases, every function of flat buffers over
 * sizes and settings, in the memory of one of its devices. Called by `levin ops check` and tests.
 *
 *   op_cases.c     cases.def as data, inputs
 *   drawn_cases.c  cases drawn at random (drawn.h)
 *   compare.c      how close to ref (tolerance.def)
 *   check_room.c   memory with guards
 *   check_op.c     ops
 *   flat_job.c     memory and numbers for flat buffers
 *   check_flat.c   flat buffers, against their formulas in double precision; in check_step.c those
 *                  that fill in the step block, in check_append.c queues */
#ifndef LEVIN_KERNELS_CHECK_CHECK_H
#define LEVIN_KERNELS_CHECK_CHECK_H

#include "kernels/kernels.h"
#include "tensor/device.h"

typedef struct lvni_check_result {
    int passed[LVN_DTYPE_COUNT]; /* cases, by the type of the inputs; of flat buffers all as f32 */
    int failed;
    int refused;    /* that the backend does not support */
    double worst;   /* largest error, as a part of what is allowed */
    char why[1200]; /* the first that failed */
} lvni_check_result;

/* Every case of the op in each type that its kernel takes. Beside the numbers: results fill their
 * memory and nothing around it, inputs stay, a second run has the same bits, and outputs that may
 * be left out change nothing. Results and scratch memory are full of NaN at first, in the second
 * run of 1e30 (scratch memory of kernels that run on the CPU). NULL: the cpu. All zeros: there is
 * no kernel. */
lvn_status lvni_check_op(lvni_kernels_op op, lvni_tensor_device *device, lvni_check_result *out);

/* The functions of flat buffers by number; NULL: behind the last. */
const char *lvni_check_flat_name(int i);
lvn_status lvni_check_flat(int i, lvni_tensor_device *device, lvni_check_result *out);

/* Memory of a device with bytes around it that must stay. */
typedef struct lvni_check_room {
    lvn_tensor *all;
    size_t before, bytes; /* where the part begins, and its size */
} lvni_check_room;

enum { LVNI_CHECK_GUARD = 256 }; /* bytes on each side */
/* bytes of `host` (NULL: bytes that are NaN), `shift` bytes behind a 256-byte border. */
lvn_status lvni_check_room_make(lvni_tensor_device *device, const void *host, size_t bytes,
                                size_t shift, lvni_check_room *out);
void *lvni_check_room_part(const lvni_check_room *room);
/* To `host`, after the device is done. LVN_ERR_MISMATCH: `what` wrote around it. */
lvn_status lvni_check_room_read(const lvni_check_room *room, const char *what, void *host);
void lvni_check_room_free(lvni_check_room *room);

#endif
