/* The loss scale (scaler.h). */
#include "trainer/scaler.h"

#include "core/str.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIRST_SCALE 65536.0

static const struct {
    const char *name;
    lvn_dtype low;
} precisions[] = {[LVNI_PRECISION_32] = {"32-true", LVN_F32},
                  [LVNI_PRECISION_BF16_MIXED] = {"bf16-mixed", LVN_BF16},
                  [LVNI_PRECISION_16_MIXED] = {"16-mixed", LVN_F16},
                  [LVNI_PRECISION_BF16_TRUE] = {"bf16-true", LVN_BF16}};

lvni_trainer_precision lvni_trainer_precision_of(const char *name)
{
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        if (strcmp(name, precisions[i].name) == 0) {
            return (lvni_trainer_precision)i;
        }
    }
    return LVNI_PRECISION_32;
}

lvn_dtype lvni_trainer_precision_low(lvni_trainer_precision precision)
{
    return precisions[precision].low;
}

void lvni_trainer_scaler_init(lvni_trainer_scaler *s, lvni_trainer_precision precision)
{
    const bool on = precision == LVNI_PRECISION_16_MIXED;
    *s = (lvni_trainer_scaler){.on = on, .scale = on ? FIRST_SCALE : 1.0};
}

lvn_step_scaler lvni_trainer_scaler_rule(const lvni_trainer_scaler *s, int64_t largest)
{
    return (lvn_step_scaler){.scale = s->scale,
                             .largest = (double)largest,
                             .loss_factor = s->on ? s->scale / (double)largest : 1.0,
                             .clean = s->clean,
                             .skipped = s->skipped,
                             .in_a_row = s->in_a_row,
                             .on = s->on};
}

lvn_status lvni_trainer_scaler_update(lvni_trainer_scaler *s, bool overflow, bool skipped)
{
    lvn_step_scaler rule = lvni_trainer_scaler_rule(s, 1);
    const bool goes_on = lvn_step_scaler_follow(&rule, overflow, skipped);
    s->in_epoch += rule.skipped - s->skipped;
    s->scale = rule.scale;
    s->clean = rule.clean;
    s->skipped = rule.skipped;
    s->in_a_row = rule.in_a_row;
    if (!goes_on) {
        LVN_FAIL(LVN_ERR_NON_FINITE,
                 "the gradient was not finite in %d steps in a row, the last with a loss scale of "
                 "%g: the loss itself is likely infinite; "
                 "try a smaller optim.lr, or precision=bf16-mixed, which needs no loss scale",
                 LVN_SCALER_MOST, s->scale);
    }
    return LVN_OK;
}

void lvni_trainer_scaler_print(const lvni_trainer_scaler *s, char *text, size_t size)
{
    text[0] = '\0';
    if (s->on) {
        lvni_core_format(
            text, size, "scale=%.17g clean=%lld skipped=%lld in_a_row=%d in_epoch=%lld", s->scale,
            (long long)s->clean, (long long)s->skipped, s->in_a_row, (long long)s->in_epoch);
    } else if (s->skipped > 0) {
        snprintf(text, size, "skipped=%lld", (long long)s->skipped);
    }
}

lvn_status lvni_trainer_scaler_read(const char *text, lvni_trainer_scaler *s)
{
    long long clean = 0, skipped = 0, in_epoch = 0;
    int in_a_row = 0, end = 0, longer = 0;
    double scale = 0.0;
    if (text == NULL) {
        return LVN_OK;
    }
    if (sscanf(text, "skipped=%lld%n", &skipped, &end) == 1 && text[end] == '\0' && skipped > 0) {
        s->skipped = skipped;
        return LVN_OK;
    }
    const char *rest = text;
    if (strncmp(text, "scale=", 6) == 0) {
        scale = lvni_core_strtod(text + 6, (char **)(uintptr_t)&rest);
    }
    const int n = sscanf(rest, " clean=%lld skipped=%lld in_a_row=%d%n in_epoch=%lld%n", &clean,
                         &skipped, &in_a_row, &end, &in_epoch, &longer);
    end = n == 4 ? longer : end; /* early files do not count the epoch's */
    if (n < 3 || in_epoch < 0 || in_epoch > skipped || rest[end] != '\0' ||
        !(scale >= LVN_SCALER_LEAST && isfinite(scale)) || clean < 0 ||
        clean >= LVN_SCALER_GROWTH || skipped < 0 || in_a_row < 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "the state of the loss scale is '%s'", text);
    }
    s->skipped = skipped; /* in every precision: the schedule counts without them */
    if (s->on) {
        s->scale = scale;
        s->clean = clean;
        s->in_a_row = in_a_row;
        s->in_epoch = in_epoch;
    }
    return LVN_OK;
}
