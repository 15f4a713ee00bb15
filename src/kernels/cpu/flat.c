/* Kernels over flat parameter buffers (kernels/flat.h), spread over the team; for buffers of a
 * device, by its thread. */
#include "kernels/flat.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "tensor/device.h"

#include <stdalign.h>
#include <string.h>

typedef struct flat_job {
    float *w, *m, *v;
    const float *g;
    double *partial;
    int64_t n;
    const void *params;
    float s;
} flat_job;

/* ---- buffers of a device ---- */

typedef struct flat_command {
    flat_job job;
    lvni_cpu_range_fn fn;
    int64_t n, grain, work;
    alignas(16) unsigned char params[256];
} flat_command;

static lvn_status run_command(void *payload)
{
    flat_command *c = payload;
    c->job.params = c->params;
    lvni_cpu_par(c->n, c->grain, c->work, c->fn, &c->job);
    return LVN_OK;
}

/* lvni_cpu_par here, or on the device where the job's buffers lie; partial sums are for the host,
 * which waits for them. */
static void run(int64_t n, int64_t grain, int64_t work, lvni_cpu_range_fn fn, const flat_job *job,
                size_t params_bytes)
{
    lvni_tensor_device *device = lvni_tensor_device_of(job->w != NULL ? job->w : job->g);
    if (device == NULL) {
        lvni_cpu_par(n, grain, work, fn, job);
        return;
    }
    flat_command c = {.job = *job, .fn = fn, .n = n, .grain = grain, .work = work};
    c.job.w = lvni_tensor_device_alias(job->w);
    c.job.m = lvni_tensor_device_alias(job->m);
    c.job.v = lvni_tensor_device_alias(job->v);
    c.job.g = lvni_tensor_device_alias(job->g);
    memcpy(c.params, params_bytes > 0 ? job->params : "", params_bytes);
    lvni_tensor_device_submit(device, "flat buffers", run_command, &c, sizeof c);
    if (job->partial != NULL) {
        lvni_tensor_device_sync();
    }
}

static void add_range(const void *job, int64_t begin, int64_t end)
{
    const flat_job *j = job;
    lvni_cpu_isa()->accumulate(j->w + begin, j->g + begin, end - begin);
}

void lvni_kernels_flat_add(float *a, const float *b, int64_t n)
{
    const flat_job job = {.w = a, .g = b};
    run(n, LVNI_FLAT_BLOCK, 1, add_range, &job, 0);
}

static void lerp_range(const void *job, int64_t begin, int64_t end)
{
    const flat_job *j = job;
    lvni_cpu_isa()->lerp(j->w + begin, j->g + begin, j->s, end - begin);
}

void lvni_kernels_flat_lerp(float *a, const float *b, float t, int64_t n)
{
    const flat_job job = {.w = a, .g = b, .s = t};
    run(n, LVNI_FLAT_BLOCK, 1, lerp_range, &job, 0);
}

static void sumsq_range(const void *job, int64_t begin, int64_t end)
{
    const flat_job *j = job;
    for (int64_t b = begin; b < end; b++) {
        const int64_t at = b * LVNI_FLAT_BLOCK, left = j->n - at;
        lvni_cpu_isa()->block_sumsq(j->g + at, left < LVNI_FLAT_BLOCK ? left : LVNI_FLAT_BLOCK,
                                    j->partial + b);
    }
}

void lvni_kernels_flat_block_sumsq(const float *g, int64_t n, double *partial)
{
    const flat_job job = {.g = g, .partial = partial, .n = n};
    run(lvni_kernels_flat_blocks(n), 1, LVNI_FLAT_BLOCK, sumsq_range, &job, 0);
}

double lvni_kernels_flat_sum_tree(double *partial, int64_t blocks)
{
    for (int64_t apart = 1; apart < blocks; apart *= 2) {
        for (int64_t i = 0; i + apart < blocks; i += 2 * apart) {
            partial[i] += partial[i + apart];
        }
    }
    return blocks > 0 ? partial[0] : 0.0;
}

static void sgd_range(const void *job, int64_t begin, int64_t end)
{
    const flat_job *j = job;
    lvni_cpu_isa()->sgd(j->w + begin, j->g + begin, j->m == NULL ? NULL : j->m + begin, end - begin,
                        j->params);
}

void lvni_kernels_flat_sgd(float *w, const float *g, float *momentum_buffer, int64_t n,
                           const lvni_kernels_flat_sgd_params *p)
{
    const flat_job job = {.w = w, .g = g, .m = momentum_buffer, .params = p};
    run(n, LVNI_FLAT_BLOCK, 1, sgd_range, &job, sizeof *p);
}

static void adamw_range(const void *job, int64_t begin, int64_t end)
{
    const flat_job *j = job;
    lvni_cpu_isa()->adamw(j->w + begin, j->g + begin, j->m + begin, j->v + begin, end - begin,
                          j->params);
}

void lvni_kernels_flat_adamw(float *w, const float *g, float *m, float *v, int64_t n,
                             const lvni_kernels_flat_adamw_params *p)
{
    const flat_job job = {.w = w, .g = g, .m = m, .v = v, .params = p};
    run(n, LVNI_FLAT_BLOCK, 1, adamw_range, &job, sizeof *p);
}

static void round_range(const void *job, int64_t begin, int64_t end)
{
    const flat_job *j = job;
    const lvni_cpu_vec *vec = lvni_cpu_isa();
    uint16_t low[LVNI_FLAT_BLOCK];
    for (int64_t i = begin; i < end; i += LVNI_FLAT_BLOCK) {
        const int64_t n = end - i < LVNI_FLAT_BLOCK ? end - i : LVNI_FLAT_BLOCK;
        vec->to_bf16(j->w + i, low, n);
        vec->from_bf16(low, j->w + i, n);
    }
}

void lvni_kernels_flat_round_bf16(float *w, int64_t n)
{
    const flat_job job = {.w = w};
    run(n, LVNI_FLAT_BLOCK, 1, round_range, &job, 0);
}

typedef struct team_job {
    void (*work)(void *user);
    void *user;
} team_job;

static void team_member(const void *job, int64_t begin, int64_t end)
{
    (void)begin;
    /* several members' shares where the team is smaller than asked for: the work itself knows when
     * it is done */
    (void)end;
    const team_job *j = job;
    j->work(j->user);
}

void lvni_kernels_flat_team(void (*work)(void *user), void *user)
{
    static const int64_t LARGE = 1 << 20;
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const team_job job = {.work = work, .user = user};
    lvni_cpu_par(ctx == NULL ? 1 : ctx->team, 1, LARGE, team_member, &job);
}
