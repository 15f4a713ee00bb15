/* The frames with the largest errors on the page of a run (pose_page.h): their images, with labels
 * and predictions drawn over them in the colours of the page. */
#include "recipes/pose/pose_page.h"

#include "core/alloc.h"
#include "core/error.h"
#include "data/image.h"
#include "recipes/pose/pose.h"
#include "recipes/pose/pose_split.h"
#include "report/page.h"
#include "report/run_page.h"

#include <math.h>
#include <string.h>

enum { WORST = 8, SIDE = 448 /* pixels of an image at most */ };

typedef struct worst {
    int n;
    int64_t at[WORST];
    double error[WORST]; /* means over the keypoints */
} worst;

static double error_of(const lvni_pose_page_frames *f, int64_t frame)
{
    double sum = 0.0;
    int n = 0;
    for (int k = 0; k < f->k; k++) {
        const double error = f->error[frame * f->k + k];
        sum += isnan(error) ? 0.0 : error;
        n += !isnan(error);
    }
    return n > 0 ? sum / n : (double)NAN;
}

/* The largest first; of equal ones the first. */
static worst find_worst(const lvni_pose_page_frames *f)
{
    worst w = {.n = 0};
    for (int64_t i = 0; i < f->n; i++) {
        const double error = error_of(f, i);
        int place = w.n;
        while (place > 0 && w.error[place - 1] < error) {
            place--;
        }
        if (isnan(error) || place == WORST) {
            continue;
        }
        w.n += w.n < WORST;
        for (int k = w.n - 1; k > place; k--) {
            w.at[k] = w.at[k - 1];
            w.error[k] = w.error[k - 1];
        }
        w.at[place] = i;
        w.error[place] = error;
    }
    return w;
}

/* ---- an image ---- */

/* In place, every pixel the mean of k by k; what does not fill one at the right and below is left
 * out. */
static void shrink(uint8_t *rgb, int *width, int *height, int k)
{
    const int across = *width / k, down = *height / k, from = *width;
    for (int i = 0; i < across * down * 3; i++) {
        const int c = i % 3, x = i / 3 % across * k, y = i / 3 / across * k;
        int sum = 0;
        for (int j = 0; j < k * k; j++) {
            sum += rgb[((y + j / k) * from + x + j % k) * 3 + c];
        }
        rgb[i] = (uint8_t)((sum + k * k / 2) / (k * k));
    }
    *width = across;
    *height = down;
}

/* size: of the frame, whose pixels labels are in. *png: lvni_core_free. */
static lvn_status read_image(const char *path, double size[2], void **png, size_t *n)
{
    lvni_data_scratch *scratch = lvni_data_scratch_get();
    lvni_data_image_info info;
    lvni_data_image image;
    size_t bytes;
    LVN_TRY(scratch == NULL ? LVN_ERR_MEMORY : LVN_OK);
    LVN_TRY(lvni_data_read_file(scratch, path, &bytes));
    const uint8_t *file = scratch->file.data;
    LVN_TRY(lvni_data_image_probe(scratch, file, bytes, path, &info));
    const int side = info.width > info.height ? info.width : info.height;
    const double need = side > SIDE ? (double)SIDE / side : 1.0;
    LVN_TRY(lvni_data_image_decode(scratch, file, bytes, path, &info, need, NULL, &image));
    int width = image.width, height = image.height;
    const int larger = width > height ? width : height, k = (larger + SIDE - 1) / SIDE;
    size[0] = info.width;
    size[1] = info.height;
    if (k > 1 && width >= k && height >= k) {
        shrink(scratch->pixels.data, &width, &height, k);
    }
    return lvni_data_png_encode(scratch->pixels.data, width, height, png, n);
}

/* ---- what is drawn over it ---- */

/* A ring at the label, a cross at the prediction, and a line between them. */
static void write_mark(const lvni_pose_page_frames *f, int64_t frame, int k, double unit,
                       lvni_core_str *out)
{
    const int64_t i = frame * f->k + k;
    const double x = (double)f->value[3 * i], y = (double)f->value[3 * i + 1], lx = f->xy[2 * i],
                 ly = f->xy[2 * i + 1];
    const bool found = !isnan(x) && !isnan(y), labelled = !isnan(lx) && !isnan(ly);
    if (!found && !labelled) {
        return;
    }
    lvni_core_str_append(out, "<g");
    lvni_report_class(out, "l", k, f->k);
    lvni_core_str_append(out, "><title>");
    lvni_report_escape(out, f->keypoint[k]);
    if (found && labelled) {
        lvni_core_str_printf(out, ": %.1f pixels", f->error[i]);
    }
    lvni_core_str_append(out, labelled ? "" : ": no label");
    lvni_core_str_append(out, found ? "</title>" : ": no prediction</title>");
    if (labelled) {
        lvni_core_str_printf(out, "<circle class=f cx=%.1f cy=%.1f r=%.1f />", lx, ly, 3.0 * unit);
    }
    if (found) {
        const double r = 2.0 * unit;
        lvni_core_str_printf(out, "<path class=f d=\"M%.1f,%.1fl%.1f,%.1fm0,%.1fl%.1f,%.1f", x - r,
                             y - r, 2.0 * r, 2.0 * r, -2.0 * r, -2.0 * r, 2.0 * r);
    }
    if (found && labelled) {
        lvni_core_str_printf(out, "M%.1f,%.1fL%.1f,%.1f", lx, ly, x, y);
    }
    lvni_core_str_append(out, found ? "\" /></g>" : "</g>");
}

static void write_drawing(const lvni_pose_page_frames *f, int64_t frame, const double size[2],
                          const void *png, size_t n, lvni_core_str *out)
{
    lvni_core_str_printf(out, "<svg viewBox=\"0 0 %.0f %.0f\" role=img aria-label=\"", size[0],
                         size[1]);
    lvni_report_escape(out, f->name[frame]);
    lvni_core_str_printf(out, "\"><image width=%.0f height=%.0f href=\"", size[0], size[1]);
    lvni_report_png_address(out, png, n);
    lvni_core_str_append(out, "\" />");
    for (int k = 0; k < f->k; k++) {
        write_mark(f, frame, k, fmax(size[0], size[1]) / 200.0, out);
    }
    lvni_core_str_append(out, "</svg>");
}

static void write_caption(const lvni_pose_page_frames *f, int64_t frame, double error,
                          lvni_core_str *out)
{
    int most = -1;
    for (int k = 0; k < f->k; k++) {
        const double one = f->error[frame * f->k + k];
        if (!isnan(one) && (most < 0 || one > f->error[frame * f->k + most])) {
            most = k;
        }
    }
    lvni_core_str_printf(
        out, "<figcaption>%.1f pixels%s%s <span class=soft>", error, f->set[frame] >= 0 ? ", " : "",
        f->set[frame] >= 0 ? lvni_pose_set_name((lvni_pose_set)f->set[frame]) : "");
    lvni_core_str_printf(out, "%.1f at ", f->error[frame * f->k + most]);
    lvni_report_escape(out, f->keypoint[most]);
    lvni_core_str_append(out, "<br>");
    lvni_report_escape(out, f->name[frame]);
    lvni_core_str_append(out, "</span></figcaption>");
}

/* An image that cannot be read is a sentence in its place. */
static lvn_status write_frame(const lvni_pose_page_frames *f, int64_t frame, double error,
                              const char *path, lvni_core_str *out)
{
    double size[2];
    void *png = NULL;
    size_t n;
    lvni_core_str_append(out, "<figure>");
    const lvn_status s = read_image(path, size, &png, &n);
    if (s == LVN_OK) {
        write_drawing(f, frame, size, png, n, out);
    }
    lvni_core_free(png);
    LVN_TRY(lvni_pose_page_report(s, "Without its image", out));
    write_caption(f, frame, error, out);
    lvni_core_str_append(out, "</figure>\n");
    return LVN_OK;
}

/* Of the keypoints, in the colours in which all frames have them. */
static void write_legend(const lvni_pose_page_frames *f, lvni_core_str *out)
{
    lvni_core_str_append(out, "<p class=soft>Rings are labels, crosses predictions, each frame "
                              "with the mean of its distances.</p>\n<p>");
    lvni_report_legend(out, (const char *const *)f->keypoint, f->k);
    lvni_core_str_append(out, "</p>\n");
}

lvn_status lvni_pose_page_worst(const lvni_pose_page_frames *f, const char *config,
                                lvni_core_str *out)
{
    const worst w = find_worst(f);
    const lvni_pose_labels images = {.n = f->n, .image = f->name};
    lvni_core_str folder = {0}, path = {0};
    lvn_status s = LVN_OK;
    if (w.n == 0) {
        return LVN_OK;
    }
    lvni_report_heading(out, "Worst frames");
    write_legend(f, out);
    (void)lvni_report_config_value(config, "data.data_dir", &folder);
    lvni_core_str_append(out, "<div class=charts>\n");
    for (int i = 0; i < w.n && s == LVN_OK; i++) {
        lvni_pose_labels_image_path(&images, lvni_core_str_text(&folder), w.at[i], &path);
        s = lvni_core_str_status(&path);
        s = s == LVN_OK ? write_frame(f, w.at[i], w.error[i], lvni_core_str_text(&path), out) : s;
    }
    lvni_core_str_append(out, "</div>\n");
    lvni_core_str_free(&folder);
    lvni_core_str_free(&path);
    return s;
}
