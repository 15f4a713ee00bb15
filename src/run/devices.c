/* What the ranks of this node run on: accelerator=, the devices that devices= selects, and the
 * processors that processes of one host share. Called by ranks.c and rank_process.c; the
 * accelerator also by the commands. */
#include "run/devices.h"

#include "launch/env_vars.h"
#include "tensor/device.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- accelerator= ---- */

static bool is_accelerator(const lvni_core_config *c, const char *name)
{
    return strcmp(lvni_core_config_str(c, "accelerator"), name) == 0;
}

/* How many simulated devices devices= needs: a number, or the largest of a list; one where it is
 * open. */
static int devices_asked(const lvni_core_config *c)
{
    const char *spec = lvni_core_config_str(c, "devices");
    const long one_more = strpbrk(spec, "[,") != NULL ? 1 : 0;
    long most = 1;
    if (spec[strspn(spec, "0123456789[], ")] != '\0') { /* auto, all, -1, a UUID */
        return 1;
    }
    for (const char *p = spec; *p != '\0'; p += strcspn(p, "[], ")) {
        p += strspn(p, "[], ");
        const long n = strtol(p, NULL, 10) + one_more;
        most = *p != '\0' && n > most ? n : most;
    }
    return most < LVN_SIM_MOST ? (int)most : LVN_SIM_MOST;
}

static lvn_status check_sim(const lvni_core_config *c)
{
    lvni_tensor_device *device;
    if (lvn_device_count(LVN_DEVICE_SIM) > 0) {
        return LVN_OK;
    }
    if (lvni_tensor_device_open(LVN_DEVICE_SIM, 0, &device) == LVN_ERR_NOT_FOUND) {
        /* else the environment is wrong, which is the error that stands */
        LVN_FAIL(LVN_ERR_RESOURCE,
                 "accelerator=sim: there are no simulated devices; set LEVIN_SIM_DEVICES in the "
                 "environment to how many there are to be "
                 "(LEVIN_SIM_DEVICES=%d), and LEVIN_SIM_MEMORY to the memory of each "
                 "(LEVIN_SIM_MEMORY=2GiB; 1GiB unless set), or give accelerator=cpu",
                 devices_asked(c));
    }
    return lvn_last_error()->code;
}

/* A backend in a shared object, which is loaded now. */
static lvn_status check_loaded(const lvni_core_config *c)
{
    const char *name = lvni_core_config_str(c, "accelerator");
    int kind, n = 0;
    const lvn_status s = lvni_tensor_backend_find(name, &kind);
    const lvni_core_option row = {.name = "accelerator"};
    if (s == LVN_ERR_NOT_FOUND && lvni_core_option_is_foreign(&row, name)) {
        return lvni_core_option_expected(&row, name, false,
                                         lvni_core_config_origin(c, "accelerator"));
    }
    if (s == LVN_ERR_NOT_FOUND) {
        lvni_core_str there = {0};
        lvni_tensor_backend_names(", ", &there);
        lvn_error_set(
            LVN_ERR_RESOURCE, __FILE__, __LINE__,
            "accelerator=%s: there is no backend %s: no levin_backend_%s.so beside levin, nor "
            "in LEVIN_BACKEND_PATH (%s); use auto, cpu, gpu, sim%s%s",
            name, name, name, lvni_tensor_backend_path(), there.len > 0 ? ", " : "",
            lvni_core_str_text(&there));
        lvni_core_str_free(&there);
        return LVN_ERR_RESOURCE;
    }
    LVN_TRY(s);
    const lvn_backend *b = lvni_tensor_backend_get(kind);
    if (b->count == NULL || kind == LVN_DEVICE_DRY) {
        LVN_FAIL(LVN_ERR_USAGE, "accelerator=%s: the backend %s has no devices; use cpu", name,
                 name);
    }
    LVN_TRY(b->count(&n));
    if (n < 1) {
        LVN_FAIL(LVN_ERR_RESOURCE,
                 "accelerator=%s: the backend %s finds no device here; use accelerator=cpu", name,
                 name);
    }
    return LVN_OK;
}

/* The number of its backend, after lvni_run_accelerator_resolve. */
static lvn_device_kind kind_of(const lvni_core_config *c)
{
    int kind = LVN_DEVICE_CPU;
    (void)lvni_tensor_backend_find(lvni_core_config_str(c, "accelerator"), &kind);
    return kind < 0 ? LVN_DEVICE_CPU : (lvn_device_kind)kind;
}

/* ---- GPUs: accelerator=gpu, and auto where there is one ---- */

#define GPU_BACKEND "cuda"
static const char BY_START[] = "resolved at start";

/* Why the GPU that this machine seems to have is not used by accelerator=auto; "": there is none */
static char gpu_refused[1024];

/* Asked before anything is loaded: a start without a GPU touches no driver. */
static bool has_gpu_driver(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

/* LVN_ERR_RESOURCE, and why. */
static lvn_status find_gpu(void)
{
    int kind, n = 0;
    const lvn_status s = lvni_tensor_backend_find(GPU_BACKEND, &kind);
    if (s == LVN_ERR_NOT_FOUND) {
        LVN_FAIL(LVN_ERR_RESOURCE,
                 "this levin was built without its GPU backend (levin_backend_" GPU_BACKEND
                 ".so): `make LEVIN_CUDA=on` builds it where nvcc is, `make cuda` fetches nvcc "
                 "first, `levin "
                 "doctor` prints what is missing");
    }
    LVN_TRY(s);
    LVN_TRY(lvni_tensor_backend_get(kind)->count(&n));
    if (n < 1) {
        LVN_FAIL(LVN_ERR_RESOURCE, "no GPU is visible to this process");
    }
    return LVN_OK;
}

lvn_status lvni_run_accelerator_find(const char *name, char *out, size_t size)
{
    const bool gpu = strncmp(name, "gpu", 3) == 0 && (name[3] == '\0' || name[3] == ':');
    LVN_TRY(gpu ? find_gpu() : LVN_OK);
    snprintf(out, size, "%s%s", gpu ? GPU_BACKEND : "", gpu ? name + 3 : name);
    return LVN_OK;
}

const char *lvni_run_gpu_refused(void)
{
    return gpu_refused;
}

static lvn_status resolve_auto(lvni_core_config *c)
{
    const bool gpu = has_gpu_driver() && find_gpu() == LVN_OK;
    if (!gpu && has_gpu_driver()) {
        snprintf(gpu_refused, sizeof gpu_refused, "%s", lvn_last_error()->message);
    }
    return lvni_core_config_set(c, "accelerator", gpu ? GPU_BACKEND : "cpu", BY_START);
}

static lvn_status resolve_gpu(lvni_core_config *c)
{
    const lvn_status s = find_gpu();
    if (s != LVN_OK) {
        const lvn_error e = *lvn_last_error();
        LVN_FAIL(LVN_ERR_RESOURCE,
                 "accelerator=gpu: %s; use accelerator=cpu, or for trying things out "
                 "accelerator=sim with LEVIN_SIM_DEVICES=%d in the environment",
                 e.message, devices_asked(c));
    }
    return lvni_core_config_set(c, "accelerator", GPU_BACKEND, BY_START);
}

/* All GPUs that there are kernels for have products of bf16. */
static lvn_status resolve_precision(lvni_core_config *c)
{
    static const char key[] = "precision";
    if (!lvni_core_config_has(c, key) || strcmp(lvni_core_config_str(c, key), "auto") != 0) {
        return LVN_OK;
    }
    return lvni_core_config_set(c, key, is_accelerator(c, GPU_BACKEND) ? "bf16-mixed" : "32-true",
                                BY_START);
}

static lvn_status resolve_accelerator(lvni_core_config *c)
{
    if (is_accelerator(c, "gpu")) {
        return resolve_gpu(c);
    }
    if (is_accelerator(c, "sim")) {
        return check_sim(c);
    }
    if (is_accelerator(c, "auto")) {
        return resolve_auto(c);
    }
    return is_accelerator(c, "cpu") ? LVN_OK : check_loaded(c);
}

lvn_status lvni_run_accelerator_resolve(lvni_core_config *c)
{
    LVN_TRY(resolve_accelerator(c));
    return resolve_precision(c);
}

bool lvni_run_accelerator_is_device(const lvni_core_config *c)
{
    return !is_accelerator(c, "cpu") && !is_accelerator(c, "auto");
}

lvn_status lvni_run_accelerator_visible(const lvni_core_config *c, lvni_launch_visible *out)
{
    const bool sim = is_accelerator(c, "sim");
    const int n = lvni_run_accelerator_is_device(c) ? lvn_device_count(kind_of(c)) : 0;
    return lvni_launch_visible_make(
        sim || n == 0 ? lvni_launch_env_raw(environ, "CUDA_VISIBLE_DEVICES") : NULL, n, NULL, out);
}

lvn_status lvni_run_choose_transport(const lvni_core_config *c, int ranks, int hosts,
                                     const int *host, bool threads, lvni_dist_choice *out)
{
    /* a command that trains nothing has neither key */
    const bool trains = lvni_core_config_has(c, "transport");
    const lvni_dist_layout layout = {
        .ranks = ranks,
        .hosts = hosts,
        .host = host,
        .threads = threads,
        .device = lvni_run_accelerator_is_device(c),
        .bytes = trains ? (size_t)lvni_core_config_int(c, "bucket_bytes") : 0};
    return lvni_dist_choose(&layout, trains ? lvni_core_config_str(c, "transport") : "auto", out);
}

lvn_status lvni_run_accelerator_use(const lvni_core_config *c, int index)
{
    if (!lvni_run_accelerator_is_device(c)) {
        return lvn_device_use(LVN_CPU);
    }
    const lvn_device_kind kind = kind_of(c);
    const lvn_backend *b = lvni_tensor_backend_get(kind);
    if (b->set != NULL && lvni_core_config_has(c, "tf32")) {
        LVN_TRY(b->set("tf32", lvni_core_config_bool(c, "tf32") ? "true" : "false"));
    }
    return lvn_device_use((lvn_device){kind, index});
}

void lvni_run_accelerator_describe(lvni_core_str *out)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx != NULL && ctx->device != NULL) {
        char has[LVNI_BYTES_TEXT];
        const bool sim = lvni_tensor_device_kind(ctx->device) == LVN_DEVICE_SIM;
        const lvn_device_info *info = lvni_tensor_device_info(ctx->device);
        lvni_core_str_printf(out, "device: %s, %s%s%s", lvni_tensor_device_name(ctx->device),
                             sim ? "" : info->name, sim ? "" : ", ",
                             lvni_core_bytes_text(info->memory, has));
        lvni_core_str_append(out, sim ? ", with the kernels of the CPU" : "");
    }
}

/* ---- devices= ---- */

enum { OTHER_NUMBER = 103, NO_GPU = 106 };

static bool is_auto(const char *spec)
{
    return strcmp(spec, "auto") == 0;
}

static const char *spec_of(const lvni_core_config *c, const lvni_launch_rank_info *info, bool uses)
{
    const char *spec = lvni_core_config_str(c, "devices");
    return uses && info->world <= 1 && is_auto(spec) ? "1" : spec;
}

/* "gpus", "num_gpus": a number of them is GPUs, and 0 the CPU. */
static bool selects_gpus(const lvni_core_config *c)
{
    return !is_auto(lvni_core_config_str(c, "devices")) &&
           strcmp(lvni_core_config_spelled(c, "devices"), "devices") != 0;
}

/* A saved configuration has what auto became. */
static bool selects_cpu(const lvni_core_config *c)
{
    const lvni_core_layer layer = lvni_core_config_layer(c, "accelerator");
    return layer == LVNI_LAYER_JOB || layer == LVNI_LAYER_FILE || layer == LVNI_LAYER_ARGUMENTS;
}

/* accelerator=auto, which this start made the CPU; a resumed run reported it at its first start. */
static bool was_auto(const lvni_core_config *c)
{
    return lvni_core_config_layer(c, "accelerator") == LVNI_LAYER_RESOLVED;
}

static lvni_launch_accelerator accelerator_of(const lvni_core_config *c)
{
    return is_accelerator(c, "sim")             ? LVNI_ACCELERATOR_SIM
           : lvni_run_accelerator_is_device(c)  ? LVNI_ACCELERATOR_LOADED
           : selects_gpus(c) && !selects_cpu(c) ? LVNI_ACCELERATOR_AUTO
                                                : LVNI_ACCELERATOR_CPU;
}

static bool is_number(const char *spec)
{
    return *spec != '\0' && spec[strspn(spec, "0123456789")] == '\0';
}

/* In place of the advice to check the driver. */
static lvn_status no_backend(const lvni_core_config *c, lvni_core_notices *n)
{
    const char *key = lvni_core_config_spelled(c, "devices"),
               *spec = lvni_core_config_str(c, "devices");
    const int asked = lvni_launch_device_spec_count(spec);
    char count[16] = "N";
    if (asked > 0) {
        snprintf(count, sizeof count, "%d", asked);
    }
    int kind; /* looked up first: the error that stands in the end is E106 */
    const bool built = lvni_tensor_backend_find(GPU_BACKEND, &kind) != LVN_ERR_NOT_FOUND;
    const char *why = find_gpu() == LVN_OK ? "accelerator=cpu is set" : lvn_last_error()->message;
    const lvn_status s = lvni_core_notice_error(
        n, NO_GPU, "GPUs are asked for, but this process sees none: %s", why);
    lvni_core_notice_found(n, "%s=%s (%s)", key, spec, lvni_core_config_origin(c, "devices"));
    lvni_core_notice_fix(n, "devices=%s for ranks on the CPU", count);
    lvni_core_notice_fix(
        n, "or accelerator=sim, simulated devices, with LEVIN_SIM_DEVICES=%s in the environment",
        count);
    if (!built) {
        lvni_core_notice_fix(n, "or build the backend for GPUs: `make` where nvcc is, else `make "
                                "cuda` in the folder of levin's sources");
    }
    return s;
}

/* devices=4 under a launcher that has started two would silently have another batch plan. */
static lvn_status check_number(const lvni_core_config *c, const lvni_launch_rank_info *info,
                               lvni_core_notices *n)
{
    const char *key = lvni_core_config_spelled(c, "devices"),
               *spec = lvni_core_config_str(c, "devices");
    if (strcmp(lvni_core_config_str(c, "strategy"), "ddp2") == 0) {
        return LVN_OK; /* its one rank of the node has all of them */
    }
    if (!is_number(spec) || strtol(spec, NULL, 10) == 0 || info->local_world <= 0 ||
        strtol(spec, NULL, 10) == info->local_world) {
        return LVN_OK;
    }
    const lvn_status s = lvni_core_notice_error(n, OTHER_NUMBER, "%d ranks on this node, but %s=%s",
                                                info->local_world, key, spec);
    lvni_core_notice_found(n, "%s=%s (%s)", key, spec, lvni_core_config_origin(c, "devices"));
    lvni_core_notice_fix(n, "levin launch -n %s", spec);
    lvni_core_notice_fix(n, "or %s=%d", key, info->local_world);
    return s;
}

lvn_status lvni_run_rank_devices(const lvni_core_config *c, const lvni_launch_rank_info *info,
                                 const lvni_launch_visible *visible, bool uses,
                                 lvni_core_notices *notices, lvni_launch_device_choice *choice)
{
    const char *spec = spec_of(c, info, uses);
    const bool several = info->world > 1, device = lvni_run_accelerator_is_device(c);
    /* its launcher shows the chosen devices alone, or lists them */
    const bool launched = info->source == LVNI_SOURCE_LEVIN;
    const bool rank_of_cpu = several && !device && is_auto(spec);
    const lvni_launch_device_request request = {
        .key = lvni_core_config_spelled(c, "devices"),
        .spec = !launched ? spec
                : device  ? lvni_launch_env_get(lvni_run_environment(), "LEVIN_DEVICES")
                          : NULL,
        .accelerator = launched && !device ? LVNI_ACCELERATOR_CPU : accelerator_of(c),
        .backend = lvni_core_config_str(c, "accelerator"),
        .gpus = selects_gpus(c),
        .allow_shared = lvni_core_config_bool(c, "allow_shared_device"),
        .launched = several,
        .nproc = (rank_of_cpu || launched) && info->local_world > 0 ? info->local_world : 0,
        .env = lvni_run_environment()};
    LVN_TRY(launched && several ? check_number(c, info, notices) : LVN_OK);
    const lvn_status s = lvni_launch_device_choose(&request, visible, notices, choice);
    choice->no_gpu = s == LVN_OK && !launched && choice->accelerator == LVNI_ACCELERATOR_CPU &&
                     was_auto(c) && strcmp(spec, "0") != 0;
    if (s == LVN_ERR_USAGE && !launched && notices->error == 0) {
        /* a launcher has reported where its own came from */
        lvn_error_frame("%s=%s (%s)", request.key, spec, lvni_core_config_origin(c, "devices"));
    }
    return s != LVN_OK && notices->error == NO_GPU && !device ? no_backend(c, notices) : s;
}

/* ---- processors ---- */

int lvni_run_usable_cores(void)
{
    cpu_set_t set;
    const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}

void lvni_run_rank_print_cores(char *out, size_t size)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    out[0] = '\0';
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return;
    }
    size_t n = 0;
    for (size_t i = 0; i < CPU_SETSIZE && n + 6 < size; i++) {
        if (CPU_ISSET(i, &set)) {
            n += (size_t)snprintf(out + n, size - n, "%zu,", i);
        }
    }
}

/* The other direction of lvni_run_rank_print_cores, added to what is there. */
static void add_mask(const char *text, cpu_set_t *set)
{
    char *end;
    for (const char *p = text; *p != '\0'; p = *end == ',' ? end + 1 : end) {
        const unsigned long cpu = strtoul(p, &end, 10);
        if (end == p) {
            return;
        }
        if (cpu < CPU_SETSIZE) {
            CPU_SET(cpu, set);
        }
    }
}

/* Processors that any rank of one host may use: masks may overlap without being equal. */
static int cores_of_host(const lvni_control_member *m, int world, int host)
{
    cpu_set_t set;
    int most = 0; /* where masks are not known, or too long for their text */
    CPU_ZERO(&set);
    for (int i = 0; i < world; i++) {
        if (m[i].host_index == host) {
            add_mask(m[i].fingerprint, &set);
            most = m[i].cpus > most ? m[i].cpus : most;
        }
    }
    return CPU_COUNT(&set) > most ? CPU_COUNT(&set) : most;
}

void lvni_run_rank_share_cores(const lvni_control *control, lvni_run_rank *rank)
{
    const lvni_control_member *m = lvni_control_members(control);
    const lvni_control_member *own = &m[rank->rank];
    int same = 1, hosts = 0; /* hosts are numbered by their smallest rank */
    rank->cores_all = 0;
    for (int i = 0; i < rank->world; i++) {
        same += i != rank->rank && m[i].host_index == own->host_index &&
                strcmp(m[i].fingerprint, own->fingerprint) == 0;
        if (m[i].host_index == hosts) {
            rank->cores_all += cores_of_host(m, rank->world, hosts++);
        }
    }
    rank->cores = own->cpus / same > 1 ? own->cpus / same : 1;
}
