/* The configuration of a run: option rows (option.h) with a value and the place it came from.
 * Filled from layers, the later in this list winning whatever the order of the calls: defaults of
 * the rows, defaults of the job, a saved configuration (resume), YAML files, arguments, values
 * resolved by the program. */
#ifndef LEVIN_CORE_CONFIG_H
#define LEVIN_CORE_CONFIG_H

#include "core/option.h"
#include "core/str.h"

typedef enum lvni_core_layer {
    LVNI_LAYER_DEFAULT,
    LVNI_LAYER_JOB,
    LVNI_LAYER_SAVED,
    LVNI_LAYER_FILE,
    LVNI_LAYER_ARGUMENTS,
    LVNI_LAYER_RESOLVED,
} lvni_core_layer;

typedef struct lvni_core_config lvni_core_config;

/* Defaults only. The tables' rows are borrowed for the configuration's life (static data). A
 * mistake in a table is LVN_ERR_INTERNAL. */
lvn_status lvni_core_config_create(lvni_core_option_list tables, lvni_core_config **out);
void lvni_core_config_destroy(lvni_core_config *config); /* NULL is fine */
/* The command that lists all keys ("levin help train.classify"), named when a key is unknown.
 * Borrowed. */
void lvni_core_config_set_help(lvni_core_config *config, const char *command);
/* Of files (LVNI_LAYER_FILE) only what stands in this section at their top counts ("slurm"), with
 * the section's keys as they are; where none is set, a section `slurm:` is passed over. Borrowed.
 */
void lvni_core_config_set_section(lvni_core_config *config, const char *section);

/* Mistakes in files and arguments are kept for lvni_core_config_check, which reports all of them;
 * else the first one is an error at once. So is in any case a file that is not YAML. */
void lvni_core_config_collect(lvni_core_config *config);

/* Layers. Each value that cannot be read is LVN_ERR_USAGE with key, value, what is expected, and
 * the place. */
/* "max_epochs=20 optim=adamw": arguments between blanks; quotes and brackets keep blanks. job may
 * be NULL. */
lvn_status lvni_core_config_load_job(lvni_core_config *config, const char *job);
/* Arguments key=value, --key=value, --key value, --flag, ~key (back to the job's
 * value or the default), and config=FILE, --config FILE (YAML files, read before the other
 * arguments count; needs a row "config"). */
lvn_status lvni_core_config_load_arguments(lvni_core_config *config, int n,
                                           const char *const *args);
/* "PET_MAX_STEPS=5" is max_steps=5, below files and arguments: as torchrun reads its options. An
 * empty variable counts as unset, one without a row is ignored; of a key that gets a hint
 * on the command line there is a note (lvni_core_config_notes). */
lvn_status lvni_core_config_load_variables(lvni_core_config *config, const char *prefix,
                                           char *const *environment);
/* Lines "note: ..." about keys that were given and have no effect here; "": none. Borrowed. */
const char *lvni_core_config_notes(const lvni_core_config *config);
/* One line more, "note: ...". */
void lvni_core_config_note(lvni_core_config *config, const char *fmt, ...) LVN_PRINTF(2, 3);
/* How many of the n arguments the option at args[0] takes (1 or 2); 0: this command has no such
 * key. *name: the row that it sets, NULL: none; *text: its value, NULL: none is given. Borrowed. */
int lvni_core_config_arguments_of(const lvni_core_config *config, int n, const char *const *args,
                                  const char **name, const char **text);
/* The row that a user's key sets, by its name, an alias or a foreign name; NULL: none. */
const lvni_core_option *lvni_core_config_row(const lvni_core_config *config, const char *key);
lvn_status lvni_core_config_load_file(lvni_core_config *config, lvni_core_layer layer,
                                      const char *path);
/* YAML (or JSON) text; `name` stands in the origins: "name:12". */
lvn_status lvni_core_config_load_yaml(lvni_core_config *config, lvni_core_layer layer,
                                      const char *name, const char *text, size_t bytes);
/* Whether it is lines of `key: value`, whatever their keys; the error has the first place that is
 * not. */
lvn_status lvni_core_config_check_yaml(const char *name, const char *text, size_t bytes);
/* Where the value of a row stands in YAML text, whatever its key is called there and in whatever
 * section, for a change of the text. */
typedef struct lvni_core_config_place {
    bool found;
    bool flow;      /* the text is {...}, as JSON is */
    bool plain;     /* one value on one line */
    size_t at, end; /* bytes of the text; of no value behind the colon */
    size_t line;    /* of the key, from 1 */
    char key[64];   /* as it is called there: "train.batch_size" */
} lvni_core_config_place;
/* `name` stands in the messages. LVN_ERR_USAGE: it is not YAML. */
lvn_status lvni_core_config_find_place(const lvni_core_config *config, const char *row,
                                       const char *name, const char *text, size_t bytes,
                                       lvni_core_config_place *out);
/* ${...} of files and arguments become what they name (config_interpolate.c), as at the end of
 * lvni_core_config_load_arguments: after others that load such values. */
lvn_status lvni_core_config_resolve(lvni_core_config *config);
/* One mistake more, of a caller. */
void lvni_core_config_add_mistake(lvni_core_config *config, const char *fmt, ...) LVN_PRINTF(2, 3);
/* How many there are so far. */
int lvni_core_config_mistakes(const lvni_core_config *config);
/* Was the key given with a mistake, in its name or value? So that it is not called missing. */
bool lvni_core_config_is_mistaken(const lvni_core_config *config, const char *name);
/* What there is so far, with the checks of lvni_core_config_finish: LVN_ERR_USAGE with all mistakes
 * where there is one. */
lvn_status lvni_core_config_check(lvni_core_config *config);
/* After the last layer: refuses values of later versions and calls the rows' checks, on the values
 * that won. */
lvn_status lvni_core_config_finish(const lvni_core_config *config);
/* After finish: values, neither the default nor off, of rows whose .needs are not met. On the
 * command line: LVN_ERR_USAGE. In a file, which may serve several runs: a line for each is appended
 * to warnings. Defaults, jobs and saved configurations are left alone. */
lvn_status lvni_core_config_check_needs(const lvni_core_config *config, lvni_core_str *warnings);
/* The program found out that this row does nothing here: LVN_ERR_USAGE "...: this has no effect
 * WHY" when a value other than the default stands on the command line. */
lvn_status lvni_core_config_no_effect(const lvni_core_config *config, const char *name,
                                      const char *why);
/* A value found by the program (text as a user would write it; "auto" or "null" unsets). origin is
 * copied. */
lvn_status lvni_core_config_set(lvni_core_config *config, const char *name, const char *text,
                                const char *origin);

/* Getters. A name that no table declares, another type than the row's, or a number that is unset is
 * a mistake in levin: a message and abort(). Aliases are for users: the program asks by the row's
 * own name. */
bool lvni_core_config_bool(const lvni_core_config *config, const char *name);
int64_t lvni_core_config_int(const lvni_core_config *config, const char *name);
/* an int row too */
double lvni_core_config_float(const lvni_core_config *config, const char *name);
const char *lvni_core_config_str(const lvni_core_config *config,
                                 const char *name); /* string, path, choice; NULL when unset */
/* the same as it was spelled, where the row's respell() knows it by other names */
const char *lvni_core_config_given(const lvni_core_config *config, const char *name);
/* index into .choices; -1 when unset */
int lvni_core_config_choice(const lvni_core_config *config, const char *name);
const int64_t *lvni_core_config_int_list(const lvni_core_config *config, const char *name,
                                         size_t *n); /* NULL, 0 when unset */
const double *lvni_core_config_float_list(const lvni_core_config *config, const char *name,
                                          size_t *n);
const char *const *lvni_core_config_str_list(const lvni_core_config *config, const char *name,
                                             size_t *n);
/* Of a row with LVNI_OPT_PATHS; *n 0: the value is one path, or unset. */
const char *const *lvni_core_config_paths(const lvni_core_config *config, const char *name,
                                          size_t *n);

/* is there such a row? (never aborts) */
bool lvni_core_config_has(const lvni_core_config *config, const char *name);
/* a switch that is there and on (never aborts) */
bool lvni_core_config_is_on(const lvni_core_config *config, const char *name);
/* a switch that has been set: 0 or 1; else -1 (never aborts) */
int lvni_core_config_switch(const lvni_core_config *config, const char *name);
bool lvni_core_config_is_set(const lvni_core_config *config,
                             const char *name); /* it has a value (not auto, not null) */
lvni_core_layer lvni_core_config_layer(const lvni_core_config *config, const char *name);
/* by a file or on the command line, and not taken back there with ~key */
bool lvni_core_config_is_given(const lvni_core_config *config, const char *name);
/* "default", "job", "command line", "config.yml:12", or what lvni_core_config_set was given.
 * Borrowed. */
const char *lvni_core_config_origin(const lvni_core_config *config, const char *name);
/* The key as it was written, which may be an alias ("gpus" of "devices"); the name itself where
 * it was not written. Borrowed. */
const char *lvni_core_config_spelled(const lvni_core_config *config, const char *name);

/* The configuration as it is now, without rows that are not saved: YAML with dotted keys that
 * config=FILE reads back to the same values; and one JSON object of the same keys. */
lvn_status lvni_core_config_write_yaml(const lvni_core_config *config, lvni_core_str *out);
lvn_status lvni_core_config_to_json(const lvni_core_config *config, lvni_core_str *out);
/* The JSON object without what is of the run and its machine (LVNI_OPT_RUN): for exported models,
 * which are passed on. */
lvn_status lvni_core_config_to_model_json(const lvni_core_config *config, lvni_core_str *out);
/* The lines of that YAML, with paths as they were given: equal on ranks in different
 * directories. */
lvn_status lvni_core_config_write_as_given(const lvni_core_config *config, lvni_core_str *out);

#endif
