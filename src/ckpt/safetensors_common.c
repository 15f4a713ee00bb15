/* Checksums, orders and sizes that writer and reader of safetensors files must agree on. */
#include "ckpt/safetensors_impl.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdlib.h>
#include <string.h>

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
    to_hex(XXH3_64bits(data, bytes), hex);
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
