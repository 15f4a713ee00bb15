/* Sorting of 64-bit keys: the high half is what orders, the low half a place. Keys differ, so the
 * order is the same whatever the way: stable, and the same bits each time. */
#ifndef LEVIN_KERNELS_CUDA_SORT_CUH
#define LEVIN_KERNELS_CUDA_SORT_CUH

#include "cuda.cuh"

/* Behind all keys: fills lines up to a power of two. */
#define SORT_NO_KEY UINT64_MAX

namespace
{

/* How many lines of keys are sorted at once, so that they fit the workspace. */
struct sort_room {
    int64_t size; /* of a line, a power of two */
    int64_t lines;
    size_t bytes;
};

static inline sort_room sort_room_for(int64_t lines, int64_t size)
{
    const int64_t most = (int64_t)1 << 24; /* keys: 128 MiB */
    sort_room r = {1, 0, 0};
    while (r.size < size) {
        r.size *= 2;
    }
    r.lines = r.size >= most ? 1 : most / r.size;
    r.lines = r.lines < lines ? r.lines : lines;
    r.bytes = (size_t)(r.lines * r.size) * sizeof(uint64_t);
    return r;
}

} // namespace

/* order.cu: each of `lines` lines of `size` (a power of two) keys, smallest first. */
lvn_status lvnc_sort(const lvn_kernel_args *args, uint64_t *keys, int64_t lines, int64_t size);

#endif
