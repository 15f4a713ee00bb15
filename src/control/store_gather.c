/* Gathers: every rank brings bytes, and when the last has come all get all. */
#include "store_impl.h"

#include "core/alloc.h"
#include "core/clock.h"

#include <stdio.h>
#include <string.h>

typedef struct gather_part {
    bool here;
    uint32_t id;
    char *data;
    size_t n;
} gather_part;

struct lvni_control_pending_gather {
    lvni_control_pending_gather *next;
    int n_here;
    size_t bytes;
    uint64_t began_ns, until_ns; /* the end of the shortest patience */
    char name[LVNI_CONTROL_MAX_KEY + 1];
    gather_part parts[]; /* world */
};

static lvni_control_pending_gather *gather_of(lvni_control_store *store, const char *name)
{
    for (lvni_control_pending_gather *g = store->gathers; g != NULL; g = g->next) {
        if (strcmp(g->name, name) == 0) {
            return g;
        }
    }
    const size_t world = (size_t)store->o.world;
    lvni_control_pending_gather *g =
        lvni_core_calloc(LVNI_TAG_CONTROL, 1, sizeof *g + world * sizeof *g->parts);
    if (g != NULL) {
        snprintf(g->name, sizeof g->name, "%s", name);
        g->began_ns = lvni_core_now_ns();
        g->until_ns = UINT64_MAX;
        g->next = store->gathers;
        store->gathers = g;
    }
    return g;
}

static void unlink_gather(lvni_control_store *store, const lvni_control_pending_gather *gather)
{
    lvni_control_pending_gather **at = &store->gathers;
    while (*at != gather) {
        at = &(*at)->next;
    }
    *at = gather->next;
}

static void free_gather(const lvni_control_store *store, lvni_control_pending_gather *gather)
{
    for (int r = 0; r < store->o.world; r++) {
        lvni_core_free(gather->parts[r].data);
    }
    lvni_core_free(gather);
}

/* Ends a gather for all who wait in it: with the answer, or with a status and a message. */
static void end_gather(lvni_control_store *store, lvni_control_pending_gather *gather,
                       lvni_control_blob *answer, lvn_status status, const char *message)
{
    unlink_gather(store, gather); /* answers may drop connections, which look at the list */
    for (int r = 0; r < store->o.world; r++) {
        lvni_control_conn *conn = store->ranks[r].conn;
        if (!gather->parts[r].here || conn == NULL) {
            continue;
        }
        if (answer != NULL) {
            lvni_control_store_answer(conn, gather->parts[r].id, answer);
        } else {
            lvni_control_store_reply(conn, gather->parts[r].id, status, message);
        }
    }
    free_gather(store, gather);
}

static void complete_gather(lvni_control_store *store, lvni_control_pending_gather *gather)
{
    if (gather->bytes + 4 * (size_t)store->o.world + 64 > LVNI_FRAME_MAX_TO_RANK) {
        end_gather(store, gather, NULL, LVN_ERR_INVALID,
                   "a gather holds at most 512 MiB of all ranks together");
        return;
    }
    lvni_core_str s = {0};
    for (int r = 0; r < store->o.world; r++) {
        lvni_control_put_bytes(&s, gather->parts[r].data, gather->parts[r].n);
    }
    lvni_control_blob *answer = lvni_control_store_blob(&s);
    lvni_core_str_free(&s);
    end_gather(store, gather, answer, LVN_ERR_MEMORY,
               "the store has no memory for what the ranks gather");
    lvni_control_store_unref(answer);
}

/* Who will never come to it: a rank that has left. -1: nobody. */
static int missing_for_good(const lvni_control_store *store,
                            const lvni_control_pending_gather *gather)
{
    for (int r = 0; r < store->o.world; r++) {
        if (!gather->parts[r].here && store->ranks[r].state == LVNI_RANK_LEFT) {
            return r;
        }
    }
    return -1;
}

static void end_without(lvni_control_store *store, lvni_control_pending_gather *gather, int rank)
{
    char message[LVNI_CONTROL_MAX_KEY + 100];
    snprintf(message, sizeof message, "gather '%s' cannot end: rank %d has left the run",
             gather->name, rank);
    end_gather(store, gather, NULL, LVN_ERR_PEER, message);
}

void lvni_control_store_gather(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_store *store = conn->store;
    lvni_control_pending_request r = lvni_control_store_request(frame);
    const uint32_t ms = lvni_control_scan_u32(&r.scan);
    size_t n = 0;
    const char *bytes = lvni_control_scan_bytes(&r.scan, &n);
    if (!lvni_control_scan_done(&r.scan)) {
        lvni_control_store_drop(conn, "it sent a part of a gather that cannot be read");
        return;
    }
    lvni_control_pending_gather *gather = gather_of(store, r.key);
    gather_part *part = gather == NULL ? NULL : &gather->parts[conn->rank];
    if (part != NULL && part->here) {
        lvni_control_store_reply(conn, r.id, LVN_ERR_INVALID,
                                 "this rank is in a gather of the same name already");
        return;
    }
    char *data = part == NULL ? NULL : lvni_core_alloc(LVNI_TAG_CONTROL, n);
    if (part == NULL || data == NULL) {
        lvni_control_store_reply(conn, r.id, LVN_ERR_MEMORY,
                                 "the store has no memory for a part of a gather");
        return;
    }
    memcpy(data, bytes, n);
    *part = (gather_part){.here = true, .id = r.id, .data = data, .n = n};
    gather->bytes += n;
    const uint64_t until = lvni_core_now_ns() + (uint64_t)ms * 1000000;
    gather->until_ns = until < gather->until_ns ? until : gather->until_ns;
    const int gone = missing_for_good(store, gather);
    if (++gather->n_here == store->o.world) {
        complete_gather(store, gather);
    } else if (gone >= 0) {
        end_without(store, gather, gone);
    }
}

void lvni_control_store_rank_left_gathers(lvni_control_store *store, int rank)
{
    for (lvni_control_pending_gather *g = store->gathers; g != NULL;) {
        if (g->parts[rank].here) {
            g = g->next;
            continue;
        }
        end_without(store, g, rank);
        g = store->gathers; /* the list may be another one now */
    }
}

static bool not_in_gather(const lvni_control_store_rank *rank, const void *arg)
{
    const lvni_control_pending_gather *gather = ((const void *const *)arg)[0];
    const lvni_control_store_rank *first = ((const void *const *)arg)[1];
    return !gather->parts[rank - first].here;
}

void lvni_control_store_gathers_tick(lvni_control_store *store, uint64_t now_ns)
{
    for (lvni_control_pending_gather *g = store->gathers; g != NULL;) {
        if (now_ns < g->until_ns) {
            g = g->next;
            continue;
        }
        lvni_core_str s = {0};
        const void *const arg[2] = {g, store->ranks};
        lvni_core_str_printf(&s, "gather '%s': ", g->name);
        lvni_control_store_name_ranks(store, &s, not_in_gather, arg);
        lvni_core_str_printf(&s, " did not come within %.1f s",
                             (double)(g->until_ns - g->began_ns) / 1e9);
        end_gather(store, g, NULL, LVN_ERR_TIMEOUT, lvni_core_str_text(&s));
        lvni_core_str_free(&s);
        g = store->gathers;
    }
}

void lvni_control_store_free_gathers(lvni_control_store *store)
{
    while (store->gathers != NULL) {
        lvni_control_pending_gather *g = store->gathers;
        store->gathers = g->next;
        free_gather(store, g);
    }
}
