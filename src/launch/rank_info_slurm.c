/* Slurm: what the job is, which rank a task is in its step, and what slurm.conf contains about
 * authentication. The step's variables come first: those of the job are inherited unchanged by
 * steps on fewer nodes, and the shell of a batch script has a task number without being a task. */
#include "launch/rank_info_impl.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "launch/env_vars.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define INTERACTIVE_STEP UINT64_C(4294967290)
enum { COMMAND = 120, CONF_MAX = 16 << 20, INCLUDES = 4 };

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
static lvn_status read_first(const lvni_launch_rank_query *ask, const char *const *names, int *out)
{
    const char *name = lvni_launch_env_first(ask->env, names);
    return name == NULL ? LVN_OK : lvni_launch_env_int(ask->env, name, ask->notices, out);
}

static lvn_status read_id(const lvni_launch_rank_query *ask, const char *const *names, bool *set,
                          uint64_t *out)
{
    const char *name = lvni_launch_env_first(ask->env, names);
    *set = name != NULL;
    return name == NULL ? LVN_OK
                        : lvni_launch_env_number(ask->env, name, UINT32_MAX, ask->notices, out);
}

/* How much was allocated, as far as a batch script's shell can know. */
static lvn_status read_allocation(const lvni_launch_rank_query *ask, lvni_launch_slurm_job *job)
{
    lvni_launch_task_vector v = {.n = 0};
    LVN_TRY(lvni_launch_task_vector_read("SLURM_TASKS_PER_NODE",
                                         lvni_launch_env_get(ask->env, "SLURM_TASKS_PER_NODE"),
                                         ask->notices, &v));
    job->nodes = v.n > 0 ? v.n : 1;
    job->tasks = v.n > 0 ? (int)v.sum : 0;
    lvni_launch_task_vector_free(&v);
    LVN_TRY(read_first(ask, job_nodes, &job->nodes));
    LVN_TRY(read_first(ask, job_tasks, &job->tasks));
    job->tasks = job->tasks == 0 ? job->nodes : job->tasks;
    LVN_TRY(lvni_launch_env_int(ask->env, "SLURM_HET_SIZE", ask->notices, &job->het_size));
    int all = 0; /* the plain variables of a heterogeneous job describe its first part alone */
    for (int k = 0; k < job->het_size && k < 1024; k++) {
        char name[48];
        int tasks = 1;
        snprintf(name, sizeof name, "SLURM_NTASKS_HET_GROUP_%d", k);
        LVN_TRY(lvni_launch_env_int(ask->env, name, ask->notices, &tasks));
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
static lvn_status find_interactive(const lvni_launch_rank_query *ask, lvni_launch_slurm_job *job)
{
    static const char fix[] = "LEVIN_INTERACTIVE=1: the step is a shell, with one process; 0: its "
                              "tasks are ranks; or unset it";
    LVN_TRY(
        lvni_launch_env_flag(ask->env, "LEVIN_INTERACTIVE", fix, ask->notices, &job->interactive));
    if (lvni_launch_env_get(ask->env, "LEVIN_INTERACTIVE") != NULL) {
        return LVN_OK;
    }
    int tasks = 0;
    LVN_TRY(lvni_launch_env_int(ask->env, "SLURM_STEP_NUM_TASKS", ask->notices, &tasks));
    const bool terminal = lvni_launch_env_get(ask->env, "SLURM_PTY_PORT") != NULL ||
                          lvni_launch_env_get(ask->env, "SLURM_PTY_WIN_COL") != NULL;
    job->interactive = tasks == 1 && (terminal || job->step_id == INTERACTIVE_STEP ||
                                      shell_name(lvni_launch_env_get(ask->env, "SLURM_JOB_NAME")));
    return LVN_OK;
}

/* The name by which `scontrol requeue` knows the job: of an array "8_3", of a heterogeneous job its
 * first part's. */
static lvn_status find_requeue_id(const lvni_launch_rank_query *ask, lvni_launch_slurm_job *job)
{
    uint64_t array = 0, task = 0, id = job->job_id;
    LVN_TRY(
        lvni_launch_env_number(ask->env, "SLURM_ARRAY_JOB_ID", UINT32_MAX, ask->notices, &array));
    LVN_TRY(
        lvni_launch_env_number(ask->env, "SLURM_ARRAY_TASK_ID", UINT32_MAX, ask->notices, &task));
    LVN_TRY(lvni_launch_env_number(ask->env, "SLURM_JOB_ID_HET_GROUP_0", UINT32_MAX, ask->notices,
                                   &id));
    if (lvni_launch_env_get(ask->env, "SLURM_ARRAY_JOB_ID") != NULL &&
        lvni_launch_env_get(ask->env, "SLURM_ARRAY_TASK_ID") != NULL) {
        snprintf(job->requeue_id, sizeof job->requeue_id, "%" PRIu64 "_%" PRIu64, array, task);
    } else {
        snprintf(job->requeue_id, sizeof job->requeue_id, "%" PRIu64, id);
    }
    return LVN_OK;
}

lvn_status lvni_launch_rank_info_read_job(const lvni_launch_rank_query *ask,
                                          lvni_launch_slurm_job *job)
{
    LVN_TRY(read_id(ask, job_id, &job->job, &job->job_id));
    if (!job->job) {
        return LVN_OK;
    }
    LVN_TRY(read_id(ask, step_id, &job->step, &job->step_id));
    job->task = lvni_launch_env_get(ask->env, "SLURM_PROCID") != NULL;
    LVN_TRY(job->step ? find_interactive(ask, job) : read_allocation(ask, job));
    LVN_TRY(lvni_launch_env_int(ask->env, "SLURM_RESTART_COUNT", ask->notices, &job->restart));
    LVN_TRY(
        lvni_launch_env_int(ask->env, "SLURM_CPUS_PER_TASK", ask->notices, &job->cpus_per_task));
    LVN_TRY(lvni_launch_env_int(ask->env, "SLURM_CPUS_ON_NODE", ask->notices, &job->cpus_on_node));
    return find_requeue_id(ask, job);
}

static lvn_status not_set(const lvni_launch_rank_query *ask, const char *what, const char *name)
{
    const lvn_status s =
        lvni_core_notice_error(ask->notices, 100, "this task of a Slurm step has no %s", what);
    lvni_core_notice_found(ask->notices, "%s is not set", name);
    lvni_core_notice_fix(ask->notices,
                         "start the tasks with srun, which sets it; do not clear SLURM_ variables");
    ask->notices->own = true;
    return s;
}

/* A number of the step from the first of the names that is set. */
static lvn_status need(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info,
                       lvni_launch_rank_info_field field, const char *what,
                       const char *const *names, int *out)
{
    const char *name = lvni_launch_env_first(ask->env, names);
    if (name == NULL) {
        return not_set(ask, what, names[0]);
    }
    info->from[field] = name;
    return lvni_launch_env_int(ask->env, name, ask->notices, out);
}

/* Hosts and tasks of each node; the number of nodes where no variable holds it. */
static lvn_status read_nodes(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info)
{
    const char *name = lvni_launch_env_first(ask->env, nodelist);
    if (name != NULL) {
        info->from[LVNI_RANK_INFO_HOSTS] = name;
        LVN_TRY(lvni_launch_hosts_expand(&info->hosts, lvni_launch_env_get(ask->env, name),
                                         ask->notices));
    }
    name = lvni_launch_env_first(ask->env, vector);
    if (name != NULL) {
        info->from[LVNI_RANK_INFO_LOCAL_WORLD] = name;
        LVN_TRY(lvni_launch_task_vector_read(name, lvni_launch_env_get(ask->env, name),
                                             ask->notices, &info->tasks));
    }
    if (lvni_launch_env_first(ask->env, nnodes) == NULL &&
        (info->hosts.n > 0 || info->tasks.n > 0)) {
        info->nnodes = info->hosts.n > 0 ? (int)info->hosts.n : info->tasks.n;
        return LVN_OK;
    }
    return need(ask, info, LVNI_RANK_INFO_NNODES, "number of nodes", nnodes, &info->nnodes);
}

/* Vector, nodes and hosts must agree. */
static lvn_status find_local_world(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info)
{
    if (info->hosts.n > 0 && info->hosts.n != (size_t)info->nnodes) {
        return lvni_launch_rank_info_inconsistent(
            info, ask->notices, "the step has %d nodes, but its list has %zu hosts", info->nnodes,
            info->hosts.n);
    }
    if (info->tasks.n == 0) {
        if (info->nnodes < 1 || info->world % info->nnodes != 0) {
            return lvni_launch_rank_info_inconsistent(
                info, ask->notices,
                "%d tasks cannot be spread evenly over %d nodes, and "
                "the tasks of each are not given",
                info->world, info->nnodes);
        }
        info->local_world = info->world / info->nnodes;
        return LVN_OK;
    }
    if (info->tasks.sum != info->world || info->tasks.n != info->nnodes) {
        return lvni_launch_rank_info_inconsistent(
            info, ask->notices,
            "the tasks per node add up to %lld on %d nodes, but the step has %d tasks on %d nodes",
            (long long)info->tasks.sum, info->tasks.n, info->world, info->nnodes);
    }
    if (info->node_rank >= info->tasks.n) {
        return lvni_launch_rank_info_inconsistent(info, ask->notices, "there is no node %d",
                                                  info->node_rank);
    }
    info->local_world = info->tasks.tasks[info->node_rank];
    return LVN_OK;
}

lvn_status lvni_launch_rank_info_read_step(const lvni_launch_rank_query *ask,
                                           lvni_launch_rank_info *info)
{
    static const char *const procid[] = {"SLURM_PROCID", NULL},
                             *const localid[] = {"SLURM_LOCALID", NULL},
                             *const nodeid[] = {"SLURM_NODEID", NULL};
    LVN_TRY(need(ask, info, LVNI_RANK_INFO_RANK, "number", procid, &info->rank));
    LVN_TRY(need(ask, info, LVNI_RANK_INFO_WORLD, "number of tasks", world, &info->world));
    LVN_TRY(need(ask, info, LVNI_RANK_INFO_LOCAL_RANK, "number on its node", localid,
                 &info->local_rank));
    LVN_TRY(
        need(ask, info, LVNI_RANK_INFO_NODE_RANK, "number of its node", nodeid, &info->node_rank));
    LVN_TRY(read_nodes(ask, info));
    LVN_TRY(find_local_world(ask, info));
    /* rank 0 may be on another node: arbitrary placement */
    info->store_host = info->node_rank == 0 && info->local_rank == 0;
    info->restart = info->slurm.restart;
    const char *run_id = lvni_launch_env_get(ask->env, "LEVIN_RUN_ID");
    snprintf(info->run_id, sizeof info->run_id, "%s", run_id != NULL ? run_id : "");
    return LVN_OK;
}

lvn_status lvni_launch_rank_info_no_srun(const lvni_launch_rank_query *ask,
                                         const lvni_launch_slurm_job *job)
{
    lvni_core_str command = {.len = 0};
    char het[48] = "";
    for (int i = 0; i < ask->options->n_args; i++) {
        lvni_core_str_printf(&command, "%s%s", i > 0 ? " " : "", ask->options->args[i]);
    }
    if (job->het_size > 1) {
        snprintf(het, sizeof het, "--het-group=0-%d ", job->het_size - 1);
    }
    const lvn_status s = lvni_core_notice_error(
        ask->notices, 101, "srun was not used: only one process is running, %d were allocated",
        job->tasks > 1 ? job->tasks : job->nodes);
    static const char *const reported[] = {"SLURM_NTASKS", "SLURM_TASKS_PER_NODE",
                                           "SLURM_JOB_NUM_NODES", "SLURM_STEP_ID"};
    for (size_t i = 0; i < sizeof reported / sizeof *reported; i++) {
        lvni_launch_env_found(ask->env, reported[i], ask->notices);
    }
    lvni_core_notice_fix(ask->notices, "srun %s%.*s%s", het, COMMAND, lvni_core_str_text(&command),
                         command.len > COMMAND ? "..." : "");
    lvni_core_notice_fix(ask->notices,
                         "or levin launch -- PROGRAM ..., which starts the step itself");
    lvni_core_str_free(&command);
    return s;
}

lvn_status lvni_launch_rank_info_check_stale(const lvni_launch_rank_query *ask,
                                             const lvni_launch_rank_info *info)
{
    const bool marked = lvni_launch_env_get(ask->env, "TORCHELASTIC_RUN_ID") != NULL ||
                        lvni_launch_env_get(ask->env, "LEVIN_RUN_ID") != NULL;
    const lvni_launch_slurm_job *job = &info->slurm;
    if (marked || !job->job || !job->step || !job->task || job->interactive) {
        return LVN_OK;
    }
    int rank = info->rank, n = info->world, local = info->local_rank;
    LVN_TRY(lvni_launch_env_int(ask->env, "SLURM_PROCID", ask->notices, &rank));
    LVN_TRY(read_first(ask, world, &n));
    LVN_TRY(lvni_launch_env_int(ask->env, "SLURM_LOCALID", ask->notices, &local));
    if (rank == info->rank && n == info->world && local == info->local_rank) {
        return LVN_OK;
    }
    const lvn_status s = lvni_core_notice_error(ask->notices, 107,
                                                "RANK, WORLD_SIZE and LOCAL_RANK are set, by no "
                                                "launcher, and disagree with the Slurm step");
    const char *const reported[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "SLURM_PROCID",
                                    lvni_launch_env_first(ask->env, world),
                                    "SLURM_LOCALID"};
    for (size_t i = 0; i < sizeof reported / sizeof *reported; i++) {
        if (reported[i] != NULL) {
            lvni_launch_env_found(ask->env, reported[i], ask->notices);
        }
    }
    lvni_core_notice_fix(ask->notices, "unset RANK WORLD_SIZE LOCAL_RANK");
    lvni_core_notice_fix(ask->notices, "or LEVIN_ENV=slurm (levin slurm env --env-source slurm)");
    ask->notices->own = true;
    return s;
}

/* ---- slurm.conf ----
 * "Key=Value" in lines, any case; '#' begins a comment, a backslash at the end continues in the
 * next line. */

static void set(lvni_core_str *s, const char *text, size_t n)
{
    lvni_core_str_clear(s);
    lvni_core_str_append_n(s, text, n);
}

/* "socket=/run/munge/munge.socket.2,ttl=60" */
static void take_info(lvni_launch_slurm_auth *a, const char *value)
{
    for (const char *at = value; *at != '\0'; at += strcspn(at, ","), at += *at == ',' ? 1 : 0) {
        if (strncasecmp(at, "socket=", 7) == 0) {
            set(&a->socket, at + 7, strcspn(at + 7, ","));
        }
    }
}

static lvn_status read_conf(const char *path, int depth, lvni_launch_slurm_auth *a);

/* A relative name is beside the file that includes it. */
static lvn_status include(const char *from, const char *name, int depth, lvni_launch_slurm_auth *a)
{
    const char *slash = strrchr(from, '/');
    lvni_core_str path = {0};
    if (name[0] != '/' && slash != NULL) {
        lvni_core_str_append_n(&path, from, (size_t)(slash - from) + 1);
    }
    lvni_core_str_append(&path, name);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    if (depth < INCLUDES && lvni_core_path_exists(path.data)) {
        s = read_conf(path.data, depth + 1, a);
    }
done:
    lvni_core_str_free(&path);
    return s;
}

static lvn_status take_line(char *line, const char *path, int depth, lvni_launch_slurm_auth *a)
{
    line[strcspn(line, "#")] = '\0';
    line += strspn(line, " \t");
    for (size_t n = strlen(line); n > 0 && strchr(" \t\r", line[n - 1]) != NULL; n--) {
        line[n - 1] = '\0';
    }
    if (strncasecmp(line, "include", 7) == 0 && (line[7] == ' ' || line[7] == '\t')) {
        return include(path, line + 7 + strspn(line + 7, " \t"), depth, a);
    }
    const size_t key = strcspn(line, " \t=");
    const char *value = line + key + strspn(line + key, " \t=");
    if (key == 8 && strncasecmp(line, "AuthType", key) == 0) {
        a->munge = strcasecmp(value, "auth/munge") == 0 || strcasecmp(value, "munge") == 0;
    } else if (key == 8 && strncasecmp(line, "AuthInfo", key) == 0) {
        take_info(a, value);
    }
    return LVN_OK;
}

static lvn_status read_conf(const char *path, int depth, lvni_launch_slurm_auth *a)
{
    char *text = NULL;
    size_t n = 0;
    if (lvni_core_file_read(path, CONF_MAX, &text, &n) != LVN_OK) {
        return lvn_last_error()->code == LVN_ERR_MEMORY ? LVN_ERR_MEMORY : LVN_OK;
    }
    if (depth == 0) {
        set(&a->file, path, strlen(path));
    }
    for (char *at = text; (at = strstr(at, "\\\n")) != NULL;) {
        at[0] = at[1] = ' ';
    }
    lvn_status s = LVN_OK;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        LVNI_TRY_DONE(s, take_line(line, path, depth, a));
    }
done:
    lvni_core_free(text);
    return s;
}

lvn_status lvni_launch_slurm_auth_read(char *const *env, lvni_launch_slurm_auth *out)
{
    const char *const paths[] = {lvni_launch_env_get(env, "SLURM_CONF"), "/etc/slurm/slurm.conf",
                                 "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf"};
    *out = (lvni_launch_slurm_auth){.munge = true};
    for (size_t i = 0; i < sizeof paths / sizeof *paths && out->file.len == 0; i++) {
        if (paths[i] != NULL && lvni_core_path_exists(paths[i])) {
            LVN_TRY(read_conf(paths[i], 0, out));
        }
    }
    LVN_TRY(lvni_core_str_status(&out->socket));
    return lvni_core_str_status(&out->file);
}

void lvni_launch_slurm_auth_free(lvni_launch_slurm_auth *auth)
{
    lvni_core_str_free(&auth->socket);
    lvni_core_str_free(&auth->file);
}
