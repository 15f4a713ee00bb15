/* The built-in set as a dataset (shapes.h). */
#include "data/shapes.h"

#include "core/alloc.h"
#include "data/shapes_outline.h"
#include "data/subset.h"

#include <string.h>

typedef struct shapes {
    lvn_dataset base;
    lvni_data_shapes_options options;
    lvni_data_subset subset;
    lvni_data_transform transform;
} shapes;

static const shapes *shapes_of(const lvn_dataset *dataset)
{
    return (const shapes *)dataset;
}

static int shapes_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const int size = shapes_of(dataset)->transform.size;
    out[0] = (lvn_field){"image", LVN_F32, 3, {size, size, 3}};
    out[1] = (lvn_field){"label", LVN_I64, 0, {0}};
    return 2;
}

static int64_t shapes_length(const lvn_dataset *dataset)
{
    return shapes_of(dataset)->subset.n;
}

static int64_t shapes_index(const lvn_dataset *dataset, int64_t position)
{
    return lvni_data_subset_at(&shapes_of(dataset)->subset, position);
}

static int64_t shapes_label(const lvn_dataset *dataset, int64_t sample)
{
    return sample % shapes_of(dataset)->options.classes;
}

static lvn_status shapes_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                             void *const field[])
{
    const shapes *s = shapes_of(dataset);
    LVN_ARG(key->sample >= 0 && key->sample < s->options.count, "sample %lld of %lld was asked for",
            (long long)key->sample, (long long)s->options.count);
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    if (scratch == NULL) {
        return LVN_ERR_MEMORY;
    }
    const int size = s->transform.size;
    LVN_TRY(lvni_data_buffer_reserve(&scratch->pixels, (size_t)size * (size_t)size * 3));
    lvni_data_shapes_draw(s->options.seed, key->sample, s->options.classes, size,
                          scratch->pixels.data);
    const lvni_data_image image = {
        .rgb = scratch->pixels.data, .width = size, .height = size, .scale = 1.0};
    const lvni_data_image_info info = {LVNI_IMAGE_PNG, size, size, 1};
    lvni_data_augment augment;
    LVN_TRY(lvni_data_augment_draw(&s->transform, key, size, size, &augment));
    LVN_TRY(lvni_data_augment_render(scratch, &s->transform, &augment, &image, &info, field[0]));
    const int64_t label = shapes_label(dataset, key->sample);
    memcpy(field[1], &label, sizeof label);
    return LVN_OK;
}

static void shapes_destroy(lvn_dataset *dataset)
{
    shapes *s = (shapes *)dataset;
    lvni_data_subset_free(&s->subset);
    lvni_core_free(s);
}

static const lvn_dataset_class shapes_class = {
    .name = "builtin:shapes",
    .fields = shapes_fields,
    .length = shapes_length,
    .get = shapes_get,
    .destroy = shapes_destroy,
    .label = shapes_label,
    .index = shapes_index,
};

void lvni_data_shapes_transform_init(lvni_data_transform *t, int size)
{
    lvni_data_transform_init(t, size);
    lvni_data_transform_no_augment(t);
    t->eval_resize = size;
}

static lvn_status check(const lvni_data_shapes_options *o)
{
    if (o->count < 1 || o->count > (int64_t)UINT32_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, "data.count is %lld; builtin:shapes has 1 to 4294967295 images",
                 (long long)o->count);
    }
    if (o->classes < LVNI_SHAPES_MIN_CLASSES || o->classes > LVNI_SHAPES_MAX_CLASSES) {
        LVN_FAIL(LVN_ERR_USAGE, "data.classes is %d; builtin:shapes has %d to %d classes",
                 o->classes, LVNI_SHAPES_MIN_CLASSES, LVNI_SHAPES_MAX_CLASSES);
    }
    return LVN_OK;
}

lvn_status lvni_data_shapes_create(const lvni_data_shapes_options *options, const int64_t *indices,
                                   int64_t n, const lvni_data_transform *transform,
                                   lvn_dataset **out)
{
    *out = NULL;
    lvni_data_shapes_options o = *options;
    o.count = o.count == 0 ? LVNI_SHAPES_DEFAULT_COUNT : o.count;
    o.classes = o.classes == 0 ? LVNI_SHAPES_DEFAULT_CLASSES : o.classes;
    LVN_TRY(check(&o));
    LVN_TRY(lvni_data_transform_check(transform));
    shapes *s = LVNI_NEW(LVNI_TAG_DATA, shapes);
    if (s == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->base = (lvn_dataset){
        .cls = &shapes_class, .n_classes = o.classes, .class_names = lvni_data_shapes_names};
    s->options = o;
    s->transform = *transform;
    const lvn_status status = lvni_data_subset_create(indices, n, o.count, &s->subset);
    if (status != LVN_OK) {
        shapes_destroy(&s->base);
        return status;
    }
    *out = &s->base;
    return LVN_OK;
}
