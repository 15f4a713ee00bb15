/* dist_ranks.h: threads, processes, and the hub between processes. */
#include "dist_ranks.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "dist/transport.h"
#include "tensor/ctx.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 64, MAX_CARD = 4096, PATIENCE_S = 40 };

/* ---- memory ---- */

typedef struct dist_taken {
    struct dist_taken *next;
    char bytes[];
} dist_taken;

void *dist_take(dist_rank *me, size_t bytes)
{
    dist_taken *t = calloc(1, sizeof *t + bytes + 1);
    if (t == NULL) {
        abort();
    }
    t->next = me->taken;
    me->taken = t;
    return t->bytes;
}

void dist_give_back(dist_rank *me)
{
    while (me->taken != NULL) {
        dist_taken *next = me->taken->next;
        free(me->taken);
        me->taken = next;
    }
}

/* ---- threads ---- */

typedef struct thread_rank {
    pthread_t thread;
    const dist_case *test;
    dist_rank me;
    bool good;
} thread_rank;

static void *thread_main(void *p)
{
    thread_rank *t = p;
    lvni_tensor_thread_set_ftz();
    t->good = t->test->body(&t->me);
    dist_give_back(&t->me);
    lvni_dist_comm_destroy(t->me.comm);
    return NULL;
}

bool dist_run_threads(const dist_case *c, int world, int arg)
{
    lvni_dist_comm *comm[MAX_RANKS];
    thread_rank rank[MAX_RANKS];
    if (lvni_dist_comm_threads(world, c->check, comm) != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return false;
    }
    for (int r = 0; r < world; r++) {
        rank[r] = (thread_rank){.test = c,
                                .me = {.comm = comm[r], .rank = r, .world = world, .arg = arg}};
        if (pthread_create(&rank[r].thread, NULL, thread_main, &rank[r]) != 0) {
            abort();
        }
    }
    bool good = true;
    for (int r = 0; r < world; r++) {
        pthread_join(rank[r].thread, NULL);
        good = good && rank[r].good;
    }
    return good;
}

/* ---- threads that exchange messages ---- */

/* Where they find each other. */
typedef struct rendezvous {
    pthread_barrier_t barrier;
    char cards[MAX_RANKS * MAX_CARD];
    int host[MAX_RANKS];
} rendezvous;

typedef struct net_rank {
    thread_rank base;
    rendezvous *point;
} net_rank;

static lvn_status exchange_in_memory(void *user, const void *mine, size_t bytes, void *all)
{
    const net_rank *r = user;
    memcpy(r->point->cards + (size_t)r->base.me.rank * bytes, mine, bytes);
    pthread_barrier_wait(&r->point->barrier);
    memcpy(all, r->point->cards, bytes * (size_t)r->base.me.world);
    pthread_barrier_wait(&r->point->barrier);
    return LVN_OK;
}

static bool is_ucx(void)
{
    const char *link = getenv(DIST_LINK);
    return link != NULL && strcmp(link, "ucx") == 0;
}

static lvn_status connect_messages(const lvni_dist_comm_options *o, lvni_dist_comm **out)
{
    return is_ucx() ? lvni_dist_comm_ucx(o, out) : lvni_dist_comm_net(o, out);
}

static const lvni_dist_transport *link_of_nodes(void)
{
    return is_ucx() ? &lvni_dist_transport_ucx : &lvni_dist_transport_net;
}

static void *net_thread_main(void *p)
{
    net_rank *r = p;
    const lvni_dist_comm_options o = {.rank = r->base.me.rank,
                                      .world = r->base.me.world,
                                      .exchange = exchange_in_memory,
                                      .address = "127.0.0.1",
                                      .user = r,
                                      .check = r->base.test->check};
    if (connect_messages(&o, &r->base.me.comm) != LVN_OK) {
        fprintf(stderr, "rank %d: %s\n", o.rank, lvn_last_error()->message);
        return NULL;
    }
    return thread_main(&r->base);
}

bool dist_run_net_threads(const dist_case *c, int world, int arg)
{
    static rendezvous point;
    net_rank rank[MAX_RANKS];
    pthread_barrier_init(&point.barrier, NULL, (unsigned)world);
    for (int r = 0; r < world; r++) {
        rank[r] = (net_rank){
            .base = {.test = c, .me = {.rank = r, .world = world, .arg = arg, .messages = true}},
            .point = &point};
        if (pthread_create(&rank[r].base.thread, NULL, net_thread_main, &rank[r]) != 0) {
            abort();
        }
    }
    bool good = true;
    for (int r = 0; r < world; r++) {
        pthread_join(rank[r].base.thread, NULL);
        good = good && rank[r].base.good;
    }
    pthread_barrier_destroy(&point.barrier);
    return good;
}

/* ---- ranks of several nodes ---- */

/* A rank, or the first of those that are made at once. */
typedef struct levels_rank {
    net_rank base; /* base.me.rank: in the exchange */
    rendezvous *point;
    int threads;
} levels_rank;

static void *levels_thread_main(void *p)
{
    levels_rank *r = p;
    const dist_rank *me = &r->base.base.me;
    const lvni_dist_comm_options o = {.rank = me->rank,
                                      .world = me->world,
                                      .exchange = exchange_in_memory,
                                      .address = "127.0.0.1",
                                      .user = &r->base,
                                      .host = r->point->host,
                                      .check = r->base.base.test->check};
    if (lvni_dist_comm_levels(&o, link_of_nodes(), &r->base.base.me.comm) != LVN_OK) {
        fprintf(stderr, "rank %d: %s\n", o.rank, lvn_last_error()->message);
        return NULL;
    }
    return thread_main(&r->base.base);
}

/* The ranks of a node: all of them, made at once. */
static void *levels_node_main(void *p)
{
    levels_rank *r = p;
    lvni_dist_comm *comm[MAX_RANKS];
    thread_rank rank[MAX_RANKS];
    const dist_rank *me = &r->base.base.me;
    const lvni_dist_comm_options o = {.rank = me->rank,
                                      .world = me->world,
                                      .exchange = exchange_in_memory,
                                      .address = "127.0.0.1",
                                      .user = &r->base,
                                      .check = r->base.base.test->check};
    if (lvni_dist_comm_levels_threads(&o, link_of_nodes(), r->threads, comm) != LVN_OK) {
        fprintf(stderr, "node %d: %s\n", o.rank, lvn_last_error()->message);
        return NULL;
    }
    for (int i = 0; i < r->threads; i++) {
        rank[i] = r->base.base;
        rank[i].me.comm = comm[i];
        rank[i].me.rank = me->first[o.rank] + i;
        rank[i].me.world = me->first[o.world];
        if (pthread_create(&rank[i].thread, NULL, thread_main, &rank[i]) != 0) {
            abort();
        }
    }
    r->base.base.good = true;
    for (int i = 0; i < r->threads; i++) {
        pthread_join(rank[i].thread, NULL);
        r->base.base.good = r->base.base.good && rank[i].good;
    }
    return NULL;
}

bool dist_run_levels(const dist_case *c, const int *first, int nodes, bool threads, int arg)
{
    static rendezvous point;
    levels_rank rank[MAX_RANKS];
    const int n = threads ? nodes : first[nodes];
    pthread_barrier_init(&point.barrier, NULL, (unsigned)n);
    for (int node = 0; node < nodes; node++) {
        for (int r = first[node]; r < first[node + 1]; r++) {
            point.host[r] = 100 - node;
        }
    }
    for (int r = 0; r < n; r++) {
        rank[r] = (levels_rank){.base = {.base = {.test = c,
                                                  .me = {.rank = r,
                                                         .world = n,
                                                         .arg = arg,
                                                         .messages = true,
                                                         .first = first,
                                                         .nodes = nodes}},
                                         .point = &point},
                                .point = &point,
                                .threads = threads ? first[r + 1] - first[r] : 1};
        if (pthread_create(&rank[r].base.base.thread, NULL,
                           threads ? levels_node_main : levels_thread_main, &rank[r]) != 0) {
            abort();
        }
    }
    bool good = true;
    for (int r = 0; r < n; r++) {
        pthread_join(rank[r].base.base.thread, NULL);
        good = good && rank[r].base.base.good;
    }
    pthread_barrier_destroy(&point.barrier);
    return good;
}

bool dist_run_self(const dist_case *c, int arg)
{
    dist_rank me = {.world = 1, .arg = arg};
    if (lvni_dist_comm_self(&me.comm) != LVN_OK) {
        return false;
    }
    lvni_tensor_thread_set_ftz();
    const bool good = c->body(&me);
    dist_give_back(&me);
    lvni_dist_comm_destroy(me.comm);
    return good;
}

/* ---- processes ---- */

static bool all_bytes(int fd, const void *data, size_t bytes, bool out)
{
    char *p;
    memcpy(&p, &data, sizeof p); /* of a const object only read */
    for (size_t at = 0; at < bytes;) {
        const ssize_t n =
            out ? send(fd, p + at, bytes - at, MSG_NOSIGNAL) : recv(fd, p + at, bytes - at, 0);
        if (n <= 0 && errno != EINTR) {
            return false;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* A rank's side of the hub: send mine, get all. */
static lvn_status exchange(void *user, const void *mine, size_t bytes, void *all)
{
    const dist_rank *me = user;
    char card[MAX_CARD];
    memcpy(card, mine, bytes);
    const uint64_t size = bytes;
    uint64_t head = size;
    if (!all_bytes(me->arg, &head, sizeof head, true) || !all_bytes(me->arg, card, bytes, true) ||
        !all_bytes(me->arg, all, bytes * (size_t)me->world, false)) {
        LVN_FAIL(LVN_ERR_PEER, "the hub is gone");
    }
    return LVN_OK;
}

/* The last rank may open no more files: no rank gets a communicator, and the error of each names
 * it. */
static bool starve(const lvni_dist_comm_options *o)
{
    const int last = o->world - 1;
    char fault[64];
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    snprintf(fault, sizeof fault, "rank %d cannot share memory", last);
    if (o->rank == last) {
        const struct rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
        setrlimit(RLIMIT_NOFILE, &none);
        snprintf(fault, sizeof fault, "cannot open the memory of rank");
    }
    dist_rank me = {.rank = o->rank, .world = o->world};
    const lvn_status status = lvni_dist_comm_shm(o, &me.comm);
    setrlimit(RLIMIT_NOFILE, &before);
    RANK_CHECK(&me, status == LVN_ERR_IO, "status %d without files", (int)status);
    RANK_CHECK(&me, strstr(lvn_last_error()->message, fault) != NULL,
               "the error does not name '%s'", fault);
    return me.comm == NULL;
}

const dist_case *dist_find(const dist_case *cases, int n_cases, const char *name)
{
    for (int i = 0; i < n_cases; i++) {
        if (strcmp(cases[i].name, name) == 0) {
            return &cases[i];
        }
    }
    return NULL;
}

void dist_rank_main(int argc, char **argv, const dist_case *cases, int n_cases)
{
    if (argc != 7 || strcmp(argv[1], "--rank") != 0) {
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    lvni_tensor_thread_set_ftz();
    dist_rank me = {.rank = atoi(argv[2]), .world = atoi(argv[3]), .arg = atoi(argv[5])};
    dist_rank hub = me;
    hub.arg = atoi(argv[6]);
    int host[MAX_RANKS];
    for (int r = 0; r < MAX_RANKS; r++) {
        host[r] = r;
    }
    me.hosts = getenv(DIST_HOSTS) != NULL;
    const char *levels = getenv(DIST_TWO_LEVELS);
    int first[3] = {0, levels != NULL ? atoi(levels) : 0, me.world};
    for (int r = 0; levels != NULL && r < MAX_RANKS; r++) {
        host[r] = r >= first[1];
        me.first = first;
        me.nodes = 2;
    }
    const dist_case *c = dist_find(cases, n_cases, argv[4]);
    if (c == NULL) {
        _exit(4);
    }
    const lvni_dist_comm_options o = {.rank = me.rank,
                                      .world = me.world,
                                      .exchange = exchange,
                                      .address = "127.0.0.1",
                                      .user = &hub,
                                      .host = me.hosts || levels != NULL ? host : NULL,
                                      .check = c->check};
    if (c->body == NULL) {
        exit(starve(&o) ? 0 : 1);
    }
    me.messages = getenv(DIST_LINK) != NULL;
    const lvn_status made = levels != NULL ? lvni_dist_comm_levels(&o, link_of_nodes(), &me.comm)
                            : me.messages  ? connect_messages(&o, &me.comm)
                                           : lvni_dist_comm_shm(&o, &me.comm);
    const uint64_t no_more = 0;
    if (made != LVN_OK || !all_bytes(hub.arg, &no_more, sizeof no_more, true)) {
        fprintf(stderr, "rank %d: %s\n", me.rank, lvn_last_error()->message);
        _exit(3);
    }
    const bool good = c->body(&me);
    dist_give_back(&me);
    lvni_dist_comm_destroy(me.comm);
    exit(good ? 0 : 1);
}

static pid_t start_rank(const dist_case *c, int rank, int world, int arg, int fd)
{
    char r[16], w[16], a[16], f[16];
    snprintf(r, sizeof r, "%d", rank);
    snprintf(w, sizeof w, "%d", world);
    snprintf(a, sizeof a, "%d", arg);
    snprintf(f, sizeof f, "%d", fd);
    const pid_t pid = fork();
    if (pid == 0) {
        fcntl(fd, F_SETFD, 0); /* its end of the hub goes with it, the others' do not */
        execl("/proc/self/exe", "rank", "--rank", r, w, c->name, a, f, (char *)NULL);
        _exit(5);
    }
    return pid;
}

/* Collects one card of every rank and sends all to each. false: the ranks are connected, or one is
 * gone. */
static bool serve_once(const int *fd, int world)
{
    char *all = calloc((size_t)world, MAX_CARD);
    uint64_t bytes = 0;
    bool good = all != NULL;
    for (int r = 0; r < world && good; r++) {
        good = all_bytes(fd[r], &bytes, sizeof bytes, false) && bytes > 0 && bytes <= MAX_CARD &&
               all_bytes(fd[r], all + (size_t)r * bytes, bytes, false);
    }
    for (int r = 0; r < world && good; r++) {
        good = all_bytes(fd[r], all, bytes * (size_t)world, true);
    }
    free(all);
    return good;
}

static bool collect(const pid_t *pid, int world, int victim)
{
    const uint64_t start = lvni_core_now_ns();
    bool good = true, over[MAX_RANKS] = {false};
    for (int left = world; left > 0;) {
        for (int r = 0; r < world; r++) {
            int status;
            if (over[r] || waitpid(pid[r], &status, WNOHANG) != pid[r]) {
                continue;
            }
            over[r] = true;
            left--;
            if (r != victim && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
                fprintf(stderr, "rank %d ended with %s %d\n", r,
                        WIFEXITED(status) ? "exit code" : "signal",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
                good = false;
            }
        }
        if (lvni_core_seconds_since(start) > PATIENCE_S) {
            fprintf(stderr, "%d ranks still run after %d s\n", left, PATIENCE_S);
            for (int r = 0; r < world; r++) {
                if (!over[r]) {
                    kill(pid[r], SIGKILL);
                    waitpid(pid[r], NULL, 0);
                }
            }
            return false;
        }
        usleep(1000);
    }
    return good;
}

bool dist_run_processes(const dist_case *c, int world, int arg, dist_kill *victim)
{
    int pair[MAX_RANKS][2];
    int hub[MAX_RANKS];
    pid_t pid[MAX_RANKS];
    for (int r = 0; r < world; r++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair[r]) != 0) {
            abort();
        }
    }
    for (int r = 0; r < world; r++) {
        pid[r] = start_rank(c, r, world, arg, pair[r][1]);
    }
    for (int r = 0; r < world; r++) {
        close(pair[r][1]);
        hub[r] = pair[r][0];
    }
    while (serve_once(hub, world)) {
    }
    bool good = true;
    uint64_t killed_ns = 0;
    if (victim != NULL) {
        usleep((useconds_t)victim->kill_ms * 1000);
        killed_ns = lvni_core_now_ns();
        kill(pid[victim->victim], SIGKILL);
    }
    good = collect(pid, world, victim != NULL ? victim->victim : -1) && good;
    if (victim != NULL) {
        victim->seconds = lvni_core_seconds_since(killed_ns);
    }
    for (int r = 0; r < world; r++) {
        close(hub[r]);
    }
    return good;
}
