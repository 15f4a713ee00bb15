/* Adafactor of a backend against its formulas in double precision (check_flat.c): one axis, and
 * matrices whose elements lie together or apart. */
#include "kernels/check/flat_job.h"
#include "kernels/flat.h"

#include <math.h>

enum { BLOCKS = LVNI_CHECK_MOST / LVN_FLAT_BLOCK + 1 };
enum { W, G, ROW_VAR, COL_VAR };

static const lvn_flat_adafactor base = {.lr = 0.01,
                                        .beta2_decay = -0.8,
                                        .eps1 = 0x1p-23,
                                        .eps2 = 1e-3,
                                        .d = 1.5,
                                        .weight_decay = 0.1,
                                        .grad_scale = 0.5,
                                        .t = 3.0,
                                        .outer = 1,
                                        .inner = 1};

/* The entries of an element's row, column and matrix. */
typedef struct place {
    int64_t row, col, matrix;
} place;

static place place_of(int64_t i, const lvn_flat_adafactor *p)
{
    const int64_t k = i % p->inner, c = i / p->inner % p->cols, row = i / p->inner / p->cols,
                  outer = row / p->rows;
    return (place){.row = row * p->inner + k,
                   .col = (outer * p->cols + c) * p->inner + k,
                   .matrix = outer * p->inner + k};
}

static void averages_truth(lvni_check_job *j, const lvn_flat_adafactor *p, bool matrices,
                           double *mean)
{
    const double share = pow(p->t, p->beta2_decay);
    double *row = j->truth[ROW_VAR], *col = j->truth[COL_VAR];
    for (int64_t i = 0; i < j->n; i++) {
        row[i] *= 1.0 - share;
        col[i] *= matrices ? 1.0 - share : 1.0;
        mean[i] = 0.0;
    }
    for (int64_t i = 0; i < j->n; i++) {
        const double g = (double)j->x[G][i] * p->grad_scale, square = share * g * g;
        if (!matrices) {
            row[i] += square;
            continue;
        }
        const place at = place_of(i, p);
        row[at.row] += square / (double)p->cols;
        col[at.col] += square / (double)p->rows;
    }
    for (int64_t i = 0; i < j->n && matrices; i++) { /* cols times each row's */
        const place at = place_of(i, p);
        mean[at.matrix] += row[at.row] / (double)(p->rows * p->cols);
    }
}

static void truth(lvni_check_job *j, lvn_flat_adafactor p, bool matrices)
{
    double *mean = j->truth[4], of_w = 0.0, of_u = 0.0;
    (void)lvn_flat_adafactor_resolve(&p);
    averages_truth(j, &p, matrices, mean);
    for (int pass = 0; pass < 2; pass++) {
        const double root_n = sqrt((double)j->n), rate = fmin(p.lr, 1.0 / sqrt(p.t)) *
                                                         fmax(p.eps2, sqrt(of_w) / root_n) /
                                                         fmax(1.0, sqrt(of_u) / root_n / p.d);
        for (int64_t i = 0; i < j->n; i++) {
            const place at = matrices ? place_of(i, &p) : (place){.row = i};
            const double v = matrices ? j->truth[ROW_VAR][at.row] * j->truth[COL_VAR][at.col] /
                                            fmax(mean[at.matrix], p.eps1)
                                      : j->truth[ROW_VAR][i],
                         u = (double)j->x[G][i] * p.grad_scale / sqrt(fmax(v, p.eps1 * p.eps1));
            double *w = &j->truth[W][i];
            of_w += pass == 0 ? *w * *w : 0.0;
            of_u += pass == 0 ? u * u : 0.0;
            *w = pass == 0 ? *w : (1.0 - p.lr * p.weight_decay) * *w - rate * u;
        }
    }
}

/* Of the state: how many elements each buffer has. */
static void lengths_of(const lvni_check_job *j, const lvn_flat_adafactor *p, bool matrices,
                       int64_t n[4])
{
    n[W] = n[G] = j->n;
    n[ROW_VAR] = matrices ? j->n / p->cols : j->n;
    n[COL_VAR] = matrices ? j->n / p->rows : 0;
}

/* Sizes of 1, 1/1000 (of the weights), and 0 (of every seventh gradient). */
static void draw(lvni_check_job *j, double of_weights)
{
    for (int k = 0; k < 4; k++) {
        lvni_check_draw(j, (uint32_t)k, j->x[k]);
        for (int64_t i = 0; i <= j->n; i++) {
            j->x[k][i] *= k == W ? (float)of_weights : k == G && i % 7 == 5 ? 0.0f : 1.0f;
            j->x[k][i] = k > G ? 0.5f + fabsf(j->x[k][i]) : j->x[k][i];
            j->truth[k][i] = (double)j->x[k][i];
        }
    }
}

static lvn_status run(lvni_check_job *j, lvn_flat_adafactor p, bool matrices, double of_weights,
                      lvni_check_step_kind kind)
{
    static const char *const name[] = {"w", "g", "row_var", "col_var"};
    const int64_t numbers = 2 * BLOCKS + (matrices ? p.outer * p.inner : 0);
    const int buffers = matrices ? 4 : 3;
    int64_t length[4];
    float *on_device[4] = {NULL};
    const lvn_step_block *step;
    lengths_of(j, &p, matrices, length);
    draw(j, of_weights);
    for (int k = 0; k < buffers; k++) {
        on_device[k] = lvni_check_put_floats(j, j->x[k], length[k]);
        LVNI_CHECK_NEED(on_device[k]);
    }
    p.scratch = lvni_check_put(j, NULL, (size_t)numbers * sizeof *p.scratch, 0);
    LVNI_CHECK_NEED(p.scratch);
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    p.step = kind == LVNI_CHECK_NO_STEP ? NULL : &lvni_check_step.phase[LVNI_CHECK_PHASE];
    truth(j, p, matrices);
    p.step = lvni_check_phase_of(step);
    lvni_kernels_flat_adafactor(on_device[W], on_device[G], on_device[ROW_VAR], on_device[COL_VAR],
                                j->n, &p);
    for (int k = 0; k < buffers; k++) {
        LVN_TRY(lvni_check_get(j, on_device[k], j->back));
        LVN_TRY(
            k == G || kind == LVNI_CHECK_UPDATES_NOT
                ? lvni_check_expect_same(j, name[k], j->back, j->x[k], length[k])
                : lvni_check_expect(j, name[k], j->back, j->truth[k], length[k], LVNI_CHECK_CLOSE));
    }
    return LVN_OK;
}

/* Shapes of so many elements. */
static const struct {
    int64_t n, outer, rows, cols, inner;
} shapes[] = {
    {1, 1, 1, 1, 1},       {3, 1, 3, 1, 1},       {3, 1, 1, 1, 3},        {17, 1, 1, 17, 1},
    {4095, 5, 9, 91, 1},   {4095, 7, 3, 5, 39},   {4096, 1, 4, 1024, 1},  {4096, 64, 1, 1, 64},
    {4097, 17, 1, 241, 1}, {4097, 1, 241, 17, 1}, {20003, 1, 83, 241, 1}, {20003, 1, 241, 1, 83},
};

/* Also: rates that the number of the update limits, gradients that the largest step cuts, weights
 * below eps2, and a count of the parameters' own. */
lvn_status lvni_check_adafactor(lvni_check_job *j)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int kind = 0; kind < LVNI_CHECK_STEP_KINDS && shapes[i].n == j->n; kind++) {
            lvn_flat_adafactor p = base;
            p.outer = shapes[i].outer;
            p.rows = shapes[i].rows;
            p.cols = shapes[i].cols;
            p.inner = shapes[i].inner;
            LVN_TRY(run(j, p, true, 1.0, (lvni_check_step_kind)kind));
            lvni_check_free_rooms(j);
        }
    }
    for (int i = 0; i < 4; i++) {
        lvn_flat_adafactor p = base;
        p.own_count = i == 1;
        p.lr = i == 2 ? 5.0 : p.lr;
        p.grad_scale = i == 2 ? 40.0 : p.grad_scale;
        for (int kind = 0; kind < LVNI_CHECK_STEP_KINDS; kind++) {
            LVN_TRY(run(j, p, false, i == 3 ? 1e-4 : 1.0, (lvni_check_step_kind)kind));
            lvni_check_free_rooms(j);
        }
    }
    return LVN_OK;
}
