/* Output of the ranks. A stream is one output of one process: from its pipe into its log file, and
 * line by line with a prefix to a sink. A sink is where lines are shown, the launcher's standard
 * output or error: what a slow reader does not take is kept, in memory first and then in a file
 * without a name, so that a terminal that stands still delays neither the processes nor their log
 * files. Only when memory and disk are full is the reader given up. */
#ifndef LEVIN_LAUNCH_LAUNCH_STREAM_H
#define LEVIN_LAUNCH_LAUNCH_STREAM_H

#include "core/str.h"

enum { LVNI_SINK_OWN = 1 << 30 }; /* the launcher, as owner */

typedef struct lvni_launch_sink {
    int fd;      /* to write to: a duplicate of its own, which never blocks where possible */
    int owner;   /* stream whose unfinished line is last; -1: the next byte begins a line */
    bool gone;   /* the reader is gone, or what it did not read could not be kept */
    bool blocks; /* a write may block: only after poll, and little at a time */
    bool socket;
    char *data; /* kept bytes: data[at..n), then those of the spill file from spill_at on */
    size_t at, n, room;
    int spill_fd; /* -1: none yet */
    int64_t spill_at, spill_end;
    const char *spill_dir; /* borrowed; NULL: the folder of temporary files */
    /* the row that rank 0 rewrites on its terminal: others' lines go above it; empty: none */
    lvni_core_str status;
    int status_id; /* stream of that row; as owner */
    bool covered;  /* it is erased for a line that is not yet finished */
} lvni_launch_sink;

void lvni_launch_sink_open(lvni_launch_sink *s, int fd, const char *spill_dir);
void lvni_launch_sink_close(lvni_launch_sink *s);
/* Appends; never waits for the reader. */
void lvni_launch_sink_put(lvni_launch_sink *s, const char *bytes, size_t n);
/* Erases the row, until it is set again: the window has another size, or the process is gone. */
void lvni_launch_sink_drop_status(lvni_launch_sink *s);
/* The terminal has printed ^C for a key: that gets a line of its own. False: this is not a
 * terminal. */
bool lvni_launch_sink_interrupted(lvni_launch_sink *s);
/* A whole line of the launcher's own; ends an unfinished one of a process first. */
void lvni_launch_sink_line(lvni_launch_sink *s, const char *text);
/* Writes what can be written without waiting. */
void lvni_launch_sink_flush(lvni_launch_sink *s);
bool lvni_launch_sink_is_empty(const lvni_launch_sink *s);

enum { LVNI_STREAM_PIECE = 64 << 10 }; /* a line longer than this, with its prefix, is cut */

typedef struct lvni_launch_stream {
    int id;                 /* its value of lvni_launch_sink.owner */
    int fd;                 /* the pipe's end to read from; -1: at its end */
    int log_fd;             /* -1: no file */
    lvni_launch_sink *sink; /* borrowed; NULL: not shown */
    char *prefix;           /* owned */
    char *line;             /* of LVNI_STREAM_PIECE bytes when there was an unfinished line */
    size_t n_line;
    uint64_t last_ns; /* of the last byte */
    char *tail;       /* ring of the last LVNI_STREAM_PIECE bytes; NULL: not wanted, or none yet */
    bool keeps_tail;
    /* a terminal: unfinished lines are shown at once, and the log file gets lines in their final
     * form */
    bool live;
    lvni_core_str standing; /* of a terminal: the unfinished line */
    bool returned;          /* after its '\r': what comes next replaces it */
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
