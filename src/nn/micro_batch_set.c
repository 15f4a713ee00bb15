/* A micro-batch's gradients and buffer records in one flat block (model.h). */
#include "nn/model.h"
#include "tensor/device.h"

#include <string.h>

/* NULL data: memory of its own. */
static lvn_status create(const lvni_nn_model *m, float *data, lvni_nn_set **out)
{
    *out = NULL;
    lvni_nn_set *set = LVNI_NEW(LVNI_TAG_MODEL, lvni_nn_set);
    if (set == NULL) {
        return LVN_ERR_MEMORY;
    }
    set->model = m;
    set->borrowed = data != NULL;
    set->data = data != NULL
                    ? data
                    : lvni_tensor_mem_calloc(LVNI_TAG_MODEL, (size_t)(m->n_weights + m->n_records),
                                             sizeof *set->data);
    set->recorded = lvni_core_calloc(LVNI_TAG_MODEL, (size_t)m->n_buffers, sizeof *set->recorded);
    set->gradients =
        (lvni_autograd_gradients){.data = set->data, .offset = m->offset, .n = m->n_parameters};
    set->gradients.written =
        lvni_core_calloc(LVNI_TAG_MODEL, (size_t)m->n_parameters, sizeof *set->gradients.written);
    set->gradients.oldest =
        lvni_core_calloc(LVNI_TAG_MODEL, (size_t)m->n_parameters, sizeof *set->gradients.oldest);
    if (set->data == NULL || set->recorded == NULL || set->gradients.written == NULL ||
        set->gradients.oldest == NULL) {
        lvni_nn_set_destroy(set);
        return lvn_last_error()->code;
    }
    *out = set;
    return LVN_OK;
}

lvn_status lvni_nn_set_create(const lvni_nn_model *m, lvni_nn_set **out)
{
    return create(m, NULL, out);
}

lvn_status lvni_nn_set_create_in(const lvni_nn_model *m, float *data, lvni_nn_set **out)
{
    return create(m, data, out);
}

void lvni_nn_set_destroy(lvni_nn_set *set)
{
    if (set == NULL) {
        return;
    }
    if (!set->borrowed) {
        lvni_tensor_mem_free(set->data, (size_t)(set->model->n_weights + set->model->n_records),
                             sizeof *set->data);
    }
    lvni_core_free(set->recorded);
    lvni_core_free(set->gradients.written);
    lvni_core_free(set->gradients.oldest);
    lvni_core_free(set);
}

void lvni_nn_set_begin(lvni_nn_set *set, double weight)
{
    memset(set->recorded, 0, (size_t)set->model->n_buffers * sizeof *set->recorded);
    memset(set->gradients.written, 0,
           (size_t)set->model->n_parameters * sizeof *set->gradients.written);
    set->weight = weight;
}

void lvni_nn_set_zero(float *p, int64_t n)
{
    if (n > 0 && lvni_tensor_mem_zero(p, (size_t)n * sizeof *p) != LVN_OK) {
        lvni_tensor_device_record_error(lvni_tensor_device_of(p));
    }
}

void lvni_nn_set_finish(lvni_nn_set *set)
{
    const lvni_nn_model *m = set->model;
    for (int i = 0; i < m->n_parameters; i++) {
        const bool added = m->offset[i] < m->trained_end &&
                           m->offset[i] + m->parameters[i].numel > m->trained_begin;
        if (added && !set->gradients.written[i]) {
            lvni_nn_set_zero(set->data + m->offset[i], m->parameters[i].numel);
        }
    }
    for (int i = 0; i < m->n_buffers; i++) {
        if (!set->recorded[i]) {
            lvni_nn_set_zero(set->data + m->n_weights + m->buffers[i]->offset,
                             lvni_nn_buffer_record_length(m->buffers[i]));
        }
    }
}
