/* The cpu backend (f32) against the reference backend (f64): loss and every gradient of networks
 * that between them use every op. Weights are f32 numbers in both, so what differs is rounding
 * alone. */
#include "gradient_support.h"

#include "kernels/kernels.h"

#include <stdio.h>

/* The one tolerance, relative to the largest value of a gradient: some tens of f32 roundings (6e-8)
 * through five to ten ops. */
#define ROUNDING 2e-5

enum { INPUTS = 8 };
static lvn_tensor *labels;

typedef struct network {
    const char *name;
    formula f; /* in -> loss */
    int n;
    dims shape[INPUTS];
    domain from;
} network;

static lvn_tensor *scaled(lvn_tensor *t, double by)
{
    return lvn_mul_scalar(t, by);
}

/* image, filter, gamma, beta, filter, bias, weight, bias */
static lvn_tensor *convnet(lvn_tensor *const *in)
{
    lvn_tensor *x = lvn_conv2d(in[0], scaled(in[1], 0.2), NULL, .padding = 1);
    x = lvn_max_pool2d(lvn_relu(lvn_batch_norm_train(x, in[2], in[3], 1e-5, NULL, NULL)), 2);
    x = lvn_relu(lvn_conv2d(x, scaled(in[4], 0.2), in[5], .stride = 2, .padding = 1));
    x = lvn_dropout(lvn_flatten(x, 1), 0.25);
    return lvn_cross_entropy(lvn_linear(x, scaled(in[6], 0.2), in[7]), labels);
}

/* image, grouped filter, bias, dilated filter, gamma, beta, weight */
static lvn_tensor *grouped(lvn_tensor *const *in)
{
    lvn_tensor *x = lvn_conv2d(in[0], scaled(in[1], 0.3), in[2], .padding = 1, .groups = 4);
    x = lvn_max_pool2d(x, 3, .stride = 2, .padding = 1);
    x = lvn_conv2d(x, scaled(in[3], 0.2), NULL, .padding = 2, .dilation = 2);
    lvn_tensor *zero = lvn_sum_axes(lvn_mul_scalar(x, 0.0), (const int[]){0, 1, 2}, 3, false);
    x = lvn_batch_norm_eval(x, in[4], in[5], zero, lvn_add_scalar(zero, 1.5), 1e-5);
    x = lvn_matmul(lvn_global_avg_pool2d(x), in[6], .trans_b = true);
    return lvn_neg(lvn_mean(lvn_max_axis(lvn_log_softmax(x), 1, false)));
}

/* a, b (broadcast), c (broadcast) */
static lvn_tensor *arithmetic(lvn_tensor *const *in)
{
    lvn_tensor *x = lvn_div(lvn_add(in[0], in[1]), lvn_add_scalar(lvn_mul(in[0], in[2]), 1.0));
    x = lvn_add(lvn_sqrt(lvn_sub(x, scaled(x, 0.5))), lvn_exp(lvn_neg(x)));
    x = lvn_log_e(lvn_add(lvn_square(x), lvn_mean_axes(x, (const int[]){-1}, 1, true)));
    x = lvn_reshape(x, 2, (const int64_t[]){-1, 5});
    return lvn_sum(lvn_mul(lvn_softmax(x), lvn_sum_axes(x, (const int[]){0}, 1, false)));
}

/* rows, weights, rows again: products in every orientation */
static lvn_tensor *products(lvn_tensor *const *in)
{
    lvn_tensor *h = lvn_relu(lvn_matmul(in[0], scaled(in[1], 0.3)));
    lvn_tensor *gram = lvn_matmul(h, h, .trans_b = true);
    lvn_tensor *back = lvn_matmul(h, scaled(gram, 0.02), .trans_a = true);
    return lvn_mean(lvn_square(lvn_matmul(back, in[2], .trans_a = true, .trans_b = true)));
}

static const network networks[] = {
    {"convnet",
     convnet,
     8,
     {S(6, 12, 12, 3), S(8, 3, 3, 3), S(8), S(8), S(16, 3, 3, 8), S(16), S(5, 144), S(5)},
     NORMAL},
    {"grouped",
     grouped,
     7,
     {S(4, 9, 8, 8), S(8, 3, 3, 2), S(8), S(12, 3, 3, 8), S(12), S(12), S(7, 12)},
     NORMAL},
    {"arithmetic", arithmetic, 3, {S(4, 3, 5), S(3, 1), S(5)}, POSITIVE},
    {"products", products, 3, {S(12, 9), S(9, 10), S(7, 10)}, NORMAL},
};

/* Loss and gradients of a network; the leaves are the caller's. */
static double run(const network *w, lvn_dtype dtype, lvn_tensor **in)
{
    for (int i = 0; i < w->n; i++) {
        in[i] = make_leaf(dtype, 20u + (uint64_t)i, &w->shape[i], w->from);
    }
    lvni_tensor_ctx_get()->at =
        (lvni_tensor_position){.seed = 1, .step = 2, .micro_batch = 3, .training = true};
    lvn_clear_error();
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *loss = w->f(in);
    const double value = lvn_item(loss);
    if (lvn_backward(loss) != LVN_OK) {
        fail_msg("%s: %s", w->name, lvn_last_error()->message);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    return value;
}

TEST(both_backends_agree)
{
    labels = make_labels(6, 5);
    for (size_t k = 0; k < sizeof networks / sizeof *networks; k++) {
        const network *w = &networks[k];
        lvn_tensor *fast[INPUTS], *truth[INPUTS];
        const double have = run(w, LVN_F32, fast), want = run(w, LVN_F64, truth);
        assert_true(want != 0.0);
        assert_true((have - want) / want <= ROUNDING && (want - have) / want <= ROUNDING);
        for (int i = 0; i < w->n; i++) {
            char what[64];
            snprintf(what, sizeof what, "%s: gradient of input %d", w->name, i);
            assert_true(largest(lvn_gradient(truth[i])) > 0.0);
            assert_near(what, lvn_gradient(fast[i]), lvn_gradient(truth[i]), ROUNDING, 0.0);
            lvn_release(fast[i]);
            lvn_release(truth[i]);
        }
    }
    lvn_release(labels);
}

/* Running a network again gives the same bits: nothing of the first run is left in caches or in the
 * tape. */
TEST(a_second_run_gives_the_same_bits)
{
    labels = make_labels(6, 5);
    for (size_t k = 0; k < sizeof networks / sizeof *networks; k++) {
        const network *w = &networks[k];
        lvn_tensor *a[INPUTS], *b[INPUTS];
        const double first = run(w, LVN_F32, a), second = run(w, LVN_F32, b);
        assert_memory_equal(&first, &second, sizeof first);
        for (int i = 0; i < w->n; i++) {
            const size_t bytes = (size_t)lvn_numel(a[i]) * sizeof(float);
            assert_memory_equal(lvn_data(lvn_gradient(a[i])), lvn_data(lvn_gradient(b[i])), bytes);
            lvn_release(a[i]);
            lvn_release(b[i]);
        }
    }
    lvn_release(labels);
}

/* ---- a batch norm with residual and relu has the bits of its parts ---- */

static bool evaluates, fused;

/* image, gamma, beta, residual, filter; in evaluation gamma^2 is the variance and beta the mean */
static lvn_tensor *finished_norm(lvn_tensor *const *in)
{
    lvn_tensor *x = lvn_conv2d(in[0], in[4], NULL, .padding = 1), *variance = lvn_square(in[1]), *y;
    if (fused) {
        y = evaluates ? lvn_batch_norm_eval(x, in[1], in[2], in[2], variance, 1e-5,
                                            .residual = in[3], .relu = true)
                      : lvn_batch_norm_train(x, in[1], in[2], 1e-5, NULL, NULL, .residual = in[3],
                                             .relu = true);
        x = evaluates ? lvn_batch_norm_eval(y, in[1], in[2], in[2], variance, 1e-5, .relu = true)
                      : lvn_batch_norm_train(y, in[1], in[2], 1e-5, NULL, NULL, .relu = true);
    } else {
        y = evaluates ? lvn_batch_norm_eval(x, in[1], in[2], in[2], variance, 1e-5)
                      : lvn_batch_norm_train(x, in[1], in[2], 1e-5, NULL, NULL);
        y = lvn_relu(lvn_add(y, in[3]));
        x = evaluates ? lvn_batch_norm_eval(y, in[1], in[2], in[2], variance, 1e-5)
                      : lvn_batch_norm_train(y, in[1], in[2], 1e-5, NULL, NULL);
        x = lvn_relu(x);
    }
    return lvn_mean(lvn_square(lvn_add(x, y)));
}

TEST(a_fused_norm_has_the_bits_of_its_parts)
{
    static const network w[] = {{"32 channels",
                                 finished_norm,
                                 5,
                                 {S(3, 9, 9, 3), S(32), S(32), S(3, 9, 9, 32), S(32, 3, 3, 3)},
                                 NORMAL},
                                {"5 channels",
                                 finished_norm,
                                 5,
                                 {S(3, 9, 9, 3), S(5), S(5), S(3, 9, 9, 5), S(5, 3, 3, 3)},
                                 NORMAL}};
    for (int k = 0; k < 4; k++) {
        lvn_tensor *a[INPUTS], *b[INPUTS];
        evaluates = k >= 2;
        fused = false;
        const double parts = run(&w[k % 2], LVN_F32, a);
        fused = true;
        const double whole = run(&w[k % 2], LVN_F32, b);
        assert_memory_equal(&parts, &whole, sizeof parts);
        for (int i = 0; i < w[k % 2].n; i++) {
            const size_t bytes = (size_t)lvn_numel(a[i]) * sizeof(float);
            assert_memory_equal(lvn_data(lvn_gradient(a[i])), lvn_data(lvn_gradient(b[i])), bytes);
            lvn_release(a[i]);
            lvn_release(b[i]);
        }
    }
}

BEFORE_ALL()
{
    return lvni_cpu_start();
}
