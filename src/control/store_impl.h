/* Inside of the store: everything here belongs to its thread, but for what stands below `lock`. */
#ifndef LEVIN_CONTROL_STORE_IMPL_H
#define LEVIN_CONTROL_STORE_IMPL_H

#include "message.h"
#include "store.h"

#include <pthread.h>
#include <uv.h>

typedef struct store_conn store_conn;
typedef struct store_check store_check;
typedef struct store_gather store_gather;
typedef struct store_get store_get;
typedef struct store_entry store_entry;

/* Bytes on their way to one or many connections. */
typedef struct store_blob {
    int refs;
    size_t n;
    char *data;
} store_blob;

typedef enum rank_state {
    RANK_ABSENT,
    RANK_HERE, /* has a connection */
    RANK_LEFT, /* said goodbye */
    RANK_GONE  /* failed or lost */
} rank_state;

typedef struct store_rank {
    rank_state state;
    store_conn *conn;
    lvni_greet greet;
    int64_t step;   /* of its last heartbeat; -1: not in a step */
    bool stop_told; /* it has answered the question for its step */
    bool have_facts;
    uint32_t facts_id; /* the request that waits for the table */
    char *facts_block; /* what the texts of facts point into */
    lvni_facts_seen facts;
} store_rank;

/* The newest first; those that are being closed stay until they are. */
typedef struct store_list {
    store_conn *first, *last;
    int open;
} store_list;

struct store_conn {
    uv_tcp_t tcp;
    lvni_store *store;
    store_list *list; /* of the store's, the one that it is in */
    store_conn *next, *prev;
    int rank; /* -1: has not greeted */
    /* has sent something after its greeting: from then on its end is the rank's end */
    bool confirmed;
    bool parting; /* what is sent now is the last */
    bool closing, closed;
    store_check *check; /* a thread looks at its credential, or will; NULL: none */
    uint64_t opened_ns, heard_ns, said_ns;
    lvni_token nonce;
    lvni_token key; /* once it has greeted: what both ends prove to know */
    lvni_frame_reader in;
};

typedef enum store_phase { STORE_MEETING, STORE_MET, STORE_REFUSED } store_phase;
typedef enum stop_phase { STOP_NONE, STOP_ASKING, STOP_AGREED } stop_phase;

/* Of strangers, since the last line about them. */
typedef struct store_refusals {
    uint64_t n, next_ns;
    double every_s;
    char who[96], why[96];
} store_refusals;

enum { STORE_BUCKETS = 4096, STORE_READ = 64 << 10 };

struct lvni_store {
    lvni_store_options o; /* its texts are not kept, but for rank_hosts */
    char **rank_hosts;
    lvni_str file;    /* rdzv_file.h; empty: none */
    size_t made_dirs; /* for it: lvni_rdzv_file_write */
    char host[64];
    char reached_at[256]; /* the address that ranks were given, else the host's name */
    lvni_auth auth;
    lvni_token key, file_key;              /* but for MUNGE; of FILE: what the file has */
    char *job_key, *run_id, *munge_socket; /* for MUNGE */
    uint64_t munge_failed_ns;              /* since when MUNGE does not answer; 0: it does */
    char munge_why[200];
    int port;

    uv_loop_t loop;
    uv_tcp_t listener;
    uv_timer_t tick, settle;
    uv_async_t wake;
    pthread_t thread;
    uv_timer_t accepts;
    int accepts_left;  /* connections to take until the timer */
    bool accept_later; /* a connection waits for it, or for memory */

    store_list conns, strangers; /* ranks; those that have not proved to be one */
    int max_strangers;
    store_refusals refusals;
    uint64_t misfit_ns; /* until when no line tells of another rank that does not fit */
    store_rank *ranks;  /* world */
    char *read_room;    /* STORE_READ bytes: one read at a time */
    uint64_t begin_ns, tick_ns, waiting_ns;
    uint64_t woke_ns; /* when this process last went on after it had stood still; 0: never did */

    store_phase phase;
    int n_facts;
    store_blob *table;
    lvn_status refused_status;
    char refused[1000];

    bool over, suspected; /* suspect: a failure of kind peer that waits for the real cause */
    lvni_cause cause, suspect;

    stop_phase stop;
    int stop_reason;
    int64_t stop_at;

    store_entry *buckets[STORE_BUCKETS];
    size_t value_bytes;
    store_get *gets;
    store_gather *gathers;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    int connected; /* ranks */
    bool ending;
};

/* store_conn.c */
void lvni_store_on_connection(uv_stream_t *listener, int status);
/* why: what is said of its rank, which is then lost */
void lvni_store_drop(store_conn *conn, const char *why);
void lvni_store_count(lvni_store *store, int difference); /* of connected ranks */

void lvni_store_settle_in(store_conn *conn); /* it is a rank's now */
void lvni_store_free_conn(store_conn *conn);

/* store_greet.c */
void lvni_store_greeted(store_conn *conn, const lvni_frame *frame);
void lvni_store_judge(store_conn *conn, const lvni_greet *greet); /* with conn->key */

/* store_credential.c */
void lvni_store_check_credential(store_conn *conn,
                                 const lvni_greet *greet); /* and then lvni_store_judge */
void lvni_store_cancel_check(store_conn *conn);
void lvni_store_munge_tick(lvni_store *store, uint64_t now_ns);

/* store_strangers.c */
lvn_status
lvni_store_make_room(lvni_store *store); /* descriptors: the limit, and the budget of strangers */
bool lvni_store_may_accept(lvni_store *store); /* false: lvni_store_on_accepts calls again */
void lvni_store_on_accepts(uv_timer_t *timer);
void lvni_store_bound_strangers(lvni_store *store);
void lvni_store_turn_away(store_conn *conn,
                          const char *why); /* a stranger; nothing that it sent is in why */
/* The same, and tells the other end. */
void lvni_store_deny(store_conn *conn, lvni_deny reason, const char *why);
void lvni_store_tell_refusals(lvni_store *store, uint64_t now_ns); /* a line, where one is due */
bool lvni_store_may_tell_misfit(lvni_store *store);

/* store_send.c. A connection that cannot take more is dropped. */
store_blob *lvni_store_blob(lvni_str *take); /* NULL: no memory. Holds one reference */
void lvni_store_unref(store_blob *blob);
void lvni_store_send_str(store_conn *conn, lvni_str *take);
/* to every rank with a connection that has not left */
void lvni_store_broadcast(lvni_store *store, lvni_str *take);
/* REPLY: status with a message, or rest (may be NULL) as the answer. */
void lvni_store_reply(store_conn *conn, uint32_t id, lvn_status status, const char *message);
void lvni_store_answer(store_conn *conn, uint32_t id, store_blob *rest);

/* store_meet.c */
void lvni_store_take_facts(store_conn *conn, const lvni_frame *frame);
void lvni_store_refuse_all(lvni_store *store, lvn_status status, const char *message);
void lvni_store_meet_tick(lvni_store *store, uint64_t now_ns);
/* "ranks 4-7 (node n09), 9 (node n10)" of those with want(rank, arg). */
void lvni_store_name_ranks(const lvni_store *store, lvni_str *out,
                           bool (*want)(const store_rank *rank, const void *arg), const void *arg);

/* store_check.c: over the facts of all ranks. */
lvn_status lvni_store_check(const lvni_store *store); /* E102, E105, E116 to E118 */
void lvni_store_number(const lvni_store *store, lvni_member *members, int *nodes);

/* store_keys.c */
/* How SET, GET, ADD and GATHER begin; the rest of the body is still in the scan. */
typedef struct store_request {
    lvni_scan scan;
    uint32_t id;
    char key[LVNI_CONTROL_MAX_KEY + 1];
} store_request;
store_request lvni_store_request(const lvni_frame *frame);
void lvni_store_set(store_conn *conn, const lvni_frame *frame);
void lvni_store_get(store_conn *conn, const lvni_frame *frame);
void lvni_store_add(store_conn *conn, const lvni_frame *frame);
void lvni_store_keys_tick(lvni_store *store, uint64_t now_ns);
void lvni_store_forget_gets(lvni_store *store, const store_conn *conn); /* conn NULL: all */
void lvni_store_free_keys(lvni_store *store);

/* store_gather.c */
void lvni_store_gather(store_conn *conn, const lvni_frame *frame);
void lvni_store_gathers_tick(lvni_store *store, uint64_t now_ns);
void lvni_store_rank_left_gathers(lvni_store *store, int rank);
void lvni_store_free_gathers(lvni_store *store);

/* store_watch.c */
void lvni_store_on_tick(uv_timer_t *timer);
void lvni_store_on_settle(uv_timer_t *timer);
void lvni_store_report(lvni_store *store, const lvni_cause *cause);
void lvni_store_lost(lvni_store *store, int rank, const char *why);
void lvni_store_stop_ask(lvni_store *store, int reason);
void lvni_store_stop_step(lvni_store *store, int rank, int64_t step);
void lvni_store_stop_progress(lvni_store *store);
void lvni_store_tell_newcomer(store_conn *conn); /* what has been decided already */

uint64_t lvni_store_ns(double seconds);

#endif
