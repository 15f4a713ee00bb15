/* The cut by dynamic programming over borders (stage_cut.h): best[stage][unit] is what the slowest
 * of the stages from `stage` on takes at least when they have the units from `unit` on. */
#include "plan/stage_cut.h"

#include "core/alloc.h"
#include "core/error.h"
#include "plan/stage_order.h"

#include <math.h>
#include <string.h>

double lvni_plan_cut_work(const lvni_plan_cut_options *o, int begin, int end, int device)
{
    double sum = 0.0;
    for (int i = begin; i < end; i++) {
        sum += o->unit[i].work;
    }
    return sum / o->device[device].speed + (begin > 0 ? o->unit[begin].crossing : 0.0);
}

uint64_t lvni_plan_cut_bytes(const lvni_plan_cut_options *o, int stage, int begin, int end)
{
    const uint64_t tapes = (uint64_t)lvni_plan_stage_tapes(
        &(lvni_plan_stage_order){o->stages, o->micro_batches, o->forwards_first}, stage);
    uint64_t fixed = 0, kept = 0;
    for (int i = begin; i < end; i++) {
        fixed += o->unit[i].fixed;
        kept += o->unit[i].kept;
    }
    return fixed + tapes * (kept + (begin > 0 ? o->unit[begin].input : 0));
}

static bool fits(const lvni_plan_cut_options *o, int stage, int begin, int end, int device)
{
    const uint64_t memory = o->device[device].memory;
    return memory == 0 || lvni_plan_cut_bytes(o, stage, begin, end) <= memory;
}

/* INFINITY: it does not fit. */
static double cost(const lvni_plan_cut_options *o, const lvni_plan_cut *cut, int stage, int begin,
                   int end)
{
    const int device = cut->device[stage];
    return fits(o, stage, begin, end, device) ? lvni_plan_cut_work(o, begin, end, device)
                                              : (double)INFINITY;
}

/* best: (stages + 1) x (units + 1). */
static void fill_best(const lvni_plan_cut_options *o, const lvni_plan_cut *cut, double *best)
{
    const int n = o->n_units, row = n + 1;
    for (int i = 0; i <= n; i++) {
        best[o->stages * row + i] = i == n ? 0.0 : (double)INFINITY;
    }
    for (int stage = o->stages - 1; stage >= 0; stage--) {
        for (int i = 0; i <= n; i++) {
            double least = (double)INFINITY;
            for (int end = i + 1; end <= n; end++) {
                const double rest = best[(stage + 1) * row + end];
                least = isinf(rest) ? least : fmin(least, fmax(rest, cost(o, cut, stage, i, end)));
            }
            best[stage * row + i] = least;
        }
    }
}

/* For the order of devices in cut->device. */
static void cut_in_order(const lvni_plan_cut_options *o, double *best, lvni_plan_cut *cut)
{
    const int n = o->n_units, row = n + 1;
    fill_best(o, cut, best);
    cut->most = best[0];
    cut->begin[0] = 0;
    for (int stage = 0; stage < o->stages && !isinf(cut->most); stage++) {
        int end = cut->begin[stage] + 1;
        while (fmax(best[(stage + 1) * row + end], cost(o, cut, stage, cut->begin[stage], end)) >
               cut->most) {
            end++;
        }
        cut->begin[stage + 1] = end;
    }
}

static bool all_equal(const lvni_plan_cut_options *o)
{
    for (int i = 1; i < o->stages; i++) {
        if (o->device[i].speed != o->device[0].speed ||
            o->device[i].memory != o->device[0].memory) {
            return false;
        }
    }
    return true;
}

/* The next order of the n numbers; false: it was the last one. */
static bool next_order(int *order, int n)
{
    int i = n - 2;
    while (i >= 0 && order[i] > order[i + 1]) {
        i--;
    }
    if (i < 0) {
        return false;
    }
    int k = n - 1;
    while (order[k] < order[i]) {
        k--;
    }
    const int swapped = order[i];
    order[i] = order[k];
    order[k] = swapped;
    for (int a = i + 1, b = n - 1; a < b; a++, b--) {
        const int first = order[a];
        order[a] = order[b];
        order[b] = first;
    }
    return true;
}

static lvn_status check(const lvni_plan_cut_options *o)
{
    LVN_ARG(o->stages >= 1 && o->stages <= LVNI_PLAN_STAGES && o->n_units <= LVNI_PLAN_UNITS,
            "a cut of %d units into %d stages: at most %d and %d", o->n_units, o->stages,
            (int)LVNI_PLAN_UNITS, (int)LVNI_PLAN_STAGES);
    if (o->n_units < o->stages) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "strategy=balance: the model has %d unit%s for %d devices, and each stage needs "
                 "one: use devices=%d",
                 o->n_units, lvni_core_plural(o->n_units, "", "s"), o->stages, o->n_units);
    }
    return LVN_OK;
}

static lvn_status fail_memory(const lvni_plan_cut_options *o)
{
    uint64_t have = 0;
    for (int i = 0; i < o->stages; i++) {
        have += o->device[i].memory;
    }
    const double mib = 1024.0 * 1024.0;
    const uint64_t need = lvni_plan_cut_bytes(o, o->stages - 1, 0, o->n_units);
    LVN_FAIL(LVN_ERR_USAGE,
             "strategy=balance: no cut of the model's %d units into %d stages fits the memory of "
             "the devices (%.0f MiB together; a micro-batch needs %.0f MiB): use more devices, or "
             "a smaller batch_size",
             o->n_units, o->stages, (double)have / mib, (double)need / mib);
}

lvn_status lvni_plan_cut_make(const lvni_plan_cut_options *o, lvni_plan_cut *out)
{
    LVN_TRY(check(o));
    const size_t cells = (size_t)(o->stages + 1) * (size_t)(o->n_units + 1);
    double *best = lvni_core_calloc(LVNI_TAG_CONFIG, cells, sizeof *best);
    if (best == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_plan_cut cut = {.stages = o->stages};
    for (int i = 0; i < o->stages; i++) {
        cut.device[i] = i;
    }
    const bool one_order = o->stages > LVNI_PLAN_ORDERED || all_equal(o);
    *out = (lvni_plan_cut){.most = (double)INFINITY};
    do {
        cut_in_order(o, best, &cut);
        if (cut.most < out->most) {
            *out = cut;
        }
    } while (!one_order && next_order(cut.device, o->stages));
    lvni_core_free(best);
    return isinf(out->most) ? fail_memory(o) : LVN_OK;
}

lvn_status lvni_plan_cut_take(const lvni_plan_cut_options *o, lvni_plan_cut *cut)
{
    LVN_TRY(check(o));
    cut->stages = o->stages;
    cut->begin[0] = 0;
    cut->begin[o->stages] = o->n_units;
    cut->most = 0.0;
    for (int i = 0; i < o->stages; i++) {
        if (cut->begin[i + 1] <= cut->begin[i]) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "balance.cuts: stage %d of %d has no unit; give the first units of the later "
                     "stages in the model's order",
                     i, o->stages);
        }
        cut->device[i] = i;
        cut->most = fmax(cut->most, lvni_plan_cut_work(o, cut->begin[i], cut->begin[i + 1], i));
    }
    return LVN_OK;
}
