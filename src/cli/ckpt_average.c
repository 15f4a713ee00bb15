/* levin ckpt average A B ... out=FILE: the mean of the weights of several files or runs. */
#include "cli/ckpt.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "run/error_record.h"

#include <stdio.h>

static lvn_status average(const lvni_cli_ckpt_args *args, char **files)
{
    int64_t n_tensors;
    for (int i = 0; i < args->n_paths; i++) {
        LVN_TRY(lvni_ckpt_file_of(args->paths[i], &files[i]));
    }
    LVN_TRY(lvni_ckpt_average((const char *const *)files, args->n_paths, args->out, &n_tensors));
    lvni_core_print(stdout, "%s: the mean of %d files, %lld tensor%s\n", args->out, args->n_paths,
                    (long long)n_tensors, lvni_core_plural(n_tensors, "", "s"));
    return LVN_OK;
}

int lvni_cli_ckpt_average(const lvni_cli_ckpt_args *args)
{
    char **files = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)args->n_paths, sizeof *files);
    const lvn_status s = files == NULL ? LVN_ERR_MEMORY : average(args, files);
    for (int i = 0; files != NULL && i < args->n_paths; i++) {
        lvni_core_free(files[i]);
    }
    lvni_core_free(files);
    return lvni_run_report_status(s);
}
