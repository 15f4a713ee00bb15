/* Figures of reconstructions as PNG files: panels with a title, a colour map and a colour bar.
 * Called by gan_report.c and by training for an image of each epoch. */
#ifndef LEVIN_RECIPES_GAN_GAN_FIGURES_H
#define LEVIN_RECIPES_GAN_GAN_FIGURES_H

#include "report/colour_map.h"

#include <levin/status.h>

/* An item with its samples; all images (height, width), in the units of the data. */
typedef struct lvni_gan_item {
    int64_t index; /* of the item in its set: the number in file names */
    int height, width, n_samples;
    const float *truth, *mean, *std;
    const float *baseline; /* zero-filled, dirty or Kaiser-Squires image; NULL: none */
    const char *baseline_name;
    const float *samples; /* (n_samples, height, width) */
    /* (n_samples, height, width), image k of the first k + 1 samples, for what is averaged before a
     * magnitude is taken; NULL: the means of `samples` */
    const float *means;
} lvni_gan_item;

typedef struct lvni_gan_style {
    lvni_report_colour_map image, error, std;
    double image_limit; /* images are drawn from 0 to image_limit max(truth); 0: from min(truth) to
                           max(truth) */
    double other_limit; /* error and std from 0 to other_limit times their maximum */
    int zoom_side;      /* pixels of the enlarged square, at most half of the shorter side */
    bool rotate;        /* by 180 degrees */
} lvni_gan_style;

extern const lvni_gan_style lvni_gan_mass_style;
extern const lvni_gan_style lvni_gan_radio_style;
extern const lvni_gan_style lvni_gan_mri_style;

/* An image is enlarged by the least whole factor of pixels that makes its longer side this long, in
 * units of the canvas. */
enum { LVNI_GAN_PANEL = 256 };

/* All panels of a row have one range; "<" and ">" at the ends of a bar of colours mark that its
 * panel has values beyond it. */

/* Truth, reconstruction and baseline; below them absolute error and std. */
lvn_status lvni_gan_overview(const char *path, const lvni_gan_item *item,
                             const lvni_gan_style *style);
/* The truth with a square, and the square enlarged of truth, reconstruction, baseline, up to three
 * samples, error and std. Its place is random and depends on seed and index alone. */
lvn_status lvni_gan_zoom(const char *path, const lvni_gan_item *item, const lvni_gan_style *style,
                         uint64_t seed);
/* The same square of the truth, of the means of all, 8, 4 and 2 samples, and of one sample. */
lvn_status lvni_gan_ascent(const char *path, const lvni_gan_item *item, const lvni_gan_style *style,
                           uint64_t seed);
/* During training: truth and reconstruction within the range of the truth, and below them their
 * difference, up to a fifth of it; the title has the PSNR by max(truth). A constant image is one
 * colour. */
lvn_status lvni_gan_progress(const char *path, const float *truth, const float *mean, int height,
                             int width);

/* PSNR of the mean of 1 to n samples, a mean over items with its standard deviation (NULL: none),
 * and what exact samples would gain from the first on: psnr[0] + 10 log10(2 n / (n + 1)). */
lvn_status lvni_gan_plot_psnr(const char *path, int n_samples, const double *psnr,
                              const double *std);

#endif
