/* Hashes of bytes: FNV-1a with 64 bits (Fowler, Noll and Vo; the FNV draft of the IETF,
 * draft-eastlake-fnv). For tables and for names of equal things, not against forgery. */
#ifndef LEVIN_CORE_HASH_H
#define LEVIN_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LVNI_CORE_HASH UINT64_C(0xcbf29ce484222325) /* of nothing: what to begin with */

/* Of what h is the hash of, and then these bytes. */
static inline uint64_t lvni_core_hash(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *byte = (const unsigned char *)bytes;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ byte[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

/* The same of a text's letters, without its end. */
static inline uint64_t lvni_core_hash_text(uint64_t h, const char *text)
{
    return lvni_core_hash(h, text, strlen(text));
}

#endif
