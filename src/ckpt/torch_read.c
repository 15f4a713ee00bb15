/* Reads the state_dict of a file of torch.save (torch_file.h): which dict of the pickle it is,
 * where its tensors lie in the archive, and their elements. Called by whatever loads weights. */
#include "ckpt/safetensors_impl.h"
#include "ckpt/torch_impl.h"

#include "core/alloc.h"
#include "core/str.h"
#include "core/vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { ALIGN = 64, MOST_COPIES = 8 };

/* Where a tensor's elements are. */
typedef struct source {
    lvni_ckpt_zip_entry *entry;
    size_t offset; /* bytes, in the entry */
    int64_t strides[LVN_MAX_NDIM];
    bool contiguous;
    size_t place; /* of the contiguous copy in the data */
} source;

typedef struct reader {
    const char *path;
    unsigned flags;
    lvni_ckpt_zip zip;
    lvni_ckpt_pickle pickle;
    char *pickle_text;
    const char *folder; /* "archive/" of every entry, with its bytes */
    size_t folder_bytes;
    lvni_core_str storages; /* "archive/data/" */
    lvni_ckpt_st_tensor *tensors;
    source *sources;
    int64_t n_tensors;
    char *names, *data;
} reader;

static const lvni_ckpt_pickle_node *node_at(const reader *r, uint32_t index)
{
    return &r->pickle.nodes[index];
}

static bool is_text(const lvni_ckpt_pickle_node *n, const char *text)
{
    return n->kind == LVNI_PICKLE_TEXT && n->n == strlen(text) &&
           memcmp(n->u.text, text, n->n) == 0;
}

/* "ResNet" of "torchvision.models.resnet\nResNet", with its length. */
static const char *class_name(const lvni_ckpt_pickle_node *n, int *bytes)
{
    const char *end = n->u.text + n->n, *at = end;
    while (at > n->u.text && at[-1] != '\n') {
        at--;
    }
    *bytes = end - at > 200 ? 200 : (int)(end - at);
    return at;
}

/* Made by a function of PyTorch, as sparse, quantised and other tensors are. */
static bool is_other_tensor(const lvni_ckpt_pickle_node *n)
{
    static const char start[] = "_rebuild_";
    int bytes;
    if (n->kind != LVNI_PICKLE_INSTANCE || n->n == 0) {
        return false;
    }
    const char *name = class_name(n, &bytes);
    return bytes >= (int)sizeof start && memcmp(name, start, sizeof start - 1) == 0;
}

/* ---- which dict ---- */

/* The value under a key; without one, any tensor. NULL: there is none. */
static const lvni_ckpt_pickle_node *look_up(const reader *r, const lvni_ckpt_pickle_node *dict,
                                            const char *key)
{
    uint32_t at = dict->u.list.first;
    for (uint32_t i = 0; dict->kind == LVNI_PICKLE_DICT && i + 1 < dict->n; i += 2) {
        const lvni_ckpt_pickle_item *k = &r->pickle.items[at], *v = &r->pickle.items[k->next];
        const lvni_ckpt_pickle_node *value = node_at(r, v->node);
        if (key == NULL ? value->kind == LVNI_PICKLE_TENSOR || is_other_tensor(value)
                        : is_text(node_at(r, k->node), key)) {
            return value;
        }
        at = v->next;
    }
    return NULL;
}

static lvn_status no_state(const reader *r, const lvni_ckpt_pickle_node *top)
{
    lvni_core_str keys = {0};
    int bytes;
    if (top->kind == LVNI_PICKLE_INSTANCE) {
        const char *name = class_name(top, &bytes);
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s holds a whole object of class %.*s, not its weights: save "
                 "model.state_dict() instead",
                 r->path, bytes, name);
    }
    uint32_t at = top->u.list.first;
    for (uint32_t i = 0; top->kind == LVNI_PICKLE_DICT && i + 1 < top->n && i < 16; i += 2) {
        const lvni_ckpt_pickle_item *k = &r->pickle.items[at];
        const lvni_ckpt_pickle_node *key = node_at(r, k->node);
        if (key->kind == LVNI_PICKLE_TEXT) {
            lvni_core_str_printf(&keys, "%s%.*s", keys.len > 0 ? ", " : "",
                                 key->n > 40 ? 40 : (int)key->n, key->u.text);
        }
        at = r->pickle.items[k->next].next;
    }
    const lvn_status s = lvni_core_str_status(&keys);
    if (s == LVN_OK) {
        (void)lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                            "%s has no state_dict: neither tensors by name nor any under "
                            "state_dict, model_state_dict, model or module%s%s; save "
                            "model.state_dict()",
                            r->path, keys.len > 0 ? "; its keys are " : "",
                            lvni_core_str_text(&keys));
    }
    lvni_core_str_free(&keys);
    return s == LVN_OK ? LVN_ERR_UNSUPPORTED : s;
}

static lvn_status find_state(const reader *r, const lvni_ckpt_pickle_node **state)
{
    static const char *const under[] = {"state_dict", "model_state_dict", "model", "module"};
    const lvni_ckpt_pickle_node *top = node_at(r, r->pickle.top), *whole = NULL;
    for (size_t i = 0; i < sizeof under / sizeof *under; i++) {
        const lvni_ckpt_pickle_node *inner = look_up(r, top, under[i]);
        if (inner != NULL && look_up(r, inner, NULL) != NULL) {
            *state = inner;
            return LVN_OK;
        }
        whole = inner != NULL && inner->kind == LVNI_PICKLE_INSTANCE ? inner : whole;
    }
    if (whole == NULL && look_up(r, top, NULL) != NULL) {
        *state = top;
        return LVN_OK;
    }
    return no_state(r, whole != NULL ? whole : top);
}

/* ---- where its tensors are ---- */

static int64_t list_number(const reader *r, const lvni_ckpt_pickle_node *list, int axis)
{
    uint32_t at = list->u.list.first;
    for (int i = 0; i < axis; i++) {
        at = r->pickle.items[at].next;
    }
    return node_at(r, r->pickle.items[at].node)->number;
}

/* Shape, strides and type; they were lists of the same length when the tensor was made. */
static lvn_status read_form(const reader *r, const lvni_ckpt_pickle_node *n, lvni_ckpt_st_tensor *t,
                            source *s)
{
    const lvni_ckpt_pickle_node *shape = node_at(r, n->u.tensor.shape);
    const lvni_ckpt_pickle_node *strides = node_at(r, n->more);
    if (n->dtype == LVNI_PICKLE_DTYPE_FOREIGN) {
        int bytes;
        const char *name = class_name(node_at(r, node_at(r, n->u.tensor.storage)->more), &bytes);
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: tensor '%s' is of type %.*s; levin reads float, double, half, bfloat16, "
                 "long, int, uint8 and bool: convert it",
                 r->path, t->name, bytes, name);
    }
    if (shape->n > LVN_MAX_NDIM || shape->n != strides->n) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: tensor '%s' has %u axes and %u strides; levin has up to "
                 "%d axes",
                 r->path, t->name, (unsigned)shape->n, (unsigned)strides->n, LVN_MAX_NDIM);
    }
    t->dtype = (lvn_dtype)n->dtype;
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
    const lvni_ckpt_pickle_node *storage = node_at(r, n->u.tensor.storage);
    int64_t last, bytes;
    s->contiguous = true;
    if (t->bytes == 0) {
        return LVN_OK;
    }
    s->entry = lvni_ckpt_zip_find(&r->zip, lvni_core_str_text(&r->storages), r->storages.len,
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

static lvn_status check_other(const reader *r, const char *name, const lvni_ckpt_pickle_node *value)
{
    if (is_other_tensor(value)) {
        int bytes;
        const char *function = class_name(value, &bytes);
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: tensor '%s' is made by %.*s (sparse, quantised or of another type); levin "
                 "reads plain tensors: convert it",
                 r->path, name, bytes, function);
    }
    return LVN_OK;
}

static lvn_status read_entries(reader *r, const lvni_ckpt_pickle_node *state)
{
    char *name = r->names;
    uint32_t at = state->u.list.first;
    for (uint32_t i = 0; i + 1 < state->n; i += 2) {
        const lvni_ckpt_pickle_item *k = &r->pickle.items[at], *v = &r->pickle.items[k->next];
        const lvni_ckpt_pickle_node *key = node_at(r, k->node), *value = node_at(r, v->node);
        at = v->next;
        if (key->kind != LVNI_PICKLE_TEXT) {
            continue;
        }
        LVN_TRY(read_name(r, key, name));
        if (value->kind != LVNI_PICKLE_TENSOR) {
            LVN_TRY(check_other(r, name, value));
            continue;
        }
        lvni_ckpt_st_tensor *t = &r->tensors[r->n_tensors];
        source *s = &r->sources[r->n_tensors];
        t->name = name;
        LVN_TRY(read_form(r, value, t, s));
        LVN_TRY(locate(r, value, t, s));
        r->n_tensors++;
        name += key->n + 1;
    }
    return LVN_OK;
}

enum { MOST_NAME = 1023 }; /* bytes: one text may be the name of many */

static lvn_status read_state(reader *r, const lvni_ckpt_pickle_node *state)
{
    size_t bytes = 1;
    uint32_t at = state->u.list.first;
    for (uint32_t i = 0; i < state->n; i++, at = r->pickle.items[at].next) {
        const lvni_ckpt_pickle_node *key = node_at(r, r->pickle.items[at].node);
        if (i % 2 == 0 && key->kind == LVNI_PICKLE_TEXT && key->n > MOST_NAME) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s: the name of a tensor has %u bytes, at most %d", r->path,
                     (unsigned)key->n, (int)MOST_NAME);
        }
        bytes += i % 2 == 0 && key->kind == LVNI_PICKLE_TEXT ? (size_t)key->n + 1 : 0;
    }
    r->names = lvni_core_alloc(LVNI_TAG_CKPT, bytes);
    r->tensors = lvni_core_calloc(LVNI_TAG_CKPT, state->n / 2, sizeof *r->tensors);
    r->sources = lvni_core_calloc(LVNI_TAG_CKPT, state->n / 2, sizeof *r->sources);
    if (r->names == NULL || r->tensors == NULL || r->sources == NULL) {
        return LVN_ERR_MEMORY;
    }
    return read_entries(r, state);
}

/* ---- their elements ---- */

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Places for all storages in use and for contiguous copies. */
static lvn_status place(reader *r, size_t *all)
{
    uint64_t stored = 0, copied = 0;
    *all = 0;
    for (int64_t i = 0; i < r->n_tensors; i++) {
        source *s = &r->sources[i];
        if (s->entry != NULL && s->entry->place == 0) {
            if (s->entry->bytes > r->zip.file_bytes - stored) {
                LVN_FAIL(LVN_ERR_CORRUPT, "%s: its storages are larger than the file", r->path);
            }
            stored += s->entry->bytes;
            s->entry->place = *all + 1;
            *all += padded((size_t)s->entry->bytes);
        }
        if (!s->contiguous) {
            if (r->tensors[i].bytes > MOST_COPIES * r->zip.file_bytes - copied) {
                LVN_FAIL(LVN_ERR_UNSUPPORTED,
                         "%s: its views need more than %d times the file in memory; save tensors "
                         "that are contiguous",
                         r->path, MOST_COPIES);
            }
            copied += r->tensors[i].bytes;
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
        const lvni_ckpt_zip_entry *e = &r->zip.entries[i];
        if (e->place > 0) {
            LVN_TRY(lvni_ckpt_zip_read(&r->zip, e, (r->flags & LVNI_ST_VERIFY) != 0,
                                       r->data + e->place - 1));
        }
    }
    for (int64_t i = 0; i < r->n_tensors; i++) {
        const source *s = &r->sources[i];
        const char *from = s->entry == NULL ? r->data : r->data + (s->entry->place - 1) + s->offset;
        r->tensors[i].data = s->contiguous ? from : r->data + s->place;
        if (!s->contiguous) {
            copy_strided(&r->tensors[i], s, from, r->data + s->place);
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
    const lvni_ckpt_zip_entry *found = NULL;
    for (int64_t i = 0; i < r->zip.n_entries && found == NULL; i++) {
        const lvni_ckpt_zip_entry *e = &r->zip.entries[i];
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
    r->pickle_text = lvni_core_alloc(LVNI_TAG_CKPT, (size_t)found->bytes);
    if (r->pickle_text == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(lvni_ckpt_zip_read(&r->zip, found, (r->flags & LVNI_ST_VERIFY) != 0, r->pickle_text));
    return lvni_ckpt_pickle_parse(r->path, r->pickle_text, (size_t)found->bytes, &r->pickle);
}

static lvn_status check_byte_order(const reader *r)
{
    char text[8] = {0};
    const lvni_ckpt_zip_entry *e =
        lvni_ckpt_zip_find(&r->zip, r->folder, r->folder_bytes, "byteorder", strlen("byteorder"));
    if (e == NULL) { /* before PyTorch 2.1: that of the machine */
        return LVN_OK;
    }
    LVN_TRY(e->bytes < sizeof text ? lvni_ckpt_zip_read(&r->zip, e, false, text) : LVN_OK);
    if (strcmp(text, "little") != 0) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s has its numbers in byte order '%s'; levin reads little: save it on a machine "
                 "with that order",
                 r->path, text);
    }
    return LVN_OK;
}

static lvn_status read_archive(reader *r)
{
    const lvni_ckpt_pickle_node *state = NULL;
    LVN_TRY(read_pickle(r));
    LVN_TRY(check_byte_order(r));
    lvni_core_str_append_n(&r->storages, r->folder, r->folder_bytes);
    lvni_core_str_append(&r->storages, "data/");
    LVN_TRY(lvni_core_str_status(&r->storages));
    LVN_TRY(find_state(r, &state));
    LVN_TRY(read_state(r, state));
    return read_data(r);
}

/* What a file begins with; unread bytes are 0. */
enum { START_BYTES = 16 };

static bool is_zip(const char *start)
{
    return memcmp(start, "PK\3\4", 4) == 0;
}

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
    struct stat info;
    memset(start, 0, START_BYTES);
    *fd = lvni_core_vfs_get()->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (*fd < 0 || fstat(*fd, &info) != 0) {
        const int error = errno;
        LVN_FAIL(error == ENOENT ? LVN_ERR_NOT_FOUND : LVN_ERR_IO, "%s: cannot open: %s", path,
                 strerror(error));
    }
    if (!S_ISREG(info.st_mode)) {
        LVN_FAIL(LVN_ERR_IO, "%s: cannot read: it is not a file", path);
    }
    *bytes = (uint64_t)info.st_size;
    if (lvni_core_vfs_get()->read(*fd, start, START_BYTES) < 0) {
        LVN_FAIL(LVN_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    return LVN_OK;
}

static lvn_status read_file(reader *r, int fd, uint64_t bytes, const char *start)
{
    if (is_old(start)) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s is in the format of torch.save before PyTorch 1.6; save it again: "
                 "torch.save(torch.load(\"%s\", map_location=\"cpu\", weights_only=True), "
                 "\"new.pt\")",
                 r->path, r->path);
    }
    if (!is_zip(start)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s does not begin as a file of torch.save", r->path);
    }
    LVN_TRY(lvni_ckpt_zip_open(r->path, fd, bytes, &r->zip));
    return read_archive(r);
}

lvn_status lvni_ckpt_torch_open(const char *path, unsigned flags, lvni_ckpt_st_file **out)
{
    *out = NULL;
    LVN_ARG(path != NULL, "reading tensors needs a path");
    reader r = {.path = path, .flags = flags};
    int fd;
    uint64_t bytes;
    char start[START_BYTES];
    lvn_status s = open_file(path, &fd, &bytes, start);
    if (s == LVN_OK) {
        s = read_file(&r, fd, bytes, start);
    }
    if (fd >= 0) {
        lvni_core_vfs_get()->close(fd); /* nothing was written: a failure loses nothing */
    }
    if (s == LVN_OK) {
        s = lvni_ckpt_st_adopt(path, r.tensors, r.n_tensors, r.names, r.data, out);
    } else {
        lvni_core_free(r.tensors);
        lvni_core_free(r.names);
        lvni_core_free(r.data);
    }
    lvni_core_free(r.sources);
    lvni_core_str_free(&r.storages);
    lvni_ckpt_pickle_free(&r.pickle);
    lvni_core_free(r.pickle_text);
    lvni_ckpt_zip_close(&r.zip);
    return s;
}

lvn_status lvni_ckpt_tensors_open(const char *path, unsigned flags, lvni_ckpt_st_file **out)
{
    int fd;
    uint64_t bytes;
    char start[START_BYTES];
    *out = NULL;
    const lvn_status s = open_file(path, &fd, &bytes, start);
    if (fd >= 0) {
        lvni_core_vfs_get()->close(fd);
    }
    LVN_TRY(s);
    return is_zip(start) || is_old(start) ? lvni_ckpt_torch_open(path, flags, out)
                                          : lvni_ckpt_st_open(path, flags, out);
}
