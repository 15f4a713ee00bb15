/* The cpu backend's Adafactor over a tensor of the flat buffers (levin/backend.h), spread over the
 * team. Means are sums in f64 over whole rows and columns, each by one member of the team. */
#include "kernels/flat.h"

#include "core/math.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <string.h>

/* ---- means over the middle axis ---- */

enum { COLUMNS = 128 }; /* that a member of the team adds up at once */

typedef struct mean_job {
    const float *x; /* (items, y, z) */
    int64_t y, z;
    /* (items, z), one of the two: goes `share` of the way to the mean of squares times `scale`, or
     * becomes the mean, at least `least` */
    float *average;
    double *mean;
    double scale, share, least;
} mean_job;

/* Of n neighbours, over y rows that lie z apart. */
static void add_up(const float *x, int64_t y, int64_t z, int64_t n, bool squares, double *sum)
{
    if (squares && z == 1) {
        lvni_cpu_isa()->block_sumsq(x, y, sum);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        sum[i] = 0.0;
    }
    for (int64_t r = 0; r < y; r++, x += z) {
        if (squares) {
            lvni_cpu_isa()->add_squares(x, sum, n);
        }
        for (int64_t i = 0; i < n && !squares; i++) {
            sum[i] += (double)x[i];
        }
    }
}

static int64_t chunks_of(int64_t z)
{
    return lvni_cpu_div_up(z, COLUMNS);
}

static void mean_range(const void *job, int64_t begin, int64_t end)
{
    const mean_job *j = job;
    const int64_t chunks = chunks_of(j->z);
    for (int64_t i = begin; i < end; i++) {
        const int64_t item = i / chunks, at = i % chunks * COLUMNS, left = j->z - at,
                      n = left < COLUMNS ? left : COLUMNS, to = item * j->z + at;
        double sum[COLUMNS];
        add_up(j->x + item * j->y * j->z + at, j->y, j->z, n, j->mean == NULL, sum);
        for (int64_t k = 0; k < n; k++) {
            const double mean = sum[k] * j->scale / (double)j->y;
            if (j->mean != NULL) {
                j->mean[to + k] = mean > j->least ? mean : j->least;
            } else {
                j->average[to + k] += (float)j->share * ((float)mean - j->average[to + k]);
            }
        }
    }
}

static void take_means(int64_t items, const mean_job *j)
{
    const int64_t n = j->z < COLUMNS ? j->z : COLUMNS;
    lvni_cpu_par(items * chunks_of(j->z), 1, j->y * n, mean_range, j);
}

/* The averages of squares, and where there are matrices the means of their row_var. */
static void follow(const float *g, float *row_var, float *col_var, int64_t n, double *mean,
                   const lvn_flat_adafactor *p)
{
    mean_job j = {.x = g,
                  .y = 1,
                  .z = n,
                  .average = row_var,
                  .scale = p->grad_scale * p->grad_scale,
                  .share = lvni_core_pow(p->t, p->beta2_decay)};
    if (col_var == NULL) {
        take_means(1, &j);
        return;
    }
    j.y = p->cols;
    j.z = p->inner;
    take_means(p->outer * p->rows, &j);
    j.y = p->rows;
    j.z = p->cols * p->inner;
    j.average = col_var;
    take_means(p->outer, &j);
    j = (mean_job){
        .x = row_var, .y = p->rows, .z = p->inner, .mean = mean, .scale = 1.0, .least = p->eps1};
    take_means(p->outer, &j);
}

/* ---- the step ---- */

typedef struct step_job {
    float *w;
    const float *g, *row_var, *col_var;
    int64_t n;
    double *of_u;       /* of each block; NULL: w is stepped */
    const double *mean; /* of each matrix */
    float rate, keep;
    const lvn_flat_adafactor *p;
} step_job;

/* v of the first of n elements from `at` on: those in one place of neighbouring matrices, else
 * those in one row of a matrix. Returns how many these are. */
static int64_t estimate(const step_job *j, int64_t at, int64_t n, float *v)
{
    const lvn_flat_adafactor *p = j->p;
    const int64_t k = at % p->inner, c = at / p->inner % p->cols, row = at / p->inner / p->cols,
                  outer = row / p->rows,
                  whole = p->inner > 1 ? p->inner - k : p->cols - c, /* to the end of both */
        some = whole < n ? whole : n;
    const float *of_row = j->row_var + row * p->inner + k,
                *of_col = j->col_var + (outer * p->cols + c) * p->inner + k;
    const double *mean = j->mean + outer * p->inner + k;
    if (p->inner > 1) {
        lvni_cpu_isa()->adafactor_estimate(of_row, of_col, mean, v, some);
    } else {
        const float factor = (float)((double)*of_row / *mean);
        for (int64_t i = 0; i < some; i++) {
            v[i] = factor * of_col[i];
        }
    }
    return some;
}

/* u of a block's n elements from `at` on. */
static void direction(const step_job *j, int64_t at, int64_t n, float u[LVNI_FLAT_BLOCK])
{
    const float scale = (float)j->p->grad_scale, least = lvn_flat_adafactor_least(j->p);
    for (int64_t i = 0; j->col_var != NULL && i < n;) {
        i += estimate(j, at + i, n - i, u + i);
    }
    if (j->col_var == NULL) {
        memcpy(u, j->row_var + at, (size_t)n * sizeof *u);
    }
    lvni_cpu_isa()->adafactor_direction(j->g + at, u, n, scale, least);
}

static void step_range(const void *job, int64_t begin, int64_t end)
{
    const step_job *j = job;
    float u[LVNI_FLAT_BLOCK] = {0.0f};
    for (int64_t b = begin; b < end; b++) {
        const int64_t at = b * LVNI_FLAT_BLOCK, left = j->n - at,
                      n = left < LVNI_FLAT_BLOCK ? left : LVNI_FLAT_BLOCK;
        direction(j, at, n, u);
        if (j->of_u != NULL) {
            lvni_cpu_isa()->block_sumsq(u, n, j->of_u + b);
            continue;
        }
        lvni_cpu_isa()->adafactor_step(j->w + at, u, n, j->keep, j->rate);
    }
}

lvn_status lvni_cpu_flat_adafactor(void *stream, float *w, const float *g, float *row_var,
                                   float *col_var, int64_t n, const lvn_flat_adafactor *p)
{
    lvn_flat_adafactor q = *p;
    if (!lvn_flat_adafactor_resolve(&q)) {
        return LVN_OK;
    }
    const int64_t blocks = lvni_kernels_flat_blocks(n);
    double *of_w = q.scratch, *of_u = of_w + blocks, *mean = of_u + blocks;
    follow(g, row_var, col_var, n, mean, &q);
    LVN_TRY(lvni_cpu_flat_block_sumsq(stream, w, n, of_w));
    step_job j = {.w = w,
                  .g = g,
                  .row_var = row_var,
                  .col_var = col_var,
                  .n = n,
                  .of_u = of_u,
                  .mean = mean,
                  .p = &q};
    lvni_cpu_par(blocks, 1, LVNI_FLAT_BLOCK, step_range, &j);
    j.of_u = NULL;
    j.keep = (float)(1.0 - q.lr * q.weight_decay);
    j.rate =
        (float)lvn_flat_adafactor_rate(lvni_core_sqrt(lvni_kernels_flat_sum_tree(of_w, blocks)),
                                       lvni_core_sqrt(lvni_kernels_flat_sum_tree(of_u, blocks)),
                                       lvni_core_sqrt((double)n), lvni_core_sqrt(q.t), &q);
    lvni_cpu_par(blocks, 1, LVNI_FLAT_BLOCK, step_range, &j);
    return LVN_OK;
}
