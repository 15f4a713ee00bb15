/* Average pooling and resizing of (N, H, W, C) images, and their gradients: linear maps along the
 * height, then along the width. Called through the op table (kernels.h). The gradient gathers per
 * input pixel, so teams change nothing. */
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/taps.h"
#include "kernels/kernels_decl.h"
#include "tensor/device.h"

typedef struct resample_job {
    lvni_cpu_taps rows, columns;
    int64_t images, in_h, in_w, c; /* of x */
    lvni_cpu_elem elem;
    size_t size; /* of an element */
    const void *x;
    void *y;
    float *mixed; /* a row of in_w pixels per slot */
    int64_t slots;
} resample_job;

/* Row oh of an image: its rows of x mixed into one (unless it is one of them, in f32), then that
 * one's columns. */
static void resample_row(const resample_job *j, const lvni_cpu_vec *v, const void *x, int64_t oh,
                         float *mixed, void *y)
{
    const lvni_cpu_taps *t = &j->rows;
    const int64_t width = j->in_w * j->c, taps = t->start[oh + 1] - t->start[oh];
    const float *w = t->weight + t->start[oh];
    const void *row = lvni_cpu_elem_at(x, (taps == 0 ? 0 : t->first[oh]) * width, j->size);
    if (taps != 1 || w[0] != 1.0f || j->elem != LVNI_ELEM_F32) {
        v->mix[j->elem](row, width, w, taps, mixed, width);
        row = mixed;
    }
    v->mix_row[j->elem](&j->columns, row, j->c, y);
}

/* An item is a slot: a run of rows of the result, with a row of its own to mix in. */
static void resample_range(const void *job, int64_t begin, int64_t end)
{
    const resample_job *j = job;
    const int64_t out_h = j->rows.n, rows = j->images * out_h, in = j->in_h * j->in_w * j->c,
                  out = j->columns.n * j->c;
    for (int64_t s = begin; s < end; s++) {
        for (int64_t r = rows * s / j->slots; r < rows * (s + 1) / j->slots; r++) {
            resample_row(j, lvni_cpu_isa(), lvni_cpu_elem_at(j->x, r / out_h * in, j->size),
                         r % out_h, j->mixed + s * j->in_w * j->c,
                         lvni_cpu_elem_to(j->y, r * out, j->size));
        }
    }
}

lvn_status lvni_cpu_resample2d(const lvn_kernel_args *args)
{
    const lvn_resample_attr *attr = args->attr;
    const lvn_tensor *x = args->in[0], *y = args->out[0];
    const lvn_tensor *from = attr->transposed ? y : x, *to = attr->transposed ? x : y;
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const int64_t rows = y->shape[0] * y->shape[1];
    if (ctx == NULL || lvn_numel(y) == 0) {
        return ctx == NULL ? lvn_last_error()->code : LVN_OK;
    }
    const int64_t slots = ctx->team < rows ? ctx->team : rows, width = x->shape[2] * x->shape[3];
    const lvni_cpu_taps_axis height_axis = {attr, 0, from->shape[1], to->shape[1]},
                             width_axis = {attr, 1, from->shape[2], to->shape[2]};
    const size_t height_bytes = lvni_cpu_taps_bytes(&height_axis),
                 width_bytes = lvni_cpu_taps_bytes(&width_axis);
    char *memory = lvni_cpu_scratch(LVNI_SCRATCH_OWN, height_bytes + width_bytes +
                                                          (size_t)(slots * width) * sizeof(float));
    if (memory == NULL || lvni_tensor_device_dry_run()) {
        return memory == NULL ? lvn_last_error()->code : LVN_OK;
    }
    const resample_job job = {.rows = lvni_cpu_taps_make(&height_axis, memory),
                              .columns = lvni_cpu_taps_make(&width_axis, memory + height_bytes),
                              .images = x->shape[0],
                              .in_h = x->shape[1],
                              .in_w = x->shape[2],
                              .c = x->shape[3],
                              .elem = lvni_cpu_elem_of(x->dtype),
                              .size = lvn_dtype_size(x->dtype),
                              .x = x->data,
                              .y = args->out[0]->data,
                              .mixed = (float *)(void *)(memory + height_bytes + width_bytes),
                              .slots = slots};
    lvni_cpu_par(slots, 1, lvn_numel(y) / slots * 4, resample_range, &job);
    return LVN_OK;
}
