/* A range test as an image: an SVG document (W3C, SVG 1.1) that any browser shows. */
#ifndef LEVIN_RECIPES_RANGE_PLOT_H
#define LEVIN_RECIPES_RANGE_PLOT_H

#include "core/str.h"
#include "recipes/range_test.h"

/* The smoothed loss over the rate, the losses of the steps as dots, and point `suggested` (-1:
 * none) marked. */
void lvni_recipes_range_plot(const lvni_recipes_range_test *test, int suggested,
                             lvni_core_str *out);

#endif
