/* One op of a backend over its cases (check.h). */
#include "kernels/check/check.h"
#include "core/error.h"
#include "kernels/check/op_cases.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A case that runs. */
typedef struct trial {
    lvni_kernels_op op;
    const lvni_check_case *row;
    lvn_dtype dtype;
    lvni_tensor_device *device;
    const void *attr; /* the case's, or another for the same result */
    lvni_check_inputs in;
    lvn_tensor *on_device[LVN_KERNEL_INPUTS]; /* the inputs on the device */
    lvni_tensor_desc desc[LVN_KERNEL_OUTPUTS];
    lvn_tensor *first[LVN_KERNEL_OUTPUTS]; /* results in host memory */
} trial;

static size_t bytes_of(const lvni_tensor_desc *d)
{
    return (size_t)lvni_tensor_desc_numel(d) * lvn_dtype_size(d->dtype);
}

/* The first error counts, found while submitting or by the device. */
static lvn_status wait_for_device(lvn_status submitted)
{
    const lvn_error error = *lvn_last_error();
    const lvn_status s = lvni_tensor_device_take_error();
    return submitted == LVN_OK ? s : lvn_error_adopt(&error);
}

/* A tensor of this shape over the part of a room; owned. */
static lvn_tensor *view_of(const lvni_check_room *room, const lvni_tensor_desc *d)
{
    return lvni_tensor_slice(room->all, (int64_t)room->before, d); /* offsets in bytes: u8 */
}

/* What kernels find in memory that nothing has been written to: NaN, or large numbers. */
typedef enum filling { NAN_FIRST, LARGE_FIRST } filling;

static lvn_status fill_room(const trial *t, filling with, size_t bytes, lvni_check_room *room)
{
    if (with == NAN_FIRST) {
        return lvni_check_room_make(t->device, NULL, bytes, 0, room);
    }
    const int64_t n = (int64_t)(bytes / sizeof(float) + 1);
    lvn_tensor *large = lvn_tensor_create(LVN_F32, 1, &n);
    for (int64_t e = 0; large != NULL && e < n; e++) {
        LVNI_F32(large)[e] = 1e30f;
    }
    const lvn_status s = large == NULL
                             ? lvn_last_error()->code
                             : lvni_check_room_make(t->device, large->data, bytes, 0, room);
    lvn_release(large);
    return s;
}

static lvn_status run_spoiled(const trial *t, lvn_kernel_args *args, unsigned want, filling with)
{
    lvni_kernels_scratch_spoil(with == NAN_FIRST ? NAN : 1e30f);
    const lvn_status s = wait_for_device(lvni_kernels_run(t->op, args, want));
    lvni_kernels_scratch_spoil(0.0f);
    return s;
}

/* Run with the outputs of `want` in fresh rooms; result[k]: copies in host memory, owned. */
static lvn_status run_into(const trial *t, unsigned want, filling with,
                           lvn_tensor *result[LVN_KERNEL_OUTPUTS])
{
    const int n_out = lvni_kernels_ops[t->op].n_out;
    lvni_check_room room[LVN_KERNEL_OUTPUTS] = {{.all = NULL}};
    lvn_kernel_args args = {.attr = t->attr};
    memcpy(args.in, t->on_device, sizeof args.in);
    lvn_status s;
    for (int k = 0; k < n_out; k++) {
        if ((want & 1u << k) != 0) {
            LVNI_TRY_DONE(s, fill_room(t, with, bytes_of(&t->desc[k]), &room[k]));
            args.out[k] = view_of(&room[k], &t->desc[k]);
            LVNI_TRY_DONE(s, args.out[k] == NULL ? LVN_ERR_MEMORY : LVN_OK);
        }
    }
    s = run_spoiled(t, &args, want, with);
done:
    for (int k = 0; k < n_out; k++) {
        if (s == LVN_OK && args.out[k] != NULL) {
            char what[64];
            snprintf(what, sizeof what, "output %d", k);
            result[k] = lvni_tensor_new_on(&t->desc[k], NULL);
            s = result[k] == NULL ? LVN_ERR_MEMORY
                                  : lvni_check_room_read(&room[k], what, result[k]->data);
        }
        lvn_release(args.out[k]);
        lvni_check_room_free(&room[k]);
    }
    return s;
}

static void release_all(lvn_tensor *result[LVN_KERNEL_OUTPUTS])
{
    for (int k = 0; k < LVN_KERNEL_OUTPUTS; k++) {
        lvn_release(result[k]);
        result[k] = NULL;
    }
}

static bool same_bytes(const lvn_tensor *a, const lvn_tensor *b)
{
    return memcmp(a->data, b->data, (size_t)lvn_numel(a) * lvn_dtype_size(a->dtype)) == 0;
}

/* Once more with these outputs, over other old contents: the bits of the first time. */
static lvn_status run_again(const trial *t, unsigned want, const char *how)
{
    lvn_tensor *again[LVN_KERNEL_OUTPUTS] = {NULL};
    lvn_status s;
    LVNI_TRY_DONE(s, run_into(t, want, LARGE_FIRST, again));
    for (int k = 0; k < LVN_KERNEL_OUTPUTS; k++) {
        if (again[k] != NULL && !same_bytes(again[k], t->first[k])) {
            s = lvn_error_set(LVN_ERR_MISMATCH, __FILE__, __LINE__, "output %d has other bits %s",
                              k, how);
            break;
        }
    }
done:
    release_all(again);
    return s;
}

static lvn_status check_inputs(const trial *t)
{
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        lvn_tensor *back = t->on_device[i] == NULL ? NULL : lvni_tensor_to(t->on_device[i], NULL);
        if (back == NULL && t->on_device[i] != NULL) {
            return lvn_last_error()->code;
        }
        const bool same = back == NULL || same_bytes(back, t->in.own[i]);
        lvn_release(back);
        if (!same) {
            LVN_FAIL(LVN_ERR_MISMATCH, "the kernel changed input %d", i);
        }
    }
    return LVN_OK;
}

/* a += b, as gradients are added up at a fork. */
static lvn_status check_in_place(const trial *t)
{
    lvn_kernel_args args = {.in = {t->on_device[0], t->on_device[1]}, .out = {t->on_device[0]}};
    LVN_TRY(wait_for_device(lvni_kernels_run(t->op, &args, 1)));
    lvn_tensor *back = lvni_tensor_to(t->on_device[0], NULL);
    if (back == NULL) {
        return lvn_last_error()->code;
    }
    const bool same = same_bytes(back, t->first[0]);
    lvn_release(back);
    if (!same) {
        LVN_FAIL(LVN_ERR_MISMATCH, "other bits in place (the result in the memory of input 0)");
    }
    return LVN_OK;
}

/* The number of the step comes from memory of the device (lvn_philox), its low half alone. */
static lvn_status check_philox(const trial *t)
{
    lvn_dropout_attr attr = t->row->attr.dropout;
    const int64_t number = (int64_t)5 << 32 | attr.rng.a;
    trial again = *t;
    lvni_check_room room;
    LVN_TRY(lvni_check_room_make(t->device, &number, sizeof number, 0, &room));
    attr.rng.a = ~attr.rng.a;
    attr.rng.a_there = lvni_check_room_part(&room);
    again.attr = &attr;
    const lvn_status s = run_again(&again, ~0u, "with rng.a_there");
    lvni_check_room_free(&room);
    return s;
}

static lvn_status compare(const trial *t, double *worst)
{
    lvn_kernel_args have = {.attr = NULL};
    memcpy(have.out, t->first, sizeof have.out);
    return lvni_check_compare(t->op, t->row, t->dtype, &have, &t->in, worst);
}

static lvn_status run_trial(trial *t, double *worst)
{
    const lvni_kernels_op_info *info = &lvni_kernels_ops[t->op];
    lvn_kernel_args args = {.attr = t->attr};
    LVN_TRY(lvni_check_inputs_make(t->op, t->row, t->dtype, &t->in));
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        t->on_device[i] = t->in.own[i] == NULL ? NULL : lvni_tensor_to(t->in.own[i], t->device);
        if (t->on_device[i] == NULL && t->in.own[i] != NULL) {
            return lvn_last_error()->code;
        }
        args.in[i] = t->on_device[i];
    }
    LVN_TRY(info->shape(&args, t->desc));
    LVN_TRY(run_into(t, ~0u, NAN_FIRST, t->first));
    LVN_TRY(compare(t, worst));
    LVN_TRY(check_inputs(t));
    LVN_TRY(run_again(t, ~0u, "in a second run"));
    if ((info->flags & LVNI_OPTIONAL_OUT) != 0) {
        LVN_TRY(run_again(t, 1, "when the others are left out"));
    }
    LVN_TRY(t->op == LVNI_OP_dropout ? check_philox(t) : LVN_OK);
    return t->op == LVNI_OP_add && lvni_tensor_same_shape(t->on_device[0], t->on_device[1])
               ? check_in_place(t)
               : LVN_OK;
}

/* Returns s when it is not about the kernel. */
static lvn_status count(lvn_status s, const trial *t, double worst, lvni_check_result *out)
{
    if (s == LVN_OK) {
        out->passed[t->dtype]++;
        out->worst = fmax(out->worst, worst);
    } else if (s == LVN_ERR_UNSUPPORTED) {
        out->refused++;
    } else if (out->failed++ == 0) {
        snprintf(out->why, sizeof out->why, "case \"%s\" in %s: %s", t->row->name,
                 lvn_dtype_name(t->dtype), lvn_last_error()->message);
    }
    return s == LVN_ERR_MEMORY || s == LVN_ERR_DEVICE_MEMORY ? s : LVN_OK;
}

/* By itself, or through f32 copies. */
static bool takes(lvni_tensor_device *device, lvni_kernels_op op, lvn_dtype dtype)
{
    const int kind = device == NULL ? LVN_DEVICE_CPU : lvni_tensor_device_kind(device);
    const lvn_backend_kernel *k = lvni_kernels_row(kind, op);
    const bool copies = lvni_tensor_is_low(dtype) && lvni_kernels_row(kind, LVNI_OP_cast) != NULL;
    return k != NULL && (k->dtypes & (1u << dtype | (copies ? 1u << LVN_F32 : 0u))) != 0;
}

lvn_status lvni_check_case_run(lvni_kernels_op op, const lvni_check_case *row, lvn_dtype dtype,
                               lvni_tensor_device *device, lvni_check_result *out)
{
    if (!takes(device, op, dtype)) {
        return LVN_OK;
    }
    trial t = {.op = op,
               .row = row,
               .dtype = dtype,
               .device = device,
               .attr = lvni_check_attribute(op, row)};
    double worst = 0.0;
    lvn_status s = run_trial(&t, &worst);
    s = count(s, &t, worst, out);
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        lvn_release(t.on_device[i]);
    }
    release_all(t.first);
    lvni_check_inputs_free(&t.in);
    return s;
}

lvn_status lvni_check_op(lvni_kernels_op op, lvni_tensor_device *device, lvni_check_result *out)
{
    static const lvn_dtype types[] = {LVN_F32, LVN_BF16, LVN_F16, LVN_F64};
    *out = (lvni_check_result){.failed = 0};
    for (size_t d = 0; d < sizeof types / sizeof *types; d++) {
        for (int c = 0; c < lvni_check_all[op].n; c++) {
            LVN_TRY(lvni_check_case_run(op, &lvni_check_all[op].rows[c], types[d], device, out));
        }
    }
    return LVN_OK;
}
