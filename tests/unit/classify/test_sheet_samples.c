/* Which images the page of `sheet=` shows. */
#include "recipes/classify/classify_sheet.h"
#include "core/alloc.h"
#include "core/vfs.h"
#include "support/test.h"

#include <string.h>
#include <unistd.h>

static void offer(lvni_classify_sheet_samples *p, int64_t sample, int64_t label, int64_t predicted,
                  float probability)
{
    const lvni_classify_sheet_sample pick = {
        .sample = sample, .label = label, .predicted = predicted, .probability = probability};
    assert_int_equal(lvni_classify_sheet_samples_offer(p, &pick), LVN_OK);
}

static void expect(const lvni_classify_sheet_samples *p, int n, const int64_t samples[])
{
    lvni_classify_sheet_sample page[LVNI_SHEET];
    assert_int_equal(lvni_classify_sheet_samples_choose(p, page), n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(page[i].sample, samples[i]);
    }
}

/* One class after the other; of each the most certain mistake first, and the first of two
 * equals. */
TEST(turns)
{
    lvni_classify_sheet_samples *p;
    assert_int_equal(lvni_classify_sheet_samples_create(3, &p), LVN_OK);
    offer(p, 0, 0, 1, 0.4f);
    offer(p, 1, 0, 1, 0.9f);
    offer(p, 2, 0, 2, 0.4f);
    offer(p, 3, 0, 0, 0.5f);
    offer(p, 4, 0, 0, 0.8f);
    offer(p, 5, 1, 1, 0.5f);
    offer(p, 6, 2, 0, 0.6f);
    offer(p, 7, 2, 0, 0.7f);
    expect(p, 8, (const int64_t[]){1, 7, 0, 6, 2, 3, 5, 4});
    lvni_classify_sheet_samples_destroy(p);
}

/* 100 mistakes of class 0, from uncertain to certain, then 5 of class 1: at most 16 are shown, and
 * right ones fill the page. */
TEST(full)
{
    lvni_classify_sheet_samples *p;
    assert_int_equal(lvni_classify_sheet_samples_create(2, &p), LVN_OK);
    for (int i = 0; i < 100; i++) {
        offer(p, i, 0, 1, (float)i / 100.0f);
    }
    for (int i = 100; i < 105; i++) {
        offer(p, i, 1, 0, 0.5f);
    }
    for (int i = 200; i < 300; i++) {
        offer(p, i, 1, 1, 0.5f);
    }
    expect(p, 32, (const int64_t[]){99,  100, 98,  101, 97,  102, 96,  103, 95,  104, 94,
                                    93,  92,  91,  90,  89,  200, 201, 202, 203, 204, 205,
                                    206, 207, 208, 209, 210, 211, 212, 213, 214, 215});
    lvni_classify_sheet_samples_destroy(p);
}

/* Where the truth is not known, all count as right, and the predicted classes take turns. */
TEST(unknown)
{
    lvni_classify_sheet_samples *p;
    assert_int_equal(lvni_classify_sheet_samples_create(2, &p), LVN_OK);
    for (int i = 0; i < 40; i++) {
        offer(p, i, -1, 1, 0.5f);
    }
    offer(p, 40, -1, 0, 0.5f);
    lvni_classify_sheet_sample page[LVNI_SHEET];
    assert_int_equal(lvni_classify_sheet_samples_choose(p, page), 32);
    assert_int_equal(page[0].sample, 40);
    assert_int_equal(page[1].sample, 0);
    assert_int_equal(page[31].sample, 30);
    const lvni_classify_sheet_sample outside = {.label = 2};
    assert_int_not_equal(lvni_classify_sheet_samples_offer(p, &outside), LVN_OK);
    lvni_classify_sheet_samples_destroy(p);
}

/* ---- the page ---- */

enum { SIDE = 8 };

static lvn_status get_grey(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    (void)dataset;
    (void)key;
    float *image = field[0];
    for (int i = 0; i < SIDE * SIDE * 3; i++) {
        image[i] = 0.5f;
    }
    return LVN_OK;
}

/* The page of one right image. */
static char *draw(const char *class_name, float probability, size_t *n)
{
    static const lvn_dataset_class grey = {.name = "grey", .get = get_grey};
    static const lvni_data_transform transform = {.size = SIDE, .std = {1.0f, 1.0f, 1.0f}};
    const lvn_dataset data = {.cls = &grey};
    const char path[] = "sheet_of_long_names.png";
    lvni_classify_sheet_samples *p;
    char *bytes;
    assert_int_equal(lvni_classify_sheet_samples_create(1, &p), LVN_OK);
    offer(p, 0, 0, 0, probability);
    assert_int_equal(lvni_classify_sheet_samples_draw(p, &data, &transform, &class_name, path),
                     LVN_OK);
    lvni_classify_sheet_samples_destroy(p);
    assert_int_equal(lvni_core_file_read(path, (size_t)1 << 20, &bytes, n), LVN_OK);
    unlink(path);
    return bytes;
}

/* However long a class's name is, the probability stands behind it, and the name loses no part of
 * a character (a half would be drawn as its bytes). */
TEST(long_names)
{
    char name[256], longer[258];
    size_t n, other;
    for (int i = 0; i < 255; i += 2) {
        memcpy(name + i, "\xc3\xa4", 2);
    }
    name[254] = '\0'; /* 127 of two bytes */
    char *low = draw(name, 0.25f, &n), *high = draw(name, 0.75f, &other);
    assert_true(n != other || memcmp(low, high, n) != 0);
    lvni_core_free(high);
    snprintf(longer, sizeof longer, "%s\xc3\xa4", name);
    high = draw(longer, 0.25f, &other);
    assert_int_equal(n, other);
    assert_memory_equal(low, high, n);
    lvni_core_free(low);
    lvni_core_free(high);
}
