/* An environment being put together: "NAME=value" strings, ended by NULL. */
#ifndef LEVIN_LAUNCH_LAUNCH_VARIABLES_H
#define LEVIN_LAUNCH_LAUNCH_VARIABLES_H

#include <levin/status.h>

typedef struct lvni_variables {
    char **list; /* n strings and NULL; owned */
    size_t n, room;
    bool failed; /* memory ran out on the way: lvni_variables_status tells at the end */
} lvni_variables;

void lvni_variables_copy(lvni_variables *v, char *const *environment);
void lvni_variables_set(lvni_variables *v, const char *name, const char *value);
void lvni_variables_set_number(lvni_variables *v, const char *name, int64_t value);
void lvni_variables_unset(lvni_variables *v, const char *name);
void lvni_variables_unset_prefix(lvni_variables *v, const char *prefix);
const char *lvni_variables_get(const lvni_variables *v, const char *name); /* NULL: unset */
lvn_status lvni_variables_status(const lvni_variables *v);
void lvni_variables_free(lvni_variables *v);

#endif
