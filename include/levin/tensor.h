/* Tensors: dense, row-major, reference counted. Images are (N, H, W, C).
 *
 * A tensor made by an op belongs to the innermost open scope of its thread and goes with it;
 * lvn_keep() hands it to the caller, who then calls lvn_release(). A tensor made by
 * lvn_tensor_create() belongs to the caller from the start. Tensors are thread-compatible; the
 * reference count is atomic. */
#ifndef LEVIN_TENSOR_H
#define LEVIN_TENSOR_H

#include <levin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lvn_dtype {
    LVN_F32,
    LVN_F64,
    LVN_I64,
    LVN_I32,
    LVN_U8,
    LVN_BOOL,
    LVN_BF16,
    LVN_F16,
    LVN_DTYPE_COUNT
} lvn_dtype;

enum { LVN_MAX_NDIM = 6 };

typedef struct lvn_tensor lvn_tensor;

LVN_API size_t lvn_dtype_size(lvn_dtype dtype);      /* bytes of one element */
LVN_API const char *lvn_dtype_name(lvn_dtype dtype); /* "f32" */

/* A shape in place: lvn_tensor_create(LVN_F32, LVN_SHAPE(64, 3)) instead of (LVN_F32, 2, sizes). C
 * only; a scalar is 0, NULL. */
#define LVN_SHAPE(...)                                                                             \
    (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])             \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* A new tensor of zeros in host memory, owned by the caller. NULL (and the thread's error) on
 * failure. */
LVN_API lvn_tensor *lvn_tensor_create(lvn_dtype dtype, int ndim, const int64_t *shape);
/* A tensor over memory of the caller (64-byte aligned for speed), borrowed for the tensor's
 * life. */
LVN_API lvn_tensor *lvn_tensor_wrap(void *data, lvn_dtype dtype, int ndim, const int64_t *shape);

LVN_API lvn_tensor *lvn_retain(lvn_tensor *t); /* returns t; NULL is fine */
LVN_API void lvn_release(lvn_tensor *t);       /* NULL is fine */

/* Of NULL (a failed op) all of these give nothing: LVN_DTYPE_COUNT, 0, NULL. */
LVN_API lvn_dtype lvn_tensor_dtype(const lvn_tensor *t);
LVN_API int lvn_ndim(const lvn_tensor *t);
/* negative axes count from the end; 0 when out of range */
LVN_API int64_t lvn_size(const lvn_tensor *t, int axis);
LVN_API int64_t lvn_numel(const lvn_tensor *t);
/* row-major; of a tensor on a device an address that the host cannot touch (levin/device.h) */
LVN_API void *lvn_data(lvn_tensor *t);
LVN_API const void *lvn_const_data(const lvn_tensor *t);
/* The value of a tensor with one element, waiting for it; NaN for NULL or several elements. */
LVN_API double lvn_item(const lvn_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
