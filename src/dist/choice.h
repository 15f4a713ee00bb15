/* Which transport carries the gradients of a run: every transport declares what it has and how well
 * it does a call (transport.h), and of those that reach all ranks the best one is taken. Called by
 * recipes/ before there is a communicator, and by `levin plan`. */
#ifndef LEVIN_DIST_CHOICE_H
#define LEVIN_DIST_CHOICE_H

#include "dist/comm.h"

typedef struct lvni_dist_transport lvni_dist_transport;

typedef struct lvni_dist_layout {
    int ranks, hosts;
    const int *host; /* of each rank a number of its host; NULL: not known, or one */
    bool threads;    /* all ranks are threads: of one process, or of one on each host */
    bool device;     /* gradients lie on devices */
    size_t bytes;    /* of gradients that travel at once */
} lvni_dist_layout;

enum { LVNI_DIST_LACK = 120 }; /* bytes of why a transport is not there */

typedef struct lvni_dist_choice {
    const lvni_dist_transport *transport;
    const lvni_dist_transport *link; /* of ranks in two levels: between nodes; else NULL */
    bool nccl; /* gradients are added between devices (device_sum.h), beside `transport` */
    /* "transport shm: 2 ranks share memory (auto: score 80, net 30, ...)" */
    char line[384];
    /* of "auto" where the best is not on every machine: taken by all when one rank lacks that;
     * NULL: else */
    const lvni_dist_transport *fallback;
    char lack[LVNI_DIST_LACK];      /* why this rank does not take the best; "": it does */
    lvni_dist_layout layout, asked; /* asked: of the ranks that the transport connects */
} lvni_dist_choice;

/* requested: the name of a transport, "nccl" (auto takes what it stands beside), or "auto"; of
 * ranks on several nodes the one between nodes, while those of a node share memory (levels/),
 * unless the ranks of a node do not follow each other. LVN_ERR_USAGE: it does not reach all ranks,
 * or there is none that does. LVN_ERR_NOT_FOUND: this machine does not have it. */
lvn_status lvni_dist_choose(const lvni_dist_layout *layout, const char *requested,
                            lvni_dist_choice *out);
/* Of ranks that were connected in another way: they keep to the choice. */
void lvni_dist_choice_apply(const lvni_dist_choice *choice, lvni_dist_comm *comm);
/* "share memory": what ranks do over it */
const char *lvni_dist_choice_does(const lvni_dist_choice *choice);
/* Of ranks that are processes; a collective over options->exchange. Where a rank lacks what the
 * others have chosen, or cannot connect over it, all take the fallback, and choice is changed. */
lvn_status lvni_dist_choice_connect(lvni_dist_choice *choice, const lvni_dist_comm_options *options,
                                    lvni_dist_comm **out);
/* Of processes whose threads are ranks: out[0 .. threads-1]. */
lvn_status lvni_dist_choice_connect_threads(lvni_dist_choice *choice,
                                            const lvni_dist_comm_options *options, int threads,
                                            lvni_dist_comm **out);

#endif
