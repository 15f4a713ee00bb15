/* Stand-ins for what a machine with GPUs has, for test_doctor.py, which compiles one of the parts:
 *   DRIVER   libcuda.so.1, whose answers the variables STAND_IN_... give
 *   BACKEND  levin_backend_cuda.so, which counts devices as that driver shows them
 *   LIBRARY  a library that the backend needs
 *   SYSTEM   preloaded: a small /dev/shm, device files that may not be opened
 *   DNNL     preloaded: a version of oneDNN that levin was not measured with */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int number(const char *name, int otherwise)
{
    const char *value = getenv(name);
    return value == NULL ? otherwise : atoi(value);
}

#ifdef DRIVER
/* Which commands load it? Each leaves a line. */
__attribute__((constructor)) static void loaded(void)
{
    const char *path = getenv("STAND_IN_LOADED");
    FILE *f = path == NULL ? NULL : fopen(path, "a");
    if (f != NULL) {
        fputs("loaded\n", f);
        fclose(f);
    }
}

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    return number("STAND_IN_INIT", 0);
}

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = number("STAND_IN_VERSION", 13000);
    return 0;
}

int cuDeviceGetCount(int *n);
int cuDeviceGetCount(int *n)
{
    *n = number("STAND_IN_DEVICES", 2);
    return 0;
}

int cuDeviceGet(int *device, int index);
int cuDeviceGet(int *device, int index)
{
    *device = 10 + index; /* not the same numbers */
    return 0;
}

int cuDeviceGetName(char *out, int room, int device);
int cuDeviceGetName(char *out, int room, int device)
{
    snprintf(out, (size_t)room, "Stand-in %d", device - 10);
    return 0;
}

int cuDeviceGetUuid(unsigned char *out, int device);
int cuDeviceGetUuid(unsigned char *out, int device)
{
    for (int i = 0; i < 16; i++) {
        out[i] = (unsigned char)(i * 16 + device);
    }
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)80 << 30;
    return 0;
}

int cuDeviceGetAttribute(int *value, int which, int device);
int cuDeviceGetAttribute(int *value, int which, int device)
{
    switch (which) {
    case 20: *value = number("STAND_IN_MODE", 0); return 0;
    case 33: *value = 0x3b + device - 10; return 0;
    case 34: *value = 0; return 0;
    case 50: *value = 1; return 0;
    case 75: *value = 9; return 0;
    case 76: *value = 0; return 0;
    default: return 1;
    }
}

int cuDeviceCanAccessPeer(int *can, int device, int peer);
int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer && number("STAND_IN_PEERS", 1);
    return 0;
}

static int current;

int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    static int contexts[64];
    contexts[device] = device;
    *context = &contexts[device];
    return device == 10 ? number("STAND_IN_RETAIN", 0) : 0;
}

int cuDevicePrimaryCtxRelease(int device);
int cuDevicePrimaryCtxRelease(int device)
{
    (void)device;
    return 0;
}

int cuCtxPushCurrent_v2(void *context);
int cuCtxPushCurrent_v2(void *context)
{
    current = *(int *)context;
    return 0;
}

int cuCtxPopCurrent_v2(void **context);
int cuCtxPopCurrent_v2(void **context)
{
    *context = NULL;
    current = 0;
    return 0;
}

#ifndef OLD
int cuMemGetInfo_v2(size_t *unused, size_t *total);
int cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    /* of the second device a part may be taken, in percent */
    const size_t taken = current == 11 ? (size_t)number("STAND_IN_TAKEN", 0) : 0;
    *total = (size_t)80 << 30;
    *unused = *total / 100 * (100 - taken);
    return current == 0; /* asked without a context */
}
#endif
#endif

#ifdef BACKEND
#include <dlfcn.h>
#include <levin/backend.h>

#ifdef LIBRARY_NEEDED
int stand_in_library(void);
#endif

/* As the real one: 12.8 is what it was built with. */
static lvn_status count(int *n)
{
    int version = 0;
    int (*ask)(int *) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&ask = driver == NULL ? NULL : dlsym(driver, "cuDriverGetVersion");
    *n = 0;
    if (ask == NULL) {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "cuda: no NVIDIA driver is loaded here");
    }
    (void)ask(&version);
    if (version < 12080) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "cuda: the NVIDIA driver is for CUDA %d.%d, this build needs one for CUDA 12.8 "
                 "or newer",
                 version / 1000, version % 1000 / 10);
    }
#ifdef LIBRARY_NEEDED
    *n = stand_in_library();
#endif
    *n = number("STAND_IN_INIT", 0) != 0 ? 0 : number("STAND_IN_DEVICES", 2);
    return LVN_OK;
}

static lvn_status open_device(int index, void **device, lvn_device_info *info)
{
    const char *libraries = getenv("STAND_IN_LIBRARIES");
    if (number("STAND_IN_CLOSED", -1) == index) {
        LVN_FAIL(LVN_ERR_RESOURCE, "cuda:%d: cuDNN does not start: no reason", index);
    }
    *device = info;
    snprintf(info->fingerprint, sizeof info->fingerprint, "Stand-in, %s",
             libraries == NULL ? "cuFFT 12000, NVRTC 13000" : libraries);
    return LVN_OK;
}

static void close_device(void *device)
{
    (void)device;
}

LVN_API const lvn_backend *lvn_backend_table(void);
const lvn_backend *lvn_backend_table(void)
{
    static lvn_backend table;
    memset(&table, 1, sizeof table); /* all functions are there, and only these are called */
    table.version = LVN_BACKEND_VERSION;
    table.table_size = sizeof table;
    table.name = "cuda";
    table.on_host = false;
    table.count = count;
    table.open = open_device;
    table.close = close_device;
    table.kernels = NULL;
    table.n_kernels = 0;
    return &table;
}
#endif

#ifdef LIBRARY
int stand_in_library(void);
int stand_in_library(void)
{
    return 0;
}
#endif

#ifdef SYSTEM
#include <dlfcn.h>
#include <errno.h>
#include <sys/statvfs.h>
#include <unistd.h>

int statvfs(const char *restrict path, struct statvfs *restrict out)
{
    const size_t n = strlen(path);
    memset(out, 0, sizeof *out);
    if (n < 8 || strcmp(path + n - 8, "/dev/shm") != 0) {
        errno = ENOENT;
        return -1;
    }
    out->f_frsize = 4096;
    out->f_blocks = out->f_bavail = (fsblkcnt_t)number("STAND_IN_SHM_MIB", 64) * 256;
    return 0;
}

int access(const char *path, int mode)
{
    int (*real)(const char *, int) = NULL;
    const char *denied = getenv("STAND_IN_DENIED");
    *(void **)&real = dlsym(RTLD_NEXT, "access");
    if (denied != NULL && strstr(path, denied) != NULL) {
        errno = EACCES;
        return -1;
    }
    return real(path, mode);
}
#endif

#ifdef DNNL
/* The first members of dnnl_version_t. */
struct version {
    int major, minor, patch;
    const char *hash;
    unsigned cpu_runtime, gpu_runtime;
};

const struct version *dnnl_version(void);
const struct version *dnnl_version(void)
{
    static const struct version untried = {.major = 3, .minor = 99, .patch = 1};
    return &untried;
}
#endif
