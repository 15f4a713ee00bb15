/* The backend of simulated accelerators: a call of a cpu (or ref) kernel becomes a command of the
 * device's stream. The command carries headers of its own with the addresses that the device may
 * touch, so no caller has to hold the tensors: memory that is released meanwhile goes only to
 * commands that come later. Called by kernels/run.c. */
#include "kernels/kernels.h"
#include "tensor/device.h"

#include <stdalign.h>
#include <string.h>

enum { MOST = LVN_KERNEL_INPUTS + LVN_KERNEL_OUTPUTS, ATTR_BYTES = 192 };

typedef struct call {
    const lvni_kernels_op_info *info;
    lvni_kernels_backend kernel;
    bool given[MOST]; /* inputs, then outputs */
    lvn_tensor header[MOST];
    lvni_tensor_storage storage; /* of all of them: borrowed memory */
    bool has_attr;
    alignas(16) unsigned char attr[ATTR_BYTES];
} call;
_Static_assert(sizeof(call) <= LVNI_COMMAND_BYTES, "a command holds a kernel call");

static lvn_status run_call(void *payload)
{
    call *c = payload;
    lvn_kernel_args args = {.attr = c->has_attr ? c->attr : NULL};
    for (int i = 0; i < MOST; i++) {
        c->header[i].storage = &c->storage;
        if (c->given[i] && i < LVN_KERNEL_INPUTS) {
            args.in[i] = &c->header[i];
        } else if (c->given[i]) {
            args.out[i - LVN_KERNEL_INPUTS] = &c->header[i];
        }
    }
    return c->kernel(c->info, &args);
}

static void fill_header(lvn_tensor *header, const lvn_tensor *t)
{
    atomic_store_explicit(&header->refs, 1, memory_order_relaxed);
    header->dtype = t->dtype;
    header->ndim = t->ndim;
    memcpy(header->shape, t->shape, sizeof header->shape);
    header->param = t->param; /* with id and version: the key of reordered copies */
    header->id = t->id;
    header->version = t->version;
    header->data = lvni_tensor_device_alias(t->data);
}

lvn_status lvni_sim_run(lvni_tensor_device *device, const lvni_kernels_op_info *info,
                        const lvn_kernel_args *args, lvni_kernels_backend kernel)
{
    call c;
    memset(&c, 0, sizeof c);
    c.info = info;
    c.kernel = kernel;
    atomic_store_explicit(&c.storage.refs, 1, memory_order_relaxed);
    c.storage.borrowed = true;
    for (int i = 0; i < MOST; i++) {
        const lvn_tensor *t =
            i < LVN_KERNEL_INPUTS ? args->in[i] : args->out[i - LVN_KERNEL_INPUTS];
        if (t != NULL && (i >= LVN_KERNEL_INPUTS || i < info->n_in)) {
            c.given[i] = true;
            fill_header(&c.header[i], t);
        }
    }
    LVN_ARG(info->attr_size <= ATTR_BYTES, "%s: attributes of %zu bytes are too large for a device",
            info->name, info->attr_size);
    c.has_attr = info->attr_size > 0;
    memcpy(c.attr, c.has_attr ? args->attr : "", info->attr_size);
    return lvni_tensor_device_submit(device, info->name, run_call, &c, sizeof c);
}
