/* How ranks in two levels come to be (levels_impl.h), how they end, and what any thread may call.
 */
#include "dist/levels/levels_impl.h"

#include "core/alloc.h"

#include <stdio.h>
#include <string.h>

/* ---- what any thread may call ---- */

static void levels_abort(lvni_dist_comm *comm, int first, const char *why)
{
    lvni_levels_comm *c = lvni_levels(comm);
    c->inner->ops->abort(c->inner, first, why);
    pthread_mutex_lock(&c->links->lock);
    for (int i = 0; i < c->links->n; i++) {
        lvni_dist_comm *link = c->links->link[i];
        if (link != NULL) {
            link->ops->abort(link, first, why);
        }
    }
    pthread_mutex_unlock(&c->links->lock);
    lvni_dist_comm *flat = atomic_load(&c->flat);
    if (flat != NULL) {
        flat->ops->abort(flat, first, why);
    }
}

/* Each level knows ranks by their numbers in messages. */
static int first_failed(const lvni_dist_comm *comm)
{
    const lvni_levels_comm *c = (const lvni_levels_comm *)comm;
    const lvni_dist_comm *flat = atomic_load(&c->flat);
    int first = c->inner->ops->first_failed(c->inner);
    if (first < 0 && c->outer != NULL) {
        first = c->outer->ops->first_failed(c->outer);
    }
    return first < 0 && flat != NULL ? flat->ops->first_failed(flat) : first;
}

lvn_status lvni_levels_spread(lvni_levels_comm *c, lvn_status status)
{
    if (status == LVN_ERR_PEER) {
        const lvn_error error = *lvn_last_error();
        levels_abort(&c->base, first_failed(&c->base), error.message);
        lvn_error_adopt(&error);
    }
    return status;
}

static lvn_status health_of_levels(const lvni_levels_comm *c, lvni_dist_comm *flat)
{
    LVN_TRY(c->inner->ops->health(c->inner));
    LVN_TRY(c->outer != NULL ? c->outer->ops->health(c->outer) : LVN_OK);
    return flat != NULL ? flat->ops->health(flat) : LVN_OK;
}

static lvn_status health(lvni_dist_comm *comm)
{
    lvni_levels_comm *c = lvni_levels(comm);
    return lvni_levels_spread(c, health_of_levels(c, atomic_load(&c->flat)));
}

lvn_status lvni_levels_no_memory(lvni_levels_comm *c, const char *what)
{
    char why[128];
    snprintf(why, sizeof why, "rank %d has no memory for %s",
             lvni_dist_comm_number(&c->base, c->base.rank), what);
    levels_abort(&c->base, -1, why);
    LVN_FAIL(LVN_ERR_MEMORY, "%-s", why);
}

static void count(const lvni_dist_comm *comm, lvni_dist_comm_bytes *out)
{
    const lvni_levels_comm *c = (const lvni_levels_comm *)comm;
    const lvni_dist_comm *level[] = {c->inner, c->outer, atomic_load(&c->flat)};
    for (int i = 0; i < 3; i++) {
        if (level[i] != NULL) {
            const lvni_dist_comm_bytes b = lvni_dist_comm_count(level[i]);
            out->sent += b.sent;
            out->received += b.received;
            out->link_sent += i > 0 ? b.sent : 0;
            out->link_received += i > 0 ? b.received : 0;
        }
    }
}

/* ---- the end ---- */

static void links_drop(lvni_levels_links *links)
{
    pthread_mutex_lock(&links->lock);
    const bool last = --links->held == 0;
    pthread_mutex_unlock(&links->lock);
    if (last) {
        pthread_mutex_destroy(&links->lock);
        lvni_core_free(links);
    }
}

static void destroy(lvni_dist_comm *comm)
{
    lvni_levels_comm *c = lvni_levels(comm);
    lvni_levels_sums_free(c);
    lvni_dist_comm_destroy(atomic_load(&c->flat));
    if (c->links != NULL) {
        pthread_mutex_lock(&c->links->lock);
        c->links->link[c->place] = NULL;
        pthread_mutex_unlock(&c->links->lock);
        links_drop(c->links);
    }
    lvni_dist_comm_destroy(c->outer);
    lvni_dist_comm_destroy(c->inner);
    lvni_core_free(c->scratch[0]);
    lvni_core_free(c->scratch[1]);
    lvni_core_free(c->first);
    lvni_core_free(c->inner_ranks);
    lvni_core_free(c->outer_ranks);
    lvni_core_free(c->host);
    lvni_core_free(c);
}

/* Chosen by its link (choice.c). */
static int score(lvni_dist_call_kind call, lvni_dist_memory memory, size_t bytes)
{
    (void)call, (void)memory, (void)bytes;
    return 0;
}

const lvni_dist_transport lvni_dist_transport_levels = {
    .name = "levels",
    .does = "share memory within a node, exchange messages between nodes",
    .abilities = LVNI_DIST_MESSAGES,
    .max_ranks = LVNI_LEVELS_MAX_RANKS,
    .score = score,
    .destroy = destroy,
    .abort = levels_abort,
    .first_failed = first_failed,
    .health = health,
    .agree = lvni_dist_agree,
    .barrier = lvni_levels_barrier,
    .all_reduce = lvni_levels_all_reduce,
    .all_gather = lvni_levels_all_gather,
    .broadcast = lvni_levels_broadcast,
    .region_open = lvni_dist_local_region_open,
    .region_reserve = lvni_dist_local_region_reserve,
    .region_close = lvni_dist_local_region_close,
    .region_discard = lvni_dist_local_region_close,
    .reduction_create = lvni_levels_reduction_create,
    .exchange_create = lvni_levels_exchange_create,
    .claim = lvni_levels_claim,
    .count = count,
};

/* ---- the beginning ---- */

static lvni_levels_links *links_new(int n)
{
    lvni_levels_links *links =
        lvni_core_calloc(LVNI_TAG_DIST, 1, sizeof *links + (size_t)n * sizeof(lvni_dist_comm *));
    if (links != NULL) {
        pthread_mutex_init(&links->lock, NULL);
        links->held = 1; /* the creator's */
        links->n = n;
    }
    return links;
}

/* A rank that knows where all are: first[nodes + 1] is copied. */
static lvn_status make_rank(const int *first, int nodes, int rank, const lvni_dist_comm_options *o,
                            lvni_levels_links *links, int place, lvni_levels_comm **out)
{
    lvni_levels_comm *c = LVNI_NEW(LVNI_TAG_DIST, lvni_levels_comm);
    *out = c;
    if (c == NULL) {
        return LVN_ERR_MEMORY;
    }
    const int world = first[nodes];
    c->base = (lvni_dist_comm){
        .ops = &lvni_dist_transport_levels, .rank = rank, .world = world, .check = o->check};
    c->nodes = nodes;
    c->place = place;
    snprintf(c->address, sizeof c->address, "%s", o->address);
    c->peer_timeout_s = o->peer_timeout_s;
    c->first = lvni_core_calloc(LVNI_TAG_DIST, (size_t)nodes + 1, sizeof *c->first);
    c->outer_ranks = lvni_core_calloc(LVNI_TAG_DIST, (size_t)nodes, sizeof *c->outer_ranks);
    c->host = lvni_core_calloc(LVNI_TAG_DIST, (size_t)world, sizeof *c->host);
    if (c->first == NULL || c->outer_ranks == NULL || c->host == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(c->first, first, ((size_t)nodes + 1) * sizeof *first);
    c->channels = world;
    for (int node = 0; node < nodes; node++) {
        const int ranks = lvni_levels_ranks_of(c, node);
        c->channels = ranks < c->channels ? ranks : c->channels;
        c->node = rank >= first[node] ? node : c->node;
        for (int r = first[node]; r < first[node + 1]; r++) {
            c->host[r] = node;
        }
    }
    c->local = rank - first[c->node];
    for (int node = 0; node < nodes; node++) {
        c->outer_ranks[node] = first[node] + c->local;
    }
    const size_t ranks = (size_t)lvni_levels_ranks_of(c, c->node);
    c->inner_ranks = lvni_core_calloc(LVNI_TAG_DIST, ranks, sizeof *c->inner_ranks);
    for (size_t i = 0; c->inner_ranks != NULL && i < ranks; i++) {
        c->inner_ranks[i] = first[c->node] + (int)i;
    }
    LVN_TRY(c->inner_ranks != NULL ? lvni_levels_sums_init(c) : LVN_ERR_MEMORY);
    pthread_mutex_lock(&links->lock);
    links->held++;
    pthread_mutex_unlock(&links->lock);
    c->links = links;
    return LVN_OK;
}

/* The nodes of ranks by their hosts, in the order of ranks: *first is the caller's. Returns how
 * many; 0: no memory, -1: the ranks of a host do not follow each other. */
static int find_nodes(const int *host, int world, int **first)
{
    int nodes = 0;
    *first = lvni_core_calloc(LVNI_TAG_DIST, (size_t)world + 1, sizeof **first);
    for (int r = 0; r < world && *first != NULL; r++) {
        if (r > 0 && host[r] == host[r - 1]) {
            continue;
        }
        for (int before = 0; before < r; before++) {
            if (host[before] == host[r]) {
                return -1;
            }
        }
        (*first)[nodes++] = r;
    }
    if (*first != NULL) {
        (*first)[nodes] = world;
    }
    return nodes;
}

static lvn_status connect_levels(lvni_levels_comm *c, const lvni_dist_comm_options *o)
{
    const lvni_levels_group node = {o, c->inner_ranks, lvni_levels_ranks_of(c, c->node)},
                            channel = {o, c->outer_ranks, c->nodes};
    LVN_TRY(lvni_levels_connect(&node, c->local, NULL, lvni_dist_comm_shm, &c->inner));
    int *host = lvni_core_calloc(LVNI_TAG_DIST, (size_t)c->nodes, sizeof *host);
    if (host == NULL) {
        return LVN_ERR_MEMORY; /* the others learn of it when this process ends, as of any end */
    }
    for (int i = 0; i < c->nodes; i++) {
        host[i] = i;
    }
    const lvn_status s = lvni_levels_connect(
        &channel, c->node, host, c->local < c->channels ? c->link->connect : NULL, &c->outer);
    lvni_core_free(host);
    c->links->link[0] = c->outer;
    return s;
}

lvn_status lvni_dist_comm_levels(const lvni_dist_comm_options *o, const lvni_dist_transport *link,
                                 lvni_dist_comm **out)
{
    int *first = NULL;
    *out = NULL;
    LVN_ARG(o->world >= 1 && o->rank >= 0 && o->rank < o->world && o->exchange != NULL &&
                o->host != NULL && o->address != NULL,
            "rank %d of %d in two levels, without an exchange, hosts or an address", o->rank,
            o->world);
    const int nodes = find_nodes(o->host, o->world, &first);
    lvni_levels_links *links = links_new(1);
    lvni_levels_comm *c = NULL;
    lvn_status s = nodes > 0 && links != NULL ? LVN_OK : LVN_ERR_MEMORY;
    if (nodes < 0) {
        s = lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                          "the ranks of a node do not follow each other");
    }
    if (s == LVN_OK) {
        s = make_rank(first, nodes, o->rank, o, links, 0, &c);
    }
    if (s == LVN_OK) {
        c->link = link;
        s = connect_levels(c, o);
    }
    lvni_core_free(first);
    if (links != NULL) {
        links_drop(links);
    }
    if (s != LVN_OK) {
        const lvn_error error = *lvn_last_error();
        if (c != NULL) {
            destroy(&c->base);
        }
        return lvn_error_adopt(&error);
    }
    *out = &c->base;
    return LVN_OK;
}

/* ---- ranks that are threads ---- */

/* How many threads each process has: the first rank of each, and the number of all. */
static lvn_status exchange_threads(const lvni_dist_comm_options *o, int threads, int **first)
{
    *first = lvni_core_calloc(LVNI_TAG_DIST, (size_t)o->world + 1, sizeof **first);
    if (*first == NULL) {
        return LVN_ERR_MEMORY; /* the others learn of it when this process ends, as of any end */
    }
    LVN_TRY(o->exchange(o->user, &threads, sizeof threads, *first + 1));
    for (int p = 0; p < o->world; p++) {
        (*first)[p + 1] += (*first)[p];
    }
    return LVN_OK;
}

static lvn_status connect_threads(const lvni_dist_comm_options *o, const lvni_dist_transport *link,
                                  const int *first, lvni_levels_links *links,
                                  lvni_dist_comm **inner, lvni_dist_comm **comm)
{
    for (int i = 0; i < links->n; i++) {
        lvni_levels_comm *c = NULL;
        const lvn_status s = make_rank(first, o->world, first[o->rank] + i, o, links, i, &c);
        comm[i] = c != NULL ? &c->base : NULL;
        if (c == NULL) {
            return LVN_ERR_MEMORY;
        }
        c->inner = inner[i];
        inner[i] = NULL;
        c->inner->number = c->inner_ranks;
        c->link = link;
        LVN_TRY(s);
        if (i < c->channels) {
            lvni_dist_comm_options channel = *o;
            channel.number = c->outer_ranks;
            channel.check = false;
            LVN_TRY(link->connect(&channel, &c->outer));
            links->link[i] = c->outer;
        }
    }
    return LVN_OK;
}

lvn_status lvni_dist_comm_levels_threads(const lvni_dist_comm_options *o,
                                         const lvni_dist_transport *link, int threads,
                                         lvni_dist_comm **comm)
{
    int *first = NULL;
    memset(comm, 0, (size_t)threads * sizeof(lvni_dist_comm *));
    lvni_dist_comm **inner =
        lvni_core_calloc(LVNI_TAG_DIST, (size_t)threads, sizeof(lvni_dist_comm *));
    lvni_levels_links *links = links_new(threads);
    lvn_status s = inner != NULL && links != NULL ? LVN_OK : LVN_ERR_MEMORY;
    if (s == LVN_OK) {
        s = lvni_dist_comm_threads(threads, false, inner);
    }
    if (s == LVN_OK) {
        s = exchange_threads(o, threads, &first);
    }
    if (s == LVN_OK) {
        s = connect_threads(o, link, first, links, inner, comm);
    }
    const lvn_error error = *lvn_last_error();
    for (int i = 0; i < threads && s != LVN_OK; i++) {
        lvni_dist_comm_destroy(comm[i]);
        lvni_dist_comm_destroy(inner != NULL ? inner[i] : NULL);
        comm[i] = NULL;
    }
    lvni_core_free(first);
    lvni_core_free(inner);
    if (links != NULL) {
        links_drop(links);
    }
    return s == LVN_OK ? LVN_OK : lvn_error_adopt(&error);
}
