/* What is wrong with a job script, before Slurm sees it: errors and warnings with the number of
 * their rule (V01 to V22 of docs/slurm.md, W213, W214), each a line for standard error. All are
 * collected, so that one call reports every mistake. A zeroed lvni_slurm_findings is empty. */
#ifndef LEVIN_SLURM_SLURM_FINDINGS_H
#define LEVIN_SLURM_SLURM_FINDINGS_H

#include "core/str.h"

typedef struct lvni_slurm_findings {
    lvni_core_str text; /* "levin: error V06: ...\n", "levin: warning V08: ...\n" */
    int errors, warnings;
} lvni_slurm_findings;

void lvni_slurm_error(lvni_slurm_findings *f, const char *rule, const char *fmt, ...)
    LVN_PRINTF(3, 4);
void lvni_slurm_warn(lvni_slurm_findings *f, const char *rule, const char *fmt, ...)
    LVN_PRINTF(3, 4);
/* "levin: note RULE: ...", which counts as neither. */
void lvni_slurm_note(lvni_slurm_findings *f, const char *rule, const char *fmt, ...)
    LVN_PRINTF(3, 4);
void lvni_slurm_findings_free(lvni_slurm_findings *f);

/* What the value of an option is; TEXT may be anything that fits a line. */
typedef enum lvni_slurm_grammar {
    LVNI_SLURM_TEXT,
    LVNI_SLURM_NAME,   /* of a job */
    LVNI_SLURM_COUNT,  /* from 1 on */
    LVNI_SLURM_NUMBER, /* from 0 on */
    LVNI_SLURM_TIME,
    LVNI_SLURM_SIZE,
    LVNI_SLURM_ARRAY,
    LVNI_SLURM_SIGNAL,
    LVNI_SLURM_MAIL,
    LVNI_SLURM_GPUS,
    LVNI_SLURM_VARIABLE, /* NAME=VALUE, of any bytes */
    LVNI_SLURM_PORT,     /* auto, random or a number */
    LVNI_SLURM_CODE,     /* of the shell, of any bytes */
    LVNI_SLURM_SHEBANG,  /* the first line of a script */
} lvni_slurm_grammar;

/* Is `text`, given as `key` at `where` ("command line", "job.sh:12"), such a value? If not, that is
 * a finding. */
bool lvni_slurm_value_check(lvni_slurm_grammar grammar, const char *key, const char *text,
                            const char *where, lvni_slurm_findings *f);

#endif
