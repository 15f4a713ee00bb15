/* Rows of dots (dots.h). */
#include "report/dots.h"

#include "report/axis.h"
#include "report/page.h"

#include <math.h>

/* The drawing in units of its view box. */
enum { WIDTH = 640, LEFT = 170, RIGHT = 16, TOP = 8, ROW = 18, BOTTOM = 40, NAME = 24 };

static void write_legend(const lvni_report_dots *d, lvni_core_str *out)
{
    lvni_core_str_append(out, "<figcaption>");
    lvni_report_escape(out, d->title);
    lvni_report_legend(out, d->series, d->n_series);
    lvni_core_str_append(out, "</figcaption>");
}

static double place(const lvni_report_axis *x, double value)
{
    return LEFT + (value - x->low) / (x->high - x->low) * (WIDTH - RIGHT - LEFT);
}

static void write_axis(const lvni_report_dots *d, const lvni_report_axis *x, lvni_core_str *out)
{
    const int bottom = TOP + d->n * ROW;
    for (int i = 0; i < x->n_ticks; i++) {
        const double at = place(x, x->tick[i].at);
        lvni_core_str_printf(out,
                             "<line class=g x1=%.1f x2=%.1f y1=%d y2=%d /><text x=%.1f y=%d "
                             "text-anchor=middle>%s</text>",
                             at, at, TOP, bottom, at, bottom + 16, x->tick[i].text);
    }
    lvni_core_str_printf(out, "<text x=%d y=%d text-anchor=end>", WIDTH - RIGHT, bottom + 32);
    lvni_report_escape(out, d->x_label);
    lvni_core_str_printf(out, "%s</text>\n", x->note);
}

static void write_row(const lvni_report_dots *d, int row, const lvni_report_axis *x,
                      lvni_core_str *out)
{
    const double y = TOP + (row + 0.5) * ROW;
    char number[LVNI_NUMBER_TEXT];
    lvni_core_str_printf(out, "<text x=%d y=%.1f text-anchor=end>", LEFT - 10, y + 4.0);
    lvni_report_escape_name(out, d->name[row], NAME);
    lvni_core_str_append(out, "</text>");
    for (int i = 0; i < d->n_series; i++) {
        const double value = d->value[row * d->n_series + i];
        if (!isfinite(value)) {
            continue;
        }
        lvni_core_str_append(out, "<circle");
        lvni_report_class(out, "p", i, d->n_series);
        lvni_core_str_printf(out, " r=4.5 cx=%.1f cy=%.1f><title>", place(x, value), y);
        lvni_report_escape(out, d->name[row]);
        lvni_core_str_append(out, ", ");
        lvni_report_escape(out, d->series[i]);
        lvni_core_str_printf(out, ": %s</title></circle>",
                             lvni_report_axis_number(value, 4, number));
    }
    lvni_core_str_append(out, "\n");
}

void lvni_report_dots_write(const lvni_report_dots *dots, lvni_core_str *out)
{
    lvni_report_axis x;
    lvni_report_axis_begin(&x, false);
    lvni_report_axis_widen(&x, 0.0);
    for (int i = 0; i < dots->n * dots->n_series; i++) {
        lvni_report_axis_widen(&x, dots->value[i]);
    }
    x.high *= 1.02; /* the last dot is whole */
    lvni_report_axis_end(&x, 0.0, 6);
    lvni_core_str_append(out, "<figure>");
    write_legend(dots, out);
    lvni_core_str_printf(out, "<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"", WIDTH,
                         TOP + dots->n * ROW + BOTTOM);
    lvni_report_escape(out, dots->title);
    lvni_core_str_append(out, "\">");
    write_axis(dots, &x, out);
    for (int i = 0; i < dots->n; i++) {
        write_row(dots, i, &x, out);
    }
    lvni_core_str_append(out, "</svg></figure>\n");
}
