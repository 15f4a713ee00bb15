/* lvn_image_folder_open_with: its options as a transform, and the part of the samples that is
 * wanted. */
#include "core/alloc.h"
#include "core/options_struct.h"
#include "data/dataset.h"
#include "data/image_folder.h"
#include "data/shapes.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define SHAPES "builtin:shapes"

/* A folder's images, or those that levin draws. */
typedef struct source {
    lvni_data_image_scan *scan; /* NULL: shapes */
    lvni_data_shapes_options shapes;
} source;

static void make_transform(const lvn_image_folder_options *o, bool shapes, lvni_data_transform *t)
{
    lvni_data_transform_init(t, o->resize != 0 ? o->resize : shapes ? 32 : 224);
    t->eval_resize = shapes ? t->size : t->eval_resize;
    t->scale[0] = o->min_scale != 0.0 ? o->min_scale : t->scale[0];
    t->brightness = t->contrast = t->saturation = o->color_jitter;
    t->hue = o->hue;
    t->jitter = o->jitter != 0.0 ? o->jitter : t->jitter;
    t->grey = o->grey;
    t->blur = o->blur;
    t->solarize = o->solarize;
}

static lvn_status view(const source *s, const lvni_data_views *views, const int64_t *indices,
                       int64_t n, lvn_dataset **out)
{
    return s->scan != NULL ? lvni_data_image_view_create(s->scan, indices, n, views, out)
                           : lvni_data_shapes_create(&s->shapes, indices, n, views, out);
}

static lvn_status split(const source *s, const lvni_data_views *views, int64_t *part[2],
                        int64_t n[2])
{
    static const double fifth = 0.2;
    lvn_dataset *all;
    LVN_TRY(view(s, views, NULL, 0, &all));
    const lvn_status status =
        lvni_data_split_dataset(all, fifth, 0, &part[0], &n[0], &part[1], &n[1]);
    lvn_dataset_destroy(all);
    return status;
}

static lvn_status open_part(const source *s, const lvni_data_views *views, lvn_image_part which,
                            lvn_dataset **out)
{
    int64_t *part[2] = {NULL, NULL}, n[2] = {0, 0};
    const int i = which == LVN_IMAGES_VAL;
    lvn_status status;
    if (which == LVN_IMAGES_ALL) {
        return view(s, views, NULL, 0, out);
    }
    if (s->scan != NULL && lvni_data_image_scan_count(s->scan, LVNI_PART_VAL) > 0) {
        status = lvni_data_image_scan_select(s->scan, i == 0 ? LVNI_PART_TRAIN : LVNI_PART_VAL,
                                             &part[i], &n[i]);
    } else {
        status = split(s, views, part, n);
    }
    if (status == LVN_OK) {
        status = view(s, views, part[i], n[i], out);
    }
    lvni_core_free(part[0]);
    lvni_core_free(part[1]);
    return status;
}

/* What a training can begin with; all images, as prediction takes them, may be a single one. */
static lvn_status check_path(const char *path, const lvn_image_folder_options *o)
{
    if (strncmp(path, "builtin:", 8) == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "data=%s: the only built-in set is " SHAPES, path);
    }
    struct stat info;
    if (o->part != LVN_IMAGES_ALL && stat(path, &info) != 0 &&
        (errno == ENOENT || errno == ENOTDIR)) {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "data=%s: %s; give a folder %s, or " SHAPES, path,
                 strerror(errno),
                 o->flat ? "of images" : "with one sub-folder of images per class");
    }
    return LVN_OK;
}

static lvn_status open_with(const char *path, const lvn_image_folder_options *o, lvn_dataset **out)
{
    LVN_ARG(path != NULL, "the data folder has no name");
    const bool shapes = strcmp(path, SHAPES) == 0;
    source s = {.scan = NULL, .shapes.flat = o->flat};
    lvni_data_transform t;
    LVN_TRY(lvni_core_options_enum("image_folder_open", "part", (int)o->part, LVN_IMAGES_VAL));
    make_transform(o, shapes, &t);
    if (o->no_augment) {
        lvni_data_transform_no_augment(&t);
    }
    const lvni_data_views views = lvni_data_views_make(&t, o->views == 0 ? 1 : o->views);
    LVN_TRY(lvni_data_views_check(&views, !o->flat));
    if (!shapes) {
        LVN_TRY(check_path(path, o));
        LVN_TRY(
            lvni_data_image_scan_open(path, o->flat ? LVNI_SCAN_FLAT : LVNI_SCAN_CLASSES, &s.scan));
    }
    const lvn_status status = open_part(&s, &views, o->part, out);
    lvni_data_image_scan_release(s.scan);
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
