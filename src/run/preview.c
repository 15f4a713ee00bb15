/* Images of samples during a training (preview.h). */
#include "run/preview.h"

#include "core/alloc.h"
#include "core/str.h"
#include "core/vfs.h"
#include "data/image.h"
#include "log/run_log.h"
#include "report/canvas.h"
#include "run/recipe.h"
#include "run/run_dir.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const lvni_core_option rows[] = {
    {.name = "image_every_n_epochs",
     .type = LVNI_OPT_INT,
     .unit = "epochs",
     .fallback = "1",
     .range = LVNI_BETWEEN(0, 2147483647),
     .help = "Of every so many epochs the first validation draws samples into images/; 0: none "
             "does."},
};
const lvni_core_option_table lvni_run_preview_options = LVNI_OPTION_TABLE("images", rows);

/* ---- rows of images ---- */

enum { MOST_COLUMNS = 8, GAP = 2, LEAST_SIDE = 64, MOST_PIXELS = 16384 /* of a side */ };

/* Pixels and units of the canvas: a caption's line, the names of rows, and the least side of a
 * tile. */
enum { CAPTION = 14, NAMES = 90, LEAST_TILE = 96 };

static void draw_page(lvni_report_canvas *c, const lvni_trainer_page *p, double scale)
{
    const lvni_report_label label = {.size = 7.0, .room = NAMES - 8.0};
    lvni_report_canvas_image(c, p->rgb, p->width, p->height, NAMES, CAPTION, p->width * scale,
                             p->height * scale);
    for (int i = 0; i < p->columns; i++) {
        lvni_report_label at = label;
        at.x = NAMES + (i * (p->tile_width + p->gap) + p->tile_width / 2.0) * scale;
        at.y = CAPTION - 4.0;
        at.room = p->tile_width * scale;
        at.align = LVNI_ALIGN_MIDDLE;
        lvni_report_canvas_text(c, &at, p->column[i]);
    }
    for (int i = 0; i < p->rows; i++) {
        lvni_report_label at = label;
        at.x = NAMES - 4.0;
        at.y = CAPTION + (i * (p->tile_height + p->gap) + p->tile_height / 2.0) * scale;
        at.align = LVNI_ALIGN_RIGHT;
        lvni_report_canvas_text(c, &at, p->row[i]);
    }
}

lvn_status lvni_run_preview_write_page(const char *path, const lvni_trainer_page *p, int size[2])
{
    const int enlarged =
        p->tile_width >= LEAST_TILE ? 1 : (LEAST_TILE + p->tile_width - 1) / p->tile_width;
    const double scale = (double)enlarged / LVNI_CANVAS_PIXELS;
    if (lvni_report_canvas_check("augmentations.png") != LVN_OK) {
        lvn_clear_error();
        size[0] = p->width;
        size[1] = p->height;
        return lvni_data_png_write(path, p->rgb, p->width, p->height);
    }
    const double width = ceil(NAMES + p->width * scale), height = ceil(CAPTION + p->height * scale);
    lvni_report_canvas *c;
    LVN_TRY(lvni_report_canvas_create(path, width, height, &c));
    draw_page(c, p, scale);
    const lvn_status s = lvni_report_canvas_write(c);
    lvni_report_canvas_destroy(c);
    size[0] = (int)width * LVNI_CANVAS_PIXELS;
    size[1] = (int)height * LVNI_CANVAS_PIXELS;
    return s;
}

lvn_status lvni_run_preview_check(const char *of, const lvn_tensor *y)
{
    const bool five = y->ndim == LVNI_PREVIEW_DIMS && y->dtype == LVN_F32;
    const int64_t *n = y->shape;
    if (!five || (n[4] != 1 && n[4] != 3) || n[0] < 1 || n[1] < 1 || n[2] < 1 || n[3] < 1) {
        lvni_core_str shape = {0};
        for (int i = 0; i < y->ndim; i++) {
            lvni_core_str_printf(&shape, "%s%lld", i > 0 ? ", " : "", (long long)n[i]);
        }
        const lvn_status s = lvn_error_set(
            LVN_ERR_SHAPE, __FILE__, __LINE__,
            "%s gives %s (%s); needed is f32 (R, N, H, W, C): R rows of N images of H "
            "x W pixels, with C = 1 (grey) or 3 (RGB) channels",
            of, lvn_dtype_name(y->dtype), lvni_core_str_text(&shape));
        lvni_core_str_free(&shape);
        return s;
    }
    if (n[0] * (n[2] + GAP) > MOST_PIXELS || n[3] > MOST_PIXELS / MOST_COLUMNS - GAP) {
        LVN_FAIL(LVN_ERR_SHAPE,
                 "%s gives R = %lld, H = %lld and W = %lld: all rows together can be %d pixels "
                 "high, and an image %d wide; give smaller or fewer ones",
                 of, (long long)n[0], (long long)n[2], (long long)n[3], MOST_PIXELS,
                 MOST_PIXELS / MOST_COLUMNS - GAP);
    }
    return LVN_OK;
}

static uint8_t byte_of(float value)
{
    return !(value > 0.0f) ? 0 : value >= 1.0f ? 255 : (uint8_t)lroundf(value * 255.0f);
}

typedef struct sheet {
    uint8_t *rgb;
    int width, height, zoom;
} sheet;

/* (H, W, C) with its upper left corner there. */
static void draw_image(const sheet *s, const float *image, const int64_t *size, int left, int top)
{
    const int high = (int)size[0] * s->zoom, wide = (int)size[1] * s->zoom, channels = (int)size[2];
    for (int y = 0; y < high; y++) {
        uint8_t *out = s->rgb + 3 * ((size_t)(top + y) * (size_t)s->width + (size_t)left);
        for (int x = 0; x < wide; x++) {
            const float *p = image + (y / s->zoom * size[1] + x / s->zoom) * channels;
            for (int c = 0; c < 3; c++) {
                *out++ = byte_of(p[channels == 3 ? c : 0]);
            }
        }
    }
}

lvn_status lvni_run_preview_draw_rows(const char *path, const float *images, const int64_t *n)
{
    const int64_t columns = n[1] < MOST_COLUMNS ? n[1] : MOST_COLUMNS,
                  larger = n[2] > n[3] ? n[2] : n[3];
    sheet s = {.zoom = larger < LEAST_SIDE ? (int)((LEAST_SIDE + larger - 1) / larger) : 1};
    if (n[0] * (n[2] * s.zoom + GAP) > MOST_PIXELS) {
        s.zoom = 1;
    }
    const int wide = (int)n[3] * s.zoom + GAP, high = (int)n[2] * s.zoom + GAP;
    s.width = (int)columns * wide + GAP;
    s.height = (int)n[0] * high + GAP;
    const size_t bytes = 3 * (size_t)s.width * (size_t)s.height;
    s.rgb = lvni_core_alloc(LVNI_TAG_DATA, bytes);
    if (s.rgb == NULL) {
        return LVN_ERR_MEMORY;
    }
    memset(s.rgb, 255, bytes);
    for (int r = 0; r < (int)n[0]; r++) {
        for (int i = 0; i < (int)columns; i++) {
            draw_image(&s, images + (r * n[1] + i) * n[2] * n[3] * n[4], n + 2, GAP + i * wide,
                       GAP + r * high);
        }
    }
    const lvn_status status = lvni_data_png_write(path, s.rgb, s.width, s.height);
    lvni_core_free(s.rgb);
    return status;
}

/* ---- when ---- */

static const lvni_run_preview *hook_of(const lvni_run_previews *p)
{
    return p->job->recipe->preview;
}

/* Of a step between these two? */
static bool has_image(const char *dir, int64_t begin, int64_t end)
{
    DIR *d = opendir(dir);
    bool found = false;
    for (const struct dirent *e; d != NULL && !found && (e = readdir(d)) != NULL;) {
        int64_t step;
        found = sscanf(e->d_name, "step=%" SCNd64 ".png", &step) == 1 && step > begin && step < end;
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return found;
}

/* The first validation of every so many epochs. The directory has those before it, so that a run
 * that is resumed within an epoch goes on as one that was not. */
static bool is_due(void *user, const lvn_module *root, const lvni_plan *plan,
                   const lvni_ckpt_position *at)
{
    const lvni_run_previews *p = user;
    if (p->dir == NULL) {
        return false;
    }
    const int64_t every = p->job->preview_every;
    return hook_of(p)->before != NULL
               ? hook_of(p)->before(root) % every == 0
               : !has_image(p->dir, lvni_plan_steps_before(plan, at->epoch / every * every),
                            at->step);
}

static lvn_tensor *images(const lvn_module *root, const lvn_batch *batch, void *user)
{
    const lvni_run_previews *p = user;
    return hook_of(p)->images(root, batch, p->job);
}

static void take(void *user, const float *values, const int64_t *shape, int64_t step)
{
    const lvni_run_previews *p = user;
    lvn_status (*draw)(const char *, const float *, const int64_t *) =
        hook_of(p)->draw != NULL ? hook_of(p)->draw : lvni_run_preview_draw_rows;
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/step=%07" PRId64 ".png", p->dir, step);
    if (lvni_core_str_status(&path) != LVN_OK ||
        draw(lvni_core_str_text(&path), values, shape) != LVN_OK) {
        lvni_log_line(LVNI_LOG_WARNING, "the image of this validation is not written: %s",
                      lvn_last_error()->message);
        lvn_clear_error();
    }
    lvni_core_str_free(&path);
}

void lvni_run_previews_attach(lvni_run_previews *p, lvni_trainer_options *o)
{
    if (p->job->recipe->preview != NULL && p->job->preview_every > 0) {
        o->preview =
            (lvni_trainer_preview){.is_due = is_due, .images = images, .take = take, .user = p};
    }
}

lvn_status lvni_run_previews_open(lvni_run_previews *p, const char *run)
{
    if (p->job->recipe->preview == NULL || p->job->preview_every == 0 || p->job->val == NULL) {
        return LVN_OK;
    }
    if (hook_of(p)->needs_cairo &&
        lvni_report_canvas_check("images of the validations are not drawn") != LVN_OK) {
        lvni_log_line(LVNI_LOG_WARNING, "%s", lvn_last_error()->message);
        lvn_clear_error();
        return LVN_OK;
    }
    p->dir = lvni_run_path_join(run, "images");
    return p->dir == NULL ? LVN_ERR_MEMORY : lvni_core_mkdirs(p->dir);
}

void lvni_run_previews_close(lvni_run_previews *p)
{
    lvni_core_free(p->dir);
    p->dir = NULL;
}
