/* The rendezvous: the table that all ranks get, and the error when a rank is missing or does not
 * fit. */
#include "control_support.h"

#include "control/message.h"
#include "control/rdzv_file.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- The table ---- */

TEST(every_rank_gets_the_table)
{
    static const char *const hosts[] = {"n1", "n0", "n1", "n0", "n2"};
    /* the same name on another host is another device */
    static const char *const devices[] = {"GPU-a", "GPU-a", "GPU-b", "", ""};
    group g;
    group_init(&g, 5);
    g.keep = true;
    for (int r = 0; r < 5; r++) {
        g.ranks[r].facts.host = hosts[r];
        g.ranks[r].facts.boot_id = hosts[r];
        g.ranks[r].facts.device = devices[r];
        g.ranks[r].facts.cpus = 10 + r;
        g.ranks[r].facts.pid = 100 + r;
        g.ranks[r].facts.resume_step = 7;
        g.ranks[r].facts.config = "lr: 0.1\nbatch_size: 64\n";
        g.ranks[r].facts.fingerprint = r == 3 ? "old cpu" : "new cpu";
    }
    group_run(&g);
    static const int local[] = {0, 0, 1, 1, 0}, node[] = {0, 1, 0, 1, 2},
                     locals[] = {2, 2, 2, 2, 1};
    for (int r = 0; r < 5; r++) {
        assert_int_equal(g.ranks[r].status, LVN_OK);
        assert_int_equal(lvni_control_world(g.ranks[r].control), 5);
        const lvni_control_member *m = lvni_control_members(g.ranks[r].control);
        if (m == NULL) {
            fail();
            return;
        }
        for (int q = 0; q < 5; q++) {
            assert_int_equal(m[q].rank, q);
            assert_int_equal(m[q].local_rank, local[q]);
            assert_int_equal(m[q].local_world, locals[q]);
            assert_int_equal(m[q].node_rank, node[q]);
            assert_int_equal(m[q].host_index, node[q]);
            assert_int_equal(m[q].cpus, 10 + q);
            assert_int_equal(m[q].pid, 100 + q);
            assert_string_equal(m[q].host, hosts[q]);
            assert_string_equal(m[q].device, devices[q]);
            assert_string_equal(m[q].fingerprint, q == 3 ? "old cpu" : "new cpu");
        }
    }
    group_end(&g);
}

TEST(numbers_that_are_known_are_kept)
{
    group g;
    group_init(&g, 4); /* two launchers on one host: two nodes, one boot id */
    g.keep = true;
    for (int r = 0; r < 4; r++) {
        g.ranks[r].facts.node_rank = 1 - r / 2;
        g.ranks[r].facts.local_rank = r % 2;
    }
    group_run(&g);
    const lvni_control_member *m = lvni_control_members(g.ranks[2].control);
    if (m == NULL) {
        fail();
        return;
    }
    for (int r = 0; r < 4; r++) {
        assert_int_equal(m[r].node_rank, 1 - r / 2);
        assert_int_equal(m[r].local_rank, r % 2);
        assert_int_equal(m[r].local_world, 2);
        assert_int_equal(m[r].host_index, 0);
    }
    group_end(&g);
}

/* ---- Who does not fit ---- */

static void run_and_fail(group *g, lvn_status code, lvni_core_exit_code exit_code,
                         const char *first, const char *second, const char *third)
{
    group_run(g);
    for (int r = 0; r < g->world; r++) {
        ASSERT_ERROR_HAS(&g->ranks[r].error, code, first, second, third);
        assert_int_equal(lvni_core_exit_of_error(&g->ranks[r].error), exit_code);
    }
    group_end(g);
}

TEST(different_configurations_are_reported_by_key)
{
    group g;
    group_init(&g, 3);
    g.ranks[0].facts.config = "lr: 0.1\nbatch_size: 64\ndata:\n  - a\n  - b\nseed: 1\n";
    g.ranks[1].facts.config = g.ranks[0].facts.config;
    g.ranks[2].facts.config = "lr: 0.1\nbatch_size: 32\ndata:\n  - a\n  - c\nextra: yes\nseed: 1\n";
    run_and_fail(&g, LVN_ERR_USAGE, LVNI_EXIT_USAGE,
                 "E117: ", "batch_size: 64 / 32; data: - a - b / - a - c; extra: not there / yes\n",
                 " / rank 2 (");
}

TEST(different_versions_and_steps_are_reported)
{
    group g;
    group_init(&g, 2);
    g.ranks[1].facts.version = "0.0.9";
    g.ranks[1].facts.host = "n07";
    run_and_fail(&g, LVN_ERR_USAGE, LVNI_EXIT_USAGE, "E116: ", "rank 1 (n07): 0.0.9", "fix:");
    group_init(&g, 2);
    g.ranks[0].facts.resume_step = 400;
    run_and_fail(&g, LVN_ERR_USAGE, LVNI_EXIT_USAGE, "E118: ", "step 400", "step -1");
}

TEST(one_device_for_two_ranks_is_reported)
{
    group g;
    group_init(&g, 3);
    for (int r = 0; r < 3; r++) {
        g.ranks[r].facts.device = r == 0 ? "GPU-0" : "GPU-1";
    }
    run_and_fail(&g, LVN_ERR_RESOURCE, LVNI_EXIT_RESOURCE, "E105: ", "ranks 1 and 2", "GPU-1");
    group_init(&g, 3);
    for (int r = 0; r < 3; r++) {
        g.ranks[r].facts.device = "GPU-1";
    }
    g.store_options.allow_shared_device = true;
    group_run(&g);
    assert_int_equal(g.ranks[1].status, LVN_OK);
    group_end(&g);
}

TEST(one_place_for_two_ranks_is_reported)
{
    group g;
    group_init(&g, 2);
    for (int r = 0; r < 2; r++) {
        g.ranks[r].facts.node_rank = g.ranks[r].facts.local_rank = 0;
    }
    run_and_fail(&g, LVN_ERR_USAGE, LVNI_EXIT_USAGE, "E102: ", "rank 0", "rank 1");
}

/* ---- Who is missing ---- */

TEST(missing_ranks_are_named_by_node)
{
    static const char *const hosts[] = {"n08", "n08", "n09", "n09", "n09", "n08"};
    group g;
    group_init(&g, 6);
    g.store_options.rank_hosts = hosts;
    g.store_options.rdzv_timeout_s = 0.5;
    g.store_options.waiting_first_s = 0.1;
    g.store_options.waiting_every_s = 0.1;
    g.skip[1] = g.skip[2] = g.skip[3] = g.skip[5] = true;
    group_run(&g);
    static const int here[] = {0, 4};
    for (int i = 0; i < 2; i++) {
        const lvn_error *error = &g.ranks[here[i]].error;
        ASSERT_ERROR_HAS(error, LVN_ERR_TIMEOUT,
                         "E113: ", "ranks 1,5 (node n08), 2-3 (node n09) missing; 2 of 6 present",
                         "reach 127.0.0.1, port ");
        assert_int_equal(lvni_core_exit_of_error(error), LVNI_EXIT_RENDEZVOUS);
    }
    group_end(&g);
    assert_non_null(
        strstr(g.lines, "waiting 0 s for ranks 1,5 (node n08), 2-3 (node n09); 2 of 6 present\n"));
    assert_non_null(strchr(strchr(g.lines, '\n') + 1, '\n')); /* a second line followed */
}

TEST(a_rank_that_connects_and_does_nothing_is_missing)
{
    group g;
    group_init(&g, 2);
    g.store_options.rdzv_timeout_s = 0.4;
    g.skip[1] = true;
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    const int port = lvni_control_store_port(g.store);
    lvni_control_options o = g.options;
    lvni_control *c[2] = {NULL, NULL};
    o.world = 2;
    o.ports = &port;
    o.n_ports = 1;
    for (o.rank = 0; o.rank < 2; o.rank++) {
        assert_int_equal(lvni_control_connect(&o, &c[o.rank]), LVN_OK);
    }
    assert_int_equal(lvni_control_rendezvous(c[0], &g.ranks[0].facts), LVN_ERR_TIMEOUT);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_TIMEOUT, "rank 1 missing; 1 of 2 present");
    /* too late */
    assert_int_equal(lvni_control_rendezvous(c[1], &g.ranks[1].facts), LVN_ERR_TIMEOUT);
    o.rank = 0;
    lvni_control *late = NULL;
    assert_int_equal(lvni_control_connect(&o, &late), LVN_ERR_TIMEOUT);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_TIMEOUT, "E113: ");
    lvni_control_destroy(c[0]);
    lvni_control_destroy(c[1]);
    group_end(&g);
}

/* ---- At the door ---- */

static lvn_status connect_as(const group *g, int rank, int world, const char *job,
                             const char *secret, lvni_control **out)
{
    lvni_control_options o = g->options;
    const int port = lvni_control_store_port(g->store);
    o.rank = rank;
    o.world = world;
    o.job_key = job;
    o.secret = secret;
    o.ports = &port;
    o.n_ports = 1;
    o.rdzv_timeout_s = 0.3;
    return lvni_control_connect(&o, out);
}

TEST(strangers_find_no_store)
{
    group g;
    group_init(&g, 2);
    g.store_options.secret = "token";
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    lvni_control *c = NULL;
    assert_int_equal(connect_as(&g, 0, 2, "test", NULL, &c), LVN_ERR_TIMEOUT);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_TIMEOUT, "E114: rank 0", "127.0.0.1",
                     "requires a LEVIN_TOKEN, which is not set here");
    assert_int_equal(lvni_core_exit_of_error(lvn_last_error()), LVNI_EXIT_RENDEZVOUS);
    assert_int_equal(connect_as(&g, 0, 2, "test", "wrong", &c), LVN_ERR_TIMEOUT);
    assert_int_equal(connect_as(&g, 0, 2, "other job", "token", &c), LVN_ERR_TIMEOUT);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_TIMEOUT,
                     "does not accept this rank: it belongs to another run");
    assert_null(c);
    assert_int_equal(connect_as(&g, 0, 2, "test", "token", &c), LVN_OK);
    lvni_control_destroy(c);
    group_end(&g);
}

TEST(another_world_and_a_second_rank_are_reported)
{
    group g;
    lvni_control *c = NULL, *again = NULL;
    group_init(&g, 2);
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    assert_int_equal(connect_as(&g, 0, 3, "test", NULL, &c), LVN_ERR_USAGE);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_USAGE, "E102: ", "rank 0 of world 3", "world 2");
    /* the ranks can never be complete: all hear it */
    assert_int_equal(connect_as(&g, 0, 2, "test", NULL, &c), LVN_ERR_USAGE);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_USAGE, "E102: ");
    group_end(&g);
    group_init(&g, 2);
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    assert_int_equal(connect_as(&g, 1, 2, "test", NULL, &c), LVN_OK);
    assert_int_equal(connect_as(&g, 1, 2, "test", NULL, &again), LVN_ERR_USAGE);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_USAGE, "E115: rank 1 is there twice", "(pid ");
    assert_int_equal(lvni_control_rendezvous(c, &g.ranks[1].facts), LVN_ERR_USAGE);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_USAGE, "E115: ");
    lvni_control_destroy(c);
    group_end(&g);
}

TEST(a_second_rank_does_not_harm_a_running_job)
{
    group g;
    lvni_control *c = NULL;
    group_init(&g, 2);
    g.keep = true;
    group_run(&g);
    assert_int_equal(connect_as(&g, 1, 2, "test", NULL, &c), LVN_ERR_USAGE);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_USAGE, "E115: ");
    assert_int_equal(lvni_control_set(g.ranks[1].control, "k", "v", 1), LVN_OK);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(lvni_control_leave(g.ranks[r].control), LVN_OK);
        assert_int_equal(g.ranks[r].aborts, 0);
    }
    group_end(&g);
    assert_non_null(strstr(g.lines, "E115: rank 1"));
}

TEST(another_protocol_is_reported)
{
    group g;
    group_init(&g, 2);
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    const int fd = raw_connect(lvni_control_store_port(g.store));
    lvni_control_frame_reader in = {.limit = LVNI_FRAME_MAX_GREETING};
    lvni_control_frame frame = {0};
    char bytes[2048];
    for (int turn = 0; turn < 2; turn++) {
        bool have = false;
        while (!have) {
            const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
            assert_true(n > 0);
            assert_int_equal(lvni_control_frame_push(&in, bytes, (size_t)n), LVN_OK);
            assert_int_equal(lvni_control_frame_next(&in, &frame, &have), LVN_OK);
        }
        if (turn == 0) {
            lvni_control_token key, nonce;
            lvni_control_auth how;
            lvni_core_str s = {0};
            lvni_control_greet greet = {.protocol = LVNI_CONTROL_PROTOCOL + 1,
                                        .world = 2,
                                        .rank = 1,
                                        .pid = 4711,
                                        .host = "n09",
                                        .version = "9.9"};
            assert_true(lvni_control_scan_hello(&frame, &nonce, &how));
            assert_int_equal(lvni_control_token_of_run(NULL, "test", NULL, NULL, &key), LVN_OK);
            greet.proof =
                lvni_control_greet_proof(&key, &nonce, &greet, lvni_control_store_port(g.store));
            lvni_control_put_greet(&s, &greet);
            assert_int_equal(send(fd, s.data, s.len, 0), (ssize_t)s.len);
            lvni_core_str_free(&s);
        }
    }
    assert_int_equal(frame.type, LVNI_FRAME_REFUSE);
    assert_non_null(memmem(frame.body, frame.n, "E116: ", 6));
    assert_non_null(
        memmem(frame.body, frame.n, "rank 1 (n09, pid 4711): levin 9.9, protocol 5", 45));
    assert_int_equal(recv(fd, bytes, sizeof bytes, 0), 0); /* and it hangs up */
    close(fd);
    lvni_control_frame_reader_free(&in);
    group_end(&g);
}

TEST(the_silent_and_the_noisy_are_dropped)
{
    group g;
    char bytes[256];
    group_init(&g, 2);
    g.store_options.greeting_timeout_s = 0.2;
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    const int silent = raw_connect(lvni_control_store_port(g.store)),
              noisy = raw_connect(lvni_control_store_port(g.store));
    static const char get[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_int_equal(send(noisy, get, sizeof get - 1, MSG_NOSIGNAL), (ssize_t)sizeof get - 1);
    const uint64_t began = lvni_core_now_ns();
    for (int i = 0; i < 2; i++) {
        ssize_t n = 1;
        while (n > 0) { /* its hello, then the end */
            n = recv(i == 0 ? noisy : silent, bytes, sizeof bytes, 0);
        }
        /* not the 5 s of the socket's own patience */
        assert_true(lvni_core_seconds_since(began) < 4);
    }
    close(silent);
    close(noisy);
    group_end(&g);
}
