/* An environment being put together (launch_variables.h). */
#include "launch/launch_variables.h"

#include "core/alloc.h"
#include "core/str.h"

#include <string.h>

static bool is_named(const char *variable, const char *name, size_t n)
{
    return strncmp(variable, name, n) == 0 && variable[n] == '=';
}

static void put(lvni_launch_variables *v, char *text)
{
    if (v->failed || text == NULL || v->n + 2 > v->room) {
        const size_t room = v->room == 0 ? 128 : v->room * 2;
        char **list = v->failed || text == NULL
                          ? NULL
                          : lvni_core_realloc(LVNI_TAG_CORE, v->list, room * sizeof *list);
        if (list == NULL) {
            v->failed = true;
            lvni_core_free(text);
            return;
        }
        v->list = list;
        v->room = room;
    }
    v->list[v->n++] = text;
    v->list[v->n] = NULL;
}

void lvni_launch_variables_copy(lvni_launch_variables *v, char *const *environment)
{
    for (char *const *e = environment; *e != NULL; e++) {
        put(v, lvni_core_strdup(LVNI_TAG_CORE, *e));
    }
}

void lvni_launch_variables_set(lvni_launch_variables *v, const char *name, const char *value)
{
    lvni_launch_variables_unset(v, name);
    lvni_core_str s = {0};
    lvni_core_str_printf(&s, "%s=%s", name, value);
    put(v, lvni_core_str_take(&s));
}

void lvni_launch_variables_set_number(lvni_launch_variables *v, const char *name, int64_t value)
{
    lvni_launch_variables_unset(v, name);
    lvni_core_str s = {0};
    lvni_core_str_printf(&s, "%s=%lld", name, (long long)value);
    put(v, lvni_core_str_take(&s));
}

static void drop(lvni_launch_variables *v, size_t i)
{
    lvni_core_free(v->list[i]);
    memmove(v->list + i, v->list + i + 1, (v->n - i) * sizeof *v->list); /* with the NULL */
    v->n--;
}

void lvni_launch_variables_unset(lvni_launch_variables *v, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = v->n; i-- > 0;) {
        if (is_named(v->list[i], name, n)) {
            drop(v, i);
        }
    }
}

void lvni_launch_variables_unset_prefix(lvni_launch_variables *v, const char *prefix)
{
    for (size_t i = v->n; i-- > 0;) {
        if (strncmp(v->list[i], prefix, strlen(prefix)) == 0) {
            drop(v, i);
        }
    }
}

const char *lvni_launch_variables_get(const lvni_launch_variables *v, const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < v->n; i++) {
        if (is_named(v->list[i], name, n)) {
            return v->list[i] + n + 1;
        }
    }
    return NULL;
}

lvn_status lvni_launch_variables_status(const lvni_launch_variables *v)
{
    if (v->failed) {
        LVN_FAIL(LVN_ERR_MEMORY, "no memory for the environment of a process");
    }
    return LVN_OK;
}

void lvni_launch_variables_free(lvni_launch_variables *v)
{
    for (size_t i = 0; i < v->n; i++) {
        lvni_core_free(v->list[i]);
    }
    lvni_core_free(v->list);
    *v = (lvni_launch_variables){0};
}
