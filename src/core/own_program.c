/* Which program is this (own_program.h)? */
#include "core/own_program.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char LOADER[] = "/lib/libc/ld-linux";
static const char PROGRAM[] = "/libexec/levin";

/* How many bytes of exe are the relocated directory; 0: it is none. */
static size_t directory_of(const char *exe)
{
    const char *name = strrchr(exe, '/'), *loader = NULL;
    const size_t n = strlen(exe), ours = sizeof PROGRAM - 1;
    for (const char *at = strstr(exe, LOADER); at != NULL; at = strstr(at + 1, LOADER)) {
        loader = at; /* the last one: folders above may be called so, too */
    }
    if (loader != NULL && loader + (sizeof "/lib/libc" - 1) == name) {
        return (size_t)(loader - exe);
    }
    return n > ours && strcmp(exe + n - ours, PROGRAM) == 0 ? n - ours : 0;
}

bool lvni_core_self_of(const char *exe, char *path, size_t size)
{
    const size_t n = directory_of(exe);
    int needed = 0;
    if (n > 0) {
        needed = snprintf(path, size, "%.*s/bin/levin", (int)n, exe);
        if (needed > 0 && (size_t)needed < size && access(path, X_OK) == 0) {
            return true;
        }
    }
    needed = snprintf(path, size, "%s", exe);
    if (needed > 0 && (size_t)needed < size) {
        return true;
    }
    path[0] = '\0';
    return false;
}

/* "": there is no /proc */
static void read_exe(char exe[PATH_MAX])
{
    const ssize_t n = readlink("/proc/self/exe", exe, PATH_MAX - 1);
    exe[n > 0 ? n : 0] = '\0';
}

bool lvni_core_self(char *path, size_t size)
{
    char exe[PATH_MAX];
    read_exe(exe);
    if (exe[0] == '\0') {
        path[0] = '\0';
        return false;
    }
    return lvni_core_self_of(access(exe, F_OK) == 0 ? exe : "/proc/self/exe", path, size);
}

int lvni_core_self_loader_words(void)
{
    char exe[PATH_MAX];
    read_exe(exe);
    const char *name = strrchr(exe, '/');
    return directory_of(exe) > 0 && strncmp(name, "/ld-linux", 9) == 0 ? LVNI_CORE_LOADER_WORDS : 0;
}
