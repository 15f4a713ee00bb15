/* Looking at a sweep, stopping it and going on: levin sweep status, best, show, export, stop and
 * resume. */
#include "cli/cli.h"
#include "cli/slurm_submit.h"
#include "cli/sweep.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/json_read.h"
#include "core/vfs.h"
#include "run/error_record.h"
#include "slurm/slurm_tool.h"
#include "sweep/sweep_control.h"
#include "sweep/sweep_jobs.h"
#include "sweep/sweep_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arguments ---- */

/* DIR, numbers of trials and the command's keys, in any order; DIR before what is another's. */
typedef struct arguments {
    const char *command; /* "show" */
    lvni_core_config *config;
    lvni_sweep_plan plan;
    int64_t *trials;
    int n_trials;
    const char **rest; /* what is another command's; borrowed texts */
    int n_rest;
} arguments;

static bool is_number(const char *text)
{
    return text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
}

static lvn_status refuse(const arguments *a, const char *text)
{
    LVN_FAIL(LVN_ERR_USAGE, "levin sweep %s does not take %s; see levin help sweep", a->command,
             text[0] == '\0' ? "an empty argument" : text);
}

static lvn_status take_trial(arguments *a, const char *text)
{
    a->trials[a->n_trials++] = strlen(text) < 18 ? strtoll(text, NULL, 10) : INT64_MAX;
    return LVN_OK;
}

static lvn_status check_trials(const arguments *a)
{
    for (int i = 0; i < a->n_trials; i++) {
        if (a->trials[i] >= a->plan.n_trials) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "levin sweep %s: trial %lld: %s has %lld trial%s, which are counted from 0 on",
                     a->command, (long long)a->trials[i], a->plan.dir, (long long)a->plan.n_trials,
                     lvni_core_plural(a->plan.n_trials, "", "s"));
        }
    }
    return LVN_OK;
}

/* most: how many trials it takes; rest: unknown arguments are another command's. */
static lvn_status read_arguments(arguments *a, lvni_core_option_list keys, int most, bool rest,
                                 int n, const char *const *args)
{
    const char *dir = NULL, *name, *text;
    LVN_TRY(lvni_core_config_create(keys, &a->config));
    a->trials = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n + 1, sizeof *a->trials);
    a->rest = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n + 1, sizeof *a->rest);
    if (a->trials == NULL || a->rest == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0, taken; i < n; i += taken) {
        taken = lvni_core_config_arguments_of(a->config, n - i, args + i, &name, &text);
        if (taken > 0 && name != NULL) {
            LVN_TRY(lvni_core_config_load_arguments(a->config, taken, args + i));
            continue;
        }
        taken = 1;
        if (dir == NULL && a->n_rest == 0 && args[i][0] != '-' && args[i][0] != '\0') {
            dir = args[i];
        } else if (is_number(args[i]) && a->n_trials < most) {
            LVN_TRY(take_trial(a, args[i]));
        } else if (rest) {
            a->rest[a->n_rest++] = args[i];
        } else {
            return refuse(a, args[i]);
        }
    }
    if (dir == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "levin sweep %s: the folder of a sweep is missing: levin sweep %s DIR", a->command,
                 a->command);
    }
    LVN_TRY(lvni_core_config_finish(a->config));
    LVN_TRY(lvni_sweep_plan_read(dir, &a->plan));
    return check_trials(a);
}

static void free_arguments(arguments *a)
{
    lvni_core_config_destroy(a->config);
    lvni_sweep_plan_free(&a->plan);
    lvni_core_free(a->trials);
    lvni_core_free(a->rest);
}

static lvn_status print(const lvni_core_str *out)
{
    LVN_TRY(lvni_core_str_status(out));
    fwrite(lvni_core_str_text(out), 1, out->len, stdout);
    return LVN_OK;
}

static int end(arguments *a, lvn_status s, int code)
{
    const int failed = lvni_run_report_status(s);
    free_arguments(a);
    return s == LVN_OK ? code : failed;
}

/* ---- keys ---- */

enum { PRINT, SORT, TOP, FORMAT, RETRY_FAILED, PRUNED };
static const lvni_core_option rows[] = {
    [PRINT] = {.name = "print",
               .type = LVNI_OPT_CHOICE,
               .choices = "line|params|checkpoint|command",
               .fallback = "line",
               .help = "best: a line with all, its parameters as arguments of a command, the path "
                       "of its checkpoint, or its command."},
    [SORT] = {.name = "sort",
              .type = LVNI_OPT_CHOICE,
              .choices = "best|index",
              .fallback = "best",
              .help = "show: the order, by the value of the metric, or by the trials' numbers."},
    [TOP] = {.name = "top",
             .type = LVNI_OPT_INT,
             .range = LVNI_AT_LEAST(1),
             .help = "show: only so many trials. Default: all."},
    [FORMAT] = {.name = "format",
                .type = LVNI_OPT_CHOICE,
                .choices = "table|tsv|json|md",
                .fallback = "table",
                .help = "show: columns below each other, tab-separated values, one JSON object, or "
                        "a table in Markdown."},
    [RETRY_FAILED] = {.name = "retry_failed",
                      .type = LVNI_OPT_BOOL,
                      .fallback = "false",
                      .help = "resume, submit: trials that failed run once more."},
    [PRUNED] = {.name = "pruned",
                .type = LVNI_OPT_INT_LIST,
                .range = LVNI_AT_LEAST(0),
                .help = "resume: numbers of pruned trials that go on."}};
const lvni_core_option_table lvni_cli_sweep_show_table = LVNI_OPTION_TABLE("looking", rows);

static const lvni_core_option json_row[] = {
    {.name = "json", .type = LVNI_OPT_BOOL, .fallback = "false", .help = "One JSON object."}};
static const lvni_core_option_table json_table = LVNI_OPTION_TABLE("status", json_row),
                                    best_table = {.title = "best", .rows = rows + PRINT, .n = 1},
                                    show_table = {.title = "show",
                                                  .rows = rows + SORT,
                                                  .n = FORMAT - SORT + 1},
                                    resume_table = {
                                        .title = "resume", .rows = rows + RETRY_FAILED, .n = 2};
static const lvni_core_option_table
    *const no_keys[] = {NULL},
           *const status_keys[] = {&json_table, NULL}, *const best_keys[] = {&best_table, NULL},
           *const show_keys[] = {&show_table, NULL}, *const resume_keys[] = {&resume_table, NULL};

/* ---- status ---- */

static lvn_status status_json(const lvni_sweep_table *t, bool stopped, lvni_core_str *out)
{
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(t->plan->name));
    json_object_set_new(o, "trials", json_integer(t->n));
    for (int i = 0; i < LVNI_SWEEP_STATES; i++) {
        json_object_set_new(o, lvni_sweep_state_name((lvni_sweep_state)i),
                            json_integer(t->counts[i]));
    }
    json_object_set_new(o, "stopped", json_boolean(stopped));
    lvni_core_json_print(o, 0, out);
    lvni_core_str_char(out, '\n');
    json_decref(o);
    return lvni_core_str_status(out);
}

/* What can be done about it. */
static void add_hints(const lvni_sweep_table *t, bool stopped, lvni_core_str *out)
{
    const int64_t *n = t->counts;
    const char *dir = t->plan->dir;
    if (stopped) {
        lvni_core_str_message(out, "stopped: levin sweep resume %s goes on\n", dir);
    } else if (n[LVNI_SWEEP_RUNNING] == 0 &&
               n[LVNI_SWEEP_PENDING] + n[LVNI_SWEEP_INTERRUPTED] + n[LVNI_SWEEP_LOST] > 0) {
        lvni_core_str_message(out, "not running: levin sweep run %s, or levin sweep submit %s\n",
                              dir, dir);
    }
    if (n[LVNI_SWEEP_FAILED] > 0) {
        lvni_core_str_message(out, "failed: levin sweep resume %s --retry-failed\n", dir);
    }
}

static void status_text(const lvni_sweep_table *t, bool stopped, lvni_core_str *out)
{
    lvni_core_str_message(out, "%s: %lld trial%s", t->plan->name, (long long)t->n,
                          lvni_core_plural(t->n, "", "s"));
    const char *mark = ": ";
    for (int i = LVNI_SWEEP_STATES - 1; i >= 0; i--) { /* what has ended first */
        if (t->counts[i] > 0) {
            lvni_core_str_printf(out, "%s%lld %s", mark, (long long)t->counts[i],
                                 lvni_sweep_state_name((lvni_sweep_state)i));
            mark = ", ";
        }
    }
    lvni_core_str_char(out, '\n');
    add_hints(t, stopped, out);
}

int lvni_cli_sweep_status(int n, const char *const *args)
{
    arguments a = {.command = "status"};
    lvni_sweep_table t = {.n = 0};
    lvni_core_str out = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, read_arguments(&a, status_keys, 0, false, n, args));
    LVNI_TRY_DONE(s, lvni_sweep_table_read(&a.plan, false, lvni_sweep_ask_host, NULL, &t));
    const bool stopped = lvni_sweep_is_stopped(&a.plan, -1);
    if (lvni_core_config_bool(a.config, "json")) {
        LVNI_TRY_DONE(s, status_json(&t, stopped, &out));
    } else {
        status_text(&t, stopped, &out);
    }
    s = print(&out);
done:
    lvni_core_str_free(&out);
    lvni_sweep_table_free(&t);
    return end(&a, s, LVNI_EXIT_OK);
}

/* ---- best ---- */

static void add_words(char *const *words, lvni_core_str *out)
{
    for (size_t i = 0; words != NULL && words[i] != NULL; i++) {
        lvni_core_str_append(out, i > 0 ? " " : "");
        lvni_core_shell_quote(out, words[i]);
    }
}

static void add_parameters(const lvni_sweep_trial *trial, lvni_core_str *out)
{
    for (size_t i = 0; trial->names != NULL && trial->names[i] != NULL; i++) {
        lvni_core_str word = {0};
        lvni_core_str_printf(&word, "%s=%s", trial->names[i], trial->values[i]);
        lvni_core_str_append(out, i > 0 ? " " : "");
        lvni_core_shell_quote(out, lvni_core_str_text(&word));
        out->failed = out->failed || word.failed;
        lvni_core_str_free(&word);
    }
}

static lvn_status print_best(const arguments *a, const lvni_sweep_row *row, lvni_core_str *out)
{
    const char *what = lvni_core_config_str(a->config, "print");
    if (strcmp(what, "params") == 0) {
        add_parameters(&row->trial, out);
    } else if (strcmp(what, "command") == 0) {
        add_words(row->trial.argv, out);
    } else if (strcmp(what, "checkpoint") == 0) {
        lvni_sweep_row_checkpoint(row, out);
        if (out->len == 0) {
            LVN_FAIL(LVN_ERR_NOT_FOUND, "trial %lld, the best, has not kept a checkpoint: %s",
                     (long long)row->trial.index, row->trial.dir);
        }
    } else {
        lvni_sweep_row_line(&a->plan, row, out);
    }
    lvni_core_str_char(out, '\n');
    return print(out);
}

int lvni_cli_sweep_best(int n, const char *const *args)
{
    arguments a = {.command = "best"};
    lvni_sweep_table t = {.n = 0};
    lvni_core_str out = {0};
    int code = LVNI_EXIT_OK;
    lvn_status s;
    LVNI_TRY_DONE(s, read_arguments(&a, best_keys, 0, false, n, args));
    LVNI_TRY_DONE(s, lvni_sweep_table_read(&a.plan, true, lvni_sweep_ask_host, NULL, &t));
    const lvni_sweep_row *row = lvni_sweep_table_best(&t);
    if (row != NULL) {
        s = print_best(&a, row, &out);
    } else {
        lvni_core_print(stderr,
                        "error: %s: none of its %lld trials has ended with a value of %s; "
                        "levin sweep status %s\n",
                        a.plan.dir, (long long)t.n, a.plan.metric, a.plan.dir);
        code = LVNI_EXIT_FAILURE;
    }
done:
    lvni_core_str_free(&out);
    lvni_sweep_table_free(&t);
    return end(&a, s, code);
}

/* ---- show, export ---- */

static lvni_sweep_format format_of(const arguments *a)
{
    static const struct {
        const char *name;
        lvni_sweep_format format;
    } all[] = {{"tsv", LVNI_SWEEP_TSV}, {"json", LVNI_SWEEP_JSON}, {"md", LVNI_SWEEP_MD}};
    const char *name = lvni_core_config_str(a->config, "format");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) == 0) {
            return all[i].format;
        }
    }
    return LVNI_SWEEP_TEXT;
}

static lvn_status show_all(const arguments *a, lvni_sweep_table *t, lvni_core_str *out)
{
    const lvni_sweep_format format = format_of(a);
    const int64_t most =
        lvni_core_config_is_set(a->config, "top") ? lvni_core_config_int(a->config, "top") : t->n;
    if (strcmp(lvni_core_config_str(a->config, "sort"), "best") == 0) {
        lvni_sweep_table_sort(t);
    }
    LVN_TRY(lvni_sweep_table_write(t, most, format, out));
    const lvni_sweep_row *best = lvni_sweep_table_best(t);
    if (best != NULL && (format == LVNI_SWEEP_TEXT || format == LVNI_SWEEP_MD)) {
        lvni_core_str_append(out, format == LVNI_SWEEP_MD ? "\nbest: " : "best: ");
        lvni_sweep_row_line(&a->plan, best, out);
        lvni_core_str_char(out, '\n');
    }
    return print(out);
}

/* Who has it, or had it. */
static void add_owner(const lvni_sweep_look *look, lvni_core_str *out)
{
    const lvni_sweep_owner *owner = &look->owner;
    if (owner->host[0] == '\0') { /* none, or it has ended */
        return;
    }
    lvni_core_str_message(out, "attempt %lld: host %s, process %lld%s%s\n",
                          (long long)look->attempt, owner->host, (long long)owner->pid,
                          owner->job[0] != '\0' ? ", job " : "", owner->job);
}

static void add_end(const lvni_sweep_plan *plan, const lvni_sweep_row *row, lvni_core_str *out)
{
    const lvni_sweep_result *r = &row->look.result;
    if (!lvni_sweep_state_is_end(row->look.state)) {
        return;
    }
    lvni_core_str_printf(out, "exit code %d after ", r->exit_code);
    lvni_sweep_time_print(r->seconds, out);
    lvni_core_str_printf(out, ", %lld epoch%s\n", (long long)r->epochs,
                         lvni_core_plural(r->epochs, "", "s"));
    if (r->has_value) {
        lvni_core_str_message(out, "%s: best ", plan->metric);
        lvni_core_str_double(out, r->value);
        lvni_core_str_printf(out, " at step %lld, epoch %lld, last ", (long long)r->step,
                             (long long)r->epoch);
        lvni_core_str_double(out, r->last);
        lvni_core_str_char(out, '\n');
    }
    if (r->checkpoint[0] != '\0') {
        lvni_core_str_message(out, "checkpoint: %s/%s\n", row->trial.dir, r->checkpoint);
    }
    if (r->error[0] != '\0') {
        lvni_core_str_message(out, "error: %s\n", r->error);
    }
}

static lvn_status show_one(const arguments *a, lvni_sweep_row *row, lvni_core_str *out)
{
    lvni_sweep_reader *reader = NULL;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_sweep_trial_read(&a->plan, a->trials[0], &row->trial));
    LVNI_TRY_DONE(s, lvni_sweep_reader_create(&a->plan, lvni_sweep_ask_host, NULL, NULL, &reader));
    LVNI_TRY_DONE(s, lvni_sweep_reader_look(reader, a->trials[0], &row->look));
    if (format_of(a) == LVNI_SWEEP_JSON) {
        json_t *o = lvni_sweep_row_json(row);
        LVNI_TRY_DONE(s, o == NULL ? LVN_ERR_MEMORY : LVN_OK);
        lvni_core_json_print(o, JSON_INDENT(1), out);
        json_decref(o);
        lvni_core_str_char(out, '\n');
    } else {
        lvni_core_str_printf(out, "trial %lld: %s\n", (long long)row->trial.index,
                             lvni_sweep_state_name(row->look.state));
        for (size_t i = 0; row->trial.names != NULL && row->trial.names[i] != NULL; i++) {
            lvni_core_str_message(out, "  %s=%s\n", row->trial.names[i], row->trial.values[i]);
        }
        lvni_core_str_append(out, "command: ");
        add_words(row->trial.argv, out);
        lvni_core_str_message(out, "\nlog: %s/log.txt\n", row->trial.dir);
        add_owner(&row->look, out);
        add_end(&a->plan, row, out);
    }
    s = print(out);
done:
    lvni_sweep_reader_destroy(reader);
    return s;
}

int lvni_cli_sweep_show(int n, const char *const *args)
{
    arguments a = {.command = "show"};
    lvni_sweep_table t = {.n = 0};
    lvni_sweep_row row = {.look = {.attempt = 0}};
    lvni_core_str out = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, read_arguments(&a, show_keys, 1, false, n, args));
    if (a.n_trials > 0) {
        s = show_one(&a, &row, &out);
    } else {
        LVNI_TRY_DONE(s, lvni_sweep_table_read(&a.plan, true, lvni_sweep_ask_host, NULL, &t));
        s = show_all(&a, &t, &out);
    }
done:
    lvni_core_str_free(&out);
    lvni_sweep_trial_free(&row.trial);
    lvni_sweep_table_free(&t);
    return end(&a, s, LVNI_EXIT_OK);
}

int lvni_cli_sweep_export(int n, const char *const *args)
{
    arguments a = {.command = "export"};
    lvni_sweep_table t = {.n = 0};
    lvni_core_str out = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, read_arguments(&a, no_keys, 0, false, n, args));
    LVNI_TRY_DONE(s, lvni_sweep_table_read(&a.plan, true, lvni_sweep_ask_host, NULL, &t));
    LVNI_TRY_DONE(s, lvni_sweep_table_write(&t, t.n, LVNI_SWEEP_CSV, &out));
    s = print(&out);
done:
    lvni_core_str_free(&out);
    lvni_sweep_table_free(&t);
    return end(&a, s, LVNI_EXIT_OK);
}

/* ---- stop ---- */

/* Jobs of the sweep that have not begun are cancelled; those that run see the file `stop`. */
static lvn_status cancel_jobs(const lvni_sweep_plan *plan, int64_t *cancelled)
{
    lvni_sweep_jobs jobs = {.n = 0};
    lvni_core_str queue = {0}, answer = {0};
    char **words = NULL;
    int code = 0;
    lvn_status s;
    *cancelled = 0;
    LVNI_TRY_DONE(s, lvni_cli_slurm_recover(plan->dir));
    LVNI_TRY_DONE(s, lvni_sweep_jobs_read(plan, &jobs));
    if (jobs.n == 0) {
        goto done;
    }
    LVNI_TRY_DONE(s, lvni_cli_sweep_queue(plan, &queue));
    LVNI_TRY_DONE(s, lvni_sweep_texts_add(&words, "scancel", 7));
    LVNI_TRY_DONE(s, lvni_sweep_texts_add(&words, "--state=PENDING", 15));
    LVNI_TRY_DONE(s, lvni_sweep_jobs_there(&jobs, lvni_core_str_text(&queue), &words));
    *cancelled = lvni_sweep_texts_count(words) - 2;
    if (*cancelled > 0) {
        LVNI_TRY_DONE(s, lvni_slurm_tool_run((const char *const *)words, LVNI_CLI_SWEEP_TOOL_MS,
                                             4096, &answer, &code));
    }
    if (code != 0) {
        s = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__,
                          "scancel: jobs of %s that wait were not cancelled: %s", plan->dir,
                          lvni_core_str_text(&answer));
    }
done:
    lvni_sweep_jobs_free(&jobs);
    lvni_sweep_texts_free(words);
    lvni_core_str_free(&queue);
    lvni_core_str_free(&answer);
    return s;
}

static lvn_status stop_all(const lvni_sweep_plan *plan)
{
    lvni_sweep_table t = {.n = 0};
    lvni_sweep_look *looks = NULL;
    int64_t asked = 0, cancelled = 0;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_sweep_stop(plan, -1)); /* first: none begins behind it */
    LVNI_TRY_DONE(s, lvni_sweep_table_read(plan, false, lvni_sweep_ask_host, NULL, &t));
    looks = lvni_core_calloc(LVNI_TAG_CORE, (size_t)t.n, sizeof *looks);
    LVNI_TRY_DONE(s, looks == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (int64_t i = 0; i < t.n; i++) {
        looks[i] = t.rows[i].look;
    }
    LVNI_TRY_DONE(s, lvni_sweep_stop_here(looks, t.n, &asked));
    LVNI_TRY_DONE(s, cancel_jobs(plan, &cancelled));
    lvni_core_print(stdout, "%s: stopped; %lld running trial%s end%s\n", plan->name,
                    (long long)t.counts[LVNI_SWEEP_RUNNING],
                    lvni_core_plural(t.counts[LVNI_SWEEP_RUNNING], "", "s"),
                    lvni_core_plural(t.counts[LVNI_SWEEP_RUNNING], "s", ""));
done:
    lvni_core_free(looks);
    lvni_sweep_table_free(&t);
    return s;
}

int lvni_cli_sweep_stop(int n, const char *const *args)
{
    arguments a = {.command = "stop"};
    lvn_status s;
    LVNI_TRY_DONE(s, read_arguments(&a, no_keys, n, false, n, args));
    for (int i = 0; i < a.n_trials; i++) {
        LVNI_TRY_DONE(s, lvni_sweep_stop(&a.plan, a.trials[i]));
    }
    if (a.n_trials == 0) {
        s = stop_all(&a.plan);
    } else {
        lvni_core_print(stdout, "%s: %d trial%s stopped\n", a.plan.name, a.n_trials,
                        lvni_core_plural(a.n_trials, "", "s"));
    }
done:
    return end(&a, s, LVNI_EXIT_OK);
}

/* ---- resume ---- */

static lvn_status again(const lvni_sweep_plan *plan, lvni_sweep_reader *reader, int64_t trial,
                        lvni_sweep_state state, bool must, int64_t *count)
{
    lvni_sweep_look look;
    LVN_TRY(lvni_sweep_reader_look(reader, trial, &look));
    if (look.state == state) {
        LVN_TRY(lvni_sweep_again(plan, trial, &look));
        *count += 1;
    } else if (must) {
        LVN_FAIL(LVN_ERR_USAGE, "pruned=%lld: trial %lld is %s, and not pruned", (long long)trial,
                 (long long)trial, lvni_sweep_state_name(look.state));
    }
    return LVN_OK;
}

lvn_status lvni_cli_sweep_prepare(const lvni_sweep_plan *plan, bool retry_failed,
                                  const int64_t *pruned, size_t n_pruned)
{
    lvni_sweep_reader *reader = NULL;
    int64_t count = 0;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_sweep_reader_create(plan, lvni_sweep_ask_host, NULL, NULL, &reader));
    for (size_t i = 0; i < n_pruned; i++) {
        if (pruned[i] >= plan->n_trials) {
            s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                              "pruned=%lld: %s has %lld trials, which are counted from 0 on",
                              (long long)pruned[i], plan->dir, (long long)plan->n_trials);
            goto done;
        }
        LVNI_TRY_DONE(s, again(plan, reader, pruned[i], LVNI_SWEEP_PRUNED, true, &count));
    }
    for (int64_t i = 0; retry_failed && i < plan->n_trials; i++) {
        LVNI_TRY_DONE(s, again(plan, reader, i, LVNI_SWEEP_FAILED, false, &count));
    }
    s = lvni_sweep_unstop(plan);
    if (s == LVN_OK && count > 0) {
        lvni_core_print(stderr, "levin: %lld trial%s of %s once more\n", (long long)count,
                        lvni_core_plural(count, "", "s"), plan->name);
    }
done:
    lvni_sweep_reader_destroy(reader);
    return s;
}

int lvni_cli_sweep_resume(int n, const char *const *args)
{
    arguments a = {.command = "resume"};
    size_t n_pruned;
    lvn_status s;
    int code = LVNI_EXIT_OK;
    LVNI_TRY_DONE(s, read_arguments(&a, resume_keys, 0, true, n, args));
    const int64_t *pruned = lvni_core_config_int_list(a.config, "pruned", &n_pruned);
    LVNI_TRY_DONE(s,
                  lvni_cli_sweep_prepare(&a.plan, lvni_core_config_bool(a.config, "retry_failed"),
                                         pruned, n_pruned));
    memmove(a.rest + 1, a.rest, (size_t)a.n_rest * sizeof *a.rest); /* room for one more */
    a.rest[0] = a.plan.dir;
    code = lvni_cli_sweep_run(a.n_rest + 1, a.rest);
done:
    return end(&a, s, code);
}
