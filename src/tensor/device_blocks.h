/* What a device's allocator makes of sizes: for what predicts them, and for finders. */
#ifndef LEVIN_TENSOR_DEVICE_BLOCKS_H
#define LEVIN_TENSOR_DEVICE_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

/* What a block for so many bytes takes: a multiple of 256. */
static inline size_t lvni_tensor_device_round(size_t bytes)
{
    return bytes == 0 ? 256 : (bytes + 255) / 256 * 256;
}

/* From here on the host may not read what lies on this dry device: reading fails, and
 * lvni_tensor_device_refused has the module in which it did (""; outside of modules), NULL: it did
 * not. */
void lvni_tensor_device_refuse_reads(lvni_tensor_device *dry);
const char *lvni_tensor_device_refused(const lvni_tensor_device *dry);
/* Devices of this process have at most this much, dry ones excepted; before they are used. */
void lvni_tensor_device_limit_memory(uint64_t bytes);

#endif
