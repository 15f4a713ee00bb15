/* The builder's inside, for this folder. */
#ifndef LEVIN_NN_BUILDER_IMPL_H
#define LEVIN_NN_BUILDER_IMPL_H

#include "nn/model.h"

struct lvn_builder {
    lvni_nn_model *model;
    const char *path; /* of the module being built */
    const lvn_module *module;
    const void *arguments;
    bool sync_batch_norm; /* every batch norm is over the group of its micro-batch */
    lvn_status status;
    lvn_error error;
};

/* A module of `cls` named `name` below the builder's module, zeroed, not built. NULL on failure. */
lvn_module *lvni_nn_builder_new_module(lvn_builder *b, const lvn_module_class *cls,
                                       const char *name);
/* Run its build() with the path set. */
lvn_module *lvni_nn_builder_build(lvn_builder *b, lvn_module *module);
/* A buffer named `name` below the builder's module. NULL on failure. */
lvn_buffer *lvni_nn_builder_new_buffer(lvn_builder *b, const char *name, int ndim,
                                       const int64_t *shape, lvni_nn_rule rule);
/* Room for one buffer more, which nothing is known of. NULL on failure. */
lvn_buffer *lvni_nn_builder_add_buffer(lvn_builder *b);
/* When parameters and buffers have their places (follow.c). */
void lvni_nn_model_find_leaders(lvni_nn_model *model);
/* The parameters of `module`, which is built, are buffers from here on that no step moves, with the
 * initial values that they had: saved and exported by name, and in no optimizer, gradient set or
 * reduction. A gradient flows through the module, and not into it. */
lvn_status lvni_nn_builder_fix(lvn_builder *b, const lvn_module *module);
/* The same of the parameter `name` of the module that is built. */
lvn_status lvni_nn_builder_fix_parameter(lvn_builder *b, const char *name);
/* lvn_forward with another function than the class's. */
lvn_tensor *lvni_nn_module_run(const lvn_module *module, lvn_tensor *x,
                               lvn_tensor *(*run)(const lvn_module *module, lvn_tensor *x));
/* lvn_forward of a module that follows another one records no gradient. */
static inline void lvni_nn_module_set_follows(lvn_module *module)
{
    module->reserved[0] = module;
}
static inline bool lvni_nn_module_follows(const lvn_module *module)
{
    return module->reserved[0] != NULL;
}
/* lvn_forward of a marked module keeps its inputs alone, and runs again in the backward pass. */
static inline bool lvni_nn_module_is_unit(const lvn_module *module)
{
    return module->reserved[1] != NULL;
}
/* lvni_nn_module_run of a part of `module` that is recomputed when `child`, in it, is. */
lvn_tensor *lvni_nn_module_run_part(const lvn_module *module, const lvn_module *child,
                                    lvn_tensor *x,
                                    lvn_tensor *(*run)(const lvn_module *module, lvn_tensor *x));
/* The builder fails with the thread's error, unless it has; NULL. */
void *lvni_nn_builder_fail(lvn_builder *b, lvn_status code);
/* `init` of the parameter or buffer is one of its values; false fails the builder. */
bool lvni_nn_builder_good_init(lvn_builder *b, const char *name, lvn_init init);
/* Read the options of a layer (core/options_struct.h); false fails the builder. */
bool lvni_nn_builder_options(lvn_builder *b, const char *call, void *own, size_t bytes,
                             const void *given);

#endif
