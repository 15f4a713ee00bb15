/* How the two ends of the control channel know that they belong to the same run: each proves that
 * it knows the run's key without showing it, over the nonces of both. Called when a connection
 * begins. The hash is SipHash-2-4 with 128 bits (Aumasson and Bernstein 2012), a keyed function
 * made for this: who listens at a candidate port and is asked learns nothing that opens the real
 * store. */
#ifndef LEVIN_CONTROL_TOKEN_H
#define LEVIN_CONTROL_TOKEN_H

#include <levin/status.h>

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
void lvni_control_token_print(const lvni_control_token *token,
                              char out[LVNI_TOKEN_TEXT]); /* 32 hexadecimal digits */
lvn_status lvni_control_token_given(const char *text,
                                    /* LVN_ERR_USAGE, without the text: not 32 of them */
                                    lvni_control_token *out);
/* false: not 32 hexadecimal digits */
bool lvni_control_token_scan(const char *text, lvni_control_token *out);
/* takes the same time wherever they differ */
bool lvni_control_token_equal(const lvni_control_token *a, const lvni_control_token *b);

#endif
