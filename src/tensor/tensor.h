/* The inside of a tensor, and the group of a micro-batch: for everything below the public API. */
#ifndef LEVIN_TENSOR_TENSOR_H
#define LEVIN_TENSOR_TENSOR_H

#include "tensor/ctx.h"

#include <levin/tensor.h>
#include <stdatomic.h>

struct lvni_autograd_node;

/* The first member of a tape node: the tensor it made, NULL once that is gone. The link is weak in
 * both directions. */
typedef struct lvni_tensor_node_head {
    lvn_tensor *out;
} lvni_tensor_node_head;

typedef struct lvni_tensor_storage {
    _Atomic int refs;
    void *data;
    size_t bytes;   /* as given by the cache: rounded up */
    bool borrowed;  /* memory that the storage does not own */
    bool on_device; /* taken from a device, which may be closed when the process ends */
    bool for_copy;  /* for the copy stream; kernels of the compute streams read it afterwards */
    /* of borrowed memory: called once, when the storage goes; NULL: nothing */
    void (*release)(void *owner);
    void *owner;
} lvni_tensor_storage;

struct lvn_tensor {
    _Atomic int refs;
    lvn_dtype dtype;
    int ndim;
    bool requires_grad;
    /* it was made by a tape node that is freed by now: the tape of its scope was used up */
    bool past_gone;
    int32_t param; /* index in the model's parameter table, -1 for all others */
    int64_t shape[LVN_MAX_NDIM];
    void *data; /* inside storage; where that is: lvni_tensor_device_of */
    lvni_tensor_storage *storage;
    /* the tape node that made it, NULL for leaves; borrowed from the tape */
    struct lvni_autograd_node *node;
    /* leaves that are not parameters: their gradient after backward; owned */
    lvn_tensor *grad;
    /* unique in the process; a new id means new contents may hide behind an old address */
    uint64_t id;
    /* counted up at each write in place (optimizer); with id the key of reordered copies */
    uint64_t version;
};

/* What a shape rule produces. */
typedef struct lvni_tensor_desc {
    lvn_dtype dtype;
    int ndim;
    int64_t shape[LVN_MAX_NDIM];
} lvni_tensor_desc;

static inline int64_t lvni_tensor_desc_numel(const lvni_tensor_desc *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->ndim; i++) {
        n *= d->shape[i];
    }
    return n;
}

lvni_tensor_desc lvni_tensor_get_desc(const lvn_tensor *t);
bool lvni_tensor_same_shape(const lvn_tensor *a, const lvn_tensor *b);
/* The caller's reference is the only one to the tensor and to its memory, which is the tensor's
 * own. */
bool lvni_tensor_alone(const lvn_tensor *t);
/* "(32, 8, 8, 64)" into out. Returns out. */
const char *lvni_tensor_shape_string(int ndim, const int64_t *shape, char out[96]);

/* Uninitialised memory on the context's device or from its cache; caller owns the reference. NULL
 * on failure. */
lvn_tensor *lvni_tensor_new(const lvni_tensor_desc *desc);
/* NULL: the host */
lvn_tensor *lvni_tensor_new_on(const lvni_tensor_desc *desc, struct lvni_tensor_device *device);
/* On a device, for its copy stream to fill (copies.h). */
lvn_tensor *lvni_tensor_new_for_copy(const lvni_tensor_desc *desc,
                                     struct lvni_tensor_device *device);
/* A copy there, owned by the caller; waits like lvn_to_device. */
lvn_tensor *lvni_tensor_to(const lvn_tensor *t, struct lvni_tensor_device *device);
/* One element of this value, rounded to its type; owned by the caller. */
lvn_tensor *lvni_tensor_number(const lvni_tensor_desc *desc, double value,
                               struct lvni_tensor_device *device);
/* The element of this type at p, in host memory; and the same the other way, rounded. */
double lvni_tensor_number_at(const void *p, lvn_dtype dtype);
void lvni_tensor_number_set(void *p, lvn_dtype dtype, double value);
/* Zeros on the context's device. */
lvn_tensor *lvni_tensor_zeros(lvn_dtype dtype, int ndim, const int64_t *shape);
/* Another shape (same number of elements) over the same storage; caller owns the reference. */
lvn_tensor *lvni_tensor_view(lvn_tensor *t, int ndim, const int64_t *shape);
/* Over memory of `owner`, which lives until release(owner) is called. desc: not checked yet. NULL
 * on failure: then it is not called. */
lvn_tensor *lvni_tensor_wrap_owned(void *data, const lvni_tensor_desc *desc,
                                   void (*release)(void *owner), void *owner);
/* A dense part starting `offset` elements into t's memory. */
lvn_tensor *lvni_tensor_slice(lvn_tensor *t, int64_t offset, const lvni_tensor_desc *desc);

/* bf16 or f16 */
static inline bool lvni_tensor_is_low(lvn_dtype dtype)
{
    return dtype == LVN_BF16 || dtype == LVN_F16;
}

#define LVNI_F32(t) ((float *)(t)->data)
#define LVNI_CF32(t) ((const float *)(t)->data)

/* ---- the group of a micro-batch ----
 * The micro-batches whose values it may see (coupled micro-batches, docs/reproducibility.md). They
 * run at once and gather each other's tensors. The trainer provides it in the contexts
 * (trainer/group_sync.c); ops/op_group.c and ops/op_sync_batch_norm.c use it. */

/* What one micro-batch brought to a group sync. */
typedef struct lvni_tensor_part {
    /* host memory; NULL: it has no samples, or brought nothing */
    const void *data;
    lvni_tensor_desc desc;
    int64_t number; /* that came beside the tensor */
} lvni_tensor_part;

typedef struct lvni_tensor_group lvni_tensor_group;
struct lvni_tensor_group {
    int micro_batches; /* of the group */
    int index;         /* of this one: 0 .. micro-batches - 1 */
    /* Bring `mine` (NULL: nothing) and wait for the others, which must come with the same `what`
     * (static). *parts: `micro_batches` entries, valid until this micro-batch's next call. Fails
     * for all of them when one fails, ends without coming, or comes with something else. */
    lvn_status (*gather)(const lvni_tensor_group *group, const char *what, const lvn_tensor *mine,
                         int64_t number, const lvni_tensor_part **parts);
};

#endif
