/* What a file is known by without reading all of it. Called by the reader of videos and by recipes,
 * for what a resumed run compares. */
#ifndef LEVIN_DATA_CONTENTS_H
#define LEVIN_DATA_CONTENTS_H

#include <levin/status.h>
#include <stdint.h>

enum { LVNI_CONTENTS_END = 4096 };
typedef struct lvni_data_contents {
    int64_t bytes;
    uint64_t ends; /* a hash of its first and last LVNI_CONTENTS_END bytes */
    int64_t mtime_ns;
} lvni_data_contents;

/* Of a regular file, which is then open, anywhere in it, for the caller to close; *fd is -1 after a
 * failure. LVN_ERR_NOT_FOUND, LVN_ERR_IO. */
lvn_status lvni_data_contents_open(const char *path, int *fd, lvni_data_contents *out);
lvn_status lvni_data_contents_read(const char *path, lvni_data_contents *out);
/* Of all but the time: a copy has the same. */
uint64_t lvni_data_contents_hash(const lvni_data_contents *contents);

#endif
