/* Running what onednn_api.c has made (onednn_api.h). */
#include "kernels/cpu/onednn_plan.h"

#include "core/error.h"
#include "tensor/device.h"

#include <string.h>

/* oneDNN reads through pointers that are not const. */
static void *unconst(const void *p)
{
    return (void *)(uintptr_t)p;
}

static lvn_status run_aligned(lvni_cpu_dnn_prim *p, dnnl_stream_t stream, const void *const *data,
                              void *scratch)
{
    const int n = p->n_args + (p->scratch_bytes > 0 ? 1 : 0);
    for (int i = 0; i < n; i++) {
        void *handle = i < p->n_args ? unconst(data[i]) : scratch;
        if (handle != p->handles[i]) {
            p->handles[i] = NULL;
            LVNI_DNN(dnnl_memory_set_data_handle(p->args[i].memory, handle), "set an argument");
            p->handles[i] = handle;
        }
    }
    LVNI_DNN(dnnl_primitive_execute(p->primitive, stream, n, p->args), "run a primitive");
    LVNI_DNN(dnnl_stream_wait(stream), "finish a primitive");
    return LVN_OK;
}

/* The SSE4.1 kernels of oneDNN die of operands that are not 16-byte aligned, as slices of flat
 * buffers may be. Such machines are old and LEVIN_CPU_ISA=v2 is for tests, so whole copies are good
 * enough. */
static bool needs_copy(const lvni_cpu_dnn_prim *p, const void *const *data)
{
    if (dnnl_get_effective_cpu_isa() != dnnl_cpu_isa_sse41) {
        return false;
    }
    for (int i = 0; i < p->n_args; i++) {
        if ((uintptr_t)data[i] % 16 != 0) {
            return true;
        }
    }
    return false;
}

static lvn_status run_on_copies(lvni_cpu_dnn_prim *p, dnnl_stream_t stream, const void *const *data,
                                void *scratch)
{
    const void *aligned[LVNI_DNN_MAX_ARGS] = {NULL};
    void *copies[LVNI_DNN_MAX_ARGS] = {NULL};
    size_t bytes[LVNI_DNN_MAX_ARGS] = {0};
    lvn_status s;
    for (int i = 0; i < p->n_args; i++) {
        lvni_cpu_dnn_desc_view desc = NULL;
        aligned[i] = data[i];
        if ((uintptr_t)data[i] % 16 != 0) {
            LVNI_TRY_DONE(s,
                          lvni_cpu_dnn_check(dnnl_memory_get_memory_desc(p->args[i].memory, &desc),
                                             "describe an argument", __LINE__));
            bytes[i] = dnnl_memory_desc_get_size(desc);
            aligned[i] = copies[i] = lvni_core_alloc(LVNI_TAG_KERNEL, bytes[i]);
            LVNI_TRY_DONE(s, copies[i] == NULL ? lvn_last_error()->code : LVN_OK);
            memcpy(copies[i], data[i], bytes[i]);
        }
    }
    LVNI_TRY_DONE(s, run_aligned(p, stream, aligned, scratch));
    if (copies[p->output] != NULL) {
        memcpy(unconst(data[p->output]), copies[p->output], bytes[p->output]);
    }
done:
    for (int i = 0; i < p->n_args; i++) {
        lvni_core_free(copies[i]);
    }
    return s;
}

lvn_status lvni_cpu_dnn_run(lvni_cpu_dnn_prim *p, dnnl_stream_t stream, const void *const *data,
                            void *scratch)
{
    if (lvni_tensor_device_dry_run()) {
        return LVN_OK;
    }
    return needs_copy(p, data) ? run_on_copies(p, stream, data, scratch)
                               : run_aligned(p, stream, data, scratch);
}

lvn_status lvni_cpu_dnn_reorder(lvni_cpu_dnn_prim *p, dnnl_stream_t stream, const void *from,
                                void *to, void *scratch)
{
    if (lvni_tensor_device_dry_run()) {
        return LVN_OK;
    }
    void *const handles[3] = {unconst(from), to, scratch};
    const int n = p->reorder_scratch_bytes > 0 ? 3 : 2;
    for (int i = 0; i < n; i++) {
        LVNI_DNN(dnnl_memory_set_data_handle(p->reorder_args[i].memory, handles[i]),
                 "set an argument of a reorder");
    }
    LVNI_DNN(dnnl_primitive_execute(p->reorder, stream, n, p->reorder_args), "reorder weights");
    LVNI_DNN(dnnl_stream_wait(stream), "finish a reorder");
    return LVN_OK;
}
