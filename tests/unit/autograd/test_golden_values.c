/* Ops against results of PyTorch where a definition could be misread; golden_values.py wrote inputs
 * and results. On the reference backend in f64, and on the cpu in f32. */
#include "gradient_support.h"

#include "golden_values.h"
#include "tensor/ctx.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

static lvn_dtype dtype; /* of the running pass */

static lvn_tensor *owned[16];
static int n_owned;

static lvn_tensor *hold(lvn_tensor *t)
{
    assert_non_null(t);
    assert_true(n_owned < 16);
    owned[n_owned++] = t;
    return t;
}

static lvn_tensor *make(const double *values, int ndim, const int64_t *shape)
{
    lvn_tensor *t = hold(lvn_tensor_create(dtype, ndim, shape));
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        if (dtype == LVN_F64) {
            ((double *)lvn_data(t))[e] = values[e];
        } else {
            ((float *)lvn_data(t))[e] = (float)values[e];
        }
    }
    return t;
}
#define MAKE(values, ...) make(values, LVN_SHAPE(__VA_ARGS__))

static lvn_tensor *make_index(const double *values, int ndim, const int64_t *shape)
{
    lvn_tensor *t = hold(lvn_tensor_create(LVN_I64, ndim, shape));
    for (int64_t e = 0; e < lvn_numel(t); e++) {
        ((int64_t *)lvn_data(t))[e] = (int64_t)values[e];
    }
    return t;
}

static lvn_tensor *make_places(void)
{
    return make_index(places, LVN_SHAPE(2, 3));
}

static double value(const lvn_tensor *t, int64_t e)
{
    return lvn_tensor_dtype(t) == LVN_I64 ? (double)((const int64_t *)t->data)[e] : element(t, e);
}

static void check_values(const char *name, const double *want, size_t n, const lvn_tensor *y)
{
    if (y == NULL) {
        fail_msg("%s: %s", name, lvn_last_error()->message);
        return;
    }
    assert_int_equal(lvn_numel(y), n);
    for (int64_t e = 0; e < (int64_t)n; e++) {
        const double have = value(y, e), allowed = lvn_tensor_dtype(y) == LVN_F32 ? 1e-6 : 1e-13;
        const bool same = have == want[e] || (isnan(have) && isnan(want[e])) ||
                          fabs(have - want[e]) <= allowed * fmax(1.0, fabs(want[e]));
        if (!same) {
            fail_msg("%s, element %d: %.17g, expected %.17g", name, (int)e, have, want[e]);
        }
    }
}
#define CHECK(name, y) check_values(#name, name, sizeof name / sizeof *name, y)

static void begin(lvn_dtype type)
{
    dtype = type;
    assert_int_equal(lvn_scope_open(), LVN_OK);
}

static void end(void)
{
    assert_int_equal(lvn_scope_close(), LVN_OK);
    for (; n_owned > 0; n_owned--) {
        lvn_release(owned[n_owned - 1]);
    }
}

static const lvn_dtype types[] = {LVN_F64, LVN_F32};
enum { N_TYPES = 2 };

TEST(order_of_equal_elements_and_nan)
{
    for (int i = 0; i < N_TYPES; i++) {
        begin(types[i]);
        lvn_tensor *x = MAKE(order, 3, 8), *at;
        CHECK(sorted_up, lvn_sort(x, 1, false, &at));
        CHECK(sorted_up_places, at);
        CHECK(sorted_down, lvn_sort(x, -1, true, &at));
        CHECK(sorted_down_places, at);
        CHECK(columns_up_places, lvn_argsort(x, 0, false));
        CHECK(top, lvn_topk(x, 3, 1, true, &at));
        CHECK(top_places, at);
        CHECK(least, lvn_topk(x, 3, 1, false, NULL));
        end();
    }
}

TEST(whole_numbers_and_angles)
{
    for (int i = 0; i < N_TYPES; i++) {
        begin(types[i]);
        lvn_tensor *x = MAKE(steps, 12), *a = MAKE(angles, 9);
        CHECK(rounded, lvn_round(x));
        CHECK(floors, lvn_floor(x));
        CHECK(ceilings, lvn_ceil(x));
        CHECK(sines, lvn_sin(a));
        CHECK(cosines, lvn_cos(a));
        end();
    }
}

TEST(deviation_and_its_corrections)
{
    static const int rows[] = {1}, all[] = {0, 1};
    for (int i = 0; i < N_TYPES; i++) {
        begin(types[i]);
        lvn_tensor *x = lvn_require_grad(MAKE(spread, 2, 5));
        CHECK(std_0, lvn_std_axes(x, rows, 1, false, 0));
        CHECK(std_1, lvn_std_axes(x, rows, 1, false, 1));
        CHECK(std_2, lvn_std_axes(x, rows, 1, false, 2));
        CHECK(std_all, lvn_std_axes(x, all, 2, false, 1));
        CHECK(std_slopes, lvn_grad(lvn_sum(lvn_std_axes(x, rows, 1, false, 1)), x));
        end();
    }
}

TEST(losses_against_probabilities)
{
    for (int i = 0; i < N_TYPES; i++) {
        begin(types[i]);
        lvn_tensor *x = lvn_require_grad(MAKE(logits, 3, 4)), *p = MAKE(shares, 3, 4),
                   *w = MAKE(weights, 4), *l = lvn_require_grad(MAKE(logs, 3, 4));
        CHECK(soft, lvn_soft_cross_entropy(x, p));
        lvn_tensor *loss = lvn_soft_cross_entropy(x, p, .class_weight = w);
        CHECK(soft_weighted, loss);
        CHECK(soft_slopes, lvn_grad(loss, x));
        CHECK(soft_sum,
              lvn_soft_cross_entropy(x, p, .class_weight = w, .reduction = LVN_REDUCTION_SUM));
        CHECK(kl_sum, lvn_kl_div(l, p, .reduction = LVN_REDUCTION_SUM));
        lvn_tensor *batch = lvn_kl_div(l, p);
        CHECK(kl_batch, batch);
        CHECK(kl_slopes, lvn_grad(batch, l));
        lvn_tensor *rows[] = {lvn_slice(l, 0, 2, 3), lvn_slice(l, 0, 1, 2), lvn_slice(l, 0, 0, 1)};
        CHECK(kl_logs, lvn_kl_div(l, lvn_concat(rows, 3, 0), .log_target = true));
        end();
    }
}

TEST(sums_along_an_axis)
{
    for (int i = 0; i < N_TYPES; i++) {
        begin(types[i]);
        lvn_tensor *x = MAKE(logits, 3, 4);
        CHECK(lse_rows, lvn_logsumexp(MAKE(edges, 4, 3), 1));
        CHECK(lse_columns, lvn_logsumexp(x, 0));
        CHECK(sums_rows, lvn_cumsum(x, 1));
        CHECK(sums_columns, lvn_cumsum(x, -2));
        CHECK(scattered_rows,
              lvn_scatter_add(lvn_slice(x, 0, 0, 2), 1, make_places(), MAKE(added, 2, 3)));
        CHECK(one_hot, lvn_one_hot(make_places(), 5, dtype));
        CHECK(filled, lvn_masked_fill(x, lvn_gt_scalar(MAKE(weights, 4), 0.75), -INFINITY));
        end();
    }
}

TEST(elements_overwritten)
{
    static const double first_row[] = {2, 0, 1, 2};
    /* torch.scatter leaves open which of several remains: here the last */
    static const double last_remains[] = {30, 20, 2, 0.25, 50, 3, 0.75, 60},
                        slopes_of_last[] = {0, 40, 60, 0, 100, 120};
    for (int i = 0; i < N_TYPES; i++) {
        begin(types[i]);
        lvn_tensor *x = MAKE(logits, 3, 4), *all = lvn_require_grad(MAKE(logits, 2, 4)),
                   *source = lvn_require_grad(MAKE(added, 2, 3)),
                   *once = make_index(unique, LVN_SHAPE(2, 3));
        CHECK(overwritten_rows, lvn_scatter(all, 1, once, source));
        CHECK(overwritten_columns,
              lvn_scatter(x, -2, make_index(first_row, LVN_SHAPE(1, 4)), MAKE(weights, 1, 4)));
        lvn_tensor *squares =
            lvn_sum(lvn_square(lvn_scatter(lvn_detach(all), 1, once, lvn_square(source))));
        CHECK(overwritten_slopes, lvn_grad(squares, source));
        CHECK(left_slopes, lvn_grad(lvn_sum(lvn_square(lvn_scatter(all, 1, once, source))), all));
        lvn_tensor *y = lvn_scatter(all, 1, make_places(), source);
        CHECK(last_remains, y);
        CHECK(slopes_of_last, lvn_grad(lvn_sum(lvn_square(y)), source));
        CHECK(overwritten_rows, lvn_scatter(all, 1, once, source));
        end();
    }
    begin(LVN_F32);
    static const double whole[] = {7, 8, 9};
    lvn_tensor *y =
        lvn_scatter(make_index(places, LVN_SHAPE(2, 3)), 1,
                    make_index(unique, LVN_SHAPE(2, 1)), /* 1, 3: the second is outside */
                    make_index(whole, LVN_SHAPE(2, 1)));
    assert_null(y);
    assert_non_null(strstr(lvn_last_error()->message, "is outside the axis of size 3"));
    assert_int_equal(lvn_scope_close(), LVN_ERR_INVALID);
    lvn_clear_error();
    dtype = LVN_F32;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    static const double whole_numbers_after[] = {1, 7, 0, 3, 8, 3}, middle[] = {1, 1};
    CHECK(whole_numbers_after, lvn_scatter(make_places(), 1, make_index(middle, LVN_SHAPE(2, 1)),
                                           make_index(whole, LVN_SHAPE(2, 1))));
    end();
}

static lvn_tensor *heads_second(lvn_tensor *x)
{
    return lvn_permute(x, (const int[]){0, 2, 1, 3}, 4);
}

/* PyTorch has heads before positions. */
TEST(attention_with_a_mask)
{
    for (int i = 0; i < N_TYPES; i++) {
        begin(types[i]);
        lvn_tensor *q = lvn_require_grad(MAKE(queries, 1, 2, 3, 2)), *k = MAKE(keys, 1, 2, 4, 2),
                   *v = MAKE(carried, 1, 2, 4, 3), *mask = lvn_gt_scalar(MAKE(seen, 3, 4), 0.5);
        lvn_tensor *y = heads_second(
            lvn_attention(heads_second(q), heads_second(k), heads_second(v), .mask = mask));
        CHECK(attended, y);
        CHECK(attended_slopes, lvn_grad(lvn_sum(lvn_square(y)), q));
        end();
    }
}

/* Without hidden keys it is what the kernel of its own gives. */
TEST(attention_of_products_is_that_of_the_kernel)
{
    for (int i = 0; i < N_TYPES; i++) {
        for (int causal = 0; causal < 2; causal++) {
            begin(types[i]);
            lvn_tensor *qkv = MAKE(carried, 1, 2, 3, 2, 2);
            lvn_tensor *all = lvn_gt_scalar(MAKE(weights, 1), -1.0);
            lvn_tensor *kernel = lvn_attention_qkv(qkv, .causal = causal != 0),
                       *products = lvn_attention_qkv(qkv, .causal = causal != 0, .mask = all);
            for (int64_t e = 0; e < 8; e++) {
                assert_true(fabs(element(kernel, e) - element(products, e)) < 1e-6);
            }
            end();
        }
    }
}

/* Values that are the rows of the unit matrix show the probabilities: each is left out, or divided
 * by 1 - p; in evaluation none is. */
TEST(attention_drops_keys)
{
    enum { N = 24 };
    const double unit[N * N] = {0};
    int dropped = 0;
    begin(LVN_F32);
    lvn_tensor *q = MAKE(unit, 1, N, 1, N), *k = MAKE(unit, 1, N, 1, N),
               *v = MAKE(unit, 1, N, 1, N);
    for (int i = 0; i < N; i++) {
        ((float *)lvn_data(v))[i * N + i] = 1.0f;
    }
    lvni_tensor_ctx_get()->at =
        (lvni_tensor_position){.seed = 3, .step = 4, .micro_batch = 5, .training = true};
    lvn_tensor *y = lvn_attention(q, k, v, .dropout = 0.25);
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){.seed = 3};
    lvn_tensor *all = lvn_attention(q, k, v, .dropout = 0.25);
    for (int64_t e = 0; e < (int64_t)N * N; e++) {
        dropped += element(y, e) == 0.0;
        assert_true(element(y, e) == 0.0 || fabs(element(y, e) - 1.0 / (0.75 * N)) < 1e-6);
        assert_true(fabs(element(all, e) - 1.0 / N) < 1e-6);
    }
    assert_int_in_range(dropped, 100, 190); /* 144 of 576 are expected, and 10 more or less usual */
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
    end();
}

/* lvn_attention(in[0], in[1], in[2]), or lvn_attention_qkv(in[0]) if in[1] is NULL; with the same
 * random numbers every time. */
static lvn_tensor *attention_of(lvn_tensor *const in[3], lvn_tensor *mask, double dropout)
{
    lvni_tensor_ctx_get()->at =
        (lvni_tensor_position){.seed = 3, .step = 4, .micro_batch = 5, .training = true};
    lvn_tensor *y = in[1] == NULL
                        ? lvn_attention_qkv(in[0], .mask = mask, .causal = true, .dropout = dropout)
                        : lvn_attention(in[0], in[1], in[2], .mask = mask, .dropout = dropout);
    lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
    return y;
}

static void check_near(const char *what, lvn_tensor *y, lvn_tensor *want, lvn_dtype type)
{
    if (y == NULL) {
        fail_msg("%s: %s", what, lvn_last_error()->message);
        return;
    }
    assert_int_equal(lvn_tensor_dtype(y), type);
    assert_near(what, lvn_cast(y, LVN_F64), want, type == LVN_BF16 ? 0x1p-6 : 0x1p-9, 0.0);
}

/* Inputs of 16 bits outside of mixed precision against the same numbers in f64: result and
 * gradients have the type of the inputs and its precision. */
TEST(attention_of_products_in_16_bits)
{
    static const dims shapes[4] = {S(2, 9, 2, 8), S(2, 11, 2, 8), S(2, 11, 2, 5), S(2, 9, 3, 2, 8)};
    for (int c = 0; c < 12; c++) {
        const lvn_dtype low = c % 2 == 0 ? LVN_BF16 : LVN_F16;
        const bool packed = c >= 6;
        const int n = packed ? 1 : 3, kind = c / 2 % 3; /* a mask, dropout, both */
        begin(LVN_F32);
        lvn_tensor *in[2][3] = {{NULL}}, *y[2], *grads[2][3];
        for (int i = 0; i < n; i++) {
            const dims *d = &shapes[packed ? 3 : i];
            lvn_tensor *x = hold(make_constant(LVN_F32, 5u + (uint64_t)i, d->ndim, d->size));
            in[0][i] = lvn_require_grad(lvn_detach(lvn_cast(x, low)));
            in[1][i] = lvn_require_grad(lvn_detach(lvn_cast(in[0][i], LVN_F64)));
        }
        const int64_t scores[2] = {9, packed ? 9 : 11};
        lvn_tensor *mask = lvn_gt_scalar(hold(make_constant(LVN_F32, 9, 2, scores)), -0.5);
        for (int k = 0; k < 2; k++) {
            y[k] = attention_of(in[k], kind == 1 ? NULL : mask, kind == 0 ? 0.0 : 0.3);
            lvn_tensor *loss = lvn_sum(lvn_square(lvn_cast(y[k], LVN_F64)));
            assert_int_equal(lvn_grads_with(loss, in[k], n, grads[k], NULL), LVN_OK);
        }
        check_near("attention", y[0], y[1], low);
        for (int i = 0; i < n; i++) {
            check_near("its gradient", grads[0][i], grads[1][i], low);
        }
        end();
    }
}

/* What must not be computed: an error that names the reason, and nothing broadcast by accident. */
TEST(wrong_arguments_are_refused)
{
    static const struct {
        int call;
        lvn_status status;
        const char *text;
    } rows[] = {
        {0, LVN_ERR_SHAPE, "masked_fill: the mask is (3, 4)"},
        {1, LVN_ERR_INVALID, "so 9 places of axis 1 cannot be kept; take 0 to 4"},
        {2, LVN_ERR_INVALID, "topk: k is -2, it must be at least 0"},
        {3, LVN_ERR_SHAPE, "scatter_add: x is (3, 4) but the source is (2, 3)"},
        {11, LVN_ERR_SHAPE, "scatter: the index is (2, 3) but the source is (2, 4)"},
        {4, LVN_ERR_SHAPE, "kl_div: x is (3, 4) but the target is (4)"},
        {5, LVN_ERR_INVALID, "index 3 of element 3 is outside the axis of size 3"},
        {6, LVN_ERR_SHAPE, "cumsum: there is no axis 2"},
        {7, LVN_ERR_INVALID, "class_weight must be (4)"},
        {8, LVN_ERR_SHAPE,
         "the mask is (2, 3), which cannot be broadcast to (N, H, T, S) = (1, 2, 2, 2)"},
        {9, LVN_ERR_DTYPE, "attention: the mask is f32, it must be bool"},
        {10, LVN_ERR_INVALID, "dropout: p is 1; it must be at least 0 and below 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(LVN_F32);
        lvn_tensor *x = MAKE(logits, 3, 4), *w = MAKE(weights, 4), *y = NULL;
        switch (rows[i].call) {
        case 0: y = lvn_masked_fill(w, lvn_gt_scalar(x, 0.0), 0.0); break;
        case 1: y = lvn_topk(x, 9, 1, true, NULL); break;
        case 2: y = lvn_topk(x, -2, 1, true, NULL); break;
        case 3: y = lvn_scatter_add(x, 1, make_places(), MAKE(added, 2, 3)); break;
        case 4: y = lvn_kl_div(x, w); break;
        case 11: y = lvn_scatter(x, 0, make_places(), lvn_slice(x, 0, 0, 2)); break;
        case 5: y = lvn_one_hot(make_places(), 3, LVN_F32); break;
        case 6: y = lvn_cumsum(x, 2); break;
        case 8:
            y = lvn_attention_qkv(MAKE(carried, 1, 2, 3, 2, 2),
                                  .mask = lvn_gt_scalar(MAKE(added, 2, 3), 0.0));
            break;
        case 9: y = lvn_attention_qkv(MAKE(carried, 1, 2, 3, 2, 2), .mask = MAKE(added, 1)); break;
        case 10: y = lvn_attention_qkv(MAKE(carried, 1, 2, 3, 2, 2), .dropout = 1.0); break;
        default: y = lvn_soft_cross_entropy(x, x, .class_weight = MAKE(added, 6)); break;
        }
        assert_null(y);
        if (lvn_last_error()->code != rows[i].status) {
            fail_msg("call %d: status %d, message: %s", rows[i].call, (int)lvn_last_error()->code,
                     lvn_last_error()->message);
        }
        if (strstr(lvn_last_error()->message, rows[i].text) == NULL) {
            fail_msg("expected \"%s\" in: %s", rows[i].text, lvn_last_error()->message);
        }
        assert_int_equal(lvn_scope_close(), rows[i].status);
        lvn_clear_error();
        for (; n_owned > 0; n_owned--) {
            lvn_release(owned[n_owned - 1]);
        }
    }
}
