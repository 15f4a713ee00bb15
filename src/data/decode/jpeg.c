/* JPEG decoding (jpeg.h). The library's warnings are errors here, except those that leave every pixel as it was meant. */
#include "data/decode/jpeg.h"

#include "data/decode/exif.h"

#include <string.h>
#include <turbojpeg.h>

bool lvni_jpeg_is(const uint8_t *bytes, size_t n)
{
    return n >= 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF;
}

void lvni_jpeg_handle_free(void *handle)
{
    if (handle != NULL) {
        tjDestroy(handle);
    }
}

/* NULL with LVN_ERR_MEMORY recorded. */
static tjhandle handle_get(lvni_data_scratch *scratch)
{
    if (scratch->jpeg == NULL) {
        scratch->jpeg = tjInitDecompress();
        if (scratch->jpeg == NULL) {
            lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__, "cannot make a JPEG decompressor: %s", tjGetErrorStr2(NULL));
        }
    }
    return scratch->jpeg;
}

/* Record damage. The library's decompressor may be left in the middle of a marker, and would then fail on every file after this one, so the
 * next picture gets a new one. */
static lvn_status damaged(lvni_data_scratch *scratch, const char *path, const char *part, const char *reason)
{
    const lvn_status status = lvn_error_set(LVN_ERR_CORRUPT, __FILE__, __LINE__, "%s: damaged JPEG %s: %s", path, part, reason);
    lvni_jpeg_handle_free(scratch->jpeg);
    scratch->jpeg = NULL;
    return status;
}

/* The end-of-image marker near the end (some cameras add a few bytes behind it). */
static bool has_end_marker(const uint8_t *bytes, size_t n)
{
    const size_t from = n > 4096 ? n - 4096 : 0;
    for (size_t i = n; i >= from + 2; i--) {
        if (bytes[i - 2] == 0xFF && bytes[i - 1] == 0xD9) {
            return true;
        }
    }
    return false;
}

/* The library keeps the text of the first warning only. Harmless are two about the header, as long as the file has its end, and bytes
 * too many right before the end marker, when all pixels are done. */
static bool warning_is_harmless(tjhandle handle, const uint8_t *bytes, size_t n)
{
    if (tjGetErrorCode(handle) != TJERR_WARNING) {
        return false;
    }
    const char *text = tjGetErrorStr2(handle);
    const bool header = strstr(text, "JFIF revision") != NULL || strstr(text, "Adobe color transform") != NULL;
    const bool extra = strstr(text, "extraneous bytes before marker 0xd9") != NULL;
    return (header || extra) && has_end_marker(bytes, n);
}

lvn_status lvni_jpeg_probe(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n, const char *path, lvni_picture_info *info)
{
    tjhandle handle = handle_get(scratch);
    if (handle == NULL) {
        return LVN_ERR_MEMORY;
    }
    int width = 0, height = 0, sampling = 0, colours = 0;
    if (tjDecompressHeader3(handle, bytes, n, &width, &height, &sampling, &colours) != 0 &&
        !warning_is_harmless(handle, bytes, n)) {
        return damaged(scratch, path, "header", tjGetErrorStr2(handle));
    }
    if (width == 0) { /* tables, but no frame: success to the library */
        return damaged(scratch, path, "header", "the file ends before the picture begins");
    }
    if (colours == TJCS_CMYK || colours == TJCS_YCCK) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: a JPEG in CMYK (print) colours cannot be read yet; convert it to RGB", path);
    }
    LVN_TRY(lvni_picture_check_size(path, width, height));
    *info = (lvni_picture_info){LVNI_PICTURE_JPEG, width, height, lvni_exif_orientation(bytes, n)};
    return LVN_OK;
}

/* The smallest factor of the library that is at least `need`. */
static tjscalingfactor choose_factor(double need)
{
    static const int eighths[] = {1, 2, 4}; /* the others have no vector code: decoding in full and resampling is faster */
    for (unsigned i = 0; i < sizeof eighths / sizeof *eighths; i++) {
        if (eighths[i] / 8.0 >= need) {
            return (tjscalingfactor){eighths[i], 8};
        }
    }
    return (tjscalingfactor){8, 8};
}

lvn_status lvni_jpeg_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n, const char *path,
                            const lvni_picture_info *info, double need, lvni_picture *out)
{
    tjhandle handle = handle_get(scratch);
    if (handle == NULL) {
        return LVN_ERR_MEMORY;
    }
    const tjscalingfactor factor = choose_factor(need);
    const int width = TJSCALED(info->width, factor), height = TJSCALED(info->height, factor);
    LVN_TRY(lvni_buffer_reserve(&scratch->pixels, (size_t)width * (size_t)height * 3));
    if (tjDecompress2(handle, bytes, n, scratch->pixels.data, width, width * 3, height, TJPF_RGB, TJFLAG_ACCURATEDCT) != 0 &&
        !warning_is_harmless(handle, bytes, n)) {
        return damaged(scratch, path, "data", tjGetErrorStr2(handle));
    }
    *out = (lvni_picture){scratch->pixels.data, width, height, (double)factor.num / factor.denom};
    return LVN_OK;
}
