/* Files of labels (pose_labels.h). */
#include "recipes/pose/pose_labels.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "recipes/pose/pose_split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEADERS = 3, KEYPOINTS_MAX = 10000 };

static const char FORM[] =
    "levin reads three header rows (scorer, bodyparts, coords), then rows with the path of an image"
    " in one column and x, y of each keypoint";

/* Columns of a file; -1: the keypoint has none. */
typedef struct layout {
    int64_t width;
    int64_t x[KEYPOINTS_MAX], visible[KEYPOINTS_MAX];
    int k;
    int64_t set;
    bool has_visible;
} layout;

static bool is_coordinate(const char *text)
{
    return strcasecmp(text, "x") == 0 || strcasecmp(text, "y") == 0;
}

/* ---- the header ---- */

int64_t lvni_pose_labels_first_coordinate(const lvni_pose_csv *t, int64_t row)
{
    for (int64_t c = 1; row < t->n && c < lvni_pose_csv_width(t, row); c++) {
        if (is_coordinate(lvni_pose_csv_at(t, row, c))) {
            return c;
        }
    }
    return -1;
}

static bool row_has_coordinates(const lvni_pose_csv *t, int64_t row)
{
    return lvni_pose_labels_first_coordinate(t, row) > 0;
}

#define OF_DEEPLABCUT "levin data dlc PROJECT OUT makes a project of DeepLabCut's one of this form"

/* What other programs write, and no header at all. */
static lvn_status check_form(const lvni_pose_csv *t)
{
    if (t->n < HEADERS) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: %lld row%s, so there are no labels; %s", t->name,
                 (long long)t->n, lvni_core_plural(t->n, "", "s"), FORM);
    }
    if (!row_has_coordinates(t, 2)) {
        if (row_has_coordinates(t, 3)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s:%lld: four header rows (`%.64s` is one too many, as DeepLabCut writes for "
                     "several animals); %s; " OF_DEEPLABCUT " where it has one animal",
                     t->name, (long long)t->line[3], lvni_pose_csv_at(t, 1, 0), FORM);
        }
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s:%lld: the third row is that of x and y, but it has neither (it begins "
                 "`%.64s`); %s",
                 t->name, (long long)t->line[2], lvni_pose_csv_at(t, 2, 0), FORM);
    }
    if (lvni_pose_csv_at(t, 2, 1)[0] == '\0' && lvni_pose_csv_at(t, 2, 2)[0] == '\0' &&
        is_coordinate(lvni_pose_csv_at(t, 2, 3))) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s:%lld: the path of an image is cut into three columns, as DeepLabCut writes; "
                 "%s; " OF_DEEPLABCUT,
                 t->name, (long long)t->line[2], FORM);
    }
    return LVN_OK;
}

static lvn_status refuse_column(const lvni_pose_csv *t, int64_t c, const char *what)
{
    LVN_FAIL(LVN_ERR_USAGE, "%s:%lld, column %lld (%.64s, %.64s): %s", t->name,
             (long long)t->line[2], (long long)(c + t->joined) + 1, lvni_pose_csv_at(t, 1, c),
             lvni_pose_csv_at(t, 2, c), what);
}

static lvn_status add_keypoint(const lvni_pose_csv *t, int64_t c, layout *l)
{
    const char *name = lvni_pose_csv_at(t, 1, c);
    if (name[0] == '\0') {
        return refuse_column(t, c, "the second row has no name of a body part here");
    }
    if (c + 1 >= l->width || strcasecmp(lvni_pose_csv_at(t, 2, c + 1), "y") != 0 ||
        strcmp(lvni_pose_csv_at(t, 1, c + 1), name) != 0) {
        return refuse_column(t, c, "the next column must be the y of the same body part");
    }
    for (int k = 0; k < l->k; k++) {
        if (strcmp(lvni_pose_csv_at(t, 1, l->x[k]), name) == 0) {
            return refuse_column(t, c, "the body part stands twice; each needs a name of its own");
        }
    }
    if (l->k == KEYPOINTS_MAX) {
        return refuse_column(t, c, "more than 10000 keypoints");
    }
    l->visible[l->k] = -1;
    l->x[l->k++] = c;
    return LVN_OK;
}

static lvn_status read_column(const lvni_pose_csv *t, int64_t c, layout *l)
{
    const char *kind = lvni_pose_csv_at(t, 2, c);
    const bool of_last =
        l->k > 0 && strcmp(lvni_pose_csv_at(t, 1, c), lvni_pose_csv_at(t, 1, l->x[l->k - 1])) == 0;
    if (strcasecmp(kind, "x") == 0) {
        return add_keypoint(t, c, l);
    }
    if (strcasecmp(kind, "y") == 0) {
        return of_last && c == l->x[l->k - 1] + 1
                   ? LVN_OK
                   : refuse_column(t, c, "a y without its x in the column before");
    }
    if (strcasecmp(kind, "visible") == 0 && of_last && l->visible[l->k - 1] < 0) {
        l->visible[l->k - 1] = c;
        l->has_visible = true;
        return LVN_OK;
    }
    if (strcasecmp(kind, "likelihood") == 0 && of_last) {
        return LVN_OK;
    }
    if (kind[0] == '\0' && strcmp(lvni_pose_csv_at(t, 0, c), "set") == 0 && l->set < 0) {
        l->set = c;
        return LVN_OK;
    }
    return refuse_column(t, c, "expected x, y, visible or likelihood of a body part");
}

static lvn_status read_header(const lvni_pose_csv *t, layout *l)
{
    LVN_TRY(check_form(t));
    l->width = lvni_pose_csv_width(t, 2);
    l->set = -1;
    for (int64_t row = 0; row < 2; row++) {
        if (lvni_pose_csv_width(t, row) != l->width) {
            LVN_FAIL(LVN_ERR_USAGE, "%s:%lld: %lld columns, but the third header row has %lld",
                     t->name, (long long)t->line[row], (long long)lvni_pose_csv_width(t, row),
                     (long long)l->width);
        }
    }
    for (int64_t c = 1; c < l->width; c++) {
        LVN_TRY(read_column(t, c, l));
    }
    for (int k = 0; l->has_visible && k < l->k; k++) {
        if (l->visible[k] < 0) {
            return refuse_column(t, l->x[k],
                                 "other body parts have a column `visible`, this one has none");
        }
    }
    return LVN_OK;
}

/* ---- values ---- */

static lvn_status refuse_cell(const lvni_pose_csv *t, int64_t row, int64_t c, const char *what)
{
    LVN_FAIL(LVN_ERR_USAGE, "%s:%lld, column %lld (%.64s, %.64s): `%.64s` %s", t->name,
             (long long)t->line[row], (long long)(c + t->joined) + 1, lvni_pose_csv_at(t, 1, c),
             lvni_pose_csv_at(t, 2, c), lvni_pose_csv_at(t, row, c), what);
}

/* What tables write where there is no number. */
static bool is_missing(const char *text)
{
    static const char *const names[] = {"", "nan", "-nan", "na", "n/a", "<na>", "null", "none"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcasecmp(text, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static lvn_status read_number(const lvni_pose_csv *t, int64_t row, int64_t c, double *out)
{
    const char *text = lvni_pose_csv_at(t, row, c);
    *out = NAN;
    if (is_missing(text)) {
        return LVN_OK;
    }
    char *end = NULL;
    *out = lvni_core_strtod(text, &end);
    if (*end != '\0' || !isfinite(*out)) {
        return refuse_cell(t, row, c,
                           "is not a number; a point without label has empty cells or nan");
    }
    return LVN_OK;
}

/* An empty cell follows from the coordinates. */
static lvn_status read_visible(const lvni_pose_csv *t, int64_t row, int64_t c, bool labelled,
                               int8_t *out)
{
    double value;
    *out = labelled ? 2 : 0;
    if (is_missing(lvni_pose_csv_at(t, row, c))) {
        return LVN_OK;
    }
    LVN_TRY(read_number(t, row, c, &value));
    for (int8_t v = 0; v <= 2; v++) {
        if (value == (double)v) {
            *out = v;
            return LVN_OK;
        }
    }
    return refuse_cell(t, row, c, "is not 0 (no label), 1 (hidden) or 2 (visible)");
}

static lvn_status read_set(const lvni_pose_csv *t, int64_t row, int64_t c, int8_t *out)
{
    const int set = lvni_pose_set_of(lvni_pose_csv_at(t, row, c));
    if (set < 0) {
        return refuse_cell(t, row, c, "is not train, validation, test or unused");
    }
    *out = (int8_t)set;
    return LVN_OK;
}

static lvn_status read_points(const lvni_pose_csv *t, int64_t row, const layout *l, int64_t i,
                              lvni_pose_labels *out)
{
    for (int k = 0; k < l->k; k++) {
        double *xy = out->xy + (i * l->k + k) * 2;
        LVN_TRY(read_number(t, row, l->x[k], &xy[0]));
        LVN_TRY(read_number(t, row, l->x[k] + 1, &xy[1]));
        const bool labelled = !isnan(xy[0]);
        if (labelled != !isnan(xy[1])) {
            return refuse_cell(t, row, l->x[k] + (labelled ? 1 : 0),
                               "beside a number; x and y are both given, or both empty");
        }
        if (l->has_visible) {
            int8_t *visible = out->visible + i * l->k + k;
            LVN_TRY(read_visible(t, row, l->visible[k], labelled, visible));
            if (labelled && *visible < 2) { /* neither errors nor PCA are to have it */
                xy[0] = xy[1] = NAN;
                out->overridden++;
            }
        }
    }
    return LVN_OK;
}

static lvn_status read_frame(const lvni_pose_csv *t, int64_t row, const layout *l, int64_t i,
                             lvni_pose_labels *out)
{
    const int64_t width = lvni_pose_csv_width(t, row);
    if (width != l->width) {
        LVN_FAIL(LVN_ERR_USAGE, "%s:%lld: %lld columns, but the header has %lld", t->name,
                 (long long)t->line[row], (long long)width, (long long)l->width);
    }
    const char *image = lvni_pose_csv_at(t, row, 0);
    if (image[0] == '\0') {
        LVN_FAIL(LVN_ERR_USAGE, "%s:%lld, column 1: the row has labels and no path of an image",
                 t->name, (long long)t->line[row]);
    }
    out->line[i] = t->line[row];
    out->image[i] = lvni_core_strdup(LVNI_TAG_DATA, image);
    if (out->image[i] == NULL) {
        return LVN_ERR_MEMORY;
    }
    out->n = i + 1;
    if (l->set >= 0) {
        LVN_TRY(read_set(t, row, l->set, &out->set[i]));
    }
    return read_points(t, row, l, i, out);
}

/* ---- the file ---- */

static lvn_status make_room(const layout *l, int64_t n, lvni_pose_labels *out)
{
    const size_t points = (size_t)n * (size_t)l->k;
    out->keypoint = lvni_core_calloc(LVNI_TAG_DATA, (size_t)l->k, sizeof *out->keypoint);
    out->column = lvni_core_calloc(LVNI_TAG_DATA, (size_t)l->k, sizeof *out->column);
    out->image = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *out->image);
    out->line = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *out->line);
    out->xy = lvni_core_calloc(LVNI_TAG_DATA, points, 2 * sizeof *out->xy);
    bool room = out->keypoint != NULL && out->column != NULL && out->image != NULL &&
                out->line != NULL && out->xy != NULL;
    if (room && l->has_visible) {
        out->visible = lvni_core_calloc(LVNI_TAG_DATA, points, sizeof *out->visible);
        room = out->visible != NULL;
    }
    if (room && l->set >= 0) {
        out->set = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *out->set);
        room = out->set != NULL;
    }
    return room ? LVN_OK : LVN_ERR_MEMORY;
}

static lvn_status take_names(const lvni_pose_csv *t, const layout *l, lvni_pose_labels *out)
{
    for (int k = 0; k < l->k; k++) {
        out->column[k] = l->x[k] + t->joined + 1;
        out->keypoint[k] = lvni_core_strdup(LVNI_TAG_DATA, lvni_pose_csv_at(t, 1, l->x[k]));
        if (out->keypoint[k] == NULL) {
            return LVN_ERR_MEMORY;
        }
        out->k = k + 1;
    }
    return LVN_OK;
}

/* A row without any cell is the name of the index, or what an editor has left behind. A frame
 * without a label has its path. */
static lvn_status read_table(const lvni_pose_csv *t, layout *l, lvni_pose_labels *out)
{
    int64_t frames = 0;
    LVN_TRY(read_header(t, l));
    for (int64_t row = HEADERS; row < t->n; row++) {
        frames += !lvni_pose_csv_is_empty(t, row, 0);
    }
    if (frames == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: no frame behind the header", t->name);
    }
    LVN_TRY(make_room(l, frames, out));
    LVN_TRY(take_names(t, l, out));
    for (int64_t row = HEADERS; row < t->n; row++) {
        if (!lvni_pose_csv_is_empty(t, row, 0)) {
            LVN_TRY(read_frame(t, row, l, out->n, out));
        }
    }
    return LVN_OK;
}

lvn_status lvni_pose_labels_take(lvni_pose_csv *t, lvn_status status, lvni_pose_labels *out)
{
    *out = (lvni_pose_labels){0};
    if (status == LVN_OK) {
        layout *l = LVNI_NEW(LVNI_TAG_DATA, layout);
        out->path = lvni_core_strdup(LVNI_TAG_DATA, t->name);
        status = l == NULL || out->path == NULL ? LVN_ERR_MEMORY : read_table(t, l, out);
        lvni_core_free(l);
    }
    lvni_pose_csv_free(t);
    return status;
}

lvn_status lvni_pose_labels_read(const char *path, lvni_pose_labels *out)
{
    lvni_pose_csv t;
    return lvni_pose_labels_take(&t, lvni_pose_csv_read(path, &t), out);
}

lvn_status lvni_pose_labels_parse(const char *path, char *text, size_t bytes, lvni_pose_labels *out)
{
    lvni_pose_csv t;
    return lvni_pose_labels_take(&t, lvni_pose_csv_parse(path, text, bytes, &t), out);
}

void lvni_pose_labels_free(lvni_pose_labels *labels)
{
    for (int k = 0; k < labels->k; k++) {
        lvni_core_free(labels->keypoint[k]);
    }
    for (int64_t i = 0; i < labels->n; i++) {
        lvni_core_free(labels->image[i]);
    }
    lvni_core_free(labels->keypoint);
    lvni_core_free(labels->image);
    lvni_core_free(labels->xy);
    lvni_core_free(labels->visible);
    lvni_core_free(labels->set);
    lvni_core_free(labels->path);
    lvni_core_free(labels->line);
    lvni_core_free(labels->column);
    *labels = (lvni_pose_labels){0};
}

/* ---- checks against what is beside the file ---- */

lvn_status lvni_pose_labels_check_count(const lvni_pose_labels *labels, int64_t num_keypoints)
{
    if (num_keypoints == labels->k) {
        return LVN_OK;
    }
    const char *why = num_keypoints == 2 * (int64_t)labels->k
                          ? ", which counts x and y; a keypoint is one pair of them"
                          : "";
    LVN_FAIL(LVN_ERR_USAGE,
             "data.num_keypoints %lld: %s has %d keypoints (`%.64s` to `%.64s`)%s; use "
             "data.num_keypoints=%d",
             (long long)num_keypoints, labels->path, labels->k, labels->keypoint[0],
             labels->keypoint[labels->k - 1], why, labels->k);
}

/* place[i]: which keypoint of the file has the name i. */
static lvn_status find_places(const lvni_pose_labels *labels, int k, const char *const *name,
                              int *place)
{
    if (labels->k != k) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "the model has %d keypoints (`%.64s` to `%.64s`), %s %d (`%.64s` to `%.64s`)", k,
                 name[0], name[k - 1], labels->path, labels->k, labels->keypoint[0],
                 labels->keypoint[labels->k - 1]);
    }
    for (int i = 0; i < k; i++) {
        place[i] = i; /* where they mostly are */
        for (int j = 0; j < k && strcmp(labels->keypoint[place[i]], name[i]) != 0; j++) {
            place[i] = j;
        }
        if (strcmp(labels->keypoint[place[i]], name[i]) != 0) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s has no keypoint `%.64s`, which the model has in place %d of %d; there the "
                     "file has `%.64s`: give its keypoints the names that the model has",
                     labels->path, name[i], i + 1, k, labels->keypoint[i]);
        }
    }
    return LVN_OK;
}

/* One frame after the other, through `row`, (k, 2). */
static void move_points(lvni_pose_labels *labels, const int *place, double *row)
{
    const size_t k = (size_t)labels->k;
    for (int64_t i = 0; i < labels->n; i++) {
        double *xy = labels->xy + i * 2 * labels->k;
        memcpy(row, xy, 2 * k * sizeof *row);
        for (size_t j = 0; j < k; j++) {
            memcpy(xy + 2 * j, row + 2 * (size_t)place[j], 2 * sizeof *row);
        }
        int8_t *visible = labels->visible == NULL ? NULL : labels->visible + i * labels->k;
        for (size_t j = 0; visible != NULL && j < k; j++) {
            row[j] = visible[j];
        }
        for (size_t j = 0; visible != NULL && j < k; j++) {
            visible[j] = (int8_t)row[place[j]];
        }
    }
}

static lvn_status move_names(lvni_pose_labels *labels, const int *place)
{
    const size_t k = (size_t)labels->k;
    char **name = lvni_core_calloc(LVNI_TAG_DATA, k, sizeof *name);
    int64_t *column = lvni_core_calloc(LVNI_TAG_DATA, k, sizeof *column);
    const bool good = name != NULL && column != NULL;
    for (size_t i = 0; good && i < k; i++) {
        name[i] = labels->keypoint[place[i]];
        column[i] = labels->column[place[i]];
    }
    if (good) {
        memcpy(labels->keypoint, name, k * sizeof *name);
        memcpy(labels->column, column, k * sizeof *column);
    }
    lvni_core_free(name);
    lvni_core_free(column);
    return good ? LVN_OK : LVN_ERR_MEMORY;
}

lvn_status lvni_pose_labels_arrange(lvni_pose_labels *labels, int k, const char *const *name)
{
    int *place = lvni_core_calloc(LVNI_TAG_DATA, (size_t)k, sizeof *place);
    double *row = lvni_core_calloc(LVNI_TAG_DATA, (size_t)k, 2 * sizeof *row);
    lvn_status s = place == NULL || row == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK) {
        s = find_places(labels, k, name, place);
    }
    if (s == LVN_OK) {
        s = move_names(labels, place);
    }
    if (s == LVN_OK) {
        move_points(labels, place, row);
    }
    lvni_core_free(place);
    lvni_core_free(row);
    return s;
}

void lvni_pose_labels_other(const char *path, const char *suffix, lvni_core_str *out)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash == NULL ? path : slash, '.');
    lvni_core_str_clear(out);
    lvni_core_str_append_n(out, path, dot == NULL ? strlen(path) : (size_t)(dot - path));
    lvni_core_str_printf(out, "_%s.csv", suffix);
}

void lvni_pose_labels_image_path(const lvni_pose_labels *labels, const char *data_dir, int64_t i,
                                 lvni_core_str *out)
{
    const char *image = labels->image[i];
    lvni_core_str_clear(out);
    if (image[0] != '/' && data_dir != NULL && data_dir[0] != '\0') {
        lvni_core_str_printf(out, "%s%s", data_dir,
                             data_dir[strlen(data_dir) - 1] == '/' ? "" : "/");
    }
    lvni_core_str_append(out, image);
}

lvn_status lvni_pose_labels_check_images(const lvni_pose_labels *labels, const char *data_dir)
{
    lvni_core_str path = {0}, first = {0};
    int64_t missing = 0, at = 0;
    lvn_status status = LVN_OK;
    for (int64_t i = 0; i < labels->n && status == LVN_OK; i++) {
        lvni_pose_labels_image_path(labels, data_dir, i, &path);
        status = lvni_core_str_status(&path);
        if (status == LVN_OK && !lvni_core_path_exists(lvni_core_str_text(&path)) &&
            missing++ == 0) {
            lvni_core_str_append(&first, lvni_core_str_text(&path));
            at = i;
        }
    }
    if (status == LVN_OK && missing > 0) {
        status = LVN_ERR_USAGE;
        (void)lvn_error_set(status, __FILE__, __LINE__,
                            "%s:%lld: there is no image %s (%lld of %lld images are missing); "
                            "paths in the first column are relative to data.data_dir",
                            labels->path, (long long)labels->line[at], lvni_core_str_text(&first),
                            (long long)missing, (long long)labels->n);
    }
    lvni_core_str_free(&path);
    lvni_core_str_free(&first);
    return status;
}

typedef struct image_row {
    const char *image;
    int64_t line;
} image_row;

static int compare_rows(const void *a, const void *b)
{
    const image_row *x = a, *y = b;
    const int order = strcmp(x->image, y->image);
    return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

lvn_status lvni_pose_labels_check_once(const lvni_pose_labels *labels)
{
    image_row *row = lvni_core_calloc(LVNI_TAG_DATA, (size_t)labels->n + 1, sizeof *row);
    int64_t more = 0, first = 0;
    LVN_TRY(row == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (int64_t i = 0; i < labels->n; i++) {
        row[i] = (image_row){.image = labels->image[i], .line = labels->line[i]};
    }
    qsort(row, (size_t)labels->n, sizeof *row, compare_rows);
    for (int64_t i = 1; i < labels->n; i++) {
        if (strcmp(row[i].image, row[i - 1].image) == 0) {
            first = more++ == 0 ? i : first;
        }
    }
    const image_row before = row[first > 0 ? first - 1 : 0], again = row[first];
    lvni_core_free(row);
    if (more == 0) {
        return LVN_OK;
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "%s:%lld: the image %s has a row in line %lld, too (%lld row%s too many in all), so "
             "that it trains or validates once more: keep one row of each image",
             labels->path, (long long)again.line, again.image, (long long)before.line,
             (long long)more, lvni_core_plural(more, "", "s"));
}

lvn_status lvni_pose_labels_check_inside(const lvni_pose_labels *labels, int64_t i, double width,
                                         double height)
{
    for (int k = 0; k < labels->k; k++) {
        const double *xy = labels->xy + (i * labels->k + k) * 2;
        const bool x = xy[0] < -1 || xy[0] > width + 1, y = xy[1] < -1 || xy[1] > height + 1;
        if (x || y) {
            char text[64], size[64];
            lvni_core_format(text, sizeof text, "%.10g", xy[x ? 0 : 1]);
            lvni_core_format(size, sizeof size, "%.10g x %.10g", width, height);
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s:%lld, column %lld (%.64s, %s): %s lies outside of the frame %s, which has "
                     "%s pixels; correct the label or leave its cells empty",
                     labels->path, (long long)labels->line[i],
                     (long long)labels->column[k] + (x ? 0 : 1), labels->keypoint[k], x ? "x" : "y",
                     text, labels->image[i], size);
        }
    }
    return LVN_OK;
}

void lvni_pose_labels_remarks(const lvni_pose_labels *labels, lvni_core_str *out)
{
    if (labels->overridden > 0) {
        lvni_core_str_printf(out,
                             "%s: %lld point%s with coordinates and `visible` 0 or 1, which "
                             "are not used",
                             labels->path, (long long)labels->overridden,
                             lvni_core_plural(labels->overridden, "", "s"));
    }
}
