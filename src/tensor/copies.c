/* Copies on the copy stream that a device has of its own (copies.h). A copy that fails counts for
 * every context that computes on the device (device_stream.c). */
#include "tensor/copies.h"

#include "tensor/device_impl.h"

struct lvni_tensor_copies {
    lvni_tensor_device *device;
    void *event; /* behind the group */
};

lvn_status lvni_tensor_copies_create(lvni_tensor_device *device, lvni_tensor_copies **out)
{
    *out = NULL;
    lvni_tensor_copies *c = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_copies);
    if (c == NULL) {
        return LVN_ERR_MEMORY;
    }
    c->device = device;
    const lvn_status s = device->backend->event_create(device->state, &c->event);
    if (s != LVN_OK) {
        lvni_core_free(c);
        return s;
    }
    *out = c;
    return LVN_OK;
}

void lvni_tensor_copies_destroy(lvni_tensor_copies *c)
{
    if (c != NULL) {
        const lvn_backend *b = c->device->backend;
        (void)b->event_record(c->event, c->device->own[LVN_STREAM_COPY]); /* also of half a group */
        (void)b->event_wait(c->event);
        b->event_destroy(c->event);
        lvni_core_free(c);
    }
}

lvn_status lvni_tensor_copies_begin_into(lvni_tensor_copies *c, const lvn_tensor *t,
                                         lvn_tensor *on_device)
{
    return c->device->backend->copy(c->device->own[LVN_STREAM_COPY], on_device->data, t->data,
                                    (size_t)lvn_numel(t) * lvn_dtype_size(t->dtype));
}

lvn_tensor *lvni_tensor_copies_begin(lvni_tensor_copies *c, const lvn_tensor *t)
{
    const lvni_tensor_desc d = lvni_tensor_get_desc(t);
    lvn_tensor *on_device = lvni_tensor_new_for_copy(&d, c->device);
    if (on_device != NULL && lvni_tensor_copies_begin_into(c, t, on_device) != LVN_OK) {
        lvn_release(on_device);
        return NULL;
    }
    return on_device;
}

lvn_status lvni_tensor_copies_end(lvni_tensor_copies *c)
{
    return c->device->backend->event_record(c->event, c->device->own[LVN_STREAM_COPY]);
}

/* The device's own compute stream gives order to those of all contexts. */
lvn_status lvni_tensor_copies_follow(lvni_tensor_copies *c)
{
    return c->device->backend->event_follow(c->device->own[LVN_STREAM_COMPUTE], c->event);
}

lvn_status lvni_tensor_copies_wait(lvni_tensor_copies *c)
{
    return c->device->backend->event_wait(c->event);
}
