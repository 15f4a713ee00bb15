/* A page of RGB pixels to draw on, and a font. What lies outside of the page is not drawn. Called
 * by contact_sheet.c and by the recipes that draw figures. */
#ifndef LEVIN_REPORT_CANVAS_H
#define LEVIN_REPORT_CANVAS_H

#include <levin/status.h>

typedef struct lvni_report_canvas {
    uint8_t *rgb; /* (height, width, 3) */
    int width, height;
} lvni_report_canvas;

/* White. Free with lvni_report_canvas_free, after a failure too. */
lvn_status lvni_report_canvas_create(int width, int height, lvni_report_canvas *out);
void lvni_report_canvas_free(lvni_report_canvas *canvas); /* leaves it empty */
/* As PNG. */
lvn_status lvni_report_canvas_write(const lvni_report_canvas *canvas, const char *path);

void lvni_report_canvas_fill(const lvni_report_canvas *canvas, int x, int y, int width, int height,
                             const uint8_t colour[3]);
/* The border of that rectangle, inside of it. */
void lvni_report_canvas_frame(const lvni_report_canvas *canvas, int x, int y, int width, int height,
                              int thick, const uint8_t colour[3]);
/* (x, y) to (x, y), both finite and near the page. dash: pixels of a dash and of a gap; 0: solid.
 */
void lvni_report_canvas_line(const lvni_report_canvas *canvas, const double from[2],
                             const double to[2], int thick, int dash, const uint8_t colour[3]);
/* From the upper left corner, each dot of the font zoom x zoom pixels, cut where `room` pixels end.
 * NULL: nothing. */
void lvni_report_canvas_text(const lvni_report_canvas *canvas, int x, int y, int room, int zoom,
                             const char *text);
int lvni_report_canvas_text_width(const char *text, int zoom); /* pixels */

/* The font: capitals, digits and some signs, 5 x 7 dots. */
enum { LVNI_FONT_WIDTH = 5, LVNI_FONT_HEIGHT = 7, LVNI_FONT_ADVANCE = 6 };

/* Seven rows from the top, bit 4 of each the leftmost dot. Small letters look like capitals,
 * unknown signs like a box. */
const uint8_t *lvni_report_font_glyph(char c);

#endif
