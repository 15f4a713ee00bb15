/* Resampling (resample.h). First down the columns, one output row at a time, over the bytes of the
 * box (long straight loops, most of the work); then along that one row. Weights have 14 bits and
 * add up to exactly 1, the row in between has 7 bits after the point. */
#include "data/resample.h"

#include <math.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    WEIGHT_BITS = 14,
    ROW_BITS = 7,
    ROW_SHIFT = WEIGHT_BITS - ROW_BITS,
    /* bytes per round of the column loop; rows are read up to that far behind the box */
    CHUNK = 16,
};

/* TRIANGLE: bilinear with antialiasing. AREA: what an output pixel covers of each input pixel.
 * BORDER: an output pixel that has no border between input pixels inside is the one it lies in; one
 * that has is divided there. */
typedef enum weighing { TRIANGLE, AREA, BORDER } weighing;

/* One axis: n outputs over [start, start + length) of `size` pixels. Output i adds the input
 * pixels first[i] ... first[i] + taps - 1 with weights[i * taps ...]. */
typedef struct axis {
    weighing how;
    double start, length, step;
    int n, size;
    int taps; /* even, the same for all outputs: what is too many has weight 0 */
    int *first;
    int16_t *weights;
} axis;

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

static double triangle(double x)
{
    const double a = x < 0.0 ? -x : x;
    return a < 1.0 ? 1.0 - a : 0.0;
}

static axis axis_make(weighing how, double start, double length, int n, int size)
{
    const double step = length / n;
    axis a = {.how = how,
              .start = start,
              .length = length,
              .step = step,
              .n = n,
              .size = size,
              .taps = 2};
    if (how != BORDER) { /* pixel centres within the reach to either side, or pixels touched */
        const int taps =
            how == AREA ? (int)ceil(step) + 1 : (int)ceil(2.0 * (step > 1.0 ? step : 1.0));
        a.taps = taps + (taps & 1);
    }
    return a;
}

/* BORDER: the pixel of the box in which output i begins. Exact where it begins at a border, as i *
 * step would not be. */
static double begin_of(const axis *a, int i)
{
    return floor(i * a->length / a->n);
}

/* How much of output i lies behind the first border after its beginning. */
static double behind_border(const axis *a, int i)
{
    const double part = (i + 1) - (begin_of(a, i) + 1.0) * a->n / a->length;
    return part <= 0.0 ? 0.0 : part - floor(part);
}

/* Of input pixel k in output i. */
static double weight(const axis *a, int i, int k)
{
    if (a->how == TRIANGLE) {
        const double reach = a->step > 1.0 ? a->step : 1.0;
        return triangle((k + 0.5 - (a->start + (i + 0.5) * a->step)) / reach);
    }
    if (a->how == BORDER) {
        const double part = behind_border(a, i);
        return k == (int)(a->start + begin_of(a, i)) ? 1.0 - part : part;
    }
    const double low = a->start + i * a->step, high = a->start + (i + 1) * a->step;
    const double covered = (high < k + 1.0 ? high : k + 1.0) - (low > k ? low : k);
    return covered > 0.0 ? covered : 0.0;
}

/* Weights of output i over the input pixels [from, to), zero-padded to axis->taps. Rounding the
 * running sum, not each weight, keeps the total exact: a constant image stays constant. */
static void axis_weigh(const axis *a, int i, int from, int to)
{
    double total = 0.0;
    for (int k = from; k < to; k++) {
        total += weight(a, i, k);
    }
    double sum = 0.0;
    int given = 0;
    int16_t *w = a->weights + (ptrdiff_t)i * a->taps;
    for (int k = from; k < to; k++) {
        sum += weight(a, i, k);
        const double part = total > 0.0 ? sum / total : 1.0;
        const int upto = (int)(part * (1 << WEIGHT_BITS) + 0.5);
        w[k - from] = (int16_t)(upto - given);
        given = upto;
    }
    for (int k = to - from; k < a->taps; k++) {
        w[k] = 0;
    }
    a->first[i] = from;
}

/* The input pixels [*from, *to) of output i, before the edges of the image are minded. */
static void axis_span(const axis *a, int i, int *from, int *to)
{
    const double centre = a->start + (i + 0.5) * a->step, reach = a->step > 1.0 ? a->step : 1.0;
    switch (a->how) {
    case TRIANGLE:
        *from = (int)floor(centre - reach + 0.5);
        *to = (int)floor(centre + reach + 0.5);
        break;
    case AREA:
        *from = (int)floor(a->start + i * a->step);
        *to = (int)ceil(a->start + (i + 1) * a->step);
        break;
    case BORDER:
        *from = (int)(a->start + begin_of(a, i));
        *to = *from + (behind_border(a, i) > 0.0 ? 2 : 1);
        break;
    }
}

static void axis_fill(const axis *a)
{
    for (int i = 0; i < a->n; i++) {
        int from = 0, to = 0;
        axis_span(a, i, &from, &to);
        from = min_int(max_int(from, 0), a->size - 1);
        to = min_int(max_int(min_int(to, a->size), from + 1), from + a->taps);
        axis_weigh(a, i, from, to);
    }
}

static inline int16_t column_round(int32_t sum)
{
    return (int16_t)((sum + (1 << (ROW_SHIFT - 1))) >> ROW_SHIFT);
}

void lvni_data_resample_column_plain(const uint8_t *const *rows, const int16_t *weights, int taps,
                                     int64_t count, int16_t *out)
{
    for (int64_t x = 0; x < count; x++) {
        int32_t sum = 0;
        for (int k = 0; k < taps; k++) {
            sum += weights[k] * rows[k][x];
        }
        out[x] = column_round(sum);
    }
}

#if defined(__SSE2__)
/* Two rows per round: bytes interleaved, widened, multiplied and added in pairs. */
void lvni_data_resample_column(const uint8_t *const *rows, const int16_t *weights, int taps,
                               int64_t count, int16_t *out)
{
    const __m128i zero = _mm_setzero_si128();
    for (int64_t x = 0; x < count; x += CHUNK) {
        __m128i s0 = _mm_set1_epi32(1 << (ROW_SHIFT - 1)), s1 = s0, s2 = s0, s3 = s0;
        for (int k = 0; k < taps; k += 2) {
            const __m128i w = _mm_set1_epi32((int32_t)((uint32_t)(uint16_t)weights[k] |
                                                       (uint32_t)(uint16_t)weights[k + 1] << 16));
            const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(rows[k] + x));
            const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(rows[k + 1] + x));
            const __m128i lo = _mm_unpacklo_epi8(a, b), hi = _mm_unpackhi_epi8(a, b);
            s0 = _mm_add_epi32(s0, _mm_madd_epi16(_mm_unpacklo_epi8(lo, zero), w));
            s1 = _mm_add_epi32(s1, _mm_madd_epi16(_mm_unpackhi_epi8(lo, zero), w));
            s2 = _mm_add_epi32(s2, _mm_madd_epi16(_mm_unpacklo_epi8(hi, zero), w));
            s3 = _mm_add_epi32(s3, _mm_madd_epi16(_mm_unpackhi_epi8(hi, zero), w));
        }
        const __m128i left =
            _mm_packs_epi32(_mm_srai_epi32(s0, ROW_SHIFT), _mm_srai_epi32(s1, ROW_SHIFT));
        const __m128i right =
            _mm_packs_epi32(_mm_srai_epi32(s2, ROW_SHIFT), _mm_srai_epi32(s3, ROW_SHIFT));
        _mm_storeu_si128((__m128i *)(void *)(out + x), left);
        _mm_storeu_si128((__m128i *)(void *)(out + x + 8), right);
    }
}
#else
void lvni_data_resample_column(const uint8_t *const *rows, const int16_t *weights, int taps,
                               int64_t count, int16_t *out)
{
    lvni_data_resample_column_plain(rows, weights, taps, count, out);
}
#endif

/* The columns that the outputs read, with the zero-weight taps and the rounding up to a chunk that
 * may lie outside the image. */
typedef struct span {
    int first; /* pixel of the whole image */
    int channels;
    int64_t inside; /* bytes that exist in every row: a multiple of CHUNK */
    int64_t tail;   /* bytes behind them that exist as well, fewer than CHUNK */
    size_t room;    /* int16 elements of the row buffer */
} span;

/* One output pixel from the row: sums of its channels with WEIGHT_BITS + ROW_BITS bits after the
 * point, at most 255 * 2^21 < 2^31, times scale, plus bias. */
typedef struct factors {
    float scale[4], bias[4];
} factors;

static void row_pixel_plain(const int16_t *row, const int16_t *weights, int taps, const factors *f,
                            int channels, float *out)
{
    int32_t sum[4] = {0, 0, 0, 0};
    for (int k = 0; k < taps; k++, row += channels) {
        for (int c = 0; c < channels; c++) {
            sum[c] += weights[k] * row[c];
        }
    }
    for (int c = 0; c < channels; c++) {
        out[c] = (float)sum[c] * f->scale[c] + f->bias[c];
    }
}

#if defined(__SSE2__)
static inline void row_pixel(const int16_t *row, const int16_t *weights, int taps, const factors *f,
                             int channels, float *out)
{
    if (channels != 3) {
        row_pixel_plain(row, weights, taps, f, channels, out);
        return;
    }
    __m128i sum = _mm_setzero_si128();
    for (int k = 0; k < taps; k += 2, row += 6) {
        int32_t pair;
        memcpy(&pair, weights + k, sizeof pair);
        const __m128i a = _mm_loadl_epi64((const __m128i *)(const void *)row);
        const __m128i b = _mm_loadl_epi64((const __m128i *)(const void *)(row + 3));
        sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_unpacklo_epi16(a, b), _mm_set1_epi32(pair)));
    }
    const __m128 value =
        _mm_add_ps(_mm_mul_ps(_mm_cvtepi32_ps(sum), _mm_loadu_ps(f->scale)), _mm_loadu_ps(f->bias));
    _mm_storel_pi((__m64 *)(void *)out, value);
    _mm_store_ss(out + 2, _mm_movehl_ps(value, value));
}
#else
static inline void row_pixel(const int16_t *row, const int16_t *weights, int taps, const factors *f,
                             int channels, float *out)
{
    row_pixel_plain(row, weights, taps, f, channels, out);
}
#endif

static void row_pass(const int16_t *row, const span *s, const axis *across,
                     const lvni_data_resample_target *t, float *out)
{
    factors f = {.bias = {t->bias[0], t->bias[1], t->bias[2], t->bias[3]}};
    for (int c = 0; c < 4; c++) {
        /* a power of two: exact */
        f.scale[c] = t->scale[c] * (1.0f / (float)(1 << (WEIGHT_BITS + ROW_BITS)));
    }
    for (int x = 0; x < across->n; x++, out += t->step_x) {
        row_pixel(row + (ptrdiff_t)(across->first[x] - s->first) * s->channels,
                  across->weights + (ptrdiff_t)x * across->taps, across->taps, &f, s->channels,
                  out);
    }
}

/* Cut both tables and the row pointers out of scratch->tables. */
static lvn_status tables_reserve(lvni_data_scratch *scratch, axis *across, axis *down,
                                 const uint8_t ***rows)
{
    const int width = across->n, height = down->n;
    const size_t pointers = (size_t)down->taps * sizeof(uint8_t *);
    const size_t firsts = ((size_t)width + (size_t)height) * sizeof(int);
    const size_t weights =
        ((size_t)width * (size_t)across->taps + (size_t)height * (size_t)down->taps) *
        sizeof(int16_t);
    LVN_TRY(lvni_data_buffer_reserve(&scratch->tables, pointers + firsts + weights));
    *rows = scratch->tables.data;
    across->first = (int *)(void *)((char *)scratch->tables.data + pointers);
    down->first = across->first + width;
    across->weights = (int16_t *)(void *)(down->first + height);
    down->weights = across->weights + (size_t)width * (size_t)across->taps;
    return LVN_OK;
}

static span span_find(const axis *across, int channels, int image_end)
{
    int last = 0;
    for (int x = 0; x < across->n; x++) {
        last = max_int(last, across->first[x] + across->taps);
    }
    const int first = across->first[0];
    const int64_t bytes = (int64_t)(min_int(last, image_end) - first) * channels;
    return (span){first, channels, bytes / CHUNK * CHUNK, bytes % CHUNK,
                  (size_t)(last - first) * (size_t)channels + 2 * CHUNK};
}

/* The last bytes of a row may end the buffer: plain code reads exactly those. */
static void column_pass(const uint8_t **rows, const int16_t *weights, int taps, const span *s,
                        int16_t *row)
{
    lvni_data_resample_column(rows, weights, taps, s->inside, row);
    if (s->tail > 0) {
        for (int k = 0; k < taps; k++) {
            rows[k] += s->inside;
        }
        lvni_data_resample_column_plain(rows, weights, taps, s->tail, row + s->inside);
    }
}

/* ---- 16 bits per channel ---- */

/* The same sums, wider: the row in between has 16 bits before the point and ROW_BITS behind it. */
static void column_pass_deep(const uint16_t *const *rows, const int16_t *weights, int taps,
                             int64_t count, int32_t *out)
{
    for (int64_t x = 0; x < count; x++) {
        int32_t sum = 0; /* below 2^30 */
        for (int k = 0; k < taps; k++) {
            sum += weights[k] * rows[k][x];
        }
        out[x] = (sum + (1 << (ROW_SHIFT - 1))) >> ROW_SHIFT;
    }
}

/* 65535 is 255: values are as those of 8 bits, with what lies between them. */
static void row_pass_deep(const int32_t *row, const span *s, const axis *across,
                          const lvni_data_resample_target *t, float *out)
{
    float scale[4];
    for (int c = 0; c < 4; c++) {
        scale[c] = t->scale[c] * (1.0f / (float)(1 << (WEIGHT_BITS + ROW_BITS)) / 257.0f);
    }
    for (int x = 0; x < across->n; x++, out += t->step_x) {
        const int16_t *weights = across->weights + (ptrdiff_t)x * across->taps;
        const int32_t *from = row + (ptrdiff_t)(across->first[x] - s->first) * s->channels;
        for (int c = 0; c < s->channels; c++) {
            int64_t sum = 0;
            for (int k = 0; k < across->taps; k++) {
                sum += (int64_t)weights[k] * from[(ptrdiff_t)k * s->channels + c];
            }
            out[c] = (float)sum * scale[c] + t->bias[c];
        }
    }
}

static lvn_status resample_deep(lvni_data_scratch *scratch, const lvni_data_image *image,
                                const axis *across, const axis *down, const uint16_t **rows,
                                const lvni_data_resample_target *target)
{
    const bool whole = image->columns == 0;
    const int columns = whole ? image->width : image->columns,
              bottom = whole ? image->height : image->top + image->rows;
    const span s = span_find(across, image->channels, image->left + columns);
    const int64_t count = s.inside + s.tail;
    LVN_TRY(lvni_data_buffer_reserve(&scratch->row, s.room * sizeof(int32_t)));
    int32_t *row = scratch->row.data;
    memset(row, 0, s.room * sizeof *row);
    const uint16_t *const corner = image->deep + (ptrdiff_t)(s.first - image->left) * s.channels;
    for (int y = 0; y < down->n; y++) {
        for (int k = 0; k < down->taps; k++) {
            const int at = min_int(down->first[y] + k, bottom - 1) - image->top;
            rows[k] = corner + (ptrdiff_t)at * columns * s.channels;
        }
        column_pass_deep(rows, down->weights + (ptrdiff_t)y * down->taps, down->taps, count, row);
        row_pass_deep(row, &s, across, target, target->data + y * target->step_y);
    }
    return LVN_OK;
}

static lvn_status resample(lvni_data_scratch *scratch, const lvni_data_image *image, axis across,
                           axis down, const lvni_data_resample_target *target)
{
    const uint8_t **rows;
    LVN_TRY(tables_reserve(scratch, &across, &down, &rows));
    axis_fill(&across);
    axis_fill(&down);
    if (image->deep != NULL) {
        return resample_deep(scratch, image, &across, &down, (const uint16_t **)(void *)rows,
                             target);
    }
    const bool whole = image->columns == 0;
    const int columns = whole ? image->width : image->columns,
              bottom = whole ? image->height : image->top + image->rows,
              channels = image->channels == 0 ? 3 : image->channels;
    const span s = span_find(&across, channels, image->left + columns);
    LVN_TRY(lvni_data_buffer_reserve(&scratch->row, s.room * sizeof(int16_t)));
    int16_t *row = scratch->row.data;
    memset(row, 0, s.room * sizeof(int16_t)); /* behind the image: read with weight 0, but read */
    const size_t stride = (size_t)columns * (size_t)channels;
    const uint8_t *const corner = image->rgb + (size_t)(s.first - image->left) * (size_t)channels;
    for (int y = 0; y < down.n; y++) {
        for (int k = 0; k < down.taps; k++) {
            /* a tap below the image has weight 0: any row will do */
            rows[k] =
                corner + (size_t)(min_int(down.first[y] + k, bottom - 1) - image->top) * stride;
        }
        column_pass(rows, down.weights + (ptrdiff_t)y * down.taps, down.taps, &s, row);
        row_pass(row, &s, &across, target, target->data + y * target->step_y);
    }
    return LVN_OK;
}

lvn_status lvni_data_resample(lvni_data_scratch *scratch, const lvni_data_image *image,
                              const lvni_data_box *box, int width, int height,
                              const lvni_data_resample_target *target)
{
    return resample(scratch, image, axis_make(TRIANGLE, box->x, box->width, width, image->width),
                    axis_make(TRIANGLE, box->y, box->height, height, image->height), target);
}

lvn_status lvni_data_resample_area(lvni_data_scratch *scratch, const lvni_data_image *image,
                                   const lvni_data_box *box, int width, int height,
                                   const lvni_data_resample_target *target)
{
    const weighing how = box->width >= width && box->height >= height ? AREA : BORDER;
    return resample(scratch, image, axis_make(how, box->x, box->width, width, image->width),
                    axis_make(how, box->y, box->height, height, image->height), target);
}
