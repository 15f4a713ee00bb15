/* levin sweep report epoch=3 METRIC=0.2: called by a trial's program, whose environment names the
 * trial. The value becomes a line of the trial's metrics.jsonl, and strategy=asha decides with it
 * whether the trial goes on. */
#include "cli/cli.h"
#include "cli/sweep.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "launch/env_vars.h"
#include "run/error_record.h"
#include "sweep/sweep_asha.h"
#include "sweep/sweep_outcome.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- which trial ---- */

/* DIR of DIR/trials/000017, and 17. */
static lvn_status split_path(const char *path, lvni_core_str *dir, int64_t *trial)
{
    static const char folder[] = "/trials/";
    uint64_t number;
    const char *at = strstr(path, folder), *next;
    while (at != NULL && (next = strstr(at + 1, folder)) != NULL) {
        at = next; /* the last one: the sweep itself may lie in such a folder */
    }
    if (at == NULL || !lvni_launch_env_digits(at + strlen(folder), INT64_MAX, &number)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 LVNI_SWEEP_TRIAL_NAME
                 "=%.200s: expected the folder of a trial, DIR/trials/000017, as a worker gives it",
                 path);
    }
    lvni_core_str_append_n(dir, path, (size_t)(at - path));
    *trial = (int64_t)number;
    return lvni_core_str_status(dir);
}

static lvn_status find_trial(lvni_core_str *dir, lvni_sweep_report *out)
{
    const char *path = lvni_launch_env_get(environ, LVNI_SWEEP_TRIAL_NAME),
               *attempt = lvni_launch_env_get(environ, LVNI_SWEEP_ATTEMPT_NAME);
    uint64_t number;
    if (path == NULL || attempt == NULL || !lvni_launch_env_digits(attempt, INT64_MAX, &number)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "levin sweep report is called by the program of a trial, and "
                 "finds the trial in " LVNI_SWEEP_TRIAL_NAME " and " LVNI_SWEEP_ATTEMPT_NAME
                 ", which levin sweep run sets: pass them on");
    }
    out->attempt = (int64_t)number;
    return split_path(path, dir, &out->trial);
}

/* ---- what it reports ---- */

/* "nan" and "inf" are values, too. */
static bool read_value(const char *text, double *out)
{
    char *end;
    *out = lvni_core_strtod(text, &end);
    return end != text && *end == '\0';
}

static lvn_status take_arguments(const lvni_sweep_plan *plan, int n, const char *const *args,
                                 lvni_sweep_report *out)
{
    const size_t length = strlen(plan->metric);
    bool has_epoch = false, has_value = false;
    for (int i = 0; i < n; i++) {
        const char *arg = args[i] + (strncmp(args[i], "--", 2) == 0 ? 2 : 0);
        uint64_t epoch;
        if (strncmp(arg, "epoch=", 6) == 0 &&
            lvni_launch_env_digits(arg + 6, LVNI_SWEEP_MOST_EPOCHS, &epoch)) {
            out->epoch = (int64_t)epoch;
            has_epoch = true;
        } else if (strncmp(arg, plan->metric, length) == 0 && arg[length] == '=' &&
                   read_value(arg + length + 1, &out->value)) {
            has_value = true;
        } else {
            LVN_FAIL(LVN_ERR_USAGE,
                     "levin sweep report: %s: expected epoch=N, the number of epochs that are "
                     "done, and %s=VALUE, the metric of the sweep",
                     args[i], plan->metric);
        }
    }
    if (!has_epoch || !has_value) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "levin sweep report: %s is missing: levin sweep report epoch=N "
                 "%s=VALUE",
                 has_epoch ? plan->metric : "epoch", plan->metric);
    }
    return LVN_OK;
}

/* A line of the trial's metrics.jsonl, in one write; what is not finite is null. */
static lvn_status add_line(const lvni_sweep_plan *plan, const lvni_sweep_report *r)
{
    lvni_core_str path = {0}, line = {0};
    int fd = -1;
    lvn_status s;
    lvni_sweep_trial_path(plan, r->trial, &path);
    lvni_core_str_append(&path, "/" LVNI_SWEEP_RUN "/metrics.jsonl");
    lvni_core_str_printf(&line, "{\"step\": %" PRId64 ", \"epoch\": %" PRId64 ", ", r->epoch,
                         r->epoch);
    lvni_core_str_json(&line, plan->metric);
    lvni_core_str_append(&line, ": ");
    if (isfinite(r->value)) {
        lvni_core_str_double(&line, r->value);
    } else {
        lvni_core_str_append(&line, "null");
    }
    lvni_core_str_append(&line, "}\n");
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_core_str_status(&line));
    LVNI_TRY_DONE(s, lvni_core_append_open(path.data, false, &fd));
    s = lvni_core_append_write(fd, path.data, line.data, line.len);
done:
    if (fd >= 0) {
        (void)lvni_core_vfs_get()->close(fd);
    }
    lvni_core_str_free(&path);
    lvni_core_str_free(&line);
    return s;
}

/* Sweeps of other strategies take reports, too: their trials always go on. */
int lvni_cli_sweep_report(int n, const char *const *args)
{
    lvni_sweep_plan plan = {.dir = NULL};
    lvni_sweep_report report = {.trial = 0};
    lvni_sweep_owner self;
    lvni_core_str dir = {0};
    bool stop = false;
    lvn_status s;
    LVNI_TRY_DONE(s, find_trial(&dir, &report));
    LVNI_TRY_DONE(s, lvni_sweep_plan_read(lvni_core_str_text(&dir), &plan));
    LVNI_TRY_DONE(s, take_arguments(&plan, n, args, &report));
    if (plan.training) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "levin sweep report: the trials of %s are trainings of levin, which "
                          "write their metrics themselves",
                          plan.dir);
        goto done;
    }
    LVNI_TRY_DONE(s, add_line(&plan, &report));
    lvni_sweep_owner_self(&self);
    if (lvni_sweep_plan_prunes(&plan)) {
        LVNI_TRY_DONE(s, lvni_sweep_asha_report(&plan, &report, &self, &stop));
    }
    lvni_core_print(stdout, "%s\n", stop ? "stop" : "continue");
done:
    lvni_sweep_plan_free(&plan);
    lvni_core_str_free(&dir);
    return s == LVN_OK ? LVNI_EXIT_OK : lvni_run_report_status(s);
}
