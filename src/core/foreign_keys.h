/* Names that people bring from other trainers (Lightning's Trainer, timm's train.py, torchrun,
 * Keras' fit and what scripts usually call things): each is another name of a key here, or gets a
 * sentence that says what to use. One table, foreign_table.c; the configuration asks it for keys
 * and values that no row knows. */
#ifndef LEVIN_CORE_FOREIGN_KEYS_H
#define LEVIN_CORE_FOREIGN_KEYS_H

#include "core/str.h"

typedef struct lvni_core_foreign {
    /* "wd|w_decay": names; "-b": a short option; "kd_*": all that begin so; "strategy=fsdp": a
     * value of a row here. Lower case, '_' for '-'. */
    const char *names;
    /* the row here that takes the same values and means the same; NULL: there is none */
    const char *key;
    /* without key: what to do, with the keys of here in braces: "use {max_steps}=5" */
    const char *hint;
} lvni_core_foreign;

extern const lvni_core_foreign lvni_core_foreign_table[];
extern const size_t lvni_core_foreign_table_n;

/* Is `key` one of entry->names? Upper case and '-' count as lower case and '_'. */
bool lvni_core_foreign_is(const lvni_core_foreign *entry, const char *key);
/* The sentence for a value that a row does not know ("strategy", "fsdp"); NULL: none. */
const lvni_core_foreign *lvni_core_foreign_value(const char *key, const char *value);
/* The first key in braces at or after *at; false: no more. Moves *at behind it. */
bool lvni_core_foreign_next_key(const char **at, char *key, size_t room);
/* The hint without its braces. */
void lvni_core_foreign_print_hint(const lvni_core_foreign *entry, lvni_core_str *out);

#endif
