/* The ports of InfiniBand and RoCE that the kernel has (ucx_ports.h). Called by ucx_connect.c
 * before UCX is loaded. */
#include "dist/ucx/ucx_ports.h"

#include <glob.h>
#include <stdio.h>

/* "4: ACTIVE" */
static bool is_active(const char *path)
{
    FILE *f = fopen(path, "re");
    int state = 0;
    if (f == NULL) {
        return false;
    }
    const bool read = fscanf(f, "%d:", &state) == 1;
    fclose(f);
    return read && state == 4;
}

bool lvni_ucx_has_active_port(const char *folder)
{
    char pattern[256];
    glob_t found;
    bool active = false;
    snprintf(pattern, sizeof pattern, "%s/*/ports/*/state", folder);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) {
        return false;
    }
    for (size_t i = 0; i < found.gl_pathc && !active; i++) {
        active = is_active(found.gl_pathv[i]);
    }
    globfree(&found);
    return active;
}
