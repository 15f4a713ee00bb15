/* `levin export`: a trained model as a file for others. Called by cmd_export.c and by the help. */
#ifndef LEVIN_RECIPES_EXPORT_H
#define LEVIN_RECIPES_EXPORT_H

#include "core/option.h"

/* words: key=value as on the command line. */
lvn_status lvni_recipes_export(int n, const char *const *words);
const lvni_core_option_table *lvni_recipes_export_tables(size_t *n);

#endif
