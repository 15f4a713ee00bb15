/* Credentials of MUNGE that come with greetings (LVNI_AUTH_MUNGE). A rank puts the store's nonce,
 * its own and a key of its choice into one: only MUNGE can have made it, for this connection and
 * this user, and only this user can read the key, which both ends then prove to know as they do
 * with any other. Decoding waits for a daemon, so a thread of libuv's pool does it; everything else
 * is on the store's thread (store.c). */
#include "store_impl.h"

#include "core/alloc.h"
#include "core/clock.h"

#include <stdio.h>
#include <string.h>

/* One decoding: of the pool's thread from begin to the end. */
struct lvni_control_sync_check {
    uv_work_t req;
    lvni_control_conn *conn;
    const char *socket;
    lvni_control_greet greet;
    char credential[LVNI_CREDENTIAL_MAX + 1];
    lvni_control_munge_result result;
    lvni_control_credential_payload payload;
    char why[200]; /* of DAEMON */
};

static void decode(uv_work_t *req)
{
    lvni_control_sync_check *check = (lvni_control_sync_check *)(void *)req;
    check->result = lvni_control_munge_decode(check->socket, check->credential, &check->payload,
                                              sizeof check->payload);
    if (check->result != LVNI_MUNGE_DAEMON) {
        return;
    }
    /* It also answers so to what makes no sense, which anybody can send: does it work? */
    if (lvni_control_munge_probe(check->socket) == LVN_OK) {
        check->result = LVNI_MUNGE_INVALID;
    } else {
        snprintf(check->why, sizeof check->why, "%.190s", lvn_last_error()->message);
    }
}

/* Since when, and why: of a daemon that answers nothing. */
static void note_daemon(lvni_control_store *store, const lvni_control_sync_check *check)
{
    if (check->result != LVNI_MUNGE_DAEMON) {
        store->munge_failed_ns = 0;
    } else if (store->munge_failed_ns == 0) {
        store->munge_failed_ns = lvni_core_now_ns();
        snprintf(store->munge_why, sizeof store->munge_why, "%s", check->why);
    }
}

static void judge(const lvni_control_sync_check *check)
{
    lvni_control_conn *conn = check->conn;
    const lvni_control_store *store = conn->store;
    const bool fresh = lvni_control_token_equal(&check->payload.store_nonce, &conn->nonce) &&
                       lvni_control_token_equal(&check->payload.rank_nonce, &check->greet.nonce);
    if (check->result == LVNI_MUNGE_DAEMON) {
        lvni_control_store_deny(conn, LVNI_DENY_DAEMON, "MUNGE does not answer here");
    } else if (check->result == LVNI_MUNGE_USER) {
        lvni_control_store_deny(conn, LVNI_DENY_USER, "its credential is another user's");
    } else if (check->result == LVNI_MUNGE_INVALID || !fresh) {
        lvni_control_store_deny(conn, LVNI_DENY_CREDENTIAL,
                                check->result == LVNI_MUNGE_INVALID
                                    ? "its credential is not valid here"
                                    : "its credential was made for another connection");
    } else if (lvni_control_token_of_run(&check->payload.key, store->job_key, store->run_id, NULL,
                                         &conn->key) != LVN_OK) {
        lvni_control_store_drop(conn, "");
    } else {
        lvni_control_store_judge(conn, &check->greet);
    }
}

static void on_decoded(uv_work_t *req, int status)
{
    lvni_control_sync_check *check = (lvni_control_sync_check *)(void *)req;
    lvni_control_conn *conn = check->conn;
    conn->check = NULL;
    if (conn->closed) { /* it went meanwhile */
        lvni_control_store_free_conn(conn);
    } else if (!conn->closing) {
        note_daemon(conn->store, check);
        if (status == 0) {
            judge(check);
        } else {
            lvni_control_store_drop(conn, "");
        }
    }
    lvni_core_free(check);
}

void lvni_control_store_check_credential(lvni_control_conn *conn, const lvni_control_greet *greet)
{
    lvni_control_sync_check *check = greet->credential_n > LVNI_CREDENTIAL_MAX
                                         ? NULL
                                         : LVNI_NEW(LVNI_TAG_CONTROL, lvni_control_sync_check);
    if (check == NULL) {
        lvni_control_store_turn_away(conn, "its credential is too long");
        return;
    }
    check->conn = conn;
    check->socket = conn->store->munge_socket;
    check->greet = *greet;
    memcpy(check->credential, greet->credential, greet->credential_n);
    conn->check = check;
    if (uv_queue_work(&conn->store->loop, &check->req, decode, on_decoded) != 0) {
        conn->check = NULL;
        lvni_core_free(check);
        lvni_control_store_drop(conn, "");
    }
}

/* One that waits for its turn ends now: strangers that come and go leave no queue before the
 * ranks. */
void lvni_control_store_cancel_check(lvni_control_conn *conn)
{
    if (conn->check != NULL) {
        uv_cancel((uv_req_t *)(void *)&conn->check->req);
    }
}

/* The ranks that are there are told; those that are not cannot prove themselves any more. */
void lvni_control_store_munge_tick(lvni_control_store *store, uint64_t now_ns)
{
    char line[600];
    if (store->munge_failed_ns == 0 || store->phase != LVNI_STORE_RENDEZVOUS ||
        now_ns - store->munge_failed_ns < lvni_control_store_ns(store->o.munge_timeout_s)) {
        return;
    }
    snprintf(line, sizeof line,
             "E120: MUNGE, by which the ranks prove who they are, does not answer on %s for %.0f "
             "s\n  found: %s\n  fix: start munged "
             "there, or set LEVIN_TOKEN to one secret text for all ranks",
             store->host, store->o.munge_timeout_s, store->munge_why);
    lvni_control_store_refuse_all(store, LVN_ERR_NOT_FOUND, 120, line);
}
