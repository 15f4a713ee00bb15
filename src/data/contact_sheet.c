/* Contact sheets (contact_sheet.h). */
#include "data/contact_sheet.h"

#include "core/alloc.h"
#include "data/font5x7.h"
#include "data/image.h"

#include <string.h>

enum {
    WANTED_SIDE = 112, /* pixels of an image on the page, at least */
    FRAME = 4,
    GAP = 8,
    LINE = LVNI_FONT_HEIGHT + 4,
};

/* Where things lie on the page. */
typedef struct page {
    uint8_t *rgb;
    int width, height;
    int zoom;         /* page pixels per image pixel */
    int tile;         /* side of image with frame */
    int across, down; /* distance from tile to tile */
} page;

static void fill(const page *p, int x, int y, int width, int height, const uint8_t colour[3])
{
    for (int j = y; j < y + height; j++) {
        for (int i = x; i < x + width; i++) {
            memcpy(p->rgb + 3 * ((int64_t)j * p->width + i), colour, 3);
        }
    }
}

static void draw_text(const page *p, int x, int y, int width, const char *text)
{
    static const uint8_t ink[3] = {32, 32, 32};
    for (int end = x + width; text != NULL && *text != 0 && x + LVNI_FONT_WIDTH <= end;
         text++, x += LVNI_FONT_ADVANCE) {
        const uint8_t *glyph = lvni_data_font_glyph(*text);
        for (int j = 0; j < LVNI_FONT_HEIGHT; j++) {
            for (int i = 0; i < LVNI_FONT_WIDTH; i++) {
                if ((glyph[j] >> (LVNI_FONT_WIDTH - 1 - i) & 1) != 0) {
                    fill(p, x + i, y + j, 1, 1, ink);
                }
            }
        }
    }
}

static void draw_item(const page *p, const lvni_data_sheet_item *item, int x, int y, int size)
{
    static const uint8_t frames[3][3] = {[LVNI_VERDICT_NONE] = {150, 150, 150},
                                         [LVNI_VERDICT_RIGHT] = {46, 160, 67},
                                         [LVNI_VERDICT_WRONG] = {215, 58, 73}};
    fill(p, x, y, p->tile, p->tile, frames[item->verdict]);
    for (int j = 0; j < size; j++) {
        for (int i = 0; i < size; i++) {
            fill(p, x + FRAME + i * p->zoom, y + FRAME + j * p->zoom, p->zoom, p->zoom,
                 item->rgb + 3 * ((int64_t)j * size + i));
        }
    }
    draw_text(p, x, y + p->tile + 3, p->tile, item->line1);
    draw_text(p, x, y + p->tile + 3 + LINE, p->tile, item->line2);
}

lvn_status lvni_data_contact_sheet_write(const char *path, const lvni_data_sheet_item *items, int n,
                                         int columns, int size)
{
    LVN_ARG(n >= 1 && n <= 10000 && columns >= 1 && size >= 1 && size <= 1024,
            "a contact sheet of %d images of %d pixels in %d columns cannot be made", n, size,
            columns);
    const int used = columns < n ? columns : n, rows = (n + used - 1) / used;
    page p = {.zoom = (WANTED_SIDE + size - 1) / size};
    p.tile = size * p.zoom + 2 * FRAME;
    p.across = p.tile + GAP;
    p.down = p.tile + 2 * LINE + GAP;
    p.width = used * p.across + GAP;
    p.height = rows * p.down + GAP;
    const size_t bytes = (size_t)p.width * (size_t)p.height * 3;
    p.rgb = lvni_core_alloc(LVNI_TAG_DATA, bytes);
    if (p.rgb == NULL) {
        return LVN_ERR_MEMORY;
    }
    memset(p.rgb, 255, bytes);
    for (int i = 0; i < n; i++) {
        draw_item(&p, &items[i], GAP + i % used * p.across, GAP + i / used * p.down, size);
    }
    const lvn_status status = lvni_data_png_write(path, p.rgb, p.width, p.height);
    lvni_core_free(p.rgb);
    return status;
}
