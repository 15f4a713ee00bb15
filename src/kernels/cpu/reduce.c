/* sum, mean and sum_to: sums over any axes. Called through the op table (kernels.h).
 *
 * Neighbouring axes that are all kept or all reduced are joined, then one joined axis after the
 * other is summed away, the last first: each step turns (A, R, B) into (A, B). Terms are added
 * inside blocks of a fixed size in 16 virtual accumulators (rows) or column by column, and the
 * blocks in f64 in their order: the team decides nothing. */
#include "kernels/cpu/isa.h"
#include "core/error.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"
#include "tensor/device.h"

#include <string.h>

/* One step: x (a, r, b) -> y (a, b). */
typedef struct step {
    int64_t a, r, b;
    int64_t blocks, col_chunks; /* of r; of b (only to occupy a team) */
    const float *x;
    const uint16_t *low; /* x in bf16 instead of `x`, or NULL */
    /* (a, blocks, b); the same as y when one block suffices and nothing is divided */
    float *partial;
    float *y;
    double divisor;
    bool squares; /* x is squared on the way: rows (b == 1) of the first step only */
} step;

enum { COLUMNS_PER_ITEM = 4096, LOW_COLUMNS = 64 };

/* Rows of a block of squares, in the order of the plain sums. */
static void square_rows(const step *s, int64_t begin, int64_t end)
{
    const lvni_cpu_vec *vec = lvni_cpu_isa();
    float square[LVNI_CPU_SUM_BLOCK];
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i % s->blocks * LVNI_CPU_SUM_BLOCK;
        const int64_t n = s->r - at < LVNI_CPU_SUM_BLOCK ? s->r - at : LVNI_CPU_SUM_BLOCK;
        vec->unary[LVNI_UNARY_square](s->x + i / s->blocks * s->r + at, square, n, 0.0f, 0.0f);
        vec->row_sums(square, 1, n, s->partial + i);
    }
}

static void rows_range(const void *job, int64_t begin, int64_t end)
{
    const step *s = job;
    if (s->squares) {
        square_rows(s, begin, end);
        return;
    }
    const lvni_cpu_vec *vec = lvni_cpu_isa();
    if (s->blocks == 1) {
        vec->row_sums(s->x + begin * s->r, end - begin, s->r, s->partial + begin);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i % s->blocks * LVNI_CPU_SUM_BLOCK;
        const int64_t n = s->r - at < LVNI_CPU_SUM_BLOCK ? s->r - at : LVNI_CPU_SUM_BLOCK;
        vec->row_sums(s->x + i / s->blocks * s->r + at, 1, n, s->partial + i);
    }
}

/* bf16, a block of rows: made f32 a few columns at a time, so that it stays in the nearest
 * cache. */
static void low_col_sums(const uint16_t *x, int64_t rows, int64_t cols, int64_t stride, float *sums)
{
    const lvni_cpu_vec *vec = lvni_cpu_isa();
    float wide[LVNI_ROW_BLOCK * LOW_COLUMNS];
    for (int64_t c = 0; c < cols; c += LOW_COLUMNS) {
        const int64_t n = cols - c < LOW_COLUMNS ? cols - c : LOW_COLUMNS;
        for (int64_t r = 0; r < rows; r++) {
            vec->from_bf16(x + r * stride + c, wide + r * n, n);
        }
        vec->col_sums(wide, rows, n, n, sums + c);
    }
}

static void columns_range(const void *job, int64_t begin, int64_t end)
{
    const step *s = job;
    for (int64_t i = begin; i < end; i++) {
        const int64_t chunk = i % s->col_chunks, block = i / s->col_chunks % s->blocks;
        const int64_t a = i / s->col_chunks / s->blocks;
        const int64_t row = block * LVNI_ROW_BLOCK, col = chunk * COLUMNS_PER_ITEM;
        const int64_t rows = s->r - row < LVNI_ROW_BLOCK ? s->r - row : LVNI_ROW_BLOCK;
        const int64_t cols = s->b - col < COLUMNS_PER_ITEM ? s->b - col : COLUMNS_PER_ITEM;
        const int64_t first = (a * s->r + row) * s->b + col;
        float *sums = s->partial + (a * s->blocks + block) * s->b + col;
        if (s->low != NULL) {
            low_col_sums(s->low + first, rows, cols, s->b, sums);
        } else {
            lvni_cpu_isa()->col_sums(s->x + first, rows, cols, s->b, sums);
        }
    }
}

static void combine_range(const void *job, int64_t begin, int64_t end)
{
    const step *s = job;
    if (s->blocks == 1) { /* (1, a * b) in one go */
        lvni_cpu_isa()->combine(s->partial + begin * s->b, 1, (end - begin) * s->b, s->divisor,
                                s->y + begin * s->b);
        return;
    }
    for (int64_t a = begin; a < end; a++) {
        lvni_cpu_isa()->combine(s->partial + a * s->blocks * s->b, s->blocks, s->b, s->divisor,
                                s->y + a * s->b);
    }
}

static bool in_place(const step *s)
{
    return s->blocks == 1 && s->divisor == 1.0;
}

static void run_step(const step *s)
{
    if (s->b == 1) {
        const int64_t block = s->r < LVNI_CPU_SUM_BLOCK ? s->r : LVNI_CPU_SUM_BLOCK;
        lvni_cpu_par(s->a * s->blocks, 1, block, rows_range, s);
    } else {
        const int64_t cols = s->b < COLUMNS_PER_ITEM ? s->b : COLUMNS_PER_ITEM;
        const int64_t rows = s->r < LVNI_ROW_BLOCK ? s->r : LVNI_ROW_BLOCK;
        lvni_cpu_par(s->a * s->blocks * s->col_chunks, 1, rows * cols, columns_range, s);
    }
    if (!in_place(s)) {
        lvni_cpu_par(s->a, 1, s->blocks * s->b, combine_range, s);
    }
}

/* The steps for a shape: at most three reduced groups fit between the kept ones of six axes. */
static int plan_steps(const lvn_tensor *x, uint32_t mask, step out[LVN_MAX_NDIM])
{
    int64_t size[LVN_MAX_NDIM];
    bool reduced[LVN_MAX_NDIM];
    int groups = 0, n = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (x->shape[i] == 1) {
            continue;
        }
        const bool r = (mask >> i & 1u) != 0;
        if (groups > 0 && reduced[groups - 1] == r) {
            size[groups - 1] *= x->shape[i];
        } else {
            size[groups] = x->shape[i];
            reduced[groups++] = r;
        }
    }
    int64_t after = 1;
    for (int g = groups - 1; g >= 0; g--) {
        if (!reduced[g]) {
            after *= size[g];
            continue;
        }
        int64_t before = 1;
        for (int i = 0; i < g; i++) {
            before *= size[i];
        }
        const int64_t block = after == 1 ? LVNI_CPU_SUM_BLOCK : LVNI_ROW_BLOCK;
        out[n++] = (step){.a = before,
                          .r = size[g],
                          .b = after,
                          .blocks = lvni_cpu_div_up(size[g], block),
                          .col_chunks = lvni_cpu_div_up(after, COLUMNS_PER_ITEM),
                          .divisor = 1.0};
    }
    return n;
}

/* y = sum of x (or of x^2, see step) over the masked axes / divisor */
static lvn_status reduce_with(const lvn_tensor *x, uint32_t mask, lvn_tensor *out, double divisor,
                              bool squares)
{
    step steps[LVN_MAX_NDIM];
    const int n = plan_steps(x, mask, steps);
    const int64_t numel = lvn_numel(out);
    if (n == 0) {
        const lvni_cpu_vec *vec = lvni_cpu_isa();
        if (!lvni_tensor_device_dry_run()) {
            vec->combine(LVNI_CF32(x), 1, numel, divisor, LVNI_F32(out));
        }
        return LVN_OK;
    }
    steps[0].squares = squares;
    steps[n - 1].divisor = divisor;
    int64_t floats = 0;
    for (int i = 0; i < n; i++) {
        const step *s = &steps[i];
        floats += s->a * s->b * ((in_place(s) ? 0 : s->blocks) + (i < n - 1 ? 1 : 0));
    }
    float *memory = lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)floats * sizeof *memory);
    if (memory == NULL) {
        return LVN_ERR_MEMORY;
    }
    const float *from = LVNI_CF32(x);
    for (int i = 0; i < n; i++) {
        step *s = &steps[i];
        s->x = from;
        s->y = LVNI_F32(out);
        if (i < n - 1) {
            s->y = memory;
            memory += s->a * s->b;
        }
        s->partial = s->y;
        if (!in_place(s)) {
            s->partial = memory;
            memory += s->a * s->blocks * s->b;
        }
        run_step(s);
        from = s->y;
    }
    return LVN_OK;
}

static lvn_status reduce(const lvn_tensor *x, uint32_t mask, lvn_tensor *out, double divisor)
{
    return reduce_with(x, mask, out, divisor, false);
}

/* Over all axes but the last. */
lvn_status lvni_cpu_sum_rows(const lvn_tensor *x, lvn_tensor *out)
{
    const uint32_t mask = (1u << (x->ndim - 1)) - 1u;
    if (x->dtype == LVN_F32) {
        return reduce(x, mask, out, 1.0);
    }
    const int64_t cols = x->shape[x->ndim - 1], rows = cols == 0 ? 0 : lvn_numel(x) / cols;
    step s = {.a = 1,
              .r = rows,
              .b = cols,
              .blocks = lvni_cpu_div_up(rows, LVNI_ROW_BLOCK),
              .col_chunks = lvni_cpu_div_up(cols, COLUMNS_PER_ITEM),
              .low = x->data,
              .y = LVNI_F32(out),
              .divisor = 1.0};
    s.partial = in_place(&s) ? s.y
                             : lvni_cpu_scratch(LVNI_SCRATCH_OWN,
                                                (size_t)(s.blocks * cols) * sizeof *s.partial);
    if (s.partial == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_cpu_par(s.blocks * s.col_chunks, 1, LVNI_ROW_BLOCK * cols, columns_range, &s);
    if (!in_place(&s)) {
        lvni_cpu_par(1, 1, s.blocks * cols, combine_range, &s);
    }
    return LVN_OK;
}

/* ---- sums of squares ---- */

/* A tensor shaped like `like`, f32. */
static lvn_tensor *new_like(const lvn_tensor *like)
{
    const lvni_tensor_desc d = lvni_tensor_get_desc(like);
    return lvni_tensor_new(&d);
}

/* Sum of x^2 over the masked axes / divisor. Where the reduced axes are not the last ones the
 * squares are written down first. */
static lvn_status sum_squares(const lvn_tensor *x, uint32_t mask, lvn_tensor *out, double divisor)
{
    step steps[LVN_MAX_NDIM];
    const int n = plan_steps(x, mask, steps);
    if (n > 0 && steps[0].b == 1) {
        return reduce_with(x, mask, out, divisor, true);
    }
    lvn_tensor *square = new_like(x);
    if (square == NULL) {
        return lvn_last_error()->code;
    }
    lvn_status s = lvni_cpu_square(&(lvn_kernel_args){.in = {x}, .out = {square}});
    if (s == LVN_OK) {
        s = reduce_with(square, mask, out, divisor, false);
    }
    lvn_release(square);
    return s;
}

lvn_status lvni_cpu_norm(const lvn_kernel_args *args)
{
    const lvn_axes_attr *attr = args->attr;
    lvn_tensor *sum = new_like(args->out[0]);
    if (sum == NULL) {
        return lvn_last_error()->code;
    }
    lvn_status s = sum_squares(args->in[0], attr->mask, sum, 1.0);
    if (s == LVN_OK) {
        s = lvni_cpu_sqrt(&(lvn_kernel_args){.in = {sum}, .out = {args->out[0]}});
    }
    lvn_release(sum);
    return s;
}

/* x - mean, squared and added. */
lvn_status lvni_cpu_var(const lvn_kernel_args *args)
{
    const lvn_var_attr *attr = args->attr;
    const lvn_tensor *x = args->in[0];
    lvni_tensor_desc d = lvni_tensor_get_desc(x);
    double terms = 1.0;
    for (int i = 0; i < x->ndim; i++) {
        if ((attr->mask >> i & 1u) != 0) {
            terms *= (double)x->shape[i];
            d.shape[i] = 1;
        }
    }
    lvn_tensor *mean = lvni_tensor_new(&d), *far = mean == NULL ? NULL : new_like(x);
    lvn_status s;
    LVNI_TRY_DONE(s, far == NULL ? LVN_ERR_MEMORY : reduce(x, attr->mask, mean, terms));
    LVNI_TRY_DONE(s, lvni_cpu_sub(&(lvn_kernel_args){.in = {x, mean}, .out = {far}}));
    s = sum_squares(far, attr->mask, args->out[0], terms - attr->correction);
done:
    lvn_release(far);
    lvn_release(mean);
    return s;
}

lvn_status lvni_cpu_sum(const lvn_kernel_args *args)
{
    const lvn_axes_attr *attr = args->attr;
    return reduce(args->in[0], attr->mask, args->out[0], 1.0);
}

lvn_status lvni_cpu_mean(const lvn_kernel_args *args)
{
    const lvn_axes_attr *attr = args->attr;
    const lvn_tensor *x = args->in[0];
    double count = 1.0;
    for (int i = 0; i < x->ndim; i++) {
        count *= (attr->mask >> i & 1u) != 0 ? (double)x->shape[i] : 1.0;
    }
    return reduce(x, attr->mask, args->out[0], count);
}

lvn_status lvni_cpu_sum_to(const lvn_kernel_args *args)
{
    const lvn_shape_attr *attr = args->attr;
    const lvn_tensor *x = args->in[0];
    const int lead = x->ndim - attr->ndim;
    uint32_t mask = 0;
    for (int i = 0; i < x->ndim; i++) {
        const int64_t target = i < lead ? 1 : attr->shape[i - lead];
        mask |= target != x->shape[i] || i < lead ? 1u << i : 0u;
    }
    return reduce(x, mask, args->out[0], 1.0);
}
