/* Datasets over array files (array_images.h): an image is already decoded; the rest is as with an
 * image folder. */
#include "data/array_images.h"

#include "core/alloc.h"
#include "data/subset.h"

#include <string.h>

typedef struct array_view {
    lvn_dataset base;
    lvni_data_array_images *images;
    lvni_data_subset subset;
    lvni_data_transform transform;
} array_view;

static const array_view *view_of(const lvn_dataset *dataset)
{
    return (const array_view *)dataset;
}

static int view_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const array_view *v = view_of(dataset);
    out[0] = (lvn_field){"image", LVN_F32, 3, {v->transform.size, v->transform.size, 3}};
    out[1] = (lvn_field){"label", LVN_I64, 0, {0}};
    return v->images->label != NULL ? 2 : 1;
}

static int64_t view_length(const lvn_dataset *dataset)
{
    return view_of(dataset)->subset.n;
}

static int64_t view_index(const lvn_dataset *dataset, int64_t position)
{
    return lvni_data_subset_at(&view_of(dataset)->subset, position);
}

static int64_t view_label(const lvn_dataset *dataset, int64_t sample)
{
    const array_view *v = view_of(dataset);
    return v->images->label == NULL ? -1 : v->images->label[sample];
}

/* RGB of sample i: as it lies there, or grey made three into the thread's buffer. */
static lvn_status pixels_of(lvni_data_scratch *scratch, const lvni_data_array_images *m, int64_t i,
                            const uint8_t **rgb)
{
    const int64_t first = m->part[0].shape[0];
    const size_t n = (size_t)m->width * (size_t)m->height;
    const uint8_t *p = i < first ? m->part[0].data + (size_t)i * n * (size_t)m->channels
                                 : m->part[1].data + (size_t)(i - first) * n * (size_t)m->channels;
    *rgb = p;
    if (m->channels == 3) {
        return LVN_OK;
    }
    LVN_TRY(lvni_data_buffer_reserve(&scratch->pixels, 3 * n));
    uint8_t *out = scratch->pixels.data;
    for (size_t k = 0; k < n; k++) {
        out[3 * k] = out[3 * k + 1] = out[3 * k + 2] = p[k];
    }
    *rgb = out;
    return LVN_OK;
}

static lvn_status view_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    const array_view *v = view_of(dataset);
    const lvni_data_array_images *m = v->images;
    LVN_ARG(key->sample >= 0 && key->sample < m->n, "sample %lld of %lld was asked for",
            (long long)key->sample, (long long)m->n);
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    if (scratch == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_data_image image = {.width = m->width, .height = m->height, .scale = 1.0};
    const lvni_data_image_info info = {LVNI_IMAGE_PNG, m->width, m->height, 1};
    lvni_data_augment augment;
    LVN_TRY(pixels_of(scratch, m, key->sample, &image.rgb));
    LVN_TRY(lvni_data_augment_draw(&v->transform, key, m->width, m->height, &augment));
    LVN_TRY(lvni_data_augment_render(scratch, &v->transform, &augment, &image, &info, field[0]));
    if (m->label != NULL) {
        memcpy(field[1], &m->label[key->sample], sizeof(int64_t));
    }
    return LVN_OK;
}

static void view_destroy(lvn_dataset *dataset)
{
    array_view *v = (array_view *)dataset;
    lvni_data_array_images_release(v->images);
    lvni_data_subset_free(&v->subset);
    lvni_core_free(v);
}

static const lvn_dataset_class view_class = {
    .name = "array file",
    .fields = view_fields,
    .length = view_length,
    .get = view_get,
    .destroy = view_destroy,
    .label = view_label,
    .index = view_index,
};

lvn_status lvni_data_array_images_view(lvni_data_array_images *images, const int64_t *indices,
                                       int64_t n, const lvni_data_transform *transform,
                                       lvn_dataset **out)
{
    *out = NULL;
    LVN_TRY(lvni_data_transform_check(transform));
    array_view *v = LVNI_NEW(LVNI_TAG_DATA, array_view);
    if (v == NULL) {
        return LVN_ERR_MEMORY;
    }
    v->base = (lvn_dataset){.cls = &view_class,
                            .n_classes = images->n_classes,
                            .class_names = (const char *const *)images->class_names};
    v->images = lvni_data_array_images_retain(images);
    v->transform = *transform;
    const lvn_status status = lvni_data_subset_create(indices, n, images->n, &v->subset);
    if (status != LVN_OK) {
        view_destroy(&v->base);
        return status;
    }
    *out = &v->base;
    return LVN_OK;
}
