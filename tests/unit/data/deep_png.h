/* PNG files of 16 bits per channel, which the library itself does not write. */
#ifndef LEVIN_TESTS_UNIT_DATA_DEEP_PNG_H
#define LEVIN_TESTS_UNIT_DATA_DEEP_PNG_H

#include <stdint.h>

/* channels: 1 grey, 3 RGB; value: (height, width, channels). Compressed to nothing less. */
void deep_png_write(const char *path, uint32_t width, uint32_t height, uint32_t channels,
                    const uint16_t *value);

#endif
