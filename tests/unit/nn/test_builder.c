/* Building: names, initial values, what is refused, memory that fails; and what lvn_forward gives
 * the code inside. */
#include "core/alloc.h"
#include "kernels/kernels.h"
#include "nn/model.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A module whose build() is one of many. */
typedef struct probe {
    lvn_module base;
    lvn_module *child;
} probe;

static lvn_status (*build_now)(probe *m, lvn_builder *b);

static lvn_status probe_build(lvn_module *module, lvn_builder *b)
{
    return build_now((probe *)module, b);
}

static char seen_path[64];

static lvn_tensor *probe_forward(const lvn_module *module, lvn_tensor *x)
{
    const probe *m = (const probe *)module;
    x = lvn_forward(m->child, x);
    /* restored after the child */
    snprintf(seen_path, sizeof seen_path, "%s", lvni_tensor_ctx_get()->module_path);
    return x;
}

static const lvn_module_class probe_class = {
    .name = "probe", .size = sizeof(probe), .build = probe_build, .forward = probe_forward};

static lvn_status build(lvn_status (*how)(probe *m, lvn_builder *b), uint64_t seed,
                        lvni_nn_model **out)
{
    build_now = how;
    lvn_clear_error();
    return lvni_nn_model_build(&probe_class, NULL, seed, out);
}

static void assert_text_has(const char *text)
{
    if (strstr(lvn_last_error()->message, text) == NULL) {
        fail_msg("the error should speak of \"%s\": %s", text, lvn_last_error()->message);
    }
}

/* ---- refusals ---- */

static lvn_status same_parameter_twice(probe *m, lvn_builder *b)
{
    (void)m;
    lvn_builder_parameter(b, "scale", 1, (const int64_t[]){3}, LVN_INIT_ONES, 0);
    lvn_builder_parameter(b, "scale", 1, (const int64_t[]){4}, LVN_INIT_ONES, 0);
    return lvn_builder_status(b);
}

static lvn_status same_child_twice(probe *m, lvn_builder *b)
{
    m->child = lvn_nn_linear(b, "head", 3, 4);
    assert_null(lvn_nn_linear(b, "head", 3, 4));
    assert_null(lvn_nn_linear(b, "another", 3, 4)); /* nothing works after a failure */
    return lvn_builder_status(b);
}

static lvn_status buffer_like_parameter(probe *m, lvn_builder *b)
{
    (void)m;
    lvn_builder_parameter(b, "mean", 1, (const int64_t[]){3}, LVN_INIT_ONES, 0);
    assert_null(lvn_builder_buffer(b, "mean", 1, (const int64_t[]){3}, 0, 0.1));
    return lvn_builder_status(b);
}

static lvn_status nameless_parameter(probe *m, lvn_builder *b)
{
    (void)m;
    lvn_builder_parameter(b, "", 1, (const int64_t[]){3}, LVN_INIT_ONES, 0);
    return lvn_builder_status(b);
}

static lvn_status nameless_child(probe *m, lvn_builder *b)
{
    m->child = lvn_nn_linear(b, "", 3, 4);
    return lvn_builder_status(b);
}

static lvn_status null_child(probe *m, lvn_builder *b)
{
    m->child = lvn_nn_linear(b, NULL, 3, 4);
    return lvn_builder_status(b);
}

static lvn_status groups(probe *m, lvn_builder *b)
{
    m->child = lvn_nn_conv2d(b, "conv", 6, 8, 3, .groups = 4);
    return lvn_builder_status(b);
}

static lvn_status no_outputs(probe *m, lvn_builder *b)
{
    m->child = lvn_nn_linear(b, "head", 128, 0);
    return lvn_builder_status(b);
}

static lvn_status no_channels(probe *m, lvn_builder *b)
{
    m->child = lvn_nn_batch_norm(b, "norm", 0, 0.1);
    return lvn_builder_status(b);
}

static lvn_status all_dropped(probe *m, lvn_builder *b)
{
    m->child = lvn_nn_dropout(b, "drop", 1.0);
    return lvn_builder_status(b);
}

static lvn_status own_error(probe *m, lvn_builder *b)
{
    (void)m;
    (void)b;
    LVN_FAIL(LVN_ERR_USAGE, "the image is too small");
}

static lvn_status init_of_nothing(probe *m, lvn_builder *b)
{
    m->child = lvn_nn_linear(b, "head", 3, 4);
    lvn_builder_set_init(b, "head.wait", LVN_INIT_ZEROS, 0);
    return lvn_builder_status(b);
}

static lvn_status same_block_twice(probe *m, lvn_builder *b)
{
    lvn_builder_block(b, "layer");
    m->child = lvn_nn_linear(b, "first", 3, 4);
    lvn_builder_block(b, "layer");
    assert_null(lvn_nn_linear(b, "second", 3, 4));
    return lvn_builder_status(b);
}

static lvn_status nameless_block(probe *m, lvn_builder *b)
{
    (void)m;
    return lvn_builder_block(b, "");
}

TEST(what_is_refused)
{
    static const struct {
        lvn_status (*how)(probe *m, lvn_builder *b);
        lvn_status status;
        const char *reports;
    } cases[] = {
        {same_parameter_twice, LVN_ERR_INVALID, "two parameters or buffers named scale"},
        {same_child_twice, LVN_ERR_INVALID, "head.weight"},
        {buffer_like_parameter, LVN_ERR_INVALID, "named mean"},
        {nameless_parameter, LVN_ERR_INVALID, "name"},
        {nameless_child, LVN_ERR_INVALID, "name"},
        {null_child, LVN_ERR_INVALID, "name"},
        {same_block_twice, LVN_ERR_INVALID, "the model has two blocks named layer: "},
        {nameless_block, LVN_ERR_INVALID, "a block of the model needs a name"},
        {groups, LVN_ERR_INVALID,
         "conv: a convolution from 6 to 8 channels with kernel 3 x 3 and 4 groups"},
        {init_of_nothing, LVN_ERR_INVALID, "no parameter head.wait"},
        {no_outputs, LVN_ERR_INVALID, "head: a linear layer from 128 to 0"},
        {no_channels, LVN_ERR_INVALID, "norm: batch norm over 0 channels"},
        {all_dropped, LVN_ERR_INVALID, "drop: "},
        {own_error, LVN_ERR_USAGE, "the image is too small"},
    };
    const uint64_t before = lvni_core_alloc_get_total().live_bytes;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lvni_nn_model *m = NULL;
        const lvn_status s = build(cases[i].how, 1, &m);
        assert_null(m);
        assert_text_has(cases[i].reports);
        assert_int_equal(s, cases[i].status);
    }
    /* what the thread's cache of small blocks holds stays: nothing else */
    lvni_nn_model *m;
    (void)build(own_error, 1, &m);
    const uint64_t after = lvni_core_alloc_get_total().live_bytes;
    assert_true(after - before < 32768);
    (void)build(same_child_twice, 1, &m);
    assert_int_equal(lvni_core_alloc_get_total().live_bytes, after);
}

/* ---- values ---- */

static lvn_status inner(probe *m, lvn_builder *b)
{
    m->child = lvn_nn_conv2d(b, "conv", 3, 4, 3, .padding = 1);
    return lvn_builder_status(b);
}

static lvn_status nested(probe *m, lvn_builder *b)
{
    build_now = inner;
    m->child = lvn_builder_child(b, &probe_class, "block");
    return lvn_builder_status(b);
}

static lvn_status nested_and_more(probe *m, lvn_builder *b)
{
    lvn_builder_parameter(b, "extra", 1, (const int64_t[]){7}, LVN_INIT_NORMAL, 0.5);
    return nested(m, b);
}

static const lvni_nn_parameter *find(const lvni_nn_model *m, const char *name)
{
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, name) == 0) {
            return &m->parameters[i];
        }
    }
    fail_msg("no parameter %s", name);
    return NULL;
}

TEST(initial_values_follow_from_seed_and_path)
{
    lvni_nn_model *a, *b, *c;
    assert_int_equal(build(nested, 5, &a), LVN_OK);
    assert_int_equal(build(nested_and_more, 5, &b), LVN_OK);
    assert_int_equal(build(nested, 6, &c), LVN_OK);
    assert_int_equal(a->n_parameters, 2);
    assert_int_equal(b->n_parameters, 3);
    const lvni_nn_parameter *w = find(a, "block.conv.weight");
    const size_t bytes = (size_t)w->numel * sizeof(float);
    assert_int_equal(w->numel, 4 * 3 * 3 * 3);
    assert_memory_equal(w->tensor->data, find(b, "block.conv.weight")->tensor->data, bytes);
    assert_memory_not_equal(w->tensor->data, find(c, "block.conv.weight")->tensor->data, bytes);
    const double bound = 1.0 / sqrt(27.0);
    double most = 0.0, sum = 0.0;
    for (int64_t i = 0; i < w->numel; i++) {
        most = fmax(most, fabs((double)LVNI_F32(w->tensor)[i]));
        sum += (double)LVNI_F32(w->tensor)[i];
    }
    assert_true(most <= bound && most > 0.9 * bound && fabs(sum / 108) < 0.2 * bound);
    /* the rule itself, for one number: uniform in +-bound at (key(seed, "init/NAME"), element) */
    const lvni_core_rng rng = {
        .key = lvni_core_rng_make_key(5, lvni_core_rng_purpose("init/block.conv.weight"))};
    assert_true(LVNI_F32(w->tensor)[17] ==
                (float)(((double)lvni_core_rng_uniform(&rng, 17) * 2.0 - 1.0) * bound));
    assert_int_equal(b->offset[1], 16); /* parameters begin at multiples of 64 bytes */
    lvni_nn_model_destroy(a);
    lvni_nn_model_destroy(b);
    lvni_nn_model_destroy(c);
    lvni_nn_model_destroy(NULL);
}

static lvn_status other_values(probe *m, lvn_builder *b)
{
    m->child = lvn_nn_conv2d(b, "conv", 3, 5, 3);
    lvn_builder_set_init(b, "conv.weight", LVN_INIT_NORMAL, 0.25);
    lvn_builder_set_init(b, "conv.bias", LVN_INIT_ONES, 0);
    return lvn_builder_status(b);
}

TEST(parts_can_be_given_other_values)
{
    lvni_nn_model *m;
    assert_int_equal(build(other_values, 5, &m), LVN_OK);
    const lvni_nn_parameter *w = find(m, "conv.weight"), *bias = find(m, "conv.bias");
    const lvni_core_rng rng = {
        .key = lvni_core_rng_make_key(5, lvni_core_rng_purpose("init/conv.weight"))};
    assert_int_equal(w->numel, 135); /* odd: the last block of random numbers is used by half */
    for (int64_t k = 0; k < w->numel; k++) {
        assert_true(LVNI_F32(w->tensor)[k] ==
                    (float)(lvni_core_rng_normal(&rng, (uint64_t)k) * 0.25));
    }
    for (int64_t k = 0; k < bias->numel; k++) {
        assert_true(LVNI_F32(bias->tensor)[k] == 1.0f);
    }
    lvni_nn_model_destroy(m);
}

/* ---- blocks ---- */

enum { BLOCKS = 5 };

static lvn_status inner_blocks(probe *m, lvn_builder *b)
{
    lvn_builder_block(b, "down");
    m->child = lvn_nn_linear(b, "fc", 100, 100); /* 10,000 weights: three blocks of the buffer */
    lvn_builder_block(b, "up");
    lvn_builder_parameter(b, "scale", 1, (const int64_t[]){4096}, LVN_INIT_ONES, 0);
    lvn_builder_block(b, "pool"); /* computes, and has no parameters */
    return lvn_builder_status(b);
}

static lvn_status with_blocks(probe *m, lvn_builder *b)
{
    lvn_builder_parameter(b, "first", 1, (const int64_t[]){7}, LVN_INIT_ONES, 0);
    lvn_builder_parameter(b, "second", 1, (const int64_t[]){7}, LVN_INIT_ONES, 0);
    build_now = inner_blocks;
    m->child = lvn_builder_child(b, &probe_class, "net");
    lvn_builder_block(b, "head");
    lvn_builder_parameter(b, "last", 1, (const int64_t[]){17}, LVN_INIT_ONES, 0);
    return lvn_builder_status(b);
}

TEST(blocks_begin_on_borders)
{
    static const lvni_nn_block want[BLOCKS] = {{"", 0, 0, 4096},
                                               {"net.down", 2, 4096, 16384},
                                               {"net.up", 4, 16384, 20480},
                                               {"net.pool", 5, 20480, 20480},
                                               {"head", 5, 20480, 20512}};
    static const int64_t offset[] = {0, 16, 4096, 14096, 16384, 20480, 20512};
    lvni_nn_model *m;
    assert_int_equal(build(with_blocks, 5, &m), LVN_OK);
    assert_int_equal(m->n_blocks, BLOCKS);
    for (int i = 0; i < BLOCKS; i++) {
        const lvni_nn_block *have = &m->blocks[i];
        assert_string_equal(have->name, want[i].name);
        assert_int_equal(have->first, want[i].first);
        assert_int_equal(have->begin, want[i].begin);
        assert_int_equal(have->end, want[i].end);
    }
    assert_int_equal(m->n_parameters, 6);
    assert_memory_equal(m->offset, offset, sizeof offset);
    assert_int_equal(m->n_weights, 20512);
    double sum = 0.0; /* of ones; behind net.fc.bias, which ends at 14196, are zeros */
    for (int64_t i = 14196; i < m->n_weights; i++) {
        sum += (double)m->weights[i];
    }
    assert_true(sum == 4096.0 + 17.0);
    lvni_nn_model_destroy(m);
    assert_int_equal(build(nested, 5, &m), LVN_OK); /* without names: one block */
    assert_int_equal(m->n_blocks, 1);
    assert_string_equal(m->blocks[0].name, "");
    assert_true(m->blocks[0].begin == 0 && m->blocks[0].end == m->n_weights);
    lvni_nn_model_destroy(m);
}

TEST(memory_may_fail)
{
    lvni_nn_model *m;
    assert_int_equal(build(with_blocks, 1, &m),
                     LVN_OK); /* fills the thread's cache of tensor headers */
    lvni_nn_model_destroy(m);
    const uint64_t before = lvni_core_alloc_get_total().live_bytes;
    int64_t k = 1;
    for (;; k++) {
        lvni_core_alloc_fail_at(k);
        const lvn_status s = build(with_blocks, 1, &m);
        lvni_core_alloc_fail_at(0);
        if (s == LVN_OK) {
            break;
        }
        assert_null(m);
        assert_int_equal(s, LVN_ERR_MEMORY);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, before);
    }
    assert_true(k > 30);
    lvni_nn_model_destroy(m);
    assert_int_equal(lvni_core_alloc_get_total().live_bytes, before);
}

/* ---- forward ---- */

TEST(forward_reports_paths)
{
    lvni_nn_model *m;
    assert_int_equal(build(nested, 1, &m), LVN_OK);
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 4, (const int64_t[]){2, 5, 5, 3});
    lvn_tensor *bad = lvn_tensor_create(LVN_F32, 4, (const int64_t[]){2, 5, 5, 4});
    assert_string_equal(m->root->path, "");
    assert_string_equal(m->modules[1]->path, "block");
    assert_string_equal(m->modules[2]->path, "block.conv");
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *y = lvn_forward(m->modules[1], x);
    assert_non_null(y);
    assert_int_equal(lvn_size(y, 3), 4);
    assert_string_equal(seen_path, "block");
    assert_string_equal(lvni_tensor_ctx_get()->module_path, "");
    assert_null(lvn_forward(m->root, bad)); /* 4 channels into 3 */
    assert_string_equal(lvni_tensor_ctx_get()->module_path, "");
    assert_int_equal(lvn_scope_close(), LVN_ERR_SHAPE);
    assert_string_equal(lvn_last_error()->frames[0], "conv2d in block.conv");
    lvn_release(x);
    lvn_release(bad);
    lvni_nn_model_destroy(m);
}

TEST(forward_of_nothing)
{
    static const lvn_module_class mute = {.name = "mute", .size = sizeof(lvn_module)};
    const lvn_module without = {.cls = &mute, .path = "mute"};
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 1, (const int64_t[]){2});
    const lvn_module *const modules[] = {NULL, &without};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lvn_scope_open(), LVN_OK);
        assert_null(lvn_forward(modules[i], x));
        assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
        assert_text_has("lvn_forward");
    }
    lvn_release(x);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}
