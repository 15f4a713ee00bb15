/* Which devices a process may use, and which of them `devices` (gpus, num_gpus, --devices) names:
 * `all`, -1, a number k (the first k), a list 0,1 or [0,1] (these, in this order), beginnings of
 * UUIDs (GPU-..., MIG-...). Called by the launcher and at the start of train, before any device is
 * touched; nothing here loads a driver. */
#ifndef LEVIN_LAUNCH_DEVICE_SPEC_H
#define LEVIN_LAUNCH_DEVICE_SPEC_H

#include "core/error.h"
#include "core/str.h"

/* The devices of the machine, restricted and ordered by CUDA_VISIBLE_DEVICES, which holds for
 * simulated devices (LEVIN_SIM_DEVICES) in the same way. How many there are, and their UUIDs where
 * known, come from the caller. */
typedef struct lvni_launch_visible_device {
    int physical; /* its number on the machine; -1: known by its UUID alone */
    char *name;   /* how CUDA_VISIBLE_DEVICES names it: "4", "GPU-5ae2...", "MIG-..." */
    char *uuid;   /* NULL: unknown */
} lvni_launch_visible_device;

/* Devices are called 0 to n-1, in this order. */
typedef struct lvni_launch_visible {
    int n;
    lvni_launch_visible_device *device;
    char *value; /* of CUDA_VISIBLE_DEVICES; NULL: unset */
} lvni_launch_visible;

/* value: of CUDA_VISIBLE_DEVICES, NULL when unset ("" hides all). Its numbers and unambiguous
 * beginnings of UUIDs are taken up to the first that matches no device, as the driver does; UUIDs
 * of slices ("MIG-...") are taken as they are. uuids: one for each of the n_physical devices, or
 * NULL. A device named twice is LVN_ERR_USAGE. *out is to be freed. */
lvn_status lvni_launch_visible_make(const char *value, int n_physical, const char *const *uuids,
                                    lvni_launch_visible *out);
void lvni_launch_visible_free(lvni_launch_visible *visible);
/* Moves both to leave out blanks at the ends of the text between. */
void lvni_launch_trim(const char **begin, const char **end);

typedef enum lvni_launch_accelerator {
    LVNI_ACCELERATOR_AUTO, /* CUDA where a device is visible, else CPU; never sim */
    LVNI_ACCELERATOR_CPU,
    LVNI_ACCELERATOR_CUDA,
    LVNI_ACCELERATOR_SIM,
    LVNI_ACCELERATOR_LOADED, /* a backend in a shared object */
} lvni_launch_accelerator;

typedef struct lvni_launch_device_request {
    const char *key;  /* as the user wrote it, for sentences: "devices", "gpus", "--devices" */
    const char *spec; /* NULL or "auto": not given */
    lvni_launch_accelerator accelerator;
    const char *backend; /* LVNI_ACCELERATOR_LOADED: its name */
    bool gpus;           /* the old spelling `gpus`: 0 means the CPU, and a number asks for GPUs */
    bool allow_shared;   /* allow_shared_device: the list may name a device twice */
    /* this rank was started by a launcher, which may show it one device of the several it asks
     * for */
    bool launched;
    int nproc;        /* --nproc; 0: not given */
    char *const *env; /* for the text of E106; may be NULL */
} lvni_launch_device_request;

typedef struct lvni_launch_device_choice {
    lvni_launch_accelerator accelerator; /* never AUTO */
    int n;                               /* devices of this node; on the CPU: ranks */
    int *index;                          /* n of the visible devices; NULL on the CPU */
    bool given;  /* the user gave a number or a list; false: all there are */
    bool listed; /* the user gave a list */
    bool no_gpu; /* the CPU, because no GPU is visible: it was not asked for */
} lvni_launch_device_choice;

/* visible: the devices of the accelerator asked for (sim: the simulated ones; AUTO: the GPUs;
 * LOADED: those of the backend, which knows no CUDA_VISIBLE_DEVICES).
 * Values that make no sense are LVN_ERR_USAGE with a sentence; GPUs asked for where none is
 * visible are E106. *out is to be freed. */
lvn_status lvni_launch_device_choose(const lvni_launch_device_request *request,
                                     const lvni_launch_visible *visible, lvni_core_notices *notices,
                                     lvni_launch_device_choice *out);
/* How many devices the text asks for by a number or a list; 0: all there are, or it cannot be
 * read. */
int lvni_launch_device_spec_count(const char *text);
void lvni_launch_device_choice_free(lvni_launch_device_choice *choice);

/* The value of CUDA_VISIBLE_DEVICES that shows the chosen devices alone, each once, in their order:
 * "4,6", "GPU-5ae2...". A process that gets it counts from 0 again: its choice is all of them (spec
 * NULL), not the list once more. */
void lvni_launch_device_choice_print(const lvni_launch_device_choice *choice,
                                     const lvni_launch_visible *visible, lvni_core_str *out);

#endif
