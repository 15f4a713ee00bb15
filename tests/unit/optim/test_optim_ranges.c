/* Steps of the flat buffers in ranges: wherever they are cut, by one optimizer or by several that
 * each own a range and exchange their partial sums, weights and state have the bits of one step of
 * all. With groups, frozen parameters, phases, and parameters without a gradient. */
#include "core/rng.h"
#include "kernels/flat.h"
#include "kernels/kernels.h"
#include "optim_support.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

enum { STEPS = 5, PARAMETERS = 12, BLOCKS = 11, MOST = 7, ROUNDS = 6, PHASES = 2 };
static const int64_t FLAT = (BLOCKS - 1) * LVNI_FLAT_BLOCK + 1040; /* the last one is not whole */

/* Tensors within a block, on a border, from the middle of one block over others; a gap up to the
 * next border, as behind a block of the network. */
static const struct {
    int64_t begin, n;
    int ndim, phase;
    double lr_scale, decay_scale;
    bool frozen;
} rows[PARAMETERS] = {
    {0, 96, 4, 0, 1.0, 1.0, false},
    {96, 16, 1, 0, 1.0, 0.0, false},
    {112, 9001, 4, 0, 1.0, 1.0, false}, /* three blocks */
    {9120, 2000, 2, 1, 1.0, 1.0, false},
    {11120, 7, 1, 1, 0.5, 1.0, false},
    {11136, 500, 2, 0, 1.0, 1.0, false},
    {12288, 8192, 2, 0, 1.0, 1.0, false}, /* two whole ones */
    {20480, 64, 1, 0, 1.0, 0.0, false},
    {20544, 6000, 2, 0, 1.0, 1.0, true},
    {26544, 100, 1, 1, 1.0, 1.0, false},
    {28672, 3, 2, 1, 2.0, 1.0, false},
    {28688, 13312, 4, 0, 1.0, 1.0, false}, /* to the buffer's end */
};

static const lvni_optim_options kinds[] = {
    {.kind = LVNI_OPTIM_SGD, .lr = 0.01, .weight_decay = 0.1},
    {.kind = LVNI_OPTIM_SGD, .lr = 0.01, .weight_decay = 0.1, .momentum = 0.9, .dampening = 0.2},
    ADAM_OPTIONS(LVNI_OPTIM_ADAM),
    ADAM_OPTIONS(LVNI_OPTIM_ADAMW),
    {.kind = LVNI_OPTIM_LARS,
     .lr = 0.5,
     .weight_decay = 0.01,
     .momentum = 0.9,
     .nesterov = true,
     .trust_coefficient = 0.02},
    {.kind = LVNI_OPTIM_RMSPROP, .lr = 0.01, .weight_decay = 0.1, .alpha = 0.9, .eps = 1e-8},
    {.kind = LVNI_OPTIM_RMSPROP,
     .lr = 0.01,
     .momentum = 0.9,
     .alpha = 0.9,
     .eps = 1e-8,
     .centered = true},
    {.kind = LVNI_OPTIM_LION, .lr = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99},
    {.kind = LVNI_OPTIM_LAMB,
     .lr = 0.02,
     .weight_decay = 0.1,
     .beta1 = 0.9,
     .beta2 = 0.99,
     .eps = 1e-6},
};
enum { KINDS = sizeof kinds / sizeof *kinds, LARS = 4 };

typedef struct result {
    float w[BLOCKS * LVNI_FLAT_BLOCK], slot[LVNI_OPTIM_SLOTS][BLOCKS * LVNI_FLAT_BLOCK];
    int64_t missed[PARAMETERS], steps[PHASES];
} result;

static lvni_core_rng rng(const char *purpose, uint32_t a)
{
    return (lvni_core_rng){.key = lvni_core_rng_make_key(11, lvni_core_rng_purpose(purpose)),
                           .a = a};
}

/* Normal numbers where parameters are, zeros between them. */
static void fill(float *x, const char *purpose, uint32_t step)
{
    const lvni_core_rng r = rng(purpose, step);
    memset(x, 0, (size_t)FLAT * sizeof *x);
    for (int i = 0; i < PARAMETERS; i++) {
        for (int64_t k = rows[i].begin; k < rows[i].begin + rows[i].n; k++) {
            x[k] = (float)lvni_core_rng_normal(&r, (uint64_t)k);
        }
    }
}

static float weights[BLOCKS * LVNI_FLAT_BLOCK], gradient[STEPS][BLOCKS * LVNI_FLAT_BLOCK];

BEFORE_ALL()
{
    fill(weights, "weights", 0);
    for (int t = 0; t < STEPS; t++) {
        fill(gradient[t], "gradient", (uint32_t)t);
    }
    return lvni_cpu_start();
}

static lvni_optim *create(const lvni_optim_options *options, const lvni_optim_range *own)
{
    lvni_optim_parameter p[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++) {
        p[i] = (lvni_optim_parameter){.name = "x",
                                      .begin = rows[i].begin,
                                      .n = rows[i].n,
                                      .ndim = rows[i].ndim,
                                      .lr_scale = rows[i].lr_scale,
                                      .decay_scale = rows[i].decay_scale,
                                      .frozen = rows[i].frozen,
                                      .phase = rows[i].phase};
    }
    lvni_optim *o;
    assert_int_equal(lvni_optim_create(options, FLAT, own, p, PARAMETERS, &o), LVN_OK);
    return o;
}

/* A quarter of the parameters have no gradient. */
static void set_idle(lvni_optim *o, int step)
{
    const lvni_core_rng r = rng("idle", (uint32_t)step);
    for (int i = 0; i < PARAMETERS; i++) {
        o->idle[i] = lvni_core_rng_uniform(&r, (uint64_t)i) < 0.25F;
    }
}

static double scale_of(int step)
{
    return step == 2 ? 0.125 : 0.5; /* clipped */
}

static void keep(const lvni_optim *o, result *out)
{
    for (int k = 0; k < o->n_slots; k++) {
        memcpy(out->slot[k] + o->own.begin, o->slot[k],
               (size_t)(o->own.end - o->own.begin) * sizeof(float));
    }
    memcpy(out->missed, o->missed, sizeof out->missed);
    memcpy(out->steps, o->steps, sizeof out->steps);
}

static void step_all(const lvni_optim_options *options, result *out)
{
    lvni_optim *o = create(options, NULL);
    memcpy(out->w, weights, sizeof weights);
    for (int t = 0; t < STEPS; t++) {
        const float *g = gradient[t];
        set_idle(o, t);
        for (int phase = 0; phase < PHASES; phase++) {
            lvni_optim_step(o, phase, out->w, g, options->lr, scale_of(t));
        }
    }
    keep(o, out);
    lvni_optim_destroy(o);
}

/* n ranges of at least one block each. */
static void cut_at_random(int n, uint32_t round, lvni_optim_range range[MOST])
{
    const lvni_core_rng r = rng("cuts", round);
    bool border[BLOCKS] = {false};
    uint64_t at = 0;
    for (int left = n - 1; left > 0; at++) {
        const int b = 1 + (int)((double)lvni_core_rng_uniform(&r, at) * (BLOCKS - 1));
        left -= b < BLOCKS && !border[b] ? 1 : 0;
        border[b < BLOCKS ? b : 0] = true;
    }
    int i = 0;
    range[0].begin = 0;
    for (int b = 1; b < BLOCKS; b++) {
        if (border[b]) {
            range[i++].end = (int64_t)b * LVNI_FLAT_BLOCK;
            range[i].begin = (int64_t)b * LVNI_FLAT_BLOCK;
        }
    }
    range[i].end = FLAT;
    assert_int_equal(i, n - 1);
}

/* One optimizer that owns all, range by range, the last one first. */
static void step_in_ranges(const lvni_optim_options *options, int n, const lvni_optim_range *range,
                           result *out)
{
    lvni_optim *o = create(options, NULL);
    memcpy(out->w, weights, sizeof weights);
    for (int t = 0; t < STEPS; t++) {
        const float *g = gradient[t];
        set_idle(o, t);
        for (int phase = 0; phase < PHASES; phase++) {
            for (int i = n - 1; i >= 0; i--) {
                const int64_t at = range[i].begin;
                lvni_optim_prepare(o, phase, range[i], out->w + at, g + at, scale_of(t));
            }
            lvni_optim_trust(o, phase, scale_of(t));
            for (int i = n - 1; i >= 0; i--) {
                const int64_t at = range[i].begin;
                lvni_optim_step_range(o, phase, range[i], out->w + at, g + at, options->lr,
                                      scale_of(t));
            }
            lvni_optim_end_step(o, phase);
        }
    }
    keep(o, out);
    lvni_optim_destroy(o);
}

/* What an all-reduce over the owners does with their partial sums. */
static void add_sums(lvni_optim *const *o, int n)
{
    for (int64_t k = 0; k < 2 * o[0]->n_sums; k++) {
        double sum = 0.0;
        for (int i = 0; i < n; i++) {
            sum += o[i]->sums[k];
        }
        for (int i = 0; i < n; i++) {
            o[i]->sums[k] = sum;
        }
    }
}

/* An owner for each range, whose weights, gradient and state are all that it has. */
static void step_by_owners(const lvni_optim_options *options, int n, const lvni_optim_range *range,
                           result *out)
{
    static float part[BLOCKS * LVNI_FLAT_BLOCK];
    lvni_optim *o[MOST];
    for (int i = 0; i < n; i++) {
        o[i] = create(options, &range[i]);
    }
    memcpy(out->w, weights, sizeof weights);
    for (int t = 0; t < STEPS; t++) {
        const float *g = gradient[t];
        for (int phase = 0; phase < PHASES; phase++) {
            for (int i = 0; i < n; i++) {
                if (o[i]->n_sums > 0) { /* else there is no memory */
                    memset(o[i]->sums, 0, 2 * (size_t)o[i]->n_sums * sizeof *o[i]->sums);
                }
                set_idle(o[i], t);
                memcpy(part, g + range[i].begin,
                       (size_t)(range[i].end - range[i].begin) * sizeof *part);
                lvni_optim_prepare(o[i], phase, range[i], out->w + range[i].begin, part,
                                   scale_of(t));
            }
            add_sums(o, n);
            for (int i = 0; i < n; i++) {
                memcpy(part, g + range[i].begin,
                       (size_t)(range[i].end - range[i].begin) * sizeof *part);
                lvni_optim_trust(o[i], phase, scale_of(t));
                lvni_optim_step_range(o[i], phase, range[i], out->w + range[i].begin, part,
                                      options->lr, scale_of(t));
                lvni_optim_end_step(o[i], phase);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        keep(o[i], out);
        lvni_optim_destroy(o[i]);
    }
}

static void assert_same(const result *have, const result *want, int kind, int n, const char *how)
{
    const size_t bytes = (size_t)FLAT * sizeof(float);
    bool same = memcmp(have->w, want->w, bytes) == 0;
    for (int k = 0; k < LVNI_OPTIM_SLOTS; k++) {
        same = same && memcmp(have->slot[k], want->slot[k], bytes) == 0;
    }
    same = same && memcmp(have->missed, want->missed, sizeof have->missed) == 0 &&
           memcmp(have->steps, want->steps, sizeof have->steps) == 0;
    if (!same) {
        fail_msg("kind %d in %d ranges, %s: other bits than in one range", kind, n, how);
    }
}

TEST(cuts_change_no_bit)
{
    static const int counts[] = {1, 2, 3, 7};
    static result want, have;
    for (int kind = 0; kind < KINDS; kind++) {
        memset(&want, 0, sizeof want);
        step_all(&kinds[kind], &want);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                lvni_optim_range range[MOST];
                cut_at_random(counts[c], 10 * round + (uint32_t)c, range);
                memset(&have, 0, sizeof have);
                step_in_ranges(&kinds[kind], counts[c], range, &have);
                assert_same(&have, &want, kind, counts[c], "one owner");
                memset(&have, 0, sizeof have);
                step_by_owners(&kinds[kind], counts[c], range, &have);
                assert_same(&have, &want, kind, counts[c], "an owner each");
            }
        }
    }
}

/* What the comparison above rests on: something moved, in every phase and slot, frozen parameters
 * and gaps did not, some parameters had no gradient, and the rates of tensors differ. */
TEST(the_case_is_not_empty)
{
    static result r;
    for (int kind = 0; kind < KINDS; kind++) {
        memset(&r, 0, sizeof r);
        step_all(&kinds[kind], &r);
        int64_t missed = 0;
        for (int i = 0; i < PARAMETERS; i++) {
            const bool moved = memcmp(r.w + rows[i].begin, weights + rows[i].begin,
                                      (size_t)rows[i].n * sizeof(float)) != 0;
            assert_true(moved != rows[i].frozen);
            missed += r.missed[i];
        }
        assert_true(missed > 5 && r.steps[0] == STEPS && r.steps[1] == STEPS);
        for (int64_t k = 11127; k < 11136; k++) {
            assert_true(r.w[k] == 0.0f && r.slot[0][k] == 0.0f);
        }
    }
    lvni_optim *o = create(&kinds[LARS], NULL);
    assert_int_equal(o->n_sums, 1 + 3 + 1 + 1 + 2 + 1 + 4);
    lvni_optim_destroy(o);
}

/* The norms behind a rate, from numbers whose squares are exact. */
TEST(sums_are_those_of_tensor_and_block)
{
    static float w[BLOCKS * LVNI_FLAT_BLOCK], g[BLOCKS * LVNI_FLAT_BLOCK];
    lvni_optim *o = create(&kinds[LARS], NULL);
    for (int64_t k = 0; k < FLAT; k++) {
        w[k] = 2.0f;
        g[k] = 1.0f;
    }
    lvni_optim_prepare(o, 0, o->own, w, g, 1.0);
    /* tensors 0, 2, 3 (of another phase), 5, 6, 10 (of another phase), 11 */
    const double want[] = {96, 3984, 4096, 921, 0, 500, 4096, 4096, 0, 4080, 4096, 4096, 1040};
    assert_int_equal(o->n_sums, sizeof want / sizeof *want);
    for (int64_t i = 0; i < o->n_sums; i++) {
        assert_true(o->sums[i] == 4.0 * want[i] && o->sums[o->n_sums + i] == want[i]);
    }
    lvni_optim_destroy(o);
}

TEST(ranges_lie_on_borders)
{
    const lvni_optim_range bad[] = {
        {16, 4096}, {0, 4112}, {-4096, 4096}, {8192, 4096}, {0, 1 << 20}};
    const lvni_optim_parameter p = {
        .name = "x", .n = 10000, .ndim = 2, .lr_scale = 1, .decay_scale = 1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lvni_optim *o;
        assert_int_equal(lvni_optim_create(&kinds[0], 10000, &bad[i], &p, 1, &o), LVN_ERR_INVALID);
        assert_null(o);
    }
    const lvni_optim_range none = {8192, 8192}; /* as where there are more ranks than blocks */
    lvni_optim *o;
    float one = 1.0f;
    assert_int_equal(lvni_optim_create(&kinds[1], 10000, &none, &p, 1, &o), LVN_OK);
    lvni_optim_step_range(o, 0, none, &one, &one, 1.0, 1.0);
    assert_true(one == 1.0f);
    lvni_optim_destroy(o);
    const lvni_optim_options adafactor = {.kind = LVNI_OPTIM_ADAFACTOR};
    const lvni_optim_range half = {0, 4096}; /* rows and columns are whole */
    assert_int_equal(lvni_optim_create(&adafactor, 10000, &half, &p, 1, &o), LVN_ERR_UNSUPPORTED);
}
