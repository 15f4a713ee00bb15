/* What the header of each image of a folder says: its size, or that it is damaged, and the file's
 * bytes and time. Read once by folder_index.c, long before the image itself is wanted. */
#ifndef LEVIN_DATA_FOLDER_HEADERS_H
#define LEVIN_DATA_FOLDER_HEADERS_H

#include "core/str.h"
#include "data/image.h"

enum { LVNI_DAMAGE_NAMED = 20 }; /* images that are named */

typedef struct lvni_data_header {
    int64_t bytes, time_ns; /* of the file; 0 0 when it is not there */
    int width, height;      /* pixels as stored; 0 0: damaged */
} lvni_data_header;

/* The damaged images of a folder, on their way into a sentence. */
typedef struct lvni_data_damage {
    int64_t n;
    lvni_core_str first; /* what is wrong with the first */
    lvni_core_str names; /* of the others */
} lvni_data_damage;

/* Look at root/name. An image that cannot be opened or understood is noted; only LVN_ERR_MEMORY
 * ends the looking. */
lvn_status lvni_data_header_read(lvni_data_scratch *scratch, const char *root, const char *name,
                                 lvni_data_header *out, lvni_data_damage *damage);
/* The same for n images, with several threads where there are many: waiting for a disk or a
 * network takes longer than looking. */
lvn_status lvni_data_headers_read(const char *root, const char *names, const size_t *name_at,
                                  int64_t n, lvni_data_header *out, lvni_data_damage *damage);
/* Bytes and time alone. False: no such file. */
bool lvni_data_header_stat(const char *root, const char *name, lvni_data_header *out);
/* "2 of 14 images cannot be used: PATH: what is wrong with it; also b/2.jpg", appended; nothing
 * when none is damaged. Frees *damage. */
lvn_status lvni_data_damage_report(lvni_data_damage *damage, int64_t of, lvni_core_str *out);

#endif
