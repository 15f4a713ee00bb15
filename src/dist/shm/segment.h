/* The memory that ranks of one node share: a file without a name (memfd), of which each process
 * maps pieces. It is gone with the last process that has it open, however that ends; nothing of it
 * is ever in /dev/shm. Ranks that are threads share one segment object, so that their addresses are
 * the same; processes have one each. */
#ifndef LEVIN_DIST_SHM_SEGMENT_H
#define LEVIN_DIST_SHM_SEGMENT_H

#include <levin/status.h>

enum { SHM_PAGE = 4096 };

typedef struct shm_segment shm_segment;

/* the first `bytes` are zeros that can be touched */
lvn_status shm_segment_create(size_t bytes, shm_segment **out);
/* that of another process: /proc/PID/fd/N */
lvn_status shm_segment_open(const char *path, shm_segment **out);
void shm_segment_hold(shm_segment *segment); /* one more rank */
void shm_segment_drop(shm_segment *segment); /* of the last rank: closes */
int shm_segment_fd(const shm_segment *segment);
/* at its beginning */
bool shm_segment_holds(const shm_segment *segment, const void *bytes, size_t n);

/* Addresses for [offset, offset + bytes), whole pages; more than one rank of the process gets the
 * same. Unmap takes what map gave. */
lvn_status shm_segment_map(shm_segment *segment, uint64_t offset, size_t bytes, char **out);
void shm_segment_unmap(shm_segment *segment, char *base);
/* Pages for [offset, offset + bytes), near the caller's core. LVN_ERR_MEMORY when there are
 * none. */
lvn_status shm_segment_reserve(shm_segment *segment, uint64_t offset, size_t bytes);
/* the pages, not the addresses */
void shm_segment_give_back(shm_segment *segment, uint64_t offset, size_t bytes);

#endif
