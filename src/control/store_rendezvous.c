/* The rendezvous in the store: facts come in, lines name the missing ranks, and when all ranks are
 * present they get the table, or the error that names what does not fit. Facts are compared and
 * nodes numbered once, when the last rank has sent its own. */
#include "store_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"

#include <stdio.h>
#include <string.h>

/* ---- Comparing the facts ---- */

static const lvni_control_facts *facts_of(const lvni_control_store *store, int rank)
{
    return &store->ranks[rank].facts.facts;
}

static lvn_status check_versions(const lvni_control_store *store)
{
    const lvni_control_facts *a = facts_of(store, 0);
    for (int r = 1; r < store->o.world; r++) {
        const lvni_control_facts *b = facts_of(store, r);
        if (strcmp(a->version, b->version) != 0) {
            LVNI_CORE_FAIL_NUMBERED(
                LVN_ERR_USAGE, 116,
                "E116: the ranks run different versions of levin\n  found: rank 0 (%s): %s; "
                "rank %d (%s): %s\n  fix: install one version "
                "of levin on all nodes",
                a->host, a->version, r, b->host, b->version);
        }
    }
    return LVN_OK;
}

static lvn_status check_resume(const lvni_control_store *store)
{
    const lvni_control_facts *a = facts_of(store, 0);
    for (int r = 1; r < store->o.world; r++) {
        const lvni_control_facts *b = facts_of(store, r);
        if (a->resume_step != b->resume_step) {
            LVNI_CORE_FAIL_NUMBERED(
                LVN_ERR_USAGE, 118,
                "E118: the ranks resume from different steps (-1: from the beginning)\n  "
                "found: rank 0 (%s): step %lld; rank %d (%s): step "
                "%lld\n  fix: do all nodes see the same run directory?",
                a->host, (long long)a->resume_step, r, b->host, (long long)b->resume_step);
        }
    }
    return LVN_OK;
}

/* "sim:0", by its number on a host; others are known by what no other device has. */
static bool is_numbered(const char *device)
{
    const char *number = strchr(device, ':');
    return number != NULL && number[1] != '\0' &&
           number[1 + strspn(number + 1, "0123456789")] == '\0';
}

static bool share_a_device(const lvni_control_facts *a, const lvni_control_facts *b)
{
    return strcmp(a->device, b->device) == 0 && strcmp(a->boot_id, b->boot_id) == 0 &&
           (!is_numbered(a->device) || strcmp(a->host, b->host) == 0);
}

static lvn_status check_devices(const lvni_control_store *store)
{
    for (int r = 0; !store->o.allow_shared_device && r < store->o.world; r++) {
        const lvni_control_facts *a = facts_of(store, r);
        for (int q = r + 1; a->device[0] != '\0' && q < store->o.world; q++) {
            if (share_a_device(a, facts_of(store, q))) {
                LVNI_CORE_FAIL_NUMBERED(
                    LVN_ERR_RESOURCE, 105,
                    "E105: two ranks use one device\n  found: ranks %d and %d on %s: %s\n  "
                    "fix: check CUDA_VISIBLE_DEVICES and "
                    "--gpus-per-task; allow_shared_device=true lets ranks share one",
                    r, q, a->host, a->device);
            }
        }
    }
    return LVN_OK;
}

/* ---- Configurations: lines "key: value"; what is indented or begins with '-' belongs to the key
 * before it. ---- */

typedef struct config_entry {
    const char *key, *value;
    size_t key_len, value_len;
} config_entry;

/* The entry at *text, which moves on. False at the end. */
static bool next_entry(const char **text, config_entry *out)
{
    const char *at = *text;
    at += strspn(at, "\n");
    if (*at == '\0') {
        return false;
    }
    const char *end = at;
    do {
        end += strcspn(end, "\n");
        end += *end == '\n';
    } while (*end == ' ' || *end == '-');
    size_t len = (size_t)(end - at);
    while (len > 0 && at[len - 1] == '\n') {
        len--;
    }
    const char *colon = memchr(at, ':', len);
    *out = (config_entry){.key = at, .key_len = colon == NULL ? len : (size_t)(colon - at)};
    out->value = colon == NULL ? at + len : colon + 1;
    out->value_len = (size_t)(at + len - out->value);
    while (out->value_len > 0 && *out->value == ' ') {
        out->value++;
        out->value_len--;
    }
    *text = end;
    return true;
}

static bool find_entry(const char *text, const config_entry *key, config_entry *out)
{
    while (next_entry(&text, out)) {
        if (out->key_len == key->key_len && memcmp(out->key, key->key, key->key_len) == 0) {
            return true;
        }
    }
    return false;
}

static void put_value(lvni_core_str *out, const config_entry *e)
{
    enum { SHOWN = 40 };
    if (e == NULL) {
        lvni_core_str_append(out, "not there");
        return;
    }
    bool blank = true; /* what is spread over lines becomes one */
    for (size_t i = 0; i < e->value_len && i < SHOWN; i++) {
        const char c = e->value[i] == '\n' ? ' ' : e->value[i];
        if (c != ' ' || !blank) {
            lvni_core_str_char(out, c);
        }
        blank = c == ' ';
    }
    lvni_core_str_append(out, e->value_len > SHOWN ? "..." : "");
}

/* Appends "batch_size: 64 / 32; lr: 0.1 / not there". */
static void put_differences(lvni_core_str *out, const char *a, const char *b)
{
    enum { KEYS = 3 };
    int n = 0;
    for (int turn = 0; turn < 2; turn++) { /* then the keys that only the second one has */
        const char *at = turn == 0 ? a : b;
        config_entry e, other;
        while (next_entry(&at, &e)) {
            const bool found = find_entry(turn == 0 ? b : a, &e, &other);
            const bool same = found && e.value_len == other.value_len &&
                              memcmp(e.value, other.value, e.value_len) == 0;
            if (same || (turn == 1 && found) || ++n > KEYS) {
                continue;
            }
            lvni_core_str_append(out, n > 1 ? "; " : "");
            lvni_core_str_append_n(out, e.key, e.key_len < 60 ? e.key_len : 60);
            lvni_core_str_append(out, ": ");
            put_value(out, turn == 0 ? &e : NULL);
            lvni_core_str_append(out, " / ");
            put_value(out, turn == 1 ? &e : found ? &other : NULL);
        }
    }
    if (n > KEYS) {
        lvni_core_str_printf(out, "; and %d more keys", n - KEYS);
    }
}

static const char *config_of(const lvni_control_store *store, int rank)
{
    const lvni_control_facts_message *seen = &store->ranks[rank].facts;
    for (int r = 0; r < store->o.world; r++) {
        const lvni_control_facts_message *other = &store->ranks[r].facts;
        if (other->facts.config != NULL &&
            lvni_control_token_equal(&other->config_hash, &seen->config_hash)) {
            return other->facts.config;
        }
    }
    return "";
}

static lvn_status check_configs(const lvni_control_store *store)
{
    for (int r = 1; r < store->o.world; r++) {
        if (lvni_control_token_equal(&store->ranks[0].facts.config_hash,
                                     &store->ranks[r].facts.config_hash)) {
            continue;
        }
        lvni_core_str s = {0};
        put_differences(&s, config_of(store, 0), config_of(store, r));
        lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                      "E117: the ranks have different configurations\n  found: rank 0 (%s) / rank "
                      "%d (%s): %s\n  fix: give all ranks the same "
                      "options and files",
                      facts_of(store, 0)->host, r, facts_of(store, r)->host,
                      lvni_core_str_text(&s));
        lvni_core_error_number(117);
        lvni_core_str_free(&s);
        return LVN_ERR_USAGE;
    }
    return LVN_OK;
}

/* ---- Numbers of nodes ---- */

/* The host of every rank, numbered by the smallest rank on each. */
static void number_hosts(const lvni_control_store *store, lvni_control_member *members)
{
    int hosts = 0;
    for (int r = 0; r < store->o.world; r++) {
        const lvni_control_facts *f = facts_of(store, r);
        int host = -1;
        for (int q = r - 1; q >= 0 && host < 0; q--) { /* neighbours mostly share a host */
            const lvni_control_facts *g = facts_of(store, q);
            if (strcmp(f->boot_id, g->boot_id) == 0 && strcmp(f->host, g->host) == 0) {
                host = members[q].host_index;
            }
        }
        members[r].host_index = host < 0 ? hosts++ : host;
    }
}

static void number_nodes(const lvni_control_store *store, lvni_control_member *members)
{
    const int world = store->o.world;
    /* if one rank does not know its numbers, all are numbered by host */
    bool reported = true;
    for (int r = 0; r < world; r++) {
        const lvni_control_facts *f = facts_of(store, r);
        members[r] = (lvni_control_member){.rank = r,
                                           .cpus = f->cpus,
                                           .pid = f->pid,
                                           .host = f->host,
                                           .boot_id = f->boot_id,
                                           .device = f->device,
                                           .driver = f->driver,
                                           .fingerprint = f->fingerprint};
        reported = reported && f->local_rank >= 0 && f->node_rank >= 0 && f->local_rank < world &&
                   f->node_rank < world;
    }
    number_hosts(store, members);
    for (int r = 0; r < world; r++) {
        members[r].node_rank = reported ? facts_of(store, r)->node_rank : members[r].host_index;
    }
    for (int r = 0; r < world; r++) {
        int before = 0, all = 0;
        for (int q = 0; q < world; q++) {
            const bool same = members[q].node_rank == members[r].node_rank;
            all += same;
            before += same && q < r;
        }
        members[r].local_world = all;
        members[r].local_rank = reported ? facts_of(store, r)->local_rank : before;
    }
}

/* Numbers that a launcher gave must be possible: two ranks in one place would use one device. */
static lvn_status check_places(const lvni_control_store *store)
{
    for (int r = 0; r < store->o.world; r++) {
        const lvni_control_facts *a = facts_of(store, r);
        for (int q = r + 1; a->local_rank >= 0 && a->node_rank >= 0 && q < store->o.world; q++) {
            const lvni_control_facts *b = facts_of(store, q);
            if (a->local_rank == b->local_rank && a->node_rank == b->node_rank) {
                LVNI_CORE_FAIL_NUMBERED(
                    LVN_ERR_USAGE, 102,
                    "E102: two ranks have the same place\n  found: rank %d (%s, pid %lld) and "
                    "rank %d (%s, pid %lld): local rank %d on node %d",
                    r, a->host, (long long)a->pid, q, b->host, (long long)b->pid, a->local_rank,
                    a->node_rank);
            }
        }
    }
    return LVN_OK;
}

static lvn_status check_all(const lvni_control_store *store)
{
    LVN_TRY(check_versions(store));
    LVN_TRY(check_places(store));
    LVN_TRY(check_configs(store));
    LVN_TRY(check_resume(store));
    return check_devices(store);
}

/* ---- Taking them ---- */

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
            lvni_control_conn_reply_refused(rank->conn, rank->facts_id);
        }
    }
}

/* The texts into memory of their own. A configuration equal to another rank's is not kept again. */
static bool keep_facts(lvni_control_store *store, lvni_control_store_rank *rank,
                       const lvni_control_facts_message *seen, const unsigned char *body, size_t n)
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
    LVN_TRY(check_all(store));
    const int world = store->o.world;
    lvni_control_member *members =
        lvni_core_calloc(LVNI_TAG_CONTROL, (size_t)world, sizeof *members);
    if (members == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_core_str s = {0};
    number_nodes(store, members);
    lvn_status status = lvni_control_put_table(&s, members, world);
    if (status == LVN_OK) {
        store->table = lvni_control_blob_create(&s);
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
    lvni_control_facts_message seen;
    if (!lvni_control_scan_facts(&scan, &seen) || rank->have_facts) {
        lvni_control_conn_drop(conn, "it sent facts that cannot be read, or sent them twice");
        return;
    }
    if (store->phase == LVNI_STORE_REFUSED) {
        lvni_control_conn_reply_refused(conn, id);
        return;
    }
    if (!keep_facts(store, rank, &seen, frame->body, frame->n)) {
        lvni_control_conn_drop(conn, "the store has no memory for its facts");
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
    lvni_control_store_narrow(store);
    for (int r = 0; r < store->o.world; r++) {
        if (store->ranks[r].conn != NULL) {
            lvni_control_conn_reply(store->ranks[r].conn, store->ranks[r].facts_id, store->table);
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
        store->waiting_ns += lvni_control_ns(store->o.waiting_every_s);
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
