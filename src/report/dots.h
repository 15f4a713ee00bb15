/* A row for each of many names, with a dot for each value it has on one axis from 0, as SVG within
 * an HTML page (page.h). No script: what a dot is shows while it is pointed at. */
#ifndef LEVIN_REPORT_DOTS_H
#define LEVIN_REPORT_DOTS_H

#include "core/str.h"

enum { LVNI_REPORT_DOTS = 6 }; /* of a row: as many as there are colours */

typedef struct lvni_report_dots {
    const char *title, *x_label;
    int n;
    const char *const *name; /* (n) */
    const double *value;     /* (n, n_series), none below 0; not finite: no dot */
    const char *const *series;
    int n_series;
} lvni_report_dots;

/* <figure> with the title, a legend of the series, and the drawing. */
void lvni_report_dots_write(const lvni_report_dots *dots, lvni_core_str *out);

#endif
