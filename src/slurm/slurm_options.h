/* The options of a job script: one table of rows (slurm_options.def), and their values from the
 * command line, the section `slurm:` of config=FILE, and profiles. The later in this list loses. */
#ifndef LEVIN_SLURM_SLURM_OPTIONS_H
#define LEVIN_SLURM_SLURM_OPTIONS_H

#include "core/config.h"
#include "slurm/slurm_findings.h"

#define LVNI_SLURM_PREFIX "slurm." /* of a key, where a training has one of the same name */

typedef enum lvni_slurm_emission {
    LVNI_SLURM_NOTHING,
    LVNI_SLURM_DIRECTIVE, /* #SBATCH --name=value */
    LVNI_SLURM_SWITCH,    /* #SBATCH --name where true */
    LVNI_SLURM_OPTIONAL,  /* #SBATCH --name or --name=value */
    LVNI_SLURM_MADE,      /* a directive of several rows */
    LVNI_SLURM_SRUN,      /* srun --name=value */
    LVNI_SLURM_EXPORT,    /* export name=value */
    LVNI_SLURM_LINE,      /* a line of the shell */
} lvni_slurm_emission;

typedef struct lvni_slurm_row {
    const char *key;
    lvni_core_option_type type;
    lvni_slurm_emission emission;
    const char *name; /* of the directive, option or variable; NULL: none */
    char letter;      /* of sbatch's short option; 0: none */
    lvni_slurm_grammar grammar;
} lvni_slurm_row;

extern const lvni_slurm_row lvni_slurm_rows[];
extern const size_t lvni_slurm_n_rows;
extern const lvni_core_option_table *const lvni_slurm_keys[];

/* NULL: none. */
const lvni_slurm_row *lvni_slurm_row_find(const char *key);
const lvni_slurm_row *lvni_slurm_row_of_directive(const char *name);
const lvni_slurm_row *lvni_slurm_row_of_letter(char letter);
/* Is the row's meaning that of a training's key (devices, num_nodes, ...)? What is given behind a
 * recipe counts for both. `key` is the training's name. NULL: it is not. */
const lvni_slurm_row *lvni_slurm_row_shared(const char *key);

enum { LVNI_SLURM_PATHS = 8 }; /* rows whose value is a path of the job */

typedef struct lvni_slurm_options {
    lvni_core_config *config;
    /* rows that may be repeated, as the command line has them; borrowed texts */
    struct lvni_slurm_item {
        const lvni_slurm_row *row;
        const char *text;
    } * items;
    size_t n_items;
    const char *paths[LVNI_SLURM_PATHS]; /* values of path rows behind their `~/`; NULL: as given */
    char **made; /* texts of arguments and paths that were put together; owned */
    size_t n_made;
} lvni_slurm_options;

/* The n arguments are options alone, borrowed for the life of *out. Mistakes are findings, and the
 * status is then LVN_OK; LVN_ERR_MEMORY, LVN_ERR_IO and LVN_ERR_NOT_FOUND (a file) are not. */
lvn_status lvni_slurm_options_load(int n, const char *const *args, char *const *environment,
                                   lvni_slurm_findings *f, lvni_slurm_options *out);
void lvni_slurm_options_free(lvni_slurm_options *o);

/* How many of the n arguments the option at args[0] takes; 0: it is none. *row: which. */
int lvni_slurm_option_at(const lvni_core_config *config, int n, const char *const *args,
                         const lvni_slurm_row **row, const char **text);

/* Is args[0], which is not an option, followed by what looks like its value? */
bool lvni_slurm_has_value(int n, const char *const *args);

/* The value with its `?`, and the user's home directory in place of a leading `~` of a path; NULL:
 * unset. Borrowed. */
const char *lvni_slurm_given(const lvni_slurm_options *o, const char *key);
/* The same without those of a `?`; NULL: unset, or written as a comment. Borrowed. */
const char *lvni_slurm_text(const lvni_slurm_options *o, const char *key);
/* The value behind a `?`; NULL: there is none. */
const char *lvni_slurm_comment(const lvni_slurm_options *o, const char *key);
bool lvni_slurm_is_on(const lvni_slurm_options *o, const char *key);
/* A whole number; `fallback` where it is unset or a mistake. */
int64_t lvni_slurm_number(const lvni_slurm_options *o, const char *key, int64_t fallback);
/* The i-th value of a row that may be repeated; NULL: no more. */
const char *lvni_slurm_item_at(const lvni_slurm_options *o, const char *key, size_t i);
/* "command line", "run.yaml:12" */
const char *lvni_slurm_origin(const lvni_slurm_options *o, const char *key);

/* Lines "key=value  (where)" of all that is not a default. */
void lvni_slurm_print_origins(const lvni_slurm_options *o, lvni_core_str *out);

#endif
