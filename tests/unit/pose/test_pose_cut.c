/* Videos in clips, for the network of five frames: which frame a sample is, whose result stands in
 * which row, the ends, and predictions of a clip against those of windows. */
#include "recipes/pose/pose_cut.h"

#include "kernels/kernels.h"
#include "recipes/pose/pose.h"
#include "recipes/pose/pose_context.h"
#include "recipes/pose/pose_video.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

/* ---- samples and rows ---- */

/* Every frame has one row, and around it are its neighbours, the first and last ones again beyond
 * the ends. */
static void check_cut(const lvni_pose_cut *cut)
{
    int64_t next = 0;
    for (int64_t sample = 0; sample < lvni_pose_cut_samples(cut); sample++) {
        const int64_t row = lvni_pose_cut_row(cut, sample);
        if (row < 0) {
            continue;
        }
        assert_int_equal(row, next);
        next++;
        for (int64_t i = -2; i <= 2; i++) {
            const int64_t frame = row + i < 0              ? 0
                                  : row + i >= cut->frames ? cut->frames - 1
                                                           : row + i;
            assert_int_equal((sample + i) / cut->clip, sample / cut->clip);
            assert_int_equal(lvni_pose_cut_frame(cut, sample + i), frame);
        }
    }
    assert_int_equal(next, cut->frames);
}

TEST(every_frame_has_its_window_in_one_clip)
{
    for (int64_t frames = 1; frames <= 60; frames++) {
        for (int64_t most = 5; most <= 70; most++) {
            const lvni_pose_cut cut = lvni_pose_cut_make(frames, most);
            assert_true(cut.clip >= 5 && cut.clip <= most);
            check_cut(&cut);
        }
    }
}

TEST(the_example_of_188_frames)
{
    const lvni_pose_cut cut = lvni_pose_cut_make(188, 96);
    check_cut(&cut);
    assert_int_equal(cut.clips, 3); /* of 92 results at most */
    assert_int_equal(cut.clip, 67);
    assert_int_equal(lvni_pose_cut_row(&cut, 2 * 67 + 2), 126);
    assert_int_equal(lvni_pose_cut_row(&cut, 2 * 67 + 2 + 61), 187);
    assert_int_equal(lvni_pose_cut_row(&cut, 2 * 67 + 2 + 62), -1); /* behind the end */
    assert_int_equal(lvni_pose_cut_frame(&cut, 2 * 67 + 2 + 62), 187);
}

TEST(a_video_that_is_not_cut)
{
    const lvni_pose_cut cut = lvni_pose_cut_none(7);
    assert_int_equal(lvni_pose_cut_samples(&cut), 7);
    for (int64_t i = 0; i < 7; i++) {
        assert_int_equal(lvni_pose_cut_frame(&cut, i), i);
        assert_int_equal(lvni_pose_cut_row(&cut, i), i);
    }
    float value[] = {0, 1, 2, 3, 4, 5, 6};
    lvni_pose_cut_end(&cut, value, 1);
    assert_true(value[0] == 0.0f && value[6] == 6.0f);
}

/* Rows of the ends are those of frame 2 and of frame F - 3; below five frames each has its own. */
TEST(ends_repeat_the_nearest_row)
{
    enum { MOST = 8 };
    static const float want[MOST + 1][MOST] = {
        [1] = {0},
        [2] = {0, 1},
        [3] = {0, 1, 2},
        [4] = {0, 1, 2, 3},
        [5] = {2, 2, 2, 2, 2},
        [6] = {2, 2, 2, 3, 3, 3},
        [7] = {2, 2, 2, 3, 4, 4, 4},
        [8] = {2, 2, 2, 3, 4, 5, 5, 5},
    };
    for (int64_t frames = 1; frames <= MOST; frames++) {
        const lvni_pose_cut cut = lvni_pose_cut_make(frames, 6);
        float value[MOST][2];
        for (int i = 0; i < MOST; i++) {
            value[i][0] = (float)i;
            value[i][1] = (float)(10 * i);
        }
        lvni_pose_cut_end(&cut, value[0], 2);
        for (int64_t i = 0; i < frames; i++) {
            assert_true(value[i][0] == want[frames][i] && value[i][1] == 10.0f * want[frames][i]);
        }
        for (int64_t i = frames; i < MOST; i++) {
            assert_true(value[i][0] == (float)i); /* not written to */
        }
    }
}

/* ---- predictions ---- */

enum { KEYPOINTS = 3, SIDE = 64, FRAMES = 9, WINDOWS = FRAMES - 4, PIXELS = SIDE * SIDE * 3 };

static lvni_nn_model *make_model(void)
{
    static const lvni_pose_settings none = {.type = LVNI_POSE_CONTEXT};
    const lvni_pose_arguments arguments = {
        .type = LVNI_POSE_CONTEXT,
        .network = {.model = "resnet18", .keypoints = KEYPOINTS, .downsample = 2},
        .height = SIDE,
        .width = SIDE,
        .settings = &none};
    lvni_nn_model *m;
    if (lvni_nn_model_build(&lvni_pose_module, &arguments, 5, &m) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return m;
}

static lvn_tensor *fill(lvn_tensor *x, const float *value, int64_t period)
{
    assert_non_null(x);
    for (int64_t i = 0; i < lvn_numel(x); i++) {
        LVNI_F32(x)[i] = value[i % period];
    }
    return x;
}

static lvn_tensor *predict(const lvni_nn_model *m, lvn_tensor *image, lvn_tensor *read)
{
    static const float size[2] = {200.0f, 100.0f};
    const int64_t n = lvn_size(image, 0);
    lvn_batch batch = {.size = n, .image = image, .n_fields = LVNI_POSE_FIELDS};
    lvn_tensor *frame = fill(lvn_tensor_create(LVN_F32, LVN_SHAPE(n, 2)), size, 2);
    batch.field[LVNI_POSE_FIELD_IMAGE] = image;
    batch.field[LVNI_POSE_FIELD_READ] = read;
    batch.field[LVNI_POSE_FIELD_FRAME] = frame;
    const bool recorded = lvn_set_grad_enabled(false);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *rows = lvni_pose_predict(m->root, &batch, NULL);
    if (rows == NULL) {
        fail_msg("%s", lvn_last_error()->message);
    }
    rows = lvn_retain(rows);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_set_grad_enabled(recorded);
    lvn_release(frame);
    return rows;
}

/* Row i of a clip is that of the window around frame i; of one with a frame that could not be read
 * it is empty. */
TEST(rows_of_a_clip_are_those_of_its_windows)
{
    enum { DAMAGED = 7 };
    lvni_nn_model *m = make_model();
    lvn_tensor *clip = lvn_tensor_create(LVN_F32, LVN_SHAPE(FRAMES, SIDE, SIDE, 3)),
               *each =
                   lvn_tensor_create(LVN_F32, LVN_SHAPE(WINDOWS, LVNI_POSE_WINDOW, SIDE, SIDE, 3)),
               *read = lvn_tensor_create(LVN_F32, LVN_SHAPE(FRAMES));
    for (int64_t i = 0; i < FRAMES; i++) {
        LVNI_F32(read)[i] = i == DAMAGED ? 0.0f : 1.0f;
        for (int64_t p = 0; p < PIXELS; p++) {
            LVNI_F32(clip)[i * PIXELS + p] = (float)sin(0.37 * (double)p * (double)(i + 1));
        }
    }
    for (int64_t i = 0; i < WINDOWS; i++) {
        memcpy(LVNI_F32(each) + i * LVNI_POSE_WINDOW * PIXELS, LVNI_F32(clip) + i * PIXELS,
               (size_t)LVNI_POSE_WINDOW * PIXELS * sizeof(float));
    }
    lvn_tensor *rows = predict(m, clip, read), *want = predict(m, each, NULL);
    assert_int_equal(lvn_size(rows, 0), FRAMES);
    assert_int_equal(lvn_size(want, 0), WINDOWS);
    for (int i = 0; i < WINDOWS; i++) {
        for (int c = 0; c < 3 * KEYPOINTS; c++) {
            const double a = (double)LVNI_CF32(rows)[(i + 2) * 3 * KEYPOINTS + c],
                         b = (double)LVNI_CF32(want)[i * 3 * KEYPOINTS + c];
            if (i + 4 >= DAMAGED) {
                assert_true(isnan(a));
            } else {
                assert_true(fabs(a - b) <= 1e-5 * fabs(b));
            }
        }
    }
    /* windows differ */
    assert_true(fabsf(LVNI_CF32(want)[0] - LVNI_CF32(want)[3 * KEYPOINTS]) > 1e-3f);
    lvn_release(rows);
    lvn_release(want);
    lvn_release(clip);
    lvn_release(each);
    lvn_release(read);
    lvni_nn_model_destroy(m);
}
