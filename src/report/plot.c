/* Plots of curves (plot.h). */
#include "report/plot.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/str.h"
#include "core/vfs.h"
#include "report/axis.h"

#include <math.h>
#include <string.h>

enum { EDGE = 16, TEXT = 15, TITLE = 18, ROW = 22 /* of the legend */, MARK = 34, TICK = 6 };

static const uint8_t ink[3] = {32, 32, 32}, pale[3] = {228, 228, 228};
/* Okabe and Ito's colours, which colour-blind people can distinguish. */
static const uint8_t colours[LVNI_PLOT_SERIES][3] = {{0, 114, 178},   {213, 94, 0},  {0, 158, 115},
                                                     {204, 121, 167}, {230, 159, 0}, {86, 180, 233},
                                                     {120, 120, 120}, {0, 0, 0}};

typedef struct frame {
    lvni_report_canvas *canvas;
    const lvni_report_plot *plot;
    const lvni_report_box *box;
    double left, right, top, bottom; /* of the axes */
    lvni_report_axis x, y;
} frame;

/* ---- axes ---- */

static double along(const frame *f, double place)
{
    return f->left + (place - f->x.low) / (f->x.high - f->x.low) * (f->right - f->left);
}

static double up(const frame *f, double place)
{
    return f->bottom - (place - f->y.low) / (f->y.high - f->y.low) * (f->bottom - f->top);
}

static void text_at(const frame *f, double x, double y, lvni_report_align align, const char *text)
{
    const lvni_report_label label = {.x = x, .y = y, .size = TEXT, .align = align};
    lvni_report_canvas_text(f->canvas, &label, text);
}

static void draw_ticks(const frame *f)
{
    lvni_report_canvas *c = f->canvas;
    for (int i = 0; i < f->x.n_ticks; i++) {
        const lvni_report_tick *t = &f->x.tick[i];
        const double x = along(f, t->at), length = t->text[0] != '\0' ? TICK : TICK / 2.0;
        if (t->text[0] != '\0') {
            lvni_report_canvas_fill(c, x - 0.5, f->top, 1.0, f->bottom - f->top, pale);
        }
        lvni_report_canvas_fill(c, x - 0.5, f->bottom, 1.0, length, ink);
        text_at(f, x, f->bottom + TICK + TEXT, LVNI_ALIGN_MIDDLE, t->text);
    }
    for (int i = 0; i < f->y.n_ticks; i++) {
        const lvni_report_tick *t = &f->y.tick[i];
        const double y = up(f, t->at), length = t->text[0] != '\0' ? TICK : TICK / 2.0;
        if (t->text[0] != '\0') {
            lvni_report_canvas_fill(c, f->left, y - 0.5, f->right - f->left, 1.0, pale);
        }
        lvni_report_canvas_fill(c, f->left - length, y - 0.5, length, 1.0, ink);
        text_at(f, f->left - TICK - 4.0, y + 0.35 * TEXT, LVNI_ALIGN_RIGHT, t->text);
    }
}

static void draw_axes(const frame *f)
{
    draw_ticks(f);
    lvni_report_canvas_frame(f->canvas, f->left - 0.5, f->top - 0.5, f->right - f->left + 1.0,
                             f->bottom - f->top + 1.0, 1.0, ink);
    text_at(f, f->left, f->top - 7.0, LVNI_ALIGN_LEFT, f->y.note);
    const double end = f->box->y + f->box->height - EDGE;
    text_at(f, f->right, end, LVNI_ALIGN_RIGHT, f->x.note);
    const lvni_report_label title = {.x = f->left,
                                     .y = f->box->y + EDGE + TITLE,
                                     .size = TITLE,
                                     .room = f->right - f->left},
                            x = {.x = (f->left + f->right) / 2,
                                 .y = end,
                                 .size = TEXT,
                                 .align = LVNI_ALIGN_MIDDLE,
                                 .room = 0.6 * (f->right - f->left)},
                            y = {.x = f->box->x + EDGE + TEXT,
                                 .y = (f->top + f->bottom) / 2,
                                 .size = TEXT,
                                 .align = LVNI_ALIGN_MIDDLE,
                                 .room = f->bottom - f->top,
                                 .turn = 90.0};
    lvni_report_canvas_text(f->canvas, &title, f->plot->title);
    lvni_report_canvas_text(f->canvas, &x, f->plot->x_label);
    lvni_report_canvas_text(f->canvas, &y, f->plot->y_label);
}

/* ---- curves ---- */

static bool lies_within(const frame *f, const double at[2])
{
    return at[0] >= f->left && at[0] <= f->right && at[1] >= f->top && at[1] <= f->bottom;
}

static void draw_spread(const frame *f, const double at[2], double low, double high,
                        const uint8_t rgb[3])
{
    const double bar[2][2] = {{at[0], up(f, lvni_report_axis_place(&f->y, low))},
                              {at[0], up(f, lvni_report_axis_place(&f->y, high))}};
    lvni_report_canvas_line(f->canvas, bar, 2, 1.5, false, rgb);
    for (int i = 0; i < 2; i++) {
        lvni_report_canvas_fill(f->canvas, at[0] - 3.0, bar[i][1] - 0.75, 6.0, 1.5, rgb);
    }
}

/* Around each point as far as halfway to the next ones, in a tint: bands of other series may lie
 * behind it, lines never do. */
static void draw_band(const frame *f, const lvni_report_plot_series *s, const uint8_t rgb[3])
{
    uint8_t tint[3];
    for (int i = 0; i < 3; i++) {
        tint[i] = (uint8_t)(255 - (255 - rgb[i]) / 4);
    }
    double before = (double)NAN;
    for (int64_t i = 0; s->low != NULL && i < s->n; i++) {
        const double x = along(f, lvni_report_axis_place(&f->x, s->x[i])),
                     after = i + 1 < s->n ? along(f, lvni_report_axis_place(&f->x, s->x[i + 1]))
                                          : (double)NAN,
                     from = isfinite(before) ? (before + x) / 2.0 : x,
                     to = isfinite(after) ? (x + after) / 2.0 : x,
                     low = up(f, lvni_report_axis_place(&f->y, s->low[i])),
                     high = up(f, lvni_report_axis_place(&f->y, s->high[i]));
        before = x;
        if (isfinite(from) && isfinite(to) && isfinite(low) && isfinite(high)) {
            lvni_report_canvas_fill(f->canvas, from, high, to - from, low - high, tint);
        }
    }
}

static double thickness(const lvni_report_plot_series *s)
{
    return s->thin ? 1.0 : 2.0;
}

/* Of more than two points in a column of pixels the lines between the lowest and the highest show
 * all there is to see: a million points are a few thousand. Returns their number. */
static int64_t thin_out(double (*at)[2], int64_t n)
{
    int64_t kept = 0, first = 0; /* of the column, in what is kept */
    for (int64_t i = 0; i < n; i++) {
        const bool same = kept - first >= 2 && isfinite(at[i][1]) && isfinite(at[kept - 1][1]) &&
                          isfinite(at[first][1]) &&
                          floor(at[i][0]) == floor(at[first][0]); /* false for NAN */
        if (!same) {
            first = kept > first && floor(at[i][0]) == floor(at[first][0]) ? first : kept;
            at[kept][0] = at[i][0];
            at[kept][1] = at[i][1];
            kept++;
        } else if (at[i][1] < fmin(at[first][1], at[first + 1][1]) ||
                   at[i][1] > fmax(at[first][1], at[first + 1][1])) {
            const int nearer = fabs(at[i][1] - at[first][1]) >= fabs(at[i][1] - at[first + 1][1]);
            at[first + nearer][1] = at[i][1];
        }
    }
    return kept;
}

static void draw_series(const frame *f, const lvni_report_plot_series *s, const uint8_t rgb[3],
                        double (*at)[2])
{
    for (int64_t i = 0; i < s->n; i++) {
        at[i][0] = along(f, lvni_report_axis_place(&f->x, s->x[i]));
        at[i][1] = up(f, lvni_report_axis_place(&f->y, s->y[i]));
    }
    double before = (double)NAN;
    for (int64_t i = 0; i < s->n; i++) {
        const double after = i + 1 < s->n ? at[i + 1][0] + at[i + 1][1] : (double)NAN;
        const bool alone = !isfinite(before) && !isfinite(after);
        before = at[i][0] + at[i][1];
        if (!isfinite(before) || (s->scattered && !lies_within(f, at[i]))) {
            continue;
        }
        if (s->spread != NULL && isfinite(s->spread[i])) {
            draw_spread(f, at[i], s->y[i] - s->spread[i], s->y[i] + s->spread[i], rgb);
        }
        if (s->dots || s->scattered || alone) {
            lvni_report_canvas_dot(f->canvas, at[i], s->n == 1 ? 5.0 : 3.0, rgb);
        }
    }
    if (!s->scattered) {
        lvni_report_canvas_line(f->canvas, (const double(*)[2])at, thin_out(at, s->n), thickness(s),
                                s->dashed, rgb);
    }
}

static lvn_status draw_curves(const frame *f)
{
    int64_t most = 1;
    for (int i = 0; i < f->plot->n_series; i++) {
        most = f->plot->series[i].n > most ? f->plot->series[i].n : most;
    }
    double(*at)[2] = lvni_core_alloc(LVNI_TAG_DATA, (size_t)most * sizeof *at);
    if (at == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < f->plot->n_series; i++) {
        draw_band(f, &f->plot->series[i], colours[i]);
    }
    for (int i = 0; i < 2 * f->plot->n_series; i++) {
        const int k = i % f->plot->n_series;
        if (f->plot->series[k].thin == (i < f->plot->n_series)) {
            draw_series(f, &f->plot->series[k], colours[k], at);
        }
    }
    lvni_core_free(at);
    return LVN_OK;
}

/* ---- the legend ---- */

/* Rows above the axes, where no data are, of which the first ends at y. Returns where the last one
 * ends; draw: false measures alone. */
static double legend(const frame *f, double y, bool draw)
{
    double x = f->left;
    const double room = f->right - f->left;
    for (int i = 0; i < f->plot->n_series; i++) {
        const lvni_report_plot_series *s = &f->plot->series[i];
        if (s->name == NULL) {
            continue;
        }
        const double text = lvni_report_canvas_text_width(f->canvas, s->name, TEXT),
                     width = fmin(MARK + 8.0 + text, room);
        if (x > f->left && x + width > f->right) {
            x = f->left;
            y += ROW;
        }
        const double mark[2][2] = {{x, y - 0.35 * TEXT}, {x + MARK, y - 0.35 * TEXT}},
                     middle[2] = {x + MARK / 2.0, y - 0.35 * TEXT};
        const lvni_report_label name = {
            .x = x + MARK + 8.0, .y = y, .size = TEXT, .room = width - MARK - 8.0 + 0.01};
        if (draw && !s->scattered && s->n > 1) {
            lvni_report_canvas_line(f->canvas, mark, 2, thickness(s), s->dashed, colours[i]);
        }
        if (draw && (s->scattered || s->dots || s->n == 1)) {
            lvni_report_canvas_dot(f->canvas, middle, s->n == 1 ? 5.0 : 3.0, colours[i]);
        }
        if (draw) {
            lvni_report_canvas_text(f->canvas, &name, s->name);
        }
        x += width + 24.0;
    }
    return y;
}

/* ---- the plot ---- */

static void set_ranges(frame *f)
{
    lvni_report_axis_begin(&f->x, f->plot->log_x);
    lvni_report_axis_begin(&f->y, f->plot->log_y);
    f->x.whole = true;
    for (int i = 0; i < 2 && f->plot->x_range[1] > f->plot->x_range[0]; i++) {
        lvni_report_axis_widen(&f->x, f->plot->x_range[i]);
    }
    for (int i = 0; i < 2 && f->plot->y_range[1] > f->plot->y_range[0]; i++) {
        lvni_report_axis_widen(&f->y, f->plot->y_range[i]);
    }
    for (int i = 0; i < f->plot->n_series; i++) {
        const lvni_report_plot_series *s = &f->plot->series[i];
        for (int64_t k = 0; k < s->n && !s->scattered; k++) {
            const double more = s->spread != NULL && isfinite(s->spread[k]) ? s->spread[k] : 0.0;
            if (isfinite(lvni_report_axis_place(&f->x, s->x[k])) && isfinite(s->y[k])) {
                lvni_report_axis_widen(&f->x, s->x[k]);
                lvni_report_axis_widen(&f->y, s->y[k] - more);
                lvni_report_axis_widen(&f->y, s->y[k] + more);
                lvni_report_axis_widen(&f->y, s->low != NULL ? s->low[k] : s->y[k]);
                lvni_report_axis_widen(&f->y, s->high != NULL ? s->high[k] : s->y[k]);
            }
        }
    }
    lvni_report_axis_end(&f->x, 0.02, 7);
    lvni_report_axis_end(&f->y, 0.05, 6);
}

lvn_status lvni_report_plot_draw(lvni_report_canvas *canvas, const lvni_report_plot *plot,
                                 const lvni_report_box *box)
{
    enum { TITLE_ENDS = EDGE + TITLE + 10 };
    frame f = {.canvas = canvas, .plot = plot, .box = box};
    double numbers = 0.0;
    set_ranges(&f);
    for (int i = 0; i < f.y.n_ticks; i++) {
        numbers = fmax(numbers, lvni_report_canvas_text_width(canvas, f.y.tick[i].text, TEXT));
    }
    const double first = box->y + TITLE_ENDS + TEXT; /* row of the legend */
    f.left = box->x + EDGE + TEXT + 12.0 + numbers + TICK + 4.0;
    f.right = box->x + box->width - 2.0 * EDGE;
    f.bottom = box->y + box->height - EDGE - 2.0 * TEXT - TICK - 10.0;
    f.top = legend(&f, first, false) + 12.0 + (f.y.note[0] != '\0' ? ROW : 0);
    draw_axes(&f);
    legend(&f, first, true);
    return draw_curves(&f);
}

lvn_status lvni_report_plot_write(const char *path, const lvni_report_plot *plot)
{
    static const lvni_report_box whole = {.width = LVNI_PLOT_WIDTH, .height = LVNI_PLOT_HEIGHT};
    LVN_ARG(plot->n_series >= 0 && plot->n_series <= LVNI_PLOT_SERIES,
            "%s: a plot of %d curves (at most %d)", path, plot->n_series, LVNI_PLOT_SERIES);
    lvni_report_canvas *canvas;
    lvn_status s;
    LVN_TRY(lvni_report_canvas_create(path, whole.width, whole.height, &canvas));
    LVNI_TRY_DONE(s, lvni_report_plot_draw(canvas, plot, &whole));
    s = lvni_report_canvas_write(canvas);
done:
    lvni_report_canvas_destroy(canvas);
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

static lvn_status plot_curves(const char *path, const lvni_report_plot *labels,
                              const char *const *names, int n_names, const curve *curves,
                              bool *drawn)
{
    lvni_report_plot plot = *labels;
    for (int i = 0; i < n_names; i++) {
        if (curves[i].n > 0) {
            plot.series[plot.n_series++] = (lvni_report_plot_series){
                .name = names[i], .x = curves[i].x, .y = curves[i].y, .n = curves[i].n};
        }
    }
    *drawn = plot.n_series > 0;
    return *drawn ? lvni_report_plot_write(path, &plot) : LVN_OK;
}

lvn_status lvni_report_plot_metrics(const char *path, const char *metrics,
                                    const lvni_report_plot *labels, const char *const *names,
                                    int n_names, bool *drawn)
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
    const lvn_status s = plot_curves(path, labels, names, n_names, curves, drawn);
    lvni_core_free(memory);
    lvni_core_free(text);
    return s;
}
