/* Curves as a PNG or SVG file: axes, ticks at round numbers, a legend above them. Called by the
 * figures of the gan recipe and by levin tune lr. */
#ifndef LEVIN_REPORT_PLOT_H
#define LEVIN_REPORT_PLOT_H

#include <levin/status.h>

enum { LVNI_PLOT_SERIES = 8 };

typedef struct lvni_report_plot_series {
    const char *name;
    const double *x, *y;  /* (n); a point that is not finite interrupts the line */
    const double *spread; /* (n) or NULL: bars from y - spread to y + spread */
    int64_t n;
    bool dashed, dots;
    bool scattered; /* dots without a line, those outside of the other curves' range left out */
} lvni_report_plot_series;

typedef struct lvni_report_plot {
    const char *title, *x_label, *y_label;
    bool log_x; /* the axis of x is logarithmic: a point whose x is not above 0 is none */
    lvni_report_plot_series series[LVNI_PLOT_SERIES];
    int n_series;
} lvni_report_plot;

enum { LVNI_PLOT_WIDTH = 960, LVNI_PLOT_HEIGHT = 600 }; /* units of a canvas (canvas.h) */

lvn_status lvni_report_plot_write(const char *path, const lvni_report_plot *plot);

/* The values of a metrics.jsonl with these names (at most LVNI_PLOT_SERIES) over "step"; a name
 * without any has no curve. labels: a plot without series. *drawn: false without a curve, then no
 * file is written. Lines that are damaged are left out. LVN_ERR_NOT_FOUND without the file. */
lvn_status lvni_report_plot_metrics(const char *path, const char *metrics,
                                    const lvni_report_plot *labels, const char *const *names,
                                    int n_names, bool *drawn);

#endif
