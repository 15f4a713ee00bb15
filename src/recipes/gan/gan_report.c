/* Arrays, figures and the page of an evaluation (gan_report.h). */
#include "recipes/gan/gan_report.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "data/array.h"
#include "report/canvas.h"
#include "report/page.h"
#include "report/plot.h"
#include "run/inference.h"
#include "run/run_dir.h"

#include <stdio.h>

lvn_status lvni_gan_report_check(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_inference_check(c));
    return lvni_core_config_str(c, "output") == NULL ? LVN_OK : lvni_report_canvas_check("output=");
}

/* ---- items ---- */

/* "<folder>/<kind>_<i><ending>" into path, which keeps its memory from call to call. */
static lvn_status name_file(lvni_core_str *path, const char *folder, const char *kind,
                            int64_t index, const char *ending)
{
    lvni_core_str_clear(path);
    lvni_core_str_printf(path, "%s/%s_%lld%s", folder, kind, (long long)index, ending);
    return lvni_core_str_status(path);
}

static lvn_status write_arrays(lvni_core_str *path, const char *folder, const lvni_gan_item *item)
{
    const struct array {
        const char *kind;
        const float *data;
        bool of_samples;
    } arrays[] = {{"np_gt", item->truth, false},
                  {"np_zfr", item->baseline, false},
                  {"np_avgs", item->mean, false},
                  {"np_stds", item->std, false},
                  {"np_samps", item->samples, true}};
    const int64_t shape[] = {item->n_samples, item->height, item->width};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        const struct array *a = &arrays[i];
        if (a->data != NULL) {
            LVN_TRY(name_file(path, folder, a->kind, item->index, ".npy"));
            LVN_TRY(lvni_data_npy_write_f32(lvni_core_str_text(path), a->of_samples ? 3 : 2,
                                            a->of_samples ? shape : shape + 1, a->data));
        }
    }
    return LVN_OK;
}

static lvn_status write_figures(lvni_core_str *path, const char *folder, const lvni_gan_item *item,
                                const lvni_gan_style *style, uint64_t seed)
{
    LVN_TRY(name_file(path, folder, "overview", item->index, ".png"));
    LVN_TRY(lvni_gan_overview(lvni_core_str_text(path), item, style));
    LVN_TRY(name_file(path, folder, "zoom", item->index, ".png"));
    LVN_TRY(lvni_gan_zoom(lvni_core_str_text(path), item, style, seed));
    LVN_TRY(name_file(path, folder, "ascent", item->index, ".png"));
    return lvni_gan_ascent(lvni_core_str_text(path), item, style, seed);
}

lvn_status lvni_gan_report_item(const char *folder, const lvni_gan_item *item,
                                const lvni_gan_style *style, uint64_t seed)
{
    lvni_core_str path = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, write_arrays(&path, folder, item));
    s = write_figures(&path, folder, item, style, seed);
done:
    lvni_core_str_free(&path);
    return s;
}

/* ---- how the run went ---- */

static const struct curves {
    const char *file;
    lvni_report_plot labels;
    const char *names[2];
} curves[LVNI_GAN_CURVES] = {
    {"loss.png",
     {.title = "Losses of discriminator and generator", .x_label = "step", .y_label = "loss"},
     {"train/d_loss", "train/g_loss"}},
    {"std_mult.png",
     {.title = "Spread of the samples in validation",
      .x_label = "step",
      .y_label = "factor of the spread; gain of PSNR (dB)"},
     {"val/std_mult", "val/psnr_diff"}},
};

lvn_status lvni_gan_report_curves(const char *folder, const char *run, const char **images,
                                  int *n_images)
{
    char *metrics = lvni_run_path_join(run, "metrics.jsonl");
    lvn_status s = metrics == NULL ? LVN_ERR_MEMORY : LVN_OK;
    for (int i = 0; i < LVNI_GAN_CURVES && s == LVN_OK && lvni_core_path_exists(metrics); i++) {
        bool drawn = false;
        char *path = lvni_run_path_join(folder, curves[i].file);
        s = path == NULL ? LVN_ERR_MEMORY
                         : lvni_report_plot_metrics(path, metrics, &curves[i].labels,
                                                    curves[i].names, 2, &drawn);
        lvni_core_free(path);
        if (drawn) {
            images[(*n_images)++] = curves[i].file;
        }
    }
    lvni_core_free(metrics);
    return s;
}

/* ---- the page ---- */

static void html_rows(lvni_core_str *out, const lvni_gan_page *page)
{
    lvni_core_str_append(out, "<div class=wide><table>\n<tr><th>metric</th><th>mean</th>"
                              "<th>standard error</th><th>std</th><th>n</th></tr>\n");
    for (int i = 0; i < page->n_rows; i++) {
        const lvni_gan_row *r = &page->rows[i];
        lvni_core_str_append(out, "<tr><th>");
        lvni_report_escape(out, r->name);
        lvni_core_str_append(out, "</th>");
        if (r->average->n == 0) {
            lvni_core_str_append(out, "<td class=n>-</td><td class=n>-</td><td class=n>-</td>");
        } else {
            lvni_core_str_printf(
                out, "<td class=n>%.*f</td><td class=n>%.*f</td><td class=n>%.*f</td>", r->decimals,
                r->average->mean, r->decimals, lvni_gan_average_stderr(r->average), r->decimals,
                lvni_gan_average_std(r->average));
        }
        lvni_core_str_printf(out, "<td class=n>%lld</td></tr>\n", (long long)r->average->n);
    }
    lvni_core_str_append(out, "</table></div>\n");
}

static void html_image(lvni_core_str *out, const char *file)
{
    lvni_core_str_append(out, "<p><a href=\"");
    lvni_report_escape(out, file);
    lvni_core_str_append(out, "\"><img src=\"");
    lvni_report_escape(out, file);
    lvni_core_str_append(out, "\" alt=\"");
    lvni_report_escape(out, file);
    lvni_core_str_append(out, "\"></a></p>\n");
}

static void html_item(lvni_core_str *out, int64_t index)
{
    static const char *const kinds[] = {"overview", "zoom", "ascent"};
    char text[64];
    snprintf(text, sizeof text, "Item %lld", (long long)index);
    lvni_report_heading(out, text);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(text, sizeof text, "%s_%lld.png", kinds[i], (long long)index);
        html_image(out, text);
    }
}

static void html_page(lvni_core_str *out, const lvni_gan_page *page)
{
    lvni_report_page_begin(out, page->title);
    if (page->n_rows > 0) {
        html_rows(out, page);
    }
    if (page->text != NULL) {
        lvni_core_str_append(out, "<pre>");
        lvni_report_escape(out, page->text);
        lvni_core_str_append(out, "</pre>\n");
    }
    for (int i = 0; i < page->n_images; i++) {
        html_image(out, page->images[i]);
    }
    for (int i = 0; i < page->n_items; i++) {
        html_item(out, page->items[i]);
    }
    lvni_report_page_end(out);
}

lvn_status lvni_gan_report_page(const char *folder, const lvni_gan_page *page)
{
    lvni_core_str path = {0}, text = {0};
    lvn_status s;
    lvni_core_str_printf(&path, "%s/index.html", folder);
    html_page(&text, page);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    s = lvni_core_file_write(lvni_core_str_text(&path), lvni_core_str_text(&text), text.len);
done:
    lvni_core_str_free(&path);
    lvni_core_str_free(&text);
    return s;
}
