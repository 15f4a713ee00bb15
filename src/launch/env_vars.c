/* Looking into an array of variables (env_vars.h). */
#include "launch/env_vars.h"

#include <inttypes.h>
#include <string.h>

const char *lvni_launch_env_raw(char *const *env, const char *name)
{
    const size_t n = strlen(name);
    for (; env != NULL && *env != NULL; env++) {
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=') {
            return *env + n + 1;
        }
    }
    return NULL;
}

const char *lvni_launch_env_get(char *const *env, const char *name)
{
    const char *value = lvni_launch_env_raw(env, name);
    return value == NULL || *value == '\0' ? NULL : value;
}

bool lvni_launch_env_digits(const char *text, uint64_t max, uint64_t *out)
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

lvn_status lvni_launch_env_number(char *const *env, const char *name, uint64_t max,
                                  lvni_core_notices *notices, uint64_t *out)
{
    const char *text = lvni_launch_env_get(env, name);
    if (text != NULL && !lvni_launch_env_digits(text, max, out)) {
        const lvn_status s =
            lvni_core_notice_error(notices, 100, "%s='%s' is not a number", name, text);
        lvni_core_notice_found(notices, "%s='%s'", name, text);
        lvni_core_notice_fix(notices,
                             "decimal digits alone, at most %" PRIu64
                             "; who started this program sets it: unset it if that was you",
                             max);
        notices->own = true;
        return s;
    }
    return LVN_OK;
}

lvn_status lvni_launch_env_int(char *const *env, const char *name, lvni_core_notices *notices,
                               int *out)
{
    uint64_t value = (uint64_t)*out;
    LVN_TRY(lvni_launch_env_number(env, name, INT32_MAX, notices, &value));
    if (lvni_launch_env_get(env, name) != NULL) {
        *out = (int)value;
    }
    return LVN_OK;
}

lvn_status lvni_launch_env_flag(char *const *env, const char *name, const char *fix,
                                lvni_core_notices *notices, bool *out)
{
    const char *text = lvni_launch_env_get(env, name);
    if (text == NULL) {
        return LVN_OK;
    }
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        const lvn_status s =
            lvni_core_notice_error(notices, 100, "%s='%s' is neither 0 nor 1", name, text);
        lvni_core_notice_found(notices, "%s='%s'", name, text);
        lvni_core_notice_fix(notices, "%s", fix);
        return s;
    }
    *out = *text == '1';
    return LVN_OK;
}

lvn_status lvni_launch_env_strict(char *const *env, int option, lvni_core_notices *notices,
                                  bool *out)
{
    *out = option > 0;
    return option >= 0
               ? LVN_OK
               : lvni_launch_env_flag(env, "LEVIN_STRICT",
                                      "LEVIN_STRICT=1: warnings with a number are errors; 0: they "
                                      "are not; or unset it",
                                      notices, out);
}

const char *lvni_launch_env_first(char *const *env, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (lvni_launch_env_get(env, *names) != NULL) {
            return *names;
        }
    }
    return NULL;
}

void lvni_launch_env_found(char *const *env, const char *name, lvni_core_notices *notices)
{
    const char *value = lvni_launch_env_raw(env, name);
    if (value != NULL) {
        lvni_core_notice_found(notices, "%s=%s", name, value);
    } else {
        lvni_core_notice_found(notices, "%s is not set", name);
    }
}
