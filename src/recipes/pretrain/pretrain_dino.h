/* What method=dino and method=dinov2 share (pretrain_dino_parts.c), and the parts of the second
 * that its tests look at. pretrain.h is the map of the folder. */
#ifndef LEVIN_RECIPES_PRETRAIN_PRETRAIN_DINO_H
#define LEVIN_RECIPES_PRETRAIN_PRETRAIN_DINO_H

#include "recipes/pretrain/pretrain.h"

enum { LVNI_PRETRAIN_HEAD_LAYERS = 3, LVNI_PRETRAIN_GLOBAL = 2 };

/* ---- the projection head ---- */

/* An MLP, rows of length 1, and a layer whose weights are rows of length 1, too, times `gain` where
 * that is learned. */
typedef struct lvni_pretrain_head {
    lvn_module *linear[LVNI_PRETRAIN_HEAD_LAYERS], *norm[LVNI_PRETRAIN_HEAD_LAYERS]; /* or NULL */
    lvn_tensor *direction, *gain; /* (K, bottleneck), (K, 1); gain NULL: 1 */
} lvni_pretrain_head;
typedef struct lvni_pretrain_head_form {
    int64_t in, hidden, bottleneck, out;
    bool batch_norm, gain;
} lvni_pretrain_head_form;

/* A name for the parts of a network, which the teacher follows the student by. */
lvn_module *lvni_pretrain_part(lvn_builder *b, const char *name);
/* In build(): `of`.`name`.layers.0, ... and `of`.`name`.last_layer. */
void lvni_pretrain_head_build(lvn_builder *b, const char *of, const char *name,
                              const lvni_pretrain_head_form *form, lvni_pretrain_head *h);
lvn_tensor *lvni_pretrain_project(const lvni_pretrain_head *h, lvn_tensor *x);
/* (1): no absolute value of what it gives is larger. Of a head with a gain. */
lvn_tensor *lvni_pretrain_project_bound(const lvni_pretrain_head *h);

/* ---- a step ---- */

/* The two large views (N, 2, H, W, 3); *local: the small ones (N, L, h, w, 3), NULL: there are
 * none. */
lvn_tensor *lvni_pretrain_split_views(const lvn_batch *batch, lvn_tensor **local);
/* Rows (N V, K) as (N, V, K). */
lvn_tensor *lvni_pretrain_by_sample(lvn_tensor *rows, int64_t samples);
/* What the answers, rows of probabilities, show of the image, in nats: the entropy of their mean
 * less the mean of their entropies. 0 where all images get the same one, sharp or even. */
lvn_tensor *lvni_pretrain_information(lvn_tensor *logits);

/* Caron et al. 2021, eq. 3: the mean over samples, and over pairs of a view that the teacher sees
 * and another one that the student sees, of the cross entropy. teacher: probabilities (N, 2, K) of
 * the two large views; global, local: logarithms of the student's, (N, 2, K) and (N, L, K), NULL:
 * there are none. */
lvn_tensor *lvni_pretrain_dino_loss(lvn_tensor *teacher, lvn_tensor *global, lvn_tensor *local);
/* The same in two parts, which add up to it: the pairs of large views, and those with small ones
 * (local NULL: that is NULL, and the first divided by 3 as LightlyTrain has it). */
void lvni_pretrain_dino_losses(lvn_tensor *teacher, lvn_tensor *global, lvn_tensor *local,
                               lvn_tensor *out[2]);

/* ---- masks: pretrain_masks.c ---- */

typedef struct lvni_pretrain_masking {
    int height, width;            /* of an image, in patches */
    double probability, ratio[2]; /* parts of the crops, and of the patches of one */
} lvni_pretrain_masking;
/* Crops of a micro-batch, the first of which has this number in the step. */
typedef struct lvni_pretrain_crops {
    uint64_t seed;
    uint32_t step;
    int64_t first, n;
} lvni_pretrain_crops;
/* Most patches that they have masked, whatever is drawn. */
int64_t lvni_pretrain_masks_most(const lvni_pretrain_masking *m, const lvni_pretrain_crops *crops);
/* out (n, height, width): true where a patch is masked. A part of the step's crops has blocks, and
 * each micro-batch its share of these, with ratios that are spread evenly from the first to the
 * second (Oquab et al. 2023, and Zhou et al. 2022, "iBOT"). What is drawn follows from seed, step
 * and the crops' numbers in the step. order: room for n. */
void lvni_pretrain_masks_draw(const lvni_pretrain_masking *m, const lvni_pretrain_crops *crops,
                              int64_t *order, bool *out);

/* Masked patches of a micro-batch, as tensors. There are as many rows in every step, at least one;
 * the last ones do not count. */
typedef struct lvni_pretrain_masked {
    lvn_tensor *mask;   /* (n, height width, 1) bool */
    lvn_tensor *index;  /* (M) i64, of the patch among all of the micro-batch */
    lvn_tensor *weight; /* (M, 1): 1 / the masked patches of the crop, or 0 */
    lvn_tensor *counts; /* (M, 1): 1, or 0 */
} lvni_pretrain_masked;
/* false: it failed, and so has the scope. */
bool lvni_pretrain_masked_draw(const lvni_pretrain_masking *m, const lvni_pretrain_crops *crops,
                               lvni_pretrain_masked *out);

/* ---- losses of dinov2: pretrain_dinov2_loss.c ---- */

/* The mean over `crops` of the mean over its masked patches of the cross entropy. teacher:
 * probabilities (M, K); student: logarithms; weight as above. */
lvn_tensor *lvni_pretrain_ibot_loss(lvn_tensor *teacher, lvn_tensor *student, lvn_tensor *weight,
                                    int64_t crops);
/* Sablayrolles et al. 2019, "Spreading vectors for similarity search": less the mean over rows
 * (N, D) of the logarithm of the distance between the unit row and the nearest other one. 0 for
 * one row. */
lvn_tensor *lvni_pretrain_koleo_loss(lvn_tensor *rows);
/* Rows (M, K) of logits as probabilities that every one of the K has the same part of (Caron et al.
 * 2020, "Unsupervised learning of visual features by contrasting cluster assignments", 3.1), of the
 * rows of all micro-batches of the group. counts (M, 1): rows of 0 do not count, and get zeros;
 * NULL: all count. bound: of all logits, the same in all micro-batches. */
lvn_tensor *lvni_pretrain_sinkhorn(lvn_tensor *logits, lvn_tensor *bound, lvn_tensor *temperature,
                                   lvn_tensor *counts);

#endif
