/* What travels over the control channel: frames of a fixed head and a body, numbers little endian.
 * Reading them from a stream that may hold anything, and putting bodies together and apart. Called
 * by both ends; does not interpret a body (message.h does).
 *   u32 bytes of the body   u16 type   u16 zero   body */
#ifndef LEVIN_CONTROL_FRAME_H
#define LEVIN_CONTROL_FRAME_H

#include "core/str.h"

/* type, from whom, body */
#define LVNI_FRAME_LIST(X)                                                                         \
    X(HELLO)   /* store: at once on every connection: magic, nonce */                              \
    X(GREET)   /* rank: who it is, nonce, proof (message.h) */                                     \
    X(WELCOME) /* store: proof, who it is */                                                       \
    X(REFUSE)  /* store: proof, status, message */                                                 \
    X(FACTS)   /* rank: id, facts. Answered, like all with an id, by REPLY */                      \
    X(SET)     /* rank: id, key, value */                                                          \
    X(GET)     /* rank: id, key, milliseconds */                                                   \
    X(ADD)     /* rank: id, key, number */                                                         \
    X(GATHER)  /* rank: id, name, milliseconds, value */                                           \
    X(BYE)     /* rank: id */                                                                      \
    X(REPLY) /* store: id, status, and the rest of the body: what was asked for, or the message */ \
    X(BEAT)  /* both: rank: the step it is in; store: nothing */                                   \
    X(FAIL)  /* rank: cause */                                                                     \
    X(ABORT) /* store: cause */                                                                    \
    X(STOP_ASK)  /* rank: reason; store to all: reason */                                          \
    X(STOP_STEP) /* rank: the last boundary it passed */                                           \
    X(STOP_AT)   /* store: the common step, reason */                                              \
    X(DENY)      /* store: why it does not take a greeting; proves nothing */

typedef enum lvni_control_frame_type {
    LVNI_FRAME_NONE, /* 0 is not a type */
#define LVNI_FRAME_ENUM(name) LVNI_FRAME_##name,
    LVNI_FRAME_LIST(LVNI_FRAME_ENUM)
#undef LVNI_FRAME_ENUM
        LVNI_FRAME_COUNT
} lvni_control_frame_type;

enum {
    LVNI_FRAME_HEAD = 8,
    LVNI_FRAME_MAX_GREETING = 1024,    /* body, until the other end has proved who it is */
    LVNI_FRAME_MAX_TO_STORE = 8 << 20, /* a value, or the facts with the configuration */
    LVNI_FRAME_MAX_TO_RANK = 512 << 20 /* a gather of all ranks */
};

/* ---- Reading ---- */

typedef struct lvni_control_frame {
    lvni_control_frame_type type;
    const unsigned char *body; /* borrowed from the reader until its next push */
    size_t n;
} lvni_control_frame;

/* A zeroed one with its limit set is empty. Memory grows with what has arrived, never with what is
 * announced. */
typedef struct lvni_control_frame_reader {
    size_t limit; /* bytes of a body */
    unsigned char *data;
    size_t len, used, room;
} lvni_control_frame_reader;

lvn_status lvni_control_frame_push(lvni_control_frame_reader *reader, const void *bytes, size_t n);
/* *have: a whole frame is there. LVN_ERR_CORRUPT: not the control channel's; the stream is of no
 * further use. */
lvn_status lvni_control_frame_next(lvni_control_frame_reader *reader, lvni_control_frame *out,
                                   bool *have);
void lvni_control_frame_reader_free(lvni_control_frame_reader *reader);

/* A body from its beginning. After the first read beyond the end everything is 0 or empty and `bad`
 * stays set. */
typedef struct lvni_control_scan {
    const unsigned char *at;
    size_t left;
    bool bad;
} lvni_control_scan;

lvni_control_scan lvni_control_scan_of(const lvni_control_frame *frame);
uint32_t lvni_control_scan_u32(lvni_control_scan *scan);
uint64_t lvni_control_scan_u64(lvni_control_scan *scan);
/* n bytes, NULL when there are fewer */
const unsigned char *lvni_control_scan_raw(lvni_control_scan *scan, size_t n);
/* a u32 length and so many bytes */
const char *lvni_control_scan_bytes(lvni_control_scan *scan, size_t *n);
/* the same as zero-terminated text; too long, or a zero inside: bad */
void lvni_control_scan_text(lvni_control_scan *scan, char *out, size_t size);
/* a u32; another number than a status's is LVN_ERR_INTERNAL */
lvn_status lvni_control_scan_status(lvni_control_scan *scan);
/* all was there, nothing is left */
bool lvni_control_scan_done(const lvni_control_scan *scan);

/* ---- Writing, into a string of bytes. Failed allocations show in lvni_core_str_status at the end.
 * ---- */

size_t lvni_control_frame_begin(lvni_core_str *out, lvni_control_frame_type type);
/* begin: what lvni_control_frame_begin gave */
void lvni_control_frame_end(lvni_core_str *out, size_t begin);
void lvni_control_put_u32(lvni_core_str *out, uint32_t value);
void lvni_control_put_u64(lvni_core_str *out, uint64_t value);
void lvni_control_put_bytes(lvni_core_str *out, const void *bytes, size_t n); /* with its length */
/* NULL counts as "" */
void lvni_control_put_text(lvni_core_str *out, const char *text);

#endif
