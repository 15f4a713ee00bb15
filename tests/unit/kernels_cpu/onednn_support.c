/* See onednn_support.h. */
#include "onednn_support.h"

#include "core/math.h"

#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void fill(lvn_tensor *t, uint64_t seed)
{
    const int64_t n = lvn_numel(t);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t bits = mix(seed * 0x9e3779b97f4a7c15u + (uint64_t)i) >> 40; /* 24 bits */
        const float value = (float)((double)bits / 8388608.0 - 1.0);
        if (t->dtype == LVN_BF16) {
            ((uint16_t *)t->data)[i] = lvni_core_f32_to_bf16(value);
        } else {
            LVNI_F32(t)[i] = value;
        }
    }
}

lvn_dtype support_type = LVN_F32;

static lvn_tensor *filled_as(lvn_dtype dtype, uint64_t seed, int ndim, const int64_t *shape)
{
    lvn_tensor *t = lvn_tensor_create(dtype, ndim, shape);
    if (t != NULL) {
        fill(t, seed);
    }
    return t;
}

lvn_tensor *filled(uint64_t seed, int ndim, const int64_t *shape)
{
    return filled_as(support_type, seed, ndim, shape);
}

conv_data conv_data_make(const conv_case *c)
{
    const int64_t oh = (c->h + 2 * c->padding - c->dilation * (c->k - 1) - 1) / c->stride + 1;
    const int64_t ow = (c->w + 2 * c->padding - c->dilation * (c->k - 1) - 1) / c->stride + 1;
    const int64_t x[] = {c->n, c->h, c->w, c->i}, w[] = {c->o, c->k, c->k, c->i / c->groups},
                  b[] = {c->o}, y[] = {c->n, oh, ow, c->o};
    conv_data d = {.attr = {.stride = {c->stride, c->stride},
                            .padding = {c->padding, c->padding},
                            .dilation = {c->dilation, c->dilation},
                            .groups = c->groups,
                            .in_h = c->h,
                            .in_w = c->w,
                            .kernel = {c->k, c->k}}};
    d.x = filled(1, 4, x);
    d.w = filled_as(LVN_F32, 2, 4, w);
    d.b = filled_as(LVN_F32, 3, 1, b);
    d.dy = filled(4, 4, y);
    d.y = filled(5, 4, y);
    d.dx = filled(6, 4, x);
    d.dw = filled_as(LVN_F32, 7, 4, w);
    d.db = filled_as(LVN_F32, 8, 1, b);
    return d;
}

void conv_data_free(conv_data *d)
{
    lvn_tensor *all[] = {d->x, d->w, d->b, d->dy, d->y, d->dx, d->dw, d->db};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lvn_release(all[i]);
    }
}

uint64_t hash_of(const lvn_tensor *t)
{
    const size_t size = lvn_dtype_size(t->dtype);
    uint64_t h = 14695981039346656037u;
    for (int64_t i = 0; i < lvn_numel(t); i++) {
        uint32_t bits = 0;
        memcpy(&bits, (const char *)t->data + (size_t)i * size, size);
        h = (h ^ bits) * 1099511628211u;
        h ^= h >> 32;
    }
    return h;
}

static lvn_status with_teams(lvn_kernel kernel, const lvn_kernel_args *args, int team,
                             int wgrad_threads)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const int before[2] = {ctx->team, ctx->pins.wgrad_threads};
    ctx->team = team;
    ctx->pins.wgrad_threads = wgrad_threads;
    const lvn_status s = kernel(args);
    ctx->team = before[0];
    ctx->pins.wgrad_threads = before[1];
    return s;
}

lvn_status run_forward(conv_data *d, int team, bool bias)
{
    const lvn_kernel_args args = {
        .in = {d->x, d->w, bias ? d->b : NULL}, .out = {d->y}, .attr = &d->attr};
    return with_teams(lvni_cpu_conv2d, &args, team, 1);
}

lvn_status run_grad_input(conv_data *d, int team)
{
    const lvn_kernel_args args = {.in = {d->dy, d->w}, .out = {d->dx}, .attr = &d->attr};
    return with_teams(lvni_cpu_conv2d_grad_input, &args, team, 1);
}

lvn_status run_forward_fixed(conv_data *d, int team, int wgrad_threads)
{
    const lvn_kernel_args args = {.in = {d->x, d->w, d->b}, .out = {d->y}, .attr = &d->attr};
    return with_teams(lvni_cpu_conv2d, &args, team, wgrad_threads);
}

lvn_status run_grad_input_fixed(conv_data *d, int team, int wgrad_threads)
{
    const lvn_kernel_args args = {.in = {d->dy, d->w}, .out = {d->dx}, .attr = &d->attr};
    return with_teams(lvni_cpu_conv2d_grad_input, &args, team, wgrad_threads);
}

lvn_status run_grad_weight(conv_data *d, int team, int wgrad_threads)
{
    const lvn_kernel_args args = {.in = {d->dy, d->x}, .out = {d->dw, d->db}, .attr = &d->attr};
    return with_teams(lvni_cpu_conv2d_grad_weight, &args, team, wgrad_threads);
}

lvn_status run_matmul(lvn_tensor *a, lvn_tensor *b, lvn_tensor *y, bool trans_a, bool trans_b,
                      int team, int wgrad_threads)
{
    const lvn_matmul_attr attr = {.trans_a = trans_a, .trans_b = trans_b};
    const lvn_kernel_args args = {.in = {a, b}, .out = {y}, .attr = &attr};
    return with_teams(lvni_cpu_matmul, &args, team, wgrad_threads);
}
