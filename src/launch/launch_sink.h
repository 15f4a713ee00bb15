/* Where lines are shown: the launcher's standard output and error. What a slow reader does not take is kept, in memory first and then in
 * a file without a name, so that a terminal that stands still holds up neither the processes nor their log files. Only when memory and
 * disk are full is the reader given up. */
#ifndef LEVIN_LAUNCH_LAUNCH_SINK_H
#define LEVIN_LAUNCH_LAUNCH_SINK_H

#include <levin/status.h>

typedef struct lvni_sink {
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
} lvni_sink;

void lvni_sink_open(lvni_sink *s, int fd, const char *spill_dir);
void lvni_sink_close(lvni_sink *s);
/* Appends; never waits for the reader. */
void lvni_sink_put(lvni_sink *s, const char *bytes, size_t n);
/* A whole line of the launcher's own; ends an unfinished one of a process first. */
void lvni_sink_line(lvni_sink *s, const char *text);
/* Writes what can be written without waiting. */
void lvni_sink_flush(lvni_sink *s);
bool lvni_sink_is_empty(const lvni_sink *s);

#endif
