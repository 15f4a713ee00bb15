/* A signal that ends this process takes the file of rdzv_file.h with it: ranks that wait for each
 * other are ended so more often than not, and who is asked to end at once never comes to
 * lvni_control_store_destroy. For rdzv_file.c. */
#ifndef LEVIN_CONTROL_RDZV_GUARD_H
#define LEVIN_CONTROL_RDZV_GUARD_H

#include <stddef.h>

/* Before the file is written, and its directories are made. From now on SIGINT, SIGTERM and SIGHUP
 * remove what this process puts at path and the directories that are made for it (made: as in
 * lvni_control_rdzv_file_write), and then do what they did before. Signals that are ignored stay
 * so. One file a process: of a second one at the same time a signal leaves the file. */
void lvni_control_rdzv_guard_begin(const char *path, size_t made);
/* The file at path is this process's: another one in its place is not. */
void lvni_control_rdzv_guard_written(const char *path);
/* No longer for this path; the signals get back what they had, where nobody has taken them
 * since. */
void lvni_control_rdzv_guard_end(const char *path);

#endif
