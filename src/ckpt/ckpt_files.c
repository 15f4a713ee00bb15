/* The checkpoints of a run directory (checkpoint.h). Called by `levin ckpt verify`. */
#include "ckpt/checkpoint.h"
#include "core/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct list {
    char **files;
    int64_t n, room;
} list;

/* "dir/name", or name alone. */
static lvn_status add(list *l, const char *dir, const char *name)
{
    if (l->n == l->room) {
        const int64_t room = l->room == 0 ? 8 : l->room * 2;
        char **files = lvni_core_realloc(LVNI_TAG_CKPT, l->files, (size_t)room * sizeof *l->files);
        if (files == NULL) {
            return LVN_ERR_MEMORY;
        }
        l->files = files;
        l->room = room;
    }
    const size_t bytes = strlen(dir) + strlen(name) + 2;
    char *path = lvni_core_alloc(LVNI_TAG_CKPT, bytes);
    if (path == NULL) {
        return LVN_ERR_MEMORY;
    }
    snprintf(path, bytes, "%s%s%s", dir, dir[0] != '\0' ? "/" : "", name);
    l->files[l->n++] = path;
    return LVN_OK;
}

static bool is_checkpoint_name(const char *name)
{
    const char *end = strrchr(name, '.');
    return end != NULL && end > name && strcmp(end, ".safetensors") == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static lvn_status list_open_dir(list *l, const char *path, DIR *dir)
{
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (is_checkpoint_name(e->d_name)) {
            LVN_TRY(add(l, path, e->d_name));
        }
    }
    if (l->n > 1) {
        qsort(l->files, (size_t)l->n, sizeof *l->files, by_name);
    }
    return LVN_OK;
}

static lvn_status list_run(list *l, const char *run)
{
    const size_t bytes = strlen(run) + sizeof "/checkpoints";
    char *path = lvni_core_alloc(LVNI_TAG_CKPT, bytes);
    if (path == NULL) {
        return LVN_ERR_MEMORY;
    }
    snprintf(path, bytes, "%s/checkpoints", run);
    DIR *dir = opendir(path);
    const int error = errno;
    lvn_status s = dir == NULL ? LVN_OK : list_open_dir(l, path, dir);
    if (dir != NULL) {
        closedir(dir);
    } else if (error != ENOENT) {
        s = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "%s: cannot list checkpoints: %s", path,
                          strerror(error));
    }
    lvni_core_free(path);
    LVN_TRY(s);
    if (l->n == 0) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "%s is a folder without checkpoints/*.safetensors: give a run directory that has "
                 "a checkpoint, or a file",
                 run);
    }
    return LVN_OK;
}

lvn_status lvni_ckpt_files_of(const char *path, char ***files, int64_t *n)
{
    struct stat info;
    list l = {.n = 0};
    const bool is_dir = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    const lvn_status s = is_dir ? list_run(&l, path) : add(&l, "", path);
    if (s != LVN_OK) {
        lvni_ckpt_files_free(l.files, l.n);
        l = (list){.n = 0};
    }
    *files = l.files;
    *n = l.n;
    return s;
}

void lvni_ckpt_files_free(char **files, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        lvni_core_free(files[i]);
    }
    lvni_core_free(files);
}
