/* Events of a YAML text with its aliases replaced: the node that an anchor names comes again where
 * an alias stands, with the marks of its first place. Called by config_yaml.c. */
#ifndef LEVIN_CORE_YAML_EVENTS_H
#define LEVIN_CORE_YAML_EVENTS_H

#include <levin/status.h>
#include <yaml.h>

/* A node as its events. */
typedef struct lvni_core_yaml_node {
    char *anchor; /* NULL: none */
    yaml_event_t *events;
    size_t n, room;
    int depth; /* open maps and lists while it is being read */
    bool open;
} lvni_core_yaml_node;

enum { LVNI_YAML_REPLAYS = 32, LVNI_YAML_ANCHORS = 256 };

typedef struct lvni_core_yaml {
    yaml_parser_t parser;
    lvni_core_yaml_node *anchors[LVNI_YAML_ANCHORS];
    int n_anchors, n_open;
    struct lvni_core_yaml_replay {
        const lvni_core_yaml_node *node;
        size_t at;
    } replays[LVNI_YAML_REPLAYS];
    int n_replays;
    int64_t repeated, recorded; /* events, for the limits of time and memory */
} lvni_core_yaml;

/* Of `bytes` bytes that outlive it. False: no memory. */
bool lvni_core_yaml_begin(lvni_core_yaml *y, const char *text, size_t bytes);
void lvni_core_yaml_end(lvni_core_yaml *y);
/* The next event, the caller's (yaml_event_delete). LVN_ERR_USAGE: *wrong NULL: y->parser has an
 * error; else a sentence about the event, which is the caller's then, too. */
lvn_status lvni_core_yaml_next(lvni_core_yaml *y, yaml_event_t *event, const char **wrong);
/* The node that begins with `first`, whose other events are read; freed by the caller. */
lvn_status lvni_core_yaml_take(lvni_core_yaml *y, const yaml_event_t *first,
                               lvni_core_yaml_node *out, yaml_event_t *bad, const char **wrong);
void lvni_core_yaml_node_free(lvni_core_yaml_node *node);
/* From the next event on the node's events come, then what would have come without. The node
 * outlives them. False: nested too deep. */
bool lvni_core_yaml_replay(lvni_core_yaml *y, const lvni_core_yaml_node *node);

#endif
