/* What a classifier is trained on: cross entropy with label_smoothing= and class_weights=, and how
 * its samples are drawn (sampler=). Called by classify.c; the loss by its training step (mix.c). */
#ifndef LEVIN_RECIPES_CRITERION_H
#define LEVIN_RECIPES_CRITERION_H

#include "core/config.h"
#include "core/str.h"
#include "nn/model.h"

extern const lvni_option_table lvni_criterion_options; /* label_smoothing class_weights sampler */

/* All zero: the mean cross entropy. */
typedef struct lvni_criterion {
    double label_smoothing;
    lvn_tensor *class_weight; /* (classes), scaled so that the mean over the training samples is 1;
                                 NULL: none */
    bool balanced;            /* sampler=balanced */
} lvni_criterion;

/* From the keys and the training samples' classes; a file's weights become a list in the
 * configuration. LVN_ERR_USAGE, _NOT_FOUND. Appends to `note` what is not the default. */
lvn_status lvni_criterion_read(lvni_config *config, const lvn_dataset *train, lvni_criterion *out,
                               lvni_str *note);
void lvni_criterion_free(lvni_criterion *criterion);
bool lvni_criterion_is_plain(const lvni_criterion *criterion); /* the loss, whatever the sampler */

/* As torch.nn.CrossEntropyLoss(weight, label_smoothing=...): divided by the sum of the labels'
 * weights. */
lvn_tensor *lvni_criterion_loss(const lvni_criterion *criterion, lvn_tensor *logits,
                                lvn_tensor *labels);
/* That sum; without weights the number of labels. The step divides by the sum over its shards: as
 * over its whole batch at once. */
double lvni_criterion_weight(const lvni_criterion *criterion, lvn_tensor *labels);

#endif
