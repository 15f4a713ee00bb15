/* The store: a small TCP server in a thread of one rank's process (rank 0, or the first process of
 * the first node under Slurm). All ranks, that one included, connect to it with control.h. It knows
 * which ranks are present, holds keys and counters, and decides which rank failed first.
 *
 * In the store's process:
 *   lvni_control_store_create   before lvni_control_connect
 *   lvni_control_store_wait     after the own lvni_control_destroy: other ranks may still run, or
 *                               wait for the cause
 *   lvni_control_store_destroy  last
 * The launcher calls lvni_control_store_listen and hands the socket to its first child
 * (LEVIN_STORE_FD), which gives it to lvni_control_store_create.
 *
 * A connection gets a HELLO and must answer within greeting_timeout_s with a proof that it knows
 * the run's key; else it is closed. The store waits for no client: what one does not read is
 * queued, and beyond a bound the client counts as lost. */
#ifndef LEVIN_CONTROL_STORE_H
#define LEVIN_CONTROL_STORE_H

#include "control.h"

typedef struct lvni_control_store lvni_control_store;

typedef struct lvni_control_store_options {
    /* Where: an inherited socket, or address and ports. */
    /* bound, whether listening or not; the store's from now on, also when create fails. -1: none */
    int listen_fd;
    const char *address; /* bind to this name or address alone: 127.0.0.1 where all ranks are here,
                          * or what the user gave. A host's own name may stand for its loopback: for
                          * the name of a host list give NULL, every interface, IPv4 and IPv6 */
    const int *ports;    /* the first free one is taken; 0 among them: any */
    size_t n_ports;
    /* a directory that all nodes share: where the store listens is written there, and removed at
     * the end. NULL: not */
    const char *rdzv_dir;
    /* Whose: equal to those of the ranks. Copied. */
    int world, rank; /* rank: of the process that holds the store */
    const char *job_key, *run_id;
    const char *run_key, *secret; /* as in control.h; with one of them `auth` counts as KEY */
    lvni_control_auth auth;
    const char *key_dir; /* for FILE, without rdzv_dir */
    const char *munge_socket;
    /* world names for "missing" lines, where known beforehand; NULL: not. Copied */
    const char *const *rank_hosts;
    bool allow_shared_device; /* no E105 */
    /* Seconds; lvni_control_store_options_init gives the values in brackets. */
    double rdzv_timeout_s;                   /* [300] from create until all ranks are there: E113 */
    double waiting_first_s, waiting_every_s; /* [15, 30] lines that name missing ranks */
    double greeting_timeout_s;               /* [5] */
    double munge_timeout_s; /* [10] how long MUNGE may not answer while ranks are missing: E120 */
    double heartbeat_s;     /* [2], a quarter of peer_timeout_s at most */
    /* [10] a rank silent for longer is lost; the ranks are given the same */
    double peer_timeout_s;
    double settle_s; /* [0.25] how long a failure of kind peer waits for the real cause */
    /* Called on the store's thread with lines for rank 0's log: missing ranks, refused connections.
     * NULL: none. */
    void (*report)(void *user, const char *line);
    void *user;
} lvni_control_store_options;

void lvni_control_store_options_init(lvni_control_store_options *options);
/* LVN_ERR_RESOURCE E110 (port busy, and its process, where /proc shows it), LVN_ERR_USAGE E111 (the
 * address is not this host's). On success a thread "lvn-store" runs until
 * lvni_control_store_destroy. */
lvn_status lvni_control_store_create(const lvni_control_store_options *options,
                                     lvni_control_store **out);
int lvni_control_store_port(const lvni_control_store *store);
/* Until no rank is connected any more: all have left, failed or are lost. LVN_ERR_TIMEOUT when some
 * are still there. timeout_s < 0: as long as it takes; ranks that die meanwhile are noticed. */
lvn_status lvni_control_store_wait(lvni_control_store *store, double timeout_s);
/* at once, even with ranks connected; NULL is allowed */
void lvni_control_store_destroy(lvni_control_store *store);

/* A socket bound to address (NULL: every interface) and the first free of the ports (0: any),
 * close-on-exec, listening. Errors as in create. */
lvn_status lvni_control_store_listen(const char *address, const int *ports, size_t n_ports, int *fd,
                                     int *port);
lvn_status lvni_control_store_port_of(int fd, int *port); /* of an inherited socket */
/* Which process listens on a port of this host, as far as /proc shows it: "pid 4711 (python3
 * train.py)", or "its owner is not visible from here". For messages. */
void lvni_control_port_owner(int port, char *out, size_t size);

#endif
