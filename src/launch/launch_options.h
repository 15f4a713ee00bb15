/* The arguments of `levin launch`, before and after `--`, read into one struct; and the values
 * among them that have a form of their own: patterns, lists of ranks, what torchrun takes, the
 * program. */
#ifndef LEVIN_LAUNCH_LAUNCH_OPTIONS_H
#define LEVIN_LAUNCH_LAUNCH_OPTIONS_H

#include "core/config.h"
#include "core/str.h"

typedef enum lvni_launch_stdin {
    LVNI_STDIN_NONE,
    LVNI_STDIN_RANK0,
    LVNI_STDIN_ALL
} lvni_launch_stdin;
typedef enum lvni_launch_bind {
    LVNI_BIND_AUTO,
    LVNI_BIND_NONE,
    LVNI_BIND_CORES,
    LVNI_BIND_NUMA
} lvni_launch_bind;
typedef enum lvni_launch_srun {
    LVNI_SRUN_AUTO,
    LVNI_SRUN_ALWAYS,
    LVNI_SRUN_NEVER
} lvni_launch_srun;

typedef enum lvni_launch_keep_logs {
    LVNI_KEEP_ALWAYS,
    LVNI_KEEP_FAILURE, /* not when all went well */
    LVNI_KEEP_STARTED, /* not when the ranks refused to begin: a program of which this is the run
                          directory has put nothing into it */
    LVNI_KEEP_NEVER
} lvni_launch_keep_logs;

typedef struct lvni_launch_options {
    lvni_core_config *config;   /* owns the texts below */
    const char *const *program; /* n_program arguments, then NULL; borrowed, or own_program */
    int n_program;
    const char **own_program; /* owned, where Python runs a script; NULL: the user's arguments */
    /* --env K=V and --unset K in their order; the array is owned, the texts are borrowed */
    const char **env, **unset;
    int n_env, n_unset;

    const char *nproc;       /* "auto", "gpu", "cpu" or a number */
    const char *devices;     /* NULL: not given */
    bool gpus;               /* devices were given as `gpus` */
    const char *accelerator; /* auto gpu cpu sim, or a backend */
    const char *strategy;    /* NULL: not given */
    bool allow_shared_device;
    int nodes, node_rank;
    bool nodes_given, node_rank_given;
    const char *master_addr, *master_port; /* NULL: not given; port: "auto", "random" or a number */
    const char *run_id, *run_dir, *log_dir; /* NULL: not given */
    const char *role;                       /* ROLE_NAME */
    char endpoint[256];                     /* host of rdzv_endpoint; master_addr may be it */
    double rdzv_timeout_s;                  /* 0: not given */
    int max_restarts, min_ranks;
    double grace_s, stop_grace_s, timeout_s, straggler_timeout_s, crash_loop_s;
    const char *prefix;         /* NULL: not given; "": none */
    const char *output, *error; /* patterns of log files; NULL: those of the run directory */
    bool redirect, append_shared;
    const char *redirects; /* torchrun's; NULL: not given */
    lvni_launch_keep_logs keep_logs;
    const char *show;
    int tail;
    int standard_input; /* lvni_launch_stdin; -1: not given */
    lvni_launch_bind bind;
    int omp;                                    /* 0: auto */
    char *env_lines;                            /* what is in env_file; owned; NULL: not read */
    const char *env_file, *nccl_debug, *ifname; /* NULL: not given */
    bool pty, debug, dry_run, quiet, verbose;
    bool strict, strict_given; /* the latter: by an option, so the ranks get it */
    lvni_launch_srun srun;
} lvni_launch_options;

/* args: those after `levin launch`; borrowed while *out lives, as the environment, in which PET_...
 * are torchrun's options. Mistakes are LVN_ERR_USAGE. *out is to be freed in every case. */
lvn_status lvni_launch_options_read(int n, const char *const *args, char *const *environment,
                                    lvni_launch_options *out);
void lvni_launch_options_free(lvni_launch_options *o);

/* ---- patterns and lists of ranks (launch_values.c) ---- */

/* %r %l %n %w %h %j %a %p stand for these; %3r pads a number with zeros; %% is a percent sign. */
typedef struct lvni_launch_rank_name {
    int rank, local_rank, node_rank, world, attempt;
    const char *host, *run_id;
    int64_t pid;
} lvni_launch_rank_name;

/* key: the option that holds the pattern, for the message about an unknown code (LVN_ERR_USAGE). */
lvn_status lvni_launch_pattern_check(const char *key, const char *pattern);
void lvni_launch_pattern_expand(lvni_core_str *out, const char *pattern,
                                const lvni_launch_rank_name *name);
/* Only %r %l %n %w (and %%) are codes; any other percent sign is one: values of variables have
 * their own. */
void lvni_launch_pattern_expand_value(lvni_core_str *out, const char *value,
                                      const lvni_launch_rank_name *name);

/* "all", "none", "0", "0,3-5": sets in[r] for the ranks named, clears the others. */
lvn_status lvni_launch_rank_list(const char *key, const char *text, int world, bool *in);

/* ---- torchrun's values (launch_values.c) ---- */

enum { LVNI_STREAM_OUT = 1, LVNI_STREAM_ERR = 2 }; /* torchrun's numbers; 3: both */

/* Checks of option rows. */
lvn_status lvni_launch_torchrun_check_nodes(const lvni_core_option *row,
                                            const lvni_core_value *value, const char *origin);
lvn_status lvni_launch_torchrun_check_streams(const lvni_core_option *row,
                                              const lvni_core_value *value, const char *origin);
lvn_status lvni_launch_torchrun_check_endpoint(const lvni_core_option *row,
                                               const lvni_core_value *value, const char *origin);

/* "2" or "2:2", checked: 2. */
int lvni_launch_torchrun_nodes(const char *text);
/* "3" for all, or "0:1,1:2" by local rank: the streams of this one. NULL, "true" and "false":
 * none. */
int lvni_launch_torchrun_streams(const char *text, int local_rank);
/* rdzv_endpoint, rdzv_backend and standalone become master_addr and master_port. */
lvn_status lvni_launch_torchrun_rendezvous(lvni_launch_options *o);

/* ---- the program (launch_program.c) ---- */

typedef struct lvni_launch_program_place {
    int n_options; /* arguments in front of it */
    int first;     /* index of its first argument; their number when there is none */
    bool bare;     /* without `--` in front, as torchrun takes scripts */
} lvni_launch_program_place;

/* config: of the options' tables. */
void lvni_launch_program_find(const lvni_core_config *config, int n, const char *const *args,
                              lvni_launch_program_place *out);
/* "-n" is "--nproc"; other arguments as they are. */
const char *lvni_launch_short_form(const char *arg);
/* Puts o->program together, after the options were read: PROGRAM ARGS after `--` and with
 * no_python, else `python3 -u SCRIPT ARGS`, or with module `python3 -u -m MODULE ARGS`.
 * LVN_ERR_USAGE with the line that works where it is not a script. */
lvn_status lvni_launch_program_take(lvni_launch_options *o, const lvni_launch_program_place *place,
                                    int n, const char *const *args);
/* The file that a shell would run for this name: a path with a '/' as it is, others along PATH
 * (NULL: the usual one). *exit_code is 126 (it cannot be executed) or 127 (not found) with
 * LVN_ERR_NOT_FOUND. *path: lvni_core_free. */
lvn_status lvni_launch_program_search(const char *name, const char *search, char **path,
                                      int *exit_code);
/* Which Python: PYTHON_EXEC, else python3 of PATH, else python. */
lvn_status lvni_launch_program_find_python(lvni_launch_options *o, char *const *environment);

#endif
