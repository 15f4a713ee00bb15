/* Template (included by tpl_table.h only): f32 from and to bf16 and f16 (core/math.h has the
 * rounding). */
#ifndef LEVIN_KERNELS_CPU_TPL_CAST_H
#define LEVIN_KERNELS_CPU_TPL_CAST_H

#include "core/math.h"
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
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)p)),
                                 16);
#elif LVNI_W == 8
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)p)), 16);
#else
    return (vf)_mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i_u *)p)), 16);
#endif
}

/* The rounding of lvni_core_f32_to_bf16. */
static inline void store_bf16(uint16_t *p, vf v)
{
#if LVNI_W == 16
    const __m512i u = (__m512i)v,
                  odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    const __m512i kept = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256((__m256i_u *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
#else
    typedef uint32_t vu __attribute__((vector_size(LVNI_W * 4)));
    const vu u = (vu)v, nan = (vu)(v != v);
    const vu half = ((nan & (u | 0x400000u)) | (~nan & (u + 0x7fffu + (u >> 16 & 1u)))) >> 16;
#if LVNI_W == 8
    _mm_storeu_si128((__m128i_u *)p, _mm_packus_epi32(_mm256_castsi256_si128((__m256i)half),
                                                      _mm256_extracti128_si256((__m256i)half, 1)));
#else
    _mm_storel_epi64((__m128i_u *)p, _mm_packus_epi32((__m128i)half, (__m128i)half));
#endif
#endif
}

static void from_bf16(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = lvni_core_bf16_to_f32(x[i]);
    }
}

static void to_bf16(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    int64_t i = 0;
    for (; i + LVNI_W <= n; i += LVNI_W) {
        store_bf16(y + i, load(x + i));
    }
    for (; i < n; i++) {
        y[i] = lvni_core_f32_to_bf16(x[i]);
    }
}

static void from_f16(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = lvni_core_f16_to_f32(x[i]);
    }
}

static void to_f16(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = lvni_core_f32_to_f16(x[i]);
    }
}

#endif
