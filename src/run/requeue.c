/* `scontrol requeue` (requeue.h): Slurm ends a job as soon as it accepts, so this is the last thing
 * that rank 0 does. */
#include "run/requeue.h"

#include "core/machine.h"
#include "core/str.h"
#include "launch/env_vars.h"
#include "log/run_log.h"
#include "run/error_record.h"
#include "run/run_dir.h"
#include "slurm/slurm_tool.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIMIT_S = 60, QUERY_S = 10, TRIES = 3, BETWEEN_S = 1, ANSWER = 4096 };
enum { MARGIN_S = 60 }; /* for the step under way, a checkpoint and scontrol */
enum { LATER_S = 10 };  /* squeue prints whole seconds, and a limit grows by minutes */

static const char *variable(const char *name)
{
    return lvni_launch_env_get(lvni_run_environment(), name);
}

bool lvni_run_requeue_job(char *id, size_t size)
{
    const char *array = variable("SLURM_ARRAY_JOB_ID"), *task = variable("SLURM_ARRAY_TASK_ID"),
               *het = variable("SLURM_JOB_ID_HET_GROUP_0"), *job = variable("SLURM_JOB_ID");
    const int n = array != NULL && task != NULL
                      ? snprintf(id, size, "%s_%s", array, task)
                      : snprintf(id, size, "%s", het != NULL && job != NULL ? het : job);
    /* it becomes an argument of a program */
    return job != NULL && n > 0 && (size_t)n < size && strspn(id, "0123456789_") == (size_t)n;
}

int lvni_run_requeue_restarts(void)
{
    const char *text = variable("SLURM_RESTART_COUNT");
    return text == NULL ? 0 : (int)strtol(text, NULL, 10);
}

/* Its exit code; what it printed is added to `text`. */
static int call(const char *const argument[], int limit_s, lvni_core_str *text)
{
    int code = 0;
    if (lvni_slurm_tool_run_in(lvni_run_environment(), argument, 1000 * limit_s, ANSWER, text,
                               &code) != LVN_OK) {
        lvni_core_str_append(text, lvn_last_error()->message);
        lvn_clear_error();
        return LVNI_SLURM_TOOL_NOT_FOUND;
    }
    const bool killed =
        code == lvni_core_exit_of_signal(SIGTERM) || code == lvni_core_exit_of_signal(SIGKILL);
    return killed ? 0 : code; /* Slurm ends the job with all its processes as soon as it accepts */
}

/* One line of it, without the end of the line. */
static const char *one_line(lvni_core_str *text)
{
    for (size_t i = 0; i < text->len; i++) {
        text->data[i] = text->data[i] == '\n' ? ' ' : text->data[i];
    }
    while (text->len > 0 && text->data[text->len - 1] == ' ') {
        text->data[--text->len] = '\0';
    }
    return lvni_core_str_text(text);
}

static void mark(const char *dir)
{
    if (dir != NULL && lvni_run_dir_mark_requeued(dir) != LVN_OK) {
        lvni_log_line(LVNI_LOG_WARNING, "the job is requeued, and its script cannot know that: %s",
                      lvn_last_error()->message);
        lvn_clear_error();
    }
}

static void ask_slurm(const char *id, const char *dir)
{
    lvni_core_str text = {0};
    const char *const argument[] = {"scontrol", "requeue", id, NULL};
    int code = LVNI_SLURM_TOOL_NOT_FOUND;
    for (int i = 0; i < TRIES; i++) {
        text.len = 0;
        code = call(argument, LIMIT_S, &text);
        if (code == 0 || code == LVNI_SLURM_TOOL_NOT_FOUND || i + 1 == TRIES) {
            break;
        }
        sleep(BETWEEN_S);
    }
    if (code == 0) {
        mark(dir);
        lvni_log_line(LVNI_LOG_INFO,
                      "job %s is requeued: its next start goes on from the checkpoint", id);
    } else {
        lvni_log_line(LVNI_LOG_WARNING,
                      "the job is not requeued: scontrol requeue %s: %s (exit code %d); repeat the "
                      "command by hand, or start a job with resume=true",
                      id, one_line(&text), code);
    }
    lvni_core_str_free(&text);
}

/* `levin launch --max-restarts` asked for the stop, to go on at once with another step of this job,
 * on more nodes (launch_elastic.c). */
static bool job_continues(void)
{
    const char *path = variable("LEVIN_CONTINUES_FILE");
    struct stat st;
    return path != NULL && stat(path, &st) == 0 && st.st_size > 0;
}

static void request_requeue(const char *id, const char *dir, bool often, bool advanced)
{
    const int restarts = lvni_run_requeue_restarts();
    if (often) {
        lvni_log_line(
            LVNI_LOG_WARNING,
            "the job is not requeued: it was %d time%s, as often as max_requeues= allows; "
            "start a job with resume=true",
            restarts, lvni_core_plural(restarts, "", "s"));
    } else if (!advanced && restarts > 0) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "the job is not requeued: there was no step since its last start, and the "
                      "next would be no better (requeue loop); give the job more time");
    } else {
        lvni_log_line(LVNI_LOG_INFO, "scontrol requeue %s", id);
        ask_slurm(id, dir);
    }
}

lvn_status lvni_run_requeue(const lvni_run_rank *rank, const char *dir, bool wanted, int64_t most,
                            bool advanced)
{
    char id[48];
    if (!wanted || !lvni_run_requeue_job(id, sizeof id)) {
        return LVN_OK;
    }
    const bool often = most > 0 && lvni_run_requeue_restarts() >= most;
    if (often) {
        lvni_run_report_no_requeue();
    }
    if (rank->rank == 0 && !job_continues()) {
        request_requeue(id, dir, often, advanced);
    }
    return rank->comm == NULL
               ? LVN_OK
               : lvni_dist_comm_agree_status(rank->comm, LVN_OK, "the request to requeue");
}

/* "5:00", "1:05:00", "2-01:05:00"; below 0: "UNLIMITED" and other words. */
static double seconds_left(const char *text)
{
    double days = 0.0, s = 0.0;
    const char *dash = strchr(text, '-');
    if (text[0] < '0' || text[0] > '9' || strchr(text, ':') == NULL) {
        return -1.0;
    }
    if (dash != NULL) {
        days = (double)strtol(text, NULL, 10);
        text = dash + 1;
    }
    for (;;) {
        char *end;
        s = 60.0 * s + (double)strtol(text, &end, 10);
        if (*end != ':') {
            return 86400.0 * days + s;
        }
        text = end + 1;
    }
}

/* 0: none is known. */
static double ask_time_left(void)
{
    const char *id = variable("SLURM_JOB_ID");
    char own[48];
    if (id == NULL || !lvni_run_requeue_job(own, sizeof own)) {
        return 0.0;
    }
    lvni_core_str text = {0};
    const char *const argument[] = {"squeue", "-h", "-j", id, "-o", "%L", NULL};
    const int code = call(argument, QUERY_S, &text);
    const double s = code == 0 ? seconds_left(lvni_core_str_text(&text)) : -1.0;
    lvni_log_line(LVNI_LOG_DEBUG, "time left of job %s: %s", id, one_line(&text));
    lvni_core_str_free(&text);
    return s > 0.0 ? s : 0.0;
}

static uint64_t end_ns; /* of the job, as Slurm last reported it */

uint64_t lvni_run_requeue_stop_ns(void)
{
    const uint64_t now = lvni_core_now_ns();
    const double s = ask_time_left();
    end_ns = now + (uint64_t)(1e9 * s);
    return s <= 0.0 ? 0 : now + (uint64_t)(1e9 * (s > 2.0 * MARGIN_S ? s - MARGIN_S : s / 2.0));
}

uint64_t lvni_run_requeue_stop_later(void)
{
    const uint64_t before_ns = end_ns, stop_ns = lvni_run_requeue_stop_ns();
    return end_ns > before_ns + (uint64_t)(1e9 * LATER_S) ? stop_ns : 0;
}
