/* What the store finds in the facts of all ranks: who does not fit, and the numbers of nodes and
 * local ranks. Called once, when the last rank is there. */
#include "store_impl.h"

#include "core/notice.h"

#include <string.h>

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

static lvn_status check_devices(const lvni_control_store *store)
{
    for (int r = 0; !store->o.allow_shared_device && r < store->o.world; r++) {
        const lvni_control_facts *a = facts_of(store, r);
        for (int q = r + 1; a->device[0] != '\0' && q < store->o.world; q++) {
            const lvni_control_facts *b = facts_of(store, q);
            if (strcmp(a->device, b->device) == 0 && strcmp(a->boot_id, b->boot_id) == 0) {
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
    const lvni_control_facts_seen *seen = &store->ranks[rank].facts;
    for (int r = 0; r < store->o.world; r++) {
        const lvni_control_facts_seen *other = &store->ranks[r].facts;
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

void lvni_control_store_number(const lvni_control_store *store, lvni_control_member *members,
                               int *nodes)
{
    const int world = store->o.world;
    /* one rank that does not know its numbers, and all are numbered by host */
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
    *nodes = 0;
    for (int r = 0; r < world; r++) {
        members[r].node_rank = reported ? facts_of(store, r)->node_rank : members[r].host_index;
        *nodes = members[r].node_rank + 1 > *nodes ? members[r].node_rank + 1 : *nodes;
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

/* Told numbers must be possible: two ranks in one place would take one device. */
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

lvn_status lvni_control_store_check(const lvni_control_store *store)
{
    LVN_TRY(check_versions(store));
    LVN_TRY(check_places(store));
    LVN_TRY(check_configs(store));
    LVN_TRY(check_resume(store));
    return check_devices(store);
}
