/* metrics.csv in the layout of Lightning's CSVLogger: a row for each logged step, a column for each
 * name, sorted, and an empty cell for what was not logged. The file is replaced when a name comes
 * that has no column yet, and grows by a row otherwise. Called through the table of loggers.c. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "log/logger_class.h"
#include "log/run_log.h"

#include <stdlib.h>
#include <string.h>

typedef struct csv {
    int fd; /* -1: not open */
    char *path;
    char **column; /* sorted names */
    int n, room;
    double *cell; /* of the row that is put together */
    bool *filled;
    lvni_core_str row;
} csv;

/* Of the three that every row has. */
static const char *const always[] = {"epoch", "step", "time_s"};

/* Where the name is, or would be: *found: which of both. */
static int position(const csv *c, const char *name, bool *found)
{
    int low = 0, high = c->n;
    while (low < high) {
        const int middle = (low + high) / 2;
        const int order = strcmp(c->column[middle], name);
        if (order == 0) {
            *found = true;
            return middle;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    *found = false;
    return low;
}

static lvn_status make_room(csv *c)
{
    if (c->n < c->room) {
        return LVN_OK;
    }
    const int room = c->room == 0 ? 16 : 2 * c->room;
    char **column = lvni_core_realloc(LVNI_TAG_CORE, c->column, (size_t)room * sizeof *column);
    c->column = column == NULL ? c->column : column;
    double *cell = lvni_core_realloc(LVNI_TAG_CORE, c->cell, (size_t)room * sizeof *cell);
    c->cell = cell == NULL ? c->cell : cell;
    bool *filled = lvni_core_realloc(LVNI_TAG_CORE, c->filled, (size_t)room * sizeof *filled);
    c->filled = filled == NULL ? c->filled : filled;
    if (column == NULL || cell == NULL || filled == NULL) {
        return LVN_ERR_MEMORY;
    }
    c->room = room;
    return LVN_OK;
}

static lvn_status insert_column(csv *c, int at, const char *name)
{
    LVN_TRY(make_room(c));
    char *copy = lvni_core_strdup(LVNI_TAG_CORE, name);
    if (copy == NULL) {
        return LVN_ERR_MEMORY;
    }
    memmove(c->column + at + 1, c->column + at, (size_t)(c->n - at) * sizeof *c->column);
    c->column[at] = copy;
    c->n++;
    return LVN_OK;
}

/* ---- the file as text ---- */

static void put_header(const csv *c, lvni_core_str *out)
{
    for (int i = 0; i < c->n; i++) {
        const char *name = c->column[i];
        if (i > 0) {
            lvni_core_str_char(out, ',');
        }
        if (strpbrk(name, ",\"\r\n") == NULL) {
            lvni_core_str_append(out, name);
            continue;
        }
        lvni_core_str_char(out, '"');
        for (; *name != '\0'; name++) {
            lvni_core_str_append(out, *name == '"' ? "\"" : "");
            lvni_core_str_char(out, *name);
        }
        lvni_core_str_char(out, '"');
    }
    lvni_core_str_char(out, '\n');
}

/* One name of the header, which it appends to out. Returns what is behind it. */
static const char *read_name(const char *text, lvni_core_str *out)
{
    const bool quoted = *text == '"';
    for (text += quoted; *text != '\0'; text++) {
        if (quoted && text[0] == '"' && text[1] != '"') {
            return text + 1;
        }
        if (!quoted && (*text == ',' || *text == '\n')) {
            return text;
        }
        text += quoted && *text == '"';
        lvni_core_str_char(out, *text);
    }
    return text;
}

/* Columns of the header. *body: what is behind it; NULL: it is none of ours, or cut off. */
static lvn_status read_header(csv *c, const char *text, const char **body)
{
    lvni_core_str name = {0};
    lvn_status s = LVN_OK;
    bool sorted = true;
    for (char end = ','; sorted && end == ',';) {
        lvni_core_str_clear(&name);
        text = read_name(text, &name);
        end = *text;
        bool found;
        LVNI_TRY_DONE(s, lvni_core_str_status(&name));
        sorted = position(c, lvni_core_str_text(&name), &found) == c->n && !found;
        LVNI_TRY_DONE(s, sorted ? insert_column(c, c->n, lvni_core_str_text(&name)) : LVN_OK);
        text += end == ',';
    }
    bool ours = sorted && *text == '\n';
    for (int i = 0; i < 3 && ours; i++) {
        position(c, always[i], &ours);
    }
    *body = ours ? text + 1 : NULL;
done:
    lvni_core_str_free(&name);
    return s;
}

/* Where the cell of this name begins; NULL: the row has none. */
static const char *find_cell(const csv *c, const char *row, const char *end, const char *name)
{
    bool found;
    int column = position(c, name, &found);
    for (; found && column > 0 && row != NULL; column--) {
        row = memchr(row, ',', (size_t)(end - row));
        row = row == NULL ? NULL : row + 1;
    }
    return found ? row : NULL;
}

static bool is_whole(const csv *c, const char *row, const char *end)
{
    int commas = 0;
    for (; row < end; row++) {
        commas += *row == ',';
    }
    return commas == c->n - 1;
}

/* A whole row of a step that stays; ends_again: lvni_log_metrics_truncate. */
static bool stays(const csv *c, const char *row, const char *end, int64_t step, bool ends_again)
{
    const char *its = find_cell(c, row, end, "step"),
               *of_step = find_cell(c, row, end, LVNI_LOG_OF_STEP);
    if (its == NULL || !is_whole(c, row, end)) {
        return false;
    }
    char *behind;
    const long long number = strtoll(its, &behind, 10);
    const bool is_step = of_step != NULL && *of_step != ',' && *of_step != '\n';
    return behind > its && (number < step || (number == step && (!ends_again || is_step)));
}

/* The rows of body up to `step`, without one that was cut off. */
static void filter(const csv *c, const char *body, int64_t step, bool ends_again,
                   lvni_core_str *out)
{
    for (const char *end; (end = strchr(body, '\n')) != NULL; body = end + 1) {
        if (stays(c, body, end, step, ends_again)) {
            lvni_core_str_append_n(out, body, (size_t)(end + 1 - body));
        }
    }
}

/* An empty cell as number `at` of n in every row. */
static void insert_cells(const char *body, int at, int n, lvni_core_str *out)
{
    for (const char *end; (end = strchr(body, '\n')) != NULL; body = end + 1) {
        int cell = 0;
        lvni_core_str_append(out, at == 0 ? "," : "");
        for (; body < end; body++) {
            lvni_core_str_char(out, *body);
            if (*body == ',' && ++cell == at) {
                lvni_core_str_char(out, ',');
            }
        }
        lvni_core_str_append(out, at == n ? ",\n" : "\n");
    }
}

/* The file is these columns and rows from now on. */
static lvn_status replace(csv *c, const lvni_core_str *body)
{
    lvni_core_str text = {0};
    put_header(c, &text);
    lvni_core_str_append_n(&text, lvni_core_str_text(body), body->len);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    LVNI_TRY_DONE(s, lvni_core_str_status(body));
    LVNI_TRY_DONE(s, lvni_core_file_write(c->path, lvni_core_str_text(&text), text.len));
    if (c->fd >= 0) {
        lvni_core_vfs_get()->close(c->fd);
        c->fd = -1;
    }
    s = lvni_core_append_open(c->path, false, &c->fd);
done:
    lvni_core_str_free(&text);
    return s;
}

/* ---- the logger ---- */

static void destroy_csv(void *logger)
{
    csv *c = logger;
    if (c->fd >= 0) {
        lvni_core_vfs_get()->close(c->fd);
    }
    for (int i = 0; i < c->n; i++) {
        lvni_core_free(c->column[i]);
    }
    lvni_core_free(c->column);
    lvni_core_free(c->cell);
    lvni_core_free(c->filled);
    lvni_core_str_free(&c->row);
    lvni_core_free(c->path);
    lvni_core_free(c);
}

static void forget_columns(csv *c)
{
    for (; c->n > 0; c->n--) {
        lvni_core_free(c->column[c->n - 1]);
    }
}

/* The rows of before that stay. */
static lvn_status begin(csv *c, const lvni_log_loggers_options *o)
{
    char *text = NULL;
    size_t bytes = 0;
    const char *body = NULL;
    lvni_core_str kept = {0};
    lvn_status s;
    if (o->resumed && lvni_core_path_exists(c->path)) {
        LVNI_TRY_DONE(s, lvni_core_file_read(c->path, SIZE_MAX / 4, &text, &bytes));
        LVNI_TRY_DONE(s, read_header(c, text, &body));
    }
    if (body != NULL) {
        filter(c, body, o->step, o->ends_again, &kept);
    } else {
        if (text != NULL && bytes > 0) {
            lvni_log_line(
                LVNI_LOG_WARNING,
                "%s has another layout than this logger's: its rows are replaced by those "
                "from step %lld on; metrics.jsonl has them all",
                c->path, (long long)o->step);
        }
        forget_columns(c);
        for (int i = 0; i < 3; i++) {
            LVNI_TRY_DONE(s, insert_column(c, i, always[i]));
        }
    }
    s = replace(c, &kept);
done:
    lvni_core_str_free(&kept);
    lvni_core_free(text);
    return s;
}

static lvn_status create_csv(const lvni_log_loggers_options *o, const char *argument, void **out)
{
    (void)argument;
    csv *c = LVNI_NEW(LVNI_TAG_CORE, csv);
    if (c == NULL) {
        return LVN_ERR_MEMORY;
    }
    c->fd = -1;
    c->path = lvni_log_path(o->dir, "metrics.csv");
    const lvn_status s = c->path == NULL ? LVN_ERR_MEMORY : begin(c, o);
    if (s != LVN_OK) {
        destroy_csv(c);
        return s;
    }
    *out = c;
    return LVN_OK;
}

static bool has_all(const csv *c, const lvni_log_point *p)
{
    bool found = true;
    for (int i = 0; i < p->n && found; i++) {
        position(c, p->value[i].name, &found);
    }
    return found;
}

static lvn_status add_columns(csv *c, const lvni_log_point *p)
{
    char *text = NULL;
    size_t bytes;
    lvni_core_str header = {0}, body = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_file_read(c->path, SIZE_MAX / 4, &text, &bytes));
    put_header(c, &header);
    LVNI_TRY_DONE(s, lvni_core_str_status(&header));
    /* a file that something else has changed since begins again */
    const bool ours =
        bytes >= header.len && memcmp(text, lvni_core_str_text(&header), header.len) == 0;
    lvni_core_str_append(&body, ours ? text + header.len : "");
    for (int i = 0; i < p->n; i++) {
        bool found;
        const int at = position(c, p->value[i].name, &found);
        if (!found) {
            lvni_core_str wider = {0};
            insert_cells(lvni_core_str_text(&body), at, c->n, &wider);
            lvni_core_str_free(&body);
            body = wider;
            LVNI_TRY_DONE(s, insert_column(c, at, p->value[i].name));
        }
    }
    s = replace(c, &body);
done:
    lvni_core_str_free(&header);
    lvni_core_str_free(&body);
    lvni_core_free(text);
    return s;
}

static void fill(const csv *c, const char *name, double value)
{
    bool found;
    const int at = position(c, name, &found);
    c->cell[at] = value;
    c->filled[at] = true;
}

static lvn_status write_row(void *logger, const lvni_log_point *p)
{
    csv *c = logger;
    LVN_TRY(has_all(c, p) ? LVN_OK : add_columns(c, p));
    memset(c->filled, 0, (size_t)c->n * sizeof *c->filled);
    fill(c, "epoch", (double)p->epoch);
    fill(c, "step", (double)p->step);
    fill(c, "time_s", p->time_s);
    for (int i = 0; i < p->n; i++) {
        fill(c, p->value[i].name, p->value[i].value);
    }
    lvni_core_str_clear(&c->row);
    for (int i = 0; i < c->n; i++) {
        if (c->filled[i]) {
            lvni_core_str_double(&c->row, c->cell[i]);
        }
        lvni_core_str_char(&c->row, i + 1 < c->n ? ',' : '\n');
    }
    LVN_TRY(lvni_core_str_status(&c->row));
    return lvni_core_append_write(c->fd, c->path, lvni_core_str_text(&c->row), c->row.len);
}

const lvni_log_logger_class lvni_log_csv_class = {
    .name = "csv", .create = create_csv, .scalars = write_row, .destroy = destroy_csv};
