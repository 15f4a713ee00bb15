/* SLURM_..._TASKS_PER_NODE (task_vector.h). */
#include "launch/task_vector.h"

#include "core/alloc.h"

#include <string.h>

enum { MAX_NODES = 1048576, MAX_TASKS = 65536 };

static const char *read_number(const char *p, int *out)
{
    int value = 0;
    const char *begin = p;
    while (*p >= '0' && *p <= '9' && value <= MAX_NODES) {
        value = value * 10 + (*p++ - '0');
    }
    *out = p == begin ? -1 : value;
    return p;
}

/* "2" or "2(x3)" at p; NULL when it is neither. */
static const char *read_item(const char *p, int *tasks, int *repeat)
{
    *repeat = 1;
    p = read_number(p, tasks);
    if (*p == '(') {
        if (p[1] != 'x') {
            return NULL;
        }
        p = read_number(p + 2, repeat);
        if (*p++ != ')') {
            return NULL;
        }
    }
    const bool fits = *tasks >= 1 && *tasks <= MAX_TASKS && *repeat >= 1 && *repeat <= MAX_NODES;
    return fits && (*p == ',' || *p == '\0') ? p : NULL;
}

static lvn_status add(lvni_launch_task_vector *v, int tasks, int repeat)
{
    int *more = lvni_core_realloc(LVNI_TAG_CORE, v->tasks, (size_t)(v->n + repeat) * sizeof *more);
    if (more == NULL) {
        return LVN_ERR_MEMORY;
    }
    v->tasks = more;
    for (int i = 0; i < repeat; i++) {
        more[v->n++] = tasks;
    }
    v->sum += (int64_t)tasks * repeat;
    return LVN_OK;
}

static lvn_status unreadable(const char *name, const char *text, lvni_core_notices *notices)
{
    const lvn_status s =
        lvni_core_notice_error(notices, 102, "%s='%s' is no list of tasks per node", name, text);
    lvni_core_notice_found(
        notices, "%s='%s'; expected: numbers such as 2(x3),1 for 2, 2, 2 and 1 tasks", name, text);
    return s;
}

lvn_status lvni_launch_task_vector_read(const char *name, const char *text,
                                        lvni_core_notices *notices, lvni_launch_task_vector *out)
{
    lvni_launch_task_vector v = {.n = 0};
    lvn_status s = LVN_OK;
    for (const char *p = text; p != NULL && *text != '\0' && s == LVN_OK;) {
        int tasks, repeat;
        p = read_item(p, &tasks, &repeat);
        if (p == NULL || v.n + repeat > MAX_NODES) {
            s = unreadable(name, text, notices);
            break;
        }
        s = add(&v, tasks, repeat);
        p = *p == ',' ? p + 1 : NULL;
    }
    if (s != LVN_OK) {
        lvni_launch_task_vector_free(&v);
        return s;
    }
    *out = v;
    return LVN_OK;
}

void lvni_launch_task_vector_free(lvni_launch_task_vector *vector)
{
    lvni_core_free(vector->tasks);
    memset(vector, 0, sizeof *vector);
}
