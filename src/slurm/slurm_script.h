/* A job as a script for sbatch: its lines in the order that docs/slurm.md describes. */
#ifndef LEVIN_SLURM_SLURM_SCRIPT_H
#define LEVIN_SLURM_SLURM_SCRIPT_H

#include "slurm/slurm_job.h"

/* The whole script. args: those of `levin slurm script`, for the line that makes it again. */
lvn_status lvni_slurm_script_write(const lvni_slurm_job *job, int n_args, const char *const *args,
                                   lvni_core_str *out);
/* A word as bash reads it back to the same bytes; expands: $NAME and $(...) in it are the
 * script's. */
void lvni_slurm_word(lvni_core_str *out, const char *text, bool expands);

#endif
