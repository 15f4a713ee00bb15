/* Resizing as Pillow does it (resample.h). A weight of 22 bits and a sign is cut into two of 16
 * bits, high * 2^11 + low: sums of both are multiplied and added in pairs, and put together give
 * the exact sum. */
#include "data/resample.h"

#include "core/math.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    WEIGHT_BITS = 22,
    LOW_BITS = 11,
    HALF = 1 << (WEIGHT_BITS - 1),
    CHUNK = 16, /* bytes per round of the column loop */
};

static bool use_vector = true;

void lvni_data_resize_use_vector(bool use)
{
    use_vector = use;
}

/* ---- geometry ---- */

/* n / 2, rounded to even, as Python's round. */
static int half_to_even(int n)
{
    const int half = n / 2;
    return n % 2 == 0 ? half : half + half % 2;
}

/* Where a crop begins in `size` pixels; negative: half of what is missing lies before them. */
static int centre(int size, int crop)
{
    return crop > size ? -((crop - size) / 2) : half_to_even(size - crop);
}

lvn_status lvni_data_resize_centre(int shorter, int crop, lvni_data_filter filter, int width,
                                   int height, lvni_data_resize_plan *out)
{
    const bool wide = width > height;
    const int64_t longer = (int64_t)shorter * (wide ? width : height) / (wide ? height : width);
    if (longer > INT_MAX) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "an image of %d x %d pixels cannot be resized to a shorter side of %d: the longer "
                 "one would have "
                 "%lld pixels",
                 width, height, shorter, (long long)longer);
    }
    *out = (lvni_data_resize_plan){.width = wide ? (int)longer : shorter,
                                   .height = wide ? shorter : (int)longer,
                                   .crop = crop,
                                   .filter = filter};
    out->left = centre(out->width, crop);
    out->top = centre(out->height, crop);
    return LVN_OK;
}

/* ---- filters ---- */

const char *lvni_data_filter_name(lvni_data_filter filter)
{
    static const char *const names[] = {"nearest", "box",     "bilinear",
                                        "hamming", "bicubic", "lanczos"};
    return names[filter];
}

static double sin_pi(double x)
{
    return lvni_core_cos2pi(0.5 * x - 0.25);
}

static const double pi = 3.14159265358979323846;

static double sinc(double x)
{
    return x == 0.0 ? 1.0 : sin_pi(x) / (pi * x);
}

/* Half the width of a filter, in pixels of the smaller image. */
static double filter_support(lvni_data_filter filter)
{
    static const double supports[] = {
        [LVNI_FILTER_NEAREST] = 0.0, [LVNI_FILTER_BOX] = 0.5,     [LVNI_FILTER_BILINEAR] = 1.0,
        [LVNI_FILTER_HAMMING] = 1.0, [LVNI_FILTER_BICUBIC] = 2.0, [LVNI_FILTER_LANCZOS] = 3.0};
    return supports[filter];
}

/* Keys' cubic convolution with a = -1/2. */
static double cubic(double x)
{
    const double a = -0.5;
    if (x < 1.0) {
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    }
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

static double filter_weight(lvni_data_filter filter, double at)
{
    const double x = at < 0.0 ? -at : at;
    switch (filter) {
    case LVNI_FILTER_BOX: return at > -0.5 && at <= 0.5 ? 1.0 : 0.0;
    case LVNI_FILTER_BILINEAR: return x < 1.0 ? 1.0 - x : 0.0;
    case LVNI_FILTER_HAMMING:
        return x < 1.0 ? sinc(x) * (0.54 + 0.46 * lvni_core_cos2pi(0.5 * x)) : 0.0;
    case LVNI_FILTER_BICUBIC: return cubic(x);
    case LVNI_FILTER_LANCZOS: return x < 3.0 ? sinc(x) * sinc(x / 3.0) : 0.0;
    case LVNI_FILTER_NEAREST: break;
    }
    return 1.0;
}

/* ---- one axis ---- */

/* Output i, of those that are wanted, adds the pixels first[i] ... first[i] + taps - 1 with the
 * weights at i * taps. */
typedef struct axis {
    int from, n;    /* outputs wanted, of the resized image */
    int taps;       /* even, the same for all outputs: what is too many has weight 0 */
    int low, end;   /* pixels read */
    double step;    /* input pixels per output pixel */
    double reach;   /* the filter's half width in input pixels */
    double stretch; /* its scale */
    double nearest; /* the input position of the first output, without a filter */
    int *first;
    int16_t *high_weights, *low_weights;
} axis;

static axis axis_make(lvni_data_filter filter, int size, int resized, int from, int crop)
{
    const int start = from < 0 ? 0 : from, stop = from + crop < resized ? from + crop : resized;
    axis a = {.from = start, .n = stop - start, .step = (double)size / resized};
    a.stretch = a.step > 1.0 ? a.step : 1.0;
    a.reach = filter_support(filter) * a.stretch;
    a.nearest = 0.5 * a.step;
    for (int k = 0; filter == LVNI_FILTER_NEAREST && k < start; k++) {
        a.nearest += a.step;
    }
    const int taps = (int)ceil(a.reach) * 2 + 1;
    a.taps = taps + (taps & 1);
    return a;
}

/* Added up step by step, as Pillow does: at ties the rounding decides. */
static int nearest(const axis *a, int size, int i)
{
    double at = a->nearest;
    for (int k = 0; k < i; k++) {
        at += a->step;
    }
    return at < size ? (int)at : size - 1;
}

/* The pixels [*from, *to) that output i may read. */
static void axis_span(const axis *a, lvni_data_filter filter, int size, int i, int *from, int *to)
{
    const double middle = ((a->from + i) + 0.5) * a->step;
    if (filter == LVNI_FILTER_NEAREST) {
        *from = nearest(a, size, i);
        *to = *from + 1;
        return;
    }
    const double low = middle - a->reach + 0.5, high = middle + a->reach + 0.5;
    *from = low < 0.0 ? 0 : (int)low;
    *to = high > size ? size : (int)high;
}

static int weight_round(double w)
{
    const double scaled = w * (1 << WEIGHT_BITS);
    return (int)(scaled < 0.0 ? scaled - 0.5 : scaled + 0.5);
}

static void axis_weigh(const axis *a, lvni_data_filter filter, int i, int from, int to)
{
    const double middle = ((a->from + i) + 0.5) * a->step, shrink = 1.0 / a->stretch;
    int16_t *high = a->high_weights + (ptrdiff_t)i * a->taps,
            *low = a->low_weights + (ptrdiff_t)i * a->taps;
    double total = 0.0;
    for (int k = from; k < to; k++) {
        total += filter_weight(filter, (k - middle + 0.5) * shrink);
    }
    for (int k = 0; k < a->taps; k++) {
        int w = 0;
        if (from + k < to) {
            const double weight = filter_weight(filter, (from + k - middle + 0.5) * shrink);
            w = weight_round(total != 0.0 ? weight / total : weight);
        }
        low[k] = (int16_t)(w & ((1 << LOW_BITS) - 1));
        high[k] = (int16_t)((w - low[k]) / (1 << LOW_BITS));
    }
}

static void axis_fill(axis *a, lvni_data_filter filter, int size)
{
    for (int i = 0; i < a->n; i++) {
        int from, to;
        axis_span(a, filter, size, i, &from, &to);
        a->first[i] = from;
        axis_weigh(a, filter, i, from, to);
        a->low = i == 0 ? from : a->low;
        a->end = to;
    }
}

lvni_data_box lvni_data_resize_wanted(const lvni_data_resize_plan *p, int width, int height)
{
    const axis x = axis_make(p->filter, width, p->width, p->left, p->crop),
               y = axis_make(p->filter, height, p->height, p->top, p->crop);
    int left, right, top, bottom, unused;
    axis_span(&x, p->filter, width, 0, &left, &unused);
    axis_span(&x, p->filter, width, x.n - 1, &unused, &right);
    axis_span(&y, p->filter, height, 0, &top, &unused);
    axis_span(&y, p->filter, height, y.n - 1, &unused, &bottom);
    return (lvni_data_box){left, top, right - left, bottom - top};
}

/* ---- the two passes ---- */

static uint8_t clip(int sum)
{
    const int value = sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Taps of `n` bytes each, `stride` bytes apart: channels of one row, or a chunk of a column. */
static void sum_plain(const uint8_t *const *from, const int16_t *high, const int16_t *low, int taps,
                      int64_t n, uint8_t *out)
{
    for (int64_t x = 0; x < n; x++) {
        int sum = HALF;
        for (int k = 0; k < taps; k++) {
            sum += (high[k] * (1 << LOW_BITS) + low[k]) * from[k][x];
        }
        out[x] = clip(sum);
    }
}

/* A tap behind the row has weight 0 and is not read. */
static void pixel_plain(const uint8_t *row, const int16_t *high, const int16_t *low, int taps,
                        uint8_t *out)
{
    int sum[3] = {HALF, HALF, HALF};
    for (int k = 0; k < taps; k++) {
        const int w = high[k] * (1 << LOW_BITS) + low[k];
        for (int c = 0; w != 0 && c < 3; c++) {
            sum[c] += w * row[3 * k + c];
        }
    }
    for (int c = 0; c < 3; c++) {
        out[c] = clip(sum[c]);
    }
}

#if defined(__SSE2__)

static inline __m128i pair_of(const int16_t *weights)
{
    int32_t pair;
    memcpy(&pair, weights, sizeof pair);
    return _mm_set1_epi32(pair);
}

/* (high * 2^11 + low + one half) / 2^22 */
static inline __m128i put_together(__m128i high, __m128i low)
{
    const __m128i sum =
        _mm_add_epi32(_mm_add_epi32(_mm_slli_epi32(high, LOW_BITS), low), _mm_set1_epi32(HALF));
    return _mm_srai_epi32(sum, WEIGHT_BITS);
}

/* Two pixels per round; four bytes are read at each. */
static inline void pixel_vector(const uint8_t *row, const int16_t *high, const int16_t *low,
                                int taps, uint8_t *out)
{
    const __m128i zero = _mm_setzero_si128();
    __m128i s = zero, t = zero;
    for (int k = 0; k < taps; k += 2, row += 6) {
        int32_t p, q;
        memcpy(&p, row, sizeof p);
        memcpy(&q, row + 3, sizeof q);
        const __m128i bytes = _mm_unpacklo_epi8(_mm_cvtsi32_si128(p), _mm_cvtsi32_si128(q));
        const __m128i both = _mm_unpacklo_epi8(bytes, zero);
        s = _mm_add_epi32(s, _mm_madd_epi16(both, pair_of(high + k)));
        t = _mm_add_epi32(t, _mm_madd_epi16(both, pair_of(low + k)));
    }
    const __m128i words = _mm_packs_epi32(put_together(s, t), zero);
    const int32_t rgb = _mm_cvtsi128_si32(_mm_packus_epi16(words, zero));
    memcpy(out, &rgb, 3);
}

/* CHUNK bytes: two rows per round, interleaved, widened, multiplied and added in pairs. */
static void chunk_vector(const uint8_t *const *rows, const int16_t *high, const int16_t *low,
                         int taps, int64_t at, uint8_t *out)
{
    const __m128i zero = _mm_setzero_si128();
    __m128i s[4] = {zero, zero, zero, zero}, t[4] = {zero, zero, zero, zero};
    for (int k = 0; k < taps; k += 2) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(rows[k] + at));
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(rows[k + 1] + at));
        const __m128i left = _mm_unpacklo_epi8(a, b), right = _mm_unpackhi_epi8(a, b),
                      h = pair_of(high + k), l = pair_of(low + k);
        const __m128i part[4] = {_mm_unpacklo_epi8(left, zero), _mm_unpackhi_epi8(left, zero),
                                 _mm_unpacklo_epi8(right, zero), _mm_unpackhi_epi8(right, zero)};
        for (int i = 0; i < 4; i++) {
            s[i] = _mm_add_epi32(s[i], _mm_madd_epi16(part[i], h));
            t[i] = _mm_add_epi32(t[i], _mm_madd_epi16(part[i], l));
        }
    }
    const __m128i left = _mm_packs_epi32(put_together(s[0], t[0]), put_together(s[1], t[1]));
    const __m128i right = _mm_packs_epi32(put_together(s[2], t[2]), put_together(s[3], t[3]));
    _mm_storeu_si128((__m128i *)(void *)(out + at), _mm_packus_epi16(left, right));
}

#endif

/* One row of the image to across->n pixels. `pixels` of it are there, from pixel `start` on. */
static void row_pass(const axis *across, const uint8_t *row, int start, int pixels, uint8_t *out)
{
    int x = 0;
#if defined(__SSE2__)
    for (; use_vector && x < across->n && across->first[x] - start + across->taps < pixels; x++) {
        const ptrdiff_t w = (ptrdiff_t)x * across->taps;
        pixel_vector(row + (ptrdiff_t)(across->first[x] - start) * 3, across->high_weights + w,
                     across->low_weights + w, across->taps, out + (ptrdiff_t)x * 3);
    }
#else
    (void)pixels;
#endif
    for (; x < across->n; x++) {
        const ptrdiff_t w = (ptrdiff_t)x * across->taps;
        pixel_plain(row + (ptrdiff_t)(across->first[x] - start) * 3, across->high_weights + w,
                    across->low_weights + w, across->taps, out + (ptrdiff_t)x * 3);
    }
}

/* One row of the output from rows of n bytes, a multiple of CHUNK. */
static void column_pass(const uint8_t *const *rows, const int16_t *high, const int16_t *low,
                        int taps, int64_t n, uint8_t *out)
{
#if defined(__SSE2__)
    for (int64_t x = 0; use_vector && x < n; x += CHUNK) {
        chunk_vector(rows, high, low, taps, x, out);
    }
    if (use_vector) {
        return;
    }
#endif
    sum_plain(rows, high, low, taps, n, out);
}

/* ---- everything ---- */

/* What lies between the passes, and the memory for all of it. */
typedef struct work {
    axis across, down;
    const uint8_t **rows; /* (down.taps) */
    uint8_t *between;     /* (down.end - down.low, stride) */
    uint8_t *line;        /* (stride), one row of the output */
    size_t stride;        /* bytes: a multiple of CHUNK */
} work;

static lvn_status work_reserve(lvni_data_scratch *scratch, work *w)
{
    axis *a = &w->across, *b = &w->down;
    const size_t outputs = (size_t)a->n + (size_t)b->n;
    const size_t weights = (size_t)a->n * (size_t)a->taps + (size_t)b->n * (size_t)b->taps;
    const size_t pointers = (size_t)b->taps * sizeof *w->rows;
    LVN_TRY(lvni_data_buffer_reserve(&scratch->tables, pointers + outputs * sizeof(int) +
                                                           2 * weights * sizeof(int16_t)));
    w->rows = scratch->tables.data;
    a->first = (int *)(void *)((char *)scratch->tables.data + pointers);
    b->first = a->first + a->n;
    a->high_weights = (int16_t *)(void *)(b->first + b->n);
    b->high_weights = a->high_weights + (size_t)a->n * (size_t)a->taps;
    a->low_weights = a->high_weights + weights;
    b->low_weights = b->high_weights + weights;
    return LVN_OK;
}

static lvn_status rows_make(lvni_data_scratch *scratch, const lvni_data_image *image, work *w)
{
    const bool whole = image->columns == 0;
    const int columns = whole ? image->width : image->columns, n = w->down.end - w->down.low;
    w->stride = ((size_t)w->across.n * 3 + CHUNK - 1) / CHUNK * CHUNK;
    LVN_TRY(lvni_data_buffer_reserve(&scratch->row, ((size_t)n + 1) * w->stride));
    w->between = scratch->row.data;
    w->line = w->between + (size_t)n * w->stride;
    for (int y = 0; y < n; y++) {
        const uint8_t *row =
            image->rgb + (size_t)(w->down.low + y - image->top) * (size_t)columns * 3;
        uint8_t *out = w->between + (size_t)y * w->stride;
        row_pass(&w->across, row, image->left, columns, out);
        memset(out + (size_t)w->across.n * 3, 0, w->stride - (size_t)w->across.n * 3);
    }
    return LVN_OK;
}

static void pixel_put(const lvni_data_resample_target *t, int x, int y, const uint8_t rgb[3])
{
    float *out = t->data + x * t->step_x + y * t->step_y;
    for (int c = 0; c < 3; c++) {
        out[c] = (float)rgb[c] * t->scale[c] + t->bias[c];
    }
}

/* Row y of the output; NULL: it lies outside of the resized image. */
static void line_put(const work *w, const lvni_data_resize_plan *p,
                     const lvni_data_resample_target *t, int y, const uint8_t *line)
{
    static const uint8_t black[3];
    const int before = w->across.from - p->left; /* pixels of the crop that lie left of the image */
    for (int x = 0; x < p->crop; x++) {
        const bool inside = line != NULL && x >= before && x < before + w->across.n;
        pixel_put(t, x, y, inside ? line + (ptrdiff_t)(x - before) * 3 : black);
    }
}

static const uint8_t *line_make(const work *w, int y)
{
    const axis *d = &w->down;
    const ptrdiff_t at = (ptrdiff_t)y * d->taps;
    for (int k = 0; k < d->taps; k++) { /* a tap below the image has weight 0: any row will do */
        const int row = d->first[y] + k < d->end ? d->first[y] + k : d->end - 1;
        w->rows[k] = w->between + (size_t)(row - d->low) * w->stride;
    }
    column_pass(w->rows, d->high_weights + at, d->low_weights + at, d->taps, (int64_t)w->stride,
                w->line);
    return w->line;
}

lvn_status lvni_data_resize(lvni_data_scratch *scratch, const lvni_data_image *image,
                            const lvni_data_resize_plan *p, const lvni_data_resample_target *target)
{
    work w = {.across = axis_make(p->filter, image->width, p->width, p->left, p->crop),
              .down = axis_make(p->filter, image->height, p->height, p->top, p->crop)};
    LVN_TRY(work_reserve(scratch, &w));
    axis_fill(&w.across, p->filter, image->width);
    axis_fill(&w.down, p->filter, image->height);
    LVN_TRY(rows_make(scratch, image, &w));
    for (int y = 0; y < p->crop; y++) {
        const int line = y + p->top - w.down.from;
        line_put(&w, p, target, y, line >= 0 && line < w.down.n ? line_make(&w, line) : NULL);
    }
    return LVN_OK;
}
