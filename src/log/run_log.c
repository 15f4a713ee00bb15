/* The process's logger (run_log.h): one lock around two places to write to, so that lines of
 * several threads never mix, and the status line of a terminal stays below the messages. */
#include "log/run_log.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "core/machine.h"
#include "core/str.h"
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

static struct logger {
    pthread_mutex_t lock;
    int fd; /* of the file, -1: none */
    char path[1024];
    bool quiet, verbose;
    bool keeping; /* no file yet, but one to come */
    lvni_core_str kept;
    int report_fd;
    char status[STATUS];
} logger = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .report_fd = STDERR_FILENO};

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
static struct iovec status_part(int fd)
{
    struct winsize size;
    struct iovec part = part_of(logger.status);
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 && part.iov_len >= size.ws_col) {
        part.iov_len = size.ws_col - 1u;
    }
    return part;
}

static void put_status(int fd)
{
    struct iovec part[] = {part_of(LVNI_TERMINAL_ERASE), status_part(fd), part_of("\r")};
    put_parts(fd, part, 3);
}

static void forget_kept(void)
{
    logger.keeping = false;
    lvni_core_str_free(&logger.kept);
}

static void close_file(void)
{
    if (logger.fd >= 0) {
        /* every line was written by itself: nothing to lose here */
        lvni_core_vfs_get()->close(logger.fd);
        logger.fd = -1;
    }
}

void lvni_log_buffer(void)
{
    pthread_mutex_lock(&logger.lock);
    logger.keeping = logger.fd < 0;
    pthread_mutex_unlock(&logger.lock);
}

/* Whole lines: above the status line where that is on the same terminal. */
static void put_line(int fd, const char *colour, const char *text, size_t n)
{
    const int status_fd = lvni_core_terminal_status_fd();
    const bool above = status_fd >= 0 && lvni_core_terminal_same(status_fd, fd);
    struct iovec part[] = {part_of(above ? LVNI_TERMINAL_ERASE : ""),
                           part_of(colour),
                           {.iov_base = (void *)(uintptr_t)text, .iov_len = n},
                           part_of(colour[0] != '\0' ? "\033[0m" : ""),
                           above ? status_part(status_fd) : part_of(""),
                           part_of(above ? "\r" : "")};
    put_parts(fd, part, 6);
}

/* Writes what is complete. */
static void write_file(const char *text, size_t n)
{
    if (n > 0 && lvni_core_append_write(logger.fd, logger.path, text, n) != LVN_OK) {
        char reported[1200];
        const int m =
            snprintf(reported, sizeof reported, "warning: %s; the run goes on without this log\n",
                     lvn_last_error()->message);
        put_line(STDERR_FILENO, "", reported, (size_t)m);
        close_file();
    }
}

lvn_status lvni_log_open(const char *path, bool append)
{
    LVN_ARG(strlen(path) < sizeof logger.path,
            "the path of the log has %zu bytes, at most %zu are possible", strlen(path),
            sizeof logger.path - 1);
    int fd = -1;
    LVN_TRY(lvni_core_append_open(path, !append, &fd));
    pthread_mutex_lock(&logger.lock);
    close_file();
    logger.fd = fd;
    memcpy(logger.path, path, strlen(path) + 1);
    write_file(lvni_core_str_text(&logger.kept), logger.kept.len);
    forget_kept();
    pthread_mutex_unlock(&logger.lock);
    return LVN_OK;
}

void lvni_log_close(void)
{
    pthread_mutex_lock(&logger.lock);
    close_file();
    forget_kept();
    pthread_mutex_unlock(&logger.lock);
}

void lvni_log_set_quiet(bool quiet)
{
    pthread_mutex_lock(&logger.lock);
    logger.quiet = quiet;
    pthread_mutex_unlock(&logger.lock);
}

void lvni_log_set_verbose(bool verbose)
{
    pthread_mutex_lock(&logger.lock);
    logger.verbose = verbose;
    pthread_mutex_unlock(&logger.lock);
}

void lvni_log_set_report(int fd)
{
    pthread_mutex_lock(&logger.lock);
    logger.report_fd = fd;
    pthread_mutex_unlock(&logger.lock);
}

static bool is_shown(lvni_log_level level)
{
    switch (level) {
    case LVNI_LOG_DEBUG: return false;
    case LVNI_LOG_DETAIL: return logger.verbose && !logger.quiet;
    case LVNI_LOG_INFO: return !logger.quiet;
    default: return true;
    }
}

/* text[n] has room for one more byte. */
static void to_screen(lvni_log_level level, char *text, size_t n)
{
    if (!is_shown(level)) {
        return;
    }
    const int fd = level >= LVNI_LOG_WARNING ? STDERR_FILENO : logger.report_fd;
    const bool coloured = colours[level][0] != '\0' && lvni_core_terminal_has_colours(fd);
    char *start =
        /* there is room for the prefixes in front of the text */
        text - strlen(screen_prefixes[level]);
    memcpy(start, screen_prefixes[level], strlen(screen_prefixes[level]));
    text[n] = '\n';
    fflush(stdout); /* what the program printed before stands before it */
    put_line(fd, coloured ? colours[level] : "", start, (size_t)(text + n + 1 - start));
}

static void to_file(lvni_log_level level, char *text, size_t n)
{
    if (logger.fd < 0 && !logger.keeping) {
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
    if (logger.fd < 0) {
        lvni_core_str_append_n(&logger.kept, start, length + n + 1);
    } else {
        write_file(start, length + n + 1);
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
    pthread_mutex_lock(&logger.lock);
    if (screen) {
        to_screen(level, all + PREFIX, n);
    }
    to_file(level, all + PREFIX, n);
    pthread_mutex_unlock(&logger.lock);
    if (all != line) {
        lvni_core_free(all);
    }
    lvn_error_adopt(&before);
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
    pthread_mutex_lock(&logger.lock);
    snprintf(logger.status, sizeof logger.status, "%s", text);
    lvni_core_terminal_set_status_fd(fd);
    put_status(fd);
    pthread_mutex_unlock(&logger.lock);
}

void lvni_log_status_end(void)
{
    pthread_mutex_lock(&logger.lock);
    const int fd = lvni_core_terminal_status_fd();
    if (fd >= 0) {
        lvni_core_terminal_put(fd, LVNI_TERMINAL_ERASE, strlen(LVNI_TERMINAL_ERASE));
        lvni_core_terminal_set_status_fd(-1);
    }
    pthread_mutex_unlock(&logger.lock);
}
