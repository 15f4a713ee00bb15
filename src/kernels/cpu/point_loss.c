/* Losses element by element (squares, absolute values, smooth ones, binary cross entropy): one pass
 * forward, one backward. Called through the op table. Blocks of LVNI_CPU_SUM_BLOCK elements are
 * summed alone and joined in f64 in their order. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"
#include "tensor/device.h"

#include <string.h>

typedef struct point_job {
    int64_t n, k; /* elements; classes: length of `positive` */
    lvni_cpu_point_rows rows;
    const float *positive; /* (k), or NULL */
    double *sum, *weights; /* per block */
    float factor;
    float *dx;
} point_job;

/* Values, targets, weights, positive weights from input `first` on. */
static point_job describe(const lvn_kernel_args *args, int first)
{
    const lvn_point_loss_attr *attr = args->attr;
    const lvn_tensor *x = args->in[first], *weight = args->in[first + 2],
                     *positive = args->in[first + 3];
    return (point_job){.n = lvn_numel(x),
                       .k = x->ndim == 0 ? 1 : x->shape[x->ndim - 1],
                       .positive = positive == NULL ? NULL : LVNI_CF32(positive),
                       .rows = {.kind = attr->kind,
                                .beta = (float)attr->beta,
                                .x = LVNI_CF32(x),
                                .t = LVNI_CF32(args->in[first + 1]),
                                .weight = weight == NULL ? NULL : LVNI_CF32(weight)}};
}

/* Elements [at, at + n): `memory` takes the positive weights, repeated as the elements need
 * them. */
static lvni_cpu_point_rows rows_at(const point_job *j, int64_t at, int64_t n,
                                   float memory[LVNI_CPU_SUM_BLOCK])
{
    lvni_cpu_point_rows r = j->rows;
    r.x += at;
    r.t += at;
    r.weight = r.weight == NULL ? NULL : r.weight + at;
    r.positive = memory;
    for (int64_t i = 0; r.kind == LVN_LOSS_BINARY && i < n; i++) {
        memory[i] = j->positive == NULL ? 1.0f : j->positive[(at + i) % j->k];
    }
    return r;
}

static int64_t block_size(const point_job *j, int64_t block)
{
    const int64_t left = j->n - block * LVNI_CPU_SUM_BLOCK;
    return left < LVNI_CPU_SUM_BLOCK ? left : LVNI_CPU_SUM_BLOCK;
}

static void forward_range(const void *job, int64_t begin, int64_t end)
{
    const point_job *j = job;
    float memory[LVNI_CPU_SUM_BLOCK];
    for (int64_t b = begin; b < end; b++) {
        const int64_t n = block_size(j, b);
        const lvni_cpu_point_rows r = rows_at(j, b * LVNI_CPU_SUM_BLOCK, n, memory);
        j->sum[b] = (double)lvni_cpu_isa()->point_loss(&r, n);
        float weights = (float)n;
        if (r.weight != NULL && r.kind != LVN_LOSS_BINARY) {
            lvni_cpu_isa()->row_sums(r.weight, 1, n, &weights);
        }
        j->weights[b] = (double)weights;
    }
}

lvn_status lvni_cpu_point_loss(const lvn_kernel_args *args)
{
    enum { COST = 4 };
    const lvn_point_loss_attr *attr = args->attr;
    point_job job = describe(args, 0);
    const int64_t blocks = lvni_cpu_div_up(job.n, LVNI_CPU_SUM_BLOCK);
    job.sum = lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)(2 * blocks) * sizeof *job.sum);
    if (job.sum == NULL || lvni_tensor_device_dry_run()) {
        return job.sum == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    job.weights = job.sum + blocks;
    lvni_cpu_par(blocks, 1, LVNI_CPU_SUM_BLOCK * COST, forward_range, &job);
    double sum = 0.0, weights = 0.0;
    for (int64_t b = 0; b < blocks; b++) {
        sum += job.sum[b];
        weights += job.weights[b];
    }
    const double by = attr->sum || weights == 0.0 ? 1.0 : weights;
    *LVNI_F32(args->out[0]) = (float)(sum / by);
    *LVNI_F32(args->out[1]) = (float)by;
    return LVN_OK;
}

static void gradient_range(const void *job, int64_t begin, int64_t end)
{
    const point_job *j = job;
    float memory[LVNI_CPU_SUM_BLOCK];
    for (int64_t b = begin; b < end; b++) {
        const int64_t n = block_size(j, b), at = b * LVNI_CPU_SUM_BLOCK;
        const lvni_cpu_point_rows r = rows_at(j, at, n, memory);
        lvni_cpu_isa()->point_loss_grad(&r, j->factor, j->dx + at, n);
    }
}

lvn_status lvni_cpu_point_loss_grad(const lvn_kernel_args *args)
{
    enum { COST = 4 };
    point_job job = describe(args, 2);
    job.factor = *LVNI_CF32(args->in[0]) / *LVNI_CF32(args->in[1]);
    job.dx = LVNI_F32(args->out[0]);
    lvni_cpu_par(lvni_cpu_div_up(job.n, LVNI_CPU_SUM_BLOCK), 1, LVNI_CPU_SUM_BLOCK * COST,
                 gradient_range, &job);
    if (args->out[1] != NULL) { /* d / d target of what depends on x - target */
        const lvn_scale_attr negative = {.mul = -1.0};
        return lvni_cpu_scale(
            &(lvn_kernel_args){.in = {args->out[0]}, .out = {args->out[1]}, .attr = &negative});
    }
    return LVN_OK;
}
