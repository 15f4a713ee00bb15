/* What `predict` and `eval` of gan share: the samples of a measurement as images. */
#ifndef LEVIN_RECIPES_GAN_GAN_SAMPLES_H
#define LEVIN_RECIPES_GAN_GAN_SAMPLES_H

#include "recipes/gan/gan.h"
#include "run/best_checkpoint.h"
#include "run/inference.h"

typedef struct lvni_gan_work lvni_gan_work;

/* A running command: use->own. Images are (H, W) in the units of the data: the real part of maps of
 * mass, the magnitude of other complex images, of MRI that of all coils together. */
struct lvni_gan_work {
    lvni_run_inference *use;
    /* `image` is that of the mean of the first n samples; NULL: nothing. */
    void (*with_mean)(lvni_gan_work *work, int n);
    /* Rank 0, for each measurement in the order of the data, when all below is there; value:
     * (n_samples, H, W, out_chans), as the network gives it. */
    lvn_status (*item)(lvni_gan_work *work, int64_t sample, const float *value);

    int n_samples; /* of a measurement */
    const lvni_gan_settings *settings;
    const lvn_dataset *data;
    const char *folder; /* output=; NULL: none */
    int64_t pixels;     /* H W */
    int n_fields;
    float *field[LVN_MAX_FIELDS]; /* of the measurement, as the dataset has them */
    double *sum;                  /* (H, W, out_chans) */
    float *mean;                  /* the same: of the samples */
    float *images;                /* (n_samples, H, W) */
    float *image;                 /* (3, H, W): of the mean, free room, of the truth */
    float *std;                   /* (H, W): deviation of `images`, divisor n_samples */
    uint8_t *mask;                /* (H, W): 0 where nothing is measured; NULL: nowhere */
    void *own;                    /* of the command */
};

extern const lvni_core_option_table *const lvni_gan_predict_keys[], *const lvni_gan_eval_keys[];
extern const lvni_run_results lvni_gan_predictions, lvni_gan_measures; /* this; gan_eval.c */
/* The measurements of a command with a trained model, for the recipe's open. */
lvn_status lvni_gan_open_measurements(lvni_run_job *request, lvni_gan_job *out);
extern const lvni_run_choice_rules lvni_gan_choice; /* gan_choose.c */

/* (H, W): the truth of the measurement. */
const float *lvni_gan_truth(const lvni_gan_work *work);
/* The image of x (H, W, out_chans), normalised as the measurement in `field` is. */
void lvni_gan_image(const lvni_gan_work *work, const float *x, float *out);
/* The folder of output=, if there is one. */
lvn_status lvni_gan_make_folder(lvni_gan_work *work);

/* ---- for results (inference.h) ---- */

/* For begin: use->own, with all but the callbacks; own: of the command. */
lvn_status lvni_gan_work_create(lvni_run_inference *use, int n_samples, void *own,
                                lvni_gan_work **out);
void lvni_gan_work_destroy(lvni_gan_work *work); /* NULL is fine */
lvn_tensor *lvni_gan_samples(const lvn_module *root, const lvn_batch *batch, void *user);
lvn_status lvni_gan_take_row(lvni_run_inference *use, int64_t sample, const float *value,
                             int64_t k);

#endif
