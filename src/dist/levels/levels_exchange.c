/* Group exchanges in two levels (levels_impl.h). A run of one node's ranks goes through its memory.
 * One that crosses nodes goes between any two of its ranks, over a communicator of all ranks that
 * is made when some group needs it: groups cross nodes only where they are larger than a node. */
#include "dist/levels/levels_impl.h"

#include "core/alloc.h"

typedef struct levels_exchange {
    lvni_dist_group_exchange base;
    lvni_dist_group_exchange *inner, *flat; /* flat NULL: no group crosses nodes */
} levels_exchange;

static void destroy(lvni_dist_group_exchange *exchange)
{
    levels_exchange *x = (levels_exchange *)exchange;
    lvni_dist_group_exchange_destroy(x->inner);
    lvni_dist_group_exchange_destroy(x->flat);
    lvni_core_free(x);
}

static bool is_of_node(const lvni_levels_comm *c, int lo, int hi)
{
    return lo >= c->first[c->node] && hi <= c->first[c->node + 1];
}

static lvn_status run(lvni_dist_group_exchange *exchange, int lo, int hi, const void *mine,
                      size_t bytes, const lvni_dist_group_message **message)
{
    levels_exchange *x = (levels_exchange *)exchange;
    lvni_levels_comm *c = lvni_levels(x->base.comm);
    const int first = c->first[c->node];
    if (is_of_node(c, lo, hi)) {
        return lvni_levels_spread(
            c, x->inner->ops->run(x->inner, lo - first, hi - first, mine, bytes, message));
    }
    LVN_ARG(x->flat != NULL, "ranks %d to %d exchange messages, which no rank has announced", lo,
            hi - 1);
    return lvni_levels_spread(c, x->flat->ops->run(x->flat, lo, hi, mine, bytes, message));
}

static const lvni_dist_exchange_ops ops = {.destroy = destroy, .run = run};

/* ---- the communicator of any two ranks ---- */

static lvn_status exchange_all(void *user, const void *mine, size_t bytes, void *all)
{
    return lvni_levels_all_gather(user, mine, bytes, all);
}

static bool is_over(void *user)
{
    lvni_dist_comm *comm = user;
    const lvn_error error = *lvn_last_error();
    const bool over = comm->ops->health(comm) != LVN_OK;
    lvn_error_adopt(&error);
    return over;
}

static void fail(void *user)
{
    const lvn_error error = *lvn_last_error();
    lvni_dist_comm_abort(user, error.message);
    lvn_error_adopt(&error);
}

static lvn_status connect_flat(lvni_levels_comm *c)
{
    const lvni_dist_comm_options o = {.rank = c->base.rank,
                                      .world = c->base.world,
                                      .exchange = exchange_all,
                                      .address = c->address,
                                      .over = is_over,
                                      .fail = fail,
                                      .user = c,
                                      .peer_timeout_s = c->peer_timeout_s,
                                      .host = c->host,
                                      .number = c->base.number};
    lvni_dist_comm *flat;
    if (atomic_load(&c->flat) != NULL) {
        return LVN_OK; /* of an exchange before */
    }
    LVN_TRY(c->link->connect(&o, &flat));
    atomic_store(&c->flat, flat);
    return LVN_OK;
}

static lvn_status create(lvni_levels_comm *c, int lo, int hi, levels_exchange *x)
{
    int32_t crosses = is_of_node(c, lo, hi) ? 0 : 1;
    LVN_TRY(lvni_dist_comm_agree_status(
        &c->base, lvni_dist_group_exchange_create(c->inner, 0, c->inner->world, &x->inner),
        "messages among ranks"));
    LVN_TRY(lvni_levels_all_reduce(&c->base, &crosses, &crosses, 1, LVN_I32, LVNI_REDUCE_MAX));
    if (crosses != 0) {
        LVN_TRY(connect_flat(c));
        LVN_TRY(lvni_dist_group_exchange_create(atomic_load(&c->flat), lo, hi, &x->flat));
    }
    return LVN_OK;
}

lvn_status lvni_levels_exchange_create(lvni_dist_comm *comm, int lo, int hi,
                                       lvni_dist_group_exchange **out)
{
    lvni_levels_comm *c = lvni_levels(comm);
    levels_exchange *x = LVNI_NEW(LVNI_TAG_DIST, levels_exchange);
    lvn_status s = lvni_dist_comm_agree_status(comm, x != NULL ? LVN_OK : LVN_ERR_MEMORY,
                                               "messages among ranks");
    if (s != LVN_OK || x == NULL) {
        lvni_core_free(x);
        return s;
    }
    x->base = (lvni_dist_group_exchange){&ops, comm};
    s = lvni_dist_comm_agree_status(comm, create(c, lo, hi, x), "messages among ranks");
    if (s != LVN_OK) {
        destroy(&x->base);
        return lvni_levels_spread(c, s);
    }
    *out = &x->base;
    return LVN_OK;
}
