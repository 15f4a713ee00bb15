/* Writes safetensors files (safetensors.h): checks the entries, lays out the data, makes the
 * header, hands all of it to an atomic file. Called by checkpoint.c and by export. First what
 * writer and reader must agree on: checksums, orders and sizes. */
#include "ckpt/safetensors_impl.h"

#include "core/alloc.h"
#include "core/str.h"
#include "core/thread.h"
#include "core/vfs.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- shared with the reader ---- */

const char *const lvni_ckpt_st_dtype_names[LVN_DTYPE_COUNT] = {
    [LVN_F32] = "F32", [LVN_F64] = "F64",   [LVN_I64] = "I64",   [LVN_I32] = "I32",
    [LVN_U8] = "U8",   [LVN_BOOL] = "BOOL", [LVN_BF16] = "BF16", [LVN_F16] = "F16",
};

static void to_hex(uint64_t value, char hex[LVNI_ST_HEX])
{
    for (int i = 15; i >= 0; i--, value >>= 4) {
        hex[i] = "0123456789abcdef"[value & 15];
    }
    hex[16] = '\0';
}

void lvni_ckpt_st_checksum(const void *data, size_t bytes, char hex[LVNI_ST_HEX])
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (const char *at = data; bytes > 0;) {
        const size_t n = bytes < LVNI_PACE_BYTES ? bytes : LVNI_PACE_BYTES;
        XXH3_64bits_update(&state, at, n);
        lvni_core_thread_worked(n);
        at += n;
        bytes -= n;
    }
    to_hex(XXH3_64bits_digest(&state), hex);
}

static void add_text(XXH3_state_t *state, const char *text)
{
    /* the zero keeps "ab","c" and "a","bc" apart */
    XXH3_64bits_update(state, text, strlen(text) + 1);
}

static void add_number(XXH3_state_t *state, int64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)((uint64_t)value >> (8 * i));
    }
    XXH3_64bits_update(state, bytes, sizeof bytes);
}

/* Over the meaning of the header and not over its text: a program that writes the same JSON in
 * another way breaks nothing. */
void lvni_ckpt_st_header_checksum(const lvni_ckpt_st_tensor *tensors, int64_t n_tensors,
                                  const lvni_ckpt_st_meta *meta, int64_t n_meta,
                                  char hex[LVNI_ST_HEX])
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (int64_t i = 0; i < n_meta; i++) {
        if (strcmp(meta[i].key, LVNI_ST_HEADER_CHECKSUM) != 0) {
            add_text(&state, meta[i].key);
            add_text(&state, meta[i].value);
        }
    }
    for (int64_t i = 0; i < n_tensors; i++) {
        add_text(&state, tensors[i].name);
        add_text(&state, lvni_ckpt_st_dtype_names[tensors[i].dtype]);
        add_number(&state, tensors[i].ndim);
        for (int axis = 0; axis < tensors[i].ndim; axis++) {
            add_number(&state, tensors[i].shape[axis]);
        }
    }
    to_hex(XXH3_64bits_digest(&state), hex);
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const lvni_ckpt_st_tensor *)a)->name, ((const lvni_ckpt_st_tensor *)b)->name);
}

static int compare_meta(const void *a, const void *b)
{
    return strcmp(((const lvni_ckpt_st_meta *)a)->key, ((const lvni_ckpt_st_meta *)b)->key);
}

void lvni_ckpt_st_sort_tensors(lvni_ckpt_st_tensor *tensors, int64_t n)
{
    if (n > 1) {
        qsort(tensors, (size_t)n, sizeof *tensors, compare_tensors);
    }
}

static int compare_others(const void *a, const void *b)
{
    return strcmp(((const lvni_ckpt_st_other *)a)->name, ((const lvni_ckpt_st_other *)b)->name);
}

void lvni_ckpt_st_sort_others(lvni_ckpt_st_other *others, int64_t n)
{
    if (n > 1) {
        qsort(others, (size_t)n, sizeof *others, compare_others);
    }
}

void lvni_ckpt_st_sort_meta(lvni_ckpt_st_meta *meta, int64_t n)
{
    if (n > 1) {
        qsort(meta, (size_t)n, sizeof *meta, compare_meta);
    }
}

bool lvni_ckpt_st_tensor_bytes(size_t element, int ndim, const int64_t *shape, size_t *bytes)
{
    size_t product = element;
    bool empty = false;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0) {
            return false;
        }
        if (shape[i] == 0) {
            /* the other axes are still checked, so that an error does not hide behind a zero */
            empty = true;
        } else if (__builtin_mul_overflow(product, (size_t)shape[i], &product) ||
                   product > SIZE_MAX / 2) {
            return false;
        }
    }
    *bytes = empty ? 0 : product;
    return true;
}

lvn_status lvni_ckpt_st_check_tensor(const char *path, lvni_ckpt_st_tensor *t)
{
    LVN_ARG(t->name != NULL && t->name[0] != '\0', "%s: a tensor without a name cannot be saved",
            path);
    LVN_ARG(lvni_core_utf8_valid(t->name), "%s: the tensor name '%s' is not UTF-8", path, t->name);
    LVN_ARG(strcmp(t->name, "__metadata__") != 0, "%s: no tensor may be called __metadata__", path);
    LVN_ARG((int)t->dtype >= 0 && t->dtype < LVN_DTYPE_COUNT,
            "%s: tensor '%s' has the unknown data type %d", path, t->name, (int)t->dtype);
    LVN_ARG(t->ndim >= 0 && t->ndim <= LVN_MAX_NDIM,
            "%s: tensor '%s' has %d axes; 0 to %d can be saved", path, t->name, t->ndim,
            LVN_MAX_NDIM);
    LVN_ARG(lvni_ckpt_st_tensor_bytes(lvn_dtype_size(t->dtype), t->ndim, t->shape, &t->bytes),
            "%s: tensor '%s' has a negative or too large shape", path, t->name);
    LVN_ARG(t->data != NULL || t->bytes == 0, "%s: tensor '%s' has no data", path, t->name);
    return LVN_OK;
}

/* ---- the writer ---- */

enum { DATA_ALIGN = 64, LENGTH_BYTES = 8 };

/* A file on its way: own sorted copies of the lists, and what is computed from them. */
typedef struct writer {
    const char *path;
    lvni_ckpt_st_tensor *tensors; /* by name */
    size_t *begin;                /* offset of each in the data part */
    int64_t n_tensors;
    lvni_ckpt_st_meta *meta; /* by key; the caller's and the two checksums */
    int64_t n_meta;
    char *checksums; /* text of the JSON object */
    char header_checksum[LVNI_ST_HEX];
    char *header; /* length, JSON, padding */
    size_t header_bytes;
} writer;

static lvn_status out_of_memory(const writer *w)
{
    LVN_FAIL(LVN_ERR_MEMORY, "cannot write %s: no host memory for its header of %lld tensors",
             w->path, (long long)w->n_tensors);
}

static lvn_status check_meta(const writer *w, const lvni_ckpt_st_meta *m)
{
    LVN_ARG(m->key != NULL && m->value != NULL, "%s: metadata without key or value", w->path);
    LVN_ARG(lvni_core_utf8_valid(m->key) && lvni_core_utf8_valid(m->value),
            "%s: the metadata '%s' is not UTF-8", w->path, m->key);
    LVN_ARG(strcmp(m->key, LVNI_ST_CHECKSUMS) != 0 && strcmp(m->key, LVNI_ST_HEADER_CHECKSUM) != 0,
            "%s: the metadata key '%s' is reserved for the writer", w->path, m->key);
    return LVN_OK;
}

static lvn_status take_lists(writer *w, const lvni_ckpt_st_tensor *tensors,
                             const lvni_ckpt_st_meta *meta)
{
    w->tensors = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)w->n_tensors, sizeof *w->tensors);
    w->begin = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)w->n_tensors, sizeof *w->begin);
    w->meta = lvni_core_calloc(LVNI_TAG_CKPT, (size_t)w->n_meta + 2, sizeof *w->meta);
    if (w->tensors == NULL || w->begin == NULL || w->meta == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < w->n_tensors; i++) {
        w->tensors[i] = tensors[i];
        LVN_TRY(lvni_ckpt_st_check_tensor(w->path, &w->tensors[i]));
    }
    for (int64_t i = 0; i < w->n_meta; i++) {
        w->meta[i] = meta[i];
        LVN_TRY(check_meta(w, &w->meta[i]));
    }
    lvni_ckpt_st_sort_tensors(w->tensors, w->n_tensors);
    lvni_ckpt_st_sort_meta(w->meta, w->n_meta);
    for (int64_t i = 1; i < w->n_tensors; i++) {
        LVN_ARG(strcmp(w->tensors[i - 1].name, w->tensors[i].name) != 0,
                "%s: two tensors are called '%s'", w->path, w->tensors[i].name);
    }
    for (int64_t i = 1; i < w->n_meta; i++) {
        LVN_ARG(strcmp(w->meta[i - 1].key, w->meta[i].key) != 0,
                "%s: the metadata key '%s' is given twice", w->path, w->meta[i].key);
    }
    return LVN_OK;
}

static const size_t element_order[] = {
    8, 4, 2, 1}; /* bytes of an element; large first keeps all aligned without gaps */

static lvn_status lay_out(writer *w)
{
    size_t at = 0;
    for (size_t k = 0; k < sizeof element_order / sizeof element_order[0]; k++) {
        for (int64_t i = 0; i < w->n_tensors; i++) {
            if (lvn_dtype_size(w->tensors[i].dtype) == element_order[k]) {
                w->begin[i] = at;
                LVN_ARG(!__builtin_add_overflow(at, w->tensors[i].bytes, &at) && at < SIZE_MAX / 2,
                        "%s: the tensors are too large for a file", w->path);
            }
        }
    }
    return LVN_OK;
}

/* The compact text of a JSON value in our own memory, after `lead` and before `tail` free bytes.
 * NULL: no memory. */
static char *dump(const json_t *value, size_t lead, size_t tail, size_t *bytes)
{
    const size_t n = json_dumpb(value, NULL, 0, JSON_COMPACT);
    char *text = n == 0 ? NULL : lvni_core_alloc(LVNI_TAG_CKPT, lead + n + tail);
    if (text != NULL && json_dumpb(value, text + lead, n, JSON_COMPACT) != n) {
        lvni_core_free(text);
        text = NULL;
    }
    *bytes = n;
    return text;
}

static bool fill_checksums(const writer *w, json_t *map)
{
    for (int64_t i = 0; i < w->n_tensors; i++) {
        char hex[LVNI_ST_HEX];
        lvni_ckpt_st_checksum(w->tensors[i].data, w->tensors[i].bytes, hex);
        if (json_object_set_new(map, w->tensors[i].name, json_string(hex)) != 0) {
            return false;
        }
    }
    return true;
}

static lvn_status add_checksums(writer *w)
{
    json_t *map = json_object();
    size_t n = 0;
    if (map != NULL && fill_checksums(w, map)) {
        w->checksums = dump(map, 0, 1, &n);
    }
    json_decref(map);
    if (w->checksums == NULL) {
        return out_of_memory(w);
    }
    w->checksums[n] = '\0';
    w->meta[w->n_meta++] = (lvni_ckpt_st_meta){.key = LVNI_ST_CHECKSUMS, .value = w->checksums};
    lvni_ckpt_st_sort_meta(w->meta, w->n_meta);
    lvni_ckpt_st_header_checksum(w->tensors, w->n_tensors, w->meta, w->n_meta, w->header_checksum);
    w->meta[w->n_meta++] =
        (lvni_ckpt_st_meta){.key = LVNI_ST_HEADER_CHECKSUM, .value = w->header_checksum};
    return LVN_OK;
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}; NULL: no memory */
static json_t *describe(const lvni_ckpt_st_tensor *t, size_t begin)
{
    const size_t end = begin + t->bytes;
    json_t *shape = json_array();
    for (int i = 0; shape != NULL && i < t->ndim; i++) {
        if (json_array_append_new(shape, json_integer((json_int_t)t->shape[i])) != 0) {
            json_decref(shape);
            shape = NULL;
        }
    }
    if (shape == NULL) {
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", lvni_ckpt_st_dtype_names[t->dtype], "shape",
                     shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static bool fill_header(const writer *w, json_t *root)
{
    json_t *meta = json_object();
    if (json_object_set_new(root, "__metadata__", meta) !=
        0) { /* takes meta in every case, NULL is a failure */
        return false;
    }
    for (int64_t i = 0; i < w->n_meta; i++) {
        if (json_object_set_new(meta, w->meta[i].key, json_string(w->meta[i].value)) != 0) {
            return false;
        }
    }
    for (int64_t i = 0; i < w->n_tensors; i++) {
        if (json_object_set_new(root, w->tensors[i].name, describe(&w->tensors[i], w->begin[i])) !=
            0) {
            return false;
        }
    }
    return true;
}

static lvn_status make_header(writer *w)
{
    json_t *root = json_object();
    size_t n = 0;
    if (root != NULL && fill_header(w, root)) {
        w->header = dump(root, LENGTH_BYTES, DATA_ALIGN, &n);
    }
    json_decref(root);
    if (w->header == NULL) {
        return out_of_memory(w);
    }
    const size_t end = LENGTH_BYTES + n;
    w->header_bytes = (end + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    memset(w->header + end, ' ', w->header_bytes - end);
    const uint64_t length = w->header_bytes - LENGTH_BYTES;
    LVN_ARG(length <= LVNI_ST_MAX_HEADER,
            "%s: the header would have %llu bytes, more than the %zu readers accept", w->path,
            (unsigned long long)length, LVNI_ST_MAX_HEADER);
    for (int i = 0; i < LENGTH_BYTES; i++) {
        w->header[i] = (char)(unsigned char)(length >> (8 * i));
    }
    return LVN_OK;
}

static lvn_status write_parts(const writer *w, lvni_core_atomic_file *file)
{
    LVN_TRY(lvni_core_atomic_write(file, w->header, w->header_bytes));
    for (size_t k = 0; k < sizeof element_order / sizeof element_order[0]; k++) {
        for (int64_t i = 0; i < w->n_tensors; i++) {
            const lvni_ckpt_st_tensor *t = &w->tensors[i];
            if (lvn_dtype_size(t->dtype) == element_order[k] && t->bytes > 0) {
                LVN_TRY(lvni_core_atomic_write(file, t->data, t->bytes));
            }
        }
    }
    return LVN_OK;
}

static lvn_status write_file(const writer *w)
{
    lvni_core_atomic_file *file = NULL;
    LVN_TRY(lvni_core_atomic_open(w->path, &file));
    const lvn_status status = write_parts(w, file);
    if (status != LVN_OK) {
        lvni_core_atomic_abort(file);
        return status;
    }
    return lvni_core_atomic_commit(file);
}

static lvn_status prepare(writer *w, const lvni_ckpt_st_tensor *tensors,
                          const lvni_ckpt_st_meta *meta)
{
    LVN_TRY(take_lists(w, tensors, meta));
    LVN_TRY(lay_out(w));
    LVN_TRY(add_checksums(w));
    return make_header(w);
}

lvn_status lvni_ckpt_st_save(const char *path, const lvni_ckpt_st_tensor *tensors,
                             int64_t n_tensors, const lvni_ckpt_st_meta *meta, int64_t n_meta)
{
    LVN_ARG(path != NULL && n_tensors >= 0 && n_meta >= 0, "saving tensors needs a path and lists");
    writer w = {.path = path, .n_tensors = n_tensors, .n_meta = n_meta};
    lvn_status status = prepare(&w, tensors, meta);
    if (status == LVN_OK) {
        status = write_file(&w);
    }
    lvni_core_free(w.header);
    lvni_core_free(w.checksums);
    lvni_core_free(w.meta);
    lvni_core_free(w.begin);
    lvni_core_free(w.tensors);
    return status;
}

lvni_ckpt_st_tensor lvni_ckpt_st_entry(const char *name, const lvn_tensor *t, const void *data)
{
    lvni_ckpt_st_tensor e = {
        .name = name, .dtype = lvn_tensor_dtype(t), .ndim = lvn_ndim(t), .data = data};
    for (int i = 0; i < e.ndim; i++) {
        e.shape[i] = lvn_size(t, i);
    }
    e.bytes = (size_t)lvn_numel(t) * lvn_dtype_size(e.dtype);
    return e;
}
