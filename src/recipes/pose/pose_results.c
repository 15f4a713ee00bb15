/* Tables of results (pose_results.h). Rows are put together in memory and written in pieces: a
 * video can have a million frames. */
#include "recipes/pose/pose_results.h"

#include "core/str.h"
#include "core/vfs.h"
#include "recipes/pose/pose_split.h"
#include "run/output_file.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PIECE = 1 << 16 };

/* ---- numbers ---- */

/* A number as 0.dddd * 10^point. */
typedef struct decimal {
    bool negative;
    char digits[24];
    int n, point;
} decimal;

/* The fewest digits that give the same value back, as a float or as a double. */
static decimal shortest(double value, bool single)
{
    decimal d = {.negative = signbit(value) != 0};
    char text[40];
    const bool small = fabs(value) < (single ? (double)FLT_MIN : DBL_MIN); /* fewer digits may do */
    for (int n = small ? 1 : single ? FLT_DIG : DBL_DIG;; n++) {
        lvni_core_format(text, sizeof text, "%.*e", n - 1, fabs(value));
        const double back = lvni_core_strtod(text, NULL);
        if (single ? (float)back == fabsf((float)value) : back == fabs(value)) {
            break;
        }
    }
    const char *exponent = strchr(text, 'e');
    for (const char *c = text; c < exponent; c++) {
        if (*c != '.') {
            d.digits[d.n++] = *c;
        }
    }
    while (d.n > 1 && d.digits[d.n - 1] == '0') {
        d.n--;
    }
    d.point = (int)strtol(exponent + 1, NULL, 10) + 1;
    return d;
}

/* As Python and NumPy print it: with a point, or an exponent where the number is below 1e-4 or from
 * 1e16 on. */
static void print_number(lvni_core_str *out, double value, bool single)
{
    if (isnan(value)) {
        return;
    }
    if (isinf(value)) {
        lvni_core_str_append(out, value < 0.0 ? "-inf" : "inf");
        return;
    }
    const decimal d = shortest(value, single);
    lvni_core_str_append(out, d.negative ? "-" : "");
    if (value != 0.0 && (fabs(value) < 1e-4 || fabs(value) >= 1e16)) {
        lvni_core_str_char(out, d.digits[0]);
        lvni_core_str_append(out, d.n > 1 ? "." : "");
        lvni_core_str_append_n(out, d.digits + 1, (size_t)d.n - 1);
        lvni_core_str_printf(out, "e%c%02d", d.point > 0 ? '+' : '-', abs(d.point - 1));
        return;
    }
    if (d.point <= 0) {
        lvni_core_str_append(out, "0.");
        lvni_core_str_append_n(out, "000", (size_t)-d.point);
    }
    for (int i = 0; i < d.n || i <= d.point; i++) {
        if (i > 0 && i == d.point) {
            lvni_core_str_char(out, '.');
        }
        lvni_core_str_char(out, i < d.n ? d.digits[i] : '0');
    }
}

/* ---- rows ---- */

typedef struct table {
    lvni_core_atomic_file *file;
    lvni_core_str text; /* not yet written */
} table;

static lvn_status flush(table *t)
{
    LVN_TRY(lvni_core_str_status(&t->text));
    LVN_TRY(lvni_core_atomic_write(t->file, lvni_core_str_text(&t->text), t->text.len));
    lvni_core_str_clear(&t->text);
    return LVN_OK;
}

/* Begins a header row: its name, then of each keypoint `columns` cells with what `cell` returns. */
static void print_head(lvni_core_str *out, const lvni_pose_predictions *p, const char *name,
                       int columns, const char *(*cell)(const lvni_pose_predictions *p, int i))
{
    lvni_core_str_append(out, name);
    for (int i = 0; i < p->k * columns; i++) {
        lvni_core_str_char(out, ',');
        lvni_run_csv_field(out, cell(p, i));
    }
}

static const char *scorer_of(const lvni_pose_predictions *p, int i)
{
    (void)i;
    return p->scorer;
}

static const char *keypoint_of(const lvni_pose_predictions *p, int i)
{
    return p->keypoint[i / 3];
}

static const char *coordinate_of(const lvni_pose_predictions *p, int i)
{
    static const char *const names[] = {"x", "y", "likelihood"};
    (void)p;
    return names[i % 3];
}

static const char *error_of(const lvni_pose_predictions *p, int i)
{
    return p->keypoint[i];
}

static void print_row_name(lvni_core_str *out, const lvni_pose_predictions *p, int64_t row)
{
    if (p->name != NULL) {
        lvni_run_csv_field(out, p->name[row]);
    } else {
        lvni_core_str_printf(out, "%lld", (long long)row);
    }
}

static void end_row(lvni_core_str *out, const lvni_pose_predictions *p, const char *cell)
{
    if (p->set != NULL) {
        lvni_core_str_char(out, ',');
        lvni_core_str_append(out, cell);
    }
    lvni_core_str_char(out, '\n');
}

/* What stands below the header: numbers of `value`, or where that is NULL of `error`. */
static lvn_status write_rows(table *t, const lvni_pose_predictions *p, const float *value,
                             const double *error)
{
    const int columns = value != NULL ? 3 * p->k : p->k;
    for (int64_t row = 0; row < p->n; row++) {
        print_row_name(&t->text, p, row);
        for (int i = 0; i < columns; i++) {
            const int64_t at = row * columns + i;
            lvni_core_str_char(&t->text, ',');
            print_number(&t->text, value != NULL ? (double)value[at] : error[at], value != NULL);
        }
        end_row(&t->text, p, p->set != NULL ? lvni_pose_set_name((lvni_pose_set)p->set[row]) : "");
        if (t->text.len >= PIECE) {
            LVN_TRY(flush(t));
        }
    }
    return flush(t);
}

/* The header stands in t->text. */
static lvn_status write_table(table *t, const char *path, const lvni_pose_predictions *p,
                              const float *value, const double *error)
{
    lvn_status s = lvni_core_atomic_open(path, &t->file);
    if (s == LVN_OK) {
        s = write_rows(t, p, value, error);
        if (s == LVN_OK) {
            s = lvni_core_atomic_commit(t->file);
        } else {
            lvni_core_atomic_abort(t->file);
        }
    }
    lvni_core_str_free(&t->text);
    return s;
}

lvn_status lvni_pose_write_predictions(const char *path, const lvni_pose_predictions *p)
{
    table t = {.file = NULL};
    print_head(&t.text, p, "scorer", 3, scorer_of);
    end_row(&t.text, p, "set");
    print_head(&t.text, p, "bodyparts", 3, keypoint_of);
    end_row(&t.text, p, "");
    print_head(&t.text, p, "coords", 3, coordinate_of);
    end_row(&t.text, p, "");
    return write_table(&t, path, p, p->value, NULL);
}

lvn_status lvni_pose_write_errors(const char *path, const lvni_pose_predictions *p,
                                  const double *error)
{
    table t = {.file = NULL};
    print_head(&t.text, p, "", 1, error_of);
    end_row(&t.text, p, "set");
    return write_table(&t, path, p, NULL, error);
}

/* ---- errors ---- */

void lvni_pose_pixel_error(const lvni_pose_predictions *p, const double *xy, double *error)
{
    for (int64_t i = 0; i < p->n * p->k; i++) {
        const double dx = (double)p->value[3 * i] - xy[2 * i],
                     dy = (double)p->value[3 * i + 1] - xy[2 * i + 1];
        error[i] = sqrt(dx * dx + dy * dy); /* a missing label is NaN, and so is this */
    }
}

void lvni_pose_temporal_norm(const lvni_pose_predictions *p, double *error)
{
    for (int64_t i = 0; i < p->n * p->k; i++) {
        if (i < p->k) {
            error[i] = (double)NAN;
            continue;
        }
        const float *now = p->value + 3 * i, *before = now - 3 * p->k;
        const double dx = (double)now[0] - (double)before[0],
                     dy = (double)now[1] - (double)before[1];
        error[i] = sqrt(dx * dx + dy * dy);
    }
}

/* ---- tables that are there ---- */

static bool is_before(const struct stat *a, const struct stat *b)
{
    return a->st_mtim.tv_sec != b->st_mtim.tv_sec ? a->st_mtim.tv_sec < b->st_mtim.tv_sec
                                                  : a->st_mtim.tv_nsec < b->st_mtim.tv_nsec;
}

bool lvni_pose_is_written(const char *path, const char *run, const char *data)
{
    static const char *const models[] = {"best", "last"};
    struct stat own, other;
    bool is = stat(path, &own) == 0 && stat(data, &other) == 0 && !is_before(&own, &other);
    for (size_t i = 0; is && i < sizeof models / sizeof *models; i++) {
        lvni_core_str model = {0};
        lvni_core_str_printf(&model, "%s/exported_models/exported_%s.safetensors", run, models[i]);
        is = lvni_core_str_status(&model) == LVN_OK &&
             (stat(lvni_core_str_text(&model), &other) != 0 || !is_before(&own, &other));
        lvni_core_str_free(&model);
    }
    return is;
}
