/* Views of an image folder (image_folder.h): read, decode no larger than needed, augment. `get`
 * runs on any number of threads at once; what it reuses from image to image belongs to the
 * thread (image_scratch.h). */
#include "data/image_folder.h"

#include "core/alloc.h"
#include "core/options_struct.h"
#include "data/subset.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct image_view {
    lvn_dataset base;
    lvni_data_image_scan *scan;
    lvni_data_subset subset;
    lvni_data_transform transform;
} image_view;

static const image_view *view_of(const lvn_dataset *dataset)
{
    return (const image_view *)dataset;
}

static int view_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const image_view *v = view_of(dataset);
    out[0] = (lvn_field){"image", LVN_F32, 3, {v->transform.size, v->transform.size, 3}};
    out[1] = (lvn_field){"label", LVN_I64, 0, {0}};
    return v->scan->n_classes > 0 ? 2 : 1;
}

static int64_t view_length(const lvn_dataset *dataset)
{
    return view_of(dataset)->subset.n;
}

static int64_t view_index(const lvn_dataset *dataset, int64_t position)
{
    return lvni_data_subset_at(&view_of(dataset)->subset, position);
}

static const char *view_sample_name(const lvn_dataset *dataset, int64_t sample)
{
    return lvni_data_image_scan_name(view_of(dataset)->scan, sample);
}

static int64_t view_label(const lvn_dataset *dataset, int64_t sample)
{
    return view_of(dataset)->scan->label[sample];
}

static lvn_status render(lvni_data_scratch *scratch, const image_view *v, const lvn_sample_key *key,
                         const char *path, float *out)
{
    size_t bytes;
    lvni_data_image_info info;
    lvni_data_image image;
    lvni_data_augment augment;
    LVN_TRY(lvni_data_read_file(scratch, path, &bytes));
    LVN_TRY(lvni_data_image_probe(scratch, scratch->file.data, bytes, path, &info));
    const bool swapped = info.orientation >= 5; /* looked at lying on its side */
    const int width = swapped ? info.height : info.width,
              height = swapped ? info.width : info.height;
    LVN_TRY(lvni_data_augment_draw(&v->transform, key, width, height, &augment));
    const double need = lvni_data_augment_need(&v->transform, &augment);
    const lvni_data_box wanted = lvni_data_augment_wanted(&v->transform, &augment, &info);
    LVN_TRY(lvni_data_image_decode(scratch, scratch->file.data, bytes, path, &info, need, &wanted,
                                   &image));
    return lvni_data_augment_render(scratch, &v->transform, &augment, &image, &info, out);
}

static lvn_status view_get(const lvn_dataset *dataset, const lvn_sample_key *key,
                           void *const field[])
{
    const image_view *v = view_of(dataset);
    LVN_ARG(key->sample >= 0 && key->sample < v->scan->n, "sample %lld of %lld was asked for",
            (long long)key->sample, (long long)v->scan->n);
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    if (scratch == NULL) {
        return LVN_ERR_MEMORY;
    }
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s", v->scan->root,
                           lvni_data_image_scan_name(v->scan, key->sample));
    LVN_ARG((size_t)n < sizeof path, "the path of %s is too long",
            lvni_data_image_scan_name(v->scan, key->sample));
    LVN_TRY(render(scratch, v, key, path, field[0]));
    if (v->scan->n_classes > 0) {
        memcpy(field[1], &v->scan->label[key->sample], sizeof(int64_t));
    }
    return LVN_OK;
}

static void view_destroy(lvn_dataset *dataset)
{
    image_view *v = (image_view *)dataset;
    lvni_data_image_scan_release(v->scan);
    lvni_data_subset_free(&v->subset);
    lvni_core_free(v);
}

static const lvn_dataset_class view_class = {
    .name = "image folder",
    .fields = view_fields,
    .length = view_length,
    .get = view_get,
    .destroy = view_destroy,
    .sample_name = view_sample_name,
    .label = view_label,
    .index = view_index,
};

lvn_status lvni_data_image_view_create(lvni_data_image_scan *scan, const int64_t *indices,
                                       int64_t n, const lvni_data_transform *transform,
                                       lvn_dataset **out)
{
    *out = NULL;
    LVN_TRY(lvni_data_transform_check(transform));
    image_view *v = LVNI_NEW(LVNI_TAG_DATA, image_view);
    if (v == NULL) {
        return LVN_ERR_MEMORY;
    }
    v->base = (lvn_dataset){.cls = &view_class,
                            .n_classes = scan->n_classes,
                            .class_names = (const char *const *)scan->class_names};
    v->scan = lvni_data_image_scan_retain(scan);
    v->transform = *transform;
    const lvn_status status = lvni_data_subset_create(indices, n, scan->n, &v->subset);
    if (status != LVN_OK) {
        view_destroy(&v->base);
        return status;
    }
    *out = &v->base;
    return LVN_OK;
}

/* ---- the public face ---- */

static lvn_status open_with(const char *path, const lvn_image_folder_options *o, lvn_dataset **out)
{
    lvni_data_transform t;
    lvni_data_transform_init(&t, o->resize == 0 ? 224 : o->resize);
    if (o->min_scale != 0.0) {
        t.scale[0] = o->min_scale;
    }
    t.brightness = t.contrast = t.saturation = o->color_jitter;
    if (o->no_augment) {
        lvni_data_transform_no_augment(&t);
    }
    lvni_data_image_scan *scan;
    LVN_TRY(lvni_data_transform_check(&t));
    LVN_TRY(lvni_data_image_scan_open(path, o->flat ? LVNI_SCAN_FLAT : LVNI_SCAN_CLASSES, &scan));
    const lvn_status status = lvni_data_image_view_create(scan, NULL, 0, &t, out);
    lvni_data_image_scan_release(scan);
    return status;
}

lvn_dataset *lvn_image_folder_open_with(const char *path, const lvn_image_folder_options *options)
{
    lvn_image_folder_options o;
    lvn_dataset *dataset = NULL;
    if (lvni_core_options_copy("image_folder_open", &o, sizeof o, options) != LVN_OK) {
        return NULL;
    }
    return open_with(path, &o, &dataset) == LVN_OK ? dataset : NULL;
}
