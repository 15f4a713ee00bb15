/* A network with a loss over all rows of its group (contrast_support.h). */
#include "contrast_support.h"

int64_t contrast_bad_sample = -1;
contrast_trouble contrast_bad = CONTRAST_FINE;

static contrast_trouble contrast_trouble_of(const lvn_batch *batch)
{
    for (int64_t i = 0; i < batch->size; i++) {
        if (lvn_is_training() && batch->sample[i] == contrast_bad_sample) {
            return contrast_bad;
        }
    }
    return CONTRAST_FINE;
}

/* A row's two views are its features and the same turned round; z are unit vectors. For each row:
 * which of the group's second views is its own? (NT-Xent: Chen et al. 2020, eq. 1, one
 * direction) */
typedef struct contrast {
    lvn_module base;
    lvn_module *head;
} contrast;

static lvn_status contrast_build(lvn_module *module, lvn_builder *b)
{
    ((contrast *)module)->head = lvn_nn_linear(b, "head", FEATURES, 4);
    lvn_builder_couple(b);
    return lvn_builder_status(b);
}

static lvn_tensor *unit_rows(const contrast *m, lvn_tensor *x)
{
    const int last = 1;
    lvn_tensor *z = lvn_forward(m->head, x);
    return lvn_div(z, lvn_sqrt(lvn_add_scalar(lvn_sum_axes(lvn_square(z), &last, 1, true), 1e-6)));
}

static lvn_tensor *own_rows(int64_t first, int64_t n)
{
    lvn_tensor *t = lvn_zeros(LVN_I64, LVN_SHAPE(n));
    for (int64_t i = 0; t != NULL && i < n; i++) {
        ((int64_t *)lvn_data(t))[i] = first + i;
    }
    return t;
}

static lvn_tensor *contrast_step(const lvn_module *module, const lvn_batch *batch, lvn_step *step)
{
    const contrast *m = (const contrast *)module;
    const int64_t n = batch->size;
    const int columns = 1;
    const contrast_trouble trouble = contrast_trouble_of(batch);
    lvn_tensor *a = unit_rows(m, batch->image);
    if (trouble == CONTRAST_STAYS_AWAY) {
        return lvn_mean(a);
    }
    if (trouble == CONTRAST_FAILS) {
        return lvn_add(a, lvn_zeros(LVN_F32, LVN_SHAPE(7)));
    }
    lvn_tensor *b = unit_rows(
        m, lvn_concat((lvn_tensor *[]){lvn_slice(batch->image, columns, FEATURES / 2, FEATURES),
                                       lvn_slice(batch->image, columns, 0, FEATURES / 2)},
                      2, columns));
    int64_t first;
    lvn_tensor *every = lvn_group_gather_at(b, &first);
    lvn_tensor *loss = lvn_cross_entropy(
        lvn_mul_scalar(lvn_matmul(a, lvn_transpose(every, 0, 1)), 5.0), own_rows(first, n));
    /* the number of rows of the group */
    lvn_tensor *spread = lvn_group_sum(lvn_sum(lvn_square(a)));
    lvn_log(step, "loss", loss);
    lvn_log(step, "rows", spread);
    return loss;
}

const lvn_module_class contrast_class = {.name = "contrast",
                                         .size = sizeof(contrast),
                                         .build = contrast_build,
                                         .training_step = contrast_step};

/* The same module without lvn_builder_couple(). */
static lvn_status silent_build(lvn_module *module, lvn_builder *b)
{
    ((contrast *)module)->head = lvn_nn_linear(b, "head", FEATURES, 4);
    return lvn_builder_status(b);
}

const lvn_module_class silent_class = {.name = "silent",
                                       .size = sizeof(contrast),
                                       .build = silent_build,
                                       .training_step = contrast_step};
