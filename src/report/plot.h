/* Curves as a PNG or SVG file: axes, ticks at round numbers, a legend above them. Called by the
 * figures of the gan recipe, by levin tune lr and, for a panel of several, by run_figure.c. */
#ifndef LEVIN_REPORT_PLOT_H
#define LEVIN_REPORT_PLOT_H

#include "report/canvas.h"

enum { LVNI_PLOT_SERIES = 8 };

typedef struct lvni_report_plot_series {
    const char *name;         /* in the legend; NULL: not there */
    const double *x, *y;      /* (n); a point that is not finite interrupts the line */
    const double *spread;     /* (n) or NULL: bars from y - spread to y + spread */
    const double *low, *high; /* (n) or both NULL: a pale band behind all lines */
    int64_t n;
    bool dashed, dots;
    bool thin;      /* half as thick, and behind the lines that are not */
    bool scattered; /* dots without a line, those outside of the other curves' range left out */
} lvni_report_plot_series;

typedef struct lvni_report_plot {
    const char *title, *x_label, *y_label;
    bool log_x, log_y; /* logarithmic axes: a point that is not above 0 there is none */
    /* the axes reach over them, too; both 0: as far as the points */
    double x_range[2], y_range[2];
    lvni_report_plot_series series[LVNI_PLOT_SERIES];
    int n_series;
} lvni_report_plot;

enum { LVNI_PLOT_WIDTH = 960, LVNI_PLOT_HEIGHT = 600 }; /* units of a canvas (canvas.h) */

lvn_status lvni_report_plot_write(const char *path, const lvni_report_plot *plot);

/* Within a rectangle of a canvas. */
typedef struct lvni_report_box {
    double x, y, width, height;
} lvni_report_box;
lvn_status lvni_report_plot_draw(lvni_report_canvas *canvas, const lvni_report_plot *plot,
                                 const lvni_report_box *box);

/* The values of a metrics.jsonl with these names (at most LVNI_PLOT_SERIES) over "step"; a name
 * without any has no curve. labels: a plot without series. *drawn: false without a curve, then no
 * file is written. Lines that are damaged are left out. LVN_ERR_NOT_FOUND without the file. */
lvn_status lvni_report_plot_metrics(const char *path, const char *metrics,
                                    const lvni_report_plot *labels, const char *const *names,
                                    int n_names, bool *drawn);

#endif
