/* Greetings: what the store answers to who says that it is a rank. A proof first; then what does
 * not fit is a refusal with its reason. All on the store's thread (store.c). */
#include "store_impl.h"

#include <levin/version.h>

#include <stdio.h>

static void refuse(store_conn *conn, const lvni_greet *greet, lvn_status status,
                   const char *message)
{
    lvni_str s = {0};
    const lvni_token proof = lvni_store_proof(&conn->key, &conn->nonce, &greet->nonce);
    const size_t at = lvni_frame_begin(&s, LVNI_FRAME_REFUSE);
    lvni_str_append_n(&s, (const char *)proof.b, sizeof proof.b);
    lvni_put_u32(&s, (uint32_t)status);
    lvni_put_text(&s, message);
    lvni_frame_end(&s, at);
    conn->parting = true;
    lvni_store_send_str(conn, &s);
}

/* Says what is wrong with a process that knows the run's key. False: nothing. */
static bool misfit(const lvni_store *store, const lvni_greet *g, char *out, size_t size)
{
    if (g->protocol != LVNI_CONTROL_PROTOCOL) {
        snprintf(out, size,
                 "E116: the ranks run different versions of levin\n  found: rank %u (%s, pid "
                 "%llu): levin %s, protocol %u; store (%s): "
                 "levin %s, protocol %d\n  fix: install one version of levin on all nodes",
                 g->rank, g->host, (unsigned long long)g->pid, g->version, g->protocol, store->host,
                 LEVIN_VERSION, LVNI_CONTROL_PROTOCOL);
        return true;
    }
    if (g->world != (uint32_t)store->o.world || g->rank >= g->world) {
        snprintf(out, size,
                 "E102: the processes do not agree how many they are\n  found: %s, pid %llu: rank "
                 "%u of world %u; store (%s): world %d",
                 g->host, (unsigned long long)g->pid, g->rank, g->world, store->host,
                 store->o.world);
        return true;
    }
    const store_rank *held = &store->ranks[g->rank];
    const bool again = held->state == RANK_HERE && held->greet.instance == g->instance &&
                       !held->conn->confirmed; /* it does not know that it is in */
    if (held->state != RANK_ABSENT && !again) {
        snprintf(out, size,
                 "E115: rank %u is there twice\n  found: rank %u on %s (pid %llu) and on %s (pid "
                 "%llu)\n  fix: start every rank once; do two "
                 "runs share address, port and job?",
                 g->rank, g->rank, held->greet.host, (unsigned long long)held->greet.pid, g->host,
                 (unsigned long long)g->pid);
        return true;
    }
    return false;
}

static void welcome(store_conn *conn, const lvni_greet *greet)
{
    lvni_store *store = conn->store;
    store_rank *rank = &store->ranks[greet->rank];
    if (rank->conn != NULL) { /* an attempt of the same process that it gave up, before it asked
                                 anything: misfit has seen to that */
        rank->conn->rank = -1;
        lvni_store_drop(rank->conn, "");
    } else {
        lvni_store_count(store, 1);
    }
    rank->state = RANK_HERE;
    rank->conn = conn;
    rank->greet = *greet;
    rank->greet.credential = NULL; /* was the frame's */
    rank->greet.credential_n = 0;
    conn->rank = (int)greet->rank;
    lvni_store_settle_in(conn);
    conn->in.limit = LVNI_FRAME_MAX_TO_STORE;
    lvni_str s = {0};
    const lvni_token proof = lvni_store_proof(&conn->key, &conn->nonce, &greet->nonce);
    const size_t at = lvni_frame_begin(&s, LVNI_FRAME_WELCOME);
    lvni_str_append_n(&s, (const char *)proof.b, sizeof proof.b);
    lvni_put_u32(&s, (uint32_t)store->o.rank);
    lvni_put_text(&s, store->host);
    lvni_frame_end(&s, at);
    lvni_store_send_str(conn, &s);
    lvni_store_tell_newcomer(conn);
}

/* It has the key that is in conn, or it is a stranger. */
void lvni_store_judge(store_conn *conn, const lvni_greet *greet)
{
    lvni_store *store = conn->store;
    const lvni_token proof = lvni_greet_proof(&conn->key, &conn->nonce, greet, store->port);
    char message[sizeof store->refused];
    if (!lvni_token_equal(&proof, &greet->proof)) {
        lvni_store_deny(conn, LVNI_DENY_KEY, "it does not know the key of this run");
    } else if (store->phase == STORE_REFUSED) {
        refuse(conn, greet, store->refused_status, store->refused);
    } else if (misfit(store, greet, message, sizeof message)) {
        refuse(conn, greet, LVN_ERR_USAGE, message);
        if (store->phase ==
            STORE_MEETING) { /* the ranks can never be complete; a running job goes on */
            lvni_store_refuse_all(store, LVN_ERR_USAGE, message);
        } else if (store->o.say != NULL && lvni_store_may_tell_misfit(store)) {
            store->o.say(store->o.user, message);
        }
    } else {
        welcome(conn, greet);
    }
}

void lvni_store_greeted(store_conn *conn, const lvni_frame *frame)
{
    lvni_store *store = conn->store;
    lvni_greet greet;
    const bool munge = store->auth == LVNI_AUTH_MUNGE;
    if (conn->check != NULL || !lvni_scan_greet(frame, &greet) ||
        (greet.credential_n > 0) != munge) {
        lvni_store_turn_away(conn, "it speaks something else");
    } else if (munge) {
        lvni_store_check_credential(conn, &greet);
    } else {
        conn->key = store->key;
        lvni_store_judge(conn, &greet);
    }
}
