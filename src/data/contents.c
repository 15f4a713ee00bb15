/* Size, time and the ends of a file (contents.h). */
#include "data/contents.h"

#include "core/error.h"
#include "core/hash.h"
#include "core/vfs.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An end of the file; fewer bytes where it has no more. */
static lvn_status hash_end(int fd, const char *path, int64_t at, uint64_t *hash)
{
    uint8_t bytes[LVNI_CONTENTS_END];
    size_t n = 0;
    bool fails = lseek(fd, (off_t)at, SEEK_SET) < 0;
    while (!fails && n < sizeof bytes) {
        const ssize_t got = lvni_core_vfs_get()->read(fd, bytes + n, sizeof bytes - n);
        fails = got < 0 && errno != EINTR;
        if (got == 0) {
            break;
        }
        n += got > 0 ? (size_t)got : 0;
    }
    if (fails) {
        LVN_FAIL(LVN_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    *hash = lvni_core_hash(*hash, bytes, n);
    return LVN_OK;
}

lvn_status lvni_data_contents_open(const char *path, int *fd, lvni_data_contents *out)
{
    struct stat st;
    *fd = -1;
    LVN_TRY(lvni_core_regular_open_stat(path, fd, &st));
    *out = (lvni_data_contents){.bytes = (int64_t)st.st_size,
                                .ends = LVNI_CORE_HASH,
                                .mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 +
                                            (int64_t)st.st_mtim.tv_nsec};
    const int64_t last = out->bytes > LVNI_CONTENTS_END ? out->bytes - LVNI_CONTENTS_END : 0;
    lvn_status s = hash_end(*fd, path, 0, &out->ends);
    s = s == LVN_OK ? hash_end(*fd, path, last, &out->ends) : s;
    if (s != LVN_OK) {
        lvni_core_vfs_get()->close(*fd);
        *fd = -1;
    }
    return s;
}

lvn_status lvni_data_contents_read(const char *path, lvni_data_contents *out)
{
    int fd;
    LVN_TRY(lvni_data_contents_open(path, &fd, out));
    lvni_core_vfs_get()->close(fd);
    return LVN_OK;
}

uint64_t lvni_data_contents_hash(const lvni_data_contents *contents)
{
    const uint64_t h = lvni_core_hash(LVNI_CORE_HASH, &contents->bytes, sizeof contents->bytes);
    return lvni_core_hash(h, &contents->ends, sizeof contents->ends);
}
