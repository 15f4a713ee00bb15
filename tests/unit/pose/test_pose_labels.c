/* Files of labels and splits: what is read, and what is refused with line and column. */
#include "core/alloc.h"
#include "core/vfs.h"
#include "recipes/pose/pose_labels.h"
#include "recipes/pose/pose_split.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD "scorer,r,r,r,r\nbodyparts,nose,nose,paw,paw\ncoords,x,y,x,y\n"

static lvn_status parse(const char *text, lvni_pose_labels *out)
{
    return lvni_pose_labels_parse("labels.csv", lvni_core_strdup(LVNI_TAG_DATA, text), strlen(text),
                                  out);
}

static void assert_refused(const char *text, const char *message)
{
    lvni_pose_labels l;
    assert_int_equal(parse(text, &l), LVN_ERR_USAGE);
    if (strstr(lvn_last_error()->message, message) == NULL) {
        fail_msg("`%s` is not in `%s`", message, lvn_last_error()->message);
    }
    lvni_pose_labels_free(&l);
}

TEST(points_names_and_places_are_those_of_the_file)
{
    lvni_pose_labels l;
    assert_int_equal(parse(HEAD "d/b.png,77.25,36.5,,\nd/a.png,nan,NaN,-0.5,4e1\n", &l), LVN_OK);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.keypoint[1], "paw");
    assert_string_equal(l.image[0], "d/b.png");
    assert_true(l.xy[0] == 77.25 && l.xy[1] == 36.5 && isnan(l.xy[2]) && isnan(l.xy[3]));
    assert_true(isnan(l.xy[4]) && isnan(l.xy[5]) && l.xy[6] == -0.5 && l.xy[7] == 40);
    assert_true(l.visible == NULL && l.set == NULL);
    assert_int_equal(l.line[1], 5);
    assert_int_equal(l.column[1], 4);
    lvni_pose_labels_free(&l);
}

TEST(keypoints_are_put_into_the_order_of_names)
{
    lvni_pose_labels l;
    const char *const names[] = {"b", "c", "a"}, *const others[] = {"b", "d", "a"};
    assert_int_equal(parse("s,r,r,r,r,r,r,r,r,r\nb,a,a,a,b,b,b,c,c,c\n"
                           "c,x,y,visible,x,y,visible,x,y,visible\n"
                           "1.png,1,2,2,3,4,1,5,6,2\n2.png,,,0,7,8,2,9,10,2\n",
                           &l),
                     LVN_OK);
    assert_int_equal(lvni_pose_labels_arrange(&l, 3, others), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "no keypoint `d`"));
    assert_int_equal(lvni_pose_labels_arrange(&l, 2, names), LVN_ERR_USAGE);
    assert_string_equal(l.keypoint[0], "a"); /* as they were */
    assert_int_equal(lvni_pose_labels_arrange(&l, 3, names), LVN_OK);
    static const int8_t visible[] = {1, 2, 2, 2, 2, 0};
    static const int64_t column[] = {5, 8, 2};
    for (int k = 0; k < 3; k++) {
        assert_string_equal(l.keypoint[k], names[k]);
        assert_int_equal(l.column[k], column[k]);
    }
    assert_memory_equal(l.visible, visible, sizeof visible);
    assert_true(l.xy[2] == 5 && l.xy[3] == 6 && l.xy[4] == 1 && l.xy[5] == 2);
    assert_true(l.xy[6] == 7 && l.xy[7] == 8 && l.xy[8] == 9 && isnan(l.xy[10]));
    lvni_pose_labels_free(&l);
}

TEST(a_first_frame_without_labels_is_kept_and_empty_rows_are_not)
{
    lvni_pose_labels l;
    assert_int_equal(parse(HEAD "a.png,,,,\n,,,,\nb.png,1,2,3,4\n\n", &l), LVN_OK);
    assert_int_equal(l.n, 2);
    assert_string_equal(l.image[0], "a.png");
    assert_true(isnan(l.xy[0]) && l.xy[4] == 1);
    lvni_pose_labels_free(&l);
}

TEST(byte_order_mark_line_ends_and_quotes)
{
    lvni_pose_labels l;
    assert_int_equal(
        parse("\xEF\xBB\xBFscorer,r,r\r\nbodyparts,\"a, \"\"b\"\"\",\"a, \"\"b\"\"\"\r\n"
              "coords,x,y\r\n\"d/x y.png\" , 1 ,\"2\"\r\n\"z\nz.png\",3,4",
              &l),
        LVN_OK);
    assert_string_equal(l.keypoint[0], "a, \"b\"");
    assert_string_equal(l.image[0], "d/x y.png");
    assert_string_equal(l.image[1], "z\nz.png");
    assert_true(l.xy[0] == 1 && l.xy[1] == 2 && l.xy[2] == 3 && l.xy[3] == 4);
    lvni_pose_labels_free(&l);
}

TEST(visible_likelihood_and_set)
{
    lvni_pose_labels l;
    lvni_core_str remarks = {0};
    assert_int_equal(
        parse("scorer,r,r,r,r,set\nbodyparts,a,a,a,a,\ncoords,x,y,visible,likelihood,\n"
              "1.png,1,2,2,0.9,train\n2.png,3,4,1.0,0.5,validation\n"
              "3.png,,,1,,val\n4.png,,,,,unused\n5.png,5,6,,,test\n",
              &l),
        LVN_OK);
    static const int8_t visible[] = {2, 1, 1, 0, 2},
                        set[] = {LVNI_POSE_TRAIN, LVNI_POSE_VALIDATION, LVNI_POSE_VALIDATION,
                                 LVNI_POSE_UNUSED, LVNI_POSE_TEST};
    assert_memory_equal(l.visible, visible, sizeof visible);
    assert_memory_equal(l.set, set, sizeof set);
    assert_true(l.xy[0] == 1 && isnan(l.xy[2]) && isnan(l.xy[3]) && l.xy[8] == 5);
    lvni_pose_labels_remarks(&l, &remarks);
    assert_string_equal(lvni_core_str_text(&remarks),
                        "labels.csv: 1 point with coordinates and `visible` 0 or 1, which are not "
                        "used");
    lvni_core_str_free(&remarks);
    lvni_pose_labels_free(&l);
}

TEST(cells_that_cannot_be_are_named_with_line_and_column)
{
    assert_refused(HEAD "a.png,1,2,3,4\nb.png,1,2,3,abc\n",
                   "labels.csv:5, column 5 (paw, y): `abc` is not a number");
    assert_refused(HEAD "a.png,1,1e999,3,4\n", "labels.csv:4, column 3 (nose, y): `1e999`");
    assert_refused(HEAD "a.png,1,,3,4\n", "labels.csv:4, column 3 (nose, y): `` beside a number");
    assert_refused(HEAD "a.png,1,2,nan,4\n", "labels.csv:4, column 4 (paw, x): `nan` beside");
    assert_refused(HEAD "a.png,1,2,3\n", "labels.csv:4: 4 columns, but the header has 5");
    assert_refused(HEAD ",1,2,3,4\n", "labels.csv:4, column 1: the row has labels");
    assert_refused("s,r,r,r\nb,a,a,a\nc,x,y,visible\n1.png,1,2,3\n",
                   "labels.csv:4, column 4 (a, visible): `3` is not 0 (no label), 1 (hidden) or 2");
    assert_refused("s,r,r,set\nb,a,a,\nc,x,y,\n1.png,1,2,later\n",
                   "column 4 (, ): `later` is not train");
    assert_refused(HEAD "\"a.png,1,2,3,4\n", "labels.csv:5, column 1: a quote is opened");
    assert_refused(HEAD "\"a\".png,1,2,3,4\n", "labels.csv:4, column 1: text behind a closing");
}

TEST(headers_of_other_programs_are_explained)
{
    assert_refused("scorer,,,r,r\nbodyparts,,,a,a\ncoords,,,x,y\nlabeled-data,s,1.png,1,2\n",
                   "levin data dlc PROJECT OUT");
    assert_refused("scorer,r,r\nindividuals,m,m\nbodyparts,a,a\ncoords,x,y\n1.png,1,2\n",
                   "labels.csv:4: four header rows (`individuals`");
    assert_refused("scorer,r,r\nindividuals,m,m\nbodyparts,a,a\ncoords,x,y\n1.png,1,2\n",
                   "levin data dlc PROJECT OUT");
    assert_refused("a.png,1,2\nb.png,3,4\nc.png,5,6\n", "labels.csv:3: the third row is that of x");
    assert_refused("a.png,1,2\n", "labels.csv: 1 row, so there are no labels");
    assert_refused("", "labels.csv: 0 rows");
    assert_refused(HEAD, "labels.csv: no frame");
    assert_refused("s,r,r,r\nb,a,a,b\nc,x,y,x\n1,1,2,3\n", "column 4 (b, x): the next column");
    assert_refused("s,r,r,r\nb,a,b,b\nc,y,x,y\n1,1,2,3\n", "column 2 (a, y): a y without its x");
    assert_refused("s,r,r,r,r\nb,a,a,a,a\nc,x,y,x,y\n1,1,2,3,4\n", "the body part stands twice");
    assert_refused("s,r,r,r,r,r\nb,a,a,a,b,b\nc,x,y,visible,x,y\n1,1,2,2,3,4\n",
                   "column 5 (b, x): other body parts have a column `visible`");
    assert_refused("s,r,r\nb,a,a\nc,x,z\n1,1,2\n", "the next column must be the y");
}

TEST(a_zero_byte_is_refused)
{
    static const char wide[] = "s\0c\0";
    char *text = lvni_core_alloc(LVNI_TAG_DATA, sizeof wide);
    lvni_pose_labels l;
    memcpy(text, wide, sizeof wide);
    assert_int_equal(lvni_pose_labels_parse("w.csv", text, sizeof wide - 1, &l), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "w.csv:1: a zero byte"));
    lvni_pose_labels_free(&l);
}

TEST(twice_the_keypoints_is_answered_with_their_number)
{
    lvni_pose_labels l;
    assert_int_equal(parse(HEAD "a.png,1,2,3,4\n", &l), LVN_OK);
    assert_int_equal(lvni_pose_labels_check_count(&l, 2), LVN_OK);
    assert_int_equal(lvni_pose_labels_check_count(&l, 4), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "which counts x and y"));
    assert_non_null(strstr(lvn_last_error()->message, "use data.num_keypoints=2"));
    assert_int_equal(lvni_pose_labels_check_count(&l, 3), LVN_ERR_USAGE);
    assert_null(strstr(lvn_last_error()->message, "counts x and y"));
    lvni_pose_labels_free(&l);
}

TEST(points_outside_of_the_frame_are_named)
{
    lvni_pose_labels l;
    assert_int_equal(parse(HEAD "a.png,1,2,,\nb.png,64.5,-1,3,32\n", &l), LVN_OK);
    assert_int_equal(lvni_pose_labels_check_inside(&l, 0, 64, 32), LVN_OK);
    assert_int_equal(lvni_pose_labels_check_inside(&l, 1, 64, 32), LVN_OK);
    assert_int_equal(lvni_pose_labels_check_inside(&l, 1, 64, 30), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message,
                           "labels.csv:5, column 5 (paw, y): 32 lies outside of the frame b.png, "
                           "which has 64 x 30 pixels"));
    lvni_pose_labels_free(&l);
}

TEST(missing_images_are_counted_and_the_first_is_named)
{
    char folder[] = "/tmp/levin-pose-XXXXXX", file[64];
    lvni_pose_labels l;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/b.png", folder);
    assert_int_equal(lvni_core_file_write(file, "", 0), LVN_OK);
    assert_int_equal(parse(HEAD "b.png,,,,\na.png,1,2,3,4\nc.png,,,,\n", &l), LVN_OK);
    assert_int_equal(lvni_pose_labels_check_images(&l, folder), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "labels.csv:5: there is no image"));
    assert_non_null(strstr(lvn_last_error()->message, "a.png (2 of 3 images are missing)"));
    lvni_pose_labels_free(&l);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* Counts of the data set's own description. */
TEST(the_example_of_a_mouse)
{
    const char *base = getenv("LEVIN_TEST_DATA");
    char path[512];
    lvni_pose_labels l;
    snprintf(path, sizeof path, "%s/mirror-mouse-example/CollectedData.csv",
             base != NULL ? base : LEVIN_SOURCE_DIR "/../shared/data");
    if (!lvni_core_path_exists(path)) {
        printf("no %s\n", path);
        skip();
    }
    static const int missing[] = {2, 2, 0, 2, 8, 12, 0, 35, 0, 0, 0, 1, 0, 1, 0, 36, 35};
    int found[17] = {0}, frames = 0;
    assert_int_equal(lvni_pose_labels_read(path, &l), LVN_OK);
    assert_int_equal(l.n, 90);
    assert_int_equal(l.k, 17);
    assert_string_equal(l.keypoint[16], "obsLow_bot");
    for (int64_t i = 0; i < l.n; i++) {
        bool any = false;
        for (int k = 0; k < l.k; k++) {
            const bool none = isnan(l.xy[(i * l.k + k) * 2]);
            found[k] += none;
            any = any || none;
        }
        frames += any;
        assert_int_equal(lvni_pose_labels_check_inside(&l, i, 396, 406), LVN_OK);
    }
    assert_memory_equal(found, missing, sizeof missing);
    assert_int_equal(frames, 48);
    *strrchr(path, '/') = '\0';
    assert_int_equal(lvni_pose_labels_check_images(&l, path), LVN_OK);
    lvni_pose_labels_free(&l);
}

/* ---- splits ---- */

static void assert_split(int64_t n, double train, double validation, double frames,
                         const int64_t expected[LVNI_POSE_SETS])
{
    int8_t set[128];
    int64_t count[LVNI_POSE_SETS];
    assert_int_equal(lvni_pose_split(n, train, validation, frames, 0, set), LVN_OK);
    lvni_pose_split_count(set, n, count);
    assert_memory_equal(count, expected, sizeof count);
}

TEST(sizes_of_a_split)
{
    assert_split(90, 0.8, 0.1, 1, (int64_t[]){72, 9, 9, 0});
    assert_split(90, 0.95, 0.05, 1, (int64_t[]){86, 4, 0, 0});
    assert_split(10, 0.95, 0.05, 1, (int64_t[]){9, 1, 0, 0});
    assert_split(20, 0.8, 0.1, 1, (int64_t[]){18, 2, 0, 0});
    assert_split(50, 0.8, 0.1, 1, (int64_t[]){40, 5, 5, 0});
    assert_split(2, 0.95, 0.05, 1, (int64_t[]){1, 1, 0, 0});
    assert_split(90, 0.8, 0.1, 10, (int64_t[]){10, 9, 9, 62});
    assert_split(90, 0.8, 0.1, 0.5, (int64_t[]){36, 9, 9, 36});
    assert_split(90, 0.8, 0.1, 1000, (int64_t[]){72, 9, 9, 0});
}

TEST(splits_that_cannot_be)
{
    int8_t set[4];
    assert_int_equal(lvni_pose_split(1, 0.95, 0.05, 1, 0, set), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "label more frames"));
    assert_int_equal(lvni_pose_split(4, 0.95, 0.05, 0, 0, set), LVN_ERR_USAGE);
    assert_int_equal(lvni_pose_split(4, 0.95, 0.05, 0.1, 0, set), LVN_ERR_USAGE);
    assert_int_equal(lvni_pose_split(4, 0.95, 0.1, 1, 0, set), LVN_ERR_USAGE);
}

/* Another permutation would move frames of trained models between the sets. */
TEST(the_seed_alone_draws_the_split)
{
    int8_t set[12], again[12];
    static const int8_t expected[12] = {2, 1, 2, 3, 3, 2, 2, 1, 2, 0, 2, 0};
    assert_int_equal(lvni_pose_split(12, 0.4, 0.2, 0.6, 42, set), LVN_OK);
    assert_int_equal(lvni_pose_split(12, 0.4, 0.2, 0.6, 42, again), LVN_OK);
    assert_memory_equal(set, again, sizeof set);
    assert_memory_equal(set, expected, sizeof set);
    assert_int_equal(lvni_pose_split(12, 0.4, 0.2, 0.6, 43, again), LVN_OK);
    assert_memory_not_equal(set, again, sizeof set);
}

static lvn_status read_split(const char *text, int8_t *set)
{
    char path[] = "/tmp/levin-pose-split-XXXXXX";
    lvni_pose_labels l;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(lvni_core_file_write(path, text, strlen(text)), LVN_OK);
    assert_int_equal(parse(HEAD "a.png,,,,\nb.png,,,,\nc.png,,,,\n", &l), LVN_OK);
    const lvn_status status = lvni_pose_split_read(path, &l, set);
    lvni_pose_labels_free(&l);
    assert_int_equal(unlink(path), 0);
    return status;
}

TEST(a_split_from_a_file)
{
    static const int8_t expected[] = {LVNI_POSE_VALIDATION, LVNI_POSE_TRAIN, LVNI_POSE_TEST};
    static const char *const same[] = {
        "c.png,test\nb.png,train\na.png,val\n",
        "set,image\ntest,c.png\nunused,x.png\ntrain,b.png\nvalidation,a.png\n",
        "scorer,m,m,m,set\nbodyparts,n,n,n,\ncoords,x,y,likelihood,\na.png,1,2,.5,validation\n"
        "b.png,1,2,.5,train\nc.png,1,2,.5,test\n"};
    int8_t set[3];
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_int_equal(read_split(same[i], set), LVN_OK);
        assert_memory_equal(set, expected, sizeof set);
    }
}

TEST(a_split_file_that_cannot_be)
{
    static const char *const wrong[][2] = {
        {"a.png,train\nb.png,val\n", "no set for 1 of 3 frames of labels.csv, the first of them c"},
        {"a.png,train\nb.png,maybe\nc.png,val\n", ":2, column 2 (set): `maybe`"},
        {"a.png,train\nb.png,test\nc.png,test\n", "1 training and 0 validation frames"},
        {"a.png,train\nb.png,val\na.png,val\nc.png,val\n", "a.png is in two sets"},
        {"image,part\na.png,train\n", ":1: no column `set`"},
        {"", "the file is empty"}};
    int8_t set[3];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(read_split(wrong[i][0], set), LVN_ERR_USAGE);
        if (strstr(lvn_last_error()->message, wrong[i][1]) == NULL) {
            fail_msg("`%s` is not in `%s`", wrong[i][1], lvn_last_error()->message);
        }
    }
}

TEST(sets_without_a_label)
{
    static const int8_t both[] = {LVNI_POSE_TRAIN, LVNI_POSE_TEST, LVNI_POSE_VALIDATION},
                        first[] = {LVNI_POSE_TRAIN, LVNI_POSE_VALIDATION, LVNI_POSE_TEST},
                        second[] = {LVNI_POSE_VALIDATION, LVNI_POSE_TRAIN, LVNI_POSE_TRAIN},
                        third[] = {LVNI_POSE_VALIDATION, LVNI_POSE_TRAIN, LVNI_POSE_UNUSED};
    lvni_pose_labels l;
    assert_int_equal(parse(HEAD "a.png,1,2,,\nb.png,,,,\nc.png,,,3,4\n", &l), LVN_OK);
    assert_int_equal(lvni_pose_split_check(&l, both), LVN_OK);
    assert_int_equal(lvni_pose_split_check(&l, second), LVN_OK);
    assert_int_equal(lvni_pose_split_check(&l, first), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "in the 1 validation frame;"));
    assert_int_equal(lvni_pose_split_check(&l, third), LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "in the 1 train frame;"));
    lvni_pose_labels_free(&l);
}

TEST(every_allocation_may_fail)
{
    static const char text[] =
        "s,r,r,r,set\nb,a,a,a,\nc,x,y,visible,\n1.png,1,2,2,train\n2.png,3,4,0,test\n";
    lvni_pose_labels l;
    for (int64_t k = 1;; k++) {
        char *copy = lvni_core_strdup(LVNI_TAG_DATA, text);
        (void)lvni_core_alloc_fail_at(k);
        const lvn_status status = lvni_pose_labels_parse("f.csv", copy, sizeof text - 1, &l);
        const int64_t left = lvni_core_alloc_fail_at(0);
        lvni_pose_labels_free(&l);
        if (left > 0) {
            assert_int_equal(status, LVN_OK);
            assert_true(k > 10);
            return;
        }
        assert_int_equal(status, LVN_ERR_MEMORY);
    }
}
