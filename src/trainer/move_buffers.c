/* What a step changes besides parameters: buffers, by their rules (nn/buffers.c), after the
 * optimizer and with its decision. Called by the update (update.c). */
#include "kernels/flat.h"
#include "trainer/engine.h"

/* Of the step's number alone: a step that is skipped counts, as it does on a device, which skips by
 * itself. */
static double factor_of(const lvni_trainer_engine *e, const lvni_nn_follow_rule *rule)
{
    const lvni_optim_curve momentum = {.kind = LVNI_CURVE_COSINE,
                                       .from = rule->momentum,
                                       .to = rule->end,
                                       .steps = e->o.schedule.total_steps};
    return 1.0 -
           (rule->momentum == rule->end ? rule->end : lvni_optim_curve_at(&momentum, e->now.step));
}

void lvni_trainer_follow_factors(const lvni_trainer_engine *e,
                                 lvn_step_average factor[LVN_STEP_FOLLOWS])
{
    const lvni_nn_model *m = e->o.model;
    for (int i = 0; i < m->n_follow_rules; i++) {
        factor[i].factor = factor_of(e, &m->follow_rule[i]);
    }
}

/* In place of the value, unless the device skips the step. */
static lvn_status renew(const lvni_trainer_engine *e, const lvn_buffer *b, const lvn_tensor *value)
{
    if (value->dtype != LVN_F32 || !lvni_tensor_same_shape(value, b->tensor)) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "the function of buffer %s gave another shape or type than the buffer's f32",
                 b->name);
    }
    if (e->deferred == NULL) {
        return lvni_tensor_mem_copy(b->tensor->data, value->data, (size_t)b->numel * sizeof(float));
    }
    lvni_kernels_flat_lerp(LVNI_F32(b->tensor), LVNI_CF32(value), 1.0f, b->numel,
                           &e->deferred->block->renewed);
    return LVN_OK;
}

static lvn_status call_function(const lvni_trainer_engine *e, const lvn_buffer *b)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    const char *outside = ctx->module_path;
    ctx->at = (lvni_tensor_position){.seed = e->now.seed,
                                     .step = (uint32_t)e->now.step,
                                     .step_on_device = e->now.step_on_device,
                                     .micro_batch = UINT32_MAX, /* all of them */
                                     .phase = (uint32_t)e->now.phase,
                                     .call = (uint32_t)e->now.phase << LVNI_CALL_BITS};
    ctx->module_path = b->module->path;
    LVN_TRY(lvn_scope_open());
    ctx->deferred = e->deferred != NULL;
    const bool recording = lvn_set_grad_enabled(false);
    const lvn_tensor *value = b->function(b->module, b->tensor);
    lvn_status s = value == NULL ? LVN_OK : renew(e, b, value);
    (void)lvn_set_grad_enabled(recording);
    const lvn_status closed = lvn_scope_close();
    ctx->deferred = false;
    ctx->module_path = outside;
    ctx->at = (lvni_tensor_position){0};
    s = closed != LVN_OK ? closed : s; /* what failed first */
    if (s == LVN_OK && value == NULL) {
        s = lvn_error_set(LVN_ERR_INVALID, __FILE__, __LINE__,
                          "the function of buffer %s gave NULL and no error", b->name);
    }
    return s;
}

static lvn_status call_functions(const lvni_trainer_engine *e)
{
    const lvni_nn_model *m = e->o.model;
    for (int i = 0; i < m->n_buffers; i++) {
        const lvn_buffer *b = m->buffers[i];
        const bool now = b->phase < 0 || b->phase == e->now.phase;
        if (b->function != NULL && now && b->rule != LVNI_RULE_FOLLOW) {
            LVN_TRY(call_function(e, b));
        }
    }
    return LVN_OK;
}

lvn_status lvni_trainer_move_buffers(lvni_trainer_engine *e, const lvni_nn_set *total)
{
    const lvn_step_block *block = e->deferred == NULL ? NULL : e->deferred->block;
    const int phase = e->now.phase;
    lvn_step_average given[LVN_STEP_FOLLOWS];
    lvni_nn_model_apply_records(e->o.model, total, e->now.number, block, phase);
    lvni_trainer_follow_factors(e, given);
    lvni_nn_model_follow(e->o.model, phase, given, block == NULL ? NULL : block->follow);
    return call_functions(e);
}
