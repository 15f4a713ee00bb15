/* `levin launch` in a Slurm allocation, but not in a step: only this one process would run. srun
 * starts the program as the step that was allocated. */
#include "launch/launch_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "launch/env_vars.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLAGS = 5, FLAG_BYTES = 64 };

typedef struct allocation {
    int nodes;
    int per_node;             /* tasks per node; 0: not the same on all */
    int tasks, cpus_per_task; /* 0: not given */
} allocation;

/* "2(x2)", "2", "1,2". */
static void read_tasks_per_node(const char *text, allocation *a)
{
    a->per_node = text != NULL && strchr(text, ',') == NULL ? (int)strtol(text, NULL, 10) : 0;
}

static bool several(const allocation *a, const char *per_node)
{
    return a->nodes > 1 || a->per_node > 1 || (per_node != NULL && strchr(per_node, ',') != NULL);
}

static lvn_status read_allocation(char *const *environment, lvni_core_notices *notices,
                                  allocation *a)
{
    *a = (allocation){.nodes = 1};
    LVN_TRY(lvni_launch_env_int(environment, "SLURM_NNODES", notices, &a->nodes));
    LVN_TRY(lvni_launch_env_int(environment, "SLURM_JOB_NUM_NODES", notices, &a->nodes));
    LVN_TRY(lvni_launch_env_int(environment, "SLURM_NTASKS", notices, &a->tasks));
    LVN_TRY(lvni_launch_env_int(environment, "SLURM_CPUS_PER_TASK", notices, &a->cpus_per_task));
    const char *vector = lvni_launch_env_get(environment, "SLURM_TASKS_PER_NODE");
    if (vector == NULL) {
        vector = lvni_launch_env_get(environment, "SLURM_NTASKS_PER_NODE");
    }
    read_tasks_per_node(vector, a);
    return LVN_OK;
}

static bool outside_of_steps(char *const *environment)
{
    const bool job = lvni_launch_env_get(environment, "SLURM_JOB_ID") != NULL ||
                     lvni_launch_env_get(environment, "SLURM_JOBID") != NULL;
    return job && lvni_launch_env_get(environment, "SLURM_STEP_ID") == NULL &&
           lvni_launch_env_get(environment, "SLURM_STEPID") == NULL;
}

static lvn_status check_nodes(const lvni_launch_options *o, const allocation *a,
                              lvni_core_notices *notices)
{
    if (!o->nodes_given || o->nodes == a->nodes) {
        return LVN_OK;
    }
    const lvn_status s = lvni_core_notice_error(
        notices, 119, "%d nodes are asked for, %d are allocated", o->nodes, a->nodes);
    lvni_core_notice_found(notices, "--nodes %d, SLURM_JOB_NUM_NODES=%d", o->nodes, a->nodes);
    lvni_core_notice_fix(notices, "change one of them: #SBATCH --nodes=%d, or leave --nodes out",
                         o->nodes);
    return s;
}

static int write_flags(const lvni_launch_options *o, const allocation *a,
                       char flags[FLAGS][FLAG_BYTES])
{
    int n = 0;
    const int asked = (int)strtol(o->nproc, NULL, 10);
    const int per_node = asked > 0 ? asked : a->per_node;
    snprintf(flags[n++], FLAG_BYTES, "--nodes=%d", a->nodes);
    if (per_node > 0) {
        snprintf(flags[n++], FLAG_BYTES, "--ntasks-per-node=%d", per_node);
        if (asked > 0) {
            /* the job's own would win */
            snprintf(flags[n++], FLAG_BYTES, "--ntasks=%d", asked * a->nodes);
        }
    } else if (a->tasks > 0) {
        snprintf(flags[n++], FLAG_BYTES, "--ntasks=%d", a->tasks);
    }
    if (a->cpus_per_task > 0) {
        snprintf(flags[n++], FLAG_BYTES, "--cpus-per-task=%d", a->cpus_per_task);
    }
    snprintf(flags[n++], FLAG_BYTES, "--kill-on-bad-exit=1");
    return n;
}

/* What of the options reaches the ranks without a launcher of ours. The address of the rendezvous
 * may be set by the user in a batch script, unless this runs under a launcher. */
static lvn_status step_environment(const lvni_launch_options *o, char *const *environment,
                                   const lvni_launch_rank_name *name, lvni_launch_variables *v)
{
    *v = (lvni_launch_variables){0};
    lvni_launch_variables_copy(v, environment);
    lvni_launch_forget_earlier(v, lvni_launch_env_get(environment, "LEVIN_LAUNCHED") != NULL);
    lvni_launch_export_timeout(o, v);
    if (o->master_addr != NULL) {
        lvni_launch_variables_set(v, "LEVIN_MASTER_ADDR", o->master_addr);
        lvni_launch_variables_set(v, "MASTER_ADDR", o->master_addr);
    }
    if (lvni_launch_port_number(o->master_port) > 0) {
        lvni_launch_variables_set(v, "LEVIN_MASTER_PORT", o->master_port);
        lvni_launch_variables_set(v, "MASTER_PORT", o->master_port);
    }
    if (o->strict_given) {
        lvni_launch_variables_set(v, "LEVIN_STRICT", o->strict ? "1" : "0");
    }
    if (o->nccl_debug != NULL) {
        lvni_launch_variables_set(v, "NCCL_DEBUG", o->nccl_debug);
    }
    if (o->ifname != NULL) {
        lvni_launch_variables_set(v, "NCCL_SOCKET_IFNAME", o->ifname);
    }
    if (o->omp > 0) {
        lvni_launch_variables_set_number(v, "OMP_NUM_THREADS", o->omp);
    }
    LVN_TRY(lvni_launch_set_requested(o, name, v));
    return lvni_launch_variables_status(v);
}

/* ---- options without effect ---- */

/* Does any variable depend on the rank? srun gives all tasks the same. */
static lvn_status check_values(const lvni_launch_options *o, char *const *environment, bool *differ)
{
    static const lvni_launch_rank_name one = {.host = "", .run_id = ""}, two = {.rank = 1,
                                                                                .local_rank = 1,
                                                                                .node_rank = 1,
                                                                                .world = 1,
                                                                                .host = "",
                                                                                .run_id = ""};
    lvni_launch_variables a, b = {0};
    lvn_status s = step_environment(o, environment, &one, &a);
    if (s == LVN_OK) {
        s = step_environment(o, environment, &two, &b);
    }
    *differ = false;
    for (size_t i = 0; s == LVN_OK && i < a.n && i < b.n; i++) {
        *differ = *differ || strcmp(a.list[i], b.list[i]) != 0;
    }
    lvni_launch_variables_free(&a);
    lvni_launch_variables_free(&b);
    return s;
}

static lvn_status warn_of_lost(const lvni_launch_options *o, char *const *environment,
                               lvni_core_notices *notices)
{
    static const char *const lost[] = {"devices",
                                       "gpus",
                                       "accelerator",
                                       "strategy",
                                       "allow_shared_device",
                                       "node_rank",
                                       "run_id",
                                       "max_restarts",
                                       "crash_loop",
                                       "grace",
                                       "timeout",
                                       "straggler_timeout",
                                       "run_dir",
                                       "keep_logs",
                                       "output",
                                       "error",
                                       "output_append_shared",
                                       "tee",
                                       "redirect",
                                       "redirects",
                                       "log_dir",
                                       "role",
                                       "show",
                                       "prefix",
                                       "no_prefix",
                                       "pty",
                                       "tail",
                                       "stdin",
                                       "bind"};
    bool differ;
    LVN_TRY(check_values(o, environment, &differ));
    lvni_core_str names = {0};
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        if (lvni_core_config_layer(o->config, lost[i]) != LVNI_LAYER_DEFAULT) {
            lvni_core_str_printf(&names, "%s%s", names.len > 0 ? ", " : "", lost[i]);
        }
    }
    if (strcmp(o->master_port, "random") == 0) {
        lvni_core_str_printf(&names, "%smaster_port=random", names.len > 0 ? ", " : "");
    }
    if (differ) {
        lvni_core_str_printf(&names, "%sthe codes %%r %%l %%n %%w in values of variables",
                             names.len > 0 ? ", " : "");
    }
    const lvn_status s = lvni_core_str_status(&names);
    if (s == LVN_OK && names.len > 0) {
        lvni_core_notice_warn(
            notices, 218,
            "srun starts the ranks, so these have no effect: %s; --srun never keeps "
            "them, on this node alone",
            lvni_core_str_text(&names));
    }
    lvni_core_str_free(&names);
    return s;
}

static void print_command(int n, const char *const *argv)
{
    for (int i = 0; i < n; i++) {
        lvni_core_print(stdout, "%s%s", i > 0 ? " " : "", argv[i]);
    }
    putchar('\n');
}

static lvn_status become_srun(const lvni_launch_options *o, const char *const *argv,
                              char *const *environment)
{
    char *path;
    int code;
    if (lvni_launch_program_search("srun", lvni_launch_env_get(environment, "PATH"), &path,
                                   &code) != LVN_OK) {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "srun, which starts the tasks of this allocation, is not in "
                                    "PATH; --srun never starts processes on this node alone");
    }
    static const lvni_launch_rank_name no_rank = {.host = "", .run_id = ""};
    lvni_launch_variables v;
    sigset_t mask;
    lvn_status s = step_environment(o, environment, &no_rank, &v);
    if (s == LVN_OK) {
        sigprocmask(SIG_SETMASK, NULL, &mask);
        lvni_launch_unblock(environment, &mask);
        sigprocmask(SIG_SETMASK, &mask, NULL);
        execve(path, (char *const *)(uintptr_t)argv, v.list);
        s = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__, "%s cannot be executed: %s", path,
                          strerror(errno));
    }
    lvni_launch_variables_free(&v);
    lvni_core_free(path);
    return s;
}

lvn_status lvni_launch_run_srun(const lvni_launch_options *o, char *const *environment,
                                lvni_core_notices *notices, bool *printed)
{
    *printed = false;
    if (o->srun == LVNI_SRUN_NEVER || !outside_of_steps(environment)) {
        return LVN_OK;
    }
    allocation a;
    LVN_TRY(read_allocation(environment, notices, &a));
    const char *vector = lvni_launch_env_get(environment, "SLURM_TASKS_PER_NODE");
    if (o->srun == LVNI_SRUN_AUTO && !several(&a, vector)) {
        return LVN_OK;
    }
    LVN_TRY(check_nodes(o, &a, notices));
    LVN_TRY(warn_of_lost(o, environment, notices));
    LVN_TRY(o->strict ? lvni_core_notices_refuse_warnings(notices) : LVN_OK);
    if (!o->quiet) {
        fputs(lvni_core_str_text(&notices->warnings), stderr);
    }
    char flags[FLAGS][FLAG_BYTES];
    const int n_flags = write_flags(o, &a, flags);
    const char **argv =
        lvni_core_calloc(LVNI_TAG_CORE, (size_t)(n_flags + o->n_program) + 2, sizeof *argv);
    if (argv == NULL) {
        return LVN_ERR_MEMORY;
    }
    int n = 0;
    argv[n++] = "srun";
    for (int i = 0; i < n_flags; i++) {
        argv[n++] = flags[i];
    }
    /* the tasks choose it themselves */
    const bool claimed = !o->dry_run && lvni_launch_give_back(environment);
    const int n_program = o->n_program - (claimed ? 1 : 0); /* without its last argument, out=DIR */
    for (int i = 0; i < n_program; i++) {
        argv[n++] = o->program[i];
    }
    lvn_status s = LVN_OK;
    if (o->dry_run) {
        print_command(n, argv);
        *printed = true;
    } else {
        s = become_srun(o, argv, environment);
    }
    lvni_core_free(argv);
    return s;
}
