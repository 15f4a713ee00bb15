/* What vfs.c and vfs_read.c share. */
#ifndef LEVIN_CORE_VFS_IMPL_H
#define LEVIN_CORE_VFS_IMPL_H

#include "core/vfs.h"

#include <errno.h>

/* System calls, again when a signal came between. */
int lvni_core_call_open(const char *path, int flags);
ssize_t lvni_core_call_read(int fd, void *buf, size_t n);

/* "cannot open "x": ...", with the system's reason and what to do. */
lvn_status lvni_core_io_error(const char *file, int line, const char *verb, const char *path,
                              int error);
#define LVNI_FAIL_ERRNO(verb, path)                                                                \
    return lvni_core_io_error(__FILE__, __LINE__, (verb), (path), errno)

#endif
