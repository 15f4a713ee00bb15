/* A shard's gradients and buffer records in one flat block (model.h). */
#include "core/alloc.h"
#include "nn/model.h"

#include <string.h>

lvn_status lvni_set_create(const lvni_model *m, lvni_set **out)
{
    *out = NULL;
    lvni_set *set = LVNI_NEW(LVNI_TAG_MODEL, lvni_set);
    if (set == NULL) {
        return LVN_ERR_MEMORY;
    }
    set->model = m;
    set->data = lvni_calloc(LVNI_TAG_MODEL, (size_t)(m->n_weights + m->n_records), sizeof *set->data);
    set->recorded = lvni_calloc(LVNI_TAG_MODEL, (size_t)m->n_buffers, sizeof *set->recorded);
    set->gradients = (lvni_gradients){.data = set->data, .offset = m->offset, .n = m->n_parameters};
    set->gradients.written = lvni_calloc(LVNI_TAG_MODEL, (size_t)m->n_parameters, sizeof(bool));
    if (set->data == NULL || set->recorded == NULL || set->gradients.written == NULL) {
        lvni_set_destroy(set);
        return LVN_ERR_MEMORY;
    }
    *out = set;
    return LVN_OK;
}

void lvni_set_destroy(lvni_set *set)
{
    if (set == NULL) {
        return;
    }
    lvni_free(set->data);
    lvni_free(set->recorded);
    lvni_free(set->gradients.written);
    lvni_free(set);
}

void lvni_set_begin(lvni_set *set, double weight)
{
    memset(set->recorded, 0, (size_t)set->model->n_buffers * sizeof *set->recorded);
    memset(set->gradients.written, 0, (size_t)set->model->n_parameters * sizeof(bool));
    set->weight = weight;
}

void lvni_set_finish(lvni_set *set)
{
    const lvni_model *m = set->model;
    for (int i = 0; i < m->n_parameters; i++) {
        if (!set->gradients.written[i]) {
            memset(set->data + m->offset[i], 0, (size_t)m->parameters[i].numel * sizeof *set->data);
        }
    }
    for (int i = 0; i < m->n_buffers; i++) {
        if (!set->recorded[i]) {
            float *record = set->data + m->n_weights + m->buffers[i]->offset;
            memset(record, 0, (size_t)(m->buffers[i]->numel + 1) * sizeof *record);
        }
    }
}

lvn_status lvn_buffer_push(const lvn_buffer *buffer, const lvn_tensor *value)
{
    lvni_ctx *ctx = lvni_ctx_get();
    lvni_set *set = ctx->records;
    if (set == NULL || !ctx->at.training) {
        return LVN_OK;
    }
    LVN_ARG(value != NULL && value->dtype == LVN_F32 && lvn_numel(value) == buffer->numel,
            "buffer %s takes %lld f32 values", buffer->name, (long long)buffer->numel);
    LVN_ARG(buffer->model == set->model, "buffer %s belongs to another model than the one in training", buffer->name);
    const int index = buffer->index;
    if (set->recorded[index]) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "buffer %s was pushed twice in one forward: a module with running statistics can be used once per step",
                 buffer->name);
    }
    set->recorded[index] = true;
    float *record = set->data + set->model->n_weights + buffer->offset;
    const float *v = LVNI_CF32(value), weight = (float)set->weight;
    for (int64_t k = 0; k < buffer->numel; k++) {
        record[k] = weight * v[k];
    }
    record[buffer->numel] = weight;
    return LVN_OK;
}

void lvni_model_apply_records(lvni_model *m, const lvni_set *total)
{
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_buffer *b = m->buffers[i];
        const float *record = total->data + m->n_weights + b->offset;
        const float weight = record[b->numel];
        if (!(weight > 0.0f)) {
            continue; /* no shard pushed anything */
        }
        const float momentum = (float)b->momentum, keep = (float)(1.0 - b->momentum);
        float *v = LVNI_F32(b->tensor);
        for (int64_t k = 0; k < b->numel; k++) {
            v[k] = keep * v[k] + momentum * (record[k] / weight);
        }
    }
}
