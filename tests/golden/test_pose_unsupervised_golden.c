/* test_pose_unsupervised_golden FILE: losses of clips and of coordinates, and both heads of the
 * network of five frames, against Lightning Pose's in double precision
 * (make_pose_unsupervised_golden.py). */
#include "golden_support.h"

#include "autograd/tape.h"
#include "core/alloc.h"
#include "kernels/kernels.h"
#include "recipes/pose/pose_context.h"
#include "recipes/pose/pose_loss.h"
#include "recipes/pose/pose_unsupervised.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FRAMES = 7, KEYPOINTS = 6, HEIGHT = 128, WIDTH = 256 };

static lvni_ckpt_st_file *file;

static uint64_t seed(void)
{
    return (uint64_t)golden_number(file, "seed");
}

/* add + times numbers; the scope's. */
static lvn_tensor *numbers(lvn_dtype dtype, const char *name, double add, double times, int ndim,
                           const int64_t *shape)
{
    lvn_tensor *from = golden_tensor(seed(), name, ndim, shape),
               *t = lvn_tensor_create(dtype, ndim, shape);
    assert_non_null(t);
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        golden_set(t, e, add + times * (double)LVNI_CF32(from)[e]);
    }
    lvn_release(from);
    return lvni_autograd_adopt(t);
}

static lvn_tensor *constant(lvn_dtype dtype, const double *values, int ndim, const int64_t *shape)
{
    lvn_tensor *t = lvn_tensor_create(dtype, ndim, shape);
    assert_non_null(t);
    const int64_t n = shape[0] * (ndim > 1 ? shape[1] : 1);
    for (int64_t e = 0; e < n; e++) {
        golden_set(t, e, values[e]);
    }
    return lvni_autograd_adopt(t);
}

static void compare(const char *prefix, const char *name, const lvn_tensor *have)
{
    if (have == NULL) {
        fail_msg("%s%s: %s", prefix, name, lvn_last_error()->message);
        return;
    }
    const double tolerance = have->dtype == LVN_F64 ? 1e-10 : 1e-5;
    int64_t n;
    const double *want = golden_values(file, prefix, name, &n);
    double most = 0.0;
    assert_int_equal(lvn_numel(have), n);
    for (int64_t e = 0; e < n; e++) {
        most = fmax(most, fabs(want[e]));
    }
    for (int64_t e = 0; e < n; e++) {
        if (!(fabs(golden_get(have, e) - want[e]) <= tolerance * most)) {
            fail_msg("%s%s %d: %.15g, Lightning Pose %.15g", prefix, name, (int)e,
                     golden_get(have, e), want[e]);
        }
    }
}

/* The loss, and the gradient of what it was made of; closes the scope. */
static void compare_loss(const char *prefix, lvn_tensor *loss, lvn_tensor *of)
{
    compare(prefix, "loss", loss);
    assert_int_equal(lvn_backward(loss), LVN_OK);
    compare(prefix, "gradient", lvn_gradient(of));
    assert_int_equal(lvn_scope_close(), LVN_OK);
}

static void each_type(void (*run)(lvn_dtype dtype))
{
    run(LVN_F32);
    run(LVN_F64);
}

/* ---- points ---- */

/* A leaf (rows, KEYPOINTS, 2), in pixels of augmented clips. */
static lvn_tensor *points(lvn_dtype dtype, const char *name, int64_t rows)
{
    return lvn_require_grad(
        numbers(dtype, name, 0.0, 64.0, 3, (const int64_t[]){rows, KEYPOINTS, 2}));
}

static lvni_pose_scale scale(lvn_dtype dtype)
{
    static const double frame[] = {400.0, 300.0};
    return (lvni_pose_scale){
        .height = HEIGHT, .width = WIDTH, .frame = constant(dtype, frame, LVN_SHAPE(1, 2))};
}

static lvn_tensor *in_frame(lvn_dtype dtype, lvn_tensor *found)
{
    static const double matrix[] = {0.875, -0.25, 12.5, 0.375, 1.125, -20.0};
    const lvni_pose_scale s = scale(dtype);
    return lvni_pose_to_frame(lvni_pose_undo(found, constant(dtype, matrix, LVN_SHAPE(2, 3))), &s);
}

static void run_points(lvn_dtype dtype)
{
    static const double one = 20.0, each[] = {4.0, 8.0, 16.0, 2.0, 32.0, 1.0};
    static const char *const prefix[] = {"points/one/", "points/each/", "points/all/"};
    for (int i = 0; i < 3; i++) {
        int64_t terms;
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *found = points(dtype, "points", FRAMES), *at = in_frame(dtype, found),
                   *sure = numbers(dtype, "confidence", 0.5, 0.25, LVN_SHAPE(FRAMES, KEYPOINTS));
        const lvni_pose_temporal t = {.epsilon = i == 1
                                                     ? constant(dtype, each, LVN_SHAPE(KEYPOINTS))
                                                     : constant(dtype, &one, LVN_SHAPE(1)),
                                      .threshold = 0.25,
                                      .clips = 1};
        compare("points/", "frame", at);
        lvn_tensor *loss = lvni_pose_temporal_loss(&t, at, i == 2 ? NULL : sure, &terms);
        assert_int_equal(terms, (FRAMES - 1) * KEYPOINTS);
        compare_loss(prefix[i], loss, found);
    }
}

TEST(steps_in_pixels_of_the_frame)
{
    each_type(run_points);
}

static void run_maps(lvn_dtype dtype)
{
    static const struct {
        const char *prefix;
        double epsilon;
    } row[] = {
        [LVNI_POSE_MAP_MSE] = {"maps/mse/", 0.0078125}, [LVNI_POSE_MAP_KL] = {"maps/kl/", 0.5}};
    for (int kind = LVNI_POSE_MAP_MSE; kind <= LVNI_POSE_MAP_KL; kind++) {
        int64_t terms;
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *maps = lvn_require_grad(
                       numbers(dtype, "maps", 0.1875, 0.0625, LVN_SHAPE(FRAMES, 5, 4, KEYPOINTS))),
                   *sure = numbers(dtype, "confidence", 0.5, 0.25, LVN_SHAPE(FRAMES, KEYPOINTS));
        const lvni_pose_temporal t = {.epsilon = constant(dtype, &row[kind].epsilon, LVN_SHAPE(1)),
                                      .threshold = 0.25,
                                      .clips = 1};
        compare_loss(
            row[kind].prefix,
            lvni_pose_temporal_map_loss(&t, (lvni_pose_map_distance)kind, maps, sure, &terms),
            maps);
    }
}

TEST(distances_of_successive_maps)
{
    each_type(run_maps);
}

/* ---- principal components ---- */

static void run_fit(lvn_dtype dtype, const char *prefix, lvni_pose_pca p)
{
    static const double epsilon = 24.0;
    int64_t terms, n;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const double *mean = golden_values(file, prefix, "mean", &n),
                 *vector = golden_values(file, prefix, "vector", &n);
    const int64_t dim = 2 * (int64_t)p.points;
    p.k = KEYPOINTS;
    p.kept = (int)(n / dim);
    const lvni_pose_subspace s = {.pca = &p,
                                  .mean = constant(dtype, mean, LVN_SHAPE(dim)),
                                  .vector = constant(dtype, vector, LVN_SHAPE(p.kept, dim)),
                                  .epsilon = constant(dtype, &epsilon, LVN_SHAPE(1))};
    lvn_tensor *found = points(dtype, "points", FRAMES);
    lvn_tensor *loss = lvni_pose_pca_loss(&s, in_frame(dtype, found), &terms);
    assert_int_equal(terms, FRAMES * p.points * p.parts);
    compare_loss(prefix, loss, found);
}

static void run_fits(lvn_dtype dtype)
{
    int all[] = {0, 1, 2, 3, 4, 5}, some[] = {4, 0, 1, 2}, five[] = {0, 2, 3, 4, 5},
        four[] = {0, 1, 3, 5}, views[] = {0, 1, 4, 2, 3, 5};
    run_fit(dtype, "pca/some/", (lvni_pose_pca){.points = 4, .parts = 1, .column = some});
    run_fit(dtype, "pca/mean/",
            (lvni_pose_pca){
                .points = 6, .parts = 1, .centring = LVNI_POSE_CENTRING_MEAN, .column = all});
    run_fit(dtype, "pca/median/",
            (lvni_pose_pca){
                .points = 5, .parts = 1, .centring = LVNI_POSE_CENTRING_MEDIAN, .column = five});
    run_fit(dtype, "pca/median of four/",
            (lvni_pose_pca){
                .points = 4, .parts = 1, .centring = LVNI_POSE_CENTRING_MEDIAN, .column = four});
    run_fit(dtype, "pca/multiview/", (lvni_pose_pca){.points = 3, .parts = 2, .column = views});
}

TEST(reprojection_errors_in_pixels_of_the_frame)
{
    each_type(run_fits);
}

/* ---- coordinates ---- */

static void run_labels(lvn_dtype dtype)
{
    enum { ROWS = 4 };
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *found = points(dtype, "points", ROWS),
               *label = lvn_detach(points(dtype, "labels", ROWS)),
               *valid = numbers(dtype, "missing", 0.0, 1.0, LVN_SHAPE(ROWS, KEYPOINTS)), *count;
    double n = 0.0;
    for (int64_t e = 0; e < lvn_numel(valid); e++) {
        golden_set(valid, e, golden_get(valid, e) > 1.0 ? 0.0 : 1.0);
        n += golden_get(valid, e);
    }
    const lvni_pose_scale s = scale(dtype);
    lvn_tensor *loss = lvni_pose_regression_loss(found, label, valid, &s, &count);
    assert_true(n > 0.0 && n < ROWS * KEYPOINTS && golden_get(count, 0) == n);
    compare_loss("labels/", loss, found);
}

TEST(coordinates_in_pixels_of_the_frame)
{
    each_type(run_labels);
}

/* ---- heads ---- */

enum { CHANNELS = 512, JOINTS = 3, H = 2, W = 3, CLIP = 7, WINDOWS = 2 };

typedef struct context {
    lvn_module base;
    lvni_pose_context net;
} context;

static lvn_status build(lvn_module *module, lvn_builder *b)
{
    const lvni_pose_network_settings s = {.model = "resnet18", .keypoints = JOINTS};
    lvni_pose_context_build(b, &s, &((context *)module)->net);
    return lvn_builder_status(b);
}

static void compare_row(const char *prefix, const char *name, const lvn_tensor *have, double *worst)
{
    int64_t n;
    const double *want = golden_values(file, prefix, name, &n);
    assert_int_equal(n, GOLDEN_ROW);
    golden_compare_row(want, LVNI_CF32(have), lvn_numel(have), name, 0.0, worst);
}

static lvn_tensor *weighed(const char *name, lvn_tensor *map)
{
    return lvn_sum(lvn_mul(numbers(LVN_F32, name, 0.0, 1.0, 4, map->shape), map));
}

/* The sum of all maps times numbers, and its gradients. */
static void run_heads(const lvni_nn_model *m, lvni_nn_set *set, const char *prefix, bool clip)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    char grad[64];
    int64_t n;
    double worst = 0.0;
    ctx->gradients = &set->gradients;
    lvni_nn_set_begin(set, 1.0);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *x = lvn_require_grad(
        numbers(LVN_F32, "features", 0.0, 0.03125,
                LVN_SHAPE(clip ? CLIP : WINDOWS * LVNI_POSE_WINDOW, H, W, CHANNELS)));
    const lvni_pose_both maps = lvni_pose_context_heads(&((const context *)m->root)->net, x, clip);
    if (maps.single == NULL || maps.multi == NULL) {
        fail_msg("%s", lvn_last_error()->message);
        return;
    }
    lvn_tensor *loss = lvn_add(weighed("single", maps.single), weighed("multi", maps.multi));
    compare_row(prefix, "single", maps.single, &worst);
    compare_row(prefix, "multi", maps.multi, &worst);
    assert_true(fabs(lvn_item(loss) - *golden_values(file, prefix, "loss", &n)) <= 1e-4);
    assert_int_equal(lvn_backward(loss), LVN_OK);
    compare_row(prefix, "features", lvn_gradient(x), &worst);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvni_nn_set_finish(set);
    ctx->gradients = NULL;
    snprintf(grad, sizeof grad, "%sgrad/", prefix);
    /* the biases of the last layers move all pixels of a map alike: zero except for rounding */
    n = golden_compare_gradients(file, grad, set, 0.1, &worst);
    assert_int_equal(n, 18); /* two layers of one head, seven of the other */
    print_message("  %s largest relative difference: %.1e\n", prefix, worst);
}

TEST(heads_of_windows_and_clips)
{
    static const lvn_module_class cls = {
        .name = "context", .size = sizeof(context), .build = build};
    lvni_nn_model *m;
    lvni_nn_set *set;
    assert_int_equal(lvni_nn_model_build_empty(&cls, NULL, &m), LVN_OK);
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    golden_fill(m, seed(), "none");
    run_heads(m, set, "head/windows/", false);
    run_heads(m, set, "head/clip/", true);
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(m);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_pose_unsupervised_golden FILE\n");
        return 2;
    }
    if (lvni_cpu_start() != LVN_OK || lvni_ckpt_st_open(argv[1], LVNI_ST_VERIFY, &file) != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 1;
    }
    const int failed = test_main(1, argv);
    lvni_ckpt_st_close(file);
    return failed;
}
