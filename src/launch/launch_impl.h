/* The launcher's state: its options, what runs where, and its processes. Shared by the launch_*.c
 * files alone. */
#ifndef LEVIN_LAUNCH_LAUNCH_IMPL_H
#define LEVIN_LAUNCH_LAUNCH_IMPL_H

#include "core/error.h"
#include "launch/device_spec.h"
#include "launch/env_vars.h"
#include "launch/launch.h"
#include "launch/launch_machine.h"
#include "launch/launch_options.h"
#include "launch/launch_stream.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

typedef struct lvni_launch_proc {
    int rank, local_rank;
    pid_t pid;
    bool started, alive;
    bool group_alive; /* processes of its group may be left */
    bool stopped;     /* it ended because of a signal from the launcher */
    int how, status;  /* CLD_EXITED, CLD_KILLED or CLD_DUMPED; exit code or signal */
    uint64_t start_ns, end_ns;
    int peers; /* most connections to others that it had since it was stopped (launch_stopped.c) */
    lvni_launch_stream out, err;
    char *out_log, *err_log, *record; /* paths */
} lvni_launch_proc;

typedef enum lvni_launch_phase {
    LVNI_PHASE_RUN,
    LVNI_PHASE_STOP, /* asked to end */
    LVNI_PHASE_KILL,
} lvni_launch_phase;

typedef enum lvni_launch_reason {
    LVNI_REASON_NONE,
    LVNI_REASON_FAILURE,
    LVNI_REASON_SIGNAL,
    LVNI_REASON_TIMEOUT,
    LVNI_REASON_STRAGGLER,
} lvni_launch_reason;

/* Copying standard input to processes. */
typedef struct lvni_launch_feed {
    int from; /* -1: at its end */
    int n;
    struct lvni_launch_feed_to {
        int fd; /* -1: closed */
        lvni_core_str kept;
        size_t at;
    } * to;
} lvni_launch_feed;

typedef struct lvni_launch_held_port {
    int fd, port; /* -1, 0: none */
    int lock_fd;  /* against other launchers; -1: none */
} lvni_launch_held_port;

#define LVNI_NO_PORT ((lvni_launch_held_port){.fd = -1, .lock_fd = -1})

typedef struct lvni_launch_run {
    lvni_launch_options o;
    char *const *environment; /* the launcher's own; borrowed */
    lvni_launch_after_kill after_kill;
    lvni_core_notices notices;
    /* what runs where (launch_layout.c) */
    lvni_launch_visible visible;
    lvni_launch_device_choice devices;
    char *cuda_visible; /* for CUDA_VISIBLE_DEVICES; NULL: unchanged */
    int *gpu_numa;      /* of each rank's GPU; NULL: no GPUs */
    int local, world, nodes, node_rank;
    bool under_slurm;
    char master_addr[256], port_text[16];
    char host[256], run_id[65];
    /* of this launcher alone, for its guard (launch_stop.c); "" in a dry run */
    char launch_id[96];
    char *run_dir, *program;
    int lock_fd; /* of run_dir, while this run has it to itself; rank 0 gets it, too; -1: none */
    bool taken;  /* another run holds it */
    /* length of run_dir's path up to the first folder that had to be made; longer: none */
    size_t made_from;
    bool *shown; /* by rank */
    lvni_launch_bind_plan binding;
    lvni_launch_stdin input;
    bool shares_group; /* the only process stays in the launcher's group, for the terminal's sake */
    /* one attempt */
    int attempt;
    char run_key[33];           /* random secret of its ranks; "": none */
    int store_fd, store_port;   /* listening, for rank 0; -1, 0: none */
    lvni_launch_held_port held; /* of MASTER_PORT */
    lvni_launch_proc *procs;    /* local of them */
    lvni_launch_feed feed;
    lvni_launch_phase phase;
    lvni_launch_reason reason;
    bool broken;   /* the first attempt could not be made */
    int signal;    /* from the user */
    int straggler; /* the rank that ended early */
    uint64_t stop_ns, kill_ns;
    uint64_t looked_ns; /* whether a rank is stopped; 0: look now */
    bool sees_stopped;
    bool swept; /* SIGTERM was sent to what processes left behind */
    /* all attempts */
    uint64_t begin_ns;
    /* one and the same where standard output and error are */
    lvni_launch_sink sinks[2], *out, *err;
    sigset_t signals; /* the mask that programs get */
    struct rlimit files;
    int signal_fd;
    pid_t guard; /* 0: none */
    int guard_fd;
    pid_t *others; /* children that were there before, and the guard */
    int n_others;
    int64_t oom_kills; /* of this control group, at the start; -1: unknown */
} lvni_launch_run;

/* launch.c: these are blocked and read from r->signal_fd; r->signals is what the ranks get. */
lvn_status lvni_launch_take_signals(lvni_launch_run *r, const int *ours, size_t n);
/* launch.c: the signals that the process which became this launcher blocked, so that none comes
 * between the two, are taken out. */
void lvni_launch_unblock(char *const *environment, sigset_t *set);
/* Is the program `levin train` of this executable? */
bool lvni_launch_is_training(const lvni_launch_run *r);

/* launch_layout.c: fills what runs where, from the options and the environment. */
lvn_status lvni_launch_layout(lvni_launch_run *r);
lvn_status lvni_launch_name_run(lvni_launch_run *r); /* run_id: as given, or drawn */
void lvni_launch_layout_free(lvni_launch_run *r);

/* launch_environment.c: what one rank gets. */
/* W214: misspelled variables of NCCL among those that the ranks will see. Nothing where they are
 * known not to use it. */
lvn_status lvni_launch_warn_of_nccl(lvni_launch_run *r);
lvn_status lvni_launch_read_env_file(lvni_launch_options *o); /* once: it may be a pipe */
lvn_status lvni_launch_environment(const lvni_launch_run *r, const lvni_launch_proc *p,
                                   lvni_launch_variables *out);
void lvni_launch_name(const lvni_launch_run *r, const lvni_launch_proc *p,
                      lvni_launch_rank_name *out);
/* Removes the variables of an earlier launcher; rendezvous: also the name of the run and its
 * address, which a user may set, too. */
void lvni_launch_forget_earlier(lvni_launch_variables *v, bool rendezvous);
void lvni_launch_export_timeout(const lvni_launch_options *o, lvni_launch_variables *v);
/* --env-file, --env, --unset, in this order. */
lvn_status lvni_launch_set_requested(const lvni_launch_options *o,
                                     const lvni_launch_rank_name *name, lvni_launch_variables *v);

/* launch_files.c: the run directory. */
lvn_status lvni_launch_choose_run_dir(lvni_launch_run *r);
/* Before anything is written or removed there, and until the end of this process and of rank 0.
 * LVN_ERR_USAGE: another process has it. */
lvn_status lvni_launch_lock_run_dir(lvni_launch_run *r);
/* Removes the directory that the process which became this launcher made, with nothing in it;
 * false: there was none. */
bool lvni_launch_give_back(char *const *environment);

/* launch_files.c: folders, log files and records of an attempt. */
/* keep_logs=started, and nothing but the launcher's own files is in the run directory after the
 * ranks left by themselves or at a signal of the user's, or could not be started. */
bool lvni_launch_not_begun(const lvni_launch_run *r);
lvn_status lvni_launch_name_files(lvni_launch_run *r);
/* names that are known only when there is a process */
bool lvni_launch_logs_by_pid(const lvni_launch_run *r);
lvn_status lvni_launch_open_logs(const lvni_launch_run *r, lvni_launch_proc *p);
/* of all attempts; folders that are empty then, too */
void lvni_launch_remove_files(const lvni_launch_run *r);
/* The folder for records of failures where there are none, as after a signal, unless other nodes
 * may still write there. */
void lvni_launch_remove_no_errors(const lvni_launch_run *r);

/* launch_start.c: starts all ranks. On failure some may run; *error: errno of an exec that failed,
 * else 0. */
lvn_status lvni_launch_start(lvni_launch_run *r, int *error);
void lvni_launch_close_fd(int *fd); /* -1: nothing to do; sets it to that */
/* Gives the terminal of a rank the size of `like`. */
void lvni_launch_pty_take_size(int like, int master);
/* Does this stream of the rank (LVNI_STREAM_OUT, _ERR) reach the terminal? */
bool lvni_launch_shows(const lvni_launch_run *r, const lvni_launch_proc *p, int stream);
/* "29500" -> 29500; 0: not a number. */
int lvni_launch_port_number(const char *text);
/* W205: a port that needs a privilege. */
void lvni_launch_port_warn(const char *wanted, lvni_core_notices *notices);
void lvni_launch_port_release(lvni_launch_held_port *h);

/* launch_attempt.c: one attempt, from the first process to the last. *code: LVNI_EXIT_NO_PROGRAM
 * and its like when a process could not be started. */
lvn_status lvni_launch_attempt(lvni_launch_run *r, int *code);
void lvni_launch_attempt_free(lvni_launch_run *r);
/* Copies of standard input. ends[i]: what rank i reads; -1: the launcher's own. */
lvn_status lvni_launch_feed_open(lvni_launch_run *r, int *ends);

/* launch_stop.c */
/* to the group of every rank that may have one left */
void lvni_launch_send(lvni_launch_run *r, int signal_number);
void lvni_launch_stop(lvni_launch_run *r, lvni_launch_reason why, int signal_number,
                      uint64_t now_ns);
/* Ends what is due. Returns true when nothing of the run is left (or nothing that can be
 * ended). */
bool lvni_launch_stop_tick(lvni_launch_run *r, uint64_t now_ns);
bool lvni_launch_is_stopped(pid_t pid); /* by a signal */
/* launch_stopped.c: ends a run over several nodes that has ended for all but a rank that is stopped
 * here. When it is to be called again; 0: at the next signal. */
uint64_t lvni_launch_stopped_tick(lvni_launch_run *r, uint64_t now_ns);
void lvni_launch_find_others(lvni_launch_run *r);
/* The guard: until its end, what the ranks start ends also when this process is killed. */
lvn_status lvni_launch_guard_start(lvni_launch_run *r);
void lvni_launch_guard_end(lvni_launch_run *r);

/* launch_report.c */
/* "levin launch: ..." on standard error */
void lvni_launch_print(lvni_launch_run *r, const char *fmt, ...) LVN_PRINTF(2, 3);
void lvni_launch_report(lvni_launch_run *r);
void lvni_launch_report_saved(lvni_launch_run *r); /* where rank 0 was killed */
int64_t lvni_launch_oom_kills(void);
/* The process that failed first, NULL when none did; its record (kind "" when there is none). */
const lvni_launch_proc *lvni_launch_first(const lvni_launch_run *r, lvni_core_error_record *record);
/* One rank was asked to end, and all did by themselves, with the exit code of that signal: not a
 * failure, and not a reason to start again. */
bool lvni_launch_was_asked(const lvni_launch_run *r);
int lvni_launch_code_of(const lvni_launch_proc *p); /* exit code, or 128 + signal */
int lvni_launch_code(const lvni_launch_run *r);     /* of the launcher */

/* launch_srun.c: in an allocation and outside of a step: becomes srun, or runs one after another,
 * if that is to be. *done: there is nothing more to do, and *code is the launcher's exit code. */
lvn_status lvni_launch_run_srun(lvni_launch_run *r, bool *done, int *code);

#endif
