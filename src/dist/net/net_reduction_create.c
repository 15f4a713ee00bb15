/* The memory of a reduction over messages (net_reduction.h), from creation to the end. */
#include "dist/net/net_reduction.h"

#include "core/alloc.h"

#include <sys/mman.h>

float *lvni_net_reserve(int64_t n)
{
    const size_t bytes = (size_t)n * sizeof(float);
    void *p = mmap(NULL, bytes > 0 ? bytes : 1, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void lvni_net_unreserve(float *p, int64_t n)
{
    if (p != NULL) {
        munmap(p, n > 0 ? (size_t)n * sizeof(float) : 1);
    }
}

void lvni_net_reduction_destroy(lvni_dist_reduction *base)
{
    lvni_net_reduction *r = (lvni_net_reduction *)base;
    lvni_net_comm *c = (lvni_net_comm *)base->comm;
    pthread_mutex_lock(&c->lock);
    lvni_net_flush_locked(c, &r->jobs);
    for (lvni_net_reduction **at = &c->reductions; *at != NULL; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            break;
        }
    }
    c->link->leave(c, r->id);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; r->set != NULL && i < r->base.o.sets; i++) {
        lvni_net_unreserve(r->set[i], base->o.n);
    }
    for (int rank = 0; r->other != NULL && rank < c->base.world; rank++) {
        for (int k = 0; k < LVNI_TREE_PENDING; k++) {
            lvni_net_unreserve(r->other[rank].theirs[k], base->o.n);
        }
        lvni_core_free(r->other[rank].note[0]);
        lvni_core_free(r->other[rank].note[1]);
    }
    lvni_net_unreserve(r->total, base->o.n);
    lvni_dist_sum_plan_free(&r->plan);
    lvni_core_free(base->partial);
    lvni_core_free(r->other);
    lvni_core_free(r->set);
    lvni_core_free(r->arrived);
    lvni_core_free(r->reported);
    lvni_core_free(r->left);
    lvni_core_free(r->queue);
    lvni_core_free(r->node);
    lvni_core_free(r->source);
    lvni_core_free(r);
}

static lvn_status make_memory(lvni_net_reduction *r)
{
    const lvni_dist_reduction_options *o = &r->base.o;
    const size_t buckets = (size_t)r->base.buckets, world = (size_t)r->base.comm->world,
                 blocks = (size_t)(o->n + LVNI_REDUCTION_BLOCK - 1) / LVNI_REDUCTION_BLOCK;
    const int64_t most = (int64_t)world * LVNI_TREE_PENDING;
    const int leaves = o->micro_batches < most ? o->micro_batches : (int)most;
    LVN_TRY(lvni_dist_sum_plan_init(&r->plan, leaves));
    r->node = lvni_core_calloc(LVNI_TAG_DIST, (size_t)leaves, sizeof *r->node);
    r->source = lvni_core_calloc(LVNI_TAG_DIST, (size_t)leaves, sizeof *r->source);
    r->base.partial = lvni_core_calloc(LVNI_TAG_DIST, blocks + 1, sizeof(double));
    r->arrived = lvni_core_calloc(LVNI_TAG_DIST, buckets, sizeof *r->arrived);
    r->reported = lvni_core_calloc(LVNI_TAG_DIST, buckets, sizeof *r->reported);
    r->left = lvni_core_calloc(LVNI_TAG_DIST, buckets, sizeof *r->left);
    r->queue = lvni_core_calloc(LVNI_TAG_DIST, buckets, sizeof *r->queue);
    r->other = lvni_core_calloc(LVNI_TAG_DIST, world, sizeof *r->other);
    r->set = lvni_core_calloc(LVNI_TAG_DIST, (size_t)o->sets, sizeof *r->set);
    r->total = lvni_net_reserve(o->n);
    bool whole = r->node != NULL && r->source != NULL && r->base.partial != NULL &&
                 r->arrived != NULL && r->reported != NULL && r->left != NULL && r->queue != NULL &&
                 r->other != NULL && r->set != NULL && r->total != NULL;
    for (int i = 0; whole && i < o->sets; i++) {
        r->set[i] = lvni_net_reserve(o->n);
        whole = r->set[i] != NULL;
    }
    for (size_t rank = 0; whole && rank < world; rank++) {
        lvni_net_other *x = &r->other[rank];
        for (int k = 0; k < 2; k++) {
            x->note[k] = lvni_core_alloc(LVNI_TAG_DIST, o->message);
            whole = whole && x->note[k] != NULL;
        }
        for (int64_t b = 0; b < r->base.buckets; b++) {
            x->n_slices += lvni_net_slice(r, b, (int)rank).count > 0 ? 1 : 0;
        }
    }
    if (!whole) {
        return LVN_ERR_MEMORY;
    }
    r->own_slices = r->other[r->base.comm->rank].n_slices;
    return LVN_OK;
}

lvn_status lvni_net_reduction_create(lvni_dist_comm *comm,
                                     const lvni_dist_reduction_options *options, int sets,
                                     lvni_dist_reduction **out)
{
    (void)sets; /* each rank has its own */
    lvni_net_comm *c = (lvni_net_comm *)comm;
    lvni_net_reduction *r = LVNI_NEW(LVNI_TAG_DIST, lvni_net_reduction);
    lvn_status s = r != NULL ? LVN_OK : LVN_ERR_MEMORY;
    c->n_reductions++;
    if (r != NULL) {
        lvni_dist_reduction_init(&r->base, &lvni_net_reduction_ops, comm, options);
        r->id = c->n_reductions;
        s = make_memory(r);
    }
    if (s == LVN_OK && r != NULL) {
        pthread_mutex_lock(&c->lock);
        r->next = c->reductions;
        c->reductions = r;
        pthread_mutex_unlock(&c->lock);
    }
    s = lvni_dist_comm_agree_status(comm, s, "a reduction"); /* from here on all have it */
    if (s != LVN_OK) {
        if (r != NULL) {
            lvni_net_reduction_destroy(&r->base);
        }
        return s;
    }
    *out = &r->base;
    return LVN_OK;
}
