/* Own exp, log, sin, cos, pow, tanh, erf in double precision (math.h). Compiled without
 * contraction, so no compiler fuses what is written apart. */
#include "core/math.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static double from_bits(uint64_t b)
{
    double d;
    memcpy(&d, &b, sizeof d);
    return d;
}

static uint64_t to_bits(double d)
{
    uint64_t b;
    memcpy(&b, &d, sizeof b);
    return b;
}

/* HI has 11 zero bits at its end */
static const double LN2_HI = 0x1.62e42fefa38p-1, LN2_LO = 0x1.ef35793c7673p-45;

/* exp(x + rest) = 2^k exp(r), |r| <= ln2 / 2, for a rest far below 1; Taylor series of exp(r) to
 * the term r^13 / 13! (error below 2^-57). The rest enters before 2^k does: results near the
 * smallest normal number keep their digits, and only those beyond the largest are infinite. */
static double exp_two(double x, double rest)
{
    if (!(x < 710.0)) {
        return x != x ? x : HUGE_VAL;
    }
    if (x < -745.2) {
        return 0.0;
    }
    const double shifted = x * 1.4426950408889634 + 0x1.8p52; /* round to nearest integer */
    const double kd = shifted - 0x1.8p52;
    const int k = (int)kd;
    const double r = ((x - kd * LN2_HI) - kd * LN2_LO) + rest;
    double p = 1.0 / 6227020800.0;
    static const double inverse[] = {1.0 / 479001600.0,
                                     1.0 / 39916800.0,
                                     1.0 / 3628800.0,
                                     1.0 / 362880.0,
                                     1.0 / 40320.0,
                                     1.0 / 5040.0,
                                     1.0 / 720.0,
                                     1.0 / 120.0,
                                     1.0 / 24.0,
                                     1.0 / 6.0,
                                     0.5};
    for (unsigned i = 0; i < sizeof inverse / sizeof *inverse; i++) {
        p = p * r + inverse[i];
    }
    const double e = 1.0 + (r + r * r * p);
    const int half = k / 2; /* two factors: 2^k itself may not be a normal number */
    return e * from_bits((uint64_t)(1023 + half) << 52) *
           from_bits((uint64_t)(1023 + k - half) << 52);
}

double lvni_core_exp(double x)
{
    return exp_two(x, 0.0);
}

/* log(x) = k ln2 + log(m), m in [sqrt(1/2), sqrt(2)); log(m) = 2 artanh(s), s = (m-1)/(m+1), series
 * to s^21. */
double lvni_core_log(double x)
{
    if (!(x > 0.0)) {
        return x == 0.0 ? -HUGE_VAL : (double)NAN;
    }
    if (x > 1.7976931348623157e308) {
        return x;
    }
    int k = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        k = -54;
    }
    uint64_t b = to_bits(x);
    k += (int)(b >> 52) - 1023;
    double m = from_bits((b & 0xfffffffffffffu) | 0x3ff0000000000000u);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        k++;
    }
    const double f = m - 1.0;
    const double s = f / (2.0 + f);
    const double z = s * s;
    static const double inverse[] = {1.0 / 21.0, 1.0 / 19.0, 1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0,
                                     /* no division in the loop */
                                     1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0};
    double p = 1.0 / 23.0;
    for (unsigned i = 0; i < sizeof inverse / sizeof *inverse; i++) {
        p = p * z + inverse[i];
    }
    /* log(1+f) = f - (f*f/2 - s*(f*f/2 + 2 z p z^0...)): written so that f enters exactly */
    const double h = 0.5 * f * f;
    const double r = 2.0 * z * p;
    const double kd = k;
    return kd * LN2_HI - ((h - (s * (h + r) + kd * LN2_LO)) - f);
}

/* With u = 1 + x rounded, log(u) x / (u - 1) undoes the rounding of u (Kahan). */
double lvni_core_log1p(double x)
{
    const double u = 1.0 + x;
    return u == 1.0 || u > 1.7976931348623157e308 ? x : lvni_core_log(u) * (x / (u - 1.0));
}

double lvni_core_sqrt(double x)
{
    return sqrt(x);
}

/* Reduce to |t| <= 1/8 turn, then Taylor series of sin and cos of 2 pi t. */
static double cos_series(double y)
{
    const double z = y * y;
    double p = 1.0 / 6402373705728000.0; /* 1/18!, sign - */
    p = 1.0 / 20922789888000.0 - z * p;
    p = 1.0 / 87178291200.0 - z * p;
    p = 1.0 / 479001600.0 - z * p;
    p = 1.0 / 3628800.0 - z * p;
    p = 1.0 / 40320.0 - z * p;
    p = 1.0 / 720.0 - z * p;
    p = 1.0 / 24.0 - z * p;
    p = 0.5 - z * p;
    return 1.0 - z * p;
}

static double sin_series(double y)
{
    const double z = y * y;
    double p = 1.0 / 355687428096000.0; /* 1/17! */
    p = 1.0 / 1307674368000.0 - z * p;
    p = 1.0 / 6227020800.0 - z * p;
    p = 1.0 / 39916800.0 - z * p;
    p = 1.0 / 362880.0 - z * p;
    p = 1.0 / 5040.0 - z * p;
    p = 1.0 / 120.0 - z * p;
    p = 1.0 / 6.0 - z * p;
    return y * (1.0 - z * p);
}

double lvni_core_cos2pi(double x)
{
    const double pi2 = 6.283185307179586;
    double t = x - floor(x); /* [0, 1): exact */
    const int quarter = (int)(t * 4.0 + 0.5);
    t = t - 0.25 * quarter; /* [-1/8, 1/8], exact */
    switch (quarter & 3) {
    case 0: return cos_series(pi2 * t);
    case 1: return -sin_series(pi2 * t);
    case 2: return -cos_series(pi2 * t);
    default: return sin_series(pi2 * t);
    }
}

__extension__ typedef unsigned __int128 wide;
__extension__ typedef __int128 signed_wide;

/* The angle of a finite x >= 0 from the middle of its quarter turn, in [-pi/4, pi/4]. Payne & Hanek
 * 1983: of the bits of 1 / (2 pi) those are multiplied that make neither whole turns nor less than
 * the last place of the result. */
static double rest_of_turn(double x, int *quarter)
{
    /* 0, and the bits of 1 / (2 pi) */
    static const uint64_t bits[] = {0,
                                    0x28be60db9391054au,
                                    0x7f09d5f47d4d3770u,
                                    0x36d8a5664f10e410u,
                                    0x7f9458eaf7aef158u,
                                    0x6dc91b8e909374b8u,
                                    0x01924bba82746487u,
                                    0x3f877ac72c4a69cfu,
                                    0xba208d7d4baed121u,
                                    0x3a671c09ad17df90u,
                                    0x4e64758e60d4ce7du,
                                    0x272117e2ef7e4a0eu,
                                    0xc7fe25fff7816603u,
                                    0xfbcbc462d6829b47u,
                                    0xdb4d9fb3c9f2c26du,
                                    0xd3d18fd9a797fa8bu,
                                    0x5d49eeb1faf97c5eu,
                                    0xcf41ce7de294a4bau,
                                    0x9afed7ec47e35742u,
                                    0x1580cc11bf1edaeau};
    *quarter = 0;
    if (x < 0.785398163397448) {
        return x;
    }
    const uint64_t b = to_bits(x), m = (b & 0xfffffffffffffu) | 0x10000000000000u;
    const int first = (int)(b >> 52) - 1075 + 64, word = first / 64, shift = first % 64; /* > 0 */
    uint64_t window[3];
    for (int i = 0; i < 3; i++) {
        const uint64_t next = shift == 0 ? 0 : bits[word + i + 1] >> (64 - shift);
        window[i] = bits[word + i] << shift | next;
    }
    const wide low = (wide)m * window[2], middle = (wide)m * window[1] + (low >> 64);
    const uint64_t high = m * window[0] + (uint64_t)(middle >> 64); /* whole turns go */
    const uint64_t nearest = ((high >> 61) + 1) >> 1;
    const wide turn = (wide)high << 64 | (uint64_t)middle, rest = turn - ((wide)nearest << 126);
    *quarter = (int)(nearest & 3);
    return (double)(signed_wide)rest * (6.283185307179586 * 0x1p-128);
}

/* The sine, `ahead` quarter turns later. */
static double sin_ahead(double x, int ahead)
{
    int quarter;
    const double rest = rest_of_turn(x, &quarter);
    const int at = quarter + ahead;
    const double y = (at & 1) != 0 ? cos_series(rest) : sin_series(rest);
    return (at & 2) != 0 ? -y : y;
}

double lvni_core_sin(double x)
{
    if (!(fabs(x) <= 1.7976931348623157e308)) {
        return x - x;
    }
    const double y = sin_ahead(fabs(x), 0);
    return signbit(x) ? -y : y;
}

double lvni_core_cos(double x)
{
    return fabs(x) <= 1.7976931348623157e308 ? sin_ahead(fabs(x), 1) : x - x;
}

/* ---- pow: the logarithm as a sum of two doubles, so that y log x is right to the last place
 * ---- */

typedef struct two {
    double hi, lo;
} two;

static two two_sum(double a, double b)
{
    const double s = a + b, t = s - a;
    return (two){s, (a - (s - t)) + (b - t)};
}

/* Dekker 1971: the product of two doubles without rounding. */
static two two_product(double a, double b)
{
    const double ca = 134217729.0 * a, cb = 134217729.0 * b;
    const double ah = ca - (ca - a), bh = cb - (cb - b), al = a - ah, bl = b - bh;
    const double p = a * b;
    return (two){p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}

/* log x of a positive finite x: 2 s + 2 s (z / 3 + z^2 / 5 + ...), z = s^2, s = (m - 1) / (m + 1)
 * with the remainder of the division, and the first term of the series as a sum of two, too. */
static two log_two(double x)
{
    int k = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        k = -54;
    }
    const uint64_t b = to_bits(x);
    k += (int)(b >> 52) - 1023;
    double m = from_bits((b & 0xfffffffffffffu) | 0x3ff0000000000000u);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        k++;
    }
    const double f = m - 1.0;
    const two d = two_sum(m, 1.0);
    const double s = f / d.hi;
    const two back = two_product(s, d.hi);
    const double s_lo = (((f - back.hi) - back.lo) - s * d.lo) / d.hi;
    const two z = two_product(s, s);
    double p = 1.0 / 23.0;
    for (int i = 21; i >= 5; i -= 2) {
        p = p * z.hi + 1.0 / i;
    }
    const two sum = two_sum(k * LN2_HI, 2.0 * s);
    const two cube = two_product(2.0 * s, z.hi); /* to be divided by 3 */
    const double third = cube.hi * (1.0 / 3.0);
    const two thrice = two_product(third, 3.0);
    const double third_lo = ((cube.hi - thrice.hi) - thrice.lo + cube.lo + 2.0 * s * z.lo) / 3.0 +
                            2.0 * z.hi * s_lo; /* of the remainder s_lo: 2 s^2 s_lo */
    const two both = two_sum(sum.hi, third);
    const double small = third_lo + (k * LN2_LO + (2.0 * s_lo + cube.hi * (z.hi * p)));
    return two_sum(both.hi, both.lo + (sum.lo + small));
}

/* x > 0, all finite */
static double pow_positive(double x, double y)
{
    if (x == 1.0) {
        return 1.0;
    }
    const two l = log_two(x); /* at least 2^-53: y below is not too large for two_product */
    if (!(fabs(y * l.hi) < 800.0)) {
        return lvni_core_exp(y * l.hi);
    }
    const two p = two_product(y, l.hi);
    return exp_two(p.hi, p.lo + y * l.lo);
}

/* 0: y is not an integer, 1: odd, 2: even */
static int parity(double y)
{
    const double a = fabs(y);
    return a != floor(a) ? 0 : a < 0x1p53 && fmod(a, 2.0) == 1.0 ? 1 : 2;
}

/* C11 F.10.4.4 */
double lvni_core_pow(double x, double y)
{
    const double inf = HUGE_VAL, a = fabs(x);
    if (x == 1.0 || y == 0.0) {
        return 1.0;
    }
    if (x != x || y != y) {
        return x + y;
    }
    if (fabs(y) == inf) {
        return a == 1.0 ? 1.0 : (a < 1.0) == (y < 0.0) ? inf : 0.0;
    }
    const int kind = signbit(x) ? parity(y) : 2; /* fmod is slow; read for such x alone */
    if (x < 0.0 && kind == 0 && a != inf) {
        return (double)NAN;
    }
    const double size =
        a == 0.0 || a == inf ? ((a == 0.0) == (y < 0.0) ? inf : 0.0) : pow_positive(a, y);
    return kind == 1 ? copysign(size, x) : size;
}

/* ---- tanh, erf ---- */

/* Lambert's continued fraction x / (1 + x^2 / (3 + x^2 / (5 + ...))) near 0, 1 - 2 / (e^2x + 1)
 * beyond. */
double lvni_core_tanh(double x)
{
    const double a = fabs(x);
    if (a < 0.6) {
        double t = 23.0;
        for (int k = 21; k >= 1; k -= 2) {
            t = k + a * a / t;
        }
        return x / t;
    }
    return copysign(1.0 - 2.0 / (lvni_core_exp(2.0 * a) + 1.0), x);
}

static const double ROOT_PI = 1.7724538509055160273;

/* Abramowitz & Stegun 7.1.14, x >= 2: e^(-x^2) / sqrt(pi) / (x + (1/2) / (x + (2/2) / (x + (3/2) /
 * ...))) */
static double erfc_fraction(double x)
{
    double t = x;
    for (int k = 70; k >= 1; k--) {
        t = x + 0.5 * k / t;
    }
    return lvni_core_exp(-x * x) / (ROOT_PI * t);
}

/* Abramowitz & Stegun 7.1.6 below 2: 2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ...), all
 * terms of one sign. */
double lvni_core_erf(double x)
{
    const double a = fabs(x);
    if (!(a < 2.0)) {
        return x != x ? x : copysign(1.0 - erfc_fraction(a), x);
    }
    double term = x, sum = 0.0;
    for (int k = 1; k <= 60; k++) {
        sum += term;
        term *= 2.0 * x * x / (2 * k + 1);
    }
    return 2.0 / ROOT_PI * lvni_core_exp(-x * x) * sum;
}

double lvni_core_erfc(double x)
{
    return x < 2.0 ? 1.0 - lvni_core_erf(x) : x > 1e8 ? 0.0 : erfc_fraction(x);
}

double lvni_core_unsigned_nan(double x)
{
    return x != x ? copysign(x, 1.0) : x;
}
