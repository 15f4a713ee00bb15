/* Groups of a convolution, one after the other, as convolutions of their own (conv_product.h). */
#include "kernels/cpu/conv_product.h"

#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"

#include <string.h>

typedef lvn_status (*product)(const lvni_cpu_conv_call *c);

/* Channels of one group between images of all and images of its own. */
typedef struct move_job {
    float *all, *own;
    int64_t channels, n, first; /* of all; of the group, and where they begin */
    bool back;                  /* own to all */
} move_job;

/* An item is a pixel. */
static void move_range(const void *job, int64_t begin, int64_t end)
{
    const move_job *j = job;
    const size_t bytes = (size_t)j->n * sizeof(float);
    for (int64_t p = begin; p < end; p++) {
        float *all = j->all + p * j->channels + j->first, *own = j->own + p * j->n;
        memcpy(j->back ? all : own, j->back ? own : all, bytes);
    }
}

static void move(const lvn_tensor *all, const lvn_tensor *own, int64_t group, bool back)
{
    const int64_t n = own->shape[3];
    const move_job job = {.all = all->data,
                          .own = own->data,
                          .channels = all->shape[3],
                          .n = n,
                          .first = group * n,
                          .back = back};
    lvni_cpu_par(own->shape[0] * own->shape[1] * own->shape[2], 64, n, move_range, &job);
}

static lvn_tensor part_of(const lvn_tensor *t, int axis, int64_t groups, void *data)
{
    lvn_tensor part = {.dtype = LVN_F32, .ndim = t->ndim, .param = -1, .data = data};
    for (int i = 0; i < t->ndim; i++) {
        part.shape[i] = i == axis ? t->shape[i] / groups : t->shape[i];
    }
    return part;
}

typedef enum written { WRITES_Y, WRITES_X, WRITES_W } written;

static lvn_status by_groups(const lvni_cpu_conv_call *c, product run, written what)
{
    const int64_t groups = c->attr->groups, nx = lvn_numel(c->x) / groups,
                  ny = lvn_numel(c->y) / groups;
    lvn_conv_attr attr = *c->attr;
    attr.groups = 1;
    float *room = lvni_cpu_scratch(LVNI_SCRATCH_GROUPS, (size_t)(nx + ny) * sizeof *room);
    if (room == NULL) {
        return lvn_last_error()->code;
    }
    for (int64_t g = 0; g < groups; g++) {
        const lvn_tensor x = part_of(c->x, 3, groups, room),
                         y = part_of(c->y, 3, groups, room + nx);
        lvn_tensor w = part_of(c->w, 0, groups, NULL), b = {.data = NULL};
        w.data = (float *)c->w->data + g * lvn_numel(&w);
        if (c->b != NULL) {
            b = part_of(c->b, 0, groups, NULL);
            b.data = (float *)c->b->data + g * b.shape[0];
        }
        const lvni_cpu_conv_call own = {
            .attr = &attr, .x = &x, .y = &y, .w = &w, .b = c->b != NULL ? &b : NULL};
        if (what != WRITES_X) {
            move(c->x, &x, g, false);
        }
        if (what != WRITES_Y) {
            move(c->y, &y, g, false);
        }
        LVN_TRY(run(&own));
        if (what != WRITES_W) {
            move(what == WRITES_X ? c->x : c->y, what == WRITES_X ? &x : &y, g, true);
        }
    }
    return LVN_OK;
}

lvn_status lvni_cpu_conv_groups_forward(const lvni_cpu_conv_call *c)
{
    return c->attr->groups == 1 ? lvni_cpu_conv_product_forward(c)
                                : by_groups(c, lvni_cpu_conv_product_forward, WRITES_Y);
}

lvn_status lvni_cpu_conv_groups_grad_input(const lvni_cpu_conv_call *c)
{
    return c->attr->groups == 1 ? lvni_cpu_conv_product_grad_input(c)
                                : by_groups(c, lvni_cpu_conv_product_grad_input, WRITES_X);
}

lvn_status lvni_cpu_conv_groups_grad_weight(const lvni_cpu_conv_call *c)
{
    return c->attr->groups == 1
               ? lvni_cpu_conv_product_grad_weight_in_blocks(c)
               : by_groups(c, lvni_cpu_conv_product_grad_weight_in_blocks, WRITES_W);
}
