/* Losses over classes: cross entropy and negative log likelihood, with label smoothing, weights and
 * rows that count for nothing. Called through the op table.
 *
 * Cross entropy reads the logits once forward and keeps a maximum and a log-sum per row instead of
 * the probabilities; the gradient reads the logits again and writes dlogits. A row is one piece of
 * work; rows are joined in f64 in their order. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"
#include "tensor/device.h"

#include <string.h>

typedef struct class_job {
    const char *op;
    int64_t rows, k;
    const float *x, *class_weight, *row_weight; /* weights: NULL for ones */
    const int64_t *label;
    lvn_class_loss_attr attr;
    double *loss;  /* per row */
    double factor; /* gradient: dloss / divisor */
    double all;    /* sum of the class weights */
    float *kept;   /* (rows, 2) */
    float *dx;
} class_job;

/* x at input `x`; labels, class weights, row weights from input `labels` on. */
static class_job describe(const char *op, const lvn_kernel_args *args, int x, int labels)
{
    const lvn_tensor *t = args->in[x], *of_class = args->in[labels + 1],
                     *of_row = args->in[labels + 2];
    class_job j = {.op = op,
                   .k = t->shape[t->ndim - 1],
                   .x = LVNI_CF32(t),
                   .label = args->in[labels]->data,
                   .class_weight = of_class == NULL ? NULL : LVNI_CF32(of_class),
                   .row_weight = of_row == NULL ? NULL : LVNI_CF32(of_row),
                   .attr = *(const lvn_class_loss_attr *)args->attr};
    j.rows = lvn_numel(t) / j.k;
    j.all = (double)j.k;
    if (j.class_weight != NULL) {
        j.all = 0.0;
        for (int64_t k = 0; k < j.k; k++) {
            j.all += (double)j.class_weight[k];
        }
    }
    return j;
}

static double of_row(const class_job *j, int64_t r)
{
    return j->label[r] == j->attr.ignore ? 0.0
           : j->row_weight == NULL       ? 1.0
                                         : (double)j->row_weight[r];
}

static double of_label(const class_job *j, int64_t r)
{
    return j->class_weight == NULL ? 1.0 : (double)j->class_weight[j->label[r]];
}

/* What the sum over rows is divided by: the weights of the labels; 1 for a sum, and where all
 * weights are 0. */
static lvn_status divisor(const class_job *j, double *by)
{
    double sum = 0.0;
    for (int64_t r = 0; r < j->rows; r++) {
        const int64_t label = j->label[r];
        LVN_ARG(label == j->attr.ignore || (label >= 0 && label < j->k),
                "%s: the label of row %lld is %lld, but there are %lld classes (0 to %lld)", j->op,
                (long long)r, (long long)label, (long long)j->k, (long long)j->k - 1);
        const double weight = of_row(j, r);
        sum += weight == 0.0 ? 0.0 : weight * of_label(j, r);
    }
    *by = j->attr.sum || sum == 0.0 ? 1.0 : sum;
    return LVN_OK;
}

static lvn_status sum_rows(const class_job *j, double by, lvn_tensor *loss)
{
    double sum = 0.0;
    for (int64_t r = 0; r < j->rows; r++) {
        sum += j->loss[r];
    }
    *LVNI_F32(loss) = (float)(sum / by);
    return LVN_OK;
}

static void cross_entropy_range(const void *job, int64_t begin, int64_t end)
{
    const class_job *j = job;
    const double s = j->attr.smoothing;
    lvni_cpu_isa()->row_log_sums(j->x + begin * j->k, end - begin, j->k, j->kept + 2 * begin);
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->x + r * j->k, top = j->kept[2 * r], log_sum = j->kept[2 * r + 1];
        const double weight = of_row(j, r);
        j->loss[r] = weight == 0.0 ? 0.0
                                   : weight * (1.0 - s) * of_label(j, r) *
                                         (double)(log_sum - (x[j->label[r]] - top));
        if (s > 0.0 && weight != 0.0) {
            j->loss[r] += weight * s / (double)j->k *
                          lvni_cpu_isa()->row_smooth(x, j->class_weight, j->k, top, log_sum);
        }
    }
}

lvn_status lvni_cpu_cross_entropy(const lvn_kernel_args *args)
{
    double *loss =
        lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)lvn_numel(args->in[1]) * sizeof *loss);
    if (loss == NULL || lvni_tensor_device_dry_run()) {
        return loss == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    class_job job = describe("cross_entropy", args, 0, 1);
    double by;
    LVN_TRY(divisor(&job, &by));
    job.kept = LVNI_F32(args->out[1]);
    job.loss = loss;
    lvni_cpu_par(job.rows, 1, job.k * 4, cross_entropy_range, &job);
    return sum_rows(&job, by, args->out[0]);
}

/* With p the probabilities: dx = factor row ((1 - s) w_label (p - [label]) + s / K (sum w p -
 * w)) */
static void cross_entropy_grad_range(const void *job, int64_t begin, int64_t end)
{
    const class_job *j = job;
    const double s = j->attr.smoothing;
    for (int64_t r = begin; r < end; r++) {
        float *dx = j->dx + r * j->k;
        const double weight = of_row(j, r) * j->factor;
        if (of_row(j, r) == 0.0) {
            memset(dx, 0, (size_t)j->k * sizeof *dx);
            continue;
        }
        const double hard = weight * (1.0 - s) * of_label(j, r), soft = weight * s / (double)j->k;
        lvni_cpu_isa()->row_slopes(j->x + r * j->k, j->class_weight, j->k, j->kept + 2 * r,
                                   (float)(hard + soft * j->all), (float)soft, dx);
        dx[j->label[r]] -= (float)hard;
    }
}

lvn_status lvni_cpu_cross_entropy_grad(const lvn_kernel_args *args)
{
    class_job job = describe("cross_entropy_grad", args, 1, 3);
    double by;
    LVN_TRY(divisor(&job, &by));
    job.kept = args->in[2]->data;
    job.dx = LVNI_F32(args->out[0]);
    job.factor = (double)*LVNI_CF32(args->in[0]) / by;
    lvni_cpu_par(job.rows, 1, job.k * 4, cross_entropy_grad_range, &job);
    return LVN_OK;
}

lvn_status lvni_cpu_nll(const lvn_kernel_args *args)
{
    class_job job = describe("nll", args, 0, 1);
    double by, sum = 0.0;
    LVN_TRY(divisor(&job, &by));
    for (int64_t r = 0; r < job.rows; r++) {
        const double weight = of_row(&job, r);
        sum -= weight == 0.0 ? 0.0
                             : weight * of_label(&job, r) * (double)job.x[r * job.k + job.label[r]];
    }
    *LVNI_F32(args->out[0]) = (float)(sum / by);
    return LVN_OK;
}

static void nll_grad_range(const void *job, int64_t begin, int64_t end)
{
    const class_job *j = job;
    memset(j->dx + begin * j->k, 0, (size_t)((end - begin) * j->k) * sizeof *j->dx);
    for (int64_t r = begin; r < end; r++) {
        const double weight = of_row(j, r);
        if (weight != 0.0) {
            j->dx[r * j->k + j->label[r]] = (float)(-j->factor * weight * of_label(j, r));
        }
    }
}

lvn_status lvni_cpu_nll_grad(const lvn_kernel_args *args)
{
    class_job job = describe("nll_grad", args, 1, 2);
    double by;
    LVN_TRY(divisor(&job, &by));
    job.dx = LVNI_F32(args->out[0]);
    job.factor = (double)*LVNI_CF32(args->in[0]) / by;
    lvni_cpu_par(job.rows, 1, job.k, nll_grad_range, &job);
    return LVN_OK;
}
