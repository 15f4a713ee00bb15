/* Taps of every kind of map (taps.h). Positions are exact fractions of integers, so no rounding
 * moves a tap. */
#include "kernels/cpu/taps.h"

#include "kernels/cpu/par.h"

#include <string.h>

enum { CUBIC_TAPS = 4 };

static int64_t clamp(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* Pixels of the input for each of the output. */
static double step_of(const lvni_cpu_taps_axis *a)
{
    const double scale = a->attr->scale[a->side];
    return scale > 0.0 ? 1.0 / scale : (double)a->in / (double)a->out;
}

/* Where output o lies in the input: pixel `whole` and a fraction of the way to the next. */
static void position(const lvni_cpu_taps_axis *a, int64_t o, int64_t *whole, double *fraction)
{
    if (a->attr->scale[a->side] > 0.0) {
        double at = ((double)o + 0.5) * step_of(a) - 0.5;
        at = at < 0.0 && a->attr->kind == LVN_RESAMPLE_BILINEAR ? 0.0 : at;
        *whole = (int64_t)(at + 1.0) - 1; /* at >= -1/2 */
        *fraction = at - (double)*whole;
        return;
    }
    int64_t above = (2 * o + 1) * a->in - a->out, below = 2 * a->out; /* (o + 1/2) in / out - 1/2 */
    if (a->attr->align_corners) {
        above = a->out > 1 ? o * (a->in - 1) : 0;
        below = a->out > 1 ? a->out - 1 : 1;
    }
    if (above < 0 && a->attr->kind == LVN_RESAMPLE_BILINEAR) {
        above = 0;
    }
    *whole = above >= 0 ? above / below : -((below - 1 - above) / below);
    *fraction = (double)(above - *whole * below) / (double)below;
}

/* Keys 1981, at a distance of at most 2. */
static double cubic_at(double d, double a)
{
    return d <= 1.0 ? ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
                    : ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
}

/* Weights of the pixels at distance 1 + t, t, 1 - t, 2 - t. */
static void cubic(double t, double w[CUBIC_TAPS])
{
    const double distance[CUBIC_TAPS] = {1.0 + t, t, 1.0 - t, 2.0 - t};
    for (int k = 0; k < CUBIC_TAPS; k++) {
        w[k] = cubic_at(distance[k], -0.75);
    }
}

/* Taps at `from`, from + 1, ...; those outside of the image fall on its border. */
static int64_t folded(int64_t from, int n, const double *w, int64_t size, int64_t *first,
                      float *weight)
{
    *first = clamp(from, size);
    const int64_t count = clamp(from + n - 1, size) - *first + 1;
    double sum[CUBIC_TAPS] = {0.0};
    for (int k = 0; k < n; k++) {
        sum[clamp(from + k, size) - *first] += w[k];
    }
    for (int64_t k = 0; k < count; k++) {
        weight[k] = (float)sum[k];
    }
    return count;
}

static int64_t equal_weights(int64_t n, double divisor, float *weight)
{
    for (int64_t k = 0; k < n; k++) {
        weight[k] = (float)(1.0 / divisor);
    }
    return n;
}

static int64_t pool_window(const lvni_cpu_taps_axis *a, int64_t o, int64_t *first, float *weight)
{
    const lvn_pool_attr *p = &a->attr->pool;
    const int64_t start = o * p->stride[a->side] - p->padding[a->side],
                  end = start + p->kernel[a->side];
    *first = start < 0 ? 0 : start;
    const int64_t n = (end < a->in ? end : a->in) - *first;
    return equal_weights(n, (double)(a->attr->exclude_padding ? n : end - start), weight);
}

/* Pixels that a filter without aliases reaches in one direction. */
static double support_of(const lvni_cpu_taps_axis *a)
{
    const double step = step_of(a), pixels = a->attr->kind == LVN_RESAMPLE_BICUBIC ? 2.0 : 1.0;
    return step > 1.0 ? pixels * step : pixels;
}

static double filter_at(const lvni_cpu_taps_axis *a, double d)
{
    d = d < 0.0 ? -d : d;
    return a->attr->kind == LVN_RESAMPLE_BICUBIC ? (d < 2.0 ? cubic_at(d, -0.5) : 0.0)
           : d < 1.0                             ? 1.0 - d
                                                 : 0.0;
}

/* Pixels whose middle is within the filter share a weight of 1. */
static int64_t filtered(const lvni_cpu_taps_axis *a, int64_t o, int64_t *first, float *weight)
{
    const double step = step_of(a), wide = step > 1.0 ? step : 1.0, support = support_of(a),
                 centre = ((double)o + 0.5) * step, from = centre - support + 0.5,
                 to = centre + support + 0.5;
    double sum = 0.0;
    *first = from > 0.0 ? (int64_t)from : 0;
    const int64_t n = (to < (double)a->in ? (int64_t)to : a->in) - *first;
    for (int64_t k = 0; k < n; k++) {
        sum += filter_at(a, ((double)(*first + k) - centre + 0.5) / wide);
    }
    for (int64_t k = 0; k < n; k++) {
        weight[k] = (float)(filter_at(a, ((double)(*first + k) - centre + 0.5) / wide) / sum);
    }
    return n;
}

/* The taps of output o; how many. */
static int64_t taps_of(const lvni_cpu_taps_axis *a, int64_t o, int64_t *first, float *weight)
{
    int64_t whole = 0;
    double t = 0.0, w[CUBIC_TAPS];
    if (a->attr->antialias) {
        return filtered(a, o, first, weight);
    }
    switch (a->attr->kind) {
    case LVN_RESAMPLE_AVG_POOL: return pool_window(a, o, first, weight);
    case LVN_RESAMPLE_ADAPTIVE_POOL:
        *first = o * a->in / a->out;
        whole = lvni_cpu_div_up((o + 1) * a->in, a->out) - *first;
        return equal_weights(whole, (double)whole, weight);
    case LVN_RESAMPLE_NEAREST: *first = o * a->in / a->out; return equal_weights(1, 1.0, weight);
    case LVN_RESAMPLE_BILINEAR:
        position(a, o, &whole, &t);
        w[0] = 1.0 - t;
        w[1] = t;
        return folded(whole, t > 0.0 ? 2 : 1, w, a->in, first, weight);
    case LVN_RESAMPLE_BICUBIC: break;
    }
    position(a, o, &whole, &t);
    cubic(t, w);
    return folded(whole - 1, CUBIC_TAPS, w, a->in, first, weight);
}

static int64_t most_taps(const lvni_cpu_taps_axis *a)
{
    if (a->attr->antialias) {
        return 2 * ((int64_t)support_of(a) + 1) + 1;
    }
    switch (a->attr->kind) {
    case LVN_RESAMPLE_AVG_POOL: return a->attr->pool.kernel[a->side];
    case LVN_RESAMPLE_ADAPTIVE_POOL: return a->in / a->out + 2;
    default: return CUBIC_TAPS;
    }
}

static size_t rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Memory of one matrix with n rows. */
static size_t matrix_bytes(int64_t n, int64_t taps)
{
    return rounded((size_t)n * sizeof(int64_t)) + rounded(((size_t)n + 1) * sizeof(int64_t)) +
           rounded((size_t)taps * sizeof(float));
}

size_t lvni_cpu_taps_bytes(const lvni_cpu_taps_axis *a)
{
    const int64_t taps = a->out * most_taps(a);
    return matrix_bytes(a->out, taps) + (a->attr->transposed ? matrix_bytes(a->in, taps) : 0);
}

static lvni_cpu_taps place(int64_t n, char *memory)
{
    char *start = memory + rounded((size_t)n * sizeof(int64_t));
    char *weight = start + rounded(((size_t)n + 1) * sizeof(int64_t));
    return (lvni_cpu_taps){.n = n,
                           .first = (int64_t *)(void *)memory,
                           .start = (int64_t *)(void *)start,
                           .weight = (float *)(void *)weight};
}

/* The outputs that read input i are neighbours, since windows move in one direction: gathering them
 * in the order of the outputs makes the gradient of an input a sum of fixed order. */
static lvni_cpu_taps transposed(const lvni_cpu_taps *t, int64_t n, char *memory)
{
    lvni_cpu_taps g = place(n, memory);
    memset(g.start, 0, ((size_t)n + 1) * sizeof *g.start);
    memset(g.first, 0, (size_t)n * sizeof *g.first); /* inputs that no window reads */
    for (int64_t o = t->n - 1; o >= 0; o--) {
        for (int64_t k = t->start[o]; k < t->start[o + 1]; k++) {
            const int64_t i = t->first[o] + k - t->start[o];
            g.first[i] = o;
            g.start[i + 1]++;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        g.start[i + 1] += g.start[i];
    }
    for (int64_t o = 0; o < t->n; o++) {
        for (int64_t k = t->start[o]; k < t->start[o + 1]; k++) {
            const int64_t i = t->first[o] + k - t->start[o];
            g.weight[g.start[i] + o - g.first[i]] = t->weight[k];
        }
    }
    return g;
}

lvni_cpu_taps lvni_cpu_taps_make(const lvni_cpu_taps_axis *a, void *memory)
{
    lvni_cpu_taps t = place(a->out, memory);
    t.start[0] = 0;
    for (int64_t o = 0; o < a->out; o++) {
        t.start[o + 1] = t.start[o] + taps_of(a, o, &t.first[o], t.weight + t.start[o]);
    }
    if (!a->attr->transposed) {
        return t;
    }
    return transposed(&t, a->in, (char *)memory + matrix_bytes(a->out, a->out * most_taps(a)));
}
