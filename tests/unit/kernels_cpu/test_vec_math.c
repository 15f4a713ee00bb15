/* exp and log of the vector kernels against libm in double precision, and their edges. The bounds are what
 * tpl_math.h promises. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/cpu/isa.h"
#include "tensor/ctx.h"

#include <math.h>
#include <string.h>

enum { BATCH = 4096 };

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Distance in units in the last place of the exact result. */
static double ulps(float got, double exact)
{
    int exponent;
    frexp(exact, &exponent);
    return fabs((double)got - exact) / ldexp(1.0, exponent - 24);
}

/* The largest error over every stride-th float in [first, last] (bit patterns). */
static double worst(lvni_unary_id id, double (*exact)(double), uint32_t first, uint32_t last, uint32_t stride)
{
    float x[BATCH], y[BATCH];
    double bad = 0.0;
    uint64_t u = first;
    while (u <= last) {
        int n = 0;
        for (; n < BATCH && u <= last; n++, u += stride) {
            x[n] = from_bits((uint32_t)u);
        }
        lvni_cpu_isa()->unary[id](x, y, n, 0.0f, 0.0f);
        for (int i = 0; i < n; i++) {
            const double want = exact((double)x[i]);
            if (fabs(want) >= 0x1p-126) {
                bad = fmax(bad, ulps(y[i], want));
            } else {
                assert_true(y[i] == 0.0f || y[i] == 0x1p-126f);
            }
        }
    }
    return bad;
}

static void exp_is_as_exact_as_promised(void **state)
{
    (void)state;
    const double positive = worst(LVNI_UNARY_EXP, exp, 0x00800000u, 0x42b17217u, 509); /* to 88.7228 */
    const double negative = worst(LVNI_UNARY_EXP, exp, 0x80800000u, 0xc2d00000u, 509); /* to -104 */
    print_message("exp: %.3f ulp above 0, %.3f below\n", positive, negative);
    assert_true(positive < 1.03 && negative < 1.03);
    assert_true(positive > 0.4); /* the measure itself works: rounding alone gives half an ulp */
}

static void log_is_as_exact_as_promised(void **state)
{
    (void)state;
    const double all = worst(LVNI_UNARY_LOG, log, 0x00800000u, 0x7f7fffffu, 1021);
    const double near = worst(LVNI_UNARY_LOG, log, 0x3f000000u, 0x40000000u, 17);
    print_message("log: %.3f ulp over all, %.3f between 0.5 and 2\n", all, near);
    assert_true(all < 0.84 && near < 0.84 && all > 0.4);
}

static float one(lvni_unary_id id, float x)
{
    float in[17], out[17];
    for (int i = 0; i < 17; i++) { /* a whole vector and a tail */
        in[i] = x;
    }
    lvni_cpu_isa()->unary[id](in, out, 17, 0.0f, 0.0f);
    assert_memory_equal(&out[0], &out[16], sizeof(float));
    return out[0];
}

static void edges(void **state)
{
    (void)state;
    assert_true(one(LVNI_UNARY_EXP, 0.0f) == 1.0f);
    assert_true(one(LVNI_UNARY_EXP, -INFINITY) == 0.0f);
    assert_true(one(LVNI_UNARY_EXP, -200.0f) == 0.0f);
    assert_true(one(LVNI_UNARY_EXP, -88.0f) == 0.0f); /* e^-88 is denormal: flushed */
    assert_true(isinf(one(LVNI_UNARY_EXP, INFINITY)));
    assert_true(isinf(one(LVNI_UNARY_EXP, 88.73f)));
    assert_true(isfinite(one(LVNI_UNARY_EXP, 88.72f)));
    assert_true(isnan(one(LVNI_UNARY_EXP, NAN)));
    assert_true(one(LVNI_UNARY_LOG, 1.0f) == 0.0f);
    assert_true(one(LVNI_UNARY_LOG, 0.0f) == -INFINITY);
    assert_true(one(LVNI_UNARY_LOG, -0.0f) == -INFINITY);
    assert_true(one(LVNI_UNARY_LOG, INFINITY) == INFINITY);
    assert_true(isnan(one(LVNI_UNARY_LOG, -1.0f)));
    assert_true(isnan(one(LVNI_UNARY_LOG, NAN)));
    assert_true(isnan(one(LVNI_UNARY_LOG, -INFINITY)));
    assert_true(isnan(one(LVNI_UNARY_RELU, NAN)));
    assert_true(one(LVNI_UNARY_RELU, -INFINITY) == 0.0f);
    assert_true(isnan(one(LVNI_UNARY_SQRT, -1.0f)));
    assert_true(one(LVNI_UNARY_SQRT, 9.0f) == 3.0f);
}

static int setup(void **state)
{
    (void)state;
    return lvni_ctx_get() == NULL ? -1 : 0; /* flushes denormals, as in every thread that computes */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_as_exact_as_promised),
        cmocka_unit_test(log_is_as_exact_as_promised),
        cmocka_unit_test(edges),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
