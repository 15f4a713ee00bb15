/* Which decoder a picture needs (picture.h). */
#include "data/decode/picture.h"

#include "data/decode/jpeg.h"
#include "data/decode/png.h"

lvn_status lvni_picture_check_size(const char *path, int64_t width, int64_t height)
{
    if (width < 1 || height < 1 || width > LVNI_PICTURE_MAX_SIDE || height > LVNI_PICTURE_MAX_SIDE ||
        width * height > LVNI_PICTURE_MAX_PIXELS) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the file claims %lld x %lld pixels; at most %d per side and %d in all are read", path,
                 (long long)width, (long long)height, LVNI_PICTURE_MAX_SIDE, LVNI_PICTURE_MAX_PIXELS);
    }
    return LVN_OK;
}

lvn_status lvni_picture_probe(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n, const char *path, lvni_picture_info *info)
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
    LVN_FAIL(LVN_ERR_CORRUPT, "%s: neither a JPEG nor a PNG file (%zu bytes, the first is 0x%02x)", path, n, bytes[0]);
}

lvn_status lvni_picture_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n, const char *path,
                               const lvni_picture_info *info, double need, const lvni_box *wanted, lvni_picture *out)
{
    if (info->format == LVNI_PICTURE_JPEG) {
        return lvni_jpeg_decode(scratch, bytes, n, path, need, wanted, out);
    }
    return lvni_png_decode(scratch, bytes, n, path, info, out);
}
