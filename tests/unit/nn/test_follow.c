/* Modules that follow another: what were parameters are buffers, whatever is built around them;
 * gradients, blocks, files; and what is refused, of numbers, too. (How they move in a run:
 * tests/unit/trainer/test_buffer_rules.c.) */
#include "autograd/tape.h"
#include "kernels/kernels.h"
#include "nn/model.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

typedef struct part {
    lvn_module base;
    lvn_module *conv, *norm;
} part;

static lvn_status part_build(lvn_module *module, lvn_builder *b)
{
    part *m = (part *)module;
    lvn_builder_block(b, "first");
    m->conv = lvn_nn_conv2d(b, "conv", 2, 3, 3, .padding = 1);
    lvn_builder_block(b, "second");
    m->norm = lvn_nn_batch_norm(b, "norm", 3, 0.1);
    return lvn_builder_status(b);
}

static lvn_tensor *part_forward(const lvn_module *module, lvn_tensor *x)
{
    const part *m = (const part *)module;
    return lvn_forward(m->norm, lvn_forward(m->conv, x));
}

static const lvn_module_class part_class = {
    .name = "part", .size = sizeof(part), .build = part_build, .forward = part_forward};

typedef struct net {
    lvn_module base;
    lvn_module *stem, *teacher, *student, *head;
} net;

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    net *m = (net *)module;
    m->stem = lvn_nn_linear(b, "stem", 2, 2);
    m->teacher = lvn_builder_child(b, &part_class, "teacher"); /* before its leader */
    m->student = lvn_builder_child(b, &part_class, "student");
    lvn_builder_follow(b, m->teacher, m->student);
    m->head = lvn_nn_linear(b, "head", 3, 1);
    return lvn_builder_status(b);
}

static const lvn_module_class net_class = {.name = "net", .size = sizeof(net), .build = net_build};

static lvni_nn_model *make(void)
{
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(&net_class, NULL, 3, &m), LVN_OK);
    return m;
}

static const lvn_buffer *buffer(const lvni_nn_model *m, const char *name)
{
    for (int i = 0; i < m->n_buffers; i++) {
        if (strcmp(m->buffers[i]->name, name) == 0) {
            return m->buffers[i];
        }
    }
    fail_msg("no buffer %s", name);
    return NULL;
}

TEST(parameters_become_buffers)
{
    static const char *const names[] = {
        "stem.weight",         "stem.bias",         "student.conv.weight", "student.conv.bias",
        "student.norm.weight", "student.norm.bias", "head.weight",         "head.bias"};
    lvni_nn_model *m = make();
    assert_int_equal(m->n_parameters, 8);
    for (int i = 0; i < 8; i++) {
        assert_string_equal(m->parameters[i].name, names[i]);
        assert_int_equal(m->parameters[i].tensor->param, i);
        assert_true(m->parameters[i].tensor->requires_grad);
        assert_ptr_equal(m->parameters[i].tensor->data, m->weights + m->offset[i]);
    }
    static const char *const followers[] = {"conv.weight", "conv.bias",         "norm.weight",
                                            "norm.bias",   "norm.running_mean", "norm.running_var"};
    for (int i = 0; i < 6; i++) {
        char name[64];
        snprintf(name, sizeof name, "teacher.%s", followers[i]);
        const lvn_buffer *b = buffer(m, name);
        assert_int_equal(b->rule, LVNI_RULE_FOLLOW);
        assert_false(b->tensor->requires_grad);
        assert_true(b->value_offset >= m->n_averaged);
        assert_string_equal(b->follow.name + strlen("student."), followers[i]);
        assert_memory_equal(b->tensor->data, m->weights + b->follow.offset,
                            (size_t)b->numel * sizeof(float));
    }
    /* blocks are in the order of their parameters, those of the teacher without any */
    assert_int_equal(m->n_blocks, 5);
    for (int i = 1; i < 5; i++) {
        assert_true(m->blocks[i].begin == m->blocks[i - 1].end && m->blocks[i].begin % 4096 == 0);
    }
    assert_true(m->blocks[1].begin == m->blocks[1].end);
    assert_string_equal(m->blocks[3].name, "student.first");
    assert_true(m->blocks[3].begin == m->offset[2] && m->blocks[4].begin == m->offset[4]);
    lvni_nn_model_destroy(m);
}

/* The whole module in few calls of the kernel: neighbours in memory as their leaders are. */
TEST(all_of_a_module_moves)
{
    lvni_nn_model *m = make();
    const lvn_step_average given[LVN_STEP_FOLLOWS] = {{.factor = 0.25}};
    for (int64_t i = 0; i < m->n_weights; i++) {
        m->weights[i] += 1.0f;
    }
    const lvn_buffer *mean = buffer(m, "student.norm.running_mean");
    for (int64_t i = 0; i < mean->numel; i++) {
        m->weights[mean->value_offset + i] += 1.0f;
    }
    float before[64];
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_buffer *b = m->buffers[i];
        const uint64_t version = b->tensor->version;
        memcpy(before, b->tensor->data, (size_t)b->numel * sizeof *before);
        if (b->rule != LVNI_RULE_FOLLOW) {
            continue;
        }
        const bool moves = strcmp(b->name, "teacher.norm.running_var") != 0;
        lvni_nn_model_follow(m, 0, given, NULL);
        for (int64_t k = 0; k < b->numel; k++) {
            const double gap = (double)m->weights[b->follow.offset + k] - (double)before[k],
                         went = (double)LVNI_F32(b->tensor)[k] - (double)before[k];
            assert_true(went > 0.2499 * gap && went < 0.2501 * gap ? moves : !moves && went == 0.0);
        }
        assert_true(b->tensor->version != version); /* reordered copies are out of date */
    }
    lvni_nn_model_destroy(m);
}

/* A loss of the teacher's output has nothing to train; input that requires a gradient gets none
 * through it. */
TEST(no_gradient_is_recorded)
{
    lvni_nn_model *m = make();
    const net *n = (const net *)m->root;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *x = lvn_require_grad(lvn_zeros(LVN_F32, LVN_SHAPE(2, 4, 4, 2)));
    lvn_tensor *taught = lvn_forward(n->teacher, x), *own = lvn_forward(n->student, x);
    lvn_tensor *inside = lvn_forward(((const part *)n->teacher)->conv, x);
    assert_non_null(taught);
    assert_false(lvni_autograd_records(&taught, 1));
    assert_false(lvni_autograd_records(&inside, 1));
    assert_true(lvni_autograd_records(&own, 1));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvni_nn_model_destroy(m);
}

/* ---- what is refused ---- */

static int trouble;
static lvn_status other_build(lvn_module *module, lvn_builder *b)
{
    (void)module;
    lvn_nn_linear(b, "small", 3, 1);
    return lvn_builder_status(b);
}

static const lvn_module_class other_class = {
    .name = "other", .size = sizeof(lvn_module), .build = other_build};

static lvn_status bad_build(lvn_module *module, lvn_builder *b)
{
    lvn_module *a = lvn_nn_linear(b, "a", 2, 2), *c = lvn_nn_linear(b, "c", 3, 2),
               *other = lvn_builder_child(b, &other_class, "other"),
               *drop = lvn_nn_dropout(b, "drop", 0.5), *d = lvn_nn_linear(b, "d", 2, 2);
    switch (trouble) {
    case 0: lvn_builder_follow(b, c, a); break;
    case 1: lvn_builder_follow(b, other, a); break;
    case 2: lvn_builder_follow(b, drop, a); break;
    case 3: lvn_builder_follow(b, a, a); break;
    case 4: lvn_builder_follow(b, module, a); break;
    case 5: lvn_builder_follow(b, a, NULL); break;
    case 6: lvn_builder_follow(b, a, d, .momentum = 1.5); break;
    case 7:
        lvn_builder_follow(b, a, d);
        lvn_builder_follow(b, lvn_nn_linear(b, "e", 2, 2), a);
        break;
    default: break;
    }
    return lvn_builder_status(b);
}

TEST(what_cannot_follow_is_refused)
{
    static const char *const want[] = {
        "c.weight (2, 3) cannot follow a.weight (2, 2): their shapes",
        "other.small.weight cannot follow a.small.weight: no parameter",
        "the module drop has no parameters to follow a with",
        "the module a cannot follow a, which is a part of it",
        "the module (root) cannot follow a, which is a part of it",
        "was given NULL as a module",
        "a momentum from 1.5 to 0",
        "e.weight cannot follow a.weight: no parameter or mean"};
    static const lvn_module_class bad = {
        .name = "bad", .size = sizeof(lvn_module), .build = bad_build};
    for (trouble = 0; trouble < 8; trouble++) {
        lvni_nn_model *m;
        assert_int_equal(lvni_nn_model_build(&bad, NULL, 1, &m), LVN_ERR_INVALID);
        if (strstr(lvn_last_error()->message, want[trouble]) == NULL) {
            fail_msg("%d: %s", trouble, lvn_last_error()->message);
        }
    }
}

static const lvn_stair good_stairs[LVN_MAX_STAIRS + 1] = {{0, 1.0}};

static void number_of_stairs(lvn_builder *b, const lvn_stair *stair, int n)
{
    lvn_builder_number(b, "n", .curve = LVN_CURVE_STAIRS, .stair = stair, .n_stairs = n);
}

static lvn_status numbers_build(lvn_module *module, lvn_builder *b)
{
    (void)module;
    lvn_builder_number(b, "ok", .from = 1.0);
    switch (trouble) {
    case 0: lvn_builder_number(b, "ok"); break;
    case 1: lvn_builder_number(b, ""); break;
    case 2: lvn_builder_number(b, "a_name_of_more_than_31_characters"); break;
    case 3: lvn_builder_number(b, "n", .to = 1.0 / 0.0); break;
    case 4: lvn_builder_number(b, "n", .steps = 3, .epochs = 1); break;
    case 5: lvn_builder_number(b, "n", .steps = -3); break;
    case 6: lvn_builder_number(b, "n", .curve = (lvn_curve)5); break;
    case 7: number_of_stairs(b, NULL, 1); break;
    case 8: number_of_stairs(b, good_stairs, 0); break;
    case 9: number_of_stairs(b, good_stairs, LVN_MAX_STAIRS + 1); break;
    case 10: number_of_stairs(b, (const lvn_stair[]){{3, 1.0}, {3, 2.0}}, 2); break;
    case 11: number_of_stairs(b, (const lvn_stair[]){{-1, 1.0}}, 1); break;
    case 12: number_of_stairs(b, (const lvn_stair[]){{0, 1.0}, {4, 1.0 / 0.0}}, 2); break;
    case 13: lvn_builder_number(b, "n", .curve = LVN_CURVE_RAMP, .begin = -1); break;
    case 14: lvn_builder_number(b, "n", .curve = LVN_CURVE_RAMP, .rise = 1.0 / 0.0); break;
    default:
        for (char name[] = "a"; name[0] < 'q'; name[0]++) {
            lvn_builder_number(b, name);
        }
    }
    return lvn_builder_status(b);
}

TEST(numbers_are_checked)
{
    static const char *const want[] = {"the number ok is there twice",
                                       "a number needs a name of 1 to 31 characters",
                                       "a number needs a name of 1 to 31",
                                       "the number n goes from 0 to inf",
                                       "n has steps=3 and epochs=1",
                                       "n has steps=-3 and epochs=0",
                                       "n has the curve 5",
                                       "n has no stairs: .stair is NULL",
                                       "n has 0 stairs: it can have 1 to 16",
                                       "n has 17 stairs: it can have 1 to 16",
                                       "n has 2 from epoch 3 on",
                                       "n has 1 from epoch -1 on",
                                       "n has inf from epoch 4 on",
                                       "n rises by 0 after epoch -1",
                                       "n rises by inf after epoch 0",
                                       "the number p: a model can have 16"};
    static const lvn_module_class numbers = {
        .name = "numbers", .size = sizeof(lvn_module), .build = numbers_build};
    for (trouble = 0; trouble < 16; trouble++) {
        lvni_nn_model *m;
        assert_int_equal(lvni_nn_model_build(&numbers, NULL, 1, &m), LVN_ERR_INVALID);
        if (strstr(lvn_last_error()->message, want[trouble]) == NULL) {
            fail_msg("%d: %s", trouble, lvn_last_error()->message);
        }
    }
}

static lvn_status momentum_build(lvn_module *module, lvn_builder *b)
{
    (void)module;
    const lvn_number *good = lvn_builder_number(b, "good", .from = 1.0),
                     *bad = lvn_builder_number(b, "bad", .from = 0.5, .to = 1.5);
    lvn_buffer *mean = lvn_builder_buffer(b, "mean", LVN_SHAPE(1), 0.0, 0.5),
               *bank = lvn_builder_queue(b, "bank", 2, 2);
    lvn_builder_momentum(b, mean, good);
    switch (trouble) {
    case 0: lvn_builder_momentum(b, NULL, good); break;
    case 1: lvn_builder_momentum(b, mean, NULL); break;
    case 2: lvn_builder_momentum(b, bank, good); break;
    default: lvn_builder_momentum(b, mean, bad);
    }
    return lvn_builder_status(b);
}

TEST(momentum_is_checked)
{
    static const char *const want[] = {"lvn_builder_momentum was given NULL as the buffer",
                                       "lvn_builder_momentum was given NULL as the number",
                                       "bank is not a buffer of lvn_builder_buffer",
                                       "the momentum of the buffer mean goes from 0.5 to 1.5"};
    static const lvn_module_class cls = {
        .name = "momentum", .size = sizeof(lvn_module), .build = momentum_build};
    for (trouble = 0; trouble < 4; trouble++) {
        lvni_nn_model *m;
        assert_int_equal(lvni_nn_model_build(&cls, NULL, 1, &m), LVN_ERR_INVALID);
        if (strstr(lvn_last_error()->message, want[trouble]) == NULL) {
            fail_msg("%d: %s", trouble, lvn_last_error()->message);
        }
    }
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}
