/* levin doctor: processors, memory, /dev/shm and the limits of a process. */
#include "cli/doctor.h"
#include "core/machine.h"
#include "kernels/kernels.h"
#include "launch/launch_machine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const uint64_t GIB = (uint64_t)1 << 30;

/* A quota below the number of processors halts all threads for the rest of each period. */
static void check_cpu(lvni_cli_doctor *d)
{
    char model[LVNI_CPU_MODEL];
    int usable = 1;
    const bool named = lvni_core_cpu_model(model);
    const bool counted = lvni_launch_bind_count(&usable) == LVN_OK;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const uint64_t milli = lvni_core_machine_cpu_quota(d->root);
    const bool throttled = milli / 1000 < (uint64_t)usable;
    char quota[64] = "";
    if (milli != UINT64_MAX) {
        snprintf(quota, sizeof quota, ", control group: time of %" PRIu64 ".%" PRIu64 " CPUs",
                 milli / 1000, milli % 1000 / 100);
    }
    lvni_cli_doctor_add(d, counted && !throttled ? LVNI_LEVEL_OK : LVNI_LEVEL_WARN, "cpu",
                        "%s, %d of %ld CPUs usable%s, kernels: %s",
                        named ? model : "a processor without a name", usable, online, quota,
                        lvni_cpu_describe());
    if (throttled) {
        lvni_cli_doctor_fix(d,
                            "threads on %d CPUs are halted once that time is used up: raise the "
                            "limit (docker --cpus, Slurm --cpus-per-task), or start levin on fewer "
                            "CPUs (taskset)",
                            usable);
    }
    if (lvni_cpu_unmeasured() != NULL) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_WARN, "cpu", "%s", lvni_cpu_unmeasured());
        lvni_cli_doctor_fix(d,
                            "install a measured version, or keep wgrad_threads near the number of "
                            "cores");
    }
    const char *isa = getenv("LEVIN_CPU_ISA");
    if (isa != NULL && *isa != '\0') {
        lvni_cli_doctor_add(d, LVNI_LEVEL_WARN, "cpu",
                            "LEVIN_CPU_ISA=%s lowers the instruction set of the kernels", isa);
        lvni_cli_doctor_fix(d, "unset LEVIN_CPU_ISA");
    }
}

static uint64_t total_memory(const lvni_cli_doctor *d)
{
    char text[256];
    uint64_t kib = 0;
    lvni_cli_doctor_read(d, "/proc/meminfo", text, sizeof text);
    return sscanf(text, "MemTotal: %" SCNu64 " kB", &kib) == 1 ? kib * 1024 : 0;
}

static void check_memory(lvni_cli_doctor *d)
{
    char total[LVNI_BYTES_TEXT], usable[LVNI_BYTES_TEXT], most[LVNI_BYTES_TEXT], group[64] = "";
    const uint64_t bytes = lvni_core_machine_memory(d->root),
                   limit = lvni_core_machine_memory_limit(d->root);
    if (bytes == UINT64_MAX) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_WARN, "memory", "%s/proc/meminfo cannot be read",
                            d->root);
        lvni_cli_doctor_fix(d, "mount /proc: without it memory is not estimated before a run");
        return;
    }
    if (limit != UINT64_MAX) {
        snprintf(group, sizeof group, ", limit of the control group %s",
                 lvni_core_bytes_text(limit, most));
    }
    lvni_cli_doctor_add(d, bytes < GIB ? LVNI_LEVEL_WARN : LVNI_LEVEL_OK, "memory",
                        "%s, usable %s%s", lvni_core_bytes_text(total_memory(d), total),
                        lvni_core_bytes_text(bytes, usable), group);
    if (bytes < GIB) {
        lvni_cli_doctor_fix(d, "less than 1 GiB: end other programs, or raise the limit "
                               "(docker --memory, Slurm --mem)");
    }
}

/* levin's own ranks share memory without it; those of NCCL, UCX and other trainers do not. */
static void check_shm(lvni_cli_doctor *d)
{
    char path[1024], size[LVNI_BYTES_TEXT], rest[LVNI_BYTES_TEXT];
    struct statvfs info;
    snprintf(path, sizeof path, "%s/dev/shm", d->root);
    if (statvfs(path, &info) != 0) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_WARN, "shm", "%s: %s", path, strerror(errno));
        lvni_cli_doctor_fix(d, "mount -t tmpfs tmpfs /dev/shm: NCCL and UCX need it for several "
                               "ranks of a node");
        return;
    }
    const uint64_t bytes = (uint64_t)info.f_blocks * info.f_frsize,
                   unused = (uint64_t)info.f_bavail * info.f_frsize;
    /* a tmpfs without a limit has no blocks */
    const bool small = bytes > 0 && unused < GIB;
    lvni_cli_doctor_add(d, small ? LVNI_LEVEL_WARN : LVNI_LEVEL_OK, "shm",
                        "/dev/shm: %s, unused %s",
                        bytes == 0 ? "no limit" : lvni_core_bytes_text(bytes, size),
                        bytes == 0 ? "all" : lvni_core_bytes_text(unused, rest));
    if (small && bytes >= GIB) {
        lvni_cli_doctor_fix(d, "remove what ended programs left there (ls -l /dev/shm): NCCL and "
                               "UCX need 1 GiB for several ranks of a node");
    } else if (small) {
        lvni_cli_doctor_fix(d, "docker run --ipc=host, or --shm-size=8g; elsewhere mount -o "
                               "remount,size=8g /dev/shm: with less than 1 GiB several ranks of a "
                               "node can end in a bus error of NCCL or UCX");
    }
}

static void check_files(lvni_cli_doctor *d)
{
    enum { ENOUGH = 1024 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return;
    }
    const bool few = limit.rlim_max < ENOUGH;
    char hard[32] = "unlimited";
    if (limit.rlim_max != RLIM_INFINITY) {
        snprintf(hard, sizeof hard, "%ju", (uintmax_t)limit.rlim_max);
    }
    lvni_cli_doctor_add(d, few ? LVNI_LEVEL_WARN : LVNI_LEVEL_OK, "files",
                        "%ju open files a process, up to %s where ranks need more",
                        (uintmax_t)limit.rlim_cur, hard);
    if (few) {
        lvni_cli_doctor_fix(d, "ulimit -Hn %d, or nofile in /etc/security/limits.conf", ENOUGH);
    }
}

void lvni_cli_doctor_machine(lvni_cli_doctor *d)
{
    check_cpu(d);
    check_memory(d);
    check_shm(d);
    check_files(d);
}
