/* Reproducibility of oneDNN: outside the reducing class the bits do not depend on the team; inside
 * they depend on wgrad_threads alone; nowhere do they depend on where a buffer lies. And no shape
 * of the zoo falls to a reference implementation. CTest runs this program once per instruction set
 * (LEVIN_CPU_ISA). */
#include "core/alloc.h"
#include "onednn_support.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static const conv_case zoo[] = {
    /* n, h, w, i, o, k, stride, padding, dilation, groups */
    /* the CNN 3 -> 32 -> 64 -> 128 at 32, 64 and 224, batches 1, 5, 6, 32 */
    {1, 32, 32, 3, 32, 3, 1, 1, 1, 1},
    {6, 32, 32, 3, 32, 3, 1, 1, 1, 1},
    {32, 32, 32, 3, 32, 3, 1, 1, 1, 1},
    {1, 16, 16, 32, 64, 3, 1, 1, 1, 1},
    {5, 16, 16, 32, 64, 3, 1, 1, 1, 1},
    {32, 16, 16, 32, 64, 3, 1, 1, 1, 1},
    {1, 8, 8, 64, 128, 3, 1, 1, 1, 1},
    {5, 8, 8, 64, 128, 3, 1, 1, 1, 1},
    {6, 8, 8, 64, 128, 3, 1, 1, 1, 1},
    {32, 8, 8, 64, 128, 3, 1, 1, 1, 1},
    {5, 64, 64, 3, 32, 3, 1, 1, 1, 1},
    {5, 32, 32, 32, 64, 3, 1, 1, 1, 1},
    {5, 16, 16, 64, 128, 3, 1, 1, 1, 1},
    {1, 224, 224, 3, 32, 3, 1, 1, 1, 1},
    {1, 112, 112, 32, 64, 3, 1, 1, 1, 1},
    {1, 56, 56, 64, 128, 3, 1, 1, 1, 1},
    /* ResNet-18 and -50 on 64 x 64 */
    {5, 64, 64, 3, 64, 7, 2, 3, 1, 1},
    {5, 16, 16, 64, 64, 3, 1, 1, 1, 1},
    {5, 16, 16, 64, 128, 3, 2, 1, 1, 1},
    {5, 16, 16, 64, 128, 1, 2, 0, 1, 1},
    {5, 8, 8, 128, 128, 3, 1, 1, 1, 1},
    {5, 8, 8, 128, 256, 3, 2, 1, 1, 1},
    {5, 4, 4, 256, 256, 3, 1, 1, 1, 1},
    {1, 4, 4, 256, 512, 3, 2, 1, 1, 1},
    {5, 2, 2, 512, 512, 3, 1, 1, 1, 1},
    {5, 16, 16, 64, 256, 1, 1, 0, 1, 1},
    {5, 16, 16, 256, 64, 1, 1, 0, 1, 1},
    {1, 8, 8, 512, 128, 1, 1, 0, 1, 1},
    {5, 4, 4, 1024, 256, 1, 1, 0, 1, 1},
    {1, 2, 2, 512, 2048, 1, 1, 0, 1, 1},
    {5, 16, 16, 256, 512, 1, 2, 0, 1, 1},
    /* ResNet-50 on 224 x 224 */
    {2, 56, 56, 64, 64, 1, 1, 0, 1, 1},
    {2, 56, 56, 256, 64, 1, 1, 0, 1, 1},
    {2, 28, 28, 256, 512, 1, 2, 0, 1, 1},
    {2, 14, 14, 1024, 256, 1, 1, 0, 1, 1},
    {2, 14, 14, 256, 256, 3, 1, 1, 1, 1},
    {2, 7, 7, 2048, 512, 1, 1, 0, 1, 1},
    {2, 7, 7, 512, 512, 3, 1, 1, 1, 1},
    /* odd ones */
    {5, 12, 12, 5, 17, 3, 1, 1, 1, 1},
    {5, 14, 14, 32, 32, 3, 1, 2, 2, 1},
    {5, 14, 14, 64, 64, 3, 1, 1, 1, 64},
    {5, 14, 14, 32, 64, 3, 1, 1, 1, 8},
    {1, 28, 28, 1, 32, 3, 1, 1, 1, 1},
    {5, 24, 24, 64, 2, 3, 1, 1, 1, 1},
};
enum { ZOO = sizeof zoo / sizeof *zoo };

static const int teams[] = {1, 2, 3, 8, 16};
enum { TEAMS = sizeof teams / sizeof *teams };

static void report(const char *what, size_t k, int team)
{
    const conv_case *c = &zoo[k];
    fail_msg("%s depends on the team: %d threads differ from 1 for batch %d, %dx%d, %d -> %d, "
             "%dx%d/%d, groups %d",
             what, team, c->n, c->h, c->w, c->i, c->o, c->k, c->k, c->stride, c->groups);
}

TEST(convolutions_do_not_see_the_team)
{
    for (size_t k = 0; k < ZOO; k++) {
        conv_data d = conv_data_make(&zoo[k]);
        uint64_t y = 0, dx = 0;
        for (int t = 0; t < TEAMS; t++) {
            fill_bytes(d.y, 0xff);
            fill_bytes(d.dx, 0xff);
            assert_int_equal(run_forward(&d, teams[t], true), LVN_OK);
            assert_int_equal(run_grad_input(&d, teams[t]), LVN_OK);
            if (t == 0) {
                y = hash_of(d.y);
                dx = hash_of(d.dx);
            } else if (y != hash_of(d.y)) {
                report("forward", k, teams[t]);
            } else if (dx != hash_of(d.dx)) {
                report("grad_input", k, teams[t]);
            }
        }
        conv_data_free(&d);
    }
}

/* For equal wgrad_threads equal bits, whatever the team of the lane, and again when run again. */
TEST(weight_gradients_see_only_their_own_team)
{
    int differ = 0;
    for (size_t k = 0; k < ZOO; k++) {
        conv_data d = conv_data_make(&zoo[k]);
        uint64_t first[2] = {0, 0};
        for (int w = 1; w <= 2; w++) {
            for (int t = 0; t < 3; t++) {
                fill_bytes(d.dw, 0xff);
                assert_int_equal(run_grad_weight(&d, teams[t], w), LVN_OK);
                const uint64_t h = hash_of(d.dw) ^ hash_of(d.db) * 31;
                if (t == 0) {
                    first[w - 1] = h;
                } else if (h != first[w - 1]) {
                    report("grad_weight", k, teams[t]);
                }
            }
        }
        differ += first[0] != first[1];
        conv_data_free(&d);
    }
    /* That wgrad_threads is needed at all; if this ever fails, the config key has lost its reason.
     */
    assert_true(differ > 0);
    print_message("weight gradients that differ between teams of 1 and 2: %d of %d\n", differ,
                  (int)ZOO);
}

/* m, n, k */
static const int64_t products[][3] = {
    {1, 10, 128},   {5, 10, 128},    {6, 10, 128},    {32, 10, 128},   {32, 128, 10},
    {1, 256, 3072}, {5, 256, 3072},  {6, 256, 3072},  {32, 256, 3072}, {32, 10, 256},
    {1, 3072, 256}, {32, 3072, 256}, {256, 3072, 32}, {10, 256, 32},   {10, 128, 5},
    {1, 1000, 512}, {5, 1000, 2048}, {64, 768, 768},  {17, 13, 11},    {2, 2, 1000}};
enum { PRODUCTS = sizeof products / sizeof *products };

static void product_case(size_t k, bool ta, bool tb, bool *differs)
{
    const int64_t m = products[k][0], n = products[k][1], depth = products[k][2];
    const int64_t as[] = {ta ? depth : m, ta ? m : depth}, bs[] = {tb ? n : depth, tb ? depth : n},
                  ys[] = {m, n};
    lvn_tensor *a = filled(1, 2, as), *b = filled(2, 2, bs), *y = filled(3, 2, ys);
    uint64_t first = 0;
    for (int t = 0; t < TEAMS; t++) {
        fill_bytes(y, 0xff);
        assert_int_equal(run_matmul(a, b, y, ta, tb, teams[t], 1), LVN_OK);
        first = t == 0 ? hash_of(y) : first;
        if (first != hash_of(y)) {
            fail_msg("a product depends on the team: %d threads differ from 1 for (%d, %d, %d), "
                     "trans_a %d, trans_b %d",
                     teams[t], (int)m, (int)n, (int)depth, ta, tb);
        }
    }
    for (int t = 1; t < TEAMS; t++) {
        assert_int_equal(run_matmul(a, b, y, ta, tb, 1, teams[t]), LVN_OK);
        *differs = *differs || first != hash_of(y);
    }
    lvn_release(a);
    lvn_release(b);
    lvn_release(y);
}

TEST(products_do_not_see_the_team)
{
    for (int form = 0; form < 4; form++) {
        int differ = 0;
        for (size_t k = 0; k < PRODUCTS; k++) {
            bool differs = false;
            product_case(k, (form & 1) != 0, (form & 2) != 0, &differs);
            differ += differs;
        }
        print_message("trans_a %d, trans_b %d: %d of %d products depend on wgrad_threads\n",
                      form & 1, form >> 1, differ, (int)PRODUCTS);
        if ((form & 1) == 0 && support_type == LVN_F32 &&
            strstr(lvni_cpu_describe(), "avx512 v4, oneDNN 2.") != NULL) {
            /* older instruction sets and version 3 run all products with wgrad_threads, and need
             * to */
            assert_int_equal(differ, 0);
        }
    }
}

/* A tensor with the values of t, `shift` bytes behind a page. *mem is to be freed after the
 * tensor. */
static lvn_tensor *shifted(const lvn_tensor *t, size_t shift, void **mem)
{
    const size_t bytes = (size_t)lvn_numel(t) * sizeof(float);
    char *p = lvni_core_alloc(LVNI_TAG_TENSOR, bytes + 128);
    assert_non_null(p);
    memcpy(p + shift, t->data, bytes);
    *mem = p;
    return lvn_tensor_wrap(p + shift, LVN_F32, t->ndim, t->shape);
}

static uint64_t all_hashes(conv_data *d)
{
    assert_int_equal(run_forward(d, 2, true), LVN_OK);
    assert_int_equal(run_grad_input(d, 2), LVN_OK);
    assert_int_equal(run_grad_weight(d, 2, 2), LVN_OK);
    return hash_of(d->y) ^ hash_of(d->dx) * 3 ^ hash_of(d->dw) * 5 ^ hash_of(d->db) * 7;
}

/* The same three with bf16 images and matrices, where the CPU has kernels for them. */
static int bf16_begin(void **state)
{
    (void)state;
    support_type = LVN_BF16;
    return 0;
}

static int bf16_end(void **state)
{
    (void)state;
    support_type = LVN_F32;
    return 0;
}

static void need_bf16(void)
{
    if (!lvni_cpu_has_bf16()) {
        print_message("skipped: no bf16 kernels on %s\n", lvni_cpu_describe());
        skip();
    }
}

TEST_WITH(convolutions_in_bf16, bf16_begin, bf16_end)
{
    need_bf16();
    convolutions_do_not_see_the_team(state);
}

TEST_WITH(weight_gradients_in_bf16, bf16_begin, bf16_end)
{
    need_bf16();
    weight_gradients_see_only_their_own_team(state);
}

TEST_WITH(products_in_bf16, bf16_begin, bf16_end)
{
    need_bf16();
    products_do_not_see_the_team(state);
}

TEST(places_in_memory_do_not_matter)
{
    static const size_t shifts[] = {4, 20, 36, 60}, some[] = {1, 5, 11, 16, 18, 27, 31};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        conv_data d = conv_data_make(&zoo[some[i]]);
        const uint64_t expected = all_hashes(&d);
        for (size_t s = 0; s < sizeof shifts / sizeof *shifts; s++) {
            conv_data e = {.attr = d.attr};
            lvn_tensor **from = &d.x, **to = &e.x;
            void *mem[8];
            for (int k = 0; k < 8; k++) {
                to[k] = shifted(from[k], shifts[s], &mem[k]);
            }
            assert_true(expected == all_hashes(&e));
            conv_data_free(&e);
            for (int k = 0; k < 8; k++) {
                lvni_core_free(mem[k]);
            }
        }
        conv_data_free(&d);
    }
}

/* Every shape above was made. */
TEST(no_reference_implementation)
{
    const lvni_cpu_stats s = lvni_cpu_get_stats();
    assert_true(s.primitives_created > 500);
    if (s.slow_primitives != 0) {
        fail_msg("%d of %d primitives are slow, the last is %s", (int)s.slow_primitives,
                 (int)s.primitives_created, s.last_slow);
    }
}

/* The bad case of all instruction sets: padding far beyond the window, few channels on the other
 * side. */
TEST(reference_implementations_are_not_used)
{
    static const conv_case c = {2, 9, 9, 16, 1, 3, 1, 12, 1, 1};
    conv_data d = conv_data_make(&c);
    const lvni_cpu_stats before = lvni_cpu_get_stats();
    assert_int_equal(run_grad_input(&d, 1), LVN_OK);
    assert_true(error_of(&d, d.dx) < 1);
    assert_int_equal(lvni_cpu_get_stats().slow_primitives, before.slow_primitives + 1);
    const uint64_t made = lvni_cpu_get_stats().primitives_created - before.primitives_created;
    assert_int_equal(made, 1); /* the product's */
    conv_data_free(&d);
}

BEFORE_ALL()
{
    return start_kernels(state);
}
