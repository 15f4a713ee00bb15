/* Layer norm over rows. Called through the op table. A row is one piece of work; what gamma and
 * beta get is summed over blocks of rows of a fixed size, joined in f64: the team decides
 * nothing. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/cpu/scratch.h"
#include "kernels/kernels_decl.h"
#include "tensor/device.h"

/* Rows behind one partial sum of dgamma and dbeta: fewer than LVNI_ROW_BLOCK, since a language
 * model has few rows and many columns. Fixed: results depend on it. */
enum { BLOCK = 32 };

typedef struct layer_job {
    int64_t rows, n;
    lvni_cpu_elem elem;
    size_t size; /* of an element */
    lvni_cpu_layer_rows forward;
    lvni_cpu_layer_grad gradient; /* s1, s2: (blocks, n) */
} layer_job;

static layer_job describe(const lvn_tensor *x, int axes)
{
    layer_job job = {
        .rows = 1, .n = 1, .elem = lvni_cpu_elem_of(x->dtype), .size = lvn_dtype_size(x->dtype)};
    for (int i = 0; i < x->ndim; i++) {
        *(i < x->ndim - axes ? &job.rows : &job.n) *= x->shape[i];
    }
    return job;
}

/* The values of t, or n times `value` at `memory`. */
static const float *given_or(const lvn_tensor *t, float value, int64_t n, float *memory)
{
    if (t != NULL) {
        return LVNI_CF32(t);
    }
    for (int64_t i = 0; i < n; i++) {
        memory[i] = value;
    }
    return memory;
}

static void forward_range(const void *job, int64_t begin, int64_t end)
{
    const layer_job *j = job;
    lvni_cpu_layer_rows part = j->forward;
    part.x = lvni_cpu_elem_at(part.x, begin * j->n, j->size);
    part.y = lvni_cpu_elem_to(part.y, begin * j->n, j->size);
    part.mean += begin;
    part.rstd += begin;
    lvni_cpu_isa()->layer_norm[j->elem](&part, end - begin, j->n);
}

lvn_status lvni_cpu_layer_norm(const lvn_kernel_args *args)
{
    const lvn_layer_norm_attr *attr = args->attr;
    layer_job job = describe(args->in[0], attr->axes);
    float *memory = lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)(2 * job.n) * sizeof *memory);
    if (memory == NULL || lvni_tensor_device_dry_run()) {
        return memory == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    job.forward = (lvni_cpu_layer_rows){.x = args->in[0]->data,
                                        .gamma = given_or(args->in[1], 1.0f, job.n, memory),
                                        .beta = given_or(args->in[2], 0.0f, job.n, memory + job.n),
                                        .y = args->out[0]->data,
                                        .mean = LVNI_F32(args->out[1]),
                                        .rstd = LVNI_F32(args->out[2]),
                                        .eps = attr->eps};
    lvni_cpu_par(job.rows, 1, job.n * 2, forward_range, &job);
    return LVN_OK;
}

static void gradient_range(const void *job, int64_t begin, int64_t end)
{
    const layer_job *j = job;
    for (int64_t b = begin; b < end; b++) {
        const int64_t first = b * BLOCK, left = j->rows - first;
        lvni_cpu_layer_grad part = j->gradient;
        part.dy = lvni_cpu_elem_at(part.dy, first * j->n, j->size);
        part.x = lvni_cpu_elem_at(part.x, first * j->n, j->size);
        part.mean += first;
        part.rstd += first;
        part.dx = lvni_cpu_elem_to(part.dx, first * j->n, j->size);
        part.s1 += b * j->n;
        part.s2 += b * j->n;
        lvni_cpu_isa()->layer_norm_grad[j->elem](&part, left < BLOCK ? left : BLOCK, j->n);
    }
}

lvn_status lvni_cpu_layer_norm_grad(const lvn_kernel_args *args)
{
    const lvn_layer_norm_attr *attr = args->attr;
    layer_job job = describe(args->in[1], attr->axes);
    const int64_t blocks = lvni_cpu_div_up(job.rows, BLOCK);
    float *memory =
        lvni_cpu_scratch(LVNI_SCRATCH_OWN, (size_t)((2 * blocks + 1) * job.n) * sizeof *memory);
    if (memory == NULL || lvni_tensor_device_dry_run()) {
        return memory == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    float *s1 = memory + job.n, *s2 = s1 + blocks * job.n;
    job.gradient = (lvni_cpu_layer_grad){.dy = args->in[0]->data,
                                         .x = args->in[1]->data,
                                         .mean = LVNI_CF32(args->in[2]),
                                         .rstd = LVNI_CF32(args->in[3]),
                                         .gamma = given_or(args->in[4], 1.0f, job.n, memory),
                                         .dx = args->out[0]->data,
                                         .s1 = s1,
                                         .s2 = s2};
    lvni_cpu_par(blocks, 1, BLOCK * job.n * 2, gradient_range, &job);
    if (args->out[1] != NULL) {
        lvni_cpu_isa()->combine(s2, blocks, job.n, 1.0, LVNI_F32(args->out[1]));
    }
    if (args->out[2] != NULL) {
        lvni_cpu_isa()->combine(s1, blocks, job.n, 1.0, LVNI_F32(args->out[2]));
    }
    return LVN_OK;
}
