/* Finding the rank (rank_info.h): the source is found, read, and its numbers compared with each
 * other and with the options. Slurm's variables are in rank_info_slurm.c, the rendezvous in
 * rank_info_address.c. */
#include "launch/rank_info.h"

#include "core/str.h"
#include "launch/rank_info_impl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE = 512, NEEDS = 4, NAMES = 3 };

const char *lvni_launch_source_name(lvni_launch_source source)
{
    static const char *const names[] = {
#define LVNI_SOURCE_NAME(name, text) text,
        LVNI_SOURCE_LIST(LVNI_SOURCE_NAME)
#undef LVNI_SOURCE_NAME
    };
    return source < LVNI_SOURCE_COUNT ? names[source] : "?";
}

/* ---- launchers other than Slurm ----
 * Which variables mark each of them, and which hold what. */

typedef struct launcher {
    const char *needs[NEEDS + 1]; /* all of them set: this is the one */
    const char *mark;             /* not before Slurm's without this one, too; NULL: none */
    const char *rank, *world, *local_rank, *local_world;
    const char *node_rank[NAMES], *nnodes; /* NULL: found at the rendezvous */
    const char *restart, *run_id[NAMES];
} launcher;

/* OMPI_COMM_WORLD_NODE_RANK is not among them: it numbers the processes on a node, not the
 * nodes. */
static const launcher launchers[] = {
    [LVNI_SOURCE_LEVIN] = {{"LEVIN_RANK", "LEVIN_WORLD_SIZE", "LEVIN_LOCAL_RANK",
                            "LEVIN_LOCAL_WORLD_SIZE"},
                           NULL,
                           "LEVIN_RANK",
                           "LEVIN_WORLD_SIZE",
                           "LEVIN_LOCAL_RANK",
                           "LEVIN_LOCAL_WORLD_SIZE",
                           {"LEVIN_NODE_RANK"},
                           "LEVIN_NNODES",
                           "LEVIN_RESTART_COUNT",
                           {"LEVIN_RUN_ID"}},
    [LVNI_SOURCE_TORCHRUN] = {{"RANK", "WORLD_SIZE"},
                              "LOCAL_RANK",
                              "RANK",
                              "WORLD_SIZE",
                              "LOCAL_RANK",
                              "LOCAL_WORLD_SIZE",
                              {"GROUP_RANK", "NODE_RANK"},
                              "GROUP_WORLD_SIZE",
                              "TORCHELASTIC_RESTART_COUNT",
                              {"LEVIN_RUN_ID", "TORCHELASTIC_RUN_ID"}},
    [LVNI_SOURCE_OMPI] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                          NULL,
                          "OMPI_COMM_WORLD_RANK",
                          "OMPI_COMM_WORLD_SIZE",
                          "OMPI_COMM_WORLD_LOCAL_RANK",
                          "OMPI_COMM_WORLD_LOCAL_SIZE",
                          {NULL},
                          NULL,
                          NULL,
                          {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}},
    [LVNI_SOURCE_MVAPICH2] = {{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                              NULL,
                              "MV2_COMM_WORLD_RANK",
                              "MV2_COMM_WORLD_SIZE",
                              "MV2_COMM_WORLD_LOCAL_RANK",
                              "MV2_COMM_WORLD_LOCAL_SIZE",
                              {NULL},
                              NULL,
                              NULL,
                              {NULL}},
    [LVNI_SOURCE_PALS] = {{"PALS_RANKID", "PMI_SIZE"},
                          NULL,
                          "PALS_RANKID",
                          "PMI_SIZE",
                          "PALS_LOCAL_RANKID",
                          "PALS_LOCAL_SIZE",
                          {"PALS_NODEID"},
                          NULL,
                          NULL,
                          {"PALS_APID"}},
    [LVNI_SOURCE_JSM] = {{"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                         NULL,
                         "JSM_NAMESPACE_RANK",
                         "JSM_NAMESPACE_SIZE",
                         "JSM_NAMESPACE_LOCAL_RANK",
                         "JSM_NAMESPACE_LOCAL_SIZE",
                         {NULL},
                         NULL,
                         NULL,
                         {"LSB_JOBID"}},
    [LVNI_SOURCE_FLUX] = {{"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                          NULL,
                          "FLUX_TASK_RANK",
                          "FLUX_JOB_SIZE",
                          "FLUX_TASK_LOCAL_ID",
                          NULL,
                          {NULL},
                          "FLUX_JOB_NNODES",
                          NULL,
                          {"FLUX_JOB_ID"}},
    [LVNI_SOURCE_PMI] = {{"PMI_RANK", "PMI_SIZE"},
                         NULL,
                         "PMI_RANK",
                         "PMI_SIZE",
                         "MPI_LOCALRANKID",
                         "MPI_LOCALNRANKS",
                         {NULL},
                         NULL,
                         NULL,
                         {NULL}},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

static const char *const slurm_job[] = {"SLURM_JOB_ID", "SLURM_JOBID", NULL},
                         *const slurm_step[] = {"SLURM_STEP_ID", "SLURM_STEPID", NULL};

static bool all_set(char *const *env, const launcher *l)
{
    for (int i = 0; l->needs[i] != NULL; i++) {
        if (lvni_launch_env_get(env, l->needs[i]) == NULL) {
            return false;
        }
    }
    return true;
}

/* The first of the launchers up to `last` whose variables are set; LVNI_SOURCE_COUNT: none. */
static lvni_launch_source match(char *const *env, lvni_launch_source last)
{
    for (int s = 0; s < LAUNCHERS && s <= (int)last; s++) {
        const char *mark = launchers[s].mark;
        if (all_set(env, &launchers[s]) &&
            (mark == NULL || lvni_launch_env_get(env, mark) != NULL)) {
            return (lvni_launch_source)s;
        }
    }
    return LVNI_SOURCE_COUNT;
}

/* Adds a line for each variable that the source needs and that is not set; returns how many. */
static int record_missing(char *const *env, lvni_launch_source source, lvni_core_notices *notices)
{
    int n = 0;
    if ((int)source < LAUNCHERS) {
        for (int i = 0; launchers[source].needs[i] != NULL; i++) {
            if (lvni_launch_env_get(env, launchers[source].needs[i]) == NULL) {
                lvni_core_notice_found(notices, "%s is not set", launchers[source].needs[i]);
                n++;
            }
        }
        return n;
    }
    static const char *const task[] = {"SLURM_PROCID", NULL};
    const char *const *const needs[] = {slurm_job, slurm_step, task};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        const bool wanted = source == LVNI_SOURCE_SLURM ||
                            (source == LVNI_SOURCE_SLURM_BATCH && needs[i] == slurm_job);
        if (wanted && lvni_launch_env_first(env, needs[i]) == NULL) {
            lvni_core_notice_found(notices, "%s is not set", needs[i][0]);
            n++;
        }
    }
    return n;
}

static lvn_status read_field(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info,
                             lvni_launch_rank_info_field field, const char *name, int *out)
{
    if (name == NULL || lvni_launch_env_get(ask->env, name) == NULL) {
        return LVN_OK;
    }
    info->from[field] = name;
    return lvni_launch_env_int(ask->env, name, ask->notices, out);
}

/* What follows from the rest: one rank is alone, and ranks that are all on this node are on one
 * node. */
static void derive(lvni_launch_rank_info *info)
{
    if (info->nnodes == 1 || info->world == 1) {
        info->local_rank =
            info->local_rank == LVNI_RANK_INFO_UNKNOWN ? info->rank : info->local_rank;
        info->local_world =
            info->local_world == LVNI_RANK_INFO_UNKNOWN ? info->world : info->local_world;
    }
    if (info->local_world == info->world) {
        info->nnodes = info->nnodes == LVNI_RANK_INFO_UNKNOWN ? 1 : info->nnodes;
        info->node_rank = info->node_rank == LVNI_RANK_INFO_UNKNOWN ? 0 : info->node_rank;
    }
}

static lvn_status read_launcher(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info)
{
    const launcher *l = &launchers[info->source];
    const char *node_rank = lvni_launch_env_first(ask->env, l->node_rank),
               *run_id = lvni_launch_env_first(ask->env, l->run_id);
    LVN_TRY(read_field(ask, info, LVNI_RANK_INFO_RANK, l->rank, &info->rank));
    LVN_TRY(read_field(ask, info, LVNI_RANK_INFO_WORLD, l->world, &info->world));
    LVN_TRY(read_field(ask, info, LVNI_RANK_INFO_LOCAL_RANK, l->local_rank, &info->local_rank));
    LVN_TRY(read_field(ask, info, LVNI_RANK_INFO_LOCAL_WORLD, l->local_world, &info->local_world));
    LVN_TRY(read_field(ask, info, LVNI_RANK_INFO_NODE_RANK, node_rank, &info->node_rank));
    LVN_TRY(read_field(ask, info, LVNI_RANK_INFO_NNODES, l->nnodes, &info->nnodes));
    if (l->restart != NULL) {
        LVN_TRY(lvni_launch_env_int(ask->env, l->restart, ask->notices, &info->restart));
    }
    if (run_id != NULL) {
        snprintf(info->run_id, sizeof info->run_id, "%s", lvni_launch_env_get(ask->env, run_id));
    }
    info->store_host = info->rank == 0;
    derive(info);
    return LVN_OK;
}

/* ---- inconsistent numbers ---- */

/* " rank=3 (RANK)" */
static void print_number(lvni_core_str *out, const char *name, int value, const char *from)
{
    if (value == LVNI_RANK_INFO_UNKNOWN) {
        lvni_core_str_printf(out, " %s=unknown", name);
    } else {
        lvni_core_str_printf(out, from != NULL ? " %s=%d (%s)" : " %s=%d", name, value, from);
    }
}

lvn_status lvni_launch_rank_info_inconsistent(const lvni_launch_rank_info *info,
                                              lvni_core_notices *notices, const char *fmt, ...)
{
    char sentence[SENTENCE];
    va_list args;
    va_start(args, fmt);
    lvni_core_format_args(sentence, sizeof sentence, fmt, args);
    va_end(args);
    const lvn_status s = lvni_core_notice_error(notices, 102, "%s", sentence);
    lvni_core_str line = {.len = 0};
    lvni_core_str_printf(&line, "source=%s", lvni_launch_source_name(info->source));
    print_number(&line, "rank", info->rank, info->from[LVNI_RANK_INFO_RANK]);
    print_number(&line, "world", info->world, info->from[LVNI_RANK_INFO_WORLD]);
    print_number(&line, "local_rank", info->local_rank, info->from[LVNI_RANK_INFO_LOCAL_RANK]);
    print_number(&line, "local_world", info->local_world, info->from[LVNI_RANK_INFO_LOCAL_WORLD]);
    print_number(&line, "node_rank", info->node_rank, info->from[LVNI_RANK_INFO_NODE_RANK]);
    print_number(&line, "nnodes", info->nnodes, info->from[LVNI_RANK_INFO_NNODES]);
    lvni_core_notice_found(notices, "%s", lvni_core_str_text(&line));
    lvni_core_str_clear(&line);
    for (int i = 0; i < info->tasks.n; i++) {
        lvni_core_str_printf(&line, "%s%d", i > 0 ? "," : "", info->tasks.tasks[i]);
    }
    if (info->tasks.n > 0) {
        lvni_core_notice_found(notices, "tasks per node %s: %d nodes, %" PRId64 " tasks",
                               lvni_core_str_text(&line), info->tasks.n, info->tasks.sum);
    }
    lvni_core_str_clear(&line);
    lvni_launch_hosts_compress(&info->hosts, &line);
    if (info->hosts.n > 0) {
        lvni_core_notice_found(notices, "hosts %s: %zu hosts", lvni_core_str_text(&line),
                               info->hosts.n);
    }
    lvni_core_str_free(&line);
    lvni_core_notice_fix(notices,
                         "one of these numbers is of another run, or mistyped: start the ranks "
                         "with what sets them all, or unset them");
    notices->own = true;
    return s;
}

static lvn_status check_numbers(const lvni_launch_rank_query *ask,
                                const lvni_launch_rank_info *info)
{
    if (info->rank >= info->world) {
        return lvni_launch_rank_info_inconsistent(info, ask->notices,
                                                  "rank %d is not below the number of ranks, %d",
                                                  info->rank, info->world);
    }
    const int locals =
        info->local_world != LVNI_RANK_INFO_UNKNOWN ? info->local_world : info->world;
    const int nodes = info->nnodes != LVNI_RANK_INFO_UNKNOWN ? info->nnodes : info->world;
    if (locals > info->world || info->local_rank >= locals) {
        return lvni_launch_rank_info_inconsistent(info, ask->notices,
                                                  "local rank %d of %d does not fit into %d ranks",
                                                  info->local_rank, locals, info->world);
    }
    if (nodes > info->world || info->node_rank >= nodes) {
        return lvni_launch_rank_info_inconsistent(info, ask->notices,
                                                  "node %d of %d does not fit into %d ranks",
                                                  info->node_rank, nodes, info->world);
    }
    return LVN_OK;
}

/* ---- the source ---- */

/* LVNI_SOURCE_COUNT: auto. */
static lvn_status read_forced(const lvni_launch_rank_query *ask, lvni_launch_source *out)
{
    const char *name = ask->options->source, *from = "--env-source";
    if (name == NULL) {
        name = lvni_launch_env_get(ask->env, "LEVIN_ENV");
        from = "LEVIN_ENV";
    }
    *out = LVNI_SOURCE_COUNT;
    if (name == NULL || strcmp(name, "auto") == 0) {
        return LVN_OK;
    }
    for (int s = 0; s < LVNI_SOURCE_COUNT; s++) {
        if (strcmp(name, lvni_launch_source_name((lvni_launch_source)s)) == 0) {
            *out = (lvni_launch_source)s;
        }
    }
    if (*out == LVNI_SOURCE_COUNT) {
        const lvn_status s = lvni_core_notice_error(ask->notices, 100,
                                                    "%s='%s' is not a source of ranks", from, name);
        lvni_core_notice_found(ask->notices, "%s='%s'", from, name);
        lvni_core_notice_fix(
            ask->notices,
            "auto, levin, torchrun, ompi, mvapich2, pals, jsm, flux, pmi, slurm or single");
        return s;
    }
    lvni_core_notices missing = {.error = 0};
    const int n = record_missing(ask->env, *out, &missing);
    lvn_status s = LVN_OK;
    if (n > 0) {
        s = lvni_core_notice_error(ask->notices, 100, "%s=%s, but %s that it needs %s missing",
                                   from, name, lvni_core_plural(n, "a variable", "variables"),
                                   lvni_core_plural(n, "is", "are"));
        lvni_core_str_append(&ask->notices->text, lvni_core_str_text(&missing.text));
        lvni_core_notice_fix(ask->notices, "start the ranks with what sets them, or unset %s",
                             from);
    }
    lvni_core_notices_free(&missing);
    return s;
}

/* As Kubeflow's operators set them for one process per pod: which ranks share a node is found at
 * the rendezvous. */
static bool has_rank_and_size(char *const *env)
{
    const char *size = lvni_launch_env_get(env, "WORLD_SIZE");
    return all_set(env, &launchers[LVNI_SOURCE_TORCHRUN]) && strcmp(size, "1") != 0;
}

/* The order of the sources; pmi before slurm, because MPI's daemons are themselves started by
 * srun. RANK and WORLD_SIZE alone come last: batch scripts export them, too. */
static lvni_launch_source find_source(const lvni_launch_rank_query *ask,
                                      const lvni_launch_slurm_job *job)
{
    const lvni_launch_source found = match(ask->env, LVNI_SOURCE_PMI);
    if (found != LVNI_SOURCE_COUNT) {
        return found;
    }
    if (job->job && job->step && job->task && !job->interactive) {
        return LVNI_SOURCE_SLURM;
    }
    if (job->job && !job->step && job->task && (job->tasks > 1 || job->nodes > 1)) {
        return LVNI_SOURCE_SLURM_BATCH;
    }
    return has_rank_and_size(ask->env) ? LVNI_SOURCE_TORCHRUN : LVNI_SOURCE_SINGLE;
}

/* RANK without WORLD_SIZE: one of several processes that would each train alone. WORLD_SIZE without
 * RANK is what batch scripts export. */
static lvn_status check_partial(const lvni_launch_rank_query *ask)
{
    if (lvni_launch_env_get(ask->env, "RANK") == NULL ||
        lvni_launch_env_get(ask->env, "WORLD_SIZE") != NULL) {
        return LVN_OK;
    }
    const lvn_status s = lvni_core_notice_error(
        ask->notices, 100, "RANK is set, but not WORLD_SIZE: of how many ranks is this one?");
    lvni_launch_env_found(ask->env, "RANK", ask->notices);
    lvni_launch_env_found(ask->env, "WORLD_SIZE", ask->notices);
    lvni_core_notice_fix(ask->notices,
                         "set both (and LOCAL_RANK), or start the ranks with levin launch, "
                         "torchrun or srun; for a process of its own unset RANK");
    ask->notices->own = true;
    return s;
}

/* PET_NNODES and PET_NPROC_PER_NODE are options of torchrun and levin launch, and start nothing by
 * themselves. */
static void warn_of_torchrun(const lvni_launch_rank_query *ask)
{
    static const char *const names[] = {"PET_NNODES", "PET_NPROC_PER_NODE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = lvni_launch_env_get(ask->env, names[i]);
        if (value != NULL && *value >= '0' && *value <= '9' && strcmp(value, "1") != 0) {
            lvni_core_notice_warn(ask->notices, 210,
                                  "%s=%s, but alone: it is an option of torchrun and levin launch; "
                                  "start the program by levin launch -- PROGRAM",
                                  names[i], value);
            return;
        }
    }
}

static void set_alone(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info)
{
    info->rank = info->local_rank = info->node_rank = 0;
    info->world = info->local_world = info->nnodes = 1;
    info->restart = info->slurm.restart;
    const lvni_launch_slurm_job *job = &info->slurm;
    if (job->job && !job->step && !job->task && job->tasks > 1 && !ask->options->launcher) {
        lvni_core_notice_warn(
            ask->notices, 210,
            "inside an allocation of %d tasks, but alone; prefix with srun or use levin launch",
            job->tasks);
    } else if (!ask->options->launcher) {
        warn_of_torchrun(ask);
    }
}

/* E108: WORLD_SIZE exported by a script disagrees with the step. */
static lvn_status check_world_size(const lvni_launch_rank_query *ask,
                                   const lvni_launch_rank_info *info)
{
    int size = info->world;
    LVN_TRY(lvni_launch_env_int(ask->env, "WORLD_SIZE", ask->notices, &size));
    if (size == info->world) {
        return LVN_OK;
    }
    const lvn_status s = lvni_core_notice_error(
        ask->notices, 108, "WORLD_SIZE=%d was exported, but the Slurm step has %d tasks", size,
        info->world);
    lvni_launch_env_found(ask->env, "WORLD_SIZE", ask->notices);
    lvni_launch_env_found(ask->env, info->from[LVNI_RANK_INFO_WORLD], ask->notices);
    if (info->world == info->nnodes * info->local_world) {
        lvni_core_notice_found(ask->notices, "%d nodes x %d tasks = %d", info->nnodes,
                               info->local_world, info->world);
    } else {
        lvni_core_notice_found(ask->notices, "%d tasks on %d nodes", info->world, info->nnodes);
    }
    lvni_core_notice_fix(ask->notices, "drop the export of WORLD_SIZE: levin derives it");
    return s;
}

static lvn_status check_nodes(const lvni_launch_rank_query *ask, const lvni_launch_rank_info *info)
{
    const int asked = ask->options->nodes;
    if (asked == 0 || info->nnodes == LVNI_RANK_INFO_UNKNOWN || asked == info->nnodes ||
        info->source >= LVNI_SOURCE_SLURM_BATCH) {
        return LVN_OK;
    }
    const lvn_status s =
        lvni_core_notice_error(ask->notices, 119, "%d node%s asked for, but the ranks run on %d",
                               asked, lvni_core_plural(asked, " is", "s are"), info->nnodes);
    lvni_core_notice_found(ask->notices, "num_nodes=%d", asked);
    if (info->from[LVNI_RANK_INFO_NNODES] != NULL) {
        lvni_launch_env_found(ask->env, info->from[LVNI_RANK_INFO_NNODES], ask->notices);
    } else {
        lvni_core_notice_found(ask->notices, "nnodes=%d (source %s)", info->nnodes,
                               lvni_launch_source_name(info->source));
    }
    lvni_core_notice_fix(ask->notices,
                         "num_nodes=%d, or start the ranks on %d node%s (#SBATCH --nodes=%d)",
                         info->nnodes, asked, lvni_core_plural(asked, "", "s"), asked);
    return s;
}

static void make_job_key(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info)
{
    const lvni_launch_slurm_job *job = &info->slurm;
    const char *cluster = lvni_launch_env_get(ask->env, "SLURM_CLUSTER_NAME");
    if (info->source >= LVNI_SOURCE_SLURM && job->job) {
        char step[24] = "-";
        if (job->step) {
            snprintf(step, sizeof step, "%" PRIu64, job->step_id);
        }
        snprintf(info->job_key, sizeof info->job_key, "slurm:%.100s:%" PRIu64 ".%s.%d",
                 cluster != NULL ? cluster : "-", job->job_id, step, info->restart);
    } else if (info->source == LVNI_SOURCE_SINGLE) {
        snprintf(info->job_key, sizeof info->job_key, "single");
    } else {
        snprintf(info->job_key, sizeof info->job_key, "%s:%.80s@%.80s:%d.%d",
                 lvni_launch_source_name(info->source), info->run_id, info->master_addr,
                 info->n_ports > 0 ? info->ports[0] : 0, info->restart);
    }
}

static lvn_status read_source(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info)
{
    switch (info->source) {
    case LVNI_SOURCE_SLURM:
        LVN_TRY(lvni_launch_rank_info_read_step(ask, info));
        LVN_TRY(check_numbers(ask, info));
        return check_world_size(ask, info);
    case LVNI_SOURCE_SLURM_BATCH:
        set_alone(ask, info);
        return ask->options->launcher ? LVN_OK : lvni_launch_rank_info_no_srun(ask, &info->slurm);
    case LVNI_SOURCE_SINGLE: set_alone(ask, info); return LVN_OK;
    default: LVN_TRY(read_launcher(ask, info)); return check_numbers(ask, info);
    }
}

static lvn_status detect(const lvni_launch_rank_query *ask, lvni_launch_rank_info *info)
{
    lvni_launch_source forced;
    LVN_TRY(read_forced(ask, &forced));
    LVN_TRY(lvni_launch_rank_info_read_job(ask, &info->slurm));
    info->source = forced != LVNI_SOURCE_COUNT ? forced : find_source(ask, &info->slurm);
    if (info->source == LVNI_SOURCE_SINGLE && forced == LVNI_SOURCE_COUNT &&
        !ask->options->launcher) {
        LVN_TRY(check_partial(ask));
    }
    LVN_TRY(read_source(ask, info));
    if (info->source == LVNI_SOURCE_TORCHRUN && forced == LVNI_SOURCE_COUNT) {
        LVN_TRY(lvni_launch_rank_info_check_stale(ask, info));
    }
    LVN_TRY(check_nodes(ask, info));
    LVN_TRY(lvni_launch_rank_info_find_master(ask, info));
    make_job_key(ask, info);
    return lvni_core_notices_status(ask->notices);
}

lvn_status lvni_launch_rank_info_detect(char *const *env,
                                        const lvni_launch_rank_info_options *options,
                                        lvni_core_notices *notices, lvni_launch_rank_info *out)
{
    const lvni_launch_rank_query ask = {env, options, notices};
    lvni_launch_rank_info info = {.rank = LVNI_RANK_INFO_UNKNOWN,
                                  .world = LVNI_RANK_INFO_UNKNOWN,
                                  .local_rank = LVNI_RANK_INFO_UNKNOWN,
                                  .local_world = LVNI_RANK_INFO_UNKNOWN,
                                  .node_rank = LVNI_RANK_INFO_UNKNOWN,
                                  .nnodes = LVNI_RANK_INFO_UNKNOWN,
                                  .store_fd = -1};
    const lvn_status s = detect(&ask, &info);
    notices->rank = info.rank;
    notices->by_hand = info.source == LVNI_SOURCE_TORCHRUN &&
                       lvni_launch_env_get(env, "TORCHELASTIC_RUN_ID") == NULL;
    if (s != LVN_OK) {
        lvni_launch_rank_info_free(&info);
        return s;
    }
    *out = info;
    return LVN_OK;
}

void lvni_launch_rank_info_free(lvni_launch_rank_info *info)
{
    lvni_launch_hosts_free(&info->hosts);
    lvni_launch_task_vector_free(&info->tasks);
}
