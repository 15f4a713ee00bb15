/* Causes in words, and the exit codes of numbered errors (control.h). */
#include "control.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *lvni_cause_name(lvni_cause_kind kind)
{
    static const char *const names[] = {
#define LVNI_CAUSE_NAME(id, text) text,
        LVNI_CAUSE_LIST(LVNI_CAUSE_NAME)
#undef LVNI_CAUSE_NAME
    };
    return (unsigned)kind < LVNI_CAUSE_COUNT ? names[kind] : "?";
}

lvni_cause_kind lvni_cause_of_status(lvn_status status)
{
    switch (status) {
    case LVN_OK: return LVNI_CAUSE_NONE;
    case LVN_ERR_MEMORY:
    case LVN_ERR_DEVICE_MEMORY: return LVNI_CAUSE_OOM;
    case LVN_ERR_NON_FINITE: return LVNI_CAUSE_NAN;
    case LVN_ERR_PEER:
    case LVN_ERR_ABORTED: return LVNI_CAUSE_PEER;
    default: return LVNI_CAUSE_ERROR;
    }
}

void lvni_cause_sentence(const lvni_cause *cause, char *out, size_t size)
{
    char pid[32] = "", when[48] = "";
    if (cause->pid > 0) {
        snprintf(pid, sizeof pid, ", pid %lld", (long long)cause->pid);
    }
    if (cause->step >= 0) {
        snprintf(when, sizeof when, " at step %lld", (long long)cause->step);
    }
    snprintf(out, size, "rank %d (%s%s) failed first%s: %s", cause->rank, cause->host, pid, when, cause->message);
}

lvni_exit_code lvni_control_exit_code(const lvn_error *error)
{
    const char *m = error->message;
    const bool numbered = m[0] == 'E' && isdigit((unsigned char)m[1]) && isdigit((unsigned char)m[2]) && isdigit((unsigned char)m[3]) && m[4] == ':';
    switch (numbered ? strtol(m + 1, NULL, 10) : 0) {
    case 0: return lvni_exit_of_status(error->code);
    case 105:
    case 106:
    case 110: return LVNI_EXIT_RESOURCE;
    case 113:
    case 114: return LVNI_EXIT_RENDEZVOUS;
    default: return LVNI_EXIT_USAGE;
    }
}
