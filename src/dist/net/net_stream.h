/* The link over TCP: one stream connection between any two ranks, which net_connect.c makes and
 * net_stream.c reads and writes. */
#ifndef LEVIN_DIST_NET_NET_STREAM_H
#define LEVIN_DIST_NET_NET_STREAM_H

#include "dist/net/net_impl.h"

/* The connection with a peer, and the message that is coming in. */
typedef struct lvni_net_stream {
    int fd;     /* -1: this rank */
    size_t got; /* bytes of the header */
    lvni_net_incoming in;
    int at_part;
    size_t at; /* bytes of part[at_part] */
} lvni_net_stream;

/* c->wire */
typedef struct lvni_net_streams {
    lvni_net_stream *stream; /* world */
    pthread_cond_t queued;   /* for the sender */
    pthread_t sender, receiver;
    bool has_sender, has_receiver, quit_receiving;
    int wake[2]; /* a pipe that ends the receiver's poll */
} lvni_net_streams;

static inline lvni_net_streams *lvni_net_streams_of(const lvni_net_comm *c)
{
    return c->wire;
}

/* Starts both threads. */
lvn_status lvni_net_streams_start(lvni_net_comm *c);
/* Of lvni_net_link. */
void lvni_net_streams_wake(lvni_net_comm *c);
void lvni_net_streams_leave(lvni_net_comm *c, uint32_t reduction);
void lvni_net_streams_stop(lvni_net_comm *c);

#endif
