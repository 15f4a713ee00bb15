/* The directory of a run: which it is, which run holds it, and that it is removed where nothing
 * came of it; in it the log files of the ranks and their error records. */
#include "launch/launch_impl.h"

#include "core/alloc.h"
#include "core/str.h"
#include "core/vfs.h"
#include "launch/env_vars.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOCK_TRIES = 100 };

LVN_PRINTF(2, 3)
static lvn_status make_path(char **out, const char *fmt, ...)
{
    char text[4096];
    va_list args;
    va_start(args, fmt);
    const int n = lvni_core_format_args(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0 || n >= (int)sizeof text) {
        LVN_FAIL(LVN_ERR_USAGE, "the path of a file of the run is too long: %.80s...", text);
    }
    *out = lvni_core_strdup(LVNI_TAG_CORE, text);
    return *out == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* LEVIN_MADE_DIR=LENGTH:PATH, of the process that became this launcher: it has made the directory
 * to have the name, and nothing of the first LENGTH bytes' last part was there before. NULL: it has
 * not. */
static const char *claim(char *const *environment, size_t *made)
{
    const char *text = lvni_launch_env_get(environment, "LEVIN_MADE_DIR");
    char *path = NULL;
    *made = text != NULL ? strtoul(text, &path, 10) : 0;
    return path != NULL && *path == ':' && *made > 0 && *made <= strlen(path + 1) ? path + 1 : NULL;
}

bool lvni_launch_give_back(char *const *environment)
{
    size_t made;
    char first[4096];
    const char *path = claim(environment, &made);
    if (path != NULL && rmdir(path) == 0 && made < strlen(path) &&
        snprintf(first, sizeof first, "%.*s", (int)made, path) < (int)sizeof first) {
        (void)rmdir(first); /* where others have theirs in it, it stays */
    }
    return path != NULL;
}

/* Absolute: ranks may change their directory before they write a record. */
static lvn_status take_dir(lvni_launch_run *r, const char *path)
{
    char here[2048] = "";
    if (path[0] != '/' && getcwd(here, sizeof here) == NULL) {
        LVN_FAIL(LVN_ERR_IO, "the current directory is unknown: %s; give an absolute --run-dir",
                 strerror(errno));
    }
    lvni_core_free(r->run_dir);
    r->run_dir = NULL;
    return path[0] == '/' ? make_path(&r->run_dir, "%s", path)
                          : make_path(&r->run_dir, "%s/%s", here, path);
}

/* The first part of the path that is not there; all of it and more when everything is. */
static size_t first_missing(const char *path)
{
    char part[4096];
    size_t n = 1;
    for (; path[n - 1] != '\0' && n < sizeof part; n++) {
        if (path[n] == '/' || path[n] == '\0') {
            snprintf(part, sizeof part, "%.*s", (int)n, path);
            if (!lvni_core_path_exists(part)) {
                break;
            }
        }
    }
    return n;
}

/* Remembers where it began to make folders: it, or the process that became this launcher, to have
 * the name. */
static lvn_status make_run_dir(lvni_launch_run *r)
{
    size_t made;
    const char *given = r->o.run_dir, *claimed = claim(r->environment, &made);
    r->made_from = first_missing(r->run_dir);
    if (given != NULL && claimed != NULL && strcmp(given, claimed) == 0) {
        r->made_from = strlen(r->run_dir) - strlen(given) + made;
    }
    return lvni_core_mkdirs(r->run_dir);
}

static bool can_make(lvni_launch_run *r)
{
    return make_run_dir(r) == LVN_OK && access(r->run_dir, W_OK) == 0;
}

/* A folder in /tmp that no other user made or can write into: any user may have taken the name, as
 * a link, too. */
static lvn_status take_private(lvni_launch_run *r)
{
    char dir[64];
    struct stat info;
    snprintf(dir, sizeof dir, "/tmp/levin-runs-%u", (unsigned)geteuid());
    const bool made = mkdir(dir, 0700) == 0 || errno == EEXIST;
    if (!made || lstat(dir, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
        (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        snprintf(dir, sizeof dir, "/tmp/levin-runs-%u-XXXXXX", (unsigned)geteuid());
        if (mkdtemp(dir) == NULL) {
            LVN_FAIL(LVN_ERR_IO, "no folder can be made in /tmp: %s; give a --run-dir",
                     strerror(errno));
        }
    }
    char elsewhere[160];
    snprintf(elsewhere, sizeof elsewhere, "%s/%s", dir, r->run_id);
    LVN_TRY(take_dir(r, elsewhere));
    return make_run_dir(r);
}

lvn_status lvni_launch_choose_run_dir(lvni_launch_run *r)
{
    if (r->o.run_dir != NULL) {
        LVN_TRY(take_dir(r, r->o.run_dir));
        return r->o.dry_run ? LVN_OK : make_run_dir(r);
    }
    if (r->o.log_dir != NULL) {
        char *dir = NULL;
        LVN_TRY(make_path(&dir, "%s/%s", r->o.log_dir, r->run_id));
        const lvn_status s = take_dir(r, dir);
        lvni_core_free(dir);
        LVN_TRY(s);
        return r->o.dry_run ? LVN_OK : make_run_dir(r);
    }
    char name[128];
    snprintf(name, sizeof name, "levin-runs/%s", r->run_id);
    LVN_TRY(take_dir(r, name));
    if (r->o.dry_run || can_make(r)) {
        return LVN_OK;
    }
    LVN_TRY(take_private(r));
    lvni_launch_print(r, "%s cannot be made here; logs and error records go to %s", name,
                      r->run_dir);
    return LVN_OK;
}

/* ---- which run holds it ---- */

static bool is_at(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

lvn_status lvni_launch_lock_run_dir(lvni_launch_run *r)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        const int fd = open(r->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 && errno != ENOENT) {
            return LVN_OK; /* what cannot be read is not locked */
        }
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(fd);
            r->taken = true;
            LVN_FAIL(LVN_ERR_USAGE,
                     "another process is training in out=%s: wait for its end, or give another out",
                     r->o.run_dir != NULL ? r->o.run_dir : r->run_dir);
        }
        if (fd >= 0 && is_at(fd, r->run_dir)) {
            r->lock_fd = fd;
            return LVN_OK;
        }
        if (fd >= 0) {
            close(fd);
        }
        LVN_TRY(make_run_dir(r)); /* another run has just removed it */
    }
    LVN_FAIL(LVN_ERR_IO, "the directory %s vanishes as soon as it is made", r->run_dir);
}

/* ---- names of files ---- */

static lvn_status expand_path(const lvni_launch_run *r, const lvni_launch_proc *p,
                              const char *pattern, char **out)
{
    lvni_launch_rank_name name;
    lvni_launch_name(r, p, &name);
    lvni_core_str s = {0};
    lvni_launch_pattern_expand(&s, pattern, &name);
    *out = lvni_core_str_take(&s);
    return *out == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static lvn_status name_logs(const lvni_launch_run *r, lvni_launch_proc *p)
{
    lvni_core_free(p->out_log);
    lvni_core_free(p->err_log);
    p->out_log = p->err_log = NULL;
    if (r->o.output != NULL) {
        LVN_TRY(expand_path(r, p, r->o.output, &p->out_log));
    } else {
        LVN_TRY(make_path(&p->out_log, "%s/logs/attempt_%d/rank_%d/stdout.log", r->run_dir,
                          r->attempt, p->rank));
    }
    const char *error = r->o.error != NULL ? r->o.error : r->o.output;
    if (error != NULL) {
        return expand_path(r, p, error, &p->err_log);
    }
    return make_path(&p->err_log, "%s/logs/attempt_%d/rank_%d/stderr.log", r->run_dir, r->attempt,
                     p->rank);
}

/* /dev/null and pipes may serve all. */
static bool is_plain(const char *path)
{
    struct stat info;
    return stat(path, &info) != 0 || S_ISREG(info.st_mode);
}

static lvn_status check_apart(const char *a, int rank_a, const char *b, int rank_b)
{
    if (strcmp(a, b) == 0 && is_plain(a)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "ranks %d and %d would write into one file, %s: put %%r into the name, or allow "
                 "it with --output-append-shared",
                 rank_a, rank_b, a);
    }
    return LVN_OK;
}

lvn_status lvni_launch_name_files(lvni_launch_run *r)
{
    for (int i = 0; i < r->local; i++) {
        lvni_launch_proc *p = &r->procs[i];
        LVN_TRY(make_path(&p->record, "%s/errors/attempt_%d_rank_%d.json", r->run_dir, r->attempt,
                          p->rank));
        p->pid = i; /* %p: some numbers that differ, until there are processes */
        LVN_TRY(name_logs(r, p));
        for (int k = 0; k < i && !r->o.append_shared; k++) {
            const lvni_launch_proc *q = &r->procs[k];
            LVN_TRY(check_apart(q->out_log, q->rank, p->out_log, p->rank));
            LVN_TRY(check_apart(q->err_log, q->rank, p->err_log, p->rank));
            LVN_TRY(check_apart(q->out_log, q->rank, p->err_log, p->rank));
            LVN_TRY(check_apart(q->err_log, q->rank, p->out_log, p->rank));
        }
    }
    return LVN_OK;
}

/* ---- making and removing files ---- */

static lvn_status make_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path) {
        return LVN_OK;
    }
    char *dir;
    LVN_TRY(make_path(&dir, "%.*s", (int)(slash - path), path));
    const lvn_status s = lvni_core_mkdirs(dir);
    lvni_core_free(dir);
    return s;
}

static lvn_status open_log(const lvni_launch_run *r, const char *path, int *fd)
{
    const bool begins = r->attempt == 0 && !r->o.append_shared && is_plain(path);
    LVN_TRY(make_folder_of(path));
    return lvni_core_append_open(path, begins, fd);
}

bool lvni_launch_logs_by_pid(const lvni_launch_run *r)
{
    const lvni_launch_rank_name one = {.host = "", .run_id = "", .pid = 1},
                                two = {.host = "", .run_id = "", .pid = 2};
    const char *patterns[] = {r->o.output, r->o.error};
    bool differ = false;
    for (int i = 0; i < 2; i++) {
        lvni_core_str a = {0}, b = {0};
        lvni_launch_pattern_expand(&a, patterns[i] != NULL ? patterns[i] : "", &one);
        lvni_launch_pattern_expand(&b, patterns[i] != NULL ? patterns[i] : "", &two);
        differ = differ || strcmp(lvni_core_str_text(&a), lvni_core_str_text(&b)) != 0;
        lvni_core_str_free(&a);
        lvni_core_str_free(&b);
    }
    return differ;
}

lvn_status lvni_launch_open_logs(const lvni_launch_run *r, lvni_launch_proc *p)
{
    LVN_TRY(make_folder_of(p->record));
    lvni_core_vfs_get()->unlink(p->record); /* of an earlier run in this directory */
    LVN_TRY(name_logs(r, p));
    LVN_TRY(open_log(r, p->out_log, &p->out.log_fd));
    if (strcmp(p->out_log, p->err_log) == 0) {
        p->err.log_fd = fcntl(p->out.log_fd, F_DUPFD_CLOEXEC, 3);
        return LVN_OK;
    }
    return open_log(r, p->err_log, &p->err.log_fd);
}

/* A file, or a folder that is empty. What is not there, or others have files in, stays as it is. */
static void remove_at(int (*remove_one)(const char *path), const char *fmt, va_list args)
{
    char path[4096];
    const int n = lvni_core_format_args(path, sizeof path, fmt, args);
    if (n > 0 && n < (int)sizeof path) {
        (void)remove_one(path);
    }
}

/* When it is empty; a file or a link of this name stays. */
LVN_PRINTF(1, 2)
static void remove_folder(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    remove_at(rmdir, fmt, args);
    va_end(args);
}

LVN_PRINTF(1, 2)
static void remove_file(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    remove_at(unlink, fmt, args);
    va_end(args);
}

/* A rank that was killed by others keeps its files: its message does not explain that. */
static bool left_by_itself(const lvni_launch_run *r)
{
    lvni_core_error_record record;
    const lvni_launch_proc *first = lvni_launch_first(r, &record);
    return first != NULL && (first->how == CLD_EXITED || record.code != 0);
}

bool lvni_launch_not_begun(const lvni_launch_run *r)
{
    const bool ended = r->broken || r->reason == LVNI_REASON_SIGNAL ||
                       (r->reason == LVNI_REASON_FAILURE && left_by_itself(r));
    DIR *d = ended && !r->taken && r->run_dir != NULL && r->o.keep_logs == LVNI_KEEP_STARTED
                 ? opendir(r->run_dir)
                 : NULL;
    bool alone = d != NULL;
    for (const struct dirent *e = NULL; alone && (e = readdir(d)) != NULL;) {
        alone = e->d_name[0] == '.' || strcmp(e->d_name, "logs") == 0 ||
                strcmp(e->d_name, "errors") == 0;
    }
    if (d != NULL) {
        closedir(d);
    }
    return alone;
}

void lvni_launch_remove_files(const lvni_launch_run *r)
{
    for (int attempt = 0; attempt <= r->attempt; attempt++) {
        for (int i = 0; i < r->local; i++) {
            const int rank = r->node_rank * r->local + i;
            remove_file("%s/errors/attempt_%d_rank_%d.json", r->run_dir, attempt, rank);
            remove_file("%s/logs/attempt_%d/rank_%d/stdout.log", r->run_dir, attempt, rank);
            remove_file("%s/logs/attempt_%d/rank_%d/stderr.log", r->run_dir, attempt, rank);
            remove_folder("%s/logs/attempt_%d/rank_%d", r->run_dir, attempt, rank);
        }
        remove_folder("%s/logs/attempt_%d", r->run_dir, attempt);
    }
    remove_folder("%s/logs", r->run_dir);
    remove_folder("%s/errors", r->run_dir);
    for (size_t n = strlen(r->run_dir); n > 1 && n >= r->made_from; n--) {
        /* and those above it that were not there before */
        if (r->run_dir[n] == '/' || r->run_dir[n] == '\0') {
            remove_folder("%.*s", (int)n, r->run_dir);
        }
    }
    const char *slash = strrchr(r->run_dir, '/');
    if (r->o.run_dir == NULL && slash != NULL) { /* levin-runs, where this run was the only one */
        remove_folder("%.*s", (int)(slash - r->run_dir), r->run_dir);
    }
}

void lvni_launch_remove_no_errors(const lvni_launch_run *r)
{
    if (r->nodes == 1 && r->run_dir != NULL) {
        remove_folder("%s/errors", r->run_dir);
    }
}

/* ---- of an earlier run ---- */

/* What follows `begin` and a number, NULL when the name is another. */
static const char *after_number(const char *name, const char *begin)
{
    const size_t n = strlen(begin),
                 digits = strncmp(name, begin, n) == 0 ? strspn(name + n, "0123456789") : 0;
    return digits > 0 ? name + n + digits : NULL;
}

static bool is_attempt(const char *name)
{
    const char *rest = after_number(name, "attempt_");
    return rest != NULL && *rest == '\0';
}

static bool is_rank(const char *name)
{
    const char *rest = after_number(name, "rank_");
    return rest != NULL && *rest == '\0';
}

static bool is_record(const char *name)
{
    const char *rest = after_number(name, "attempt_");
    rest = rest != NULL ? after_number(rest, "_rank_") : NULL;
    return rest != NULL && strcmp(rest, ".json") == 0;
}

/* The files of this kind, and the folder if it is empty then. */
static void forget_in(const char *dir, bool (*is_ours)(const char *name),
                      void (*forget)(const char *path))
{
    char path[4096];
    /* what a link leads to is not ours to empty */
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (const struct dirent *e = NULL; d != NULL && (e = readdir(d)) != NULL;) {
        if (is_ours(e->d_name) &&
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path) {
            forget(path);
        }
    }
    if (d != NULL) {
        closedir(d);
        remove_folder("%s", dir);
    }
}

static void forget_record(const char *path)
{
    remove_file("%s", path);
}

static void forget_rank(const char *dir)
{
    remove_file("%s/stdout.log", dir);
    remove_file("%s/stderr.log", dir);
    remove_folder("%s", dir);
}

static void forget_attempt(const char *dir)
{
    forget_in(dir, is_rank, forget_rank);
}

void lvni_launch_forget_files(const char *run_dir)
{
    char dir[4096];
    if (snprintf(dir, sizeof dir, "%s/errors", run_dir) < (int)sizeof dir) {
        forget_in(dir, is_record, forget_record);
    }
    if (snprintf(dir, sizeof dir, "%s/logs", run_dir) < (int)sizeof dir) {
        forget_in(dir, is_attempt, forget_attempt);
    }
}
