/* The beginning of a run (fit_resume.h). */
#include "recipes/fit_resume.h"

#include "core/json_read.h"
#include "core/str.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "recipes/options.h"
#include "recipes/weights.h"

#include <jansson.h>
#include <string.h>

/* The same step has another learning rate on a cosine or a line that ends elsewhere. */
void lvni_recipes_report_moved_end(const lvni_core_config *config,
                                   const lvni_optim_schedule *schedule, int64_t n_samples,
                                   const lvni_ckpt *ckpt)
{
    const int64_t was = lvni_recipes_saved_schedule_end(ckpt->config, n_samples),
                  is = schedule->total_steps;
    const bool ends =
        schedule->kind == LVNI_SCHEDULE_COSINE || schedule->kind == LVNI_SCHEDULE_LINEAR;
    if (ends && was > 0 && was != is) {
        lvni_log_line(LVNI_LOG_INFO,
                      "scheduler=%s ends at step %lld now, at step %lld in the saved run: the "
                      "learning rate goes on along another curve",
                      lvni_core_config_str(config, "scheduler.name"), (long long)is,
                      (long long)was);
    }
}

static int append_json(const char *bytes, size_t n, void *out)
{
    lvni_core_str_append_n(out, bytes, n);
    return 0;
}

/* The first version saved relative paths as they were given; the same command makes them absolute
 * now. */
static bool is_same(const json_t *old, const json_t *now)
{
    const char *was = json_string_value(old), *is = json_string_value(now);
    lvni_core_str path = {0};
    if (was != NULL && is != NULL && is[0] == '/' && was[0] != '/') {
        lvni_core_path_absolute(was, &path);
    }
    const bool same =
        json_equal(old, now) || (path.len > 0 && strcmp(lvni_core_str_text(&path), is) == 0);
    lvni_core_str_free(&path);
    return same;
}

/* As it was given: 0.2, not 0.20000000000000001. */
static void print_value(const json_t *value, lvni_core_str *out)
{
    const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15);
    if (json_is_null(value)) {
        lvni_core_str_append(out, "unset");
    } else {
        json_dump_callback(value, append_json, out, flags);
    }
}

/* Every key that the resumed run takes with another value: from here on it is that run. */
void lvni_recipes_report_changes(const lvni_core_config *config, const char *json,
                                 const lvni_ckpt *ckpt)
{
    static const char *const harmless[] = {"max_epochs",        "max_steps",
                                           "log_every_n_steps", "checkpoint.every_n_steps",
                                           "on_error",          NULL};
    json_t *was = lvni_core_json_try(ckpt->config, LVNI_JSON_INNER);
    json_t *is = lvni_core_json_try(json, LVNI_JSON_INNER);
    const char *key;
    json_t *old;
    json_object_foreach(was, key, old)
    {
        /* a key that has been renamed since is an alias now */
        const lvni_core_option *row = lvni_core_config_row(config, key);
        const json_t *value = row == NULL ? NULL : json_object_get(is, row->name);
        bool reported = value == NULL || is_same(old, value);
        for (int i = 0; harmless[i] != NULL && !reported; i++) {
            reported = strcmp(row->name, harmless[i]) == 0;
        }
        if (!reported) {
            lvni_core_str a = {0}, b = {0};
            print_value(old, &a);
            print_value(value, &b);
            lvni_log_line(LVNI_LOG_WARNING, "%s is %s from here on; so far this run had %s",
                          row->name, lvni_core_str_text(&b), lvni_core_str_text(&a));
            lvni_core_str_free(&a);
            lvni_core_str_free(&b);
        }
    }
    json_decref(was);
    json_decref(is);
}

lvn_status lvni_recipes_load_start(const lvni_core_config *c, lvni_nn_model *model)
{
    const char *path = lvni_core_config_str(c, "weights");
    const bool reset_head = lvni_core_config_bool(c, "reset_head");
    if (path == NULL) {
        if (reset_head) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "reset_head=true is about the file of weights=, which is not given");
        }
        return LVN_OK;
    }
    lvni_recipes_weights_report report;
    lvn_status s = lvni_recipes_model_load(model, path, reset_head, &report);
    if (s == LVN_ERR_NOT_FOUND) {
        /* a usage error: another start would not find it either */
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "weights: %s",
                          lvn_last_error()->message);
    }
    if (s == LVN_OK) {
        lvni_recipes_weights_report_log(&report, path);
    }
    lvni_recipes_weights_report_free(&report);
    return s;
}

/* The run began with this value of `key`, too: a requeued job repeats its whole command. */
static bool repeats(const lvni_core_config *config, const char *key, const lvni_ckpt *ckpt)
{
    lvni_core_str now = {0};
    json_t *was = lvni_core_json_try(ckpt->config, LVNI_JSON_INNER), *is = NULL;
    if (lvni_core_config_to_json(config, &now) == LVN_OK) {
        is = lvni_core_json_try(lvni_core_str_text(&now), LVNI_JSON_INNER);
    }
    const json_t *old = json_object_get(was, key);
    const bool same = old != NULL && is_same(old, json_object_get(is, key));
    lvni_core_str_free(&now);
    json_decref(was);
    json_decref(is);
    return same;
}

lvn_status lvni_recipes_check_start(const lvni_core_config *config, const lvni_ckpt *ckpt)
{
    static const char *const starts[] = {"weights", "reset_head"};
    for (int i = 0; i < 2; i++) {
        if (lvni_core_config_layer(config, starts[i]) == LVNI_LAYER_ARGUMENTS &&
            !repeats(config, starts[i], ckpt)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s= on the command line and resume=true: a resumed run keeps its weights, "
                     "those of %s; leave %s= out, or start "
                     "a new run in another out",
                     starts[i], ckpt->path, starts[i]);
        }
    }
    return LVN_OK;
}
