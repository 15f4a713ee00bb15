/* What the commands `levin ckpt ...` share. Each is a row in cmd_ckpt.c and a function here. For
 * this folder only. */
#ifndef LEVIN_CLI_CKPT_H
#define LEVIN_CLI_CKPT_H

#include "ckpt/checkpoint.h"
#include "core/str.h"

typedef struct lvni_cli_ckpt_args {
    const char *const *paths;
    int n_paths;
    bool json;
    const char *out, *key; /* NULL: not given */
} lvni_cli_ckpt_args;

/* Each returns an exit code. */
int lvni_cli_ckpt_verify(const lvni_cli_ckpt_args *args);
int lvni_cli_ckpt_show(const lvni_cli_ckpt_args *args);
int lvni_cli_ckpt_diff(const lvni_cli_ckpt_args *args);
int lvni_cli_ckpt_average(const lvni_cli_ckpt_args *args);
int lvni_cli_ckpt_convert(const lvni_cli_ckpt_args *args);

/* The file behind a path (of a run its last checkpoint), with all tensors; checksums are not
 * compared. Both are the caller's, also after an error (NULL: none). */
lvn_status lvni_cli_ckpt_open(const char *path, char **name, lvni_ckpt_st_file **file);
/* An error line for each part whose checksum does not match; returns how many there are. */
int64_t lvni_cli_ckpt_print_damage(const lvni_ckpt_st_file *file, const char *name);
bool lvni_cli_ckpt_is_checkpoint(const lvni_ckpt_st_file *file); /* else weights alone */
/* Of all tensors, of types that levin does not have, too. */
int64_t lvni_cli_ckpt_count(const lvni_ckpt_st_file *file);
uint64_t lvni_cli_ckpt_bytes(const lvni_ckpt_st_file *file);

/* All of them in the order of their names. */
typedef struct lvni_cli_ckpt_entry {
    const char *name;                  /* NULL: behind the last */
    const lvni_ckpt_st_tensor *tensor; /* one of the two */
    const lvni_ckpt_st_other *other;
} lvni_cli_ckpt_entry;
typedef struct lvni_cli_ckpt_place {
    const lvni_ckpt_st_file *file; /* the rest is 0 at first */
    int64_t tensor, other;
} lvni_cli_ckpt_place;
lvni_cli_ckpt_entry lvni_cli_ckpt_next(lvni_cli_ckpt_place *at);
/* A JSON number; null for what JSON cannot express. */
void lvni_cli_ckpt_json_number(lvni_core_str *s, double value);
/* A line on standard output; frees the text. */
lvn_status lvni_cli_ckpt_print_line(lvni_core_str *line);

#endif
