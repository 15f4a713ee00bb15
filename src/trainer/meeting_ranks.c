/* Meetings of groups that lie on several ranks: what the shards of each rank brought goes to the
 * others in one message, and everybody's parts are then whole. Called by meeting.c. */
#include "trainer/meeting_impl.h"

#include <stdio.h>
#include <string.h>

enum { WHAT = 48, ALIGN = 64 };

/* What a rank says: this, then an entry and the data for each of its shards that came. */
typedef struct rank_head {
    int32_t came; /* entries; 0: its shards have ended, or none has samples */
    int32_t here; /* shards of this rank with samples */
} rank_head;

typedef struct shard_entry {
    int32_t index, brought; /* brought: data follow */
    char what[WHAT];
    lvni_desc desc;
    int64_t number;
    uint64_t bytes; /* of the data, with what fills them up to ALIGN */
} shard_entry;

static void say(lvni_str *out, const void *data, size_t bytes)
{
    static const char zeros[ALIGN];
    lvni_str_append_n(out, data, bytes);
    lvni_str_append_n(out, zeros, (ALIGN - bytes % ALIGN) % ALIGN);
}

/* What the shards of this rank brought to this round; nothing when they have ended. */
static lvn_status write_message(lvni_meeting *m, int place)
{
    const rank_head head = {.came = m->waiting, .here = m->here};
    lvni_str_clear(&m->said);
    say(&m->said, &head, sizeof head);
    for (int i = 0; i < m->shards && m->waiting > 0; i++) {
        const lvni_member *k = &m->member[i];
        const lvni_part *part = &m->part[place][i];
        if (!k->expected) {
            continue;
        }
        const size_t bytes = part->data == NULL ? 0
                                                : (size_t)lvni_desc_numel(&part->desc) *
                                                      lvn_dtype_size(part->desc.dtype);
        shard_entry e = {.index = i,
                         .brought = part->data != NULL,
                         .desc = part->desc,
                         .number = part->number,
                         .bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN};
        snprintf(e.what, sizeof e.what, "%s", k->what);
        say(&m->said, &e, sizeof e);
        say(&m->said, part->data == NULL ? &e : part->data, bytes);
    }
    return lvni_str_status(&m->said);
}

static const lvni_member *first_here(const lvni_meeting *m)
{
    int i = 0;
    while (i < m->shards - 1 && !m->member[i].expected) {
        i++;
    }
    return &m->member[i];
}

/* One rank's shards into the parts of this round. */
static lvn_status read_message(lvni_meeting *m, int rank, const lvni_said *said, int place)
{
    const unsigned char *at = said->data;
    const rank_head *head = (const void *)at;
    const lvni_member *mine = first_here(m);
    at += ALIGN;
    if (head->came == 0 && head->here > 0 && m->waiting > 0) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "the shards of a group on rank %d have ended while shard %d waits for them in %s: "
                 "the shards of a group must make the same calls",
                 rank, mine->group.index, mine->what);
    }
    if (head->came > 0 && m->here > 0 && m->waiting == 0) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "the shards of a group on this rank have ended while those on rank %d wait for "
                 "them in %s: the shards of a group must make the same calls",
                 rank, ((const shard_entry *)(const void *)at)->what);
    }
    for (int i = 0; i < head->came; i++) {
        const shard_entry *e = (const void *)at;
        at += (sizeof *e + ALIGN - 1) / ALIGN * ALIGN;
        if (m->waiting > 0 && strncmp(e->what, mine->what, WHAT - 1) != 0) {
            LVN_FAIL(LVN_ERR_MISMATCH,
                     "shard %d of a group is in %s while shard %d, on rank %d, is in %s: the "
                     "shards of a group must make the same calls",
                     mine->group.index, mine->what, e->index, rank, e->what);
        }
        m->part[place][e->index] =
            (lvni_part){.data = e->brought ? at : NULL, .desc = e->desc, .number = e->number};
        at += e->bytes;
    }
    return LVN_OK;
}

lvn_status lvni_meeting_meet_ranks(lvni_meeting *m, int place, bool *more)
{
    const lvni_meeting_ranks *r = &m->ranks;
    const lvni_said *said;
    LVN_TRY(write_message(m, place));
    for (int i = 0; i < m->shards; i++) {
        m->part[place][i] = m->member[i].expected ? m->part[place][i] : (lvni_part){0};
    }
    LVN_TRY(lvni_among_exchange(r->among, r->lo, r->hi, m->said.data, m->said.len, &said));
    *more = false;
    for (int rank = r->lo; rank < r->hi; rank++) {
        *more = *more || ((const rank_head *)said[rank - r->lo].data)->came > 0;
        LVN_TRY(rank == r->rank ? LVN_OK : read_message(m, rank, &said[rank - r->lo], place));
    }
    return LVN_OK;
}
