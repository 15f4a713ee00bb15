/* What the folders of a data set are taken for: classes or parts, in many layouts; what is ignored,
 * what is found. */
#include "core/alloc.h"
#include "data/folder_impl.h"
#include "images_support.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

enum { FILES = 10 };

/* Files that are made, and what a training (and where it differs, an evaluation) finds. */
typedef struct layout {
    const char *file[FILES];
    const char *classes;  /* "a b" */
    int train, val, test; /* images of each part; test: as an evaluation sees it */
    const char *error;    /* of a training; NULL: none */
    const char *eval_error;
    unsigned flags;
} layout;

static void make(const char *folder, const char *const *files)
{
    for (int i = 0; i < FILES && files[i] != NULL; i++) {
        const char *dot = strrchr(files[i], '.');
        if (dot != NULL && (strcmp(dot, ".txt") == 0 || strcmp(dot, ".heic") == 0)) {
            images_write_file(images_path(folder, files[i]), "RIFF", 4);
        } else {
            images_make_jpeg(images_path(folder, files[i]), 8, 8, 1);
        }
    }
}

static void expect_classes(const lvni_data_image_scan *scan, const char *classes)
{
    lvni_core_str list = {0};
    for (int i = 0; i < scan->n_classes; i++) {
        lvni_core_str_printf(&list, "%s%s", i == 0 ? "" : " ", scan->class_names[i]);
    }
    assert_string_equal(lvni_core_str_text(&list), classes);
    lvni_core_str_free(&list);
}

static void expect(const layout *l, const char *folder, bool eval)
{
    const char *error = eval ? l->eval_error : l->error;
    const unsigned mode = (eval ? LVNI_SCAN_EVAL : LVNI_SCAN_CLASSES) | l->flags;
    lvni_data_image_scan *scan;
    const lvn_status status = lvni_data_image_scan_open(folder, (lvni_data_scan_mode)mode, &scan);
    if (error != NULL) {
        assert_int_equal(status, LVN_ERR_USAGE);
        if (strstr(lvn_last_error()->message, error) == NULL) {
            fail_msg("%s: \"%s\" does not contain \"%s\"", l->file[0], lvn_last_error()->message,
                     error);
        }
        return;
    }
    if (status != LVN_OK) {
        fail_msg("%s: %s", l->file[0], lvn_last_error()->message);
    }
    expect_classes(scan, l->classes);
    assert_int_equal(lvni_data_image_scan_count(scan, LVNI_PART_TRAIN), l->train);
    assert_int_equal(lvni_data_image_scan_count(scan, LVNI_PART_VAL), l->val);
    assert_int_equal(lvni_data_image_scan_count(scan, LVNI_PART_TEST), eval ? l->test : 0);
    for (int64_t i = 0; i < scan->n; i++) { /* each in the class of its folder */
        const char *class = scan->class_names[scan->label[i]],
                   *name = lvni_data_image_scan_name(scan, i);
        const char *at = scan->layout.parts ? strchr(name, '/') + 1 : name;
        assert_true(strncmp(at, class, strlen(class)) == 0 && at[strlen(class)] == '/');
    }
    lvni_data_image_scan_release(scan);
}

#define PARTS_OR_CLASSES "parts of the data, or classes?"
#define SAME_FOLDERS "hold the same sub-folders"

static const layout layouts[] = {
    {.file = {"a/1.jpg", "b/1.jpg"}, .classes = "a b", .train = 2},
    {.file = {"train/a/1.jpg", "train/b/1.jpg", "val/a/2.jpg"},
     .classes = "a b",
     .train = 2,
     .val = 1},
    {.file = {"train/a/1.jpg", "train/b/1.jpg", "valid/a/2.jpg", "valid/b/2.jpg"},
     .classes = "a b",
     .train = 2,
     .val = 2},
    {.file = {"train/a/1.jpg", "train/b/1.jpg", "validation/b/2.jpg"},
     .classes = "a b",
     .train = 2,
     .val = 1},
    {.file = {"TRAIN/a/1.jpg", "TRAIN/b/1.jpg", "Validation/b/2.jpg", "Test/a/3.jpg"},
     .classes = "a b",
     .train = 2,
     .val = 1,
     .test = 1},
    {.file = {"train/a/1.jpg", "train/b/1.jpg", "test/b/3.jpg", "test/a/4.jpg"},
     .classes = "a b",
     .train = 2,
     .test = 2},
    {.file = {"Train/a/1.jpg", "Train/b/1.jpg"}, .classes = "a b", .train = 2},
    {.file = {"train/a/1.jpg", "train/b/1.jpg", "val/b/1.jpg", "docs/x.txt", "read.txt"},
     .classes = "a b",
     .train = 2,
     .val = 1},
    /* what a class may be called */
    {.file = {"car/1.jpg", "train/1.jpg", "plane/1.jpg"}, .classes = "car plane train", .train = 3},
    {.file = {"test tube/1.jpg", "train station/1.jpg", "valley/1.jpg"},
     .classes = "test tube train station valley",
     .train = 3},
    {.file = {"test_tube/x/1.jpg", "developer/y/1.jpg"},
     .classes = "developer test_tube",
     .train = 2},
    {.file = {"n01/images/1.jpg", "n02/images/1.jpg"}, .classes = "n01 n02", .train = 2},
    {.file = {"a/x/1.jpg", "a/y/1.jpg", "b/x/1.jpg", "b/y/1.jpg", "b/1.jpg"},
     .classes = "a b",
     .train = 5},
    {.file = {"a/x/1.jpg", "a/y/1.jpg", "b/x/1.jpg", "b/z/1.jpg"}, .classes = "a b", .train = 4},
    /* what is refused */
    {.file = {"train/a/1.jpg", "train/b/1.jpg", "dev/a/1.jpg"},
     .error = PARTS_OR_CLASSES,
     .eval_error = PARTS_OR_CLASSES},
    {.file = {"train1/a/1.jpg", "train1/b/1.jpg", "train2/a/1.jpg"},
     .error = PARTS_OR_CLASSES,
     .eval_error = PARTS_OR_CLASSES},
    {.file = {"training_set/a/1.jpg", "training_set/b/1.jpg", "test-set/a/1.jpg"},
     .error = PARTS_OR_CLASSES,
     .eval_error = PARTS_OR_CLASSES},
    {.file = {"train/a/1.jpg", "val/a/1.jpg", "valid/a/1.jpg"},
     .error = PARTS_OR_CLASSES,
     .eval_error = PARTS_OR_CLASSES},
    {.file = {"train/a/1.jpg", "Train/a/1.jpg", "val/a/1.jpg"},
     .error = PARTS_OR_CLASSES,
     .eval_error = PARTS_OR_CLASSES},
    {.file = {"train/a/1.jpg", "train/b/1.jpg", "backup/a/1.jpg"},
     .error = PARTS_OR_CLASSES,
     .eval_error = PARTS_OR_CLASSES},
    {.file = {"seg_train/seg_train/a/1.jpg", "seg_test/seg_test/a/1.jpg", "seg_pred/1.jpg"},
     .error = PARTS_OR_CLASSES,
     .eval_error = PARTS_OR_CLASSES},
    {.file = {"x/1.jpg", "Cats-Train/1.jpg", "cats-val/1.jpg", "cats-test/1.jpg"},
     .error = PARTS_OR_CLASSES,
     .eval_error = PARTS_OR_CLASSES},
    {.file = {"holdout/a/1.jpg", "fit/a/1.jpg"},
     .error = PARTS_OR_CLASSES,
     .eval_error = PARTS_OR_CLASSES},
    {.file = {"set1/a/1.jpg", "set1/b/1.jpg", "set2/A/1.jpg", "set2/b/1.jpg", "set2/c/1.jpg"},
     .error = SAME_FOLDERS,
     .eval_error = SAME_FOLDERS},
    {.file = {"cat/train/1.jpg", "cat/val/1.jpg", "dog/train/1.jpg", "dog/val/1.jpg"},
     .error = SAME_FOLDERS,
     .eval_error = SAME_FOLDERS},
    {.file = {"train/1.jpg", "train/2.jpg", "val/3.jpg"},
     .error = "3 of 3 images lie in no class folder",
     .eval_error = "lie in no class folder"},
    {.file = {"photos/a/1.jpg", "photos/b/1.jpg"},
     .error = "found 1: photos; add",
     .classes = "photos",
     .train = 2},
    {.file = {"val/a/1.jpg", "test/a/1.jpg"},
     .error = "there is val/ but no train/",
     .classes = "a",
     .val = 1,
     .test = 1},
    {.file = {"train/a/1.jpg", "train/b/1.jpg", "val/a/x.heic"},
     .error = "val: no images (JPEG or PNG) in this folder or below; ignored: 1 .heic",
     .classes = "a b",
     .train = 2},
    /* the same class in both parts */
    {.file = {"train/Cat/1.jpg", "train/dog/1.jpg", "val/cat/2.jpg"},
     .error = "val/ has the class cat, which train/ calls Cat",
     .classes = "Cat cat dog",
     .train = 2,
     .val = 1},
    {.file = {"train/a/1.jpg", "train/b/1.jpg", "val/c/2.jpg"},
     .error = "val/ has the class c, which train/ does not have",
     .classes = "a b c",
     .train = 2,
     .val = 1},
    {.file = {"train/A/1.jpg", "train/a/1.jpg", "val/a/2.jpg"},
     .classes = "A a",
     .train = 2,
     .val = 1},
    {.file = {"train/b/1.jpg", "train/c/1.jpg", "train/a/1.jpg", "val/c/1.jpg", "test/b/1.jpg"},
     .classes = "a b c",
     .train = 3,
     .val = 1,
     .test = 1},
    /* data.layout=classes */
    {.file = {"train1/a/1.jpg", "train1/b/1.jpg", "train2/a/1.jpg", "train2/b/1.jpg"},
     .classes = "train1 train2",
     .train = 4,
     .flags = LVNI_SCAN_NO_PARTS},
    {.file = {"train/a/1.jpg", "val/a/1.jpg"},
     .classes = "train val",
     .train = 2,
     .flags = LVNI_SCAN_NO_PARTS},
};

TEST(folders_are_parts_or_classes)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const char *folder = images_temp_folder();
        make(folder, layouts[i].file);
        expect(&layouts[i], folder, false);
        expect(&layouts[i], folder, true);
        images_remove_folder(folder);
    }
}

/* The samples of train/ have the same numbers however the other folders are called: they decide all
 * random draws. */
TEST(numbers_do_not_depend_on_the_names_of_parts)
{
    static const char *const names[][2] = {
        {"train", "val"}, {"train", "Valid"}, {"TRAIN", "validation"}, {"Train", "VAL"}};
    for (int i = 0; i < 4; i++) {
        const char *folder = images_temp_folder();
        char file[4][64];
        snprintf(file[0], 64, "%s/a/1.jpg", names[i][0]);
        snprintf(file[1], 64, "%s/b/2.jpg", names[i][0]);
        snprintf(file[2], 64, "%s/a/3.jpg", names[i][1]);
        snprintf(file[3], 64, "Test/a/4.jpg");
        make(folder, (const char *const[FILES]){file[0], file[1], file[2], file[3]});
        for (int eval = 0; eval < 2; eval++) {
            lvni_data_image_scan *scan;
            assert_int_equal(
                lvni_data_image_scan_open(folder, eval ? LVNI_SCAN_EVAL : LVNI_SCAN_CLASSES, &scan),
                LVN_OK);
            assert_int_equal(scan->n, 3 + eval);
            for (int k = 0; k < 3 + eval; k++) {
                assert_string_equal(lvni_data_image_scan_name(scan, k), file[k]);
            }
            lvni_data_image_scan_release(scan);
        }
        images_remove_folder(folder);
    }
}

TEST(what_is_an_image_is_found_by_its_first_bytes)
{
    const char *folder = images_temp_folder();
    static const char *const images[] = {"a/1.jfif", "a/2",     "a/3.webp", "a/4.JPG",
                                         "a/5.jpe",  "a/6.x.y", "b/1.jpg"};
    static const char *const droppings[] = {
        "__MACOSX/a/1.jpg", "@eaDir/a/1.jpg",  ".ipynb_checkpoints/1.jpg",
        "a/._1.jpg",        "a/.hidden/1.jpg", "b/@eaDir/1.jpg",
        "a/thumbs.DB"};
    static const char *const others[] = {"a/7.heic",   "a/8.heic", "b/notes.TXT", "b/README",
                                         "b/x.tar.gz", "list.txt", "a/empty"};
    for (int i = 0; i < 7; i++) {
        images_make_jpeg(images_path(folder, images[i]), 8, 8, 1);
        images_make_jpeg(images_path(folder, droppings[i]), 8, 8, 1);
        images_write_file(images_path(folder, others[i]), "RIFF", i == 6 ? 0 : 4);
    }
    for (int mode = LVNI_SCAN_CLASSES; mode <= LVNI_SCAN_EVAL; mode++) {
        lvni_data_image_scan *scan;
        lvni_core_str ignored = {0};
        assert_int_equal(lvni_data_image_scan_open(folder, (lvni_data_scan_mode)mode, &scan),
                         LVN_OK);
        assert_int_equal(scan->n, 7);
        for (int i = 0; i < 7; i++) {
            assert_string_equal(lvni_data_image_scan_name(scan, i), images[i]);
        }
        lvni_data_ignored_print(&scan->ignored, &ignored);
        assert_string_equal(lvni_core_str_text(&ignored),
                            "2 without an ending, 2 .heic, 2 .txt, 1 .gz");
        assert_int_equal(scan->n_empty, 0);
        lvni_core_str_free(&ignored);
        lvni_data_image_scan_release(scan);
    }
    images_remove_folder(folder);
}

/* Called as images are, and nothing that an image begins as: their headers are damaged. Beside its
 * copy a file is left out whatever it holds. */
TEST(damaged_images_are_known_by_their_names)
{
    const char *folder = images_temp_folder();
    static const char *const names[] = {"a/1.webp", "a/2.TIF", "a/3.bmp", "a/4.ppm", "a/5.gif"};
    images_make_jpeg(images_path(folder, "a/0.jpg"), 8, 8, 1);
    images_make_jpeg(images_path(folder, "b/0.jpg"), 8, 8, 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        images_write_file(images_path(folder, names[i]), "RIFF", i == 1 ? 0 : 4);
        assert_true(lvni_data_file_is_image(images_path(folder, names[i])));
    }
    images_write_file(images_path(folder, "a/0.webp"), "RIFF", 4);
    lvni_data_image_scan *scan;
    lvni_core_str text = {0};
    assert_int_equal(lvni_data_image_scan_open(folder, LVNI_SCAN_CLASSES, &scan), LVN_OK);
    assert_int_equal(scan->n, 7);
    lvni_data_ignored_print(&scan->ignored, &text);
    assert_string_equal(lvni_core_str_text(&text), "1 .webp");
    lvni_core_str_clear(&text);
    assert_int_equal(lvni_data_image_scan_read_headers(scan, &text), LVN_OK);
    assert_non_null(strstr(lvni_core_str_text(&text), "5 of 7 images cannot be used"));
    lvni_core_str_free(&text);
    lvni_data_image_scan_release(scan);
    images_remove_folder(folder);
}

TEST(kinds_of_ignored_files_are_bounded)
{
    lvni_data_ignored x = {0};
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "d/x.e%d", i);
        lvni_data_ignored_add(&x, name, 1 + i % 7);
    }
    lvni_data_ignored_add(&x, "a.b/none", 1);
    lvni_data_ignored_add(&x, "a.averylongending", 1);
    int64_t n = 0;
    for (int i = 0; i < x.n; i++) {
        n += x.count[i];
    }
    assert_int_equal(x.n, LVNI_IGNORED_KINDS);
    assert_int_equal(n, 2 + 14 * 28 + 1 + 2);
}

static void expect_empty(const char *folder, const char *empty, int64_t n)
{
    lvni_data_image_scan *scan;
    assert_int_equal(lvni_data_image_scan_open(folder, LVNI_SCAN_CLASSES, &scan), LVN_OK);
    assert_string_equal(lvni_core_str_text(&scan->empty), empty);
    assert_int_equal(scan->n_empty, n);
    lvni_data_image_scan_release(scan);
}

TEST(class_folders_without_an_image_are_known)
{
    const char *folder = images_temp_folder();
    make(folder, (const char *const[FILES]){"a/1.jpg", "b/deep/1.jpg", "hat/deep/x.heic"});
    expect_empty(folder, "hat", 1);
    images_remove_folder(folder);
    folder = images_temp_folder();
    make(folder, (const char *const[FILES]){"Train/a/1.jpg", "Train/b/1.jpg", "val/a/1.jpg",
                                            "val/b/x.txt", "docs/a/x.txt"});
    expect_empty(folder, "val/b", 1);
    images_remove_folder(folder);
}
