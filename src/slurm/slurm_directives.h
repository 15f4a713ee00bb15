/* The #SBATCH lines of a job script, those that are written and those that were read, and the rules
 * that hold for both: V03, V04, V06, V07, V09 to V11, V18, V19. */
#ifndef LEVIN_SLURM_SLURM_DIRECTIVES_H
#define LEVIN_SLURM_SLURM_DIRECTIVES_H

#include "slurm/slurm_findings.h"

typedef struct lvni_slurm_directive {
    char *name;    /* "nodes" */
    char *value;   /* NULL: none */
    char *comment; /* NULL: none */
    char *where;   /* "command line", "job.sh:12" */
    bool optional; /* written as a comment: it does not count */
} lvni_slurm_directive;

/* A zeroed one is empty. Owns its texts. */
typedef struct lvni_slurm_directives {
    lvni_slurm_directive *list;
    size_t n, room;
    bool failed; /* memory ran out on the way */
} lvni_slurm_directives;

/* Behind the others. All texts are copied; value may be NULL. */
void lvni_slurm_directive_add(lvni_slurm_directives *d, const char *name, const char *value,
                              const char *where, bool optional);
/* KEY[=VALUE][ # comment] in the place of one of that name, else behind the others. False: it has
 * no name. */
bool lvni_slurm_directive_put(lvni_slurm_directives *d, const char *text, const char *where);
/* The last one of that name that counts; NULL: none. */
const lvni_slurm_directive *lvni_slurm_directive_find(const lvni_slurm_directives *d,
                                                      const char *name);
/* Its value as a number; `fallback` where there is none, or it is not one. "2-4" is 2. */
int64_t lvni_slurm_directive_number(const lvni_slurm_directives *d, const char *name,
                                    int64_t fallback);
lvn_status lvni_slurm_directives_status(const lvni_slurm_directives *d);
void lvni_slurm_directives_free(lvni_slurm_directives *d);

/* Lines "#SBATCH --name=value", or "##SBATCH" of those that are optional. */
void lvni_slurm_directives_print(const lvni_slurm_directives *d, lvni_core_str *out);

/* Rules over all of them. `checked`: the values were checked before, as options; array_size: the
 * cluster's MaxArraySize, 0: not known. */
void lvni_slurm_directives_check(const lvni_slurm_directives *d, bool checked, int64_t array_size,
                                 lvni_slurm_findings *f);
/* V08: Slurm writes no log, and no error, into a folder that is not there. made: it will be. */
void lvni_slurm_output_check(const lvni_slurm_directives *d, bool made, lvni_slurm_findings *f);

#endif
