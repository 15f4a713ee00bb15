/* The functions of flat buffers of a backend against their formulas in double precision (check.h):
 * sizes over several blocks and with tails, aligned and not, with a step block that updates, one
 * that does not, and without. Sums, averages and running statistics are here, optimizers in
 * check_optim.c, numbers in f64 in check_step.c. */
#include "core/error.h"
#include "core/math.h"
#include "kernels/check/flat_job.h"
#include "kernels/flat.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t sizes[] = {1, 3, 17, 4095, 4096, 4097, LVNI_CHECK_MOST};
enum { SIZES = sizeof sizes / sizeof *sizes };

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
        lvni_kernels_flat_sums_on_device(g, j->n, sums);
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

/* moves: the momentum is a number of the block. */
static lvn_status apply_record_with(lvni_check_job *j, float weight, lvni_check_step_kind kind,
                                    bool moves)
{
    const lvn_step_block *step;
    const double momentum = moves ? lvni_check_step.given.number[1] : 0.1;
    lvni_check_draw(j, 1, j->x[0]);
    lvni_check_draw(j, 2, j->x[1]);
    j->x[1][j->n] = weight;
    float *buffer = lvni_check_put_floats(j, j->x[0], j->n),
          *record = lvni_check_put_floats(j, j->x[1], j->n + 1);
    LVNI_CHECK_NEED(buffer);
    LVNI_CHECK_NEED(record);
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    const lvn_flat_mean p = {.momentum = 0.1,
                             .moved = moves ? &step->given.number[1] : NULL,
                             .step = lvni_check_phase_of(step)};
    lvni_kernels_flat_apply_record(buffer, record, j->n, &p);
    LVN_TRY(lvni_check_get(j, buffer, j->back));
    if (weight == 0.0f || kind == LVNI_CHECK_UPDATES_NOT) {
        return lvni_check_expect_same(j, "buffer without an update", j->back, j->x[0], j->n);
    }
    for (int64_t i = 0; i < j->n; i++) {
        const double mean = (double)j->x[1][i] / (double)weight;
        j->truth[0][i] = (1.0 - momentum) * (double)j->x[0][i] + momentum * mean;
    }
    return lvni_check_expect(j, "buffer", j->back, j->truth[0], j->n, LVNI_CHECK_CLOSE);
}

static lvn_status check_apply_record(lvni_check_job *j)
{
    LVN_TRY(apply_record_with(j, 12.0f, LVNI_CHECK_NO_STEP, false));
    LVN_TRY(apply_record_with(j, 0.0f, LVNI_CHECK_NO_STEP, false));
    LVN_TRY(apply_record_with(j, 12.0f, LVNI_CHECK_UPDATES, false));
    lvni_check_free_rooms(j);
    LVN_TRY(apply_record_with(j, 12.0f, LVNI_CHECK_UPDATES, true));
    return apply_record_with(j, 12.0f, LVNI_CHECK_UPDATES_NOT, true);
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    lvn_status (*check)(lvni_check_job *j);
} functions[] = {
    {"flat.add", check_add},
    {"flat.lerp", check_lerp},
    {"flat.block_sumsq", check_block_sumsq},
    {"flat.sgd", lvni_check_sgd},
    {"flat.trust", lvni_check_trust},
    {"flat.adamw", lvni_check_adamw},
    {"flat.rmsprop", lvni_check_rmsprop},
    {"flat.lion", lvni_check_lion},
    {"flat.lamb_moments", lvni_check_lamb_moments},
    {"flat.lamb", lvni_check_lamb},
    {"flat.adafactor", lvni_check_adafactor},
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
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_check_job_make(&j));
    for (int k = 0; k < 2 * SIZES; k++) {
        j.n = sizes[k / 2];
        j.shift = k % 2 == 0 ? 0 : sizeof(float);
        run_one(i, &j, out);
    }
done:
    lvni_check_job_free(&j);
    return s;
}
