/* Colour maps of figures, and those of matplotlib by name. Called by gan_figures.c, matrix.c and
 * pose_draw.c. */
#ifndef LEVIN_REPORT_COLOUR_MAP_H
#define LEVIN_REPORT_COLOUR_MAP_H

#include <stdbool.h>
#include <stdint.h>

typedef enum lvni_report_colour_map {
    LVNI_COLOUR_GREY,
    LVNI_COLOUR_INFERNO,
    LVNI_COLOUR_VIRIDIS,
    LVNI_COLOUR_JET,
    LVNI_COLOUR_BLUE,
    LVNI_COLOUR_COOL,
    LVNI_COLOUR_PLASMA,
    LVNI_COLOUR_MAGMA,
    LVNI_COLOUR_TURBO,
    LVNI_COLOUR_HSV,
    LVNI_COLOUR_RAINBOW,
    LVNI_COLOUR_SPRING,
    LVNI_COLOUR_SUMMER,
    LVNI_COLOUR_AUTUMN,
    LVNI_COLOUR_WINTER,
    LVNI_COLOUR_TAB10 /* ten colours, each for a tenth */
} lvni_report_colour_map;

/* The colour of a value from 0 to 1; beyond them that of the nearer end, NaN as light grey. */
void lvni_report_colour(lvni_report_colour_map map, double value, uint8_t rgb[3]);

/* By the name that matplotlib has for it ("gray"); false: none of those above has it. */
bool lvni_report_colour_map_find(const char *name, lvni_report_colour_map *out);
extern const char lvni_report_colour_map_names[]; /* "cool, viridis, ..." */

#endif
