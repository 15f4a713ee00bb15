/* The part of CUDA's runtime that src/kernels/cuda/device.cu calls, for a device that computes on
 * the thread that submits (cuda_on_host.h). */
#include "cuda_on_host.h"

#include <atomic>
#include <map>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

namespace
{

enum { DEVICES = 16 };
std::mutex lock;
std::map<void *, std::pair<int, size_t>> taken; /* address: device, bytes */
size_t in_use[DEVICES];
thread_local int current;
thread_local cudaError_t last = cudaSuccess;
std::atomic<long> commands;

long number(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text == nullptr ? otherwise : atol(text);
}

bool fails(const char *how)
{
    const char *text = getenv("CUDA_ON_HOST_FAIL");
    return text != nullptr && strcmp(text, how) == 0;
}

size_t memory(void)
{
    return (size_t)number("CUDA_ON_HOST_MEMORY", 1L << 30);
}

cudaError_t remember(cudaError_t e)
{
    last = e == cudaSuccess ? last : e;
    return e;
}

} // namespace

cudaError_t cuda_on_host_status(void)
{
    return remember(fails("lost") && number("CUDA_ON_HOST_FAIL_DEVICE", current) == current &&
                            commands++ >= number("CUDA_ON_HOST_FAIL_AFTER", 0)
                        ? cudaErrorLaunchFailure
                        : cudaSuccess);
}

const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    default: return "cudaErrorUnknown";
    }
}
const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    default: return "unknown error";
    }
}
cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = last;
    last = cudaSuccess;
    return e;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 0;
    if (fails("no_driver") || fails("old_driver")) {
        return remember(cudaErrorInsufficientDriver); /* as CUDA reports both */
    }
    if (fails("no_device")) {
        return remember(cudaErrorNoDevice);
    }
    *n = (int)number("CUDA_ON_HOST_DEVICES", 1);
    return *n > DEVICES ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaSetDevice(int device)
{
    current = device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    (void)device;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "CUDA on the host");
    p->major = 9;
    p->multiProcessorCount = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device)
{
    (void)device;
    *value = which == cudaDevAttrComputeCapabilityMinor ? 0 : fails("old_device") ? 7 : 9;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = fails("no_driver") ? 0 : fails("old_driver") ? 11040 : 13000;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    const std::lock_guard<std::mutex> guard(lock);
    *total = memory();
    *available = *total - in_use[current];
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
    if (bytes > memory() - in_use[current]) {
        return remember(cudaErrorMemoryAllocation);
    }
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return remember(cudaErrorMemoryAllocation);
    }
    taken[at] = {current, bytes};
    in_use[current] += bytes;
    *p = at;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p)
{
    const std::lock_guard<std::mutex> guard(lock);
    const auto at = taken.find(p);
    if (at == taken.end()) {
        return remember(p == nullptr ? cudaSuccess : cudaErrorInvalidValue);
    }
    in_use[at->second.first] -= at->second.second;
    munmap(p, at->second.second);
    taken.erase(at);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return remember(*p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}

/* ---- order: everything has run ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    (void)flags;
    *s = reinterpret_cast<cudaStream_t>(new char);
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    delete reinterpret_cast<char *>(s);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    (void)s;
    return cuda_on_host_status();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    (void)flags;
    *e = reinterpret_cast<cudaEvent_t>(new char);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete reinterpret_cast<char *>(e);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    (void)e, (void)s;
    return cuda_on_host_status();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    (void)s, (void)e, (void)flags;
    return cuda_on_host_status();
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    (void)e;
    return cuda_on_host_status();
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s)
{
    (void)kind, (void)s;
    const std::lock_guard<std::mutex> guard(cuda_on_host_order());
    memmove(to, from, bytes);
    return cuda_on_host_status();
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s)
{
    (void)s;
    const std::lock_guard<std::mutex> guard(cuda_on_host_order());
    memset(p, value, bytes);
    return cuda_on_host_status();
}
