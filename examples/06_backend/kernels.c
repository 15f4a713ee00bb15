/* Kernels of the example backend: what `levin train classify model=cnn` computes, f32 in plain
 * loops, images as (N, H, W, C). `levin ops NAME` prints what an op takes; its attributes are in
 * levin/backend_ops.h, the formulas of flat buffers in levin/backend.h. */
#include "example.h"

#include <math.h>
#include <string.h>

static const float *in(const lvn_kernel_args *args, int i) /* NULL: not given */
{
    return example_mine(lvn_const_data(args->in[i]));
}

static float *out(const lvn_kernel_args *args, int i) /* NULL: not wanted */
{
    return example_mine(lvn_data(args->out[i]));
}

/* name() submits name_work() to the stream of the arguments. */
#define KERNEL(name)                                                                               \
    static lvn_status name(const lvn_kernel_args *args)                                            \
    {                                                                                              \
        const bool runs = example_begin(args->stream);                                             \
        return example_end(args->stream, #name, runs ? name##_work(args) : LVN_OK);                \
    }

static float dot(const float *a, const float *b, int64_t n)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void add_scaled(float *a, float factor, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        a[i] += factor * b[i];
    }
}

static void clear(float *p, const lvn_tensor *t)
{
    memset(p, 0, (size_t)lvn_numel(t) * sizeof *p);
}

/* db[o] = sum over the rows of dy (rows, O) */
static void sum_rows(float *db, const float *dy, int64_t rows, int64_t o)
{
    memset(db, 0, (size_t)o * sizeof *db);
    for (int64_t n = 0; n < rows; n++) {
        add_scaled(db, 1.0f, dy + n * o, o);
    }
}

/* ---- element by element, broadcast, reduced ---- */

static lvn_status scale_work(const lvn_kernel_args *args)
{
    const lvn_scale_attr *attr = args->attr;
    const float *x = in(args, 0);
    float *y = out(args, 0);
    for (int64_t e = 0; e < lvn_numel(args->out[0]); e++) {
        y[e] = x[e] * (float)attr->mul + (float)attr->add;
    }
    return LVN_OK;
}
KERNEL(scale)

/* Block `number` of a stream of random numbers (lvn_philox): Philox 4x32-10. */
static void philox(const lvn_philox *p, uint64_t number, uint32_t x[4])
{
    uint32_t key[2] = {p->key[0], p->key[1]};
    x[0] = (uint32_t)number, x[1] = p->c, x[2] = p->b, x[3] = p->a;
    for (int round = 0; round < 10; round++) {
        const uint64_t even = 0xD2511F53ull * x[0], odd = 0xCD9E8D57ull * x[2];
        const uint32_t next[4] = {(uint32_t)(odd >> 32) ^ x[1] ^ key[0], (uint32_t)odd,
                                  (uint32_t)(even >> 32) ^ x[3] ^ key[1], (uint32_t)even};
        memcpy(x, next, sizeof next);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}

static lvn_status dropout_work(const lvn_kernel_args *args)
{
    const lvn_dropout_attr *attr = args->attr;
    const float *x = in(args, 0), keep = (float)(1.0 / (1.0 - attr->p));
    float *y = out(args, 0);
    lvn_philox stream = attr->rng;
    stream.a_there = example_mine(stream.a_there);
    lvn_philox_resolve(&stream);
    uint32_t number[4];
    for (int64_t e = 0; e < lvn_numel(args->in[0]); e++) {
        if (e % 4 == 0) {
            philox(&stream, (uint64_t)e / 4, number);
        }
        const float uniform = (float)(number[e % 4] >> 8) * 0x1p-24f;
        y[e] = uniform >= (float)attr->p ? x[e] * keep : 0.0f;
    }
    return LVN_OK;
}
KERNEL(dropout)

/* Where element e of `large` lies in a dense tensor without the axes of the mask. */
static int64_t without(int64_t e, const lvn_tensor *large, uint32_t mask)
{
    int64_t place = 0, stride = 1;
    for (int axis = lvn_ndim(large) - 1; axis >= 0; axis--) {
        const int64_t size = lvn_size(large, axis);
        if ((mask >> axis & 1) == 0) {
            place += e % size * stride;
            stride *= size;
        }
        e /= size;
    }
    return place;
}

/* Sums in double precision, in scratch memory. */
static size_t mean_workspace(const lvn_kernel_args *args)
{
    return (size_t)lvn_numel(args->out[0]) * sizeof(double);
}

static lvn_status mean_work(const lvn_kernel_args *args)
{
    const lvn_axes_attr *attr = args->attr;
    const float *x = in(args, 0);
    float *y = out(args, 0);
    double *sum = example_mine(args->workspace);
    const int64_t n = lvn_numel(args->in[0]), n_out = lvn_numel(args->out[0]);
    memset(sum, 0, args->workspace_bytes);
    for (int64_t e = 0; e < n; e++) {
        sum[without(e, args->in[0], attr->mask)] += (double)x[e];
    }
    for (int64_t e = 0; e < n_out; e++) {
        y[e] = (float)(sum[e] / (double)(n / n_out));
    }
    return LVN_OK;
}
KERNEL(mean)

static lvn_status expand_work(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0], *y = args->out[0];
    const float *from = in(args, 0);
    float *to = out(args, 0);
    const int more = lvn_ndim(y) - lvn_ndim(x);
    uint32_t mask = 0; /* axes of y along which x is repeated */
    for (int axis = 0; axis < lvn_ndim(y); axis++) {
        mask |= (axis < more || lvn_size(x, axis - more) == 1) ? 1u << axis : 0u;
    }
    for (int64_t e = 0; e < lvn_numel(y); e++) {
        to[e] = from[without(e, y, mask)];
    }
    return LVN_OK;
}
KERNEL(expand)

/* ---- convolution and max pooling ---- */

typedef enum conv_sum { INTO_Y, INTO_X, INTO_W } conv_sum;

/* All terms y[n][oh][ow][o] += x[n][h][w][:] . w[o][kh][kw][:], summed into one of the three. */
static void convolve(const lvn_conv_attr *a, const lvn_tensor *tx, const lvn_tensor *tw,
                     const lvn_tensor *ty, float *x, float *w, float *y, conv_sum into)
{
    const int64_t height = lvn_size(tx, 1), width = lvn_size(tx, 2), ci = lvn_size(tx, 3);
    const int64_t co = lvn_size(ty, 3), kw = lvn_size(tw, 2), taps = lvn_size(tw, 1) * kw;
    const int64_t pixels = lvn_numel(ty) / co;
    for (int64_t p = 0; p < pixels * taps; p++) {
        const int64_t tap = p % taps, pixel = p / taps, column = pixel % lvn_size(ty, 2),
                      row = pixel / lvn_size(ty, 2) % lvn_size(ty, 1),
                      n = pixel / lvn_size(ty, 2) / lvn_size(ty, 1);
        const int64_t h = row * a->stride[0] - a->padding[0] + tap / kw * a->dilation[0];
        const int64_t v = column * a->stride[1] - a->padding[1] + tap % kw * a->dilation[1];
        if (h < 0 || h >= height || v < 0 || v >= width) {
            continue;
        }
        float *px = x + ((n * height + h) * width + v) * ci, *py = y + pixel * co;
        for (int64_t o = 0; o < co; o++) {
            float *pw = w + (o * taps + tap) * ci;
            if (into == INTO_Y) {
                py[o] += dot(px, pw, ci);
            } else {
                add_scaled(into == INTO_X ? px : pw, py[o], into == INTO_X ? pw : px, ci);
            }
        }
    }
}

/* An input, for arguments of which one is the result. */
static float *changeable(const lvn_kernel_args *args, int i)
{
    return (float *)(uintptr_t)in(args, i);
}

static lvn_status conv2d_work(const lvn_kernel_args *args)
{
    float *y = out(args, 0);
    const float *bias = in(args, 2);
    const int64_t co = lvn_size(args->out[0], 3), pixels = lvn_numel(args->out[0]) / co;
    clear(y, args->out[0]);
    for (int64_t p = 0; p < pixels && bias != NULL; p++) {
        memcpy(y + p * co, bias, (size_t)co * sizeof *y);
    }
    convolve(args->attr, args->in[0], args->in[1], args->out[0], changeable(args, 0),
             changeable(args, 1), y, INTO_Y);
    return LVN_OK;
}
KERNEL(conv2d)

static lvn_status conv2d_grad_input_work(const lvn_kernel_args *args) /* dy, w -> dx */
{
    clear(out(args, 0), args->out[0]);
    convolve(args->attr, args->out[0], args->in[1], args->in[0], out(args, 0), changeable(args, 1),
             changeable(args, 0), INTO_X);
    return LVN_OK;
}
KERNEL(conv2d_grad_input)

static lvn_status conv2d_grad_weight_work(const lvn_kernel_args *args) /* dy, x -> dw, db */
{
    const int64_t co = lvn_size(args->in[0], 3);
    clear(out(args, 0), args->out[0]);
    convolve(args->attr, args->in[1], args->out[0], args->in[0], changeable(args, 1), out(args, 0),
             changeable(args, 0), INTO_W);
    if (args->out[1] != NULL) {
        sum_rows(out(args, 1), in(args, 0), lvn_numel(args->in[0]) / co, co);
    }
    return LVN_OK;
}
KERNEL(conv2d_grad_weight)

/* The element of image x under place k of the window of element e of y; -1: in the padding. */
static int64_t under(int64_t e, int64_t k, const lvn_tensor *y, int64_t h, int64_t w,
                     const lvn_pool_attr *a)
{
    const int64_t c = lvn_size(y, 3), pixel = e / c, line = pixel / lvn_size(y, 2);
    const int64_t row = line % lvn_size(y, 1) * a->stride[0] - a->padding[0] + k / a->kernel[1];
    const int64_t column = pixel % lvn_size(y, 2) * a->stride[1] - a->padding[1] + k % a->kernel[1];
    const bool inside = row >= 0 && row < h && column >= 0 && column < w;
    return inside ? ((line / lvn_size(y, 1) * h + row) * w + column) * c + e % c : -1;
}

static lvn_status max_pool2d_work(const lvn_kernel_args *args)
{
    const lvn_pool_attr *a = args->attr;
    const lvn_tensor *tx = args->in[0], *ty = args->out[0];
    const float *x = in(args, 0);
    float *y = out(args, 0);
    uint8_t *place = (uint8_t *)out(args, 1);
    for (int64_t e = 0; e < lvn_numel(ty); e++) {
        int best = -1;
        for (int k = 0; k < a->kernel[0] * a->kernel[1]; k++) {
            const int64_t at = under(e, k, ty, lvn_size(tx, 1), lvn_size(tx, 2), a);
            /* the first NaN counts as the greatest */
            if (at >= 0 && (best < 0 || x[at] > y[e] || (isnan(x[at]) && !isnan(y[e])))) {
                best = k;
                y[e] = x[at];
            }
        }
        if (place != NULL) {
            place[e] = (uint8_t)best;
        }
    }
    return LVN_OK;
}
KERNEL(max_pool2d)

static lvn_status max_pool2d_grad_work(const lvn_kernel_args *args) /* dy, place -> dx */
{
    const lvn_pool_attr *a = args->attr;
    const uint8_t *place = (const uint8_t *)in(args, 1);
    const float *dy = in(args, 0);
    float *dx = out(args, 0);
    clear(dx, args->out[0]);
    for (int64_t e = 0; e < lvn_numel(args->in[0]); e++) {
        dx[under(e, place[e], args->in[0], a->in_h, a->in_w, a)] += dy[e];
    }
    return LVN_OK;
}
KERNEL(max_pool2d_grad)

/* ---- batch norm over all axes except the last ---- */

static lvn_status batch_norm_train_work(const lvn_kernel_args *args)
{
    const lvn_norm_attr *attr = args->attr;
    const float *x = in(args, 0), *gamma = in(args, 1), *beta = in(args, 2);
    float *y = out(args, 0), *mean_ = out(args, 1), *rstd = out(args, 2), *unbiased = out(args, 3);
    const int64_t channels = lvn_numel(args->in[1]), n = lvn_numel(args->in[0]) / channels;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; i < n; i++) {
            sum += (double)x[i * channels + c];
        }
        mean_[c] = (float)(sum / (double)n);
        for (int64_t i = 0; i < n; i++) {
            const double far = (double)x[i * channels + c] - sum / (double)n;
            squares += far * far;
        }
        rstd[c] = (float)(1.0 / sqrt(squares / (double)n + attr->eps));
        unbiased[c] = (float)(squares / (double)(n - 1));
        for (int64_t i = 0; i < n; i++) {
            const int64_t e = i * channels + c;
            const float value = (x[e] - mean_[c]) * rstd[c] * gamma[c] + beta[c];
            y[e] = attr->relu && value < 0.0f ? 0.0f : value;
        }
    }
    return LVN_OK;
}
KERNEL(batch_norm_train)

/* dx = gamma rstd (g - (sum g + xhat sum(g xhat)) / n), g: what of dy passed relu */
static lvn_status batch_norm_train_grad_work(const lvn_kernel_args *args)
{
    const lvn_norm_attr *attr = args->attr;
    const float *dy = in(args, 0), *x = in(args, 1), *gamma = in(args, 2), *mean_ = in(args, 3),
                *rstd = in(args, 4), *beta = in(args, 5);
    float *dx = out(args, 0), *dgamma = out(args, 1), *dbeta = out(args, 2),
          *dresidual = out(args, 3);
    const int64_t channels = lvn_numel(args->in[2]), n = lvn_numel(args->in[1]) / channels;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0.0, product = 0.0;
        for (int64_t i = 0; i < n; i++) {
            const int64_t e = i * channels + c;
            const float xhat = (x[e] - mean_[c]) * rstd[c];
            dx[e] = attr->relu && xhat * gamma[c] + beta[c] <= 0.0f ? 0.0f : dy[e]; /* g */
            if (dresidual != NULL) {
                dresidual[e] = dx[e];
            }
            sum += (double)dx[e];
            product += (double)dx[e] * (double)xhat;
        }
        for (int64_t i = 0; i < n; i++) {
            const int64_t e = i * channels + c;
            const double xhat = (double)((x[e] - mean_[c]) * rstd[c]);
            const double moved = (sum + xhat * product) / (double)n;
            dx[e] = gamma[c] * rstd[c] * (float)((double)dx[e] - moved);
        }
        if (dgamma != NULL) {
            dgamma[c] = (float)product;
        }
        if (dbeta != NULL) {
            dbeta[c] = (float)sum;
        }
    }
    return LVN_OK;
}
KERNEL(batch_norm_train_grad)

static lvn_status batch_norm_eval_work(const lvn_kernel_args *args)
{
    const lvn_norm_attr *attr = args->attr;
    const float *x = in(args, 0), *gamma = in(args, 1), *beta = in(args, 2), *mean_ = in(args, 3),
                *variance = in(args, 4);
    float *y = out(args, 0);
    const int64_t channels = lvn_numel(args->in[1]);
    for (int64_t e = 0; e < lvn_numel(args->in[0]); e++) {
        const int64_t c = e % channels;
        const float rstd = (float)(1.0 / sqrt((double)variance[c] + attr->eps));
        const float value = (x[e] - mean_[c]) * rstd * gamma[c] + beta[c];
        y[e] = attr->relu && value < 0.0f ? 0.0f : value;
    }
    return LVN_OK;
}
KERNEL(batch_norm_eval)

/* ---- the last layer and the loss ---- */

static lvn_status linear_work(const lvn_kernel_args *args) /* x (N, I), w (O, I), b (O) */
{
    const float *x = in(args, 0), *w = in(args, 1), *bias = in(args, 2);
    const int64_t o = lvn_size(args->in[1], 0), i = lvn_size(args->in[1], 1);
    float *y = out(args, 0);
    for (int64_t e = 0; e < lvn_numel(args->out[0]); e++) {
        y[e] = dot(x + e / o * i, w + e % o * i, i) + (bias == NULL ? 0 : bias[e % o]);
    }
    return LVN_OK;
}
KERNEL(linear)

static lvn_status linear_grad_input_work(const lvn_kernel_args *args) /* dy, w -> dx */
{
    const float *dy = in(args, 0), *w = in(args, 1);
    const int64_t o = lvn_size(args->in[1], 0), i = lvn_size(args->in[1], 1);
    float *dx = out(args, 0);
    clear(dx, args->out[0]);
    for (int64_t e = 0; e < lvn_numel(args->in[0]); e++) {
        add_scaled(dx + e / o * i, dy[e], w + e % o * i, i);
    }
    return LVN_OK;
}
KERNEL(linear_grad_input)

static lvn_status linear_grad_weight_work(const lvn_kernel_args *args) /* dy, x -> dw, db */
{
    const float *dy = in(args, 0), *x = in(args, 1);
    const int64_t o = lvn_size(args->in[0], 1), i = lvn_size(args->in[1], 1);
    float *dw = out(args, 0);
    clear(dw, args->out[0]);
    for (int64_t e = 0; e < lvn_numel(args->in[0]); e++) {
        add_scaled(dw + e % o * i, dy[e], x + e / o * i, i);
    }
    if (args->out[1] != NULL) {
        sum_rows(out(args, 1), dy, lvn_size(args->in[0], 0), o);
    }
    return LVN_OK;
}
KERNEL(linear_grad_weight)

static lvn_status softmax_work(const lvn_kernel_args *args) /* for predict and eval */
{
    const int64_t k = lvn_size(args->in[0], -1);
    for (int64_t e = 0; e < lvn_numel(args->in[0]); e += k) {
        const float *x = in(args, 0) + e;
        float *y = out(args, 0) + e, top = x[0], sum = 0.0f;
        for (int64_t c = 1; c < k; c++) {
            top = x[c] > top ? x[c] : top;
        }
        for (int64_t c = 0; c < k; c++) {
            y[c] = expf(x[c] - top);
            sum += y[c];
        }
        for (int64_t c = 0; c < k; c++) {
            y[c] /= sum;
        }
    }
    return LVN_OK;
}
KERNEL(softmax)

/* How many rows count. A label out of range is found here, while the device computes: an error of
 * the stream. */
static lvn_status count_rows(const lvn_kernel_args *args, const lvn_tensor *labels, int64_t classes,
                             double *n)
{
    const lvn_class_loss_attr *attr = args->attr;
    const int64_t *label = example_mine(lvn_const_data(labels));
    *n = 0.0;
    for (int64_t row = 0; row < lvn_numel(labels); row++) {
        LVN_ARG(label[row] == attr->ignore || (label[row] >= 0 && label[row] < classes),
                "%s: the label of row %lld is %lld, but there are %lld classes", args->op->name,
                (long long)row, (long long)label[row], (long long)classes);
        *n += label[row] != attr->ignore ? 1.0 : 0.0;
    }
    *n = attr->sum || *n == 0.0 ? 1.0 : *n;
    return LVN_OK;
}

/* logits, labels -> mean of (1 - s) (-log p_label) + s / K sum(-log p), and of each row what the
 * gradient needs: its maximum and the log of the sum of e^(x - maximum) */
static lvn_status cross_entropy_work(const lvn_kernel_args *args)
{
    const lvn_class_loss_attr *attr = args->attr;
    const float *logits = in(args, 0);
    const int64_t *label = example_mine(lvn_const_data(args->in[1]));
    const int64_t rows = lvn_numel(args->in[1]), k = lvn_numel(args->in[0]) / rows;
    float *kept = out(args, 1);
    double n, sum = 0.0;
    LVN_TRY(count_rows(args, args->in[1], k, &n));
    for (int64_t row = 0; row < rows; row++) {
        const float *x = logits + row * k;
        float top = x[0];
        double powers = 0.0, all = 0.0;
        for (int64_t c = 1; c < k; c++) {
            top = x[c] > top || isnan(x[c]) ? x[c] : top;
        }
        for (int64_t c = 0; c < k; c++) {
            powers += exp((double)(x[c] - top));
        }
        const double offset = (double)top + log(powers);
        kept[2 * row] = top;
        kept[2 * row + 1] = (float)log(powers);
        for (int64_t c = 0; c < k; c++) {
            all += offset - (double)x[c];
        }
        if (label[row] != attr->ignore) {
            sum += (1.0 - attr->smoothing) * (offset - (double)x[label[row]]) +
                   attr->smoothing / (double)k * all;
        }
    }
    *out(args, 0) = (float)(sum / n);
    return LVN_OK;
}
KERNEL(cross_entropy)

static lvn_status cross_entropy_grad_work(const lvn_kernel_args *args)
{
    const lvn_class_loss_attr *attr = args->attr; /* in: dloss, logits, kept, labels */
    const float *dloss = in(args, 0), *x = in(args, 1), *kept = in(args, 2);
    const int64_t *label = example_mine(lvn_const_data(args->in[3]));
    const int64_t rows = lvn_numel(args->in[3]), k = lvn_numel(args->in[1]) / rows;
    const double soft = attr->smoothing / (double)k;
    float *dx = out(args, 0);
    double n;
    LVN_TRY(count_rows(args, args->in[3], k, &n));
    for (int64_t e = 0; e < rows * k; e++) {
        const int64_t row = e / k;
        const double p = exp((double)x[e] - (double)kept[2 * row] - (double)kept[2 * row + 1]);
        const double target = soft + (e % k == label[row] ? 1.0 - attr->smoothing : 0.0);
        dx[e] = label[row] == attr->ignore ? 0.0f : (float)((double)*dloss / n * (p - target));
    }
    return LVN_OK;
}
KERNEL(cross_entropy_grad)

static lvn_status accuracy_work(const lvn_kernel_args *args)
{
    const float *x = in(args, 0);
    const int64_t *label = example_mine(lvn_const_data(args->in[1]));
    const int64_t rows = lvn_numel(args->in[1]), k = lvn_numel(args->in[0]) / rows;
    int64_t right = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t best = 0;
        for (int64_t c = 1; c < k; c++) {
            const float value = x[row * k + c], top = x[row * k + best];
            best = value > top || (isnan(value) && !isnan(top)) ? c : best;
        }
        right += best == label[row] ? 1 : 0;
    }
    *out(args, 0) = (float)right / (float)rows;
    return LVN_OK;
}
KERNEL(accuracy)

#define ROW(name)                                                                                  \
    {                                                                                              \
#name, name, 1u << LVN_F32, 0, NULL                                                        \
    }
const lvn_backend_kernel example_kernels[] = {
    ROW(scale),
    ROW(dropout),
    {"mean", mean, 1u << LVN_F32, 0, mean_workspace},
    ROW(expand),
    ROW(conv2d),
    ROW(conv2d_grad_input),
    ROW(conv2d_grad_weight),
    ROW(max_pool2d),
    ROW(max_pool2d_grad),
    ROW(batch_norm_train),
    ROW(batch_norm_train_grad),
    ROW(batch_norm_eval),
    ROW(linear),
    ROW(linear_grad_input),
    ROW(linear_grad_weight),
    ROW(softmax),
    ROW(cross_entropy),
    ROW(cross_entropy_grad),
    ROW(accuracy),
};
const int example_n_kernels = sizeof example_kernels / sizeof *example_kernels;

/* What the kernels above leave out of what their ops may be asked for. */
bool example_supports(void *device, const lvn_kernel_args *args)
{
    (void)device;
    const char *op = args->op->name;
    if (strncmp(op, "conv2d", 6) == 0) {
        return ((const lvn_conv_attr *)args->attr)->groups == 1;
    }
    if (strncmp(op, "cross_entropy", 13) == 0) { /* the last two: weights */
        return args->in[args->op->n_in - 2] == NULL && args->in[args->op->n_in - 1] == NULL;
    }
    return strncmp(op, "batch_norm", 10) != 0 ||
           args->in[args->op->n_in - 1] == NULL; /* residual */
}
