/* Meetings (meeting.h). What is brought is copied into the shard's own place for this round; there
 * are two rounds of places, so one wait per meeting is enough: who writes for the round after the
 * next knows that everybody came to the next one, and so has read this one. */
#include "trainer/meeting_impl.h"

#include "core/alloc.h"
#include "tensor/device.h"

#include <string.h>

static lvn_status meet(const lvni_group *group, const char *what, const lvn_tensor *mine,
                       int64_t number, const lvni_part **parts);

lvn_status lvni_meeting_create(int shards, lvni_meeting **out)
{
    *out = NULL;
    lvni_meeting *m = LVNI_NEW(LVNI_TAG_TRAINER, lvni_meeting);
    if (m == NULL) {
        return LVN_ERR_MEMORY;
    }
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->moved, NULL);
    m->shards = shards;
    m->member = lvni_calloc(LVNI_TAG_TRAINER, (size_t)shards, sizeof *m->member);
    bool good = m->member != NULL;
    for (int r = 0; r < LVNI_MEETING_ROUNDS; r++) {
        m->part[r] = lvni_calloc(LVNI_TAG_TRAINER, (size_t)shards, sizeof *m->part[r]);
        good = good && m->part[r] != NULL;
    }
    if (!good) {
        lvni_meeting_destroy(m);
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < shards; i++) {
        m->member[i].group = (lvni_group){.shards = shards, .index = i, .meet = meet};
        m->member[i].meeting = m;
    }
    *out = m;
    return LVN_OK;
}

void lvni_meeting_destroy(lvni_meeting *m)
{
    if (m == NULL) {
        return;
    }
    for (int i = 0; i < m->shards && m->member != NULL; i++) {
        for (int r = 0; r < LVNI_MEETING_ROUNDS; r++) {
            lvni_free(m->member[i].place[r]);
        }
    }
    for (int r = 0; r < LVNI_MEETING_ROUNDS; r++) {
        lvni_free(m->part[r]);
    }
    lvni_str_free(&m->said);
    pthread_cond_destroy(&m->moved);
    pthread_mutex_destroy(&m->lock);
    lvni_free(m->member);
    lvni_free(m);
}

void lvni_meeting_open(lvni_meeting *m, const lvni_meeting_ranks *ranks)
{
    m->ranks = *ranks;
    m->expected = m->waiting = m->here = 0;
    m->round = 0;
    m->status = LVN_OK;
    for (int i = 0; i < m->shards; i++) {
        m->member[i].expected = m->member[i].left = false;
        m->member[i].round = 0;
        for (int r = 0; r < LVNI_MEETING_ROUNDS; r++) {
            m->part[r][i] = (lvni_part){0};
        }
    }
}

void lvni_meeting_expect(lvni_meeting *m, int index)
{
    m->member[index].expected = true;
    m->expected++;
    m->here++;
}

const lvni_group *lvni_meeting_group(const lvni_meeting *m, int index)
{
    return &m->member[index].group;
}

lvn_status lvni_meeting_status(const lvni_meeting *m)
{
    return m->status == LVN_OK ? LVN_OK : lvn_error_adopt(&m->error);
}

/* With the lock: the thread's last error ends the meeting, unless another one did. */
static void fail(lvni_meeting *m, lvn_status status)
{
    if (m->status == LVN_OK) {
        m->status = status;
        m->error = *lvn_last_error();
        pthread_cond_broadcast(&m->moved);
    }
}

/* With the lock: has somebody ended who will never come to the meeting that others wait in? */
static void check_all_come(lvni_meeting *m)
{
    const lvni_member *gone = NULL, *here = NULL;
    for (int i = 0; i < m->shards; i++) {
        const lvni_member *k = &m->member[i];
        gone = gone == NULL && k->expected && k->left ? k : gone;
        here = here == NULL && k->expected && !k->left && k->round > m->round ? k : here;
    }
    if (gone != NULL && here != NULL && m->status == LVN_OK) {
        fail(m, lvn_error_set(LVN_ERR_MISMATCH, __FILE__, __LINE__,
                              "shard %d of a group has ended while shard %d waits for it in %s: "
                              "the shards of a group must make the same calls",
                              gone->group.index, here->group.index, here->what));
    }
}

/* With the lock, everybody is here: did they come for the same? */
static void check_same(lvni_meeting *m)
{
    const lvni_member *first = NULL;
    for (int i = 0; i < m->shards; i++) {
        const lvni_member *k = &m->member[i];
        if (!k->expected) {
            continue;
        }
        first = first == NULL ? k : first;
        if (strcmp(first->what, k->what) != 0) {
            fail(m, lvn_error_set(LVN_ERR_MISMATCH, __FILE__, __LINE__,
                                  "shard %d of a group is in %s while shard %d is in %s: the "
                                  "shards of a group must make the same calls",
                                  first->group.index, first->what, k->group.index, k->what));
        }
    }
}

lvn_status lvni_meeting_close(lvni_meeting *m)
{
    bool more = m->ranks.among != NULL;
    pthread_mutex_lock(&m->lock);
    while (more && m->status == LVN_OK) {
        const lvn_status s = lvni_meeting_meet_ranks(m, 0, &more);
        if (s != LVN_OK) {
            fail(m, s);
        }
    }
    const lvn_status s = lvni_meeting_status(m);
    pthread_mutex_unlock(&m->lock);
    return s;
}

/* Copies the tensor into the shard's place; nobody else looks at it before the shard has come. */
static lvn_status bring(lvni_member *me, lvni_part *part, int place, const lvn_tensor *mine,
                        int64_t number)
{
    *part = (lvni_part){.number = number};
    if (mine == NULL) {
        return LVN_OK;
    }
    part->desc = lvni_tensor_desc(mine);
    const size_t bytes = (size_t)lvn_numel(mine) * lvn_dtype_size(mine->dtype);
    if (bytes > me->room[place] || me->place[place] == NULL) {
        void *more = lvni_alloc(LVNI_TAG_TRAINER, bytes > 0 ? bytes : 1);
        if (more == NULL) {
            return LVN_ERR_MEMORY;
        }
        lvni_free(me->place[place]);
        me->place[place] = more;
        me->room[place] = bytes;
    }
    part->data = me->place[place];
    return lvni_mem_copy(me->place[place], mine->data, bytes);
}

static lvn_status wait_for_all(lvni_meeting *m, lvni_member *me, int place, const char *what)
{
    pthread_mutex_lock(&m->lock);
    const uint64_t mine = me->round;
    me->round++;
    me->what = what;
    m->waiting++;
    check_all_come(m);
    if (m->status == LVN_OK && m->waiting == m->expected) {
        check_same(m);
        if (m->status == LVN_OK && m->ranks.among != NULL) {
            bool more;
            const lvn_status s = lvni_meeting_meet_ranks(m, place, &more);
            if (s != LVN_OK) {
                fail(m, s);
            }
        }
        m->waiting = 0;
        m->round++;
        pthread_cond_broadcast(&m->moved);
    }
    while (m->status == LVN_OK && m->round == mine) {
        pthread_cond_wait(&m->moved, &m->lock);
    }
    const lvn_status s = lvni_meeting_status(m);
    pthread_mutex_unlock(&m->lock);
    return s;
}

static lvn_status meet(const lvni_group *group, const char *what, const lvn_tensor *mine,
                       int64_t number, const lvni_part **parts)
{
    lvni_meeting *m = ((const lvni_member *)(const void *)group)->meeting;
    lvni_member *me = &m->member[group->index];
    const int place = (int)(me->round % LVNI_MEETING_ROUNDS);
    /* with such an error the shard leaves, and the others learn of it */
    LVN_TRY(bring(me, &m->part[place][group->index], place, mine, number));
    *parts = m->part[place];
    return wait_for_all(m, me, place, what);
}

void lvni_meeting_leave(lvni_meeting *m, int index, lvn_status status)
{
    pthread_mutex_lock(&m->lock);
    m->member[index].left = true;
    m->expected--;
    if (status != LVN_OK) {
        fail(m, status);
    } else {
        check_all_come(m);
    }
    pthread_mutex_unlock(&m->lock);
}

/* ---- dry runs ---- */

struct lvni_dry_group {
    lvni_group group; /* first */
    lvni_part *part;
    void *zeros;
    size_t room;
};

static lvn_status meet_dry(const lvni_group *group, const char *what, const lvn_tensor *mine,
                           int64_t number, const lvni_part **parts)
{
    (void)what;
    lvni_dry_group *g;
    memcpy(&g, &(const void *){group}, sizeof(void *));
    const size_t bytes = mine == NULL ? 0 : (size_t)lvn_numel(mine) * lvn_dtype_size(mine->dtype);
    if (bytes > g->room) {
        lvni_free(g->zeros);
        g->room = 0;
        g->zeros = lvni_calloc(LVNI_TAG_TRAINER, bytes, 1);
        if (g->zeros == NULL) {
            return LVN_ERR_MEMORY;
        }
        g->room = bytes;
    }
    for (int i = 0; i < group->shards; i++) {
        g->part[i] = (lvni_part){.data = mine == NULL ? NULL : g->zeros, .number = number};
        if (mine != NULL) {
            g->part[i].desc = lvni_tensor_desc(mine);
        }
    }
    *parts = g->part;
    return LVN_OK;
}

lvn_status lvni_dry_group_create(int shards, lvni_dry_group **out)
{
    *out = NULL;
    lvni_dry_group *g = LVNI_NEW(LVNI_TAG_TRAINER, lvni_dry_group);
    if (g == NULL) {
        return LVN_ERR_MEMORY;
    }
    g->group = (lvni_group){.shards = shards, .meet = meet_dry};
    g->part = lvni_calloc(LVNI_TAG_TRAINER, (size_t)shards, sizeof *g->part);
    if (g->part == NULL) {
        lvni_free(g);
        return LVN_ERR_MEMORY;
    }
    *out = g;
    return LVN_OK;
}

void lvni_dry_group_destroy(lvni_dry_group *g)
{
    if (g != NULL) {
        lvni_free(g->zeros);
        lvni_free(g->part);
        lvni_free(g);
    }
}

const lvni_group *lvni_dry_group_get(const lvni_dry_group *g)
{
    return &g->group;
}
