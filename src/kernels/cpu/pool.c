/* Max pooling over (N, H, W, C) images and its gradient. Called through the op table (kernels.h). */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

typedef struct pool_job {
    lvni_pool_image g;
    const void *x; /* of the gradient: dy */
    void *y;       /* of the gradient: dx */
    lvni_elem elem;
    size_t size; /* of an element */
    uint8_t *place_out;
    const uint8_t *place;
} pool_job;

static lvni_pool_image describe(const lvni_pool_attr *attr, const lvn_tensor *large, const lvn_tensor *small)
{
    lvni_pool_image g = {.in_h = large->shape[1], .in_w = large->shape[2], .out_h = small->shape[1],
                         .out_w = small->shape[2], .c = large->shape[3]};
    for (int i = 0; i < 2; i++) {
        g.kernel[i] = attr->kernel[i];
        g.stride[i] = attr->stride[i];
        g.padding[i] = attr->padding[i];
    }
    return g;
}

/* An item is one row of one result image. */
static void pool_range(const void *job, int64_t begin, int64_t end)
{
    const pool_job *j = job;
    const lvni_pool_image *g = &j->g;
    for (int64_t i = begin; i < end; i++) {
        const int64_t image = i / g->out_h, out = i * g->out_w * g->c;
        lvni_cpu_isa()->pool_row[j->elem](g, lvni_elem_at(j->x, image * g->in_h * g->in_w * g->c, j->size), i % g->out_h,
                                          lvni_elem_to(j->y, out, j->size), j->place_out == NULL ? NULL : j->place_out + out);
    }
}

lvn_status lvni_cpu_max_pool2d(const lvni_args *args)
{
    const lvn_tensor *x = args->in[0];
    const pool_job job = {.g = describe(args->attr, x, args->out[0]), .x = x->data, .y = args->out[0]->data,
                          .elem = lvni_elem_of(x->dtype), .size = lvn_dtype_size(x->dtype),
                          .place_out = args->out[1] == NULL ? NULL : args->out[1]->data};
    const int64_t work = job.g.out_w * job.g.c * job.g.kernel[0] * job.g.kernel[1];
    lvni_par(x->shape[0] * job.g.out_h, 1, work, pool_range, &job);
    return LVN_OK;
}

/* An item is one row of one image's gradient. */
static void pool_grad_range(const void *job, int64_t begin, int64_t end)
{
    const pool_job *j = job;
    const lvni_pool_image *g = &j->g;
    const int64_t out = g->out_h * g->out_w * g->c;
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i / g->in_h * out;
        lvni_cpu_isa()->pool_grad_row[j->elem](g, lvni_elem_at(j->x, at, j->size), j->place + at, i % g->in_h,
                                               lvni_elem_to(j->y, i * g->in_w * g->c, j->size));
    }
}

lvn_status lvni_cpu_max_pool2d_grad(const lvni_args *args)
{
    const lvn_tensor *dy = args->in[0];
    const pool_job job = {.g = describe(args->attr, args->out[0], dy), .x = dy->data, .y = args->out[0]->data,
                          .elem = lvni_elem_of(dy->dtype), .size = lvn_dtype_size(dy->dtype), .place = args->in[1]->data};
    lvni_par(dy->shape[0] * job.g.in_h, 1, job.g.in_w * job.g.c, pool_grad_range, &job);
    return LVN_OK;
}
