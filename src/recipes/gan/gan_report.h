/* What the evaluation of the gan recipe leaves in a folder: arrays and figures of single items, and
 * a page that shows them beside the metrics. */
#ifndef LEVIN_RECIPES_GAN_GAN_REPORT_H
#define LEVIN_RECIPES_GAN_GAN_REPORT_H

#include "core/config.h"
#include "core/str.h"
#include "recipes/gan/gan_figures.h"
#include "recipes/gan/gan_metrics.h"

/* Of an evaluation, before any work: lvni_run_inference_check, and what draws where output= is. */
lvn_status lvni_gan_report_check(const lvni_core_config *config);

/* Into an existing folder, i the item's index:
 *   np_gt_<i>.npy, np_avgs_<i>.npy, np_stds_<i>.npy (height, width), np_zfr_<i>.npy the same if
 *   there is a baseline, np_samps_<i>.npy (n_samples, height, width), float32, not rotated;
 *   overview_<i>.png, zoom_<i>.png, ascent_<i>.png. */
lvn_status lvni_gan_report_item(const char *folder, const lvni_gan_item *item,
                                const lvni_gan_style *style, uint64_t seed);

typedef struct lvni_gan_row {
    const char *name;
    const lvni_gan_average *average;
    int decimals;
} lvni_gan_row;

typedef struct lvni_gan_page {
    const char *title;
    const lvni_gan_row *rows;
    int n_rows;
    const char *text;          /* lines such as the table of epochs; NULL: none */
    const char *const *images; /* files of the folder, such as "psnr.png" */
    int n_images;
    const int64_t *items; /* indices for which lvni_gan_report_item was called */
    int n_items;
} lvni_gan_page;

enum { LVNI_GAN_CURVES = 2 };
/* Of the run directory `run`, from its metrics.jsonl: <folder>/loss.png, <folder>/std_mult.png. The
 * names of those that were drawn, none without the file, are appended to `images`. */
lvn_status lvni_gan_report_curves(const char *folder, const char *run, const char **images,
                                  int *n_images);

/* <folder>/index.html: a table of the metrics, the text, the images. One file that links to the
 * others by relative names, without scripts and without anything from elsewhere. */
lvn_status lvni_gan_report_page(const char *folder, const lvni_gan_page *page);

#endif
