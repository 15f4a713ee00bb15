/* memfd, mmap and fallocate behind segment.h. */
#include "dist/shm/segment.h"

#include "core/alloc.h"
#include "core/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct mapping {
    struct mapping *next;
    uint64_t offset;
    size_t bytes;
    char *base;
    int ranks;
} mapping;

struct lvni_shm_segment {
    int fd;
    _Atomic int ranks;
    pthread_mutex_t lock; /* of the list */
    mapping *mappings;
};

/* smaller pieces are reserved without asking the machine what it has */
static const size_t WORTH_A_LOOK = (size_t)16 << 20;

static lvn_status wrap(int fd, lvni_shm_segment **out)
{
    lvni_shm_segment *s = LVNI_NEW(LVNI_TAG_DIST, lvni_shm_segment);
    if (s == NULL) {
        close(fd);
        return LVN_ERR_MEMORY;
    }
    s->fd = fd;
    atomic_store(&s->ranks, 1);
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return LVN_OK;
}

lvn_status lvni_shm_segment_create(size_t bytes, lvni_shm_segment **out)
{
    *out = NULL;
    const int fd = memfd_create("levin", MFD_CLOEXEC);
    if (fd < 0) {
        LVN_FAIL(LVN_ERR_IO, "cannot make memory for the ranks of this node to share: %s",
                 strerror(errno));
    }
    LVN_TRY(wrap(fd, out));
    const lvn_status status = lvni_shm_segment_reserve(*out, 0, bytes);
    if (status != LVN_OK) {
        lvni_shm_segment_drop(*out);
        *out = NULL;
    }
    return status;
}

lvn_status lvni_shm_segment_open(const char *path, lvni_shm_segment **out)
{
    *out = NULL;
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        LVN_FAIL(LVN_ERR_IO, "cannot open the memory of rank 0, %s: %s", path, strerror(errno));
    }
    return wrap(fd, out);
}

void lvni_shm_segment_hold(lvni_shm_segment *segment)
{
    atomic_fetch_add(&segment->ranks, 1);
}

void lvni_shm_segment_drop(lvni_shm_segment *segment)
{
    if (segment != NULL && atomic_fetch_sub(&segment->ranks, 1) == 1) {
        close(segment->fd);
        pthread_mutex_destroy(&segment->lock);
        lvni_core_free(segment);
    }
}

int lvni_shm_segment_fd(const lvni_shm_segment *segment)
{
    return segment->fd;
}

bool lvni_shm_segment_holds(const lvni_shm_segment *segment, const void *bytes, size_t n)
{
    char there[64];
    return n <= sizeof there && pread(segment->fd, there, n, 0) == (ssize_t)n &&
           memcmp(there, bytes, n) == 0;
}

static lvn_status map_new(lvni_shm_segment *segment, uint64_t offset, size_t bytes, char **out)
{
    mapping *m = LVNI_NEW(LVNI_TAG_DIST, mapping);
    if (m == NULL) {
        return LVN_ERR_MEMORY;
    }
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, (off_t)offset);
    if (base == MAP_FAILED) {
        lvni_core_free(m);
        LVN_FAIL(LVN_ERR_MEMORY, "no room for %zu bytes of shared memory: %s", bytes,
                 strerror(errno));
    }
    *m = (mapping){
        .next = segment->mappings, .offset = offset, .bytes = bytes, .base = base, .ranks = 1};
    segment->mappings = m;
    *out = base;
    return LVN_OK;
}

lvn_status lvni_shm_segment_map(lvni_shm_segment *segment, uint64_t offset, size_t bytes,
                                char **out)
{
    lvn_status status = LVN_OK;
    *out = NULL;
    pthread_mutex_lock(&segment->lock);
    for (mapping *m = segment->mappings; m != NULL && *out == NULL; m = m->next) {
        if (m->offset == offset) {
            m->ranks++;
            *out = m->base;
        }
    }
    if (*out == NULL) {
        status = map_new(segment, offset, bytes, out);
    }
    pthread_mutex_unlock(&segment->lock);
    return status;
}

void lvni_shm_segment_unmap(lvni_shm_segment *segment, char *base)
{
    pthread_mutex_lock(&segment->lock);
    for (mapping **at = &segment->mappings; *at != NULL; at = &(*at)->next) {
        mapping *m = *at;
        if (m->base == base) {
            m->ranks--;
            if (m->ranks == 0) {
                munmap(m->base, m->bytes);
                *at = m->next;
                lvni_core_free(m);
            }
            break;
        }
    }
    pthread_mutex_unlock(&segment->lock);
}

lvn_status lvni_shm_segment_reserve(lvni_shm_segment *segment, uint64_t offset, size_t bytes)
{
    if (bytes == 0) {
        return LVN_OK;
    }
    if (bytes >= WORTH_A_LOOK && bytes > lvni_core_machine_memory("")) {
        /* fallocate would take all there is before it gives up */
        LVN_FAIL(LVN_ERR_MEMORY, "cannot reserve %zu bytes of shared memory: the machine has less",
                 bytes);
    }
    int failed;
    do {
        failed = fallocate(segment->fd, 0, (off_t)offset, (off_t)bytes);
    } while (failed != 0 && errno == EINTR);
    if (failed != 0) {
        LVN_FAIL(LVN_ERR_MEMORY, "cannot reserve %zu bytes of shared memory: %s", bytes,
                 strerror(errno));
    }
    return LVN_OK;
}

void lvni_shm_segment_give_back(lvni_shm_segment *segment, uint64_t offset, size_t bytes)
{
    (void)fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                    (off_t)bytes);
}
