/* bf16 and f16 as bit patterns, rounded to nearest, ties to even, NaN kept; the same bits on every
 * machine. bf16 is the upper half of an f32; f16 is IEEE 754 binary16 (largest 65504, beyond it
 * infinity; smallest subnormal 2^-24, kept: 16-bit numbers are not flushed). */
#ifndef LEVIN_CORE_HALF_H
#define LEVIN_CORE_HALF_H

#include <stdint.h>
#include <string.h>

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
