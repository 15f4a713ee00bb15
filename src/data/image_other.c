/* Images of the kinds that levin_video.so decodes (image.h): their sizes are read here, from their
 * headers, so that a folder of them is listed as fast as one of others. */
#include "data/foreign.h"
#include "data/image.h"
#include "data/video_open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct size_of_image {
    int64_t width, height;
    int orientation; /* 0: none is given */
    bool preview;    /* of another image of the file */
    bool animated;
} size_of_image;

/* ---- each kind: false where the header is cut off or is none ---- */

static bool size_of_gif(const uint8_t *p, size_t n, size_of_image *out)
{
    if (n < 10) {
        return false;
    }
    out->width = lvni_data_read_u16(p + 6, true);
    out->height = lvni_data_read_u16(p + 8, true);
    return true;
}

/* A height below 0: rows from the top. */
static bool size_of_bmp(const uint8_t *p, size_t n, size_of_image *out)
{
    if (n < 26) {
        return false;
    }
    if (p[14] == 12) {
        out->width = lvni_data_read_u16(p + 18, true);
        out->height = lvni_data_read_u16(p + 20, true);
        return true;
    }
    out->width = (int32_t)lvni_data_read_u32(p + 18, true);
    out->height = llabs((long long)(int32_t)lvni_data_read_u32(p + 22, true));
    return true;
}

/* Behind blanks and lines that begin with #; -1: there is none. */
static int64_t read_decimal(const uint8_t *p, size_t n, size_t *at)
{
    while (*at < n && (strchr(" \t\r\n", p[*at]) != NULL || p[*at] == '#')) {
        if (p[*at] == '#') {
            while (*at < n && p[*at] != '\n') {
                ++*at;
            }
        } else {
            ++*at;
        }
    }
    int64_t value = -1;
    for (; *at < n && p[*at] >= '0' && p[*at] <= '9' && value < INT32_MAX; ++*at) {
        value = (value < 0 ? 0 : value) * 10 + (p[*at] - '0');
    }
    return *at < n ? value : -1;
}

static bool size_of_pam(const uint8_t *p, size_t n, size_of_image *out)
{
    static const char *const names[] = {"WIDTH ", "HEIGHT "};
    int64_t *const to[] = {&out->width, &out->height};
    const uint8_t *end = memmem(p, n, "ENDHDR", 6);
    for (size_t i = 0; end != NULL && i < 2; i++) {
        const size_t length = strlen(names[i]);
        const uint8_t *found = memmem(p, (size_t)(end - p), names[i], length);
        if (found == NULL) {
            return false;
        }
        size_t at = (size_t)(found - p) + length;
        *to[i] = read_decimal(p, n, &at);
    }
    return end != NULL;
}

static bool size_of_pnm(const uint8_t *p, size_t n, size_of_image *out)
{
    size_t at = 2;
    if (p[1] == '7') {
        return size_of_pam(p, n, out);
    }
    out->width = read_decimal(p, n, &at);
    out->height = read_decimal(p, n, &at);
    return out->width >= 0 && out->height >= 0;
}

enum {
    TAG_SUBFILE = 254,
    TAG_WIDTH = 256,
    TAG_HEIGHT = 257,
    TYPE_SHORT = 3,
    TYPE_LONG = 4,
    ENTRY = 12
};

/* The first directory, which may stand at the file's end. */
static bool size_of_tiff(const uint8_t *p, size_t n, size_of_image *out)
{
    if (n < 8) {
        return false;
    }
    const bool little = p[0] == 'I';
    const size_t directory = lvni_data_read_u32(p + 4, little);
    if (directory > n - 2) {
        return false;
    }
    const size_t entries = lvni_data_read_u16(p + directory, little);
    if (entries * ENTRY > n - 2 - directory) {
        return false;
    }
    for (size_t i = 0; i < entries; i++) {
        const uint8_t *e = p + directory + 2 + i * ENTRY;
        const uint32_t tag = lvni_data_read_u16(e, little),
                       type = lvni_data_read_u16(e + 2, little);
        const int64_t value = type == TYPE_SHORT  ? (int64_t)lvni_data_read_u16(e + 8, little)
                              : type == TYPE_LONG ? (int64_t)lvni_data_read_u32(e + 8, little)
                                                  : -1;
        out->preview = tag == TAG_SUBFILE ? value % 2 == 1 : out->preview;
        out->width = tag == TAG_WIDTH ? value : out->width;
        out->height = tag == TAG_HEIGHT ? value : out->height;
    }
    out->orientation = lvni_data_exif_orientation(p, n);
    return out->width > 0 && out->height > 0;
}

/* Chunks from the first on; false: its Exif block is cut off here. */
static bool find_exif(const uint8_t *p, size_t n, size_of_image *out)
{
    const size_t whole = 8 + (size_t)lvni_data_read_u32(p + 4, true);
    for (size_t at = 12; at + 8 <= n;) {
        const size_t bytes = lvni_data_read_u32(p + at + 4, true);
        if (bytes > n - at - 8) {
            return false;
        }
        if (memcmp(p + at, "EXIF", 4) == 0) {
            out->orientation = lvni_data_exif_orientation(p + at + 8, bytes);
            return true;
        }
        at += 8 + bytes + bytes % 2;
    }
    return n >= whole;
}

static bool size_of_webp(const uint8_t *p, size_t n, size_of_image *out)
{
    enum { ANIMATED = 2, EXIF = 8 };
    if (n < 30) {
        return false;
    }
    if (memcmp(p + 12, "VP8X", 4) == 0) {
        out->width = 1 + (int64_t)(lvni_data_read_u32(p + 24, true) & 0xFFFFFF);
        out->height = 1 + (int64_t)(lvni_data_read_u32(p + 26, true) >> 8);
        out->animated = (p[20] & ANIMATED) != 0;
        return (p[20] & EXIF) == 0 || find_exif(p, n, out);
    }
    if (memcmp(p + 12, "VP8L", 4) == 0) {
        const uint32_t bits = lvni_data_read_u32(p + 21, true);
        out->width = 1 + (int64_t)(bits & 0x3FFF);
        out->height = 1 + (int64_t)(bits >> 14 & 0x3FFF);
        return p[20] == 0x2F;
    }
    out->width = lvni_data_read_u16(p + 26, true) & 0x3FFF;
    out->height = lvni_data_read_u16(p + 28, true) & 0x3FFF;
    return memcmp(p + 12, "VP8 ", 4) == 0 && memcmp(p + 23, "\x9d\x01\x2a", 3) == 0;
}

static bool size_of(lvni_data_foreign kind, const uint8_t *p, size_t n, size_of_image *out)
{
    switch (kind) {
    case LVNI_FOREIGN_WEBP: return size_of_webp(p, n, out);
    case LVNI_FOREIGN_TIFF: return size_of_tiff(p, n, out);
    case LVNI_FOREIGN_GIF: return size_of_gif(p, n, out);
    case LVNI_FOREIGN_BMP: return size_of_bmp(p, n, out);
    case LVNI_FOREIGN_PNM: return size_of_pnm(p, n, out);
    default: return false;
    }
}

static const char *codec_of(lvni_data_foreign kind, const uint8_t *p)
{
    static const char *const pnm[] = {"pbm", "pgm", "ppm", "pbm", "pgm", "ppm", "pam"};
    switch (kind) {
    case LVNI_FOREIGN_WEBP: return "webp";
    case LVNI_FOREIGN_TIFF: return "tiff";
    case LVNI_FOREIGN_GIF: return "gif";
    case LVNI_FOREIGN_BMP: return "bmp";
    default: return pnm[p[1] - '1'];
    }
}

/* ---- the module ---- */

static lvn_status get_module(const char *path, lvni_data_foreign kind,
                             const lvni_data_video_table **out)
{
    char what[64];
    snprintf(what, sizeof what, "images of the kind %s", lvni_data_foreign_name(kind));
    return lvni_data_video_get_module(path, what, out);
}

lvn_status lvni_data_other_probe(const uint8_t *bytes, size_t n, const char *path,
                                 lvni_data_image_info *info)
{
    const lvni_data_video_table *module;
    const lvni_data_foreign kind = lvni_data_foreign_of(bytes, n);
    size_of_image size = {0};
    if (!size_of(kind, bytes, n, &size)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: damaged %s: the header is missing or cut off", path,
                 lvni_data_foreign_name(kind));
    }
    if (size.preview) {
        LVN_FAIL(
            LVN_ERR_CORRUPT,
            "%s: the first image of this TIFF is a preview, as in raw files of cameras; convert "
            "it to JPEG or PNG",
            path);
    }
    if (size.animated) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: an animated WebP is not read; convert one frame to PNG",
                 path);
    }
    LVN_TRY(lvni_data_image_check_size(path, size.width, size.height));
    LVN_TRY(get_module(path, kind, &module)); /* now, and not at the first batch */
    *info = (lvni_data_image_info){.format = LVNI_IMAGE_OTHER,
                                   .width = (int)size.width,
                                   .height = (int)size.height,
                                   .orientation = size.orientation > 0 ? size.orientation : 1};
    return LVN_OK;
}

lvn_status lvni_data_other_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                  const char *path, const lvni_data_image_info *info, bool alpha,
                                  lvni_data_image *out)
{
    const lvni_data_video_table *module;
    const lvni_data_foreign kind = lvni_data_foreign_of(bytes, n);
    const int channels = alpha ? 4 : 3;
    LVN_TRY(get_module(path, kind, &module));
    LVN_TRY(lvni_data_buffer_reserve(&scratch->pixels, (size_t)info->width * (size_t)info->height *
                                                           (size_t)channels));
    const lvni_data_video_problem problem = module->image(
        codec_of(kind, bytes), bytes, n, info->width, info->height, alpha, scratch->pixels.data);
    const char *name = lvni_data_foreign_name(kind);
    if (problem == LVNI_VIDEO_NO_MEMORY) {
        LVN_FAIL(LVN_ERR_MEMORY, "%s: no memory for %s", path, name);
    }
    if (problem != LVNI_VIDEO_FINE) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: this %s cannot be decoded (%s); if other programs show it, convert it to PNG",
                 path, name, module->why());
    }
    *out = (lvni_data_image){.rgb = scratch->pixels.data,
                             .channels = channels,
                             .width = info->width,
                             .height = info->height,
                             .scale = 1.0};
    return LVN_OK;
}
