/* The directory of a run: which it is, who has it, and that it goes where nothing came of it. */
#include "launch/launch_impl.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "launch/env_vars.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOCK_TRIES = 100 };

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
        LVN_FAIL(LVN_ERR_IO, "where are we? %s; give an absolute --run-dir", strerror(errno));
    }
    lvni_core_free(r->run_dir);
    r->run_dir = NULL;
    return path[0] == '/' ? lvni_launch_path(&r->run_dir, "%s", path)
                          : lvni_launch_path(&r->run_dir, "%s/%s", here, path);
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

/* A folder in /tmp that nobody else could have made or can write into: anybody may have taken the
 * name, as a link, too. */
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
        LVN_TRY(lvni_launch_path(&dir, "%s/%s", r->o.log_dir, r->run_id));
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

/* ---- whose it is ---- */

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
        LVN_TRY(make_run_dir(r)); /* whoever had it has just removed it */
    }
    LVN_FAIL(LVN_ERR_IO, "the directory %s vanishes as soon as it is made", r->run_dir);
}
