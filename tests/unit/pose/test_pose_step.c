/* The step of the recipe pose with frames without labels beside labelled ones: two means, over
 * labels and over clips, in one gradient, however both are cut into micro-batches, and what is
 * logged of them. (Whole trainings: tests/cli.) */
#include "recipes/pose/pose.h"
#include "recipes/pose/pose_clips.h"
#include "recipes/pose/pose_frames.h"
#include "support/sanitized.h"
#include "trainer_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYPOINTS = 3, SIDE = 64, LABELLED = 6 };

/* ---- frames ---- */

/* A labelled frame, or, without points, one of a clip. The first member is what bench_open takes.
 */
typedef struct frames {
    memory set;
    bool clip, window;
    bool still; /* all frames are one image */
    bool missing[LABELLED][KEYPOINTS];
} frames;

static const frames *of(const lvn_dataset *dataset)
{
    return (const frames *)(const void *)dataset;
}

static int list_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const frames *f = of(dataset);
    const lvn_field one = {"image", LVN_F32, 3, {SIDE, SIDE, 3}},
                    five = {"image", LVN_F32, 4, {5, SIDE, SIDE, 3}};
    out[0] = f->window ? five : one;
    if (f->clip) {
        out[LVNI_POSE_CLIP_MATRIX] = (lvn_field){"matrix", LVN_F32, 2, {2, 3}};
        out[LVNI_POSE_CLIP_FRAME] = (lvn_field){"frame", LVN_F32, 1, {2}};
        return LVNI_POSE_CLIP_FIELDS;
    }
    out[LVNI_POSE_FIELD_POINTS] = (lvn_field){"points", LVN_F32, 2, {KEYPOINTS, 4}};
    out[LVNI_POSE_FIELD_FRAME] = (lvn_field){"frame", LVN_F32, 1, {2}};
    out[LVNI_POSE_FIELD_PLACE] = (lvn_field){.name = "place", .dtype = LVN_I64};
    return LVNI_POSE_FIELDS;
}

static int64_t count_frames(const lvn_dataset *dataset)
{
    return of(dataset)->set.n;
}

static void fill_image(float *x, int64_t n, int64_t frame, bool clip)
{
    const double turn = 0.31 + 0.011 * (double)frame + (clip ? 0.2 : 0.0);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)sin(turn * (double)(i % 1021) + 0.0003 * (double)i);
    }
}

static lvn_status get_frame(const lvn_dataset *dataset, const lvn_sample_key *key,
                            void *const field[])
{
    static const float matrix[] = {0.9F, 0.1F, 3.0F, -0.1F, 1.1F, 2.0F}, size[] = {120.0F, 90.0F};
    const frames *f = of(dataset);
    const int64_t i = key->sample, pixels = (f->window ? 5 : 1) * SIDE * SIDE * 3;
    if (f->set.unreadable[i]) {
        LVN_FAIL(LVN_ERR_CORRUPT, "frame %lld is damaged", (long long)i);
    }
    fill_image(field[0], pixels, f->still ? 0 : i, f->clip);
    if (f->clip) {
        memcpy(field[LVNI_POSE_CLIP_MATRIX], matrix, sizeof matrix);
        memcpy(field[LVNI_POSE_CLIP_FRAME], size, sizeof size);
        return LVN_OK;
    }
    float *points = field[LVNI_POSE_FIELD_POINTS];
    for (int64_t k = 0; k < KEYPOINTS; k++) {
        const bool there = !f->missing[i][k];
        const float point[] = {(float)(10 + 7 * i + k), (float)(50 - 6 * i - 3 * k),
                               there ? 1.0F : 0.0F, there ? (float)LVNI_POSE_BUMP : 0.0F};
        memcpy(points + 4 * k, point, sizeof point);
    }
    memcpy(field[LVNI_POSE_FIELD_FRAME], size, sizeof size);
    *(int64_t *)field[LVNI_POSE_FIELD_PLACE] = i;
    return LVN_OK;
}

static const lvn_dataset_class frames_class = {
    .name = "frames", .fields = list_fields, .length = count_frames, .get = get_frame};

static frames make_frames(int64_t n, bool clip)
{
    frames f = {.clip = clip};
    memory_init(&f.set, n, SIDE);
    f.set.base.cls = &frames_class;
    return f;
}

/* ---- steps ---- */

/* One direction that the three points may move in. */
static int columns[] = {0, 1, 2};
static double mean[] = {60, 45, 50, 40, 70, 30}, vector[] = {0.5, 0.5, 0.5, 0.5, 0, 0},
              explained[6];
static const lvni_pose_fits fits = {.has_singleview = true,
                                    .singleview = {.k = KEYPOINTS,
                                                   .points = KEYPOINTS,
                                                   .parts = 1,
                                                   .kept = 1,
                                                   .column = columns,
                                                   .mean = mean,
                                                   .vector = vector,
                                                   .explained = explained,
                                                   .epsilon = 0.5}};

static const double epsilon = 0.01;
static const unsigned pca = 1U << LVNI_POSE_PCA_SINGLEVIEW;

/* All importance from the first step on, where nothing else is set. */
static lvni_pose_settings use(unsigned losses)
{
    lvni_pose_settings s = {.anneal_init = 1.0, .anneal_final = 1.0};
    for (int i = 0; i < LVNI_POSE_UNSUPERVISED; i++) {
        s.unsupervised[i] =
            (lvni_pose_unsupervised_settings){.used = (losses >> i & 1U) != 0,
                                              .log_weight = 0.1 * i,
                                              .epsilon = i == LVNI_POSE_TEMPORAL ? &epsilon : NULL,
                                              .n_epsilon = i == LVNI_POSE_TEMPORAL ? 1 : 0};
    }
    return s;
}

typedef struct run {
    frames *labels, *clips; /* clips: NULL: supervised */
    lvni_pose_settings settings;
    lvni_pose_model_type type;
    int micro_batches;
    int64_t clip; /* frames of a step */
} run;

static void open_run(const run *r, bench *b)
{
    static lvn_stream stream; /* the trainer's, until it is closed */
    static lvni_pose_settings settings;
    settings = r->settings;
    const lvni_pose_arguments arguments = {
        .type = r->type,
        .network = {.model = "resnet18", .keypoints = KEYPOINTS, .downsample = 2},
        .height = SIDE,
        .width = SIDE,
        .settings = &settings,
        .fits = &fits,
        .clips = r->clips != NULL};
    if (r->clips != NULL) {
        stream =
            (lvn_stream){.name = LVNI_POSE_CLIPS, .dataset = &r->clips->set.base, .batch = r->clip};
    }
    const setting s = {.cls = &lvni_pose_module,
                       .arguments = &arguments,
                       .batch_size = r->labels->set.n,
                       .micro_batches = r->micro_batches,
                       .lanes = r->micro_batches,
                       .optim = {.lr = 1e-3, .momentum = 0.9},
                       .stream = r->clips != NULL ? &stream : NULL,
                       .skip = true,
                       .sync = true};
    bench_open(b, &r->labels->set, &s);
}

/* All labelled frames are one step. */
static lvni_nn_step step(bench *b)
{
    lvni_trainer_step_result result;
    if (lvni_trainer_step(b->trainer, &result) != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    assert_int_equal(b->trainer->o.plan.steps_per_epoch, 1);
    b->trainer->at.epoch++;
    b->trainer->at.step_in_epoch = 0;
    return result.metrics;
}

typedef struct gradient {
    float *value;
    int64_t n, head; /* where the head's begin */
    lvni_nn_step metrics;
} gradient;

/* Momentum is the gradient after the first step. */
static gradient first_gradient(const run *r)
{
    bench b;
    open_run(r, &b);
    gradient g = {.n = b.model->n_weights, .metrics = step(&b)};
    for (int i = 0; i < b.model->n_parameters; i++) {
        const bool head = strncmp(b.model->parameters[i].name, "head.", 5) == 0;
        g.head = head && g.head == 0 ? b.model->offset[i] : g.head;
    }
    g.value = malloc((size_t)g.n * sizeof *g.value);
    assert_non_null(g.value);
    memcpy(g.value, b.trainer->engine->optim->slot[0], (size_t)g.n * sizeof *g.value);
    bench_close(&b);
    return g;
}

/* The largest difference, as a part of the largest element; of parameters [begin, end). */
static double apart(const gradient *a, const gradient *b, int64_t begin, int64_t end)
{
    double most = 0.0, size = 0.0;
    for (int64_t i = begin; i < end; i++) {
        assert_true(isfinite(a->value[i]) && isfinite(b->value[i]));
        most = fmax(most, fabs((double)a->value[i] - (double)b->value[i]));
        size = fmax(size, fabs((double)a->value[i]));
    }
    assert_true(size > 0.0);
    return most / size;
}

static void assert_same(const gradient *a, const gradient *b, double backbone, double head)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->head, b->head);
    const double first = apart(a, b, 0, a->head), second = apart(a, b, a->head, a->n);
    if (!(first <= backbone && second <= head)) {
        fail_msg("gradients differ by %g in the backbone, by %g in the head", first, second);
    }
}

static double metric(const lvni_nn_step *metrics, const char *name)
{
    return lvni_trainer_metric_mean(metrics, name);
}

static void assert_near(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance * (1.0 + fabs(b)))) {
        fail_msg("%.9g, not %.9g", a, b);
    }
}

/* Of six frames eight labels are missing, none of them in the others: three micro-batches of two
 * frames have 6, 0 and 4 labels. */
static void leave_out(frames *labels)
{
    static const int without[][2] = {{2, 0}, {2, 1}, {2, 2}, {3, 0},
                                     {3, 1}, {3, 2}, {4, 1}, {5, 0}};
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        labels->missing[without[i][0]][without[i][1]] = true;
    }
}

/* The mean over poses does not depend on which micro-batch a frame is in. log_weight: with which
 * both parts of the gradient count. */
static void compare_cuts(run r, double log_weight, double backbone, double head)
{
    static const char *const same[] = {"supervised_loss",
                                       "supervised_rmse",
                                       "pca_singleview_loss",
                                       "pca_singleview_loss_weighted",
                                       "pca_singleview_weight",
                                       "total_unsupervised_importance",
                                       "total_loss",
                                       "loss"};
    r.settings = use(pca);
    r.settings.unsupervised[LVNI_POSE_PCA_SINGLEVIEW].log_weight = log_weight;
    r.micro_batches = 1;
    gradient whole = first_gradient(&r);
    r.micro_batches = 3;
    r.clip += r.type == LVNI_POSE_CONTEXT ? 2 * 4 : 0; /* each clip has four frames more */
    gradient cut = first_gradient(&r);
    assert_same(&whole, &cut, backbone, head);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        const double a = metric(&cut.metrics, same[i]), b = metric(&whole.metrics, same[i]);
        assert_true((isnan(a) && isnan(b)) || fabs(a - b) <= 1e-5 * (1.0 + fabs(b)));
    }
    assert_true(metric(&whole.metrics, "pca_singleview_loss") > 1.0);
    free(whole.value);
    free(cut.value);
}

TEST(one_gradient_of_labels_and_clips_however_the_step_is_cut)
{
    frames labels = make_frames(LABELLED, false), clips = make_frames(7, true);
    leave_out(&labels);
    run r = {.labels = &labels, .clips = &clips, .clip = 7};
    compare_cuts(r, 8.0, 1e-5, 1e-5);
    r.type = LVNI_POSE_REGRESSION;
    if (!SANITIZED) {
        compare_cuts(r, 0.0, 1e-5, 1e-5);
    }
}

/* Windows of clips that are cut elsewhere are others, unless all frames are one. What the rounding
 * of the images moves the gradient of this backbone by is 1e-3 of it. */
TEST(clips_of_the_context_network_weigh_as_many_frames_as_have_a_result)
{
    if (SANITIZED) {
        skip();
    }
    frames labels = make_frames(LABELLED, false), clips = make_frames(9 + 2 * 4, true);
    leave_out(&labels);
    labels.window = true;
    clips.still = true;
    const run r = {.labels = &labels, .clips = &clips, .type = LVNI_POSE_CONTEXT, .clip = 9};
    compare_cuts(r, 9.0, 2e-2, 2e-4);
}

TEST(a_step_without_a_label_learns_from_its_clips)
{
    frames labels = make_frames(LABELLED, false), clips = make_frames(7, true);
    memset(labels.missing, true, sizeof labels.missing);
    const run r = {.labels = &labels, .clips = &clips, .clip = 7};
    compare_cuts(r, 0.0, 1e-5, 1e-5);
}

/* A micro-batch whose labelled frame cannot be read has no step, so its clip is left out with it.
 * The others weigh what they have: labels and clips are the means of what is left, as in one
 * micro-batch of it. Which micro-batch the frame is in does not matter, as all frames of clips are
 * one. */
TEST(a_clip_goes_with_the_only_frame_of_its_micro_batch)
{
    frames labels = make_frames(3, false), clips = make_frames(7, true);
    labels.set.unreadable[1] = true;
    labels.missing[2][0] = true;
    clips.still = true;
    compare_cuts((run){.labels = &labels, .clips = &clips, .clip = 7}, 8.0, 2e-2, 2e-4);
}

/* Row 34 of the specification: without importance the gradient is that of the labels. */
TEST(importance_leaves_the_labels_alone)
{
    frames labels = make_frames(LABELLED, false), clips = make_frames(7, true);
    for (int type = 0; type < (SANITIZED ? 1 : 2); type++) {
        run r = {.labels = &labels,
                 .clips = &clips,
                 .settings = use(pca),
                 .type = type == 0 ? LVNI_POSE_HEATMAP : LVNI_POSE_REGRESSION,
                 .micro_batches = 2,
                 .clip = 7};
        r.settings.anneal_init = r.settings.anneal_final = 0.0;
        gradient none = first_gradient(&r);
        r.clips = NULL;
        gradient supervised = first_gradient(&r);
        assert_same(&supervised, &none, 1e-5, 1e-5);
        free(none.value);
        free(supervised.value);
    }
}

/* What is logged adds up, in every step of a growing importance. */
static void check_steps(run r, unsigned losses, int steps)
{
    bench b;
    r.settings = use(losses);
    r.settings.anneal_init = 0.1;
    r.settings.anneal_increase = 0.4;
    r.settings.anneal_from_epoch = 1;
    open_run(&r, &b);
    for (int t = 0; t < steps; t++) {
        const lvni_nn_step m = step(&b);
        const double importance = fmin(0.1 + 0.4 * fmax(t - 1, 0), 1.0);
        double sum = 0.0;
        for (int i = 0; i < LVNI_POSE_UNSUPERVISED; i++) {
            char name[64];
            snprintf(name, sizeof name, "%s_loss", lvni_pose_unsupervised_names[i]);
            const double loss = metric(&m, name);
            assert_true(isfinite(loss) == ((losses >> i & 1U) != 0));
            if (!isfinite(loss)) {
                continue;
            }
            snprintf(name, sizeof name, "%s_loss_weighted", lvni_pose_unsupervised_names[i]);
            assert_near(metric(&m, name), loss / (2.0 * exp(0.1 * i)), 1e-5);
            sum += metric(&m, name);
            snprintf(name, sizeof name, "%s_weight", lvni_pose_unsupervised_names[i]);
            assert_near(metric(&m, name), 1.0 / (2.0 * exp(0.1 * i)), 1e-6);
        }
        assert_true(sum > 0.0);
        assert_near(metric(&m, "total_unsupervised_importance"), importance, 1e-6);
        assert_near(metric(&m, "total_loss"), metric(&m, "supervised_loss") + importance * sum,
                    1e-5);
    }
    bench_close(&b);
}

TEST(total_loss_is_what_its_parts_add_up_to)
{
    static const unsigned points = 1U << LVNI_POSE_PCA_SINGLEVIEW | 1U << LVNI_POSE_TEMPORAL,
                          maps = 1U << LVNI_POSE_TEMPORAL_MSE | 1U << LVNI_POSE_TEMPORAL_KL;
    frames labels = make_frames(LABELLED, false), clips = make_frames(15, true);
    leave_out(&labels);
    run r = {.labels = &labels, .clips = &clips, .micro_batches = 2, .clip = 7};
    check_steps(r, points | maps, 4);
    r.type = LVNI_POSE_REGRESSION;
    check_steps(r, points, 1);
    r.type = LVNI_POSE_CONTEXT;
    r.clip = 15;
    labels.window = true;
    check_steps(r, points | maps, 1);
}

static void assert_no_model(const lvni_pose_fits *of, const char *message)
{
    const lvni_pose_settings settings = use(pca);
    const lvni_pose_arguments arguments = {
        .network = {.model = "resnet18", .keypoints = KEYPOINTS, .downsample = 2},
        .height = SIDE,
        .width = SIDE,
        .settings = &settings,
        .fits = of,
        .clips = true};
    lvni_nn_model *m = NULL;
    assert_int_equal(lvni_nn_model_build(&lvni_pose_module, &arguments, 1, &m), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, message));
    assert_null(m);
}

TEST(a_loss_of_principal_components_needs_a_fit)
{
    const lvni_pose_fits none = {.has_multiview = true};
    lvni_pose_fits unsure = fits;
    unsure.singleview.epsilon = (double)NAN;
    assert_no_model(NULL, "pca_singleview: there are no principal components");
    assert_no_model(&none, "pca_singleview: there are no principal components");
    assert_no_model(&unsure, "no training frame has all of its keypoints");
}
