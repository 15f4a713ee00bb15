/* Reference kernels: where the maxima of maps are, and the maps of keypoints, as Biswas et al. 2024
 * ("Lightning Pose") define them: a map is doubled in size several times by bicubic interpolation
 * (Keys 1981, a = -3/4) and a filter, and its soft-max is the distribution of the position. */
#include "kernels/ref/ref_impl.h"

#include "core/alloc.h"

#include <math.h>
#include <string.h>

enum { OF_MAP = 3, KEPT = 5, RADIUS = 2, LINE = 5 };

/* ---- doubling ---- */

static double keys(double distance)
{
    const double d = fabs(distance), a = -0.75;
    return d <= 1.0  ? ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
           : d < 2.0 ? a * (((d - 5.0) * d + 8.0) * d - 4.0)
                     : 0.0;
}

static int64_t inside(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* A line of n values `step` apart to 2 n values, or the sums of its gradient back. */
static void interpolate(double *small, double *large, int64_t n, int64_t step, bool back)
{
    for (int64_t i = 0; i < 2 * n; i++) {
        const double at = ((double)i + 0.5) / 2.0 - 0.5;
        const int64_t left = (int64_t)floor(at);
        for (int64_t k = left - 1; k <= left + 2; k++) {
            const double w = keys(at - (double)k);
            if (back) {
                small[inside(k, n) * step] += w * large[i * step];
            } else {
                large[i * step] += w * small[inside(k, n) * step];
            }
        }
    }
}

/* [1 4 6 4 1] / 16 along a line, zeros outside; its own transpose. */
static void filter(const double *from, double *to, int64_t n, int64_t step)
{
    static const double weight[LINE] = {1.0, 4.0, 6.0, 4.0, 1.0};
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < LINE; k++) {
            const int64_t j = i + k - RADIUS;
            to[i * step] += j < 0 || j >= n ? 0.0 : weight[k] / 16.0 * from[j * step];
        }
    }
}

typedef struct map {
    int64_t h, w;
    double *value; /* owned */
} map;

static map make_map(int64_t h, int64_t w)
{
    return (map){h, w, lvni_core_calloc(LVNI_TAG_KERNEL, (size_t)(h * w), sizeof(double))};
}

static map filter_both(map x)
{
    map rows = make_map(x.h, x.w), y = make_map(x.h, x.w);
    const bool there = rows.value != NULL && y.value != NULL;
    for (int64_t i = 0; there && i < x.h; i++) {
        filter(x.value + i * x.w, rows.value + i * x.w, x.w, 1);
    }
    for (int64_t j = 0; there && j < x.w; j++) {
        filter(rows.value + j, y.value + j, x.h, x.w);
    }
    lvni_core_free(rows.value);
    if (!there) {
        lvni_core_free(y.value);
        y.value = NULL;
    }
    return y;
}

/* Frees x; a map without memory passes through. */
static map enlarge(map x)
{
    map wide = make_map(x.h, 2 * x.w), large = make_map(2 * x.h, 2 * x.w), y = {0};
    if (x.value != NULL && wide.value != NULL && large.value != NULL) {
        for (int64_t i = 0; i < x.h; i++) {
            interpolate(x.value + i * x.w, wide.value + i * 2 * x.w, x.w, 1, false);
        }
        for (int64_t j = 0; j < 2 * x.w; j++) {
            interpolate(wide.value + j, large.value + j, x.h, 2 * x.w, false);
        }
        y = filter_both(large);
    }
    lvni_core_free(x.value);
    lvni_core_free(wide.value);
    lvni_core_free(large.value);
    return y;
}

/* The transpose of enlarge. */
static map reduce(map dy)
{
    map large = dy.value == NULL ? dy : filter_both(dy), wide = make_map(dy.h / 2, dy.w),
        x = make_map(dy.h / 2, dy.w / 2);
    const bool there = large.value != NULL && wide.value != NULL && x.value != NULL;
    for (int64_t j = 0; there && j < dy.w; j++) {
        interpolate(wide.value + j, large.value + j, dy.h / 2, dy.w, true);
    }
    for (int64_t i = 0; there && i < x.h; i++) {
        interpolate(x.value + i * x.w, wide.value + i * dy.w, x.w, 1, true);
    }
    lvni_core_free(dy.value);
    lvni_core_free(large.value == dy.value ? NULL : large.value);
    lvni_core_free(wide.value);
    if (!there) {
        lvni_core_free(x.value);
        x.value = NULL;
    }
    return x;
}

/* ---- soft-argmax ---- */

static map cut_out(const lvn_tensor *maps, int64_t n, int64_t k, int doublings)
{
    const int64_t h = maps->shape[1], w = maps->shape[2], keypoints = maps->shape[3];
    map x = make_map(h, w);
    for (int64_t p = 0; x.value != NULL && p < h * w; p++) {
        x.value[p] = ((const double *)maps->data)[(n * h * w + p) * keypoints + k];
    }
    for (int i = 0; x.value != NULL && i < doublings; i++) {
        x = enlarge(x);
    }
    return x;
}

/* Is pixel (i, j) in the window around the position? */
static bool is_near(int64_t i, int64_t j, double x, double y)
{
    return fabs((double)i - trunc(y)) <= RADIUS && fabs((double)j - trunc(x)) <= RADIUS;
}

static void find_position(map u, double temperature, double kept[KEPT])
{
    const int64_t n = u.h * u.w;
    double top = u.value[0], sum = 0.0, x = 0.0, y = 0.0, confidence = 0.0;
    for (int64_t p = 0; p < n; p++) {
        top = u.value[p] > top || isnan(u.value[p]) ? u.value[p] : top;
    }
    for (int64_t p = 0; p < n; p++) {
        const int64_t row = p / u.w, column = p % u.w;
        const double e = exp(temperature * (u.value[p] - top));
        sum += e;
        x += e * (double)column;
        y += e * (double)row;
    }
    x /= sum;
    y /= sum;
    for (int64_t p = 0; p < n; p++) {
        confidence +=
            is_near(p / u.w, p % u.w, x, y) ? exp(temperature * (u.value[p] - top)) / sum : 0.0;
    }
    memcpy(kept, (const double[]){top, sum, x, y, isnan(sum) ? sum : confidence},
           KEPT * sizeof *kept);
}

lvn_status lvni_ref_soft_argmax2d(const lvn_kernel_args *args)
{
    const lvn_soft_argmax_attr *a = args->attr;
    const lvn_tensor *maps = args->in[0];
    const double shift = (ldexp(1.0, a->doublings) - 1.0) / 2.0;
    double *kept = lvni_ref_optional_out(args, 1);
    for (int64_t m = 0; m < maps->shape[0] * maps->shape[3]; m++) {
        double found[KEPT];
        map u = cut_out(maps, m / maps->shape[3], m % maps->shape[3], a->doublings);
        if (u.value == NULL) {
            return LVN_ERR_MEMORY;
        }
        find_position(u, a->temperature, found);
        lvni_core_free(u.value);
        const double of_map[OF_MAP] = {found[2] - shift, found[3] - shift, found[4]};
        memcpy(lvni_ref_out(args, 0) + OF_MAP * m, of_map, sizeof of_map);
        if (kept != NULL) {
            memcpy(kept + KEPT * m, found, sizeof found);
        }
    }
    return LVN_OK;
}

/* dx / dU = temperature S (column - x), dy / dU likewise, and of the confidence temperature S (in
 * the window - confidence), where the window is constant. */
lvn_status lvni_ref_soft_argmax2d_grad(const lvn_kernel_args *args)
{
    const lvn_soft_argmax_attr *a = args->attr;
    const lvn_tensor *maps = args->in[1];
    const int64_t keypoints = maps->shape[3], pixels = maps->shape[1] * maps->shape[2];
    for (int64_t m = 0; m < maps->shape[0] * keypoints; m++) {
        const double *dy = lvni_ref_in(args, 0) + OF_MAP * m,
                     *kept = lvni_ref_in(args, 2) + KEPT * m;
        map g = cut_out(maps, m / keypoints, m % keypoints, a->doublings);
        for (int64_t p = 0; g.value != NULL && p < g.h * g.w; p++) {
            const double s = exp(a->temperature * (g.value[p] - kept[0])) / kept[1];
            const int64_t i = p / g.w, j = p % g.w;
            const double near = is_near(i, j, kept[2], kept[3]) ? 1.0 : 0.0;
            g.value[p] = a->temperature * s *
                         (dy[0] * ((double)j - kept[2]) + dy[1] * ((double)i - kept[3]) +
                          dy[2] * (near - kept[4]));
        }
        for (int i = 0; g.value != NULL && i < a->doublings; i++) {
            g = reduce(g);
        }
        if (g.value == NULL) {
            return LVN_ERR_MEMORY;
        }
        for (int64_t p = 0; p < pixels; p++) {
            lvni_ref_out(args, 0)[(m / keypoints * pixels + p) * keypoints + m % keypoints] =
                g.value[p];
        }
        lvni_core_free(g.value);
    }
    return LVN_OK;
}

/* ---- maps to train with ---- */

/* Of one keypoint; values lie `step` apart. */
static void draw(const lvn_heatmap_attr *a, const double point[2], double kind, double *to,
                 int64_t step)
{
    const double x = point[0] * a->scale, y = point[1] * a->scale;
    const bool there =
        x >= -1.0 && x <= (double)a->width + 1.0 && y >= -1.0 && y <= (double)a->height + 1.0;
    double sum = 0.0;
    for (int64_t p = 0; p < a->height * a->width; p++) {
        const int64_t row = p / a->width, column = p % a->width;
        const double dx = (double)column - x, dy = (double)row - y;
        const double bump = exp(-(dx * dx + dy * dy) / (2.0 * a->sigma * a->sigma));
        to[p * step] = kind == 1.0 ? 1.0 : kind == 2.0 && there ? bump : 0.0;
        sum += to[p * step];
    }
    for (int64_t p = 0; sum > 0.0 && p < a->height * a->width; p++) {
        to[p * step] /= sum;
    }
}

lvn_status lvni_ref_heatmap2d(const lvn_kernel_args *args)
{
    const lvn_heatmap_attr *a = args->attr;
    const int64_t keypoints = args->in[1]->shape[1];
    for (int64_t m = 0; m < lvn_numel(args->in[1]); m++) {
        double *to = lvni_ref_out(args, 0) + m / keypoints * a->height * a->width * keypoints +
                     m % keypoints;
        draw(a, lvni_ref_in(args, 0) + 2 * m, lvni_ref_in(args, 1)[m], to, keypoints);
    }
    return LVN_OK;
}
