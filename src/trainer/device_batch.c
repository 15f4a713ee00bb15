/* Batches on a device (device_batch.h). */
#include "trainer/device_batch.h"

#include "tensor/device.h"
#include "tensor/tensor.h"

lvn_status lvni_trainer_device_batch_make(const lvni_data_loader_batch *from,
                                          lvni_data_loader_batch *out)
{
    lvni_tensor_device *device = lvni_tensor_ctx_get()->device;
    *out = *from;
    lvn_batch *b = &out->batch;
    for (int i = 0; i < LVN_MAX_FIELDS; i++) {
        b->field[i] = NULL;
    }
    for (int i = 0; i < b->n_fields; i++) {
        lvn_tensor *t = from->batch.field[i];
        b->field[i] = device == NULL ? lvn_retain(t) : lvni_tensor_to(t, device);
        if (b->field[i] == NULL) {
            lvn_error_frame("copying a batch of %lld samples to the device", (long long)b->size);
            return lvn_last_error()->code;
        }
    }
    b->image = b->field[0];
    b->label = b->n_fields > 1 ? b->field[1] : NULL;
    return LVN_OK;
}

void lvni_trainer_device_batch_free(lvni_data_loader_batch *batch)
{
    for (int i = 0; i < batch->batch.n_fields; i++) {
        lvn_release(batch->batch.field[i]);
        batch->batch.field[i] = NULL;
    }
}
