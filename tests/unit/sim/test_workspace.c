/* Scratch memory of kernels, errors of kernels, and dry runs for a backend that has few of them: a
 * backend with the devices of sim and kernels of its own. */
#include "sim_support.h"

#include "kernels/kernels.h"

#include <string.h>

enum { WORDS = 3000, REPEATS = 40 };

/* ---- the backend: relu copies through scratch memory, exp fails, sqrt takes vectors alone ---- */

static void *workspace_of[REPEATS]; /* of each call of relu */
static int n_calls;

static size_t relu_workspace(const lvn_kernel_args *args)
{
    return (size_t)lvn_numel(args->in[0]) * sizeof(float);
}

static lvn_status relu(const lvn_kernel_args *args)
{
    const size_t bytes = (size_t)lvn_numel(args->in[0]) * sizeof(float);
    assert_int_equal(args->workspace_bytes, bytes);
    workspace_of[n_calls++ % REPEATS] = args->workspace;
    LVN_TRY(lvni_sim_copy(args->stream, args->workspace, lvn_const_data(args->in[0]), bytes));
    return lvni_sim_copy(args->stream, lvn_data(args->out[0]), args->workspace, bytes);
}

static lvn_status fail_plainly(const lvn_kernel_args *args)
{
    (void)args;
    LVN_FAIL(LVN_ERR_INTERNAL, "no such plan");
}

static lvn_status fail_by_name(const lvn_kernel_args *args)
{
    LVN_FAIL(LVN_ERR_INTERNAL, "%s: no such plan", args->op->name);
}

static bool supports(void *device, const lvn_kernel_args *args)
{
    assert_non_null(device);
    return strcmp(args->op->name, "sqrt") != 0 || lvn_ndim(args->in[0]) == 1;
}

static const lvn_backend_kernel kernels[] = {
    {"relu", relu, 1u << LVN_F32, 0, relu_workspace},
    {"exp", fail_plainly, 1u << LVN_F32, 0, NULL},
    {"log", fail_by_name, 1u << LVN_F32, 0, NULL},
    {"sqrt", relu, 1u << LVN_F32, 0, NULL},
};
static lvn_backend table;

static lvn_tensor *draw(void)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, 1, (const int64_t[]){WORDS});
    for (int i = 0; i < WORDS; i++) {
        LVNI_F32(t)[i] = (float)(i + n_calls);
    }
    return t;
}

static lvn_device device;

static lvn_tensor *run(lvni_kernels_op op, lvn_tensor *in)
{
    lvn_kernel_args args = {.in = {in}};
    return lvni_kernels_run(op, &args, 1) == LVN_OK ? args.out[0] : NULL;
}

/* ---- tests ---- */

/* One block is lent to all calls, none of which has to wait for the one before. */
TEST(scratch_memory_is_lent_in_stream_order)
{
    lvn_tensor *y[REPEATS];
    n_calls = 0;
    for (int i = 0; i < REPEATS; i++) {
        lvn_tensor *x = draw(), *there = lvn_to_device(x, device);
        y[i] = run(LVNI_OP_relu, there);
        assert_non_null(y[i]);
        lvn_release(there);
        lvn_release(x);
    }
    for (int i = 0; i < REPEATS; i++) {
        lvn_tensor *back = lvn_to_device(y[i], LVN_CPU);
        for (int e = 0; e < WORDS; e++) {
            assert_true(LVNI_F32(back)[e] == (float)(e + i));
        }
        lvn_release(back);
        lvn_release(y[i]);
    }
}

TEST(the_same_calls_get_the_same_addresses)
{
    lvn_tensor *x = draw(), *there = lvn_to_device(x, device);
    n_calls = 0;
    for (int i = 0; i < REPEATS; i++) {
        lvn_tensor *y = run(LVNI_OP_relu, there);
        assert_non_null(y);
        assert_true(workspace_of[i] != NULL && workspace_of[i] != y->data);
        assert_ptr_equal(workspace_of[i], workspace_of[0]);
        lvn_release(y);
    }
    lvn_release(there);
    lvn_release(x);
}

TEST(scratch_memory_may_run_out)
{
    lvni_tensor_device *d;
    lvn_tensor *x = draw(), *there = lvn_to_device(x, device);
    assert_int_equal(lvni_tensor_device_open((int)device.kind, 0, &d), LVN_OK);
    const uint64_t before = lvni_tensor_device_get_stats(d).in_use;
    lvni_tensor_device_fail_at(d, 2); /* after the result */
    assert_null(run(LVNI_OP_relu, there));
    assert_int_equal(lvn_last_error()->code, LVN_ERR_DEVICE_MEMORY);
    assert_string_equal(lvn_last_error()->frames[0], "scratch memory of relu");
    assert_int_equal(lvni_tensor_device_get_stats(d).in_use, before);
    lvn_tensor *y = run(LVNI_OP_relu, there);
    assert_non_null(y);
    lvn_release(y);
    lvn_release(there);
    lvn_release(x);
}

TEST(errors_name_device_and_op)
{
    lvn_tensor *x = draw(), *there = lvn_to_device(x, device);
    assert_null(run(LVNI_OP_exp, there));
    assert_string_equal(lvn_last_error()->message, "few:0: exp: no such plan");
    assert_null(run(LVNI_OP_log, there));
    assert_string_equal(lvn_last_error()->message, "few:0: log: no such plan");
    assert_null(run(LVNI_OP_square, there));
    assert_string_equal(lvn_last_error()->message,
                        "the backend few has no kernel for square with the inputs f32 (3000); "
                        "`levin ops` lists what each backend has");
    lvn_release(there);
    lvn_release(x);
}

/* What a real run holds, and every kernel that is missing. */
TEST(a_dry_run_asks_the_backend)
{
    lvni_tensor_device *real, *dry;
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_create(1, NULL);
    assert_int_equal(lvni_tensor_device_open((int)device.kind, 0, &real), LVN_OK);
    assert_int_equal(lvni_tensor_device_create_dry(real, &dry), LVN_OK);
    lvni_tensor_ctx_set(ctx);
    ctx->device = dry;
    const lvni_tensor_desc vector = {.dtype = LVN_F32, .ndim = 1, .shape = {WORDS}},
                           matrix = {.dtype = LVN_F32, .ndim = 2, .shape = {3, WORDS / 3}};
    lvn_tensor *x = lvni_tensor_new(&vector), *m = lvni_tensor_new(&matrix);
    const uint64_t before = lvni_tensor_device_get_stats(dry).held;
    const int calls = n_calls;
    size_t got;
    lvni_tensor_size_class(WORDS * sizeof(float), &got);
    lvn_release(run(LVNI_OP_relu, x));
    assert_int_equal(n_calls, calls);
    assert_int_equal(lvni_tensor_device_get_stats(dry).held, before + 2 * got);
    lvn_release(run(LVNI_OP_exp, x));
    lvn_release(run(LVNI_OP_sqrt, x));
    assert_int_equal(lvni_kernels_check_missing(), LVN_OK);
    lvn_release(run(LVNI_OP_square, x));
    lvn_release(run(LVNI_OP_gelu, x));
    lvn_release(run(LVNI_OP_square, m));
    lvn_release(run(LVNI_OP_sqrt, m));
    assert_int_equal(lvni_kernels_check_missing(), LVN_ERR_UNSUPPORTED);
    assert_string_equal(lvn_last_error()->message,
                        "the backend few has no kernel for square, gelu, nor for sqrt with the "
                        "inputs f32 (3, 1000); `levin ops` lists what each backend has");
    lvn_release(x);
    lvn_release(m);
    lvni_tensor_ctx_set(NULL);
    lvni_tensor_ctx_destroy(ctx);
    lvni_tensor_device_destroy_dry(dry);
    assert_int_equal(lvni_kernels_check_missing(), LVN_OK); /* of another context */
}

/* Kernels may read vectors: a part of a tensor is taken where it begins at a multiple of 16 bytes.
 */
TEST(inputs_begin_at_borders)
{
    const lvni_tensor_desc d = {.dtype = LVN_F32, .ndim = 1, .shape = {4}};
    lvn_tensor *host = lvn_tensor_create(LVN_F32, LVN_SHAPE(8)), *x = lvn_to_device(host, device);
    for (int64_t offset = 0; offset <= 4; offset++) {
        lvn_tensor *part = lvni_tensor_slice(x, offset, &d);
        const bool fits = offset % 4 == 0;
        lvn_tensor *y = run(LVNI_OP_relu, part);
        assert_true((y != NULL) == fits);
        if (!fits) {
            assert_string_equal(lvn_last_error()->message,
                                "relu: input 0 begins at an address that is not a multiple of 16 "
                                "bytes; copy it before it is used");
        }
        lvn_release(y);
        lvn_release(part);
    }
    lvn_release(host);
    lvn_release(x);
}

BEFORE_ALL()
{
    sim_start("1", "64MiB");
    table = lvni_sim_backend;
    table.name = "few";
    table.kernels = kernels;
    table.n_kernels = sizeof kernels / sizeof *kernels;
    table.supports = supports;
    if (lvni_tensor_backend_add(&table) != LVN_OK || lvn_device_find("few:0", &device) != LVN_OK) {
        return 1;
    }
    return 0;
}
