/* The optimizers over several steps against PyTorch's formulas (torch.optim.SGD and AdamW,
 * documentation of 2.x) written out in double precision, the norm of the gradient, and the
 * schedules against numbers worked out by hand. */
#include "core/alloc.h"
#include "core/rng.h"
#include "kernels/flat.h"
#include "kernels/kernels.h"
#include "optim/optim.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 10007, STEPS = 12 }; /* some blocks and a tail */

static float w[N], g[N];
static double want[N], first[N], second[N]; /* weights; momentum or exp_avg; exp_avg_sq */

static void fill(float *to, const char *purpose, uint32_t step)
{
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(9, lvni_core_rng_purpose(purpose)),
                               .a = step};
    for (int i = 0; i < N; i++) {
        to[i] = (float)lvni_core_rng_normal(&rng, (uint64_t)i);
    }
}

static void begin(void)
{
    fill(w, "weights", 0);
    for (int i = 0; i < N; i++) {
        want[i] = (double)w[i];
        first[i] = second[i] = 0.0;
    }
}

/* One tensor of n elements. */
static lvn_status create(const lvni_optim_options *options, int64_t n, lvni_optim **out)
{
    const lvni_optim_parameter whole = {
        .name = "w", .n = n, .ndim = 2, .lr_scale = 1.0, .decay_scale = 1.0};
    return lvni_optim_create(options, n, NULL, &whole, 1, out);
}

static void sgd_reference(const lvni_optim_options *o, int t, double lr, double scale)
{
    for (int i = 0; i < N; i++) {
        double d = (double)g[i] * scale + o->weight_decay * want[i];
        if (o->momentum > 0.0) {
            first[i] = t == 1 ? d : o->momentum * first[i] + d;
            d = first[i];
        }
        want[i] -= lr * d;
    }
}

static void adamw_reference(const lvni_optim_options *o, int t, double lr, double scale)
{
    for (int i = 0; i < N; i++) {
        const double d = (double)g[i] * scale;
        want[i] *= 1.0 - lr * o->weight_decay;
        first[i] = o->beta1 * first[i] + (1.0 - o->beta1) * d;
        second[i] = o->beta2 * second[i] + (1.0 - o->beta2) * d * d;
        const double root = sqrt(second[i]) / sqrt(1.0 - pow(o->beta2, t)) + o->eps;
        want[i] -= lr / (1.0 - pow(o->beta1, t)) * first[i] / root;
    }
}

/* Relative to 1 or the value: f32 rounds each step to 6e-8. */
static void assert_weights(const char *name, int step)
{
    for (int i = 0; i < N; i++) {
        const double room = 3e-7 * step * fmax(1.0, fabs(want[i]));
        if (!(fabs((double)w[i] - want[i]) <= room)) {
            fail_msg("%s, step %d, element %d: %.9g, expected %.9g", name, step, i, (double)w[i],
                     want[i]);
        }
    }
}

static void assert_slot(const lvni_optim *o, int slot, const double *values)
{
    for (int i = 0; i < N; i++) {
        const double room = 1e-6 * fmax(0.5, fabs(values[i])); /* terms of about 0.5 were added */
        if (!(fabs((double)o->slot[slot][i] - values[i]) <= room)) {
            fail_msg("%s, element %d: %.9g, expected %.9g", o->slot_name[0][slot], i,
                     (double)o->slot[slot][i], values[i]);
        }
    }
}

typedef void (*reference)(const lvni_optim_options *o, int t, double lr, double scale);

static void follow(const char *name, const lvni_optim_options *options, reference ref)
{
    lvni_optim *o;
    assert_int_equal(create(options, N, &o), LVN_OK);
    begin();
    for (int t = 1; t <= STEPS; t++) {
        const double lr = options->lr * (t <= 6 ? 1.0 : 0.25), scale = t % 3 == 0 ? 0.5 : 1.0 / 64;
        fill(g, "gradient", (uint32_t)t);
        ref(options, t, lr, scale);
        lvni_optim_step(o, 0, w, g, lr, scale);
        assert_int_equal(o->steps[0], t);
        assert_weights(name, t);
    }
    for (int k = 0; k < o->n_slots; k++) {
        assert_slot(o, k, k == 0 ? first : second);
    }
    lvni_optim_destroy(o);
}

TEST(sgd)
{
    follow("plain", &(lvni_optim_options){.kind = LVNI_OPTIM_SGD, .lr = 0.1}, sgd_reference);
    follow("decay", &(lvni_optim_options){.kind = LVNI_OPTIM_SGD, .lr = 0.1, .weight_decay = 0.01},
           sgd_reference);
    follow("momentum",
           &(lvni_optim_options){
               .kind = LVNI_OPTIM_SGD, .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4},
           sgd_reference);
}

TEST(adamw)
{
    lvni_optim_options o = {.kind = LVNI_OPTIM_ADAMW,
                            .lr = 1e-3,
                            .weight_decay = 0.01,
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .eps = 1e-8};
    follow("adamw", &o, adamw_reference);
    o = (lvni_optim_options){.kind = LVNI_OPTIM_ADAMW,
                             .lr = 0.02,
                             .weight_decay = 0.3,
                             .beta1 = 0.5,
                             .beta2 = 0.9,
                             .eps = 1e-3};
    follow("adamw, other numbers", &o, adamw_reference);
    o = (lvni_optim_options){
        .kind = LVNI_OPTIM_ADAMW, .lr = 0.01, .beta1 = 0.0, .beta2 = 0.99, .eps = 1e-8};
    follow("adamw without first moment", &o, adamw_reference);
}

/* One weight, by hand. */
TEST(numbers_worked_out)
{
    lvni_optim *o;
    float one = 1.0f, gradient = 2.0f;
    assert_int_equal(
        create(&(lvni_optim_options){.kind = LVNI_OPTIM_SGD, .lr = 0.25, .momentum = 0.5}, 1, &o),
        LVN_OK);
    assert_int_equal(o->n_slots, 1);
    assert_string_equal(o->slot_name[0][0], "momentum");
    lvni_optim_step(o, 0, &one, &gradient, 0.25, 1.0); /* buffer 2, weight 1 - 0.5 */
    assert_true(one == 0.5f);
    /* buffer 0.5 * 2 + 1 = 2, weight 0.5 - 0.5 */
    lvni_optim_step(o, 0, &one, &gradient, 0.25, 0.5);
    assert_true(one == 0.0f);
    assert_true(o->slot[0][0] == 2.0f);
    lvni_optim_destroy(o);
    /* AdamW's first step moves by lr whatever the gradient (eps 0 apart), after the weight shrank
     * by lr * decay. */
    assert_int_equal(create(&(lvni_optim_options){.kind = LVNI_OPTIM_ADAMW,
                                                  .lr = 0.125,
                                                  .weight_decay = 2,
                                                  .beta1 = 0.75,
                                                  .beta2 = 0.75,
                                                  .eps = 1e-12},
                            1, &o),
                     LVN_OK);
    one = 1.0f;
    lvni_optim_step(o, 0, &one, &gradient, 0.125, 1.0);
    assert_true(fabsf(one - (0.75f - 0.125f)) < 1e-6f);
    lvni_optim_destroy(o);
}

TEST(no_momentum_has_no_buffer)
{
    lvni_optim *o;
    assert_int_equal(create(&(lvni_optim_options){.kind = LVNI_OPTIM_SGD}, 5, &o), LVN_OK);
    assert_int_equal(o->n_slots, 0);
    lvni_optim_destroy(o);
    lvni_optim_destroy(NULL);
}

static double norm_of(lvni_optim *o)
{
    double sums[N / LVNI_FLAT_BLOCK + 1];
    lvni_kernels_flat_block_sumsq(g, N, sums);
    return lvni_optim_norm_of_blocks(o, sums, 0, N);
}

TEST(norm_of_the_gradient)
{
    lvni_optim *o;
    assert_int_equal(create(&(lvni_optim_options){.kind = LVNI_OPTIM_SGD}, N, &o), LVN_OK);
    fill(g, "gradient", 1);
    double sum = 0.0;
    for (int i = 0; i < N; i++) {
        sum += (double)g[i] * (double)g[i];
    }
    assert_true(fabs(norm_of(o) - sqrt(sum)) <= 1e-7 * sqrt(sum));
    memset(g, 0, sizeof g);
    assert_true(norm_of(o) == 0.0);
    g[0] = 3.0f;
    g[N - 1] = -4.0f;
    assert_true(norm_of(o) == 5.0);
    g[LVNI_FLAT_BLOCK] = INFINITY;
    assert_true(isfinite(norm_of(o)) == 0);
    g[LVNI_FLAT_BLOCK] = NAN;
    assert_true(isfinite(norm_of(o)) == 0);
    lvni_optim_destroy(o);
}

TEST(schedules)
{
    lvni_optim_schedule s = {.kind = LVNI_SCHEDULE_CONSTANT};
    assert_true(lvni_optim_schedule_factor(&s, 0) == 1.0 &&
                lvni_optim_schedule_factor(&s, 1000000) == 1.0);
    s.warmup_steps = 4;
    const double rise[] = {0.25, 0.5, 0.75, 1.0, 1.0};
    for (int t = 0; t < 5; t++) {
        assert_true(lvni_optim_schedule_factor(&s, t) == rise[t]);
    }
    s = (lvni_optim_schedule){.kind = LVNI_SCHEDULE_COSINE, .total_steps = 13};
    const struct {
        int64_t t;
        double factor;
    } plain[] = {
        {0, 1.0}, {2, (2 + 1.7320508075688772) / 4}, {4, 0.75}, {6, 0.5}, {8, 0.25}, {12, 0.0},
        {13, 0.0}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        assert_true(fabs(lvni_optim_schedule_factor(&s, plain[i].t) - plain[i].factor) <= 1e-15);
    }
    s = (lvni_optim_schedule){.kind = LVNI_SCHEDULE_COSINE, .warmup_steps = 2, .total_steps = 11};
    const double warm[] = {0.5,
                           1.0,
                           1.0,
                           (2 + 1.8477590650225735) / 4,
                           (2 + 1.4142135623730951) / 4,
                           (2 + 0.7653668647301796) / 4,
                           0.5,
                           (2 - 0.7653668647301796) / 4,
                           (2 - 1.4142135623730951) / 4,
                           (2 - 1.8477590650225735) / 4,
                           0.0,
                           0.0};
    for (int t = 0; t < 12; t++) {
        if (!(fabs(lvni_optim_schedule_factor(&s, t) - warm[t]) <= 1e-15)) {
            fail_msg("step %d: %.17g, expected %.17g", t, lvni_optim_schedule_factor(&s, t),
                     warm[t]);
        }
    }
    /* all warm-up */
    s = (lvni_optim_schedule){.kind = LVNI_SCHEDULE_COSINE, .warmup_steps = 5, .total_steps = 5};
    assert_true(lvni_optim_schedule_factor(&s, 4) == 1.0 &&
                lvni_optim_schedule_factor(&s, 5) == 0.0);
}

/* Warm-up, then a cosine that has its end in the last step, as pretraining has it. */
TEST(a_cosine_ends_in_the_last_step)
{
    lvni_optim_schedule s = {
        .kind = LVNI_SCHEDULE_COSINE, .warmup_steps = 10, .total_steps = 100, .end_factor = 0.001};
    assert_true(lvni_optim_schedule_factor(&s, 0) == 0.1);
    assert_true(lvni_optim_schedule_factor(&s, 9) == 1.0);
    assert_true(lvni_optim_schedule_factor(&s, 10) == 1.0);
    assert_true(lvni_optim_schedule_factor(&s, 99) == 0.001);
    for (int t = 10; t < 99; t++) {
        const double expected =
            0.001 + (1 - 0.001) * (cos(3.14159265358979323846 * (t - 10) / 89) + 1) / 2;
        assert_true(fabs(lvni_optim_schedule_factor(&s, t) - expected) <= 1e-15);
    }
    s.warmup_steps = 99; /* nothing is left but the end */
    assert_true(lvni_optim_schedule_factor(&s, 98) == 1.0);
    assert_true(lvni_optim_schedule_factor(&s, 99) == 0.001);
}

/* Clamped by the optimizer or before it, by hand: the same bits, scaled by a power of two. */
TEST(clamps_each_element)
{
    static const lvni_optim_kind kinds[] = {LVNI_OPTIM_SGD,  LVNI_OPTIM_ADAM,    LVNI_OPTIM_ADAMW,
                                            LVNI_OPTIM_LAMB, LVNI_OPTIM_RMSPROP, LVNI_OPTIM_LION};
    static float by_hand[N];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        lvni_optim_options options = {.kind = kinds[k],
                                      .lr = 0.01,
                                      .momentum = 0.9,
                                      .beta1 = 0.9,
                                      .beta2 = 0.99,
                                      .eps = 1e-8,
                                      .alpha = 0.9};
        lvni_optim *clamping, *other;
        assert_int_equal(create(&options, N, &other), LVN_OK);
        options.clip_value = 0.25;
        assert_int_equal(create(&options, N, &clamping), LVN_OK);
        begin();
        memcpy(by_hand, w, sizeof w);
        for (int t = 1; t <= 3; t++) {
            fill(g, "gradient", (uint32_t)t);
            lvni_optim_step(clamping, 0, w, g, 0.01, 0.5);
            for (int i = 0; i < N; i++) {
                g[i] = fminf(fmaxf(g[i], -0.5f), 0.5f);
            }
            lvni_optim_step(other, 0, by_hand, g, 0.01, 0.5);
        }
        assert_memory_equal(w, by_hand, sizeof w);
        lvni_optim_destroy(clamping);
        lvni_optim_destroy(other);
    }
}

TEST(norms_of_whole_gradients_are_not_of_clamped_ones)
{
    const lvni_optim_kind kinds[] = {LVNI_OPTIM_LARS, LVNI_OPTIM_ADAFACTOR};
    for (int k = 0; k < 2; k++) {
        lvni_optim *o;
        const lvni_optim_options options = {.kind = kinds[k], .clip_value = 1.0};
        assert_int_equal(create(&options, N, &o), LVN_ERR_USAGE);
        assert_non_null(strstr(lvn_last_error()->message, lvni_optim_name(kinds[k])));
    }
}

TEST(memory_may_fail)
{
    static const lvni_optim_options kinds[] = {{.kind = LVNI_OPTIM_ADAMW}, /* two slots */
                                               {.kind = LVNI_OPTIM_LARS,
                                                .weight_decay = 0.1,
                                                .momentum = 0.9}}; /* one, and trust ratios */
    const uint64_t before = lvni_core_alloc_get_total().live_bytes;
    for (int i = 0; i < 2; i++) {
        for (int64_t k = 1; k <= 8; k++) {
            lvni_optim *o = NULL;
            lvni_core_alloc_fail_at(k);
            assert_int_equal(create(&kinds[i], 100, &o), LVN_ERR_MEMORY);
            lvni_core_alloc_fail_at(0);
            assert_null(o);
            assert_int_equal(lvni_core_alloc_get_total().live_bytes, before);
        }
    }
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}
