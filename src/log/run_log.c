/* Loggers (run_log.h), each with one lock around two places to write to, so that lines of several
 * threads never mix, and the status line of a terminal stays below the messages. */
#include "log/run_log.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/machine.h"
#include "core/str.h"
#include "core/training.h"
#include "core/vfs.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { PREFIX = 48, LINE = 2048, STATUS = 512 };

struct lvni_log_logger {
    pthread_mutex_t lock;
    /* of a host program: in place of the screen; NULL: nowhere */
    lvni_log_receiver receive;
    void *user;
    int fd; /* of the file, -1: none */
    char path[1024];
    bool quiet, verbose;
    bool keeping; /* no file yet, but one to come */
    lvni_core_str kept;
    int report_fd;
    char status[STATUS];
};

static lvni_log_logger of_process = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .report_fd = STDERR_FILENO};

static lvni_log_logger *get(void)
{
    lvni_log_logger *own = lvni_core_training_get()->log;
    return own != NULL ? own : &of_process;
}

static const char *const names[] = {"DEBUG", "INFO", "INFO", "WARNING", "ERROR"};
static const char *const screen_prefixes[] = {"", "", "", "warning: ", "error: "};
static const char *const colours[] = {"", "", "", "\033[33m", "\033[31m"}; /* yellow, red */

/* One system call when all goes well: a line of a signal handler comes before or behind it. */
static void put_parts(int fd, struct iovec *part, int n)
{
    size_t left = 0;
    for (int i = 0; i < n; i++) {
        left += part[i].iov_len;
    }
    ssize_t done;
    do {
        done = writev(fd, part, n);
    } while (done < 0 && errno == EINTR);
    for (int i = 0; done >= 0 && (size_t)done < left && i < n; i++) {
        const size_t skip = (size_t)done < part[i].iov_len ? (size_t)done : part[i].iov_len;
        lvni_core_terminal_put(fd, (const char *)part[i].iov_base + skip, part[i].iov_len - skip);
        done -= (ssize_t)skip;
        left -= part[i].iov_len;
    }
}

static struct iovec part_of(const char *text)
{
    return (struct iovec){.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
}

/* As much as fits: the window may be narrower by now. */
static struct iovec status_part(const lvni_log_logger *l, int fd)
{
    struct winsize size;
    struct iovec part = part_of(l->status);
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 && part.iov_len >= size.ws_col) {
        part.iov_len = size.ws_col - 1u;
    }
    return part;
}

static void put_status(const lvni_log_logger *l, int fd)
{
    struct iovec part[] = {part_of(LVNI_TERMINAL_ERASE), status_part(l, fd), part_of("\r")};
    put_parts(fd, part, 3);
}

static void forget_kept(lvni_log_logger *l)
{
    l->keeping = false;
    lvni_core_str_free(&l->kept);
}

static void close_file(lvni_log_logger *l)
{
    if (l->fd >= 0) {
        /* every line was written by itself: nothing to lose here */
        lvni_core_vfs_get()->close(l->fd);
        l->fd = -1;
    }
}

lvn_status lvni_log_create(lvni_log_receiver receive, void *user, lvni_log_logger **out)
{
    *out = LVNI_NEW(LVNI_TAG_CORE, lvni_log_logger);
    if (*out == NULL) {
        return LVN_ERR_MEMORY;
    }
    **out = (lvni_log_logger){.receive = receive, .user = user, .fd = -1, .report_fd = -1};
    pthread_mutex_init(&(*out)->lock, NULL);
    return LVN_OK;
}

void lvni_log_destroy(lvni_log_logger *l)
{
    if (l != NULL) {
        close_file(l);
        forget_kept(l);
        pthread_mutex_destroy(&l->lock);
        lvni_core_free(l);
    }
}

bool lvni_log_has_screen(void)
{
    return get() == &of_process;
}

void lvni_log_buffer(void)
{
    lvni_log_logger *l = get();
    pthread_mutex_lock(&l->lock);
    l->keeping = l->fd < 0;
    pthread_mutex_unlock(&l->lock);
}

/* Whole lines: above the status line where that is on the same terminal. */
static void put_line(const lvni_log_logger *l, int fd, const char *colour, const char *text,
                     size_t n)
{
    const int status_fd = lvni_core_terminal_status_fd();
    const bool above = status_fd >= 0 && lvni_core_terminal_same(status_fd, fd);
    struct iovec part[] = {part_of(above ? LVNI_TERMINAL_ERASE : ""),
                           part_of(colour),
                           {.iov_base = (void *)(uintptr_t)text, .iov_len = n},
                           part_of(colour[0] != '\0' ? "\033[0m" : ""),
                           above ? status_part(l, status_fd) : part_of(""),
                           part_of(above ? "\r" : "")};
    put_parts(fd, part, 6);
}

/* Writes what is complete. */
static void write_file(lvni_log_logger *l, const char *text, size_t n)
{
    if (n > 0 && lvni_core_append_write(l->fd, l->path, text, n) != LVN_OK) {
        char reported[1200] = "warning: ";
        const size_t skip = strlen(reported);
        const int m = snprintf(reported + skip, sizeof reported - skip,
                               "%s; the run goes on without this log\n", lvn_last_error()->message);
        if (l == &of_process) {
            put_line(l, STDERR_FILENO, "", reported, skip + (size_t)m);
        } else if (l->receive != NULL) {
            reported[skip + (size_t)m - 1] = '\0';
            l->receive(l->user, LVNI_LOG_WARNING, reported + skip);
        }
        close_file(l);
    }
}

lvn_status lvni_log_open(const char *path, bool append)
{
    LVN_ARG(strlen(path) < sizeof of_process.path,
            "the path of the log has %zu bytes, at most %zu are possible", strlen(path),
            sizeof of_process.path - 1);
    int fd = -1;
    LVN_TRY(lvni_core_append_open(path, !append, &fd));
    lvni_log_logger *l = get();
    pthread_mutex_lock(&l->lock);
    close_file(l);
    l->fd = fd;
    memcpy(l->path, path, strlen(path) + 1);
    write_file(l, lvni_core_str_text(&l->kept), l->kept.len);
    forget_kept(l);
    pthread_mutex_unlock(&l->lock);
    return LVN_OK;
}

void lvni_log_close(void)
{
    lvni_log_logger *l = get();
    pthread_mutex_lock(&l->lock);
    close_file(l);
    forget_kept(l);
    pthread_mutex_unlock(&l->lock);
}

void lvni_log_set_quiet(bool quiet)
{
    lvni_log_logger *l = get();
    pthread_mutex_lock(&l->lock);
    l->quiet = quiet;
    pthread_mutex_unlock(&l->lock);
}

void lvni_log_set_verbose(bool verbose)
{
    lvni_log_logger *l = get();
    pthread_mutex_lock(&l->lock);
    l->verbose = verbose;
    pthread_mutex_unlock(&l->lock);
}

void lvni_log_set_report(int fd)
{
    lvni_log_logger *l = get();
    pthread_mutex_lock(&l->lock);
    l->report_fd = fd;
    pthread_mutex_unlock(&l->lock);
}

static bool is_shown(const lvni_log_logger *l, lvni_log_level level)
{
    switch (level) {
    case LVNI_LOG_DEBUG: return false;
    case LVNI_LOG_DETAIL: return l->verbose && !l->quiet;
    case LVNI_LOG_INFO: return !l->quiet;
    default: return true;
    }
}

/* text[n] has room for one more byte. */
static void to_screen(const lvni_log_logger *l, lvni_log_level level, char *text, size_t n)
{
    if (!is_shown(l, level)) {
        return;
    }
    if (l != &of_process) {
        text[n] = '\0';
        if (l->receive != NULL) {
            l->receive(l->user, level, text);
        }
        return;
    }
    const int fd = level >= LVNI_LOG_WARNING ? STDERR_FILENO : l->report_fd;
    const bool coloured = colours[level][0] != '\0' && lvni_core_terminal_has_colours(fd);
    char *start =
        /* there is room for the prefixes in front of the text */
        text - strlen(screen_prefixes[level]);
    memcpy(start, screen_prefixes[level], strlen(screen_prefixes[level]));
    text[n] = '\n';
    fflush(stdout); /* what the program printed before stands before it */
    put_line(l, fd, coloured ? colours[level] : "", start, (size_t)(text + n + 1 - start));
}

static void to_file(lvni_log_logger *l, lvni_log_level level, char *text, size_t n)
{
    if (l->fd < 0 && !l->keeping) {
        return;
    }
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    char prefix[PREFIX + 1];
    size_t length = strftime(prefix, sizeof prefix, "[%Y-%m-%d %H:%M:%S", &local);
    length += (size_t)snprintf(prefix + length, sizeof prefix - length, ",%03ld][%s] ",
                               now.tv_nsec / 1000000, names[level]);
    char *start = text - length;
    memcpy(start, prefix, length);
    text[n] = '\n';
    if (l->fd < 0) {
        lvni_core_str_append_n(&l->kept, start, length + n + 1);
    } else {
        write_file(l, start, length + n + 1);
    }
}

static _Thread_local bool follower;

bool lvni_log_set_follower(bool is_one)
{
    const bool was = follower;
    follower = is_one;
    return was;
}

static void write_line(lvni_log_level level, bool screen, const char *fmt, va_list args)
    LVN_PRINTF(3, 0);

static void write_line(lvni_log_level level, bool screen, const char *fmt, va_list args)
{
    const lvn_error before = *lvn_last_error(); /* often the very error that is being logged */
    /* room for a prefix in front and the newline behind */
    char line[PREFIX + LINE + 2];
    va_list again;
    va_copy(again, args);
    size_t n = lvni_core_escape_format(line + PREFIX, LINE + 1, fmt, args);
    char *all = line;
    if (n > LINE) {
        all = lvni_core_alloc(LVNI_TAG_CORE, PREFIX + n + 2);
        if (all == NULL) {
            all = line; /* better cut than lost */
            n = strlen(line + PREFIX);
        } else {
            lvni_core_escape_format(all + PREFIX, n + 1, fmt, again);
        }
    }
    va_end(again);
    lvni_log_logger *l = get();
    pthread_mutex_lock(&l->lock);
    if (screen) {
        to_screen(l, level, all + PREFIX, n);
    }
    to_file(l, level, all + PREFIX, n);
    pthread_mutex_unlock(&l->lock);
    if (all != line) {
        lvni_core_free(all);
    }
    lvni_core_error_restore(&before);
}

void lvni_log_line(lvni_log_level level, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!follower || level == LVNI_LOG_ERROR) {
        write_line(level, true, fmt, args);
    }
    va_end(args);
}

void lvni_log_file_line(lvni_log_level level, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    write_line(level, false, fmt, args);
    va_end(args);
}

void lvni_log_status_line(int fd, const char *text)
{
    lvni_log_logger *l = get();
    pthread_mutex_lock(&l->lock);
    snprintf(l->status, sizeof l->status, "%s", text);
    lvni_core_terminal_set_status_fd(fd);
    put_status(l, fd);
    pthread_mutex_unlock(&l->lock);
}

void lvni_log_status_end(void)
{
    lvni_log_logger *l = get();
    pthread_mutex_lock(&l->lock);
    const int fd = lvni_core_terminal_status_fd();
    if (fd >= 0) {
        lvni_core_terminal_put(fd, LVNI_TERMINAL_ERASE, strlen(LVNI_TERMINAL_ERASE));
        lvni_core_terminal_set_status_fd(-1);
    }
    pthread_mutex_unlock(&l->lock);
}
