/* Has a rank's process ended? Asked by host: a process number means nothing on another one. */
#include "control_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A process of this host: has it ended, or is it a zombie? */
static bool process_has_ended(int64_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return errno == ENOENT || errno == ESRCH; /* else this process may open nothing more */
    }
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    /* "PID (NAME) STATE ...", and the name may hold anything */
    const char *name_end = strrchr(text, ')');
    return name_end == NULL || name_end[1] != ' ' || name_end[2] == 'Z' || name_end[2] == 'X';
}

bool lvni_control_has_ended(const lvni_control *control, int rank)
{
    const lvni_control_member *members = lvni_control_members(control);
    lvni_control_cause cause;
    if (members == NULL) {
        return false;
    }
    if (members[rank].host_index == members[control->rank].host_index) {
        return process_has_ended(members[rank].pid);
    }
    return lvni_control_get_cause(control, &cause) && cause.rank == rank && cause.ended;
}
