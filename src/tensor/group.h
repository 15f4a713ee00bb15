/* The group of a micro-batch: the micro-batches whose values it may see (docs/reproducibility.md:
 * coupled micro-batches). They run at once and synchronise. The caller that runs micro-batches
 * provides it in their contexts (ctx.h; the trainer's is trainer/group_sync.c); ops/op_group.c and
 * ops/op_sync_batch_norm.c use it. */
#ifndef LEVIN_TENSOR_GROUP_H
#define LEVIN_TENSOR_GROUP_H

#include "tensor/tensor.h"

/* What one micro-batch brought to a meeting. */
typedef struct lvni_tensor_part {
    /* host memory; NULL: a micro-batch without samples, or one that brought nothing */
    const void *data;
    lvni_tensor_desc desc;
    int64_t number; /* that came beside the tensor */
} lvni_tensor_part;

typedef struct lvni_tensor_group lvni_tensor_group;
struct lvni_tensor_group {
    int micro_batches; /* of the group */
    int index;         /* of this one: 0 .. micro-batches - 1 */
    /* Bring `mine` (NULL: nothing) and wait for the others, who must come with the same `what`
     * (static). *parts: `micro_batches` entries, valid until this micro-batch's next call. Fails
     * for all of them when one fails, ends without coming, or comes with something else. */
    lvn_status (*meet)(const lvni_tensor_group *group, const char *what, const lvn_tensor *mine,
                       int64_t number, const lvni_tensor_part **parts);
};

#endif
