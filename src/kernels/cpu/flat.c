/* The cpu backend's kernels over flat buffers (levin/backend.h), spread over the team. */
#include "kernels/flat.h"

#include "core/math.h"

#include "kernels/cpu/isa.h"
#include "kernels/cpu/par.h"
#include "kernels/kernels_decl.h"

#include <string.h>

typedef struct flat_job {
    float *w, *m, *v;
    const float *g;
    double *partial;
    int64_t n;
    const void *params;
    float s;
} flat_job;

static void add_range(const void *job, int64_t begin, int64_t end)
{
    const flat_job *j = job;
    lvni_cpu_isa()->accumulate(j->w + begin, j->g + begin, end - begin);
}

lvn_status lvni_cpu_flat_add(void *stream, float *a, const float *b, int64_t n)
{
    const flat_job job = {.w = a, .g = b};
    (void)stream;
    lvni_cpu_par(n, LVNI_FLAT_BLOCK, 1, add_range, &job);
    return LVN_OK;
}

static void lerp_range(const void *job, int64_t begin, int64_t end)
{
    const flat_job *j = job;
    lvni_cpu_isa()->lerp(j->w + begin, j->g + begin, j->s, end - begin);
}

static void copy_range(const void *job, int64_t begin, int64_t end)
{
    const flat_job *j = job;
    memcpy(j->w + begin, j->g + begin, (size_t)(end - begin) * sizeof *j->w);
}

lvn_status lvni_cpu_flat_lerp(void *stream, float *a, const float *b, float t, int64_t n,
                              const lvn_step_average *step)
{
    const flat_job job = {.w = a, .g = b, .s = step == NULL ? t : (float)step->factor};
    (void)stream;
    if (step == NULL || step->updated) {
        lvni_cpu_par(n, LVNI_FLAT_BLOCK, 1, step != NULL && step->copies ? copy_range : lerp_range,
                     &job);
    }
    return LVN_OK;
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

lvn_status lvni_cpu_flat_block_sumsq(void *stream, const float *g, int64_t n, double *partial)
{
    const flat_job job = {.g = g, .partial = partial, .n = n};
    (void)stream;
    lvni_cpu_par(lvni_kernels_flat_blocks(n), 1, LVNI_FLAT_BLOCK, sumsq_range, &job);
    return LVN_OK;
}

static void sgd_range(const void *job, int64_t begin, int64_t end)
{
    const flat_job *j = job;
    lvni_cpu_isa()->sgd(j->w + begin, j->g + begin, j->m == NULL ? NULL : j->m + begin, end - begin,
                        j->params);
}

lvn_status lvni_cpu_flat_sgd(void *stream, float *w, const float *g, float *momentum_buffer,
                             int64_t n, const lvn_flat_sgd *p)
{
    lvn_flat_sgd q = *p;
    if (!lvn_flat_sgd_resolve(&q)) {
        return LVN_OK;
    }
    const flat_job job = {.w = w, .g = g, .m = momentum_buffer, .params = &q};
    (void)stream;
    lvni_cpu_par(n, LVNI_FLAT_BLOCK, 1, sgd_range, &job);
    return LVN_OK;
}

static void adamw_range(const void *job, int64_t begin, int64_t end)
{
    const flat_job *j = job;
    lvni_cpu_isa()->adamw(j->w + begin, j->g + begin, j->m + begin, j->v + begin, end - begin,
                          j->params);
}

lvn_status lvni_cpu_flat_adamw(void *stream, float *w, const float *g, float *m, float *v,
                               int64_t n, const lvn_flat_adamw *p)
{
    lvn_flat_adamw q = *p;
    if (!lvn_flat_adamw_resolve(&q)) {
        return LVN_OK;
    }
    const flat_job job = {.w = w, .g = g, .m = m, .v = v, .params = &q};
    (void)stream;
    lvni_cpu_par(n, LVNI_FLAT_BLOCK, 1, adamw_range, &job);
    return LVN_OK;
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

lvn_status lvni_cpu_flat_round_bf16(void *stream, float *w, int64_t n)
{
    const flat_job job = {.w = w};
    (void)stream;
    lvni_cpu_par(n, LVNI_FLAT_BLOCK, 1, round_range, &job);
    return LVN_OK;
}

/* Statistics have as many values as an image has channels: no work for a team. */
lvn_status lvni_cpu_flat_record(void *stream, float *record, const float *value, int64_t n,
                                float weight)
{
    (void)stream;
    for (int64_t i = 0; i < n; i++) {
        record[i] = weight * value[i];
    }
    record[n] = weight;
    return LVN_OK;
}

lvn_status lvni_cpu_flat_apply_record(void *stream, float *buffer, const float *record, int64_t n,
                                      const lvn_flat_mean *p)
{
    lvn_flat_mean q = *p;
    (void)stream;
    const float weight = lvn_flat_mean_resolve(&q) ? record[n] : 0.0f;
    const float momentum = (float)q.momentum, keep = (float)(1.0 - q.momentum);
    for (int64_t i = 0; i < n && weight > 0.0f; i++) { /* else no micro-batch pushed anything */
        buffer[i] = keep * buffer[i] + momentum * (record[i] / weight);
    }
    return LVN_OK;
}

lvn_status lvni_cpu_flat_append(void *stream, float *queue, float *filled, float *next,
                                const float *record, const lvn_flat_append *p)
{
    const float *count = record + p->slots * p->slot_rows * p->width + 1;
    int64_t at = *next >= 0.0f && *next < (float)p->rows ? (int64_t)*next : 0; /* of a file */
    (void)stream;
    for (int64_t i = 0; i < p->slots && (p->step == NULL || p->step->updated); i++) {
        const float *row = record + i * p->slot_rows * p->width;
        for (int64_t k = 0; k < p->slot_rows && (float)k < count[i]; k++, row += p->width) {
            memcpy(queue + at * p->width, row, (size_t)p->width * sizeof *row);
            filled[at] = 1.0f;
            at = (at + 1) % p->rows;
        }
    }
    *next = (float)at;
    return LVN_OK;
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

lvn_status lvni_cpu_flat_trust(void *stream, double *trust, double *of_w, double *of_g, int64_t n,
                               const lvn_flat_trust *p)
{
    (void)stream;
    *trust = lvn_flat_trust_ratio(lvni_core_sqrt(lvni_kernels_flat_sum_tree(of_w, n)),
                                  lvni_core_sqrt(lvni_kernels_flat_sum_tree(of_g, n)), p);
    return LVN_OK;
}

/* ---- the step block ---- */

lvn_status lvni_cpu_flat_number(void *stream, double *slot, const void *value, lvn_dtype dtype)
{
    (void)stream;
    *slot = lvni_tensor_number_at(value, dtype);
    return LVN_OK;
}

lvn_status lvni_cpu_flat_seed(void *stream, void *value, lvn_dtype dtype, double number,
                              const double *weight, const double *factor)
{
    (void)stream;
    number *= weight != NULL ? *weight : 1.0;
    lvni_tensor_number_set(value, dtype, number * (factor != NULL ? *factor : 1.0));
    return LVN_OK;
}

lvn_status lvni_cpu_flat_decide(void *stream, lvn_step_block *block, double *sums, int64_t n,
                                const double *losses, const lvn_step_decision *decision)
{
    const double t = lvn_step_t(block, decision->phase),
                 root = lvni_core_sqrt(lvni_kernels_flat_sum_tree(sums, n));
    (void)stream;
    lvn_step_decide(block, root, lvni_core_pow(lvn_step_beta1(block, decision), t),
                    lvni_core_pow(decision->beta2, t), losses, decision);
    return LVN_OK;
}

lvn_status lvni_cpu_flat_finish(void *stream, lvn_step_block *block)
{
    (void)stream;
    lvn_step_finish(block);
    return LVN_OK;
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
