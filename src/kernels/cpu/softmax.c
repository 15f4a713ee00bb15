/* softmax, log-softmax, cross entropy and accuracy over rows of classes. Called through the op table (kernels.h). */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"

typedef struct rows_job {
    int64_t k, rows;
    const float *a, *b;
    float *y;
    void (*one)(const float *x, float *y, int64_t rows, int64_t k);
    void (*two)(const float *a, const float *b, float *y, int64_t rows, int64_t k);
    const int64_t *label;
    double *partial; /* one per LVNI_ROW_BLOCK rows */
    float s;
} rows_job;

static rows_job describe(const lvn_tensor *t)
{
    const int64_t k = t->ndim == 0 ? 1 : t->shape[t->ndim - 1];
    return (rows_job){.k = k, .rows = k == 0 ? 0 : lvn_numel(t) / k};
}

static void rows_range(const void *job, int64_t begin, int64_t end)
{
    const rows_job *j = job;
    const int64_t at = begin * j->k;
    if (j->one != NULL) {
        j->one(j->a + at, j->y + at, end - begin, j->k);
    } else {
        j->two(j->a + at, j->b + at, j->y + at, end - begin, j->k);
    }
}

static lvn_status run_rows(const lvni_args *args, rows_job job)
{
    enum { COST = 4 }; /* an exp counts for several elements */
    job.a = LVNI_CF32(args->in[0]);
    job.b = args->in[1] == NULL ? NULL : LVNI_CF32(args->in[1]);
    job.y = LVNI_F32(args->out[0]);
    lvni_par(job.rows, 1, job.k * COST, rows_range, &job);
    return LVN_OK;
}

lvn_status lvni_cpu_softmax(const lvni_args *args)
{
    rows_job job = describe(args->in[0]);
    job.one = lvni_cpu_isa()->softmax;
    return run_rows(args, job);
}

lvn_status lvni_cpu_softmax_grad(const lvni_args *args)
{
    rows_job job = describe(args->in[0]);
    job.two = lvni_cpu_isa()->softmax_grad;
    return run_rows(args, job);
}

lvn_status lvni_cpu_log_softmax(const lvni_args *args)
{
    rows_job job = describe(args->in[0]);
    job.one = lvni_cpu_isa()->log_softmax;
    return run_rows(args, job);
}

lvn_status lvni_cpu_log_softmax_grad(const lvni_args *args)
{
    rows_job job = describe(args->in[0]);
    job.two = lvni_cpu_isa()->log_softmax_grad;
    return run_rows(args, job);
}

static lvn_status check_labels(const char *op, const int64_t *label, int64_t rows, int64_t classes)
{
    for (int64_t r = 0; r < rows; r++) {
        LVN_ARG(label[r] >= 0 && label[r] < classes,
                "%s: the label of row %lld is %lld, but there are %lld classes (0 to %lld)", op, (long long)r,
                (long long)label[r], (long long)classes, (long long)classes - 1);
    }
    return LVN_OK;
}

/* An item is a block of rows: their log-softmax and the sum of what the labels get. */
static void cross_entropy_range(const void *job, int64_t begin, int64_t end)
{
    const rows_job *j = job;
    for (int64_t b = begin; b < end; b++) {
        const int64_t first = b * LVNI_ROW_BLOCK;
        const int64_t last = first + LVNI_ROW_BLOCK < j->rows ? first + LVNI_ROW_BLOCK : j->rows;
        lvni_cpu_isa()->log_softmax(j->a + first * j->k, j->y + first * j->k, last - first, j->k);
        double sum = 0.0;
        for (int64_t r = first; r < last; r++) {
            sum += (double)j->y[r * j->k + j->label[r]];
        }
        j->partial[b] = sum;
    }
}

lvn_status lvni_cpu_cross_entropy(const lvni_args *args)
{
    rows_job job = describe(args->in[0]);
    job.a = LVNI_CF32(args->in[0]);
    job.label = args->in[1]->data;
    job.y = LVNI_F32(args->out[1]);
    LVN_TRY(check_labels("cross_entropy", job.label, job.rows, job.k));
    const int64_t blocks = lvni_div_up(job.rows, LVNI_ROW_BLOCK);
    job.partial = lvni_scratch(LVNI_SCRATCH_OWN, (size_t)blocks * sizeof *job.partial);
    if (job.partial == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_par(blocks, 1, LVNI_ROW_BLOCK * job.k, cross_entropy_range, &job);
    double sum = 0.0;
    for (int64_t b = 0; b < blocks; b++) {
        sum += job.partial[b];
    }
    *LVNI_F32(args->out[0]) = (float)(-sum / (double)job.rows);
    return LVN_OK;
}

static void cross_entropy_grad_range(const void *job, int64_t begin, int64_t end)
{
    const rows_job *j = job;
    lvni_cpu_isa()->exp_scaled(j->a + begin * j->k, j->y + begin * j->k, (end - begin) * j->k, j->s);
    for (int64_t r = begin; r < end; r++) {
        j->y[r * j->k + j->label[r]] -= j->s;
    }
}

lvn_status lvni_cpu_cross_entropy_grad(const lvni_args *args)
{
    rows_job job = describe(args->in[1]);
    job.a = LVNI_CF32(args->in[1]);
    job.label = args->in[2]->data;
    job.y = LVNI_F32(args->out[0]);
    job.s = *LVNI_CF32(args->in[0]) / (float)job.rows;
    LVN_TRY(check_labels("cross_entropy_grad", job.label, job.rows, job.k));
    lvni_par(job.rows, 1, job.k * 4, cross_entropy_grad_range, &job);
    return LVN_OK;
}

lvn_status lvni_cpu_accuracy(const lvni_args *args)
{
    const rows_job job = describe(args->in[0]);
    const float *x = LVNI_CF32(args->in[0]);
    const int64_t *label = args->in[1]->data;
    LVN_TRY(check_labels("accuracy", label, job.rows, job.k));
    int64_t right = 0;
    for (int64_t r = 0; r < job.rows; r++) {
        int64_t first;
        lvni_cpu_isa()->row_max(x + r * job.k, 1, job.k, NULL, &first);
        right += first == label[r] ? 1 : 0;
    }
    *LVNI_F32(args->out[0]) = (float)((double)right / (double)job.rows);
    return LVN_OK;
}
