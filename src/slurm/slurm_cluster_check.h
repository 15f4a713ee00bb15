/* A job against what its cluster has: the partition and its limits, the nodes, their GPUs, cores
 * and memory. What Slurm would refuse, or let wait for ever, is an error, each with what the
 * cluster has. Of several partitions the job needs one that takes it. */
#ifndef LEVIN_SLURM_SLURM_CLUSTER_CHECK_H
#define LEVIN_SLURM_SLURM_CLUSTER_CHECK_H

#include "slurm/slurm_cluster.h"
#include "slurm/slurm_directives.h"

/* Findings `cluster`. What is not known of the cluster is not checked. */
lvn_status lvni_slurm_cluster_check(const lvni_slurm_cluster *c, const lvni_slurm_directives *d,
                                    lvni_slurm_findings *f);

#endif
