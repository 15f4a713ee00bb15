/* The training of a job script, as `levin plan` sees it, with the ranks of the job: what it would
 * refuse on the cluster is refused here. */
#ifndef LEVIN_CLI_SLURM_PLAN_H
#define LEVIN_CLI_SLURM_PLAN_H

#include "core/config.h"
#include "slurm/slurm_findings.h"

#include <stdint.h>

typedef struct lvni_cli_slurm_training {
    int n;
    const char *const *words;       /* RECIPE and its keys */
    const lvni_core_config *config; /* of these keys, and of the file that they name */
    int64_t ranks;                  /* of all nodes */
    bool on_cpu;
    bool raw;          /* $NAME in the words is the script's */
    const char *chdir; /* where the job begins; NULL: here */
} lvni_cli_slurm_training;

/* Does the word have what only the job knows: $NAME with raw, or ${oc.env:SLURM_...}? */
bool lvni_cli_slurm_is_open(const char *word, bool raw);

/* Findings `plan`; words that are open are passed over, with a note. An error is one of starting
 * the plan itself. */
lvn_status lvni_cli_slurm_plan(const lvni_cli_slurm_training *t, lvni_slurm_findings *f);

#endif
