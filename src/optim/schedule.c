/* Learning-rate schedules: pure functions of the step (optim.h). */
#include "core/math.h"
#include "optim/optim.h"

double lvni_schedule_factor(const lvni_schedule *s, int64_t step)
{
    if (step < s->warmup_steps) {
        return (double)(step + 1) / (double)s->warmup_steps;
    }
    if (s->kind == LVNI_SCHEDULE_CONSTANT) {
        return 1.0;
    }
    const int64_t length = s->total_steps - s->warmup_steps;
    if (length <= 0 || step >= s->total_steps) {
        return 0.0;
    }
    return 0.5 * (1.0 + lvni_cos2pi(0.5 * (double)(step - s->warmup_steps) / (double)length));
}
