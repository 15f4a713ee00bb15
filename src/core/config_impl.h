/* The inside of a configuration, shared by config.c, config_get.c, config_arguments.c,
 * config_yaml.c and config_write.c. */
#ifndef LEVIN_CORE_CONFIG_IMPL_H
#define LEVIN_CORE_CONFIG_IMPL_H

#include "core/config.h"
#include "core/foreign_keys.h"

typedef struct lvni_core_slot {
    const lvni_core_option *row;
    const lvni_core_option *target; /* the row itself, or the one it is an alias of */
    lvni_core_value value;          /* rows that are no aliases only, as all below */
    char *origin;
    char *spelled; /* the key as it was written */
    lvni_core_layer layer;
    /* which file or command line the value is from: two spellings in one must agree */
    int source;
    int seen_source; /* the last one that named the key, whether its value won or not */
} lvni_core_slot;

struct lvni_core_config {
    lvni_core_slot *slots;
    size_t n;
    int sources;
    const char *help_command;
};

/* One key and value of a layer. The key may have '-' for '_'. `back`: give the default back
 * (~key). */
typedef struct lvni_core_assignment {
    const char *key, *text;
    bool quoted, back;
    lvni_core_layer layer;
    int source;
    bool once; /* the key may stand only once in this source (files) */
    const char *origin;
} lvni_core_assignment;

lvn_status lvni_core_config_assign(lvni_core_config *config, const lvni_core_assignment *a);
/* The slot of a key or alias, or NULL. */
lvni_core_slot *lvni_core_config_find(const lvni_core_config *config, const char *key);
/* The slot that a user's key sets: of an alias, or of a foreign name (foreign_keys.h), the row that
 * it means. NULL: none. */
lvni_core_slot *lvni_core_config_target(const lvni_core_config *config, const char *key);
/* What the foreign table says of a key that is no row here; NULL: nothing for this command. */
const lvni_core_foreign *lvni_core_config_foreign(const lvni_core_config *config, const char *key);
/* Does any key begin with "prefix."? */
bool lvni_core_config_is_prefix(const lvni_core_config *config, const char *prefix);
lvn_status lvni_core_config_unknown(const lvni_core_config *config, const char *key,
                                    const char *origin);

#endif
