#include "deep_png.h"

#include "images_support.h"
#include "support/test.h"

#include <spng.h>
#include <stdlib.h>

void deep_png_write(const char *path, uint32_t width, uint32_t height, uint32_t channels,
                    const uint16_t *value)
{
    size_t n;
    int error;
    struct spng_ihdr header = {.width = width,
                               .height = height,
                               .bit_depth = 16,
                               .color_type = channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE
                                                           : SPNG_COLOR_TYPE_TRUECOLOR};
    spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
    assert_int_equal(spng_set_option(ctx, SPNG_ENCODE_TO_BUFFER, 1), 0);
    assert_int_equal(spng_set_option(ctx, SPNG_IMG_COMPRESSION_LEVEL, 0), 0);
    assert_int_equal(spng_set_ihdr(ctx, &header), 0);
    assert_int_equal(spng_encode_image(ctx, value,
                                       (size_t)width * height * channels * sizeof *value,
                                       SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE),
                     0);
    void *png = spng_get_png_buffer(ctx, &n, &error);
    images_write_file(path, png, n);
    free(png);
    spng_ctx_free(ctx);
}
