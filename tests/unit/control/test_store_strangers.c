/* Connections that never prove anything: ranks get in among them, and they cost little memory, time
 * and few lines. */
#include "control_support.h"

#include "control/message.h"
#include "core/alloc.h"
#include "core/machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CROWD = 700, MOST = 512 + 4 /* ranks that are missing */ };

typedef struct reported {
    _Atomic int lines;
    char last[400];
} reported;

static void count_line(void *user, const char *line)
{
    reported *t = user;
    strncpy(t->last, line, sizeof t->last - 1);
    t->lines++;
}

static void need_descriptors(rlim_t n)
{
    struct rlimit now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    if (now.rlim_cur < n && now.rlim_max < n) {
        print_message("skipped: %llu open files are too few\n", (unsigned long long)now.rlim_max);
        skip();
    }
    now.rlim_cur = now.rlim_cur < n ? n : now.rlim_cur;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
}

/* Of the sockets, how many has the store closed? */
static int closed_of(const int *fds, int n)
{
    int closed = 0;
    char bytes[64];
    for (int i = 0; i < n; i++) {
        ssize_t got;
        do {
            got = recv(fds[i], bytes, sizeof bytes, MSG_DONTWAIT);
        } while (got > 0);
        closed += got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK) ? 1 : 0;
    }
    return closed;
}

static bool wait_for_closed(const int *fds, int n, int want)
{
    for (int i = 0; i < 2000 && closed_of(fds, n) < want; i++) {
        pause_ms(10);
    }
    return closed_of(fds, n) >= want;
}

TEST(ranks_get_in_among_strangers)
{
    need_descriptors(3 * CROWD);
    int *fds = calloc(CROWD, sizeof *fds);
    group g;
    group_init(&g, 4);
    g.store_options.greeting_timeout_s = g.options.greeting_timeout_s = 60; /* not by their age */
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    g.port = lvni_control_store_port(g.store);
    for (int i = 0; i < CROWD; i++) {
        fds[i] = raw_connect(g.port);
    }
    assert_true(wait_for_closed(fds, CROWD, CROWD - MOST)); /* the oldest */
    assert_int_equal(closed_of(fds + CROWD - MOST, MOST), 0);
    for (int r = 0; r < g.world; r++) {
        lvni_control_options o = g.options;
        o.rank = r;
        o.world = g.world;
        o.ports = &g.port;
        o.n_ports = 1;
        assert_int_equal(lvni_control_connect(&o, &g.ranks[r].control), LVN_OK);
    }
    for (int i = 0; i < CROWD; i++) {
        close(fds[i]);
    }
    free(fds);
    group_end(&g);
}

/* After the rendezvous no other process has a reason to connect: a few at a time, slowly. */
TEST(later_there_are_few)
{
    enum { N = 100, FEW = 32 };
    int fds[N];
    group g;
    group_init(&g, 2);
    g.keep = true;
    g.store_options.greeting_timeout_s = 60;
    group_run(&g);
    assert_true(g.ranks[0].status == LVN_OK && g.ranks[1].status == LVN_OK);
    for (int i = 0; i < N; i++) {
        fds[i] = raw_connect(g.port);
    }
    assert_true(wait_for_closed(fds, N, N - FEW));
    assert_int_equal(lvni_control_set(g.ranks[1].control, "key", "value", 5),
                     LVN_OK); /* the ranks' own connections stay */
    assert_int_equal(closed_of(fds, N), N - FEW);
    for (int i = 0; i < N; i++) {
        close(fds[i]);
    }
    group_end(&g);
}

TEST(what_they_send_takes_little_memory)
{
    enum { N = 300, BYTES = 100000 };
    static char bytes[BYTES] = {0x74, 3, 0, 0,
                                LVNI_FRAME_GREET}; /* announces a greeting of 884 bytes */
    int fds[N];
    group g;
    group_init(&g, 1);
    g.store_options.greeting_timeout_s = 60;
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    const int64_t before = (int64_t)lvni_core_alloc_get_stats(LVNI_TAG_CONTROL).live_bytes;
    for (int i = 0; i < N; i++) {
        fds[i] = raw_connect(lvni_control_store_port(g.store));
        assert_int_equal(send(fds[i], bytes, 800, MSG_NOSIGNAL), 800); /* except the end of it */
    }
    pause_ms(
        200); /* the memory has its bound at any time: this gives the store the time to break it */
    assert_int_equal(closed_of(fds, N), 0);
    assert_int_in_range((int64_t)lvni_core_alloc_get_stats(LVNI_TAG_CONTROL).live_bytes - before, 1,
                        N * 4096);
    for (int i = 0; i < N; i++) {
        (void)!send(fds[i], bytes, BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    assert_true(wait_for_closed(fds, N, N));
    for (int i = 0; i < N; i++) {
        close(fds[i]);
    }
    group_end(&g);
}

/* A byte now and then is not a greeting. */
TEST(a_slow_rank_is_removed_in_time)
{
    lvni_core_str s = {0};
    group g;
    group_init(&g, 1);
    g.store_options.greeting_timeout_s = 0.3;
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    const lvni_control_greet greet = {.host = "n08", .version = "1"};
    lvni_control_put_greet(&s, &greet);
    const int fd = raw_connect(lvni_control_store_port(g.store));
    const uint64_t began = lvni_core_now_ns();
    for (size_t i = 0; i + 1 < s.len && closed_of(&fd, 1) == 0; i++) {
        (void)!send(fd, s.data + i, 1, MSG_NOSIGNAL);
        pause_ms(20);
    }
    assert_true(closed_of(&fd, 1) == 1 && s.len > 50);
    const double took = seconds_between(began, lvni_core_now_ns());
    assert_true(took > 0.29 && took < 10);
    close(fd);
    lvni_core_str_free(&s);
    group_end(&g);
}

TEST(ten_thousand_refusals_are_few_lines)
{
    enum { N = 10000 };
    static const char text[] = "\033[31mGET / HTTP/1.0\r\n\r\n";
    const struct linger reset = {.l_onoff = 1};
    reported t = {.lines = 0};
    char byte;
    group g;
    group_init(&g, 1);
    g.store_options.report = count_line;
    g.store_options.user = &t;
    assert_int_equal(lvni_control_store_create(&g.store_options, &g.store), LVN_OK);
    for (int i = 0; i < N; i++) {
        const int fd = raw_connect(lvni_control_store_port(g.store));
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        (void)!send(fd, text, sizeof text, MSG_NOSIGNAL);
        while (recv(fd, &byte, 1, 0) > 0) {
        }
        close(fd);
    }
    assert_int_in_range(t.lines, 1, 2); /* one more only where this takes half a minute */
    group_end(&g);
    assert_int_in_range(t.lines, 2, 3);
    assert_non_null(
        strstr(t.last, " connections that did not prove to belong to this run; the last from "));
    assert_null(strchr(t.last, '\033'));
}
