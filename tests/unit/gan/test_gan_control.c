/* The rule of std_mult, the sign of samples that ignore the noise, and the best epoch. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "recipes/gan/gan_control.h"

#include <math.h>

static const lvni_gan_rule rule = {.target = 2.5, .step = 0.02, .tolerance = 0.25};

static void near(double have, double want, double tolerance)
{
    if (!(fabs(have - want) <= tolerance)) {
        fail_msg("%.17g, expected %.17g", have, want);
    }
}

static void the_gain_of_averaging(void **state)
{
    (void)state;
    static const double want[][2] = {{1, 0.0}, {2, 1.249}, {4, 2.041}, {8, 2.499}, {32, 2.877}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        near(lvni_gan_gain((int)want[i][0]), want[i][1], 5e-4);
    }
}

static void std_mult_follows_the_gain(void **state)
{
    (void)state;
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

static void three_epochs_without_a_gain(void **state)
{
    (void)state;
    lvni_gan_control c = {.std_mult = 1.0};
    static const double gains[] = {0.0, 5e-4, 2e-3, 0.0, -5e-4, 0.0, 0.0, 0.5};
    static const bool want[] = {false, false, false, false, false, true, true, false};
    for (size_t i = 0; i < sizeof gains / sizeof *gains; i++) {
        lvni_gan_control_update(&c, &rule, 20.0, 20.0 + gains[i]);
        assert_int_equal(lvni_gan_control_ignores_noise(&c), want[i]);
    }
}

static void the_best_epoch(void **state)
{
    (void)state;
    const lvni_gan_epoch e[] = {{10, 1.5, 0.9, false},
                                {11, 3.0, 0.2, true},
                                {12, 2.0, -0.24, true},
                                {13, (double)NAN, 0.01, true},
                                {14, 2.0, 0.1, true}};
    lvni_gan_choice c = lvni_gan_choose(e, 5);
    assert_int_equal(c.best, 2);
    assert_int_equal(c.closest, 3);
    const lvni_gan_epoch bad[] = {{4, 1.0, 0.9, false}, {5, 2.0, -0.4, false}};
    lvni_core_str text = {0};
    lvni_gan_choice_print(bad, 2, "cfid", &text);
    assert_string_equal(lvni_core_str_text(&text),
                        "  epoch          cfid  psnr_diff  acceptable\n"
                        "      4             1     0.9000  no\n"
                        "      5             2    -0.4000  no\n"
                        "no epoch is acceptable; closest: epoch 5, 0.4000 dB from the target\n");
    lvni_core_str_clear(&text);
    lvni_gan_choice_print(e + 2, 1, "rmse", &text);
    assert_string_equal(lvni_core_str_text(&text), "  epoch          rmse  psnr_diff  acceptable\n"
                                                   "*    12             2    -0.2400  yes\n"
                                                   "best: epoch 12\n");
    lvni_core_str_clear(&text);
    const lvni_gan_epoch unknown[] = {{7, (double)NAN, (double)NAN, false}};
    lvni_gan_choice_print(unknown, 1, "rmse", &text);
    assert_string_equal(lvni_core_str_text(&text), "  epoch          rmse  psnr_diff  acceptable\n"
                                                   "      7             -          -  no\n"
                                                   "no epoch is acceptable\n");
    lvni_core_str_clear(&text);
    lvni_gan_choice_json(unknown, 1, "rmse", &text);
    assert_string_equal(lvni_core_str_text(&text),
                        "\"epochs\": [{\"epoch\": 7, \"rmse\": null, \"psnr_diff\": null, "
                        "\"acceptable\": false}], \"best\": null, \"closest\": null");
    lvni_core_str_clear(&text);
    lvni_gan_choice_json(e + 2, 1, "cfid", &text);
    assert_string_equal(lvni_core_str_text(&text),
                        "\"epochs\": [{\"epoch\": 12, \"cfid\": 2, \"psnr_diff\": -0.24, "
                        "\"acceptable\": true}], \"best\": 12, \"closest\": 12");
    lvni_core_str_clear(&text);
    lvni_gan_choice_print(e, 0, "rmse", &text);
    assert_string_equal(lvni_core_str_text(&text),
                        "  epoch          rmse  psnr_diff  acceptable\nno epoch is acceptable\n");
    lvni_core_str_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gain_of_averaging),
        cmocka_unit_test(std_mult_follows_the_gain),
        cmocka_unit_test(three_epochs_without_a_gain),
        cmocka_unit_test(the_best_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
