/* levin slurm check: the rules of docs/slurm.md on a script that others wrote, read as sbatch reads
 * it and, of its commands, as far as words alone show. */
#ifndef LEVIN_SLURM_SLURM_CHECK_H
#define LEVIN_SLURM_SLURM_CHECK_H

#include "slurm/slurm_cluster.h"
#include "slurm/slurm_findings.h"

/* The bytes of a script, zero-terminated; `path` stands in the findings: "job.sh:12". *directives:
 * how many #SBATCH lines count. cluster: where it is to run; NULL: not known. */
lvn_status lvni_slurm_check(const char *path, const char *text, size_t bytes,
                            const lvni_slurm_cluster *cluster, lvni_slurm_findings *f,
                            int *directives);

/* Is it an option of sbatch, without its dashes? *near: the known one nearest to it; NULL: none. */
bool lvni_slurm_sbatch_knows(const char *name, const char **near);

#endif
