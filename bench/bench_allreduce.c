/* All-reduce of floats between processes of one node, 1 KB to 256 MB: levin's shm against Open MPI
 * (where mpicc and mpirun are) and Gloo (where /usr/bin/python3 has torch), in turns, so that what
 * else the machine does meets all alike. Time of one: from a barrier to the end of the slowest
 * rank; of a size: the median; printed: the medians of the turns, and the ratio's median with the
 * least and largest.
 *
 * usage: bench_allreduce [TURNS [MOST_BYTES]]     exit 1 when levin is not quicker at every size,
 *   or not 4 times Open MPI at 128 MB */
#include "bench_support.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "dist/reduction.h"
#include "kernels/flat.h"
#include "tensor/ctx.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LEAST_BYTES = 1024,
    SIZES = 19,
    MOST_TIMES = 400,
    LEAST_TIMES = 7,
    MOST_TURNS = 15,
    MOST_RANKS = 16,
    CARD = 256
};
static const double budget_s = 0.15; /* for one size */

/* ---- levin's ranks ---- */

/* Where ranks of one job find each other: memory that they inherit. */
typedef struct group_sync {
    _Atomic int there[2];
    char card[2][MOST_RANKS][CARD];
} group_sync;

typedef struct guest {
    group_sync *m;
    int rank, world, round;
} guest;

static lvn_status meet(void *user, const void *mine, size_t bytes, void *all)
{
    guest *g = user;
    char *cards = g->m->card[g->round][0];
    memcpy(cards + (size_t)g->rank * bytes, mine, bytes);
    atomic_fetch_add(&g->m->there[g->round], 1);
    while (atomic_load(&g->m->there[g->round]) < g->world) {
        usleep(100);
    }
    memcpy(all, cards, bytes * (size_t)g->world);
    g->round++;
    return LVN_OK;
}

/* Each rank to a core of its own where there are enough: what levin launch does, and mpirun for two
 * ranks. */
static void bind_rank(int rank, int world)
{
    cpu_set_t may, one;
    if (bench_cores() < world || sched_getaffinity(0, sizeof may, &may) != 0) {
        return;
    }
    CPU_ZERO(&one);
    for (size_t core = 0, n = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &may) && n++ == (size_t)rank) {
            CPU_SET(core, &one);
        }
    }
    (void)sched_setaffinity(0, sizeof one, &one);
}

typedef enum way { WAY_PLAIN, WAY_SHARED, WAY_REDUCTION } way;

/* The gradient of a step, as the trainer adds it: one set per rank, buckets of 1 MB, the norm's
 * sums on the way. */
typedef struct gradient {
    lvni_dist_reduction *r;
    lvni_plan_tree_node leaf;
} gradient;

static lvn_status open_gradient(lvni_dist_comm *comm, size_t bytes, gradient *out)
{
    const int64_t n = (int64_t)(bytes / sizeof(float));
    const lvni_dist_reduction_options o = {.micro_batches = lvni_dist_comm_world(comm),
                                           .sets = 1,
                                           .n = n,
                                           .n_norm = n,
                                           .bucket = 1 << 18,
                                           .sumsq = lvni_kernels_flat_block_sumsq};
    out->leaf = (lvni_plan_tree_node){lvni_dist_comm_rank(comm), lvni_dist_comm_rank(comm) + 1, 0};
    LVN_TRY(lvni_dist_reduction_create(comm, &o, &out->r));
    float *set = lvni_dist_reduction_set(out->r, 0);
    for (int64_t i = 0; i < n; i++) {
        set[i] = 1e-3f * (float)(i % 1000);
    }
    return LVN_OK;
}

static lvn_status once(lvni_dist_comm *comm, float *x, int64_t n, gradient *g)
{
    if (x != NULL) {
        return lvni_dist_comm_all_reduce(comm, x, x, n, LVN_F32, LVNI_REDUCE_SUM);
    }
    LVN_TRY(lvni_dist_reduction_begin(g->r, &g->leaf, 1));
    return lvni_dist_reduction_finish(g->r, NULL, 0);
}

/* x NULL: a reduction. */
static lvn_status time_size(lvni_dist_comm *comm, float *x, size_t bytes)
{
    static double took[MOST_TIMES], slowest[MOST_TIMES];
    const int64_t n = (int64_t)(bytes / sizeof(float));
    int times = 0, go_on = 1;
    double spent = 0;
    gradient g = {.r = NULL};
    if (x == NULL) {
        LVN_TRY(open_gradient(comm, bytes, &g));
    }
    for (int warm = 0; warm < 2; warm++) {
        LVN_TRY(once(comm, x, n, &g));
    }
    while (go_on != 0) {
        LVN_TRY(lvni_dist_comm_barrier(comm));
        const uint64_t start = lvni_core_now_ns();
        LVN_TRY(once(comm, x, n, &g));
        took[times] = lvni_core_seconds_since(start);
        spent += took[times++];
        go_on = times < LEAST_TIMES || (times < MOST_TIMES && spent < budget_s);
        LVN_TRY(lvni_dist_comm_broadcast(comm, &go_on, sizeof go_on, 0));
    }
    LVN_TRY(lvni_dist_comm_all_reduce(comm, took, slowest, times, LVN_F64, LVNI_REDUCE_MAX));
    lvni_dist_reduction_destroy(g.r);
    if (lvni_dist_comm_rank(comm) == 0) {
        printf("%zu %.3f\n", bytes, bench_median(slowest, times) * 1e6);
        fflush(stdout);
    }
    return LVN_OK;
}

static lvn_status rank_main(guest *g, way how, size_t most)
{
    const lvni_dist_comm_options o = {
        .rank = g->rank, .world = g->world, .exchange = meet, .user = g};
    lvni_dist_comm *comm;
    void *x = NULL;
    lvni_tensor_thread_set_ftz();
    bind_rank(g->rank, g->world);
    LVN_TRY(lvni_dist_comm_shm(&o, &comm));
    if (how == WAY_SHARED) {
        LVN_TRY(lvni_dist_comm_alloc(comm, most, &x));
    } else if (how == WAY_PLAIN) {
        x = lvni_core_alloc(LVNI_TAG_DATA, most);
    }
    for (size_t i = 0; i < most / sizeof(float) && x != NULL; i++) {
        ((float *)x)[i] = 1e-3f * (float)(i % 1000);
    }
    for (size_t bytes = LEAST_BYTES; bytes <= most; bytes *= 2) {
        LVN_TRY(time_size(comm, x, bytes));
    }
    lvni_dist_comm_destroy(comm);
    return LVN_OK;
}

static int job_main(int world, way how, size_t most)
{
    group_sync *m =
        mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int failed = m == MAP_FAILED;
    for (int rank = 0; rank < world && !failed; rank++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            guest g = {.m = m, .rank = rank, .world = world};
            const lvn_status s = rank_main(&g, how, most);
            if (s != LVN_OK) {
                fprintf(stderr, "rank %d: %s\n", rank, lvn_last_error()->message);
            }
            exit(s != LVN_OK);
        }
    }
    for (int status; wait(&status) > 0;) {
        failed = failed || status != 0;
    }
    return failed;
}

/* ---- the comparison ---- */

typedef struct side {
    const char *name;
    char command[768]; /* %d: ranks; prints "bytes microseconds" */
    bool there;
    double us[SIZES][MOST_TURNS];
} side;

static bool take_turn(side *s, int sizes, int turn)
{
    FILE *f = popen(s->command, "r");
    size_t bytes;
    double us;
    int n = 0;
    while (f != NULL && n < sizes && fscanf(f, "%zu %lf", &bytes, &us) == 2) {
        s->us[n++][turn] = us;
    }
    return f != NULL && pclose(f) == 0 && n == sizes;
}

static double ratio(const side *other, const side *us, int size, int turns, double *least,
                    double *most)
{
    double r[MOST_TURNS];
    for (int t = 0; t < turns; t++) {
        r[t] = other->us[size][t] / us->us[size][t];
    }
    const double median = bench_median(r, turns);
    *least = r[0];
    *most = r[turns - 1];
    return median;
}

static void print_ratio(const side *other, const side *us, int size, int turns, double line,
                        bool *good)
{
    double least, most;
    if (!other->there) {
        printf(" %26s", "-");
        return;
    }
    const double r = ratio(other, us, size, turns, &least, &most);
    printf("  %6.2f [%5.2f, %7.2f]%c", r, least, most, r < line ? '!' : ' ');
    *good = *good && r >= line;
}

/* Medians in microseconds by size; 0: not measured. */
static void write_json(FILE *json, const side *sides, int n_sides, int world, int sizes, int turns)
{
    fprintf(json, ",\n  \"ranks_%d\": {\"turns\": %d", world, turns);
    for (int i = 0; i < n_sides; i++) {
        fprintf(json, ",\n    \"%s\": [", sides[i].name);
        for (int k = 0; k < sizes; k++) {
            double copy[MOST_TURNS];
            memcpy(copy, sides[i].us[k], sizeof copy);
            fprintf(json, "%s%.1f", k > 0 ? ", " : "",
                    sides[i].there ? bench_median(copy, turns) : 0.0);
        }
        fprintf(json, "]");
    }
    fprintf(json, "}");
}

static bool compare(int world, int turns, size_t most, FILE *json)
{
    enum { SHARED, PLAIN, REDUCTION, MPI, GLOO, SIDES };
    static side sides[SIDES];
    int sizes = 0;
    bool good = true;
    char self[256] = "";
    (void)!readlink("/proc/self/exe", self, sizeof self - 1);
    for (size_t bytes = LEAST_BYTES; bytes <= most; bytes *= 2) {
        sizes++;
    }
    sides[SHARED] = (side){.name = "levin", .there = true};
    sides[PLAIN] = (side){.name = "levin, plain", .there = true};
    sides[REDUCTION] = (side){.name = "reduction", .there = true};
    sides[MPI] = (side){
        .name = "Open MPI",
        .there = system("command -v mpicc mpirun >/dev/null && mkdir -p out/bench && mpicc -O3 -o "
                        "out/bench/allreduce_mpi " LEVIN_BENCH_DIR "/allreduce_mpi.c") == 0};
    sides[GLOO] =
        (side){.name = "Gloo",
               .there = system("/usr/bin/python3 -c 'import torch.distributed' 2>/dev/null") == 0};
    static const way ways[] = {
        [SHARED] = WAY_SHARED, [PLAIN] = WAY_PLAIN, [REDUCTION] = WAY_REDUCTION};
    for (int i = SHARED; i <= REDUCTION; i++) {
        snprintf(sides[i].command, sizeof sides->command, "%s --job %d %d %zu", self, world,
                 (int)ways[i], most);
    }
    snprintf(sides[MPI].command, sizeof sides->command,
             "mpirun --allow-run-as-root --oversubscribe -np %d out/bench/allreduce_mpi %d %zu %g",
             world, LEAST_BYTES, most, budget_s);
    snprintf(sides[GLOO].command, sizeof sides->command,
             "/usr/bin/python3 " LEVIN_BENCH_DIR "/allreduce_gloo.py %d %d %zu %g", world,
             LEAST_BYTES, most, budget_s);
    for (int t = 0; t < turns; t++) {
        for (int i = 0; i < SIDES; i++) {
            if (sides[i].there && !take_turn(&sides[i], sizes, t)) {
                printf("%s gave no answer\n", sides[i].name);
                sides[i].there = false;
                good = good && i > REDUCTION;
            }
        }
    }
    printf("%d ranks, %d cores, %d turns; microseconds, and how many times levin's (its own "
           "memory) the others need; ! below the line\n",
           world, bench_cores(), turns);
    printf("%12s %12s %12s %12s %12s %12s %26s %26s\n", "bytes", "levin", "plain", "reduction",
           "Open MPI", "Gloo", "Open MPI / levin", "Gloo / levin");
    for (int k = 0; k < sizes; k++) {
        const size_t bytes = (size_t)LEAST_BYTES << k;
        printf("%12zu", bytes);
        for (int i = 0; i < SIDES; i++) {
            double copy[MOST_TURNS];
            memcpy(copy, sides[i].us[k], sizeof copy);
            printf(" %12.1f", sides[i].there ? bench_median(copy, turns) : 0.0);
        }
        print_ratio(&sides[MPI], &sides[SHARED], k, turns,
                    world == 2 && bytes == (size_t)128 << 20 ? 4.0 : 1.0, &good);
        print_ratio(&sides[GLOO], &sides[SHARED], k, turns, 1.0, &good);
        printf("\n");
    }
    fflush(stdout);
    write_json(json, sides, SIDES, world, sizes, turns);
    return good;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--job") == 0) {
        return job_main(atoi(argv[2]), (way)atoi(argv[3]), (size_t)atol(argv[4]));
    }
    int turns = argc > 1 ? atoi(argv[1]) : 3;
    turns = turns < 1 || turns > MOST_TURNS ? 3 : turns;
    const size_t most = argc > 2 ? (size_t)atol(argv[2]) : (size_t)LEAST_BYTES << (SIZES - 1);
    mkdir("out", 0777);
    mkdir("out/bench", 0777);
    FILE *json = fopen("out/bench/allreduce.json", "w");
    if (json == NULL) {
        fprintf(stderr, "bench_allreduce: cannot write out/bench/allreduce.json\n");
        return 1;
    }
    bench_describe(stdout, json);
    (void)bench_used_by_others_s();
    const uint64_t start = lvni_core_now_ns();
    const bool two = compare(2, turns, most, json), four = compare(4, turns, most, json);
    printf("other programs used %.0f %% of the cores, Open MPI's and Gloo's processes among them\n",
           100.0 * bench_used_by_others_s() / lvni_core_seconds_since(start) / bench_cores());
    fprintf(json, "\n}\n");
    return fclose(json) == 0 && two && four ? 0 : 1;
}
