/* What the header of each picture of a folder says: its size, or that it is damaged, and the file's
 * bytes and time. Read once by folder_index.c, long before the picture itself is wanted. */
#ifndef LEVIN_DATA_FOLDER_HEADERS_H
#define LEVIN_DATA_FOLDER_HEADERS_H

#include "core/str.h"
#include "data/picture_scratch.h"

enum { LVNI_DAMAGE_NAMED = 20 }; /* pictures that are named */

typedef struct lvni_header {
    int64_t bytes, time_ns; /* of the file; 0 0 when it is not there */
    int width, height;      /* pixels as stored; 0 0: damaged */
} lvni_header;

/* The damaged pictures of a folder, on their way into a sentence. */
typedef struct lvni_damage {
    int64_t n;
    lvni_str first; /* what is wrong with the first */
    lvni_str names; /* of the others */
} lvni_damage;

/* Look at root/name. A picture that cannot be opened or understood is noted; only LVN_ERR_MEMORY
 * ends the looking. */
lvn_status lvni_header_read(lvni_data_scratch *scratch, const char *root, const char *name,
                            lvni_header *out, lvni_damage *damage);
/* The same for n pictures, with several threads where there are many: waiting for a disk or a
 * network takes longer than looking. */
lvn_status lvni_headers_read(const char *root, const char *names, const size_t *name_at, int64_t n,
                             lvni_header *out, lvni_damage *damage);
/* Bytes and time alone. False: no such file. */
bool lvni_header_stat(const char *root, const char *name, lvni_header *out);
/* "2 of 14 pictures cannot be used: PATH: what is wrong with it; also b/2.jpg", appended; nothing
 * when none is damaged. Frees *damage. */
lvn_status lvni_damage_tell(lvni_damage *damage, int64_t of, lvni_str *out);

#endif
