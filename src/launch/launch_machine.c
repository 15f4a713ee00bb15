/* GPUs and cores of this machine (launch_machine.h). GPUs: /proc/driver/nvidia/gpus/PCI/information
 * holds UUID and number of the device file, /sys/bus/pci/devices/PCI/numa_node the memory node;
 * containers may show all of them and have the device files of a few. Cores: hwloc lists which
 * hardware threads are one core and in which order cores lie; the affinity mask of this process
 * limits which of them it may use. */
#include "launch/launch_machine.h"

#include "core/alloc.h"
#include "core/vfs.h"

#include <dirent.h>
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 256, INFORMATION_MAX = 64 << 10, CPUS_MAX = 1 << 16 };

/* ---- GPUs ---- */

static bool has_file(const char *root, int minor)
{
    char path[512];
    snprintf(path, sizeof path, "%s/dev/nvidia%d", root, minor);
    return lvni_core_path_exists(path);
}

/* The text after "Name:" and blanks, up to the end of its line; "" when there is no such line. */
static void field(const char *text, const char *name, char *out, size_t room)
{
    const char *at = strstr(text, name);
    out[0] = '\0';
    if (at != NULL) {
        at += strlen(name);
        at += strspn(at, ": \t");
        snprintf(out, room, "%.*s", (int)strcspn(at, "\n"), at);
    }
}

static int numa_of(const char *root, const char *pci)
{
    char path[512];
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/numa_node", root, pci);
    char *data;
    size_t bytes;
    if (!lvni_core_path_exists(path) || lvni_core_file_read(path, 64, &data, &bytes) != LVN_OK) {
        return -1;
    }
    const int node = (int)strtol(data, NULL, 10);
    lvni_core_free(data);
    return node;
}

/* false: its device file is not here. */
static bool read_one(const char *root, const char *pci, lvni_launch_gpu *out)
{
    char path[512], minor[16];
    snprintf(path, sizeof path, "%s/proc/driver/nvidia/gpus/%s/information", root, pci);
    char *data;
    size_t bytes;
    if (lvni_core_file_read(path, INFORMATION_MAX, &data, &bytes) != LVN_OK) {
        return false;
    }
    field(data, "Device Minor", minor, sizeof minor);
    field(data, "GPU UUID", out->uuid, sizeof out->uuid);
    lvni_core_free(data);
    if (strchr(out->uuid, '?') != NULL) { /* not initialised yet */
        out->uuid[0] = '\0';
    }
    snprintf(out->pci, sizeof out->pci, "%.31s", pci);
    out->numa = numa_of(root, pci);
    return minor[0] != '\0' && has_file(root, (int)strtol(minor, NULL, 10));
}

static int by_address(const void *a, const void *b)
{
    return strcmp(((const lvni_launch_gpu *)a)->pci, ((const lvni_launch_gpu *)b)->pci);
}

static int list_reported(const char *root, lvni_launch_gpu *gpus)
{
    char path[512];
    int n = 0;
    snprintf(path, sizeof path, "%s/proc/driver/nvidia/gpus", root);
    DIR *d = opendir(path);
    for (const struct dirent *e = NULL; d != NULL && n < GPUS_MAX && (e = readdir(d)) != NULL;) {
        n += e->d_name[0] != '.' && read_one(root, e->d_name, &gpus[n]);
    }
    if (d != NULL) {
        closedir(d);
    }
    qsort(gpus, (size_t)n, sizeof *gpus, by_address);
    return n;
}

lvn_status lvni_launch_gpus_find(const char *root, lvni_launch_gpu **gpus, int *n)
{
    *gpus = lvni_core_calloc(LVNI_TAG_CORE, GPUS_MAX, sizeof **gpus);
    if (*gpus == NULL) {
        return LVN_ERR_MEMORY;
    }
    *n = list_reported(root, *gpus);
    if (*n == 0) { /* sandboxes hide /proc/driver: the device files alone */
        for (int minor = 0; minor < GPUS_MAX; minor++) {
            if (has_file(root, minor)) {
                (*gpus)[(*n)++] = (lvni_launch_gpu){.numa = -1};
            }
        }
    }
    lvn_clear_error();
    return LVN_OK;
}

/* ---- cores ---- */

/* The mask of this process, of the size that the system requires. */
static lvn_status own_mask(cpu_set_t **out, size_t *bytes)
{
    for (int cpus = 1024; cpus <= CPUS_MAX; cpus *= 2) {
        *bytes = CPU_ALLOC_SIZE((size_t)cpus);
        *out = lvni_core_calloc(LVNI_TAG_CORE, 1, *bytes);
        if (*out == NULL) {
            return LVN_ERR_MEMORY;
        }
        if (sched_getaffinity(0, *bytes, *out) == 0) {
            return LVN_OK;
        }
        lvni_core_free(*out);
        if (errno != EINVAL) {
            break;
        }
    }
    *out = NULL;
    LVN_FAIL(LVN_ERR_INTERNAL, "the affinity mask cannot be read: %s", strerror(errno));
}

lvn_status lvni_launch_bind_count(int *n)
{
    cpu_set_t *mask;
    size_t bytes;
    LVN_TRY(own_mask(&mask, &bytes));
    *n = CPU_COUNT_S(bytes, mask);
    lvni_core_free(mask);
    return LVN_OK;
}

void lvni_launch_bind_share(int n_cores, int n, int i, int *first, int *count)
{
    const int each = n_cores / n, more = n_cores % n;
    *count = each + (i < more ? 1 : 0);
    *first = i * each + (i < more ? i : more);
}

typedef struct machine {
    hwloc_topology_t topology;
    const cpu_set_t *mask;
    size_t bytes;
    hwloc_obj_t *cores; /* those with at least one CPU of the mask, in their order */
    int n_cores;
} machine;

static bool is_ours(const machine *m, hwloc_const_cpuset_t set)
{
    for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) {
        if (CPU_ISSET_S((size_t)cpu, m->bytes, m->mask)) {
            return true;
        }
    }
    return false;
}

static lvn_status list_cores(machine *m)
{
    hwloc_obj_type_t type = HWLOC_OBJ_CORE;
    int n = hwloc_get_nbobjs_by_type(m->topology, type);
    if (n <= 0) { /* a virtual machine that lists no cores */
        type = HWLOC_OBJ_PU;
        n = hwloc_get_nbobjs_by_type(m->topology, type);
    }
    m->cores = lvni_core_calloc(LVNI_TAG_CORE, (size_t)(n > 0 ? n : 1), sizeof(hwloc_obj_t));
    if (m->cores == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(m->topology, type, (unsigned)i);
        if (core != NULL && core->cpuset != NULL && is_ours(m, core->cpuset)) {
            m->cores[m->n_cores++] = core;
        }
    }
    return LVN_OK;
}

static lvn_status open_machine(machine *m)
{
    setenv("HWLOC_PLUGINS_PATH", "/nonexistent", 0); /* its plugins load the drivers of GPUs */
    if (hwloc_topology_init(&m->topology) != 0) {
        LVN_FAIL(LVN_ERR_INTERNAL, "hwloc cannot be used");
    }
    hwloc_topology_set_all_types_filter(m->topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(m->topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(m->topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(m->topology) != 0) {
        LVN_FAIL(LVN_ERR_INTERNAL, "hwloc cannot read the topology of this machine");
    }
    return list_cores(m);
}

static void close_machine(machine *m)
{
    if (m->topology != NULL) {
        hwloc_topology_destroy(m->topology);
    }
    lvni_core_free(m->cores);
}

/* ---- the cores of each rank ---- */

static void give(const machine *m, hwloc_const_cpuset_t cpus, cpu_set_t *to)
{
    for (int cpu = hwloc_bitmap_first(cpus); cpu >= 0; cpu = hwloc_bitmap_next(cpus, cpu)) {
        if (CPU_ISSET_S((size_t)cpu, m->bytes, m->mask)) {
            CPU_SET_S((size_t)cpu, m->bytes, to);
        }
    }
}

static lvn_status cut_cores(const machine *m, lvni_launch_bind_plan *p)
{
    if (m->n_cores < p->n) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "bind=cores: %d cores cannot be dealt out to %d ranks; start fewer ranks, or bind=none",
            m->n_cores, p->n);
    }
    for (int i = 0; i < p->n; i++) {
        int first, count;
        lvni_launch_bind_share(m->n_cores, p->n, i, &first, &count);
        for (int k = first; k < first + count; k++) {
            give(m, m->cores[k]->cpuset, p->cpus[i]);
        }
        p->numa[i] = -1;
    }
    p->how = LVNI_BIND_CORES;
    return LVN_OK;
}

/* The k-th of our cores in the node, NULL when it has no more. */
static hwloc_obj_t core_of_node(const machine *m, int node, int k)
{
    struct hwloc_obj *const memory =
        hwloc_get_numanode_obj_by_os_index(m->topology, (unsigned)node);
    for (int i = 0; memory != NULL && memory->cpuset != NULL && i < m->n_cores; i++) {
        if (hwloc_bitmap_intersects(memory->cpuset, m->cores[i]->cpuset) && k-- == 0) {
            return m->cores[i];
        }
    }
    return NULL;
}

/* Ranks on one node share its cores as cut_cores does with all. false: a node is unknown or has too
 * few. */
static bool cut_nodes(const machine *m, const int *gpu_numa, lvni_launch_bind_plan *p)
{
    for (int i = 0; i < p->n; i++) {
        int here = 0, before = 0, n_cores = 0, first, count;
        for (int j = 0; j < p->n; j++) {
            here += gpu_numa[j] == gpu_numa[i];
            before += j < i && gpu_numa[j] == gpu_numa[i];
        }
        while (gpu_numa[i] >= 0 && core_of_node(m, gpu_numa[i], n_cores) != NULL) {
            n_cores++;
        }
        if (n_cores < here) {
            return false;
        }
        lvni_launch_bind_share(n_cores, here, before, &first, &count);
        for (int k = first; k < first + count; k++) {
            give(m, core_of_node(m, gpu_numa[i], k)->cpuset, p->cpus[i]);
        }
        p->numa[i] = gpu_numa[i];
    }
    p->how = LVNI_BIND_NUMA;
    return true;
}

static lvn_status make_masks(lvni_launch_bind_plan *p, size_t bytes)
{
    p->cpu_bytes = bytes;
    p->cpus = lvni_core_calloc(LVNI_TAG_CORE, (size_t)p->n, sizeof *p->cpus);
    p->numa = lvni_core_calloc(LVNI_TAG_CORE, (size_t)p->n, sizeof *p->numa);
    if (p->cpus == NULL || p->numa == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < p->n; i++) {
        p->cpus[i] = lvni_core_calloc(LVNI_TAG_CORE, 1, bytes);
        if (p->cpus[i] == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    return LVN_OK;
}

static lvn_status cut(machine *m, lvni_launch_bind how, const int *gpu_numa,
                      lvni_core_notices *notices, lvni_launch_bind_plan *p)
{
    LVN_TRY(make_masks(p, m->bytes));
    LVN_TRY(open_machine(m));
    if (how == LVNI_BIND_NUMA && gpu_numa != NULL && cut_nodes(m, gpu_numa, p)) {
        return LVN_OK;
    }
    if (how == LVNI_BIND_NUMA) {
        lvni_core_notice_warn(
            notices, 212, "%s; ranks are bound by cores",
            gpu_numa == NULL
                ? "bind=numa without GPUs has no node to bind to"
                : "the NUMA node of a GPU is unknown, or has fewer cores one may use than ranks");
        for (int i = 0; i < p->n; i++) {
            memset(p->cpus[i], 0, p->cpu_bytes);
        }
    }
    return cut_cores(m, p);
}

static lvni_launch_bind decide(lvni_launch_bind request, int n, int n_cpus, const int *gpu_numa,
                               bool bound)
{
    if (request != LVNI_BIND_AUTO) {
        return request;
    }
    if (n_cpus < 2 * n || bound || (n == 1 && gpu_numa == NULL)) {
        /* one rank alone has them all anyway */
        return LVNI_BIND_NONE;
    }
    for (int i = 0; i < n; i++) {
        if (gpu_numa == NULL || gpu_numa[i] < 0) {
            return LVNI_BIND_CORES;
        }
    }
    return LVNI_BIND_NUMA;
}

lvn_status lvni_launch_bind_make(lvni_launch_bind request, int n, const int *gpu_numa, bool bound,
                                 lvni_core_notices *notices, lvni_launch_bind_plan *out)
{
    *out = (lvni_launch_bind_plan){.n = n, .how = LVNI_BIND_NONE};
    cpu_set_t *mask;
    size_t bytes;
    LVN_TRY(own_mask(&mask, &bytes));
    out->n_cpus = CPU_COUNT_S(bytes, mask);
    const lvni_launch_bind how = decide(request, n, out->n_cpus, gpu_numa, bound);
    lvn_status s = LVN_OK;
    if (how != LVNI_BIND_NONE) {
        machine m = {.mask = mask, .bytes = bytes};
        s = cut(&m, how, gpu_numa, notices, out);
        close_machine(&m);
    }
    lvni_core_free(mask);
    return s;
}

void lvni_launch_bind_free(lvni_launch_bind_plan *p)
{
    for (int i = 0; p->cpus != NULL && i < p->n; i++) {
        lvni_core_free(p->cpus[i]);
    }
    lvni_core_free(p->cpus);
    lvni_core_free(p->numa);
    *p = (lvni_launch_bind_plan){0};
}

int lvni_launch_bind_threads(const lvni_launch_bind_plan *p, int rank)
{
    const int n =
        p->how == LVNI_BIND_NONE ? p->n_cpus / p->n : CPU_COUNT_S(p->cpu_bytes, p->cpus[rank]);
    return n > 1 ? n : 1;
}

void lvni_launch_bind_print(const lvni_launch_bind_plan *p, int rank, lvni_core_str *out)
{
    if (p->how == LVNI_BIND_NONE) {
        lvni_core_str_append(out, "all");
        return;
    }
    const int end = (int)(p->cpu_bytes * 8);
    bool first = true;
    for (int a = 0; a < end; a++) {
        if (!CPU_ISSET_S((size_t)a, p->cpu_bytes, p->cpus[rank])) {
            continue;
        }
        int b = a;
        while (b + 1 < end && CPU_ISSET_S((size_t)b + 1, p->cpu_bytes, p->cpus[rank])) {
            b++;
        }
        lvni_core_str_printf(out, a == b ? "%s%d" : "%s%d-%d", first ? "" : ",", a, b);
        first = false;
        a = b;
    }
}
