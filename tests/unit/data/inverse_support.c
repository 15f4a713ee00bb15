/* Samples of inverse problems, for their tests (inverse_support.h). */
#include "core/alloc.h"
#include "inverse_support.h"
#include "support/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

lvn_dataset *inverse_open(const lvni_data_inverse_options *o)
{
    lvn_dataset *d = NULL;
    if (lvni_data_inverse_open(o, &d) != LVN_OK) {
        fail_msg("%s: %s", o->path, lvn_last_error()->message);
    }
    return d;
}

lvn_status inverse_refuses(const lvni_data_inverse_options *o, const char *message)
{
    lvn_dataset *d = NULL;
    const lvn_status s = lvni_data_inverse_open(o, &d);
    assert_null(d);
    assert_int_not_equal(s, LVN_OK);
    if (strstr(lvn_last_error()->message, message) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", lvn_last_error()->message, message);
    }
    return s;
}

inverse_sample inverse_sample_make(const lvn_dataset *d)
{
    inverse_sample s = {0};
    s.n_fields = d->cls->fields(d, s.fields);
    for (int i = 0; i < s.n_fields; i++) {
        s.size[i] = 1;
        for (int k = 0; k < s.fields[i].ndim; k++) {
            s.size[i] *= (size_t)s.fields[i].shape[k];
        }
        s.field[i] = malloc(s.size[i] * sizeof *s.field[i]);
    }
    return s;
}

void inverse_sample_free(inverse_sample *s)
{
    for (int i = 0; i < s->n_fields; i++) {
        free(s->field[i]);
    }
}

void inverse_get(const lvn_dataset *d, int64_t sample, uint64_t seed, uint32_t epoch, bool training,
                 inverse_sample *out)
{
    const lvn_sample_key key = {seed, epoch, sample, training};
    void *fields[LVN_MAX_FIELDS];
    for (int i = 0; i < out->n_fields; i++) {
        memset(out->field[i], 0xff, out->size[i] * sizeof *out->field[i]); /* NaN */
        fields[i] = out->field[i];
    }
    if (d->cls->get(d, &key, fields) != LVN_OK) {
        fail_msg("sample %lld: %s", (long long)sample, lvn_last_error()->message);
    }
}

bool inverse_equal(const inverse_sample *a, const inverse_sample *b)
{
    for (int i = 0; i < a->n_fields; i++) {
        if (memcmp(a->field[i], b->field[i], a->size[i] * sizeof *a->field[i]) != 0) {
            return false;
        }
    }
    return true;
}

enum { SOME = 4 };

typedef struct reader {
    const lvn_dataset *d;
    inverse_sample got[SOME];
    int turn;
} reader;

static void *read_some(void *argument)
{
    reader *r = argument;
    for (int i = 0; i < SOME; i++) {
        const int sample = (i * 3 + r->turn) % SOME;
        inverse_get(r->d, sample, 5, 2, true, &r->got[sample]);
    }
    return NULL;
}

static void check_threads(const lvn_dataset *d)
{
    reader readers[3];
    pthread_t threads[3];
    for (int t = 0; t < 3; t++) {
        readers[t] = (reader){.d = d, .turn = t};
        for (int i = 0; i < SOME; i++) {
            readers[t].got[i] = inverse_sample_make(d);
        }
        assert_int_equal(pthread_create(&threads[t], NULL, read_some, &readers[t]), 0);
    }
    for (int t = 0; t < 3; t++) {
        pthread_join(threads[t], NULL);
    }
    for (int i = 0; i < SOME; i++) {
        assert_true(inverse_equal(&readers[0].got[i], &readers[1].got[i]));
        assert_true(inverse_equal(&readers[0].got[i], &readers[2].got[i]));
        assert_false(inverse_equal(&readers[0].got[i], &readers[0].got[(i + 1) % SOME]));
    }
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < SOME; i++) {
            inverse_sample_free(&readers[t].got[i]);
        }
    }
}

void inverse_check_keys(const lvni_data_inverse_options *o)
{
    lvn_dataset *d = inverse_open(o), *again = inverse_open(o);
    inverse_sample a = inverse_sample_make(d), b = inverse_sample_make(d);
    check_threads(d);
    inverse_get(d, 1, 5, 2, true, &a);
    inverse_get(again, 1, 5, 2, true, &b);
    assert_true(inverse_equal(&a, &b));
    inverse_get(d, 1, 5, 3, true, &b);
    assert_false(inverse_equal(&a, &b));
    inverse_get(d, 1, 6, 2, true, &b);
    assert_false(inverse_equal(&a, &b));
    inverse_get(d, 1, 5, 2, false, &a);
    inverse_get(d, 1, 6, 3, false, &b);
    assert_true(inverse_equal(&a, &b));
    lvni_data_inverse_options other = *o;
    other.split = LVNI_INVERSE_VAL;
    lvn_dataset *val = inverse_open(&other);
    inverse_get(val, 1, 5, 2, true, &b);
    assert_false(inverse_equal(&a, &b));
    inverse_get(val, 1, 9, 7, true, &a);
    assert_true(inverse_equal(&a, &b));
    other.seed++;
    lvn_dataset_destroy(val);
    val = inverse_open(&other);
    inverse_get(val, 1, 5, 2, true, &b);
    assert_false(inverse_equal(&a, &b));
    lvn_dataset_destroy(val);
    lvn_dataset_destroy(d);
    lvn_dataset_destroy(again);
    inverse_sample_free(&a);
    inverse_sample_free(&b);
}

void inverse_check_bits(const lvni_data_inverse_options *o, uint64_t hash)
{
    lvn_dataset *d = inverse_open(o);
    inverse_sample s = inverse_sample_make(d);
    uint64_t h = 0;
    for (int64_t k = 0; k < 2; k++) {
        inverse_get(d, k, 7, 3, true, &s);
        for (int i = 0; i < s.n_fields; i++) {
            h = XXH3_64bits_withSeed(s.field[i], s.size[i] * sizeof *s.field[i], h);
        }
    }
    if (h != hash) {
        fail_msg("%s with %d channels: the hash is 0x%016llx", o->path, o->in_chans,
                 (unsigned long long)h);
    }
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
}

static lvn_status open_and_read(const lvni_data_inverse_options *o, void *const field[])
{
    const lvn_sample_key key = {1, 0, 0, true};
    lvn_dataset *d;
    lvn_status s = lvni_data_inverse_open(o, &d);
    if (s == LVN_OK) {
        s = d->cls->get(d, &key, field);
        lvn_dataset_destroy(d);
    }
    return s;
}

void inverse_check_memory(const lvni_data_inverse_options *o)
{
    lvn_dataset *d = inverse_open(o);
    inverse_sample sample = inverse_sample_make(d);
    lvn_dataset_destroy(d);
    void *field[LVN_MAX_FIELDS];
    for (int i = 0; i < sample.n_fields; i++) {
        field[i] = sample.field[i];
    }
    const uint64_t before = lvni_core_alloc_get_total().live_bytes;
    lvn_status s = LVN_ERR_MEMORY;
    int64_t k = 0;
    while (s != LVN_OK && k < 300) {
        lvni_core_alloc_fail_at(++k);
        s = open_and_read(o, field);
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || s == LVN_ERR_MEMORY);
        assert_int_equal(lvni_core_alloc_get_total().live_bytes, before);
    }
    assert_int_equal(s, LVN_OK);
    assert_true(k > 5);
    inverse_sample_free(&sample);
}
