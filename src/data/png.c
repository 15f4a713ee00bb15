/* Reading and writing PNG with libspng (image.h). */
#include "data/image.h"

#include "core/alloc.h"
#include "core/vfs.h"

#include <spng.h>
#include <string.h>

/* Limits of unpacked texts and profiles: one such chunk, all of them. */
enum { CHUNK_BYTES = 32 << 20, CHUNKS_BYTES = 48 << 20 };

static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

bool lvni_data_png_is(const uint8_t *bytes, size_t n)
{
    return n >= sizeof signature && memcmp(bytes, signature, sizeof signature) == 0;
}

/* An allocation of libspng failed: it and zlib do not always report that, and the image must
 * not count as damaged. */
static _Thread_local bool starved;

static void *noted(void *p)
{
    starved = starved || p == NULL;
    return p;
}

static void *png_malloc(size_t bytes)
{
    return noted(lvni_core_alloc(LVNI_TAG_DATA, bytes));
}

static void *png_realloc(void *p, size_t bytes)
{
    return noted(lvni_core_realloc(LVNI_TAG_DATA, p, bytes));
}

static void *png_calloc(size_t count, size_t size)
{
    return noted(lvni_core_calloc(LVNI_TAG_DATA, count, size));
}

/* NULL with LVN_ERR_MEMORY recorded; the caller frees it with spng_ctx_free. */
static spng_ctx *context(int flags, const char *path)
{
    struct spng_alloc memory = {png_malloc, png_realloc, png_calloc, lvni_core_free};
    spng_ctx *ctx = spng_ctx_new2(&memory, flags);
    if (ctx == NULL) {
        lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__, "%s: no memory for PNG", path);
    }
    return ctx;
}

static int64_t read_u32_big(const uint8_t *p)
{
    return (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

/* The header chunk always comes first: length, "IHDR", width, height. */
lvn_status lvni_data_png_probe(const uint8_t *bytes, size_t n, const char *path,
                               lvni_data_image_info *info)
{
    if (n < 33 || memcmp(bytes + 12, "IHDR", 4) != 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: damaged PNG: the header is missing or cut off", path);
    }
    const int64_t width = read_u32_big(bytes + 16), height = read_u32_big(bytes + 20);
    LVN_TRY(lvni_data_image_check_size(path, width, height));
    *info = (lvni_data_image_info){.format = LVNI_IMAGE_PNG,
                                   .width = (int)width,
                                   .height = (int)height,
                                   .orientation = lvni_data_png_orientation(bytes, n),
                                   .has_16_bits = bytes[24] == 16};
    return LVN_OK;
}

lvn_status lvni_data_png_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                const char *path, const lvni_data_image_info *info, bool alpha,
                                lvni_data_image *out)
{
    const bool deep = info->deep && info->has_16_bits;
    const int channels = alpha || deep ? 4 : 3;
    const size_t need =
        (size_t)info->width * (size_t)info->height * (size_t)channels * (deep ? 2 : 1);
    LVN_TRY(lvni_data_buffer_reserve(&scratch->pixels, need));
    spng_ctx *ctx = context(0, path);
    if (ctx == NULL) {
        return LVN_ERR_MEMORY;
    }
    starved = false;
    int error = spng_set_png_buffer(ctx, bytes, n);
    if (error == 0) {
        error = spng_set_image_limits(ctx, LVNI_IMAGE_MAX_SIDE, LVNI_IMAGE_MAX_SIDE);
    }
    if (error == 0) {
        error = spng_set_chunk_limits(ctx, CHUNK_BYTES, CHUNKS_BYTES);
    }
    if (error == 0) {
        error = spng_decode_image(ctx, scratch->pixels.data, need,
                                  deep    ? SPNG_FMT_RGBA16
                                  : alpha ? SPNG_FMT_RGBA8
                                          : SPNG_FMT_RGB8,
                                  alpha ? SPNG_DECODE_TRNS : 0);
    }
    if (error == 0) {
        /* up to the end chunk: the last checksum, and that nothing is cut off */
        error = spng_decode_chunks(ctx);
    }
    spng_ctx_free(ctx);
    if (error != 0 && (starved || error == SPNG_EMEM)) {
        LVN_FAIL(LVN_ERR_MEMORY, "%s: no memory for PNG", path);
    }
    if (error != 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: damaged PNG: %s", path, spng_strerror(error));
    }
    *out = (lvni_data_image){.rgb = deep ? NULL : scratch->pixels.data,
                             .deep = deep ? scratch->pixels.data : NULL,
                             .channels = channels,
                             .width = info->width,
                             .height = info->height,
                             .scale = 1.0};
    return LVN_OK;
}

/* ---- writing ---- */

static int encode(spng_ctx *ctx, const uint8_t *rgb, int width, int height)
{
    struct spng_ihdr header = {
        .width = (uint32_t)width,
        .height = (uint32_t)height,
        .bit_depth = 8,
        .color_type = SPNG_COLOR_TYPE_TRUECOLOR,
    };
    int error = spng_set_option(ctx, SPNG_ENCODE_TO_BUFFER, 1);
    if (error == 0) { /* to choose per row among all filters takes three times as long */
        error = spng_set_option(ctx, SPNG_FILTER_CHOICE, SPNG_FILTER_CHOICE_UP);
    }
    if (error == 0) {
        error = spng_set_ihdr(ctx, &header);
    }
    if (error == 0) {
        error = spng_encode_image(ctx, rgb, (size_t)width * (size_t)height * 3, SPNG_FMT_PNG,
                                  SPNG_ENCODE_FINALIZE);
    }
    return error;
}

static lvn_status encode_whole(const char *path, const uint8_t *rgb, int width, int height,
                               void **png, size_t *n)
{
    LVN_ARG(width > 0 && height > 0, "%s: an image of %d x %d pixels cannot be written", path,
            width, height);
    spng_ctx *ctx = context(SPNG_CTX_ENCODER, path);
    if (ctx == NULL) {
        return LVN_ERR_MEMORY;
    }
    starved = false;
    int error = encode(ctx, rgb, width, height);
    *png = error == 0 ? spng_get_png_buffer(ctx, n, &error) : NULL;
    spng_ctx_free(ctx);
    if (*png == NULL) {
        LVN_FAIL(starved || error == SPNG_EMEM ? LVN_ERR_MEMORY : LVN_ERR_INTERNAL,
                 "%s: cannot encode as PNG: %s", path, spng_strerror(error));
    }
    return LVN_OK;
}

lvn_status lvni_data_png_encode(const uint8_t *rgb, int width, int height, void **png, size_t *n)
{
    return encode_whole("an image", rgb, width, height, png, n);
}

lvn_status lvni_data_png_write(const char *path, const uint8_t *rgb, int width, int height)
{
    void *file;
    size_t bytes;
    LVN_TRY(encode_whole(path, rgb, width, height, &file, &bytes));
    const lvn_status status = lvni_core_file_write(path, file, bytes);
    lvni_core_free(file);
    return status;
}
