/* A job to sbatch (slurm_submit.h). */
#include "cli/slurm_submit.h"

#include "cli/slurm_found.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "launch/env_vars.h"
#include "slurm/slurm_tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TIME_TEXT = 32, ID = 64 };

typedef struct submission {
    const lvni_slurm_job *job;
    const lvni_cli_slurm_submission *how;
    const char *folder; /* of the logs */
    const char *name;   /* of the job */
    char time[TIME_TEXT];
    lvni_core_str path; /* of the script */
    lvni_launch_variables environment;
    char id[ID]; /* "123" or "123;CLUSTER"; "": none yet */
} submission;

/* ---- files ---- */

static lvn_status name_script(submission *s)
{
    struct tm utc;
    const time_t now = time(NULL);
    if (gmtime_r(&now, &utc) == NULL ||
        strftime(s->time, sizeof s->time, "%Y-%m-%dT%H-%M-%SZ", &utc) == 0) {
        LVN_FAIL(LVN_ERR_INTERNAL, "the time of the submission cannot be written");
    }
    for (int i = 1; i < 1000; i++) {
        lvni_core_str_clear(&s->path);
        lvni_core_str_printf(&s->path, "%s/scripts/%s-%s", s->folder, s->name, s->time);
        if (i > 1) { /* several within one second */
            lvni_core_str_printf(&s->path, "-%d", i);
        }
        lvni_core_str_append(&s->path, ".sh");
        LVN_TRY(lvni_core_str_status(&s->path));
        if (!lvni_core_path_exists(lvni_core_str_text(&s->path))) {
            return LVN_OK;
        }
    }
    LVN_FAIL(LVN_ERR_IO, "%s is there, and a thousand others of this second",
             lvni_core_str_text(&s->path));
}

/* Slurm ends a job whose output has no folder without a word. */
static lvn_status make_output_folder(const submission *s, const char *directive)
{
    const lvni_slurm_directive *one = lvni_slurm_directive_find(&s->job->directives, directive);
    const char *slash = one == NULL || one->value == NULL ? NULL : strrchr(one->value, '/'),
               *chdir = lvni_slurm_text(s->job->options, "chdir");
    lvni_core_str path = {0};
    lvn_status status = LVN_OK;
    if (slash == NULL || slash == one->value ||
        memchr(one->value, '%', (size_t)(slash - one->value)) != NULL) {
        return LVN_OK;
    }
    if (chdir != NULL && one->value[0] != '/') {
        lvni_core_str_printf(&path, "%s/", chdir);
    }
    lvni_core_str_append_n(&path, one->value, (size_t)(slash - one->value));
    LVNI_TRY_DONE(status, lvni_core_str_status(&path));
    status = lvni_core_mkdirs(lvni_core_str_text(&path));
done:
    lvni_core_str_free(&path);
    return status;
}

static lvn_status write_script(const submission *s, const lvni_core_str *script)
{
    lvni_core_str folder = {0};
    lvn_status status;
    const char *path = lvni_core_str_text(&s->path);
    lvni_core_str_printf(&folder, "%s/scripts", s->folder);
    LVNI_TRY_DONE(status, lvni_core_str_status(&folder));
    LVNI_TRY_DONE(status, lvni_core_mkdirs(lvni_core_str_text(&folder)));
    LVNI_TRY_DONE(status, make_output_folder(s, "output"));
    LVNI_TRY_DONE(status, make_output_folder(s, "error"));
    LVNI_TRY_DONE(status, lvni_core_file_write(path, lvni_core_str_text(script), script->len));
    if (chmod(path, 0755) != 0) {
        status = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "%s: it is not executable: %s", path,
                               strerror(errno));
    }
done:
    lvni_core_str_free(&folder);
    return status;
}

/* ---- what is recorded ---- */

/* The number of a job that is about to be submitted: its line waits in FOLDER/submitting. */
static const char UNKNOWN[] = "?";

static const char *record_folder(const submission *s)
{
    return s->how->folder != NULL ? s->how->folder : s->folder;
}

/* A line of jobs.tsv: id, name, script, time, and of a sweep trials and offset. */
static void print_line(const submission *s, const char *id, lvni_core_str *line)
{
    const lvni_cli_slurm_submission *how = s->how;
    lvni_core_str_message(line, "%s\t%s\t%s\t%s", id, s->name, lvni_core_str_text(&s->path),
                          s->time);
    if (how->trials != NULL) {
        lvni_core_str_printf(line, "\t%s\t%s", how->trials, how->offset);
    }
    lvni_core_str_char(line, '\n');
}

/* Does the file end in a line that was cut off? */
static lvn_status ends_cut(const char *path, bool *cut)
{
    int fd;
    uint64_t bytes;
    char last = '\n';
    LVN_TRY(lvni_core_regular_open(path, &fd, &bytes));
    *cut = bytes > 0 && pread(fd, &last, 1, (off_t)bytes - 1) == 1 && last != '\n';
    close(fd);
    return LVN_OK;
}

/* The first line of jobs.tsv names its columns. */
static lvn_status append_line(const char *folder, bool of_sweep, const char *line)
{
    lvni_core_str path = {0}, text = {0};
    int fd = -1;
    bool cut = false;
    lvn_status status;
    lvni_core_str_printf(&path, "%s/jobs.tsv", folder);
    LVNI_TRY_DONE(status, lvni_core_str_status(&path));
    if (!lvni_core_path_exists(lvni_core_str_text(&path))) {
        lvni_core_str_printf(&text, "job\tname\tscript\ttime%s\n",
                             of_sweep ? "\ttrials\toffset" : "");
    } else {
        LVNI_TRY_DONE(status, ends_cut(lvni_core_str_text(&path), &cut));
    }
    lvni_core_str_append(&text, cut ? "\n" : "");
    lvni_core_str_append(&text, line);
    LVNI_TRY_DONE(status, lvni_core_str_status(&text));
    LVNI_TRY_DONE(status, lvni_core_append_open(lvni_core_str_text(&path), false, &fd));
    status =
        lvni_core_append_write(fd, lvni_core_str_text(&path), lvni_core_str_text(&text), text.len);
    close(fd);
done:
    lvni_core_str_free(&path);
    lvni_core_str_free(&text);
    return status;
}

/* FOLDER/submitting: there while a job of a sweep may be in the queue without being in jobs.tsv. */
static lvn_status announce(const submission *s, bool begins)
{
    lvni_core_str path = {0}, line = {0};
    lvn_status status;
    lvni_core_str_printf(&path, "%s/submitting", record_folder(s));
    print_line(s, UNKNOWN, &line);
    LVNI_TRY_DONE(status, lvni_core_str_status(&path));
    LVNI_TRY_DONE(status, lvni_core_str_status(&line));
    status = begins ? lvni_core_file_write(lvni_core_str_text(&path), lvni_core_str_text(&line),
                                           line.len)
                    : lvni_core_file_remove(lvni_core_str_text(&path));
done:
    lvni_core_str_free(&path);
    lvni_core_str_free(&line);
    return status;
}

static lvn_status record(const submission *s)
{
    lvni_core_str line = {0};
    print_line(s, s->id, &line);
    lvn_status status = lvni_core_str_status(&line);
    if (status == LVN_OK) {
        status = append_line(record_folder(s), s->how->trials != NULL, lvni_core_str_text(&line));
    }
    lvni_core_str_free(&line);
    return status;
}

/* The job of the queue (lines "123_4 SCRIPT") that runs this script; 0 bytes: none does. sbatch
 * makes a path absolute. */
static size_t find_script(const char *queue, const char *script, const char **id)
{
    const size_t n = strlen(script);
    for (*id = queue; **id != '\0'; *id += strcspn(*id, "\n"), *id += **id == '\n') {
        *id += strspn(*id, " ");
        const size_t digits = strspn(*id, "0123456789"), line = strcspn(*id, "\n"),
                     word = strcspn(*id, " \n");
        if (digits > 0 && line > word + n && strncmp(*id + line - n, script, n) == 0 &&
            strchr("/ ", (*id)[line - n - 1]) != NULL) {
            return digits;
        }
    }
    return 0;
}

/* line: of `submitting`, its newline included. */
static lvn_status recover_line(const char *folder, const char *line)
{
    char user[24];
    int code = 0;
    lvni_core_str queue = {0}, script = {0}, found = {0};
    lvn_status status = LVN_OK;
    const char *id, *column = line;
    for (int i = 0; i < 2 && column != NULL; i++) {
        column = strchr(column, '\t');
        column = column != NULL ? column + 1 : NULL;
    }
    if (column == NULL || line[0] != UNKNOWN[0]) {
        return LVN_OK; /* cut off: sbatch had not been started */
    }
    lvni_core_str_append_n(&script, column, strcspn(column, "\t\n"));
    snprintf(user, sizeof user, "%lld", (long long)geteuid());
    const char *const argv[] = {"squeue", "-h", "-r", "-o", "%i %o", "-u", user, NULL};
    LVNI_TRY_DONE(status, lvni_cli_slurm_call(argv, &queue, &code));
    if (code != 0) {
        status = lvn_error_set(LVN_ERR_RESOURCE, __FILE__, __LINE__,
                               "squeue does not list whether %s, whose submission was "
                               "interrupted, is in the queue: %s",
                               lvni_core_str_text(&script), lvni_core_str_text(&queue));
        goto done;
    }
    const size_t digits = find_script(lvni_core_str_text(&queue), lvni_core_str_text(&script), &id);
    if (digits > 0) {
        lvni_core_str_printf(&found, "%.*s%s", (int)digits, id, line + strlen(UNKNOWN));
        LVNI_TRY_DONE(status, lvni_core_str_status(&found));
        LVNI_TRY_DONE(status, append_line(folder, true, lvni_core_str_text(&found)));
        lvni_core_print(stderr,
                        "levin: note: job %.*s is that of a submission that was "
                        "interrupted\n",
                        (int)digits, id);
    }
done:
    lvni_core_str_free(&queue);
    lvni_core_str_free(&script);
    lvni_core_str_free(&found);
    return status;
}

lvn_status lvni_cli_slurm_recover(const char *folder)
{
    enum { MOST = 1 << 20 };
    lvni_core_str path = {0};
    char *text = NULL;
    size_t bytes;
    lvn_status status;
    lvni_core_str_printf(&path, "%s/submitting", folder);
    LVNI_TRY_DONE(status, lvni_core_str_status(&path));
    if (!lvni_core_path_exists(lvni_core_str_text(&path))) {
        goto done;
    }
    LVNI_TRY_DONE(status, lvni_core_regular_read(lvni_core_str_text(&path), MOST, &text, &bytes));
    LVNI_TRY_DONE(status, strchr(text, '\n') != NULL ? recover_line(folder, text) : LVN_OK);
    status = lvni_core_file_remove(lvni_core_str_text(&path));
done:
    lvni_core_free(text);
    lvni_core_str_free(&path);
    return status;
}

/* ---- sbatch ---- */

lvn_status lvni_cli_slurm_outside_of_jobs(lvni_launch_variables *v)
{
    static const char *const kept[] = {"SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS"};
    lvni_launch_variables_copy(v, environ);
    lvni_launch_variables_unset_prefix(v, "SLURM_");
    lvni_launch_variables_unset_prefix(v, "SRUN_");
    lvni_launch_variables_unset_prefix(v, "PMI");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const char *value = lvni_launch_env_get(environ, kept[i]);
        if (value != NULL) {
            lvni_launch_variables_set(v, kept[i], value);
        }
    }
    return lvni_launch_variables_status(v);
}

static lvn_status make_environment(submission *s)
{
    const lvni_launch_variables *v = &s->environment;
    LVN_TRY(lvni_cli_slurm_outside_of_jobs(&s->environment));
    for (size_t i = 0; i < v->n; i++) {
        if (strncmp(v->list[i], "SBATCH_", 7) == 0) {
            lvni_core_print(stderr, "levin: note: %s of the environment counts before the script\n",
                            v->list[i]);
        }
    }
    return LVN_OK;
}

/* "123", "123;c1" and, of a sbatch that knows no --parsable, "Submitted batch job 123". */
static bool take_id(submission *s, const char *line)
{
    static const char words[] = "Submitted batch job ";
    const bool worded = strncmp(line, words, strlen(words)) == 0;
    line += worded ? strlen(words) : 0;
    const size_t digits = strspn(line, "0123456789"), n = strcspn(line, "\r\n ");
    if (digits == 0 || n >= sizeof s->id || (line[digits] != ';' && digits != n) ||
        (!worded && line[n] == ' ')) { /* "3 nodes are free" */
        return false;
    }
    memcpy(s->id, line, n);
    s->id[n] = '\0';
    return true;
}

/* The first line that is a number, of those that are complete, or at the end of all: in front of it
 * a site's own sbatch may print what it likes. */
static bool find_id(submission *s, const char *text, bool all)
{
    for (const char *line = text; *line != '\0';) {
        const char *end = strchr(line, '\n');
        if ((end != NULL || all) && take_id(s, line)) {
            return true;
        }
        line = end != NULL ? end + 1 : line + strlen(line);
    }
    return false;
}

/* What sbatch prints. The number is recorded at once: with wait the rest comes late. */
static lvn_status listen_to(submission *s, int fd)
{
    lvni_core_str text = {0};
    lvn_status status = LVN_OK;
    char piece[256];
    for (;;) {
        const ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n > 0) {
            lvni_core_str_append_n(&text, piece, (size_t)n);
        }
        if (s->id[0] == '\0' && find_id(s, lvni_core_str_text(&text), n <= 0)) {
            lvni_core_print(stdout, "job %.*s%s%s\n", (int)strcspn(s->id, ";"), s->id,
                            s->how->trials != NULL ? ": trials " : "",
                            s->how->trials != NULL ? s->how->trials : "");
            fflush(stdout);
            status = record(s);
            if (status == LVN_OK && s->how->trials != NULL) {
                status = announce(s, false);
            }
        }
        if (n <= 0) {
            break;
        }
    }
    if (s->id[0] == '\0') {
        lvni_core_print(stderr, "%-s", lvni_core_str_text(&text));
    }
    status = status == LVN_OK ? lvni_core_str_status(&text) : status;
    lvni_core_str_free(&text);
    return status;
}

enum { WORDS = 6 };

static void make_words(const submission *s, const char *words[WORDS])
{
    int n = 0;
    words[n++] = "sbatch";
    words[n++] = "--parsable";
    if (s->how->test_only) {
        words[n++] = "--test-only";
    }
    if (s->how->wait) {
        words[n++] = "--wait";
    }
    words[n++] = lvni_core_str_text(&s->path);
    words[n] = NULL;
}

/* error: errno of a sbatch that cannot be started. */
static lvn_status run(submission *s, int *exit_code, int *error)
{
    const char *words[WORDS];
    lvni_slurm_tool tool;
    make_words(s, words);
    LVN_TRY(
        lvni_slurm_tool_start(LVNI_SLURM_TOOL_BESIDE, s->environment.list, words, &tool, error));
    if (*error != 0) {
        return LVN_OK;
    }
    const lvn_status result = listen_to(s, tool.output);
    *exit_code = lvni_slurm_tool_end(&tool);
    return result;
}

static lvn_status submit(submission *s, int *code)
{
    int exit_code = 0, error = 0;
    LVN_TRY(run(s, &exit_code, &error));
    if (error != 0) {
        lvni_core_print(stderr,
                        "error: sbatch not found (%s): is this a machine of the cluster? The "
                        "script is %s\n",
                        strerror(error), lvni_core_str_text(&s->path));
        *code = LVNI_EXIT_RESOURCE;
    } else if (s->how->wait && s->id[0] != '\0') {
        *code = exit_code;
    } else if (exit_code != 0) {
        lvni_core_print(stderr, "error: sbatch refused the job (exit code %d); the script is %s\n",
                        exit_code, lvni_core_str_text(&s->path));
        *code = LVNI_EXIT_RESOURCE;
    } else if (s->id[0] == '\0' && !s->how->test_only) {
        fputs("error: sbatch printed no number of a job, so it is not recorded\n", stderr);
        *code = LVNI_EXIT_RESOURCE;
    }
    return LVN_OK;
}

static void print_command(const submission *s)
{
    const char *words[WORDS];
    make_words(s, words);
    for (int i = 0; words[i] != NULL; i++) {
        lvni_core_str word = {0};
        lvni_core_shell_quote(&word, words[i]);
        lvni_core_print(stdout, "%s%s", i > 0 ? " " : "", lvni_core_str_text(&word));
        lvni_core_str_free(&word);
    }
    putchar('\n');
}

lvn_status lvni_cli_slurm_submit_job(const lvni_slurm_job *job, const lvni_core_str *script,
                                     const lvni_cli_slurm_submission *how, int *code)
{
    const char *folder = lvni_slurm_text(job->options, "log_dir"),
               *name = lvni_slurm_text(job->options, "job_name");
    submission s = {.job = job,
                    .how = how,
                    .folder = folder != NULL ? folder : ".",
                    .name = name != NULL ? name : "job"};
    lvn_status status;
    LVNI_TRY_DONE(status, name_script(&s));
    if (how->dry_run) {
        fwrite(lvni_core_str_text(script), 1, script->len, stdout);
        print_command(&s);
        goto done;
    }
    LVNI_TRY_DONE(status, write_script(&s, script));
    LVNI_TRY_DONE(status, make_environment(&s));
    const bool announced = how->trials != NULL && !how->test_only;
    LVNI_TRY_DONE(status, announced ? announce(&s, true) : LVN_OK);
    status = submit(&s, code);
    if (announced && s.id[0] == '\0' && status == LVN_OK) { /* refused */
        status = announce(&s, false);
    }
    if (how->test_only && status == LVN_OK && *code == LVNI_EXIT_OK) {
        (void)unlink(lvni_core_str_text(&s.path));
    }
done:
    lvni_core_str_free(&s.path);
    lvni_launch_variables_free(&s.environment);
    return status;
}

bool lvni_cli_slurm_is_in_path(const char *name)
{
    lvni_core_str path = {0};
    bool found = false;
    for (const char *p = getenv("PATH"); p != NULL && !found; p = strchr(p, ':')) {
        p += *p == ':';
        lvni_core_str_clear(&path);
        lvni_core_str_append_n(&path, p, strcspn(p, ":"));
        lvni_core_str_printf(&path, "/%s", name);
        found = !path.failed && access(lvni_core_str_text(&path), X_OK) == 0;
    }
    lvni_core_str_free(&path);
    return found;
}

void lvni_cli_slurm_print_findings(lvni_slurm_findings *f)
{
    fputs(lvni_core_str_text(&f->text), stderr);
    lvni_core_str_clear(&f->text);
}

lvn_status lvni_cli_slurm_ask_cluster(int timeout_ms, lvni_slurm_cluster *c, lvni_slurm_findings *f)
{
    lvni_core_str why = {0};
    const lvn_status s = lvni_slurm_cluster_ask(environ, timeout_ms, c, &why);
    if (why.len > 0) {
        lvni_slurm_note(f, "cluster", "%s: partitions, limits and nodes are not checked",
                        lvni_core_str_text(&why));
    }
    lvni_core_str_free(&why);
    return s;
}
