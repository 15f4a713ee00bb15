/* Pinned choices that backends record (pins.h): a list in the order of keys, under a lock. There
 * are some hundreds at most, and a backend keeps what it has looked up. */
#include "core/alloc.h"
#include "core/pins.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

typedef struct entry {
    struct entry *next;
    char key[LVNI_PIN_TEXT], value[LVNI_PIN_TEXT];
} entry;

struct lvni_core_pin_entries {
    pthread_mutex_t lock; /* a leaf lock */
    entry *first;
    uint64_t list;
    _Atomic uint64_t n;
    lvni_core_pin_agree agree;
    void *user;
};

lvn_status lvni_core_pin_entries_create(lvni_core_pin_entries **out)
{
    *out = LVNI_NEW(LVNI_TAG_CONFIG, lvni_core_pin_entries);
    if (*out == NULL) {
        return LVN_ERR_MEMORY;
    }
    static _Atomic uint64_t lists;
    (*out)->list = atomic_fetch_add(&lists, 1) + 1;
    pthread_mutex_init(&(*out)->lock, NULL);
    return LVN_OK;
}

uint64_t lvni_core_pin_entries_list(const lvni_core_pin_entries *e)
{
    return e->list;
}

uint64_t lvni_core_pin_entries_version(lvni_core_pin_entries *e)
{
    return e->list << 32 | (atomic_load_explicit(&e->n, memory_order_acquire) & UINT32_MAX);
}

void lvni_core_pin_entries_destroy(lvni_core_pin_entries *e)
{
    if (e == NULL) {
        return;
    }
    while (e->first != NULL) {
        entry *next = e->first->next;
        lvni_core_free(e->first);
        e->first = next;
    }
    pthread_mutex_destroy(&e->lock);
    lvni_core_free(e);
}

void lvni_core_pin_entries_agree_by(lvni_core_pin_entries *e, lvni_core_pin_agree agree, void *user)
{
    e->agree = agree;
    e->user = user;
}

static bool is_text(const char *s, size_t n)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-+:/";
    return n > 0 && n < LVNI_PIN_TEXT && strspn(s, allowed) >= n;
}

static bool is_key(const char *s, size_t n)
{
    const char *dot = memchr(s, '.', n);
    return is_text(s, n) && dot != NULL && dot > s && dot < s + n - 1;
}

/* The place of the key's entry, or where it would be. */
static entry **place_of(lvni_core_pin_entries *e, const char *key)
{
    entry **at = &e->first;
    while (*at != NULL && strcmp((*at)->key, key) < 0) {
        at = &(*at)->next;
    }
    return at;
}

static entry *find(lvni_core_pin_entries *e, const char *key)
{
    entry *at = *place_of(e, key);
    return at != NULL && strcmp(at->key, key) == 0 ? at : NULL;
}

const char *lvni_core_pin_entries_get(lvni_core_pin_entries *e, const char *key)
{
    pthread_mutex_lock(&e->lock);
    const entry *at = find(e, key);
    pthread_mutex_unlock(&e->lock);
    return at == NULL ? NULL : at->value;
}

/* The value that stays; NULL when memory is out. */
static const char *keep(lvni_core_pin_entries *e, const char *key, const char *value)
{
    pthread_mutex_lock(&e->lock);
    entry *at = find(e, key);
    if (at == NULL) {
        at = LVNI_NEW(LVNI_TAG_CONFIG, entry);
        if (at != NULL) {
            entry **place = place_of(e, key);
            snprintf(at->key, LVNI_PIN_TEXT, "%s", key);
            snprintf(at->value, LVNI_PIN_TEXT, "%s", value);
            at->next = *place;
            *place = at;
            atomic_fetch_add_explicit(&e->n, 1, memory_order_release);
        }
    }
    pthread_mutex_unlock(&e->lock);
    return at == NULL ? NULL : at->value;
}

lvn_status lvni_core_pin_entries_record(lvni_core_pin_entries *e, const char *key,
                                        const char *value, const char **counts)
{
    char agreed[LVNI_PIN_TEXT];
    LVN_ARG(is_key(key, strlen(key)), "%s is not the key of a pinned choice: backend.name", key);
    LVN_ARG(is_text(value, strlen(value)),
            "%s=%s: not the value of a pinned choice: 1 to %d "
            "letters, digits and . _ - + : /",
            key, value, LVNI_PIN_TEXT - 1);
    *counts = lvni_core_pin_entries_get(e, key);
    if (*counts != NULL) {
        return LVN_OK;
    }
    if (e->agree != NULL) { /* not under the lock: it waits; all lanes get the same answer */
        LVN_TRY(e->agree(e->user, key, value, agreed));
        value = agreed;
    }
    *counts = keep(e, key, value);
    return *counts == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

lvn_status lvni_core_pin_entries_read(lvni_core_pin_entries *e, const char *text)
{
    char key[LVNI_PIN_TEXT];
    const size_t n = strcspn(text, "=");
    if (text[n] != '=' || !is_key(text, n) || !is_text(text + n + 1, strlen(text + n + 1))) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%.200s is not a pinned choice: backend.name=value, of letters, digits and . _ - "
                 "+ : /",
                 text);
    }
    if (e == NULL) {
        return LVN_OK;
    }
    snprintf(key, sizeof key, "%.*s", (int)n, text);
    const char *counts = keep(e, key, text + n + 1);
    if (counts == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (strcmp(counts, text + n + 1) != 0) {
        LVN_FAIL(LVN_ERR_USAGE, "pins: %s is %s and %s: give one of the two", key, counts,
                 text + n + 1);
    }
    return LVN_OK;
}

bool lvni_core_pin_entries_next(const char **text, char out[2 * LVNI_PIN_TEXT])
{
    const char *at = *text + strspn(*text, " ");
    const size_t n = strcspn(at, " ");
    snprintf(out, 2 * (size_t)LVNI_PIN_TEXT, "%.*s", (int)(n < 1024 ? n : 1024), at);
    *text = at + n;
    return n > 0;
}

void lvni_core_pin_entries_print(lvni_core_pin_entries *e, const char *between, lvni_core_str *out)
{
    if (e == NULL) {
        return;
    }
    pthread_mutex_lock(&e->lock);
    for (const entry *at = e->first; at != NULL; at = at->next) {
        lvni_core_str_printf(out, "%s%s=%s", at == e->first ? "" : between, at->key, at->value);
    }
    pthread_mutex_unlock(&e->lock);
}
