/* CSV files (pose_csv.h). The text is cut in place: a cell is never longer than it stands there. */
#include "recipes/pose/pose_csv.h"

#include "core/alloc.h"
#include "core/vfs.h"

#include <string.h>

static const size_t BYTES_MAX = (size_t)1 << 28;

typedef struct scan {
    lvni_pose_csv *csv;
    char *at, *end;
    int64_t line;
} scan;

static lvn_status more_rows(lvni_pose_csv *csv)
{
    const int64_t room = csv->rows_room > 0 ? 2 * csv->rows_room : 256;
    int64_t *line = lvni_core_realloc(LVNI_TAG_DATA, csv->line, (size_t)room * sizeof *csv->line);
    csv->line = line != NULL ? line : csv->line;
    int64_t *begin = line == NULL ? NULL
                                  : lvni_core_realloc(LVNI_TAG_DATA, csv->begin,
                                                      (size_t)room * sizeof *csv->begin);
    if (begin == NULL) {
        return LVN_ERR_MEMORY;
    }
    csv->begin = begin;
    csv->rows_room = room;
    return LVN_OK;
}

static lvn_status add_row(lvni_pose_csv *csv, int64_t line)
{
    if (csv->n + 1 >= csv->rows_room) {
        LVN_TRY(more_rows(csv));
    }
    csv->line[csv->n] = line;
    csv->begin[csv->n++] = csv->n_cells;
    return LVN_OK;
}

static lvn_status add_cell(lvni_pose_csv *csv, char *text)
{
    if (csv->n_cells == csv->room) {
        const int64_t room = csv->room > 0 ? 2 * csv->room : 4096;
        char **cell = lvni_core_realloc(LVNI_TAG_DATA, csv->cell, (size_t)room * sizeof *csv->cell);
        if (cell == NULL) {
            return LVN_ERR_MEMORY;
        }
        csv->cell = cell;
        csv->room = room;
    }
    csv->cell[csv->n_cells++] = text;
    return LVN_OK;
}

static lvn_status refuse(const scan *s, const char *what)
{
    const int64_t column = s->csv->n_cells - s->csv->begin[s->csv->n - 1] + 1;
    LVN_FAIL(LVN_ERR_USAGE, "%s:%lld, column %lld: %s", s->csv->name, (long long)s->line,
             (long long)column, what);
}

static bool ends_cell(const scan *s)
{
    return s->at == s->end || *s->at == ',' || *s->at == '\n' ||
           (*s->at == '\r' && (s->at + 1 == s->end || s->at[1] == '\n'));
}

/* Behind its first quote; "" is a quote. */
static lvn_status quoted_cell(scan *s, char **out)
{
    char *to = s->at;
    *out = to;
    for (;; s->at++) {
        if (s->at == s->end) {
            return refuse(s, "a quote is opened and not closed");
        }
        if (*s->at == '"' && (s->at + 1 == s->end || s->at[1] != '"')) {
            break;
        }
        s->at += *s->at == '"';
        s->line += *s->at == '\n';
        *to++ = *s->at;
    }
    s->at++;
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t')) {
        s->at++;
    }
    if (!ends_cell(s)) {
        return refuse(s, "text behind a closing quote; a quote inside of one is written twice");
    }
    *to = '\0'; /* the closing quote's place, or one before it */
    return LVN_OK;
}

static char *plain_cell(scan *s)
{
    char *from = s->at;
    while (!ends_cell(s)) {
        s->at++;
    }
    char *to = s->at;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t')) {
        to--;
    }
    /* the separator is looked at before it is overwritten: see read_row() */
    return to < s->at ? (*to = '\0', from) : from;
}

/* One row, to the beginning of the next. */
static lvn_status read_row(scan *s)
{
    LVN_TRY(add_row(s->csv, s->line));
    for (bool more = true; more;) {
        char *cell = NULL;
        while (s->at < s->end && (*s->at == ' ' || *s->at == '\t')) {
            s->at++;
        }
        if (s->at < s->end && *s->at == '"') {
            s->at++;
            LVN_TRY(quoted_cell(s, &cell));
        } else {
            cell = plain_cell(s);
        }
        more = s->at < s->end && *s->at == ',';
        char *separator = s->at;
        if (s->at < s->end) {
            s->at += *s->at == '\r' && s->at + 1 < s->end ? 2 : 1;
        }
        *separator = '\0'; /* at the end of the text: its zero */
        LVN_TRY(add_cell(s->csv, cell));
    }
    s->line++;
    return LVN_OK;
}

/* The row that was read last, where it holds nothing. */
static void drop_blank(lvni_pose_csv *csv)
{
    const int64_t first = csv->begin[csv->n - 1];
    if (csv->n_cells == first + 1 && csv->cell[first][0] == '\0') {
        csv->n_cells = first;
        csv->n--;
    }
}

static lvn_status check_text(const lvni_pose_csv *csv, size_t bytes)
{
    const char *zero = memchr(csv->text, '\0', bytes);
    if (zero == NULL) {
        return LVN_OK;
    }
    int64_t line = 1;
    for (const char *p = csv->text; p < zero; p++) {
        line += *p == '\n';
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "%s:%lld: a zero byte: this is not a text in UTF-8; save the table as CSV in UTF-8",
             csv->name, (long long)line);
}

lvn_status lvni_pose_csv_parse(const char *name, char *text, size_t bytes, lvni_pose_csv *out)
{
    *out = (lvni_pose_csv){.name = name, .text = text};
    LVN_TRY(check_text(out, bytes));
    const bool mark = bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0;
    scan s = {.csv = out, .at = text + (mark ? 3 : 0), .end = text + bytes, .line = 1};
    while (s.at < s.end) {
        LVN_TRY(read_row(&s));
        drop_blank(out);
    }
    LVN_TRY(add_row(out, s.line)); /* where the last row ends */
    out->n--;
    return LVN_OK;
}

lvn_status lvni_pose_csv_read(const char *path, lvni_pose_csv *out)
{
    char *text = NULL;
    size_t bytes = 0;
    *out = (lvni_pose_csv){.name = path};
    LVN_TRY(lvni_core_regular_read(path, BYTES_MAX, &text, &bytes));
    return lvni_pose_csv_parse(path, text, bytes, out);
}

void lvni_pose_csv_free(lvni_pose_csv *csv)
{
    lvni_core_free(csv->text);
    lvni_core_free(csv->cell);
    lvni_core_free(csv->begin);
    lvni_core_free(csv->line);
    *csv = (lvni_pose_csv){0};
}

int64_t lvni_pose_csv_width(const lvni_pose_csv *csv, int64_t row)
{
    return csv->begin[row + 1] - csv->begin[row];
}

const char *lvni_pose_csv_at(const lvni_pose_csv *csv, int64_t row, int64_t column)
{
    return column < lvni_pose_csv_width(csv, row) ? csv->cell[csv->begin[row] + column] : "";
}

bool lvni_pose_csv_is_empty(const lvni_pose_csv *csv, int64_t row, int64_t from)
{
    for (int64_t c = from; c < lvni_pose_csv_width(csv, row); c++) {
        if (lvni_pose_csv_at(csv, row, c)[0] != '\0') {
            return false;
        }
    }
    return true;
}
