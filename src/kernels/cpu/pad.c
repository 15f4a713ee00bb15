/* Borders: constant or mirrored, and the gradient of the mirrored one. Called through the op table
 * (kernels.h).
 *
 * A row is the last padded axis with everything behind it: left border, one copy, right border. */
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <string.h>

typedef struct pad_job {
    const lvn_box_attr *box;
    int axis;             /* of the rows: the axes before it are walked */
    const int64_t *inner; /* shape of the tensor without border */
    const int64_t *outer; /* and with it */
    int64_t run;          /* elements behind one place of the axis */
    const float *x;
    float *y;
} pad_job;

static pad_job plan(const lvn_kernel_args *args, const int64_t *inner, const int64_t *outer)
{
    const lvn_box_attr *box = args->attr;
    pad_job j = {.box = box,
                 .inner = inner,
                 .outer = outer,
                 .run = 1,
                 .x = LVNI_CF32(args->in[0]),
                 .y = LVNI_F32(args->out[0])};
    j.axis = box->ndim - 1;
    while (j.axis > 0 && inner[j.axis] == outer[j.axis]) {
        j.run *= inner[j.axis--];
    }
    return j;
}

static int64_t rows_of(const int64_t *shape, int axis)
{
    int64_t n = 1;
    for (int i = 0; i < axis; i++) {
        n *= shape[i];
    }
    return n;
}

static int64_t mirrored(int64_t i, int64_t n)
{
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

/* The row of x that row `row` of y shows, or -1: all border. */
static int64_t source_row(const pad_job *j, int64_t row)
{
    int64_t from = 0, scale = 1;
    for (int i = j->axis - 1; i >= 0; i--) {
        int64_t at = row % j->outer[i] - j->box->start[i];
        row /= j->outer[i];
        at = j->box->reflect ? mirrored(at, j->inner[i]) : at;
        if (at < 0 || at >= j->inner[i]) {
            return -1;
        }
        from += at * scale;
        scale *= j->inner[i];
    }
    return from;
}

static void fill(float *y, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = value;
    }
}

static void pad_range(const void *job, int64_t begin, int64_t end)
{
    const pad_job *j = job;
    const int64_t n = j->inner[j->axis], before = j->box->start[j->axis],
                  after = j->outer[j->axis] - before - n, run = j->run;
    const float value = (float)j->box->value;
    for (int64_t row = begin; row < end; row++) {
        const int64_t from = source_row(j, row);
        const float *x = j->x + from * n * run;
        float *y = j->y + row * (before + n + after) * run;
        if (from < 0) {
            fill(y, (before + n + after) * run, value);
            continue;
        }
        memcpy(y + before * run, x, (size_t)(n * run) * sizeof *y);
        if (!j->box->reflect) {
            fill(y, before * run, value);
            fill(y + (before + n) * run, after * run, value);
            continue;
        }
        for (int64_t i = 0; i < before; i++) {
            memcpy(y + i * run, x + (before - i) * run, (size_t)run * sizeof *y);
        }
        for (int64_t i = 0; i < after; i++) {
            memcpy(y + (before + n + i) * run, x + (n - 2 - i) * run, (size_t)run * sizeof *y);
        }
    }
}

lvn_status lvni_cpu_pad(const lvn_kernel_args *args)
{
    const lvn_box_attr *box = args->attr;
    if (box->ndim == 0) {
        memcpy(args->out[0]->data, args->in[0]->data, sizeof(float));
        return LVN_OK;
    }
    const pad_job j = plan(args, args->in[0]->shape, box->size);
    if (lvn_numel(args->out[0]) > 0) {
        lvni_cpu_par(rows_of(box->size, j.axis), 1, box->size[j.axis] * j.run, pad_range, &j);
    }
    return LVN_OK;
}

/* ---- the gradient of the mirrored border: every row of dx gathers what it was copied to, in a
 * fixed order ---- */

static void add(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

/* dx row += dy row: the middle, then what the borders show. */
static void fold_row(const pad_job *j, const float *dy, float *dx)
{
    const int64_t n = j->inner[j->axis], before = j->box->start[j->axis],
                  after = j->outer[j->axis] - before - n, run = j->run;
    add(dx, dy + before * run, n * run);
    for (int64_t i = 0; i < before; i++) {
        add(dx + (before - i) * run, dy + i * run, run);
    }
    for (int64_t i = 0; i < after; i++) {
        add(dx + (n - 2 - i) * run, dy + (before + n + i) * run, run);
    }
}

/* Places along an axis of dy that show place `at` of dx: itself, and its images in the two
 * borders. */
static int images(int64_t at, int64_t n, int64_t before, int64_t after, int64_t out[3])
{
    int count = 0;
    out[count++] = before + at;
    if (at > 0 && at <= before) {
        out[count++] = before - at;
    }
    if (at < n - 1 && n - 1 - at <= after) {
        out[count++] = before + 2 * (n - 1) - at;
    }
    return count;
}

static void fold_range(const void *job, int64_t begin, int64_t end)
{
    const pad_job *j = job;
    const int64_t wide_x = j->inner[j->axis] * j->run, wide_y = j->outer[j->axis] * j->run;
    for (int64_t row = begin; row < end; row++) {
        int64_t place[LVN_MAX_NDIM][3], rest = row;
        int count[LVN_MAX_NDIM], total = 1;
        for (int i = j->axis - 1; i >= 0; i--) {
            count[i] = images(rest % j->inner[i], j->inner[i], j->box->start[i],
                              j->outer[i] - j->box->start[i] - j->inner[i], place[i]);
            rest /= j->inner[i];
            total *= count[i];
        }
        memset(j->y + row * wide_x, 0, (size_t)wide_x * sizeof *j->y);
        for (int k = 0; k < total; k++) {
            int64_t from = 0, scale = 1;
            for (int i = j->axis - 1, which = k; i >= 0; i--) {
                from += place[i][which % count[i]] * scale;
                which /= count[i];
                scale *= j->outer[i];
            }
            fold_row(j, j->x + from * wide_y, j->y + row * wide_x);
        }
    }
}

lvn_status lvni_cpu_pad_reflect_grad(const lvn_kernel_args *args)
{
    const lvn_box_attr *box = args->attr;
    if (box->ndim == 0) {
        memcpy(args->out[0]->data, args->in[0]->data, sizeof(float));
        return LVN_OK;
    }
    const pad_job j = plan(args, box->size, args->in[0]->shape);
    if (lvn_numel(args->out[0]) > 0) {
        lvni_cpu_par(rows_of(box->size, j.axis), 1, box->size[j.axis] * j.run, fold_range, &j);
    }
    return LVN_OK;
}
