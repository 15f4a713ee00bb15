/* The page of a run of the recipe pose (pose_page.h): errors of labelled frames by keypoint, and
 * against the confidence of the network. */
#include "recipes/pose/pose_page.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "recipes/pose/pose.h"
#include "recipes/pose/pose_split.h"
#include "recipes/pose/pose_table.h"
#include "report/dots.h"
#include "report/page.h"
#include "report/run_page.h"
#include "report/scatter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t MOST_CONFIG = (size_t)1 << 22, MOST_TABLE = (size_t)1 << 26;
enum { POINTS = 2000 /* of a drawing */ };

/* ---- shared by the parts of the page ---- */

lvn_status lvni_pose_page_report(lvn_status s, const char *what, lvni_core_str *out)
{
    if (s == LVN_OK || s == LVN_ERR_MEMORY) {
        return s;
    }
    lvni_core_str_append(out, "<p class=soft>");
    lvni_report_escape(out, what);
    lvni_core_str_append(out, ": ");
    lvni_report_escape(out, lvn_last_error()->message);
    lvni_core_str_append(out, "</p>\n");
    lvn_clear_error();
    return lvni_core_str_status(out);
}

int lvni_pose_page_ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double lvni_pose_page_quantile(const double *sorted, int64_t n, double part)
{
    if (n == 0) {
        return (double)NAN;
    }
    const double at = part * (double)(n - 1);
    const int64_t i = (int64_t)floor(at), next = i + 1 < n ? i + 1 : i;
    return sorted[i] + (at - (double)i) * (sorted[next] - sorted[i]);
}

double lvni_pose_page_mean(const double *value, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += value[i];
    }
    return n > 0 ? sum / (double)n : (double)NAN;
}

void lvni_pose_page_cell(lvni_core_str *out, double value)
{
    if (isnan(value)) {
        lvni_core_str_append(out, "<td class=n></td>");
    } else {
        lvni_core_str_printf(out, "<td class=n>%.2f</td>", value);
    }
}

/* ---- predictions and labels ---- */

static lvn_status keep_names(void *user, int k, const char *const *keypoint)
{
    lvni_pose_page_frames *f = user;
    f->keypoint = lvni_core_calloc(LVNI_TAG_DATA, (size_t)k, sizeof *f->keypoint);
    if (f->keypoint == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (f->k = 0; f->k < k; f->k++) {
        f->keypoint[f->k] = lvni_core_strdup(LVNI_TAG_DATA, keypoint[f->k]);
        if (f->keypoint[f->k] == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    return LVN_OK;
}

static lvn_status grow(lvni_pose_page_frames *f)
{
    const size_t room = f->room > 0 ? 2 * (size_t)f->room : 256, k = (size_t)f->k;
    char **name = lvni_core_realloc(LVNI_TAG_DATA, f->name, room * sizeof *name);
    f->name = name != NULL ? name : f->name;
    int8_t *set = lvni_core_realloc(LVNI_TAG_DATA, f->set, room * sizeof *set);
    f->set = set != NULL ? set : f->set;
    float *value = lvni_core_realloc(LVNI_TAG_DATA, f->value, room * 3 * k * sizeof *value);
    f->value = value != NULL ? value : f->value;
    if (name == NULL || set == NULL || value == NULL) {
        return LVN_ERR_MEMORY;
    }
    f->room = (int64_t)room;
    return LVN_OK;
}

static lvn_status keep_row(void *user, const lvni_pose_table_row *row)
{
    lvni_pose_page_frames *f = user;
    if (f->n == f->room) {
        LVN_TRY(grow(f));
    }
    f->name[f->n] = lvni_core_strdup(LVNI_TAG_DATA, row->name);
    if (f->name[f->n] == NULL) {
        return LVN_ERR_MEMORY;
    }
    f->set[f->n] = (int8_t)row->set;
    for (int i = 0; i < 3 * f->k; i++) {
        f->value[f->n * 3 * f->k + i] = (float)row->value[i];
    }
    f->n++;
    return LVN_OK;
}

static void free_frames(lvni_pose_page_frames *f)
{
    for (int i = 0; i < f->k; i++) {
        lvni_core_free(f->keypoint[i]);
    }
    for (int64_t i = 0; i < f->n; i++) {
        lvni_core_free(f->name[i]);
    }
    lvni_core_free(f->keypoint);
    lvni_core_free(f->name);
    lvni_core_free(f->set);
    lvni_core_free(f->value);
    lvni_core_free(f->xy);
    lvni_core_free(f->error);
}

/* Of the rows that are of the same image in both files. */
static void measure(lvni_pose_page_frames *f, const lvni_pose_labels *labels)
{
    for (int64_t i = 0; i < f->n * f->k; i++) {
        const int64_t row = i / f->k;
        const bool same = row < labels->n && strcmp(labels->image[row], f->name[row]) == 0;
        const double x = same ? labels->xy[2 * i] : (double)NAN,
                     y = same ? labels->xy[2 * i + 1] : (double)NAN,
                     dx = (double)f->value[3 * i] - x, dy = (double)f->value[3 * i + 1] - y;
        f->xy[2 * i] = x;
        f->xy[2 * i + 1] = y;
        f->error[i] = sqrt(dx * dx + dy * dy);
    }
}

/* The run's copy of the label file that its configuration names. */
static lvn_status read_labels(const char *run, const char *config, lvni_pose_page_frames *f)
{
    lvni_core_str file = {0}, path = {0};
    lvni_pose_labels labels = {0};
    lvn_status s;
    const bool named = lvni_report_config_value(config, "data.csv_file", &file);
    lvni_core_str_printf(&path, "%s/%s", run,
                         named ? lvni_pose_base_name(lvni_core_str_text(&file))
                               : "CollectedData.csv");
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_pose_labels_read(lvni_core_str_text(&path), &labels));
    LVNI_TRY_DONE(s, lvni_pose_labels_arrange(&labels, f->k, (const char *const *)f->keypoint));
    f->xy = lvni_core_calloc(LVNI_TAG_DATA, (size_t)f->n * (size_t)f->k, 2 * sizeof *f->xy);
    f->error = lvni_core_calloc(LVNI_TAG_DATA, (size_t)f->n * (size_t)f->k, sizeof *f->error);
    if (f->xy == NULL || f->error == NULL) {
        s = LVN_ERR_MEMORY;
        goto done;
    }
    measure(f, &labels);
done:
    lvni_pose_labels_free(&labels);
    lvni_core_str_free(&file);
    lvni_core_str_free(&path);
    return s;
}

/* ---- errors by keypoint ---- */

/* Columns of the table: the sets that have an error, or one for all. */
typedef struct groups {
    int n;
    int set[LVNI_POSE_SETS + 1]; /* -1: frames without one */
    const char *name[LVNI_POSE_SETS + 1];
} groups;

static groups find_groups(const lvni_pose_page_frames *f)
{
    groups g = {.n = 0};
    for (int set = 0; set <= LVNI_POSE_SETS; set++) {
        const int which = set < LVNI_POSE_SETS ? set : -1;
        bool found = false;
        for (int64_t i = 0; i < f->n * f->k && !found; i++) {
            found = f->set[i / f->k] == which && !isnan(f->error[i]);
        }
        if (found) {
            g.set[g.n] = which;
            g.name[g.n++] = which < 0 ? "all" : lvni_pose_set_name((lvni_pose_set)which);
        }
    }
    return g;
}

/* Of keypoint k, -1: of all; in frames of the set, -2: of any. Sorted; returns how many. */
static int64_t take_errors(const lvni_pose_page_frames *f, int k, int set, double *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < f->n * f->k; i++) {
        if ((k < 0 || i % f->k == k) && (set < -1 || f->set[i / f->k] == set) &&
            !isnan(f->error[i])) {
            out[n++] = f->error[i];
        }
    }
    qsort(out, (size_t)n, sizeof *out, lvni_pose_page_ascending);
    return n;
}

/* mean: (k, groups), for the drawing. */
static void write_errors_row(const lvni_pose_page_frames *f, const groups *g, int k, double *room,
                             double *mean, lvni_core_str *out)
{
    lvni_core_str_append(out, "<tr><th>");
    lvni_report_escape(out, k < 0 ? "all" : f->keypoint[k]);
    lvni_core_str_append(out, "</th>");
    for (int i = 0; i < g->n; i++) {
        const double value = lvni_pose_page_mean(room, take_errors(f, k, g->set[i], room));
        lvni_pose_page_cell(out, value);
        if (k >= 0) {
            mean[k * g->n + i] = value;
        }
    }
    const int64_t n = take_errors(f, k, -2, room);
    lvni_pose_page_cell(out, lvni_pose_page_quantile(room, n, 0.5));
    lvni_pose_page_cell(out, lvni_pose_page_quantile(room, n, 0.9));
    lvni_pose_page_cell(out, n > 0 ? room[n - 1] : (double)NAN);
    lvni_core_str_printf(out, "<td class=n>%lld</td></tr>\n", (long long)n);
}

static void write_errors(const lvni_pose_page_frames *f, const groups *g, double *room,
                         double *mean, lvni_core_str *out)
{
    lvni_core_str_append(out, "<div class=wide><table>\n<tr><th>pixels</th>");
    for (int i = 0; i < g->n; i++) {
        lvni_core_str_printf(out, "<th>mean, %s</th>", g->name[i]);
    }
    lvni_core_str_append(out, "<th>median</th><th>90 % are below</th><th>greatest</th>"
                              "<th>labels</th></tr>\n");
    for (int k = 0; k < f->k; k++) {
        write_errors_row(f, g, k, room, mean, out);
    }
    write_errors_row(f, g, -1, room, mean, out);
    lvni_core_str_append(out, "</table></div>\n");
}

static void draw_errors(const lvni_pose_page_frames *f, const groups *g, const double *mean,
                        lvni_core_str *out)
{
    const lvni_report_dots dots = {.title = "mean error by keypoint",
                                   .x_label = "pixels of the frame",
                                   .n = f->k,
                                   .name = (const char *const *)f->keypoint,
                                   .value = mean,
                                   .series = g->name,
                                   .n_series = g->n};
    lvni_report_dots_write(&dots, out);
}

/* ---- errors against confidence ---- */

static void write_confidence_row(const lvni_pose_page_frames *f, double from, double to,
                                 double *room, lvni_core_str *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < f->n * f->k; i++) {
        const double confidence = (double)f->value[3 * i + 2];
        if (!isnan(f->error[i]) && confidence >= from && confidence < to) {
            room[n++] = f->error[i];
        }
    }
    qsort(room, (size_t)n, sizeof *room, lvni_pose_page_ascending);
    if (isinf(to)) {
        lvni_core_str_printf(out, "<tr><th>%g and more</th>", from);
    } else {
        lvni_core_str_printf(out, "<tr><th>%g to %g</th>", from, to);
    }
    lvni_core_str_printf(out, "<td class=n>%lld</td>", (long long)n);
    lvni_pose_page_cell(out, lvni_pose_page_quantile(room, n, 0.5));
    lvni_pose_page_cell(out, lvni_pose_page_quantile(room, n, 0.9));
    lvni_core_str_append(out, "</tr>\n");
}

/* What the points are called while they are pointed at: "img05.png nose". */
enum { POINT_NAME = 96 };
typedef struct points {
    int n;
    double at[POINTS][2];
    int group[POINTS];
    const char *name[POINTS];
    char text[POINTS][POINT_NAME];
} points;

/* Evenly spaced where there are more than a drawing has room for. */
static void take_points(const lvni_pose_page_frames *f, const groups *g, int64_t all, points *p)
{
    int64_t seen = 0;
    for (int64_t i = 0; i < f->n * f->k; i++) {
        if (isnan(f->error[i])) {
            continue;
        }
        const int64_t at = seen++;
        if (all > POINTS && (at + 1) * POINTS / all == at * POINTS / all) {
            continue;
        }
        const int64_t row = i / f->k;
        p->at[p->n][0] = (double)f->value[3 * i + 2];
        p->at[p->n][1] = fmax(f->error[i], 0.01); /* on a logarithmic axis */
        for (int s = 0; s < g->n; s++) {
            p->group[p->n] = g->set[s] == f->set[row] ? s : p->group[p->n];
        }
        const char *base = lvni_pose_base_name(f->name[row]);
        snprintf(p->text[p->n], POINT_NAME, "%.*s %.*s", (int)lvni_core_utf8_cut(base, 44), base,
                 (int)lvni_core_utf8_cut(f->keypoint[i % f->k], 44), f->keypoint[i % f->k]);
        p->name[p->n] = p->text[p->n];
        p->n++;
    }
}

static lvn_status draw_confidence(const lvni_pose_page_frames *f, const groups *g, int64_t all,
                                  lvni_core_str *out)
{
    points *p = LVNI_NEW(LVNI_TAG_DATA, points);
    lvni_report_axis x, y;
    if (p == NULL) {
        return LVN_ERR_MEMORY;
    }
    take_points(f, g, all, p);
    lvni_report_axis_begin(&x, false);
    lvni_report_axis_begin(&y, true);
    lvni_report_axis_widen(&x, 0.0);
    lvni_report_axis_widen(&x, 1.0);
    for (int i = 0; i < p->n; i++) {
        lvni_report_axis_widen(&x, p->at[i][0]);
        lvni_report_axis_widen(&y, p->at[i][1]);
    }
    lvni_report_axis_end(&x, 0.02, 6);
    lvni_report_axis_end(&y, 0.02, 6);
    const lvni_report_scatter scatter = {.title = "error against confidence",
                                         .x_label = "confidence",
                                         .y_label = "error, pixels of the frame",
                                         .n = p->n,
                                         .at = (const double(*)[2])p->at,
                                         .x = &x,
                                         .y = &y,
                                         .name = p->name,
                                         .group = p->group,
                                         .group_name = g->name,
                                         .n_groups = g->n};
    lvni_report_scatter_write(&scatter, out);
    lvni_core_free(p);
    return LVN_OK;
}

static void write_confidence(const lvni_pose_page_frames *f, int64_t all, double *room,
                             lvni_core_str *out)
{
    static const double bound[] = {0.0, 0.1, 0.5, 0.9, (double)INFINITY};
    lvni_core_str_append(out, "<h3>Confidence</h3>\n<div class=wide><table>\n<tr><th>confidence"
                              "</th><th>points</th><th>median error</th><th>90 % are below</th>"
                              "</tr>\n");
    for (size_t i = 0; i + 1 < sizeof bound / sizeof *bound; i++) {
        write_confidence_row(f, bound[i], bound[i + 1], room, out);
    }
    lvni_core_str_append(out, "</table></div>\n");
    if (all > POINTS) {
        lvni_core_str_printf(out, "<p class=soft>The drawing has %d of %lld points.</p>\n",
                             (int)POINTS, (long long)all);
    }
}

/* ---- the sections ---- */

static lvn_status write_keypoints(const lvni_pose_page_frames *f, lvni_core_str *out)
{
    const groups g = find_groups(f);
    const size_t n = (size_t)f->n * (size_t)f->k;
    if (g.n == 0) {
        lvni_core_str_append(out, "<p class=soft>No label has a prediction beside it.</p>\n");
        return lvni_core_str_status(out);
    }
    double *room = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *room),
           *mean = lvni_core_calloc(LVNI_TAG_DATA, (size_t)f->k * (size_t)g.n, sizeof *mean);
    lvn_status s = room == NULL || mean == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK) {
        lvni_core_str_append(out, "<p class=soft>predictions.csv against the labels: distances in "
                                  "pixels of the frame, by the checkpoint with the least loss of "
                                  "the validation.</p>\n");
        write_errors(f, &g, room, mean, out);
        lvni_core_str_append(out, "<div class=charts>\n");
        draw_errors(f, &g, mean, out);
        const int64_t all = take_errors(f, -1, -2, room);
        s = draw_confidence(f, &g, all, out);
        lvni_core_str_append(out, "</div>\n");
        write_confidence(f, all, room, out);
    }
    lvni_core_free(room);
    lvni_core_free(mean);
    return s;
}

static lvn_status read_predictions(const char *run, lvni_pose_page_frames *f, lvni_core_str *path,
                                   lvni_core_str *out)
{
    const lvni_pose_table_reader reader = {.begin = keep_names, .row = keep_row, .user = f};
    size_t budget = MOST_TABLE;
    bool whole;
    lvni_core_str_printf(path, "%s/predictions.csv", run);
    LVN_TRY(lvni_core_str_status(path));
    LVN_TRY(lvni_pose_table_read(lvni_core_str_text(path), &reader, &budget, &whole));
    if (!whole) {
        lvni_core_str_printf(out, "<p class=soft>Of a large table the first %lld frames.</p>\n",
                             (long long)f->n);
    }
    return LVN_OK;
}

static lvn_status write_frames(const char *run, const char *config, lvni_core_str *out)
{
    lvni_pose_page_frames f = {.n = 0};
    lvni_core_str path = {0};
    lvn_status s;
    lvni_report_heading(out, "Keypoints");
    s = read_predictions(run, &f, &path, out);
    if (s == LVN_ERR_NOT_FOUND) {
        lvn_clear_error();
        lvni_core_str_append(out, "<p class=soft>There is no predictions.csv yet: it is written "
                                  "behind the end of the training.</p>\n");
        s = lvni_core_str_status(out);
        goto done;
    }
    if (s == LVN_OK) {
        s = read_labels(run, config, &f);
    }
    if (s != LVN_OK) {
        s = lvni_pose_page_report(s, "Errors are missing", out);
        goto done;
    }
    LVNI_TRY_DONE(s, write_keypoints(&f, out));
    s = lvni_pose_page_worst(&f, config, out);
done:
    free_frames(&f);
    lvni_core_str_free(&path);
    return s;
}

lvn_status lvni_pose_page(const char *run, lvni_core_str *out)
{
    lvni_core_str path = {0};
    char *config = NULL;
    size_t n;
    lvn_status s;
    lvni_core_str_printf(&path, "%s/config.yaml", run);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    s = lvni_core_regular_read(lvni_core_str_text(&path), MOST_CONFIG, &config, &n);
    if (s != LVN_OK && s != LVN_ERR_MEMORY) { /* the page has it as a warning */
        lvn_clear_error();
        s = LVN_OK;
    }
    LVNI_TRY_DONE(s, s);
    LVNI_TRY_DONE(s, write_frames(run, config, out));
    LVNI_TRY_DONE(s, lvni_pose_page_files(run, out));
    LVNI_TRY_DONE(s, lvni_pose_page_videos(run, config, out));
    s = lvni_core_str_status(out);
done:
    lvni_core_free(config);
    lvni_core_str_free(&path);
    return s;
}
