/* What runs where: how many processes, which devices, which node this is, which cores each rank
 * gets. Pure decisions and a few looks at the machine; nothing is started and nothing written. */
#include "launch/launch_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/machine.h"
#include "launch/env_vars.h"
#include "launch/launch_machine.h"
#include "launch/rank_info.h"
#include "launch/rank_resources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { SIM_MAX = 4096, LOADED_MAX = 1024 };

/* ---- devices ---- */

static lvni_launch_accelerator accelerator_of(const char *name)
{
    return strcmp(name, "cpu") == 0    ? LVNI_ACCELERATOR_CPU
           : strcmp(name, "gpu") == 0  ? LVNI_ACCELERATOR_CUDA
           : strcmp(name, "sim") == 0  ? LVNI_ACCELERATOR_SIM
           : strcmp(name, "auto") == 0 ? LVNI_ACCELERATOR_AUTO
                                       : LVNI_ACCELERATOR_LOADED;
}

static lvn_status see_simulated(lvni_launch_run *r, const char *value)
{
    int n = 0;
    LVN_TRY(lvni_launch_env_int(r->environment, "LEVIN_SIM_DEVICES", &r->notices, &n));
    return lvni_launch_visible_make(value, n < SIM_MAX ? n : SIM_MAX, NULL, &r->visible);
}

/* A launcher loads no backend: the ranks check that their devices are there. */
static lvn_status see_loaded(lvni_launch_run *r)
{
    if (lvni_launch_device_spec_count(r->o.devices) == 0 && strcmp(r->o.nproc, "auto") == 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "accelerator=%s: the launcher does not count the devices of a backend; give "
                 "devices= a number or a list",
                 r->o.accelerator);
    }
    return lvni_launch_visible_make(NULL, LOADED_MAX, NULL, &r->visible);
}

static lvn_status see_gpus(lvni_launch_run *r, const char *value, lvni_launch_gpu **gpus, int *n)
{
    LVN_TRY(lvni_launch_gpus_find("", gpus, n));
    const char **uuids = lvni_core_calloc(LVNI_TAG_CORE, (size_t)*n + 1, sizeof *uuids);
    if (uuids == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < *n; i++) {
        uuids[i] = (*gpus)[i].uuid[0] != '\0' ? (*gpus)[i].uuid : NULL;
    }
    const bool known = *n > 0 && uuids[0] != NULL;
    const lvn_status s = lvni_launch_visible_make(value, *n, known ? uuids : NULL, &r->visible);
    lvni_core_free(uuids);
    return s;
}

/* 0: auto, as many as there are devices. */
static lvn_status read_nproc(lvni_launch_run *r, int *nproc)
{
    const char *t = r->o.nproc;
    *nproc = (int)strtol(t, NULL, 10);
    if (strcmp(t, "cpu") == 0) {
        return lvni_launch_bind_count(nproc);
    }
    if (strcmp(t, "gpu") == 0) {
        *nproc = r->visible.n;
        if (r->visible.n == 0) {
            const lvn_status s =
                lvni_core_notice_error(&r->notices, 106, "nproc=gpu: this process sees no GPU");
            lvni_core_notice_fix(&r->notices,
                                 "look at the driver (nvidia-smi) and at "
                                 "CUDA_VISIBLE_DEVICES, or give a number of processes");
            return s;
        }
    }
    return LVN_OK;
}

static lvn_status count_processes(lvni_launch_run *r, int nproc, bool threads,
                                  lvni_launch_accelerator asked)
{
    const lvni_launch_device_choice *d = &r->devices;
    const char *key = r->o.gpus ? "gpus" : "devices";
    r->local = threads ? 1 : nproc > 0 ? nproc : d->n;
    if (threads && nproc > 1) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "strategy %s is one process per node, which owns all devices; nproc %d asks for more",
            r->o.strategy, nproc);
    }
    const bool by_number =
        d->given || (d->accelerator != LVNI_ACCELERATOR_CPU && asked != LVNI_ACCELERATOR_AUTO);
    if (by_number && !threads && (d->given ? r->local != d->n : r->local > d->n) &&
        !r->o.allow_shared_device) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%d processes (nproc), but %d %s (%s); leave nproc out, or give as many devices",
                 r->local, d->n, lvni_core_plural(d->n, "device", "devices"), key);
    }
    return LVN_OK;
}

static lvn_status choose_devices(lvni_launch_run *r, int nproc)
{
    const lvni_launch_options *o = &r->o;
    const lvni_launch_run_mode asked =
        o->strategy == NULL
            ? LVNI_MODE_AUTO
            : (lvni_launch_run_mode)(LVNI_MODE_SINGLE +
                                     lvni_core_config_choice(o->config, "strategy"));
    const bool may_thread = asked == LVNI_MODE_DP || asked == LVNI_MODE_DDP2;
    const lvni_launch_device_request request = {.key = o->gpus ? "gpus" : "devices",
                                                .spec = o->devices,
                                                .accelerator = accelerator_of(o->accelerator),
                                                .backend = o->accelerator,
                                                .gpus = o->gpus,
                                                .allow_shared = o->allow_shared_device,
                                                .nproc = may_thread ? 0 : nproc,
                                                .env = r->environment};
    LVN_TRY(lvni_launch_device_choose(&request, &r->visible, &r->notices, &r->devices));
    if (r->devices.no_gpu && r->devices.given) {
        lvni_launch_rank_info_warn_of_cpu(r->devices.n, &r->notices);
    }
    const bool threads = may_thread && lvni_launch_run_mode_threads(lvni_launch_run_mode_choose(
                                           asked, r->devices.n, o->nodes, &r->notices));
    return count_processes(r, nproc, threads, request.accelerator);
}

static lvn_status record_devices(lvni_launch_run *r, const lvni_launch_gpu *gpus, int n_gpus)
{
    const lvni_launch_device_choice *d = &r->devices;
    if (d->accelerator == LVNI_ACCELERATOR_CPU || d->n == 0) {
        return LVN_OK;
    }
    if (d->accelerator == LVNI_ACCELERATOR_LOADED) {
        return LVN_OK; /* LEVIN_DEVICES names them */
    }
    if (!r->under_slurm) {
        lvni_core_str s = {0};
        lvni_launch_device_choice_print(d, &r->visible, &s);
        r->cuda_visible = lvni_core_str_take(&s);
        if (r->cuda_visible == NULL) {
            return LVN_ERR_MEMORY;
        }
    } else if (d->listed) {
        lvni_core_notice_warn(
            &r->notices, 201,
            "%s is a list inside of Slurm: its numbers count what Slurm made visible, "
            "and CUDA_VISIBLE_DEVICES stays as it is",
            r->o.gpus ? "gpus" : "devices");
    }
    if (d->accelerator != LVNI_ACCELERATOR_CUDA || d->n < r->local) {
        return LVN_OK;
    }
    r->gpu_numa = lvni_core_calloc(LVNI_TAG_CORE, (size_t)r->local, sizeof *r->gpu_numa);
    if (r->gpu_numa == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < r->local; i++) {
        const int physical = r->visible.device[d->index[i]].physical;
        r->gpu_numa[i] = physical >= 0 && physical < n_gpus ? gpus[physical].numa : -1;
    }
    return LVN_OK;
}

static lvn_status lay_devices(lvni_launch_run *r)
{
    const char *value = lvni_launch_env_raw(r->environment, "CUDA_VISIBLE_DEVICES");
    lvni_launch_gpu *gpus = NULL;
    int n_gpus = 0, nproc = 0;
    const lvni_launch_accelerator kind = accelerator_of(r->o.accelerator);
    lvn_status s;
    LVNI_TRY_DONE(s, kind == LVNI_ACCELERATOR_SIM      ? see_simulated(r, value)
                     : kind == LVNI_ACCELERATOR_LOADED ? see_loaded(r)
                                                       : see_gpus(r, value, &gpus, &n_gpus));
    LVNI_TRY_DONE(s, read_nproc(r, &nproc));
    LVNI_TRY_DONE(s, choose_devices(r, nproc));
    s = record_devices(r, gpus, n_gpus);
done:
    lvni_core_free(gpus);
    return s;
}

/* ---- nodes ---- */

/* What a run over several nodes needs when it is started by hand. */
static lvn_status lay_by_hand(lvni_launch_run *r)
{
    lvni_launch_options *o = &r->o;
    const char *addr = o->master_addr != NULL ? o->master_addr
                                              : lvni_launch_env_get(r->environment, "MASTER_ADDR");
    const char *port = strcmp(o->master_port, "auto") != 0
                           ? o->master_port
                           : lvni_launch_env_get(r->environment, "MASTER_PORT");
    const bool no_port = port == NULL || lvni_launch_port_number(port) == 0;
    if (!o->node_rank_given || addr == NULL || no_port) {
        const lvn_status s = lvni_core_notice_error(
            &r->notices, 109, "%d nodes need %s%s%s on each of them", r->nodes,
            o->node_rank_given ? "" : "--node-rank ", addr == NULL ? "--master-addr " : "",
            no_port ? "--master-port" : "");
        lvni_core_notice_fix(
            &r->notices,
            "levin launch --nodes %d --node-rank 0 --master-addr HOST --master-port "
            "29500 -- PROGRAM on the first node, "
            "--node-rank 1 on the second, ...",
            r->nodes);
        return s;
    }
    if (o->node_rank >= r->nodes) {
        LVN_FAIL(LVN_ERR_USAGE, "node_rank %d: %d nodes are 0 to %d", o->node_rank, r->nodes,
                 r->nodes - 1);
    }
    snprintf(r->master_addr, sizeof r->master_addr, "%s", addr);
    o->master_port = port;
    return LVN_OK;
}

/* srun started one launcher per node: each gets its node rank from the step. */
static lvn_status lay_by_step(lvni_launch_run *r, const lvni_launch_rank_info *info)
{
    if (info->local_world > 1) {
        const lvn_status s = lvni_core_notice_error(
            &r->notices, 103,
            "srun started levin launch %d times on this node, and each would start %d ranks",
            info->local_world, r->local);
        lvni_core_notice_fix(&r->notices,
                             "one launcher per node: srun --ntasks-per-node=1 levin launch "
                             "...; or none: srun PROGRAM");
        return s;
    }
    r->nodes = info->nnodes;
    r->node_rank = info->node_rank;
    if (r->nodes > 1) {
        snprintf(r->master_addr, sizeof r->master_addr, "%s", lvni_launch_rank_info_route(info));
        snprintf(r->port_text, sizeof r->port_text, "%d", info->ports[0]);
        r->o.master_port = r->port_text;
    }
    return LVN_OK;
}

/* *found: this is a task of a Slurm step, and not a user's shell in one; then the nodes are those
 * of the step. */
static lvn_status read_step(lvni_launch_run *r, bool *found)
{
    *found = false;
    char *const *env = r->environment;
    const bool step = lvni_launch_env_get(env, "SLURM_STEP_ID") != NULL ||
                      lvni_launch_env_get(env, "SLURM_STEPID") != NULL;
    if (!r->under_slurm || !step || lvni_launch_env_get(env, "SLURM_PROCID") == NULL ||
        lvni_launch_env_get(env, "LEVIN_LAUNCHED") != NULL || r->o.node_rank_given) {
        return LVN_OK;
    }
    const lvni_launch_rank_info_options ask = {.source = "slurm",
                                               .master_addr = r->o.master_addr,
                                               .master_port =
                                                   lvni_launch_port_number(r->o.master_port),
                                               .nodes = r->o.nodes_given ? r->o.nodes : 0,
                                               .launcher = true};
    lvni_launch_rank_info info;
    LVN_TRY(lvni_launch_rank_info_detect(env, &ask, &r->notices, &info));
    lvn_status s = LVN_OK;
    if (!info.slurm.interactive) {
        *found = true;
        s = lay_by_step(r, &info);
    }
    lvni_launch_rank_info_free(&info);
    return s;
}

static lvn_status lay_nodes(lvni_launch_run *r)
{
    const lvni_launch_options *o = &r->o;
    bool by_step;
    r->nodes = o->nodes;
    r->node_rank = o->node_rank;
    snprintf(r->master_addr, sizeof r->master_addr, "127.0.0.1");
    LVN_TRY(read_step(r, &by_step));
    if (r->nodes == 1 && r->node_rank > 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "node_rank %d: with one node there is node 0 alone; give --nodes too",
                 o->node_rank);
    }
    if (r->nodes > 1 && !by_step) {
        LVN_TRY(lay_by_hand(r));
    }
    if (r->nodes > 1 && o->max_restarts > 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "max_restarts %d: restarts are for one node; over %d nodes restart from outside "
                 "(requeue)",
                 o->max_restarts, r->nodes);
    }
    r->world = r->local * r->nodes;
    if (r->node_rank == 0) { /* which holds it */
        lvni_launch_port_warn(o->master_port, &r->notices);
    }
    return LVN_OK;
}

/* ---- names ---- */

/* The end counts too: "a" "b" is not "ab". */
static uint64_t hash_argument(uint64_t h, const char *text)
{
    return lvni_core_hash(lvni_core_hash_text(h, text), "\xff", 1);
}

lvn_status lvni_launch_name_run(lvni_launch_run *r)
{
    const lvni_launch_options *o = &r->o;
    if (o->run_id != NULL) {
        static const char good[] =
            "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-";
        if (o->run_id[0] == '\0' || o->run_id[0] == '.' ||
            strlen(o->run_id) != strspn(o->run_id, good) || strlen(o->run_id) >= sizeof r->run_id) {
            LVN_FAIL(LVN_ERR_USAGE, "run_id `%.80s`: 1 to %zu letters, digits and . _ -", o->run_id,
                     sizeof r->run_id - 1);
        }
        snprintf(r->run_id, sizeof r->run_id, "%s", o->run_id);
        return LVN_OK;
    }
    uint64_t id = LVNI_CORE_HASH;
    if (r->nodes > 1) {
        /* without its arguments: ranks with other ones meet, and the rendezvous names them */
        const char *slash = strrchr(o->program[0], '/');
        id = hash_argument(hash_argument(id, r->master_addr), o->master_port);
        id = hash_argument(id, slash != NULL ? slash + 1 : o->program[0]);
    } else if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id) {
        LVN_FAIL(LVN_ERR_INTERNAL,
                 "the system gives no random numbers; name the run: --run-id NAME");
    }
    snprintf(r->run_id, sizeof r->run_id, "%016llx", (unsigned long long)id);
    return LVN_OK;
}

static lvn_status lay_output(lvni_launch_run *r)
{
    r->shown = lvni_core_calloc(LVNI_TAG_CORE, (size_t)r->world, sizeof *r->shown);
    if (r->shown == NULL) {
        return LVN_ERR_MEMORY;
    }
    r->input = r->o.standard_input >= 0 ? (lvni_launch_stdin)r->o.standard_input
               : r->world == 1          ? LVNI_STDIN_RANK0
                                        : LVNI_STDIN_NONE;
    r->shares_group = r->world == 1 && r->input == LVNI_STDIN_RANK0 && isatty(STDIN_FILENO) == 1;
    return lvni_launch_rank_list("show", r->o.show, r->world, r->shown);
}

lvn_status lvni_launch_layout(lvni_launch_run *r)
{
    lvni_core_host_name(r->host, sizeof r->host);
    r->under_slurm = lvni_launch_env_get(r->environment, "SLURM_JOB_ID") != NULL;
    LVN_TRY(lay_devices(r));
    LVN_TRY(lay_nodes(r));
    LVN_TRY(lvni_launch_name_run(r));
    LVN_TRY(lay_output(r));
    const bool bound = lvni_launch_env_get(r->environment, "SLURM_STEP_ID") != NULL;
    return lvni_launch_bind_make(r->o.bind, r->local, r->gpu_numa, bound, &r->notices, &r->binding);
}

void lvni_launch_layout_free(lvni_launch_run *r)
{
    lvni_launch_visible_free(&r->visible);
    lvni_launch_device_choice_free(&r->devices);
    lvni_launch_bind_free(&r->binding);
    lvni_core_free(r->cuda_visible);
    lvni_core_free(r->gpu_numa);
    lvni_core_free(r->run_dir);
    lvni_core_free(r->program);
    lvni_core_free(r->shown);
}
