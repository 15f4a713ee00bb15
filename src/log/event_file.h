/* TensorBoard's record files: length (u64, little endian), its masked CRC-32C, the payload, its
 * masked CRC-32C. Written by tensorboard.c. */
#ifndef LEVIN_LOG_EVENT_FILE_H
#define LEVIN_LOG_EVENT_FILE_H

#include "core/str.h"

uint32_t lvni_log_crc32c(const void *data, size_t n);
uint32_t lvni_log_crc32c_masked(const void *data, size_t n);

enum { LVNI_LOG_RECORD_HEAD = 12, LVNI_LOG_RECORD_TAIL = 4 };
/* Makes room for a record of n bytes at the end of out. Returns where its payload goes; NULL: no
 * memory. */
uint8_t *lvni_log_record_begin(lvni_core_str *out, size_t n);
/* When the payload is filled, before anything else is appended. */
void lvni_log_record_end(lvni_core_str *out, size_t n);

typedef struct lvni_log_event_file {
    int fd; /* -1: not open */
    char *path;
} lvni_log_event_file;

/* A new events.out.tfevents.TIME.HOST.PID.K in dir, whose name sorts behind those that are there.
 * fresh: those are removed. */
lvn_status lvni_log_event_file_open(const char *dir, bool fresh, lvni_log_event_file *out);
/* One system call. */
lvn_status lvni_log_event_file_write(const lvni_log_event_file *f, const lvni_core_str *records);
void lvni_log_event_file_close(lvni_log_event_file *f);

#endif
