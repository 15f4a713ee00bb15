/* The configuration of a command: words over defaults, files, and the run that is resumed
 * (fit.h). */
#include "core/alloc.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "recipes/accelerator.h"
#include "recipes/fit.h"
#include "recipes/run_dir.h"

#include <string.h>

/* Ranks that their launcher has started again: the run that an attempt before has begun goes on,
 * from its last checkpoint if it came so far. */
static lvn_status resume_restarted(lvni_core_config *c)
{
    const char *out = lvni_core_config_str(c, "out");
    if (out == NULL || !lvni_recipes_run_dir_is_of_attempt_before(out)) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_config_set(c, "overwrite", "false", "started again"));
    return lvni_core_config_set(c, "resume", "true", "started again");
}

static lvn_status load_saved(lvni_core_config *c)
{
    const char *out = lvni_core_config_str(c, "out");
    LVN_TRY(resume_restarted(c));
    if (!lvni_core_config_bool(c, "resume")) {
        return LVN_OK;
    }
    if (out == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "resume=true needs out=DIR, the run to continue");
    }
    /* before anything else is missed: data=, which the run would know */
    LVN_TRY(lvni_recipes_run_dir_check_run(out));
    char *saved = lvni_recipes_path_join(out, "config.yaml");
    lvn_status s = saved == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK && lvni_core_path_exists(saved)) {
        s = lvni_core_config_load_file(c, LVNI_LAYER_SAVED, saved);
    }
    lvni_core_free(saved);
    return s;
}

/* Words that do nothing are errors, lines of a file warnings. */
static lvn_status check_needs(const lvni_core_config *c)
{
    lvni_core_str warnings = {0};
    const lvn_status s = lvni_core_config_check_needs(c, &warnings);
    for (char *line = warnings.data, *end;
         s == LVN_OK && line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        lvni_log_line(LVNI_LOG_WARNING, "%s", line);
    }
    lvni_core_str_free(&warnings);
    return s;
}

lvn_status lvni_recipes_read_config(const lvni_core_option_table *tables, size_t n_tables,
                                    const char *help, const char *job, int n,
                                    const char *const *words, lvni_core_config **out)
{
    *out = NULL;
    lvni_core_config *c;
    LVN_TRY(lvni_core_config_create(tables, n_tables, &c));
    lvni_core_config_set_help(c, help);
    lvn_status s = lvni_core_config_load_job(c, job);
    if (s == LVN_OK) {
        s = lvni_core_config_load_arguments(c, n, words);
    }
    if (s == LVN_OK && lvni_core_config_has(c, "resume")) {
        s = load_saved(c);
    }
    if (s == LVN_OK) {
        s = lvni_core_config_finish(c);
    }
    s = s == LVN_OK ? check_needs(c) : s;
    s = s == LVN_OK && lvni_core_config_has(c, "accelerator") ? lvni_recipes_accelerator_resolve(c)
                                                              : s;
    if (s != LVN_OK) {
        lvni_core_config_destroy(c);
        return s;
    }
    *out = c;
    return LVN_OK;
}
