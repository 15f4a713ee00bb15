/* Maps of keypoints: soft-argmax, its gradient, and maps to train with (ref_heatmap.c has the
 * formulas). Called through the op table (kernels.h).
 *
 * A map doubled in size is a linear map of its rows and one of its columns, each with a few taps
 * per row of the result. Columns are doubled first, then row after row is made, used and
 * forgotten: memory is a map of h rows per thread. Sums are rescaled when a row has a new maximum
 * (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"). The doubled maps are
 * computed in f64, since the temperature multiplies what they are rounded by. Maps are computed
 * alone, so teams change nothing. */
#include "core/math.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"
#include "tensor/device.h"

#include <math.h>
#include <string.h>

enum { OF_MAP = 3, KEPT = 5, TOP = 0, SUM, AT_X, AT_Y, CONFIDENCE };
enum { RADIUS = 2, LINE = 5, CUBIC = 4 };
/* Pixels of the small map under one of the large one: 6, 9, 10, 11 for 1 to 4 doublings. */
enum { MOST_TAPS = 12 };

/* ---- doublings along one axis ---- */

/* Row o of the result is the sum over k of weight[o * MOST_TAPS + k] times row first[o] + k. */
typedef struct band {
    int64_t n, large, taps; /* rows before and behind; of the row with most */
    int64_t *first;
    double *weight;
} band;

static size_t band_bytes(int64_t n, int doublings)
{
    const size_t large = (size_t)n << doublings;
    return large * (sizeof(int64_t) + MOST_TAPS * sizeof(double));
}

/* Weights at positions from `first` on, before and behind one step of a transposed map. */
typedef struct row_weights {
    int64_t first, n;
    double weight[2 * MOST_TAPS];
} row_weights;

static void add_weight(row_weights *r, int64_t at, double weight)
{
    r->weight[at - r->first] += weight;
    r->n = at - r->first + 1 > r->n ? at - r->first + 1 : r->n;
}

/* Back through the filter of a line of n pixels. */
static row_weights through_filter(const row_weights *r, int64_t n)
{
    static const double weight[LINE] = {1.0 / 16, 4.0 / 16, 6.0 / 16, 4.0 / 16, 1.0 / 16};
    row_weights out = {.first = r->first > RADIUS ? r->first - RADIUS : 0};
    for (int64_t i = 0; i < r->n; i++) {
        for (int k = 0; k < LINE; k++) {
            const int64_t at = r->first + i + k - RADIUS;
            if (at >= 0 && at < n) {
                add_weight(&out, at, r->weight[i] * weight[k]);
            }
        }
    }
    return out;
}

/* Back through the interpolation of n pixels to 2 n: an even pixel lies at 3/4, an odd one at 1/4
 * between two (Keys 1981, a = -3/4). */
static row_weights through_cubic(const row_weights *r, int64_t n)
{
    static const double odd[CUBIC] = {-27.0 / 256, 225.0 / 256, 67.0 / 256, -9.0 / 256};
    const int64_t start = (r->first + 1) / 2 - CUBIC / 2;
    row_weights out = {.first = start < 0 ? 0 : start < n ? start : n - 1};
    for (int64_t i = 0; i < r->n; i++) {
        const int64_t at = r->first + i, left = (at + 1) / 2 - CUBIC / 2;
        for (int k = 0; k < CUBIC; k++) {
            const int64_t pixel = left + k < 0 ? 0 : left + k < n ? left + k : n - 1;
            add_weight(&out, pixel, r->weight[i] * odd[at % 2 != 0 ? k : CUBIC - 1 - k]);
        }
    }
    return out;
}

static band band_make(int64_t n, int doublings, void *memory)
{
    band b = {.n = n, .large = n << doublings, .first = memory};
    b.weight = (double *)(void *)(b.first + b.large);
    memset(b.weight, 0, (size_t)b.large * MOST_TAPS * sizeof *b.weight);
    for (int64_t o = 0; o < b.large; o++) {
        row_weights r = {.first = o, .n = 1, .weight = {1.0}};
        for (int64_t size = b.large; size > n; size /= 2) {
            r = through_filter(&r, size);
            r = through_cubic(&r, size / 2);
        }
        b.first[o] = r.first;
        b.taps = r.n > b.taps ? r.n : b.taps;
        memcpy(b.weight + o * MOST_TAPS, r.weight, (size_t)r.n * sizeof *r.weight);
    }
    for (int64_t o = 0; o < b.large; o++) { /* all rows have as many, within the map */
        const int64_t most = n - b.taps, back = b.first[o] > most ? b.first[o] - most : 0;
        double *w = b.weight + o * MOST_TAPS;
        memmove(w + back, w, (size_t)(b.taps - back) * sizeof *w);
        memset(w, 0, (size_t)back * sizeof *w);
        b.first[o] -= back;
    }
    return b;
}

/* ---- one map ---- */

typedef struct job {
    const lvni_cpu_vec *v;
    band rows, columns;
    int64_t keypoints, slots, maps;
    int doublings;
    double temperature;
    const float *x, *dy, *kept;
    float *y, *keep, *dx; /* keep may be NULL */
    double *memory;       /* `each` values per slot */
    int64_t each;
} job;

/* Where things lie in the memory of a slot. */
typedef struct space {
    double *turned; /* (w, h): the map, columns as rows */
    double *column; /* (W, h): its columns doubled, or a row (W) of sums */
    double *wide;   /* (h, W) */
    double *row;    /* (W): of the large map */
    float *e;       /* (W): its soft-max, not divided */
    double *back;   /* (h, W): gradient of `wide` */
} space;

static int64_t space_values(const job *j, bool gradient)
{
    const int64_t h = j->rows.n, large = j->columns.large;
    return j->columns.n * h + (gradient ? 3 : 2) * large * h + 2 * large;
}

static space space_of(const job *j, int64_t slot)
{
    const int64_t h = j->rows.n, large = j->columns.large;
    space s = {.turned = j->memory + slot * j->each};
    s.column = s.turned + j->columns.n * h;
    s.wide = s.column + large * h;
    s.row = s.wide + large * h;
    s.e = (float *)(void *)(s.row + large);
    s.back = s.row + 2 * large;
    return s;
}

/* (rows, columns) to (columns, rows) */
static void transpose(const double *from, double *to, int64_t rows, int64_t columns)
{
    enum { TILE = 8 };
    for (int64_t r = 0; r < rows; r += TILE) {
        for (int64_t c = 0; c < columns; c++) {
            for (int64_t i = r; i < rows && i < r + TILE; i++) {
                to[c * rows + i] = from[i * columns + c];
            }
        }
    }
}

static const float *first_of_map(const job *j, const float *maps, int64_t map)
{
    return maps + map / j->keypoints * j->rows.n * j->columns.n * j->keypoints + map % j->keypoints;
}

/* `wide` of a map. */
static void double_columns(const job *j, const space *s, int64_t map)
{
    const float *x = first_of_map(j, j->x, map);
    const int64_t h = j->rows.n, w = j->columns.n;
    for (int64_t r = 0; r < h; r++) {
        for (int64_t c = 0; c < w; c++) {
            s->turned[c * h + r] = (double)x[(r * w + c) * j->keypoints];
        }
    }
    const band *b = &j->columns;
    for (int64_t o = 0; o < b->large; o++) {
        j->v->mix_f64(s->turned + b->first[o] * h, h, b->weight + o * MOST_TAPS, b->taps,
                      s->column + o * h, h);
    }
    transpose(s->column, s->wide, b->large, h);
}

static void double_row(const job *j, const space *s, int64_t o)
{
    const int64_t large = j->columns.large;
    j->v->mix_f64(s->wide + j->rows.first[o] * large, large, j->rows.weight + o * MOST_TAPS,
                  j->rows.taps, s->row, large);
}

/* The pixels [begin, end) of an axis in the window around a position. */
static void window(double at, int64_t n, int64_t *begin, int64_t *end)
{
    const double middle = trunc(at);
    const bool there = middle >= -RADIUS && middle < (double)(n + RADIUS); /* a NaN is not */
    const int64_t from = there ? (int64_t)middle - RADIUS : n;
    *begin = from < 0 ? 0 : from;
    *end = from + LINE < n ? from + LINE : n;
}

/* Sum of e over the window, in the order of rows. */
static double sum_window(const job *j, const space *s, double top, const float *found)
{
    int64_t top_row, end_row, left, right;
    double sum = 0.0;
    window((double)found[AT_Y], j->rows.large, &top_row, &end_row);
    window((double)found[AT_X], j->columns.large, &left, &right);
    for (int64_t o = top_row; o < end_row; o++) {
        double_row(j, s, o);
        j->v->exp_f64(s->row + left, top, j->temperature, s->e, right - left);
        for (int64_t i = 0; i < right - left; i++) {
            sum += (double)s->e[i];
        }
    }
    return sum;
}

/* Sums so far: of e, of e times row, and of each column. */
typedef struct sums {
    double top, all, rows;
} sums;

static void add_row(const job *j, const space *s, int64_t o, sums *t)
{
    const int64_t large = j->columns.large;
    double_row(j, s, o);
    const double top = j->v->max_f64(s->row, large, t->top);
    if (top > t->top) {
        const double less = lvni_core_exp(j->temperature * (t->top - top));
        t->all *= less;
        t->rows *= less;
        for (int64_t i = 0; i < large; i++) {
            s->column[i] *= less;
        }
        t->top = top;
    }
    j->v->exp_f64(s->row, t->top, j->temperature, s->e, large);
    const double sum = j->v->add_exp_row(s->e, s->column, large);
    t->all += sum;
    t->rows += sum * (double)o;
}

static void find_position(const job *j, const space *s, float found[KEPT])
{
    const int64_t large = j->columns.large;
    sums t = {.top = -(double)INFINITY};
    memset(s->column, 0, (size_t)large * sizeof *s->column);
    for (int64_t o = 0; o < j->rows.large; o++) {
        add_row(j, s, o, &t);
    }
    double all = 0.0, columns = 0.0;
    for (int64_t i = 0; i < large; i++) {
        all += s->column[i];
        columns += s->column[i] * (double)i;
    }
    /* the sum that belongs to the maximum as it is kept */
    found[TOP] = (float)t.top;
    const double kept_top = (double)found[TOP],
                 by = lvni_core_exp(j->temperature * (t.top - kept_top));
    found[SUM] = (float)(t.all * by);
    found[AT_X] = (float)(columns / all);
    found[AT_Y] = (float)(t.rows / t.all);
    found[CONFIDENCE] = (float)(sum_window(j, s, kept_top, found) / (t.all * by));
}

/* An item is a slot: a run of maps, with memory of its own. */
static void position_range(const void *work, int64_t begin, int64_t end)
{
    const job *j = work;
    for (int64_t slot = begin; slot < end; slot++) {
        const space s = space_of(j, slot);
        const float shift = (float)(((1 << j->doublings) - 1) / 2.0);
        for (int64_t m = j->maps * slot / j->slots; m < j->maps * (slot + 1) / j->slots; m++) {
            float found[KEPT];
            double_columns(j, &s, m);
            find_position(j, &s, found);
            j->y[OF_MAP * m] = found[AT_X] - shift;
            j->y[OF_MAP * m + 1] = found[AT_Y] - shift;
            j->y[OF_MAP * m + 2] = found[CONFIDENCE];
            if (j->keep != NULL) {
                memcpy(j->keep + KEPT * m, found, sizeof found);
            }
        }
    }
}

/* ---- the gradient ---- */

/* Of row o of the large map, added to that of its taps. */
static void add_row_gradient(const job *j, const space *s, int64_t o, const float *dy,
                             const float *kept)
{
    const int64_t large = j->columns.large;
    const double by = j->temperature / (double)kept[SUM];
    int64_t begin, end;
    double_row(j, s, o);
    j->v->exp_f64(s->row, (double)kept[TOP], j->temperature, s->e, large);
    const double level =
        (double)dy[1] * ((double)o - (double)kept[AT_Y]) - (double)dy[2] * (double)kept[CONFIDENCE];
    j->v->tilt_row(s->e, (float)((double)dy[0] * by), kept[AT_X], (float)(level * by), s->row,
                   large);
    window((double)kept[AT_Y], j->rows.large, &begin, &end);
    if (o >= begin && o < end) {
        window((double)kept[AT_X], large, &begin, &end);
        for (int64_t i = begin; i < end; i++) {
            s->row[i] += (double)dy[2] * by * (double)s->e[i];
        }
    }
    j->v->spread_f64(s->row, j->rows.weight + o * MOST_TAPS, j->rows.taps,
                     s->back + j->rows.first[o] * large, large, large);
}

static void map_gradient(const job *j, const space *s, int64_t map)
{
    const int64_t h = j->rows.n, w = j->columns.n;
    const band *b = &j->columns;
    memset(s->back, 0, (size_t)(h * b->large) * sizeof *s->back);
    for (int64_t o = 0; o < j->rows.large; o++) {
        add_row_gradient(j, s, o, j->dy + OF_MAP * map, j->kept + KEPT * map);
    }
    transpose(s->back, s->column, h, b->large);
    memset(s->turned, 0, (size_t)(w * h) * sizeof *s->turned);
    for (int64_t o = 0; o < b->large; o++) {
        j->v->spread_f64(s->column + o * h, b->weight + o * MOST_TAPS, b->taps,
                         s->turned + b->first[o] * h, h, h);
    }
    float *dx = j->dx + (first_of_map(j, j->x, map) - j->x);
    for (int64_t r = 0; r < h; r++) {
        for (int64_t c = 0; c < w; c++) {
            dx[(r * w + c) * j->keypoints] = (float)s->turned[c * h + r];
        }
    }
}

static void gradient_range(const void *work, int64_t begin, int64_t end)
{
    const job *j = work;
    for (int64_t slot = begin; slot < end; slot++) {
        const space s = space_of(j, slot);
        for (int64_t m = j->maps * slot / j->slots; m < j->maps * (slot + 1) / j->slots; m++) {
            double_columns(j, &s, m);
            map_gradient(j, &s, m);
        }
    }
}

/* ---- all maps ---- */

static lvn_status run_maps(const lvn_tensor *maps, const lvn_soft_argmax_attr *a, job *j,
                           bool gradient)
{
    enum { COST = 48 }; /* of a pixel of the large map: taps, and an exponential */
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const int64_t h = maps->shape[1], w = maps->shape[2];
    j->maps = maps->shape[0] * maps->shape[3];
    if (ctx == NULL || j->maps == 0) {
        return ctx == NULL ? lvn_last_error()->code : LVN_OK;
    }
    j->v = lvni_cpu_isa();
    j->rows = (band){.n = h, .large = h << a->doublings};
    j->columns = (band){.n = w, .large = w << a->doublings};
    j->slots = ctx->team < j->maps ? ctx->team : j->maps;
    j->each = space_values(j, gradient);
    const size_t of_rows = band_bytes(h, a->doublings), of_columns = band_bytes(w, a->doublings);
    char *memory = lvni_cpu_scratch(
        LVNI_SCRATCH_OWN, of_rows + of_columns + (size_t)(j->slots * j->each) * sizeof(double));
    if (memory == NULL || lvni_tensor_device_dry_run()) {
        return memory == NULL ? lvn_last_error()->code : LVN_OK;
    }
    j->rows = band_make(h, a->doublings, memory);
    j->columns = band_make(w, a->doublings, memory + of_rows);
    j->keypoints = maps->shape[3];
    j->doublings = a->doublings;
    j->temperature = a->temperature;
    j->x = LVNI_CF32(maps);
    j->memory = (double *)(void *)(memory + of_rows + of_columns);
    lvni_cpu_par(j->slots, 1, j->maps / j->slots * j->rows.large * j->columns.large * COST,
                 gradient ? gradient_range : position_range, j);
    return LVN_OK;
}

lvn_status lvni_cpu_soft_argmax2d(const lvn_kernel_args *args)
{
    job j = {.y = LVNI_F32(args->out[0]),
             .keep = args->out[1] == NULL ? NULL : LVNI_F32(args->out[1])};
    return run_maps(args->in[0], args->attr, &j, false);
}

lvn_status lvni_cpu_soft_argmax2d_grad(const lvn_kernel_args *args)
{
    job j = {
        .dy = LVNI_CF32(args->in[0]), .kept = LVNI_CF32(args->in[2]), .dx = LVNI_F32(args->out[0])};
    return run_maps(args->in[1], args->attr, &j, true);
}

/* ---- maps to train with ---- */

typedef struct draw_job {
    const lvn_heatmap_attr *a;
    int64_t keypoints;
    const float *points, *kind;
    float *y;
} draw_job;

enum { CHUNK = 256 }; /* columns that are drawn at once */

/* Of a keypoint: where it is, and what its map's values are divided by the sum of; factor 0: a map
 * of zeros. */
typedef struct pen {
    double x, y, factor;
    bool even; /* the same everywhere */
} pen;

/* A factor of the value in row or column i. */
static double height_at(const lvn_heatmap_attr *a, const pen *p, int64_t i, double at)
{
    const double d = (double)i - at;
    return p->even ? 1.0 : lvni_core_exp(-d * d / (2.0 * a->sigma * a->sigma));
}

static pen take_pen(const draw_job *j, int64_t map)
{
    const lvn_heatmap_attr *a = j->a;
    const float kind = j->kind[map];
    pen p = {.x = (double)j->points[2 * map] * a->scale,
             .y = (double)j->points[2 * map + 1] * a->scale,
             .even = kind == 1.0f};
    const bool there = p.x >= -1.0 && p.x <= (double)a->width + 1.0 && p.y >= -1.0 &&
                       p.y <= (double)a->height + 1.0;
    double wide = 0.0, high = 0.0;
    if (!p.even && !(kind == 2.0f && there)) {
        return p;
    }
    for (int64_t i = 0; i < a->width; i++) {
        wide += height_at(a, &p, i, p.x);
    }
    for (int64_t i = 0; i < a->height; i++) {
        high += height_at(a, &p, i, p.y);
    }
    p.factor = wide * high > 0.0 ? 1.0 / (wide * high) : 0.0;
    return p;
}

/* Up to CHUNK columns from `first` on; y: of the map's first pixel. */
static void draw(const draw_job *j, const pen *p, int64_t first, float *y)
{
    const lvn_heatmap_attr *a = j->a;
    const int64_t n = a->width - first < CHUNK ? a->width - first : CHUNK;
    double column[CHUNK];
    for (int64_t c = 0; c < n; c++) {
        column[c] = p->factor == 0.0 ? 0.0 : height_at(a, p, first + c, p->x);
    }
    for (int64_t r = 0; r < a->height; r++) {
        const double row = p->factor == 0.0 ? 0.0 : p->factor * height_at(a, p, r, p->y);
        float *to = y + (r * a->width + first) * j->keypoints;
        for (int64_t c = 0; c < n; c++) {
            to[c * j->keypoints] = (float)(row * column[c]);
        }
    }
}

/* An item is an image. */
static void draw_range(const void *work, int64_t begin, int64_t end)
{
    const draw_job *j = work;
    const int64_t k = j->keypoints, each = j->a->height * j->a->width * k;
    for (int64_t map = begin * k; map < end * k; map++) {
        const pen p = take_pen(j, map);
        for (int64_t first = 0; first < j->a->width; first += CHUNK) {
            draw(j, &p, first, j->y + map / k * each + map % k);
        }
    }
}

lvn_status lvni_cpu_heatmap2d(const lvn_kernel_args *args)
{
    const int64_t images = args->in[1]->shape[0];
    const draw_job j = {.a = args->attr,
                        .keypoints = args->in[1]->shape[1],
                        .points = LVNI_CF32(args->in[0]),
                        .kind = LVNI_CF32(args->in[1]),
                        .y = LVNI_F32(args->out[0])};
    if (images > 0) {
        lvni_cpu_par(images, 1, lvn_numel(args->out[0]) / images, draw_range, &j);
    }
    return LVN_OK;
}
