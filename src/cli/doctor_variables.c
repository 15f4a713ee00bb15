/* levin doctor: what the environment holds of other runs, and whether the port of this one is
 * free. */
#include "cli/doctor.h"
#include "core/machine.h"
#include "launch/env_vars.h"
#include "launch/rank_info.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- ranks ---- */

static const char *const ranks_names[] = {
    "RANK",        "WORLD_SIZE",       "LOCAL_RANK",        "LOCAL_WORLD_SIZE",  "NODE_RANK",
    "GROUP_RANK",  "GROUP_WORLD_SIZE", "LEVIN_RANK",        "LEVIN_WORLD_SIZE",  "LEVIN_LOCAL_RANK",
    "MASTER_ADDR", "MASTER_PORT",      "LEVIN_MASTER_ADDR", "LEVIN_MASTER_PORT", NULL};

/* "RANK=3 WORLD_SIZE=8", and the names alone. */
static void list_ranks(lvni_core_str *values, lvni_core_str *names)
{
    for (int i = 0; ranks_names[i] != NULL; i++) {
        const char *value = lvni_launch_env_raw(environ, ranks_names[i]);
        if (value != NULL) {
            const char *between = names->len > 0 ? " " : "";
            lvni_core_str_printf(values, "%s%s=%s", between, ranks_names[i], value);
            lvni_core_str_printf(names, "%s%s", between, ranks_names[i]);
        }
    }
}

static bool is_set(const char *name)
{
    return lvni_launch_env_get(environ, name) != NULL;
}

/* The marks that launchers set besides; a task of Slurm and of mpirun has numbers of its own. */
static bool is_launched(const lvni_launch_rank_info *info)
{
    return info->source == LVNI_SOURCE_TORCHRUN ? is_set("TORCHELASTIC_RUN_ID")
           : info->source == LVNI_SOURCE_LEVIN  ? is_set("LEVIN_LAUNCHED")
                                                : info->source < LVNI_SOURCE_SLURM_BATCH;
}

/* refused: why levin train would not take them; "": it would. */
static void report_stale(lvni_cli_doctor *d, const lvni_launch_rank_info *info, const char *refused)
{
    lvni_core_str values = {0}, names = {0};
    char then[640] = "";
    list_ranks(&values, &names);
    if (refused[0] != '\0') {
        snprintf(then, sizeof then, "; levin train would refuse them: %s", refused);
    } else if (info->world > 1) {
        snprintf(then, sizeof then, "; levin train would be rank %d of %d and wait for the others",
                 info->rank, info->world);
    }
    lvni_cli_doctor_add(d, LVNI_LEVEL_WARN, "ranks",
                        "%s set without a launcher, maybe by an earlier run%s",
                        lvni_core_str_text(&values), then);
    lvni_cli_doctor_fix(d, "unset %s (levin launch sets them for its ranks)",
                        lvni_core_str_text(&names));
    lvni_core_str_free(&values);
    lvni_core_str_free(&names);
}

static void check_ranks(lvni_cli_doctor *d, const lvni_launch_rank_info *info, const char *refused)
{
    const bool known = refused[0] == '\0';
    /* a batch script may set MASTER_* for its steps */
    const bool script = known && info->source == LVNI_SOURCE_SLURM_BATCH && !is_set("RANK");
    if (lvni_launch_env_first(environ, ranks_names) != NULL && !script &&
        !(known && is_launched(info))) {
        report_stale(d, info, refused);
    } else if (known && info->world > 1) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_OK, "ranks", "this is rank %d of %d, by %s", info->rank,
                            info->world, lvni_launch_source_name(info->source));
    }
}

/* ---- port ---- */

/* 0, or the errno of listening there. */
static int try_port(int family, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    const bool four = family == AF_INET;
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) {
        return errno == EAFNOSUPPORT ? 0 : errno;
    }
    /* an ended connection does not hold it; IPv6 is tried for itself */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (!four) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    const int failed = bind(fd, four ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
                            four ? sizeof v4 : sizeof v6) != 0 ||
                               listen(fd, 1) != 0
                           ? errno
                           : 0;
    close(fd);
    return failed == EADDRNOTAVAIL ? 0 : failed;
}

/* The inode of the socket that listens on that port, of /proc/net/tcp or tcp6; 0: none. */
static uint64_t find_socket(const char *file, uint16_t port)
{
    enum { LISTENS = 0x0A };
    char line[512];
    uint64_t found = 0;
    FILE *f = fopen(file, "re");
    while (f != NULL && found == 0 && fgets(line, sizeof line, f) != NULL) {
        unsigned local, state;
        uint64_t inode;
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %" SCNu64,
                   &local, &state, &inode) == 3 &&
            local == port && state == LISTENS) {
            found = inode;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return found;
}

static bool holds(const char *pid, const char *link)
{
    char folder[64], path[384], target[64];
    bool found = false;
    snprintf(folder, sizeof folder, "/proc/%.20s/fd", pid);
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir != NULL && !found && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        const ssize_t n = readlink(path, target, sizeof target - 1);
        target[n < 0 ? 0 : n] = '\0';
        found = strcmp(target, link) == 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}

/* "process 123 (python3)", or "a process of another user". */
static void find_owner(uint16_t port, char *out, size_t room)
{
    static const lvni_cli_doctor here = {.root = ""};
    char link[64], path[64], name[64];
    const uint64_t v4 = find_socket("/proc/net/tcp", port),
                   inode = v4 != 0 ? v4 : find_socket("/proc/net/tcp6", port);
    snprintf(out, room, "a process of another user");
    snprintf(link, sizeof link, "socket:[%" PRIu64 "]", inode);
    DIR *dir = inode == 0 ? NULL : opendir("/proc");
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (e->d_name[strspn(e->d_name, "0123456789")] == '\0' && holds(e->d_name, link)) {
            snprintf(path, sizeof path, "/proc/%.20s/comm", e->d_name);
            lvni_cli_doctor_read(&here, path, name, sizeof name);
            snprintf(out, room, "process %.20s (%s)", e->d_name, name);
            break;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* Names are not resolved. */
static bool is_this_host(const char *address)
{
    char own[256];
    lvni_core_host_name(own, sizeof own);
    return address == NULL || strcmp(address, "localhost") == 0 || strcmp(address, own) == 0 ||
           strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

static void check_port(lvni_cli_doctor *d, bool launched)
{
    const char *text = lvni_launch_env_get(environ, "MASTER_PORT"),
               *address = lvni_launch_env_get(environ, "MASTER_ADDR");
    uint64_t port = 0;
    char owner[128];
    if (text == NULL) {
        return;
    }
    if (!lvni_launch_env_digits(text, UINT16_MAX, &port) || port == 0) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_FAIL, "port",
                            "MASTER_PORT=%s is not a port, which is 1 to 65535", text);
        lvni_cli_doctor_fix(d, "unset MASTER_PORT, or give a number such as 29500");
        return;
    }
    if (launched || !is_this_host(address)) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_OK, "port", "MASTER_PORT=%s of %s, not tried", text,
                            launched ? "this rank's run" : address);
        return;
    }
    const int v4 = try_port(AF_INET, (uint16_t)port),
              why = v4 != 0 ? v4 : try_port(AF_INET6, (uint16_t)port);
    if (why == 0) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_OK, "port", "MASTER_PORT=%s is free", text);
    } else if (why == EADDRINUSE) {
        find_owner((uint16_t)port, owner, sizeof owner);
        lvni_cli_doctor_add(d, LVNI_LEVEL_FAIL, "port", "MASTER_PORT=%s is in use by %s", text,
                            owner);
        lvni_cli_doctor_fix(d, "end that process, or unset MASTER_PORT: levin launch finds a free "
                               "one");
    } else {
        lvni_cli_doctor_add(d, LVNI_LEVEL_FAIL, "port", "MASTER_PORT=%s cannot be used: %s", text,
                            strerror(why));
        lvni_cli_doctor_fix(d, "a port above 1023, or unset MASTER_PORT");
    }
}

/* ---- NCCL, OpenMP, CUDA ---- */

/* The variables that begin so, with their values. */
static int list(const char *prefix, lvni_core_str *out)
{
    int n = 0;
    for (char *const *e = environ; *e != NULL; e++) {
        if (strncmp(*e, prefix, strlen(prefix)) == 0) {
            lvni_core_str_printf(out, "%s%s", n++ > 0 ? " " : "", *e);
        }
    }
    return n;
}

static bool is_switched_on(const char *name)
{
    const char *value = lvni_launch_env_get(environ, name);
    return value != NULL && strcmp(value, "0") != 0;
}

/* Left from the search for a hang, they cost speed for ever. */
static const char *find_slow(void)
{
    static const char *const names[] = {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE",
                                        "NCCL_NET_GDR_DISABLE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (is_switched_on(names[i])) {
            return names[i];
        }
    }
    return NULL;
}

static void check_nccl(lvni_cli_doctor *d)
{
    lvni_core_str all = {0};
    const char *slow = find_slow(), *near = NULL;
    char unknown[128] = "";
    for (char *const *e = environ; *e != NULL && unknown[0] == '\0'; e++) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        if (lvni_launch_nccl_is_unknown(name, &near)) {
            snprintf(unknown, sizeof unknown, "%s", name);
        }
    }
    if (list("NCCL_", &all) > 0) {
        const bool good = slow == NULL && unknown[0] == '\0';
        lvni_cli_doctor_add(d, good ? LVNI_LEVEL_OK : LVNI_LEVEL_WARN, "NCCL", "%s set",
                            lvni_core_str_text(&all));
    }
    if (unknown[0] != '\0') {
        lvni_cli_doctor_fix(d, "NCCL knows no %s and ignores it%s%s", unknown,
                            near != NULL ? "; did you mean NCCL_" : "", near != NULL ? near : "");
    } else if (slow != NULL) {
        lvni_cli_doctor_fix(d, "unset %s unless it is needed: gradients then take a slower way",
                            slow);
    }
    lvni_core_str_free(&all);
}

static void check_openmp(lvni_cli_doctor *d)
{
    lvni_core_str all = {0};
    const int n = list("OMP_", &all);
    if (n > 0) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_OK, "OpenMP",
                            "%s set: levin chooses its threads by the CPUs that it may use, and "
                            "starts without the variables that would spoil that",
                            lvni_core_str_text(&all));
    }
    lvni_core_str_free(&all);
}

static void check_visible(lvni_cli_doctor *d)
{
    const char *value = lvni_launch_env_raw(environ, "CUDA_VISIBLE_DEVICES");
    if (value != NULL && d->n_devices > 0) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_OK, "visible",
                            "CUDA_VISIBLE_DEVICES=%s shows the %d GPU%s above", value, d->n_devices,
                            lvni_core_plural(d->n_devices, "", "s"));
    }
}

/* ---- Slurm ---- */

static void check_slurm(lvni_cli_doctor *d, const lvni_launch_rank_info *info, bool known)
{
    if (!is_set("SLURM_JOB_ID")) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_OK, "Slurm", "not in Slurm");
    } else if (!known) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_WARN, "Slurm",
                            "in the job %s, whose variables cannot be read",
                            lvni_launch_env_get(environ, "SLURM_JOB_ID"));
        lvni_cli_doctor_fix(d, "levin slurm env shows which of them are wrong");
    } else if (info->source == LVNI_SOURCE_SLURM) {
        lvni_cli_doctor_add(d, LVNI_LEVEL_OK, "Slurm", "a task of step %" PRIu64 " of job %" PRIu64,
                            info->slurm.step_id, info->slurm.job_id);
    } else {
        lvni_cli_doctor_add(d, LVNI_LEVEL_OK, "Slurm",
                            "in the job %s, outside of its steps: srun or levin launch starts "
                            "ranks",
                            lvni_launch_env_get(environ, "SLURM_JOB_ID"));
    }
}

void lvni_cli_doctor_variables(lvni_cli_doctor *d)
{
    const lvni_launch_rank_info_options options = {.launcher = true};
    lvni_core_notices notices = {.error = 0};
    lvni_launch_rank_info info = {.world = 1};
    char refused[512] = "";
    const bool known = lvni_launch_rank_info_detect(environ, &options, &notices, &info) == LVN_OK;
    if (!known) {
        snprintf(refused, sizeof refused, "%.500s", lvn_last_error()->message);
    }
    lvni_core_notices_free(&notices);
    lvn_clear_error();
    check_visible(d);
    check_nccl(d);
    check_openmp(d);
    check_ranks(d, &info, refused);
    check_port(d, known && is_launched(&info));
    check_slurm(d, &info, known);
    if (known) {
        lvni_launch_rank_info_free(&info);
    }
}
