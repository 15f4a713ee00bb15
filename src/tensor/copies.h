/* Copies beside the kernels: tensors that the copy stream of a device fills while its kernels go
 * on. Called by the trainer for its batches. */
#ifndef LEVIN_TENSOR_COPIES_H
#define LEVIN_TENSOR_COPIES_H

#include "tensor/device.h"
#include "tensor/tensor.h"

/* A group of copies that is waited for as one, again and again. Of one thread at a time. */
typedef struct lvni_tensor_copies lvni_tensor_copies;

lvn_status lvni_tensor_copies_create(lvni_tensor_device *device, lvni_tensor_copies **out);
/* After what was begun ran; NULL is fine. */
void lvni_tensor_copies_destroy(lvni_tensor_copies *copies);

/* Begins the copy of a dense tensor in memory of lvni_tensor_host_take, which must stay as it is
 * until lvni_tensor_copies_wait. The result, owned by the caller, is for kernels submitted after
 * lvni_tensor_copies_follow; its memory is taken again only after all that was submitted before it
 * was released. NULL with the thread's error. */
lvn_tensor *lvni_tensor_copies_begin(lvni_tensor_copies *copies, const lvn_tensor *t);
/* The same, into a tensor of lvni_tensor_new_for_copy of that shape, which no kernel has used. */
lvn_status lvni_tensor_copies_begin_into(lvni_tensor_copies *copies, const lvn_tensor *t,
                                         lvn_tensor *on_device);
/* The group is whole: the two below are about all copies begun so far. */
lvn_status lvni_tensor_copies_end(lvni_tensor_copies *copies);
/* Kernels that any context submits from now on run after the group. */
lvn_status lvni_tensor_copies_follow(lvni_tensor_copies *copies);
/* The group ran. */
lvn_status lvni_tensor_copies_wait(lvni_tensor_copies *copies);

#endif
