/* Which metrics of a run are one chart, and line charts as SVG within an HTML page (page.h, which
 * has their colours): one panel, a line for each series, the values within a bucket as a band
 * behind it. No script, no request to anywhere. */
#ifndef LEVIN_REPORT_CHART_H
#define LEVIN_REPORT_CHART_H

#include "core/str.h"
#include "report/series.h"

#include <stdbool.h>

enum { LVNI_REPORT_LINES = 6 }; /* of a chart: as many as there are colours */

typedef enum lvni_report_unit { LVNI_REPORT_PLAIN, LVNI_REPORT_BYTES } lvni_report_unit;

typedef struct lvni_report_chart {
    const char *title;            /* "loss" */
    char group[LVNI_REPORT_NAME]; /* of lvni_report_chart_next: what title points to */
    lvni_report_unit unit;
    bool log;            /* a logarithmic axis, where all values are above 0 */
    const char *x_label; /* NULL: "step" */
    /* Steps that are marked at the upper edge, and what they are; in the range of the lines. */
    const double *mark;
    int n_marks;
    const char *mark_name;
    const lvni_report_series *line[LVNI_REPORT_LINES]; /* named by what their names differ in */
    int n;
} lvni_report_chart;

/* The charts of a run, one after the other: what belongs together, first what is trained and
 * validated, then the rest in the order of the file. drawn: false before, of each series. false:
 * there is no more. */
bool lvni_report_chart_next(const lvni_report_metrics *metrics, bool drawn[LVNI_REPORT_SERIES],
                            lvni_report_chart *out);
/* Of a name that ends in _bytes: bytes. */
lvni_report_unit lvni_report_unit_of(const char *name);

/* <figure> with the title, a legend where there is more than one line, and the drawing. A chart
 * without a value is left out. */
void lvni_report_chart_write(const lvni_report_chart *chart, lvni_core_str *out);

/* A value as the axes and tables have it: "0.0123", "1.2e−5", "36.8 MiB". */
void lvni_report_number(lvni_core_str *out, double value, lvni_report_unit unit);

#endif
