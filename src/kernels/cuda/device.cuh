/* The state of a device, for the files that submit to it or keep handles of libraries for it. */
#ifndef LEVIN_KERNELS_CUDA_DEVICE_CUH
#define LEVIN_KERNELS_CUDA_DEVICE_CUH

#include "cuda.cuh"

#include <pthread.h>

/* Functions that the host runs for a stream, in stream order, on a thread of the device. */
struct lvnc_host_calls;
struct lvnc_device;

enum { LVNC_LIBRARIES = 3 };

struct lvnc_stream {
    lvnc_device *device;
    lvn_stream_kind kind;
    uint64_t newest;   /* number of its last submission */
    uint64_t waited;   /* of the last one that the host waited for */
    bool failed;       /* with `error`, which the device has forgotten */
    lvn_error error;   /* written before `failed`, under the device's lock */
    lvnc_stream *next; /* of the device */
};

struct lvnc_device {
    int index;
    int major, minor; /* compute capability */
    /* Whatever levin submits to streams of a kind runs in the order of submission: one of CUDA's */
    cudaStream_t stream[LVN_STREAM_KINDS];
    int *raised;        /* memory of the device: lvnc_alarm */
    lvnc_fault *fault;  /* memory of the host */
    bool copies_follow; /* a copy waited for a kernel: what a kernel raised is the copies', too */
    /* How much was submitted; how much of it has run without an error, as far as is known */
    uint64_t submitted[LVN_STREAM_KINDS], fine[LVN_STREAM_KINDS];
    /* How often the host waited for the last submission: the device had nothing left to do */
    uint64_t drained[LVN_STREAM_KINDS];
    pthread_mutex_t lock; /* of what follows */
    lvnc_stream *streams;
    const char *last[LVN_STREAM_KINDS]; /* submitted last; static */
    bool broken; /* CUDA lost the device: nothing runs there again in this process */
    lvn_error error;
    struct lvnc_host_calls *calls; /* made with the first one */
    /* State of libraries (library.cuh), made when the device is opened or, of cuFFT, with the first
     * transform; `free_library` is called when it closes */
    void *library[LVNC_LIBRARIES];
    void (*free_library[LVNC_LIBRARIES])(void *library);
};

static inline lvnc_device *lvnc_device_of(const void *stream)
{
    return static_cast<const lvnc_stream *>(stream)->device;
}

/* device.cu */
lvn_status lvnc_count(int *n);
lvn_status lvnc_open(int index, void **device, lvn_device_info *info);
void lvnc_close(void *device);
lvn_status lvnc_take(void *device, size_t bytes, void **address);
void lvnc_give(void *device, void *address, size_t bytes);
lvn_status lvnc_host_take(void *device, size_t bytes, void **p);
void lvnc_host_give(void *device, void *p, size_t bytes);

/* stream.cu */
lvn_status lvnc_stream_create(void *device, lvn_stream_kind kind, void **stream);
void lvnc_stream_destroy(void *stream);
lvn_status lvnc_stream_wait(void *stream);
bool lvnc_stream_failed(void *stream);
void lvnc_stream_clear(void *stream);
void *lvnc_native_stream(void *stream);
lvn_status lvnc_event_create(void *device, void **event);
void lvnc_event_destroy(void *event);
lvn_status lvnc_event_record(void *event, void *stream);
lvn_status lvnc_event_follow(void *stream, void *event);
lvn_status lvnc_event_wait(void *event);

/* copies.cu */
lvn_status lvnc_copy(void *stream, void *to, const void *from, size_t bytes);
lvn_status lvnc_upload(void *stream, void *to, const void *from, size_t bytes);
lvn_status lvnc_zero(void *stream, void *p, size_t bytes);
lvn_status lvnc_capture_begin(void *stream);
lvn_status lvnc_capture_end(void *stream, void **graph);
lvn_status lvnc_graph_replay(void *graph, void *stream);
void lvnc_graph_destroy(void *graph);

/* host_call.cu */
lvn_status lvnc_host_call(void *stream, void (*fn)(void *user), void *user);
void lvnc_host_calls_end(lvnc_device *device);

/* The name of the table and of its devices. */
#ifdef LEVIN_CUDA_ON_HOST
#define LVNC_NAME "cudahost"
#else
#define LVNC_NAME "cuda"
#endif

#endif
