/* Epochs of different lengths (plan.h): accumulation that goes by the epoch. What an epoch of each
 * factor has is in the plan already. */
#include "plan/plan.h"

#include "core/str.h"

/* The factor's index that counts in this epoch. */
static int factor_of(const lvni_plan *p, int64_t epoch)
{
    int i = p->n_factors - 1;
    while (i > 0 && p->factor[i].epoch > epoch) {
        i--;
    }
    return i;
}

lvni_plan lvni_plan_in_epoch(const lvni_plan *plan, int64_t epoch)
{
    lvni_plan p = *plan;
    if (plan->n_factors > 0) {
        const lvni_plan_factor *f = &plan->factor[factor_of(plan, epoch)];
        const int64_t filled = (int64_t)plan->micro_batches * f->factor;
        p.filled = (int)((filled + plan->accumulate - 1) / plan->accumulate);
        p.effective_batch = plan->effective_batch / plan->accumulate * f->factor;
        p.accumulate = f->factor;
        p.steps_per_epoch = f->steps;
        p.last_step = f->last_step;
        p.n_factors = 0;
    }
    return p;
}

int64_t lvni_plan_steps_of(const lvni_plan *p, int64_t epoch)
{
    return p->n_factors > 0 ? p->factor[factor_of(p, epoch)].steps : p->steps_per_epoch;
}

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t lvni_plan_steps_before(const lvni_plan *p, int64_t epoch)
{
    if (p->n_factors == 0) {
        return times(epoch, p->steps_per_epoch);
    }
    int64_t sum = 0;
    for (int i = 0; i < p->n_factors && p->factor[i].epoch < epoch; i++) {
        const bool ends = i + 1 < p->n_factors && p->factor[i + 1].epoch < epoch;
        const int64_t end = ends ? p->factor[i + 1].epoch : epoch,
                      steps = times(end - p->factor[i].epoch, p->factor[i].steps);
        sum = steps < INT64_MAX - sum ? sum + steps : INT64_MAX;
    }
    return sum;
}

int64_t lvni_plan_locate(const lvni_plan *p, int64_t steps, int64_t *epoch)
{
    for (int i = p->n_factors > 0 ? factor_of(p, *epoch) : 0; i + 1 < p->n_factors; i++) {
        const int64_t length = times(p->factor[i + 1].epoch - *epoch, p->factor[i].steps);
        if (steps < length) {
            break;
        }
        steps -= length;
        *epoch = p->factor[i + 1].epoch;
    }
    const int64_t each = lvni_plan_steps_of(p, *epoch);
    *epoch += steps / each;
    return steps % each;
}

void lvni_plan_print_factors(const lvni_plan *p, lvni_core_str *out)
{
    for (int i = 0; i < p->n_factors; i++) {
        lvni_core_str_printf(out, "%s%lld:%d", i > 0 ? "," : "", (long long)p->factor[i].epoch,
                             p->factor[i].factor);
    }
}

int64_t lvni_plan_batches_before(const lvni_plan *p, int64_t step)
{
    const int64_t a = p->accumulate, batch = p->effective_batch / a;
    return step < p->steps_per_epoch || batch == 0
               ? step * a
               : (p->steps_per_epoch - 1) * a + (p->last_step + batch - 1) / batch;
}
