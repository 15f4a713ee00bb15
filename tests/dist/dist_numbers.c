/* dist_numbers.h */
#include "dist_numbers.h"

#include "core/math.h"

#include <math.h>
#include <string.h>

uint64_t dist_bits(int part, int64_t element, int salt)
{
    uint64_t x = (uint64_t)element * 0x9e3779b97f4a7c15u + (uint64_t)part * 0xd1b54a32d192ed03u +
                 (uint64_t)salt * 0x8cb92ba72f3d8dd7u + 1;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

float dist_gradient(int part, int64_t element, int salt)
{
    const uint64_t u = dist_bits(part, element, salt);
    static const float scale[] = {1e-8f, 1e-7f, 1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f,
                                  1.0f,  1e1f,  1e2f,  1e3f,  1e4f,  1e5f,  1e6f,  1e7f};
    const float size = (1.0f + 9.0f * (float)(u >> 40) * 0x1p-24f) * scale[u & 15];
    return (u & 16) != 0 ? -size : size;
}

void dist_gradients(float *out, int part, int64_t from, int64_t n, int salt)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = dist_gradient(part, from + i, salt);
    }
}

static float half_gradient(int part, int64_t element, int salt)
{
    const uint64_t u = dist_bits(part, element, salt);
    const float size = ldexpf(1.0f + (float)(u >> 40) * 0x1p-24f, (int)(u & 15) - 8);
    return (u & 16) != 0 ? -size : size;
}

void dist_fill(void *out, lvn_dtype dtype, int part, int64_t n, int salt)
{
    for (int64_t i = 0; i < n; i++) {
        switch (dtype) {
        case LVN_F32: ((float *)out)[i] = dist_gradient(part, i, salt); break;
        case LVN_F64:
            ((double *)out)[i] = (double)dist_gradient(part, i, salt) * (1.0 + 1e-9);
            break;
        case LVN_I64: ((int64_t *)out)[i] = (int64_t)dist_bits(part, i, salt); break;
        case LVN_I32: ((int32_t *)out)[i] = (int32_t)dist_bits(part, i, salt); break;
        case LVN_BF16:
            ((uint16_t *)out)[i] = lvni_core_f32_to_bf16(half_gradient(part, i, salt));
            break;
        case LVN_F16:
            ((uint16_t *)out)[i] = lvni_core_f32_to_f16(half_gradient(part, i, salt));
            break;
        default: ((uint8_t *)out)[i] = (uint8_t)dist_bits(part, i, salt); break;
        }
    }
}

typedef union number {
    float f;
    double d;
    int64_t i;
} number;

static number load(lvn_dtype dtype, int part, int64_t i, int salt)
{
    number v = {.i = 0};
    switch (dtype) {
    case LVN_F32: v.f = dist_gradient(part, i, salt); break;
    case LVN_F64: v.d = (double)dist_gradient(part, i, salt) * (1.0 + 1e-9); break;
    case LVN_I64: v.i = (int64_t)dist_bits(part, i, salt); break;
    case LVN_I32: v.i = (int32_t)dist_bits(part, i, salt); break;
    case LVN_BF16:
        v.f = lvni_core_bf16_to_f32(lvni_core_f32_to_bf16(half_gradient(part, i, salt)));
        break;
    case LVN_F16:
        v.f = lvni_core_f16_to_f32(lvni_core_f32_to_f16(half_gradient(part, i, salt)));
        break;
    default: v.i = (uint8_t)dist_bits(part, i, salt); break;
    }
    return v;
}

static number two(lvn_dtype dtype, lvni_dist_reduce how, number a, number b)
{
    const bool real = dtype == LVN_F32 || dtype == LVN_BF16 || dtype == LVN_F16;
    number v = a;
    if (how != LVNI_REDUCE_SUM) {
        bool less = a.i < b.i;
        if (real) {
            less = a.f < b.f;
        } else if (dtype == LVN_F64) {
            less = a.d < b.d;
        }
        return less == (how == LVNI_REDUCE_MIN) ? a : b;
    }
    if (real) {
        v.f = a.f + b.f;
    } else if (dtype == LVN_F64) {
        v.d = a.d + b.d;
    } else if (dtype == LVN_I32) {
        v.i = (int32_t)((uint32_t)a.i + (uint32_t)b.i);
    } else {
        v.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i);
        v.i = dtype == LVN_U8 ? v.i & 255 : v.i;
    }
    return v;
}

/* The rule of plan/tree.h, literally. */
static number tree(lvn_dtype dtype, lvni_dist_reduce how, int lo, int hi, int64_t i, int salt)
{
    if (hi - lo == 1) {
        return load(dtype, lo, i, salt);
    }
    int p = 1;
    while (2 * p < hi - lo) {
        p = 2 * p;
    }
    return two(dtype, how, tree(dtype, how, lo, lo + p, i, salt),
               tree(dtype, how, lo + p, hi, i, salt));
}

void dist_expect(void *out, lvn_dtype dtype, lvni_dist_reduce how, int world, int64_t i, int salt)
{
    const number v = tree(dtype, how, 0, world, i, salt);
    uint16_t half;
    switch (dtype) {
    case LVN_F32: memcpy(out, &v.f, sizeof v.f); break;
    case LVN_F64: memcpy(out, &v.d, sizeof v.d); break;
    case LVN_BF16:
        half = lvni_core_f32_to_bf16(v.f);
        memcpy(out, &half, sizeof half);
        break;
    case LVN_F16:
        half = lvni_core_f32_to_f16(v.f);
        memcpy(out, &half, sizeof half);
        break;
    default: memcpy(out, &v.i, lvn_dtype_size(dtype)); break; /* little endian: the low bytes */
    }
}

uint64_t dist_hash(const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ p[i]) * 0x100000001b3u;
    }
    return h;
}
