/* A step of Slurm that `levin launch` starts: its command and its environment. Shared by
 * launch_srun.c, which becomes srun, and launch_elastic.c, which runs one srun after another. */
#ifndef LEVIN_LAUNCH_LAUNCH_SRUN_H
#define LEVIN_LAUNCH_LAUNCH_SRUN_H

#include "launch/host_list.h"
#include "launch/launch_impl.h"

typedef struct lvni_launch_allocation {
    int nodes;
    int per_node;             /* tasks per node; 0: not the same on all */
    int tasks, cpus_per_task; /* 0: not given */
    int n_program;            /* of the program's arguments, those that the tasks get */
} lvni_launch_allocation;

/* Where a step after the first runs. */
typedef struct lvni_launch_srun_step {
    int nodes, tasks;
    int per_node;         /* 0: not the same on all */
    const char *nodelist; /* "--nodelist=n1,n2"; borrowed */
} lvni_launch_srun_step;

enum { LVNI_SRUN_FLAGS = 8, LVNI_SRUN_FLAG_BYTES = 64 };

typedef struct lvni_launch_srun_command {
    char flags[LVNI_SRUN_FLAGS][LVNI_SRUN_FLAG_BYTES];
    const char **argv; /* n texts and NULL; the array is owned, the texts are borrowed */
    int n;
} lvni_launch_srun_command;

/* step: NULL for the first, which has the allocation to itself. */
lvn_status lvni_launch_srun_command_make(const lvni_launch_run *r, const lvni_launch_allocation *a,
                                         const lvni_launch_srun_step *step,
                                         lvni_launch_srun_command *out);
void lvni_launch_srun_command_free(lvni_launch_srun_command *command);

/* What of the options reaches the tasks without a launcher of ours beside them. */
lvn_status lvni_launch_srun_environment(const lvni_launch_run *r, const lvni_launch_rank_name *name,
                                        lvni_launch_variables *v);
lvn_status lvni_launch_srun_find(const lvni_launch_run *r, char **path); /* lvni_core_free */

/* launch_elastic.c: steps until one is the last; *code: of the launcher. */
lvn_status lvni_launch_elastic(lvni_launch_run *r, const lvni_launch_allocation *a, int *code);

/* ---- elastic_probe.c: which nodes of the job answer ---- */

typedef struct lvni_launch_probe {
    pid_t pid; /* 0: none runs */
    uint64_t end_ns;
    bool waits, alive;
} lvni_launch_probe;

typedef struct lvni_launch_probes {
    const char *srun; /* borrowed, as hosts and signals */
    const lvni_launch_hosts *hosts;
    const sigset_t *signals; /* the mask of the probes */
    lvni_launch_variables env;
    lvni_launch_probe *node; /* of each host */
    int running, waiting;
} lvni_launch_probes;

/* environment: that of the batch script. *p is to be closed in every case. */
lvn_status lvni_launch_probes_open(lvni_launch_probes *p, char *const *environment);
void lvni_launch_probes_close(lvni_launch_probes *p);
/* Asks all nodes but those with skip[i]; NULL: all. What they answered before is forgotten. */
void lvni_launch_probes_ask(lvni_launch_probes *p, const bool *skip);
/* To be called until it returns true: all have answered, or had 10 s for it. */
bool lvni_launch_probes_tick(lvni_launch_probes *p, uint64_t now_ns);
void lvni_launch_probes_stop(lvni_launch_probes *p);

#endif
