/* Devices beside the host. A device has addresses of its own: whatever gets a pointer can ask whose
 * it is, so tensors, flat buffers and slices of them are not marked. Two kinds: `sim`, the
 * simulated accelerator (levin/device.h), and `dry`, which has addresses and counts but no memory:
 * on it a step runs with shapes only and counts the memory it would take.
 *
 *   device.c         the table of devices, opening, whose address; the message when the host
 *                    touches one
 *   device_memory.c  the caching allocator over a device's addresses; copies and zeros between any
 *                    two places; levin/device.h
 *   device_stream.c  commands: one thread per device runs them in the order in which they came */
#ifndef LEVIN_TENSOR_DEVICE_H
#define LEVIN_TENSOR_DEVICE_H

#include "core/alloc.h"
#include "tensor/ctx.h"

#include <levin/device.h>
#include <stdatomic.h>

typedef struct lvni_tensor_device lvni_tensor_device;

/* ---- which ---- */

enum { LVNI_SIM_DEVICES = 32 }; /* there can be */

/* Sim device `index`, opened at first use; it stays open. LVN_ERR_NOT_FOUND. */
lvn_status lvni_tensor_device_open(int index, lvni_tensor_device **out);
/* A dry device of one's own. */
lvn_status lvni_tensor_device_create_dry(lvni_tensor_device **out);
/* its tensors must be gone; NULL is fine */
void lvni_tensor_device_destroy_dry(lvni_tensor_device *device);
const char *lvni_tensor_device_name(const lvni_tensor_device *device); /* "sim:0" */
bool lvni_tensor_device_is_dry(const lvni_tensor_device *device);

extern _Atomic int lvni_tensor_device_places; /* ever used in the table: 0 in most processes */
lvni_tensor_device *lvni_tensor_device_search(const void *address);
/* Whose address; NULL: the host's. */
static inline lvni_tensor_device *lvni_tensor_device_of(const void *address)
{
    return atomic_load_explicit(&lvni_tensor_device_places, memory_order_acquire) == 0
               ? NULL
               : lvni_tensor_device_search(address);
}
/* The calling thread's context computes on a dry device. */
bool lvni_tensor_device_dry_run(void);

/* ---- memory ---- */

typedef struct lvni_tensor_device_stats {
    uint64_t limit;
    uint64_t in_use, held; /* bytes; held: in use, or kept for reuse */
    uint64_t peak;         /* of held */
} lvni_tensor_device_stats;
lvni_tensor_device_stats lvni_tensor_device_get_stats(lvni_tensor_device *device);

/* Like lvni_tensor_cache_take and lvni_tensor_cache_give. LVN_ERR_DEVICE_MEMORY when the device is
 * full, with all that was kept for reuse given up. A block given back may be taken again while
 * commands that use it wait: those of the new owner come after them. Thread-safe. */
void *lvni_tensor_device_take(lvni_tensor_device *device, size_t bytes, size_t *got);
void lvni_tensor_device_give(lvni_tensor_device *device, void *p, size_t got);
/* Tests: let the k-th lvni_tensor_device_take from now fail (1 = the next), 0: none. */
void lvni_tensor_device_fail_at(lvni_tensor_device *device, int64_t k);

/* Flat buffers: zeros, on the device of the calling thread's context or else in host memory under
 * `tag`. */
void *lvni_tensor_mem_calloc(lvni_core_tag tag, size_t count, size_t size);
void lvni_tensor_mem_free(void *p, size_t count, size_t size); /* the same sizes; NULL is fine */
/* Between any two places of host and devices. From the host: when it returns `from` may change. To
 * the host: waits. */
lvn_status lvni_tensor_mem_copy(void *to, const void *from, size_t bytes);
lvn_status lvni_tensor_mem_zero(void *p, size_t bytes);

/* ---- commands ---- */

enum { LVNI_COMMAND_BYTES = 3072 };
typedef lvn_status (*lvni_tensor_command_fn)(void *payload);

/* Let the device's thread call fn(copy of payload) after all commands before. In the payload device
 * addresses must have become lvni_tensor_device_alias of them. `what` names the work in errors
 * (static). Teams are those of the calling context. On a dry device: nothing happens. LVN_OK: the
 * command is on its way, nothing more. */
lvn_status lvni_tensor_device_submit(lvni_tensor_device *device, const char *what,
                                     lvni_tensor_command_fn fn, const void *payload, size_t bytes);
/* The same on the device that `where` belongs to; on the host at once. */
lvn_status lvni_tensor_device_call(const void *where, const char *what, lvni_tensor_command_fn fn,
                                   void *payload, size_t bytes);
/* What commands, and they alone, may touch instead of a device address; host addresses stay as they
 * are. */
void *lvni_tensor_device_alias(const void *address);
/* All commands of the calling context ran. Their first error, which stays until it is taken. */
lvn_status lvni_tensor_device_sync(void);
/* A command of the calling context has failed, as far as is known now. */
bool lvni_tensor_device_failed(void);
/* The error becomes the thread's, and the context's commands run again. Call it after
 * lvni_tensor_device_sync or when lvni_tensor_device_failed. */
lvn_status lvni_tensor_device_take_error(void);

#endif
