/* Boxes of memory from one tensor to another: concat and crop. Called through the op table
 * (kernels.h). */
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <string.h>

/* A box: `size` elements per axis, the last axis contiguous on both sides. */
typedef struct box_job {
    int ndim;                                                         /* of the walk over rows */
    int64_t size[LVN_MAX_NDIM], from[LVN_MAX_NDIM], to[LVN_MAX_NDIM]; /* steps in bytes */
    size_t row;                                                       /* bytes copied at once */
    const char *x;
    char *y;
} box_job;

static void rows_range(const void *job, int64_t begin, int64_t end)
{
    const box_job *j = job;
    if (j->ndim == 1) { /* images side by side in their channels, for one */
        for (int64_t item = begin; item < end; item++) {
            memcpy(j->y + item * j->to[0], j->x + item * j->from[0], j->row);
        }
        return;
    }
    for (int64_t item = begin; item < end; item++) {
        const char *x = j->x;
        char *y = j->y;
        int64_t rest = item;
        for (int i = j->ndim - 1; i >= 0; i--) {
            const int64_t at = rest % j->size[i];
            rest /= j->size[i];
            x += at * j->from[i];
            y += at * j->to[i];
        }
        memcpy(y, x, j->row);
    }
}

/* Copies the box of shape `size` at offset_x of x to offset_y of y. */
static void copy_box(const lvn_tensor *x, const int64_t *offset_x, lvn_tensor *y,
                     const int64_t *offset_y, const int64_t *size)
{
    const size_t bytes = lvn_dtype_size(x->dtype);
    box_job j = {.row = bytes, .x = x->data, .y = y->data};
    int64_t step_x = (int64_t)bytes, step_y = (int64_t)bytes, rows = 1;
    bool whole = true; /* everything behind axis i is one run on both sides */
    for (int i = x->ndim - 1; i >= 0; i--) {
        j.x += offset_x[i] * step_x;
        j.y += offset_y[i] * step_y;
        if (whole) {
            j.row *= (size_t)size[i];
        } else if (j.ndim > 0 && step_x == j.from[0] * j.size[0] && step_y == j.to[0] * j.size[0]) {
            j.size[0] *= size[i]; /* rows go on as evenly from this axis to the one behind it */
            rows *= size[i];
        } else { /* filled from the back: coordinates run fastest in the last place */
            memmove(j.size + 1, j.size, (size_t)j.ndim * sizeof *j.size);
            memmove(j.from + 1, j.from, (size_t)j.ndim * sizeof *j.from);
            memmove(j.to + 1, j.to, (size_t)j.ndim * sizeof *j.to);
            j.size[0] = size[i];
            j.from[0] = step_x;
            j.to[0] = step_y;
            j.ndim++;
            rows *= size[i];
        }
        whole = whole && size[i] == x->shape[i] && size[i] == y->shape[i];
        step_x *= x->shape[i];
        step_y *= y->shape[i];
    }
    if (j.row > 0) {
        lvni_cpu_par(rows, 1, (int64_t)(j.row / bytes), rows_range, &j);
    }
}

lvn_status lvni_cpu_concat(const lvn_kernel_args *args)
{
    const int axis = ((const lvn_axis_attr *)args->attr)->axis;
    const int64_t zero[LVN_MAX_NDIM] = {0};
    int64_t at[LVN_MAX_NDIM] = {0};
    for (int i = 0; i < LVN_KERNEL_INPUTS && args->in[i] != NULL; i++) {
        copy_box(args->in[i], zero, args->out[0], at, args->in[i]->shape);
        at[axis] += args->in[i]->shape[axis];
    }
    return LVN_OK;
}

lvn_status lvni_cpu_crop(const lvn_kernel_args *args)
{
    const lvn_box_attr *box = args->attr;
    const int64_t zero[LVN_MAX_NDIM] = {0};
    copy_box(args->in[0], box->start, args->out[0], zero, box->size);
    return LVN_OK;
}
