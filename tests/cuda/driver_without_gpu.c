/* Stands in for NVIDIA's driver (libcuda.so.1) where there is no GPU: programs are loaded and
 * thrown away, nothing else works. With it cuDNN makes plans for a device whose properties it is
 * given (test_cudnn_plans.cu); what it looks for is what the list has. */
#include <stddef.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, NO_DEVICE = 100 };

#define WORKS(name) int name(void);
#define FAILS(name) WORKS(name)
#include "driver_without_gpu.def"
#undef WORKS
#undef FAILS

#define WORKS(name)                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return SUCCESS;                                                                            \
    }
#define FAILS(name)                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return NO_DEVICE;                                                                          \
    }
#include "driver_without_gpu.def"

static char program; /* whose address stands for all of them */
static int fails_in;

void driver_without_gpu_fails_at(int k);
int cuLibraryLoadData(void **library);
int cuLibraryGetKernel(void **kernel, void *library, const char *name);
int cuKernelGetFunction(void **function, void *kernel);
int cuModuleLoadData(void **module);
int cuModuleGetFunction(void **function, void *module, const char *name);

/* The k-th program that is loaded from here on finds no memory. */
void driver_without_gpu_fails_at(int k)
{
    fails_in = k;
}

static int load(void **to)
{
    *to = &program;
    return fails_in > 0 && --fails_in == 0 ? OUT_OF_MEMORY : SUCCESS;
}

int cuLibraryLoadData(void **library)
{
    return load(library);
}

int cuModuleLoadData(void **module)
{
    return load(module);
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    (void)library, (void)name;
    *kernel = &program;
    return SUCCESS;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)module, (void)name;
    *function = &program;
    return SUCCESS;
}

int cuKernelGetFunction(void **function, void *kernel)
{
    (void)kernel;
    *function = &program;
    return SUCCESS;
}
