/* Which decoder a picture needs (picture.h). */
#include "data/decode/picture.h"

#include "data/decode/jpeg.h"
#include "data/decode/png.h"

#include <stdatomic.h>

static atomic_int_least64_t max_pixels = LVNI_PICTURE_MAX_PIXELS;

void lvni_picture_set_max_pixels(int64_t n)
{
    atomic_store(&max_pixels, n);
}

bool lvni_picture_fits(int64_t width, int64_t height)
{
    return width * height <= atomic_load(&max_pixels);
}

lvn_status lvni_picture_check_size(const char *path, int64_t width, int64_t height)
{
    if (width < 1 || height < 1 || width > LVNI_PICTURE_MAX_SIDE ||
        height > LVNI_PICTURE_MAX_SIDE) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: an image of %lld x %lld pixels; each side must be 1 to %d",
                 path, (long long)width, (long long)height, LVNI_PICTURE_MAX_SIDE);
    }
    const int64_t limit = atomic_load(&max_pixels);
    if (!lvni_picture_fits(width, height)) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: an image of %lld x %lld = %lld pixels, more than data.max_pixels=%lld; if it "
                 "is meant "
                 "to be that large, give data.max_pixels=%lld",
                 path, (long long)width, (long long)height, (long long)(width * height),
                 (long long)limit, (long long)(width * height));
    }
    return LVN_OK;
}

lvn_status lvni_picture_probe(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                              const char *path, lvni_picture_info *info)
{
    if (n == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the file is empty (0 bytes)", path);
    }
    if (lvni_jpeg_is(bytes, n)) {
        return lvni_jpeg_probe(scratch, bytes, n, path, info);
    }
    if (lvni_png_is(bytes, n)) {
        return lvni_png_probe(bytes, n, path, info);
    }
    LVN_FAIL(LVN_ERR_CORRUPT, "%s: neither a JPEG nor a PNG file (%zu bytes, the first is 0x%02x)",
             path, n, bytes[0]);
}

lvn_status lvni_picture_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                               const char *path, const lvni_picture_info *info, double need,
                               const lvni_box *wanted, lvni_picture *out)
{
    if (info->format == LVNI_PICTURE_JPEG) {
        return lvni_jpeg_decode(scratch, bytes, n, path, need, wanted, out);
    }
    return lvni_png_decode(scratch, bytes, n, path, info, out);
}
