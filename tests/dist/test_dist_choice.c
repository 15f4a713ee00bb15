/* Which transport carries a run's ranks: the best of those that reach all of them. */
#include "dist/choice.h"
#include "dist/transport.h"
#include "dist/ucx/ucx_ports.h"
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static const char *chosen(const lvni_dist_layout *layout, const char *requested)
{
    static lvni_dist_choice choice;
    const lvn_status s = lvni_dist_choose(layout, requested, &choice);
    if (s != LVN_OK) {
        assert_int_equal(s, LVN_ERR_USAGE);
        return lvn_last_error()->message;
    }
    assert_memory_equal(choice.line, "transport ", 10);
    const lvni_dist_transport *t = choice.link != NULL ? choice.link : choice.transport;
    assert_non_null(strstr(choice.line, t->name));
    return choice.line;
}

TEST(the_best_that_reaches_all_ranks_is_taken)
{
    assert_string_equal(
        chosen(&(lvni_dist_layout){.ranks = 4, .hosts = 1, .bytes = 4 * MIB}, "auto"),
        "transport shm: 4 ranks share memory (auto: score 80, net 20, for 4 MiB in host memory)");
    assert_string_equal(
        chosen(&(lvni_dist_layout){.ranks = 4, .hosts = 1, .bytes = 4 * MIB, .device = true},
               "auto"),
        "transport shm: 4 ranks share memory (auto: score 40, net 15, for 4 MiB in device memory)");
    assert_string_equal(
        chosen(&(lvni_dist_layout){.ranks = 4, .hosts = 1, .bytes = MIB, .threads = true}, "auto"),
        "transport shm: 4 ranks share memory (auto: score 80, for 1 MiB in host memory)");
    assert_string_equal(
        chosen(&(lvni_dist_layout){.ranks = 1, .hosts = 1, .bytes = MIB, .device = true}, "auto"),
        "transport self: 1 rank adds in place (auto: score 100, shm 40, net 15, for 1 MiB in "
        "device memory)");
}

/* Of "auto" between hosts, where UCX would be the best: what net's line ends with. */
static const char *with_reason(const char *line)
{
    static char text[512];
    const char *unfit = lvni_dist_transport_ucx.unfit();
    if (unfit == NULL) {
        skip(); /* a machine with InfiniBand: ranks_of_several_hosts_take_what_there_is */
    }
    snprintf(text, sizeof text, "%s; no ucx: %.*s)", line, LVNI_DIST_LACK - 9, unfit);
    return text;
}

TEST(ranks_of_several_nodes_go_in_two_levels)
{
    static const int in_order[] = {3, 3, 7}, scattered[] = {3, 7, 3};
    lvni_dist_layout l = {.ranks = 3, .hosts = 2, .host = in_order, .bytes = MIB};
    assert_string_equal(
        chosen(&l, "auto"),
        with_reason("transport shm+net: 3 ranks on 2 nodes share memory within a node and "
                    "exchange messages between nodes (auto: score 20, for 1 MiB in host memory"));
    assert_string_equal(chosen(&l, "net"),
                        "transport shm+net: 3 ranks on 2 nodes share memory within a node and "
                        "exchange messages between nodes (requested)");
    assert_string_equal(chosen(&l, "shm"),
                        "transport=shm with 3 ranks: they are on several nodes and share no "
                        "memory; use transport=auto");
    l.host = scattered;
    assert_string_equal(
        chosen(&l, "auto"),
        with_reason("transport net: 3 ranks exchange messages, as those of a node do not follow "
                    "each other (auto: score 20, for 1 MiB in host memory"));
    l = (lvni_dist_layout){.ranks = 4, .hosts = 2, .threads = true, .bytes = MIB};
    assert_string_equal(chosen(&l, "net"),
                        "transport shm+net: 4 ranks on 2 nodes share memory within a node and "
                        "exchange messages between nodes (requested)");
}

TEST(a_request_is_taken_or_refused)
{
    assert_string_equal(chosen(&(lvni_dist_layout){.ranks = 2, .hosts = 1}, "net"),
                        "transport net: 2 ranks exchange messages (requested)");
    assert_string_equal(chosen(&(lvni_dist_layout){.ranks = 2, .hosts = 2}, "shm"),
                        "transport=shm with 2 ranks: they are on several nodes and share no "
                        "memory; use transport=auto");
    assert_string_equal(chosen(&(lvni_dist_layout){.ranks = 2, .hosts = 1, .threads = true}, "net"),
                        "transport=net with 2 ranks: it is for processes (strategy=ddp), and these "
                        "are threads of one; use transport=auto");
    assert_string_equal(chosen(&(lvni_dist_layout){.ranks = 100000, .hosts = 1}, "auto"),
                        "transport=auto: there is none for 100000 ranks on 1 node");
}

/* UCX on request where this machine has it, by itself where its network is worth it. */
TEST(ranks_of_several_hosts_take_what_there_is)
{
    static const int apart[] = {0, 1};
    const lvni_dist_layout far = {.ranks = 2, .hosts = 2, .host = apart, .bytes = 4096};
    const char *missing = lvni_dist_transport_ucx.missing();
    lvni_dist_choice c;
    if (missing == NULL) {
        assert_string_equal(chosen(&far, "ucx"),
                            "transport ucx: 2 ranks exchange messages over UCX (requested)");
    } else {
        assert_int_equal(lvni_dist_choose(&far, "ucx", &c), LVN_ERR_NOT_FOUND);
        assert_non_null(strstr(lvn_last_error()->message, missing));
    }
    assert_int_equal(lvni_dist_choose(&far, "auto", &c), LVN_OK);
    if (lvni_dist_transport_ucx.unfit() == NULL) {
        assert_ptr_equal(c.transport, &lvni_dist_transport_ucx);
    } else {
        assert_string_equal(c.line, with_reason("transport net: 2 ranks exchange messages (auto: "
                                                "score 10, for 4 KiB in host memory"));
    }
}

/* ---- a rank that lacks what the others have ---- */

typedef struct agreeing {
    int rank;
    pthread_barrier_t *both;
    char (*cards)[4096];
    lvni_dist_choice choice;
    bool good;
} agreeing;

static lvn_status exchange(void *user, const void *mine, size_t bytes, void *all)
{
    const agreeing *a = user;
    memcpy(a->cards[a->rank], mine, bytes);
    pthread_barrier_wait(a->both);
    for (int rank = 0; rank < 2; rank++) {
        memcpy((char *)all + (size_t)rank * bytes, a->cards[rank], bytes);
    }
    pthread_barrier_wait(a->both);
    return LVN_OK;
}

static void *agree(void *user)
{
    agreeing *a = user;
    const lvni_dist_comm_options o = {
        .rank = a->rank, .world = 2, .exchange = exchange, .address = "127.0.0.1", .user = a};
    lvni_dist_comm *comm = NULL;
    a->good = lvni_dist_choice_connect(&a->choice, &o, &comm) == LVN_OK &&
              lvni_dist_comm_barrier(comm) == LVN_OK;
    lvni_dist_comm_destroy(comm);
    return NULL;
}

/* a: two ranks that "auto" gives UCX, as on machines whose ports are active, and of which rank 1
 * may lack it. */
static void connect_two(agreeing a[2], const char *lack)
{
    static char cards[2][4096];
    pthread_barrier_t both;
    pthread_t thread;
    pthread_barrier_init(&both, NULL, 2);
    for (int rank = 0; rank < 2; rank++) {
        a[rank] = (agreeing){.rank = rank, .both = &both, .cards = cards};
        lvni_dist_choice *c = &a[rank].choice;
        assert_int_equal(
            lvni_dist_choose(&(lvni_dist_layout){.ranks = 2, .hosts = 2, .bytes = MIB}, "auto", c),
            LVN_OK);
        assert_ptr_equal(c->fallback, &lvni_dist_transport_net);
        const bool has = rank == 0 || lack[0] == '\0';
        c->transport = has ? &lvni_dist_transport_ucx : &lvni_dist_transport_net;
        snprintf(c->lack, sizeof c->lack, "%s", has ? "" : lack);
    }
    assert_int_equal(pthread_create(&thread, NULL, agree, &a[1]), 0);
    agree(&a[0]);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&both);
    for (int rank = 0; rank < 2; rank++) {
        assert_true(a[rank].good);
        assert_ptr_equal(a[rank].choice.transport, &lvni_dist_transport_net);
    }
}

TEST(all_fall_back_when_one_lacks_the_best)
{
    agreeing a[2];
    if (lvni_dist_transport_ucx.missing() != NULL) {
        skip();
    }
    connect_two(a, "no ucx: it is not there");
    for (int rank = 0; rank < 2; rank++) {
        assert_string_equal(a[rank].choice.line,
                            "transport net: 2 ranks exchange messages (auto: score 20, for 1 MiB "
                            "in host memory; rank 1 has no ucx: it is not there)");
    }
}

/* Nothing of UCX's reaches another process, or another worker of this one. */
TEST(all_fall_back_when_the_best_does_not_connect)
{
    agreeing a[2];
    if (lvni_dist_transport_ucx.missing() != NULL) {
        skip();
    }
    setenv("UCX_TLS", "self", 1);
    connect_two(a, "");
    unsetenv("UCX_TLS");
    for (int rank = 0; rank < 2; rank++) {
        const char *line = a[rank].choice.line;
        assert_non_null(strstr(line, "transport net: 2 ranks exchange messages (auto: score 20"));
        assert_non_null(strstr(line, "no ucx: rank "));
        assert_non_null(strstr(line, "cannot connect to "));
    }
}

/* A channel between nodes has one rank of each: only their number counts. */
TEST(two_levels_carry_more_ranks_than_a_channel)
{
    enum { RANKS = 2048, HOSTS = 64 };
    static int host[RANKS];
    for (int r = 0; r < RANKS; r++) {
        host[r] = r / (RANKS / HOSTS);
    }
    const lvni_dist_layout l = {.ranks = RANKS, .hosts = HOSTS, .host = host, .bytes = MIB};
    const char *line = chosen(&l, "net");
    assert_non_null(strstr(line, "transport shm+net: 2048 ranks on 64 nodes "));
    assert_non_null(strstr(chosen(&l, "auto"), ": 2048 ranks on 64 nodes "));
    const lvni_dist_layout flat = {.ranks = RANKS, .hosts = HOSTS, .bytes = MIB};
    assert_non_null(strstr(chosen(&flat, "net"), "with 2048 ranks: too many for it"));
}

static lvn_status no_exchange(void *user, const void *mine, size_t bytes, void *all)
{
    (void)user, (void)mine, (void)bytes, (void)all;
    LVN_FAIL(LVN_ERR_INTERNAL, "this is refused before");
}

TEST(ranks_of_two_hosts_share_no_memory)
{
    const int host[] = {0, 0, 1};
    const lvni_dist_comm_options o = {.world = 3, .exchange = no_exchange, .host = host};
    lvni_dist_comm *comm = NULL;
    assert_int_equal(lvni_dist_comm_shm(&o, &comm), LVN_ERR_INVALID);
    assert_null(comm);
    assert_string_equal(lvn_last_error()->message,
                        "ranks 0 and 2 are on two hosts: no memory is shared");
}

static void write_state(const char *folder, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/mlx5_0/ports/1/state", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A folder stands in for the system's: what a kernel with the modules, but no cable, has there. */
TEST(ucx_needs_an_active_port)
{
    static const char *const deeper[] = {"/mlx5_0", "/mlx5_0/ports", "/mlx5_0/ports/1"};
    char folder[] = "/tmp/levin_ports_XXXXXX", path[256];
    assert_non_null(mkdtemp(folder));
    assert_false(lvni_ucx_has_active_port("/nowhere"));
    assert_false(lvni_ucx_has_active_port(folder));
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", folder, deeper[i]);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_false(lvni_ucx_has_active_port(folder));
    }
    write_state(folder, "1: DOWN\n");
    assert_false(lvni_ucx_has_active_port(folder));
    write_state(folder, "4: ACTIVE\n");
    assert_true(lvni_ucx_has_active_port(folder));
    snprintf(path, sizeof path, "%s/mlx5_0/ports/1/state", folder);
    assert_int_equal(unlink(path), 0);
    for (int i = 2; i >= 0; i--) {
        snprintf(path, sizeof path, "%s%s", folder, deeper[i]);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* All calls work over every transport, so none may score 0. */
TEST(every_transport_scores_every_call)
{
    static const char *const names[] = {"self", "shm", "net", "ucx"};
    const size_t n = lvni_dist_transport_ucx.missing() == NULL ? 4 : 3;
    for (size_t i = 0; i < n; i++) {
        lvni_dist_choice c;
        assert_int_equal(
            lvni_dist_choose(&(lvni_dist_layout){.ranks = 1, .hosts = 1}, names[i], &c), LVN_OK);
        assert_string_equal(c.transport->name, names[i]);
        assert_int_not_equal(c.transport->abilities, 0);
        for (int call = 0; call < LVNI_CALL_COUNT; call++) {
            for (int memory = 0; memory < 2; memory++) {
                for (size_t bytes = 1; bytes <= (size_t)1 << 30; bytes *= 1024) {
                    assert_true(c.transport->score((lvni_dist_call_kind)call,
                                                   (lvni_dist_memory)memory, bytes) > 0);
                }
            }
        }
    }
}
