/* A list that the processes of a node have once: packed into memory without a name, which the
 * others open by the descriptor of the process that made it (folder_impl.h). They are copies of one
 * program, so structs are as they are. Called by folder_index.c. */
#include "data/folder_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* At the beginning; behind it name_at, size, folders and the names. */
typedef struct packed {
    uint64_t mark, bytes; /* of all */
    uint64_t nonce[2];    /* drawn for this list alone, as the path has it */
    int64_t n, n_folders;
    uint64_t used; /* of names */
    bool sizes;
    lvni_data_ignored ignored;
    lvni_data_foreign_counts foreign;
} packed;

static const uint64_t mark = 0x6c766e206c697374; /* "lvn list" */

static size_t align(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* Where the arrays lie. */
typedef struct places {
    size_t name_at, size, folders, names, end;
} places;

static places places_of(const packed *p)
{
    places at = {.name_at = align(sizeof *p)};
    at.size = at.name_at + align((size_t)p->n * sizeof(size_t));
    at.folders = at.size + (p->sizes ? align((size_t)p->n * sizeof(lvni_data_walk_size)) : 0);
    at.names = at.folders + align((size_t)p->n_folders * sizeof(lvni_data_walk_folder));
    at.end = at.names + align((size_t)p->used);
    return at;
}

void lvni_data_map_free(lvni_data_map *map)
{
    if (map->base != NULL) {
        munmap(map->base, map->bytes);
    }
    if (map->fd > 0) {
        close(map->fd);
    }
    *map = (lvni_data_map){0};
}

/* The walk's arrays become those of the map, which is read-only. */
static void use_map(const lvni_data_map *map, lvni_data_walk *walk)
{
    const packed *p = map->base;
    const places at = places_of(p);
    char *base = map->base;
    lvni_data_walk_free(walk);
    *walk = (lvni_data_walk){.map = *map,
                             .names = base + at.names,
                             .used = (size_t)p->used,
                             .name_at = (size_t *)(void *)(base + at.name_at),
                             .n = p->n,
                             .folders = (lvni_data_walk_folder *)(void *)(base + at.folders),
                             .n_folders = p->n_folders,
                             .ignored = p->ignored,
                             .foreign = p->foreign};
    walk->size = p->sizes ? (lvni_data_walk_size *)(void *)(base + at.size) : NULL;
}

static bool write_all(int fd, const void *bytes, size_t n, size_t at)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = pwrite(fd, (const char *)bytes + done, n - done, (off_t)(at + done));
        if (got < 0 && errno != EINTR) {
            return false;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool pack(int fd, const packed *p, const lvni_data_walk *w)
{
    const places at = places_of(p);
    return ftruncate(fd, (off_t)at.end) == 0 && write_all(fd, p, sizeof *p, 0) &&
           write_all(fd, w->name_at, (size_t)w->n * sizeof *w->name_at, at.name_at) &&
           (!p->sizes || write_all(fd, w->size, (size_t)w->n * sizeof *w->size, at.size)) &&
           write_all(fd, w->folders, (size_t)w->n_folders * sizeof *w->folders, at.folders) &&
           write_all(fd, w->names, w->used, at.names);
}

bool lvni_data_walk_share(lvni_data_walk *walk, char path[LVNI_SHARED_PATH])
{
    packed p;
    memset(&p, 0, sizeof p);
    p.mark = mark;
    p.n = walk->n;
    p.n_folders = walk->n_folders;
    p.used = walk->used;
    p.sizes = walk->size != NULL;
    p.ignored = walk->ignored;
    p.foreign = walk->foreign;
    p.bytes = places_of(&p).end;
    if (getrandom(p.nonce, sizeof p.nonce, 0) != (ssize_t)sizeof p.nonce) {
        return false;
    }
    lvni_data_map map = {.fd = memfd_create("levin list", MFD_CLOEXEC), .bytes = (size_t)p.bytes};
    void *base = map.fd >= 0 && pack(map.fd, &p, walk)
                     ? mmap(NULL, map.bytes, PROT_READ, MAP_SHARED, map.fd, 0)
                     : MAP_FAILED;
    if (base == MAP_FAILED) {
        lvni_data_map_free(&map);
        return false;
    }
    map.base = base;
    use_map(&map, walk);
    snprintf(path, LVNI_SHARED_PATH, "/proc/%ld/fd/%d %016" PRIx64 "%016" PRIx64, (long)getpid(),
             map.fd, p.nonce[0], p.nonce[1]);
    return true;
}

/* Numbers of processes are taken again, and in a container they are of others. */
static bool is_packed(const lvni_data_map *map, const char *nonce)
{
    const packed *p = map->base;
    char own[40];
    if (map->bytes < sizeof *p || p->mark != mark || p->bytes != map->bytes ||
        places_of(p).end != map->bytes) {
        return false;
    }
    snprintf(own, sizeof own, "%016" PRIx64 "%016" PRIx64, p->nonce[0], p->nonce[1]);
    return strcmp(own, nonce) == 0;
}

lvn_status lvni_data_walk_open_shared(const char *given, lvni_data_walk *walk)
{
    struct stat st = {0};
    char path[LVNI_SHARED_PATH];
    const size_t n = strcspn(given, " ");
    snprintf(path, sizeof path, "%.*s", (int)n, given);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool there = fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0;
    lvni_data_map map = {.bytes = (size_t)st.st_size};
    void *base = there ? mmap(NULL, map.bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    const int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (base == MAP_FAILED) {
        LVN_FAIL(LVN_ERR_IO, "%s: cannot map the list of images of another rank: %s", path,
                 strerror(error));
    }
    map.base = base;
    if (!is_packed(&map, given + n + (given[n] != '\0'))) {
        lvni_data_map_free(&map);
        LVN_FAIL(LVN_ERR_IO, "%s: not the list of images of the rank that shares it", path);
    }
    use_map(&map, walk);
    return LVN_OK;
}
