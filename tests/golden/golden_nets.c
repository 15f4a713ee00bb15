#include "golden_nets.h"

#include "nn/model.h"

#include "support/test.h"

#include <string.h>

typedef struct segmenter {
    lvn_module base;
    lvn_module *unet;
} segmenter;

static lvn_status segmenter_build(lvn_module *module, lvn_builder *b)
{
    segmenter *m = (segmenter *)module;
    const bool bilinear = strcmp(module->cls->name, "unet_bilinear") == 0;
    m->unet = lvn_nn_unet(b, "unet", 3, 5, .width = 8, .depth = 2, .bilinear = bilinear);
    return lvn_builder_status(b);
}

static lvn_tensor *segmenter_forward(const lvn_module *module, lvn_tensor *x)
{
    return lvn_forward(((const segmenter *)module)->unet, x);
}

/* A linear layer behind a flattened image. */
typedef struct flatten {
    lvn_module base;
    lvn_module *conv[2], *fc[2];
} flatten;

static lvn_status flatten_build(lvn_module *module, lvn_builder *b)
{
    flatten *m = (flatten *)module;
    m->conv[0] = lvn_nn_conv2d(b, "conv1", 3, 6, 3, .padding = 1);
    m->conv[1] = lvn_nn_conv2d(b, "conv2", 6, 8, 3, .padding = 1);
    m->fc[0] = lvn_nn_linear(b, "fc1", 5 * 5 * 8, 12, .image = {5, 5, 8});
    m->fc[1] = lvn_nn_linear(b, "fc2", 12, 7);
    return lvn_builder_status(b);
}

static lvn_tensor *flatten_forward(const lvn_module *module, lvn_tensor *x)
{
    const flatten *m = (const flatten *)module;
    for (int i = 0; i < 2; i++) {
        x = lvn_max_pool2d(lvn_relu(lvn_forward(m->conv[i], x)), 2);
    }
    return lvn_forward(m->fc[1], lvn_relu(lvn_forward(m->fc[0], lvn_flatten(x, 1))));
}

static const lvn_module_class own[] = {
    {.name = "unet",
     .size = sizeof(segmenter),
     .build = segmenter_build,
     .forward = segmenter_forward},
    {.name = "unet_bilinear",
     .size = sizeof(segmenter),
     .build = segmenter_build,
     .forward = segmenter_forward},
    {.name = "flatten",
     .size = sizeof(flatten),
     .build = flatten_build,
     .forward = flatten_forward},
};

const lvn_module_class *golden_class(const char *name)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(own[i].name, name) == 0) {
            return &own[i];
        }
    }
    assert_non_null(lvni_nn_zoo_find(name));
    return lvni_nn_zoo_find(name);
}
