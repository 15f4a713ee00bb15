/* `levin launch` in a Slurm allocation, but not in a step: only this one process would run. srun
 * starts the program as the step that was allocated; with max_restarts, launch_elastic.c runs one
 * srun after another. */
#include "launch/launch_srun.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "launch/env_vars.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "2(x2)", "2", "1,2". */
static void read_tasks_per_node(const char *text, lvni_launch_allocation *a)
{
    a->per_node = text != NULL && strchr(text, ',') == NULL ? (int)strtol(text, NULL, 10) : 0;
}

static bool several(const lvni_launch_allocation *a, const char *per_node)
{
    return a->nodes > 1 || a->per_node > 1 || (per_node != NULL && strchr(per_node, ',') != NULL);
}

static lvn_status read_allocation(char *const *environment, lvni_core_notices *notices,
                                  lvni_launch_allocation *a)
{
    *a = (lvni_launch_allocation){.nodes = 1};
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

static lvn_status check_nodes(const lvni_launch_options *o, const lvni_launch_allocation *a,
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

static int write_first(const lvni_launch_options *o, const lvni_launch_allocation *a,
                       char flags[LVNI_SRUN_FLAGS][LVNI_SRUN_FLAG_BYTES])
{
    int n = 0;
    const int asked = (int)strtol(o->nproc, NULL, 10);
    const int per_node = asked > 0 ? asked : a->per_node;
    snprintf(flags[n++], LVNI_SRUN_FLAG_BYTES, "--nodes=%d", a->nodes);
    if (per_node > 0) {
        snprintf(flags[n++], LVNI_SRUN_FLAG_BYTES, "--ntasks-per-node=%d", per_node);
        if (asked > 0) {
            /* the job's own would win */
            snprintf(flags[n++], LVNI_SRUN_FLAG_BYTES, "--ntasks=%d", asked * a->nodes);
        }
    } else if (a->tasks > 0) {
        snprintf(flags[n++], LVNI_SRUN_FLAG_BYTES, "--ntasks=%d", a->tasks);
    }
    return n;
}

/* A step whose node died keeps its CPUs and its memory in Slurm's books until the job ends: without
 * sharing them the next one would wait for ever. */
static int write_later(const lvni_launch_srun_step *step,
                       char flags[LVNI_SRUN_FLAGS][LVNI_SRUN_FLAG_BYTES])
{
    int n = 0;
    snprintf(flags[n++], LVNI_SRUN_FLAG_BYTES, "--overlap");
    snprintf(flags[n++], LVNI_SRUN_FLAG_BYTES, "--mem=0");
    snprintf(flags[n++], LVNI_SRUN_FLAG_BYTES, "--nodes=%d", step->nodes);
    snprintf(flags[n++], LVNI_SRUN_FLAG_BYTES, "--ntasks=%d", step->tasks);
    if (step->per_node > 0) {
        snprintf(flags[n++], LVNI_SRUN_FLAG_BYTES, "--ntasks-per-node=%d", step->per_node);
    }
    return n;
}

lvn_status lvni_launch_srun_command_make(const lvni_launch_run *r, const lvni_launch_allocation *a,
                                         const lvni_launch_srun_step *step,
                                         lvni_launch_srun_command *out)
{
    *out = (lvni_launch_srun_command){0};
    int n_flags = step == NULL ? write_first(&r->o, a, out->flags) : write_later(step, out->flags);
    if (a->cpus_per_task > 0) {
        snprintf(out->flags[n_flags++], LVNI_SRUN_FLAG_BYTES, "--cpus-per-task=%d",
                 a->cpus_per_task);
    }
    snprintf(out->flags[n_flags++], LVNI_SRUN_FLAG_BYTES, "--kill-on-bad-exit=1");
    out->argv =
        lvni_core_calloc(LVNI_TAG_CORE, (size_t)(n_flags + a->n_program) + 3, sizeof *out->argv);
    if (out->argv == NULL) {
        return LVN_ERR_MEMORY;
    }
    out->argv[out->n++] = "srun";
    for (int i = 0; i < n_flags; i++) {
        out->argv[out->n++] = out->flags[i];
    }
    if (step != NULL) {
        out->argv[out->n++] = step->nodelist;
    }
    for (int i = 0; i < a->n_program; i++) {
        out->argv[out->n++] = r->o.program[i];
    }
    return LVN_OK;
}

void lvni_launch_srun_command_free(lvni_launch_srun_command *command)
{
    lvni_core_free(command->argv);
    command->argv = NULL;
}

/* What a step of several in a row needs: the name and the number by which a training knows that it
 * goes on, and none of the options that contradict those of write_later. */
static void set_attempt(const lvni_launch_run *r, lvni_launch_variables *v)
{
    static const char *const contrary[] = {"SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU",
                                           "SLURM_MEM_PER_NODE", "SLURM_NO_KILL",
                                           "SLURM_EXCLUSIVE"};
    lvni_launch_variables_set(v, "LEVIN_RUN_ID", r->run_id);
    lvni_launch_variables_set_number(v, "LEVIN_RESTART_COUNT", r->attempt);
    lvni_launch_variables_set_number(v, "LEVIN_MAX_RESTARTS", r->o.max_restarts);
    for (size_t i = 0; r->attempt > 0 && i < sizeof contrary / sizeof *contrary; i++) {
        lvni_launch_variables_unset(v, contrary[i]);
    }
}

/* The address of the rendezvous may be set by the user in a batch script, unless this runs under a
 * launcher. */
lvn_status lvni_launch_srun_environment(const lvni_launch_run *r, const lvni_launch_rank_name *name,
                                        lvni_launch_variables *v)
{
    const lvni_launch_options *o = &r->o;
    *v = (lvni_launch_variables){0};
    lvni_launch_variables_copy(v, r->environment);
    lvni_launch_forget_earlier(v, lvni_launch_env_get(r->environment, "LEVIN_LAUNCHED") != NULL);
    if (o->max_restarts > 0) {
        set_attempt(r, v);
    }
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
static lvn_status check_values(const lvni_launch_run *r, bool *differ)
{
    static const lvni_launch_rank_name one = {.host = "", .run_id = ""}, two = {.rank = 1,
                                                                                .local_rank = 1,
                                                                                .node_rank = 1,
                                                                                .world = 1,
                                                                                .host = "",
                                                                                .run_id = ""};
    lvni_launch_variables a, b = {0};
    lvn_status s;
    *differ = false;
    LVNI_TRY_DONE(s, lvni_launch_srun_environment(r, &one, &a));
    LVNI_TRY_DONE(s, lvni_launch_srun_environment(r, &two, &b));
    for (size_t i = 0; i < a.n && i < b.n; i++) {
        *differ = *differ || strcmp(a.list[i], b.list[i]) != 0;
    }
done:
    lvni_launch_variables_free(&a);
    lvni_launch_variables_free(&b);
    return s;
}

static lvn_status warn_of_lost(lvni_launch_run *r)
{
    const lvni_launch_options *o = &r->o;
    static const char *const lost[] = {
        "devices",   "gpus",      "accelerator", "strategy", "allow_shared_device",
        "node_rank", "run_id",    "grace",       "timeout",  "straggler_timeout",
        "run_dir",   "keep_logs", "output",      "error",    "output_append_shared",
        "tee",       "redirect",  "redirects",   "log_dir",  "role",
        "show",      "prefix",    "no_prefix",   "pty",      "tail",
        "stdin",     "bind"};
    bool differ;
    LVN_TRY(check_values(r, &differ));
    lvni_core_str names = {0};
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        const bool kept = o->max_restarts > 0 && strcmp(lost[i], "run_id") == 0;
        if (!kept && lvni_core_config_layer(o->config, lost[i]) != LVNI_LAYER_DEFAULT) {
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
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&names));
    if (names.len > 0) {
        lvni_core_notice_warn(
            &r->notices, 218,
            "srun starts the ranks, so these have no effect: %s; --srun never keeps "
            "them, on this node alone",
            lvni_core_str_text(&names));
    }
done:
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

lvn_status lvni_launch_srun_find(const lvni_launch_run *r, char **path)
{
    int code;
    if (lvni_launch_program_search("srun", lvni_launch_env_get(r->environment, "PATH"), path,
                                   &code) != LVN_OK) {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "srun, which starts the tasks of this allocation, is not in "
                                    "PATH; --srun never starts processes on this node alone");
    }
    return LVN_OK;
}

static lvn_status become_srun(const lvni_launch_run *r, const lvni_launch_srun_command *command)
{
    static const lvni_launch_rank_name no_rank = {.host = "", .run_id = ""};
    char *path;
    lvni_launch_variables v;
    sigset_t mask;
    LVN_TRY(lvni_launch_srun_find(r, &path));
    lvn_status s = lvni_launch_srun_environment(r, &no_rank, &v);
    if (s == LVN_OK) {
        sigprocmask(SIG_SETMASK, NULL, &mask);
        lvni_launch_unblock(r->environment, &mask);
        sigprocmask(SIG_SETMASK, &mask, NULL);
        execve(path, (char *const *)(uintptr_t)command->argv, v.list);
        s = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__, "%s cannot be executed: %s", path,
                          strerror(errno));
    }
    lvni_launch_variables_free(&v);
    lvni_core_free(path);
    return s;
}

/* min_ranks counts where steps follow each other, and nowhere else. */
static lvn_status check_min_ranks(const lvni_launch_options *o, bool steps)
{
    if (steps || lvni_core_config_layer(o->config, "min_ranks") == LVNI_LAYER_DEFAULT) {
        return LVN_OK;
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "min_ranks %d has no effect: ranks become fewer only over the nodes of a Slurm "
             "allocation, started by `levin launch --max-restarts R` in the batch script",
             o->min_ranks);
}

static lvn_status run_steps(lvni_launch_run *r, const lvni_launch_allocation *a, int *code)
{
    if (r->o.max_restarts > 0 && !r->o.dry_run) {
        return lvni_launch_elastic(r, a, code);
    }
    lvni_launch_srun_command command;
    LVN_TRY(lvni_launch_srun_command_make(r, a, NULL, &command));
    lvn_status s = LVN_OK;
    if (r->o.dry_run) {
        print_command(command.n, command.argv);
    } else {
        s = become_srun(r, &command);
    }
    lvni_launch_srun_command_free(&command);
    return s;
}

lvn_status lvni_launch_run_srun(lvni_launch_run *r, bool *done, int *code)
{
    const lvni_launch_options *o = &r->o;
    lvni_launch_allocation a;
    *done = false;
    if (o->srun == LVNI_SRUN_NEVER || !outside_of_steps(r->environment)) {
        return check_min_ranks(o, false);
    }
    LVN_TRY(read_allocation(r->environment, &r->notices, &a));
    const char *vector = lvni_launch_env_get(r->environment, "SLURM_TASKS_PER_NODE");
    if (o->srun == LVNI_SRUN_AUTO && !several(&a, vector)) {
        return check_min_ranks(o, false);
    }
    LVN_TRY(check_min_ranks(o, o->max_restarts > 0));
    LVN_TRY(check_nodes(o, &a, &r->notices));
    LVN_TRY(warn_of_lost(r));
    LVN_TRY(o->strict ? lvni_core_notices_refuse_warnings(&r->notices) : LVN_OK);
    if (!o->quiet) {
        fputs(lvni_core_str_text(&r->notices.warnings), stderr);
    }
    /* the tasks choose it themselves */
    const bool claimed = !o->dry_run && lvni_launch_give_back(r->environment);
    a.n_program = o->n_program - (claimed ? 1 : 0); /* without its last argument, out=DIR */
    *done = true;
    return run_steps(r, &a, code);
}
