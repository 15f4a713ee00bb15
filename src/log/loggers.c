/* The table of loggers (loggers.h), and the list of those of a run. */
#include "log/loggers.h"

#include "core/alloc.h"
#include "log/logger_class.h"
#include "log/run_log.h"

#include <string.h>

static const struct {
    const lvni_log_logger_class *cls; /* NULL: metrics.jsonl alone */
    const char *name;
    bool argument;
} table[] = {{&lvni_log_csv_class, "csv", false},
             {&lvni_log_tensorboard_class, "tensorboard", false},
             {&lvni_log_tensorboard_class, "true", false}, /* as Lightning does */
             {&lvni_log_exec_class, "exec:", true},
             {NULL, "jsonl", false},
             {NULL, "none", false},
             {NULL, "false", false}};
enum { TABLE = sizeof table / sizeof table[0] };

typedef struct entry {
    const lvni_log_logger_class *cls;
    void *logger; /* NULL: it has failed */
    char *name;
} entry;

struct lvni_log_loggers {
    int n;
    entry entry[];
};

static int find(const char *name)
{
    for (int i = 0; i < TABLE; i++) {
        const size_t n = strlen(table[i].name);
        if (table[i].argument ? strncmp(name, table[i].name, n) == 0 && name[n] != '\0'
                              : strcmp(name, table[i].name) == 0) {
            return i;
        }
    }
    return -1;
}

bool lvni_log_loggers_known(const char *name)
{
    return find(name) >= 0;
}

char *lvni_log_path(const char *dir, const char *name)
{
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/%s", dir, name);
    return lvni_core_str_take(&path);
}

static bool is_open(const lvni_log_loggers *l, const lvni_log_logger_class *cls)
{
    for (int i = 0; i < l->n; i++) {
        if (l->entry[i].cls == cls && cls != &lvni_log_exec_class) {
            return true;
        }
    }
    return false;
}

static lvn_status open_all(const lvni_log_loggers_options *o, lvni_log_loggers *l)
{
    for (size_t i = 0; i < o->n_names; i++) {
        const int row = find(o->names[i]);
        LVN_ARG(row >= 0, "logger %s: there is no such logger", o->names[i]);
        const lvni_log_logger_class *cls = table[row].cls;
        if (cls == NULL || is_open(l, cls)) {
            continue;
        }
        entry *e = &l->entry[l->n];
        const char *argument = table[row].argument ? o->names[i] + strlen(table[row].name) : "";
        e->name = lvni_core_strdup(LVNI_TAG_CORE, o->names[i]);
        l->n++; /* its name is freed with the others */
        const lvn_status s =
            e->name == NULL ? LVN_ERR_MEMORY : cls->create(o, argument, &e->logger);
        if (s != LVN_OK) {
            lvn_error_frame("starting the logger %s", o->names[i]);
            return s;
        }
        e->cls = cls;
    }
    return LVN_OK;
}

lvn_status lvni_log_loggers_open(const lvni_log_loggers_options *o, lvni_log_loggers **out)
{
    *out = NULL;
    if (o->n_names == 0) {
        return LVN_OK;
    }
    lvni_log_loggers *l =
        lvni_core_calloc(LVNI_TAG_CORE, 1, sizeof *l + o->n_names * sizeof l->entry[0]);
    if (l == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvn_status s = open_all(o, l);
    if (s != LVN_OK || l->n == 0) {
        const lvn_error error = *lvn_last_error();
        lvni_log_loggers_close(l, LVNI_LOG_FAILED);
        return s == LVN_OK ? LVN_OK : lvn_error_adopt(&error);
    }
    *out = l;
    return LVN_OK;
}

/* The first error is the last. */
static void check(entry *e, lvn_status s)
{
    if (s != LVN_OK) {
        lvni_log_line(LVNI_LOG_WARNING, "the logger %s gets nothing more: %-s", e->name,
                      lvn_last_error()->message);
        lvn_clear_error();
        e->cls->destroy(e->logger);
        e->logger = NULL;
    }
}

/* ---- names ---- */

/* A name as metrics.jsonl has it: bytes that are not UTF-8, which readers of a table or of events
 * refuse, as `\xHH`. */
static void add_name(lvni_core_str *out, const char *name)
{
    while (*name != '\0') {
        uint32_t code;
        const size_t n = lvni_core_utf8_char(name, strnlen(name, 4), &code);
        if (n == 0) {
            lvni_core_str_printf(out, "\\x%02x", (unsigned)(unsigned char)*name);
        }
        lvni_core_str_append_n(out, name, n);
        name += n == 0 ? 1 : n;
    }
}

/* `name` itself where it is UTF-8, as nearly all are; NULL: no memory. */
static const char *name_of(const char *name, lvni_core_str *room)
{
    if (lvni_core_utf8_valid(name)) {
        return name;
    }
    lvni_core_str_clear(room);
    add_name(room, name);
    return lvni_core_str_status(room) == LVN_OK ? lvni_core_str_text(room) : NULL;
}

static bool all_valid(const lvni_log_metric *values, int n)
{
    bool valid = true;
    for (int i = 0; i < n && valid; i++) {
        valid = lvni_core_utf8_valid(values[i].name);
    }
    return valid;
}

/* The values with such names, the caller's (lvni_core_free); the names are in *names. */
static lvni_log_metric *with_names(const lvni_log_metric *values, int n, lvni_core_str *names)
{
    lvni_log_metric *out = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n, sizeof *out);
    for (int i = 0; i < n; i++) {
        add_name(names, values[i].name);
        lvni_core_str_append_n(names, "", 1);
    }
    if (out == NULL || lvni_core_str_status(names) != LVN_OK) {
        lvni_core_free(out);
        return NULL;
    }
    const char *at = lvni_core_str_text(names);
    for (int i = 0; i < n; i++, at += strlen(at) + 1) {
        out[i] = values[i];
        out[i].name = at;
    }
    return out;
}

/* ---- what is logged ---- */

static void log_point(lvni_log_loggers *l, const lvni_log_point *point, lvn_status s)
{
    for (int i = 0; i < l->n; i++) {
        entry *e = &l->entry[i];
        if (e->logger != NULL && e->cls->scalars != NULL) {
            check(e, s == LVN_OK ? e->cls->scalars(e->logger, point) : s);
        }
    }
}

void lvni_log_loggers_scalars(lvni_log_loggers *l, int64_t step, int64_t epoch, double time_s,
                              const lvni_log_metric *values, int n)
{
    lvni_log_point point = {
        .step = step, .epoch = epoch, .time_s = time_s, .value = values, .n = n};
    if (l == NULL || all_valid(values, n)) {
        if (l != NULL) {
            log_point(l, &point, LVN_OK);
        }
        return;
    }
    lvni_core_str names = {0};
    lvni_log_metric *renamed = with_names(values, n, &names);
    point.value = renamed;
    log_point(l, &point, renamed == NULL ? LVN_ERR_MEMORY : LVN_OK);
    lvni_core_free(renamed);
    lvni_core_str_free(&names);
}

bool lvni_log_loggers_take_images(const lvni_log_loggers *l)
{
    bool any = false;
    for (int i = 0; l != NULL && i < l->n; i++) {
        any = any || (l->entry[i].logger != NULL && l->entry[i].cls->image != NULL);
    }
    return any;
}

void lvni_log_loggers_image(lvni_log_loggers *l, int64_t step, const lvni_log_image *image)
{
    lvni_core_str room = {0};
    lvni_log_image its = *image;
    its.name = name_of(image->name, &room);
    for (int i = 0; l != NULL && i < l->n; i++) {
        entry *e = &l->entry[i];
        if (e->logger != NULL && e->cls->image != NULL) {
            check(e, its.name == NULL ? LVN_ERR_MEMORY : e->cls->image(e->logger, step, &its));
        }
    }
    lvni_core_str_free(&room);
}

void lvni_log_loggers_histogram(lvni_log_loggers *l, int64_t step,
                                const lvni_log_histogram *histogram)
{
    lvni_core_str room = {0};
    lvni_log_histogram its = *histogram;
    its.name = name_of(histogram->name, &room);
    for (int i = 0; l != NULL && i < l->n; i++) {
        entry *e = &l->entry[i];
        if (e->logger != NULL && e->cls->histogram != NULL) {
            check(e, its.name == NULL ? LVN_ERR_MEMORY : e->cls->histogram(e->logger, step, &its));
        }
    }
    lvni_core_str_free(&room);
}

void lvni_log_loggers_text(lvni_log_loggers *l, int64_t step, const char *name, const char *text)
{
    lvni_core_str room = {0};
    const char *its = name_of(name, &room);
    for (int i = 0; l != NULL && i < l->n; i++) {
        entry *e = &l->entry[i];
        if (e->logger != NULL && e->cls->text != NULL) {
            check(e, its == NULL ? LVN_ERR_MEMORY : e->cls->text(e->logger, step, its, text));
        }
    }
    lvni_core_str_free(&room);
}

void lvni_log_loggers_close(lvni_log_loggers *l, lvni_log_end end)
{
    for (int i = 0; l != NULL && i < l->n; i++) {
        entry *e = &l->entry[i];
        if (e->logger != NULL && e->cls->end != NULL) {
            check(e, e->cls->end(e->logger, end));
        }
        if (e->logger != NULL) {
            e->cls->destroy(e->logger);
        }
        lvni_core_free(e->name);
    }
    lvni_core_free(l);
}
