/* Losses of clips against numbers worked out by hand, and their gradients against differences. (Of
 * random clips against Lightning Pose: tests/golden.) */
#include "autograd/tape.h"
#include "gradient_support.h"
#include "kernels/kernels.h"
#include "recipes/pose/pose_loss.h"
#include "recipes/pose/pose_unsupervised.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static lvn_tensor *numbers(lvn_dtype dtype, const double *values, int ndim, const int64_t *shape)
{
    lvn_tensor *t = lvn_tensor_create(dtype, ndim, shape);
    assert_non_null(t);
    for (int64_t i = 0; i < lvn_numel(t); i++) {
        if (dtype == LVN_F64) {
            ((double *)lvn_data(t))[i] = values[i];
        } else {
            ((float *)lvn_data(t))[i] = (float)values[i];
        }
    }
    return lvni_autograd_adopt(t);
}

static void check(const lvn_tensor *t, double want)
{
    if (t == NULL) {
        fail_msg("%s", lvn_last_error()->message);
        return;
    }
    const double have = element(t, 0);
    if (!(fabs(have - want) <= (t->dtype == LVN_F64 ? 1e-12 : 1e-5) * (1.0 + fabs(want)))) {
        fail_msg("%.15g, not %.15g", have, want);
    }
}

/* ---- steps ---- */

/* The loss of one keypoint that goes from (10, 20) to (13, 24), a step of 5. */
static void check_step(lvn_dtype dtype, double epsilon, double first, double second, double want)
{
    const double at[] = {10.0, 20.0, 13.0, 24.0}, sure[] = {first, second};
    int64_t terms;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvni_pose_temporal t = {
        .epsilon = numbers(dtype, &epsilon, LVN_SHAPE(1)), .threshold = 0.05, .clips = 1};
    check(lvni_pose_temporal_loss(&t, numbers(dtype, at, LVN_SHAPE(2, 1, 2)),
                                  numbers(dtype, sure, LVN_SHAPE(2, 1)), &terms),
          want);
    assert_int_equal(terms, 1);
    assert_int_equal(lvn_scope_close(), LVN_OK);
}

TEST(a_step_counts_above_epsilon_where_both_frames_are_sure)
{
    for (int wide = 0; wide < 2; wide++) {
        const lvn_dtype dtype = wide ? LVN_F64 : LVN_F32;
        check_step(dtype, 2.0, 0.9, 0.9, 3.0);
        check_step(dtype, 0.0, 0.06, 0.06, 5.0);
        check_step(dtype, 5.5, 0.9, 0.9, 0.0);
        check_step(dtype, 2.0, 0.04, 0.9, 0.0);
        check_step(dtype, 2.0, 0.9, 0.04, 0.0);
    }
}

/* Two clips of three frames and two keypoints: steps of 5 and 10 in the first, none in the second,
 * which lies elsewhere. Epsilons 1 and 7: ((4 + 4) + (3 + 3)) / 8; no step goes from one to the
 * other. */
TEST(each_keypoint_has_its_epsilon_and_heads_do_not_meet)
{
    static const double at[] = {0, 0, 100, 100, 3, 4, 106, 108, 6, 8, 112, 116,
                                7, 7, 7,   7,   7, 7, 7,   7,   7, 7, 7,   7};
    static const double epsilon[] = {1.0, 7.0};
    int64_t terms;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *found = numbers(LVN_F64, at, LVN_SHAPE(6, 2, 2));
    lvni_pose_temporal t = {.epsilon = numbers(LVN_F64, epsilon, LVN_SHAPE(2)), .clips = 2};
    check(lvni_pose_temporal_loss(&t, found, NULL, &terms), 14.0 / 8.0);
    assert_int_equal(terms, 8);
    t.clips = 1; /* a step more, far away */
    check(lvni_pose_temporal_loss(&t, found, NULL, &terms),
          (14.0 + sqrt(2.0) - 1.0 + hypot(105.0, 109.0) - 7.0) / 10.0);
    t.clips = 6; /* of one frame each */
    check(lvni_pose_temporal_loss(&t, found, NULL, &terms), 0.0);
    assert_int_equal(terms, 0);
    assert_int_equal(lvn_scope_close(), LVN_OK);
}

/* Maps of two pixels: (1/4, 3/4) and then (1/2, 1/2), the same, and one of them again. */
TEST(maps_of_neighbours)
{
    static const double map[] = {0.25, 0.75, 0.5, 0.5, 0.5, 0.5, 0.25, 0.75};
    static const double sure[] = {1.0, 1.0, 1.0, 0.04}, none = 0.0, some = 0.01;
    const double kl = 0.5 * log(2.0) + 0.5 * log(2.0 / 3.0),
                 back = 0.25 * log(0.5) + 0.75 * log(1.5);
    int64_t terms;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *maps = numbers(LVN_F64, map, LVN_SHAPE(4, 1, 2, 1)),
               *confidence = numbers(LVN_F64, sure, LVN_SHAPE(4, 1));
    lvni_pose_temporal t = {
        .epsilon = numbers(LVN_F64, &none, LVN_SHAPE(1)), .threshold = 0.05, .clips = 1};
    check(lvni_pose_temporal_map_loss(&t, LVNI_POSE_MAP_MSE, maps, NULL, &terms),
          (0.0625 + 0.0625) / 3.0);
    assert_int_equal(terms, 3);
    check(lvni_pose_temporal_map_loss(&t, LVNI_POSE_MAP_MSE, maps, confidence, &terms),
          0.0625 / 3.0);
    lvn_tensor *loss = lvni_pose_temporal_map_loss(&t, LVNI_POSE_MAP_KL, maps, NULL, &terms);
    assert_true(fabs(element(loss, 0) - (kl + back) / 3.0) < 1e-9);
    t.epsilon = numbers(LVN_F64, &some, LVN_SHAPE(1));
    check(lvni_pose_temporal_map_loss(&t, LVNI_POSE_MAP_MSE, maps, confidence, &terms),
          0.0525 / 3.0);
    assert_int_equal(lvn_scope_close(), LVN_OK);
}

/* ---- back to the frame ---- */

/* A turn by 30 degrees, unequal scales and a shift; one for the clip, or one for each frame. */
TEST(undo_is_the_inverse_of_the_clips_matrix)
{
    static const double m[] = {0.9526279441628825,
                               -0.45,
                               20.5,
                               0.55,
                               0.7794228634059948,
                               -7.25,
                               2.0,
                               0.0,
                               1.0,
                               0.0,
                               4.0,
                               2.0};
    static const double at[] = {31.25, 200.5, 0.0, 7.0};
    double moved[4];
    for (int i = 0; i < 2; i++) {
        const double *of = m + 6 * i;
        moved[2 * i] = of[0] * at[2 * i] + of[1] * at[2 * i + 1] + of[2];
        moved[2 * i + 1] = of[3] * at[2 * i] + of[4] * at[2 * i + 1] + of[5];
    }
    for (int wide = 0; wide < 2; wide++) {
        const lvn_dtype dtype = wide ? LVN_F64 : LVN_F32;
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *each = lvni_pose_undo(numbers(dtype, moved, LVN_SHAPE(2, 1, 2)),
                                          numbers(dtype, m, LVN_SHAPE(2, 2, 3))),
                   *both = lvni_pose_undo(numbers(dtype, moved, LVN_SHAPE(1, 2, 2)),
                                          numbers(dtype, m, LVN_SHAPE(2, 3)));
        for (int i = 0; i < 4; i++) {
            assert_true(fabs(element(each, i) - at[i]) < (wide ? 1e-12 : 1e-3));
        }
        assert_true(fabs(element(both, 0) - at[0]) < (wide ? 1e-12 : 1e-3));
        assert_int_equal(lvn_scope_close(), LVN_OK);
    }
}

/* ---- principal components ---- */

/* Two views of two body parts among five keypoints: parts 4 and 0 in one, 1 and 2 in the other.
 * What is kept is that both views have the same x: y is an error as a whole, x by half of the
 * difference. */
static int column[] = {4, 0, 1, 2};
static const double half = 0.70710678118654752440, centre[] = {10.0, 0.0, 20.0, 0.0},
                    direction[] = {half, 0.0, half, 0.0};
static const lvni_pose_pca views = {.k = 5, .points = 2, .parts = 2, .kept = 1, .column = column};

static lvni_pose_subspace subspace(lvn_dtype dtype, const lvni_pose_pca *p, double epsilon)
{
    return (lvni_pose_subspace){.pca = p,
                                .mean = numbers(dtype, centre, LVN_SHAPE(4)),
                                .vector = numbers(dtype, direction, LVN_SHAPE(1, 4)),
                                .epsilon = numbers(dtype, &epsilon, LVN_SHAPE(1))};
}

/* Part 4|1: x 16 and 26, no error of x; y 3 and 0. Part 0|2: x 10 and 28, so 4 each; y 3 and 0. */
static const double pose[] = {10, 3, 26, 0, 28, 0, -99, 99, 16, 3};

TEST(views_that_the_components_cannot_put_together)
{
    int64_t terms;
    for (int wide = 0; wide < 2; wide++) {
        const lvn_dtype dtype = wide ? LVN_F64 : LVN_F32;
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *found = numbers(dtype, pose, LVN_SHAPE(1, 5, 2));
        lvni_pose_subspace s = subspace(dtype, &views, 0.0);
        check(lvni_pose_pca_loss(&s, found, &terms), (3.0 + 0.0 + 5.0 + 4.0) / 4.0);
        assert_int_equal(terms, 4);
        s = subspace(dtype, &views, 3.5);
        check(lvni_pose_pca_loss(&s, found, &terms), (1.5 + 0.5) / 4.0);
        assert_int_equal(lvn_scope_close(), LVN_OK);
    }
}

/* The network's input may have any size: what it finds becomes pixels of the frame before the loss
 * looks at it, and these are what the components were fitted on. */
TEST(the_loss_is_in_pixels_of_the_frame)
{
    static const double frame[] = {400.0, 300.0};
    const int side[] = {128, 256};
    int64_t terms;
    for (int i = 0; i < 2; i++) {
        double found[10];
        for (int j = 0; j < 10; j++) {
            found[j] = pose[j] * side[i] / frame[j % 2];
        }
        assert_int_equal(lvn_scope_open(), LVN_OK);
        const lvni_pose_scale scale = {
            .height = side[i], .width = side[i], .frame = numbers(LVN_F64, frame, LVN_SHAPE(1, 2))};
        const lvni_pose_subspace s = subspace(LVN_F64, &views, 0.0);
        check(lvni_pose_pca_loss(
                  &s, lvni_pose_to_frame(numbers(LVN_F64, found, LVN_SHAPE(1, 5, 2)), &scale),
                  &terms),
              3.0);
        assert_int_equal(lvn_scope_close(), LVN_OK);
    }
}

/* Poses that are moved as a whole have the same loss. With the mean of 3 points the first of which
 * is (3, 0) and the others (0, 0): (2, 0), (-1, 0), (-1, 0); with the median (3, 0), 0, 0. */
TEST(centring_takes_the_place_of_the_pose_away)
{
    static int all[] = {1, 2, 3};
    static const double zero[6] = {0}, up[] = {0, 1, 0, 0, 0, 0},
                        points[] = {-7, -7, 53, 40, 50, 40, 50, 40};
    static const double want[] = {
        [LVNI_POSE_CENTRING_MEAN] = 4.0 / 3.0, [LVNI_POSE_CENTRING_MEDIAN] = 1.0};
    int64_t terms;
    for (int c = LVNI_POSE_CENTRING_MEAN; c <= LVNI_POSE_CENTRING_MEDIAN; c++) {
        const lvni_pose_pca p = {.k = 4,
                                 .points = 3,
                                 .parts = 1,
                                 .kept = 1,
                                 .column = all,
                                 .centring = (lvni_pose_centring)c};
        assert_int_equal(lvn_scope_open(), LVN_OK);
        const lvni_pose_subspace s = {.pca = &p,
                                      .mean = numbers(LVN_F64, zero, LVN_SHAPE(6)),
                                      .vector = numbers(LVN_F64, up, LVN_SHAPE(1, 6)),
                                      .epsilon = numbers(LVN_F64, zero, LVN_SHAPE(1))};
        check(lvni_pose_pca_loss(&s, numbers(LVN_F64, points, LVN_SHAPE(1, 4, 2)), &terms),
              want[c]);
        assert_int_equal(terms, 3);
        assert_int_equal(lvn_scope_close(), LVN_OK);
    }
}

/* ---- what the model keeps ---- */

typedef struct keeper {
    lvn_module base;
    lvni_pose_subspace s;
    lvn_tensor *epsilon;
} keeper;

static lvn_status build_keeper(lvn_module *module, lvn_builder *b)
{
    keeper *m = (keeper *)module;
    double each[] = {1.5, 2.5};
    lvni_pose_subspace_build(b, "pca_multiview", lvn_builder_arguments(b), &m->s);
    lvni_pose_epsilon_build(b, "temporal.epsilon", each, 2, &m->epsilon);
    return lvn_builder_status(b);
}

TEST(the_model_keeps_the_components)
{
    static const lvn_module_class cls = {
        .name = "keeper", .size = sizeof(keeper), .build = build_keeper};
    double mean[4], vector[4];
    memcpy(mean, centre, sizeof mean);
    memcpy(vector, direction, sizeof vector);
    lvni_pose_pca p = views;
    p.mean = mean;
    p.vector = vector;
    p.epsilon = 3.5;
    lvni_nn_model *m;
    int64_t terms;
    assert_int_equal(lvni_nn_model_build(&cls, &p, 1, &m), LVN_OK);
    static const char *const names[] = {"pca_multiview.mean", "pca_multiview.vector",
                                        "pca_multiview.epsilon", "temporal.epsilon"};
    assert_int_equal(m->n_buffers, 4);
    assert_int_equal(m->n_parameters, 0);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(m->buffers[i]->name, names[i]);
        assert_true(m->buffers[i]->left_out == (i == 3));
        assert_int_equal(lvni_nn_buffer_record_length(m->buffers[i]), 0);
    }
    const keeper *k = (const keeper *)m->root;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    check(lvni_pose_pca_loss(&k->s, numbers(LVN_F32, pose, LVN_SHAPE(1, 5, 2)), &terms), 0.5);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    assert_true(element(k->epsilon, 0) == 1.5 && element(k->epsilon, 1) == 2.5);
    lvni_nn_model_destroy(m);
}

/* ---- gradients ---- */

static int64_t unused;
static lvni_pose_temporal temporal;
static lvn_tensor *constant[3]; /* of the running test */

static lvn_tensor *steps(lvn_tensor *const *in)
{
    return lvni_pose_temporal_loss(&temporal, in[0], constant[0], &unused);
}

static lvn_tensor *map_mse(lvn_tensor *const *in)
{
    return lvni_pose_temporal_map_loss(&temporal, LVNI_POSE_MAP_MSE, in[0], constant[0], &unused);
}

static lvn_tensor *map_kl(lvn_tensor *const *in)
{
    return lvni_pose_temporal_map_loss(&temporal, LVNI_POSE_MAP_KL, in[0], constant[0], &unused);
}

/* Clips of three frames, three keypoints, of which a few are not sure enough. */
TEST(gradients_of_steps)
{
    const dims points = S(6, 3, 2), maps = S(6, 2, 3, 3);
    lvn_tensor *in[] = {make_leaf(LVN_F64, 1, &points, NORMAL)},
               *map[] = {make_leaf(LVN_F64, 2, &maps, POSITIVE)};
    constant[0] = make_constant(LVN_F64, 3, 2, (const int64_t[]){6, 3});
    constant[1] = make_constant(LVN_F64, 4, 1, (const int64_t[]){3});
    for (int k = 0; k < 3; k++) {
        ((double *)lvn_data(constant[1]))[k] = 0.1 * k;
    }
    temporal = (lvni_pose_temporal){.epsilon = constant[1], .threshold = -1.0, .clips = 2};
    check_gradients("temporal", steps, in, 1, 1e-8);
    check_gradients("temporal_heatmap_mse", map_mse, map, 1, 1e-8);
    lvn_zero_grad(map[0]);
    check_gradients("temporal_heatmap_kl", map_kl, map, 1, 1e-7);
    lvn_release(in[0]);
    lvn_release(map[0]);
    lvn_release(constant[0]);
    lvn_release(constant[1]);
}

/* A clip that stands still has no slope, not one that is not a number; and neither confidence nor
 * matrix get a gradient. */
TEST(what_gets_no_gradient)
{
    const dims points = S(3, 2, 2), sure = S(3, 2), affine = S(2, 3);
    const double zero = 0.0;
    lvn_tensor *at = make_leaf(LVN_F64, 1, &points, NORMAL),
               *confidence = make_leaf(LVN_F64, 2, &sure, POSITIVE),
               *matrix = make_leaf(LVN_F64, 3, &affine, NORMAL);
    memset(lvn_data(at), 0, (size_t)lvn_numel(at) * sizeof(double));
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvni_pose_temporal t = {.epsilon = numbers(LVN_F64, &zero, LVN_SHAPE(1)), .clips = 1};
    assert_int_equal(
        lvn_backward(lvni_pose_temporal_loss(&t, lvni_pose_undo(at, matrix), confidence, &unused)),
        LVN_OK);
    const lvn_tensor *g = lvn_gradient(at);
    for (int64_t i = 0; i < lvn_numel(at); i++) {
        assert_true(element(g, i) == 0.0);
    }
    assert_null(lvn_gradient(confidence));
    assert_null(lvn_gradient(matrix));
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(at);
    lvn_release(confidence);
    lvn_release(matrix);
}

static lvn_tensor *undone(lvn_tensor *const *in)
{
    return lvni_pose_undo(in[0], constant[0]);
}

TEST(gradients_of_undo)
{
    const dims points = S(4, 3, 2);
    lvn_tensor *in[] = {make_leaf(LVN_F64, 1, &points, NORMAL)};
    for (int64_t n = 1; n <= 4; n += 3) {
        constant[0] = make_constant(LVN_F64, 5, 3, (const int64_t[]){n, 2, 3});
        check_gradients("undo", undone, in, 1, 1e-8);
        lvn_zero_grad(in[0]);
        lvn_release(constant[0]);
    }
    lvn_release(in[0]);
}

static lvni_pose_pca fitted;

static lvn_tensor *reprojected(lvn_tensor *const *in)
{
    const lvni_pose_subspace s = {
        .pca = &fitted, .mean = constant[0], .vector = constant[1], .epsilon = constant[2]};
    return lvni_pose_pca_loss(&s, in[0], &unused);
}

/* Two directions are kept; columns lie in runs, backwards, and twice. */
TEST(gradients_of_reprojection_errors)
{
    static int twelve[] = {3, 4, 5, 0, 6, 6, 2, 1, 0, 5, 6, 7};
    static const struct {
        int points, parts;
        lvni_pose_centring centring;
    } row[] = {{6, 2, LVNI_POSE_CENTRING_NONE},
               {12, 1, LVNI_POSE_CENTRING_MEAN},
               {5, 1, LVNI_POSE_CENTRING_MEDIAN},
               {4, 1, LVNI_POSE_CENTRING_MEDIAN},
               {1, 12, LVNI_POSE_CENTRING_NONE}};
    const dims points = S(2, 8, 2);
    lvn_tensor *in[] = {make_leaf(LVN_F64, 1, &points, APART)};
    constant[2] = make_constant(LVN_F64, 8, 1, (const int64_t[]){1});
    *(double *)lvn_data(constant[2]) = 0.05;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        fitted = (lvni_pose_pca){.k = 8,
                                 .points = row[i].points,
                                 .parts = row[i].parts,
                                 .kept = row[i].points > 1 ? 2 : 1,
                                 .centring = row[i].centring,
                                 .column = twelve};
        constant[0] = make_constant(LVN_F64, 6, 1, (const int64_t[]){2 * fitted.points});
        constant[1] =
            make_constant(LVN_F64, 7, 2, (const int64_t[]){fitted.kept, 2 * fitted.points});
        check_gradients("pca", reprojected, in, 1, 1e-7);
        lvn_zero_grad(in[0]);
        lvn_release(constant[0]);
        lvn_release(constant[1]);
    }
    lvn_release(in[0]);
    lvn_release(constant[2]);
}
