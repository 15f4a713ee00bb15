/* Names of the five frames around a labelled one. */
#include "recipes/pose/pose_window.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

static void check(const char *path, const char *const want[5])
{
    lvni_core_str found = {0};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(lvni_pose_window_path(path, i - 2, &found), LVN_OK);
        assert_string_equal(lvni_core_str_text(&found), want[i]);
    }
    lvni_core_str_free(&found);
}

TEST(numbers_keep_their_digits_and_end_at_zero)
{
    check("img01.png",
          (const char *const[]){"img00.png", "img00.png", "img01.png", "img02.png", "img03.png"});
    check("a/b/img00099.jpg",
          (const char *const[]){"a/b/img00097.jpg", "a/b/img00098.jpg", "a/b/img00099.jpg",
                                "a/b/img00100.jpg", "a/b/img00101.jpg"});
    check("img98.png",
          (const char *const[]){"img96.png", "img97.png", "img98.png", "img99.png", "img100.png"});
}

/* Other numbers of the path are not the frame's: Lightning Pose takes the first of the name, and
 * replaces its digits wherever they stand. */
TEST(the_last_number_of_the_name_is_the_frames)
{
    check("2024/cam02_img0002.png",
          (const char *const[]){"2024/cam02_img0000.png", "2024/cam02_img0001.png",
                                "2024/cam02_img0002.png", "2024/cam02_img0003.png",
                                "2024/cam02_img0004.png"});
    check("v1.5/7_left.v.jp2",
          (const char *const[]){"v1.5/5_left.v.jp2", "v1.5/6_left.v.jp2", "v1.5/7_left.v.jp2",
                                "v1.5/8_left.v.jp2", "v1.5/9_left.v.jp2"});
    check("frame12", (const char *const[]){"frame10", "frame11", "frame12", "frame13", "frame14"});
}

TEST(a_frame_without_a_number_has_no_neighbours)
{
    static const char *const bad[][2] = {
        {"2024/nose.png", "2024/nose.png: heatmap_mhcrnn looks at the frames before and after it, "
                          "and its name has no number"},
        {"a.mp4", "no number"},
        {"img1234567890123456789.png", "a number of more than 18 digits"}};
    lvni_core_str found = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(lvni_pose_window_path(bad[i][0], 1, &found), LVN_ERR_USAGE);
        if (strstr(lvn_last_error()->message, bad[i][1]) == NULL) {
            fail_msg("%s", lvn_last_error()->message);
        }
    }
    lvni_core_str_free(&found);
}
