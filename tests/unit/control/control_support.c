/* control_support.h */
#include "control_support.h"

#include "core/alloc.h"
#include "core/machine.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

void keep_line(void *user, const char *line)
{
    group *g = user; /* read after the store's end */
    const size_t n = strlen(g->lines);
    snprintf(g->lines + n, sizeof g->lines - n, "%s\n", line);
}

static void on_abort(void *user, const lvni_control_cause *cause)
{
    group_rank *r = user;
    r->cause = *cause;
    r->aborts++;
}

void group_init(group *g, int world)
{
    static const int any = 0;
    memset(g, 0, sizeof *g);
    g->world = world;
    lvni_control_store_options_init(&g->store_options);
    g->store_options.address = "127.0.0.1";
    g->store_options.ports = &any;
    g->store_options.n_ports = 1;
    g->store_options.world = world;
    g->store_options.job_key = "test";
    g->store_options.report = keep_line;
    g->store_options.user = g;
    g->store_options.rdzv_timeout_s = 20;
    lvni_control_options_init(&g->options);
    g->options.job_key = "test";
    g->options.rdzv_timeout_s = 20;
    for (int r = 0; r < world; r++) {
        g->ranks[r].g = g;
        g->ranks[r].rank = r;
        lvni_control_facts_init(&g->ranks[r].facts, &g->ranks[r].room);
    }
}

static lvn_status live(group_rank *r)
{
    group *g = r->g;
    lvni_control_options o = g->options;
    o.rank = r->rank;
    o.world = g->world;
    o.ports = &g->port;
    o.n_ports = 1;
    o.on_abort = on_abort;
    o.user = r;
    LVN_TRY(lvni_control_connect(&o, &r->control));
    LVN_TRY(lvni_control_rendezvous(r->control, &r->facts));
    if (g->body != NULL) {
        LVN_TRY(g->body(r));
    }
    return g->keep ? LVN_OK : lvni_control_leave(r->control);
}

static void *rank_main(void *arg)
{
    group_rank *r = arg;
    r->began_ns = lvni_core_now_ns();
    r->status = live(r);
    r->error = *lvn_last_error();
    r->ended_ns = lvni_core_now_ns();
    if (!r->g->keep) {
        lvni_control_destroy(r->control);
        r->control = NULL;
    }
    return NULL;
}

void group_run(group *g)
{
    pthread_t threads[GROUP_MAX];
    assert_int_equal(lvni_control_store_create(&g->store_options, &g->store), LVN_OK);
    g->port = lvni_control_store_port(g->store);
    for (int r = 0; r < g->world; r++) {
        if (!g->skip[r]) {
            assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &g->ranks[r]), 0);
        }
    }
    for (int r = 0; r < g->world; r++) {
        if (!g->skip[r]) {
            pthread_join(threads[r], NULL);
        }
    }
}

lvn_status control_barrier(lvni_control *control, const char *name, double timeout_s)
{
    lvni_control_bytes *all = NULL;
    const lvn_status status = lvni_control_gather(control, name, NULL, 0, timeout_s, &all);
    lvni_core_free(all);
    return status;
}

void group_end(group *g)
{
    for (int r = 0; r < g->world; r++) {
        lvni_control_destroy(g->ranks[r].control);
        g->ranks[r].control = NULL;
    }
    lvni_control_store_destroy(g->store);
    g->store = NULL;
    assert_int_equal(lvni_core_alloc_get_stats(LVNI_TAG_CONTROL).live_bytes, 0);
    assert_int_equal(lvni_core_alloc_get_stats(LVNI_TAG_CORE).live_bytes, 0);
}

bool saw_abort(const group_rank *r)
{
    for (int i = 0; i < 10000 && r->aborts == 0; i++) {
        pause_ms(1);
    }
    return r->aborts == 1;
}

void pause_ms(int ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

int raw_connect(int port)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

void assert_text_has(const lvn_error *error, lvn_status code, const char *const *parts, size_t n)
{
    if (error->code != code) {
        print_message("%s: %s\n", lvn_status_name(error->code), error->message);
    }
    assert_int_equal(error->code, code);
    for (size_t i = 0; i < n; i++) {
        if (strstr(error->message, parts[i]) == NULL) {
            print_message("'%s' is not in: %s\n", parts[i], error->message);
            fail();
        }
    }
}
