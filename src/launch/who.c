/* Who am I (who.h): the source is found, read, and its numbers compared with each other and with
 * what was asked. */
#include "launch/who.h"

#include "launch/who_impl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE = 512 };

const char *lvni_source_name(lvni_source source)
{
    static const char *const names[] = {
#define LVNI_SOURCE_NAME(name, text) text,
        LVNI_SOURCE_LIST(LVNI_SOURCE_NAME)
#undef LVNI_SOURCE_NAME
    };
    return source < LVNI_SOURCE_COUNT ? names[source] : "?";
}

/* "3", or "unknown" before the ranks have met. */
/* "rank=3 (RANK)" */
static void print_number(lvni_str *out, const char *name, int value, const char *from)
{
    if (value == LVNI_WHO_UNKNOWN) {
        lvni_str_printf(out, " %s=unknown", name);
    } else {
        lvni_str_printf(out, from != NULL ? " %s=%d (%s)" : " %s=%d", name, value, from);
    }
}

lvn_status lvni_who_inconsistent(const lvni_who *who, lvni_notices *notices, const char *fmt, ...)
{
    char sentence[SENTENCE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, args);
    va_end(args);
    const lvn_status s = lvni_notice_error(notices, 102, "%s", sentence);
    lvni_str line = {.len = 0};
    lvni_str_printf(&line, "source=%s", lvni_source_name(who->source));
    print_number(&line, "rank", who->rank, who->from[LVNI_WHO_RANK]);
    print_number(&line, "world", who->world, who->from[LVNI_WHO_WORLD]);
    print_number(&line, "local_rank", who->local_rank, who->from[LVNI_WHO_LOCAL_RANK]);
    print_number(&line, "local_world", who->local_world, who->from[LVNI_WHO_LOCAL_WORLD]);
    print_number(&line, "node_rank", who->node_rank, who->from[LVNI_WHO_NODE_RANK]);
    print_number(&line, "nnodes", who->nnodes, who->from[LVNI_WHO_NNODES]);
    lvni_notice_found(notices, "%s", lvni_str_text(&line));
    lvni_str_clear(&line);
    for (int i = 0; i < who->tasks.n; i++) {
        lvni_str_printf(&line, "%s%d", i > 0 ? "," : "", who->tasks.tasks[i]);
    }
    if (who->tasks.n > 0) {
        lvni_notice_found(notices, "tasks per node %s: %d nodes, %" PRId64 " tasks",
                          lvni_str_text(&line), who->tasks.n, who->tasks.sum);
    }
    lvni_str_clear(&line);
    lvni_hosts_compress(&who->hosts, &line);
    if (who->hosts.n > 0) {
        lvni_notice_found(notices, "hosts %s: %zu hosts", lvni_str_text(&line), who->hosts.n);
    }
    lvni_str_free(&line);
    lvni_notice_fix(notices, "one of these numbers is of another run, or mistyped: start the ranks "
                             "with what sets them all, or unset them");
    notices->own = true;
    return s;
}

static lvn_status check_numbers(const lvni_who_ask *ask, const lvni_who *who)
{
    if (who->rank >= who->world) {
        return lvni_who_inconsistent(who, ask->notices,
                                     "rank %d is not below the number of ranks, %d", who->rank,
                                     who->world);
    }
    const int locals = who->local_world != LVNI_WHO_UNKNOWN ? who->local_world : who->world;
    const int nodes = who->nnodes != LVNI_WHO_UNKNOWN ? who->nnodes : who->world;
    if (locals > who->world || who->local_rank >= locals) {
        return lvni_who_inconsistent(who, ask->notices,
                                     "local rank %d of %d does not fit into %d ranks",
                                     who->local_rank, locals, who->world);
    }
    if (nodes > who->world || who->node_rank >= nodes) {
        return lvni_who_inconsistent(who, ask->notices, "node %d of %d does not fit into %d ranks",
                                     who->node_rank, nodes, who->world);
    }
    return LVN_OK;
}

/* LVNI_SOURCE_COUNT: auto. */
static lvn_status read_forced(const lvni_who_ask *ask, lvni_source *out)
{
    const char *name = ask->options->source, *from = "--env-source";
    if (name == NULL) {
        name = lvni_env_get(ask->env, "LEVIN_ENV");
        from = "LEVIN_ENV";
    }
    *out = LVNI_SOURCE_COUNT;
    if (name == NULL || strcmp(name, "auto") == 0) {
        return LVN_OK;
    }
    for (int s = 0; s < LVNI_SOURCE_COUNT; s++) {
        if (strcmp(name, lvni_source_name((lvni_source)s)) == 0) {
            *out = (lvni_source)s;
        }
    }
    if (*out == LVNI_SOURCE_COUNT) {
        const lvn_status s =
            lvni_notice_error(ask->notices, 100, "%s='%s' is no source of ranks", from, name);
        lvni_notice_found(ask->notices, "%s='%s'", from, name);
        lvni_notice_fix(
            ask->notices,
            "auto, levin, torchrun, ompi, mvapich2, pals, jsm, flux, pmi, slurm or single");
        return s;
    }
    lvni_notices missing = {.error = 0};
    const int n = lvni_who_missing(ask->env, *out, &missing);
    lvn_status s = LVN_OK;
    if (n > 0) {
        s = lvni_notice_error(ask->notices, 100, "%s=%s, but %s that it needs %s missing", from,
                              name, lvni_plural(n, "a variable", "variables"),
                              lvni_plural(n, "is", "are"));
        lvni_str_append(&ask->notices->text, lvni_str_text(&missing.text));
        lvni_notice_fix(ask->notices, "start the ranks with what sets them, or leave %s away",
                        from);
    }
    lvni_notices_free(&missing);
    return s;
}

/* The order of the sources; pmi before slurm, because MPI's daemons are themselves started by
 * srun. */
static lvni_source find_source(const lvni_who_ask *ask, const lvni_slurm_job *job)
{
    const lvni_source launcher = lvni_who_match(ask->env, LVNI_SOURCE_PMI);
    if (launcher != LVNI_SOURCE_COUNT) {
        return launcher;
    }
    if (job->job && job->step && job->task && !job->interactive) {
        return LVNI_SOURCE_SLURM;
    }
    if (job->job && !job->step && job->task && (job->tasks > 1 || job->nodes > 1)) {
        return LVNI_SOURCE_SLURM_BATCH;
    }
    return LVNI_SOURCE_SINGLE;
}

/* RANK without its companions: one of several processes that would each train alone. A lone
 * WORLD_SIZE is what batch scripts export. */
static lvn_status check_partial(const lvni_who_ask *ask)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK"};
    const char *size = lvni_env_get(ask->env, "WORLD_SIZE");
    if (lvni_env_get(ask->env, "RANK") == NULL || (size != NULL && strcmp(size, "1") == 0)) {
        return LVN_OK;
    }
    const lvn_status s = lvni_notice_error(
        ask->notices, 100,
        "RANK is set, but not all of WORLD_SIZE and LOCAL_RANK: which rank is this?");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lvni_env_found(ask->env, names[i], ask->notices);
    }
    lvni_notice_fix(ask->notices, "set all three, or start the ranks with levin launch, torchrun "
                                  "or srun; for a process of its own unset RANK");
    ask->notices->own = true;
    return s;
}

static void alone(const lvni_who_ask *ask, lvni_who *who)
{
    who->rank = who->local_rank = who->node_rank = 0;
    who->world = who->local_world = who->nnodes = 1;
    who->restart = who->slurm.restart;
    const lvni_slurm_job *job = &who->slurm;
    if (job->job && !job->step && !job->task && job->tasks > 1 && !ask->options->launcher) {
        lvni_notice_warn(
            ask->notices, 210,
            "inside an allocation of %d tasks, but alone; prefix with srun or use levin launch",
            job->tasks);
    }
}

/* E108: WORLD_SIZE exported by a script, otherwise than the step. */
static lvn_status check_world_size(const lvni_who_ask *ask, const lvni_who *who)
{
    int size = who->world;
    LVN_TRY(lvni_env_int(ask->env, "WORLD_SIZE", ask->notices, &size));
    if (size == who->world) {
        return LVN_OK;
    }
    const lvn_status s = lvni_notice_error(
        ask->notices, 108, "WORLD_SIZE=%d was exported, but the Slurm step has %d tasks", size,
        who->world);
    lvni_env_found(ask->env, "WORLD_SIZE", ask->notices);
    lvni_env_found(ask->env, who->from[LVNI_WHO_WORLD], ask->notices);
    if (who->world == who->nnodes * who->local_world) {
        lvni_notice_found(ask->notices, "%d nodes x %d tasks = %d", who->nnodes, who->local_world,
                          who->world);
    } else {
        lvni_notice_found(ask->notices, "%d tasks on %d nodes", who->world, who->nnodes);
    }
    lvni_notice_fix(ask->notices, "drop the export of WORLD_SIZE: levin derives it");
    return s;
}

static lvn_status check_nodes(const lvni_who_ask *ask, const lvni_who *who)
{
    const int asked = ask->options->nodes;
    if (asked == 0 || who->nnodes == LVNI_WHO_UNKNOWN || asked == who->nnodes ||
        who->source >= LVNI_SOURCE_SLURM_BATCH) {
        return LVN_OK;
    }
    const lvn_status s =
        lvni_notice_error(ask->notices, 119, "%d node%s asked for, but the ranks run on %d", asked,
                          lvni_plural(asked, " is", "s are"), who->nnodes);
    lvni_notice_found(ask->notices, "num_nodes=%d", asked);
    if (who->from[LVNI_WHO_NNODES] != NULL) {
        lvni_env_found(ask->env, who->from[LVNI_WHO_NNODES], ask->notices);
    } else {
        lvni_notice_found(ask->notices, "nnodes=%d (source %s)", who->nnodes,
                          lvni_source_name(who->source));
    }
    lvni_notice_fix(ask->notices,
                    "num_nodes=%d, or start the ranks on %d node%s (#SBATCH --nodes=%d)",
                    who->nnodes, asked, lvni_plural(asked, "", "s"), asked);
    return s;
}

static void make_job_key(const lvni_who_ask *ask, lvni_who *who)
{
    const lvni_slurm_job *job = &who->slurm;
    const char *cluster = lvni_env_get(ask->env, "SLURM_CLUSTER_NAME");
    if (who->source >= LVNI_SOURCE_SLURM && job->job) {
        char step[24] = "-";
        if (job->step) {
            snprintf(step, sizeof step, "%" PRIu64, job->step_id);
        }
        snprintf(who->job_key, sizeof who->job_key, "slurm:%.100s:%" PRIu64 ".%s.%d",
                 cluster != NULL ? cluster : "-", job->job_id, step, who->restart);
    } else if (who->source == LVNI_SOURCE_SINGLE) {
        snprintf(who->job_key, sizeof who->job_key, "single");
    } else {
        snprintf(who->job_key, sizeof who->job_key, "%s:%.80s@%.80s:%d.%d",
                 lvni_source_name(who->source), who->run_id, who->master_addr,
                 who->n_ports > 0 ? who->ports[0] : 0, who->restart);
    }
}

static lvn_status read_source(const lvni_who_ask *ask, lvni_who *who)
{
    switch (who->source) {
    case LVNI_SOURCE_SLURM:
        LVN_TRY(lvni_who_read_step(ask, who));
        LVN_TRY(check_numbers(ask, who));
        return check_world_size(ask, who);
    case LVNI_SOURCE_SLURM_BATCH:
        alone(ask, who);
        return ask->options->launcher ? LVN_OK : lvni_who_no_srun(ask, &who->slurm);
    case LVNI_SOURCE_SINGLE: alone(ask, who); return LVN_OK;
    default: LVN_TRY(lvni_who_read_launcher(ask, who)); return check_numbers(ask, who);
    }
}

static lvn_status detect(const lvni_who_ask *ask, lvni_who *who)
{
    lvni_source forced;
    LVN_TRY(read_forced(ask, &forced));
    LVN_TRY(lvni_who_read_job(ask, &who->slurm));
    who->source = forced != LVNI_SOURCE_COUNT ? forced : find_source(ask, &who->slurm);
    if (who->source == LVNI_SOURCE_SINGLE && forced == LVNI_SOURCE_COUNT &&
        !ask->options->launcher) {
        LVN_TRY(check_partial(ask));
    }
    LVN_TRY(read_source(ask, who));
    if (who->source == LVNI_SOURCE_TORCHRUN && forced == LVNI_SOURCE_COUNT) {
        LVN_TRY(lvni_who_check_stale(ask, who));
    }
    LVN_TRY(check_nodes(ask, who));
    LVN_TRY(lvni_who_find_master(ask, who));
    make_job_key(ask, who);
    return lvni_notices_status(ask->notices);
}

lvn_status lvni_who_detect(char *const *env, const lvni_who_options *options, lvni_notices *notices,
                           lvni_who *out)
{
    const lvni_who_ask ask = {env, options, notices};
    lvni_who who = {.rank = LVNI_WHO_UNKNOWN,
                    .world = LVNI_WHO_UNKNOWN,
                    .local_rank = LVNI_WHO_UNKNOWN,
                    .local_world = LVNI_WHO_UNKNOWN,
                    .node_rank = LVNI_WHO_UNKNOWN,
                    .nnodes = LVNI_WHO_UNKNOWN,
                    .store_fd = -1};
    const lvn_status s = detect(&ask, &who);
    notices->rank = who.rank;
    notices->by_hand =
        who.source == LVNI_SOURCE_TORCHRUN && lvni_env_get(env, "TORCHELASTIC_RUN_ID") == NULL;
    if (s != LVN_OK) {
        lvni_who_free(&who);
        return s;
    }
    *out = who;
    return LVN_OK;
}

void lvni_who_free(lvni_who *who)
{
    lvni_hosts_free(&who->hosts);
    lvni_task_vector_free(&who->tasks);
}
