/* levin slurm logs JOB: what the job wrote, from its files; -f follows them until it has ended. */
#include "cli/cli.h"
#include "cli/slurm_found.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/machine.h"
#include "core/vfs.h"
#include "run/error_record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 64 << 10, LOOK_MS = 200 };
/* Is the job still there? Not asked while its log grows, and less and less often: a queue is shared
 * by all. */
enum { ASK_FIRST_MS = 2000, ASK_LAST_MS = 30000 };
enum { QUIET_MS = 1000 }; /* what a node wrote last may come late over a network */

typedef struct options {
    const char *job, *log_dir;
    bool follow;
    int64_t lines; /* -1: all */
    int64_t rank;  /* -1: the job's own files */
} options;

/* A file that is read from `at` on. */
typedef struct source {
    const char *path;
    int fd; /* -1: it is not there yet */
    dev_t device;
    ino_t inode;
    off_t at;
} source;

typedef struct reader {
    source file[LVNI_CLI_LOGS];
    int n;
    int shown;   /* whose lines were printed last; -1: none */
    bool broken; /* standard output is closed */
} reader;

/* ---- reading ---- */

static void put(reader *r, const char *bytes, size_t n)
{
    for (size_t done = 0; done < n && !r->broken;) {
        const ssize_t some = write(STDOUT_FILENO, bytes + done, n - done);
        if (some < 0 && errno != EINTR) {
            r->broken = true;
        }
        done += some > 0 ? (size_t)some : 0;
    }
}

/* The name of the file, where there are several, when another one than before prints. */
static void put_name(reader *r, int i)
{
    if (r->n > 1 && r->shown != i) {
        lvni_core_str head = {0};
        lvni_core_str_message(&head, "%s==> %s <==\n", r->shown < 0 ? "" : "\n", r->file[i].path);
        put(r, lvni_core_str_text(&head), head.len);
        lvni_core_str_free(&head);
        r->shown = i;
    }
}

/* All from `at` to the end; true: there was something. */
static bool print_rest(reader *r, int i)
{
    source *f = &r->file[i];
    char piece[PIECE];
    bool some = false;
    for (ssize_t n; !r->broken && (n = pread(f->fd, piece, sizeof piece, f->at)) > 0;) {
        put_name(r, i);
        put(r, piece, (size_t)n);
        f->at += n;
        some = true;
    }
    return some;
}

static bool open_file(source *f)
{
    struct stat st;
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0 || fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (f->fd >= 0) {
            close(f->fd);
        }
        f->fd = -1;
        return false;
    }
    f->device = st.st_dev;
    f->inode = st.st_ino;
    f->at = 0;
    return true;
}

/* Where the last lines of the file begin. */
static void skip_to_last(source *f, int64_t lines)
{
    const off_t end = lseek(f->fd, 0, SEEK_END);
    char piece[PIECE];
    off_t at = end;
    if (lines < 0 || end <= 0) {
        return;
    }
    if (lines == 0) {
        f->at = end;
        return;
    }
    for (bool last = true; at > 0 && lines >= 0; last = false) {
        const size_t n = at < PIECE ? (size_t)at : PIECE;
        const ssize_t got = pread(f->fd, piece, n, at - (off_t)n);
        if (got != (ssize_t)n) {
            break;
        }
        size_t k = n;
        k -= last && piece[n - 1] == '\n'; /* which ends the last line */
        for (; k > 0 && lines > 0; k--) {
            lines -= piece[k - 1] == '\n';
            if (lines == 0) {
                break;
            }
        }
        at -= (off_t)(n - k);
        if (lines == 0) {
            break;
        }
    }
    f->at = at;
}

/* A file that was cut begins again, and so does one that another has replaced: the rest of the old
 * one comes first. */
static bool look_at(reader *r, int i)
{
    source *f = &r->file[i];
    struct stat st;
    if (f->fd < 0) {
        return open_file(f) && print_rest(r, i);
    }
    bool some = print_rest(r, i);
    if (fstat(f->fd, &st) == 0 && st.st_size < f->at) {
        lvni_core_print(stderr, "levin: note: %s was cut: from its begin\n", f->path);
        f->at = 0;
        some = print_rest(r, i) || some;
    }
    if (stat(f->path, &st) == 0 && (st.st_ino != f->inode || st.st_dev != f->device)) {
        close(f->fd);
        lvni_core_print(stderr, "levin: note: %s was replaced: from its begin\n", f->path);
        some = (open_file(f) && print_rest(r, i)) || some;
    }
    return some;
}

/* ---- following ---- */

/* Has it ended? *state: what squeue has, "" where it knows nothing. */
static lvn_status ask(const char *id, char state[LVNI_SLURM_STATE_TEXT], bool *ended, int *code)
{
    lvni_core_str out = {0}, jobs = {0};
    lvni_slurm_table table = {.n = 0};
    int exit_code = 0;
    lvn_status s;
    lvni_core_str_printf(&jobs, "--jobs=%s", id);
    LVNI_TRY_DONE(s, lvni_core_str_status(&jobs));
    const char *const argv[] = {
        "squeue", "--noheader", "--states=all", lvni_slurm_squeue_format, lvni_core_str_text(&jobs),
        NULL};
    LVNI_TRY_DONE(s, lvni_cli_slurm_call(argv, &out, &exit_code));
    const char *text = lvni_core_str_text(&out);
    if (exit_code != 0 && strstr(text, "Invalid job id") == NULL) {
        *code = lvni_cli_slurm_refused("squeue", exit_code, &out);
        goto done;
    }
    LVNI_TRY_DONE(s,
                  lvni_slurm_table_read(text, LVNI_SLURM_SEPARATOR, LVNI_SLURM_JOB_FIELDS, &table));
    state[0] = '\0';
    *ended = true;
    for (size_t i = 0; i < table.n; i++) {
        char word[LVNI_SLURM_STATE_TEXT];
        const bool end = lvni_slurm_phase_is_end(
            lvni_slurm_state_read(lvni_slurm_table_at(&table, i, LVNI_SLURM_JOB_STATE), word));
        if (state[0] == '\0' || !end) {
            memcpy(state, word, sizeof word);
        }
        *ended = *ended && end;
    }
done:
    lvni_slurm_table_free(&table);
    lvni_core_str_free(&out);
    lvni_core_str_free(&jobs);
    return s;
}

static void wait_ms(int ms)
{
    const struct timespec t = lvni_core_timespec((uint64_t)ms * 1000000u);
    (void)nanosleep(&t, NULL);
}

static bool look_at_all(reader *r)
{
    bool some = false;
    for (int i = 0; i < r->n; i++) {
        some = look_at(r, i) || some;
    }
    return some;
}

/* Until Slurm has ended the job and its files are quiet. A squeue that fails once is asked again
 * later. */
static lvn_status follow(reader *r, const char *id, bool ended, int *code)
{
    char state[LVNI_SLURM_STATE_TEXT] = "";
    int wait = ASK_FIRST_MS, failures = 0;
    for (int quiet = 0; !r->broken && !(ended && quiet >= QUIET_MS);) {
        wait_ms(LOOK_MS);
        quiet = look_at_all(r) ? 0 : quiet + LOOK_MS;
        if (ended || quiet < wait) {
            continue;
        }
        int asked = LVNI_EXIT_OK;
        LVN_TRY(ask(id, state, &ended, &asked));
        failures = asked == LVNI_EXIT_OK ? 0 : failures + 1;
        if (failures == 3) {
            *code = asked;
            return LVN_OK;
        }
        quiet = 0;
        wait = 2 * wait < ASK_LAST_MS ? 2 * wait : ASK_LAST_MS;
    }
    if (ended && !r->broken) {
        lvni_core_print(stderr, "levin: job %s has ended%s%s; levin slurm why %s\n", id,
                        state[0] != '\0' ? ": " : "", state, id);
    }
    return LVN_OK;
}

/* ---- which files ---- */

/* The newest attempt that the launcher keeps logs of; below 0: none. */
static long last_attempt(const char *run_dir)
{
    lvni_core_str path = {0};
    long last = -1;
    lvni_core_str_printf(&path, "%s/logs", run_dir);
    DIR *d = lvni_core_str_status(&path) == LVN_OK ? opendir(lvni_core_str_text(&path)) : NULL;
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        const long one =
            strncmp(e->d_name, "attempt_", 8) == 0 && e->d_name[8] >= '0' && e->d_name[8] <= '9'
                ? strtol(e->d_name + 8, NULL, 10)
                : -1;
        last = one > last ? one : last;
    }
    if (d != NULL) {
        closedir(d);
    }
    lvni_core_str_free(&path);
    return last;
}

/* The two files of a rank take the place of the job's. */
static lvn_status take_rank(const options *o, lvni_cli_slurm_files *files, int *code)
{
    static const char *const names[] = {"stdout", "stderr"};
    const char *dir = lvni_core_str_text(&files->run_dir);
    const long attempt = last_attempt(dir);
    lvni_core_str folder = {0}, one = {0};
    lvn_status s;
    lvni_core_str_printf(&folder, "%s/logs/attempt_%ld/rank_%lld", dir, attempt,
                         (long long)o->rank);
    LVNI_TRY_DONE(s, lvni_core_str_status(&folder));
    if (files->run_dir.len == 0 || !lvni_core_path_is_folder(lvni_core_str_text(&folder))) {
        lvni_core_print(stderr,
                        "error: rank %lld of job %s has no log of its own%s%s: ranks have one "
                        "where levin launch starts them (mode=launcher), else all write to the "
                        "job's: levin slurm logs %s\n",
                        (long long)o->rank, o->job, files->run_dir.len > 0 ? " in " : "", dir,
                        o->job);
        *code = LVNI_EXIT_FAILURE;
        goto done;
    }
    for (int i = 0; i < files->n; i++) {
        lvni_core_free(files->logs[i]);
    }
    files->n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lvni_core_str_printf(&one, "%s/%s.log", lvni_core_str_text(&folder), names[i]);
        LVNI_TRY_DONE(s, lvni_core_str_status(&one));
        files->logs[files->n++] = lvni_core_str_take(&one);
    }
done:
    lvni_core_str_free(&folder);
    lvni_core_str_free(&one);
    return s;
}

/* Where the job has no file that is known, its run directory has one. */
static lvn_status take_train_log(lvni_cli_slurm_files *files)
{
    lvni_core_str one = {0};
    if (files->n > 0 || files->run_dir.len == 0) {
        return LVN_OK;
    }
    lvni_core_str_printf(&one, "%s/train.log", lvni_core_str_text(&files->run_dir));
    LVN_TRY(lvni_core_str_status(&one));
    files->logs[files->n++] = lvni_core_str_take(&one);
    return LVN_OK;
}

/* Those that are there, from their last lines on; how many. */
static int print_now(const options *o, reader *r)
{
    int there = 0;
    for (int i = 0; i < r->n; i++) {
        if (open_file(&r->file[i])) {
            skip_to_last(&r->file[i], o->lines);
            (void)print_rest(r, i);
            there++;
        }
    }
    return there;
}

static lvn_status print_files(const options *o, const lvni_cli_slurm_meant *m,
                              const lvni_cli_slurm_files *files, const char *state, bool ended,
                              int *code)
{
    reader *r = lvni_core_calloc(LVNI_TAG_CORE, 1, sizeof *r);
    if (r == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s = LVN_OK;
    r->shown = -1;
    for (r->n = 0; r->n < files->n; r->n++) {
        r->file[r->n] = (source){.path = files->logs[r->n], .fd = -1};
    }
    const int there = print_now(o, r);
    if (there == 0) {
        lvni_core_print(stderr, "%s: job %s (%s) has written nothing%s: %s is not %s\n",
                        o->follow ? "levin: note" : "error", m->id, state, ended ? "" : " yet",
                        files->logs[0], lvni_core_path_exists(files->logs[0]) ? "a file" : "there");
        *code = o->follow ? LVNI_EXIT_OK : LVNI_EXIT_FAILURE;
    }
    if (o->follow && *code == LVNI_EXIT_OK) {
        s = follow(r, m->id, ended, code);
    }
    for (int i = 0; i < r->n; i++) {
        if (r->file[i].fd >= 0) {
            close(r->file[i].fd);
        }
    }
    lvni_core_free(r);
    return s;
}

static lvn_status run(const options *o, int *code)
{
    lvni_cli_slurm_found found;
    lvni_cli_slurm_files files = {.n = 0};
    lvni_cli_slurm_line line;
    char state[LVNI_SLURM_STATE_TEXT] = "ended";
    size_t at = 0;
    lvn_status s = lvni_cli_slurm_find(
        &(lvni_cli_slurm_request){.log_dir = o->log_dir, .n = 1, .words = &o->job, .history = true},
        &found, code);
    if (s != LVN_OK || *code != LVNI_EXIT_OK) {
        return s;
    }
    const lvni_cli_slurm_meant *m = found.list;
    bool known = false, ended = true;
    while (lvni_cli_slurm_next(&found, m, &at, &line)) {
        char word[LVNI_SLURM_STATE_TEXT];
        const bool end = lvni_slurm_phase_is_end(
            lvni_slurm_state_read(lvni_cli_slurm_field(&line, LVNI_SLURM_JOB_STATE), word));
        if (!known || !end) {
            memcpy(state, word, sizeof word);
        }
        known = true;
        ended = ended && end;
    }
    if (m->id[0] == '\0' || (!known && !m->sent && m->run_dir == NULL)) {
        lvni_cli_slurm_unknown(&found, m);
        *code = LVNI_EXIT_FAILURE;
        goto done;
    }
    LVNI_TRY_DONE(s, lvni_cli_slurm_files_find(&found, m, &files));
    LVNI_TRY_DONE(s, o->rank >= 0 ? take_rank(o, &files, code) : take_train_log(&files));
    if (*code != LVNI_EXIT_OK) {
        goto done;
    }
    if (files.n == 0) {
        lvni_core_print(stderr,
                        "error: job %s (%s): which file it writes to is not known: Slurm names "
                        "none, and %s/jobs.tsv has no script of it\n",
                        m->id, state, found.log_dir);
        *code = LVNI_EXIT_FAILURE;
        goto done;
    }
    s = print_files(o, m, &files, state, ended, code);
done:
    lvni_cli_slurm_files_free(&files);
    lvni_cli_slurm_found_free(&found);
    return s;
}

static int misused(const char *what, const char *value)
{
    lvni_core_print(stderr,
                    "error: levin slurm logs: %s%s%s; levin slurm logs JOB [-f] [-n LINES] "
                    "[--rank R]\n",
                    what, value[0] != '\0' ? " " : "", value);
    return LVNI_EXIT_USAGE;
}

static bool read_count(const char *text, int64_t *out)
{
    char *end = NULL;
    *out = text[0] >= '0' && text[0] <= '9' ? strtoll(text, &end, 10) : -1;
    return end != NULL && *end == '\0' && *out < INT32_MAX;
}

int lvni_cli_slurm_logs(int n, const char *const *args)
{
    options o = {.log_dir = LVNI_CLI_LOG_DIR, .lines = -1, .rank = -1};
    int code = LVNI_EXIT_OK;
    for (int i = 0; i < n; i++) {
        const char *a = args[i], *v;
        if (strcmp(a, "-f") == 0 || strcmp(a, "--follow") == 0) {
            o.follow = true;
        } else if ((strncmp(a, "-n", 2) == 0 && (v = a + 2)[0] != '\0') ||
                   (strcmp(a, "-n") == 0 && i + 1 < n && (v = args[++i]) != NULL) ||
                   (v = lvni_cli_slurm_value(n, args, &i, "lines")) != NULL) {
            if (!read_count(v, &o.lines)) {
                return misused("-n takes a number of lines, and not", v);
            }
        } else if ((v = lvni_cli_slurm_value(n, args, &i, "rank")) != NULL) {
            if (!read_count(v, &o.rank)) {
                return misused("--rank takes a rank, from 0 on, and not", v);
            }
        } else if ((v = lvni_cli_slurm_value(n, args, &i, "log-dir")) != NULL) {
            o.log_dir = v;
        } else if (a[0] == '-' || o.job != NULL) {
            return misused(a[0] == '-' ? "there is no option" : "one job at a time, and not", a);
        } else {
            o.job = a;
        }
    }
    if (o.job == NULL) {
        return misused("of which job? its number, its name, its run directory, or `last`", "");
    }
    const lvn_status s = run(&o, &code);
    return s == LVN_OK ? code : lvni_run_report_status(s);
}
