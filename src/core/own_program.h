/* Which program is this? levin starts itself again: ranks, trials, once for OpenMP.
 *
 * In a relocated directory (tools/dist) the command, DIR/bin/levin, only chooses a C library and
 * starts DIR/libexec/levin by it, either directly or by the loader DIR/lib/libc/ld-linux-*, which
 * is then what /proc/self/exe names. The program to start is the command in all three cases. */
#ifndef LEVIN_CORE_OWN_PROGRAM_H
#define LEVIN_CORE_OWN_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

/* The path of the command, without links, into `path`, zero-terminated; "/proc/self/exe" itself
 * where the file has been replaced since. False: there is no /proc, or it does not fit; `path` is
 * then "". */
bool lvni_core_self(char *path, size_t size);

/* The same for what /proc/self/exe names; pure, for tests. */
bool lvni_core_self_of(const char *exe, char *path, size_t size);

/* Words in front of argv[0] in /proc/self/cmdline: those of DIR/bin/levin's call of its loader,
 * `LOADER --library-path FOLDER --argv0 ARGV0 PROGRAM`; 0 where none was called. */
enum { LVNI_CORE_LOADER_WORDS = 5 };
int lvni_core_self_loader_words(void);

#endif
