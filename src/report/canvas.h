/* A page to draw on: lines, rectangles, images and text, by cairo, written as PNG or SVG. Lengths
 * are in units of the page from its upper left corner; a PNG file has two pixels per unit. The
 * first error stays with the canvas and is what writing it returns, so that drawing needs no
 * checks. Called by what else is in this folder and by recipes that draw figures. */
#ifndef LEVIN_REPORT_CANVAS_H
#define LEVIN_REPORT_CANVAS_H

#include "core/str.h"

typedef struct lvni_report_canvas lvni_report_canvas;

enum { LVNI_CANVAS_PIXELS = 2 }; /* per unit, in PNG files */

/* Before work whose result is to be drawn: LVN_ERR_UNSUPPORTED with `what` in front, as "sheet=" or
 * the name of a file, where cairo or a font is missing: the message names the packages. */
lvn_status lvni_report_canvas_check(const char *what);
/* Of a name that ends in .png or .svg. */
bool lvni_report_canvas_writes(const char *path);

/* A white page of this size, for an SVG file where the name ends in .svg, else for a PNG file. The
 * name is borrowed. */
lvn_status lvni_report_canvas_create(const char *path, double width, double height,
                                     lvni_report_canvas **out);
void lvni_report_canvas_destroy(lvni_report_canvas *c); /* NULL is fine */
/* The first error, for a canvas that serves to measure alone. */
lvn_status lvni_report_canvas_status(const lvni_report_canvas *c);
/* Of an SVG file, whose letters are outlines: its title and what it shows, for search and for
 * readers' programs. A PNG file has none. */
void lvni_report_canvas_describe(lvni_report_canvas *c, const char *title, const char *text);
/* Ends the drawing. The file appears whole or not at all; the pixels of a PNG file are all that is
 * in it. */
lvn_status lvni_report_canvas_write(lvni_report_canvas *c);
/* In place of it, of an SVG canvas: the element <svg>, for a page of HTML. */
lvn_status lvni_report_canvas_embed(lvni_report_canvas *c, lvni_core_str *out);

void lvni_report_canvas_fill(lvni_report_canvas *c, double x, double y, double width, double height,
                             const uint8_t rgb[3]);
/* The border of that rectangle, inside of it. */
void lvni_report_canvas_frame(lvni_report_canvas *c, double x, double y, double width,
                              double height, double thick, const uint8_t rgb[3]);
void lvni_report_canvas_dot(lvni_report_canvas *c, const double at[2], double radius,
                            const uint8_t rgb[3]);
/* From point to point; one that is not finite interrupts the line. */
void lvni_report_canvas_line(lvni_report_canvas *c, const double (*at)[2], int64_t n, double thick,
                             bool dashed, const uint8_t rgb[3]);
/* rgb (rows, columns, 3) in that rectangle. An enlarged pixel is a rectangle of one colour. */
void lvni_report_canvas_image(lvni_report_canvas *c, const uint8_t *rgb, int columns, int rows,
                              double x, double y, double width, double height);

typedef enum lvni_report_align {
    LVNI_ALIGN_LEFT,
    LVNI_ALIGN_MIDDLE,
    LVNI_ALIGN_RIGHT
} lvni_report_align;

typedef struct lvni_report_label {
    double x, y; /* where the baseline begins, has its middle, or ends */
    double size; /* of the font */
    double room; /* a longer text loses its middle; 0: any length */
    lvni_report_align align;
    double turn; /* degrees, counterclockwise */
    bool light;  /* white instead of black */
} lvni_report_label;

/* UTF-8, from left to right, in DejaVu Sans, and in what else fontconfig finds for a character that
 * it lacks. What no font has, control characters and bytes that are not UTF-8 appear by number:
 * \u4E2D, \xFF. NULL: nothing. */
void lvni_report_canvas_text(lvni_report_canvas *c, const lvni_report_label *label,
                             const char *text);
double lvni_report_canvas_text_width(lvni_report_canvas *c, const char *text, double size);

#endif
