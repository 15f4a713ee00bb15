/* Units that are recomputed: the gradients of a run without, to the bit, whatever is inside; what
 * runs how often; and what is refused. */
#include "autograd/tape.h"
#include "nn/recomputed.h"
#include "optim/groups.h"
#include "support/test.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { N = 6, WIDTH = 5 };

static int forwards;
static bool walks_inside;

typedef struct block {
    lvn_module base;
    lvn_module *linear[2], *dropout, *inner;
    lvn_buffer *mean;
} block;

static lvn_status block_build(lvn_module *module, lvn_builder *b)
{
    block *m = (block *)module;
    m->linear[0] = lvn_nn_linear(b, "a", WIDTH, WIDTH);
    m->linear[1] = lvn_nn_linear(b, "b", WIDTH, WIDTH);
    m->dropout = lvn_nn_dropout(b, "drop", 0.4);
    m->mean = lvn_builder_buffer(b, "mean", 1, (const int64_t[]){1}, 0.0, 0.5);
    return lvn_builder_status(b);
}

/* Its input is used twice, and so is a parameter. */
static lvn_tensor *block_forward(const lvn_module *module, lvn_tensor *x)
{
    const block *m = (const block *)module;
    forwards++;
    lvn_tensor *y = lvn_gelu(lvn_forward(m->linear[0], x));
    y = lvn_forward(m->dropout, lvn_forward(m->linear[0], y));
    lvn_buffer_push(m->mean, lvn_mean(lvn_detach(y)));
    if (walks_inside) {
        lvn_tensor *const of = x;
        lvn_tensor *g = NULL;
        if (lvn_grads_with(lvn_sum(y), &of, 1, &g,
                           &(lvn_grad_options){.struct_size = sizeof(lvn_grad_options)}) !=
            LVN_OK) {
            return NULL;
        }
    }
    return lvn_add(x, lvn_forward(m->linear[1], y));
}

static const lvn_module_class block_class = {
    .name = "block", .size = sizeof(block), .build = block_build, .forward = block_forward};

typedef struct net {
    lvn_module base;
    lvn_module *first, *block[3];
} net;

static lvn_status net_build(lvn_module *module, lvn_builder *b)
{
    net *m = (net *)module;
    m->first = lvn_nn_linear(b, "first", WIDTH, WIDTH);
    for (int i = 0; i < 3; i++) {
        m->block[i] = lvn_builder_child(b, &block_class, (const char *[]){"u", "v", "w"}[i]);
    }
    return lvn_builder_status(b);
}

/* The first block's result goes past the others, and the last block is used twice. */
static lvn_tensor *net_forward(const lvn_module *module, lvn_tensor *x)
{
    const net *m = (const net *)module;
    x = lvn_forward(m->block[0], lvn_forward(m->first, x));
    lvn_tensor *y = lvn_forward(m->block[2], lvn_forward(m->block[1], x));
    y = lvn_forward(m->block[2], y);
    return lvn_mul(lvn_add(x, y), x);
}

static const lvn_module_class net_class = {
    .name = "net", .size = sizeof(net), .build = net_build, .forward = net_forward};

typedef struct result {
    float *data;
    size_t n;
    uint32_t call;
    int final;
    int forwards;
} result;

static void count_final(void *user, int parameter)
{
    (void)parameter;
    ++*(int *)user;
}

static lvn_tensor *make_input(void)
{
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 2, (const int64_t[]){N, WIDTH});
    for (int i = 0; i < N * WIDTH; i++) {
        ((float *)lvn_data(x))[i] = (float)(i * 7 % 11) / 5.0f - 1.0f;
    }
    return x;
}

/* A micro-batch: gradients and what buffers are pushed. */
static lvn_status step(lvni_nn_model *m, result *r)
{
    lvni_nn_set *set;
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    *r = (result){.n = (size_t)(m->n_weights + m->n_records)};
    forwards = 0;
    ctx->at = (lvni_tensor_position){.seed = 5, .step = 3, .training = true};
    ctx->gradients = &set->gradients;
    ctx->records = set;
    set->gradients.final = count_final;
    set->gradients.user = &r->final;
    lvni_nn_set_begin(set, N);
    lvn_tensor *x = make_input();
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_status s = lvn_backward(lvn_mean(lvn_forward(m->root, x)));
    r->call = ctx->at.call;
    const lvn_status closed = lvn_scope_close();
    s = s != LVN_OK ? s : closed;
    lvni_nn_set_finish(set);
    ctx->gradients = ctx->records = NULL;
    r->forwards = forwards;
    r->data = malloc(r->n * sizeof *r->data);
    memcpy(r->data, set->data, r->n * sizeof *r->data);
    lvn_release(x);
    lvni_nn_set_destroy(set);
    return s;
}

static lvni_nn_model *make(const char *const *pattern, size_t n)
{
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(&net_class, NULL, 1, &m), LVN_OK);
    assert_int_equal(lvni_nn_model_recompute(m, pattern, n, lvni_optim_pattern_matches), LVN_OK);
    return m;
}

static void compare(const char *pattern, int runs)
{
    lvni_nn_model *plain = make(NULL, 0), *again = make(&pattern, 1);
    result a, b;
    assert_int_equal(step(plain, &a), LVN_OK);
    assert_int_equal(step(again, &b), LVN_OK);
    assert_int_equal(a.forwards, 4);
    assert_int_equal(b.forwards, runs);
    assert_int_equal(a.call, b.call);
    assert_int_equal(a.final, plain->n_parameters);
    assert_int_equal(b.final, plain->n_parameters);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.data, b.data, a.n * sizeof *a.data);
    free(a.data);
    free(b.data);
    lvni_nn_model_destroy(plain);
    lvni_nn_model_destroy(again);
}

TEST(bits_are_those_of_a_run_without)
{
    compare("none", 4);
    compare("all", 8);
    compare("?", 8); /* modules inside of a unit run with it */
    compare("v", 5);
    compare("w", 6);      /* called twice */
    compare("*.drop", 4); /* a unit without parameters */
    compare("u.a", 4);
}

TEST(gradients_inside_are_refused)
{
    const char *pattern = "v";
    lvni_nn_model *m = make(&pattern, 1);
    result r;
    walks_inside = true;
    assert_int_equal(step(m, &r), LVN_ERR_UNSUPPORTED);
    walks_inside = false;
    assert_non_null(strstr(lvn_last_error()->message, "lvn_grad stands in the forward of v"));
    free(r.data);
    assert_int_equal(step(m, &r), LVN_OK);
    free(r.data);
    lvni_nn_model_destroy(m);
}

/* Of a parameter inside of the unit, and of an input in front of it. */
TEST(gradients_through_it_are_refused)
{
    const char *pattern = "v";
    lvni_nn_model *m = make(&pattern, 1);
    const block *v = (const block *)((const net *)m->root)->block[1];
    lvn_tensor *x = lvn_require_grad(make_input());
    lvn_tensor *parameter = NULL;
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, "v.b.weight") == 0) {
            parameter = m->parameters[i].tensor;
        }
    }
    lvn_tensor *const of[] = {x, parameter};
    for (int i = 0; i < 4; i++) {
        lvn_tensor *g = NULL;
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *y = lvn_sum(lvn_forward(&v->base, lvn_gelu(x)));
        const lvn_grad_options o = {.struct_size = sizeof o, .create_graph = i >= 2};
        assert_int_equal(lvn_grads_with(y, &of[i % 2], 1, &g, &o), LVN_ERR_UNSUPPORTED);
        assert_non_null(strstr(lvn_last_error()->message, "recompute: v, of the class block"));
        lvn_scope_close();
    }
    lvn_release(x);
    lvni_nn_model_destroy(m);
}

/* ---- modules that cannot be recomputed ---- */

static lvn_tensor *beside;
static bool keeps;
static int times;

static lvn_tensor *odd_forward(const lvn_module *module, lvn_tensor *x)
{
    (void)module;
    times++;
    if (keeps) {
        beside = lvn_keep(lvn_gelu(x));
        return lvn_add(beside, x);
    }
    return beside == NULL && times == 2 ? lvn_gelu(lvn_gelu(x))
                                        : lvn_gelu(beside == NULL ? x : lvn_add(x, beside));
}

static lvn_status odd_build(lvn_module *module, lvn_builder *b)
{
    (void)module;
    return lvn_builder_status(b);
}

static const lvn_module_class odd_class = {
    .name = "odd", .size = sizeof(lvn_module), .build = odd_build, .forward = odd_forward};

typedef struct holder {
    lvn_module base;
    lvn_module *odd;
} holder;

static lvn_status holder_build(lvn_module *module, lvn_builder *b)
{
    ((holder *)module)->odd = lvn_builder_child(b, &odd_class, "odd");
    lvn_builder_parameter(b, "weight", LVN_SHAPE(2), LVN_INIT_ONES, 1.0);
    return lvn_builder_status(b);
}

static const lvn_module_class holder_class = {
    .name = "holder", .size = sizeof(holder), .build = holder_build};

static void refuse(const char *what, int how)
{
    const char *all = "all";
    lvni_nn_model *m;
    assert_int_equal(lvni_nn_model_build(&holder_class, NULL, 1, &m), LVN_OK);
    assert_int_equal(lvni_nn_model_recompute(m, &all, 1, lvni_optim_pattern_matches), LVN_OK);
    lvn_tensor *weight = m->parameters[0].tensor;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    times = 0;
    keeps = how == 1;
    beside = how == 0 ? lvn_gelu(weight) : NULL;
    lvn_tensor *y = lvn_forward(((holder *)m->root)->odd, weight);
    lvn_status s = y == NULL ? lvn_scope_status() : lvn_backward(lvn_sum(y));
    assert_int_equal(s, LVN_ERR_UNSUPPORTED);
    assert_non_null(strstr(lvn_last_error()->message, what));
    if (keeps) {
        lvn_release(beside);
    }
    lvn_scope_close();
    lvni_nn_model_destroy(m);
}

TEST(what_runs_otherwise_is_refused)
{
    refuse("uses a tensor of the step that it is not called with", 0);
    refuse("a tensor that its forward made is used outside of it", 1);
    refuse("ran another way in the backward pass", 2);
}

TEST(patterns_name_modules)
{
    lvni_nn_model *m;
    const char *wrong = "u.c";
    assert_int_equal(lvni_nn_model_build(&net_class, NULL, 1, &m), LVN_OK);
    assert_int_equal(lvni_nn_model_recompute(m, &wrong, 1, lvni_optim_pattern_matches),
                     LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "pattern u.c; the nearest path is u.a"));
    lvni_nn_model_destroy(m);
}
