/* Scalar functions in double precision that give the same bits on every machine: own polynomials,
 * only + - * / and sqrt (all correctly rounded by IEEE 754), no fused multiply-add. For
 * initialisers, schedules and references; the vector forms in f32 live in kernels/cpu. Accuracy:
 * within 2 units in the last place over the normal range. */
#ifndef LEVIN_CORE_MATH_H
#define LEVIN_CORE_MATH_H

#include <stdint.h>
#include <string.h>

double lvni_core_exp(double x);   /* 0 below -745, +inf above 709.78 */
double lvni_core_log(double x);   /* -inf at 0, NaN below */
double lvni_core_log1p(double x); /* log(1 + x), x > -1, within 4 units near 0, too */
double lvni_core_sqrt(double x);
double lvni_core_cos2pi(double x); /* cos(2 pi x), |x| < 2^30 */
/* of any finite x; NaN for infinities */
double lvni_core_sin(double x);
double lvni_core_cos(double x);
double lvni_core_pow(double x, double y); /* every special value as C's pow */
double lvni_core_tanh(double x);
double lvni_core_erf(double x);  /* within 12 units */
double lvni_core_erfc(double x); /* 1 - erf(x), with a few digits less than the others below 2 */

/* For text: NaN without its sign, which processors set and printf would write ("-nan"); all else as
 * it is. */
double lvni_core_unsigned_nan(double x);

/* ---- 16-bit floats as bit patterns ----
 * Rounded to nearest, ties to even, NaN kept. bf16 is the upper half of an f32; f16 is IEEE 754
 * binary16 (largest 65504, beyond it infinity; smallest subnormal 2^-24, not flushed). */

static inline uint32_t lvni_core_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float lvni_core_bits_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float lvni_core_bf16_to_f32(uint16_t h)
{
    return lvni_core_bits_f32((uint32_t)h << 16);
}

static inline uint16_t lvni_core_f32_to_bf16(float f)
{
    const uint32_t u = lvni_core_f32_bits(f);
    const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    const uint32_t quiet = u >> 16 | 0x40u;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float lvni_core_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
    if (magnitude >= 0x7c00u) { /* infinity, NaN */
        return lvni_core_bits_f32(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    }
    if (magnitude < 0x400u) { /* subnormal: magnitude * 2^-24, exact in f32 */
        const float value = (float)magnitude * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    return lvni_core_bits_f32(sign | ((magnitude << 13) + (112u << 23)));
}

static inline uint16_t lvni_core_f32_to_f16(float f)
{
    const uint32_t u = lvni_core_f32_bits(f), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (magnitude >= 0x477ff000u) { /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) {
        /* below 2^-14: units of 2^-24; adding 0.5 puts that unit at the last bit of the sum */
        return (uint16_t)(sign |
                          (lvni_core_f32_bits(lvni_core_bits_f32(magnitude) + 0.5f) - 0x3f000000u));
    }
    return (uint16_t)(sign | (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}

#endif
