/* Layers of language models and transformers: layer norm. */
#include "nn/builder_impl.h"

typedef struct layer_norm {
    lvn_module base;
    int64_t features;
    double eps;
    lvn_tensor *weight, *bias; /* (features) */
} layer_norm;

static lvn_status layer_norm_build(lvn_module *module, lvn_builder *b)
{
    layer_norm *m = (layer_norm *)module;
    LVN_ARG(m->features > 0, "%s: a layer norm over %lld features is not possible", module->path,
            (long long)m->features);
    m->weight = lvn_builder_parameter(b, "weight", 1, &m->features, LVN_INIT_ONES, 0.0);
    m->bias = lvn_builder_parameter(b, "bias", 1, &m->features, LVN_INIT_ZEROS, 0.0);
    return lvn_builder_status(b);
}

static lvn_tensor *layer_norm_forward(const lvn_module *module, lvn_tensor *x)
{
    const layer_norm *m = (const layer_norm *)module;
    return lvn_layer_norm(x, m->weight, m->bias, m->eps);
}

static const lvn_module_class layer_norm_class = {.name = "layer_norm",
                                                  .size = sizeof(layer_norm),
                                                  .build = layer_norm_build,
                                                  .forward = layer_norm_forward};

lvn_module *lvn_nn_layer_norm_with(lvn_builder *b, const char *name, int64_t features,
                                   const lvn_nn_layer_norm_options *o)
{
    layer_norm *m = (layer_norm *)(void *)lvni_nn_builder_new_module(b, &layer_norm_class, name);
    if (m == NULL) {
        return NULL;
    }
    lvn_nn_layer_norm_options own;
    if (!lvni_nn_builder_options(b, "nn_layer_norm", &own, sizeof own, o)) {
        return NULL;
    }
    m->features = features;
    m->eps = own.eps > 0.0 ? own.eps : 1e-5;
    return lvni_nn_builder_build(b, &m->base);
}
