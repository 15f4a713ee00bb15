/* train_status.json (pose_status.h), as Lightning Pose has it: its app writes keys of its own into
 * the file, such as the number of the process. */
#include "recipes/pose/pose_status.h"

#include "core/alloc.h"
#include "core/json_read.h"
#include "core/vfs.h"

#include <time.h>

enum { MAX_BYTES = 1 << 20 };

/* What the file holds, or an empty object where there is no file, or something else in it. */
static lvn_status read_old(const char *path, json_t **out)
{
    char *text = NULL;
    size_t n;
    if (lvni_core_path_exists(path)) {
        LVN_TRY(lvni_core_file_read(path, MAX_BYTES, &text, &n));
    }
    json_t *old = lvni_core_json_try(text, LVNI_JSON_INNER);
    lvni_core_free(text);
    if (!json_is_object(old)) {
        json_decref(old);
        old = json_object();
    }
    *out = old;
    return LVN_OK;
}

static json_t *progress_of(int64_t completed, int64_t total)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return json_pack("{s:I,s:I,s:f}", "completed", (json_int_t)completed, "total",
                     (json_int_t)total, "timestamp",
                     (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
}

static bool set_progress(json_t *object, int64_t completed, int64_t total)
{
    static const char key[] = "progress";
    const bool kept = completed < 0 && json_object_get(object, key) != NULL;
    return kept || json_object_set_new(object, key,
                                       progress_of(completed < 0 ? total : completed, total)) == 0;
}

static lvn_status write_new(const char *path, const json_t *object)
{
    lvni_core_str text = {0};
    lvni_core_json_print(object, JSON_INDENT(4), &text);
    lvni_core_str_char(&text, '\n');
    lvn_status s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        s = lvni_core_file_write(path, lvni_core_str_text(&text), text.len);
    }
    lvni_core_str_free(&text);
    return s;
}

lvn_status lvni_pose_status_write(const char *dir, const char *status, int64_t completed,
                                  int64_t total)
{
    lvni_core_str path = {0};
    json_t *object = NULL;
    lvni_core_str_printf(&path, "%s/train_status.json", dir);
    lvn_status s = lvni_core_str_status(&path);
    if (s == LVN_OK) {
        s = read_old(lvni_core_str_text(&path), &object);
    }
    if (s == LVN_OK) {
        s = json_object_set_new(object, "status", json_string(status)) == 0 &&
                    set_progress(object, completed, total)
                ? write_new(lvni_core_str_text(&path), object)
                : lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__, "%s: out of host memory",
                                lvni_core_str_text(&path));
    }
    json_decref(object);
    lvni_core_str_free(&path);
    return s;
}
