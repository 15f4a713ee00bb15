/* Group sync of coupled micro-batches: values and gradients of lvn_group_gather and lvn_group_sum,
 * micro-batches without samples, second derivatives, and what happens when one of them fails, ends
 * early, or calls something else. */
#include "group_sync_support.h"

#include "core/alloc.h"
#include "trainer/comm_thread.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Micro-batches of 2, 1, 3, 1, .. rows; the uneven ones are the point. */
static int64_t rows_of(int micro_batch)
{
    static const int64_t rows[MOST_MICRO_BATCHES] = {2, 1, 3, 1, 2, 1};
    return rows[micro_batch];
}

static void fill(micro_batches *s, lvn_dtype dtype, bool uneven)
{
    for (int i = 0; i < s->n; i++) {
        micro_batches_input(s, i, 0, dtype, LVN_SHAPE(uneven ? rows_of(i) : 2, 3));
    }
}

static lvn_tensor *gather(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    return lvn_group_gather(in[0]);
}

static lvn_tensor *sum(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    return lvn_group_sum(in[0]);
}

/* Every row is compared with the rows of all micro-batches, as in a contrastive loss; curved, so
 * that values matter to the gradients. */
static lvn_tensor *similar(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    lvn_tensor *every = lvn_group_gather(in[0]);
    return lvn_log_softmax(lvn_matmul(in[0], lvn_transpose(every, 0, 1)));
}

static lvn_tensor *centred(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    const int samples = 0;
    lvn_tensor *mean = lvn_group_sum(lvn_mean_axes(in[0], &samples, 1, true));
    return lvn_mul(lvn_sub(in[0], mean), lvn_group_sum(lvn_square(in[0])));
}

TEST(gathers_in_the_order_of_the_micro_batches)
{
    micro_batches s;
    micro_batches_open(&s, 4, gather);
    fill(&s, LVN_F32, true);
    s.keep = true;
    s.empty[1] = true;
    for (int run = 0; run < 2; run++) { /* the second one with places that are there */
        assert_int_equal(micro_batches_run(&s, false), LVN_OK);
        for (int i = 0; i < 4; i++) {
            if (s.empty[i]) {
                continue;
            }
            assert_int_equal(lvn_size(s.y[i], 0), 6);
            int64_t row = 0;
            for (int k = 0; k < 4; k++) {
                if (!s.empty[k]) {
                    assert_memory_equal(LVNI_CF32(s.y[i]) + row * 3, s.in[k][0]->data,
                                        (size_t)lvn_numel(s.in[k][0]) * sizeof(float));
                    row += rows_of(k);
                }
            }
            lvn_release(s.y[i]);
        }
    }
    micro_batches_close(&s);
}

/* ((0 1)(2 3))(4) with 3 empty: (0 + 1) + 2, then + 4. */
TEST(sums_in_the_tree)
{
    micro_batches s;
    micro_batches_open(&s, 5, sum);
    fill(&s, LVN_F32, false);
    s.keep = true;
    s.empty[3] = true;
    const float large[] = {1e8f, -3.0f, 1e-8f, 0.0f, -1e8f};
    for (int i = 0; i < 5; i++) {
        LVNI_F32(s.in[i][0])[0] = large[i];
    }
    assert_int_equal(micro_batches_run(&s, false), LVN_OK);
    for (int64_t e = 0; e < 6; e++) {
        float want = LVNI_CF32(s.in[0][0])[e] + LVNI_CF32(s.in[1][0])[e];
        want += LVNI_CF32(s.in[2][0])[e];
        want += LVNI_CF32(s.in[4][0])[e];
        for (int i = 0; i < 5; i++) {
            if (!s.empty[i]) {
                assert_memory_equal(&LVNI_CF32(s.y[i])[e], &want, sizeof want);
            }
        }
    }
    for (int i = 0; i < 5; i++) {
        lvn_release(s.y[i]);
    }
    micro_batches_close(&s);
}

/* Longer than a piece that is added at once. */
TEST(long_sums_are_whole)
{
    enum { N = 5000 };
    micro_batches s;
    micro_batches_open(&s, 3, sum);
    for (int i = 0; i < 3; i++) {
        micro_batches_input(&s, i, 0, LVN_F32, LVN_SHAPE(N));
    }
    s.keep = true;
    assert_int_equal(micro_batches_run(&s, false), LVN_OK);
    for (int i = 0; i < 3; i++) {
        for (int64_t e = 0; e < N; e++) {
            const float want =
                (LVNI_CF32(s.in[0][0])[e] + LVNI_CF32(s.in[1][0])[e]) + LVNI_CF32(s.in[2][0])[e];
            assert_memory_equal(&LVNI_CF32(s.y[i])[e], &want, sizeof want);
        }
        lvn_release(s.y[i]);
    }
    micro_batches_close(&s);
}

TEST(gradients_are_those_of_all_losses)
{
    const struct {
        const char *name;
        micro_batch_formula f;
        bool uneven;
    } rows[] = {{"gather", gather, true},
                {"sum", sum, false},
                {"similar", similar, true},
                {"centred", centred, false}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        for (int n = 1; n <= 5; n += 2) {
            micro_batches s;
            micro_batches_open(&s, n, rows[k].f);
            fill(&s, LVN_F64, rows[k].uneven);
            s.empty[1] = n == 5;
            micro_batches_check_gradients(&s, rows[k].name, 1e-7);
            micro_batches_close(&s);
        }
    }
}

/* The loss of micro-batch 0 alone depends on what all brought. */
static lvn_tensor *one_looks(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    lvn_tensor *every = lvn_group_gather(in[0]);
    return micro_batch == 0 ? lvn_square(every) : lvn_square(in[0]);
}

TEST(a_loss_need_not_depend_on_the_others)
{
    micro_batches s;
    micro_batches_open(&s, 3, one_looks);
    fill(&s, LVN_F64, true);
    micro_batches_check_gradients(&s, "one looks", 1e-7);
    micro_batches_close(&s);
}

/* d/dx of a gradient: what a penalty on gradients needs. */
static lvn_tensor *slope(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    lvn_tensor *y = lvn_add(lvn_sum(lvn_square(similar(all, micro_batch, in))),
                            lvn_sum(lvn_square(lvn_group_sum(lvn_sum(lvn_square(in[0]))))));
    return lvn_grad(y, in[0], .create_graph = all->backward);
}

TEST(gradients_of_gradients)
{
    micro_batches s;
    micro_batches_open(&s, 3, slope);
    fill(&s, LVN_F64, true);
    micro_batches_check_gradients(&s, "slope", 1e-5);
    micro_batches_close(&s);
}

/* bf16 is added in f32 and rounded once. */
static lvn_tensor *low_sum(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    return lvn_cast(lvn_group_sum(lvn_cast(in[0], LVN_BF16)), LVN_F32);
}

TEST(low_types_round_once)
{
    micro_batches s;
    micro_batches_open(&s, 4, low_sum);
    fill(&s, LVN_F32, false);
    /* 257 is not a bf16 number: added one by one in bf16 they stay 256 */
    const float values[] = {256.0f, 1.0f, 1.0f, 0.0f};
    for (int i = 0; i < 4; i++) {
        LVNI_F32(s.in[i][0])[0] = values[i];
    }
    s.keep = true;
    assert_int_equal(micro_batches_run(&s, true), LVN_OK);
    for (int i = 0; i < 4; i++) {
        assert_true(LVNI_CF32(s.y[i])[0] == 258.0f);
        assert_non_null(lvn_gradient(s.in[i][0]));
        lvn_release(s.y[i]);
    }
    micro_batches_close(&s);
}

/* ---- batch norm over the group ---- */

static lvn_tensor *norm(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    return lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .sync = true);
}

static lvn_tensor *norm_relu(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    return lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .sync = true, .relu = true);
}

static lvn_tensor *norm_add(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    return lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .sync = true,
                                .residual = in[3]);
}

static lvn_tensor *norm_both(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    (void)micro_batch;
    return lvn_batch_norm_train(in[0], in[1], in[2], 1e-2, NULL, NULL, .sync = true,
                                .residual = in[3], .relu = true);
}

/* Micro-batch 0 does not use the result; its x moves that of the others all the same. */
static lvn_tensor *norm_unused(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    lvn_tensor *y = norm(all, micro_batch, in);
    return micro_batch == 0 ? lvn_add(lvn_square(in[0]), lvn_add(in[1], in[2])) : y;
}

static void fill_norm(micro_batches *s, lvn_dtype dtype, bool residual)
{
    for (int i = 0; i < s->n; i++) {
        micro_batches_input(s, i, 0, dtype, LVN_SHAPE(rows_of(i), 2, 3));
        micro_batches_input(s, i, 1, dtype, LVN_SHAPE(3));
        micro_batches_input(s, i, 2, dtype, LVN_SHAPE(3));
        /* gamma is one parameter */
        memcpy(s->in[i][1]->data, s->in[0][1]->data,
               (size_t)lvn_numel(s->in[0][1]) * lvn_dtype_size(dtype));
        if (residual) {
            micro_batches_input(s, i, 3, dtype, LVN_SHAPE(rows_of(i), 2, 3));
        }
    }
}

TEST(gradients_of_batch_norm_over_the_group)
{
    const struct {
        const char *name;
        micro_batch_formula f;
        bool residual;
    } rows[] = {{"norm", norm, false},
                {"norm, relu", norm_relu, false},
                {"norm, residual", norm_add, true},
                {"norm, residual, relu", norm_both, true},
                {"norm, unused", norm_unused, false}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        for (int n = 1; n <= 4; n++) {
            if (k == 4 && n == 1) {
                continue; /* no rank is left to use it */
            }
            micro_batches s;
            micro_batches_open(&s, n, rows[k].f);
            fill_norm(&s, LVN_F64, rows[k].residual);
            s.empty[2] = n == 4;
            micro_batches_check_gradients(&s, rows[k].name, 1e-6);
            micro_batches_close(&s);
        }
    }
}

/* Values far from zero, where sums of squares would lose everything: against one batch norm over
 * all rows. */
TEST(batch_norm_over_the_group_is_that_of_one_batch)
{
    /* of micro-batches 0 to 3: 2, 1, 3 and 1 images of 2; micro-batch 1 is empty */
    enum { C = 3, ROWS = 12 };
    micro_batches s;
    micro_batches_open(&s, 4, norm_both);
    fill_norm(&s, LVN_F32, true);
    s.keep = true;
    s.empty[1] = true;
    lvn_tensor *x = lvn_tensor_create(LVN_F32, LVN_SHAPE(ROWS, C)),
               *residual = lvn_tensor_create(LVN_F32, LVN_SHAPE(ROWS, C));
    if (x == NULL || residual == NULL) {
        fail();
        return;
    }
    int64_t at = 0;
    for (int i = 0; i < 4; i++) {
        for (int64_t e = 0; e < lvn_numel(s.in[i][0]); e++) {
            LVNI_F32(s.in[i][0])[e] += 1000.0f * (float)(e % C + 1) + (float)i;
            if (!s.empty[i]) {
                LVNI_F32(x)[at] = LVNI_F32(s.in[i][0])[e];
                LVNI_F32(residual)[at++] = LVNI_F32(s.in[i][3])[e];
            }
        }
        for (int k = 1; k < 3; k++) { /* the same parameters */
            memcpy(s.in[i][k]->data, s.in[0][k]->data, C * sizeof(float));
        }
    }
    assert_int_equal(at, ROWS * C);
    assert_int_equal(micro_batches_run(&s, false), LVN_OK);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const lvn_tensor *y = lvn_batch_norm_train(x, s.in[0][1], s.in[0][2], 1e-2, NULL, NULL,
                                               .residual = residual, .relu = true);
    at = 0;
    for (int i = 0; i < 4 && y != NULL; i++) {
        for (int64_t e = 0; !s.empty[i] && e < lvn_numel(s.y[i]); e++) {
            /* f32 near 3000: 2e-4 */
            assert_true(fabsf(LVNI_CF32(s.y[i])[e] - LVNI_CF32(y)[at++]) < 2e-4f);
        }
    }
    assert_int_equal(at, ROWS * C);
    assert_int_equal(lvn_scope_close(), LVN_OK);
    for (int i = 0; i < 4; i++) {
        lvn_release(s.empty[i] ? NULL : s.y[i]);
    }
    lvn_release(x);
    lvn_release(residual);
    micro_batches_close(&s);
}

TEST(one_value_for_a_channel_is_too_few)
{
    micro_batches s;
    micro_batches_open(&s, 2, norm);
    for (int i = 0; i < 2; i++) {
        micro_batches_input(&s, i, 0, LVN_F32, LVN_SHAPE(1, 3));
        micro_batches_input(&s, i, 1, LVN_F32, LVN_SHAPE(3));
        micro_batches_input(&s, i, 2, LVN_F32, LVN_SHAPE(3));
    }
    /* two micro-batches of one value each are enough */
    assert_int_equal(micro_batches_run(&s, true), LVN_OK);
    s.empty[1] = true;
    assert_int_equal(micro_batches_run(&s, true), LVN_ERR_SHAPE);
    assert_non_null(
        strstr(lvn_last_error()->message, "the micro-batches of the group have 1 together"));
    micro_batches_close(&s);
}

/* ---- what goes wrong ---- */

static void assert_text_has(const char *text)
{
    if (strstr(lvn_last_error()->message, text) == NULL) {
        fail_msg("the error should speak of \"%s\": %s", text, lvn_last_error()->message);
    }
}

static lvn_tensor *one_fails(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    lvn_tensor *y = lvn_group_sum(in[0]);
    if (micro_batch == all->n - 1) {
        lvn_add(y, lvn_zeros(LVN_F32, LVN_SHAPE(7)));
    }
    return lvn_group_sum(y);
}

TEST(a_failure_frees_those_who_wait)
{
    micro_batches s;
    micro_batches_open(&s, 4, one_fails);
    fill(&s, LVN_F32, false);
    for (int run = 0; run < 20; run++) {
        assert_int_equal(micro_batches_run(&s, run % 2 == 0), LVN_ERR_SHAPE);
        assert_text_has("cannot be broadcast");
        for (int i = 0; i < 4; i++) {
            assert_int_equal(s.status[i], LVN_ERR_SHAPE);
        }
    }
    s.f = sum; /* and it works again */
    assert_int_equal(micro_batches_run(&s, true), LVN_OK);
    micro_batches_close(&s);
}

/* Whichever allocation fails, in whichever micro-batch: all are freed, and the next run is
 * whole. */
TEST(memory_that_is_out_ends_all)
{
    lvn_status status = LVN_ERR_MEMORY;
    int64_t k = 0;
    while (status != LVN_OK) {
        micro_batches s;
        micro_batches_open(&s, 3, norm_both);
        fill_norm(&s, LVN_F32, true);
        k++;
        assert_true(k < 1000);
        lvni_core_alloc_fail_at(k);
        status = micro_batches_run(&s, true);
        const bool failed = lvni_core_alloc_fail_at(0) == 0;
        assert_true(status == (failed ? LVN_ERR_MEMORY : LVN_OK));
        assert_int_equal(micro_batches_run(&s, true), LVN_OK);
        micro_batches_close(&s);
    }
    assert_true(k > 20);
}

static lvn_tensor *one_ends(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    return micro_batch == 1 ? in[0] : lvn_group_sum(in[0]);
}

static lvn_tensor *one_does_otherwise(const micro_batches *all, int micro_batch,
                                      lvn_tensor *const *in)
{
    (void)all;
    return micro_batch == 1 ? lvn_group_gather(in[0]) : lvn_group_sum(in[0]);
}

static lvn_tensor *other_shapes(const micro_batches *all, int micro_batch, lvn_tensor *const *in)
{
    (void)all;
    return lvn_group_sum(micro_batch == 1 ? lvn_flatten(in[0], 0) : in[0]);
}

TEST(different_calls_are_reported)
{
    micro_batches s;
    micro_batches_open(&s, 3, one_ends);
    fill(&s, LVN_F32, false);
    assert_int_equal(micro_batches_run(&s, false), LVN_ERR_MISMATCH);
    assert_text_has("micro-batch 1 of a group has ended while micro-batch");
    s.f = one_does_otherwise;
    assert_int_equal(micro_batches_run(&s, false), LVN_ERR_MISMATCH);
    assert_text_has(
        "micro-batch 0 of a group is in group_sum while micro-batch 1 is in group_gather");
    s.f = other_shapes;
    assert_int_equal(micro_batches_run(&s, false), LVN_ERR_SHAPE);
    assert_text_has("(6)");
    micro_batches_close(&s);
}

TEST(alone_they_give_what_they_get)
{
    lvn_tensor *x = lvn_tensor_create(LVN_F32, LVN_SHAPE(2));
    lvn_tensor *number = lvn_tensor_create(LVN_F32, LVN_SHAPE(1));
    lvn_tensor *label = lvn_tensor_create(LVN_I64, LVN_SHAPE(2));
    int64_t first = 5;
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_ptr_equal(lvn_group_sum(x), x);
    assert_ptr_equal(lvn_group_gather_at(x, &first), x);
    assert_int_equal(first, 0);
    assert_ptr_equal(lvn_group_gather(label), label);
    assert_null(lvn_group_gather(lvn_reshape(number, 0, NULL)));
    assert_int_equal(lvn_scope_close(), LVN_ERR_SHAPE);
    assert_int_equal(lvn_scope_open(), LVN_OK);
    assert_null(lvn_group_sum(label));
    assert_int_equal(lvn_scope_close(), LVN_ERR_DTYPE);
    lvn_release(x);
    lvn_release(number);
    lvn_release(label);
}

/* ---- what threads fail with ---- */

/* Of an earlier call, which was no failure of the work. */
static lvn_status leave_a_message(void *user, int lane)
{
    (void)user;
    (void)lvn_error_set(LVN_ERR_CORRUPT, __FILE__, __LINE__, "stale message of lane %d", lane);
    return LVN_OK;
}

static lvn_status fail_without_a_message(void *user, int lane)
{
    return lane == *(const int *)user ? LVN_ERR_IO : LVN_OK;
}

static lvn_status job_that_leaves_a_message(void *user)
{
    (void)user;
    return leave_a_message(NULL, 0);
}

static lvn_status job_without_a_message(void *user)
{
    (void)user;
    return LVN_ERR_CORRUPT;
}

TEST(a_status_without_a_message_is_a_failure)
{
    lvni_trainer_lanes *lanes;
    assert_int_equal(lvni_trainer_lanes_create(3, 1, NULL, &lanes), LVN_OK);
    for (int i = 0; i < 3; i++) {
        char want[32];
        snprintf(want, sizeof want, "lane %d failed with", i);
        assert_int_equal(lvni_trainer_lanes_run(lanes, 3, leave_a_message, NULL), LVN_OK);
        assert_int_equal(lvni_trainer_lanes_run(lanes, 3, fail_without_a_message, &i), LVN_ERR_IO);
        assert_int_equal(lvn_last_error()->code, LVN_ERR_IO);
        assert_memory_equal(lvn_last_error()->message, want, strlen(want));
    }
    lvni_trainer_lanes_destroy(lanes);
    lvni_trainer_comm_thread *thread;
    assert_int_equal(lvni_trainer_comm_thread_create(&thread), LVN_OK);
    lvn_clear_error();
    (void)lvni_trainer_comm_thread_give(thread, job_that_leaves_a_message, NULL);
    const uint64_t job = lvni_trainer_comm_thread_give(thread, job_without_a_message, NULL);
    assert_int_equal(lvni_trainer_comm_thread_wait(thread, job), LVN_ERR_CORRUPT);
    assert_int_equal(lvn_last_error()->code, LVN_ERR_CORRUPT);
    assert_non_null(strstr(lvn_last_error()->message, "the communication thread failed with"));
    lvni_trainer_comm_thread_destroy(thread);
    lvn_clear_error();
}
