/* Videos that are written: read again, with the times of the video that they are like. */
#include "data/video_writer.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "support/test.h"
#include "video_support.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Seven frames of a recording at changing rate: 0, 40, 120, 160, 400, 440, 1000 ms. */
BEFORE_ALL()
{
    const int made = video_folder_make(state);
    if (made == 0 && video_can_test()) {
        VIDEO_RUN("ffmpeg -v error -f lavfi -i testsrc2=s=65x47:r=25 -vf "
                  "\"select='eq(n\\,0)+eq(n\\,1)+eq(n\\,3)+eq(n\\,4)+eq(n\\,10)+eq(n\\,11)+"
                  "eq(n\\,25)',format=rgb24,pad=65:47\" -vsync vfr -frames:v 7 -c:v ffv1 odd.mkv");
        VIDEO_RUN("ffmpeg -v error -f lavfi -i testsrc2=s=96x64:r=30000/1001 -frames:v 90 "
                  "-c:v libx264 -preset veryfast -bf 2 -pix_fmt yuv420p even.mp4");
        VIDEO_RUN("ffmpeg -v error -i even.mp4 -frames:v 20 -c copy times.ts");
    }
    return made;
}

AFTER_ALL()
{
    return video_folder_remove(state);
}

typedef struct opened {
    lvni_data_video *video;
    lvni_data_video_decoders *decoders;
    lvni_data_video_info info;
    uint8_t *rgb;
} opened;

static opened open_video(const char *name)
{
    opened o;
    if (lvni_data_video_open(video_path(name), NULL, &o.video) != LVN_OK ||
        lvni_data_video_decoders_create(1, &o.decoders) != LVN_OK) {
        fail_msg("%s: %s", name, lvn_last_error()->message);
    }
    lvni_data_video_describe(o.video, &o.info);
    o.rgb = malloc(3 * (size_t)o.info.width * (size_t)o.info.height);
    assert_non_null(o.rgb);
    return o;
}

static void close_video(opened *o)
{
    free(o->rgb);
    lvni_data_video_decoders_destroy(o->decoders);
    lvni_data_video_close(o->video);
}

static const uint8_t *frame_of(opened *o, int64_t frame)
{
    assert_int_equal(lvni_data_video_read(o->decoders, o->video, frame, 1, o->rgb), LVN_OK);
    return o->rgb;
}

static lvn_status copy(opened *from, const char *to, const char *encoder, bool ends)
{
    const lvni_data_video_writer_options options = {.path = video_path(to),
                                                    .like = from->video,
                                                    .width = from->info.width,
                                                    .height = from->info.height,
                                                    .encoder = encoder};
    lvni_data_video_writer *w;
    lvn_status s = lvni_data_video_writer_open(&options, &w);
    if (s != LVN_OK) {
        return s;
    }
    for (int64_t f = 0; s == LVN_OK && f < from->info.frames; f++) {
        s = lvni_data_video_writer_add(w, frame_of(from, f));
    }
    if (s == LVN_OK && ends) {
        assert_int_equal(lvni_data_video_writer_add(w, from->rgb), LVN_ERR_INVALID);
        return lvni_data_video_writer_commit(w);
    }
    lvni_data_video_writer_abort(w);
    return s;
}

/* Mean difference of the pixels that both have; a copied last row is one of the source. */
static double distance(opened *a, opened *b, int64_t frame)
{
    const uint8_t *x = frame_of(a, frame), *y = frame_of(b, frame);
    const int width = a->info.width, height = a->info.height;
    double sum = 0.0;
    for (int row = 0; row < height; row++) {
        for (int i = 0; i < 3 * width; i++) {
            sum += abs(x[row * 3 * width + i] - y[row * 3 * b->info.width + i]);
        }
    }
    return sum / (3.0 * width * height);
}

static void check_copy(const char *from, const char *to, const char *encoder, const char *codec)
{
    opened a = open_video(from);
    if (copy(&a, to, encoder, true) != LVN_OK) {
        fail_msg("%s: %s", to, lvn_last_error()->message);
    }
    opened b = open_video(to);
    assert_string_equal(b.info.codec, codec);
    assert_int_equal(b.info.width, a.info.width + a.info.width % 2);
    assert_int_equal(b.info.height, a.info.height + a.info.height % 2);
    assert_int_equal(b.info.frames, a.info.frames);
    assert_int_equal(lvni_data_video_check(b.video), LVN_OK);
    for (int64_t f = 0; f < a.info.frames; f++) {
        const double at = lvni_data_video_time(a.video, f), is = lvni_data_video_time(b.video, f);
        if (fabs(is - at) > 1e-9 || distance(&a, &b, f) > 9.0) {
            fail_msg("%s, frame %d: %g s, not %g; %g levels off", to, (int)f, is, at,
                     distance(&a, &b, f));
        }
    }
    close_video(&a);
    close_video(&b);
}

TEST(a_video_of_changing_rate_and_odd_size)
{
    NEEDS_FFMPEG();
    check_copy("odd.mkv", "odd.mp4", NULL, "h264");
    VIDEO_RUN(
        "test $(ffprobe -v error -count_frames -select_streams v:0 -show_entries "
        "stream=width,height,nb_read_frames,pix_fmt,has_b_frames -of csv=p=0 odd.mp4) = "
        "66,48,0,yuv420p,7 || { ffprobe -v error -count_frames -select_streams v:0 -show_entries "
        "stream=width,height,nb_read_frames,pix_fmt,has_b_frames -of csv=p=0 odd.mp4; false; }");
    VIDEO_RUN("test \"$(ffprobe -v error -select_streams v:0 -show_entries packet=pts_time -of "
              "csv=p=0 odd.mp4 | tr -d ',' | tr '\\n' ' ')\" = '0.000000 0.040000 0.120000 "
              "0.160000 0.400000 0.440000 1.000000 '");
    check_copy("odd.mkv", "other.mp4", "mpeg4", "mpeg4");
}

TEST(a_video_of_ntsc_rate)
{
    NEEDS_FFMPEG();
    check_copy("even.mp4", "copy.mp4", "libx264", "h264");
    check_copy("even.mp4", "copy4.mp4", "mpeg4", "mpeg4");
    VIDEO_RUN("test $(ffprobe -v error -select_streams v:0 -show_entries stream=avg_frame_rate "
              "-of csv=p=0 copy.mp4) = 30000/1001");
    check_copy("times.ts", "units.mp4", NULL, "h264"); /* units of 1/90000 s, not from 0 */
}

/* Frames of one colour come back as that colour, to the rounding of both conversions. */
TEST(colours_are_kept)
{
    NEEDS_FFMPEG();
    static const uint8_t colours[][3] = {{255, 0, 0}, {0, 255, 0},   {0, 0, 255},   {255, 255, 255},
                                         {0, 0, 0},   {255, 0, 255}, {20, 130, 220}};
    opened like = open_video("odd.mkv");
    const lvni_data_video_writer_options options = {
        .path = video_path("colours.mp4"), .like = like.video, .width = 64, .height = 48};
    lvni_data_video_writer *w;
    static uint8_t rgb[64 * 48][3];
    assert_int_equal(lvni_data_video_writer_open(&options, &w), LVN_OK);
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++) {
        for (size_t p = 0; p < sizeof rgb / sizeof *rgb; p++) {
            memcpy(rgb[p], colours[i], 3);
        }
        assert_int_equal(lvni_data_video_writer_add(w, rgb[0]), LVN_OK);
    }
    assert_int_equal(lvni_data_video_writer_commit(w), LVN_OK);
    opened o = open_video("colours.mp4");
    for (int64_t f = 0; f < o.info.frames; f++) {
        const uint8_t *pixel = frame_of(&o, f) + (ptrdiff_t)3 * (20 * 64 + 30);
        for (int c = 0; c < 3; c++) {
            assert_in_range(pixel[c] + 4, colours[f][c], colours[f][c] + 8);
        }
    }
    close_video(&o);
    close_video(&like);
}

/* Equal frames give equal bytes. */
TEST(a_file_is_the_same_again)
{
    NEEDS_FFMPEG();
    opened a = open_video("even.mp4");
    assert_int_equal(copy(&a, "one.mp4", NULL, true), LVN_OK);
    assert_int_equal(copy(&a, "two.mp4", NULL, true), LVN_OK);
    VIDEO_RUN("cmp one.mp4 two.mp4");
    close_video(&a);
}

/* A writer that is not finished leaves what was there. */
TEST(an_end_before_the_end)
{
    NEEDS_FFMPEG();
    opened a = open_video("even.mp4");
    VIDEO_RUN("mkdir -p ended; printf old >ended/x.mp4");
    assert_int_equal(copy(&a, "ended/x.mp4", NULL, false), LVN_OK);
    VIDEO_RUN("test \"$(cat ended/x.mp4)\" = old; test $(ls -A ended) = x.mp4");
    close_video(&a);
}

/* No room on the disk, at every place at which it may end, and memory that ends: a sentence, and
 * nothing is left. */
TEST(disk_and_memory_fail)
{
    NEEDS_FFMPEG();
    opened a = open_video("even.mp4");
    VIDEO_RUN("mkdir -p faults");
    lvni_core_vfs_fail_at("room", 1 << 30, ENOSPC);
    assert_int_equal(copy(&a, "faults/whole.mp4", NULL, true), LVN_OK);
    const int64_t bytes = lvni_core_vfs_calls("room");
    const uint64_t live = lvni_core_alloc_get_total().live_bytes; /* with a's decoder */
    assert_true(bytes > 1000);
    for (int64_t k = 1; k <= bytes; k += bytes / 5) {
        lvni_core_vfs_fail_at("room", k, ENOSPC);
        assert_int_equal(copy(&a, "faults/x.mp4", NULL, true), LVN_ERR_IO);
        assert_non_null(strstr(lvn_last_error()->message, "faults/x.mp4\": No space left"));
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
    }
    lvni_core_vfs_fail_at("room", 0, 0);
    for (int64_t k = 1; k < 100; k++) {
        lvni_core_alloc_fail_at(k);
        const lvn_status s = copy(&a, "faults/x.mp4", NULL, false);
        const bool all = lvni_core_alloc_fail_at(0) > 0;
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
        assert_int_equal(s, all ? LVN_OK : LVN_ERR_MEMORY);
        if (all) {
            break;
        }
    }
    VIDEO_RUN("test $(ls -A faults) = whole.mp4");
    close_video(&a);
}

TEST(an_encoder_that_is_not_there)
{
    NEEDS_FFMPEG();
    opened a = open_video("odd.mkv");
    assert_int_equal(copy(&a, "no.mp4", "none", true), LVN_ERR_UNSUPPORTED);
    assert_non_null(strstr(lvn_last_error()->message, "Debian's packages libavcodec59"));
    VIDEO_RUN("test ! -e no.mp4");
    close_video(&a);
}
