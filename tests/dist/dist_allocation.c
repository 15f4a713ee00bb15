/* What ranks do when one of them has no memory: all calls that allocate, and the pages of regions
 * that not all ranks could open. */
#include "dist_cases.h"

#include "core/alloc.h"
#include "dist/group_exchange.h"
#include "dist/reduction.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void sums_of_nothing(const float *g, int64_t n, double *partial)
{
    (void)g, (void)n, (void)partial;
}

static const lvni_dist_reduction_options small = {.micro_batches = 64,
                                                  .sets = 1,
                                                  .n = 9000,
                                                  .n_norm = 9000,
                                                  .bucket = 4096,
                                                  .message = 8,
                                                  .sumsq = sums_of_nothing};

lvn_status dist_allocate(lvni_dist_comm *comm)
{
    lvni_dist_reduction *r = NULL;
    lvni_dist_group_exchange *exchange = NULL;
    const lvni_dist_group_message *message;
    void *block = NULL, *gathered = NULL;
    size_t size[64];
    lvn_status status = lvni_dist_comm_alloc(comm, 1000, &block);
    if (status == LVN_OK) {
        status = lvni_dist_reduction_create(comm, &small, &r);
    }
    if (status == LVN_OK) {
        status = lvni_dist_comm_all_gather_sized(comm, "1234", 4, &gathered, size);
    }
    if (status == LVN_OK) {
        status = lvni_dist_group_exchange_create(comm, 0, lvni_dist_comm_world(comm), &exchange);
    }
    if (status == LVN_OK) {
        status = lvni_dist_group_exchange_run(exchange, 0, lvni_dist_comm_world(comm), "1234", 4,
                                              &message);
    }
    if (status == LVN_OK) {
        /* where a rank that has failed by itself is missed */
        status = lvni_dist_comm_barrier(comm);
    }
    lvni_dist_group_exchange_destroy(exchange);
    lvni_core_free(gathered);
    lvni_dist_reduction_destroy(r);
    return status;
}

/* 512-byte blocks of the memory that the ranks share. */
static int64_t shared_blocks(void)
{
    int64_t blocks = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        char target[64] = "";
        struct stat st;
        if (readlinkat(dirfd(dir), e->d_name, target, sizeof target - 1) > 0 &&
            strstr(target, "memfd:levin") != NULL && fstatat(dirfd(dir), e->d_name, &st, 0) == 0) {
            blocks += (int64_t)st.st_blocks;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return blocks;
}

/* A region of each kind, and gone again. */
static lvn_status open_regions(lvni_dist_comm *comm)
{
    void *block = NULL;
    lvni_dist_reduction *r = NULL;
    lvni_dist_group_exchange *exchange = NULL;
    lvn_status status = lvni_dist_comm_alloc(comm, (size_t)1 << 20, &block);
    if (status == LVN_OK) {
        status = lvni_dist_reduction_create(comm, &small, &r);
    }
    if (status == LVN_OK) {
        status = lvni_dist_group_exchange_create(comm, 0, lvni_dist_comm_world(comm), &exchange);
    }
    lvni_dist_group_exchange_destroy(exchange);
    lvni_dist_reduction_destroy(r);
    return lvni_dist_comm_free(comm, block) == LVN_OK ? status : LVN_ERR_INTERNAL;
}

bool dist_case_regions_refused(dist_rank *me)
{
    const int last = me->world - 1;
    int64_t left = 0, k = 0;
    while (left == 0) {
        k++;
        RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "before allocation %d", (int)k);
        const int64_t before = shared_blocks();
        if (me->rank == last) {
            lvni_core_alloc_fail_at(k);
        }
        RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "allocation %d fails", (int)k);
        const lvn_status status = open_regions(me->comm);
        RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "after allocation %d", (int)k);
        if (me->rank == last) {
            left = lvni_core_alloc_fail_at(0);
        }
        RANK_CHECK(me, lvni_dist_comm_broadcast(me->comm, &left, sizeof left, last) == LVN_OK,
                   "allocation %d", (int)k);
        RANK_CHECK(me, status == (left > 0 ? LVN_OK : LVN_ERR_MEMORY), "allocation %d: status %d",
                   (int)k, (int)status);
        RANK_CHECK(me, shared_blocks() == before, "allocation %d: %lld blocks of 512 bytes more",
                   (int)k, (long long)(shared_blocks() - before));
    }
    RANK_CHECK(me, k > 5, "%d allocations", (int)k);
    return true;
}
