/* Showing lines without waiting for the reader (launch_sink.h). */
#include "launch/launch_sink.h"

#include "core/alloc.h"
#include "core/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEEP = 1 << 20, REFILL = 64 << 10 };

/* A descriptor of our own for the same pipe or terminal, so that O_NONBLOCK is not set for
 * everybody who shares it. */
void lvni_launch_sink_open(lvni_launch_sink *s, int fd, const char *spill_dir)
{
    *s = (lvni_launch_sink){.fd = -1, .owner = -1, .spill_fd = -1, .spill_dir = spill_dir};
    struct stat info;
    if (fstat(fd, &info) != 0) {
        s->gone = true;
        return;
    }
    s->socket = S_ISSOCK(info.st_mode);
    if (S_ISFIFO(info.st_mode) || isatty(fd) == 1) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        s->fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        s->blocks = s->fd < 0;
    }
    if (s->fd < 0) {
        s->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    }
    s->gone = s->fd < 0;
}

void lvni_launch_sink_close(lvni_launch_sink *s)
{
    if (s->fd >= 0) {
        close(s->fd);
    }
    if (s->spill_fd >= 0) {
        close(s->spill_fd);
    }
    lvni_core_free(s->data);
    lvni_core_str_free(&s->status);
    *s = (lvni_launch_sink){.fd = -1, .owner = -1, .gone = true, .spill_fd = -1};
}

static bool spill_is_empty(const lvni_launch_sink *s)
{
    return s->spill_at == s->spill_end;
}

bool lvni_launch_sink_is_empty(const lvni_launch_sink *s)
{
    return s->gone || (s->at == s->n && spill_is_empty(s));
}

static bool keep(lvni_launch_sink *s, const char *bytes, size_t n)
{
    if (s->at > 0 && s->n + n > s->room) {
        memmove(s->data, s->data + s->at, s->n - s->at);
        s->n -= s->at;
        s->at = 0;
    }
    if (s->n + n > s->room) {
        const size_t room = s->n + n < REFILL ? REFILL : (s->n + n) * 2;
        char *data = lvni_core_realloc(LVNI_TAG_CORE, s->data, room);
        if (data == NULL) {
            return false;
        }
        s->data = data;
        s->room = room;
    }
    memcpy(s->data + s->n, bytes, n);
    s->n += n;
    return true;
}

/* A file without a name; on file systems that have none of that kind (NFS) it loses its name at
 * once. */
static int open_nameless(const char *dir)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/.levin-output-XXXXXX", dir);
    if (fd < 0 && n > 0 && n < (int)sizeof path) {
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0) {
            unlink(path);
        }
    }
    return fd;
}

static bool spill(lvni_launch_sink *s, const char *bytes, size_t n)
{
    if (s->spill_fd < 0) {
        s->spill_fd = open_nameless(s->spill_dir != NULL ? s->spill_dir : "/tmp");
    }
    while (s->spill_fd >= 0 && n > 0) {
        const ssize_t done = pwrite(s->spill_fd, bytes, n, s->spill_end);
        if (done <= 0) {
            return false;
        }
        s->spill_end += done;
        bytes += done;
        n -= (size_t)done;
    }
    return n == 0;
}

static void refill(lvni_launch_sink *s)
{
    char part[4096];
    while (s->n - s->at < REFILL && !spill_is_empty(s)) {
        const ssize_t n = pread(s->spill_fd, part, sizeof part, s->spill_at);
        if (n <= 0 || !keep(s, part, (size_t)n)) {
            break;
        }
        s->spill_at += n;
    }
    if (spill_is_empty(s) && s->spill_end > 0 && ftruncate(s->spill_fd, 0) == 0) {
        s->spill_at = s->spill_end = 0;
    }
}

static ssize_t write_some(lvni_launch_sink *s)
{
    const size_t n = s->n - s->at;
    if (s->socket) {
        return send(s->fd, s->data + s->at, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (s->blocks) {
        struct pollfd p = {.fd = s->fd, .events = POLLOUT};
        if (poll(&p, 1, 0) != 1) {
            errno = EAGAIN;
            return -1;
        }
        return write(s->fd, s->data + s->at, n < PIPE_BUF ? n : PIPE_BUF);
    }
    return write(s->fd, s->data + s->at, n);
}

void lvni_launch_sink_flush(lvni_launch_sink *s)
{
    while (!lvni_launch_sink_is_empty(s)) {
        refill(s);
        const ssize_t done = write_some(s);
        if (done > 0) {
            s->at += (size_t)done;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            s->gone = true; /* the reader went away, the disk is full: the log files have it all */
        }
        if (s->at == s->n) {
            s->at = s->n = 0;
        }
    }
}

void lvni_launch_sink_put(lvni_launch_sink *s, const char *bytes, size_t n)
{
    if (s->gone || n == 0) {
        return;
    }
    const bool in_memory = spill_is_empty(s) && s->n - s->at < KEEP;
    if (in_memory ? keep(s, bytes, n) : spill(s, bytes, n)) {
        return;
    }
    /* neither memory nor disk takes any more, and nobody waits for the reader: the log files have
     * it all */
    s->gone = true;
}

static void put_text(lvni_launch_sink *s, const char *text)
{
    lvni_launch_sink_put(s, text, strlen(text));
}

void lvni_launch_sink_begin(lvni_launch_sink *s, int id)
{
    if (s->status.len > 0 && s->status_id != id && !s->covered) {
        put_text(s, LVNI_TERMINAL_ERASE);
        s->covered = true;
    } else if (s->owner >= 0 && s->owner != id) {
        put_text(s, "\n");
    }
    s->owner = id;
}

void lvni_launch_sink_finish(lvni_launch_sink *s)
{
    s->owner = -1;
    if (s->covered && s->status.len > 0) {
        lvni_launch_sink_put(s, s->status.data, s->status.len);
        s->owner = s->status.data[s->status.len - 1] == '\r' ? -1 : s->status_id;
    }
    s->covered = false;
}

void lvni_launch_sink_set_status(lvni_launch_sink *s, int id, const char *prefix, const char *text,
                                 bool returned)
{
    lvni_core_str_clear(&s->status);
    s->status_id = id;
    if (text[0] != '\0') {
        lvni_core_str_printf(&s->status, "%s%s%s", prefix, text, returned ? "\r" : "");
    }
    if (s->status.failed) {
        lvni_core_str_free(&s->status); /* no memory: others' lines then end the row */
    }
}

void lvni_launch_sink_drop_status(lvni_launch_sink *s)
{
    if (s->status.len > 0 && !s->covered) {
        put_text(s, LVNI_TERMINAL_ERASE);
        s->owner = -1;
    }
    lvni_core_str_clear(&s->status);
}

bool lvni_launch_sink_interrupted(lvni_launch_sink *s)
{
    if (s->fd < 0 || isatty(s->fd) != 1) {
        return false;
    }
    if (s->status.len > 0 && !s->covered) {
        put_text(s, LVNI_TERMINAL_ERASE "^C\n");
        s->covered = true;
        lvni_launch_sink_finish(s);
    } else {
        put_text(s, "\n");
    }
    return true;
}

void lvni_launch_sink_line(lvni_launch_sink *s, const char *text)
{
    lvni_launch_sink_begin(s, LVNI_SINK_OWN);
    put_text(s, text);
    put_text(s, "\n");
    lvni_launch_sink_finish(s);
}
