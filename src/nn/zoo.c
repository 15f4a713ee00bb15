/* The models of `model=NAME`: classifiers of images (N, S, S, 3) -> logits (N, classes). The
 * networks are in zoo_*.c. */
#include "nn/zoo_impl.h"

#include <string.h>

/* Every classifier trains on the mean cross entropy. */
lvn_tensor *lvni_nn_zoo_classifier_step(const lvn_module *m, const lvn_batch *batch, lvn_step *step)
{
    lvn_tensor *logits = lvn_forward(m, batch->image);
    lvn_tensor *loss = lvn_cross_entropy(logits, batch->label);
    lvn_log(step, "loss", loss);
    lvn_log(step, "acc", lvn_accuracy(logits, batch->label));
    return loss;
}

static const struct {
    const lvn_module_class *cls;
    double dropout;
    bool any_size;
} zoo[] = {
    {&lvni_nn_zoo_cnn, .dropout = 0.1, .any_size = true},
    {&lvni_nn_zoo_mlp, .dropout = 0.1},
    {&lvni_nn_zoo_resnet18, .dropout = 0.0, .any_size = true},
    {&lvni_nn_zoo_resnet34, .dropout = 0.0, .any_size = true},
    {&lvni_nn_zoo_resnet50, .dropout = 0.0, .any_size = true},
    {&lvni_nn_zoo_vit_s_16, .dropout = 0.0},
    {&lvni_nn_zoo_vit_b_16, .dropout = 0.0},
};

static int index_of(const char *name)
{
    for (int i = 0; i < (int)(sizeof zoo / sizeof *zoo); i++) {
        if (strcmp(zoo[i].cls->name, name) == 0) {
            return i;
        }
    }
    return -1;
}

const lvn_module_class *lvni_nn_zoo_find(const char *name)
{
    const int i = index_of(name);
    return i < 0 ? NULL : zoo[i].cls;
}

bool lvni_nn_zoo_any_size(const char *name)
{
    const int i = index_of(name);
    return i >= 0 && zoo[i].any_size;
}

double lvni_nn_zoo_dropout(const char *name)
{
    const int i = index_of(name);
    return i < 0 ? 0.0 : zoo[i].dropout;
}
