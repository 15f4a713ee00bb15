/* Devices and their memory. */
#include "library.cuh"

#include <stdio.h>
#include <stdlib.h>

/* ---- why there is no device, in one sentence ---- */

static void version_text(int version, char text[16])
{
    snprintf(text, 16, "%d.%d", version / 1000, version % 1000 / 10);
}

static lvn_status explain_count(cudaError_t e)
{
    int driver = 0, runtime = 0;
    char has[16], needs[16];
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaGetLastError();
    version_text(driver, has);
    version_text(runtime, needs);
    if (driver == 0) {
        LVN_FAIL(LVN_ERR_RESOURCE,
                 LVNC_NAME ": no NVIDIA driver is loaded here (libcuda.so.1): this build needs one "
                           "for CUDA %s",
                 needs);
    }
    if (e == cudaErrorInsufficientDriver) {
        LVN_FAIL(LVN_ERR_RESOURCE,
                 LVNC_NAME ": the NVIDIA driver is for CUDA %s, this build needs one for CUDA %s "
                           "or newer: update the driver, or build levin with an older toolkit",
                 has, needs);
    }
    if (e == cudaErrorNoDevice) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        LVN_FAIL(LVN_ERR_RESOURCE,
                 LVNC_NAME ": the NVIDIA driver shows no device (CUDA_VISIBLE_DEVICES%s%s)",
                 visible == NULL ? " is not set" : "=", visible == NULL ? "" : visible);
    }
    LVN_FAIL(LVN_ERR_RESOURCE, LVNC_NAME ": devices cannot be counted: %s (%s)",
             cudaGetErrorString(e), cudaGetErrorName(e));
}

enum { LEAST_MAJOR = 8 };

lvn_status lvnc_count(int *n)
{
    *n = 0;
    const cudaError_t e = cudaGetDeviceCount(n);
    if (e != cudaSuccess) {
        return explain_count(e);
    }
    for (int i = 0; i < *n; i++) { /* no context is made for this */
        int major = LEAST_MAJOR, minor = 0;
        (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i);
        (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, i);
        if (major < LEAST_MAJOR) {
            LVN_FAIL(LVN_ERR_RESOURCE,
                     LVNC_NAME ": device %d has compute capability %d.%d, this backend needs %d.0 "
                               "(A100) or newer: leave it out with CUDA_VISIBLE_DEVICES",
                     i, major, minor, (int)LEAST_MAJOR);
        }
    }
    return LVN_OK;
}

/* ---- opening ---- */

static lvn_status failed(int index, const char *what, cudaError_t e)
{
    (void)cudaGetLastError();
    LVN_FAIL(e == cudaErrorMemoryAllocation ? LVN_ERR_DEVICE_MEMORY : LVN_ERR_RESOURCE,
             LVNC_NAME ":%d: %s: %s (%s)", index, what, cudaGetErrorString(e), cudaGetErrorName(e));
}

#define CUDA_TRY(what, call)                                                                       \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) {                                                               \
            return failed(d->index, what, error_);                                                 \
        }                                                                                          \
    } while (0)

/* Without machine code or PTX for the device every launch would fail. */
static __global__ void nothing(void)
{
}

static lvn_status check_code(const lvnc_device *d, const char *name)
{
#ifdef LEVIN_CUDA_ON_HOST
    (void)d, (void)name;
    nothing();
#else
    cudaFuncAttributes a;
    const cudaError_t e = cudaFuncGetAttributes(&a, reinterpret_cast<const void *>(nothing));
    if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction) {
        (void)cudaGetLastError();
        LVN_FAIL(LVN_ERR_RESOURCE,
                 LVNC_NAME ":%d: %s has compute capability %d.%d, for which this build has no "
                           "code: build with -DLEVIN_CUDA_ARCHITECTURES=%d%d, from 8.0 on",
                 d->index, name, d->major, d->minor, d->major, d->minor);
    }
    CUDA_TRY("code for it", e);
#endif
    return LVN_OK;
}

/* text: what the bits come from. The libraries choose their algorithms by model, multiprocessors
 * and version; where cuFFT or NVRTC is absent, other kernels compute. */
static lvn_status open_libraries(lvnc_device *d, const cudaDeviceProp *p, char *text, size_t size)
{
    int runtime = 0;
    size_t blas = 0, dnn = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    int used = snprintf(text, size, "%.80s (%d), CUDA %d.%d", p->name, p->multiProcessorCount,
                        runtime / 1000, runtime % 1000 / 10);
    if (!lvnc_uses_libraries()) {
        snprintf(text + used, size - (size_t)used, ", own kernels");
        return LVN_OK;
    }
    const int nvrtc = lvnc_nvrtc_version(); /* before cuDNN, which then finds it loaded */
    LVN_TRY(lvnc_cublas_open(d, &blas));
    LVN_TRY(lvnc_cudnn_open(d, &dnn));
    snprintf(text + used, size - (size_t)used, ", cuBLASLt %zu, cuDNN %zu, cuFFT %d, NVRTC %d",
             blas, dnn, lvnc_cufft_version(), nvrtc);
    return LVN_OK;
}

/* Taken by contexts and libraries as they go on: kept out of what levin may take. */
static const size_t OWN = (size_t)256 << 20;

static lvn_status describe(lvnc_device *d, lvn_device_info *info)
{
    cudaDeviceProp p;
    size_t available = 0, total = 0;
    CUDA_TRY("its properties", cudaGetDeviceProperties(&p, d->index));
    d->major = p.major;
    d->minor = p.minor;
    LVN_TRY(check_code(d, p.name));
    LVN_TRY(open_libraries(d, &p, info->fingerprint, sizeof info->fingerprint));
    CUDA_TRY("its memory", cudaMemGetInfo(&available, &total));
    snprintf(info->name, sizeof info->name, "%.60s", p.name);
    /* what other processes hold is not ours */
    info->memory = available > 2 * OWN ? available - OWN : available / 2;
    info->segment = (size_t)64 << 20;
    return LVN_OK;
}

static lvn_status prepare(lvnc_device *d, lvn_device_info *info)
{
    CUDA_TRY("it cannot be opened", cudaSetDevice(d->index));
    for (int k = 0; k < LVN_STREAM_KINDS; k++) {
        CUDA_TRY("a stream", cudaStreamCreateWithFlags(&d->stream[k], cudaStreamNonBlocking));
    }
    void *at = NULL;
    CUDA_TRY("memory for its state", cudaMalloc(&at, 256));
    d->raised = static_cast<int *>(at);
    CUDA_TRY("host memory for its state",
             cudaHostAlloc(&at, sizeof(lvnc_fault), cudaHostAllocPortable | cudaHostAllocMapped));
    d->fault = static_cast<lvnc_fault *>(at);
    *d->fault = lvnc_fault();
    CUDA_TRY("its state",
             cudaMemsetAsync(d->raised, 0, sizeof(int), d->stream[LVN_STREAM_COMPUTE]));
    CUDA_TRY("its state", cudaStreamSynchronize(d->stream[LVN_STREAM_COMPUTE]));
    return describe(d, info);
}

lvn_status lvnc_open(int index, void **out, lvn_device_info *info)
{
    lvnc_device *d = static_cast<lvnc_device *>(calloc(1, sizeof *d));
    if (d == NULL) {
        LVN_FAIL(LVN_ERR_MEMORY, LVNC_NAME ":%d: no memory to open it", index);
    }
    d->index = index;
    pthread_mutex_init(&d->lock, NULL);
    const lvn_status s = prepare(d, info);
    if (s != LVN_OK) {
        const lvn_error e = *lvn_last_error();
        lvnc_close(d);
        return lvn_error_adopt(&e);
    }
    *out = d;
    return LVN_OK;
}

void lvnc_close(void *device)
{
    lvnc_device *d = static_cast<lvnc_device *>(device);
    (void)cudaSetDevice(d->index);
    lvnc_host_calls_end(d);
    if (lvnc_debugs()) {
        fprintf(stderr,
                LVNC_NAME ":%d: host waits for the newest command: kernels %llu, copies %llu\n",
                d->index, (unsigned long long)d->drained[LVN_STREAM_COMPUTE],
                (unsigned long long)d->drained[LVN_STREAM_COPY]);
    }
    for (int i = 0; i < LVNC_LIBRARIES; i++) {
        if (d->library[i] != NULL) {
            d->free_library[i](d->library[i]);
        }
    }
    for (int k = 0; k < LVN_STREAM_KINDS; k++) {
        if (d->stream[k] != NULL) {
            (void)cudaStreamDestroy(d->stream[k]);
        }
    }
    (void)cudaFree(d->raised);
    if (d->fault != NULL) {
        (void)cudaFreeHost(d->fault);
    }
    (void)cudaGetLastError();
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* ---- memory ---- */

/* cudaMalloc gives whole 2 MiB pages, at their borders, for sizes of whole pages. */
static const size_t PAGE = (size_t)2 << 20;

lvn_status lvnc_take(void *device, size_t bytes, void **address)
{
    const lvnc_device *d = static_cast<const lvnc_device *>(device);
    const size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    CUDA_TRY("it cannot be selected", cudaSetDevice(d->index));
    void *p = NULL;
    const cudaError_t e = cudaMalloc(&p, whole);
    if (e == cudaErrorMemoryAllocation) {
        size_t available = 0, total = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&available, &total);
        LVN_FAIL(LVN_ERR_DEVICE_MEMORY,
                 LVNC_NAME ":%d: no memory of %zu bytes (%zu of %zu are free)", d->index, bytes,
                 available, total);
    }
    CUDA_TRY("memory", e);
    if (reinterpret_cast<uintptr_t>(p) % 4096 != 0) {
        (void)cudaFree(p);
        LVN_FAIL(LVN_ERR_INTERNAL, LVNC_NAME ":%d: %zu bytes of memory begin within a page",
                 d->index, whole);
    }
    *address = p;
    return LVN_OK;
}

void lvnc_give(void *device, void *address, size_t bytes)
{
    const lvnc_device *d = static_cast<const lvnc_device *>(device);
    (void)bytes;
    (void)cudaSetDevice(d->index);
    /* cudaFree waits for all that was submitted, with locks of the driver held that a thread may
     * need for whose word a stream waits (host_call.cu): so nothing is left by then */
    for (int k = 0; k < LVN_STREAM_KINDS; k++) {
        (void)cudaStreamSynchronize(d->stream[k]);
    }
    if (cudaFree(address) != cudaSuccess) {
        (void)cudaGetLastError();
    }
}

lvn_status lvnc_host_take(void *device, size_t bytes, void **p)
{
    const lvnc_device *d = static_cast<const lvnc_device *>(device);
    CUDA_TRY("it cannot be selected", cudaSetDevice(d->index));
    const cudaError_t e = cudaHostAlloc(p, bytes == 0 ? 1 : bytes, cudaHostAllocPortable);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        LVN_FAIL(LVN_ERR_MEMORY, LVNC_NAME ":%d: no page-locked memory of %zu bytes: %s (%s)",
                 d->index, bytes, cudaGetErrorString(e), cudaGetErrorName(e));
    }
    return LVN_OK;
}

void lvnc_host_give(void *device, void *p, size_t bytes)
{
    const lvnc_device *d = static_cast<const lvnc_device *>(device);
    (void)bytes;
    (void)cudaSetDevice(d->index);
    if (cudaFreeHost(p) != cudaSuccess) {
        (void)cudaGetLastError();
    }
}
