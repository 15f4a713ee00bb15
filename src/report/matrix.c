/* Confusion matrices (matrix.h). */
#include "report/matrix.h"

#include "core/alloc.h"
#include "core/error.h"
#include "report/axis.h"
#include "report/canvas.h"
#include "report/colour_map.h"

#include <math.h>
#include <string.h>

enum {
    EDGE = 16,
    TEXT = 13,
    TITLE = 18,
    LARGEST_NAME = 180,
    BAR = 16,
    BAR_STEPS = 5,
    SIDE = 720,
    LEAST_SIDE = 180
};

typedef struct matrix {
    lvni_report_canvas *canvas;
    const char *const *names;
    const int64_t *counts;
    int n, every; /* which classes have their names on the axes */
    double cell, left, top, side, names_height;
} matrix;

static const uint8_t ink[3] = {32, 32, 32}, pale[3] = {228, 228, 228};

static int64_t row_sum(const matrix *m, int row)
{
    int64_t sum = 0;
    for (int j = 0; j < m->n; j++) {
        sum += m->counts[(int64_t)row * m->n + j];
    }
    return sum;
}

static lvn_status draw_cells(const matrix *m)
{
    uint8_t *rgb = lvni_core_alloc(LVNI_TAG_DATA, 3 * (size_t)m->n * (size_t)m->n);
    if (rgb == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < m->n; i++) {
        const double sum = (double)row_sum(m, i);
        for (int j = 0; j < m->n; j++) {
            const int64_t at = (int64_t)i * m->n + j;
            lvni_report_colour(LVNI_COLOUR_BLUE, (double)m->counts[at] / sum, rgb + 3 * at);
        }
    }
    lvni_report_canvas_image(m->canvas, rgb, m->n, m->n, m->left, m->top, m->side, m->side);
    lvni_core_free(rgb);
    return LVN_OK;
}

static void draw_counts(const matrix *m)
{
    for (int i = 0; i < m->n; i++) {
        const double sum = (double)row_sum(m, i);
        for (int j = 0; j < m->n; j++) {
            const int64_t count = m->counts[i * m->n + j];
            char text[LVNI_NUMBER_TEXT];
            if (count == 0) {
                continue; /* what is there stands out */
            }
            lvni_report_axis_number((double)count, count < 1000000 ? 6 : 3, text);
            const double width = lvni_report_canvas_text_width(m->canvas, text, TEXT),
                         size = TEXT * fmin(1.0, (m->cell - 4.0) / width);
            const lvni_report_label label = {.x = m->left + (j + 0.5) * m->cell,
                                             .y = m->top + (i + 0.5) * m->cell + 0.36 * size,
                                             .size = size,
                                             .align = LVNI_ALIGN_MIDDLE,
                                             .light = (double)count > 0.55 * sum};
            lvni_report_canvas_text(m->canvas, &label, text);
        }
    }
}

/* Names at an angle, whose ends are at their columns: they stay legible and never overlap. */
static void draw_names(const matrix *m)
{
    for (int i = 0; i < m->n; i += m->every) {
        const double middle = (i + 0.5) * m->cell;
        const lvni_report_label row = {.x = m->left - 8.0,
                                       .y = m->top + middle + 0.36 * TEXT,
                                       .size = TEXT,
                                       .room = LARGEST_NAME,
                                       .align = LVNI_ALIGN_RIGHT},
                                column = {.x = m->left + middle + 0.36 * TEXT,
                                          .y = m->top + m->side + 8.0,
                                          .size = TEXT,
                                          .room = LARGEST_NAME,
                                          .align = LVNI_ALIGN_RIGHT,
                                          .turn = 90.0};
        lvni_report_canvas_fill(m->canvas, m->left - 4.0, m->top + middle - 0.5, 4.0, 1.0, ink);
        lvni_report_canvas_fill(m->canvas, m->left + middle - 0.5, m->top + m->side, 1.0, 4.0, ink);
        lvni_report_canvas_text(m->canvas, &row, m->names[i]);
        lvni_report_canvas_text(m->canvas, &column, m->names[i]);
    }
}

static void draw_bar(const matrix *m)
{
    uint8_t rgb[256][3];
    const double x = m->left + m->side + 20.0;
    for (int i = 0; i < 256; i++) {
        lvni_report_colour(LVNI_COLOUR_BLUE, 1.0 - i / 255.0, rgb[i]);
    }
    lvni_report_canvas_image(m->canvas, rgb[0], 1, 256, x, m->top, BAR, m->side);
    lvni_report_canvas_frame(m->canvas, x - 0.5, m->top - 0.5, BAR + 1.0, m->side + 1.0, 1.0, ink);
    for (int i = 0; i <= BAR_STEPS; i++) {
        char text[LVNI_NUMBER_TEXT];
        const double y = m->top + m->side * (1.0 - (double)i / BAR_STEPS);
        const lvni_report_label label = {.x = x + BAR + 8.0, .y = y + 0.36 * TEXT, .size = TEXT};
        lvni_report_canvas_fill(m->canvas, x + BAR, y - 0.5, 4.0, 1.0, ink);
        lvni_report_canvas_text(m->canvas, &label,
                                lvni_report_axis_number(100.0 * i / BAR_STEPS, 3, text));
    }
    const lvni_report_label unit = {.x = x + BAR + 8.0 + 3.0 * TEXT + 4.0,
                                    .y = m->top + m->side / 2,
                                    .size = TEXT,
                                    .align = LVNI_ALIGN_MIDDLE,
                                    .turn = 90.0};
    lvni_report_canvas_text(m->canvas, &unit, "% of the true class");
}

/* Names of so few classes that they do not touch. They are measured on a page of their own: the
 * size of the figure depends on them. */
static lvn_status set_layout(const char *path, matrix *m)
{
    double names = 0.0;
    const double cell = fmin((double)SIDE / m->n, fmax(48.0, (double)LEAST_SIDE / m->n));
    m->cell = fmax(floor(LVNI_CANVAS_PIXELS * cell), 1.0) / LVNI_CANVAS_PIXELS; /* whole pixels */
    m->every = (int)ceil((TEXT + 2.0) / m->cell);
    lvni_report_canvas *c;
    LVN_TRY(lvni_report_canvas_create(path, 1.0, 1.0, &c));
    for (int i = 0; i < m->n; i += m->every) {
        names = fmax(names, lvni_report_canvas_text_width(c, m->names[i], TEXT));
    }
    const lvn_status s = lvni_report_canvas_status(c);
    lvni_report_canvas_destroy(c);
    m->names_height = fmin(names, LARGEST_NAME);
    m->side = m->cell * m->n;
    m->left = EDGE + TEXT + 12.0 + m->names_height + 8.0;
    m->top = EDGE + TITLE + 16.0;
    return s;
}

static lvn_status draw(const matrix *m)
{
    LVN_TRY(draw_cells(m));
    for (int i = 1; i < m->n && m->cell >= 4.0; i++) {
        lvni_report_canvas_fill(m->canvas, m->left + i * m->cell - 0.25, m->top, 0.5, m->side,
                                pale);
        lvni_report_canvas_fill(m->canvas, m->left, m->top + i * m->cell - 0.25, m->side, 0.5,
                                pale);
    }
    if (m->n <= LVNI_MATRIX_NUMBERS) {
        draw_counts(m);
    }
    draw_names(m);
    lvni_report_canvas_frame(m->canvas, m->left - 0.5, m->top - 0.5, m->side + 1.0, m->side + 1.0,
                             1.0, ink);
    draw_bar(m);
    const lvni_report_label title = {.x = m->left, .y = EDGE + TITLE, .size = TITLE},
                            columns = {.x = m->left + m->side / 2,
                                       .y = m->top + m->side + 8.0 + m->names_height + 8.0 + TEXT,
                                       .size = TEXT,
                                       .align = LVNI_ALIGN_MIDDLE},
                            rows = {.x = EDGE + TEXT,
                                    .y = m->top + m->side / 2,
                                    .size = TEXT,
                                    .align = LVNI_ALIGN_MIDDLE,
                                    .turn = 90.0};
    lvni_report_canvas_text(m->canvas, &title, "Confusion matrix");
    lvni_report_canvas_text(m->canvas, &columns, "predicted class");
    lvni_report_canvas_text(m->canvas, &rows, "true class");
    return LVN_OK;
}

static void describe(const matrix *m)
{
    lvni_core_str text = {0};
    for (int64_t i = 0; i < (int64_t)m->n * m->n; i++) {
        if (m->counts[i] > 0) {
            lvni_core_str_append(&text, text.len > 0 ? "; " : "");
            lvni_core_str_append(&text, m->names[i / m->n]);
            lvni_core_str_append(&text, " as ");
            lvni_core_str_append(&text, m->names[i % m->n]);
            lvni_core_str_printf(&text, ": %lld", (long long)m->counts[i]);
        }
    }
    lvni_report_canvas_describe(m->canvas, "Confusion matrix", lvni_core_str_text(&text));
    lvni_core_str_free(&text);
}

/* A figure that is drawn, the caller's to write. */
static lvn_status make(const char *path, const char *const *names, int n, const int64_t *counts,
                       lvni_report_canvas **out)
{
    *out = NULL;
    LVN_ARG(n > 0, "%s: a matrix needs at least one class, not %d", path, n);
    matrix m = {.names = names, .n = n, .counts = counts};
    LVN_TRY(set_layout(path, &m));
    const double width = m.left + m.side + 20.0 + BAR + 12.0 + 4.0 * TEXT + EDGE,
                 height = m.top + m.side + 8.0 + m.names_height + 8.0 + TEXT + EDGE;
    LVN_TRY(lvni_report_canvas_create(path, width, height, &m.canvas));
    *out = m.canvas;
    describe(&m);
    return draw(&m);
}

lvn_status lvni_report_matrix_write(const char *path, const char *const *names, int n,
                                    const int64_t *counts)
{
    lvni_report_canvas *canvas;
    lvn_status s;
    LVNI_TRY_DONE(s, make(path, names, n, counts, &canvas));
    s = lvni_report_canvas_write(canvas);
done:
    lvni_report_canvas_destroy(canvas);
    return s;
}

lvn_status lvni_report_matrix_embed(const char *const *names, int n, const int64_t *counts,
                                    lvni_core_str *out)
{
    lvni_report_canvas *canvas;
    lvn_status s;
    LVNI_TRY_DONE(s, make("confusion matrix as .svg", names, n, counts, &canvas));
    s = lvni_report_canvas_embed(canvas, out);
done:
    lvni_report_canvas_destroy(canvas);
    return s;
}
