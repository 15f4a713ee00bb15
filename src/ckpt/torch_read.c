/* Reads the state_dict of a file of torch.save (torch_file.h): which dict of the pickle it is,
 * where its tensors lie in the archive, and their elements. Called by whatever loads weights. */
#include "ckpt/safetensors_impl.h"
#include "ckpt/torch_impl.h"

#include "core/alloc.h"
#include "core/str.h"
#include "core/vfs.h"
#include "core/zip.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { ALIGN = 64, MOST_COPIES = 8 };

/* Where a tensor's elements are. */
typedef struct source {
    lvni_core_zip_entry *entry;
    size_t offset; /* bytes, in the entry */
    int64_t strides[LVN_MAX_NDIM];
    bool contiguous, negated; /* negated: the elements are the negative of those in the entry */
    size_t place;             /* of a copy in the data: of what is strided or negated */
} source;

typedef struct reader {
    const char *path;
    unsigned flags;
    lvni_core_zip zip;
    lvni_ckpt_pickle pickle;
    char *pickle_text;
    size_t pickle_bytes;
    const char *folder; /* "archive/" of every entry, with its bytes */
    size_t folder_bytes;
    lvni_core_str storages; /* "archive/data/" */
    lvni_ckpt_st_tensor *tensors;
    source *sources;
    lvni_ckpt_st_other *others;
    int64_t n_tensors, n_others;
    char *names, *data;
} reader;

/* ---- where its tensors are ---- */

static int64_t list_number(const reader *r, const lvni_ckpt_pickle_node *list, int axis)
{
    uint32_t at = list->u.list.first;
    for (int i = 0; i < axis; i++) {
        at = r->pickle.items[at].next;
    }
    return lvni_ckpt_pickle_at(&r->pickle, r->pickle.items[at].node)->number;
}

/* Shape, strides and type; they were lists of the same length when the tensor was made. */
static lvn_status read_form(const reader *r, const lvni_ckpt_pickle_node *n, lvni_ckpt_st_tensor *t,
                            source *s)
{
    const lvni_ckpt_pickle_node *shape = lvni_ckpt_pickle_at(&r->pickle, n->u.tensor.shape);
    const lvni_ckpt_pickle_node *strides = lvni_ckpt_pickle_at(&r->pickle, n->more);
    t->dtype = (lvn_dtype)n->dtype;
    s->negated = (n->known & LVNI_PICKLE_NEGATED) != 0;
    t->ndim = (int)shape->n;
    for (int i = 0; i < t->ndim; i++) {
        t->shape[i] = list_number(r, shape, i);
        s->strides[i] = list_number(r, strides, i);
        if (s->strides[i] < 0) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: axis %d of tensor '%s' has a negative stride", r->path,
                     i, t->name);
        }
    }
    if (!lvni_ckpt_st_tensor_bytes(lvn_dtype_size(t->dtype), t->ndim, t->shape, &t->bytes)) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: the shape of tensor '%s' is negative or too large for any file", r->path,
                 t->name);
    }
    return LVN_OK;
}

/* The offset of the last element; false: too large. Also whether the elements lie in order. */
static bool find_last(const lvni_ckpt_st_tensor *t, source *s, int64_t offset, int64_t *last)
{
    int64_t in_order = 1;
    *last = offset;
    s->contiguous = true;
    for (int i = t->ndim - 1; i >= 0; i--) {
        int64_t step;
        if (__builtin_mul_overflow(t->shape[i] - 1, s->strides[i], &step) ||
            __builtin_add_overflow(*last, step, last)) {
            return false;
        }
        s->contiguous = s->contiguous && (t->shape[i] == 1 || s->strides[i] == in_order);
        in_order *= t->shape[i];
    }
    return true;
}

static lvn_status locate(const reader *r, const lvni_ckpt_pickle_node *n, lvni_ckpt_st_tensor *t,
                         source *s)
{
    const lvni_ckpt_pickle_node *storage = lvni_ckpt_pickle_at(&r->pickle, n->u.tensor.storage);
    int64_t last, bytes;
    s->contiguous = true;
    if (t->bytes == 0) {
        return LVN_OK;
    }
    s->entry = lvni_core_zip_find(&r->zip, lvni_core_str_text(&r->storages), r->storages.len,
                                  storage->u.text, storage->n);
    if (s->entry == NULL) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the archive has no storage '%.*s' for tensor '%s'", r->path,
                 storage->n > 40 ? 40 : (int)storage->n, storage->u.text, t->name);
    }
    const int64_t element = (int64_t)lvn_dtype_size(t->dtype);
    if (n->number < 0 || !find_last(t, s, n->number, &last) || last == INT64_MAX ||
        __builtin_mul_overflow(last + 1, element, &bytes) || (uint64_t)bytes > s->entry->bytes) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: tensor '%s' reaches beyond its storage '%.*s' of %llu bytes: the file is "
                 "damaged",
                 r->path, t->name, storage->n > 40 ? 40 : (int)storage->n, storage->u.text,
                 (unsigned long long)s->entry->bytes);
    }
    s->offset = (size_t)(n->number * element);
    return LVN_OK;
}

static lvn_status read_name(const reader *r, const lvni_ckpt_pickle_node *key, char *to)
{
    memcpy(to, key->u.text, key->n);
    to[key->n] = '\0';
    if (key->n == 0 || strlen(to) != key->n || !lvni_core_utf8_valid(to)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the tensor name '%s' is empty or not UTF-8", r->path, to);
    }
    return LVN_OK;
}

/* A tensor of a type or form that levin does not have; what: which one. */
static bool is_other(const reader *r, const lvni_ckpt_pickle_node *value, char what[64])
{
    int bytes;
    if (lvni_ckpt_torch_is_other(value)) {
        const char *function = lvni_ckpt_torch_class(value, &bytes);
        snprintf(what, 64, "made by %.*s", bytes, function);
        return true;
    }
    if (value->kind != LVNI_PICKLE_TENSOR) {
        return false;
    }
    const unsigned axes = (unsigned)lvni_ckpt_pickle_at(&r->pickle, value->u.tensor.shape)->n;
    if (value->dtype == LVNI_PICKLE_DTYPE_FOREIGN) {
        const lvni_ckpt_pickle_node *type = lvni_ckpt_pickle_at(
            &r->pickle, lvni_ckpt_pickle_at(&r->pickle, value->u.tensor.storage)->more);
        const char *name = lvni_ckpt_torch_class(type, &bytes);
        snprintf(what, 64, "%u ax%s, %.*s", axes, lvni_core_plural(axes, "is", "es"), bytes, name);
        return true;
    }
    snprintf(what, 64, "%u ax%s, type %s%s", axes, lvni_core_plural(axes, "is", "es"),
             lvn_dtype_name((lvn_dtype)value->dtype),
             axes > LVN_MAX_NDIM ? "" : ", with metadata that are not read");
    const bool no_negative = value->dtype == LVN_BOOL && (value->known & LVNI_PICKLE_NEGATED) != 0;
    return axes > LVN_MAX_NDIM || no_negative || (value->known & LVNI_PICKLE_UNKNOWN_FORM) != 0;
}

static lvn_status read_entry(reader *r, const lvni_ckpt_pickle_node *value, const char *name)
{
    char what[64];
    if (is_other(r, value, what)) {
        lvni_ckpt_st_other *other = &r->others[r->n_others++];
        other->name = name;
        memcpy(other->what, what, sizeof other->what);
        return LVN_OK;
    }
    lvni_ckpt_st_tensor *t = &r->tensors[r->n_tensors];
    source *s = &r->sources[r->n_tensors];
    t->name = name;
    LVN_TRY(read_form(r, value, t, s));
    LVN_TRY(locate(r, value, t, s));
    r->n_tensors++;
    return LVN_OK;
}

static lvn_status read_entries(reader *r, const lvni_ckpt_pickle_node *state)
{
    char *name = r->names;
    uint32_t at = state->u.list.first;
    for (uint32_t i = 0; i + 1 < state->n; i += 2) {
        const lvni_ckpt_pickle_item *k = &r->pickle.items[at], *v = &r->pickle.items[k->next];
        const lvni_ckpt_pickle_node *key = lvni_ckpt_pickle_at(&r->pickle, k->node),
                                    *value = lvni_ckpt_pickle_at(&r->pickle, v->node);
        at = v->next;
        if (key->kind == LVNI_PICKLE_TEXT && lvni_ckpt_torch_is_tensor(value)) {
            LVN_TRY(read_name(r, key, name));
            LVN_TRY(read_entry(r, value, name));
            name += key->n + 1;
        }
    }
    return LVN_OK;
}

enum { MOST_NAME = 1023 }; /* bytes: a damaged length is found, and messages stay short */

/* Bytes of all names, and how many tensors there are of either kind. */
static lvn_status count_entries(const reader *r, const lvni_ckpt_pickle_node *state, size_t *bytes,
                                size_t *tensors, size_t *others)
{
    uint32_t at = state->u.list.first;
    *bytes = *tensors = *others = 0;
    for (uint32_t i = 0; i + 1 < state->n; i += 2) {
        const lvni_ckpt_pickle_item *k = &r->pickle.items[at], *v = &r->pickle.items[k->next];
        const lvni_ckpt_pickle_node *key = lvni_ckpt_pickle_at(&r->pickle, k->node),
                                    *value = lvni_ckpt_pickle_at(&r->pickle, v->node);
        char what[64];
        at = v->next;
        if (key->kind != LVNI_PICKLE_TEXT || !lvni_ckpt_torch_is_tensor(value)) {
            continue;
        }
        if (key->n > MOST_NAME) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: the name of a tensor has %u bytes, at most %d", r->path,
                     (unsigned)key->n, (int)MOST_NAME);
        }
        *bytes += (size_t)key->n + 1;
        const bool other = is_other(r, value, what);
        *others += other;
        *tensors += !other;
    }
    return LVN_OK;
}

static lvn_status read_state(reader *r, const lvni_ckpt_pickle_node *state)
{
    size_t bytes, tensors, others;
    LVN_TRY(count_entries(r, state, &bytes, &tensors, &others));
    if (bytes > r->pickle_bytes) { /* a text may be used again, but not as another tensor's name */
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: its tensors have names of %zu bytes in a pickle of %zu",
                 r->path, bytes, r->pickle_bytes);
    }
    r->names = lvni_core_alloc(LVNI_TAG_CKPT, bytes + 1);
    r->tensors = lvni_core_calloc(LVNI_TAG_CKPT, tensors, sizeof *r->tensors);
    r->sources = lvni_core_calloc(LVNI_TAG_CKPT, tensors, sizeof *r->sources);
    r->others = lvni_core_calloc(LVNI_TAG_CKPT, others, sizeof *r->others);
    if (r->names == NULL || r->tensors == NULL || r->sources == NULL || r->others == NULL) {
        return LVN_ERR_MEMORY;
    }
    return read_entries(r, state);
}

/* ---- their elements ---- */

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool is_copied(const source *s)
{
    return !s->contiguous || s->negated;
}

/* Places for all storages in use and for copies. Many tensors may share a storage, and a view may
 * be larger than it: what all of them would take is bounded by the file. */
static lvn_status place(reader *r, size_t *all)
{
    uint64_t stored = 0, shown = 0;
    *all = 0;
    for (int64_t i = 0; i < r->n_tensors; i++) {
        source *s = &r->sources[i];
        if (r->tensors[i].bytes > MOST_COPIES * r->zip.file_bytes - shown) {
            LVN_FAIL(LVN_ERR_UNSUPPORTED,
                     "%s: its tensors, views of the same storages, need more than %d times the "
                     "file; save each with storage of its own: tensor.clone()",
                     r->path, MOST_COPIES);
        }
        shown += r->tensors[i].bytes;
        if (s->entry != NULL && s->entry->place == 0) {
            if (s->entry->bytes > r->zip.file_bytes - stored) {
                LVN_FAIL(LVN_ERR_CORRUPT, "%s: its storages are larger than the file", r->path);
            }
            stored += s->entry->bytes;
            s->entry->place = *all + 1;
            *all += padded((size_t)s->entry->bytes);
        }
        if (is_copied(s)) {
            s->place = *all;
            *all += padded(r->tensors[i].bytes);
        }
    }
    return LVN_OK;
}

/* Elements of `size` bytes from where the strides point to, in order. */
static void copy_strided(const lvni_ckpt_st_tensor *t, const source *s, const char *from, char *to)
{
    const size_t size = lvn_dtype_size(t->dtype);
    int64_t at[LVN_MAX_NDIM] = {0};
    for (size_t done = 0; done < t->bytes; done += size) {
        memcpy(to + done, from, size);
        for (int axis = t->ndim - 1; axis >= 0; axis--) {
            from += (size_t)s->strides[axis] * size;
            if (++at[axis] < t->shape[axis]) {
                break;
            }
            from -= (size_t)at[axis] * (size_t)s->strides[axis] * size;
            at[axis] = 0;
        }
    }
}

/* The sign bit of floating-point numbers is the highest of their last byte; integers wrap. */
static void negate(const lvni_ckpt_st_tensor *t, char *data)
{
    const size_t size = lvn_dtype_size(t->dtype);
    const bool whole = t->dtype == LVN_I64 || t->dtype == LVN_I32 || t->dtype == LVN_U8;
    for (size_t at = 0; at < t->bytes; at += size) {
        unsigned carry = 1;
        for (size_t k = 0; k < size && whole; k++) {
            carry += (unsigned char)~data[at + k];
            data[at + k] = (char)carry;
            carry >>= 8;
        }
        if (!whole) {
            data[at + size - 1] = (char)(data[at + size - 1] ^ 0x80);
        }
    }
}

/* As torch.save writes it. */
static lvn_status read_stored(const reader *r, const lvni_core_zip_entry *e, bool verify, char *to)
{
    if (e->method != 0) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: '%.*s' is compressed; levin reads archives as torch.save writes them, not "
                 "compressed",
                 r->path, (int)e->name_bytes, e->name);
    }
    return lvni_core_zip_read(&r->zip, e, verify, to);
}

static lvn_status read_data(reader *r)
{
    size_t all;
    LVN_TRY(place(r, &all));
    if ((r->flags & LVNI_ST_HEADER_ONLY) != 0) {
        return LVN_OK;
    }
    r->data = lvni_core_alloc(LVNI_TAG_CKPT, all);
    if (r->data == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < r->zip.n_entries; i++) {
        const lvni_core_zip_entry *e = &r->zip.entries[i];
        if (e->place > 0) {
            LVN_TRY(read_stored(r, e, (r->flags & LVNI_ST_VERIFY) != 0, r->data + e->place - 1));
        }
    }
    for (int64_t i = 0; i < r->n_tensors; i++) {
        const source *s = &r->sources[i];
        const char *from = s->entry == NULL ? r->data : r->data + (s->entry->place - 1) + s->offset;
        r->tensors[i].data = is_copied(s) ? r->data + s->place : from;
        if (is_copied(s)) {
            copy_strided(&r->tensors[i], s, from, r->data + s->place);
        }
        if (s->negated) {
            negate(&r->tensors[i], r->data + s->place);
        }
    }
    return LVN_OK;
}

/* ---- the file ---- */

/* The pickle, "archive/data.pkl"; the folder is called as the file was when it was saved. */
static lvn_status read_pickle(reader *r)
{
    static const char name[] = "data.pkl";
    const size_t n = sizeof name - 1;
    const lvni_core_zip_entry *found = NULL;
    for (int64_t i = 0; i < r->zip.n_entries && found == NULL; i++) {
        const lvni_core_zip_entry *e = &r->zip.entries[i];
        if (e->name_bytes > n && memcmp(e->name + e->name_bytes - n, name, n) == 0 &&
            memchr(e->name, '/', e->name_bytes) == e->name + e->name_bytes - n - 1) {
            found = e;
        }
    }
    if (found == NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s is a zip archive without data.pkl: it was not written by torch.save", r->path);
    }
    if (found->bytes > LVNI_PICKLE_MAX) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: its pickle has %llu bytes; at most %d (64 MiB) are read: save the state_dict "
                 "alone",
                 r->path, (unsigned long long)found->bytes, LVNI_PICKLE_MAX);
    }
    if (found->bytes > r->zip.file_bytes) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: its pickle is larger than the file", r->path);
    }
    r->folder = found->name;
    r->folder_bytes = found->name_bytes - n;
    r->pickle_bytes = (size_t)found->bytes;
    r->pickle_text = lvni_core_alloc(LVNI_TAG_CKPT, (size_t)found->bytes);
    if (r->pickle_text == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(read_stored(r, found, (r->flags & LVNI_ST_VERIFY) != 0, r->pickle_text));
    return lvni_ckpt_pickle_parse(r->path, r->pickle_text, (size_t)found->bytes, &r->pickle);
}

static lvn_status check_byte_order(const reader *r)
{
    char text[8] = {0};
    const lvni_core_zip_entry *e =
        lvni_core_zip_find(&r->zip, r->folder, r->folder_bytes, "byteorder", strlen("byteorder"));
    if (e == NULL) { /* before PyTorch 2.1: that of the machine */
        return LVN_OK;
    }
    LVN_TRY(e->bytes < sizeof text ? read_stored(r, e, false, text) : LVN_OK);
    if (strcmp(text, "little") != 0) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s has its numbers in byte order '%s'; levin reads little: save it on a machine "
                 "with that order",
                 r->path, text);
    }
    return LVN_OK;
}

static lvn_status read_archive(reader *r, const char *key, const char **inner)
{
    const lvni_ckpt_pickle_node *state = NULL;
    LVN_TRY(read_pickle(r));
    LVN_TRY(check_byte_order(r));
    lvni_core_str_append_n(&r->storages, r->folder, r->folder_bytes);
    lvni_core_str_append(&r->storages, "data/");
    LVN_TRY(lvni_core_str_status(&r->storages));
    LVN_TRY(lvni_ckpt_torch_state(r->path, &r->pickle, key, &state, inner));
    LVN_TRY(read_state(r, state));
    return read_data(r);
}

/* What a file begins with; unread bytes are 0. */
enum { START_BYTES = 16 };

/* The number that began every file before PyTorch 1.6: behind the protocol, of 4 and 5 also behind
 * a frame. */
static bool is_old(const char *start)
{
    static const char magic[] = "\x8a\x0a\x6c\xfc";
    return start[0] == '\x80' && (memcmp(start + 2, magic, 4) == 0 ||
                                  (start[2] == '\x95' && memcmp(start + 11, magic, 4) == 0));
}

static lvn_status open_file(const char *path, int *fd, uint64_t *bytes, char start[START_BYTES])
{
    memset(start, 0, START_BYTES);
    LVN_TRY(lvni_core_regular_open(path, fd, bytes));
    if (lvni_core_vfs_get()->read(*fd, start, START_BYTES) < 0) {
        LVN_FAIL(LVN_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    return LVN_OK;
}

bool lvni_ckpt_is_torch(const char *path)
{
    int fd;
    uint64_t bytes;
    char start[START_BYTES];
    const bool opened = open_file(path, &fd, &bytes, start) == LVN_OK;
    if (!opened) {
        lvn_clear_error();
        return false;
    }
    lvni_core_vfs_get()->close(fd);
    return lvni_core_zip_is(start, START_BYTES) || is_old(start);
}

static lvn_status read_file(reader *r, int fd, uint64_t bytes, const char *start, const char *key,
                            const char **inner)
{
    if (is_old(start)) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s is in the format of torch.save before PyTorch 1.6; save it again: "
                 "torch.save(torch.load(\"%s\", map_location=\"cpu\", weights_only=True), "
                 "\"new.pt\")",
                 r->path, r->path);
    }
    if (!lvni_core_zip_is(start, START_BYTES)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s does not begin as a file of torch.save", r->path);
    }
    LVN_TRY(lvni_core_zip_open(r->path, fd, bytes, &r->zip));
    return read_archive(r, key, inner);
}

lvn_status lvni_ckpt_torch_open(const char *path, unsigned flags, const char *key,
                                const char **inner, lvni_ckpt_st_file **out)
{
    *out = NULL;
    *inner = NULL;
    LVN_ARG(path != NULL, "reading tensors needs a path");
    reader r = {.path = path, .flags = flags};
    int fd = -1;
    uint64_t bytes;
    char start[START_BYTES];
    lvn_status s = open_file(path, &fd, &bytes, start);
    if (s == LVN_OK) {
        s = read_file(&r, fd, bytes, start, key, inner);
    }
    if (fd >= 0) {
        lvni_core_vfs_get()->close(fd); /* nothing was written: a failure loses nothing */
    }
    lvni_ckpt_st_content content = {.tensors = r.tensors,
                                    .n_tensors = r.n_tensors,
                                    .others = r.others,
                                    .n_others = r.n_others,
                                    .names = r.names,
                                    .data = r.data};
    if (s == LVN_OK) {
        s = lvni_ckpt_st_adopt(path, &content, out);
    } else {
        lvni_ckpt_st_content_free(&content);
    }
    lvni_core_free(r.sources);
    lvni_core_str_free(&r.storages);
    lvni_ckpt_pickle_free(&r.pickle);
    lvni_core_free(r.pickle_text);
    lvni_core_zip_close(&r.zip);
    return s;
}

lvn_status lvni_ckpt_tensors_open(const char *path, unsigned flags, const char *key,
                                  const char **inner, lvni_ckpt_st_file **out)
{
    int fd = -1;
    uint64_t bytes;
    char start[START_BYTES];
    *out = NULL;
    *inner = key;
    const lvn_status s = open_file(path, &fd, &bytes, start);
    if (fd >= 0) {
        lvni_core_vfs_get()->close(fd);
    }
    LVN_TRY(s);
    if (lvni_core_zip_is(start, START_BYTES) || is_old(start)) {
        return lvni_ckpt_torch_open(path, flags, key, inner, out);
    }
    return lvni_ckpt_is_index(path) ? lvni_ckpt_sharded_open(path, flags, out)
                                    : lvni_ckpt_st_open(path, flags, out);
}
