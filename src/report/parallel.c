/* Parallel coordinates (parallel.h). */
#include "report/parallel.h"

#include "core/alloc.h"
#include "report/axis.h"
#include "report/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The drawing in units of its view box. */
enum { STEP = 110, LEFT = 60, RIGHT = 60, TOP = 28, HEIGHT = 260, ABSENT = 18, BOTTOM = 34 };
enum { CATEGORIES = 40, NAME = 16 };

typedef struct scale {
    lvni_report_axis axis;
    bool numbers, absent;               /* absent: a case has none, and its line goes on */
    const char *categories[CATEGORIES]; /* in the order of their first case */
    int n_categories;
} scale;

static const char *text_of(const lvni_report_parallel *of, int i, int axis)
{
    return of->text[(size_t)i * (size_t)of->n_axes + (size_t)axis];
}

static bool number_of(const char *text, double *value)
{
    char *end;
    *value = lvni_core_strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

static int category_of(const scale *s, const char *text)
{
    for (int k = 0; k < s->n_categories; k++) {
        if (strcmp(s->categories[k], text) == 0) {
            return k;
        }
    }
    return -1;
}

/* What is more than there is room for has the last place. */
static void add_category(scale *s, const char *text)
{
    if (s->n_categories < CATEGORIES && category_of(s, text) < 0) {
        s->categories[s->n_categories++] = text;
    }
}

static void measure(const lvni_report_parallel *of, int axis, scale *s)
{
    double least = INFINITY, most = -INFINITY, value;
    *s = (scale){.numbers = true};
    for (int i = 0; i < of->n; i++) {
        const char *text = text_of(of, i, axis);
        if (text == NULL) {
            s->absent = axis + 1 < of->n_axes;
            continue;
        }
        add_category(s, text);
        if (!number_of(text, &value)) {
            s->numbers = false;
            continue;
        }
        least = fmin(least, value);
        most = fmax(most, value);
    }
    const bool log = least > 0.0 && (of->log[axis] || most / least > 100.0);
    lvni_report_axis_begin(&s->axis, log);
    for (int i = 0; i < of->n && s->numbers; i++) {
        const char *text = text_of(of, i, axis);
        if (text != NULL && number_of(text, &value)) {
            lvni_report_axis_widen(&s->axis, value);
        }
    }
    lvni_report_axis_end(&s->axis, 0.0, 5);
}

static double height_of(double share)
{
    return TOP + (1.0 - share) * HEIGHT;
}

static double share_on(const scale *s, const char *text)
{
    double value;
    if (s->numbers) {
        (void)number_of(text, &value);
        const double at = lvni_report_axis_place(&s->axis, value);
        return (at - s->axis.low) / (s->axis.high - s->axis.low);
    }
    const int k = category_of(s, text);
    return ((k < 0 ? s->n_categories - 1 : k) + 0.5) / s->n_categories;
}

static void write_tick(double x, double y, const char *text, lvni_core_str *out)
{
    lvni_core_str_printf(out, "<line class=a x1=%.0f x2=%.0f y1=%.1f y2=%.1f />", x - 4.0, x, y, y);
    if (text[0] != '\0') {
        lvni_core_str_printf(out, "<text x=%.0f y=%.1f text-anchor=end>", x - 6.0, y + 4.0);
        lvni_report_escape_name(out, text, NAME);
        lvni_core_str_append(out, "</text>");
    }
}

static void write_axis(const lvni_report_parallel *of, int axis, const scale *s, lvni_core_str *out)
{
    const double x = LEFT + axis * STEP;
    lvni_core_str_printf(out,
                         "<g><line class=a x1=%.0f x2=%.0f y1=%d y2=%d /><text x=%.0f y=14 "
                         "text-anchor=middle><title>",
                         x, x, TOP, TOP + HEIGHT, x);
    lvni_report_escape(out, of->axis[axis]);
    lvni_core_str_append(out, "</title>");
    lvni_report_escape_name(out, of->axis[axis], NAME);
    lvni_core_str_append(out, s->numbers ? s->axis.note : "");
    lvni_core_str_append(out, "</text>");
    for (int k = 0; k < (s->numbers ? s->axis.n_ticks : s->n_categories); k++) {
        if (s->numbers) {
            const lvni_report_tick *t = &s->axis.tick[k];
            const double share = (t->at - s->axis.low) / (s->axis.high - s->axis.low);
            write_tick(x, height_of(share), t->text, out);
        } else {
            write_tick(x, height_of((k + 0.5) / s->n_categories), s->categories[k], out);
        }
    }
    if (s->absent) {
        write_tick(x, TOP + HEIGHT + ABSENT, "none", out);
    }
    lvni_core_str_append(out, "</g>\n");
}

void lvni_report_parallel_colour(double share, lvni_core_str *out)
{
    lvni_core_str_printf(out, " style=\"--c:hsl(%.0f 75%% 48%%)\"",
                         215.0 - 205.0 * fmin(fmax(share, 0.0), 1.0));
}

static void write_line(const lvni_report_parallel *of, int i, const scale *scales,
                       lvni_core_str *out)
{
    const char *last = text_of(of, i, of->n_axes - 1);
    lvni_core_str_printf(out, "<path class=\"l%s\" data-r=%d", last == NULL ? " s v" : " s", i);
    if (last != NULL) {
        const double share = share_on(&scales[of->n_axes - 1], last);
        lvni_report_parallel_colour(of->least_is_best ? share : 1.0 - share, out);
    }
    lvni_core_str_append(out, " d=\"");
    for (int k = 0; k < of->n_axes - (last == NULL); k++) {
        const char *text = text_of(of, i, k);
        const double y =
            text == NULL ? TOP + HEIGHT + ABSENT : height_of(share_on(&scales[k], text));
        lvni_core_str_printf(out, "%s%d %.1f", k == 0 ? "M" : "L", LEFT + k * STEP, y);
    }
    lvni_core_str_append(out, "\"/>\n");
}

void lvni_report_parallel_write(const lvni_report_parallel *of, lvni_core_str *out)
{
    const int width = LEFT + (of->n_axes - 1) * STEP + RIGHT, height = TOP + HEIGHT + BOTTOM;
    scale *scales = lvni_core_calloc(LVNI_TAG_CORE, (size_t)of->n_axes, sizeof *scales);
    if (scales == NULL) {
        out->failed = true;
        return;
    }
    for (int k = 0; k < of->n_axes; k++) {
        measure(of, k, &scales[k]);
    }
    lvni_core_str_append(out, "<figure><figcaption>");
    lvni_report_escape(out, of->title);
    lvni_core_str_printf(out,
                         "</figcaption><div class=wide><svg viewBox=\"0 0 %d %d\" "
                         "style=\"min-width:%dpx;max-width:%dpx\" role=img aria-label=\"",
                         width, height, width * 4 / 5, width * 2);
    lvni_report_escape(out, of->title);
    lvni_core_str_append(out, "\">\n");
    for (int i = of->n - 1; i >= 0; i--) { /* the first are on top */
        write_line(of, i, scales, out);
    }
    for (int k = 0; k < of->n_axes; k++) {
        write_axis(of, k, &scales[k], out);
    }
    lvni_core_str_append(out, "</svg></div></figure>\n");
    lvni_core_free(scales);
}
