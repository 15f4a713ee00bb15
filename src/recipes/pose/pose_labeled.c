/* Labelled videos (pose_labeled.h): frame by frame through the reader, pose_draw.c and the writer,
 * or into PNG files. */
#include "recipes/pose/pose_labeled.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/str.h"
#include "core/vfs.h"
#include "data/image.h"
#include "data/video_writer.h"
#include "log/run_log.h"
#include "recipes/pose/pose.h"
#include "recipes/pose/pose_folder.h"
#include "recipes/pose/pose_video.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 3 };

struct lvni_pose_labeled {
    lvni_pose_drawing drawing;
    lvni_pose_found found;
    lvni_data_video *video;
    lvni_data_video_decoders *decoders;
    lvni_data_video_writer *writer; /* NULL: PNG files */
    lvni_core_str place, file;      /* of the video or the folder; of a frame */
    int64_t next, chosen;           /* of the frames that are drawn; how many these are */
    int width, height;              /* of a drawn frame */
    uint8_t *frame, *drawn;
};

/* ---- open ---- */

bool lvni_pose_labeled_frames_read(const char *text, int64_t *n)
{
    if (strcmp(text, "all") == 0) {
        *n = INT64_MAX;
        return true;
    }
    char *end;
    errno = 0;
    *n = strtoll(text, &end, 10);
    return errno == 0 && text[0] >= '0' && text[0] <= '9' && *end == '\0' && *n >= 1;
}

static bool is_drawn_frame(const char *name)
{
    const size_t digits = strspn(name, "0123456789");
    return digits >= 6 && strcmp(name + digits, ".png") == 0;
}

/* For images: those of an earlier drawing, perhaps with another model's points, go. */
static lvn_status make_folder(const char *folder)
{
    LVN_TRY(lvni_core_mkdirs(folder));
    return lvni_pose_folder_remove(folder, is_drawn_frame);
}

/* DIR/labeled_videos/NAME_labeled.mp4, or DIR/labeled_videos/NAME. */
static lvn_status find_place(lvni_pose_labeled *l, const lvni_pose_labeled_options *o)
{
    const char *name = lvni_pose_base_name(o->table), *dot = strrchr(name, '.');
    const int stem = (int)(dot == NULL ? strlen(name) : (size_t)(dot - name));
    lvni_core_str_printf(&l->place, "%.*slabeled_videos", (int)(name - o->table), o->table);
    LVN_TRY(lvni_core_str_status(&l->place));
    LVN_TRY(lvni_core_mkdirs(lvni_core_str_text(&l->place)));
    lvni_core_str_printf(&l->place, "/%.*s%s", stem, name, o->frames == NULL ? "_labeled.mp4" : "");
    LVN_TRY(lvni_core_str_status(&l->place));
    return o->frames == NULL ? LVN_OK : make_folder(lvni_core_str_text(&l->place));
}

static lvn_status open_writer(lvni_pose_labeled *l)
{
    const lvni_data_video_writer_options options = {.path = lvni_core_str_text(&l->place),
                                                    .like = l->video,
                                                    .width = l->width,
                                                    .height = l->height};
    LVN_TRY(lvni_data_video_writer_open(&options, &l->writer));
    if (strcmp(lvni_data_video_writer_encoder(l->writer), "libx264") != 0) {
        lvni_log_line(LVNI_LOG_INFO,
                      "note: %s is MPEG-4 part 2: FFmpeg's libraries have no libx264 here",
                      options.path);
    }
    return LVN_OK;
}

static lvn_status open_video(lvni_pose_labeled *l, const lvni_pose_labeled_options *o)
{
    lvni_data_video_info info;
    LVN_TRY(lvni_pose_video_file(o->video, o->dir, false, &l->video));
    LVN_TRY(lvni_data_video_decoders_create(1, &l->decoders));
    lvni_data_video_describe(l->video, &info);
    if (info.frames != o->found.n) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "%s: the file has changed since its frames were predicted: %lld frames, not %lld",
                 o->video, (long long)info.frames, (long long)o->found.n);
    }
    lvni_pose_draw_size(info.width, info.height, &l->width, &l->height);
    l->drawing.width = info.width;
    l->drawing.height = info.height;
    l->frame = lvni_core_calloc(LVNI_TAG_DATA, (size_t)info.height, (size_t)info.width * CHANNELS);
    l->drawn = lvni_core_calloc(LVNI_TAG_DATA, (size_t)l->height, (size_t)l->width * CHANNELS);
    return l->frame == NULL || l->drawn == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static lvn_status open_all(lvni_pose_labeled *l, const lvni_pose_labeled_options *o)
{
    l->found = o->found;
    l->chosen = o->found.n;
    l->drawing.keypoints = o->found.k;
    l->drawing.threshold = o->threshold;
    int64_t frames = 0;
    LVN_ARG(lvni_report_colour_map_find(o->colormap, &l->drawing.colours), "the colour map %s",
            o->colormap);
    if (o->frames != NULL && lvni_pose_labeled_frames_read(o->frames, &frames) &&
        frames < l->chosen) {
        l->chosen = frames;
    }
    LVN_TRY(open_video(l, o));
    LVN_TRY(find_place(l, o));
    return o->frames == NULL ? open_writer(l) : LVN_OK;
}

lvn_status lvni_pose_labeled_open(const lvni_pose_labeled_options *options, lvni_pose_labeled **out)
{
    *out = NULL;
    lvni_pose_labeled *l = LVNI_NEW(LVNI_TAG_DATA, lvni_pose_labeled);
    LVN_TRY(l == NULL ? LVN_ERR_MEMORY : LVN_OK);
    const lvn_status s = open_all(l, options);
    if (s != LVN_OK) {
        lvni_pose_labeled_close(l);
        return s;
    }
    *out = l;
    return LVN_OK;
}

void lvni_pose_labeled_close(lvni_pose_labeled *l)
{
    if (l != NULL) {
        lvni_data_video_writer_abort(l->writer);
        lvni_data_video_decoders_destroy(l->decoders);
        lvni_data_video_close(l->video);
        lvni_core_str_free(&l->place);
        lvni_core_str_free(&l->file);
        lvni_core_free(l->frame);
        lvni_core_free(l->drawn);
        lvni_core_free(l);
    }
}

/* ---- draw ---- */

/* The chosen ones are at equal distances, the first and the last of the video among them. */
static int64_t number_of(const lvni_pose_labeled *l, int64_t i)
{
    const int64_t n = l->found.n;
    return l->chosen == n || l->chosen == 1 ? i : i * (n - 1) / (l->chosen - 1);
}

/* What cannot be decoded has no points either; the frame before it is shown on. */
static lvn_status read_frame(lvni_pose_labeled *l, int64_t number)
{
    const lvn_status s = lvni_data_video_read(l->decoders, l->video, number, 1, l->frame);
    if (s != LVN_ERR_CORRUPT) {
        return s;
    }
    lvn_clear_error();
    return LVN_OK;
}

static lvn_status draw_frame(lvni_pose_labeled *l, int64_t number)
{
    LVN_TRY(read_frame(l, number));
    lvni_pose_draw_frame(&l->drawing, l->frame, l->found.value + 3 * number * l->found.k,
                         lvni_data_video_time(l->video, number), number, l->drawn);
    if (l->writer != NULL) {
        return lvni_data_video_writer_add(l->writer, l->drawn);
    }
    lvni_core_str_clear(&l->file);
    lvni_core_str_printf(&l->file, "%s/%06lld.png", lvni_core_str_text(&l->place),
                         (long long)number);
    LVN_TRY(lvni_core_str_status(&l->file));
    return lvni_data_png_write(lvni_core_str_text(&l->file), l->drawn, l->width, l->height);
}

static lvn_status complete(lvni_pose_labeled *l)
{
    if (l->writer != NULL) {
        lvni_data_video_writer *w = l->writer;
        l->writer = NULL;
        LVN_TRY(lvni_data_video_writer_commit(w));
        lvni_log_line(LVNI_LOG_INFO, "keypoints drawn in %s", lvni_core_str_text(&l->place));
    } else {
        lvni_log_line(LVNI_LOG_INFO, "keypoints drawn in %lld frames in %s", (long long)l->chosen,
                      lvni_core_str_text(&l->place));
    }
    return LVN_OK;
}

lvn_status lvni_pose_labeled_draw(lvni_pose_labeled *l, double seconds, bool *done)
{
    const uint64_t begun = lvni_core_now_ns();
    *done = false;
    while (l->next < l->chosen) {
        LVN_TRY(draw_frame(l, number_of(l, l->next)));
        l->next++;
        if ((double)(lvni_core_now_ns() - begun) * 1e-9 > seconds ||
            (isfinite(seconds) && lvni_trainer_stop_signal() != 0)) {
            return LVN_OK;
        }
    }
    LVN_TRY(complete(l));
    *done = true;
    return LVN_OK;
}

/* ---- with all ranks ---- */

/* Of rank 0, which the others wait for. */
static double turn_of(const lvni_core_config *c)
{
    static const char timeout[] = "collective_timeout";
    static const double most = 20, part = 4;
    const double s = lvni_core_config_has(c, timeout) ? lvni_core_config_float(c, timeout) : 0;
    return s > 0 && s / part < most ? s / part : most;
}

/* Draws on; text "": there is nothing more to draw. */
static lvn_status draw_turn(const lvni_pose_labeled_options *options, double seconds,
                            lvni_pose_labeled **labeled, char text[2], bool *undrawn)
{
    bool done = false;
    lvn_status s = *labeled == NULL ? lvni_pose_labeled_open(options, labeled) : LVN_OK;
    s = s == LVN_OK ? lvni_pose_labeled_draw(*labeled, seconds, &done) : s;
    text[0] = s != LVN_OK || done ? '\0' : '1';
    if (s == LVN_OK || s == LVN_ERR_MEMORY) {
        return s;
    }
    *undrawn = s != LVN_ERR_UNSUPPORTED;
    lvni_log_line(LVNI_LOG_WARNING, "no labelled video, its predictions are there: %s",
                  lvn_last_error()->message);
    lvn_clear_error();
    return LVN_OK;
}

lvn_status lvni_pose_labeled_together(const lvni_run_ranks *ranks, const lvni_core_config *config,
                                      const lvni_pose_labeled_options *options, bool *undrawn)
{
    const bool leads = ranks->rank->rank == 0 && options->found.value != NULL;
    const double seconds = turn_of(config);
    lvni_pose_labeled *labeled = NULL;
    char more[2] = "";
    lvn_status s;
    *undrawn = false;
    do {
        LVNI_TRY_DONE(s, lvni_run_ranks_check_stop(ranks));
        s = leads ? draw_turn(options, seconds, &labeled, more, undrawn) : LVN_OK;
        const lvn_status shared = lvni_run_ranks_share(ranks, more, sizeof more);
        s = s == LVN_OK ? shared : s;
    } while (s == LVN_OK && more[0] != '\0');
done:
    lvni_pose_labeled_close(labeled);
    return s;
}

/* ---- of levin predict ---- */

static lvn_status check_frames(const lvni_core_option *row, const lvni_core_value *value,
                               const char *origin)
{
    int64_t n;
    return lvni_pose_labeled_frames_read(value->text, &n)
               ? LVN_OK
               : lvni_core_option_fail(row, value, origin, "expected all, or how many frames");
}

static lvn_status check_colormap(const lvni_core_option *row, const lvni_core_value *value,
                                 const char *origin)
{
    lvni_report_colour_map map;
    return lvni_report_colour_map_find(value->text, &map)
               ? LVN_OK
               : lvni_core_option_fail(row, value, origin, "levin has the colour maps %s",
                                       lvni_report_colour_map_names);
}

static const lvni_core_option rows[] = {
    {.name = "labeled_video",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help =
         "Write the video with its keypoints drawn, too: labeled_videos/NAME_labeled.mp4 beside "
         "the table."},
    {.name = "skip_viz",
     .type = LVNI_OPT_BOOL,
     .flags = LVNI_OPT_AUTO,
     .help = "Lightning Pose's name for the opposite of labeled_video."},
    {.name = "eval.frames",
     .type = LVNI_OPT_STRING,
     .check = check_frames,
     .help = "With keypoints drawn, but as PNG files in labeled_videos/NAME: all frames, or this "
             "many at equal distances."},
    {.name = "eval.colormap",
     .type = LVNI_OPT_STRING,
     .check = check_colormap,
     .help = "Colours of the keypoints that are drawn, a map of matplotlib by its name; unset: the "
             "training's."},
    {.name = "eval.confidence_thresh_for_vid",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_BETWEEN(0, 1),
     .help = "Points with a confidence up to this are not drawn; unset: the training's."},
};
const lvni_core_option_table lvni_pose_labeled_keys = LVNI_OPTION_TABLE("predict, drawn", rows);

const char *lvni_pose_labeled_images(const lvni_core_config *c)
{
    static const char frames[] = "eval.frames";
    return lvni_core_config_is_set(c, frames) ? lvni_core_config_str(c, frames) : NULL;
}

/* Frames are asked for by their number alone. */
bool lvni_pose_labeled_wanted(const lvni_core_config *c)
{
    return lvni_core_config_bool(c, "labeled_video") || lvni_core_config_is_set(c, "eval.frames") ||
           (lvni_core_config_is_set(c, "skip_viz") && !lvni_core_config_bool(c, "skip_viz"));
}

lvn_status lvni_pose_labeled_check(const lvni_core_config *c)
{
    if (!lvni_pose_labeled_wanted(c)) {
        return LVN_OK;
    }
    if (lvni_core_config_is_set(c, "skip_viz") && lvni_core_config_bool(c, "skip_viz")) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "skip_viz=true, and labeled_video or eval.frames asks for keypoints that are "
                 "drawn: give one of them");
    }
    if (!lvni_pose_is_video(c)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data=%s: keypoints are drawn into videos; give one, or leave out labeled_video, "
                 "skip_viz and eval.frames",
                 lvni_core_config_str(c, "data"));
    }
    return LVN_OK;
}

static lvn_status copy_found(const lvni_pose_found *from, lvni_pose_found *to)
{
    const size_t n = (size_t)from->n * (size_t)from->k * 3;
    *to = *from;
    to->value = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *to->value);
    if (to->value == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(to->value, from->value, n * sizeof *to->value);
    return LVN_OK;
}

static lvn_status draw_whole(const lvni_pose_labeled_options *options)
{
    lvni_pose_labeled *l = NULL;
    bool done = false;
    lvn_status s = lvni_pose_labeled_open(options, &l);
    if (s == LVN_ERR_UNSUPPORTED) {
        lvni_log_line(LVNI_LOG_WARNING, "no labelled video: %s", lvn_last_error()->message);
        lvn_clear_error();
        return LVN_OK;
    }
    s = s == LVN_OK ? lvni_pose_labeled_draw(l, (double)INFINITY, &done) : s;
    lvni_pose_labeled_close(l);
    return s;
}

lvn_status lvni_pose_labeled_finish(const lvni_run_inference *use,
                                    const lvni_pose_settings *settings, const char *table,
                                    const lvni_pose_found *found)
{
    const lvni_core_config *c = use->config;
    static const char colormap[] = "eval.colormap", threshold[] = "eval.confidence_thresh_for_vid";
    const lvni_pose_labeled_options options = {
        .video = lvni_core_config_str(c, "data"),
        .dir = lvni_core_config_str(c, "model"),
        .table = table,
        .colormap = lvni_core_config_is_set(c, colormap) ? lvni_core_config_str(c, colormap)
                                                         : settings->colormap,
        .threshold = lvni_core_config_is_set(c, threshold) ? lvni_core_config_float(c, threshold)
                                                           : settings->draw_threshold,
        .frames = lvni_pose_labeled_images(c),
        .found = *found};
    lvni_pose_kept *kept = use->user;
    if (kept != NULL) {
        snprintf(kept->colormap, sizeof kept->colormap, "%s", options.colormap);
        kept->threshold = options.threshold;
        return copy_found(found, &kept->found);
    }
    return lvni_pose_labeled_wanted(c) ? draw_whole(&options) : LVN_OK;
}
