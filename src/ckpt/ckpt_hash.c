/* The hashes of a checkpoint (checkpoint.h). Called by `levin ckpt hash` and by the tests of
 * reproducibility. */
#include "ckpt/checkpoint.h"

#include "ckpt/safetensors_impl.h"
#include "core/alloc.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string.h>

static void add_number(XXH3_state_t *state, uint64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    XXH3_128bits_update(state, bytes, sizeof bytes);
}

static void add_text(XXH3_state_t *state, const char *text)
{
    XXH3_128bits_update(state, text, strlen(text) + 1);
}

static void add_tensor(XXH3_state_t *state, const char *name, const lvni_ckpt_st_tensor *t)
{
    add_text(state, name);
    add_text(state, lvni_ckpt_st_dtype_names[t->dtype]);
    add_number(state, (uint64_t)t->ndim);
    for (int i = 0; i < t->ndim; i++) {
        add_number(state, (uint64_t)t->shape[i]);
    }
    XXH3_128bits_update(state, t->data, t->bytes);
}

static void add_other(XXH3_state_t *state, const char *name, const lvni_ckpt_st_other *t)
{
    add_text(state, name);
    add_text(state, t->type);
    add_number(state, (uint64_t)t->ndim);
    for (int64_t i = 0; i < t->ndim; i++) {
        add_number(state, (uint64_t)lvni_ckpt_st_other_size(t, i));
    }
    XXH3_128bits_update(state, t->data, t->bytes);
}

static void finish(XXH3_state_t *state, char hex[33])
{
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    const uint64_t halves[2] = {hash.high64, hash.low64};
    for (int i = 0; i < 32; i++) {
        hex[i] = "0123456789abcdef"[halves[i / 16] >> (60 - 4 * (i % 16)) & 15];
    }
    hex[32] = '\0';
}

static bool is_model(const char *name)
{
    return strncmp(name, LVNI_CKPT_MODEL, strlen(LVNI_CKPT_MODEL)) == 0;
}

static void hash_weights(const lvni_ckpt_st_file *file, char hex[33])
{
    bool prefixed = false;
    for (int64_t i = 0; i < lvni_ckpt_st_count(file); i++) {
        prefixed = prefixed || is_model(lvni_ckpt_st_at(file, i)->name);
    }
    const size_t cut = prefixed ? strlen(LVNI_CKPT_MODEL) : 0;
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    for (int64_t i = 0; i < lvni_ckpt_st_count(file); i++) {
        const lvni_ckpt_st_tensor *t = lvni_ckpt_st_at(file, i);
        if (!prefixed || is_model(t->name)) {
            add_tensor(&state, t->name + cut, t);
        }
    }
    for (int64_t i = 0; i < lvni_ckpt_st_count_others(file); i++) {
        const lvni_ckpt_st_other *t = lvni_ckpt_st_other_at(file, i);
        if (!prefixed || is_model(t->name)) {
            add_other(&state, t->name + cut, t);
        }
    }
    finish(&state, hex);
}

static void hash_state(const lvni_ckpt_st_file *file, char hex[33])
{
    static const char *const keys[] = {LVNI_CKPT_STEP, LVNI_CKPT_EPOCH, LVNI_CKPT_SAMPLES_SEEN,
                                       LVNI_CKPT_SCALER, LVNI_CKPT_SCHEDULE};
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    for (int64_t i = 0; i < lvni_ckpt_st_count(file); i++) {
        add_tensor(&state, lvni_ckpt_st_at(file, i)->name, lvni_ckpt_st_at(file, i));
    }
    for (int64_t i = 0; i < lvni_ckpt_st_count_others(file); i++) {
        add_other(&state, lvni_ckpt_st_other_at(file, i)->name, lvni_ckpt_st_other_at(file, i));
    }
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        const char *value = lvni_ckpt_st_meta_get(file, keys[k]);
        if (value == NULL && strcmp(keys[k], LVNI_CKPT_EPOCH) == 0) {
            /* one hash under either name */
            value = lvni_ckpt_st_meta_get(file, LVNI_CKPT_EPOCHS_DONE);
        }
        if (value != NULL) {
            add_text(&state, keys[k]);
            add_text(&state, value);
        }
    }
    finish(&state, hex);
}

static lvn_status add_damaged(lvni_ckpt_hashes *out, const char *name)
{
    out->damaged[out->n_damaged] = lvni_core_strdup(LVNI_TAG_CKPT, name);
    if (out->damaged[out->n_damaged] == NULL) {
        return LVN_ERR_MEMORY;
    }
    out->n_damaged++;
    return LVN_OK;
}

static lvn_status list_damaged(const lvni_ckpt_st_file *file, lvni_ckpt_hashes *out)
{
    out->damaged =
        lvni_core_calloc(LVNI_TAG_CKPT, (size_t)lvni_ckpt_st_count(file) + 1, sizeof *out->damaged);
    if (out->damaged == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (!lvni_ckpt_st_header_ok(file)) {
        LVN_TRY(add_damaged(out, "__metadata__"));
    }
    for (int64_t i = 0; i < lvni_ckpt_st_count(file); i++) {
        if (!lvni_ckpt_st_tensor_ok(file, i)) {
            LVN_TRY(add_damaged(out, lvni_ckpt_st_at(file, i)->name));
        }
    }
    return LVN_OK;
}

lvn_status lvni_ckpt_hash_file(const char *path, lvni_ckpt_hashes *out)
{
    *out = (lvni_ckpt_hashes){.n_damaged = 0};
    lvni_ckpt_st_file *file = NULL;
    LVN_TRY(lvni_ckpt_st_open(path, 0, &file));
    hash_weights(file, out->weights);
    hash_state(file, out->state);
    const lvn_status status = list_damaged(file, out);
    lvni_ckpt_st_close(file);
    if (status != LVN_OK) {
        lvni_ckpt_hashes_free(out);
        *out = (lvni_ckpt_hashes){.n_damaged = 0};
    }
    return status;
}

void lvni_ckpt_hashes_free(lvni_ckpt_hashes *hashes)
{
    for (int64_t i = 0; i < hashes->n_damaged; i++) {
        lvni_core_free(hashes->damaged[i]);
    }
    lvni_core_free(hashes->damaged);
    hashes->damaged = NULL;
    hashes->n_damaged = 0; /* the two numbers stay */
}
