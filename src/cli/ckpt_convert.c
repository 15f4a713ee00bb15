/* levin ckpt convert IN OUT: weights between safetensors and torch.save. */
#include "ckpt/torch_file.h"
#include "cli/ckpt.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "recipes/report_error.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), e = strlen(end);
    return n > e && strcmp(text + n - e, end) == 0;
}

/* All tensors of the file, under their names. */
static lvn_status write_tensors(const lvni_ckpt_st_file *file, const char *in, const char *out,
                                bool torch)
{
    static const lvni_ckpt_st_meta format = {"format", "pt"}; /* as others ask for */
    const int64_t n = lvni_ckpt_st_count(file);
    if (lvni_cli_ckpt_is_checkpoint(file)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s is a checkpoint, which has layouts of its own; write its weights with levin "
                 "export checkpoint=%s output=W.safetensors, and convert these",
                 in, in);
    }
    LVN_TRY(torch ? lvni_ckpt_torch_save(out, lvni_ckpt_st_at(file, 0), n)
                  : lvni_ckpt_st_save(out, lvni_ckpt_st_at(file, 0), n, &format, 1));
    char bytes[LVNI_BYTES_TEXT];
    lvni_core_print(stdout, "%s: %lld tensor%s, %s\n", out, (long long)n,
                    lvni_core_plural(n, "", "s"),
                    lvni_core_bytes_text(lvni_cli_ckpt_bytes(file), bytes));
    return LVN_OK;
}

/* A run directory has several files, and checkpoints layouts of their own. */
static lvn_status refuse_folder(const char *in, const char *out)
{
    static const char *const names[] = {"best", "last"};
    struct stat info;
    if (stat(in, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return LVN_OK;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[1024];
        snprintf(file, sizeof file, "%.900s/exported_models/exported_%s.safetensors", in, names[i]);
        if (lvni_core_path_exists(file)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s is a folder: one file is converted, of a run its exported model: levin "
                     "ckpt convert %s %s",
                     in, file, out);
        }
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "%s is a folder: one file is converted; levin export model=%s output=W.safetensors "
             "writes the weights of a run",
             in, in);
}

static lvn_status convert(const char *in, const char *out)
{
    const bool torch = ends_with(out, ".pt") || ends_with(out, ".pth");
    lvni_ckpt_st_file *file = NULL;
    if (!torch && !ends_with(out, ".safetensors")) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: the ending is the format that is written: .safetensors, or .pt or .pth for "
                 "torch.load",
                 out);
    }
    LVN_TRY(refuse_folder(in, out));
    LVN_TRY(torch ? lvni_ckpt_tensors_open(in, LVNI_ST_VERIFY, &file)
                  : lvni_ckpt_torch_open(in, LVNI_ST_VERIFY, &file));
    const lvn_status s = write_tensors(file, in, out, torch);
    lvni_ckpt_st_close(file);
    return s;
}

int lvni_cli_ckpt_convert(const lvni_cli_ckpt_args *args)
{
    return lvni_recipes_report_status(convert(args->paths[0], args->paths[1]));
}
