/* Casts between float types. Called through the op table, and by lvni_kernels_run for kernels that
 * compute in f32. */
#include "core/math.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <string.h>

enum { GRAIN = 4096 };

typedef struct cast_job {
    const void *x;
    void *y;
    lvn_dtype from, to;
} cast_job;

/* Anything to f32, n <= GRAIN elements from `begin`. */
static void load_f32(const cast_job *j, int64_t begin, int64_t n, float *out)
{
    const lvni_cpu_vec *isa = lvni_cpu_isa();
    switch (j->from) {
    case LVN_BF16: isa->from_bf16((const uint16_t *)j->x + begin, out, n); return;
    case LVN_F16: isa->from_f16((const uint16_t *)j->x + begin, out, n); return;
    case LVN_F64:
        for (int64_t i = 0; i < n; i++) {
            out[i] = (float)((const double *)j->x)[begin + i];
        }
        return;
    default: memcpy(out, (const float *)j->x + begin, (size_t)n * sizeof *out); return;
    }
}

static void store_f32(const cast_job *j, int64_t begin, int64_t n, const float *in)
{
    const lvni_cpu_vec *isa = lvni_cpu_isa();
    switch (j->to) {
    case LVN_BF16: isa->to_bf16(in, (uint16_t *)j->y + begin, n); return;
    case LVN_F16: isa->to_f16(in, (uint16_t *)j->y + begin, n); return;
    case LVN_F64:
        for (int64_t i = 0; i < n; i++) {
            ((double *)j->y)[begin + i] = (double)in[i];
        }
        return;
    default: memcpy((float *)j->y + begin, in, (size_t)n * sizeof *in); return;
    }
}

static void cast_range(const void *job, int64_t begin, int64_t end)
{
    const cast_job *j = job;
    float block[GRAIN];
    for (int64_t i = begin; i < end; i += GRAIN) {
        const int64_t n = end - i < GRAIN ? end - i : GRAIN;
        if (j->to == LVN_F32) {
            load_f32(j, i, n, (float *)j->y + i);
        } else if (j->from == LVN_F32) {
            store_f32(j, i, n, (const float *)j->x + i);
        } else {
            load_f32(j, i, n, block);
            store_f32(j, i, n, block);
        }
    }
}

lvn_status lvni_cpu_cast(const lvn_kernel_args *args)
{
    const cast_job job = {.x = args->in[0]->data,
                          .y = args->out[0]->data,
                          .from = args->in[0]->dtype,
                          .to = args->out[0]->dtype};
    lvni_cpu_par(lvn_numel(args->out[0]), GRAIN, 1, cast_range, &job);
    return LVN_OK;
}
