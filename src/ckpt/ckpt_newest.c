/* Which checkpoint is meant by a run directory: to resume from, the newest that is whole
 * (lvni_ckpt_newest_valid of checkpoint.h); to look at or to take weights from, the last one
 * (lvni_ckpt_file_of). */
#include "ckpt/checkpoint.h"

#include "core/alloc.h"
#include "core/str.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct candidate {
    char *path;
    const char *name; /* inside path */
    int64_t step;
} candidate;

typedef struct search {
    const char *dir;
    candidate *list;
    size_t n, room;
    int n_refused;
    void (*warn)(void *user, const char *text);
    void *user;
} search;

/* Errors of one file that another file may make good. Memory and the like are not. */
static bool is_of_the_file(lvn_status status)
{
    return status == LVN_ERR_CORRUPT || status == LVN_ERR_IO || status == LVN_ERR_NOT_FOUND ||
           status == LVN_ERR_MISMATCH || status == LVN_ERR_UNSUPPORTED;
}

static void refuse(search *s)
{
    s->n_refused++;
    if (s->warn != NULL) {
        char text[1200];
        snprintf(text, sizeof text, "checkpoint passed over: %s", lvn_last_error()->message);
        s->warn(s->user, text);
    }
}

static bool has_suffix(const char *name)
{
    static const char suffix[] = ".safetensors";
    const size_t n = strlen(name), m = sizeof suffix - 1;
    return n > m && strcmp(name + n - m, suffix) == 0;
}

static lvn_status add(search *s, const char *name)
{
    if (s->n == s->room) {
        const size_t room = s->room == 0 ? 16 : s->room * 2;
        candidate *list = lvni_core_realloc(LVNI_TAG_CKPT, s->list, room * sizeof *list);
        if (list == NULL) {
            return LVN_ERR_MEMORY;
        }
        s->list = list;
        s->room = room;
    }
    const size_t room = strlen(s->dir) + strlen(name) + 2;
    char *path = lvni_core_alloc(LVNI_TAG_CKPT, room);
    if (path == NULL) {
        return LVN_ERR_MEMORY;
    }
    snprintf(path, room, "%s/%s", s->dir, name);
    lvni_ckpt *c = NULL;
    const lvn_status status = lvni_ckpt_peek(path, &c);
    if (status != LVN_OK) {
        lvni_core_free(path);
        if (is_of_the_file(status)) {
            refuse(s);
            return LVN_OK;
        }
        return status;
    }
    s->list[s->n++] =
        (candidate){.path = path, .name = path + strlen(s->dir) + 1, .step = c->at.step};
    lvni_ckpt_free(c);
    return LVN_OK;
}

static lvn_status list_dir(search *s)
{
    DIR *dir = opendir(s->dir);
    if (dir == NULL) {
        LVN_FAIL(errno == ENOENT ? LVN_ERR_NOT_FOUND : LVN_ERR_IO,
                 "%s: cannot list checkpoints: %s", s->dir, strerror(errno));
    }
    lvn_status status = LVN_OK;
    for (const struct dirent *e = readdir(dir); e != NULL && status == LVN_OK; e = readdir(dir)) {
        if (has_suffix(e->d_name)) {
            status = add(s, e->d_name);
        }
    }
    closedir(dir);
    return status;
}

static int rank_of(const char *name)
{
    return strcmp(name, "last.safetensors") == 0   ? 0
           : strcmp(name, "best.safetensors") == 0 ? 2
                                                   : 1;
}

/* Steps and not times: copying a run's folder changes the times. */
static int compare(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->step != y->step) {
        return x->step > y->step ? -1 : 1;
    }
    const int by_rank = rank_of(x->name) - rank_of(y->name);
    return by_rank != 0 ? by_rank : strcmp(y->name, x->name);
}

static lvn_status load_first_valid(search *s, lvni_ckpt **out)
{
    LVN_TRY(list_dir(s));
    if (s->n > 1) {
        qsort(s->list, s->n, sizeof *s->list, compare);
    }
    for (size_t i = 0; i < s->n; i++) {
        const lvn_status status = lvni_ckpt_load(s->list[i].path, out);
        if (status == LVN_OK) {
            lvn_clear_error(); /* of those passed over: they were told */
        }
        if (status == LVN_OK || !is_of_the_file(status)) {
            return status;
        }
        refuse(s);
    }
    if (s->n_refused == 0) {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "%s: no checkpoint (*.safetensors) to resume from", s->dir);
    }
    LVN_FAIL(LVN_ERR_CORRUPT,
             "%s: none of its %d checkpoint%s can be used (overwrite=true starts anew); the last "
             "one tried: %s",
             s->dir, s->n_refused, lvni_core_plural(s->n_refused, "", "s"),
             lvn_last_error()->message);
}

lvn_status lvni_ckpt_newest_valid(const char *dir, void (*warn)(void *user, const char *text),
                                  void *user, lvni_ckpt **out)
{
    *out = NULL;
    LVN_ARG(dir != NULL, "looking for a checkpoint needs a folder");
    search s = {.dir = dir, .warn = warn, .user = user};
    const lvn_status status = load_first_valid(&s, out);
    for (size_t i = 0; i < s.n; i++) {
        lvni_core_free(s.list[i].path);
    }
    lvni_core_free(s.list);
    return status;
}

lvn_status lvni_ckpt_file_of(const char *path, char **file)
{
    static const char last[] = "/checkpoints/last.safetensors";
    struct stat info;
    const bool is_dir = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    const size_t n = strlen(path), room = n + sizeof last;
    *file = lvni_core_alloc(LVNI_TAG_CKPT, room);
    if (*file == NULL) {
        return LVN_ERR_MEMORY;
    }
    snprintf(*file, room, "%s%s", path, is_dir ? last : "");
    if (is_dir && stat(*file, &info) != 0) {
        lvni_core_free(*file);
        *file = NULL;
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "%s is a folder without checkpoints/last.safetensors: give a run directory that "
                 "has a checkpoint, or a "
                 "file",
                 path);
    }
    return LVN_OK;
}
