/* Writing the files of a trial's folder (sweep_records.h): claims, beats and ends. Every name that
 * others decide by is linked: a file of our own is finished first, so none of them is ever half
 * written, and of two links of one name one alone is made. Called by workers (sweep_work.c). */
#include "sweep/sweep_records_impl.h"

#include "core/error.h"
#include "core/machine.h"
#include "core/vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- texts ---- */

static void put_text(lvni_core_str *s, const char *key, const char *text)
{
    lvni_core_str_printf(s, ",\"%s\":", key);
    lvni_core_str_json(s, text);
}

static void put_number(lvni_core_str *s, const char *key, double value)
{
    lvni_core_str_printf(s, isfinite(value) ? ",\"%s\":" : ",\"%s\":\"", key);
    lvni_core_str_double(s, value);
    lvni_core_str_append(s, isfinite(value) ? "" : "\"");
}

static void put_whole(lvni_core_str *s, const char *key, int64_t value)
{
    lvni_core_str_printf(s, ",\"%s\":%" PRId64, key, value);
}

static void put_owner(lvni_core_str *s, const lvni_sweep_owner *owner)
{
    char now[32];
    struct tm parts;
    const time_t t = time(NULL);
    gmtime_r(&t, &parts);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &parts);
    put_text(s, "host", owner->host);
    put_whole(s, "pid", owner->pid);
    put_whole(s, "started", owner->started);
    put_text(s, "boot", owner->boot);
    put_whole(s, "space", (int64_t)owner->space);
    put_text(s, "job", owner->job);
    put_text(s, "node", owner->node);
    put_whole(s, "restarts", owner->restarts);
    put_text(s, "time", now);
}

static void put_result(lvni_core_str *s, const lvni_sweep_result *r)
{
    put_text(s, "state", lvni_sweep_state_name(r->state));
    put_whole(s, "exit_code", r->exit_code);
    put_text(s, "error", r->error);
    if (r->has_value) {
        put_number(s, "value", r->value);
        put_number(s, "last", r->last);
        put_whole(s, "step", r->step);
        put_whole(s, "epoch", r->epoch);
    }
    put_whole(s, "epochs", r->epochs);
    put_number(s, "seconds", r->seconds);
    put_text(s, "checkpoint", r->checkpoint);
}

/* ---- linking ---- */

static lvn_status failed_to(const char *what, const char *path)
{
    const int error = errno;
    LVN_FAIL(error == ENOENT ? LVN_ERR_NOT_FOUND : LVN_ERR_IO,
             "cannot %s \"%s\": %s; the trial's folder must be there, with room and the permission "
             "to write",
             what, path, strerror(error));
}

/* A new file of a name that is ours alone: host and process, and a number for what an earlier
 * process of that number has left behind. */
static lvn_status open_own(const char *dir, const lvni_sweep_owner *owner, lvni_core_str *path,
                           int *fd)
{
    static _Atomic uint64_t numbers;
    for (;;) {
        lvni_core_str_clear(path);
        lvni_core_str_printf(path, "%s/own.%s.%" PRId64 ".%" PRIu64, dir, owner->host, owner->pid,
                             atomic_fetch_add(&numbers, 1) + 1);
        LVN_TRY(lvni_core_str_status(path));
        *fd = lvni_core_vfs_get()->open(path->data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*fd >= 0) {
            return LVN_OK;
        }
        if (errno != EEXIST && errno != EINTR) {
            return failed_to("make", path->data);
        }
    }
}

/* Whole and on the disk, or not there. */
static lvn_status write_own(const char *dir, const lvni_sweep_owner *owner, const char *text,
                            bool durable, lvni_core_str *path)
{
    const lvni_core_vfs *vfs = lvni_core_vfs_get();
    int fd;
    LVN_TRY(open_own(dir, owner, path, &fd));
    lvn_status s = lvni_core_append_write(fd, path->data, text, strlen(text));
    if (s == LVN_OK && durable && vfs->fsync(fd) != 0) {
        s = failed_to("sync", path->data);
    }
    if (vfs->close(fd) != 0 && s == LVN_OK) {
        s = failed_to("close", path->data);
    }
    if (s != LVN_OK) {
        const lvn_error error = *lvn_last_error();
        (void)vfs->unlink(path->data);
        lvni_core_error_restore(&error);
    }
    return s;
}

/* Gives the own file the second name. Whether it got it is read from its links, whatever link(2)
 * answered: a server may have done it twice, and have answered the second time alone. */
static lvn_status link_own(const char *own, const char *name, bool *won)
{
    int64_t links, bytes;
    const int rc = lvni_core_vfs_get()->link(own, name);
    const int error = errno;
    *won = false;
    if (lvni_sweep_calls_get()->stat(own, &links, &bytes) != 0) {
        return failed_to("look at", own);
    }
    *won = links >= 2;
    if (rc != 0 && !*won && error != EEXIST) {
        errno = error;
        return failed_to("link", name);
    }
    return LVN_OK;
}

lvn_status lvni_sweep_publish(const char *dir, const char *name, int64_t attempt, bool durable,
                              const lvni_sweep_owner *owner, const char *text, bool *won)
{
    lvni_core_str own = {0}, path = {0};
    lvn_status s;
    *won = false;
    lvni_sweep_file(&path, dir, name, attempt);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, write_own(dir, owner, text, durable, &own));
    s = link_own(own.data, path.data, won);
    const lvn_error error = *lvn_last_error();
    (void)lvni_core_vfs_get()->unlink(own.data); /* if that fails, it stays, and means nothing */
    lvni_core_error_restore(&error);
    if (s == LVN_OK && durable && *won) {
        s = lvni_core_folder_sync(path.data);
    }
done:
    lvni_core_str_free(&own);
    lvni_core_str_free(&path);
    return s;
}

lvn_status lvni_sweep_claim(const char *dir, int64_t attempt, const lvni_sweep_owner *owner,
                            bool *won)
{
    lvni_core_str text = {0};
    *won = false;
    lvni_core_str_printf(&text, "{\"attempt\":%" PRId64, attempt);
    put_owner(&text, owner);
    lvni_core_str_append(&text, "}\n");
    lvn_status s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        s = lvni_sweep_publish(dir, "claim", attempt, false, owner, text.data, won);
    }
    lvni_core_str_free(&text);
    return s;
}

lvn_status lvni_sweep_beat(const char *dir, int64_t attempt, bool *left)
{
    lvni_core_str path = {0};
    int64_t links, bytes;
    int fd;
    lvn_status s;
    lvni_sweep_file(&path, dir, "left", attempt);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    *left = lvni_sweep_calls_get()->stat(path.data, &links, &bytes) == 0;
    lvni_sweep_file(&path, dir, "beat", attempt);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_core_append_open(path.data, false, &fd));
    s = lvni_core_append_write(fd, path.data, ".", 1);
    /* closed: other clients see the size when it is on the server */
    if (lvni_core_vfs_get()->close(fd) != 0 && s == LVN_OK) {
        s = failed_to("close", path.data);
    }
done:
    lvni_core_str_free(&path);
    return s;
}

/* After this link, or without it, the trial has ended. */
static lvn_status link_result(const char *dir, int64_t attempt)
{
    lvni_core_str left = {0}, result = {0};
    lvni_sweep_file(&left, dir, "left", attempt);
    lvni_sweep_file(&result, dir, "result", 0);
    lvn_status s = lvni_core_str_status(&left);
    s = s == LVN_OK ? lvni_core_str_status(&result) : s;
    if (s == LVN_OK && lvni_core_vfs_get()->link(left.data, result.data) != 0 && errno != EEXIST) {
        s = failed_to("link", result.data);
    }
    lvni_core_str_free(&left);
    lvni_core_str_free(&result);
    return s;
}

lvn_status lvni_sweep_leave(const char *dir, int64_t attempt, lvni_sweep_end why,
                            const lvni_sweep_owner *by, const lvni_sweep_result *result, bool *won)
{
    lvni_core_str text = {0};
    *won = false;
    lvni_core_str_printf(&text, "{\"attempt\":%" PRId64, attempt);
    put_text(&text, "why", lvni_sweep_end_name(why));
    put_owner(&text, by);
    if (result != NULL) {
        put_result(&text, result);
    }
    lvni_core_str_append(&text, "}\n");
    lvn_status s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        s = lvni_sweep_publish(dir, "left", attempt, true, by, text.data, won);
    }
    lvni_core_str_free(&text);
    return s == LVN_OK && *won && why == LVNI_SWEEP_END_ENDED ? link_result(dir, attempt) : s;
}
