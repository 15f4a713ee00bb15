/* levin ckpt hash FILE|RUN: two numbers for the tensors in a file (of a run directory: its last
 * checkpoint); damage is told and gives exit code 1. */
#include "ckpt/checkpoint.h"
#include "ckpt/ckpt_hash.h"
#include "cli/cli.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "recipes/report_error.h"

#include <stdio.h>
#include <string.h>

static lvn_status hash(const char *file, int *code)
{
    lvni_ckpt_hashes h;
    LVN_TRY(lvni_ckpt_hash_file(file, &h));
    printf("weights %s\nstate %s\n", h.weights, h.state);
    for (int64_t i = 0; i < h.n_damaged; i++) {
        lvni_core_print(stderr,
                        "error: %s: the checksum of %s does not match: the file is damaged\n", file,
                        h.damaged[i]);
    }
    *code = h.n_damaged > 0 ? LVNI_EXIT_FAILURE : LVNI_EXIT_OK;
    lvni_ckpt_hashes_free(&h);
    return LVN_OK;
}

int lvni_cli_cmd_ckpt(int n, const char *const *words)
{
    if (n != 2 || strcmp(words[0], "hash") != 0) {
        return lvni_cli_command_misused("ckpt");
    }
    char *file;
    int code = LVNI_EXIT_OK;
    lvn_status s = lvni_ckpt_file_of(words[1], &file);
    if (s == LVN_OK) {
        s = hash(file, &code);
        lvni_core_free(file);
    }
    return s == LVN_OK ? code : lvni_recipes_report_status(s);
}
