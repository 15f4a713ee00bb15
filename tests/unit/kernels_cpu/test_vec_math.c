/* exp, log, sin, cos, tanh, erf, pow of the vector kernels against libm in double precision, and
 * their edges. The bounds are what tpl_math.h and tpl_curves.h promise. Normal random numbers
 * against core/rng.h. */
#include "kernels/cpu/isa.h"
#include "tensor/ctx.h"
#include "support/test.h"

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
static double worst(lvni_cpu_unary_id id, double (*exact)(double), uint32_t first, uint32_t last,
                    uint32_t stride)
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

TEST(exp_is_as_exact_as_promised)
{
    /* to 88.7228 */
    const double positive = worst(LVNI_UNARY_exp, exp, 0x00800000u, 0x42b17217u, 509);
    const double negative = worst(LVNI_UNARY_exp, exp, 0x80800000u, 0xc2d00000u, 509); /* to -104 */
    print_message("exp: %.3f ulp above 0, %.3f below\n", positive, negative);
    assert_true(positive < 1.03 && negative < 1.03);
    assert_true(positive > 0.4); /* the measure itself works: rounding alone gives half an ulp */
}

TEST(log_is_as_exact_as_promised)
{
    const double all = worst(LVNI_UNARY_log, log, 0x00800000u, 0x7f7fffffu, 1021);
    const double near = worst(LVNI_UNARY_log, log, 0x3f000000u, 0x40000000u, 17);
    print_message("log: %.3f ulp over all, %.3f between 0.5 and 2\n", all, near);
    assert_true(all < 0.84 && near < 0.84 && all > 0.4);
}

TEST(tanh_and_erf_are_as_exact_as_promised)
{
    const double tanh_all = worst(LVNI_UNARY_tanh, tanh, 0x00800000u, 0x41200000u, 307),
                 tanh_below = worst(LVNI_UNARY_tanh, tanh, 0xbe000000u, 0xc1200000u, 101);
    const double erf_all = worst(LVNI_UNARY_erf, erf, 0x00800000u, 0x40a00000u, 307),
                 erf_below = worst(LVNI_UNARY_erf, erf, 0xbe000000u, 0xc0a00000u, 101);
    print_message("tanh: %.3f ulp above 0, %.3f below; erf: %.3f, %.3f\n", tanh_all, tanh_below,
                  erf_all, erf_below);
    assert_true(tanh_all < 2.0 && tanh_below < 2.0 && tanh_all > 0.4);
    assert_true(erf_all < 2.0 && erf_below < 2.0 && erf_all > 0.4);
}

/* Of all sizes: from the smallest normal number to the largest. */
TEST(sin_and_cos_are_as_exact_as_promised)
{
    const double sin_all = worst(LVNI_UNARY_sin, sin, 0x00800000u, 0x7f7fffffu, 1021),
                 sin_below = worst(LVNI_UNARY_sin, sin, 0xbe000000u, 0xc6000000u, 101);
    const double cos_all = worst(LVNI_UNARY_cos, cos, 0x00800000u, 0x7f7fffffu, 1021),
                 cos_below = worst(LVNI_UNARY_cos, cos, 0xbe000000u, 0xc6000000u, 101);
    print_message("sin: %.3f ulp above 0, %.3f below; cos: %.3f, %.3f\n", sin_all, sin_below,
                  cos_all, cos_below);
    assert_true(sin_all < 1.6 && sin_below < 1.6 && sin_all > 0.4);
    assert_true(cos_all < 1.6 && cos_below < 1.6 && cos_all > 0.4);
}

static float power(float x, float y)
{
    float in[17], out[17];
    for (int i = 0; i < 17; i++) {
        in[i] = x;
    }
    lvni_cpu_isa()->unary[LVNI_UNARY_pow_scalar](in, out, 17, y, y);
    assert_memory_equal(&out[0], &out[16], sizeof(float));
    return out[0];
}

static double exponent; /* of the running test */

static double pow_of(double x)
{
    return pow(x, exponent);
}

TEST(pow_is_as_exact_as_promised)
{
    static const float exponents[] = {2.5f, -0.1f, 0.5f, 1e-3f, 7.0f, -3.0f, 37.3f};
    double bad = 0.0;
    for (size_t i = 0; i < sizeof exponents / sizeof *exponents; i++) {
        exponent = (double)exponents[i];
        float x[64], y[64];
        for (uint32_t u = 0x00800000u; u < 0x7f000000u; u += 64u * 99991u) {
            for (uint32_t k = 0; k < 64; k++) {
                x[k] = from_bits(u + k * 99991u);
            }
            lvni_cpu_isa()->unary[LVNI_UNARY_pow_scalar](x, y, 64, exponents[i], 0.0f);
            for (int k = 0; k < 64; k++) {
                const double want = pow_of((double)x[k]);
                if (want >= 0x1p-126 && want < 0x1.fffffep127) {
                    bad = fmax(bad, ulps(y[k], want));
                }
            }
        }
    }
    print_message("pow: %.4f ulp\n", bad);
    assert_true(bad < 0.52 && bad > 0.4);
}

/* Every pair of these as C's pow does it (C11 F.10.4.4), the sign of zeros included. */
TEST(pow_has_the_special_values_of_c)
{
    static const float values[] = {0.0f,   -0.0f,      1.0f,         -1.0f,       2.0f,
                                   -2.0f,  3.0f,       -3.0f,        0.5f,        -0.5f,
                                   -1.5f,  8388609.0f, -16777216.0f, 16777217.0f, 1e30f,
                                   -1e30f, INFINITY,   -INFINITY,    NAN};
    const size_t n = sizeof values / sizeof *values;
    for (size_t i = 0; i < n * n; i++) {
        const float x = values[i / n], y = values[i % n], want = powf(x, y), got = power(x, y);
        const bool same = (isnan(want) && isnan(got)) ||
                          (want == got && signbit(want) == signbit(got)) ||
                          fabsf(got - want) <= 1e-6f * fabsf(want) ||
                          (fabsf(want) < 0x1p-126f && got == 0.0f && signbit(want) == signbit(got));
        if (!same) {
            fail_msg("pow(%g, %g) is %g, must be %g", (double)x, (double)y, (double)got,
                     (double)want);
        }
    }
}

static float one(lvni_cpu_unary_id id, float x)
{
    float in[17], out[17];
    for (int i = 0; i < 17; i++) { /* a whole vector and a tail */
        in[i] = x;
    }
    lvni_cpu_isa()->unary[id](in, out, 17, 0.0f, 0.0f);
    assert_memory_equal(&out[0], &out[16], sizeof(float));
    return out[0];
}

TEST(edges)
{
    assert_true(one(LVNI_UNARY_exp, 0.0f) == 1.0f);
    assert_true(one(LVNI_UNARY_exp, -INFINITY) == 0.0f);
    assert_true(one(LVNI_UNARY_exp, -200.0f) == 0.0f);
    assert_true(one(LVNI_UNARY_exp, -88.0f) == 0.0f); /* e^-88 is denormal: flushed */
    assert_true(isinf(one(LVNI_UNARY_exp, INFINITY)));
    assert_true(isinf(one(LVNI_UNARY_exp, 88.73f)));
    assert_true(isfinite(one(LVNI_UNARY_exp, 88.72f)));
    assert_true(isnan(one(LVNI_UNARY_exp, NAN)));
    assert_true(one(LVNI_UNARY_log, 1.0f) == 0.0f);
    assert_true(one(LVNI_UNARY_log, 0.0f) == -INFINITY);
    assert_true(one(LVNI_UNARY_log, -0.0f) == -INFINITY);
    assert_true(one(LVNI_UNARY_log, INFINITY) == INFINITY);
    assert_true(isnan(one(LVNI_UNARY_log, -1.0f)));
    assert_true(isnan(one(LVNI_UNARY_log, NAN)));
    assert_true(isnan(one(LVNI_UNARY_log, -INFINITY)));
    assert_true(one(LVNI_UNARY_tanh, INFINITY) == 1.0f &&
                one(LVNI_UNARY_tanh, -INFINITY) == -1.0f && isnan(one(LVNI_UNARY_tanh, NAN)));
    assert_true(one(LVNI_UNARY_erf, INFINITY) == 1.0f && one(LVNI_UNARY_erf, -INFINITY) == -1.0f &&
                isnan(one(LVNI_UNARY_erf, NAN)));
    assert_true(signbit(one(LVNI_UNARY_tanh, -0.0f)) && signbit(one(LVNI_UNARY_erf, -0.0f)));
    assert_true(one(LVNI_UNARY_sigmoid, -1000.0f) == 0.0f &&
                one(LVNI_UNARY_sigmoid, 1000.0f) == 1.0f);
    assert_true(one(LVNI_UNARY_softplus, 1000.0f) == 1000.0f &&
                one(LVNI_UNARY_softplus, -1000.0f) == 0.0f);
    assert_true(one(LVNI_UNARY_gelu, 1e30f) == 1e30f && one(LVNI_UNARY_gelu, -1e30f) == 0.0f);
    assert_true(one(LVNI_UNARY_gelu_tanh, 1e30f) == 1e30f &&
                one(LVNI_UNARY_gelu_tanh, -1e30f) == 0.0f);
    assert_true(isnan(one(LVNI_UNARY_sin, INFINITY)) && isnan(one(LVNI_UNARY_cos, -INFINITY)) &&
                isnan(one(LVNI_UNARY_sin, NAN)));
    assert_true(signbit(one(LVNI_UNARY_sin, -0.0f)) && one(LVNI_UNARY_cos, 0.0f) == 1.0f);
    /* the float next to a multiple of pi / 2: 16367173 * 2^72 */
    assert_true(fabsf(one(LVNI_UNARY_cos, 16367173.0f * 0x1p72f) / -1.6147698e-9f - 1) < 1e-6f);
    assert_true(one(LVNI_UNARY_round, 0.5f) == 0.0f && one(LVNI_UNARY_round, 1.5f) == 2.0f &&
                one(LVNI_UNARY_round, 2.5f) == 2.0f && one(LVNI_UNARY_round, -2.5f) == -2.0f &&
                signbit(one(LVNI_UNARY_round, -0.25f)));
    assert_true(one(LVNI_UNARY_floor, -0.5f) == -1.0f && one(LVNI_UNARY_ceil, 0.5f) == 1.0f &&
                signbit(one(LVNI_UNARY_ceil, -0.5f)));
    assert_true(isnan(one(LVNI_UNARY_relu, NAN)));
    assert_true(one(LVNI_UNARY_relu, -INFINITY) == 0.0f);
    assert_true(isnan(one(LVNI_UNARY_sqrt, -1.0f)));
    assert_true(one(LVNI_UNARY_sqrt, 9.0f) == 3.0f);
}

/* On every instruction set up to this machine's best: those of core/rng.h, to the bit. */
TEST(normal_numbers_are_those_of_the_rng)
{
    static const lvni_cpu_vec *const tables[] = {&lvni_vec_v2, &lvni_vec_v3, &lvni_cpu_vec_v4};
    static const int64_t sizes[] = {1, 2, 127, 128, 129, BATCH};
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            const lvni_core_rng rng = {
                .key = lvni_core_rng_make_key(k, 77), .a = 3, .b = 1, .c = 2};
            const int64_t first = (int64_t)k * 1024;
            float y[BATCH];
            const double deviation = k % 2 == 0 ? 1.0 : 0.037;
            tables[i]->normal(y, first, sizes[k], deviation, &rng);
            for (int64_t e = 0; e < sizes[k]; e++) {
                assert_true(y[e] ==
                            (float)(lvni_core_rng_normal(&rng, (uint64_t)(first + e)) * deviation));
            }
        }
        if (tables[i] == lvni_cpu_isa()) {
            break;
        }
    }
}

BEFORE_ALL()
{
    /* flushes denormals, as in every thread that computes */
    return lvni_tensor_ctx_get() == NULL ? -1 : 0;
}
