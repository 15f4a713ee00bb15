/* Colour maps of figures. Called by gan_figures.c and matrix.c. */
#ifndef LEVIN_REPORT_COLOUR_MAP_H
#define LEVIN_REPORT_COLOUR_MAP_H

#include <stdint.h>

typedef enum lvni_report_colour_map {
    LVNI_COLOUR_GREY,
    LVNI_COLOUR_INFERNO,
    LVNI_COLOUR_VIRIDIS,
    LVNI_COLOUR_JET,
    LVNI_COLOUR_BLUE
} lvni_report_colour_map;

/* The colour of a value from 0 to 1; beyond them that of the nearer end, NaN as light grey. */
void lvni_report_colour(lvni_report_colour_map map, double value, uint8_t rgb[3]);

#endif
