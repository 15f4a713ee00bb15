/* Reusable memory per thread (image_scratch.h). */
#include "data/image_scratch.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "data/decode/jpeg.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

static void scratch_free(void *p)
{
    lvni_data_scratch *s = p;
    lvni_decode_jpeg_handle_free(s->jpeg);
    lvni_core_free(s->file.data);
    lvni_core_free(s->pixels.data);
    lvni_core_free(s->turned.data);
    lvni_core_free(s->tables.data);
    lvni_core_free(s->row.data);
    lvni_core_free(s->blur.data);
    lvni_core_free(s);
}

static void make_key(void)
{
    key_made = pthread_key_create(&key, scratch_free) == 0;
}

lvni_data_scratch *lvni_data_scratch_get(void)
{
    pthread_once(&once, make_key);
    if (!key_made) {
        lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__,
                      "no thread-specific key is left for the image buffers");
        return NULL;
    }
    lvni_data_scratch *s = pthread_getspecific(key);
    if (s != NULL) {
        return s;
    }
    s = LVNI_NEW(LVNI_TAG_DATA, lvni_data_scratch);
    if (s != NULL && pthread_setspecific(key, s) != 0) {
        lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__,
                      "no memory for the thread's image buffers");
        lvni_core_free(s);
        return NULL;
    }
    return s;
}

void lvni_data_scratch_release(void)
{
    pthread_once(&once, make_key);
    lvni_data_scratch *s = key_made ? pthread_getspecific(key) : NULL;
    if (s != NULL) {
        pthread_setspecific(key, NULL);
        scratch_free(s);
    }
}

lvn_status lvni_data_buffer_reserve(lvni_data_buffer *buffer, size_t bytes)
{
    if (buffer->bytes >= bytes) {
        return LVN_OK;
    }
    const size_t room = bytes + bytes / 4; /* sizes vary from image to image: settle quickly */
    void *data = lvni_core_alloc(LVNI_TAG_DATA, room);
    if (data == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_core_free(buffer->data);
    buffer->data = data;
    buffer->bytes = room;
    return LVN_OK;
}

/* Twice the room, content kept. */
static lvn_status buffer_grow(lvni_data_buffer *buffer)
{
    const size_t room = buffer->bytes == 0 ? (size_t)256 << 10 : buffer->bytes * 2;
    void *data = lvni_core_realloc(LVNI_TAG_DATA, buffer->data, room);
    if (data == NULL) {
        return LVN_ERR_MEMORY;
    }
    buffer->data = data;
    buffer->bytes = room;
    return LVN_OK;
}

static lvn_status read_all(lvni_data_buffer *buffer, int fd, const char *path, size_t *bytes)
{
    size_t n = 0;
    for (;;) {
        if (n == buffer->bytes) {
            LVN_TRY(buffer_grow(buffer));
        }
        const ssize_t got =
            lvni_core_vfs_get()->read(fd, (char *)buffer->data + n, buffer->bytes - n);
        if (got == 0) {
            *bytes = n;
            return LVN_OK;
        }
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            LVN_FAIL(LVN_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        }
        n += (size_t)got;
    }
}

lvn_status lvni_data_read_file(lvni_data_scratch *scratch, const char *path, size_t *bytes)
{
    const int fd = lvni_core_vfs_get()->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        LVN_FAIL(errno == ENOENT || errno == ENOTDIR ? LVN_ERR_NOT_FOUND : LVN_ERR_IO,
                 "%s: cannot open: %s", path, strerror(errno));
    }
    const lvn_status status = read_all(&scratch->file, fd, path, bytes);
    lvni_core_vfs_get()->close(fd);
    return status;
}
