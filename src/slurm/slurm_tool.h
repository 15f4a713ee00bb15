/* Runs one of Slurm's commands (squeue, scontrol, sinfo, sbatch, ...): started without a shell,
 * found through PATH, its output heard, and ended when the time is over: a controller that is down
 * lets some of them wait for minutes. Which question is asked, and what an answer means, is the
 * caller's. */
#ifndef LEVIN_SLURM_SLURM_TOOL_H
#define LEVIN_SLURM_SLURM_TOOL_H

#include "core/str.h"

#include <sys/types.h>

enum {
    LVNI_SLURM_TOOL_TIMED_OUT = 124, /* it was killed, with its children */
    LVNI_SLURM_TOOL_NOT_FOUND = 127  /* it cannot be started: the output has the reason */
};

/* argv[0] is the command's name; the list ends with NULL. Until it has ended, or timeout_ms have
 * passed. What it wrote to both of its outputs is added to `output`, the first max_bytes of it: a
 * text of that length may have been cut. *exit_code: its own, 128+n of signal n, or one of those
 * above; then a last line is added to the output, without its end. A status is one of this
 * process: memory, or a pipe. */
lvn_status lvni_slurm_tool_run(const char *const *argv, int timeout_ms, size_t max_bytes,
                               lvni_core_str *output, int *exit_code);
/* In another environment than this process's. Of either one the variables with which a user filters
 * what squeue, sinfo, scancel and sacct do (SQUEUE_PARTITION) are left out. */
lvn_status lvni_slurm_tool_run_in(char *const *environment, const char *const *argv, int timeout_ms,
                                  size_t max_bytes, lvni_core_str *output, int *exit_code);

/* ---- the parts, for a command that has no limit of time (sbatch --wait) ---- */

typedef enum lvni_slurm_tool_kind {
    LVNI_SLURM_TOOL_HEARD,  /* both outputs are heard; a process group of its own */
    LVNI_SLURM_TOOL_BESIDE, /* its errors go where this process's go, and ^C ends both */
} lvni_slurm_tool_kind;

typedef struct lvni_slurm_tool {
    pid_t pid;
    int output; /* to read from; closed by lvni_slurm_tool_end */
} lvni_slurm_tool;

/* *error: 0, or the errno of a command that cannot be started: then there is nothing to end. Its
 * signals are those of a new process, whatever is blocked here; its standard input is empty. */
lvn_status lvni_slurm_tool_start(lvni_slurm_tool_kind kind, char *const *environment,
                                 const char *const *argv, lvni_slurm_tool *tool, int *error);
/* Waits for it; the exit code. */
int lvni_slurm_tool_end(lvni_slurm_tool *tool);

#endif
