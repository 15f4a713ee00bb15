/* PNG to RGB through libspng: grey, palette, RGB, with or without transparency, interlaced or not,
 * 1 to 16 bits per channel. As Pillow converts to RGB: transparency (alpha channel, tRNS) is
 * dropped, not blended; 16 bits become 8 by their high byte (16-bit grey too, which Pillow clips).
 * Called by image.c. */
#ifndef LEVIN_DATA_DECODE_PNG_H
#define LEVIN_DATA_DECODE_PNG_H

#include "data/decode/image.h"

/* A libspng context whose memory comes from core/alloc (blocks it hands out are freed with
 * lvni_core_free); flags: spng_ctx_flags. NULL with LVN_ERR_MEMORY recorded; the caller frees it
 * with spng_ctx_free. Also called by png_write.c. */
struct spng_ctx *lvni_decode_png_context(int flags, const char *path);

bool lvni_decode_png_is(const uint8_t *bytes, size_t n);
lvn_status lvni_decode_png_probe(const uint8_t *bytes, size_t n, const char *path,
                                 lvni_decode_image_info *info);
/* Decode in full size to scratch->pixels. */
lvn_status lvni_decode_png_decode(lvni_data_scratch *scratch, const uint8_t *bytes, size_t n,
                                  const char *path, const lvni_decode_image_info *info,
                                  lvni_decode_image *out);

#endif
