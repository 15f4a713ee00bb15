/* Flat buffers (flat.h): finds the backend in whose memory they lie and submits. */
#include "kernels/flat.h"

#include "kernels/kernels.h"
#include "tensor/device.h"

#include <string.h>

/* Where, and the backend's functions. */
typedef struct place {
    lvni_tensor_device *device; /* NULL: the host */
    void *stream;
    const lvn_backend_flat *flat;
} place;

/* false: nothing is submitted, to a dry device, or without a stream; the error is noted. */
static bool find(const void *p, place *at)
{
    *at = (place){.device = lvni_tensor_device_of(p), .flat = &lvni_cpu_backend.flat};
    if (at->device == NULL) {
        return true;
    }
    if (lvni_tensor_device_is_dry(at->device)) {
        return false;
    }
    at->flat = &lvni_tensor_device_backend(at->device)->flat;
    at->stream = lvni_tensor_device_stream(at->device);
    if (at->stream == NULL) {
        lvni_tensor_device_record_error(at->device);
    }
    return at->stream != NULL;
}

static void record_status(const place *at, lvn_status s)
{
    if (s != LVN_OK && at->device != NULL) {
        lvni_tensor_device_record_error(at->device);
    }
}

/* Submit `function` with the arguments behind it. */
#define SUBMIT(where, function, ...)                                                               \
    do {                                                                                           \
        place at_;                                                                                 \
        if (find((where), &at_)) {                                                                 \
            record_status(&at_, at_.flat->function(at_.stream, __VA_ARGS__));                      \
        }                                                                                          \
    } while (0)

void lvni_kernels_flat_add(float *a, const float *b, int64_t n)
{
    SUBMIT(a, add, a, b, n);
}

void lvni_kernels_flat_lerp(float *a, const float *b, float t, int64_t n,
                            const lvn_step_average *step)
{
    SUBMIT(a, lerp, a, b, t, n, step);
}

/* The sums of a device's buffer lie on the device first. */
static lvn_status sums_of_device(const place *at, const float *g, int64_t n, double *partial)
{
    const size_t bytes = (size_t)lvni_kernels_flat_blocks(n) * sizeof *partial;
    size_t got;
    double *on_device = lvni_tensor_device_take(at->device, LVN_STREAM_COMPUTE, bytes, &got);
    if (on_device == NULL) {
        return lvn_last_error()->code;
    }
    lvn_status s = at->flat->block_sumsq(at->stream, g, n, on_device);
    if (s == LVN_OK) {
        s = lvni_tensor_mem_copy(partial, on_device, bytes);
    }
    lvni_tensor_device_give(at->device, LVN_STREAM_COMPUTE, false, on_device, got);
    return s;
}

void lvni_kernels_flat_block_sumsq(const float *g, int64_t n, double *partial)
{
    place at;
    if (!find(g, &at)) {
        memset(partial, 0, (size_t)lvni_kernels_flat_blocks(n) * sizeof *partial);
        return;
    }
    if (at.device == NULL) {
        at.flat->block_sumsq(NULL, g, n, partial);
    } else if (n > 0) {
        record_status(&at, sums_of_device(&at, g, n, partial));
    }
}

void lvni_kernels_flat_sgd(float *w, const float *g, float *momentum_buffer, int64_t n,
                           const lvn_flat_sgd *p)
{
    SUBMIT(w, sgd, w, g, momentum_buffer, n, p);
}

void lvni_kernels_flat_trust(double *trust, double *of_w, double *of_g, int64_t n,
                             const lvn_flat_trust *p)
{
    SUBMIT(trust, trust, trust, of_w, of_g, n, p);
}

void lvni_kernels_flat_adamw(float *w, const float *g, float *m, float *v, int64_t n,
                             const lvn_flat_adamw *p)
{
    SUBMIT(w, adamw, w, g, m, v, n, p);
}

void lvni_kernels_flat_rmsprop(float *w, const float *g, float *v, float *mean, float *momentum,
                               int64_t n, const lvn_flat_rmsprop *p)
{
    SUBMIT(w, rmsprop, w, g, v, mean, momentum, n, p);
}

void lvni_kernels_flat_lion(float *w, const float *g, float *m, int64_t n, const lvn_flat_lion *p)
{
    SUBMIT(w, lion, w, g, m, n, p);
}

void lvni_kernels_flat_lamb_moments(const float *w, const float *g, float *m, float *v, int64_t n,
                                    double *sums, const lvn_flat_lamb *p)
{
    SUBMIT(w, lamb_moments, w, g, m, v, n, sums, p);
}

void lvni_kernels_flat_lamb(float *w, const float *m, const float *v, int64_t n,
                            const lvn_flat_lamb *p)
{
    SUBMIT(w, lamb, w, m, v, n, p);
}

void lvni_kernels_flat_adafactor(float *w, const float *g, float *row_var, float *col_var,
                                 int64_t n, const lvn_flat_adafactor *p)
{
    SUBMIT(w, adafactor, w, g, row_var, col_var, n, p);
}

void lvni_kernels_flat_round_bf16(float *w, int64_t n)
{
    SUBMIT(w, round_bf16, w, n);
}

void lvni_kernels_flat_record(float *record, const float *value, int64_t n, float weight)
{
    SUBMIT(record, record, record, value, n, weight);
}

void lvni_kernels_flat_apply_record(float *buffer, const float *record, int64_t n,
                                    const lvn_flat_mean *p)
{
    SUBMIT(buffer, apply_record, buffer, record, n, p);
}

void lvni_kernels_flat_append(float *queue, float *filled, float *next, const float *record,
                              const lvn_flat_append *p)
{
    SUBMIT(queue, append, queue, filled, next, record, p);
}

/* ---- the step block ---- */

void lvni_kernels_flat_sums_on_device(const float *g, int64_t n, double *sums)
{
    if (n > 0) {
        SUBMIT(g, block_sumsq, g, n, sums);
    }
}

void lvni_kernels_flat_number(double *slot, const lvn_tensor *value)
{
    if (lvni_tensor_device_of(value->data) == NULL && lvni_tensor_device_of(slot) != NULL) {
        const double number = lvni_tensor_number_at(value->data, value->dtype);
        if (lvni_tensor_mem_copy(slot, &number, sizeof number) != LVN_OK) {
            lvni_tensor_device_record_error(lvni_tensor_device_of(slot));
        }
        return;
    }
    SUBMIT(slot, number, slot, value->data, value->dtype);
}

void lvni_kernels_flat_seed(lvn_tensor *value, double number, const double *weight,
                            const double *factor)
{
    SUBMIT(value->data, seed, value->data, value->dtype, number, weight, factor);
}

void lvni_kernels_flat_decide(lvn_step_block *block, double *sums, int64_t n, const double *losses,
                              const lvn_step_decision *decision)
{
    SUBMIT(block, decide, block, sums, n, losses, decision);
}

void lvni_kernels_flat_finish(lvn_step_block *block)
{
    SUBMIT(block, finish, block);
}
