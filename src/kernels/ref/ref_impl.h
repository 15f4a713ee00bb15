/* Shared by the ref kernels: f64 data of tensors. The kernels of this folder are the truth that
 * others are compared with: plain loops in double precision, one after the other, written to be
 * obviously right. */
#ifndef LEVIN_KERNELS_REF_REF_IMPL_H
#define LEVIN_KERNELS_REF_REF_IMPL_H

#include "kernels/kernels_decl.h"

static inline const double *lvni_ref_in(const lvn_kernel_args *args, int i)
{
    return args->in[i]->data;
}

static inline double *lvni_ref_out(const lvn_kernel_args *args, int i)
{
    return args->out[i]->data;
}

/* NULL for a bias that is not given, or an output that is not requested. */
static inline const double *lvni_ref_optional_in(const lvn_kernel_args *args, int i)
{
    return args->in[i] == NULL ? NULL : args->in[i]->data;
}

static inline double *lvni_ref_optional_out(const lvn_kernel_args *args, int i)
{
    return args->out[i] == NULL ? NULL : args->out[i]->data;
}

/* A shape seen as (outer, size, inner) around an axis. */
typedef struct lvni_ref_around {
    int64_t outer, size, inner;
} lvni_ref_around;

static inline lvni_ref_around lvni_ref_split(int ndim, const int64_t *shape, int axis)
{
    lvni_ref_around a = {1, shape[axis], 1};
    for (int i = 0; i < ndim; i++) {
        a.outer *= i < axis ? shape[i] : 1;
        a.inner *= i > axis ? shape[i] : 1;
    }
    return a;
}

/* All axes but the last one, and its size. */
typedef struct lvni_ref_rows {
    int64_t n, k;
} lvni_ref_rows;

static inline lvni_ref_rows lvni_ref_rows_of(const lvn_tensor *x)
{
    lvni_ref_rows r = {1, x->shape[x->ndim - 1]};
    for (int i = 0; i < x->ndim - 1; i++) {
        r.n *= x->shape[i];
    }
    return r;
}

/* Coordinates of element e of a row-major tensor. */
static inline void lvni_ref_coordinates(int64_t e, const lvn_tensor *t, int64_t at[LVN_MAX_NDIM])
{
    for (int i = t->ndim - 1; i >= 0; i--) {
        at[i] = e % t->shape[i];
        e /= t->shape[i];
    }
}

/* The element of `small` that broadcasting shows at coordinates `at` of a tensor with `ndim`
 * axes. */
static inline int64_t lvni_ref_broadcast_index(const lvn_tensor *small, int ndim, const int64_t *at)
{
    int64_t e = 0;
    for (int i = 0; i < small->ndim; i++) {
        const int64_t c = small->shape[i] == 1 ? 0 : at[ndim - small->ndim + i];
        e = e * small->shape[i] + c;
    }
    return e;
}

#endif
