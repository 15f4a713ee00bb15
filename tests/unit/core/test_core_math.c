/* The scalar functions in double precision (core/math.h) against libm, and pow's special values. */
#include "core/math.h"
#include "support/test.h"

#include <float.h>
#include <math.h>

/* Largest distance in units in the last place over n points from a to b. */
static double worst(double (*f)(double), double (*exact)(double), double a, double b, int n)
{
    double bad = 0.0;
    for (int i = 0; i <= n; i++) {
        const double x = a + (b - a) * i / n, want = exact(x);
        int exponent;
        frexp(want, &exponent);
        bad = fmax(bad, fabs(f(x) - want) / ldexp(1.0, exponent - 53));
    }
    return bad;
}

TEST(functions_are_as_exact_as_promised)
{
    assert_true(worst(lvni_core_exp, exp, -700.0, 700.0, 20011) < 2.0);
    assert_true(worst(lvni_core_log, log, 0.01, 30.0, 20011) < 2.0);
    assert_true(worst(lvni_core_tanh, tanh, -20.0, 20.0, 20011) < 3.0);
    assert_true(worst(lvni_core_sin, sin, -30.0, 30.0, 20011) < 2.1);
    assert_true(worst(lvni_core_cos, cos, -30.0, 30.0, 20011) < 2.1);
    assert_true(worst(lvni_core_sin, sin, -1e300, 1e308, 20011) < 2.1);
    assert_true(worst(lvni_core_cos, cos, 0.0, 1e19, 20011) < 2.1);
    /* the rounding of x^2 below 2 */
    assert_true(worst(lvni_core_erf, erf, -7.0, 7.0, 20011) < 12.0);
    /* e^(-x^2): the rounding of x^2 counts x^2 times */
    assert_true(worst(lvni_core_erfc, erfc, 2.0, 26.0, 20011) < 900.0);
}

TEST(pow_keeps_its_digits_for_large_exponents)
{
    double bad = 0.0;
    for (int i = 1; i < 4000; i++) {
        const double x = 1e-3 * i, y = 0.7 * (i % 173) - 60.3, want = pow(x, y);
        if (want > 1e-300 && want < 1e300) {
            bad = fmax(bad, fabs(lvni_core_pow(x, y) / want - 1.0));
        }
    }
    assert_true(bad < 6e-16 && bad > 0.0);
    assert_true(fabs(lvni_core_pow(0.999, 700000.0) / pow(0.999, 700000.0) - 1.0) < 6e-16);
}

/* x^y and libm's within a unit in the last place over everything that is a normal number: next to
 * the largest and the smallest ones, and with exponents of any size. */
TEST(pow_keeps_its_digits_at_the_ends)
{
    static const double ends[] = {DBL_MAX, DBL_MAX * (1.0 - 0x1p-50), 1.7e308, DBL_MIN, 3e-308,
                                  1e-290};
    double bad = 0.0;
    for (int i = 0; i < 20000; i++) {
        const double part = (i * 7919 % 20000 + 0.5) / 20000.0, wide = 1420.0 * part - 710.0;
        const double base[] = {ends[i % 6], exp(part * 2.0 - 1.0), 1.0 + (part - 0.4) * 1e-9,
                               1.0 - 0x1p-53};
        for (int k = 0; k < 4; k++) {
            const double x = base[k],
                         y = k == 0 ? (i / 6 % 2 == 0 ? 1.0 : 1.0 - part * 0.05) : wide / log(x);
            const double want = pow(x, y), got = lvni_core_pow(x, y);
            if (want >= DBL_MIN && want <= DBL_MAX) {
                bad = fmax(bad, fabs(got - want) / ldexp(1.0, ilogb(want) - 52));
            } else {
                assert_true(want > 1.0 ? got == want : got <= DBL_MIN);
            }
        }
    }
    assert_true(bad <= 1.0);
    assert_true(lvni_core_pow(-1.0, 1e300) == 1.0 && lvni_core_pow(-1.0, -DBL_MAX) == 1.0);
    assert_true(lvni_core_pow(-DBL_MAX, 1.0) == -DBL_MAX);
    assert_true(isinf(lvni_core_pow(DBL_MAX, 1.0000001)));
    assert_true(lvni_core_exp(0x1.62e42fefa39efp+9) <= DBL_MAX); /* the largest that has one */
    assert_true(isinf(lvni_core_exp(0x1.62e42fefa39f0p+9)));
}

TEST(log1p_keeps_what_1_would_hide)
{
    assert_true(worst(lvni_core_log1p, log1p, 1e-9, 1.0, 20011) < 4.0);
    assert_true(worst(lvni_core_log1p, log1p, -0.9, 0.0, 20011) < 4.0);
    assert_true(worst(lvni_core_log1p, log1p, 1e-300, 1e-8, 20011) < 4.0);
    assert_true(isinf(lvni_core_log1p(INFINITY)) && isnan(lvni_core_log1p((double)NAN)));
}

/* C11 F.10.4.4, signs of zeros included. */
TEST(pow_has_the_special_values_of_c)
{
    static const double values[] = {
        0.0,      -0.0,      1.0,        -1.0, 2.0,   -2.0,   3.0,
        -3.0,     0.5,       -0.5,       -1.5, 1e300, -1e300, 9007199254740993.0,
        INFINITY, -INFINITY, (double)NAN};
    const int n = (int)(sizeof values / sizeof *values);
    for (int i = 0; i < n * n; i++) {
        const double x = values[i / n], y = values[i % n], want = pow(x, y),
                     got = lvni_core_pow(x, y);
        const bool same = (isnan(want) && isnan(got)) ||
                          (want == got && signbit(want) == signbit(got)) ||
                          fabs(got / want - 1.0) < 1e-15;
        if (!same) {
            fail_msg("pow(%g, %g) is %g, must be %g", x, y, got, want);
        }
    }
}

TEST(edges)
{
    /* the double next to a multiple of pi / 2, and what has no sine */
    const double next = 6381956970095103.0 * 0x1p797;
    assert_true(fabs(lvni_core_cos(next) / cos(next) - 1.0) < 1e-15);
    assert_true(isnan(lvni_core_sin(INFINITY)) && isnan(lvni_core_cos((double)NAN)) &&
                signbit(lvni_core_sin(-0.0)));
    assert_true(lvni_core_tanh(INFINITY) == 1.0 && lvni_core_tanh(-INFINITY) == -1.0 &&
                isnan(lvni_core_tanh((double)NAN)));
    assert_true(lvni_core_erf(INFINITY) == 1.0 && lvni_core_erf(-INFINITY) == -1.0 &&
                isnan(lvni_core_erf((double)NAN)));
    assert_true(lvni_core_erfc(INFINITY) == 0.0 && lvni_core_erfc(-INFINITY) == 2.0);
}
