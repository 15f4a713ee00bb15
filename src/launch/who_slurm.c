/* Slurm: what the job is, and who a task is in its step. The step's variables come first: those of
 * the job are inherited unchanged by steps on fewer nodes, and the shell of a batch script has a
 * task number without being a task of anything. */
#include "launch/who_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define INTERACTIVE_STEP UINT64_C(4294967290)
enum { COMMAND = 120 };

static const char *const job_id[] = {"SLURM_JOB_ID", "SLURM_JOBID", NULL},
                         *const step_id[] = {"SLURM_STEP_ID", "SLURM_STEPID", NULL},
                         *const world[] = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS",
                                           NULL},
                         *const nnodes[] = {"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES",
                                            "SLURM_NNODES", NULL},
                         *const vector[] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE",
                                            NULL},
                         *const nodelist[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
                                              "SLURM_NODELIST", NULL},
                         *const job_tasks[] = {"SLURM_NTASKS", "SLURM_NPROCS", NULL},
                         *const job_nodes[] = {"SLURM_JOB_NUM_NODES", "SLURM_NNODES", NULL};

/* Reads the first of the names that is set. */
static lvn_status read_first(const lvni_who_ask *ask, const char *const *names, int *out)
{
    const char *name = lvni_env_first(ask->env, names);
    return name == NULL ? LVN_OK : lvni_env_int(ask->env, name, ask->notices, out);
}

static lvn_status read_id(const lvni_who_ask *ask, const char *const *names, bool *set,
                          uint64_t *out)
{
    const char *name = lvni_env_first(ask->env, names);
    *set = name != NULL;
    return name == NULL ? LVN_OK : lvni_env_number(ask->env, name, UINT32_MAX, ask->notices, out);
}

/* How much was allocated, as far as a batch script's shell is told. */
static lvn_status read_allocation(const lvni_who_ask *ask, lvni_slurm_job *job)
{
    lvni_task_vector v = {.n = 0};
    LVN_TRY(lvni_task_vector_read(
        "SLURM_TASKS_PER_NODE", lvni_env_get(ask->env, "SLURM_TASKS_PER_NODE"), ask->notices, &v));
    job->nodes = v.n > 0 ? v.n : 1;
    job->tasks = v.n > 0 ? (int)v.sum : 0;
    lvni_task_vector_free(&v);
    LVN_TRY(read_first(ask, job_nodes, &job->nodes));
    LVN_TRY(read_first(ask, job_tasks, &job->tasks));
    job->tasks = job->tasks == 0 ? job->nodes : job->tasks;
    LVN_TRY(lvni_env_int(ask->env, "SLURM_HET_SIZE", ask->notices, &job->het_size));
    int all = 0; /* the plain variables of a heterogeneous job tell of its first part alone */
    for (int k = 0; k < job->het_size && k < 1024; k++) {
        char name[48];
        int tasks = 1;
        snprintf(name, sizeof name, "SLURM_NTASKS_HET_GROUP_%d", k);
        LVN_TRY(lvni_env_int(ask->env, name, ask->notices, &tasks));
        all += tasks;
    }
    job->tasks = all > job->tasks ? all : job->tasks;
    return LVN_OK;
}

static bool shell_name(const char *name)
{
    static const char *const shells[] = {"bash", "sh", "zsh", "interactive"};
    for (size_t i = 0; name != NULL && i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(name, shells[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* A step of one task is a shell when it has a terminal, is the special step, or the job is called
 * like one. */
static lvn_status find_interactive(const lvni_who_ask *ask, lvni_slurm_job *job)
{
    static const char fix[] = "LEVIN_INTERACTIVE=1: the step is a shell, with one process; 0: its "
                              "tasks are ranks; or unset it";
    LVN_TRY(lvni_env_flag(ask->env, "LEVIN_INTERACTIVE", fix, ask->notices, &job->interactive));
    if (lvni_env_get(ask->env, "LEVIN_INTERACTIVE") != NULL) {
        return LVN_OK;
    }
    int tasks = 0;
    LVN_TRY(lvni_env_int(ask->env, "SLURM_STEP_NUM_TASKS", ask->notices, &tasks));
    const bool terminal = lvni_env_get(ask->env, "SLURM_PTY_PORT") != NULL ||
                          lvni_env_get(ask->env, "SLURM_PTY_WIN_COL") != NULL;
    job->interactive = tasks == 1 && (terminal || job->step_id == INTERACTIVE_STEP ||
                                      shell_name(lvni_env_get(ask->env, "SLURM_JOB_NAME")));
    return LVN_OK;
}

/* The name by which `scontrol requeue` knows the job: of an array "8_3", of a heterogeneous job its
 * first part's. */
static lvn_status find_requeue_id(const lvni_who_ask *ask, lvni_slurm_job *job)
{
    uint64_t array = 0, task = 0, id = job->job_id;
    LVN_TRY(lvni_env_number(ask->env, "SLURM_ARRAY_JOB_ID", UINT32_MAX, ask->notices, &array));
    LVN_TRY(lvni_env_number(ask->env, "SLURM_ARRAY_TASK_ID", UINT32_MAX, ask->notices, &task));
    LVN_TRY(lvni_env_number(ask->env, "SLURM_JOB_ID_HET_GROUP_0", UINT32_MAX, ask->notices, &id));
    if (lvni_env_get(ask->env, "SLURM_ARRAY_JOB_ID") != NULL &&
        lvni_env_get(ask->env, "SLURM_ARRAY_TASK_ID") != NULL) {
        snprintf(job->requeue_id, sizeof job->requeue_id, "%" PRIu64 "_%" PRIu64, array, task);
    } else {
        snprintf(job->requeue_id, sizeof job->requeue_id, "%" PRIu64, id);
    }
    return LVN_OK;
}

lvn_status lvni_who_read_job(const lvni_who_ask *ask, lvni_slurm_job *job)
{
    LVN_TRY(read_id(ask, job_id, &job->job, &job->job_id));
    if (!job->job) {
        return LVN_OK;
    }
    LVN_TRY(read_id(ask, step_id, &job->step, &job->step_id));
    job->task = lvni_env_get(ask->env, "SLURM_PROCID") != NULL;
    LVN_TRY(job->step ? find_interactive(ask, job) : read_allocation(ask, job));
    LVN_TRY(lvni_env_int(ask->env, "SLURM_RESTART_COUNT", ask->notices, &job->restart));
    LVN_TRY(lvni_env_int(ask->env, "SLURM_CPUS_PER_TASK", ask->notices, &job->cpus_per_task));
    LVN_TRY(lvni_env_int(ask->env, "SLURM_CPUS_ON_NODE", ask->notices, &job->cpus_on_node));
    return find_requeue_id(ask, job);
}

static lvn_status not_set(const lvni_who_ask *ask, const char *what, const char *name)
{
    const lvn_status s =
        lvni_notice_error(ask->notices, 100, "this task of a Slurm step has no %s", what);
    lvni_notice_found(ask->notices, "%s is not set", name);
    lvni_notice_fix(ask->notices,
                    "start the tasks with srun, which sets it; do not clear SLURM_ variables");
    ask->notices->own = true;
    return s;
}

/* A number of the step from the first of the names that is set. */
static lvn_status need(const lvni_who_ask *ask, lvni_who *who, lvni_who_field field,
                       const char *what, const char *const *names, int *out)
{
    const char *name = lvni_env_first(ask->env, names);
    if (name == NULL) {
        return not_set(ask, what, names[0]);
    }
    who->from[field] = name;
    return lvni_env_int(ask->env, name, ask->notices, out);
}

/* Hosts and tasks of each node; the number of nodes where it is told by nothing else. */
static lvn_status read_nodes(const lvni_who_ask *ask, lvni_who *who)
{
    const char *name = lvni_env_first(ask->env, nodelist);
    if (name != NULL) {
        who->from[LVNI_WHO_HOSTS] = name;
        LVN_TRY(lvni_hosts_expand(&who->hosts, lvni_env_get(ask->env, name), ask->notices));
    }
    name = lvni_env_first(ask->env, vector);
    if (name != NULL) {
        who->from[LVNI_WHO_LOCAL_WORLD] = name;
        LVN_TRY(
            lvni_task_vector_read(name, lvni_env_get(ask->env, name), ask->notices, &who->tasks));
    }
    if (lvni_env_first(ask->env, nnodes) == NULL && (who->hosts.n > 0 || who->tasks.n > 0)) {
        who->nnodes = who->hosts.n > 0 ? (int)who->hosts.n : who->tasks.n;
        return LVN_OK;
    }
    return need(ask, who, LVNI_WHO_NNODES, "number of nodes", nnodes, &who->nnodes);
}

/* Vector, nodes and hosts must tell one story. */
static lvn_status find_local_world(const lvni_who_ask *ask, lvni_who *who)
{
    if (who->hosts.n > 0 && who->hosts.n != (size_t)who->nnodes) {
        return lvni_who_inconsistent(who, ask->notices,
                                     "the step has %d nodes, but its list has %zu hosts",
                                     who->nnodes, who->hosts.n);
    }
    if (who->tasks.n == 0) {
        if (who->nnodes < 1 || who->world % who->nnodes != 0) {
            return lvni_who_inconsistent(who, ask->notices,
                                         "%d tasks cannot be spread evenly over %d nodes, and "
                                         "nothing tells the tasks of each",
                                         who->world, who->nnodes);
        }
        who->local_world = who->world / who->nnodes;
        return LVN_OK;
    }
    if (who->tasks.sum != who->world || who->tasks.n != who->nnodes) {
        return lvni_who_inconsistent(
            who, ask->notices,
            "the tasks per node add up to %lld on %d nodes, but the step has %d tasks on %d nodes",
            (long long)who->tasks.sum, who->tasks.n, who->world, who->nnodes);
    }
    if (who->node_rank >= who->tasks.n) {
        return lvni_who_inconsistent(who, ask->notices, "there is no node %d", who->node_rank);
    }
    who->local_world = who->tasks.tasks[who->node_rank];
    return LVN_OK;
}

lvn_status lvni_who_read_step(const lvni_who_ask *ask, lvni_who *who)
{
    static const char *const procid[] = {"SLURM_PROCID", NULL},
                             *const localid[] = {"SLURM_LOCALID", NULL},
                             *const nodeid[] = {"SLURM_NODEID", NULL};
    LVN_TRY(need(ask, who, LVNI_WHO_RANK, "number", procid, &who->rank));
    LVN_TRY(need(ask, who, LVNI_WHO_WORLD, "number of tasks", world, &who->world));
    LVN_TRY(need(ask, who, LVNI_WHO_LOCAL_RANK, "number on its node", localid, &who->local_rank));
    LVN_TRY(need(ask, who, LVNI_WHO_NODE_RANK, "number of its node", nodeid, &who->node_rank));
    LVN_TRY(read_nodes(ask, who));
    LVN_TRY(find_local_world(ask, who));
    /* rank 0 may be on another node: arbitrary placement */
    who->store_host = who->node_rank == 0 && who->local_rank == 0;
    who->restart = who->slurm.restart;
    const char *run_id = lvni_env_get(ask->env, "LEVIN_RUN_ID");
    snprintf(who->run_id, sizeof who->run_id, "%s", run_id != NULL ? run_id : "");
    return LVN_OK;
}

lvn_status lvni_who_no_srun(const lvni_who_ask *ask, const lvni_slurm_job *job)
{
    lvni_str command = {.len = 0};
    char het[48] = "";
    for (int i = 0; i < ask->options->n_words; i++) {
        lvni_str_printf(&command, "%s%s", i > 0 ? " " : "", ask->options->words[i]);
    }
    if (job->het_size > 1) {
        snprintf(het, sizeof het, "--het-group=0-%d ", job->het_size - 1);
    }
    const lvn_status s = lvni_notice_error(
        ask->notices, 101, "srun was not used: only one process is running, %d were allocated",
        job->tasks > 1 ? job->tasks : job->nodes);
    static const char *const told[] = {"SLURM_NTASKS", "SLURM_TASKS_PER_NODE",
                                       "SLURM_JOB_NUM_NODES", "SLURM_STEP_ID"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        lvni_env_found(ask->env, told[i], ask->notices);
    }
    lvni_notice_fix(ask->notices, "srun %s%.*s%s", het, COMMAND, lvni_str_text(&command),
                    command.len > COMMAND ? "..." : "");
    lvni_notice_fix(ask->notices, "or levin launch -- PROGRAM ..., which starts the step itself");
    lvni_str_free(&command);
    return s;
}

lvn_status lvni_who_check_stale(const lvni_who_ask *ask, const lvni_who *who)
{
    const bool marked = lvni_env_get(ask->env, "TORCHELASTIC_RUN_ID") != NULL ||
                        lvni_env_get(ask->env, "LEVIN_RUN_ID") != NULL;
    const lvni_slurm_job *job = &who->slurm;
    if (marked || !job->job || !job->step || !job->task || job->interactive) {
        return LVN_OK;
    }
    int rank = who->rank, n = who->world, local = who->local_rank;
    LVN_TRY(lvni_env_int(ask->env, "SLURM_PROCID", ask->notices, &rank));
    LVN_TRY(read_first(ask, world, &n));
    LVN_TRY(lvni_env_int(ask->env, "SLURM_LOCALID", ask->notices, &local));
    if (rank == who->rank && n == who->world && local == who->local_rank) {
        return LVN_OK;
    }
    const lvn_status s = lvni_notice_error(ask->notices, 107,
                                           "RANK, WORLD_SIZE and LOCAL_RANK are set, by no "
                                           "launcher, and disagree with the Slurm step");
    const char *const told[] = {
        "RANK",         "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", lvni_env_first(ask->env, world),
        "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        if (told[i] != NULL) {
            lvni_env_found(ask->env, told[i], ask->notices);
        }
    }
    lvni_notice_fix(ask->notices, "unset RANK WORLD_SIZE LOCAL_RANK");
    lvni_notice_fix(ask->notices, "or LEVIN_ENV=slurm (levin slurm env --env-source slurm)");
    ask->notices->own = true;
    return s;
}
