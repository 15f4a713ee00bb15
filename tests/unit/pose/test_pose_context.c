/* The network of five frames: its parameters, what its heads see of windows and of clips, and which
 * of them is taken. (Its numbers from Lightning Pose: tests/golden.) */
#include "autograd/tape.h"
#include "kernels/kernels.h"
#include "recipes/pose/pose_context.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEYPOINTS = 3, SIDE = 64, MAP = SIDE / 4, CHANNELS = 512 };

typedef struct context {
    lvn_module base;
    lvni_pose_context net;
    lvni_pose_network plain;
} context;

static const lvni_pose_network_settings settings = {
    .model = "resnet18", .keypoints = KEYPOINTS, .downsample = 2};

static lvn_status build(lvn_module *module, lvn_builder *b)
{
    lvni_pose_context_build(b, &settings, &((context *)module)->net);
    return lvn_builder_status(b);
}

static lvn_status build_vit(lvn_module *module, lvn_builder *b)
{
    const lvni_pose_network_settings vit = {.model = "dino_vits16", .keypoints = KEYPOINTS};
    lvni_pose_context_build(b, &vit, &((context *)module)->net);
    return lvn_builder_status(b);
}

static lvn_status build_plain(lvn_module *module, lvn_builder *b)
{
    lvni_pose_network_build(b, &settings, &((context *)module)->plain);
    return lvn_builder_status(b);
}

enum { CONTEXT, PLAIN, TRANSFORMER };

static lvni_nn_model *make(int kind)
{
    static const lvn_module_class classes[] = {
        [CONTEXT] = {.name = "context", .size = sizeof(context), .build = build},
        [PLAIN] = {.name = "plain", .size = sizeof(context), .build = build_plain},
        [TRANSFORMER] = {.name = "transformer", .size = sizeof(context), .build = build_vit}};
    lvni_nn_model *m;
    if (lvni_nn_model_build(&classes[kind], NULL, 3, &m) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return m;
}

static const context *root(const lvni_nn_model *m)
{
    return (const context *)m->root;
}

static lvn_tensor *find(const lvni_nn_model *m, const char *name)
{
    for (int i = 0; i < m->n_parameters; i++) {
        if (strcmp(m->parameters[i].name, name) == 0) {
            return m->parameters[i].tensor;
        }
    }
    fail_msg("the model has no %s", name);
    return NULL;
}

/* What differs by a lot from frame to frame. */
static lvn_tensor *make_frames(int64_t n)
{
    lvn_tensor *x = lvn_tensor_create(LVN_F32, LVN_SHAPE(n, SIDE, SIDE, 3));
    assert_non_null(x);
    for (int64_t i = 0; i < lvn_numel(x); i++) {
        LVNI_F32(x)[i] = (float)sin(0.37 * (double)i + 0.0002 * (double)(i % 977));
    }
    return x;
}

static void assert_close(const lvn_tensor *a, const lvn_tensor *b, double tolerance)
{
    if (a == NULL || b == NULL) {
        fail_msg("%s", lvn_last_error()->message);
        return;
    }
    assert_int_equal(lvn_numel(a), lvn_numel(b));
    for (int64_t i = 0; i < lvn_numel(a); i++) {
        const double x = (double)LVNI_CF32(a)[i], y = (double)LVNI_CF32(b)[i];
        if (!(fabs(x - y) <= tolerance * fabs(y))) {
            fail_msg("element %d: %g, not %g", (int)i, x, y);
        }
    }
}

/* ---- parameters ---- */

/* Names and sizes as in a checkpoint of Lightning Pose, whose `layers.*` are these again. Bounds:
 * sqrt(6 / (fan in + fan out)) with the fans that PyTorch counts. */
TEST(parameters_of_the_second_head)
{
    static const struct {
        const char *name;
        int64_t numel;
        int fans;
    } row[] = {{"head.head_mf.W_pre", CHANNELS / 4 * KEYPOINTS * 9, (CHANNELS / 4 + KEYPOINTS) * 9},
               {"head.head_mf.W_f", KEYPOINTS * KEYPOINTS * 9, 2 * KEYPOINTS * 9},
               {"head.head_mf.H_f.0", 16 * KEYPOINTS * 4, (16 * KEYPOINTS + 1) * 4},
               {"head.head_mf.H_f.1", 16 * KEYPOINTS * 4, (16 * KEYPOINTS + 1) * 4},
               {"head.head_mf.W_b", KEYPOINTS * KEYPOINTS * 9, 2 * KEYPOINTS * 9},
               {"head.head_mf.H_b.0", 16 * KEYPOINTS * 4, (16 * KEYPOINTS + 1) * 4},
               {"head.head_mf.H_b.1", 16 * KEYPOINTS * 4, (16 * KEYPOINTS + 1) * 4}};
    lvni_nn_model *m = make(CONTEXT);
    char name[64];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const double bound = sqrt(6.0 / (double)row[i].fans);
        double most = 0.0;
        snprintf(name, sizeof name, "%s.weight", row[i].name);
        const lvn_tensor *w = find(m, name);
        assert_int_equal(lvn_numel(w), row[i].numel);
        for (int64_t k = 0; k < row[i].numel; k++) {
            most = fmax(most, fabs((double)LVNI_CF32(w)[k]));
        }
        assert_true(most <= bound && most > 0.9 * bound);
        snprintf(name, sizeof name, "%s.bias", row[i].name);
        const lvn_tensor *bias = find(m, name);
        for (int64_t k = 0; k < lvn_numel(bias); k++) {
            assert_true(LVNI_CF32(bias)[k] == 0.0f);
        }
    }
    int64_t n = 0;
    for (int i = 0; i < m->n_parameters; i++) {
        n += strncmp(m->parameters[i].name, "head.head_mf.", 13) == 0;
    }
    assert_int_equal(n, 2 * sizeof row / sizeof *row);
    (void)find(m, "head.head_sf.upsampling_layers.1.weight");
    (void)find(m, "head.head_sf.upsampling_layers.2.bias");
    (void)find(m, "backbone.layer4.1.conv2.weight");
    lvni_nn_model_destroy(m);
}

/* The maps of a transformer have twice the sides: no layer doubles them before the recurrence. */
TEST(the_second_head_of_a_transformer)
{
    enum { CLIP = 6, FEATURES = 384 / 4 };
    lvni_nn_model *m = make(TRANSFORMER);
    lvn_tensor *x = make_frames(CLIP);
    for (int i = 0; i < m->n_parameters; i++) {
        assert_null(strstr(m->parameters[i].name, "W_pre"));
    }
    assert_int_equal(lvn_numel(find(m, "head.head_mf.W_f.weight")), FEATURES * KEYPOINTS * 9);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvni_pose_both both = lvni_pose_context_of_clip(&root(m)->net, x);
    const int64_t want[] = {CLIP - 4, MAP, MAP, KEYPOINTS};
    for (int i = 0; i < 2; i++) {
        const lvn_tensor *maps = i == 0 ? both.single : both.multi;
        assert_non_null(maps);
        assert_memory_equal(maps->shape, want, sizeof want);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(x);
    lvni_nn_model_destroy(m);
}

/* ---- windows ---- */

/* Both networks with the same weights, the head's large enough that maps have peaks. */
static void equal_weights(const lvni_nn_model *m, const lvni_nn_model *plain)
{
    for (int i = 0; i < plain->n_parameters; i++) {
        const lvni_nn_parameter *p = &plain->parameters[i];
        char name[128];
        const bool head = strncmp(p->name, "head.", 5) == 0;
        snprintf(name, sizeof name, "%s%s", head ? "head.head_sf." : "", p->name + (head ? 5 : 0));
        lvn_tensor *to = find(m, name);
        for (int64_t k = 0; k < p->numel; k++) {
            LVNI_F32(p->tensor)[k] *= head ? 100.0f : 1.0f;
            LVNI_F32(to)[k] = LVNI_F32(p->tensor)[k];
        }
    }
}

TEST(the_first_head_is_the_network_of_one_frame)
{
    lvni_nn_model *m = make(CONTEXT), *plain = make(PLAIN);
    equal_weights(m, plain);
    lvn_tensor *frame = make_frames(1);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *five = lvn_expand(lvn_reshape(frame, 5, (const int64_t[]){1, 1, SIDE, SIDE, 3}), 5,
                                  (const int64_t[]){1, LVNI_POSE_WINDOW, SIDE, SIDE, 3});
    const lvni_pose_both maps = lvni_pose_context_of_windows(&root(m)->net, five);
    assert_close(maps.single, lvni_pose_network_maps(&root(plain)->plain, frame), 1e-5);
    const int64_t want[] = {1, MAP, MAP, KEYPOINTS};
    assert_memory_equal(maps.multi->shape, want, sizeof want);
    for (int k = 0; k < KEYPOINTS; k++) {
        double sum = 0.0;
        for (int p = 0; p < MAP * MAP; p++) {
            sum += (double)LVNI_CF32(maps.multi)[p * KEYPOINTS + k];
        }
        assert_true(fabs(sum - 1.0) < 1e-5);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(frame);
    lvni_nn_model_destroy(m);
    lvni_nn_model_destroy(plain);
}

/* Three windows of seven frames, once as a clip and once each with its frames. */
TEST(windows_of_a_clip_are_windows)
{
    enum { FRAMES = 7, WINDOWS = 3, PIXELS = SIDE * SIDE * 3 };
    lvni_nn_model *m = make(CONTEXT);
    lvn_tensor *clip = make_frames(FRAMES),
               *each =
                   lvn_tensor_create(LVN_F32, LVN_SHAPE(WINDOWS, LVNI_POSE_WINDOW, SIDE, SIDE, 3));
    for (int i = 0; i < WINDOWS; i++) {
        memcpy(LVNI_F32(each) + (int64_t)i * LVNI_POSE_WINDOW * PIXELS,
               LVNI_F32(clip) + (int64_t)i * PIXELS,
               (size_t)LVNI_POSE_WINDOW * PIXELS * sizeof(float));
    }
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvni_pose_both of_clip = lvni_pose_context_of_clip(&root(m)->net, clip),
                         of_each = lvni_pose_context_of_windows(&root(m)->net, each);
    assert_close(of_clip.single, of_each.single, 1e-5);
    assert_close(of_clip.multi, of_each.multi, 1e-5);
    assert_int_equal(lvn_size(of_clip.multi, 0), WINDOWS);
    lvn_tensor *joined = lvni_pose_context_join(of_clip);
    assert_int_equal(lvn_size(joined, 0), 2 * WINDOWS);
    assert_close(lvn_slice(joined, 0, WINDOWS, 2 * WINDOWS), of_clip.multi, 0.0);
    /* windows differ, and so do heads */
    assert_true(fabsf(LVNI_CF32(of_clip.multi)[0] -
                      LVNI_CF32(of_clip.multi)[MAP * MAP * KEYPOINTS]) > 1e-6f);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(clip);
    lvn_release(each);
    lvni_nn_model_destroy(m);
}

static void expect_failure(lvni_pose_both maps, const char *want)
{
    assert_null(maps.single);
    assert_null(maps.multi);
    if (strstr(lvn_last_error()->message, want) == NULL) {
        fail_msg("%s", lvn_last_error()->message);
    }
    assert_int_not_equal(lvn_scope_close(), LVN_OK);
}

TEST(clips_below_five_frames_are_refused)
{
    lvni_nn_model *m = make(CONTEXT);
    lvn_tensor *four = make_frames(4);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    expect_failure(lvni_pose_context_of_clip(&root(m)->net, four),
                   "it takes clips (T, H, W, 3) of T >= 5 frames, not (4, 64, 64, 3)");
    assert_int_equal(lvn_scope_open(), LVN_OK);
    expect_failure(lvni_pose_context_of_windows(
                       &root(m)->net, lvn_reshape(four, 5, (const int64_t[]){1, 4, SIDE, SIDE, 3})),
                   "it takes windows (N, 5, H, W, 3), not (1, 4, 64, 64, 3)");
    lvn_release(four);
    lvni_nn_model_destroy(m);
}

/* ---- which head ---- */

TEST(the_more_confident_head_is_taken_for_each_keypoint)
{
    static const float single[] = {1, 2, 0.5f, 3, 4, 0.5f, 5, 6, 0.5f},
                       multi[] = {7, 8, 0.4f, 9, 10, 0.5f, 11, 12, 0.6f},
                       want[] = {1, 2, 0.5f, 3, 4, 0.5f, 11, 12, 0.6f};
    float numbers[2][9];
    memcpy(numbers[0], single, sizeof single);
    memcpy(numbers[1], multi, sizeof multi);
    lvn_tensor *a = lvn_tensor_wrap(numbers[0], LVN_F32, LVN_SHAPE(1, KEYPOINTS, 3)),
               *b = lvn_tensor_wrap(numbers[1], LVN_F32, LVN_SHAPE(1, KEYPOINTS, 3));
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvn_tensor *best = lvni_pose_context_choose((lvni_pose_both){.single = a, .multi = b});
    assert_memory_equal(lvn_const_data(best), want, sizeof want);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(a);
    lvn_release(b);
}
