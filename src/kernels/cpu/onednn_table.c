/* A chained hash table as a state of the context (onednn_table.h). */
#include "kernels/cpu/onednn_table.h"

#include "kernels/cpu/omp_team.h"
#include "kernels/cpu/onednn_version.h"
#include "tensor/ctx.h"

#include <string.h>

enum { BUCKETS = 256, MAX_ENTRIES = 1024 };

typedef struct entry {
    struct entry *next;
    lvni_cpu_dnn_key key;
    lvni_cpu_dnn_prim prim;
    int team;     /* to create and run with */
    bool refused; /* there is no primitive */
} entry;

typedef struct table {
    dnnl_stream_t stream;
    int count;
    entry *buckets[BUCKETS];
} table;

static void clear(table *t)
{
    for (int b = 0; b < BUCKETS; b++) {
        for (entry *e = t->buckets[b]; e != NULL;) {
            entry *next = e->next;
            lvni_cpu_dnn_prim_destroy(&e->prim);
            lvni_core_free(e);
            e = next;
        }
        t->buckets[b] = NULL;
    }
    t->count = 0;
}

static lvn_status begin_table(void *state)
{
    return lvni_cpu_dnn_stream(&((table *)state)->stream);
}

static void end_table(void *state)
{
    clear(state);
}

static const lvni_tensor_state_class table_class = {
    .bytes = sizeof(table), .begin = begin_table, .end = end_table};

static size_t bucket_of(const lvni_cpu_dnn_key *key)
{
    uint64_t words[sizeof *key / 8], h = 14695981039346656037u;
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        h = (h ^ words[i]) * 1099511628211u;
        h ^= h >> 29;
    }
    return (size_t)(h % BUCKETS);
}

static lvn_status implementation(const lvni_cpu_dnn_key *key, int64_t team, char name[128])
{
    const int before = lvni_cpu_omp_enter((int)team);
    const lvn_status s = lvni_cpu_dnn_implementation(&key->work, name);
    lvni_cpu_omp_leave(before);
    return s;
}

/* The lane's team where the bits are those of the fixed one: oneDNN may choose another
 * implementation for another team, so it must be the same for both and known not to depend on it
 * (onednn_version.c; tests/unit/kernels_cpu/test_onednn_teams.c keeps watch). */
static lvn_status choose_team(const lvni_cpu_dnn_key *key, const char *fixed, int *team)
{
    char lane[128];
    *team = (int)key->fixed_team;
    if (key->team == key->fixed_team || !lvni_cpu_dnn_same_for_every_team(&key->work, fixed)) {
        return LVN_OK;
    }
    LVN_TRY(implementation(key, key->team, lane));
    if (strcmp(lane, fixed) == 0) {
        *team = (int)key->team;
    }
    return LVN_OK;
}

static lvn_status make(const lvni_cpu_dnn_key *key, entry **out)
{
    int team = 1;
    char fixed[128] = "";
    /* else its name decides nothing, and a start has no time to lose */
    if (key->team != key->fixed_team || (key->work.low != 0 && key->work.op != LVNI_DNN_MATMUL)) {
        LVN_TRY(implementation(key, key->fixed_team, fixed));
    }
    LVN_TRY(choose_team(key, fixed, &team));
    entry *e = LVNI_NEW(LVNI_TAG_KERNEL, entry);
    if (e == NULL) {
        return lvn_last_error()->code;
    }
    e->key = *key;
    e->team = team;
    e->refused = lvni_cpu_dnn_is_wrong(&key->work, fixed);
    if (e->refused) {
        *out = e;
        return LVN_OK;
    }
    const int before = lvni_cpu_omp_enter(team);
    const lvn_status s = lvni_cpu_dnn_create(&key->work, &e->prim);
    lvni_cpu_omp_leave(before);
    if (s != LVN_OK) {
        lvni_core_free(e);
        return s;
    }
    e->refused = e->prim.primitive == NULL;
    *out = e;
    return LVN_OK;
}

static entry *find(entry *e, const lvni_cpu_dnn_key *key)
{
    while (e != NULL && memcmp(&e->key, key, sizeof *key) != 0) {
        e = e->next;
    }
    return e;
}

lvn_status lvni_cpu_dnn_lookup(const lvni_cpu_dnn_key *key, lvni_cpu_dnn_found *found)
{
    table *t = lvni_tensor_ctx_state(&table_class);
    if (t == NULL) {
        return lvn_last_error()->code;
    }
    entry **head = &t->buckets[bucket_of(key)], *e = find(*head, key);
    if (e == NULL) {
        if (t->count == MAX_ENTRIES) {
            /* images of ever new sizes; making them again is quick while oneDNN still has the
             * code */
            clear(t);
        }
        LVN_TRY(make(key, &e));
        if (e == NULL) {
            LVN_FAIL(LVN_ERR_INTERNAL, "a primitive was made and is not there");
        }
        e->next = *head;
        *head = e;
        t->count++;
    }
    *found = (lvni_cpu_dnn_found){
        .prim = &e->prim, .stream = t->stream, .team = e->team, .refused = e->refused};
    return LVN_OK;
}
