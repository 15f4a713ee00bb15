/* Rounds (shm_impl.h), waiting, and what a rank finds out while it waits: that another one died,
 * left, or gave up. */
#include "core/machine.h"
#include "dist/shm/shm_impl.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 50 };
/* more than it takes to wake a thread whose core has gone to sleep: 50 to 100 us in a virtual
 * machine */
static const uint64_t SPIN_NS = 200000;
static const uint64_t LOOK_NS = (uint64_t)LOOK_MS * 1000000;

bool lvni_shm_claim(lvni_dist_comm *comm, bool cut_off)
{
    (void)cut_off;
    return atomic_exchange(&((lvni_shm_comm *)comm)->control->claimed, 1) == 0;
}

/* ---- giving up ---- */

void lvni_shm_ring(lvni_dist_comm *comm)
{
    lvni_dist_doorbell_ring(&((lvni_shm_comm *)comm)->control->bell);
}

void lvni_shm_abort(lvni_dist_comm *comm, int first, const char *why)
{
    lvni_shm_control *control = ((lvni_shm_comm *)comm)->control;
    int32_t none = 0;
    if (atomic_compare_exchange_strong(&control->aborted, &none, 1)) {
        control->first = first;
        snprintf(control->why, sizeof control->why, "%s", why);
        atomic_store(&control->aborted, 2);
        lvni_shm_ring(comm);
    }
}

int lvni_shm_first_failed(const lvni_dist_comm *comm)
{
    const lvni_shm_control *control = ((const lvni_shm_comm *)comm)->control;
    return atomic_load(&control->aborted) == 2 ? control->first : -1;
}

lvn_status lvni_shm_health(lvni_dist_comm *comm)
{
    lvni_shm_control *control = ((lvni_shm_comm *)comm)->control;
    if (atomic_load(&control->aborted) == 0) {
        return LVN_OK;
    }
    for (int ms = 0; ms < LOOK_MS && atomic_load(&control->aborted) == 1; ms++) {
        /* who writes the reason may have died over it */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    LVN_FAIL(LVN_ERR_PEER, "%-s",
             atomic_load(&control->aborted) == 2
                 ? control->why
                 : "another rank failed and died before it could write the reason");
}

static bool process_ended(const lvni_shm_comm *c, int rank)
{
    if (c->pidfd == NULL || rank == c->base.rank) {
        return false;
    }
    if (c->pidfd[rank] >= 0) {
        /* readable from the moment it ends, also while its parent has not asked for it */
        struct pollfd p = {.fd = c->pidfd[rank], .events = POLLIN};
        return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
    }
    return kill(c->control->slot[rank].pid, 0) != 0 && errno == ESRCH;
}

/* Looks at those the wait needs. What a rank did before it went counts: it may have arrived
 * before. */
static void look_at_others(lvni_shm_comm *c, const lvni_dist_wait *wait)
{
    char why[LVNI_SHM_WHY];
    for (int rank = 0; rank < c->base.world; rank++) {
        const lvni_shm_slot *slot = &c->control->slot[rank];
        const int number = lvni_dist_comm_number(&c->base, rank);
        if (rank == c->base.rank || !wait->needs(wait->user, rank)) {
            continue;
        }
        const bool left = atomic_load(&slot->left) != 0;
        if ((left || process_ended(c, rank)) && wait->needs(wait->user, rank)) {
            if (left) {
                snprintf(why, sizeof why, "rank %d left while rank %d still waited for it", number,
                         lvni_dist_comm_number(&c->base, c->base.rank));
            } else {
                snprintf(why, sizeof why, "rank %d died (process %d)", number, (int)slot->pid);
            }
            lvni_shm_abort(&c->base, -1, why);
            return;
        }
    }
}

/* ---- waiting ---- */

/* Looks again and again for a while; true: it is over. Where ranks share cores each look lets
 * another one run; where they need not, they may still be put on one core for a time: after some 10
 * us others are let in, too. */
static bool spin(const lvni_shm_comm *c, const lvni_dist_wait *wait)
{
    enum { LOOKS = 64, ALONE = 3 };
    const uint64_t start = lvni_core_now_ns();
    for (int batch = 0; batch == 0 || lvni_core_now_ns() - start < SPIN_NS; batch++) {
        for (int i = 0; i < (c->own_core ? LOOKS : 1); i++) {
            if (wait->over(wait->user)) {
                return true;
            }
            lvni_dist_doorbell_pause();
        }
        if (!c->own_core || batch >= ALONE) {
            sched_yield();
        }
    }
    return false;
}

lvn_status lvni_shm_wait(lvni_dist_comm *comm, const lvni_dist_wait *wait)
{
    lvni_shm_comm *c = (lvni_shm_comm *)comm;
    lvni_dist_doorbell *bell = &c->control->bell;
    if (spin(c, wait)) {
        return LVN_OK;
    }
    lvn_status status = LVN_OK;
    uint64_t looked_ns = lvni_core_now_ns(); /* at the others' processes */
    lvni_dist_doorbell_enter(bell);
    for (;;) {
        const uint32_t seen = lvni_dist_doorbell_seen(bell);
        if (wait->over(wait->user)) {
            break;
        }
        status = lvni_shm_health(comm);
        if (status != LVN_OK) {
            break;
        }
        lvni_dist_doorbell_sleep(bell, seen, LOOK_MS);
        if (lvni_core_now_ns() - looked_ns >= LOOK_NS) {
            look_at_others(c, wait);
            looked_ns = lvni_core_now_ns();
        }
    }
    lvni_dist_doorbell_leave(bell);
    return status;
}

static bool round_needs(void *user, int rank)
{
    const lvni_shm_comm *c = user;
    return (int32_t)(atomic_load(&c->control->slot[rank].arrived) - c->round) < 0;
}

static bool round_over(void *user)
{
    const lvni_shm_comm *c = user;
    return lvni_dist_wait_is_over(&c->base, round_needs, user);
}

lvn_status lvni_shm_round(lvni_shm_comm *c)
{
    const lvni_dist_wait wait = {.over = round_over, .needs = round_needs, .user = c};
    atomic_store(&c->control->slot[c->base.rank].arrived, c->round);
    if (round_over(c)) {
        /* the last one wakes the others */
        lvni_shm_ring(&c->base);
    } else {
        LVN_TRY(lvni_shm_wait(&c->base, &wait));
    }
    c->round++;
    return LVN_OK;
}

lvn_status lvni_shm_agree(lvni_dist_comm *comm, const lvni_dist_call *call)
{
    lvni_shm_comm *c = (lvni_shm_comm *)comm;
    const uint32_t parity = c->round & 1;
    c->control->slot[comm->rank].call[parity] = *call;
    LVN_TRY(lvni_shm_round(c));
    return lvni_dist_compare_calls(&c->control->slot[0].call[parity], sizeof(lvni_shm_slot),
                                   comm->world);
}

lvn_status lvni_shm_places(lvni_shm_comm *c, const void *in, size_t in_bytes, const void *out,
                           size_t out_bytes, const lvni_dist_region **in_region,
                           const lvni_dist_region **out_region)
{
    lvni_shm_place *mine = &c->control->slot[c->base.rank].place[c->round & 1];
    size_t in_offset = 0, out_offset = 0;
    *in_region = *out_region = NULL;
    *mine = (lvni_shm_place){0};
    (void)lvni_dist_comm_find(&c->base, in, in_bytes, in_region, &mine->in, &in_offset);
    (void)lvni_dist_comm_find(&c->base, out, out_bytes, out_region, &mine->out, &out_offset);
    mine->in_offset = in_offset;
    mine->out_offset = out_offset;
    LVN_TRY(lvni_shm_round(c));
    for (int rank = 0; rank < c->base.world; rank++) {
        const lvni_shm_place *other = lvni_shm_place_of(c, rank);
        *in_region = other->in == mine->in ? *in_region : NULL;
        *out_region = other->out == mine->out ? *out_region : NULL;
    }
    return LVN_OK;
}

const lvni_shm_place *lvni_shm_place_of(const lvni_shm_comm *c, int rank)
{
    return &c->control->slot[rank].place[(c->round - 1) & 1];
}
