/* A confusion matrix as a figure: a row of cells for each true class, a column for each predicted
 * one, shaded by the share of the row. Called by the eval command of the classify recipe. */
#ifndef LEVIN_REPORT_MATRIX_H
#define LEVIN_REPORT_MATRIX_H

#include <levin/status.h>

enum { LVNI_MATRIX_NUMBERS = 25 /* classes; more: cells without numbers */ };

/* counts (n, n): row i has what is of class i. Rows without any are grey. PNG or SVG (canvas.h). */
lvn_status lvni_report_matrix_write(const char *path, const char *const *names, int n,
                                    const int64_t *counts);

#endif
