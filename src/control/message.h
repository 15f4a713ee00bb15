/* The bodies of frames that hold more than a number: greeting, facts, table, cause. One function
 * writes each, one reads it; false: the body is not valid. Called by both ends. */
#ifndef LEVIN_CONTROL_MESSAGE_H
#define LEVIN_CONTROL_MESSAGE_H

#include "auth.h"
#include "control.h"
#include "frame.h"

enum { LVNI_CONTROL_PROTOCOL = 4, LVNI_CONTROL_MAX_WORLD = 65536 };

/* HELLO: a store's first frame. `how` proves nothing. */
void lvni_control_put_hello(lvni_core_str *out, const lvni_control_token *nonce,
                            lvni_control_auth how);
bool lvni_control_scan_hello(const lvni_control_frame *frame, lvni_control_token *nonce,
                             lvni_control_auth *how);

/* GREET. The proof is over everything before it and both nonces: see lvni_control_greet_proof. The
 * texts are escaped. */
typedef struct lvni_control_greet {
    uint32_t protocol, world, rank;
    /* random, of one lvni_control_connect: distinguishes its second attempt from another process */
    uint64_t instance;
    uint64_t pid;
    char host[64], version[32];
    lvni_control_token nonce, proof;
    const char *credential; /* of MUNGE, borrowed from the frame and not terminated; n bytes */
    size_t credential_n;
} lvni_control_greet;
/* port: where the rank has found the store. A program that forwards the greeting has another
 * one. */
lvni_control_token lvni_control_greet_proof(const lvni_control_token *key,
                                            const lvni_control_token *store_nonce,
                                            const lvni_control_greet *greet, int port);
void lvni_control_put_greet(lvni_core_str *out, const lvni_control_greet *greet);
bool lvni_control_scan_greet(const lvni_control_frame *frame, lvni_control_greet *greet);
/* What a credential carries. */
typedef struct lvni_control_credential_payload {
    lvni_control_token store_nonce, rank_nonce, key;
} lvni_control_credential_payload;

/* DENY: why a proof was not taken. Not authenticated: for messages only. */
#define LVNI_DENY_LIST(X)                                                                          \
    X(KEY, "it belongs to another run, or has another LEVIN_TOKEN")                                \
    X(CREDENTIAL,                                                                                  \
      "its MUNGE does not take the credential of this node's: another key, or another time")       \
    X(USER, "it belongs to another user")                                                          \
    X(DAEMON, "its MUNGE does not answer")
typedef enum lvni_control_deny {
#define LVNI_DENY_ENUM(name, text) LVNI_DENY_##name,
    LVNI_DENY_LIST(LVNI_DENY_ENUM)
#undef LVNI_DENY_ENUM
        LVNI_DENY_COUNT
} lvni_control_deny;
const char *lvni_control_deny_text(uint32_t deny); /* of any number */

/* WELCOME and REFUSE begin with this. */
lvni_control_token lvni_control_store_proof(const lvni_control_token *key,
                                            const lvni_control_token *store_nonce,
                                            const lvni_control_token *rank_nonce);

void lvni_control_put_cause(lvni_core_str *out, lvni_control_frame_type type,
                            const lvni_control_cause *cause);
bool lvni_control_scan_cause(const lvni_control_frame *frame, lvni_control_cause *cause);

/* FACTS, behind its id. The texts are borrowed from what they were read from and end with a
 * zero. */
typedef struct lvni_control_facts_message {
    lvni_control_facts facts;
    lvni_control_token config_hash;
} lvni_control_facts_message;
void lvni_control_put_facts(lvni_core_str *out, const lvni_control_facts *facts);
bool lvni_control_scan_facts(lvni_control_scan *scan, lvni_control_facts_message *out);

/* The table of all ranks: equal texts travel once. */
lvn_status lvni_control_put_table(lvni_core_str *out, const lvni_control_member *members,
                                  int world);
/* bytes stay the caller's, the rows point into them. *out is the caller's (lvni_core_free). */
lvn_status lvni_control_scan_table(const char *bytes, size_t n, int world,
                                   lvni_control_member **out);

#endif
