/* A STAND-IN for libnccl.so.2, for tests on machines without GPUs: the functions that levin calls,
 * with NCCL's names and types, between simulated accelerators (src/kernels/sim) in threads and
 * processes of one machine. It proves levin's side: what is sent, to whom, in which order, and what
 * happens when NCCL fails. It proves nothing about NCCL or about speed. As NCCL it
 *   - answers "in progress", and has the result later (ncclCommGetAsyncError);
 *   - runs a group in the order of the stream, all its sends and receives at once;
 *   - refuses two ranks on one device;
 *   - lets a group wait for ever for a rank that is gone, until ncclCommAbort.
 * LEVIN_NCCL_LIBRARY names it. NCCL_ON_SIM_FAULT=KIND:RANK:GROUP lets it fail:
 *   async   rank RANK has an error from its group GROUP on
 *   hang    its group GROUP never ends
 *   init    it never finds the others (GROUP means nothing) */
#include "dist/nccl/nccl_api.h"
#include "kernels/sim/sim_native.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { MAX_RANKS = 16, CHUNK = 1 << 16, MAX_OPS = 4096, SYSTEM_ERROR = 2 };

/* ---- memory of all ranks ---- */

/* From one rank to another: one chunk at a time. */
typedef struct mailbox {
    _Atomic uint64_t written, read; /* chunks */
    size_t bytes;
    char data[CHUNK];
} mailbox;

typedef struct shared {
    _Atomic int attached, gone; /* gone: of some rank, 1 + its number */
    _Atomic int device[MAX_RANKS];
    mailbox box[]; /* (from, to) */
} shared;

typedef struct communicator {
    _Atomic int refs; /* the caller's, and one of each group under way */
    shared *all;
    size_t bytes;
    char name[LVNI_NCCL_ID_BYTES]; /* of the memory, until all have it */
    int rank, n;
    bool started;
    _Atomic bool aborted;
    _Atomic int error;
    _Atomic int groups; /* ever submitted */
} communicator;

static _Thread_local int device = -1; /* its number and that of the host's name */

typedef struct fault {
    char kind[16];
    int rank, group;
} fault;

static bool has_fault(const communicator *c, const char *kind, int group)
{
    fault f = {.rank = -1};
    const char *text = getenv("NCCL_ON_SIM_FAULT");
    return text != NULL && sscanf(text, "%15[a-z]:%d:%d", f.kind, &f.rank, &f.group) == 3 &&
           strcmp(f.kind, kind) == 0 && f.rank == c->rank && group >= f.group;
}

static void release(communicator *c)
{
    if (atomic_fetch_sub(&c->refs, 1) == 1) {
        munmap(c->all, c->bytes);
        free(c);
    }
}

/* ---- a group ---- */

typedef struct op {
    bool sends, over;
    int peer;
    char *data; /* as commands see it */
    size_t bytes, done;
} op;

typedef struct group {
    communicator *comm;
    int number, n;
    op op[];
} group;

/* Moves what can be moved now. */
static bool move(const communicator *c, op *o)
{
    const int from = o->sends ? c->rank : o->peer, to = o->sends ? o->peer : c->rank;
    mailbox *box = &c->all->box[from * c->n + to];
    const uint64_t written = atomic_load(&box->written), read = atomic_load(&box->read);
    if (o->sends == (written > read)) {
        return false;
    }
    if (o->sends) {
        box->bytes = o->bytes - o->done < CHUNK ? o->bytes - o->done : CHUNK;
        memcpy(box->data, o->data + o->done, box->bytes);
        o->done += box->bytes;
        atomic_store(&box->written, written + 1);
    } else {
        if (box->bytes > o->bytes - o->done) {
            abort(); /* the two sides of a pair are not the same */
        }
        memcpy(o->data + o->done, box->data, box->bytes);
        o->done += box->bytes;
        atomic_store(&box->read, read + 1);
    }
    o->over = o->done == o->bytes;
    return true;
}

/* One time around. An operation waits for those before it between the same two ranks. */
static bool move_all(group *g, bool *moved)
{
    bool over = true, busy[2][MAX_RANKS] = {{false}};
    *moved = false;
    for (int i = 0; i < g->n; i++) {
        op *o = &g->op[i];
        if (!o->over && !busy[o->sends][o->peer]) {
            *moved = move(g->comm, o) || *moved;
        }
        busy[o->sends][o->peer] = busy[o->sends][o->peer] || !o->over;
        over = over && o->over;
    }
    return over;
}

static lvn_status run_group(void *payload)
{
    group *g = *(group **)payload;
    communicator *c = g->comm;
    bool over = false, moved;
    while (!over && !atomic_load(&c->aborted)) {
        if (has_fault(c, "async", g->number)) {
            atomic_store(&c->error, SYSTEM_ERROR);
        }
        over = !has_fault(c, "hang", g->number) && !has_fault(c, "async", g->number) &&
               move_all(g, &moved);
        if (!over) {
            (void)sched_yield();
        }
    }
    free(g);
    release(c);
    return LVN_OK;
}

static _Thread_local struct {
    int depth, n;
    communicator *comm;
    lvni_sim_native *stream;
    op op[MAX_OPS];
} pending;

EXPORT int ncclGroupStart(void);
EXPORT int ncclGroupStart(void)
{
    pending.depth++;
    pending.n = 0;
    pending.stream = NULL;
    return LVNI_NCCL_SUCCESS;
}

EXPORT int ncclGroupEnd(void);
EXPORT int ncclGroupEnd(void)
{
    pending.depth--;
    if (pending.n == 0) {
        return LVNI_NCCL_SUCCESS;
    }
    const size_t bytes = (size_t)pending.n * sizeof pending.op[0];
    group *g = malloc(sizeof *g + bytes);
    if (g == NULL) {
        abort();
    }
    g->comm = pending.comm;
    g->n = pending.n;
    const int number = atomic_fetch_add(&g->comm->groups, 1);
    g->number = number;
    memcpy(g->op, pending.op, bytes);
    atomic_fetch_add(&g->comm->refs, 1);
    const lvni_sim_native *s = pending.stream;
    if (s->submit(s->stream, "the stand-in for NCCL", run_group, &g, sizeof g) != LVN_OK) {
        abort();
    }
    return number % 2 == 0 ? LVNI_NCCL_IN_PROGRESS : LVNI_NCCL_SUCCESS;
}

static int add(bool sends, const void *data, size_t n, int type, int peer, void *comm, void *stream)
{
    communicator *c = comm;
    pending.stream = stream;
    pending.comm = c;
    if (pending.depth != 1 || pending.n == MAX_OPS || type != LVNI_NCCL_FLOAT32 || !c->started ||
        peer < 0 || peer >= c->n) {
        return LVNI_NCCL_INVALID_ARGUMENT;
    }
    pending.op[pending.n++] = (op){.sends = sends,
                                   .peer = peer,
                                   .data = pending.stream->alias(data),
                                   .bytes = n * sizeof(float)};
    return LVNI_NCCL_SUCCESS;
}

EXPORT int ncclSend(const void *data, size_t n, int type, int peer, void *comm, void *stream);
EXPORT int ncclSend(const void *data, size_t n, int type, int peer, void *comm, void *stream)
{
    return add(true, data, n, type, peer, comm, stream);
}

EXPORT int ncclRecv(void *data, size_t n, int type, int peer, void *comm, void *stream);
EXPORT int ncclRecv(void *data, size_t n, int type, int peer, void *comm, void *stream)
{
    return add(false, data, n, type, peer, comm, stream);
}

/* ---- communicators ---- */

EXPORT void levin_nccl_on_sim(void *stream);
EXPORT void levin_nccl_on_sim(void *stream)
{
    char host[64] = "";
    int hash = 0;
    (void)gethostname(host, sizeof host - 1);
    for (const char *p = host; *p != '\0'; p++) {
        hash = (hash * 31 + *p) % 65521;
    }
    device = hash * 256 + ((const lvni_sim_native *)stream)->device;
}

EXPORT int ncclGetVersion(int *version);
EXPORT int ncclGetVersion(int *version)
{
    *version = LVNI_NCCL_CONFIG_VERSION;
    return LVNI_NCCL_SUCCESS;
}

EXPORT int ncclGetUniqueId(lvni_nccl_id *id);
EXPORT int ncclGetUniqueId(lvni_nccl_id *id)
{
    static _Atomic int count;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/levin-nccl-on-sim-%d-%d", (int)getpid(),
             atomic_fetch_add(&count, 1));
    return LVNI_NCCL_SUCCESS;
}

EXPORT int ncclCommInitRankConfig(void **comm, int n, lvni_nccl_id id, int rank,
                                  lvni_nccl_config *config);
EXPORT int ncclCommInitRankConfig(void **comm, int n, lvni_nccl_id id, int rank,
                                  lvni_nccl_config *config)
{
    communicator *c = calloc(1, sizeof *c);
    if (c == NULL || n > MAX_RANKS || device < 0 || config->magic != LVNI_NCCL_CONFIG_MAGIC ||
        config->blocking != 0) {
        free(c);
        return LVNI_NCCL_INVALID_ARGUMENT;
    }
    c->bytes = sizeof *c->all + (size_t)n * (size_t)n * sizeof c->all->box[0];
    const int fd = shm_open(id.internal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *all = fd >= 0 && ftruncate(fd, (off_t)c->bytes) == 0
                    ? mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                    : MAP_FAILED;
    if (fd >= 0) {
        close(fd);
    }
    if (all == MAP_FAILED) {
        free(c);
        return SYSTEM_ERROR;
    }
    c->all = all;
    memcpy(c->name, id.internal, sizeof c->name);
    c->rank = rank;
    c->n = n;
    atomic_store(&c->refs, 1);
    atomic_store(&c->all->device[rank], device);
    if (!has_fault(c, "init", 1 << 30) && atomic_fetch_add(&c->all->attached, 1) == n - 1) {
        shm_unlink(id.internal);
    }
    *comm = c;
    return LVNI_NCCL_IN_PROGRESS;
}

static int start(communicator *c)
{
    if (atomic_load(&c->all->attached) < c->n) {
        return LVNI_NCCL_IN_PROGRESS;
    }
    for (int r = 0; r < c->n; r++) {
        if (r != c->rank && atomic_load(&c->all->device[r]) == device) {
            return LVNI_NCCL_INVALID_USAGE;
        }
    }
    c->started = true;
    return LVNI_NCCL_SUCCESS;
}

EXPORT int ncclCommGetAsyncError(void *comm, int *result);
EXPORT int ncclCommGetAsyncError(void *comm, int *result)
{
    communicator *c = comm;
    const int gone = atomic_load(&c->all->gone);
    *result = atomic_load(&c->error);
    if (*result == LVNI_NCCL_SUCCESS && !c->started) {
        *result = start(c); /* all ranks find the same, also when one has left by then */
    }
    if ((*result == LVNI_NCCL_SUCCESS || *result == LVNI_NCCL_IN_PROGRESS) && gone != 0 &&
        gone != 1 + c->rank) {
        *result = LVNI_NCCL_REMOTE_ERROR;
    }
    return LVNI_NCCL_SUCCESS;
}

EXPORT int ncclCommFinalize(void *comm);
EXPORT int ncclCommFinalize(void *comm)
{
    (void)comm; /* groups run in the order of the stream, and it is at rest */
    return LVNI_NCCL_IN_PROGRESS;
}

EXPORT int ncclCommDestroy(void *comm);
EXPORT int ncclCommDestroy(void *comm)
{
    release(comm);
    return LVNI_NCCL_SUCCESS;
}

EXPORT int ncclCommAbort(void *comm);
EXPORT int ncclCommAbort(void *comm)
{
    communicator *c = comm;
    (void)shm_unlink(c->name); /* not all came */
    atomic_store(&c->aborted, true);
    atomic_store(&c->all->gone, 1 + c->rank);
    release(c);
    return LVNI_NCCL_SUCCESS;
}

EXPORT const char *ncclGetErrorString(int result);
EXPORT const char *ncclGetErrorString(int result)
{
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
    return result >= 0 && result <= LVNI_NCCL_IN_PROGRESS ? text[result] : "unknown result code";
}
