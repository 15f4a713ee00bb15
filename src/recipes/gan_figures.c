/* Figures of reconstructions (gan_figures.h). Each is a list of panels of one size. */
#include "recipes/gan_figures.h"

#include "core/alloc.h"
#include "core/rng.h"
#include "data/canvas.h"
#include "recipes/gan_metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* mass is above and below its mean */
const lvni_recipes_gan_style lvni_recipes_gan_mass_style = {
    LVNI_GAN_INFERNO, LVNI_GAN_JET, LVNI_GAN_VIRIDIS, 0.0, 0.4, 60, true};
const lvni_recipes_gan_style lvni_recipes_gan_radio_style = {
    LVNI_GAN_INFERNO, LVNI_GAN_JET, LVNI_GAN_VIRIDIS, 0.4, 0.4, 60, true};
const lvni_recipes_gan_style lvni_recipes_gan_mri_style = {
    LVNI_GAN_GREY, LVNI_GAN_JET, LVNI_GAN_VIRIDIS, 0.7, 0.4, 80, true};

enum {
    MAX_PANELS = 8,
    GAP = 16,
    TEXT = 2, /* page pixels of a dot of the font */
    LINE = TEXT * LVNI_FONT_HEIGHT + 8,
    BAR = 16,       /* width of a colour bar */
    BAR_ROOM = 128, /* with its numbers */
    BAR_STEPS = 4
};

typedef struct square {
    int x, y, height, width;
} square;

typedef struct panel {
    char title[40];
    const float *data; /* rows `stride` apart */
    int stride;
    square part; /* of data */
    lvni_recipes_gan_map map;
    double low, high;
    square mark; /* in data; width 0: none */
} panel;

typedef struct figure {
    panel panels[MAX_PANELS];
    int n, columns;
    bool rotate;
} figure;

/* ---- drawing ---- */

static int zoom_of(const square *part)
{
    const int longer = part->height > part->width ? part->height : part->width;
    return (LVNI_GAN_PANEL + longer - 1) / longer;
}

static double scaled(const panel *p, double value)
{
    const double range = p->high - p->low;
    return range > 0.0 ? (value - p->low) / range : 0.0 * value;
}

static void draw_pixels(const lvni_data_canvas *c, const panel *p, bool rotate, int left, int top)
{
    const square *part = &p->part;
    const int zoom = zoom_of(part);
    for (int y = 0; y < part->height; y++) {
        for (int x = 0; x < part->width; x++) {
            const int row = part->y + (rotate ? part->height - 1 - y : y),
                      column = part->x + (rotate ? part->width - 1 - x : x);
            uint8_t rgb[3];
            lvni_recipes_gan_colour(
                p->map, scaled(p, (double)p->data[(int64_t)row * p->stride + column]), rgb);
            lvni_data_canvas_fill(c, left + x * zoom, top + y * zoom, zoom, zoom, rgb);
        }
    }
}

static void draw_mark(const lvni_data_canvas *c, const panel *p, bool rotate, int left, int top)
{
    static const uint8_t red[3] = {220, 30, 30};
    const int zoom = zoom_of(&p->part), x = p->mark.x - p->part.x, y = p->mark.y - p->part.y;
    const int column = rotate ? p->part.width - x - p->mark.width : x,
              row = rotate ? p->part.height - y - p->mark.height : y;
    lvni_data_canvas_frame(c, left + column * zoom, top + row * zoom, p->mark.width * zoom,
                           p->mark.height * zoom, 2, red);
}

/* The largest value stands at the top. */
static void draw_bar(const lvni_data_canvas *c, const panel *p, int left, int top, int height)
{
    static const uint8_t ink[3] = {32, 32, 32};
    for (int y = 0; y < height; y++) {
        uint8_t rgb[3];
        lvni_recipes_gan_colour(p->map, 1.0 - (double)y / (height > 1 ? height - 1 : 1), rgb);
        lvni_data_canvas_fill(c, left, top + y, BAR, 1, rgb);
    }
    for (int i = 0; i <= BAR_STEPS; i++) {
        char text[24];
        const int y = top + (height - 1) * i / BAR_STEPS,
                  line = y - (i < BAR_STEPS ? 0 : TEXT * LVNI_FONT_HEIGHT - 1);
        snprintf(text, sizeof text, "%.3g", p->high + (p->low - p->high) * i / BAR_STEPS);
        lvni_data_canvas_fill(c, left + BAR, y, 4, 1, ink);
        lvni_data_canvas_text(c, left + BAR + 6, line, BAR_ROOM - BAR - 6, TEXT, text);
    }
}

static lvn_status draw(const char *path, const figure *f)
{
    int height = 0, width = 0;
    for (int i = 0; i < f->n; i++) {
        const square *part = &f->panels[i].part;
        const int zoom = zoom_of(part);
        height = part->height * zoom > height ? part->height * zoom : height;
        width = part->width * zoom > width ? part->width * zoom : width;
    }
    const int columns = f->columns < f->n ? f->columns : f->n,
              rows = (f->n + columns - 1) / columns, across = width + BAR_ROOM + GAP,
              down = LINE + height + GAP;
    lvni_data_canvas c;
    lvn_status s = lvni_data_canvas_create(GAP + columns * across, GAP + rows * down, &c);
    for (int i = 0; s == LVN_OK && i < f->n; i++) {
        const panel *p = &f->panels[i];
        const int left = GAP + i % columns * across, top = GAP + i / columns * down,
                  zoom = zoom_of(&p->part);
        lvni_data_canvas_text(&c, left, top, across - GAP, TEXT, p->title);
        draw_pixels(&c, p, f->rotate, left, top + LINE);
        if (p->mark.width > 0) {
            draw_mark(&c, p, f->rotate, left, top + LINE);
        }
        draw_bar(&c, p, left + p->part.width * zoom + 4, top + LINE, p->part.height * zoom);
    }
    s = s == LVN_OK ? lvni_data_canvas_write(&c, path) : s;
    lvni_data_canvas_free(&c);
    return s;
}

/* ---- the panels ---- */

static panel *add(figure *f, const char *title, const float *data, int stride, square part,
                  lvni_recipes_gan_map map, double high)
{
    panel *p = &f->panels[f->n++];
    *p = (panel){.data = data, .stride = stride, .part = part, .map = map, .high = high};
    snprintf(p->title, sizeof p->title, "%s", title);
    return p;
}

static double largest(const float *data, int64_t n)
{
    double most = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, (double)data[i]);
    }
    return most;
}

static double least(const float *data, int64_t n)
{
    double low = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        low = fmin(low, (double)data[i]);
    }
    return low;
}

static int64_t pixels(const lvni_recipes_gan_item *item)
{
    return (int64_t)item->height * item->width;
}

/* A panel of an image, within the limits of the whole truth. */
static panel *add_image(figure *f, const char *title, const float *data,
                        const lvni_recipes_gan_item *item, const lvni_recipes_gan_style *style,
                        square part)
{
    const bool whole_range = style->image_limit == 0.0;
    const double high = largest(item->truth, pixels(item));
    panel *p = add(f, title, data, item->width, part, style->image,
                   whole_range ? high : style->image_limit * high);
    p->low = whole_range ? least(item->truth, pixels(item)) : 0.0;
    return p;
}

static lvn_status check(const char *path, const lvni_recipes_gan_item *item, int samples)
{
    LVN_ARG(item->height > 0 && item->width > 0 && item->height <= 8192 && item->width <= 8192 &&
                item->n_samples >= samples,
            "%s: a figure of %d x %d pixels and %d sample%s cannot be drawn", path, item->height,
            item->width, item->n_samples, lvni_core_plural(item->n_samples, "", "s"));
    return LVN_OK;
}

/* |mean - truth|, the caller's. */
static float *error_of(const lvni_recipes_gan_item *item)
{
    float *error = lvni_core_alloc(LVNI_TAG_DATA, (size_t)pixels(item) * sizeof *error);
    for (int64_t i = 0; error != NULL && i < pixels(item); i++) {
        error[i] = fabsf(item->mean[i] - item->truth[i]);
    }
    return error;
}

static square whole(const lvni_recipes_gan_item *item)
{
    return (square){0, 0, item->height, item->width};
}

static square enlarged(const lvni_recipes_gan_item *item, const lvni_recipes_gan_style *style,
                       uint64_t seed)
{
    const int shorter = item->height < item->width ? item->height : item->width,
              half = shorter > 1 ? shorter / 2 : 1,
              side = style->zoom_side < half ? style->zoom_side : half;
    const lvni_core_rng rng = {lvni_core_rng_make_key(seed, lvni_core_rng_purpose("gan/zoom")),
                               (uint32_t)item->index, 0, 0};
    uint64_t element = 0;
    const uint32_t x = lvni_core_rng_below(&rng, (uint32_t)(item->width - side + 1), &element),
                   y = lvni_core_rng_below(&rng, (uint32_t)(item->height - side + 1), &element);
    return (square){(int)x, (int)y, side, side};
}

/* Reconstruction, error and std, with the limits of the whole images. */
static void add_results(figure *f, const lvni_recipes_gan_item *item,
                        const lvni_recipes_gan_style *style, const float *error, square part)
{
    const int stride = item->width;
    add_image(f, "Reconstruction", item->mean, item, style, part);
    add(f, "Absolute Error", error, stride, part, style->error,
        style->other_limit * largest(error, pixels(item)));
    add(f, "Std. Dev.", item->std, stride, part, style->std,
        style->other_limit * largest(item->std, pixels(item)));
}

lvn_status lvni_recipes_gan_overview(const char *path, const lvni_recipes_gan_item *item,
                                     const lvni_recipes_gan_style *style, int columns)
{
    LVN_TRY(check(path, item, 0));
    LVN_ARG(columns > 0, "%s: an overview in %d columns", path, columns);
    float *error = error_of(item);
    if (error == NULL) {
        return LVN_ERR_MEMORY;
    }
    figure f = {.columns = columns, .rotate = style->rotate};
    add_image(&f, "Truth", item->truth, item, style, whole(item));
    add_results(&f, item, style, error, whole(item));
    const lvn_status s = draw(path, &f);
    lvni_core_free(error);
    return s;
}

lvn_status lvni_recipes_gan_zoom(const char *path, const lvni_recipes_gan_item *item,
                                 const lvni_recipes_gan_style *style, uint64_t seed)
{
    LVN_TRY(check(path, item, 0));
    float *error = error_of(item);
    if (error == NULL) {
        return LVN_ERR_MEMORY;
    }
    const square part = enlarged(item, style, seed);
    figure f = {.columns = 4, .rotate = style->rotate};
    add_image(&f, "Truth", item->truth, item, style, whole(item))->mark = part;
    add_image(&f, "Truth, enlarged", item->truth, item, style, part);
    for (int i = 0; i < 3 && i < item->n_samples; i++) {
        char title[24];
        snprintf(title, sizeof title, "Sample %d", i + 1);
        add_image(&f, title, item->samples + i * pixels(item), item, style, part);
    }
    add_results(&f, item, style, error, part);
    const lvn_status s = draw(path, &f);
    lvni_core_free(error);
    return s;
}

/* ---- fewer and fewer samples ---- */

lvn_status lvni_recipes_gan_ascent(const char *path, const lvni_recipes_gan_item *item,
                                   const lvni_recipes_gan_style *style, uint64_t seed)
{
    static const int wanted[] = {0 /* all */, 8, 4, 2, 1};
    enum { WANTED = sizeof wanted / sizeof *wanted };
    LVN_TRY(check(path, item, 1));
    const int64_t n = pixels(item);
    float *means = lvni_core_alloc(LVNI_TAG_DATA, (size_t)n * WANTED * sizeof *means);
    if (means == NULL) {
        return LVN_ERR_MEMORY;
    }
    const square part = enlarged(item, style, seed);
    figure f = {.columns = 3, .rotate = style->rotate};
    add_image(&f, "Truth", item->truth, item, style, part);
    for (int i = 0; i < WANTED; i++) {
        const int count = i == 0 ? item->n_samples : wanted[i];
        if (i > 0 && count >= item->n_samples) {
            continue;
        }
        char title[40] = "Sample 1";
        if (count > 1) {
            snprintf(title, sizeof title, "Mean of %d", count);
        }
        const float *mean = means + i * n;
        if (item->means != NULL) {
            mean = item->means + (count - 1) * n;
        } else {
            lvni_recipes_gan_mean_std(item->samples, count, n, means + i * n, NULL);
        }
        add_image(&f, title, mean, item, style, part);
    }
    const lvn_status s = draw(path, &f);
    lvni_core_free(means);
    return s;
}

/* ---- during training ---- */

static void scale_to_unit(const float *in, int64_t n, float *out)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        low = fmin(low, (double)in[i]);
        high = fmax(high, (double)in[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = (float)(high > low ? ((double)in[i] - low) / (high - low) : 0.0);
    }
}

lvn_status lvni_recipes_gan_progress(const char *path, const float *truth, const float *mean,
                                     int height, int width)
{
    const lvni_recipes_gan_item item = {.height = height, .width = width};
    LVN_TRY(check(path, &item, 0));
    const int64_t n = pixels(&item);
    float *a = lvni_core_alloc(LVNI_TAG_DATA, 3 * (size_t)n * sizeof *a);
    if (a == NULL) {
        return LVN_ERR_MEMORY;
    }
    float *b = a + n, *difference = b + n;
    scale_to_unit(truth, n, a);
    scale_to_unit(mean, n, b);
    for (int64_t i = 0; i < n; i++) {
        difference[i] = fabsf(a[i] - b[i]);
    }
    char title[40];
    snprintf(title, sizeof title, "Recon: PSNR %.2f", lvni_recipes_gan_psnr(mean, truth, n));
    figure f = {.columns = 3};
    add(&f, "Truth", a, width, whole(&item), LVNI_GAN_GREY, 1.0);
    add(&f, title, b, width, whole(&item), LVNI_GAN_GREY, 1.0);
    add(&f, "Error", difference, width, whole(&item), LVNI_GAN_JET, 0.2);
    const lvn_status s = draw(path, &f);
    lvni_core_free(a);
    return s;
}
