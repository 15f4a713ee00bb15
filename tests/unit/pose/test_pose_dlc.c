/* levin data dlc where memory, files or the disk fail: an error, and nothing of the new project is
 * there. What it makes of a project: tests/cli/test_data.py. */
#include "recipes/pose/pose_dlc.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "data/image.h"
#include "support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char folder[] = "/tmp/levin-dlc-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *name, const char *text)
{
    assert_int_equal(lvni_core_file_write(path_of(name), text, strlen(text)), LVN_OK);
}

BEFORE_ALL()
{
    static const char *const folders[] = {"in/labeled-data/one", "in/labeled-data/two",
                                          "in/labeled-data/three", "in/videos"};
    static const char one[] = "scorer,,,me,me\nindividuals,,,m,m\nbodyparts,,,a,a\ncoords,,,x,y\n"
                              "labeled-data,one,1.png,1,2\n",
                      two[] = "scorer,me,me,me,me\nbodyparts,b,b,a,a\ncoords,x,y,x,y\n"
                              "labeled-data/two/1.png,1,2,3,4\nlabeled-data\\two\\2.png,,,5,6\n";
    static const uint8_t rgb[8 * 8 * 3];
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        assert_int_equal(lvni_core_mkdirs(path_of(folders[i])), LVN_OK);
    }
    assert_int_equal(lvni_data_png_write(path_of("in/labeled-data/one/1.png"), rgb, 8, 8), LVN_OK);
    assert_int_equal(lvni_data_png_write(path_of("in/labeled-data/two/1.png"), rgb, 8, 8), LVN_OK);
    assert_int_equal(lvni_data_png_write(path_of("in/labeled-data/two/2.png"), rgb, 8, 8), LVN_OK);
    write_text("in/labeled-data/one/CollectedData_me.csv", one);
    write_text("in/labeled-data/two/CollectedData_me.csv", two);
    write_text("in/videos/v.mp4", "a video");
    write_text("in/config.yaml", "scorer: me\nbodyparts:\n- b\n- a\nskeleton:\n- - a\n  - b\n"
                                 "video_sets:\n  /none/w.avi:\n    crop: 0, 8, 0, 8\n");
    return 0;
}

AFTER_ALL()
{
    char command[300];
    snprintf(command, sizeof command, "rm -r %s", folder);
    lvni_data_scratch_release();
    return system(command);
}

static lvn_status convert(lvni_core_str *report)
{
    char in[256], out[256];
    snprintf(in, sizeof in, "%s/in", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    const lvni_pose_dlc_options o = {.in = in, .out = out, .videos = true};
    return lvni_pose_dlc_convert(&o, report);
}

/* Names beside in/: the new project, and what it is written as. */
static int count_others(void)
{
    char name[NAME_MAX + 1] = "";
    int n = -1;
    do {
        assert_int_equal(lvni_pose_folder_next(folder, NULL, name), LVN_OK);
        n++;
    } while (name[0] != '\0');
    return n - 1;
}

static void remove_out(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -r %s/out", folder);
    assert_int_equal(system(command), 0);
}

TEST(all_of_it_is_written)
{
    lvni_core_str report = {0};
    char *text;
    size_t n;
    assert_int_equal(convert(&report), LVN_OK);
    assert_non_null(strstr(lvni_core_str_text(&report),
                           "3 frames of 2 recordings with 2 keypoints, 1 video\n"));
    assert_non_null(strstr(lvni_core_str_text(&report), "1 video of config.yaml not found: "));
    lvni_core_str_free(&report);
    assert_int_equal(lvni_core_file_read(path_of("out/CollectedData.csv"), 4096, &text, &n),
                     LVN_OK);
    assert_string_equal(text, "scorer,me,me,me,me\nbodyparts,b,b,a,a\ncoords,x,y,x,y\n"
                              "labeled-data/one/1.png,,,1,2\nlabeled-data/two/1.png,1,2,3,4\n"
                              "labeled-data/two/2.png,,,5,6\n");
    lvni_core_free(text);
    assert_true(lvni_core_path_exists(path_of("out/videos/v.mp4")));
    assert_int_equal(count_others(), 1);
    assert_int_equal(convert(&report), LVN_ERR_USAGE); /* OUT is not empty */
    lvni_core_str_free(&report);
    assert_true(lvni_core_path_exists(path_of("out/config.yaml")));
    remove_out();
}

static void expect_nothing(lvn_status s, const char *what, int64_t k)
{
    const int others = count_others();
    if (s == LVN_OK || others != 0 || lvn_last_error()->message[0] == '\0') {
        fail_msg("%s %lld: %s, %d names: %s", what, (long long)k, lvn_status_name(s), others,
                 lvn_last_error()->message);
    }
}

TEST(without_memory)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    for (int64_t k = 1, left = 0; left == 0; k++) {
        lvni_core_str report = {0};
        (void)lvni_core_alloc_fail_at(k);
        const lvn_status s = convert(&report);
        left = lvni_core_alloc_fail_at(0);
        lvni_core_str_free(&report);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, live);
        if (left == 0 && s != LVN_OK) {
            expect_nothing(s, "allocation", k);
        } else { /* the failure was one that is not needed, or there was none */
            assert_int_equal(s, LVN_OK);
            remove_out();
        }
    }
}

TEST(files_that_fail)
{
    static const char *const kinds[] = {"open", "write", "close", "rename", "mkdir", "read"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int64_t calls = 0;
        for (int64_t k = 1; k == 1 || k <= calls + 1; k++) {
            lvni_core_str report = {0};
            lvni_core_vfs_fail_at(kinds[i], k, EIO);
            const lvn_status s = convert(&report);
            calls = lvni_core_vfs_calls(kinds[i]);
            lvni_core_vfs_fail_at(kinds[i], 0, 0);
            lvni_core_str_free(&report);
            if (calls >= k && s != LVN_OK) {
                expect_nothing(s, kinds[i], k);
            } else {
                assert_int_equal(s, LVN_OK);
                remove_out();
            }
        }
    }
}
