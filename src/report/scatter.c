/* Maps of points (scatter.h). */
#include "report/scatter.h"

#include "report/page.h"

#include <math.h>

enum { WIDTH = 640, HEIGHT = 480, MARGIN = 24, PAGE_COLOURS = 6 };

/* The page's own colours where they are enough, else a circle of hues. */
static void write_colour(const lvni_report_scatter *s, int group, lvni_core_str *out)
{
    if (s->n_groups <= PAGE_COLOURS) {
        lvni_core_str_printf(out, " c%d\"", group);
    } else {
        lvni_core_str_printf(out, "\" style=\"--c:hsl(%d 65%% 50%%)\"", 360 * group / s->n_groups);
    }
}

static void write_legend(const lvni_report_scatter *s, lvni_core_str *out)
{
    lvni_core_str_append(out, "<figcaption>");
    lvni_report_escape(out, s->title);
    for (int i = 0; i < s->n_groups && s->n_groups > 1; i++) {
        lvni_core_str_append(out, " <span class=\"k");
        write_colour(s, i, out);
        lvni_core_str_append(out, ">");
        lvni_report_escape(out, s->group_name[i]);
        lvni_core_str_append(out, "</span>");
    }
    lvni_core_str_append(out, "</figcaption>");
}

/* From a point to the drawing. */
typedef struct frame {
    double middle[2], scale;
} frame;

static frame fit(const lvni_report_scatter *s)
{
    double least[2] = {INFINITY, INFINITY}, most[2] = {-INFINITY, -INFINITY};
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < 2; k++) {
            least[k] = fmin(least[k], s->at[i][k]);
            most[k] = fmax(most[k], s->at[i][k]);
        }
    }
    const double across = fmax(most[0] - least[0], 1e-12), up = fmax(most[1] - least[1], 1e-12);
    return (frame){.middle = {(least[0] + most[0]) / 2.0, (least[1] + most[1]) / 2.0},
                   .scale = fmin((WIDTH - 2 * MARGIN) / across, (HEIGHT - 2 * MARGIN) / up)};
}

static void write_points(const lvni_report_scatter *s, lvni_core_str *out)
{
    const frame f = fit(s);
    for (int i = 0; i < s->n; i++) {
        const double x = WIDTH / 2.0 + (s->at[i][0] - f.middle[0]) * f.scale,
                     y = HEIGHT / 2.0 - (s->at[i][1] - f.middle[1]) * f.scale;
        lvni_core_str_append(out, "<circle class=\"p");
        write_colour(s, s->group != NULL ? s->group[i] : 0, out);
        lvni_core_str_printf(out, " r=4.5 fill-opacity=.75 cx=%.1f cy=%.1f><title>", x, y);
        lvni_report_escape(out, s->name[i]);
        lvni_core_str_printf(out, " (%.4g, %.4g)</title></circle>\n", s->at[i][0], s->at[i][1]);
    }
}

void lvni_report_scatter_write(const lvni_report_scatter *scatter, lvni_core_str *out)
{
    lvni_core_str_append(out, "<figure>");
    write_legend(scatter, out);
    lvni_core_str_printf(out, "<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"", WIDTH, HEIGHT);
    lvni_report_escape(out, scatter->title);
    lvni_core_str_printf(out, "\"><path class=a fill=none d=\"M%d,%dV%dH%d\" />", MARGIN / 2,
                         MARGIN / 2, HEIGHT - MARGIN / 2, WIDTH - MARGIN / 2);
    lvni_core_str_printf(out, "<text x=%d y=%d text-anchor=end>", WIDTH - MARGIN,
                         HEIGHT - MARGIN / 2 - 4);
    lvni_report_escape(out, scatter->x_label);
    lvni_core_str_printf(out,
                         "</text><text transform=\"translate(%d,%d) rotate(-90)\" "
                         "text-anchor=end>",
                         MARGIN / 2 + 14, MARGIN);
    lvni_report_escape(out, scatter->y_label);
    lvni_core_str_append(out, "</text>\n");
    write_points(scatter, out);
    lvni_core_str_append(out, "</svg></figure>\n");
}
