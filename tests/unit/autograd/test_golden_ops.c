/* Ops against results of PyTorch in double precision; golden_ops.py wrote them and defines the
 * inputs. */
#include "gradient_support.h"

#include "golden_ops.h"

#include <math.h>
#include <string.h>

enum { INPUTS = 8 };
static lvn_tensor *made[INPUTS];
static int n_made;

/* Input k of golden_ops.py. */
static lvn_tensor *given(int k, int ndim, const int64_t *shape)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F64, ndim, shape);
    assert_non_null(t);
    assert_true(n_made < INPUTS);
    made[n_made++] = t;
    const int64_t n = lvn_numel(t);
    for (int64_t e = 0; e < n; e++) {
        ((double *)lvn_data(t))[e] = ((double)((29 * e + 17 * k + n) % 48) - 23.5) / 16.0;
    }
    return t;
}

static lvn_tensor *conv2d(void)
{
    return lvn_conv2d(given(0, LVN_SHAPE(1, 5, 6, 2)), given(1, LVN_SHAPE(3, 2, 3, 2)),
                      given(2, LVN_SHAPE(3)), .stride_hw = {2, 1}, .padding_hw = {1, 2},
                      .dilation_hw = {1, 2});
}

static lvn_tensor *conv_transpose2d(void)
{
    return lvn_conv_transpose2d(given(0, LVN_SHAPE(1, 3, 2, 2)), given(1, LVN_SHAPE(2, 2, 3, 3)),
                                given(2, LVN_SHAPE(3)), .stride_hw = {2, 3}, .padding_hw = {1, 0},
                                .output_padding_hw = {0, 2}, .dilation_hw = {2, 1});
}

static lvn_tensor *max_pool2d(void)
{
    return lvn_max_pool2d(given(0, LVN_SHAPE(1, 4, 7, 2)), 2, .kernel_hw = {0, 3},
                          .stride_hw = {1, 2}, .padding_hw = {1, 0});
}

static lvn_tensor *max_pool2d_in_two_passes(void)
{
    return lvn_max_pool2d(given(0, LVN_SHAPE(1, 20, 19, 1)), 16, .kernel_hw = {17, 0}, .stride = 1,
                          .stride_hw = {2, 0}, .padding_hw = {3, 0});
}

static lvn_tensor *max_pool2d_by_kernel(void)
{
    return lvn_max_pool2d(given(0, LVN_SHAPE(1, 4, 7, 1)), 0, .kernel_hw = {2, 3});
}

static lvn_tensor *avg_pool2d(void)
{
    return lvn_avg_pool2d(given(0, LVN_SHAPE(1, 5, 4, 2)), 1, .kernel_hw = {3, 2},
                          .stride_hw = {2, 1}, .padding_hw = {1, 0});
}

static lvn_tensor *conv1d(void)
{
    return lvn_conv1d(given(0, LVN_SHAPE(2, 9, 4)), given(1, LVN_SHAPE(6, 3, 2)),
                      given(2, LVN_SHAPE(6)), .stride = 2, .padding = 1, .dilation = 2,
                      .groups = 2);
}

static lvn_tensor *unfold(void)
{
    return lvn_unfold(given(0, LVN_SHAPE(1, 5, 6, 2)), 2, .kernel_hw = {0, 3}, .stride_hw = {2, 1},
                      .padding_hw = {1, 0}, .dilation_hw = {1, 2});
}

static lvn_tensor *fold(void)
{
    return lvn_fold(given(0, LVN_SHAPE(1, 3, 2, 12)), 5, 6, 2, .kernel_hw = {0, 3},
                    .stride_hw = {2, 1}, .padding_hw = {1, 0}, .dilation_hw = {1, 2});
}

static lvn_tensor *affine_grid(void)
{
    return lvn_affine_grid(given(0, LVN_SHAPE(2, 2, 3)), 3, 4);
}

static lvn_tensor *affine_grid_corners(void)
{
    return lvn_affine_grid(given(0, LVN_SHAPE(2, 2, 3)), 3, 4, .align_corners = true);
}

static lvn_tensor *gru_cell(void)
{
    return lvn_gru_cell(given(0, LVN_SHAPE(2, 3)), given(1, LVN_SHAPE(2, 4)),
                        given(2, LVN_SHAPE(12, 3)), given(3, LVN_SHAPE(12, 4)),
                        given(4, LVN_SHAPE(12)), given(5, LVN_SHAPE(12)));
}

/* h and c */
static lvn_tensor *lstm_cell(void)
{
    lvn_tensor *both[2];
    both[0] = lvn_lstm_cell(given(0, LVN_SHAPE(2, 3)), given(1, LVN_SHAPE(2, 4)),
                            given(6, LVN_SHAPE(2, 4)), given(2, LVN_SHAPE(16, 3)),
                            given(3, LVN_SHAPE(16, 4)), given(4, LVN_SHAPE(16)),
                            given(5, LVN_SHAPE(16)), &both[1]);
    return lvn_concat(both, 2, 1);
}

#define SAMPLED(name, m, p, corners)                                                               \
    static lvn_tensor *grid_sample_##name(void)                                                    \
    {                                                                                              \
        return lvn_grid_sample(                                                                    \
            given(0, LVN_SHAPE(2, 3, 4, 2)), lvn_mul_scalar(given(1, LVN_SHAPE(2, 3, 5, 2)), 3.0), \
            .mode = LVN_SAMPLE_##m, .padding = LVN_SAMPLE_##p, .align_corners = corners);          \
    }
SAMPLED(bilinear_zeros, BILINEAR, ZEROS, false)
SAMPLED(bilinear_zeros_corners, BILINEAR, ZEROS, true)
SAMPLED(bilinear_border, BILINEAR, BORDER, false)
SAMPLED(bilinear_border_corners, BILINEAR, BORDER, true)
SAMPLED(bilinear_reflection, BILINEAR, REFLECTION, false)
SAMPLED(bilinear_reflection_corners, BILINEAR, REFLECTION, true)
SAMPLED(nearest_zeros, NEAREST, ZEROS, false)
SAMPLED(nearest_zeros_corners, NEAREST, ZEROS, true)
SAMPLED(nearest_border, NEAREST, BORDER, false)
SAMPLED(nearest_border_corners, NEAREST, BORDER, true)
SAMPLED(nearest_reflection, NEAREST, REFLECTION, false)
SAMPLED(nearest_reflection_corners, NEAREST, REFLECTION, true)

static const struct {
    const char *name;
    lvn_tensor *(*f)(void);
} cases[] = {{"conv2d", conv2d},
             {"conv_transpose2d", conv_transpose2d},
             {"max_pool2d", max_pool2d},
             {"max_pool2d in two passes", max_pool2d_in_two_passes},
             {"max_pool2d, stride of the kernel", max_pool2d_by_kernel},
             {"avg_pool2d", avg_pool2d},
             {"conv1d", conv1d},
             {"unfold", unfold},
             {"fold", fold},
             {"affine_grid", affine_grid},
             {"affine_grid, corners", affine_grid_corners},
             {"gru_cell", gru_cell},
             {"lstm_cell", lstm_cell},
             {"grid_sample bilinear zeros", grid_sample_bilinear_zeros},
             {"grid_sample bilinear zeros corners", grid_sample_bilinear_zeros_corners},
             {"grid_sample bilinear border", grid_sample_bilinear_border},
             {"grid_sample bilinear border corners", grid_sample_bilinear_border_corners},
             {"grid_sample bilinear reflection", grid_sample_bilinear_reflection},
             {"grid_sample bilinear reflection corners", grid_sample_bilinear_reflection_corners},
             {"grid_sample nearest zeros", grid_sample_nearest_zeros},
             {"grid_sample nearest zeros corners", grid_sample_nearest_zeros_corners},
             {"grid_sample nearest border", grid_sample_nearest_border},
             {"grid_sample nearest border corners", grid_sample_nearest_border_corners},
             {"grid_sample nearest reflection", grid_sample_nearest_reflection},
             {"grid_sample nearest reflection corners", grid_sample_nearest_reflection_corners}};
enum { N_CASES = sizeof cases / sizeof *cases, N_GOLDEN = sizeof golden_ops / sizeof *golden_ops };

static void check(const golden_op *want, const lvn_tensor *y)
{
    if (y == NULL) {
        fail_msg("%s: %s", want->name, lvn_last_error()->message);
        return;
    }
    assert_int_equal(lvn_ndim(y), want->ndim);
    for (int i = 0; i < want->ndim; i++) {
        assert_int_equal(lvn_size(y, i), want->shape[i]);
    }
    for (int64_t e = 0; e < lvn_numel(y); e++) {
        if (!(fabs(element(y, e) - want->y[e]) <= 1e-10)) {
            fail_msg("%s, element %d: %.12g, expected %.12g", want->name, (int)e, element(y, e),
                     want->y[e]);
        }
    }
}

TEST(results_of_pytorch)
{
    assert_int_equal(N_CASES, N_GOLDEN);
    for (int i = 0; i < N_CASES; i++) {
        assert_string_equal(cases[i].name, golden_ops[i].name);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        check(&golden_ops[i], cases[i].f());
        assert_int_equal(lvn_scope_close(), LVN_OK);
        for (; n_made > 0; n_made--) {
            lvn_release(made[n_made - 1]);
        }
    }
}
