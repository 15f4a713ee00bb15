/* The gradient penalty of a critic (Gulrajani et al. 2017, eq. 3) through convolution, instance
 * norm, leaky relu, average pooling and a linear layer: its gradients against differences of
 * penalties made of first gradients, in f64; and f32 on the cpu backend against f64. */
#include "gradient_support.h"

#include <math.h>

enum { X, W1, GAMMA, BETA, W2, B2, W3, B3, PARTS };
static const dims shapes[PARTS] = {S(2, 6, 5, 3), S(4, 3, 3, 3), S(4),     S(4),
                                   S(5, 3, 2, 4), S(5),          S(1, 10), S(1)};

/* (N, 6, 5, 3) -> (N, 1) */
static lvn_tensor *critic(lvn_tensor *const *in)
{
    lvn_tensor *h = lvn_conv2d(in[X], in[W1], NULL, .padding = 1);
    h = lvn_leaky_relu(lvn_instance_norm(h, in[GAMMA], in[BETA], 1e-2), 0.2);
    h = lvn_avg_pool2d(h, 2); /* (N, 3, 2, 4) */
    /* (N, 2, 2, 5) */
    h = lvn_leaky_relu(lvn_conv2d(h, in[W2], in[B2], .padding = 1, .stride = 2), 0.2);
    h = lvn_adaptive_avg_pool2d(h, 2, 1);
    return lvn_linear(lvn_flatten(h, 1), in[W3], in[B3]);
}

/* mean((|d score / d x| - 1)^2) */
static lvn_tensor *penalty(lvn_tensor *const *in, bool create_graph)
{
    lvn_tensor *slope = lvn_grad(lvn_sum(critic(in)), in[X], .create_graph = create_graph);
    lvn_tensor *norm =
        lvn_sqrt(lvn_sum_axes(lvn_square(lvn_flatten(slope, 1)), (const int[]){1}, 1, false));
    return lvn_mean(lvn_square(lvn_add_scalar(norm, -1.0)));
}

static double penalty_value(lvn_tensor *const *in)
{
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const double value = lvn_item(penalty(in, false));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    return value;
}

static void make(lvn_dtype dtype, lvn_tensor *in[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        in[i] = make_leaf(dtype, 30u + (uint64_t)i, &shapes[i], i == GAMMA ? POSITIVE : NORMAL);
    }
    lvn_clear_error();
    assert_int_equal(lvn_scope_open(), LVN_OK);
    if (lvn_backward(penalty(in, true)) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
}

static void drop(lvn_tensor *in[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        lvn_release(in[i]);
    }
}

TEST(against_differences)
{
    lvn_tensor *in[PARTS];
    make(LVN_F64, in);
    for (int i = 0; i < PARTS; i++) {
        const lvn_tensor *g = lvn_gradient(in[i]);
        /* what is added moves the score, but its slope by jumps alone */
        const bool constant = i == BETA || i == B2 || i == B3;
        const double most = g == NULL ? 0.0 : largest(g);
        assert_true(constant ? most == 0.0 : most > 1e-3);
        double *x = lvn_data(in[i]);
        for (int64_t e = 0; e < lvn_numel(in[i]); e++) {
            const double kept = x[e], h = 1e-6;
            x[e] = kept + h;
            const double up = penalty_value(in);
            x[e] = kept - h;
            const double down = penalty_value(in), numeric = (up - down) / (2 * h);
            x[e] = kept;
            const double claimed = g == NULL ? 0.0 : element(g, e);
            if (!(fabs(numeric - claimed) <= 1e-6 * fmax(most, 1e-2))) {
                fail_msg("input %d, element %d: differences give %.10g, the gradient is %.10g", i,
                         (int)e, numeric, claimed);
            }
        }
    }
    drop(in);
}

TEST(f32_is_near_f64)
{
    static const char *const names[PARTS] = {"x", "w1", "gamma", "beta", "w2", "b2", "w3", "b3"};
    lvn_tensor *truth[PARTS], *in[PARTS];
    make(LVN_F64, truth);
    make(LVN_F32, in);
    for (int i = 0; i < PARTS; i++) {
        if (i != BETA && i != B2 && i != B3) {
            assert_near(names[i], lvn_gradient(in[i]), lvn_gradient(truth[i]), 2e-5, 1e-2);
        }
    }
    drop(truth);
    drop(in);
}
