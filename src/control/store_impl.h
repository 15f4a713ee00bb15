/* Inside of the store. Everything here belongs to its thread, except what stands below `lock`. */
#ifndef LEVIN_CONTROL_STORE_IMPL_H
#define LEVIN_CONTROL_STORE_IMPL_H

#include "message.h"
#include "store.h"

#include <pthread.h>
#include <uv.h>

typedef struct lvni_control_conn lvni_control_conn;
typedef struct lvni_control_credential_check lvni_control_credential_check;
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
    LVNI_RANK_LEFT, /* has sent BYE */
    LVNI_RANK_GONE  /* failed or lost */
} lvni_control_rank_state;

typedef struct lvni_control_store_rank {
    lvni_control_rank_state state;
    lvni_control_conn *conn;
    lvni_control_greet greet;
    int64_t step;       /* of its last heartbeat; -1: not in a step */
    bool stop_answered; /* it has answered STOP_ASK with its step */
    bool have_facts;
    uint32_t facts_id; /* the request that waits for the table */
    char *facts_block; /* what the texts of facts point into */
    lvni_control_facts_message facts;
} lvni_control_store_rank;

/* The newest first; connections stay until they are closed. */
typedef struct lvni_control_conn_list {
    lvni_control_conn *first, *last;
    int open;
} lvni_control_conn_list;

struct lvni_control_conn {
    uv_tcp_t tcp;
    lvni_control_store *store;
    lvni_control_conn_list *list; /* that it is in: the store's `conns` or `strangers` */
    lvni_control_conn *next, *prev;
    int rank; /* -1: has not greeted */
    /* has sent something after its greeting: from then on its end is the rank's end */
    bool confirmed;
    bool parting; /* what is sent now is the last */
    bool closing, closed;
    bool ended; /* by the other end */
    lvni_control_credential_check
        *check; /* of its credential, in a thread of the pool; NULL: none */
    uint64_t opened_ns, heard_ns, sent_ns;
    lvni_control_token nonce;
    lvni_control_token key; /* after its greeting: what both ends prove to know */
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
    char peer[96], why[96];
} lvni_control_refusals;

enum { LVNI_STORE_BUCKETS = 4096, LVNI_STORE_READ = 64 << 10, LVNI_STORE_PLACES = 8 };

struct lvni_control_store {
    lvni_control_store_options o; /* its texts are not kept, except rank_hosts */
    char **rank_hosts;
    lvni_core_str file; /* rdzv_file.h; empty: none */
    size_t made_dirs;   /* for it: lvni_control_rdzv_file_write */
    char host[64];
    char reached_at[256]; /* the address that ranks were given, else the host's name */
    lvni_control_auth auth;
    lvni_control_token key, file_key;      /* not for MUNGE; file_key: what the file of FILE has */
    char *job_key, *run_id, *munge_socket; /* for MUNGE */
    uint64_t munge_failed_ns;              /* since when MUNGE does not answer; 0: it does */
    char munge_why[200];
    int port;

    uv_loop_t loop;
    uv_tcp_t listener;
    uv_tcp_t place[LVNI_STORE_PLACES]; /* in its place, once all ranks are there */
    int n_places;
    uv_timer_t tick, settle;
    uv_async_t wake;
    pthread_t thread;
    uv_timer_t accepts;
    int accepts_left; /* connections to take until the timer */
    /* connections wait for it, or for memory: bit 0 of listener, bit k + 1 of place[k] */
    unsigned accept_later;

    lvni_control_conn_list conns, strangers; /* ranks; those that have not proved to be one */
    int max_strangers;
    lvni_control_refusals refusals;
    uint64_t misfit_ns;             /* until when a rank that does not fit is not reported */
    lvni_control_store_rank *ranks; /* world */
    char *read_buffer;              /* LVNI_STORE_READ bytes: one read at a time */
    uint64_t begin_ns, tick_ns, waiting_ns;
    uint64_t woke_ns; /* when this process was last continued after a stop; 0: never */

    lvni_control_store_phase phase;
    int n_facts;
    lvni_control_blob *table;
    lvn_status refused_status;
    int refused_number; /* of the error (core/error.h); 0 */
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

    int fd; /* to listen on, until the listener owns it; then -1 */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started;
    int start_error; /* of libuv, once started */
    int connected;   /* ranks */
    bool ending;
};

/* store_narrow.c: listen at the addresses over which the ranks came, if it was at every address. */
void lvni_control_store_narrow(lvni_control_store *store);

/* store_conn.c. A connection whose queue is full is dropped. */
void lvni_control_store_on_connection(uv_stream_t *listener, int status);
/* why: the message of the cause when its rank is lost by this */
void lvni_control_conn_drop(lvni_control_conn *conn, const char *why);
void lvni_control_conn_joined(lvni_control_conn *conn); /* it is a rank's now */
void lvni_control_conn_free(lvni_control_conn *conn);
void lvni_control_store_count_connected(lvni_control_store *store, int difference);
/* Takes the text; holds one reference. NULL: no memory. */
lvni_control_blob *lvni_control_blob_create(lvni_core_str *take);
void lvni_control_blob_unref(lvni_control_blob *blob);
void lvni_control_conn_send(lvni_control_conn *conn, lvni_core_str *take);
/* to every rank with a connection that has not left */
void lvni_control_store_broadcast(lvni_control_store *store, lvni_core_str *take);
/* REPLY to a request: its answer (NULL: none), or an error, or why the rendezvous failed. */
void lvni_control_conn_reply(lvni_control_conn *conn, uint32_t id, lvni_control_blob *answer);
void lvni_control_conn_reply_error(lvni_control_conn *conn, uint32_t id, lvn_status status,
                                   const char *message);
void lvni_control_conn_reply_refused(lvni_control_conn *conn, uint32_t id);

/* store_greet.c */
/* Raises the limit of open files where it has to, and sets the budget of strangers. */
lvn_status lvni_control_store_reserve_descriptors(lvni_control_store *store);
/* false: a timer will accept the connection */
bool lvni_control_store_may_accept(lvni_control_store *store);
void lvni_control_store_bound_strangers(lvni_control_store *store);
/* Drops a stranger; why is ours, without anything that it sent. */
void lvni_control_conn_turn_away(lvni_control_conn *conn, const char *why);
/* one line at most, where one is due */
void lvni_control_store_report_refusals(lvni_control_store *store, uint64_t now_ns);
void lvni_control_conn_greeted(lvni_control_conn *conn, const lvni_control_frame *frame);
void lvni_control_conn_cancel_check(lvni_control_conn *conn);
void lvni_control_store_munge_tick(lvni_control_store *store, uint64_t now_ns);

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

/* store_keys.c */
void lvni_control_store_set(lvni_control_conn *conn, const lvni_control_frame *frame);
void lvni_control_store_get(lvni_control_conn *conn, const lvni_control_frame *frame);
void lvni_control_store_add(lvni_control_conn *conn, const lvni_control_frame *frame);
void lvni_control_store_keys_tick(lvni_control_store *store, uint64_t now_ns);
/* those that the connection waits in; NULL: all */
void lvni_control_store_forget_gets(lvni_control_store *store, const lvni_control_conn *conn);
void lvni_control_store_free_keys(lvni_control_store *store);
void lvni_control_store_gather(lvni_control_conn *conn, const lvni_control_frame *frame);
void lvni_control_store_gathers_tick(lvni_control_store *store, uint64_t now_ns);
void lvni_control_store_rank_left_gathers(lvni_control_store *store, int rank);
void lvni_control_store_free_gathers(lvni_control_store *store);

/* store_watch.c */
void lvni_control_store_on_tick(uv_timer_t *timer);
void lvni_control_store_report(lvni_control_store *store, const lvni_control_cause *cause);
void lvni_control_store_lost(lvni_control_store *store, int rank, bool ended, const char *why);
void lvni_control_store_stop_ask(lvni_control_store *store, int reason);
void lvni_control_store_stop_step(lvni_control_store *store, int rank, int64_t step);
void lvni_control_store_stop_progress(lvni_control_store *store);
/* To a rank that joins late: the cause, or the state of the stop. */
void lvni_control_conn_send_decision(lvni_control_conn *conn);

static inline uint64_t lvni_control_ns(double seconds)
{
    return seconds <= 0 ? 0 : (uint64_t)(seconds * 1e9);
}

#endif
