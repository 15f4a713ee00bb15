/* The orientation that a camera noted in a JPEG file's Exif block. Called by jpeg.c. */
#ifndef LEVIN_DATA_DECODE_EXIF_H
#define LEVIN_DATA_DECODE_EXIF_H

#include <stddef.h>
#include <stdint.h>

/* 1 to 8 as in the Exif standard (tag 0x0112): how the stored image is turned to be looked at. 1
 * (as stored) when the file says nothing or nonsense. Reads nothing outside bytes[0..n). */
int lvni_decode_exif_orientation(const uint8_t *bytes, size_t n);

#endif
