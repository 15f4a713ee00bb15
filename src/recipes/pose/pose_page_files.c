/* The other label files of a run on its page (pose_page.h): CollectedData_new.csv, _test.csv, and
 * what `levin predict pose` measured, by the tables of errors that stand beside the predictions. */
#include "recipes/pose/pose_page.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "recipes/pose/pose_csv.h"
#include "report/page.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 50 };

typedef struct files {
    char *name[FILES]; /* "image_preds/other.csv/predictions", without "_pixel_error.csv" */
    int n;
    int64_t all;
} files;

static const char ending[] = "_pixel_error.csv";

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static lvn_status add_file(files *f, const char *folder, const char *name)
{
    lvni_core_str text = {0};
    f->all++;
    if (f->n == FILES) {
        return LVN_OK;
    }
    lvni_core_str_append(&text, folder);
    lvni_core_str_append(&text, name);
    f->name[f->n] = lvni_core_str_take(&text);
    if (f->name[f->n] == NULL) {
        return LVN_ERR_MEMORY;
    }
    f->n++;
    return LVN_OK;
}

/* Beside predictions.csv: predictions_new_pixel_error.csv. */
static lvn_status add_beside(files *f, const char *file)
{
    static const char first[] = "predictions_";
    const size_t n = strlen(file), k = sizeof ending - 1;
    char name[256];
    if (n <= k + sizeof first || n >= sizeof name || strcmp(file + n - k, ending) != 0 ||
        strncmp(file, first, sizeof first - 1) != 0) {
        return LVN_OK;
    }
    memcpy(name, file, n - k);
    name[n - k] = '\0';
    return add_file(f, "", name);
}

/* image_preds/NAME/predictions_pixel_error.csv */
static lvn_status add_below(files *f, const char *run, const char *folder)
{
    lvni_core_str path = {0}, name = {0};
    lvni_core_str_printf(&name, "%s/predictions", folder);
    lvni_core_str_printf(&path, "%s/image_preds/%s%s", run, lvni_core_str_text(&name), ending);
    lvn_status s = lvni_core_str_status(&path);
    if (s == LVN_OK && lvni_core_path_exists(lvni_core_str_text(&path))) {
        s = add_file(f, "image_preds/", lvni_core_str_text(&name));
    }
    lvni_core_str_free(&path);
    lvni_core_str_free(&name);
    return s;
}

static lvn_status list_files(const char *run, files *f)
{
    lvni_core_str below = {0};
    lvni_core_str_printf(&below, "%s/image_preds", run);
    lvn_status s = lvni_core_str_status(&below);
    for (int k = 0; k < 2 && s == LVN_OK; k++) {
        DIR *dir = opendir(k == 0 ? run : lvni_core_str_text(&below));
        for (const struct dirent *e; dir != NULL && s == LVN_OK && (e = readdir(dir)) != NULL;) {
            if (e->d_name[0] != '.') {
                s = k == 0 ? add_beside(f, e->d_name) : add_below(f, run, e->d_name);
            }
        }
        if (dir != NULL) {
            closedir(dir);
        }
    }
    lvni_core_str_free(&below);
    if (f->n > 1) {
        qsort(f->name, (size_t)f->n, sizeof *f->name, by_name);
    }
    return s;
}

/* ---- a table ---- */

/* Sorted errors of column c, 0: of all; a last column `set` has none. *n: how many. */
static void take_column(const lvni_pose_csv *csv, int64_t column, double *out, int64_t *n)
{
    *n = 0;
    for (int64_t row = 1; row < csv->n; row++) {
        for (int64_t c = 1; c < lvni_pose_csv_width(csv, row); c++) {
            const char *cell = lvni_pose_csv_at(csv, row, c);
            char *end;
            const double value = lvni_core_strtod(cell, &end);
            if ((column == 0 || c == column) && cell[0] != '\0' && *end == '\0' &&
                isfinite(value)) {
                out[(*n)++] = value;
            }
        }
    }
    if (*n > 1) {
        qsort(out, (size_t)*n, sizeof *out, lvni_pose_page_ascending);
    }
}

static void write_row(const char *name, const lvni_pose_csv *csv, double *room, lvni_core_str *out)
{
    int64_t n, worst = 0;
    double most = -1.0;
    for (int64_t c = 1; csv->n > 0 && c < lvni_pose_csv_width(csv, 0); c++) {
        take_column(csv, c, room, &n);
        const double mean = lvni_pose_page_mean(room, n);
        if (mean > most) {
            most = mean;
            worst = c;
        }
    }
    take_column(csv, 0, room, &n);
    lvni_core_str_append(out, "<tr><th>");
    lvni_report_escape(out, name);
    lvni_core_str_printf(out, "</th><td class=n>%lld</td><td class=n>%lld</td>",
                         (long long)(csv->n > 0 ? csv->n - 1 : 0), (long long)n);
    lvni_pose_page_cell(out, lvni_pose_page_mean(room, n));
    lvni_pose_page_cell(out, lvni_pose_page_quantile(room, n, 0.5));
    lvni_pose_page_cell(out, lvni_pose_page_quantile(room, n, 0.9));
    lvni_pose_page_cell(out, worst > 0 ? most : (double)NAN);
    lvni_core_str_append(out, "<td class=soft>");
    lvni_report_escape(out, worst > 0 ? lvni_pose_csv_at(csv, 0, worst) : "");
    lvni_core_str_append(out, "</td></tr>\n");
}

/* What cannot be read is a row with the reason. */
static lvn_status write_file(const char *run, const char *name, lvni_core_str *out)
{
    lvni_core_str path = {0};
    lvni_pose_csv csv = {0};
    double *room = NULL;
    lvn_status s;
    lvni_core_str_printf(&path, "%s/%s%s", run, name, ending);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_pose_csv_read(lvni_core_str_text(&path), &csv));
    room = lvni_core_calloc(LVNI_TAG_DATA, (size_t)csv.n_cells + 1, sizeof *room);
    if (room == NULL) {
        s = LVN_ERR_MEMORY;
        goto done;
    }
    write_row(name, &csv, room, out);
done:
    lvni_pose_csv_free(&csv);
    lvni_core_free(room);
    lvni_core_str_free(&path);
    if (s == LVN_OK || s == LVN_ERR_MEMORY) {
        return s;
    }
    lvni_core_str_append(out, "<tr><th>");
    lvni_report_escape(out, name);
    lvni_core_str_append(out, "</th><td colspan=7>");
    lvni_report_escape(out, lvn_last_error()->message);
    lvni_core_str_append(out, "</td></tr>\n");
    lvn_clear_error();
    return LVN_OK;
}

lvn_status lvni_pose_page_files(const char *run, lvni_core_str *out)
{
    files f = {.n = 0};
    lvn_status s = list_files(run, &f);
    if (s == LVN_OK && f.n > 0) {
        lvni_report_heading(out, "Other label files");
        if (f.all > f.n) {
            lvni_core_str_printf(out, "<p class=soft>%d of %lld.</p>\n", f.n, (long long)f.all);
        }
        lvni_core_str_append(out, "<div class=wide><table>\n<tr><th>pixels</th><th>frames</th>"
                                  "<th>labels</th><th>mean</th><th>median</th>"
                                  "<th>90 % are below</th><th colspan=2>the worst keypoint</th>"
                                  "</tr>\n");
        for (int i = 0; i < f.n && s == LVN_OK; i++) {
            s = write_file(run, f.name[i], out);
        }
        lvni_core_str_append(out, "</table></div>\n");
    }
    for (int i = 0; i < f.n; i++) {
        lvni_core_free(f.name[i]);
    }
    return s;
}
