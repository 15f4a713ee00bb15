/* Frames of videos (video.h) beside those that ffmpeg reads. */
#include "data/video.h"

#include "support/test.h"
#include "video_support.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

BEFORE_ALL()
{
    return video_folder_make(state);
}

AFTER_ALL()
{
    return video_folder_remove(state);
}

/* Shell commands. What each file is about: the kinds of frames (b.mp4), groups that refer to those
 * before them (open.mp4, hevc.mp4), key frames from which an image only recovers (intra.mp4),
 * times (vfr), sides that are odd, edit lists, files that begin in the middle of a group (cut.mkv,
 * lead.mkv),
 * 10 bits, ranges and matrices of colours, orientations, packets that show nothing or two frames
 * (vp8.webm, mpeg4.avi, field.mkv), containers without time stamps or a table. */
#define SOURCE(size, n) "ffmpeg -v error -f lavfi -i testsrc2=s=" size ":r=25 -frames:v " #n " "
#define X264 "-c:v libx264 -g 12 -threads 1 -preset veryfast -pix_fmt "
#define PLAIN SOURCE("64x46", 50) X264 "yuv420p -bf 3 "
#define VFR SOURCE("64x46", 40) "-vf \"select='not(mod(n,3)-1)+eq(n,9)'\" -vsync vfr "
static const struct row {
    const char *name, *make;
} rows[] = {
    {"b.mp4", PLAIN "b.mp4"},
    {"open.mp4", PLAIN "-x264-params open-gop=1:b-adapt=0 open.mp4"},
    {"intra.mp4", PLAIN "-x264-params intra-refresh=1 intra.mp4"},
    {"hevc.mp4", SOURCE("64x46", 50) "-c:v libx265 -preset ultrafast -x265-params "
                                     "log-level=none:keyint=12:open-gop=1:bframes=3 hevc.mp4"},
    {"vfr.mkv", VFR X264 "yuv420p vfr.mkv"},
    {"vfr.mp4", VFR X264 "yuv420p vfr.mp4"},
    {"odd.mp4", SOURCE("61x45", 10) X264 "yuv444p odd.mp4"},
    {"odd.mkv", SOURCE("61x45", 10) "-c:v ffv1 -pix_fmt yuv420p odd.mkv"},
    {"edit.mp4", "ffmpeg -v error -ss 0.7 -i b.mp4 -t 1 -c copy edit.mp4"},
    {"cut.mkv", "ffmpeg -v error -ss 0.7 -i open.mp4 -c copy cut.mkv"},
    {"lead.mkv", "ffmpeg -v error -i open.mp4 -c copy -bsf:v 'noise=drop=lt(n\\,9)' lead.mkv"},
    {"deep.mp4", SOURCE("64x46", 10) X264 "yuv420p10le deep.mp4"},
    {"full.mp4", SOURCE("64x46", 5) "-vf scale=out_color_matrix=bt709:out_range=pc " X264
                                    "yuv420p -colorspace bt709 -color_range pc full.mp4"},
    {"bt709.mp4", SOURCE("64x46", 5) "-vf scale=out_color_matrix=bt709 " X264
                                     "yuv420p -colorspace bt709 bt709.mp4"},
    {"left.mp4", "ffmpeg -v error -i b.mp4 -t 0.2 -c copy -metadata:s:v rotate=90 left.mp4"},
    {"right.mp4", "ffmpeg -v error -i b.mp4 -t 0.2 -c copy -metadata:s:v rotate=270 right.mp4"},
    {"mpeg4.avi", SOURCE("64x46", 50) "-c:v mpeg4 -bf 2 -g 12 mpeg4.avi"},
    {"mpeg4.mp4", SOURCE("64x46", 50) "-c:v mpeg4 -bf 2 -g 12 mpeg4.mp4"},
    {"mjpeg.avi", SOURCE("64x46", 10) "-c:v mjpeg -pix_fmt yuvj420p mjpeg.avi"},
    {"gray.avi", SOURCE("64x46", 10) "-c:v rawvideo -pix_fmt gray gray.avi"},
    {"mpeg2.mpg", SOURCE("64x46", 50) "-c:v mpeg2video -bf 2 -g 12 mpeg2.mpg"},
    {"parts.mp4", "ffmpeg -v error -i b.mp4 -c copy -movflags frag_keyframe+empty_moov parts.mp4"},
    {"h264.ts", "ffmpeg -v error -i b.mp4 -c copy h264.ts"},
    {"h264.avi", PLAIN "h264.avi"},
    {"field.mkv",
     SOURCE("64x64", 30) X264 "yuv420p -flags +ildct+ilme -x264-params tff=1 field.mkv"},
    {"vp8.webm",
     SOURCE("64x46", 50) "-c:v libvpx -auto-alt-ref 1 -lag-in-frames 10 -g 20 -b:v 100k vp8.webm"},
};

/* The path of a row's file, which is made if need be. */
static const char *made(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].name, name) == 0 && access(video_path(name), F_OK) != 0) {
            if (i > 1) { /* of which others are made */
                made(rows[0].name);
                made(rows[1].name);
            }
            VIDEO_RUN("%s", rows[i].make);
        }
    }
    return video_path(name);
}

TEST(every_frame_is_that_of_ffmpeg)
{
    NEEDS_FFMPEG();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        made(rows[i].name);
        video_check(rows[i].name);
    }
}

/* What a file's table has, and seconds where frames are not equally far apart. */
TEST(properties)
{
    NEEDS_FFMPEG();
    lvni_data_video *video;
    lvni_data_video_info info;
    assert_int_equal(lvni_data_video_open(made("vfr.mp4"), NULL, &video), LVN_OK);
    lvni_data_video_describe(video, &info);
    assert_int_equal(info.frames, 40); /* 1, 4, 7, 9, 10 ... of 25 a second */
    assert_int_equal(info.promised, 40);
    assert_true(fabs(lvni_data_video_time(video, 3) - 8.0 / 25.0) < 1e-9);
    assert_true(fabs(lvni_data_video_time(video, 4) - 9.0 / 25.0) < 1e-9);
    lvni_data_video_close(video);
    assert_int_equal(lvni_data_video_open(made("left.mp4"), NULL, &video), LVN_OK);
    lvni_data_video_describe(video, &info);
    assert_int_equal(info.width, 46);
    assert_int_equal(info.height, 64);
    assert_true(fabs(info.rate - 25.0) < 1e-9);
    assert_string_equal(info.codec, "h264");
    assert_int_equal(lvni_data_video_check(video), LVN_OK);
    lvni_data_video_close(video);
}

/* ---- threads ---- */

enum { THREADS = 4, CLIP = 8 };

typedef struct reader {
    const lvni_data_video *video;
    const video_sums *truth;
    int64_t reads;
    uint64_t x;
    int wrong;
} reader;

/* Clips of 1 to CLIP frames. */
static void *read_clips(void *user)
{
    reader *r = user;
    lvni_data_video_info info;
    lvni_data_video_describe(r->video, &info);
    const size_t bytes = 3 * (size_t)info.width * (size_t)info.height;
    lvni_data_video_decoders *decoders = NULL;
    uint8_t *rgb = malloc(CLIP * bytes);
    r->wrong = rgb == NULL || lvni_data_video_decoders_create(2, &decoders) != LVN_OK;
    for (int64_t i = 0; i < r->reads && r->wrong == 0; i++) {
        r->x = r->x * 6364136223846793005U + 1442695040888963407U;
        const int64_t n = 1 + (int64_t)(r->x >> 61),
                      first = (int64_t)((r->x >> 20) % (uint64_t)(r->truth->n - n + 1));
        r->wrong += lvni_data_video_read(decoders, r->video, first, n, rgb) != LVN_OK;
        for (int64_t k = 0; k < n; k++) {
            r->wrong += video_sum(r->video, rgb + (size_t)k * bytes) != r->truth->sum[first + k];
        }
    }
    lvni_data_video_decoders_destroy(decoders);
    free(rgb);
    return NULL;
}

static void check_threads(const char *name, int64_t reads)
{
    const video_sums truth = video_sums_of_ffmpeg(name);
    lvni_data_video *video;
    reader readers[THREADS];
    pthread_t threads[THREADS];
    assert_int_equal(lvni_data_video_open(video_path(name), NULL, &video), LVN_OK);
    for (int i = 0; i < THREADS; i++) {
        readers[i] =
            (reader){.video = video, .truth = &truth, .reads = reads, .x = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, read_clips, &readers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].wrong, 0);
    }
    lvni_data_video_close(video);
    free(truth.sum);
}

TEST(threads_read_clips_of_one_video)
{
    NEEDS_FFMPEG();
    made("open.mp4");
    check_threads("open.mp4", 60);
}

/* Any other file, named by the environment: all frames in order and at random, and on threads. */
TEST(the_file_of_LEVIN_TEST_VIDEO)
{
    const char *name = getenv("LEVIN_TEST_VIDEO");
    if (name == NULL || !video_can_test()) {
        print_message("skipped: LEVIN_TEST_VIDEO names no file\n");
        skip();
    }
    video_check(name);
    check_threads(name, 200);
}

/* More videos than may be open. */
TEST(videos_by_turns)
{
    NEEDS_FFMPEG();
    static const char *const names[] = {"b.mp4", "open.mp4", "h264.avi", "parts.mp4", "vp8.webm"};
    enum { N = sizeof names / sizeof *names };
    lvni_data_video *video[N];
    video_sums truth[N];
    lvni_data_video_decoders *decoders;
    static uint8_t rgb[2 * 3 * 64 * 46];
    assert_int_equal(lvni_data_video_decoders_create(2, &decoders), LVN_OK);
    for (int i = 0; i < N; i++) {
        made(names[i]);
        truth[i] = video_sums_of_ffmpeg(names[i]);
        assert_int_equal(lvni_data_video_open(video_path(names[i]), NULL, &video[i]), LVN_OK);
    }
    for (int k = 0; k < 4 * N; k++) {
        const int i = k * 3 % N, first = k * 7 % 48;
        assert_int_equal(lvni_data_video_read(decoders, video[i], first, 2, rgb), LVN_OK);
        assert_int_equal(video_sum(video[i], rgb), truth[i].sum[first]);
        assert_int_equal(video_sum(video[i], rgb + sizeof rgb / 2), truth[i].sum[first + 1]);
    }
    assert_int_equal(lvni_data_video_read(decoders, video[0], 49, 2, rgb), LVN_ERR_INVALID);
    assert_non_null(strstr(lvn_last_error()->message, "b.mp4: frames 49 to 50 of a video of 50"));
    lvni_data_video_decoders_destroy(decoders);
    for (int i = 0; i < N; i++) {
        lvni_data_video_close(video[i]);
        free(truth[i].sum);
    }
}
