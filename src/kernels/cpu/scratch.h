/* Scratch memory of the cpu kernels: one reusable buffer per slot and context, so that a step
 * allocates nothing after warm-up. Slots, because a oneDNN primitive runs while an own kernel may
 * hold partial sums or columns. */
#ifndef LEVIN_KERNELS_CPU_SCRATCH_H
#define LEVIN_KERNELS_CPU_SCRATCH_H

#include <levin/status.h>

typedef enum lvni_cpu_scratch_slot {
    LVNI_SCRATCH_OWN,     /* partial sums of the own kernels */
    LVNI_SCRATCH_COLUMNS, /* windows cut out for a convolution, while a product runs on them */
    LVNI_SCRATCH_GROUPS,  /* one group of the channels of images (conv_groups.c) */
    LVNI_SCRATCH_WIDE,    /* f32 copies of tensors, while a kernel runs on them (conv_wide.h) */
    LVNI_SCRATCH_DNNL,    /* scratchpad of oneDNN primitives (scratchpad_mode_user) */
    LVNI_SCRATCH_SLOTS
} lvni_cpu_scratch_slot;

/* At least `bytes` bytes, 64-byte aligned, contents undefined, for the calling thread's context.
 * Valid until the next call for the same slot in this context; freed with the context. bytes may be
 * 0. NULL with LVN_ERR_MEMORY recorded. Called outside parallel regions (members of a team have
 * contexts of their own). */
void *lvni_cpu_scratch(lvni_cpu_scratch_slot slot, size_t bytes);

/* In a dry run (tensor/device.h) lvni_cpu_scratch only notes how much there would have to be, and
 * gives an address that must not be touched; and this notes the shared copy of a parameter in a
 * layout (weights_cache.h), once. */
lvn_status lvni_cpu_scratch_record_weights(uint64_t id, uint64_t format, size_t bytes);

#endif
