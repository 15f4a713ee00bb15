/* Elements of a tensor in a file as f32, whatever floating type they were written in. Called by
 * whoever loads weights of others. */
#include "ckpt/safetensors.h"
#include "core/math.h"

#include <string.h>

static uint16_t half_at(const char *from, size_t i)
{
    uint16_t h;
    memcpy(&h, from + i * sizeof h, sizeof h);
    return h;
}

lvn_status lvni_ckpt_st_read_f32(const lvni_ckpt_st_tensor *t, float *out)
{
    const size_t size = lvn_dtype_size(t->dtype), n = t->bytes / size;
    const char *from = t->data; /* files of others are not aligned */
    switch ((int)t->dtype) {
    case LVN_F32: memcpy(out, from, t->bytes); return LVN_OK;
    case LVN_F64:
        for (size_t i = 0; i < n; i++) {
            double d;
            memcpy(&d, from + i * sizeof d, sizeof d);
            out[i] = (float)d;
        }
        return LVN_OK;
    case LVN_BF16:
        for (size_t i = 0; i < n; i++) {
            out[i] = lvni_core_bf16_to_f32(half_at(from, i));
        }
        return LVN_OK;
    case LVN_F16:
        for (size_t i = 0; i < n; i++) {
            out[i] = lvni_core_f16_to_f32(half_at(from, i));
        }
        return LVN_OK;
    default:
        LVN_FAIL(LVN_ERR_DTYPE,
                 "tensor %s has elements of type %s; weights are floating-point numbers", t->name,
                 lvn_dtype_name(t->dtype));
    }
}
