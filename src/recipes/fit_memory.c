/* The estimated memory of a run, before there is a run directory; and sizes of micro-batches that
 * the network cannot take (fit.h). */
#include "core/machine.h"
#include "core/str.h"
#include "recipes/fit_impl.h"
#include "recipes/options.h"
#include "tensor/device.h"
#include "trainer/memory.h"

/* The network cannot take so few samples (or such images): refused before the first step, not after
 * the last of an epoch. */
static lvn_status refuse_size(const lvni_plan *p, int64_t size)
{
    const lvn_error why = *lvn_last_error();
    const bool in_all = size >= lvni_plan_micro_batch(p, 0, p->micro_batches - 1).count;
    if (in_all || p->last_step == p->effective_batch) {
        LVN_FAIL(LVN_ERR_USAGE, "the network cannot take a micro-batch of %lld sample%s: %s",
                 (long long)size, lvni_core_plural(size, "", "s"), why.message);
    }
    LVN_FAIL(
        LVN_ERR_USAGE,
        "the last step of an epoch has %lld sample%s in %d micro-batch%s (%lld samples in steps of "
        "%lld), and the network cannot take a micro-batch of %lld: %s; "
        "drop_last=true omits that step, and another batch_size may not have it",
        (long long)p->last_step, lvni_core_plural(p->last_step, "", "s"), p->micro_batches,
        lvni_core_plural(p->micro_batches, "", "es"), (long long)p->n_samples,
        (long long)p->effective_batch, (long long)size, why.message);
}

/* A warning, not an error: the estimate is of the peak, and memory of other processes may be free
 * by then. */
static void compare_memory(uint64_t need, lvni_core_str *out)
{
    char takes[LVNI_BYTES_TEXT], there[LVNI_BYTES_TEXT];
    const uint64_t has = lvni_core_machine_memory("");
    if (need > has) {
        lvni_core_str_printf(
            out,
            "the run takes about %s, and %s are available to it here: the system may "
            "kill it; a smaller batch_size or image_size, or more "
            "micro-batches, takes less",
            lvni_core_bytes_text(need, takes), lvni_core_bytes_text(has, there));
    }
}

/* What does not fit in any case is refused before there is a run; the rest is a peak of lanes that
 * need not come together. */
static lvn_status compare_device(const lvni_trainer_memory_need *n, lvni_core_str *out)
{
    char takes[LVNI_BYTES_TEXT], has[LVNI_BYTES_TEXT];
    lvni_core_bytes_text(n->device_limit, has);
    if (n->device_fixed > n->device_limit) {
        LVN_FAIL(LVN_ERR_DEVICE_MEMORY,
                 "weights, gradients and optimizer take %s of %s, which has %s: a smaller model, "
                 "fewer micro-batches or lanes=1 need less",
                 lvni_core_bytes_text(n->device_fixed, takes), n->device_name, has);
    }
    if (n->device > n->device_limit) {
        lvni_core_str_printf(
            out,
            "%sthe run takes up to %s of %s, which has %s, and may run out of it; a "
            "smaller batch_size or image_size, more micro-batches or fewer lanes "
            "need less",
            out->len > 0 ? "; " : "", lvni_core_bytes_text(n->device, takes), n->device_name, has);
    }
    return LVN_OK;
}

/* Of the rank and the plan that *r has now. *predicted: its status, where the options are right. */
static lvn_status predict(lvni_recipes_fit_run *r, lvni_trainer_memory_need *need,
                          lvn_status *predicted)
{
    lvni_trainer_options o;
    *need = (lvni_trainer_memory_need){0};
    LVN_TRY(lvni_recipes_fit_options(r, &o));
    *predicted = lvni_trainer_predict_memory(&o, need);
    lvni_core_str_clear(&r->json); /* the configuration may still change */
    lvni_core_str_clear(&r->card);
    return LVN_OK;
}

/* Ranks that are threads of this process. */
static bool has_others(const lvni_recipes_fit_run *r)
{
    const lvni_recipes_ranks *ranks = r->request->ranks;
    return r->rank.world > 1 && ranks != NULL && ranks->n == r->rank.world;
}

static lvn_status add_others(lvni_recipes_fit_run *r, lvni_trainer_memory_need *need, int *lanes,
                             lvn_status *predicted)
{
    const lvni_plan own = r->plan;
    const lvni_recipes_rank mine = r->rank;
    lvn_status s = LVN_OK;
    for (int i = 1; i < mine.world && s == LVN_OK && *predicted == LVN_OK; i++) {
        lvni_trainer_memory_need more;
        r->rank.rank = i;
        s = lvni_recipes_make_plan(r->request->config, own.n_samples, &r->rank, r->model->coupled,
                                   &r->plan);
        if (s == LVN_OK) {
            s = predict(r, &more, predicted);
        }
        if (s == LVN_OK && *predicted == LVN_OK) {
            lvni_trainer_memory_add_thread(need, &more);
            *lanes += r->plan.lanes;
        }
    }
    r->plan = own;
    r->rank = mine;
    return s;
}

/* A dry run of each size of micro-batch. Another failure in it is reported when the step runs. */
lvn_status lvni_recipes_fit_predict_memory(lvni_recipes_fit_run *r)
{
    lvni_trainer_memory_need need;
    int lanes = r->plan.lanes;
    const bool together = has_others(r) && r->rank.rank == 0 && r->plan.rank == 0;
    lvn_status s = LVN_OK;
    LVN_TRY(predict(r, &need, &s));
    LVN_TRY(together ? add_others(r, &need, &lanes, &s) : LVN_OK);
    if (s == LVN_ERR_SHAPE && need.refused > 0) {
        return refuse_size(&r->plan, need.refused);
    }
    if (s == LVN_ERR_DEVICE_MEMORY) {
        const lvn_error why = *lvn_last_error();
        LVN_FAIL(LVN_ERR_USAGE,
                 "%lld sample%s at once take%s more memory than there is (%s): give a smaller "
                 "batch_size or image_size, or "
                 "more micro-batches",
                 (long long)need.refused, lvni_core_plural(need.refused, "", "s"),
                 lvni_core_plural(need.refused, "s", ""), why.message);
    }
    if (s == LVN_OK) {
        lvni_trainer_memory_print(&need, lanes, &r->memory);
        if (together) {
            lvni_core_str_printf(&r->memory, ", of %d ranks in one process", r->rank.world);
        } else if (r->rank.world > 1) {
            lvni_core_str_printf(&r->memory, ", on each of %d ranks", r->rank.world);
        }
        compare_memory(need.total * (uint64_t)(together ? 1 : r->rank.world), &r->scarce);
        LVN_TRY(compare_device(&need, &r->scarce));
    } else {
        lvni_core_str_printf(&r->memory, "memory: not known (%s)", lvn_last_error()->message);
        lvn_clear_error();
    }
    LVN_TRY(lvni_core_str_status(&r->scarce));
    return lvni_core_str_status(&r->memory);
}
