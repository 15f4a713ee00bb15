/* PReLU and its gradients: one pass each. Called through the op table (kernels.h).
 *
 * x is read as rows of one slope for each column: of the channels, or, where these are few (one
 * slope for all is one channel), of as many repetitions of them as fill vectors. The gradient
 * writes dx and adds the terms of dslope in f32 over blocks of a fixed number of rows, column by
 * column, then over the repetitions in a tree, and the blocks in f64 in their order: the team
 * decides nothing. bf16 and f16 are computed in f32, a few rows at a time, so that the f32 copies
 * stay in the first cache. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"

#include "tensor/device.h"

#include <string.h>

/* Columns of a part (rows of few channels are one part); rows of a block, and of those that are
 * added together (tpl_prelu.h). Results depend on them: they never change. */
enum { PART = 512, BLOCK = 64, TOGETHER = 4 };

typedef struct prelu_job {
    const void *dy, *x;
    void *y;                                 /* y or dx */
    const float *slope;                      /* (cols) */
    int64_t n, channels, copies, cols, rows; /* the last row may be shorter */
    int64_t parts, blocks;
    float *sums;                                           /* (blocks, channels), of the gradient */
    size_t size;                                           /* of an element */
    void (*widen)(const uint16_t *x, float *y, int64_t n); /* NULL: all is f32 */
    void (*narrow)(const float *x, uint16_t *y, int64_t n);
} prelu_job;

static prelu_job describe(const lvn_tensor *x, const lvn_tensor *slope)
{
    const lvni_cpu_vec *isa = lvni_cpu_isa();
    prelu_job j = {.x = x->data,
                   .n = lvn_numel(x),
                   .channels = lvn_numel(slope),
                   .copies = 1,
                   .size = lvn_dtype_size(x->dtype)};
    while (j.channels > 0 && 2 * j.copies * j.channels <= PART) {
        j.copies *= 2;
    }
    j.cols = j.copies * j.channels;
    j.rows = j.cols == 0 ? 0 : lvni_cpu_div_up(j.n, j.cols);
    j.parts = lvni_cpu_div_up(j.cols, PART);
    j.blocks = lvni_cpu_div_up(j.rows, BLOCK);
    if (lvni_tensor_is_low(x->dtype)) {
        j.widen = x->dtype == LVN_BF16 ? isa->from_bf16 : isa->from_f16;
        j.narrow = x->dtype == LVN_BF16 ? isa->to_bf16 : isa->to_f16;
    }
    return j;
}

/* The slopes of a row: `repeated` has room for them if there are several copies. */
static void repeat_slopes(prelu_job *j, const lvn_tensor *slope, float *repeated)
{
    j->slope = LVNI_CF32(slope);
    for (int64_t i = 0; i < j->copies && j->copies > 1; i++) {
        memcpy(repeated + i * j->channels, LVNI_CF32(slope),
               (size_t)j->channels * sizeof *repeated);
        j->slope = repeated;
    }
}

/* Columns of row `row` from `col` on, at most a part. Only rows of one part may be shorter. */
static int64_t columns_from(const prelu_job *j, int64_t row, int64_t col)
{
    const int64_t left = j->n - row * j->cols, all = (left < j->cols ? left : j->cols) - col;
    return all < PART ? all : PART;
}

/* ---- forward ---- */

static void forward_part(const prelu_job *j, int64_t at, int64_t col, int64_t n)
{
    const lvni_cpu_vec *isa = lvni_cpu_isa();
    const void *x = lvni_cpu_elem_at(j->x, at, j->size);
    void *y = lvni_cpu_elem_to(j->y, at, j->size);
    if (j->widen == NULL) {
        isa->prelu(x, j->slope + col, y, n);
        return;
    }
    float wide[PART], result[PART];
    j->widen(x, wide, n);
    isa->prelu(wide, j->slope + col, result, n);
    j->narrow(result, y, n);
}

static void forward_range(const void *job, int64_t begin, int64_t end)
{
    const prelu_job *j = job;
    for (int64_t row = begin; row < end; row++) {
        for (int64_t col = 0; col < j->cols; col += PART) {
            forward_part(j, row * j->cols + col, col, columns_from(j, row, col));
        }
    }
}

lvn_status lvni_cpu_prelu(const lvn_kernel_args *args)
{
    prelu_job job = describe(args->in[0], args->in[1]);
    float *repeated = lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)job.cols * sizeof *repeated);
    if (repeated == NULL || lvni_tensor_device_dry_run()) {
        return repeated == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    repeat_slopes(&job, args->in[1], repeated);
    job.y = args->out[0]->data;
    lvni_cpu_par_in(LVNI_FP_EXACT, job.rows, 1, job.cols, forward_range, &job);
    return LVN_OK;
}

/* ---- gradient ---- */

/* n columns of `rows` rows from element `at` on, added to sums (n). */
static void gradient_part(const prelu_job *j, int64_t at, int64_t col, int64_t rows, int64_t n,
                          float *sums)
{
    const lvni_cpu_vec *isa = lvni_cpu_isa();
    const void *dy = lvni_cpu_elem_at(j->dy, at, j->size), *x = lvni_cpu_elem_at(j->x, at, j->size);
    void *dx = lvni_cpu_elem_to(j->y, at, j->size);
    if (j->widen == NULL) {
        isa->prelu_grad(dy, x, j->slope + col, dx, rows, n, j->cols, sums);
        return;
    }
    float wide_dy[TOGETHER * PART], wide_x[TOGETHER * PART], result[TOGETHER * PART];
    for (int64_t first = 0; first < rows; first += TOGETHER) {
        const int64_t some = rows - first < TOGETHER ? rows - first : TOGETHER;
        for (int64_t r = 0; r < some; r++) {
            j->widen((const uint16_t *)dy + (first + r) * j->cols, wide_dy + r * n, n);
            j->widen((const uint16_t *)x + (first + r) * j->cols, wide_x + r * n, n);
        }
        isa->prelu_grad(wide_dy, wide_x, j->slope + col, result, some, n, n, sums);
        for (int64_t r = 0; r < some; r++) {
            j->narrow(result + r * n, (uint16_t *)dx + (first + r) * j->cols, n);
        }
    }
}

/* An item is a part of the columns of a block of rows. */
static void gradient_range(const void *job, int64_t begin, int64_t end)
{
    const prelu_job *j = job;
    float sums[PART];
    for (int64_t i = begin; i < end; i++) {
        const int64_t block = i / j->parts, row = block * BLOCK, col = i % j->parts * PART;
        const int64_t rows = j->rows - row < BLOCK ? j->rows - row : BLOCK, last = row + rows - 1;
        const int64_t n = columns_from(j, row, col), n_last = columns_from(j, last, col);
        const int64_t whole = n_last == n ? rows : rows - 1;
        memset(sums, 0, sizeof sums);
        gradient_part(j, row * j->cols + col, col, whole, n, sums);
        if (whole < rows) {
            gradient_part(j, last * j->cols + col, col, 1, n_last, sums);
        }
        for (int64_t half = j->copies / 2; half >= 1; half /= 2) {
            for (int64_t c = 0; c < half * j->channels; c++) {
                sums[c] += sums[half * j->channels + c];
            }
        }
        memcpy(j->sums + block * j->channels + col, sums,
               (size_t)(j->copies > 1 ? j->channels : n) * sizeof *sums);
    }
}

lvn_status lvni_cpu_prelu_grad(const lvn_kernel_args *args)
{
    prelu_job job = describe(args->in[1], args->in[2]);
    const int64_t sums = job.blocks * job.channels;
    float *memory = lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)(sums + job.cols) * sizeof *memory);
    if (memory == NULL || lvni_tensor_device_dry_run()) {
        return memory == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    repeat_slopes(&job, args->in[2], memory + sums);
    job.dy = args->in[0]->data;
    job.y = args->out[0]->data;
    job.sums = memory;
    const int64_t rows = job.rows < BLOCK ? job.rows : BLOCK,
                  cols = job.cols < PART ? job.cols : PART;
    lvni_cpu_par_in(LVNI_FP_EXACT, job.blocks * job.parts, 1, rows * cols, gradient_range, &job);
    if (args->out[1] != NULL) {
        lvni_cpu_isa()->combine(job.sums, job.blocks, job.channels, 1.0, LVNI_F32(args->out[1]));
    }
    return LVN_OK;
}
