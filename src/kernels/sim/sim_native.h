/* What the backend's native_stream is of a simulated accelerator: how a library that levin is not
 * linked with submits to its streams. The stand-in for NCCL in the tests is one. */
#ifndef LEVIN_KERNELS_SIM_SIM_NATIVE_H
#define LEVIN_KERNELS_SIM_SIM_NATIVE_H

#include <levin/status.h>
#include <stddef.h>

typedef struct lvni_sim_native {
    int device; /* its number on this machine */
    void *stream;
    /* fn(a copy of the payload) in stream order; `what` is static. In the payload addresses of
     * devices must have become aliases. */
    lvn_status (*submit)(void *stream, const char *what, lvn_status (*fn)(void *payload),
                         const void *payload, size_t bytes);
    /* What commands, and they alone, may touch instead of an address of a device. */
    void *(*alias)(const void *address);
} lvni_sim_native;

#endif
