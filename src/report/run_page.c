/* The page of a run (run_page.h). */
#include "report/run_page.h"

#include "core/alloc.h"
#include "core/config.h"
#include "core/error.h"
#include "core/vfs.h"
#include "data/image.h"
#include "report/chart.h"
#include "report/log_text.h"
#include "report/page.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t MOST_CONFIG = (size_t)1 << 22;

typedef enum file_state { ABSENT, UNREADABLE, WAS_READ } file_state;

/* The files of a run; those that are not there, or cannot be read, are empty. */
typedef struct run {
    const char *folder;
    lvni_report_metrics metrics;
    lvni_report_log log;
    char *config;
    file_state has_metrics, has_log, has_config;
    lvni_core_str warnings; /* paragraphs: what cannot be read */
} run;

/* ---- reading ---- */

/* A file that is not there is left out, one that cannot be read is a warning: the page has what
 * the others hold. */
static lvn_status allow_damaged(run *r, lvn_status s, file_state *state)
{
    *state = s == LVN_OK ? WAS_READ : s == LVN_ERR_NOT_FOUND ? ABSENT : UNREADABLE;
    if (s == LVN_OK || s == LVN_ERR_MEMORY) {
        return s;
    }
    if (*state == UNREADABLE) {
        lvni_core_str_append(&r->warnings, "<p>Warning: ");
        lvni_report_escape(&r->warnings, lvn_last_error()->message);
        lvni_core_str_append(&r->warnings, "</p>\n");
    }
    lvn_clear_error();
    return lvni_core_str_status(&r->warnings);
}

static lvn_status read_run(const char *folder, lvni_core_str *path, run *r)
{
    size_t n;
    r->folder = folder;
    lvni_core_str_printf(path, "%s/metrics.jsonl", folder);
    LVN_TRY(lvni_core_str_status(path));
    LVN_TRY(allow_damaged(r, lvni_report_metrics_read(lvni_core_str_text(path), &r->metrics),
                          &r->has_metrics));
    lvni_core_str_clear(path);
    lvni_core_str_printf(path, "%s/train.log", folder);
    LVN_TRY(lvni_core_str_status(path));
    LVN_TRY(allow_damaged(r, lvni_report_log_read(lvni_core_str_text(path), &r->log), &r->has_log));
    lvni_core_str_clear(path);
    lvni_core_str_printf(path, "%s/config.yaml", folder);
    LVN_TRY(lvni_core_str_status(path));
    LVN_TRY(allow_damaged(
        r, lvni_core_regular_read(lvni_core_str_text(path), MOST_CONFIG, &r->config, &n),
        &r->has_config));
    if (r->has_config == WAS_READ) { /* what there is of it is shown */
        file_state form;
        LVN_TRY(allow_damaged(
            r, lvni_core_config_check_yaml(lvni_core_str_text(path), r->config, n), &form));
    }
    if (r->has_metrics == ABSENT && r->has_log == ABSENT && r->has_config == ABSENT) {
        LVN_FAIL(
            LVN_ERR_NOT_FOUND,
            "%s holds no config.yaml, train.log or metrics.jsonl: give the directory of a run, "
            "as out/NAME",
            folder);
    }
    return LVN_OK;
}

static void free_run(run *r)
{
    lvni_report_metrics_free(&r->metrics);
    lvni_report_log_free(&r->log);
    lvni_core_free(r->config);
    lvni_core_str_free(&r->warnings);
}

/* ---- configuration ---- */

/* The next "key: value" of *lines, which moves on; false: the end. Comments are left out. */
static bool next_pair(const char **lines, lvni_core_str *key, lvni_core_str *value)
{
    while (**lines != '\0') {
        const char *line = *lines, *end = line + strcspn(line, "\n");
        const char *colon = memchr(line, ':', (size_t)(end - line));
        *lines = *end == '\n' ? end + 1 : end;
        if (line[0] == '#' || colon == NULL || colon == line) {
            continue;
        }
        const char *from = colon + 1, *to = end;
        from += from < to && *from == ' ';
        const bool quoted = to - from >= 2 && *from == '"' && to[-1] == '"';
        from += quoted;
        to -= quoted;
        lvni_core_str_clear(key);
        lvni_core_str_clear(value);
        lvni_core_str_append_n(key, line, (size_t)(colon - line));
        for (; from < to; from++) {
            from += quoted && *from == '\\' && (from[1] == '"' || from[1] == '\\');
            lvni_core_str_char(value, *from);
        }
        return true;
    }
    return false;
}

bool lvni_report_config_value(const char *lines, const char *key, lvni_core_str *value)
{
    lvni_core_str name = {0};
    bool found = false;
    while (lines != NULL && !found && next_pair(&lines, &name, value)) {
        found = strcmp(lvni_core_str_text(&name), key) == 0;
    }
    lvni_core_str_free(&name);
    return found;
}

static void write_config_rows(const char *config, const char *defaults, bool changed,
                              lvni_core_str *out)
{
    lvni_core_str key = {0}, value = {0}, other = {0};
    while (next_pair(&config, &key, &value)) {
        const char *now = lvni_core_str_text(&value);
        const bool known = lvni_report_config_value(defaults, lvni_core_str_text(&key), &other);
        const bool differs = known && strcmp(now, lvni_core_str_text(&other)) != 0;
        if (differs != changed) {
            continue;
        }
        lvni_core_str_append(out, "<tr><th>");
        lvni_report_escape(out, lvni_core_str_text(&key));
        lvni_core_str_append(out, "</th><td>");
        lvni_report_escape(out, now);
        if (differs) {
            lvni_core_str_append(out, "</td><td class=soft>");
            lvni_report_escape(out, lvni_core_str_text(&other));
        }
        lvni_core_str_append(out, "</td></tr>\n");
    }
    lvni_core_str_free(&key);
    lvni_core_str_free(&value);
    lvni_core_str_free(&other);
}

static void write_config(const run *r, const char *defaults, lvni_core_str *out)
{
    if (r->has_config != WAS_READ) {
        return;
    }
    lvni_report_heading(out, "Configuration");
    if (defaults != NULL) {
        lvni_core_str_append(out, "<p class=soft>What differs from the defaults, beside them; "
                                  "auto: chosen at the start.</p>\n"
                                  "<div class=wide><table>\n");
        write_config_rows(r->config, defaults, true, out);
        lvni_core_str_append(out, "</table></div>\n");
    }
    lvni_core_str_append(out, defaults != NULL ? "<details><summary>All other keys</summary>"
                                               : "<details open><summary>All keys</summary>");
    lvni_core_str_append(out, "<div class=wide><table>\n");
    write_config_rows(r->config, defaults, false, out);
    lvni_core_str_append(out, "</table></div></details>\n");
}

/* ---- how it went ---- */

static void write_state(const run *r, lvni_core_str *out)
{
    const lvni_report_log *log = &r->log;
    const lvni_report_metrics *m = &r->metrics;
    lvni_core_str_append(out, "<p>");
    if (log->done) {
        lvni_core_str_append(out, "Finished");
    } else if (log->error != NULL) {
        lvni_core_str_append(out, "Failed: ");
        lvni_report_escape(out, log->error);
    } else if (log->stopped != NULL) {
        lvni_core_str_append(out, "Stopped: ");
        lvni_report_escape(out, log->stopped + strlen("stopped: "));
    } else {
        lvni_core_str_append(out, r->has_log == WAS_READ
                                      ? "No end in its log: it is running, or was killed"
                                  : r->has_log == ABSENT ? "It has no train.log"
                                                         : "Its train.log cannot be read");
    }
    lvni_core_str_append(out, "</p>\n");
    lvni_core_str_append(out, lvni_core_str_text(&r->warnings));
    lvni_core_str_append(out, "<p class=soft>");
    if (m->rows == 0) {
        lvni_core_str_append(out, "No metrics yet.");
    } else {
        lvni_core_str_printf(out,
                             "Step %lld, epoch %.0f, %.0f min %02.0f s of training; %lld "
                             "row%s of metrics.",
                             (long long)m->last_step, m->last_epoch, floor(m->seconds / 60.0),
                             floor(fmod(m->seconds, 60.0)), (long long)m->rows,
                             lvni_core_plural(m->rows, "", "s"));
    }
    if (m->damaged > 0) {
        lvni_core_str_printf(out, " %lld line%s of metrics.jsonl %s damaged.",
                             (long long)m->damaged, lvni_core_plural(m->damaged, "", "s"),
                             lvni_core_plural(m->damaged, "is", "are"));
    }
    if (m->left_out) {
        lvni_core_str_printf(out, " There are more than %d metrics: the first are shown.",
                             LVNI_REPORT_SERIES);
    }
    lvni_core_str_append(out, "</p>\n");
}

static bool ends(const char *text, const char *with)
{
    const size_t n = strlen(text), k = strlen(with);
    return n >= k && strcmp(text + n - k, with) == 0;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void write_cell(const lvni_report_value *v, bool step, lvni_report_unit unit,
                       lvni_core_str *out)
{
    lvni_core_str_append(out, "<td class=n>");
    lvni_report_number(out, v->value, unit);
    lvni_core_str_append(out, "</td>");
    if (step) {
        lvni_core_str_printf(out, "<td class=\"n soft\">step %lld</td>", (long long)v->step);
    }
}

/* Of epochs and validations: the last value, the least and the greatest. */
static void write_values(const run *r, lvni_core_str *out)
{
    bool begun = false;
    for (int i = 0; i < r->metrics.n; i++) {
        const lvni_report_series *s = r->metrics.series[i];
        if (s->n == 0 || ends(s->name, "_step") ||
            !(begins(s->name, "train/") || begins(s->name, "val/"))) {
            continue;
        }
        if (!begun) {
            lvni_report_heading(out, "Values");
            lvni_core_str_append(out, "<div class=wide><table>\n<tr><th></th><th>last</th>"
                                      "<th colspan=2>least</th><th colspan=2>greatest</th></tr>\n");
            begun = true;
        }
        lvni_core_str_append(out, "<tr><th>");
        lvni_report_escape(out, s->name);
        lvni_core_str_append(out, "</th>");
        write_cell(&s->last, false, lvni_report_unit_of(s->name), out);
        write_cell(&s->least, true, lvni_report_unit_of(s->name), out);
        write_cell(&s->most, true, lvni_report_unit_of(s->name), out);
        lvni_core_str_append(out, "</tr>\n");
    }
    lvni_core_str_append(out, begun ? "</table></div>\n" : "");
}

/* ---- charts ---- */

static void write_charts(const run *r, lvni_core_str *out)
{
    bool drawn[LVNI_REPORT_SERIES] = {false};
    lvni_report_chart chart;
    if (r->metrics.n == 0) {
        return;
    }
    lvni_report_heading(out, "Curves");
    lvni_core_str_append(out, "<div class=charts>\n");
    while (lvni_report_chart_next(&r->metrics, drawn, &chart)) {
        lvni_report_chart_write(&chart, out);
    }
    lvni_core_str_append(out, "</div>\n");
}

/* ---- images ---- */

enum { IMAGES = 4, IMAGE_BYTES = 1 << 19 }; /* of a page; of a file */

/* The last names of .png files, the last one first: by their steps. Returns how many there are in
 * all. */
static int last_images(const char *folder, char name[IMAGES][NAME_MAX + 1])
{
    int all = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (!ends(e->d_name, ".png")) {
            continue;
        }
        int at = all < IMAGES ? all : IMAGES;
        for (; at > 0 && strcmp(name[at - 1], e->d_name) < 0; at--) {
            if (at < IMAGES) {
                memcpy(name[at], name[at - 1], sizeof name[at]);
            }
        }
        if (at < IMAGES) {
            snprintf(name[at], sizeof name[at], "%s", e->d_name);
        }
        all++;
    }
    if (d != NULL) {
        closedir(d);
    }
    return all;
}

/* A file that is too large or not an image is left out. */
static void write_image(const char *folder, const char *name, lvni_core_str *out)
{
    lvni_core_str path = {0};
    char *png = NULL;
    size_t n = 0;
    lvni_core_str_printf(&path, "%s/%s", folder, name);
    if (lvni_core_str_status(&path) == LVN_OK &&
        lvni_core_regular_read(lvni_core_str_text(&path), IMAGE_BYTES, &png, &n) == LVN_OK &&
        lvni_data_png_is((const uint8_t *)png, n)) {
        lvni_report_png(out, png, n, name);
        lvni_core_str_append(out, "<figcaption class=soft>");
        lvni_report_escape(out, name);
        lvni_core_str_append(out, "</figcaption></figure>\n");
    }
    lvn_clear_error();
    lvni_core_free(png);
    lvni_core_str_free(&path);
}

/* Of the last validations, as gan draws them (docs/gan.md). */
static void write_images(const run *r, lvni_core_str *out)
{
    char name[IMAGES][NAME_MAX + 1];
    lvni_core_str folder = {0};
    lvni_core_str_printf(&folder, "%s/images", r->folder);
    const int all = lvni_core_str_status(&folder) == LVN_OK
                        ? last_images(lvni_core_str_text(&folder), name)
                        : 0;
    if (all > 0) {
        lvni_report_heading(out, "Images of the last validations");
        lvni_core_str_printf(out, "<p class=soft>images/: %d of %d</p>\n<div class=charts>\n",
                             all < IMAGES ? all : IMAGES, all);
    }
    for (int i = 0; i < all && i < IMAGES; i++) {
        write_image(lvni_core_str_text(&folder), name[i], out);
    }
    lvni_core_str_append(out, all > 0 ? "</div>\n" : "");
    lvni_core_str_free(&folder);
}

/* ---- the log ---- */

static void write_starts(const lvni_report_log *log, lvni_core_str *out)
{
    const int n = log->n_starts < LVNI_REPORT_STARTS ? log->n_starts : LVNI_REPORT_STARTS;
    if (n == 0) {
        return;
    }
    lvni_report_heading(out, "Starts");
    if (log->n_starts > n) {
        lvni_core_str_printf(out, "<p class=soft>The last %d of %d.</p>\n", n, log->n_starts);
    }
    lvni_core_str_append(out, "<div class=wide><table>\n");
    for (int i = 0; i < n; i++) {
        const lvni_report_start *s = &log->start[i];
        lvni_core_str_append(out, "<tr><th>");
        lvni_report_escape(out, s->time);
        lvni_core_str_append(out, "</th><td>");
        lvni_report_escape(out, s->version);
        if (s->resumed != NULL) {
            lvni_core_str_append(out, "<br>");
            lvni_report_escape(out, s->resumed);
        }
        lvni_core_str_append(out, "</td><td class=soft>");
        lvni_report_escape(out, s->end != NULL ? s->end : "");
        lvni_core_str_append(out, "</td></tr>\n");
    }
    lvni_core_str_append(out, "</table></div>\n");
}

static void write_messages(const lvni_report_log *log, lvni_core_str *out)
{
    if (log->n_messages == 0) {
        return;
    }
    lvni_report_heading(out, "Warnings and errors");
    lvni_core_str_append(out, "<ul>\n");
    for (int i = 0; i < log->n_messages; i++) {
        const lvni_report_message *m = &log->message[i];
        lvni_core_str_append(out, m->error ? "<li>error: " : "<li>");
        lvni_report_escape(out, m->text);
        if (m->n > 1) {
            lvni_core_str_printf(out, " <span class=soft>(%d times)</span>", m->n);
        }
        lvni_core_str_append(out, "</li>\n");
    }
    lvni_core_str_append(out, "</ul>\n");
    if (log->more_messages > 0) {
        lvni_core_str_printf(out, "<p class=soft>%d more are in train.log.</p>\n",
                             log->more_messages);
    }
}

static void write_machine(const lvni_report_log *log, lvni_core_str *out)
{
    if (log->n_first == 0) {
        return;
    }
    lvni_report_heading(out, "Data, model and machine of the last start");
    lvni_core_str_append(out, "<pre>");
    for (int i = 0; i < log->n_first; i++) {
        lvni_report_escape(out, log->first[i]);
        lvni_core_str_char(out, '\n');
    }
    lvni_core_str_append(out, "</pre>\n");
}

/* ---- all of it ---- */

void lvni_report_run_title(const char *folder, lvni_core_str *out)
{
    char whole[PATH_MAX];
    size_t n = strlen(folder), last;
    while (n > 1 && folder[n - 1] == '/') {
        n--;
    }
    for (last = n; last > 0 && folder[last - 1] != '/'; last--) {
    }
    const bool dots = (n - last == 1 && folder[last] == '.') ||
                      (n - last == 2 && strncmp(folder + last, "..", 2) == 0);
    if (dots && realpath(folder, whole) != NULL && whole[1] != '\0') {
        lvni_core_str_append(out, strrchr(whole, '/') + 1);
    } else {
        lvni_core_str_append_n(out, folder, n);
    }
}

static void write_page(const run *r, const char *title, const char *defaults, const char *sections,
                       lvni_core_str *out)
{
    lvni_report_page_begin(out, title);
    write_state(r, out);
    write_charts(r, out);
    write_images(r, out);
    lvni_core_str_append(out, sections != NULL ? sections : "");
    write_values(r, out);
    write_starts(&r->log, out);
    write_messages(&r->log, out);
    write_machine(&r->log, out);
    write_config(r, defaults, out);
    lvni_report_page_end(out);
}

lvn_status lvni_report_run_page(const char *folder, const char *defaults, const char *sections,
                                lvni_core_str *out)
{
    run *r = LVNI_NEW(LVNI_TAG_CORE, run);
    lvni_core_str path = {0}, title = {0};
    if (r == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s;
    LVNI_TRY_DONE(s, read_run(folder, &path, r));
    lvni_report_run_title(folder, &title);
    write_page(r, lvni_core_str_text(&title), defaults, sections, out);
    LVNI_TRY_DONE(s, lvni_core_str_status(&title));
    s = lvni_core_str_status(out);
done:
    free_run(r);
    lvni_core_free(r);
    lvni_core_str_free(&path);
    lvni_core_str_free(&title);
    return s;
}
