/* Line charts (chart.h). */
#include "report/chart.h"

#include "report/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The drawing in units of its view box; a page scales it to its column. */
enum { WIDTH = 480, HEIGHT = 220, LEFT = 58, RIGHT = 12, TOP = 10, BOTTOM = 36, MARK = 8 };
enum { MOST_TICKS = 12 };
#define MINUS "\xe2\x88\x92" /* U+2212 */

/* From a value to a place in the drawing. */
typedef struct axis {
    double least, most; /* of a logarithmic axis: exponents of ten */
    bool log;
    int from, to; /* places */
    double tick[MOST_TICKS];
    int n_ticks;
} axis;

static double place(const axis *a, double value)
{
    const double v = a->log ? log10(value) : value;
    return a->from + (v - a->least) / (a->most - a->least) * (a->to - a->from);
}

/* ---- which metrics are one chart ---- */

static bool ends(const char *text, const char *with)
{
    const size_t n = strlen(text), k = strlen(with);
    return n >= k && strcmp(text + n - k, with) == 0;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

lvni_report_unit lvni_report_unit_of(const char *name)
{
    return ends(name, "_bytes") || ends(name, "_bytes_step") ? LVNI_REPORT_BYTES
                                                             : LVNI_REPORT_PLAIN;
}

/* What series that belong together have in common: train/loss_step, train/loss and val/loss are
 * "loss", all of memory/ are "memory". */
static void group_of(const char *name, char out[LVNI_REPORT_NAME])
{
    const char *slash = strchr(name, '/');
    const bool phase = begins(name, "train/") || begins(name, "val/");
    const char *from = phase ? slash + 1 : name;
    size_t n = strlen(from);
    if (phase && ends(from, "_step")) {
        n -= strlen("_step");
    }
    if (begins(name, "memory/")) {
        n = strlen("memory");
    }
    snprintf(out, LVNI_REPORT_NAME, "%.*s", (int)n, from);
}

/* First what is trained and validated, then the rest in the order of the file. */
static int rank_of(const char *name)
{
    return begins(name, "val/") || begins(name, "train/") ? 0 : 1;
}

/* Within a chart: epochs of training, validation, others, single steps. */
static int place_of(const char *name)
{
    return ends(name, "_step") ? 3 : begins(name, "train/") ? 0 : begins(name, "val/") ? 1 : 2;
}

static void add_line(lvni_report_chart *c, const lvni_report_series *s)
{
    int at = c->n++;
    for (; at > 0 && place_of(c->line[at - 1]->name) > place_of(s->name); at--) {
        c->line[at] = c->line[at - 1];
    }
    c->line[at] = s;
}

/* All of the group of series `first` that were not drawn, up to a chart's lines. */
static void take_group(const lvni_report_metrics *m, int first, bool *drawn, lvni_report_chart *out)
{
    char other[LVNI_REPORT_NAME];
    const char *name = m->series[first]->name;
    *out = (lvni_report_chart){.unit = lvni_report_unit_of(name)};
    group_of(name, out->group);
    for (int i = first; i < m->n && out->n < LVNI_REPORT_LINES; i++) {
        group_of(m->series[i]->name, other);
        if (!drawn[i] && strcmp(out->group, other) == 0) {
            drawn[i] = true;
            add_line(out, m->series[i]);
        }
    }
    out->log = begins(out->group, "lr");
    out->title = out->n == 1 ? out->line[0]->name : out->group;
}

bool lvni_report_chart_next(const lvni_report_metrics *m, bool drawn[LVNI_REPORT_SERIES],
                            lvni_report_chart *out)
{
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 0; i < m->n; i++) {
            if (!drawn[i] && rank_of(m->series[i]->name) == rank) {
                take_group(m, i, drawn, out);
                return true;
            }
        }
    }
    return false;
}

/* ---- numbers ---- */

/* %.*g with a true minus sign, and without a plus or zeros in exponents. */
static void print_short(lvni_core_str *out, double value, int digits)
{
    char text[40];
    lvni_core_format(text, sizeof text, "%.*g", digits, value);
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '-') {
            lvni_core_str_append(out, MINUS);
        } else if (*p != '+' && !(*p == '0' && p > text + 1 && (p[-1] == '-' || p[-1] == '+'))) {
            lvni_core_str_char(out, *p);
        }
    }
}

static void print_plain(lvni_core_str *out, double value, int digits)
{
    static const struct {
        double from;
        const char *name;
    } large[] = {{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e4, " k"}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        if (fabs(value) >= large[i].from && fabs(value) < 1e15) {
            const double unit = large[i].from < 1e5 ? 1e3 : large[i].from;
            print_short(out, value / unit, digits < 4 ? 4 : digits);
            lvni_core_str_append(out, large[i].name);
            return;
        }
    }
    print_short(out, value, digits);
}

void lvni_report_number(lvni_core_str *out, double value, lvni_report_unit unit)
{
    char text[LVNI_BYTES_TEXT];
    if (unit == LVNI_REPORT_BYTES && value >= 0.0 && value < 1e18) {
        lvni_core_str_append(out, lvni_core_bytes_text((uint64_t)value, text));
    } else {
        print_plain(out, value, 5);
    }
}

/* ---- axes ---- */

/* Ticks at multiples of 1, 2 or 5 times a power of ten (of two, for bytes): about `wanted`. */
static void add_ticks(axis *a, int wanted, bool bytes)
{
    const double raw = (a->most - a->least) / wanted, base = bytes ? 2.0 : 10.0;
    double step = pow(base, floor(log(raw) / log(base)));
    if (!bytes) {
        const double rest = raw / step;
        step *= rest > 7.0 ? 10.0 : rest > 3.5 ? 5.0 : rest > 1.5 ? 2.0 : 1.0;
    } else if (step < raw) {
        step *= 2.0;
    }
    const double from = ceil(a->least / step - 1e-9); /* + 1 may be itself */
    for (int i = 0; i < MOST_TICKS && (from + i) * step <= a->most + 1e-9 * step; i++) {
        a->tick[a->n_ticks++] = fabs(from + i) < 0.5 ? 0.0 : (from + i) * step;
    }
}

/* Powers of ten, every second or third of them where there are many. */
static void add_decades(axis *a)
{
    const int from = (int)ceil(a->least - 1e-9), to = (int)floor(a->most + 1e-9);
    const int each = (to - from) / 6 + 1;
    for (int e = from; e <= to && a->n_ticks < MOST_TICKS; e += each) {
        a->tick[a->n_ticks++] = pow(10.0, e);
    }
}

/* The range of all lines, with a little room, and a width of its own where all are equal. */
static axis value_axis(const lvni_report_chart *c)
{
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < c->n; i++) {
        least = fmin(least, c->line[i]->least.value);
        most = fmax(most, c->line[i]->most.value);
    }
    axis a = {
        .log = c->log && least > 0.0 && most / least > 10.0, .from = HEIGHT - BOTTOM, .to = TOP};
    a.least = a.log ? log10(least) : least;
    a.most = a.log ? log10(most) : most;
    /* halves: the difference of the largest numbers is none */
    const double half = (a.most / 2.0 - a.least / 2.0);
    const double room = half > 1e-12 * fabs(a.most) ? half * 0.1 : fabs(a.most) * 0.05 + 1e-12;
    a.least = fmax(a.least - room, -1e300);
    a.most = fmin(a.most + room, 1e300);
    if (!a.log && least >= 0.0 && a.least < 0.0) {
        a.least = 0.0; /* what is never negative has no axis below 0 */
    }
    if (a.log) {
        add_decades(&a);
    } else {
        add_ticks(&a, 5, c->unit == LVNI_REPORT_BYTES);
    }
    return a;
}

static axis step_axis(const lvni_report_chart *c)
{
    axis a = {.least = INFINITY, .most = -INFINITY, .from = LEFT, .to = WIDTH - RIGHT};
    for (int i = 0; i < c->n; i++) {
        for (int k = 0; k < LVNI_REPORT_BUCKETS; k++) {
            const lvni_report_bucket *b = &c->line[i]->bucket[k];
            a.least = b->n > 0 ? fmin(a.least, b->step / b->n) : a.least;
            a.most = b->n > 0 ? fmax(a.most, b->step / b->n) : a.most;
        }
    }
    if (a.most - a.least < 1.0) {
        a.least -= 0.5;
        a.most += 0.5;
    }
    add_ticks(&a, 5, false);
    return a;
}

static void write_axes(const lvni_report_chart *c, const axis *x, const axis *y, lvni_core_str *out)
{
    for (int i = 0; i < y->n_ticks; i++) {
        const double at = place(y, y->tick[i]);
        lvni_core_str_printf(out,
                             "<line class=g x1=%d x2=%d y1=%.1f y2=%.1f /><text x=%d y=%.1f "
                             "text-anchor=end>",
                             LEFT, WIDTH - RIGHT, at, at, LEFT - 6, at + 4.0);
        lvni_report_number(out, y->tick[i], c->unit);
        lvni_core_str_append(out, "</text>");
    }
    for (int i = 0; i < x->n_ticks; i++) {
        if (x->tick[i] == floor(x->tick[i])) {
            lvni_core_str_printf(out, "<text x=%.1f y=%d text-anchor=middle>", place(x, x->tick[i]),
                                 HEIGHT - BOTTOM + 16);
            lvni_report_number(out, x->tick[i], LVNI_REPORT_PLAIN);
            lvni_core_str_append(out, "</text>");
        }
    }
    lvni_core_str_printf(out,
                         "<line class=a x1=%d x2=%d y1=%d y2=%d /><text x=%d y=%d "
                         "text-anchor=end>",
                         LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT - BOTTOM, WIDTH - RIGHT,
                         HEIGHT - 4);
    lvni_report_escape(out, c->x_label != NULL ? c->x_label : "step");
    lvni_core_str_append(out, "</text>");
}

/* ---- lines ---- */

static void write_point(lvni_core_str *out, const axis *x, const axis *y, double step, double value)
{
    lvni_core_str_printf(out, "%.1f,%.1f ", place(x, step), place(y, value));
}

/* The least and the greatest of each bucket, where some have more than one value. */
static void write_band(const lvni_report_series *s, int colour, const axis *x, const axis *y,
                       lvni_core_str *out)
{
    bool wide = false;
    for (int k = 0; k < LVNI_REPORT_BUCKETS; k++) {
        wide = wide || s->bucket[k].n > 1;
    }
    if (!wide) {
        return;
    }
    lvni_core_str_printf(out, "<polygon class=\"b c%d\" points=\"", colour);
    for (int k = 0; k < 2 * LVNI_REPORT_BUCKETS; k++) {
        const bool back = k >= LVNI_REPORT_BUCKETS;
        const lvni_report_bucket *b = &s->bucket[back ? 2 * LVNI_REPORT_BUCKETS - 1 - k : k];
        if (b->n > 0) {
            write_point(out, x, y, b->step / b->n, back ? b->least : b->most);
        }
    }
    lvni_core_str_append(out, "\" />");
}

static void write_line(const lvni_report_series *s, int colour, const axis *x, const axis *y,
                       lvni_core_str *out)
{
    const lvni_report_bucket *only = NULL;
    int n = 0;
    lvni_core_str_printf(out, "<polyline class=\"l%s c%d\" points=\"",
                         ends(s->name, "_step") ? " s" : "", colour);
    for (int k = 0; k < LVNI_REPORT_BUCKETS; k++) {
        const lvni_report_bucket *b = &s->bucket[k];
        if (b->n > 0) {
            write_point(out, x, y, b->step / b->n, b->value / b->n);
            only = b;
            n++;
        }
    }
    lvni_core_str_append(out, "\" />");
    if (n == 1) { /* a line of one point cannot be seen */
        lvni_core_str_printf(out, "<circle class=\"p c%d\" r=3 cx=%.1f cy=%.1f />", colour,
                             place(x, only->step / only->n), place(y, only->value / only->n));
    }
}

static void write_legend(const lvni_report_chart *c, lvni_core_str *out)
{
    lvni_core_str_append(out, "<figcaption>");
    lvni_report_escape(out, c->title);
    for (int i = 0; i < c->n && c->n > 1; i++) {
        lvni_core_str_printf(out, " <span class=\"k c%d\">", i);
        lvni_report_escape(out, c->line[i]->name);
        lvni_core_str_append(out, "</span>");
    }
    if (c->n_marks > 0) {
        lvni_core_str_printf(out, " <span class=\"k c%d\">", c->n);
        lvni_report_escape(out, c->mark_name);
        lvni_core_str_append(out, "</span>");
    }
    lvni_core_str_append(out, "</figcaption>");
}

/* In the colour behind those of the lines. */
static void write_marks(const lvni_report_chart *c, const axis *x, lvni_core_str *out)
{
    if (c->n_marks > 0) {
        lvni_core_str_printf(out, "<path class=\"l c%d\" d=\"", c->n);
    }
    for (int i = 0; i < c->n_marks; i++) {
        lvni_core_str_printf(out, "M%.1f,%dv%d", place(x, c->mark[i]), TOP, MARK);
    }
    lvni_core_str_append(out, c->n_marks > 0 ? "\" />" : "");
}

void lvni_report_chart_write(const lvni_report_chart *chart, lvni_core_str *out)
{
    lvni_report_chart c = *chart;
    c.n = 0;
    for (int i = 0; i < chart->n; i++) {
        if (chart->line[i]->n > 0) {
            c.line[c.n++] = chart->line[i];
        }
    }
    if (c.n == 0) {
        return;
    }
    const axis x = step_axis(&c), y = value_axis(&c);
    lvni_core_str_append(out, "<figure>");
    write_legend(&c, out);
    lvni_core_str_printf(out, "<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"", WIDTH, HEIGHT);
    lvni_report_escape(out, c.title);
    lvni_core_str_append(out, "\">");
    write_axes(&c, &x, &y, out);
    for (int i = 0; i < c.n; i++) {
        write_band(c.line[i], i, &x, &y, out);
    }
    for (int i = 0; i < c.n; i++) {
        write_line(c.line[i], i, &x, &y, out);
    }
    write_marks(&c, &x, out);
    lvni_core_str_append(out, "</svg></figure>\n");
}
