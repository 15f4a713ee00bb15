/* An environment being put together: "NAME=value" strings, ended by NULL. */
#ifndef LEVIN_LAUNCH_LAUNCH_VARIABLES_H
#define LEVIN_LAUNCH_LAUNCH_VARIABLES_H

#include <levin/status.h>

typedef struct lvni_launch_variables {
    char **list; /* n strings and NULL; owned */
    size_t n, room;
    bool failed; /* memory ran out on the way: lvni_launch_variables_status tells at the end */
} lvni_launch_variables;

void lvni_launch_variables_copy(lvni_launch_variables *v, char *const *environment);
void lvni_launch_variables_set(lvni_launch_variables *v, const char *name, const char *value);
void lvni_launch_variables_set_number(lvni_launch_variables *v, const char *name, int64_t value);
void lvni_launch_variables_unset(lvni_launch_variables *v, const char *name);
void lvni_launch_variables_unset_prefix(lvni_launch_variables *v, const char *prefix);
/* NULL: unset */
const char *lvni_launch_variables_get(const lvni_launch_variables *v, const char *name);
lvn_status lvni_launch_variables_status(const lvni_launch_variables *v);
void lvni_launch_variables_free(lvni_launch_variables *v);

#endif
