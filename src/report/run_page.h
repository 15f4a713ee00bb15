/* What a run is looked at with. The page: its curves, best values, starts, warnings, machine and
 * configuration, from the files of its directory. A run that is still going on, was killed or has
 * damaged files has one, too. */
#ifndef LEVIN_REPORT_RUN_PAGE_H
#define LEVIN_REPORT_RUN_PAGE_H

#include "core/str.h"

/* defaults: lines "key: value" of all keys of the run's recipe, as in config.yaml; NULL: unknown.
 * sections: of the recipe, HTML behind the curves; NULL: none. LVN_ERR_NOT_FOUND: the directory
 * holds none of a run's files; LVN_ERR_IO, LVN_ERR_MEMORY. */
lvn_status lvni_report_run_page(const char *folder, const char *defaults, const char *sections,
                                lvni_core_str *out);

/* run_figure.c: the curves alone as one PNG or SVG file (by the name's ending), a panel for each
 * chart. LVN_ERR_NOT_FOUND: there is no row to draw; LVN_ERR_UNSUPPORTED: no cairo (canvas.h). */
lvn_status lvni_report_run_figure(const char *folder, const char *path);

/* A run's name on both: "out/x" of "out/x/", "x" of "." in it. */
void lvni_report_run_title(const char *folder, lvni_core_str *out);

/* The value of a key in such lines, appended to value without quotes; false: it is not there. */
bool lvni_report_config_value(const char *lines, const char *key, lvni_core_str *value);

#endif
