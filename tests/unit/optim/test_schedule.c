/* Schedules against PyTorch over 60 steps, the plateau over 60 validations, and curves of numbers.
 */
#include "optim/schedule.h"
#include "support/test.h"

#include "schedule_golden.h"

#include <math.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Both sides round a few operations of f64; PyTorch's recursions, one more per step. */
static bool close_to(double have, double want)
{
    return fabs(have - want) <= 1e-12 * fmax(1e-3, fabs(want));
}

TEST(follow_pytorch)
{
    for (size_t c = 0; c < COUNT(schedule_cases); c++) {
        const schedule_case *row = &schedule_cases[c];
        for (int t = 0; t < GOLDEN_STEPS; t++) {
            const double factor = lvni_optim_schedule_factor(&row->schedule, t),
                         momentum = lvni_optim_schedule_momentum(&row->schedule, t);
            if (!close_to(factor, row->factor[t]) || !close_to(momentum, row->momentum[t])) {
                fail_msg("%s, step %d: %.17g and %.17g, expected %.17g and %.17g", row->name, t,
                         factor, momentum, row->factor[t], row->momentum[t]);
            }
        }
    }
}

TEST(plateaus_follow_pytorch)
{
    for (size_t c = 0; c < COUNT(plateau_cases); c++) {
        const plateau_case *row = &plateau_cases[c];
        lvni_optim_plateau p;
        lvni_optim_plateau_begin(&p);
        for (int t = 0; t < GOLDEN_STEPS; t++) {
            const double before = p.factor;
            const bool fell = lvni_optim_plateau_follow(&p, &row->options, row->lr, metrics[t]);
            assert_true(fell == (p.factor < before));
            if (!close_to(row->lr * p.factor, row->rate[t])) {
                fail_msg("%s, validation %d: %.17g, expected %.17g", row->name, t,
                         row->lr * p.factor, row->rate[t]);
            }
        }
        assert_true(p.factor < 1.0);
    }
}

/* As PyTorch, which compares with NaN: it is never better. */
TEST(a_metric_without_a_number_counts_as_worse)
{
    const lvni_optim_plateau_options o = {.factor = 0.5, .patience = 1};
    lvni_optim_plateau p;
    lvni_optim_plateau_begin(&p);
    assert_false(lvni_optim_plateau_follow(&p, &o, 1.0, (double)NAN));
    assert_true(lvni_optim_plateau_follow(&p, &o, 1.0, (double)NAN));
    assert_true(p.factor == 0.5 && isnan(p.best));
    assert_false(lvni_optim_plateau_follow(&p, &o, 1.0, 3.0));
    assert_true(p.best == 3.0);
}

TEST(past_the_end)
{
    const lvni_optim_schedule once = {.kind = LVNI_SCHEDULE_ONECYCLE,
                                      .total_steps = 10,
                                      .cycle = {.rise = 0.05, .start = 0.04, .end = 0.001}};
    assert_true(lvni_optim_schedule_factor(&once, 0) < 1.0); /* the rise has no step of its own */
    assert_true(fabs(lvni_optim_schedule_factor(&once, 9) - 0.001) < 1e-15);
    assert_true(lvni_optim_schedule_factor(&once, 1000) == lvni_optim_schedule_factor(&once, 9));
    const lvni_optim_schedule growing = {
        .kind = LVNI_SCHEDULE_RESTARTS, .step_size = INT64_MAX / 3, .period_factor = 1000};
    assert_true(lvni_optim_schedule_factor(&growing, INT64_MAX / 2) <= 1.0);
}

TEST(curves)
{
    const lvni_optim_curve line = {LVNI_CURVE_LINEAR, 0.04, 0.07, 30},
                           wave = {LVNI_CURVE_COSINE, 0.996, 1.0, 101}, flat = {.from = 0.5},
                           one = {LVNI_CURVE_COSINE, 0.1, 0.2, 1};
    const struct {
        const lvni_optim_curve *curve;
        int64_t t;
        double value;
    } rows[] = {{&line, 0, 0.04},     {&line, 10, 0.05}, {&line, 29, 0.069}, {&line, 30, 0.07},
                {&line, 1000, 0.07},  {&wave, 0, 0.996}, {&wave, 50, 0.998}, {&wave, 100, 1.0},
                {&wave, 100000, 1.0}, {&flat, 0, 0.5},   {&flat, 7, 0.5},    {&one, 0, 0.2}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        const double have = lvni_optim_curve_at(rows[i].curve, rows[i].t);
        if (!(fabs(have - rows[i].value) <= 1e-15)) {
            fail_msg("row %d: %.17g, expected %.17g", (int)i, have, rows[i].value);
        }
    }
    assert_true(fabs(lvni_optim_curve_at(&wave, 25) - (1.0 - 0.004 * (1.0 + sqrt(0.5)) / 2.0)) <
                1e-15);
}
