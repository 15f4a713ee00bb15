/* Which decoder an image needs (image.h). */
#include "data/decode/image.h"

#include "data/decode/jpeg.h"
#include "data/decode/png.h"

#include <stdatomic.h>

static atomic_int_least64_t max_pixels = LVNI_IMAGE_MAX_PIXELS;

void lvni_decode_image_set_max_pixels(int64_t n)
{
    atomic_store(&max_pixels, n);
}

bool lvni_decode_image_fits(int64_t width, int64_t height)
{
    return width * height <= atomic_load(&max_pixels);
}

lvn_status lvni_decode_image_check_size(const char *path, int64_t width, int64_t height)
{
    if (width < 1 || height < 1 || width > LVNI_IMAGE_MAX_SIDE || height > LVNI_IMAGE_MAX_SIDE) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: an image of %lld x %lld pixels; each side must be 1 to %d",
                 path, (long long)width, (long long)height, LVNI_IMAGE_MAX_SIDE);
    }
    const int64_t limit = atomic_load(&max_pixels);
    if (!lvni_decode_image_fits(width, height)) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: an image of %lld x %lld = %lld pixels, more than data.max_pixels=%lld; if it "
                 "is meant "
                 "to be that large, give data.max_pixels=%lld",
                 path, (long long)width, (long long)height, (long long)(width * height),
                 (long long)limit, (long long)(width * height));
    }
    return LVN_OK;
}

lvn_status lvni_decode_image_probe(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                   const char *path, lvni_decode_image_info *info)
{
    if (n == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the file is empty (0 bytes)", path);
    }
    if (lvni_decode_jpeg_is(bytes, n)) {
        return lvni_decode_jpeg_probe(scratch, bytes, n, path, info);
    }
    if (lvni_decode_png_is(bytes, n)) {
        return lvni_decode_png_probe(bytes, n, path, info);
    }
    LVN_FAIL(LVN_ERR_CORRUPT, "%s: neither a JPEG nor a PNG file (%zu bytes, the first is 0x%02x)",
             path, n, bytes[0]);
}

lvn_status lvni_decode_image_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                    const char *path, const lvni_decode_image_info *info,
                                    double need, const lvni_decode_box *wanted,
                                    lvni_decode_image *out)
{
    if (info->format == LVNI_IMAGE_JPEG) {
        return lvni_decode_jpeg_decode(scratch, bytes, n, path, need, wanted, out);
    }
    return lvni_decode_png_decode(scratch, bytes, n, path, info, out);
}
