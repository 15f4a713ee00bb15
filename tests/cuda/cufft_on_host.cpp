/* Stand-in for libcufft: sums in double precision, in the memory of the host. It keeps to what the
 * real one asks of its caller: a work area, which it overwrites, and nothing in front of a plan.
 *     CUFFT_ON_HOST_FAIL=size     plans are refused
 *                        area     plans want more memory than anybody lends
 *                        memory   plans find no memory
 *                        run      transforms fail */
#include "cufft.h"

#include <complex>
#include <map>
#include <stdlib.h>
#include <vector>

namespace
{
typedef std::complex<double> number;

struct plan {
    size_t m, n, batches;
    bool made, allocates;
    size_t bytes;
    void *area;
};
std::map<cufftHandle, plan> plans; /* calls come with a lock of their device */
std::mutex lock;
cufftHandle newest;

bool fails(const char *how)
{
    const char *text = getenv("CUFFT_ON_HOST_FAIL");
    return text != nullptr && strcmp(text, how) == 0;
}

/* In place, n numbers that are `step` apart. */
void transform(number *x, size_t n, size_t step, int direction)
{
    std::vector<number> roots(n), y(n);
    for (size_t i = 0; i < n; i++) {
        roots[i] = std::polar(1.0, direction * 2.0 * M_PI * (double)i / (double)n);
    }
    for (size_t k = 0; k < n; k++) {
        for (size_t j = 0; j < n; j++) {
            y[k] += x[j * step] * roots[j * k % n];
        }
    }
    for (size_t k = 0; k < n; k++) {
        x[k * step] = y[k];
    }
}

plan *find(cufftHandle handle)
{
    const std::lock_guard<std::mutex> held(lock);
    const auto at = plans.find(handle);
    return at == plans.end() ? nullptr : &at->second;
}
} // namespace

extern "C" {
cufftResult cufftGetVersion(int *version)
{
    *version = 12000;
    return CUFFT_SUCCESS;
}

cufftResult cufftCreate(cufftHandle *handle)
{
    const std::lock_guard<std::mutex> held(lock);
    *handle = newest++;
    plans[*handle] = plan();
    plans[*handle].allocates = true;
    return CUFFT_SUCCESS;
}

cufftResult cufftDestroy(cufftHandle handle)
{
    const std::lock_guard<std::mutex> held(lock);
    return plans.erase(handle) == 1 ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN;
}

cufftResult cufftSetAutoAllocation(cufftHandle handle, int allocates)
{
    plan *p = find(handle);
    if (p == nullptr || p->made) {
        return CUFFT_INVALID_PLAN;
    }
    p->allocates = allocates != 0;
    return CUFFT_SUCCESS;
}

cufftResult cufftMakePlanMany64(cufftHandle handle, int rank, long long *n, long long *inembed,
                                long long, long long, long long *onembed, long long, long long,
                                cufftType type, long long batch, size_t *bytes)
{
    plan *p = find(handle);
    if (p == nullptr || p->made || p->allocates) {
        return CUFFT_INVALID_PLAN;
    }
    if (rank < 1 || rank > 2 || inembed != nullptr || onembed != nullptr || type != CUFFT_C2C) {
        return CUFFT_NOT_IMPLEMENTED;
    }
    if (fails("size") || fails("memory")) {
        return fails("size") ? CUFFT_INVALID_SIZE : CUFFT_ALLOC_FAILED;
    }
    p->m = rank == 2 ? (size_t)n[0] : 1;
    p->n = (size_t)n[rank - 1];
    p->batches = (size_t)batch;
    p->bytes = 2 * p->m * p->n * p->batches * sizeof(cufftComplex);
    *bytes = fails("area") ? (size_t)1 << 40 : p->bytes;
    p->made = true;
    return CUFFT_SUCCESS;
}

cufftResult cufftSetStream(cufftHandle handle, cudaStream_t)
{
    return find(handle) == nullptr ? CUFFT_INVALID_PLAN : CUFFT_SUCCESS;
}

cufftResult cufftSetWorkArea(cufftHandle handle, void *area)
{
    plan *p = find(handle);
    if (p == nullptr) {
        return CUFFT_INVALID_PLAN;
    }
    p->area = area;
    return CUFFT_SUCCESS;
}

cufftResult cufftExecC2C(cufftHandle handle, cufftComplex *x, cufftComplex *y, int direction)
{
    const plan *p = find(handle);
    if (p == nullptr || !p->made || p->area == nullptr || fails("run")) {
        return p == nullptr || !p->made ? CUFFT_INVALID_PLAN
               : p->area == nullptr     ? CUFFT_NO_WORKSPACE
                                        : CUFFT_EXEC_FAILED;
    }
    memset(p->area, 0xff, p->bytes);
    std::vector<number> image(p->m * p->n);
    for (size_t b = 0; b < p->batches; b++) {
        const size_t at = b * image.size();
        for (size_t i = 0; i < image.size(); i++) {
            image[i] = number(x[at + i].x, x[at + i].y);
        }
        for (size_t r = 0; r < p->m; r++) {
            transform(&image[r * p->n], p->n, 1, direction);
        }
        for (size_t c = 0; c < p->n; c++) {
            transform(&image[c], p->m, p->n, direction);
        }
        for (size_t i = 0; i < image.size(); i++) {
            y[at + i] = make_float2((float)image[i].real(), (float)image[i].imag());
        }
    }
    return CUFFT_SUCCESS;
}
}
