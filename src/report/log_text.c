/* Reads train.log (log_text.h), whose lines are "[2026-11-28 20:53:30,003][INFO] text". */
#include "report/log_text.h"

#include "core/alloc.h"
#include "core/vfs.h"

#include <string.h>

static const size_t MOST_BYTES = (size_t)1 << 30;
enum { TIME = 19 }; /* bytes of the time to the second */

/* The level of a line, and its text in *text; NULL: a line that goes on from the one before. */
static const char *read_line(char *line, const char **time, char **text)
{
    if (line[0] != '[' || strlen(line) < TIME + 2) {
        return NULL;
    }
    char *close = strchr(line, ']');
    if (close == NULL || close - line < TIME + 1 || close[1] != '[') {
        return NULL;
    }
    char *level = close + 2, *end = strchr(level, ']');
    if (end == NULL || end[1] != ' ') {
        return NULL;
    }
    line[1 + TIME] = '\0';
    *end = '\0';
    *time = line + 1;
    *text = end + 2;
    return level;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static lvni_report_start *add_start(lvni_report_log *log)
{
    if (log->n_starts >= LVNI_REPORT_STARTS) { /* the first is forgotten */
        memmove(log->start, log->start + 1, (LVNI_REPORT_STARTS - 1) * sizeof *log->start);
    }
    log->n_starts++;
    log->n_first = 0;
    log->done = log->stepped = false;
    log->error = log->stopped = NULL;
    const int i = log->n_starts < LVNI_REPORT_STARTS ? log->n_starts : LVNI_REPORT_STARTS;
    log->start[i - 1] = (lvni_report_start){.time = NULL};
    return &log->start[i - 1];
}

static void add_message(lvni_report_log *log, const char *text, bool error)
{
    for (int i = 0; i < log->n_messages; i++) {
        if (log->message[i].error == error && strcmp(log->message[i].text, text) == 0) {
            log->message[i].n++;
            return;
        }
    }
    if (log->n_messages == LVNI_REPORT_MESSAGES) {
        log->more_messages++;
        return;
    }
    log->message[log->n_messages++] = (lvni_report_message){text, error, 1};
}

/* What follows the end of the training, as predictions do, is not how the start ended, unless it
 * failed or was stopped there. */
static bool is_end(const lvni_report_log *log, const char *text, bool error)
{
    return !log->done || error || begins(text, "stopped: ");
}

static void add_line(lvni_report_log *log, lvni_report_start **now, char *line)
{
    const char *time = NULL;
    char *text = NULL;
    const char *level = read_line(line, &time, &text);
    if (level == NULL) {
        return;
    }
    if (begins(text, "levin ") && text[6] >= '0' && text[6] <= '9' && strcmp(level, "INFO") == 0 &&
        strchr(text, ',') != NULL) {
        *now = add_start(log);
        **now = (lvni_report_start){.time = time, .version = text};
    } else if (begins(text, "resuming from") && *now != NULL) {
        (*now)->resumed = text;
    }
    const bool error = strcmp(level, "ERROR") == 0;
    if (error || begins(level, "WARN")) {
        add_message(log, text, error);
    }
    log->error = error ? text : log->error;
    log->stopped = begins(text, "stopped: ") ? text : log->stopped;
    if (*now != NULL && strcmp(level, "DEBUG") != 0 && is_end(log, text, error)) {
        (*now)->end = text;
    }
    log->done = log->done || begins(text, "done after ");
    log->stepped = log->stepped || strcmp(level, "DEBUG") == 0 || begins(text, "epoch ");
    if (!log->stepped && log->n_first < LVNI_REPORT_LINES_OF_START && strcmp(level, "INFO") == 0) {
        log->first[log->n_first++] = text;
    }
}

lvn_status lvni_report_log_read(const char *path, lvni_report_log *out)
{
    size_t n;
    memset(out, 0, sizeof *out);
    LVN_TRY(lvni_core_regular_read(path, MOST_BYTES, &out->text, &n));
    lvni_report_start *now = NULL;
    char *end = out->text + n;
    for (char *line = out->text; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop == NULL ? end : stop;
        *stop = '\0'; /* the text has one more byte */
        add_line(out, &now, line);
        line = stop + 1;
    }
    return LVN_OK;
}

void lvni_report_log_free(lvni_report_log *log)
{
    lvni_core_free(log->text);
    memset(log, 0, sizeof *log);
}
