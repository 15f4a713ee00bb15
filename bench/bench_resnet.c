/* Networks of the zoo that start calm (bench_resnet.h). */
#include "bench_resnet.h"

#include "tensor/device.h"

#include <string.h>

/* The last norm of each block starts at 0, so that blocks start as identities (Goyal et al. 2017,
 * section 5.1). Without, rounding grows so quickly over noise that not even PyTorch's two layouts
 * agree: after two steps their losses are 0.04 apart. */
static lvn_status start_calm(lvni_nn_model *m)
{
    lvn_status s = LVN_OK;
    for (int i = 0; i < m->n_parameters && s == LVN_OK; i++) {
        const char *name = m->parameters[i].name;
        const char *last = strstr(
            name, m->root->cls == lvni_nn_zoo_find("resnet50") ? ".bn3.weight" : ".bn2.weight");
        if (strncmp(name, "layer", 5) == 0 && last != NULL) {
            s = lvni_tensor_mem_zero(m->parameters[i].tensor->data,
                                     (size_t)m->parameters[i].numel * sizeof(float));
        }
    }
    lvni_nn_model_touch(m);
    return s;
}

lvn_status bench_resnet_build(const char *net, int side, lvni_nn_model **model)
{
    const lvni_nn_zoo_arguments arguments = {.image_size = side, .n_classes = BENCH_CLASSES};
    LVN_TRY(lvni_nn_model_build(lvni_nn_zoo_find(net), &arguments, 1, model));
    return start_calm(*model);
}
