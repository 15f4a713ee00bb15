/* The machine as machine.h shows it: system calls, /proc and /sys. A file that is missing or does
 * not look as expected sets no limit. */
#include "core/machine.h"

#if defined __x86_64__
#include <cpuid.h>
#endif
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- clock ---- */

uint64_t lvni_core_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double lvni_core_seconds_since(uint64_t start_ns)
{
    return (double)(lvni_core_now_ns() - start_ns) * 1e-9;
}

struct timespec lvni_core_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

/* ---- host ---- */

void lvni_core_host_name(char *out, size_t size)
{
    char whole[256] = "";
    const int failed = gethostname(whole, sizeof whole - 1);
    snprintf(out, size, "%s", failed != 0 || whole[0] == '\0' ? "?" : whole);
}

/* Copies words of printable characters with one blank between. */
static void copy_words(const char *from, size_t n, char out[LVNI_CPU_MODEL])
{
    size_t at = 0;
    for (size_t i = 0; i < n && from[i] != '\0' && at < LVNI_CPU_MODEL - 1; i++) {
        const bool blank = from[i] <= ' ' || from[i] > '~';
        if (!blank) {
            out[at++] = from[i];
        } else if (at > 0 && out[at - 1] != ' ') {
            out[at++] = ' ';
        }
    }
    at -= at > 0 && out[at - 1] == ' ' ? 1 : 0;
    out[at] = '\0';
}

bool lvni_core_cpu_model(char out[LVNI_CPU_MODEL])
{
    static const char mark[] = " (LEVIN_TEST_CPU_MODEL)";
    const char *test = getenv("LEVIN_TEST_CPU_MODEL");
    if (test != NULL) {
        copy_words(test, LVNI_CPU_MODEL - sizeof mark, out);
        memcpy(out + strlen(out), mark, sizeof mark);
        return true;
    }
    out[0] = '\0';
#if defined __x86_64__
    unsigned word[12];
    char text[sizeof word];
    for (unsigned i = 0; i < 3; i++) {
        unsigned *w = word + (size_t)4 * i;
        if (__get_cpuid(0x80000002u + i, &w[0], &w[1], &w[2], &w[3]) == 0) {
            return false;
        }
    }
    memcpy(text, word, sizeof text);
    copy_words(text, sizeof text, out);
#endif
    return out[0] != '\0';
}

enum { PATH = 4096 };

static uint64_t available_memory(const char *root)
{
    char path[PATH], line[256];
    uint64_t kib = 0;
    bool known = false;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    FILE *f = fopen(path, "re");
    while (f != NULL && !known && fgets(line, sizeof line, f) != NULL) {
        known = sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1;
    }
    if (f != NULL) {
        fclose(f);
    }
    return known && kib <= UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
}

/* "/jobs/17" of the line "0::/jobs/17"; "" when there is none, or it is the root. */
static void read_group(const char *root, char group[PATH])
{
    char path[PATH], line[PATH];
    group[0] = '\0';
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f != NULL && group[0] == '\0' && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) == 0 && line[4] != '\0') {
            snprintf(group, PATH, "%s", line + 3);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}

/* "max" means no limit. */
static uint64_t read_memory(FILE *f)
{
    uint64_t bytes;
    return fscanf(f, "%" SCNu64, &bytes) == 1 ? bytes : UINT64_MAX;
}

/* "max 100000", "150000 100000": microseconds in each period. */
static uint64_t read_cpu(FILE *f)
{
    uint64_t quota, period;
    const bool known = fscanf(f, "%" SCNu64 " %" SCNu64, &quota, &period) == 2;
    return known && period > 0 && quota <= UINT64_MAX / 1000 ? quota * 1000 / period : UINT64_MAX;
}

static uint64_t limit_of(const char *root, const char *group, const char *file,
                         uint64_t (*read)(FILE *f))
{
    char path[PATH + 64];
    if (snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/%s", root, group, file) >=
        (int)sizeof path) {
        return UINT64_MAX;
    }
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return UINT64_MAX;
    }
    const uint64_t limit = read(f);
    fclose(f);
    return limit;
}

/* From the process's own group outwards; last the root that is visible here. */
static uint64_t least_limit(const char *root, const char *file, uint64_t (*read)(FILE *f))
{
    char group[PATH];
    uint64_t least = UINT64_MAX;
    read_group(root, group);
    for (;;) {
        const uint64_t limit = limit_of(root, group, file, read);
        least = limit < least ? limit : least;
        char *slash = strrchr(group, '/');
        if (slash == NULL) {
            return least;
        }
        *slash = '\0';
    }
}

uint64_t lvni_core_machine_memory_limit(const char *root)
{
    return least_limit(root, "memory.max", read_memory);
}

uint64_t lvni_core_machine_cpu_quota(const char *root)
{
    return least_limit(root, "cpu.max", read_cpu);
}

uint64_t lvni_core_machine_memory(const char *root)
{
    const uint64_t available = available_memory(root), limit = lvni_core_machine_memory_limit(root);
    return available < limit ? available : limit;
}

/* ---- terminals ---- */

bool lvni_core_terminal_rewrites(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) == 1 && kind != NULL && kind[0] != '\0' && strcmp(kind, "dumb") != 0;
}

bool lvni_core_terminal_has_colours(int fd)
{
    const char *none = getenv("NO_COLOR");
    return (none == NULL || none[0] == '\0') && lvni_core_terminal_rewrites(fd);
}

bool lvni_core_terminal_same(int a, int b)
{
    struct stat x, y;
    return a == b ||
           (fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

void lvni_core_terminal_put(int fd, const char *text, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(fd, text, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return;
        }
        text += done;
        n -= (size_t)done;
    }
}

static volatile sig_atomic_t status_fd = -1; /* read in signal handlers */

void lvni_core_terminal_set_status_fd(int fd)
{
    status_fd = fd;
}

int lvni_core_terminal_status_fd(void)
{
    return status_fd;
}

void lvni_core_terminal_print_from_signal(bool keyboard, const char *text)
{
    static const char own_line[] = LVNI_TERMINAL_ERASE "^C\n";
    const int line_fd = status_fd;
    const int screen = line_fd >= 0                 ? line_fd
                       : isatty(STDERR_FILENO) == 1 ? STDERR_FILENO
                       : isatty(STDOUT_FILENO) == 1 ? STDOUT_FILENO
                                                    : -1;
    if (line_fd >= 0) {
        const char *first = keyboard ? own_line : LVNI_TERMINAL_ERASE;
        lvni_core_terminal_put(screen, first, strlen(first));
    } else if (keyboard && screen >= 0) {
        lvni_core_terminal_put(screen, "\n", 1);
    }
    lvni_core_terminal_put(STDERR_FILENO, text, strlen(text));
}
