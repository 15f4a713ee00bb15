/* What loggers are shown at the beginning of a run: a page of training samples as its first epoch
 * sees them, augmented (augmentations.png). Called by logging.c. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "data/dataset.h"
#include "data/image.h"
#include "log/loggers.h"
#include "trainer/logging_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SIDE = 4,     /* tiles in a row and rows of samples that have one view */
    SAMPLES = 10, /* rows of those that have several: a column each */
    MAX_TILE = 256,
    MAX_VIEWS = 16,
    GAP = 2
};

/* An image of a sample: values from `at` on of a field. */
typedef struct tile {
    int field;
    int64_t at, height, width, channels;
} tile;

/* The page, and what a sample of the dataset holds. */
typedef struct page {
    const lvn_dataset *data;
    lvn_field field[LVN_MAX_FIELDS];
    void *value[LVN_MAX_FIELDS]; /* of one sample */
    int n_fields;
    tile view[MAX_VIEWS]; /* images as large as the first; of stacked views (data/views.h) all */
    int n_views;
    int stride; /* of the pixels that are shown */
    int tile_width, tile_height, columns, rows, width, height;
    uint8_t *rgb;
    void *worker;
    char *row[SAMPLES]; /* names of samples, of several views */
    int named;
} page;

enum { MAX_BYTES = 1 << 28 };

/* 0: more than is shown, or what the loader will refuse. */
static size_t bytes_of(const lvn_field *f)
{
    if (f->dtype < 0 || f->dtype >= LVN_DTYPE_COUNT || f->ndim < 0 || f->ndim >= LVN_MAX_NDIM) {
        return 0;
    }
    size_t bytes = lvn_dtype_size(f->dtype);
    for (int i = 0; i < f->ndim; i++) {
        if (f->shape[i] < 1 || f->shape[i] > MAX_BYTES / (int64_t)bytes) {
            return 0;
        }
        bytes *= (size_t)f->shape[i];
    }
    return bytes;
}

/* (H, W, C), or several stacked (V, H, W, C); grey or RGB, with alpha or without. */
static bool is_image(const lvn_field *f)
{
    const int64_t channels = f->ndim == 3 || f->ndim == 4 ? f->shape[f->ndim - 1] : 0;
    return f->dtype == LVN_F32 && (channels >= 1 && channels <= 4);
}

static void add_views(page *p, int field)
{
    const lvn_field *f = &p->field[field];
    const bool stacked = f->ndim == 4;
    const int64_t *shape = f->shape + stacked, views = stacked ? f->shape[0] : 1;
    const tile *first = &p->view[0];
    const int64_t values = shape[0] * shape[1] * shape[2];
    const bool same = p->n_views == 0 || (shape[0] == first->height && shape[1] == first->width &&
                                          shape[2] == first->channels);
    const bool fits = stacked && shape[0] <= first->height && shape[1] <= first->width;
    for (int64_t v = 0; (same || fits) && v < views && p->n_views < MAX_VIEWS; v++) {
        p->view[p->n_views++] = (tile){field, v * values, shape[0], shape[1], shape[2]};
    }
}

/* false: other data than images. */
static bool find_views(page *p)
{
    p->n_fields = p->data->cls->fields(p->data, p->field);
    if (p->n_fields < 1 || p->n_fields > LVN_MAX_FIELDS || !is_image(&p->field[0])) {
        return false;
    }
    for (int i = 0; i < p->n_fields; i++) {
        if (bytes_of(&p->field[i]) == 0) {
            return false;
        }
        if (is_image(&p->field[i])) {
            add_views(p, i);
        }
    }
    return true;
}

static void lay_out(page *p, int64_t samples)
{
    const int most = p->n_views == 1 ? SIDE * SIDE : SAMPLES;
    const int n = samples < 0 || samples > most ? most : (int)samples;
    const int64_t height = p->view[0].height, width = p->view[0].width;
    const int64_t larger = height > width ? height : width;
    p->stride = (int)((larger + MAX_TILE - 1) / MAX_TILE);
    p->tile_height = (int)(height + p->stride - 1) / p->stride;
    p->tile_width = (int)(width + p->stride - 1) / p->stride;
    p->columns = p->n_views > 1 ? p->n_views : n < SIDE ? n : SIDE;
    p->rows = p->n_views > 1 ? n : (n + SIDE - 1) / SIDE;
    p->width = p->columns * (p->tile_width + GAP) - GAP;
    p->height = p->rows * (p->tile_height + GAP) - GAP;
}

/* The values spread over 0 to 255: what they were before they were normalised is not known. A view
 * that is smaller than the first lies in the corner of its tile. */
static void draw(const page *p, int number, const float *value, const tile *t)
{
    const int64_t n = t->height * t->width * t->channels;
    float low = value[0], high = value[0];
    for (int64_t i = 1; i < n; i++) {
        low = value[i] < low ? value[i] : low;
        high = value[i] > high ? value[i] : high;
    }
    const float scale = high > low ? 255.0f / (high - low) : 0.0f;
    const int64_t x0 = (int64_t)(number % p->columns) * (p->tile_width + GAP),
                  y0 = (int64_t)(number / p->columns) * (p->tile_height + GAP);
    for (int64_t y = 0; y * p->stride < t->height; y++) {
        uint8_t *to = p->rgb + 3 * ((y0 + y) * p->width + x0);
        for (int64_t x = 0; x * p->stride < t->width; x++) {
            const float *pixel = value + (y * t->width + x) * p->stride * t->channels;
            for (int c = 0; c < 3; c++) {
                const float level = (pixel[t->channels >= 3 ? c : 0] - low) * scale;
                *to++ = level > 0.0f && level < 256.0f ? (uint8_t)level : 0;
            }
        }
    }
}

/* One that cannot be read leaves its tiles black: the loader reports it, if it is drawn. */
static void draw_sample(const page *p, int row, uint64_t seed, int64_t sample)
{
    const lvn_dataset_class *cls = p->data->cls;
    const lvn_sample_key key = {.seed = seed, .sample = sample, .training = true};
    const lvn_status s = cls->worker_get != NULL
                             ? cls->worker_get(p->data, p->worker, &key, p->value)
                             : cls->get(p->data, &key, p->value);
    for (int v = 0; v < p->n_views && s == LVN_OK; v++) {
        const tile *t = &p->view[v];
        draw(p, row * p->n_views + v, (const float *)p->value[t->field] + t->at, t);
    }
    lvn_clear_error();
}

static lvn_status make_memory(page *p)
{
    p->rgb = lvni_core_calloc(LVNI_TAG_TRAINER, (size_t)p->width * (size_t)p->height, 3);
    for (int i = 0; i < p->n_fields; i++) {
        p->value[i] = lvni_core_calloc(LVNI_TAG_TRAINER, 1, bytes_of(&p->field[i]));
        if (p->value[i] == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    return p->rgb == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static void name_row(page *p, int64_t sample)
{
    char buffer[32];
    if (p->n_views > 1 && p->named < SAMPLES) {
        p->row[p->named++] = lvni_core_strdup(
            LVNI_TAG_TRAINER, lvni_data_dataset_sample_name(p->data, sample, buffer));
    }
}

/* Samples from all over the set, whose classes may stand one behind the other. */
static void draw_all(page *p, const lvni_trainer_options *o)
{
    const int64_t length = p->data->cls->length(p->data);
    const int n = p->n_views > 1 ? p->rows : p->rows * p->columns;
    for (int i = 0; i < n; i++) {
        const int64_t position = length < 0 ? i : length * i / n;
        const int64_t sample = length < 0 ? position : lvni_data_dataset_index(p->data, position);
        draw_sample(p, i, o->seed, sample);
        name_row(p, sample);
    }
}

/* Each view with its number and its size. */
static lvn_status write_captions(const page *p, const lvni_trainer_options *o, const char *path,
                                 int size[2])
{
    char text[MAX_VIEWS][64];
    const char *column[MAX_VIEWS] = {NULL};
    for (int v = 0; v < p->n_views; v++) {
        const tile *t = &p->view[v];
        snprintf(text[v], sizeof text[v], "view %d, %lld x %lld", v + 1, (long long)t->height,
                 (long long)t->width);
        column[v] = text[v];
    }
    const lvni_trainer_page shown = {.rgb = p->rgb,
                                     .width = p->width,
                                     .height = p->height,
                                     .tile_width = p->tile_width,
                                     .tile_height = p->tile_height,
                                     .gap = GAP,
                                     .columns = p->columns,
                                     .rows = p->rows,
                                     .column = column,
                                     .row = (const char *const *)p->row};
    return o->write_page(path, &shown, size);
}

static lvn_status write_file(const page *p, const lvni_trainer_options *o, const char *path,
                             int size[2])
{
    if (p->n_views > 1 && o->write_page != NULL) {
        return write_captions(p, o, path, size);
    }
    size[0] = p->width;
    size[1] = p->height;
    return lvni_data_png_write(path, p->rgb, p->width, p->height);
}

static lvn_status write_page(page *p, const lvni_trainer_logging *r)
{
    int size[2];
    const lvn_dataset_class *cls = p->data->cls;
    LVN_TRY(make_memory(p));
    LVN_TRY(cls->worker_open == NULL ? LVN_OK : cls->worker_open(p->data, &p->worker));
    draw_all(p, r->o);
    if (cls->worker_open != NULL) {
        cls->worker_close(p->data, p->worker);
    }
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/augmentations.png", r->o->out);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, write_file(p, r->o, lvni_core_str_text(&path), size));
    lvni_log_loggers_image(r->loggers, 0,
                           &(lvni_log_image){.name = "augmentations",
                                             .path = lvni_core_str_text(&path),
                                             .width = size[0],
                                             .height = size[1],
                                             .channels = 3});
done:
    lvni_core_str_free(&path);
    return s;
}

lvn_status lvni_trainer_logging_samples(const lvni_trainer_logging *r)
{
    page p = {.data = r->o->train};
    if (!lvni_log_loggers_take_images(r->loggers)) {
        return LVN_OK;
    }
    const int64_t samples = p.data->cls->length(p.data);
    if (samples == 0 || !find_views(&p)) {
        return LVN_OK;
    }
    lay_out(&p, samples);
    const lvn_status s = write_page(&p, r);
    for (int i = 0; i < p.n_fields; i++) {
        lvni_core_free(p.value[i]);
    }
    for (int i = 0; i < p.named; i++) {
        lvni_core_free(p.row[i]);
    }
    lvni_core_free(p.rgb);
    return s;
}
