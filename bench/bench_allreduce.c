/* All-reduce of floats between processes of one node: levin's shm, 1 KB to 256 MB, and levin's net
 * and ucx over loopback, 1 KB to 64 MB, against Open MPI (where mpicc and mpirun are) and Gloo
 * (where /usr/bin/python3 has torch), in turns, so that what else the machine does meets all alike.
 * Beside net Open MPI may use TCP alone. Time of one: from a barrier to the end of the slowest
 * rank; of a size: the median; printed: the medians of the turns, and the ratio's median with the
 * least and largest.
 *
 * usage: bench_allreduce [TURNS [MOST_BYTES [shm|net|ucx]]]     exit 1 when levin's shm is not
 * quicker at every size, or not 4 times Open MPI at 128 MB; net is printed and not judged */
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
    CARD = 256,
    ROUNDS = 4
};
static const double budget_s = 0.15; /* for one size */

/* ---- levin's ranks ---- */

/* Where ranks of one job find each other: memory that they inherit. */
typedef struct group_sync {
    _Atomic int there[ROUNDS];
    char card[ROUNDS][MOST_RANKS][CARD];
} group_sync;

typedef struct guest {
    group_sync *m;
    int rank, world, round;
} guest;

static lvn_status meet(void *user, const void *mine, size_t bytes, void *all)
{
    guest *g = user;
    LVN_ARG(g->round < ROUNDS && bytes <= CARD, "ranks exchange more than there is room for");
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

typedef enum way {
    WAY_PLAIN,
    WAY_SHARED,
    WAY_REDUCTION,
    WAY_NET,
    WAY_NET_REDUCTION,
    WAY_UCX,
    WAY_UCX_REDUCTION
} way;

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
        .rank = g->rank, .world = g->world, .exchange = meet, .address = "127.0.0.1", .user = g};
    lvni_dist_comm *comm;
    void *x = NULL;
    lvni_tensor_thread_set_ftz();
    bind_rank(g->rank, g->world);
    LVN_TRY((how >= WAY_UCX   ? lvni_dist_comm_ucx
             : how >= WAY_NET ? lvni_dist_comm_net
                              : lvni_dist_comm_shm)(&o, &comm));
    if (how == WAY_SHARED) {
        LVN_TRY(lvni_dist_comm_alloc(comm, most, &x));
    } else if (how == WAY_PLAIN || how == WAY_NET || how == WAY_UCX) {
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

enum { MOST_SIDES = 5 };
typedef struct side {
    const char *name;
    int way;                     /* of levin; others: -1 */
    const char *installed;       /* shell: exit code 0 where the other program can be had */
    const char *start, *program; /* what stands before and behind the number of ranks */
    bool there;
    double us[SIZES][MOST_TURNS];
} side;

/* The last two sides, Open MPI and Gloo, are divided by the first. */
typedef struct table {
    const char *key, *name; /* in the file, in reports */
    size_t most_bytes;
    double line, line_128mb; /* at least so many times the first; of 2 ranks at 128 MB */
    int n_sides;
    side side[MOST_SIDES];
} table;

#define OPEN_MPI(name_, options)                                                                   \
    {                                                                                              \
        .name = name_, .way = -1, .program = "out/bench/allreduce_mpi",                            \
        .installed = "command -v mpicc mpirun >/dev/null && mkdir -p out/bench && mpicc -O3 -o "   \
                     "out/bench/allreduce_mpi " LEVIN_BENCH_DIR "/allreduce_mpi.c",                \
        .start = "mpirun --allow-run-as-root --oversubscribe " options "-np"                       \
    }
#define GLOO                                                                                       \
    {                                                                                              \
        .name = "Gloo", .way = -1, .program = "",                                                  \
        .installed = "/usr/bin/python3 -c 'import torch.distributed' 2>/dev/null",                 \
        .start = "/usr/bin/python3 " LEVIN_BENCH_DIR "/allreduce_gloo.py"                          \
    }

static table tables[] = {{.key = "",
                          .name = "shm",
                          .most_bytes = (size_t)LEAST_BYTES << (SIZES - 1),
                          .line = 1,
                          .line_128mb = 4,
                          .n_sides = 5,
                          .side = {{.name = "levin", .way = WAY_SHARED},
                                   {.name = "levin, plain", .way = WAY_PLAIN},
                                   {.name = "reduction", .way = WAY_REDUCTION},
                                   OPEN_MPI("Open MPI", ""),
                                   GLOO}},
                         {.key = "net_",
                          .name = "net",
                          .most_bytes = (size_t)64 << 20,
                          .n_sides = 4,
                          .side = {{.name = "net", .way = WAY_NET},
                                   {.name = "reduction", .way = WAY_NET_REDUCTION},
                                   OPEN_MPI("Open MPI TCP", "--mca pml ob1 --mca btl tcp,self "
                                                            "--mca btl_tcp_if_include lo "),
                                   GLOO}},
                         {.key = "ucx_",
                          .name = "ucx",
                          .most_bytes = (size_t)64 << 20,
                          .n_sides = 4,
                          .side = {{.name = "ucx", .way = WAY_UCX},
                                   {.name = "reduction", .way = WAY_UCX_REDUCTION},
                                   OPEN_MPI("Open MPI UCX", "--mca pml ucx --mca pml_ucx_tls any "
                                                            "--mca pml_ucx_devices any "),
                                   OPEN_MPI("Open MPI TCP", "--mca pml ob1 --mca btl tcp,self "
                                                            "--mca btl_tcp_if_include lo ")}}};

static bool take_turn(side *s, int world, size_t most, int sizes, int turn)
{
    char command[768], self[256] = "";
    (void)!readlink("/proc/self/exe", self, sizeof self - 1);
    setenv("UCX_TLS", "tcp,self", 1); /* as between nodes; read by UCX alone */
    setenv("UCX_NET_DEVICES", "lo", 1);
    if (s->way >= 0) {
        snprintf(command, sizeof command, "%s --job %d %d %zu", self, world, s->way, most);
    } else {
        snprintf(command, sizeof command, "%s %d %s %d %zu %g", s->start, world, s->program,
                 LEAST_BYTES, most, budget_s);
    }
    FILE *f = popen(command, "r");
    size_t bytes;
    double us;
    int n = 0;
    while (f != NULL && n < sizes && fscanf(f, "%zu %lf", &bytes, &us) == 2) {
        s->us[n++][turn] = us;
    }
    return f != NULL && pclose(f) == 0 && n == sizes;
}

/* false: a side of levin's gave no answer. */
static bool take_turns(table *t, int world, size_t most, int sizes, int turns)
{
    bool good = true;
    for (int i = 0; i < t->n_sides; i++) {
        side *s = &t->side[i];
        s->there = s->way >= 0 || system(s->installed) == 0;
    }
    for (int turn = 0; turn < turns; turn++) {
        for (int i = 0; i < t->n_sides; i++) {
            side *s = &t->side[i];
            if (s->there && !take_turn(s, world, most, sizes, turn)) {
                printf("%s gave no answer\n", s->name);
                s->there = false;
                good = good && s->way < 0;
            }
        }
    }
    return good;
}

static double median_us(const side *s, int size, int turns)
{
    double copy[MOST_TURNS];
    memcpy(copy, s->us[size], sizeof copy);
    return s->there ? bench_median(copy, turns) : 0.0;
}

/* false: below the line. */
static bool print_ratio(const side *other, const side *us, int size, int turns, double line)
{
    double r[MOST_TURNS];
    if (!other->there || !us->there) {
        printf(" %27s", "-");
        return true;
    }
    for (int t = 0; t < turns; t++) {
        r[t] = other->us[size][t] / us->us[size][t];
    }
    const double median = bench_median(r, turns);
    printf("  %6.2f [%5.2f, %7.2f]%c ", median, r[0], r[turns - 1], median < line ? '!' : ' ');
    return median >= line;
}

/* Medians in microseconds by size; 0: not measured. */
static void write_json(FILE *json, const table *t, int world, int sizes, int turns)
{
    fprintf(json, ",\n  \"%sranks_%d\": {\"turns\": %d", t->key, world, turns);
    for (int i = 0; i < t->n_sides; i++) {
        fprintf(json, ",\n    \"%s\": [", t->side[i].name);
        for (int k = 0; k < sizes; k++) {
            fprintf(json, "%s%.1f", k > 0 ? ", " : "", median_us(&t->side[i], k, turns));
        }
        fprintf(json, "]");
    }
    fprintf(json, "}");
}

static bool compare(table *t, int world, int turns, size_t most, FILE *json)
{
    const side *first = t->side, *last = &t->side[t->n_sides - 1];
    int sizes = 0;
    most = most < t->most_bytes ? most : t->most_bytes;
    for (size_t bytes = LEAST_BYTES; bytes <= most; bytes *= 2) {
        sizes++;
    }
    bool good = take_turns(t, world, most, sizes, turns);
    printf("%s: %d ranks, %d cores, %d turns; microseconds, and how many times those of %s the "
           "others need%s\n%12s",
           t->name, world, bench_cores(), turns, first->name,
           t->line > 0 ? "; ! below the line" : "", "bytes");
    for (int i = 0; i < t->n_sides; i++) {
        printf(" %12s", t->side[i].name);
    }
    printf(" %18s / %-5s %18s / %-5s\n", last[-1].name, first->name, last->name, first->name);
    for (int k = 0; k < sizes; k++) {
        const size_t bytes = (size_t)LEAST_BYTES << k;
        const bool large = world == 2 && bytes == (size_t)128 << 20;
        printf("%12zu", bytes);
        for (int i = 0; i < t->n_sides; i++) {
            printf(" %12.1f", median_us(&t->side[i], k, turns));
        }
        good = print_ratio(&last[-1], first, k, turns, large ? t->line_128mb : t->line) && good;
        good = print_ratio(last, first, k, turns, t->line) && good;
        printf("\n");
    }
    fflush(stdout);
    write_json(json, t, world, sizes, turns);
    return good;
}

static bool compare_all(int turns, size_t most, const char *only, FILE *json)
{
    bool good = true;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        for (int world = 2; world <= 4; world += 2) {
            if (only == NULL || strcmp(only, tables[i].name) == 0) {
                good = compare(&tables[i], world, turns, most, json) && good;
            }
        }
    }
    return good;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--job") == 0) {
        return job_main(atoi(argv[2]), (way)atoi(argv[3]), (size_t)atol(argv[4]));
    }
    int turns = argc > 1 ? atoi(argv[1]) : 3;
    turns = turns < 1 || turns > MOST_TURNS ? 3 : turns;
    const size_t most = argc > 2 ? (size_t)atol(argv[2]) : tables[0].most_bytes;
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
    const bool good = compare_all(turns, most, argc > 3 ? argv[3] : NULL, json);
    printf("other programs used %.0f %% of the cores, Open MPI's and Gloo's processes among them\n",
           100.0 * bench_used_by_others_s() / lvni_core_seconds_since(start) / bench_cores());
    fprintf(json, "\n}\n");
    return fclose(json) == 0 && good ? 0 : 1;
}
