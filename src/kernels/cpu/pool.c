/* Max pooling over (N, H, W, C) images and its gradient, which gathers: a pixel adds up what the
 * windows over it send, in their order. Called through the op table (kernels.h). */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

typedef struct pool_job {
    lvni_cpu_pool_image g;
    const void *x; /* of the gradient: dy */
    void *y;       /* of the gradient: dx */
    lvni_cpu_elem elem;
    size_t size; /* of an element */
    uint8_t *place_out;
    const uint8_t *place;
} pool_job;

static lvni_cpu_pool_image describe(const lvn_pool_attr *attr, const lvn_tensor *large,
                                    const lvn_tensor *small)
{
    lvni_cpu_pool_image g = {.in_h = large->shape[1],
                             .in_w = large->shape[2],
                             .out_h = small->shape[1],
                             .out_w = small->shape[2],
                             .c = large->shape[3]};
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
    const lvni_cpu_pool_image *g = &j->g;
    for (int64_t i = begin; i < end; i++) {
        const int64_t image = i / g->out_h, out = i * g->out_w * g->c;
        lvni_cpu_isa()->pool_row[j->elem](
            g, lvni_cpu_elem_at(j->x, image * g->in_h * g->in_w * g->c, j->size), i % g->out_h,
            lvni_cpu_elem_to(j->y, out, j->size), j->place_out == NULL ? NULL : j->place_out + out);
    }
}

lvn_status lvni_cpu_max_pool2d(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0];
    const pool_job job = {.g = describe(args->attr, x, args->out[0]),
                          .x = x->data,
                          .y = args->out[0]->data,
                          .elem = lvni_cpu_elem_of(x->dtype),
                          .size = lvn_dtype_size(x->dtype),
                          .place_out = args->out[1] == NULL ? NULL : args->out[1]->data};
    const int64_t work = job.g.out_w * job.g.c * job.g.kernel[0] * job.g.kernel[1];
    lvni_cpu_par(x->shape[0] * job.g.out_h, 1, work, pool_range, &job);
    return LVN_OK;
}

/* ---- gradient ---- */

/* Windows [first, last) along an axis lie over a pixel; it is tap `tap` of the first, `step` less
 * of each further one. */
typedef struct covering {
    int64_t first, last;
    int tap, step;
} covering;

static covering windows_over(const lvni_cpu_pool_image *g, int axis, int64_t pixel)
{
    const int64_t at = pixel + g->padding[axis], stride = g->stride[axis],
                  before = at - g->kernel[axis] + 1;
    const int64_t n = axis == 0 ? g->out_h : g->out_w, end = at / stride + 1;
    covering w = {.first = before > 0 ? lvni_cpu_div_up(before, stride) : 0,
                  .last = end < n ? end : n,
                  .step = (int)stride};
    w.tap = (int)(at - w.first * stride);
    return w;
}

static void lay_windows(const lvni_cpu_pool_image *g, const covering *down, const covering *across,
                        lvni_cpu_pool_over *over)
{
    over->n = 0;
    for (int64_t oh = down->first; oh < down->last; oh++) {
        const int row_tap = (down->tap - (int)(oh - down->first) * down->step) * g->kernel[1];
        for (int64_t ow = across->first; ow < across->last; ow++) {
            over->at[over->n] = (oh * g->out_w + ow) * g->c;
            over->tap[over->n++] = row_tap + across->tap - (int)(ow - across->first) * across->step;
        }
    }
}

static bool tiles(const lvni_cpu_pool_image *g)
{
    return g->padding[0] == 0 && g->padding[1] == 0 && g->stride[0] == g->kernel[0] &&
           g->stride[1] == g->kernel[1] && g->out_h * g->kernel[0] == g->in_h &&
           g->out_w * g->kernel[1] == g->in_w;
}

/* An item is one row of one image's gradient. */
static void pool_grad_range(const void *job, int64_t begin, int64_t end)
{
    const pool_job *j = job;
    const lvni_cpu_pool_image *g = &j->g;
    lvni_cpu_pool_over over;
    over.tile = tiles(g);
    for (int64_t i = begin; i < end; i++) {
        const int64_t image = i / g->in_h * g->out_h * g->out_w * g->c;
        const void *dy = lvni_cpu_elem_at(j->x, image, j->size);
        const covering down = windows_over(g, 0, i % g->in_h);
        for (int64_t w = 0; w < g->in_w; w++) {
            const covering across = windows_over(g, 1, w);
            lay_windows(g, &down, &across, &over);
            lvni_cpu_isa()->pool_pixel_grad[j->elem](
                &over, g->c, dy, j->place + image,
                lvni_cpu_elem_to(j->y, (i * g->in_w + w) * g->c, j->size));
        }
    }
}

lvn_status lvni_cpu_max_pool2d_grad(const lvn_kernel_args *args)
{
    const lvn_tensor *dy = args->in[0];
    const pool_job job = {.g = describe(args->attr, args->out[0], dy),
                          .x = dy->data,
                          .y = args->out[0]->data,
                          .elem = lvni_cpu_elem_of(dy->dtype),
                          .size = lvn_dtype_size(dy->dtype),
                          .place = args->in[1]->data};
    lvni_cpu_par(dy->shape[0] * job.g.in_h, 1, job.g.in_w * job.g.c, pool_grad_range, &job);
    return LVN_OK;
}
