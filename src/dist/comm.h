/* The communicator of a run: its ranks, and the values that they exchange and add up. A rank is a
 * process or a thread; nothing above this folder knows which. One communicator per rank, used by
 * that rank's trainer thread unless noted otherwise.
 *
 *   comm.c       creation, the calls below, their checks
 *   reduction.h  the gradient of a step (buckets, the fixed tree), reduced while backward still
 *     runs
 *   self/        one rank
 *   net/         ranks that exchange messages
 *   ucx/         the same messages over UCX
 *   shm/         ranks of one node: processes that share a memfd, or threads of one process
 *   nccl/        gradients between NVIDIA's GPUs, beside one of the others (device_sum.h)
 *   levels/      ranks of several nodes, of which those of one node share memory
 *
 * Collectives are called by all ranks in the same order with the same arguments (sizes, types,
 * root); the results have the same bits on every rank and for every layout: sums are added in the
 * fixed tree over rank numbers (plan/tree.h). They return LVN_OK, LVN_ERR_PEER when a rank died or
 * the communicator was aborted (the message names rank and cause; from then on every call fails the
 * same way), and in debug mode (lvni_dist_comm_options.check) LVN_ERR_MISMATCH, which names the two
 * ranks and what they called. */
#ifndef LEVIN_DIST_COMM_H
#define LEVIN_DIST_COMM_H

#include <levin/tensor.h>

typedef struct lvni_dist_comm lvni_dist_comm;
struct lvni_dist_transport; /* transport.h */

typedef enum lvni_dist_reduce {
    LVNI_REDUCE_SUM,
    LVNI_REDUCE_MIN,
    LVNI_REDUCE_MAX
} lvni_dist_reduce;

/* Payload bytes that this rank wrote for others to read, and read of what others wrote (control
 * words are not counted). */
typedef struct lvni_dist_comm_bytes {
    uint64_t sent, received;
    uint64_t link_sent, link_received; /* of them over the link between nodes (levels/) */
} lvni_dist_comm_bytes;

/* How processes find each other's memory: every rank gives `bytes` bytes, all get world x bytes in
 * rank order (an all-gather over the store, in tests over whatever there is). Called a few times at
 * creation, never in a step. */
typedef lvn_status (*lvni_dist_comm_exchange)(void *user, const void *mine, size_t bytes,
                                              void *all);

typedef struct lvni_dist_comm_options {
    int rank, world;
    lvni_dist_comm_exchange exchange; /* between processes */
    const char *address;              /* net, ucx: of this host, IPv4 or IPv6 */
    bool (*over)(void *user);         /* net: the run has ended, do not wait on; NULL: never */
    /* net, ucx: this rank cannot connect, for the error that is set: ends the run, so that `over`
     * is true for the others. NULL: they go on to their own end, and all know of it then */
    void (*fail)(void *user);
    void *user;
    double peer_timeout_s; /* net, ucx: a host silent for about as long is lost; 0: 10 */
    /* of each rank a number of its host; NULL: all are on this one. What happens to a process of
     * another host is not known here: its connection ended */
    const int *host;
    bool check; /* compare what the ranks call */
    /* of each rank its number in messages and as `first`; NULL: 0, 1, ... Borrowed until the
     * communicator ends */
    const int *number;
} lvni_dist_comm_options;

/* One rank. */
lvn_status lvni_dist_comm_self(lvni_dist_comm **out);
/* Ranks that are threads of this process: comm[0 .. world-1], one for each thread. */
lvn_status lvni_dist_comm_threads(int world, bool check, lvni_dist_comm **comm);
/* Ranks that are processes of this node. */
lvn_status lvni_dist_comm_shm(const lvni_dist_comm_options *options, lvni_dist_comm **out);
/* Ranks that share no memory: messages over TCP between any two of them. */
lvn_status lvni_dist_comm_net(const lvni_dist_comm_options *options, lvni_dist_comm **out);
/* The same over UCX: InfiniBand, RoCE, TCP or shared memory. LVN_ERR_NOT_FOUND: there is no UCX. */
lvn_status lvni_dist_comm_ucx(const lvni_dist_comm_options *options, lvni_dist_comm **out);
/* Ranks of several nodes in two levels: those of a node share memory, and between nodes each
 * exchanges its part with its counterparts over `link` (transport.h). The ranks of a node follow
 * each other. Processes: */
lvn_status lvni_dist_comm_levels(const lvni_dist_comm_options *options,
                                 const struct lvni_dist_transport *link, lvni_dist_comm **out);
/* Processes of options->rank, world and host, each with `threads` ranks, which may differ:
 * comm[0 .. threads-1]. */
lvn_status lvni_dist_comm_levels_threads(const lvni_dist_comm_options *options,
                                         const struct lvni_dist_transport *link, int threads,
                                         lvni_dist_comm **comm);
/* Not a collective; the other ranks may still be running. NULL is fine. */
void lvni_dist_comm_destroy(lvni_dist_comm *comm);

int lvni_dist_comm_rank(const lvni_dist_comm *comm);
int lvni_dist_comm_world(const lvni_dist_comm *comm);
/* Do reductions read sets wherever they lie (reduction.h)? Else they have host memory of their own.
 */
bool lvni_dist_comm_reads_any(const lvni_dist_comm *comm);
/* Gradients on devices are added there (device_sum.h): what lvni_dist_choice_connect was asked
 * for. */
bool lvni_dist_comm_adds_between_devices(const lvni_dist_comm *comm);
lvni_dist_comm_bytes lvni_dist_comm_count(const lvni_dist_comm *comm);
/* true for the first call on any rank, false for all others. Any thread, at any time, also after an
 * abort: for what exactly one of the ranks that are left has to do. */
bool lvni_dist_comm_claim(lvni_dist_comm *comm);
/* As lvni_dist_comm_claim, for a rank that waited in vain for the ranks below it on other nodes to
 * end: the network to them has failed. On each side of such a failure one call is true. */
bool lvni_dist_comm_claim_cut_off(lvni_dist_comm *comm);

/* Any thread, at any time, more than once (the first reason stays): all ranks' calls, waiting ones
 * at once, return LVN_ERR_PEER with `why`. */
void lvni_dist_comm_abort(lvni_dist_comm *comm, const char *why);
/* As lvni_dist_comm_abort, where it is known which rank failed first: `sentence` names it. */
void lvni_dist_comm_abort_for(lvni_dist_comm *comm, int first, const char *sentence);
/* The rank that the reason of the abort names; -1: it names none, or there was no abort. */
int lvni_dist_comm_first_failed(const lvni_dist_comm *comm);

lvn_status lvni_dist_comm_barrier(lvni_dist_comm *comm);
/* n elements; in == out is fine. f32, f64, i64, i32, u8, bf16, f16 as far as lvn_dtype has them
 * (bf16 and f16 are added in f32 and rounded once). */
lvn_status lvni_dist_comm_all_reduce(lvni_dist_comm *comm, const void *in, void *out, int64_t n,
                                     lvn_dtype dtype, lvni_dist_reduce how);
/* Bytes, no types: out has world x bytes, in rank order; in may be out + rank * bytes. */
lvn_status lvni_dist_comm_all_gather(lvni_dist_comm *comm, const void *in, size_t bytes, void *out);
/* Everyone's bytes may differ. *out: all of them in rank order, owned by the caller
 * (lvni_core_free); size: world entries. */
lvn_status lvni_dist_comm_all_gather_sized(lvni_dist_comm *comm, const void *in, size_t bytes,
                                           void **out, size_t *size);
lvn_status lvni_dist_comm_broadcast(lvni_dist_comm *comm, void *data, size_t bytes, int root);
/* Part r of `in` (bytes each) goes to rank r; out: part r came from rank r. in != out. */
lvn_status lvni_dist_comm_all_to_all(lvni_dist_comm *comm, const void *in, size_t bytes, void *out);

/* Memory that collectives read and write in place, without a copy into the segment: zeros, 64-byte
 * aligned. A collective: all ranks call it with the same size, and give it back in the same
 * order. */
lvn_status lvni_dist_comm_alloc(lvni_dist_comm *comm, size_t bytes, void **out);
lvn_status lvni_dist_comm_free(lvni_dist_comm *comm, void *p);

/* All ranks succeed or all fail. `mine`: this rank's status; the error of the others names the rank
 * that failed. */
lvn_status lvni_dist_comm_agree_status(lvni_dist_comm *comm, lvn_status mine, const char *what);
/* Before anything depends on it: an all-reduce of 1 MiB whose sum is known. LVN_ERR_INTERNAL on all
 * ranks when it is wrong on one. *ns: what it took. */
lvn_status lvni_dist_comm_try(lvni_dist_comm *comm, uint64_t *ns);

#endif
