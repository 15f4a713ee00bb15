/* Option tables: every key of every command is a row. Tables are static data of the folder that
 * reads the keys; a command joins the tables it uses into a configuration (config.h). The help
 * texts and the docs are made of the same rows. */
#ifndef LEVIN_CORE_OPTION_H
#define LEVIN_CORE_OPTION_H

#include <levin/status.h>
#include <math.h>
#include <stdio.h>

struct lvni_core_config; /* config.h */

typedef enum lvni_core_option_type {
    LVNI_OPT_BOOL,   /* true false yes no on off 1 0 */
    LVNI_OPT_INT,    /* decimal, 64 bit */
    LVNI_OPT_FLOAT,  /* decimal; inf only with LVNI_OPT_INF */
    LVNI_OPT_STRING, /* any text; a list given for it stays text: "[1,3]" */
    LVNI_OPT_PATH,
    LVNI_OPT_CHOICE,   /* one of .choices */
    LVNI_OPT_INT_LIST, /* [1,3], 1,3 or a single 1 */
    LVNI_OPT_FLOAT_LIST,
    LVNI_OPT_STRING_LIST,
} lvni_core_option_type;

enum {
    /* `auto` (or null) may be given and means unset: the program finds a value */
    LVNI_OPT_AUTO = 1,
    /* not part of config.yaml and of checkpoints (config, resume, overwrite) */
    LVNI_OPT_NOT_SAVED = 2,
    LVNI_OPT_LATER = 4,  /* the key is known, but only its default works in this version */
    LVNI_OPT_HIDDEN = 8, /* not in the help */
    /* changes the time and no bit: neither saved nor taken from a saved configuration */
    LVNI_OPT_LAYOUT = 32,
    LVNI_OPT_INF = 16, /* inf and -inf are numbers for this row, within its range */
    /* 0 (or false) does not switch this row off: it counts as any value where .needs are not met */
    LVNI_OPT_ZERO_IS_ON = 64,
    /* a choice that takes other names, too (index -1): its reader knows which there are */
    LVNI_OPT_OPEN = 128,
    /* a map of a file is "0:8,4:4" of the command line */
    LVNI_OPT_MAP = 256,
    /* off unless given; any value switches this row on, 0 too, and `auto` is off */
    LVNI_OPT_ON_IF_GIVEN = 512,
    /* `auto` of a file or the command line asks for a search that is another command:
     * .later_note */
    LVNI_OPT_TUNED = 1024,
    /* of the run and where it ran, not of the model: not in exported models */
    LVNI_OPT_RUN = 2048,
    /* the default is how it always is; another value of a user is a note: .later_note */
    LVNI_OPT_ALWAYS = 4096,
    /* a path that may be left open in a file that lists all keys: `key:` and `key: ""` are null */
    LVNI_OPT_EMPTY = 8192,
    /* came after the first recipes in shared objects: a recipe's own key of that name has it, and
     * this row is levin.NAME then */
    LVNI_OPT_YIELDS = 16384,
    /* `auto` is as if the key were not given: the default, which a recipe may have set */
    LVNI_OPT_AUTO_DEFAULT = 32768,
    /* a path, or several: [a,b] is a list of them, whose text is kept as well */
    LVNI_OPT_PATHS = 65536,
    /* a text, or a map or list of any depth, which becomes its JSON text */
    LVNI_OPT_JSON = 131072,
    /* ${...} in it is text, as in what another program alone reads */
    LVNI_OPT_LITERAL = 262144,
};

/* Allowed numbers, for every element of a list. All zero: any. */
typedef struct lvni_core_option_range {
    bool used, above, below; /* above, below: the limit itself is not allowed */
    double min, max;
} lvni_core_option_range;
#define LVNI_AT_LEAST(lo)                                                                          \
    {                                                                                              \
        .used = true, .min = (lo), .max = INFINITY                                                 \
    }
#define LVNI_ABOVE(lo)                                                                             \
    {                                                                                              \
        .used = true, .above = true, .min = (lo), .max = INFINITY                                  \
    }
#define LVNI_BETWEEN(lo, hi)                                                                       \
    {                                                                                              \
        .used = true, .min = (lo), .max = (hi)                                                     \
    }
#define LVNI_FROM_TO_BELOW(lo, hi)                                                                 \
    {                                                                                              \
        .used = true, .below = true, .min = (lo), .max = (hi)                                      \
    } /* lo <= x < hi */

typedef struct lvni_core_option lvni_core_option;

/* A parsed value. Which fields count follows from the row's type. */
typedef struct lvni_core_value {
    bool set;   /* false: unset, null or auto */
    bool later; /* one of the row's .later values */
    bool b;
    int choice; /* index into .choices */
    int64_t i;
    double f;
    /* the value of string, path and choice; what was given for the others; NULL when unset */
    char *text;
    char *given; /* what the row's respell() has made `text` of; NULL: it is as given */
    size_t n;    /* elements of a list; 0: a path that is none */
    int64_t *ints;
    double *floats;
    char **strings;
} lvni_core_value;

struct lvni_core_option {
    const char *name; /* "optim.lr": lower case, '_' inside names, '.' between levels */
    lvni_core_option_type type;
    const char *unit;     /* "samples", "s"; NULL: none */
    const char *fallback; /* the default as text; NULL: unset */
    const char *choices;  /* "sgd|adamw" */
    lvni_core_option_range range;
    size_t count;        /* lists: how many elements, 0 = any number */
    const char *help;    /* one sentence */
    const char *no_file; /* paths: "builtin:|none": beginnings of values that are not paths */
    unsigned flags;
    /* What a later version brings: values of this row ("bf16-mixed|16-mixed", any type), and the
     * sentence of the error, which follows "devices 2: " and also serves LVNI_OPT_LATER: "several
     * devices come with a later version; this one trains on one device (devices=1)". NULL: a
     * general sentence. */
    const char *later, *later_note;
    /* Without which the row does nothing: terms joined by '&', each "optim.name=sgd|lars" (one of
     * these values) or "ema.decay" or "augment.hue|augment.contrast" (one of these keys is neither
     * off nor zero). lvni_core_config_check_needs looks at it, and passes the default and values
     * that switch the row off. */
    const char *needs;
    const char *spellings; /* other spellings of values: "none=single|ddp_spawn=ddp" */
    /* the value that another spelling stands for, where these are too many for a list; NULL: it is
     * none */
    const char *(*respell)(const char *text);
    /* Looks at a value that was given (not at defaults), after all layers are joined; records an
     * error that names key, value, what is right and origin. lvni_core_option_fail and
     * lvni_core_option_fail_later help. */
    lvn_status (*check)(const lvni_core_option *row, const lvni_core_value *value,
                        const char *origin);
    /* This row is only another name of that one ("gpus" of "devices", "optim" of "optim.name"): all
     * other fields except .help and LVNI_OPT_HIDDEN stay empty. */
    const char *alias_of;
};

typedef struct lvni_core_option_table {
    const char *title; /* of its part of the help: "optimizer" */
    const lvni_core_option *rows;
    size_t n;
} lvni_core_option_table;
/* Tables, NULL behind the last. */
typedef const lvni_core_option_table *const *lvni_core_option_list;
#define LVNI_OPTION_TABLE(text, array)                                                             \
    {                                                                                              \
        .title = (text), .rows = (array), .n = sizeof(array) / sizeof((array)[0])                  \
    }
#define LVNI_OPTION_ALIAS(other, of)                                                               \
    {                                                                                              \
        .name = (other), .alias_of = (of)                                                          \
    }

/* null, None or ~, in any case. */
bool lvni_core_option_is_null(const char *text);
/* Does that text unset the row, or is it one of its values? */
bool lvni_core_option_knows_null(const lvni_core_option *row, const char *text);
/* Reads text for a row; `quoted`: it stood in quotes, so it is text, not a number, null or auto. On
 * failure LVN_ERR_USAGE (or LVN_ERR_MEMORY) and *out is empty. Owner of *out: the caller
 * (lvni_core_value_free). */
lvn_status lvni_core_option_parse(const lvni_core_option *row, const char *text, bool quoted,
                                  const char *origin, lvni_core_value *out);
void lvni_core_value_free(lvni_core_value *value); /* leaves it unset */
bool lvni_core_value_equal(const lvni_core_option *row, const lvni_core_value *a,
                           const lvni_core_value *b);

/* "batch_size `abc`: expected a whole number, at least 1 (in samples)  (config.yml:12)", as
 * LVN_ERR_USAGE. */
lvn_status lvni_core_option_expected(const lvni_core_option *row, const char *text, bool quoted,
                                     const char *origin);
/* A value of other programs' keys, for which lvni_core_option_expected has advice. */
bool lvni_core_option_is_foreign(const lvni_core_option *row, const char *text);
/* "KEY VALUE: <sentence>  (ORIGIN)" as LVN_ERR_USAGE. */
lvn_status lvni_core_option_fail(const lvni_core_option *row, const lvni_core_value *value,
                                 const char *origin, const char *fmt, ...) LVN_PRINTF(4, 5);
/* The same with the row's later_note. */
lvn_status lvni_core_option_fail_later(const lvni_core_option *row, const lvni_core_value *value,
                                       const char *origin);

/* Position of the n bytes in "a|b|c" (case-insensitive), -1 when they are not one of these. */
int lvni_core_option_choice_index(const char *choices, const char *text, size_t n);
const char *lvni_core_option_type_name(lvni_core_option_type type);
/* The help: name, type, unit, default and sentence of every row, titles between tables. defaults: a
 * configuration of these tables, whose job has defaults of its own; NULL: those of the rows. */
void lvni_core_option_print_help(lvni_core_option_list tables,
                                 const struct lvni_core_config *defaults, FILE *out);
/* One row of it. */
void lvni_core_option_print_row(lvni_core_option_list tables, const lvni_core_option *row,
                                const struct lvni_core_config *defaults, FILE *out);
/* The default that it shows: "auto" and "unset", too. Borrowed. */
const char *lvni_core_option_default(const lvni_core_option *row,
                                     const struct lvni_core_config *defaults);

#endif
