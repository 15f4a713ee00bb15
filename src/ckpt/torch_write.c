/* Writes files that torch.load opens with weights_only=True (torch_file.h): a zip archive with
 * stored entries: the pickle of an OrderedDict of tensors, and a storage of its own for each.
 * Called by levin ckpt convert. */
#include "ckpt/safetensors_impl.h"
#include "ckpt/torch_file.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/zip.h"

#include <stdio.h>
#include <string.h>

/* FIRST: entries that are not a tensor's storage. */
enum { FIRST = 3, NAME = 64 };

typedef struct writer {
    const char *path;
    lvni_ckpt_st_tensor *tensors; /* by name */
    int64_t n_tensors;
    const lvni_ckpt_torch_texts *texts; /* NULL: none */
    lvni_core_str pickle;
    lvni_core_zip_content *entries;
    char (*names)[NAME]; /* of entries */
    int64_t n_entries;
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

static void put_texts(lvni_core_str *s, const lvni_ckpt_torch_texts *texts)
{
    put_text(s, texts->name);
    lvni_core_str_append(s, "](");
    for (int64_t i = 0; i < texts->n; i++) {
        put_text(s, texts->text[i]);
    }
    lvni_core_str_char(s, 'e');
}

static lvn_status make_pickle(writer *w)
{
    lvni_core_str *s = &w->pickle;
    lvni_core_str_append(s, "\x80\x02");
    lvni_core_str_append(s, w->texts != NULL ? "}(" : "ccollections\nOrderedDict\n)R(");
    if (w->texts != NULL) {
        put_texts(s, w->texts);
    }
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
    w->names = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)w->n_tensors + FIRST, sizeof *w->names);
    if (w->tensors == NULL || w->entries == NULL || w->names == NULL) {
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
    char *whole = w->names[w->n_entries];
    snprintf(whole, NAME, "archive/%.32s", name);
    w->entries[w->n_entries++] =
        (lvni_core_zip_content){.name = whole, .data = data, .bytes = bytes};
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

static lvn_status prepare(writer *w, const lvni_ckpt_st_tensor *tensors)
{
    LVN_TRY(take_tensors(w, tensors));
    LVN_TRY(make_pickle(w));
    list_entries(w);
    return LVN_OK;
}

lvn_status lvni_ckpt_torch_save_texts(const char *path, const lvni_ckpt_torch_texts *texts,
                                      const lvni_ckpt_st_tensor *tensors, int64_t n_tensors)
{
    LVN_ARG(path != NULL && n_tensors >= 0, "saving tensors needs a path and a list");
    writer w = {.path = path, .n_tensors = n_tensors, .texts = texts};
    lvn_status s = prepare(&w, tensors);
    if (s == LVN_OK) {
        s = lvni_core_zip_write(path, w.entries, w.n_entries, "write a .safetensors file");
    }
    lvni_core_str_free(&w.pickle);
    lvni_core_free(w.names);
    lvni_core_free(w.entries);
    lvni_core_free(w.tensors);
    return s;
}

lvn_status lvni_ckpt_torch_save(const char *path, const lvni_ckpt_st_tensor *tensors,
                                int64_t n_tensors)
{
    return lvni_ckpt_torch_save_texts(path, NULL, tensors, n_tensors);
}
