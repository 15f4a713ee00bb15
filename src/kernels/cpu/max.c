/* max over one axis with the place of the first maximum, and its gradient. A NaN counts as the
 * largest. Called through the op table (kernels.h). */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <string.h>

/* (outer, size, inner) around the reduced axis */
typedef struct max_job {
    int64_t size, inner;
    const float *x; /* of max: input; of the gradient: dy */
    float *y;       /* of max: values; of the gradient: dx */
    int64_t *index_out;
    const int64_t *index;
} max_job;

static void max_range(const void *job, int64_t begin, int64_t end)
{
    const max_job *j = job;
    const lvni_cpu_vec *vec = lvni_cpu_isa();
    if (j->inner == 1) {
        vec->row_max(j->x + begin * j->size, end - begin, j->size, j->y + begin,
                     j->index_out == NULL ? NULL : j->index_out + begin);
        return;
    }
    for (int64_t o = begin; o < end; o++) {
        vec->col_max(j->x + o * j->size * j->inner, j->size, j->inner, j->y + o * j->inner,
                     j->index_out == NULL ? NULL : j->index_out + o * j->inner);
    }
}

static int64_t product(const int64_t *shape, int begin, int end)
{
    int64_t n = 1;
    for (int i = begin; i < end; i++) {
        n *= shape[i];
    }
    return n;
}

lvn_status lvni_cpu_max(const lvn_kernel_args *args)
{
    const lvn_axes_attr *attr = args->attr;
    const lvn_tensor *x = args->in[0];
    const int axis = attr->mask == 0 ? 0 : __builtin_ctz(attr->mask);
    const max_job job = {.size = x->shape[axis],
                         .inner = product(x->shape, axis + 1, x->ndim),
                         .x = LVNI_CF32(x),
                         .y = LVNI_F32(args->out[0]),
                         .index_out = args->out[1] == NULL ? NULL : args->out[1]->data};
    lvni_cpu_par_in(LVNI_FP_EXACT, product(x->shape, 0, axis), 1, job.size * job.inner, max_range,
                    &job);
    return LVN_OK;
}

static void max_grad_range(const void *job, int64_t begin, int64_t end)
{
    const max_job *j = job;
    memset(j->y + begin * j->size * j->inner, 0,
           (size_t)((end - begin) * j->size * j->inner) * sizeof *j->y);
    for (int64_t o = begin; o < end; o++) {
        for (int64_t i = 0; i < j->inner; i++) {
            const int64_t e = o * j->inner + i;
            j->y[(o * j->size + j->index[e]) * j->inner + i] = j->x[e];
        }
    }
}

lvn_status lvni_cpu_max_grad(const lvn_kernel_args *args)
{
    const lvn_shape_attr *attr = args->attr;
    const lvn_tensor *dy = args->in[0];
    int axis = -1;
    for (int i = 0; i < attr->ndim; i++) {
        axis = dy->shape[i] != attr->shape[i] ? i : axis;
    }
    if (axis < 0) { /* the reduced axis has size 1: each element is its own maximum */
        memcpy(args->out[0]->data, dy->data, (size_t)lvn_numel(dy) * sizeof(float));
        return LVN_OK;
    }
    const max_job job = {.size = attr->shape[axis],
                         .inner = product(attr->shape, axis + 1, attr->ndim),
                         .x = LVNI_CF32(dy),
                         .y = LVNI_F32(args->out[0]),
                         .index = args->in[1]->data};
    for (int64_t e = 0; e < lvn_numel(dy); e++) {
        LVN_ARG(job.index[e] >= 0 && job.index[e] < job.size,
                "max_grad: index %lld of element %lld is outside axis %d of size %lld",
                (long long)job.index[e], (long long)e, axis, (long long)job.size);
    }
    lvni_cpu_par(product(attr->shape, 0, axis), 1, job.size * job.inner, max_grad_range, &job);
    return LVN_OK;
}
