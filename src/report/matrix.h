/* A confusion matrix as a figure: a row of cells for each true class, a column for each predicted
 * one, shaded by the share of the row. Called by eval and by the page of the classify recipe. */
#ifndef LEVIN_REPORT_MATRIX_H
#define LEVIN_REPORT_MATRIX_H

#include "core/str.h"

enum { LVNI_MATRIX_NUMBERS = 25 /* classes; more: cells without numbers */ };

/* counts (n, n): row i has what is of class i. Rows without any are grey. PNG or SVG (canvas.h). */
lvn_status lvni_report_matrix_write(const char *path, const char *const *names, int n,
                                    const int64_t *counts);
/* The same as <svg> of a page, whose description has the counts ("cat as dog: 3"). */
lvn_status lvni_report_matrix_embed(const char *const *names, int n, const int64_t *counts,
                                    lvni_core_str *out);

#endif
