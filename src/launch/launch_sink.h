/* Where lines are shown: the launcher's standard output and error. What a slow reader does not take
 * is kept, in memory first and then in a file without a name, so that a terminal that stands still
 * holds up neither the processes nor their log files. Only when memory and disk are full is the
 * reader given up. */
#ifndef LEVIN_LAUNCH_LAUNCH_SINK_H
#define LEVIN_LAUNCH_LAUNCH_SINK_H

#include "core/str.h"

enum { LVNI_SINK_OWN = 1 << 30 }; /* the launcher, as owner */

typedef struct lvni_launch_sink {
    int fd;      /* to write to: a duplicate of its own, which never blocks where that can be had */
    int owner;   /* whose unfinished line stands last; -1: the next byte begins a line */
    bool gone;   /* nobody reads any more, or what is not read could not be kept */
    bool blocks; /* a write may block: only when poll says so, and little at a time */
    bool socket;
    char *data; /* kept bytes: data[at..n), then those of the spill file from spill_at on */
    size_t at, n, room;
    int spill_fd; /* -1: none yet */
    int64_t spill_at, spill_end;
    const char *spill_dir; /* borrowed; NULL: the folder of temporary files */
    lvni_core_str status;  /* the row that rank 0 rewrites on its terminal: others' lines go above
                         it;  empty: there is none */
    int status_id;         /* whose row that is; as owner */
    bool covered;          /* it is erased for a line that is not yet finished */
} lvni_launch_sink;

void lvni_launch_sink_open(lvni_launch_sink *s, int fd, const char *spill_dir);
void lvni_launch_sink_close(lvni_launch_sink *s);
/* Appends; never waits for the reader. */
void lvni_launch_sink_put(lvni_launch_sink *s, const char *bytes, size_t n);
/* Around a line of `id`: makes room for it at the start of a row, and shows the status row
 * again. */
void lvni_launch_sink_begin(lvni_launch_sink *s, int id);
void lvni_launch_sink_finish(lvni_launch_sink *s);
/* What stands in the row of `id` now; ends with '\r' when the cursor is at its beginning. Empty:
 * nothing. */
void lvni_launch_sink_set_status(lvni_launch_sink *s, int id, const char *prefix, const char *text,
                                 bool returned);
/* Erases the row, until it is set again: the window has another size, or the process is gone. */
void lvni_launch_sink_drop_status(lvni_launch_sink *s);
/* The terminal has printed ^C for a key: that gets a line of its own. False: this is no
 * terminal. */
bool lvni_launch_sink_interrupted(lvni_launch_sink *s);
/* A whole line of the launcher's own; ends an unfinished one of a process first. */
void lvni_launch_sink_line(lvni_launch_sink *s, const char *text);
/* Writes what can be written without waiting. */
void lvni_launch_sink_flush(lvni_launch_sink *s);
bool lvni_launch_sink_is_empty(const lvni_launch_sink *s);

#endif
