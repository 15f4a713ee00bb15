/* softmax, log-softmax and accuracy over rows of classes. Called through the op table
 * (kernels.h). */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

typedef struct rows_job {
    int64_t k, rows;
    const float *a, *b;
    float *y;
    void (*one)(const float *x, float *y, int64_t rows, int64_t k);
    void (*two)(const float *a, const float *b, float *y, int64_t rows, int64_t k);
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

static lvn_status run_rows(const lvn_kernel_args *args, rows_job job)
{
    enum { COST = 4 }; /* an exp counts for several elements */
    job.a = LVNI_CF32(args->in[0]);
    job.b = args->in[1] == NULL ? NULL : LVNI_CF32(args->in[1]);
    job.y = LVNI_F32(args->out[0]);
    lvni_cpu_par(job.rows, 1, job.k * COST, rows_range, &job);
    return LVN_OK;
}

lvn_status lvni_cpu_softmax(const lvn_kernel_args *args)
{
    rows_job job = describe(args->in[0]);
    job.one = lvni_cpu_isa()->softmax;
    return run_rows(args, job);
}

lvn_status lvni_cpu_softmax_grad(const lvn_kernel_args *args)
{
    rows_job job = describe(args->in[0]);
    job.two = lvni_cpu_isa()->softmax_grad;
    return run_rows(args, job);
}

lvn_status lvni_cpu_log_softmax(const lvn_kernel_args *args)
{
    rows_job job = describe(args->in[0]);
    job.one = lvni_cpu_isa()->log_softmax;
    return run_rows(args, job);
}

lvn_status lvni_cpu_log_softmax_grad(const lvn_kernel_args *args)
{
    rows_job job = describe(args->in[0]);
    job.two = lvni_cpu_isa()->log_softmax_grad;
    return run_rows(args, job);
}

static lvn_status check_labels(const char *op, const int64_t *label, int64_t rows, int64_t classes)
{
    for (int64_t r = 0; r < rows; r++) {
        LVN_ARG(label[r] >= 0 && label[r] < classes,
                "%s: the label of row %lld is %lld, but there are %lld classes (0 to %lld)", op,
                (long long)r, (long long)label[r], (long long)classes, (long long)classes - 1);
    }
    return LVN_OK;
}

lvn_status lvni_cpu_accuracy(const lvn_kernel_args *args)
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
