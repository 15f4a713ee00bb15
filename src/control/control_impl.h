/* Inside of a rank's connection. */
#ifndef LEVIN_CONTROL_CONTROL_IMPL_H
#define LEVIN_CONTROL_CONTROL_IMPL_H

#include "message.h"

#include <pthread.h>
#include <stdatomic.h>

/* On the stack of the thread that waits for it. */
typedef struct lvni_control_request {
    struct lvni_control_request *next;
    uint32_t id;
    bool done;
    bool bye; /* once it is answered, the end of the connection is expected */
    lvn_status status;
    int number; /* of its error (core/error.h); 0 */
    char *data; /* zero-terminated; the waiting thread's */
    size_t n;
} lvni_control_request;

/* Why a boundary has to look closer. */
enum { LVNI_ATTENTION_STOP = 1, LVNI_ATTENTION_OVER = 2 };

struct lvni_control {
    int rank, world, store_rank;
    char store_host[64];
    double heartbeat_s, peer_timeout_s, rdzv_timeout_s;
    void (*on_abort)(void *user, const lvni_control_cause *cause);
    void *user;
    pthread_t thread;

    /* The thread's own. */
    int fd;
    lvni_control_frame_reader in;
    lvni_core_str sending;
    size_t sent;
    uint64_t heard_ns, sent_ns, turn_ns;
    bool broken; /* the connection is of no more use */

    int wake_fd; /* written to when `out` or `ending` changed */
    _Atomic int64_t step;
    _Atomic int attention;
    _Atomic uint32_t next_id;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    lvni_core_str out; /* frames to send */
    lvni_control_request *requests;
    lvni_control_cause cause; /* once LVNI_ATTENTION_OVER is set it stays as it is */
    bool stop_known, left, failed, ending;
    int stop_reason;
    int64_t stop_at;
    char *table; /* what the members' texts point into */
    lvni_control_member *members;
};

/* control_connect.c: the socket, greeted, with what was read beyond the greeting. */
typedef struct lvni_control_link {
    int fd, store_rank;
    char store_host[64];
    lvni_control_frame_reader in;
} lvni_control_link;
lvn_status lvni_control_find_store(const lvni_control_options *options, lvni_control_link *out);

/* control_thread.c */
void *lvni_control_thread_main(void *control);
void lvni_control_wake(const lvni_control *control);
/* The run is over, unless it was already. */
void lvni_control_set_cause(lvni_control *control, const lvni_control_cause *cause);

uint64_t lvni_control_wall_ns(void);

#endif
