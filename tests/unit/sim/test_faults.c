/* Errors of a device's streams as levin/backend.h has them: they go with events, to other devices
 * too, and a stream that left something out keeps its error until it is cleared itself.
 * usage: test_faults [KIND]     a backend with two devices or more: sim, cudahost */
#include "sim_support.h"

#include <levin/ops.h>
#include <stdlib.h>
#include <string.h>

static const char *kind = "sim";
static lvni_tensor_device *device[2];
static const lvn_backend *backend;
static void *stream[2];  /* of this thread */
static lvn_tensor *x[2]; /* six ones */

/* ---- what fails ---- */

static lvn_tensor *ones(int index)
{
    lvn_tensor *t = lvn_tensor_create(LVN_F32, LVN_SHAPE(2, 3));
    for (int i = 0; i < 6; i++) {
        LVNI_F32(t)[i] = 1.0f;
    }
    lvn_tensor *there = lvni_tensor_to(t, device[index]);
    lvn_release(t);
    assert_non_null(there);
    return there;
}

/* On the first device. */
static void raise_label(void)
{
    lvn_tensor *labels = lvn_tensor_create(LVN_I64, LVN_SHAPE(2));
    ((int64_t *)labels->data)[1] = 7;
    lvn_tensor *there = lvni_tensor_to(labels, device[0]);
    lvn_release(labels);
    assert_non_null(lvn_cross_entropy(x[0], there));
    lvn_release(there);
}

static void assert_label(lvn_status status)
{
    assert_int_equal(status, LVN_ERR_INVALID);
    if (strstr(lvn_last_error()->message, "cross_entropy: the label of row 1 is 7") == NULL) {
        fail_msg("%s", lvn_last_error()->message);
    }
}

static void zero(void *on, int index)
{
    assert_int_equal(backend->zero(on, lvn_data(x[index]), 6 * sizeof(float)), LVN_OK);
}

/* ---- tests ---- */

TEST(an_error_goes_to_a_device_that_follows)
{
    void *event;
    assert_int_equal(backend->event_create(lvni_tensor_device_state(device[0]), &event), LVN_OK);
    raise_label();
    assert_int_equal(backend->event_record(event, stream[0]), LVN_OK);
    assert_int_equal(backend->event_follow(stream[1], event), LVN_OK);
    zero(stream[1], 1);
    assert_label(backend->stream_wait(stream[1]));
    assert_true(backend->stream_failed(stream[1]));
    assert_label(lvn_device_wait()); /* clears both */
    assert_int_equal(backend->event_record(event, stream[0]), LVN_OK);
    assert_int_equal(backend->event_follow(stream[1], event), LVN_OK);
    zero(stream[1], 1);
    assert_int_equal(lvn_device_wait(), LVN_OK);
    assert_false(backend->stream_failed(stream[1]));
    backend->event_destroy(event);
}

TEST(one_that_does_not_follow_goes_on)
{
    raise_label();
    zero(stream[1], 1);
    assert_int_equal(backend->stream_wait(stream[1]), LVN_OK);
    assert_label(backend->stream_wait(stream[0]));
    assert_label(lvn_device_wait());
}

/* `other` submits after the error, `idle` only before it. */
TEST(a_stream_that_is_cleared_clears_itself_alone)
{
    void *of = lvni_tensor_device_state(device[0]), *other, *idle;
    assert_int_equal(backend->stream_create(of, LVN_STREAM_COMPUTE, &other), LVN_OK);
    assert_int_equal(backend->stream_create(of, LVN_STREAM_COMPUTE, &idle), LVN_OK);
    zero(idle, 0);
    assert_int_equal(backend->stream_wait(idle), LVN_OK);
    raise_label();
    zero(other, 0);
    assert_label(backend->stream_wait(stream[0]));
    assert_label(
        backend->stream_wait(other)); /* all that depends on the error, before it is cleared */
    assert_int_equal(backend->stream_wait(idle), LVN_OK);
    backend->stream_clear(idle);
    assert_label(lvn_device_wait());
    assert_int_equal(backend->stream_wait(stream[0]), LVN_OK);
    assert_int_equal(backend->stream_wait(idle), LVN_OK);
    assert_true(backend->stream_failed(other));
    assert_label(backend->stream_wait(other));
    backend->stream_clear(other);
    zero(other, 0);
    assert_int_equal(backend->stream_wait(other), LVN_OK);
    backend->stream_destroy(other);
    backend->stream_destroy(idle);
}

/* The last one, as the device stays lost. */
TEST(a_lost_device_fails_what_follows_it)
{
    void *event;
    if (strcmp(kind, "cudahost") != 0) {
        skip();
    }
    assert_int_equal(backend->event_create(lvni_tensor_device_state(device[0]), &event), LVN_OK);
    setenv("CUDA_ON_HOST_FAIL_DEVICE", "0", 1);
    setenv("CUDA_ON_HOST_FAIL", "lost", 1);
    zero(stream[0], 0);
    assert_int_equal(backend->event_record(event, stream[0]), LVN_OK);
    assert_int_equal(backend->event_follow(stream[1], event), LVN_OK);
    zero(stream[1], 1);
    assert_int_equal(backend->stream_wait(stream[1]), LVN_ERR_RESOURCE);
    assert_string_equal(lvn_last_error()->message,
                        "cudahost:0: the device is lost, and work of cudahost:1 depends on it");
    assert_int_equal(backend->stream_wait(stream[0]), LVN_ERR_RESOURCE);
    backend->event_destroy(event);
}

BEFORE_ALL()
{
    lvn_device first;
    if (lvn_device_find(kind, &first) != LVN_OK) {
        print_error("%s\n", lvn_last_error()->message);
        return -1;
    }
    for (int i = 1; i >= 0; i--) {
        assert_int_equal(lvni_tensor_device_open(first.kind, i, &device[i]), LVN_OK);
        stream[i] = lvni_tensor_device_stream(device[i]);
        x[i] = ones(i);
    }
    backend = lvni_tensor_device_backend(device[0]);
    return (int)lvn_device_wait();
}

AFTER_ALL()
{
    lvn_release(x[0]);
    lvn_release(x[1]);
    return 0;
}

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : kind;
    sim_start("2", "32MiB");
    return test_main(1, argv);
}
