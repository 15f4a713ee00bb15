/* One output of one process: from its pipe into its log file, and line by line with a prefix to
 * where it is shown. */
#ifndef LEVIN_LAUNCH_LAUNCH_STREAM_H
#define LEVIN_LAUNCH_LAUNCH_STREAM_H

#include "core/str.h"
#include "launch/launch_sink.h"

enum { LVNI_STREAM_PIECE = 64 << 10 }; /* a line longer than this, with its prefix, is cut */

typedef struct lvni_launch_stream {
    int id;                 /* who stands in lvni_launch_sink.owner */
    int fd;                 /* the pipe's end to read from; -1: at its end */
    int log_fd;             /* -1: no file */
    lvni_launch_sink *sink; /* borrowed; NULL: not shown */
    char *prefix;           /* owned */
    char *line;             /* of LVNI_STREAM_PIECE bytes when there was an unfinished line */
    size_t n_line;
    uint64_t last_ns; /* of the last byte */
    char *tail;       /* ring of the last LVNI_STREAM_PIECE bytes; NULL: not wanted, or none yet */
    bool keeps_tail;
    /* a terminal: unfinished lines are shown at once, and the log file gets lines as they stand in
     * the end */
    bool live;
    lvni_core_str standing; /* of a terminal: the unfinished line */
    bool returned;          /* behind its '\r': what comes next stands in its place */
    uint64_t n_tail;        /* bytes that went through it */
    int log_error; /* errno of the write to the log file that failed; it is left alone since */
} lvni_launch_stream;

typedef enum lvni_launch_stream_state {
    LVNI_STREAM_END,   /* the pipe's end was reached, fd is closed */
    LVNI_STREAM_EMPTY, /* nothing more for now */
    LVNI_STREAM_MORE,  /* others have their turn, then again */
} lvni_launch_stream_state;
lvni_launch_stream_state lvni_launch_stream_read(lvni_launch_stream *s, uint64_t now_ns);
/* Shows an unfinished line that had no byte for a second. Returns when to call again, 0: nothing
 * waits. */
uint64_t lvni_launch_stream_idle(lvni_launch_stream *s, uint64_t now_ns);
/* The process is gone: shows what is left, closes everything but the tail. */
void lvni_launch_stream_end(lvni_launch_stream *s);
void lvni_launch_stream_free(lvni_launch_stream *s);
/* The last n lines of the tail: *out, of *bytes; lvni_core_free. */
lvn_status lvni_launch_stream_tail(const lvni_launch_stream *s, int n, char **out, size_t *bytes);

#endif
