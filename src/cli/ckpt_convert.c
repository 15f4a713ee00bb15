/* levin ckpt convert IN OUT: weights between safetensors and torch.save. */
#include "ckpt/torch_file.h"
#include "cli/ckpt.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "run/error_record.h"
#include "run/exported.h"
#include "run/weights.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), e = strlen(end);
    return n > e && strcmp(text + n - e, end) == 0;
}

/* What of the file is written: all tensors, or those under a key, named without it. */
static lvn_status choose(const lvni_ckpt_st_file *file, const char *in, const char *under,
                         lvni_ckpt_st_tensor *out, int64_t *n)
{
    const size_t bytes = under == NULL ? 0 : strlen(under);
    *n = 0;
    for (int64_t i = 0; i < lvni_ckpt_st_count(file); i++) {
        const lvni_ckpt_st_tensor *t = lvni_ckpt_st_at(file, i);
        if (under == NULL) {
            out[(*n)++] = *t;
        } else if (strncmp(t->name, under, bytes) == 0 && t->name[bytes] == '.' &&
                   t->name[bytes + 1] != '\0') {
            out[*n] = *t;
            out[(*n)++].name = t->name + bytes + 1;
        }
    }
    if (under != NULL && *n == 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "weights.key=%s: %s has no tensors under this key: no name begins "
                 "with %s.",
                 under, in, under);
    }
    return LVN_OK;
}

/* Tensors that are left out are listed: the file is not all of what was there. */
static void report_others(const lvni_ckpt_st_file *file, const char *in)
{
    enum { SHOWN = 8 };
    const int64_t n = lvni_ckpt_st_count_others(file);
    for (int64_t i = 0; i < n && i < SHOWN; i++) {
        const lvni_ckpt_st_other *t = lvni_ckpt_st_other_at(file, i);
        lvni_core_print(stderr, "warning: %s: %s (%s) is left out: levin does not read it\n", in,
                        t->name, t->what);
    }
    if (n > SHOWN) {
        lvni_core_print(stderr, "warning: %s: and %lld more\n", in, (long long)(n - SHOWN));
    }
}

static lvn_status write_tensors(const lvni_ckpt_st_tensor *tensors, int64_t n, const char *out,
                                bool torch)
{
    static const lvni_ckpt_st_meta format = {"format", "pt"}; /* as others ask for */
    LVN_TRY(torch ? lvni_ckpt_torch_save(out, tensors, n)
                  : lvni_ckpt_st_save(out, tensors, n, &format, 1));
    uint64_t bytes = 0;
    for (int64_t i = 0; i < n; i++) {
        bytes += tensors[i].bytes;
    }
    char text[LVNI_BYTES_TEXT];
    lvni_core_print(stdout, "%s: %lld tensor%s, %s\n", out, (long long)n,
                    lvni_core_plural(n, "", "s"), lvni_core_bytes_text(bytes, text));
    return LVN_OK;
}

static lvn_status convert_file(const lvni_ckpt_st_file *file, const char *in, const char *under,
                               const char *out, bool torch)
{
    if (lvni_cli_ckpt_is_checkpoint(file) && lvni_run_is_of_program(file)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s is a checkpoint of a program of your own, which has layouts of its own; the "
                 "exported_models/ of its run has its weights to convert (of a run that has none: "
                 "the program, started again with resume=true, writes them)",
                 in);
    }
    if (lvni_cli_ckpt_is_checkpoint(file)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s is a checkpoint, which has layouts of its own; write its weights with levin "
                 "export checkpoint=%s output=W.safetensors, and convert these",
                 in, in);
    }
    if (lvni_ckpt_st_count(file) == 0 && lvni_ckpt_st_count_others(file) > 0) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: levin reads none of its tensors; the first is %s (%s): convert them to f32 "
                 "where they were made",
                 in, lvni_ckpt_st_other_at(file, 0)->name, lvni_ckpt_st_other_at(file, 0)->what);
    }
    int64_t n;
    lvni_ckpt_st_tensor *tensors =
        lvni_core_calloc(LVNI_TAG_CKPT, (size_t)lvni_ckpt_st_count(file), sizeof *tensors);
    if (tensors == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s = choose(file, in, under, tensors, &n);
    if (s == LVN_OK) {
        report_others(file, in);
        s = write_tensors(tensors, n, out, torch);
    }
    lvni_core_free(tensors);
    return s;
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
    char *found;
    const lvn_status s = lvni_run_weights_find(in, &found);
    const bool checkpoint = s == LVN_OK && strstr(found + strlen(in), "checkpoints/") != NULL;
    if (s == LVN_OK && !checkpoint && strcmp(found, in) != 0) { /* as Hugging Face keeps them */
        (void)lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                            "%s is a folder: one file is converted: levin ckpt convert %s %s", in,
                            found, out);
        lvni_core_free(found);
        return LVN_ERR_USAGE;
    }
    lvni_core_free(s == LVN_OK ? found : NULL);
    LVN_FAIL(LVN_ERR_USAGE, "%s is a folder%s", in,
             checkpoint ? " of a run that has written no model yet: one file is converted, and its "
                          "program, started again with resume=true, writes exported_models/"
                        : ": one file is converted, of weights or of a run's exported_models/");
}

static lvn_status convert(const char *in, const char *out, const char *key)
{
    const bool torch = ends_with(out, ".pt") || ends_with(out, ".pth");
    const char *inner;
    lvni_ckpt_st_file *file = NULL;
    if (!torch && !ends_with(out, ".safetensors")) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: the ending is the format that is written: .safetensors, or .pt or .pth for "
                 "torch.load",
                 out);
    }
    LVN_TRY(refuse_folder(in, out));
    /* of a safetensors file as it is there is nothing to convert */
    LVN_TRY(torch || key != NULL || lvni_ckpt_is_index(in)
                ? lvni_ckpt_tensors_open(in, LVNI_ST_VERIFY, key, &inner, &file)
                : lvni_ckpt_torch_open(in, LVNI_ST_VERIFY, key, &inner, &file));
    const lvn_status s = convert_file(file, in, inner, out, torch);
    lvni_ckpt_st_close(file);
    return s;
}

int lvni_cli_ckpt_convert(const lvni_cli_ckpt_args *args)
{
    return lvni_run_report_status(convert(args->paths[0], args->paths[1], args->key));
}
