/* Drawing by cairo (canvas.h). */
#include "report/canvas.h"

#include "core/alloc.h"
#include "core/str.h"
#include "core/vfs.h"
#include "data/image.h"
#include "report/cairo_api.h"
#include "report/page.h"

#include <math.h>
#include <string.h>
#include <strings.h>

enum { FONTS = 16, MAX_PIXELS = 32767 /* of a side: cairo's limit */ };

typedef struct font {
    FcPattern *match;
    const FcCharSet *has; /* of match */
    cairo_font_face_t *face;
} font;

struct lvni_report_canvas {
    const lvni_report_cairo *api;
    const char *path;  /* borrowed */
    int width, height; /* pixels of a PNG file; 0: SVG, which is written to text as it is drawn */
    lvni_core_str text, about; /* about: elements for the beginning of the SVG file */
    cairo_surface_t *surface;
    cairo_t *cairo;
    font fonts[FONTS]; /* DejaVu Sans, then those of characters that it lacks */
    int n_fonts;
    lvn_status status; /* the first error, whose message is the thread's last one */
};

static const uint8_t white[3] = {255, 255, 255}, ink[3] = {32, 32, 32};

/* ---- fonts ---- */

/* What fontconfig has nearest to DejaVu Sans with this character; 0: any. NULL: no font at all. */
static FcPattern *match_font(const lvni_report_cairo *api, uint32_t code)
{
    FcResult result;
    FcPattern *wanted = api->FcPatternCreate();
    FcCharSet *set = api->FcCharSetCreate();
    if (code != 0) {
        api->FcCharSetAddChar(set, code);
        api->FcPatternAddCharSet(wanted, FC_CHARSET, set);
    }
    api->FcPatternAddString(wanted, FC_FAMILY, (const FcChar8 *)"DejaVu Sans");
    api->FcConfigSubstitute(NULL, wanted, FcMatchPattern);
    api->FcDefaultSubstitute(wanted);
    FcPattern *match = api->FcFontMatch(NULL, wanted, &result);
    api->FcCharSetDestroy(set);
    api->FcPatternDestroy(wanted);
    FcChar8 *file;
    if (match != NULL && api->FcPatternGetString(match, FC_FILE, 0, &file) != FcResultMatch) {
        api->FcPatternDestroy(match);
        match = NULL;
    }
    return match;
}

/* A face of the file alone: the rest of the match is the machine's taste (hinting, subpixels). */
static cairo_font_face_t *open_face(const lvni_report_cairo *api, FcPattern *match)
{
    FcChar8 *file = NULL;
    int index = 0;
    FcPattern *plain = api->FcPatternCreate();
    api->FcPatternGetString(match, FC_FILE, 0, &file);
    api->FcPatternGetInteger(match, FC_INDEX, 0, &index);
    api->FcPatternAddString(plain, FC_FILE, file);
    api->FcPatternAddInteger(plain, FC_INDEX, index);
    cairo_font_face_t *face = api->cairo_ft_font_face_create_for_pattern(plain);
    api->FcPatternDestroy(plain);
    return face;
}

static const font *add_font(lvni_report_canvas *c, FcPattern *match)
{
    font *f = &c->fonts[c->n_fonts++];
    FcCharSet *has = NULL;
    c->api->FcPatternGetCharSet(match, FC_CHARSET, 0, &has);
    *f = (font){match, has, open_face(c->api, match)};
    return f;
}

static bool has_char(const lvni_report_canvas *c, const FcCharSet *set, uint32_t code)
{
    return set != NULL && c->api->FcCharSetHasChar(set, code);
}

/* The font that draws a character; NULL: none does. */
static const font *font_of(lvni_report_canvas *c, uint32_t code)
{
    for (int i = 0; i < c->n_fonts; i++) {
        if (has_char(c, c->fonts[i].has, code)) {
            return &c->fonts[i];
        }
    }
    FcPattern *match = c->n_fonts < FONTS ? match_font(c->api, code) : NULL;
    FcCharSet *has = NULL;
    if (match != NULL && c->api->FcPatternGetCharSet(match, FC_CHARSET, 0, &has) == FcResultMatch &&
        has_char(c, has, code)) {
        return add_font(c, match);
    }
    if (match != NULL) {
        c->api->FcPatternDestroy(match);
    }
    return NULL;
}

/* ---- the page ---- */

static lvn_status load(const char *what, const lvni_report_cairo **api, FcPattern **match)
{
    const char *missing;
    *api = lvni_report_cairo_load(&missing);
    *match = *api != NULL ? match_font(*api, 0) : NULL;
    if (*match == NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: drawing needs cairo and a font: %s; install them (Debian: libcairo2 and "
                 "fonts-dejavu-core)",
                 what, *api != NULL ? "fontconfig finds no font" : missing);
    }
    return LVN_OK;
}

lvn_status lvni_report_canvas_check(const char *what)
{
    const lvni_report_cairo *api;
    FcPattern *match;
    LVN_TRY(load(what, &api, &match));
    api->FcPatternDestroy(match);
    return LVN_OK;
}

static bool ends_in(const char *path, const char *ending)
{
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && strcasecmp(path + n - m, ending) == 0;
}

bool lvni_report_canvas_writes(const char *path)
{
    return ends_in(path, ".png") || ends_in(path, ".svg");
}

/* Equal on every machine: no hinting, grey antialiasing. */
static void set_font_options(const lvni_report_canvas *c)
{
    cairo_font_options_t *o = c->api->cairo_font_options_create();
    c->api->cairo_font_options_set_antialias(o, CAIRO_ANTIALIAS_GRAY);
    c->api->cairo_font_options_set_hint_style(o, CAIRO_HINT_STYLE_NONE);
    c->api->cairo_font_options_set_hint_metrics(o, CAIRO_HINT_METRICS_OFF);
    c->api->cairo_set_font_options(c->cairo, o);
    c->api->cairo_font_options_destroy(o);
}

static cairo_status_t append(void *text, const unsigned char *bytes, unsigned n)
{
    lvni_core_str_append_n(text, (const char *)bytes, n);
    return CAIRO_STATUS_SUCCESS;
}

static void open_surface(lvni_report_canvas *c, double width, double height)
{
    const lvni_report_cairo *api = c->api;
    if (ends_in(c->path, ".svg")) {
        c->surface = api->cairo_svg_surface_create_for_stream(append, &c->text, width, height);
        c->cairo = api->cairo_create(c->surface);
    } else {
        c->width = (int)ceil(LVNI_CANVAS_PIXELS * width);
        c->height = (int)ceil(LVNI_CANVAS_PIXELS * height);
        c->surface = api->cairo_image_surface_create(CAIRO_FORMAT_RGB24, c->width, c->height);
        c->cairo = api->cairo_create(c->surface);
        api->cairo_scale(c->cairo, LVNI_CANVAS_PIXELS, LVNI_CANVAS_PIXELS);
    }
    api->cairo_set_source_rgb(c->cairo, 1.0, 1.0, 1.0);
    api->cairo_paint(c->cairo);
    set_font_options(c);
}

lvn_status lvni_report_canvas_create(const char *path, double width, double height,
                                     lvni_report_canvas **out)
{
    const lvni_report_cairo *api;
    FcPattern *match;
    *out = NULL;
    LVN_ARG(width > 0.0 && height > 0.0 && LVNI_CANVAS_PIXELS * fmax(width, height) <= MAX_PIXELS,
            "%s: a figure of %g x %g units cannot be made, at most %d", path, width, height,
            MAX_PIXELS / LVNI_CANVAS_PIXELS);
    LVN_TRY(load(path, &api, &match));
    lvni_report_canvas *c = LVNI_NEW(LVNI_TAG_DATA, lvni_report_canvas);
    if (c == NULL) {
        api->FcPatternDestroy(match);
        return LVN_ERR_MEMORY;
    }
    c->api = api;
    c->path = path;
    open_surface(c, width, height);
    add_font(c, match);
    *out = c;
    return LVN_OK;
}

void lvni_report_canvas_destroy(lvni_report_canvas *c)
{
    if (c == NULL) {
        return;
    }
    for (int i = 0; i < c->n_fonts; i++) {
        c->api->cairo_font_face_destroy(c->fonts[i].face);
        c->api->FcPatternDestroy(c->fonts[i].match);
    }
    c->api->cairo_destroy(c->cairo);
    c->api->cairo_surface_destroy(c->surface);
    lvni_core_str_free(&c->text);
    lvni_core_str_free(&c->about);
    lvni_core_free(c);
}

/* ---- the file ---- */

static lvn_status write_png(const lvni_report_canvas *c)
{
    const int stride = c->api->cairo_image_surface_get_stride(c->surface);
    const uint8_t *pixels = c->api->cairo_image_surface_get_data(c->surface);
    uint8_t *rgb = lvni_core_alloc(LVNI_TAG_DATA, (size_t)c->width * (size_t)c->height * 3),
            *out = rgb;
    if (rgb == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int y = 0; y < c->height; y++) {
        for (int x = 0; x < c->width; x++, out += 3) {
            uint32_t pixel;
            memcpy(&pixel, pixels + (int64_t)y * stride + 4 * (int64_t)x, sizeof pixel);
            out[0] = (uint8_t)(pixel >> 16);
            out[1] = (uint8_t)(pixel >> 8);
            out[2] = (uint8_t)pixel;
        }
    }
    const lvn_status s = lvni_data_png_write(c->path, rgb, c->width, c->height);
    lvni_core_free(rgb);
    return s;
}

void lvni_report_canvas_describe(lvni_report_canvas *c, const char *title, const char *text)
{
    lvni_core_str_append(&c->about, "<title>");
    lvni_report_escape(&c->about, title);
    lvni_core_str_append(&c->about, "</title>\n<desc>");
    lvni_report_escape(&c->about, text);
    lvni_core_str_append(&c->about, "</desc>\n");
}

/* Behind the start tag of <svg>: cairo has no call for it. */
static void add_description(lvni_report_canvas *c)
{
    const char *text = lvni_core_str_text(&c->text), *tag = strstr(text, "<svg"),
               *end = tag != NULL ? strchr(tag, '>') : NULL;
    if (end != NULL && c->about.len > 0) {
        lvni_core_str whole = {0};
        lvni_core_str_append_n(&whole, text, (size_t)(end + 1 - text));
        lvni_core_str_char(&whole, '\n');
        lvni_core_str_append(&whole, lvni_core_str_text(&c->about));
        lvni_core_str_append(&whole, end + 1);
        lvni_core_str_free(&c->text);
        c->text = whole;
    }
}

static lvn_status complete_svg(lvni_report_canvas *c)
{
    LVN_TRY(lvni_core_str_status(&c->text));
    LVN_TRY(lvni_core_str_status(&c->about));
    add_description(c);
    return lvni_core_str_status(&c->text);
}

static lvn_status write_svg(lvni_report_canvas *c)
{
    LVN_TRY(complete_svg(c));
    return lvni_core_file_write(c->path, lvni_core_str_text(&c->text), c->text.len);
}

lvn_status lvni_report_canvas_status(const lvni_report_canvas *c)
{
    return c->status;
}

/* All that was drawn is in the pixels or the text. */
static lvn_status finish(lvni_report_canvas *c)
{
    LVN_TRY(c->status);
    cairo_status_t s = c->api->cairo_status(c->cairo);
    if (c->width > 0) {
        c->api->cairo_surface_flush(c->surface);
    } else {
        c->api->cairo_surface_finish(c->surface);
    }
    s = s == CAIRO_STATUS_SUCCESS ? c->api->cairo_surface_status(c->surface) : s;
    if (s != CAIRO_STATUS_SUCCESS) {
        LVN_FAIL(s == CAIRO_STATUS_NO_MEMORY ? LVN_ERR_MEMORY : LVN_ERR_INTERNAL, "%s: cairo: %s",
                 c->path, c->api->cairo_status_to_string(s));
    }
    return LVN_OK;
}

lvn_status lvni_report_canvas_write(lvni_report_canvas *c)
{
    LVN_TRY(finish(c));
    return c->width > 0 ? write_png(c) : write_svg(c);
}

lvn_status lvni_report_canvas_embed(lvni_report_canvas *c, lvni_core_str *out)
{
    LVN_ARG(c->width == 0, "%s is not drawn as SVG", c->path);
    LVN_TRY(finish(c));
    LVN_TRY(complete_svg(c));
    const char *svg = strstr(lvni_core_str_text(&c->text), "<svg");
    if (svg == NULL) {
        LVN_FAIL(LVN_ERR_INTERNAL, "%s: cairo wrote no <svg>", c->path);
    }
    lvni_core_str_append(out, svg);
    return lvni_core_str_status(out);
}

/* ---- shapes ---- */

static void set_colour(const lvni_report_canvas *c, const uint8_t rgb[3])
{
    c->api->cairo_set_source_rgb(c->cairo, rgb[0] / 255.0, rgb[1] / 255.0, rgb[2] / 255.0);
}

void lvni_report_canvas_fill(lvni_report_canvas *c, double x, double y, double width, double height,
                             const uint8_t rgb[3])
{
    set_colour(c, rgb);
    c->api->cairo_rectangle(c->cairo, x, y, width, height);
    c->api->cairo_fill(c->cairo);
}

void lvni_report_canvas_frame(lvni_report_canvas *c, double x, double y, double width,
                              double height, double thick, const uint8_t rgb[3])
{
    set_colour(c, rgb);
    c->api->cairo_set_dash(c->cairo, NULL, 0, 0.0);
    c->api->cairo_set_line_join(c->cairo, CAIRO_LINE_JOIN_MITER);
    c->api->cairo_set_line_width(c->cairo, thick);
    c->api->cairo_rectangle(c->cairo, x + thick / 2, y + thick / 2, width - thick, height - thick);
    c->api->cairo_stroke(c->cairo);
}

void lvni_report_canvas_dot(lvni_report_canvas *c, const double at[2], double radius,
                            const uint8_t rgb[3])
{
    set_colour(c, rgb);
    c->api->cairo_arc(c->cairo, at[0], at[1], radius, 0.0, 8.0 * atan(1.0));
    c->api->cairo_fill(c->cairo);
}

void lvni_report_canvas_line(lvni_report_canvas *c, const double (*at)[2], int64_t n, double thick,
                             bool dashed, const uint8_t rgb[3])
{
    static const double dash[2] = {7.0, 5.0};
    set_colour(c, rgb);
    c->api->cairo_set_line_width(c->cairo, thick);
    c->api->cairo_set_dash(c->cairo, dash, dashed ? 2 : 0, 0.0);
    c->api->cairo_set_line_join(c->cairo, CAIRO_LINE_JOIN_ROUND);
    c->api->cairo_new_path(c->cairo);
    bool begins = true;
    for (int64_t i = 0; i < n; i++) {
        const bool finite = isfinite(at[i][0]) && isfinite(at[i][1]);
        if (finite && begins) {
            c->api->cairo_move_to(c->cairo, at[i][0], at[i][1]);
        } else if (finite) {
            c->api->cairo_line_to(c->cairo, at[i][0], at[i][1]);
        }
        begins = !finite;
    }
    c->api->cairo_stroke(c->cairo);
}

/* Enlarged here, not by cairo, whose SVG files blur what is enlarged. */
static cairo_surface_t *image_of(const lvni_report_canvas *c, const uint8_t *rgb, int columns,
                                 int rows, int zoom)
{
    cairo_surface_t *image =
        c->api->cairo_image_surface_create(CAIRO_FORMAT_RGB24, columns * zoom, rows * zoom);
    uint8_t *pixels = c->api->cairo_image_surface_get_data(image);
    const int64_t stride = c->api->cairo_image_surface_get_stride(image);
    for (int j = 0; pixels != NULL && j < rows * zoom; j++) {
        const uint8_t *from = rgb + 3 * (int64_t)columns * (j / zoom);
        for (int i = 0; i < columns * zoom; i++) {
            const uint8_t *p = from + 3 * (i / zoom);
            const uint32_t pixel = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
            memcpy(pixels + j * stride + 4 * (int64_t)i, &pixel, sizeof pixel);
        }
    }
    c->api->cairo_surface_mark_dirty(image);
    return image;
}

void lvni_report_canvas_image(lvni_report_canvas *c, const uint8_t *rgb, int columns, int rows,
                              double x, double y, double width, double height)
{
    const lvni_report_cairo *api = c->api;
    const double pixels = LVNI_CANVAS_PIXELS * fmin(width / columns, height / rows);
    const int zoom = pixels > 1.0 ? (int)ceil(pixels - 1e-9) : 1;
    cairo_surface_t *image = image_of(c, rgb, columns, rows, zoom);
    api->cairo_save(c->cairo);
    api->cairo_translate(c->cairo, x, y);
    api->cairo_scale(c->cairo, width / (columns * zoom), height / (rows * zoom));
    api->cairo_set_source_surface(c->cairo, image, 0.0, 0.0);
    api->cairo_pattern_set_filter(api->cairo_get_source(c->cairo),
                                  pixels < 1.0 ? CAIRO_FILTER_GOOD : CAIRO_FILTER_NEAREST);
    api->cairo_rectangle(c->cairo, 0.0, 0.0, columns * zoom, rows * zoom);
    api->cairo_fill(c->cairo);
    api->cairo_restore(c->cairo);
    api->cairo_surface_destroy(image);
}

/* ---- text ---- */

typedef struct glyph {
    char utf8[5];
    const font *font;
    double advance;
} glyph;

typedef struct line {
    glyph *glyph;
    int n;
    double width;
} line;

static void add_glyph(lvni_report_canvas *c, line *l, const char *bytes, size_t n, const font *f)
{
    glyph *g = &l->glyph[l->n++];
    cairo_text_extents_t extents;
    *g = (glyph){.font = f};
    memcpy(g->utf8, bytes, n);
    c->api->cairo_set_font_face(c->cairo, f->face);
    c->api->cairo_text_extents(c->cairo, g->utf8, &extents);
    g->advance = extents.x_advance;
    l->width += g->advance;
}

/* The glyphs of a text, the caller's, in the font size that is set. */
static line break_down(lvni_report_canvas *c, const char *text)
{
    const size_t n = strlen(text);
    line l = {.glyph = lvni_core_alloc(LVNI_TAG_DATA, (6 * n + 1) * sizeof *l.glyph)};
    if (l.glyph == NULL) {
        c->status = c->status == LVN_OK ? LVN_ERR_MEMORY : c->status;
        return l;
    }
    for (size_t i = 0; i < n;) {
        uint32_t code = 0;
        const size_t bytes = lvni_core_utf8_char(text + i, n - i, &code);
        const bool plain = bytes > 0 && code >= ' ' && code != 0x7f && !lvni_core_utf8_hidden(code);
        const font *f = plain ? font_of(c, code) : NULL;
        if (f != NULL) {
            add_glyph(c, &l, text + i, bytes, f);
        } else {
            char number[12];
            const int digits = bytes > 0 ? lvni_core_format(number, sizeof number, "\\u%04X", code)
                                         : lvni_core_format(number, sizeof number, "\\x%02X",
                                                            (unsigned)(uint8_t)text[i]);
            for (int k = 0; k < digits; k++) {
                add_glyph(c, &l, number + k, 1, &c->fonts[0]);
            }
        }
        i += bytes > 0 ? bytes : 1;
    }
    return l;
}

/* What is too long has three dots in its middle: names often differ at their ends. */
static void shorten(lvni_report_canvas *c, line *l, double room)
{
    if (room <= 0.0 || l->width <= room) {
        return;
    }
    static const char dots[] = "\xe2\x80\xa6";
    int left = l->n / 2, right = left; /* glyphs from left to right go */
    line mark = {.glyph = &l->glyph[left]};
    const double removed = l->glyph[left].advance;
    add_glyph(c, &mark, dots, sizeof dots - 1, &c->fonts[0]);
    for (l->width += mark.width - removed; l->width > room && (left > 0 || right < l->n - 1);) {
        if (left >= l->n - 1 - right && left > 0) {
            l->width -= l->glyph[--left].advance;
        } else {
            l->width -= l->glyph[++right].advance;
        }
    }
    l->glyph[left] = mark.glyph[0];
    memmove(&l->glyph[left + 1], &l->glyph[right + 1],
            (size_t)(l->n - 1 - right) * sizeof *l->glyph);
    l->n -= right - left;
}

double lvni_report_canvas_text_width(lvni_report_canvas *c, const char *text, double size)
{
    c->api->cairo_set_font_size(c->cairo, size);
    line l = break_down(c, text);
    lvni_core_free(l.glyph);
    return l.width;
}

void lvni_report_canvas_text(lvni_report_canvas *c, const lvni_report_label *label,
                             const char *text)
{
    if (text == NULL || text[0] == '\0') {
        return;
    }
    const lvni_report_cairo *api = c->api;
    api->cairo_set_font_size(c->cairo, label->size);
    line l = break_down(c, text);
    if (l.glyph == NULL) {
        return;
    }
    shorten(c, &l, label->room);
    api->cairo_save(c->cairo);
    set_colour(c, label->light ? white : ink);
    api->cairo_translate(c->cairo, label->x, label->y);
    api->cairo_rotate(c->cairo, -label->turn * atan(1.0) / 45.0);
    double x = -l.width * (double)label->align / 2.0;
    for (int i = 0; i < l.n; i++) {
        api->cairo_move_to(c->cairo, x, 0.0);
        api->cairo_set_font_face(c->cairo, l.glyph[i].font->face);
        api->cairo_show_text(c->cairo, l.glyph[i].utf8);
        x += l.glyph[i].advance;
    }
    api->cairo_restore(c->cairo);
    lvni_core_free(l.glyph);
}
