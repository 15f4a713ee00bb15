/* `builtin:shapes`: images of coloured shapes on cluttered ground, drawn when they are asked for.
 * Image i is a function of the data seed, i and the size alone, its class is i modulo the number
 * of classes. The same fields, splits and augmentation as an image folder.
 *
 * Random numbers: key (data seed, "shapes"), a = 0, b = sample, c = 1 for the layout (elements in
 * the order of drawing), c = 2 for the noise (element = pixel). Called by the recipes, demo and
 * tests. */
#ifndef LEVIN_DATA_SHAPES_H
#define LEVIN_DATA_SHAPES_H

#include "data/views.h"

enum {
    LVNI_SHAPES_MIN_CLASSES = 2,
    LVNI_SHAPES_MAX_CLASSES = 10,
    LVNI_SHAPES_DEFAULT_CLASSES = 6,
    LVNI_SHAPES_DEFAULT_COUNT = 2000
};

typedef struct lvni_data_shapes_options {
    int64_t count; /* images in the whole list (data.count); 0: 2000 */
    int classes;   /* 2 to 10 (data.classes); 0: 6 */
    uint64_t seed; /* data.seed; not the run's seed: the set is the same for all runs */
    bool flat;     /* no classes, no label, as of a folder */
    int side;      /* of the square that is drawn, in pixels; 0: of the largest view */
} lvni_data_shapes_options;

/* As lvni_data_transform_init, but images are used whole, without flips or random crops. */
void lvni_data_shapes_transform_init(lvni_data_transform *t, int size);
/* A view of the set: indices of the whole list are copied, NULL means all. LVN_ERR_USAGE for
 * options out of range. */
lvn_status lvni_data_shapes_create(const lvni_data_shapes_options *options, const int64_t *indices,
                                   int64_t n, const lvni_data_views *views, lvn_dataset **out);
/* Draw image `sample` into rgb (size, size, 3). */
void lvni_data_shapes_draw(uint64_t seed, int64_t sample, int classes, int size, uint8_t *rgb);
/* Signed distance from (x, y) to the outline of shape 0..9, negative inside; every shape lies
 * within the unit circle around (0, 0). Same bits everywhere. */
float lvni_data_shapes_distance(int shape, float x, float y);

/* Of class 0 <= number < LVNI_SHAPES_MAX_CLASSES. */
const char *lvni_data_shapes_name(int number);

#endif
