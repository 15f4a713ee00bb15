/* PNG files (png_write.h): encoded in memory by libspng, written through the file table. */
#include "data/png_write.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "data/decode/png.h"

#include <spng.h>

static int encode(spng_ctx *ctx, const uint8_t *rgb, int width, int height)
{
    struct spng_ihdr header = {
        .width = (uint32_t)width,
        .height = (uint32_t)height,
        .bit_depth = 8,
        .color_type = SPNG_COLOR_TYPE_TRUECOLOR,
    };
    int error = spng_set_option(ctx, SPNG_ENCODE_TO_BUFFER, 1);
    if (error == 0) {
        error = spng_set_ihdr(ctx, &header);
    }
    if (error == 0) {
        error = spng_encode_image(ctx, rgb, (size_t)width * (size_t)height * 3, SPNG_FMT_PNG,
                                  SPNG_ENCODE_FINALIZE);
    }
    return error;
}

lvn_status lvni_data_png_write(const char *path, const uint8_t *rgb, int width, int height)
{
    LVN_ARG(width > 0 && height > 0, "%s: an image of %d x %d pixels cannot be written", path,
            width, height);
    spng_ctx *ctx = lvni_decode_png_context(SPNG_CTX_ENCODER, path);
    if (ctx == NULL) {
        return LVN_ERR_MEMORY;
    }
    int error = encode(ctx, rgb, width, height);
    size_t bytes = 0;
    void *file = error == 0 ? spng_get_png_buffer(ctx, &bytes, &error) : NULL;
    spng_ctx_free(ctx);
    if (file == NULL) {
        LVN_FAIL(error == SPNG_EMEM ? LVN_ERR_MEMORY : LVN_ERR_INTERNAL,
                 "%s: cannot encode as PNG: %s", path, spng_strerror(error));
    }
    const lvn_status status = lvni_core_file_write(path, file, bytes);
    lvni_core_free(file);
    return status;
}
