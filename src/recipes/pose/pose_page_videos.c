/* The videos of a run on its page (pose_page.h): a table of them, and of those with the most jumps
 * the traces of their keypoints over time. A jump is a keypoint that moves further from one frame
 * to the next than losses.temporal.epsilon has it. Each table of predictions is read once, and
 * again those that are drawn. */
#include "recipes/pose/pose_page.h"

#include "core/alloc.h"
#include "core/config.h"
#include "core/error.h"
#include "core/vfs.h"
#include "recipes/pose/pose_table.h"
#include "report/chart.h"
#include "report/page.h"
#include "report/run_page.h"
#include "run/output_file.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = 100, DRAWN = 3, TRACES = 6 /* of a video */, MARKS = 400 };
/* Of all tables: a few seconds. */
static const size_t MOST_BYTES = (size_t)1 << 27;
static const double epsilon_default = 20.0; /* pixels */

typedef struct video {
    char *name; /* without its ending */
    int64_t frames, points, jumps, unsure;
    double confidence; /* a sum over the points */
    double farthest;   /* pixels from one frame to the next */
    int64_t at;        /* the frame in which it ends */
    bool whole;        /* false: of the first frames alone */
    bool unread;       /* it cannot be read, and the page has the reason */
    int n_traces;
    int trace[TRACES];      /* the keypoints with the most jumps */
    int64_t traced[TRACES]; /* how many they have */
} video;

typedef struct videos {
    video *list;
    int64_t n, room;
    double *epsilon;
    size_t n_epsilon; /* 0: the default */
} videos;

/* ---- which there are ---- */

/* Of the tables of errors that stand beside a video's own. */
static bool is_errors(const char *name)
{
    static const char *const endings[] = {"_temporal_norm.csv", "_pca_singleview_error.csv",
                                          "_pca_multiview_error.csv"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (lvni_run_output_ends_in(name, endings[i], strlen(endings[i]))) {
            return true;
        }
    }
    return false;
}

static lvn_status add_video(videos *v, const char *file)
{
    if (v->n == v->room) {
        const size_t room = v->room > 0 ? 2 * (size_t)v->room : 64;
        video *list = lvni_core_realloc(LVNI_TAG_DATA, v->list, room * sizeof *list);
        if (list == NULL) {
            return LVN_ERR_MEMORY;
        }
        v->list = list;
        v->room = (int64_t)room;
    }
    char *name = lvni_core_strdup(LVNI_TAG_DATA, file);
    if (name == NULL) {
        return LVN_ERR_MEMORY;
    }
    name[strlen(name) - strlen(".csv")] = '\0';
    v->list[v->n++] = (video){.name = name, .whole = true};
    return LVN_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const video *)a)->name, ((const video *)b)->name);
}

static lvn_status list_videos(const char *folder, videos *v)
{
    lvn_status s = LVN_OK;
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir != NULL && s == LVN_OK && (e = readdir(dir)) != NULL;) {
        if (lvni_run_output_ends_in(e->d_name, ".csv", strlen(".csv")) && !is_errors(e->d_name)) {
            s = add_video(v, e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    if (v->n > 1) {
        qsort(v->list, (size_t)v->n, sizeof *v->list, by_name);
    }
    return s;
}

static void free_videos(videos *v)
{
    for (int64_t i = 0; i < v->n; i++) {
        lvni_core_free(v->list[i].name);
    }
    lvni_core_free(v->list);
    lvni_core_free(v->epsilon);
}

/* "[20, 15]" of config.yaml; the default where it is not a list of numbers. */
static lvn_status read_epsilon(const char *config, videos *v)
{
    lvni_core_str text = {0};
    if (lvni_report_config_value(config, "losses.temporal.epsilon", &text) && text.data[0] == '[') {
        v->epsilon = lvni_core_calloc(LVNI_TAG_DATA, text.len, sizeof *v->epsilon);
        char *p = text.data + 1;
        for (char *end; v->epsilon != NULL; p = end + strspn(end, ", ")) {
            const double value = lvni_core_strtod(p, &end);
            if (end == p || !(value >= 0.0)) {
                break;
            }
            v->epsilon[v->n_epsilon++] = value;
        }
        if (v->epsilon == NULL) {
            lvni_core_str_free(&text);
            return LVN_ERR_MEMORY;
        }
    }
    const lvn_status s = lvni_core_str_status(&text);
    lvni_core_str_free(&text);
    return s;
}

static double epsilon_of(const videos *v, int k)
{
    const double one = v->n_epsilon == 0           ? epsilon_default
                       : (size_t)k >= v->n_epsilon ? v->epsilon[0]
                                                   : v->epsilon[k];
    return one > 0.0 ? one : epsilon_default;
}

static void write_epsilon(const videos *v, lvni_core_str *out)
{
    size_t zeros = 0;
    for (size_t i = 0; i < v->n_epsilon; i++) {
        zeros += v->epsilon[i] > 0.0 ? 0 : 1;
    }
    if (v->n_epsilon > 1 && zeros < v->n_epsilon) {
        lvni_core_str_append(out, "Jumps are moves of more pixels from one frame to the next than "
                                  "losses.temporal.epsilon has for the keypoint");
    } else {
        lvni_core_str_printf(out,
                             "Jumps are moves of more than %g pixels from one frame to the "
                             "next (losses.temporal.epsilon",
                             epsilon_of(v, 0));
        lvni_core_str_append(out, zeros > 0 ? " is 0)" : ")");
        zeros = 0;
    }
    if (zeros > 0) {
        lvni_core_str_printf(out, ", or than %g where that is 0", epsilon_default);
    }
    lvni_core_str_append(out, ".");
}

/* ---- reading one ---- */

/* What reading a table finds. */
typedef struct scan {
    const videos *of;
    video *video;
    int k;
    char **keypoint;                           /* (k) */
    double *last;                              /* (k, 2) of the frame before */
    int64_t *jumps;                            /* (k) */
    int64_t frame;                             /* now */
    lvni_report_series *x[TRACES], *y[TRACES]; /* of the video's traces; NULL: nothing is traced */
    bool mark[TRACES][MARKS];                  /* jumps, in so many parts of the video */
} scan;

static lvn_status begin_scan(void *user, int k, const char *const *keypoint)
{
    scan *s = user;
    s->keypoint = lvni_core_calloc(LVNI_TAG_DATA, (size_t)k, sizeof *s->keypoint);
    s->last = lvni_core_calloc(LVNI_TAG_DATA, (size_t)k, 2 * sizeof *s->last);
    s->jumps = lvni_core_calloc(LVNI_TAG_DATA, (size_t)k, sizeof *s->jumps);
    if (s->keypoint == NULL || s->last == NULL || s->jumps == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (s->k = 0; s->k < k; s->k++) {
        s->keypoint[s->k] = lvni_core_strdup(LVNI_TAG_DATA, keypoint[s->k]);
        if (s->keypoint[s->k] == NULL) {
            return LVN_ERR_MEMORY;
        }
        s->last[2 * s->k] = s->last[2 * s->k + 1] = (double)NAN;
    }
    return LVN_OK;
}

static void end_scan(scan *s)
{
    for (int k = 0; k < s->k; k++) {
        lvni_core_free(s->keypoint[k]);
    }
    for (int i = 0; i < TRACES; i++) {
        lvni_core_free(s->x[i]);
        lvni_core_free(s->y[i]);
    }
    lvni_core_free(s->keypoint);
    lvni_core_free(s->last);
    lvni_core_free(s->jumps);
}

/* From the frame before; NaN where the point is missing in one of the two. */
static double step_of(const scan *s, int k, const double value[3])
{
    const double dx = value[0] - s->last[2 * k], dy = value[1] - s->last[2 * k + 1];
    return sqrt(dx * dx + dy * dy);
}

static void count_point(scan *s, int k, const double value[3])
{
    video *v = s->video;
    const double step = step_of(s, k, value);
    if (!isnan(value[2])) {
        v->points++;
        v->confidence += value[2];
        v->unsure += value[2] < 0.5;
    }
    if (step > v->farthest) {
        v->farthest = step;
        v->at = s->frame;
    }
    s->jumps[k] += step > epsilon_of(s->of, k);
    v->jumps += step > epsilon_of(s->of, k);
}

static lvn_status count_row(void *user, const lvni_pose_table_row *row)
{
    scan *s = user;
    for (int k = 0; k < s->k; k++) {
        count_point(s, k, row->value + 3 * k);
        s->last[2 * k] = row->value[3 * k];
        s->last[2 * k + 1] = row->value[3 * k + 1];
    }
    s->frame++;
    s->video->frames++;
    return LVN_OK;
}

static lvn_status trace_row(void *user, const lvni_pose_table_row *row)
{
    scan *s = user;
    if (s->frame >= s->video->frames) { /* a table that has grown meanwhile */
        return LVN_OK;
    }
    for (int i = 0; i < s->video->n_traces; i++) {
        const int k = s->video->trace[i];
        if (k >= s->k) { /* a table that was written again meanwhile */
            continue;
        }
        const double *value = row->value + 3 * k;
        if (step_of(s, k, value) > epsilon_of(s->of, k)) {
            s->mark[i][s->frame * MARKS / s->video->frames] = true;
        }
        s->last[2 * k] = value[0];
        s->last[2 * k + 1] = value[1];
        if (!isnan(value[0]) && !isnan(value[1])) {
            lvni_report_series_add(s->x[i], s->frame, value[0]);
            lvni_report_series_add(s->y[i], s->frame, value[1]);
        }
    }
    s->frame++;
    return LVN_OK;
}

static lvn_status read_video(const char *folder, scan *s,
                             lvn_status (*row)(void *user, const lvni_pose_table_row *row),
                             size_t *budget)
{
    const lvni_pose_table_reader reader = {.begin = begin_scan, .row = row, .user = s};
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/%s.csv", folder, s->video->name);
    lvn_status status = lvni_core_str_status(&path);
    if (status == LVN_OK) {
        status = lvni_pose_table_read(lvni_core_str_text(&path), &reader, budget, &s->video->whole);
    }
    lvni_core_str_free(&path);
    return status;
}

/* ---- the table ---- */

/* Of equally many jumps the first keypoint. */
static void choose_traces(const scan *s)
{
    video *v = s->video;
    for (int k = 0; k < s->k; k++) {
        int place = v->n_traces;
        while (place > 0 && v->traced[place - 1] < s->jumps[k]) {
            place--;
        }
        if (place == TRACES) {
            continue;
        }
        v->n_traces += v->n_traces < TRACES;
        for (int i = v->n_traces - 1; i > place; i--) {
            v->trace[i] = v->trace[i - 1];
            v->traced[i] = v->traced[i - 1];
        }
        v->trace[place] = k;
        v->traced[place] = s->jumps[k];
    }
}

/* *read: how many there was time for. */
static lvn_status count_videos(const char *folder, videos *v, int64_t *read, lvni_core_str *out)
{
    size_t budget = MOST_BYTES;
    for (*read = 0; *read < v->n && budget > 0; ++*read) {
        video *one = &v->list[*read];
        scan s = {.of = v, .video = one};
        const lvn_status status = read_video(folder, &s, count_row, &budget);
        choose_traces(&s);
        end_scan(&s);
        one->unread = status != LVN_OK;
        LVN_TRY(lvni_pose_page_report(status, one->name, out));
    }
    return LVN_OK;
}

static double rate_of(const video *v)
{
    return v->frames > 0 && !v->unread ? (double)v->jumps / (double)v->frames : -1.0;
}

/* The most jumps in a frame first. */
static int by_jumps(const void *a, const void *b)
{
    const double x = rate_of(a), y = rate_of(b);
    return x < y ? 1 : x > y ? -1 : by_name(a, b);
}

static void write_video_row(const video *v, lvni_core_str *out)
{
    lvni_core_str_append(out, "<tr><th>");
    lvni_report_escape(out, v->name);
    lvni_core_str_printf(out, "</th><td class=n>%s%lld</td>", v->whole ? "" : "the first ",
                         (long long)v->frames);
    lvni_pose_page_cell(out, v->points > 0 ? v->confidence / (double)v->points : (double)NAN);
    lvni_core_str_printf(out, "<td class=n>%.1f %%</td><td class=n>%lld</td>",
                         v->points > 0 ? 100.0 * (double)v->unsure / (double)v->points : 0.0,
                         (long long)v->jumps);
    lvni_core_str_printf(out, "<td class=n>%.1f</td><td class=\"n soft\">frame %lld</td></tr>\n",
                         v->farthest, (long long)v->at);
}

static void write_table(const videos *v, int64_t read, lvni_core_str *out)
{
    const int64_t shown = read < LISTED ? read : LISTED;
    lvni_core_str_append(out, "<p class=soft>");
    write_epsilon(v, out);
    lvni_core_str_append(out, " The videos with the most jumps of a frame come first.");
    if (shown < v->n) {
        lvni_core_str_printf(out, " Of %lld videos %lld are shown, of %lld that were read.",
                             (long long)v->n, (long long)shown, (long long)read);
    }
    lvni_core_str_append(out, "</p>\n<div class=wide><table>\n<tr><th>video</th><th>frames</th>"
                              "<th>mean confidence</th><th>below 0.5</th><th>jumps</th>"
                              "<th colspan=2>farthest, pixels</th></tr>\n");
    for (int64_t i = 0; i < shown; i++) {
        if (!v->list[i].unread) {
            write_video_row(&v->list[i], out);
        }
    }
    lvni_core_str_append(out, "</table></div>\n");
}

/* ---- traces ---- */

static lvn_status begin_traces(scan *s)
{
    for (int i = 0; i < s->video->n_traces; i++) {
        s->x[i] = LVNI_NEW(LVNI_TAG_DATA, lvni_report_series);
        s->y[i] = LVNI_NEW(LVNI_TAG_DATA, lvni_report_series);
        if (s->x[i] == NULL || s->y[i] == NULL) {
            return LVN_ERR_MEMORY;
        }
        s->x[i]->width = s->y[i]->width = 1;
        snprintf(s->x[i]->name, sizeof s->x[i]->name, "x");
        snprintf(s->y[i]->name, sizeof s->y[i]->name, "y");
    }
    return LVN_OK;
}

static void write_trace(const scan *s, int i, lvni_core_str *out)
{
    const video *v = s->video;
    const lvni_report_series *x = s->x[i];
    if (v->trace[i] >= s->k) {
        return;
    }
    double at[MARKS];
    char name[32];
    lvni_report_chart chart = {.title = s->keypoint[v->trace[i]],
                               .x_label = "frame",
                               .mark = at,
                               .mark_name = name,
                               .line = {x, s->y[i]},
                               .n = 2};
    for (int m = 0; m < MARKS && x->n > 0; m++) {
        const double frame = (m + 0.5) / MARKS * (double)v->frames;
        if (s->mark[i][m]) { /* within the range of the line */
            at[chart.n_marks++] = fmin(fmax(frame, (double)x->first.step), (double)x->last.step);
        }
    }
    snprintf(name, sizeof name, "%lld jump%s", (long long)v->traced[i],
             lvni_core_plural(v->traced[i], "", "s"));
    lvni_report_chart_write(&chart, out);
}

static lvn_status draw_video(const char *folder, const videos *v, video *one, lvni_core_str *out)
{
    scan *s = LVNI_NEW(LVNI_TAG_DATA, scan);
    size_t budget = MOST_BYTES;
    if (s == NULL) {
        return LVN_ERR_MEMORY;
    }
    s->of = v;
    s->video = one;
    lvn_status status = begin_traces(s);
    const bool was_whole = one->whole;
    if (status == LVN_OK) {
        status = read_video(folder, s, trace_row, &budget);
        one->whole = was_whole;
    }
    if (status == LVN_OK) {
        lvni_core_str_append(out, "<h3>");
        lvni_report_escape(out, one->name);
        lvni_core_str_append(out, "</h3>\n");
        if (s->k > one->n_traces) {
            lvni_core_str_printf(out,
                                 "<p class=soft>Of %d keypoints the %d with the most jumps; x and "
                                 "y are pixels of the frame.</p>\n",
                                 s->k, one->n_traces);
        }
        lvni_core_str_append(out, "<div class=charts>\n");
        for (int i = 0; i < one->n_traces; i++) {
            write_trace(s, i, out);
        }
        lvni_core_str_append(out, "</div>\n");
    }
    end_scan(s);
    lvni_core_free(s);
    return lvni_pose_page_report(status, one->name, out);
}

/* ---- the section ---- */

static lvn_status write_videos(const char *folder, videos *v, lvni_core_str *out)
{
    int64_t read;
    lvni_report_heading(out, "Videos");
    LVN_TRY(count_videos(folder, v, &read, out));
    qsort(v->list, (size_t)read, sizeof *v->list, by_jumps);
    write_table(v, read, out);
    for (int64_t i = 0; i < read && i < DRAWN; i++) {
        if (v->list[i].frames > 1 && !v->list[i].unread) {
            LVN_TRY(draw_video(folder, v, &v->list[i], out));
        }
    }
    if (read > DRAWN) {
        lvni_core_str_printf(out, "<p class=soft>Traces of the other %lld are not drawn.</p>\n",
                             (long long)(v->n - DRAWN));
    }
    return lvni_core_str_status(out);
}

lvn_status lvni_pose_page_videos(const char *run, const char *config, lvni_core_str *out)
{
    videos v = {.n = 0};
    lvni_core_str folder = {0};
    lvn_status s;
    lvni_core_str_printf(&folder, "%s/video_preds", run);
    LVNI_TRY_DONE(s, lvni_core_str_status(&folder));
    LVNI_TRY_DONE(s, list_videos(lvni_core_str_text(&folder), &v));
    LVNI_TRY_DONE(s, read_epsilon(config, &v));
    s = v.n > 0 ? write_videos(lvni_core_str_text(&folder), &v, out) : LVN_OK;
done:
    free_videos(&v);
    lvni_core_str_free(&folder);
    return s;
}
