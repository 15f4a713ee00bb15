/* The frames of a video as a dataset (pose_video.h). All loader threads share one decoder and what
 * it decoded last: they ask for frames that follow each other, and not quite in their order. */
#include "recipes/pose/pose_video.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/thread.h"
#include "core/vfs.h"
#include "data/resample.h"
#include "data/video.h"

#include <pthread.h>
#include <string.h>

enum { KEPT = 24 /* frames: more than threads are apart */, CHANNELS = 3 };

typedef struct video {
    lvn_dataset base;
    lvni_pose_video_options o;
    lvni_data_video *file;
    lvni_data_video_decoders *decoders;
    lvni_data_video_info info;
    lvni_pose_cut cut;
    pthread_mutex_t lock;
    int64_t next;     /* the frame behind the last that was decoded; -1: none was */
    int64_t of[KEPT]; /* which frame is there; -1: none */
    uint8_t *pixels;  /* (KEPT, height, width, 3) */
    size_t bytes;     /* of a frame */
} video;

static int video_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const video *v = (const video *)dataset;
    out[LVNI_POSE_FIELD_IMAGE] = (lvn_field){
        .name = "image", .dtype = LVN_F32, .ndim = 3, .shape = {v->o.height, v->o.width, CHANNELS}};
    out[LVNI_POSE_FIELD_POINTS] = v->o.clip > 0
                                      ? (lvn_field){.name = "read", .dtype = LVN_F32, .ndim = 0}
                                      : (lvn_field){"points", LVN_F32, 2, {v->o.keypoints, 4}};
    out[LVNI_POSE_FIELD_FRAME] =
        (lvn_field){.name = "frame", .dtype = LVN_F32, .ndim = 1, .shape = {2}};
    out[LVNI_POSE_FIELD_PLACE] = (lvn_field){.name = "place", .dtype = LVN_I64, .ndim = 0};
    return LVNI_POSE_FIELDS;
}

static int64_t video_length(const lvn_dataset *dataset)
{
    return lvni_pose_cut_samples(&((const video *)dataset)->cut);
}

const lvni_pose_cut *lvni_pose_video_cut(const lvn_dataset *dataset)
{
    return &((const video *)dataset)->cut;
}

/* Decoded frames on the way to `frame` are kept; one far ahead is looked for. A damaged one on the
 * way is an error of its own alone: which thread comes first is chance. */
static lvn_status decode(video *v, int64_t frame)
{
    int64_t first = v->next >= 0 && frame >= v->next && frame < v->next + KEPT ? v->next : frame;
    for (; first <= frame; first++) {
        const int64_t place = first % KEPT;
        v->of[place] = v->next = -1;
        const lvn_status s = lvni_data_video_read(v->decoders, v->file, first, 1,
                                                  v->pixels + (size_t)place * v->bytes);
        if (s == LVN_ERR_CORRUPT && first < frame) {
            lvn_clear_error();
            continue;
        }
        LVN_TRY(s);
        v->of[place] = first;
        v->next = first + 1;
    }
    return LVN_OK;
}

/* A copy in the thread's scratch memory. */
static lvn_status take_frame(video *v, int64_t frame, lvni_data_scratch *scratch)
{
    LVN_TRY(lvni_data_buffer_reserve(&scratch->pixels, v->bytes));
    const int64_t place = frame % KEPT;
    pthread_mutex_lock(&v->lock);
    const lvn_status s = v->of[place] == frame ? LVN_OK : decode(v, frame);
    if (s == LVN_OK) {
        memcpy(scratch->pixels.data, v->pixels + (size_t)place * v->bytes, v->bytes);
    }
    pthread_mutex_unlock(&v->lock);
    return s;
}

/* The image, black where there is none. */
static lvn_status read_image(video *v, int64_t frame, lvni_data_scratch *scratch, bool *read,
                             float *out)
{
    const lvn_status s = take_frame(v, frame, scratch);
    *read = s == LVN_OK;
    if (s != LVN_ERR_CORRUPT || v->o.clip == 0 || v->o.strict) {
        LVN_TRY(s);
        return lvni_pose_video_image(scratch, v->info.height, v->info.width, false, v->o.height,
                                     v->o.width, out);
    }
    lvn_clear_error();
    memset(out, 0, (size_t)v->o.width * (size_t)v->o.height * CHANNELS * sizeof *out);
    return LVN_OK;
}

static lvn_status video_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                            void *const field[])
{
    video *v = (video *)(uintptr_t)dataset; /* its decoder moves */
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    bool read;
    LVN_TRY(scratch == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVN_ARG(key->sample >= 0 && key->sample < lvni_pose_cut_samples(&v->cut),
            "sample %lld of a video of %lld frames was asked for", (long long)key->sample,
            (long long)v->info.frames);
    const int64_t frame = lvni_pose_cut_frame(&v->cut, key->sample);
    LVN_TRY(read_image(v, frame, scratch, &read, field[LVNI_POSE_FIELD_IMAGE]));
    const float size[2] = {(float)v->info.width, (float)v->info.height}, is_read = read ? 1 : 0;
    memcpy(field[LVNI_POSE_FIELD_FRAME], size, sizeof size);
    memcpy(field[LVNI_POSE_FIELD_PLACE], &frame, sizeof frame);
    if (v->o.clip > 0) {
        memcpy(field[LVNI_POSE_FIELD_READ], &is_read, sizeof is_read);
    } else {
        memset(field[LVNI_POSE_FIELD_POINTS], 0, (size_t)v->o.keypoints * 4 * sizeof(float));
    }
    return LVN_OK;
}

static void video_destroy(lvn_dataset *dataset)
{
    video *v = (video *)dataset;
    lvni_data_video_decoders_destroy(v->decoders);
    lvni_data_video_close(v->file);
    lvni_core_free(v->pixels);
    pthread_mutex_destroy(&v->lock);
    lvni_core_free(v);
}

static const lvn_dataset_class video_class = {.name = "video",
                                              .fields = video_fields,
                                              .length = video_length,
                                              .get = video_get,
                                              .destroy = video_destroy};

/* ---- with the index that a run directory keeps ---- */

static void print_indices(const char *dir, lvni_core_str *out)
{
    if (dir != NULL && lvni_core_path_is_folder(dir)) {
        lvni_core_str_printf(out, "%s/video_index", dir);
    }
}

lvn_status lvni_pose_video_keep(const lvni_data_video *file, const char *dir)
{
    lvni_core_str indices = {0};
    print_indices(dir, &indices);
    lvn_status s = lvni_core_str_status(&indices);
    if (s == LVN_OK && indices.len > 0) {
        s = lvni_data_video_keep(file, lvni_core_str_text(&indices));
    }
    lvni_core_str_free(&indices);
    return s;
}

lvn_status lvni_pose_video_file(const char *path, const char *dir, bool keeps,
                                lvni_data_video **out)
{
    lvni_core_str indices = {0};
    *out = NULL;
    print_indices(dir, &indices);
    lvn_status s = lvni_core_str_status(&indices);
    s = s == LVN_OK
            ? lvni_data_video_open(path, indices.len > 0 ? lvni_core_str_text(&indices) : NULL, out)
            : s;
    lvni_core_str_free(&indices);
    if (s == LVN_OK && keeps) {
        s = lvni_pose_video_keep(*out, dir);
    }
    if (s != LVN_OK) {
        lvni_data_video_close(*out);
        *out = NULL;
    }
    return s;
}

/* ---- opening ---- */

static lvn_status open_file(video *v)
{
    LVN_TRY(lvni_pose_video_file(v->o.path, v->o.dir, true, &v->file));
    lvni_data_video_describe(v->file, &v->info);
    v->cut = v->o.clip > 0 ? lvni_pose_cut_make(v->info.frames, v->o.clip)
                           : lvni_pose_cut_none(v->info.frames);
    LVN_TRY(lvni_data_video_decoders_create(1, &v->decoders));
    v->bytes = (size_t)v->info.width * (size_t)v->info.height * CHANNELS;
    v->pixels = lvni_core_calloc(LVNI_TAG_DATA, KEPT, v->bytes);
    return v->pixels == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

lvn_status lvni_pose_video_open(const lvni_pose_video_options *options, lvn_dataset **out)
{
    *out = NULL;
    video *v = LVNI_NEW(LVNI_TAG_DATA, video);
    LVN_TRY(v == NULL ? LVN_ERR_MEMORY : LVN_OK);
    v->base.cls = &video_class;
    v->o = *options;
    v->next = -1;
    (void)pthread_mutex_init(&v->lock, NULL);
    for (int i = 0; i < KEPT; i++) {
        v->of[i] = -1;
    }
    const lvn_status s = open_file(v);
    if (s != LVN_OK) {
        video_destroy(&v->base);
        return s;
    }
    *out = &v->base;
    return LVN_OK;
}
