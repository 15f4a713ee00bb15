/* Run one op: check, allocate outputs, choose the backend. Called by ops/ and autograd/ for every
 * op of a step. */
#include "kernels/call.h"
#include "kernels/anomaly.h"
#include "tensor/device.h"

#include "core/error.h"
#include "core/machine.h"

#include <stdatomic.h>

static lvn_status check_inputs(const lvni_kernels_op_info *info, const lvn_kernel_args *args)
{
    for (int i = 0; i < info->n_in; i++) {
        const bool optional = i >= info->n_in - lvni_kernels_op_optional(info);
        LVN_ARG(args->in[i] != NULL || optional, "%s: input %d of %d is missing (NULL)", info->name,
                i, info->n_in);
    }
    LVN_ARG(args->attr != NULL || info->attr_size == 0, "%s: needs its attributes, got NULL",
            info->name);
    return LVN_OK;
}

/* An output of the caller must match the rule. */
static lvn_status check_preset(const lvni_kernels_op_info *info, int i, const lvn_tensor *t,
                               const lvni_tensor_desc *d)
{
    bool same = t->ndim == d->ndim;
    for (int k = 0; same && k < d->ndim; k++) {
        same = t->shape[k] == d->shape[k];
    }
    if (!same) {
        char have[96], need[96];
        LVN_FAIL(LVN_ERR_SHAPE, "%s: output %d given by the caller is %s, but the result is %s",
                 info->name, i, lvni_tensor_shape_string(t->ndim, t->shape, have),
                 lvni_tensor_shape_string(d->ndim, d->shape, need));
    }
    if (t->dtype != d->dtype) {
        LVN_FAIL(LVN_ERR_DTYPE, "%s: output %d given by the caller is %s, but the result is %s",
                 info->name, i, lvn_dtype_name(t->dtype), lvn_dtype_name(d->dtype));
    }
    return LVN_OK;
}

static lvn_status make_output(const lvni_kernels_op_info *info, int i, const lvni_tensor_desc *d,
                              lvn_tensor **out)
{
    int64_t n = 1;
    for (int k = 0; k < d->ndim; k++) {
        if (d->shape[k] != 0 && n > INT64_MAX / 16 / d->shape[k]) {
            char shape[96];
            LVN_FAIL(LVN_ERR_SHAPE, "%s: a result of shape %s has too many elements to count",
                     info->name, lvni_tensor_shape_string(d->ndim, d->shape, shape));
        }
        n *= d->shape[k];
    }
    *out = lvni_tensor_new(d);
    if (*out == NULL) {
        char shape[96];
        lvn_error_frame("%s: output %d, %s %s", info->name, i,
                        lvni_tensor_shape_string(d->ndim, d->shape, shape),
                        lvn_dtype_name(d->dtype));
        return lvn_last_error()->code;
    }
    return LVN_OK;
}

/* *made gets bit i for each output allocated here. */
static lvn_status prepare_outputs(const lvni_kernels_op_info *info, lvn_kernel_args *args,
                                  unsigned want, unsigned *made)
{
    lvni_tensor_desc out[LVN_KERNEL_OUTPUTS];
    LVN_TRY(info->shape(args, out));
    for (int i = 0; i < info->n_out; i++) {
        if (args->out[i] != NULL) {
            LVN_TRY(check_preset(info, i, args->out[i], &out[i]));
        } else if ((want & (1u << i)) != 0) {
            LVN_TRY(make_output(info, i, &out[i], &args->out[i]));
            *made |= 1u << i;
        } else {
            LVN_ARG(i > 0 && (info->flags & LVNI_OPTIONAL_OUT) != 0,
                    "%s: output %d cannot be refused (want is 0x%x)", info->name, i, want);
        }
    }
    return LVN_OK;
}

/* ---- the kernel of a backend ---- */

static lvn_status run(lvni_kernels_op op, lvn_kernel_args *args, unsigned want);

/* ---- 16-bit types for kernels that know f32 only ---- */

static lvn_tensor *cast_new(const lvn_tensor *t, lvn_dtype dtype)
{
    const lvn_cast_attr attr = {.dtype = dtype};
    lvn_kernel_args a = {.in = {t}, .attr = &attr};
    return run(LVNI_OP_cast, &a, 1) == LVN_OK ? a.out[0] : NULL;
}

/* copies[i]: the f32 copy of input i, for the caller to release. */
static lvn_status widen(const lvni_kernels_op_info *info, const lvn_kernel_args *args,
                        lvn_kernel_args *wide, lvn_tensor *copies[LVN_KERNEL_INPUTS])
{
    for (int i = 0; i < info->n_in; i++) {
        if (args->in[i] != NULL && lvni_tensor_is_low(args->in[i]->dtype)) {
            copies[i] = cast_new(args->in[i], LVN_F32);
            if (copies[i] == NULL) {
                return lvn_last_error()->code;
            }
            wide->in[i] = copies[i];
        }
    }
    for (int i = 0; i < info->n_out; i++) {
        if (args->out[i] != NULL && lvni_tensor_is_low(args->out[i]->dtype)) {
            lvni_tensor_desc d = lvni_tensor_get_desc(args->out[i]);
            d.dtype = LVN_F32;
            wide->out[i] = lvni_tensor_new(&d);
            if (wide->out[i] == NULL) {
                return lvn_last_error()->code;
            }
        }
    }
    return LVN_OK;
}

static lvn_status narrow(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                         const lvn_kernel_args *args, const lvn_kernel_args *wide)
{
    for (int i = 0; i < info->n_out; i++) {
        if (args->out[i] != wide->out[i]) {
            const lvn_cast_attr attr = {.dtype = args->out[i]->dtype};
            const lvni_kernels_op_info *cast = &lvni_kernels_ops[LVNI_OP_cast];
            lvn_kernel_args a = {.in = {wide->out[i]}, .out = {args->out[i]}, .attr = &attr};
            lvni_kernels_aim(at, cast, &a);
            LVN_TRY(lvni_kernels_call(at, cast, &a));
        }
    }
    return LVN_OK;
}

/* Computed in f32, stored and rounded as bf16 or f16. */
static lvn_status run_through_f32(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                                  const lvn_kernel_args *args)
{
    lvn_kernel_args wide = *args;
    lvn_tensor *copies[LVN_KERNEL_INPUTS] = {NULL};
    lvn_status s;
    LVNI_TRY_DONE(s, widen(info, args, &wide, copies));
    LVNI_TRY_DONE(s, lvni_kernels_call(at, info, &wide));
    s = narrow(at, info, args, &wide);
done:
    for (int i = 0; i < info->n_in; i++) {
        lvn_release(copies[i]);
    }
    for (int i = 0; i < info->n_out; i++) {
        if (wide.out[i] != args->out[i]) {
            lvn_release(wide.out[i]);
        }
    }
    return s;
}

static bool is_float(lvn_dtype dtype)
{
    return dtype == LVN_F32 || dtype == LVN_F64 || lvni_tensor_is_low(dtype);
}

/* As it is, through f32 copies, or not at all. */
static lvn_status run_kernel(const lvni_kernels_place *at, const lvni_kernels_op_info *info,
                             const lvn_kernel_args *args)
{
    const lvn_backend_kernel *kernel = lvni_kernels_row(at->kind, (lvni_kernels_op)info->number);
    bool wide = false;
    for (int i = 0; kernel != NULL && i < info->n_in + info->n_out; i++) {
        const lvn_tensor *t = i < info->n_in ? args->in[i] : args->out[i - info->n_in];
        const lvn_dtype dtype = t == NULL ? LVN_F32 : t->dtype;
        const bool low = lvni_tensor_is_low(dtype);
        if (low && i < info->n_in && (kernel->f32_inputs & 1u << i) != 0) {
            wide = true;
        } else if ((kernel->dtypes & 1u << dtype) == 0 &&
                   (low || (is_float(dtype) && i < info->n_in))) {
            if (!low) {
                return lvni_kernels_refuse(at, info, args);
            }
            wide = true;
        }
    }
    return wide ? run_through_f32(at, info, args) : lvni_kernels_call(at, info, args);
}

/* cpu, or ref for f64. */
static lvn_status run_on_host(const lvni_kernels_op_info *info, lvn_kernel_args *args,
                              unsigned want, unsigned *made)
{
    lvni_kernels_place at = {.kind = LVN_DEVICE_CPU, .backend = &lvni_cpu_backend};
    for (int i = 0; i < info->n_in; i++) {
        if (args->in[i] != NULL && args->in[i]->dtype == LVN_F64) {
            at = (lvni_kernels_place){.kind = LVN_DEVICE_REF, .backend = &lvni_ref_backend};
        }
    }
    LVN_TRY(prepare_outputs(info, args, want, made));
    lvni_kernels_aim(&at, info, args);
    return run_kernel(&at, info, args);
}

/* ---- devices ---- */

/* That of the context or of a tensor; one only. */
static lvn_status find_device(const lvni_kernels_op_info *info, const lvn_kernel_args *args,
                              lvni_tensor_device **out)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL) {
        return LVN_ERR_MEMORY;
    }
    *out = ctx->device;
    if (*out != NULL && lvni_tensor_device_is_dry(*out)) {
        return LVN_OK; /* whatever the real devices hold, such as the weights of the model */
    }
    for (int i = 0; i < info->n_in + info->n_out; i++) {
        const lvn_tensor *t = i < info->n_in ? args->in[i] : args->out[i - info->n_in];
        lvni_tensor_device *d = t == NULL ? NULL : lvni_tensor_device_of(t->data);
        if (d != NULL && *out != NULL && d != *out) {
            LVN_FAIL(LVN_ERR_INVALID,
                     "%s: a tensor lies on %s, but the op runs on %s; lvn_to_device copies it",
                     info->name, lvni_tensor_device_name(d), lvni_tensor_device_name(*out));
        }
        *out = d != NULL ? d : *out;
    }
    return LVN_OK;
}

/* copies[i]: the device's copy of an input in host memory, for the caller to release. */
static lvn_status move_inputs(lvni_tensor_device *device, const lvni_kernels_op_info *info,
                              lvn_kernel_args *args, lvn_tensor *copies[LVN_KERNEL_INPUTS])
{
    for (int i = 0; i < info->n_in; i++) {
        if (args->in[i] != NULL && lvni_tensor_device_of(args->in[i]->data) == NULL) {
            copies[i] = lvni_tensor_to(args->in[i], device);
            if (copies[i] == NULL) {
                return lvn_last_error()->code;
            }
            args->in[i] = copies[i];
        }
    }
    return LVN_OK;
}

static lvn_status submit(lvni_tensor_device *device, const lvni_kernels_op_info *info,
                         lvn_kernel_args *args, lvn_tensor *copies[LVN_KERNEL_INPUTS])
{
    lvni_tensor_device *real = lvni_tensor_device_stands_for(device),
                       *of = real != NULL ? real : device;
    const lvni_kernels_place at = {.kind = lvni_tensor_device_kind(of),
                                   .backend = lvni_tensor_device_backend(of),
                                   .device = device,
                                   .state = lvni_tensor_device_state(of),
                                   .stream = lvni_tensor_device_stream(device),
                                   .dry = lvni_tensor_device_is_dry(device)};
    if (at.stream == NULL) {
        return lvn_last_error()->code;
    }
    if (!lvni_tensor_device_is_dry(device)) { /* it takes what the real devices hold */
        for (int i = 0; i < info->n_out; i++) {
            LVN_ARG(args->out[i] == NULL || lvni_tensor_device_of(args->out[i]->data) == device,
                    "%s: output %d given by the caller is in host memory, but the op runs on %s",
                    info->name, i, lvni_tensor_device_name(device));
        }
        LVN_TRY(move_inputs(device, info, args, copies));
    }
    lvni_kernels_aim(&at, info, args);
    return run_kernel(&at, info, args);
}

static lvn_status run_on_device(lvni_tensor_device *device, const lvni_kernels_op_info *info,
                                lvn_kernel_args *args, unsigned want, unsigned *made)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    lvni_tensor_device *before = ctx->device;
    ctx->device = device; /* where outputs and copies are made */
    lvn_status s = prepare_outputs(info, args, want, made);
    lvn_kernel_args on_device = *args;
    lvn_tensor *copies[LVN_KERNEL_INPUTS] = {NULL};
    if (s == LVN_OK) {
        s = submit(device, info, &on_device, copies);
    }
    for (int i = 0; i < info->n_in; i++) {
        lvn_release(copies[i]);
    }
    ctx->device = before;
    return s;
}

static lvn_status run(lvni_kernels_op op, lvn_kernel_args *args, unsigned want)
{
    LVN_ARG((int)op >= 0 && op < LVNI_OP_COUNT, "there is no op number %d", (int)op);
    const lvni_kernels_op_info *info = &lvni_kernels_ops[op];
    LVN_TRY(check_inputs(info, args));
    lvni_tensor_device *device;
    LVN_TRY(find_device(info, args, &device));
    unsigned made = 0;
    lvn_status status;
    LVNI_TRY_DONE(status, device == NULL ? run_on_host(info, args, want, &made)
                                         : run_on_device(device, info, args, want, &made));
    lvni_kernels_anomaly *anomaly = lvni_tensor_ctx_get()->anomaly;
    if (anomaly == NULL) {
        return LVN_OK;
    }
    LVNI_TRY_DONE(status, lvni_kernels_anomaly_check(anomaly, info, args));
    return LVN_OK;
done:
    for (int i = 0; i < info->n_out; i++) {
        if ((made & (1u << i)) != 0) {
            lvn_release(args->out[i]);
            args->out[i] = NULL;
        }
    }
    return status;
}

static _Atomic bool measures;
static struct {
    _Atomic uint64_t calls, ns;
} spent[LVNI_OP_COUNT];

void lvni_kernels_run_measure(bool on)
{
    for (int op = 0; op < LVNI_OP_COUNT; op++) {
        atomic_store(&spent[op].calls, 0);
        atomic_store(&spent[op].ns, 0);
    }
    atomic_store(&measures, on);
}

lvni_kernels_op_time lvni_kernels_run_time(lvni_kernels_op op)
{
    return (lvni_kernels_op_time){.calls = atomic_load(&spent[op].calls),
                                  .ns = atomic_load(&spent[op].ns)};
}

static lvn_status run_measured(lvni_kernels_op op, lvn_kernel_args *args, unsigned want)
{
    if (!atomic_load_explicit(&measures, memory_order_relaxed) || (int)op < 0 ||
        op >= LVNI_OP_COUNT) {
        return run(op, args, want);
    }
    const uint64_t start = lvni_core_now_ns();
    const lvn_status status = run(op, args, want);
    atomic_fetch_add(&spent[op].calls, 1);
    atomic_fetch_add(&spent[op].ns, lvni_core_now_ns() - start);
    return status;
}

lvn_status lvni_kernels_run(lvni_kernels_op op, lvn_kernel_args *args, unsigned want)
{
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    const lvn_status status = run_measured(op, args, want);
    lvni_tensor_fp_leave(before);
    return status;
}
