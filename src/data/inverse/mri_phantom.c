/* Phantoms for magnetic resonance: an image of ellipses, coils around it, columns of k-space. */
#include "core/math.h"
#include "mri.h"

#include <string.h>

static const double two_pi = 6.283185307179586476925;

/* ---- image ---- */

typedef struct ellipse {
    double intensity, a, b, x, y, angle; /* half axes, centre, in [-1, 1]; degrees */
} ellipse;

/* The modified phantom of Shepp and Logan (Toft 1996). */
static const ellipse phantom[] = {
    {1.0, 0.69, 0.92, 0.0, 0.0, 0.0},      {-0.8, 0.6624, 0.874, 0.0, -0.0184, 0.0},
    {-0.2, 0.11, 0.31, 0.22, 0.0, -18.0},  {-0.2, 0.16, 0.41, -0.22, 0.0, 18.0},
    {0.1, 0.21, 0.25, 0.0, 0.35, 0.0},     {0.1, 0.046, 0.046, 0.0, 0.1, 0.0},
    {0.1, 0.046, 0.046, 0.0, -0.1, 0.0},   {0.1, 0.046, 0.023, -0.08, -0.605, 0.0},
    {0.1, 0.023, 0.023, 0.0, -0.606, 0.0}, {0.1, 0.023, 0.046, 0.06, -0.605, 0.0},
};
enum { ELLIPSES = sizeof phantom / sizeof *phantom, OVER = 4 };

static double uniform(const lvni_core_rng *rng, uint64_t *element, double from, double to)
{
    return from + (double)lvni_core_rng_uniform(rng, (*element)++) * (to - from);
}

/* One of them in an image. */
typedef struct placed {
    double intensity, a, b, x, y, cos, sin;
} placed;

static placed place(const lvni_core_rng *rng, const ellipse *e, uint64_t *element)
{
    placed p;
    p.intensity = e->intensity * uniform(rng, element, 0.8, 1.2);
    p.a = e->a * uniform(rng, element, 0.85, 1.15);
    p.b = e->b * uniform(rng, element, 0.85, 1.15);
    p.x = e->x + uniform(rng, element, -0.05, 0.05);
    p.y = e->y + uniform(rng, element, -0.05, 0.05);
    const double turn = (e->angle + uniform(rng, element, -15.0, 15.0)) / 360.0;
    p.cos = lvni_core_cos2pi(turn);
    p.sin = lvni_core_cos2pi(turn - 0.25);
    return p;
}

/* Distance from the centre in units of the radius: 1 on the outline. */
static double radius(const placed *p, double x, double y)
{
    const double dx = x - p->x, dy = y - p->y;
    const double u = (p->cos * dx + p->sin * dy) / p->a, v = (p->cos * dy - p->sin * dx) / p->b;
    return lvni_core_sqrt(u * u + v * v);
}

/* Part of a pixel at (x, y) that lies inside; side: one of its sides, as a vector. */
static double cover(const placed *p, double x, double y, const double side[2])
{
    const double centre = radius(p, x, y), smaller = p->a < p->b ? p->a : p->b;
    const double reach = lvni_core_sqrt(0.5 * (side[0] * side[0] + side[1] * side[1])) / smaller;
    if (centre < 1.0 - reach || centre > 1.0 + reach) {
        return centre < 1.0 ? 1.0 : 0.0;
    }
    int inside = 0;
    for (int i = 0; i < OVER * OVER; i++) {
        const int column = i % OVER, row = i / OVER;
        const double dx = (column + 0.5) / OVER - 0.5, dy = (row + 0.5) / OVER - 0.5;
        inside += radius(p, x + dx * side[0] + dy * side[1], y + dx * side[1] - dy * side[0]) < 1.0;
    }
    return (double)inside / (OVER * OVER);
}

void lvni_inverse_mri_phantom(const lvni_inverse_random *random, int n, double *out)
{
    const lvni_core_rng rng = lvni_inverse_rng(random);
    uint64_t element = 0;
    placed all[ELLIPSES];
    for (int i = 0; i < ELLIPSES; i++) {
        all[i] = place(&rng, &phantom[i], &element);
    }
    const double turn = uniform(&rng, &element, -10.0, 10.0) / 360.0,
                 scale = uniform(&rng, &element, 0.85, 1.0);
    const double c = lvni_core_cos2pi(turn) / scale, s = lvni_core_cos2pi(turn - 0.25) / scale;
    const double side[2] = {c * 2.0 / n, -s * 2.0 / n}; /* of a pixel, turned */
    for (int row = 0; row < n; row++) {
        for (int col = 0; col < n; col++) {
            const double x = (2.0 * col + 1.0) / n - 1.0, y = 1.0 - (2.0 * row + 1.0) / n;
            double sum = 0.0;
            for (int i = 0; i < ELLIPSES; i++) {
                sum += all[i].intensity * cover(&all[i], c * x + s * y, c * y - s * x, side);
            }
            *out++ = sum;
        }
    }
}

/* ---- coils ---- */

/* Gaussian in the distance from the coil, phase linear across the image. */
static lvni_data_complex sensitivity(int coil, int coils, double x, double y)
{
    const double distance = 1.2, width = 0.8, golden = 0.618033988749895;
    const double turn = (double)coil / coils;
    const double cx = lvni_core_cos2pi(turn), cy = lvni_core_cos2pi(turn - 0.25);
    const double dx = x - distance * cx, dy = y - distance * cy;
    const double size = lvni_core_exp(-(dx * dx + dy * dy) / (2.0 * width * width));
    const double phase = golden * coil + 0.25 * (x * cx + y * cy);
    return (lvni_data_complex){size * lvni_core_cos(two_pi * phase),
                               size * lvni_core_sin(two_pi * phase)};
}

void lvni_inverse_mri_coils(int coils, int n, lvni_data_complex *out)
{
    const size_t plane = (size_t)n * (size_t)n;
    for (size_t i = 0; i < plane; i++) {
        const size_t column = i % (size_t)n, row = i / (size_t)n;
        const double x = (2.0 * (double)column + 1.0) / n - 1.0,
                     y = 1.0 - (2.0 * (double)row + 1.0) / n;
        double sum = 0.0;
        for (int c = 0; c < coils; c++) {
            const lvni_data_complex v = sensitivity(c, coils, x, y);
            out[(size_t)c * plane + i] = v;
            sum += v.re * v.re + v.im * v.im;
        }
        const double scale = 1.0 / lvni_core_sqrt(sum);
        for (int c = 0; c < coils; c++) {
            out[(size_t)c * plane + i].re *= scale;
            out[(size_t)c * plane + i].im *= scale;
        }
    }
}

/* ---- columns ---- */

/* `count` of the `room` columns at distances 1, 2, ... from the middle block, each about as many
 * times farther than the one before. */
static void side_columns(double *out, int from, int step, int room, int count)
{
    int last = 0;
    for (int j = 1; j <= count; j++) {
        const double wanted = lvni_core_pow(room, (double)j / count);
        int d = (int)(wanted + 0.5);
        d = d <= last ? last + 1 : d;
        d = d > room - (count - j) ? room - (count - j) : d;
        out[from + step * d] = 1.0;
        last = d;
    }
}

void lvni_inverse_mri_columns(int n, int acceleration, double *out)
{
    static const int of_384[] = {1,   23,  42,  60,  77,  92,  105, 117, 128, 138, 147,
                                 155, 162, 169, 176, 182, 204, 210, 217, 224, 231, 239,
                                 248, 258, 269, 281, 294, 309, 326, 344, 363};
    memset(out, 0, (size_t)n * sizeof *out);
    if (n == 384 && acceleration == 8) {
        for (size_t i = 0; i < sizeof of_384 / sizeof *of_384; i++) {
            out[of_384[i]] = 1.0;
        }
        for (int i = 184; i <= 200; i++) {
            out[i] = 1.0;
        }
        return;
    }
    const int middle = n / 16 > 0 ? n / 16 : 1, first = n / 2 - middle / 2;
    const int others = n / acceleration - middle, room = n - first - middle;
    const int left = others - others / 2 <= room ? others / 2 : others - room;
    for (int i = 0; i < middle; i++) {
        out[first + i] = 1.0;
    }
    side_columns(out, first, -1, first, left);
    side_columns(out, first + middle - 1, 1, room, others - left);
}
