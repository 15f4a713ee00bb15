/* Greetings: what the store answers to who says that it is a rank. A proof first; then what does
 * not fit is a refusal with its reason. All on the store's thread (store.c). */
#include "store_impl.h"

#include <levin/version.h>

#include <stdio.h>

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
    lvni_control_store_send_str(conn, &s);
}

/* Says what is wrong with a process that knows the run's key. Returns the number of
 * the error; 0: nothing. */
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
                       !held->conn->confirmed; /* it does not know that it is in */
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
    if (rank->conn != NULL) { /* an attempt of the same process that it gave up, before it asked
                                 anything: misfit has seen to that */
        rank->conn->rank = -1;
        lvni_control_store_drop(rank->conn, "");
    } else {
        lvni_control_store_count(store, 1);
    }
    rank->state = LVNI_RANK_HERE;
    rank->conn = conn;
    rank->greet = *greet;
    rank->greet.credential = NULL; /* was the frame's */
    rank->greet.credential_n = 0;
    conn->rank = (int)greet->rank;
    lvni_control_store_settle_in(conn);
    conn->in.limit = LVNI_FRAME_MAX_TO_STORE;
    lvni_core_str s = {0};
    const lvni_control_token proof =
        lvni_control_store_proof(&conn->key, &conn->nonce, &greet->nonce);
    const size_t at = lvni_control_frame_begin(&s, LVNI_FRAME_WELCOME);
    lvni_core_str_append_n(&s, (const char *)proof.b, sizeof proof.b);
    lvni_control_put_u32(&s, (uint32_t)store->o.rank);
    lvni_control_put_text(&s, store->host);
    lvni_control_frame_end(&s, at);
    lvni_control_store_send_str(conn, &s);
    lvni_control_store_refuse_newcomer(conn);
}

/* It has the key that is in conn, or it is a stranger. */
void lvni_control_store_judge(lvni_control_conn *conn, const lvni_control_greet *greet)
{
    lvni_control_store *store = conn->store;
    const lvni_control_token proof =
        lvni_control_greet_proof(&conn->key, &conn->nonce, greet, store->port);
    char message[sizeof store->refused];
    int number;
    if (!lvni_control_token_equal(&proof, &greet->proof)) {
        lvni_control_store_deny(conn, LVNI_DENY_KEY, "it does not know the key of this run");
    } else if (store->phase == LVNI_STORE_REFUSED) {
        refuse(conn, greet, store->refused_status, store->refused_number, store->refused);
    } else if ((number = misfit(store, greet, message, sizeof message)) != 0) {
        refuse(conn, greet, LVN_ERR_USAGE, number, message);
        if (store->phase ==
            LVNI_STORE_RENDEZVOUS) { /* the ranks can never be complete; a running job goes on */
            lvni_control_store_refuse_all(store, LVN_ERR_USAGE, number, message);
        } else if (store->o.report != NULL && lvni_control_store_may_report_misfit(store)) {
            store->o.report(store->o.user, message);
        }
    } else {
        welcome(conn, greet);
    }
}

void lvni_control_store_greeted(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_store *store = conn->store;
    lvni_control_greet greet;
    const bool munge = store->auth == LVNI_AUTH_MUNGE;
    if (conn->check != NULL || !lvni_control_scan_greet(frame, &greet) ||
        (greet.credential_n > 0) != munge) {
        lvni_control_store_turn_away(conn, "it speaks something else");
    } else if (munge) {
        lvni_control_store_check_credential(conn, &greet);
    } else {
        conn->key = store->key;
        lvni_control_store_judge(conn, &greet);
    }
}
