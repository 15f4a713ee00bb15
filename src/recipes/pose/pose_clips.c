/* The dataset of clips (pose_clips.h). A clip that is being read has a reader: a decoder, and its
 * frames that are not asked for yet, which all threads share. A clip is decoded as a whole when the
 * first of its frames is asked for: only then is it known whether another takes its place. */
#include "recipes/pose/pose_clips.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/str.h"
#include "core/thread.h"
#include "data/sampler.h"
#include "data/video.h"
#include "log/run_log.h"
#include "recipes/pose/pose_clip_augment.h"
#include "recipes/pose/pose_folder.h"
#include "recipes/pose/pose_video.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    CHANNELS = 3,
    READERS = 64, /* beyond them clips that are not read to their end give way */
    NONE = -1
};
#define KEY "data.video_dir"

/* Its users are counted under the lock of the dataset, the rest belongs to who has its own. */
typedef struct reader {
    int64_t clip; /* number in the sequence, NONE: none yet */
    int users;
    int64_t left;  /* frames that are still going to be asked for */
    uint64_t used; /* when it was chosen last */
    pthread_mutex_t lock;
    lvni_data_video_decoders *decoders;
    int video;               /* that the clip was read from */
    int64_t n;               /* of `frame` */
    lvni_data_buffer *frame; /* (height, width, 3) of 8 bits each */
    bool *has;               /* (n) which are there */
} reader;

typedef struct source {
    lvni_data_video *file;
    lvni_data_video_info info;
    char *path;
    int64_t first; /* number of its first clip among those of all */
} source;

typedef struct clips {
    lvn_dataset base;
    lvni_pose_clips_options o;
    lvni_pose_clips_info info;
    source *source; /* info.videos of them */
    lvni_pose_poisson *poisson;
    pthread_mutex_t lock;
    reader **reader;
    int readers;
    uint64_t clock;
    bool *damaged; /* (info.clips) cannot be read, as far as they were tried; has the lock */
} clips;

static clips *clips_of(const lvn_dataset *dataset)
{
    return (clips *)(uintptr_t)dataset; /* its readers move */
}

static int clips_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const clips *d = clips_of(dataset);
    out[LVNI_POSE_CLIP_IMAGE] =
        (lvn_field){"image", LVN_F32, 3, {d->o.height, d->o.width, CHANNELS}};
    out[LVNI_POSE_CLIP_MATRIX] = (lvn_field){"matrix", LVN_F32, 2, {2, 3}};
    out[LVNI_POSE_CLIP_FRAME] = (lvn_field){"frame", LVN_F32, 1, {2}};
    return LVNI_POSE_CLIP_FIELDS;
}

static int64_t clips_length(const lvn_dataset *dataset)
{
    (void)dataset;
    return LVN_ENDLESS;
}

/* ---- which frame a sample is ---- */

/* The video that has this one of all clips. */
static int video_of(const clips *d, int64_t clip)
{
    int low = 0, high = d->info.videos;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (d->source[middle].first <= clip) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Which of all clips number `number` of the sequence is, or the one `behind` it in the order of its
 * pass, whose last one is followed by the first. */
static int64_t clip_at(const clips *d, uint64_t number, int64_t behind)
{
    const uint64_t n = (uint64_t)d->info.clips;
    return lvni_data_sampler_at(d->o.seed, (uint32_t)(number / n), (uint32_t)n,
                                (uint32_t)((number % n + (uint64_t)behind) % n));
}

/* In the video that has it. */
static int64_t first_frame(const clips *d, int64_t clip, int video)
{
    return (clip - d->source[video].first) * d->info.longest;
}

/* Shares are those of the plan (lvni_plan_stream_micro_batch): the first ones have one frame more.
 */
lvni_pose_clip_place lvni_pose_clips_place(const lvn_dataset *dataset, int64_t sample)
{
    const clips *d = clips_of(dataset);
    const int64_t m = d->o.micro_batches, step = sample / d->o.batch, at = sample % d->o.batch,
                  size = d->o.batch / m, larger = d->o.batch % m, large = larger * (size + 1);
    const int64_t share = at < large ? at / (size + 1) : larger + (at - large) / size;
    lvni_pose_clip_place p = {.clip = (uint64_t)step * (uint64_t)m + (uint64_t)share,
                              .frame = at < large ? at % (size + 1) : (at - large) % size};
    const int64_t clip = clip_at(d, p.clip, 0);
    p.video = video_of(d, clip);
    p.video_frame = first_frame(d, clip, p.video) + p.frame;
    return p;
}

static const char *clips_sample_name(const lvn_dataset *dataset, int64_t sample)
{
    return clips_of(dataset)->source[lvni_pose_clips_place(dataset, sample).video].path;
}

/* Frames of the clip that a sample is of. */
static int64_t length_of(const clips *d, uint64_t clip)
{
    const int64_t m = d->o.micro_batches, share = (int64_t)(clip % (uint64_t)m);
    return d->o.batch / m + (share < d->o.batch % m ? 1 : 0);
}

/* ---- readers ---- */

static void reader_destroy(reader *r)
{
    if (r != NULL) {
        lvni_data_video_decoders_destroy(r->decoders);
        for (int64_t i = 0; i < r->n; i++) {
            lvni_core_free(r->frame[i].data);
        }
        lvni_core_free(r->frame);
        lvni_core_free(r->has);
        pthread_mutex_destroy(&r->lock);
        lvni_core_free(r);
    }
}

static lvn_status make_room(reader *r, int64_t n)
{
    r->frame = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *r->frame);
    r->has = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *r->has);
    r->n = r->frame == NULL ? 0 : n;
    return r->frame == NULL || r->has == NULL ? LVN_ERR_MEMORY
                                              : lvni_data_video_decoders_create(1, &r->decoders);
}

static lvn_status add_reader(clips *d, reader **out)
{
    reader *r = LVNI_NEW(LVNI_TAG_DATA, reader);
    reader **all =
        lvni_core_realloc(LVNI_TAG_DATA, d->reader, (size_t)(d->readers + 1) * sizeof(reader *));
    d->reader = all != NULL ? all : d->reader;
    if (r == NULL || all == NULL) {
        lvni_core_free(r);
        return LVN_ERR_MEMORY;
    }
    (void)pthread_mutex_init(&r->lock, NULL);
    const lvn_status s = make_room(r, d->info.longest);
    if (s != LVN_OK) {
        reader_destroy(r);
        return s;
    }
    *out = d->reader[d->readers++] = r;
    return LVN_OK;
}

/* Of two that no thread uses the one whose clip is over, else the older one. */
static reader *older(reader *a, reader *b)
{
    if (a == NULL || b == NULL) {
        return a == NULL ? b : a;
    }
    if ((a->left <= 0) != (b->left <= 0)) {
        return a->left <= 0 ? a : b;
    }
    return a->used < b->used ? a : b;
}

/* Lock held: the reader of the clip, else one that becomes it. */
static lvn_status choose(clips *d, const lvni_pose_clip_place *p, reader **out)
{
    reader *best = NULL;
    for (int i = 0; i < d->readers; i++) {
        if (d->reader[i]->clip == (int64_t)p->clip) {
            *out = d->reader[i];
            return LVN_OK;
        }
        best = d->reader[i]->users == 0 ? older(best, d->reader[i]) : best;
    }
    if (best == NULL || (best->left > 0 && d->readers < READERS)) {
        LVN_TRY(add_reader(d, &best));
    }
    best->clip = (int64_t)p->clip;
    best->left = length_of(d, p->clip);
    memset(best->has, 0, (size_t)best->n * sizeof *best->has);
    *out = best;
    return LVN_OK;
}

/* Frames of this one of all clips. */
static lvn_status decode(const clips *d, reader *r, int64_t clip, int64_t n)
{
    r->video = video_of(d, clip);
    const source *s = &d->source[r->video];
    const size_t bytes = (size_t)s->info.width * (size_t)s->info.height * CHANNELS;
    for (int64_t i = 0; i < n; i++) {
        LVN_TRY(lvni_data_buffer_reserve(&r->frame[i], bytes));
        LVN_TRY(lvni_data_video_read(r->decoders, s->file, first_frame(d, clip, r->video) + i, 1,
                                     r->frame[i].data));
    }
    memset(r->has, 1, (size_t)n * sizeof *r->has);
    return LVN_OK;
}

static bool is_damaged(clips *d, int64_t clip)
{
    pthread_mutex_lock(&d->lock);
    const bool damaged = d->damaged[clip];
    pthread_mutex_unlock(&d->lock);
    return damaged;
}

/* Once for each clip. */
static void note_damaged(clips *d, int64_t clip)
{
    pthread_mutex_lock(&d->lock);
    const bool again = d->damaged[clip];
    d->damaged[clip] = true;
    pthread_mutex_unlock(&d->lock);
    if (!again) {
        lvni_log_line(LVNI_LOG_WARNING, "another clip takes the place of a damaged one: %s",
                      lvn_last_error()->message);
    }
}

/* By the loader, up to a few: a clip would have a gap. */
static bool is_left_out(lvn_status s)
{
    return s == LVN_ERR_CORRUPT || s == LVN_ERR_IO || s == LVN_ERR_NOT_FOUND ||
           s == LVN_ERR_UNSUPPORTED;
}

static lvn_status refuse(lvn_status s)
{
    return lvn_error_set(
        LVN_ERR_USAGE, __FILE__, __LINE__, "a clip cannot be read: %s%s", lvn_last_error()->message,
        s == LVN_ERR_CORRUPT ? "; without on_error=stop another one takes its place" : "");
}

/* The clip, or the next one of its pass that can be read. */
static lvn_status decode_some(clips *d, reader *r)
{
    const uint64_t number = (uint64_t)r->clip;
    for (int64_t behind = 0; behind < d->info.clips; behind++) {
        const int64_t clip = clip_at(d, number, behind);
        if (is_damaged(d, clip)) {
            continue;
        }
        const lvn_status s = decode(d, r, clip, length_of(d, number));
        if (s != LVN_ERR_CORRUPT || d->o.stops) {
            return is_left_out(s) ? refuse(s) : s;
        }
        note_damaged(d, clip);
        lvn_clear_error();
    }
    LVN_FAIL(LVN_ERR_USAGE,
             KEY "=%s: each of its %lld clip%s of %lld frame%s has one that cannot be read: see "
                 "the warnings",
             d->o.folder, (long long)d->info.clips, lvni_core_plural(d->info.clips, "", "s"),
             (long long)d->info.longest, lvni_core_plural(d->info.longest, "", "s"));
}

/* The frame changes places with what the thread had before: nothing is copied. */
static lvn_status take(clips *d, reader *r, int64_t frame, lvni_data_scratch *scratch, int *video)
{
    pthread_mutex_lock(&r->lock);
    const lvn_status s = r->has[frame] ? LVN_OK : decode_some(d, r);
    if (s == LVN_OK) {
        const lvni_data_buffer before = scratch->pixels;
        scratch->pixels = r->frame[frame];
        r->frame[frame] = before;
        r->has[frame] = false;
        *video = r->video;
    }
    pthread_mutex_unlock(&r->lock);
    return s;
}

/* Into the thread's scratch->pixels; *video: that it is of. */
static lvn_status read_frame(clips *d, const lvni_pose_clip_place *p, lvni_data_scratch *scratch,
                             int *video)
{
    reader *r;
    pthread_mutex_lock(&d->lock);
    lvn_status s = choose(d, p, &r);
    if (s == LVN_OK) {
        r->users++;
        r->left--;
        r->used = ++d->clock;
    }
    pthread_mutex_unlock(&d->lock);
    LVN_TRY(s);
    s = take(d, r, p->frame, scratch, video);
    pthread_mutex_lock(&d->lock);
    r->users--;
    pthread_mutex_unlock(&d->lock);
    return s;
}

/* ---- one sample ---- */

static void normalise(const clips *d, float *image)
{
    const ptrdiff_t n = (ptrdiff_t)d->o.width * d->o.height;
    float scale[CHANNELS], bias[CHANNELS];
    for (int c = 0; c < CHANNELS; c++) {
        scale[c] = 1.0f / (255.0f * lvni_pose_deviation[c]);
        bias[c] = -lvni_pose_mean[c] / lvni_pose_deviation[c];
    }
    for (ptrdiff_t i = 0; i < n; i++, image += CHANNELS) {
        for (int c = 0; c < CHANNELS; c++) {
            image[c] = scale[c] * image[c] + bias[c];
        }
    }
}

static lvn_status render_augmented(const clips *d, const lvni_pose_clip_draw *draw, int64_t frame,
                                   const source *s, lvni_data_scratch *scratch, float *out)
{
    const size_t bytes = (size_t)d->o.width * (size_t)d->o.height * CHANNELS * sizeof(float);
    LVN_TRY(lvni_data_buffer_reserve(&scratch->view, bytes));
    LVN_TRY(lvni_pose_video_image(scratch, s->info.height, s->info.width, true, d->o.height,
                                  d->o.width, scratch->view.data));
    lvni_pose_clip_render(draw, d->poisson, (uint32_t)frame, scratch->view.data, out);
    normalise(d, out);
    return LVN_OK;
}

static lvn_status clips_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                            void *const field[])
{
    clips *d = clips_of(dataset);
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    LVN_TRY(scratch == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVN_ARG(key->sample >= 0, "frame %lld of clips was asked for", (long long)key->sample);
    const lvni_pose_clip_place p = lvni_pose_clips_place(dataset, key->sample);
    int video;
    LVN_TRY(read_frame(d, &p, scratch, &video));
    const source *s = &d->source[video];
    const float size[2] = {(float)s->info.width, (float)s->info.height};
    memcpy(field[LVNI_POSE_CLIP_FRAME], size, sizeof size);
    lvni_pose_clip_draw draw = {.to = {{1.0, 0.0, 0.0}, {0.0, 1.0, 0.0}}};
    const bool augments = d->o.augments && key->training;
    if (augments) {
        lvni_pose_clip_draw_make(d->o.seed, p.clip, d->o.height, d->o.width, &draw);
    }
    float *matrix = field[LVNI_POSE_CLIP_MATRIX];
    for (int i = 0; i < 6; i++) {
        matrix[i] = (float)draw.to[i / 3][i % 3];
    }
    float *image = field[LVNI_POSE_CLIP_IMAGE];
    return augments ? render_augmented(d, &draw, p.frame, s, scratch, image)
                    : lvni_pose_video_image(scratch, s->info.height, s->info.width, false,
                                            d->o.height, d->o.width, image);
}

static void clips_destroy(lvn_dataset *dataset)
{
    clips *d = clips_of(dataset);
    for (int i = 0; i < d->readers; i++) {
        reader_destroy(d->reader[i]);
    }
    for (int i = 0; i < d->info.videos; i++) {
        lvni_data_video_close(d->source[i].file);
        lvni_core_free(d->source[i].path);
    }
    lvni_core_free(d->reader);
    lvni_core_free(d->damaged);
    lvni_core_free(d->source);
    lvni_pose_poisson_destroy(d->poisson);
    pthread_mutex_destroy(&d->lock);
    lvni_core_free(d);
}

static const lvn_dataset_class clips_class = {.name = "clips",
                                              .fields = clips_fields,
                                              .length = clips_length,
                                              .get = clips_get,
                                              .destroy = clips_destroy,
                                              .sample_name = clips_sample_name};

/* ---- opening ---- */

/* The file of the source, with as many clips as it has. */
static lvn_status measure(clips *d, source *s, const char *name)
{
    LVN_TRY(lvni_pose_video_file(s->path, d->o.dir, false, &s->file));
    lvni_data_video_describe(s->file, &s->info);
    const int64_t longest = d->info.longest;
    if (s->info.frames < longest) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s has %lld frame%s, and a clip has %lld", s->path,
                 (long long)s->info.frames, lvni_core_plural(s->info.frames, "", "s"),
                 (long long)longest);
    }
    const size_t pixels = (size_t)s->info.width * (size_t)s->info.height * CHANNELS,
                 bytes = ((size_t)longest + 1) * pixels;
    d->info.files = lvni_core_hash(lvni_core_hash_text(d->info.files, name), &s->info.contents,
                                   sizeof s->info.contents);
    d->info.bytes = bytes > d->info.bytes ? bytes : d->info.bytes;
    s->first = d->info.clips;
    d->info.clips += s->info.frames / longest;
    return LVN_OK;
}

/* LVN_OK also for one that is left out, with the reason behind `left_out`. */
static lvn_status add_video(clips *d, const char *name, lvni_core_str *left_out)
{
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/%s", d->o.folder, name);
    const size_t n = (size_t)d->info.videos + 1;
    source *all = lvni_core_realloc(LVNI_TAG_DATA, d->source, n * sizeof *all);
    d->source = all != NULL ? all : d->source;
    lvn_status s = all == NULL ? LVN_ERR_MEMORY : lvni_core_str_status(&path);
    if (s == LVN_OK) {
        source *next = &all[d->info.videos];
        *next = (source){.path = lvni_core_strdup(LVNI_TAG_DATA, lvni_core_str_text(&path))};
        s = next->path == NULL ? LVN_ERR_MEMORY : measure(d, next, name);
        d->info.videos += s == LVN_OK ? 1 : 0;
        if (s != LVN_OK) {
            lvni_data_video_close(next->file);
            lvni_core_free(next->path);
        }
    }
    lvni_core_str_free(&path);
    if (s == LVN_ERR_CORRUPT || s == LVN_ERR_UNSUPPORTED || s == LVN_ERR_IO ||
        s == LVN_ERR_NOT_FOUND) {
        lvni_core_str_printf(left_out, "%s%s", left_out->len > 0 ? "\n" : "",
                             lvn_last_error()->message);
        lvn_clear_error();
        return lvni_core_str_status(left_out);
    }
    return s;
}

static lvn_status add_videos(clips *d, lvni_core_str *left_out)
{
    char name[NAME_MAX + 1] = "";
    for (;;) {
        LVN_TRY(lvni_pose_folder_next(d->o.folder, lvni_pose_has_video_ending, name));
        if (name[0] == '\0') {
            break;
        }
        LVN_TRY(add_video(d, name, left_out));
    }
    if (d->info.clips > UINT32_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, KEY "=%s: its videos have %lld clips; at most %lld are possible",
                 d->o.folder, (long long)d->info.clips, (long long)UINT32_MAX);
    }
    if (d->info.videos > 0) {
        return LVN_OK;
    }
    const char *why = left_out->len > 0 ? lvni_core_str_text(left_out) : "it has none";
    LVN_FAIL(LVN_ERR_USAGE,
             KEY "=%s: training on frames without labels needs a video of %lld frames or more: "
                 "%.*s",
             d->o.folder, (long long)d->info.longest, (int)strcspn(why, "\n"), why);
}

/* A line for each. */
static void report(const char *left_out)
{
    while (left_out[0] != '\0') {
        const size_t n = strcspn(left_out, "\n");
        lvni_log_line(LVNI_LOG_WARNING, "no clips of this video: %.*s", (int)n, left_out);
        left_out += n + (left_out[n] == '\n' ? 1 : 0);
    }
}

static lvn_status open_all(clips *d)
{
    lvni_core_str left_out = {0};
    lvn_status s = lvni_pose_poisson_create(&d->poisson);
    s = s == LVN_OK ? add_videos(d, &left_out) : s;
    if (s == LVN_OK && d->o.leads && left_out.len > 0) {
        report(lvni_core_str_text(&left_out));
    }
    lvni_core_str_free(&left_out);
    LVN_TRY(s);
    d->damaged = lvni_core_calloc(LVNI_TAG_DATA, (size_t)d->info.clips, sizeof *d->damaged);
    return d->damaged == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

lvn_status lvni_pose_clips_open(const lvni_pose_clips_options *options, lvn_dataset **out)
{
    *out = NULL;
    LVN_ARG(options->micro_batches > 0 && options->batch >= options->micro_batches,
            "%lld frames for %d micro-batches", (long long)options->batch, options->micro_batches);
    clips *d = LVNI_NEW(LVNI_TAG_DATA, clips);
    LVN_TRY(d == NULL ? LVN_ERR_MEMORY : LVN_OK);
    const int64_t m = options->micro_batches;
    d->base.cls = &clips_class;
    d->o = *options;
    d->info = (lvni_pose_clips_info){.longest = (options->batch + m - 1) / m,
                                     .shortest = options->batch / m,
                                     .files = LVNI_CORE_HASH};
    (void)pthread_mutex_init(&d->lock, NULL);
    const lvn_status s = open_all(d);
    if (s != LVN_OK) {
        clips_destroy(&d->base);
        return s;
    }
    d->info.bytes += (size_t)options->width * (size_t)options->height * CHANNELS * sizeof(float);
    *out = &d->base;
    return LVN_OK;
}

void lvni_pose_clips_describe(const lvn_dataset *dataset, lvni_pose_clips_info *out)
{
    *out = clips_of(dataset)->info;
}

lvn_status lvni_pose_clips_keep(const lvn_dataset *dataset, const char *dir)
{
    const clips *d = clips_of(dataset);
    for (int i = 0; i < d->info.videos; i++) {
        LVN_TRY(lvni_pose_video_keep(d->source[i].file, dir));
    }
    return LVN_OK;
}
