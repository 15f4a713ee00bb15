/* Early stopping (early.h). */
#include "trainer/early.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void lvni_trainer_early_begin(lvni_trainer_early *e)
{
    *e = (lvni_trainer_early){.best = (double)NAN};
}

static int64_t patience_of(const lvni_trainer_early_options *o)
{
    return o->patience > 0 ? o->patience : 1;
}

/* Of two numbers where less is better. */
static lvni_trainer_early_reason reason_of(const lvni_trainer_early_options *o, double value)
{
    const double sign = o->larger_is_better ? -1.0 : 1.0;
    if (!isfinite(value)) {
        return LVNI_EARLY_NOT_FINITE;
    }
    if (sign * value <= sign * o->stopping_threshold) { /* false for NaN */
        return LVNI_EARLY_GOOD;
    }
    return sign * value >= sign * o->divergence_threshold ? LVNI_EARLY_DIVERGED
                                                          : LVNI_EARLY_GOES_ON;
}

bool lvni_trainer_early_follow(lvni_trainer_early *e, const lvni_trainer_early_options *o,
                               double value)
{
    const double sign = o->larger_is_better ? -1.0 : 1.0;
    if (e->reason != LVNI_EARLY_GOES_ON) {
        return false; /* the run goes on to min_epochs or min_steps */
    }
    e->reason = reason_of(o, value);
    if (e->reason != LVNI_EARLY_GOES_ON) {
        return true;
    }
    if (isnan(e->best) || sign * value < sign * e->best - o->min_delta) {
        e->best = value;
        e->waited = 0;
        return false;
    }
    e->waited++;
    e->reason = e->waited >= patience_of(o) ? LVNI_EARLY_PATIENCE : LVNI_EARLY_GOES_ON;
    return e->reason != LVNI_EARLY_GOES_ON;
}

/* Numbers as their bits: exact in every locale. */
void lvni_trainer_early_print(const lvni_trainer_early *e, char *text, int size)
{
    unsigned long long bits;
    memcpy(&bits, &e->best, sizeof bits);
    snprintf(text, (size_t)size, "best=%016llx waited=%lld reason=%d", bits, (long long)e->waited,
             (int)e->reason);
}

bool lvni_trainer_early_read(const char *text, const lvni_trainer_early_options *o,
                             lvni_trainer_early *out)
{
    unsigned long long bits;
    long long waited;
    int reason, end = 0;
    if (sscanf(text, "best=%16llx waited=%lld reason=%d%n", &bits, &waited, &reason, &end) != 3 ||
        text[end] != '\0' || waited < 0 || reason < 0 || reason >= LVNI_EARLY_REASONS) {
        return false;
    }
    memcpy(&out->best, &bits, sizeof out->best);
    out->waited = waited;
    out->reason = (lvni_trainer_early_reason)reason;
    if (out->reason == LVNI_EARLY_PATIENCE && waited < patience_of(o)) {
        out->reason = LVNI_EARLY_GOES_ON;
    }
    return true;
}
