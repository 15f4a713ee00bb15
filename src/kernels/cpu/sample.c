/* Grids of positions from affine maps, and images sampled at positions (ref_sample.c has the
 * formulas). Called through the op table (kernels.h). Positions are computed in f64, so that the
 * nearest pixel is that of the exact position; gradients add in the order of the positions, so
 * teams change nothing. */
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <math.h>
#include <string.h>

/* ---- affine maps ---- */

static double coordinate(int64_t i, int64_t n, bool align_corners)
{
    if (align_corners) {
        return n > 1 ? 2.0 * (double)i / (double)(n - 1) - 1.0 : 0.0;
    }
    return (2.0 * (double)i + 1.0) / (double)n - 1.0;
}

typedef struct affine_job {
    const lvn_affine_attr *a;
    const float *from;
    float *to;
} affine_job;

/* An item is a row of a grid. */
static void grid_range(const void *job, int64_t begin, int64_t end)
{
    const affine_job *j = job;
    const lvn_affine_attr *a = j->a;
    for (int64_t item = begin; item < end; item++) {
        const float *t = j->from + item / a->height * 6;
        float *to = j->to + item * a->width * 2;
        const double y = coordinate(item % a->height, a->height, a->align_corners);
        for (int64_t i = 0; i < a->width; i++) {
            const double x = coordinate(i, a->width, a->align_corners);
            to[2 * i] = (float)((double)t[0] * x + (double)t[1] * y + (double)t[2]);
            to[2 * i + 1] = (float)((double)t[3] * x + (double)t[4] * y + (double)t[5]);
        }
    }
}

/* An item is an image. */
static void theta_range(const void *job, int64_t begin, int64_t end)
{
    const affine_job *j = job;
    const lvn_affine_attr *a = j->a;
    for (int64_t item = begin; item < end; item++) {
        const float *g = j->from + item * a->height * a->width * 2;
        double sum[6] = {0.0};
        for (int64_t p = 0; p < a->height * a->width; p++) {
            const double at[3] = {coordinate(p % a->width, a->width, a->align_corners),
                                  coordinate(p / a->width, a->height, a->align_corners), 1.0};
            for (int k = 0; k < 6; k++) {
                sum[k] += (double)g[2 * p + k / 3] * at[k % 3];
            }
        }
        for (int k = 0; k < 6; k++) {
            j->to[item * 6 + k] = (float)sum[k];
        }
    }
}

lvn_status lvni_cpu_affine_grid(const lvn_kernel_args *args)
{
    const lvn_affine_attr *a = args->attr;
    const affine_job job = {.a = a, .from = LVNI_CF32(args->in[0]), .to = LVNI_F32(args->out[0])};
    const int64_t images = args->out[0]->shape[0];
    if (images == 0) {
        return LVN_OK;
    }
    if (a->transposed) {
        lvni_cpu_par(images, 1, a->height * a->width * 12, theta_range, &job);
    } else {
        lvni_cpu_par(images * a->height, 1, a->width * 4, grid_range, &job);
    }
    return LVN_OK;
}

/* ---- sampling ---- */

enum { CORNERS = 4, CHUNK = 64 }; /* CHUNK: channels that one item of a gradient owns */

typedef struct sample_job {
    const lvn_sample_attr *a;
    int64_t h, w, c, positions, chunks; /* of an image; per image */
    const float *x, *grid, *dy;
    float *y;
} sample_job;

static double position(const lvn_sample_attr *a, double g, int64_t size, double *slope)
{
    const double half = a->align_corners ? (double)(size - 1) / 2.0 : (double)size / 2.0,
                 first = a->align_corners ? 0.0 : -0.5;
    double at = (g + 1.0) * half + first;
    *slope = half;
    if (a->outside == LVN_OUTSIDE_ZEROS) {
        return at;
    }
    if (a->outside == LVN_OUTSIDE_REFLECTION) {
        const double distance = fabs(at - first), span = 2.0 * half,
                     flips = span > 0.0 ? floor(distance / span) : 0.0,
                     rest = span > 0.0 ? fmod(distance, span) : 0.0;
        const bool turned = fmod(flips, 2.0) != 0.0;
        *slope = (at < first) != turned ? -half : half;
        at = first + (turned ? span - rest : rest);
    }
    if (at > 0.0 && at < (double)(size - 1)) {
        return at;
    }
    *slope = 0.0;
    return at > 0.0 ? (double)(size - 1) : 0.0; /* NaN too */
}

/* Up to four pixels around a position: top left, top right, bottom left, bottom right; with
 * `nearest` the first one alone. */
typedef struct corners {
    int64_t at[CORNERS]; /* pixel of the image; -1: outside, it counts as 0 */
    float weight[CORNERS];
    double wide, high; /* how far right of the left, and below the top ones */
    double slope[2];   /* pixels per coordinate */
} corners;

static int64_t pixel(const sample_job *j, int64_t row, int64_t column)
{
    return row >= 0 && row < j->h && column >= 0 && column < j->w ? row * j->w + column : -1;
}

static void find(const sample_job *j, const float g[2], corners *out)
{
    const double x = position(j->a, (double)g[0], j->w, &out->slope[0]),
                 y = position(j->a, (double)g[1], j->h, &out->slope[1]);
    for (int k = 0; k < CORNERS; k++) {
        out->at[k] = -1;
        out->weight[k] = 0.0f;
    }
    out->wide = out->high = 0.0;
    if (!(x >= -1.0 && x < (double)j->w && y >= -1.0 && y < (double)j->h)) {
        return;
    }
    if (j->a->nearest) {
        out->at[0] = pixel(j, (int64_t)rint(y), (int64_t)rint(x));
        out->weight[0] = 1.0f;
        return;
    }
    const double left = floor(x), top = floor(y);
    out->wide = x - left;
    out->high = y - top;
    for (int k = 0; k < CORNERS; k++) {
        out->at[k] = pixel(j, (int64_t)top + k / 2, (int64_t)left + k % 2);
        out->weight[k] = (float)((k % 2 == 0 ? 1.0 - out->wide : out->wide) *
                                 (k / 2 == 0 ? 1.0 - out->high : out->high));
    }
}

/* y += weight * x */
static void add(float *restrict y, const float *restrict x, float weight, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] += weight * x[i];
    }
}

/* An item is a position. */
static void sample_range(const void *job, int64_t begin, int64_t end)
{
    const sample_job *j = job;
    for (int64_t item = begin; item < end; item++) {
        const float *image = j->x + item / j->positions * j->h * j->w * j->c;
        float *y = j->y + item * j->c;
        corners at;
        find(j, j->grid + 2 * item, &at);
        memset(y, 0, (size_t)j->c * sizeof *y);
        for (int k = 0; k < CORNERS; k++) {
            if (at.at[k] >= 0 && at.weight[k] != 0.0f) {
                add(y, image + at.at[k] * j->c, at.weight[k], j->c);
            }
        }
    }
}

lvn_status lvni_cpu_grid_sample(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0], *grid = args->in[1];
    const sample_job job = {.a = args->attr,
                            .h = x->shape[1],
                            .w = x->shape[2],
                            .c = x->shape[3],
                            .positions = grid->shape[1] * grid->shape[2],
                            .x = LVNI_CF32(x),
                            .grid = LVNI_CF32(grid),
                            .y = LVNI_F32(args->out[0])};
    lvni_cpu_par(x->shape[0] * job.positions, 1, CORNERS * (job.c + 4), sample_range, &job);
    return LVN_OK;
}

/* An item is CHUNK channels of an image; its terms come in the order of the positions. */
static void input_range(const void *job, int64_t begin, int64_t end)
{
    const sample_job *j = job;
    for (int64_t item = begin; item < end; item++) {
        const int64_t n = item / j->chunks, first = item % j->chunks * CHUNK,
                      many = j->c - first < CHUNK ? j->c - first : CHUNK;
        float *image = j->y + n * j->h * j->w * j->c + first;
        for (int64_t p = 0; p < j->h * j->w; p++) {
            memset(image + p * j->c, 0, (size_t)many * sizeof *image);
        }
        for (int64_t o = n * j->positions; o < (n + 1) * j->positions; o++) {
            corners at;
            find(j, j->grid + 2 * o, &at);
            for (int k = 0; k < CORNERS; k++) {
                if (at.at[k] >= 0 && at.weight[k] != 0.0f) {
                    add(image + at.at[k] * j->c, j->dy + o * j->c + first, at.weight[k], many);
                }
            }
        }
    }
}

lvn_status lvni_cpu_grid_sample_grad_input(const lvn_kernel_args *args)
{
    const lvn_tensor *dx = args->out[0], *grid = args->in[1];
    sample_job job = {.a = args->attr,
                      .h = dx->shape[1],
                      .w = dx->shape[2],
                      .c = dx->shape[3],
                      .positions = grid->shape[1] * grid->shape[2],
                      .dy = LVNI_CF32(args->in[0]),
                      .grid = LVNI_CF32(grid),
                      .y = LVNI_F32(args->out[0])};
    job.chunks = lvni_cpu_div_up(job.c, CHUNK);
    lvni_cpu_par(dx->shape[0] * job.chunks, 1,
                 (job.positions * CORNERS + job.h * job.w) * (job.c < CHUNK ? job.c : CHUNK),
                 input_range, &job);
    return LVN_OK;
}

/* An item is a position: how its values grow to the right and downwards, times dy. */
static void slope_range(const void *job, int64_t begin, int64_t end)
{
    const sample_job *j = job;
    for (int64_t item = begin; item < end; item++) {
        const float *image = j->x + item / j->positions * j->h * j->w * j->c,
                    *dy = j->dy + item * j->c;
        corners at;
        double right = 0.0, down = 0.0;
        find(j, j->grid + 2 * item, &at);
        for (int k = 0; k < CORNERS && !j->a->nearest; k++) {
            if (at.at[k] < 0) {
                continue;
            }
            double sum = 0.0;
            for (int64_t i = 0; i < j->c; i++) {
                sum += (double)dy[i] * (double)image[at.at[k] * j->c + i];
            }
            right += (k % 2 == 0 ? -sum : sum) * (k / 2 == 0 ? 1.0 - at.high : at.high);
            down += (k / 2 == 0 ? -sum : sum) * (k % 2 == 0 ? 1.0 - at.wide : at.wide);
        }
        j->y[2 * item] = (float)(right * at.slope[0]);
        j->y[2 * item + 1] = (float)(down * at.slope[1]);
    }
}

lvn_status lvni_cpu_grid_sample_grad_grid(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[1], *grid = args->in[2];
    const sample_job job = {.a = args->attr,
                            .h = x->shape[1],
                            .w = x->shape[2],
                            .c = x->shape[3],
                            .positions = grid->shape[1] * grid->shape[2],
                            .x = LVNI_CF32(x),
                            .grid = LVNI_CF32(grid),
                            .dy = LVNI_CF32(args->in[0]),
                            .y = LVNI_F32(args->out[0])};
    lvni_cpu_par(x->shape[0] * job.positions, 1, CORNERS * (job.c + 4), slope_range, &job);
    return LVN_OK;
}
