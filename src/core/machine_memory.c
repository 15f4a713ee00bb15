/* Reading /proc and /sys (machine_memory.h). What is not there, or does not look as expected, is no
 * limit. */
#include "core/machine_memory.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH = 4096 };

static uint64_t available(const char *root)
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

/* "max" is no number, and no limit. */
static uint64_t limit_of(const char *root, const char *group)
{
    char path[PATH + 64];
    uint64_t bytes = UINT64_MAX;
    if (snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/memory.max", root, group) >=
        (int)sizeof path) {
        return UINT64_MAX;
    }
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return UINT64_MAX;
    }
    const bool known = fscanf(f, "%" SCNu64, &bytes) == 1;
    fclose(f);
    return known ? bytes : UINT64_MAX;
}

uint64_t lvni_core_machine_memory(const char *root)
{
    char group[PATH];
    uint64_t least = available(root);
    read_group(root, group);
    for (;;) { /* from the process's own group outwards, the root of what is seen here last */
        const uint64_t limit = limit_of(root, group);
        least = limit < least ? limit : least;
        char *slash = strrchr(group, '/');
        if (slash == NULL) {
            return least;
        }
        *slash = '\0';
    }
}
