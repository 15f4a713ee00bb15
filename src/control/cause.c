/* Causes in words (control.h). */
#include "control.h"

#include "core/error_record.h"

#include <stdio.h>
#include <string.h>

const char *lvni_control_cause_name(lvni_control_cause_kind kind)
{
    static const char *const names[] = {
#define LVNI_CAUSE_NAME(id, text) text,
        LVNI_CAUSE_LIST(LVNI_CAUSE_NAME)
#undef LVNI_CAUSE_NAME
    };
    return (unsigned)kind < LVNI_CAUSE_COUNT ? names[kind] : "?";
}

lvni_control_cause_kind lvni_control_cause_of_status(lvn_status status)
{
    const char *name = lvni_core_error_record_kind(status); /* one table for records and causes */
    for (int kind = LVNI_CAUSE_ERROR; kind < LVNI_CAUSE_COUNT; kind++) {
        if (strcmp(lvni_control_cause_name((lvni_control_cause_kind)kind), name) == 0) {
            return (lvni_control_cause_kind)kind;
        }
    }
    return LVNI_CAUSE_ERROR;
}

void lvni_control_cause_sentence(const lvni_control_cause *cause, char *out, size_t size)
{
    char pid[32] = "", when[48] = "", where[sizeof cause->place + 8] = "";
    if (cause->kind == LVNI_CAUSE_PEER && cause->named) { /* it only heard of it */
        snprintf(out, size, "%s", cause->message);
        return;
    }
    if (cause->pid > 0) {
        snprintf(pid, sizeof pid, ", pid %lld", (long long)cause->pid);
    }
    if (cause->step >= 0) {
        snprintf(when, sizeof when, " at step %lld", (long long)cause->step);
    }
    if (cause->place[0] != '\0') {
        snprintf(where, sizeof where, " (in %s)", cause->place);
    }
    snprintf(out, size, "rank %d (%s%s) failed first%s: %s%s", cause->rank, cause->host, pid, when,
             cause->message, where);
}
