/* The record of pinned choices: what a backend may choose freely and results depend on. It is
 * decided once, at the first start or by the user; the resolved configuration, checkpoints and
 * exported models carry it, and contexts show it to kernels (docs/reproducibility.md).
 *
 * Numbers are fields, with a row of pins.def each. What a backend finds out while the run computes,
 * such as the algorithm that it measured to be the quickest, is an entry `backend.key=value`,
 * opaque to everyone else: a new backend needs no row. */
#ifndef LEVIN_CORE_PINS_H
#define LEVIN_CORE_PINS_H

#include "core/str.h"

typedef struct lvni_core_pin_entries lvni_core_pin_entries;

typedef struct lvni_core_pins {
#define LVNI_PIN(name, backend, min, max, rule, meaning) int name;
#include "core/pins.def"
#undef LVNI_PIN
    lvni_core_pin_entries *entries; /* of the run, borrowed; NULL: none are kept */
} lvni_core_pins;

enum {
#define LVNI_PIN(name, backend, min, max, rule, meaning) LVNI_PIN_##name,
#include "core/pins.def"
#undef LVNI_PIN
    LVNI_PIN_COUNT
};

/* What rules look at. */
typedef struct lvni_core_pin_facts {
    int64_t cores; /* of all ranks */
    int64_t micro_batches;
} lvni_core_pin_facts;

typedef struct lvni_core_pin {
    const char *key, *backend, *meaning;
    int min, max;
    int64_t (*rule)(const lvni_core_pin_facts *facts); /* cut to min and max */
} lvni_core_pin;

extern const lvni_core_pin lvni_core_pin_table[LVNI_PIN_COUNT];
int *lvni_core_pins_at(lvni_core_pins *pins, int i); /* the field of row i */
int lvni_core_pins_get(const lvni_core_pins *pins, int i);
/* Fields that are 0 (not given) by their rules. */
void lvni_core_pins_choose(lvni_core_pins *pins, const lvni_core_pin_facts *facts);
/* All fields at their smallest: of threads outside runs, and of files older than a field. */
lvni_core_pins lvni_core_pins_least(void);
/* " name=value" for every field, without entries. */
void lvni_core_pins_print(const lvni_core_pins *pins, lvni_core_str *out);

/* ---- entries (pin_entries.c) ----
 * Thread-safe. The first value of a key stays, and nothing is removed: texts are valid until
 * destroy. A key is `backend.name`; both sides hold letters, digits and . _ - + : / alone, so that
 * lists of any format can hold them. */

enum { LVNI_PIN_TEXT = 128 }; /* bytes of a key or a value, with its zero */

/* Which value counts for all ranks of the run: called with the first value that a lane of this
 * process proposes, may wait for others. */
typedef lvn_status (*lvni_core_pin_agree)(void *user, const char *key, const char *value,
                                          char counts[LVNI_PIN_TEXT]);

lvn_status lvni_core_pin_entries_create(lvni_core_pin_entries **out);
void lvni_core_pin_entries_destroy(lvni_core_pin_entries *entries);
/* Changes with each entry, and no two lists of the process have one alike; _list: of the list. */
uint64_t lvni_core_pin_entries_version(lvni_core_pin_entries *entries);
uint64_t lvni_core_pin_entries_list(const lvni_core_pin_entries *entries); /* from 1 */
/* Before the first record. Without it the entries are this process's. */
void lvni_core_pin_entries_agree_by(lvni_core_pin_entries *entries, lvni_core_pin_agree agree,
                                    void *user);
/* NULL: no such key. */
const char *lvni_core_pin_entries_get(lvni_core_pin_entries *entries, const char *key);
/* *counts: the value that the run has from here on, which may be an earlier one. LVN_ERR_INVALID
 * for other texts than above. */
lvn_status lvni_core_pin_entries_record(lvni_core_pin_entries *entries, const char *key,
                                        const char *value, const char **counts);
/* "key=value" of a configuration or a file; entries NULL: it is only looked at. LVN_ERR_USAGE when
 * it is not that, or when the key has another value. */
lvn_status lvni_core_pin_entries_read(lvni_core_pin_entries *entries, const char *text);
/* The next entry behind `text` in a list with blanks between, as lvni_core_pin_entries_print
 * writes; false: there is none. Longer ones are cut. */
bool lvni_core_pin_entries_next(const char **text, char entry[2 * LVNI_PIN_TEXT]);
/* All as key=value in the order of keys, with `between` between; nothing for NULL. */
void lvni_core_pin_entries_print(lvni_core_pin_entries *entries, const char *between,
                                 lvni_core_str *out);

#endif
