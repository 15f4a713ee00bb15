/* The learning-rate range test: its smoothing, and what it suggests of curves whose steepest fall
 * is known. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "recipes/range_test.h"

#include <math.h>

enum { STEPS = 200 };

static lvni_recipes_range_point point[STEPS];

static lvni_recipes_range_test make(bool linear)
{
    return (lvni_recipes_range_test){.min_lr = 1e-8,
                                     .max_lr = 1.0,
                                     .steps = STEPS,
                                     .linear = linear,
                                     .stop_above = 4.0,
                                     .point = point};
}

/* Falls from 3 to 1, most steeply at this rate, by as much on either side. */
static double curve(double lr, double at)
{
    return 2.0 - tanh(log10(lr / at));
}

static void the_mean_of_equal_losses_is_the_loss(void **state)
{
    (void)state;
    lvni_recipes_range_test t = make(false);
    while (t.n < STEPS) {
        assert_true(lvni_recipes_range_add(&t, 2.5));
        assert_true(fabs(t.point[t.n - 1].smoothed - 2.5) < 1e-12);
    }
    /* weights 1 and 0.98 */
    t = make(false);
    lvni_recipes_range_add(&t, 1.0);
    lvni_recipes_range_add(&t, 3.0);
    assert_true(fabs(t.point[1].smoothed - (3.0 + 0.98) / 1.98) < 1e-12);
}

static void the_steepest_fall_is_over_the_logarithm_of_the_rate(void **state)
{
    (void)state;
    static const double places[] = {1e-6, 1e-4, 1e-2};
    for (int i = 0; i < 3; i++) {
        lvni_recipes_range_test t = make(false);
        for (; t.n < STEPS; t.n++) {
            const double lr = lvni_recipes_range_lr(&t, t.n);
            point[t.n] = (lvni_recipes_range_point){.lr = lr, .smoothed = curve(lr, places[i])};
        }
        const double found = point[lvni_recipes_range_suggest(&t)].lr;
        assert_true(fabs(log10(found / places[i])) <= 0.5 * 8.0 / STEPS + 1e-9);
    }
    /* of uneven differences, too */
    lvni_recipes_range_test t = make(true);
    for (; t.n < STEPS; t.n++) {
        const double lr = lvni_recipes_range_lr(&t, t.n);
        point[t.n] = (lvni_recipes_range_point){.lr = lr, .smoothed = curve(lr, 0.3)};
    }
    assert_true(fabs(point[lvni_recipes_range_suggest(&t)].lr - 0.3) < 1.0 / STEPS);
}

/* A little fall among the smallest rates is not the steepest. */
static void a_little_fall_at_small_rates_does_not_count(void **state)
{
    (void)state;
    lvni_recipes_range_test t = make(false);
    for (; t.n < STEPS; t.n++) {
        const double lr = lvni_recipes_range_lr(&t, t.n);
        point[t.n] = (lvni_recipes_range_point){
            .lr = lr, .smoothed = curve(lr, 1e-2) + (t.n < 20 ? 0.001 : 0.0)};
    }
    const double found = point[lvni_recipes_range_suggest(&t)].lr;
    assert_true(found > 5e-3 && found < 2e-2);
}

static void too_few_points_suggest_nothing(void **state)
{
    (void)state;
    lvni_recipes_range_test t = make(false);
    while (t.n < LVNI_RANGE_LEAST - 1) {
        assert_true(lvni_recipes_range_add(&t, 1.0));
    }
    assert_int_equal(lvni_recipes_range_suggest(&t), -1);
    lvni_recipes_range_add(&t, 0.5);
    assert_int_equal(lvni_recipes_range_suggest(&t), LVNI_RANGE_SKIP_FIRST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mean_of_equal_losses_is_the_loss),
        cmocka_unit_test(the_steepest_fall_is_over_the_logarithm_of_the_rate),
        cmocka_unit_test(a_little_fall_at_small_rates_does_not_count),
        cmocka_unit_test(too_few_points_suggest_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
