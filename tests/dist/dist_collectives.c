/* Conformance of the collectives: results compared byte for byte with a plain recursive sum. */
#include "dist_cases.h"
#include "dist_numbers.h"

#include "core/alloc.h"
#include "support/sanitized.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const lvn_dtype types[] = {LVN_F32, LVN_F64, LVN_I64, LVN_I32, LVN_U8, LVN_BF16, LVN_F16};
enum { N_TYPES = sizeof types / sizeof *types };

/* Is part `part` (of n elements) of the reduction in `got`? Every element of short runs, some of
 * long ones. */
static bool reduced(dist_rank *me, const void *got, int64_t first, int64_t n, lvn_dtype dtype,
                    lvni_dist_reduce how, int salt)
{
    const size_t size = lvn_dtype_size(dtype);
    const int64_t stride = n > (SANITIZED ? 500 : 3000) ? 37 : 1;
    for (int64_t i = 0; i < n; i += i + stride < n || i == n - 1 ? stride : n - 1 - i) {
        unsigned char want[8];
        dist_expect(want, dtype, how, me->world, first + i, salt);
        RANK_CHECK(me, memcmp((const char *)got + (size_t)i * size, want, size) == 0,
                   "%s %d, element %lld of %lld", lvn_dtype_name(dtype), (int)how, (long long)i,
                   (long long)n);
    }
    return true;
}

static bool reduce_one(dist_rank *me, int64_t n, lvn_dtype dtype, lvni_dist_reduce how, bool shared,
                       bool in_place)
{
    const size_t bytes = (size_t)n * lvn_dtype_size(dtype);
    const int salt = (int)n + (int)dtype * 7 + (int)how;
    void *in = NULL, *out = NULL;
    if (shared) {
        RANK_CHECK(me,
                   lvni_dist_comm_alloc(me->comm, bytes, &in) == LVN_OK &&
                       lvni_dist_comm_alloc(me->comm, bytes, &out) == LVN_OK,
                   "alloc");
    } else {
        in = dist_take(me, bytes);
        out = dist_take(me, bytes);
    }
    dist_fill(in, dtype, me->rank, n, salt);
    void *to = in_place ? in : out;
    RANK_CHECK(me, lvni_dist_comm_all_reduce(me->comm, in, to, n, dtype, how) == LVN_OK,
               "all-reduce of %lld %s", (long long)n, lvn_dtype_name(dtype));
    if (!reduced(me, to, 0, n, dtype, how, salt)) {
        return false;
    }
    if (shared) {
        RANK_CHECK(me,
                   lvni_dist_comm_free(me->comm, in) == LVN_OK &&
                       lvni_dist_comm_free(me->comm, out) == LVN_OK,
                   "free");
    }
    dist_give_back(me);
    return true;
}

bool dist_case_reduce(dist_rank *me)
{
    static const int64_t sizes[] = {0, 1, 3, 17, 1000, 4097, 70001};
    for (int t = 0; t < N_TYPES; t++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const bool all_ways = types[t] == LVN_F32 || sizes[s] == 4097;
            if (SANITIZED && sizes[s] > 1000 && types[t] != LVN_F32 && types[t] != LVN_F16) {
                continue;
            }
            for (int how = 0; how < 3; how++) {
                if ((how == 0 || sizes[s] <= 1000) &&
                    !(reduce_one(me, sizes[s], types[t], (lvni_dist_reduce)how, false,
                                 (s & 1) != 0) &&
                      (!all_ways ||
                       (reduce_one(me, sizes[s], types[t], (lvni_dist_reduce)how, true, true) &&
                        reduce_one(me, sizes[s], types[t], (lvni_dist_reduce)how, true, false))))) {
                    return false;
                }
            }
        }
    }
    RANK_CHECK(me,
               lvni_dist_comm_all_reduce(me->comm, NULL, NULL, 1, LVN_BOOL, LVNI_REDUCE_SUM) ==
                   LVN_ERR_DTYPE,
               "bool");
    RANK_CHECK(me,
               lvni_dist_comm_all_reduce(me->comm, NULL, NULL, -1, LVN_F32, LVNI_REDUCE_SUM) ==
                   LVN_ERR_INVALID,
               "-1 elements");
    return true;
}

/* Random bytes again and again, from another place for each rank: a prime number of them, so that
 * no part of a message looks like the next one. Copied and compared in runs, which sanitizers see
 * as one access each. */
enum { PERIOD = 32749 };
static unsigned char pattern[PERIOD];
static pthread_once_t pattern_made = PTHREAD_ONCE_INIT;

static void make_pattern(void)
{
    for (int i = 0; i < PERIOD; i++) {
        pattern[i] = (unsigned char)dist_bits(0, i, 0);
    }
}

/* The place in the pattern of byte i, and in *run how many bytes follow there, n at most. */
static const unsigned char *bytes_of(int rank, size_t i, int salt, size_t n, size_t *run)
{
    (void)pthread_once(&pattern_made, make_pattern);
    const size_t at = (i + (size_t)rank * 6007 + (size_t)salt * 10111) % PERIOD;
    *run = n < PERIOD - at ? n : PERIOD - at;
    return pattern + at;
}

static void fill_bytes(unsigned char *p, int rank, size_t n, int salt)
{
    for (size_t i = 0, run; i < n; i += run) {
        const unsigned char *bytes = bytes_of(rank, i, salt, n - i, &run);
        memcpy(p + i, bytes, run);
    }
}

static bool bytes_are(const unsigned char *p, int rank, size_t from, size_t n, int salt)
{
    for (size_t i = 0, run; i < n; i += run) {
        const unsigned char *bytes = bytes_of(rank, from + i, salt, n - i, &run);
        if (memcmp(p + i, bytes, run) != 0) {
            return false;
        }
    }
    return true;
}

static bool move_one(dist_rank *me, size_t n, bool shared, int salt)
{
    const size_t world = (size_t)me->world, rank = (size_t)me->rank;
    unsigned char *in = dist_take(me, n * world), *out = dist_take(me, n * world);
    void *block = NULL;
    if (shared) {
        RANK_CHECK(me, lvni_dist_comm_alloc(me->comm, n * world, &block) == LVN_OK, "alloc");
    }
    unsigned char *all = shared ? block : out;
    fill_bytes(all + rank * n, me->rank, n, salt);
    RANK_CHECK(me, lvni_dist_comm_all_gather(me->comm, all + rank * n, n, all) == LVN_OK,
               "all-gather in place");
    for (size_t r = 0; r < world; r++) {
        RANK_CHECK(me, bytes_are(all + r * n, (int)r, 0, n, salt),
                   "all-gather of %zu bytes, those of rank %zu", n, r);
    }
    const int root = (int)(n % world);
    fill_bytes(in, me->rank, n, salt + 2);
    RANK_CHECK(me, lvni_dist_comm_broadcast(me->comm, in, n, root) == LVN_OK, "broadcast");
    RANK_CHECK(me, bytes_are(in, root, 0, n, salt + 2), "broadcast of %zu bytes", n);
    RANK_CHECK(me, lvni_dist_comm_free(me->comm, block) == LVN_OK, "free");
    dist_give_back(me);
    return true;
}

static bool gather_sized(dist_rank *me, size_t unit, int salt)
{
    unsigned char *in = dist_take(me, unit * (size_t)me->world);
    size_t size[64];
    void *got = NULL;
    const size_t mine = unit * (size_t)(me->rank % 3);
    fill_bytes(in, me->rank, mine, salt);
    RANK_CHECK(me, lvni_dist_comm_all_gather_sized(me->comm, in, mine, &got, size) == LVN_OK,
               "sized all-gather");
    const unsigned char *at = got;
    for (int r = 0; r < me->world; r++) {
        RANK_CHECK(me, size[r] == unit * (size_t)(r % 3), "size of rank %d: %zu", r, size[r]);
        RANK_CHECK(me, bytes_are(at, r, 0, size[r], salt), "bytes of rank %d", r);
        at += size[r];
    }
    lvni_core_free(got);
    dist_give_back(me);
    return true;
}

bool dist_case_move(dist_rank *me)
{
    static const size_t sizes[] = {0, 1, 8, 65, 4096, 70001, SANITIZED ? 270001 : 600001};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        if (!move_one(me, sizes[s], false, (int)s) || !move_one(me, sizes[s], true, (int)s) ||
            !gather_sized(me, sizes[s], (int)s)) {
            return false;
        }
        RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "barrier");
    }
    RANK_CHECK(me, lvni_dist_comm_broadcast(me->comm, NULL, 8, me->world) == LVN_ERR_INVALID,
               "no such root");
    RANK_CHECK(me, lvni_dist_comm_broadcast(me->comm, NULL, 8, -1) == LVN_ERR_INVALID,
               "no such root");
    return true;
}

bool dist_case_memory(dist_rank *me)
{
    void *p = NULL, *q = NULL;
    RANK_CHECK(me,
               lvni_dist_comm_alloc(me->comm, (size_t)1 << 61, &p) == LVN_ERR_MEMORY && p == NULL,
               "more than there can be");
    RANK_CHECK(me,
               lvni_dist_comm_alloc(me->comm, (size_t)1 << 43, &p) == LVN_ERR_MEMORY && p == NULL,
               "more than there is");
    for (int round = 0; round < 20; round++) {
        const size_t n = 100000;
        RANK_CHECK(me,
                   lvni_dist_comm_alloc(me->comm, n, &p) == LVN_OK &&
                       lvni_dist_comm_alloc(me->comm, 0, &q) == LVN_OK,
                   "round %d", round);
        RANK_CHECK(me, (uintptr_t)p % 64 == 0 && (uintptr_t)q % 64 == 0, "alignment");
        const unsigned char *bytes = p;
        for (size_t i = 0; i < n; i++) {
            RANK_CHECK(me, bytes[i] == 0, "byte %zu of new memory", i);
        }
        memset(p, 0xff, n);
        RANK_CHECK(me,
                   lvni_dist_comm_free(me->comm, p) == LVN_OK &&
                       lvni_dist_comm_free(me->comm, q) == LVN_OK,
                   "free");
    }
    RANK_CHECK(me, lvni_dist_comm_free(me->comm, &q) == LVN_ERR_INVALID, "not ours");
    return true;
}

bool dist_case_count(dist_rank *me)
{
    const uint64_t others = (uint64_t)me->world - 1;
    enum { N = 1 << 18, SMALL_N = 100 }; /* floats */
    void *block;
    float small[SMALL_N] = {0};
    RANK_CHECK(me, lvni_dist_comm_alloc(me->comm, N * sizeof(float), &block) == LVN_OK, "alloc");
    lvni_dist_comm_bytes from = lvni_dist_comm_count(me->comm);
    RANK_CHECK(me,
               lvni_dist_comm_all_reduce(me->comm, block, block, N, LVN_F32, LVNI_REDUCE_SUM) ==
                   LVN_OK,
               "all-reduce");
    lvni_dist_comm_bytes to = lvni_dist_comm_count(me->comm);
    /* Its slice of the others' numbers, and their results outside of it: 2 (W-1)/W for equal
     * slices. */
    const double ring = 2.0 * (double)others / (double)me->world * N * 4.0,
                 received = (double)(to.received - from.received);
    RANK_CHECK(
        me, received >= ring - 64.0 * 4.0 * me->world && received <= ring + 64.0 * 4.0 * me->world,
        "received %.0f, a ring %.0f", received, ring);
    from = to;
    RANK_CHECK(me,
               lvni_dist_comm_all_reduce(me->comm, small, small, SMALL_N, LVN_F32,
                                         LVNI_REDUCE_SUM) == LVN_OK,
               "all-reduce");
    to = lvni_dist_comm_count(me->comm);
    RANK_CHECK(me, to.received - from.received == others * sizeof small, "received %llu",
               (unsigned long long)(to.received - from.received));
    /* what all read of shared memory is sent to each */
    const uint64_t sends = me->messages ? others : others > 0 ? 1 : 0;
    RANK_CHECK(me, to.sent - from.sent == sends * sizeof small, "sent %llu",
               (unsigned long long)(to.sent - from.sent));
    from = to;
    RANK_CHECK(me, lvni_dist_comm_broadcast(me->comm, small, sizeof small, 0) == LVN_OK,
               "broadcast");
    to = lvni_dist_comm_count(me->comm);
    RANK_CHECK(me, to.received - from.received == (me->rank == 0 ? 0 : sizeof small), "received");
    RANK_CHECK(me, to.sent - from.sent == (me->rank == 0 ? sends * sizeof small : 0), "sent");
    RANK_CHECK(me, lvni_dist_comm_free(me->comm, block) == LVN_OK, "free");
    return true;
}

bool dist_case_mismatch(dist_rank *me)
{
    float x[8] = {0};
    if (me->world == 1) {
        return true;
    }
    const bool odd = me->rank == me->world - 1;
    RANK_CHECK(me,
               lvni_dist_comm_all_reduce(me->comm, x, x, odd ? 8 : 4, LVN_F32, LVNI_REDUCE_SUM) ==
                   LVN_ERR_MISMATCH,
               "sizes");
    char want[256];
    snprintf(want, sizeof want,
             "rank 0 calls all-reduce (sum) of 4 f32, rank %d calls all-reduce (sum) of 8 f32",
             me->world - 1);
    RANK_CHECK(me, strcmp(lvn_last_error()->message, want) == 0, "%s", want);
    const lvn_status s =
        odd ? lvni_dist_comm_broadcast(me->comm, x, 12, 0) : lvni_dist_comm_barrier(me->comm);
    RANK_CHECK(me, s == LVN_ERR_MISMATCH, "calls");
    snprintf(want, sizeof want,
             "rank 0 calls barrier, rank %d calls broadcast of 12 bytes from rank 0",
             me->world - 1);
    RANK_CHECK(me, strcmp(lvn_last_error()->message, want) == 0, "%s", want);
    RANK_CHECK(me, lvni_dist_comm_all_reduce(me->comm, x, x, 8, LVN_F32, LVNI_REDUCE_MAX) == LVN_OK,
               "the same again");
    return true;
}

bool dist_case_claim(dist_rank *me)
{
    enum { CALLS = 3 };
    RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "all at once");
    float won = 0.0f;
    for (int i = 0; i < CALLS; i++) {
        won += lvni_dist_comm_claim(me->comm) ? 1.0f : 0.0f;
    }
    RANK_CHECK(
        me, lvni_dist_comm_all_reduce(me->comm, &won, &won, 1, LVN_F32, LVNI_REDUCE_SUM) == LVN_OK,
        "sum");
    RANK_CHECK(me, won == 1.0f, "%.0f of %d ranks", (double)won, me->world);
    return true;
}

static void *abort_soon(void *p)
{
    usleep(20000);
    lvni_dist_comm_abort(p, "the trainer of rank 0 found no data");
    lvni_dist_comm_abort(p, "something later");
    return NULL;
}

bool dist_case_abort(dist_rank *me)
{
    pthread_t thread;
    RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "barrier");
    if (me->rank == 0) {
        RANK_CHECK(me, pthread_create(&thread, NULL, abort_soon, me->comm) == 0, "thread");
        pthread_join(thread, NULL);
    }
    /* the others are in here when it happens */
    const lvn_status waited = lvni_dist_comm_barrier(me->comm);
    RANK_CHECK(me, waited == LVN_ERR_PEER, "%s", lvn_status_name(waited));
    RANK_CHECK(me, strcmp(lvn_last_error()->message, "the trainer of rank 0 found no data") == 0,
               "the first reason stays");
    float x = 0.0f;
    RANK_CHECK(me,
               lvni_dist_comm_all_reduce(me->comm, &x, &x, 1, LVN_F32, LVNI_REDUCE_SUM) ==
                   LVN_ERR_PEER,
               "and from then on");
    return true;
}

bool dist_case_abort_for(dist_rank *me)
{
    const int first = me->world - 1;
    RANK_CHECK(me, lvni_dist_comm_first_failed(me->comm) == -1, "no abort");
    RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "barrier");
    if (me->rank == 0) {
        usleep(20000); /* the others are in the next barrier */
        lvni_dist_comm_abort_for(me->comm, first, "that rank has no disk");
    }
    RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_ERR_PEER, "barrier");
    RANK_CHECK(me, strcmp(lvn_last_error()->message, "that rank has no disk") == 0, "the reason");
    RANK_CHECK(me, lvni_dist_comm_first_failed(me->comm) == first, "rank %d failed first", first);
    return true;
}

bool dist_case_agree(dist_rank *me)
{
    for (int failing = 0; failing < me->world; failing++) {
        const bool fails = me->rank == failing;
        const lvn_status s = lvni_dist_comm_agree_status(
            me->comm, fails ? lvn_error_set(LVN_ERR_IO, "", 1, "full disk") : LVN_OK, "a test");
        char want[96] = "full disk";
        if (!fails) {
            snprintf(want, sizeof want, "rank %d cannot do its part of a test: %s", failing,
                     lvn_status_text(LVN_ERR_IO));
        }
        RANK_CHECK(me, s == LVN_ERR_IO && strcmp(lvn_last_error()->message, want) == 0, "%s", want);
    }
    RANK_CHECK(me, lvni_dist_comm_agree_status(me->comm, LVN_OK, "a test") == LVN_OK, "all can");
    uint64_t ns = 0;
    RANK_CHECK(me, lvni_dist_comm_try(me->comm, &ns) == LVN_OK && ns > 0, "the first sum");
    return true;
}

bool dist_case_sizes(dist_rank *me)
{
    enum { N = 40000 };
    const bool odd = me->rank == me->world - 1;
    const int64_t n = odd ? 16 : me->arg % 2 == 0 ? 8 : N;
    float *x = dist_take(me, (size_t)me->world * N * sizeof *x);
    memset(x, 0, (size_t)me->world * N * sizeof *x);
    if (me->world == 1) {
        return true;
    }
    lvn_status s = LVN_OK;
    switch (me->arg / 2) {
    case 0: s = lvni_dist_comm_all_reduce(me->comm, x, x, n, LVN_F32, LVNI_REDUCE_SUM); break;
    case 1: s = lvni_dist_comm_all_gather(me->comm, x, (size_t)n, x); break;
    default: s = lvni_dist_comm_broadcast(me->comm, x, (size_t)n, 0); break;
    }
    if (s == LVN_OK) { /* it was over here before another rank noticed */
        s = lvni_dist_comm_barrier(me->comm);
    }
    RANK_CHECK(me, s == LVN_ERR_MISMATCH || s == LVN_ERR_PEER, "status %d", (int)s);
    RANK_CHECK(me, strstr(lvn_last_error()->message, "with different sizes") != NULL, "the reason");
    return true;
}

/* `rank` goes on only when all others have what it sent: what happens then does not fail this call.
 * A rank that has left a barrier knows only that all others have entered it. */
static bool has_all(dist_rank *me, int rank)
{
    int64_t x = me->rank == rank ? 7 : 0;
    RANK_CHECK(me, lvni_dist_comm_broadcast(me->comm, &x, sizeof x, rank) == LVN_OK, "begin");
    RANK_CHECK(me, x == 7, "%lld", (long long)x);
    return true;
}

bool dist_case_left(dist_rank *me)
{
    if (me->world == 1) {
        return true;
    }
    RANK_CHECK(me, has_all(me, me->world - 1), "begin");
    if (me->rank == me->world - 1) {
        return true; /* its communicator is destroyed now */
    }
    RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_ERR_PEER, "barrier");
    char want[64];
    snprintf(want, sizeof want, "rank %d left while rank", me->world - 1);
    RANK_CHECK(me, strncmp(lvn_last_error()->message, want, strlen(want)) == 0, "%s", want);
    return true;
}

bool dist_case_claim_left(dist_rank *me)
{
    RANK_CHECK(me, has_all(me, 0), "begin");
    if (me->rank == 0) {
        RANK_CHECK(me, lvni_dist_comm_claim(me->comm), "the first call");
        return true;
    }
    RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_ERR_PEER, "rank 0 has left");
    RANK_CHECK(me, !lvni_dist_comm_claim(me->comm), "rank 0 has it");
    return true;
}
