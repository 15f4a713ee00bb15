/* The run directory (run_dir.h). */
#include "run/run_dir.h"

#include "core/alloc.h"
#include "core/signals.h"
#include "core/training.h"
#include "core/vfs.h"
#include "launch/env_vars.h"
#include "launch/launch.h"
#include "log/run_log.h"
#include "run/ranks.h"
#include "run/requeue.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

char *lvni_run_path_join(const char *dir, const char *name)
{
    lvni_core_str s = {0};
    lvni_core_str_printf(&s, "%s/%s", dir, name);
    return lvni_core_str_take(&s);
}

/* What the launcher of the ranks put there before they began does not count. */
static bool is_launchers(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "logs") == 0 ||
           strcmp(name, "errors") == 0;
}

static bool is_empty_dir(const char *path)
{
    DIR *d = opendir(path);
    if (d == NULL) {
        return false;
    }
    bool empty = true;
    for (const struct dirent *e = NULL; empty && (e = readdir(d)) != NULL;) {
        empty = is_launchers(e->d_name);
    }
    closedir(d);
    return empty;
}

static bool is_run(const char *path)
{
    static const char *const signs[] = {"config.yaml", "train.log", "checkpoints"};
    bool found = false;
    for (int i = 0; i < 3 && !found; i++) {
        char *sign = lvni_run_path_join(path, signs[i]);
        found = sign != NULL && lvni_core_path_exists(sign);
        lvni_core_free(sign);
    }
    return found;
}

/* The lock that the launcher of this rank took before it wrote there: the same open file, so it is
 * ours, too. -1: it has none of this directory. */
static int launchers_lock(const char *path)
{
    const char *text = lvni_launch_env_get(lvni_run_environment(), "LEVIN_LOCK_FD");
    const int fd = text != NULL ? (int)strtol(text, NULL, 10) : -1;
    struct stat a, b;
    if (fd < 3 || fstat(fd, &a) != 0 || stat(path, &b) != 0 || a.st_dev != b.st_dev ||
        a.st_ino != b.st_ino) {
        return -1;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

lvn_status lvni_run_dir_lock(const char *path)
{
    LVN_TRY(lvni_core_mkdirs(path));
    lvni_run_dir_release();
    const int launchers = launchers_lock(path),
              fd = launchers >= 0 ? launchers : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lvni_core_training_get()->dir_lock = fd;
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        lvni_run_dir_release();
        LVN_FAIL(LVN_ERR_USAGE,
                 "another process is training in out=%s: wait for its end, or give another out",
                 path);
    }
    return LVN_OK;
}

lvn_status lvni_run_dir_check_free(const char *path)
{
    if (!lvni_core_path_exists(path)) {
        return LVN_OK;
    }
    const lvn_status s = lvni_run_dir_lock(path);
    lvni_run_dir_release();
    return s;
}

void lvni_run_dir_release(void)
{
    int *lock_fd = &lvni_core_training_get()->dir_lock;
    if (*lock_fd >= 0) {
        close(*lock_fd);
        *lock_fd = -1;
    }
}

/* Where runs without a name go. */
static const char numbered[] = "out";

/* mkdir tests and claims in one step: of several runs that begin at once each gets its own number.
 */
lvn_status lvni_run_dir_claim(const char *recipe, char **path, size_t *made)
{
    bool parent_made = false;
    lvni_core_signals_hand_over(); /* a signal that ends this process would leave the directory
                                      behind */
    for (int i = 1;;) {
        lvni_core_str s = {0};
        lvni_core_str_printf(&s, "%s/%s-%d", numbered, recipe, i);
        *path = lvni_core_str_take(&s);
        if (*path == NULL) {
            return LVN_ERR_MEMORY;
        }
        if (lvni_core_vfs_get()->mkdir(*path, 0777) == 0) {
            *made = parent_made ? strlen(numbered) : strlen(*path);
            return LVN_OK;
        }
        const int error = errno;
        lvn_status status = LVN_OK;
        if (error == ENOENT) { /* also when a run that was refused has just removed it again */
            parent_made = true;
            *strrchr(*path, '/') = '\0';
            status = lvni_core_mkdirs(*path);
        } else if (error == EEXIST) {
            i++;
        } else {
            status = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__,
                                   "cannot make the directory %s: %s; give another out", *path,
                                   strerror(error));
        }
        lvni_core_free(*path);
        *path = NULL;
        LVN_TRY(status);
    }
}

void lvni_run_dir_unclaim(char *path, size_t made)
{
    if (rmdir(path) == 0 && made < strlen(path)) {
        path[made] = '\0';
        rmdir(path);
    }
}

static lvn_status check_no_file(const char *out)
{
    struct stat info;
    if (stat(out, &info) == 0 && !S_ISDIR(info.st_mode)) {
        LVN_FAIL(LVN_ERR_USAGE, "out=%s is a file; a run needs a directory", out);
    }
    return LVN_OK;
}

bool lvni_run_dir_is_unused(const char *out)
{
    return !lvni_core_path_exists(out) || is_empty_dir(out);
}

lvn_status lvni_run_dir_check_run(const char *out)
{
    LVN_TRY(check_no_file(out));
    if (!is_run(out)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "resume=true: there is no run in out=%s%s: give the directory of the run to "
                 "continue, or omit resume=true to start a new one "
                 "there",
                 out,
                 lvni_core_path_exists(out) ? " (no config.yaml, train.log or checkpoints/)"
                                            : ", which does not exist");
    }
    return LVN_OK;
}

lvn_status lvni_run_dir_choose(const lvni_core_config *c, char **path)
{
    *path = NULL;
    const char *out = lvni_core_config_str(c, "out");
    const bool resume = lvni_core_config_bool(c, "resume"),
               overwrite = lvni_core_config_bool(c, "overwrite");
    if (resume && overwrite) {
        LVN_FAIL(LVN_ERR_USAGE, "resume=true and overwrite=true exclude each other");
    }
    if (out == NULL) {
        return LVN_OK;
    }
    LVN_TRY(check_no_file(out));
    if (!resume && !overwrite && lvni_core_path_exists(out) && !is_empty_dir(out)) {
        LVN_TRY(lvni_run_dir_check_free(out)); /* a run that is active cannot be resumed either */
        LVN_FAIL(LVN_ERR_USAGE,
                 "out=%s exists: resume=true continues that run, overwrite=true replaces it", out);
    }
    if (overwrite && lvni_core_path_exists(out) && !is_empty_dir(out) && !is_run(out)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "out=%s is not a run directory (no train.log, no checkpoints/): overwrite=true "
                 "replaces runs only; give another out",
                 out);
    }
    *path = lvni_core_strdup(LVNI_TAG_CONFIG, out);
    return *path == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* A file of a run: a whole name, an ending that begins with a dot, or a beginning that ends in one.
 */
static bool fits(const char *name, size_t n, const char *pattern)
{
    const size_t m = strlen(pattern);
    if (pattern[m - 1] == '.') {
        return strncmp(name, pattern, m) == 0;
    }
    return (pattern[0] == '.' ? n >= m : n == m) && strncmp(name + n - m, pattern, m) == 0;
}

/* "last.safetensors.tmp-123" for ".safetensors": left by a process that was killed while it
 * wrote. */
static bool is_leftover(const char *name, const char *pattern)
{
    const char *tail = strstr(name, ".tmp-");
    return tail != NULL && tail[5] != '\0' && tail[5 + strspn(tail + 5, "0123456789-")] == '\0' &&
           fits(name, (size_t)(tail - name), pattern);
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return a != NULL && b != NULL && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* Remove the files that a run writes into <dir>, or only what was left half written; anything else
 * in the directory stays, and so does `keep` (NULL: nothing). */
static void empty(const char *dir, const char *const *patterns, bool leftovers_only,
                  const char *keep)
{
    DIR *d = opendir(dir);
    for (struct dirent *e = NULL; d != NULL && (e = readdir(d)) != NULL;) {
        for (int i = 0; patterns[i] != NULL; i++) {
            const bool ours = is_leftover(e->d_name, patterns[i]) ||
                              (!leftovers_only && fits(e->d_name, strlen(e->d_name), patterns[i]));
            char *path = ours ? lvni_run_path_join(dir, e->d_name) : NULL;
            if (path != NULL && !is_same_file(path, keep)) {
                lvni_core_vfs_get()->unlink(path);
            }
            lvni_core_free(path);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

/* This process is a rank whose launcher keeps its files here; it has removed those of an earlier
 * run itself. */
static bool has_own_logs(const char *path)
{
    /* <dir>/errors/attempt_0_rank_0.json */
    const char *record = lvni_launch_env_get(lvni_run_environment(), "LEVIN_ERROR_FILE");
    char dir[4096];
    if (record == NULL || snprintf(dir, sizeof dir, "%s", record) >= (int)sizeof dir) {
        return false;
    }
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(dir, '/');
        if (slash == NULL) {
            return false;
        }
        *slash = '\0';
    }
    return is_same_file(dir, path);
}

static const char *const parts[] = {"checkpoints", "exported_models"};
static const char *const part_files[] = {".safetensors", ".pt", NULL};
static const char *const own_files[] = {"config.yaml",
                                        "train.log",
                                        "metrics.jsonl",
                                        "metrics.csv",
                                        "events.out.tfevents.",
                                        "logger.log",
                                        "augmentations.png",
                                        LVNI_RUN_PAGE,
                                        "report.png",
                                        "report.svg",
                                        "launch_id",
                                        "job_id",
                                        "requeued",
                                        "run_id",
                                        "chosen",
                                        LVNI_RUN_INDEX,
                                        NULL};

/* Images of a recipe, by their steps. */
static void forget_images(const char *path)
{
    static const char *const files[] = {".png", NULL};
    char *images = lvni_run_path_join(path, "images");
    if (images != NULL && lvni_core_path_exists(images)) {
        empty(images, files, false, NULL);
    }
    lvni_core_free(images);
}

static lvn_status make_parts(const char *path, bool overwrite, const char *keep)
{
    empty(path, own_files, !overwrite, keep);
    if (overwrite) {
        forget_images(path);
    }
    if (overwrite && !has_own_logs(path)) {
        lvni_launch_forget_files(path);
    }
    for (int i = 0; i < 2; i++) {
        char *part = lvni_run_path_join(path, parts[i]);
        if (part == NULL) {
            return LVN_ERR_MEMORY;
        }
        const lvn_status s = lvni_core_mkdirs(part);
        if (s == LVN_OK) {
            empty(part, part_files, !overwrite, NULL);
        }
        lvni_core_free(part);
        LVN_TRY(s);
    }
    return LVN_OK;
}

/* The attempt and the launcher's run, of the start that began the run here or went on with it. */
static const char launch_file[] = "launch_id";

static int attempt_of(const char *text)
{
    return text == NULL ? 0 : (int)strtol(text, NULL, 10);
}

/* The same of a Slurm job, whose starts are another count. */
static const char job_file[] = "job_id";

static lvn_status write_start(const char *path, const char *name, int attempt, const char *id)
{
    lvni_core_str text = {0};
    lvni_core_str_printf(&text, "%d %s", attempt, id);
    char *file = lvni_run_path_join(path, name);
    const lvn_status s = file == NULL
                             ? LVN_ERR_MEMORY
                             : lvni_core_file_write(file, lvni_core_str_text(&text), text.len);
    lvni_core_str_free(&text);
    lvni_core_free(file);
    return s;
}

static lvn_status write_job(const char *path)
{
    char id[48];
    return lvni_run_requeue_job(id, sizeof id)
               ? write_start(path, job_file, lvni_run_requeue_restarts(), id)
               : LVN_OK;
}

static lvn_status write_launch(const char *path)
{
    const char *id = lvni_launch_env_get(lvni_run_environment(), "LEVIN_RUN_ID");
    if (id == NULL ||
        attempt_of(lvni_launch_env_get(lvni_run_environment(), "LEVIN_MAX_RESTARTS")) <= 0) {
        return LVN_OK;
    }
    return write_start(
        path, launch_file,
        attempt_of(lvni_launch_env_get(lvni_run_environment(), "LEVIN_RESTART_COUNT")), id);
}

/* The attempt in the file in `out` that a start of the same has written; -1: there is none. */
static int attempt_in(const char *out, const char *name, const char *id)
{
    char *file = id != NULL ? lvni_run_path_join(out, name) : NULL, *text = NULL;
    size_t n;
    int attempt = -1;
    if (file != NULL && lvni_core_path_exists(file) &&
        lvni_core_file_read(file, 4096, &text, &n) == LVN_OK) {
        const char *space = strchr(text, ' ');
        attempt = space != NULL && strcmp(space + 1, id) == 0 ? attempt_of(text) : -1;
        lvni_core_free(text);
    }
    lvni_core_free(file);
    lvn_clear_error();
    return attempt;
}

/* The file in `out` is of an earlier start of the same. */
static bool is_before(const char *out, const char *name, int attempt, const char *id)
{
    const int before = attempt > 0 ? attempt_in(out, name, id) : -1;
    return before >= 0 && before < attempt;
}

/* The start of a job at whose end Slurm accepted another. */
static const char requeued_file[] = "requeued";

lvn_status lvni_run_dir_mark_requeued(const char *path)
{
    char id[48];
    return lvni_run_requeue_job(id, sizeof id)
               ? write_start(path, requeued_file, lvni_run_requeue_restarts(), id)
               : LVN_OK;
}

bool lvni_run_dir_is_requeued(const char *path)
{
    char id[48];
    return lvni_run_requeue_job(id, sizeof id) &&
           attempt_in(path, requeued_file, id) == lvni_run_requeue_restarts();
}

bool lvni_run_dir_is_of_attempt_before(const char *out)
{
    const char *id = lvni_launch_env_get(lvni_run_environment(), "LEVIN_RUN_ID");
    const int attempt =
        attempt_of(lvni_launch_env_get(lvni_run_environment(), "LEVIN_RESTART_COUNT"));
    char job[48];
    return is_before(out, launch_file, attempt, id) ||
           (lvni_run_requeue_job(job, sizeof job) &&
            is_before(out, job_file, lvni_run_requeue_restarts(), job));
}

lvn_status lvni_run_dir_make(const char *path, bool overwrite, bool resume, const char *keep)
{
    char *log = NULL;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_run_dir_lock(path));
    LVNI_TRY_DONE(s, make_parts(path, overwrite, keep));
    LVNI_TRY_DONE(s, write_launch(path));
    LVNI_TRY_DONE(s, write_job(path));
    log = lvni_run_path_join(path, "train.log");
    s = log == NULL ? LVN_ERR_MEMORY : lvni_log_open(log, resume);
done:
    lvni_core_free(log);
    if (s != LVN_OK) {
        lvn_error_frame("making the run directory %s", path);
    }
    return s;
}

/* ---- whose checkpoints ---- */

/* 32 hexadecimal digits, as the beginning of the text. */
static bool begins_with_id(const char *text)
{
    return strspn(text, "0123456789abcdef") == LVNI_RUN_ID - 1;
}

/* "": it has none, or something else. */
static lvn_status read_id(const char *file, char id[LVNI_RUN_ID])
{
    char *text = NULL;
    size_t n = 0;
    id[0] = '\0';
    if (!lvni_core_path_exists(file)) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_file_read(file, 4096, &text, &n));
    if (begins_with_id(text)) {
        snprintf(id, LVNI_RUN_ID, "%.*s", LVNI_RUN_ID - 1, text);
    }
    lvni_core_free(text);
    return LVN_OK;
}

static lvn_status draw_id(char id[LVNI_RUN_ID])
{
    uint64_t number[2];
    if (getrandom(number, sizeof number, 0) != (ssize_t)sizeof number) {
        LVN_FAIL(LVN_ERR_INTERNAL, "the system gives no random numbers: %s", strerror(errno));
    }
    snprintf(id, LVNI_RUN_ID, "%016llx%016llx", (unsigned long long)number[0],
             (unsigned long long)number[1]);
    return LVN_OK;
}

static const char *id_of(const lvni_ckpt *ckpt)
{
    const char *id = ckpt == NULL ? NULL : lvni_ckpt_st_meta_get(ckpt->file, LVNI_CKPT_RUN_ID);
    return id != NULL && begins_with_id(id) && id[LVNI_RUN_ID - 1] == '\0' ? id : NULL;
}

static lvn_status check_id(const char *path, const lvni_ckpt *ckpt, const char *id)
{
    const char *its = id_of(ckpt);
    if (its != NULL && strcmp(its, id) != 0) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "%s is a checkpoint of another run: its run_id is %s, and that of %s is %s; put it "
            "elsewhere to resume this run without it, or start a new run from its weights "
            "(weights=%s)",
            ckpt->path, its, path, id, ckpt->path);
    }
    return LVN_OK;
}

/* Also one that is not resumed: exported models are repaired from both. What cannot be read is
 * reported elsewhere. */
static lvn_status check_named(const char *path, const char *name, const char *id)
{
    lvni_ckpt *ckpt = NULL;
    char *file = lvni_run_path_join(path, name);
    if (file == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (lvni_core_path_exists(file) && lvni_ckpt_peek(file, &ckpt) != LVN_OK) {
        lvn_clear_error();
    }
    const lvn_status s = check_id(path, ckpt, id);
    lvni_ckpt_free(ckpt);
    lvni_core_free(file);
    return s;
}

lvn_status lvni_run_dir_identify(const char *path, const lvni_ckpt *saved, char id[LVNI_RUN_ID])
{
    static const char *const names[] = {"checkpoints/last.safetensors",
                                        "checkpoints/best.safetensors"};
    char text[LVNI_RUN_ID + 1];
    char *file = lvni_run_path_join(path, "run_id");
    lvn_status s;
    LVNI_TRY_DONE(s, file == NULL ? LVN_ERR_MEMORY : read_id(file, id));
    const bool known = id[0] != '\0';
    if (!known && id_of(saved) != NULL) {
        memcpy(id, id_of(saved), LVNI_RUN_ID);
    } else if (!known) {
        LVNI_TRY_DONE(s, draw_id(id));
    }
    LVNI_TRY_DONE(s, check_id(path, saved, id));
    for (int i = 0; i < 2 && saved != NULL; i++) {
        LVNI_TRY_DONE(s, check_named(path, names[i], id));
    }
    if (!known) {
        const int n = snprintf(text, sizeof text, "%s\n", id);
        s = lvni_core_file_write(file, text, (size_t)n);
    }
done:
    lvni_core_free(file);
    return s;
}

/* In the launcher, which has the directory to itself. */
static void remove_leftovers(const char *path)
{
    empty(path, own_files, true, NULL);
    for (int i = 0; i < 2; i++) {
        char *part = lvni_run_path_join(path, parts[i]);
        if (part != NULL) {
            empty(part, part_files, true, NULL);
        }
        lvni_core_free(part);
    }
}

bool lvni_run_dir_saved(const char *path, int64_t *step, int64_t *epoch)
{
    lvni_ckpt *c = NULL;
    char *file = lvni_run_path_join(path, "checkpoints/last.safetensors");
    const bool found = file != NULL && lvni_core_path_exists(file) &&
                       lvni_ckpt_peek(file, &c) == LVN_OK && c != NULL;
    if (found) {
        *step = c->at.step;
        *epoch = c->at.epoch;
    }
    lvni_ckpt_free(c);
    lvni_core_free(file);
    lvn_clear_error();
    return found;
}

bool lvni_run_dir_after_kill(const char *path, int64_t *step, int64_t *epoch)
{
    remove_leftovers(path);
    return lvni_run_dir_saved(path, step, epoch);
}

static char *file_of(const char *path, const char *folder, const char *name, const char *ending)
{
    lvni_core_str file = {0};
    lvni_core_str_printf(&file, "%s/%s%s%s", path, folder, name, ending);
    return lvni_core_str_take(&file);
}

char *lvni_run_dir_file(const char *path, const char *folder, const char *name)
{
    return file_of(path, folder, name, ".safetensors");
}

char *lvni_run_dir_torch_file(const char *path, const char *name)
{
    return file_of(path, LVNI_RUN_EXPORTS, name, ".pt");
}

lvn_status lvni_run_dir_write_config(const char *path, const lvni_core_config *config)
{
    lvni_core_str yaml = {0};
    char *file = lvni_run_path_join(path, "config.yaml");
    lvn_status s = file == NULL ? LVN_ERR_MEMORY : lvni_core_config_write_yaml(config, &yaml);
    if (s == LVN_OK) {
        s = lvni_core_file_write(file, lvni_core_str_text(&yaml), yaml.len);
    }
    lvni_core_str_free(&yaml);
    lvni_core_free(file);
    return s;
}
