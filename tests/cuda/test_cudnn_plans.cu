/* cuDNN's plans without a GPU: the library takes the properties of a device in place of one,
 * chooses its engines, compiles them, and loads them into a driver that stands in
 * (driver_without_gpu.c). So a graph that it does not support, an engine that needs more scratch
 * memory than levin gives, and a descriptor that it refuses are found here; what the engines
 * compute is for tests/gpu. */
#include "cudnn.cuh"

#include <stdio.h>

#if CUDNN_VERSION < 91100

int main(void)
{
    printf("skipped: cuDNN %d makes no plans from properties of a device (from 9.11 on)\n",
           (int)CUDNN_VERSION);
    return 77;
}

#else

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <setjmp.h>

#include <cmocka.h>
}

/* As an H100 of 80 GB describes itself; `capability`: 100 times. */
static const char properties[] =
    "{\"deviceName\": \"test\", \"cudaDeviceId\": 0, \"deviceVer\": %d, "
    "\"multiProcessorCount\": 132, \"smCountOrigin\": 0, \"driverVer\": 13000, "
    "\"maxSharedMemoryPerBlockOptin\": %d, \"totalGlobalMem\": 85017755648, "
    "\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
    "\"regsPerBlock\": 65536, \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 2619000, "
    "\"l2CacheSize\": 52428800, \"warpSize\": 32, \"memoryBusWidth\": 5120, "
    "\"maxSharedMemoryPerBlock\": 49152, "
    "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, "
    "\"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, "
    "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"oversizedSharedMemoryPerBlock\": 0}";

/* False: the library wants to know more about a device than is written here. */
static bool describe(int capability, dnn::target *to)
{
    char text[2048];
    const int n =
        snprintf(text, sizeof text, properties, capability, capability == 800 ? 166912 : 232448);
    *to = dnn::target();
    assert_int_equal(
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &to->properties), 0);
    return cudnnBackendSetAttribute(to->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                    CUDNN_TYPE_CHAR, n, text) == CUDNN_STATUS_SUCCESS &&
           cudnnBackendFinalize(to->properties) == CUDNN_STATUS_SUCCESS;
}

static dnn::target described(int capability)
{
    dnn::target to;
    assert_true(describe(capability, &to));
    return to;
}

/* ---- attention ---- */

static head_view view_of(int64_t positions, int64_t heads, int64_t width, int64_t parts)
{
    head_view v;
    v.data = NULL;
    v.head = width;
    v.step = parts * heads * width;
    v.sample = positions * v.step;
    return v;
}

static attention_heads heads_with(int64_t samples, int64_t heads, int queries, int keys, int d,
                                  int e, bool causal, bool packed)
{
    const int64_t parts = packed ? 3 : 1;
    attention_heads h = attention_heads();
    h.samples = samples;
    h.heads = heads;
    h.queries = queries;
    h.keys = keys;
    h.d = d;
    h.e = e;
    h.causal = causal;
    h.scale = 0.125f;
    h.q = h.dq = view_of(queries, heads, d, parts);
    h.k = h.dk = view_of(keys, heads, d, parts);
    h.v = h.dv = view_of(keys, heads, e, parts);
    h.y = h.dy = view_of(queries, heads, e, 1);
    return h;
}

static void expect_attention(const dnn::target &to, const attention_heads &h)
{
    for (int gradient = 0; gradient < 2; gradient++) {
        for (int type = 0; type < 2; type++) {
            cudnnStatus_t why = CUDNN_STATUS_SUCCESS;
            if (!dnn::has_attention(to, h, type == 0 ? LVN_BF16 : LVN_F16, gradient != 0, &why)) {
                fail_msg("%s of %lld x %lld heads, %d queries, %d keys, %d and %d features%s: %s",
                         gradient ? "gradient" : "attention", (long long)h.samples,
                         (long long)h.heads, h.queries, h.keys, h.d, h.e,
                         h.causal ? ", causal" : "", cudnnGetErrorString(why));
            }
        }
    }
}

static void attention_of_hopper_has_plans(void **state)
{
    (void)state;
    const dnn::target to = described(900);
    expect_attention(to, heads_with(8, 12, 1024, 1024, 64, 64, true, true)); /* GPT-2 */
    expect_attention(to, heads_with(8, 12, 1024, 1024, 64, 64, false, false));
    expect_attention(to, heads_with(2, 3, 128, 384, 32, 72, false, false));
    expect_attention(to, heads_with(1, 1, 256, 128, 8, 8, true, false));
    expect_attention(to, heads_with(2, 16, 512, 512, 128, 128, true, true));
    expect_attention(to, heads_with(3, 12, 2048, 2048, 64, 64, true, true)); /* in turns */
}

static void other_problems_are_not_taken(void **state)
{
    (void)state;
    const dnn::target to = described(900);
    const attention_heads heads[] = {
        heads_with(2, 3, 197, 197, 64, 64, false, true), /* a tile that is not full */
        heads_with(2, 3, 128, 128, 20, 20, false, true), /* features that 8 does not divide */
        heads_with(2, 3, 128, 128, 136, 64, false, false),
        heads_with(0, 3, 128, 128, 64, 64, false, true),
    };
    for (const attention_heads &h : heads) {
        assert_int_equal(lvnc_cudnn_attention_bytes(h, LVN_BF16, false), 0);
        assert_int_equal(lvnc_cudnn_attention_bytes(h, LVN_BF16, true), 0);
        cudnnStatus_t why;
        assert_false(dnn::has_attention(to, h, LVN_BF16, true, &why));
    }
    attention_heads negative = heads_with(2, 3, 128, 128, 64, 64, true, true);
    negative.scale = -negative.scale;
    assert_int_equal(lvnc_cudnn_attention_bytes(negative, LVN_BF16, false), 0);
    const attention_heads longest = heads_with(1, 12, 8192, 8192, 64, 64, true, true);
    assert_int_equal(lvnc_cudnn_attention_bytes(longest, LVN_BF16, true),
                     0); /* a table too large */
    assert_true(lvnc_cudnn_attention_bytes(longest, LVN_BF16, false) > 0);
    assert_int_equal(lvnc_cudnn_attention_bytes(longest, LVN_F32, false), 0);
}

/* The driver fails to load the k-th program from here on, as where there is no memory. */
extern "C" void driver_without_gpu_fails_at(int k);

/* No other engine is taken then: its bits would differ. */
static void failures_choose_no_other_engine(void **state)
{
    (void)state;
    const dnn::target to = described(900);
    const attention_heads h = heads_with(2, 3, 128, 128, 64, 64, true, true);
    for (int gradient = 0; gradient < 2; gradient++) {
        cudnnStatus_t why = CUDNN_STATUS_SUCCESS;
        driver_without_gpu_fails_at(1);
        assert_false(dnn::has_attention(to, h, LVN_BF16, gradient != 0, &why));
        assert_true(dnn::is_failure(why));
        assert_true(dnn::has_attention(to, h, LVN_BF16, gradient != 0, &why));
    }
}

/* Without NVRTC its engines go without an error, so they are a matter of the device's fingerprint.
 */
static void attention_needs_nvrtc(void **state)
{
    (void)state;
    cudnnStatus_t why = CUDNN_STATUS_SUCCESS;
    const bool there = dnn::has_attention(
        described(900), heads_with(2, 3, 128, 128, 64, 64, true, true), LVN_BF16, false, &why);
    print_message("NVRTC %d\n", lvnc_nvrtc_version());
    assert_int_equal(there, lvnc_nvrtc_version() > 0);
    assert_true(there || !dnn::is_failure(why));
}

/* ---- convolutions ---- */

static void expect_conv(const dnn::target &to, int side, int i, int o, int kernel, int stride,
                        lvn_dtype type)
{
    lvnc_conv c;
    memset(&c, 0, sizeof c);
    c.type = type;
    c.n = 8;
    c.h = c.w = side;
    c.i = i;
    c.o = o;
    c.kh = c.kw = kernel;
    c.groups = 1;
    c.stride[0] = c.stride[1] = stride;
    c.padding[0] = c.padding[1] = kernel / 2;
    c.dilation[0] = c.dilation[1] = 1;
    c.oh = c.ow = (side + 2 * (kernel / 2) - kernel) / stride + 1;
    static const lvnc_conv_kind kinds[] = {LVNC_CONV_Y, LVNC_CONV_X, LVNC_CONV_W};
    for (lvnc_conv_kind kind : kinds) {
        c.kind = kind;
        c.result_type = type;
        cudnnStatus_t why = CUDNN_STATUS_SUCCESS;
        if (!dnn::has_conv(to, c, &why)) {
            lvnc_conv_print(c);
            fail_msg("no plan: %s", cudnnGetErrorString(why));
        }
        /* each by its number, as a resumed run asks for it */
        const int n = dnn::count_conv_candidates(to, c);
        print_message("%d candidates\n", n);
        assert_true(n >= 1);
    }
}

static void convolutions_of_resnet_have_plans(void **state)
{
    (void)state;
    static const int capabilities[] = {800, 900, 1000};
    for (int capability : capabilities) {
        const dnn::target to = described(capability);
        for (int type = 0; type < 2; type++) {
            const lvn_dtype t = type == 0 ? LVN_BF16 : LVN_F32;
            expect_conv(to, 56, 64, 64, 3, 1, t);
            expect_conv(to, 56, 128, 128, 3, 2, t);
        }
        expect_conv(to, 224, 3, 64, 7, 2, LVN_BF16);
    }
}

/* usage: test_cudnn_plans [without-nvrtc], where the loader finds an empty one */
int main(int n, char **argument)
{
    const bool without_nvrtc = n > 1 && strcmp(argument[1], "without-nvrtc") == 0;
    dnn::target to;
    if (cudnnGetVersion() < 91100 || !describe(900, &to)) {
        printf("skipped: cuDNN %zu makes no plans from what this test knows of a device\n",
               cudnnGetVersion());
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_of_hopper_has_plans),
        cmocka_unit_test(failures_choose_no_other_engine),
        cmocka_unit_test(other_problems_are_not_taken),
        cmocka_unit_test(attention_needs_nvrtc),
        cmocka_unit_test(convolutions_of_resnet_have_plans),
    };
    const struct CMUnitTest of_nvrtc[] = {cmocka_unit_test(attention_needs_nvrtc)};
    const struct CMUnitTest convolutions[] = {cmocka_unit_test(convolutions_of_resnet_have_plans)};
    const int nvrtc = lvnc_nvrtc_version();
    if (without_nvrtc && nvrtc != 0) {
        printf("failed: NVRTC %d was found in spite of the empty one\n", nvrtc);
        return 1;
    }
    if (without_nvrtc) {
        return cmocka_run_group_tests_name("cudnn_plans without NVRTC", of_nvrtc, NULL, NULL);
    }
    if (nvrtc < 12050) {
        printf("without attention, which cuDNN makes with NVRTC from 12.5 on: here %d\n", nvrtc);
        return cmocka_run_group_tests_name("cudnn_plans", convolutions, NULL, NULL);
    }
    return cmocka_run_group_tests_name("cudnn_plans", tests, NULL, NULL);
}

#endif
