/* Conformance of reductions: whatever the ranks, the buckets and the threads, one sum: that of a
 * plain recursion over micro-batches. */
#include "dist_cases.h"
#include "dist_numbers.h"

#include "dist/reduction.h"
#include "plan/exchange.h"
#include "support/sanitized.h"
#include "tensor/ctx.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Not in the fixed order: this checks only that every block is passed once, with the right numbers.
 */
static void block_sums(const float *g, int64_t n, double *partial)
{
    for (int64_t at = 0; at < n; at += LVNI_REDUCTION_BLOCK) {
        double sum = 0.0;
        for (int64_t i = at; i < n && i < at + LVNI_REDUCTION_BLOCK; i++) {
            sum += (double)g[i] * (double)g[i];
        }
        partial[at / LVNI_REDUCTION_BLOCK] = sum;
    }
}

static bool has_samples(int micro_batch, int step)
{
    /* every third step some micro-batches are empty */
    return step % 3 != 2 || dist_bits(micro_batch, step, 5) % 3 != 0;
}

enum { RUN = 256 }; /* elements that are defined at a time */

/* The sums over micro-batches [lo, hi) of n elements from `from` on, RUN at most; some: which of
 * all micro-batches have samples. False: none of these has, and the sums are undefined. */
static bool define_run(float *out, int lo, int hi, int64_t from, int64_t n, int step,
                       const bool *some)
{
    if (hi - lo == 1) {
        dist_gradients(out, lo, from, some[lo] ? n : 0, step);
        return some[lo];
    }
    int p = 1;
    while (2 * p < hi - lo) {
        p = 2 * p;
    }
    float right[RUN];
    const bool a = define_run(out, lo, lo + p, from, n, step, some),
               b = define_run(right, lo + p, hi, from, n, step, some);
    if (!a && b) {
        memcpy(out, right, (size_t)n * sizeof *out);
    }
    for (int64_t i = 0; a && b && i < n; i++) {
        out[i] += right[i];
    }
    return a || b;
}

/* Those of elements 0 to n - 1. */
static bool define(float *out, int lo, int hi, int64_t n, int step, const bool *some)
{
    bool any = false;
    for (int64_t at = 0; at < n; at += RUN) {
        any = define_run(out + at, lo, hi, at, n - at < RUN ? n - at : RUN, step, some);
    }
    return any;
}

/* What the trainer does before: the leaves of this rank, each computed into the set of its slot. */
static int make_leaves(const dist_rank *me, lvni_dist_reduction *r, int micro_batches, int64_t n,
                       int step, const bool *some, lvni_plan_tree_node *leaf)
{
    lvni_plan_tree tree;
    lvni_plan_tree_merge merges[LVNI_TREE_PENDING];
    const int begin = micro_batches * me->rank / me->world,
              end = micro_batches * (me->rank + 1) / me->world;
    int n_leaves = 0;
    lvni_plan_tree_init(&tree, micro_batches, begin, end);
    while (tree.next < end) {
        lvni_plan_tree_push(&tree, some[tree.next] ? tree.next : LVNI_TREE_EMPTY, merges);
    }
    for (int i = 0; i < tree.n_pending; i++) {
        const lvni_plan_tree_node node = tree.pending[i];
        if (node.slot == LVNI_TREE_EMPTY) {
            continue;
        }
        define(lvni_dist_reduction_set(r, n_leaves), node.begin, node.end, n, step, some);
        leaf[n_leaves] = (lvni_plan_tree_node){node.begin, node.end, n_leaves};
        n_leaves++;
    }
    return n_leaves;
}

/* ---- helpers: threads that call ready and help as lanes do ---- */

typedef struct lane {
    pthread_t thread;
    lvni_dist_reduction *r;
    const int *order; /* of buckets */
    int from, to;     /* this lane's part of the order */
    unsigned seed;
    int delay_us; /* at most, at random */
} lane;

static void rest(lane *l)
{
    if (l->delay_us > 0 && rand_r(&l->seed) % 4 == 0) {
        usleep((useconds_t)(rand_r(&l->seed) % l->delay_us));
    }
}

static void *lane_main(void *p)
{
    lane *l = p;
    lvni_tensor_thread_set_ftz();
    for (int i = l->from; i < l->to; i++) {
        rest(l);
        lvni_dist_reduction_ready(l->r, l->order[i]);
        rest(l);
        lvni_dist_reduction_help(l->r);
    }
    for (int i = 0; i < 3; i++) {
        rest(l);
        while (lvni_dist_reduction_help(l->r)) {
        }
    }
    return NULL;
}

static void shuffle(int *order, int n, unsigned *seed)
{
    for (int i = 0; i < n; i++) {
        order[i] = i;
    }
    for (int i = n - 1; i > 0; i--) {
        const int j = rand_r(seed) % (i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

typedef struct setup {
    int micro_batches, steps, lanes, delay_us;
    int64_t n, n_norm, bucket;
    bool parts; /* every step adds another part */
    bool keeps; /* a rank has the total of its own part of the norm's floats */
} setup;

/* What a step adds of the norm's floats. */
static int64_t used_begin(const setup *s, int step)
{
    return s->parts ? step % 3 * (int64_t)LVNI_REDUCTION_BLOCK : 0;
}

static int64_t used_end(const setup *s, int step)
{
    const int64_t end = used_begin(s, step) + (1 + step % 2) * (int64_t)LVNI_REDUCTION_BLOCK;
    return s->parts && end < s->n_norm ? end : s->n_norm;
}

/* Where the block begins in which the norm ends before the set does. */
static int64_t tail_of(const setup *s)
{
    return s->n > s->n_norm ? s->n_norm / LVNI_REDUCTION_BLOCK * LVNI_REDUCTION_BLOCK : s->n;
}

/* The floats of [from, from + count), whole blocks, that a step adds: those, and all from the tail
 * on. */
static int64_t used_of(const setup *s, int step, int64_t from, int64_t count)
{
    int64_t n = 0;
    for (int64_t at = from; at < from + count; at++) {
        n += (at >= used_begin(s, step) && at < used_end(s, step)) || at >= tail_of(s) ? 1 : 0;
    }
    return n;
}

static lvni_plan_exchange exchange_of(const setup *s, int world)
{
    return (lvni_plan_exchange){
        .n = s->n, .bucket = s->bucket, .world = world, .parts = s->keeps ? s->n_norm : 0};
}

/* Has the rank the total of float i? */
static bool has_total(const dist_rank *me, const setup *s, int64_t i)
{
    const lvni_plan_range own = lvni_plan_exchange_part(s->n_norm, me->world, me->rank);
    return !s->keeps || i >= tail_of(s) || (i >= own.start && i < own.start + own.count);
}

enum {
    MAX_MICRO_BATCHES = 64,
    MAX_BUCKETS = 64,
    MAX_LANES = 3,
    MAX_LEAVES = LVNI_TREE_PENDING,
    MESSAGE = 40
};

/* Every rank has those of all blocks; want: the sums of all elements. */
static bool squares_are_right(dist_rank *me, lvni_dist_reduction *r, const setup *s, int step,
                              const float *want)
{
    const double *partial = lvni_dist_reduction_partial(r);
    for (int64_t b = 0; b * LVNI_REDUCTION_BLOCK < s->n_norm; b += SANITIZED ? 3 : 1) {
        double squares;
        const int64_t from = b * LVNI_REDUCTION_BLOCK, left = s->n_norm - from,
                      n = left < LVNI_REDUCTION_BLOCK ? left : LVNI_REDUCTION_BLOCK;
        if (from < used_begin(s, step) || from >= used_end(s, step)) {
            continue;
        }
        block_sums(want + from, n, &squares);
        RANK_CHECK(me, memcmp(&squares, &partial[b], sizeof squares) == 0, "block %lld",
                   (long long)b);
    }
    return true;
}

static bool total_is_right(dist_rank *me, lvni_dist_reduction *r, const setup *s, int step,
                           const bool *some, const float *want)
{
    const float *total = lvni_dist_reduction_total(r);
    bool other_order = false;
    RANK_CHECK(me, total != NULL, "step %d", step);
    for (int64_t i = 0; i < s->n; i += SANITIZED ? 7 : 1) {
        if (used_of(s, step, i, 1) == 0 || !has_total(me, s, i)) {
            continue;
        }
        float line = 0.0f;
        for (int micro_batch = 0; micro_batch < s->micro_batches && !other_order; micro_batch++) {
            line += some[micro_batch] ? dist_gradient(micro_batch, i, step) : 0.0f;
        }
        other_order = other_order || line != want[i];
        RANK_CHECK(me, memcmp(&want[i], &total[i], sizeof want[i]) == 0,
                   "step %d, %d micro-batches, element %lld: %.9g, not %.9g", step,
                   s->micro_batches, (long long)i, (double)total[i], (double)want[i]);
    }
    RANK_CHECK(me, s->micro_batches < 4 || s->n < 1000 || step % 3 == 2 || s->keeps || other_order,
               "the numbers do not distinguish one order from another");
    return true;
}

static bool sums_are_right(dist_rank *me, lvni_dist_reduction *r, const setup *s, int step,
                           const bool *some)
{
    float *want = malloc((size_t)s->n * sizeof *want);
    RANK_CHECK(me, want != NULL, "memory for %lld floats", (long long)s->n);
    bool right;
    if (define(want, 0, s->micro_batches, s->n, step, some)) {
        right =
            total_is_right(me, r, s, step, some, want) && squares_are_right(me, r, s, step, want);
    } else { /* no micro-batch has samples */
        right = lvni_dist_reduction_total(r) == NULL;
    }
    free(want);
    RANK_CHECK(me, right, "step %d", step);
    return true;
}

static bool messages_are_right(dist_rank *me, lvni_dist_reduction *r, int step)
{
    for (int rank = 0; rank < me->world; rank++) {
        size_t bytes = 0;
        const unsigned char *message = lvni_dist_reduction_get_message(r, rank, &bytes);
        RANK_CHECK(me, bytes == (size_t)((rank + step) % (MESSAGE + 1)),
                   "rank %d sent %zu bytes in step %d", rank, bytes, step);
        for (size_t i = 0; i < bytes; i++) {
            RANK_CHECK(me, message[i] == (unsigned char)dist_bits(rank, (int64_t)i, step),
                       "byte %zu of rank %d", i, rank);
        }
    }
    return true;
}

/* Floats of the rank's slices from `from` on that a step adds. */
static int64_t added_of(const setup *s, int step, int world, int rank, int64_t from)
{
    const lvni_plan_exchange e = exchange_of(s, world);
    int64_t n = 0;
    for (int64_t b = 0; b < lvni_plan_exchange_buckets(&e); b++) {
        const lvni_plan_range slice = lvni_plan_exchange_slice(&e, b, rank);
        const int64_t end = slice.start + slice.count,
                      begin = slice.start > from ? slice.start : from;
        n += begin < end ? used_of(s, step, begin, end - begin) : 0;
    }
    return n;
}

/* Bytes of gradients that a rank writes for others to read, and reads of what others wrote, in one
 * step: `leaves` sub-trees of its own, `leaves_all` of all ranks. It reads the others' leaves in
 * its slices, and the total outside of them; others do the same with what it writes. With one leaf
 * per rank and equal slices it receives 2 (W-1)/W of the set, as in a ring. With parts it is the
 * weights that it reads outside of its slices, which their owners have updated: as many bytes. */
typedef struct step_bytes {
    uint64_t sent, received;
} step_bytes;

static uint64_t owned_bytes(const lvni_plan_exchange *e, int rank)
{
    int64_t owned = 0;
    for (int64_t b = 0; b < lvni_plan_exchange_buckets(e); b++) {
        owned += lvni_plan_exchange_slice(e, b, rank).count;
    }
    return (uint64_t)owned * sizeof(float);
}

static step_bytes bytes_of_step(const lvni_plan_exchange *e, int rank, int leaves, int leaves_all)
{
    const uint64_t own = owned_bytes(e, rank), all = (uint64_t)e->n * sizeof(float);
    if (e->world == 1 || leaves_all == 0) {
        return (step_bytes){0, 0};
    }
    return (step_bytes){.sent = (uint64_t)leaves * (all - own) + own,
                        .received = (uint64_t)(leaves_all - leaves) * own + (all - own)};
}

/* What the step moved, against that formula: gradients, and the messages of the others. */
static bool bytes_are_right(dist_rank *me, const setup *s, int step, int n_leaves,
                            lvni_dist_comm_bytes before)
{
    const lvni_plan_exchange e = exchange_of(s, me->world);
    const lvni_dist_comm_bytes after = lvni_dist_comm_count(me->comm);
    uint64_t message = 0, heard = 0;
    int leaves_all = 0;
    for (int rank = 0; rank < me->world && me->world > 1; rank++) {
        const uint64_t bytes = (uint64_t)((rank + step) % (MESSAGE + 1));
        leaves_all += lvni_plan_tree_owed(s->micro_batches, s->micro_batches * rank / me->world,
                                          s->micro_batches * (rank + 1) / me->world);
        message += rank == me->rank ? bytes : 0;
        heard += rank == me->rank ? 0 : bytes;
    }
    step_bytes cost = bytes_of_step(&e, me->rank, n_leaves, leaves_all);
    uint64_t shared_bytes = owned_bytes(&e, me->rank);
    if ((s->parts || s->keeps) && me->world > 1) { /* the same formula for fewer floats */
        const int64_t all = used_of(s, step, 0, s->n), from = s->keeps ? tail_of(s) : 0;
        const int64_t own = added_of(s, step, me->world, me->rank, 0),
                      shared = added_of(s, step, me->world, me->rank, from);
        int64_t others = -shared; /* of the total */
        for (int rank = 0; rank < me->world; rank++) {
            others += added_of(s, step, me->world, rank, from);
        }
        shared_bytes = (uint64_t)shared * sizeof(float);
        cost.sent = (uint64_t)(shared + n_leaves * (all - own)) * sizeof(float);
        cost.received = (uint64_t)(own * (leaves_all - n_leaves) + others) * sizeof(float);
    }
    if (me->messages && me->world > 1) { /* what all read is sent to each */
        cost.sent += (uint64_t)(me->world - 2) * shared_bytes;
        message *= (uint64_t)(me->world - 1);
    }
    RANK_CHECK(me, after.sent - before.sent == cost.sent + message, "sent %llu bytes",
               (unsigned long long)(after.sent - before.sent));
    RANK_CHECK(me, after.received - before.received == cost.received + heard, "received %llu bytes",
               (unsigned long long)(after.received - before.received));
    return true;
}

static bool run_step(dist_rank *me, lvni_dist_reduction *r, const setup *s, int step)
{
    lvni_plan_tree_node leaf[MAX_LEAVES];
    lane lanes[MAX_LANES];
    int order[MAX_BUCKETS];
    unsigned seed = (unsigned)(me->rank * 977 + step * 31 + s->micro_batches);
    unsigned char message[MESSAGE];
    const int buckets = lvni_dist_reduction_buckets(r);
    bool some[MAX_MICRO_BATCHES];
    for (int micro_batch = 0; micro_batch < s->micro_batches; micro_batch++) {
        some[micro_batch] = has_samples(micro_batch, step);
    }
    const int n_leaves = make_leaves(me, r, s->micro_batches, s->n, step, some, leaf);
    const lvni_dist_comm_bytes before = lvni_dist_comm_count(me->comm);
    lvni_dist_reduction_use(r, used_begin(s, step), used_end(s, step));
    RANK_CHECK(me, lvni_dist_reduction_begin(r, leaf, n_leaves) == LVN_OK, "begin");
    shuffle(order, buckets, &seed);
    /* lanes only help, while finish runs and reports all buckets */
    const bool beside = step % 2 == 1;
    const int reported = beside ? 0 : buckets - buckets / 4;
    for (int l = 0; l < s->lanes; l++) {
        lanes[l] = (lane){.r = r,
                          .order = order,
                          .from = reported * l / s->lanes,
                          .to = reported * (l + 1) / s->lanes,
                          .seed = (unsigned)rand_r(&seed),
                          .delay_us = s->delay_us};
        RANK_CHECK(me, pthread_create(&lanes[l].thread, NULL, lane_main, &lanes[l]) == 0, "thread");
    }
    const size_t bytes = (size_t)((me->rank + step) % (MESSAGE + 1));
    for (size_t i = 0; i < bytes; i++) {
        message[i] = (unsigned char)dist_bits(me->rank, (int64_t)i, step);
    }
    for (int l = 0; l < s->lanes && !beside; l++) {
        pthread_join(lanes[l].thread, NULL);
    }
    const lvn_status status = lvni_dist_reduction_finish(r, message, bytes);
    for (int l = 0; l < s->lanes && beside; l++) {
        pthread_join(lanes[l].thread, NULL);
    }
    RANK_CHECK(me, status == LVN_OK, "finish of step %d", step);
    if (step % 3 != 2 && me->nodes == 0 && !bytes_are_right(me, s, step, n_leaves, before)) {
        /* no empty micro-batches */
        return false;
    }
    /* all see the same memory: one looks at every number of it */
    const bool looks = s->keeps || (step + s->micro_batches) % me->world == me->rank;
    return (!looks || sums_are_right(me, r, s, step, some)) && messages_are_right(me, r, step);
}

static bool run_setup(dist_rank *me, const setup *s)
{
    lvni_dist_reduction *r;
    const lvni_dist_reduction_options o = {.micro_batches = s->micro_batches,
                                           .begin = s->micro_batches * me->rank / me->world,
                                           .end = s->micro_batches * (me->rank + 1) / me->world,
                                           .sets = s->micro_batches < 20 ? 8 : 20,
                                           .n = s->n,
                                           .n_norm = s->n_norm,
                                           .bucket = s->bucket,
                                           .parts = s->keeps,
                                           .message = MESSAGE,
                                           .sumsq = block_sums};
    RANK_CHECK(me, lvni_dist_reduction_create(me->comm, &o, &r) == LVN_OK, "create");
    for (int step = 0; step < s->steps; step++) {
        if (!run_step(me, r, s, step)) {
            return false;
        }
    }
    lvni_dist_reduction_destroy(r);
    return true;
}

bool dist_case_reduction(dist_rank *me)
{
    if (me->arg < me->world) { /* each rank needs a micro-batch */
        return true;
    }
    const int64_t block = LVNI_REDUCTION_BLOCK;
    static const int64_t sizes[] = {1, 5000, 13000};
    for (size_t i = me->arg % 4 == 0 ? 0 : 1; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t n = sizes[i];
        const setup by_block = {
            .micro_batches = me->arg, .steps = 3, .lanes = 1, .n = n, .n_norm = n, .bucket = block};
        const setup whole = {
            .micro_batches = me->arg, .steps = 2, .lanes = 1, .n = n, .n_norm = n / 2, .bucket = 0};
        const setup parts = {.micro_batches = me->arg,
                             .steps = 4,
                             .lanes = 1,
                             .n = n,
                             .n_norm = n - 800,
                             .bucket = block,
                             .parts = true};
        setup kept = by_block, kept_parts = parts;
        kept.keeps = kept_parts.keeps = true;
        kept_parts.steps = 2;
        if (!run_setup(me, &by_block) || (i == 1 && !run_setup(me, &kept)) ||
            (i == 2 && !run_setup(me, &whole)) || (i == 2 && !run_setup(me, &parts)) ||
            (i == 2 && !run_setup(me, &kept_parts))) {
            return false;
        }
    }
    return true;
}

bool dist_case_reduction_race(dist_rank *me)
{
    const setup s = {.micro_batches = 2 * me->world + 1,
                     .steps = me->arg,
                     .lanes = 2,
                     .delay_us = 300,
                     .n = 40000,
                     .n_norm = 40000,
                     .bucket = LVNI_REDUCTION_BLOCK};
    return run_setup(me, &s);
}

bool dist_case_reduction_options(dist_rank *me)
{
    lvni_dist_reduction *r = NULL;
    lvni_dist_reduction_options o = {.micro_batches = 64,
                                     .begin = 64 * me->rank / me->world,
                                     .end = 64 * (me->rank + 1) / me->world,
                                     .sets = 2,
                                     .n = 8192,
                                     .n_norm = 8192,
                                     .bucket = LVNI_REDUCTION_BLOCK,
                                     .message = 8,
                                     .sumsq = block_sums};
    if (me->world > 1) {
        o.n += me->rank == 1 ? LVNI_REDUCTION_BLOCK : 0;
        RANK_CHECK(me, lvni_dist_reduction_create(me->comm, &o, &r) == LVN_ERR_INVALID && r == NULL,
                   "different sizes");
        o.n = 8192;
        o.bucket = me->rank == 1 ? 17 : o.bucket;
        RANK_CHECK(me, lvni_dist_reduction_create(me->comm, &o, &r) == LVN_ERR_INVALID && r == NULL,
                   "one rank asks for what cannot be");
        o.bucket = LVNI_REDUCTION_BLOCK;
        RANK_CHECK(me, lvni_dist_comm_barrier(me->comm) == LVN_OK, "all go on");
    }
    o.sets = 1 + me->rank % 3; /* that may differ */
    RANK_CHECK(me, lvni_dist_reduction_create(me->comm, &o, &r) == LVN_OK, "create");
    const lvni_plan_range last = lvni_dist_reduction_bucket(r, 1);
    RANK_CHECK(me, lvni_dist_reduction_buckets(r) == 2 && last.start == 4096 && last.count == 4096,
               "buckets");
    lvni_plan_tree_node leaf = {1, 3, 0};
    RANK_CHECK(me, lvni_dist_reduction_begin(r, &leaf, 1) == LVN_ERR_INVALID, "no node");
    leaf = (lvni_plan_tree_node){2, 4, o.sets};
    RANK_CHECK(me, lvni_dist_reduction_begin(r, &leaf, 1) == LVN_ERR_INVALID, "no such set");
    RANK_CHECK(me, lvni_dist_reduction_finish(r, NULL, 0) == LVN_ERR_INVALID,
               "finish before begin");
    RANK_CHECK(me, lvni_dist_reduction_begin(r, NULL, 0) == LVN_OK, "begin without leaves");
    RANK_CHECK(me, lvni_dist_reduction_begin(r, NULL, 0) == LVN_ERR_INVALID, "begin twice");
    RANK_CHECK(me, lvni_dist_reduction_finish(r, "123456789", 9) == LVN_ERR_INVALID,
               "too long a message");
    RANK_CHECK(me,
               lvni_dist_reduction_finish(r, "12345678", 8) == LVN_OK &&
                   lvni_dist_reduction_total(r) == NULL,
               "nothing to add");
    lvni_dist_reduction_destroy(r);
    return true;
}

/* ---- sets that are the caller's ---- */

static _Thread_local int64_t added; /* floats */

static void add_counted(float *into, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        into[i] += from[i];
    }
    added += n;
}

/* Nothing is copied: the total is the first leaf's set, and what is not used stays as it was. */
static bool adds_in_place(dist_rank *me, lvni_dist_reduction *r, float *const *set, int64_t n)
{
    enum { LEAVES = 4, BLOCK = LVNI_REDUCTION_BLOCK };
    /* micro-batches 0 and 1, 2 (3 has no samples), 4, 5: of 7 */
    const lvni_plan_tree_node leaf[LEAVES] = {{0, 2, 2}, {2, 3, 0}, {4, 5, 3}, {5, 6, 1}};
    for (int k = 0; k < LEAVES; k++) {
        RANK_CHECK(me, lvni_dist_reduction_set(r, k) == set[k], "set %d", k);
        for (int64_t i = 0; i < n; i++) {
            set[k][i] = dist_gradient(k, i, 0);
        }
    }
    added = 0;
    lvni_dist_reduction_use(r, BLOCK, 2 * (int64_t)BLOCK);
    RANK_CHECK(me, lvni_dist_reduction_begin(r, leaf, LEAVES) == LVN_OK, "begin");
    RANK_CHECK(me, lvni_dist_reduction_finish(r, "note", 4) == LVN_OK, "finish");
    const float *total = lvni_dist_reduction_total(r);
    RANK_CHECK(me, total == set[2], "the total is the first leaf's set");
    RANK_CHECK(me, added == (LEAVES - 1) * (BLOCK + n - 3 * (int64_t)BLOCK),
               "%lld floats are added", (long long)added);
    for (int64_t i = 0; i < n; i++) {
        const float left = dist_gradient(2, i, 0) + dist_gradient(0, i, 0),
                    right = dist_gradient(3, i, 0) + dist_gradient(1, i, 0);
        const bool used = (i >= BLOCK && i < 2 * BLOCK) || i >= 3 * BLOCK;
        const float want = used ? left + right : dist_gradient(2, i, 0);
        RANK_CHECK(me, memcmp(&total[i], &want, sizeof want) == 0, "element %lld", (long long)i);
    }
    double want;
    block_sums(total + BLOCK, BLOCK, &want);
    RANK_CHECK(me, lvni_dist_reduction_partial(r)[1] == want, "the squares of block 1");
    size_t bytes = 0;
    const void *note = lvni_dist_reduction_get_message(r, 0, &bytes);
    RANK_CHECK(me, bytes == 4 && memcmp(note, "note", 4) == 0, "the own message");
    return true;
}

bool dist_case_reduction_memory(dist_rank *me)
{
    enum { SETS = 4 };
    const int64_t n = 3 * LVNI_REDUCTION_BLOCK + 100;
    float *set[SETS];
    for (int k = 0; k < SETS; k++) {
        set[k] = dist_take(me, (size_t)n * sizeof(float));
    }
    const lvni_dist_reduction_options o = {.micro_batches = 7,
                                           .sets = SETS,
                                           .n = n,
                                           .n_norm = n - 100,
                                           .message = 8,
                                           .sumsq = block_sums,
                                           .set = set,
                                           .add = add_counted};
    lvni_dist_reduction *r = NULL;
    const lvn_status s = lvni_dist_reduction_create(me->comm, &o, &r);
    if (!lvni_dist_comm_reads_any(me->comm)) {
        RANK_CHECK(me, s == LVN_ERR_INVALID && r == NULL, "it cannot read that memory");
        return true;
    }
    RANK_CHECK(me, s == LVN_OK, "create");
    const bool right = adds_in_place(me, r, set, n);
    lvni_dist_reduction_destroy(r);
    return right;
}

/* ---- an abort while pieces wait to be added ---- */

static _Thread_local lvni_dist_comm *aborting;

static void abort_at_a_block(const float *g, int64_t n, double *partial)
{
    (void)g, (void)n, (void)partial;
    lvni_dist_comm_abort(aborting, "block 0 is damaged");
}

bool dist_case_reduction_abort(dist_rank *me)
{
    const lvni_dist_reduction_options o = {.micro_batches = me->world,
                                           .begin = me->world * me->rank / me->world,
                                           .end = me->world * (me->rank + 1) / me->world,
                                           .sets = 1,
                                           .n = 64 * LVNI_REDUCTION_BLOCK,
                                           .n_norm = 64 * LVNI_REDUCTION_BLOCK,
                                           .bucket = 8 * LVNI_REDUCTION_BLOCK,
                                           .sumsq = abort_at_a_block};
    lvni_dist_reduction *r;
    aborting = me->comm;
    RANK_CHECK(me, lvni_dist_reduction_create(me->comm, &o, &r) == LVN_OK, "create");
    const lvni_plan_tree_node leaf = {me->rank, me->rank + 1, 0};
    lvn_status s = lvni_dist_reduction_begin(r, &leaf, 1);
    s = s == LVN_OK ? lvni_dist_reduction_finish(r, NULL, 0) : s;
    RANK_CHECK(me,
               s == LVN_ERR_PEER && strcmp(lvn_last_error()->message, "block 0 is damaged") == 0,
               "status %d", (int)s);
    lvni_dist_reduction_destroy(r);
    return true;
}

/* ---- what goes between nodes ---- */

static int node_of(const dist_rank *me)
{
    int node = 0;
    while (me->first[node + 1] <= me->rank) {
        node++;
    }
    return node;
}

/* One step, and where the sums stay with their owners, the exchange of the weights: what goes
 * between nodes. */
static bool move(dist_rank *me, const lvni_dist_reduction_options *o, int64_t moved[2])
{
    lvni_dist_reduction *r;
    lvni_plan_tree_node leaf[LVNI_TREE_PENDING];
    bool some[MAX_MICRO_BATCHES];
    memset(some, 1, sizeof some);
    RANK_CHECK(me, lvni_dist_reduction_create(me->comm, o, &r) == LVN_OK, "create");
    const int n_leaves = make_leaves(me, r, me->arg, 1, 0, some, leaf);
    const lvni_dist_comm_bytes before = lvni_dist_comm_count(me->comm);
    lvn_status s = lvni_dist_reduction_begin(r, leaf, n_leaves);
    s = s == LVN_OK ? lvni_dist_reduction_finish(r, NULL, 0) : s;
    RANK_CHECK(me, s == LVN_OK, "a step");
    lvni_dist_reduction_destroy(r);
    if (o->parts) {
        float *all = calloc((size_t)o->n, sizeof *all);
        const size_t own = (size_t)o->n / (size_t)me->world;
        RANK_CHECK(me,
                   all != NULL && lvni_dist_comm_all_gather(me->comm, all + own * (size_t)me->rank,
                                                            own * sizeof *all, all) == LVN_OK,
                   "weights");
        free(all);
    }
    const lvni_dist_comm_bytes after = lvni_dist_comm_count(me->comm);
    moved[0] = (int64_t)(after.link_sent - before.link_sent);
    moved[1] = (int64_t)(after.link_received - before.link_received);
    return true;
}

static int owed_by(const dist_rank *me, int node)
{
    return lvni_plan_tree_owed(me->arg, me->arg * me->first[node] / me->world,
                               me->arg * me->first[node + 1] / me->world);
}

/* With equal slices a node sends (K + 1) (N-1)/N of the set, K sub-trees that it owes, and receives
 * as much of the others': 2 (N-1)/N when each owes one, however many ranks it has. With parts it
 * sends its leaves of what others own, and the weights that it owns to each: with equal nodes as
 * much, and with others the same sum over all. */
static bool moves_its_part(dist_rank *me, bool parts)
{
    enum { PARTS = 72 }; /* of a bucket, for 1 to 4 nodes with 1 to 3 channels */
    const int node = node_of(me), nodes = me->nodes, ranks = me->first[node + 1] - me->first[node];
    const int64_t n = 2 * PARTS * LVNI_REDUCTION_BLOCK, bytes = n * (int64_t)sizeof(float);
    const int64_t own = parts ? bytes / me->world * ranks : bytes / nodes;
    const lvni_dist_reduction_options o = {.micro_batches = me->arg,
                                           .begin = me->arg * me->rank / me->world,
                                           .end = me->arg * (me->rank + 1) / me->world,
                                           .sets = LVNI_TREE_PENDING,
                                           .n = n,
                                           .n_norm = n,
                                           .bucket = PARTS * LVNI_REDUCTION_BLOCK,
                                           .parts = parts,
                                           .sumsq = block_sums};
    int64_t moved[2], all[2 * MAX_MICRO_BATCHES], sum[2] = {0}, others = 0, received = 0;
    if (!move(me, &o, moved)) {
        return false;
    }
    RANK_CHECK(me, lvni_dist_comm_all_gather(me->comm, moved, sizeof moved, all) == LVN_OK, "all");
    for (int rank = me->first[node]; rank < me->first[node + 1]; rank++) {
        sum[0] += all[2 * rank];
        sum[1] += all[2 * rank + 1];
    }
    for (int i = 0; i < nodes; i++) { /* of each message its size travels */
        others += i == node ? 0 : (me->first[i + 1] - me->first[i]) * (int64_t)sizeof(uint64_t);
        received += i == node ? 0 : owed_by(me, i);
    }
    const int64_t own_notes = ranks * (int64_t)sizeof(uint64_t) * (nodes - 1);
    RANK_CHECK(me, sum[0] - own_notes == owed_by(me, node) * (bytes - own) + own * (nodes - 1),
               "node %d sends %lld bytes", node, (long long)sum[0]);
    RANK_CHECK(me, sum[1] - others == received * own + bytes - own, "node %d receives %lld bytes",
               node, (long long)sum[1]);
    return true;
}

bool dist_case_link_bytes(dist_rank *me)
{
    return moves_its_part(me, false);
}

bool dist_case_link_bytes_of_parts(dist_rank *me)
{
    return moves_its_part(me, true);
}
