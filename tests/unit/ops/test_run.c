/* lvni_kernels_run: who allocates, what is refused, what is left after a failure. */
#include "op_support.h"

#include <levin/device.h>

TEST_EACH(NULL, support_release);

TEST(outputs_are_made_and_owned_by_the_caller)
{
    lvn_kernel_args args = {.in = {F64(DIMS(2, 2), 1, 5, 7, 3)},
                            .attr = &(lvn_axes_attr){.mask = 2}};
    assert_int_equal(lvni_kernels_run(LVNI_OP_max, &args, 3), LVN_OK);
    EXPECT(support_keep(args.out[0]), 0, DIMS(2), 5, 7);
    EXPECT(support_keep(args.out[1]), 0, DIMS(2), 1, 0);
    args.out[0] = args.out[1] = NULL;
    assert_int_equal(lvni_kernels_run(LVNI_OP_max, &args, 1), LVN_OK); /* no index wanted */
    EXPECT(support_keep(args.out[0]), 0, DIMS(2), 5, 7);
    assert_null(args.out[1]);
}

TEST(required_outputs_cannot_be_refused)
{
    lvn_kernel_args args = {.in = {F64(DIMS(1, 2), 1, 5), I64(DIMS(1), 0)},
                            .attr = &(lvn_class_loss_attr){.ignore = -100}};
    assert_int_equal(lvni_kernels_run(LVNI_OP_cross_entropy, &args, 1), LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message,
                        "cross_entropy: output 1 cannot be refused (want is 0x1)");
    assert_null(args.out[0]);
}

TEST(a_given_output_is_written_in_place)
{
    lvn_tensor *y = F64(DIMS(2), 0, 0);
    const void *memory = y->data;
    lvn_kernel_args args = {.in = {F64(DIMS(2), 1, 2), F64(DIMS(2), 10, 20)}, .out = {y}};
    assert_int_equal(lvni_kernels_run(LVNI_OP_add, &args, 1), LVN_OK);
    assert_ptr_equal(args.out[0], y);
    assert_ptr_equal(y->data, memory);
    EXPECT(y, 0, DIMS(2), 11, 22);
    args.out[0] = F64(DIMS(1, 2), 0, 0);
    assert_int_equal(lvni_kernels_run(LVNI_OP_add, &args, 1), LVN_ERR_SHAPE);
    assert_string_equal(lvn_last_error()->message,
                        "add: output 0 given by the caller is (1, 2), but the result is (2)");
    assert_non_null(args.out[0]); /* stays the caller's */
    args.out[0] = support_tensor(LVN_F32, DIMS(2));
    assert_int_equal(lvni_kernels_run(LVNI_OP_add, &args, 1), LVN_ERR_DTYPE);
    assert_string_equal(lvn_last_error()->message,
                        "add: output 0 given by the caller is f32, but the result is f64");
}

/* add alone: the result may lie where its first input was. */
TEST(a_sum_may_replace_its_first_input)
{
    enum { N = 70001 }; /* several blocks of work and a tail */
    lvn_tensor *a = support_tensor(LVN_F32, DIMS(N)), *b = support_tensor(LVN_F32, DIMS(N));
    const lvni_core_rng rng = {.key = lvni_core_rng_make_key(1, 2)};
    for (int i = 0; i < N; i++) {
        ((float *)a->data)[i] = (float)lvni_core_rng_normal(&rng, (uint64_t)i);
        ((float *)b->data)[i] = (float)lvni_core_rng_normal(&rng, (uint64_t)i + N);
    }
    lvn_kernel_args apart = {.in = {a, b}}, in_place = {.in = {a, b}, .out = {a}};
    assert_int_equal(lvni_kernels_run(LVNI_OP_add, &apart, 1), LVN_OK);
    assert_int_equal(lvni_kernels_run(LVNI_OP_add, &in_place, 1), LVN_OK);
    assert_memory_equal(a->data, support_keep(apart.out[0])->data, N * sizeof(float));
    lvn_tensor *c = F64(DIMS(2), 1, 2);
    lvn_kernel_args truth = {.in = {c, F64(DIMS(2), 10, 20)}, .out = {c}};
    assert_int_equal(lvni_kernels_run(LVNI_OP_add, &truth, 1), LVN_OK);
    EXPECT(c, 0, DIMS(2), 11, 22);
}

TEST(a_failure_in_the_kernel_releases_what_was_made)
{
    lvn_tensor *loss = F64(SCALAR, 0);
    lvn_kernel_args args = {.in = {F64(DIMS(1, 2), 1, 5), I64(DIMS(1), 2)},
                            .out = {loss},
                            .attr = &(lvn_class_loss_attr){.ignore = -100}};
    assert_int_equal(lvni_kernels_run(LVNI_OP_cross_entropy, &args, 3), LVN_ERR_INVALID);
    assert_ptr_equal(args.out[0], loss); /* the caller's */
    assert_null(args.out[1]);            /* made and released */
}

TEST(missing_inputs_and_attributes_are_named)
{
    lvn_kernel_args args = {.in = {F64(DIMS(1, 2), 1, 2)}};
    assert_int_equal(lvni_kernels_run(LVNI_OP_linear, &args, 1), LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message, "linear: input 1 of 3 is missing (NULL)");
    assert_int_equal(lvni_kernels_run(LVNI_OP_scale, &args, 1), LVN_ERR_INVALID);
    assert_string_equal(lvn_last_error()->message, "scale: needs its attributes, got NULL");
    args.in[1] = F64(DIMS(3, 2), 1, 0, 0, 1, 1, 1);
    assert_int_equal(lvni_kernels_run(LVNI_OP_linear, &args, 1), LVN_OK); /* no bias */
    EXPECT(support_keep(args.out[0]), 0, DIMS(1, 3), 1, 2, 3);
}

TEST(a_result_too_large_to_count_is_refused)
{
    const lvn_shape_attr attr = {.ndim = 3, .shape = {(int64_t)1 << 30, (int64_t)1 << 30, 8}};
    lvn_kernel_args args = {.in = {F64(SCALAR, 1)}, .attr = &attr};
    assert_int_equal(lvni_kernels_run(LVNI_OP_expand, &args, 1), LVN_ERR_SHAPE);
    assert_string_equal(
        lvn_last_error()->message,
        "expand: a result of shape (1073741824, 1073741824, 8) has too many elements to count");
    assert_null(args.out[0]);
}

TEST(the_table_is_complete)
{
    for (int i = 0; i < LVNI_OP_COUNT; i++) {
        assert_string_equal(lvni_kernels_ops[i].name, ref_ops[i].name);
        assert_true(lvni_kernels_ops[i].shape != NULL);
        for (int kind = 0; kind < LVN_DEVICE_LOADED; kind++) {
            assert_non_null(lvni_kernels_row(kind, (lvni_kernels_op)i));
        }
        assert_true(lvni_kernels_ops[i].sentence[0] != 0);
    }
    assert_int_equal(lvni_kernels_ops[LVNI_OP_add].attr_size, 0);
    assert_int_equal(lvni_kernels_ops[LVNI_OP_conv2d].attr_size, sizeof(lvn_conv_attr));
}
