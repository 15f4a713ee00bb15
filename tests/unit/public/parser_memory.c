/* The measuring of parser_memory.h. */
#include "parser_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t memory_now(const char *name)
{
    char line[256];
    size_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            kib = strtoul(line + strlen(name), NULL, 10);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return kib * 1024;
}

static void measure(parser parse, const input *in, int fd)
{
    outcome o = {0};
    const size_t before = memory_now("VmRSS:");
    o.status = parse(in);
    o.peak = memory_now("VmHWM:") - before;
    snprintf(o.message, sizeof o.message, "%.250s",
             o.status == LVN_OK ? "" : lvn_last_error()->message);
    _exit(write(fd, &o, sizeof o) == sizeof o ? 0 : 1);
}

/* Sanitizers have memory of their own to count, and locks that a forked child may find taken. */
static outcome run_here(parser parse, const input *in)
{
    outcome o = {.status = parse(in)};
    snprintf(o.message, sizeof o.message, "%.250s",
             o.status == LVN_OK ? "" : lvn_last_error()->message);
    return o;
}

static outcome run(parser parse, const input *in)
{
    outcome o = {0};
    int ends[2], state = -1;
    if (!MEASURED) {
        return run_here(parse, in);
    }
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        measure(parse, in, ends[1]);
    }
    close(ends[1]);
    const ssize_t n = read(ends[0], &o, sizeof o);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &state, 0), pid);
    assert_int_equal(n, sizeof o); /* less: it died */
    assert_int_equal(state, 0);
    return o;
}

outcome bounded(parser parse, const input *in, const char *what)
{
    const outcome o = run(parse, in);
    const size_t limit = 64 * MIB + 16 * in->n;
    if (MEASURED && o.peak > limit) {
        fail_msg("%.60s: %zu bytes took %zu, at most %zu; %s", what, in->n, o.peak, limit,
                 o.message);
    }
    return o;
}

input repeat(const char *head, const char *unit, const char *tail, size_t n, size_t before)
{
    const char *number = strstr(unit, "%d");
    input in = {.bytes = malloc(n + before + 256), .n = before};
    assert_non_null(in.bytes);
    const size_t length = strlen(unit), end = n + before - strlen(tail) - 8;
    in.n += (size_t)sprintf(in.bytes + in.n, "%s", head);
    for (int i = 0; in.n + length < end; i++) {
        if (number == NULL) {
            memcpy(in.bytes + in.n, unit, length);
            in.n += length;
        } else {
            in.n += (size_t)sprintf(in.bytes + in.n, "%.*s%d%s", (int)(number - unit), unit, i,
                                    number + 2);
        }
    }
    in.n += (size_t)sprintf(in.bytes + in.n, "%s", tail);
    return in;
}

lvn_status by_path(const input *in, lvn_status (*open)(const char *path))
{
    char path[40];
    const int fd = memfd_create("input", 0);
    const bool written = fd >= 0 && write(fd, in->bytes, in->n) == (ssize_t)in->n;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const lvn_status s = written ? open(path) : LVN_ERR_INTERNAL;
    close(fd);
    return s;
}
