/* Elements chosen by an index along an axis, and their gradients, which add in the order of the
 * index whatever the team; images mixed with partners. Called through the op table (kernels.h). */
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <string.h>

enum { CHUNK = 64 }; /* of inner elements that one item of a gradient owns */

/* x (outer, size, inner), y (outer, many, inner); the index is input 1, or the only one */
typedef struct index_job {
    int64_t outer, size, many, inner, chunks;
    const int64_t *index;
    bool per_element; /* the index is shaped like y; else it is (many) */
    size_t bytes;
    const char *x;
    char *y;
} index_job;

static lvn_status plan(const char *op, const lvn_kernel_args *args, bool per_element, bool gradient,
                       index_job *j)
{
    const int axis = ((const lvn_axis_attr *)args->attr)->axis;
    const lvn_tensor *big = gradient ? args->out[0] : args->in[0],
                     *small = gradient ? args->in[0] : args->out[0],
                     *index = args->in[1] != NULL ? args->in[1] : args->in[0];
    *j = (index_job){.outer = 1,
                     .size = big->shape[axis],
                     .many = small->shape[axis],
                     .inner = 1,
                     .index = index->data,
                     .per_element = per_element,
                     .bytes = lvn_dtype_size(big->dtype),
                     .x = args->in[0]->data,
                     .y = args->out[0]->data};
    for (int i = 0; i < big->ndim; i++) {
        j->outer *= i < axis ? big->shape[i] : 1;
        j->inner *= i > axis ? big->shape[i] : 1;
    }
    j->chunks = lvni_cpu_div_up(j->inner, CHUNK);
    for (int64_t e = 0; e < lvn_numel(index); e++) {
        LVN_ARG(j->index[e] >= 0 && j->index[e] < j->size,
                "%s: index %lld of element %lld is outside the axis of size %lld", op,
                (long long)j->index[e], (long long)e, (long long)j->size);
    }
    return LVN_OK;
}

/* Item: a slice of y. */
static void select_range(const void *job, int64_t begin, int64_t end)
{
    const index_job *j = job;
    const size_t slice = (size_t)j->inner * j->bytes;
    for (int64_t item = begin; item < end; item++) {
        const int64_t from = item / j->many * j->size + j->index[item % j->many];
        memcpy(j->y + (size_t)item * slice, j->x + (size_t)from * slice, slice);
    }
}

static void gather_range(const void *job, int64_t begin, int64_t end)
{
    const index_job *j = job;
    for (int64_t item = begin; item < end; item++) {
        const int64_t base = item / j->many * j->size;
        for (int64_t i = 0; i < j->inner; i++) {
            const int64_t e = item * j->inner + i;
            memcpy(j->y + (size_t)e * j->bytes,
                   j->x + (size_t)((base + j->index[e]) * j->inner + i) * j->bytes, j->bytes);
        }
    }
}

/* Item: CHUNK columns of one outer part; its terms come in the order of the index. */
static void put_back_range(const void *job, int64_t begin, int64_t end)
{
    const index_job *j = job;
    for (int64_t item = begin; item < end; item++) {
        const int64_t o = item / j->chunks, first = item % j->chunks * CHUNK;
        const int64_t n = j->inner - first < CHUNK ? j->inner - first : CHUNK;
        float *dx = (float *)(void *)j->y + o * j->size * j->inner + first;
        const float *dy = (const float *)(const void *)j->x + o * j->many * j->inner + first;
        const int64_t *index = j->index + (j->per_element ? o * j->many * j->inner + first : 0);
        for (int64_t s = 0; s < j->size; s++) {
            memset(dx + s * j->inner, 0, (size_t)n * sizeof *dx);
        }
        for (int64_t m = 0; m < j->many; m++) {
            for (int64_t i = 0; i < n; i++) {
                const int64_t to = j->per_element ? index[m * j->inner + i] : index[m];
                dx[to * j->inner + i] += dy[m * j->inner + i];
            }
        }
    }
}

/* Item as above: of what is written to one place the last remains. */
static void places_range(const void *job, int64_t begin, int64_t end)
{
    const index_job *j = job;
    for (int64_t item = begin; item < end; item++) {
        const int64_t o = item / j->chunks, first = item % j->chunks * CHUNK;
        const int64_t n = j->inner - first < CHUNK ? j->inner - first : CHUNK;
        int64_t *places = (int64_t *)(void *)j->y + o * j->size * j->inner + first;
        const int64_t *index = j->index + o * j->many * j->inner + first;
        for (int64_t s = 0; s < j->size; s++) {
            for (int64_t i = 0; i < n; i++) {
                places[s * j->inner + i] = s;
            }
        }
        for (int64_t m = 0; m < j->many; m++) {
            for (int64_t i = 0; i < n; i++) {
                places[index[m * j->inner + i] * j->inner + i] = j->size + m;
            }
        }
    }
}

lvn_status lvni_cpu_index_select(const lvn_kernel_args *args)
{
    index_job j;
    LVN_TRY(plan("index_select", args, false, false, &j));
    lvni_cpu_par(j.outer * j.many, 1, j.inner, select_range, &j);
    return LVN_OK;
}

lvn_status lvni_cpu_gather(const lvn_kernel_args *args)
{
    index_job j;
    LVN_TRY(plan("gather", args, true, false, &j));
    lvni_cpu_par(j.outer * j.many, 1, j.inner, gather_range, &j);
    return LVN_OK;
}

lvn_status lvni_cpu_index_select_grad(const lvn_kernel_args *args)
{
    index_job j;
    LVN_TRY(plan("index_select_grad", args, false, true, &j));
    lvni_cpu_par(j.outer * j.chunks, 1, (j.many + j.size) * (j.inner < CHUNK ? j.inner : CHUNK),
                 put_back_range, &j);
    return LVN_OK;
}

lvn_status lvni_cpu_gather_grad(const lvn_kernel_args *args)
{
    index_job j;
    LVN_TRY(plan("gather_grad", args, true, true, &j));
    lvni_cpu_par(j.outer * j.chunks, 1, (j.many + j.size) * (j.inner < CHUNK ? j.inner : CHUNK),
                 put_back_range, &j);
    return LVN_OK;
}

lvn_status lvni_cpu_scatter_places(const lvn_kernel_args *args)
{
    index_job j;
    LVN_TRY(plan("scatter_places", args, true, true, &j));
    lvni_cpu_par(j.outer * j.chunks, 1, (j.many + j.size) * (j.inner < CHUNK ? j.inner : CHUNK),
                 places_range, &j);
    return LVN_OK;
}

/* ---- pairs of images ---- */

typedef struct mix_job {
    const lvn_mix_attr *attr;
    const float *x;
    const int64_t *partner;
    float *y;
    size_t row, size, channels; /* elements of a row of pixels, of an image, of a pixel */
} mix_job;

static void mix_range(const void *job, int64_t begin, int64_t end)
{
    const mix_job *j = job;
    const lvn_mix_attr *m = j->attr;
    const float own = (float)m->lambda, other = (float)(1.0 - m->lambda);
    for (int64_t i = begin; i < end; i++) {
        const float *restrict a = j->x + (size_t)i * j->size, *restrict b =
                                                                  j->x +
                                                                  (size_t)j->partner[i] * j->size;
        float *restrict to = j->y + (size_t)i * j->size;
        for (size_t k = 0; !m->cut && k < j->size; k++) {
            to[k] = own * a[k] + other * b[k];
        }
        if (m->cut) {
            memcpy(to, a, j->size * sizeof *to);
        }
        for (int y = m->y0; m->cut && y < m->y1; y++) {
            const size_t at = (size_t)y * j->row + (size_t)m->x0 * j->channels;
            memcpy(to + at, b + at, (size_t)(m->x1 - m->x0) * j->channels * sizeof *to);
        }
    }
}

lvn_status lvni_cpu_mix_images(const lvn_kernel_args *args)
{
    const lvn_tensor *x = args->in[0];
    const size_t channels = (size_t)x->shape[3], row = (size_t)x->shape[2] * channels;
    const mix_job job = {.attr = args->attr,
                         .x = LVNI_CF32(x),
                         .partner = args->in[1]->data,
                         .y = LVNI_F32(args->out[0]),
                         .row = row,
                         .size = (size_t)x->shape[1] * row,
                         .channels = channels};
    for (int64_t i = 0; i < x->shape[0]; i++) {
        LVN_ARG(job.partner[i] >= 0 && job.partner[i] < x->shape[0],
                "mix_images: partner %lld of image %lld is not one of the %lld images",
                (long long)job.partner[i], (long long)i, (long long)x->shape[0]);
    }
    lvni_cpu_par(x->shape[0], 1, (int64_t)job.size, mix_range, &job);
    return LVN_OK;
}
