/* augmentations.png: which images of a sample it shows, and where. */
#include "core/alloc.h"
#include "data/image.h"
#include "log/loggers.h"
#include "support/test.h"
#include "trainer/logging_impl.h"

#include <ftw.h>
#include <stdlib.h>
#include <string.h>

/* Two views of 6 x 5 in one field, three of 4 x 4 in the next, one in a field that is larger: pixel
 * 0 is 0, the others are the number of the view in another channel. */
enum { H = 6, W = 5, SMALL = 4, SAMPLES = 3, VIEWS = 5 };

static int stack_fields(const lvn_dataset *d, lvn_field out[LVN_MAX_FIELDS])
{
    (void)d;
    out[0] = (lvn_field){"image", LVN_F32, 4, {2, H, W, 3}};
    out[1] = (lvn_field){"label", LVN_I64, 0, {0}};
    out[2] = (lvn_field){"image2", LVN_F32, 4, {3, SMALL, SMALL, 3}};
    out[3] = (lvn_field){"image3", LVN_F32, 4, {1, H + 1, W, 3}};
    return 4;
}

static int64_t stack_length(const lvn_dataset *d)
{
    (void)d;
    return SAMPLES;
}

static void fill(float *rgb, int pixels, int view)
{
    for (int i = 3; i < 3 * pixels; i++) {
        rgb[i] = i % 3 == view % 3 ? 1.0F : 0.0F;
    }
    rgb[0] = rgb[1] = rgb[2] = 0.0F;
}

static lvn_status stack_get(const lvn_dataset *d, const lvn_sample_key *key, void *const field[])
{
    (void)d;
    (void)key;
    for (int v = 0; v < 2; v++) {
        fill((float *)field[0] + (ptrdiff_t)v * H * W * 3, H * W, v);
    }
    for (int v = 0; v < 3; v++) {
        fill((float *)field[2] + (ptrdiff_t)v * SMALL * SMALL * 3, SMALL * SMALL, v + 2);
    }
    fill(field[3], (H + 1) * W, 0);
    *(int64_t *)field[1] = 0;
    return LVN_OK;
}

static const lvn_dataset_class stack_class = {
    .name = "stack", .fields = stack_fields, .length = stack_length, .get = stack_get};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

TEST(each_view_of_a_stack_has_a_tile)
{
    char folder[] = "/tmp/levin-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    const lvn_dataset data = {.cls = &stack_class};
    const lvni_trainer_options o = {.train = &data, .out = folder};
    const char *const names[] = {"tensorboard"};
    const lvni_log_loggers_options lo = {.dir = folder, .names = names, .n_names = 1};
    lvni_trainer_logging logging = {.o = &o};
    assert_int_equal(lvni_log_loggers_open(&lo, &logging.loggers), LVN_OK);
    assert_int_equal(lvni_trainer_logging_samples(&logging), LVN_OK);
    lvni_log_loggers_close(logging.loggers, LVNI_LOG_FINISHED);
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    lvni_data_image_info info;
    lvni_data_image image;
    size_t n;
    snprintf(path, sizeof path, "%s/augmentations.png", folder);
    assert_int_equal(lvni_data_read_file(scratch, path, &n), LVN_OK);
    assert_int_equal(lvni_data_png_probe(scratch->file.data, n, path, &info), LVN_OK);
    assert_int_equal(
        lvni_data_png_decode(scratch, scratch->file.data, n, path, &info, false, &image), LVN_OK);
    assert_int_equal(image.width, VIEWS * (W + 2) - 2);
    assert_int_equal(image.height, SAMPLES * (H + 2) - 2);
    for (int y = 0; y < image.height; y++) {
        for (int x = 0; x < image.width; x++) {
            const int v = x / (W + 2), inside_x = x % (W + 2), inside_y = y % (H + 2);
            const bool inside = inside_x < (v < 2 ? W : SMALL) && inside_y < (v < 2 ? H : SMALL);
            for (int c = 0; c < 3; c++) {
                const bool light = inside && inside_x + inside_y > 0 && c == v % 3;
                assert_int_equal(image.rgb[3 * (y * image.width + x) + c], light ? 255 : 0);
            }
        }
    }
    lvni_data_scratch_release();
    assert_int_equal(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}
