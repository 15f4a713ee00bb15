/* What the files that call NVIDIA's libraries share (cublas.cu, cudnn.cu, cufft.cu): switches from
 * the environment, plans kept per problem, and pieces of a kernel's scratch memory. */
#ifndef LEVIN_KERNELS_CUDA_LIBRARY_CUH
#define LEVIN_KERNELS_CUDA_LIBRARY_CUH

#include "device.cuh"

#include <levin/pins.h>
#include <stdlib.h>
#include <string.h>

/* LEVIN_CUDA_LIBRARIES=off: own kernels only. Always so on the host. */
bool lvnc_uses_libraries(void);
/* A library that supports the problem failed: no other algorithm may compute it instead. */
lvn_status lvnc_library_failed(const lvn_kernel_args *args, const char *library, const char *why,
                               bool memory);
/* The candidate that is recorded for the run does not run, and any other would have other bits than
 * the ranks and runs that have this one. */
lvn_status lvnc_chosen_failed(const lvn_kernel_args *args, const char *library);
/* LEVIN_CUDA_DEBUG=1: to stderr goes what a library refuses, and why, once per problem; how long
 * candidates took that were measured; which cuFFT is loaded; when a device closes, how often the
 * host waited until it had nothing left to do. */
bool lvnc_debugs(void);
/* Whether f32 products may round their factors to TF32 (10 bits of fraction). */
bool lvnc_allows_tf32(void);
void lvnc_allow_tf32(bool allowed);

enum {
    LVNC_CUBLAS = 0, /* index into lvnc_device.library */
    LVNC_CUDNN = 1,
    LVNC_CUFFT = 2 /* made with the first transform */
};

/* When a device is opened, before its free memory is counted. *version: of the library, 0 on the
 * host. The library cannot start: LVN_ERR_RESOURCE. */
lvn_status lvnc_cublas_open(lvnc_device *d, size_t *version);
lvn_status lvnc_cudnn_open(lvnc_device *d, size_t *version);
/* The version of a library that may be absent, as it numbers itself; 0: own kernels compute in its
 * place. -1: it is there and does not load, which the first transform reports. NVRTC compiles
 * cuDNN's attention, which cuDNN leaves out without it. */
int lvnc_cufft_version(void);
int lvnc_nvrtc_version(void);

/* ---- scratch memory ---- */

/* Cut into pieces at multiples of 256 bytes. The row's `workspace` cuts the same pieces of no
 * memory (at NULL) to learn how much there must be. */
struct lvnc_scratch {
    char *at;
    size_t used;
};
enum { LVNC_PIECE = 256 };
/* What to ask levin for, whose memory may begin within a piece. */
static inline size_t lvnc_scratch_bytes(size_t used)
{
    return used == 0 ? 0 : used + LVNC_PIECE;
}
static inline lvnc_scratch lvnc_scratch_of(const lvn_kernel_args *args)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(args->workspace);
    lvnc_scratch s;
    s.at = reinterpret_cast<char *>((at + LVNC_PIECE - 1) / LVNC_PIECE * LVNC_PIECE);
    s.used = 0;
    return s;
}
static inline void *lvnc_piece(lvnc_scratch *s, size_t bytes)
{
    void *p = s->at == NULL || bytes == 0 ? NULL : s->at + s->used;
    s->used += (bytes + LVNC_PIECE - 1) / LVNC_PIECE * LVNC_PIECE;
    return p;
}

/* ---- plans ---- */

/* Of a key whose gaps are zeros (FNV-1a). */
static inline uint64_t lvnc_problem_hash(const void *key, size_t bytes)
{
    const unsigned char *byte = static_cast<const unsigned char *>(key);
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++) {
        h = (h ^ byte[i]) * 1099511628211u;
    }
    return h;
}

/* By the bytes of a Key, whose gaps are zeros. A plan stays where it is until all go. The caller
 * holds a lock. */
template <typename Key, typename Plan> struct lvnc_plans {
    struct node {
        node *next;
        Key key;
        Plan plan;
    };
    enum { BUCKETS = 256 };
    node *bucket[BUCKETS];

    /* The key's plan; a new one is all zeros. NULL: no memory. */
    Plan *get(const Key &key)
    {
        node **first = &bucket[lvnc_problem_hash(&key, sizeof key) % BUCKETS];
        for (node *n = *first; n != NULL; n = n->next) {
            if (memcmp(&n->key, &key, sizeof key) == 0) {
                return &n->plan;
            }
        }
        node *n = static_cast<node *>(calloc(1, sizeof *n));
        if (n == NULL) {
            return NULL;
        }
        memcpy(&n->key, &key, sizeof key);
        n->next = *first;
        *first = n;
        return &n->plan;
    }

    void free_all(void (*end)(Plan *plan))
    {
        for (int i = 0; i < BUCKETS; i++) {
            while (bucket[i] != NULL) {
                node *n = bucket[i];
                bucket[i] = n->next;
                end(&n->plan);
                free(n);
            }
        }
    }
};

/* ---- candidates (levin/pins.h: autotune=true; candidates.cu) ---- */

enum { LVNC_CANDIDATES = 8 };

/* The candidate that computes a plan's problem, as far as the run with this number knows. */
struct lvnc_choice {
    uint64_t run;
    int candidate;
};

/* Submits what candidate i computes; it may be called often. False: it does not run. */
typedef bool (*lvnc_candidate)(void *user, int i);
/* Whether to measure now; not while the stream is captured. */
bool lvnc_measures(cudaStream_t stream, const lvn_autotune &now);
/* The quickest of n by the device's clock, of about equally quick ones the first; 0 where none
 * runs. Waits for the stream. what, problem: for LEVIN_CUDA_DEBUG=1. */
int lvnc_quickest(cudaStream_t stream, int n, lvnc_candidate submit, void *user, const char *what,
                  uint64_t problem);

/* The largest power of two, up to 16, that divides an address. */
static inline int lvnc_alignment(const void *p)
{
    const uintptr_t low = reinterpret_cast<uintptr_t>(p) & 15;
    return low == 0 ? 16 : (int)(low & -low);
}

#endif
