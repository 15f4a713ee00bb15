/* Two heads over windows of five frames (pose_context.h). The layers before the recurrence look at
 * one frame, so they run once for each; only then is frame t of all windows taken, which of a clip
 * is a run of its frames. */
#include "recipes/pose/pose_context.h"

#include "autograd/tape.h"
#include "core/math.h"

#include <stdio.h>

enum {
    SHUFFLE = 2,
    FILTERS = 16 /* of each keypoint's state */,
    SQUEEZE = 2 /* pixels of a side */
};
enum { NAME = 64 };

/* ---- building ---- */

/* Xavier uniform (Glorot and Bengio 2010, eq. 16) of a weight that PyTorch has as (rows, columns,
 * kernel, kernel), which it counts so for grouped and transposed convolutions, too; biases of 0. */
static void set_init(lvn_builder *b, const char *layer, int rows, int columns, int kernel)
{
    char name[2 * NAME];
    snprintf(name, sizeof name, "%s.weight", layer);
    lvn_builder_set_init(b, name, LVN_INIT_UNIFORM,
                         lvni_core_sqrt(6.0 / ((double)(rows + columns) * kernel * kernel)));
    snprintf(name, sizeof name, "%s.bias", layer);
    lvn_builder_set_init(b, name, LVN_INIT_ZEROS, 0.0);
}

/* To maps with sides of twice the length. */
static lvn_module *make_doubling(lvn_builder *b, const char *name, int in, int out)
{
    enum { KERNEL = 3 };
    lvn_module *m = lvn_nn_conv_transpose2d(b, name, in, out, KERNEL, .stride = 2, .padding = 1,
                                            .output_padding = 1);
    set_init(b, name, in, out, KERNEL);
    return m;
}

/* in: channels of a frame's maps. */
static void make_recurrence(lvn_builder *b, const char *direction, int in, int keypoints,
                            lvni_pose_recurrence *out)
{
    const int wide = FILTERS * keypoints;
    char name[NAME];
    snprintf(name, sizeof name, "head.head_mf.W_%s", direction);
    out->in = make_doubling(b, name, in, keypoints);
    snprintf(name, sizeof name, "head.head_mf.H_%s.0", direction);
    out->squeeze =
        lvn_nn_conv2d(b, name, keypoints, wide, SQUEEZE, .stride = SQUEEZE, .groups = keypoints);
    set_init(b, name, wide, 1, SQUEEZE);
    snprintf(name, sizeof name, "head.head_mf.H_%s.1", direction);
    out->back = lvn_nn_conv_transpose2d(b, name, wide, keypoints, SQUEEZE, .stride = SQUEEZE,
                                        .groups = keypoints);
    set_init(b, name, wide, 1, SQUEEZE);
}

void lvni_pose_context_build(lvn_builder *b, const lvni_pose_network_settings *settings,
                             lvni_pose_context *out)
{
    const lvni_pose_network_settings single = {.model = settings->model,
                                               .keypoints = settings->keypoints,
                                               .downsample = LVNI_POSE_CONTEXT_DOWNSAMPLE,
                                               .head = "head.head_sf"};
    lvni_pose_network_build(b, &single, &out->single);
    int in = lvni_nn_zoo_feature_dim(settings->model) / (SHUFFLE * SHUFFLE);
    /* the shuffle and the recurrence double maps once each */
    out->pre = NULL;
    if (lvni_pose_network_halvings(settings->model) > 2 + LVNI_POSE_CONTEXT_DOWNSAMPLE) {
        out->pre = make_doubling(b, "head.head_mf.W_pre", in, settings->keypoints);
        in = settings->keypoints;
    }
    make_recurrence(b, "f", in, settings->keypoints, &out->forwards);
    make_recurrence(b, "b", in, settings->keypoints, &out->backwards);
}

/* ---- windows ---- */

/* (frames, h, w, C): a clip, or five frames for each window. */
typedef struct windows {
    int64_t n;
    bool clip;
} windows;

/* Frame t of every window: (n, h, w, C). */
static lvn_tensor *frame_of(windows of, lvn_tensor *x, int t)
{
    if (x == NULL || of.clip) {
        return x == NULL ? NULL : lvn_slice(x, 0, t, t + of.n);
    }
    const int64_t h = lvn_size(x, 1), w = lvn_size(x, 2), c = lvn_size(x, 3);
    x = lvn_reshape(x, 5, (const int64_t[]){of.n, LVNI_POSE_WINDOW, h, w, c});
    return lvn_reshape(lvn_slice(x, 1, t, t + 1), 4, (const int64_t[]){of.n, h, w, c});
}

/* The state after the last of the five, t = first, first + step, ... */
static lvn_tensor *run(const lvni_pose_recurrence *r, windows of, lvn_tensor *x, int first,
                       int step)
{
    lvn_tensor *in = lvn_forward(r->in, x), *state = frame_of(of, in, first);
    for (int i = 1; i < LVNI_POSE_WINDOW; i++) {
        lvn_tensor *from = lvn_forward(r->back, lvn_forward(r->squeeze, state));
        state = lvn_add(frame_of(of, in, first + i * step), from);
    }
    return state;
}

lvni_pose_both lvni_pose_context_heads(const lvni_pose_context *net, lvn_tensor *features,
                                       bool clip)
{
    if (features == NULL) {
        return (lvni_pose_both){NULL, NULL};
    }
    const int64_t frames = lvn_size(features, 0);
    const windows of = {.n = clip ? frames - (LVNI_POSE_WINDOW - 1) : frames / LVNI_POSE_WINDOW,
                        .clip = clip};
    lvn_tensor *x = lvn_pixel_shuffle(features, SHUFFLE);
    x = net->pre == NULL ? x : lvn_forward(net->pre, x);
    lvn_tensor *there = run(&net->forwards, of, x, 0, 1),
               *back = run(&net->backwards, of, x, LVNI_POSE_WINDOW - 1, -1);
    return (lvni_pose_both){.single = lvni_pose_network_head(
                                &net->single, frame_of(of, features, LVNI_POSE_WINDOW_SIDE)),
                            .multi = lvni_pose_softmax(lvn_mul_scalar(lvn_add(there, back), 0.5))};
}

/* x: NULL where the scope has failed before. */
static lvni_pose_both fail(const lvn_tensor *x, const char *what)
{
    char shape[96];
    if (x != NULL) {
        lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                      "heatmap_mhcrnn looks at 5 frames at a time: it takes %s, not %s", what,
                      lvni_tensor_shape_string(x->ndim, x->shape, shape));
        (void)lvni_autograd_op_fail(NULL);
    }
    return (lvni_pose_both){NULL, NULL};
}

lvni_pose_both lvni_pose_context_of_windows(const lvni_pose_context *net, lvn_tensor *images)
{
    if (images == NULL || images->ndim != 5 || lvn_size(images, 1) != LVNI_POSE_WINDOW) {
        return fail(images, "windows (N, 5, H, W, 3)");
    }
    const int64_t n = lvn_size(images, 0);
    lvn_tensor *frames = lvn_reshape(
        images, 4,
        (const int64_t[]){n * LVNI_POSE_WINDOW, lvn_size(images, 2), lvn_size(images, 3), 3});
    return lvni_pose_context_heads(net, lvni_pose_network_features(&net->single, frames), false);
}

lvni_pose_both lvni_pose_context_of_clip(const lvni_pose_context *net, lvn_tensor *clip)
{
    if (clip == NULL || clip->ndim != 4 || lvn_size(clip, 0) < LVNI_POSE_WINDOW) {
        return fail(clip, "clips (T, H, W, 3) of T >= 5 frames");
    }
    return lvni_pose_context_heads(net, lvni_pose_network_features(&net->single, clip), true);
}

/* ---- both heads ---- */

lvn_tensor *lvni_pose_context_join(lvni_pose_both both)
{
    return lvn_concat((lvn_tensor *[]){both.single, both.multi}, 2, 0);
}

lvn_tensor *lvni_pose_context_choose(lvni_pose_both points)
{
    lvn_tensor *better =
        lvn_gt(lvn_slice(points.multi, 2, 2, 3), lvn_slice(points.single, 2, 2, 3));
    return lvn_where(better, points.multi, points.single);
}
