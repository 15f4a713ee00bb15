/* The dataset of labelled frames (pose_frames.h). A loader thread has its own memory for what an
 * image goes through. */
#include "recipes/pose/pose_frames.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "data/dataset.h"
#include "recipes/pose/pose_window.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 3, WINDOW = 5, MIDDLE = WINDOW / 2 };

typedef struct frames {
    lvn_dataset base;
    lvni_pose_frames_options o;
    char *data_dir;
    lvni_data_subset subset;
    int *partner; /* (k) whose place a point takes in a mirrored frame; NULL: none is */
    float value[256][CHANNELS]; /* a byte as the network sees it */
} frames;

static const frames *frames_of(const lvn_dataset *dataset)
{
    return (const frames *)dataset;
}

static int frames_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const frames *f = frames_of(dataset);
    out[LVNI_POSE_FIELD_IMAGE] =
        f->o.context ? (lvn_field){"image", LVN_F32, 4, {WINDOW, f->o.height, f->o.width, CHANNELS}}
                     : (lvn_field){"image", LVN_F32, 3, {f->o.height, f->o.width, CHANNELS}};
    out[LVNI_POSE_FIELD_POINTS] = (lvn_field){"points", LVN_F32, 2, {f->o.labels->k, 4}};
    out[LVNI_POSE_FIELD_FRAME] = (lvn_field){"frame", LVN_F32, 1, {2}};
    out[LVNI_POSE_FIELD_PLACE] = (lvn_field){.name = "place", .dtype = LVN_I64, .ndim = 0};
    return LVNI_POSE_FIELDS;
}

static int64_t frames_length(const lvn_dataset *dataset)
{
    return frames_of(dataset)->subset.n;
}

static int64_t frames_index(const lvn_dataset *dataset, int64_t position)
{
    return lvni_data_subset_at(&frames_of(dataset)->subset, position);
}

static const char *frames_sample_name(const lvn_dataset *dataset, int64_t sample)
{
    return frames_of(dataset)->o.labels->image[sample];
}

/* ---- one sample ---- */

typedef struct worker {
    lvni_pose_work work;
    lvni_core_str path, beside;
    double *xy; /* (k, 2) */
} worker;

/* The image as stored, whatever Exif has to add: labels are in its pixels. */
static lvn_status read_frame(const char *path, lvni_pose_frame *out)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    LVN_TRY(scratch == NULL ? LVN_ERR_MEMORY : LVN_OK);
    size_t bytes;
    lvni_data_image_info info;
    lvni_data_image image;
    LVN_TRY(lvni_data_read_file(scratch, path, &bytes));
    LVN_TRY(lvni_data_image_probe(scratch, scratch->file.data, bytes, path, &info));
    LVN_TRY(
        lvni_data_image_decode(scratch, scratch->file.data, bytes, path, &info, 1.0, NULL, &image));
    out->rgb = image.rgb;
    out->width = image.width;
    out->height = image.height;
    return LVN_OK;
}

/* Which target a point of the file has, before anything moves. */
static lvni_pose_target target_of(const frames *f, int64_t sample, int k)
{
    const lvni_pose_labels *l = f->o.labels;
    const int64_t at = sample * l->k + k;
    if (l->visible != NULL) {
        return (lvni_pose_target)l->visible[at];
    }
    if (isnan(l->xy[2 * at]) || isnan(l->xy[2 * at + 1])) {
        return f->o.uniform_for_nan ? LVNI_POSE_UNIFORM : LVNI_POSE_IGNORED;
    }
    return LVNI_POSE_BUMP;
}

/* A point outside of the image has no place, and a bump there nothing to learn from. swapped: left
 * and right change places. */
static void write_points(const frames *f, int64_t sample, const lvni_pose_frame *frame,
                         bool swapped, float *out)
{
    for (int i = 0; i < frame->k; i++, out += 4) {
        const int k = swapped ? f->partner[i] : i;
        const double x = frame->xy[2 * k], y = frame->xy[2 * k + 1];
        const bool inside = x >= 0.0 && x < f->o.width && y >= 0.0 && y < f->o.height;
        const lvni_pose_target target = target_of(f, sample, k);
        out[0] = inside ? (float)x : 0.0f;
        out[1] = inside ? (float)y : 0.0f;
        out[2] = inside ? 1.0f : 0.0f;
        out[3] = (float)(target == LVNI_POSE_BUMP && !inside ? LVNI_POSE_IGNORED : target);
    }
}

static void write_image(const frames *f, const uint8_t *rgb, float *out)
{
    const ptrdiff_t n = (ptrdiff_t)f->o.width * f->o.height;
    for (ptrdiff_t i = 0; i < n; i++, rgb += CHANNELS, out += CHANNELS) {
        out[0] = f->value[rgb[0]][0];
        out[1] = f->value[rgb[1]][1];
        out[2] = f->value[rgb[2]][2];
    }
}

/* As it goes to the network: draw is of the sample, NULL for one that is not augmented. */
static lvn_status render(const frames *f, worker *w, const lvni_pose_draw *draw,
                         lvni_pose_frame *frame, float *out)
{
    LVN_TRY(draw != NULL ? lvni_pose_pipeline_render(f->o.pipeline, draw, &w->work, frame)
                         : lvni_pose_resize(&w->work, frame, f->o.width, f->o.height));
    write_image(f, frame->rgb, out);
    return LVN_OK;
}

/* The frames around the one that is there. */
static lvn_status render_beside(const frames *f, worker *w, const lvni_pose_draw *draw,
                                float *window)
{
    const ptrdiff_t n = (ptrdiff_t)f->o.width * f->o.height * CHANNELS;
    for (int i = 0; i < WINDOW; i++) {
        lvni_pose_frame frame = {.k = 0};
        if (i == MIDDLE) {
            continue;
        }
        LVN_TRY(lvni_pose_window_path(lvni_core_str_text(&w->path), i - MIDDLE, &w->beside));
        if (!lvni_core_path_exists(lvni_core_str_text(&w->beside))) {
            memcpy(window + i * n, window + MIDDLE * n, (size_t)n * sizeof *window);
            continue;
        }
        LVN_TRY(read_frame(lvni_core_str_text(&w->beside), &frame));
        LVN_TRY(render(f, w, draw, &frame, window + i * n));
    }
    return LVN_OK;
}

static lvn_status frames_worker_get(const lvn_dataset *dataset, void *state,
                                    const lvn_sample_key *key, void *const field[])
{
    const frames *f = frames_of(dataset);
    const lvni_pose_labels *l = f->o.labels;
    worker *w = state;
    lvni_pose_frame frame = {.xy = w->xy, .k = l->k};
    LVN_ARG(key->sample >= 0 && key->sample < l->n, "frame %lld of %lld was asked for",
            (long long)key->sample, (long long)l->n);
    memcpy(w->xy, l->xy + key->sample * l->k * 2, (size_t)l->k * 2 * sizeof *w->xy);
    lvni_pose_labels_image_path(l, f->data_dir, key->sample, &w->path);
    LVN_TRY(lvni_core_str_status(&w->path));
    LVN_TRY(read_frame(lvni_core_str_text(&w->path), &frame));
    const float size[2] = {(float)frame.width, (float)frame.height};
    memcpy(field[LVNI_POSE_FIELD_FRAME], size, sizeof size);
    memcpy(field[LVNI_POSE_FIELD_PLACE], &key->sample, sizeof key->sample);
    lvni_pose_draw drawn = {.hflip = false};
    const lvni_pose_draw *draw = key->training && f->o.pipeline != NULL ? &drawn : NULL;
    if (draw != NULL) {
        lvni_pose_pipeline_draw(f->o.pipeline, key, &drawn);
    }
    float *image = field[LVNI_POSE_FIELD_IMAGE];
    const ptrdiff_t middle =
        f->o.context ? MIDDLE * (ptrdiff_t)f->o.width * f->o.height * CHANNELS : 0;
    LVN_TRY(render(f, w, draw, &frame, image + middle));
    write_points(f, key->sample, &frame, drawn.hflip, field[LVNI_POSE_FIELD_POINTS]);
    return f->o.context ? render_beside(f, w, draw, image) : LVN_OK;
}

static void frames_worker_close(const lvn_dataset *dataset, void *state)
{
    (void)dataset;
    worker *w = state;
    lvni_pose_work_free(&w->work);
    lvni_core_str_free(&w->path);
    lvni_core_str_free(&w->beside);
    lvni_core_free(w->xy);
    lvni_core_free(w);
}

static lvn_status frames_worker_open(const lvn_dataset *dataset, void **state)
{
    worker *w = LVNI_NEW(LVNI_TAG_DATA, worker);
    LVN_TRY(w == NULL ? LVN_ERR_MEMORY : LVN_OK);
    w->xy =
        lvni_core_calloc(LVNI_TAG_DATA, (size_t)frames_of(dataset)->o.labels->k, 2 * sizeof *w->xy);
    if (w->xy == NULL) {
        frames_worker_close(dataset, w);
        return LVN_ERR_MEMORY;
    }
    *state = w;
    return LVN_OK;
}

/* For those who read a sample alone. */
static lvn_status frames_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                             void *const field[])
{
    void *state;
    LVN_TRY(frames_worker_open(dataset, &state));
    const lvn_status s = frames_worker_get(dataset, state, key, field);
    frames_worker_close(dataset, state);
    return s;
}

/* ---- opening ---- */

static void frames_destroy(lvn_dataset *dataset)
{
    frames *f = (frames *)dataset;
    lvni_data_subset_free(&f->subset);
    lvni_core_free(f->partner);
    lvni_core_free(f->data_dir);
    lvni_core_free(f);
}

static const lvn_dataset_class frames_class = {
    .name = "labelled frames",
    .fields = frames_fields,
    .length = frames_length,
    .get = frames_get,
    .destroy = frames_destroy,
    .sample_name = frames_sample_name,
    .index = frames_index,
    .worker_open = frames_worker_open,
    .worker_close = frames_worker_close,
    .worker_get = frames_worker_get,
};

/* The length of a name without _left or _right; 0: it has no side. */
static size_t stem_of(const char *name, bool *left)
{
    static const char *const sides[] = {"_left", "_right"};
    const size_t n = strlen(name);
    for (int s = 0; s < 2; s++) {
        const size_t m = strlen(sides[s]);
        *left = s == 0;
        if (n > m && strcmp(name + n - m, sides[s]) == 0) {
            return n - m;
        }
    }
    return 0;
}

static int partner_of(const lvni_pose_labels *l, int k)
{
    bool left, other_left;
    const size_t n = stem_of(l->keypoint[k], &left);
    for (int i = 0; n > 0 && i < l->k; i++) {
        if (stem_of(l->keypoint[i], &other_left) == n && other_left != left &&
            strncmp(l->keypoint[i], l->keypoint[k], n) == 0) {
            return i;
        }
    }
    return n > 0 ? -1 : k;
}

static lvn_status find_partners(frames *f)
{
    const lvni_pose_labels *l = f->o.labels;
    lvni_core_str alone = {0};
    f->partner = lvni_core_calloc(LVNI_TAG_DATA, (size_t)l->k, sizeof *f->partner);
    LVN_TRY(f->partner == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (int k = 0; k < l->k; k++) {
        f->partner[k] = partner_of(l, k);
        if (f->partner[k] < 0) {
            lvni_core_str_printf(&alone, "%s%.64s", alone.len > 0 ? ", " : "", l->keypoint[k]);
        }
    }
    lvn_status s = lvni_core_str_status(&alone);
    if (s == LVN_OK && alone.len > 0) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "training.imgaug_hflip=true exchanges _left and _right, but the other "
                          "side is missing of %.400s; rename keypoints, or turn it off",
                          lvni_core_str_text(&alone));
    }
    lvni_core_str_free(&alone);
    return s;
}

/* Before the first sample, not in the middle of an epoch. */
static lvn_status check_numbers(const frames *f)
{
    lvni_core_str name = {0};
    lvn_status s = LVN_OK;
    for (int64_t i = 0; i < f->subset.n && s == LVN_OK; i++) {
        const int64_t at = lvni_data_subset_at(&f->subset, i);
        s = lvni_pose_window_path(f->o.labels->image[at], 1, &name);
    }
    lvni_core_str_free(&name);
    return s;
}

static void make_values(frames *f)
{
    static const double mean[CHANNELS] = {0.485, 0.456, 0.406},
                        deviation[CHANNELS] = {0.229, 0.224, 0.225};
    for (int v = 0; v < 256; v++) {
        for (int c = 0; c < CHANNELS; c++) {
            f->value[v][c] = (float)((v / 255.0 - mean[c]) / deviation[c]);
        }
    }
}

lvn_status lvni_pose_frames_open(const lvni_pose_frames_options *options, lvn_dataset **out)
{
    *out = NULL;
    LVN_ARG(options->width > 0 && options->height > 0, "frames of %d x %d pixels", options->width,
            options->height);
    frames *f = LVNI_NEW(LVNI_TAG_DATA, frames);
    LVN_TRY(f == NULL ? LVN_ERR_MEMORY : LVN_OK);
    f->base.cls = &frames_class;
    f->o = *options;
    f->data_dir =
        lvni_core_strdup(LVNI_TAG_DATA, options->data_dir == NULL ? "" : options->data_dir);
    lvn_status s = f->data_dir == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK) {
        s = lvni_data_subset_create(options->at, options->n, options->labels->n, &f->subset);
    }
    if (s == LVN_OK && options->pipeline != NULL && lvni_pose_pipeline_flips(options->pipeline)) {
        s = find_partners(f);
    }
    if (s == LVN_OK && options->context) {
        s = check_numbers(f);
    }
    make_values(f);
    if (s != LVN_OK) {
        frames_destroy(&f->base);
        return s;
    }
    *out = &f->base;
    return LVN_OK;
}
