/* How the two ends of the control channel know that they belong to the same run. Each proves that
 * it knows the run's key without sending it, over the nonces of both (message.h): a program that
 * listens at a candidate port learns nothing that opens the real store. The hash is SipHash-2-4
 * with 128 bits (Aumasson and Bernstein 2012), a keyed function made for this.
 *
 * MUNGE is a daemon on each node of a cluster, all with one key, that reports on one node which
 * user made a credential on another. Its library (libmunge2) is loaded when it is needed; without
 * it, or without the daemon, the functions fail with the reason. A call may take as long as the
 * daemon does. Thread-safe. */
#ifndef LEVIN_CONTROL_AUTH_H
#define LEVIN_CONTROL_AUTH_H

#include "core/str.h"

typedef struct lvni_control_token {
    unsigned char b[16];
} lvni_control_token;

/* The hash of n bytes under a key. */
lvni_control_token lvni_control_siphash(const lvni_control_token *key, const void *bytes, size_t n);
/* The run's key: of job key, run id and secret (NULL: ""), under the random key that both ends have
 * (NULL: none; then it is as secret as `secret`). */
lvn_status lvni_control_token_of_run(const lvni_control_token *random, const char *job_key,
                                     const char *run_id, const char *secret,
                                     lvni_control_token *out);
lvn_status lvni_control_token_random(lvni_control_token *out); /* from the kernel */
enum { LVNI_TOKEN_TEXT = 33 };
/* 32 hexadecimal digits */
void lvni_control_token_print(const lvni_control_token *token, char out[LVNI_TOKEN_TEXT]);
/* false: not 32 hexadecimal digits */
bool lvni_control_token_scan(const char *text, lvni_control_token *out);
/* The same for LEVIN_RUN_KEY: LVN_ERR_USAGE, whose message does not show the text. */
lvn_status lvni_control_token_of_run_key(const char *text, lvni_control_token *out);
/* in constant time */
bool lvni_control_token_equal(const lvni_control_token *a, const lvni_control_token *b);

/* ---- MUNGE. socket NULL: MUNGE's own ---- */

enum { LVNI_CREDENTIAL_MAX = 640 }; /* bytes of one with the payload of a greeting */

/* Makes a credential that carries n bytes and that only processes of this one's user can decode,
 * appended to out. LVN_ERR_NOT_FOUND: no library or no daemon, with the reason. */
lvn_status lvni_control_munge_encode(const char *socket, const void *bytes, size_t n,
                                     lvni_core_str *out);

typedef enum lvni_control_munge_result {
    LVNI_MUNGE_OK,
    LVNI_MUNGE_INVALID, /* not a credential, of another key or time, or decoded before */
    LVNI_MUNGE_USER,    /* of another user, or for another */
    LVNI_MUNGE_DAEMON   /* no daemon could decode it: lvn_last_error has the reason */
} lvni_control_munge_result;
/* Of a credential of this process's user with exactly n bytes, which are copied to bytes. */
lvni_control_munge_result lvni_control_munge_decode(const char *socket, const char *credential,
                                                    void *bytes, size_t n);

/* Does it work here? Makes a credential and decodes it. */
lvn_status lvni_control_munge_probe(const char *socket);

#endif
