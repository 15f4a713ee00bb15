/* Ops of one shape: one input, or a gradient with the value it belongs to. Called through the op table (kernels.h). */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

enum { GRAIN = 1024 };

typedef struct unary_job {
    void (*fn)(const float *x, float *y, int64_t n, float p0, float p1);
    const float *x;
    float *y;
    float p0, p1;
} unary_job;

static void unary_range(const void *job, int64_t begin, int64_t end)
{
    const unary_job *j = job;
    j->fn(j->x + begin, j->y + begin, end - begin, j->p0, j->p1);
}

static lvn_status unary(const lvni_args *args, lvni_unary_id id, float p0, float p1)
{
    const unary_job job = {.fn = lvni_cpu_isa()->unary[id], .x = LVNI_CF32(args->in[0]), .y = LVNI_F32(args->out[0]),
                           .p0 = p0, .p1 = p1};
    lvni_par(lvn_numel(args->out[0]), GRAIN, 1, unary_range, &job);
    return LVN_OK;
}

typedef struct pair_job {
    void (*fn)(const float *a, const float *b, float *y, int64_t n);
    const float *a, *b;
    float *y;
} pair_job;

static void pair_range(const void *job, int64_t begin, int64_t end)
{
    const pair_job *j = job;
    j->fn(j->a + begin, j->b + begin, j->y + begin, end - begin);
}

static lvn_status pair(const lvni_args *args, lvni_binary_id id)
{
    const pair_job job = {.fn = lvni_cpu_isa()->binary[id][LVNI_VV], .a = LVNI_CF32(args->in[0]),
                          .b = LVNI_CF32(args->in[1]), .y = LVNI_F32(args->out[0])};
    lvni_par(lvn_numel(args->out[0]), GRAIN, 1, pair_range, &job);
    return LVN_OK;
}

lvn_status lvni_cpu_scale(const lvni_args *args)
{
    const lvni_scale_attr *attr = args->attr;
    return unary(args, LVNI_UNARY_SCALE, (float)attr->mul, (float)attr->add);
}

lvn_status lvni_cpu_exp(const lvni_args *args)
{
    return unary(args, LVNI_UNARY_EXP, 0.0f, 0.0f);
}

lvn_status lvni_cpu_log(const lvni_args *args)
{
    return unary(args, LVNI_UNARY_LOG, 0.0f, 0.0f);
}

lvn_status lvni_cpu_square(const lvni_args *args)
{
    return unary(args, LVNI_UNARY_SQUARE, 0.0f, 0.0f);
}

lvn_status lvni_cpu_square_grad(const lvni_args *args)
{
    return pair(args, LVNI_BINARY_SQUARE_GRAD);
}

lvn_status lvni_cpu_sqrt(const lvni_args *args)
{
    return unary(args, LVNI_UNARY_SQRT, 0.0f, 0.0f);
}

lvn_status lvni_cpu_sqrt_grad(const lvni_args *args)
{
    return pair(args, LVNI_BINARY_SQRT_GRAD);
}

lvn_status lvni_cpu_relu(const lvni_args *args)
{
    return unary(args, LVNI_UNARY_RELU, 0.0f, 0.0f);
}

lvn_status lvni_cpu_relu_grad(const lvni_args *args)
{
    return pair(args, LVNI_BINARY_RELU_GRAD);
}
