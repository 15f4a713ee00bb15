/* YAML (and JSON) files into a configuration (config.h): nested maps become dotted keys, sequences
 * lists; aliases and merge keys are what they name (yaml_events.h). Refused on purpose, with its
 * line: tags, several documents, lists of lists or maps where a row takes none, a key twice.
 * Limits: 1 MiB, 16 levels, 4096 elements of a list. */
#include "core/config_reader.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/json_read.h"
#include "core/vfs.h"

#include <stdint.h>
#include <string.h>

enum { KEY_MAX = 128, ORIGIN_MAX = 320, SHOWN_MAX = 8, MERGES_MAX = 8 };
static const size_t FILE_MAX = (size_t)1 << 20;

typedef lvni_core_config_reader reader;

static const char NO_PAIRS[] = "expected `key: value` lines";

static void origin_of(const reader *r, yaml_mark_t mark, char origin[ORIGIN_MAX])
{
    if (r->origin != NULL) {
        snprintf(origin, ORIGIN_MAX, "%.300s", r->origin);
    } else {
        snprintf(origin, ORIGIN_MAX, "%.280s:%zu", r->name, mark.line + 1);
    }
}

lvn_status lvni_core_config_refuse(const reader *r, yaml_mark_t mark, const char *what)
{
    if (r->origin != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "%.280s: %s  (%s)", r->name, what, r->origin);
    }
    LVN_FAIL(LVN_ERR_USAGE, "%.280s:%zu:%zu: %s", r->name, mark.line + 1, mark.column + 1, what);
}

static lvn_status syntax_error(const reader *r)
{
    const yaml_parser_t *p = &r->yaml.parser;
    if (p->error == YAML_MEMORY_ERROR) {
        LVN_FAIL(LVN_ERR_MEMORY, "%.280s: out of memory while reading", r->name);
    }
    if (p->error == YAML_READER_ERROR) {
        LVN_FAIL(LVN_ERR_USAGE, "%.280s: byte %zu: %s", r->name, p->problem_offset,
                 p->problem != NULL ? p->problem : "not readable as text");
    }
    if (r->origin != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "%.280s: %s; give a map as {key: value, key: value}  (%s)", r->name,
                 p->problem != NULL ? p->problem : "not YAML", r->origin);
    }
    LVN_FAIL(LVN_ERR_USAGE, "%.280s:%zu:%zu: %s%s%s", r->name, p->problem_mark.line + 1,
             p->problem_mark.column + 1, p->problem != NULL ? p->problem : "not YAML",
             p->context != NULL ? " " : "", p->context != NULL ? p->context : "");
}

/* The reader's error, or that of an event, which is deleted then. */
static lvn_status event_error(reader *r, lvn_status status, yaml_event_t *event, const char *wrong)
{
    if (status != LVN_ERR_USAGE) {
        return status;
    }
    if (wrong == NULL) {
        return syntax_error(r);
    }
    status = lvni_core_config_refuse(r, event->start_mark, wrong);
    yaml_event_delete(event);
    return status;
}

/* The next event, without the forms levin does not accept. On success the caller deletes it. */
lvn_status lvni_core_config_next(reader *r, yaml_event_t *event)
{
    const char *wrong = NULL;
    const lvn_status status = lvni_core_yaml_next(&r->yaml, event, &wrong);
    if (status != LVN_OK) {
        return event_error(r, status, event, wrong);
    }
    bool tag = false;
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        tag = event->data.scalar.tag != NULL;
        if (memchr(event->data.scalar.value, '\0', event->data.scalar.length) != NULL) {
            wrong = "a zero byte inside a value";
        }
        break;
    case YAML_SEQUENCE_START_EVENT: tag = event->data.sequence_start.tag != NULL; break;
    case YAML_MAPPING_START_EVENT: tag = event->data.mapping_start.tag != NULL; break;
    default: break;
    }
    wrong = tag ? "tags (!name) are not accepted; the option table knows the type" : wrong;
    return wrong == NULL ? LVN_OK : event_error(r, LVN_ERR_USAGE, event, wrong);
}

/* A path may hold bytes that are not UTF-8, as config_values.c writes them. */
static void unescape_path(const reader *r, yaml_event_t *event)
{
    const lvni_core_slot *slot = lvni_core_config_find(r->config, lvni_core_str_text(&r->path));
    if (slot != NULL && slot->target->type == LVNI_OPT_PATH) {
        event->data.scalar.length = lvni_core_unescape_name((char *)event->data.scalar.value);
    }
}

static lvn_status assign(reader *r, const char *text, bool quoted, yaml_mark_t mark)
{
    char origin[ORIGIN_MAX];
    origin_of(r, mark, origin);
    LVN_TRY(lvni_core_str_status(&r->path));
    return lvni_core_config_assign(r->config,
                                   &(lvni_core_assignment){.key = lvni_core_str_text(&r->path),
                                                           .text = text,
                                                           .quoted = quoted,
                                                           .layer = r->layer,
                                                           .source = r->source,
                                                           .once = true,
                                                           .origin = origin});
}

/* An item in the list form of the command line; what could be misread there is put in quotes. */
static void append_item(lvni_core_str *out, const char *text, bool quoted)
{
    if (!quoted && text[0] != '\0' && text[strcspn(text, ",[]{}\"'\\")] == '\0') {
        lvni_core_str_append(out, text);
        return;
    }
    lvni_core_str_char(out, '"');
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\') {
            lvni_core_str_char(out, '\\');
        }
        lvni_core_str_char(out, *p);
    }
    lvni_core_str_char(out, '"');
}

/* What is a text here may be a list of lists elsewhere. */
static lvn_status refuse_inner(const reader *r, yaml_mark_t mark)
{
    char what[256];
    const lvni_core_slot *slot = lvni_core_config_target(r->config, lvni_core_str_text(&r->path));
    const bool text =
        slot != NULL && slot->row->type == LVNI_OPT_STRING && slot->row->fallback != NULL;
    snprintf(what, sizeof what, "a list holds plain values only, not lists or maps%s%.100s",
             text ? "; this value is a text, as in " : "", text ? slot->row->fallback : "");
    return lvni_core_config_refuse(r, mark, what);
}

/* A sequence up to its end, as "[a,b]". */
static lvn_status read_items(reader *r, lvni_core_str *out)
{
    const lvni_core_slot *slot = lvni_core_config_target(r->config, lvni_core_str_text(&r->path));
    const bool numbers = slot != NULL && (slot->row->type == LVNI_OPT_INT_LIST ||
                                          slot->row->type == LVNI_OPT_FLOAT_LIST);
    lvni_core_str_char(out, '[');
    for (int n = 0;; n++) {
        yaml_event_t event;
        LVN_TRY(lvni_core_config_next(r, &event));
        lvn_status status = LVN_OK;
        const bool end = event.type == YAML_SEQUENCE_END_EVENT;
        if (!end && event.type != YAML_SCALAR_EVENT) {
            status = refuse_inner(r, event.start_mark);
        } else if (!end && n >= LVNI_YAML_ITEMS) {
            status = lvni_core_config_refuse(r, event.start_mark,
                                             "the list has more than 4096 elements");
        } else if (!end) {
            lvni_core_str_append(out, n > 0 ? "," : "");
            unescape_path(r, &event);
            if (numbers && strncmp(lvni_core_config_text(&event), "${", 2) == 0) {
                lvni_core_str_append(out, lvni_core_config_text(&event)); /* that of another key */
            } else {
                append_item(out, lvni_core_config_text(&event), lvni_core_config_quoted(&event));
            }
        }
        yaml_event_delete(&event);
        LVN_TRY(status);
        if (end) {
            lvni_core_str_char(out, ']');
            return lvni_core_str_status(out);
        }
    }
}

/* A map up to its end, as "0:8,4:4". */
static lvn_status read_entries(reader *r, lvni_core_str *out)
{
    for (int n = 0;; n++) {
        yaml_event_t event;
        LVN_TRY(lvni_core_config_next(r, &event));
        lvn_status status = LVN_OK;
        const bool end = event.type == YAML_MAPPING_END_EVENT;
        if (!end && event.type != YAML_SCALAR_EVENT) {
            status = lvni_core_config_refuse(r, event.start_mark,
                                             "this map holds plain values only, as {0: 8}");
        } else if (!end && n >= 2 * LVNI_YAML_ITEMS) {
            status =
                lvni_core_config_refuse(r, event.start_mark, "the map has more than 4096 entries");
        } else if (!end) {
            lvni_core_str_append(out, n == 0 ? "" : n % 2 == 1 ? ":" : ",");
            lvni_core_str_append(out, lvni_core_config_text(&event));
        }
        yaml_event_delete(&event);
        LVN_TRY(status);
        if (end) {
            return lvni_core_str_status(out);
        }
    }
}

/* A list, or a map that is one value. */
static lvn_status read_whole(reader *r, bool map, yaml_mark_t mark)
{
    lvni_core_str text = {0};
    lvn_status status = map ? read_entries(r, &text) : read_items(r, &text);
    if (status == LVN_OK) {
        status = assign(r, lvni_core_str_text(&text), false, mark);
    }
    lvni_core_str_free(&text);
    return status;
}

/* ---- values of any depth, for rows with LVNI_OPT_JSON ---- */

/* A list or map as its JSON text, which counts as one in quotes. */
static lvn_status assign_json(reader *r, yaml_event_t *event)
{
    json_t *json = NULL;
    lvni_core_str text = {0};
    lvn_status status;
    const yaml_mark_t mark = event->start_mark;
    LVNI_TRY_DONE(status, lvni_core_config_read_json(r, event, 1, &json));
    lvni_core_json_print(json, JSON_COMPACT, &text);
    LVNI_TRY_DONE(status, lvni_core_str_status(&text));
    status = assign(r, lvni_core_str_text(&text), true, mark);
done:
    json_decref(json);
    lvni_core_str_free(&text);
    return status;
}

/* ---- maps ---- */

/* `keys` holds "\na\nb\n": the keys of one map. Only known keys and beginnings of known keys get
 * this far, so it stays short whatever the file holds. */
static lvn_status add_key(reader *r, const yaml_event_t *event, bool merged, lvni_core_str *keys,
                          bool *there)
{
    char key[KEY_MAX + 2];
    const size_t n = event->data.scalar.length;
    *there = false;
    if (n == 0 || n > KEY_MAX || strpbrk(lvni_core_config_text(event), "\n\r\t ") != NULL) {
        return lvni_core_config_refuse(r, event->start_mark,
                                       "a key has at most 128 bytes and no blanks");
    }
    snprintf(key, sizeof key, "%s\n", lvni_core_config_text(event));
    for (char *p = key; *p != '\0'; p++) {
        *p = *p == '-' ? '_' : *p;
    }
    for (const char *p = lvni_core_str_text(keys); *p != '\0'; p = strchr(p, '\n') + 1) {
        *there = *there || strncmp(p, key, n + 1) == 0;
    }
    if (*there && !merged) {
        char what[KEY_MAX + 64];
        snprintf(what, sizeof what, "the key `%.128s` stands twice in one map",
                 lvni_core_config_text(event));
        return lvni_core_config_refuse(r, event->start_mark, what);
    }
    lvni_core_str_append(keys, *there ? "" : key);
    return lvni_core_str_status(keys);
}

static lvn_status read_map(reader *r, int depth);

/* The rest of a map whose name means nothing here, which began at `mark`. *keys: what its own keys
 * are called here. No deeper than other maps: libyaml's time grows with the square of the depth. */
static lvn_status skip_map(reader *r, yaml_mark_t mark, lvni_core_str *keys)
{
    bool is_key = true; /* the next scalar of the map itself */
    int n = 0;
    for (int depth = 1; depth > 0;) {
        yaml_event_t event;
        LVN_TRY(lvni_core_config_next(r, &event));
        const bool opens = event.type == YAML_MAPPING_START_EVENT ||
                           event.type == YAML_SEQUENCE_START_EVENT,
                   closes = event.type == YAML_MAPPING_END_EVENT ||
                            event.type == YAML_SEQUENCE_END_EVENT;
        if (depth == 1 && is_key && event.type == YAML_SCALAR_EVENT && n < SHOWN_MAX) {
            const lvni_core_option *row =
                lvni_core_config_row(r->config, lvni_core_config_text(&event));
            if (row != NULL) {
                lvni_core_str_printf(keys, "%s%s", n++ > 0 ? ", " : "", row->name);
            }
        }
        depth += opens ? 1 : closes ? -1 : 0;
        if (depth > LVNI_YAML_DEPTH) {
            yaml_event_delete(&event);
            return lvni_core_config_refuse(r, mark, LVNI_CORE_TOO_DEEP);
        }
        is_key = depth == 1 && (closes || !is_key);
        yaml_event_delete(&event);
    }
    return lvni_core_str_status(keys);
}

/* A mistake beside others of the file, which is read to its end. */
static lvn_status refuse_section(reader *r, yaml_mark_t mark, const char *path, const char *origin)
{
    lvni_core_str keys = {0};
    lvn_status status;
    LVNI_TRY_DONE(status, skip_map(r, mark, &keys));
    if (keys.len > 0) {
        status = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                               "`%.80s` is not a section here: give its keys as %.300s  (%s)", path,
                               lvni_core_str_text(&keys), origin);
    } else if (lvni_core_config_target(r->config, path) != NULL) {
        status = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                               "%.80s: expected a value, not a map  (%s)", path, origin);
    } else {
        status = lvni_core_config_unknown(r->config, path, origin);
    }
done:
    lvni_core_str_free(&keys);
    return r->layer == LVNI_LAYER_FILE ? lvni_core_config_keep(r->config, status) : status;
}

static lvn_status read_inner_map(reader *r, yaml_mark_t mark, int depth)
{
    const char *path = lvni_core_str_text(&r->path);
    if (depth + 1 > LVNI_YAML_DEPTH) {
        return lvni_core_config_refuse(r, mark, LVNI_CORE_TOO_DEEP);
    }
    if (lvni_core_config_is_prefix(r->config, path)) {
        return read_map(r, depth + 1);
    }
    const lvni_core_slot *slot = lvni_core_config_target(r->config, path);
    if (slot != NULL && (slot->row->flags & LVNI_OPT_MAP) != 0) {
        return read_whole(r, true, mark);
    }
    const lvni_core_foreign *entry = lvni_core_config_foreign(r->config, path);
    if (slot == NULL && entry != NULL && (entry->harmless & LVNI_CORE_HARMLESS_ANY) != 0) {
        LVN_TRY(assign(r, "", false, mark));
        lvni_core_str keys = {0};
        const lvn_status status = skip_map(r, mark, &keys);
        lvni_core_str_free(&keys);
        return status;
    }
    char origin[ORIGIN_MAX];
    origin_of(r, mark, origin);
    return refuse_section(r, mark, path, origin);
}

static bool takes_json(const reader *r)
{
    const lvni_core_slot *slot = lvni_core_config_target(r->config, lvni_core_str_text(&r->path));
    return slot != NULL && (slot->row->flags & LVNI_OPT_JSON) != 0;
}

/* The value behind a key; r->path is the whole key. */
static lvn_status read_value(reader *r, int depth)
{
    yaml_event_t event;
    LVN_TRY(lvni_core_config_next(r, &event));
    const yaml_mark_t mark = event.start_mark;
    lvn_status status = LVN_OK;
    if (event.type == YAML_SCALAR_EVENT) {
        unescape_path(r, &event);
        const char *text = lvni_core_config_text(&event);
        const bool empty =
            !lvni_core_config_quoted(&event) && (*text == '\0' || lvni_core_option_is_null(text));
        const bool section =
            lvni_core_config_find(r->config, lvni_core_str_text(&r->path)) == NULL &&
            lvni_core_config_is_prefix(r->config, lvni_core_str_text(&r->path));
        status = empty && section ? LVN_OK : assign(r, text, lvni_core_config_quoted(&event), mark);
    } else if (takes_json(r)) {
        status = assign_json(r, &event);
    } else if (event.type == YAML_SEQUENCE_START_EVENT) {
        status = read_whole(r, false, mark);
    } else {
        status = read_inner_map(r, mark, depth);
    }
    yaml_event_delete(&event);
    return status;
}

/* The keys of a map, and what its merge keys name, which comes behind them. */
typedef struct map_read {
    int depth;
    bool merged; /* keys that are there are passed over */
    lvni_core_str keys;
    lvni_core_yaml_node merges[MERGES_MAX];
    int n_merges;
} map_read;

/* The next node, events of which are read until it ends. */
static lvn_status take_node(reader *r, lvni_core_yaml_node *out)
{
    yaml_event_t event, bad;
    const char *wrong;
    LVN_TRY(lvni_core_config_next(r, &event));
    lvn_status status = lvni_core_yaml_take(&r->yaml, &event, out, &bad, &wrong);
    yaml_event_delete(&event);
    if (status != LVN_OK) {
        status = event_error(r, status, &bad, wrong);
        lvni_core_yaml_node_free(out);
    }
    return status;
}

static lvn_status take_merge(reader *r, yaml_mark_t mark, map_read *m)
{
    if (m->n_merges == MERGES_MAX) {
        return lvni_core_config_refuse(r, mark, "more than 8 merge keys in one map");
    }
    LVN_TRY(take_node(r, &m->merges[m->n_merges]));
    m->n_merges++;
    return LVN_OK;
}

static lvn_status skip_node(reader *r)
{
    lvni_core_yaml_node node;
    LVN_TRY(take_node(r, &node));
    lvni_core_yaml_node_free(&node);
    return LVN_OK;
}

/* The map behind the name of a section, or nothing. */
static lvn_status read_section(reader *r, int depth)
{
    yaml_event_t event;
    LVN_TRY(lvni_core_config_next(r, &event));
    const yaml_mark_t mark = event.start_mark;
    const bool map = event.type == YAML_MAPPING_START_EVENT,
               empty = event.type == YAML_SCALAR_EVENT && !lvni_core_config_quoted(&event) &&
                       (event.data.scalar.length == 0 ||
                        lvni_core_option_is_null(lvni_core_config_text(&event)));
    yaml_event_delete(&event);
    if (!map && !empty) {
        return lvni_core_config_refuse(r, mark, "a section holds `key: value` lines");
    }
    return map ? read_map(r, depth + 1) : LVN_OK;
}

/* Only the configuration's own section counts, or all but those of job scripts and sweeps. */
static bool is_passed_over(const reader *r, const char *key)
{
    const char *section = r->layer == LVNI_LAYER_FILE ? r->config->section : NULL;
    return section != NULL ? strcmp(key, section) != 0
                           : (strcmp(key, LVNI_CORE_JOB_SECTION) == 0 ||
                              strcmp(key, LVNI_CORE_SWEEP_SECTION) == 0) &&
                                 lvni_core_config_target(r->config, key) == NULL &&
                                 !lvni_core_config_is_prefix(r->config, key);
}

static lvn_status read_pair(reader *r, const yaml_event_t *key, map_read *m)
{
    bool there;
    if (key->type != YAML_SCALAR_EVENT) {
        return lvni_core_config_refuse(r, key->start_mark, "a key is a name, not a list or a map");
    }
    if (strcmp(lvni_core_config_text(key), "<<") == 0 && !lvni_core_config_quoted(key)) {
        return take_merge(r, key->start_mark, m);
    }
    LVN_TRY(add_key(r, key, m->merged, &m->keys, &there));
    const bool top = m->depth == 1;
    if (there || (top && is_passed_over(r, lvni_core_config_text(key)))) {
        return skip_node(r);
    }
    if (top && r->layer == LVNI_LAYER_FILE && r->config->section != NULL) {
        return read_section(r, m->depth);
    }
    const size_t length = r->path.len;
    lvni_core_str_append(&r->path, length > 0 ? "." : "");
    lvni_core_str_append(&r->path, lvni_core_config_text(key));
    LVN_TRY(lvni_core_str_status(&r->path));
    LVN_TRY(read_value(r, m->depth));
    r->path.len = length;
    r->path.data[length] = '\0';
    return LVN_OK;
}

static lvn_status read_pairs(reader *r, map_read *m)
{
    for (;;) {
        yaml_event_t event;
        LVN_TRY(lvni_core_config_next(r, &event));
        const bool end = event.type == YAML_MAPPING_END_EVENT;
        const lvn_status status = end ? LVN_OK : read_pair(r, &event, m);
        yaml_event_delete(&event);
        LVN_TRY(status);
        if (end) {
            return LVN_OK;
        }
    }
}

/* Pairs of what a merge key named: a map, or a list of them, the first one before the others. */
static lvn_status read_merge(reader *r, const lvni_core_yaml_node *node, map_read *m)
{
    const bool list = node->events[0].type == YAML_SEQUENCE_START_EVENT;
    if (!lvni_core_yaml_replay(&r->yaml, node)) {
        return lvni_core_config_refuse(r, node->events[0].start_mark, LVNI_CORE_TOO_DEEP);
    }
    for (bool first = true;; first = false) {
        yaml_event_t event;
        LVN_TRY(lvni_core_config_next(r, &event));
        const yaml_mark_t mark = event.start_mark;
        const yaml_event_type_t type = event.type;
        yaml_event_delete(&event);
        if (list && first) {
            continue;
        }
        if (list && type == YAML_SEQUENCE_END_EVENT) {
            return LVN_OK;
        }
        if (type != YAML_MAPPING_START_EVENT) {
            return lvni_core_config_refuse(r, mark, LVNI_CORE_NO_MERGE);
        }
        LVN_TRY(read_pairs(r, m));
        if (!list) {
            return LVN_OK;
        }
    }
}

/* A map up to its end. What is merged may have merge keys of its own, which come last. */
static lvn_status read_map(reader *r, int depth)
{
    map_read m = {.depth = depth};
    lvn_status status = read_pairs(r, &m);
    m.merged = true;
    for (int i = 0; i < m.n_merges && status == LVN_OK; i++) {
        status = read_merge(r, &m.merges[i], &m);
    }
    for (int i = 0; i < m.n_merges; i++) {
        lvni_core_yaml_node_free(&m.merges[i]);
    }
    lvni_core_str_free(&m.keys);
    return status;
}

/* The first event of a kind that may hold content: stream and document starts are passed over. */
static lvn_status read_stream(reader *r)
{
    bool seen = false;
    for (bool end = false; !end;) {
        yaml_event_t event;
        LVN_TRY(lvni_core_config_next(r, &event));
        lvn_status status = LVN_OK;
        end = event.type == YAML_STREAM_END_EVENT;
        if (event.type == YAML_DOCUMENT_START_EVENT && seen) {
            status = lvni_core_config_refuse(r, event.start_mark,
                                             "a second document; one file holds one configuration");
        } else if (event.type == YAML_MAPPING_START_EVENT) {
            status = read_map(r, 1);
        } else if (event.type == YAML_SEQUENCE_START_EVENT ||
                   (event.type == YAML_SCALAR_EVENT && event.data.scalar.length > 0)) {
            status = lvni_core_config_refuse(r, event.start_mark, NO_PAIRS);
        }
        seen = seen || event.type == YAML_DOCUMENT_START_EVENT;
        yaml_event_delete(&event);
        LVN_TRY(status);
    }
    return LVN_OK;
}

static lvn_status read_text(reader *r, const char *text, size_t bytes,
                            lvn_status (*read)(reader *r))
{
    if (bytes > FILE_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, "%.280s: larger than the 1 MiB a configuration may have", r->name);
    }
    if (!lvni_core_yaml_begin(&r->yaml, text, bytes)) {
        LVN_FAIL(LVN_ERR_MEMORY, "%.280s: out of memory while reading", r->name);
    }
    const lvn_status status = read(r);
    lvni_core_yaml_end(&r->yaml);
    lvni_core_str_free(&r->path);
    return status;
}

lvn_status lvni_core_config_load_yaml(lvni_core_config *config, lvni_core_layer layer,
                                      const char *name, const char *text, size_t bytes)
{
    reader r = {.config = config, .layer = layer, .source = ++config->sources, .name = name};
    return read_text(&r, text, bytes, read_stream);
}

lvn_status lvni_core_config_load_map(lvni_core_config *config, lvni_core_layer layer,
                                     const char *key, const char *map, const char *origin)
{
    lvni_core_str text = {0};
    lvni_core_str_printf(&text, "%s: %s", key, map);
    reader r = {.config = config,
                .layer = layer,
                .source = ++config->sources,
                .name = key,
                .origin = origin};
    lvn_status status = lvni_core_str_status(&text);
    if (status == LVN_OK) {
        status = read_text(&r, lvni_core_str_text(&text), text.len, read_stream);
    }
    lvni_core_str_free(&text);
    return status;
}

/* ---- its form alone ---- */

static lvn_status check_stream(reader *r)
{
    int depth = 0;
    for (bool end = false; !end;) {
        yaml_event_t event;
        LVN_TRY(lvni_core_config_next(r, &event));
        const yaml_mark_t mark = event.start_mark;
        const bool map = event.type == YAML_MAPPING_START_EVENT,
                   list = event.type == YAML_SEQUENCE_START_EVENT,
                   text = event.type == YAML_SCALAR_EVENT && event.data.scalar.length > 0,
                   closes = event.type == YAML_MAPPING_END_EVENT ||
                            event.type == YAML_SEQUENCE_END_EVENT;
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        if (depth == 0 && (list || text)) {
            return lvni_core_config_refuse(r, mark, NO_PAIRS);
        }
        depth += map || list ? 1 : closes ? -1 : 0;
        if (depth > LVNI_YAML_DEPTH) {
            return lvni_core_config_refuse(r, mark, LVNI_CORE_TOO_DEEP);
        }
    }
    return LVN_OK;
}

lvn_status lvni_core_config_check_yaml(const char *name, const char *text, size_t bytes)
{
    reader r = {.name = name};
    return read_text(&r, text, bytes, check_stream);
}

/* ---- where a value stands ---- */

/* libyaml counts characters, and not a byte order mark. */
static size_t byte_of(const char *text, size_t bytes, size_t index)
{
    size_t at = bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    for (; index > 0 && at < bytes; index--) {
        for (at++; at < bytes && ((unsigned char)text[at] & 0xC0) == 0x80; at++) {
        }
    }
    return at;
}

enum { PLACE_DEPTH = 8 }; /* of sections: deeper keys have no rows */

/* An open map or list. */
typedef struct place_level {
    bool is_map, is_key; /* is_key: the next one is */
    size_t length;       /* of the keys that lead to it */
} place_level;

typedef struct place_search {
    const char *row, *text;
    size_t bytes;
    int depth;
    place_level level[PLACE_DEPTH + 1]; /* [0]: the document */
    bool takes;                         /* the next value is the one */
    lvni_core_str path;                 /* "train.batch_size" */
} place_search;

static void take_place(const place_search *p, const yaml_event_t *e, lvni_core_config_place *out)
{
    out->found = true;
    out->plain = e->type == YAML_SCALAR_EVENT && e->start_mark.line == e->end_mark.line &&
                 e->start_mark.line + 1 == out->line;
    out->at = byte_of(p->text, p->bytes, e->start_mark.index);
    out->end = byte_of(p->text, p->bytes, e->end_mark.index);
}

/* Keys of maps in a list have no rows. */
static void see_key(const reader *r, place_search *p, const yaml_event_t *e,
                    lvni_core_config_place *out)
{
    place_level *l = &p->level[p->depth];
    p->path.len = l->length;
    lvni_core_str_append(&p->path, l->length > 0 ? "." : "");
    lvni_core_str_append(&p->path, e->type == YAML_SCALAR_EVENT ? lvni_core_config_text(e) : "-");
    const lvni_core_option *row = lvni_core_str_status(&p->path) == LVN_OK
                                      ? lvni_core_config_row(r->config, p->path.data)
                                      : NULL;
    p->takes = !out->found && row != NULL && strcmp(row->name, p->row) == 0;
    if (p->takes) {
        out->line = e->start_mark.line + 1;
        snprintf(out->key, sizeof out->key, "%s", p->path.data);
    }
    l->is_key = false;
}

static void see_value(place_search *p, const yaml_event_t *e, lvni_core_config_place *out)
{
    if (p->takes) {
        take_place(p, e, out);
    }
    p->takes = false;
    p->level[p->depth].is_key = true;
}

static void see(const reader *r, place_search *p, const yaml_event_t *e,
                lvni_core_config_place *out)
{
    const bool map = e->type == YAML_MAPPING_START_EVENT,
               opens = map || e->type == YAML_SEQUENCE_START_EVENT,
               closes = e->type == YAML_MAPPING_END_EVENT || e->type == YAML_SEQUENCE_END_EVENT,
               seen = p->depth <= PLACE_DEPTH && p->level[p->depth].is_map;
    if (p->depth == 0 && map) {
        out->flow = e->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE;
    } else if (seen && !closes && p->level[p->depth].is_key) {
        see_key(r, p, e, out);
    } else if (seen && !closes) {
        see_value(p, e, out);
    }
    p->depth += opens ? 1 : closes ? -1 : 0;
    if (opens && p->depth <= PLACE_DEPTH) {
        p->level[p->depth] = (place_level){.is_map = map && (p->depth == 1 || seen),
                                           .is_key = true,
                                           .length = p->depth == 1 ? 0 : p->path.len};
    }
}

lvn_status lvni_core_config_find_place(const lvni_core_config *config, const char *row,
                                       const char *name, const char *text, size_t bytes,
                                       lvni_core_config_place *out)
{
    place_search p = {.row = row, .text = text, .bytes = bytes};
    reader r = {.config = (lvni_core_config *)(uintptr_t)config, .name = name};
    lvn_status status;
    *out = (lvni_core_config_place){0};
    if (!lvni_core_yaml_begin(&r.yaml, text, bytes)) {
        LVN_FAIL(LVN_ERR_MEMORY, "%.280s: out of memory while reading", name);
    }
    for (bool end = false; !end;) {
        yaml_event_t event;
        LVNI_TRY_DONE(status, lvni_core_config_next(&r, &event));
        end = event.type == YAML_STREAM_END_EVENT;
        see(&r, &p, &event, out);
        yaml_event_delete(&event);
    }
done:
    lvni_core_yaml_end(&r.yaml);
    lvni_core_str_free(&p.path);
    return status;
}

lvn_status lvni_core_config_load_file(lvni_core_config *config, lvni_core_layer layer,
                                      const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    lvn_status status = lvni_core_file_read(path, FILE_MAX, &text, &bytes);
    if (status == LVN_ERR_NOT_FOUND) { /* a mistake on the command line */
        LVN_FAIL(LVN_ERR_USAGE, "config: %s", lvn_last_error()->message);
    }
    LVN_TRY(status);
    status = lvni_core_config_load_yaml(config, layer, path, text, bytes);
    lvni_core_free(text);
    return status;
}
