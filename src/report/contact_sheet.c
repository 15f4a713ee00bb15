/* Contact sheets (contact_sheet.h). */
#include "report/contact_sheet.h"

#include "report/canvas.h"

enum {
    WANTED_SIDE = 112, /* pixels of an image on the page, at least */
    FRAME = 4,
    GAP = 8,
    LINE = LVNI_FONT_HEIGHT + 4,
};

/* Where things lie on the page. */
typedef struct page {
    lvni_report_canvas canvas;
    int zoom;         /* page pixels per image pixel */
    int tile;         /* side of image with frame */
    int across, down; /* distance from tile to tile */
} page;

static void draw_item(const page *p, const lvni_report_sheet_item *item, int x, int y, int size)
{
    static const uint8_t frames[3][3] = {[LVNI_VERDICT_NONE] = {150, 150, 150},
                                         [LVNI_VERDICT_RIGHT] = {46, 160, 67},
                                         [LVNI_VERDICT_WRONG] = {215, 58, 73}};
    lvni_report_canvas_fill(&p->canvas, x, y, p->tile, p->tile, frames[item->verdict]);
    for (int j = 0; j < size; j++) {
        for (int i = 0; i < size; i++) {
            lvni_report_canvas_fill(&p->canvas, x + FRAME + i * p->zoom, y + FRAME + j * p->zoom,
                                    p->zoom, p->zoom, item->rgb + 3 * ((int64_t)j * size + i));
        }
    }
    lvni_report_canvas_text(&p->canvas, x, y + p->tile + 3, p->tile, 1, item->line1);
    lvni_report_canvas_text(&p->canvas, x, y + p->tile + 3 + LINE, p->tile, 1, item->line2);
}

lvn_status lvni_report_contact_sheet_write(const char *path, const lvni_report_sheet_item *items,
                                           int n, int columns, int size)
{
    LVN_ARG(n >= 1 && n <= 10000 && columns >= 1 && size >= 1 && size <= 1024,
            "a contact sheet of %d images of %d pixels in %d columns cannot be made", n, size,
            columns);
    const int used = columns < n ? columns : n, rows = (n + used - 1) / used;
    page p = {.zoom = (WANTED_SIDE + size - 1) / size};
    p.tile = size * p.zoom + 2 * FRAME;
    p.across = p.tile + GAP;
    p.down = p.tile + 2 * LINE + GAP;
    lvn_status status =
        lvni_report_canvas_create(used * p.across + GAP, rows * p.down + GAP, &p.canvas);
    for (int i = 0; status == LVN_OK && i < n; i++) {
        draw_item(&p, &items[i], GAP + i % used * p.across, GAP + i / used * p.down, size);
    }
    status = status == LVN_OK ? lvni_report_canvas_write(&p.canvas, path) : status;
    lvni_report_canvas_free(&p.canvas);
    return status;
}
