/* Curves as PNG files (plot.h). */
#include "report/plot.h"

#include "core/alloc.h"
#include "core/json_read.h"
#include "core/str.h"
#include "core/vfs.h"
#include "report/canvas.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LEFT = 120,
    RIGHT = 30,
    TOP = 50,
    BOTTOM = 70,
    TICKS = 6, /* about as many on an axis */
    TEXT = 2,  /* page pixels of a dot of the font */
    LINE = TEXT * LVNI_FONT_HEIGHT,
};

static const uint8_t ink[3] = {32, 32, 32}, pale[3] = {225, 225, 225};
/* Okabe and Ito's colours, which colour-blind people can distinguish. */
static const uint8_t colours[LVNI_PLOT_SERIES][3] = {{0, 114, 178},   {213, 94, 0},  {0, 158, 115},
                                                     {204, 121, 167}, {230, 159, 0}, {86, 180, 233},
                                                     {120, 120, 120}, {0, 0, 0}};

typedef struct range {
    double low, high, tick; /* tick: 1, 2 or 5 times a power of ten */
} range;

typedef struct frame {
    const lvni_report_canvas *canvas;
    bool log_x;
    range x, y; /* of a logarithmic axis: powers of ten */
} frame;

/* ---- axes ---- */

static void widen(range *r, double value)
{
    if (isfinite(value)) {
        r->low = fmin(r->low, value);
        r->high = fmax(r->high, value);
    }
}

static double round_step(double about)
{
    const double power = pow(10.0, floor(log10(about))), part = about / power;
    return power * (part < 1.5 ? 1.0 : part < 3.5 ? 2.0 : part < 7.5 ? 5.0 : 10.0);
}

static void finish(range *r, double margin)
{
    if (!(r->low <= r->high)) {
        *r = (range){.low = 0.0, .high = 1.0};
    }
    /* a constant curve, or one that differs by rounding alone */
    const double size = fmax(fabs(r->low), fabs(r->high));
    if (r->high - r->low <= 1e-9 * size || size < 1e-300) {
        const double more = size < 1e-300 ? 1.0 : 0.1 * size;
        r->low -= more;
        r->high += more;
    }
    const double more = margin * (r->high - r->low);
    r->low -= more;
    r->high += more;
    r->tick = round_step((r->high - r->low) / TICKS);
}

/* Where x is on its axis, before it is scaled. */
static double place(const frame *f, double x)
{
    return !f->log_x ? x : x > 0.0 ? log10(x) : (double)NAN;
}

static double along_axis(const frame *f, double x)
{
    return LEFT + (x - f->x.low) / (f->x.high - f->x.low) * (LVNI_PLOT_WIDTH - LEFT - RIGHT);
}

static double along(const frame *f, double x)
{
    return along_axis(f, place(f, x));
}

static double up(const frame *f, double y)
{
    return LVNI_PLOT_HEIGHT - BOTTOM -
           (y - f->y.low) / (f->y.high - f->y.low) * (LVNI_PLOT_HEIGHT - TOP - BOTTOM);
}

/* The value of tick i, where 0 is not written as 1e-17. */
static const char *tick_text(double value, double tick, char text[24])
{
    lvni_core_format(text, 24, "%.4g", fabs(value) < 1e-9 * tick ? 0.0 : value);
    return text;
}

static void draw_axes(const frame *f, const lvni_report_plot *plot)
{
    const lvni_report_canvas *c = f->canvas;
    const int bottom = LVNI_PLOT_HEIGHT - BOTTOM;
    char text[24];
    for (double i = ceil(f->x.low / f->x.tick); i * f->x.tick <= f->x.high; i++) {
        const int x = (int)lround(along_axis(f, i * f->x.tick));
        lvni_report_canvas_fill(c, x, TOP, 1, bottom - TOP, pale);
        if (f->log_x) {
            lvni_core_format(text, sizeof text, "%.3g", pow(10.0, i * f->x.tick));
        } else {
            tick_text(i * f->x.tick, f->x.tick, text);
        }
        lvni_report_canvas_text(c, x - lvni_report_canvas_text_width(text, TEXT) / 2, bottom + 10,
                                LVNI_PLOT_WIDTH, TEXT, text);
    }
    for (double i = ceil(f->y.low / f->y.tick); i * f->y.tick <= f->y.high; i++) {
        const int y = (int)lround(up(f, i * f->y.tick));
        lvni_report_canvas_fill(c, LEFT, y, LVNI_PLOT_WIDTH - LEFT - RIGHT, 1, pale);
        tick_text(i * f->y.tick, f->y.tick, text);
        lvni_report_canvas_text(c, LEFT - 8 - lvni_report_canvas_text_width(text, TEXT),
                                y - LINE / 2, LEFT, TEXT, text);
    }
    lvni_report_canvas_frame(c, LEFT, TOP, LVNI_PLOT_WIDTH - LEFT - RIGHT, bottom - TOP, 1, ink);
    lvni_report_canvas_text(c, LEFT, 8, LVNI_PLOT_WIDTH - LEFT, TEXT, plot->title);
    const int label = LEFT - 8 - lvni_report_canvas_text_width(plot->y_label, TEXT);
    lvni_report_canvas_text(c, label > 8 ? label : 8, TOP - 2 * TEXT - LINE, LEFT - 8, TEXT,
                            plot->y_label);
    lvni_report_canvas_text(
        c,
        (LEFT + LVNI_PLOT_WIDTH - RIGHT - lvni_report_canvas_text_width(plot->x_label, TEXT)) / 2,
        LVNI_PLOT_HEIGHT - LINE - 10, LVNI_PLOT_WIDTH, TEXT, plot->x_label);
}

/* ---- curves ---- */

static bool lies_within(const double at[2])
{
    return at[0] >= LEFT && at[0] <= LVNI_PLOT_WIDTH - RIGHT && at[1] >= TOP &&
           at[1] <= LVNI_PLOT_HEIGHT - BOTTOM;
}

static void draw_series(const frame *f, const lvni_report_plot_series *s, const uint8_t colour[3])
{
    const lvni_report_canvas *c = f->canvas;
    double before[2] = {(double)NAN, (double)NAN};
    for (int64_t i = 0; i < s->n; i++) {
        const double at[2] = {along(f, s->x[i]), up(f, s->y[i])};
        const bool there = isfinite(at[0]) && isfinite(at[1]) && (!s->scattered || lies_within(at));
        if (there && !s->scattered && isfinite(before[0]) && isfinite(before[1])) {
            lvni_report_canvas_line(c, before, at, 2, s->dashed ? 8 : 0, colour);
        }
        if (there && (s->dots || s->scattered || s->n == 1)) {
            const int half = s->n == 1 ? 5 : 3;
            lvni_report_canvas_fill(c, (int)lround(at[0]) - half, (int)lround(at[1]) - half,
                                    2 * half + 1, 2 * half + 1, colour);
        }
        if (there && s->spread != NULL && isfinite(s->spread[i])) {
            const double low[2] = {at[0], up(f, s->y[i] - s->spread[i])},
                         high[2] = {at[0], up(f, s->y[i] + s->spread[i])};
            lvni_report_canvas_line(c, low, high, 1, 0, colour);
        }
        before[0] = at[0];
        before[1] = at[1];
    }
}

/* Pixels of curves in a rectangle. */
static int covered(const lvni_report_canvas *c, int left, int top, int width, int height)
{
    int n = 0;
    for (int y = top; y < top + height; y++) {
        for (int x = left; x < left + width; x++) {
            const uint8_t *p = c->rgb + 3 * ((int64_t)y * c->width + x);
            n += (p[0] != 255 || p[1] != 255 || p[2] != 255) && memcmp(p, pale, 3) != 0;
        }
    }
    return n;
}

/* In the corner where it hides least of the curves. */
static void draw_legend(const lvni_report_canvas *c, const lvni_report_plot *plot)
{
    enum {
        MARK = 44,
        MARGIN = 8,
        STEP = LINE + 6,
        MAX_WIDTH = LVNI_PLOT_WIDTH - LEFT - RIGHT - 16
    };
    static const uint8_t white[3] = {255, 255, 255};
    int text = 0;
    for (int i = 0; i < plot->n_series; i++) {
        const int w = lvni_report_canvas_text_width(plot->series[i].name, TEXT);
        text = w > text ? w : text;
    }
    const int width = MARK + text + MARGIN < MAX_WIDTH ? MARK + text + MARGIN : MAX_WIDTH,
              height = plot->n_series * STEP + MARGIN;
    const int lefts[2] = {LVNI_PLOT_WIDTH - RIGHT - MARGIN - width, LEFT + MARGIN},
              tops[2] = {TOP + MARGIN, LVNI_PLOT_HEIGHT - BOTTOM - MARGIN - height};
    int best = 0, least = INT_MAX;
    for (int corner = 0; corner < 4; corner++) {
        const int n = covered(c, lefts[corner / 2], tops[corner % 2], width, height);
        best = n < least ? corner : best;
        least = n < least ? n : least;
    }
    const int left = lefts[best / 2], top = tops[best % 2];
    lvni_report_canvas_fill(c, left, top, width, height, white);
    lvni_report_canvas_frame(c, left, top, width, height, 1, pale);
    for (int i = 0; i < plot->n_series; i++) {
        const int y = top + MARGIN + i * STEP;
        const double from[2] = {left + 6.0, y + LINE / 2.0}, to[2] = {left + 36.0, y + LINE / 2.0};
        lvni_report_canvas_line(c, from, to, 3, plot->series[i].dashed ? 8 : 0, colours[i]);
        lvni_report_canvas_text(c, left + MARK, y, width - MARK, TEXT, plot->series[i].name);
    }
}

static void set_ranges(frame *f, const lvni_report_plot *plot)
{
    f->x = f->y = (range){.low = INFINITY, .high = -INFINITY};
    for (int i = 0; i < plot->n_series; i++) {
        const lvni_report_plot_series *s = &plot->series[i];
        for (int64_t k = 0; k < s->n && !s->scattered; k++) {
            const double more = s->spread != NULL && isfinite(s->spread[k]) ? s->spread[k] : 0.0;
            if (isfinite(place(f, s->x[k])) && isfinite(s->y[k])) {
                widen(&f->x, place(f, s->x[k]));
                widen(&f->y, s->y[k] - more);
                widen(&f->y, s->y[k] + more);
            }
        }
    }
    finish(&f->x, 0.02);
    if (f->log_x && f->x.high - f->x.low > 2.0) {
        f->x.tick = fmax(f->x.tick, 1.0); /* whole powers */
    }
    finish(&f->y, 0.05);
}

lvn_status lvni_report_plot_write(const char *path, const lvni_report_plot *plot)
{
    LVN_ARG(plot->n_series >= 0 && plot->n_series <= LVNI_PLOT_SERIES,
            "%s: a plot of %d curves (at most %d)", path, plot->n_series, LVNI_PLOT_SERIES);
    lvni_report_canvas c;
    lvn_status s = lvni_report_canvas_create(LVNI_PLOT_WIDTH, LVNI_PLOT_HEIGHT, &c);
    if (s == LVN_OK) {
        frame f = {.canvas = &c, .log_x = plot->log_x};
        set_ranges(&f, plot);
        draw_axes(&f, plot);
        for (int i = 0; i < plot->n_series; i++) {
            draw_series(&f, &plot->series[i], colours[i]);
        }
        draw_legend(&c, plot);
        s = lvni_report_canvas_write(&c, path);
    }
    lvni_report_canvas_free(&c);
    return s;
}

/* ---- metrics.jsonl ---- */

typedef struct curve {
    double *x, *y;
    int64_t n;
} curve;

/* One line: its values behind each curve; steps are those of the file, so the room of all lines is
 * there. */
static void take_line(const char *line, const char *const *names, int n_names, curve *curves)
{
    json_t *object = lvni_core_json_try(line, LVNI_JSON_INNER);
    const json_t *step = json_object_get(object, "step");
    for (int i = 0; json_is_number(step) && i < n_names; i++) {
        const json_t *value = json_object_get(object, names[i]);
        if (json_is_number(value)) {
            curve *c = &curves[i];
            c->x[c->n] = json_number_value(step);
            c->y[c->n++] = json_number_value(value);
        }
    }
    json_decref(object);
}

static int64_t count_lines(const char *text)
{
    int64_t n = 1;
    for (; *text != '\0'; text++) {
        n += *text == '\n';
    }
    return n;
}

static lvn_status plot_curves(const char *path, const char *title, const char *const *names,
                              int n_names, const curve *curves, bool *drawn)
{
    lvni_report_plot plot = {.title = title, .x_label = "step", .y_label = ""};
    for (int i = 0; i < n_names; i++) {
        if (curves[i].n > 0) {
            plot.series[plot.n_series++] = (lvni_report_plot_series){
                .name = names[i], .x = curves[i].x, .y = curves[i].y, .n = curves[i].n};
        }
    }
    *drawn = plot.n_series > 0;
    return *drawn ? lvni_report_plot_write(path, &plot) : LVN_OK;
}

lvn_status lvni_report_plot_metrics(const char *path, const char *metrics, const char *title,
                                    const char *const *names, int n_names, bool *drawn)
{
    *drawn = false;
    LVN_ARG(n_names > 0 && n_names <= LVNI_PLOT_SERIES, "%s: a plot of %d curves (at most %d)",
            path, n_names, LVNI_PLOT_SERIES);
    char *text;
    size_t bytes;
    LVN_TRY(lvni_core_file_read(metrics, (size_t)1 << 32, &text, &bytes));
    const int64_t lines = count_lines(text);
    double *memory =
        lvni_core_alloc(LVNI_TAG_DATA, 2 * (size_t)lines * (size_t)n_names * sizeof *memory);
    if (memory == NULL) {
        lvni_core_free(text);
        return LVN_ERR_MEMORY;
    }
    curve curves[LVNI_PLOT_SERIES];
    for (int i = 0; i < n_names; i++) {
        curves[i] = (curve){memory + 2 * i * lines, memory + (2 * i + 1) * lines, 0};
    }
    for (char *line = text, *end; line != NULL; line = end) {
        end = strchr(line, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        take_line(line, names, n_names, curves);
    }
    const lvn_status s = plot_curves(path, title, names, n_names, curves, drawn);
    lvni_core_free(memory);
    lvni_core_free(text);
    return s;
}
