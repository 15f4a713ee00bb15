/* Which images the page of `sheet=` shows, and drawing it. Few are kept while predictions come
 * in: no list as long as the data. Called by classify_predict.c. */
#ifndef LEVIN_RECIPES_CLASSIFY_CLASSIFY_SHEET_H
#define LEVIN_RECIPES_CLASSIFY_CLASSIFY_SHEET_H

#include "core/str.h"
#include "data/augment.h"

#include <levin/data.h>

enum {
    LVNI_SHEET_COLUMNS = 8,
    LVNI_SHEET = 4 * LVNI_SHEET_COLUMNS,
    LVNI_SHEET_WRONG = LVNI_SHEET / 2
};

typedef struct lvni_classify_sheet_sample {
    int64_t sample;
    int64_t label; /* the true class; -1: not known, then it counts as right */
    int64_t predicted;
    float probability; /* of the predicted class */
} lvni_classify_sheet_sample;

typedef struct lvni_classify_sheet_samples lvni_classify_sheet_samples;

lvn_status lvni_classify_sheet_samples_create(int n_classes, lvni_classify_sheet_samples **out);
void lvni_classify_sheet_samples_destroy(lvni_classify_sheet_samples *samples); /* NULL is fine */
/* One prediction; samples come in the order of the data. */
lvn_status lvni_classify_sheet_samples_offer(lvni_classify_sheet_samples *samples,
                                             const lvni_classify_sheet_sample *pick);
/* The page in its order, at most LVNI_SHEET of them; the number. First up to LVNI_SHEET_WRONG wrong
 * ones, one class after the other, of each class the most certain mistake first (among equals the
 * earlier sample); then right ones in the same way, in the data's order. */
int lvni_classify_sheet_samples_choose(const lvni_classify_sheet_samples *samples,
                                       lvni_classify_sheet_sample out[LVNI_SHEET]);
/* The mistakes among them as figures of a page (report/page.h), shrunk to at most 112 pixels. */
lvn_status lvni_classify_sheet_samples_html(const lvni_classify_sheet_samples *samples,
                                            const lvn_dataset *data,
                                            const lvni_data_transform *transform,
                                            const char *const *class_names, lvni_core_str *out);
/* Draw them into a PNG file. The images are read from the dataset once more. */
lvn_status lvni_classify_sheet_samples_draw(const lvni_classify_sheet_samples *samples,
                                            const lvn_dataset *data,
                                            const lvni_data_transform *transform,
                                            const char *const *class_names, const char *path);

#endif
