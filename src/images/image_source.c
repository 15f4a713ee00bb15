/* The kinds of data= (image_data.h): folders, array files, shapes. Opening reports what is wrong
 * with them; views and identities are the same for all. */
#include "images/image_data.h"

#include "control/control.h"
#include "core/alloc.h"
#include "core/error.h"
#include "data/array_set.h"
#include "data/image.h"
#include "data/image_folder.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "log/run_log.h"
#include "run/image_headers.h"
#include "run/run_dir.h"
#include "trainer/identity.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SHAPES "builtin:shapes"

static const lvni_core_option image_rows[] = {
    {.name = "data",
     .type = LVNI_OPT_PATH,
     .help = "Folder with one sub-folder of images per class (or train/, val/ and test/ with "
             "these), folder of IDX files (MNIST), .npz file, .npy file of images, or "
             "builtin:shapes. Where classes are not needed also [a,b,c.jpg], a list of folders "
             "and images.",
     .flags = LVNI_OPT_PATHS,
     .no_file = "builtin:"},
    {.name = "data.labels",
     .type = LVNI_OPT_PATH,
     .help = "Classes of a .npy file of images: a .npy or IDX file with a whole number per image; "
             "unset: labels.npy beside it."},
    LVNI_OPTION_ALIAS("labels", "data.labels"),
    {.name = "data.layout",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|classes",
     .fallback = "auto",
     .help = "classes: the folders right below data= are the classes, even where their names look "
             "like train/, val/ and test/."},
    {.name = "data.index",
     .type = LVNI_OPT_PATH,
     .flags = LVNI_OPT_LAYOUT,
     .help = "File that keeps the list of a folder's images with their sizes, for several runs; "
             "unset: data.index in the run directory."},
    {.name = "data.exif",
     .type = LVNI_OPT_CHOICE,
     .choices = "apply|ignore",
     .fallback = "apply",
     .help = "apply: images are turned by their Exif orientation; ignore: they are as stored. "
             "Of a model in use (predict, eval) it is that of its training unless it is given."},
    {.name = "data.max_pixels",
     .type = LVNI_OPT_INT,
     .unit = "pixels",
     .fallback = "178956970",
     .range = LVNI_BETWEEN(1, (double)LVNI_IMAGE_MAX_SIDE *LVNI_IMAGE_MAX_SIDE),
     .help =
         "An image that claims more is refused before memory is taken for it; decoding takes up "
         "to 14 bytes per pixel."},
    {.name = "data.count",
     .type = LVNI_OPT_INT,
     .unit = "images",
     .fallback = "2000",
     .range = LVNI_AT_LEAST(2),
     .needs = "data=builtin:shapes",
     .help = "Images of builtin:shapes. Of a model in use (predict, eval) data.count, data.classes "
             "and data.seed are those of its training unless they are given."},
    {.name = "data.classes",
     .type = LVNI_OPT_INT,
     .fallback = "6",
     .range = LVNI_BETWEEN(LVNI_SHAPES_MIN_CLASSES, LVNI_SHAPES_MAX_CLASSES),
     .needs = "data=builtin:shapes",
     .help = "Classes of builtin:shapes."},
    {.name = "data.seed",
     .type = LVNI_OPT_INT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .needs = "data=builtin:shapes",
     .help = "Another set of builtin:shapes."},
};
const lvni_core_option_table lvni_images_options = LVNI_OPTION_TABLE("data", image_rows);

/* ---- opening ---- */

/* Prediction and pretraining need no classes. */
static const char *kind_of_data(const lvni_core_config *c)
{
    return lvni_core_config_has(c, "top_k")    ? "an image, a folder of images, or a list of these"
           : lvni_core_config_has(c, "method") ? "a folder with images anywhere below it"
                                               : "a folder with one sub-folder of images per class";
}

static lvn_status need_data(const lvni_core_config *c)
{
    const char *data = lvni_core_config_str(c, "data");
    if (data == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "data= is missing: %s, or " SHAPES, kind_of_data(c));
    }
    if (strncmp(data, "builtin:", 8) == 0 && strcmp(data, SHAPES) != 0) {
        LVN_FAIL(LVN_ERR_USAGE, "data=%s: the only built-in set is " SHAPES, data);
    }
    return LVN_OK;
}

/* All entries, in one message. */
static lvn_status need_entries(const char *const *entries, size_t n)
{
    lvni_core_str mistakes = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_data_list_check(entries, n, &mistakes));
    if (mistakes.len > 0) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "data= is a list of %zu: %s", n,
                          lvni_core_str_text(&mistakes));
    }
done:
    lvni_core_str_free(&mistakes);
    return s;
}

/* A path that does not exist is a usage error: a launcher does not restart because of it. */
static lvn_status need_path(const lvni_core_config *c)
{
    struct stat info;
    size_t n;
    const char *data = lvni_core_config_str(c, "data");
    const char *const *entries = lvni_core_config_paths(c, "data", &n);
    if (n > 0) {
        return need_entries(entries, n);
    }
    if (strcmp(data, SHAPES) != 0 && stat(data, &info) != 0 &&
        (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) {
        LVN_FAIL(LVN_ERR_USAGE, "data=%s: %s; give %s", data, strerror(errno), kind_of_data(c));
    }
    return LVN_OK;
}

static lvn_status report_index(const lvni_core_config *c, bool training, const lvni_data_index *x)
{
    const char *data = lvni_core_config_str(c, "data");
    if (x->changed.len > 0) {
        lvni_log_line(LVNI_LOG_INFO, "data=%s is not as %s has it: %s; its images are listed again",
                      data, x->file, lvni_core_str_text(&x->changed));
    }
    if (x->unkept.len > 0) {
        lvni_log_line(LVNI_LOG_INFO, "data=%s: the list of its images is not kept: %s", data,
                      lvni_core_str_text(&x->unkept));
    }
    return lvni_run_report_damaged(c, training, lvni_core_str_text(&x->damaged));
}

/* Classes that the folder seems to have and that nothing can be learned about. */
static lvn_status report_empty(const lvni_core_config *c, const lvni_images_source *s)
{
    const lvni_data_image_scan *scan = s->scan;
    const char *data = lvni_core_config_str(c, "data");
    lvni_core_str text = {0};
    if (scan->n_empty > 0) {
        lvni_core_str_printf(&text, "data=%s: no image (JPEG or PNG) in the class folder%s %s",
                             data, lvni_core_plural(scan->n_empty, "", "s"),
                             lvni_core_str_text(&scan->empty));
        lvni_core_str_append(&text, scan->ignored.n > 0 ? " (ignored: " : "");
        lvni_data_ignored_print(&scan->ignored, &text);
        lvni_core_str_append(&text, scan->ignored.n > 0 ? ")" : "");
    }
    lvn_status status;
    LVNI_TRY_DONE(status, lvni_core_str_status(&text));
    if (scan->n_empty > 0 && strcmp(lvni_core_config_str(c, "on_error"), "stop") == 0) {
        status = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                               "%s; remove what is not a class, or omit it with on_error=skip",
                               lvni_core_str_text(&text));
        goto done;
    }
    if (scan->n_empty > 0) {
        lvni_log_line(LVNI_LOG_WARNING, "%s", lvni_core_str_text(&text));
    }
    lvni_core_str_clear(&text);
    LVNI_TRY_DONE(status, lvni_images_class_counts_unreadable(scan, &text));
    if (text.len > 0) { /* with on_error=skip: else the damage was refused */
        lvni_log_line(LVNI_LOG_WARNING, "data=%s: no image can be read of the classes %s", data,
                      lvni_core_str_text(&text));
    }
done:
    lvni_core_str_free(&text);
    return status;
}

static lvn_status report_foreign(const lvni_core_config *c, const lvni_data_image_scan *scan)
{
    lvni_core_str folder = {0};
    lvn_status s;
    lvni_core_str_printf(&folder, "data=%s", lvni_core_config_str(c, "data"));
    LVNI_TRY_DONE(s, lvni_core_str_status(&folder));
    s = lvni_run_report_foreign(lvni_core_str_text(&folder), scan);
done:
    lvni_core_str_free(&folder);
    return s;
}

static void report_twice(const lvni_core_config *c, const lvni_data_image_scan *scan)
{
    if (scan->n_twice > 0) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "data=%s: %lld image%s in it twice, as is %s/%s, and each time counts: omit "
                      "entries that lie in others",
                      lvni_core_config_str(c, "data"), (long long)scan->n_twice,
                      lvni_core_plural(scan->n_twice, " is", "s are"), scan->root,
                      lvni_data_image_scan_name(scan, scan->twice));
    }
}

static lvn_status open_index(const lvni_core_config *c, lvni_data_scan_mode mode, bool training,
                             lvni_data_index *x, lvni_images_source *s)
{
    const bool as_classes = strcmp(lvni_core_config_str(c, "data.layout"), "classes") == 0;
    if (as_classes && mode == LVNI_SCAN_FLAT) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data.layout=classes: this has no effect on images that are labelled, whatever "
                 "folders they are in; omit it  (%s)",
                 lvni_core_config_origin(c, "data.layout"));
    }
    const lvni_data_scan_mode how =
        as_classes ? (lvni_data_scan_mode)((unsigned)mode | LVNI_SCAN_NO_PARTS) : mode;
    size_t n;
    const char *const *entries = lvni_core_config_paths(c, "data", &n);
    LVN_TRY(n > 0 ? lvni_data_image_scan_open_list(entries, n, x, &s->scan)
                  : lvni_data_image_scan_open_indexed(lvni_core_config_str(c, "data"), how, x,
                                                      &s->scan));
    report_twice(c, s->scan);
    LVN_TRY(report_foreign(c, s->scan));
    LVN_TRY(report_index(c, training, x));
    LVN_TRY(training ? report_empty(c, s) : LVN_OK);
    s->index = x->text;
    x->text = (lvni_core_str){0};
    return LVN_OK;
}

/* ---- one list for the ranks of a node ---- */

static const char list_key[] = "images/list/%d"; /* of the rank that has it */
static const double list_wait_s = 7 * 86400.0;   /* the end of that rank ends it, too */

/* The first rank of this one's node; its own where it shares with none. */
static int first_of_node(const lvni_run_rank *r, bool *shares)
{
    const lvni_control_member *m =
        r != NULL && r->control != NULL && r->nodes == 0 ? lvni_control_members(r->control) : NULL;
    int first = -1;
    *shares = false;
    for (int i = 0; m != NULL && i < lvni_control_world(r->control); i++) {
        if (m[i].host_index == m[r->rank].host_index) {
            first = first < 0 ? i : first;
            *shares = *shares || i != r->rank;
        }
    }
    return first;
}

static lvn_status publish_list(void *user, const char *path)
{
    const lvni_run_rank *r = user;
    char key[64];
    snprintf(key, sizeof key, list_key, r->rank);
    return lvni_control_set(r->control, key, path, strlen(path));
}

/* *path is freed by the caller; NULL or "": this rank lists by itself. */
static lvn_status find_list(const lvni_run_rank *r, lvni_data_index *x, char **path)
{
    bool shares;
    char key[64];
    size_t n;
    const int first = first_of_node(r, &shares);
    *path = NULL;
    if (!shares) {
        return LVN_OK;
    }
    if (first == r->rank) {
        x->publish = publish_list;
        x->user = (void *)(uintptr_t)r;
        return LVN_OK;
    }
    snprintf(key, sizeof key, list_key, first);
    LVN_TRY(lvni_control_get(r->control, key, list_wait_s, path, &n));
    x->shared = (*path)[0] != '\0' ? *path : NULL;
    return LVN_OK;
}

static lvn_status open_folder(const lvni_core_config *c, const lvni_images_opening *how,
                              lvni_images_source *s)
{
    const char *run = how->run;
    const bool training = how->training;
    char *shared = NULL;
    const char *given = lvni_core_config_str(c, "data.index");
    lvni_core_str kept = {0};
    if (run != NULL) {
        lvni_core_str_printf(&kept, "%s/" LVNI_RUN_INDEX, run);
    }
    lvni_data_index x = {.mode = given != NULL ? LVNI_INDEX_FILE
                                 : training    ? LVNI_INDEX_KEEP
                                               : LVNI_INDEX_LOOK,
                         .file = given != NULL ? given
                                 : run != NULL ? lvni_core_str_text(&kept)
                                               : NULL};
    lvn_status status = lvni_core_str_status(&kept);
    status = status == LVN_OK ? find_list(how->rank, &x, &shared) : status;
    if (status == LVN_OK) {
        status = open_index(c, how->mode, training, &x, s);
    }
    lvni_core_free(shared);
    lvni_data_index_free(&x);
    lvni_core_str_free(&kept);
    return status;
}

static lvn_status open_kind(const lvni_core_config *c, const lvni_images_opening *how,
                            lvni_images_source *s)
{
    const lvni_data_scan_mode mode = how->mode;
    const char *data = lvni_core_config_str(c, "data"),
               *labels = lvni_core_config_str(c, "data.labels"),
               *index = lvni_core_config_str(c, "data.index");
    size_t n;
    (void)lvni_core_config_paths(c, "data", &n);
    const bool shapes = strcmp(data, SHAPES) == 0,
               file = !shapes && n == 0 && lvni_data_array_set_is_file(data);
    const bool arrays = file || (!shapes && n == 0 && lvni_data_array_set_is_folder(data));
    if (n > 0 && mode != LVNI_SCAN_FLAT) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data=%s: a list of folders and images shows no classes; give one folder with a "
                 "sub-folder per class",
                 data);
    }
    if (index != NULL && (shapes || arrays)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data.index=%s keeps the list of a folder of images, which data=%s is not: "
                 "omit data.index=",
                 index, data);
    }
    lvni_data_image_set_max_pixels(lvni_core_config_int(c, "data.max_pixels"));
    if (shapes) {
        s->shapes =
            (lvni_data_shapes_options){.count = lvni_core_config_int(c, "data.count"),
                                       .classes = (int)lvni_core_config_int(c, "data.classes"),
                                       .seed = (uint64_t)lvni_core_config_int(c, "data.seed")};
        return LVN_OK;
    }
    if (labels != NULL && !file) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "labels=%s belongs to data= a .npy or IDX file of images, which data=%s is not",
                 labels, data);
    }
    if (arrays) {
        return lvni_data_array_images_open(data, labels, mode != LVNI_SCAN_FLAT, &s->arrays);
    }
    return open_folder(c, how, s);
}

/* The value of name=NUMBER in the identity below; false: there is none. */
static bool identity_number(const char *identity, const char *name, long long *out)
{
    const char *at = strstr(identity, name);
    return at != NULL && sscanf(at + strlen(name), "%lld", out) == 1;
}

bool lvni_images_source_as_stored(const lvni_core_config *c, const bool *trained)
{
    return trained != NULL && lvni_core_config_layer(c, "data.exif") == LVNI_LAYER_DEFAULT
               ? *trained
               : strcmp(lvni_core_config_str(c, "data.exif"), "ignore") == 0;
}

void lvni_images_source_take_shapes(const lvni_core_config *c, const char *trained,
                                    lvni_images_source *s)
{
    long long n;
    if (trained == NULL || strncmp(trained, SHAPES " ", sizeof SHAPES) != 0 ||
        strcmp(lvni_core_config_str(c, "data"), SHAPES) != 0) {
        return;
    }
    if (lvni_core_config_layer(c, "data.count") == LVNI_LAYER_DEFAULT &&
        identity_number(trained, " count=", &n)) {
        s->shapes.count = n;
    }
    if (lvni_core_config_layer(c, "data.classes") == LVNI_LAYER_DEFAULT &&
        identity_number(trained, " classes=", &n)) {
        s->shapes.classes = (int)n;
    }
    if (lvni_core_config_layer(c, "data.seed") == LVNI_LAYER_DEFAULT &&
        identity_number(trained, " seed=", &n)) {
        s->shapes.seed = (uint64_t)n;
    }
}

/* The nearest folder above `path`, or itself, that is there, with no links and dots. */
static bool existing_folder(const char *path, char real[PATH_MAX])
{
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= PATH_MAX) {
        return false;
    }
    while (realpath(part, real) == NULL) {
        char *slash = strrchr(part, '/');
        if (errno != ENOENT) {
            return false;
        }
        const int above = slash == NULL ? 1 : (int)(slash - part) + (slash == part);
        snprintf(part, sizeof part, "%.*s", above, slash == NULL ? "." : path);
    }
    return true;
}

/* Beside train/ and val/ other folders are left alone; what else lies below data= is a class. */
static bool leaves_alone(const char *data)
{
    lvni_data_folder_layout layout;
    const bool found = lvni_data_folder_layout_find(data, &layout) == LVN_OK;
    const bool both = layout.name[LVNI_PART_TRAIN] != NULL && layout.name[LVNI_PART_VAL] != NULL;
    lvni_data_folder_layout_free(&layout);
    if (!found) { /* listing the folder reports what is wrong with it */
        lvn_clear_error();
    }
    return !found || both;
}

/* A new run among classes would be a class at the next start, which could then not resume. */
static lvn_status check_out_in(const lvni_core_config *c, const char *data)
{
    const char *out = lvni_core_config_str(c, "out");
    char folder[PATH_MAX], root[PATH_MAX];
    struct stat info;
    if (lvni_core_config_bool(c, "resume") || strcmp(data, SHAPES) == 0 || stat(data, &info) != 0 ||
        !S_ISDIR(info.st_mode) || lvni_data_array_set_is_folder(data) ||
        !existing_folder(out != NULL ? out : ".", folder) || realpath(data, root) == NULL) {
        return LVN_OK;
    }
    const size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(folder, root, n) == 0 && (folder[n] == '\0' || folder[n] == '/') &&
        !leaves_alone(data)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s lies inside of data=%s, where the next start would take it for a class; give "
                 "an out= beside the images",
                 out != NULL ? out : "out/, where runs without out= go,", data);
    }
    return LVN_OK;
}

static lvn_status check_out(const lvni_core_config *c)
{
    size_t n;
    const char *const *entries = lvni_core_config_paths(c, "data", &n);
    for (size_t i = 0; i < n; i++) {
        LVN_TRY(check_out_in(c, entries[i]));
    }
    return n > 0 ? LVN_OK : check_out_in(c, lvni_core_config_str(c, "data"));
}

static void name_data(const lvni_core_config *c)
{
    lvn_error_frame("data=%s (%s)", lvni_core_config_str(c, "data"),
                    lvni_core_config_origin(c, "data"));
}

lvn_status lvni_images_source_open(const lvni_core_config *c, const lvni_images_opening *how,
                                   lvni_images_source *s)
{
    *s = (lvni_images_source){0};
    LVN_TRY(need_data(c));
    lvn_status status;
    LVNI_TRY_DONE(status, need_path(c));
    LVNI_TRY_DONE(status, how->training ? check_out(c) : LVN_OK);
    status = open_kind(c, how, s);
done:
    if (status != LVN_OK) {
        lvni_images_source_close(s);
        name_data(c);
    }
    return status;
}

lvn_status lvni_images_source_check(const lvni_core_config *c)
{
    LVN_TRY(need_data(c));
    const lvn_status status = need_path(c);
    if (status != LVN_OK) {
        name_data(c);
    }
    return status;
}

lvn_status lvni_images_source_check_run(const lvni_core_config *c)
{
    LVN_TRY(lvni_images_source_check(c));
    return check_out(c);
}

void lvni_images_source_close(lvni_images_source *s)
{
    lvni_data_image_scan_release(s->scan);
    lvni_core_str_free(&s->index);
    lvni_data_array_images_release(s->arrays);
    *s = (lvni_images_source){0};
}

/* ---- use ---- */

void lvni_images_source_transform(const lvni_images_source *s, lvni_data_transform *t)
{
    if (s->scan != NULL) {
        lvni_data_transform_init(t, 224);
    } else if (s->arrays != NULL) {
        lvni_data_shapes_transform_init(
            t, s->arrays->width < s->arrays->height ? s->arrays->width : s->arrays->height);
    } else {
        lvni_data_shapes_transform_init(t, 32);
    }
}

lvn_status lvni_images_source_views(const lvni_images_source *s, const int64_t *indices, int64_t n,
                                    const lvni_data_views *views, lvn_dataset **out)
{
    if (s->scan != NULL) {
        return lvni_data_image_view_create(s->scan, indices, n, views, out);
    }
    return s->arrays != NULL ? lvni_data_array_images_view(s->arrays, indices, n, views, out)
                             : lvni_data_shapes_create(&s->shapes, indices, n, views, out);
}

lvn_status lvni_images_source_view(const lvni_images_source *s, const int64_t *indices, int64_t n,
                                   const lvni_data_transform *t, lvn_dataset **out)
{
    const lvni_data_views views = lvni_data_views_make(t, 1);
    return lvni_images_source_views(s, indices, n, &views, out);
}

bool lvni_images_source_has_parts(const lvni_images_source *s)
{
    return s->scan != NULL ? lvni_data_image_scan_count(s->scan, LVNI_PART_VAL) > 0
                           : s->arrays != NULL && s->arrays->n_parts == 2;
}

/* from, from + 1, ... */
static lvn_status count_up(int64_t from, int64_t n, int64_t **out)
{
    *out = lvni_core_alloc(LVNI_TAG_DATA, (size_t)n * sizeof **out);
    for (int64_t i = 0; *out != NULL && i < n; i++) {
        (*out)[i] = from + i;
    }
    return *out == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* What a training takes: all but a test part. These are the first in the list. */
static lvn_status view_of_training(const lvni_images_source *s, const lvni_data_transform *t,
                                   lvn_dataset **out)
{
    int64_t *first = NULL;
    const int64_t n = s->scan == NULL ? 0 : s->scan->begin[LVNI_PART_TEST];
    if (s->scan == NULL || n == s->scan->n) {
        return lvni_images_source_view(s, NULL, 0, t, out);
    }
    LVN_TRY(count_up(0, n, &first));
    const lvn_status status = lvni_images_source_view(s, first, n, t, out);
    lvni_core_free(first);
    return status;
}

lvn_status lvni_images_source_cut(const lvni_images_source *s, const lvni_data_transform *t,
                                  double val_split, uint64_t seed, int64_t *part[2], int64_t n[2])
{
    if (lvni_images_source_has_parts(s) && s->scan != NULL) {
        LVN_TRY(lvni_data_image_scan_select(s->scan, LVNI_PART_TRAIN, &part[0], &n[0]));
        return lvni_data_image_scan_select(s->scan, LVNI_PART_VAL, &part[1], &n[1]);
    }
    if (lvni_images_source_has_parts(s)) {
        n[0] = s->arrays->part[0].shape[0];
        n[1] = s->arrays->part[1].shape[0];
        LVN_TRY(count_up(0, n[0], &part[0]));
        return count_up(n[0], n[1], &part[1]);
    }
    lvn_dataset *all;
    LVN_TRY(view_of_training(s, t, &all));
    const int64_t length = all->cls->length(all);
    lvn_status status;
    LVNI_TRY_DONE(status, lvni_data_split_fits(length));
    if (length > LVNI_DATA_SHUFFLED_MAX) {
        lvni_log_line(LVNI_LOG_INFO,
                      "dividing %lld samples into training and validation, which takes minutes",
                      (long long)length);
    }
    status = lvni_data_split_dataset(all, val_split, seed, &part[0], &n[0], &part[1], &n[1]);
done:
    lvn_dataset_destroy(all);
    return status;
}

lvn_status lvni_images_source_test(const lvni_images_source *s, int64_t **part, int64_t *n)
{
    *part = NULL;
    *n = 0;
    return s->scan == NULL ? LVN_OK : lvni_data_image_scan_select(s->scan, LVNI_PART_TEST, part, n);
}

void lvni_images_source_print_ignored(const lvni_images_source *s, lvni_core_str *out)
{
    if (s->scan != NULL) {
        lvni_data_ignored_print(&s->scan->ignored, out);
    }
    if (s->scan != NULL && s->scan->layout.parts && s->scan->layout.beside.len > 0) {
        lvni_core_str_printf(out, "%sfolders beside %s: %s", s->scan->ignored.n > 0 ? "; " : "",
                             s->scan->layout.name[LVNI_PART_TRAIN] == NULL
                                 ? "the parts"
                                 : s->scan->layout.name[LVNI_PART_TRAIN],
                             lvni_core_str_text(&s->scan->layout.beside));
    }
}

/* Images in a folder are known by their names, those in array files by what they hold, shapes by
 * what they are drawn from. Frozen, word by word: exported models have it, and predict compares. */
lvn_status lvni_images_source_identify(const lvni_images_source *s, const lvni_data_transform *t,
                                       char identity[96])
{
    if (s->arrays != NULL) {
        snprintf(identity, 96, "%lld pictures in arrays %016llx", (long long)s->arrays->n,
                 (unsigned long long)s->arrays->content);
        return LVN_OK;
    }
    if (s->scan == NULL) {
        snprintf(identity, 96, SHAPES " count=%lld classes=%d seed=%llu",
                 (long long)s->shapes.count, s->shapes.classes, (unsigned long long)s->shapes.seed);
        return LVN_OK;
    }
    lvn_dataset *all;
    LVN_TRY(view_of_training(s, t, &all));
    snprintf(identity, 96, "%lld pictures %016llx", (long long)s->scan->begin[LVNI_PART_TEST],
             (unsigned long long)lvni_trainer_identity_of_data(all));
    lvn_dataset_destroy(all);
    return LVN_OK;
}

const char *lvni_images_source_identity_text(const char *identity, char out[96])
{
    static const char frozen[] = " pictures", written[] = " images";
    const char *at = strstr(identity, frozen);
    if (at == NULL) {
        snprintf(out, 96, "%s", identity);
    } else {
        snprintf(out, 96, "%.*s%s%s", (int)(at - identity), identity, written,
                 at + sizeof frozen - 1);
    }
    return out;
}

lvn_status lvni_images_source_relabel(const lvni_images_source *s, const char *const *class_names,
                                      int n_classes)
{
    if (s->scan != NULL) {
        return lvni_data_image_scan_relabel(s->scan, class_names, n_classes);
    }
    if (s->arrays != NULL) {
        return lvni_data_array_images_relabel(s->arrays, class_names, n_classes);
    }
    if (s->shapes.classes != n_classes) {
        LVN_FAIL(LVN_ERR_MISMATCH, "the model has %d class%s; give data.classes=%d", n_classes,
                 lvni_core_plural(n_classes, "", "es"), n_classes);
    }
    for (int k = 0; k < n_classes; k++) {
        if (strcmp(class_names[k], lvni_data_shapes_name(k)) != 0) {
            lvni_log_line(LVNI_LOG_WARNING,
                          "the model was trained on other classes: class %d was %s and is %s in "
                          "data=" SHAPES "; the metrics compare their numbers",
                          k, class_names[k], lvni_data_shapes_name(k));
            break;
        }
    }
    return LVN_OK;
}
