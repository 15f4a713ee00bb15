/* How a stored image is turned upright (image.h): the orientation of Exif blocks and XMP packets,
 * in the segments of a JPEG before its pixels and in the chunks of a PNG. Offsets and counts come
 * from the file, so each is checked before it is used. Called by jpeg.c and png.c. */
#include "data/image.h"

#include "core/alloc.h"

#include <ctype.h>
#include <string.h>
#include <zlib.h>

enum { TAG_ORIENTATION = 0x0112, TYPE_BYTE = 1, TYPE_SHORT = 3, TYPE_LONG = 4 };

/* ---- segments of a JPEG ---- */

bool lvni_data_jpeg_is(const uint8_t *bytes, size_t n)
{
    return n >= 3 && bytes[0] == 0xFF && bytes[1] == LVNI_JPEG_SOI && bytes[2] == 0xFF;
}

static bool has_body(uint8_t marker)
{
    const bool bare =
        marker == LVNI_JPEG_TEM || (marker >= LVNI_JPEG_RST0 && marker <= LVNI_JPEG_EOI);
    return !bare;
}

/* As libjpeg finds them: bytes between segments, and fill bytes before a marker, are passed over.
 * Compressed data is such bytes. */
bool lvni_data_jpeg_segment_next(const uint8_t *bytes, size_t n, size_t *at,
                                 lvni_data_jpeg_segment *out)
{
    for (;;) {
        const uint8_t *found = *at < n ? memchr(bytes + *at, 0xFF, n - *at) : NULL;
        if (found == NULL) {
            return false;
        }
        *at = (size_t)(found - bytes);
        while (*at < n && bytes[*at] == 0xFF) {
            ++*at;
        }
        if (*at == n) {
            return false;
        }
        if (bytes[(*at)++] != 0) {
            break;
        }
    }
    *out = (lvni_data_jpeg_segment){.marker = bytes[*at - 1]};
    if (!has_body(out->marker)) {
        return true;
    }
    const size_t length = n - *at < 2 ? 0 : (size_t)(bytes[*at] << 8 | bytes[*at + 1]);
    if (length < 2 || length > n - *at) { /* it counts its own two bytes */
        return false;
    }
    out->body = bytes + *at + 2;
    out->bytes = length - 2;
    *at += length;
    return true;
}

/* ---- blocks: 0 where there is no valid orientation ---- */

static int check_orientation(uint32_t value)
{
    return value >= 1 && value <= 8 ? (int)value : 0;
}

/* Writers use other whole numbers than the standard's SHORT, too. */
static int entry_orientation(const uint8_t *entry, bool little)
{
    if (lvni_data_read_u16(entry, little) != TAG_ORIENTATION ||
        lvni_data_read_u32(entry + 4, little) != 1) {
        return 0;
    }
    switch (lvni_data_read_u16(entry + 2, little)) {
    case TYPE_BYTE: return check_orientation(entry[8]);
    case TYPE_SHORT: return check_orientation(lvni_data_read_u16(entry + 8, little));
    case TYPE_LONG: return check_orientation(lvni_data_read_u32(entry + 8, little));
    default: return 0;
    }
}

/* Byte order, 42, offset of the first directory; a directory is a count and entries of 12 bytes. */
static int tiff_orientation(const uint8_t *tiff, size_t n)
{
    if (n < 8 || (memcmp(tiff, "II", 2) != 0 && memcmp(tiff, "MM", 2) != 0)) {
        return 0;
    }
    const bool little = tiff[0] == 'I';
    const size_t directory = lvni_data_read_u32(tiff + 4, little);
    if (lvni_data_read_u16(tiff + 2, little) != 42 || directory > n - 2) {
        return 0;
    }
    const size_t entries = lvni_data_read_u16(tiff + directory, little);
    int found = 0;
    for (size_t i = 0; found == 0 && i < entries && directory + 2 + (i + 1) * 12 <= n; i++) {
        found = entry_orientation(tiff + directory + 2 + i * 12, little);
    }
    return found;
}

static bool begins(const uint8_t *bytes, size_t n, const char *with, size_t length)
{
    return n >= length && memcmp(bytes, with, length) == 0;
}

/* With or without the name that a JPEG puts before the block. */
int lvni_data_exif_orientation(const uint8_t *bytes, size_t n)
{
    const size_t name = begins(bytes, n, "Exif\0", 6) ? 6 : 0;
    return tiff_orientation(bytes + name, n - name);
}

/* tiff:Orientation="6", or the element: <tiff:Orientation>6</tiff:Orientation>. */
static int xmp_orientation(const uint8_t *bytes, size_t n)
{
    static const char name[] = "tiff:Orientation";
    const uint8_t *at = bytes, *const end = bytes + n;
    while ((at = memmem(at, (size_t)(end - at), name, sizeof name - 1)) != NULL) {
        at += sizeof name - 1;
        const uint8_t *p = at;
        while (p < end && (isspace(*p) || *p == '=' || *p == '"' || *p == '\'' || *p == '>')) {
            p++;
        }
        if (p > at && p < end && (p + 1 == end || !isdigit(p[1])) &&
            check_orientation((uint32_t)(*p - '0')) > 0) {
            return *p - '0';
        }
    }
    return 0;
}

/* Exif counts before XMP, as programs that write both keep Exif for those that read one. */
typedef struct places {
    int exif, xmp;
} places;

static void add_exif(places *found, const uint8_t *bytes, size_t n)
{
    found->exif = found->exif > 0 ? found->exif : lvni_data_exif_orientation(bytes, n);
}

static void add_xmp(places *found, const uint8_t *bytes, size_t n)
{
    found->xmp = found->xmp > 0 ? found->xmp : xmp_orientation(bytes, n);
}

static int orientation_of(const places *found)
{
    return found->exif > 0 ? found->exif : found->xmp > 0 ? found->xmp : 1;
}

/* ---- JPEG ---- */

int lvni_data_jpeg_orientation(const uint8_t *bytes, size_t n)
{
    lvni_data_jpeg_segment s;
    places found = {0};
    size_t at = LVNI_JPEG_FIRST;
    while (lvni_data_jpeg_segment_next(bytes, n, &at, &s) && s.marker != LVNI_JPEG_SOS &&
           s.marker != LVNI_JPEG_EOI) {
        if (s.marker != LVNI_JPEG_APP1) {
            continue;
        }
        if (begins(s.body, s.bytes, "Exif\0", 6)) {
            add_exif(&found, s.body, s.bytes);
        } else if (begins(s.body, s.bytes, "http://ns.adobe.com/", 20)) {
            add_xmp(&found, s.body, s.bytes);
        }
    }
    return orientation_of(&found);
}

/* ---- PNG ---- */

enum { SIGNATURE = 8, CHUNK_FRAME = 12, TEXT_BYTES = 1 << 20 };

/* A text of ImageMagick: a line of the name, a line of the length, the bytes in hexadecimal, in
 * lines. In place; the number of bytes. */
static size_t take_hex(uint8_t *text, size_t n)
{
    size_t at = 0, out = 0;
    int line = 0, half = -1;
    for (; at < n && line < 3; at++) {
        line += text[at] == '\n'; /* the first byte is a line end */
    }
    for (; at < n; at++) {
        const int c = tolower(text[at]);
        const int digit = isdigit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit >= 0 && half >= 0) {
            text[out++] = (uint8_t)(half << 4 | digit);
            half = -1;
        } else if (digit >= 0) {
            half = digit;
        }
    }
    return out;
}

static void add_text(places *found, const char *keyword, uint8_t *text, size_t n)
{
    static const char raw[] = "Raw profile type ";
    if (strcmp(keyword, "XML:com.adobe.xmp") == 0) {
        add_xmp(found, text, n);
    } else if (strncmp(keyword, raw, sizeof raw - 1) == 0) {
        const size_t bytes = take_hex(text, n);
        /* APP1 holds either */
        add_exif(found, text, bytes);
        add_xmp(found, text, bytes);
    }
}

/* The text of a chunk, behind its keyword: its bytes, and whether they are compressed. */
static bool find_text(const char *type, const uint8_t **text, size_t *n, bool *compressed)
{
    if (memcmp(type, "tEXt", 4) == 0) {
        *compressed = false;
        return true;
    }
    if (memcmp(type, "zTXt", 4) == 0) {
        *compressed = true;
        *text += *n > 0;
        *n -= *n > 0; /* the method */
        return true;
    }
    if (*n < 2) {
        return false;
    }
    *compressed = (*text)[0] != 0;
    *text += 2;
    *n -= 2;
    for (int i = 0; i < 2; i++) { /* language, keyword in it */
        const uint8_t *zero = memchr(*text, 0, *n);
        if (zero == NULL) {
            return false;
        }
        *n -= (size_t)(zero + 1 - *text);
        *text = zero + 1;
    }
    return true;
}

/* Longer texts and those that cannot be unpacked hold no orientation that would be found. */
static void read_text(places *found, const char *type, const uint8_t *body, size_t n)
{
    const uint8_t *zero = memchr(body, 0, n);
    bool compressed;
    if (zero == NULL || (strncmp((const char *)body, "Raw profile type ", 17) != 0 &&
                         strcmp((const char *)body, "XML:com.adobe.xmp") != 0)) {
        return;
    }
    const uint8_t *text = zero + 1;
    size_t bytes = n - (size_t)(text - body);
    if (!find_text(type, &text, &bytes, &compressed)) {
        return;
    }
    uLongf room = compressed ? TEXT_BYTES : bytes;
    uint8_t *copy = lvni_core_alloc(LVNI_TAG_DATA, room > 0 ? room : 1);
    if (copy == NULL) {
        lvn_clear_error(); /* decoding will need more, and report it */
        return;
    }
    if (!compressed) {
        memcpy(copy, text, bytes);
    }
    if (!compressed || uncompress(copy, &room, text, (uLong)bytes) == Z_OK) {
        add_text(found, (const char *)body, copy, room);
    }
    lvni_core_free(copy);
}

int lvni_data_png_orientation(const uint8_t *bytes, size_t n)
{
    places found = {0};
    for (size_t at = SIGNATURE; at < n && n - at >= CHUNK_FRAME;) {
        const size_t length = lvni_data_read_u32(bytes + at, false);
        const char *type = (const char *)bytes + at + 4;
        const uint8_t *body = bytes + at + 8;
        if (length > n - at - CHUNK_FRAME) {
            break;
        }
        if (memcmp(type, "eXIf", 4) == 0) {
            add_exif(&found, body, length);
        } else if (memcmp(type, "tEXt", 4) == 0 || memcmp(type, "zTXt", 4) == 0 ||
                   memcmp(type, "iTXt", 4) == 0) {
            read_text(&found, type, body, length);
        }
        at += CHUNK_FRAME + length;
    }
    return orientation_of(&found);
}
