/* The index of a folder: its list kept in a file, with what the headers of its images hold, so that
 * the next start lists nothing and reads no header again, and damaged images are known before the
 * first step (folder_impl.h). Called by image_folder.c.
 *
 * The file is text: a line of the version, the folder, a line for each folder below with its time
 * and inode, a line for each kind of ignored files with their number, a line for each image with
 * bytes, time, width and height (0 0: damaged), a hash of its first 4 KiB and path (blanks, '%' and
 * control characters as %xx), a line with a hash of all that. It is used when it is of this folder,
 * every folder below still has its time and inode (adding, removing and renaming change them),
 * every image its bytes and time, and every damaged image is damaged still; else all is listed
 * again. A folder with a link that leads nowhere, or to what is neither folder nor image, has no
 * index: what appears behind the link changes no time in the folder. Order and classes follow from
 * the paths, as without an index, and images are decoded by what is in them. */
#include "data/folder_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define VERSION_LINE "levin data index 4\n"
#define IMAGE_LINE "picture " /* since version 2: frozen, as files have it */

static const char *const older_lines[] = {"levin data index 1\n", "levin data index 2\n",
                                          "levin data index 3\n"}; /* made again */

/* A folder changed this shortly before it was listed may change again within the same tick of its
 * clock: such an index is not trusted. */
static const int64_t settle_ns = 2000000000;

/* ---- writing ---- */

/* Whatever path the folder is given by. */
static const char *real_path(const char *root, char real[PATH_MAX])
{
    return realpath(root, real) == NULL ? root : real;
}

/* What the index is of: the folder, or the entries of a list, one a line. */
static lvn_status name_listed(const lvni_data_listing *l, lvni_core_str *out)
{
    char real[PATH_MAX];
    lvni_core_str_append(out, l->list == NULL ? real_path(l->root, real) : "");
    for (size_t i = 0; l->list != NULL && i < l->list->n; i++) {
        lvni_core_str_printf(out, "%s%s", i > 0 ? "\n" : "", l->list->entry[i]);
    }
    return lvni_core_str_status(out);
}

static void put_path(lvni_core_str *out, const char *path)
{
    static const char usual[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    const size_t front = strspn(path, usual);
    lvni_core_str_append_n(out, path, front);
    for (const char *p = path + front; *p != '\0';) {
        const size_t plain = *p == ' ' || *p == '%' ? 0 : lvni_core_escape_plain(p, strnlen(p, 4));
        if (plain == 0) {
            lvni_core_str_printf(out, "%%%02x", (unsigned)(unsigned char)*p);
        }
        lvni_core_str_append_n(out, p, plain);
        p += plain == 0 ? 1 : plain;
    }
    lvni_core_str_char(out, '\n');
}

/* The headers of all images, into the text and into walk->size. */
static lvn_status put_images(lvni_core_str *out, const char *root, lvni_data_walk *walk,
                             lvni_data_damage *d)
{
    lvni_data_header *all = lvni_core_calloc(LVNI_TAG_DATA, (size_t)walk->n, sizeof *all);
    lvn_status s;
    LVNI_TRY_DONE(s, all == NULL ? LVN_ERR_MEMORY : lvni_data_walk_add_sizes(walk));
    LVNI_TRY_DONE(s, lvni_data_headers_read(root, walk->names, walk->name_at, walk->n, all, d));
    for (int64_t i = 0; i < walk->n; i++) {
        const lvni_data_header *h = &all[i];
        walk->size[i] = lvni_data_header_size(h);
        lvni_core_str_printf(out, IMAGE_LINE "%lld %lld %d %d %lld ", (long long)h->bytes,
                             (long long)h->time_ns, h->width, h->height, (long long)h->begin);
        put_path(out, walk->names + walk->name_at[i]);
    }
done:
    lvni_core_free(all);
    return s;
}

/* The file of a sorted walk. */
static lvn_status make_text(lvni_core_str *out, const lvni_data_listing *l, lvni_data_walk *walk,
                            lvni_data_damage *d)
{
    lvni_core_str listed = {0};
    const lvn_status named = name_listed(l, &listed);
    lvni_core_str_printf(out, VERSION_LINE "data %lld %d ", (long long)walk->start_ns, l->kind);
    put_path(out, lvni_core_str_text(&listed));
    lvni_core_str_free(&listed);
    LVN_TRY(named);
    for (int64_t i = 0; i < walk->n_folders; i++) {
        const lvni_data_walk_folder *f = &walk->folders[i];
        lvni_core_str_printf(out, "folder %lld %lld ", (long long)f->mtime_ns, (long long)f->inode);
        put_path(out, walk->names + f->name_at);
    }
    for (int i = 0; i < walk->ignored.n; i++) {
        lvni_core_str_printf(out, "ignored %lld ", (long long)walk->ignored.count[i]);
        put_path(out, walk->ignored.ending[i]);
    }
    LVN_TRY(put_images(out, l->root, walk, d));
    lvni_core_str_printf(out, "end %016llx\n",
                         (unsigned long long)XXH3_64bits(lvni_core_str_text(out), out->len));
    return lvni_core_str_status(out);
}

/* ---- where ---- */

/* The folder that a file lies in, with no links and dots; false: it cannot be found. */
static bool folder_of(const char *file, char real[PATH_MAX])
{
    char folder[PATH_MAX];
    const char *slash = strrchr(file, '/');
    const int length = slash == NULL ? 1 : slash == file ? 1 : (int)(slash - file);
    const int n = snprintf(folder, sizeof folder, "%.*s", length, slash == NULL ? "." : file);
    return n < PATH_MAX && realpath(folder, real) != NULL;
}

static lvn_status check_place(const char *file, const char *root)
{
    char folder[PATH_MAX], real[PATH_MAX];
    if (!folder_of(file, folder) || realpath(root, real) == NULL) {
        return LVN_OK;
    }
    const size_t n = strcmp(real, "/") == 0 ? 0 : strlen(real);
    if (strncmp(folder, real, n) == 0 && (folder[n] == '\0' || folder[n] == '/')) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data.index=%s lies inside of data=%s: writing it there would change the folder "
                 "that it describes; put it beside the folder",
                 file, root);
    }
    return LVN_OK;
}

static lvn_status check_places(const char *file, const lvni_data_listing *l)
{
    for (size_t i = 0; l->list != NULL && i < l->list->n; i++) {
        LVN_TRY(check_place(file, l->list->entry[i]));
    }
    return l->list != NULL ? LVN_OK : check_place(file, l->root);
}

/* Before anything else is done: the text is written when the run begins. */
static lvn_status check_writable(const char *file)
{
    char folder[PATH_MAX];
    if (!folder_of(file, folder) || access(folder, W_OK) != 0) {
        LVN_FAIL(errno == ENOENT ? LVN_ERR_NOT_FOUND : LVN_ERR_IO,
                 "data.index=%s cannot be written there: %s", file, strerror(errno));
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
        const char hex[3] = {p[0] == '%' ? p[1] : '\0', p[0] == '%' && p[1] != '\0' ? p[2] : '\0',
                             '\0'};
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

/* The key, then n numbers with a space behind each; NULL when the line is another. */
static char *take_numbers(char *at, const char *key, int n, int64_t *out)
{
    const size_t length = strlen(key);
    if (strncmp(at, key, length) != 0) {
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

/* Version and hash. */
static bool is_whole(const char *text, size_t n, const char *version)
{
    const char *last = n < 22 ? NULL : text + n - 21; /* "end ", 16 digits, '\n' */
    return last != NULL && strlen(text) == n && strncmp(text, version, strlen(version)) == 0 &&
           strncmp(last, "end ", 4) == 0 && last[20] == '\n' &&
           strtoull(last + 4, NULL, 16) == XXH3_64bits(text, n - 21);
}

static bool is_older(const char *text, size_t n)
{
    bool older = false;
    for (size_t i = 0; i < sizeof older_lines / sizeof *older_lines; i++) {
        older = older || is_whole(text, n, older_lines[i]);
    }
    return older;
}

/* What is not an index at all is an error too: it would be overwritten. */
static lvn_status check_whole(const char *file, const char *text, size_t n)
{
    if (!is_whole(text, n, VERSION_LINE)) {
        LVN_FAIL(
            LVN_ERR_CORRUPT,
            "data.index=%s is damaged or not an index of levin: remove it, or give another name",
            file);
    }
    return LVN_OK;
}

static int64_t time_of(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* Appends what differs. */
static bool folder_is_same(const char *root, const char *name, const int64_t *was, int64_t start_ns,
                           lvni_core_str *changed)
{
    char path[PATH_MAX];
    struct stat st;
    const int n = snprintf(path, sizeof path, "%s%s%s", root, name[0] != '\0' ? "/" : "", name);
    if (n >= PATH_MAX || stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        lvni_core_str_printf(changed, "the folder %s is gone", path);
    } else if (time_of(&st) != was[0] || (int64_t)st.st_ino != was[1]) {
        lvni_core_str_printf(changed, "something was added to %s, removed or renamed", path);
    } else {
        return was[0] + settle_ns <= start_ns;
    }
    return false;
}

static bool image_is_same(const char *root, const char *name, const int64_t *was,
                          lvni_core_str *changed)
{
    lvni_data_header is;
    if (!lvni_data_header_stat(root, name, &is)) {
        lvni_core_str_printf(changed, "%s/%s is gone", root, name);
    } else if (is.bytes != was[0]) {
        lvni_core_str_printf(changed, "%s/%s has %lld bytes, and had %lld", root, name,
                             (long long)is.bytes, (long long)was[0]);
    } else if (is.time_ns != was[1]) {
        lvni_core_str_printf(changed, "%s/%s was written again", root, name);
    } else {
        return true;
    }
    return false;
}

/* Its file may be readable by now without having changed: permissions, a disk that was away. */
static lvn_status look_again(const char *root, const char *name, lvni_data_damage *d,
                             lvni_core_str *changed)
{
    lvni_data_header h;
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    if (scratch == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(lvni_data_header_read(scratch, root, name, &h, d));
    if (h.width > 0) {
        lvni_core_str_printf(changed, "%s/%s is not damaged any more", root, name);
    }
    return LVN_OK;
}

/* What the lines between version and end are checked against, and go into. */
typedef struct taking {
    const char *root, *listed;
    lvni_data_walk *walk;
    lvni_data_damage damage;
    lvni_core_str *changed;
    bool same; /* so far */
} taking;

static lvn_status take_image(taking *t, const char *name, const int64_t *v)
{
    /* listed with another data.max_pixels */
    const bool large = v[2] > 0 && !lvni_data_image_fits(v[2], v[3]);
    if (v[2] > 0) {
        (void)image_is_same(t->root, name, v, t->changed);
    }
    if (v[2] == 0 || (large && t->changed->len == 0)) {
        LVN_TRY(look_again(t->root, name, &t->damage, t->changed));
    }
    t->same = t->changed->len == 0;
    LVN_TRY(lvni_data_walk_add_name(t->walk, name));
    LVN_TRY(lvni_data_walk_add_sizes(t->walk));
    t->walk->size[t->walk->n - 1] = (lvni_data_walk_size){.bytes = v[0],
                                                          .width = large ? 0 : (int)v[2],
                                                          .height = large ? 0 : (int)v[3],
                                                          .begin = (uint64_t)v[4]};
    return LVN_OK;
}

/* OTHER: it lists this unchanged folder another way, train/ and val/ alone (as training does) or
 * everything below (predict): it is left as it is. */
typedef enum found { WANTED, TAKEN, OTHER } found;

static lvn_status take_lines(taking *t, char *at, int kind, found *out)
{
    int64_t head[2] = {0}, v[5];
    char *path = take_numbers(at, "data ", 2, head);
    at = path == NULL ? NULL : take_path(path);
    t->same = at != NULL && strcmp(path, t->listed) == 0;
    while (t->same && (path = take_numbers(at, "folder ", 2, v)) != NULL) {
        at = take_path(path);
        t->same = at != NULL && folder_is_same(t->root, path, v, head[0], t->changed);
        LVN_TRY(t->same ? lvni_data_walk_add_folder(t->walk, path, v[0], v[1]) : LVN_OK);
    }
    if (t->same && head[1] != kind) {
        *out = OTHER;
        return LVN_OK;
    }
    while (t->same && (path = take_numbers(at, "ignored ", 1, v)) != NULL) {
        at = take_path(path);
        t->same = at != NULL;
        lvni_data_ignored_add(&t->walk->ignored, path, v[0]);
    }
    while (t->same && (path = take_numbers(at, IMAGE_LINE, 5, v)) != NULL) {
        at = take_path(path);
        t->same = at != NULL;
        LVN_TRY(t->same ? take_image(t, path, v) : LVN_OK);
    }
    /* a line of another kind: written by a program that knows more */
    *out = t->same && strncmp(at, "end ", 4) == 0 ? TAKEN : WANTED;
    return LVN_OK;
}

static lvn_status take_text(lvni_data_index *x, const lvni_data_listing *l, char *text,
                            lvni_data_walk *walk, found *out)
{
    lvni_core_str listed = {0};
    taking t = {.root = l->root, .walk = walk, .changed = &x->changed};
    lvn_status s = name_listed(l, &listed);
    t.listed = lvni_core_str_text(&listed);
    s = s == LVN_OK ? take_lines(&t, text + strlen(VERSION_LINE), l->kind, out) : s;
    lvni_core_str_free(&listed);
    const lvn_status reported = lvni_data_damage_report(&t.damage, walk, &x->damaged);
    if (s == LVN_OK) {
        s = reported != LVN_OK ? reported : lvni_core_str_status(&x->changed);
    }
    if (s != LVN_OK || *out != TAKEN) {
        lvni_data_walk_free(walk);
        lvni_core_str_clear(&x->damaged);
    }
    return s;
}

/* The walk stays empty unless TAKEN. */
static lvn_status take_file(lvni_data_index *x, const lvni_data_listing *l, lvni_data_walk *walk,
                            found *out)
{
    char *text;
    size_t n;
    *out = WANTED;
    if (x->file == NULL || !lvni_core_path_exists(x->file)) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_regular_read(x->file, (size_t)1 << 36, &text, &n));
    lvn_status s = check_whole(x->file, text, n);
    if (s == LVN_ERR_CORRUPT && (x->mode != LVNI_INDEX_FILE || is_older(text, n))) {
        /* written by levin alone: nothing else would be lost */
        const bool older = strncmp(text, VERSION_LINE, strlen(VERSION_LINE) - 2) == 0 &&
                           strncmp(text, VERSION_LINE, strlen(VERSION_LINE)) != 0;
        lvni_core_str_printf(&x->changed, "%s is %s", x->file,
                             older ? "of another version" : "damaged");
        lvn_clear_error();
        s = LVN_OK;
    } else if (s == LVN_OK) {
        s = take_text(x, l, text, walk, out);
    }
    lvni_core_free(text);
    return s;
}

/* The headers of all images, and the text of what may be kept. */
static lvn_status make_index(lvni_data_index *x, const lvni_data_listing *l, lvni_data_walk *walk)
{
    lvni_data_damage damage = {0};
    lvn_status s = make_text(&x->text, l, walk, &damage);
    const lvn_status reported = lvni_data_damage_report(&damage, walk, &x->damaged);
    if (walk->n_blind > 0) {
        lvni_core_str_clear(&x->text);
        lvni_core_str_printf(
            &x->unkept,
            "%s/%s%s leads to no folder and no image, and it would not show when that changes",
            l->root, walk->names + walk->blind_at, walk->n_blind > 1 ? " (and others)" : "");
    }
    LVN_TRY(s);
    LVN_TRY(reported);
    return lvni_core_str_status(&x->unkept);
}

static lvn_status open_alone(lvni_data_index *x, const lvni_data_listing *l, lvni_data_walk *walk)
{
    found what = WANTED;
    LVN_TRY(x->mode == LVNI_INDEX_FILE ? check_places(x->file, l) : LVN_OK);
    LVN_TRY(x->mode == LVNI_INDEX_NONE ? LVN_OK : take_file(x, l, walk, &what));
    if (what == TAKEN) {
        return LVN_OK;
    }
    LVN_TRY(x->mode == LVNI_INDEX_FILE && what == WANTED ? check_writable(x->file) : LVN_OK);
    LVN_TRY(l->walk(l->user, walk));
    if (what == OTHER || x->mode == LVNI_INDEX_NONE || x->mode == LVNI_INDEX_LOOK) {
        return LVN_OK;
    }
    return make_index(x, l, walk);
}

lvn_status lvni_data_folder_index_open(lvni_data_index *x, const lvni_data_listing *l,
                                       lvni_data_walk *walk)
{
    char path[LVNI_SHARED_PATH] = "";
    if (x->shared != NULL) {
        const lvn_status s = lvni_data_walk_open_shared(x->shared, walk);
        if (s != LVN_ERR_IO) {
            return s;
        }
        lvn_clear_error(); /* processes that may not look at each other */
    }
    LVN_TRY(open_alone(x, l, walk));
    if (x->publish == NULL) {
        return LVN_OK;
    }
    return x->publish(x->user, lvni_data_walk_share(walk, path) ? path : "");
}

void lvni_data_index_free(lvni_data_index *x)
{
    lvni_core_str_free(&x->changed);
    lvni_core_str_free(&x->damaged);
    lvni_core_str_free(&x->unkept);
    lvni_core_str_free(&x->text);
}
