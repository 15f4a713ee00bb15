/* Shared by the files that make up a configuration: its slots, and the names of other trainers. */
#ifndef LEVIN_CORE_CONFIG_IMPL_H
#define LEVIN_CORE_CONFIG_IMPL_H

#include "core/config.h"

/* ---- names of other trainers ----
 * Lightning's Trainer, timm's train.py, torchrun, Keras' fit and what scripts usually call things:
 * each is another name of a key here, or gets a sentence with what to use. One table,
 * foreign_table.c, asked for keys and values that no row knows. */

#define LVNI_CORE_FOREIGN_LIST "[]"
enum {
    LVNI_CORE_HARMLESS_ON = 1,  /* true, yes, on, 1 */
    LVNI_CORE_HARMLESS_OFF = 2, /* false, no, off, 0 */
    LVNI_CORE_HARMLESS_ANY = 4
};
enum { LVNI_CORE_FOREIGN_TEXT = 256 }; /* room for a translated value */

typedef struct lvni_core_foreign {
    /* "wd|w_decay": names; "-b": a short option; "kd_*": all that begin so; "strategy=fsdp": a
     * value of a row here. Lower case, '_' for '-'. */
    const char *names;
    /* the row here that takes the same values and means the same; NULL: there is none */
    const char *key;
    /* with key: what its values are here, and no others are taken: "o0=32-true|o1=16-mixed"; NULL:
     * the same ones. Without regard to case. LVNI_CORE_FOREIGN_LIST: numbers, always a list: 0 is
     * [0] */
    const char *values;
    bool yields; /* with key: of no effect where another name of the key stands beside it */
    /* without key: what to do, with the keys of here in braces: "use {max_steps}=5" */
    const char *hint;
    unsigned harmless; /* which values get the hint as a note, and not as an error */
} lvni_core_foreign;

extern const lvni_core_foreign lvni_core_foreign_table[];
extern const size_t lvni_core_foreign_table_n;

/* Is `key` one of entry->names? Upper case and '-' count as lower case and '_'. */
bool lvni_core_foreign_is(const lvni_core_foreign *entry, const char *key);
/* The entry for a value that a row does not know ("strategy", "fsdp"); NULL: none. */
const lvni_core_foreign *lvni_core_foreign_value(const char *key, const char *value);
/* `text` in the words of here, for a key of entry->values; LVN_ERR_USAGE names those. */
lvn_status lvni_core_foreign_translate(const lvni_core_foreign *entry, const char *key,
                                       const char *text, const char *origin, char *out,
                                       size_t room);
/* The first key in braces at or after *at; false: no more. Moves *at behind it. */
bool lvni_core_foreign_next_key(const char **at, char *key, size_t room);
/* The hint without its braces. */
void lvni_core_foreign_print_hint(const lvni_core_foreign *entry, lvni_core_str *out);

/* ---- slots ---- */

/* The section of job scripts, which `levin slurm` reads and no other command. */
#define LVNI_CORE_JOB_SECTION "slurm"
#define LVNI_CORE_SWEEP_SECTION "sweep"

typedef struct lvni_core_slot {
    const lvni_core_option *row;
    const lvni_core_option *target; /* the row itself, or the one it is an alias of */
    lvni_core_value value;          /* as all below only for rows that are not aliases */
    char *origin;
    char *spelled; /* the key as it was written */
    lvni_core_layer layer;
    char *job; /* what the job has, for ~key; NULL: the row's default */
    bool back; /* ~key stands on the command line: the value is not a given one */
    /* which file or command line the value is from: two spellings in one must agree */
    int source;
    bool mistaken;   /* a value was refused, or a key that is not one was nearest to this */
    int seen_source; /* the last one that named the key, whether its value won or not */
    char *open;      /* with ${...}, which are not resolved yet; NULL: the value counts */
    bool open_quoted;
} lvni_core_slot;

struct lvni_core_config {
    lvni_core_slot *slots;
    size_t n;
    int sources;
    const char *help_command;
    const char *section; /* of files, the only one that counts; NULL: all but the one below */
    bool collects;
    lvni_core_str notes;    /* of keys without effect, a line each */
    lvni_core_str mistakes; /* messages of values that cannot be, a line each */
    int n_mistakes;
};

/* One key and value of a layer. The key may have '-' for '_'. `back`: give the default back
 * (~key). */
typedef struct lvni_core_assignment {
    const char *key, *text;
    bool quoted, back;
    lvni_core_layer layer;
    int source;
    bool once; /* the key may stand only once in this source (files) */
    const char *origin;
} lvni_core_assignment;

lvn_status lvni_core_config_assign(lvni_core_config *config, const lvni_core_assignment *a);
/* ---- config_interpolate.c: ${...} ---- */
/* Has the text any, for a row that has them resolved? */
bool lvni_core_config_is_open(const lvni_core_option *row, const lvni_core_assignment *a);
/* Text of a saved configuration, in which \${ stands for ${: to it and from it, in place. */
void lvni_core_config_escape(const char *text, lvni_core_str *out);
void lvni_core_config_unescape(char *text);
/* LVN_ERR_USAGE becomes one of the mistakes where these are collected. */
lvn_status lvni_core_config_keep(lvni_core_config *config, lvn_status status);
/* The slot of a key or alias, or NULL. */
lvni_core_slot *lvni_core_config_find(const lvni_core_config *config, const char *key);
/* The slot that a user's key sets: of an alias, or of a foreign name, the row that it means. NULL:
 * none. */
lvni_core_slot *lvni_core_config_target(const lvni_core_config *config, const char *key);
/* The foreign table's entry for a key that is not a row here; NULL: none for this command. */
const lvni_core_foreign *lvni_core_config_foreign(const lvni_core_config *config, const char *key);
/* A note: the key has no effect, with the entry's hint. */
void lvni_core_config_add_note(lvni_core_config *config, const char *key,
                               const lvni_core_foreign *entry, const char *origin);
/* Of a key that no row has: a note, or the error of lvni_core_config_unknown. */
lvn_status lvni_core_config_assign_foreign(lvni_core_config *config, const lvni_core_assignment *a);
/* Does any key begin with "prefix."? */
bool lvni_core_config_is_prefix(const lvni_core_config *config, const char *prefix);
/* "{lr: 0.1, betas: [0.9, 0.999]}", of a key that others begin with: as in a file. */
lvn_status lvni_core_config_load_map(lvni_core_config *config, lvni_core_layer layer,
                                     const char *key, const char *map, const char *origin);
lvn_status lvni_core_config_unknown(const lvni_core_config *config, const char *key,
                                    const char *origin);

#endif
