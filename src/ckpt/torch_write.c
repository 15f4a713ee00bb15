/* Writes files that torch.load opens with weights_only=True (torch_file.h): a zip archive with
 * stored entries: the pickle of an OrderedDict of tensors, and a storage of its own for each.
 * Called by levin ckpt convert. */
#include "ckpt/safetensors_impl.h"
#include "ckpt/torch_file.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

/* FIRST: entries that are not a tensor's storage. */
enum { FIRST = 3, ALIGN = 64, NAME = 64, LOCAL_BYTES = 30 };

typedef struct entry {
    char name[NAME];
    const char *data;
    size_t bytes;
    uint32_t crc, header; /* header: its offset */
} entry;

typedef struct writer {
    const char *path;
    lvni_ckpt_st_tensor *tensors; /* by name */
    int64_t n_tensors;
    lvni_core_str pickle;
    entry *entries;
    int64_t n_entries;
    uint64_t at; /* bytes so far */
} writer;

/* ---- the pickle ---- */

/* The lowest byte first; what is over 8 bytes is 0. */
static void put_number(lvni_core_str *s, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        lvni_core_str_char(s, (char)(unsigned char)value);
        value >>= 8;
    }
}

static void put_int(lvni_core_str *s, int64_t value)
{
    if (value <= INT32_MAX) {
        lvni_core_str_char(s, 'J');
        put_number(s, (uint64_t)value, 4);
    } else {
        lvni_core_str_append(s, "\x8a\x08");
        put_number(s, (uint64_t)value, 8);
    }
}

static void put_text(lvni_core_str *s, const char *text)
{
    lvni_core_str_char(s, 'X');
    put_number(s, strlen(text), 4);
    lvni_core_str_append(s, text);
}

static void put_tensor(lvni_core_str *s, const lvni_ckpt_st_tensor *t, int64_t key)
{
    static const char *const storages[LVN_DTYPE_COUNT] = {
        [LVN_F32] = "Float", [LVN_F64] = "Double", [LVN_I64] = "Long",      [LVN_I32] = "Int",
        [LVN_U8] = "Byte",   [LVN_BOOL] = "Bool",  [LVN_BF16] = "BFloat16", [LVN_F16] = "Half",
    };
    char name[24];
    int64_t strides[LVN_MAX_NDIM], n = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        strides[i] = n;
        n *= t->shape[i] > 0 ? t->shape[i] : 1; /* as PyTorch has it for empty ones */
    }
    snprintf(name, sizeof name, "%lld", (long long)key);
    lvni_core_str_append(s, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(s, "storage");
    lvni_core_str_printf(s, "ctorch\n%sStorage\n", storages[t->dtype]);
    put_text(s, name);
    put_text(s, "cpu");
    put_int(s, (int64_t)(t->bytes / lvn_dtype_size(t->dtype)));
    lvni_core_str_append(s, "tQ");
    put_int(s, 0);
    lvni_core_str_char(s, '(');
    for (int i = 0; i < t->ndim; i++) {
        put_int(s, t->shape[i]);
    }
    lvni_core_str_append(s, "t(");
    for (int i = 0; i < t->ndim; i++) {
        put_int(s, strides[i]);
    }
    lvni_core_str_append(s, "t\x89"
                            "ccollections\nOrderedDict\n)RtR");
}

static lvn_status make_pickle(writer *w)
{
    lvni_core_str *s = &w->pickle;
    lvni_core_str_append(s, "\x80\x02"
                            "ccollections\nOrderedDict\n)R(");
    for (int64_t i = 0; i < w->n_tensors; i++) {
        put_text(s, w->tensors[i].name);
        put_tensor(s, &w->tensors[i], i);
    }
    lvni_core_str_append(s, "u.");
    return lvni_core_str_status(s);
}

/* ---- the archive ---- */

static lvn_status take_tensors(writer *w, const lvni_ckpt_st_tensor *tensors)
{
    w->tensors = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)w->n_tensors, sizeof *w->tensors);
    w->entries = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)w->n_tensors + FIRST, sizeof *w->entries);
    if (w->tensors == NULL || w->entries == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < w->n_tensors; i++) {
        w->tensors[i] = tensors[i];
        LVN_TRY(lvni_ckpt_st_check_tensor(w->path, &w->tensors[i]));
    }
    lvni_ckpt_st_sort_tensors(w->tensors, w->n_tensors);
    for (int64_t i = 1; i < w->n_tensors; i++) {
        LVN_ARG(strcmp(w->tensors[i - 1].name, w->tensors[i].name) != 0,
                "%s: two tensors are called '%s'", w->path, w->tensors[i].name);
    }
    return LVN_OK;
}

static void add_entry(writer *w, const char *name, const void *data, size_t bytes)
{
    entry *e = &w->entries[w->n_entries++];
    snprintf(e->name, sizeof e->name, "archive/%.32s", name);
    e->data = data;
    e->bytes = bytes;
    for (size_t at = 0; at < bytes;) {
        const size_t n = bytes - at < (size_t)1 << 30 ? bytes - at : (size_t)1 << 30;
        e->crc = (uint32_t)crc32(e->crc, (const Bytef *)data + at, (uInt)n);
        at += n;
    }
}

static void list_entries(writer *w)
{
    char name[NAME / 2] = "";
    add_entry(w, "data.pkl", w->pickle.data, w->pickle.len);
    add_entry(w, "byteorder", "little", strlen("little"));
    for (int64_t i = 0; i < w->n_tensors; i++) {
        snprintf(name, sizeof name, "data/%lld", (long long)i);
        add_entry(w, name, w->tensors[i].data, w->tensors[i].bytes);
    }
    add_entry(w, "version", "3\n", 2);
}

/* Offsets and sizes of more than 32 bits would need records of another kind. */
static lvn_status check_size(const writer *w)
{
    static const uint64_t of_each = 2048; /* headers, padding, its part of the pickle: and more */
    uint64_t all = FIRST * of_each;
    for (int64_t i = 0; i < w->n_tensors; i++) {
        all += w->tensors[i].bytes + strlen(w->tensors[i].name) + of_each;
    }
    if (all > UINT32_MAX || w->n_tensors >= UINT16_MAX - FIRST) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "cannot write %s: %lld tensors with about %llu bytes; up to 4 GiB and 65,000 "
                 "tensors can be written in this format: write a .safetensors file",
                 w->path, (long long)w->n_tensors, (unsigned long long)all);
    }
    return LVN_OK;
}

static lvn_status write_bytes(writer *w, lvni_core_atomic_file *file, const void *data, size_t n)
{
    w->at += n;
    return n == 0 ? LVN_OK : lvni_core_atomic_write(file, data, n);
}

/* Flags, method, time and date (1980-01-01), CRC, sizes, length of the name: as both headers have
 * them. */
static void put_common(lvni_core_str *s, const entry *e)
{
    put_number(s, 0x800, 2); /* names are UTF-8 */
    put_number(s, 0, 4);
    put_number(s, 33, 2);
    put_number(s, e->crc, 4);
    put_number(s, e->bytes, 4);
    put_number(s, e->bytes, 4);
    put_number(s, strlen(e->name), 2);
}

/* The content begins at a multiple of 64 bytes, by an extra field that readers pass over. */
static lvn_status write_entry(writer *w, entry *e, lvni_core_str *s, lvni_core_atomic_file *file)
{
    const size_t before = (size_t)w->at + LOCAL_BYTES + strlen(e->name) + 4;
    const size_t padding = (ALIGN - before % ALIGN) % ALIGN;
    e->header = (uint32_t)w->at;
    lvni_core_str_clear(s);
    lvni_core_str_append(s, "PK\3\4");
    put_number(s, 20, 2);
    put_common(s, e);
    put_number(s, 4 + padding, 2);
    lvni_core_str_append(s, e->name);
    lvni_core_str_append(s, "FB");
    put_number(s, padding, 2);
    for (size_t i = 0; i < padding; i++) {
        lvni_core_str_char(s, 'Z');
    }
    LVN_TRY(lvni_core_str_status(s));
    LVN_TRY(write_bytes(w, file, s->data, s->len));
    return write_bytes(w, file, e->data, e->bytes);
}

static lvn_status write_directory(writer *w, lvni_core_str *s, lvni_core_atomic_file *file)
{
    const uint64_t begin = w->at;
    lvni_core_str_clear(s);
    for (int64_t i = 0; i < w->n_entries; i++) {
        const entry *e = &w->entries[i];
        lvni_core_str_append(s, "PK\1\2");
        put_number(s, 20, 2);
        put_number(s, 20, 2);
        put_common(s, e);
        put_number(s, 0, 12); /* neither extra field nor comment nor attributes */
        put_number(s, e->header, 4);
        lvni_core_str_append(s, e->name);
    }
    const uint64_t bytes = s->len;
    lvni_core_str_append(s, "PK\5\6");
    put_number(s, 0, 4);
    put_number(s, (uint64_t)w->n_entries, 2);
    put_number(s, (uint64_t)w->n_entries, 2);
    put_number(s, bytes, 4);
    put_number(s, begin, 4);
    put_number(s, 0, 2);
    LVN_TRY(lvni_core_str_status(s));
    return write_bytes(w, file, s->data, s->len);
}

static lvn_status write_archive(writer *w)
{
    lvni_core_atomic_file *file = NULL;
    lvni_core_str text = {0};
    LVN_TRY(lvni_core_atomic_open(w->path, &file));
    lvn_status s;
    for (int64_t i = 0; i < w->n_entries; i++) {
        LVNI_TRY_DONE(s, write_entry(w, &w->entries[i], &text, file));
    }
    s = write_directory(w, &text, file);
done:
    lvni_core_str_free(&text);
    if (s != LVN_OK) {
        lvni_core_atomic_abort(file);
        return s;
    }
    return lvni_core_atomic_commit(file);
}

static lvn_status prepare(writer *w, const lvni_ckpt_st_tensor *tensors)
{
    LVN_TRY(take_tensors(w, tensors));
    LVN_TRY(check_size(w));
    LVN_TRY(make_pickle(w));
    list_entries(w);
    return LVN_OK;
}

lvn_status lvni_ckpt_torch_save(const char *path, const lvni_ckpt_st_tensor *tensors,
                                int64_t n_tensors)
{
    LVN_ARG(path != NULL && n_tensors >= 0, "saving tensors needs a path and a list");
    writer w = {.path = path, .n_tensors = n_tensors};
    lvn_status s = prepare(&w, tensors);
    if (s == LVN_OK) {
        s = write_archive(&w);
    }
    lvni_core_str_free(&w.pickle);
    lvni_core_free(w.entries);
    lvni_core_free(w.tensors);
    return s;
}
