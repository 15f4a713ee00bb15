/* A levin that starts itself again under the launcher. */
#include "launch/launch.h"

#include "core/alloc.h"
#include "launch/env_vars.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool lvni_launch_is_rank(char *const *environment)
{
    return lvni_launch_env_get(environment, "LEVIN_LAUNCHED") != NULL;
}

bool lvni_launch_is_training(const char *program, const char *second)
{
    struct stat own, its;
    return second != NULL && strcmp(second, "train") == 0 && stat("/proc/self/exe", &own) == 0 &&
           stat(program, &its) == 0 && own.st_dev == its.st_dev && own.st_ino == its.st_ino;
}

lvn_status lvni_launch_self(int n_options, const char *const *options, int n_arguments,
                            const char *const *words, char *const *environment)
{
    if (lvni_launch_is_rank(environment)) {
        return LVN_OK;
    }
    /* the program's own, so that a rank is the same file whatever PATH says */
    static char path[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) {
        LVN_FAIL(LVN_ERR_INTERNAL, "which program is this? /proc/self/exe: %s", strerror(errno));
    }
    path[n] = '\0';
    const char **argv =
        lvni_core_calloc(LVNI_TAG_CORE, (size_t)(n_options + n_arguments) + 5, sizeof *argv);
    if (argv == NULL) {
        return LVN_ERR_MEMORY;
    }
    int at = 0;
    argv[at++] = path;
    argv[at++] = "launch";
    for (int i = 0; i < n_options; i++) {
        argv[at++] = options[i];
    }
    argv[at++] = "--";
    argv[at++] = path;
    for (int i = 0; i < n_arguments; i++) {
        argv[at++] = words[i];
    }
    execve(path, (char *const *)(uintptr_t)argv, environment);
    const int error = errno;
    lvni_core_free(argv);
    LVN_FAIL(LVN_ERR_INTERNAL, "%s cannot be started again: %s", path, strerror(error));
}
