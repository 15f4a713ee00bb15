/* The frames of a video as a dataset (pose_video.h). All loader threads share one decoder and what
 * it decoded last: they ask for frames that follow each other, and not quite in their order. */
#include "recipes/pose/pose_video.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/thread.h"
#include "data/resample.h"
#include "data/video.h"
#include "recipes/pose/pose_frames.h"

#include <pthread.h>
#include <string.h>

enum { KEPT = 24 /* frames: more than threads are apart */, CHANNELS = 3 };

typedef struct video {
    lvn_dataset base;
    lvni_pose_video_options o;
    lvni_data_video *file;
    lvni_data_video_decoders *decoders;
    lvni_data_video_info info;
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
    out[LVNI_POSE_FIELD_POINTS] =
        (lvn_field){.name = "points", .dtype = LVN_F32, .ndim = 2, .shape = {v->o.keypoints, 4}};
    out[LVNI_POSE_FIELD_FRAME] =
        (lvn_field){.name = "frame", .dtype = LVN_F32, .ndim = 1, .shape = {2}};
    out[LVNI_POSE_FIELD_PLACE] = (lvn_field){.name = "place", .dtype = LVN_I64, .ndim = 0};
    return LVNI_POSE_FIELDS;
}

static int64_t video_length(const lvn_dataset *dataset)
{
    return ((const video *)dataset)->info.frames;
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

static lvn_status video_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                            void *const field[])
{
    video *v = (video *)(uintptr_t)dataset; /* its decoder moves */
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    LVN_TRY(scratch == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVN_ARG(key->sample >= 0 && key->sample < v->info.frames, "frame %lld of %lld was asked for",
            (long long)key->sample, (long long)v->info.frames);
    LVN_TRY(take_frame(v, key->sample, scratch));
    const float size[2] = {(float)v->info.width, (float)v->info.height};
    memcpy(field[LVNI_POSE_FIELD_FRAME], size, sizeof size);
    memcpy(field[LVNI_POSE_FIELD_PLACE], &key->sample, sizeof key->sample);
    memset(field[LVNI_POSE_FIELD_POINTS], 0, (size_t)v->o.keypoints * 4 * sizeof(float));
    return lvni_pose_video_image(scratch, v->info.height, v->info.width, false, v->o.height,
                                 v->o.width, field[LVNI_POSE_FIELD_IMAGE]);
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

static lvn_status open_file(video *v)
{
    LVN_TRY(lvni_data_video_open(v->o.path, NULL, false, &v->file));
    lvni_data_video_describe(v->file, &v->info);
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
