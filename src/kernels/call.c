/* One call of a kernel (call.h). */
#include "kernels/call.h"

#include "core/str.h"

#include <stdio.h>
#include <string.h>

void lvni_kernels_aim(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                      lvn_kernel_args *args)
{
    args->op = &info->op;
    args->device = at->state;
    args->stream = at->stream;
}

/* ---- kernels that are not there ---- */

/* "f32 (3, 256), i64 (3)" */
static void print_inputs(const lvni_kernels_op_info *info, const lvn_kernel_args *args,
                         char out[256])
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < info->n_in && n < 256; i++) {
        char shape[96];
        const lvn_tensor *t = args->in[i];
        const int more = t == NULL ? 0
                                   : snprintf(out + n, 256 - n, "%s%s %s", n > 0 ? ", " : "",
                                              lvn_dtype_name(t->dtype),
                                              lvni_tensor_shape_string(t->ndim, t->shape, shape));
        n += more > 0 ? (size_t)more : 0;
    }
}

enum { MOST_NAMED = 20 };

/* What the dry runs of a context found out. */
typedef struct missing {
    const lvn_backend *backend; /* NULL: it has all kernels */
    bool noted[LVNI_OP_COUNT];
    int n; /* ops without a kernel */
    lvni_core_str names;
    int n_refused; /* ops whose kernel does not take what it is given */
    lvni_core_str refused;
} missing;

static void end_missing(void *state)
{
    missing *m = state;
    lvni_core_str_free(&m->names);
    lvni_core_str_free(&m->refused);
}

static const lvni_tensor_state_class missing_class = {.bytes = sizeof(missing), .end = end_missing};

static lvn_status note_missing(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                               const lvn_kernel_args *args)
{
    missing *m = lvni_tensor_ctx_state(&missing_class);
    if (m == NULL) {
        return lvn_last_error()->code;
    }
    m->backend = at->backend;
    if (m->noted[info->number]) {
        return LVN_OK;
    }
    m->noted[info->number] = true;
    if (lvni_kernels_row(at->kind, (lvni_kernels_op)info->number) == NULL) {
        if (m->n++ < MOST_NAMED) {
            lvni_core_str_printf(&m->names, "%s%s", m->n > 1 ? ", " : "", info->name);
        }
        return lvni_core_str_status(&m->names);
    }
    if (m->n_refused++ < 2) {
        char inputs[256];
        print_inputs(info, args, inputs);
        lvni_core_str_printf(&m->refused, "%s%s with the inputs %s",
                             m->n_refused > 1 ? ", nor for " : "", info->name, inputs);
    } else {
        lvni_core_str_printf(&m->refused, ", nor for some of %s", info->name);
    }
    return lvni_core_str_status(&m->refused);
}

lvn_status lvni_kernels_check_missing(void)
{
    const missing *m = lvni_tensor_ctx_state(&missing_class);
    if (m == NULL || m->backend == NULL) {
        return m == NULL ? lvn_last_error()->code : LVN_OK;
    }
    char more[32] = "";
    if (m->n > MOST_NAMED) {
        snprintf(more, sizeof more, " and %d more", m->n - MOST_NAMED);
    }
    LVN_FAIL(LVN_ERR_UNSUPPORTED,
             "the backend %s has no kernel for %s%s%s%s; `levin ops` lists what each backend has",
             m->backend->name, lvni_core_str_text(&m->names), more,
             m->n > 0 && m->n_refused > 0 ? ", nor for " : "", lvni_core_str_text(&m->refused));
}

lvn_status lvni_kernels_refuse(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                               const lvn_kernel_args *args)
{
    if (at->dry) {
        return note_missing(at, info, args);
    }
    char inputs[256];
    print_inputs(info, args, inputs);
    LVN_FAIL(LVN_ERR_UNSUPPORTED,
             "the backend %s has no kernel for %s with the inputs %s; `levin ops` lists what each "
             "backend has",
             at->backend->name, info->name, inputs);
}

/* ---- calls ---- */

/* "sim:0: conv2d: what is wrong" */
static lvn_status name_error(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                             lvn_status s)
{
    if (s == LVN_OK || at->device == NULL) {
        return s;
    }
    const lvn_error e = *lvn_last_error();
    const size_t n = strlen(info->name);
    const bool named = strncmp(e.message, info->name, n) == 0 && e.message[n] == ':';
    lvn_error_set(e.code, e.file, e.line, "%s: %s%s%s", lvni_tensor_device_name(at->device),
                  named ? "" : info->name, named ? "" : ": ", e.message);
    for (int i = 0; i < e.n_frames; i++) {
        lvn_error_frame("%s", e.frames[i]);
    }
    return s;
}

/* In a dry run for levin's own backends, what the cpu's kernel takes is counted (kernels/dry); of
 * others the scratch memory that they ask for is all that is known. */
static lvn_status run(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                      const lvn_backend_kernel *kernel, const lvn_kernel_args *args)
{
    if (!at->dry) {
        return name_error(at, info, kernel->run(args));
    }
    lvni_kernels_count_flops(info, args);
    return at->kind >= LVN_DEVICE_LOADED
               ? LVN_OK
               : lvni_kernels_row(LVN_DEVICE_DRY, (lvni_kernels_op)info->number)->run(args);
}

/* Kernels of devices read vectors (levin/backend.h). */
static lvn_status check_alignment(const lvni_kernels_op_info *info, const lvn_kernel_args *args)
{
    for (int i = 0; i < info->n_in + info->n_out; i++) {
        const lvn_tensor *t = i < info->n_in ? args->in[i] : args->out[i - info->n_in];
        if (t != NULL && (uintptr_t)t->data % LVN_TENSOR_ALIGNMENT != 0) {
            LVN_FAIL(LVN_ERR_INVALID,
                     "%s: %s %d begins at an address that is not a multiple of %d bytes; copy it "
                     "before it is used",
                     info->name, i < info->n_in ? "input" : "output",
                     i < info->n_in ? i : i - info->n_in, (int)LVN_TENSOR_ALIGNMENT);
        }
    }
    return LVN_OK;
}

/* The next owner of the block submits later, in the order of all compute streams. */
static lvn_status run_with_workspace(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                                     const lvn_backend_kernel *kernel, const lvn_kernel_args *args,
                                     size_t bytes)
{
    size_t got;
    lvn_kernel_args own = *args;
    own.workspace_bytes = bytes;
    own.workspace = lvni_tensor_device_take(at->device, LVN_STREAM_COMPUTE, bytes, &got);
    if (own.workspace == NULL) {
        lvn_error_frame("scratch memory of %s", info->name);
        return lvn_last_error()->code;
    }
    const lvn_status s = run(at, info, kernel, &own);
    lvni_tensor_device_give(at->device, LVN_STREAM_COMPUTE, false, own.workspace, got);
    return s;
}

lvn_status lvni_kernels_call(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                             const lvn_kernel_args *args)
{
    const lvn_backend_kernel *kernel = lvni_kernels_row(at->kind, (lvni_kernels_op)info->number);
    if (kernel == NULL ||
        (at->backend->supports != NULL && !at->backend->supports(args->device, args))) {
        return lvni_kernels_refuse(at, info, args);
    }
    LVN_TRY(at->device == NULL || at->dry ? LVN_OK : check_alignment(info, args));
    const size_t bytes = kernel->workspace == NULL ? 0 : kernel->workspace(args);
    return bytes == 0 ? run(at, info, kernel, args)
                      : run_with_workspace(at, info, kernel, args, bytes);
}
