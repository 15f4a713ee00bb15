/* The header of each image of a folder: its size, or that it is damaged, and the file's bytes and
 * time (folder_impl.h). Read once, long before the image itself is decoded. Called by
 * folder_index.c. */
#include "data/folder_impl.h"

#include "core/error.h"
#include "core/thread.h"
#include "core/vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* Nearly every header lies in the first block of a file; an embedded preview or a colour profile
 * may push it behind. */
static const size_t header_bytes[] = {LVNI_BEGIN_BYTES, (size_t)1 << 16};

/* The message begins with the path; the folder is named once. */
static void record_damage(lvni_data_damage *d, const char *root, const char *message)
{
    const size_t n = strlen(root);
    const bool named = d->n < LVNI_DAMAGE_NAMED && d->text.len < LVNI_DAMAGE_TEXT;
    if (named && d->n == d->n_named) {
        const bool inside = d->n > 0 && strncmp(message, root, n) == 0 && message[n] == '/';
        lvni_core_str_printf(&d->text, "%s%s", d->n == 0 ? "" : "; ",
                             message + (inside ? n + 1 : 0));
        d->n_named++;
    }
    d->n++;
}

static void forget_damage(lvni_data_damage *d)
{
    lvni_core_str_free(&d->text);
    *d = (lvni_data_damage){0};
}

lvn_status lvni_data_damage_report(lvni_data_damage *d, lvni_data_walk *walk, lvni_core_str *out)
{
    if (d->n > 0) {
        lvni_core_str_printf(out, "%lld of %lld image%s cannot be used: %s", (long long)d->n,
                             (long long)walk->n, lvni_core_plural(walk->n, "", "s"),
                             lvni_core_str_text(&d->text));
    }
    if (d->n > d->n_named) {
        lvni_core_str_printf(out, "; and %lld more", (long long)(d->n - d->n_named));
    }
    for (int i = 0; i < LVNI_FOREIGN_KINDS; i++) {
        walk->foreign.n[i] += d->foreign.n[i];
    }
    const lvn_status texts = lvni_core_str_status(&d->text);
    forget_damage(d);
    LVN_TRY(texts);
    return lvni_core_str_status(out);
}

static void take_stat(const struct stat *st, lvni_data_header *out)
{
    out->bytes = (int64_t)st->st_size;
    out->time_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static int path_of(const char *root, const char *name, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/%s", root, name);
}

bool lvni_data_header_stat(const char *root, const char *name, lvni_data_header *out)
{
    char path[PATH_MAX];
    struct stat st;
    *out = (lvni_data_header){0};
    if (path_of(root, name, path) >= PATH_MAX || stat(path, &st) != 0) {
        return false;
    }
    take_stat(&st, out);
    return true;
}

/* The first bytes, their header, and their hash while they are at hand. */
static lvn_status probe_first(lvni_data_scratch *scratch, int fd, const char *path, size_t bytes,
                              lvni_data_header *out, lvni_data_image_info *info)
{
    size_t n = 0;
    LVN_TRY(lvni_data_buffer_reserve(&scratch->file, bytes + 1));
    while (n < bytes) {
        const ssize_t got =
            lvni_core_vfs_get()->read(fd, (char *)scratch->file.data + n, bytes - n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            LVN_FAIL(LVN_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        }
        if (got == 0) {
            break;
        }
        n += (size_t)got;
    }
    out->begin = XXH3_64bits(scratch->file.data, n < LVNI_BEGIN_BYTES ? n : LVNI_BEGIN_BYTES);
    return lvni_data_image_probe(scratch, scratch->file.data, n, path, info);
}

/* More is read only where the header needs it, from the start again: rare. */
static lvn_status probe_open(lvni_data_scratch *scratch, int fd, const char *path, size_t bytes,
                             lvni_data_header *out, lvni_data_image_info *info)
{
    for (int i = 0; i < 2 && header_bytes[i] < bytes; i++) {
        const lvn_status s = probe_first(scratch, fd, path, header_bytes[i], out, info);
        if (s == LVN_OK || s == LVN_ERR_MEMORY) {
            return s;
        }
        if (lseek(fd, 0, SEEK_SET) != 0) {
            LVN_FAIL(LVN_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        }
        lvn_clear_error(); /* of a header that was cut off here */
    }
    return probe_first(scratch, fd, path, bytes, out, info);
}

static lvn_status look_at(lvni_data_scratch *scratch, const char *path, lvni_data_header *out,
                          lvni_data_image_info *info)
{
    struct stat st;
    int fd;
    LVN_TRY(lvni_core_regular_open_stat(path, &fd, &st));
    take_stat(&st, out);
    const lvn_status s = probe_open(scratch, fd, path, (size_t)st.st_size, out, info);
    lvni_core_vfs_get()->close(fd);
    return s;
}

lvn_status lvni_data_header_read(lvni_data_scratch *scratch, const char *root, const char *name,
                                 lvni_data_header *out, lvni_data_damage *damage)
{
    char path[PATH_MAX];
    lvni_data_image_info info = {0};
    *out = (lvni_data_header){0};
    if (path_of(root, name, path) >= PATH_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, "the path of %s is too long", name);
    }
    const lvn_status s = look_at(scratch, path, out, &info);
    if (s == LVN_ERR_MEMORY) {
        return s;
    }
    if (s != LVN_OK) { /* damage is a finding here */
        record_damage(damage, root, lvn_last_error()->message);
        const size_t n = out->bytes < LVNI_FOREIGN_BYTES ? (size_t)out->bytes : LVNI_FOREIGN_BYTES;
        const lvni_data_foreign kind = s == LVN_ERR_CORRUPT /* it was read */
                                           ? lvni_data_foreign_of(scratch->file.data, n)
                                           : LVNI_FOREIGN_NONE;
        damage->foreign.n[kind] += !lvni_data_foreign_is_read(kind);
        lvn_clear_error();
        return LVN_OK;
    }
    out->width = info.width;
    out->height = info.height;
    return LVN_OK;
}

/* ---- all of a folder ---- */

enum { THREADS = 16, MANY = 1024, BLOCK = 32 };

typedef struct reading {
    const char *root, *names;
    const size_t *name_at;
    int64_t n;
    lvni_data_header *out;
    atomic_llong next;
    atomic_int failed; /* an lvn_status */
    lvn_error why;     /* of the thread that failed first: its own record ends with it */
} reading;

static lvn_status read_blocks(reading *r)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    if (scratch == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s = LVN_OK;
    lvni_data_damage unused = {0}; /* note_all reports */
    for (int64_t from; (from = atomic_fetch_add(&r->next, BLOCK)) < r->n;) {
        for (int64_t i = from; i < from + BLOCK && i < r->n; i++) {
            LVNI_TRY_DONE(s, lvni_data_header_read(scratch, r->root, r->names + r->name_at[i],
                                                   &r->out[i], &unused));
        }
    }
done:
    forget_damage(&unused);
    return s;
}

static void *read_main(void *argument)
{
    reading *r = argument;
    lvni_core_thread_name("headers", -1);
    const lvn_status s = read_blocks(r);
    int none = LVN_OK;
    if (s != LVN_OK && atomic_compare_exchange_strong(&r->failed, &none, (int)s)) {
        r->why = *lvn_last_error();
    }
    return NULL;
}

/* Damaged ones are read once more, in order: the message must not depend on which thread was
 * first. */
static lvn_status record_all(const reading *r, lvni_data_damage *damage)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    for (int64_t i = 0; i < r->n && scratch != NULL; i++) {
        LVN_TRY(r->out[i].width > 0
                    ? LVN_OK
                    : lvni_data_header_read(scratch, r->root, r->names + r->name_at[i], &r->out[i],
                                            damage));
    }
    return scratch == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

lvn_status lvni_data_headers_read(const char *root, const char *names, const size_t *name_at,
                                  int64_t n, lvni_data_header *out, lvni_data_damage *damage)
{
    reading r = {.root = root, .names = names, .name_at = name_at, .n = n, .out = out};
    pthread_t thread[THREADS - 1];
    int started = 0;
    while (n >= MANY && started < THREADS - 1 &&
           lvni_core_thread_start(&thread[started], read_main, &r) == 0) {
        started++;
    }
    lvn_status s = read_blocks(&r); /* alone where no thread could be started */
    for (int i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
    }
    LVN_TRY(s);
    if (atomic_load(&r.failed) != LVN_OK) {
        lvn_error_adopt(&r.why);
        return (lvn_status)atomic_load(&r.failed);
    }
    return record_all(&r, damage);
}
