/* Reference kernels: grids of positions from affine maps, and images sampled at positions, as
 * torch.nn.functional.affine_grid and grid_sample define them (Jaderberg et al. 2015, eq. 1 and 5).
 * A coordinate of -1 is one border of the image, 1 the other: the centres of the first and last
 * pixel with align_corners, else their outer edges. */
#include "kernels/ref/ref_impl.h"

#include <math.h>

/* ---- affine maps ---- */

static double coordinate(int64_t i, int64_t n, bool align_corners)
{
    if (align_corners) {
        return n > 1 ? 2.0 * (double)i / (double)(n - 1) - 1.0 : 0.0;
    }
    return (2.0 * (double)i + 1.0) / (double)n - 1.0;
}

/* grid[n][i][j][k] = theta[n][k][0] x + theta[n][k][1] y + theta[n][k][2]; transposed: the sums of
 * the same terms over i and j. */
lvn_status lvni_ref_affine_grid(const lvn_kernel_args *args)
{
    const lvn_affine_attr *a = args->attr;
    const double *from = lvni_ref_in(args, 0);
    double *to = lvni_ref_out(args, 0);
    const int64_t images = args->out[0]->shape[0], pixels = a->height * a->width;
    for (int64_t e = 0; e < lvn_numel(args->out[0]); e++) {
        to[e] = 0.0;
    }
    for (int64_t p = 0; p < images * pixels; p++) {
        const double at[3] = {coordinate(p % a->width, a->width, a->align_corners),
                              coordinate(p / a->width % a->height, a->height, a->align_corners),
                              1.0};
        for (int64_t k = 0; k < 6; k++) {
            const int64_t grid = p * 2 + k / 3, theta = p / pixels * 6 + k;
            if (a->transposed) {
                to[theta] += from[grid] * at[k % 3];
            } else {
                to[grid] += from[theta] * at[k % 3];
            }
        }
    }
    return LVN_OK;
}

/* ---- sampling ---- */

/* A coordinate in pixels, where the rule for what is outside has moved it; *slope: the derivative
 * by the coordinate, 0 where it was moved to the border. */
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
    return at > 0.0 ? (double)(size - 1) : 0.0;
}

/* The weight of pixel i at position `at` along one axis; *slope: its derivative by the position. */
static double weight(const lvn_sample_attr *a, double at, int64_t i, double *slope)
{
    *slope = 0.0;
    if (a->nearest) {
        return rint(at) == (double)i ? 1.0 : 0.0;
    }
    const double low = floor(at);
    if (low == (double)i) {
        *slope = -1.0;
        return 1.0 - (at - low);
    }
    if (low + 1.0 == (double)i) {
        *slope = 1.0;
        return at - low;
    }
    return 0.0;
}

/* One position and one pixel: the weight, and its derivatives by the coordinates x and y. */
typedef struct pair {
    double weight, by_x, by_y;
} pair;

static pair look(const lvn_sample_attr *a, const double g[2], int64_t h, int64_t w, int64_t row,
                 int64_t column)
{
    double pixels_x, pixels_y, slope_x, slope_y;
    const double x = position(a, g[0], w, &pixels_x), y = position(a, g[1], h, &pixels_y);
    const double wide = weight(a, x, column, &slope_x), high = weight(a, y, row, &slope_y);
    return (pair){wide * high, slope_x * high * pixels_x, wide * slope_y * pixels_y};
}

/* What a visit has: elements of the channels of a position and of a pixel. */
typedef struct visit {
    int64_t grid, of_position, of_pixel, c;
    pair p;
} visit;
typedef void (*visitor)(const visit *v, const lvn_kernel_args *args);

/* All pairs of a position of the grid and a pixel of its image that has a weight there. */
static void visit_all(const lvn_kernel_args *args, const lvn_tensor *grid, const int64_t image[4],
                      visitor see)
{
    const double *g = grid->data;
    const int64_t h = image[1], w = image[2], c = image[3],
                  positions = grid->shape[1] * grid->shape[2];
    for (int64_t o = 0; o < image[0] * positions; o++) {
        for (int64_t i = 0; i < h * w; i++) {
            const visit v = {.grid = 2 * o,
                             .of_position = o * c,
                             .of_pixel = (o / positions * h * w + i) * c,
                             .c = c,
                             .p = look(args->attr, g + 2 * o, h, w, i / w, i % w)};
            if (v.p.weight != 0.0 || v.p.by_x != 0.0 || v.p.by_y != 0.0) {
                see(&v, args);
            }
        }
    }
}

static void clear(const lvn_kernel_args *args)
{
    for (int64_t e = 0; e < lvn_numel(args->out[0]); e++) {
        lvni_ref_out(args, 0)[e] = 0.0;
    }
}

static void see_forward(const visit *v, const lvn_kernel_args *args)
{
    for (int64_t k = 0; k < v->c; k++) {
        lvni_ref_out(args, 0)[v->of_position + k] +=
            v->p.weight * lvni_ref_in(args, 0)[v->of_pixel + k];
    }
}

lvn_status lvni_ref_grid_sample(const lvn_kernel_args *args)
{
    clear(args);
    visit_all(args, args->in[1], args->in[0]->shape, see_forward);
    return LVN_OK;
}

static void see_input(const visit *v, const lvn_kernel_args *args)
{
    for (int64_t k = 0; k < v->c; k++) {
        lvni_ref_out(args, 0)[v->of_pixel + k] +=
            v->p.weight * lvni_ref_in(args, 0)[v->of_position + k];
    }
}

lvn_status lvni_ref_grid_sample_grad_input(const lvn_kernel_args *args)
{
    clear(args);
    visit_all(args, args->in[1], args->out[0]->shape, see_input);
    return LVN_OK;
}

static void see_grid(const visit *v, const lvn_kernel_args *args)
{
    for (int64_t k = 0; k < v->c; k++) {
        const double term =
            lvni_ref_in(args, 0)[v->of_position + k] * lvni_ref_in(args, 1)[v->of_pixel + k];
        lvni_ref_out(args, 0)[v->grid] += v->p.by_x * term;
        lvni_ref_out(args, 0)[v->grid + 1] += v->p.by_y * term;
    }
}

lvn_status lvni_ref_grid_sample_grad_grid(const lvn_kernel_args *args)
{
    clear(args);
    visit_all(args, args->in[2], args->in[1]->shape, see_grid);
    return LVN_OK;
}
