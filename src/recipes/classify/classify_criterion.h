/* What a classifier is trained on: cross entropy with label_smoothing= and class_weights=, and how
 * its samples are drawn (sampler=). Called by classify.c; the loss by its training step
 * (classify_mix.c). */
#ifndef LEVIN_RECIPES_CLASSIFY_CLASSIFY_CRITERION_H
#define LEVIN_RECIPES_CLASSIFY_CLASSIFY_CRITERION_H

#include "core/config.h"
#include "core/str.h"
#include "nn/model.h"

/* label_smoothing class_weights sampler */
extern const lvni_core_option_table lvni_classify_criterion_options;

/* All zero: the mean cross entropy. */
typedef struct lvni_classify_criterion {
    double label_smoothing;
    lvn_tensor *class_weight; /* (classes), scaled so that the mean over the training samples is 1;
                                 NULL: none */
    bool balanced;            /* sampler=balanced */
} lvni_classify_criterion;

/* From the keys and the training samples' classes; a file's weights become a list in the
 * configuration. LVN_ERR_USAGE, _NOT_FOUND. Appends to `note` what is not the default. */
lvn_status lvni_classify_criterion_read(lvni_core_config *config, const lvn_dataset *train,
                                        lvni_classify_criterion *out, lvni_core_str *note);
void lvni_classify_criterion_free(lvni_classify_criterion *criterion);
/* the loss, whatever the sampler */
bool lvni_classify_criterion_is_plain(const lvni_classify_criterion *criterion);

/* As torch.nn.CrossEntropyLoss(weight, label_smoothing=...): divided by the sum of the labels'
 * weights. */
lvn_tensor *lvni_classify_criterion_loss(const lvni_classify_criterion *criterion,
                                         lvn_tensor *logits, lvn_tensor *labels);
/* That sum, of labels in host memory: no device is waited for. Without weights the number of
 * labels. The step divides by the sum over its micro-batches: as over its whole batch at once. */
double lvni_classify_criterion_weight(const lvni_classify_criterion *criterion, lvn_tensor *labels);

#endif
