/* Batch norm over a (rows, channels) table with what may follow it (a residual that is added,
 * relu): training and evaluation, forward and gradient. Called through the op table.
 *
 * Forward reads x once for the statistics (sums of x - k and its square over blocks of rows, k the
 * block's first row, so that a mean far above the deviation costs nothing; blocks are joined in
 * f64) and once to write y. The gradient reads dy and x once for two sums (and writes what the
 * residual gets on the way) and once to write dx. Blocks have a fixed number of rows: the team
 * decides nothing. Tables may be bf16; vectors over the channels are f32. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"

#include "core/math.h"
#include "tensor/device.h"

typedef struct norm_job {
    int64_t rows, cols, blocks;
    size_t size; /* of an element */
    const lvni_cpu_norm_loops *loops;
    const void *x, *residual;
    void *y; /* y or dx */
    bool relu;
    lvni_cpu_norm_grad grad;
    lvni_cpu_norm_vectors v; /* see isa.h */
    float *shift, *s1, *s2;  /* sums of blocks: (blocks, cols) */
    const float *gamma;
    float *mean_out, *rstd_out, *unbiased_out, *scale_out;
    /* of lvni_cpu_batch_norm_moments, which wants no rstd_out and so on */
    float *variance_out;
    double eps;
} norm_job;

static norm_job describe(const lvn_tensor *x)
{
    const int64_t cols = x->shape[x->ndim - 1];
    const int64_t rows = cols == 0 ? 0 : lvn_numel(x) / cols;
    return (norm_job){.rows = rows,
                      .cols = cols,
                      .blocks = lvni_cpu_div_up(rows, LVNI_ROW_BLOCK),
                      .size = lvn_dtype_size(x->dtype),
                      .loops = &lvni_cpu_isa()->norm[lvni_cpu_elem_of(x->dtype)]};
}

static int64_t rows_of_block(const norm_job *j, int64_t block)
{
    const int64_t left = j->rows - block * LVNI_ROW_BLOCK;
    return left < LVNI_ROW_BLOCK ? left : LVNI_ROW_BLOCK;
}

static void par_blocks(const norm_job *j, lvni_cpu_range_fn fn)
{
    const int64_t rows = j->rows < LVNI_ROW_BLOCK ? j->rows : LVNI_ROW_BLOCK;
    lvni_cpu_par(j->blocks, 1, rows * j->cols, fn, j);
}

/* Element `at` of a table, which may be NULL. */
static const void *from(const norm_job *j, const void *table, int64_t at)
{
    return lvni_cpu_elem_at(table, at, j->size);
}

static void *into(const norm_job *j, void *table, int64_t at)
{
    return lvni_cpu_elem_to(table, at, j->size);
}

static void sums_range(const void *job, int64_t begin, int64_t end)
{
    const norm_job *j = job;
    for (int64_t b = begin; b < end; b++) {
        const int64_t out = b * j->cols;
        j->loops->sums(from(j, j->x, b * LVNI_ROW_BLOCK * j->cols), rows_of_block(j, b), j->cols,
                       j->shift + out, j->s1 + out, j->s2 + out);
    }
}

enum { CHANNELS_PER_ITEM = 64 };

/* An item is a channel. */
static void statistics_range(const void *job, int64_t begin, int64_t end)
{
    const norm_job *j = job;
    const lvni_cpu_norm_sums sums = {
        .shift = j->shift, .s1 = j->s1, .s2 = j->s2, .rows = j->rows, .cols = j->cols};
    double mean[CHANNELS_PER_ITEM], m2[CHANNELS_PER_ITEM];
    for (int64_t c = begin; c < end; c += CHANNELS_PER_ITEM) {
        const int64_t stop = c + CHANNELS_PER_ITEM < end ? c + CHANNELS_PER_ITEM : end;
        lvni_cpu_isa()->norm_combine(&sums, c, stop, mean, m2);
        for (int64_t i = c; i < stop; i++) {
            /* rounding; a NaN stays */
            const double variance = m2[i - c] > 0.0 ? m2[i - c] : m2[i - c] * 0.0;
            if (j->variance_out != NULL) {
                j->mean_out[i] = (float)mean[i - c];
                j->variance_out[i] = (float)(variance / (double)j->rows);
                continue;
            }
            const float rstd = (float)(1.0 / lvni_core_sqrt(variance / (double)j->rows + j->eps));
            j->mean_out[i] = (float)mean[i - c];
            j->rstd_out[i] = rstd;
            j->unbiased_out[i] = (float)(variance / (double)(j->rows - 1));
            j->scale_out[i] = rstd * j->gamma[i];
        }
    }
}

/* Rows of blocks [begin, end); *at: their first element. */
static int64_t rows_of_range(const norm_job *j, int64_t begin, int64_t end, int64_t *at)
{
    const int64_t stop = end * LVNI_ROW_BLOCK < j->rows ? end * LVNI_ROW_BLOCK : j->rows;
    *at = begin * LVNI_ROW_BLOCK * j->cols;
    return stop - begin * LVNI_ROW_BLOCK;
}

static void apply_range(const void *job, int64_t begin, int64_t end)
{
    const norm_job *j = job;
    int64_t at;
    const int64_t rows = rows_of_range(j, begin, end, &at);
    j->loops->apply(from(j, j->x, at), from(j, j->residual, at), j->relu, &j->v, into(j, j->y, at),
                    rows, j->cols);
}

static const void *optional(const lvn_tensor *t)
{
    return t == NULL ? NULL : t->data;
}

lvn_status lvni_cpu_batch_norm_train(const lvn_kernel_args *args)
{
    const lvn_norm_attr *attr = args->attr;
    norm_job job = describe(args->in[0]);
    const int64_t sums = job.blocks * job.cols;
    float *memory =
        lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)(3 * sums + job.cols) * sizeof *memory);
    if (memory == NULL) {
        return LVN_ERR_MEMORY;
    }
    job.x = args->in[0]->data;
    job.gamma = LVNI_CF32(args->in[1]);
    job.residual = optional(args->in[3]);
    job.relu = attr->relu;
    job.y = args->out[0]->data;
    job.mean_out = LVNI_F32(args->out[1]);
    job.rstd_out = LVNI_F32(args->out[2]);
    job.unbiased_out = LVNI_F32(args->out[3]);
    job.shift = memory;
    job.s1 = memory + sums;
    job.s2 = memory + 2 * sums;
    job.scale_out = memory + 3 * sums;
    job.eps = attr->eps;
    par_blocks(&job, sums_range);
    lvni_cpu_par(job.cols, CHANNELS_PER_ITEM, job.blocks * 4, statistics_range, &job);
    job.v = (lvni_cpu_norm_vectors){
        .mean = job.mean_out, .scale = job.scale_out, .shift = LVNI_CF32(args->in[2])};
    par_blocks(&job, apply_range);
    return LVN_OK;
}

lvn_status lvni_cpu_batch_norm_eval(const lvn_kernel_args *args)
{
    const lvn_norm_attr *attr = args->attr;
    norm_job job = describe(args->in[0]);
    float *scale = lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)job.cols * sizeof *scale);
    if (scale == NULL || lvni_tensor_device_dry_run()) {
        return scale == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    const float *gamma = LVNI_CF32(args->in[1]), *variance = LVNI_CF32(args->in[4]);
    for (int64_t c = 0; c < job.cols; c++) {
        scale[c] = (float)((double)gamma[c] / lvni_core_sqrt((double)variance[c] + attr->eps));
    }
    job.x = args->in[0]->data;
    job.residual = optional(args->in[5]);
    job.relu = attr->relu;
    job.y = args->out[0]->data;
    job.v = (lvni_cpu_norm_vectors){
        .mean = LVNI_CF32(args->in[3]), .scale = scale, .shift = LVNI_CF32(args->in[2])};
    par_blocks(&job, apply_range);
    return LVN_OK;
}

/* ---- gradients ---- */

static void grad_sums_range(const void *job, int64_t begin, int64_t end)
{
    const norm_job *j = job;
    for (int64_t b = begin; b < end; b++) {
        int64_t at;
        const int64_t rows = rows_of_range(j, b, b + 1, &at);
        const lvni_cpu_norm_grad part = {.dy = from(j, j->grad.dy, at),
                                         .x = from(j, j->grad.x, at),
                                         .y = from(j, j->grad.y, at),
                                         .g = into(j, j->grad.g, at),
                                         .gate = j->grad.gate};
        j->loops->grad_sums(&part, &j->v, rows, j->cols, j->s1 + b * j->cols, j->s2 + b * j->cols);
    }
}

static void grad_apply_range(const void *job, int64_t begin, int64_t end)
{
    const norm_job *j = job;
    int64_t at;
    const int64_t rows = rows_of_range(j, begin, end, &at);
    const lvni_cpu_norm_grad part = {.dy = from(j, j->grad.dy, at),
                                     .x = from(j, j->grad.x, at),
                                     .y = from(j, j->grad.y, at),
                                     .gate = j->grad.gate};
    j->loops->grad_apply(&part, &j->v, into(j, j->y, at), rows, j->cols);
}

/* Per-channel results and constants of a gradient: gradients that are not requested go to scratch.
 */
typedef struct grad_vectors {
    float *dgamma, *dbeta, *scale, *rstd, *b, *d;
} grad_vectors;

/* in: dy, x, gamma, mean, a statistic, beta, y (or NULL); out: dx, dgamma, dbeta, dresidual (the
 * last three or NULL) */
static lvn_status begin_gradient(const lvn_kernel_args *args, norm_job *job, grad_vectors *v)
{
    const lvn_norm_attr *attr = args->attr;
    *job = describe(args->in[0]);
    const int64_t sums = job->blocks * job->cols;
    float *memory =
        lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)(2 * sums + 6 * job->cols) * sizeof *memory);
    if (memory == NULL) {
        return LVN_ERR_MEMORY;
    }
    job->s1 = memory;
    job->s2 = memory + sums;
    float *own = memory + 2 * sums;
    *v = (grad_vectors){.dgamma = args->out[1] != NULL ? LVNI_F32(args->out[1]) : own,
                        .dbeta = args->out[2] != NULL ? LVNI_F32(args->out[2]) : own + job->cols,
                        .scale = own + 2 * job->cols,
                        .rstd = own + 3 * job->cols,
                        .b = own + 4 * job->cols,
                        .d = own + 5 * job->cols};
    job->grad = (lvni_cpu_norm_grad){.dy = args->in[0]->data,
                                     .x = args->in[1]->data,
                                     .g = args->out[3] == NULL ? NULL : args->out[3]->data};
    if (attr->relu) {
        job->grad.y = optional(args->in[6]);
        job->grad.gate = job->grad.y != NULL ? LVNI_GATE_OUTPUT : LVNI_GATE_AGAIN;
    }
    job->v = (lvni_cpu_norm_vectors){.mean = LVNI_CF32(args->in[3]),
                                     .scale = v->scale,
                                     .shift = LVNI_CF32(args->in[5]),
                                     .b = v->b,
                                     .d = v->d};
    job->y = args->out[0]->data;
    return LVN_OK;
}

/* dbeta = sum of g, dgamma = rstd * sum of g (x - mean). What passed the gate is read from g
 * afterwards, if it was kept. */
static void parameter_gradients(norm_job *job, const grad_vectors *v)
{
    par_blocks(job, grad_sums_range);
    lvni_cpu_isa()->combine(job->s1, job->blocks, job->cols, 1.0, v->dbeta);
    lvni_cpu_isa()->combine(job->s2, job->blocks, job->cols, 1.0, v->dgamma);
    for (int64_t c = 0; c < job->cols; c++) {
        v->dgamma[c] *= v->rstd[c];
    }
    if (job->grad.g != NULL) {
        job->grad =
            (lvni_cpu_norm_grad){.dy = job->grad.g, .x = job->grad.x, .gate = LVNI_GATE_OPEN};
    }
}

lvn_status lvni_cpu_batch_norm_train_grad(const lvn_kernel_args *args)
{
    norm_job job;
    grad_vectors v;
    LVN_TRY(begin_gradient(args, &job, &v));
    if (lvni_tensor_device_dry_run()) {
        return LVN_OK;
    }
    const float *gamma = LVNI_CF32(args->in[2]), *rstd = LVNI_CF32(args->in[4]);
    for (int64_t c = 0; c < job.cols; c++) {
        v.rstd[c] = rstd[c];
        v.scale[c] = rstd[c] * gamma[c];
    }
    parameter_gradients(&job, &v);
    /* dx = gamma rstd (g - dbeta / n - (x - mean) rstd dgamma / n) */
    for (int64_t c = 0; c < job.cols; c++) {
        v.b[c] = v.dbeta[c] / (float)job.rows;
        v.d[c] = rstd[c] * (v.dgamma[c] / (float)job.rows);
    }
    par_blocks(&job, grad_apply_range);
    return LVN_OK;
}

/* Mean and variance are constants: dx = gamma rstd g. */
lvn_status lvni_cpu_batch_norm_eval_grad(const lvn_kernel_args *args)
{
    const lvn_norm_attr *attr = args->attr;
    norm_job job;
    grad_vectors v;
    LVN_TRY(begin_gradient(args, &job, &v));
    if (lvni_tensor_device_dry_run()) {
        return LVN_OK;
    }
    const float *gamma = LVNI_CF32(args->in[2]), *variance = LVNI_CF32(args->in[4]);
    for (int64_t c = 0; c < job.cols; c++) {
        const double root = lvni_core_sqrt((double)variance[c] + attr->eps);
        v.rstd[c] = (float)(1.0 / root);
        v.scale[c] = (float)((double)gamma[c] / root);
        v.b[c] = v.d[c] = 0.0f;
    }
    parameter_gradients(&job, &v);
    par_blocks(&job, grad_apply_range);
    return LVN_OK;
}

/* ---- in parts, for statistics of several micro-batches together ---- */

lvn_status lvni_cpu_batch_norm_moments(const lvn_kernel_args *args)
{
    norm_job job = describe(args->in[0]);
    const int64_t sums = job.blocks * job.cols;
    float *memory = lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)(3 * sums) * sizeof *memory);
    if (memory == NULL) {
        return LVN_ERR_MEMORY;
    }
    job.x = args->in[0]->data;
    job.mean_out = LVNI_F32(args->out[0]);
    job.variance_out = job.mean_out + job.cols;
    job.shift = memory;
    job.s1 = memory + sums;
    job.s2 = memory + 2 * sums;
    par_blocks(&job, sums_range);
    lvni_cpu_par(job.cols, CHANNELS_PER_ITEM, job.blocks * 4, statistics_range, &job);
    return LVN_OK;
}

/* dy, x, gamma, mean, variance, beta as inputs 0 to 5, y as another one; `vectors` (rstd, scale)
 * are scratch. */
static void describe_gradient(const lvn_kernel_args *args, int place_of_y, float *vectors,
                              norm_job *job)
{
    const lvn_norm_attr *attr = args->attr;
    const float *gamma = LVNI_CF32(args->in[2]), *variance = LVNI_CF32(args->in[4]);
    float *rstd = vectors, *scale = vectors + job->cols;
    for (int64_t c = 0; c < job->cols; c++) {
        const double root = lvni_core_sqrt((double)variance[c] + attr->eps);
        rstd[c] = (float)(1.0 / root);
        scale[c] = (float)((double)gamma[c] / root);
    }
    job->grad = (lvni_cpu_norm_grad){.dy = args->in[0]->data, .x = args->in[1]->data};
    if (attr->relu) {
        job->grad.y = optional(args->in[place_of_y]);
        job->grad.gate = job->grad.y != NULL ? LVNI_GATE_OUTPUT : LVNI_GATE_AGAIN;
    }
    job->v = (lvni_cpu_norm_vectors){
        .mean = LVNI_CF32(args->in[3]), .scale = scale, .shift = LVNI_CF32(args->in[5])};
}

lvn_status lvni_cpu_batch_norm_sums(const lvn_kernel_args *args)
{
    norm_job job = describe(args->in[0]);
    const int64_t sums = job.blocks * job.cols;
    float *memory =
        lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)(2 * sums + 2 * job.cols) * sizeof *memory);
    if (memory == NULL || lvni_tensor_device_dry_run()) {
        return memory == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    float *rstd = memory + 2 * sums, *of_g = LVNI_F32(args->out[0]), *of_gx = of_g + job.cols;
    describe_gradient(args, 6, rstd, &job);
    job.grad.g = args->out[1] == NULL ? NULL : args->out[1]->data;
    job.s1 = memory;
    job.s2 = memory + sums;
    par_blocks(&job, grad_sums_range);
    lvni_cpu_isa()->combine(job.s1, job.blocks, job.cols, 1.0, of_g);
    lvni_cpu_isa()->combine(job.s2, job.blocks, job.cols, 1.0, of_gx);
    for (int64_t c = 0; c < job.cols; c++) {
        of_gx[c] *= rstd[c];
    }
    return LVN_OK;
}

lvn_status lvni_cpu_batch_norm_group_grad(const lvn_kernel_args *args)
{
    norm_job job = describe(args->in[0]);
    float *memory = lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)(3 * job.cols) * sizeof *memory);
    if (memory == NULL || lvni_tensor_device_dry_run()) {
        return memory == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    const float *share = LVNI_CF32(args->in[6]);
    float *rstd = memory, *d = memory + 2 * job.cols;
    describe_gradient(args, 7, rstd, &job);
    for (int64_t c = 0; c < job.cols; c++) {
        d[c] = rstd[c] * share[job.cols + c];
    }
    job.v.b = share;
    job.v.d = d;
    job.y = args->out[0]->data;
    par_blocks(&job, grad_apply_range);
    return LVN_OK;
}
