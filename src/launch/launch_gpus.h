/* The GPUs of this machine as the kernel's file systems tell them: no driver library is loaded for
 * that. */
#ifndef LEVIN_LAUNCH_LAUNCH_GPUS_H
#define LEVIN_LAUNCH_LAUNCH_GPUS_H

#include <levin/status.h>

typedef struct lvni_launch_gpu {
    char pci[32];  /* "0000:3b:00.0"; "": unknown */
    char uuid[64]; /* "GPU-..."; "": unknown */
    int numa;      /* -1: unknown */
} lvni_launch_gpu;

/* Those with a device file under root/dev, in the order of their PCI addresses. root: "" but in
 * tests. *gpus: lvni_core_free. */
lvn_status lvni_launch_gpus_find(const char *root, lvni_launch_gpu **gpus, int *n);

#endif
