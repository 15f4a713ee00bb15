/* See onednn_support.h. */
#include "onednn_support.h"

#include "core/math.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int start_kernels(void **state)
{
    (void)state;
    const lvn_status s = lvni_cpu_start();
    printf("%s\n", s == LVN_OK ? lvni_cpu_describe() : lvn_last_error()->message);
    if (s == LVN_ERR_USAGE) {
        exit(77);
    }
    return s == LVN_OK ? 0 : -1;
}

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

void fill_bytes(lvn_tensor *t, int byte)
{
    memset(t->data, byte, (size_t)lvn_numel(t) * lvn_dtype_size(t->dtype));
}

static double number(const lvn_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case LVN_BF16: return (double)lvni_core_bf16_to_f32(((const uint16_t *)t->data)[i]);
    case LVN_F64: return ((const double *)t->data)[i];
    default: return (double)LVNI_CF32(t)[i];
    }
}

static lvn_tensor *in_double(const lvn_tensor *t)
{
    lvn_tensor *d = lvn_tensor_create(LVN_F64, t->ndim, t->shape);
    for (int64_t i = 0; d != NULL && i < lvn_numel(t); i++) {
        ((double *)d->data)[i] = number(t, i);
    }
    return d;
}

/* terms: that make one number; their products are below 1, and about a third. */
static double worst(const lvn_tensor *have, const lvn_tensor *want, double terms, bool low)
{
    double most = 0;
    for (int64_t i = 0; i < lvn_numel(have); i++) {
        const double allowed = (low ? 0.005 : 2e-5) * (1 + sqrt(terms) + fabs(number(want, i)));
        const double error = fabs(number(have, i) - number(want, i)) / allowed;
        most = error <= most ? most : error < 1e30 ? error : 1e30; /* NaN, too */
    }
    return most;
}

double error_of(const conv_data *d, const lvn_tensor *which)
{
    lvn_tensor *x = in_double(d->x), *w = in_double(d->w), *dy = in_double(d->dy),
               *out = in_double(which);
    lvn_kernel_args args = {.in = {x, w}, .out = {out}, .attr = &d->attr};
    lvn_kernel reference = lvni_ref_conv2d;
    double terms = (double)(d->w->shape[1] * d->w->shape[2] * d->w->shape[3]);
    if (which == d->dx) {
        reference = lvni_ref_conv2d_grad_input;
        args.in[0] = dy;
        terms = terms / (double)d->w->shape[3] * (double)d->w->shape[0];
    } else if (which == d->dw) {
        reference = lvni_ref_conv2d_grad_weight;
        args.in[0] = dy;
        args.in[1] = x;
        terms = (double)lvn_numel(d->dy) / (double)d->w->shape[0];
    }
    const double error =
        reference(&args) == LVN_OK ? worst(which, out, terms, d->x->dtype == LVN_BF16) : 1e30;
    lvn_release(x);
    lvn_release(w);
    lvn_release(dy);
    lvn_release(out);
    return error;
}

double error_of_product(const lvn_tensor *a, const lvn_tensor *b, const lvn_tensor *y, bool trans_a,
                        bool trans_b)
{
    const lvn_matmul_attr attr = {.trans_a = trans_a, .trans_b = trans_b};
    lvn_tensor *p = in_double(a), *q = in_double(b), *out = in_double(y);
    const lvn_kernel_args args = {.in = {p, q}, .out = {out}, .attr = &attr};
    const double terms = (double)a->shape[trans_a ? 0 : 1];
    const double error =
        lvni_ref_matmul(&args) == LVN_OK ? worst(y, out, terms, a->dtype == LVN_BF16) : 1e30;
    lvn_release(p);
    lvn_release(q);
    lvn_release(out);
    return error;
}

uint64_t hash_of(const lvn_tensor *t)
{
    return XXH3_64bits(t->data, (size_t)lvn_numel(t) * lvn_dtype_size(t->dtype));
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
    const lvn_kernel_args args = {.in = {d->x, d->w}, .out = {d->y}, .attr = &d->attr};
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
