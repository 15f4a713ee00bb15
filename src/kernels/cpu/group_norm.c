/* Group norm (with a group per channel: instance norm) over (samples, pixels, channels). Called
 * through the op table.
 *
 * The passes are those of batch norm (norm.c), sample by sample: sums per channel over blocks of
 * pixels, joined in f64, then joined over the channels of a group; then every pixel with one vector
 * per sample. Blocks have a fixed number of pixels. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"

#include "core/math.h"
#include "tensor/device.h"

typedef struct group_job {
    int64_t samples, pixels, channels, groups, blocks; /* blocks: of a sample's pixels */
    lvni_cpu_elem elem;                                /* of x, dy, y */
    size_t size;
    const void *x, *dy;
    void *y;                    /* y or dx */
    const float *gamma, *beta;  /* NULL for ones and zeros */
    float *mean_out, *rstd_out; /* (samples, groups) */
    const float *mean_in, *rstd_in;
    double eps;
    float *first, *s1, *s2; /* of blocks: (samples, blocks, channels) */
    /* (samples, channels); of the gradient: sums of dy and of dy (x - mean) */
    double *mean, *m2;
    float *center, *scale, *shift, *d; /* what the last pass uses: (samples, channels) */
} group_job;

static group_job describe(const lvn_tensor *x, int groups)
{
    group_job j = {.samples = x->shape[0],
                   .pixels = 1,
                   .channels = x->shape[x->ndim - 1],
                   .groups = groups,
                   .elem = lvni_cpu_elem_of(x->dtype),
                   .size = lvn_dtype_size(x->dtype)};
    for (int i = 1; i < x->ndim - 1; i++) {
        j.pixels *= x->shape[i];
    }
    j.blocks = lvni_cpu_div_up(j.pixels, LVNI_ROW_BLOCK);
    return j;
}

static lvn_status take_scratch(group_job *j)
{
    const int64_t table = j->samples * j->channels, sums = table * j->blocks;
    double *memory =
        lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)(2 * table) * sizeof(double) +
                                               (size_t)(4 * table + 3 * sums) * sizeof(float));
    if (memory == NULL) {
        return LVN_ERR_MEMORY;
    }
    j->mean = memory;
    j->m2 = memory + table;
    float *rest = (float *)(memory + 2 * table);
    j->center = rest;
    j->scale = rest + table;
    j->shift = rest + 2 * table;
    j->d = rest + 3 * table;
    j->first = rest + 4 * table;
    j->s1 = j->first + sums;
    j->s2 = j->s1 + sums;
    return LVN_OK;
}

/* Block b of all (samples, blocks): its first element and number of pixels. */
static int64_t block_of(const group_job *j, int64_t b, int64_t *at)
{
    const int64_t first = b % j->blocks * LVNI_ROW_BLOCK, left = j->pixels - first;
    *at = (b / j->blocks * j->pixels + first) * j->channels;
    return left < LVNI_ROW_BLOCK ? left : LVNI_ROW_BLOCK;
}

static void par_blocks(const group_job *j, lvni_cpu_range_fn fn)
{
    const int64_t rows = j->pixels < LVNI_ROW_BLOCK ? j->pixels : LVNI_ROW_BLOCK;
    lvni_cpu_par(j->samples * j->blocks, 1, rows * j->channels, fn, j);
}

static void sums_range(const void *job, int64_t begin, int64_t end)
{
    const group_job *j = job;
    for (int64_t b = begin; b < end; b++) {
        int64_t at;
        const int64_t rows = block_of(j, b, &at), to = b * j->channels;
        lvni_cpu_isa()->norm[j->elem].sums(lvni_cpu_elem_at(j->x, at, j->size), rows, j->channels,
                                           j->first + to, j->s1 + to, j->s2 + to);
    }
}

static float gamma_of(const group_job *j, int64_t c)
{
    return j->gamma == NULL ? 1.0f : j->gamma[c];
}

/* Channels have equally many pixels: the group's mean is the mean of theirs, its squares add up
 * (Chan, Golub, LeVeque 1983). */
static void one_group(const group_job *j, int64_t n, int64_t g)
{
    const int64_t width = j->channels / j->groups, c0 = g * width;
    const double *mean = j->mean + n * j->channels, *m2 = j->m2 + n * j->channels;
    double sum = 0.0, squares = 0.0;
    for (int64_t c = c0; c < c0 + width; c++) {
        sum += mean[c];
    }
    const double center = sum / (double)width;
    for (int64_t c = c0; c < c0 + width; c++) {
        squares += m2[c] + (double)j->pixels * (mean[c] - center) * (mean[c] - center);
    }
    const double rstd = 1.0 / lvni_core_sqrt(squares / (double)(width * j->pixels) + j->eps);
    j->mean_out[n * j->groups + g] = (float)center;
    j->rstd_out[n * j->groups + g] = (float)rstd;
    for (int64_t c = c0; c < c0 + width; c++) {
        const int64_t e = n * j->channels + c;
        j->center[e] = (float)center;
        j->scale[e] = (float)(rstd * (double)gamma_of(j, c));
        j->shift[e] = j->beta == NULL ? 0.0f : j->beta[c];
    }
}

static void statistics_range(const void *job, int64_t begin, int64_t end)
{
    const group_job *j = job;
    for (int64_t n = begin; n < end; n++) {
        const int64_t at = n * j->blocks * j->channels, to = n * j->channels;
        const lvni_cpu_norm_sums sums = {.shift = j->first + at,
                                         .s1 = j->s1 + at,
                                         .s2 = j->s2 + at,
                                         .rows = j->pixels,
                                         .cols = j->channels};
        lvni_cpu_isa()->norm_combine(&sums, 0, j->channels, j->mean + to, j->m2 + to);
        for (int64_t g = 0; g < j->groups; g++) {
            one_group(j, n, g);
        }
    }
}

/* The vectors of the sample that block b belongs to. */
static lvni_cpu_norm_vectors vectors_of(const group_job *j, int64_t b)
{
    const int64_t at = b / j->blocks * j->channels;
    return (lvni_cpu_norm_vectors){
        .mean = j->center + at, .scale = j->scale + at, .shift = j->shift + at, .d = j->d + at};
}

static void apply_range(const void *job, int64_t begin, int64_t end)
{
    const group_job *j = job;
    for (int64_t b = begin; b < end; b++) {
        int64_t at;
        const int64_t rows = block_of(j, b, &at);
        const lvni_cpu_norm_vectors v = vectors_of(j, b);
        lvni_cpu_isa()->norm[j->elem].apply(lvni_cpu_elem_at(j->x, at, j->size), NULL, false, &v,
                                            lvni_cpu_elem_to(j->y, at, j->size), rows, j->channels);
    }
}

lvn_status lvni_cpu_group_norm(const lvn_kernel_args *args)
{
    const lvn_group_norm_attr *attr = args->attr;
    group_job job = describe(args->in[0], attr->groups);
    LVN_TRY(take_scratch(&job));
    if (lvni_tensor_device_dry_run()) {
        return LVN_OK;
    }
    job.x = args->in[0]->data;
    job.gamma = args->in[1] == NULL ? NULL : LVNI_CF32(args->in[1]);
    job.beta = args->in[2] == NULL ? NULL : LVNI_CF32(args->in[2]);
    job.y = args->out[0]->data;
    job.mean_out = LVNI_F32(args->out[1]);
    job.rstd_out = LVNI_F32(args->out[2]);
    job.eps = attr->eps;
    par_blocks(&job, sums_range);
    lvni_cpu_par(job.samples, 1, job.channels * job.blocks * 4, statistics_range, &job);
    par_blocks(&job, apply_range);
    return LVN_OK;
}

/* ---- gradient ---- */

static void grad_sums_range(const void *job, int64_t begin, int64_t end)
{
    const group_job *j = job;
    for (int64_t b = begin; b < end; b++) {
        int64_t at;
        const int64_t rows = block_of(j, b, &at), to = b * j->channels;
        const lvni_cpu_norm_vectors v = vectors_of(j, b);
        const lvni_cpu_norm_grad part = {.dy = lvni_cpu_elem_at(j->dy, at, j->size),
                                         .x = lvni_cpu_elem_at(j->x, at, j->size),
                                         .gate = LVNI_GATE_OPEN};
        lvni_cpu_isa()->norm[j->elem].grad_sums(&part, &v, rows, j->channels, j->s1 + to,
                                                j->s2 + to);
    }
}

/* With h = dy gamma over the n values of a group: dx = rstd (h - sum(h) / n - (x - mean) rstd^2
 * sum(h (x - mean)) / n). */
static void one_group_gradient(const group_job *j, int64_t n, int64_t g)
{
    const int64_t width = j->channels / j->groups, c0 = g * width, to = n * j->channels;
    const double values = (double)(width * j->pixels), rstd = (double)j->rstd_in[n * j->groups + g];
    double sum_h = 0.0, sum_hc = 0.0;
    for (int64_t c = c0; c < c0 + width; c++) {
        sum_h += (double)gamma_of(j, c) * j->mean[to + c];
        sum_hc += (double)gamma_of(j, c) * j->m2[to + c];
    }
    for (int64_t c = c0; c < c0 + width; c++) {
        j->scale[to + c] = (float)(rstd * (double)gamma_of(j, c));
        j->shift[to + c] = (float)(-rstd * sum_h / values);
        j->d[to + c] = (float)(rstd * rstd * rstd * sum_hc / values);
    }
}

static void grad_statistics_range(const void *job, int64_t begin, int64_t end)
{
    const group_job *j = job;
    for (int64_t n = begin; n < end; n++) {
        double *sum = j->mean + n * j->channels, *sum_c = j->m2 + n * j->channels;
        for (int64_t c = 0; c < j->channels; c++) {
            sum[c] = sum_c[c] = 0.0;
            for (int64_t b = n * j->blocks; b < (n + 1) * j->blocks; b++) {
                sum[c] += (double)j->s1[b * j->channels + c];
                sum_c[c] += (double)j->s2[b * j->channels + c];
            }
        }
        for (int64_t g = 0; g < j->groups; g++) {
            one_group_gradient(j, n, g);
        }
    }
}

static void grad_apply_range(const void *job, int64_t begin, int64_t end)
{
    const group_job *j = job;
    for (int64_t b = begin; b < end; b++) {
        int64_t at;
        const int64_t rows = block_of(j, b, &at);
        const lvni_cpu_norm_vectors v = vectors_of(j, b);
        lvni_cpu_isa()->group_grad_apply[j->elem](
            lvni_cpu_elem_at(j->dy, at, j->size), lvni_cpu_elem_at(j->x, at, j->size), &v,
            lvni_cpu_elem_to(j->y, at, j->size), rows, j->channels);
    }
}

/* dgamma = sum over samples of rstd sum(dy (x - mean)), dbeta = sum of dy; either may be NULL. */
static void parameter_gradients(const group_job *j, lvn_tensor *dgamma, lvn_tensor *dbeta)
{
    const int64_t width = j->channels / j->groups;
    for (int64_t c = 0; c < j->channels; c++) {
        double gamma = 0.0, beta = 0.0;
        for (int64_t n = 0; n < j->samples; n++) {
            gamma += (double)j->rstd_in[n * j->groups + c / width] * j->m2[n * j->channels + c];
            beta += j->mean[n * j->channels + c];
        }
        if (dgamma != NULL) {
            LVNI_F32(dgamma)[c] = (float)gamma;
        }
        if (dbeta != NULL) {
            LVNI_F32(dbeta)[c] = (float)beta;
        }
    }
}

lvn_status lvni_cpu_group_norm_grad(const lvn_kernel_args *args)
{
    const lvn_group_norm_attr *attr = args->attr;
    group_job job = describe(args->in[1], attr->groups);
    LVN_TRY(take_scratch(&job));
    if (lvni_tensor_device_dry_run()) {
        return LVN_OK;
    }
    job.dy = args->in[0]->data;
    job.x = args->in[1]->data;
    job.mean_in = LVNI_CF32(args->in[2]);
    job.rstd_in = LVNI_CF32(args->in[3]);
    job.gamma = args->in[4] == NULL ? NULL : LVNI_CF32(args->in[4]);
    job.y = args->out[0]->data;
    for (int64_t e = 0; e < job.samples * job.channels; e++) {
        const int64_t g = e % job.channels / (job.channels / job.groups);
        job.center[e] = job.mean_in[e / job.channels * job.groups + g];
    }
    par_blocks(&job, grad_sums_range);
    lvni_cpu_par(job.samples, 1, job.channels * job.blocks * 4, grad_statistics_range, &job);
    par_blocks(&job, grad_apply_range);
    parameter_gradients(&job, args->out[1], args->out[2]);
    return LVN_OK;
}
