/* The functions of flat buffers of a backend against their formulas in double precision (check.h):
 * sizes over several blocks and with tails, aligned and not, with a step block that updates, one
 * that does not, and without. */
#include "core/math.h"
#include "kernels/check/flat_job.h"
#include "kernels/flat.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t sizes[] = {1, 3, 17, 4095, 4096, 4097, LVNI_CHECK_MOST};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void to_double(const lvni_check_job *j, const float *x, double *out)
{
    for (int64_t i = 0; i <= j->n; i++) {
        out[i] = (double)x[i];
    }
}

static double clamp(double g, double limit)
{
    return limit > 0.0 ? fmin(fmax(g, -limit), limit) : g;
}

/* ---- sums, averages ---- */

static lvn_status check_add(lvni_check_job *j)
{
    lvni_check_draw(j, 1, j->x[0]);
    lvni_check_draw(j, 2, j->x[1]);
    float *a = lvni_check_put_floats(j, j->x[0], j->n),
          *b = lvni_check_put_floats(j, j->x[1], j->n);
    LVNI_CHECK_NEED(a);
    LVNI_CHECK_NEED(b);
    lvni_kernels_flat_add(a, b, j->n);
    LVN_TRY(lvni_check_get(j, a, j->back));
    for (int64_t i = 0; i < j->n; i++) {
        j->truth[0][i] = (double)(j->x[0][i] + j->x[1][i]); /* rounded once */
    }
    LVN_TRY(lvni_check_expect(j, "a", j->back, j->truth[0], j->n, 0.0));
    LVN_TRY(lvni_check_get(j, b, j->back));
    return lvni_check_expect_same(j, "b", j->back, j->x[1], j->n);
}

static const lvn_step_phase *phase_of(const lvn_step_block *there)
{
    return there == NULL ? NULL : &there->phase[LVNI_CHECK_PHASE]; /* an address, not read */
}

static lvn_status lerp_with(lvni_check_job *j, lvni_check_step_kind kind)
{
    const lvn_step_block *step;
    const float given = 0.001f,
                t = kind == LVNI_CHECK_NO_STEP ? given : (float)lvni_check_step.average.factor;
    lvni_check_draw(j, 1, j->x[0]);
    lvni_check_draw(j, 2, j->x[1]);
    for (int64_t i = 0; i < j->n; i += 3) {
        j->x[1][i] = j->x[0][i];
    }
    float *a = lvni_check_put_floats(j, j->x[0], j->n),
          *b = lvni_check_put_floats(j, j->x[1], j->n);
    LVNI_CHECK_NEED(a);
    LVNI_CHECK_NEED(b);
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    lvni_kernels_flat_lerp(a, b, given, j->n, step == NULL ? NULL : &step->average);
    LVN_TRY(lvni_check_get(j, a, j->back));
    if (kind == LVNI_CHECK_UPDATES_NOT || kind == LVNI_CHECK_COPIES) {
        const bool copies = kind == LVNI_CHECK_COPIES;
        return lvni_check_expect_same(j, copies ? "copy" : "a without an update", j->back,
                                      j->x[copies ? 1 : 0], j->n);
    }
    for (int64_t i = 0; i < j->n; i++) {
        const double from = (double)j->x[0][i], to = (double)j->x[1][i];
        j->truth[0][i] = from + (double)t * (to - from);
        if (i % 3 == 0) { /* where the two are equal */
            LVN_TRY(lvni_check_expect_same(j, "a where b is equal, element", &j->back[i],
                                           &j->x[0][i], 1));
        }
    }
    return lvni_check_expect(j, "a", j->back, j->truth[0], j->n, LVNI_CHECK_CLOSE);
}

static lvn_status check_lerp(lvni_check_job *j)
{
    for (int kind = 0; kind <= LVNI_CHECK_COPIES; kind++) {
        LVN_TRY(lerp_with(j, (lvni_check_step_kind)kind));
        lvni_check_free_rooms(j);
    }
    return LVN_OK;
}

static lvn_status check_block_sumsq(lvni_check_job *j)
{
    double want[LVNI_CHECK_MOST / LVN_FLAT_BLOCK + 1] = {0.0},
                                                   have[LVNI_CHECK_MOST / LVN_FLAT_BLOCK + 1];
    const int64_t blocks = lvni_kernels_flat_blocks(j->n), last = blocks - 1;
    for (int special = 0; special < 3; special++) {
        lvni_check_draw(j, 1, j->x[0]);
        /* its square is too large for f32 */
        j->x[0][j->n - 1] = special == 0 ? 1e30f : special == 1 ? INFINITY : NAN;
        memset(want, 0, sizeof want);
        for (int64_t i = 0; i < j->n; i++) {
            want[i / LVN_FLAT_BLOCK] += (double)j->x[0][i] * (double)j->x[0][i];
        }
        float *g = lvni_check_put_floats(j, j->x[0], j->n);
        double *sums = lvni_check_put(j, NULL, (size_t)blocks * sizeof *sums, 0);
        LVNI_CHECK_NEED(g);
        LVNI_CHECK_NEED(sums);
        lvni_kernels_flat_sums_there(g, j->n, sums);
        LVN_TRY(lvni_check_get(j, sums, have));
        for (int64_t i = 0; i < blocks; i++) {
            const bool good = i == last && special > 0 ? !isfinite(have[i])
                                                       : fabs(have[i] - want[i]) <= 1e-12 * want[i];
            if (!good) {
                return lvni_check_fail_at(j, "block", i, have[i], want[i]);
            }
        }
    }
    return LVN_OK;
}

static lvn_status check_round_bf16(lvni_check_job *j)
{
    lvni_check_draw(j, 1, j->x[0]);
    for (int64_t i = 0; i < j->n; i++) {
        static const float some[] = {0x1.01p0f, 0x1.03p0f, -0x1.01p0f, INFINITY,       -INFINITY,
                                     NAN,       0.0f,      -0.0f,      0x1.fffffep127f};
        if (i % 4 == 1) { /* ties, both ways, and the ends of the numbers */
            j->x[0][i] = some[(size_t)i / 4 % (sizeof some / sizeof *some)];
        }
    }
    float *w = lvni_check_put_floats(j, j->x[0], j->n);
    LVNI_CHECK_NEED(w);
    lvni_kernels_flat_round_bf16(w, j->n);
    LVN_TRY(lvni_check_get(j, w, j->back));
    for (int64_t i = 0; i < j->n; i++) {
        const float want = lvni_core_bf16_to_f32(lvni_core_f32_to_bf16(j->x[0][i]));
        if (j->back[i] != want && !(isnan(want) && isnan(j->back[i]))) {
            return lvni_check_fail_at(j, "element", i, (double)j->back[i], (double)want);
        }
    }
    return LVN_OK;
}

/* ---- optimizers ---- */

/* Two steps, so that what the first leaves is read. */
static void sgd_truth(lvni_check_job *j, const lvn_flat_sgd *given, bool momentum, bool first)
{
    lvn_flat_sgd p = *given;
    (void)lvn_flat_sgd_resolve(&p);
    for (int64_t i = 0; i < j->n; i++) {
        double *w = &j->truth[0][i], *b = &j->truth[1][i];
        double d = clamp((double)j->x[1][i] * p.grad_scale, p.clip_value) + p.weight_decay * *w;
        d *= p.trust != NULL ? *p.trust : 1.0;
        if (momentum) {
            *b = first ? d : p.momentum * *b + (1.0 - p.dampening) * d;
            d = p.nesterov ? d + p.momentum * *b : *b;
        }
        *w -= p.lr * d;
    }
}

static lvn_status sgd_with(lvni_check_job *j, lvn_flat_sgd p, bool momentum,
                           lvni_check_step_kind kind)
{
    const lvn_step_block *step;
    lvni_check_draw(j, 1, j->x[0]);
    lvni_check_draw(j, 2, j->x[1]);
    to_double(j, j->x[0], j->truth[0]);
    float *w = lvni_check_put_floats(j, j->x[0], j->n),
          *g = lvni_check_put_floats(j, j->x[1], j->n),
          *m = lvni_check_put(j, NULL, (size_t)j->n * sizeof *m,
                              j->shift); /* the first step does not read it */
    const double *trust = p.trust,
                 *there = trust == NULL ? NULL : lvni_check_put(j, trust, sizeof *trust, 0);
    LVNI_CHECK_NEED(w);
    LVNI_CHECK_NEED(g);
    LVNI_CHECK_NEED(m);
    LVN_TRY(trust != NULL && there == NULL ? lvn_last_error()->code : LVN_OK);
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    for (int k = 0; k < 2; k++) {
        p.first_step = k == 0;
        p.own_count = k > 0; /* the block has the first step */
        p.step = kind == LVNI_CHECK_NO_STEP ? NULL : &lvni_check_step.phase[LVNI_CHECK_PHASE];
        p.trust = trust;
        if (kind != LVNI_CHECK_UPDATES_NOT) {
            sgd_truth(j, &p, momentum, k == 0);
        }
        p.step = phase_of(step);
        p.trust = there;
        lvni_kernels_flat_sgd(w, g, momentum ? m : NULL, j->n, &p);
    }
    LVN_TRY(lvni_check_get(j, w, j->back));
    if (kind == LVNI_CHECK_UPDATES_NOT) {
        return lvni_check_expect_same(j, "w without an update", j->back, j->x[0], j->n);
    }
    LVN_TRY(lvni_check_expect(j, "w", j->back, j->truth[0], j->n, LVNI_CHECK_CLOSE));
    LVN_TRY(lvni_check_get(j, m, j->back));
    return momentum ? lvni_check_expect(j, "momentum", j->back, j->truth[1], j->n, LVNI_CHECK_CLOSE)
                    : LVN_OK;
}

static lvn_status check_sgd(lvni_check_job *j)
{
    static const double trust = 0.03;
    static const struct {
        lvn_flat_sgd p;
        bool momentum;
    } settings[] = {
        {{.lr = 0.1, .grad_scale = 1}, false},
        {{.lr = 0.1, .weight_decay = 0.01, .grad_scale = 0.125, .clip_value = 0.1}, false},
        {{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4, .grad_scale = 1}, true},
        {{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .grad_scale = 2}, true},
        {{.lr = 0.1, .momentum = 0.9, .grad_scale = 1, .nesterov = true}, true},
        {{.lr = 0.5, .weight_decay = 0.1, .grad_scale = 1, .trust = &trust}, false},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        for (int kind = 0; kind < LVNI_CHECK_STEP_KINDS; kind++) {
            LVN_TRY(sgd_with(j, settings[i].p, settings[i].momentum, (lvni_check_step_kind)kind));
            lvni_check_free_rooms(j);
        }
    }
    return LVN_OK;
}

static void adamw_truth(lvni_check_job *j, const lvn_flat_adamw *given)
{
    lvn_flat_adamw p = *given;
    (void)lvn_flat_adamw_resolve(&p);
    for (int64_t i = 0; i < j->n; i++) {
        double *w = &j->truth[0][i], *m = &j->truth[1][i], *v = &j->truth[2][i];
        double d = clamp((double)j->x[1][i] * p.grad_scale, p.clip_value);
        d += p.decoupled ? 0.0 : p.weight_decay * *w;
        *w -= p.decoupled ? p.lr * p.weight_decay * *w : 0.0;
        *m = p.beta1 * *m + (1.0 - p.beta1) * d;
        *v = p.beta2 * *v + (1.0 - p.beta2) * d * d;
        *w -= p.lr / p.correction1 * *m / (sqrt(*v) / sqrt(p.correction2) + p.eps);
    }
}

static lvn_status adamw_with(lvni_check_job *j, lvn_flat_adamw p, lvni_check_step_kind kind)
{
    const lvn_step_block *step;
    for (int k = 0; k < 4; k++) {
        lvni_check_draw(j, (uint32_t)k, j->x[k]);
        for (int64_t i = 0; k == 3 && i <= j->n; i++) {
            j->x[3][i] = fabsf(j->x[3][i]); /* v */
        }
    }
    to_double(j, j->x[0], j->truth[0]);
    to_double(j, j->x[2], j->truth[1]);
    to_double(j, j->x[3], j->truth[2]);
    float *w = lvni_check_put_floats(j, j->x[0], j->n),
          *g = lvni_check_put_floats(j, j->x[1], j->n),
          *m = lvni_check_put_floats(j, j->x[2], j->n),
          *v = lvni_check_put_floats(j, j->x[3], j->n);
    LVNI_CHECK_NEED(w);
    LVNI_CHECK_NEED(g);
    LVNI_CHECK_NEED(m);
    LVNI_CHECK_NEED(v);
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    p.step = kind == LVNI_CHECK_NO_STEP ? NULL : &lvni_check_step.phase[LVNI_CHECK_PHASE];
    adamw_truth(j, &p);
    p.step = phase_of(step);
    lvni_kernels_flat_adamw(w, g, m, v, j->n, &p);
    LVN_TRY(lvni_check_get(j, w, j->back));
    if (kind == LVNI_CHECK_UPDATES_NOT) {
        LVN_TRY(lvni_check_expect_same(j, "w without an update", j->back, j->x[0], j->n));
        LVN_TRY(lvni_check_get(j, m, j->back));
        LVN_TRY(lvni_check_expect_same(j, "m without an update", j->back, j->x[2], j->n));
        LVN_TRY(lvni_check_get(j, v, j->back));
        return lvni_check_expect_same(j, "v without an update", j->back, j->x[3], j->n);
    }
    LVN_TRY(lvni_check_expect(j, "w", j->back, j->truth[0], j->n, LVNI_CHECK_CLOSE));
    LVN_TRY(lvni_check_get(j, m, j->back));
    LVN_TRY(lvni_check_expect(j, "m", j->back, j->truth[1], j->n, LVNI_CHECK_CLOSE));
    LVN_TRY(lvni_check_get(j, v, j->back));
    return lvni_check_expect(j, "v", j->back, j->truth[2], j->n, LVNI_CHECK_CLOSE);
}

static lvn_status check_adamw(lvni_check_job *j)
{
    const lvn_flat_adamw base = {.lr = 0.01,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1,
                                 .correction1 = 0.19,
                                 .correction2 = 0.001999,
                                 .grad_scale = 1,
                                 .decoupled = true};
    for (int i = 0; i < 4; i++) {
        lvn_flat_adamw p = base;
        p.decoupled = i % 2 == 0;
        p.own_count = i == 1;
        p.clip_value = i > 1 ? 0.2 : 0.0;
        for (int kind = 0; kind < LVNI_CHECK_STEP_KINDS; kind++) {
            LVN_TRY(adamw_with(j, p, (lvni_check_step_kind)kind));
            lvni_check_free_rooms(j);
        }
    }
    return LVN_OK;
}

/* ---- running statistics ---- */

static lvn_status check_record(lvni_check_job *j)
{
    const float weight = 12.0f;
    lvni_check_draw(j, 1, j->x[0]);
    float *value = lvni_check_put_floats(j, j->x[0], j->n),
          *record = lvni_check_put(j, NULL, (size_t)(j->n + 1) * sizeof *record, j->shift);
    LVNI_CHECK_NEED(value);
    LVNI_CHECK_NEED(record);
    lvni_kernels_flat_record(record, value, j->n, weight);
    LVN_TRY(lvni_check_get(j, record, j->back));
    for (int64_t i = 0; i < j->n; i++) {
        j->truth[0][i] = (double)(weight * j->x[0][i]);
    }
    j->truth[0][j->n] = (double)weight;
    return lvni_check_expect(j, "record", j->back, j->truth[0], j->n + 1, 0.0);
}

static lvn_status apply_record_with(lvni_check_job *j, float weight, lvni_check_step_kind kind)
{
    const lvn_step_block *step;
    const float momentum = 0.1f, keep = 0.9f;
    lvni_check_draw(j, 1, j->x[0]);
    lvni_check_draw(j, 2, j->x[1]);
    j->x[1][j->n] = weight;
    float *buffer = lvni_check_put_floats(j, j->x[0], j->n),
          *record = lvni_check_put_floats(j, j->x[1], j->n + 1);
    LVNI_CHECK_NEED(buffer);
    LVNI_CHECK_NEED(record);
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    lvni_kernels_flat_apply_record(buffer, record, j->n, momentum, keep, phase_of(step));
    LVN_TRY(lvni_check_get(j, buffer, j->back));
    if (weight == 0.0f || kind == LVNI_CHECK_UPDATES_NOT) {
        return lvni_check_expect_same(j, "buffer without an update", j->back, j->x[0], j->n);
    }
    for (int64_t i = 0; i < j->n; i++) {
        const double mean = (double)j->x[1][i] / (double)weight;
        j->truth[0][i] = (double)keep * (double)j->x[0][i] + (double)momentum * mean;
    }
    return lvni_check_expect(j, "buffer", j->back, j->truth[0], j->n, LVNI_CHECK_CLOSE);
}

static lvn_status check_apply_record(lvni_check_job *j)
{
    LVN_TRY(apply_record_with(j, 12.0f, LVNI_CHECK_NO_STEP));
    LVN_TRY(apply_record_with(j, 0.0f, LVNI_CHECK_NO_STEP));
    LVN_TRY(apply_record_with(j, 12.0f, LVNI_CHECK_UPDATES));
    return apply_record_with(j, 12.0f, LVNI_CHECK_UPDATES_NOT);
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    lvn_status (*check)(lvni_check_job *j);
} functions[] = {
    {"flat.add", check_add},
    {"flat.lerp", check_lerp},
    {"flat.block_sumsq", check_block_sumsq},
    {"flat.sgd", check_sgd},
    {"flat.trust", lvni_check_trust},
    {"flat.adamw", check_adamw},
    {"flat.round_bf16", check_round_bf16},
    {"flat.record", check_record},
    {"flat.apply_record", check_apply_record},
    {"flat.append", lvni_check_append},
    {"flat.number", lvni_check_number},
    {"flat.seed", lvni_check_seed},
    {"flat.decide", lvni_check_decide},
    {"flat.finish", lvni_check_finish},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };
_Static_assert(sizeof(lvn_backend_flat) == FUNCTIONS * sizeof(void (*)(void)),
               "each function of flat buffers needs a check here");

const char *lvni_check_flat_name(int i)
{
    return i >= 0 && i < FUNCTIONS ? functions[i].name : NULL;
}

static void run_one(int i, lvni_check_job *j, lvni_check_result *out)
{
    const lvn_status s = functions[i].check(j);
    if (s == LVN_OK) {
        out->passed[LVN_F32]++;
        out->worst = fmax(out->worst, j->worst);
    } else if (out->failed++ == 0) {
        snprintf(out->why, sizeof out->why, "%s", lvn_last_error()->message);
    }
    (void)lvni_tensor_device_take_error(); /* of what was submitted after the first failure */
    lvni_check_free_rooms(j);
}

lvn_status lvni_check_flat(int i, lvni_tensor_device *device, lvni_check_result *out)
{
    lvni_check_job j = {.name = functions[i].name, .device = device};
    *out = (lvni_check_result){.failed = 0};
    const lvn_status s = lvni_check_job_make(&j);
    for (int k = 0; k < 2 * SIZES && s == LVN_OK; k++) {
        j.n = sizes[k / 2];
        j.shift = k % 2 == 0 ? 0 : sizeof(float);
        run_one(i, &j, out);
    }
    lvni_check_job_free(&j);
    return s;
}
