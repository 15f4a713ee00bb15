/* Anchors and aliases of YAML (yaml_events.h). */
#include "core/yaml_events.h"

#include "core/alloc.h"

#include <string.h>

/* A text of 1 MiB could name 2^40 values by a few aliases of aliases. */
enum { REPEATED_MAX = 50000, RECORDED_MAX = 100000 };

static const char TOO_MANY[] = "more than 256 anchors",
                  REPEATS[] = "aliases repeat more than 50000 values",
                  RECORDS[] = "anchors and merge keys name more than 100000 values",
                  NESTED[] = "aliases are nested deeper than 32 levels",
                  UNKNOWN[] = "an alias (*name) of an anchor (&name) that does not stand above",
                  ITSELF[] = "an alias inside of what its own anchor names";

/* ---- nodes ---- */

static bool copy_event(const yaml_event_t *from, yaml_event_t *to)
{
    bool done = true;
    switch (from->type) {
    case YAML_SCALAR_EVENT:
        done = yaml_scalar_event_initialize(to, NULL, from->data.scalar.tag,
                                            from->data.scalar.value, (int)from->data.scalar.length,
                                            1, 1, from->data.scalar.style) != 0;
        break;
    case YAML_SEQUENCE_START_EVENT:
        done = yaml_sequence_start_event_initialize(to, NULL, from->data.sequence_start.tag, 1,
                                                    from->data.sequence_start.style) != 0;
        break;
    case YAML_MAPPING_START_EVENT:
        done = yaml_mapping_start_event_initialize(to, NULL, from->data.mapping_start.tag, 1,
                                                   from->data.mapping_start.style) != 0;
        break;
    default: memset(to, 0, sizeof *to); to->type = from->type;
    }
    if (done) {
        to->start_mark = from->start_mark;
        to->end_mark = from->end_mark;
    }
    return done;
}

/* Closes the node with its last event. */
static lvn_status add_event(lvni_core_yaml_node *node, const yaml_event_t *event)
{
    if (node->n == node->room) {
        const size_t room = node->room > 0 ? 2 * node->room : 8;
        yaml_event_t *events =
            lvni_core_realloc(LVNI_TAG_CONFIG, node->events, room * sizeof *events);
        if (events == NULL) {
            return LVN_ERR_MEMORY;
        }
        node->events = events;
        node->room = room;
    }
    if (!copy_event(event, &node->events[node->n])) {
        LVN_FAIL(LVN_ERR_MEMORY, "out of memory while reading YAML");
    }
    node->n++;
    const bool opens = event->type == YAML_MAPPING_START_EVENT ||
                       event->type == YAML_SEQUENCE_START_EVENT,
               closes =
                   event->type == YAML_MAPPING_END_EVENT || event->type == YAML_SEQUENCE_END_EVENT;
    node->depth += opens ? 1 : closes ? -1 : 0;
    node->open = node->depth > 0;
    return LVN_OK;
}

void lvni_core_yaml_node_free(lvni_core_yaml_node *node)
{
    for (size_t i = 0; i < node->n; i++) {
        yaml_event_delete(&node->events[i]);
    }
    lvni_core_free(node->events);
    lvni_core_free(node->anchor);
    *node = (lvni_core_yaml_node){0};
}

/* ---- the reader ---- */

bool lvni_core_yaml_begin(lvni_core_yaml *y, const char *text, size_t bytes)
{
    memset(y, 0, sizeof *y);
    if (!yaml_parser_initialize(&y->parser)) {
        return false;
    }
    yaml_parser_set_input_string(&y->parser, (const unsigned char *)text, bytes);
    return true;
}

void lvni_core_yaml_end(lvni_core_yaml *y)
{
    for (int i = 0; i < y->n_anchors; i++) {
        lvni_core_yaml_node_free(y->anchors[i]);
        lvni_core_free(y->anchors[i]);
    }
    yaml_parser_delete(&y->parser);
}

bool lvni_core_yaml_replay(lvni_core_yaml *y, const lvni_core_yaml_node *node)
{
    if (y->n_replays == LVNI_YAML_REPLAYS) {
        return false;
    }
    y->replays[y->n_replays].node = node;
    y->replays[y->n_replays++].at = 0;
    return true;
}

/* *found false: none is replayed. */
static lvn_status replayed(lvni_core_yaml *y, yaml_event_t *event, bool *found)
{
    *found = y->n_replays > 0;
    if (!*found) {
        return LVN_OK;
    }
    struct lvni_core_yaml_replay *top = &y->replays[y->n_replays - 1];
    if (!copy_event(&top->node->events[top->at++], event)) {
        LVN_FAIL(LVN_ERR_MEMORY, "out of memory while reading YAML");
    }
    y->n_replays -= top->at == top->node->n;
    y->repeated++;
    return LVN_OK;
}

static const char *anchor_of(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT: return (const char *)event->data.scalar.anchor;
    case YAML_SEQUENCE_START_EVENT: return (const char *)event->data.sequence_start.anchor;
    case YAML_MAPPING_START_EVENT: return (const char *)event->data.mapping_start.anchor;
    default: return NULL;
    }
}

/* The last one of that name that has begun; NULL: none. */
static lvni_core_yaml_node *find(const lvni_core_yaml *y, const char *anchor)
{
    for (int i = y->n_anchors; i-- > 0;) {
        if (strcmp(y->anchors[i]->anchor, anchor) == 0) {
            return y->anchors[i];
        }
    }
    return NULL;
}

static lvn_status add_anchor(lvni_core_yaml *y, const char *anchor, const char **wrong)
{
    if (y->n_anchors == LVNI_YAML_ANCHORS) {
        *wrong = TOO_MANY;
        return LVN_ERR_USAGE;
    }
    lvni_core_yaml_node *node = LVNI_NEW(LVNI_TAG_CONFIG, lvni_core_yaml_node);
    char *name = lvni_core_strdup(LVNI_TAG_CONFIG, anchor);
    if (node == NULL || name == NULL) {
        lvni_core_free(node);
        lvni_core_free(name);
        return LVN_ERR_MEMORY;
    }
    node->anchor = name;
    node->open = true;
    y->anchors[y->n_anchors++] = node;
    y->n_open++;
    return LVN_OK;
}

/* Into all nodes with an anchor that it is part of. */
static lvn_status record(lvni_core_yaml *y, const yaml_event_t *event)
{
    for (int i = 0, open = y->n_open; i < y->n_anchors && open > 0; i++) {
        lvni_core_yaml_node *node = y->anchors[i];
        if (node->open) {
            open--;
            y->recorded++;
            LVN_TRY(add_event(node, event));
            y->n_open -= !node->open;
        }
    }
    return LVN_OK;
}

/* An alias: its node is replayed. */
static const char *follow(lvni_core_yaml *y, const yaml_event_t *event)
{
    const char *anchor = (const char *)event->data.alias.anchor;
    const lvni_core_yaml_node *node = anchor != NULL ? find(y, anchor) : NULL;
    if (node == NULL) {
        return UNKNOWN;
    }
    if (node->open) {
        return ITSELF;
    }
    return lvni_core_yaml_replay(y, node) ? NULL : NESTED;
}

lvn_status lvni_core_yaml_next(lvni_core_yaml *y, yaml_event_t *event, const char **wrong)
{
    bool found;
    *wrong = NULL;
    for (;;) {
        LVN_TRY(replayed(y, event, &found));
        if (!found && !yaml_parser_parse(&y->parser, event)) {
            return LVN_ERR_USAGE;
        }
        if (event->type != YAML_ALIAS_EVENT) {
            break;
        }
        *wrong = follow(y, event);
        if (*wrong != NULL) {
            return LVN_ERR_USAGE;
        }
        yaml_event_delete(event);
    }
    const char *anchor = anchor_of(event);
    *wrong = y->repeated > REPEATED_MAX ? REPEATS : y->recorded > RECORDED_MAX ? RECORDS : NULL;
    if (*wrong != NULL) {
        return LVN_ERR_USAGE;
    }
    lvn_status status = anchor != NULL ? add_anchor(y, anchor, wrong) : LVN_OK;
    if (status == LVN_OK) {
        status = record(y, event);
    }
    if (status != LVN_OK && *wrong == NULL) {
        yaml_event_delete(event);
    }
    return status;
}

lvn_status lvni_core_yaml_take(lvni_core_yaml *y, const yaml_event_t *first,
                               lvni_core_yaml_node *out, yaml_event_t *bad, const char **wrong)
{
    *out = (lvni_core_yaml_node){0};
    *wrong = NULL;
    lvn_status status = add_event(out, first);
    while (status == LVN_OK && out->open) {
        yaml_event_t event;
        status = lvni_core_yaml_next(y, &event, wrong);
        if (status == LVN_OK) {
            y->recorded++;
            status = add_event(out, &event);
            yaml_event_delete(&event);
        } else if (*wrong != NULL) {
            *bad = event;
        }
    }
    return status;
}
