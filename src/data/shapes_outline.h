/* The outlines of the built-in shapes: signed distances, negative inside. Called by
 * shapes_draw.c. */
#ifndef LEVIN_DATA_SHAPES_OUTLINE_H
#define LEVIN_DATA_SHAPES_OUTLINE_H

extern const char *const lvni_data_shapes_names[10];

/* Distance from (x, y) to the outline of shape 0..9; every shape lies within the unit circle around
 * (0, 0). Same bits everywhere. */
float lvni_data_shapes_distance(int shape, float x, float y);

#endif
