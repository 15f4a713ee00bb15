/* Helpers of the tests of the simulated accelerator (sim_support.h). */
#include "sim_support.h"

#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sim_start(const char *devices, const char *memory)
{
    setenv("LEVIN_SIM_DEVICES", devices, 1);
    setenv("LEVIN_SIM_MEMORY", memory, 1);
    if (lvni_cpu_start() != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        exit(1);
    }
}

lvn_tensor *sim_put(const lvn_tensor *t)
{
    lvn_tensor *copy = t == NULL ? NULL : lvn_to_device(t, LVN_SIM(0));
    if (t != NULL && copy == NULL) {
        fail_msg("%s", lvn_last_error()->message);
    }
    return copy;
}

void assert_same_bits(const char *what, const lvn_tensor *a, const lvn_tensor *b)
{
    if (b == NULL || lvn_tensor_device(b).kind != LVN_DEVICE_SIM) {
        fail_msg("%s: %s", what,
                 b == NULL ? lvn_last_error()->message : "the result is not on the device");
        return;
    }
    lvn_tensor *here = lvn_to_device(b, LVN_CPU);
    if (here == NULL) {
        fail_msg("%s: %s", what, lvn_last_error()->message);
        return;
    }
    assert_int_equal(a->dtype, here->dtype);
    assert_true(lvni_tensor_same_shape(a, here));
    if (memcmp(a->data, here->data, (size_t)lvn_numel(a) * lvn_dtype_size(a->dtype)) != 0) {
        fail_msg("%s: the device gives other bits than the cpu", what);
    }
    lvn_release(here);
}
