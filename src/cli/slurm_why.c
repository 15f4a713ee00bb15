/* levin slurm why JOB: what became of a job, in one sentence of what Slurm has, the error records
 * of its run directory and the end of its log, and what to do next. */
#include "cli/cli.h"
#include "cli/slurm_found.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "run/error_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_BYTES = 256 << 10, CAUSE = 1200, LINES = 5, COLUMNS = 400 /* of each of these */ };

typedef struct report {
    const char *id, *name, *elapsed, *limit, *nodes;
    const char *state; /* Slurm's; "": it does not know the job */
    char word[LVNI_SLURM_STATE_TEXT];
    lvni_slurm_phase phase;
    const char *reason;
    int64_t exit_code, signal, restarts; /* below 0: not known */
    lvni_core_str log;                   /* the end of it */
    char cause[CAUSE];                   /* "": none */
    const char *run_dir, *log_path;      /* NULL: none */
    lvni_core_str sentence, next;
} report;

/* ---- what is known ---- */

static int64_t number_at(const char *text, size_t n)
{
    return n > 0 && text[0] >= '0' && text[0] <= '9' ? strtoll(text, NULL, 10) : -1;
}

static void read_exit(report *r, const char *text, size_t n)
{
    const char *colon = text == NULL ? NULL : memchr(text, ':', n);
    if (colon != NULL && lvni_slurm_phase_is_end(r->phase)) {
        r->exit_code = number_at(text, n);
        r->signal = number_at(colon + 1, (size_t)(text + n - colon - 1));
    }
}

static void read_line(report *r, const lvni_cli_slurm_line *line)
{
    const char *exit = lvni_cli_slurm_field(line, LVNI_SLURM_JOB_EXIT);
    r->id = lvni_cli_slurm_field(line, LVNI_SLURM_JOB_ID);
    r->name = lvni_cli_slurm_field(line, LVNI_SLURM_JOB_NAME);
    r->state = lvni_cli_slurm_field(line, LVNI_SLURM_JOB_STATE);
    r->phase = lvni_slurm_state_read(r->state, r->word);
    r->elapsed = lvni_cli_slurm_field(line, LVNI_SLURM_JOB_ELAPSED);
    r->limit = lvni_cli_slurm_field(line, LVNI_SLURM_JOB_LIMIT);
    r->nodes = lvni_cli_slurm_field(line, LVNI_SLURM_JOB_NODELIST);
    r->reason = lvni_cli_slurm_field(line, LVNI_SLURM_JOB_REASON);
    read_exit(r, exit, strlen(exit));
}

/* Is the directory still that of this job? A later one may have gone on in it. */
static bool is_its_run(const lvni_cli_slurm_meant *m, const char *id, const char *run_dir)
{
    char trained[LVNI_SLURM_ID_TEXT];
    return m->run_dir != NULL ||
           (lvni_slurm_run_job(run_dir, trained) && lvni_slurm_id_covers(id, trained, ""));
}

/* The error record first, which is the cause and not what followed from it; then the error that
 * train.log ends with; then the log. */
static lvn_status find_cause(report *r, bool own_run)
{
    lvni_core_error_record e;
    lvni_core_str path = {0}, text = {0};
    size_t n = 0;
    const char *cause = NULL;
    const bool again = r->phase == LVNI_SLURM_RUNS && r->restarts > 0; /* the record is older */
    if (own_run && !again && lvni_slurm_run_error(r->run_dir, &e)) {
        lvni_core_format(r->cause, sizeof r->cause, "rank %d%s%s%s: %s", e.rank,
                         e.host[0] != '\0' ? " (" : "", e.host, e.host[0] != '\0' ? ")" : "",
                         e.message);
        r->exit_code = r->exit_code < 0 ? e.code : r->exit_code;
        return LVN_OK;
    }
    lvn_status s = LVN_OK;
    if (own_run) {
        lvni_core_str_printf(&path, "%s/train.log", r->run_dir);
        LVNI_TRY_DONE(s, lvni_core_str_status(&path));
        cause = lvni_slurm_tail_read(lvni_core_str_text(&path), LOG_BYTES, &text)
                    ? lvni_slurm_train_log_error(lvni_core_str_text(&text), &n)
                    : NULL;
    }
    if (cause == NULL) {
        cause = lvni_slurm_log_cause(lvni_core_str_text(&r->log), &n);
    }
    if (cause != NULL) {
        n = lvni_core_utf8_cut(cause, n < CAUSE ? n : CAUSE - 1);
        memcpy(r->cause, cause, n);
        r->cause[n] = '\0';
    }
    s = lvni_core_str_status(&text);
done:
    lvni_core_str_free(&path);
    lvni_core_str_free(&text);
    return s;
}

/* ---- the sentence ---- */

static void add_end(report *r)
{
    if (r->signal > 0) {
        const char *name = sigabbrev_np((int)(r->signal & 127));
        lvni_core_str_printf(&r->sentence, ", killed by %s%s (%lld)", name != NULL ? "SIG" : "",
                             name != NULL ? name : "a signal", (long long)r->signal);
    } else if (r->exit_code > 0) {
        lvni_core_str_printf(&r->sentence, ", exit code %lld", (long long)r->exit_code);
    }
}

static void make_sentence(report *r)
{
    lvni_core_str *s = &r->sentence;
    const char *advice = NULL, *why;
    lvni_core_str_printf(s, "job %s%s%s%s", r->id, r->name[0] != '\0' ? " (" : "", r->name,
                         r->name[0] != '\0' ? ")" : "");
    if (r->state[0] == '\0') {
        lvni_core_str_append(s, " has ended, and Slurm has forgotten how");
        add_end(r);
    } else if (r->phase == LVNI_SLURM_WAITS) {
        why = lvni_slurm_reason_text(r->reason, &advice);
        lvni_core_str_printf(s, " is waiting");
        if (r->restarts > 0) {
            lvni_core_str_printf(s, " for its start number %lld", (long long)r->restarts + 1);
        }
        lvni_core_str_printf(s, ": %s%s%s%s", why != NULL ? why : "Slurm's reason is ",
                             why != NULL ? " (" : "", r->reason, why != NULL ? ")" : "");
    } else {
        lvni_core_str_printf(s, ": %s, after %s of %s", r->word, r->elapsed, r->limit);
        if (r->nodes[0] != '\0') {
            lvni_core_str_printf(s, " on %s", r->nodes);
        }
        add_end(r);
    }
    if (r->phase != LVNI_SLURM_WAITS && r->phase != LVNI_SLURM_FINISHED && r->cause[0] != '\0') {
        lvni_core_str_printf(s, ": %s", r->cause);
    }
}

/* ---- what to do ---- */

#define AGAIN "levin slurm requeue %s starts it again"

static const char *next_by_state(const report *r)
{
    static const struct {
        const char *state, *next;
    } all[] = {
        {"TIMEOUT", "ask for more time; levin trainings go on from their last checkpoint by "
                    "themselves with auto_requeue=true, or in a new job with resume=true"},
        {"OUT_OF_MEMORY", "ask for more memory (mem), or take a smaller batch or fewer "
                          "num_workers"},
        {"NODE_FAIL", AGAIN},
        {"BOOT_FAIL", AGAIN},
        {"PREEMPTED", AGAIN "; with requeue=true Slurm does so itself"},
        {"CANCELLED", AGAIN},
        {"DEADLINE", "give it a later deadline, or a shorter time limit"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strncmp(r->state, all[i].state, strlen(all[i].state)) == 0) {
            return all[i].next;
        }
    }
    return NULL;
}

/* srun ends with the highest code of its tasks, and ranks that miss another end with PEER, which is
 * above that of the one that failed: its own code is in the log. */
static int64_t code_of_cause(const report *r)
{
    static const char exited[] = ": Exited with exit code ";
    int64_t code = r->exit_code;
    const char *p = lvni_core_str_text(&r->log);
    while (r->exit_code == LVNI_EXIT_PEER && (p = strstr(p, exited)) != NULL) {
        p += sizeof exited - 1;
        const int64_t one = number_at(p, strcspn(p, "\n"));
        code = one > 0 && one != LVNI_EXIT_PEER ? one : code; /* of several starts the last */
    }
    return code;
}

static const char *next_by_code(const report *r)
{
    switch (code_of_cause(r)) {
    case LVNI_EXIT_USAGE: return "correct that, and submit it again: it was refused at its start";
    case LVNI_EXIT_RESOURCE:
        return "ask for what is missing (levin slurm nodes shows what there is)";
    case LVNI_EXIT_RENDEZVOUS:
    case LVNI_EXIT_PEER: return AGAIN "; it goes on from its last checkpoint";
    case LVNI_EXIT_REQUEUE:
    case LVNI_EXIT_NO_REQUEUE: return "its checkpoint is written: submit it again with resume=true";
    case LVNI_EXIT_NOT_EXECUTABLE:
    case LVNI_EXIT_NO_PROGRAM:
        return "the program is not found in the job: module, venv or conda of the script make its "
               "PATH";
    case 137: return "often too little memory: ask for more (mem), or take a smaller batch";
    default:
        return "repair that, and submit it again; resume=true goes on from its last checkpoint";
    }
}

static void make_next(report *r)
{
    const char *advice = NULL, *text;
    if (r->phase == LVNI_SLURM_RUNS) {
        text = "levin slurm logs -f %s";
    } else if (r->phase == LVNI_SLURM_WAITS) {
        (void)lvni_slurm_reason_text(r->reason, &advice);
        text = advice;
    } else if (r->phase == LVNI_SLURM_FINISHED) {
        text = r->run_dir != NULL ? "levin report %s" : NULL;
    } else {
        text = r->state[0] != '\0' ? next_by_state(r) : NULL;
        text = text == NULL && (r->exit_code > 0 || r->cause[0] != '\0') ? next_by_code(r) : text;
    }
    for (const char *p = text; p != NULL && *p != '\0'; p++) {
        const bool id = p[0] == '%' && p[1] == 's';
        if (id) {
            lvni_core_str_append(&r->next, r->phase == LVNI_SLURM_FINISHED ? r->run_dir : r->id);
            p++;
        } else {
            lvni_core_str_char(&r->next, *p);
        }
    }
}

/* ---- printing ---- */

static const char *log_end(const report *r)
{
    const char *text = lvni_core_str_text(&r->log);
    return text + lvni_slurm_last_lines(text, r->log.len, LINES);
}

static void print_text(const report *r)
{
    lvni_core_print(stdout, "%s\n", lvni_core_str_text(&r->sentence));
    if (r->run_dir != NULL) {
        lvni_core_print(stdout, "  run directory: %s\n", r->run_dir);
    }
    if (r->log_path != NULL) {
        lvni_core_print(stdout, "  log: %s\n", r->log_path);
        for (const char *p = log_end(r); *p != '\0';) {
            const size_t n = strcspn(p, "\n");
            lvni_core_print(stdout, "    | %.*s\n", (int)(n < COLUMNS ? n : COLUMNS), p);
            p += n + (p[n] == '\n');
        }
    }
    if (r->next.len > 0) {
        lvni_core_print(stdout, "  next: %s\n", lvni_core_str_text(&r->next));
    }
}

static lvn_status print_json(const report *r)
{
    const struct {
        const char *key, *text;
    } texts[] = {{"job", r->id},
                 {"name", r->name},
                 {"state", r->state},
                 {"state_text", r->word},
                 {"reason", r->reason},
                 {"elapsed", r->elapsed},
                 {"limit", r->limit},
                 {"nodes", r->nodes},
                 {"sentence", lvni_core_str_text(&r->sentence)},
                 {"cause", r->cause},
                 {"next", lvni_core_str_text(&r->next)},
                 {"run_dir", r->run_dir == NULL ? "" : r->run_dir},
                 {"log", r->log_path == NULL ? "" : r->log_path},
                 {"log_end", log_end(r)}};
    lvni_core_str out = {0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        lvni_core_str_printf(&out, "%s\"%s\":", i == 0 ? "{" : ",", texts[i].key);
        lvni_core_str_json(&out, texts[i].text);
    }
    if (r->exit_code >= 0) {
        lvni_core_str_printf(&out, ",\"exit_code\":%lld", (long long)r->exit_code);
    }
    lvni_core_str_append(&out, "}\n");
    const lvn_status s = lvni_core_str_status(&out);
    if (s == LVN_OK) {
        fputs(lvni_core_str_text(&out), stdout);
    }
    lvni_core_str_free(&out);
    return s;
}

/* ---- the command ---- */

/* Of an array the first element that failed, else the first one; and how all are. */
static lvn_status choose(const lvni_cli_slurm_found *found, lvni_cli_slurm_meant *m,
                         lvni_cli_slurm_line *out, bool *known, lvni_core_str *all)
{
    lvni_cli_slurm_line line;
    size_t at = 0;
    int n = 0, count[LVNI_SLURM_FAILED + 1] = {0};
    bool failed = false;
    while (lvni_cli_slurm_next(found, m, &at, &line)) {
        char word[LVNI_SLURM_STATE_TEXT];
        const lvni_slurm_phase phase =
            lvni_slurm_state_read(lvni_cli_slurm_field(&line, LVNI_SLURM_JOB_STATE), word);
        if (n == 0 || (!failed && phase == LVNI_SLURM_FAILED)) {
            *out = line;
            failed = phase == LVNI_SLURM_FAILED;
        }
        count[phase]++;
        n++;
    }
    *known = n > 0;
    if (n > 1) {
        lvni_core_str_message(all,
                              "job %s has %d parts: %d failed, %d running, %d waiting, %d "
                              "finished; the first that %s:\n",
                              m->id, n, count[LVNI_SLURM_FAILED], count[LVNI_SLURM_RUNS],
                              count[LVNI_SLURM_WAITS], count[LVNI_SLURM_FINISHED],
                              failed ? "failed" : "is listed");
        const char *id = lvni_cli_slurm_field(out, LVNI_SLURM_JOB_ID);
        if (lvni_slurm_id_read(id)) {
            lvni_core_format(m->id, sizeof m->id, "%s", id);
        }
    }
    return lvni_core_str_status(all);
}

/* A line as a terminal would show it in the end: progress is drawn over itself (\r, ESC [ J). */
static size_t drawn_line(char *to, const char *line, size_t n)
{
    size_t m = 0;
    bool restarts = false;
    for (size_t i = 0; i < n; i++) {
        if (line[i] == '\r') {
            restarts = true;
        } else if (line[i] == '\x1b' && i + 1 < n && line[i + 1] == '[') {
            for (i += 2; i < n && (line[i] < '@' || line[i] > '~'); i++) {
            }
        } else {
            m = restarts ? 0 : m;
            restarts = false;
            to[m++] = line[i];
        }
    }
    return m;
}

static void draw_log(lvni_core_str *log)
{
    size_t m = 0;
    for (size_t i = 0; i < log->len;) {
        const char *end = memchr(log->data + i, '\n', log->len - i);
        const size_t n = end != NULL ? (size_t)(end - log->data) - i : log->len - i;
        m += drawn_line(log->data + m, log->data + i, n); /* never longer, so it may be in place */
        i += n;
        if (end != NULL) {
            log->data[m++] = '\n';
            i++;
        }
    }
    if (log->data != NULL) {
        log->len = m;
        log->data[m] = '\0';
    }
}

/* An array has the one of the element; the file of the errors counts, too. */
static lvn_status read_log(report *r, const lvni_cli_slurm_files *files)
{
    for (int i = 0; i < files->n && r->log.len == 0; i++) {
        if (lvni_slurm_tail_read(files->logs[files->n - 1 - i], LOG_BYTES, &r->log)) {
            r->log_path = files->logs[files->n - 1 - i];
        }
    }
    draw_log(&r->log);
    return lvni_core_str_status(&r->log);
}

static lvn_status explain(const lvni_cli_slurm_found *found, lvni_cli_slurm_meant *m, bool json,
                          int *code)
{
    static const char none[] = "";
    report r = {.name = none,
                .elapsed = none,
                .limit = none,
                .nodes = none,
                .state = none,
                .reason = none,
                .exit_code = -1,
                .signal = -1,
                .restarts = -1};
    lvni_cli_slurm_files files = {.n = 0};
    lvni_cli_slurm_line line = {0};
    lvni_core_str all = {0};
    bool known = false;
    size_t n = 0;
    lvn_status s;
    LVNI_TRY_DONE(s, choose(found, m, &line, &known, &all));
    if (m->id[0] == '\0' || (!known && !m->sent && m->run_dir == NULL)) {
        lvni_cli_slurm_unknown(found, m);
        *code = LVNI_EXIT_FAILURE;
        goto done;
    }
    r.id = m->id;
    if (known) {
        read_line(&r, &line);
    } else if (m->sent) {
        r.name = lvni_slurm_table_at(&found->sent, m->sent_row, LVNI_SLURM_SENT_NAME);
    }
    LVNI_TRY_DONE(s, lvni_cli_slurm_files_find(found, m, &files));
    const char *show = lvni_core_str_text(&files.show),
               *text = lvni_slurm_show_value(show, "ExitCode", &n);
    read_exit(&r, text, text == NULL ? 0 : n);
    text = lvni_slurm_show_value(show, "Restarts", &n);
    r.restarts = text == NULL ? -1 : number_at(text, n);
    r.run_dir = files.run_dir.len > 0 ? lvni_core_str_text(&files.run_dir) : NULL;
    LVNI_TRY_DONE(s, read_log(&r, &files));
    LVNI_TRY_DONE(s, find_cause(&r, r.run_dir != NULL && is_its_run(m, r.id, r.run_dir)));
    make_sentence(&r);
    make_next(&r);
    LVNI_TRY_DONE(s, lvni_core_str_status(&r.sentence));
    LVNI_TRY_DONE(s, lvni_core_str_status(&r.next));
    if (json) {
        s = print_json(&r);
    } else {
        lvni_core_print(stdout, "%-s", lvni_core_str_text(&all));
        print_text(&r);
    }
done:
    lvni_core_str_free(&all);
    lvni_core_str_free(&r.log);
    lvni_core_str_free(&r.sentence);
    lvni_core_str_free(&r.next);
    lvni_cli_slurm_files_free(&files);
    return s;
}

int lvni_cli_slurm_why(int n, const char *const *args)
{
    lvni_cli_slurm_request request = {.log_dir = LVNI_CLI_LOG_DIR, .history = true};
    lvni_cli_slurm_found found;
    const char *job = NULL;
    bool json = false;
    int code = LVNI_EXIT_OK;
    for (int i = 0; i < n; i++) {
        const char *v = lvni_cli_slurm_value(n, args, &i, "log-dir");
        if (v != NULL) {
            request.log_dir = v;
        } else if (strcmp(args[i], "--json") == 0) {
            json = true;
        } else if (args[i][0] == '-' || job != NULL) {
            lvni_core_print(stderr,
                            "error: levin slurm why: %s %s; levin slurm why JOB [--json] "
                            "[--log-dir=DIR]\n",
                            job != NULL ? "one job at a time, and not" : "there is no option",
                            args[i]);
            return LVNI_EXIT_USAGE;
        } else {
            job = args[i];
        }
    }
    if (job == NULL) {
        fputs("error: levin slurm why: of which job? its number, its name, its run directory, or "
              "`last`\n",
              stderr);
        return LVNI_EXIT_USAGE;
    }
    request.n = 1;
    request.words = &job;
    lvn_status s = lvni_cli_slurm_find(&request, &found, &code);
    if (s == LVN_OK && code == LVNI_EXIT_OK) {
        s = explain(&found, &found.list[0], json, &code);
        lvni_cli_slurm_found_free(&found);
    }
    return s == LVN_OK ? code : lvni_run_report_status(s);
}
