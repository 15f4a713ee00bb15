/* The group of a shard: the shards whose values it may see (the law, design.md 2: coupled shards).
 * They run at once and meet. Who runs shards provides it in their contexts (ctx.h; the trainer's is
 * trainer/meeting.c); ops/op_shard.c and ops/op_group_norm.c use it. */
#ifndef LEVIN_TENSOR_GROUP_H
#define LEVIN_TENSOR_GROUP_H

#include "tensor/tensor.h"

/* What one shard brought to a meeting. */
typedef struct lvni_part {
    const void *data; /* host memory; NULL: a shard without samples, or one that brought nothing */
    lvni_desc desc;
    int64_t number; /* that came beside the tensor */
} lvni_part;

typedef struct lvni_group lvni_group;
struct lvni_group {
    int shards; /* of the group */
    int index;  /* of this one: 0 .. shards - 1 */
    /* Bring `mine` (NULL: nothing) and wait for the others, who must come with the same `what`
     * (static). *parts: `shards` entries, valid until this shard's next call. Fails for all of them
     * when one fails, ends without coming, or comes with something else. */
    lvn_status (*meet)(const lvni_group *group, const char *what, const lvn_tensor *mine,
                       int64_t number, const lvni_part **parts);
};

#endif
