/* Images and labels of array files, and the dataset over them (array_images.h). Images are already
 * decoded; all else is as with an image folder. */
#include "data/array_images.h"

#include "core/alloc.h"
#include "data/array_set.h"
#include "data/dataset.h"
#include "data/image.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- images ---- */

static lvn_status check_images(lvni_data_array_images *m, const lvni_data_array *a,
                               const char *path)
{
    char text[192];
    const bool grey = a->ndim == 3,
               channels = a->ndim == 4 && (a->shape[3] == 1 || a->shape[3] == 3);
    if ((!grey && !channels) || a->type != LVNI_ARRAY_U8 || a->fortran) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s holds %s of %s%s; images are uint8 of (N, height, width), (N, height, "
                 "width, 1) or (N, height, width, 3), in row-major order%s",
                 path, lvni_data_array_shape_text(a, text), lvni_data_array_type_name(a->type),
                 a->fortran ? " in column order" : "",
                 a->type >= LVNI_ARRAY_F16
                     ? "; or give levin predict output=NAME.npy for plain logits"
                     : "");
    }
    if (a->count == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s holds no images: %s", path,
                 lvni_data_array_shape_text(a, text));
    }
    LVN_TRY(lvni_data_image_check_size(path, a->shape[2], a->shape[1]));
    const int width = (int)a->shape[2], height = (int)a->shape[1],
              depth = grey ? 1 : (int)a->shape[3];
    if (m->n > 0 && (m->width != width || m->height != height || m->channels != depth)) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "%s: images of %d x %d x %d, the training images are %d x %d x %d", path, width,
                 height, depth, m->width, m->height, m->channels);
    }
    m->width = width;
    m->height = height;
    m->channels = depth;
    m->n += a->shape[0];
    m->content ^= XXH3_64bits_withSeed(a->data, (size_t)a->count, (XXH64_hash_t)m->n_parts);
    m->n_parts++;
    return LVN_OK;
}

/* ---- labels ---- */

/* One per image of part `p`, behind those of the part before; (N, 1) is as good as (N). */
static lvn_status read_labels(lvni_data_array_images *m, int p, const lvni_data_array *a,
                              const char *path)
{
    const int64_t from = p == 0 ? 0 : m->part[0].shape[0], n = m->part[p].shape[0];
    lvn_status s = LVN_OK;
    if (a->ndim < 1 || a->shape[0] != n || a->count != n) {
        char text[192];
        s = lvn_error_set(LVN_ERR_MISMATCH, __FILE__, __LINE__,
                          "%s holds %s labels for %lld image%s: one number per image is needed",
                          path, lvni_data_array_shape_text(a, text), (long long)n,
                          lvni_core_plural(n, "", "s"));
    } else {
        s = lvni_data_array_read_i64(a, 0, n, m->label + from);
        if (s == LVN_ERR_DTYPE) {
            s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                              "%s holds %s; labels are whole numbers from 0 on", path,
                              lvni_data_array_type_name(a->type));
        }
    }
    LVN_TRY(s);
    for (int64_t i = from; i < from + n; i++) {
        if (m->label[i] < 0 || m->label[i] >= LVNI_ARRAY_MAX_CLASSES) {
            LVN_FAIL(LVN_ERR_USAGE, "%s: label %lld of image %lld is not a number from 0 to %d",
                     path, (long long)m->label[i], (long long)(i - from),
                     LVNI_ARRAY_MAX_CLASSES - 1);
        }
        if (p > 0 && m->label[i] >= m->n_classes) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s: image %lld has the class %lld, which the training images do not have",
                     path, (long long)(i - from), (long long)m->label[i]);
        }
        m->n_classes = (int)m->label[i] >= m->n_classes ? (int)m->label[i] + 1 : m->n_classes;
    }
    return LVN_OK;
}

static lvn_status name_classes(lvni_data_array_images *m, const char *path)
{
    if (m->n_classes < 2) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: a classifier needs two or more classes; all labels are 0",
                 path);
    }
    m->content ^= XXH3_64bits_withSeed(m->label, (size_t)m->n * sizeof *m->label, 2);
    m->class_names = lvni_core_calloc(LVNI_TAG_DATA, (size_t)m->n_classes, sizeof *m->class_names);
    for (int i = 0; m->class_names != NULL && i < m->n_classes; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        m->class_names[i] = lvni_core_strdup(LVNI_TAG_DATA, name);
        if (m->class_names[i] == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    return m->class_names == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static void put_gap(int from, int to, lvni_core_str *out)
{
    lvni_core_str_printf(out, "%s%d", out->len > 0 ? ", " : "", from);
    if (to > from) {
        lvni_core_str_printf(out, "%s%d", to > from + 1 ? " to " : ", ", to);
    }
}

lvn_status lvni_data_array_images_print_gaps(const lvni_data_array_images *m, lvni_core_str *out)
{
    if (m->label == NULL) {
        return LVN_OK;
    }
    bool *has = lvni_core_calloc(LVNI_TAG_DATA, (size_t)m->n_classes, sizeof *has);
    if (has == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < m->n; i++) {
        has[m->label[i]] = true;
    }
    for (int i = 0; i < m->n_classes; i++) {
        const int from = i;
        while (i < m->n_classes && !has[i]) {
            i++;
        }
        if (i > from) {
            put_gap(from, i - 1, out);
        }
    }
    lvni_core_free(has);
    return lvni_core_str_status(out);
}

/* ---- opening ---- */

/* The images are this set's from now on. */
static lvn_status take_set(lvni_data_array_images *m, lvni_data_array_set *set, bool with_labels)
{
    for (int p = 0; p < set->n; p++) {
        m->part[p] = set->part[p].images;
        set->part[p].images = (lvni_data_array){0};
        LVN_TRY(check_images(m, &m->part[p], set->part[p].images_name));
    }
    if (!with_labels) {
        return LVN_OK;
    }
    m->label = lvni_core_calloc(LVNI_TAG_DATA, (size_t)m->n, sizeof *m->label);
    if (m->label == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int p = 0; p < set->n; p++) {
        LVN_TRY(read_labels(m, p, &set->part[p].labels, set->part[p].labels_name));
    }
    return name_classes(m, set->part[0].labels_name);
}

static lvn_status open_set(lvni_data_array_images *m, const char *path, const char *labels,
                           bool with_labels)
{
    lvni_data_array_set *set = LVNI_NEW(LVNI_TAG_DATA, lvni_data_array_set);
    if (set == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s = lvni_data_array_set_open(path, labels, with_labels, set);
    if (s == LVN_OK) {
        s = take_set(m, set, with_labels);
    }
    lvni_data_array_set_free(set);
    lvni_core_free(set);
    return s;
}

lvn_status lvni_data_array_images_open(const char *path, const char *labels, bool with_labels,
                                       lvni_data_array_images **out)
{
    *out = NULL;
    lvni_data_array_images *m = LVNI_NEW(LVNI_TAG_DATA, lvni_data_array_images);
    if (m == NULL) {
        return LVN_ERR_MEMORY;
    }
    atomic_init(&m->references, 1);
    const lvn_status s = open_set(m, path, labels, with_labels);
    if (s != LVN_OK) {
        lvni_data_array_images_release(m);
        return s;
    }
    *out = m;
    return LVN_OK;
}

lvni_data_array_images *lvni_data_array_images_retain(lvni_data_array_images *m)
{
    atomic_fetch_add(&m->references, 1);
    return m;
}

static void free_names(lvni_data_array_images *m)
{
    for (int i = 0; m->class_names != NULL && i < m->n_classes; i++) {
        lvni_core_free(m->class_names[i]);
    }
    lvni_core_free(m->class_names);
}

void lvni_data_array_images_release(lvni_data_array_images *m)
{
    if (m == NULL || atomic_fetch_sub(&m->references, 1) > 1) {
        return;
    }
    free_names(m);
    lvni_core_free(m->label);
    lvni_data_array_free(&m->part[0]);
    lvni_data_array_free(&m->part[1]);
    lvni_core_free(m);
}

/* ---- the classes of a model ---- */

static lvn_status relabel_all(const lvni_data_array_images *m, const char *const *class_names,
                              int n_classes, int *map)
{
    for (int i = 0; i < m->n_classes; i++) {
        map[i] = -1;
        for (int k = 0; k < n_classes; k++) {
            map[i] = strcmp(m->class_names[i], class_names[k]) == 0 ? k : map[i];
        }
    }
    for (int64_t i = 0; i < m->n; i++) {
        if (map[m->label[i]] < 0) {
            LVN_FAIL(LVN_ERR_MISMATCH,
                     "image %lld has the class %s, which the model was not trained on (its %d "
                     "class%s: %s ... %s)",
                     (long long)i, m->class_names[m->label[i]], n_classes,
                     lvni_core_plural(n_classes, "", "es"), class_names[0],
                     class_names[n_classes - 1]);
        }
    }
    for (int64_t i = 0; i < m->n; i++) {
        m->label[i] = map[m->label[i]];
    }
    return LVN_OK;
}

lvn_status lvni_data_array_images_relabel(lvni_data_array_images *m, const char *const *class_names,
                                          int n_classes)
{
    LVN_ARG(m->label != NULL && n_classes > 0,
            "classes of a model for images without labels, or a model without classes");
    int *map = lvni_core_calloc(LVNI_TAG_DATA, (size_t)m->n_classes, sizeof *map);
    char **names = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n_classes, sizeof *names);
    lvn_status s = map == NULL || names == NULL ? LVN_ERR_MEMORY : LVN_OK;
    for (int k = 0; s == LVN_OK && k < n_classes; k++) {
        names[k] = lvni_core_strdup(LVNI_TAG_DATA, class_names[k]);
        s = names[k] == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    if (s == LVN_OK) {
        s = relabel_all(m, class_names, n_classes, map);
    }
    lvni_core_free(map);
    if (names != NULL) { /* the old names go, or, after a failure, the new ones */
        lvni_data_array_images gone = {.class_names = s == LVN_OK ? m->class_names : names,
                                       .n_classes = s == LVN_OK ? m->n_classes : n_classes};
        if (s == LVN_OK) {
            m->class_names = names;
            m->n_classes = n_classes;
        }
        free_names(&gone);
    }
    return s;
}

/* ---- the dataset ---- */

typedef struct array_view {
    lvn_dataset base;
    lvni_data_array_images *images;
    lvni_data_subset subset;
    lvni_data_views views;
} array_view;

static const array_view *view_of(const lvn_dataset *dataset)
{
    return (const array_view *)dataset;
}

static int view_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const array_view *v = view_of(dataset);
    return lvni_data_views_fields(&v->views, v->images->label != NULL, out);
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

/* Where the pixels of image i begin. */
static const uint8_t *pixels_of(const lvni_data_array_images *m, int64_t i)
{
    const int64_t first = m->part[0].shape[0];
    const size_t n = (size_t)m->width * (size_t)m->height * (size_t)m->channels;
    return i < first ? m->part[0].data + (size_t)i * n : m->part[1].data + (size_t)(i - first) * n;
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
    lvni_data_views_drawn drawn;
    lvni_data_image image = {.rgb = pixels_of(m, key->sample),
                             .channels = m->channels,
                             .width = m->width,
                             .height = m->height,
                             .scale = 1.0};
    const lvni_data_image_info info = {
        .format = LVNI_IMAGE_PNG, .width = m->width, .height = m->height, .orientation = 1};
    LVN_TRY(lvni_data_image_convert(scratch, lvni_data_views_channels(&v->views), &image));
    LVN_TRY(lvni_data_views_draw(&v->views, key, &info, &drawn));
    LVN_TRY(
        lvni_data_views_render(scratch, &v->views, &drawn, &image, &info, m->label != NULL, field));
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
                                       int64_t n, const lvni_data_views *views, lvn_dataset **out)
{
    *out = NULL;
    LVN_TRY(lvni_data_views_check(views, images->label != NULL));
    array_view *v = LVNI_NEW(LVNI_TAG_DATA, array_view);
    if (v == NULL) {
        return LVN_ERR_MEMORY;
    }
    v->base = (lvn_dataset){.cls = &view_class,
                            .n_classes = images->n_classes,
                            .class_names = (const char *const *)images->class_names};
    v->images = lvni_data_array_images_retain(images);
    v->views = *views;
    const lvn_status status = lvni_data_subset_create(indices, n, images->n, &v->subset);
    if (status != LVN_OK) {
        view_destroy(&v->base);
        return status;
    }
    *out = &v->base;
    return LVN_OK;
}
