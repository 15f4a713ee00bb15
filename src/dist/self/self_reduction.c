/* The gradient of a step of one rank (dist/reduction.h): its leaves are added in place, in the
 * fixed tree, and the total is the first leaf's set. Nothing is copied, and nothing is added before
 * finish, where the calling thread's whole team can do it. The sets may lie on a device. */
#include "core/alloc.h"
#include "dist/combine.h"
#include "dist/reduction_impl.h"
#include "dist/self/self_impl.h"
#include "tensor/ctx.h"

#include <string.h>

typedef struct self_reduction {
    lvni_dist_reduction base;
    float **set; /* own ones; NULL: the caller's */
    unsigned char *message;
    size_t message_bytes;
    int n_leaves;
    lvni_plan_tree_node leaf[LVNI_TREE_PENDING];
    lvni_dist_sum_plan plan;
} self_reduction;

static self_reduction *of(lvni_dist_reduction *r)
{
    return (self_reduction *)r;
}

static void destroy(lvni_dist_reduction *base)
{
    self_reduction *r = of(base);
    for (int i = 0; r->set != NULL && i < base->o.sets; i++) {
        lvni_core_free(r->set[i]);
    }
    lvni_core_free(r->set);
    lvni_core_free(r->message);
    lvni_core_free(base->o.partial == NULL ? base->partial : NULL);
    lvni_dist_sum_plan_free(&r->plan);
    lvni_core_free(r);
}

static float *set(lvni_dist_reduction *base, int i)
{
    return base->o.set != NULL ? base->o.set[i] : of(base)->set[i];
}

static void begin(lvni_dist_reduction *base, const lvni_plan_tree_node *leaf, int n_leaves)
{
    self_reduction *r = of(base);
    r->n_leaves = n_leaves;
    for (int i = 0; i < n_leaves; i++) {
        r->leaf[i] = leaf[i];
    }
}

static void ready(lvni_dist_reduction *base, int b)
{
    (void)base, (void)b;
}

static bool help(lvni_dist_reduction *base)
{
    (void)base;
    return false;
}

static void add_host(float *into, const float *from, int64_t n)
{
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    lvni_dist_combine(into, into, from, n, LVN_F32, LVNI_REDUCE_SUM);
    lvni_tensor_fp_leave(before);
}

/* What is used of two sets (lvni_dist_reduction_use). */
static void add_set(const lvni_dist_reduction *base, float *into, const float *from)
{
    const lvni_dist_reduction_options *o = &base->o;
    const lvni_dist_reduction_adding add = o->add != NULL ? o->add : add_host;
    const int64_t behind =
        o->n > o->n_norm ? o->n_norm / LVNI_REDUCTION_BLOCK * LVNI_REDUCTION_BLOCK : o->n;
    const int64_t end = base->used_end < behind ? base->used_end : behind;
    if (end > base->used_begin) {
        add(into + base->used_begin, from + base->used_begin, end - base->used_begin);
    }
    if (o->n > behind) {
        add(into + behind, from + behind, o->n - behind);
    }
}

/* The list of additions with every sum in the place of its first operand. */
static void add_leaves(self_reduction *r)
{
    float *reg[LVNI_SUM_REGISTERS] = {NULL};
    const lvni_dist_sum_plan *plan = &r->plan;
    lvni_dist_sum_plan_make(&r->plan, r->base.o.micro_batches, r->leaf, r->n_leaves);
    for (int i = 0; i < plan->n_steps; i++) {
        const lvni_dist_sum_step *s = &plan->step[i];
        float *side[2];
        for (int j = 0; j < 2; j++) {
            const int32_t which = j == 0 ? s->a : s->b;
            side[j] = which < plan->n_sources ? set(&r->base, r->leaf[which].slot)
                                              : reg[which - plan->n_sources];
        }
        add_set(&r->base, side[0], side[1]);
        if (s->into != LVNI_SUM_OUT) {
            reg[s->into - plan->n_sources] = side[0];
        }
    }
}

static lvn_status finish(lvni_dist_reduction *base, const void *message, size_t bytes)
{
    self_reduction *r = of(base);
    const int64_t begins = base->used_begin,
                  end = base->used_end < base->o.n_norm ? base->used_end : base->o.n_norm;
    add_leaves(r);
    base->total = r->n_leaves > 0 ? set(base, r->leaf[0].slot) : NULL;
    if (base->total != NULL && end > begins) {
        base->o.sumsq(base->total + begins, end - begins,
                      base->partial + begins / LVNI_REDUCTION_BLOCK);
    }
    memcpy(r->message, bytes > 0 ? message : "", bytes);
    r->message_bytes = bytes;
    base->last = (lvni_dist_reduction_times){0};
    return LVN_OK;
}

static const void *get_message(lvni_dist_reduction *base, int rank, size_t *bytes)
{
    (void)rank;
    *bytes = of(base)->message_bytes;
    return of(base)->message;
}

static const lvni_dist_reduction_ops self_reduction_ops = {
    .destroy = destroy,
    .set = set,
    .begin = begin,
    .ready = ready,
    .help = help,
    .finish = finish,
    .get_message = get_message,
};

static lvn_status make_memory(self_reduction *r)
{
    const lvni_dist_reduction_options *o = &r->base.o;
    const int64_t blocks = (o->n + LVNI_REDUCTION_BLOCK - 1) / LVNI_REDUCTION_BLOCK;
    LVN_TRY(lvni_dist_sum_plan_init(&r->plan, LVNI_TREE_PENDING));
    r->base.partial = o->partial != NULL
                          ? o->partial
                          : lvni_core_calloc(LVNI_TAG_DIST, (size_t)blocks + 1, sizeof(double));
    r->message = lvni_core_alloc(LVNI_TAG_DIST, o->message + 1);
    if (r->base.partial == NULL || r->message == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (o->set != NULL) {
        return LVN_OK;
    }
    r->set = lvni_core_calloc(LVNI_TAG_DIST, (size_t)o->sets, sizeof *r->set);
    for (int i = 0; r->set != NULL && i < o->sets; i++) {
        r->set[i] = lvni_core_calloc(LVNI_TAG_DIST, (size_t)o->n + 1, sizeof(float));
        LVN_TRY(r->set[i] != NULL ? LVN_OK : LVN_ERR_MEMORY);
    }
    return r->set != NULL ? LVN_OK : LVN_ERR_MEMORY;
}

lvn_status lvni_self_reduction_create(lvni_dist_comm *comm,
                                      const lvni_dist_reduction_options *options, int sets,
                                      lvni_dist_reduction **out)
{
    (void)sets; /* of the rank that has most: this one */
    self_reduction *r = LVNI_NEW(LVNI_TAG_DIST, self_reduction);
    if (r == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_dist_reduction_init(&r->base, &self_reduction_ops, comm, options);
    const lvn_status s = make_memory(r);
    if (s != LVN_OK) {
        destroy(&r->base);
        return s;
    }
    *out = &r->base;
    return LVN_OK;
}
