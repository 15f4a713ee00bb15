/* levin slurm status|cancel|requeue|signal|nodes|shell: jobs and nodes as tables, and what is asked
 * of Slurm for a job. One squeue for all jobs of a call (slurm_found.c); logs and why are in files
 * of their own. */
#include "cli/cli.h"
#include "cli/slurm_found.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "launch/env_vars.h"
#include "launch/host_list.h"
#include "run/error_record.h"
#include "slurm/slurm_grammar.h"
#include "slurm/slurm_jobs_nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- tables ---- */

enum { COLUMNS = 8 };

/* Cells in rows of `columns`; the first row has their names. */
typedef struct grid {
    size_t columns, n, room;
    char **cell;
    bool failed;
} grid;

static void grid_add(grid *g, const char *text)
{
    if (g->n == g->room) {
        const size_t room = g->room == 0 ? 64 : 2 * g->room;
        char **grown = lvni_core_realloc(LVNI_TAG_CORE, g->cell, room * sizeof *grown);
        if (grown == NULL) {
            g->failed = true;
            return;
        }
        g->cell = grown;
        g->room = room;
    }
    lvni_core_str one = {0};
    lvni_core_str_escape(&one, text[0] == '\0' ? "-" : text, strlen(text) + (text[0] == '\0'),
                         LVNI_ESCAPE_TEXT);
    g->failed = g->failed || one.failed;
    g->cell[g->n++] = lvni_core_str_take(&one);
}

static size_t characters(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++) {
        n += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return n;
}

static lvn_status grid_print(const grid *g)
{
    size_t width[COLUMNS] = {0};
    if (g->failed) {
        return LVN_ERR_MEMORY;
    }
    for (size_t i = 0; i < g->n; i++) {
        const size_t n = characters(g->cell[i]), c = i % g->columns;
        width[c] = n > width[c] ? n : width[c];
    }
    for (size_t i = 0; i < g->n; i++) {
        const size_t c = i % g->columns;
        const bool last = c + 1 == g->columns;
        lvni_core_print(stdout, "%s", g->cell[i]);
        for (size_t k = characters(g->cell[i]); !last && k < width[c] + 2; k++) {
            putchar(' ');
        }
        if (last) {
            putchar('\n');
        }
    }
    return LVN_OK;
}

static void grid_free(grid *g)
{
    for (size_t i = 0; i < g->n; i++) {
        lvni_core_free(g->cell[i]);
    }
    lvni_core_free(g->cell);
}

/* `{"key":"text",...}` in a list, one object a line. */
static void json_text(lvni_core_str *out, const char *key, const char *text)
{
    const bool first = out->len > 0 && out->data[out->len - 1] == '{';
    lvni_core_str_printf(out, "%s\"%s\":", first ? "" : ",", key);
    lvni_core_str_json(out, text);
}

static void json_begin(lvni_core_str *out)
{
    lvni_core_str_append(out, out->len == 0 ? "[{" : ",\n {");
}

static lvn_status json_print(lvni_core_str *out)
{
    lvni_core_str_append(out, out->len == 0 ? "[]\n" : "]\n");
    const lvn_status s = lvni_core_str_status(out);
    if (s == LVN_OK) {
        fputs(lvni_core_str_text(out), stdout);
    }
    return s;
}

/* ---- status ---- */

static lvni_slurm_phase phase_of(const lvni_cli_slurm_line *line, char word[LVNI_SLURM_STATE_TEXT])
{
    return lvni_slurm_state_read(lvni_cli_slurm_field(line, LVNI_SLURM_JOB_STATE), word);
}

/* Is the line about one of the jobs that were asked for? */
static bool is_asked(const lvni_cli_slurm_found *f, const lvni_cli_slurm_line *line)
{
    for (size_t i = 0; i < f->n; i++) {
        if (f->list[i].id[0] != '\0' &&
            lvni_slurm_id_covers(f->list[i].id, lvni_cli_slurm_field(line, LVNI_SLURM_JOB_ID),
                                 lvni_cli_slurm_field(line, LVNI_SLURM_JOB_RAW))) {
            return true;
        }
        if (f->list[i].by_name &&
            strcmp(lvni_cli_slurm_field(line, LVNI_SLURM_JOB_NAME), f->list[i].word) == 0 &&
            strcmp(lvni_cli_slurm_field(line, LVNI_SLURM_JOB_USER), f->user) == 0) {
            return true;
        }
    }
    return f->n == 0;
}

/* Where it runs, or why not. */
static const char *place_of(const lvni_cli_slurm_line *line, lvni_slurm_phase phase)
{
    const char *nodes = lvni_cli_slurm_field(line, LVNI_SLURM_JOB_NODELIST),
               *reason = lvni_cli_slurm_field(line, LVNI_SLURM_JOB_REASON);
    const bool none = strcmp(reason, "None") == 0;
    return phase == LVNI_SLURM_RUNS || none || reason[0] == '\0' ? nodes : reason;
}

static void add_job(grid *g, const lvni_cli_slurm_line *line, bool users)
{
    char word[LVNI_SLURM_STATE_TEXT];
    const lvni_slurm_phase phase = phase_of(line, word);
    grid_add(g, lvni_cli_slurm_field(line, LVNI_SLURM_JOB_ID));
    grid_add(g, lvni_cli_slurm_field(line, LVNI_SLURM_JOB_NAME));
    if (users) {
        grid_add(g, lvni_cli_slurm_field(line, LVNI_SLURM_JOB_USER));
    }
    grid_add(g, word);
    grid_add(g, lvni_cli_slurm_field(line, LVNI_SLURM_JOB_ELAPSED));
    grid_add(g, lvni_cli_slurm_field(line, LVNI_SLURM_JOB_LIMIT));
    grid_add(g, lvni_cli_slurm_field(line, LVNI_SLURM_JOB_NODES));
    grid_add(g, place_of(line, phase));
}

static void add_job_json(lvni_core_str *out, const lvni_cli_slurm_line *line)
{
    static const struct {
        const char *key;
        lvni_slurm_job_field field;
    } all[] = {{"job", LVNI_SLURM_JOB_ID},          {"name", LVNI_SLURM_JOB_NAME},
               {"user", LVNI_SLURM_JOB_USER},       {"state", LVNI_SLURM_JOB_STATE},
               {"elapsed", LVNI_SLURM_JOB_ELAPSED}, {"limit", LVNI_SLURM_JOB_LIMIT},
               {"nodes", LVNI_SLURM_JOB_NODES},     {"nodelist", LVNI_SLURM_JOB_NODELIST},
               {"reason", LVNI_SLURM_JOB_REASON}};
    char word[LVNI_SLURM_STATE_TEXT];
    (void)phase_of(line, word);
    json_begin(out);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        json_text(out, all[i].key, lvni_cli_slurm_field(line, all[i].field));
    }
    json_text(out, "state_text", word);
    lvni_core_str_char(out, '}');
}

/* A job that only levin's own records have. */
static void add_forgotten(const lvni_cli_slurm_found *f, const lvni_cli_slurm_meant *m, grid *g,
                          lvni_core_str *out, bool json)
{
    static const char word[] = "ended";
    const char *name =
        m->sent ? lvni_slurm_table_at(&f->sent, m->sent_row, LVNI_SLURM_SENT_NAME) : "";
    if (json) {
        json_begin(out);
        json_text(out, "job", m->id);
        json_text(out, "name", name);
        json_text(out, "state", "");
        json_text(out, "state_text", word);
        lvni_core_str_char(out, '}');
        return;
    }
    grid_add(g, m->id);
    grid_add(g, name);
    if (g->columns == COLUMNS) {
        grid_add(g, f->user);
    }
    grid_add(g, word);
    for (int i = 0; i < 3; i++) {
        grid_add(g, "");
    }
    grid_add(g, "forgotten by Slurm; levin slurm why has the rest");
}

static bool has_others(const lvni_cli_slurm_found *f)
{
    lvni_cli_slurm_line line;
    size_t at = 0;
    while (lvni_cli_slurm_next(f, NULL, &at, &line)) {
        if (is_asked(f, &line) &&
            strcmp(lvni_cli_slurm_field(&line, LVNI_SLURM_JOB_USER), f->user) != 0) {
            return true;
        }
    }
    return false;
}

/* Jobs that run, then those that wait, then those that have ended. */
static void add_jobs(const lvni_cli_slurm_found *f, bool json, grid *g, lvni_core_str *out)
{
    lvni_cli_slurm_line line;
    char word[LVNI_SLURM_STATE_TEXT];
    for (int turn = 0; turn < 3; turn++) {
        size_t at = 0;
        while (lvni_cli_slurm_next(f, NULL, &at, &line)) {
            const lvni_slurm_phase phase = phase_of(&line, word);
            const int own = phase == LVNI_SLURM_RUNS ? 0 : lvni_slurm_phase_is_end(phase) ? 2 : 1;
            if (own != turn || !is_asked(f, &line)) {
                continue;
            }
            if (json) {
                add_job_json(out, &line);
            } else {
                add_job(g, &line, g->columns == COLUMNS);
            }
        }
    }
}

static lvn_status print_status(const lvni_cli_slurm_found *f, bool json, int *code)
{
    static const char *const names[] = {"JOB",  "NAME",  "USER",  "STATE",
                                        "TIME", "LIMIT", "NODES", "WHERE OR WHY"};
    const bool users = has_others(f);
    grid g = {.columns = users ? COLUMNS : COLUMNS - 1};
    lvni_core_str out = {0};
    for (size_t i = 0; i < COLUMNS; i++) {
        if (users || i != 2) {
            grid_add(&g, names[i]);
        }
    }
    add_jobs(f, json, &g, &out);
    for (size_t i = 0; i < f->n; i++) {
        lvni_cli_slurm_line line;
        size_t at = 0;
        if (lvni_cli_slurm_next(f, &f->list[i], &at, &line) && f->list[i].id[0] != '\0') {
            continue;
        }
        if (f->list[i].id[0] != '\0' && (f->list[i].sent || f->list[i].run_dir != NULL)) {
            add_forgotten(f, &f->list[i], &g, &out, json);
        } else {
            lvni_cli_slurm_unknown(f, &f->list[i]);
            *code = LVNI_EXIT_FAILURE;
        }
    }
    const lvn_status s = json                    ? json_print(&out)
                         : g.n > g.columns       ? grid_print(&g)
                         : *code == LVNI_EXIT_OK ? (puts("no jobs"), LVN_OK)
                                                 : LVN_OK;
    grid_free(&g);
    lvni_core_str_free(&out);
    return s;
}

/* Options that the commands share; words[] gets the others. -1: a mistake was printed. */
typedef struct options {
    lvni_cli_slurm_request request;
    const char **words;
    bool json, batch, full, all, each;
    const char *user, *partition;
} options;

static int unknown_option(const char *command, const char *arg)
{
    lvni_core_print(stderr,
                    "error: levin slurm %s: there is no option %s; levin help slurm lists them\n",
                    command, arg);
    return LVNI_EXIT_USAGE;
}

/* flags: of the letters those that the command takes: j --json, a --all, b --batch, f --full,
 * u --user, p --partition, N --each, l --log-dir. */
static int read_options(const char *command, const char *flags, int n, const char *const *args,
                        options *o)
{
    *o = (options){.request = {.log_dir = LVNI_CLI_LOG_DIR}};
    o->words = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n + 1, sizeof *o->words);
    if (o->words == NULL) {
        return lvni_run_report_status(LVN_ERR_MEMORY);
    }
    const struct {
        const char *name, *other;
        char flag;
        bool *on;
        const char **value;
    } all[] = {{"json", "", 'j', &o->json, NULL},
               {"all", "-a", 'a', &o->all, NULL},
               {"me", "", 'a', NULL, NULL}, /* as it is anyway */
               {"batch", "-b", 'b', &o->batch, NULL},
               {"full", "", 'f', &o->full, NULL},
               {"each", "-N", 'N', &o->each, NULL},
               {"user", "-u", 'u', NULL, &o->user},
               {"partition", "-p", 'p', NULL, &o->partition},
               {"log-dir", "", 'l', NULL, &o->request.log_dir}};
    for (int i = 0; i < n; i++) {
        bool taken = args[i][0] != '-';
        if (taken) {
            o->words[o->request.n++] = args[i];
        }
        for (size_t k = 0; !taken && k < sizeof all / sizeof *all; k++) {
            const char *v = NULL;
            if (strchr(flags, all[k].flag) == NULL) {
                continue;
            }
            if (all[k].value == NULL) {
                taken = strcmp(args[i], all[k].other) == 0 ||
                        (strncmp(args[i], "--", 2) == 0 && strcmp(args[i] + 2, all[k].name) == 0);
                if (taken && all[k].on != NULL) {
                    *all[k].on = true;
                }
            } else if ((strcmp(args[i], all[k].other) == 0 && i + 1 < n &&
                        (v = args[++i]) != NULL) ||
                       (v = lvni_cli_slurm_value(n, args, &i, all[k].name)) != NULL) {
                *all[k].value = v;
                taken = true;
            }
        }
        if (!taken) {
            lvni_core_free(o->words);
            return unknown_option(command, args[i]);
        }
    }
    o->request.words = o->words;
    return LVNI_EXIT_OK;
}

int lvni_cli_slurm_status(int n, const char *const *args)
{
    options o;
    lvni_cli_slurm_found found;
    int code = read_options("status", "jal", n, args, &o);
    if (code != LVNI_EXIT_OK) {
        return code;
    }
    o.request.everyone = o.all;
    o.request.history = true;
    lvn_status s = lvni_cli_slurm_find(&o.request, &found, &code);
    if (s == LVN_OK && code == LVNI_EXIT_OK) {
        s = print_status(&found, o.json, &code);
        lvni_cli_slurm_found_free(&found);
    }
    lvni_core_free(o.words);
    return s == LVN_OK ? code : lvni_run_report_status(s);
}

/* ---- cancel, requeue, signal ---- */

typedef struct act {
    const char *name, *past; /* "cancel", "cancelled" */
    bool ended_too;          /* of jobs that have ended, too */
    bool runs;               /* only of jobs that run */
    const char *signal;      /* NULL: none */
} act;

static int none_of_yours(const lvni_cli_slurm_meant *m, const char *user, const act *a)
{
    lvni_core_print(stderr,
                    "error: job %s is a job of %s, and is left alone: --user=%s does %s it\n",
                    m->id, user, user, a->name);
    return LVNI_EXIT_RESOURCE;
}

/* May the job be touched, and does that make sense? An error was printed where not. */
static bool may_touch(const lvni_cli_slurm_found *f, const lvni_cli_slurm_meant *m, const act *a,
                      const options *o, int *code)
{
    lvni_cli_slurm_line line;
    size_t at = 0;
    int n = 0, good = 0;
    char word[LVNI_SLURM_STATE_TEXT] = "";
    if (m->several > 1 && !o->all) {
        lvni_core_print(stderr,
                        "error: %d jobs of the name `%s` wait or run: give numbers (levin slurm "
                        "status %s lists them)\n",
                        m->several, m->word, m->word);
        *code = LVNI_EXIT_USAGE;
        return false;
    }
    while (lvni_cli_slurm_next(f, m, &at, &line)) {
        const char *user = lvni_cli_slurm_field(&line, LVNI_SLURM_JOB_USER);
        const lvni_slurm_phase phase = phase_of(&line, word);
        if (strcmp(user, o->user == NULL ? f->user : o->user) != 0) {
            *code = none_of_yours(m, user, a);
            return false;
        }
        n++;
        good += a->runs                          ? phase == LVNI_SLURM_RUNS
                : lvni_slurm_phase_is_end(phase) ? a->ended_too
                                                 : 1;
    }
    if (n == 0 && m->id[0] != '\0' && (m->sent || m->run_dir != NULL)) {
        lvni_core_print(stderr, "error: job %s has ended, and Slurm has forgotten it\n", m->id);
    } else if (n == 0) {
        lvni_cli_slurm_unknown(f, m);
        *code = LVNI_EXIT_FAILURE;
        return false;
    } else if (good == 0) {
        lvni_core_print(stderr, "error: job %s is not %s: its state is `%s`%s\n", m->id, a->past,
                        word, a->runs ? ", and a signal is for one that runs" : "");
    }
    *code = good > 0 ? *code : LVNI_EXIT_RESOURCE;
    return good > 0;
}

/* Slurm's command for the jobs, in one call. */
static lvn_status do_act(const act *a, const options *o, const char *ids, int *code)
{
    lvni_core_str out = {0}, signal = {0}, words = {0};
    const char *argv[64];
    int n = 0, exit_code = 0;
    char *rest = NULL, *id;
    lvn_status s;
    const bool requeue = strcmp(a->name, "requeue") == 0;
    argv[n++] = requeue ? "scontrol" : "scancel";
    if (requeue) {
        argv[n++] = "requeue";
    }
    if (a->signal != NULL) {
        lvni_core_str_printf(&signal, "--signal=%s", a->signal);
        argv[n++] = lvni_core_str_text(&signal);
    }
    if (o->batch) {
        argv[n++] = "--batch";
    }
    if (o->full) {
        argv[n++] = "--full";
    }
    lvni_core_str_append(&words, ids);
    LVNI_TRY_DONE(s, lvni_core_str_status(&signal));
    LVNI_TRY_DONE(s, lvni_core_str_status(&words));
    if (requeue) {
        argv[n++] = lvni_core_str_text(&words); /* a list with commas */
    } else {
        for (id = strtok_r(words.data, ",", &rest);
             id != NULL && n + 1 < (int)(sizeof argv / sizeof *argv);
             id = strtok_r(NULL, ",", &rest)) {
            argv[n++] = id;
        }
    }
    argv[n] = NULL;
    LVNI_TRY_DONE(s, lvni_cli_slurm_call(argv, &out, &exit_code));
    /* scancel reports a refusal and exits with 0 */
    if (exit_code != 0 || strstr(lvni_core_str_text(&out), "error:") != NULL) {
        *code = lvni_cli_slurm_refused(argv[0], exit_code, &out);
        goto done;
    }
    lvni_core_print(stdout, "%-s", lvni_core_str_text(&out));
    lvni_core_print(stdout, "%s%s%s: %s\n", a->past, a->signal != NULL ? " " : "",
                    a->signal != NULL ? a->signal : "", ids);
done:
    lvni_core_str_free(&out);
    lvni_core_str_free(&signal);
    lvni_core_str_free(&words);
    return s;
}

enum { JOBS_AT_ONCE = 50 };

static lvn_status act_on(const lvni_cli_slurm_found *f, const act *a, const options *o, int *code)
{
    lvni_core_str ids = {0};
    lvn_status s = LVN_OK;
    for (size_t i = 0; i < f->n; i++) {
        const lvni_cli_slurm_meant *m = &f->list[i];
        lvni_cli_slurm_line line;
        size_t at = 0;
        if (!may_touch(f, m, a, o, code)) {
            continue;
        }
        if (!m->by_name || m->several < 2) {
            lvni_core_str_printf(&ids, "%s%s", ids.len > 0 ? "," : "", m->id);
            continue;
        }
        while (lvni_cli_slurm_next(f, NULL, &at, &line)) { /* all of that name */
            char word[LVNI_SLURM_STATE_TEXT];
            if (strcmp(lvni_cli_slurm_field(&line, LVNI_SLURM_JOB_NAME), m->word) == 0 &&
                strcmp(lvni_cli_slurm_field(&line, LVNI_SLURM_JOB_USER), f->user) == 0 &&
                !lvni_slurm_phase_is_end(phase_of(&line, word))) {
                lvni_core_str_printf(&ids, "%s%s", ids.len > 0 ? "," : "",
                                     lvni_cli_slurm_field(&line, LVNI_SLURM_JOB_ID));
            }
        }
    }
    s = lvni_core_str_status(&ids);
    for (const char *p = lvni_core_str_text(&ids); s == LVN_OK && *p != '\0';) {
        lvni_core_str some = {0};
        const char *end = p;
        for (int k = 0; k < JOBS_AT_ONCE && *end != '\0'; k++) {
            end += strcspn(end, ",") + (k + 1 < JOBS_AT_ONCE && strchr(end, ',') != NULL);
        }
        lvni_core_str_append_n(&some, p, (size_t)(end - p));
        s = lvni_core_str_status(&some);
        s = s == LVN_OK ? do_act(a, o, lvni_core_str_text(&some), code) : s;
        lvni_core_str_free(&some);
        p = *end == ',' ? end + 1 : end;
    }
    lvni_core_str_free(&ids);
    return s;
}

static int run_act(const act *a, options *o)
{
    lvni_cli_slurm_found found;
    int code = LVNI_EXIT_OK;
    if (o->request.n == 0) {
        lvni_core_print(stderr,
                        "error: levin slurm %s: which job? its number, its name, its run "
                        "directory, or `last`\n",
                        a->name);
        return LVNI_EXIT_USAGE;
    }
    lvn_status s = lvni_cli_slurm_find(&o->request, &found, &code);
    if (s == LVN_OK && code == LVNI_EXIT_OK) {
        s = act_on(&found, a, o, &code);
        lvni_cli_slurm_found_free(&found);
    }
    return s == LVN_OK ? code : lvni_run_report_status(s);
}

int lvni_cli_slurm_cancel(int n, const char *const *args)
{
    options o;
    int code = read_options("cancel", "alu", n, args, &o);
    if (code == LVNI_EXIT_OK) {
        code = run_act(&(act){.name = "cancel", .past = "cancelled"}, &o);
        lvni_core_free(o.words);
    }
    return code;
}

int lvni_cli_slurm_requeue(int n, const char *const *args)
{
    options o;
    int code = read_options("requeue", "alu", n, args, &o);
    if (code == LVNI_EXIT_OK) {
        code = run_act(&(act){.name = "requeue", .past = "requeued", .ended_too = true}, &o);
        lvni_core_free(o.words);
    }
    return code;
}

/* JOB... SIGNAL */
int lvni_cli_slurm_signal(int n, const char *const *args)
{
    options o;
    lvni_slurm_signal signal;
    int code = read_options("signal", "albfu", n, args, &o);
    if (code != LVNI_EXIT_OK) {
        return code;
    }
    const char *last = o.request.n > 1 ? o.words[--o.request.n] : NULL;
    if (last == NULL || strpbrk(last, ":@") != NULL || !lvni_slurm_signal_read(last, &signal)) {
        lvni_core_print(stderr,
                        "error: levin slurm signal: %s%s; levin slurm signal JOB... SIGNAL, as "
                        "levin slurm signal 123 USR1\n",
                        last == NULL ? "which job, and which signal?" : "this is not a signal: ",
                        last == NULL ? "" : last);
        code = LVNI_EXIT_USAGE;
    } else {
        code = run_act(
            &(act){.name = "signal", .past = "sent", .runs = true, .signal = signal.name}, &o);
    }
    lvni_core_free(o.words);
    return code;
}

/* ---- nodes ---- */

static void memory_text(int64_t mib, char out[LVNI_BYTES_TEXT])
{
    (void)lvni_core_bytes_text((uint64_t)(mib > 0 ? mib : 0) << 20, out);
}

static lvn_status node_names(const lvni_slurm_nodes *g, lvni_core_str *out)
{
    lvni_launch_hosts hosts = {.n = 0};
    lvni_core_notices notices = {.error = 0};
    const lvn_status s = lvni_launch_hosts_expand(&hosts, lvni_core_str_text(&g->names), &notices);
    lvni_core_str_clear(out);
    if (s == LVN_OK) {
        lvni_launch_hosts_compress(&hosts, out);
    } else { /* as sinfo has them */
        lvn_clear_error();
        lvni_core_str_append(out, lvni_core_str_text(&g->names));
    }
    lvni_launch_hosts_free(&hosts);
    lvni_core_notices_free(&notices);
    return lvni_core_str_status(out);
}

static lvn_status add_nodes(const lvni_slurm_nodes *g, grid *out)
{
    lvni_core_str text = {0};
    char free_text[LVNI_BYTES_TEXT], total[LVNI_BYTES_TEXT];
    grid_add(out, g->partition);
    grid_add(out, g->word);
    lvni_core_str_printf(&text, "%lld", (long long)g->n);
    grid_add(out, lvni_core_str_text(&text));
    lvni_core_str_clear(&text);
    lvni_core_str_printf(&text, "%lld of %lld", (long long)g->cpus_free, (long long)g->cpus);
    grid_add(out, lvni_core_str_text(&text));
    lvni_core_str_clear(&text);
    memory_text(g->memory_free, free_text);
    memory_text(g->memory, total);
    lvni_core_str_printf(&text, "%s of %s", free_text, total);
    grid_add(out, lvni_core_str_text(&text));
    lvni_core_str_clear(&text);
    for (int i = 0; i < g->n_gpus; i++) {
        lvni_core_str_printf(&text, "%s%lld of %lld%s%s", i > 0 ? ", " : "",
                             (long long)g->gpus[i].free, (long long)g->gpus[i].total,
                             strcmp(g->gpus[i].type, "gpu") != 0 ? " " : "",
                             strcmp(g->gpus[i].type, "gpu") != 0 ? g->gpus[i].type : "");
    }
    grid_add(out, lvni_core_str_text(&text));
    grid_add(out, strcmp(g->limit, "infinite") == 0 ? "none" : g->limit);
    const lvn_status s = node_names(g, &text);
    grid_add(out, lvni_core_str_text(&text));
    lvni_core_str_free(&text);
    return s;
}

static lvn_status add_nodes_json(const lvni_slurm_nodes *g, lvni_core_str *out)
{
    lvni_core_str names = {0};
    LVN_TRY(node_names(g, &names));
    const size_t n = strcspn(g->partition, "*");
    lvni_core_str partition = {0};
    lvni_core_str_append_n(&partition, g->partition, n);
    json_begin(out);
    json_text(out, "partition", lvni_core_str_text(&partition));
    lvni_core_str_printf(out, ",\"default\":%s", g->partition[n] == '*' ? "true" : "false");
    json_text(out, "state", g->state);
    json_text(out, "state_text", g->word);
    lvni_core_str_printf(out,
                         ",\"usable\":%s,\"nodes\":%lld,\"cpus\":%lld,\"cpus_free\":%lld,"
                         "\"memory_mib\":%lld,\"memory_free_mib\":%lld,\"gpus\":[",
                         g->usable ? "true" : "false", (long long)g->n, (long long)g->cpus,
                         (long long)g->cpus_free, (long long)g->memory, (long long)g->memory_free);
    for (int i = 0; i < g->n_gpus; i++) {
        lvni_core_str_append(out, i > 0 ? ",{" : "{");
        json_text(out, "type", g->gpus[i].type);
        lvni_core_str_printf(out, ",\"total\":%lld,\"free\":%lld}", (long long)g->gpus[i].total,
                             (long long)g->gpus[i].free);
    }
    lvni_core_str_char(out, ']');
    json_text(out, "limit", g->limit);
    json_text(out, "nodelist", lvni_core_str_text(&names));
    lvni_core_str_char(out, '}');
    lvni_core_str_free(&names);
    lvni_core_str_free(&partition);
    return lvni_core_str_status(out);
}

static lvn_status print_nodes(const options *o, const lvni_slurm_partitions *c, int *code)
{
    static const char *const names[] = {"PARTITION",   "STATE",     "NODES",      "CPUS FREE",
                                        "MEMORY FREE", "GPUS FREE", "TIME LIMIT", "NAMES"};
    grid g = {.columns = COLUMNS};
    lvni_core_str out = {0};
    lvn_status s = LVN_OK;
    for (size_t i = 0; i < COLUMNS; i++) {
        grid_add(&g, names[i]);
    }
    for (size_t i = 0; s == LVN_OK && i < c->n; i++) {
        s = o->json ? add_nodes_json(&c->list[i], &out) : add_nodes(&c->list[i], &g);
    }
    if (s == LVN_OK && c->n == 0 && !o->json) {
        lvni_core_print(stderr, "error: %s%s%s\n",
                        o->partition != NULL ? "there are not any nodes in a partition "
                                             : "sinfo names no nodes",
                        o->partition != NULL ? o->partition : "",
                        o->partition != NULL ? "; levin slurm nodes lists all" : "");
        *code = LVNI_EXIT_FAILURE;
    } else if (s == LVN_OK) {
        s = o->json ? json_print(&out) : grid_print(&g);
    }
    grid_free(&g);
    lvni_core_str_free(&out);
    return s;
}

int lvni_cli_slurm_nodes(int n, const char *const *args)
{
    static const char *const argv[] = {"sinfo", "--noheader", "--Node", lvni_slurm_sinfo_format,
                                       NULL};
    options o;
    lvni_core_str out = {0};
    lvni_slurm_partitions cluster = {.n = 0};
    int code = read_options("nodes", "jpN", n, args, &o), exit_code = 0;
    if (code != LVNI_EXIT_OK) {
        return code;
    }
    lvn_status s = LVN_OK;
    if (o.request.n > 0) {
        lvni_core_print(stderr,
                        "error: levin slurm nodes: `%s`: -p PARTITION names a partition, -N lists "
                        "each node\n",
                        o.words[0]);
        code = LVNI_EXIT_USAGE;
        goto done;
    }
    LVNI_TRY_DONE(s, lvni_cli_slurm_call(argv, &out, &exit_code));
    if (exit_code != 0) {
        code = lvni_cli_slurm_refused(argv[0], exit_code, &out);
        goto done;
    }
    LVNI_TRY_DONE(
        s, lvni_slurm_partitions_read(lvni_core_str_text(&out), o.partition, o.each, &cluster));
    s = print_nodes(&o, &cluster, &code);
done:
    lvni_slurm_partitions_free(&cluster);
    lvni_core_str_free(&out);
    lvni_core_free(o.words);
    return s == LVN_OK ? code : lvni_run_report_status(s);
}
