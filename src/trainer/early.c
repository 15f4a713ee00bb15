/* Early stopping (early.h). */
#include "trainer/early.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void lvni_trainer_early_begin(lvni_trainer_early *e)
{
    *e = (lvni_trainer_early){.best = (double)NAN, .last = (double)NAN};
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
    e->last = value;
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
static unsigned long long bits_of(double x)
{
    unsigned long long bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

void lvni_trainer_early_print(const lvni_trainer_early *e, const char *by, char *text, size_t size)
{
    snprintf(text, size, "best=%016llx waited=%lld reason=%d last=%016llx by=%s", bits_of(e->best),
             (long long)e->waited, (int)e->reason, bits_of(e->last), by);
}

/* The end that it came to, under options that may be others by now. */
static void look_again(lvni_trainer_early *e, const lvni_trainer_early_options *o)
{
    if (e->reason == LVNI_EARLY_PATIENCE && e->waited < patience_of(o)) {
        e->reason = LVNI_EARLY_GOES_ON;
    }
    if ((e->reason == LVNI_EARLY_GOOD || e->reason == LVNI_EARLY_DIVERGED) && isfinite(e->last)) {
        e->reason = LVNI_EARLY_GOES_ON;
        (void)lvni_trainer_early_follow(e, o, e->last);
    }
}

bool lvni_trainer_early_read(const char *text, const lvni_trainer_early_options *o, const char *by,
                             lvni_trainer_early *out, bool *same)
{
    unsigned long long best, last = bits_of((double)NAN);
    long long waited;
    int reason, end = 0, name = 0;
    *same = true;
    if (sscanf(text, "best=%16llx waited=%lld reason=%d%n", &best, &waited, &reason, &end) != 3 ||
        waited < 0 || reason < 0 || reason >= LVNI_EARLY_REASONS) {
        return false;
    }
    if (text[end] != '\0') {
        if (sscanf(text + end, " last=%16llx by=%n", &last, &name) != 1 || name == 0) {
            return false;
        }
        *same = strcmp(text + end + name, by) == 0;
    }
    if (!*same) {
        lvni_trainer_early_begin(out);
        return true;
    }
    memcpy(&out->best, &best, sizeof out->best);
    memcpy(&out->last, &last, sizeof out->last);
    out->waited = waited;
    out->reason = (lvni_trainer_early_reason)reason;
    look_again(out, o);
    return true;
}
