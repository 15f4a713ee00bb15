/* The order of elements along an axis. A key has the element's order in its high half and its place
 * in the low one: keys differ, so that any way of sorting them is stable, and the result does not
 * depend on the team. Called through the op table (kernels.h). */
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"
#include "tensor/device.h"

#include <string.h>

enum { SHORT = 32, DIGITS = 4, VALUES = 256 };

typedef struct sort_job {
    int64_t lines, size, inner, keep;
    int64_t parts; /* of the lines: items, each with its own keys */
    bool descending;
    const float *x;
    int64_t *y;
    uint64_t *keys; /* (parts, 2, size) */
} sort_job;

/* The order of floats as the order of numbers: -0 is 0, every NaN the largest. */
static uint64_t key_of(float x, int64_t place, bool descending)
{
    const float some = x + 0.0f; /* -0 becomes 0 */
    uint32_t bits;
    memcpy(&bits, &some, sizeof bits);
    bits = x != x ? UINT32_MAX : (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    return (uint64_t)(descending ? ~bits : bits) << 32 | (uint64_t)place;
}

static void sort_few(uint64_t *key, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const uint64_t k = key[i];
        int64_t at = i;
        for (; at > 0 && key[at - 1] > k; at--) {
            key[at] = key[at - 1];
        }
        key[at] = k;
    }
}

/* By the digits of the high half, the last one first; the low half is in order already. Returns
 * where the sorted keys are: key or spare. */
static uint64_t *sort_by_digits(uint64_t *key, uint64_t *spare, int64_t n)
{
    uint32_t count[DIGITS][VALUES] = {{0}};
    for (int64_t i = 0; i < n; i++) {
        for (int d = 0; d < DIGITS; d++) {
            count[d][key[i] >> (32 + 8 * d) & 0xff]++;
        }
    }
    for (int d = 0; d < DIGITS; d++) {
        const int shift = 32 + 8 * d;
        if (count[d][key[0] >> shift & 0xff] == n) {
            continue; /* all have this digit */
        }
        uint32_t at = 0;
        for (int v = 0; v < VALUES; v++) {
            const uint32_t here = count[d][v];
            count[d][v] = at;
            at += here;
        }
        for (int64_t i = 0; i < n; i++) {
            spare[count[d][key[i] >> shift & 0xff]++] = key[i];
        }
        uint64_t *sorted = spare;
        spare = key;
        key = sorted;
    }
    return key;
}

/* The largest of n keys at [0], none larger than the one at (i - 1) / 2: put key[i] in its place.
 */
static void sink(uint64_t *key, int64_t n, int64_t i)
{
    const uint64_t k = key[i];
    for (int64_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        child += child + 1 < n && key[child + 1] > key[child] ? 1 : 0;
        if (key[child] <= k) {
            break;
        }
        key[i] = key[child];
        i = child;
    }
    key[i] = k;
}

/* The `keep` smallest keys to the front, in any order. */
static void choose_few(uint64_t *key, int64_t n, int64_t keep)
{
    for (int64_t i = keep / 2 - 1; i >= 0; i--) {
        sink(key, keep, i);
    }
    for (int64_t i = keep; i < n; i++) {
        if (key[i] < key[0]) {
            const uint64_t largest = key[0];
            key[0] = key[i];
            key[i] = largest;
            sink(key, keep, 0);
        }
    }
}

/* A short list inside of a long one is chosen first; digits need keys in the order of places, which
 * chosen ones are not. */
static const uint64_t *sort_line(uint64_t *key, uint64_t *spare, int64_t n, int64_t keep)
{
    if (keep <= SHORT && keep < n) {
        choose_few(key, n, keep);
        n = keep;
    }
    if (n <= SHORT) {
        sort_few(key, n);
        return key;
    }
    return sort_by_digits(key, spare, n);
}

static void sort_range(const void *job, int64_t begin, int64_t end)
{
    const sort_job *j = job;
    for (int64_t part = begin; part < end; part++) {
        uint64_t *key = j->keys + part * 2 * j->size;
        const int64_t last = j->lines * (part + 1) / j->parts;
        for (int64_t line = j->lines * part / j->parts; line < last; line++) {
            const int64_t o = line / j->inner, i = line % j->inner;
            const float *x = j->x + o * j->size * j->inner + i;
            int64_t *y = j->y + o * j->keep * j->inner + i;
            for (int64_t s = 0; s < j->size; s++) {
                key[s] = key_of(x[s * j->inner], s, j->descending);
            }
            const uint64_t *sorted = sort_line(key, key + j->size, j->size, j->keep);
            for (int64_t s = 0; s < j->keep; s++) {
                y[s * j->inner] = (int64_t)(sorted[s] & UINT32_MAX);
            }
        }
    }
}

lvn_status lvni_cpu_argsort(const lvn_kernel_args *args)
{
    enum { COST = 16 };
    const lvn_sort_attr *attr = args->attr;
    const lvn_tensor *x = args->in[0];
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    sort_job j = {.lines = 1,
                  .size = x->shape[attr->axis],
                  .inner = 1,
                  .keep = attr->keep,
                  .descending = attr->descending};
    for (int i = 0; i < x->ndim; i++) {
        j.lines *= i == attr->axis ? 1 : x->shape[i];
        j.inner *= i > attr->axis ? x->shape[i] : 1;
    }
    j.parts = ctx == NULL || ctx->team < 1 ? 1 : ctx->team;
    j.parts = j.parts < j.lines ? j.parts : j.lines;
    j.keys = lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)(j.parts * 2 * j.size) * sizeof *j.keys);
    if (j.keys == NULL || lvni_tensor_device_dry_run()) {
        return j.keys == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    j.x = LVNI_CF32(x);
    j.y = args->out[0]->data;
    if (lvn_numel(args->out[0]) > 0) {
        lvni_cpu_par_in(LVNI_FP_EXACT, j.parts, 1, j.lines / j.parts * j.size * COST, sort_range,
                        &j);
    }
    return LVN_OK;
}
