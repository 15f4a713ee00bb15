/* Copies of the state for checkpoints (snapshot.h). */
#include "trainer/snapshot.h"

#include "kernels/flat.h"
#include "tensor/device.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { PIECE = 1 << 18, LINE = 64 };

typedef struct job {
    char *to;
    const char *from;
    size_t bytes;
    _Atomic size_t next;
} job;

#ifdef __SSE2__
/* memcpy begins with this at sizes that some processors with large caches never reach. */
static void copy_past_caches(char *to, const char *from, size_t bytes)
{
    const size_t head = (LINE - (uintptr_t)to % LINE) % LINE;
    memcpy(to, from, head < bytes ? head : bytes);
    size_t i = head;
    for (; i + LINE <= bytes; i += LINE) {
        for (size_t k = 0; k < LINE; k += 16) {
            _mm_stream_si128((void *)(to + i + k), _mm_loadu_si128((const void *)(from + i + k)));
        }
    }
    _mm_sfence();
    if (i < bytes) {
        memcpy(to + i, from + i, bytes - i);
    }
}
#else
static void copy_past_caches(char *to, const char *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
#endif

static void copy_pieces(void *user)
{
    job *j = user;
    for (;;) {
        const size_t at = atomic_fetch_add_explicit(&j->next, PIECE, memory_order_relaxed);
        if (at >= j->bytes) {
            return;
        }
        copy_past_caches(j->to + at, j->from + at,
                         j->bytes - at < PIECE ? j->bytes - at : (size_t)PIECE);
    }
}

lvn_status lvni_trainer_snapshot_copy(void *to, const void *from, size_t bytes)
{
    if (bytes <= PIECE || lvni_tensor_device_of(from) != NULL) {
        return lvni_tensor_mem_copy(to, from, bytes);
    }
    job j = {.to = to, .from = from, .bytes = bytes};
    lvni_kernels_flat_team(copy_pieces, &j);
    return LVN_OK;
}
