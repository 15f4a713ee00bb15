/* Which class each image of a folder belongs to (folder_impl.h). Called by image_folder.c;
 * relabelled by the recipes. */
#include "data/folder_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The part of a sample. */
static int part_of(const lvni_data_image_scan *scan, int64_t i)
{
    return i < scan->begin[LVNI_PART_VAL]    ? LVNI_PART_TRAIN
           : i < scan->begin[LVNI_PART_TEST] ? LVNI_PART_VAL
                                             : LVNI_PART_TEST;
}

/* The name of a sample, or of a folder, behind its part. */
static const char *behind_part(const lvni_data_image_scan *scan, const char *name)
{
    const char *slash = scan->layout.parts ? strchr(name, '/') : NULL;
    return slash == NULL ? name : slash + 1;
}

static const char *name_in_part(const lvni_data_image_scan *scan, int64_t i)
{
    return behind_part(scan, lvni_data_image_scan_name(scan, i));
}

static int compare_class(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The index of the class whose name is the first `length` bytes of `name`; -1: none. */
static int class_find(const lvni_data_image_scan *scan, const char *name, size_t length)
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

static lvn_status class_add(lvni_data_image_scan *scan, const char *name, size_t length)
{
    char **grown = lvni_core_realloc(LVNI_TAG_DATA, scan->class_names,
                                     ((size_t)scan->n_classes + 1) * sizeof *grown);
    if (grown == NULL) {
        return LVN_ERR_MEMORY;
    }
    scan->class_names = grown;
    char *copy = lvni_core_alloc(LVNI_TAG_DATA, length + 1);
    if (copy == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(copy, name, length);
    copy[length] = 0;
    scan->class_names[scan->n_classes++] = copy;
    return LVN_OK;
}

/* Class names of the samples before `end`. All paths of a class are neighbours in a part's sorted
 * list, so the last name added shows whether a class is new; but "a-b/" comes before "a/", so the
 * names are sorted once more, and several parts have the same. */
static lvn_status classes_collect(lvni_data_image_scan *scan, int64_t end)
{
    for (int64_t i = 0; i < end; i++) {
        const char *name = name_in_part(scan, i);
        const size_t length = strcspn(name, "/");
        const char *last = scan->n_classes > 0 ? scan->class_names[scan->n_classes - 1] : NULL;
        if (last == NULL || strncmp(last, name, length) != 0 || last[length] != 0) {
            LVN_TRY(class_add(scan, name, length));
        }
    }
    if (scan->n_classes == 0) {
        return LVN_OK;
    }
    qsort(scan->class_names, (size_t)scan->n_classes, sizeof *scan->class_names, compare_class);
    int n = 1;
    for (int i = 1; i < scan->n_classes; i++) {
        if (strcmp(scan->class_names[i], scan->class_names[n - 1]) == 0) {
            lvni_core_free(scan->class_names[i]);
        } else {
            scan->class_names[n++] = scan->class_names[i];
        }
    }
    scan->n_classes = n;
    return LVN_OK;
}

/* Images must lie in a class folder: the error gives how many do not, and the first. */
static lvn_status check_loose(const lvni_data_image_scan *scan)
{
    int64_t loose = 0, first = -1;
    for (int64_t i = 0; i < scan->n; i++) {
        if (strchr(name_in_part(scan, i), '/') == NULL) {
            first = loose++ == 0 ? i : first;
        }
    }
    if (loose > 0) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "%s: %lld of %lld image%s lie in no class folder (the first is %s); levin needs "
            "one sub-folder per class, "
            "such as %s/cat/1.jpg%s",
            scan->root, (long long)loose, (long long)scan->n, lvni_core_plural(scan->n, "", "s"),
            lvni_data_image_scan_name(scan, first), scan->root,
            scan->layout.parts ? "; if train, val or test are classes, give data.layout=classes"
                               : "");
    }
    return LVN_OK;
}

/* The class that differs from a name in the case of letters alone; NULL: none. */
static const char *other_case(const char *const *classes, int n, const char *name, size_t length)
{
    for (int i = 0; i < n; i++) {
        if (strncasecmp(classes[i], name, length) == 0 && classes[i][length] == '\0') {
            return classes[i];
        }
    }
    return NULL;
}

static lvn_status refuse_class(const lvni_data_image_scan *scan, int64_t i, const char *name,
                               size_t length)
{
    const char *const *part = (const char *const *)scan->layout.name,
                      *mine = part[part_of(scan, i)];
    const char *like =
        other_case((const char *const *)scan->class_names, scan->n_classes, name, length);
    if (like != NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: %s/ has the class %.*s, which %s/ calls %s: rename one of the two",
                 scan->root, mine, (int)length, name, part[LVNI_PART_TRAIN], like);
    }
    LVN_FAIL(LVN_ERR_USAGE, "%s: %s/ has the class %.*s, which %s/ does not have", scan->root, mine,
             (int)length, name, part[LVNI_PART_TRAIN]);
}

static lvn_status label_all(lvni_data_image_scan *scan, lvni_data_scan_mode mode)
{
    LVN_TRY(check_loose(scan));
    LVN_TRY(classes_collect(scan, mode == LVNI_SCAN_EVAL ? scan->n : scan->begin[LVNI_PART_VAL]));
    for (int64_t i = 0; i < scan->n; i++) {
        const char *name = name_in_part(scan, i);
        const size_t length = strcspn(name, "/");
        scan->label[i] = class_find(scan, name, length);
        if (scan->label[i] < 0) {
            return refuse_class(scan, i, name, length);
        }
    }
    return LVN_OK;
}

/* The class that a folder stands for: "" when it lies deeper, or higher. */
static const char *class_of_folder(const lvni_data_image_scan *scan, const char *folder)
{
    const char *name = behind_part(scan, folder);
    return (scan->layout.parts && name == folder) || strchr(name, '/') != NULL ? "" : name;
}

/* Class folders in which there is no image: not even one that cannot be read. */
static lvn_status find_empty(lvni_data_image_scan *scan, const lvni_data_walk *walk)
{
    enum { SHOWN = 8 };
    bool *seen =
        lvni_core_calloc(LVNI_TAG_DATA, (size_t)scan->n_classes * LVNI_PARTS + 1, sizeof *seen);
    for (int64_t i = 0; seen != NULL && i < scan->n; i++) {
        seen[part_of(scan, i) * scan->n_classes + scan->label[i]] = true;
    }
    for (int64_t i = 0; seen != NULL && i < walk->n_folders; i++) {
        const char *folder = walk->names + walk->folders[i].name_at,
                   *name = class_of_folder(scan, folder), *val = scan->layout.name[LVNI_PART_VAL];
        const size_t n = val == NULL ? 0 : strlen(val);
        const int part =
            scan->layout.parts && n > 0 && strncmp(folder, val, n) == 0 && folder[n] == '/'
                ? LVNI_PART_VAL
                : LVNI_PART_TRAIN;
        const int label = name[0] == '\0' ? -1 : class_find(scan, name, strlen(name));
        if (name[0] != '\0' && (label < 0 || !seen[part * scan->n_classes + label]) &&
            scan->n_empty++ < SHOWN) {
            lvni_core_str_printf(&scan->empty, "%s%s", scan->n_empty == 1 ? "" : ", ", folder);
        }
    }
    if (scan->n_empty > SHOWN) {
        lvni_core_str_printf(&scan->empty, ", and %lld more", (long long)scan->n_empty - SHOWN);
    }
    const lvn_status s = seen == NULL ? LVN_ERR_MEMORY : lvni_core_str_status(&scan->empty);
    lvni_core_free(seen);
    return s;
}

/* Classes have printable names from here on, the same in models, tables and messages, whatever
 * bytes the folders are called by. Their order stays that of the bytes. */
static lvn_status name_classes(lvni_data_image_scan *scan)
{
    for (int i = 0; i < scan->n_classes; i++) {
        const char *bytes = scan->class_names[i];
        lvni_core_str s = {0};
        lvni_core_str_escape(&s, bytes, strlen(bytes), LVNI_ESCAPE_NAME);
        char *name = lvni_core_str_take(&s);
        if (name == NULL) {
            return LVN_ERR_MEMORY;
        }
        lvni_core_free(scan->class_names[i]);
        scan->class_names[i] = name;
    }
    return LVN_OK;
}

static lvn_status check_number(const lvni_data_image_scan *scan, lvni_data_scan_mode mode)
{
    if (mode == LVNI_SCAN_CLASSES && scan->n_classes < 2) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: a classifier needs two or more classes, found 1: %s; add a sub-folder of "
                 "images for each further class, or give "
                 "data= the folder that holds the classes",
                 scan->root, scan->class_names[0]);
    }
    return LVN_OK;
}

lvn_status lvni_data_image_scan_label(lvni_data_image_scan *scan, lvni_data_scan_mode mode,
                                      const lvni_data_walk *walk)
{
    LVN_TRY(label_all(scan, mode));
    LVN_TRY(mode == LVNI_SCAN_CLASSES ? find_empty(scan, walk) : LVN_OK);
    LVN_TRY(name_classes(scan));
    return check_number(scan, mode);
}

/* ---- numbers of a model ---- */

static lvn_status relabel_map(const lvni_data_image_scan *scan, const char *const *class_names,
                              int n_classes, int64_t *map)
{
    for (int i = 0; i < scan->n_classes; i++) {
        map[i] = -1;
        for (int k = 0; k < n_classes; k++) {
            if (strcmp(scan->class_names[i], class_names[k]) == 0) {
                map[i] = k;
            }
        }
        const char *like = map[i] < 0 ? other_case(class_names, n_classes, scan->class_names[i],
                                                   strlen(scan->class_names[i]))
                                      : NULL;
        if (like != NULL) {
            LVN_FAIL(LVN_ERR_MISMATCH,
                     "%s has the class %s, which the model calls %s: rename that folder",
                     scan->root, scan->class_names[i], like);
        }
        if (map[i] < 0) {
            LVN_FAIL(LVN_ERR_MISMATCH,
                     "%s has the class %s, which the model was not trained on (its %d class%s: %s "
                     "... %s): rename or remove that folder",
                     scan->root, scan->class_names[i], n_classes,
                     lvni_core_plural(n_classes, "", "es"), class_names[0],
                     class_names[n_classes - 1]);
        }
    }
    return LVN_OK;
}

static char **names_copy(const char *const *class_names, int n)
{
    char **copy = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *copy);
    for (int i = 0; copy != NULL && i < n; i++) {
        copy[i] = lvni_core_strdup(LVNI_TAG_DATA, class_names[i]);
        if (copy[i] == NULL) {
            while (i-- > 0) {
                lvni_core_free(copy[i]);
            }
            lvni_core_free(copy);
            return NULL;
        }
    }
    return copy;
}

lvn_status lvni_data_image_scan_relabel(lvni_data_image_scan *scan, const char *const *class_names,
                                        int n_classes)
{
    LVN_ARG(n_classes > 0, "a model without classes cannot number those of %s", scan->root);
    int64_t *map = lvni_core_calloc(LVNI_TAG_DATA, (size_t)scan->n_classes, sizeof *map);
    lvn_status status;
    LVNI_TRY_DONE(status,
                  map == NULL ? LVN_ERR_MEMORY : relabel_map(scan, class_names, n_classes, map));
    char **names = names_copy(class_names, n_classes);
    LVNI_TRY_DONE(status, names == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (int64_t i = 0; i < scan->n; i++) {
        scan->label[i] = scan->label[i] < 0 ? -1 : map[scan->label[i]];
    }
    for (int i = 0; i < scan->n_classes; i++) {
        lvni_core_free(scan->class_names[i]);
    }
    lvni_core_free(scan->class_names);
    scan->class_names = names;
    scan->n_classes = n_classes;
done:
    lvni_core_free(map);
    return status;
}
