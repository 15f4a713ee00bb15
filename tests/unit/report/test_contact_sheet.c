/* Contact sheets: PNG files with frames and tiles where they belong; and the font. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/shapes.h"
#include "report/canvas.h"
#include "report/contact_sheet.h"
#include "unit/data/images_support.h"

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
        cmocka_unit_test(contact_sheets_are_png_files),
        cmocka_unit_test(small_letters_look_like_capitals),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lvni_data_scratch_release();
    return failed;
}
