/* The built-in set: pure, balanced, readable by a plain rule, fast; and contact sheets of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/dataset.h"
#include "data/shapes.h"
#include "report/canvas.h"
#include "report/contact_sheet.h"
#include "images_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static lvn_dataset *open_shapes(const lvni_data_shapes_options *o, int size)
{
    lvni_data_transform t;
    lvni_data_shapes_transform_init(&t, size);
    lvn_dataset *d;
    assert_int_equal(lvni_data_shapes_create(o, NULL, 0, &t, &d), LVN_OK);
    return d;
}

static void a_image_depends_on_seed_number_and_size_alone(void **state)
{
    (void)state;
    enum { N = 32 * 32 * 3 };
    uint8_t a[N], b[N];
    lvni_data_shapes_draw(1, 5, 6, 32, a);
    lvni_data_shapes_draw(1, 6, 6, 32, b);
    assert_memory_not_equal(a, b, N);
    lvni_data_shapes_draw(2, 5, 6, 32, b);
    assert_memory_not_equal(a, b, N);
    lvni_data_shapes_draw(1, 5, 6, 32, b);
    assert_memory_equal(a, b, N);
}

/* The same bytes on every machine: the hash of 100 images, fixed here. */
static void images_never_change(void **state)
{
    (void)state;
    XXH64_state_t *hash = XXH64_createState();
    XXH64_reset(hash, 0);
    uint8_t rgb[32 * 32 * 3];
    for (int i = 0; i < 100; i++) {
        lvni_data_shapes_draw(1, i, 10, 32, rgb);
        XXH64_update(hash, rgb, sizeof rgb);
    }
    assert_int_equal(XXH64_digest(hash), 0x6f37dbb85297e1beu);
    XXH64_freeState(hash);
}

static void defaults_labels_and_names(void **state)
{
    (void)state;
    lvn_dataset *d = open_shapes(&(lvni_data_shapes_options){0}, 32);
    assert_int_equal(d->cls->length(d), 2000);
    assert_int_equal(d->n_classes, 6);
    assert_string_equal(d->class_names[0], "circle");
    assert_string_equal(d->class_names[5], "ring");
    float image[32 * 32 * 3], again[32 * 32 * 3];
    int64_t label = -1;
    assert_int_equal(d->cls->get(d, &(lvn_sample_key){1, 0, 13, true}, (void *[]){image, &label}),
                     LVN_OK);
    assert_int_equal(label, 1);
    assert_int_equal(d->cls->get(d, &(lvn_sample_key){7, 5, 13, false}, (void *[]){again, &label}),
                     LVN_OK);
    assert_memory_equal(image, again, sizeof image); /* nothing random unless asked for */
    lvn_dataset_destroy(d);
    lvni_data_transform t;
    lvni_data_shapes_transform_init(&t, 32);
    const int64_t part[3] = {4, 9, 1999};
    assert_int_equal(lvni_data_shapes_create(&(lvni_data_shapes_options){0}, part, 3, &t, &d),
                     LVN_OK);
    assert_int_equal(d->cls->length(d), 3);
    assert_int_equal(lvni_data_dataset_index(d, 2), 1999);
    lvn_dataset_destroy(d);
    assert_int_equal(
        lvni_data_shapes_create(&(lvni_data_shapes_options){.classes = 11}, NULL, 0, &t, &d),
        LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "data.classes is 11"));
}

/* Every outline lies in the unit circle, has an inside, and its distance never changes faster than
 * the place. */
static void outlines_are_distances(void **state)
{
    (void)state;
    for (int shape = 0; shape < 10; shape++) {
        int inside = 0;
        for (int i = -60; i <= 60; i++) {
            for (int j = -60; j <= 60; j++) {
                const float x = (float)i / 50.0f, y = (float)j / 50.0f;
                const float d = lvni_data_shapes_distance(shape, x, y),
                            e = lvni_data_shapes_distance(shape, x + 0.02f, y);
                assert_true(fabsf(d - e) < 0.0201f);
                inside += d < 0.0f;
                assert_true(d > 0.0f || x * x + y * y < 1.02f);
            }
        }
        assert_int_in_range(inside, 1500, 6500); /* of 7854 in the unit circle */
    }
    assert_float_equal(lvni_data_shapes_distance(0, 0.0f, 0.0f), -0.85f, 1e-6f);
    assert_float_equal(lvni_data_shapes_distance(1, 1.0f, 0.0f), 0.3f, 1e-6f);
    assert_float_equal(lvni_data_shapes_distance(5, 0.7f, 0.0f), -0.2f, 1e-6f);
}

static void contact_sheets_are_png_files(void **state)
{
    (void)state;
    const char *folder = images_temp_folder(), *path = images_path(folder, "sheet.png");
    uint8_t rgb[5][32 * 32 * 3];
    lvni_report_sheet_item items[5];
    for (int i = 0; i < 5; i++) {
        lvni_data_shapes_draw(1, i, 6, 32, rgb[i]);
        items[i] = (lvni_report_sheet_item){rgb[i], (lvni_report_verdict)(i % 3), "ring",
                                            i == 0 ? NULL : "a line too long for its tile by far"};
    }
    assert_int_equal(lvni_report_contact_sheet_write(path, items, 5, 3, 32), LVN_OK);
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    size_t n;
    lvni_data_image_info info;
    lvni_data_image image;
    assert_int_equal(lvni_data_read_file(scratch, path, &n), LVN_OK);
    assert_int_equal(lvni_data_image_probe(scratch, scratch->file.data, n, path, &info), LVN_OK);
    assert_int_equal(
        lvni_data_image_decode(scratch, scratch->file.data, n, path, &info, 1.0, NULL, &image),
        LVN_OK);
    assert_int_equal(info.width, 3 * (128 + 8 + 8) + 8); /* zoom 4, frame 4, gap 8 */
    assert_int_equal(info.height, 2 * (128 + 8 + 22 + 8) + 8);
    const uint8_t green[3] = {46, 160, 67}, red[3] = {215, 58, 73};
    assert_memory_equal(image.rgb + 3 * (8 * info.width + 8 + 144), green, 3);
    assert_memory_equal(image.rgb + 3 * (8 * info.width + 8 + 288), red, 3);
    assert_memory_equal(image.rgb + 3 * (12 * info.width + 12), rgb[0], 3);
    assert_int_equal(lvni_report_contact_sheet_write("/nonexistent/x.png", items, 5, 3, 32),
                     LVN_ERR_NOT_FOUND);
    images_remove_folder(folder);
}

static void small_letters_look_like_capitals(void **state)
{
    (void)state;
    assert_ptr_equal(lvni_report_font_glyph('k'), lvni_report_font_glyph('K'));
    assert_int_equal(lvni_report_font_glyph('L')[6], 0x1f);
    assert_ptr_equal(lvni_report_font_glyph('\x01'), lvni_report_font_glyph('~'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_image_depends_on_seed_number_and_size_alone),
        cmocka_unit_test(images_never_change),
        cmocka_unit_test(defaults_labels_and_names),
        cmocka_unit_test(outlines_are_distances),
        cmocka_unit_test(contact_sheets_are_png_files),
        cmocka_unit_test(small_letters_look_like_capitals),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lvni_data_scratch_release();
    return failed;
}
