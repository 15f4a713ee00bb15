/* Zip archives, entry by entry: read (stored, or compressed by deflate), and written (stored).
 * Called for files of torch.save and for .npz. */
#ifndef LEVIN_CORE_ZIP_H
#define LEVIN_CORE_ZIP_H

#include <levin/status.h>

typedef struct lvni_core_zip_entry {
    const char *name; /* not zero-terminated */
    size_t name_bytes;
    uint64_t header, packed, bytes; /* offset of the local header; sizes of the content */
    uint32_t crc;
    uint16_t method, flags; /* method 0: stored */
    size_t place;           /* for the caller: where the content was read to, plus 1; 0 at first */
} lvni_core_zip_entry;

typedef struct lvni_core_zip {
    const char *path;
    int fd;
    uint64_t file_bytes;
    char *directory;
    lvni_core_zip_entry *entries; /* by name */
    int64_t n_entries;
} lvni_core_zip;

/* By its first bytes. */
bool lvni_core_zip_is(const void *bytes, size_t n);
/* The list of entries. Borrows path and fd. Closed in every case. */
lvn_status lvni_core_zip_open(const char *path, int fd, uint64_t file_bytes, lvni_core_zip *out);
void lvni_core_zip_close(lvni_core_zip *zip);
/* "archive/data/0" as prefix "archive/data/" and name "0". NULL: there is none. */
lvni_core_zip_entry *lvni_core_zip_find(const lvni_core_zip *zip, const char *prefix,
                                        size_t prefix_bytes, const char *name, size_t name_bytes);
/* Can the file hold what the directory has of the entry? Before memory is taken for entry->bytes.
 * LVN_ERR_CORRUPT; LVN_ERR_UNSUPPORTED: encrypted, or compressed in another way. */
lvn_status lvni_core_zip_check(const lvni_core_zip *zip, const lvni_core_zip_entry *entry);
/* Its first n bytes, of at most entry->bytes. */
lvn_status lvni_core_zip_read_begin(const lvni_core_zip *zip, const lvni_core_zip_entry *entry,
                                    char *to, size_t n);
/* The content of an entry. verify: compare its CRC-32. */
lvn_status lvni_core_zip_read(const lvni_core_zip *zip, const lvni_core_zip_entry *entry,
                              bool verify, char *to);

/* ---- writing: zip_write.c ---- */

typedef struct lvni_core_zip_content {
    const char *name;
    const void *head, *data; /* one behind the other; head: less than 4 GiB */
    size_t head_bytes, bytes;
} lvni_core_zip_content;
/* A new archive of these, through lvni_core_atomic_*; each content begins at a multiple of 64
 * bytes. instead: what to do where they are too large. LVN_ERR_UNSUPPORTED: over 4 GiB. */
lvn_status lvni_core_zip_write(const char *path, const lvni_core_zip_content *contents, int64_t n,
                               const char *instead);

#endif
