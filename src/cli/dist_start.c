/* DIR/bin/levin of a relocated directory (tools/dist): starts DIR/libexec/levin with the machine's
 * C library where that is not older than the one levin was built with, else by the loader and the C
 * library of DIR/lib/libc. No variable of the environment changes, so that programs which levin
 * starts see none of its libraries. Linked statically; LEVIN_LIBC=own|host chooses by hand. */
#define _GNU_SOURCE /* memmem */
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define LOADER "ld-linux-x86-64.so.2"
#define HOST_LOADER "/lib64/" LOADER
#elif defined(__aarch64__)
#define LOADER "ld-linux-aarch64.so.1"
#define HOST_LOADER "/lib/" LOADER
#else
#error "the loader of this architecture is not known: add it"
#endif

enum { CANNOT_START = 126, FOLDER = PATH_MAX - 64 };

/* The loader holds the sentence of its --version since 2.33. 0: older, or not glibc. */
static int host_minor(void)
{
    static const char sentence[] = "stable release version 2.";
    struct stat info;
    int minor = 0;
    const int fd = open(HOST_LOADER, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0 || info.st_size <= 0) {
        return 0; /* ends with the program */
    }
    const size_t n = (size_t)info.st_size;
    const char *bytes = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes != MAP_FAILED) {
        const char *at = memmem(bytes, n, sentence, sizeof sentence - 1);
        for (at = at == NULL ? bytes + n : at + sizeof sentence - 1;
             at < bytes + n && *at >= '0' && *at <= '9' && minor < 1000; at++) {
            minor = 10 * minor + (*at - '0');
        }
        munmap((void *)(size_t)bytes, n);
    }
    close(fd);
    return minor;
}

static int use_host(void)
{
    const char *given = getenv("LEVIN_LIBC");
    int major = 0, minor = 0;
    if (given != NULL && (strcmp(given, "own") == 0 || strcmp(given, "host") == 0)) {
        return given[0] == 'h';
    }
    return sscanf(gnu_get_libc_version(), "%d.%d", &major, &minor) == 2 && host_minor() >= minor;
}

/* The loader's call of the program; src/core/own_program.h knows how many words stand in front of
 * the program's own. NULL: no memory. */
static char **loader_words(int argc, char **argv, char *loader, char *libraries, char *program)
{
    static char path[] = "--library-path", name[] = "--argv0", levin[] = "levin";
    char *const first[] = {loader, path, libraries, name, argc > 0 ? argv[0] : levin, program};
    const size_t n = sizeof first / sizeof *first;
    char **words = calloc((size_t)argc + n + 1, sizeof *words);
    for (size_t i = 0; i < n && words != NULL; i++) {
        words[i] = first[i];
    }
    for (int i = 1; i < argc && words != NULL; i++) {
        words[n - 1 + (size_t)i] = argv[i];
    }
    return words;
}

int main(int argc, char **argv)
{
    char folder[FOLDER], program[PATH_MAX], loader[PATH_MAX], libraries[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[n > 0 ? n : 0] = '\0';
    for (int up = 0; up < 2; up++) { /* bin/levin */
        char *slash = strrchr(folder, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
    }
    if (n <= 0) {
        fprintf(stderr, "levin: where does it lie? /proc/self/exe: %s\n", strerror(errno));
        return CANNOT_START;
    }
    snprintf(program, sizeof program, "%s/libexec/levin", folder);
    snprintf(libraries, sizeof libraries, "%s/lib/libc", folder);
    snprintf(loader, sizeof loader, "%s/" LOADER, libraries);
    char **words = use_host() ? argv : loader_words(argc, argv, loader, libraries, program);
    if (words != NULL) {
        execv(words == argv ? program : loader, words);
    }
    fprintf(stderr, "levin: %s cannot be started: %s; is the directory whole?\n", program,
            strerror(errno));
    return CANNOT_START; /* `words` end with the process */
}
