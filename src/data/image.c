/* Scratch memory per thread, files, and which decoder an image needs (image.h). */
#include "data/image.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "data/foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* ---- scratch memory ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

static void scratch_free(void *p)
{
    lvni_data_scratch *s = p;
    lvni_data_jpeg_handle_free(s->jpeg);
    lvni_core_free(s->file.data);
    lvni_core_free(s->pixels.data);
    lvni_core_free(s->turned.data);
    lvni_core_free(s->tables.data);
    lvni_core_free(s->row.data);
    lvni_core_free(s->blur.data);
    lvni_core_free(s->view.data);
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
    int fd;
    uint64_t size;
    LVN_TRY(lvni_core_regular_open(path, &fd, &size));
    const lvn_status status = read_all(&scratch->file, fd, path, bytes);
    lvni_core_vfs_get()->close(fd);
    return status;
}

/* ---- one encoded image ---- */

static atomic_int_least64_t max_pixels = LVNI_IMAGE_MAX_PIXELS;

void lvni_data_image_set_max_pixels(int64_t n)
{
    atomic_store(&max_pixels, n);
}

bool lvni_data_image_fits(int64_t width, int64_t height)
{
    return width * height <= atomic_load(&max_pixels);
}

lvn_status lvni_data_image_check_size(const char *path, int64_t width, int64_t height)
{
    if (width < 1 || height < 1 || width > LVNI_IMAGE_MAX_SIDE || height > LVNI_IMAGE_MAX_SIDE) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: an image of %lld x %lld pixels; each side must be 1 to %d",
                 path, (long long)width, (long long)height, LVNI_IMAGE_MAX_SIDE);
    }
    const int64_t limit = atomic_load(&max_pixels);
    if (!lvni_data_image_fits(width, height)) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: an image of %lld x %lld = %lld pixels, more than data.max_pixels=%lld; if it "
                 "is meant "
                 "to be that large, give data.max_pixels=%lld",
                 path, (long long)width, (long long)height, (long long)(width * height),
                 (long long)limit, (long long)(width * height));
    }
    return LVN_OK;
}

lvn_status lvni_data_image_probe(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                 const char *path, lvni_data_image_info *info)
{
    if (n == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the file is empty (0 bytes)", path);
    }
    /* bytes may stand before the first segment */
    if (n >= 2 && bytes[0] == 0xFF && bytes[1] == LVNI_JPEG_SOI) {
        return lvni_data_jpeg_probe(scratch, bytes, n, path, info);
    }
    if (lvni_data_png_is(bytes, n)) {
        return lvni_data_png_probe(bytes, n, path, info);
    }
    const lvni_data_foreign foreign = lvni_data_foreign_of(bytes, n);
    if (lvni_data_foreign_is_read(foreign)) {
        return lvni_data_other_probe(bytes, n, path, info);
    }
    if (foreign != LVNI_FOREIGN_NONE) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the image is %s; convert it to JPEG or PNG", path,
                 lvni_data_foreign_name(foreign));
    }
    LVN_FAIL(LVN_ERR_CORRUPT,
             "%s: neither a JPEG nor a PNG file, nor WebP, TIFF, GIF, BMP or PNM (%zu bytes, the "
             "first is 0x%02x)",
             path, n, bytes[0]);
}

/* As Pillow's mode L: 16 bits of each weight. */
static uint8_t luma_of(const uint8_t *p)
{
    return (uint8_t)((19595U * p[0] + 38470U * p[1] + 7471U * p[2] + 0x8000U) >> 16);
}

/* One pixel: through RGB and alpha. */
static void convert_pixel(const uint8_t *from, int from_channels, uint8_t *to, int channels)
{
    const bool grey = from_channels <= 2, alpha = from_channels % 2 == 0;
    const uint8_t all[4] = {from[0], grey ? from[0] : from[1], grey ? from[0] : from[2],
                            alpha ? from[from_channels - 1] : 255};
    if (channels >= 3) {
        memcpy(to, all, (size_t)channels);
    } else {
        to[0] = grey ? from[0] : luma_of(all);
        to[channels - 1] = channels == 2 ? all[3] : to[0];
    }
}

/* The same of 16 bits, which come with all four channels. */
static void convert_deep(const uint16_t *from, uint16_t *to, int channels)
{
    if (channels >= 3) {
        memcpy(to, from, (size_t)channels * sizeof *to);
    } else {
        const uint32_t sum = 19595U * from[0] + 38470U * from[1] + 7471U * from[2];
        to[0] = (uint16_t)((sum + 0x8000U) >> 16);
        to[channels - 1] = channels == 2 ? from[3] : to[0];
    }
}

lvn_status lvni_data_image_convert(lvni_data_scratch *scratch, int channels, lvni_data_image *p)
{
    const int from_channels = p->channels == 0 ? 3 : p->channels;
    p->channels = channels;
    if (from_channels == channels) {
        return LVN_OK;
    }
    const bool whole = p->columns == 0;
    const size_t n =
        (size_t)(whole ? p->width : p->columns) * (size_t)(whole ? p->height : p->rows);
    const size_t wide = p->deep != NULL ? sizeof *p->deep : sizeof *p->rgb;
    LVN_TRY(lvni_data_buffer_reserve(&scratch->turned, n * (size_t)channels * wide));
    if (p->deep != NULL) {
        const uint16_t *from = p->deep;
        uint16_t *to = scratch->turned.data;
        p->deep = to;
        for (size_t i = 0; i < n; i++, from += from_channels, to += channels) {
            convert_deep(from, to, channels);
        }
        return LVN_OK;
    }
    const uint8_t *from = p->rgb;
    uint8_t *to = scratch->turned.data;
    p->rgb = to;
    for (size_t i = 0; i < n; i++, from += from_channels, to += channels) {
        convert_pixel(from, from_channels, to, channels);
    }
    return LVN_OK;
}

lvn_status lvni_data_image_decode_channels(lvni_data_scratch *scratch, const uint8_t *bytes,
                                           size_t n, const char *path,
                                           const lvni_data_image_info *info, int channels,
                                           double need, const lvni_data_box *wanted,
                                           lvni_data_image *out)
{
    if (info->format == LVNI_IMAGE_JPEG) {
        LVN_TRY(lvni_data_jpeg_decode(scratch, bytes, n, path, need, wanted, out));
    } else if (info->format == LVNI_IMAGE_OTHER) {
        LVN_TRY(lvni_data_other_decode(scratch, bytes, n, path, info, channels % 2 == 0, out));
    } else {
        LVN_TRY(lvni_data_png_decode(scratch, bytes, n, path, info, channels % 2 == 0, out));
    }
    return lvni_data_image_convert(scratch, channels, out);
}

lvn_status lvni_data_image_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                  const char *path, const lvni_data_image_info *info, double need,
                                  const lvni_data_box *wanted, lvni_data_image *out)
{
    lvni_data_image_info of_8_bits = *info;
    of_8_bits.deep = false;
    return lvni_data_image_decode_channels(scratch, bytes, n, path, &of_8_bits, 3, need, wanted,
                                           out);
}
