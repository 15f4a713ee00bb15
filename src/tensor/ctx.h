/* The engine context of a thread: what ops and kernels may ask about where they run. One per lane;
 * the lane's thread sets it, every other thread gets a default one at first use. Not shared between
 * threads while in use. */
#ifndef LEVIN_TENSOR_CTX_H
#define LEVIN_TENSOR_CTX_H

#include "core/pins.h"
#include "core/rng.h"

#include <levin/tensor.h>

/* Where in training the thread is; random numbers and modes of ops come from here
 * (docs/reproducibility.md). */
typedef struct lvni_tensor_position {
    uint64_t seed;
    uint32_t step; /* optimizer step, from 0 */
    /* the same in memory of the context's device, for kernels to read; NULL: nowhere */
    const int64_t *step_on_device;
    uint32_t micro_batch; /* micro-batch of the step */
    uint32_t phase;       /* of the step */
    /* phase << LVNI_CALL_BITS, and random ops called so far in this micro-batch's forward */
    uint32_t call;
    bool training; /* dropout and batch norm behave as in training */
    /* In evaluation: the (n_samples) samples of the chunk. Named draws with a row for each are of
     * the samples then, wherever they are evaluated; NULL: of the micro-batch */
    const int64_t *sample;
    int64_t n_samples;
} lvni_tensor_position;

enum { LVNI_CALL_BITS = 24 }; /* of the packing (core/rng.h) */

struct lvni_autograd_tape; /* autograd: scopes and nodes */
struct lvni_tensor_device; /* tensor/device.h */
struct lvni_under_way;
struct lvni_tensor_group; /* tensor/tensor.h */
struct lvni_tensor_state;

typedef struct lvni_tensor_cache lvni_tensor_cache;

/* Choices of autotune (levin/pins.h; tuning.c). */
typedef struct lvni_tensor_tuning {
    bool measures;
    int measured, others; /* problems, and those whose choice is not the first */
    /* what was found out, as long as these two are the same */
    uint64_t version;
    const struct lvni_tensor_device *device;
    uint64_t run;
} lvni_tensor_tuning;

typedef struct lvni_tensor_ctx {
    /* OpenMP threads for kernels whose bits do not depend on it (cores of the lane) */
    int team;
    lvni_core_pins pins; /* of the run, for kernels */
    lvn_dtype low;       /* what matrix products run in (precision): LVN_F32, LVN_BF16 or LVN_F16 */
    lvni_tensor_position at;
    struct lvni_tensor_device *device; /* where new tensors lie and ops compute; NULL: the host */
    /* scopes do not wait for devices, nor take their errors: that is done at a later point */
    bool deferred;
    /* what devices have still to do for this context; NULL: it never asked */
    struct lvni_under_way *under_way;
    lvni_tensor_cache *cache;
    struct lvni_autograd_tape *tape;
    struct lvni_tensor_state *states; /* of backends (lvni_tensor_ctx_state) */
    void *gradients; /* autograd's gradient set of the current micro-batch, or NULL */
    void *records;   /* nn's record of buffer contributions of the current micro-batch, or NULL */
    const struct lvni_tensor_group *group; /* of the current micro-batch; NULL: it is alone */
    const char *module_path;               /* of the innermost running module; "" outside */
    struct lvni_kernels_anomaly *anomaly;  /* kernels/anomaly.h, of this thread's ops; NULL: none */
    lvni_tensor_tuning tuning;
} lvni_tensor_ctx;

/* The calling thread's context; never NULL once the thread made one, NULL with an error when memory
 * is out. */
lvni_tensor_ctx *lvni_tensor_ctx_get(void);
/* Make `ctx` the thread's (NULL: back to the default). */
void lvni_tensor_ctx_set(lvni_tensor_ctx *ctx);
/* team >= 1. pins NULL: the smallest. */
lvni_tensor_ctx *lvni_tensor_ctx_create(int team, const lvni_core_pins *pins);
/* Frees what the context holds; its tensors must be gone. autograd registers how tapes are freed.
 */
void lvni_tensor_ctx_destroy(lvni_tensor_ctx *ctx);
void lvni_tensor_ctx_free_under_way(lvni_tensor_ctx *ctx); /* device_stream.c: waits */
typedef void (*lvni_tensor_tape_free)(struct lvni_autograd_tape *);
/* atomic: every lane registers the same at its first use */
extern _Atomic(lvni_tensor_tape_free) lvni_tensor_ctx_free_tape;

/* What a backend keeps per context: handles of its libraries, scratch memory, tables. A backend has
 * one static object of this type per kind of state; its address is the key. */
typedef struct lvni_tensor_state_class {
    size_t bytes;                     /* of the state, 64-byte aligned */
    lvn_status (*begin)(void *state); /* fills in zeros; NULL: they are enough */
    void (*end)(void *state);         /* releases what the state holds; not after a failed begin */
} lvni_tensor_state_class;
/* The state of this class in the calling thread's context: made at first use, ended with the
 * context, the latest first. NULL with an error recorded. */
void *lvni_tensor_ctx_state(const lvni_tensor_state_class *cls);

/* How the calling thread computes. Results depend on it, so all that computes is inside one of
 * these. */
typedef enum lvni_tensor_fp_mode {
    LVNI_FP_FLUSH, /* denormal results are 0, and denormal operands count as 0 */
    LVNI_FP_EXACT  /* denormal results are 0, operands are what they are: for what compares and
                      chooses and does no arithmetic */
} lvni_tensor_fp_mode;
/* Rounds to nearest, masks exceptions. Returns what lvni_tensor_fp_leave needs to make the thread's
 * state what it was: a thread may be the calling program's. Cheap, and may be nested. */
unsigned lvni_tensor_fp_enter(lvni_tensor_fp_mode mode);
void lvni_tensor_fp_leave(unsigned before);
/* LVNI_FP_FLUSH for good, in a thread of our own. */
void lvni_tensor_thread_set_ftz(void);

/* ---- memory of tensors: recycled by size class, so that a step allocates nothing after warm-up.
 * One cache per context. ---- */

enum { LVNI_SIZE_CLASSES = 4 * 12 + 16 * 26 + 1 };
#define LVNI_SIZE_LIMIT ((size_t)1 << 46) /* bytes of one block */
/* The class of a size up to the limit, and its block size in *got; devices round alike
 * (device_memory.c). */
int lvni_tensor_size_class(size_t bytes, size_t *got);

lvni_tensor_cache *lvni_tensor_cache_create(void);
void lvni_tensor_cache_destroy(lvni_tensor_cache *c);
/* At least `bytes` bytes, 64-byte aligned; *got is the block's size, to be given back with it. */
void *lvni_tensor_cache_take(lvni_tensor_cache *c, size_t bytes, size_t *got);
void lvni_tensor_cache_give(lvni_tensor_cache *c, void *p, size_t got);
uint64_t lvni_tensor_cache_bytes(const lvni_tensor_cache *c); /* held in all: in use and free */

#endif
