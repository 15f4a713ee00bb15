/* How parts of the ranks connect among themselves over the one exchange of all ranks
 * (levels_impl.h). Every exchange of a part is two of all: the state and size of each rank's card,
 * then the cards. Ranks that are done, or in no part, go on taking part until the last one is done.
 */
#include "dist/levels/levels_impl.h"

#include "core/alloc.h"

#include <string.h>

typedef enum state { CONNECTS, IS_DONE, HAS_FAILED } state;

/* What a rank gives first. */
typedef struct head {
    int32_t state, status; /* status: of HAS_FAILED */
    uint64_t bytes;        /* of its card */
} head;

typedef struct round_of_all {
    const lvni_levels_group *group;
    head *all;  /* world */
    char *card; /* world + 1 cards, the last one this rank's */
    size_t room;
} round_of_all;

/* One exchange of all ranks. *widest: bytes of the cards, which are in r->card. */
static lvn_status take_round(round_of_all *r, head mine, const void *card, size_t *widest)
{
    const lvni_dist_comm_options *o = r->group->all;
    const size_t world = (size_t)o->world;
    LVN_TRY(o->exchange(o->user, &mine, sizeof mine, r->all));
    *widest = 0;
    for (size_t rank = 0; rank < world; rank++) {
        *widest = r->all[rank].bytes > *widest ? r->all[rank].bytes : *widest;
    }
    if (*widest == 0) {
        return LVN_OK;
    }
    if (*widest * (world + 1) > r->room) {
        lvni_core_free(r->card);
        r->room = *widest * (world + 1);
        r->card = lvni_core_calloc(LVNI_TAG_DIST, 1, r->room);
    }
    if (r->card == NULL) {
        r->room = 0;
        return LVN_ERR_MEMORY; /* the others learn of it when this process ends, as of any end */
    }
    char *own = r->card + world * *widest;
    memset(own, 0, *widest);
    if (card != NULL) {
        memcpy(own, card, mine.bytes);
    }
    return o->exchange(o->user, own, *widest, r->card);
}

static lvn_status failure_of(const round_of_all *r, int rank)
{
    const lvn_status theirs = (lvn_status)r->all[rank].status;
    LVN_FAIL(theirs, "rank %d cannot connect to the others: %s", rank, lvn_status_text(theirs));
}

/* The exchange of a part. */
static lvn_status exchange(void *user, const void *mine, size_t bytes, void *all)
{
    round_of_all *r = user;
    size_t widest;
    LVN_TRY(take_round(r, (head){.state = CONNECTS, .bytes = bytes}, mine, &widest));
    for (int i = 0; i < r->group->n; i++) {
        const int rank = r->group->member[i];
        if (r->all[rank].state == HAS_FAILED) {
            return failure_of(r, rank);
        }
        LVN_ARG(r->all[rank].state == CONNECTS && r->all[rank].bytes == bytes,
                "rank %d gives %zu bytes to connect, not %zu", rank, (size_t)r->all[rank].bytes,
                bytes);
        memcpy((char *)all + (size_t)i * bytes, r->card + (size_t)rank * widest, bytes);
    }
    return LVN_OK;
}

static bool is_over(void *user)
{
    const lvni_dist_comm_options *o = ((const round_of_all *)user)->group->all;
    return o->over != NULL && o->over(o->user);
}

static void fail(void *user)
{
    const lvni_dist_comm_options *o = ((const round_of_all *)user)->group->all;
    o->fail(o->user);
}

/* Until all ranks are done; the first that failed decides. */
static lvn_status take_part(round_of_all *r, lvn_status mine)
{
    const head own = {.state = mine == LVN_OK ? IS_DONE : HAS_FAILED, .status = (int32_t)mine};
    int first = -1;
    for (bool all_done = false; !all_done;) {
        size_t widest;
        LVN_TRY(take_round(r, own, NULL, &widest));
        all_done = true;
        first = -1;
        for (int rank = r->group->all->world - 1; rank >= 0; rank--) {
            all_done = all_done && r->all[rank].state != CONNECTS;
            first = r->all[rank].state == HAS_FAILED ? rank : first;
        }
    }
    LVN_TRY(mine);
    return first < 0 ? LVN_OK : failure_of(r, first);
}

lvn_status lvni_levels_connect(const lvni_levels_group *group, int rank, const int *host,
                               lvni_levels_connecting make, lvni_dist_comm **out)
{
    const lvni_dist_comm_options *all = group->all;
    round_of_all r = {.group = group};
    *out = NULL;
    r.all = lvni_core_calloc(LVNI_TAG_DIST, (size_t)all->world, sizeof *r.all);
    if (r.all == NULL) {
        return LVN_ERR_MEMORY; /* the others learn of it when this process ends, as of any end */
    }
    const lvni_dist_comm_options o = {.rank = rank,
                                      .world = group->n,
                                      .exchange = exchange,
                                      .address = all->address,
                                      .over = is_over,
                                      .fail = all->fail != NULL ? fail : NULL,
                                      .user = &r,
                                      .peer_timeout_s = all->peer_timeout_s,
                                      .host = host,
                                      .number = group->member};
    lvn_status s = make != NULL ? make(&o, out) : LVN_OK;
    const lvn_error error = *lvn_last_error();
    const lvn_status together = take_part(&r, s);
    if (s != LVN_OK) {
        lvn_error_adopt(&error);
    } else if (together != LVN_OK) {
        s = together;
        const lvn_error theirs = *lvn_last_error();
        lvni_dist_comm_destroy(*out);
        *out = NULL;
        lvn_error_adopt(&theirs);
    }
    lvni_core_free(r.all);
    lvni_core_free(r.card);
    return s;
}
