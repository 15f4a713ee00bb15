/* The functions of a backend whose results are numbers in f64 (check.h): a loss, the decision, the
 * end of a step, the trust ratio of a tensor. */
#include "core/math.h"
#include "kernels/check/flat_job.h"
#include "kernels/flat.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

lvn_status lvni_check_number(lvni_check_job *j)
{
    const float value = -0.6875f;
    const int64_t one = 1;
    double number = 0.0;
    double *slot = lvni_check_put(j, NULL, sizeof *slot, 0);
    lvn_tensor *here = lvn_tensor_wrap((void *)(uintptr_t)&value, LVN_F32, 1, &one);
    lvn_tensor *on_device = here == NULL ? NULL : lvni_tensor_to(here, j->device);
    lvn_status s = slot == NULL || on_device == NULL ? lvn_last_error()->code : LVN_OK;
    if (s == LVN_OK) {
        lvni_kernels_flat_number(slot, on_device);
        s = lvni_check_get(j, slot, &number);
    }
    lvn_release(on_device);
    lvn_release(here);
    LVN_TRY(s);
    return number == (double)value ? LVN_OK
                                   : lvni_check_fail_at(j, "slot", 0, number, (double)value);
}

/* With and without a weight and a factor there. */
static lvn_status seed_with(lvni_check_job *j, bool weighs, bool scales)
{
    const double number = 2.0, weight = 7.0, factor = 1024.0 / 3.0;
    float have;
    double *weight_on_device = lvni_check_put(j, &weight, sizeof weight, 0),
           *factor_on_device = lvni_check_put(j, &factor, sizeof factor, 0);
    lvn_tensor *value = lvni_tensor_new_on(&(lvni_tensor_desc){.dtype = LVN_F32}, j->device);
    lvn_status s = weight_on_device == NULL || factor_on_device == NULL || value == NULL
                       ? LVN_ERR_MEMORY
                       : LVN_OK;
    if (s == LVN_OK) {
        lvni_kernels_flat_seed(value, number, weighs ? weight_on_device : NULL,
                               scales ? factor_on_device : NULL);
        s = lvni_tensor_mem_copy(&have, value->data, sizeof have);
    }
    lvn_release(value);
    const float want = (float)(number * (weighs ? weight : 1.0) * (scales ? factor : 1.0));
    LVN_TRY(s);
    return have == want ? LVN_OK : lvni_check_fail_at(j, "value", 0, (double)have, (double)want);
}

lvn_status lvni_check_seed(lvni_check_job *j)
{
    LVN_TRY(seed_with(j, false, true));
    LVN_TRY(seed_with(j, true, false));
    return seed_with(j, true, true);
}

/* The powers of beta are the device's own. */
static void allow_powers(const lvn_step_phase *have, lvn_step_phase *want)
{
    const double error1 = fabs(have->correction1 / want->correction1 - 1.0),
                 error2 = fabs(have->correction2 / want->correction2 - 1.0);
    want->correction1 = error1 < 1e-12 ? have->correction1 : want->correction1;
    want->correction2 = error2 < 1e-12 ? have->correction2 : want->correction2;
}

static const lvn_step_scaler scaler_off = {.scale = 1.0, .largest = 8.0, .loss_factor = 1.0},
                             scaler_on = {.scale = 1024.0,
                                          .largest = 3.0,
                                          .loss_factor = 1024.0 / 3.0,
                                          .clean = LVN_SCALER_GROWTH - 1,
                                          .skipped = 4,
                                          .on = 1};

/* The losses of three micro-batches, the second being `loss`; weights: counted there, or NULL. */
static lvn_status decide_weighing(lvni_check_job *j, const lvn_step_scaler *scaler, double loss,
                                  double sum, double clip, const double weights[3])
{
    enum { BLOCKS = 300 };
    double sums[BLOCKS], losses[3] = {0.5, loss, 0.0};
    const int64_t n = j->n < BLOCKS ? j->n : BLOCKS;
    lvn_step_decision d = {.phase = LVNI_CHECK_PHASE,
                           .micro_batch = 8,
                           .n_losses = 3,
                           .divisor = 24.0,
                           .clip = clip,
                           .beta1 = 0.9,
                           .beta2 = 0.999,
                           .ema_decay = 0.99,
                           .ema_warmup = true};
    lvn_step_block want, have;
    memset(&want, 0, sizeof want);
    want.given.step = 41;
    want.given.skipped = 3;
    want.given.lr[LVNI_CHECK_PHASE][0] = 0.01;
    want.given.lr[LVNI_CHECK_PHASE][1] = 0.02;
    want.scaler = *scaler;
    want.updates[0] = 40;
    want.updates[LVNI_CHECK_PHASE] = 37;
    for (int64_t i = 0; i < n; i++) {
        sums[i] = (double)(1 + i * i % 7) / 3.0;
    }
    sums[n / 2] = sum;
    lvn_step_block *block = lvni_check_put(j, &want, sizeof want, 0);
    double *on_device = lvni_check_put(j, sums, (size_t)n * sizeof *sums, 0),
           *losses_on_device = lvni_check_put(j, losses, sizeof losses, 0);
    LVNI_CHECK_NEED(block);
    LVNI_CHECK_NEED(on_device);
    LVNI_CHECK_NEED(losses_on_device);
    if (weights != NULL) {
        d.weights = lvni_check_put(j, weights, 3 * sizeof *weights, 0);
        LVNI_CHECK_NEED(d.weights);
    }
    lvni_kernels_flat_decide(block, on_device, n, losses_on_device, &d);
    LVN_TRY(lvni_check_get(j, block, &have));
    d.weights = weights;
    const double t = lvn_step_t(&want, d.phase);
    lvn_step_decide(&want, sqrt(lvni_kernels_flat_sum_tree(sums, n)),
                    lvni_core_pow(lvn_step_beta1(&want, &d), t), lvni_core_pow(d.beta2, t), losses,
                    &d);
    const lvn_step_phase *h = &have.phase[LVNI_CHECK_PHASE], *w = &want.phase[LVNI_CHECK_PHASE];
    allow_powers(h, &want.phase[LVNI_CHECK_PHASE]);
    if (memcmp(&have, &want, sizeof have) != 0) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "of %lld sums, clip %g and the loss %g the block has norm %.17g, scale %.17g, "
                 "updated %d, failed %d; it must have %.17g, %.17g, %d, %d, and all else as "
                 "lvn_step_decide leaves it",
                 (long long)n, clip, loss, h->grad_norm, h->grad_scale, (int)h->updated,
                 (int)have.failed, w->grad_norm, w->grad_scale, (int)w->updated, (int)want.failed);
    }
    return LVN_OK;
}

static lvn_status decide_with(lvni_check_job *j, const lvn_step_scaler *scaler, double loss,
                              double sum, double clip)
{
    return decide_weighing(j, scaler, loss, sum, clip, NULL);
}

/* Added in order; of a loss that is none; of nothing; one that cannot be. */
static lvn_status decide_by_weights(lvni_check_job *j)
{
    static const double some[3] = {0.1, 1e16, -0.0}, without[3] = {3.0, 0.0, 4.0}, none[3] = {0},
                        below[3] = {1.0, 2.0, -1.0};
    LVN_TRY(decide_weighing(j, &scaler_off, 0.7, 4.0, 0.0, some));
    LVN_TRY(decide_weighing(j, &scaler_off, (double)NAN, 4.0, 0.0, without));
    LVN_TRY(decide_weighing(j, &scaler_off, 0.7, 4.0, 1e-3, none));
    lvni_check_free_rooms(j);
    LVN_TRY(decide_weighing(j, &scaler_off, 0.7, 4.0, 0.0, below));
    LVN_TRY(decide_weighing(j, &scaler_on, 0.7, 4.0, 0.0, below));
    LVN_TRY(decide_weighing(j, &scaler_on, 0.7, 4.0, 0.0, none));
    lvni_check_free_rooms(j);
    return LVN_OK;
}

lvn_status lvni_check_decide(lvni_check_job *j)
{
    LVN_TRY(decide_by_weights(j));
    LVN_TRY(decide_with(j, &scaler_off, 0.7, 4.0, 0.0));
    LVN_TRY(decide_with(j, &scaler_off, 0.7, 4.0, 1e-3));
    LVN_TRY(decide_with(j, &scaler_off, (double)INFINITY, 4.0, 1.0));
    LVN_TRY(decide_with(j, &scaler_off, 0.7, (double)INFINITY, 1.0));
    lvni_check_free_rooms(j);
    LVN_TRY(decide_with(j, &scaler_on, (double)INFINITY, 4.0, 1e-3));
    return decide_with(j, &scaler_on, 0.7, (double)INFINITY, 1.0);
}

static lvn_status finish_with(lvni_check_job *j, const lvn_step_scaler *scaler, bool skipped)
{
    lvn_step_block want, have;
    memset(&want, 0, sizeof want);
    want.given.step = 41;
    want.finished = 41;
    want.scaler = *scaler;
    want.phase[LVNI_CHECK_PHASE].updated = !skipped;
    want.phase[LVNI_CHECK_PHASE].skipped = skipped;
    lvn_step_block *block = lvni_check_put(j, &want, sizeof want, 0);
    LVNI_CHECK_NEED(block);
    lvni_kernels_flat_finish(block);
    LVN_TRY(lvni_check_get(j, block, &have));
    lvn_step_finish(&want);
    if (memcmp(&have, &want, sizeof have) != 0) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "of step 41 the block has finished %lld and the scale %g, must be %lld and %g, "
                 "and all else as lvn_step_finish leaves it",
                 (long long)have.finished, have.scaler.scale, (long long)want.finished,
                 want.scaler.scale);
    }
    return LVN_OK;
}

lvn_status lvni_check_finish(lvni_check_job *j)
{
    LVN_TRY(finish_with(j, &scaler_off, false));
    LVN_TRY(finish_with(j, &scaler_on, false));
    return finish_with(j, &scaler_on, true);
}

/* ---- LARS and LAMB ---- */

/* Of a tensor of n blocks; factors on the sums of its weights and gradient, 0: without a norm. */
typedef struct trust_case {
    double of_w, of_g, decay, eps;
    bool lamb;
} trust_case;

static lvn_status trust_with(lvni_check_job *j, const trust_case *c, lvni_check_step_kind kind)
{
    enum { BLOCKS = 300 };
    double w[BLOCKS], g[BLOCKS], have;
    const int64_t n = j->n < BLOCKS ? j->n : BLOCKS;
    const lvn_step_block *step;
    lvn_flat_trust p = {.coefficient = 0.02,
                        .weight_decay = c->decay,
                        .grad_scale = 0.125,
                        .eps = c->eps,
                        .of_decayed = !c->lamb};
    for (int64_t i = 0; i < n; i++) {
        w[i] = c->of_w * (double)(1 + i * i % 7) / 3.0;
        g[i] = c->of_g * (double)(1 + i * i % 5) / 3.0;
    }
    double *on_device = lvni_check_put(j, NULL, sizeof *on_device, 0),
           *w_on_device = lvni_check_put(j, w, (size_t)n * sizeof *w, 0),
           *g_on_device = lvni_check_put(j, g, (size_t)n * sizeof *g, 0);
    LVNI_CHECK_NEED(on_device);
    LVNI_CHECK_NEED(w_on_device);
    LVNI_CHECK_NEED(g_on_device);
    LVN_TRY(lvni_check_put_step(j, kind, &step));
    p.step = step == NULL ? NULL : &step->phase[LVNI_CHECK_PHASE]; /* an address, not read */
    lvni_kernels_flat_trust(on_device, w_on_device, g_on_device, n, &p);
    LVN_TRY(lvni_check_get(j, on_device, &have));
    p.step = step == NULL ? NULL : &lvni_check_step.phase[LVNI_CHECK_PHASE];
    const double want = lvn_flat_trust_ratio(sqrt(lvni_kernels_flat_sum_tree(w, n)),
                                             sqrt(lvni_kernels_flat_sum_tree(g, n)), &p);
    return have == want || fabs(have / want - 1.0) <= 1e-14
               ? LVN_OK
               : lvni_check_fail_at(j, "the trust ratio of tensor", 0, have, want);
}

lvn_status lvni_check_trust(lvni_check_job *j)
{
    static const trust_case cases[] = {
        {1.0, 0.5, 0.1, 1e-8, false}, {1.0, 1e-200, 1e-200, 0.0, false},
        {0.0, 1.0, 0.1, 1e-8, false}, {1.0, 0.0, 0.1, 1e-8, false},
        {1.0, 0.5, 0.0, 1e-8, false}, {1.0, 0.5, 0.1, 0.5, false},
        {1.0, 0.5, 0.0, 0.0, true},   {0.0, 1.0, 0.0, 0.0, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int kind = 0; kind <= LVNI_CHECK_UPDATES; kind++) {
            LVN_TRY(trust_with(j, &cases[i], (lvni_check_step_kind)kind));
            lvni_check_free_rooms(j);
        }
    }
    return LVN_OK;
}
