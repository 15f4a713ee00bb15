/* Looking into an array of variables (env_vars.h). */
#include "launch/env_vars.h"

#include <string.h>

const char *lvni_env_raw(char *const *env, const char *name)
{
    const size_t n = strlen(name);
    for (; env != NULL && *env != NULL; env++) {
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=') {
            return *env + n + 1;
        }
    }
    return NULL;
}

const char *lvni_env_get(char *const *env, const char *name)
{
    const char *value = lvni_env_raw(env, name);
    return value == NULL || *value == '\0' ? NULL : value;
}

bool lvni_env_digits(const char *text, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    if (*text == '\0') {
        return false;
    }
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '9') {
            return false;
        }
        const uint64_t digit = (uint64_t)(*p - '0');
        if (digit > max || value > (max - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

lvn_status lvni_env_int(char *const *env, const char *name, lvni_notices *notices, int *out)
{
    const char *text = lvni_env_get(env, name);
    uint64_t value;
    if (text == NULL) {
        return LVN_OK;
    }
    if (!lvni_env_digits(text, INT32_MAX, &value)) {
        const lvn_status s = lvni_notice_error(notices, 100, "%s='%s' is not a number", name, text);
        lvni_notice_found(notices, "%s='%s'; expected: decimal digits alone, at most %d", name, text, INT32_MAX);
        notices->own = true;
        return s;
    }
    *out = (int)value;
    return LVN_OK;
}
