/* The nodes of a cluster as sinfo prints them: pure readers of its answer, and sums over nodes that
 * are alike. */
#ifndef LEVIN_SLURM_SLURM_JOBS_NODES_H
#define LEVIN_SLURM_SLURM_JOBS_NODES_H

#include "slurm/slurm_jobs.h"

/* The option of sinfo --Node: fields of fixed widths, each with a separator behind it. */
extern const char lvni_slurm_sinfo_format[];
enum { LVNI_SLURM_NODE_FIELDS = 9 };

enum { LVNI_SLURM_GPU_TYPES = 8, LVNI_SLURM_GPU_NAME = 32 };
typedef struct lvni_slurm_gpus {
    char type[LVNI_SLURM_GPU_NAME]; /* "gpu" where it has none */
    int64_t total, free;
} lvni_slurm_gpus;

/* Nodes of one partition that are alike. */
typedef struct lvni_slurm_nodes {
    const char *partition, *limit;
    const char *state; /* as sinfo has it, of the first node */
    char word[64];     /* "free", "partly used", "in use", "drained", "not answering" */
    bool usable;       /* it takes jobs; else nothing of it is free */
    int64_t n, cpus, cpus_free, memory, memory_free; /* MiB */
    int n_gpus;
    lvni_slurm_gpus gpus[LVNI_SLURM_GPU_TYPES];
    lvni_core_str names; /* "n1,n2" */
} lvni_slurm_nodes;

typedef struct lvni_slurm_partitions {
    lvni_slurm_table table;
    lvni_slurm_nodes *list;
    size_t n;
} lvni_slurm_partitions;

/* partition: of that alone; NULL: all. each: nodes are not summed up. */
lvn_status lvni_slurm_partitions_read(const char *sinfo, const char *partition, bool each,
                                      lvni_slurm_partitions *out);
void lvni_slurm_partitions_free(lvni_slurm_partitions *cluster);

#endif
