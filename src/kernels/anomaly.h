/* Finds the op that makes a micro-batch's first number that is not finite (detect_anomaly=true).
 * The thread's ops check what they return, and what they were given, which costs a pass over each;
 * without a watch an op costs nothing more. */
#ifndef LEVIN_KERNELS_ANOMALY_H
#define LEVIN_KERNELS_ANOMALY_H

#include "kernels/kernels.h"

typedef struct lvni_kernels_anomaly {
    /* An infinity is an error, too: in a backward pass. In a forward pass it may be meant, as in a
     * mask, and is only kept. */
    bool strict;
    bool found;         /* an op has failed for what the watch found */
    char infinite[160]; /* "exp in head.act": where the first one was made; "": none was */
} lvni_kernels_anomaly;

/* Of the calling thread's ops from here on; NULL: none. Borrowed. Returns the one before. */
lvni_kernels_anomaly *lvni_kernels_anomaly_set(lvni_kernels_anomaly *anomaly);

/* run.c: after an op. LVN_ERR_NON_FINITE names the op, the module that runs, and whether it made
 * the number or was given one. */
lvn_status lvni_kernels_anomaly_check(lvni_kernels_anomaly *anomaly,
                                      const lvni_kernels_op_info *info,
                                      const lvn_kernel_args *args);

#endif
