/* The dataset of labelled frames: pixels, points, targets. */
#include "autograd/tape.h"
#include "data/image.h"
#include "recipes/pose/pose_frames.h"
#include "recipes/pose/pose_loss.h"
#include "support/test.h"

#include <math.h>
#include <spng.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 40, HEIGHT = 20, SIDE = 16, K = 4 };

static char folder[] = "/tmp/levin_pose_XXXXXX";
static char *image[2] = {(char *)"a.png", (char *)"missing.png"};
static char *name[K] = {(char *)"a", (char *)"b", (char *)"c", (char *)"d"};
static double xy[2 * K * 2];
static int8_t visible[2 * K];

static void write_image(const char *file)
{
    uint8_t rgb[WIDTH * HEIGHT * 3];
    char path[64];
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        memset(rgb + 3 * i, 100, 3);
    }
    snprintf(path, sizeof path, "%s/%s", folder, file);
    assert_int_equal(lvni_data_png_write(path, rgb, WIDTH, HEIGHT), LVN_OK);
}

static lvni_pose_labels make_labels(bool has_visible)
{
    const double points[K * 2] = {10, 5, NAN, NAN, 39.5, 19.5, 41, 3};
    static const int8_t seen[K] = {0, 1, 2, 2};
    memcpy(xy, points, sizeof points);
    memcpy(visible, seen, sizeof seen);
    return (lvni_pose_labels){.n = 2,
                              .k = K,
                              .keypoint = name,
                              .image = image,
                              .xy = xy,
                              .visible = has_visible ? visible : NULL};
}

/* ---- one sample ---- */

typedef struct sample {
    float image[SIDE * SIDE * 3], points[K][4], frame[2];
    int64_t place;
} sample;

static lvn_status read_key(const lvni_pose_frames_options *o, lvn_sample_key key, sample *out)
{
    lvn_dataset *d;
    void *state;
    assert_int_equal(lvni_pose_frames_open(o, &d), LVN_OK);
    assert_int_equal(d->cls->worker_open(d, &state), LVN_OK);
    void *const field[] = {out->image, out->points, out->frame, &out->place};
    const lvn_status s = d->cls->worker_get(d, state, &key, field);
    d->cls->worker_close(d, state);
    lvn_dataset_destroy(d);
    return s;
}

static lvn_status read_one(const lvni_pose_frames_options *o, int64_t at, sample *out)
{
    return read_key(o, (lvn_sample_key){.seed = 1, .sample = at}, out);
}

static void assert_near(float value, double wanted)
{
    assert_true(fabs((double)value - wanted) < 1e-5);
}

static void assert_point(const float p[4], double x, double y, int has, lvni_pose_target target)
{
    assert_near(p[0], x);
    assert_near(p[1], y);
    assert_int_equal((int)p[2], has);
    assert_int_equal((int)p[3], (int)target);
}

BEFORE_ALL()
{
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    write_image("a.png");
    return 0;
}

AFTER_ALL()
{
    char path[64];
    snprintf(path, sizeof path, "%s/a.png", folder);
    unlink(path);
    return rmdir(folder);
}

TEST(a_frame_is_resized_normalised_and_its_points_with_it)
{
    const lvni_pose_labels labels = make_labels(false);
    const lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .height = SIDE, .width = SIDE};
    sample s;
    assert_int_equal(read_one(&o, 0, &s), LVN_OK);
    assert_near(s.image[0], (100 / 255.0 - 0.485) / 0.229);
    assert_near(s.image[1], (100 / 255.0 - 0.456) / 0.224);
    assert_near(s.image[SIDE * SIDE * 3 - 1], (100 / 255.0 - 0.406) / 0.225);
    assert_true(s.frame[0] == WIDTH && s.frame[1] == HEIGHT && s.place == 0);
    assert_point(s.points[0], 4.0, 4.0, 1, LVNI_POSE_BUMP);
    assert_point(s.points[1], 0, 0, 0, LVNI_POSE_IGNORED);
    assert_point(s.points[2], 15.8, 15.6, 1, LVNI_POSE_BUMP);
    assert_point(s.points[3], 0, 0, 0, LVNI_POSE_IGNORED);
}

TEST(a_missing_label_may_be_uniform_and_visible_overrides)
{
    const lvni_pose_labels plain = make_labels(false), labels = make_labels(true);
    lvni_pose_frames_options o = {.labels = &plain,
                                  .data_dir = folder,
                                  .height = SIDE,
                                  .width = SIDE,
                                  .uniform_for_nan = true};
    sample s;
    assert_int_equal(read_one(&o, 0, &s), LVN_OK);
    assert_point(s.points[1], 0, 0, 0, LVNI_POSE_UNIFORM);
    assert_point(s.points[3], 0, 0, 0, LVNI_POSE_IGNORED); /* outside is not hidden */
    o.labels = &labels;
    o.uniform_for_nan = false;
    assert_int_equal(read_one(&o, 0, &s), LVN_OK);
    assert_point(s.points[0], 4.0, 4.0, 1, LVNI_POSE_IGNORED);
    assert_point(s.points[1], 0, 0, 0, LVNI_POSE_UNIFORM);
    assert_point(s.points[2], 15.8, 15.6, 1, LVNI_POSE_BUMP);
}

TEST(an_image_that_is_not_there_is_named)
{
    const lvni_pose_labels labels = make_labels(false);
    const lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .height = SIDE, .width = SIDE};
    sample s;
    assert_int_equal(read_one(&o, 1, &s), LVN_ERR_NOT_FOUND);
    assert_non_null(strstr(lvn_last_error()->message, "missing.png"));
}

TEST(chosen_frames_keep_their_index)
{
    const lvni_pose_labels labels = make_labels(false);
    const int64_t at[] = {1};
    const lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .at = at, .n = 1, .height = SIDE, .width = SIDE};
    lvn_dataset *d;
    assert_int_equal(lvni_pose_frames_open(&o, &d), LVN_OK);
    assert_int_equal(d->cls->length(d), 1);
    assert_int_equal(d->cls->index(d, 0), 1);
    assert_string_equal(d->cls->sample_name(d, 1), "missing.png");
    lvn_dataset_destroy(d);
}

/* ---- augmentation ---- */

TEST(training_frames_alone_are_augmented)
{
    const lvni_pose_labels labels = make_labels(false);
    lvni_pose_pipeline *p;
    sample plain, same, training, again;
    assert_int_equal(
        lvni_pose_pipeline_make("{\"CropAndPad\": {\"p\": 1, \"kwargs\": {\"percent\": "
                                "[0.2, 0.4]}}}",
                                SIDE, SIDE, false, &p),
        LVN_OK);
    lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .height = SIDE, .width = SIDE};
    assert_int_equal(read_one(&o, 0, &plain), LVN_OK);
    o.pipeline = p;
    lvn_sample_key key = {.seed = 1, .epoch = 2, .sample = 0};
    assert_int_equal(read_key(&o, key, &same), LVN_OK);
    assert_memory_equal(plain.image, same.image, sizeof plain.image);
    assert_memory_equal(plain.points, same.points, sizeof plain.points);
    key.training = true;
    assert_int_equal(read_key(&o, key, &training), LVN_OK);
    assert_memory_not_equal(plain.image, training.image, sizeof plain.image);
    assert_int_equal(read_key(&o, key, &again), LVN_OK);
    assert_memory_equal(again.image, training.image, sizeof again.image);
    assert_memory_equal(again.points, training.points, sizeof again.points);
    key.epoch = 3;
    assert_int_equal(read_key(&o, key, &again), LVN_OK);
    assert_memory_not_equal(again.image, training.image, sizeof again.image);
    lvni_pose_pipeline_free(p);
}

/* ---- from an augmentation to the loss ---- */

/* The loss of flat maps against the targets of a frame's points, as a step has it; *gradient: the
 * sum over a map of how much each of its pixels matters. */
static double loss_of(const sample *s, double gradient[K])
{
    float columns[3][K * 2] = {{0}};
    for (int k = 0; k < K; k++) {
        memcpy(&columns[0][2 * k], s->points[k], 2 * sizeof(float));
        columns[1][k] = s->points[k][3];
    }
    lvn_tensor *at = lvn_tensor_create(LVN_F32, LVN_SHAPE(1, K, 2)),
               *kind = lvn_tensor_create(LVN_F32, LVN_SHAPE(1, K)),
               *map = lvn_tensor_create(LVN_F32, LVN_SHAPE(1, SIDE, SIDE, K)), *count;
    memcpy(lvn_data(at), columns[0], K * 2 * sizeof(float));
    memcpy(lvn_data(kind), columns[1], K * sizeof(float));
    for (int i = 0; i < SIDE * SIDE * K; i++) {
        ((float *)lvn_data(map))[i] = 1.0F / (SIDE * SIDE);
    }
    lvn_require_grad(map);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *target = lvn_heatmap2d(at, kind, SIDE, SIDE, 1.0, 1.25),
               *loss = lvni_pose_heatmap_loss(LVNI_POSE_MSE, target, map, lvn_clamp(kind, 0.0, 1.0),
                                              &count);
    assert_non_null(loss);
    const double value = (double)*(const float *)lvn_const_data(loss);
    assert_int_equal(lvn_backward(loss), LVN_OK);
    const float *g = lvn_const_data(lvn_gradient(map));
    memset(gradient, 0, K * sizeof *gradient);
    for (int i = 0; i < SIDE * SIDE * K; i++) {
        gradient[i % K] += fabs((double)g[i]);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvn_release(at);
    lvn_release(kind);
    lvn_release(map);
    return value;
}

/* Row 13 of the specification: a fifth is cut off at each side, and the points that lie there have
 * no part in loss and gradient. With the rest alone labelled the loss is the same. */
TEST(a_point_that_an_augmentation_moves_out_is_no_part_of_the_loss)
{
    lvni_pose_labels labels = make_labels(false);
    const double points[K * 2] = {10, 5, 20, 10, 39.5, 19.5, 2, 10};
    memcpy(xy, points, sizeof points);
    lvni_pose_pipeline *p;
    sample moved, rest;
    double gradient[K], others[K];
    assert_int_equal(
        lvni_pose_pipeline_make("{\"CropAndPad\": {\"p\": 1, \"kwargs\": {\"percent\": "
                                "[-0.22, -0.2]}}}",
                                SIDE, SIDE, false, &p),
        LVN_OK);
    const lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .height = SIDE, .width = SIDE, .pipeline = p};
    const lvn_sample_key key = {.seed = 1, .sample = 0, .training = true};
    assert_int_equal(read_key(&o, key, &moved), LVN_OK);
    assert_point(moved.points[2], 0, 0, 0, LVNI_POSE_IGNORED);
    assert_point(moved.points[3], 0, 0, 0, LVNI_POSE_IGNORED);
    const double loss = loss_of(&moved, gradient);
    assert_true(loss > 0.0 && gradient[0] > 0.0 && gradient[1] > 0.0);
    assert_true(gradient[2] == 0.0 && gradient[3] == 0.0);
    for (int i = 2 * 2; i < K * 2; i++) {
        xy[i] = (double)NAN;
    }
    assert_int_equal(read_key(&o, key, &rest), LVN_OK);
    assert_memory_equal(moved.points, rest.points, sizeof moved.points);
    assert_true(loss == loss_of(&rest, others));
    lvni_pose_pipeline_free(p);
}

static char *sided[K] = {(char *)"ear_left", (char *)"nose", (char *)"tail", (char *)"ear_right"};

TEST(mirrored_frames_exchange_left_and_right)
{
    lvni_pose_labels labels = make_labels(true);
    labels.keypoint = sided;
    lvni_pose_pipeline *p;
    assert_int_equal(lvni_pose_pipeline_make("none", SIDE, SIDE, true, &p), LVN_OK);
    const lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .height = SIDE, .width = SIDE, .pipeline = p};
    int flipped = 0;
    for (uint32_t epoch = 0; epoch < 20; epoch++) {
        sample s;
        const lvn_sample_key key = {.seed = 1, .epoch = epoch, .training = true};
        assert_int_equal(read_key(&o, key, &s), LVN_OK);
        if (fabs((double)s.points[2][0] - 15.8) < 1e-5) { /* as it was */
            assert_point(s.points[0], 4.0, 4.0, 1, LVNI_POSE_IGNORED);
            assert_point(s.points[3], 0, 0, 0, LVNI_POSE_IGNORED);
            continue;
        }
        flipped++;
        assert_point(s.points[2], SIDE - 15.8, 15.6, 1, LVNI_POSE_BUMP);
        assert_point(s.points[0], 0, 0, 0, LVNI_POSE_IGNORED);
        assert_point(s.points[3], SIDE - 4.0, 4.0, 1, LVNI_POSE_IGNORED);
        assert_point(s.points[1], 0, 0, 0, LVNI_POSE_UNIFORM);
    }
    assert_true(flipped > 3 && flipped < 17);
    lvni_pose_pipeline_free(p);
}

TEST(a_side_without_the_other_is_refused)
{
    static char *alone[K] = {(char *)"ear_left", (char *)"paw_right", (char *)"a", (char *)"_left"};
    lvni_pose_labels labels = make_labels(false);
    labels.keypoint = alone;
    lvni_pose_pipeline *p;
    lvn_dataset *d;
    assert_int_equal(lvni_pose_pipeline_make("none", SIDE, SIDE, true, &p), LVN_OK);
    const lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .height = SIDE, .width = SIDE, .pipeline = p};
    assert_int_equal(lvni_pose_frames_open(&o, &d), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "missing of ear_left, paw_right;"));
    lvni_pose_pipeline_free(p);
}

/* The same levels in one channel and in three. */
static void write_grey(const char *file, bool rgb)
{
    uint8_t level[WIDTH * HEIGHT * 3];
    const int channels = rgb ? 3 : 1;
    char path[64];
    struct spng_ihdr header = {.width = WIDTH,
                               .height = HEIGHT,
                               .bit_depth = 8,
                               .color_type =
                                   rgb ? SPNG_COLOR_TYPE_TRUECOLOR : SPNG_COLOR_TYPE_GRAYSCALE};
    for (int i = 0; i < WIDTH * HEIGHT * channels; i++) {
        level[i] = (uint8_t)(i / channels * 37 % 251);
    }
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
    spng_set_png_file(ctx, f);
    spng_set_ihdr(ctx, &header);
    assert_int_equal(spng_encode_image(ctx, level, (size_t)WIDTH * HEIGHT * (size_t)channels,
                                       SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE),
                     0);
    spng_ctx_free(ctx);
    fclose(f);
}

TEST(a_grey_image_is_one_of_three_equal_channels)
{
    static char *files[2] = {(char *)"grey.png", (char *)"rgb.png"};
    lvni_pose_labels labels = make_labels(false);
    labels.image = files;
    const lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .height = SIDE, .width = SIDE};
    sample s[2];
    for (int i = 0; i < 2; i++) {
        char path[64];
        write_grey(files[i], i == 1);
        assert_int_equal(read_one(&o, i, &s[i]), LVN_OK);
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    assert_memory_equal(s[0].image, s[1].image, sizeof s[0].image);
}

/* ---- five frames ---- */

enum { FIVE = 5, PIXELS = SIDE * SIDE * 3 };

/* A grey image that is darker on the right, so that what moves it shows. */
static void write_level(const char *file, int level)
{
    uint8_t rgb[WIDTH * HEIGHT * 3];
    char path[64];
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        memset(rgb + 3 * i, level - i % WIDTH, 3);
    }
    snprintf(path, sizeof path, "%s/%s", folder, file);
    assert_int_equal(lvni_data_png_write(path, rgb, WIDTH, HEIGHT), LVN_OK);
}

static void remove_file(const char *file)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    unlink(path);
}

typedef struct window {
    float image[FIVE][PIXELS], points[K][4], frame[2];
    int64_t place;
} window;

static void read_window(const lvni_pose_frames_options *o, bool training, window *out)
{
    lvn_dataset *d;
    lvn_field fields[LVN_MAX_FIELDS];
    assert_int_equal(lvni_pose_frames_open(o, &d), LVN_OK);
    (void)d->cls->fields(d, fields);
    const int64_t want[] = {FIVE, SIDE, SIDE, 3};
    assert_int_equal(fields[LVNI_POSE_FIELD_IMAGE].ndim, 4);
    assert_memory_equal(fields[LVNI_POSE_FIELD_IMAGE].shape, want, sizeof want);
    void *const field[] = {out->image, out->points, out->frame, &out->place};
    const lvn_sample_key key = {.seed = 1, .sample = 0, .training = training};
    if (d->cls->get(d, &key, field) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    lvn_dataset_destroy(d);
}

/* Of a folder with frames 0, 1 and 2 the window around 1: 0, twice, as there is none before it, 1,
 * 2, and 1 in the place of 3. */
TEST(context_is_the_frames_before_and_after)
{
    static char *files[2] = {(char *)"cam7_img01.png", (char *)"cam7_img02.png"};
    static const int level[] = {50, 50, 100, 150, 100};
    lvni_pose_labels labels = make_labels(false);
    labels.image = files;
    const lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .height = SIDE, .width = SIDE, .context = true};
    window w;
    write_level("cam7_img00.png", 50);
    write_level(files[0], 100);
    write_level(files[1], 150);
    read_window(&o, true, &w);
    for (int i = 0; i < FIVE; i++) {
        assert_true(fabs((double)w.image[i][0] - (level[i] / 255.0 - 0.485) / 0.229) < 0.03);
    }
    assert_point(w.points[0], 4.0, 4.0, 1, LVNI_POSE_BUMP);
    assert_true(w.frame[0] == WIDTH && w.place == 0);
    remove_file("cam7_img00.png");
    remove_file(files[0]);
    remove_file(files[1]);
}

/* Five files that are alike stay alike, whatever is drawn. */
TEST(all_five_frames_are_augmented_alike)
{
    static char *files[2] = {(char *)"img2.png", (char *)"img9.png"};
    static const char *const all[] = {"img0.png", "img1.png", "img2.png", "img3.png", "img4.png"};
    lvni_pose_labels labels = make_labels(false);
    labels.image = files;
    lvni_pose_pipeline *p;
    assert_int_equal(
        lvni_pose_pipeline_make(
            "{\"Affine\": {\"p\": 1, \"kwargs\": {\"rotate\": [10, 25]}}, \"CoarseSalt\": {\"p\": "
            "1, \"args\": [0.1], \"kwargs\": {\"size_percent\": [0.3, 0.4]}}}",
            SIDE, SIDE, false, &p),
        LVN_OK);
    const lvni_pose_frames_options o = {.labels = &labels,
                                        .data_dir = folder,
                                        .height = SIDE,
                                        .width = SIDE,
                                        .pipeline = p,
                                        .context = true};
    window plain, training;
    for (int i = 0; i < FIVE; i++) {
        write_level(all[i], 200);
    }
    read_window(&o, false, &plain);
    read_window(&o, true, &training);
    for (int i = 1; i < FIVE; i++) {
        assert_memory_equal(training.image[i], training.image[0], sizeof training.image[0]);
        remove_file(all[i]);
    }
    assert_memory_not_equal(training.image[0], plain.image[0], sizeof plain.image[0]);
    remove_file(all[0]);
    lvni_pose_pipeline_free(p);
}

TEST(context_needs_a_number_in_the_name)
{
    const lvni_pose_labels labels = make_labels(false);
    const lvni_pose_frames_options o = {
        .labels = &labels, .data_dir = folder, .height = SIDE, .width = SIDE, .context = true};
    lvn_dataset *d;
    assert_int_equal(lvni_pose_frames_open(&o, &d), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "a.png: heatmap_mhcrnn looks at the frames"));
}
