/* Unpacks what deflate has packed, piece by piece. The packed bytes are in memory; no number in
 * them is trusted. Called by the readers of zip archives (zip.h) and of gzip files (data/array.c).
 */
#ifndef LEVIN_CORE_INFLATE_H
#define LEVIN_CORE_INFLATE_H

#include <levin/status.h>

enum { LVNI_INFLATE_RATIO = 1032 }; /* deflate packs at most so many bytes into one */

typedef enum lvni_core_inflate_format {
    LVNI_INFLATE_RAW, /* an entry of a zip archive */
    LVNI_INFLATE_GZIP /* members one behind the other, as one stream */
} lvni_core_inflate_format;

typedef struct lvni_core_inflater lvni_core_inflater;

bool lvni_core_inflate_is_gzip(const void *bytes, size_t n);
/* Borrows the packed bytes. LVN_ERR_MEMORY. */
lvn_status lvni_core_inflate_open(lvni_core_inflate_format format, const void *packed, size_t n,
                                  lvni_core_inflater **out);
void lvni_core_inflate_close(lvni_core_inflater *inflater); /* NULL is fine */
/* The next bytes, as many as there is room for: *got; fewer where the stream ends. *ended: nothing
 * is behind them. LVN_ERR_CORRUPT, with a part of a sentence as the message ("it ends too early");
 * LVN_ERR_MEMORY. */
lvn_status lvni_core_inflate_next(lvni_core_inflater *inflater, void *to, size_t room, size_t *got,
                                  bool *ended);

#endif
