/* A pretrained backbone in use: `predict` writes its features, a row for each image; `eval`
 * measures how well they part classes: each query has the class that its nearest neighbours
 * among the references vote for (Wu et al. 2018, "Unsupervised feature learning via non-parametric
 * instance discrimination", section 3.4: weights exp(cosine / temperature)). */
#include "recipes/pretrain/pretrain.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"
#include "core/str.h"
#include "data/dataset.h"
#include "images/image_data.h"
#include "run/inference.h"
#include "run/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const lvni_core_option embed_rows[] = {
    {.name = "image_size",
     .type = LVNI_OPT_INT,
     .unit = "pixels",
     .range = LVNI_BETWEEN(1, 4096),
     .flags = LVNI_OPT_AUTO,
     .help = "Side of the square that the network sees of an image; auto: that of the training."},
};
const lvni_core_option_table lvni_pretrain_embed_options = LVNI_OPTION_TABLE("images", embed_rows);

static const lvni_core_option knn_rows[] = {
    {.name = "k",
     .type = LVNI_OPT_INT,
     .fallback = "20",
     .range = LVNI_BETWEEN(1, 65536),
     .help = "Nearest neighbours that vote for the class of an image; of fewer references all."},
    {.name = "temperature",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.1",
     .range = LVNI_BETWEEN(0.001, 1000),
     .help = "A vote counts exp(cosine / temperature)."},
    {.name = "val_split",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.2",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Of data without val/: the part of each class that is classified; the rest are the "
             "references."},
};
const lvni_core_option_table lvni_pretrain_knn_options = LVNI_OPTION_TABLE("knn", knn_rows);

lvn_tensor *lvni_pretrain_features(const lvn_module *root, const lvn_batch *batch, void *user)
{
    (void)user;
    return lvni_pretrain_embed(&((const lvni_pretrain_root *)root)->embedding, batch->image);
}

/* ---- predict ---- */

static const char *column(const lvni_run_inference *use, int i)
{
    static _Thread_local char name[32];
    (void)use;
    snprintf(name, sizeof name, "embedding_%d", i);
    return name;
}

static lvn_status check_predict(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_inference_check(c));
    LVN_TRY(lvni_images_source_check(c));
    return lvni_run_inference_check_output(c, "features of images");
}

const lvni_run_results lvni_pretrain_embeddings = {
    .check = check_predict, .output = lvni_pretrain_features, .column = column};

/* ---- eval ---- */

typedef struct neighbour {
    float cosine;
    int64_t at; /* among the references */
} neighbour;

typedef struct knn {
    int64_t references, room; /* of those the first, and for how many there is room */
    int64_t n, at, dim;       /* references so far, position in the data, size of a row */
    float *column;            /* (dim, room): unit rows of the references */
    int *label;               /* of the references */
    float *cosine;            /* of a query with each */
    neighbour *nearest;       /* a heap of k, the farthest first */
    double *vote;             /* by class */
    int64_t k, classes;
    double temperature;
    int64_t queries, first, five; /* right with one guess, with five */
} knn;

static lvn_status begin(lvni_run_inference *u)
{
    knn *w = u->own = LVNI_NEW(LVNI_TAG_DATA, knn);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    w->references = w->room = lvni_pretrain_used(&u->exported->job).references;
    w->k = lvni_core_config_int(u->config, "k");
    w->temperature = lvni_core_config_float(u->config, "temperature");
    w->classes = u->data->n_classes;
    w->label = lvni_core_calloc(LVNI_TAG_DATA, (size_t)w->room, sizeof *w->label);
    w->cosine = lvni_core_calloc(LVNI_TAG_DATA, (size_t)w->room, sizeof *w->cosine);
    w->nearest = lvni_core_calloc(LVNI_TAG_DATA, (size_t)w->k, sizeof *w->nearest);
    w->vote = lvni_core_calloc(LVNI_TAG_DATA, (size_t)w->classes, sizeof *w->vote);
    return w->label == NULL || w->cosine == NULL || w->nearest == NULL || w->vote == NULL
               ? LVN_ERR_MEMORY
               : LVN_OK;
}

/* a is farther: by its cosine, of equal ones by its place. */
static bool is_farther(const neighbour *a, const neighbour *b)
{
    return a->cosine < b->cosine || (a->cosine == b->cosine && a->at > b->at);
}

static void sink(neighbour *heap, int64_t n)
{
    for (int64_t i = 0, child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && is_farther(&heap[child + 1], &heap[child]) ? 1 : 0;
        if (!is_farther(&heap[child], &heap[i])) {
            return;
        }
        const neighbour kept = heap[i];
        heap[i] = heap[child];
        heap[child] = kept;
    }
}

static void rise(neighbour *heap, int64_t i)
{
    while (i > 0 && is_farther(&heap[i], &heap[(i - 1) / 2])) {
        const neighbour kept = heap[i];
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
        heap[i] = kept;
    }
}

/* Into w->nearest; how many there are. */
static int64_t find_nearest(knn *w, const float *unit)
{
    int64_t n = 0;
    memset(w->cosine, 0, (size_t)w->n * sizeof *w->cosine);
    for (int64_t d = 0; d < w->dim; d++) {
        const float *column_of = w->column + d * w->room;
        for (int64_t r = 0; r < w->n; r++) {
            w->cosine[r] += unit[d] * column_of[r];
        }
    }
    for (int64_t r = 0; r < w->n; r++) {
        const neighbour one = {w->cosine[r], r};
        if (n < w->k) {
            w->nearest[n] = one;
            rise(w->nearest, n++);
        } else if (is_farther(&w->nearest[0], &one)) {
            w->nearest[0] = one;
            sink(w->nearest, n);
        }
    }
    return n;
}

/* Classes with more votes than that of the label; of equal ones the first is taken. */
static int64_t count_before(const knn *w, int label)
{
    int64_t before = 0;
    for (int64_t c = 0; c < w->classes; c++) {
        before += w->vote[c] > w->vote[label] || (w->vote[c] == w->vote[label] && c < label);
    }
    return before;
}

static void classify(knn *w, const float *unit, int label)
{
    const int64_t n = find_nearest(w, unit);
    memset(w->vote, 0, (size_t)w->classes * sizeof *w->vote);
    for (int64_t i = 0; i < n; i++) {
        w->vote[w->label[w->nearest[i].at]] +=
            lvni_core_exp(((double)w->nearest[i].cosine - 1.0) / w->temperature);
    }
    const int64_t before = count_before(w, label);
    w->queries++;
    w->first += before < 1;
    w->five += before < 5;
}

static lvn_status keep(knn *w, const float *value, double length, int label, int64_t dim)
{
    if (w->column == NULL) {
        w->dim = dim;
        w->column = lvni_core_calloc(LVNI_TAG_DATA, (size_t)(dim * w->room), sizeof *w->column);
        if (w->column == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    for (int64_t d = 0; d < dim; d++) {
        w->column[d * w->room + w->n] = (float)((double)value[d] / length);
    }
    w->label[w->n++] = label;
    return LVN_OK;
}

/* Images that cannot be read have no row. */
static void step_to(knn *w, const lvn_dataset *d, int64_t sample)
{
    while (lvni_data_dataset_index(d, w->at) != sample) {
        w->at++;
    }
}

static lvn_status take_row(lvni_run_inference *u, int64_t sample, const float *value, int64_t dim)
{
    knn *w = u->own;
    double squares = 0.0;
    for (int64_t i = 0; i < dim; i++) {
        if (!isfinite(value[i])) {
            LVN_FAIL(LVN_ERR_NON_FINITE, "the model %s gives %g as a feature of %s",
                     lvni_core_config_str(u->config, "model"),
                     lvni_core_unsigned_nan((double)value[i]),
                     lvni_run_sample_name(u, sample, (char[24]){0}));
        }
        squares += (double)value[i] * (double)value[i];
    }
    const double length = squares > 1e-24 ? lvni_core_sqrt(squares) : 1e-12;
    const int label = (int)u->data->cls->label(u->data, sample);
    step_to(w, u->data, sample);
    u->n++;
    if (w->at++ < w->references) {
        return keep(w, value, length, label, dim);
    }
    float *unit = lvni_core_calloc(LVNI_TAG_DATA, (size_t)dim, sizeof *unit);
    if (unit == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t d = 0; d < dim; d++) {
        unit[d] = (float)((double)value[d] / length);
    }
    classify(w, unit, label);
    lvni_core_free(unit);
    return LVN_OK;
}

static lvn_status finish(lvni_run_inference *u)
{
    const knn *w = u->own;
    const double n = w->queries > 0 ? (double)w->queries : 1.0, top1 = (double)w->first / n,
                 top5 = (double)w->five / n;
    const long long k = (long long)(w->k < w->n ? w->k : w->n);
    const bool json = lvni_core_config_bool(u->config, "json");
    lvni_core_str text = {0};
    lvni_core_str_printf(
        &text, json ? "{\"top1\": %.9g, \"top5\": %.9g, " : "knn top1 %.4f top5 %.4f ", top1, top5);
    lvni_core_str_printf(&text,
                         json ? "\"k\": %lld, \"references\": %lld, \"n\": %lld, \"classes\": %lld}"
                              : "(k=%lld of %lld references, %lld images of %lld classes)",
                         k, (long long)w->n, (long long)w->queries, (long long)w->classes);
    const lvn_status s = lvni_core_str_status(&text);
    puts(lvni_core_str_text(&text));
    lvni_core_str_free(&text);
    return s;
}

static void end(lvni_run_inference *u)
{
    knn *w = u->own;
    if (w != NULL) {
        lvni_core_free(w->column);
        lvni_core_free(w->label);
        lvni_core_free(w->cosine);
        lvni_core_free(w->nearest);
        lvni_core_free(w->vote);
        lvni_core_free(w);
    }
}

static lvn_status check_eval(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_inference_check(c));
    return lvni_images_source_check(c);
}

const lvni_run_results lvni_pretrain_knn = {.check = check_eval,
                                            .begin = begin,
                                            .output = lvni_pretrain_features,
                                            .row = take_row,
                                            .finish = finish,
                                            .end = end};
