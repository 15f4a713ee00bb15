/* Template (included by tpl_table.h only): what max pooling of (H, W, C) images (tpl_pool.def) has
 * in common for all element types. */
#ifndef LEVIN_KERNELS_CPU_TPL_POOL_H
#define LEVIN_KERNELS_CPU_TPL_POOL_H

#include "kernels/cpu/tpl_types.h"

/* best, at: v wins unless it is not larger or best is a NaN already. */
static inline void challenge(vf *best, vi *at, vf v, int place)
{
#if LVNI_W == 16 /* masks as such: the compiler makes vectors of them */
    const __mmask16 number = _mm512_cmp_ps_mask((__m512)*best, (__m512)*best, _CMP_EQ_OQ);
    const __mmask16 take = _mm512_mask_cmp_ps_mask(number, (__m512)v, (__m512)*best, _CMP_NLE_UQ);
    *best = (vf)_mm512_mask_mov_ps((__m512)*best, take, (__m512)v);
    *at = (vi)_mm512_mask_set1_epi32((__m512i)*at, take, place);
#else
    const vi take = ~(v <= *best) & (*best == *best);
    *best = select_vf(take, v, *best);
    *at = (take & place) | (*at & ~take);
#endif
}

/* [first, last) of a window's k taps starting at `start` inside an axis of `size`. */
static inline void clip_taps(int64_t start, int k, int64_t size, int *first, int *last)
{
    *first = start < 0 ? (int)-start : 0;
    *last = start + k > size ? (int)(size - start) : k;
}

#endif
