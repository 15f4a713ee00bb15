/* Discrete Fourier transforms on kissfft (any length; each line is computed alone, so teams and
 * instruction sets change nothing). Called through the op table (kernels.h). A tensor is (outer, n,
 * inner) complex numbers; lines of n are gathered, transformed, and put back, a few neighbours at a
 * time, so that memory is read in whole cache lines. */
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"
#include "tensor/device.h"

#include <kiss_fft.h>

enum { NEIGHBOURS = 8 }; /* complex numbers in a cache line */

typedef struct fft_job {
    kiss_fft_cfg plan;
    const kiss_fft_cpx *x;
    kiss_fft_cpx *y;          /* may be x */
    kiss_fft_cpx *lines;      /* per slot: NEIGHBOURS lines and one transformed */
    int64_t n, inner, groups; /* groups of neighbours in one `inner` */
    int64_t items, slots;
    /* element k of a line is x[(k + shift) mod n], as of the result; 0: not centered */
    int64_t shift;
    float scale;
} fft_job;

/* Element k of a line, as it lies in memory. */
static int64_t shifted(const fft_job *j, int64_t k)
{
    return k + j->shift < j->n ? k + j->shift : k + j->shift - j->n;
}

static void gather(const fft_job *j, const kiss_fft_cpx *x, int64_t width, kiss_fft_cpx *lines)
{
    for (int64_t k = 0; k < j->n; k++) {
        const int64_t at = shifted(j, k) * j->inner;
        for (int64_t b = 0; b < width; b++) {
            lines[b * j->n + k] = x[at + b];
        }
    }
}

static void scatter(const fft_job *j, const kiss_fft_cpx *line, kiss_fft_cpx *y)
{
    for (int64_t k = 0; k < j->n; k++) {
        kiss_fft_cpx *to = y + shifted(j, k) * j->inner;
        to->r = line[k].r * j->scale;
        to->i = line[k].i * j->scale;
    }
}

/* An item is a slot: a run of groups of neighbouring lines, with memory of its own. */
static void fft_range(const void *job, int64_t begin, int64_t end)
{
    const fft_job *j = job;
    for (int64_t s = begin; s < end; s++) {
        kiss_fft_cpx *lines = j->lines + s * (NEIGHBOURS + 1) * j->n,
                     *done = lines + NEIGHBOURS * j->n;
        for (int64_t i = j->items * s / j->slots; i < j->items * (s + 1) / j->slots; i++) {
            const int64_t first = i % j->groups * NEIGHBOURS,
                          at = i / j->groups * j->n * j->inner + first;
            const int64_t width = j->inner - first < NEIGHBOURS ? j->inner - first : NEIGHBOURS;
            gather(j, j->x + at, width, lines);
            for (int64_t b = 0; b < width; b++) {
                kiss_fft(j->plan, lines + b * j->n, done);
                scatter(j, done, j->y + at + b);
            }
        }
    }
}

/* Along one axis of length n. */
static lvn_status transform(const lvn_fft_attr *attr, const lvn_tensor *x, lvn_tensor *y, int64_t n,
                            int64_t inner, double scale)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL) {
        return lvn_last_error()->code;
    }
    const int64_t groups = lvni_cpu_div_up(inner, NEIGHBOURS),
                  items = lvn_numel(x) / 2 / n / inner * groups;
    const int64_t slots = ctx->team < items ? ctx->team : items;
    size_t plan_bytes = 0;
    kiss_fft_alloc((int)n, attr->inverse, NULL, &plan_bytes); /* asks for the size only */
    const size_t plan_room = (plan_bytes + 63) / 64 * 64;
    char *memory =
        lvni_cpu_scratch(LVNI_SCRATCH_OWN,
                         plan_room + (size_t)(slots * (NEIGHBOURS + 1) * n) * sizeof(kiss_fft_cpx));
    if (memory == NULL || lvni_tensor_device_dry_run()) {
        return memory == NULL ? lvn_last_error()->code : LVN_OK;
    }
    const fft_job job = {.plan = kiss_fft_alloc((int)n, attr->inverse, memory, &plan_bytes),
                         .x = x->data,
                         .y = y->data,
                         .lines = (kiss_fft_cpx *)(void *)(memory + plan_room),
                         .n = n,
                         .inner = inner,
                         .groups = groups,
                         .items = items,
                         .slots = slots,
                         .shift = attr->centered ? n / 2 : 0,
                         .scale = (float)scale};
    lvni_cpu_par(slots, 1, lvn_numel(x) / slots * 8, fft_range, &job);
    return LVN_OK;
}

lvn_status lvni_cpu_fft(const lvn_kernel_args *args)
{
    const lvn_fft_attr *attr = args->attr;
    const lvn_tensor *x = args->in[0];
    lvn_tensor *y = args->out[0];
    if (lvn_numel(x) == 0) {
        return LVN_OK;
    }
    const int64_t n = x->shape[x->ndim - 2];
    LVN_TRY(transform(attr, x, y, n, 1, attr->axes == 1 ? attr->scale : 1.0));
    return attr->axes == 1 ? LVN_OK : transform(attr, y, y, x->shape[x->ndim - 3], n, attr->scale);
}
