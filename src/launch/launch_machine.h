/* What the launcher finds on its machine: GPUs, as the kernel's file systems list them (no driver
 * library is loaded), and cores, which it deals out to ranks. */
#ifndef LEVIN_LAUNCH_LAUNCH_MACHINE_H
#define LEVIN_LAUNCH_LAUNCH_MACHINE_H

#include "core/error.h"
#include "launch/launch_options.h"

#include <levin/status.h>
#include <sched.h>

typedef struct lvni_launch_gpu {
    char pci[32];  /* "0000:3b:00.0"; "": unknown */
    char uuid[64]; /* "GPU-..."; "": unknown */
    int numa;      /* -1: unknown */
} lvni_launch_gpu;

/* Those with a device file under root/dev, in the order of their PCI addresses. root: "" but in
 * tests. *gpus: lvni_core_free. */
lvn_status lvni_launch_gpus_find(const char *root, lvni_launch_gpu **gpus, int *n);

typedef struct lvni_launch_bind_plan {
    int n;                /* ranks */
    lvni_launch_bind how; /* none, cores or numa */
    size_t cpu_bytes;     /* of each mask */
    cpu_set_t **cpus;     /* of each rank; NULL with LVNI_BIND_NONE */
    /* node each rank takes its memory from, -1: any; NULL with LVNI_BIND_NONE */
    int *numa;
    int n_cpus; /* in the launcher's own mask */
} lvni_launch_bind_plan;

/* request: the option bind. gpu_numa: the NUMA node of each rank's GPU (-1: unknown), NULL without
 * GPUs. bound: srun gave this process a part of the machine, which stays as it is under auto. *out
 * is to be freed. */
lvn_status lvni_launch_bind_make(lvni_launch_bind request, int n, const int *gpu_numa, bool bound,
                                 lvni_core_notices *notices, lvni_launch_bind_plan *out);
void lvni_launch_bind_free(lvni_launch_bind_plan *plan);
/* CPUs of one rank; its share of all where nothing is bound; at least 1. */
int lvni_launch_bind_threads(const lvni_launch_bind_plan *plan, int rank);
/* "0-1,8-9" */
void lvni_launch_bind_print(const lvni_launch_bind_plan *plan, int rank, lvni_core_str *out);
/* How many CPUs this process may use. */
lvn_status lvni_launch_bind_count(int *n);

/* The cores of a list, dealt out: rank i of n gets cores [*first, *first + *count) of n_cores; the
 * first ranks get one more. */
void lvni_launch_bind_share(int n_cores, int n, int i, int *first, int *count);

#endif
