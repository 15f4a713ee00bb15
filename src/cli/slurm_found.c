/* The jobs that arguments mean (slurm_found.h). */
#include "cli/slurm_found.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "slurm/slurm_tool.h"

#include <glob.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MS = 20000, ANSWER_BYTES = 64 << 20, SCRIPT_BYTES = 4 << 20, LOG_BYTES = 256 << 10 };

/* ---- running Slurm's commands ---- */

lvn_status lvni_cli_slurm_call(const char *const *argv, lvni_core_str *out, int *exit_code)
{
    const lvn_status s = lvni_slurm_tool_run(argv, ANSWER_MS, ANSWER_BYTES, out, exit_code);
    return s == LVN_OK ? lvni_core_str_status(out) : s;
}

/* Its lines as one. */
static void join_lines(const lvni_core_str *out, lvni_core_str *line)
{
    for (const char *p = lvni_core_str_text(out); *p != '\0';) {
        const size_t n = strcspn(p, "\n");
        lvni_core_str_printf(line, "%s%.*s", line->len > 0 && n > 0 ? "; " : "", (int)n, p);
        p += n + (p[n] == '\n');
    }
}

int lvni_cli_slurm_refused(const char *command, int exit_code, const lvni_core_str *out)
{
    lvni_core_str line = {0};
    join_lines(out, &line);
    if (exit_code == LVNI_SLURM_TOOL_NOT_FOUND) {
        lvni_core_print(stderr, "error: %s not found: is this a machine of the cluster?\n",
                        command);
    } else if (exit_code == LVNI_SLURM_TOOL_TIMED_OUT) {
        lvni_core_print(stderr,
                        "error: %s: no answer within %d s: the controller of the cluster is down "
                        "or busy; try again later\n",
                        command, ANSWER_MS / 1000);
    } else {
        lvni_core_print(stderr, "error: %s refuses (exit code %d)%s%s\n", command, exit_code,
                        line.len > 0 ? ": " : "", lvni_core_str_text(&line));
    }
    lvni_core_str_free(&line);
    return LVNI_EXIT_RESOURCE;
}

/* ---- what words mean ---- */

static void read_word(lvni_cli_slurm_found *f, const char *word, lvni_cli_slurm_meant *m)
{
    m->word = word;
    if (lvni_slurm_id_read(word)) {
        lvni_core_format(m->id, sizeof m->id, "%s", word);
    } else if (lvni_slurm_run_job(word, m->id)) {
        m->run_dir = word;
    } else {
        m->by_name = strcmp(word, "last") != 0;
    }
    m->sent = lvni_slurm_sent_find(&f->sent, m->id[0] != '\0' ? m->id : word, &m->sent_row);
    if (m->sent && m->id[0] == '\0') {
        lvni_slurm_sent_id(&f->sent, m->sent_row, m->id);
    }
}

/* What squeue knows of a name: the newest job of the user that waits or runs, else the newest one,
 * where that is newer than the one of jobs.tsv. */
static void look_for_name(lvni_cli_slurm_found *f, lvni_cli_slurm_meant *m)
{
    long long newest = strtoll(m->id, NULL, 10), newest_active = 0;
    for (size_t row = 0; row < f->queue.n; row++) {
        char word[LVNI_SLURM_STATE_TEXT];
        const long long id =
            strtoll(lvni_slurm_table_at(&f->queue, row, LVNI_SLURM_JOB_ID), NULL, 10);
        if (strcmp(lvni_slurm_table_at(&f->queue, row, LVNI_SLURM_JOB_NAME), m->word) != 0 ||
            strcmp(lvni_slurm_table_at(&f->queue, row, LVNI_SLURM_JOB_USER), f->user) != 0) {
            continue;
        }
        newest = id > newest ? id : newest;
        if (!lvni_slurm_phase_is_end(lvni_slurm_state_read(
                lvni_slurm_table_at(&f->queue, row, LVNI_SLURM_JOB_STATE), word))) {
            m->several += id != newest_active; /* elements of an array are one job */
            newest_active = id > newest_active ? id : newest_active;
        }
    }
    newest = newest_active > 0 ? newest_active : newest;
    if (newest > 0) {
        lvni_core_format(m->id, sizeof m->id, "%lld", newest);
        m->sent = lvni_slurm_sent_find(&f->sent, m->id, &m->sent_row);
    }
}

static void add_ids(const lvni_cli_slurm_found *f, const bool *skip, lvni_core_str *out)
{
    for (size_t i = 0; i < f->n; i++) {
        if (f->list[i].id[0] != '\0' && (skip == NULL || !skip[i])) {
            const bool first = out->len > 0 && out->data[out->len - 1] == '=';
            lvni_core_str_printf(out, "%s%s", first ? "" : ",", f->list[i].id);
        }
    }
}

/* One question for all: by number, of the user, or, where both are wanted, of all jobs. */
static lvn_status ask_queue(const lvni_cli_slurm_request *r, lvni_cli_slurm_found *f, int *code)
{
    lvni_core_str filter = {0}, out = {0};
    bool names = f->n == 0, ids = false;
    const char *argv[8];
    int n = 0, exit_code = 0;
    lvn_status s;
    for (size_t i = 0; i < f->n; i++) {
        names = names || f->list[i].by_name;
        ids = ids || (f->list[i].id[0] != '\0' && !f->list[i].by_name);
    }
    if (f->n > 0 && !names && !ids) {
        return LVN_OK; /* nothing to ask for */
    }
    if (names && !ids && !r->everyone) {
        lvni_core_str_printf(&filter, "--user=%lu", (unsigned long)getuid());
    } else if (!names) {
        lvni_core_str_append(&filter, "--jobs=");
        add_ids(f, NULL, &filter);
    }
    argv[n++] = "squeue";
    argv[n++] = "--noheader";
    argv[n++] = "--states=all";
    argv[n++] = lvni_slurm_squeue_format;
    if (filter.len > 0) {
        argv[n++] = lvni_core_str_text(&filter);
    }
    argv[n] = NULL;
    LVNI_TRY_DONE(s, lvni_core_str_status(&filter));
    LVNI_TRY_DONE(s, lvni_cli_slurm_call(argv, &out, &exit_code));
    /* of one number that it does not know it makes an error, of several not */
    if (exit_code != 0 && strstr(lvni_core_str_text(&out), "Invalid job id") == NULL) {
        *code = lvni_cli_slurm_refused("squeue", exit_code, &out);
        goto done;
    }
    s = lvni_slurm_table_read(lvni_core_str_text(&out), LVNI_SLURM_SEPARATOR, LVNI_SLURM_JOB_FIELDS,
                              &f->queue);
done:
    lvni_core_str_free(&filter);
    lvni_core_str_free(&out);
    return s;
}

/* What squeue does not know, where there is an accounting; without one nothing is known. */
static lvn_status ask_history(lvni_cli_slurm_found *f)
{
    lvni_core_str jobs = {0}, out = {0};
    bool *skip = lvni_core_calloc(LVNI_TAG_CORE, f->n + 1, sizeof *skip), any = false;
    const char *const argv[] = {"sacct",
                                "--noheader",
                                "--parsable2",
                                "--delimiter=\037",
                                "--allocations",
                                lvni_slurm_sacct_format,
                                NULL,
                                NULL};
    const char *words[sizeof argv / sizeof *argv];
    int exit_code = 0;
    lvn_status s;
    LVNI_TRY_DONE(s, skip == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (size_t i = 0; i < f->n; i++) {
        lvni_cli_slurm_line line;
        size_t at = 0;
        skip[i] = lvni_cli_slurm_next(f, &f->list[i], &at, &line);
        any = any || (!skip[i] && f->list[i].id[0] != '\0');
    }
    if (!any) {
        goto done;
    }
    lvni_core_str_append(&jobs, "--jobs=");
    add_ids(f, skip, &jobs);
    LVNI_TRY_DONE(s, lvni_core_str_status(&jobs));
    memcpy(words, argv, sizeof argv);
    words[sizeof argv / sizeof *argv - 2] = lvni_core_str_text(&jobs);
    LVNI_TRY_DONE(s, lvni_cli_slurm_call(words, &out, &exit_code));
    if (exit_code == 0) {
        s = lvni_slurm_table_read(lvni_core_str_text(&out), LVNI_SLURM_SEPARATOR,
                                  LVNI_SLURM_JOB_FIELDS, &f->history);
    }
done:
    lvni_core_free(skip);
    lvni_core_str_free(&jobs);
    lvni_core_str_free(&out);
    return s;
}

lvn_status lvni_cli_slurm_find(const lvni_cli_slurm_request *request, lvni_cli_slurm_found *out,
                               int *code)
{
    lvn_status s;
    const struct passwd *me = getpwuid(getuid());
    *out = (lvni_cli_slurm_found){.log_dir = request->log_dir};
    if (me != NULL) {
        lvni_core_format(out->user, sizeof out->user, "%s", me->pw_name);
    } else {
        lvni_core_format(out->user, sizeof out->user, "%lu", (unsigned long)getuid());
    }
    out->list = lvni_core_calloc(LVNI_TAG_CORE, (size_t)request->n + 1, sizeof *out->list);
    LVNI_TRY_DONE(s, out->list == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVNI_TRY_DONE(s, lvni_slurm_sent_read(request->log_dir, &out->sent));
    for (int i = 0; i < request->n; i++) {
        read_word(out, request->words[i], &out->list[out->n++]);
    }
    LVNI_TRY_DONE(s, ask_queue(request, out, code));
    for (size_t i = 0; *code == LVNI_EXIT_OK && i < out->n; i++) {
        if (out->list[i].by_name) {
            look_for_name(out, &out->list[i]);
        }
    }
    s = *code == LVNI_EXIT_OK && request->history ? ask_history(out) : LVN_OK;
done:
    if (s != LVN_OK || *code != LVNI_EXIT_OK) {
        lvni_cli_slurm_found_free(out);
    }
    return s;
}

void lvni_cli_slurm_found_free(lvni_cli_slurm_found *found)
{
    lvni_slurm_table_free(&found->queue);
    lvni_slurm_table_free(&found->history);
    lvni_slurm_table_free(&found->sent);
    lvni_core_free(found->list);
    found->list = NULL;
    found->n = 0;
}

const char *lvni_cli_slurm_field(const lvni_cli_slurm_line *line, lvni_slurm_job_field field)
{
    return lvni_slurm_table_at(line->table, line->row, (int)field);
}

bool lvni_cli_slurm_next(const lvni_cli_slurm_found *found, const lvni_cli_slurm_meant *meant,
                         size_t *at, lvni_cli_slurm_line *out)
{
    for (; *at < found->queue.n + found->history.n; ++*at) {
        const bool now = *at < found->queue.n;
        *out = (lvni_cli_slurm_line){now ? &found->queue : &found->history,
                                     now ? *at : *at - found->queue.n};
        if (meant == NULL ||
            (meant->id[0] != '\0' &&
             lvni_slurm_id_covers(meant->id, lvni_cli_slurm_field(out, LVNI_SLURM_JOB_ID),
                                  lvni_cli_slurm_field(out, LVNI_SLURM_JOB_RAW)))) {
            ++*at;
            return true;
        }
    }
    return false;
}

void lvni_cli_slurm_unknown(const lvni_cli_slurm_found *found, const lvni_cli_slurm_meant *meant)
{
    if (meant->by_name && lvni_core_path_is_folder(meant->word)) {
        lvni_core_print(stderr,
                        "error: %s: no job of Slurm has trained in this directory (it has no file "
                        "job_id)\n",
                        meant->word);
    } else if (meant->id[0] != '\0') {
        lvni_core_print(stderr,
                        "error: job %s: Slurm does not know it (any more), and %s/jobs.tsv does "
                        "not have it; --log-dir=DIR names another folder\n",
                        meant->id, found->log_dir);
    } else {
        lvni_core_print(stderr,
                        "error: `%s` is not a number or a name of a job of yours, nor a run "
                        "directory; levin slurm status lists jobs, and %s/jobs.tsv those that were "
                        "submitted here (--log-dir=DIR: in another folder)\n",
                        meant->word, found->log_dir);
    }
}

/* ---- files of a job ---- */

static lvn_status add_log(lvni_cli_slurm_files *files, const char *path, size_t n)
{
    lvni_core_str one = {0};
    const bool relative = n > 0 && path[0] != '/';
    lvni_core_str_printf(&one, "%s%.*s", relative ? lvni_core_str_text(&files->folder) : "", (int)n,
                         path);
    LVN_TRY(lvni_core_str_status(&one));
    for (int i = 0; i < files->n; i++) {
        if (strcmp(files->logs[i], lvni_core_str_text(&one)) == 0) {
            lvni_core_str_free(&one);
            return LVN_OK;
        }
    }
    if (files->n == LVNI_CLI_LOGS) {
        lvni_core_str_free(&one);
        return LVN_OK;
    }
    files->logs[files->n++] = lvni_core_str_take(&one);
    return LVN_OK;
}

/* Those that Slurm itself names. What waits in an array has none yet. */
static lvn_status take_shown(lvni_cli_slurm_files *files)
{
    static const char *const keys[] = {"StdOut", "StdErr"};
    size_t n = 0;
    for (const char *job = lvni_core_str_text(&files->show); job != NULL;
         job = lvni_slurm_show_next(job)) {
        const char *folder = lvni_slurm_show_value(job, "WorkDir", &n);
        if (folder != NULL) {
            lvni_core_str_clear(&files->folder);
            lvni_core_str_printf(&files->folder, "%.*s/", (int)n, folder);
        }
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            const char *path = lvni_slurm_show_value(job, keys[i], &n);
            if (path != NULL && memmem(path, n, "4294967294", 10) == NULL) {
                LVN_TRY(add_log(files, path, n));
            }
        }
    }
    return LVN_OK;
}

/* The script, where it is, or where jobs.tsv has it from another folder; of a job that is not in
 * jobs.tsv the one that Slurm names. */
static lvn_status read_script(const lvni_cli_slurm_found *f, const lvni_cli_slurm_meant *m,
                              lvni_cli_slurm_files *files)
{
    lvni_core_str *out = &files->script;
    if (!m->sent) {
        size_t n = 0;
        lvni_core_str path = {0};
        const char *command =
            lvni_slurm_show_value(lvni_core_str_text(&files->show), "Command", &n);
        if (command != NULL && command[0] == '/') {
            lvni_core_str_append_n(&path, command, n);
            LVN_TRY(lvni_core_str_status(&path));
            (void)lvni_slurm_tail_read(lvni_core_str_text(&path), SCRIPT_BYTES, out);
            lvni_core_str_free(&path);
        }
        return lvni_core_str_status(out);
    }
    const char *path = lvni_slurm_table_at(&f->sent, m->sent_row, LVNI_SLURM_SENT_SCRIPT),
               *slash = strrchr(path, '/');
    lvni_core_str other = {0};
    lvni_core_str_printf(&other, "%s/scripts/%s", f->log_dir, slash == NULL ? path : slash + 1);
    if (lvni_core_str_status(&other) == LVN_OK) {
        (void)(lvni_slurm_tail_read(lvni_core_str_text(&other), SCRIPT_BYTES, out) ||
               lvni_slurm_tail_read(path, SCRIPT_BYTES, out));
    }
    lvni_core_str_free(&other);
    return lvni_core_str_status(out);
}

/* A job that Slurm has forgotten: the names in its script, in the folder of the job, here, or in
 * log_dir. `*` of all elements of an array. */
static lvn_status take_scripted(const lvni_cli_slurm_found *f, const lvni_cli_slurm_meant *m,
                                const char *directive, lvni_cli_slurm_files *files)
{
    const char *script = lvni_core_str_text(&files->script),
               *name = lvni_slurm_table_at(&f->sent, m->sent_row, LVNI_SLURM_SENT_NAME);
    lvni_core_str pattern = {0}, array = {0}, id = {0}, path = {0};
    glob_t found = {.gl_pathc = 0};
    lvn_status s = LVN_OK;
    if (!lvni_slurm_script_directive(script, directive, &pattern)) {
        goto done;
    }
    const bool all =
        lvni_slurm_script_directive(script, "array", &array) && strchr(m->id, '_') == NULL;
    lvni_core_str_printf(&id, "%s%s", m->id, all ? "_*" : "");
    lvni_core_str_clear(&array);
    if (!lvni_slurm_log_name(lvni_core_str_text(&pattern), lvni_core_str_text(&id), name, f->user,
                             &array)) {
        goto done;
    }
    LVNI_TRY_DONE(s, lvni_core_str_status(&array));
    const char *log = lvni_core_str_text(&array), *slash = strrchr(log, '/');
    const bool relative = log[0] != '/';
    lvni_core_str_printf(&path, "%s%s", relative ? lvni_core_str_text(&files->folder) : "", log);
    if (relative && !all && !lvni_core_path_exists(lvni_core_str_text(&path))) {
        lvni_core_str other = {0};
        lvni_core_str_printf(&other, "%s/%s", f->log_dir, slash == NULL ? log : slash + 1);
        if (lvni_core_path_exists(lvni_core_str_text(&other))) {
            lvni_core_str_clear(&path);
            lvni_core_str_append(&path, lvni_core_str_text(&other));
        }
        lvni_core_str_free(&other);
    }
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    if (!all) {
        s = add_log(files, lvni_core_str_text(&path), path.len);
    } else if (glob(lvni_core_str_text(&path), 0, NULL, &found) == 0) {
        for (size_t i = 0; s == LVN_OK && i < found.gl_pathc; i++) {
            s = add_log(files, found.gl_pathv[i], strlen(found.gl_pathv[i]));
        }
        globfree(&found);
    }
done:
    lvni_core_str_free(&pattern);
    lvni_core_str_free(&array);
    lvni_core_str_free(&id);
    lvni_core_str_free(&path);
    return s;
}

/* The argument itself, what the script has, or what the log names. */
static lvn_status find_run_dir(const lvni_cli_slurm_meant *m, lvni_cli_slurm_files *files)
{
    lvni_core_str dir = {0}, log = {0};
    lvn_status s = LVN_OK;
    size_t n = 0;
    const char *named;
    if (m->run_dir != NULL) {
        lvni_core_str_append(&files->run_dir, m->run_dir);
        return lvni_core_str_status(&files->run_dir);
    }
    if (!lvni_slurm_script_run_dir(lvni_core_str_text(&files->script), &dir) && files->n > 0 &&
        lvni_slurm_tail_read(files->logs[0], LOG_BYTES, &log) &&
        (named = lvni_slurm_log_run_dir(lvni_core_str_text(&log), &n)) != NULL) {
        lvni_core_str_append_n(&dir, named, n);
    }
    LVNI_TRY_DONE(s, lvni_core_str_status(&dir));
    if (dir.len > 0) {
        lvni_core_str_printf(&files->run_dir, "%s%s",
                             dir.data[0] == '/' ? "" : lvni_core_str_text(&files->folder),
                             lvni_core_str_text(&dir));
        s = lvni_core_str_status(&files->run_dir);
    }
done:
    lvni_core_str_free(&dir);
    lvni_core_str_free(&log);
    return s;
}

lvn_status lvni_cli_slurm_files_find(const lvni_cli_slurm_found *found,
                                     const lvni_cli_slurm_meant *meant, lvni_cli_slurm_files *out)
{
    lvni_cli_slurm_line line;
    size_t at = 0;
    int exit_code = 0;
    lvn_status s = LVN_OK;
    *out = (lvni_cli_slurm_files){.n = 0};
    if (lvni_cli_slurm_next(found, meant, &at, &line)) {
        const char *folder = lvni_cli_slurm_field(&line, LVNI_SLURM_JOB_FOLDER);
        if (folder[0] == '/') {
            lvni_core_str_printf(&out->folder, "%s/", folder);
        }
        if (line.table == &found->queue) {
            const char *const argv[] = {"scontrol", "show", "job", meant->id, NULL};
            LVNI_TRY_DONE(s, lvni_cli_slurm_call(argv, &out->show, &exit_code));
            if (exit_code != 0) {
                lvni_core_str_clear(&out->show);
            }
        }
    }
    LVNI_TRY_DONE(s, take_shown(out));
    LVNI_TRY_DONE(s, read_script(found, meant, out));
    if (out->n == 0 && meant->sent) {
        if (out->folder.len == 0 &&
            lvni_slurm_script_directive(lvni_core_str_text(&out->script), "chdir", &out->folder)) {
            lvni_core_str_char(&out->folder, '/');
        }
        LVNI_TRY_DONE(s, take_scripted(found, meant, "output", out));
        LVNI_TRY_DONE(s, take_scripted(found, meant, "error", out));
    }
    s = find_run_dir(meant, out);
done:
    if (s != LVN_OK) {
        lvni_cli_slurm_files_free(out);
    }
    return s;
}

void lvni_cli_slurm_files_free(lvni_cli_slurm_files *files)
{
    for (int i = 0; i < files->n; i++) {
        lvni_core_free(files->logs[i]);
    }
    files->n = 0;
    lvni_core_str_free(&files->show);
    lvni_core_str_free(&files->folder);
    lvni_core_str_free(&files->script);
    lvni_core_str_free(&files->run_dir);
}

const char *lvni_cli_slurm_value(int n, const char *const *args, int *i, const char *name)
{
    const char *arg = args[*i];
    const size_t bytes = strlen(name);
    if (strncmp(arg, "--", 2) != 0 || strncmp(arg + 2, name, bytes) != 0) {
        return NULL;
    }
    if (arg[2 + bytes] == '=') {
        return arg + 3 + bytes;
    }
    return arg[2 + bytes] == '\0' && *i + 1 < n ? args[++*i] : NULL;
}
