/* What an op returns under a watch (anomaly.h). */
#include "kernels/anomaly.h"

#include "tensor/ctx.h"
#include "tensor/device.h"

#include <math.h>
#include <stdio.h>

enum { NOTHING, INFINITE, NAN_THERE };

/* The worst of its values. */
static int worst_on_host(const lvn_tensor *t)
{
    const size_t size = lvn_dtype_size(t->dtype);
    const int64_t n = lvn_numel(t);
    int worst = NOTHING;
    for (int64_t i = 0; i < n && worst < NAN_THERE; i++) {
        const double value =
            lvni_tensor_number_at((const char *)t->data + (size_t)i * size, t->dtype);
        worst = isnan(value) ? NAN_THERE : isinf(value) ? INFINITE : worst;
    }
    return worst;
}

static bool is_float(lvn_dtype dtype)
{
    return dtype == LVN_F32 || dtype == LVN_F64 || dtype == LVN_BF16 || dtype == LVN_F16;
}

/* -1: it cannot be read, the error is set */
static int worst_of(const lvn_tensor *t)
{
    if (t == NULL || t->data == NULL || !is_float(t->dtype)) {
        return NOTHING;
    }
    lvni_tensor_device *device = lvni_tensor_device_of(t->data);
    if (device == NULL || lvni_tensor_device_is_dry(device)) {
        return device == NULL ? worst_on_host(t) : NOTHING;
    }
    lvn_tensor *here = lvni_tensor_to(t, NULL);
    if (here == NULL) {
        return -1;
    }
    const int worst = worst_on_host(here);
    lvn_release(here);
    return worst;
}

/* The worst of n tensors, and which it is. */
static int worst_of_all(const lvn_tensor *const *t, int n, int *which)
{
    int worst = NOTHING;
    for (int i = 0; i < n; i++) {
        const int own = worst_of(t[i]);
        if (own < 0) {
            return own;
        }
        if (own > worst) {
            worst = own;
            *which = i;
        }
    }
    return worst;
}

/* "exp in head.act" */
static void name_place(const lvni_kernels_op_info *info, char *out, size_t room)
{
    const char *path = lvni_tensor_ctx_get()->module_path;
    snprintf(out, room, "%s%s%s", info->name, path[0] != '\0' ? " in " : "", path);
}

static lvn_status fail(lvni_kernels_anomaly *anomaly, const char *place, int made, int given,
                       int which, const lvn_tensor *input)
{
    const char *what = made == NAN_THERE ? "NaN" : "infinity";
    anomaly->found = true;
    if (given >= made) {
        LVN_FAIL(LVN_ERR_NON_FINITE, "%s was given %s in its input %d, %s", place,
                 made == NAN_THERE ? "a NaN" : "an infinity", which,
                 input->param >= 0 ? "a weight of the model"
                                   : "which no op made: it is in the data, or the module's own");
    }
    if (given == INFINITE) {
        LVN_FAIL(LVN_ERR_NON_FINITE, "%s made the first NaN, from an infinity in its input %d%s%s",
                 place, which,
                 anomaly->infinite[0] != '\0' ? ", the first of which was made by " : "",
                 anomaly->infinite);
    }
    LVN_FAIL(LVN_ERR_NON_FINITE, "%s made the first %s, from finite numbers", place, what);
}

lvni_kernels_anomaly *lvni_kernels_anomaly_set(lvni_kernels_anomaly *anomaly)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    lvni_kernels_anomaly *before = ctx->anomaly;
    ctx->anomaly = anomaly;
    return before;
}

lvn_status lvni_kernels_anomaly_check(lvni_kernels_anomaly *anomaly,
                                      const lvni_kernels_op_info *info, const lvn_kernel_args *args)
{
    const lvn_tensor *out[LVN_KERNEL_OUTPUTS];
    int which = 0;
    for (int i = 0; i < info->n_out; i++) {
        out[i] = args->out[i];
    }
    const int made = worst_of_all(out, info->n_out, &which);
    if (made == NOTHING) {
        return LVN_OK;
    }
    const int given = made < 0 ? made : worst_of_all(args->in, info->n_in, &which);
    if (given < 0) {
        return lvn_last_error()->code;
    }
    char place[sizeof anomaly->infinite];
    name_place(info, place, sizeof place);
    if (made == INFINITE && !anomaly->strict) {
        if (given < INFINITE && anomaly->infinite[0] == '\0') {
            snprintf(anomaly->infinite, sizeof anomaly->infinite, "%s", place);
        }
        return LVN_OK;
    }
    return fail(anomaly, place, made, given, which, args->in[which]);
}
