/* SHA-256 (FIPS 180-4), for the names of files that hold digits of it. Called by
 * run/weights_sources.c. */
#ifndef LEVIN_CORE_SHA256_H
#define LEVIN_CORE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct lvni_core_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
} lvni_core_sha256;

enum { LVNI_SHA256_HEX = 65 }; /* 64 digits and the zero */

void lvni_core_sha256_begin(lvni_core_sha256 *s);
void lvni_core_sha256_add(lvni_core_sha256 *s, const void *data, size_t n);
/* Lower-case digits of all that was added. */
void lvni_core_sha256_end(lvni_core_sha256 *s, char hex[LVNI_SHA256_HEX]);

#endif
