/* The rendezvous: facts come in, lines name who is missing, and when all are there everybody gets
 * the table, or the sentence that says what does not fit. */
#include "store_impl.h"

#include "core/alloc.h"
#include "core/clock.h"

#include <stdio.h>
#include <string.h>

/* The ranks of one host as "4-7, 9", marked as named. */
static void put_ranges(const lvni_control_store *store, lvni_core_str *out, bool *todo,
                       const char *host)
{
    const int world = store->o.world;
    bool first = true;
    for (int r = 0; r < world; r++) {
        if (!todo[r] || (host != NULL && strcmp(store->rank_hosts[r], host) != 0)) {
            continue;
        }
        int last = r;
        todo[r] = false;
        while (last + 1 < world && todo[last + 1] &&
               (host == NULL || strcmp(store->rank_hosts[last + 1], host) == 0)) {
            todo[++last] = false;
        }
        lvni_core_str_printf(out, last > r ? "%s%d-%d" : "%s%d", first ? "" : ",", r, last);
        first = false;
        r = last;
    }
}

void lvni_control_store_name_ranks(const lvni_control_store *store, lvni_core_str *out,
                                   bool (*want)(const lvni_control_store_rank *rank,
                                                const void *arg),
                                   const void *arg)
{
    enum { HOSTS = 8 };
    const int world = store->o.world;
    bool *todo = lvni_core_calloc(LVNI_TAG_CONTROL, (size_t)world, sizeof *todo);
    int n = 0, hosts = 0, left = 0;
    if (todo == NULL) {
        out->failed = true;
        return;
    }
    for (int r = 0; r < world; r++) {
        todo[r] = want(&store->ranks[r], arg);
        n += todo[r];
    }
    lvni_core_str_append(out, n == 1 ? "rank " : "ranks ");
    for (int r = 0; r < world; r++) {
        if (!todo[r]) {
            continue;
        }
        if (hosts == HOSTS) {
            left++;
            continue;
        }
        lvni_core_str_append(out, hosts++ > 0 ? ", " : "");
        put_ranges(store, out, todo, store->rank_hosts == NULL ? NULL : store->rank_hosts[r]);
        if (store->rank_hosts != NULL) {
            lvni_core_str_printf(out, " (node %s)", store->rank_hosts[r]);
        }
    }
    if (left > 0) {
        lvni_core_str_printf(out, " and %d more", left);
    }
    lvni_core_free(todo);
}

static bool has_no_facts(const lvni_control_store_rank *rank, const void *arg)
{
    (void)arg;
    return !rank->have_facts;
}

void lvni_control_store_refuse_all(lvni_control_store *store, lvn_status status, int number,
                                   const char *message)
{
    if (store->phase != LVNI_STORE_RENDEZVOUS) {
        return;
    }
    store->phase = LVNI_STORE_REFUSED;
    store->refused_status = status;
    store->refused_number = number;
    snprintf(store->refused, sizeof store->refused, "%s", message);
    for (int r = 0; r < store->o.world; r++) {
        const lvni_control_store_rank *rank = &store->ranks[r];
        if (rank->have_facts && rank->conn != NULL) {
            lvni_control_store_reply_refused(rank->conn, rank->facts_id);
        }
    }
}

/* The texts into memory of their own. A configuration that another rank has brought already is not
 * kept again. */
static bool keep_facts(lvni_control_store *store, lvni_control_store_rank *rank,
                       const lvni_control_facts_seen *seen, const unsigned char *body, size_t n)
{
    const char *from = (const char *)body;
    size_t keep = n;
    bool known = false;
    for (int r = 0; r < store->o.world && !known; r++) {
        const lvni_control_store_rank *other = &store->ranks[r];
        known = other->have_facts && other->facts.facts.config != NULL &&
                lvni_control_token_equal(&other->facts.config_hash, &seen->config_hash);
    }
    if (known) {
        keep = (size_t)(seen->facts.config - from);
    }
    char *block = lvni_core_alloc(LVNI_TAG_CONTROL, keep);
    if (block == NULL) {
        return false;
    }
    memcpy(block, body, keep);
    rank->facts = *seen;
    lvni_control_facts *f = &rank->facts.facts;
    const char **const texts[] = {&f->host,   &f->boot_id,     &f->version, &f->device,
                                  &f->driver, &f->fingerprint, &f->config};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        *texts[i] = block + (*texts[i] - from);
    }
    f->config = known ? NULL : f->config;
    rank->facts_block = block;
    return true;
}

/* The last one is there. */
static lvn_status complete(lvni_control_store *store)
{
    LVN_TRY(lvni_control_store_check(store));
    const int world = store->o.world;
    lvni_control_member *members =
        lvni_core_calloc(LVNI_TAG_CONTROL, (size_t)world, sizeof *members);
    if (members == NULL) {
        return LVN_ERR_MEMORY;
    }
    int nodes = 0;
    lvni_core_str s = {0};
    lvni_control_store_number(store, members, &nodes);
    lvn_status status = lvni_control_put_table(&s, members, world, nodes);
    if (status == LVN_OK) {
        store->table = lvni_control_store_blob(&s);
        status = store->table == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    lvni_core_str_free(&s);
    lvni_core_free(members);
    return status;
}

void lvni_control_store_take_facts(lvni_control_conn *conn, const lvni_control_frame *frame)
{
    lvni_control_store *store = conn->store;
    lvni_control_store_rank *rank = &store->ranks[conn->rank];
    lvni_control_scan scan = lvni_control_scan_of(frame);
    const uint32_t id = lvni_control_scan_u32(&scan);
    lvni_control_facts_seen seen;
    if (!lvni_control_scan_facts(&scan, &seen) || rank->have_facts) {
        lvni_control_store_drop(conn, "it sent facts that cannot be read, or sent them twice");
        return;
    }
    if (store->phase == LVNI_STORE_REFUSED) {
        lvni_control_store_reply_refused(conn, id);
        return;
    }
    if (!keep_facts(store, rank, &seen, frame->body, frame->n)) {
        lvni_control_store_drop(conn, "the store has no memory for its facts");
        return;
    }
    rank->facts_id = id;
    rank->have_facts = true;
    if (++store->n_facts < store->o.world) {
        return;
    }
    const lvn_status status = complete(store);
    if (status != LVN_OK) {
        lvni_control_store_refuse_all(store, status, lvn_last_error()->number,
                                      lvn_last_error()->message);
        return;
    }
    store->phase = LVNI_STORE_JOINED;
    for (int r = 0; r < store->o.world; r++) {
        if (store->ranks[r].conn != NULL) {
            lvni_control_store_answer(store->ranks[r].conn, store->ranks[r].facts_id, store->table);
        }
    }
}

void lvni_control_store_rendezvous_tick(lvni_control_store *store, uint64_t now_ns)
{
    if (store->phase != LVNI_STORE_RENDEZVOUS || store->over) {
        return;
    }
    const int world = store->o.world;
    const double waited = (double)(now_ns - store->begin_ns) / 1e9;
    lvni_core_str missing = {0}, line = {0};
    if (waited >= store->o.rdzv_timeout_s) {
        lvni_control_store_name_ranks(store, &missing, has_no_facts, NULL);
        lvni_core_str_printf(
            &line,
            "E113: not all ranks came within %.0f s\n  found: %s missing; %d of %d "
            "present\n  fix: look at the output of those "
            "that are missing, and whether their hosts reach %s, port %d",
            store->o.rdzv_timeout_s, lvni_core_str_text(&missing), store->n_facts, world,
            store->reached_at, store->port);
        lvni_control_store_refuse_all(store, LVN_ERR_TIMEOUT, 113, lvni_core_str_text(&line));
    } else if (now_ns >= store->waiting_ns) {
        store->waiting_ns += lvni_control_store_ns(store->o.waiting_every_s);
        lvni_control_store_name_ranks(store, &missing, has_no_facts, NULL);
        lvni_core_str_printf(&line, "waiting %.0f s for %s; %d of %d present", waited,
                             lvni_core_str_text(&missing), store->n_facts, world);
        if (store->o.report != NULL && lvni_core_str_status(&line) == LVN_OK) {
            store->o.report(store->o.user, lvni_core_str_text(&line));
        }
    }
    lvni_core_str_free(&missing);
    lvni_core_str_free(&line);
}
