/* Tables of predictions, read back (pose_table.h). A file is read in pieces that end with a row,
 * each of which pose_csv.c cuts into cells. */
#include "recipes/pose/pose_table.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"
#include "recipes/pose/pose_csv.h"
#include "recipes/pose/pose_split.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* A row is shorter: of 10,000 keypoints it has some 700 KB. */
enum { PIECE = 1 << 21, HEADERS = 3 };

typedef struct table {
    const char *path;
    const lvni_pose_table_reader *reader;
    int fd;
    char *held; /* (PIECE) what was read behind the last whole row */
    size_t n_held;
    int k;
    int64_t *column; /* (k) of x; y and the likelihood are behind it. NULL: no header was read */
    int64_t set;     /* its column; -1: none */
    double *value;   /* (k, 3) */
} table;

/* ---- pieces ---- */

/* Bytes up to the end of the last whole row; a line break within quotes ends none, but where these
 * are still open at the end of the file the rows are for the parser to refuse. */
static size_t whole_rows(const char *text, size_t n, bool ended)
{
    size_t end = 0, line = 0;
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        quoted = quoted != (text[i] == '"');
        line = text[i] == '\n' ? i + 1 : line;
        end = text[i] == '\n' && !quoted ? line : end;
    }
    return ended && quoted ? line : end;
}

/* Fills t->held; *ended: with the last bytes of the file. */
static lvn_status fill(table *t, bool *ended)
{
    for (*ended = false; t->n_held < PIECE && !*ended;) {
        const ssize_t n = lvni_core_vfs_get()->read(t->fd, t->held + t->n_held, PIECE - t->n_held);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            LVN_FAIL(LVN_ERR_IO, "%s: cannot read: %s", t->path, strerror(errno));
        }
        t->n_held += (size_t)n;
        *ended = n == 0;
    }
    return LVN_OK;
}

/* The next rows, the caller's (lvni_core_free). A last line without its end was cut off while it
 * was written. */
static lvn_status next_piece(table *t, char **text, size_t *n, bool *ended)
{
    LVN_TRY(fill(t, ended));
    *n = whole_rows(t->held, t->n_held, *ended);
    if (*n == 0 && !*ended) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: a row of more than %d bytes", t->path, (int)PIECE);
    }
    *text = lvni_core_alloc(LVNI_TAG_DATA, *n + 1);
    if (*text == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(*text, t->held, *n);
    (*text)[*n] = '\0';
    t->n_held -= *n;
    memmove(t->held, t->held + *n, t->n_held);
    return LVN_OK;
}

/* ---- rows ---- */

static double number_of(const char *cell)
{
    char *end;
    const double value = lvni_core_strtod(cell, &end);
    return cell[0] == '\0' || *end != '\0' || !isfinite(value) ? (double)NAN : value;
}

static lvn_status read_columns(table *t, const lvni_pose_csv *csv, const char **name)
{
    const int64_t width = lvni_pose_csv_width(csv, 2);
    t->set = -1;
    for (int64_t c = 1; c < width; c++) {
        const char *what = lvni_pose_csv_at(csv, 2, c);
        const bool is_x = strcmp(what, "x") == 0,
                   of_point = is_x || strcmp(what, "y") == 0 || strcmp(what, "likelihood") == 0;
        for (int64_t row = 0; row < HEADERS && !of_point; row++) { /* not a keypoint called so */
            t->set = strcmp(lvni_pose_csv_at(csv, row, c), "set") == 0 ? c : t->set;
        }
        if (is_x && strcmp(lvni_pose_csv_at(csv, 2, c + 1), "y") == 0 &&
            strcmp(lvni_pose_csv_at(csv, 2, c + 2), "likelihood") == 0) {
            t->column[t->k] = c;
            name[t->k++] = lvni_pose_csv_at(csv, 1, c);
        }
    }
    if (t->k == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: no columns x, y, likelihood below three header rows: it is not a table of "
                 "predictions",
                 t->path);
    }
    return t->reader->begin(t->reader->user, t->k, name);
}

static lvn_status read_head(table *t, const lvni_pose_csv *csv)
{
    if (csv->n < HEADERS) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: it ends within its header", t->path);
    }
    const size_t room = (size_t)lvni_pose_csv_width(csv, 2) + 1;
    const char **name = lvni_core_calloc(LVNI_TAG_DATA, room, sizeof *name);
    t->column = lvni_core_calloc(LVNI_TAG_DATA, room, sizeof *t->column);
    t->value = lvni_core_calloc(LVNI_TAG_DATA, room, sizeof *t->value);
    const lvn_status s = name == NULL || t->column == NULL || t->value == NULL
                             ? LVN_ERR_MEMORY
                             : read_columns(t, csv, name);
    lvni_core_free(name);
    return s;
}

static lvn_status read_rows(table *t, const lvni_pose_csv *csv, int64_t from)
{
    for (int64_t row = from; row < csv->n; row++) {
        for (int i = 0; i < 3 * t->k; i++) {
            t->value[i] = number_of(lvni_pose_csv_at(csv, row, t->column[i / 3] + i % 3));
        }
        const char *set = t->set < 0 ? "" : lvni_pose_csv_at(csv, row, t->set);
        const lvni_pose_table_row one = {
            .name = lvni_pose_csv_at(csv, row, 0), .value = t->value, .set = lvni_pose_set_of(set)};
        LVN_TRY(t->reader->row(t->reader->user, &one));
    }
    return LVN_OK;
}

static lvn_status read_piece(table *t, char *text, size_t n)
{
    lvni_pose_csv csv;
    const bool first = t->column == NULL;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_pose_csv_parse(t->path, text, n, &csv));
    LVNI_TRY_DONE(s, first ? read_head(t, &csv) : LVN_OK);
    s = read_rows(t, &csv, first ? HEADERS : 0);
done:
    lvni_pose_csv_free(&csv);
    return s == LVN_ERR_USAGE ? LVN_ERR_CORRUPT : s;
}

static lvn_status read_all(table *t, size_t *budget, bool *whole)
{
    for (bool ended = false; !ended;) {
        char *text = NULL;
        size_t n = 0;
        if (*budget == 0) {
            *whole = false;
            return LVN_OK;
        }
        LVN_TRY(next_piece(t, &text, &n, &ended));
        *budget -= n < *budget ? n : *budget;
        if (n > 0 || t->column == NULL) {
            LVN_TRY(read_piece(t, text, n));
        } else {
            lvni_core_free(text);
        }
    }
    return LVN_OK;
}

lvn_status lvni_pose_table_read(const char *path, const lvni_pose_table_reader *reader,
                                size_t *budget, bool *whole)
{
    table t = {.path = path, .reader = reader, .fd = -1};
    uint64_t bytes;
    *whole = true;
    LVN_TRY(lvni_core_regular_open(path, &t.fd, &bytes));
    t.held = lvni_core_alloc(LVNI_TAG_DATA, PIECE);
    const lvn_status s = t.held == NULL ? LVN_ERR_MEMORY : read_all(&t, budget, whole);
    lvni_core_vfs_get()->close(t.fd);
    lvni_core_free(t.held);
    lvni_core_free(t.column);
    lvni_core_free(t.value);
    return s;
}
