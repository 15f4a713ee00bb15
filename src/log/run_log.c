/* The process's logger (run_log.h): one lock around two places to write to, so that lines of several threads
 * never mix, and the status line of a terminal stays below the messages. */
#include "log/run_log.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "core/str.h"
#include "core/vfs.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PREFIX = 48, LINE = 2048, STATUS = 512 };

static struct logger {
    pthread_mutex_t lock;
    int fd; /* of the file, -1: none */
    char path[1024];
    bool quiet;
    bool keeping; /* no file yet, but one to come */
    lvni_str kept;
    int status_fd; /* -1: no status line on the screen */
    char status[STATUS];
} logger = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .status_fd = -1};

static const char *const names[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
static const char *const screen_prefixes[] = {"", "", "warning: ", "error: "};
static const char *const colours[] = {"", "", "\033[33m", "\033[31m"}; /* yellow, red */

/* To a screen or pipe. A reader that went away is no reason to stop training, so failures end the attempt
 * silently. */
static void put(int fd, const char *text, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(fd, text, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return;
        }
        text += done;
        n -= (size_t)done;
    }
}

static void put_status(void)
{
    char line[STATUS + 8];
    const int n = snprintf(line, sizeof line, "\r\033[K%s", logger.status);
    put(logger.status_fd, line, (size_t)n);
}

static void wipe_status(void)
{
    if (logger.status_fd >= 0) {
        put(logger.status_fd, "\r\033[K", 4);
    }
}

static void forget_kept(void)
{
    logger.keeping = false;
    lvni_str_free(&logger.kept);
}

static void close_file(void)
{
    if (logger.fd >= 0) {
        lvni_vfs_get()->close(logger.fd); /* every line was written by itself: nothing to lose here */
        logger.fd = -1;
    }
}

void lvni_log_keep(void)
{
    pthread_mutex_lock(&logger.lock);
    logger.keeping = logger.fd < 0;
    pthread_mutex_unlock(&logger.lock);
}

/* Writes what is complete. */
static void write_file(const char *text, size_t n)
{
    if (n > 0 && lvni_append_write(logger.fd, logger.path, text, n) != LVN_OK) {
        char told[1200];
        const int m = snprintf(told, sizeof told, "warning: %s; the run goes on without this log\n",
                               lvn_last_error()->message);
        wipe_status();
        put(STDERR_FILENO, told, (size_t)m);
        close_file();
    }
}

lvn_status lvni_log_open(const char *path, bool append)
{
    LVN_ARG(strlen(path) < sizeof logger.path, "the path of the log has %zu bytes, at most %zu are possible",
            strlen(path), sizeof logger.path - 1);
    int fd = -1;
    LVN_TRY(lvni_append_open(path, !append, &fd));
    pthread_mutex_lock(&logger.lock);
    close_file();
    logger.fd = fd;
    memcpy(logger.path, path, strlen(path) + 1);
    write_file(lvni_str_text(&logger.kept), logger.kept.len);
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

/* text[n] has room for one more byte. */
static void to_screen(lvni_log_level level, char *text, size_t n)
{
    const bool colour = level >= LVNI_LOG_WARNING && isatty(STDERR_FILENO) == 1;
    if (level == LVNI_LOG_DEBUG || (logger.quiet && level == LVNI_LOG_INFO)) {
        return;
    }
    wipe_status();
    put(STDERR_FILENO, colours[level], colour ? strlen(colours[level]) : 0);
    char *start =
        text - strlen(screen_prefixes[level]); /* there is room for the prefixes in front of the text */
    memcpy(start, screen_prefixes[level], strlen(screen_prefixes[level]));
    text[n] = '\n';
    put(STDERR_FILENO, start, (size_t)(text + n + 1 - start));
    put(STDERR_FILENO, "\033[0m", colour ? 4 : 0);
    if (logger.status_fd >= 0) {
        put_status();
    }
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
    length += (size_t)snprintf(prefix + length, sizeof prefix - length, ",%03ld][%s] ", now.tv_nsec / 1000000,
                               names[level]);
    char *start = text - length;
    memcpy(start, prefix, length);
    text[n] = '\n';
    if (logger.fd < 0) {
        lvni_str_append_n(&logger.kept, start, length + n + 1);
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

static void write_line(lvni_log_level level, bool screen, const char *fmt, va_list args) LVN_PRINTF(3, 0);

static void write_line(lvni_log_level level, bool screen, const char *fmt, va_list args)
{
    const lvn_error before = *lvn_last_error(); /* often the very error that is being told */
    char line[PREFIX + LINE + 2];               /* room for a prefix in front and the newline behind */
    va_list again;
    va_copy(again, args);
    size_t n = lvni_escape_format(line + PREFIX, LINE + 1, fmt, args);
    char *all = line;
    if (n > LINE) {
        all = lvni_alloc(LVNI_TAG_CORE, PREFIX + n + 2);
        if (all == NULL) {
            all = line; /* better cut than lost */
            n = strlen(line + PREFIX);
        } else {
            lvni_escape_format(all + PREFIX, n + 1, fmt, again);
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
        lvni_free(all);
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
    logger.status_fd = fd;
    snprintf(logger.status, sizeof logger.status, "%s", text);
    put_status();
    pthread_mutex_unlock(&logger.lock);
}

void lvni_log_status_end(bool keep)
{
    pthread_mutex_lock(&logger.lock);
    if (logger.status_fd >= 0) {
        if (keep) {
            put(logger.status_fd, "\n", 1);
        } else {
            wipe_status();
        }
        logger.status_fd = -1;
    }
    pthread_mutex_unlock(&logger.lock);
}
