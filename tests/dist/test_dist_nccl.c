/* Sums of gradients between devices (dist/device_sum.h) over a stand-in for NCCL
 * (nccl_on_sim.c), of ranks that are threads and of ranks that are processes, each on a simulated
 * accelerator: the bits of the tree for every division into leaves, slices and buckets, and an end
 * with its cause whatever fails. */
#include "core/alloc.h"
#include "core/machine.h"
#include "core/rng.h"
#include "dist/device_sum.h"
#include "dist/sum_plan.h"
#include "dist_ranks.h"
#include "kernels/kernels.h"
#include "tensor/device.h"
#include "support/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LEAVES = 64, STEPS = 6, FLOATS = 70000 };
#define FAULT "NCCL_ON_SIM_FAULT"

/* ---- a rank ---- */

typedef struct fixture {
    dist_rank *me;
    lvni_tensor_device *device;
    void *stream;
    lvni_dist_device_sum *sum;
    float *set[MOST_LEAVES], *total; /* of the device */
    size_t got[MOST_LEAVES], got_total;
    int micro_batches;
    int64_t bucket;
    uint64_t number;
} fixture;

static lvni_core_rng random_of(int step, int purpose)
{
    return (lvni_core_rng){.key = lvni_core_rng_make_key(7, (uint64_t)purpose),
                           .a = (uint32_t)step};
}

/* Leaves of all ranks in a step, with the rank in `slot`: micro-batches are missing at random. */
static int leaves_of(const fixture *f, int step, lvni_plan_tree_node *leaf)
{
    const lvni_core_rng rng = random_of(step, 1);
    const int world = f->me->world, s = f->micro_batches;
    int n = 0;
    for (int rank = 0; rank < world; rank++) {
        lvni_plan_tree tree;
        lvni_plan_tree_merge merge[LVNI_TREE_PENDING];
        lvni_plan_tree_init(&tree, s, rank * s / world, (rank + 1) * s / world);
        while (tree.next < tree.end) {
            const bool empty =
                step > 1 && lvni_core_rng_u32(&rng, (uint64_t)tree.next) % 4 == 0 && tree.next > 0;
            (void)lvni_plan_tree_push(&tree, empty ? LVNI_TREE_EMPTY : tree.next, merge);
        }
        for (int i = 0; i < tree.n_pending; i++) {
            if (tree.pending[i].slot != LVNI_TREE_EMPTY) {
                leaf[n++] = (lvni_plan_tree_node){tree.pending[i].begin, tree.pending[i].end, rank};
            }
        }
    }
    return n;
}

/* Of such sizes that another order of additions has other bits. */
static void fill(float *data, int step, int leaf)
{
    const lvni_core_rng rng = random_of(step, 100 + leaf);
    for (int64_t i = 0; i < FLOATS; i++) {
        const uint32_t bits = lvni_core_rng_u32(&rng, (uint64_t)i);
        const float scale = bits % 3 == 0 ? 1e4f : bits % 3 == 1 ? 1.0f : 1e-3f;
        data[i] = ((float)(bits >> 8) / 8388608.0f - 1.0f) * scale;
    }
}

static lvn_status begin(fixture *f, dist_rank *me, int device, double timeout_s)
{
    *f = (fixture){.me = me, .micro_batches = me->arg, .bucket = 3 * LVN_FLAT_BLOCK};
    LVN_TRY(lvn_device_use(LVN_SIM(device)));
    LVN_TRY(lvni_tensor_device_open(LVN_DEVICE_SIM, device, &f->device));
    f->stream = lvni_tensor_device_stream(f->device);
    const lvni_core_rng rng = random_of(me->world, 2);
    f->bucket = 1 + lvni_core_rng_u32(&rng, (uint64_t)me->arg) % 60000;
    for (int i = 0; i < MOST_LEAVES / 8; i++) {
        f->set[i] = lvni_tensor_device_take(f->device, LVN_STREAM_COMPUTE, FLOATS * sizeof(float),
                                            &f->got[i]);
        LVN_TRY(f->set[i] != NULL ? LVN_OK : lvn_last_error()->code);
    }
    f->total = lvni_tensor_device_take(f->device, LVN_STREAM_COMPUTE, FLOATS * sizeof(float),
                                       &f->got_total);
    const lvni_dist_device_sum_options o = {.comm = me->comm,
                                            .device = f->device,
                                            .stream = f->stream,
                                            .micro_batches = f->micro_batches,
                                            .leaves = MOST_LEAVES,
                                            .bucket = f->bucket,
                                            .timeout_s = timeout_s};
    LVN_TRY(f->total != NULL ? LVN_OK : lvn_last_error()->code);
    return lvni_dist_device_sum_create(&o, &f->sum);
}

static void end(fixture *f)
{
    (void)lvni_tensor_device_sync();
    lvni_dist_device_sum_destroy(f->sum);
    for (int i = 0; i < MOST_LEAVES / 8; i++) {
        if (f->set[i] != NULL) {
            lvni_tensor_device_give(f->device, LVN_STREAM_COMPUTE, false, f->set[i], f->got[i]);
        }
    }
    if (f->total != NULL) {
        lvni_tensor_device_give(f->device, LVN_STREAM_COMPUTE, false, f->total, f->got_total);
    }
}

static void reached(void *user)
{
    const fixture *f = user;
    lvni_dist_device_sum_reached(f->sum, f->number);
}

/* The sum of a step, and the wait for it. */
static lvn_status add(fixture *f, const lvni_plan_tree_node *leaf, int n)
{
    LVN_TRY(lvni_dist_device_sum_begin(f->sum, leaf, n, &f->number));
    for (int64_t at = 0; at < FLOATS; at += f->bucket) {
        LVN_TRY(lvni_dist_device_sum_add(f->sum, f->set, f->total, at,
                                         FLOATS - at < f->bucket ? FLOATS - at : f->bucket));
    }
    LVN_TRY(lvni_tensor_device_backend(f->device)->host_call(f->stream, reached, f));
    return lvni_dist_device_sum_wait(f->sum, f->number);
}

/* ---- the bits ---- */

static bool check_step(fixture *f, int step)
{
    dist_rank *me = f->me;
    lvni_plan_tree_node leaf[MOST_LEAVES];
    void *source[MOST_LEAVES];
    const int n = leaves_of(f, step, leaf);
    int own = 0;
    for (int i = 0; i < n; i++) {
        source[i] = dist_take(me, FLOATS * sizeof(float));
        fill(source[i], step, i);
        if (leaf[i].slot == me->rank) {
            RANK_CHECK(me,
                       lvni_tensor_mem_copy(f->set[own++], source[i], FLOATS * sizeof(float)) ==
                           LVN_OK,
                       "copying");
        }
    }
    const lvn_status s = add(f, leaf, n);
    RANK_CHECK(me, s == LVN_OK, "status %d in step %d", (int)s, step);
    float *sum = dist_take(me, FLOATS * sizeof(float)),
          *wanted = dist_take(me, FLOATS * sizeof(float));
    lvni_dist_sum_plan plan;
    RANK_CHECK(me, lvni_tensor_mem_copy(sum, f->total, FLOATS * sizeof(float)) == LVN_OK, "copy");
    RANK_CHECK(me, lvni_dist_sum_plan_init(&plan, MOST_LEAVES) == LVN_OK, "plan");
    lvni_dist_sum_plan_make(&plan, f->micro_batches, leaf, n);
    lvni_dist_sum_run(&plan, source, wanted, 0, FLOATS, LVN_F32, LVNI_REDUCE_SUM);
    lvni_dist_sum_plan_free(&plan);
    RANK_CHECK(me, memcmp(sum, wanted, FLOATS * sizeof(float)) == 0,
               "step %d: other bits, buckets of %lld", step, (long long)f->bucket);
    dist_give_back(me);
    return true;
}

static bool sums(dist_rank *me)
{
    fixture f;
    RANK_CHECK(me, begin(&f, me, me->rank, 0.0) == LVN_OK, "creation");
    bool good = true;
    for (int step = 0; step < STEPS && good; step++) {
        good = check_step(&f, step);
    }
    end(&f);
    return good;
}

/* ---- what fails ---- */

enum { VICTIM = 1, BOUND_S = 8 };

/* As in a run, the rank that failed by itself ends the others. */
static lvn_status add_until_it_fails(fixture *f)
{
    lvni_plan_tree_node leaf[MOST_LEAVES];
    lvn_status s = LVN_OK;
    for (int step = 0; step < 1000 && s == LVN_OK; step++) {
        s = lvni_dist_comm_barrier(f->me->comm);
        const int n = leaves_of(f, 0, leaf);
        s = s == LVN_OK ? add(f, leaf, n) : s;
    }
    if (s != LVN_OK && s != LVN_ERR_PEER) {
        lvni_dist_comm_abort_for(f->me->comm, f->me->rank, lvn_last_error()->message);
    }
    return s;
}

static bool asynchronous_error(dist_rank *me)
{
    fixture f;
    const uint64_t start = lvni_core_now_ns();
    RANK_CHECK(me, begin(&f, me, me->rank, 0.0) == LVN_OK, "creation");
    const lvn_status s = add_until_it_fails(&f);
    RANK_CHECK(me, s == (me->rank == VICTIM ? LVN_ERR_RESOURCE : LVN_ERR_PEER), "status %d",
               (int)s);
    RANK_CHECK(me,
               strstr(lvn_last_error()->message, "rank 1: ") != NULL &&
                   strstr(lvn_last_error()->message, "unhandled system error") != NULL,
               "the cause");
    end(&f);
    RANK_CHECK(me, lvni_core_seconds_since(start) < BOUND_S, "too late");
    return true;
}

static bool a_sum_that_hangs(dist_rank *me)
{
    fixture f;
    const uint64_t start = lvni_core_now_ns();
    RANK_CHECK(me, begin(&f, me, me->rank, 1.0) == LVN_OK, "creation");
    const lvn_status s = add_until_it_fails(&f);
    RANK_CHECK(me, s == LVN_ERR_TIMEOUT || s == LVN_ERR_PEER, "status %d", (int)s);
    RANK_CHECK(me, strstr(lvn_last_error()->message, "has not ended in 1.0 s") != NULL,
               "the cause");
    end(&f);
    RANK_CHECK(me, lvni_core_seconds_since(start) < BOUND_S, "too late");
    return true;
}

static bool a_start_that_hangs(dist_rank *me)
{
    fixture f;
    const uint64_t start = lvni_core_now_ns();
    const lvn_status s = begin(&f, me, me->rank, 0.5);
    RANK_CHECK(me, s != LVN_OK && f.sum == NULL, "status %d", (int)s);
    RANK_CHECK(me, lvni_core_seconds_since(start) < BOUND_S, "too late");
    end(&f);
    return true;
}

static bool one_device_of_all(dist_rank *me)
{
    fixture f;
    const lvn_status s = begin(&f, me, 0, 0.0);
    RANK_CHECK(me, s == LVN_ERR_USAGE && f.sum == NULL, "status %d", (int)s);
    RANK_CHECK(me, strstr(lvn_last_error()->message, "no two ranks on one device") != NULL,
               "the reason");
    end(&f);
    return true;
}

/* The run's transport notices the end; where NCCL waits for the one that is gone, time does. */
static bool a_rank_that_dies(dist_rank *me)
{
    fixture f;
    lvn_status s = begin(&f, me, me->rank, 1.0);
    s = s == LVN_OK ? add_until_it_fails(&f) : s;
    RANK_CHECK(me, s == LVN_ERR_TIMEOUT || s == LVN_ERR_PEER, "status %d", (int)s);
    end(&f);
    return true;
}

/* ---- tests ---- */

static const dist_case cases[] = {{"sums", sums, false, 0},
                                  {"async", asynchronous_error, false, 0},
                                  {"hang", a_sum_that_hangs, false, 0},
                                  {"start", a_start_that_hangs, false, 0},
                                  {"one_device", one_device_of_all, false, 0},
                                  {"dies", a_rank_that_dies, false, 0}};
enum { N_CASES = sizeof cases / sizeof *cases };

static const dist_case *named(const char *name)
{
    const dist_case *c = dist_find(cases, N_CASES, name);
    assert_non_null(c);
    return c;
}

TEST(sums_have_the_bits_of_the_tree)
{
    /* ranks, micro-batches */
    static const int layouts[][2] = {{2, 2}, {2, 5}, {3, 7}, {3, 8}, {4, 8}, {4, 13}, {5, 11}};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const int *l = layouts[i];
        assert_true(dist_run_threads(named("sums"), l[0], l[1]));
        assert_true(dist_run_processes(named("sums"), l[0], l[1], NULL));
    }
}

static void run_both(const char *name, const char *fault, int world)
{
    setenv(FAULT, fault, 1);
    const bool threads = dist_run_threads(named(name), world, world);
    const bool processes = dist_run_processes(named(name), world, world, NULL);
    unsetenv(FAULT);
    assert_true(threads);
    assert_true(processes);
}

TEST(an_asynchronous_error_is_named_by_all)
{
    run_both("async", "async:1:9", 3);
    run_both("async", "async:1:0", 2);
}

TEST(what_hangs_ends_in_time)
{
    run_both("hang", "hang:1:12", 3);
    run_both("start", "init:1:0", 3);
}

TEST(two_ranks_on_one_device_are_refused)
{
    run_both("one_device", "", 2);
}

TEST(a_killed_rank_ends_the_others)
{
    for (int i = 0; i < 4; i++) {
        dist_kill victim = {.victim = 2, .kill_ms = 100 + 30 * i};
        assert_true(dist_run_processes(named("dies"), 3, 3, &victim));
        assert_true(victim.seconds < BOUND_S);
    }
}

int main(int argc, char **argv)
{
    setenv("LEVIN_SIM_DEVICES", "8", 1);
    setenv("LEVIN_SIM_MEMORY", "64MiB", 1);
    setenv("LEVIN_NCCL_LIBRARY", NCCL_ON_SIM, 1);
    /* the file with this function registers the backends */
    if (lvni_cpu_start() != LVN_OK || lvni_kernels_describe() == NULL) {
        return 1;
    }
    dist_rank_main(argc, argv, cases, N_CASES);
    return test_main(argc, argv);
}
