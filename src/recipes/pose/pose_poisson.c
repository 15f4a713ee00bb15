/* Numbers of Poisson's distribution (pose_poisson.h). Tables are cumulated probabilities in units
 * of 2^-32; a second table by the first 8 bits of the uniform number has where the search in them
 * begins. */
#include "recipes/pose/pose_poisson.h"

#include "core/alloc.h"
#include "core/math.h"

#include <math.h>

enum {
    EXACT = LVNI_POSE_POISSON_EXACT,
    TERMS = 160, /* beyond them less than 2^-32 is left of a mean of 63 */
    STARTS = 256,
    FRACTIONS = 512 /* e^-x is tabled for x = i / FRACTIONS */
};

struct lvni_pose_poisson {
    uint32_t below[EXACT][TERMS]; /* [n][k]: P(number <= k) of mean n, 2^32 - 1 at the end */
    uint8_t start[EXACT][STARTS]; /* the first k whose `below` lies above u, u = i 2^24 */
    double decay[FRACTIONS];
};

static void fill_mean(lvni_pose_poisson *p, int n)
{
    double term = lvni_core_exp(-n), sum = 0.0;
    for (int k = 0; k < TERMS; k++) {
        sum += term;
        term *= (double)n / (k + 1);
        const double units = sum * 0x1p32;
        p->below[n][k] = k == TERMS - 1 || units >= 0x1p32 - 1.0 ? UINT32_MAX : (uint32_t)units;
    }
    for (int i = 0, k = 0; i < STARTS; i++) {
        while (p->below[n][k] <= (uint32_t)i << 24 && k < TERMS - 1) {
            k++;
        }
        p->start[n][i] = (uint8_t)k;
    }
}

lvn_status lvni_pose_poisson_create(lvni_pose_poisson **out)
{
    lvni_pose_poisson *p = *out = LVNI_NEW(LVNI_TAG_DATA, lvni_pose_poisson);
    if (p == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int n = 0; n < EXACT; n++) {
        fill_mean(p, n);
    }
    for (int i = 0; i < FRACTIONS; i++) {
        p->decay[i] = lvni_core_exp(-(double)i / FRACTIONS);
    }
    return LVN_OK;
}

void lvni_pose_poisson_destroy(lvni_pose_poisson *poisson)
{
    lvni_core_free(poisson);
}

/* ---- the parts ---- */

static int draw_whole(const lvni_pose_poisson *p, int n, uint32_t u)
{
    int k = p->start[n][u >> 24];
    while (p->below[n][k] <= u && k < TERMS - 1) {
        k++;
    }
    return k;
}

/* Of a mean below 1. */
static int draw_rest(const lvni_pose_poisson *p, double mean, uint32_t u)
{
    const int i = (int)(mean * FRACTIONS);
    const double x = mean - (double)i / FRACTIONS, at = u * 0x1p-32;
    double term = p->decay[i] * (1.0 - x * (1.0 - x * (0.5 - x / 6.0))), below = term;
    int k = 0;
    while (below <= at && k < 16) {
        term *= mean / ++k;
        below += term;
    }
    return k;
}

static double ratio(double r, const double above[4], const double below[3])
{
    return (((above[3] * r + above[2]) * r + above[1]) * r + above[0]) /
           (((below[2] * r + below[1]) * r + below[0]) * r + 1.0);
}

double lvni_pose_normal_quantile(double p)
{
    static const double above[3][4] = {{3.3871327179, 50.434271938, 159.29113202, 59.109374720},
                                       {1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103},
                                       {6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997}};
    static const double below[3][3] = {{17.895169469, 78.757757664, 67.187563600},
                                       {0.73700164250, 0.12021132975, 0.0},
                                       {0.24197894225, 0.012258202635, 0.0}};
    const double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        return q * ratio(0.180625 - q * q, above[0], below[0]);
    }
    const double r = lvni_core_sqrt(-lvni_core_log(q < 0.0 ? p : 1.0 - p));
    const int far = r > 5.0 ? 2 : 1;
    const double z = ratio(r - (far == 2 ? 5.0 : 1.6), above[far], below[far]);
    return q < 0.0 ? -z : z;
}

double lvni_pose_poisson_draw(const lvni_pose_poisson *poisson, double mean, const uint32_t u[2])
{
    if (!(mean > 0.0)) {
        return 0.0;
    }
    if (mean < EXACT) {
        const int n = (int)mean;
        return draw_whole(poisson, n, u[0]) + draw_rest(poisson, mean - n, u[1]);
    }
    const double z = lvni_pose_normal_quantile((u[0] + 0.5) * 0x1p-32);
    const double k = floor(mean + lvni_core_sqrt(mean) * z + (z * z - 1.0) / 6.0 + 0.5);
    return k > 0.0 ? k : 0.0;
}
