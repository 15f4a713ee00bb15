/* A file in a directory that all nodes share, with the address of the store: for launchers that
 * give none, and for host names that do not resolve; and with the run's key, where ranks have no
 * other (LVNI_AUTH_FILE). Its mode is 0600, and a key that others can read or have written is not
 * used. The store's host writes it whole; ranks read it again before every attempt, so that one of
 * an earlier run does no harm: no store listens there, or its proof is another run's.
 *   first line: host name, port, pid, boot id; then "key " and 32 hexadecimal digits, if there is
 *   one; then one address a line: the one that the store listens on, or all of its host */
#ifndef LEVIN_CONTROL_RDZV_FILE_H
#define LEVIN_CONTROL_RDZV_FILE_H

#include "auth.h"

enum { LVNI_RDZV_ADDRESSES = 8 };

typedef struct lvni_control_rdzv_where {
    int port, n;
    int64_t pid;
    char host[64], boot_id[64];
    char address[LVNI_RDZV_ADDRESSES][64]; /* numbers, in the order in which to try them */
    bool has_key;
    lvni_control_token key;
    char no_key[96]; /* why not */
} lvni_control_rdzv_where;

/* "DIR/<hash of job key, run id, secret and world>.addr", appended to out. */
lvn_status lvni_control_rdzv_file_path(const char *dir, const char *job_key, const char *run_id,
                                       const char *secret, int world, lvni_core_str *out);
/* LVN_ERR_USAGE where a file is in the place of the directory. */
lvn_status lvni_control_rdzv_file_check(const char *dir);
/* This host and process, the key (NULL: none), and the address that the socket is bound to (fd -1:
 * to none). LVN_ERR_IO where the file system does not keep the key from others. *made: the bytes of
 * path that name the first directory that had to be made; 0: all were there. Also set when it
 * fails. Until lvni_control_rdzv_file_remove, which is to be called then as well, a signal that
 * ends the process removes the file. */
lvn_status lvni_control_rdzv_file_write(const char *path, int port, int fd,
                                        const lvni_control_token *key, size_t *made);
/* False: it does not exist, or is not such a file. */
bool lvni_control_rdzv_file_read(const char *path, lvni_control_rdzv_where *out);
/* Where it is still the one that this process wrote; and the directories that were made for it, as
 * far as nothing else is in them. */
void lvni_control_rdzv_file_remove(const char *path, int port, size_t made);

#endif
