/* Rows looked up in a table, plus the row of their position. Called through the op table.
 *
 * The gradient is a sum per row of the table. Each member of the team takes a range of columns and
 * goes through all ids in order: rows that occur twice are summed in the order of their places on
 * any team. Rows that do not occur are cleared, and not even that when the sum goes on top of a
 * gradient that is there (a language model whose head shares the table). */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <string.h>

/* Columns that one member takes at least: a whole cache line. */
enum { COLUMNS = 16 };

typedef struct lookup_job {
    const int64_t *ids;
    int64_t n, length, features;
    const float *weight, *positions, *dy;
    float *y, *dweight, *dpositions; /* the latter NULL: not wanted */
} lookup_job;

static lvn_status check_ids(const char *op, const lookup_job *j, int64_t rows)
{
    for (int64_t i = 0; i < j->n; i++) {
        LVN_ARG(j->ids[i] >= 0 && j->ids[i] < rows,
                "%s: id %lld at place %lld is not a row of the table, which has %lld (0 to %lld)",
                op, (long long)j->ids[i], (long long)i, (long long)rows, (long long)rows - 1);
    }
    return LVN_OK;
}

static lookup_job describe(const lvn_tensor *ids, int64_t features)
{
    return (lookup_job){.ids = ids->data,
                        .n = lvn_numel(ids),
                        .length = ids->ndim == 0 ? 1 : ids->shape[ids->ndim - 1],
                        .features = features};
}

static void forward_range(const void *job, int64_t begin, int64_t end)
{
    const lookup_job *j = job;
    for (int64_t i = begin; i < end; i++) {
        const float *row = j->weight + j->ids[i] * j->features;
        float *y = j->y + i * j->features;
        if (j->positions == NULL) {
            memcpy(y, row, (size_t)j->features * sizeof *y);
        } else {
            lvni_cpu_isa()->binary[LVNI_ELEM_F32][LVNI_BINARY_add][LVNI_VV](
                row, j->positions + i % j->length * j->features, y, j->features);
        }
    }
}

lvn_status lvni_cpu_embedding(const lvn_kernel_args *args)
{
    const lvn_tensor *weight = args->in[0];
    lookup_job job = describe(args->in[1], weight->shape[1]);
    LVN_TRY(check_ids("embedding", &job, weight->shape[0]));
    job.weight = LVNI_CF32(weight);
    job.positions = args->in[2] == NULL ? NULL : LVNI_CF32(args->in[2]);
    job.y = LVNI_F32(args->out[0]);
    lvni_cpu_par(job.n, 1, job.features, forward_range, &job);
    return LVN_OK;
}

static void clear_range(const void *job, int64_t begin, int64_t end)
{
    const lvn_tensor *t = job;
    memset(LVNI_F32(t) + begin, 0, (size_t)(end - begin) * sizeof(float));
}

static void clear(lvn_tensor *t)
{
    lvni_cpu_par(lvn_numel(t), 4096, 1, clear_range, t);
}

static void gradient_range(const void *job, int64_t begin, int64_t end)
{
    const lookup_job *j = job;
    const int64_t first = begin * COLUMNS,
                  n = (end * COLUMNS < j->features ? end * COLUMNS : j->features) - first;
    for (int64_t i = 0; i < j->n; i++) {
        const float *dy = j->dy + i * j->features + first;
        lvni_cpu_isa()->accumulate(j->dweight + j->ids[i] * j->features + first, dy, n);
        if (j->dpositions != NULL) {
            lvni_cpu_isa()->accumulate(j->dpositions + i % j->length * j->features + first, dy, n);
        }
    }
}

lvn_status lvni_cpu_embedding_grad(const lvn_kernel_args *args)
{
    const lvn_lookup_attr *attr = args->attr;
    lookup_job job = describe(args->in[1], args->out[0]->shape[1]);
    LVN_TRY(check_ids("embedding_grad", &job, attr->rows));
    job.dy = LVNI_CF32(args->in[0]);
    job.dweight = LVNI_F32(args->out[0]);
    job.dpositions = args->out[1] == NULL ? NULL : LVNI_F32(args->out[1]);
    if (!attr->add) {
        clear(args->out[0]);
    }
    if (args->out[1] != NULL) {
        clear(args->out[1]);
    }
    lvni_cpu_par(lvni_cpu_div_up(job.features, COLUMNS), 1, job.n * COLUMNS, gradient_range, &job);
    return LVN_OK;
}
