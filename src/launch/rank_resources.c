/* Tasks and devices: do they fit, and which device is this rank's; the run mode; threads that load
 * data (rank_resources.h). */
#include "launch/rank_resources.h"

#include "core/str.h"
#include "launch/env_vars.h"

#include <stdio.h>
#include <string.h>

static const char *text_of(const char *text, const char *other)
{
    return text != NULL ? text : other;
}

/* Origins of the number of tasks and of the number of devices. */
static void found_both(const lvni_launch_rank_info *info, char *const *env,
                       const lvni_launch_rank_info_devices *d, lvni_core_notices *n)
{
    const char *from = info->from[LVNI_RANK_INFO_LOCAL_WORLD];
    if (from != NULL) {
        lvni_launch_env_found(env, from, n);
    } else {
        lvni_core_notice_found(n, "%d ranks on this node (source %s)", info->local_world,
                               lvni_launch_source_name(info->source));
    }
    if (d->choice->given) {
        lvni_core_notice_found(n, "%s asks for %d (%s)", d->key, d->choice->n,
                               text_of(d->origin, "default"));
    } else {
        lvni_core_notice_found(n, "%s is auto, and %d are visible", d->key, d->choice->n);
        lvni_launch_env_found(env, "CUDA_VISIBLE_DEVICES", n);
        lvni_launch_env_found(env, "SLURM_GPUS_ON_NODE", n);
    }
}

/* --ntasks and --ntasks-per-node both given: --ntasks wins, and fewer tasks run than the other
 * asks for. */
static bool ntasks_won(const lvni_launch_rank_info *info, char *const *env, int devices,
                       int *ntasks, int *per_node)
{
    uint64_t n = 0, each = 0;
    const char *a = lvni_launch_env_get(env, "SLURM_NTASKS"),
               *b = lvni_launch_env_get(env, "SLURM_NTASKS_PER_NODE");
    if (a == NULL || b == NULL || !lvni_launch_env_digits(a, INT32_MAX, &n) ||
        !lvni_launch_env_digits(b, INT32_MAX, &each)) {
        return false;
    }
    *ntasks = (int)n;
    *per_node = (int)each;
    return *per_node == devices && n < each * (uint64_t)(info->nnodes > 0 ? info->nnodes : 1);
}

static lvn_status mismatch(const lvni_launch_rank_info *info, char *const *env,
                           const lvni_launch_rank_info_devices *d, lvni_core_notices *n)
{
    const int tasks = info->local_world, devices = d->choice->n;
    int ntasks, per_node;
    if (info->source == LVNI_SOURCE_SLURM && ntasks_won(info, env, devices, &ntasks, &per_node)) {
        const lvn_status s = lvni_core_notice_error(
            n, 104,
            "--ntasks=%d won over --ntasks-per-node=%d, so this node has %d task%s for %d devices",
            ntasks, per_node, tasks, lvni_core_plural(tasks, "", "s"), devices);
        lvni_launch_env_found(env, "SLURM_NTASKS", n);
        lvni_launch_env_found(env, "SLURM_NTASKS_PER_NODE", n);
        found_both(info, env, d, n);
        lvni_core_notice_fix(n, "remove --ntasks (-n), and keep --ntasks-per-node=%d", per_node);
        return s;
    }
    const lvn_status s = lvni_core_notice_error(n, 103, "%d task%s on this node, but %d device%s",
                                                tasks, lvni_core_plural(tasks, "", "s"), devices,
                                                lvni_core_plural(devices, "", "s"));
    found_both(info, env, d, n);
    if (info->source == LVNI_SOURCE_SLURM) {
        lvni_core_notice_fix(n, "#SBATCH --ntasks-per-node=%d", devices);
    } else {
        lvni_core_notice_fix(n, "start %d processes on each node", devices);
    }
    lvni_core_notice_fix(n, "or devices=%d (--devices %d)", tasks, tasks);
    return s;
}

static lvn_status one_process(const lvni_launch_rank_info *info, char *const *env,
                              const lvni_launch_rank_info_devices *d, lvni_core_notices *n)
{
    const lvn_status s = lvni_core_notice_error(
        n, 103,
        "%d tasks on this node, but with this strategy one process holds all devices of a node",
        info->local_world);
    found_both(info, env, d, n);
    lvni_core_notice_fix(n, "%s",
                         info->source == LVNI_SOURCE_SLURM ? "#SBATCH --ntasks-per-node=1"
                                                           : "start one process on each node");
    lvni_core_notice_fix(n, "or strategy=ddp");
    return s;
}

/* The user started fewer tasks than the job has on purpose, without giving devices: the others stay
 * idle. */
static bool smaller_step(const lvni_launch_rank_info *info, char *const *env)
{
    uint64_t per_node;
    const char *text = lvni_launch_env_get(env, "SLURM_NTASKS_PER_NODE");
    return text != NULL && lvni_launch_env_digits(text, INT32_MAX, &per_node) &&
           per_node > (uint64_t)info->local_world;
}

lvn_status lvni_launch_rank_info_check_devices(const lvni_launch_rank_info *info, char *const *env,
                                               const lvni_launch_rank_info_devices *devices,
                                               lvni_core_notices *notices)
{
    const lvni_launch_device_choice *c = devices->choice;
    /* started by another launcher */
    const bool group = info->source > LVNI_SOURCE_LEVIN && info->source <= LVNI_SOURCE_SLURM;
    if (!group || info->local_world == LVNI_RANK_INFO_UNKNOWN) {
        return LVN_OK;
    }
    if (c->listed && info->source == LVNI_SOURCE_SLURM) {
        lvni_core_notice_warn(
            notices, 201,
            "%s is a list inside of Slurm: its numbers count what Slurm made visible, "
            "not the node's devices",
            devices->key);
    }
    if (devices->threads) {
        return info->local_world == 1 ? LVN_OK : one_process(info, env, devices, notices);
    }
    if (c->given && c->n != info->local_world) {
        return mismatch(info, env, devices, notices);
    }
    /* other nodes have more tasks: the numbers were given on purpose */
    const bool uneven = info->nnodes > 1 && info->world > info->nnodes;
    const bool one_of_many = !c->given && c->accelerator != LVNI_ACCELERATOR_CPU &&
                             info->local_world == 1 && c->n > 1 && !uneven;
    return one_of_many && info->source == LVNI_SOURCE_SLURM && !smaller_step(info, env)
               ? mismatch(info, env, devices, notices)
               : LVN_OK;
}

static lvn_status too_few(const lvni_launch_rank_info *info, char *const *env,
                          const lvni_launch_rank_info_devices *d, lvni_core_notices *n)
{
    const char *noun = d->choice->accelerator == LVNI_ACCELERATOR_SIM      ? "simulated devices"
                       : d->choice->accelerator == LVNI_ACCELERATOR_LOADED ? "devices"
                                                                           : "GPUs";
    const lvn_status s =
        lvni_core_notice_error(n, 106, "%d tasks on node %s, but only %d %s are visible",
                               info->local_world, text_of(d->host, "?"), d->visible->n, noun);
    lvni_launch_env_found(env, "CUDA_VISIBLE_DEVICES", n);
    lvni_launch_env_found(env, "SLURM_GPUS_ON_NODE", n);
    lvni_launch_env_found(env, "SLURM_JOB_GPUS", n);
    lvni_core_notice_fix(n, "#SBATCH --gpus-per-node=%d (or --gres=gpu:%d)", info->local_world,
                         info->local_world);
    lvni_core_notice_fix(n, "or fewer tasks on each node: #SBATCH --ntasks-per-node=%d",
                         d->visible->n);
    /* the others of the node see the same; those of other nodes perhaps not */
    n->own = info->local_rank == 0;
    return s;
}

static lvn_status list_of_other_length(const lvni_launch_rank_info *info,
                                       const lvni_launch_rank_info_devices *d, lvni_core_notices *n)
{
    const lvn_status s =
        lvni_core_notice_error(n, 106, "%s lists %d devices, but this node has %d tasks", d->key,
                               d->choice->n, info->local_world);
    lvni_core_notice_found(n, "%s with %d devices (%s)", d->key, d->choice->n,
                           text_of(d->origin, "default"));
    lvni_core_notice_fix(n, "list %d devices, or start %d tasks on each node", info->local_world,
                         d->choice->n);
    return s;
}

static void warn_idle(const lvni_launch_rank_info *info, char *const *env,
                      const lvni_launch_rank_info_devices *d, lvni_core_notices *n)
{
    const char *on_node = lvni_launch_env_get(env, "SLURM_GPUS_ON_NODE");
    lvni_core_str idle = {.len = 0};
    for (int i = info->local_world; i < d->visible->n; i++) {
        lvni_core_str_printf(&idle, "%s%d", i > info->local_world ? "," : "", i);
    }
    if (on_node != NULL) {
        lvni_core_notice_warn(n, 207, "devices %s stay idle: SLURM_GPUS_ON_NODE=%s but %d task%s",
                              lvni_core_str_text(&idle), on_node, info->local_world,
                              lvni_core_plural(info->local_world, "", "s"));
    } else {
        lvni_core_notice_warn(n, 207,
                              "devices %s stay idle: %d are visible, but this node has %d rank%s",
                              lvni_core_str_text(&idle), d->visible->n, info->local_world,
                              lvni_core_plural(info->local_world, "", "s"));
    }
    lvni_core_str_free(&idle);
}

void lvni_launch_rank_info_warn_of_cpu(int ranks, lvni_core_notices *notices)
{
    if (ranks > 1) {
        lvni_core_notice_warn(
            notices, 206,
            "%d ranks run on the CPU, because no GPU is visible that could be used; "
            "accelerator=cpu if that is intended",
            ranks);
    }
}

lvn_status lvni_launch_rank_info_device(const lvni_launch_rank_info *info, char *const *env,
                                        const lvni_launch_rank_info_devices *devices,
                                        lvni_core_notices *notices, int *index)
{
    const lvni_launch_device_choice *c = devices->choice;
    const int v = devices->visible->n, ranks = info->local_world, rank = info->local_rank;
    if (c->accelerator == LVNI_ACCELERATOR_CPU) {
        if (c->no_gpu) {
            lvni_launch_rank_info_warn_of_cpu(ranks > 0 ? ranks : info->world, notices);
        }
        *index = -1;
        return LVN_OK;
    }
    if (devices->threads || info->source == LVNI_SOURCE_SINGLE) {
        *index = c->index[0];
        return LVN_OK;
    }
    LVN_ARG(ranks > 0 && rank >= 0,
            "the local rank is not known before the rendezvous, and no device can be chosen "
            "without it (%s gives none)",
            lvni_launch_source_name(info->source));
    if (v < ranks) {
        if (v != 1 && !devices->allow_shared) {
            return too_few(info, env, devices, notices);
        }
        *index = rank % v; /* one is shown to each task, perhaps not the same: UUIDs are compared
                              at the rendezvous */
        return LVN_OK;
    }
    if (c->listed) {
        if (c->n != ranks) {
            return list_of_other_length(info, devices, notices);
        }
        *index = c->index[rank];
        return LVN_OK;
    }
    if (v > ranks && !c->given) {
        warn_idle(info, env, devices, notices);
    }
    *index = rank;
    return LVN_OK;
}

/* ---- the run mode ---- */

lvni_launch_run_mode lvni_launch_run_mode_choose(lvni_launch_run_mode asked, int devices, int nodes,
                                                 lvni_core_notices *notices)
{
    if (asked == LVNI_MODE_AUTO) {
        return devices > 1 || nodes > 1 ? LVNI_MODE_DDP : LVNI_MODE_SINGLE;
    }
    if (nodes > 1 && (asked == LVNI_MODE_SINGLE || asked == LVNI_MODE_DP)) {
        lvni_core_notice_warn(notices, 211,
                              "strategy=%s is for one node, and this run has %d: switched to ddp",
                              asked == LVNI_MODE_DP ? "dp" : "single", nodes);
        return LVNI_MODE_DDP;
    }
    if (devices > 1 && asked == LVNI_MODE_SINGLE) {
        lvni_core_notice_warn(
            notices, 211, "strategy=single is for one device, and this run has %d: switched to ddp",
            devices);
        return LVNI_MODE_DDP;
    }
    return asked;
}

bool lvni_launch_run_mode_threads(lvni_launch_run_mode mode)
{
    return mode == LVNI_MODE_DP || mode == LVNI_MODE_DDP2 || mode == LVNI_MODE_BALANCE;
}

/* ---- threads that load data ---- */

enum { AUTO_MOST = 8 }; /* of auto, where the processors of a task are not given */

/* srun does not pass on --cpus-per-task of the batch script since 22.05: the variable is 12, and
 * the task has one. */
static void warn_smaller(int reported, int cpus, lvni_core_notices *n)
{
    lvni_core_notice_warn(n, 208,
                          "SLURM_CPUS_PER_TASK=%d, but this task may use %d: export "
                          "SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK, or "
                          "srun --cpus-per-task=$SLURM_CPUS_PER_TASK",
                          reported, cpus);
}

static int at_least_0(int n)
{
    return n < 0 ? 0 : n;
}

/* Of the node, as far as its ranks may use them; 0: unknown. */
static int cpus_of_node(const lvni_launch_rank_info *info, const lvni_launch_workers_request *r,
                        bool task)
{
    if (task) {
        return info->slurm.cpus_on_node;
    }
    return r->bound ? r->cpus * info->local_world : r->cpus;
}

int lvni_launch_workers_choose(const lvni_launch_rank_info *info,
                               const lvni_launch_workers_request *request,
                               lvni_core_notices *notices)
{
    /* The ranks of a launcher inside of a step share what the step's task has. */
    const bool task = info->slurm.job &&
                      (info->source == LVNI_SOURCE_SLURM || info->source == LVNI_SOURCE_SINGLE);
    const int ranks = info->local_world > 0 ? info->local_world : 1,
              reported = task ? info->slurm.cpus_per_task : 0;
    const int usable = reported > 0 && reported < request->cpus ? reported : request->cpus;
    if (reported > request->cpus) {
        warn_smaller(reported, request->cpus, notices);
    }
    if (request->asked < 0) {
        const int own = task || request->bound ? usable : usable / ranks;
        const int n = at_least_0(own - 1);
        return reported > 0 || n < AUTO_MOST ? n : AUTO_MOST;
    }
    const int node = cpus_of_node(info, request, task);
    if (reported > 0 && request->asked >= usable) {
        lvni_core_notice_warn(
            notices, 209,
            "workers (%d) must be smaller than cpus-per-task (%d): the rank itself needs one",
            request->asked, usable);
    } else if (node > 0 && (int64_t)request->asked * ranks > node) {
        lvni_core_notice_warn(
            notices, 202,
            "%d workers x %d rank%s are more than the %d processors of this node: "
            "lower num_workers",
            request->asked, ranks, lvni_core_plural(ranks, "", "s"), node);
    }
    return request->asked;
}
