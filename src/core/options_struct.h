/* Options structs of the public calls begin with their size, so that a program built with an older,
 * shorter struct still works: what it does not have is zero, and zero means default. */
#ifndef LEVIN_CORE_OPTIONS_STRUCT_H
#define LEVIN_CORE_OPTIONS_STRUCT_H

#include <levin/status.h>
#include <string.h>

/* own: the callee's copy of `bytes` bytes; given: the caller's struct or NULL (all defaults); call:
 * "conv2d" of lvn_conv2d_with. A struct without its size is an error: its values would silently be
 * replaced by the defaults. */
static inline lvn_status lvni_core_options_copy(const char *call, void *own, size_t bytes,
                                                const void *given)
{
    memset(own, 0, bytes);
    if (given != NULL) {
        size_t theirs;
        memcpy(&theirs, given, sizeof theirs);
        LVN_ARG(theirs >= sizeof theirs,
                "lvn_%s_with: struct_size of the options is %zu, but must be sizeof of their "
                "struct (%zu bytes); the macro sets it",
                call, theirs, bytes);
        memcpy(own, given, theirs < bytes ? theirs : bytes);
    }
    return LVN_OK;
}

/* Height and width of a setting: what is given for the axis, else for both, else the fallback; 0 is
 * not given. */
static inline void lvni_core_options_per_axis(int out[2], const int given[2], int both,
                                              int fallback_h, int fallback_w)
{
    const int fallback[2] = {fallback_h, fallback_w};
    for (int i = 0; i < 2; i++) {
        out[i] = given[i] != 0 ? given[i] : both != 0 ? both : fallback[i];
    }
}

/* `value` is one of an enum that goes from 0 to `last`. */
static inline lvn_status lvni_core_options_enum(const char *call, const char *what, int value,
                                                int last)
{
    LVN_ARG(value >= 0 && value <= last, "%s: %s is %d, which is none of its values (0 to %d)",
            call, what, value, last);
    return LVN_OK;
}

#endif
