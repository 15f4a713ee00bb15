/* Output of the ranks (launch_stream.h): sinks first, then streams. Bytes go unchanged to the log
 * file, unless the process has a terminal, where lines are rewritten; on the way to the sink they
 * are cut into lines, at '\n' and, for progress bars, at '\r'. */
#include "launch/launch_stream.h"

#include "core/alloc.h"
#include "core/machine.h"
#include "core/vfs.h"

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

enum { KEEP = 1 << 20, REFILL = 64 << 10, READ_BYTES = 64 << 10, READS = 4, LAST_READS = 256 };
#define SILENCE_NS 1000000000u

/* ---- sinks ---- */

/* A descriptor of our own for the same pipe or terminal, so that O_NONBLOCK is not set for
 * other processes that share it. */
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
    /* memory and disk are full: the reader loses output, the log files have it all */
    s->gone = true;
}

static void put_text(lvni_launch_sink *s, const char *text)
{
    lvni_launch_sink_put(s, text, strlen(text));
}

/* Before a line of `id`: makes room for it at the start of a row. */
static void begin_row(lvni_launch_sink *s, int id)
{
    if (s->status.len > 0 && s->status_id != id && !s->covered) {
        put_text(s, LVNI_TERMINAL_ERASE);
        s->covered = true;
    } else if (s->owner >= 0 && s->owner != id) {
        put_text(s, "\n");
    }
    s->owner = id;
}

/* After it: shows the status row again. */
static void end_row(lvni_launch_sink *s)
{
    s->owner = -1;
    if (s->covered && s->status.len > 0) {
        lvni_launch_sink_put(s, s->status.data, s->status.len);
        s->owner = s->status.data[s->status.len - 1] == '\r' ? -1 : s->status_id;
    }
    s->covered = false;
}

/* The text now in the row of `id`; ends with '\r' when the cursor is at its beginning. Empty: none.
 */
static void set_status(lvni_launch_sink *s, int id, const char *prefix, const char *text,
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
        end_row(s);
    } else {
        put_text(s, "\n");
    }
    return true;
}

void lvni_launch_sink_line(lvni_launch_sink *s, const char *text)
{
    begin_row(s, LVNI_SINK_OWN);
    put_text(s, text);
    put_text(s, "\n");
    end_row(s);
}

/* ---- streams: the log file and the tail ---- */

static void write_log(lvni_launch_stream *s, const char *bytes, size_t n)
{
    while (s->log_fd >= 0 && s->log_error == 0 && n > 0) {
        const ssize_t done = lvni_core_vfs_get()->write(s->log_fd, bytes, n);
        if (done < 0 && errno != EINTR) {
            s->log_error = errno;
        } else if (done > 0) {
            bytes += done;
            n -= (size_t)done;
        }
    }
}

/* A terminal's line is rewritten in place, ten times a second while a run trains; the log gets its
 * final text. */
static void write_standing(lvni_launch_stream *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const bool ends = bytes[i] == '\n';
        if (bytes[i] == '\r') {
            s->returned = true;
            continue;
        }
        if (s->returned && !ends) {
            lvni_core_str_clear(&s->standing);
        }
        s->returned = false;
        lvni_core_str_char(&s->standing, bytes[i]);
        const char *line = lvni_core_str_text(&s->standing);
        if (strcmp(line, "\033[K") == 0 || strcmp(line, "\033[J") == 0) { /* erased */
            lvni_core_str_clear(&s->standing);
        } else if (ends || s->standing.len >= LVNI_STREAM_PIECE) {
            write_log(s, line, s->standing.len);
            lvni_core_str_clear(&s->standing);
        }
    }
}

static void keep_tail(lvni_launch_stream *s, const char *bytes, size_t n)
{
    if (!s->keeps_tail || n == 0) {
        return;
    }
    if (s->tail == NULL && (s->tail = lvni_core_alloc(LVNI_TAG_CORE, LVNI_STREAM_PIECE)) == NULL) {
        s->keeps_tail = false;
        return;
    }
    if (n > LVNI_STREAM_PIECE) {
        s->n_tail += n - LVNI_STREAM_PIECE;
        bytes += n - LVNI_STREAM_PIECE;
        n = LVNI_STREAM_PIECE;
    }
    const size_t at = (size_t)(s->n_tail % LVNI_STREAM_PIECE);
    const size_t first = n < LVNI_STREAM_PIECE - at ? n : LVNI_STREAM_PIECE - at;
    memcpy(s->tail + at, bytes, first);
    memcpy(s->tail, bytes + first, n - first);
    s->n_tail += n;
}

/* Where the last n lines begin. */
static size_t last_lines(const char *text, size_t bytes, int n)
{
    size_t at = bytes;
    while (at > 0 && (at == bytes || text[at - 1] != '\n' || --n > 0)) {
        at--;
    }
    return at;
}

lvn_status lvni_launch_stream_tail(const lvni_launch_stream *s, int n, char **out, size_t *bytes)
{
    const size_t kept = s->tail == NULL || n == 0       ? 0
                        : s->n_tail < LVNI_STREAM_PIECE ? (size_t)s->n_tail
                                                        : LVNI_STREAM_PIECE;
    const size_t from = (size_t)((s->n_tail - kept) % LVNI_STREAM_PIECE);
    *out = lvni_core_alloc(LVNI_TAG_CORE, kept + 1);
    if (*out == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (kept > 0) {
        const size_t first = kept < LVNI_STREAM_PIECE - from ? kept : LVNI_STREAM_PIECE - from;
        memcpy(*out, s->tail + from, first);
        memcpy(*out + first, s->tail, kept - first);
    }
    const size_t skip = last_lines(*out, kept, n);
    memmove(*out, *out + skip, kept - skip);
    *bytes = kept - skip;
    (*out)[*bytes] = '\0';
    return LVN_OK;
}

/* ---- streams: lines ---- */

static void show(lvni_launch_stream *s, const char *bytes, size_t n, bool finished)
{
    lvni_launch_sink *sink = s->sink;
    if (sink->owner != s->id) {
        begin_row(sink, s->id);
        lvni_launch_sink_put(sink, s->prefix, strlen(s->prefix));
    }
    lvni_launch_sink_put(sink, bytes, n);
    if (finished) {
        end_row(sink);
    }
    if (s->live && (sink->status_id == s->id || s->standing.len > 0)) {
        set_status(sink, s->id, s->prefix, lvni_core_str_text(&s->standing), s->returned);
        /* an empty row */
        sink->owner = s->standing.len == 0 && sink->owner == s->id ? -1 : sink->owner;
    }
}

static size_t piece_room(const lvni_launch_stream *s)
{
    return LVNI_STREAM_PIECE - strlen(s->prefix) - 2;
}

/* More of an unfinished line; whole pieces of it are shown. Without a prefix bytes stay as they
 * are. */
static void add_to_line(lvni_launch_stream *s, const char *bytes, size_t n)
{
    if (s->line == NULL && (s->line = lvni_core_alloc(LVNI_TAG_CORE, LVNI_STREAM_PIECE)) == NULL) {
        show(s, bytes, n, false);
        return;
    }
    const size_t room = piece_room(s);
    while (n > 0) {
        const size_t part = n < room - s->n_line ? n : room - s->n_line;
        memcpy(s->line + s->n_line, bytes, part);
        s->n_line += part;
        bytes += part;
        n -= part;
        if (s->n_line == room) {
            const bool cut = s->prefix[0] != '\0';
            if (cut) {
                memcpy(s->line + room, "\\\n", 2);
            }
            show(s, s->line, cut ? room + 2 : room, cut);
            s->n_line = 0;
        }
    }
}

static void finish_line(lvni_launch_stream *s, const char *bytes, size_t n)
{
    if (s->n_line == 0 && n <= piece_room(s)) {
        show(s, bytes, n, true);
        return;
    }
    add_to_line(s, bytes, n);
    if (s->n_line > 0) {
        show(s, s->line, s->n_line, true);
        s->n_line = 0;
    } else {
        end_row(s->sink); /* the line's end was the last byte of a piece */
    }
}

/* The byte after the first line in [p, end), NULL when none ends there. "\r\n" is one end; a '\r'
 * at the very end may become one. */
static const char *line_end(const char *p, const char *end, const char *newline)
{
    const char *stop = newline != NULL ? newline : end;
    const char *cr = memchr(p, '\r', (size_t)(stop - p));
    if (cr != NULL && cr + 1 < end && cr[1] != '\n') {
        return cr + 1;
    }
    return newline != NULL ? newline + 1 : NULL;
}

static void show_lines(lvni_launch_stream *s, const char *bytes, size_t n)
{
    const char *p = bytes, *end = bytes + n;
    const char *newline = memchr(p, '\n', n);
    if (s->n_line > 0 && s->line[s->n_line - 1] == '\r' && *p != '\n') {
        show(s, s->line, s->n_line, true);
        s->n_line = 0;
    }
    while (p < end) {
        if (newline != NULL && newline < p) {
            newline = memchr(p, '\n', (size_t)(end - p));
        }
        const char *next = line_end(p, end, newline);
        if (next == NULL) {
            add_to_line(s, p, (size_t)(end - p));
            return;
        }
        finish_line(s, p, (size_t)(next - p));
        p = next;
    }
}

lvni_launch_stream_state lvni_launch_stream_read(lvni_launch_stream *s, uint64_t now_ns)
{
    static char bytes[READ_BYTES]; /* one launcher, one thread */
    for (int i = 0; i < READS; i++) {
        const ssize_t n = read(s->fd, bytes, sizeof bytes);
        if (n > 0) {
            s->last_ns = now_ns;
            (s->live ? write_standing : write_log)(s, bytes, (size_t)n);
            keep_tail(s, bytes, (size_t)n);
            if (s->sink != NULL) {
                show_lines(s, bytes, (size_t)n);
            }
            if (s->live) { /* at once: lines of others go above what is on the screen */
                lvni_launch_stream_idle(s, now_ns);
            }
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            return LVNI_STREAM_EMPTY;
        } else {
            close(s->fd);
            s->fd = -1;
            return LVNI_STREAM_END;
        }
    }
    return LVNI_STREAM_MORE;
}

uint64_t lvni_launch_stream_idle(lvni_launch_stream *s, uint64_t now_ns)
{
    if (s->n_line == 0) {
        return 0;
    }
    if (!s->live && now_ns - s->last_ns < SILENCE_NS) {
        return s->last_ns + SILENCE_NS;
    }
    show(s, s->line, s->n_line, s->line[s->n_line - 1] == '\r');
    s->n_line = 0;
    return 0;
}

void lvni_launch_stream_end(lvni_launch_stream *s)
{
    for (int i = 0;
         i < LAST_READS && s->fd >= 0 && lvni_launch_stream_read(s, s->last_ns) == LVNI_STREAM_MORE;
         i++) {
    }
    if (s->fd >= 0) { /* a process that is not ours holds the other end */
        close(s->fd);
        s->fd = -1;
    }
    if (s->n_line > 0) {
        show(s, s->line, s->n_line, false);
        s->n_line = 0;
    }
    if (s->sink != NULL && s->live && s->sink->status_id == s->id) {
        /* a row that was to be rewritten again */
        lvni_launch_sink_drop_status(s->sink);
    }
    if (s->sink != NULL && s->sink->owner == s->id && s->prefix[0] != '\0') {
        lvni_launch_sink_put(s->sink, "\n", 1);
        end_row(s->sink);
    }
    if (s->standing.len > 0) {
        s->returned = false;
        write_standing(s, "\n", 1);
    }
    if (s->log_fd >= 0) {
        close(s->log_fd);
        s->log_fd = -1;
    }
}

void lvni_launch_stream_free(lvni_launch_stream *s)
{
    lvni_launch_stream_end(s);
    lvni_core_free(s->prefix);
    lvni_core_free(s->line);
    lvni_core_free(s->tail);
    lvni_core_str_free(&s->standing);
    *s = (lvni_launch_stream){.fd = -1, .log_fd = -1};
}
