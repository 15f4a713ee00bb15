/* Points of a plane, in colours by their group, as SVG within an HTML page (page.h): a map of what
 * has more dimensions, or one quantity against another. No script: what a point is shows while it
 * is pointed at. */
#ifndef LEVIN_REPORT_SCATTER_H
#define LEVIN_REPORT_SCATTER_H

#include "core/str.h"
#include "report/axis.h"

enum { LVNI_SCATTER_GROUPS = 24 }; /* with colours that differ */

typedef struct lvni_report_scatter {
    const char *title, *x_label, *y_label;
    int n;
    const double (*at)[2]; /* finite */
    /* Ended axes with the place of every point (axis.h); one that is on neither is left out. NULL:
     * both axes have one scale, and no ticks. */
    const lvni_report_axis *x, *y;
    const char *const *name; /* (n) */
    const int *group;        /* (n), of n_groups; NULL: there are none */
    const char *const *group_name;
    int n_groups;
} lvni_report_scatter;

/* <figure> with the title, a legend of the groups, and the drawing. */
void lvni_report_scatter_write(const lvni_report_scatter *scatter, lvni_core_str *out);

#endif
