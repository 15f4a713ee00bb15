/* The learning-rate range test: its rates, its smoothing, and what it finds in curves whose descent
 * is known, in noise alone, and in noise that grows with the rate. */
#include "tune/range_test.h"
#include "support/test.h"

#include <math.h>

enum { STEPS = 200, MOST = 400 };

static lvni_tune_range_point point[MOST];

static lvni_tune_range_test make(bool linear)
{
    return (lvni_tune_range_test){.min_lr = 1e-6,
                                  .max_lr = 1.0,
                                  .steps = STEPS,
                                  .linear = linear,
                                  .stop_above = 4.0,
                                  .point = point};
}

static uint64_t state_of_draw;

/* Of deviation 1, nearly normal: 12 uniform numbers (Knuth's MMIX constants). */
static double draw(void)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++) {
        state_of_draw = state_of_draw * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(state_of_draw >> 11) * 0x1p-53;
    }
    return sum;
}

/* From 2 down to 1 between two powers of ten, and behind the second up again. */
static double curve(double lr, double from, double to)
{
    const double x = log10(lr);
    return x < from ? 2.0 : x < to ? 2.0 - (x - from) / (to - from) : 1.0 + 2.0 * (x - to);
}

static lvni_tune_range_answer find(lvni_tune_range_test *t)
{
    assert_true(lvni_tune_range_fit(t));
    return lvni_tune_range_find(t);
}

TEST(all_gaps_of_the_rates_are_as_long)
{
    lvni_tune_range_test t = make(false);
    const double factor = pow(1e6, 1.0 / (STEPS - 1));
    assert_true(lvni_tune_range_lr(&t, 0) == 1e-6);
    assert_true(fabs(lvni_tune_range_lr(&t, STEPS - 1) - 1.0) < 1e-12);
    for (int i = 1; i < STEPS; i++) {
        const double gap = lvni_tune_range_lr(&t, i) / lvni_tune_range_lr(&t, i - 1);
        assert_true(fabs(gap / factor - 1.0) < 1e-9);
    }
    t = make(true);
    for (int i = 1; i < STEPS; i++) {
        const double gap = lvni_tune_range_lr(&t, i) - lvni_tune_range_lr(&t, i - 1);
        assert_true(fabs(gap - (1.0 - 1e-6) / (STEPS - 1)) < 1e-12);
    }
}

TEST(smoothing_has_no_lag_and_no_warm_up)
{
    for (int sign = -1; sign <= 1; sign += 2) { /* the second: of logarithms */
        lvni_tune_range_test t = make(false);
        while (t.n < STEPS) {
            const double line = 0.01 * t.n - 4.0;
            lvni_tune_range_add(&t, sign < 0 ? line : exp(line) - 1e-3 * exp(-4.0));
        }
        assert_true(lvni_tune_range_fit(&t));
        for (int i = 0; i < t.n; i++) {
            const double loss = point[i].loss;
            assert_true(fabs(point[i].smoothed / loss - 1.0) < (sign < 0 ? 1e-9 : 1e-4));
        }
    }
}

TEST(the_suggestion_lies_within_the_descent)
{
    static const double ways[][2] = {{-5, -3}, {-4, -1.5}, {-2.5, -1}};
    for (int i = 0; i < 3; i++) {
        for (int noise = 0; noise <= 2; noise++) {
            lvni_tune_range_test t = make(false);
            state_of_draw = (uint64_t)i + 1;
            while (t.n < STEPS) {
                lvni_tune_range_add(&t, curve(lvni_tune_range_lr(&t, t.n), ways[i][0], ways[i][1]) +
                                            0.1 * noise * draw());
            }
            const lvni_tune_range_answer a = find(&t);
            assert_true(a.suggested > a.begin && a.suggested < a.end);
            const double part =
                (log10(point[a.suggested].lr) - ways[i][0]) / (ways[i][1] - ways[i][0]);
            assert_true(part > 0.35 && part < 0.85);
        }
    }
}

/* In a fall that begins at the first rates, and over uneven distances, too. */
TEST(a_linear_test_has_a_suggestion)
{
    lvni_tune_range_test t = make(true);
    state_of_draw = 1;
    while (t.n < STEPS) {
        const double lr = lvni_tune_range_lr(&t, t.n);
        lvni_tune_range_add(&t, 1.0 + 8.0 * (lr - 0.5) * (lr - 0.5) + 0.05 * draw());
    }
    const lvni_tune_range_answer a = find(&t);
    assert_true(a.suggested >= 0 && point[a.suggested].lr < 0.5);
}

TEST(noise_has_no_descent)
{
    static const int lengths[] = {50, 100, 200, MOST};
    int found = 0;
    for (int i = 0; i < 4; i++) {
        for (int seed = 1; seed <= 100; seed++) {
            lvni_tune_range_test t = make(false);
            t.steps = lengths[i];
            state_of_draw = (uint64_t)seed;
            while (t.n < t.steps) {
                lvni_tune_range_add(&t, 2.0 + 0.2 * draw());
            }
            found += find(&t).suggested >= 0;
        }
    }
    assert_in_range(found, 0, 8);
}

/* Where large rates throw the loss about, a low stretch among them is not a minimum. */
TEST(noise_of_large_rates_does_not_move_the_suggestion)
{
    int far = 0;
    for (int seed = 1; seed <= 20; seed++) {
        lvni_tune_range_test t = make(false);
        state_of_draw = (uint64_t)seed;
        while (t.n < STEPS) {
            const double lr = lvni_tune_range_lr(&t, t.n), x = log10(lr);
            const double even = x < -4.0 ? 2.0 : x < -2.0 ? 1.0 - 0.5 * x - 1.0 : 1.0;
            lvni_tune_range_add(&t, even + (x < -2.0 ? 0.05 : 0.4) * draw());
        }
        const lvni_tune_range_answer a = find(&t);
        assert_true(a.suggested >= 0);
        const double found = log10(point[a.suggested].lr);
        assert_true(found > -3.6);
        far += found > -1.6;
    }
    assert_in_range(far, 0, 2);
}

/* A loss that falls by powers of ten falls to the end of these. */
TEST(falls_count_by_their_part_of_the_loss)
{
    lvni_tune_range_test t = make(false);
    while (t.n < STEPS) {
        const double x = log10(lvni_tune_range_lr(&t, t.n));
        lvni_tune_range_add(&t, x < -5.0 ? 1.0 : x < -3.0 ? pow(10.0, -x - 5.0) : 0.01);
    }
    const lvni_tune_range_answer a = find(&t);
    assert_true(a.suggested >= 0 && log10(point[a.suggested].lr) > -4.05);
    assert_false(a.open);
}

TEST(losses_below_zero_do_not_end_a_test)
{
    lvni_tune_range_test t = make(false);
    while (t.n < STEPS) {
        assert_true(lvni_tune_range_add(&t, curve(lvni_tune_range_lr(&t, t.n), -4, 0) - 9));
    }
    const lvni_tune_range_answer a = find(&t);
    assert_true(a.suggested >= 0);
    assert_true(a.open); /* the last rate has the lowest loss */
}

TEST(it_ends_where_the_loss_rises)
{
    lvni_tune_range_test t = make(false);
    for (int i = 0; i < 20; i++) {
        assert_true(lvni_tune_range_add(&t, 1.0));
    }
    int more = 0;
    while (lvni_tune_range_add(&t, 8.0)) {
        more++;
    }
    assert_in_range(more, 5, 15); /* 1 + 7 (1 - 0.95^n) > 4 from the 11th on, nearly */
    t = make(false);
    assert_true(lvni_tune_range_add(&t, 1.0));
    assert_false(lvni_tune_range_add(&t, (double)INFINITY));
}

TEST(too_few_points_suggest_nothing)
{
    lvni_tune_range_test t = make(false);
    t.steps = LVNI_RANGE_LEAST;
    while (t.n < LVNI_RANGE_LEAST - 1) {
        assert_true(lvni_tune_range_add(&t, 1.0));
    }
    assert_false(lvni_tune_range_fit(&t));
    lvni_tune_range_add(&t, (double)NAN); /* not one more */
    assert_false(lvni_tune_range_fit(&t));
    t.n--;
    lvni_tune_range_add(&t, 1.0);
    assert_int_equal(find(&t).suggested, -1); /* nor a fall */
}
