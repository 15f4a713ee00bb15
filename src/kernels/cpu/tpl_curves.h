/* Template (included by tpl_table.h only): tanh, erf, pow, and the activations made of them, of one
 * element in f32; the rules of tpl_math.h hold. Coefficients are minimax fits of the functions
 * named, computed for levin by Remez exchange in 50 digits. */
#ifndef LEVIN_KERNELS_CPU_TPL_CURVES_H
#define LEVIN_KERNELS_CPU_TPL_CURVES_H

#include "kernels/cpu/tpl_math.h"

/* 1 / (2 pi), times 2^8j without its whole turns: 29 bits, the next 29, and the rest. A float times
 * either of the first two is exact in double precision. */
static const double turn_first[] = {0x1.45f306cp-3, 0x1.7cc1b72p-1, 0x1.836e4e4p-2, 0x1.b72722p-1,
                                    0x1.27220a9p-1, 0x1.220a94fp-1, 0x1.529fc2p-6,  0x1.29fc274p-2,
                                    0x1.fc2757cp-2, 0x1.3abe8fp-5,  0x1.abe8fa9p-1, 0x1.e8fa9a6p-1,
                                    0x1.f534ddcp-2, 0x1.34ddc0cp-2};
static const double turn_next[] = {
    0x1.c9c882ap-31, 0x1.c882a52p-31, 0x1.054a7fp-32,  0x1.529fc27p-30, 0x1.3f84eaep-31,
    0x1.c2757d1p-30, 0x1.d5f47d4p-32, 0x1.7d1f534p-30, 0x1.1f534ddp-30, 0x1.534ddcp-30,
    0x1.4ddc0dbp-30, 0x1.dc0db62p-30, 0x1.b6c52ap-35,  0x1.b629599p-30};
static const double turn_last[] = {
    0x1.4fe13abe8fa9ap-61, 0x1.f84eafa3ea69cp-59, 0x1.3abe8fa9a6eep-61,  0x1.5f47d4d377037p-60,
    0x1.a3ea69bb81b6cp-59, 0x1.ea69bb81b6c53p-59, 0x1.a6ee06db14acdp-61, 0x1.bb81b6c52b328p-59,
    0x1.81b6c52b32788p-59, 0x1.b6c52b3278872p-59, 0x1.8a5664f10e41p-60,  0x1.2b3278872084p-59,
    0x1.3278872083fcap-59, 0x1.e21c820ff28b2p-61};

/* The sine of v 2^8j, `ahead` quarter turns later; 0 <= v < 2^31, and whole unless j is 0. Whole
 * turns go where nothing is rounded yet, so that the result has its digits next to the zeros, too.
 * Error at most 1.6 ulp (measured). */
static inline __attribute__((always_inline)) float sin_of_turns(double v, int j, int32_t ahead)
{
    const double turns = v * turn_first[j], next = v * turn_next[j];
    const double part = turns - ((turns + 0x1.8p52) - 0x1.8p52);
    const double quarter = (4.0 * (part + next) + 0x1.8p52) - 0x1.8p52;
    const double rest = ((part - 0.25 * quarter) + next) + v * turn_last[j];
    const float r = (float)(rest * 0x1.921fb54442d18p2), z = r * r; /* 2 pi */
    float s = 0x1.6ccf5ep-19f;
    s = s * z - 0x1.a00f74p-13f;
    s = s * z + 0x1.111108p-7f;
    s = s * z - 0x1.555556p-3f;
    float c = 0x1.99e86cp-16f;
    c = c * z - 0x1.6c0c28p-10f;
    c = c * z + 0x1.55554ap-5f;
    const int32_t at = (int32_t)quarter + ahead;
    const float sine = r + r * (z * s), cosine = (1.0f - 0.5f * z) + z * z * c;
    const float y = (at & 1) != 0 ? cosine : sine;
    return bits_float(float_bits(y) ^ ((uint32_t)(at & 2) << 30));
}

/* From here on x needs the far functions; infinities and NaN, too. */
#define FAR_BITS 0x4f000000u /* of 2^31 */

/* In loops over many elements: without branches. Beyond 2^31 of no meaning. */
static inline float sin_near(float x, int32_t ahead)
{
    const float a = __builtin_fabsf(x), bounded = a < 0x1p31f ? a : 0.0f;
    const float y = sin_of_turns((double)bounded, 0, ahead);
    return bits_float(float_bits(y) ^ (ahead == 0 ? float_bits(x) & 0x80000000u : 0u));
}

static inline float sin_far(float x, int32_t ahead)
{
    const float a = __builtin_fabsf(x);
    if (!(a <= 0x1.fffffep127f)) {
        return x - x;
    }
    const int above = (int)(float_bits(a) >> 23) - 150, j = above < 0 ? 0 : above / 8;
    const float y = sin_of_turns((double)(a * bits_float((uint32_t)(127 - 8 * j) << 23)), j, ahead);
    return ahead == 0 && x < 0.0f ? -y : y;
}

/* |y| with the sign of x */
static inline float with_sign(float y, float x)
{
    return bits_float((float_bits(y) & 0x7fffffffu) | (float_bits(x) & 0x80000000u));
}

/* Below 0.625 x + x^3 P(x^2), above 1 - 2 / (e^2|x| + 1). */
static inline float tanh_one(float x)
{
    const float a = __builtin_fabsf(x), z = x * x;
    float p = 0x1.197ba8p-9f;
    p = p * z - 0x1.0c2150p-7f;
    p = p * z + 0x1.6394dap-6f;
    p = p * z - 0x1.b9ef7cp-5f;
    p = p * z + 0x1.11106cp-3f;
    p = p * z - 0x1.555554p-2f;
    const float near = a + a * (z * p);
    const float far = 1.0f - 2.0f / (exp_one(2.0f * a) + 1.0f);
    return with_sign(a < 0.625f ? near : far, x);
}

/* erf(a) for 0 <= a < 0.875: a (2 / sqrt(pi) + z P(z)), z = a^2. */
static inline float erf_near(float a)
{
    const float z = a * a;
    float p = 0x1.6e6a04p-14f;
    p = p * z - 0x1.af436ep-11f;
    p = p * z + 0x1.555132p-8f;
    p = p * z - 0x1.b81c18p-6f;
    p = p * z + 0x1.ce2ea4p-4f;
    p = p * z - 0x1.812746p-2f;
    p = p * z + 0x1.06eba8p-3f; /* 2 / sqrt(pi) - 1: the 1 is added without rounding it */
    /* a * p must not be flushed where a is not */
    return a < 0x1p-60f ? a * 0x1.20dd76p0f : a + a * p;
}

/* 1 - erf(a) for a >= 0.7, with e = e^(-a^2): e t R(t), t = 1 / (1 + a / 2). */
static inline float erfc_far(float a, float e)
{
    const float t = 1.0f / (1.0f + 0.5f * a);
    float p = -0x1.158848p-4f;
    p = p * t + 0x1.bbeb3ep-3f;
    p = p * t - 0x1.934dd4p-3f;
    p = p * t - 0x1.0fce9ep-6f;
    p = p * t - 0x1.06ad94p-8f;
    p = p * t + 0x1.4830ccp-4f;
    p = p * t + 0x1.6b5020p-3f;
    p = p * t + 0x1.f933a0p-3f;
    p = p * t + 0x1.20e036p-2f;
    p = p * t + 0x1.20dd62p-2f;
    return e * (t * p);
}

static inline float erf_one(float x)
{
    const float a = __builtin_fabsf(x);
    const float far = 1.0f - erfc_far(a, exp_one(-(a * a)));
    return with_sign(a < 0.875f ? erf_near(a) : far, x);
}

/* The normal distribution, with a = |x| / sqrt 2 and e = e^(-a^2): the tail keeps its digits where
 * 1 + erf would lose them. */
static inline float normal_cdf_of(float x, float a, float e)
{
    const float near = 0.5f * erf_near(a);
    const float tail = 0.5f * erfc_far(a, e);
    const float below = a < 0.875f ? 0.5f - near : tail;
    const float above = a < 0.875f ? 0.5f + near : 1.0f - tail;
    return x < 0.0f ? below : above;
}

static inline float normal_cdf(float x)
{
    const float a = __builtin_fabsf(x) * 0x1.6a09e6p-1f;
    return normal_cdf_of(x, a, exp_one(-(a * a)));
}

/* d(x cdf(x)) = cdf(x) + x pdf(x) */
static inline float gelu_slope(float x)
{
    const float a = __builtin_fabsf(x) * 0x1.6a09e6p-1f;
    const float e = exp_one(-(a * a));
    return normal_cdf_of(x, a, e) + x * (e * 0x1.988454p-2f);
}

/* sqrt(2 / pi) (x + 0.044715 x^3) */
static inline float gelu_inner(float x)
{
    return 0x1.988454p-1f * (x + 0.044715f * (x * x * x));
}

static inline float sigmoid_one(float x)
{
    return 1.0f / (1.0f + exp_one(-x));
}

/* With s = 1 / (1 + e^-2u): s + x s (1 - s) 2 u'; beyond +-16 the second term is 0, and its factors
 * overflow. */
static inline float gelu_tanh_slope(float x)
{
    const float s = sigmoid_one(2.0f * gelu_inner(x));
    const float slope = 0x1.988454p0f * (1.0f + 0.134145f * (x * x));
    const float bend = x * (s * (1.0f - s)) * slope;
    return s + (__builtin_fabsf(x) > 16.0f ? 0.0f : bend);
}

static inline float silu_slope(float x)
{
    const float s = sigmoid_one(x);
    return s * (1.0f + x * (1.0f - s));
}

/* max(x, 0) + log(1 + e), e = e^-|x|. With u = 1 + e rounded, log(u) e / (u - 1) undoes the
 * rounding of u. */
static inline float softplus_one(float x)
{
    const float e = exp_one(-__builtin_fabsf(x)), u = 1.0f + e;
    const float rest = u == 1.0f ? e : log_one(u) * (e / (u - 1.0f));
    return (x < 0.0f ? 0.0f : x) + rest;
}

static inline float clamp_between(float x, float low, float high)
{
    const float above = x < low ? low : x; /* a NaN stays */
    return above > high ? high : above;
}

/* 2^t for t in double precision, as a float: |t| is cut at 200, results below 2^-126 are 0. e^r, r
 * = ln 2 (t - k), to r^8 / 8!. */
static inline float exp2_of(double t)
{
    /* a NaN becomes -200 */
    const double low = t > -200.0 ? t : -200.0, bounded = low > 200.0 ? 200.0 : low;
    const double shifted = bounded + 0x1.8p52, k = shifted - 0x1.8p52;
    const double r = (bounded - k) * 0x1.62e42fefa39efp-1;
    double p = 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    const float e = (float)(1.0 + (r + r * r * p)); /* in [0.7, 1.42) */
    const int32_t whole = (int32_t)k;
    /* 2^k in two factors, each a normal number */
    const uint32_t half = (uint32_t)(whole / 2), rest = (uint32_t)whole - half;
    const float y = e * bits_float((half + 127u) << 23) * bits_float((rest + 127u) << 23);
    return y;
}

/* log2 of a positive normal x in double precision, error below 2^-40: k + 2 / ln 2 artanh(s), s =
 * (m - 1) / (m + 1), to s^17. */
static inline double log2_of(float x)
{
    const uint32_t bits = float_bits(x);
    const float m1 = bits_float((bits & 0x7fffffu) | 0x3f800000u); /* [1, 2) */
    const int32_t big = m1 > 0x1.6a09e6p0f ? 1 : 0;
    const double m = (double)(big != 0 ? m1 * 0.5f : m1);
    const double k = (double)((int32_t)(bits >> 23) - 127 + big);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    return k + (s + s * (z * p)) * 0x1.71547652b82fep1; /* 2 / ln 2 */
}

/* x^y = 2^(y log2 |x|), the exponent in double precision; error at most 0.51 ulp before flushing.
 * Special values as C's pow (C11 F.10.4.4). A loop that calls it does not become vectors. */
static inline __attribute__((always_inline)) float pow_one(float x, float y)
{
    const float a = __builtin_fabsf(x), ay = __builtin_fabsf(y);
    const float size = exp2_of((double)y * log2_of(a));
    /* y rounded to an integer */
    const float whole = (ay + 0x1p23f) - 0x1p23f;
    const float half = 0.5f * ay, half_whole = (half + 0x1p23f) - 0x1p23f; /* whole: y is even */
    const int32_t integer = (ay >= 0x1p23f ? 1 : 0) | (whole == ay ? 1 : 0);
    const int32_t last_bit = (int32_t)(float_bits(ay) & 1u), left_over = half_whole != half ? 1 : 0,
                  has_unit = ay < 0x1p24f ? 1 : 0;
    const int32_t odd = integer & has_unit & (ay >= 0x1p23f ? last_bit : left_over);
    const float inf = __builtin_inff();
    const float of_zero = y < 0.0f ? inf : 0.0f, of_inf = y < 0.0f ? 0.0f : inf;
    /* |x| != 1 to the power of -inf, +inf */
    const float below = a < 1.0f ? inf : 0.0f, above = a < 1.0f ? 0.0f : inf;
    const float finite = a == 0.0f ? of_zero : a > 0x1.fffffep127f ? of_inf : size;
    const float large = ay > 0x1.fffffep127f ? (a == 1.0f  ? 1.0f
                                                : y < 0.0f ? below
                                                           : above)
                                             : finite;
    const uint32_t sign = float_bits(x) & ((uint32_t)odd << 31);
    const float turned = bits_float(float_bits(large) ^ sign);
    const int32_t none = (x < 0.0f ? 1 : 0) & (integer ^ 1) & (a <= 0x1.fffffep127f ? 1 : 0);
    const float real = none != 0 ? __builtin_nanf("") : turned;
    const float of_nan = x != x ? x : real, some = y != y ? y : of_nan;
    const float of_one = x == 1.0f ? 1.0f : some;
    return y == 0.0f ? 1.0f : of_one;
}

/* p, written so that the compiler keeps it in the loop over i: it would make branches of conditions
 * on p that stays the same, and such a loop does not become vectors. */
static inline float at_element(float p, int64_t i)
{
    return p + 0.0f * (float)(int32_t)i;
}

/* dy times the slope of x^e, e the same for all elements; 0 for e = 0. */
static inline float pow_slope_scalar(float dy, float x, float e)
{
    const float slope = dy * (e * pow_one(x, e - 1.0f));
    return e == 0.0f ? 0.0f : slope;
}

/* The slopes of a^b: in a (0 for b = 0), and in b (0 for a = 0, b >= 0). */
static inline float pow_slope_base(float a, float b)
{
    const float slope = b * pow_one(a, b - 1.0f);
    return b == 0.0f ? 0.0f : slope;
}

static inline float pow_slope_exponent(float a, float b)
{
    const float slope = pow_one(a, b) * log_one(a);
    const int32_t flat = (a == 0.0f ? 1 : 0) & (b >= 0.0f ? 1 : 0);
    return flat != 0 ? 0.0f : slope;
}

/* A NaN on either side stays. */
static inline float smaller_of(float a, float b)
{
    const int32_t take = (a < b ? 1 : 0) | (a != a ? 1 : 0);
    return take != 0 ? a : b;
}

static inline float larger_of(float a, float b)
{
    const int32_t take = (a > b ? 1 : 0) | (a != a ? 1 : 0);
    return take != 0 ? a : b;
}

#endif
