/* levin doctor: is there an NVIDIA driver, does it start, and if it shows no device, who hides
 * them. */
#include "cli/doctor_cuda.h"
#include "core/escape.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libcuda.so.1"

/* ---- errors ---- */

enum { NO_DEVICE = 100, MISMATCH = 803 };

/* CUresult of the CUDA driver API: those of starting, with what helps. */
static const struct error {
    int code;
    const char *name, *fix;
} errors[] = {
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "end what uses the memory of host or GPU (nvidia-smi)"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", NULL},
    {34, "CUDA_ERROR_STUB_LIBRARY",
     "this libcuda.so.1 is the toolkit's, for linking alone: remove its folder .../stubs from "
     "LD_LIBRARY_PATH"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "another process has it alone: end that (nvidia-smi), or nvidia-smi -c DEFAULT as root"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", NULL},
    {101, "CUDA_ERROR_INVALID_DEVICE", NULL},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "reset the GPU: nvidia-smi -r as root, or reboot"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM",
     "the driver's device files cannot be used: ls -l /dev/nvidia*; in a container start it with "
     "its GPUs (docker run --gpus all, apptainer --nv)"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "ls -l /dev/nvidia*: this user must read and write them"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY",
     "machines with NVSwitch need the service: systemctl status nvidia-fabricmanager (of the "
     "driver's version), then try again"},
    {MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "the kernel module and libcuda.so.1 must have one version: reboot after an update of the "
     "driver; in a container remove its own libcuda.so.1 (cuda-compat) from LD_LIBRARY_PATH"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "this GPU needs the driver's own libcuda.so.1: remove cuda-compat from LD_LIBRARY_PATH"},
    {999, "CUDA_ERROR_UNKNOWN",
     "the module nvidia-uvm is often not loaded: nvidia-modprobe -u -c=0 as root (after a suspend: "
     "rmmod nvidia_uvm first); `dmesg | grep -i nvrm` shows more"},
};

static const struct error *find_error(int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].code == code) {
            return &errors[i];
        }
    }
    return NULL;
}

const char *lvni_cli_cuda_error(int code, char out[64])
{
    const struct error *e = find_error(code);
    snprintf(out, 64, "%s%s%d%s", e != NULL ? e->name : "CUDA error ", e != NULL ? " (" : "", code,
             e != NULL ? ")" : "");
    return out;
}

/* The line of the driver; when it is not about devices it is also why the CPU is used. */
static void report(lvni_cli_doctor *d, lvni_cli_level level, const char *fmt, ...) LVN_PRINTF(3, 4);
static void report(lvni_cli_doctor *d, lvni_cli_level level, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)lvni_core_escape_format(d->driver_text, sizeof d->driver_text, fmt, args);
    va_end(args);
    d->driver = level;
    lvni_cli_doctor_add(d, level, "driver", "%s", d->driver_text);
}

/* ---- what the machine shows without the driver ---- */

typedef struct signs {
    int files;         /* /dev/nvidia0, ...: device files */
    char denied[300];  /* the first that may not be opened; "": none */
    int pci;           /* graphics processors of NVIDIA */
    char version[32];  /* of the kernel module; "": not loaded */
    char library[512]; /* the file behind libcuda.so.1; "": unknown */
} signs;

static void look_at_file(const lvni_cli_doctor *d, const char *name, signs *s)
{
    char path[512];
    if (strncmp(name, "nvidia", 6) != 0) {
        return;
    }
    const char *number = name + 6;
    const bool device = *number != '\0' && number[strspn(number, "0123456789")] == '\0';
    s->files += device;
    snprintf(path, sizeof path, "%s/dev/%.200s", d->root, name);
    const bool needed = device || strcmp(name, "nvidiactl") == 0 || strcmp(name, "nvidia-uvm") == 0;
    if (needed && s->denied[0] == '\0' && access(path, R_OK | W_OK) != 0) {
        snprintf(s->denied, sizeof s->denied, "/dev/%.200s", name);
    }
}

/* Class 0x03: displays, 0x0302: without one. */
static void look_at_pci(const lvni_cli_doctor *d, const char *name, signs *s)
{
    char path[512], vendor[32], class[32];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.200s/vendor", name);
    lvni_cli_doctor_read(d, path, vendor, sizeof vendor);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.200s/class", name);
    lvni_cli_doctor_read(d, path, class, sizeof class);
    s->pci += strcmp(vendor, "0x10de") == 0 && strncmp(class, "0x03", 4) == 0;
}

static void each_entry(const lvni_cli_doctor *d, const char *folder,
                       void (*look)(const lvni_cli_doctor *d, const char *name, signs *s), signs *s)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", d->root, folder);
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        look(d, e->d_name, s);
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu ..." */
static void read_module_version(const lvni_cli_doctor *d, char out[32])
{
    char text[512];
    lvni_cli_doctor_read(d, "/proc/driver/nvidia/version", text, sizeof text);
    text[strcspn(text, "\n")] = '\0';
    out[0] = '\0';
    char *rest = NULL;
    for (char *t = strtok_r(text, " \t", &rest); t != NULL; t = strtok_r(NULL, " \t", &rest)) {
        if (t[strspn(t, "0123456789.")] == '\0' && strchr(t, '.') != NULL) {
            snprintf(out, 32, "%.31s", t);
            return;
        }
    }
}

static void look(const lvni_cli_doctor *d, signs *s)
{
    *s = (signs){.files = 0};
    each_entry(d, "/dev", look_at_file, s);
    each_entry(d, "/sys/bus/pci/devices", look_at_pci, s);
    read_module_version(d, s->version);
}

static bool shows_gpu(const signs *s)
{
    return s->files > 0 || s->pci > 0 || s->version[0] != '\0';
}

/* "kernel module 535.129.03, 0 in /dev/nvidia*, 2 on the PCI bus" */
static const char *print_signs(const signs *s, char out[128])
{
    snprintf(out, 128, "%s%s, %d in /dev/nvidia*, %d on the PCI bus",
             s->version[0] != '\0' ? "kernel module " : "no kernel module", s->version, s->files,
             s->pci);
    return out;
}

/* ---- no device ---- */

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0';
}

/* A job without GPUs: Slurm hides them by device files or by variable. */
static bool in_job_without_gpus(void)
{
    return is_set("SLURM_JOB_ID") && !is_set("SLURM_GPUS_ON_NODE") && !is_set("SLURM_JOB_GPUS") &&
           !is_set("SLURM_STEP_GPUS") && !is_set("GPU_DEVICE_ORDINAL");
}

static void explain_variable(lvni_cli_doctor *d, const char *visible)
{
    const bool hides =
        *visible == '\0' || strcmp(visible, "-1") == 0 || strcmp(visible, "NoDevFiles") == 0;
    report(d, hides ? LVNI_LEVEL_WARN : LVNI_LEVEL_FAIL,
           "no GPU is visible: CUDA_VISIBLE_DEVICES=%s %s", visible,
           hides ? "hides all" : "names none of this machine");
    lvni_cli_doctor_fix(d, hides ? "unset CUDA_VISIBLE_DEVICES to use the GPUs"
                                 : "unset CUDA_VISIBLE_DEVICES, or name GPUs that `nvidia-smi -L` "
                                   "lists");
}

static void fix_denied(lvni_cli_doctor *d, const signs *s)
{
    lvni_cli_doctor_fix(d,
                        "this user may not open %s: ls -l shows its group, which usermod -aG GROUP "
                        "USER joins from the next login on; or let all users read and write it",
                        s->denied);
}

static void explain_no_device(lvni_cli_doctor *d, const signs *s, const char *cuda)
{
    char seen[128];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!shows_gpu(s)) {
        report(d, LVNI_LEVEL_OK, "no GPU here (the driver's library is installed, for CUDA %s)",
               cuda);
    } else if (in_job_without_gpus()) {
        report(d, LVNI_LEVEL_FAIL,
               "no GPU is visible: the Slurm job %s has none (SLURM_GPUS_ON_NODE is not set)",
               getenv("SLURM_JOB_ID"));
        lvni_cli_doctor_fix(d, "request them: #SBATCH --gpus-per-node=1 (or --gres=gpu:1)");
    } else if (visible != NULL) {
        explain_variable(d, visible);
    } else if (s->denied[0] != '\0') {
        report(d, LVNI_LEVEL_FAIL, "no GPU is visible: this user may not open %s", s->denied);
        fix_denied(d, s);
    } else {
        report(d, LVNI_LEVEL_FAIL, "the driver shows no GPU (%s)", print_signs(s, seen));
        lvni_cli_doctor_fix(d, s->files == 0
                                   ? "in a container start it with its GPUs (docker run --gpus "
                                     "all, apptainer --nv); else nvidia-smi and `dmesg | grep -i "
                                     "nvrm` show more"
                                   : "nvidia-smi and `dmesg | grep -i nvrm` show why (Xid 79: it "
                                     "has fallen off the bus)");
    }
}

/* ---- loading ---- */

static void *load(lvni_cli_doctor *d, const signs *s)
{
    char seen[128];
    void *object = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (object != NULL) {
        return object;
    }
    const char *why = dlerror();
    /* else it is there, and something is wrong with it */
    const bool absent =
        strncmp(why, LIBRARY ": ", sizeof LIBRARY + 1) == 0 && strstr(why, "No such file") != NULL;
    if (absent && !shows_gpu(s)) {
        report(d, LVNI_LEVEL_OK, "no NVIDIA driver (" LIBRARY ") and no GPU here");
    } else if (absent) {
        report(d, LVNI_LEVEL_FAIL, "a GPU is here, but not the driver's library " LIBRARY " (%s)",
               print_signs(s, seen));
        lvni_cli_doctor_fix(
            d, "install the NVIDIA driver; in a container start it with its GPUs "
               "(docker run --gpus all, apptainer --nv); else put the folder of " LIBRARY
               " into LD_LIBRARY_PATH");
    } else {
        report(d, LVNI_LEVEL_FAIL, LIBRARY " cannot be loaded: %s", why);
        lvni_cli_doctor_fix(d,
                            "install the NVIDIA driver again; LD_LIBRARY_PATH (%s) must not "
                            "lead to another one",
                            is_set("LD_LIBRARY_PATH") ? getenv("LD_LIBRARY_PATH") : "not set");
    }
    return NULL;
}

#define ROW(field, symbol)                                                                         \
    {                                                                                              \
        symbol, offsetof(lvni_cli_cuda, field)                                                     \
    }
static const struct {
    const char *symbol;
    size_t at;
} functions[] = {
    ROW(init, "cuInit"),
    ROW(version, "cuDriverGetVersion"),
    ROW(count, "cuDeviceGetCount"),
    ROW(get, "cuDeviceGet"),
    ROW(name, "cuDeviceGetName"),
    ROW(uuid, "cuDeviceGetUuid"),
    ROW(total, "cuDeviceTotalMem_v2"),
    ROW(attribute, "cuDeviceGetAttribute"),
    ROW(can_access, "cuDeviceCanAccessPeer"),
    ROW(retain, "cuDevicePrimaryCtxRetain"),
    ROW(release, "cuDevicePrimaryCtxRelease"),
    ROW(push, "cuCtxPushCurrent_v2"),
    ROW(pop, "cuCtxPopCurrent_v2"),
    ROW(memory, "cuMemGetInfo_v2"),
};

static bool find_functions(lvni_cli_doctor *d, void *object, signs *s, lvni_cli_cuda *out)
{
    void *any = NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(object, functions[i].symbol);
        if (f == NULL) {
            report(d, LVNI_LEVEL_FAIL, LIBRARY " has no %s: it is too old, or not NVIDIA's",
                   functions[i].symbol);
            lvni_cli_doctor_fix(d, "update the NVIDIA driver");
            return false;
        }
        memcpy((char *)out + functions[i].at, &f, sizeof f);
        any = f;
    }
    Dl_info info;
    char path[PATH_MAX];
    if (dladdr(any, &info) != 0 && realpath(info.dli_fname, path) != NULL) {
        snprintf(s->library, sizeof s->library, "%.500s", path); /* has the version in its name */
    }
    return true;
}

/* ---- starting ---- */

static void explain_error(lvni_cli_doctor *d, const signs *s, int error, const char *cuda)
{
    char code[64];
    const struct error *known = find_error(error);
    report(d, LVNI_LEVEL_FAIL,
           "the driver does not start: %s (for CUDA %s, kernel module %s, library %s)",
           lvni_cli_cuda_error(error, code), cuda,
           s->version[0] != '\0' ? s->version : "not loaded",
           s->library[0] != '\0' ? s->library : "unknown");
    if (s->denied[0] != '\0' && error != MISMATCH) {
        fix_denied(d, s);
        return;
    }
    lvni_cli_doctor_fix(d, "%s",
                        known != NULL && known->fix != NULL
                            ? known->fix
                            : "nvidia-smi and `dmesg | grep -i nvrm` show more; often a reboot, or "
                              "the driver installed again, helps");
}

void lvni_cli_doctor_driver(lvni_cli_doctor *d)
{
    signs s;
    lvni_cli_cuda c = {0};
    look(d, &s);
    void *object = load(d, &s); /* stays: its threads may run until the process ends */
    if (object == NULL || !find_functions(d, object, &s, &c)) {
        return;
    }
    int version = 0, n = 0;
    char cuda[32];
    (void)c.version(&version);
    snprintf(cuda, sizeof cuda, "%d.%d", version / 1000, version % 1000 / 10);
    int error = c.init(0);
    error = error == 0 ? c.count(&n) : error;
    if (error == NO_DEVICE || (error == 0 && n == 0)) {
        explain_no_device(d, &s, cuda);
    } else if (error != 0) {
        explain_error(d, &s, error, cuda);
    } else {
        report(d, LVNI_LEVEL_OK, "NVIDIA driver%s%s, for CUDA up to %s, shows %d GPU%s",
               s.version[0] != '\0' ? " " : "", s.version, cuda, n, lvni_core_plural(n, "", "s"));
        d->n_devices = n;
        lvni_cli_doctor_devices(d, &c);
    }
}
