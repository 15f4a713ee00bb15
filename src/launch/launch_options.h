/* What a user asks of `levin launch`: the words before and behind `--`. */
#ifndef LEVIN_LAUNCH_LAUNCH_OPTIONS_H
#define LEVIN_LAUNCH_LAUNCH_OPTIONS_H

#include "core/config.h"

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
    LVNI_KEEP_STARTED  /* not when the ranks refused to begin: a program of which this is the run
                          directory has put nothing into it */
} lvni_launch_keep_logs;

typedef struct lvni_launch_options {
    lvni_core_config *config;   /* owns the texts below */
    const char *const *program; /* n_program words, then NULL; borrowed, or own_program */
    int n_program;
    const char **own_program; /* owned, where Python runs a script; NULL: the user's words */
    /* --env K=V and --unset K in their order; the array is owned, the texts are borrowed */
    const char **env, **unset;
    int n_env, n_unset;

    const char *nproc;       /* "auto", "gpu", "cpu" or a number */
    const char *devices;     /* NULL: not given */
    bool gpus;               /* devices were given as `gpus` */
    const char *accelerator; /* auto gpu cpu sim */
    const char *strategy;    /* NULL: not given */
    bool allow_shared_device;
    int nodes, node_rank;
    bool nodes_given, node_rank_given;
    const char *master_addr, *master_port; /* NULL: not given; port: "auto", "random" or a number */
    const char *run_id, *run_dir, *log_dir; /* NULL: not given */
    const char *role;                       /* ROLE_NAME */
    char endpoint[256];                     /* host of rdzv_endpoint; master_addr may be it */
    double rdzv_timeout_s;                  /* 0: not given */
    int max_restarts;
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
    bool strict, strict_given; /* the latter: by an option, so it is told to the ranks */
    lvni_launch_srun srun;
} lvni_launch_options;

/* words: those behind `levin launch`; borrowed while *out lives. Mistakes are LVN_ERR_USAGE. *out
 * is to be freed in every case. */
lvn_status lvni_launch_options_read(int n, const char *const *words, lvni_launch_options *out);
void lvni_launch_options_free(lvni_launch_options *o);

#endif
