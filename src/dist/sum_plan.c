/* The list of additions behind sum_plan.h, and its loop over blocks. The arithmetic itself is
 * combine.c. */
#include "dist/sum_plan.h"

#include "core/alloc.h"
#include "dist/combine.h"
#include "tensor/ctx.h"

#include <stdalign.h>
#include <string.h>

lvn_status lvni_dist_sum_plan_init(lvni_dist_sum_plan *plan, int room)
{
    *plan = (lvni_dist_sum_plan){.room = room};
    plan->step = lvni_core_calloc(LVNI_TAG_DIST, (size_t)room, sizeof *plan->step);
    return plan->step != NULL ? LVN_OK : LVN_ERR_MEMORY;
}

void lvni_dist_sum_plan_free(lvni_dist_sum_plan *plan)
{
    lvni_core_free(plan->step);
    *plan = (lvni_dist_sum_plan){0};
}

bool lvni_dist_sum_is_node(int n, int begin, int end)
{
    int lo = 0, hi = n;
    while (lo <= begin && end <= hi && begin < end) {
        if (lo == begin && hi == end) {
            return true;
        }
        if (hi - lo == 1) {
            break;
        }
        const int middle = lo + (int)lvni_plan_tree_split(hi - lo);
        if (end <= middle) {
            hi = middle;
        } else {
            lo = middle;
        }
    }
    return false;
}

typedef struct walk {
    lvni_dist_sum_plan *plan;
    const lvni_plan_tree_node *leaf;
    int n_leaves, next;
} walk;

/* The operand that holds the sum over [lo, hi), computed in register `into` where anything has to
 * be computed; -1: no leaf is in there. */
static int32_t visit(walk *w, int lo, int hi, int into)
{
    if (w->next == w->n_leaves || w->leaf[w->next].begin >= hi) {
        return -1;
    }
    if ((w->leaf[w->next].begin == lo && w->leaf[w->next].end == hi) || hi - lo == 1) {
        return w->next++;
    }
    const int middle = lo + (int)lvni_plan_tree_split(hi - lo), n_sources = w->plan->n_sources;
    const int32_t a = visit(w, lo, middle, into);
    const int32_t b = visit(w, middle, hi, a >= n_sources ? into + 1 : into);
    if (a < 0 || b < 0) {
        return a < 0 ? b : a;
    }
    w->plan->step[w->plan->n_steps++] =
        (lvni_dist_sum_step){.into = n_sources + into, .a = a, .b = b};
    return n_sources + into;
}

void lvni_dist_sum_plan_make(lvni_dist_sum_plan *plan, int n, const lvni_plan_tree_node *leaf,
                             int n_leaves)
{
    walk w = {
        .plan = plan, .leaf = leaf, .n_leaves = n_leaves < plan->room ? n_leaves : plan->room};
    plan->n_sources = w.n_leaves;
    plan->n_steps = 0;
    if (n > 0) {
        visit(&w, 0, n, 0);
    }
    if (plan->n_steps > 0) {
        /* only here is `out` written: it may be a source */
        plan->step[plan->n_steps - 1].into = LVNI_SUM_OUT;
    }
}

int64_t lvni_dist_slice_begin(int64_t n, int world, int rank)
{
    enum { UNIT = 64 };
    const int64_t units = (n + UNIT - 1) / UNIT, at = units * rank / world * UNIT;
    return at < n ? at : n;
}

typedef struct machine {
    alignas(64) char reg[LVNI_SUM_REGISTERS][LVNI_SUM_BLOCK];
    alignas(64) char wide[2][LVNI_SUM_BLOCK]; /* 16-bit operands as f32 */
} machine;

static const void *operand(const lvni_dist_sum_plan *plan, void *const *source, const machine *m,
                           int32_t which, size_t offset)
{
    return which < plan->n_sources ? (const char *)source[which] + offset
                                   : m->reg[which - plan->n_sources];
}

/* One block of bf16 or f16, offset in bytes: sources are widened when they are read, the total is
 * narrowed once. */
static void run_half(const lvni_dist_sum_plan *plan, void *const *source, machine *m, char *to,
                     int64_t n, size_t offset, lvn_dtype dtype, lvni_dist_reduce how)
{
    for (int i = 0; i < plan->n_steps; i++) {
        const lvni_dist_sum_step *s = &plan->step[i];
        const float *side[2];
        for (int j = 0; j < 2; j++) {
            const int32_t which = j == 0 ? s->a : s->b;
            const void *p = operand(plan, source, m, which, offset);
            if (which < plan->n_sources) {
                lvni_dist_combine_widen((float *)(void *)m->wide[j], p, n, dtype);
                p = m->wide[j];
            }
            side[j] = p;
        }
        if (s->into == LVNI_SUM_OUT) {
            lvni_dist_combine(m->wide[0], side[0], side[1], n, LVN_F32, how);
            lvni_dist_combine_narrow(to, (const float *)(const void *)m->wide[0], n, dtype);
        } else {
            lvni_dist_combine(m->reg[s->into - plan->n_sources], side[0], side[1], n, LVN_F32, how);
        }
    }
}

void lvni_dist_sum_run(const lvni_dist_sum_plan *plan, void *const *source, void *out,
                       int64_t first, int64_t n, lvn_dtype dtype, lvni_dist_reduce how)
{
    if (plan->n_sources > 0 && n > 0) {
        lvni_dist_sum_run_to(plan, source, first,
                             (char *)out + (size_t)first * lvn_dtype_size(dtype), n, dtype, how);
    }
}

void lvni_dist_sum_run_to(const lvni_dist_sum_plan *plan, void *const *source, int64_t first,
                          void *to, int64_t n, lvn_dtype dtype, lvni_dist_reduce how)
{
    const size_t size = lvn_dtype_size(dtype);
    if (plan->n_sources == 0 || n == 0) {
        return;
    }
    if (plan->n_steps == 0) {
        const char *from = (const char *)source[0] + (size_t)first * size;
        if (to != from) {
            memcpy(to, from, (size_t)n * size);
        }
        return;
    }
    const unsigned before = lvni_tensor_fp_enter(LVNI_FP_FLUSH);
    machine m;
    const bool half = size == 2;
    const int64_t block = LVNI_SUM_BLOCK / (int64_t)(half ? sizeof(float) : size);
    for (int64_t at = 0; at < n; at += block) {
        const int64_t count = n - at < block ? n - at : block;
        const size_t offset = (size_t)(first + at) * size;
        char *into_all = (char *)to + (size_t)at * size;
        if (half) {
            run_half(plan, source, &m, into_all, count, offset, dtype, how);
            continue;
        }
        for (int i = 0; i < plan->n_steps; i++) {
            const lvni_dist_sum_step *s = &plan->step[i];
            void *into = s->into == LVNI_SUM_OUT ? into_all : m.reg[s->into - plan->n_sources];
            lvni_dist_combine(into, operand(plan, source, &m, s->a, offset),
                              operand(plan, source, &m, s->b, offset), count, dtype, how);
        }
    }
    lvni_tensor_fp_leave(before);
}
