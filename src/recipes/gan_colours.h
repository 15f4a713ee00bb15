/* Colour maps of figures. Called by gan_figures.c. */
#ifndef LEVIN_RECIPES_GAN_COLOURS_H
#define LEVIN_RECIPES_GAN_COLOURS_H

#include <stdint.h>

typedef enum lvni_recipes_gan_map {
    LVNI_GAN_GREY,
    LVNI_GAN_INFERNO,
    LVNI_GAN_VIRIDIS,
    LVNI_GAN_JET
} lvni_recipes_gan_map;

/* The colour of a value from 0 to 1; beyond them that of the nearer end, NaN as light grey. */
void lvni_recipes_gan_colour(lvni_recipes_gan_map map, double value, uint8_t rgb[3]);

#endif
