/* Dry runs: every op in every case gives results of the right shape, takes what a real run takes,
 * and touches nothing. */
#include "case_support.h"
#include "sim_support.h"

#include "tensor/ctx.h"
#include "tensor/device_blocks.h"
#include "tensor/device_impl.h"
#include "tensor/large_blocks.h"

#include <string.h>
#include <sys/mman.h>

enum { TEAM = 2 };

static lvni_tensor_ctx *open_real(void)
{
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_create(TEAM, NULL);
    assert_non_null(ctx);
    lvni_tensor_ctx_set(ctx);
    return ctx;
}

/* A dry device whose addresses must not be read, and a context on it, which has a block of OWN
 * bytes. */
enum { OWN = 4 << 20 };
static lvn_tensor *own;
static lvni_tensor_ctx *open_dry(lvni_tensor_device **device)
{
    lvni_tensor_ctx *ctx = open_real();
    assert_int_equal(lvni_tensor_device_create_dry(NULL, device), LVN_OK);
    ctx->device = *device;
    const lvni_tensor_desc d = {.dtype = LVN_F32, .ndim = 1, .shape = {OWN / sizeof(float)}};
    own = lvni_tensor_new(&d);
    const lvni_tensor_segment *all = (*device)->segments; /* one, as large as its memory */
    assert_int_equal(mprotect(all->p, all->bytes, PROT_NONE), 0);
    return ctx;
}

static void close_dry(lvni_tensor_ctx *ctx, lvni_tensor_device *device)
{
    lvn_release(own);
    lvni_tensor_ctx_destroy(ctx);
    lvni_tensor_device_destroy_dry(device);
    lvni_tensor_ctx_set(NULL);
}

/* Inputs of the same shapes on the dry device. */
static void move(lvn_tensor *const *in, lvn_tensor **there)
{
    for (int i = 0; i < LVN_KERNEL_INPUTS; i++) {
        const lvni_tensor_desc d =
            in[i] == NULL ? (lvni_tensor_desc){.dtype = LVN_F32} : lvni_tensor_get_desc(in[i]);
        there[i] = in[i] == NULL ? NULL : support_keep(lvni_tensor_new(&d));
    }
}

/* What a run takes: scratch memory; tensors, those of the kernel's own with them: elements, and
 * what describes them in host memory. */
typedef struct taken {
    uint64_t scratch, tensors;
} taken;

static taken taken_now(const lvni_tensor_ctx *ctx)
{
    return (taken){.scratch = lvni_cpu_get_need().scratch,
                   .tensors =
                       lvni_tensor_cache_bytes(ctx->cache) +
                       (ctx->device == NULL ? 0 : lvni_tensor_device_get_stats(ctx->device).held)};
}

static bool is_empty(lvni_kernels_op op, const lvn_kernel_args *args)
{
    bool empty = false;
    for (int i = 0; i < LVN_KERNEL_INPUTS + lvni_kernels_ops[op].n_out; i++) {
        const lvn_tensor *t =
            i < LVN_KERNEL_INPUTS ? args->in[i] : args->out[i - LVN_KERNEL_INPUTS];
        empty = empty || (t != NULL && lvn_numel(t) == 0);
    }
    return empty;
}

/* An op's row for real, and dry with inputs of the same shapes. */
static void run_both(lvni_kernels_op op, const lvni_check_case *row)
{
    lvn_tensor *in64[LVN_KERNEL_INPUTS], *in32[LVN_KERNEL_INPUTS], *there[LVN_KERNEL_INPUTS];
    lvni_tensor_device *device;
    case_inputs(op, row, in64, in32);
    lvni_tensor_ctx *real = open_real();
    const lvn_kernel_args want = case_run(op, row, in32);
    const taken need = taken_now(real);
    lvni_tensor_ctx *ctx = open_dry(&device);
    move(in32, there);
    const taken before = taken_now(ctx);
    const lvn_kernel_args have = case_run(op, row, there);
    const taken reported = taken_now(ctx);
    for (int k = 0; k < lvni_kernels_ops[op].n_out; k++) {
        assert_ptr_equal(lvni_tensor_device_of(have.out[k]->data), device);
        assert_int_equal(have.out[k]->dtype, want.out[k]->dtype);
        assert_true(lvni_tensor_same_shape(have.out[k], want.out[k]));
    }
    if (!is_empty(op, &want) &&
        (need.scratch != reported.scratch || need.tensors != reported.tensors - before.tensors)) {
        fail_msg("%s, case \"%s\" takes %llu bytes of scratch memory and %llu of tensors; a dry "
                 "run reports %llu and %llu (LVNI_DRY in ops.def)",
                 lvni_kernels_ops[op].name, row->name, (unsigned long long)need.scratch,
                 (unsigned long long)need.tensors, (unsigned long long)reported.scratch,
                 (unsigned long long)(reported.tensors - before.tensors));
    }
    move(in64, there);
    case_run(op, row, there);
    support_release(NULL);
    close_dry(ctx, device);
    lvni_tensor_ctx_destroy(real);
}

static void a_dry_run_touches_nothing_and_reports_what_a_real_one_takes(void **state)
{
    const lvni_kernels_op op = (lvni_kernels_op)(uintptr_t)*state;
    for (int c = 0; c < lvni_check_all[op].n; c++) {
        run_both(op, &lvni_check_all[op].rows[c]);
    }
}

TEST(size_classes_waste_little)
{
    size_t got, again;
    int last = 0;
    assert_int_equal(lvni_tensor_size_class(1, &got), 0);
    assert_int_equal(got, 256);
    for (size_t bytes = 257; bytes <= LVNI_SIZE_LIMIT; bytes += bytes / 97 + 1) {
        const int k = lvni_tensor_size_class(bytes, &got);
        assert_int_in_range(got, bytes, bytes + bytes / (bytes > (size_t)1 << 20 ? 16 : 4));
        assert_int_in_range(k, last, last + 1); /* none is left out */
        assert_int_equal(lvni_tensor_size_class(got, &again), k);
        assert_int_equal(again, got);
        last = k;
    }
    assert_int_equal(lvni_tensor_size_class(LVNI_SIZE_LIMIT, &got), LVNI_SIZE_CLASSES - 1);
    assert_int_equal(got, LVNI_SIZE_LIMIT);
}

static void *take_on_host(lvni_tensor_cache *cache, size_t bytes, size_t *got)
{
    lvni_tensor_large *large;
    assert_int_equal(lvni_tensor_cache_large(cache, &large), LVN_OK);
    assert_non_null(large);
    return bytes < LVNI_LARGE_BLOCK ? lvni_tensor_cache_take(cache, bytes, got)
                                    : lvni_tensor_large_take(large, bytes);
}

static void give_on_host(lvni_tensor_cache *cache, size_t bytes, void *p, size_t got)
{
    lvni_tensor_large *large;
    assert_int_equal(lvni_tensor_cache_large(cache, &large), LVN_OK);
    if (bytes < LVNI_LARGE_BLOCK) {
        lvni_tensor_cache_give(cache, p, got);
    } else {
        lvni_tensor_large_give(large, p);
    }
}

static size_t bytes_of(int round, int i)
{
    return (size_t)i * (size_t)i * 997 + (size_t)round * 400;
}

/* The same sequence of tensors in a cache and on a dry device: the same bytes. */
TEST(a_dry_device_counts_as_the_cache_does)
{
    lvni_tensor_device *device;
    lvni_tensor_ctx *ctx = open_dry(&device);
    lvni_tensor_cache *cache = lvni_tensor_cache_create();
    void *here[40], *there[40];
    size_t got[40], same[40];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 40; i++) {
            const size_t bytes = bytes_of(round, i);
            here[i] = take_on_host(cache, bytes, &got[i]);
            there[i] = lvni_tensor_device_take(device, LVN_STREAM_COMPUTE, bytes, &same[i]);
            assert_int_equal(same[i], lvni_tensor_device_round(bytes));
        }
        for (int i = 0; i < 40; i++) {
            give_on_host(cache, bytes_of(round, i), here[i], got[i]);
            lvni_tensor_device_give(device, LVN_STREAM_COMPUTE, false, there[i], same[i]);
        }
        const lvni_tensor_device_stats s = lvni_tensor_device_get_stats(device);
        assert_int_equal(s.held, lvni_tensor_cache_bytes(cache) + OWN);
        assert_int_equal(s.in_use, OWN);
    }
    lvni_tensor_cache_destroy(cache);
    close_dry(ctx, device);
}

/* What kernels would take is reported, and numbers that the host asks for are zeros. */
TEST(scratch_and_numbers)
{
    lvni_tensor_device *device;
    const lvni_check_case *row = &lvni_check_all[LVNI_OP_conv2d].rows[0];
    lvn_tensor *in64[LVN_KERNEL_INPUTS], *in32[LVN_KERNEL_INPUTS], *there[LVN_KERNEL_INPUTS];
    case_inputs(LVNI_OP_conv2d, row, in64, in32);
    lvni_tensor_ctx *ctx = open_dry(&device);
    move(in32, there);
    there[1]->param = 0;
    case_run(LVNI_OP_conv2d, row, there);
    const lvni_cpu_need once = lvni_cpu_get_need();
    case_run(LVNI_OP_conv2d, row, there);
    const lvni_cpu_need twice = lvni_cpu_get_need();
    assert_true(once.scratch > 0 || once.weights > 0);
    assert_int_equal(once.scratch, twice.scratch);
    assert_int_equal(once.weights, twice.weights);
    const lvni_tensor_desc d = {.dtype = LVN_F32, .ndim = 0};
    assert_true(lvn_item(support_keep(lvni_tensor_new(&d))) == 0.0);
    support_release(NULL);
    close_dry(ctx, device);
}

int main(int argc, char **argv)
{
    sim_start("0", "1MiB");
    for (uintptr_t op = 0; op < LVNI_OP_COUNT; op++) {
        test_add((test_case){__FILE__, 0, lvni_kernels_ops[op].name,
                             a_dry_run_touches_nothing_and_reports_what_a_real_one_takes, NULL,
                             support_release, (void *)op});
    }
    return test_main(argc, argv);
}
