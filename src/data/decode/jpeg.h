/* JPEG to RGB through libturbojpeg, decoded no larger than needed (scaled integer DCT: the same bytes on every machine).
 * Called by picture.c. */
#ifndef LEVIN_DATA_DECODE_JPEG_H
#define LEVIN_DATA_DECODE_JPEG_H

#include "data/decode/picture.h"
#include "data/picture_scratch.h"

bool lvni_jpeg_is(const uint8_t *bytes, size_t n);
/* Size and orientation. LVN_ERR_CORRUPT, or LVN_ERR_UNSUPPORTED for CMYK. */
lvn_status lvni_jpeg_probe(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n, const char *path, lvni_picture_info *info);
/* Decode to scratch->pixels with the smallest scale that is at least `need`. A file that ends early or has damaged data is
 * LVN_ERR_CORRUPT, although the library would fill the rest with grey. */
lvn_status lvni_jpeg_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n, const char *path,
                            const lvni_picture_info *info, double need, lvni_picture *out);
void lvni_jpeg_handle_free(void *handle); /* NULL is fine */

#endif
