/* Images of samples during a training: images/step=0000096.png of the run directory, after
 * validations. What is in them is the recipe's (recipe.h), everything else is here: when, on which
 * rank, where, and that a run goes on without them. */
#ifndef LEVIN_RUN_PREVIEW_H
#define LEVIN_RUN_PREVIEW_H

#include "core/option.h"
#include "trainer/trainer.h"

struct lvni_run_job;

enum { LVNI_PREVIEW_DIMS = 5 };

/* Of a recipe's row. */
typedef struct lvni_run_preview {
    /* f32 (R, N, H, W, C) of a batch that has the first sample of the validation, behind its step:
     * on the lane of rank 0 that has it, without gradients. On the host or the device. NULL: its
     * error, and without one there are no images of this validation. */
    lvn_tensor *(*images)(const lvn_module *root, const lvn_batch *batch,
                          const struct lvni_run_job *job);
    /* Into a PNG file. NULL: lvni_run_preview_draw_rows. */
    lvn_status (*draw)(const char *path, const float *images, const int64_t *shape);
    bool needs_cairo; /* draw does: without it one warning, and no images */
    /* Validations of the run before this one, where its model counts them, so that images are of
     * one in `every`. NULL: the first of every so many epochs. */
    int64_t (*before)(const lvn_module *root);
} lvni_run_preview;

/* image_every_n_epochs, of recipes that have no row of that name themselves. */
extern const lvni_core_option_table lvni_run_preview_options;

/* R rows of up to 8 images, C 1 or 3, from 0 (black) to 1 (white); small ones are enlarged. */
lvn_status lvni_run_preview_draw_rows(const char *path, const float *images, const int64_t *shape);
/* lvni_trainer_options.write_page: with the names of rows and columns; without cairo as it is.
 * Small tiles are enlarged. */
lvn_status lvni_run_preview_write_page(const char *path, const lvni_trainer_page *page,
                                       int size[2]);
/* LVN_ERR_SHAPE: these are not images for that; `of` stands in front. */
lvn_status lvni_run_preview_check(const char *of, const lvn_tensor *images);

/* ---- for fit.c: of a rank ---- */

typedef struct lvni_run_previews {
    const struct lvni_run_job *job;
    char *dir; /* NULL: nothing is drawn */
} lvni_run_previews;

/* Into options: what the trainer calls. */
void lvni_run_previews_attach(lvni_run_previews *previews, lvni_trainer_options *options);
/* On rank 0, before the first step. */
lvn_status lvni_run_previews_open(lvni_run_previews *previews, const char *run);
void lvni_run_previews_close(lvni_run_previews *previews);

#endif
