/* Steps of two phases: against the same arithmetic in double precision, whose gradients are
 * differences; which samples, random numbers, buffers and metrics a phase has; overflows, failures
 * and mistakes. */
#include "duel_support.h"

#include "sim_support.h"

#include "core/alloc.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "tensor/device.h"
#include "trainer/memory.h"
#include "trainer/phases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    N = 25,
    E = 10,
    MICRO_BATCHES = 3,
    G_NUMBERS = FEATURES * NOISE + FEATURES,
    D_NUMBERS = HIDDEN * FEATURES + 2 * HIDDEN
};

static char out[] = "/tmp/levin-phases-XXXXXX";

static setting settings(void)
{
    return (setting){.cls = &duel_class,
                     .batch_size = E,
                     .micro_batches = MICRO_BATCHES,
                     .lanes = 1,
                     .optim = {.lr = 0.05}};
}

/* ---- the reference ---- */

typedef struct truth {
    double g[G_NUMBERS], d[D_NUMBERS]; /* weight, bias; weight, bias, out */
    double seen[FEATURES];
} truth;

/* One sample of a step, and its random numbers in either phase. */
typedef struct point {
    double x[FEATURES], z[2][NOISE], alpha;
} point;

static void make_fake(const double *g, const double z[NOISE], double x[FEATURES])
{
    for (int i = 0; i < FEATURES; i++) {
        x[i] = g[FEATURES * NOISE + i];
        for (int k = 0; k < NOISE; k++) {
            x[i] += g[i * NOISE + k] * z[k];
        }
    }
}

/* The critic's score of x; slope (unless NULL): its gradient with respect to x. */
static double score(const double *d, const double x[FEATURES], double slope[FEATURES])
{
    double sum = 0.0;
    for (int i = 0; slope != NULL && i < FEATURES; i++) {
        slope[i] = 0.0;
    }
    for (int j = 0; j < HIDDEN; j++) {
        double h = d[HIDDEN * FEATURES + j];
        for (int i = 0; i < FEATURES; i++) {
            h += d[j * FEATURES + i] * x[i];
        }
        sum += d[HIDDEN * FEATURES + HIDDEN + j] * h * h;
        for (int i = 0; slope != NULL && i < FEATURES; i++) {
            slope[i] += 2.0 * d[HIDDEN * FEATURES + HIDDEN + j] * h * d[j * FEATURES + i];
        }
    }
    return sum;
}

static double loss_of(const truth *t, const point *p, int n, int phase)
{
    double sum = 0.0;
    for (int s = 0; s < n; s++) {
        double fake[FEATURES], u[FEATURES], slope[FEATURES], norm = 0.0;
        make_fake(t->g, p[s].z[phase], fake);
        if (phase == 1) {
            sum -= score(t->d, fake, NULL);
            continue;
        }
        for (int i = 0; i < FEATURES; i++) {
            u[i] = p[s].x[i] + p[s].alpha * (fake[i] - p[s].x[i]);
        }
        score(t->d, u, slope);
        for (int i = 0; i < FEATURES; i++) {
            norm += slope[i] * slope[i];
        }
        sum += score(t->d, fake, NULL) - score(t->d, p[s].x, NULL) +
               (sqrt(norm) - 1.0) * (sqrt(norm) - 1.0);
    }
    return sum / n;
}

/* Plain descent of one phase's numbers; returns the gradient's norm. */
static double descend(truth *t, const point *p, int n, int phase, double lr)
{
    double *x = phase == 0 ? t->d : t->g, gradient[D_NUMBERS + G_NUMBERS], norm = 0.0;
    const int numbers = phase == 0 ? D_NUMBERS : G_NUMBERS;
    for (int k = 0; k < numbers; k++) {
        const double at = x[k], h = 1e-5;
        x[k] = at + h;
        const double above = loss_of(t, p, n, phase);
        x[k] = at - h;
        gradient[k] = (above - loss_of(t, p, n, phase)) / (2.0 * h);
        x[k] = at;
        norm += gradient[k] * gradient[k];
    }
    for (int k = 0; k < numbers; k++) {
        x[k] -= lr * gradient[k];
    }
    return sqrt(norm);
}

/* A named draw of the root module by the rule of core/rng.h. */
static lvni_core_rng draw(const char *name, int64_t step, int micro_batch, int phase, int call)
{
    const uint64_t purpose =
        lvni_core_rng_purpose("") + 0x9e3779b97f4a7c15u * lvni_core_rng_purpose(name);
    return (lvni_core_rng){.key = lvni_core_rng_make_key(4, purpose),
                           .a = (uint32_t)step,
                           .b = (uint32_t)micro_batch,
                           .c = (uint32_t)((phase << 24) + call)};
}

/* The samples of the step that was just done, as the module saw them. */
static int points_of(const lvni_plan *plan, int64_t step, point p[E])
{
    int n = 0;
    for (int micro_batch = 0; micro_batch < MICRO_BATCHES; micro_batch++) {
        const int64_t size =
            lvni_plan_micro_batch(plan, step % plan->steps_per_epoch, micro_batch).count;
        for (int64_t i = 0; i < size; i++, n++) {
            memory_features(duel_seen.sample[0][n], p[n].x);
            for (int phase = 0; phase < 2; phase++) {
                const lvni_core_rng z = draw("z", step, micro_batch, phase, 0);
                for (int k = 0; k < NOISE; k++) {
                    p[n].z[phase][k] =
                        (double)(float)lvni_core_rng_normal(&z, (uint64_t)(i * NOISE + k));
                }
            }
            const lvni_core_rng alpha = draw("alpha", step, micro_batch, 0, 1);
            p[n].alpha = (double)lvni_core_rng_uniform(&alpha, (uint64_t)i);
        }
    }
    return n;
}

static const float *values_of(const bench *b, const char *name)
{
    for (int i = 0; i < b->model->n_parameters; i++) {
        if (strcmp(b->model->parameters[i].name, name) == 0) {
            return LVNI_CF32(b->model->parameters[i].tensor);
        }
    }
    for (int i = 0; i < b->model->n_buffers; i++) {
        if (strcmp(b->model->buffers[i]->name, name) == 0) {
            return LVNI_CF32(b->model->buffers[i]->tensor);
        }
    }
    fail_msg("there is no %s", name);
    return NULL;
}

static void copy(const bench *b, const char *name, double *to, int n)
{
    const float *from = values_of(b, name);
    for (int i = 0; i < n && from != NULL; i++) {
        to[i] = (double)from[i];
    }
}

static void read_truth(const bench *b, truth *t)
{
    copy(b, "generator.out.weight", t->g, FEATURES * NOISE);
    copy(b, "generator.out.bias", t->g + FEATURES * NOISE, FEATURES);
    copy(b, "critic.hidden.weight", t->d, HIDDEN * FEATURES);
    copy(b, "critic.hidden.bias", t->d + HIDDEN * FEATURES, HIDDEN);
    copy(b, "critic.out.weight", t->d + HIDDEN * FEATURES + HIDDEN, HIDDEN);
    copy(b, "generator.seen", t->seen, FEATURES);
}

static void assert_close(const char *what, double have, double want)
{
    if (!(fabs(have - want) <= 2e-5 * (1.0 + fabs(want)))) {
        fail_msg("%s: %.9g, expected %.9g", what, have, want);
    }
}

static void follow_step(truth *t, const bench *b, int64_t step, const lvni_trainer_step_result *r,
                        double lr)
{
    point p[E];
    double loss[2] = {0}, norm[2] = {0};
    const int n = points_of(&b->trainer->o.plan, step, p);
    for (int phase = 0; phase < 2; phase++) {
        if (phase == 1) {
            /* the generator's own mean moves, the one of the critic's phase does not */
            for (int i = 0; i < FEATURES; i++) {
                double mean = 0.0, x[FEATURES];
                for (int s = 0; s < n; s++) {
                    make_fake(t->g, p[s].z[1], x);
                    mean += x[i] / n;
                }
                t->seen[i] = 0.9 * t->seen[i] + 0.1 * mean;
            }
        }
        loss[phase] = loss_of(t, p, n, phase);
        norm[phase] = descend(t, p, n, phase, lr);
        assert_close("gradient's norm", r->phase[phase].grad_norm, norm[phase]);
    }
    assert_int_equal(r->samples, n);
    assert_close("d_loss", lvni_trainer_metric_mean(&r->metrics, "d_loss"), loss[0]);
    assert_close("g_loss", lvni_trainer_metric_mean(&r->metrics, "g_loss"), loss[1]);
    assert_close("loss", lvni_trainer_metric_mean(&r->metrics, "loss"), 0.5 * (loss[0] + loss[1]));
}

/* Two epochs, each with a short last step. */
TEST(phases_follow_each_other)
{
    memory data;
    bench b;
    truth want, have;
    const setting s = settings();
    memory_init(&data, N, 0);
    bench_open(&b, &data, &s);
    read_truth(&b, &want);
    double every = 0.0;
    for (int64_t step = 0; step < 6; step++) {
        lvni_trainer_step_result r;
        duel_seen = (duel_samples){.on = true};
        if (lvni_trainer_step(b.trainer, &r) != LVN_OK) {
            fail_msg("%s", lvn_last_error()->message);
        }
        b.trainer->at.step_in_epoch %= b.trainer->o.plan.steps_per_epoch;
        assert_int_equal(duel_seen.n[0], step % 3 == 2 ? 5 : E);
        assert_int_equal(duel_seen.n[1], duel_seen.n[0]);
        /* the critic on all micro-batches, then the generator */
        assert_string_equal(duel_seen.order, "000111");
        assert_memory_equal(duel_seen.sample[0], duel_seen.sample[1],
                            (size_t)duel_seen.n[0] * sizeof(int64_t));
        follow_step(&want, &b, step, &r, 0.05);
        read_truth(&b, &have);
        for (int i = 0; i < D_NUMBERS; i++) {
            assert_close("critic", have.d[i], want.d[i]);
        }
        for (int i = 0; i < G_NUMBERS; i++) {
            assert_close("generator", have.g[i], want.g[i]);
        }
        for (int i = 0; i < FEATURES; i++) {
            assert_close("buffer", have.seen[i], want.seen[i]);
        }
        /* no phase names it: it moves in each */
        every = 0.5 * (0.5 * every + 0.5 * 1.0) + 0.5 * 2.0;
        const float *moved = values_of(&b, "every");
        assert_close("every", moved == NULL ? (double)NAN : (double)*moved, every);
        assert_int_equal(b.trainer->at.step, step + 1);
        assert_int_equal(b.trainer->at.samples_seen,
                         step / 3 * N + (step % 3 == 2 ? N : (step % 3 + 1) * E));
    }
    assert_true(b.trainer->engine->optim->steps[0] == 6 && b.trainer->engine->optim->steps[1] == 6);
    duel_seen.on = false;
    bench_close(&b);
}

/* ---- clipping, averages, overflow ---- */

TEST(every_phase_is_cut_to_length)
{
    memory data;
    bench b;
    truth before, after;
    setting s = settings();
    s.clip = 1e-3;
    memory_init(&data, N, 0);
    bench_open(&b, &data, &s);
    read_truth(&b, &before);
    lvni_trainer_step_result r;
    assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
    read_truth(&b, &after);
    double moved[2] = {0};
    for (int i = 0; i < D_NUMBERS; i++) {
        moved[0] += (after.d[i] - before.d[i]) * (after.d[i] - before.d[i]);
    }
    for (int i = 0; i < G_NUMBERS; i++) {
        moved[1] += (after.g[i] - before.g[i]) * (after.g[i] - before.g[i]);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(r.phase[i].clipped && r.phase[i].grad_norm > 1e-2);
        assert_true(fabs(sqrt(moved[i]) - 0.05 * 1e-3) < 1e-6);
    }
    bench_close(&b);
}

/* A rate, a schedule and a largest norm of their own; and the generator in every third step. */
TEST(phases_have_settings_of_their_own)
{
    memory data;
    bench b;
    setting s = settings();
    s.clip = 1e-3;
    s.phase[0] = (lvni_trainer_phase_options){
        .has_clip = true,
        .clip = 2e-3,
        .has_schedule = true,
        .schedule = {.kind = LVNI_SCHEDULE_STEP, .step_size = 2, .gamma = 0.5}};
    s.phase[1] = (lvni_trainer_phase_options){.lr = 0.2, .every = 3};
    memory_init(&data, N, 0);
    bench_open(&b, &data, &s);
    for (int64_t step = 0; step < 6; step++) {
        truth before, after;
        lvni_trainer_step_result r;
        read_truth(&b, &before);
        duel_seen = (duel_samples){.on = true};
        assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
        b.trainer->at.step_in_epoch %= b.trainer->o.plan.steps_per_epoch;
        read_truth(&b, &after);
        const bool both = step % 3 == 2;
        assert_string_equal(duel_seen.order, both ? "000111" : "000");
        double moved[2] = {0};
        for (int i = 0; i < D_NUMBERS; i++) {
            moved[0] += (after.d[i] - before.d[i]) * (after.d[i] - before.d[i]);
        }
        for (int i = 0; i < G_NUMBERS; i++) {
            moved[1] += (after.g[i] - before.g[i]) * (after.g[i] - before.g[i]);
        }
        const double rate = 0.05 * (step < 2 ? 1.0 : step < 4 ? 0.5 : 0.25);
        assert_true(fabs(sqrt(moved[0]) - rate * 2e-3) < 1e-6);
        assert_true(fabs(sqrt(moved[1]) - (both ? 0.2 * 1e-3 : 0.0)) < (both ? 1e-6 : 1e-30));
        assert_true(r.phase[1].left_out == !both && !r.phase[0].left_out);
        assert_true(isnan(lvni_trainer_metric_mean(&r.metrics, "g_loss")) == !both);
    }
    assert_true(b.trainer->engine->optim->steps[0] == 6 && b.trainer->engine->optim->steps[1] == 2);
    duel_seen.on = false;
    bench_close(&b);
}

static float *read_floats(const float *from, int64_t n)
{
    float *to = malloc((size_t)n * sizeof *to);
    assert_non_null(to);
    assert_int_equal(lvni_tensor_mem_copy(to, from, (size_t)n * sizeof *to), LVN_OK);
    return to;
}

/* After the first step v / m^2 is (1 - beta2) / (1 - beta1)^2, and with its corrections every
 * weight has gone as far as the rate. */
static void assert_betas(const bench *b, const float *before)
{
    const lvni_nn_model *m = b->model;
    const lvni_optim *o = b->trainer->engine->optim;
    float *one = read_floats(o->slot[0], m->n_weights),
          *two = read_floats(o->slot[1], m->n_weights),
          *after = read_floats(m->weights, m->n_weights);
    int found[2] = {0};
    for (int i = 0; i < m->n_parameters; i++) {
        const int phase = m->parameters[i].phase;
        const double want = phase == 0 ? 0.3 : 0.1;
        for (int64_t k = m->offset[i]; k < m->offset[i] + m->parameters[i].numel; k++) {
            const double g = (double)one[k];
            if (fabs(g) > 1e-6) {
                assert_true(fabs((double)two[k] / (g * g) - want) < 1e-4 * want);
                assert_true(fabs(fabs((double)after[k] - (double)before[k]) - 0.05) < 1e-5);
                found[phase]++;
            }
        }
    }
    assert_true(found[0] > 0 && found[1] > 0);
    free(one);
    free(two);
    free(after);
}

TEST(phases_have_betas_of_their_own)
{
    const lvn_device devices[] = {LVN_CPU, LVN_SIM(0)};
    memory data;
    memory_init(&data, N, 0);
    for (int i = 0; i < 2; i++) {
        bench b;
        setting s = settings();
        s.optim = (lvni_optim_options){
            .kind = LVNI_OPTIM_ADAM, .lr = 0.05, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-12};
        s.phase[0] = (lvni_trainer_phase_options){.has_optim = true, .optim = s.optim};
        s.phase[0].optim.beta1 = 0.0;
        s.phase[0].optim.beta2 = 0.7;
        assert_int_equal(lvn_device_use(devices[i]), LVN_OK);
        bench_open(&b, &data, &s);
        float *before = read_floats(b.model->weights, b.model->n_weights);
        bench_steps(&b, 1);
        assert_betas(&b, before);
        free(before);
        bench_close(&b);
        assert_int_equal(lvn_device_use(LVN_CPU), LVN_OK);
    }
}

/* A schedule that moves one phase's momentum leaves the other's as it is. */
TEST(a_cycle_moves_its_phase)
{
    memory data;
    bench b;
    setting s = settings();
    memory_init(&data, N, 0);
    bench_open(&b, &data, &s);
    lvni_optim *o = b.trainer->engine->optim;
    const double was = o->decays[1].momentum;
    lvni_optim_set_rates(o, 0, 0, &(lvni_optim_schedule){0}, 1.0, 0.625);
    assert_true(o->decays[0].momentum == 0.625 && o->decays[1].momentum == was);
    bench_close(&b);
}

/* 16-mixed: what overflows is left out, the other phase goes on; the scale is halved once, and a
 * step counts as skipped when all of it was. */
TEST(an_overflow_skips_its_phase)
{
    memory data;
    setting s = settings();
    s.precision = LVNI_PRECISION_16_MIXED;
    s.ema = (lvni_optim_ema_options){.decay = 0.5};
    memory_init(&data, N, 0);
    for (duel_overflow = 1; duel_overflow <= 3; duel_overflow++) {
        bench b;
        truth before, after;
        lvni_trainer_step_result r;
        bench_open(&b, &data, &s);
        b.trainer->engine->scaler.scale = 1024.0;
        read_truth(&b, &before);
        duel_overflows_at = 0;
        assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
        duel_overflows_at = -1;
        read_truth(&b, &after);
        const bool skipped[2] = {(duel_overflow & 1) != 0, (duel_overflow & 2) != 0};
        assert_true(r.phase[0].skipped == skipped[0] && r.phase[1].skipped == skipped[1]);
        assert_true((memcmp(before.d, after.d, sizeof before.d) == 0) == skipped[0]);
        assert_true((memcmp(before.g, after.g, sizeof before.g) == 0) == skipped[1]);
        assert_true((memcmp(before.seen, after.seen, sizeof before.seen) == 0) == skipped[1]);
        assert_true(b.trainer->engine->optim->steps[0] == !skipped[0] &&
                    b.trainer->engine->optim->steps[1] == !skipped[1]);
        assert_true(b.trainer->engine->scaler.scale == 512.0 &&
                    b.trainer->engine->scaler.skipped == (duel_overflow == 3));
        /* the other phase's, and loss */
        assert_int_equal(b.trainer->report.epoch_sum.n_metrics, duel_overflow == 3 ? 0 : 2);
        if (duel_overflow < 3) {
            /* the first update copies */
            assert_memory_equal(b.trainer->engine->ema->value, b.model->weights,
                                (size_t)b.model->n_values * sizeof(float));
        }
        assert_int_equal(lvni_trainer_step(b.trainer, &r), LVN_OK);
        assert_true(!r.phase[0].skipped && !r.phase[1].skipped);
        bench_close(&b);
    }
    duel_overflow = 0;
}

/* ---- what fails ---- */

/* A later phase fails: the weights are of no step, and are not saved. */
TEST(half_a_step_is_not_kept)
{
    memory data;
    bench b;
    setting s = settings();
    char path[96];
    s.out = out;
    memory_init(&data, N, 0);
    bench_open(&b, &data, &s);
    lvni_data_loader_destroy(b.trainer->loader);
    b.trainer->loader = NULL;
    b.trainer->o.max_steps = 6;
    b.trainer->o.keep.every_n_steps = 2;
    duel_fails_at = 5;
    assert_int_not_equal(lvni_trainer_fit(b.trainer), LVN_OK);
    duel_fails_at = -1;
    assert_true(b.trainer->engine->torn);
    assert_non_null(strstr(b.trainer->checkpointing.kept, "keeps step 4"));
    assert_true(lvn_last_error()->n_frames > 0); /* where it failed */
    bench_close(&b);
    lvni_ckpt *ckpt;
    snprintf(path, sizeof path, "%s/checkpoints/last.safetensors", out);
    assert_int_equal(lvni_ckpt_load(path, &ckpt), LVN_OK);
    assert_int_equal(ckpt->at.step, 4);
    assert_string_equal(ckpt->schedule, "updates=4,4");
    setting one = settings();
    lvn_module_class whole = duel_class;
    whole.phases = NULL;
    one.cls = &whole;
    bench_open(&b, &data, &one);
    assert_int_equal(lvni_trainer_restore(b.trainer, ckpt), LVN_ERR_USAGE);
    assert_non_null(
        strstr(lvn_last_error()->message, "whose steps have 2 phases, those of this one have 1"));
    bench_close(&b);
    lvni_ckpt_free(ckpt);
}

TEST(mistakes_are_reported)
{
    static const char *const half[] = {"critic", NULL};
    lvn_module_class cls = duel_class;
    lvni_nn_model *model;
    lvni_optim_parameter *p;
    cls.phases = half;
    cls.validation_step = NULL;
    assert_int_equal(lvni_nn_model_build(&cls, NULL, 1, &model), LVN_OK);
    assert_int_equal(lvni_trainer_parameters(model, &(lvni_optim_rules){0}, &p), LVN_ERR_USAGE);
    assert_non_null(
        strstr(lvn_last_error()->message, "the parameter generator.out.weight is in no phase"));
    assert_int_equal(lvni_trainer_phases_check_validation(&cls), LVN_ERR_USAGE);
    assert_int_equal(lvni_trainer_phases_check_validation(&duel_class), LVN_OK);
    lvni_nn_model_destroy(model);
}

/* ---- memory ---- */

TEST(all_batches_of_a_step_are_held)
{
    memory data;
    bench b;
    lvni_trainer_memory_need need;
    setting s = settings();
    s.batch_size = 24;
    s.micro_batches = 6;
    s.workers = 1;
    memory_init(&data, 240, 0);
    bench_open(&b, &data, &s);
    bench_steps(&b, 12);
    const lvni_data_loader_stats loader = lvni_data_loader_get_stats(b.trainer->loader);
    const lvni_trainer_options o = b.trainer->o;
    assert_int_equal(lvni_trainer_predict_memory(&o, &need), LVN_OK);
    assert_true(loader.slots > 6 && need.batches > (uint64_t)loader.slots * loader.slot_bytes);
    const uint64_t calls = lvni_core_alloc_get_total().calls;
    bench_steps(&b, 12);
    assert_int_equal(lvni_core_alloc_get_total().calls, calls);
    bench_close(&b);
}

int main(int argc, char **argv)
{
    char command[128];
    sim_start("1", "64MiB");
    if (mkdtemp(out) == NULL) {
        return 1;
    }
    lvni_log_set_quiet(true);
    snprintf(command, sizeof command, "mkdir %s/checkpoints", out);
    if (system(command) != 0) {
        return 1;
    }
    const int failed = test_main(argc, argv);
    snprintf(command, sizeof command, "rm -r %s", out);
    return system(command) != 0 ? 1 : failed;
}
