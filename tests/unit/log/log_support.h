/* What the log tests share: a folder of their own, files as text, standard error caught in a
 * file. */
#ifndef TESTS_LOG_SUPPORT_H
#define TESTS_LOG_SUPPORT_H

#include "core/alloc.h"
#include "core/vfs.h"
#include "support/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[64], file[128];

static inline int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/levin-log-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    snprintf(file, sizeof file, "%s/file", dir);
    return 0;
}

static inline int drop_dir(void **state)
{
    (void)state;
    lvni_core_alloc_fail_at(0);
    lvni_core_vfs_fail_at("open", 0, 0);
    unlink(file);
    char other[160];
    snprintf(other, sizeof other, "%s/screen", dir);
    unlink(other);
    return rmdir(dir); /* fails when a temporary file is left */
}

static inline void put_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

static inline const char *text_of(const char *path)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* fd goes to a file until restore_fd; returns the descriptor to restore it with. */
static inline int catch_fd(int fd)
{
    char path[160];
    snprintf(path, sizeof path, "%s/screen", dir);
    fflush(NULL);
    const int saved = dup(fd), to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    dup2(to, fd);
    close(to);
    return saved;
}

static inline const char *restore_fd(int fd, int saved)
{
    char path[160];
    snprintf(path, sizeof path, "%s/screen", dir);
    dup2(saved, fd);
    close(saved);
    return text_of(path);
}

#endif
