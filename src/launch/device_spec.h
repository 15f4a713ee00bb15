/* What a user may write for `devices` (gpus, num_gpus, --devices), and which devices that is:
 * `all`, -1, a number k (the first k), a list 0,1 or [0,1] (these, in this order), beginnings of
 * UUIDs (GPU-..., MIG-...). Called by the launcher and at the start of train, before any device is
 * touched. */
#ifndef LEVIN_LAUNCH_DEVICE_SPEC_H
#define LEVIN_LAUNCH_DEVICE_SPEC_H

#include "core/notice.h"
#include "launch/visible_devices.h"

typedef enum lvni_launch_accelerator {
    LVNI_ACCELERATOR_AUTO, /* CUDA where a device is visible, else CPU; never sim */
    LVNI_ACCELERATOR_CPU,
    LVNI_ACCELERATOR_CUDA,
    LVNI_ACCELERATOR_SIM,
} lvni_launch_accelerator;

typedef struct lvni_launch_device_request {
    const char *key;  /* as the user wrote it, for sentences: "devices", "gpus", "--devices" */
    const char *spec; /* NULL or "auto": not given */
    lvni_launch_accelerator accelerator;
    bool gpus;         /* the old spelling `gpus`: 0 means the CPU, and a number asks for GPUs */
    bool allow_shared; /* allow_shared_device: a device may stand in the list twice */
    /* somebody else started this rank, who may show it one device of the several it asks for */
    bool launched;
    int nproc;        /* --nproc; 0: not given */
    char *const *env; /* for what E106 tells; may be NULL */
} lvni_launch_device_request;

typedef struct lvni_launch_device_choice {
    lvni_launch_accelerator accelerator; /* never AUTO */
    int n;                               /* devices of this node; on the CPU: ranks */
    int *index;                          /* n of the visible devices; NULL on the CPU */
    bool given;  /* the user said how many, or which; false: all there are */
    bool listed; /* the user said which */
    bool no_gpu; /* the CPU, because no GPU is visible: nobody asked for it */
} lvni_launch_device_choice;

/* visible: the devices of the accelerator asked for (sim: the simulated ones; AUTO: the GPUs).
 * Values that cannot be meant are LVN_ERR_USAGE with a sentence; GPUs asked for where none is
 * visible are E106. *out is to be freed. */
lvn_status lvni_launch_device_choose(const lvni_launch_device_request *request,
                                     const lvni_launch_visible *visible, lvni_core_notices *notices,
                                     lvni_launch_device_choice *out);
/* How many devices a text asks for that names so many, or as many words; 0: all there are, or it
 * cannot be read. */
int lvni_launch_device_spec_count(const char *text);
void lvni_launch_device_choice_free(lvni_launch_device_choice *choice);

/* The value of CUDA_VISIBLE_DEVICES that shows the chosen devices alone, each once, in their order:
 * "4,6", "GPU-5ae2...". A process that gets it counts anew: its choice is all of them (spec NULL),
 * not the list once more. */
void lvni_launch_device_choice_print(const lvni_launch_device_choice *choice,
                                     const lvni_launch_visible *visible, lvni_core_str *out);

#endif
