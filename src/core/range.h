/* Addresses of the host without memory, for what grows and must not move: from the low end on they
 * become memory as it is asked for. Counted per tag and able to fail like all other heap memory
 * (core/alloc.h), whose file has this, too. Not thread-safe. */
#ifndef LEVIN_CORE_RANGE_H
#define LEVIN_CORE_RANGE_H

#include "core/alloc.h"

typedef struct lvni_core_range {
    char *p; /* page aligned; NULL: none */
    size_t bytes;
    size_t usable; /* so many of them are memory */
    lvni_core_tag tag;
} lvni_core_range;

/* Up to 1 TiB, as much as the system gives; p NULL, without an error, when it gives less than
 * 16 GiB, or when the process may have only so many addresses: others need those. */
lvni_core_range lvni_core_range_reserve(lvni_core_tag tag);
/* At least the first `bytes` are memory from here on; it is zeros where it is new. LVN_ERR_MEMORY,
 * and nothing has changed. */
lvn_status lvni_core_range_grow(lvni_core_range *range, size_t bytes);
void lvni_core_range_free(lvni_core_range *range); /* p NULL is fine */

#endif
