/* Errors on standard error (error_record.h). */
#include "run/error_record.h"

#include "core/error.h"
#include "core/escape.h"
#include "core/signals.h"
#include "log/run_log.h"
#include "trainer/trainer.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static bool no_requeue;

void lvni_run_report_no_requeue(void)
{
    no_requeue = true;
}

static int code_of_stop(void)
{
    const int signal_number = lvni_trainer_stop_signal();
    return signal_number == SIGUSR1 ? no_requeue ? LVNI_EXIT_NO_REQUEUE : LVNI_EXIT_REQUEUE
           : signal_number == 0     ? LVNI_EXIT_FAILURE
                                    : lvni_core_exit_of_signal(signal_number);
}

static bool reported; /* a block stands on the screen already */
static int own_rank;  /* of several, 0 where there is one */

/* Where the status is reported later: the block now, where this rank prints, and
 * lvni_run_report_status then gives the code alone. */
static void report_block(const lvni_core_notices *notices)
{
    if (notices->error != 0 && notices->text.len > 0 && lvni_log_has_screen()) {
        reported = true;
        if (lvni_core_notices_should_print(notices)) {
            fputs(lvni_core_str_text(&notices->text), stderr);
        }
    }
}

void lvni_run_report_as_rank(int rank)
{
    own_rank = rank;
}

static void print_error(lvn_status status, const lvn_error *e)
{
    const char *prefix = status == LVN_ERR_CANCELLED ? "stopped: " : lvni_core_error_prefix(e);
    const char *message = e->message[0] != '\0' ? e->message : lvn_status_text(status);
    lvni_core_print(stderr, "%s%-s\n", prefix, message);
    for (int i = 0; i < e->n_frames; i++) {
        lvni_core_print(stderr, "  in %s\n", e->frames[i]);
    }
}

int lvni_run_report_status(lvn_status status)
{
    if (status == LVN_OK) {
        return LVNI_EXIT_OK;
    }
    lvni_core_signals_hold(); /* the message and the record are written to their end */
    const lvn_error *e = lvn_last_error();
    /* rank 0 reports it */
    const bool elsewhere = own_rank > 0 && (status == LVN_ERR_PEER || status == LVN_ERR_CANCELLED);
    if (!reported && !elsewhere) {
        print_error(status, e);
    }
    if (status == LVN_ERR_CANCELLED) {
        return code_of_stop();
    }
    const int code =
        (int)(e->code == status ? lvni_core_exit_of_error(e) : lvni_core_exit_of_status(status));
    lvni_core_error_record_write(e, code); /* where a launcher waits for it */
    return code;
}

/* notices->rank: above 0 where another rank reports them. quiet=true keeps warnings from the
 * screen. */
static void report_warnings(bool quiet, const lvni_core_notices *notices)
{
    const size_t skip = sizeof LVNI_WARNING_PREFIX - 1; /* the log has one of its own */
    const char *line = notices->rank > 0 ? NULL : notices->warnings.data;
    for (const char *end; line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        lvni_log_line(quiet ? LVNI_LOG_DEBUG : LVNI_LOG_WARNING, "%s%.*s", quiet ? "warning: " : "",
                      (int)(end - line - (ptrdiff_t)skip), line + skip);
    }
}

lvn_status lvni_run_report_start(lvn_status s, bool strict, bool quiet, lvni_core_notices *notices)
{
    if (s == LVN_OK && strict) {
        s = lvni_core_notices_refuse_warnings(notices);
    }
    report_warnings(quiet, notices);
    if (s == LVN_OK) {
        s = lvni_core_notices_status(notices);
    }
    if (s != LVN_OK) {
        report_block(notices);
    }
    lvni_core_notices_free(notices);
    return s;
}

int lvni_run_report_notices(lvn_status status, lvni_core_notices *notices)
{
    const bool block =
        status != LVN_OK && notices->error != 0 && lvni_core_notices_status(notices) == LVN_OK;
    const int code = block ? (int)lvni_core_notices_exit(notices) : lvni_run_report_status(status);
    if (block && lvni_core_notices_should_print(notices)) {
        fputs(lvni_core_str_text(&notices->text), stderr);
    }
    lvni_core_notices_free(notices);
    return code;
}
