/* The functions of the NVIDIA driver (libcuda.so.1) that `levin doctor` calls, found when it runs:
 * levin is built without its headers, and no other command loads it. For this folder only. */
#ifndef LEVIN_CLI_DOCTOR_CUDA_H
#define LEVIN_CLI_DOCTOR_CUDA_H

#include "cli/doctor.h"

#include <stddef.h>

/* Each returns a CUresult, 0: done. int device: a CUdevice. */
typedef struct lvni_cli_cuda {
    int (*init)(unsigned flags);
    int (*version)(int *version); /* 13000: for CUDA 13.0 */
    int (*count)(int *n);
    int (*get)(int *device, int index);
    int (*name)(char *out, int room, int device);
    int (*uuid)(unsigned char out[16], int device);
    int (*total)(size_t *bytes, int device);
    int (*attribute)(int *value, int which, int device);
    int (*can_access)(int *can, int device, int peer);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*memory)(size_t *unused, size_t *total);
} lvni_cli_cuda;

/* "CUDA_ERROR_UNKNOWN (999)" */
const char *lvni_cli_cuda_error(int code, char out[64]);
/* doctor_devices.c: a line for each of d->n_devices, and one for what they reach of each other. */
void lvni_cli_doctor_devices(lvni_cli_doctor *d, const lvni_cli_cuda *cuda);

#endif
