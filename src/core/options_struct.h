/* Options structs of the public calls begin with their size, so that a program built with an older, shorter struct still
 * works: what it does not have is zero, and zero means default. */
#ifndef LEVIN_CORE_OPTIONS_STRUCT_H
#define LEVIN_CORE_OPTIONS_STRUCT_H

#include <stddef.h>
#include <string.h>

/* own: the callee's copy of `bytes` bytes; given: the caller's struct or NULL (all defaults). */
static inline void lvni_options_copy(void *own, size_t bytes, const void *given)
{
    memset(own, 0, bytes);
    if (given != NULL) {
        size_t theirs;
        memcpy(&theirs, given, sizeof theirs);
        memcpy(own, given, theirs < bytes ? theirs : bytes);
    }
}

#endif
