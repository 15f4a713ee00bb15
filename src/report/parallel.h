/* Parallel coordinates: an axis for each quantity beside the next, and a line for each case through
 * its values, as SVG within an HTML page (page.h). Called by sweep_page.c. */
#ifndef LEVIN_REPORT_PARALLEL_H
#define LEVIN_REPORT_PARALLEL_H

#include "core/str.h"

typedef struct lvni_report_parallel {
    const char *title;
    int n, n_axes;
    const char *const *axis; /* (n_axes): their names; cases are coloured by the last one */
    const bool *log;         /* (n_axes): logarithmic where its values are numbers above 0; an axis
                                whose numbers are more than two decades apart is in any case */
    const char *const *text; /* (n, n_axes): an axis is one of numbers where all its texts are
                                finite ones, else of categories; NULL: the case has no such value */
    bool least_is_best;      /* of the last axis */
} lvni_report_parallel;

/* <figure> with the title and the drawing, which is as wide as its axes need and scrolls in a
 * narrow window. Line i has data-r=i. */
void lvni_report_parallel_write(const lvni_report_parallel *of, lvni_core_str *out);

/* ` style="--c:COLOUR"`, from blue (0) to red (1), on light and on dark ground. */
void lvni_report_parallel_colour(double share, lvni_core_str *out);

#endif
