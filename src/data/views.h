/* Views: what a sample shows of one decoded image, 1 to 10 times, each with a transform and draws
 * of its own. Self-supervised training asks for 2 views of 224 pixels and 6 of 96 like this:
 *
 *     lvni_data_views views = {.n = 8, .stacked = true};
 *     for (int v = 0; v < views.n; v++) {
 *         lvni_data_transform *t = &views.view[v];
 *         lvni_data_transform_init(t, v < 2 ? 224 : 96);
 *         t->area = true;
 *         t->scale[0] = v < 2 ? 0.14 : 0.05;
 *         t->scale[1] = v < 2 ? 1.0 : 0.14;
 *     }
 *     LVN_TRY(lvni_images_source_views(&source, NULL, 0, &views, &dataset));
 *
 * A micro-batch of b samples then has, without labels, batch->field[0] (b, 2, 224, 224, 3), named
 * `image`, and batch->field[1] (b, 6, 96, 96, 3), named `image2`: a reshape to (2b, 224, 224, 3) is
 * what a network takes, row 2i + v of which is view v of sample i. src/images/view_presets.h has
 * the views of the usual methods.
 *
 * View 0 has the draws of the key itself, view v = 1, 2, ... those of the key with another seed,
 * that of (key->seed, "view" + v). Called by the image datasets. */
#ifndef LEVIN_DATA_VIEWS_H
#define LEVIN_DATA_VIEWS_H

#include "data/augment.h"

enum { LVNI_MAX_VIEWS = 10 };

typedef struct lvni_data_views {
    int n; /* 1 to LVNI_MAX_VIEWS */
    /* false: a field (size, width, depth) for each view; true: neighbours of equal shape, also one
     * alone, share a field (views, size, width, depth) */
    bool stacked;
    lvni_data_transform view[LVNI_MAX_VIEWS];
} lvni_data_views;

/* n views that differ in their draws alone, not stacked; out of range is left to the check. */
lvni_data_views lvni_data_views_make(const lvni_data_transform *t, int n);
/* LVN_ERR_USAGE: the number of views, a transform (with its view), or more fields, with the label
 * where there is one, than LVN_MAX_FIELDS. */
lvn_status lvni_data_views_check(const lvni_data_views *views, bool label);
/* Those that images are decoded to, the same for all views. */
static inline int lvni_data_views_channels(const lvni_data_views *views)
{
    return lvni_data_transform_channels(&views->view[0]);
}
/* The side of a square that has every pixel of the largest view. */
int lvni_data_views_side(const lvni_data_views *views);
/* The fields `image`, `label` (where there is one), `image2`, `image3`, ...; returns how many. */
int lvni_data_views_fields(const lvni_data_views *views, bool label, lvn_field out[LVN_MAX_FIELDS]);

/* Where view v lies in a sample: its field, and which one it is of the views in that field. */
typedef struct lvni_data_view_place {
    int field, index;
} lvni_data_view_place;
lvni_data_view_place lvni_data_views_place(const lvni_data_views *views, int v, bool label);
/* The key that view v's draws follow from. */
lvn_sample_key lvni_data_view_key(const lvn_sample_key *key, int v);

/* What is drawn for each view of an image of this size (info), and what of it must be decoded: at
 * least at the scale `need`, at least the part `wanted` (stored pixels). */
typedef struct lvni_data_views_drawn {
    lvni_data_augment view[LVNI_MAX_VIEWS];
    double need;
    lvni_data_box wanted;
} lvni_data_views_drawn;
lvn_status lvni_data_views_draw(const lvni_data_views *views, const lvn_sample_key *key,
                                const lvni_data_image_info *info, lvni_data_views_drawn *out);
/* All of them into their fields, from the image decoded once, to lvni_data_views_channels. */
lvn_status lvni_data_views_render(lvni_data_scratch *scratch, const lvni_data_views *views,
                                  const lvni_data_views_drawn *drawn, const lvni_data_image *image,
                                  const lvni_data_image_info *info, bool label,
                                  void *const field[]);

#endif
