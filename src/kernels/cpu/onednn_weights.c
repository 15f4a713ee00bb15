/* Weights on their way to and from oneDNN (onednn_weights.h). */
#include "kernels/cpu/onednn_weights.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/weights_cache.h"
#include "tensor/device.h"

static size_t rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Lane memory: weights in the chosen layout (when not shared), then a scratchpad for primitive and
 * reorder in turn. */
static lvn_status lane_memory(const lvni_cpu_dnn_prim *p, size_t weights, void **copy,
                              void **scratch)
{
    const size_t pad =
        p->scratch_bytes > p->reorder_scratch_bytes ? p->scratch_bytes : p->reorder_scratch_bytes;
    *copy = lvni_cpu_scratch(LVNI_SCRATCH_DNNL, rounded(weights) + pad);
    if (*copy == NULL) {
        return lvn_last_error()->code;
    }
    *scratch = (char *)*copy + rounded(weights);
    return LVN_OK;
}

lvn_status lvni_cpu_dnn_run_to_weights(const lvni_cpu_dnn_found *f, const void **data, void *dw)
{
    lvni_cpu_dnn_prim *p = f->prim;
    void *copy = NULL, *scratch = NULL;
    LVN_TRY(lane_memory(p, p->chosen_bytes, &copy, &scratch));
    data[LVNI_DNN_WEIGHTS] = p->reorder != NULL ? copy : dw;
    LVN_TRY(lvni_cpu_dnn_run(p, f->stream, data, scratch));
    return p->reorder != NULL ? lvni_cpu_dnn_reorder(p, f->stream, copy, dw, scratch) : LVN_OK;
}

lvn_status lvni_cpu_dnn_run_with_weights(const lvni_cpu_dnn_found *f, const void **data,
                                         const lvn_tensor *w)
{
    lvni_cpu_dnn_prim *p = f->prim;
    const bool shared = p->reorder != NULL && p->format != 0 && w->param >= 0;
    void *copy = NULL, *scratch = NULL;
    lvni_cpu_weights_copy *pinned = NULL;
    LVN_TRY(lane_memory(p, shared ? 0 : p->chosen_bytes, &copy, &scratch));
    if (p->reorder == NULL) {
        data[LVNI_DNN_WEIGHTS] = w->data;
    } else if (shared && lvni_tensor_device_dry_run()) {
        LVN_TRY(lvni_cpu_scratch_record_weights(w->id, p->format, p->chosen_bytes));
    } else if (shared) {
        LVN_TRY(lvni_cpu_weights_acquire(p, f->stream, w, scratch, &pinned));
        data[LVNI_DNN_WEIGHTS] = lvni_cpu_weights_data(pinned);
    } else {
        LVN_TRY(lvni_cpu_dnn_reorder(p, f->stream, w->data, copy, scratch));
        data[LVNI_DNN_WEIGHTS] = copy;
    }
    const lvn_status s = lvni_cpu_dnn_run(p, f->stream, data, scratch);
    if (pinned != NULL) {
        lvni_cpu_weights_release(pinned);
    }
    return s;
}

lvn_status lvni_cpu_dnn_bias(const lvn_tensor *b, const void **out)
{
    *out = b == NULL ? NULL : b->data;
    if (b == NULL || b->dtype == LVN_F32) {
        return LVN_OK;
    }
    float *wide = lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)lvn_numel(b) * sizeof *wide);
    if (wide == NULL) {
        return lvn_last_error()->code;
    }
    if (!lvni_tensor_device_dry_run()) {
        lvni_cpu_isa()->from_bf16(b->data, wide, lvn_numel(b));
    }
    *out = wide;
    return LVN_OK;
}
