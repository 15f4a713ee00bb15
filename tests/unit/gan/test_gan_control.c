/* The rule of std_mult, the sign of samples that ignore the noise, and the best epoch. */
#include "recipes/gan/gan_control.h"
#include "support/test.h"

#include <math.h>

static const lvni_gan_rule rule = {.target = 2.5, .step = 0.02, .tolerance = 0.25};

static void near(double have, double want, double tolerance)
{
    if (!(fabs(have - want) <= tolerance)) {
        fail_msg("%.17g, expected %.17g", have, want);
    }
}

TEST(the_gain_of_averaging)
{
    static const double want[][2] = {{1, 0.0}, {2, 1.249}, {4, 2.041}, {8, 2.499}, {32, 2.877}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        near(lvni_gan_gain((int)want[i][0]), want[i][1], 5e-4);
    }
}

TEST(std_mult_follows_the_gain)
{
    lvni_gan_control c = {.std_mult = 1.0};
    lvni_gan_control_update(&c, &rule, 20.0, 22.0);
    near(c.d, 0.5, 1e-12);
    near(c.std_mult, 1.01, 1e-12);
    assert_false(c.is_good);
    lvni_gan_control_update(&c, &rule, 20.0, 22.3);
    near(c.d, 0.2, 1e-12);
    near(c.std_mult, 1.014, 1e-12);
    assert_true(c.is_good);
    lvni_gan_control_update(&c, &rule, 0.0, 100.0);
    near(c.std_mult, 1.014 - 0.02 * 97.5, 1e-12); /* negative, not clamped */
    const double before = c.std_mult;
    lvni_gan_control_update(&c, &rule, 20.0, (double)INFINITY);
    near(c.std_mult, before, 0.0);
    assert_false(c.is_good);
    lvni_gan_control_update(&c, &rule, (double)NAN, 20.0);
    near(c.std_mult, before, 0.0);
    assert_false(c.is_good);
}

TEST(three_epochs_without_a_gain)
{
    lvni_gan_control c = {.std_mult = 1.0};
    static const double gains[] = {0.0, 5e-4, 2e-3, 0.0, -5e-4, 0.0, 0.0, 0.5};
    static const bool want[] = {false, false, false, false, false, true, true, false};
    for (size_t i = 0; i < sizeof gains / sizeof *gains; i++) {
        lvni_gan_control_update(&c, &rule, 20.0, 20.0 + gains[i]);
        assert_int_equal(lvni_gan_control_ignores_noise(&c), want[i]);
    }
}
