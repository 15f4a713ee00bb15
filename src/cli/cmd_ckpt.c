/* levin ckpt hash FILE: two numbers for the tensors in a file; damage is told and gives exit code 1. */
#include "ckpt/ckpt_hash.h"
#include "cli/cli.h"
#include "core/exit_code.h"
#include "recipes/report_error.h"

#include <stdio.h>
#include <string.h>

int lvni_cmd_ckpt(int n, const char *const *words)
{
    if (n != 2 || strcmp(words[0], "hash") != 0) {
        fputs("usage: levin ckpt hash FILE\n", stderr);
        return LVNI_EXIT_USAGE;
    }
    lvni_ckpt_hashes h;
    const lvn_status s = lvni_ckpt_hash_file(words[1], &h);
    if (s != LVN_OK) {
        return lvni_report_status(s);
    }
    printf("weights %s\nstate %s\n", h.weights, h.state);
    for (int64_t i = 0; i < h.n_damaged; i++) {
        fprintf(stderr, "error: %s: the checksum of %s does not match: the file is damaged\n", words[1], h.damaged[i]);
    }
    const int code = h.n_damaged > 0 ? LVNI_EXIT_FAILURE : LVNI_EXIT_OK;
    lvni_ckpt_hashes_free(&h);
    return code;
}
