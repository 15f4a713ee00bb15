/* The environment of one rank: the launcher's own, without the variables of an earlier launcher,
 * with rank, address and devices in levin's variables and in those of torchrun; last what the
 * user's options set. */
#include "launch/launch_impl.h"

#include "core/alloc.h"
#include "core/str.h"
#include "core/vfs.h"
#include "launch/env_vars.h"

#include <stdio.h>
#include <string.h>

enum { ENV_FILE_MAX = 1 << 20 };

void lvni_launch_name(const lvni_launch_run *r, const lvni_launch_proc *p,
                      lvni_launch_rank_name *out)
{
    *out = (lvni_launch_rank_name){.rank = p->rank,
                                   .local_rank = p->local_rank,
                                   .node_rank = r->node_rank,
                                   .world = r->world,
                                   .attempt = r->attempt,
                                   .host = r->host,
                                   .run_id = r->run_id,
                                   .pid = p->pid};
}

void lvni_launch_forget_earlier(lvni_launch_variables *v, bool rendezvous)
{
    static const char *const names[] = {"LEVIN_RANK",         "LEVIN_WORLD_SIZE",
                                        "LEVIN_LOCAL_RANK",   "LEVIN_LOCAL_WORLD_SIZE",
                                        "LEVIN_NODE_RANK",    "LEVIN_NNODES",
                                        "LEVIN_STORE_FD",     "LEVIN_LOCK_FD",
                                        "LEVIN_HANDED_OVER",  "LEVIN_RESTART_COUNT",
                                        "LEVIN_MAX_RESTARTS", "LEVIN_ERROR_FILE",
                                        "LEVIN_LAUNCHED",     "LEVIN_LAUNCH_ID",
                                        "LEVIN_DEVICES",      "LEVIN_MADE_DIR",
                                        "LEVIN_RUN_KEY",      "RANK",
                                        "WORLD_SIZE",         "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",   "GROUP_RANK",
                                        "GROUP_WORLD_SIZE",   "NODE_RANK",
                                        "ROLE_RANK",          "ROLE_WORLD_SIZE",
                                        "ROLE_NAME"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lvni_launch_variables_unset(v, names[i]);
    }
    lvni_launch_variables_unset_prefix(v, "TORCHELASTIC_");
    if (rendezvous) {
        lvni_launch_variables_unset(v, "LEVIN_RUN_ID");
        lvni_launch_variables_unset_prefix(v, "LEVIN_MASTER_");
        lvni_launch_variables_unset_prefix(v, "MASTER_");
    }
}

/* Two names for each number: ours and torchrun's. */
static void set_rank(const lvni_launch_run *r, const lvni_launch_proc *p, lvni_launch_variables *v)
{
    const struct {
        const char *ours, *theirs;
        int value;
    } numbers[] = {{"LEVIN_RANK", "RANK", p->rank},
                   {"LEVIN_WORLD_SIZE", "WORLD_SIZE", r->world},
                   {"LEVIN_LOCAL_RANK", "LOCAL_RANK", p->local_rank},
                   {"LEVIN_LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE", r->local},
                   {"LEVIN_NODE_RANK", "GROUP_RANK", r->node_rank},
                   {"LEVIN_NNODES", "GROUP_WORLD_SIZE", r->nodes},
                   {"LEVIN_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", r->attempt},
                   {"LEVIN_MAX_RESTARTS", "TORCHELASTIC_MAX_RESTARTS", r->o.max_restarts}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        lvni_launch_variables_set_number(v, numbers[i].ours, numbers[i].value);
        lvni_launch_variables_set_number(v, numbers[i].theirs, numbers[i].value);
    }
    lvni_launch_variables_set(v, "LEVIN_RUN_ID", r->run_id);
    lvni_launch_variables_set(v, "TORCHELASTIC_RUN_ID", r->run_id);
    lvni_launch_variables_set(v, "LEVIN_LAUNCHED", "1");
    if (r->launch_id[0] != '\0') {
        lvni_launch_variables_set(v, "LEVIN_LAUNCH_ID", r->launch_id);
    }
    lvni_launch_variables_set_number(v, "ROLE_RANK", p->rank); /* all ranks have one role */
    lvni_launch_variables_set_number(v, "ROLE_WORLD_SIZE", r->world);
    lvni_launch_variables_set(v, "ROLE_NAME", r->o.role);
    /* rank 0 opens the port */
    lvni_launch_variables_set(v, "TORCHELASTIC_USE_AGENT_STORE", "False");
    if (lvni_launch_variables_get(v, "TORCH_NCCL_ASYNC_ERROR_HANDLING") == NULL) {
        lvni_launch_variables_set(v, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    }
    if (r->o.strict_given) {
        lvni_launch_variables_set(v, "LEVIN_STRICT", r->o.strict ? "1" : "0");
    }
    if (r->run_key[0] != '\0') { /* never in arguments or files: those others can read */
        lvni_launch_variables_set(v, "LEVIN_RUN_KEY", r->run_key);
    }
    if (p->rank == 0 && r->lock_fd >= 0) {
        lvni_launch_variables_set_number(v, "LEVIN_LOCK_FD", r->lock_fd);
    }
    if (p->record != NULL) {
        lvni_launch_variables_set(v, "LEVIN_ERROR_FILE", p->record);
    }
}

static void set_port(lvni_launch_variables *v, const char *name, int port)
{
    if (port > 0) {
        lvni_launch_variables_set_number(v, name, port);
    } else {
        lvni_launch_variables_set(v, name, "auto"); /* a dry run opens none */
    }
}

void lvni_launch_export_timeout(const lvni_launch_options *o, lvni_launch_variables *v)
{
    if (o->rdzv_timeout_s > 0) {
        char text[32];
        lvni_core_format(text, sizeof text, "%.15g", o->rdzv_timeout_s);
        lvni_launch_variables_set(v, "LEVIN_RDZV_TIMEOUT", text);
    }
}

/* On one node the store of rank 0 gets a socket that listens already; MASTER_PORT is a port of its
 * own, since rank 0 of a foreign program opens it itself. Over nodes both are the port the user
 * gave: a run is one or the other. */
static void set_where(const lvni_launch_run *r, const lvni_launch_proc *p, lvni_launch_variables *v)
{
    lvni_launch_variables_set(v, "LEVIN_MASTER_ADDR", r->master_addr);
    lvni_launch_variables_set(v, "MASTER_ADDR", r->master_addr);
    set_port(v, "LEVIN_MASTER_PORT", r->nodes > 1 ? r->held.port : r->store_port);
    /* in a dry run nothing is held: the port that was given, if one was */
    set_port(v, "MASTER_PORT",
             r->held.port > 0 ? r->held.port : lvni_launch_port_number(r->o.master_port));
    if (p->rank == 0 && r->store_fd >= 0) {
        lvni_launch_variables_set_number(v, "LEVIN_STORE_FD", r->store_fd);
    }
    lvni_launch_export_timeout(&r->o, v);
}

static bool is_first(const lvni_launch_device_choice *d, int i)
{
    int first = 0;
    while (d->index[first] != d->index[i]) {
        first++;
    }
    return first == i;
}

/* Two ranks share one: their ranks alone do not determine which. */
static bool is_shared(const lvni_launch_device_choice *d)
{
    int different = 0;
    for (int i = 0; i < d->n; i++) {
        different += is_first(d, i) ? 1 : 0;
    }
    return different < d->n;
}

/* The place of the i-th among the devices that CUDA_VISIBLE_DEVICES shows, each of them once. */
static int place_of(const lvni_launch_device_choice *d, int i)
{
    int place = 0;
    for (int k = 0; d->index[k] != d->index[i]; k++) {
        place += is_first(d, k) ? 1 : 0;
    }
    return place;
}

/* Under Slurm ranks see all that Slurm shows, and elsewhere a shared device once: the device of
 * each rank is in a variable of levin alone. */
static void set_device_list(const lvni_launch_device_choice *d, bool chosen_alone,
                            lvni_launch_variables *v)
{
    lvni_core_str list = {0};
    for (int i = 0; i < d->n; i++) {
        lvni_core_str_printf(&list, "%s%d", i == 0 ? "" : ",",
                             chosen_alone ? place_of(d, i) : d->index[i]);
    }
    v->failed = v->failed || lvni_core_str_status(&list) != LVN_OK;
    lvni_launch_variables_set(v, "LEVIN_DEVICES", lvni_core_str_text(&list));
    lvni_core_str_free(&list);
}

static void set_devices(const lvni_launch_run *r, lvni_launch_variables *v)
{
    const bool loaded = r->devices.accelerator == LVNI_ACCELERATOR_LOADED;
    if ((r->devices.listed || loaded) && r->devices.n == r->local &&
        (r->cuda_visible == NULL || is_shared(&r->devices))) {
        set_device_list(&r->devices, r->cuda_visible != NULL, v);
    }
    if (r->cuda_visible != NULL) {
        if (lvni_launch_variables_get(v, "CUDA_DEVICE_ORDER") == NULL) {
            lvni_launch_variables_set(v, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        }
        lvni_launch_variables_set(v, "CUDA_VISIBLE_DEVICES", r->cuda_visible);
    }
    if (r->o.nccl_debug != NULL) {
        lvni_launch_variables_set(v, "NCCL_DEBUG", r->o.nccl_debug);
    }
    if (r->o.ifname != NULL) {
        lvni_launch_variables_set(v, "NCCL_SOCKET_IFNAME", r->o.ifname);
    }
}

/* libgomp's teams spin for long while they wait, which is fine for one process on a machine and
 * slows many ranks down tenfold. */
static void set_threads(const lvni_launch_run *r, const lvni_launch_proc *p,
                        lvni_launch_variables *v)
{
    if (r->o.omp > 0) {
        lvni_launch_variables_set_number(v, "OMP_NUM_THREADS", r->o.omp);
    } else if (lvni_launch_variables_get(v, "OMP_NUM_THREADS") == NULL) {
        lvni_launch_variables_set_number(v, "OMP_NUM_THREADS",
                                         lvni_launch_bind_threads(&r->binding, p->local_rank));
    }
    if (lvni_launch_variables_get(v, "GOMP_SPINCOUNT") == NULL &&
        lvni_launch_variables_get(v, "OMP_WAIT_POLICY") == NULL) {
        lvni_launch_variables_set(v, "GOMP_SPINCOUNT", "2000");
    }
}

static lvn_status set_from(lvni_launch_variables *v, const char *variable,
                           const lvni_launch_rank_name *name)
{
    const char *equals = strchr(variable, '=');
    lvni_core_str key = {0}, value = {0};
    lvni_core_str_append_n(&key, variable, (size_t)(equals - variable));
    lvni_launch_pattern_expand_value(&value, equals + 1, name);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&key));
    LVNI_TRY_DONE(s, lvni_core_str_status(&value));
    lvni_launch_variables_set(v, lvni_core_str_text(&key), lvni_core_str_text(&value));
done:
    lvni_core_str_free(&key);
    lvni_core_str_free(&value);
    return s;
}

/* Lines NAME=VALUE; empty ones and comments (#) are skipped, `export ` in front and quotes around a
 * value are removed. */
static lvn_status set_line(lvni_launch_variables *v, char *line, const char *path, int number,
                           const lvni_launch_rank_name *name)
{
    line += strspn(line, " \t");
    if (strncmp(line, "export ", 7) == 0) {
        line += 7;
    }
    size_t n = strlen(line);
    while (n > 0 && strchr(" \t\r", line[n - 1]) != NULL) {
        line[--n] = '\0';
    }
    if (n == 0 || *line == '#') {
        return LVN_OK;
    }
    char *equals = strchr(line, '=');
    if (equals == NULL || equals == line) {
        LVN_FAIL(LVN_ERR_USAGE, "%s:%d: `%.80s` is not NAME=VALUE", path, number, line);
    }
    const size_t m = strlen(equals + 1);
    if (m >= 2 && strchr("\"'", equals[1]) != NULL && equals[1] == equals[m]) {
        memmove(equals + 1, equals + 2, m - 2);
        equals[m - 1] = '\0';
    }
    return set_from(v, line, name);
}

lvn_status lvni_launch_read_env_file(lvni_launch_options *o)
{
    size_t bytes;
    return o->env_file == NULL
               ? LVN_OK
               : lvni_core_file_read(o->env_file, ENV_FILE_MAX, &o->env_lines, &bytes);
}

static lvn_status set_lines(lvni_launch_variables *v, const char *lines, const char *path,
                            const lvni_launch_rank_name *name)
{
    char *data = lvni_core_strdup(LVNI_TAG_CORE, lines);
    if (data == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s;
    int number = 1;
    for (char *line = data; line != NULL; number++) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end = '\0';
        }
        LVNI_TRY_DONE(s, set_line(v, line, path, number, name));
        line = end != NULL ? end + 1 : NULL;
    }
done:
    lvni_core_free(data);
    return s;
}

lvn_status lvni_launch_set_requested(const lvni_launch_options *o,
                                     const lvni_launch_rank_name *name, lvni_launch_variables *v)
{
    if (o->env_lines != NULL) {
        LVN_TRY(set_lines(v, o->env_lines, o->env_file, name));
    }
    for (int i = 0; i < o->n_env; i++) {
        LVN_TRY(set_from(v, o->env[i], name));
    }
    for (int i = 0; i < o->n_unset; i++) {
        lvni_launch_variables_unset(v, o->unset[i]);
    }
    return LVN_OK;
}

static lvn_status warn_of_nccl(lvni_launch_run *r, lvni_launch_variables *v)
{
    static const lvni_launch_rank_name no_rank = {.host = "", .run_id = ""};
    lvni_launch_variables_copy(v, r->environment);
    LVN_TRY(lvni_launch_set_requested(&r->o, &no_rank, v));
    LVN_TRY(lvni_launch_variables_status(v));
    return lvni_launch_nccl_warn(v->list, &r->notices);
}

lvn_status lvni_launch_warn_of_nccl(lvni_launch_run *r)
{
    if (strcmp(r->o.accelerator, "auto") != 0 && strcmp(r->o.accelerator, "gpu") != 0) {
        return LVN_OK;
    }
    lvni_launch_variables v = {0};
    const lvn_status s = warn_of_nccl(r, &v);
    lvni_launch_variables_free(&v);
    return s;
}

lvn_status lvni_launch_environment(const lvni_launch_run *r, const lvni_launch_proc *p,
                                   lvni_launch_variables *out)
{
    *out = (lvni_launch_variables){0};
    lvni_launch_variables_copy(out, r->environment);
    lvni_launch_forget_earlier(out, true);
    set_rank(r, p, out);
    set_where(r, p, out);
    set_devices(r, out);
    set_threads(r, p, out);
    lvni_launch_rank_name name;
    lvni_launch_name(r, p, &name);
    lvn_status s = lvni_launch_set_requested(&r->o, &name, out);
    if (s == LVN_OK) {
        s = lvni_launch_variables_status(out);
    }
    if (s != LVN_OK) {
        lvni_launch_variables_free(out);
    }
    return s;
}
