/* Connections that have not proved yet that they belong to the run. Anybody who reaches the port
 * can make them, at any rate: this file bounds how many there are at a time, how fast they are
 * taken, and how many lines they cost. Ranks come in among them: a full house loses its oldest
 * stranger, never the newcomer, and a rank needs a fraction of the time that a stranger has. All
 * but lvni_control_store_make_room runs on the store's thread (store.c). */
#include "store_impl.h"

#include "core/str.h"
#include "core/alloc.h"
#include "core/clock.h"

#include <dirent.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum {
    STRANGERS = 512, /* and the missing ranks, while there are any; fewer where descriptors are */
    STRANGERS_LEAST = 16,
    STRANGERS_LATER = 32, /* once all ranks are there: nobody else has a reason to come */
    RESERVE = 256, /* descriptors that the process needs besides, one more per rank not counted */
    BURST = 64,    /* connections taken before the loop does other work */
    PAUSE_MS = 2,
    PAUSE_LATER_MS = 500
};
static const double LINE_FIRST_S = 30, LINE_LAST_S = 3600;

/* ---- Descriptors ---- */

static rlim_t open_descriptors(void)
{
    rlim_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

lvn_status lvni_control_store_make_room(lvni_control_store *store)
{
    struct rlimit now;
    store->accepts_left = BURST;
    store->max_strangers = STRANGERS;
    if (getrlimit(RLIMIT_NOFILE, &now) != 0 || now.rlim_cur == RLIM_INFINITY) {
        return LVN_OK;
    }
    /* A connection and the end of a process to watch for each rank. */
    const rlim_t own = open_descriptors() + 2 * (rlim_t)store->o.world + RESERVE;
    const rlim_t hard = now.rlim_max;
    if (hard != RLIM_INFINITY && hard < own + STRANGERS_LEAST) {
        LVN_FAIL(
            LVN_ERR_IO,
            "the store of %d ranks needs %llu open files, %llu are allowed: raise the hard limit "
            "(ulimit -Hn)",
            store->o.world, (unsigned long long)own + STRANGERS_LEAST, (unsigned long long)hard);
    }
    if (now.rlim_cur < own + STRANGERS) {
        now.rlim_cur = hard != RLIM_INFINITY && hard < own + STRANGERS ? hard : own + STRANGERS;
        setrlimit(RLIMIT_NOFILE, &now);
        getrlimit(RLIMIT_NOFILE, &now);
    }
    const rlim_t left = now.rlim_cur > own ? now.rlim_cur - own : 0;
    store->max_strangers = left >= STRANGERS         ? STRANGERS
                           : left <= STRANGERS_LEAST ? STRANGERS_LEAST
                                                     : (int)left;
    return LVN_OK;
}

/* ---- How many, and how fast ---- */

bool lvni_control_store_may_accept(lvni_control_store *store)
{
    if (store->accepts_left == 0) {
        const bool later = store->phase == LVNI_STORE_JOINED;
        uv_timer_start(&store->accepts, lvni_control_store_on_accepts,
                       later ? PAUSE_LATER_MS : PAUSE_MS, 0);
        return false;
    }
    store->accepts_left--;
    return true;
}

void lvni_control_store_on_accepts(uv_timer_t *timer)
{
    lvni_control_store *store = timer->data;
    store->accepts_left = BURST;
    if (store->accept_later) {
        lvni_control_store_on_connection((uv_stream_t *)&store->listener, 0);
    }
}

/* The oldest stranger goes: the others come and prove who they are, or are the next. */
void lvni_control_store_bound_strangers(lvni_control_store *store)
{
    const bool later = store->phase == LVNI_STORE_JOINED && store->max_strangers > STRANGERS_LATER;
    const int missing = store->o.world - store->conns.open; /* all may be on their way */
    const int most = later ? STRANGERS_LATER : store->max_strangers + (missing > 0 ? missing : 0);
    for (lvni_control_conn *c = store->strangers.last; c != NULL && store->strangers.open > most;
         c = c->prev) {
        if (!c->closing) {
            lvni_control_store_turn_away(c, "too many at a time that have not proved anything");
        }
    }
}

/* ---- What is told of them ---- */

static void print_peer(const lvni_control_conn *conn, char *out, size_t size)
{
    struct sockaddr_storage at;
    int n = (int)sizeof at;
    char host[64], port[16];
    if (uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)&at, &n) == 0 &&
        getnameinfo((struct sockaddr *)&at, (socklen_t)n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
        snprintf(out, size, "%s port %s", host, port);
    } else {
        snprintf(out, size, "an address unknown by now");
    }
}

static void count(const lvni_control_conn *conn, const char *why)
{
    lvni_control_refusals *r = &conn->store->refusals;
    if (!conn->closing && !conn->parting) {
        r->n++;
        print_peer(conn, r->info, sizeof r->info);
        snprintf(r->why, sizeof r->why, "%s", why);
        lvni_control_store_report_refusals(conn->store, lvni_core_now_ns());
    }
}

void lvni_control_store_turn_away(lvni_control_conn *conn, const char *why)
{
    count(conn, why);
    lvni_control_store_drop(conn, "");
}

void lvni_control_store_deny(lvni_control_conn *conn, lvni_control_deny reason, const char *why)
{
    lvni_core_str s = {0};
    count(conn, why);
    const size_t at = lvni_control_frame_begin(&s, LVNI_FRAME_DENY);
    lvni_control_put_u32(&s, (uint32_t)reason);
    lvni_control_frame_end(&s, at);
    conn->parting = true;
    lvni_control_store_send_str(conn, &s);
}

void lvni_control_store_report_refusals(lvni_control_store *store, uint64_t now_ns)
{
    lvni_control_refusals *r = &store->refusals;
    char line[320];
    if (r->n == 0 || now_ns < r->next_ns || store->o.report == NULL) {
        return;
    }
    snprintf(
        line, sizeof line,
        "refused %llu connection%s that did not prove to belong to this run; the last from %s: %s",
        (unsigned long long)r->n, lvni_core_plural((int64_t)r->n, "", "s"), r->info, r->why);
    r->n = 0;
    r->every_s = r->every_s == 0                ? LINE_FIRST_S
                 : r->every_s * 2 > LINE_LAST_S ? LINE_LAST_S
                                                : r->every_s * 2;
    r->next_ns = now_ns + lvni_control_store_ns(r->every_s);
    store->o.report(store->o.user, line);
}

bool lvni_control_store_may_report_misfit(lvni_control_store *store)
{
    const uint64_t now = lvni_core_now_ns();
    if (now < store->misfit_ns) {
        return false;
    }
    store->misfit_ns = now + lvni_control_store_ns(LINE_FIRST_S);
    return true;
}
