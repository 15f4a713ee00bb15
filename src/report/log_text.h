/* What train.log holds of a run: its starts, how the last one ended, warnings and errors. */
#ifndef LEVIN_REPORT_LOG_TEXT_H
#define LEVIN_REPORT_LOG_TEXT_H

#include <levin/status.h>

#include <stdbool.h>

enum { LVNI_REPORT_STARTS = 50, LVNI_REPORT_MESSAGES = 100, LVNI_REPORT_LINES_OF_START = 60 };

/* Borrowed from the text of the log. */
typedef struct lvni_report_start {
    const char *time;    /* "2026-11-28 20:53:30" */
    const char *version; /* "levin 0.2.0, classify" */
    const char *resumed; /* "resuming from ...", or NULL */
    const char *end;     /* its last message */
} lvni_report_start;

/* A message, and how often it was logged. */
typedef struct lvni_report_message {
    const char *text;
    bool error; /* else a warning */
    int n;
} lvni_report_message;

typedef struct lvni_report_log {
    char *text; /* of the file; the texts point into it */
    /* the last LVNI_REPORT_STARTS of n_starts in all */
    lvni_report_start start[LVNI_REPORT_STARTS];
    int n_starts;
    lvni_report_message message[LVNI_REPORT_MESSAGES];
    int n_messages, more_messages;                 /* more: of other texts, not kept */
    const char *first[LVNI_REPORT_LINES_OF_START]; /* what the last start reported before a step */
    int n_first;
    bool stepped;        /* the last start made a step */
    bool done;           /* it ended as it should */
    const char *error;   /* its error, or NULL */
    const char *stopped; /* "stopped: Ctrl-C after step 48 ...", or NULL */
} lvni_report_log;

/* LVN_ERR_NOT_FOUND, LVN_ERR_IO (also of a log above 1 GiB), LVN_ERR_MEMORY. *out is to be freed in
 * any case. */
lvn_status lvni_report_log_read(const char *path, lvni_report_log *out);
void lvni_report_log_free(lvni_report_log *log);

#endif
