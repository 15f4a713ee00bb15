/* A tiny font for labels on images: capitals, digits and some signs, 5 x 7 dots. Called by
 * contact_sheet.c. */
#ifndef LEVIN_DATA_FONT5X7_H
#define LEVIN_DATA_FONT5X7_H

#include <stdint.h>

enum { LVNI_FONT_WIDTH = 5, LVNI_FONT_HEIGHT = 7, LVNI_FONT_ADVANCE = 6 };

/* Seven rows from the top, bit 4 of each the leftmost dot. Small letters look like capitals,
 * unknown signs like a box. */
const uint8_t *lvni_data_font_glyph(char c);

#endif
