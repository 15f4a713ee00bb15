/* The networks behind the zoo's table, for this folder. */
#ifndef LEVIN_NN_ZOO_IMPL_H
#define LEVIN_NN_ZOO_IMPL_H

#include "nn/builder_impl.h"

/* zoo_small.c */
extern const lvn_module_class lvni_nn_zoo_cnn, lvni_nn_zoo_mlp;
/* zoo_resnet.c */
extern const lvn_module_class lvni_nn_zoo_resnet18, lvni_nn_zoo_resnet34, lvni_nn_zoo_resnet50;
/* zoo_vit.c */
extern const lvn_module_class lvni_nn_zoo_vit_s_16, lvni_nn_zoo_vit_b_16;

/* The mean cross entropy of what forward() gives; metrics loss and acc. */
lvn_tensor *lvni_nn_zoo_classifier_step(const lvn_module *m, const lvn_batch *batch,
                                        lvn_step *step);

#endif
