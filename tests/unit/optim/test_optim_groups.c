/* Patterns over names; what frozen, slower and undecayed parameters become; and that cutting the
 * flat buffer into parameters changes no bit where their settings are equal. */
#include "core/rng.h"
#include "kernels/flat.h"
#include "kernels/kernels.h"
#include "optim_support.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 5, FLAT = 20000, STEPS = 4 };

static const char *const names[N] = {"conv1.weight", "norm1.weight", "norm1.bias",
                                     "layer1.0.conv.weight", "head.weight"};
/* multiples of 16, none of 4096 */
static const int64_t begins[N + 1] = {0, 96, 112, 128, 13008, FLAT};
static const int axes[N] = {4, 1, 1, 4, 2};

static void fill_parameters(lvni_optim_parameter parameter[N])
{
    for (int i = 0; i < N; i++) {
        parameter[i] = (lvni_optim_parameter){
            .name = names[i], .begin = begins[i], .n = begins[i + 1] - begins[i], .ndim = axes[i]};
    }
}

TEST(patterns)
{
    static const struct {
        const char *pattern, *name;
        bool match;
    } row[] = {
        {"head", "head.weight", true},
        {"head.weight", "head.weight", true},
        {"head.w", "head.weight", false},
        {"hea", "head.weight", false},
        {"head.*", "head.weight", true},
        {"*", "head.weight", true},
        {"*.weight", "a.b.weight", true},
        {"*.bias", "a.b.weight", false},
        {"layer1.*", "layer1.0.conv.weight", true},
        {"layer1.*", "layer10.weight", false},
        {"layer1*", "layer10.weight", true},
        {"*.conv", "layer1.0.conv.weight", true},
        {"layer?.0", "layer1.0.conv.weight", true},
        {"layer?", "layer10.weight", false},
        {"*a*b*", "xxaxxbx", true},
        {"*a*b", "xaxbxab", true},
        {"*a*b", "xaxbxa", false},
        {"", "head.weight", false},
        {"head.weight.x", "head.weight", false},
        {"l*.0.*.weight", "layer1.0.conv.weight", true},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (lvni_optim_pattern_matches(row[i].pattern, row[i].name) != row[i].match) {
            fail_msg("%s and %s", row[i].pattern, row[i].name);
        }
    }
}

TEST(groups)
{
    lvni_optim_parameter p[N];
    fill_parameters(p);
    static const int blocks[N] = {0, 0, 0, 1, 2};
    for (int i = 0; i < N; i++) {
        p[i].block = blocks[i];
    }
    const char *const group[] = {"*:weight_decay=0.2:beta1=0.5",
                                 "conv1:lr=0.03:weight_decay=0:beta1=0:momentum=0.25",
                                 "head:lr=0:beta2=0.75"},
                      *const scale[] = {"conv1=2"},
                      *const until[] = {"conv1=7", "norm1.weight=1epoch", "norm1=3epochs"};
    const lvni_optim_rules r = {.decay_of = LVNI_DECAY_MATRICES,
                                .lr_scale = scale,
                                .n_lr_scale = 1,
                                .groups = group,
                                .n_groups = 3,
                                .lr = 0.01,
                                .weight_decay = 0.1,
                                .layer_decay = 0.5,
                                .freeze_until = until,
                                .n_freeze_until = 3,
                                .steps_per_epoch = 10};
    assert_int_equal(lvni_optim_rules_apply(&r, p, N), LVN_OK);
    const double rate[N] = {1.5, 0.25, 0.25, 0.5, 0.0}, decay[N] = {0, 0, 0, 2, 2};
    const int64_t thaw[N] = {7, 30, 30, 0, 0};
    for (int i = 0; i < N; i++) {
        assert_true(fabs(p[i].lr_scale - rate[i]) < 1e-15 &&
                    fabs(p[i].decay_scale - decay[i]) < 1e-15 && p[i].thaw == thaw[i] &&
                    !p[i].frozen);
        assert_true(p[i].own.has_beta1 && p[i].own.beta1 == (i == 0 ? 0.0 : 0.5));
        assert_true(p[i].own.has_momentum == (i == 0) &&
                    p[i].own.momentum == (i == 0 ? 0.25 : 0.0));
        assert_true(p[i].own.has_beta2 == (i == N - 1) &&
                    p[i].own.beta2 == (i == N - 1 ? 0.75 : 0.0));
    }
}

/* Of the rules which parameters have decay, by names of residual networks and transformers. */
TEST(what_has_decay)
{
    static const struct {
        const char *name;
        int ndim;
        bool norm, decays[5]; /* as `rules` below has them */
    } row[] = {{"conv1.weight", 4, false, {1, 1, 1, 1, 1}},
               {"bn1.weight", 1, true, {1, 0, 0, 0, 0}},
               {"bn1.bias", 1, true, {1, 0, 0, 0, 0}},
               {"fc.bias", 1, false, {1, 0, 0, 0, 0}},
               {"head.gain", 1, false, {1, 0, 0, 1, 1}},
               {"head.scale", 0, false, {1, 0, 0, 1, 1}},
               {"class_token", 3, false, {1, 1, 0, 1, 1}},
               {"student.mask_token", 2, false, {1, 1, 0, 1, 1}},
               {"encoder.pos_embedding", 3, false, {1, 1, 0, 1, 1}},
               {"blocks.0.ls1.gamma", 1, false, {1, 0, 0, 1, 0}},
               {"attn.relative_position_bias_table", 2, false, {1, 1, 0, 1, 1}},
               {"self_attention.in_proj_bias", 1, false, {1, 0, 0, 0, 0}},
               {"self_attention.in_proj_weight", 2, false, {1, 1, 1, 1, 1}},
               {"attn.query.weight", 2, false, {1, 1, 1, 1, 1}},
               {"tokens.proj.weight", 2, false, {1, 1, 1, 1, 1}},
               {"norm.table", 2, true, {1, 1, 0, 0, 0}}};
    static const lvni_optim_decay_of rules[] = {LVNI_DECAY_ALL, LVNI_DECAY_MATRICES,
                                                LVNI_DECAY_WEIGHTS, LVNI_DECAY_NOT_NORM_BIAS,
                                                LVNI_DECAY_NOT_NORM_BIAS_SCALE};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        for (int k = 0; k < 5; k++) {
            lvni_optim_parameter p = {
                .name = row[i].name, .n = 1, .ndim = row[i].ndim, .norm = row[i].norm};
            const lvni_optim_rules r = {.decay_of = rules[k]};
            assert_int_equal(lvni_optim_rules_apply(&r, &p, 1), LVN_OK);
            if (p.decay_scale != (row[i].decays[k] ? 1.0 : 0.0)) {
                fail_msg("%s by rule %d: %g", row[i].name, k, p.decay_scale);
            }
        }
    }
}

/* A backbone's last block has the whole rate, as have the heads behind it; numbers of DINOv2 (0.9,
 * and a fifth of it for the patches) with two layers. */
TEST(layer_decay_within_a_backbone)
{
    static const struct {
        const char *name;
        int block;
        double rate;
    } row[] = {{"student.backbone.cls_token", 0, 0.729},
               {"student.backbone.patch_embed.proj.weight", 0, 0.1458},
               {"student.backbone.patch_embed.proj.bias", 0, 0.1458},
               {"student.backbone.blocks.0.mlp.fc1.weight", 1, 0.81},
               {"student.backbone.blocks.1.ls1.gamma", 2, 0.9},
               {"student.backbone.norm.weight", 3, 1.0},
               {"student.projection_head.layers.0.weight", 4, 1.0},
               {"student.projection_head.last_layer.weight", 5, 1.0}};
    enum { ROWS = sizeof row / sizeof *row };
    lvni_optim_parameter p[ROWS];
    for (int whole = 0; whole < 2; whole++) { /* without the module `backbone` all blocks count */
        for (int i = 0; i < ROWS; i++) {
            const size_t from = whole && i < 6 ? strlen("student.backbone.") : 0;
            p[i] = (lvni_optim_parameter){
                .name = row[i].name + from, .n = 1, .ndim = 2, .block = row[i].block};
        }
        const char *const scale[] = {"*patch_embed=0.2"};
        const lvni_optim_rules r = {
            .layer_decay = 0.9, .lr = 0.01, .lr_scale = scale, .n_lr_scale = 1};
        assert_int_equal(lvni_optim_rules_apply(&r, p, ROWS), LVN_OK);
        for (int i = 0; i < ROWS; i++) {
            const double want = i == 7 ? 1.0 : row[i].rate * (whole ? i == 6 ? 0.9 : 0.81 : 1.0);
            if (fabs(p[i].lr_scale - want) > 1e-12) {
                fail_msg("%s: %g, not %g", p[i].name, p[i].lr_scale, want);
            }
        }
    }
}

TEST(layer_decay_needs_blocks)
{
    lvni_optim_parameter p[N];
    fill_parameters(p);
    lvni_optim_rules r = {.lr = 0.01, .layer_decay = 0.5};
    assert_int_equal(lvni_optim_rules_apply(&r, p, N), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "no blocks (lvn_builder_block)"));
    r.layer_decay = 1.0;
    assert_int_equal(lvni_optim_rules_apply(&r, p, N), LVN_OK);
}

TEST(refused_groups)
{
    static const struct {
        const char *group, *until, *message;
    } row[] = {
        {"head", NULL, "optim.groups: head is not PATTERN:KEY=NUMBER"},
        {":lr=1", NULL, "is not PATTERN:KEY=NUMBER"},
        {"head:lr", NULL, "is not PATTERN:KEY=NUMBER"},
        {"head:lr=", NULL, "is not PATTERN:KEY=NUMBER"},
        {"head:lr=-1", NULL, "is not PATTERN:KEY=NUMBER"},
        {"head:momentum=1", NULL, "is not PATTERN:KEY=NUMBER"},
        {"head:beta1=1.5", NULL, "is not PATTERN:KEY=NUMBER"},
        {"head:beta2=-0.5", NULL, "is not PATTERN:KEY=NUMBER"},
        {"head:beta=0.5", NULL, "is not PATTERN:KEY=NUMBER"},
        {"head:lr=1x", NULL, "is not PATTERN:KEY=NUMBER"},
        {"head:rate=1", NULL, "is not PATTERN:KEY=NUMBER"},
        {"hed:lr=1", NULL, "the nearest name is head"},
        {"head:weight_decay=1", NULL, "optim.weight_decay is 0"},
        {NULL, "head", "freeze_until: head is not PATTERN=STEPS"},
        {NULL, "head=", "is not PATTERN=STEPS"},
        {NULL, "head=5epoc", "is not PATTERN=STEPS"},
        {NULL, "head=-5", "is not PATTERN=STEPS"},
        {NULL, "hed=5", "the nearest name is head"},
        {NULL, "*=5", "all 5 parameters are frozen in the first step"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        lvni_optim_parameter p[N];
        fill_parameters(p);
        const lvni_optim_rules r = {.groups = &row[i].group,
                                    .n_groups = row[i].group != NULL,
                                    .freeze_until = &row[i].until,
                                    .n_freeze_until = row[i].until != NULL,
                                    .lr = 0.01,
                                    .steps_per_epoch = 10};
        if (lvni_optim_rules_apply(&r, p, N) != LVN_ERR_USAGE ||
            strstr(lvn_last_error()->message, row[i].message) == NULL) {
            fail_msg("row %d: %s", (int)i, lvn_last_error()->message);
        }
        const lvni_optim_rules held = {.lr_zero_until = &row[i].until, .n_lr_zero_until = 1};
        const bool fits = row[i].until == NULL || strcmp(row[i].until, "*=5") == 0;
        assert_true(fits || lvni_optim_rules_apply(&held, p, N) == LVN_ERR_USAGE);
    }
}

TEST(settings)
{
    lvni_optim_parameter p[N];
    fill_parameters(p);
    const char *const freeze[] = {"conv1", "norm1.*"};
    const char *const scale[] = {"*=0.5", "head=10", "layer1.*=0"};
    const lvni_optim_rules r = {.decay_of = LVNI_DECAY_MATRICES,
                                .freeze = freeze,
                                .n_freeze = 2,
                                .lr_scale = scale,
                                .n_lr_scale = 3};
    assert_int_equal(lvni_optim_rules_apply(&r, p, N), LVN_OK);
    const bool frozen[N] = {true, true, true, false, false};
    const double rate[N] = {0.5, 0.5, 0.5, 0.0, 10.0}, decay[N] = {1, 0, 0, 1, 1};
    for (int i = 0; i < N; i++) {
        assert_true(p[i].frozen == frozen[i] && p[i].lr_scale == rate[i] &&
                    p[i].decay_scale == decay[i]);
    }
}

static void assert_refused(const lvni_optim_rules *r, const char *part)
{
    lvni_optim_parameter p[N];
    fill_parameters(p);
    assert_int_equal(lvni_optim_rules_apply(r, p, N), LVN_ERR_USAGE);
    if (strstr(lvn_last_error()->message, part) == NULL) {
        fail_msg("%s", lvn_last_error()->message);
    }
}

TEST(mistakes)
{
    const char *const typo[] = {"conv1", "haed"}, *const deep[] = {"layer1.1.conv"},
                      *const all[] = {"*"};
    assert_refused(&(lvni_optim_rules){.freeze = typo, .n_freeze = 2},
                   "pattern haed; the nearest name is head");
    assert_refused(&(lvni_optim_rules){.freeze = deep, .n_freeze = 1},
                   "the nearest name is layer1.0.conv");
    assert_refused(&(lvni_optim_rules){.freeze = all, .n_freeze = 1},
                   "all 5 parameters are frozen");
    static const char *const bad[] = {"head",     "head=",    "=2",       "head=-1",   "head=2x",
                                      "head=nan", "head=inf", "head=0x2", "head=1e999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_refused(&(lvni_optim_rules){.lr_scale = &bad[i], .n_lr_scale = 1},
                       "is not PATTERN=FACTOR");
    }
    const char *const missing[] = {"convv1=2"};
    assert_refused(&(lvni_optim_rules){.lr_scale = missing, .n_lr_scale = 1},
                   "lr_scale: no parameter of the model is named by the pattern convv1; the "
                   "nearest name is conv1");
}

TEST(phases_name_parameters)
{
    lvni_optim_parameter p[N];
    const char *const two[] = {"head", "conv1,norm1.*,layer1", NULL};
    fill_parameters(p);
    assert_int_equal(lvni_optim_rules_apply(&(lvni_optim_rules){0}, p, N), LVN_OK);
    assert_int_equal(lvni_optim_count_phases(NULL), 1);
    assert_int_equal(lvni_optim_phases_apply(NULL, p, N), LVN_OK);
    for (int i = 0; i < N; i++) {
        assert_int_equal(p[i].phase, 0);
    }
    assert_int_equal(lvni_optim_count_phases(two), 2);
    assert_int_equal(lvni_optim_phases_apply(two, p, N), LVN_OK);
    for (int i = 0; i < N; i++) {
        assert_int_equal(p[i].phase, i == 4 ? 0 : 1);
    }
    assert_int_equal(lvni_optim_find_phase(two, 0, "norm1.running_mean"), 1);
    assert_int_equal(lvni_optim_find_phase(two, 0, "count"), -1);
    assert_int_equal(lvni_optim_find_phase(NULL, 0, "count"), -1);
}

TEST(mistakes_in_phases)
{
    static const struct {
        const char *phases[10];
        const char *freeze, *part;
    } row[] = {
        {{"head", "conv1,norm1"}, NULL, "the parameter layer1.0.conv.weight is in no phase"},
        {{"head", "*"}, NULL, "the parameter head.weight is in two phases of a step, head and *"},
        {{"haed", "conv1,norm1,layer1"},
         "head",
         "phases: no parameter of the model is named by the pattern haed; the nearest name is "
         "head"},
        {{"head", "conv1,norm1,layer1"}, "head", "the phase head of a step has nothing to train"},
        {{"a", "b", "c", "d", "e", "f", "g", "h", "i"}, NULL, "a step of 9 phases: it can have 8"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        lvni_optim_parameter p[N];
        fill_parameters(p);
        const lvni_optim_rules r = {.freeze = &row[i].freeze,
                                    .n_freeze = row[i].freeze != NULL ? 1 : 0};
        assert_int_equal(lvni_optim_rules_apply(&r, p, N), LVN_OK);
        assert_int_equal(lvni_optim_phases_apply(row[i].phases, p, N), LVN_ERR_USAGE);
        if (strstr(lvn_last_error()->message, row[i].part) == NULL) {
            fail_msg("%s", lvn_last_error()->message);
        }
    }
}

static void fill(float *x, const char *purpose, uint32_t step)
{
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(3, lvni_core_rng_purpose(purpose)),
                               .a = step};
    for (int i = 0; i < FLAT; i++) {
        x[i] = (float)lvni_core_rng_normal(&rng, (uint64_t)i);
    }
}

/* STEPS steps; w is filled first. */
static int run(const lvni_optim_options *options, const lvni_optim_parameter *parameter, int n,
               float *w)
{
    static float g[FLAT];
    lvni_optim *o;
    assert_int_equal(lvni_optim_create(options, FLAT, NULL, parameter, n, &o), LVN_OK);
    fill(w, "weights", 0);
    for (uint32_t t = 0; t < STEPS; t++) {
        fill(g, "gradient", t);
        lvni_optim_step(o, 0, w, g, options->lr, 0.5);
    }
    const int runs = o->n_runs;
    lvni_optim_destroy(o);
    return runs;
}

static const lvni_optim_options kinds[] = {
    {.kind = LVNI_OPTIM_SGD, .lr = 0.01, .weight_decay = 0.1, .momentum = 0.9, .nesterov = true},
    ADAM_OPTIONS(LVNI_OPTIM_ADAM),
    ADAM_OPTIONS(LVNI_OPTIM_ADAMW),
};

/* A group's part of the weights is what an optimizer with its numbers makes of them, all else as
 * without the group; a group with the optimizer's numbers is none. */
TEST(numbers_of_a_group)
{
    static float with[FLAT], without[FLAT], alone[FLAT];
    static const lvni_optim_options of[] = {
        ADAM_OPTIONS(LVNI_OPTIM_ADAM),
        ADAM_OPTIONS(LVNI_OPTIM_ADAMW),
        ADAM_OPTIONS(LVNI_OPTIM_LAMB),
        ADAM_OPTIONS(LVNI_OPTIM_LION),
        {.kind = LVNI_OPTIM_SGD, .lr = 0.01, .momentum = 0.9},
        {.kind = LVNI_OPTIM_LARS,
         .lr = 0.1,
         .weight_decay = 0.01,
         .momentum = 0.9,
         .trust_coefficient = 0.1},
        {.kind = LVNI_OPTIM_RMSPROP, .lr = 0.01, .momentum = 0.9, .alpha = 0.9, .eps = 1e-6}};
    static const lvni_optim_own own[] = {{.has_beta1 = true, .beta1 = 0.5},
                                         {.has_beta1 = true, .has_beta2 = true, .beta2 = 0.75},
                                         {.has_momentum = true, .momentum = 0.5},
                                         {.has_momentum = true}};
    for (size_t i = 0; i < 2 * sizeof of / sizeof *of; i++) {
        lvni_optim_options theirs = of[i / 2];
        const bool betas = lvni_optim_has_betas(&theirs);
        const lvni_optim_own *mine = &own[i % 2 + (betas ? 0 : 2)];
        lvni_optim_parameter p[N];
        fill_parameters(p);
        for (int k = 0; k < N; k++) {
            p[k].lr_scale = p[k].decay_scale = 1.0;
        }
        run(&of[i / 2], p, N, without);
        p[3].own = *mine;
        run(&of[i / 2], p, N, with);
        theirs.momentum = mine->has_momentum ? mine->momentum : theirs.momentum;
        theirs.beta1 = mine->has_beta1 ? mine->beta1 : theirs.beta1;
        theirs.beta2 = mine->has_beta2 ? mine->beta2 : theirs.beta2;
        p[3].own = (lvni_optim_own){0};
        run(&theirs, p, N, alone);
        for (int64_t k = 0; k < FLAT; k++) {
            const bool in = k >= begins[3] && k < begins[4];
            if (in ? !(fabsf(with[k] - alone[k]) < 1e-6f) : with[k] != without[k]) {
                fail_msg("%s %d: %.9g, %.9g alone, %.9g without", lvni_optim_name(theirs.kind),
                         (int)k, (double)with[k], (double)alone[k], (double)without[k]);
            }
        }
        assert_memory_not_equal(with + begins[3], without + begins[3], 4000);
        p[3].own = (lvni_optim_own){.has_momentum = !betas,
                                    .has_beta2 = betas,
                                    .momentum = betas ? 0.0 : of[i / 2].momentum,
                                    .beta2 = betas ? of[i / 2].beta2 : 0.0};
        run(&of[i / 2], p, N, with);
        assert_memory_equal(with, without, sizeof with);
    }
}

/* What a group's parameters become over the steps, against sums by hand: with a warm-up and a
 * cosine of the rate, a cosine of the decay, a factor on the rate, and a group that is held: its
 * momentum follows the gradient from the first step on, without decay, and its weights stay. */
TEST(rates_and_decay_of_groups_over_the_steps)
{
    enum { GROUPS = 3, RUN = 12, HELD = 4 };
    static const char *const group[GROUPS] = {"plain", "slow.bias", "last"};
    static const char *const until[] = {"last=4"}, *const scale[] = {"slow=0.25"};
    const double lr = 0.5, from = 0.04, to = 0.4, pi = 3.14159265358979323846;
    const lvni_optim_schedule schedule = {
        .kind = LVNI_SCHEDULE_COSINE, .warmup_steps = 3, .total_steps = RUN, .end_factor = 0.001};
    const lvni_optim_curve curve = {LVNI_CURVE_COSINE, from, to, RUN};
    const lvni_optim_options o = {
        .kind = LVNI_OPTIM_SGD, .lr = lr, .weight_decay = to, .momentum = 0.9};
    const lvni_optim_rules r = {.decay_of = LVNI_DECAY_NOT_NORM_BIAS,
                                .lr_scale = scale,
                                .n_lr_scale = 1,
                                .lr_zero_until = until,
                                .n_lr_zero_until = 1};
    lvni_optim_parameter p[GROUPS];
    float w[16 * GROUPS] = {0}, g[16 * GROUPS] = {0};
    double by_hand[GROUPS], momentum[GROUPS] = {0};
    for (int i = 0; i < GROUPS; i++) {
        p[i] = (lvni_optim_parameter){.name = group[i], .begin = 16 * i, .n = 1, .ndim = 2};
        w[16 * i] = 1.0f;
        by_hand[i] = 1.0;
    }
    lvni_optim *optim;
    assert_int_equal(lvni_optim_rules_apply(&r, p, GROUPS), LVN_OK);
    assert_int_equal(lvni_optim_create(&o, 16 * GROUPS, NULL, p, GROUPS, &optim), LVN_OK);
    for (int t = 0; t < RUN; t++) {
        const double rate = lr * (t < 3 ? (t + 1) / 3.0
                                        : 0.001 + 0.999 * (1 + cos(pi * (t - 3) / (RUN - 4))) / 2),
                     decay = to - (to - from) * (1 + cos(pi * t / (RUN - 1))) / 2;
        for (int i = 0; i < GROUPS; i++) {
            const bool held = i == 2 && t < HELD;
            const double gradient = (double)((7 * t + 3 * i) % 11 - 5) / 8;
            const double own = i == 1 || held ? 0.0 : decay;
            g[16 * i] = (float)gradient;
            momentum[i] = (t == 0 ? 0.0 : 0.9 * momentum[i]) + gradient + own * by_hand[i];
            by_hand[i] -= held ? 0.0 : rate * (i == 1 ? 0.25 : 1.0) * momentum[i];
        }
        lvni_optim_set_rates(optim, 0, t, &schedule, lvni_optim_curve_at(&curve, t) / to, 0.0);
        lvni_optim_step(optim, 0, w, g, lr * lvni_optim_schedule_factor(&schedule, t), 1.0);
        for (int i = 0; i < GROUPS; i++) {
            if (!(fabs((double)w[16 * i] - by_hand[i]) <= 1e-6) ||
                !(fabs((double)optim->slot[0][16 * i] - momentum[i]) <= 1e-6)) {
                fail_msg("step %d, %s: %.9g, by hand %.9g", t, group[i], (double)w[16 * i],
                         by_hand[i]);
            }
        }
        assert_true((w[16 * 2] == 1.0f) == (t < HELD));
    }
    lvni_optim_destroy(optim);
}

/* The rates of Lightning Pose's backbone: unfreezing_epoch 20, milestones 22 and 30, in epochs of 3
 * steps, against a loop that follows its callback. */
TEST(rates_that_grow_to_the_runs_own)
{
    enum { EPOCH = 3, EPOCHS = 40, UNFREEZING = 20 };
    static const char *const until[] = {"backbone=20epochs:0.1:1.5"};
    const lvni_optim_rules r = {
        .lr_zero_until = until, .n_lr_zero_until = 1, .steps_per_epoch = EPOCH};
    const lvni_optim_schedule schedule = {.kind = LVNI_SCHEDULE_MULTISTEP,
                                          .gamma = 0.5,
                                          .milestone = {22 * EPOCH, 30 * EPOCH},
                                          .n_milestones = 2};
    lvni_optim_hold hold;
    char pattern[LVNI_OPTIM_PATTERN];
    assert_int_equal(lvni_optim_rules_hold(&r, 0, pattern, &hold), LVN_OK);
    assert_string_equal(pattern, "backbone");
    double begin = 0.0, rate = 0.0;
    bool grown = false;
    int64_t changes = 0;
    for (int64_t t = 0; t < (int64_t)EPOCHS * EPOCH; t++) {
        const int64_t e = t / EPOCH;
        const double own = 1e-3 * (e >= 30 ? 0.25 : e >= 22 ? 0.5 : 1.0);
        begin = e == UNFREEZING ? 0.1 * own : begin;
        const double grows = begin * pow(1.5, (double)(e - UNFREEZING));
        rate = e < UNFREEZING ? 0.0 : grown || grows >= own ? own : grows;
        grown = grown || (e >= UNFREEZING && rate == own);
        const double factor = lvni_optim_hold_factor(&hold, &schedule, t);
        assert_true(fabs(own * factor - rate) <= 1e-15);
        if (t < (int64_t)EPOCHS * EPOCH - 1) {
            const bool differs = lvni_optim_hold_factor(&hold, &schedule, t + 1) != factor;
            assert_true(differs == (lvni_optim_hold_next(&hold, &schedule, t) == t + 1));
            changes += differs ? 1 : 0;
        }
    }
    assert_int_equal(changes, 5); /* 0.1, 0.15, 0.45, 0.675, 1 of the rate, which is halved at 22 */
}

TEST(growth_is_refused)
{
    static const char *const bad[] = {"backbone=20epochs:0.1",     "backbone=20epochs:0:1.5",
                                      "backbone=20epochs:1.5:1.5", "backbone=20epochs:0.1:1",
                                      "backbone=20epochs:0.1:inf", "backbone=20epoc:0.1:1.5",
                                      "backbone=20:0.1:1.5:2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const lvni_optim_rules r = {
            .lr_zero_until = &bad[i], .n_lr_zero_until = 1, .steps_per_epoch = 1};
        lvni_optim_hold hold;
        char pattern[LVNI_OPTIM_PATTERN];
        assert_int_equal(lvni_optim_rules_hold(&r, 0, pattern, &hold), LVN_ERR_USAGE);
        assert_non_null(strstr(lvn_last_error()->message, bad[i]));
    }
}

TEST(more_steps_than_are_counted_are_refused)
{
    static const char *const row = "backbone=999999999999epochs";
    const lvni_optim_rules r = {
        .lr_zero_until = &row, .n_lr_zero_until = 1, .steps_per_epoch = 1000000000};
    lvni_optim_hold hold;
    char pattern[LVNI_OPTIM_PATTERN];
    assert_int_equal(lvni_optim_rules_hold(&r, 0, pattern, &hold), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "more steps than are counted"));
}

TEST(groups_fit_their_optimizer)
{
    static const struct {
        lvni_optim_options options;
        lvni_optim_own own;
        const char *message;
    } row[] = {
        {{.kind = LVNI_OPTIM_SGD},
         {.has_beta1 = true},
         "head.weight its own beta1, and its "
         "optimizer, sgd, has none: adam"},
        {{.kind = LVNI_OPTIM_ADAFACTOR},
         {.has_beta2 = true},
         "beta2, and its optimizer, adafactor"},
        {{.kind = LVNI_OPTIM_ADAM}, {.has_momentum = true}, "momentum, and its optimizer, adam"},
        {{.kind = LVNI_OPTIM_RMSPROP},
         {.has_momentum = true, .momentum = 0.5},
         "and that of its optimizer, rmsprop, is 0"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        lvni_optim_options all[LVNI_PHASES];
        lvni_optim_parameter p[N];
        lvni_optim *o;
        for (int k = 0; k < LVNI_PHASES; k++) {
            all[k] = k == 3 ? row[i].options : kinds[0];
        }
        fill_parameters(p);
        p[N - 1].phase = 3;
        assert_int_equal(lvni_optim_check_groups(all, p, N), LVN_OK);
        p[N - 1].own = row[i].own;
        if (lvni_optim_create_phases(all, FLAT, NULL, p, N, &o) != LVN_ERR_USAGE ||
            strstr(lvn_last_error()->message, row[i].message) == NULL) {
            fail_msg("row %d: %s", (int)i, lvn_last_error()->message);
        }
        p[N - 1].frozen = true;
        assert_int_equal(lvni_optim_check_groups(all, p, N), LVN_OK);
    }
}

TEST(equal_settings_are_one_run_and_the_same_bits)
{
    static float whole[FLAT], cut[FLAT];
    lvni_optim_parameter p[N];
    fill_parameters(p);
    const lvni_optim_parameter one = {
        .name = "all", .n = FLAT, .ndim = 2, .lr_scale = 1, .decay_scale = 1};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        assert_int_equal(run(&kinds[k], &one, 1, whole), 1);
        assert_int_equal(lvni_optim_rules_apply(&(lvni_optim_rules){0}, p, N), LVN_OK);
        assert_int_equal(run(&kinds[k], p, N, cut), 1);
        assert_memory_equal(whole, cut, sizeof whole);
        const char *const same[] = {"norm1=0.5"}; /* others in between: the rest keeps its bits */
        const lvni_optim_rules r = {.lr_scale = same, .n_lr_scale = 1};
        assert_int_equal(lvni_optim_rules_apply(&r, p, N), LVN_OK);
        assert_int_equal(run(&kinds[k], p, N, cut), 3);
        assert_memory_equal(whole, cut, (size_t)begins[1] * sizeof *cut);
        assert_memory_equal(whole + begins[3], cut + begins[3],
                            (size_t)(FLAT - begins[3]) * sizeof *cut);
        assert_memory_not_equal(whole + begins[1], cut + begins[1],
                                (size_t)(begins[3] - begins[1]) * sizeof *cut);
    }
}

TEST(frozen_stay_and_rates_scale)
{
    static float w[FLAT], first[FLAT], slow[FLAT];
    lvni_optim_parameter p[N];
    fill_parameters(p);
    const char *const freeze[] = {"norm1", "layer1"}, *const scale[] = {"head=0.5"};
    const lvni_optim_rules r = {
        .freeze = freeze, .n_freeze = 2, .lr_scale = scale, .n_lr_scale = 1};
    assert_int_equal(lvni_optim_rules_apply(&r, p, N), LVN_OK);
    fill(first, "weights", 0);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        assert_int_equal(run(&kinds[k], p, N, w), 2);
        assert_memory_equal(w + begins[1], first + begins[1],
                            (size_t)(begins[4] - begins[1]) * sizeof *w);
        lvni_optim_options half = kinds[k];
        half.lr *= 0.5;
        const lvni_optim_parameter one = {
            .name = "all", .n = FLAT, .ndim = 2, .lr_scale = 1, .decay_scale = 1};
        run(&half, &one, 1, slow);
        assert_memory_equal(w + begins[4], slow + begins[4],
                            (size_t)(FLAT - begins[4]) * sizeof *w);
        assert_memory_not_equal(w, slow, (size_t)begins[1] * sizeof *w);
    }
}

/* Phase after phase is what one step of everything is, as long as none is left out; then each
 * counts its own updates. */
TEST(phases_step_by_themselves)
{
    static float whole[FLAT], w[FLAT], g[FLAT], alone[FLAT];
    const char *const phases[] = {"conv1,norm1", "layer1,head", NULL};
    lvni_optim_parameter p[N];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        lvni_optim *o;
        fill_parameters(p);
        assert_int_equal(lvni_optim_rules_apply(&(lvni_optim_rules){0}, p, N), LVN_OK);
        run(&kinds[k], p, N, whole);
        assert_int_equal(lvni_optim_phases_apply(phases, p, N), LVN_OK);
        assert_int_equal(lvni_optim_create(&kinds[k], FLAT, NULL, p, N, &o), LVN_OK);
        assert_int_equal(o->n_runs, 2);
        fill(w, "weights", 0);
        for (uint32_t t = 0; t < STEPS; t++) {
            fill(g, "gradient", t);
            memcpy(alone, w, sizeof w);
            lvni_optim_step(o, 1, w, g, kinds[k].lr, 0.5);
            assert_memory_equal(w, alone, (size_t)begins[3] * sizeof *w);
        }
        assert_memory_equal(w + begins[3], whole + begins[3],
                            (size_t)(FLAT - begins[3]) * sizeof *w);
        assert_true(o->steps[0] == 0 && o->steps[1] == STEPS);
        for (uint32_t t = 0; t < STEPS; t++) {
            /* its first steps come late: bias corrections and momentum begin here */
            fill(g, "gradient", t);
            lvni_optim_step(o, 0, w, g, kinds[k].lr, 0.5);
        }
        assert_memory_equal(w, whole, sizeof w);
        lvni_optim_destroy(o);
    }
}

/* The rate of a tensor follows from it and its place in a block alone, wherever that block is. */
TEST(lars_knows_no_blocks_before)
{
    enum { LONG = 9000, FAR = 2 * LVNI_FLAT_BLOCK };
    static float a[FLAT], b[FLAT], ga[FLAT], gb[FLAT];
    const lvni_optim_options options = {.kind = LVNI_OPTIM_LARS,
                                        .lr = 1,
                                        .weight_decay = 0.01,
                                        .momentum = 0.9,
                                        .trust_coefficient = 0.01};
    const lvni_optim_parameter here = {
        .name = "x", .n = LONG, .ndim = 2, .lr_scale = 1, .decay_scale = 1};
    lvni_optim_parameter there = here;
    there.begin = FAR;
    lvni_optim *o, *p;
    assert_int_equal(lvni_optim_create(&options, FLAT, NULL, &here, 1, &o), LVN_OK);
    assert_int_equal(lvni_optim_create(&options, FLAT, NULL, &there, 1, &p), LVN_OK);
    fill(a, "weights", 0);
    memcpy(b + FAR, a, LONG * sizeof *a);
    for (uint32_t t = 0; t < STEPS; t++) {
        fill(ga, "gradient", t);
        memcpy(gb + FAR, ga, LONG * sizeof *ga);
        lvni_optim_step(o, 0, a, ga, 1.0, 0.5);
        lvni_optim_step(p, 0, b, gb, 1.0, 0.5);
        assert_memory_equal(b + FAR, a, LONG * sizeof *a);
    }
    lvni_optim_destroy(o);
    lvni_optim_destroy(p);
}

/* A tensor of zeros, or without a gradient, moves as under sgd without decay, instead of never or
 * by NaN. */
TEST(lars_without_a_norm)
{
    const lvni_optim_options options = {.kind = LVNI_OPTIM_LARS,
                                        .lr = 0.5,
                                        .weight_decay = 0.1,
                                        .trust_coefficient = 0.001,
                                        .eps = 1e-8};
    const lvni_optim_parameter p = {
        .name = "x", .n = 2, .ndim = 2, .lr_scale = 1, .decay_scale = 1};
    float w[2] = {0}, g[2] = {1.0f, -2.0f};
    lvni_optim *o;
    assert_int_equal(lvni_optim_create(&options, 2, NULL, &p, 1, &o), LVN_OK);
    lvni_optim_step(o, 0, w, g, 0.5, 1.0);
    assert_true(w[0] == -0.5f && w[1] == 1.0f);
    g[0] = g[1] = 0.0f;
    lvni_optim_step(o, 0, w, g, 0.5, 1.0);
    assert_true(w[0] == -0.5f && w[1] == 1.0f);
    g[0] = 1e-44f;
    lvni_optim_step(o, 0, w, g, 0.5, 1e-8);
    assert_true(isfinite(w[0]) && isfinite(w[1]));
    lvni_optim_destroy(o);
}

/* Two tensors, of which one has no decay: that is sgd's to the bit, momentum and all; the other
 * one's first step is that of the formula. */
TEST(lars_adapts_what_has_decay)
{
    enum { EACH = 4096 };
    static float w[2 * EACH], g[2 * EACH], begin[2 * EACH], plain[2 * EACH];
    const lvni_optim_options lars = {.kind = LVNI_OPTIM_LARS,
                                     .lr = 0.5,
                                     .weight_decay = 0.1,
                                     .momentum = 0.9,
                                     .trust_coefficient = 0.02,
                                     .eps = 0.25},
                             sgd = {.kind = LVNI_OPTIM_SGD, .lr = 0.5, .momentum = 0.9};
    const lvni_optim_parameter p[2] = {
        {.name = "a", .n = EACH, .ndim = 2, .lr_scale = 1},
        {.name = "b", .begin = EACH, .n = EACH, .ndim = 2, .lr_scale = 1, .decay_scale = 1}};
    lvni_optim *o, *other;
    assert_int_equal(lvni_optim_create(&lars, 2 * EACH, NULL, p, 2, &o), LVN_OK);
    assert_int_equal(lvni_optim_create(&sgd, 2 * EACH, NULL, p, 2, &other), LVN_OK);
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(3, 4)};
    for (int i = 0; i < 2 * EACH; i++) {
        w[i] = plain[i] = begin[i] = (float)lvni_core_rng_normal(&rng, (uint64_t)i);
    }
    for (int t = 0; t < 3; t++) {
        double of_w = 0.0, of_g = 0.0;
        for (int i = 0; i < 2 * EACH; i++) {
            g[i] = (float)lvni_core_rng_normal(&rng, (uint64_t)i + (uint64_t)(t + 1) * 2 * EACH);
            of_w += i < EACH ? 0.0 : (double)w[i] * (double)w[i];
            of_g += i < EACH ? 0.0 : (double)g[i] * (double)g[i];
        }
        lvni_optim_step(o, 0, w, g, 0.5, 1.0);
        lvni_optim_step(other, 0, plain, g, 0.5, 1.0);
        assert_memory_equal(w, plain, EACH * sizeof *w);
        const double trust = 0.02 * sqrt(of_w) / (sqrt(of_g) + 0.1 * sqrt(of_w) + 0.25);
        for (int i = EACH; t == 0 && i < 2 * EACH; i++) {
            const double want =
                (double)begin[i] - 0.5 * trust * ((double)g[i] + 0.1 * (double)begin[i]);
            assert_true(fabs((double)w[i] - want) <= 1e-6);
        }
    }
    lvni_optim_destroy(o);
    lvni_optim_destroy(other);
}

/* All but the last layer; a module of this name, where there is one. */
TEST(backbone_is_all_but_the_last_layer)
{
    static const char *const backbone[] = {"backbone"}, *const until[] = {"backbone=7"},
                             *const scale[] = {"backbone=0.5"};
    static const struct {
        const char *names[N];
        bool frozen[N];
    } row[] = {
        {{"conv1.weight", "bn1.weight", "bn1.bias", "fc.weight", "fc.bias"}, {1, 1, 1, 0, 0}},
        {{"a.weight", "heads.norm.weight", "heads.norm.bias", "heads.head.weight",
          "heads.head.bias"},
         {1, 1, 1, 0, 0}},
        {{"backbone.weight", "backbone.bias", "neck.weight", "neck.bias", "head.weight"},
         {1, 1, 0, 0, 0}},
        {{"neck.weight", "backbone_of.weight", "x.backbone.bias", "head.weight", "head.bias"},
         {1, 1, 1, 0, 0}},
    };
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        lvni_optim_parameter p[N];
        fill_parameters(p);
        for (int i = 0; i < N; i++) {
            p[i].name = row[k].names[i];
        }
        const lvni_optim_rules freeze = {.freeze = backbone, .n_freeze = 1};
        assert_int_equal(lvni_optim_rules_apply(&freeze, p, N), LVN_OK);
        for (int i = 0; i < N; i++) {
            assert_int_equal(p[i].frozen, row[k].frozen[i]);
        }
        const lvni_optim_rules thaw = {
            .freeze_until = until, .n_freeze_until = 1, .lr_scale = scale, .n_lr_scale = 1};
        assert_int_equal(lvni_optim_rules_apply(&thaw, p, N), LVN_OK);
        for (int i = 0; i < N; i++) {
            assert_int_equal(p[i].thaw, row[k].frozen[i] ? 7 : 0);
            assert_true(p[i].lr_scale == (row[k].frozen[i] ? 0.5 : 1.0));
        }
    }
    lvni_optim_parameter one[2] = {{.name = "fc.weight", .ndim = 2},
                                   {.name = "fc.bias", .ndim = 1}};
    assert_int_equal(
        lvni_optim_rules_apply(&(lvni_optim_rules){.freeze = backbone, .n_freeze = 1}, one, 2),
        LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "the model has no others"));
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}
