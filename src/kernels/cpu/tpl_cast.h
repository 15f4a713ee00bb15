/* Template (included by tpl_table.h only): f32 from and to bf16 and f16 (core/half.h has the rounding). */
#ifndef LEVIN_KERNELS_CPU_TPL_CAST_H
#define LEVIN_KERNELS_CPU_TPL_CAST_H

#include "core/half.h"
#include "kernels/cpu/tpl_types.h"

/* LVNI_W elements in memory to and from f32 in a register. */
static inline vf load_f32(const float *p)
{
    return load(p);
}

static inline void store_f32(float *p, vf v)
{
    store(p, v);
}

static inline vf load_bf16(const uint16_t *p)
{
#if LVNI_W == 16
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)p)), 16);
#elif LVNI_W == 8
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)p)), 16);
#else
    return (vf)_mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i_u *)p)), 16);
#endif
}

/* The rounding of lvni_f32_to_bf16. */
static inline void store_bf16(uint16_t *p, vf v)
{
    typedef uint32_t vu __attribute__((vector_size(LVNI_W * 4)));
    const vu u = (vu)v;
    const vu nan = (vu)((u & 0x7fffffffu) > 0x7f800000u);
    const vu half = (nan & (u >> 16 | 0x40u)) | (~nan & ((u + 0x7fffu + (u >> 16 & 1u)) >> 16));
#if LVNI_W == 16
    _mm256_storeu_si256((__m256i_u *)p, _mm512_cvtepi32_epi16((__m512i)half));
#elif LVNI_W == 8
    _mm_storeu_si128((__m128i_u *)p, _mm_packus_epi32(_mm256_castsi256_si128((__m256i)half), _mm256_extracti128_si256((__m256i)half, 1)));
#else
    _mm_storel_epi64((__m128i_u *)p, _mm_packus_epi32((__m128i)half, (__m128i)half));
#endif
}

static void from_bf16(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = lvni_bf16_to_f32(x[i]);
    }
}

static void to_bf16(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = lvni_f32_to_bf16(x[i]);
    }
}

static void from_f16(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = lvni_f16_to_f32(x[i]);
    }
}

static void to_f16(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = lvni_f32_to_f16(x[i]);
    }
}

#endif
