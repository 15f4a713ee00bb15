/* The index file of a folder (folder_index.h). */
#include "data/folder_index.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "data/decode/picture.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define VERSION_LINE "levin data index 1\n"

/* A folder changed this shortly before it was listed may change again within the same tick of its clock: such an index is not trusted. */
static const int64_t settle_ns = 2000000000;
static const size_t header_bytes = (size_t)1 << 16;

/* ---- damaged pictures ---- */

typedef struct damage {
    int64_t n, of;
    lvni_str names;
} damage;

static void note_damage(damage *d, const char *name)
{
    if (d->n++ < LVNI_INDEX_NAMED) {
        lvni_str_printf(&d->names, "%s%s", d->n == 1 ? "" : ", ", name);
    }
}

static lvn_status tell_damage(damage *d, lvni_str *out)
{
    if (d->n > 0) {
        lvni_str_printf(out, "%lld of %lld pictures have a damaged header: %s%s", (long long)d->n, (long long)d->of, lvni_str_text(&d->names),
                        d->n > LVNI_INDEX_NAMED ? ", ..." : "");
    }
    const lvn_status s = lvni_str_status(&d->names) == LVN_OK ? lvni_str_status(out) : LVN_ERR_MEMORY;
    lvni_str_free(&d->names);
    return s;
}

/* ---- writing ---- */

static void put_path(lvni_str *out, const char *path)
{
    for (const char *p = path; *p != '\0'; p++) {
        const unsigned char c = (unsigned char)*p;
        if (c <= ' ' || c == '%' || c == 127) {
            lvni_str_printf(out, "%%%02x", c);
        } else {
            lvni_str_append_n(out, p, 1);
        }
    }
    lvni_str_char(out, '\n');
}

/* The first bytes of a picture (all of them: whole), its size and time. */
static lvn_status read_start(lvni_data_scratch *scratch, const char *path, bool whole, size_t *n, struct stat *st)
{
    *n = 0;
    const int fd = lvni_vfs_get()->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0 || fstat(fd, st) != 0) {
        if (fd >= 0) {
            lvni_vfs_get()->close(fd);
        }
        LVN_FAIL(LVN_ERR_IO, "%s: cannot open", path);
    }
    const size_t all = (size_t)st->st_size, want = whole || all < header_bytes ? all : header_bytes;
    const lvn_status s = lvni_buffer_reserve(&scratch->file, want + 1);
    while (s == LVN_OK && *n < want) {
        const ssize_t got = lvni_vfs_get()->read(fd, (char *)scratch->file.data + *n, want - *n);
        if (got <= 0) {
            break;
        }
        *n += (size_t)got;
    }
    lvni_vfs_get()->close(fd);
    return s;
}

/* Zeros where the header does not say. A header may lie behind the first bytes (an embedded preview): then the whole file is read. */
static lvn_status look_at(lvni_data_scratch *scratch, const char *path, struct stat *st, lvni_picture_info *info)
{
    lvn_status s = LVN_OK;
    for (int whole = 0; whole < 2; whole++) {
        size_t n;
        s = read_start(scratch, path, whole == 1, &n, st);
        if (s != LVN_OK) {
            break;
        }
        s = lvni_picture_probe(scratch, scratch->file.data, n, path, info);
        if (s == LVN_OK || n == (size_t)st->st_size) {
            break;
        }
    }
    if (s == LVN_ERR_MEMORY) {
        return s;
    }
    if (s != LVN_OK) { /* damage is a finding here */
        *info = (lvni_picture_info){0};
        lvn_clear_error();
    }
    return LVN_OK;
}

static int64_t time_of(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static lvn_status put_pictures(lvni_str *out, const char *root, const lvni_walk *walk, damage *d)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    if (scratch == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < walk->n; i++) {
        char path[PATH_MAX];
        struct stat st = {0};
        lvni_picture_info info = {0};
        const char *name = walk->names + walk->name_at[i];
        snprintf(path, sizeof path, "%s/%s", root, name);
        LVN_TRY(look_at(scratch, path, &st, &info));
        if (info.width == 0) {
            note_damage(d, name);
        }
        lvni_str_printf(out, "picture %lld %lld %d %d ", (long long)st.st_size, (long long)time_of(&st), info.width, info.height);
        put_path(out, name);
    }
    return LVN_OK;
}

lvn_status lvni_folder_index_write(const char *file, const char *root, bool parts, const lvni_walk *walk, lvni_str *damaged)
{
    lvni_str out = {0};
    damage d = {.of = walk->n};
    lvni_str_printf(&out, VERSION_LINE "data %lld %d ", (long long)walk->start_ns, parts ? 1 : 0);
    put_path(&out, root);
    for (int64_t i = 0; i < walk->n_folders; i++) {
        const lvni_walk_folder *f = &walk->folders[i];
        lvni_str_printf(&out, "folder %lld %lld ", (long long)f->mtime_ns, (long long)f->inode);
        put_path(&out, walk->names + f->name_at);
    }
    lvn_status s = put_pictures(&out, root, walk, &d);
    lvni_str_printf(&out, "end %016llx\n", (unsigned long long)XXH3_64bits(lvni_str_text(&out), out.len));
    s = s == LVN_OK ? lvni_str_status(&out) : s;
    s = s == LVN_OK ? lvni_file_write(file, out.data, out.len) : s;
    const lvn_status told = tell_damage(&d, damaged);
    lvni_str_free(&out);
    return s == LVN_OK ? told : s;
}

/* ---- where ---- */

/* The folder that a file lies in, with no links and dots; false: it cannot be found, and opening the file will say so. */
static bool folder_of(const char *file, char real[PATH_MAX])
{
    char folder[PATH_MAX];
    const char *slash = strrchr(file, '/');
    const int length = slash == NULL ? 1 : slash == file ? 1 : (int)(slash - file);
    const int n = snprintf(folder, sizeof folder, "%.*s", length, slash == NULL ? "." : file);
    return n < PATH_MAX && realpath(folder, real) != NULL;
}

lvn_status lvni_folder_index_check_place(const char *file, const char *root)
{
    char folder[PATH_MAX], real[PATH_MAX];
    if (!folder_of(file, folder) || realpath(root, real) == NULL) {
        return LVN_OK;
    }
    const size_t n = strcmp(real, "/") == 0 ? 0 : strlen(real);
    if (strncmp(folder, real, n) == 0 && (folder[n] == '\0' || folder[n] == '/')) {
        LVN_FAIL(LVN_ERR_USAGE, "data.index=%s lies inside of data=%s: writing it there would change the folder that it describes; put it beside the folder",
                 file, root);
    }
    return LVN_OK;
}

/* ---- reading ---- */

/* The rest of a line to its path, in place; the begin of the next line. NULL: no line end. */
static char *take_path(char *at)
{
    char *end = strchr(at, '\n');
    if (end == NULL) {
        return NULL;
    }
    *end = '\0';
    char *to = at;
    for (const char *p = at; *p != '\0'; p++) {
        const char hex[3] = {p[0] == '%' ? p[1] : '\0', p[0] == '%' && p[1] != '\0' ? p[2] : '\0', '\0'};
        if (hex[1] != '\0') {
            *to++ = (char)strtol(hex, NULL, 16);
            p += 2;
        } else {
            *to++ = *p;
        }
    }
    *to = '\0';
    return end + 1;
}

/* The word, then n numbers with a space behind each; NULL when the line is another. */
static char *take_numbers(char *at, const char *word, int n, int64_t *out)
{
    const size_t length = strlen(word);
    if (strncmp(at, word, length) != 0) {
        return NULL;
    }
    at += length;
    for (int i = 0; i < n; i++) {
        char *end;
        out[i] = strtoll(at, &end, 10);
        if (end == at || *end != ' ') {
            return NULL;
        }
        at = end + 1;
    }
    return at;
}

/* Version and hash. What is not an index at all is an error too: it would be overwritten. */
static lvn_status check_whole(const char *file, char *text, size_t n)
{
    char *last = n < 22 ? NULL : text + n - 21; /* "end ", 16 digits, '\n' */
    if (last == NULL || strlen(text) != n || strncmp(text, VERSION_LINE, strlen(VERSION_LINE)) != 0 || strncmp(last, "end ", 4) != 0 ||
        strtoull(last + 4, NULL, 16) != XXH3_64bits(text, n - 21)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "data.index=%s is damaged or no index of levin: remove it, or give another name", file);
    }
    return LVN_OK;
}

static bool folder_is_same(const char *root, const char *name, const int64_t *was, int64_t start_ns)
{
    char path[PATH_MAX];
    struct stat st;
    const int n = snprintf(path, sizeof path, "%s%s%s", root, name[0] != '\0' ? "/" : "", name);
    return n < PATH_MAX && stat(path, &st) == 0 && S_ISDIR(st.st_mode) && time_of(&st) == was[0] && (int64_t)st.st_ino == was[1] &&
           was[0] + settle_ns <= start_ns;
}

/* The lines between version and end. */
static lvn_status take_lines(char *at, const char *root, bool parts, lvni_walk *walk, damage *d, lvni_index_found *found)
{
    int64_t head[2], v[4];
    char *path = take_numbers(at, "data ", 2, head);
    at = path == NULL ? NULL : take_path(path);
    bool same = at != NULL && strcmp(path, root) == 0;
    while (same && (path = take_numbers(at, "folder ", 2, v)) != NULL) {
        at = take_path(path);
        same = at != NULL && folder_is_same(root, path, v, head[0]);
    }
    if (same && head[1] != (parts ? 1 : 0)) {
        *found = LVNI_INDEX_OTHER_PARTS;
        return LVN_OK;
    }
    while (same && (path = take_numbers(at, "picture ", 4, v)) != NULL) {
        at = take_path(path);
        same = at != NULL;
        if (same) {
            LVN_TRY(lvni_walk_add_name(walk, path));
        }
        if (same && v[2] == 0) {
            note_damage(d, path);
        }
    }
    d->of = walk->n;
    *found = same ? LVNI_INDEX_TAKEN : LVNI_INDEX_WANTED;
    return LVN_OK;
}

lvn_status lvni_folder_index_read(const char *file, const char *root, bool parts, lvni_walk *walk, lvni_str *damaged, lvni_index_found *found)
{
    *found = LVNI_INDEX_WANTED;
    if (!lvni_path_exists(file)) {
        return LVN_OK;
    }
    char *text;
    size_t n;
    LVN_TRY(lvni_file_read(file, (size_t)1 << 36, &text, &n));
    damage d = {0};
    lvn_status s = check_whole(file, text, n);
    if (s == LVN_OK) {
        s = take_lines(text + strlen(VERSION_LINE), root, parts, walk, &d, found);
    }
    lvni_free(text);
    if (s != LVN_OK || *found != LVNI_INDEX_TAKEN) {
        lvni_walk_free(walk);
        lvni_str_free(&d.names);
        return s;
    }
    return tell_damage(&d, damaged);
}
