/* DLPack: what others give is shared where it can be and copied where it cannot, their deleter runs
 * once, and what levin gives lives until its deleter is called. */
#include "kernels/kernels.h"
#include "support/test.h"

#include <levin/device.h>
#include <levin/dlpack.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int deleted;
static const void *deleted_self;

static void on_delete(lvn_dlpack *self)
{
    deleted++;
    deleted_self = self;
}

static void on_delete_old(lvn_dlpack_old *self)
{
    deleted++;
    deleted_self = self;
}

static const double numbers[6] = {1, 2, 3, 4, 5, 6};
static int64_t shape[2] = {2, 3};

/* f64 (2, 3) over `data` */
static lvn_dlpack foreign(const void *data, int64_t *strides)
{
    deleted = 0;
    return (lvn_dlpack){.major = 1,
                        .deleter = on_delete,
                        .tensor = {.data = (void *)(uintptr_t)data,
                                   .device_type = 1,
                                   .ndim = 2,
                                   .code = 2,
                                   .bits = 64,
                                   .lanes = 1,
                                   .shape = shape,
                                   .strides = strides}};
}

static void assert_holds(const lvn_tensor *t, const double want[6])
{
    assert_non_null(t);
    assert_int_equal(lvn_tensor_dtype(t), LVN_F64);
    assert_true(lvn_ndim(t) == 2 && lvn_size(t, 0) == 2 && lvn_size(t, 1) == 3);
    assert_memory_equal(lvn_const_data(t), want, 6 * sizeof *want);
}

TEST(memory_is_shared_and_deleted_once)
{
    int64_t strides[2] = {3, 1};
    for (int i = 0; i < 2; i++) {
        lvn_dlpack from = foreign(numbers, i == 0 ? NULL : strides);
        lvn_tensor *t = lvn_from_dlpack(&from);
        assert_holds(t, numbers);
        assert_ptr_equal(lvn_const_data(t), numbers);
        lvn_release(lvn_retain(t));
        assert_int_equal(deleted, 0);
        lvn_release(t);
        assert_int_equal(deleted, 1);
        assert_ptr_equal(deleted_self, &from);
    }
    lvn_dlpack from = foreign(numbers, NULL);
    lvn_dlpack_old old = {.tensor = from.tensor, .deleter = on_delete_old};
    lvn_tensor *t = lvn_from_dlpack_old(&old);
    assert_ptr_equal(lvn_const_data(t), numbers);
    lvn_release(t);
    assert_int_equal(deleted, 1);
    assert_ptr_equal(deleted_self, &old);
    from.deleter = NULL;
    t = lvn_from_dlpack(&from);
    assert_holds(t, numbers);
    lvn_release(t);
}

TEST(an_offset_counts_and_axes_of_one_do_not)
{
    double more[8] = {-1, -1};
    memcpy(more + 2, numbers, sizeof numbers);
    lvn_dlpack from = foreign(more, NULL);
    from.tensor.byte_offset = 2 * sizeof *more;
    lvn_tensor *t = lvn_from_dlpack(&from);
    assert_holds(t, numbers);
    assert_ptr_equal(lvn_const_data(t), more + 2);
    lvn_release(t);
    int64_t one[3] = {2, 1, 3}, odd[3] = {3, 77, 1};
    from.tensor.ndim = 3;
    from.tensor.shape = one;
    from.tensor.strides = odd;
    t = lvn_from_dlpack(&from);
    assert_ptr_equal(lvn_const_data(t), more + 2);
    lvn_release(t);
}

TEST(what_cannot_be_shared_is_copied)
{
    static const double columns[6] = {1, 4, 2, 5, 3, 6}, turned[6] = {6, 5, 4, 3, 2, 1};
    int64_t by_column[2] = {1, 2}, backwards[2] = {-3, -1};
    unsigned char odd[6 * sizeof(double) + 1];
    memcpy(odd + 1, numbers, sizeof numbers);
    lvn_dlpack from[4] = {foreign(columns, by_column), foreign(turned, backwards),
                          foreign(numbers, NULL), foreign(odd + 1, NULL)};
    from[1].tensor.byte_offset = 5 * sizeof(double);
    from[2].flags = LVN_DLPACK_READ_ONLY;
    for (int i = 0; i < 4; i++) {
        deleted = 0;
        lvn_tensor *t = lvn_from_dlpack(&from[i]);
        assert_holds(t, numbers);
        assert_ptr_not_equal(lvn_const_data(t), (char *)from[i].tensor.data);
        assert_int_equal(deleted, 1);
        lvn_release(t);
        assert_int_equal(deleted, 1);
    }
    int64_t none[2] = {0, 3};
    lvn_dlpack empty = foreign(NULL, NULL);
    empty.tensor.shape = none;
    lvn_tensor *t = lvn_from_dlpack(&empty);
    assert_true(t != NULL && lvn_numel(t) == 0 && lvn_size(t, 1) == 3 && deleted == 1);
    lvn_release(t);
}

static void refused(lvn_dlpack from, lvn_status status, const char *part)
{
    deleted = 0;
    assert_null(lvn_from_dlpack(&from));
    assert_int_equal(lvn_last_error()->code, status);
    if (strstr(lvn_last_error()->message, part) == NULL) {
        fail_msg("no \"%s\" in: %s", part, lvn_last_error()->message);
    }
    assert_int_equal(deleted, 0); /* still the caller's */
}

TEST(what_levin_does_not_have_is_refused)
{
    int64_t seven[7] = {1, 1, 1, 1, 1, 1, 6}, negative[2] = {-2, -3},
            huge[2] = {INT64_C(1) << 40, INT64_C(1) << 40};
    assert_null(lvn_from_dlpack(NULL));
    assert_null(lvn_from_dlpack_old(NULL));
    assert_int_equal(lvn_last_error()->code, LVN_ERR_INVALID);
    lvn_dlpack from = foreign(numbers, NULL);
    from.tensor.device_type = 2;
    refused(from, LVN_ERR_UNSUPPORTED, "lies on a device (of DLPack's type 2)");
    from = foreign(numbers, NULL);
    from.major = 2;
    refused(from, LVN_ERR_UNSUPPORTED, "version 2.0");
    from = foreign(numbers, NULL);
    from.tensor.code = 0;
    from.tensor.bits = 16;
    refused(from, LVN_ERR_DTYPE, "type code 0 with 16 bits and 1 lanes");
    from = foreign(numbers, NULL);
    from.tensor.lanes = 2;
    refused(from, LVN_ERR_DTYPE, "2 lanes");
    from = foreign(numbers, NULL);
    from.tensor.ndim = 7;
    from.tensor.shape = seven;
    refused(from, LVN_ERR_INVALID, "0 to 6 axes, not 7");
    from = foreign(numbers, NULL);
    from.tensor.shape = negative;
    refused(from, LVN_ERR_INVALID, "axis 0 has the size -2");
    from = foreign(numbers, NULL);
    from.tensor.shape = huge;
    refused(from, LVN_ERR_INVALID, "larger than memory");
    from = foreign(NULL, NULL);
    refused(from, LVN_ERR_INVALID, "data of 6 elements is NULL");
    from = foreign(numbers, NULL);
    from.tensor.shape = NULL;
    refused(from, LVN_ERR_INVALID, "the shape is NULL");
}

TEST(every_type_goes_there_and_back)
{
    static const uint8_t code[LVN_DTYPE_COUNT] = {2, 2, 0, 0, 1, 6, 4, 2};
    for (int type = 0; type < LVN_DTYPE_COUNT; type++) {
        lvn_tensor *t = lvn_tensor_create((lvn_dtype)type, LVN_SHAPE(3, 2));
        memset(lvn_data(t), 1 + type, 6 * lvn_dtype_size((lvn_dtype)type));
        for (int i = 0; i < 2; i++) {
            lvn_dlpack *now = i == 0 ? lvn_to_dlpack(t, (uint64_t)(type % 2)) : NULL;
            lvn_dlpack_old *old = i == 1 ? lvn_to_dlpack_old(t) : NULL;
            const lvn_dlpack_tensor *out = i == 0 ? &now->tensor : &old->tensor;
            assert_true(out->code == code[type] && out->lanes == 1 && out->device_type == 1);
            assert_int_equal(out->bits, 8 * lvn_dtype_size((lvn_dtype)type));
            assert_true(out->shape[0] == 3 && out->strides[0] == 2 && out->strides[1] == 1);
            assert_true(i == 1 || (now->flags == (uint64_t)(type % 2) && now->major == 1));
            lvn_tensor *back = i == 0 ? lvn_from_dlpack(now) : lvn_from_dlpack_old(old);
            assert_int_equal(lvn_tensor_dtype(back), type);
            assert_memory_equal(lvn_const_data(back), lvn_const_data(t),
                                6 * lvn_dtype_size((lvn_dtype)type));
            /* shared, except what must not be written */
            assert_int_equal(lvn_const_data(back) == lvn_const_data(t), i == 1 || type % 2 == 0);
            lvn_release(back);
        }
        lvn_release(t);
    }
}

static void *call_deleter(void *argument)
{
    lvn_dlpack *out = argument;
    out->deleter(out);
    return NULL;
}

TEST(what_others_hold_outlives_the_tensor)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, 0, NULL);
    float *value = lvn_data(t);
    *value = 42.0f;
    lvn_dlpack *out = lvn_to_dlpack(t, 0);
    lvn_release(t);
    assert_true(out->tensor.ndim == 0 && *(const float *)out->tensor.data == 42.0f);
    *value = 43.0f;
    pthread_t thread; /* of another library */
    assert_int_equal(pthread_create(&thread, NULL, call_deleter, out), 0);
    pthread_join(thread, NULL);
    assert_null(lvn_to_dlpack(NULL, 0));
    assert_null(lvn_to_dlpack_old(NULL));
}

TEST(memory_of_a_device_is_refused)
{
    lvn_tensor *host = lvn_tensor_create(LVN_F32, LVN_SHAPE(4)),
               *there = lvn_to_device(host, LVN_SIM(0));
    assert_non_null(there);
    assert_null(lvn_to_dlpack(there, 0));
    assert_int_equal(lvn_last_error()->code, LVN_ERR_UNSUPPORTED);
    assert_non_null(strstr(lvn_last_error()->message, "lies on sim:0"));
    assert_null(lvn_to_dlpack_old(there));
    lvn_release(there);
    lvn_release(host);
}

BEFORE_ALL()
{
    setenv("LEVIN_SIM_DEVICES", "1", 1);
    setenv("LEVIN_SIM_MEMORY", "16MiB", 1);
    return lvni_cpu_backend.on_host ? 0 : -1; /* and with it all backends are linked */
}
