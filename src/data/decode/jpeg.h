/* JPEG to RGB through libjpeg-turbo, decoded no larger than needed and only where needed (scaled
 * integer DCT: the same bytes on every machine). Baseline and progressive; grey becomes RGB; print
 * colours (CMYK, YCCK, stored inverted as Adobe and all others do) become RGB by multiplication
 * with what black leaves, without colour profiles. Called by image.c. */
#ifndef LEVIN_DATA_DECODE_JPEG_H
#define LEVIN_DATA_DECODE_JPEG_H

#include "data/decode/image.h"
#include "data/image_scratch.h"

bool lvni_decode_jpeg_is(const uint8_t *bytes, size_t n);
/* Size and orientation. LVN_ERR_CORRUPT. */
lvn_status lvni_decode_jpeg_probe(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                  const char *path, lvni_decode_image_info *info);
/* Decode to scratch->pixels with the smallest scale that is at least `need`, at least the part
 * `wanted` (stored pixels; NULL: all), whose pixels are those of the whole image. A file without
 * an end, or with damaged data up to the last row wanted, is LVN_ERR_CORRUPT, although the library
 * would fill the rest with grey; what lies below that row is not looked at. */
lvn_status lvni_decode_jpeg_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                   const char *path, double need, const lvni_decode_box *wanted,
                                   lvni_decode_image *out);
void lvni_decode_jpeg_handle_free(void *handle); /* NULL is fine */

#endif
