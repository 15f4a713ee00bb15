/* How ranks find the store: the ports it takes, the file that has its address, and what is reported
 * while there is none. */
#include "control_support.h"

#include "control/rdzv_file.h"
#include "core/error.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Ports ---- */

TEST(a_busy_port_names_its_owner)
{
    static const int any = 0;
    int fd = -1, port = 0, other = -1, ports[2];
    assert_int_equal(lvni_control_store_listen("127.0.0.1", &any, 1, &fd, &port), LVN_OK);
    assert_true(port > 0);
    char pid[32];
    snprintf(pid, sizeof pid, "pid %d (", (int)getpid());
    ports[0] = port;
    ports[1] = 0;
    assert_int_equal(lvni_control_store_listen("127.0.0.1", ports, 1, &other, &ports[1]),
                     LVN_ERR_RESOURCE);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_RESOURCE, "E110: ", pid, "test_store_sear",
                     "--master-port");
    assert_int_equal(lvni_core_exit_of_error(lvn_last_error()), LVNI_EXIT_RESOURCE);
    assert_int_equal(other, -1);
    ports[1] = 0;
    int second = 0;
    /* the next candidate */
    assert_int_equal(lvni_control_store_listen("127.0.0.1", ports, 2, &other, &second), LVN_OK);
    assert_int_not_equal(second, port);
    close(other);
    close(fd);
}

/* The rank that was to listen there has given up. */
TEST(a_port_that_stays_busy_ends_the_search)
{
    static const int any = 0;
    int fd = -1, port = 0;
    lvni_control_options o;
    lvni_control *c = NULL;
    /* accepts and sends nothing */
    assert_int_equal(lvni_control_store_listen("127.0.0.1", &any, 1, &fd, &port), LVN_OK);
    lvni_control_options_init(&o);
    o.ports = &port;
    o.n_ports = 1;
    o.world = 2;
    o.rank = 1;
    o.greeting_timeout_s = 0.05;
    o.taken_timeout_s = 0.2;
    assert_int_equal(lvni_control_connect(&o, &c), LVN_ERR_TIMEOUT);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_TIMEOUT, "E114: rank 1 found another program",
                     "127.0.0.1, port ", "sends nothing", "another MASTER_PORT");
    o.taken_timeout_s = 0; /* it may be ours, whose process has not begun */
    o.rdzv_timeout_s = 0.5;
    assert_int_equal(lvni_control_connect(&o, &c), LVN_ERR_TIMEOUT);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_TIMEOUT, "E114: rank 1 found no store of this run");
    close(fd);
}

TEST(a_foreign_address_is_reported_at_once)
{
    static const int any = 0;
    int fd = -1, port = 0;
    assert_int_equal(lvni_control_store_listen("192.0.2.1", &any, 1, &fd, &port), LVN_ERR_USAGE);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_USAGE, "E111: ", "192.0.2.1", "127.0.0.1");
    assert_int_equal(lvni_core_exit_of_error(lvn_last_error()), LVNI_EXIT_USAGE);
}

/* As the launcher does: the socket comes with the process, and foreign services lie on the way. */
TEST(an_inherited_socket_is_found_among_candidates)
{
    static const int any = 0;
    int fd = -1, foreign = -1, ports[3] = {1, 0, 0}; /* no process listens at 1 */
    group g;
    group_init(&g, 1);
    /* accepts and sends nothing */
    assert_int_equal(lvni_control_store_listen("127.0.0.1", &any, 1, &foreign, &ports[1]), LVN_OK);
    assert_int_equal(lvni_control_store_listen(NULL, &any, 1, &fd, &ports[2]), LVN_OK);
    g.store_options.listen_fd = fd;
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    assert_int_equal(lvni_control_store_port(g.store), ports[2]);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    lvni_control_options o = g.options;
    o.world = 1;
    o.host = "localhost";
    o.ports = ports;
    o.n_ports = 3;
    o.greeting_timeout_s = 0.2;
    assert_int_equal(lvni_control_connect(&o, &g.ranks[0].control), LVN_OK);
    assert_int_equal(lvni_control_rendezvous(g.ranks[0].control, &g.ranks[0].facts), LVN_OK);
    assert_int_equal(lvni_control_leave(g.ranks[0].control), LVN_OK);
    group_end(&g);
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* the socket was the store's */
    close(foreign);
}

static void *create_late(void *arg)
{
    group *g = arg;
    pause_ms(200);
    return lvni_control_store_create(&g->store_options, &g->store) == LVN_OK ? g : NULL;
}

/* By the rank itself: the store, which names missing ranks, is what is missing. */
TEST(waiting_for_a_store_is_reported)
{
    static const int any = 0;
    group g;
    int fd = -1, port = 0;
    char line[200];
    group_init(&g, 2);
    assert_int_equal(lvni_control_store_listen("127.0.0.1", &any, 1, &fd, &port), LVN_OK);
    close(fd); /* a port that was free a moment ago */
    lvni_control_options o = g.options;
    o.rank = 1;
    o.world = 2;
    o.ports = &port;
    o.n_ports = 1;
    o.rdzv_timeout_s = 2; /* an attempt each 0.25 s, and a line after each except the first */
    o.waiting_first_s = 0.01;
    o.waiting_every_s = 0.01;
    o.report = keep_line;
    o.user = &g;
    assert_int_equal(lvni_control_connect(&o, &g.ranks[1].control), LVN_ERR_TIMEOUT);
    assert_ptr_equal(strstr(g.lines, "rank 1: waiting 0 s for"), g.lines);
    snprintf(line, sizeof line,
             " s for the store of this run at 127.0.0.1, port %d: Connection refused\n", port);
    const char *first = strstr(g.lines, line);
    if (first == NULL || strstr(first + strlen(line), line) == NULL) { /* and again */
        fail_msg("%s", g.lines);
    }
    g.lines[0] = '\0';
    o.rdzv_timeout_s = 0.5;
    o.rdzv_dir = "/nowhere/at all";
    assert_int_equal(lvni_control_connect(&o, &g.ranks[1].control), LVN_ERR_TIMEOUT);
    assert_non_null(strstr(g.lines, "for the store of this run at /nowhere/at all/"));
    assert_non_null(strstr(g.lines, ".addr: the file is not there\n"));
}

TEST(ranks_wait_for_a_store_that_comes_later)
{
    static const int any = 0;
    group g;
    int fd = -1, port = 0;
    pthread_t thread;
    void *made = NULL;
    group_init(&g, 1);
    assert_int_equal(lvni_control_store_listen("127.0.0.1", &any, 1, &fd, &port), LVN_OK);
    close(fd); /* a port that was free a moment ago */
    g.store_options.ports = &port;
    assert_int_equal(pthread_create(&thread, NULL, create_late, &g), 0);
    lvni_control_options o = g.options;
    o.world = 1;
    o.ports = &port;
    o.n_ports = 1;
    const lvn_status status = lvni_control_connect(&o, &g.ranks[0].control);
    pthread_join(thread, &made);
    assert_non_null(made);
    assert_int_equal(status, LVN_OK);
    group_end(&g);
}

/* ---- The file ---- */

TEST(a_file_reports_where_the_store_is)
{
    static const int any = 0;
    char dir[] = "/tmp/levin-rdzv-XXXXXX", inner[80], outer[64];
    lvni_core_str s = {0};
    char path[128];
    lvni_control_rdzv_where where;
    assert_non_null(mkdtemp(dir));
    snprintf(outer, sizeof outer, "%s/runs", dir);
    snprintf(inner, sizeof inner, "%s/run", outer); /* both made by the store */
    group g;
    group_init(&g, 1);
    assert_int_equal(lvni_control_rdzv_file_path(inner, "test", NULL, NULL, 1, &s), LVN_OK);
    snprintf(path, sizeof path, "%s", lvni_core_str_text(&s));
    lvni_core_str_free(&s);
    lvni_control_options o = g.options;
    o.world = 1;
    o.rdzv_dir = inner;
    o.rdzv_timeout_s = 0.2;
    assert_int_equal(lvni_control_connect(&o, &g.ranks[0].control), LVN_ERR_TIMEOUT);
    ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_TIMEOUT, "E114: ", "the file is not there", dir);
    /* One of an earlier run lies there, at a port where no process listens: it is overwritten. */
    size_t made = 0;
    assert_int_equal(lvni_control_rdzv_file_write(path, 1, -1, NULL, &made), LVN_OK);
    assert_int_equal(made, strlen(outer));
    lvni_control_rdzv_file_remove(path, 1, made);
    assert_int_equal(access(outer, F_OK), -1);
    assert_int_equal(mkdir(outer, 0777), 0);
    assert_int_equal(lvni_control_rdzv_file_write(path, 1, -1, NULL, &made), LVN_OK);
    assert_int_equal(made, strlen(inner));
    g.store_options.address = NULL;
    g.store_options.ports = &any;
    g.store_options.rdzv_dir = inner;
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    assert_true(lvni_control_rdzv_file_read(path, &where));
    assert_int_equal(where.port, lvni_control_store_port(g.store));
    assert_int_equal(where.pid, getpid());
    o.rdzv_timeout_s = 20;
    assert_int_equal(lvni_control_connect(&o, &g.ranks[0].control), LVN_OK);
    assert_int_equal(lvni_control_rendezvous(g.ranks[0].control, &g.ranks[0].facts), LVN_OK);
    assert_int_equal(lvni_control_leave(g.ranks[0].control), LVN_OK);
    group_end(&g);
    assert_int_equal(access(path, F_OK), -1); /* gone with its store */
    for (int i = 0; i < where.n; i++) {
        assert_true(where.address[i][0] != '\0' && strncmp(where.address[i], "127.", 4) != 0);
    }
    assert_int_equal(rmdir(inner), 0); /* which this store found there */
    assert_int_equal(rmdir(outer), 0);
    assert_int_equal(rmdir(dir), 0);
}

TEST(a_file_in_place_of_the_directory_is_reported)
{
    static const int any = 0;
    char path[] = "/tmp/levin-rdzv-XXXXXX", part[40], sentence[64];
    const int fd = mkstemp(path);
    group g;
    group_init(&g, 2);
    snprintf(part, sizeof part, "%s/in", path);
    const char *const dirs[] = {path, part};
    for (int i = 0; i < 2; i++) {
        lvni_control_options o = g.options;
        o.world = 2;
        o.rank = 1;
        o.rdzv_dir = g.store_options.rdzv_dir = dirs[i];
        g.store_options.ports = &any;
        snprintf(sentence, sizeof sentence, "rdzv=file:%s: ", dirs[i]);
        assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_ERR_USAGE);
        ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_USAGE, sentence,
                         "file; give a directory that all ranks see");
        assert_null(g.store);
        /* rather than wait for it */
        assert_int_equal(lvni_control_connect(&o, &g.ranks[1].control), LVN_ERR_USAGE);
        ASSERT_ERROR_HAS(lvn_last_error(), LVN_ERR_USAGE, sentence);
        assert_int_equal(lvni_core_exit_of_error(lvn_last_error()), LVNI_EXIT_USAGE);
    }
    close(fd);
    unlink(path);
}

TEST(files_of_others_are_no_address)
{
    static const char *const texts[] = {
        "", "\n", "host\n", "host port 1 b\n", "host 0 1 b\n", "host 65536 1 b\n", "host 80 1\n"};
    char path[] = "/tmp/levin-rdzv-XXXXXX";
    const int fd = mkstemp(path);
    lvni_control_rdzv_where where;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, texts[i], strlen(texts[i]), 0), (ssize_t)strlen(texts[i]));
        assert_false(lvni_control_rdzv_file_read(path, &where));
    }
    assert_int_equal(pwrite(fd, "host 80 1 b\n10.0.0.1\n", 22, 0), 22);
    assert_true(lvni_control_rdzv_file_read(path, &where));
    assert_int_equal(where.n, 1);
    lvni_control_rdzv_file_remove(path, 80, 0); /* of another process */
    assert_int_equal(access(path, F_OK), 0);
    char text[64]; /* of another host's process with the same number */
    const int n = snprintf(text, sizeof text, "elsewhere 80 %d b\n10.0.0.1\n", (int)getpid());
    assert_int_equal(pwrite(fd, text, (size_t)n, 0), n);
    lvni_control_rdzv_file_remove(path, 80, 0);
    assert_int_equal(access(path, F_OK), 0);
    close(fd);
    unlink(path);
}
