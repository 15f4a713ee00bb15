/* What `levin report` shows of a pretrained backbone (pretrain.h): some images of its data beside
 * those with the most similar features, and a map of them all. Computed from the exported model
 * when the page is made, so that a run has nothing to write for it. */
#include "recipes/pretrain/pretrain.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"
#include "core/str.h"
#include "data/image.h"
#include "images/image_data.h"
#include "images/thumbnail.h"
#include "report/page.h"
#include "report/scatter.h"
#include "run/inference.h"

#include <levin/linalg.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 8, NEAREST = 6, SIDE = 96 /* pixels of an image */, NAME = 128 };

typedef struct page {
    lvni_pretrain_images_used of;
    int n; /* images that could be read */
    int64_t dim;
    float *row; /* (LVNI_PRETRAIN_SHOWN, dim), of unit length */
    int64_t sample[LVNI_PRETRAIN_SHOWN];
    char name[LVNI_PRETRAIN_SHOWN][NAME]; /* behind the last slash */
    char folder[LVNI_PRETRAIN_SHOWN][NAME];
    int group[LVNI_PRETRAIN_SHOWN]; /* of those with one folder */
    const char *group_name[LVNI_PRETRAIN_SHOWN];
    int n_groups;
    float *image; /* as the network sees it */
    uint8_t *rgb;
} page;

/* ---- rows ---- */

static lvn_status open_shown(lvni_run_inference *u, lvni_run_exported **out)
{
    const lvni_run_exported_place place = lvni_run_inference_place(u->config);
    LVN_TRY(lvni_run_exported_open(u->recipe, &place, LVNI_RUN_SHOW, u->config, out));
    u->data = (*out)->job.used;
    return LVN_OK;
}

static lvn_status begin(lvni_run_inference *u)
{
    page *w = u->own = LVNI_NEW(LVNI_TAG_DATA, page);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    w->of = lvni_pretrain_used(&u->exported->job);
    const lvni_data_transform *t = &w->of.view;
    const size_t pixels = (size_t)t->size * (size_t)t->size;
    w->image = lvni_core_calloc(LVNI_TAG_DATA, pixels * (size_t)lvni_data_transform_depth(t),
                                sizeof *w->image);
    w->rgb = lvni_core_calloc(LVNI_TAG_DATA, pixels, 3);
    return w->image == NULL || w->rgb == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* "photos/cat/1.jpg" is 1.jpg of cat. */
static void keep_name(page *w, int i, const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash == NULL ? name : slash + 1;
    const char *from = slash;
    while (from != NULL && from > name && from[-1] != '/') {
        from--;
    }
    const size_t n = slash == NULL ? 0 : (size_t)(slash - from);
    snprintf(w->name[i], NAME, "%.*s", (int)lvni_core_utf8_cut(base, NAME - 1), base);
    snprintf(w->folder[i], NAME, "%.*s", (int)(n < NAME ? n : NAME - 1), n == 0 ? "" : from);
}

static void join_group(page *w, int i)
{
    int g = 0;
    while (g < w->n_groups && strcmp(w->group_name[g], w->folder[i]) != 0) {
        g++;
    }
    if (g == w->n_groups) {
        w->group_name[w->n_groups++] = w->folder[i];
    }
    w->group[i] = g;
}

static lvn_status take_row(lvni_run_inference *u, int64_t sample, const float *value, int64_t dim)
{
    page *w = u->own;
    char number[24];
    if (w->row == NULL) {
        w->dim = dim;
        w->row = lvni_core_calloc(LVNI_TAG_DATA, (size_t)LVNI_PRETRAIN_SHOWN,
                                  (size_t)dim * sizeof *w->row);
    }
    if (w->row == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(lvni_pretrain_check_row(w->of.data, sample, value, dim));
    const double length = lvni_pretrain_row_length(value, dim);
    for (int64_t d = 0; d < dim; d++) {
        w->row[w->n * dim + d] = (float)((double)value[d] / length);
    }
    w->sample[w->n] = sample;
    keep_name(w, w->n, lvni_run_sample_name(u, sample, number));
    join_group(w, w->n);
    u->n = ++w->n;
    return LVN_OK;
}

/* ---- neighbours ---- */

static double cosine(const page *w, int i, int j)
{
    double sum = 0.0;
    for (int64_t d = 0; d < w->dim; d++) {
        sum += (double)w->row[i * w->dim + d] * (double)w->row[j * w->dim + d];
    }
    return sum;
}

/* The others, the nearest first; of equally near ones the first. Returns how many of k there are.
 */
static int find_nearest(const page *w, int of, int k, int at[NEAREST], double near[NEAREST])
{
    int n = 0;
    for (int j = 0; j < w->n; j++) {
        const double c = cosine(w, of, j);
        int place = n;
        while (place > 0 && near[place - 1] < c) {
            place--;
        }
        if (j == of || place == k) {
            continue;
        }
        n += n < k;
        for (int i = n - 1; i > place; i--) {
            at[i] = at[i - 1];
            near[i] = near[i - 1];
        }
        at[place] = j;
        near[place] = c;
    }
    return n;
}

/* near: 2 for the image whose neighbours the others are. */
static lvn_status write_image(const page *w, int i, double near, lvni_core_str *out)
{
    void *png;
    size_t n;
    LVN_TRY(lvni_images_thumbnail_fetch(w->of.data, &w->of.view, w->sample[i], w->image, w->rgb));
    const int side = lvni_images_thumbnail_shrink(w->rgb, w->of.view.size, SIDE);
    LVN_TRY(lvni_data_png_encode(w->rgb, side, side, &png, &n));
    lvni_report_png(out, png, n, w->name[i]);
    lvni_core_free(png);
    lvni_core_str_append(out, "<figcaption>");
    if (near < 2.0) {
        lvni_core_str_printf(out, "%.3f ", near);
    }
    lvni_report_escape(out, w->folder[i]);
    lvni_core_str_append(out, "<br><span class=soft>");
    lvni_report_escape(out, w->name[i]);
    lvni_core_str_append(out, "</span></figcaption></figure>\n");
    return lvni_core_str_status(out);
}

static lvn_status write_neighbours(const page *w, lvni_core_str *out)
{
    const int rows = w->n < ROWS ? w->n : ROWS;
    int at[NEAREST];
    double near[NEAREST];
    lvni_core_str_append(out,
                         "<h3>Nearest neighbours</h3>\n<p class=soft>In each row an image, and "
                         "those of the others whose features have the largest cosine with "
                         "its own.</p>\n");
    for (int r = 0; r < rows; r++) {
        const int of = r * w->n / rows, n = find_nearest(w, of, NEAREST, at, near);
        lvni_core_str_append(out, w->of.view.size < SIDE / 2 ? "<div class=\"near small\">\n"
                                                             : "<div class=near>\n");
        LVN_TRY(write_image(w, of, 2.0, out));
        for (int i = 0; i < n; i++) {
            LVN_TRY(write_image(w, at[i], near[i], out));
        }
        lvni_core_str_append(out, "</div>\n");
    }
    return LVN_OK;
}

/* Where images lie in a few folders, which may be classes. */
static void write_agreement(const page *w, lvni_core_str *out)
{
    int same = 0, at[NEAREST];
    double near[NEAREST], chance = 0.0;
    for (int i = 0; i < w->n; i++) {
        same += find_nearest(w, i, 1, at, near) == 1 && w->group[at[0]] == w->group[i];
        for (int j = 0; j < w->n; j++) {
            chance += i != j && w->group[j] == w->group[i];
        }
    }
    lvni_core_str_printf(out,
                         "<p>The nearest of the others is of the same folder for %.0f %% of the "
                         "images; by chance it would be for %.0f %%.</p>\n",
                         100.0 * same / w->n, 100.0 * chance / w->n / (w->n - 1));
}

/* ---- the map ---- */

/* Of centred rows each with each, (n, n). */
static void multiply(const float *row, int n, int64_t dim, double *mean, double *out)
{
    for (int i = 0; i < n; i++) {
        for (int64_t d = 0; d < dim; d++) {
            mean[d] += (double)row[i * dim + d] / n;
        }
    }
    for (int i = 0; i < n * n; i++) {
        double product = 0.0;
        for (int64_t d = 0; d < dim; d++) {
            product +=
                ((double)row[i / n * dim + d] - mean[d]) * ((double)row[i % n * dim + d] - mean[d]);
        }
        out[i] = product;
    }
}

/* Rounding can make a small eigenvalue negative. */
static double size_of(double value)
{
    return value > 0.0 ? value : 0.0;
}

static void project(const double *value, const double *vector, int n, double (*at)[2],
                    double part[2])
{
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        sum += size_of(value[i]);
    }
    for (int k = 0; k < 2; k++) {
        part[k] = sum > 0.0 ? size_of(value[k]) / sum : 0.0;
        for (int i = 0; i < n; i++) {
            at[i][k] = lvni_core_sqrt(size_of(value[k])) * vector[k * n + i];
        }
    }
}

lvn_status lvni_pretrain_map(const float *row, int n, int64_t dim, double (*at)[2], double part[2])
{
    lvn_tensor *products = lvn_tensor_create(LVN_F64, LVN_SHAPE(n, n)), *values = NULL,
               *vectors = NULL;
    double *mean = lvni_core_calloc(LVNI_TAG_DATA, (size_t)dim, sizeof *mean);
    lvn_status s = products == NULL || mean == NULL ? LVN_ERR_MEMORY : LVN_OK;
    if (s == LVN_OK) {
        multiply(row, n, dim, mean, lvn_data(products));
        s = lvn_eigh(products, &values, &vectors);
    }
    if (s == LVN_OK) {
        project(lvn_const_data(values), lvn_const_data(vectors), n, at, part);
    }
    lvni_core_free(mean);
    lvn_release(products);
    lvn_release(values);
    lvn_release(vectors);
    return s;
}

/* Without LAPACK there is a sentence in its place. */
static lvn_status write_map(const page *w, lvni_core_str *out)
{
    double at[LVNI_PRETRAIN_SHOWN][2], part[2];
    const char *name[LVNI_PRETRAIN_SHOWN];
    char label[2][64];
    const bool grouped = w->n_groups > 1 && w->n_groups <= LVNI_SCATTER_GROUPS;
    lvni_core_str_append(out, "<h3>Map of features</h3>\n");
    const lvn_status s = lvni_pretrain_map(w->row, w->n, w->dim, at, part);
    if (s == LVN_ERR_NOT_FOUND) {
        lvni_core_str_append(out, "<p class=soft>It is missing: ");
        lvni_report_escape(out, lvn_last_error()->message);
        lvni_core_str_append(out, "</p>\n");
        lvn_clear_error();
        return LVN_OK;
    }
    LVN_TRY(s);
    for (int i = 0; i < w->n; i++) {
        name[i] = w->name[i];
    }
    for (int k = 0; k < 2; k++) {
        lvni_core_format(label[k], sizeof label[k], "component %d: %.0f %% of the variance", k + 1,
                         100.0 * part[k]);
    }
    const lvni_report_scatter map = {.title = "principal components of the features",
                                     .x_label = label[0],
                                     .y_label = label[1],
                                     .n = w->n,
                                     .at = (const double(*)[2])at,
                                     .name = name,
                                     .group = grouped ? w->group : NULL,
                                     .group_name = w->group_name,
                                     .n_groups = grouped ? w->n_groups : 0};
    lvni_report_scatter_write(&map, out);
    if (grouped) {
        write_agreement(w, out);
    }
    return LVN_OK;
}

static lvn_status finish(lvni_run_inference *u)
{
    const page *w = u->own;
    lvni_core_str *out = u->user;
    LVN_TRY(lvni_run_check_rows(u));
    lvni_report_heading(out, "Features");
    lvni_core_str_printf(out, "<p class=soft>%d of the %lld images of ", w->n,
                         (long long)w->of.all);
    lvni_report_escape(out, lvni_core_config_str(u->config, "data"));
    lvni_core_str_append(out, ", by ");
    lvni_report_escape(out, u->exported->file);
    lvni_core_str_append(out, "</p>\n");
    if (w->n < 3) {
        lvni_core_str_append(out, "<p>Neighbours and a map take three images.</p>\n");
        return lvni_core_str_status(out);
    }
    LVN_TRY(write_map(w, out));
    return write_neighbours(w, out);
}

static void end(lvni_run_inference *u)
{
    page *w = u->own;
    if (w != NULL) {
        lvni_core_free(w->row);
        lvni_core_free(w->image);
        lvni_core_free(w->rgb);
        lvni_core_free(w);
    }
}

static lvn_status check(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_inference_check(c));
    return lvni_images_source_check(c);
}

const lvni_run_results lvni_pretrain_page = {.check = check,
                                             .open = open_shown,
                                             .begin = begin,
                                             .output = lvni_pretrain_features,
                                             .row = take_row,
                                             .finish = finish,
                                             .end = end};
