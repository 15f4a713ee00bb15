/* strategy=balance: the units of the model from a dry run, their cut into stages, and what the
 * memory of this rank is with its stage (fit_impl.h). */
#include "run/fit_impl.h"

#include "trainer/memory.h"

#include <string.h>

bool lvni_run_is_staged(const lvni_core_config *c)
{
    return strcmp(lvni_core_config_str(c, "strategy"), "balance") == 0;
}

/* Of one micro-batch in all units. */
static uint64_t kept_by_all(const lvni_trainer_units *u)
{
    uint64_t sum = 0;
    for (int i = 0; i < u->n; i++) {
        sum += u->unit[i].kept;
    }
    return sum;
}

/* What a lane takes beside the tensors that units keep. */
static uint64_t beside(const lvni_trainer_units *u, const lvni_trainer_memory_need *need)
{
    const uint64_t kept = kept_by_all(u);
    return need->device_lane > kept ? need->device_lane - kept : 0;
}

static lvn_status cut(lvni_run_fit_run *r, const lvni_trainer_memory_need *need)
{
    uint64_t memory[LVNI_PLAN_STAGES] = {0};
    const uint64_t taken = need->device_fixed + beside(&r->units, need);
    for (int i = 0; i < r->plan.devices && i < LVNI_PLAN_STAGES; i++) {
        memory[i] = need->device_limit == 0      ? 0
                    : need->device_limit > taken ? need->device_limit - taken
                                                 : 1;
    }
    lvni_trainer_cut_options o = {
        .stages = r->plan.devices, .micro_batches = r->plan.micro_batches, .memory = memory};
    o.begins = lvni_core_config_str_list(r->request->config, "balance.cuts", &o.n);
    return lvni_trainer_units_cut(&r->units, &o);
}

/* Lanes keep what is of this rank's stage, as many micro-batches as there are tapes. */
static void count_stage(const lvni_run_fit_run *r, lvni_trainer_memory_need *need)
{
    const uint64_t lanes = (uint64_t)r->plan.lanes, before = lanes * need->device_lane,
                   now = beside(&r->units, need) +
                         lvni_trainer_units_kept(&r->units, r->plan.rank, r->plan.micro_batches);
    const uint64_t less = before > now ? before - now : 0;
    need->lanes -= less < need->lanes ? less : need->lanes;
    need->total -= less < need->total ? less : need->total;
    if (need->device > 0) {
        need->device -=
            less < need->device - need->device_fixed ? less : need->device - need->device_fixed;
    }
}

lvn_status lvni_run_fit_cut(lvni_run_fit_run *r, const lvni_trainer_options *o,
                            lvni_trainer_memory_need *need)
{
    lvni_trainer_units_free(&r->units);
    LVN_TRY(lvni_trainer_predict_units(o, &r->units));
    LVN_TRY(cut(r, need));
    count_stage(r, need);
    lvni_core_str_clear(&r->stages);
    lvni_trainer_units_print(&r->units, r->plan.micro_batches, &r->stages);
    return lvni_core_str_status(&r->stages);
}
