/* Devices: where tensors lie and ops compute. A module never asks (a module that runs on the CPU
 * runs on every device); this header is for programs that set up devices.
 *
 * LVN_SIM(i) is a simulated accelerator for machines without one: LEVIN_SIM_DEVICES=4
 * LEVIN_SIM_MEMORY=2GiB in the environment gives four devices with memory of their own that the
 * host cannot touch, a limit that really runs out, and a stream that computes in order beside the
 * host, with the kernels of the CPU and so with its bits. */
#ifndef LEVIN_DEVICE_H
#define LEVIN_DEVICE_H

#include <levin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of backends. Others than these are loaded by name (lvn_device_find) and get the numbers
 * from LVN_DEVICE_LOADED on. ref computes in double precision on the host, dry has no memory:
 * neither has devices that one could use. */
typedef enum lvn_device_kind {
    LVN_DEVICE_CPU,
    LVN_DEVICE_SIM,
    LVN_DEVICE_REF,
    LVN_DEVICE_DRY,
    LVN_DEVICE_LOADED
} lvn_device_kind;

typedef struct lvn_device {
    lvn_device_kind kind;
    int index; /* from 0; of the CPU always 0 */
} lvn_device;

enum { LVN_SIM_MOST = 32 }; /* simulated devices in a process */

#define LVN_CPU ((lvn_device){LVN_DEVICE_CPU, 0})
#define LVN_SIM(number) ((lvn_device){LVN_DEVICE_SIM, (number)})

LVN_API int lvn_device_count(lvn_device_kind kind); /* LVN_DEVICE_CPU: 1 */

/* The device of a name: "cpu", "sim:1", or one of a backend in a shared object, which is loaded
 * from LEVIN_BACKEND_PATH (levin/backend.h); without a number the first. LVN_ERR_NOT_FOUND. */
LVN_API lvn_status lvn_device_find(const char *name, lvn_device *out);

/* From now on what the calling thread's ops make lies on `device`, and they compute there; inputs
 * in host memory are copied to it. At first: LVN_CPU. LVN_ERR_NOT_FOUND when there is no such
 * device. */
LVN_API lvn_status lvn_device_use(lvn_device device);
LVN_API lvn_device lvn_device_in_use(void);

LVN_API lvn_device lvn_tensor_device(const lvn_tensor *t); /* LVN_CPU for NULL */
/* A copy of t on `device`, without t's history on the tape; owned by the caller. Onto the CPU:
 * waits for what computes t. NULL (and the thread's error) on failure; LVN_ERR_DEVICE_MEMORY when
 * the device is full. */
LVN_API lvn_tensor *lvn_to_device(const lvn_tensor *t, lvn_device device);

/* Wait for all that the calling thread has asked of devices. Devices compute later than ops return:
 * an error of a kernel shows at the next wait, or at the end of the outermost scope; what the
 * thread asked for after it was left out. The first error counts. */
LVN_API lvn_status lvn_device_wait(void);

#ifdef __cplusplus
}
#endif
#endif
