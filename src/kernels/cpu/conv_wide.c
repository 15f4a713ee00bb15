/* f32 copies of bf16 tensors around a kernel (conv_wide.h). */
#include "kernels/cpu/conv_wide.h"

#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"
#include "tensor/tensor.h"

enum { MOST = LVN_KERNEL_INPUTS + LVN_KERNEL_OUTPUTS };

static bool is_low(const lvn_tensor *t)
{
    return t != NULL && t->dtype == LVN_BF16;
}

static size_t wide_bytes(const lvn_tensor *t)
{
    return ((size_t)lvn_numel(t) * sizeof(float) + 63) / 64 * 64;
}

/* Not a parameter: its copies in other layouts belong to the bf16 numbers. */
static lvn_tensor wide_form(const lvn_tensor *t, void *data)
{
    lvn_tensor wide = {.dtype = LVN_F32, .ndim = t->ndim, .param = -1, .data = data};
    for (int i = 0; i < t->ndim; i++) {
        wide.shape[i] = t->shape[i];
    }
    return wide;
}

static lvn_status cast(const lvn_tensor *from, lvn_tensor *to)
{
    return lvni_cpu_cast(&(lvn_kernel_args){.in = {from}, .out = {to}});
}

/* Weights that come in f32 beside bf16 images are rounded to bf16, as the kernels for bf16 do. */
static bool is_rounded(const lvn_kernel_args *args, int i)
{
    return i == 1 && is_low(args->in[0]) && args->in[1]->dtype == LVN_F32;
}

/* Room for f32 copies: of all that is bf16, and of weights, these with their bf16 form behind. */
static size_t room_bytes(const lvn_kernel_args *args)
{
    size_t bytes = 0;
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        bytes += is_low(args->in[i])   ? wide_bytes(args->in[i])
                 : is_rounded(args, i) ? 2 * wide_bytes(args->in[i])
                                       : 0;
    }
    for (int i = 0; i < LVN_KERNEL_OUTPUTS; i++) {
        bytes += is_low(args->out[i]) ? wide_bytes(args->out[i]) : 0;
    }
    return bytes;
}

/* Input i in f32 at *room, which moves on. */
static lvn_status widen(const lvn_kernel_args *args, int i, char **room, lvn_tensor *wide)
{
    const lvn_tensor *from = args->in[i];
    *wide = wide_form(from, *room);
    *room += wide_bytes(from);
    if (is_low(from)) {
        return cast(from, wide);
    }
    lvn_tensor low = wide_form(from, *room);
    low.dtype = LVN_BF16;
    *room += wide_bytes(from);
    LVN_TRY(cast(from, &low));
    return cast(&low, wide);
}

lvn_status lvni_cpu_conv_wide(lvn_kernel kernel, const lvn_kernel_args *args)
{
    lvn_kernel_args copy = *args;
    lvn_tensor wide[MOST];
    char *room = lvni_cpu_scratch(LVNI_SCRATCH_WIDE, room_bytes(args));
    if (room == NULL) {
        return lvn_last_error()->code;
    }
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        if (is_low(args->in[i]) || is_rounded(args, i)) {
            LVN_TRY(widen(args, i, &room, &wide[i]));
            copy.in[i] = &wide[i];
        }
    }
    for (int i = 0; i < LVN_KERNEL_OUTPUTS; i++) {
        if (is_low(args->out[i])) {
            lvn_tensor *w = &wide[LVN_KERNEL_INPUTS + i];
            *w = wide_form(args->out[i], room);
            room += wide_bytes(args->out[i]);
            copy.out[i] = w;
        }
    }
    LVN_TRY(kernel(&copy));
    for (int i = 0; i < LVN_KERNEL_OUTPUTS; i++) {
        if (is_low(args->out[i])) {
            LVN_TRY(cast(&wide[LVN_KERNEL_INPUTS + i], args->out[i]));
        }
    }
    return LVN_OK;
}
