/* Convolution weights in the layouts oneDNN wants, copied once per change and shared by all lanes.
 * Used by onednn_conv.c.
 *
 * A copy belongs to (tensor id, layout) and is refreshed in place when the tensor's version moved,
 * so a training step allocates nothing. Weights may change only while no lane computes with
 * them. Copies go when their tensor is forgotten (lvni_cpu_weights_forget in kernels.h) or when the
 * limit is reached, the least recently used first. */
#ifndef LEVIN_KERNELS_CPU_WEIGHTS_CACHE_H
#define LEVIN_KERNELS_CPU_WEIGHTS_CACHE_H

#include "kernels/cpu/onednn_api.h"
#include "tensor/tensor.h"

typedef struct lvni_cpu_weights_copy lvni_cpu_weights_copy;

/* w in p's layout; the copy stays as it is until lvni_cpu_weights_release. `scratch`:
 * p->reorder_scratch_bytes. Thread-safe. */
lvn_status lvni_cpu_weights_acquire(lvni_cpu_dnn_prim *p, dnnl_stream_t stream, const lvn_tensor *w,
                                    void *scratch, lvni_cpu_weights_copy **out);
const void *lvni_cpu_weights_data(const lvni_cpu_weights_copy *c);
void lvni_cpu_weights_release(lvni_cpu_weights_copy *c);

typedef struct lvni_cpu_weights_stats {
    uint64_t copies, bytes; /* held now */
    uint64_t reorders;      /* made since the start of the process */
} lvni_cpu_weights_stats;
lvni_cpu_weights_stats lvni_cpu_weights_get_stats(void);

/* Tests: other limits than 1024 copies and 4 GiB; 0 keeps one. Copies in use are never dropped. */
void lvni_cpu_weights_set_limit(uint64_t copies, uint64_t bytes);

#endif
