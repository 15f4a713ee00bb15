/* Ranks that are lost: killed, stopped or silent ones, and a store that goes with its rank. */
#include "control_support.h"

#include "core/machine.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static lvn_status vanish(group_rank *r)
{
    bool stop = false;
    LVN_TRY(lvni_control_boundary(r->control, 5, &stop));
    LVN_TRY(control_barrier(r->control, "begin", 10));
    if (r->rank == 1) {
        pause_ms(600); /* its heartbeats report its step */
        /* what the others see of a kill: the end of the connection, and no word */
        lvni_control_destroy(r->control);
        r->control = NULL;
        return LVN_OK;
    }
    return control_barrier(r->control, "never", 10);
}

TEST(the_end_of_a_connection_ends_the_run)
{
    group g;
    group_init(&g, 3);
    g.body = vanish;
    g.keep = true;
    g.options.heartbeat_s = 0.05;
    group_run(&g);
    for (int r = 0; r < 3; r += 2) {
        assert_int_equal(g.ranks[r].status, LVN_ERR_PEER);
        assert_true(saw_abort(&g.ranks[r]));
        assert_int_equal(g.ranks[r].cause.rank, 1);
        assert_int_equal(g.ranks[r].cause.kind, LVNI_CAUSE_SIGNAL);
        assert_int_equal(g.ranks[r].cause.step, 5);
        assert_true(g.ranks[r].cause.host[0] != '\0');
        assert_non_null(strstr(g.ranks[r].error.message, "rank 1 ("));
        assert_non_null(strstr(g.ranks[r].error.message, "at step 5: "));
        assert_non_null(strstr(g.ranks[r].error.message, "killed or crashed"));
        assert_true(seconds_between(g.ranks[r].began_ns, g.ranks[r].ended_ns) < 2);
    }
    group_end(&g);
}

/* A rank in a process of its own, which is stopped, continued or killed; rank 0 holds the store, on
 * the socket fd. It writes a byte to `joined` after the first barrier, waits for one from `go`, and
 * ends with 0 after the second, or with 2 where that ends because of `why`. Forked while this
 * process has no other threads. */
typedef struct own_process {
    int port, fd, rank, joined, go;
    double peer_timeout_s;
    const char *why; /* NULL: it does not matter */
    /* its record names another host, and this process there; 0: it is right */
    pid_t elsewhere;
} own_process;

static lvn_status own_main(const own_process *p)
{
    lvni_control_store *store = NULL;
    lvni_control_store_options so;
    lvni_control_options o;
    lvni_control *c = NULL;
    lvni_control_facts facts;
    lvni_control_facts_room room;
    lvni_control_store_options_init(&so);
    lvni_control_options_init(&o);
    so.listen_fd = p->fd;
    so.world = o.world = 2;
    so.heartbeat_s = o.heartbeat_s = 0.1;
    so.peer_timeout_s = o.peer_timeout_s = p->peer_timeout_s;
    so.job_key = o.job_key = "test";
    o.rank = p->rank;
    o.ports = &p->port;
    o.n_ports = 1;
    lvni_control_facts_init(&facts, &room);
    if (p->elsewhere != 0) {
        facts.host = "elsewhere";
        facts.pid = p->elsewhere;
    }
    if (p->fd >= 0) {
        LVN_TRY(lvni_control_store_create(&so, &store));
    }
    LVN_TRY(lvni_control_connect(&o, &c));
    LVN_TRY(lvni_control_rendezvous(c, &facts));
    LVN_TRY(control_barrier(c, "first", 30));
    char byte = 'x';
    if (write(p->joined, &byte, 1) != 1 || read(p->go, &byte, 1) != 1) {
        LVN_FAIL(LVN_ERR_IO, "the test is gone");
    }
    LVN_TRY(control_barrier(c, "second", 30));
    LVN_TRY(lvni_control_leave(c));
    lvni_control_destroy(c);
    if (store != NULL) {
        LVN_TRY(lvni_control_store_wait(store, 10));
    }
    lvni_control_store_destroy(store);
    return LVN_OK;
}

static pid_t own_start(const own_process *p)
{
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60); /* ends whatever becomes of its parent */
        const lvn_status status = own_main(p);
        _exit(status == LVN_OK ? 0
              : status == LVN_ERR_PEER && p->why != NULL &&
                      strstr(lvn_last_error()->message, p->why) != NULL
                  ? 2
                  : 1);
    }
    return pid;
}

static void end_process(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* A stopped process goes on, and learns why the others have not waited for it. */
static void continue_process(pid_t pid, int go)
{
    int status = -1;
    kill(pid, SIGCONT);
    assert_int_equal(write(go, "x", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 2);
}

/* This process is rank `1 - rank` and checks what becomes of `rank`, which gets the signal.
 * `continued`: the message of that one when it is continued. elsewhere: as in own_process. */
static void lose_process(int rank, int signal_number, double peer_timeout_s, const char *why,
                         const char *continued, pid_t elsewhere)
{
    static const int any = 0;
    group g;
    int fd = -1, joined[2], go[2];
    char byte;
    group_init(&g, 2);
    assert_int_equal(pipe(joined), 0);
    assert_int_equal(pipe(go), 0);
    assert_int_equal(lvni_control_store_listen("127.0.0.1", &any, 1, &fd, &g.port), LVN_OK);
    const own_process p = {.port = g.port,
                           .fd = rank == 0 ? fd : -1,
                           .rank = rank,
                           .joined = joined[1],
                           .go = go[0],
                           .peer_timeout_s = peer_timeout_s,
                           .why = continued,
                           .elsewhere = elsewhere};
    const pid_t pid = own_start(&p);
    assert_true(pid > 0);
    if (rank == 0) {
        close(fd);
    } else {
        g.store_options.listen_fd = fd;
        g.store_options.peer_timeout_s = peer_timeout_s;
        g.store_options.heartbeat_s = 0.1;
        assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    }
    lvni_control_options o = g.options;
    lvni_control *c = NULL;
    o.rank = 1 - rank;
    o.world = 2;
    o.ports = &g.port;
    o.n_ports = 1;
    o.heartbeat_s = 0.1;
    o.peer_timeout_s = peer_timeout_s;
    assert_int_equal(lvni_control_connect(&o, &c), LVN_OK);
    assert_int_equal(lvni_control_rendezvous(c, &g.ranks[1 - rank].facts), LVN_OK);
    assert_int_equal(control_barrier(c, "first", 20), LVN_OK);
    assert_int_equal(read(joined[0], &byte, 1), 1);
    assert_false(lvni_control_has_ended(c, rank));
    const uint64_t began = lvni_core_now_ns();
    kill(pid, signal_number);
    assert_int_equal(control_barrier(c, "of this rank alone", 20), LVN_ERR_PEER);
    assert_true(lvni_core_seconds_since(began) < peer_timeout_s + 2);
    lvni_control_cause cause;
    assert_true(lvni_control_get_cause(c, &cause));
    assert_int_equal(cause.rank, rank);
    assert_true(rank == 0 || cause.pid == pid);
    assert_non_null(strstr(cause.message, why));
    for (int i = 0; i < 1000 && signal_number == SIGKILL && !lvni_control_has_ended(c, rank); i++) {
        pause_ms(1); /* its files are closed first */
    }
    assert_int_equal(lvni_control_has_ended(c, rank), signal_number == SIGKILL);
    if (continued != NULL) {
        continue_process(pid, go[1]);
    } else {
        end_process(pid);
    }
    lvni_control_destroy(c);
    group_end(&g);
    for (int i = 0; i < 2; i++) {
        close(joined[i]);
        close(go[i]);
    }
}

/* Ctrl-Z of a whole run, and fg later than peer_timeout_s: all ranks were silent, and none is
 * lost. */
TEST(a_run_that_was_stopped_as_a_whole_goes_on)
{
    static const int any = 0;
    int fd = -1, port = 0, joined[2], go[2], status[2] = {-1, -1};
    char bytes[] = {'g', 'o'};
    pid_t pid[2];
    assert_int_equal(pipe(joined), 0);
    assert_int_equal(pipe(go), 0);
    assert_int_equal(lvni_control_store_listen("127.0.0.1", &any, 1, &fd, &port), LVN_OK);
    for (int r = 0; r < 2; r++) {
        const own_process p = {.port = port,
                               .fd = r == 0 ? fd : -1,
                               .rank = r,
                               .joined = joined[1],
                               .go = go[0],
                               .peer_timeout_s = 1};
        pid[r] = own_start(&p);
        assert_true(pid[r] > 0);
    }
    close(fd);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(read(joined[0], &bytes[i], 1), 1);
    }
    kill(pid[0], SIGSTOP);
    kill(pid[1], SIGSTOP);
    pause_ms(1600);
    kill(pid[0], SIGCONT);
    kill(pid[1], SIGCONT);
    pause_ms(300); /* time to take the other for lost */
    assert_int_equal(write(go[1], bytes, 2), 2);
    for (int r = 0; r < 2; r++) {
        waitpid(pid[r], &status[r], 0);
    }
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
    for (int i = 0; i < 2; i++) {
        close(joined[i]);
        close(go[i]);
    }
}

TEST(a_killed_process_is_named)
{
    lose_process(1, SIGKILL, 10, "killed or crashed", NULL, 0);
    lose_process(0, SIGKILL, 10,
                 "the store in its process is lost: its connection ended unexpectedly", NULL, 0);
}

/* The process of its number here is another one: active, or long gone. */
TEST(a_process_of_another_host_is_judged_by_its_connection)
{
    const pid_t gone = fork();
    if (gone == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    lose_process(1, SIGKILL, 10, "killed or crashed", NULL, getpid());
    lose_process(0, SIGKILL, 10, "its connection ended unexpectedly", NULL, getpid());
    lose_process(1, SIGKILL, 10, "killed or crashed", NULL, gone);
    lose_process(1, SIGSTOP, 1.5, "nothing was heard from it for 1.5 s",
                 "failed first: nothing was heard from it for 1.5 s", gone);
    lose_process(0, SIGSTOP, 1.5, "nothing was heard from it for 1.5 s", NULL, gone);
}

TEST(a_stopped_process_is_named_when_its_time_is_over)
{
    lose_process(1, SIGSTOP, 1.5, "nothing was heard from it for 1.5 s",
                 "failed first: nothing was heard from it for 1.5 s", 0);
    lose_process(0, SIGSTOP, 1.5, "nothing was heard from it for 1.5 s", NULL, 0);
}

static lvn_status store_goes_away(group_rank *r)
{
    LVN_TRY(control_barrier(r->control, "begin", 10));
    if (r->rank == 0) {
        pause_ms(50);
        lvni_control_store_destroy(r->g->store); /* its process ends */
        r->g->store = NULL;
        return LVN_OK;
    }
    return control_barrier(r->control, "never", 10);
}

TEST(a_lost_store_names_its_rank)
{
    group g;
    group_init(&g, 3);
    g.body = store_goes_away;
    g.keep = true;
    group_run(&g);
    for (int r = 1; r < 3; r++) {
        assert_int_equal(g.ranks[r].status, LVN_ERR_PEER);
        assert_true(saw_abort(&g.ranks[r]));
        assert_int_equal(g.ranks[r].cause.rank, 0);
        assert_non_null(strstr(g.ranks[r].error.message, "rank 0 ("));
        assert_non_null(strstr(g.ranks[r].error.message, "the store in its process is lost"));
    }
    group_end(&g);
}

static lvn_status lost_in_rendezvous(group_rank *r)
{
    (void)r;
    return LVN_OK;
}

/* Killed before all have come: the others do not wait for the time-out. */
TEST(a_rank_that_dies_at_the_rendezvous_is_named)
{
    group g;
    group_init(&g, 3);
    g.body = lost_in_rendezvous;
    g.skip[1] = true;
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    const int port = lvni_control_store_port(g.store);
    lvni_control *c[2] = {NULL, NULL};
    lvni_control_options o = g.options;
    o.world = 3;
    o.ports = &port;
    o.n_ports = 1;
    for (int i = 0; i < 2; i++) {
        o.rank = i;
        assert_int_equal(lvni_control_connect(&o, &c[i]), LVN_OK);
    }
    int64_t n = 0;
    assert_int_equal(lvni_control_add(c[1], "here", 1, &n), LVN_OK); /* the store has heard it */
    lvni_control_destroy(c[1]);
    const uint64_t began = lvni_core_now_ns();
    assert_int_equal(lvni_control_rendezvous(c[0], &g.ranks[0].facts), LVN_ERR_PEER);
    assert_non_null(strstr(lvn_last_error()->message, "rank 1 ("));
    assert_true(lvni_core_seconds_since(began) < 10); /* not the 20 s of a rendezvous */
    o.rank = 2; /* who comes when all is over hears it at once */
    assert_int_equal(lvni_control_connect(&o, &c[1]), LVN_OK);
    assert_int_equal(lvni_control_rendezvous(c[1], &g.ranks[2].facts), LVN_ERR_PEER);
    lvni_control_destroy(c[0]);
    lvni_control_destroy(c[1]);
    group_end(&g);
}
