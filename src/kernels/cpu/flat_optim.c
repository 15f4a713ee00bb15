/* The cpu backend's steps of RMSprop, Lion and LAMB over flat buffers (levin/backend.h), spread
 * over the team; those of SGD and Adam are in flat.c. */
#include "kernels/flat.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

typedef struct optim_job {
    float *w, *m, *v, *momentum;
    const float *g, *of; /* what is only read */
    double *sums;
    int64_t n;
    const void *params;
} optim_job;

static float *from(float *p, int64_t begin)
{
    return p == NULL ? NULL : p + begin;
}

static void rmsprop_range(const void *job, int64_t begin, int64_t end)
{
    const optim_job *j = job;
    lvni_cpu_isa()->rmsprop(j->w + begin, j->g + begin, j->v + begin, from(j->m, begin),
                            from(j->momentum, begin), end - begin, j->params);
}

lvn_status lvni_cpu_flat_rmsprop(void *stream, float *w, const float *g, float *v, float *mean,
                                 float *momentum, int64_t n, const lvn_flat_rmsprop *p)
{
    lvn_flat_rmsprop q = *p;
    (void)stream;
    if (lvn_flat_rmsprop_resolve(&q)) {
        const optim_job job = {
            .w = w, .g = g, .m = mean, .v = v, .momentum = momentum, .params = &q};
        lvni_cpu_par(n, LVNI_FLAT_BLOCK, 1, rmsprop_range, &job);
    }
    return LVN_OK;
}

static void lion_range(const void *job, int64_t begin, int64_t end)
{
    const optim_job *j = job;
    lvni_cpu_isa()->lion(j->w + begin, j->g + begin, j->m + begin, end - begin, j->params);
}

lvn_status lvni_cpu_flat_lion(void *stream, float *w, const float *g, float *m, int64_t n,
                              const lvn_flat_lion *p)
{
    lvn_flat_lion q = *p;
    (void)stream;
    if (lvn_flat_lion_resolve(&q)) {
        const optim_job job = {.w = w, .g = g, .m = m, .params = &q};
        lvni_cpu_par(n, LVNI_FLAT_BLOCK, 1, lion_range, &job);
    }
    return LVN_OK;
}

static void lamb_blocks(const void *job, int64_t begin, int64_t end)
{
    const optim_job *j = job;
    for (int64_t b = begin; b < end; b++) {
        const int64_t at = b * LVNI_FLAT_BLOCK, left = j->n - at;
        lvni_cpu_isa()->lamb_moments(j->of + at, j->g + at, j->m + at, j->v + at,
                                     left < LVNI_FLAT_BLOCK ? left : LVNI_FLAT_BLOCK,
                                     j->sums == NULL ? NULL : j->sums + b, j->params);
    }
}

lvn_status lvni_cpu_flat_lamb_moments(void *stream, const float *w, const float *g, float *m,
                                      float *v, int64_t n, double *sums, const lvn_flat_lamb *p)
{
    lvn_flat_lamb q = *p;
    (void)stream;
    if (lvn_flat_lamb_resolve(&q)) {
        const optim_job job = {.of = w, .g = g, .m = m, .v = v, .sums = sums, .n = n, .params = &q};
        lvni_cpu_par(lvni_kernels_flat_blocks(n), 1, LVNI_FLAT_BLOCK, lamb_blocks, &job);
    }
    return LVN_OK;
}

static void lamb_range(const void *job, int64_t begin, int64_t end)
{
    const optim_job *j = job;
    lvni_cpu_isa()->lamb(j->w + begin, j->of + begin, j->g + begin, end - begin, j->params);
}

lvn_status lvni_cpu_flat_lamb(void *stream, float *w, const float *m, const float *v, int64_t n,
                              const lvn_flat_lamb *p)
{
    lvn_flat_lamb q = *p;
    (void)stream;
    if (lvn_flat_lamb_resolve(&q)) {
        const optim_job job = {.w = w, .of = m, .g = v, .params = &q};
        lvni_cpu_par(n, LVNI_FLAT_BLOCK, 1, lamb_range, &job);
    }
    return LVN_OK;
}
