/* Batch norm over a (rows, channels) table: training and evaluation, forward and gradient. Called through the op table.
 *
 * Forward reads x once for the statistics (sums of x - k and its square over blocks of rows, k the block's first row, so
 * that a mean far above the deviation costs nothing; blocks are joined in f64) and once to write y. The gradient reads dy
 * and x once for two sums and once to write dx. Blocks have a fixed number of rows: the team decides nothing. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"

#include "core/math.h"

typedef struct norm_job {
    int64_t rows, cols, blocks;
    const float *x, *dy;
    float *y;                            /* y or dx */
    float *shift, *s1, *s2;              /* (blocks, cols) */
    const float *mean, *a, *b, *d;       /* per channel, see isa.h */
    const float *gamma;
    float *mean_out, *rstd_out, *unbiased_out, *scale_out;
    double eps;
} norm_job;

static norm_job describe(const lvn_tensor *x)
{
    const int64_t cols = x->shape[x->ndim - 1];
    const int64_t rows = cols == 0 ? 0 : lvn_numel(x) / cols;
    return (norm_job){.rows = rows, .cols = cols, .blocks = lvni_div_up(rows, LVNI_ROW_BLOCK)};
}

static int64_t rows_of_block(const norm_job *j, int64_t block)
{
    const int64_t left = j->rows - block * LVNI_ROW_BLOCK;
    return left < LVNI_ROW_BLOCK ? left : LVNI_ROW_BLOCK;
}

static void par_blocks(const norm_job *j, lvni_range_fn fn)
{
    const int64_t rows = j->rows < LVNI_ROW_BLOCK ? j->rows : LVNI_ROW_BLOCK;
    lvni_par(j->blocks, 1, rows * j->cols, fn, j);
}

static void sums_range(const void *job, int64_t begin, int64_t end)
{
    const norm_job *j = job;
    for (int64_t b = begin; b < end; b++) {
        const int64_t out = b * j->cols;
        lvni_cpu_isa()->norm_sums(j->x + b * LVNI_ROW_BLOCK * j->cols, rows_of_block(j, b), j->cols, j->shift + out,
                                  j->s1 + out, j->s2 + out);
    }
}

enum { CHANNELS_PER_ITEM = 64 };

/* An item is a channel. */
static void statistics_range(const void *job, int64_t begin, int64_t end)
{
    const norm_job *j = job;
    const lvni_norm_sums sums = {.shift = j->shift, .s1 = j->s1, .s2 = j->s2, .rows = j->rows, .cols = j->cols};
    double mean[CHANNELS_PER_ITEM], m2[CHANNELS_PER_ITEM];
    for (int64_t c = begin; c < end; c += CHANNELS_PER_ITEM) {
        const int64_t stop = c + CHANNELS_PER_ITEM < end ? c + CHANNELS_PER_ITEM : end;
        lvni_cpu_isa()->norm_combine(&sums, c, stop, mean, m2);
        for (int64_t i = c; i < stop; i++) {
            const double variance = m2[i - c] > 0.0 ? m2[i - c] : m2[i - c] * 0.0; /* rounding; a NaN stays */
            const float rstd = (float)(1.0 / lvni_sqrt(variance / (double)j->rows + j->eps));
            j->mean_out[i] = (float)mean[i - c];
            j->rstd_out[i] = rstd;
            j->unbiased_out[i] = (float)(variance / (double)(j->rows - 1));
            j->scale_out[i] = rstd * j->gamma[i];
        }
    }
}

static void apply_range(const void *job, int64_t begin, int64_t end)
{
    const norm_job *j = job;
    const int64_t at = begin * LVNI_ROW_BLOCK * j->cols;
    const int64_t stop = end * LVNI_ROW_BLOCK < j->rows ? end * LVNI_ROW_BLOCK : j->rows;
    lvni_cpu_isa()->norm_apply(j->x + at, j->y + at, stop - begin * LVNI_ROW_BLOCK, j->cols, j->mean, j->a, j->b);
}

lvn_status lvni_cpu_batch_norm_train(const lvni_args *args)
{
    const lvni_norm_attr *attr = args->attr;
    norm_job job = describe(args->in[0]);
    const int64_t sums = job.blocks * job.cols;
    float *memory = lvni_scratch(LVNI_SCRATCH_OWN, (size_t)(3 * sums + job.cols) * sizeof *memory);
    if (memory == NULL) {
        return LVN_ERR_MEMORY;
    }
    job.x = LVNI_CF32(args->in[0]);
    job.gamma = LVNI_CF32(args->in[1]);
    job.y = LVNI_F32(args->out[0]);
    job.mean_out = LVNI_F32(args->out[1]);
    job.rstd_out = LVNI_F32(args->out[2]);
    job.unbiased_out = LVNI_F32(args->out[3]);
    job.shift = memory;
    job.s1 = memory + sums;
    job.s2 = memory + 2 * sums;
    job.scale_out = memory + 3 * sums;
    job.eps = attr->eps;
    par_blocks(&job, sums_range);
    lvni_par(job.cols, CHANNELS_PER_ITEM, job.blocks * 4, statistics_range, &job);
    job.mean = job.mean_out;
    job.a = job.scale_out;
    job.b = LVNI_CF32(args->in[2]);
    par_blocks(&job, apply_range);
    return LVN_OK;
}

static void grad_sums_range(const void *job, int64_t begin, int64_t end)
{
    const norm_job *j = job;
    for (int64_t b = begin; b < end; b++) {
        const int64_t in = b * LVNI_ROW_BLOCK * j->cols, out = b * j->cols;
        lvni_cpu_isa()->norm_grad_sums(j->dy + in, j->x + in, j->mean, rows_of_block(j, b), j->cols, j->s1 + out,
                                       j->s2 + out);
    }
}

static void grad_apply_range(const void *job, int64_t begin, int64_t end)
{
    const norm_job *j = job;
    const int64_t at = begin * LVNI_ROW_BLOCK * j->cols;
    const int64_t stop = end * LVNI_ROW_BLOCK < j->rows ? end * LVNI_ROW_BLOCK : j->rows;
    lvni_cpu_isa()->norm_grad_apply(j->dy + at, j->x + at, j->y + at, stop - begin * LVNI_ROW_BLOCK, j->cols, j->mean,
                                    j->a, j->b, j->d);
}

/* dbeta = sum of dy, dgamma = rstd * sum of dy (x - mean); `rstd` is read after the sums. Memory for sums is the job's. */
static void parameter_gradients(const norm_job *job, const float *rstd, float *dgamma, float *dbeta)
{
    par_blocks(job, grad_sums_range);
    lvni_cpu_isa()->combine(job->s1, job->blocks, job->cols, 1.0, dbeta);
    lvni_cpu_isa()->combine(job->s2, job->blocks, job->cols, 1.0, dgamma);
    for (int64_t c = 0; c < job->cols; c++) {
        dgamma[c] *= rstd[c];
    }
}

/* Sums of the gradient and `vectors` per-channel vectors behind them. NULL when memory is out. */
static float *take_memory(norm_job *job, int64_t vectors)
{
    const int64_t sums = job->blocks * job->cols;
    float *memory = lvni_scratch(LVNI_SCRATCH_OWN, (size_t)(2 * sums + vectors * job->cols) * sizeof *memory);
    if (memory == NULL) {
        return NULL;
    }
    job->s1 = memory;
    job->s2 = memory + sums;
    return memory + 2 * sums;
}

lvn_status lvni_cpu_batch_norm_train_grad(const lvni_args *args)
{
    norm_job job = describe(args->in[0]);
    float *vectors = take_memory(&job, 3);
    if (vectors == NULL) {
        return LVN_ERR_MEMORY;
    }
    const float *gamma = LVNI_CF32(args->in[2]), *rstd = LVNI_CF32(args->in[4]);
    float *dgamma = LVNI_F32(args->out[1]), *dbeta = LVNI_F32(args->out[2]);
    job.dy = LVNI_CF32(args->in[0]);
    job.x = LVNI_CF32(args->in[1]);
    job.mean = LVNI_CF32(args->in[3]);
    job.y = LVNI_F32(args->out[0]);
    parameter_gradients(&job, rstd, dgamma, dbeta);
    /* dx = gamma rstd (dy - dbeta / n - (x - mean) rstd dgamma / n) */
    float *a = vectors, *b = vectors + job.cols, *d = vectors + 2 * job.cols;
    for (int64_t c = 0; c < job.cols; c++) {
        a[c] = gamma[c] * rstd[c];
        b[c] = dbeta[c] / (float)job.rows;
        d[c] = rstd[c] * (dgamma[c] / (float)job.rows);
    }
    job.a = a;
    job.b = b;
    job.d = d;
    par_blocks(&job, grad_apply_range);
    return LVN_OK;
}

lvn_status lvni_cpu_batch_norm_eval(const lvni_args *args)
{
    const lvni_norm_attr *attr = args->attr;
    norm_job job = describe(args->in[0]);
    float *scale = lvni_scratch(LVNI_SCRATCH_OWN, (size_t)job.cols * sizeof *scale);
    if (scale == NULL) {
        return LVN_ERR_MEMORY;
    }
    const float *gamma = LVNI_CF32(args->in[1]), *variance = LVNI_CF32(args->in[4]);
    for (int64_t c = 0; c < job.cols; c++) {
        scale[c] = (float)((double)gamma[c] / lvni_sqrt((double)variance[c] + attr->eps));
    }
    job.x = LVNI_CF32(args->in[0]);
    job.y = LVNI_F32(args->out[0]);
    job.mean = LVNI_CF32(args->in[3]);
    job.a = scale;
    job.b = LVNI_CF32(args->in[2]);
    par_blocks(&job, apply_range);
    return LVN_OK;
}

lvn_status lvni_cpu_batch_norm_eval_grad(const lvni_args *args)
{
    const lvni_norm_attr *attr = args->attr;
    norm_job job = describe(args->in[0]);
    float *vectors = take_memory(&job, 3);
    if (vectors == NULL) {
        return LVN_ERR_MEMORY;
    }
    const float *gamma = LVNI_CF32(args->in[2]), *variance = LVNI_CF32(args->in[4]);
    float *rstd = vectors, *scale = vectors + job.cols, *zero = vectors + 2 * job.cols;
    for (int64_t c = 0; c < job.cols; c++) {
        const double root = lvni_sqrt((double)variance[c] + attr->eps);
        rstd[c] = (float)(1.0 / root);
        scale[c] = (float)((double)gamma[c] / root);
        zero[c] = 0.0f;
    }
    job.dy = LVNI_CF32(args->in[0]);
    job.x = LVNI_CF32(args->in[1]);
    job.mean = LVNI_CF32(args->in[3]);
    parameter_gradients(&job, rstd, LVNI_F32(args->out[1]), LVNI_F32(args->out[2]));
    job.x = job.dy; /* dx = dy * scale: the forward's loop without mean and shift */
    job.y = LVNI_F32(args->out[0]);
    job.mean = zero;
    job.a = scale;
    job.b = zero;
    par_blocks(&job, apply_range);
    return LVN_OK;
}
