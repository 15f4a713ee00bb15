/* Template (included by tpl_table.h only): vectors of this instruction set and the 16 virtual
 * accumulators.
 *
 * Two ways of writing a loop are used, both with the same bits everywhere: plain loops over
 * elements (the compiler may use any width, each element is computed alone), and native vectors of
 * LVNI_W floats where order matters. Virtual accumulator j takes elements j, j + 16, j + 32, ...;
 * the 16 are added in one fixed tree. */
#ifndef LEVIN_KERNELS_CPU_TPL_TYPES_H
#define LEVIN_KERNELS_CPU_TPL_TYPES_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"

#include <immintrin.h>
#include <string.h>

typedef float vf __attribute__((vector_size(LVNI_W * 4)));
typedef int32_t vi __attribute__((vector_size(LVNI_W * 4)));
typedef float vf_mem __attribute__((vector_size(LVNI_W * 4), aligned(4), may_alias));

enum {
    LANES = 16,
    SHORT_ROW = 64,
    PARTS = LANES / LVNI_W,
    PACKED_ROWS = 16,
    PACK_LIMIT = 64,
    COLUMN_CHUNK = 512
};

static inline vf load(const float *p)
{
    return *(const vf_mem *)p;
}

static inline void store(float *p, vf v)
{
    *(vf_mem *)p = v;
}

static inline vf select_vf(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

/* LVNI_W bytes to and from integers: the only place where the compiler's own conversion is too slow
 * (it goes through single elements). Values are 0 to 255. */
static inline vi load_bytes(const uint8_t *p)
{
#if LVNI_W == 16
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i_u *)p));
#elif LVNI_W == 8
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i_u *)p));
#else
    int32_t four;
    memcpy(&four, p, sizeof four);
    return (vi)_mm_cvtepu8_epi32(_mm_cvtsi32_si128(four));
#endif
}

static inline void store_bytes(uint8_t *p, vi v)
{
#if LVNI_W == 16
    _mm_storeu_si128((__m128i_u *)p, _mm512_cvtepi32_epi8((__m512i)v));
#elif LVNI_W == 8
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128((__m256i)v),
                                           _mm256_extracti128_si256((__m256i)v, 1));
    _mm_storel_epi64((__m128i_u *)p, _mm_packus_epi16(words, words));
#else
    const __m128i words = _mm_packus_epi32((__m128i)v, (__m128i)v);
    const int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(p, &four, sizeof four);
#endif
}

static inline uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* The fixed tree over the 16 virtual accumulators: 8 apart, then 4, 2, 1. */
static inline float add_lanes(const float lane[LANES])
{
    float s[LANES / 2];
    for (int j = 0; j < 8; j++) {
        s[j] = lane[j] + lane[j + 8];
    }
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* Tables of few columns are read as if 16 rows were one, so that vectors are full. Fixed by the
 * shape alone. */
static inline bool packs(int64_t cols)
{
    return cols < PACK_LIMIT && cols % LANES != 0;
}

/* A row of per-column values, repeated for the packed rows. */
static inline void repeat_row(const float *row, int64_t cols, float *out)
{
    for (int p = 0; p < PACKED_ROWS; p++) {
        memcpy(out + p * cols, row, (size_t)cols * sizeof *row);
    }
}

/* Add up the packed rows of sums (fixed tree: 8 apart, then 4, 2, 1); the result is the first
 * `cols` values. */
static inline void unpack_sums(float *sums, int64_t cols)
{
    for (int64_t half = PACKED_ROWS / 2; half >= 1; half /= 2) {
        for (int64_t j = 0; j < half * cols; j++) {
            sums[j] += sums[half * cols + j];
        }
    }
}

#endif
