/* Which devices a process may use: those of the machine, restricted and ordered by
 * CUDA_VISIBLE_DEVICES. The variable holds for simulated devices (LEVIN_SIM_DEVICES) in the same
 * way. Nothing here asks a driver: how many devices there are, and their UUIDs where known, come
 * from the caller. */
#ifndef LEVIN_LAUNCH_VISIBLE_DEVICES_H
#define LEVIN_LAUNCH_VISIBLE_DEVICES_H

#include "core/str.h"

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
 * beginnings of UUIDs are taken up to the first that fits nothing, as the driver does; UUIDs of
 * slices ("MIG-...") are taken as they are. uuids: one for each of the n_physical devices, or NULL.
 * A device named twice is LVN_ERR_USAGE. *out is to be freed. */
lvn_status lvni_launch_visible_make(const char *value, int n_physical, const char *const *uuids,
                                    lvni_launch_visible *out);
void lvni_launch_visible_free(lvni_launch_visible *visible);

/* "0-3", "0", "none": the indices a user may give. */
void lvni_launch_visible_print(const lvni_launch_visible *visible, lvni_core_str *out);
/* " (CUDA_VISIBLE_DEVICES=4,5)" for sentences; nothing when it is unset. */
void lvni_launch_visible_print_value(const lvni_launch_visible *visible, lvni_core_str *out);

#endif
