/* Group sync (group_sync.h). A tensor is copied into the micro-batch's own place for this round.
 * There are two rounds of places, so one wait per sync is enough: a lane that writes for the round
 * after the next knows that all have begun the next one, and so have read this one. */
#include "trainer/group_sync_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "tensor/device.h"

#include <string.h>

static lvn_status sync_group(const lvni_tensor_group *group, const char *what,
                             const lvn_tensor *mine, int64_t number,
                             const lvni_tensor_part **parts);

lvn_status lvni_trainer_group_sync_create(int micro_batches, lvni_trainer_group_sync **out)
{
    *out = NULL;
    lvni_trainer_group_sync *m = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer_group_sync);
    if (m == NULL) {
        return LVN_ERR_MEMORY;
    }
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->moved, NULL);
    m->micro_batches = micro_batches;
    m->member = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)micro_batches, sizeof *m->member);
    bool good = m->member != NULL;
    for (int r = 0; r < LVNI_GROUP_SYNC_ROUNDS; r++) {
        m->part[r] = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)micro_batches, sizeof *m->part[r]);
        good = good && m->part[r] != NULL;
    }
    if (!good) {
        lvni_trainer_group_sync_destroy(m);
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < micro_batches; i++) {
        m->member[i].group =
            (lvni_tensor_group){.micro_batches = micro_batches, .index = i, .gather = sync_group};
        m->member[i].group_sync = m;
    }
    *out = m;
    return LVN_OK;
}

void lvni_trainer_group_sync_destroy(lvni_trainer_group_sync *m)
{
    if (m == NULL) {
        return;
    }
    for (int i = 0; i < m->micro_batches && m->member != NULL; i++) {
        for (int r = 0; r < LVNI_GROUP_SYNC_ROUNDS; r++) {
            lvni_core_free(m->member[i].place[r]);
        }
    }
    for (int r = 0; r < LVNI_GROUP_SYNC_ROUNDS; r++) {
        lvni_core_free(m->part[r]);
    }
    lvni_core_str_free(&m->message);
    pthread_cond_destroy(&m->moved);
    pthread_mutex_destroy(&m->lock);
    lvni_core_free(m->member);
    lvni_core_free(m);
}

void lvni_trainer_group_sync_open(lvni_trainer_group_sync *m,
                                  const lvni_trainer_group_sync_ranks *ranks)
{
    m->ranks = *ranks;
    m->expected = m->waiting = m->here = 0;
    m->round = 0;
    m->status = LVN_OK;
    for (int i = 0; i < m->micro_batches; i++) {
        m->member[i].expected = m->member[i].left = false;
        m->member[i].round = 0;
        for (int r = 0; r < LVNI_GROUP_SYNC_ROUNDS; r++) {
            m->part[r][i] = (lvni_tensor_part){0};
        }
    }
}

void lvni_trainer_group_sync_expect(lvni_trainer_group_sync *m, int index)
{
    m->member[index].expected = true;
    m->expected++;
    m->here++;
}

const lvni_tensor_group *lvni_trainer_group_sync_group(const lvni_trainer_group_sync *m, int index)
{
    return &m->member[index].group;
}

lvn_status lvni_trainer_group_sync_status(const lvni_trainer_group_sync *m)
{
    return m->status == LVN_OK
               ? LVN_OK
               : lvni_core_error_collect(m->status, &m->error, "a micro-batch of the group");
}

/* With the lock: the thread's last error ends the sync, unless an earlier one did. */
static void fail(lvni_trainer_group_sync *m, lvn_status status)
{
    if (m->status == LVN_OK) {
        m->status = status;
        m->error = *lvn_last_error();
        pthread_cond_broadcast(&m->moved);
    }
}

/* With the lock: has a micro-batch ended that others wait for? */
static void check_none_ended(lvni_trainer_group_sync *m)
{
    const lvni_trainer_member *gone = NULL, *here = NULL;
    for (int i = 0; i < m->micro_batches; i++) {
        const lvni_trainer_member *k = &m->member[i];
        gone = gone == NULL && k->expected && k->left ? k : gone;
        here = here == NULL && k->expected && !k->left && k->round > m->round ? k : here;
    }
    if (gone != NULL && here != NULL && m->status == LVN_OK) {
        fail(m, lvn_error_set(
                    LVN_ERR_MISMATCH, __FILE__, __LINE__,
                    "micro-batch %d of a group has ended while micro-batch %d waits for it in %s: "
                    "the micro-batches of a group must make the same calls",
                    gone->group.index, here->group.index, here->what));
    }
}

/* With the lock, all micro-batches wait: do they wait in the same op? */
static void check_same(lvni_trainer_group_sync *m)
{
    const lvni_trainer_member *first = NULL;
    for (int i = 0; i < m->micro_batches; i++) {
        const lvni_trainer_member *k = &m->member[i];
        if (!k->expected) {
            continue;
        }
        first = first == NULL ? k : first;
        if (strcmp(first->what, k->what) != 0) {
            fail(m, lvn_error_set(
                        LVN_ERR_MISMATCH, __FILE__, __LINE__,
                        "micro-batch %d of a group is in %s while micro-batch %d is in %s: the "
                        "micro-batches of a group must make the same calls",
                        first->group.index, first->what, k->group.index, k->what));
        }
    }
}

lvn_status lvni_trainer_group_sync_close(lvni_trainer_group_sync *m)
{
    bool more = m->ranks.exchange != NULL;
    pthread_mutex_lock(&m->lock);
    while (more && m->status == LVN_OK) {
        const lvn_status s = lvni_trainer_group_sync_exchange(m, 0, &more);
        if (s != LVN_OK) {
            fail(m, s);
        }
    }
    const lvn_status s = lvni_trainer_group_sync_status(m);
    pthread_mutex_unlock(&m->lock);
    return s;
}

/* Copies the tensor into the micro-batch's place; no other lane reads it before wait_for_all. */
static lvn_status copy_part(lvni_trainer_member *me, lvni_tensor_part *part, int place,
                            const lvn_tensor *mine, int64_t number)
{
    *part = (lvni_tensor_part){.number = number};
    if (mine == NULL) {
        return LVN_OK;
    }
    part->desc = lvni_tensor_get_desc(mine);
    const size_t bytes = (size_t)lvn_numel(mine) * lvn_dtype_size(mine->dtype);
    if (bytes > me->room[place] || me->place[place] == NULL) {
        void *more = lvni_core_alloc(LVNI_TAG_TRAINER, bytes > 0 ? bytes : 1);
        if (more == NULL) {
            return LVN_ERR_MEMORY;
        }
        lvni_core_free(me->place[place]);
        me->place[place] = more;
        me->room[place] = bytes;
    }
    part->data = me->place[place];
    return lvni_tensor_mem_copy(me->place[place], mine->data, bytes);
}

static lvn_status wait_for_all(lvni_trainer_group_sync *m, lvni_trainer_member *me, int place,
                               const char *what)
{
    pthread_mutex_lock(&m->lock);
    const uint64_t mine = me->round;
    me->round++;
    me->what = what;
    m->waiting++;
    check_none_ended(m);
    if (m->status == LVN_OK && m->waiting == m->expected) {
        check_same(m);
        if (m->status == LVN_OK && m->ranks.exchange != NULL) {
            bool more;
            const lvn_status s = lvni_trainer_group_sync_exchange(m, place, &more);
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
    const lvn_status s = lvni_trainer_group_sync_status(m);
    pthread_mutex_unlock(&m->lock);
    return s;
}

static lvn_status sync_group(const lvni_tensor_group *group, const char *what,
                             const lvn_tensor *mine, int64_t number, const lvni_tensor_part **parts)
{
    lvni_trainer_group_sync *m = ((const lvni_trainer_member *)(const void *)group)->group_sync;
    lvni_trainer_member *me = &m->member[group->index];
    const int place = (int)(me->round % LVNI_GROUP_SYNC_ROUNDS);
    /* with such an error the micro-batch leaves, which ends the sync for the others */
    LVN_TRY(copy_part(me, &m->part[place][group->index], place, mine, number));
    *parts = m->part[place];
    return wait_for_all(m, me, place, what);
}

bool lvni_trainer_group_sync_met(const lvni_tensor_group *group)
{
    return ((const lvni_trainer_member *)(const void *)group)->round > 0;
}

void lvni_trainer_group_sync_leave(lvni_trainer_group_sync *m, int index, lvn_status status)
{
    pthread_mutex_lock(&m->lock);
    m->member[index].left = true;
    m->expected--;
    if (status != LVN_OK) {
        fail(m, status);
    } else {
        check_none_ended(m);
    }
    pthread_mutex_unlock(&m->lock);
}

/* ---- dry runs ---- */

struct lvni_trainer_dry_group {
    lvni_tensor_group group; /* first */
    int present;
    lvni_tensor_part *part;
    void *zeros;
    size_t room;
};

static lvn_status sync_dry(const lvni_tensor_group *group, const char *what, const lvn_tensor *mine,
                           int64_t number, const lvni_tensor_part **parts)
{
    (void)what;
    lvni_trainer_dry_group *g;
    memcpy(&g, &(const void *){group}, sizeof(void *));
    const size_t bytes = mine == NULL ? 0 : (size_t)lvn_numel(mine) * lvn_dtype_size(mine->dtype);
    if (bytes > g->room) {
        lvni_core_free(g->zeros);
        g->room = 0;
        g->zeros = lvni_core_calloc(LVNI_TAG_TRAINER, bytes, 1);
        if (g->zeros == NULL) {
            return LVN_ERR_MEMORY;
        }
        g->room = bytes;
    }
    for (int i = 0; i < group->micro_batches; i++) {
        const bool here = i < g->present;
        g->part[i] = (lvni_tensor_part){.data = here && mine != NULL ? g->zeros : NULL,
                                        .number = here ? number : 0};
        if (here && mine != NULL) {
            g->part[i].desc = lvni_tensor_get_desc(mine);
        }
    }
    *parts = g->part;
    return LVN_OK;
}

lvn_status lvni_trainer_dry_group_create(int micro_batches, lvni_trainer_dry_group **out)
{
    *out = NULL;
    lvni_trainer_dry_group *g = LVNI_NEW(LVNI_TAG_TRAINER, lvni_trainer_dry_group);
    if (g == NULL) {
        return LVN_ERR_MEMORY;
    }
    g->group = (lvni_tensor_group){.micro_batches = micro_batches, .gather = sync_dry};
    g->part = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)micro_batches, sizeof *g->part);
    if (g->part == NULL) {
        lvni_core_free(g);
        return LVN_ERR_MEMORY;
    }
    *out = g;
    return LVN_OK;
}

void lvni_trainer_dry_group_destroy(lvni_trainer_dry_group *g)
{
    if (g != NULL) {
        lvni_core_free(g->zeros);
        lvni_core_free(g->part);
        lvni_core_free(g);
    }
}

const lvni_tensor_group *lvni_trainer_dry_group_get(lvni_trainer_dry_group *g, int present)
{
    g->present = present;
    return &g->group;
}
