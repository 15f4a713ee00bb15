/* Ranks that this process starts: as threads of its own, or, by becoming `levin launch`, as
 * processes. ranks.c decides which; commands call lvni_run_ranks_each for the work of threads.
 */
#include "run/rank_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/thread.h"
#include "launch/env_vars.h"
#include "launch/launch.h"
#include "log/run_log.h"
#include "run/devices.h"
#include "run/ranks.h"
#include "tensor/ctx.h"

#include <levin/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- threads ---- */

/* A rank on its thread. */
typedef struct member {
    lvni_run_rank_work work;
    void *user;
    const lvni_run_rank *rank;
    pthread_t thread;
    lvn_status status;
    lvn_error error;
    uint64_t ended_ns;
} member;

void lvni_run_rank_give_up(const lvni_run_rank *rank, lvn_status status)
{
    if (rank->comm != NULL && status != LVN_OK && status != LVN_ERR_CANCELLED) {
        /* after a stop all ranks end by themselves */
        lvni_dist_comm_abort(rank->comm, lvn_last_error()->message);
    }
}

static void *member_main(void *argument)
{
    member *m = argument;
    const lvn_device before = lvn_device_in_use();
    const bool follower = lvni_log_set_follower(m->rank->rank > 0);
    lvni_tensor_thread_set_ftz();
    m->status = m->work(m->user, m->rank);
    m->ended_ns = lvni_core_now_ns();
    if (m->status != LVN_OK) {
        m->error = *lvn_last_error();
        lvni_run_rank_give_up(m->rank, m->status);
    }
    lvn_device_use(before);
    lvni_log_set_follower(follower);
    return NULL;
}

/* The rank whose failure made the others stop: the first that does not report another one. -1: none
 * failed. */
static int first_failed(const member *m, int n)
{
    int first = -1;
    for (int i = 0; i < n; i++) {
        const bool own = m[i].status != LVN_OK && m[i].status != LVN_ERR_PEER;
        if (own && (first < 0 || m[i].ended_ns < m[first].ended_ns)) {
            first = i;
        }
    }
    for (int i = 0; i < n && first < 0; i++) {
        first = m[i].status != LVN_OK ? i : -1;
    }
    return first;
}

static lvn_status report_first(const member *m, int first)
{
    if (first < 0) {
        return LVN_OK;
    }
    (void)lvni_core_error_collect(m[first].status, &m[first].error, "a rank");
    if (first > 0 && m[first].status != LVN_ERR_CANCELLED) {
        lvn_error_frame("rank %d of %d", m[first].rank->rank, m[first].rank->world);
    }
    return m[first].status;
}

lvn_status lvni_run_ranks_each(const lvni_run_ranks *ranks, lvni_run_rank_work work, void *user)
{
    const int n = ranks->n;
    member *m = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)n, sizeof *m);
    if (m == NULL) {
        return LVN_ERR_MEMORY;
    }
    int started = 1;
    for (int i = 0; i < n; i++) {
        m[i] = (member){.work = work, .user = user, .rank = &ranks->rank[i]};
    }
    for (; started < n; started++) {
        if (lvni_core_thread_start(&m[started].thread, member_main, &m[started]) != 0) {
            lvni_dist_comm_abort(m[0].rank->comm, "its thread could not be started");
            break;
        }
    }
    member_main(m);
    for (int i = 1; i < started; i++) {
        pthread_join(m[i].thread, NULL);
    }
    const lvn_status s = report_first(m, first_failed(m, n));
    lvni_core_free(m);
    return s;
}

/* ---- processes ---- */

static int64_t max_restarts(const lvni_core_config *c)
{
    return lvni_core_config_has(c, "max_restarts") ? lvni_core_config_int(c, "max_restarts") : 0;
}

lvn_status lvni_run_check_restarts(const lvni_core_config *c, const lvni_launch_rank_info *info,
                                   bool starts)
{
    /* of the launcher, which may be another program */
    const char *most = lvni_launch_env_get(lvni_run_environment(), "LEVIN_MAX_RESTARTS");
    const bool ours = info->source == LVNI_SOURCE_LEVIN || info->source == LVNI_SOURCE_SLURM;
    if (max_restarts(c) == 0 || starts || (ours && most != NULL && strtol(most, NULL, 10) > 0)) {
        return LVN_OK;
    }
    if (info->source == LVNI_SOURCE_LEVIN) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "max_restarts=%lld: the launcher that has started this rank restarts none: "
                 "levin launch --max-restarts %lld",
                 (long long)max_restarts(c), (long long)max_restarts(c));
    }
    if (info->world > 1 && info->source == LVNI_SOURCE_SLURM) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "max_restarts=%lld: srun restarts no ranks; in the batch script, with "
                 "#SBATCH --no-kill: levin launch --max-restarts %lld -- levin train ...",
                 (long long)max_restarts(c), (long long)max_restarts(c));
    }
    if (info->world > 1) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "max_restarts=%lld: the ranks were started by another launcher (%s), which alone can "
            "restart them",
            (long long)max_restarts(c), lvni_launch_source_name(info->source));
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "max_restarts=%lld applies to ranks that are processes (strategy=ddp, devices=2 or "
             "more); a command of one process is started again by "
             "`levin launch -n 1 --max-restarts %lld -- levin train ...`",
             (long long)max_restarts(c), (long long)max_restarts(c));
}

/* devices=N of the launcher, which counts simulated devices itself, and loads no backend. */
static lvn_status print_devices(const lvni_core_config *c, char *out, size_t room)
{
    const char *spec = lvni_core_config_str(c, "devices");
    char all[16] = "all";
    const bool counted = lvni_run_accelerator_is_device(c) &&
                         strcmp(lvni_core_config_str(c, "accelerator"), "sim") != 0 &&
                         lvni_launch_device_spec_count(spec) == 0;
    if (counted) {
        lvni_launch_visible visible;
        LVN_TRY(lvni_run_accelerator_visible(c, &visible));
        snprintf(all, sizeof all, "%d", visible.n);
        lvni_launch_visible_free(&visible);
    }
    const char *value = counted || strcmp(spec, "auto") == 0 ? all : spec;
    if (snprintf(out, room, "devices=%s", value) >= (int)room) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "devices= is too long to start ranks with");
    }
    return LVN_OK;
}

static const char *logs_kept(const lvni_run_ranks_command *command, const char *dir)
{
    return command->keeps_no_logs ? "keep_logs=never"
           : dir != NULL          ? "keep_logs=started"
                                  : "keep_logs=failure";
}

/* For processes that the launcher starts. made: bytes of `dir` that this process has made. */
static void set_environment(const char *dir, size_t made)
{
    char claimed[4128];
    if (made > 0) {
        snprintf(claimed, sizeof claimed, "%zu:%s", made, dir);
        /* the launcher removes it when no rank begins to train there */
        setenv("LEVIN_MADE_DIR", claimed, 1);
        setenv("LEVIN_OUT_CHOSEN", "1", 1); /* rank 0 prints where that is */
    }
    setenv("LEVIN_NOTES_SHOWN", "1", 1); /* about the same arguments, by this process */
    /* signals wait (lvni_core_signals_hand_over), which must not in the ranks */
    setenv("LEVIN_HANDED_OVER", "1", 1);
}

/* The line of a rank: the command and its arguments, then out=, of which the last one counts. */
enum { MOST_ARGUMENTS = 256 };
static lvn_status make_line(const lvni_run_ranks_command *command, const char *out,
                            const char *args[MOST_ARGUMENTS], int *n)
{
    if (command->n > MOST_ARGUMENTS - 3) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%d arguments are too many to start ranks with; put them into a file, and give "
                 "config=FILE",
                 command->n);
    }
    *n = 0;
    for (int i = 0; i < 2 && command->command[i] != NULL; i++) {
        args[(*n)++] = command->command[i];
    }
    for (int i = 0; i < command->n; i++) {
        args[(*n)++] = command->args[i];
    }
    if (out != NULL) {
        args[(*n)++] = out;
    }
    return LVN_OK;
}

lvn_status lvni_run_rank_start(const lvni_core_config *c, const lvni_run_ranks_command *command,
                               const char *dir, size_t made)
{
    char devices[512], accelerator[64], restarts[32], run_dir[4096] = "", out[4096] = "";
    const char *args[MOST_ARGUMENTS];
    int n = 0;
    if (lvni_launch_is_rank(lvni_run_environment())) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "devices=%s: LEVIN_LAUNCHED is set, so a launcher has started this process as a "
                 "rank, which starts no others; "
                 "for a run of its own unset LEVIN_LAUNCHED",
                 lvni_core_config_str(c, "devices"));
    }
    LVN_TRY(print_devices(c, devices, sizeof devices));
    if (dir != NULL &&
        snprintf(run_dir, sizeof run_dir, "run_dir=%s", dir) >= (int)sizeof run_dir) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "out= is too long to start ranks with");
    }
    snprintf(out, sizeof out, "out=%s", dir == NULL ? "" : dir);
    snprintf(accelerator, sizeof accelerator, "accelerator=%s",
             lvni_core_config_str(c, "accelerator"));
    snprintf(restarts, sizeof restarts, "max_restarts=%lld", (long long)max_restarts(c));
    const char *const options[] = {
        accelerator,
        devices,
        "no_prefix=true",
        "show=0",
        "pty=true",
        "stop_grace=1000000",
        lvni_core_config_bool(c, "allow_shared_device") ? "allow_shared_device=true"
                                                        : "allow_shared_device=false",
        restarts,
        lvni_core_config_is_on(c, "strict") ? "strict=true" : "strict=false",
        lvni_core_config_is_on(c, "quiet") ? "quiet=true" : "quiet=false",
        logs_kept(command, dir),
        run_dir};
    const int n_options = (int)(sizeof options / sizeof *options) - (dir != NULL ? 0 : 1);
    LVN_TRY(make_line(command, dir == NULL ? NULL : out, args, &n));
    set_environment(dir, made);
    return lvni_launch_self(n_options, options, n, args, environ);
}
