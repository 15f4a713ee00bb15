/* The writer of metrics.jsonl (metrics.h). Called by the trainer only, from one thread. */
#include "log/metrics.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/vfs.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

struct lvni_log_metrics {
    int fd;
    char *path;
    lvni_core_str line; /* reused: no allocation after the longest line */
    bool cut_off;       /* the last write failed, maybe in the middle of a line */
};

static bool add_value(lvni_core_str *out, const char *name, double value)
{
    lvni_core_str_char(out, ',');
    lvni_core_str_json(out, name);
    lvni_core_str_char(out, ':');
    if (!isfinite(value)) {
        lvni_core_str_append(out, "null");
        return false;
    }
    lvni_core_str_double(out, value);
    return true;
}

void lvni_log_metrics_format(lvni_core_str *out, int64_t step, int64_t epoch, double time_s,
                             const lvni_log_metric *values, int n)
{
    lvni_core_str_printf(out, "{\"step\":%lld,\"epoch\":%lld", (long long)step, (long long)epoch);
    bool finite = add_value(out, "time_s", time_s);
    for (int i = 0; i < n; i++) {
        finite = add_value(out, values[i].name, values[i].value) && finite;
    }
    lvni_core_str_append(out, finite ? "}" : ",\"nonfinite\":true}");
}

/* A file that ends within a line (crash without resume's clean-up, or another tool) must not
 * swallow our first line. */
static bool ends_within_line(const char *path)
{
    const int fd = lvni_core_vfs_get()->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return false; /* no file yet */
    }
    char end = '\n';
    const bool within =
        lseek(fd, -1, SEEK_END) >= 0 && lvni_core_vfs_get()->read(fd, &end, 1) == 1 && end != '\n';
    lvni_core_vfs_get()->close(fd);
    return within;
}

lvn_status lvni_log_metrics_open(const char *path, bool append, lvni_log_metrics **out)
{
    *out = NULL;
    lvni_log_metrics *m = LVNI_NEW(LVNI_TAG_CORE, lvni_log_metrics);
    if (m == NULL) {
        return LVN_ERR_MEMORY;
    }
    m->fd = -1;
    m->path = lvni_core_strdup(LVNI_TAG_CORE, path);
    m->cut_off = append && ends_within_line(path);
    const lvn_status status =
        m->path == NULL ? LVN_ERR_MEMORY : lvni_core_append_open(path, !append, &m->fd);
    if (status != LVN_OK) {
        m->fd = -1;
        lvni_log_metrics_close(m);
        return status;
    }
    *out = m;
    return LVN_OK;
}

lvn_status lvni_log_metrics_write(lvni_log_metrics *m, int64_t step, int64_t epoch, double time_s,
                                  const lvni_log_metric *values, int n)
{
    lvni_core_str_clear(&m->line);
    if (m->cut_off) {
        lvni_core_str_char(&m->line, '\n');
    }
    lvni_log_metrics_format(&m->line, step, epoch, time_s, values, n);
    lvni_core_str_char(&m->line, '\n');
    LVN_TRY(lvni_core_str_status(&m->line));
    const lvn_status status =
        lvni_core_append_write(m->fd, m->path, lvni_core_str_text(&m->line), m->line.len);
    m->cut_off = status != LVN_OK;
    return status;
}

void lvni_log_metrics_close(lvni_log_metrics *m)
{
    if (m == NULL) {
        return;
    }
    if (m->fd >= 0) {
        /* every line was written by itself: nothing to lose here */
        lvni_core_vfs_get()->close(m->fd);
    }
    lvni_core_str_free(&m->line);
    lvni_core_free(m->path);
    lvni_core_free(m);
}

/* *kept: a whole object with a step of at most `step`; then its time, too. Memory is the only
 * error: it must not drop a good line. */
static lvn_status look_at(const char *line, size_t n, int64_t step, bool ends_again, bool *kept,
                          double *time_s)
{
    json_t *object;
    if (lvni_core_json_read("metrics", "a line", line, n, 0, LVNI_JSON_INNER, &object) ==
        LVN_ERR_MEMORY) {
        return LVN_ERR_MEMORY;
    }
    lvn_clear_error();
    const json_t *value = json_object_get(object, "step");
    *kept = json_is_integer(value) &&
            (json_integer_value(value) < step ||
             (json_integer_value(value) == step &&
              (!ends_again || json_object_get(object, LVNI_LOG_OF_STEP) != NULL)));
    *time_s = *kept ? json_number_value(json_object_get(object, "time_s")) : *time_s;
    json_decref(object);
    return LVN_OK;
}

/* Moves the lines to keep to the front of text. */
static lvn_status filter(char *text, size_t *bytes, int64_t step, bool ends_again,
                         int64_t *n_dropped, double *time_s)
{
    size_t front = 0;
    for (size_t at = 0; at < *bytes;) {
        const char *end = memchr(text + at, '\n', *bytes - at);
        const size_t n = end == NULL ? *bytes - at : (size_t)(end - (text + at));
        bool kept = false;
        LVN_TRY(look_at(text + at, n, step, ends_again, &kept, time_s));
        if (kept && end != NULL) {
            memmove(text + front, text + at, n + 1);
            front += n + 1;
        } else {
            ++*n_dropped;
        }
        at += n + 1;
    }
    *bytes = front;
    return LVN_OK;
}

lvn_status lvni_log_metrics_truncate(const char *path, int64_t step, bool ends_again,
                                     int64_t *dropped, double *time_s)
{
    int64_t n_dropped = 0;
    double last_s = 0.0;
    char *text = NULL;
    size_t bytes = 0;
    if (dropped != NULL) {
        *dropped = 0;
    }
    if (time_s != NULL) {
        *time_s = 0.0;
    }
    if (!lvni_core_path_exists(path)) {
        return LVN_OK;
    }
    LVN_TRY(lvni_core_file_read(path, SIZE_MAX / 4, &text, &bytes));
    lvn_status status;
    LVNI_TRY_DONE(status, filter(text, &bytes, step, ends_again, &n_dropped, &last_s));
    status = n_dropped > 0 ? lvni_core_file_write(path, text, bytes) : LVN_OK;
done:
    lvni_core_free(text);
    if (status != LVN_OK) {
        lvn_error_frame("dropping the lines after step %lld of %s", (long long)step, path);
        return status;
    }
    if (dropped != NULL) {
        *dropped = n_dropped;
    }
    if (time_s != NULL) {
        *time_s = last_s;
    }
    return LVN_OK;
}
