/* Checkpoints (checkpoint.h): the loop position as metadata and back, best as a link to last, and
 * which checkpoint of a run directory is meant. The file itself is safetensors_{write,read}.c. */
#include "ckpt/checkpoint.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OWN_KEYS = 11, NUMBER_ROOM = 40 };
static const char format[] = "checkpoint 1";

/* The metadata being put together; numbers live in text[]. */
typedef struct header {
    lvni_ckpt_st_meta *meta;
    int64_t n;
    char text[OWN_KEYS][NUMBER_ROOM];
} header;

static void add_text(header *h, const char *key, const char *value)
{
    if (value != NULL) {
        h->meta[h->n++] = (lvni_ckpt_st_meta){.key = key, .value = value};
    }
}

static void add_integer(header *h, const char *key, int64_t value)
{
    char *text = h->text[h->n];
    snprintf(text, NUMBER_ROOM, "%lld", (long long)value);
    add_text(h, key, text);
}

static void add_real(header *h, const char *key, double value)
{
    char *text = h->text[h->n];
    if (isnan(value)) {
        snprintf(text, NUMBER_ROOM, "nan"); /* printf may write -nan */
    } else {
        lvni_core_format(text, NUMBER_ROOM, "%.17g", value);
    }
    add_text(h, key, text);
}

static void add_position(header *h, const lvni_ckpt_position *at)
{
    add_integer(h, LVNI_CKPT_STEP, at->step);
    add_integer(h, LVNI_CKPT_EPOCHS_DONE, at->epoch);
    add_integer(h, LVNI_CKPT_STEP_IN_EPOCH, at->step_in_epoch);
    add_integer(h, LVNI_CKPT_SAMPLES_SEEN, at->samples_seen);
    add_real(h, LVNI_CKPT_BEST_SCORE, at->best_score);
    add_integer(h, LVNI_CKPT_BEST_STEP, at->best_step);
    add_text(h, LVNI_CKPT_FINISHED, at->finished ? "true" : "false");
}

lvn_status lvni_ckpt_save(const char *path, const lvni_ckpt_content *c)
{
    LVN_ARG(path != NULL && c != NULL && c->n_extra >= 0,
            "saving a checkpoint needs a path and a content");
    for (int64_t i = 0; i < c->n_extra; i++) {
        LVN_ARG(c->extra[i].key != NULL && strncmp(c->extra[i].key, "levin.", 6) != 0,
                "%s: metadata keys that begin with 'levin.' are reserved, '%s' is one", path,
                c->extra[i].key != NULL ? c->extra[i].key : "(null)");
    }
    header h = {.meta = lvni_core_calloc(LVNI_TAG_CKPT, OWN_KEYS + (size_t)c->n_extra,
                                         sizeof(lvni_ckpt_st_meta))};
    if (h.meta == NULL) {
        return LVN_ERR_MEMORY;
    }
    add_text(&h, LVNI_CKPT_FORMAT, format);
    add_position(&h, &c->at);
    add_text(&h, LVNI_CKPT_CONFIG, c->config != NULL ? c->config : "{}");
    add_text(&h, LVNI_CKPT_SCALER, c->scaler);
    add_text(&h, LVNI_CKPT_SCHEDULE, c->schedule);
    for (int64_t i = 0; i < c->n_extra; i++) {
        h.meta[h.n++] = c->extra[i];
    }
    const lvn_status status = lvni_ckpt_st_save(path, c->tensors, c->n_tensors, h.meta, h.n);
    lvni_core_free(h.meta);
    if (status != LVN_OK) {
        lvn_error_frame("saving checkpoint %s", path);
    }
    return status;
}

static lvn_status wrong_value(const lvni_ckpt *c, const char *key, const char *text)
{
    LVN_FAIL(LVN_ERR_MISMATCH,
             "%s: its metadata %s is %s%s%s: not a checkpoint of this version of levin", c->path,
             key, text != NULL ? "'" : "", text != NULL ? text : "missing",
             text != NULL ? "'" : "");
}

static lvn_status get_integer(const lvni_ckpt *c, const char *key, int64_t least, int64_t *out)
{
    const char *text = lvni_ckpt_st_meta_get(c->file, key);
    char *end = NULL;
    errno = 0;
    const long long value = text != NULL ? strtoll(text, &end, 10) : 0;
    if (text == NULL || end == text || *end != '\0' || errno != 0 || value < least) {
        return wrong_value(c, key, text);
    }
    *out = value;
    return LVN_OK;
}

static lvn_status get_real(const lvni_ckpt *c, const char *key, double *out)
{
    const char *text = lvni_ckpt_st_meta_get(c->file, key);
    char *end = NULL;
    const double value = text != NULL ? lvni_core_strtod(text, &end) : 0;
    if (text == NULL || end == text || *end != '\0') {
        return wrong_value(c, key, text);
    }
    *out = value;
    return LVN_OK;
}

static lvn_status get_position(const lvni_ckpt *c, lvni_ckpt_position *at)
{
    LVN_TRY(get_integer(c, LVNI_CKPT_STEP, 0, &at->step));
    const bool named = lvni_ckpt_st_meta_get(c->file, LVNI_CKPT_EPOCH) == NULL;
    LVN_TRY(get_integer(c, named ? LVNI_CKPT_EPOCHS_DONE : LVNI_CKPT_EPOCH, 0, &at->epoch));
    LVN_TRY(get_integer(c, LVNI_CKPT_STEP_IN_EPOCH, 0, &at->step_in_epoch));
    LVN_TRY(get_integer(c, LVNI_CKPT_SAMPLES_SEEN, 0, &at->samples_seen));
    LVN_TRY(get_real(c, LVNI_CKPT_BEST_SCORE, &at->best_score));
    LVN_TRY(get_integer(c, LVNI_CKPT_BEST_STEP, -1, &at->best_step));
    const char *finished = lvni_ckpt_st_meta_get(c->file, LVNI_CKPT_FINISHED);
    if (finished == NULL || (strcmp(finished, "true") != 0 && strcmp(finished, "false") != 0)) {
        return wrong_value(c, LVNI_CKPT_FINISHED, finished);
    }
    at->finished = strcmp(finished, "true") == 0;
    return LVN_OK;
}

static lvn_status fill(lvni_ckpt *c, unsigned flags)
{
    LVN_TRY(lvni_ckpt_st_open(c->path, flags, &c->file));
    const char *stored = lvni_ckpt_st_meta_get(c->file, LVNI_CKPT_FORMAT);
    if (stored == NULL) {
        LVN_FAIL(
            LVN_ERR_MISMATCH,
            "%s has weights only and is not a levin checkpoint: a run cannot be resumed from it; "
            "start a "
            "new run from these weights with weights=%s",
            c->path, c->path);
    }
    if (strcmp(stored, format) != 0) {
        return wrong_value(c, LVNI_CKPT_FORMAT, stored);
    }
    c->config = lvni_ckpt_st_meta_get(c->file, LVNI_CKPT_CONFIG);
    if (c->config == NULL) {
        return wrong_value(c, LVNI_CKPT_CONFIG, NULL);
    }
    c->scaler = lvni_ckpt_st_meta_get(c->file, LVNI_CKPT_SCALER);
    c->schedule = lvni_ckpt_st_meta_get(c->file, LVNI_CKPT_SCHEDULE);
    return get_position(c, &c->at);
}

static lvn_status load(const char *path, unsigned flags, lvni_ckpt **out)
{
    *out = NULL;
    LVN_ARG(path != NULL, "loading a checkpoint needs a path");
    lvni_ckpt *c = LVNI_NEW(LVNI_TAG_CKPT, lvni_ckpt);
    if (c == NULL) {
        return LVN_ERR_MEMORY;
    }
    c->path = lvni_core_strdup(LVNI_TAG_CKPT, path);
    const lvn_status status = c->path == NULL ? LVN_ERR_MEMORY : fill(c, flags);
    if (status != LVN_OK) {
        lvn_error_frame("loading checkpoint %s", path);
        lvni_ckpt_free(c);
        return status;
    }
    *out = c;
    return LVN_OK;
}

lvn_status lvni_ckpt_load(const char *path, lvni_ckpt **out)
{
    return load(path, LVNI_ST_VERIFY, out);
}

lvn_status lvni_ckpt_peek(const char *path, lvni_ckpt **out)
{
    return load(path, LVNI_ST_VERIFY | LVNI_ST_HEADER_ONLY, out);
}

void lvni_ckpt_free(lvni_ckpt *c)
{
    if (c != NULL) {
        lvni_ckpt_st_close(c->file);
        lvni_core_free(c->path);
        lvni_core_free(c);
    }
}

/* ---- best is last ---- */

lvn_status lvni_ckpt_link(const char *from, const char *to)
{
    LVN_ARG(from != NULL && to != NULL, "linking a checkpoint needs two paths");
    const size_t room = strlen(to) + 32;
    char *temp = lvni_core_alloc(LVNI_TAG_CKPT, room);
    if (temp == NULL) {
        return LVN_ERR_MEMORY;
    }
    snprintf(temp, room, "%s.tmp-%ld", to, (long)getpid());
    const lvni_core_vfs *vfs = lvni_core_vfs_get();
    vfs->unlink(temp); /* of a dead process with our number */
    bool done = false;
    if (vfs->link(from, temp) == 0) {
        done = vfs->rename(temp, to) == 0;
        vfs->unlink(temp); /* rename leaves it when both names are the same file already */
    }
    lvni_core_free(temp);
    /* No sync of the directory: after a power cut `to` is the old checkpoint or the new one, whole
     * in both cases. */
    return done ? LVN_OK : lvni_core_file_copy(from, to);
}

/* ---- which checkpoint: the newest that is whole, or the last ---- */

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

/* Errors of this file, for which another may be tried; not lack of memory and the like. */
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
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        LVNI_TRY_DONE(status, has_suffix(e->d_name) ? add(s, e->d_name) : LVN_OK);
    }
done:
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
            lvn_clear_error(); /* of those passed over: reported through warn */
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
             "%s: none of its %d checkpoint%s can be used (overwrite=true starts again); the last "
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
