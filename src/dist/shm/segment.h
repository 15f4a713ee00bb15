/* The memory that ranks of one node share: a file without a name (memfd), of which each process
 * maps pieces. It is gone with the last process that has it open, however that ends; nothing of it
 * is ever in /dev/shm. Ranks that are threads share one segment object, so that their addresses are
 * the same; processes have one each. */
#ifndef LEVIN_DIST_SHM_SEGMENT_H
#define LEVIN_DIST_SHM_SEGMENT_H

#include <levin/status.h>

enum { LVNI_SHM_PAGE = 4096 };

typedef struct lvni_shm_segment lvni_shm_segment;

/* the first `bytes` are zeros that can be touched */
lvn_status lvni_shm_segment_create(size_t bytes, lvni_shm_segment **out);
/* that of another process: /proc/PID/fd/N */
lvn_status lvni_shm_segment_open(const char *path, lvni_shm_segment **out);
void lvni_shm_segment_hold(lvni_shm_segment *segment); /* one more rank */
void lvni_shm_segment_drop(lvni_shm_segment *segment); /* of the last rank: closes */
int lvni_shm_segment_fd(const lvni_shm_segment *segment);
/* at its beginning */
bool lvni_shm_segment_holds(const lvni_shm_segment *segment, const void *bytes, size_t n);

/* Addresses for [offset, offset + bytes), whole pages; more than one rank of the process gets the
 * same. Unmap takes what map gave. */
lvn_status lvni_shm_segment_map(lvni_shm_segment *segment, uint64_t offset, size_t bytes,
                                char **out);
void lvni_shm_segment_unmap(lvni_shm_segment *segment, char *base);
/* Pages for [offset, offset + bytes), near the caller's core. LVN_ERR_MEMORY when there are
 * none. */
lvn_status lvni_shm_segment_reserve(lvni_shm_segment *segment, uint64_t offset, size_t bytes);
/* the pages, not the addresses */
void lvni_shm_segment_give_back(lvni_shm_segment *segment, uint64_t offset, size_t bytes);

#endif
