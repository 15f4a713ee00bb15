/* `levin eval gan`: samples of measurements whose truth is known, measured against it: how near the
 * mean of n samples comes, whether their spread is that of the errors, and whether they look like
 * truths (gan_metrics.h, gan_coverage.h, gan_cfid.h). With output=DIR a page with figures, too. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "data/inverse_truth.h"
#include "recipes/gan/gan_control.h"
#include "recipes/gan/gan_coverage.h"
#include "recipes/gan/gan_embeddings.h"
#include "recipes/gan/gan_metrics.h"
#include "recipes/gan/gan_report.h"
#include "run/run_dir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const baseline[] = {[LVNI_INVERSE_MASS] = "Kaiser-Squires",
                                       [LVNI_INVERSE_MRI] = "zero-filled",
                                       [LVNI_INVERSE_RADIO] = "dirty"};

enum { COUNTS = 8, MOST_FIGURES = 1000 }; /* 1, 2, 4 ... 128 samples */

typedef struct results {
    lvni_gan_average psnr[LVNI_GAN_SAMPLES]; /* of the mean of i + 1 samples */
    lvni_gan_average ssim[COUNTS];           /* of the mean of 2^i samples */
    lvni_gan_average apsd, rmse, pearson, snr, psnr_masked, psnr_legacy;
    lvni_gan_average within, r_std_error, r_error_truth, r_std_truth;
    lvni_gan_average baseline, bound; /* PSNR: without a network; the posterior's mean */
    lvni_gan_average coverage[LVNI_GAN_LEVELS];
    lvni_gan_intervals intervals;
    lvni_gan_embeddings embeddings;
    int64_t figure[MOST_FIGURES];
    int n_figures;
} results;

static results *results_of(lvni_gan_work *w)
{
    return w->own;
}

/* i for 2^i, else -1. */
static int count_index(int n)
{
    for (int i = 0; i < COUNTS; i++) {
        if (n == 1 << i) {
            return i;
        }
    }
    return -1;
}

static void measure_mean(lvni_gan_work *w, int n)
{
    results *r = results_of(w);
    const int i = count_index(n), side = w->settings->sizes.im_size;
    lvni_gan_average_add(&r->psnr[n - 1], lvni_gan_psnr(w->image, lvni_gan_truth(w), w->pixels));
    if (i >= 0) {
        lvni_gan_average_add(&r->ssim[i], lvni_gan_ssim(w->image, lvni_gan_truth(w), side, side));
    }
}

/* ---- what is known without a network ---- */

/* Kaiser-Squires, smoothed, into the free image; and how near the posterior's mean comes. */
static lvn_status invert_mass(lvni_gan_work *w, int64_t sample)
{
    results *r = results_of(w);
    const lvn_sample_key key = {.sample = sample};
    double *map = lvni_core_calloc(LVNI_TAG_DATA, (size_t)w->pixels, sizeof *map);
    if (map == NULL) {
        return LVN_ERR_MEMORY;
    }
    float *image = w->image + w->pixels;
    lvn_status s = lvni_data_inverse_posterior_mean(w->data, &key, map);
    if (s == LVN_OK) {
        for (int64_t i = 0; i < w->pixels; i++) {
            image[i] = (float)map[i];
        }
        lvni_gan_average_add(&r->bound, lvni_gan_psnr(image, lvni_gan_truth(w), w->pixels));
    }
    if (s == LVN_OK || s == LVN_ERR_UNSUPPORTED) { /* maps of a folder have no known posterior */
        lvn_clear_error();
        LVNI_TRY_DONE(s,
                      lvni_data_inverse_kaiser_squires(w->data, &key, LVNI_INVERSE_SMOOTHING, map));
        for (int64_t i = 0; i < w->pixels; i++) {
            image[i] = (float)map[i];
        }
    }
done:
    lvni_core_free(map);
    return s;
}

/* The measurement has the truth's normalisation, in its first channels. */
static lvn_status show_measurement(lvni_gan_work *w)
{
    const lvni_nn_rcgan_sizes *s = &w->settings->sizes;
    const size_t in = (size_t)s->in_chans, out = (size_t)s->out_chans;
    float *y = lvni_core_alloc(LVNI_TAG_DATA, (size_t)w->pixels * out * sizeof *y);
    if (y == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < w->pixels; i++) {
        memcpy(y + (size_t)i * out, w->field[LVNI_GAN_Y] + (size_t)i * in, out * sizeof *y);
    }
    lvni_gan_image(w, y, w->image + w->pixels);
    lvni_core_free(y);
    return LVN_OK;
}

/* Radio images of one channel that are normalised by the training set: y by numbers of its own,
 * which samples do not have. */
static bool is_apart(const lvni_gan_work *w)
{
    return w->settings->experience == LVNI_INVERSE_RADIO && w->settings->sizes.out_chans == 1 &&
           lvni_core_config_choice(w->use->exported->job.keys, "norm") == LVNI_INVERSE_NORM_MACRO;
}

/* Into the free image; *known: there is one. */
static lvn_status find_baseline(lvni_gan_work *w, int64_t sample, bool *known)
{
    *known = !is_apart(w);
    if (!*known) {
        return LVN_OK;
    }
    LVN_TRY(w->settings->experience == LVNI_INVERSE_MASS ? invert_mass(w, sample)
                                                         : show_measurement(w));
    lvni_gan_average_add(&results_of(w)->baseline,
                         lvni_gan_psnr(w->image + w->pixels, lvni_gan_truth(w), w->pixels));
    return LVN_OK;
}

/* ---- an item ---- */

static lvn_status measure_spread(lvni_gan_work *w)
{
    results *r = results_of(w);
    double level[LVNI_GAN_LEVELS], share[LVNI_GAN_LEVELS];
    for (int i = 0; i < LVNI_GAN_LEVELS; i++) {
        level[i] = lvni_gan_level(i);
    }
    LVN_TRY(lvni_gan_coverage(w->images, w->n_samples, lvni_gan_truth(w), w->mask, w->pixels, level,
                              LVNI_GAN_LEVELS, share));
    for (int i = 0; i < LVNI_GAN_LEVELS; i++) {
        lvni_gan_average_add(&r->coverage[i], share[i]);
    }
    const lvni_gan_uncertainty u =
        lvni_gan_uncertainty_of(w->image, w->std, lvni_gan_truth(w), w->mask, w->pixels);
    lvni_gan_average_add(&r->within, u.within);
    lvni_gan_average_add(&r->r_std_error, u.r_std_error);
    lvni_gan_average_add(&r->r_error_truth, u.r_error_truth);
    lvni_gan_average_add(&r->r_std_truth, u.r_std_truth);
    lvni_gan_intervals_add(&r->intervals, w->image, w->std, lvni_gan_truth(w), w->mask, w->pixels,
                           (double)w->field[LVNI_GAN_STD][0]);
    lvni_gan_average_add(&r->apsd, lvni_gan_apsd(w->images, w->n_samples, w->pixels));
    return LVN_OK;
}

static lvn_status draw(lvni_gan_work *w, int64_t sample, bool has_baseline)
{
    static const lvni_gan_style *const style[] = {[LVNI_INVERSE_MASS] = &lvni_gan_mass_style,
                                                  [LVNI_INVERSE_MRI] = &lvni_gan_mri_style,
                                                  [LVNI_INVERSE_RADIO] = &lvni_gan_radio_style};
    results *r = results_of(w);
    const lvni_core_config *c = w->use->config;
    const int side = w->settings->sizes.im_size;
    if (w->folder == NULL || r->n_figures == MOST_FIGURES ||
        r->n_figures >= lvni_core_config_int(c, "num_figs")) {
        return LVN_OK;
    }
    r->figure[r->n_figures++] = sample;
    const lvni_gan_item item = {.index = sample,
                                .height = side,
                                .width = side,
                                .n_samples = w->n_samples,
                                .truth = lvni_gan_truth(w),
                                .mean = w->image,
                                .std = w->std,
                                .baseline = has_baseline ? w->image + w->pixels : NULL,
                                .baseline_name = baseline[w->settings->experience],
                                .samples = w->images};
    return lvni_gan_report_item(w->folder, &item, style[w->settings->experience],
                                (uint64_t)lvni_core_config_int(c, "seed"));
}

static lvn_status measure_item(lvni_gan_work *w, int64_t sample, const float *value)
{
    (void)value;
    results *r = results_of(w);
    bool has_baseline;
    const lvni_gan_masked m = lvni_gan_masked_of(w->image, lvni_gan_truth(w), w->mask, w->pixels);
    lvni_gan_average_add(&r->rmse, m.rmse);
    lvni_gan_average_add(&r->pearson, m.pearson);
    lvni_gan_average_add(&r->snr, m.snr);
    lvni_gan_average_add(&r->psnr_legacy, m.psnr_legacy);
    if (w->mask != NULL) {
        lvni_gan_average_add(&r->psnr_masked, m.psnr);
    }
    LVN_TRY(measure_spread(w));
    LVN_TRY(lvni_gan_embeddings_add(&results_of(w)->embeddings, w));
    LVN_TRY(find_baseline(w, sample, &has_baseline));
    return draw(w, sample, has_baseline);
}

/* ---- the results ---- */

enum { MOST_ROWS = 2 * COUNTS + 20 };

typedef struct table {
    lvni_gan_row row[MOST_ROWS];
    char name[MOST_ROWS][32];
    int n;
} table;

static void add_row(table *t, const lvni_gan_average *average, int decimals, const char *name,
                    int number)
{
    if (average->n + average->skipped == 0) {
        return;
    }
    snprintf(t->name[t->n], sizeof t->name[0], number > 0 ? "%s of %d" : "%s", name, number);
    t->row[t->n] = (lvni_gan_row){.name = t->name[t->n], .average = average, .decimals = decimals};
    t->n++;
}

static void make_table(const lvni_gan_work *w, table *t)
{
    const results *r = w->own;
    char text[32];
    for (int i = 0; i < COUNTS; i++) {
        add_row(t, &r->psnr[(1 << i) - 1], 2, "PSNR", 1 << i);
    }
    for (int i = 0; i < COUNTS; i++) {
        add_row(t, &r->ssim[i], 4, "SSIM", 1 << i);
    }
    snprintf(text, sizeof text, "PSNR %s", baseline[w->settings->experience]);
    add_row(t, &r->baseline, 2, text, 0);
    add_row(t, &r->bound, 2, "PSNR posterior mean", 0);
    add_row(t, &r->psnr_masked, 2, "PSNR within the mask", 0);
    add_row(t, &r->psnr_legacy, 2, "psnr_legacy", 0);
    add_row(t, &r->apsd, 5, "APSD", 0);
    add_row(t, &r->rmse, 5, "RMSE", 0);
    add_row(t, &r->pearson, 4, "Pearson r", 0);
    add_row(t, &r->snr, 2, "SNR", 0);
    add_row(t, &r->r_std_error, 4, "r of std and error", 0);
    add_row(t, &r->r_error_truth, 4, "r of error and truth", 0);
    add_row(t, &r->r_std_truth, 4, "r of std and truth", 0);
    add_row(t, &r->within, 4, "within one std", 0);
}

static void print_coverage(const results *r, bool json, lvni_core_str *out)
{
    lvni_core_str_append(out, json ? ", \"coverage\": [" : "coverage of the level:");
    for (int i = 0; i < LVNI_GAN_LEVELS; i++) {
        const double level = lvni_gan_level(i), share = r->coverage[i].mean;
        if (json) {
            lvni_core_str_printf(out, "%s[%.2f, %.4f]", i == 0 ? "" : ", ", level, share);
        } else {
            lvni_core_str_printf(out, "%s %.2f %.4f", i == 0 ? "" : ",", level, share);
        }
    }
    lvni_core_str_append(out, json ? "]" : "\n");
}

enum { CALIBRATED = 116 }; /* measurements, of which a level of 0.9 can be calibrated */

static void print_calibration(const results *r, bool json, lvni_core_str *out)
{
    int n = 0;
    if (r->intervals.items < CALIBRATED) {
        return;
    }
    lvni_core_str_append(out, json ? ", \"calibration\": ["
                                   : "level, lambda and share of mean ± (std + lambda):");
    for (int i = 0; i < LVNI_GAN_LEVELS; i++) {
        double share;
        const double level = lvni_gan_level(i),
                     lambda = lvni_gan_calibrate(&r->intervals, level, &share);
        if (isfinite(lambda)) {
            lvni_core_str_printf(out, json ? "%s[%.2f, %.2f, %.4f]" : "%s %.2f %.2f %.4f",
                                 n++ == 0 ? ""
                                 : json   ? ", "
                                          : ",",
                                 level, lambda, share);
        }
    }
    lvni_core_str_append(out, json ? "]" : "\n");
}

static void print_json(const lvni_gan_work *w, const table *t, const lvni_gan_cfid *cfid,
                       lvni_core_str *out)
{
    const lvni_core_config *c = w->use->config;
    lvni_core_str_append(out, "{\"model\": ");
    lvni_core_str_json(out, lvni_core_config_str(c, "model"));
    lvni_core_str_printf(out, ", \"split\": \"%s\", \"measurements\": %lld, \"samples\": %d",
                         lvni_core_config_str(c, "split"), (long long)w->use->n, w->n_samples);
    for (int i = 0; i < t->n; i++) {
        lvni_core_str_append(out, ", ");
        lvni_core_str_json(out, t->row[i].name);
        lvni_core_str_append(out, ": ");
        lvni_gan_average_json(t->row[i].average, out);
    }
    lvni_core_str_printf(out, ", \"CFID\": %.17g", cfid->cfid);
    print_coverage(w->own, true, out);
    print_calibration(w->own, true, out);
    lvni_core_str_append(out, "}\n");
}

/* t NULL: without its rows, for a page that has them as a table. */
static void print_text(const lvni_gan_work *w, const table *t, const lvni_gan_cfid *cfid,
                       lvni_core_str *out)
{
    lvni_core_str_printf(out, "%s: %lld measurement%s, %d samples each\n",
                         lvni_core_config_str(w->use->config, "split"), (long long)w->use->n,
                         lvni_core_plural(w->use->n, "", "s"), w->n_samples);
    for (int i = 0; t != NULL && i < t->n; i++) {
        lvni_gan_average_print(t->row[i].average, t->row[i].name, t->row[i].decimals, out);
    }
    lvni_core_str_printf(out,
                         "CFID: %.5g (%.5g of means, %.5g of covariances; of the built-in "
                         "embedding, not comparable with published numbers)\n",
                         cfid->cfid, cfid->mean, cfid->covariance);
    print_coverage(w->own, false, out);
    print_calibration(w->own, false, out);
}

/* ---- the page ---- */

static lvn_status draw_gain(const lvni_gan_work *w, const char *path)
{
    const results *r = w->own;
    double psnr[LVNI_GAN_SAMPLES], error[LVNI_GAN_SAMPLES];
    for (int i = 0; i < w->n_samples; i++) {
        psnr[i] = r->psnr[i].mean;
        error[i] = lvni_gan_average_stderr(&r->psnr[i]);
    }
    return lvni_gan_plot_psnr(path, w->n_samples, psnr, error);
}

static lvn_status write_page(const lvni_gan_work *w, const table *t, const char *text)
{
    const results *r = w->own;
    const char *images[1 + LVNI_GAN_CURVES] = {"psnr.png"},
                           *model = lvni_core_config_str(w->use->config, "model");
    lvni_gan_page page = {.title = model,
                          .rows = t->row,
                          .n_rows = t->n,
                          .text = text,
                          .images = images,
                          .n_images = 1,
                          .items = r->figure,
                          .n_items = r->n_figures};
    char *path = lvni_run_path_join(w->folder, images[0]);
    const lvn_status s = path == NULL ? LVN_ERR_MEMORY : draw_gain(w, path);
    lvni_core_free(path);
    LVN_TRY(s);
    LVN_TRY(lvni_gan_report_curves(w->folder, model, images, &page.n_images));
    return lvni_gan_report_page(w->folder, &page);
}

static lvn_status report(lvni_run_inference *u)
{
    const lvni_gan_work *w = u->own;
    const results *r = w->own;
    table t = {0};
    lvni_gan_cfid cfid;
    lvni_core_str text = {0}, rest = {0};
    lvn_status s;
    if (u->n == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "none of the measurements could be read: see the warnings");
    }
    LVN_TRY(lvni_gan_embeddings_cfid(&r->embeddings, &cfid));
    lvni_gan_embeddings_check(&r->embeddings);
    make_table(w, &t);
    if (lvni_core_config_bool(u->config, "json")) {
        print_json(w, &t, &cfid, &text);
    } else {
        print_text(w, &t, &cfid, &text);
    }
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    if (w->folder != NULL) {
        print_text(w, NULL, &cfid, &rest);
        LVNI_TRY_DONE(s, lvni_core_str_status(&rest));
        LVNI_TRY_DONE(s, write_page(w, &t, lvni_core_str_text(&rest)));
    }
    s = lvni_core_file_write(LVNI_STDOUT_PATH, lvni_core_str_text(&text), text.len);
done:
    lvni_core_str_free(&text);
    lvni_core_str_free(&rest);
    return s;
}

/* ---- the command ---- */

static lvn_status begin(lvni_run_inference *u)
{
    lvni_gan_work *w;
    results *r = LVNI_NEW(LVNI_TAG_DATA, results);
    const lvn_status s =
        lvni_gan_work_create(u, (int)lvni_core_config_int(u->config, "num_samples"), r, &w);
    if (w == NULL || r == NULL) {
        lvni_core_free(w == NULL ? r : NULL);
        return LVN_ERR_MEMORY;
    }
    w->with_mean = measure_mean;
    w->item = measure_item;
    LVN_TRY(s);
    LVN_TRY(lvni_gan_make_folder(w));
    return lvni_gan_embeddings_begin(&r->embeddings, w->settings->sizes.in_chans);
}

static void end(lvni_run_inference *u)
{
    lvni_gan_work *w = u->own;
    results *r = w == NULL ? NULL : w->own;
    if (r != NULL) {
        lvni_gan_embeddings_free(&r->embeddings);
        lvni_core_free(r);
    }
    lvni_gan_work_destroy(w);
}

const lvni_run_results lvni_gan_measures = {.begin = begin,
                                            .check = lvni_gan_report_check,
                                            .output = lvni_gan_samples,
                                            .row = lvni_gan_take_row,
                                            .finish = report,
                                            .end = end};
