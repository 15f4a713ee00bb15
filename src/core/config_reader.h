/* Shared by the files that read YAML into a configuration: config_yaml.c, config_json.c. */
#ifndef LEVIN_CORE_CONFIG_READER_H
#define LEVIN_CORE_CONFIG_READER_H

#include "core/config_impl.h"
#include "core/yaml_events.h"

#include <jansson.h>

enum { LVNI_YAML_DEPTH = 16, LVNI_YAML_ITEMS = 4096, LVNI_YAML_JSON = 65536 };

#define LVNI_CORE_TOO_DEEP "maps are nested deeper than 16 levels"
#define LVNI_CORE_NO_MERGE "a merge key (<<) takes a map, or a list of maps"

typedef struct lvni_core_config_reader {
    lvni_core_config *config;
    lvni_core_layer layer;
    int source;
    const char *name;   /* of the file, as the user gave it; of one value its key */
    const char *origin; /* of one value; NULL: the file's lines */
    lvni_core_yaml yaml;
    lvni_core_str path; /* dotted key of the map being read */
    int json_values;    /* of all rows with LVNI_OPT_JSON */
} lvni_core_config_reader;

/* Of a scalar. */
static inline const char *lvni_core_config_text(const yaml_event_t *event)
{
    return (const char *)event->data.scalar.value;
}

static inline bool lvni_core_config_quoted(const yaml_event_t *event)
{
    return event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
}

/* LVN_ERR_USAGE "NAME:LINE:COLUMN: WHAT" */
lvn_status lvni_core_config_refuse(const lvni_core_config_reader *r, yaml_mark_t mark,
                                   const char *what);
/* The next event, without the forms levin does not accept. On success the caller deletes it. */
lvn_status lvni_core_config_next(lvni_core_config_reader *r, yaml_event_t *event);
/* The node that begins with the event. *out: the caller's. */
lvn_status lvni_core_config_read_json(lvni_core_config_reader *r, const yaml_event_t *event,
                                      int depth, json_t **out);

#endif
