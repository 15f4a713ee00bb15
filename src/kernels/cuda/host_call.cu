/* Functions of the host in the order of a stream: those that wait for other ranks. */
#include "device.cuh"

#include <stdlib.h>

#ifndef LEVIN_CUDA_ON_HOST
#include <cuda.h>
#include <dlfcn.h>
#endif

#ifdef LEVIN_CUDA_ON_HOST

lvn_status lvnc_host_call(void *stream, void (*fn)(void *user), void *user)
{
    (void)stream;
    fn(user); /* what was submitted before has run */
    return LVN_OK;
}

void lvnc_host_calls_end(lvnc_device *d)
{
    (void)d;
}

#else

/* A function may wait for other threads, which CUDA's host functions must not: so a thread of the
 * device waits for the point of the stream, calls it, and writes the call's number where the stream
 * waits for it. */
enum { CALLS = 64 };

struct lvnc_host_calls {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    struct {
        cudaEvent_t reached;
        void (*fn)(void *user);
        void *user;
    } call[CALLS];     /* a ring */
    uint32_t first, n; /* number of the oldest call; how many wait */
    bool quit;
    volatile uint32_t *done; /* memory of the host that the device reads */
    CUdeviceptr done_on_device;
    int device;
    CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
};

static void *run_calls(void *p)
{
    lvnc_host_calls *c = static_cast<lvnc_host_calls *>(p);
    (void)cudaSetDevice(c->device);
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (c->n == 0 && !c->quit) {
            pthread_cond_wait(&c->changed, &c->lock);
        }
        if (c->n == 0) {
            break;
        }
        const uint32_t number = c->first;
        const auto call = c->call[number % CALLS];
        pthread_mutex_unlock(&c->lock);
        (void)cudaEventSynchronize(call.reached); /* also when the stream has failed */
        call.fn(call.user);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        *c->done = number + 1;
        pthread_mutex_lock(&c->lock);
        c->first++;
        c->n--;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static lvn_status start_calls(lvnc_device *d, lvnc_host_calls *c)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = driver == NULL ? NULL : dlsym(driver, "cuStreamWaitValue32_v2");
    __builtin_memcpy(&c->wait_value, &symbol, sizeof symbol);
    void *p = NULL, *on_device = NULL;
    if (symbol == NULL ||
        cudaHostAlloc(&p, 64, cudaHostAllocMapped | cudaHostAllocPortable) != cudaSuccess ||
        cudaHostGetDevicePointer(&on_device, p, 0) != cudaSuccess) {
        (void)cudaGetLastError();
        LVN_FAIL(LVN_ERR_RESOURCE, LVNC_NAME ":%d: no word that its stream can wait for", d->index);
    }
    c->done = static_cast<volatile uint32_t *>(p);
    *c->done = 0;
    c->done_on_device = reinterpret_cast<CUdeviceptr>(on_device);
    c->device = d->index;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    for (int i = 0; i < CALLS; i++) {
        if (cudaEventCreateWithFlags(&c->call[i].reached,
                                     cudaEventDisableTiming | cudaEventBlockingSync) !=
            cudaSuccess) {
            (void)cudaGetLastError();
            LVN_FAIL(LVN_ERR_RESOURCE, LVNC_NAME ":%d: no event", d->index);
        }
    }
    if (pthread_create(&c->thread, NULL, run_calls, c) != 0) {
        LVN_FAIL(LVN_ERR_RESOURCE, LVNC_NAME ":%d: no thread for its host calls", d->index);
    }
    d->calls = c;
    return LVN_OK;
}

static lvn_status get_calls(lvnc_device *d, lvnc_host_calls **out)
{
    lvn_status s = LVN_OK;
    pthread_mutex_lock(&d->lock);
    if (d->calls == NULL) {
        lvnc_host_calls *c = static_cast<lvnc_host_calls *>(calloc(1, sizeof *c));
        s = c == NULL ? lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__,
                                      LVNC_NAME ":%d: no memory for host calls", d->index)
                      : start_calls(d, c);
        if (s != LVN_OK && c != NULL) {
            (void)cudaFreeHost(const_cast<uint32_t *>(c->done));
            free(c);
        }
    }
    *out = d->calls;
    pthread_mutex_unlock(&d->lock);
    return s;
}

lvn_status lvnc_host_call(void *stream, void (*fn)(void *user), void *user)
{
    lvnc_device *d = lvnc_device_of(stream);
    cudaStream_t s = lvnc_enter(stream);
    lvnc_host_calls *c;
    LVN_TRY(get_calls(d, &c));
    pthread_mutex_lock(&c->lock);
    while (c->n == CALLS) {
        pthread_cond_wait(&c->changed, &c->lock);
    }
    const uint32_t number = c->first + c->n;
    auto &call = c->call[number % CALLS];
    call.fn = fn;
    call.user = user;
    cudaError_t e = cudaEventRecord(call.reached, s);
    if (e == cudaSuccess &&
        c->wait_value(s, c->done_on_device, number + 1, CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS) {
        e = cudaErrorNotSupported;
    }
    if (e == cudaSuccess) {
        c->n++;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    if (e != cudaSuccess && lvnc_is_lost(stream)) {
        fn(user); /* others wait for what it does; nothing of this device runs any more */
    }
    return lvnc_submitted(stream, "a wait for the host", e);
}

void lvnc_host_calls_end(lvnc_device *d)
{
    lvnc_host_calls *c = d->calls;
    if (c == NULL) {
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->quit = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    for (int i = 0; i < CALLS; i++) {
        (void)cudaEventDestroy(c->call[i].reached);
    }
    (void)cudaFreeHost(const_cast<uint32_t *>(c->done));
    free(c);
}

#endif
