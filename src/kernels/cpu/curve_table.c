/* Tables of curves (curve_table.h). Called by elementwise.c.
 *
 * An activation of a large bf16 tensor costs less as a look-up than as a polynomial with a
 * division: the numbers that occur lie within a dozen powers of two, so that the part of the table
 * they touch stays in the first cache. The bits are those of the kernel. The tables are static
 * memory that costs nothing until it is written, and of the process on purpose: functions of their
 * key alone, written once under the lock, and read by all lanes. */
#include "kernels/cpu/curve_table.h"

#include <pthread.h>
#include <stdatomic.h>

enum { VALUES_GELU = 1, VALUES_GELU_TANH, VALUES_SILU, VALUES_SIGMOID, VALUES_TANH, VALUES };
enum { SLOPES_GELU = 1, SLOPES_GELU_TANH, SLOPES_SILU, SLOPES };
enum { BLOCK = 1024 };

static const unsigned char values_of[LVNI_UNARY_COUNT] = {
    [LVNI_UNARY_gelu] = VALUES_GELU, [LVNI_UNARY_gelu_tanh] = VALUES_GELU_TANH,
    [LVNI_UNARY_silu] = VALUES_SILU, [LVNI_UNARY_sigmoid] = VALUES_SIGMOID,
    [LVNI_UNARY_tanh] = VALUES_TANH,
};
static const unsigned char slopes_of[LVNI_PAIR_COUNT] = {
    [LVNI_PAIR_gelu_grad] = SLOPES_GELU,
    [LVNI_PAIR_gelu_tanh_grad] = SLOPES_GELU_TANH,
    [LVNI_PAIR_silu_grad] = SLOPES_SILU,
};

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool values_made[VALUES], slopes_made[SLOPES];
static uint16_t values[VALUES][LVNI_CURVE_NUMBERS];
static float slopes[SLOPES][LVNI_CURVE_NUMBERS];

/* The bf16 numbers whose bits are first, first + 1, ..., in f32. */
static void numbers_from(int first, float x[BLOCK])
{
    uint16_t bits[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        bits[i] = (uint16_t)(first + i);
    }
    lvni_cpu_isa()->from_bf16(bits, x, BLOCK);
}

static void make_values(lvni_cpu_unary_id id, uint16_t *table)
{
    float x[BLOCK], y[BLOCK];
    for (int first = 0; first < LVNI_CURVE_NUMBERS; first += BLOCK) {
        numbers_from(first, x);
        lvni_cpu_isa()->unary[id](x, y, BLOCK, 0.0f, 0.0f);
        lvni_cpu_isa()->to_bf16(y, table + first, BLOCK);
    }
}

/* The gradient with dy = 1. */
static void make_slopes(lvni_cpu_pair_id id, float *table)
{
    float one[BLOCK], k[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        one[i] = 1.0f;
    }
    for (int first = 0; first < LVNI_CURVE_NUMBERS; first += BLOCK) {
        numbers_from(first, k);
        lvni_cpu_isa()->pair[id](one, k, table + first, BLOCK, 0.0f, 0.0f);
    }
}

const uint16_t *lvni_cpu_curve_values(lvni_cpu_unary_id id)
{
    const int which = values_of[id];
    if (which == 0) {
        return NULL;
    }
    if (!atomic_load_explicit(&values_made[which], memory_order_acquire)) {
        pthread_mutex_lock(&making);
        if (!atomic_load_explicit(&values_made[which], memory_order_relaxed)) {
            make_values(id, values[which]);
            atomic_store_explicit(&values_made[which], true, memory_order_release);
        }
        pthread_mutex_unlock(&making);
    }
    return values[which];
}

const float *lvni_cpu_curve_slopes(lvni_cpu_pair_id id)
{
    const int which = slopes_of[id];
    if (which == 0) {
        return NULL;
    }
    if (!atomic_load_explicit(&slopes_made[which], memory_order_acquire)) {
        pthread_mutex_lock(&making);
        if (!atomic_load_explicit(&slopes_made[which], memory_order_relaxed)) {
            make_slopes(id, slopes[which]);
            atomic_store_explicit(&slopes_made[which], true, memory_order_release);
        }
        pthread_mutex_unlock(&making);
    }
    return slopes[which];
}
