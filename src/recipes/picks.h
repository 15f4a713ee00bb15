/* Which pictures the page of `sheet=` shows, and drawing it. Few are kept while predictions come
 * in: no list as long as the data. Called by classify_predict.c. */
#ifndef LEVIN_RECIPES_PICKS_H
#define LEVIN_RECIPES_PICKS_H

#include "data/augment.h"

#include <levin/data.h>

enum {
    LVNI_SHEET_COLUMNS = 8,
    LVNI_SHEET = 4 * LVNI_SHEET_COLUMNS,
    LVNI_SHEET_WRONG = LVNI_SHEET / 2
};

typedef struct lvni_pick {
    int64_t sample;
    int64_t label; /* the true class; -1: not known, then it counts as right */
    int64_t predicted;
    float probability; /* of the predicted class */
} lvni_pick;

typedef struct lvni_picks lvni_picks;

lvn_status lvni_picks_create(int n_classes, lvni_picks **out);
void lvni_picks_destroy(lvni_picks *picks); /* NULL is fine */
/* One prediction; samples come in the order of the data. */
lvn_status lvni_picks_offer(lvni_picks *picks, const lvni_pick *pick);
/* The page in its order, at most LVNI_SHEET of them; the number. First up to LVNI_SHEET_WRONG wrong
 * ones, one class after the other, of each class the most certain mistake first (among equals the
 * earlier sample); then right ones in the same way, in the data's order. */
int lvni_picks_choose(const lvni_picks *picks, lvni_pick out[LVNI_SHEET]);
/* Draw them into a PNG file. The dataset is asked for the pictures once more. */
lvn_status lvni_picks_draw(const lvni_picks *picks, const lvn_dataset *data,
                           const lvni_transform *transform, const char *const *class_names,
                           const char *path);

#endif
