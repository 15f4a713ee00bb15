/* Devices beside the host, of any backend (levin/backend.h). A device has addresses of its own:
 * whatever gets a pointer can ask whose it is, so tensors, flat buffers and slices of them are not
 * marked. A device of the backend `dry` has addresses and counts but no memory: on it a step runs
 * with shapes only and counts the memory it would take.
 *
 *   backend.c        the backends by name; loading one
 *   device.c         the table of devices, opening, whose address
 *   device_alloc.c   the caching allocator over a device's addresses
 *   device_capture.c captured work: its memory, and what cannot be captured
 *   device_memory.c  copies and zeros between any two places; flat buffers; levin/device.h
 *   device_stream.c  the streams of contexts, and what failed in them
 *   tuning.c         choices that backends measure for a run */
#ifndef LEVIN_TENSOR_DEVICE_H
#define LEVIN_TENSOR_DEVICE_H

#include "core/alloc.h"
#include "tensor/backend.h"
#include "tensor/ctx.h"

#include <levin/device.h>
#include <stdatomic.h>

typedef struct lvni_tensor_device lvni_tensor_device;
typedef struct lvni_tensor_stream lvni_tensor_stream;

/* ---- which ---- */

/* Device `index` of a backend, opened at first use; it stays open. LVN_ERR_NOT_FOUND. */
lvn_status lvni_tensor_device_open(int kind, int index, lvni_tensor_device **out);
/* A device of the backend `dry` of one's own. It stands for `real` (NULL: the cpu): the kernels
 * that would run are those of its backend. */
lvn_status lvni_tensor_device_create_dry(lvni_tensor_device *real, lvni_tensor_device **out);
/* its tensors must be gone; NULL is fine */
void lvni_tensor_device_destroy_dry(lvni_tensor_device *device);
const char *lvni_tensor_device_name(const lvni_tensor_device *device); /* "sim:0" */
const lvn_device_info *lvni_tensor_device_info(const lvni_tensor_device *device);
int lvni_tensor_device_kind(const lvni_tensor_device *device);    /* its backend's number */
void *lvni_tensor_device_state(const lvni_tensor_device *device); /* the backend's */
const lvn_backend *lvni_tensor_device_backend(const lvni_tensor_device *device);
bool lvni_tensor_device_is_dry(const lvni_tensor_device *device);
/* Of a dry device; NULL: the cpu. */
lvni_tensor_device *lvni_tensor_device_stands_for(const lvni_tensor_device *device);

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

/* ---- choices of autotune (tuning.c) ---- */

/* What a run's choices for devices of this kind were measured on; NULL: it has none. */
const char *lvni_tensor_tuning_of(lvni_core_pin_entries *entries, const lvni_tensor_device *device);
/* They are those of another model or library. */
bool lvni_tensor_tuning_foreign(lvni_core_pin_entries *entries, const lvni_tensor_device *device);
/* From here on the run has choices of this device's. */
lvn_status lvni_tensor_tuning_begin(lvni_core_pin_entries *entries,
                                    const lvni_tensor_device *device);

/* ---- memory ---- */

typedef struct lvni_tensor_device_stats {
    uint64_t limit;
    uint64_t in_use; /* bytes */
    uint64_t most;   /* of in_use, since lvni_tensor_device_forget_most */
    uint64_t held;   /* of a dry device: what the cache of a context would hold; else 0 */
} lvni_tensor_device_stats;
lvni_tensor_device_stats lvni_tensor_device_get_stats(lvni_tensor_device *device);
void lvni_tensor_device_forget_most(lvni_tensor_device *device);

/* Like lvni_tensor_cache_take and lvni_tensor_cache_give. LVN_ERR_DEVICE_MEMORY when the device is
 * full, with all that was kept for reuse given up. The block is for streams of one kind: given
 * back, it may be taken again at once for the same kind, because what the new owner submits comes
 * later there; before it goes to another kind, that kind waits. Which block is taken depends on the
 * order of calls alone, never on time. Thread-safe. */
void *lvni_tensor_device_take(lvni_tensor_device *device, lvn_stream_kind kind, size_t bytes,
                              size_t *got);
/* crossed: streams of other kinds used the block, too; what they have now runs first. */
void lvni_tensor_device_give(lvni_tensor_device *device, lvn_stream_kind kind, bool crossed,
                             void *p, size_t got);
/* ---- captured work (levin/backend.h: capture_begin) ---- */

/* What a step did with the host, which a replay would not do again: counted for ever. */
typedef struct lvni_tensor_device_traffic {
    int64_t uploads; /* copies from the host; not: numbers that are arguments of ops */
    int64_t waits;   /* for what was submitted */
} lvni_tensor_device_traffic;
lvni_tensor_device_traffic lvni_tensor_device_get_traffic(lvni_tensor_device *device);

/* That many more owners of steps compute on the device; how many there are now. A capture has what
 * all of them submit meanwhile. */
int lvni_tensor_device_join(lvni_tensor_device *device, int more);

/* Begins a capture on the calling context's stream. Until its end blocks for compute streams are
 * noted, and waits fail with LVN_ERR_UNSUPPORTED. LVN_ERR_UNSUPPORTED, too, when the backend
 * captures nothing, or the device has captured work already. */
lvn_status lvni_tensor_device_capture_begin(lvni_tensor_device *device);
/* Blocks that were taken meanwhile stay apart from all others: a replay writes into them, and
 * would write into another owner's. LVN_ERR_UNSUPPORTED: some are still in use, or others were
 * given back, which the work may read. keep false: nothing is kept. */
lvn_status lvni_tensor_device_capture_end(lvni_tensor_device *device, bool keep);
/* The captured work, submitted to the calling context's stream. *lost: not, as the device was full
 * and its memory has gone to others; drop it. */
lvn_status lvni_tensor_device_replay(lvni_tensor_device *device, bool *lost);
/* After what was submitted: the memory is for others again. Nothing captured is fine. */
void lvni_tensor_device_capture_drop(lvni_tensor_device *device);

/* Tests: let the k-th lvni_tensor_device_take from now fail (1 = the next), 0: none. */
void lvni_tensor_device_fail_at(lvni_tensor_device *device, int64_t k);

/* Memory of the host that the device copies from and to while the host goes on; NULL device: plain
 * memory. The same bytes when it is given back. NULL with the thread's error. */
void *lvni_tensor_host_take(lvni_tensor_device *device, size_t bytes);
void lvni_tensor_host_give(lvni_tensor_device *device, void *p, size_t bytes);

/* Flat buffers: zeros, on the device of the calling thread's context or else in host memory under
 * `tag`. */
void *lvni_tensor_mem_calloc(lvni_core_tag tag, size_t count, size_t size);
void lvni_tensor_mem_free(void *p, size_t count, size_t size); /* the same sizes; NULL is fine */
/* Between any two places of host and devices. From the host: when it returns `from` may change. To
 * the host: waits. */
lvn_status lvni_tensor_mem_copy(void *to, const void *from, size_t bytes);
/* From the host, at most LVN_UPLOAD bytes that follow from arguments alone: no upload of a step. */
lvn_status lvni_tensor_mem_put(void *to, const void *from, size_t bytes);
lvn_status lvni_tensor_mem_zero(void *p, size_t bytes);

/* ---- streams ---- */

/* The calling context's compute stream on the device, made at first use. NULL with the thread's
 * error. Submitting returns before the work is done: LVN_OK means that it is on its way. */
void *lvni_tensor_device_stream(lvni_tensor_device *device);
/* A failure of something submitted that could not be returned: it becomes the context's error, as
 * if the device had found it. */
void lvni_tensor_device_record_error(lvni_tensor_device *device);
/* Such failures of the calling context did not happen: what they are of is submitted again. */
void lvni_tensor_device_forget_error(void);
/* All that the calling context submitted ran. Its first error, which stays until it is taken. */
lvn_status lvni_tensor_device_sync(void);
/* What the calling context submitted has failed, as far as is known now. */
bool lvni_tensor_device_failed(void);
/* The error becomes the thread's, and the context's streams run again. Call it after
 * lvni_tensor_device_sync or when lvni_tensor_device_failed. */
lvn_status lvni_tensor_device_take_error(void);

#endif
