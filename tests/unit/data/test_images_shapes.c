/* The built-in set: pure, balanced, readable by a plain rule, fast. */
#include "data/dataset.h"
#include "data/shapes.h"
#include "images_support.h"
#include "support/test.h"

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
    const lvni_data_views views = lvni_data_views_make(&t, 1);
    assert_int_equal(lvni_data_shapes_create(o, NULL, 0, &views, &d), LVN_OK);
    return d;
}

TEST(a_image_depends_on_seed_number_and_size_alone)
{
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
TEST(images_never_change)
{
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

TEST(defaults_labels_and_names)
{
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
    const lvni_data_views views = lvni_data_views_make(&t, 1);
    assert_int_equal(lvni_data_shapes_create(&(lvni_data_shapes_options){0}, part, 3, &views, &d),
                     LVN_OK);
    assert_int_equal(d->cls->length(d), 3);
    assert_int_equal(lvni_data_dataset_index(d, 2), 1999);
    lvn_dataset_destroy(d);
    assert_int_equal(
        lvni_data_shapes_create(&(lvni_data_shapes_options){.classes = 11}, NULL, 0, &views, &d),
        LVN_ERR_USAGE);
    assert_non_null(strstr(lvn_last_error()->message, "data.classes is 11"));
}

/* Every outline lies in the unit circle, has an inside, and its distance never changes faster than
 * the place. */
TEST(outlines_are_distances)
{
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

AFTER_ALL()
{
    lvni_data_scratch_release();
    return 0;
}
