/* Template (included by tpl_table.h only): exp, log and uniform random numbers of one element in
 * f32, written without branches and calls so that loops over them become vectors. Only + - * / and
 * bit operations, each rounded once: the same bits on every instruction set. Denormal results are 0
 * and denormal arguments count as 0 (every thread flushes them). */
#ifndef LEVIN_KERNELS_CPU_TPL_MATH_H
#define LEVIN_KERNELS_CPU_TPL_MATH_H

#include "kernels/cpu/tpl_types.h"

/* ln 2 = HI + LO, HI with 15 significant bits: k * HI is exact for every exponent k. */
#define LN2_HI 0x1.62e4p-1f
#define LN2_LO 0x1.7f7d1cp-20f

/* e^x = 2^k e^r, |r| <= ln2 / 2, e^r by its Taylor series to r^7. Error at most 1.03 ulp
 * (measured). */
static inline float exp_one(float x)
{
    const float shifted = x * 0x1.715476p0f + 0x1.8p23f; /* round x / ln2 to an integer */
    const float k = shifted - 0x1.8p23f;
    const float r = (x - k * LN2_HI) - k * LN2_LO;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    const float e = 1.0f + (r + r * r * p);
    /* the low bits of `shifted` are k */
    const float y = bits_float(float_bits(e) + (float_bits(shifted) << 23));
    /* below ln 2^-126: flushed */
    const float low = x < -0x1.5d589ep6f ? 0.0f : y;
    /* above ln of the largest float */
    const float high = x > 0x1.62e42ep6f ? __builtin_inff() : low;
    return x != x ? x : high;
}

/* x = 2^k m, m in [sqrt 1/2, sqrt 2); log m = 2 artanh(s), s = f / (2 + f), f = m - 1. Error at
 * most 0.84 ulp (measured). */
static inline float log_one(float x)
{
    const uint32_t bits = float_bits(x);
    const float m1 = bits_float((bits & 0x7fffffu) | 0x3f800000u); /* [1, 2) */
    const int32_t big = m1 > 0x1.6a09e6p0f ? 1 : 0;
    const float m = big != 0 ? m1 * 0.5f : m1;
    const float k = (float)((int32_t)(bits >> 23) - 127 + big);
    const float f = m - 1.0f;
    const float s = f / (2.0f + f);
    const float z = s * s;
    float p = 2.0f / 11.0f;
    p = p * z + 2.0f / 9.0f;
    p = p * z + 2.0f / 7.0f;
    p = p * z + 2.0f / 5.0f;
    p = p * z + 2.0f / 3.0f;
    const float half = 0.5f * f * f;
    const float y = k * LN2_HI - ((half - (s * (half + z * p) + k * LN2_LO)) - f);
    const float nan = x < 0.0f ? __builtin_nanf("") : y;
    const float zero = x == 0.0f ? -__builtin_inff() : nan;
    const float inf = x > 0x1.fffffep127f ? x : zero;
    return x != x ? x : inf;
}

/* Philox 4x32-10 of counters first .. first + count - 1: four words each (rng.h). */
static inline void philox_words(const lvni_core_rng *rng, uint32_t first, int count,
                                uint32_t *restrict out)
{
    const uint32_t a = rng->a, b = rng->b, c = rng->c, key0 = rng->key.k[0], key1 = rng->key.k[1];
    for (int i = 0; i < count; i++) {
        uint32_t c0 = first + (uint32_t)i, c1 = c, c2 = b, c3 = a, k0 = key0, k1 = key1;
#pragma GCC unroll 10
        for (int round = 0; round < 10; round++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
            const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
            c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
            c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
            c1 = (uint32_t)p1;
            c3 = (uint32_t)p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        out[4 * i] = c0;
        out[4 * i + 1] = c1;
        out[4 * i + 2] = c2;
        out[4 * i + 3] = c3;
    }
}

#endif
