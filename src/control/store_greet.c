/* Who may join: connections from the moment they are accepted until they are a rank's. A greeting
 * proves first that its process knows the run's key (LVNI_AUTH_MUNGE: by a credential); then what
 * does not fit is refused with the reason. Any program that reaches the port can connect, at any
 * rate, so this file also bounds how many strangers there are at a time, how fast they are
 * accepted, and how many lines they cost. Ranks come in among them: a full list loses its oldest
 * stranger, never the newest, and a rank needs a fraction of the time that a stranger has.
 * On the store's thread, except lvni_control_store_reserve_descriptors and decode_credential(). */
#include "store_impl.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "core/str.h"

#include <levin/version.h>

#include <dirent.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum {
    STRANGERS = 512, /* and the missing ranks, while there are any; fewer where descriptors are */
    STRANGERS_LEAST = 16,
    STRANGERS_LATER = 32, /* once all ranks are present: no other process has a reason to connect */
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

lvn_status lvni_control_store_reserve_descriptors(lvni_control_store *store)
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

static void on_accepts(uv_timer_t *timer)
{
    lvni_control_store *store = timer->data;
    store->accepts_left = BURST;
    if ((store->accept_later & 1) != 0 && !uv_is_closing((uv_handle_t *)&store->listener)) {
        lvni_control_store_on_connection((uv_stream_t *)&store->listener, 0);
    }
    for (int k = 0; k < store->n_places; k++) {
        if ((store->accept_later & 2u << k) != 0) {
            lvni_control_store_on_connection((uv_stream_t *)&store->place[k], 0);
        }
    }
}

bool lvni_control_store_may_accept(lvni_control_store *store)
{
    if (store->accepts_left == 0) {
        const bool later = store->phase == LVNI_STORE_JOINED;
        uv_timer_start(&store->accepts, on_accepts, later ? PAUSE_LATER_MS : PAUSE_MS, 0);
        return false;
    }
    store->accepts_left--;
    return true;
}

/* The oldest stranger is dropped: the others greet soon, or are the next. */
void lvni_control_store_bound_strangers(lvni_control_store *store)
{
    const bool later = store->phase == LVNI_STORE_JOINED && store->max_strangers > STRANGERS_LATER;
    const int missing = store->o.world - store->conns.open; /* all may be on their way */
    const int most = later ? STRANGERS_LATER : store->max_strangers + (missing > 0 ? missing : 0);
    for (lvni_control_conn *c = store->strangers.last; c != NULL && store->strangers.open > most;
         c = c->prev) {
        if (!c->closing) {
            lvni_control_conn_turn_away(c, "too many at a time that have not proved anything");
        }
    }
}

/* ---- Reporting refused ones ---- */

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

static void count_refusal(const lvni_control_conn *conn, const char *why)
{
    lvni_control_refusals *r = &conn->store->refusals;
    if (!conn->closing && !conn->parting) {
        r->n++;
        print_peer(conn, r->peer, sizeof r->peer);
        snprintf(r->why, sizeof r->why, "%s", why);
        lvni_control_store_report_refusals(conn->store, lvni_core_now_ns());
    }
}

void lvni_control_conn_turn_away(lvni_control_conn *conn, const char *why)
{
    count_refusal(conn, why);
    lvni_control_conn_drop(conn, "");
}

static void deny(lvni_control_conn *conn, lvni_control_deny reason, const char *why)
{
    lvni_core_str s = {0};
    count_refusal(conn, why);
    const size_t at = lvni_control_frame_begin(&s, LVNI_FRAME_DENY);
    lvni_control_put_u32(&s, (uint32_t)reason);
    lvni_control_frame_end(&s, at);
    conn->parting = true;
    lvni_control_conn_send(conn, &s);
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
        (unsigned long long)r->n, lvni_core_plural((int64_t)r->n, "", "s"), r->peer, r->why);
    r->n = 0;
    r->every_s = r->every_s == 0                ? LINE_FIRST_S
                 : r->every_s * 2 > LINE_LAST_S ? LINE_LAST_S
                                                : r->every_s * 2;
    r->next_ns = now_ns + lvni_control_ns(r->every_s);
    store->o.report(store->o.user, line);
}

static bool may_report_misfit(lvni_control_store *store)
{
    const uint64_t now = lvni_core_now_ns();
    if (now < store->misfit_ns) {
        return false;
    }
    store->misfit_ns = now + lvni_control_ns(LINE_FIRST_S);
    return true;
}

/* ---- Proved ---- */

static void refuse(lvni_control_conn *conn, const lvni_control_greet *greet, lvn_status status,
                   int number, const char *message)
{
    lvni_core_str s = {0};
    const lvni_control_token proof =
        lvni_control_store_proof(&conn->key, &conn->nonce, &greet->nonce);
    const size_t at = lvni_control_frame_begin(&s, LVNI_FRAME_REFUSE);
    lvni_core_str_append_n(&s, (const char *)proof.b, sizeof proof.b);
    lvni_control_put_u32(&s, (uint32_t)status);
    lvni_control_put_text(&s, message);
    lvni_control_put_u32(&s, (uint32_t)number); /* behind what an older protocol reads */
    lvni_control_frame_end(&s, at);
    conn->parting = true;
    lvni_control_conn_send(conn, &s);
}

/* What is wrong with a process that knows the run's key, as a message. Returns the number of the
 * error; 0: nothing. */
static int misfit(const lvni_control_store *store, const lvni_control_greet *g, char *out,
                  size_t size)
{
    if (g->protocol != LVNI_CONTROL_PROTOCOL) {
        snprintf(out, size,
                 "E116: the ranks run different versions of levin\n  found: rank %u (%s, pid "
                 "%llu): levin %s, protocol %u; store (%s): "
                 "levin %s, protocol %d\n  fix: install one version of levin on all nodes",
                 g->rank, g->host, (unsigned long long)g->pid, g->version, g->protocol, store->host,
                 LEVIN_VERSION, LVNI_CONTROL_PROTOCOL);
        return 116;
    }
    if (g->world != (uint32_t)store->o.world || g->rank >= g->world) {
        snprintf(out, size,
                 "E102: the processes do not agree how many they are\n  found: %s, pid %llu: rank "
                 "%u of world %u; store (%s): world %d",
                 g->host, (unsigned long long)g->pid, g->rank, g->world, store->host,
                 store->o.world);
        return 102;
    }
    const lvni_control_store_rank *held = &store->ranks[g->rank];
    const bool again = held->state == LVNI_RANK_HERE && held->greet.instance == g->instance &&
                       !held->conn->confirmed; /* it has not read WELCOME */
    if (held->state != LVNI_RANK_ABSENT && !again) {
        snprintf(out, size,
                 "E115: rank %u is there twice\n  found: rank %u on %s (pid %llu) and on %s (pid "
                 "%llu)\n  fix: start every rank once; do two "
                 "runs share address, port and job?",
                 g->rank, g->rank, held->greet.host, (unsigned long long)held->greet.pid, g->host,
                 (unsigned long long)g->pid);
        return 115;
    }
    return 0;
}

static void welcome(lvni_control_conn *conn, const lvni_control_greet *greet)
{
    lvni_control_store *store = conn->store;
    lvni_control_store_rank *rank = &store->ranks[greet->rank];
    if (rank->conn != NULL) { /* an earlier attempt of this process, without requests (misfit) */
        rank->conn->rank = -1;
        lvni_control_conn_drop(rank->conn, "");
    } else {
        lvni_control_store_count_connected(store, 1);
    }
    rank->state = LVNI_RANK_HERE;
    rank->conn = conn;
    rank->greet = *greet;
    rank->greet.credential = NULL; /* was the frame's */
    rank->greet.credential_n = 0;
    conn->rank = (int)greet->rank;
    lvni_control_conn_joined(conn);
    conn->in.limit = LVNI_FRAME_MAX_TO_STORE;
    lvni_core_str s = {0};
    const lvni_control_token proof =
        lvni_control_store_proof(&conn->key, &conn->nonce, &greet->nonce);
    const size_t at = lvni_control_frame_begin(&s, LVNI_FRAME_WELCOME);
    lvni_core_str_append_n(&s, (const char *)proof.b, sizeof proof.b);
    lvni_control_put_u32(&s, (uint32_t)store->o.rank);
    lvni_control_put_text(&s, store->host);
    lvni_control_frame_end(&s, at);
    lvni_control_conn_send(conn, &s);
    lvni_control_conn_send_decision(conn);
}

/* Its proof must be over the key in conn; else it is a stranger. */
static void check_greeting(lvni_control_conn *conn, const lvni_control_greet *greet)
{
    lvni_control_store *store = conn->store;
    const lvni_control_token proof =
        lvni_control_greet_proof(&conn->key, &conn->nonce, greet, store->port);
    char message[sizeof store->refused];
    int number;
    if (!lvni_control_token_equal(&proof, &greet->proof)) {
        deny(conn, LVNI_DENY_KEY, "it does not know the key of this run");
    } else if (store->phase == LVNI_STORE_REFUSED) {
        refuse(conn, greet, store->refused_status, store->refused_number, store->refused);
    } else if ((number = misfit(store, greet, message, sizeof message)) != 0) {
        refuse(conn, greet, LVN_ERR_USAGE, number, message);
        if (store->phase ==
            LVNI_STORE_RENDEZVOUS) { /* the ranks can never be complete; a running job goes on */
            lvni_control_store_refuse_all(store, LVN_ERR_USAGE, number, message);
        } else if (store->o.report != NULL && may_report_misfit(store)) {
            store->o.report(store->o.user, message);
        }
    } else {
        welcome(conn, greet);
    }
}

/* ---- Credentials of MUNGE ---- */

/* One decoding. The pool's thread owns it from beginning to end. */
struct lvni_control_credential_check {
    uv_work_t req;
    lvni_control_conn *conn;
    const char *socket;
    lvni_control_greet greet;
    char credential[LVNI_CREDENTIAL_MAX + 1];
    lvni_control_munge_result result;
    lvni_control_credential_payload payload;
    char why[200]; /* of DAEMON */
};

static void decode_credential(uv_work_t *req)
{
    lvni_control_credential_check *check = (lvni_control_credential_check *)(void *)req;
    check->result = lvni_control_munge_decode(check->socket, check->credential, &check->payload,
                                              sizeof check->payload);
    if (check->result != LVNI_MUNGE_DAEMON) {
        return;
    }
    /* Also MUNGE's answer to nonsense, which any program can send: does the daemon work? */
    if (lvni_control_munge_probe(check->socket) == LVN_OK) {
        check->result = LVNI_MUNGE_INVALID;
    } else {
        snprintf(check->why, sizeof check->why, "%.190s", lvn_last_error()->message);
    }
}

/* Since when a daemon does not answer, and why. */
static void record_daemon(lvni_control_store *store, const lvni_control_credential_check *check)
{
    if (check->result != LVNI_MUNGE_DAEMON) {
        store->munge_failed_ns = 0;
    } else if (store->munge_failed_ns == 0) {
        store->munge_failed_ns = lvni_core_now_ns();
        snprintf(store->munge_why, sizeof store->munge_why, "%s", check->why);
    }
}

static void check_answered_credential(const lvni_control_credential_check *check)
{
    lvni_control_conn *conn = check->conn;
    const lvni_control_store *store = conn->store;
    const bool fresh = lvni_control_token_equal(&check->payload.store_nonce, &conn->nonce) &&
                       lvni_control_token_equal(&check->payload.rank_nonce, &check->greet.nonce);
    if (check->result == LVNI_MUNGE_DAEMON) {
        deny(conn, LVNI_DENY_DAEMON, "MUNGE does not answer here");
    } else if (check->result == LVNI_MUNGE_USER) {
        deny(conn, LVNI_DENY_USER, "its credential is another user's");
    } else if (check->result == LVNI_MUNGE_INVALID || !fresh) {
        deny(conn, LVNI_DENY_CREDENTIAL,
             check->result == LVNI_MUNGE_INVALID
                 ? "its credential is not valid here"
                 : "its credential was made for another connection");
    } else if (lvni_control_token_of_run(&check->payload.key, store->job_key, store->run_id, NULL,
                                         &conn->key) != LVN_OK) {
        lvni_control_conn_drop(conn, "");
    } else {
        check_greeting(conn, &check->greet);
    }
}

static void on_decoded(uv_work_t *req, int status)
{
    lvni_control_credential_check *check = (lvni_control_credential_check *)(void *)req;
    lvni_control_conn *conn = check->conn;
    conn->check = NULL;
    if (conn->closed) { /* it ended meanwhile */
        lvni_control_conn_free(conn);
    } else if (!conn->closing) {
        record_daemon(conn->store, check);
        if (status == 0) {
            check_answered_credential(check);
        } else {
            lvni_control_conn_drop(conn, "");
        }
    }
    lvni_core_free(check);
}

static void check_credential(lvni_control_conn *conn, const lvni_control_greet *greet)
{
    lvni_control_credential_check *check =
        greet->credential_n > LVNI_CREDENTIAL_MAX
            ? NULL
            : LVNI_NEW(LVNI_TAG_CONTROL, lvni_control_credential_check);
    if (check == NULL) {
        lvni_control_conn_turn_away(conn, "its credential is too long");
        return;
    }
    check->conn = conn;
    check->socket = conn->store->munge_socket;
    check->greet = *greet;
    memcpy(check->credential, greet->credential, greet->credential_n);
    conn->check = check;
    if (uv_queue_work(&conn->store->loop, &check->req, decode_credential, on_decoded) != 0) {
        conn->check = NULL;
        lvni_core_free(check);
        lvni_control_conn_drop(conn, "");
    }
}

void lvni_control_conn_greeted(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_store *store = conn->store;
    lvni_control_greet greet;
    const bool munge = store->auth == LVNI_AUTH_MUNGE;
    if (conn->check != NULL || !lvni_control_scan_greet(frame, &greet) ||
        (greet.credential_n > 0) != munge) {
        lvni_control_conn_turn_away(conn, "it sent something else than a greeting");
    } else if (munge) {
        check_credential(conn, &greet);
    } else {
        conn->key = store->key;
        check_greeting(conn, &greet);
    }
}

/* One that still waits in the pool's queue is cancelled: strangers must not delay the ranks. */
void lvni_control_conn_cancel_check(lvni_control_conn *conn)
{
    if (conn->check != NULL) {
        uv_cancel((uv_req_t *)(void *)&conn->check->req);
    }
}

/* Without MUNGE the missing ranks cannot join: the present ones get the error. */
void lvni_control_store_munge_tick(lvni_control_store *store, uint64_t now_ns)
{
    char line[600];
    if (store->munge_failed_ns == 0 || store->phase != LVNI_STORE_RENDEZVOUS ||
        now_ns - store->munge_failed_ns < lvni_control_ns(store->o.munge_timeout_s)) {
        return;
    }
    lvni_core_format(
        line, sizeof line,
        "E120: MUNGE, by which the ranks prove who they are, does not answer on %s for %.0f "
        "s\n  found: %s\n  fix: start munged "
        "there, or set LEVIN_TOKEN to one secret text for all ranks",
        store->host, store->o.munge_timeout_s, store->munge_why);
    lvni_control_store_refuse_all(store, LVN_ERR_NOT_FOUND, 120, line);
}
