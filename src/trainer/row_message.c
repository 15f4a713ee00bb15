/* Rows of a prediction as bytes (row_message.h): a head, then for each chunk its own, the samples'
 * numbers and their values. Ranks run the same program on the same kind of machine: numbers
 * go as they lie in memory. */
#include "trainer/row_message.h"

#include "core/alloc.h"
#include "core/error.h"

#include <string.h>

typedef struct head {
    int64_t signal, more, n_chunks, n_unreadable;
} head;

typedef struct chunk {
    int64_t n, k; /* rows, values of each */
} chunk;

static void begin(lvni_trainer_rows *r)
{
    memset(r->data, 0, sizeof(head));
    r->size = sizeof(head);
}

lvn_status lvni_trainer_rows_create(lvni_dist_comm *comm, const lvni_data_unreadable *unreadable,
                                    lvni_trainer_rows *out)
{
    const size_t world = (size_t)lvni_dist_comm_world(comm);
    *out = (lvni_trainer_rows){.comm = comm, .unreadable = unreadable, .capacity = 4096};
    out->data = lvni_core_alloc(LVNI_TAG_TRAINER, out->capacity);
    out->bytes = lvni_core_calloc(LVNI_TAG_TRAINER, world, sizeof *out->bytes);
    out->at = lvni_core_calloc(LVNI_TAG_TRAINER, world, sizeof *out->at);
    if (out->data == NULL || out->bytes == NULL || out->at == NULL) {
        return LVN_ERR_MEMORY;
    }
    begin(out);
    return LVN_OK;
}

void lvni_trainer_rows_free(lvni_trainer_rows *r)
{
    lvni_core_free(r->data);
    lvni_core_free(r->bytes);
    lvni_core_free((void *)r->at);
    *r = (lvni_trainer_rows){0};
}

/* Multiples of 8: what follows is aligned. */
static size_t size_of(const chunk *c)
{
    const size_t n = (size_t)c->n, k = (size_t)c->k;
    return sizeof *c + n * sizeof(int64_t) + (n * k * sizeof(float) + 7) / 8 * 8;
}

lvn_status lvni_trainer_rows_add(lvni_trainer_rows *r, int64_t n, int64_t k, const int64_t *sample,
                                 const float *value)
{
    const chunk c = {.n = n, .k = k};
    const size_t bytes = size_of(&c), samples = (size_t)n * sizeof *sample,
                 floats = (size_t)(n * k) * sizeof *value;
    LVN_TRY(lvni_trainer_message_room(&r->data, r->size, &r->capacity, bytes));
    unsigned char *at = r->data + r->size;
    memset(at + bytes - 8, 0, n > 0 ? 8 : 0); /* what rounding leaves */
    memcpy(at, &c, sizeof c);
    if (n > 0) {
        memcpy(at + sizeof c, sample, samples);
        memcpy(at + sizeof c + samples, value, floats);
    }
    r->size += bytes;
    ((head *)(void *)r->data)->n_chunks++;
    return LVN_OK;
}

/* The next chunk of a rank, NULL after its last. */
static lvn_status next(lvni_trainer_rows *r, int rank, const unsigned char *end, const chunk **out)
{
    const size_t left = (size_t)(end - r->at[rank]);
    const chunk *c = (const void *)r->at[rank];
    *out = NULL;
    if (left == 0) {
        return LVN_OK;
    }
    const bool whole = left >= sizeof *c && c->n >= 0 && c->k >= 0 && c->n <= (int64_t)left / 8 &&
                       (c->n == 0 || c->k <= (int64_t)left / (4 * c->n)) && size_of(c) <= left;
    if (!whole) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "rank %d's rows do not end where they should: start all ranks with one version of "
                 "levin",
                 rank);
    }
    r->at[rank] += size_of(c);
    *out = c;
    return LVN_OK;
}

static lvn_status give(const chunk *c, lvni_trainer_predict_row row, void *user)
{
    const int64_t *sample = (const void *)(c + 1);
    const float *value = (const void *)(sample + c->n);
    for (int64_t i = 0; i < c->n; i++) {
        LVN_TRY(row(user, sample[i], value + i * c->k, c->k));
    }
    return LVN_OK;
}

static lvn_status give_all(lvni_trainer_rows *r, const unsigned char *all,
                           lvni_trainer_predict_row row, void *user)
{
    const int world = lvni_dist_comm_world(r->comm);
    for (bool any = true; any;) {
        const unsigned char *end = all;
        any = false;
        for (int rank = 0; rank < world; rank++) {
            const chunk *c;
            end += r->bytes[rank];
            LVN_TRY(next(r, rank, end, &c));
            any = any || c != NULL;
            LVN_TRY(c == NULL ? LVN_OK : give(c, row, user));
        }
    }
    return LVN_OK;
}

static lvn_status read_heads(lvni_trainer_rows *r, const unsigned char *all, bool *more)
{
    int stopped = 0;
    int64_t unreadable = 0;
    *more = false;
    for (int rank = 0; rank < lvni_dist_comm_world(r->comm); rank++) {
        head h = {0};
        if (r->bytes[rank] < sizeof h || r->bytes[rank] % 8 != 0) {
            LVN_FAIL(LVN_ERR_CORRUPT,
                     "rank %d sent %zu bytes after a wave of predictions: start all ranks with one "
                     "version of levin",
                     rank, r->bytes[rank]);
        }
        memcpy(&h, all, sizeof h);
        r->at[rank] = all + sizeof h;
        all += r->bytes[rank];
        *more = *more || h.more != 0;
        stopped = stopped == 0 ? (int)h.signal : stopped;
        unreadable += h.n_unreadable;
    }
    *more = *more &&
            !(r->unreadable != NULL && lvni_data_unreadable_too_many(r->unreadable, unreadable));
    lvni_trainer_stop_record(stopped);
    if (stopped != 0) {
        LVN_FAIL(LVN_ERR_CANCELLED, "a signal stopped the prediction");
    }
    return LVN_OK;
}

lvn_status lvni_trainer_rows_exchange(lvni_trainer_rows *r, bool *more,
                                      lvni_trainer_predict_row row, void *user)
{
    head *own = (void *)r->data;
    void *all = NULL;
    own->signal = lvni_trainer_stop_signal();
    own->more = *more ? 1 : 0;
    own->n_unreadable = r->unreadable == NULL ? 0 : lvni_data_unreadable_counting(r->unreadable);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_dist_comm_all_gather_sized(r->comm, r->data, r->size, &all, r->bytes));
    LVNI_TRY_DONE(s, read_heads(r, all, more));
    s = lvni_dist_comm_rank(r->comm) == 0 ? give_all(r, all, row, user) : LVN_OK;
done:
    lvni_core_free(all);
    begin(r);
    return s;
}
