/* Labels of one recording of a DeepLabCut project (pose_dlc.h): its table becomes one that
 * pose_labels.c reads, with the lines and columns that stand in the file. */
#include "recipes/pose/pose_dlc.h"

#include "core/alloc.h"

#include <string.h>

enum { HEADERS = 3, PATH_COLUMNS = 3, COLUMNS_MAX = 4096 };

static const char of_none[] = "single"; /* animal of the body parts that are of none */

/* Of one body part; two animals have the same ones. */
static lvn_status refuse_animals(const lvni_pose_csv *t, int64_t a, int64_t b)
{
    LVN_FAIL(LVN_ERR_USAGE,
             "%s:%lld: the body part `%.64s` is that of several animals (`%.64s`, `%.64s`), and "
             "levin finds the keypoints of one in a frame: keep the columns of one animal alone",
             t->name, (long long)t->line[1], lvni_pose_csv_at(t, 2, a), lvni_pose_csv_at(t, 1, a),
             lvni_pose_csv_at(t, 1, b));
}

static lvn_status refuse_parts(const lvni_pose_csv *t, int64_t a, int64_t b)
{
    LVN_FAIL(LVN_ERR_USAGE,
             "%s:%lld: body parts of several animals (`%.64s`, `%.64s`), and levin finds the "
             "keypoints of one in a frame: keep the columns of one animal alone, beside those of "
             "`%s`",
             t->name, (long long)t->line[1], lvni_pose_csv_at(t, 1, a), lvni_pose_csv_at(t, 1, b),
             of_none);
}

/* Row 1 names the animal, row 2 body parts, row 3 coordinates. Body parts that are of no animal
 * stand beside those of one under a name of their own. */
static lvn_status check_animals(const lvni_pose_csv *t, int64_t first)
{
    const int64_t n = lvni_pose_csv_width(t, 2);
    if (n > COLUMNS_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: %lld columns, which are too many", t->name, (long long)n);
    }
    for (int64_t c = first; c < n; c++) {
        for (int64_t k = first; k < c; k++) {
            if (strcmp(lvni_pose_csv_at(t, 2, c), lvni_pose_csv_at(t, 2, k)) == 0 &&
                strcmp(lvni_pose_csv_at(t, 1, c), lvni_pose_csv_at(t, 1, k)) != 0) {
                return refuse_animals(t, k, c);
            }
        }
    }
    int64_t animal = -1;
    for (int64_t c = first; c < n; c++) {
        const char *name = lvni_pose_csv_at(t, 1, c);
        if (strcmp(name, of_none) != 0) {
            animal = animal < 0 ? c : animal;
            LVN_TRY(strcmp(name, lvni_pose_csv_at(t, 1, animal)) != 0 ? refuse_parts(t, animal, c)
                                                                      : LVN_OK);
        }
    }
    return LVN_OK;
}

/* Without the row of the animals, and without the columns between the first and `first`, of which
 * the last one names the image. */
static void straighten(lvni_pose_csv *t, bool animals, int64_t first)
{
    int64_t rows = 0, cells = 0;
    for (int64_t row = 0; row < t->n; row++) {
        const int64_t begin = t->begin[row], width = lvni_pose_csv_width(t, row);
        const bool head = row < HEADERS + animals;
        if (animals && row == 1) {
            continue;
        }
        t->line[rows] = t->line[row];
        t->begin[rows++] = cells;
        t->cell[cells++] = t->cell[begin + (head || width < first ? 0 : first - 1)];
        for (int64_t c = first; c < width; c++) {
            t->cell[cells++] = t->cell[begin + c];
        }
    }
    t->begin[rows] = cells;
    t->n = rows;
    t->n_cells = cells;
    t->joined = first - 1;
}

static lvn_status take_form(lvni_pose_csv *t)
{
    const bool animals = lvni_pose_labels_first_coordinate(t, HEADERS - 1) < 0 &&
                         lvni_pose_labels_first_coordinate(t, HEADERS) > 0;
    const int64_t first = lvni_pose_labels_first_coordinate(t, animals ? HEADERS : HEADERS - 1);
    if (first != 1 && first != PATH_COLUMNS) {
        return LVN_OK; /* the reader of labels reports what it is */
    }
    LVN_TRY(animals ? check_animals(t, first) : LVN_OK);
    straighten(t, animals, first);
    return LVN_OK;
}

const char *lvni_pose_dlc_name_in(const char *path)
{
    const char *slash = strrchr(path, '/'), *other = strrchr(path, '\\');
    const char *last = slash == NULL || (other != NULL && other > slash) ? other : slash;
    return last == NULL ? path : last + 1;
}

static lvn_status take(lvni_pose_csv *t, lvn_status read, lvni_pose_labels *out)
{
    LVN_TRY(lvni_pose_labels_take(t, read == LVN_OK ? take_form(t) : read, out));
    for (int64_t i = 0; i < out->n; i++) {
        /* the folder may have had another name when it was labelled */
        const char *name = lvni_pose_dlc_name_in(out->image[i]);
        memmove(out->image[i], name, strlen(name) + 1);
        if (out->image[i][0] == '\0') {
            LVN_FAIL(LVN_ERR_USAGE, "%s:%lld, column 1: the path of the image ends with a folder",
                     out->path, (long long)out->line[i]);
        }
    }
    return LVN_OK;
}

lvn_status lvni_pose_dlc_labels_read(const char *path, lvni_pose_labels *out)
{
    lvni_pose_csv t;
    return take(&t, lvni_pose_csv_read(path, &t), out);
}

lvn_status lvni_pose_dlc_labels_parse(const char *path, char *text, size_t bytes,
                                      lvni_pose_labels *out)
{
    lvni_pose_csv t;
    return take(&t, lvni_pose_csv_parse(path, text, bytes, &t), out);
}
