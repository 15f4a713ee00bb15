/* The page of a sweep, from its folders: parallel coordinates, curves and a table of its trials. A
 * sweep that still runs, or has damaged folders of trials, has one, too. */
#ifndef LEVIN_SWEEP_SWEEP_PAGE_H
#define LEVIN_SWEEP_SWEEP_PAGE_H

#include "core/str.h"

#include <stdbool.h>

enum { LVNI_SWEEP_PAGE_TRIALS = 2000 }; /* on a page: the best ones */

/* Is there a sweep.json in the folder? */
bool lvni_sweep_is_sweep(const char *dir);
/* One HTML page. */
lvn_status lvni_sweep_page(const char *dir, lvni_core_str *out);

#endif
