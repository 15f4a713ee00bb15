/* combine.h. Plain loops that the compiler turns into vectors (-O3, see CMakeLists.txt); the
 * addition of floats, in which nearly all the time goes, for three instruction sets. Single IEEE
 * operations: the set changes no bit. */
#include "dist/combine.h"

#include "core/math.h"

#include <string.h>

/* Sums of signed integers are those of the unsigned ones: they wrap without being undefined. */
#define COMBINE(name, type, sum_type)                                                              \
    static void name(type *into, const type *a, const type *b, int64_t n, lvni_dist_reduce how)    \
    {                                                                                              \
        if (how == LVNI_REDUCE_SUM) {                                                              \
            for (int64_t i = 0; i < n; i++) {                                                      \
                into[i] = (type)(sum_type)((sum_type)a[i] + (sum_type)b[i]);                       \
            }                                                                                      \
        } else if (how == LVNI_REDUCE_MIN) {                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                into[i] = a[i] != a[i] || a[i] < b[i] ? a[i] : b[i];                               \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                into[i] = a[i] != a[i] || a[i] > b[i] ? a[i] : b[i];                               \
            }                                                                                      \
        }                                                                                          \
    }

COMBINE(combine_f32, float, float)
COMBINE(combine_f64, double, double)
COMBINE(combine_i64, int64_t, uint64_t)
COMBINE(combine_i32, int32_t, uint32_t)
COMBINE(combine_u8, uint8_t, uint32_t)

#define ADD_F32(name, attributes)                                                                  \
    attributes static void name(float *into, const float *a, const float *b, int64_t n)            \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            into[i] = a[i] + b[i];                                                                 \
        }                                                                                          \
    }

ADD_F32(add_plain, )
#if defined(__x86_64__)
ADD_F32(add_avx2, __attribute__((target("avx2"))))
ADD_F32(add_avx512, __attribute__((target("avx512f"))))
#endif

static void add_f32(float *into, const float *a, const float *b, int64_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        add_avx512(into, a, b, n);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        add_avx2(into, a, b, n);
        return;
    }
#endif
    add_plain(into, a, b, n);
}

bool lvni_dist_combine_has(lvn_dtype dtype)
{
    return (int)dtype >= 0 && dtype < LVN_DTYPE_COUNT && dtype != LVN_BOOL;
}

void lvni_dist_combine(void *into, const void *a, const void *b, int64_t n, lvn_dtype dtype,
                       lvni_dist_reduce how)
{
    switch (dtype) {
    case LVN_F32:
        if (how == LVNI_REDUCE_SUM) {
            add_f32(into, a, b, n);
        } else {
            combine_f32(into, a, b, n, how);
        }
        break;
    case LVN_F64: combine_f64(into, a, b, n, how); break;
    case LVN_I64: combine_i64(into, a, b, n, how); break;
    case LVN_I32: combine_i32(into, a, b, n, how); break;
    /* lvni_dist_combine_has lets nothing else through */
    default: combine_u8(into, a, b, n, how); break;
    }
}

void lvni_dist_combine_widen(float *into, const void *from, int64_t n, lvn_dtype dtype)
{
    const uint16_t *h = from;
    if (dtype == LVN_BF16) {
        for (int64_t i = 0; i < n; i++) {
            into[i] = lvni_core_bf16_to_f32(h[i]);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            into[i] = lvni_core_f16_to_f32(h[i]);
        }
    }
}

void lvni_dist_combine_narrow(void *into, const float *from, int64_t n, lvn_dtype dtype)
{
    uint16_t *h = into;
    if (dtype == LVN_BF16) {
        for (int64_t i = 0; i < n; i++) {
            h[i] = lvni_core_f32_to_bf16(from[i]);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            h[i] = lvni_core_f32_to_f16(from[i]);
        }
    }
}
