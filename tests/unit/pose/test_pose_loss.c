/* Losses of single maps against numbers worked out from the formulas in double precision, what is
 * not labelled, and errors in the frames' pixels. */
#include "autograd/tape.h"
#include "kernels/kernels.h"
#include "recipes/pose/pose_loss.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = 64, PIXELS = SIDE * SIDE };

/* A bump around (x, y) of maps of 1/4 of the model's sides; NaN: the same everywhere. */
static void draw(lvn_tensor *maps, int n, double x, double y)
{
    const int k = (int)maps->shape[3];
    double *map = (double *)lvn_data(maps) + n / k * PIXELS * k + n % k, sum = 0.0;
    for (int pass = 0; pass < 2; pass++) {
        for (int p = 0; p < PIXELS; p++) {
            const int row = p / SIDE, column = p % SIDE;
            const double dx = column - x / 4.0, dy = row - y / 4.0;
            const double v = isnan(x) ? 1.0 : exp(-(dx * dx + dy * dy) / (2.0 * 1.25 * 1.25));
            sum += pass == 0 ? v : 0.0;
            map[p * k] = v / sum;
        }
    }
}

static lvn_tensor *numbers(const double *values, int ndim, const int64_t *shape)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F64, ndim, shape);
    memcpy(lvn_data(t), values, (size_t)lvn_numel(t) * sizeof *values);
    return t;
}

static double value_of(const lvn_tensor *t)
{
    assert_non_null(t);
    return t->dtype == LVN_F64 ? *(const double *)lvn_const_data(t)
                               : (double)*(const float *)lvn_const_data(t);
}

static void check(double have, double want, double tolerance)
{
    if (!(fabs(have - want) <= tolerance * fabs(want))) {
        fail_msg("%.9g, not %.9g", have, want);
    }
}

/* The loss of a target at (100, 60) and a map at (x, y), in f64 and in f32. */
static void check_pair(lvni_pose_loss kind, double x, double y, double want)
{
    const double one = 1.0;
    lvn_tensor *target = lvn_tensor_create(LVN_F64, LVN_SHAPE(1, SIDE, SIDE, 1)),
               *map = lvn_tensor_create(LVN_F64, LVN_SHAPE(1, SIDE, SIDE, 1)),
               *valid = numbers(&one, LVN_SHAPE(1, 1)), *count;
    draw(target, 0, 100.0, 60.0);
    draw(map, 0, x, y);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    check(value_of(lvni_pose_heatmap_loss(kind, target, map, valid, &count)), want, 5e-6);
    check(value_of(count), 1.0, 0.0);
    check(value_of(lvni_pose_heatmap_loss(kind, lvn_cast(target, LVN_F32), lvn_cast(map, LVN_F32),
                                          lvn_cast(valid, LVN_F32), &count)),
          want, 1e-5);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(target);
    lvn_release(map);
    lvn_release(valid);
}

TEST(losses_of_single_maps)
{
    check_pair(LVNI_POSE_MSE, NAN, 0.0, 0.05068548);
    check_pair(LVNI_POSE_MSE, 104.0, 60.0, 0.01506059);
    check_pair(LVNI_POSE_KL, NAN, 0.0, 5.033596);
    check_pair(LVNI_POSE_KL, 104.0, 60.0, 0.320000);
    check_pair(LVNI_POSE_JS, NAN, 0.0, 0.660930);
    check_pair(LVNI_POSE_JS, 104.0, 60.0, 0.074178);
}

/* Of four maps two count: theirs is the mean, whatever the others hold, and theirs the gradient. */
TEST(maps_without_a_label_are_ignored)
{
    const double some[] = {1.0, 0.0, 0.0, 1.0}, none[] = {0.0, 0.0, 0.0, 0.0};
    lvn_tensor *target = lvn_tensor_create(LVN_F64, LVN_SHAPE(2, SIDE, SIDE, 2)),
               *map = lvn_tensor_create(LVN_F64, LVN_SHAPE(2, SIDE, SIDE, 2)),
               *valid = numbers(some, LVN_SHAPE(2, 2)), *no = numbers(none, LVN_SHAPE(2, 2)),
               *count;
    for (int64_t i = 0; i < lvn_numel(target); i++) {
        ((double *)lvn_data(target))[i] = 0.0;
    }
    draw(target, 0, 100.0, 60.0);
    draw(target, 3, 100.0, 60.0);
    draw(map, 0, 104.0, 60.0);
    draw(map, 1, 30.0, 20.0);
    draw(map, 2, NAN, 0.0);
    draw(map, 3, NAN, 0.0);
    for (int kind = LVNI_POSE_MSE; kind <= LVNI_POSE_JS; kind++) {
        static const double want[] = {[LVNI_POSE_MSE] = (0.05068548 + 0.01506059) / 2.0,
                                      [LVNI_POSE_KL] = (5.033596 + 0.320000) / 2.0,
                                      [LVNI_POSE_JS] = (0.660930 + 0.074178) / 2.0};
        lvn_require_grad(map);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *loss = lvni_pose_heatmap_loss((lvni_pose_loss)kind, target, map, valid, &count);
        check(value_of(loss), want[kind], 5e-6);
        check(value_of(count), 2.0, 0.0);
        assert_int_equal(lvn_backward(loss), LVN_OK);
        const double *g = lvn_const_data(lvn_gradient(map));
        double first = 0.0, second = 0.0;
        for (int p = 0; p < PIXELS; p++) {
            first += fabs(g[2 * p]);
            second += fabs(g[2 * p + 1]);
        }
        assert_true(first > 0.0 && second == 0.0);
        lvn_zero_grad(map);
        loss = lvni_pose_heatmap_loss((lvni_pose_loss)kind, target, map, no, &count);
        check(value_of(loss), 0.0, 0.0);
        check(value_of(count), 0.0, 0.0);
        assert_int_equal(lvn_scope_close(), LVN_OK);
    }
    lvn_release(target);
    lvn_release(map);
    lvn_release(valid);
    lvn_release(no);
}

TEST(factors_of_losses)
{
    check(lvni_pose_loss_weight(0.0), 0.5, 1e-12);
    check(lvni_pose_loss_weight(5.0), 0.00336897, 1e-5);
    check(lvni_pose_loss_weight(11.0), 8.351e-6, 1e-4);
}

/* A frame twice as wide and three times as high as the model's images: an error of (1.5, 4/3) there
 * is (3, 4) here. The second keypoint has no label. */
TEST(errors_are_in_pixels_of_the_frame)
{
    const double found[] = {10.0, 20.0, 0.9, 99.0, 99.0, 0.1},
                 label[] = {11.5, 20.0 + 4.0 / 3.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0},
                 frame[] = {200.0, 300.0}, valid[] = {1.0, 0.0};
    lvn_tensor *f = numbers(found, LVN_SHAPE(1, 2, 3)), *l = numbers(label, LVN_SHAPE(1, 2, 4)),
               *s = numbers(frame, LVN_SHAPE(1, 2)), *v = numbers(valid, LVN_SHAPE(1, 2)), *count;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvni_pose_scale scale = {.height = 100, .width = 100, .frame = s};
    check(value_of(lvni_pose_rmse(f, l, v, &scale, &count)), 3.5355339, 1e-7);
    check(value_of(count), 1.0, 0.0);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(f);
    lvn_release(l);
    lvn_release(s);
    lvn_release(v);
}

/* Of two keypoints with labels and one without: errors of (3, 4) and (0, 2) in the frame, so
 * (9 + 16 + 0 + 4) / 4. */
TEST(the_loss_of_coordinates_is_in_pixels_of_the_frame)
{
    const double found[] = {10.0, 20.0, 99.0, 99.0, 50.0, 60.0},
                 label[] = {11.5, 20.0 + 4.0 / 3.0, 0.0, 0.0, 50.0, 60.0 - 2.0 / 3.0},
                 frame[] = {200.0, 300.0}, some[] = {1.0, 0.0, 1.0}, none[] = {0.0, 0.0, 0.0};
    lvn_tensor *f = numbers(found, LVN_SHAPE(1, 3, 2)), *l = numbers(label, LVN_SHAPE(1, 3, 2)),
               *s = numbers(frame, LVN_SHAPE(1, 2)), *v = numbers(some, LVN_SHAPE(1, 3)),
               *no = numbers(none, LVN_SHAPE(1, 3)), *count;
    lvn_require_grad(f);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvni_pose_scale scale = {.height = 100, .width = 100, .frame = s};
    check(value_of(lvni_pose_regression_loss(f, l, no, &scale, &count)), 0.0, 0.0);
    check(value_of(count), 0.0, 0.0);
    lvn_tensor *loss = lvni_pose_regression_loss(f, l, v, &scale, &count);
    check(value_of(loss), 29.0 / 4.0, 1e-12);
    check(value_of(count), 2.0, 0.0);
    assert_int_equal(lvn_backward(loss), LVN_OK);
    /* error in the frame, times frame pixels per pixel, times 2 / 4 */
    const double want[] = {-3.0, -6.0, 0.0, 0.0, 0.0, 3.0}, *g = lvn_const_data(lvn_gradient(f));
    for (int i = 0; i < 6; i++) {
        assert_true(fabs(g[i] - want[i]) < 1e-9);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(f);
    lvn_release(l);
    lvn_release(s);
    lvn_release(v);
    lvn_release(no);
}
