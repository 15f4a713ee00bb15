/* Values of any depth, of rows with LVNI_OPT_JSON and of whole files: a node of YAML as JSON
 * (config_reader.h, json_read.h). */
#include "core/config_reader.h"
#include "core/error.h"
#include "core/json_read.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef lvni_core_config_reader reader;

/* As YAML reads a plain scalar: null, a switch, a number, else a text. */
static json_t *json_scalar(const char *text, bool quoted)
{
    char *end = NULL;
    if (quoted) {
        return json_string(text);
    }
    if (*text == '\0' || lvni_core_option_is_null(text)) {
        return json_null();
    }
    if (strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0) {
        return json_boolean(strcasecmp(text, "true") == 0);
    }
    const size_t digits = strspn(text, "+-0123456789"), number = strspn(text, "+-.eE0123456789");
    if (text[number] != '\0' || strpbrk(text, "0123456789") == NULL) {
        return json_string(text);
    }
    if (text[digits] == '\0' && digits < 18) {
        const long long i = strtoll(text, &end, 10);
        return *end == '\0' ? json_integer(i) : json_string(text);
    }
    const double d = lvni_core_strtod(text, &end);
    json_t *real = *end == '\0' ? json_real(d) : NULL; /* NULL: 1e999 */
    return real != NULL ? real : json_string(text);
}

static lvn_status no_memory(const reader *r)
{
    LVN_FAIL(LVN_ERR_MEMORY, "%.280s: out of memory while reading", r->name);
}

static lvn_status json_items(reader *r, int depth, json_t *list)
{
    for (;;) {
        yaml_event_t event;
        json_t *item = NULL;
        LVN_TRY(lvni_core_config_next(r, &event));
        const bool end = event.type == YAML_SEQUENCE_END_EVENT;
        lvn_status status = LVN_OK;
        if (!end && json_array_size(list) >= LVNI_YAML_ITEMS) {
            status = lvni_core_config_refuse(r, event.start_mark,
                                             "the list has more than 4096 elements");
        } else if (!end) {
            status = lvni_core_config_read_json(r, &event, depth + 1, &item);
        }
        yaml_event_delete(&event);
        LVN_TRY(status);
        if (end) {
            return LVN_OK;
        }
        if (json_array_append_new(list, item) != 0) {
            return no_memory(r);
        }
    }
}

/* What a merge key names, a map or a list of them, into what the map has not itself. */
static lvn_status json_merge(reader *r, yaml_mark_t mark, json_t *from, json_t *into)
{
    const size_t n = json_is_array(from) ? json_array_size(from) : 1;
    for (size_t i = 0; i < n; i++) {
        json_t *map = json_is_array(from) ? json_array_get(from, i) : from;
        if (!json_is_object(map)) {
            return lvni_core_config_refuse(r, mark, LVNI_CORE_NO_MERGE);
        }
        if (json_object_update_missing(into, map) != 0) {
            return no_memory(r);
        }
    }
    return LVN_OK;
}

static lvn_status json_pair(reader *r, const yaml_event_t *key, int depth, json_t *map,
                            json_t *merged)
{
    yaml_event_t event;
    json_t *value = NULL;
    if (key->type != YAML_SCALAR_EVENT) {
        return lvni_core_config_refuse(r, key->start_mark, "a key is a name, not a list or a map");
    }
    const char *name = lvni_core_config_text(key);
    if (json_object_get(map, name) != NULL) {
        return lvni_core_config_refuse(r, key->start_mark, "a key stands twice in one map");
    }
    LVN_TRY(lvni_core_config_next(r, &event));
    lvn_status status = lvni_core_config_read_json(r, &event, depth + 1, &value);
    yaml_event_delete(&event);
    LVN_TRY(status);
    if (strcmp(name, "<<") == 0 && !lvni_core_config_quoted(key)) {
        status = json_merge(r, key->start_mark, value, merged);
        json_decref(value);
        return status;
    }
    return json_object_set_new(map, name, value) == 0 ? LVN_OK : no_memory(r);
}

static lvn_status json_pairs(reader *r, int depth, json_t *map)
{
    json_t *merged = json_object();
    lvn_status status = merged != NULL ? LVN_OK : no_memory(r);
    for (bool end = false; !end && status == LVN_OK;) {
        yaml_event_t event;
        status = lvni_core_config_next(r, &event);
        if (status == LVN_OK) {
            end = event.type == YAML_MAPPING_END_EVENT;
            status = end ? LVN_OK : json_pair(r, &event, depth, map, merged);
            yaml_event_delete(&event);
        }
    }
    if (status == LVN_OK && json_object_update_missing(map, merged) != 0) {
        status = no_memory(r);
    }
    json_decref(merged);
    return status;
}

lvn_status lvni_core_config_read_json(reader *r, const yaml_event_t *event, int depth, json_t **out)
{
    const bool list = event->type == YAML_SEQUENCE_START_EVENT,
               map = event->type == YAML_MAPPING_START_EVENT;
    if (depth > LVNI_YAML_DEPTH) {
        return lvni_core_config_refuse(r, event->start_mark, LVNI_CORE_TOO_DEEP);
    }
    if (++r->json_values > LVNI_YAML_JSON) {
        return lvni_core_config_refuse(r, event->start_mark,
                                       "maps and lists of more than 65536 "
                                       "values");
    }
    json_t *json = list ? json_array()
                   : map
                       ? json_object()
                       : json_scalar(lvni_core_config_text(event), lvni_core_config_quoted(event));
    lvn_status status = json == NULL ? no_memory(r)
                        : list       ? json_items(r, depth, json)
                        : map        ? json_pairs(r, depth, json)
                                     : LVN_OK;
    if (status != LVN_OK) {
        json_decref(json);
        json = NULL;
    }
    *out = json;
    return status;
}

/* The first document. */
lvn_status lvni_core_json_of_yaml(const char *name, const char *text, size_t bytes, json_t **out)
{
    reader r = {.name = name};
    lvn_status status = LVN_OK;
    *out = NULL;
    if (!lvni_core_yaml_begin(&r.yaml, text, bytes)) {
        return no_memory(&r);
    }
    for (bool done = false; !done && status == LVN_OK;) {
        yaml_event_t event;
        LVNI_TRY_DONE(status, lvni_core_config_next(&r, &event));
        done = event.type != YAML_STREAM_START_EVENT && event.type != YAML_DOCUMENT_START_EVENT;
        if (event.type == YAML_STREAM_END_EVENT) {
            *out = json_null();
        } else if (done) {
            status = lvni_core_config_read_json(&r, &event, 1, out);
        }
        yaml_event_delete(&event);
    }
done:
    lvni_core_yaml_end(&r.yaml);
    return status;
}
