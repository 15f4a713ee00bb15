/* What a run reports: to the screen and to train.log. On the screen warnings and errors are
 * standard error's; all else goes to standard output in training, which has no other results, and
 * to standard error in other commands. Thread-safe; called from everywhere above core. A process
 * has one logger, and each training of a host program (core/training.h) one of its own, which has a
 * receiver in place of the screen. Lines of the file: [YYYY-MM-DD hh:mm:ss,mmm][LEVEL] text.
 * Logging never fails a run and never touches the thread's last error: a file that cannot be
 * written any more is reported once and left alone. */
#ifndef LEVIN_LOG_RUN_LOG_H
#define LEVIN_LOG_RUN_LOG_H

#include <levin/status.h>

typedef enum lvni_log_level {
    LVNI_LOG_DEBUG,   /* file only */
    LVNI_LOG_DETAIL,  /* file; on the screen only when verbose. "[INFO]" in the file */
    LVNI_LOG_INFO,    /* not on the screen when quiet */
    LVNI_LOG_WARNING, /* "warning: text" */
    LVNI_LOG_ERROR    /* "error: text" */
} lvni_log_level;

typedef struct lvni_log_logger lvni_log_logger;
/* A line as the screen would show it: by its level, quiet and verbose. Called on the thread that
 * logs, one line after the other; text: without prefix and newline. */
typedef void (*lvni_log_receiver)(void *user, lvni_log_level level, const char *text);
/* For lvni_core_training.log. receive may be NULL. */
lvn_status lvni_log_create(lvni_log_receiver receive, void *user, lvni_log_logger **out);
void lvni_log_destroy(lvni_log_logger *logger); /* NULL is fine */
/* The calling thread's lines go to a screen, not to a receiver. */
bool lvni_log_has_screen(void);

/* The functions below are about the calling thread's logger.
 *
 * Keeps lines from now on for the file that will be opened, once the run has a directory. */
void lvni_log_buffer(void);
/* From now on also into the file at path, behind the lines that were kept. Closes the one before.
 * append = false empties it. */
lvn_status lvni_log_open(const char *path, bool append);
void lvni_log_close(void); /* and forgets kept lines */
void lvni_log_set_quiet(bool quiet);
void lvni_log_set_verbose(bool verbose);
/* Lines below warnings go to fd: STDOUT_FILENO or STDERR_FILENO (the default). */
void lvni_log_set_report(int fd);
/* The calling thread belongs to a rank other than 0, which logs the same: only its errors are
 * logged. Returns the earlier setting: a warning that no other rank has goes between two calls. */
bool lvni_log_set_follower(bool follower);

void lvni_log_line(lvni_log_level level, const char *fmt, ...) LVN_PRINTF(2, 3);
/* Into the file alone, of any rank: what is printed elsewhere. */
void lvni_log_file_line(lvni_log_level level, const char *fmt, ...) LVN_PRINTF(2, 3);

/* The one line at the bottom of a terminal that is rewritten again and again (progress.c). Messages
 * appear above it. fd: the terminal; text: without newline, no wider than the terminal. The cursor
 * stands at its beginning, so that a window made narrower, which wraps the line, still lets all of
 * it be erased. */
void lvni_log_status_line(int fd, const char *text);
void lvni_log_status_end(void); /* erases it */

#endif
