/* output=FILE of the commands that write one result: its ending chooses the format, `-` is
 * standard output, where then nothing else is printed. For predict and export. */
#ifndef LEVIN_RECIPES_OUTPUT_FILE_H
#define LEVIN_RECIPES_OUTPUT_FILE_H

#include "core/config.h"

typedef struct lvni_recipes_output_kind {
    const char *what;    /* of the error: "predictions of images are a table or JSON lines" */
    const char *endings; /* ".csv|.jsonl" */
    bool binary;         /* bytes for no terminal, and for no launcher that shows lines */
} lvni_recipes_output_kind;

/* Before the work: LVN_ERR_USAGE for an ending that is none of these, and for what cannot be
 * written. */
lvn_status lvni_recipes_output_check(const lvni_core_config *config,
                                     const lvni_recipes_output_kind *kind);
bool lvni_recipes_output_is_stdout(const lvni_core_config *config);
/* What to give to lvni_core_file_write, lvni_ckpt_st_save, ... Borrowed. */
const char *lvni_recipes_output_path(const lvni_core_config *config);
/* Does the path end so, in upper or lower case? */
bool lvni_recipes_output_ends_in(const char *path, const char *ending, size_t n);

#endif
