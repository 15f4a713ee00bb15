/* The inside of a device, for this folder alone. */
#ifndef LEVIN_TENSOR_DEVICE_IMPL_H
#define LEVIN_TENSOR_DEVICE_IMPL_H

#include "tensor/device.h"
#include "tensor/device_heap.h"

#include <pthread.h>

/* What was taken from the backend at once. */
typedef struct lvni_tensor_segment {
    struct lvni_tensor_segment *next;
    char *p;
    size_t bytes;
    lvni_tensor_piece *lowest;
} lvni_tensor_segment;

/* A context's stream on a device. The device keeps a list, to end them when it is closed before
 * the contexts are (at exit). */
struct lvni_tensor_stream {
    lvni_tensor_device *device; /* NULL: closed */
    void *stream;
    void *landing; /* memory that the device knows, for single numbers on their way to the host */
    lvni_tensor_stream *of_device; /* next of the device */
    lvni_tensor_stream *of_ctx;    /* next of the context */
};

struct lvni_tensor_device {
    char name[24];
    int kind, index;
    const lvn_backend *backend;
    void *state; /* the backend's */
    lvn_device_info info;
    lvni_tensor_device *stands_for; /* of a dry one */
    /* of a dry one: the host is not to read what is not there; where it did first, "" once it did
     * outside of modules */
    bool refuses, refused;
    char refused_in[128];

    pthread_mutex_t memory_lock; /* a leaf lock, except for those of the backend and of large */
    lvni_tensor_heap *heap;
    lvni_tensor_segment *segments;
    uint64_t taken;        /* bytes of all segments */
    uint64_t in_use, most; /* bytes */
    int64_t fail_in;       /* 0: never */
    /* of a dry device, which counts as the host: blocks in use of each size class, and the most
     * there were; large ones; else NULL */
    struct lvni_tensor_class_count *classes;
    uint64_t cached; /* bytes of those of classes */
    struct lvni_tensor_large *large;

    /* device_capture.c; what lists hold is under memory_lock */
    _Atomic int64_t uploads, waits;
    _Atomic int owners;
    _Atomic bool capturing;
    void *graph;             /* NULL: nothing is captured */
    uint32_t capture;        /* counts those that were begun */
    int64_t captured_in_use; /* blocks that the newest one took, and did not give back */
    /* others were given back in it; or the device was full, and its blocks went to others */
    bool capture_gave_others, capture_lost;

    pthread_mutex_t stream_lock; /* a leaf lock */
    lvni_tensor_stream *streams;
    /* Of the device itself: for order between kinds of streams, and copies beside the kernels. */
    void *own[LVN_STREAM_KINDS];
    void *crossing; /* an event */
};

enum { LVNI_LANDING = 4096 };
/* The calling context's on the device, made at first use; NULL with the thread's error. */
lvni_tensor_stream *lvni_tensor_device_get_stream(lvni_tensor_device *device);

/* lvni_tensor_device_take for compute streams, of what no cache of a context would hold on the
 * host. */
void *lvni_tensor_device_take_flat(lvni_tensor_device *device, size_t bytes);
lvn_status lvni_tensor_device_memory_init(lvni_tensor_device *device);
void lvni_tensor_device_memory_free(lvni_tensor_device *device);
lvn_status lvni_tensor_device_streams_init(lvni_tensor_device *device);
void lvni_tensor_device_streams_free(lvni_tensor_device *device); /* after what waits has run */
/* What is submitted to streams of kind `later` from now on runs after what streams of kind
 * `earlier` have now. */
lvn_status lvni_tensor_device_order(lvni_tensor_device *device, lvn_stream_kind later,
                                    lvn_stream_kind earlier);
/* ---- device_capture.c, for the allocator and for copies ---- */

/* Under memory_lock: blocks of compute streams belong to captured work now. */
bool lvni_tensor_device_captures(const lvni_tensor_device *device, lvn_stream_kind kind);
/* Under memory_lock: a block that was taken, and one that is given back. */
void lvni_tensor_device_capture_taken(lvni_tensor_device *device, lvn_stream_kind kind,
                                      lvni_tensor_piece *piece);
void lvni_tensor_device_capture_given(lvni_tensor_device *device, lvn_stream_kind kind,
                                      const lvni_tensor_piece *piece);
/* Under memory_lock: every free block becomes one of all streams, each of which waits for the
 * others. */
lvn_status lvni_tensor_device_gather(lvni_tensor_device *device);
/* Under memory_lock, the device is full: false: it has no captured work. */
bool lvni_tensor_device_capture_lose(lvni_tensor_device *device);
/* Something waits for the device: LVN_ERR_UNSUPPORTED while work is captured. */
lvn_status lvni_tensor_device_count_wait(lvni_tensor_device *device);
void lvni_tensor_device_capture_free(lvni_tensor_device *device); /* the device is closed */

/* The table of addresses (device.c). */
lvn_status lvni_tensor_device_place_add(lvni_tensor_device *device, const void *begin,
                                        size_t bytes);
void lvni_tensor_device_place_remove(const void *begin);

#endif
