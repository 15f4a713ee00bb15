/* Group sync over several ranks: each rank sends the tensors of its micro-batches to the others in
 * one message, after which all have all parts. Called by group_sync.c. */
#include "trainer/group_sync_impl.h"

#include <stdio.h>
#include <string.h>

enum { WHAT = 48, ALIGN = 64 };

/* A rank's message: this, then an entry and the data for each of its waiting micro-batches. */
typedef struct rank_head {
    int32_t entries; /* entries; 0: its micro-batches have ended, or none has samples */
    int32_t here;    /* micro-batches of this rank with samples */
} rank_head;

typedef struct micro_batch_entry {
    int32_t index, has_data; /* has_data: data follow */
    char what[WHAT];
    lvni_tensor_desc desc;
    int64_t number;
    uint64_t bytes; /* of the data, with what fills them up to ALIGN */
} micro_batch_entry;

static void append_padded(lvni_core_str *out, const void *data, size_t bytes)
{
    static const char zeros[ALIGN];
    lvni_core_str_append_n(out, data, bytes);
    lvni_core_str_append_n(out, zeros, (ALIGN - bytes % ALIGN) % ALIGN);
}

/* The parts of this rank's micro-batches in this round; none when they have ended. */
static lvn_status write_message(lvni_trainer_group_sync *m, int place)
{
    const rank_head head = {.entries = m->waiting, .here = m->here};
    lvni_core_str_clear(&m->message);
    append_padded(&m->message, &head, sizeof head);
    for (int i = 0; i < m->micro_batches && m->waiting > 0; i++) {
        const lvni_trainer_member *k = &m->member[i];
        const lvni_tensor_part *part = &m->part[place][i];
        if (!k->expected) {
            continue;
        }
        const size_t bytes = part->data == NULL ? 0
                                                : (size_t)lvni_tensor_desc_numel(&part->desc) *
                                                      lvn_dtype_size(part->desc.dtype);
        micro_batch_entry e = {.index = i,
                               .has_data = part->data != NULL,
                               .desc = part->desc,
                               .number = part->number,
                               .bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN};
        snprintf(e.what, sizeof e.what, "%s", k->what);
        append_padded(&m->message, &e, sizeof e);
        append_padded(&m->message, part->data == NULL ? &e : part->data, bytes);
    }
    return lvni_core_str_status(&m->message);
}

static const lvni_trainer_member *first_here(const lvni_trainer_group_sync *m)
{
    int i = 0;
    while (i < m->micro_batches - 1 && !m->member[i].expected) {
        i++;
    }
    return &m->member[i];
}

/* One rank's micro-batches into the parts of this round. */
static lvn_status read_message(lvni_trainer_group_sync *m, int rank,
                               const lvni_dist_group_message *message, int place)
{
    const unsigned char *at = message->data;
    const rank_head *head = (const void *)at;
    const lvni_trainer_member *mine = first_here(m);
    at += ALIGN;
    if (head->entries == 0 && head->here > 0 && m->waiting > 0) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "the micro-batches of a group on rank %d have ended while micro-batch %d waits "
                 "for them in %s: "
                 "the micro-batches of a group must make the same calls",
                 rank, mine->group.index, mine->what);
    }
    if (head->entries > 0 && m->here > 0 && m->waiting == 0) {
        LVN_FAIL(
            LVN_ERR_MISMATCH,
            "the micro-batches of a group on this rank have ended while those on rank %d wait for "
            "them in %s: the micro-batches of a group must make the same calls",
            rank, ((const micro_batch_entry *)(const void *)at)->what);
    }
    for (int i = 0; i < head->entries; i++) {
        const micro_batch_entry *e = (const void *)at;
        at += (sizeof *e + ALIGN - 1) / ALIGN * ALIGN;
        if (m->waiting > 0 && strncmp(e->what, mine->what, WHAT - 1) != 0) {
            LVN_FAIL(LVN_ERR_MISMATCH,
                     "micro-batch %d of a group is in %s while micro-batch %d, on rank %d, is in "
                     "%s: the "
                     "micro-batches of a group must make the same calls",
                     mine->group.index, mine->what, e->index, rank, e->what);
        }
        m->part[place][e->index] = (lvni_tensor_part){
            .data = e->has_data ? at : NULL, .desc = e->desc, .number = e->number};
        at += e->bytes;
    }
    return LVN_OK;
}

lvn_status lvni_trainer_group_sync_exchange(lvni_trainer_group_sync *m, int place, bool *more)
{
    const lvni_trainer_group_sync_ranks *r = &m->ranks;
    const lvni_dist_group_message *message;
    LVN_TRY(write_message(m, place));
    for (int i = 0; i < m->micro_batches; i++) {
        m->part[place][i] = m->member[i].expected ? m->part[place][i] : (lvni_tensor_part){0};
    }
    LVN_TRY(lvni_dist_group_exchange_run(r->exchange, r->lo, r->hi, m->message.data, m->message.len,
                                         &message));
    *more = false;
    for (int rank = r->lo; rank < r->hi; rank++) {
        *more = *more || ((const rank_head *)message[rank - r->lo].data)->entries > 0;
        LVN_TRY(rank == r->rank ? LVN_OK : read_message(m, rank, &message[rank - r->lo], place));
    }
    return LVN_OK;
}
