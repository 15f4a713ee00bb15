/* The list of a folder, part by part, and the datasets over it (image_folder.h). A sample is read,
 * decoded no larger than needed, and augmented; `get` runs on any number of threads at once, and
 * what it reuses from image to image belongs to the thread (image.h). */
#include "data/image_folder.h"

#include "core/alloc.h"
#include "core/hash.h"
#include "data/dataset.h"
#include "data/folder_impl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the scan ---- */

const char *lvni_data_image_scan_name(const lvni_data_image_scan *scan, int64_t i)
{
    return scan->names + scan->name_at[i];
}

lvni_data_image_scan *lvni_data_image_scan_retain(lvni_data_image_scan *scan)
{
    atomic_fetch_add(&scan->references, 1);
    return scan;
}

void lvni_data_image_scan_release(lvni_data_image_scan *scan)
{
    if (scan == NULL || atomic_fetch_sub(&scan->references, 1) > 1) {
        return;
    }
    for (int i = 0; i < scan->n_classes; i++) {
        lvni_core_free(scan->class_names[i]);
    }
    lvni_core_free(scan->class_names);
    lvni_data_folder_layout_free(&scan->layout);
    lvni_core_str_free(&scan->empty);
    lvni_core_free(scan->label);
    if (scan->map.base == NULL) {
        lvni_core_free(scan->size);
        lvni_core_free(scan->name_at);
        lvni_core_free(scan->names);
    }
    lvni_data_map_free(&scan->map);
    for (size_t i = 0; i < scan->n_entries; i++) {
        lvni_core_free(scan->entry[i]);
    }
    lvni_core_free(scan->entry);
    lvni_core_free(scan->root);
    lvni_core_free(scan);
}

/* ---- opening ---- */

/* The walk keeps what labelling reads: names and folders, which it may not own any more. */
static void take_walk(lvni_data_image_scan *scan, lvni_data_walk *walk)
{
    scan->n = walk->n;
    scan->names = walk->names;
    scan->name_at = walk->name_at;
    scan->size = walk->size;
    scan->map = walk->map;
    scan->ignored = walk->ignored;
    scan->foreign = walk->foreign;
    walk->name_at = NULL;
    walk->size = NULL;
    walk->map = (lvni_data_map){0};
}

/* What the scan has not taken. */
static void close_walk(const lvni_data_image_scan *scan, lvni_data_walk *walk)
{
    walk->names = scan->names == NULL ? walk->names : NULL;
    walk->folders = scan->map.base == NULL ? walk->folders : NULL;
    lvni_data_walk_free(walk);
}

/* Of a list that is in the order of the parts. */
static void find_parts(lvni_data_image_scan *scan)
{
    int64_t i = 0;
    for (int part = 0; part < LVNI_PARTS; part++) {
        const char *name = scan->layout.name[part];
        const size_t n = name == NULL ? 0 : strlen(name);
        scan->begin[part] = i;
        while (i < scan->n &&
               (!scan->layout.parts ||
                (n > 0 && strncmp(lvni_data_image_scan_name(scan, i), name, n) == 0 &&
                 lvni_data_image_scan_name(scan, i)[n] == '/'))) {
            i++;
        }
    }
    scan->begin[LVNI_PARTS] = i;
}

static lvn_status no_images(const char *root, const char *part, const lvni_data_walk *walk)
{
    lvni_core_str ignored = {0};
    lvni_data_ignored_print(&walk->ignored, &ignored);
    for (int k = LVNI_FOREIGN_NONE + 1; k < LVNI_FOREIGN_KINDS; k++) {
        if (walk->foreign.n[k] > 0) {
            lvni_core_str_append(&ignored, "; ");
            lvni_data_foreign_print((lvni_data_foreign)k, walk->foreign.n[k], &root, 1, &ignored);
        }
    }
    lvn_status s = lvni_core_str_status(&ignored);
    if (s == LVN_OK) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "%s%s%s: no images (JPEG or PNG) in this folder or below%s%s", root,
                          part[0] == '\0' ? "" : "/", part, ignored.len > 0 ? "; ignored: " : "",
                          lvni_core_str_text(&ignored));
    }
    lvni_core_str_free(&ignored);
    return s;
}

typedef struct listing {
    const lvni_data_image_scan *scan;
    lvni_data_scan_mode mode;
} listing;

static lvn_status walk_parts(const listing *l, lvni_data_walk *walk)
{
    const lvni_data_folder_layout *layout = &l->scan->layout;
    LVN_TRY(lvni_data_walk_watch(walk, l->scan->root, ""));
    for (int part = 0; part < LVNI_PARTS; part++) {
        const char *name = layout->name[part];
        const int64_t first = walk->n;
        if (name == NULL || (part == LVNI_PART_TEST && l->mode != LVNI_SCAN_EVAL)) {
            continue;
        }
        LVN_TRY(lvni_data_walk_add(walk, l->scan->root, name));
        lvni_data_walk_sort(walk, first);
        if (walk->n == first && l->mode == LVNI_SCAN_CLASSES) {
            return no_images(l->scan->root, name, walk);
        }
    }
    lvni_data_ignored_merge(&walk->ignored, &layout->files);
    return LVN_OK;
}

static lvn_status walk_all(void *user, lvni_data_walk *walk)
{
    const listing *l = user;
    if (l->scan->layout.parts) {
        LVN_TRY(walk_parts(l, walk));
    } else {
        LVN_TRY(lvni_data_walk_add(walk, l->scan->root, ""));
        lvni_data_walk_sort(walk, 0);
    }
    return walk->n == 0 ? no_images(l->scan->root, "", walk) : LVN_OK;
}

static lvn_status find_layout(lvni_data_image_scan *scan, lvni_data_scan_mode mode)
{
    LVN_TRY(lvni_data_folder_layout_find(scan->root, &scan->layout));
    if (scan->layout.parts && mode == LVNI_SCAN_CLASSES &&
        scan->layout.name[LVNI_PART_TRAIN] == NULL) {
        const char *val = scan->layout.name[LVNI_PART_VAL];
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: there is %s/ but no train/ to train on; if %s is a class, give "
                 "data.layout=classes",
                 scan->root, val != NULL ? val : scan->layout.name[LVNI_PART_TEST],
                 val != NULL ? val : scan->layout.name[LVNI_PART_TEST]);
    }
    return LVN_OK;
}

/* Lists of one folder that must not be taken for each other. */
enum { LIST_ALL, LIST_TRAINING, LIST_PARTS, LIST_SEVERAL };

static lvn_status use_walk(lvni_data_image_scan *scan, lvni_data_scan_mode mode, bool as_classes,
                           lvni_data_walk *walk)
{
    const bool classes = mode != LVNI_SCAN_FLAT;
    LVN_TRY(classes && !scan->layout.parts && !as_classes
                ? lvni_data_folder_check_nested(scan->root, walk)
                : LVN_OK);
    take_walk(scan, walk);
    find_parts(scan);
    if (!classes) {
        return LVN_OK;
    }
    scan->label = lvni_core_calloc(LVNI_TAG_DATA, (size_t)scan->n, sizeof *scan->label);
    LVN_TRY(scan->label == NULL ? LVN_ERR_MEMORY : LVN_OK);
    return lvni_data_image_scan_label(scan, mode, walk);
}

static lvn_status scan_folder(lvni_data_image_scan *scan, lvni_data_scan_mode mode,
                              lvni_data_index *index)
{
    lvni_data_walk walk = {0};
    const bool as_classes = (mode & LVNI_SCAN_NO_PARTS) != 0;
    const lvni_data_scan_mode kind = (lvni_data_scan_mode)(mode & ~(unsigned)LVNI_SCAN_NO_PARTS);
    listing l = {.scan = scan, .mode = kind};
    LVN_TRY(kind == LVNI_SCAN_FLAT || as_classes ? LVN_OK : find_layout(scan, kind));
    const int list = !scan->layout.parts ? LIST_ALL
                     : kind == LVNI_SCAN_EVAL && scan->layout.name[LVNI_PART_TEST] != NULL
                         ? LIST_PARTS
                         : LIST_TRAINING;
    const lvni_data_listing what = {.root = scan->root, .kind = list, .walk = walk_all, .user = &l};
    lvn_status status = lvni_data_folder_index_open(index, &what, &walk);
    if (status == LVN_OK) {
        status = use_walk(scan, kind, as_classes, &walk);
    }
    close_walk(scan, &walk);
    return status;
}

static lvn_status walk_list(void *user, lvni_data_walk *walk)
{
    return lvni_data_list_walk(user, walk);
}

/* In a sorted list they are neighbours. */
static void find_twice(lvni_data_image_scan *scan)
{
    for (int64_t i = 1; i < scan->n; i++) {
        if (strcmp(lvni_data_image_scan_name(scan, i), lvni_data_image_scan_name(scan, i - 1)) ==
            0) {
            scan->twice = scan->n_twice++ == 0 ? i : scan->twice;
        }
    }
}

static lvn_status scan_list(lvni_data_image_scan *scan, lvni_data_list *list,
                            lvni_data_index *index)
{
    lvni_data_walk walk = {0};
    const lvni_data_listing what = {
        .root = list->root, .kind = LIST_SEVERAL, .list = list, .walk = walk_list, .user = list};
    lvn_status s = lvni_data_folder_index_open(index, &what, &walk);
    s = s == LVN_OK ? use_walk(scan, LVNI_SCAN_FLAT, false, &walk) : s;
    close_walk(scan, &walk);
    scan->root = list->root;
    scan->entry = list->entry;
    scan->n_entries = list->n;
    *list = (lvni_data_list){0};
    find_twice(scan);
    return s;
}

/* One image: root becomes its folder, the list its name. */
static lvn_status scan_file(lvni_data_image_scan *scan)
{
    char *slash = strrchr(scan->root, '/');
    lvni_data_walk walk = {.n = 1};
    walk.names = lvni_core_strdup(LVNI_TAG_DATA, slash == NULL ? scan->root : slash + 1);
    walk.name_at = lvni_core_calloc(LVNI_TAG_DATA, 1, sizeof *walk.name_at);
    if (walk.names == NULL || walk.name_at == NULL) {
        lvni_data_walk_free(&walk);
        return LVN_ERR_MEMORY;
    }
    if (slash == NULL) {
        char *here = lvni_core_strdup(LVNI_TAG_DATA, ".");
        if (here == NULL) {
            lvni_data_walk_free(&walk);
            return LVN_ERR_MEMORY;
        }
        lvni_core_free(scan->root);
        scan->root = here;
    } else {
        *slash = 0; /* "/x.jpg" leaves an empty root, which joins to the right path */
    }
    take_walk(scan, &walk);
    find_parts(scan);
    return LVN_OK;
}

static lvn_status scan_open(lvni_data_image_scan *scan, const char *folder,
                            lvni_data_scan_mode mode, lvni_data_index *index)
{
    scan->root = lvni_core_strdup(LVNI_TAG_DATA, folder);
    if (scan->root == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (size_t n = strlen(scan->root); n > 1 && scan->root[n - 1] == '/'; n--) {
        scan->root[n - 1] = 0;
    }
    struct stat st;
    if (stat(folder, &st) != 0) {
        LVN_FAIL(errno == ENOENT || errno == ENOTDIR ? LVN_ERR_NOT_FOUND : LVN_ERR_IO,
                 "data=%s: %s; give a folder %s", folder, strerror(errno),
                 mode == LVNI_SCAN_FLAT ? "of images, or one image"
                                        : "with one sub-folder of images per class");
    }
    if (S_ISDIR(st.st_mode)) {
        return scan_folder(scan, mode, index);
    }
    if (mode == LVNI_SCAN_FLAT) {
        return scan_file(scan);
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "data=%s is a %s; levin needs a folder with one sub-folder of images per class",
             folder, S_ISREG(st.st_mode) ? "file" : "pipe or device");
}

lvn_status lvni_data_image_scan_open(const char *folder, lvni_data_scan_mode mode,
                                     lvni_data_image_scan **out)
{
    lvni_data_index none = {.mode = LVNI_INDEX_NONE};
    return lvni_data_image_scan_open_indexed(folder, mode, &none, out);
}

lvn_status lvni_data_image_scan_open_indexed(const char *folder, lvni_data_scan_mode mode,
                                             lvni_data_index *index, lvni_data_image_scan **out)
{
    *out = NULL;
    LVN_ARG(folder != NULL && folder[0] != 0, "the data folder has no name");
    lvni_data_image_scan *scan = LVNI_NEW(LVNI_TAG_DATA, lvni_data_image_scan);
    if (scan == NULL) {
        return LVN_ERR_MEMORY;
    }
    atomic_init(&scan->references, 1);
    const lvn_status status = scan_open(scan, folder, mode, index);
    if (status != LVN_OK) {
        lvni_data_image_scan_release(scan);
        return status;
    }
    *out = scan;
    return LVN_OK;
}

lvn_status lvni_data_image_scan_open_list(const char *const *entries, size_t n,
                                          lvni_data_index *index, lvni_data_image_scan **out)
{
    lvni_data_list list;
    *out = NULL;
    LVN_ARG(n > 0, "the list of folders is empty");
    LVN_TRY(lvni_data_list_find(entries, n, &list));
    lvni_data_image_scan *scan = LVNI_NEW(LVNI_TAG_DATA, lvni_data_image_scan);
    if (scan == NULL) {
        lvni_data_list_free(&list);
        return LVN_ERR_MEMORY;
    }
    atomic_init(&scan->references, 1);
    const lvn_status s = scan_list(scan, &list, index);
    if (s != LVN_OK) {
        lvni_data_image_scan_release(scan);
        return s;
    }
    *out = scan;
    return LVN_OK;
}

/* ---- uses ---- */

void lvni_data_image_scan_print_foreign(const lvni_data_image_scan *scan, lvni_data_foreign kind,
                                        lvni_core_str *out)
{
    const char *const root = scan->root;
    const bool several = scan->n_entries > 0;
    lvni_data_foreign_print(kind, scan->foreign.n[kind],
                            several ? (const char *const *)scan->entry : &root,
                            several ? scan->n_entries : 1, out);
}

uint64_t lvni_data_image_scan_files(const lvni_data_image_scan *scan)
{
    uint64_t h = LVNI_CORE_HASH;
    for (int64_t i = 0; scan->size != NULL && i < scan->begin[LVNI_PART_TEST]; i++) {
        const int64_t bytes = scan->size[i].bytes;
        h = lvni_core_hash(h, &bytes, sizeof bytes);
        h = lvni_core_hash(h, &scan->size[i].begin, sizeof scan->size[i].begin);
    }
    return scan->size == NULL ? 0 : h;
}

/* all: as many as the scan has images. */
static lvn_status read_headers(lvni_data_image_scan *scan, lvni_data_header *all,
                               lvni_core_str *damaged)
{
    lvni_data_walk counts = {.n = scan->n, .foreign = scan->foreign};
    lvni_data_damage damage = {0};
    const lvn_status s =
        lvni_data_headers_read(scan->root, scan->names, scan->name_at, scan->n, all, &damage);
    const lvn_status reported = lvni_data_damage_report(&damage, &counts, damaged);
    LVN_TRY(s);
    LVN_TRY(reported);
    scan->size = lvni_core_alloc(LVNI_TAG_DATA, (size_t)scan->n * sizeof *scan->size);
    LVN_TRY(scan->size == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (int64_t i = 0; i < scan->n; i++) {
        scan->size[i] = lvni_data_header_size(&all[i]);
    }
    scan->foreign = counts.foreign;
    return LVN_OK;
}

lvn_status lvni_data_image_scan_read_headers(lvni_data_image_scan *scan, lvni_core_str *damaged)
{
    if (scan->size != NULL) {
        return LVN_OK;
    }
    lvni_data_header *all = lvni_core_calloc(LVNI_TAG_DATA, (size_t)scan->n, sizeof *all);
    LVN_TRY(all == NULL ? LVN_ERR_MEMORY : LVN_OK);
    const lvn_status s = read_headers(scan, all, damaged);
    lvni_core_free(all);
    return s;
}

bool lvni_data_image_scan_is_same(const lvni_data_image_scan *a, const lvni_data_image_scan *b)
{
    bool same = strcmp(a->root, b->root) == 0 && a->n == b->n;
    for (int64_t i = 0; same && i < a->n; i++) {
        same = strcmp(lvni_data_image_scan_name(a, i), lvni_data_image_scan_name(b, i)) == 0;
    }
    return same;
}

lvn_status lvni_data_image_scan_copy_headers(lvni_data_image_scan *to,
                                             const lvni_data_image_scan *from)
{
    if (to->size != NULL || from->size == NULL) {
        return LVN_OK;
    }
    to->size = lvni_core_alloc(LVNI_TAG_DATA, (size_t)to->n * sizeof *to->size);
    LVN_TRY(to->size == NULL ? LVN_ERR_MEMORY : LVN_OK);
    memcpy(to->size, from->size, (size_t)to->n * sizeof *to->size);
    return LVN_OK;
}

int64_t lvni_data_image_scan_count(const lvni_data_image_scan *scan, lvni_data_scan_part part)
{
    return part == LVNI_PART_ALL ? scan->n : scan->begin[part + 1] - scan->begin[part];
}

lvn_status lvni_data_image_scan_select(const lvni_data_image_scan *scan, lvni_data_scan_part part,
                                       int64_t **indices, int64_t *n)
{
    const int64_t first = part == LVNI_PART_ALL ? 0 : scan->begin[part];
    *n = lvni_data_image_scan_count(scan, part);
    *indices = lvni_core_alloc(LVNI_TAG_DATA, (size_t)*n * sizeof **indices);
    for (int64_t i = 0; *indices != NULL && i < *n; i++) {
        (*indices)[i] = first + i;
    }
    return *indices == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* ---- the dataset ---- */

typedef struct image_view {
    lvn_dataset base;
    lvni_data_image_scan *scan;
    lvni_data_subset subset;
    lvni_data_views views;
} image_view;

static const image_view *view_of(const lvn_dataset *dataset)
{
    return (const image_view *)dataset;
}

static int view_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const image_view *v = view_of(dataset);
    return lvni_data_views_fields(&v->views, v->scan->n_classes > 0, out);
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
    const lvni_data_image_scan *scan = view_of(dataset)->scan;
    return scan->label == NULL ? -1 : scan->label[sample];
}

/* All views come from one decoded image, which is as large as the one that needs the most. */
static lvn_status render(lvni_data_scratch *scratch, const image_view *v, const lvn_sample_key *key,
                         const char *path, void *const field[])
{
    size_t bytes;
    lvni_data_image_info info;
    lvni_data_image image;
    lvni_data_views_drawn drawn;
    LVN_TRY(lvni_data_read_file(scratch, path, &bytes));
    LVN_TRY(lvni_data_image_probe(scratch, scratch->file.data, bytes, path, &info));
    info.deep = v->views.view[0].deep;
    info.orientation = v->views.view[0].as_stored ? 1 : info.orientation;
    LVN_TRY(lvni_data_views_draw(&v->views, key, &info, &drawn));
    LVN_TRY(lvni_data_image_decode_channels(scratch, scratch->file.data, bytes, path, &info,
                                            lvni_data_views_channels(&v->views), drawn.need,
                                            &drawn.wanted, &image));
    return lvni_data_views_render(scratch, &v->views, &drawn, &image, &info, v->scan->n_classes > 0,
                                  field);
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
    LVN_TRY(render(scratch, v, key, path, field));
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
                                       int64_t n, const lvni_data_views *views, lvn_dataset **out)
{
    *out = NULL;
    LVN_TRY(lvni_data_views_check(views, scan->n_classes > 0));
    image_view *v = LVNI_NEW(LVNI_TAG_DATA, image_view);
    if (v == NULL) {
        return LVN_ERR_MEMORY;
    }
    v->base = (lvn_dataset){.cls = &view_class,
                            .n_classes = scan->n_classes,
                            .class_names = (const char *const *)scan->class_names};
    v->scan = lvni_data_image_scan_retain(scan);
    v->views = *views;
    const lvn_status status = lvni_data_subset_create(indices, n, scan->n, &v->subset);
    if (status != LVN_OK) {
        view_destroy(&v->base);
        return status;
    }
    *out = &v->base;
    return LVN_OK;
}

lvni_data_image_scan *lvni_data_image_view_scan(const lvn_dataset *dataset)
{
    return dataset->cls == &view_class ? view_of(dataset)->scan : NULL;
}

bool lvni_data_image_view_is_damaged(const lvn_dataset *dataset, int64_t sample)
{
    const lvni_data_image_scan *scan = lvni_data_image_view_scan(dataset);
    return scan != NULL && scan->size != NULL && scan->size[sample].width == 0;
}
