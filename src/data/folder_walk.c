/* Names of all images below a folder, sorted (folder_impl.h): files called .jpg, .jpeg or .png, and
 * others that begin as JPEG and PNG files do. Hidden names and what systems leave behind (__MACOSX,
 * @eaDir, Thumbs.db) are skipped silently, other files are counted. The order in which the system
 * lists names does not matter. Called by image_folder.c, folder_layout.c and folder_index.c. */
#include "data/folder_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

/* The folders from the root down to here: a link back to one of them would never end. */
typedef struct ancestor {
    const struct ancestor *up;
    size_t length; /* of its path */
    dev_t dev;
    ino_t ino;
} ancestor;

/* One path buffer for the whole walk: "<root>/<path below root>". */
typedef struct walker {
    lvni_data_walk *walk;
    size_t root_length;
    char path[PATH_MAX];
} walker;

/* ---- one name ---- */

bool lvni_data_name_is_image(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 ||
                           strcasecmp(dot, ".png") == 0);
}

/* As images of other kinds are called that are read, too. */
static bool is_called_other(const char *name)
{
    static const char *const endings[] = {".webp", ".tif", ".tiff", ".gif", ".bmp",
                                          ".pbm",  ".pgm", ".ppm",  ".pnm", ".pam"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && i < sizeof endings / sizeof *endings; i++) {
        if (strcasecmp(dot, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Hidden names include .DS_Store, .ipynb_checkpoints and ._x.jpg (what macOS writes beside
 * x.jpg). */
bool lvni_data_name_is_dropping(const char *name)
{
    static const char *const left_behind[] = {"__MACOSX",     "@eaDir",
                                              "#recycle",     "#snapshot",
                                              "$RECYCLE.BIN", "System Volume Information",
                                              "lost+found",   "Thumbs.db",
                                              "ehthumbs.db",  "desktop.ini"};
    for (size_t i = 0; i < sizeof left_behind / sizeof *left_behind; i++) {
        if (strcasecmp(name, left_behind[i]) == 0) {
            return true;
        }
    }
    return name[0] == '.';
}

/* Begins as images do that levin reads, or is called as one and begins as no kind at all: it is
 * damaged, which its header shows. The kind of one that is not read. What cannot be opened is
 * counted with the others. */
static bool begins_as_image(const char *path, lvni_data_foreign *foreign)
{
    uint8_t bytes[LVNI_FOREIGN_BYTES];
    const lvni_core_vfs *vfs = lvni_core_vfs_get();
    const int fd = vfs->open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    const ssize_t n = fd < 0 ? 0 : vfs->read(fd, bytes, sizeof bytes);
    if (fd >= 0) {
        vfs->close(fd);
    }
    *foreign = n > 0 ? lvni_data_foreign_of(bytes, (size_t)n) : LVNI_FOREIGN_NONE;
    if (n > 0 && (lvni_data_jpeg_is(bytes, (size_t)n) || lvni_data_png_is(bytes, (size_t)n))) {
        return true;
    }
    const bool damaged = fd >= 0 && *foreign == LVNI_FOREIGN_NONE && is_called_other(path);
    return (damaged || lvni_data_foreign_is_read(*foreign)) &&
           !lvni_data_foreign_is_converted(path);
}

bool lvni_data_file_is_image(const char *path)
{
    lvni_data_foreign foreign;
    return lvni_data_name_is_image(path) || begins_as_image(path, &foreign) ||
           lvni_data_foreign_is_read(foreign);
}

/* ---- what is ignored ---- */

/* Letters and digits behind the last dot; else "". */
static void ending_of(const char *name, char out[LVNI_IGNORED_ENDING])
{
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash == NULL ? name : slash, '.');
    size_t n = 0;
    out[0] = '\0';
    for (const char *p = dot; p != NULL && *p != '\0'; p++) {
        if (++n >= LVNI_IGNORED_ENDING || (p > dot && !isalnum((unsigned char)*p))) {
            return;
        }
    }
    for (size_t i = 0; n > 1 && i <= n; i++) {
        out[i] = (char)tolower((unsigned char)dot[i]);
    }
}

static void add_kind(lvni_data_ignored *ignored, const char *ending, int64_t count)
{
    int i = 0;
    while (i < ignored->n && strcmp(ignored->ending[i], ending) != 0) {
        i++;
    }
    /* the last place is for those without an ending */
    if (i >= LVNI_IGNORED_KINDS - 1 && ending[0] != '\0') {
        add_kind(ignored, "", count);
        return;
    }
    if (i == ignored->n) {
        snprintf(ignored->ending[i], LVNI_IGNORED_ENDING, "%s", ending);
        ignored->count[i] = 0;
        ignored->n++;
    }
    ignored->count[i] += count;
}

void lvni_data_ignored_add(lvni_data_ignored *ignored, const char *name, int64_t count)
{
    char ending[LVNI_IGNORED_ENDING];
    ending_of(name, ending);
    add_kind(ignored, ending, count);
}

void lvni_data_ignored_merge(lvni_data_ignored *ignored, const lvni_data_ignored *more)
{
    for (int i = 0; i < more->n; i++) {
        add_kind(ignored, more->ending[i], more->count[i]);
    }
}

/* Does kind a stand before kind b? */
static bool goes_before(const lvni_data_ignored *x, int a, int b)
{
    return x->count[a] != x->count[b] ? x->count[a] > x->count[b]
                                      : strcmp(x->ending[a], x->ending[b]) < 0;
}

void lvni_data_ignored_print(const lvni_data_ignored *ignored, lvni_core_str *out)
{
    bool printed[LVNI_IGNORED_KINDS] = {false};
    for (int k = 0; k < ignored->n; k++) {
        int best = -1;
        for (int i = 0; i < ignored->n; i++) {
            best = !printed[i] && (best < 0 || goes_before(ignored, i, best)) ? i : best;
        }
        printed[best] = true;
        lvni_core_str_printf(out, "%s%lld %s", k == 0 ? "" : ", ", (long long)ignored->count[best],
                             ignored->ending[best][0] == '\0' ? "without an ending"
                                                              : ignored->ending[best]);
    }
}

/* ---- the list ---- */

/* A zero-terminated copy in w->names, at *at. */
static lvn_status add_text(lvni_data_walk *w, const char *text, size_t *at)
{
    const size_t bytes = strlen(text) + 1;
    if (w->used + bytes > w->room) {
        const size_t room = 2 * w->room + bytes + 4096;
        char *names = lvni_core_realloc(LVNI_TAG_DATA, w->names, room);
        if (names == NULL) {
            return LVN_ERR_MEMORY;
        }
        w->names = names;
        w->room = room;
    }
    memcpy(w->names + w->used, text, bytes);
    *at = w->used;
    w->used += bytes;
    return LVN_OK;
}

lvn_status lvni_data_walk_add_name(lvni_data_walk *w, const char *name)
{
    if (w->n == w->n_room) {
        const int64_t room = 2 * w->n_room + 64;
        size_t *name_at =
            lvni_core_realloc(LVNI_TAG_DATA, w->name_at, (size_t)room * sizeof *name_at);
        if (name_at == NULL) {
            return LVN_ERR_MEMORY;
        }
        w->name_at = name_at;
        w->n_room = room;
    }
    LVN_TRY(add_text(w, name, &w->name_at[w->n]));
    w->n++;
    return LVN_OK;
}

lvn_status lvni_data_walk_add_folder(lvni_data_walk *w, const char *name, int64_t mtime_ns,
                                     int64_t inode)
{
    if (w->n_folders == w->folder_room) {
        const int64_t room = 2 * w->folder_room + 16;
        lvni_data_walk_folder *folders =
            lvni_core_realloc(LVNI_TAG_DATA, w->folders, (size_t)room * sizeof *folders);
        if (folders == NULL) {
            return LVN_ERR_MEMORY;
        }
        w->folders = folders;
        w->folder_room = room;
    }
    lvni_data_walk_folder *f = &w->folders[w->n_folders];
    f->mtime_ns = mtime_ns;
    f->inode = inode;
    LVN_TRY(add_text(w, name, &f->name_at));
    w->n_folders++;
    return LVN_OK;
}

static lvn_status add_folder(lvni_data_walk *w, const char *name, const struct stat *st)
{
    return lvni_data_walk_add_folder(w, name,
                                     (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
                                     (int64_t)st->st_ino);
}

static lvn_status walk_folder(walker *w, size_t length, const struct stat *self,
                              const ancestor *up);

/* What a link leads to can change while every folder here keeps its time. */
static lvn_status record_blind(walker *w)
{
    lvni_data_walk *walk = w->walk;
    return walk->n_blind++ == 0 ? add_text(walk, w->path + w->root_length + 1, &walk->blind_at)
                                : LVN_OK;
}

static lvn_status pass_over(walker *w, lvni_data_foreign foreign)
{
    struct stat st;
    if (foreign != LVNI_FOREIGN_NONE && !lvni_data_foreign_is_converted(w->path)) {
        w->walk->foreign.n[foreign]++;
    }
    lvni_data_ignored_add(&w->walk->ignored, w->path, 1);
    return lstat(w->path, &st) == 0 && !S_ISLNK(st.st_mode) ? LVN_OK : record_blind(w);
}

/* w->path holds an entry of a folder whose chain is `up`. Only what is neither folder nor image
 * is ignored. type: as readdir() has it; a file that is called like an image needs no look. */
static lvn_status walk_entry(walker *w, size_t length, unsigned char type, const ancestor *up)
{
    struct stat st;
    if (type == DT_REG && lvni_data_name_is_image(w->path)) {
        return lvni_data_walk_add_name(w->walk, w->path + w->root_length + 1);
    }
    if (stat(w->path, &st) != 0) {
        if (errno == ELOOP) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s is a link that leads back to itself, alone or over others; remove it",
                     w->path);
        }
        LVN_TRY(record_blind(w));
        return lvni_data_name_is_image(w->path)
                   ? lvni_data_walk_add_name(w->walk, w->path + w->root_length + 1)
                   : LVN_OK; /* reported when it is read */
    }
    if (!S_ISDIR(st.st_mode)) {
        lvni_data_foreign foreign = LVNI_FOREIGN_NONE;
        const bool image = S_ISREG(st.st_mode) &&
                           (lvni_data_name_is_image(w->path) || begins_as_image(w->path, &foreign));
        return image ? lvni_data_walk_add_name(w->walk, w->path + w->root_length + 1)
                     : pass_over(w, foreign);
    }
    for (const ancestor *a = up; a != NULL; a = a->up) {
        if (a->dev == st.st_dev && a->ino == st.st_ino) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s is a link to a folder that it lies in, %.*s: following it would never "
                     "end; remove the link",
                     w->path, (int)a->length, w->path);
        }
    }
    return walk_folder(w, length, &st, up);
}

static lvn_status walk_folder(walker *w, size_t length, const struct stat *self, const ancestor *up)
{
    const ancestor here = {up, length, self->st_dev, self->st_ino};
    LVN_TRY(add_folder(w->walk, w->path + w->root_length + (w->path[w->root_length] == '/'), self));
    DIR *dir = opendir(w->path);
    if (dir == NULL) {
        LVN_FAIL(errno == ENOENT ? LVN_ERR_NOT_FOUND : LVN_ERR_IO, "%s: cannot open the folder: %s",
                 w->path, strerror(errno));
    }
    lvn_status status = LVN_OK;
    errno = 0;
    for (const struct dirent *e = readdir(dir); e != NULL; errno = 0, e = readdir(dir)) {
        if (w->walk->any && w->walk->n > 0) {
            goto done;
        }
        if (lvni_data_name_is_dropping(e->d_name)) {
            continue;
        }
        const int n = snprintf(w->path + length, sizeof w->path - length, "/%s", e->d_name);
        if ((size_t)n >= sizeof w->path - length) {
            w->path[length] = 0;
            status =
                lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                              "%s: a path below it is longer than %d bytes", w->path, PATH_MAX);
            goto done;
        }
        const lvn_status entry = walk_entry(w, length + (size_t)n, e->d_type, &here);
        w->path[length] = 0;
        LVNI_TRY_DONE(status, entry);
    }
    if (errno != 0) {
        status = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__, "%s: cannot list the folder: %s",
                               w->path, strerror(errno));
    }
done:
    closedir(dir);
    return status;
}

lvn_status lvni_data_walk_add(lvni_data_walk *walk, const char *root, const char *under)
{
    walker *w = lvni_core_alloc(LVNI_TAG_DATA, sizeof *w);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (walk->start_ns == 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        walk->start_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    w->walk = walk;
    w->root_length = strlen(root);
    const int n =
        snprintf(w->path, sizeof w->path, "%s%s%s", root, under[0] != 0 ? "/" : "", under);
    struct stat st;
    lvn_status status;
    if ((size_t)n >= sizeof w->path) {
        status = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                               "the path %s is longer than %d bytes", root, PATH_MAX);
    } else if (stat(w->path, &st) != 0) {
        status = lvn_error_set(errno == ENOENT ? LVN_ERR_NOT_FOUND : LVN_ERR_IO, __FILE__, __LINE__,
                               "%s: cannot open the folder: %s", w->path, strerror(errno));
    } else {
        status = walk_folder(w, (size_t)n, &st, NULL);
    }
    lvni_core_free(w);
    return status;
}

lvn_status lvni_data_walk_any(const char *folder, bool *any)
{
    lvni_data_walk walk = {.any = true};
    const lvn_status s = lvni_data_walk_add(&walk, folder, "");
    *any = walk.n > 0;
    lvni_data_walk_free(&walk);
    return s;
}

lvn_status lvni_data_walk_watch(lvni_data_walk *walk, const char *root, const char *under)
{
    char path[PATH_MAX];
    struct stat st;
    const int n = snprintf(path, sizeof path, "%s%s%s", root, under[0] != 0 ? "/" : "", under);
    if (n >= PATH_MAX || stat(path, &st) != 0) {
        LVN_FAIL(LVN_ERR_IO, "%s: cannot look at the folder: %s", root, strerror(errno));
    }
    return add_folder(walk, under, &st);
}

lvn_status lvni_data_walk_add_sizes(lvni_data_walk *w)
{
    if (w->n > w->size_room || w->size == NULL) {
        lvni_data_walk_size *size =
            lvni_core_realloc(LVNI_TAG_DATA, w->size, (size_t)(w->n_room + 1) * sizeof *size);
        if (size == NULL) {
            return LVN_ERR_MEMORY;
        }
        w->size = size;
        w->size_room = w->n_room;
    }
    return LVN_OK;
}

static int compare_names(const void *a, const void *b, void *names)
{
    return strcmp((const char *)names + *(const size_t *)a,
                  (const char *)names + *(const size_t *)b);
}

void lvni_data_walk_sort(lvni_data_walk *walk, int64_t first)
{
    if (walk->n - first > 1) {
        qsort_r(walk->name_at + first, (size_t)(walk->n - first), sizeof *walk->name_at,
                compare_names, walk->names);
    }
}

void lvni_data_walk_free(lvni_data_walk *walk)
{
    if (walk->map.base == NULL) {
        lvni_core_free(walk->names);
        lvni_core_free(walk->name_at);
        lvni_core_free(walk->folders);
        lvni_core_free(walk->size);
    }
    lvni_data_map_free(&walk->map);
    *walk = (lvni_data_walk){0};
}
