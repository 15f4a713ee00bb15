/* Creation and end of the ranks of one node, and the regions they share. For threads one segment
 * object is made here and held by all. For processes rank 0 makes the segment and sends the others,
 * through the caller's exchange, where it can be opened: /proc/PID/fd/N. */
#include "core/alloc.h"
#include "core/error.h"
#include "dist/shm/shm_impl.h"
#include "tensor/ctx.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static size_t stages_at(int world)
{
    return round_up(sizeof(lvni_shm_control) + (size_t)world * sizeof(lvni_shm_slot),
                    LVNI_SHM_PAGE);
}

static size_t control_bytes(int world)
{
    return stages_at(world) + (size_t)world * 2 * LVNI_SHM_STAGE;
}

/* ---- regions ---- */

/* A region in the segment: a page that counts the ranks that are done with it, the common part, the
 * parts. */
typedef struct region_head {
    _Atomic int32_t closed;
} region_head;

typedef struct region_handle {
    uint64_t offset;
    size_t bytes;
    char *base;
} region_handle;

static lvn_status region_open(lvni_dist_comm *comm, size_t common, size_t part,
                              lvni_dist_region *out)
{
    lvni_shm_comm *c = (lvni_shm_comm *)comm;
    const size_t most = (size_t)1 << 46,
                 stride = part < most ? round_up(part, LVNI_SHM_PAGE) : most, head = LVNI_SHM_PAGE;
    const size_t first = common < most ? head + round_up(common, LVNI_SHM_PAGE) : most;
    if (stride >= most / (size_t)comm->world || first >= most) {
        LVN_FAIL(LVN_ERR_MEMORY, "cannot share %zu bytes per rank", part > common ? part : common);
    }
    region_handle *h = LVNI_NEW(LVNI_TAG_DIST, region_handle);
    const uint64_t offset = c->next_region;
    const size_t bytes = first + stride * (size_t)comm->world;
    c->next_region += bytes; /* also when this rank fails: the others' next region lies there */
    if (h == NULL) {
        return LVN_ERR_MEMORY;
    }
    *h = (region_handle){.offset = offset, .bytes = bytes};
    lvn_status status = lvni_shm_segment_reserve(c->segment, offset, head);
    if (status == LVN_OK) {
        status = lvni_shm_segment_map(c->segment, offset, bytes, &h->base);
    }
    if (status != LVN_OK) {
        /* no rank will use this region; those who have it discard the rest */
        lvni_shm_segment_give_back(c->segment, offset, head);
        lvni_core_free(h);
        return status;
    }
    *out = (lvni_dist_region){
        .common = h->base + head, .part = h->base + first, .stride = stride, .handle = h};
    return LVN_OK;
}

static lvn_status region_reserve(lvni_dist_comm *comm, const lvni_dist_region *region,
                                 const void *from, size_t bytes)
{
    const region_handle *h = region->handle;
    return lvni_shm_segment_reserve(((lvni_shm_comm *)comm)->segment,
                                    h->offset + (uint64_t)((const char *)from - h->base), bytes);
}

static void region_close(lvni_dist_comm *comm, lvni_dist_region *region)
{
    lvni_shm_comm *c = (lvni_shm_comm *)comm;
    region_handle *h = region->handle;
    region_head *head = (region_head *)(void *)h->base;
    if (atomic_fetch_add(&head->closed, 1) + 1 == c->base.world) {
        /* no rank reads the head any more */
        lvni_shm_segment_give_back(c->segment, h->offset, h->bytes);
    }
    lvni_shm_segment_unmap(c->segment, h->base);
    lvni_core_free(h);
}

/* The head stays out of it: ranks without the region do not count, and writing there would bring
 * its page back. Every rank gives all back, which does no harm twice. */
static void region_discard(lvni_dist_comm *comm, lvni_dist_region *region)
{
    lvni_shm_comm *c = (lvni_shm_comm *)comm;
    region_handle *h = region->handle;
    lvni_shm_segment_give_back(c->segment, h->offset, h->bytes);
    lvni_shm_segment_unmap(c->segment, h->base);
    lvni_core_free(h);
}

/* ---- the end ---- */

static void destroy(lvni_dist_comm *comm)
{
    lvni_shm_comm *c = (lvni_shm_comm *)comm;
    if (c->control != NULL) {
        atomic_store(&c->control->slot[comm->rank].left, 1);
        lvni_shm_ring(comm);
        lvni_shm_segment_unmap(c->segment, (char *)c->control);
    }
    for (int rank = 0; c->pidfd != NULL && rank < comm->world; rank++) {
        if (c->pidfd[rank] >= 0) {
            close(c->pidfd[rank]);
        }
    }
    lvni_shm_segment_drop(c->segment);
    lvni_dist_sum_plan_free(&c->plan);
    lvni_core_free(c->source);
    lvni_core_free(c->pidfd);
    lvni_core_free(c);
}

/* Every rank reads the others' memory; of a device it reads a copy. */
static int score(lvni_dist_call_kind call, lvni_dist_memory memory, size_t bytes)
{
    (void)call, (void)bytes;
    return memory == LVNI_DIST_MEMORY_HOST ? 80 : 40;
}

/* Of threads and of processes: they differ in how the segment comes to be, and in how a dead rank
 * is known. */
const lvni_dist_transport lvni_dist_transport_shm = {
    .name = "shm",
    .does = "share memory",
    .max_ranks = LVNI_SHM_MAX_RANKS,
    .score = score,
    .connect = lvni_dist_comm_shm,
    .abilities = LVNI_DIST_SHARED_MEMORY,
    .destroy = destroy,
    .abort = lvni_shm_abort,
    .first_failed = lvni_shm_first_failed,
    .health = lvni_shm_health,
    .agree = lvni_shm_agree,
    .barrier = lvni_shm_barrier,
    .all_reduce = lvni_shm_all_reduce,
    .all_gather = lvni_shm_all_gather,
    .broadcast = lvni_shm_broadcast,
    .region_open = region_open,
    .region_reserve = region_reserve,
    .region_close = region_close,
    .region_discard = region_discard,
    .reduction_create = lvni_dist_shared_create,
    .exchange_create = lvni_dist_shared_exchange_create,
    .wait = lvni_shm_wait,
    .ring = lvni_shm_ring,
    .claim = lvni_shm_claim,
};

/* ---- the beginning ---- */

/* All that a rank has for itself; the segment comes later. */
static lvn_status make_private(int rank, int world, bool check, bool processes, lvni_shm_comm **out)
{
    lvni_shm_comm *c = LVNI_NEW(LVNI_TAG_DIST, lvni_shm_comm);
    *out = c;
    if (c == NULL) {
        return LVN_ERR_MEMORY;
    }
    c->base = (lvni_dist_comm){
        .ops = &lvni_dist_transport_shm, .rank = rank, .world = world, .check = check};
    c->round = 1;
    c->next_region = round_up(control_bytes(world), LVNI_SHM_PAGE);
    c->source = lvni_core_calloc(LVNI_TAG_DIST, (size_t)world, sizeof *c->source);
    lvni_plan_tree_node *leaf = lvni_core_calloc(LVNI_TAG_DIST, (size_t)world, sizeof *leaf);
    lvn_status status;
    LVNI_TRY_DONE(status, c->source == NULL || leaf == NULL
                              ? LVN_ERR_MEMORY
                              : lvni_dist_sum_plan_init(&c->plan, world));
    for (int r = 0; r < world; r++) {
        leaf[r] = (lvni_plan_tree_node){r, r + 1, r};
    }
    lvni_dist_sum_plan_make(&c->plan, world, leaf, world);
    if (processes) {
        c->pidfd = lvni_core_calloc(LVNI_TAG_DIST, (size_t)world, sizeof *c->pidfd);
        for (int r = 0; c->pidfd != NULL && r < world; r++) {
            c->pidfd[r] = -1;
        }
        status = c->pidfd != NULL ? LVN_OK : LVN_ERR_MEMORY;
    }
done:
    lvni_core_free(leaf);
    return status;
}

/* This rank's place in the segment. */
static lvn_status attach(lvni_shm_comm *c, lvni_shm_segment *segment)
{
    char *base;
    const int world = c->base.world, rank = c->base.rank;
    c->segment = segment;
    LVN_TRY(lvni_shm_segment_map(segment, 0, control_bytes(world), &base));
    c->control = (lvni_shm_control *)(void *)base;
    c->stage = base + stages_at(world);
    LVN_TRY(lvni_shm_segment_reserve(segment, stages_at(world) + (size_t)rank * 2 * LVNI_SHM_STAGE,
                                     (size_t)2 * LVNI_SHM_STAGE));
    lvni_shm_slot *slot = &c->control->slot[rank];
    slot->pid = (int32_t)getpid();
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
        for (size_t core = 0; core < (size_t)64 * LVNI_SHM_CORE_WORDS; core++) {
            slot->core[core / 64] |= CPU_ISSET(core, &cores) ? (uint64_t)1 << core % 64 : 0;
        }
    }
    return LVN_OK;
}

/* Has every rank a core? If not, waiting must not keep away the rank that is waited for. */
static void count_cores(lvni_shm_comm *c)
{
    int cores = 0;
    for (int word = 0; word < LVNI_SHM_CORE_WORDS; word++) {
        uint64_t any = 0;
        for (int rank = 0; rank < c->base.world; rank++) {
            any |= c->control->slot[rank].core[word];
        }
        cores += __builtin_popcountll(any);
    }
    c->own_core = cores >= c->base.world;
}

static lvn_status check_world(int world)
{
    if (world < 1 || world > LVNI_SHM_MAX_RANKS) {
        LVN_FAIL(LVN_ERR_USAGE, "%d ranks on one node: 1 to %d can share its memory", world,
                 LVNI_SHM_MAX_RANKS);
    }
    return LVN_OK;
}

lvn_status lvni_dist_comm_threads(int world, bool check, lvni_dist_comm **comm)
{
    lvni_shm_segment *segment;
    LVN_TRY(check_world(world));
    memset(comm, 0, (size_t)world * sizeof(lvni_dist_comm *));
    LVN_TRY(lvni_shm_segment_create(stages_at(world), &segment));
    lvn_status status = LVN_OK;
    for (int rank = 0; rank < world && status == LVN_OK; rank++) {
        lvni_shm_comm *c;
        status = make_private(rank, world, check, false, &c);
        if (c == NULL) {
            break;
        }
        comm[rank] = &c->base;
        if (status == LVN_OK) {
            lvni_shm_segment_hold(segment);
            status = attach(c, segment);
        }
    }
    lvni_shm_segment_drop(segment); /* the creator's own hold: each rank has one */
    for (int rank = 0; rank < world; rank++) {
        if (status == LVN_OK) {
            count_cores((lvni_shm_comm *)comm[rank]);
        } else {
            lvni_dist_comm_destroy(comm[rank]);
            comm[rank] = NULL;
        }
    }
    return status;
}

/* What the processes exchange while the communicator is created. */
typedef struct card {
    int32_t status;  /* of what it has done so far */
    int32_t pid, fd; /* fd: of rank 0 */
    unsigned char token[16];
} card;

static lvn_status exchange_cards(const lvni_dist_comm_options *o, const card *mine, card *all)
{
    LVN_TRY(o->exchange(o->user, mine, sizeof *mine, all));
    LVN_TRY((lvn_status)mine->status);
    for (int rank = 0; rank < o->world; rank++) {
        if (all[rank].status != LVN_OK) {
            const lvn_status theirs = (lvn_status)all[rank].status;
            LVN_FAIL(theirs, "rank %d cannot share memory with the others: %s", rank,
                     lvn_status_text(theirs));
        }
    }
    return LVN_OK;
}

static lvn_status create_segment(lvni_shm_comm *c, card *mine)
{
    lvni_shm_segment *segment;
    if (getrandom(mine->token, sizeof mine->token, 0) != (ssize_t)sizeof mine->token) {
        LVN_FAIL(LVN_ERR_IO, "the system gives no random bytes: %s", strerror(errno));
    }
    LVN_TRY(lvni_shm_segment_create(stages_at(c->base.world), &segment));
    LVN_TRY(attach(c, segment));
    memcpy(c->control->token, mine->token, sizeof mine->token);
    c->control->world = c->base.world;
    mine->fd = lvni_shm_segment_fd(segment);
    return LVN_OK;
}

/* Rank 0's segment, and not whatever else may have that number by now or on another node. */
static lvn_status open_segment(lvni_shm_comm *c, const card *first)
{
    char path[64];
    lvni_shm_segment *segment;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)first->pid, (int)first->fd);
    LVN_TRY(lvni_shm_segment_open(path, &segment));
    if (lvni_shm_segment_holds(segment, first->token, sizeof first->token)) {
        return attach(c, segment);
    }
    lvni_shm_segment_drop(segment);
    LVN_FAIL(LVN_ERR_PEER, "%s is not the memory of rank 0: start all ranks on one node", path);
}

static lvn_status watch_others(lvni_shm_comm *c, const card *all)
{
    for (int rank = 0; rank < c->base.world; rank++) {
        if (rank == c->base.rank) {
            continue;
        }
        c->pidfd[rank] = (int)syscall(SYS_pidfd_open, (pid_t)all[rank].pid, 0); /* closed by exec */
        if (c->pidfd[rank] < 0 && errno == ESRCH) {
            LVN_FAIL(LVN_ERR_PEER, "rank %d died (process %d)", rank, (int)all[rank].pid);
        }
    }
    return LVN_OK;
}

lvn_status lvni_dist_comm_shm(const lvni_dist_comm_options *o, lvni_dist_comm **out)
{
    *out = NULL;
    LVN_TRY(check_world(o->world));
    LVN_ARG(o->rank >= 0 && o->rank < o->world && o->exchange != NULL,
            "rank %d of %d, with%s an exchange", o->rank, o->world,
            o->exchange != NULL ? "" : "out");
    for (int rank = 0; o->host != NULL && rank < o->world; rank++) {
        LVN_ARG(o->host[rank] == o->host[0], "ranks 0 and %d are on two hosts: no memory is shared",
                rank);
    }
    card mine = {.pid = (int32_t)getpid(), .fd = -1};
    card *all = lvni_core_calloc(LVNI_TAG_DIST, (size_t)o->world, sizeof *all);
    if (all == NULL) {
        return LVN_ERR_MEMORY; /* the others learn of it when this process ends, as of any end */
    }
    lvni_shm_comm *c;
    lvn_status status = make_private(o->rank, o->world, o->check, true, &c);
    if (status == LVN_OK) {
        c->base.number = o->number;
        status = o->rank == 0 ? create_segment(c, &mine) : LVN_OK;
    }
    mine.status = (int32_t)status;
    status = exchange_cards(o, &mine, all);
    if (status == LVN_OK) {
        mine.status = (int32_t)(o->rank == 0 ? LVN_OK : open_segment(c, &all[0]));
        if (mine.status == LVN_OK) {
            mine.status = (int32_t)watch_others(c, all);
        }
        status = exchange_cards(o, &mine, all);
    }
    lvni_core_free(all);
    *out = c != NULL ? &c->base : NULL;
    if (status == LVN_OK) {
        count_cores(c);
    } else {
        lvni_dist_comm_destroy(*out);
        *out = NULL;
    }
    return status;
}
