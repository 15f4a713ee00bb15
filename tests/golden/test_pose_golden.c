/* test_pose_golden FILE: maps, losses and network of the recipe pose against Lightning Pose in
 * double precision (make_pose_golden.py), and weights out of files with its names. */
#include "golden_support.h"
#include "support/test.h"

#include "core/alloc.h"
#include "kernels/kernels.h"
#include "optim/optim.h"
#include "recipes/pose/pose_loss.h"
#include "recipes/pose/pose_network.h"
#include "run/weights.h"
#include "trainer/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 2, H = 16, W = 24, K = 3, IMAGES = 4, HIGH = 64, WIDE = 96, KEYPOINTS = 5 };
static const double IN_F64 = 1e-10, IN_F32 = 1e-5, ADAM_FIRST = 1e-4, ADAM = 1e-2;
static const lvn_dtype types[] = {LVN_F64, LVN_F32};

static lvni_ckpt_st_file *file;

static uint64_t seed(void)
{
    return (uint64_t)golden_number(file, "seed");
}

/* Numbers of the file's rule times `by`, of a type. The caller's. */
static lvn_tensor *numbers(lvn_dtype dtype, const char *name, double by, int ndim,
                           const int64_t *shape)
{
    lvn_tensor *t = golden_tensor(seed(), name, ndim, shape),
               *to = lvn_tensor_create(dtype, ndim, shape);
    assert_non_null(to);
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        golden_set(to, e, by * golden_get(t, e));
    }
    lvn_release(t);
    return to;
}

/* Relative to the largest; of f32 there is a tolerance of its own. */
static void compare(const char *prefix, const char *name, const lvn_tensor *have, double in_f32)
{
    int64_t n;
    const double *want = golden_values(file, prefix, name, &n);
    const double allowed = have->dtype == LVN_F64 ? IN_F64 : in_f32;
    double most = 0.0, worst = 0.0;
    assert_int_equal(lvn_numel(have), n);
    for (int64_t e = 0; e < n; e++) {
        most = fmax(most, fabs(want[e]));
        worst = fmax(worst, fabs(golden_get(have, e) - want[e]));
    }
    if (!(worst <= allowed * most)) {
        fail_msg("%s%s in %s: %.3g of %.3g", prefix, name, lvn_dtype_name(have->dtype),
                 worst / most, allowed);
    }
}

TEST(positions_and_their_gradients)
{
    for (int k = 0; k < 6; k++) {
        const lvn_dtype dtype = types[k % 2];
        const int d = k / 2 + 1;
        char prefix[32];
        snprintf(prefix, sizeof prefix, "points/%d/", d);
        lvn_tensor *maps = numbers(dtype, "maps", 0.01, LVN_SHAPE(N, H, W, K)),
                   *dy = numbers(dtype, "dy", 1.0, LVN_SHAPE(N, K, 3));
        lvn_require_grad(maps);
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *found = lvn_soft_argmax2d(maps, d);
        assert_non_null(found);
        compare(prefix, "found", found, IN_F32);
        assert_int_equal(lvn_backward(lvn_sum(lvn_mul(found, dy))), LVN_OK);
        compare(prefix, "gradient", lvn_gradient(maps), IN_F32);
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(maps);
        lvn_release(dy);
    }
}

/* ---- losses ---- */

typedef struct targets {
    lvn_tensor *maps, *valid; /* of the scope */
} targets;

/* A map counts where its kind is not 0, and a bump that has a place. */
static targets draw(lvn_dtype dtype)
{
    int64_t n;
    const double *want = golden_values(file, "target/", "points", &n);
    lvn_tensor *points = lvn_zeros(dtype, LVN_SHAPE(N, K, 2)),
               *kind = lvn_zeros(dtype, LVN_SHAPE(N, K)),
               *valid = lvn_zeros(dtype, LVN_SHAPE(N, K));
    assert_int_equal(n, 3 * N * K);
    for (int i = 0; i < N * K; i++) {
        golden_set(points, 2 * i, want[3 * i]);
        golden_set(points, 2 * i + 1, want[3 * i + 1]);
        golden_set(kind, i, want[3 * i + 2]);
        const bool there = want[3 * i + 2] == 1.0 || !isnan(want[3 * i]);
        golden_set(valid, i, want[3 * i + 2] != 0.0 && there ? 1.0 : 0.0);
    }
    return (targets){lvn_heatmap2d(points, kind, H, W, 0.25, 1.25), valid};
}

TEST(losses_of_maps_and_their_gradients)
{
    static const char *const name[] = {"loss/mse/", "loss/kl/", "loss/js/"};
    for (int k = 0; k < 6; k++) {
        const lvn_dtype dtype = types[k % 2];
        const int kind = k / 2;
        lvn_tensor *logits = numbers(dtype, "logits", 1.0, LVN_SHAPE(N, H * W, K)), *count;
        assert_int_equal(lvn_scope_open(), LVN_OK);
        const targets t = draw(dtype);
        compare("target/", "maps", t.maps, IN_F32);
        lvn_tensor *map = lvn_transpose(lvn_softmax(lvn_transpose(logits, 1, 2)), 1, 2);
        map = lvn_require_grad(lvn_detach(lvn_reshape(map, 4, (const int64_t[]){N, H, W, K})));
        lvn_tensor *loss =
            lvni_pose_heatmap_loss((lvni_pose_loss)kind, t.maps, map, t.valid, &count);
        compare(name[kind], "loss", loss, IN_F32);
        assert_true(golden_get(count, 0) == 4.0);
        lvn_tensor *gradient = lvn_grad(loss, map);
        assert_non_null(gradient);
        compare(name[kind], "gradient", gradient, IN_F32);
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(logits);
    }
}

/* ---- the network ---- */

typedef struct pose {
    lvn_module base;
    lvni_pose_network net;
} pose;

static lvn_status build(lvn_module *module, lvn_builder *b)
{
    lvni_pose_network_build(b, lvn_builder_arguments(b), &((pose *)module)->net);
    return lvn_builder_status(b);
}

static lvn_tensor *forward(const lvn_module *module, lvn_tensor *x)
{
    return lvni_pose_network_maps(&((const pose *)module)->net, x);
}

static const lvn_module_class pose_class = {
    .name = "pose", .size = sizeof(pose), .build = build, .forward = forward};

static lvni_nn_model *make_empty(int downsample)
{
    lvni_nn_model *m;
    const lvni_pose_network_settings s = {
        .model = "resnet18", .keypoints = KEYPOINTS, .downsample = downsample};
    assert_int_equal(lvni_nn_model_build_empty(&pose_class, &s, &m), LVN_OK);
    return m;
}

static lvni_nn_model *make(int downsample)
{
    lvni_nn_model *m = make_empty(downsample);
    golden_fill(m, seed(), "bn2");
    return m;
}

TEST(heads)
{
    for (int d = 1; d <= 3; d++) {
        lvni_nn_model *m = make(d);
        char prefix[32];
        double worst = 0.0;
        int64_t n;
        snprintf(prefix, sizeof prefix, "head/%d/", d);
        lvn_tensor *features = numbers(LVN_F32, "features", 1.0, LVN_SHAPE(N, 2, 3, 512));
        assert_int_equal(lvn_scope_open(), LVN_OK);
        const lvn_tensor *maps = lvni_pose_network_head(&((const pose *)m->root)->net, features);
        assert_non_null(maps);
        golden_compare_row_within(golden_values(file, prefix, "maps", &n), LVNI_CF32(maps),
                                  lvn_numel(maps), IN_F32, prefix, 0.0, &worst);
        assert_int_equal(lvn_scope_close(), LVN_OK);
        lvn_release(features);
        lvni_nn_model_destroy(m);
    }
}

/* What of the labels the script has, drawn. */
static lvn_tensor *draw_labels(void)
{
    lvn_tensor *label = golden_tensor(seed(), "label", LVN_SHAPE(IMAGES, KEYPOINTS, 2)),
               *points = lvn_zeros(LVN_F32, LVN_SHAPE(IMAGES, KEYPOINTS, 2)),
               *kind = lvn_add_scalar(lvn_zeros(LVN_F32, LVN_SHAPE(IMAGES, KEYPOINTS)), 2.0);
    for (int64_t e = 0; e < lvn_numel(label); e++) {
        golden_set(points, e, fabs(golden_get(label, e)) * (e % 2 == 0 ? WIDE / 2 : HIGH / 2));
    }
    lvn_release(label);
    return lvn_heatmap2d(points, kind, HIGH / 4, WIDE / 4, 0.25, 1.25);
}

/* The loss of a step as the recipe has it; gradients and running statistics in the set. */
static double run_step(const lvni_nn_model *m, lvni_nn_set *set)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    lvn_tensor *image = golden_tensor(seed(), "image", LVN_SHAPE(IMAGES, HIGH, WIDE, 3)), *count;
    ctx->at = (lvni_tensor_position){.training = true};
    ctx->gradients = &set->gradients;
    ctx->records = set;
    lvni_nn_set_begin(set, IMAGES);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *valid = lvn_add_scalar(lvn_zeros(LVN_F32, LVN_SHAPE(IMAGES, KEYPOINTS)), 1.0),
               *maps = lvn_forward(m->root, image);
    lvn_tensor *loss =
        lvn_mul_scalar(lvni_pose_heatmap_loss(LVNI_POSE_MSE, draw_labels(), maps, valid, &count),
                       lvni_pose_loss_weight(0.0));
    assert_non_null(loss);
    const double value = lvn_item(loss);
    assert_int_equal(lvn_backward(loss), LVN_OK);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    lvni_nn_set_finish(set);
    ctx->gradients = NULL;
    ctx->records = NULL;
    ctx->at = (lvni_tensor_position){0};
    lvn_release(image);
    return value;
}

TEST(a_step_of_the_network)
{
    static const double least = 1e-2; /* the last bias has no gradient except rounding */
    lvni_nn_model *m = make(2);
    lvni_nn_set *set;
    double worst = 0.0;
    int64_t n;
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    const double loss = run_step(m, set), want = *golden_values(file, "network/", "loss", &n);
    if (!(fabs(loss - want) <= IN_F32 * want)) {
        fail_msg("loss %.9g, Lightning Pose %.9g", loss, want);
    }
    assert_int_equal(golden_compare_gradients(file, "network/grad/", set, least, &worst),
                     m->n_parameters);
    lvni_nn_model_apply_records(m, set, NULL, NULL, 0);
    assert_int_equal(golden_compare_buffers(file, "network/buffer/", m, IN_F32), m->n_buffers);
    print_message("  largest relative difference of a gradient: %.1e\n", worst);
    lvni_nn_set_destroy(set);
    lvni_nn_model_destroy(m);
}

/* ---- an optimizer ---- */

static lvni_optim *make_adam(const lvni_nn_model *m, double rate)
{
    const lvni_optim_options options = {
        .kind = LVNI_OPTIM_ADAM, .lr = rate, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    const lvni_optim_rules rules = {.lr = 1.0};
    lvni_optim_parameter *parameter;
    lvni_optim *optim;
    assert_int_equal(lvni_trainer_parameters(m, &rules, &parameter), LVN_OK);
    assert_int_equal(
        lvni_optim_create(&options, m->n_weights, NULL, parameter, m->n_parameters, &optim),
        LVN_OK);
    lvni_core_free(parameter);
    return optim;
}

/* Adam divides by the size of a gradient, so one that is 0 except for rounding moves its weight by
 * a whole step: the losses are compared, not single weights, and the first ones more closely. */
TEST(steps_of_adam)
{
    static const double rate = 1e-4;
    lvni_nn_model *m = make(2);
    lvni_nn_set *set;
    double worst = 0.0;
    int64_t n;
    const double *want = golden_values(file, "adam/", "losses", &n);
    lvni_optim *optim = make_adam(m, rate);
    assert_int_equal(n, 20);
    assert_int_equal(lvni_nn_set_create(m, &set), LVN_OK);
    for (int64_t i = 0; i < n; i++) {
        const double loss = run_step(m, set);
        worst = fmax(worst, fabs(loss - want[i]) / want[i]);
        if (!(fabs(loss - want[i]) <= (i < 3 ? ADAM_FIRST : ADAM) * want[i])) {
            fail_msg("loss %.9g behind %d steps, Lightning Pose %.9g", loss, (int)i, want[i]);
        }
        lvni_nn_model_apply_records(m, set, NULL, NULL, 0);
        lvni_optim_step(optim, 0, m->weights, set->data, rate, 1.0);
        lvni_nn_model_touch(m);
    }
    assert_true(want[n - 1] < 0.5 * want[0]); /* it learns */
    print_message("  largest relative difference of a loss: %.1e\n", worst);
    lvni_nn_set_destroy(set);
    lvni_optim_destroy(optim);
    lvni_nn_model_destroy(m);
}

/* ---- weights ---- */

enum { NAME = 128 };

/* As Lightning Pose calls it, by the file's lines "OURS THEIRS"; in `out`. */
static void their_name(const char *ours, char out[NAME])
{
    const size_t n = strlen(ours);
    const char *line = lvni_ckpt_st_meta_get(file, "names");
    for (; line != NULL && *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, ours, n) == 0 && line[n] == ' ') {
            snprintf(out, NAME, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
            return;
        }
    }
    fail_msg("the golden file does not name %s", ours);
}

/* The model's parameters under Lightning Pose's names, or, as MMPose has them, the backbone's under
 * their own, and a head that is none of this model. */
static void write_weights(const lvni_nn_model *m, bool mmpose, const char *path)
{
    const int n = m->n_parameters + m->n_buffers;
    lvni_ckpt_st_tensor *entry = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *entry);
    char(*name)[NAME] = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *name);
    float **data = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)n, sizeof *data);
    if (entry == NULL || name == NULL || data == NULL) {
        fail_msg("%s", lvn_last_error()->message);
        return;
    }
    for (int i = 0; i < n; i++) {
        const lvni_nn_parameter *p = i < m->n_parameters ? &m->parameters[i] : NULL;
        const lvn_buffer *b = p != NULL ? NULL : m->buffers[i - m->n_parameters];
        const lvn_tensor *t = p != NULL ? p->tensor : b->tensor;
        const char *own = p != NULL ? p->name : b->name;
        data[i] = lvni_core_alloc(LVNI_TAG_MODEL, (size_t)lvn_numel(t) * sizeof(float));
        assert_non_null(data[i]);
        if (mmpose) {
            snprintf(name[i], NAME, "%s%s", strncmp(own, "head", 4) == 0 ? "keypoint_" : "", own);
        } else {
            their_name(own, name[i]);
        }
        entry[i] =
            (lvni_ckpt_st_tensor){.name = name[i], .dtype = LVN_F32, .ndim = 1, .data = data[i]};
        if (p != NULL) {
            lvni_nn_parameter_to_file(p, LVNI_CF32(t), data[i]);
            entry[i].ndim = lvni_nn_parameter_file_shape(p, entry[i].shape);
        } else {
            memcpy(data[i], t->data, (size_t)lvn_numel(t) * sizeof(float));
            entry[i].shape[0] = lvn_numel(t);
        }
    }
    assert_int_equal(lvni_ckpt_st_save(path, entry, n, NULL, 0), LVN_OK);
    for (int i = 0; i < n; i++) {
        lvni_core_free(data[i]);
    }
    lvni_core_free(data);
    lvni_core_free(name);
    lvni_core_free(entry);
}

static void check_load(const lvni_nn_model *from, bool mmpose, const char *part, const char *naming)
{
    char folder[] = "/tmp/levin-golden-XXXXXX", path[64];
    lvni_nn_model *to = make_empty(2);
    lvni_run_weights_report report;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/theirs.safetensors", folder);
    write_weights(from, mmpose, path);
    const lvni_run_weights_source source = {.path = path, .part = part};
    const lvn_status s = lvni_run_model_load(to, &source, &report);
    unlink(path);
    rmdir(folder);
    if (s != LVN_OK) {
        fail_msg("%s", lvn_last_error()->message);
    }
    assert_string_equal(report.naming, naming);
    assert_int_equal(report.taken, report.all);
    for (int i = 0; i < to->n_parameters; i++) {
        const lvni_nn_parameter *p = &to->parameters[i];
        const bool taken = part == NULL || strncmp(p->name, part, strlen(part)) == 0;
        assert_int_equal(memcmp(p->tensor->data, from->parameters[i].tensor->data,
                                (size_t)p->numel * sizeof(float)) == 0,
                         taken);
    }
    lvni_run_weights_report_free(&report);
    lvni_nn_model_destroy(to);
}

TEST(weights_of_lightning_pose_and_mmpose)
{
    lvni_nn_model *from = make(2);
    check_load(from, false, NULL, "Lightning Pose");
    check_load(from, false, "backbone", "Lightning Pose");
    check_load(from, true, "backbone", "");
    lvni_nn_model_destroy(from);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: test_pose_golden FILE [TEST...]\n");
        return 2;
    }
    if (lvni_cpu_start() != LVN_OK || lvni_ckpt_st_open(argv[1], LVNI_ST_VERIFY, &file) != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 1;
    }
    argv[1] = argv[0];
    const int failed = test_main(argc - 1, argv + 1);
    lvni_ckpt_st_close(file);
    return failed;
}
