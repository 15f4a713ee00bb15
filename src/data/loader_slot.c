/* The memory of one batch (loader_slot.h). */
#include "data/loader_slot.h"

#include "core/alloc.h"
#include "tensor/tensor.h"

#include <string.h>

static lvn_status field_bytes(const lvn_dataset *dataset, const lvn_field *field, int64_t capacity,
                              size_t *bytes)
{
    const char *name = field->name != NULL ? field->name : "?";
    LVN_ARG((int)field->dtype >= 0 && field->dtype < LVN_DTYPE_COUNT,
            "dataset %s: field %s has unknown data type %d", dataset->cls->name, name,
            (int)field->dtype);
    LVN_ARG(field->ndim >= 0 && field->ndim < LVN_MAX_NDIM,
            "dataset %s: field %s has %d axes; a sample has 0 to %d", dataset->cls->name, name,
            field->ndim, LVN_MAX_NDIM - 1);
    int64_t n = 1;
    const int64_t most = INT64_MAX / 16 / (capacity > 0 ? capacity : 1);
    for (int i = 0; i < field->ndim; i++) {
        LVN_ARG(field->shape[i] >= 1 && n <= most / field->shape[i],
                "dataset %s: axis %d of field %s cannot have size %lld", dataset->cls->name, i,
                name, (long long)field->shape[i]);
        n *= field->shape[i];
    }
    *bytes = (size_t)n * lvn_dtype_size(field->dtype);
    return LVN_OK;
}

lvn_status lvni_data_slot_layout_make(const lvn_dataset *dataset, int64_t capacity,
                                      lvni_data_slot_layout *out)
{
    *out = (lvni_data_slot_layout){.capacity = capacity};
    out->n_fields = dataset->cls->fields(dataset, out->field);
    LVN_ARG(out->n_fields >= 1 && out->n_fields <= LVN_MAX_FIELDS,
            "dataset %s has %d fields; 1 to %d are possible", dataset->cls->name, out->n_fields,
            LVN_MAX_FIELDS);
    for (int i = 0; i < out->n_fields; i++) {
        LVN_TRY(field_bytes(dataset, &out->field[i], capacity, &out->bytes[i]));
        out->slot_bytes += (size_t)capacity * out->bytes[i];
    }
    return LVN_OK;
}

static lvn_status create_field(lvni_data_slot *slot, const lvni_data_slot_layout *layout, int i)
{
    const lvn_field *field = &layout->field[i];
    int64_t shape[LVN_MAX_NDIM] = {layout->capacity};
    memcpy(shape + 1, field->shape, (size_t)field->ndim * sizeof *shape);
    slot->data[i] = lvni_core_alloc(LVNI_TAG_DATA, (size_t)layout->capacity * layout->bytes[i]);
    if (slot->data[i] == NULL) {
        return LVN_ERR_MEMORY;
    }
    slot->out.batch.field[i] = lvn_tensor_wrap(slot->data[i], field->dtype, field->ndim + 1, shape);
    return slot->out.batch.field[i] == NULL ? lvn_last_error()->code : LVN_OK;
}

lvn_status lvni_data_slot_create(lvni_data_slot *slot, const lvni_data_slot_layout *layout)
{
    const size_t n = (size_t)layout->capacity;
    memset(slot, 0, sizeof *slot);
    slot->position = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *slot->position);
    slot->repeat = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *slot->repeat);
    slot->sample = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *slot->sample);
    slot->unreadable = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *slot->unreadable);
    if (slot->position == NULL || slot->repeat == NULL || slot->sample == NULL ||
        slot->unreadable == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < layout->n_fields; i++) {
        LVN_TRY(create_field(slot, layout, i));
    }
    lvn_batch *b = &slot->out.batch;
    b->n_fields = layout->n_fields;
    b->image = b->field[0];
    b->label = layout->n_fields > 1 ? b->field[1] : NULL;
    b->sample = slot->sample;
    return LVN_OK;
}

void lvni_data_slot_destroy(lvni_data_slot *slot)
{
    for (int i = 0; i < LVN_MAX_FIELDS; i++) {
        lvn_release(slot->out.batch.field[i]);
        lvni_core_free(slot->data[i]);
    }
    lvni_core_free(slot->position);
    lvni_core_free(slot->repeat);
    lvni_core_free(slot->sample);
    lvni_core_free(slot->unreadable);
}

void lvni_data_slot_finish(lvni_data_slot *slot, const lvni_data_slot_layout *layout)
{
    int64_t size = 0;
    for (int64_t i = 0; i < slot->out.planned; i++) {
        if (slot->unreadable[i]) {
            continue;
        }
        if (size != i) {
            slot->sample[size] = slot->sample[i];
            for (int f = 0; f < layout->n_fields; f++) {
                const size_t bytes = layout->bytes[f];
                memcpy(slot->data[f] + (size_t)size * bytes, slot->data[f] + (size_t)i * bytes,
                       bytes);
            }
        }
        size++;
    }
    slot->out.batch.size = size;
    for (int f = 0; f < layout->n_fields; f++) {
        lvn_tensor *t = slot->out.batch.field[f];
        t->shape[0] = size;
        t->version++; /* same tensor, other contents: copies kept under (id, version) are stale */
    }
}
