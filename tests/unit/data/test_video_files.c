/* Files that are not videos, or damaged ones, and the index that is kept of a video. */
#include "data/video.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "data/video_index.h"
#include "support/test.h"
#include "video_support.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utime.h>

BEFORE_ALL()
{
    const int made = video_folder_make(state);
    if (made == 0 && video_can_test()) {
        VIDEO_RUN("ffmpeg -v error -f lavfi -i testsrc2=s=64x46:r=25 -frames:v 60 -c:v libx264 "
                  "-threads 1 -preset veryfast -g 12 -bf 3 -pix_fmt yuv420p -movflags faststart "
                  "good.mp4");
    }
    return made;
}

AFTER_ALL()
{
    return video_folder_remove(state);
}

/* The first 60 % of a file, or `size` bytes. */
#define CUT(from, to) "head -c $(($(stat -c %%s " from ") * 6 / 10)) " from " > " to

static void expect_refused(const char *name, lvn_status status, const char *words)
{
    lvni_data_video *video = NULL;
    const lvn_status got = lvni_data_video_open(video_path(name), NULL, &video);
    const char *message = lvn_last_error()->message;
    if (got != status || strstr(message, words) == NULL || strstr(message, name) == NULL) {
        fail_msg("%s: %s: %s", name, lvn_status_name(got), message);
    }
    assert_null(video);
}

TEST(files_that_are_no_videos)
{
    NEEDS_FFMPEG();
    VIDEO_RUN("ffmpeg -v error -f lavfi -i sine=d=0.2 sound.m4a; printf hello >text.mp4; "
              "printf '' >empty.mp4; mkdir folder.mp4");
    VIDEO_RUN("ffmpeg -v error -f lavfi -i testsrc2 -frames:v 0 -c:v libx264 none.mp4");
    VIDEO_RUN("ffmpeg -v error -i good.mp4 -frames:v 1 c.jpg; ffmpeg -v error -f lavfi -i "
              "sine=d=0.2 -i c.jpg -map 0 -map 1 -disposition:v attached_pic cover.mp3");
    VIDEO_RUN("sed 's/avc1/zzq1/g; s/avcC/zzqC/g' good.mp4 >codec.mp4");
    VIDEO_RUN("ffmpeg -v error -i good.mp4 -c copy end.mp4 && " CUT("end.mp4", "tail.mp4"));
    VIDEO_RUN("printf \"ffconcat version 1.0\\nfile 'good.mp4'\\n\" >list.mp4");
    static const char convert[] = "ffmpeg -i IN -c:v libx264 -pix_fmt yuv420p OUT.mp4";
    expect_refused("missing.mp4", LVN_ERR_NOT_FOUND, "No such file");
    expect_refused("folder.mp4", LVN_ERR_IO, "it is a folder");
    expect_refused("empty.mp4", LVN_ERR_CORRUPT, "0 bytes");
    expect_refused("text.mp4", LVN_ERR_CORRUPT, convert);
    expect_refused("list.mp4", LVN_ERR_CORRUPT, convert); /* of other files: none is opened */
    expect_refused("sound.m4a", LVN_ERR_CORRUPT, "0 frames, only sound");
    expect_refused("cover.mp3", LVN_ERR_CORRUPT, "0 frames, only sound");
    expect_refused("none.mp4", LVN_ERR_CORRUPT, "0 frames");
    expect_refused("codec.mp4", LVN_ERR_UNSUPPORTED, "tag zzq1");
    expect_refused("codec.mp4", LVN_ERR_UNSUPPORTED, convert);
    expect_refused("tail.mp4", LVN_ERR_CORRUPT, "the file's end is missing");
}

typedef struct opened {
    lvni_data_video *video;
    lvni_data_video_decoders *decoders;
    lvni_data_video_info info;
    uint8_t rgb[3 * 64 * 46];
} opened;

static void open_video(opened *o, const char *name)
{
    assert_int_equal(lvni_data_video_open(video_path(name), NULL, &o->video), LVN_OK);
    assert_int_equal(lvni_data_video_decoders_create(1, &o->decoders), LVN_OK);
    lvni_data_video_describe(o->video, &o->info);
}

static void close_video(opened *o)
{
    lvni_data_video_decoders_destroy(o->decoders);
    lvni_data_video_close(o->video);
}

/* Each frame before the end is that of the whole file; the first missing one has an error. */
TEST(files_that_are_cut_off)
{
    NEEDS_FFMPEG();
    static opened o;
    const video_sums whole = video_sums_of_ffmpeg("good.mp4");
    VIDEO_RUN(CUT("good.mp4", "cut.mp4"));
    VIDEO_RUN("ffmpeg -v error -i good.mp4 -c copy w.mkv && " CUT("w.mkv", "cut.mkv"));
    static const char *const names[] = {"cut.mp4", "cut.mkv"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char words[64];
        open_video(&o, names[i]);
        assert_in_range(o.info.frames, 15, 45);
        assert_true(o.info.promised > o.info.frames);
        for (int64_t f = 0; f < o.info.frames; f++) {
            assert_int_equal(lvni_data_video_read(o.decoders, o.video, f, 1, o.rgb), LVN_OK);
            assert_int_equal(video_sum(o.video, o.rgb), whole.sum[f]);
        }
        snprintf(words, sizeof words, "frame %lld cannot", (long long)o.info.frames);
        assert_int_equal(lvni_data_video_check(o.video), LVN_ERR_CORRUPT);
        assert_non_null(strstr(lvn_last_error()->message, words));
        close_video(&o);
    }
    free(whole.sum);
}

/* The one index of the folder "indices". */
static const char *kept_file(void)
{
    static char name[64], path[256];
    FILE *list;
    VIDEO_RUN("ls indices > names");
    list = fopen(video_path("names"), "r");
    assert_non_null(list);
    assert_int_equal(fscanf(list, "%63s", name), 1);
    fclose(list);
    snprintf(path, sizeof path, "%s/%s", video_path("indices"), name);
    return path;
}

static int64_t open_kept(const char *name)
{
    lvni_data_video *video;
    lvni_data_video_info info;
    assert_int_equal(lvni_data_video_open(video_path(name), video_path("indices"), &video), LVN_OK);
    assert_int_equal(lvni_data_video_keep(video, video_path("indices")), LVN_OK);
    lvni_data_video_describe(video, &info);
    lvni_data_video_close(video);
    return info.frames;
}

/* How often a video is opened: its index is read from the folder at the first time, else all of
 * its packets are. */
static int64_t opened_files(const char *name)
{
    lvni_core_vfs_fail_at("open", 1000, EIO);
    (void)open_kept(name);
    const int64_t n = lvni_core_vfs_calls("open");
    lvni_core_vfs_fail_at("open", 0, 0);
    return n;
}

/* Where the packet after the third key frame is. */
static int64_t second_packet_of_group(void)
{
    lvni_data_video_index index;
    VIDEO_RUN("rm -rf indices");
    open_kept("good.mp4");
    assert_int_equal(lvni_data_video_index_read(kept_file(), &index), LVN_OK);
    assert_int_equal(index.starts, 5);
    const int64_t at = index.start[2].at + index.start[2].bytes;
    assert_int_equal(index.start[2].frame, 24);
    lvni_data_video_index_free(&index);
    return at;
}

/* Packets in the middle are zeros: the same frames fail on every way to them, up to the next key
 * frame, and with a sentence. */
TEST(a_damaged_packet)
{
    NEEDS_FFMPEG();
    static opened o;
    const video_sums whole = video_sums_of_ffmpeg("good.mp4");
    bool fails[60];
    int failed = 0;
    VIDEO_RUN("cp good.mp4 bad.mp4; dd if=/dev/zero of=bad.mp4 bs=1 count=60 conv=notrunc seek=%d",
              (int)second_packet_of_group());
    open_video(&o, "bad.mp4");
    assert_int_equal(o.info.frames, 60);
    for (int f = 0; f < 60; f++) {
        const lvn_status s = lvni_data_video_read(o.decoders, o.video, f, 1, o.rgb);
        fails[f] = s != LVN_OK;
        failed += fails[f];
        assert_true(!fails[f] || (f > 24 && f < 36));
        if (fails[f]) {
            char words[64];
            snprintf(words, sizeof words, "bad.mp4: frame %d of 60 cannot be decoded", f);
            assert_int_equal(s, LVN_ERR_CORRUPT);
            assert_non_null(strstr(lvn_last_error()->message, words));
        } else {
            assert_int_equal(video_sum(o.video, o.rgb), whole.sum[f]);
        }
    }
    assert_in_range(failed, 8, 11);
    for (int i = 0; i < 120; i++) {
        const int f = i * 37 % 60;
        assert_int_equal(lvni_data_video_read(o.decoders, o.video, f, 1, o.rgb) != LVN_OK,
                         fails[f]);
    }
    close_video(&o);
    free(whole.sum);
}

/* ---- the index ---- */

/* A copy under another name has the index of the file; one of which a byte is another does not. */
TEST(an_index_is_kept)
{
    NEEDS_FFMPEG();
    VIDEO_RUN("cp good.mp4 kept.mp4; rm -rf indices");
    const int64_t made = opened_files("kept.mp4"), kept = opened_files("kept.mp4");
    assert_int_equal(kept, 2); /* the video's ends, and the index */
    assert_true(made > kept);
    VIDEO_RUN("cp kept.mp4 copy.mp4; touch -d 1999-01-01 copy.mp4");
    assert_int_equal(opened_files("copy.mp4"), kept);
    VIDEO_RUN("printf x | dd of=copy.mp4 bs=1 seek=40 conv=notrunc; rm copy.mp4");
    /* damaged, or foreign: made again, as it was */
    char good[256];
    snprintf(good, sizeof good, "%s", kept_file());
    VIDEO_RUN("cp %s before", good);
    VIDEO_RUN("printf x | dd of=%s bs=1 seek=900 conv=notrunc", good);
    assert_int_equal(opened_files("kept.mp4"), made);
    VIDEO_RUN("cmp before %s; truncate -s -1 %s", good, good);
    assert_int_equal(opened_files("kept.mp4"), made);
    VIDEO_RUN("cmp before %s", good);
    VIDEO_RUN("ffmpeg -v error -y -i good.mp4 -frames:v 24 -c copy kept.mp4");
    assert_int_equal(open_kept("kept.mp4"), 24);
    VIDEO_RUN("for i in indices/*; do cmp $i %s || mv $i short; done; cp short %s", good, good);
    VIDEO_RUN("cp good.mp4 kept.mp4");
    assert_int_equal(open_kept("kept.mp4"), 60);
    VIDEO_RUN("cmp before %s", good);
}

/* What the folder cannot hold is read from the video each time. */
TEST(an_index_that_cannot_be_kept)
{
    NEEDS_FFMPEG();
    VIDEO_RUN("rm -rf indices; touch indices");
    assert_int_equal(open_kept("good.mp4"), 60);
    assert_int_equal(open_kept("good.mp4"), 60);
    VIDEO_RUN("test -f indices; rm indices");
}

typedef struct user_of_index {
    char video[256], indices[256], kept[256];
    int failed;
} user_of_index;

static void *open_often(void *arg)
{
    user_of_index *u = arg;
    for (int i = 0; i < 7; i++) {
        lvni_data_video *video = NULL;
        lvn_status s = lvni_data_video_open(u->video, u->indices, &video);
        s = s == LVN_OK ? lvni_data_video_keep(video, u->indices) : s;
        u->failed += s != LVN_OK;
        lvni_data_video_close(video);
        if (i % 3 == 0) {
            (void)unlink(u->kept);
        }
    }
    return NULL;
}

/* Who opens a video while another writes or removes its index has all frames. */
TEST(an_index_of_several_at_once)
{
    NEEDS_FFMPEG();
    VIDEO_RUN("rm -rf indices");
    assert_int_equal(open_kept("good.mp4"), 60);
    static user_of_index user[3];
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) {
        snprintf(user[i].video, sizeof user[i].video, "%s", video_path("good.mp4"));
        snprintf(user[i].indices, sizeof user[i].indices, "%s", video_path("indices"));
        snprintf(user[i].kept, sizeof user[i].kept, "%s", kept_file());
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, open_often, &user[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(user[i].failed, 0);
    }
    (void)open_kept("good.mp4");
    VIDEO_RUN("test $(ls indices | wc -l) = 1"); /* nothing that is half written */
}

/* The video changes while its index is in use. */
TEST(a_file_that_changes)
{
    NEEDS_FFMPEG();
    static opened o;
    VIDEO_RUN("cp good.mp4 change.mp4");
    open_video(&o, "change.mp4");
    const struct utimbuf old = {.actime = 1, .modtime = 1};
    assert_int_equal(utime(video_path("change.mp4"), &old), 0);
    assert_int_equal(lvni_data_video_read(o.decoders, o.video, 3, 1, o.rgb), LVN_ERR_MISMATCH);
    assert_non_null(strstr(lvn_last_error()->message, "change.mp4: the file has changed"));
    close_video(&o);
}

/* ---- faults ---- */

/* Each allocation, and each read of the file, fails once. */
TEST(memory_and_disk_fail)
{
    NEEDS_FFMPEG();
    static opened o;
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    for (int kind = 0; kind < 2; kind++) {
        for (int64_t k = 1;; k++) {
            lvni_core_vfs_fail_at("read", kind == 1 ? k : 0, EIO);
            lvni_core_alloc_fail_at(kind == 0 ? k : 0);
            o.video = NULL;
            o.decoders = NULL;
            lvn_status s = lvni_data_video_open(video_path("good.mp4"), NULL, &o.video);
            s = s == LVN_OK ? lvni_data_video_decoders_create(1, &o.decoders) : s;
            s = s == LVN_OK ? lvni_data_video_read(o.decoders, o.video, 20, 1, o.rgb) : s;
            const bool all =
                kind == 0 ? lvni_core_alloc_fail_at(0) > 0 : lvni_core_vfs_calls("read") < k;
            lvni_core_vfs_fail_at("read", 0, 0);
            close_video(&o);
            assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
            if (all) {
                assert_int_equal(s, LVN_OK);
                break;
            }
            assert_true(s != LVN_OK || kind == 1);
            assert_true(k < 100);
        }
    }
}

/* An index that cannot be read or written does not fail the opening; memory does. */
TEST(memory_and_disk_fail_around_the_index)
{
    NEEDS_FFMPEG();
    static const char *const calls[] = {NULL, "read", "write", "rename"};
    char file[256];
    VIDEO_RUN("rm -rf indices");
    (void)open_kept("good.mp4");
    snprintf(file, sizeof file, "%s", kept_file());
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    for (int kept = 0; kept < 2; kept++) {
        for (size_t kind = 0; kind < sizeof calls / sizeof *calls; kind++) {
            bool all = false;
            for (int64_t k = 1; !all; k++) {
                lvni_data_video *video = NULL;
                if (kept == 0) {
                    (void)unlink(file);
                }
                lvni_core_vfs_fail_at(calls[kind] == NULL ? "read" : calls[kind],
                                      calls[kind] == NULL ? 0 : k, EIO);
                lvni_core_alloc_fail_at(calls[kind] == NULL ? k : 0);
                lvn_status s =
                    lvni_data_video_open(video_path("good.mp4"), video_path("indices"), &video);
                s = s == LVN_OK ? lvni_data_video_keep(video, video_path("indices")) : s;
                all = calls[kind] == NULL ? lvni_core_alloc_fail_at(0) > 0
                                          : lvni_core_vfs_calls(calls[kind]) < k;
                lvni_core_vfs_fail_at("read", 0, 0);
                lvni_data_video_close(video);
                assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
                assert_true(s == LVN_OK || (!all && kind == 0 && s == LVN_ERR_MEMORY) ||
                            (!all && kind == 1)); /* the video itself */
                assert_true(k < 100);
            }
            assert_int_equal(open_kept("good.mp4"), 60);
        }
    }
}
