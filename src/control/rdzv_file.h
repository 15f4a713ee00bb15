/* A file in a directory that all nodes share, which tells where the store listens: for launchers that give no address, and for host names that do not resolve.
 * The store's host writes it whole; ranks read it again before every attempt, so that one of an earlier run does no harm: nobody
 * answers there, or not with this run's proof.
 *   first line: host name, port, pid, boot id; then one address a line: the one that the store listens on, or all of its host */
#ifndef LEVIN_CONTROL_RDZV_FILE_H
#define LEVIN_CONTROL_RDZV_FILE_H

#include "core/str.h"

enum { LVNI_RDZV_ADDRESSES = 8 };

typedef struct lvni_rdzv_where {
    int port, n;
    int64_t pid;
    char host[64], boot_id[64];
    char address[LVNI_RDZV_ADDRESSES][64]; /* numbers, in the order in which to try them */
} lvni_rdzv_where;

/* "DIR/<hash of job key, run id, secret and world>.addr", appended to out. */
lvn_status lvni_rdzv_file_path(const char *dir, const char *job_key, const char *run_id, const char *secret, int world, lvni_str *out);
/* This host and process, and the address that the socket is bound to (fd -1: to none). *made: the directory was not there, and had to be made. */
lvn_status lvni_rdzv_file_write(const char *path, int port, int fd, bool *made);
/* False: it is not there, or is no such file. */
bool lvni_rdzv_file_read(const char *path, lvni_rdzv_where *out);
/* Where it is still the one that this process wrote. dir_too: and its directory, when nothing else is in it. */
void lvni_rdzv_file_remove(const char *path, int port, bool dir_too);

#endif
