/* The last error of each thread (levin/status.h) and the version of the library. Numbered errors,
 * exit codes and error records are in error.c. */
#include "core/error.h"
#include "core/escape.h"

#include <levin/status.h>
#include <levin/version.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local lvn_error last_error;

const char *lvn_status_name(lvn_status status)
{
    switch (status) {
#define CASE(code, number, text)                                                                   \
    case code: return #code;
        LVN_STATUS_LIST(CASE)
#undef CASE
    }
    return "LVN_ERR_?";
}

const char *lvn_status_text(lvn_status status)
{
    switch (status) {
#define CASE(code, number, text)                                                                   \
    case code: return text;
        LVN_STATUS_LIST(CASE)
#undef CASE
    }
    return "unknown status";
}

const lvn_error *lvn_last_error(void)
{
    return &last_error;
}

void lvn_clear_error(void)
{
    last_error.code = LVN_OK;
    last_error.number = 0;
    last_error.message[0] = '\0';
    last_error.n_frames = 0;
}

lvn_status lvn_error_set(lvn_status code, const char *file, int line, const char *fmt, ...)
{
    char text[sizeof last_error.message]; /* the arguments may point into the record itself */
    va_list ap;
    va_start(ap, fmt);
    lvni_core_escape_format(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(last_error.message, text, sizeof text);
    last_error.code = code;
    last_error.number = 0;
    last_error.file = file;
    last_error.line = line;
    last_error.serial++;
    last_error.n_frames = 0;
    return code;
}

lvn_status lvni_core_error_number(int number)
{
    last_error.number = number;
    return last_error.code;
}

void lvn_error_frame(const char *fmt, ...)
{
    if (last_error.n_frames == LVN_ERROR_FRAMES) {
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    char *frame = last_error.frames[last_error.n_frames];
    lvni_core_escape_format(frame, sizeof last_error.frames[0], fmt, ap);
    va_end(ap);
    last_error.n_frames++;
}

void lvn_error_append(const char *fmt, ...)
{
    const size_t n = strlen(last_error.message);
    va_list ap;
    va_start(ap, fmt);
    lvni_core_escape_format(last_error.message + n, sizeof last_error.message - n, fmt, ap);
    va_end(ap);
}

lvn_status lvn_error_adopt(const lvn_error *error)
{
    if (error != &last_error) {
        const uint64_t serial = last_error.serial + 1;
        last_error = *error;
        last_error.serial = serial;
    }
    return last_error.code;
}

void lvni_core_error_restore(const lvn_error *error)
{
    last_error = *error;
}

const char *lvn_version(void)
{
    return LEVIN_VERSION;
}
