/* Figures of reconstructions (gan_figures.h). Each is a list of panels of one size. */
#include "recipes/gan/gan_figures.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/rng.h"
#include "core/str.h"
#include "recipes/gan/gan_control.h"
#include "recipes/gan/gan_metrics.h"
#include "report/axis.h"
#include "report/canvas.h"
#include "report/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* mass is above and below its mean */
const lvni_gan_style lvni_gan_mass_style = {
    LVNI_COLOUR_INFERNO, LVNI_COLOUR_JET, LVNI_COLOUR_VIRIDIS, 0.0, 0.4, 60, true};
const lvni_gan_style lvni_gan_radio_style = {
    LVNI_COLOUR_INFERNO, LVNI_COLOUR_JET, LVNI_COLOUR_VIRIDIS, 0.4, 0.4, 60, true};
const lvni_gan_style lvni_gan_mri_style = {
    LVNI_COLOUR_GREY, LVNI_COLOUR_JET, LVNI_COLOUR_VIRIDIS, 0.7, 0.4, 80, true};

enum {
    MAX_PANELS = 9,
    GAP = 16,
    TEXT = 14,
    TITLE = 16,
    LINE = TITLE + 8,
    BAR = 16,       /* width of a colour bar */
    BAR_ROOM = 112, /* with its numbers */
    BAR_STEPS = 4,
    LARGEST = 2048 /* pixels of a panel in the file: a larger image is reduced */
};

typedef struct square {
    int x, y, height, width;
} square;

typedef struct panel {
    char title[40];
    const float *data; /* rows `stride` apart */
    int stride;
    square part; /* of data */
    lvni_report_colour_map map;
    double low, high;
    square mark;     /* in data; width 0: none */
    bool begins_row; /* whatever the number of columns: all of a row have one range */
} panel;

typedef struct figure {
    panel panels[MAX_PANELS];
    int n, columns;
    bool rotate;
} figure;

/* ---- drawing ---- */

/* Units of the canvas per pixel of the data, whole pixels of the file if it is not reduced. */
static double zoom_of(const square *part)
{
    const int longer = part->height > part->width ? part->height : part->width,
              wanted = LVNI_CANVAS_PIXELS * LVNI_GAN_PANEL;
    const int enlarged = (wanted + longer - 1) / longer;
    const double pixels = longer > LARGEST ? (double)LARGEST / longer : enlarged;
    return pixels / LVNI_CANVAS_PIXELS;
}

static double scaled(const panel *p, double value)
{
    const double range = p->high - p->low;
    return range > 0.0 ? (value - p->low) / range : 0.0 * value;
}

static lvn_status draw_pixels(lvni_report_canvas *c, const panel *p, bool rotate, double left,
                              double top)
{
    const square *part = &p->part;
    const double zoom = zoom_of(part);
    uint8_t *rgb = lvni_core_alloc(LVNI_TAG_DATA, 3 * (size_t)part->height * (size_t)part->width),
            *out = rgb;
    if (rgb == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int y = 0; y < part->height; y++) {
        for (int x = 0; x < part->width; x++, out += 3) {
            const int row = part->y + (rotate ? part->height - 1 - y : y),
                      column = part->x + (rotate ? part->width - 1 - x : x);
            lvni_report_colour(p->map,
                               scaled(p, (double)p->data[(int64_t)row * p->stride + column]), out);
        }
    }
    lvni_report_canvas_image(c, rgb, part->width, part->height, left, top, part->width * zoom,
                             part->height * zoom);
    lvni_core_free(rgb);
    return LVN_OK;
}

static void draw_mark(lvni_report_canvas *c, const panel *p, bool rotate, double left, double top)
{
    static const uint8_t red[3] = {220, 30, 30};
    const int x = p->mark.x - p->part.x, y = p->mark.y - p->part.y;
    const int column = rotate ? p->part.width - x - p->mark.width : x,
              row = rotate ? p->part.height - y - p->mark.height : y;
    const double zoom = zoom_of(&p->part);
    lvni_report_canvas_frame(c, left + column * zoom, top + row * zoom, p->mark.width * zoom,
                             p->mark.height * zoom, 2.0, red);
}

/* Values of the panel beyond its range have the colours of its ends. */
static void find_clipped(const panel *p, bool *below, bool *above)
{
    *below = *above = false;
    for (int y = 0; y < p->part.height; y++) {
        const float *row = p->data + (int64_t)(p->part.y + y) * p->stride + p->part.x;
        for (int x = 0; x < p->part.width; x++) {
            *below = *below || row[x] < (float)p->low;
            *above = *above || row[x] > (float)p->high;
        }
    }
}

/* The largest value stands at the top; "<" and ">" where the panel has values beyond an end. */
static void draw_bar(lvni_report_canvas *c, const panel *p, double left, double top, double height)
{
    static const uint8_t ink[3] = {32, 32, 32};
    bool below, above;
    uint8_t rgb[256][3];
    find_clipped(p, &below, &above);
    for (int i = 0; i < 256; i++) {
        lvni_report_colour(p->map, 1.0 - i / 255.0, rgb[i]);
    }
    lvni_report_canvas_image(c, rgb[0], 1, 256, left, top, BAR, height);
    for (int i = 0; i <= BAR_STEPS; i++) {
        char number[LVNI_NUMBER_TEXT], text[LVNI_NUMBER_TEXT + 4];
        const double y = top + (height - 1.0) * i / BAR_STEPS, /* numbers of the ends lie within */
            line = y + TEXT * (i == 0          ? 0.72
                               : i < BAR_STEPS ? 0.36
                                               : 0.0),
                     value = p->high + (p->low - p->high) * i / BAR_STEPS;
        snprintf(text, sizeof text, "%s%s",
                 i == 0 && above           ? "> "
                 : i == BAR_STEPS && below ? "< "
                                           : "",
                 lvni_report_axis_number(fabs(value) < 1e-5 * (p->high - p->low) ? 0.0 : value, 3,
                                         number));
        const lvni_report_label label = {
            .x = left + BAR + 7.0, .y = line, .size = TEXT, .room = BAR_ROOM - BAR - 7.0};
        lvni_report_canvas_fill(c, left + BAR, y, 4.0, 1.0, ink);
        lvni_report_canvas_text(c, &label, text);
    }
}

static lvn_status draw_panel(lvni_report_canvas *c, const panel *p, bool rotate, double left,
                             double top)
{
    const double zoom = zoom_of(&p->part), width = p->part.width * zoom;
    const lvni_report_label title = {
        .x = left, .y = top + TITLE - 2.0, .size = TITLE, .room = width + BAR_ROOM};
    lvni_report_canvas_text(c, &title, p->title);
    LVN_TRY(draw_pixels(c, p, rotate, left, top + LINE));
    if (p->mark.width > 0) {
        draw_mark(c, p, rotate, left, top + LINE);
    }
    draw_bar(c, p, left + width + 6.0, top + LINE, p->part.height * zoom);
    return LVN_OK;
}

static lvn_status draw(const char *path, const figure *f)
{
    double height = 0.0, width = 0.0;
    for (int i = 0; i < f->n; i++) {
        const square *part = &f->panels[i].part;
        height = fmax(height, part->height * zoom_of(part));
        width = fmax(width, part->width * zoom_of(part));
    }
    int row[MAX_PANELS] = {0}, column[MAX_PANELS] = {0}, columns = 1;
    for (int i = 1; i < f->n; i++) {
        const bool begins = f->panels[i].begins_row || column[i - 1] + 1 == f->columns;
        row[i] = row[i - 1] + (begins ? 1 : 0);
        column[i] = begins ? 0 : column[i - 1] + 1;
        columns = column[i] >= columns ? column[i] + 1 : columns;
    }
    const double across = width + BAR_ROOM + GAP, down = LINE + height + GAP;
    lvni_report_canvas *c;
    LVN_TRY(lvni_report_canvas_create(path, GAP + columns * across,
                                      GAP + (row[f->n - 1] + 1) * down, &c));
    lvn_status s;
    for (int i = 0; i < f->n; i++) {
        LVNI_TRY_DONE(s, draw_panel(c, &f->panels[i], f->rotate, GAP + column[i] * across,
                                    GAP + row[i] * down));
    }
    s = lvni_report_canvas_write(c);
done:
    lvni_report_canvas_destroy(c);
    return s;
}

/* ---- the panels ---- */

static panel *add(figure *f, const char *title, const float *data, int stride, square part,
                  lvni_report_colour_map map, double high)
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

static int64_t pixels(const lvni_gan_item *item)
{
    return (int64_t)item->height * item->width;
}

/* From the least to the largest value. What is constant up to rounding is one colour, in the middle
 * of a range that is not made of the rounding. */
static void range_of(const float *data, int64_t n, double *low, double *high)
{
    *low = least(data, n);
    *high = largest(data, n);
    const double size = fmax(fabs(*low), fabs(*high));
    if (!(*high - *low > 1e-5 * size)) {
        *low -= size > 0.0 ? 0.5 * size : 0.5;
        *high += size > 0.0 ? 0.5 * size : 0.5;
    }
}

/* A panel of an image, within the limits of the whole truth. */
static panel *add_image(figure *f, const char *title, const float *data, const lvni_gan_item *item,
                        const lvni_gan_style *style, square part)
{
    double low, high;
    range_of(item->truth, pixels(item), &low, &high);
    const bool from_0 = style->image_limit > 0.0 && high > 0.0;
    panel *p = add(f, title, data, item->width, part, style->image,
                   from_0 ? style->image_limit * high : high);
    p->low = from_0 ? 0.0 : low;
    return p;
}

static lvn_status check(const char *path, const lvni_gan_item *item, int samples)
{
    LVN_ARG(item->height > 0 && item->width > 0 && item->height <= 8192 && item->width <= 8192 &&
                item->n_samples >= samples,
            "%s: a figure of %d x %d pixels and %d sample%s cannot be drawn", path, item->height,
            item->width, item->n_samples, lvni_core_plural(item->n_samples, "", "s"));
    return LVN_OK;
}

/* |mean - truth|, the caller's. */
static float *error_of(const lvni_gan_item *item)
{
    float *error = lvni_core_alloc(LVNI_TAG_DATA, (size_t)pixels(item) * sizeof *error);
    for (int64_t i = 0; error != NULL && i < pixels(item); i++) {
        error[i] = fabsf(item->mean[i] - item->truth[i]);
    }
    return error;
}

static square whole(const lvni_gan_item *item)
{
    return (square){0, 0, item->height, item->width};
}

static square enlarged(const lvni_gan_item *item, const lvni_gan_style *style, uint64_t seed)
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

/* Beside the truth: the mean of the samples, and what is known without a network. */
static void add_reconstructions(figure *f, const lvni_gan_item *item, const lvni_gan_style *style,
                                square part)
{
    add_image(f, "Reconstruction", item->mean, item, style, part);
    if (item->baseline != NULL) {
        add_image(f, item->baseline_name, item->baseline, item, style, part);
    }
}

/* Error and std in a row of their own, with one limit, of the whole images. */
static void add_deviations(figure *f, const lvni_gan_item *item, const lvni_gan_style *style,
                           const float *error, square part)
{
    const double most = fmax(largest(error, pixels(item)), largest(item->std, pixels(item))),
                 limit = most > 0.0 ? style->other_limit * most : 1.0;
    add(f, "Absolute Error", error, item->width, part, style->error, limit)->begins_row = true;
    add(f, "Std. Dev.", item->std, item->width, part, style->std, limit);
}

lvn_status lvni_gan_overview(const char *path, const lvni_gan_item *item,
                             const lvni_gan_style *style)
{
    LVN_TRY(check(path, item, 0));
    float *error = error_of(item);
    if (error == NULL) {
        return LVN_ERR_MEMORY;
    }
    figure f = {.columns = 3, .rotate = style->rotate};
    add_image(&f, "Truth", item->truth, item, style, whole(item));
    add_reconstructions(&f, item, style, whole(item));
    add_deviations(&f, item, style, error, whole(item));
    const lvn_status s = draw(path, &f);
    lvni_core_free(error);
    return s;
}

lvn_status lvni_gan_zoom(const char *path, const lvni_gan_item *item, const lvni_gan_style *style,
                         uint64_t seed)
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
    add_reconstructions(&f, item, style, part);
    for (int i = 0; i < 3 && i < item->n_samples; i++) {
        char title[24];
        snprintf(title, sizeof title, "Sample %d", i + 1);
        add_image(&f, title, item->samples + i * pixels(item), item, style, part)->begins_row =
            i == 0;
    }
    add_deviations(&f, item, style, error, part);
    const lvn_status s = draw(path, &f);
    lvni_core_free(error);
    return s;
}

/* ---- fewer and fewer samples ---- */

lvn_status lvni_gan_ascent(const char *path, const lvni_gan_item *item, const lvni_gan_style *style,
                           uint64_t seed)
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
            lvni_gan_mean_std(item->samples, count, n, means + i * n, NULL);
        }
        add_image(&f, title, mean, item, style, part);
    }
    const lvn_status s = draw(path, &f);
    lvni_core_free(means);
    return s;
}

/* ---- during training ---- */

lvn_status lvni_gan_progress(const char *path, const float *truth, const float *mean, int height,
                             int width)
{
    const lvni_gan_item item = {.height = height, .width = width};
    LVN_TRY(check(path, &item, 0));
    const int64_t n = pixels(&item);
    float *error = lvni_core_alloc(LVNI_TAG_DATA, (size_t)n * sizeof *error);
    if (error == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        error[i] = fabsf(mean[i] - truth[i]);
    }
    char title[40] = "Reconstruction";
    double low, high;
    range_of(truth, n, &low, &high);
    const double psnr = lvni_gan_psnr(mean, truth, n);
    if (isfinite(psnr)) {
        lvni_core_format(title, sizeof title, "Reconstruction, PSNR %.2f dB", psnr);
    }
    figure f = {.columns = 2};
    add(&f, "Truth", truth, width, whole(&item), LVNI_COLOUR_GREY, high)->low = low;
    add(&f, title, mean, width, whole(&item), LVNI_COLOUR_GREY, high)->low = low;
    add(&f, "Error", error, width, whole(&item), LVNI_COLOUR_JET, 0.2 * (high - low))->begins_row =
        true;
    const lvn_status s = draw(path, &f);
    lvni_core_free(error);
    return s;
}

/* ---- PSNR over samples ---- */

lvn_status lvni_gan_plot_psnr(const char *path, int n_samples, const double *psnr,
                              const double *std)
{
    LVN_ARG(n_samples > 0, "%s: a plot cannot be drawn for n_samples = %d", path, n_samples);
    double *x = lvni_core_alloc(LVNI_TAG_DATA, 2 * (size_t)n_samples * sizeof *x);
    if (x == NULL) {
        return LVN_ERR_MEMORY;
    }
    double *theory = x + n_samples;
    for (int i = 0; i < n_samples; i++) {
        x[i] = i + 1.0;
        theory[i] = psnr[0] + lvni_gan_gain(i + 1);
    }
    const lvni_report_plot plot = {
        .title = "PSNR of the mean of samples",
        .x_label = "samples averaged",
        .y_label = "PSNR (dB)",
        .series =
            {{.name = "measured", .x = x, .y = psnr, .spread = std, .n = n_samples, .dots = true},
             {.name = "exact samples", .x = x, .y = theory, .n = n_samples, .dashed = true}},
        .n_series = 2};
    const lvn_status s = lvni_report_plot_write(path, &plot);
    lvni_core_free(x);
    return s;
}
