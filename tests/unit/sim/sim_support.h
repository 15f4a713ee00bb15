/* What the tests of the simulated accelerator share. */
#ifndef LEVIN_TESTS_SIM_SUPPORT_H
#define LEVIN_TESTS_SIM_SUPPORT_H

#include "kernels/sim/sim.h"
#include "tensor/device.h"
#include "tensor/tensor.h"
#include "support/test.h"

/* First thing in main: devices of this size ("64MiB"). */
void sim_start(const char *devices, const char *memory);
/* t on sim device 0, or NULL for NULL; the caller's. */
lvn_tensor *sim_put(const lvn_tensor *t);
/* The test fails unless b, on a device, has the type, shape and bits of a. */
void assert_same_bits(const char *what, const lvn_tensor *a, const lvn_tensor *b);

#endif
