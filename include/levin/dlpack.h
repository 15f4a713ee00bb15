/* DLPack: tensors to and from other programs' libraries (NumPy, PyTorch, ...) without a copy.
 * https://dmlc.github.io/dlpack describes the format; the structs below have its layout, so a
 * pointer to DLPack's own DLManagedTensorVersioned or DLManagedTensor may be cast to them.
 *
 *     lvn_tensor *x = lvn_from_dlpack((lvn_dlpack *)theirs);     theirs is levin's now
 *     lvn_dlpack *out = lvn_to_dlpack(x, 0);                     who takes it calls its deleter
 */
#ifndef LEVIN_DLPACK_H
#define LEVIN_DLPACK_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LVN_DLPACK_MAJOR = 1, LVN_DLPACK_MINOR = 0 };

enum {
    LVN_DLPACK_READ_ONLY = 1, /* the memory must not be written */
    LVN_DLPACK_IS_COPIED = 2  /* only who takes it has the memory */
};

typedef struct lvn_dlpack_tensor {
    void *data;
    int32_t device_type, device_id; /* 1: host memory */
    int32_t ndim;
    uint8_t code, bits; /* 0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool */
    uint16_t lanes;     /* 1 */
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major */
    uint64_t byte_offset;
} lvn_dlpack_tensor;

/* DLManagedTensorVersioned */
typedef struct lvn_dlpack {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct lvn_dlpack *self); /* may be NULL */
    uint64_t flags;
    lvn_dlpack_tensor tensor;
} lvn_dlpack;

/* DLManagedTensor, of libraries from before version 1.0 */
typedef struct lvn_dlpack_old {
    lvn_dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct lvn_dlpack_old *self); /* may be NULL */
} lvn_dlpack_old;

/* A tensor over the memory of `from`, owned by the caller; the deleter runs once, when the last
 * reference to the memory goes, on the thread that releases it. Memory that is read-only, not
 * row-major, or not aligned to its elements is copied, and the deleter runs at once. NULL (and the
 * thread's error) on failure, and `from` stays the caller's: LVN_ERR_UNSUPPORTED for memory of
 * devices (other than pinned host memory) and for other versions, LVN_ERR_DTYPE for types that
 * levin does not have, LVN_ERR_INVALID for more than 6 axes. */
LVN_API lvn_tensor *lvn_from_dlpack(lvn_dlpack *from);
LVN_API lvn_tensor *lvn_from_dlpack_old(lvn_dlpack_old *from);
/* The tensor's memory for others, kept until they call the deleter, from any thread. What the
 * tensor itself borrows (lvn_tensor_wrap; the parameters of a trainer) must live as long.
 * flags: 0 or LVN_DLPACK_READ_ONLY. NULL (and the thread's error) on failure:
 * LVN_ERR_UNSUPPORTED for a tensor on a device (lvn_to_device(t, LVN_CPU) copies it). NULL gives
 * NULL. */
LVN_API lvn_dlpack *lvn_to_dlpack(lvn_tensor *t, uint64_t flags);
LVN_API lvn_dlpack_old *lvn_to_dlpack_old(lvn_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
