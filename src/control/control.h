/* A rank's side of the control channel: one TCP connection to the store (store.h), served by a
 * thread of its own. It carries no tensors. Over it the ranks find each other, exchange small
 * facts, agree on the step to stop at, and learn which rank failed first.
 *
 * Called on every rank, in this order:
 *   lvni_control_connect       once rank, world and the store's address are known. The store's host
 *                              creates the store first (lvni_control_store_create); its rank
 *                              connects like all others
 *   lvni_control_rendezvous    once the configuration is resolved and the checkpoint to resume from
 *                              is chosen: gives the table of all ranks, or the error that names
 *                              what is missing or does not fit
 *   lvni_control_gather, _get, _set, _add
 *                              for addresses, memory handles, fingerprints
 *   lvni_control_boundary      before every training step, the first included
 *   lvni_control_request_stop  on a signal, or when the time limit is near
 *   lvni_control_fail          on failure, before the process ends, also when it fails only because
 *                              a peer is gone
 *   lvni_control_leave         at the end of a run that finished
 *   lvni_control_destroy       at the end of any; on the store's host followed by
 *                              lvni_control_store_wait and lvni_control_store_destroy
 *
 * A rank whose connection ends without lvni_control_leave or lvni_control_fail counts as lost, and
 * the run is over: the store sends the cause to all ranks, `on_abort` is called, and every later
 * call is LVN_ERR_PEER whose message names rank, host and step of the first cause. The same happens
 * when the store stops sending or its connection breaks.
 *
 * Thread-safe, except connect and destroy. Errors whose message begins with "E1nn: " are those of
 * the specification; the store's host prints them, the others need not. lvni_core_exit_of_error
 * (core/error.h) gives the exit code. */
#ifndef LEVIN_CONTROL_CONTROL_H
#define LEVIN_CONTROL_CONTROL_H

#include <levin/status.h>

typedef struct lvni_control lvni_control;

/* ---- Causes: why a run is over ---- */

/* kind, name (as in error records) */
#define LVNI_CAUSE_LIST(X)                                                                         \
    X(NONE, "none")                                                                                \
    X(ERROR, "error") /* the work itself: a bug, data, a full disk */                              \
    X(NAN, "nan")     /* a value that is not finite */                                             \
    X(OOM, "oom")     /* host or device memory */                                                  \
    X(CUDA, "cuda")                                                                                \
    X(NCCL, "nccl")                                                                                \
    X(SIGNAL, "signal") /* killed, or lost: the connection broke or fell silent without FAIL */    \
    X(PEER, "peer") /* fails only because another rank is gone: never the first cause where there  \
                       is another */

typedef enum lvni_control_cause_kind {
#define LVNI_CAUSE_ENUM(kind, name) LVNI_CAUSE_##kind,
    LVNI_CAUSE_LIST(LVNI_CAUSE_ENUM)
#undef LVNI_CAUSE_ENUM
        LVNI_CAUSE_COUNT
} lvni_control_cause_kind;

typedef struct lvni_control_cause {
    lvni_control_cause_kind kind;
    int rank;
    int64_t step; /* -1: before the first step, or not known */
    int64_t pid;
    uint64_t time_ns; /* wall clock of the host that noticed */
    /* of kind peer: the message is a whole sentence, which names the rank that failed first */
    bool named;
    /* of kind signal: its connection ended, as at the end of a process; else it was silent, and may
     * continue */
    bool ended;
    char host[64];
    char place[160];   /* "step 5, micro-batch 1"; "": not known */
    char message[768]; /* one sentence or more, as the rank gave it */
} lvni_control_cause;

const char *lvni_control_cause_name(lvni_control_cause_kind kind); /* "nan"; "?" for none of them */
/* The kind of failure that a status stands for, as in error records (core/error.h). */
lvni_control_cause_kind lvni_control_cause_of_status(lvn_status status);
/* "rank 2 (n08, pid 4711) failed first at step 812: MESSAGE (in PLACE)": the one sentence for
 * users. Cut to size, zero-terminated. Where the cause is `named` it is the message as it
 * stands. */
void lvni_control_cause_sentence(const lvni_control_cause *cause, char *out, size_t size);

/* ---- Connecting ---- */

/* How the two ends prove that they belong together. The process that creates the store chooses, and
 * the store's first frame names the method. A rank that has a run key or a secret takes KEY alone;
 * one without takes any, or with `closed` all but OPEN. */
typedef enum lvni_control_auth {
    LVNI_AUTH_OPEN,  /* nothing is secret: every process that reaches the port can join */
    LVNI_AUTH_KEY,   /* a run key or a secret that all ranks have */
    LVNI_AUTH_FILE,  /* a random key in the file of rdzv_file.h, which its owner alone can read */
    LVNI_AUTH_MUNGE, /* a credential of MUNGE for each connection (auth.h); the user must be the
                        store's */
    LVNI_AUTH_COUNT
} lvni_control_auth;

typedef struct lvni_control_options {
    /* From the identity. Everything is copied. */
    const char *host; /* of the store: name or address; NULL: 127.0.0.1 */
    const int *ports; /* candidates, tried in turn; one where the port is exact */
    size_t n_ports;
    /* a shared directory whose file has the store's address, instead of host and ports; NULL:
     * none */
    const char *rdzv_dir;
    int rank, world;
    const char *job_key, *run_id; /* equal on all ranks of a run; NULL counts as "" */
    /* LEVIN_RUN_KEY: 32 hexadecimal digits, random, of this run alone; NULL: none */
    const char *run_key;
    const char *secret; /* LEVIN_TOKEN: only ranks that have it may join; NULL: none */
    /* where the file of LVNI_AUTH_FILE is, without rdzv_dir; NULL: there is none */
    const char *key_dir;
    const char *munge_socket; /* NULL: MUNGE's own */
    bool closed;              /* LVNI_AUTH_OPEN is not taken */
    /* Seconds; lvni_control_options_init gives the values in brackets. */
    double rdzv_timeout_s;     /* [300] for connecting, and again for the rendezvous */
    double greeting_timeout_s; /* [5] how long a server may take to prove that it is ours */
    double munge_timeout_s;    /* [10] how long MUNGE may make no credential here: E120 */
    /* [30] with one port alone: how long another program may have it. 0: as long as rdzv_timeout_s,
     * for a store whose port was there first */
    double taken_timeout_s;
    /* [15, 30] lines that name the store for which this rank waits */
    double waiting_first_s, waiting_every_s;
    double heartbeat_s;    /* [2], a quarter of peer_timeout_s at most */
    double peer_timeout_s; /* [10] a store silent for longer is lost */
    /* Called once, on the channel's own thread (or in lvni_control_fail, when the store is silent),
     * when the run is over: wakes the threads that wait for a peer (aborts the transports). It may
     * call lvni_control_get_cause and nothing else of this channel. NULL: none. */
    void (*on_abort)(void *user, const lvni_control_cause *cause);
    /* Called in lvni_control_connect with these lines. NULL: none. */
    void (*report)(void *user, const char *line);
    void *user;
} lvni_control_options;

void lvni_control_options_init(lvni_control_options *options);
/* Tries the candidates in turn, 50 ms apart, doubling to 1 s, with jitter, until a server proves
 * that it belongs to this run; others are skipped. LVN_ERR_TIMEOUT E114 (address, ports, the last
 * error, what the name resolved to); LVN_ERR_USAGE E102 (another world), E115 (the rank is taken),
 * E116 (another protocol). On success a thread "lvn-control" runs until lvni_control_destroy. */
lvn_status lvni_control_connect(const lvni_control_options *options, lvni_control **out);
/* Leaves the run in order (the rank does not count as lost) and waits for the store's answer.
 * Collective operations of others that wait for this rank fail. LVN_OK when the run is over
 * already. */
lvn_status lvni_control_leave(lvni_control *control);
/* Ends the thread and frees everything; NULL is fine. Without lvni_control_leave or
 * lvni_control_fail before, the others take this rank for lost. No other thread may be in a
 * call. */
void lvni_control_destroy(lvni_control *control);

/* ---- Rendezvous ---- */

typedef struct lvni_control_facts {
    /* -1: not known; where one rank does not know, all are numbered by host */
    int local_rank, node_rank;
    const char *host, *boot_id;
    int64_t pid;
    const char *version; /* of the library */
    /* UUID or PCI address; "" for none (cpu). Two ranks of one boot id with the same: E105 */
    const char *device;
    const char *driver;  /* "cuda 13.0 nccl 2.28" or "": reported, not compared */
    int cpus;            /* in the affinity mask */
    int64_t resume_step; /* -1: from the beginning. Different: E118 */
    /* lines "key: value" of what must be equal; different: E117 with the first keys. NULL:
     * nothing */
    const char *config;
    const char *fingerprint; /* free text, sent to all ranks, not compared. NULL: "" */
} lvni_control_facts;

/* Host name, boot id, pid, version and cpus of this process; no device, from the beginning. The
 * strings are static or inside `room`. */
typedef struct lvni_control_facts_room {
    char host[64], boot_id[64];
} lvni_control_facts_room;
void lvni_control_facts_init(lvni_control_facts *facts, lvni_control_facts_room *room);

typedef struct lvni_control_member {
    int rank, local_rank, local_world, node_rank;
    /* equal for ranks of one host and boot id (they can share memory), numbered by their smallest
     * rank */
    int host_index;
    int cpus;
    int64_t pid;
    const char *host, *boot_id, *device, *driver, *fingerprint;
} lvni_control_member;

/* Waits for all ranks. LVN_ERR_TIMEOUT E113 (which ranks are missing); LVN_ERR_USAGE E102, E115 to
 * E118; LVN_ERR_RESOURCE E105; the same message on all ranks. LVN_ERR_PEER when a rank that was
 * there is gone. */
lvn_status lvni_control_rendezvous(lvni_control *control, const lvni_control_facts *facts);
/* After the rendezvous: `world` rows by rank, borrowed until destroy. NULL before. */
const lvni_control_member *lvni_control_members(const lvni_control *control);
int lvni_control_world(const lvni_control *control);
/* Addresses of the connection to the store, IPv4 or IPv6 as text: the own one and the store's.
 * Before the end of the run. */
enum { LVNI_CONTROL_ADDRESS = 64 };
void lvni_control_addresses(const lvni_control *control, char own[LVNI_CONTROL_ADDRESS],
                            char store[LVNI_CONTROL_ADDRESS]);

/* Has the process of `rank` ended for certain? Of a rank of this host the system is asked, also
 * after the end of the run; of another host what the channel reports about the first rank that was
 * lost. false: it has not, or that is not known. After the rendezvous. */
bool lvni_control_has_ended(const lvni_control *control, int rank);

/* ---- Small facts. Keys are text of 1 to 255 bytes, values at most LVNI_CONTROL_MAX_VALUE.
 * Timeouts are LVN_ERR_TIMEOUT. ---- */

enum { LVNI_CONTROL_MAX_KEY = 255, LVNI_CONTROL_MAX_VALUE = 4 << 20 };

lvn_status lvni_control_set(lvni_control *control, const char *key, const void *bytes, size_t n);
/* Waits until a rank sets the key. *bytes is the caller's (lvni_core_free), zero-terminated behind
 * its *n bytes. */
lvn_status lvni_control_get(lvni_control *control, const char *key, double timeout_s, char **bytes,
                            size_t *n);
/* Adds to a counter that begins at 0 and gives what it is then. A key is a counter or a value,
 * never both. */
lvn_status lvni_control_add(lvni_control *control, const char *key, int64_t n, int64_t *value);
/* Every rank gives n bytes (its own n) and gets those of all, by rank. The same name may be used
 * again afterwards. The timeout's message names the missing ranks. *out is one block of the
 * caller's (lvni_core_free): world entries, the bytes behind them. */
typedef struct lvni_control_bytes {
    const char *data; /* zero-terminated behind its n bytes */
    size_t n;
} lvni_control_bytes;
lvn_status lvni_control_gather(lvni_control *control, const char *name, const void *bytes, size_t n,
                               double timeout_s, lvni_control_bytes **out);

/* ---- Stopping together ---- */

/* Requests that all ranks stop at one common step; `reason` is a signal number or another of the
 * caller's, the first request wins. Returns at once. */
void lvni_control_request_stop(lvni_control *control, int reason);
/* Before the step that follows `step` finished ones. One atomic store and load while no stop is
 * requested. Else waits until the common step is known; *stop: it is reached, no rank goes on, and
 * all have finished the same number of steps. */
lvn_status lvni_control_boundary(lvni_control *control, int64_t step, bool *stop);
/* of the first request, equal on all ranks once *stop was true; 0: none */
int lvni_control_stop_reason(lvni_control *control);

/* ---- Failing ---- */

/* Reports this rank's failure and waits, a second at most, until the store has decided which
 * failure was first: lvni_control_get_cause has it then. Only the first call counts. Of `failure`
 * kind, step (-1: that of the last boundary), named, place and message are the caller's; the rest
 * is filled in. */
void lvni_control_fail(lvni_control *control, const lvni_control_cause *failure);
/* Is the run over? One atomic load; cause (may be NULL) is filled when it is. */
bool lvni_control_get_cause(const lvni_control *control, lvni_control_cause *cause);
/* LVN_OK, or after the end of the run LVN_ERR_PEER with the sentence: for loops that wait for
 * something else. */
lvn_status lvni_control_check(const lvni_control *control);

#endif
