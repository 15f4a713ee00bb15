/* Which class each picture of a folder belongs to (folder_scan.h). */
#include "data/folder_scan.h"

#include "core/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *lvni_image_scan_name(const lvni_image_scan *scan, int64_t i)
{
    return scan->names + scan->name_at[i];
}

lvni_image_scan *lvni_image_scan_retain(lvni_image_scan *scan)
{
    atomic_fetch_add(&scan->references, 1);
    return scan;
}

void lvni_image_scan_release(lvni_image_scan *scan)
{
    if (scan == NULL || atomic_fetch_sub(&scan->references, 1) > 1) {
        return;
    }
    for (int i = 0; i < scan->n_classes; i++) {
        lvni_free(scan->class_names[i]);
    }
    lvni_free(scan->class_names);
    lvni_free(scan->part);
    lvni_free(scan->size);
    lvni_free(scan->label);
    lvni_free(scan->name_at);
    lvni_free(scan->names);
    lvni_free(scan->root);
    lvni_free(scan);
}

static bool folder_exists(const char *root, const char *name)
{
    char path[4096];
    struct stat st;
    const int n = snprintf(path, sizeof path, "%s/%s", root, name);
    return (size_t)n < sizeof path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The name of a sample behind `train/` or `val/`. */
static const char *name_in_part(const lvni_image_scan *scan, int64_t i)
{
    const char *name = lvni_image_scan_name(scan, i);
    return scan->has_parts ? strchr(name, '/') + 1 : name;
}

/* ---- classes ---- */

static int compare_class(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The index of the class whose name is the first `length` bytes of `name`; -1: none. */
static int class_find(const lvni_image_scan *scan, const char *name, size_t length)
{
    int low = 0, high = scan->n_classes - 1;
    while (low <= high) {
        const int middle = (low + high) / 2;
        int c = strncmp(scan->class_names[middle], name, length);
        if (c == 0 && scan->class_names[middle][length] != 0) {
            c = 1;
        }
        if (c == 0) {
            return middle;
        }
        if (c < 0) {
            low = middle + 1;
        } else {
            high = middle - 1;
        }
    }
    return -1;
}

static lvn_status class_add(lvni_image_scan *scan, const char *name, size_t length)
{
    char **grown = lvni_realloc(LVNI_TAG_DATA, scan->class_names, ((size_t)scan->n_classes + 1) * sizeof *grown);
    if (grown == NULL) {
        return LVN_ERR_MEMORY;
    }
    scan->class_names = grown;
    char *copy = lvni_alloc(LVNI_TAG_DATA, length + 1);
    if (copy == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(copy, name, length);
    copy[length] = 0;
    scan->class_names[scan->n_classes++] = copy;
    return LVN_OK;
}

/* Class names of a part (all parts for LVNI_PART_ALL). All paths of a class are neighbours in the sorted list, so the last name added tells
 * whether a class is new; but "a-b/" comes before "a/", so the names are sorted once more. */
static lvn_status classes_collect(lvni_image_scan *scan, lvni_scan_part part)
{
    for (int64_t i = 0; i < scan->n; i++) {
        if (part != LVNI_PART_ALL && scan->part[i] != part) {
            continue;
        }
        const char *name = name_in_part(scan, i);
        const size_t length = strcspn(name, "/");
        const char *last = scan->n_classes > 0 ? scan->class_names[scan->n_classes - 1] : NULL;
        if (last == NULL || strncmp(last, name, length) != 0 || last[length] != 0) {
            LVN_TRY(class_add(scan, name, length));
        }
    }
    qsort(scan->class_names, (size_t)scan->n_classes, sizeof *scan->class_names, compare_class);
    return LVN_OK;
}

/* Pictures must lie in a class folder: say how many do not, and which is the first. */
static lvn_status check_loose(const lvni_image_scan *scan)
{
    int64_t loose = 0, first = -1;
    for (int64_t i = 0; i < scan->n; i++) {
        if (strchr(name_in_part(scan, i), '/') == NULL) {
            first = loose++ == 0 ? i : first;
        }
    }
    if (loose > 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: %lld of %lld pictures lie in no class folder (the first is %s); levin needs one sub-folder per class, "
                 "such as %s/cat/1.jpg", scan->root, (long long)loose, (long long)scan->n, lvni_image_scan_name(scan, first), scan->root);
    }
    return LVN_OK;
}

static lvn_status label_all(lvni_image_scan *scan)
{
    LVN_TRY(check_loose(scan));
    LVN_TRY(classes_collect(scan, scan->has_parts ? LVNI_PART_TRAIN : LVNI_PART_ALL));
    for (int64_t i = 0; i < scan->n; i++) {
        const char *name = name_in_part(scan, i);
        const size_t length = strcspn(name, "/");
        scan->label[i] = class_find(scan, name, length);
        if (scan->label[i] < 0) {
            LVN_FAIL(LVN_ERR_USAGE, "%s: val/ has the class %.*s, which train/ does not have", scan->root, (int)length, name);
        }
    }
    return LVN_OK;
}

static lvn_status check_classes(const lvni_image_scan *scan, lvni_scan_mode mode)
{
    if (mode == LVNI_SCAN_CLASSES && scan->n_classes < 2) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: a classifier needs two or more classes, found 1: %s; add a sub-folder of pictures for each further class",
                 scan->root, scan->class_names[0]);
    }
    return LVN_OK;
}

/* ---- opening ---- */

static lvn_status take_walk(lvni_image_scan *scan, lvni_walk *walk)
{
    scan->n = walk->n;
    scan->names = walk->names;
    scan->name_at = walk->name_at;
    walk->names = NULL;
    walk->name_at = NULL;
    scan->size = walk->size;
    walk->size = NULL;
    lvni_walk_free(walk);
    scan->label = lvni_alloc(LVNI_TAG_DATA, (size_t)scan->n * sizeof *scan->label);
    scan->part = lvni_calloc(LVNI_TAG_DATA, (size_t)scan->n, 1);
    if (scan->label == NULL || scan->part == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < scan->n; i++) {
        scan->label[i] = -1;
        if (scan->has_parts) {
            scan->part[i] = lvni_image_scan_name(scan, i)[0] == 't' ? LVNI_PART_TRAIN : LVNI_PART_VAL;
        }
    }
    return LVN_OK;
}

static lvn_status walk_all(void *user, lvni_walk *walk)
{
    const lvni_image_scan *scan = user;
    if (scan->has_parts) {
        LVN_TRY(lvni_walk_watch(walk, scan->root, ""));
        LVN_TRY(lvni_walk_add(walk, scan->root, "train"));
        const int64_t n_train = walk->n;
        LVN_TRY(lvni_walk_add(walk, scan->root, "val"));
        if (n_train == 0 || walk->n == n_train) {
            LVN_FAIL(LVN_ERR_USAGE, "%s/%s: no pictures (.jpg, .jpeg, .png) in this folder or below", scan->root,
                     n_train == 0 ? "train" : "val");
        }
    } else {
        LVN_TRY(lvni_walk_add(walk, scan->root, ""));
    }
    if (walk->n == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: no pictures (.jpg, .jpeg, .png) in this folder or below", scan->root);
    }
    lvni_walk_sort(walk);
    return LVN_OK;
}

static lvn_status scan_folder(lvni_image_scan *scan, lvni_scan_mode mode, lvni_index *index)
{
    lvni_walk walk = {0};
    scan->has_parts = mode != LVNI_SCAN_FLAT && folder_exists(scan->root, "train") && folder_exists(scan->root, "val");
    const lvn_status status = lvni_folder_index_open(index, scan->root, scan->has_parts, walk_all, scan, &walk);
    if (status != LVN_OK) {
        lvni_walk_free(&walk);
        return status;
    }
    LVN_TRY(take_walk(scan, &walk));
    if (mode == LVNI_SCAN_FLAT) {
        return LVN_OK;
    }
    LVN_TRY(label_all(scan));
    return check_classes(scan, mode);
}

/* One picture: root becomes its folder, the list its name. */
static lvn_status scan_file(lvni_image_scan *scan)
{
    char *slash = strrchr(scan->root, '/');
    lvni_walk walk = {.n = 1};
    walk.names = lvni_strdup(LVNI_TAG_DATA, slash == NULL ? scan->root : slash + 1);
    walk.name_at = lvni_calloc(LVNI_TAG_DATA, 1, sizeof *walk.name_at);
    if (walk.names == NULL || walk.name_at == NULL) {
        lvni_walk_free(&walk);
        return LVN_ERR_MEMORY;
    }
    if (slash == NULL) {
        char *here = lvni_strdup(LVNI_TAG_DATA, ".");
        if (here == NULL) {
            lvni_walk_free(&walk);
            return LVN_ERR_MEMORY;
        }
        lvni_free(scan->root);
        scan->root = here;
    } else {
        *slash = 0; /* "/x.jpg" leaves an empty root, which joins to the right path */
    }
    return take_walk(scan, &walk);
}

static lvn_status scan_open(lvni_image_scan *scan, const char *folder, lvni_scan_mode mode, lvni_index *index)
{
    scan->root = lvni_strdup(LVNI_TAG_DATA, folder);
    if (scan->root == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (size_t n = strlen(scan->root); n > 1 && scan->root[n - 1] == '/'; n--) {
        scan->root[n - 1] = 0;
    }
    struct stat st;
    if (stat(folder, &st) != 0) {
        LVN_FAIL(errno == ENOENT || errno == ENOTDIR ? LVN_ERR_NOT_FOUND : LVN_ERR_IO, "data=%s: %s; give a folder with one sub-folder of pictures per class",
                 folder, strerror(errno));
    }
    if (S_ISDIR(st.st_mode)) {
        return scan_folder(scan, mode, index);
    }
    if (mode == LVNI_SCAN_FLAT) {
        return scan_file(scan);
    }
    LVN_FAIL(LVN_ERR_USAGE, "data=%s is a file; levin needs a folder with one sub-folder of pictures per class", folder);
}

lvn_status lvni_image_scan_open(const char *folder, lvni_scan_mode mode, lvni_image_scan **out)
{
    lvni_index none = {.mode = LVNI_INDEX_NONE};
    return lvni_image_scan_open_indexed(folder, mode, &none, out);
}

lvn_status lvni_image_scan_open_indexed(const char *folder, lvni_scan_mode mode, lvni_index *index, lvni_image_scan **out)
{
    *out = NULL;
    LVN_ARG(folder != NULL && folder[0] != 0, "the data folder has no name");
    lvni_image_scan *scan = LVNI_NEW(LVNI_TAG_DATA, lvni_image_scan);
    if (scan == NULL) {
        return LVN_ERR_MEMORY;
    }
    atomic_init(&scan->references, 1);
    const lvn_status status = scan_open(scan, folder, mode, index);
    if (status != LVN_OK) {
        lvni_image_scan_release(scan);
        return status;
    }
    *out = scan;
    return LVN_OK;
}

/* ---- uses ---- */

static lvn_status relabel_map(const lvni_image_scan *scan, const char *const *class_names, int n_classes, int64_t *map)
{
    for (int i = 0; i < scan->n_classes; i++) {
        map[i] = -1;
        for (int k = 0; k < n_classes; k++) {
            if (strcmp(scan->class_names[i], class_names[k]) == 0) {
                map[i] = k;
            }
        }
        if (map[i] < 0) {
            LVN_FAIL(LVN_ERR_MISMATCH, "%s has the class %s, which the model was not trained on (its %d classes: %s ... %s): rename or remove that folder", scan->root,
                     scan->class_names[i], n_classes, class_names[0], class_names[n_classes - 1]);
        }
    }
    return LVN_OK;
}

static char **names_copy(const char *const *class_names, int n)
{
    char **copy = lvni_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *copy);
    for (int i = 0; copy != NULL && i < n; i++) {
        copy[i] = lvni_strdup(LVNI_TAG_DATA, class_names[i]);
        if (copy[i] == NULL) {
            while (i-- > 0) {
                lvni_free(copy[i]);
            }
            lvni_free(copy);
            return NULL;
        }
    }
    return copy;
}

lvn_status lvni_image_scan_relabel(lvni_image_scan *scan, const char *const *class_names, int n_classes)
{
    LVN_ARG(n_classes > 0, "a model without classes cannot number those of %s", scan->root);
    int64_t *map = lvni_calloc(LVNI_TAG_DATA, (size_t)scan->n_classes, sizeof *map);
    if (map == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status status = relabel_map(scan, class_names, n_classes, map);
    char **names = status == LVN_OK ? names_copy(class_names, n_classes) : NULL;
    if (names != NULL) {
        for (int64_t i = 0; i < scan->n; i++) {
            scan->label[i] = scan->label[i] < 0 ? -1 : map[scan->label[i]];
        }
        for (int i = 0; i < scan->n_classes; i++) {
            lvni_free(scan->class_names[i]);
        }
        lvni_free(scan->class_names);
        scan->class_names = names;
        scan->n_classes = n_classes;
    } else if (status == LVN_OK) {
        status = LVN_ERR_MEMORY;
    }
    lvni_free(map);
    return status;
}

lvn_status lvni_image_scan_select(const lvni_image_scan *scan, lvni_scan_part part, int64_t **indices, int64_t *n)
{
    *indices = lvni_alloc(LVNI_TAG_DATA, (size_t)scan->n * sizeof **indices);
    *n = 0;
    if (*indices == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < scan->n; i++) {
        if (part == LVNI_PART_ALL || scan->part[i] == part) {
            (*indices)[(*n)++] = i;
        }
    }
    return LVN_OK;
}
