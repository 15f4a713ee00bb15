/* Inside of the store: everything here belongs to its thread, but for what stands below `lock`. */
#ifndef LEVIN_CONTROL_STORE_IMPL_H
#define LEVIN_CONTROL_STORE_IMPL_H

#include "message.h"
#include "store.h"

#include <pthread.h>
#include <uv.h>

typedef struct lvni_control_conn lvni_control_conn;
typedef struct lvni_control_sync_check lvni_control_sync_check;
typedef struct lvni_control_pending_gather lvni_control_pending_gather;
typedef struct lvni_control_pending_get lvni_control_pending_get;
typedef struct lvni_control_entry lvni_control_entry;

/* Bytes on their way to one or many connections. */
typedef struct lvni_control_blob {
    int refs;
    size_t n;
    char *data;
} lvni_control_blob;

typedef enum lvni_control_rank_state {
    LVNI_RANK_ABSENT,
    LVNI_RANK_HERE, /* has a connection */
    LVNI_RANK_LEFT, /* said goodbye */
    LVNI_RANK_GONE  /* failed or lost */
} lvni_control_rank_state;

typedef struct lvni_control_store_rank {
    lvni_control_rank_state state;
    lvni_control_conn *conn;
    lvni_control_greet greet;
    int64_t step;       /* of its last heartbeat; -1: not in a step */
    bool stop_reported; /* it has answered the question for its step */
    bool have_facts;
    uint32_t facts_id; /* the request that waits for the table */
    char *facts_block; /* what the texts of facts point into */
    lvni_control_facts_seen facts;
} lvni_control_store_rank;

/* The newest first; those that are being closed stay until they are. */
typedef struct lvni_control_list {
    lvni_control_conn *first, *last;
    int open;
} lvni_control_list;

struct lvni_control_conn {
    uv_tcp_t tcp;
    lvni_control_store *store;
    lvni_control_list *list; /* of the store's, the one that it is in */
    lvni_control_conn *next, *prev;
    int rank; /* -1: has not greeted */
    /* has sent something after its greeting: from then on its end is the rank's end */
    bool confirmed;
    bool parting; /* what is sent now is the last */
    bool closing, closed;
    lvni_control_sync_check *check; /* a thread looks at its credential, or will; NULL: none */
    uint64_t opened_ns, heard_ns, reported_ns;
    lvni_control_token nonce;
    lvni_control_token key; /* once it has greeted: what both ends prove to know */
    lvni_control_frame_reader in;
};

typedef enum lvni_control_store_phase {
    LVNI_STORE_RENDEZVOUS,
    LVNI_STORE_JOINED,
    LVNI_STORE_REFUSED
} lvni_control_store_phase;
typedef enum lvni_control_stop_phase {
    LVNI_STOP_NONE,
    LVNI_STOP_ASKING,
    LVNI_STOP_AGREED
} lvni_control_stop_phase;

/* Of strangers, since the last line about them. */
typedef struct lvni_control_refusals {
    uint64_t n, next_ns;
    double every_s;
    char info[96], why[96];
} lvni_control_refusals;

enum { LVNI_STORE_BUCKETS = 4096, LVNI_STORE_READ = 64 << 10 };

struct lvni_control_store {
    lvni_control_store_options o; /* its texts are not kept, but for rank_hosts */
    char **rank_hosts;
    lvni_core_str file; /* rdzv_file.h; empty: none */
    size_t made_dirs;   /* for it: lvni_control_rdzv_file_write */
    char host[64];
    char reached_at[256]; /* the address that ranks were given, else the host's name */
    lvni_control_auth auth;
    lvni_control_token key, file_key;      /* but for MUNGE; of FILE: what the file has */
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

    lvni_control_list conns, strangers; /* ranks; those that have not proved to be one */
    int max_strangers;
    lvni_control_refusals refusals;
    uint64_t misfit_ns;             /* until when no line tells of another rank that does not fit */
    lvni_control_store_rank *ranks; /* world */
    char *read_room;                /* LVNI_STORE_READ bytes: one read at a time */
    uint64_t begin_ns, tick_ns, waiting_ns;
    uint64_t woke_ns; /* when this process last went on after it had stood still; 0: never did */

    lvni_control_store_phase phase;
    int n_facts;
    lvni_control_blob *table;
    lvn_status refused_status;
    int refused_number; /* of the error (core/notice.h); 0 */
    char refused[1000];

    bool over, suspected; /* suspect: a failure of kind peer that waits for the real cause */
    lvni_control_cause cause, suspect;

    lvni_control_stop_phase stop;
    int stop_reason;
    int64_t stop_at;

    lvni_control_entry *buckets[LVNI_STORE_BUCKETS];
    size_t value_bytes;
    lvni_control_pending_get *gets;
    lvni_control_pending_gather *gathers;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    int connected; /* ranks */
    bool ending;
};

/* lvni_control_conn.c */
void lvni_control_store_on_connection(uv_stream_t *listener, int status);
/* why: what is said of its rank, which is then lost */
void lvni_control_store_drop(lvni_control_conn *conn, const char *why);
void lvni_control_store_count(lvni_control_store *store, int difference); /* of connected ranks */

void lvni_control_store_settle_in(lvni_control_conn *conn); /* it is a rank's now */
void lvni_control_store_free_conn(lvni_control_conn *conn);

/* store_greet.c */
void lvni_control_store_greeted(lvni_control_conn *conn, const lvni_control_frame *frame);
/* with conn->key */
void lvni_control_store_judge(lvni_control_conn *conn, const lvni_control_greet *greet);

/* store_credential.c */
void lvni_control_store_check_credential(lvni_control_conn *conn,
                                         /* and then lvni_control_store_judge */
                                         const lvni_control_greet *greet);
void lvni_control_store_cancel_check(lvni_control_conn *conn);
void lvni_control_store_munge_tick(lvni_control_store *store, uint64_t now_ns);

/* store_strangers.c */
lvn_status
/* descriptors: the limit, and the budget of strangers */
lvni_control_store_make_room(lvni_control_store *store);
/* false: lvni_control_store_on_accepts calls again */
bool lvni_control_store_may_accept(lvni_control_store *store);
void lvni_control_store_on_accepts(uv_timer_t *timer);
void lvni_control_store_bound_strangers(lvni_control_store *store);
void lvni_control_store_turn_away(lvni_control_conn *conn,
                                  const char *why); /* a stranger; nothing that it sent is in why */
/* The same, and tells the other end. */
void lvni_control_store_deny(lvni_control_conn *conn, lvni_control_deny reason, const char *why);
/* a line, where one is due */
void lvni_control_store_report_refusals(lvni_control_store *store, uint64_t now_ns);
bool lvni_control_store_may_report_misfit(lvni_control_store *store);

/* store_send.c. A connection that cannot take more is dropped. */
/* NULL: no memory. Holds one reference */
lvni_control_blob *lvni_control_store_blob(lvni_core_str *take);
void lvni_control_store_unref(lvni_control_blob *blob);
void lvni_control_store_send_str(lvni_control_conn *conn, lvni_core_str *take);
/* to every rank with a connection that has not left */
void lvni_control_store_broadcast(lvni_control_store *store, lvni_core_str *take);
/* REPLY: status with a message, or rest (may be NULL) as the answer. */
void lvni_control_store_reply(lvni_control_conn *conn, uint32_t id, lvn_status status,
                              const char *message);
void lvni_control_store_reply_refused(lvni_control_conn *conn, uint32_t id);
void lvni_control_store_answer(lvni_control_conn *conn, uint32_t id, lvni_control_blob *rest);

/* store_rendezvous.c */
void lvni_control_store_take_facts(lvni_control_conn *conn, const lvni_control_frame *frame);
void lvni_control_store_refuse_all(lvni_control_store *store, lvn_status status, int number,
                                   const char *message);
void lvni_control_store_rendezvous_tick(lvni_control_store *store, uint64_t now_ns);
/* "ranks 4-7 (node n09), 9 (node n10)" of those with want(rank, arg). */
void lvni_control_store_name_ranks(const lvni_control_store *store, lvni_core_str *out,
                                   bool (*want)(const lvni_control_store_rank *rank,
                                                const void *arg),
                                   const void *arg);

/* lvni_control_sync_check.c: over the facts of all ranks. */
lvn_status lvni_control_store_check(const lvni_control_store *store); /* E102, E105, E116 to E118 */
void lvni_control_store_number(const lvni_control_store *store, lvni_control_member *members,
                               int *nodes);

/* store_keys.c */
/* How SET, GET, ADD and GATHER begin; the rest of the body is still in the scan. */
typedef struct lvni_control_pending_request {
    lvni_control_scan scan;
    uint32_t id;
    char key[LVNI_CONTROL_MAX_KEY + 1];
} lvni_control_pending_request;
lvni_control_pending_request lvni_control_store_request(const lvni_control_frame *frame);
void lvni_control_store_set(lvni_control_conn *conn, const lvni_control_frame *frame);
void lvni_control_store_get(lvni_control_conn *conn, const lvni_control_frame *frame);
void lvni_control_store_add(lvni_control_conn *conn, const lvni_control_frame *frame);
void lvni_control_store_keys_tick(lvni_control_store *store, uint64_t now_ns);
/* conn NULL: all */
void lvni_control_store_forget_gets(lvni_control_store *store, const lvni_control_conn *conn);
void lvni_control_store_free_keys(lvni_control_store *store);

/* lvni_control_pending_gather.c */
void lvni_control_store_gather(lvni_control_conn *conn, const lvni_control_frame *frame);
void lvni_control_store_gathers_tick(lvni_control_store *store, uint64_t now_ns);
void lvni_control_store_rank_left_gathers(lvni_control_store *store, int rank);
void lvni_control_store_free_gathers(lvni_control_store *store);

/* store_watch.c */
void lvni_control_store_on_tick(uv_timer_t *timer);
void lvni_control_store_on_settle(uv_timer_t *timer);
void lvni_control_store_report(lvni_control_store *store, const lvni_control_cause *cause);
void lvni_control_store_lost(lvni_control_store *store, int rank, const char *why);
void lvni_control_store_stop_ask(lvni_control_store *store, int reason);
void lvni_control_store_stop_step(lvni_control_store *store, int rank, int64_t step);
void lvni_control_store_stop_progress(lvni_control_store *store);
/* what has been decided already */
void lvni_control_store_refuse_newcomer(lvni_control_conn *conn);

uint64_t lvni_control_store_ns(double seconds);

#endif
