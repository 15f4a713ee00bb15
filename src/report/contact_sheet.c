/* Contact sheets (contact_sheet.h). */
#include "report/contact_sheet.h"

#include "report/canvas.h"

#include <math.h>

enum {
    SIDE = 128 /* of an image, about, in units of the canvas */,
    FRAME = 4,
    GAP = 10,
    TEXT = 12,
    LINE = 16
};

static void draw_item(lvni_report_canvas *c, const lvni_report_sheet_item *item, double x, double y,
                      int size, double side)
{
    static const uint8_t frames[3][3] = {[LVNI_VERDICT_NONE] = {150, 150, 150},
                                         [LVNI_VERDICT_RIGHT] = {46, 160, 67},
                                         [LVNI_VERDICT_WRONG] = {215, 58, 73}};
    const double tile = side + 2 * FRAME;
    lvni_report_label line = {.x = x, .y = y + tile + LINE - 2, .size = TEXT, .room = tile};
    lvni_report_canvas_fill(c, x, y, tile, tile, frames[item->verdict]);
    lvni_report_canvas_image(c, item->rgb, size, size, x + FRAME, y + FRAME, side, side);
    lvni_report_canvas_text(c, &line, item->line1);
    line.y += LINE;
    lvni_report_canvas_text(c, &line, item->line2);
}

lvn_status lvni_report_contact_sheet_write(const char *path, const lvni_report_sheet_item *items,
                                           int n, int columns, int size)
{
    LVN_ARG(n >= 1 && n <= 10000 && columns >= 1 && size >= 1 && size <= 1024,
            "a contact sheet of %d images of %d pixels in %d columns cannot be made", n, size,
            columns);
    const int used = columns < n ? columns : n, rows = (n + used - 1) / used;
    /* whole pixels of the file per pixel of the image */
    const double wanted = (double)LVNI_CANVAS_PIXELS * SIDE / size,
                 side = fmax(round(wanted), 1.0) * size / LVNI_CANVAS_PIXELS,
                 across = side + 2 * FRAME + GAP, down = side + 2 * FRAME + 2 * LINE + GAP;
    lvni_report_canvas *c;
    LVN_TRY(lvni_report_canvas_create(path, used * across + GAP, rows * down + GAP, &c));
    for (int i = 0; i < n; i++) {
        const int row = i / used;
        draw_item(c, &items[i], GAP + i % used * across, GAP + row * down, size, side);
    }
    const lvn_status s = lvni_report_canvas_write(c);
    lvni_report_canvas_destroy(c);
    return s;
}
