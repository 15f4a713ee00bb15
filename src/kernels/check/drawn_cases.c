/* Draws shapes (drawn.h). */
#include "kernels/check/drawn.h"

#include "core/rng.h"
#include "core/str.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A linear congruential generator (Knuth's MMIX), its upper bits. */
int lvni_check_draw_below(lvni_check_generator *d, int n)
{
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((d->state >> 33) % (uint64_t)n);
}

#define BELOW(n) lvni_check_draw_below(d, (n))

/* ---- convolutions ---- */

static int channels(lvni_check_generator *d)
{
    static const int usual[] = {3, 16, 32, 48, 64, 96, 128, 256, 512, 1024};
    return BELOW(3) == 0 ? 1 + BELOW(67) : usual[BELOW(10)];
}

static lvni_check_conv any_conv(lvni_check_generator *d)
{
    static const int kernels[] = {1, 1, 2, 3, 3, 3, 4, 5, 7};
    lvni_check_conv c = {.groups = 1};
    c.n = 1 + BELOW(8);
    c.h = 1 + BELOW(BELOW(3) == 0 ? 64 : 20);
    c.w = 1 + BELOW(d->narrow ? 10 : BELOW(3) == 0 ? 64 : 20);
    c.i = channels(d);
    c.o = channels(d);
    c.k = kernels[BELOW(9)];
    c.stride = d->narrow ? 1 + BELOW(3) : 1 + BELOW(5) / 3;
    c.dilation = 1 + BELOW(6) / 5;
    c.padding = BELOW(4) == 0 ? 0 : c.k / 2 * c.dilation;
    if (BELOW(8) == 0) {
        c.groups = BELOW(2) == 0 ? c.i : 1 + BELOW(8);
        c.i = c.groups == c.i ? c.i : c.groups * (1 + c.i / c.groups);
        c.o = c.groups * (1 + c.o / c.groups / 2);
    }
    return c;
}

/* Most layers of most networks. */
static lvni_check_conv usual_conv(lvni_check_generator *d)
{
    lvni_check_conv c = any_conv(d);
    c.k = 3 + 2 * (BELOW(4) / 2 * BELOW(3));
    c.padding = c.k / 2;
    c.dilation = 1;
    return c;
}

static lvni_check_conv pixels_of_odd_channels(lvni_check_generator *d)
{
    lvni_check_conv c = {.k = 1, .dilation = 1, .groups = 1};
    c.n = 1 + BELOW(2);
    c.h = 1 + BELOW(BELOW(2) == 0 ? 12 : 300);
    c.w = 1 + BELOW(BELOW(2) == 0 ? 12 : 300);
    c.i = 1 + BELOW(20);
    c.o = 1 + BELOW(20);
    c.stride = 1 + BELOW(3) / 2;
    return c;
}

static lvni_check_conv dilated_of_odd_channels(lvni_check_generator *d)
{
    static const int odd[] = {20, 24, 33, 40};
    lvni_check_conv c = any_conv(d);
    c.i = BELOW(2) == 0 ? odd[BELOW(4)] : 1 + BELOW(67);
    c.groups = BELOW(2) == 0 ? c.i : 1;
    c.o = c.groups * (1 + BELOW(40 / c.groups + 2));
    c.dilation = 1 + BELOW(3);
    c.w = 1 + BELOW(64);
    c.padding = c.k / 2 * c.dilation;
    return c;
}

lvni_check_conv lvni_check_draw_conv(lvni_check_generator *d)
{
    for (;;) {
        const int kind = BELOW(d->narrow ? 6 : 3);
        const lvni_check_conv c = kind == 0   ? usual_conv(d)
                                  : kind == 3 ? pixels_of_odd_channels(d)
                                  : kind == 4 ? dilated_of_odd_channels(d)
                                              : any_conv(d);
        const int reach = c.dilation * (c.k - 1) + 1;
        const double work =
            (double)c.n * c.h * c.w / (c.stride * c.stride) * c.o * c.i / c.groups * c.k * c.k;
        if (reach <= c.h + 2 * c.padding && reach <= c.w + 2 * c.padding && work < d->most) {
            return c;
        }
    }
}

/* ---- products ---- */

lvni_check_product lvni_check_draw_product(lvni_check_generator *d)
{
    for (;;) {
        static const int usual[] = {10, 64, 128, 256, 512, 768, 1000, 2048, 3072};
        int64_t s[3];
        for (int i = 0; i < 3; i++) {
            s[i] = i == 0 && BELOW(3) == 0 ? 1 + BELOW(8)
                   : BELOW(2) == 0         ? 1 + BELOW(i == 0 ? 300 : 67)
                                           : usual[BELOW(9)];
        }
        if ((double)(s[0] * s[1] * s[2]) < d->most) {
            lvni_check_product p = {.m = s[0], .n = s[1], .k = s[2]};
            p.trans_a = BELOW(3) == 0;
            p.trans_b = BELOW(2) == 0;
            return p;
        }
    }
}

/* ---- rows ---- */

/* Sizes up to `count` numbers; no such input: left out. */
static void give(lvni_check_case *row, int i, int ndim, const int64_t *shape)
{
    row->in[i].given = true;
    row->in[i].ndim = (int8_t)ndim;
    for (int k = 0; k < ndim; k++) {
        row->in[i].shape[k] = (int32_t)shape[k];
    }
}
#define GIVE(i, ...)                                                                               \
    give(row, (i), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                      \
         (const int64_t[]){__VA_ARGS__})

/* One in five has a height of one pixel in its windows, as a convolution of sequences. */
static void draw_conv(lvni_check_generator *d, lvni_kernels_op op, lvni_check_case *row)
{
    d->narrow = BELOW(3) > 0;
    const lvni_check_conv c = lvni_check_draw_conv(d);
    const bool flat = BELOW(5) == 0, bias = BELOW(4) > 0;
    const int kh = flat ? 1 : c.k, reach = c.dilation * (c.k - 1) + 1;
    lvn_conv_attr *a = &row->attr.conv;
    *a = (lvn_conv_attr){.stride = {flat ? 1 : c.stride, c.stride},
                         .padding = {flat ? 0 : c.padding, c.padding},
                         .dilation = {flat ? 1 : c.dilation, c.dilation},
                         .groups = c.groups};
    const int h = flat && c.h > 8 ? 8 : c.h,
              oh = flat ? h : (h + 2 * c.padding - reach) / c.stride + 1,
              ow = (c.w + 2 * c.padding - reach) / c.stride + 1;
    if (op == LVNI_OP_conv2d_grad_weight) {
        GIVE(0, c.n, oh, ow, c.o);
        GIVE(1, c.n, h, c.w, c.i);
        a->kernel[0] = kh;
        a->kernel[1] = c.k;
        return;
    }
    GIVE(1, c.o, kh, c.k, c.i / c.groups);
    if (op == LVNI_OP_conv2d) {
        GIVE(0, c.n, h, c.w, c.i);
    } else {
        GIVE(0, c.n, oh, ow, c.o);
        a->in_h = h;
        a->in_w = c.w;
    }
    if (bias && op != LVNI_OP_conv2d_grad_input) {
        GIVE(2, op == LVNI_OP_conv2d ? c.o : c.i);
    }
    row->full = BELOW(2) == 0 ? 6 : 0; /* weights and biases that stay f32, as in mixed precision */
}

static void draw_matmul(lvni_check_generator *d, lvni_check_case *row)
{
    const lvni_check_product p = lvni_check_draw_product(d);
    const int64_t as[2] = {p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k},
                  bs[2] = {p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n};
    const int stack = 1 + BELOW(12);
    row->attr.matmul = (lvn_matmul_attr){.trans_a = p.trans_a, .trans_b = p.trans_b};
    if (BELOW(2) == 0 && (double)stack * (double)(p.m * p.n * p.k) < d->most) {
        GIVE(0, stack, as[0], as[1]);
        GIVE(1, stack, bs[0], bs[1]);
    } else {
        give(row, 0, 2, as);
        give(row, 1, 2, bs);
    }
}

static void draw_linear(lvni_check_generator *d, lvni_kernels_op op, lvni_check_case *row)
{
    const lvni_check_product p = lvni_check_draw_product(d);
    const bool bias = BELOW(4) > 0;
    switch (op) {
    case LVNI_OP_linear_grad_input:
        GIVE(0, p.m, p.k);
        GIVE(1, p.k, p.n);
        break;
    case LVNI_OP_linear_grad_weight:
        GIVE(0, p.m, p.n);
        GIVE(1, p.m, p.k);
        return;
    default:
        GIVE(0, p.m, p.k);
        GIVE(1, p.n, p.k);
        if (bias) {
            GIVE(2, p.n);
        }
    }
    row->full = BELOW(2) == 0 ? 6 : 0;
}

static void draw_attention(lvni_check_generator *d, lvni_kernels_op op, lvni_check_case *row)
{
    const bool packed = op == LVNI_OP_attention_qkv || op == LVNI_OP_attention_qkv_grad;
    /* of a few keys the gradient is a small difference of large numbers, of one rounding alone */
    const int least = op == LVNI_OP_attention || op == LVNI_OP_attention_qkv ? 2 : 12;
    int n, t, s, h, q, v;
    bool causal;
    do {
        n = 1 + BELOW(3);
        t = (packed ? least : 1) + BELOW(BELOW(3) == 0 ? 300 : 40);
        s = least + BELOW(BELOW(3) == 0 ? 300 : 40);
        h = 1 + BELOW(8);
        q = BELOW(2) == 0 ? 64 : 1 + BELOW(130);
        v = BELOW(2) == 0 ? q : 1 + BELOW(130);
        causal = BELOW(2) == 0;
        s = packed ? t : s;
        t = causal ? s : t;
    } while ((double)n * t * s * h * (q + v) > d->most);
    /* Scores have a deviation of at most 2. Of larger ones the rounding to f32 alone is more than
     * what is allowed: the exponential multiplies it. */
    row->attr.attention = (lvn_attention_attr){
        .scale = fmin(0.05 * (1 + BELOW(6)), 2.0 / sqrt((double)q)), .causal = causal};
    switch (op) {
    case LVNI_OP_attention:
        GIVE(0, n, t, h, q);
        GIVE(1, n, s, h, q);
        GIVE(2, n, s, h, v);
        break;
    case LVNI_OP_attention_grad:
        GIVE(0, n, t, h, v);
        GIVE(1, n, t, h, q);
        GIVE(2, n, s, h, q);
        GIVE(3, n, s, h, v);
        GIVE(4, n, t, h, v);
        GIVE(5, n, h, t);
        break;
    case LVNI_OP_attention_qkv: GIVE(0, n, t, 3, h, q); break;
    default:
        GIVE(0, n, t, h, q);
        GIVE(1, n, t, 3, h, q);
        GIVE(2, n, t, h, q);
        GIVE(3, n, h, t);
    }
}

/* Largest and average pooling, and their gradients. */
static void draw_pool(lvni_check_generator *d, lvni_kernels_op op, lvni_check_case *row)
{
    lvn_pool_attr a = {.in_h = 0};
    int n, c, size[2], out[2];
    do {
        n = 1 + BELOW(4);
        c = channels(d);
        for (int i = 0; i < 2; i++) {
            size[i] = 1 + BELOW(BELOW(3) == 0 ? 300 : 40);
            a.kernel[i] = 1 + BELOW(size[i] < 7 ? size[i] : 7);
            a.stride[i] = 1 + BELOW(3);
            a.padding[i] = BELOW(a.kernel[i] / 2 + 1);
            out[i] = (size[i] + 2 * a.padding[i] - a.kernel[i]) / a.stride[i] + 1;
        }
    } while ((double)n * c * out[0] * out[1] * a.kernel[0] * a.kernel[1] > 0.25 * d->most);
    const bool average = op == LVNI_OP_resample2d, back = average ? BELOW(2) == 0 : false;
    if (average) {
        row->attr.resample = (lvn_resample_attr){.pool = a,
                                                 .exclude_padding = BELOW(2) == 0,
                                                 .transposed = back,
                                                 .size = {size[0], size[1]}};
    } else {
        a.in_h = op == LVNI_OP_max_pool2d ? 0 : size[0];
        a.in_w = op == LVNI_OP_max_pool2d ? 0 : size[1];
        row->attr.pool = a;
    }
    if (op == LVNI_OP_max_pool2d_grad || back) {
        GIVE(0, n, out[0], out[1], c);
    } else {
        GIVE(0, n, size[0], size[1], c);
    }
    if (op == LVNI_OP_max_pool2d_grad) {
        GIVE(1, n, out[0], out[1], c);
    }
}

static void draw_fft(lvni_check_generator *d, lvni_check_case *row)
{
    const int n = 1 + BELOW(6), h = 1 + BELOW(BELOW(3) == 0 ? 300 : 40),
              w = 1 + BELOW(BELOW(3) == 0 ? 300 : 40), axes = 1 + BELOW(2);
    const double most = d->most / (h + w) / h / w; /* the reference's sums */
    row->attr.fft = (lvn_fft_attr){.axes = axes, .scale = 1.0};
    row->attr.fft.inverse = BELOW(2) == 0;
    row->attr.fft.centered = BELOW(2) == 0;
    GIVE(0, n <= most ? n : 1, most < 1.0 ? 1 : h, w, 2);
}

static void draw_row(lvni_check_generator *d, lvni_kernels_op op, lvni_check_case *row)
{
    switch (op) {
    case LVNI_OP_conv2d:
    case LVNI_OP_conv2d_grad_input:
    case LVNI_OP_conv2d_grad_weight:
    case LVNI_OP_conv_transpose2d: draw_conv(d, op, row); break;
    case LVNI_OP_matmul: draw_matmul(d, row); break;
    case LVNI_OP_linear:
    case LVNI_OP_linear_grad_input:
    case LVNI_OP_linear_grad_weight: draw_linear(d, op, row); break;
    case LVNI_OP_max_pool2d:
    case LVNI_OP_max_pool2d_grad:
    case LVNI_OP_resample2d: draw_pool(d, op, row); break;
    case LVNI_OP_fft: draw_fft(d, row); break;
    default: draw_attention(d, op, row);
    }
}

/* One round. Convolutions more often than others: they have most implementations. */
static const lvni_kernels_op round_of_ops[] = {
    LVNI_OP_conv2d,     LVNI_OP_conv2d_grad_input,  LVNI_OP_conv2d_grad_weight,
    LVNI_OP_matmul,     LVNI_OP_conv_transpose2d,   LVNI_OP_linear,
    LVNI_OP_conv2d,     LVNI_OP_conv2d_grad_input,  LVNI_OP_conv2d_grad_weight,
    LVNI_OP_attention,  LVNI_OP_linear_grad_input,  LVNI_OP_linear_grad_weight,
    LVNI_OP_conv2d,     LVNI_OP_conv2d_grad_input,  LVNI_OP_conv2d_grad_weight,
    LVNI_OP_max_pool2d, LVNI_OP_attention_grad,     LVNI_OP_attention_qkv,
    LVNI_OP_resample2d, LVNI_OP_attention_qkv_grad, LVNI_OP_max_pool2d_grad,
    LVNI_OP_fft};
_Static_assert(sizeof round_of_ops / sizeof *round_of_ops == LVNI_CHECK_ROUND, "drawn.h");

bool lvni_check_is_drawn(lvni_kernels_op op)
{
    for (int i = 0; i < LVNI_CHECK_ROUND; i++) {
        if (round_of_ops[i] == op) {
            return true;
        }
    }
    return false;
}

lvni_check_drawn_size lvni_check_draw_case(uint64_t seed, int64_t number, lvni_kernels_op *op,
                                           lvni_check_case *row)
{
    static const double most[] = {2e6, 2e7, 2e8};
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(seed, lvni_core_rng_purpose("check"))};
    lvni_check_generator d = {.state = (uint64_t)lvni_core_rng_u32(&rng, 2 * (uint64_t)number)
                                           << 32 |
                                       lvni_core_rng_u32(&rng, 2 * (uint64_t)number + 1)};
    const int64_t turn = number / LVNI_CHECK_ROUND % 16;
    const lvni_check_drawn_size size = turn == 15      ? LVNI_CHECK_LARGE
                                       : turn % 4 == 3 ? LVNI_CHECK_MIDDLE
                                                       : LVNI_CHECK_SMALL;
    d.most = most[size];
    *op = round_of_ops[number % LVNI_CHECK_ROUND];
    *row = (lvni_check_case){.special = false};
    snprintf(row->name, sizeof row->name, "%llu/%lld", (unsigned long long)seed, (long long)number);
    draw_row(&d, *op, row);
    return size;
}

static void print_pool(const lvn_pool_attr *a, char *text, size_t size)
{
    snprintf(text, size, ", window %d x %d, stride %d %d, padding %d %d", a->kernel[0],
             a->kernel[1], a->stride[0], a->stride[1], a->padding[0], a->padding[1]);
}

static void print_attribute(lvni_kernels_op op, const lvni_check_attr *a, char *text, size_t size)
{
    text[0] = '\0';
    switch (op) {
    case LVNI_OP_conv2d:
    case LVNI_OP_conv2d_grad_input:
    case LVNI_OP_conv2d_grad_weight:
    case LVNI_OP_conv_transpose2d:
        snprintf(text, size, ", stride %d %d, padding %d %d, dilation %d %d, groups %d",
                 a->conv.stride[0], a->conv.stride[1], a->conv.padding[0], a->conv.padding[1],
                 a->conv.dilation[0], a->conv.dilation[1], a->conv.groups);
        break;
    case LVNI_OP_matmul:
        snprintf(text, size, "%s%s", a->matmul.trans_a ? ", a transposed" : "",
                 a->matmul.trans_b ? ", b transposed" : "");
        break;
    case LVNI_OP_max_pool2d:
    case LVNI_OP_max_pool2d_grad: print_pool(&a->pool, text, size); break;
    case LVNI_OP_resample2d:
        print_pool(&a->resample.pool, text, size);
        strncat(text, a->resample.transposed ? ", the average's gradient" : ", average",
                size - strlen(text) - 1);
        break;
    case LVNI_OP_fft:
        snprintf(text, size, ", %d axes%s%s", a->fft.axes, a->fft.inverse ? ", inverse" : "",
                 a->fft.centered ? ", centered" : "");
        break;
    default: /* attention; linear layers have none */
        if (lvni_kernels_ops[op].attr_size > 0) {
            lvni_core_format(text, size, ", scale %g%s", a->attention.scale,
                             a->attention.causal ? ", causal" : "");
        }
    }
}

void lvni_check_case_print(lvni_kernels_op op, const lvni_check_case *row, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < LVN_KERNEL_INPUTS && at < size; i++) {
        char shape[96];
        int64_t wide[LVN_MAX_NDIM];
        for (int k = 0; k < LVN_MAX_NDIM; k++) {
            wide[k] = row->in[i].shape[k];
        }
        if (row->in[i].given) {
            at += (size_t)snprintf(text + at, size - at, "%s%s%s", i > 0 ? " " : "",
                                   lvni_tensor_shape_string(row->in[i].ndim, wide, shape),
                                   (row->full >> i & 1u) != 0 ? " f32" : "");
        }
    }
    if (at < size) {
        print_attribute(op, &row->attr, text + at, size - at);
    }
}
