/* MUNGE: a daemon on each node of a cluster, all with one key, that says on one node which user
 * made a credential on another. Its library (libmunge2) is loaded when it is needed: where it is
 * missing, or the daemon is, the functions say so. A call may take as long as the daemon does.
 * Thread-safe. */
#ifndef LEVIN_CONTROL_MUNGE_H
#define LEVIN_CONTROL_MUNGE_H

#include "core/str.h"

enum { LVNI_CREDENTIAL_MAX = 640 }; /* bytes of one with the payloads of a greeting */

/* Makes a credential that carries n bytes and that only processes of this one's user can decode,
 * appended to out. LVN_ERR_NOT_FOUND: no library or no daemon, and why. socket NULL: MUNGE's
 * own. */
lvn_status lvni_control_munge_encode(const char *socket, const void *bytes, size_t n,
                                     lvni_core_str *out);

typedef enum lvni_control_munge_result {
    LVNI_MUNGE_OK,
    LVNI_MUNGE_INVALID, /* no credential, of another key or time, or seen before */
    LVNI_MUNGE_USER,    /* of another user, or for another */
    LVNI_MUNGE_DAEMON   /* nobody could look at it: lvn_last_error says why */
} lvni_control_munge_result;
/* Of a credential of this process's user with exactly n bytes, which are copied to bytes. */
lvni_control_munge_result lvni_control_munge_decode(const char *socket, const char *credential,
                                                    void *bytes, size_t n);

/* Does it work here? Makes a credential and decodes it. */
lvn_status lvni_control_munge_probe(const char *socket);

#endif
