/* Maps of points (scatter.h). */
#include "report/scatter.h"

#include "report/page.h"

#include <math.h>

enum { WIDTH = 640, HEIGHT = 480, MARGIN = 24, MANY = 500 };
enum { LEFT = 58, RIGHT = 12, TOP = 24, BOTTOM = 44 }; /* of a plot with scales */

static void write_legend(const lvni_report_scatter *s, lvni_core_str *out)
{
    lvni_core_str_append(out, "<figcaption>");
    lvni_report_escape(out, s->title);
    lvni_report_legend(out, s->group_name, s->n_groups > 1 ? s->n_groups : 0);
    lvni_core_str_append(out, "</figcaption>");
}

/* From a point to the drawing. */
typedef struct frame {
    double middle[2], scale[2];
} frame;

/* One scale for both axes, so that all points are within the margins. */
static frame fit(const lvni_report_scatter *s)
{
    double least[2] = {INFINITY, INFINITY}, most[2] = {-INFINITY, -INFINITY};
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < 2; k++) {
            least[k] = fmin(least[k], s->at[i][k]);
            most[k] = fmax(most[k], s->at[i][k]);
        }
    }
    const double across = fmax(most[0] - least[0], 1e-12), up = fmax(most[1] - least[1], 1e-12),
                 scale = fmin((WIDTH - 2 * MARGIN) / across, (HEIGHT - 2 * MARGIN) / up);
    return (frame){.middle = {(least[0] + most[0]) / 2.0, (least[1] + most[1]) / 2.0},
                   .scale = {scale, scale}};
}

/* Between the ends of both axes. */
static frame fit_axes(const lvni_report_axis *x, const lvni_report_axis *y)
{
    return (frame){.middle = {(x->low + x->high) / 2.0, (y->low + y->high) / 2.0},
                   .scale = {(WIDTH - LEFT - RIGHT) / (x->high - x->low),
                             (HEIGHT - TOP - BOTTOM) / (y->high - y->low)}};
}

static double across(const frame *f, double x, bool axes)
{
    const double middle = axes ? (LEFT + WIDTH - RIGHT) / 2.0 : WIDTH / 2.0;
    return middle + (x - f->middle[0]) * f->scale[0];
}

static double down(const frame *f, double y, bool axes)
{
    const double middle = axes ? (TOP + HEIGHT - BOTTOM) / 2.0 : HEIGHT / 2.0;
    return middle - (y - f->middle[1]) * f->scale[1];
}

static void write_points(const lvni_report_scatter *s, const frame *f, lvni_core_str *out)
{
    const bool axes = s->x != NULL;
    for (int i = 0; i < s->n; i++) {
        const double x = axes ? lvni_report_axis_place(s->x, s->at[i][0]) : s->at[i][0],
                     y = axes ? lvni_report_axis_place(s->y, s->at[i][1]) : s->at[i][1];
        if (!isfinite(x) || !isfinite(y)) {
            continue;
        }
        lvni_core_str_append(out, "<circle");
        lvni_report_class(out, "p", s->group != NULL ? s->group[i] : 0, s->n_groups);
        lvni_core_str_printf(out, " r=%s fill-opacity=.75 cx=%.1f cy=%.1f><title>",
                             s->n > MANY ? "2.5" : "4.5", across(f, x, axes), down(f, y, axes));
        lvni_report_escape(out, s->name[i]);
        lvni_core_str_printf(out, " (%.4g, %.4g)</title></circle>\n", s->at[i][0], s->at[i][1]);
    }
}

/* ---- axes ---- */

/* Without scales: two lines, and what they are. */
static void write_frame(const lvni_report_scatter *s, lvni_core_str *out)
{
    lvni_core_str_printf(out, "<path class=a fill=none d=\"M%d,%dV%dH%d\" />", MARGIN / 2,
                         MARGIN / 2, HEIGHT - MARGIN / 2, WIDTH - MARGIN / 2);
    lvni_core_str_printf(out, "<text x=%d y=%d text-anchor=end>", WIDTH - MARGIN,
                         HEIGHT - MARGIN / 2 - 4);
    lvni_report_escape(out, s->x_label);
    lvni_core_str_printf(out,
                         "</text><text transform=\"translate(%d,%d) rotate(-90)\" "
                         "text-anchor=end>",
                         MARGIN / 2 + 14, MARGIN);
    lvni_report_escape(out, s->y_label);
    lvni_core_str_append(out, "</text>\n");
}

static void write_axes(const lvni_report_scatter *s, const frame *f, lvni_core_str *out)
{
    for (int i = 0; i < s->y->n_ticks; i++) {
        const lvni_report_tick *t = &s->y->tick[i];
        const double y = down(f, t->at, true);
        if (t->text[0] != '\0') {
            lvni_core_str_printf(out,
                                 "<line class=g x1=%d x2=%d y1=%.1f y2=%.1f /><text x=%d y=%.1f "
                                 "text-anchor=end>%s</text>",
                                 LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4.0, t->text);
        }
    }
    for (int i = 0; i < s->x->n_ticks; i++) {
        const lvni_report_tick *t = &s->x->tick[i];
        lvni_core_str_printf(out, "<text x=%.1f y=%d text-anchor=middle>%s</text>",
                             across(f, t->at, true), HEIGHT - BOTTOM + 16, t->text);
    }
    lvni_core_str_printf(out,
                         "<path class=a fill=none d=\"M%d,%dV%dH%d\" /><text x=%d y=%d "
                         "text-anchor=end>",
                         LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT, WIDTH - RIGHT, HEIGHT - 6);
    lvni_report_escape(out, s->x_label);
    lvni_core_str_printf(out, "%s</text><text x=%d y=%d>", s->x->note, LEFT, TOP - 8);
    lvni_report_escape(out, s->y_label);
    lvni_core_str_printf(out, "%s</text>\n", s->y->note);
}

void lvni_report_scatter_write(const lvni_report_scatter *scatter, lvni_core_str *out)
{
    const bool axes = scatter->x != NULL;
    const frame f = axes ? fit_axes(scatter->x, scatter->y) : fit(scatter);
    lvni_core_str_append(out, "<figure>");
    write_legend(scatter, out);
    lvni_core_str_printf(out, "<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"", WIDTH, HEIGHT);
    lvni_report_escape(out, scatter->title);
    lvni_core_str_append(out, "\">");
    if (axes) {
        write_axes(scatter, &f, out);
    } else {
        write_frame(scatter, out);
    }
    write_points(scatter, &f, out);
    lvni_core_str_append(out, "</svg></figure>\n");
}
