/* The teacher of method=distillation: its file, read at every start, and that it is the same one
 * (pretrain.h). */
#include "recipes/pretrain/pretrain.h"

#include "core/error.h"
#include "core/sha256.h"
#include "core/str.h"
#include "core/vfs.h"
#include "run/run_dir.h"
#include "run/weights.h"

#include <string.h>
#include <strings.h>

static const char FILE_KEY[] = "method_args.teacher_weights";

static lvn_status check_hash(lvni_core_config *c, const char *path)
{
    static const char key[] = "method_args.teacher_sha256";
    char hex[LVNI_SHA256_HEX];
    LVN_TRY(lvni_run_file_sha256(path, hex));
    if (!lvni_core_config_is_set(c, key)) {
        return lvni_core_config_set(c, key, hex, "file of method_args.teacher_weights");
    }
    const char *given = lvni_core_config_str(c, key);
    if (strlen(given) < 8 || strspn(given, "0123456789abcdefABCDEF") != strlen(given)) {
        LVN_FAIL(LVN_ERR_USAGE, "%s=%s: at least the first 8 hexadecimal digits are needed  (%s)",
                 key, given, lvni_core_config_origin(c, key));
    }
    if (strncasecmp(given, hex, strlen(given)) != 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "method_args.teacher_weights=%s: its SHA-256 begins with %.16s, and %.16s is "
                 "expected  (method_args.teacher_sha256, %s): give the file that the run began "
                 "with",
                 path, hex, given, lvni_core_config_origin(c, key));
    }
    return LVN_OK;
}

/* A run has exported the backbone alone. */
static lvn_status load_teacher(lvni_core_config *c, const char *path, lvni_nn_model *model)
{
    const lvni_run_weights_source from = {.path = path, .part = LVNI_PRETRAIN_TEACHER};
    lvni_run_weights_report report;
    lvn_status s = lvni_run_model_load(model, &from, &report);
    if (s == LVN_ERR_NOT_FOUND) {
        lvni_core_str where = {0};
        lvni_run_source_print(from.path, lvni_run_weights_network(model, from.part), FILE_KEY,
                              &where);
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "%s: %s%s", FILE_KEY,
                          lvn_last_error()->message, lvni_core_str_text(&where));
        lvni_core_str_free(&where);
    }
    LVNI_TRY_DONE(s, s);
    s = check_hash(c, report.file);
done:
    lvni_run_weights_report_free(&report);
    return s;
}

lvn_status lvni_pretrain_load_teacher(const lvni_run_job *job, lvni_nn_model *model)
{
    const char *given = lvni_core_config_str(job->config, FILE_KEY);
    lvni_core_str exported = {0};
    lvni_core_str_printf(&exported, "%s/" LVNI_RUN_EXPORTS "last.safetensors", given);
    const char *path = lvni_core_str_text(&exported);
    const lvn_status s =
        load_teacher(job->config, lvni_core_path_exists(path) ? path : given, model);
    lvni_core_str_free(&exported);
    return s;
}
