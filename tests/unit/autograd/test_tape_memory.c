/* Memory of forward and backward: nothing is allocated after warm-up, and an allocation that fails
 * anywhere is a clean LVN_ERR_MEMORY that leaves nothing behind. */
#include "gradient_support.h"

#include "autograd/tape.h"
#include "core/alloc.h"
#include "kernels/kernels.h"
#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

enum { LEAVES = 6 };

/* A network with all ops that have several outputs or write gradients in place. in: image, filter,
 * bias, gamma, weight, bias */
static lvn_tensor *network(lvn_tensor *const *in, lvn_tensor *labels)
{
    lvn_tensor *x = lvn_conv2d(in[0], in[1], in[2], .padding = 1);
    x = lvn_batch_norm_train(x, in[3], in[2], 1e-5, NULL, NULL);
    x = lvn_add(lvn_max_pool2d(lvn_relu(x), 2), in[3]); /* broadcast */
    x = lvn_dropout(lvn_linear(lvn_flatten(x, 1), in[4], in[5]), 0.3);
    x = lvn_sub(x, lvn_max_axis(x, 1, true));
    x = lvn_div(x, lvn_add_scalar(lvn_mean_axes(lvn_square(x), (const int[]){0}, 1, false), 1.0));
    x = lvn_matmul(x, lvn_matmul(x, x, .trans_a = true)); /* (2, 3) (3, 3) */
    return lvn_cross_entropy(x, labels);
}

static const dims shapes[LEAVES] = {S(2, 4, 4, 2), S(4, 3, 3, 2), S(4), S(4), S(3, 16), S(3)};

static lvn_status pass(lvn_tensor *const *in, lvn_tensor *labels)
{
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){.training = true};
    lvn_status s = lvn_scope_open();
    if (s != LVN_OK) {
        return s;
    }
    lvn_tensor *loss = network(in, labels);
    s = lvn_backward(loss);
    const lvn_status closed = lvn_scope_close();
    return s != LVN_OK ? s : closed;
}

static void make_inputs(lvn_dtype dtype, lvn_tensor **in)
{
    for (int i = 0; i < LEAVES; i++) {
        in[i] = make_leaf(dtype, 40u + (uint64_t)i, &shapes[i], NORMAL);
    }
}

TEST(nothing_grows_over_a_hundred_passes)
{
    for (int k = 0; k < 2; k++) {
        lvn_tensor *in[LEAVES], *labels = make_labels(2, 3);
        make_inputs(k == 0 ? LVN_F64 : LVN_F32, in);
        uint64_t calls = 0, bytes = 0;
        for (int run = 0; run < 103; run++) {
            assert_int_equal(pass(in, labels), LVN_OK);
            for (int i = 0; i < LEAVES; i++) {
                lvn_zero_grad(in[i]);
            }
            if (run == 2) {
                calls = lvni_core_alloc_get_total().calls;
                bytes = lvni_tensor_cache_bytes(lvni_tensor_ctx_get()->cache);
            }
        }
        assert_int_equal(lvni_core_alloc_get_total().calls, calls);
        assert_int_equal(lvni_tensor_cache_bytes(lvni_tensor_ctx_get()->cache), bytes);
        lvn_release(labels);
        for (int i = 0; i < LEAVES; i++) {
            lvn_release(in[i]);
        }
    }
}

/* The network's leaves as parameters of a model: gradients go into slices of one flat buffer, as in
 * training. */
typedef struct flat {
    float data[512];
    unsigned char written[LEAVES];
    int64_t offset[LEAVES + 1];
    lvni_autograd_gradients gradients;
} flat;

static void as_parameters(flat *f, lvn_tensor **in)
{
    memset(f, 0, sizeof *f);
    for (int i = 0; i < LEAVES; i++) {
        in[i]->param = i;
        f->offset[i + 1] = f->offset[i] + lvn_numel(in[i]);
    }
    assert_true(f->offset[LEAVES] <= 512);
    f->gradients = (lvni_autograd_gradients){
        .data = f->data, .offset = f->offset, .written = f->written, .n = LEAVES};
}

/* One pass in a context of its own, cold, with the k-th allocation failing. */
static lvn_status cold_pass(lvn_tensor *const *in, lvn_tensor *labels, flat *f, int64_t k)
{
    if (f != NULL) {
        memset(f->written, 0, sizeof f->written);
    }
    lvni_core_alloc_fail_at(k);
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_create(1, NULL);
    if (ctx == NULL) {
        lvni_core_alloc_fail_at(0);
        return lvn_last_error()->code;
    }
    lvni_tensor_ctx_set(ctx);
    ctx->gradients = f == NULL ? NULL : &f->gradients;
    const lvn_status s = pass(in, labels);
    lvni_core_alloc_fail_at(0);
    for (int i = 0; i < LEAVES; i++) {
        lvn_zero_grad(in[i]); /* back to this context's cache */
    }
    lvni_tensor_ctx_set(NULL);
    lvni_tensor_ctx_destroy(ctx);
    return s;
}

static int64_t sweep(lvn_tensor *const *in, lvn_tensor *labels, flat *f)
{
    assert_int_equal(cold_pass(in, labels, f, 0),
                     LVN_OK); /* primitives and their like, kept for the process */
    const uint64_t before = lvni_core_alloc_get_total().live_bytes;
    assert_int_equal(cold_pass(in, labels, f, 0), LVN_OK);
    assert_int_equal(lvni_core_alloc_get_total().live_bytes, before);
    int64_t k = 1;
    for (;; k++) {
        lvn_clear_error();
        const lvn_status s = cold_pass(in, labels, f, k);
        const uint64_t after = lvni_core_alloc_get_total().live_bytes;
        if (after != before) {
            fail_msg("the failure of allocation %d leaves %lld bytes behind", (int)k,
                     (long long)(after - before));
        }
        if (s == LVN_OK) {
            return k;
        }
        if (s != LVN_ERR_MEMORY) {
            fail_msg("the failure of allocation %d gives %s: %s", (int)k, lvn_status_name(s),
                     lvn_last_error()->message);
        }
        assert_error_has("cannot allocate");
    }
}

TEST(every_allocation_may_fail)
{
    lvn_tensor *in[LEAVES], *labels = make_labels(2, 3);
    make_inputs(LVN_F64, in);
    assert_true(sweep(in, labels, NULL) > 60);
    for (int i = 0; i < LEAVES; i++) {
        lvn_release(in[i]);
    }
    make_inputs(LVN_F32, in);
    assert_true(sweep(in, labels, NULL) > 60);
    flat f;
    as_parameters(&f, in);
    assert_true(sweep(in, labels, &f) > 60);
    lvn_release(labels);
    for (int i = 0; i < LEAVES; i++) {
        lvn_release(in[i]);
    }
}

/* Slices and gradients of leaves are the same numbers; a parameter used twice gathers both uses in
 * its slice. */
TEST(slices_hold_the_gradients)
{
    lvn_tensor *in[LEAVES], *same[LEAVES], *labels = make_labels(2, 3);
    make_inputs(LVN_F32, in);
    make_inputs(LVN_F32, same);
    flat f;
    as_parameters(&f, in);
    lvni_tensor_ctx_get()->gradients = &f.gradients;
    assert_int_equal(pass(in, labels), LVN_OK);
    lvni_tensor_ctx_get()->gradients = NULL;
    assert_int_equal(pass(same, labels), LVN_OK);
    for (int i = 0; i < LEAVES; i++) {
        assert_true(f.written[i]);
        assert_null(lvn_gradient(in[i]));
        assert_memory_equal(f.data + f.offset[i], lvn_data(lvn_gradient(same[i])),
                            (size_t)lvn_numel(in[i]) * sizeof(float));
        lvn_release(in[i]);
        lvn_release(same[i]);
    }
    lvn_release(labels);
}

/* Batch norm asks for the slices of gamma and beta before it writes either. */
TEST(one_parameter_as_gamma_and_beta_gathers_both)
{
    const dims x_shape = S(6, 3), c = S(3);
    lvn_tensor *x = make_constant(LVN_F32, 1, x_shape.ndim, x_shape.size),
               *both = make_leaf(LVN_F32, 2, &c, NORMAL);
    lvn_tensor *weight = make_constant(LVN_F32, 3, x_shape.ndim, x_shape.size);
    flat f;
    memset(&f, 0, sizeof f);
    for (int with_slices = 0; with_slices < 2; with_slices++) {
        if (with_slices != 0) {
            both->param = 0;
            f.offset[1] = 3;
            f.gradients = (lvni_autograd_gradients){
                .data = f.data, .offset = f.offset, .written = f.written, .n = 1};
            lvni_tensor_ctx_get()->gradients = &f.gradients;
        }
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *y = lvn_batch_norm_train(x, both, both, 1e-5, NULL, NULL);
        assert_int_equal(lvn_backward(lvn_sum(lvn_mul(y, weight))), LVN_OK);
        assert_int_equal(lvn_scope_close(), LVN_OK);
    }
    lvni_tensor_ctx_get()->gradients = NULL;
    assert_memory_equal(f.data, lvn_data(lvn_gradient(both)), 3 * sizeof(float));
    lvn_release(x);
    lvn_release(both);
    lvn_release(weight);
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}
