/* Exif orientation (exif.h): JPEG segments up to the first scan, the Exif one among them, the
 * orientation entry of its first directory. Offsets and counts come from the file, so each is
 * checked before it is used. */
#include "data/decode/exif.h"

#include <stdbool.h>
#include <string.h>

enum {
    MARKER_SOS = 0xDA,
    MARKER_EOI = 0xD9,
    MARKER_APP1 = 0xE1,
    TAG_ORIENTATION = 0x0112,
    TYPE_SHORT = 3
};

static uint32_t read_u16(const uint8_t *p, bool little)
{
    return little ? (uint32_t)(p[0] | p[1] << 8) : (uint32_t)(p[0] << 8 | p[1]);
}

static uint32_t read_u32(const uint8_t *p, bool little)
{
    const uint32_t a = read_u16(p, little), b = read_u16(p + 2, little);
    return little ? a | b << 16 : a << 16 | b;
}

/* The block after "Exif\0\0": byte order, 42, offset of the first directory; a directory is a count
 * and entries of 12 bytes. */
static int tiff_orientation(const uint8_t *tiff, size_t n)
{
    if (n < 8 || (memcmp(tiff, "II", 2) != 0 && memcmp(tiff, "MM", 2) != 0)) {
        return 1;
    }
    const bool little = tiff[0] == 'I';
    const size_t directory = read_u32(tiff + 4, little);
    if (read_u16(tiff + 2, little) != 42 || directory > n - 2) {
        return 1;
    }
    const size_t entries = read_u16(tiff + directory, little);
    for (size_t i = 0; i < entries && directory + 2 + (i + 1) * 12 <= n; i++) {
        const uint8_t *entry = tiff + directory + 2 + i * 12;
        if (read_u16(entry, little) == TAG_ORIENTATION &&
            read_u16(entry + 2, little) == TYPE_SHORT && read_u32(entry + 4, little) == 1) {
            const uint32_t value = read_u16(entry + 8, little);
            return value >= 1 && value <= 8 ? (int)value : 1;
        }
    }
    return 1;
}

int lvni_decode_exif_orientation(const uint8_t *bytes, size_t n)
{
    size_t at = 2; /* after the start-of-image marker */
    while (at + 4 <= n && bytes[at] == 0xFF) {
        const uint8_t marker = bytes[at + 1];
        if (marker == 0xFF) { /* fill byte */
            at++;
            continue;
        }
        if (marker == MARKER_SOS || marker == MARKER_EOI) {
            return 1;
        }
        const size_t length = read_u16(bytes + at + 2, false); /* counts its own two bytes */
        if (length < 2 || at + 2 + length > n) {
            return 1;
        }
        if (marker == MARKER_APP1 && length >= 8 && memcmp(bytes + at + 4, "Exif\0", 6) == 0) {
            return tiff_orientation(bytes + at + 10, length - 8);
        }
        at += 2 + length;
    }
    return 1;
}
