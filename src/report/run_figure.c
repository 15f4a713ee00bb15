/* The curves of a run as one figure (run_page.h): a panel for each chart of its page, drawn as
 * plot.c draws. */
#include "core/alloc.h"
#include "core/error.h"
#include "report/axis.h"
#include "report/chart.h"
#include "report/log_text.h"
#include "report/plot.h"
#include "report/run_page.h"

#include <math.h>
#include <string.h>

/* Units of the canvas. A panel has two pixels each: 24 of them are 3240 x 5504 pixels. */
enum { WIDTH = 540, HEIGHT = 336, HEAD = 64, PANELS = 24, EDGE = 16, TITLE = 20, TEXT = 14 };

/* What is drawn of a series: its buckets that have values. */
typedef struct points {
    double x[LVNI_REPORT_BUCKETS], y[LVNI_REPORT_BUCKETS], low[LVNI_REPORT_BUCKETS],
        high[LVNI_REPORT_BUCKETS];
    int64_t n;
    bool wide; /* some bucket has several values */
} points;

typedef struct figure {
    const char *folder;
    lvni_report_metrics metrics;
    lvni_report_log log;
    lvni_report_chart panel[PANELS];
    int n, left_out;
    double steps[2]; /* of all panels: one below the other they are compared by eye */
    points line[LVNI_REPORT_LINES]; /* of the panel that is drawn */
} figure;

/* ---- what there is ---- */

/* Of a run's load the number that is looked at; the page has the others, too. */
static bool is_shown(const lvni_report_chart *c)
{
    static const char memory[] = "memory", load[] = "throughput/";
    return strncmp(c->group, memory, sizeof memory - 1) != 0 &&
           (strncmp(c->group, load, sizeof load - 1) != 0 ||
            strcmp(c->group, "throughput/samples_per_s") == 0);
}

static void leave_out_empty(lvni_report_chart *c)
{
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        if (c->line[i]->n > 0) {
            c->line[n++] = c->line[i];
        }
    }
    c->n = n;
}

static void choose_panels(figure *f)
{
    bool drawn[LVNI_REPORT_SERIES] = {false};
    lvni_report_chart c;
    f->steps[0] = INFINITY;
    while (lvni_report_chart_next(&f->metrics, drawn, &c)) {
        leave_out_empty(&c);
        if (c.n == 0 || !is_shown(&c)) {
            continue;
        }
        if (f->n == PANELS) {
            f->left_out++;
            continue;
        }
        for (int i = 0; i < c.n; i++) {
            f->steps[0] = fmin(f->steps[0], (double)c.line[i]->first.step);
            f->steps[1] = fmax(f->steps[1], (double)c.line[i]->last.step);
        }
        lvni_report_chart *p = &f->panel[f->n++];
        *p = c;
        p->title = c.n == 1 ? c.line[0]->name : p->group;
    }
}

/* Of a file that is not there, nothing; of a log, whose lines a figure does not need, nor of one
 * that cannot be read. */
static lvn_status allow_missing(lvn_status s, bool log)
{
    if (s == LVN_ERR_NOT_FOUND || (log && s != LVN_ERR_MEMORY)) {
        lvn_clear_error();
        return LVN_OK;
    }
    return s;
}

static lvn_status read_run(figure *f)
{
    lvni_core_str path = {0};
    lvn_status s;
    lvni_core_str_printf(&path, "%s/metrics.jsonl", f->folder);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(
        s, allow_missing(lvni_report_metrics_read(lvni_core_str_text(&path), &f->metrics), false));
    lvni_core_str_clear(&path);
    lvni_core_str_printf(&path, "%s/train.log", f->folder);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    s = allow_missing(lvni_report_log_read(lvni_core_str_text(&path), &f->log), true);
done:
    lvni_core_str_free(&path);
    LVN_TRY(s);
    choose_panels(f);
    if (f->n == 0) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "%s: no curve to draw: metrics.jsonl has %lld row%s (%lld damaged) and no number "
                 "to show in them; a run writes one each log_every_n_steps, and format=html "
                 "has what else there is",
                 f->folder, (long long)f->metrics.rows, lvni_core_plural(f->metrics.rows, "", "s"),
                 (long long)f->metrics.damaged);
    }
    return LVN_OK;
}

/* ---- drawing ---- */

static void take_points(const lvni_report_series *s, points *p)
{
    p->n = 0;
    p->wide = false;
    for (int k = 0; k < LVNI_REPORT_BUCKETS; k++) {
        const lvni_report_bucket *b = &s->bucket[k];
        if (b->n > 0) {
            p->x[p->n] = b->step / b->n;
            p->y[p->n] = b->value / b->n;
            p->low[p->n] = b->least;
            p->high[p->n++] = b->most;
            p->wide = p->wide || b->n > 1;
        }
    }
}

static bool ends(const char *text, const char *with)
{
    const size_t n = strlen(text), k = strlen(with);
    return n >= k && strcmp(text + n - k, with) == 0;
}

static const char *unit_of(const lvni_report_chart *c)
{
    return c->unit == LVNI_REPORT_BYTES         ? "bytes"
           : ends(c->group, "samples_per_s")    ? "samples per second"
           : ends(c->group, "psnr")             ? "dB"
           : strcmp(c->group, "lr") == 0        ? "learning rate"
           : strcmp(c->group, "grad_norm") == 0 ? "norm before clipping"
                                                : "value";
}

/* Where all values are above 0 and far apart, as on the page. */
static bool is_log(const lvni_report_chart *c)
{
    double least = INFINITY, most = 0.0;
    for (int i = 0; i < c->n; i++) {
        least = fmin(least, c->line[i]->least.value);
        most = fmax(most, c->line[i]->most.value);
    }
    return c->log && least > 0.0 && most / least > 10.0;
}

static lvn_status draw_panel(figure *f, lvni_report_canvas *canvas, const lvni_report_chart *c,
                             const lvni_report_box *box)
{
    lvni_report_plot plot = {.title = c->title,
                             .x_label = "step",
                             .y_label = unit_of(c),
                             .log_y = is_log(c),
                             .x_range = {f->steps[0], f->steps[1]},
                             .n_series = c->n};
    for (int i = 0; i < c->n; i++) {
        points *p = &f->line[i];
        const bool single = ends(c->line[i]->name, "_step");
        take_points(c->line[i], p);
        plot.series[i] =
            (lvni_report_plot_series){.name = c->n > 1 ? c->line[i]->name : NULL,
                                      .x = p->x,
                                      .y = p->y,
                                      .low = p->wide ? p->low : NULL,
                                      .high = p->wide ? p->high : NULL,
                                      .n = p->n,
                                      .thin = single,
                                      .dots = !single && p->n <= LVNI_REPORT_BUCKETS / 16};
    }
    return lvni_report_plot_draw(canvas, &plot, box);
}

/* How it went and how far, in one line. */
static void write_state(const figure *f, lvni_core_str *out)
{
    const lvni_report_metrics *m = &f->metrics;
    char step[LVNI_NUMBER_TEXT];
    lvni_core_str_printf(out, "%s; step %s, epoch %.0f",
                         f->log.done              ? "finished"
                         : f->log.error != NULL   ? "failed"
                         : f->log.stopped != NULL ? f->log.stopped
                         : f->log.text == NULL    ? "no train.log that can be read"
                                                  : "no end in train.log: running, or killed",
                         lvni_report_axis_number((double)m->last_step, 15, step), m->last_epoch);
    if (m->damaged > 0) {
        lvni_core_str_printf(out, "; %lld damaged line%s left out", (long long)m->damaged,
                             lvni_core_plural(m->damaged, "", "s"));
    }
    if (f->left_out > 0 || m->left_out) {
        lvni_core_str_printf(out, "; the first %d charts, of which format=html has all", f->n);
    }
}

/* What the panels show; with the state for those who cannot see them. */
static void write_names(const figure *f, lvni_core_str *out)
{
    for (int i = 0; i < f->n; i++) {
        const lvni_report_chart *c = &f->panel[i];
        for (int k = 0; k < c->n; k++) {
            lvni_core_str_append(out, i + k == 0 ? ". Curves over the step: " : ", ");
            lvni_core_str_append(out, c->line[k]->name);
        }
    }
}

static lvn_status draw(figure *f, lvni_report_canvas *canvas, int columns)
{
    lvni_core_str run = {0}, state = {0}, names = {0};
    lvn_status s;
    lvni_report_run_title(f->folder, &run);
    write_state(f, &state);
    lvni_core_str_append(&names, lvni_core_str_text(&state));
    write_names(f, &names);
    const double room = (double)columns * WIDTH - 2.0 * EDGE;
    const lvni_report_label title = {.x = EDGE, .y = EDGE + TITLE, .size = TITLE, .room = room},
                            below = {.x = EDGE, .y = HEAD - 4.0, .size = TEXT, .room = room};
    lvni_report_canvas_text(canvas, &title, lvni_core_str_text(&run));
    lvni_report_canvas_text(canvas, &below, lvni_core_str_text(&state));
    lvni_report_canvas_describe(canvas, lvni_core_str_text(&run), lvni_core_str_text(&names));
    LVNI_TRY_DONE(s, lvni_core_str_status(&run));
    LVNI_TRY_DONE(s, lvni_core_str_status(&state));
    LVNI_TRY_DONE(s, lvni_core_str_status(&names));
    for (int i = 0; i < f->n; i++) {
        const int row = i / columns;
        const lvni_report_box box = {(i % columns) * (double)WIDTH, HEAD + row * (double)HEIGHT,
                                     WIDTH, HEIGHT};
        LVNI_TRY_DONE(s, draw_panel(f, canvas, &f->panel[i], &box));
    }
done:
    lvni_core_str_free(&run);
    lvni_core_str_free(&state);
    lvni_core_str_free(&names);
    return s;
}

static lvn_status write_figure(figure *f, const char *path)
{
    lvni_report_canvas *canvas;
    lvn_status s;
    LVN_TRY(read_run(f));
    const int columns = f->n == 1 ? 1 : f->n <= 6 ? 2 : 3, rows = (f->n + columns - 1) / columns;
    LVN_TRY(lvni_report_canvas_create(path, (double)columns * WIDTH, HEAD + (double)rows * HEIGHT,
                                      &canvas));
    LVNI_TRY_DONE(s, draw(f, canvas, columns));
    s = lvni_report_canvas_write(canvas);
done:
    lvni_report_canvas_destroy(canvas);
    return s;
}

lvn_status lvni_report_run_figure(const char *folder, const char *path)
{
    figure *f = LVNI_NEW(LVNI_TAG_CORE, figure);
    if (f == NULL) {
        return LVN_ERR_MEMORY;
    }
    f->folder = folder;
    const lvn_status s = write_figure(f, path);
    lvni_report_metrics_free(&f->metrics);
    lvni_report_log_free(&f->log);
    lvni_core_free(f);
    return s;
}
