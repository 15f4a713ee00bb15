/* Nearest neighbours vote (pretrain.h): each query has the class that its nearest neighbours among
 * the references vote for (Wu et al. 2018, "Unsupervised feature learning via non-parametric
 * instance discrimination", section 3.4: weights exp(cosine / temperature)). */
#include "recipes/pretrain/pretrain.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"

#include <levin/linalg.h>
#include <string.h>

typedef struct neighbour {
    float cosine;
    int64_t at; /* among the references */
} neighbour;

typedef struct lvni_pretrain_votes {
    lvni_pretrain_images_used of;
    lvni_pretrain_votes_count count;
    int64_t at, dim;    /* of the next row (lvni_pretrain_images_place), size of a row */
    float *column;      /* (dim, references): unit rows of the references */
    float *unit;        /* (dim): of a query */
    int *label;         /* of the references */
    float *cosine;      /* of a query with each */
    neighbour *nearest; /* a heap of k, the farthest first */
    double *vote;       /* by class */
    int64_t k, classes;
    double temperature;
} votes;

lvn_status lvni_pretrain_votes_create(const lvni_core_config *keys,
                                      const lvni_pretrain_images_used *of, votes **out)
{
    votes *w = *out = LVNI_NEW(LVNI_TAG_DATA, votes);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    const size_t room = (size_t)of->references;
    w->of = *of;
    w->k = lvni_core_config_int(keys, "k");
    w->temperature = lvni_core_config_float(keys, "temperature");
    w->classes = of->data->n_classes;
    w->label = lvni_core_calloc(LVNI_TAG_DATA, room, sizeof *w->label);
    w->cosine = lvni_core_calloc(LVNI_TAG_DATA, room, sizeof *w->cosine);
    w->nearest = lvni_core_calloc(LVNI_TAG_DATA, (size_t)w->k, sizeof *w->nearest);
    w->vote = lvni_core_calloc(LVNI_TAG_DATA, (size_t)w->classes, sizeof *w->vote);
    return w->label == NULL || w->cosine == NULL || w->nearest == NULL || w->vote == NULL
               ? LVN_ERR_MEMORY
               : LVN_OK;
}

void lvni_pretrain_votes_destroy(votes *w)
{
    if (w != NULL) {
        lvni_core_free(w->column);
        lvni_core_free(w->unit);
        lvni_core_free(w->label);
        lvni_core_free(w->cosine);
        lvni_core_free(w->nearest);
        lvni_core_free(w->vote);
        lvni_core_free(w);
    }
}

lvni_pretrain_votes_count lvni_pretrain_votes_result(const votes *w)
{
    lvni_pretrain_votes_count count = w->count;
    count.k = w->k < count.references ? w->k : count.references;
    return count;
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
static int64_t find_nearest(votes *w)
{
    int64_t n = 0;
    memset(w->cosine, 0, (size_t)w->count.references * sizeof *w->cosine);
    for (int64_t d = 0; d < w->dim; d++) {
        const float *column_of = w->column + d * w->of.references;
        for (int64_t r = 0; r < w->count.references; r++) {
            w->cosine[r] += w->unit[d] * column_of[r];
        }
    }
    for (int64_t r = 0; r < w->count.references; r++) {
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

static void classify(votes *w, int64_t label)
{
    const int64_t n = find_nearest(w);
    memset(w->vote, 0, (size_t)w->classes * sizeof *w->vote);
    for (int64_t i = 0; i < n; i++) {
        w->vote[w->label[w->nearest[i].at]] +=
            lvni_core_exp(((double)w->nearest[i].cosine - 1.0) / w->temperature);
    }
    w->count.queries++;
    w->count.first += lvni_pretrain_is_among(w->vote, w->classes, label, 1);
    w->count.five += lvni_pretrain_is_among(w->vote, w->classes, label, 5);
}

/* The first row shows how long all are. */
static lvn_status make_room(votes *w, int64_t dim)
{
    if (w->column != NULL) {
        return LVN_OK;
    }
    w->dim = dim;
    w->column =
        lvni_core_calloc(LVNI_TAG_DATA, (size_t)(dim * w->of.references), sizeof *w->column);
    w->unit = lvni_core_calloc(LVNI_TAG_DATA, (size_t)dim, sizeof *w->unit);
    return w->column == NULL || w->unit == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

lvn_status lvni_pretrain_votes_add(votes *w, int64_t sample, const float *value, int64_t dim)
{
    lvni_pretrain_place place;
    LVN_TRY(make_room(w, dim));
    LVN_TRY(lvni_pretrain_images_place(&w->of, &w->at, sample, value, dim, &place));
    const double length = lvni_pretrain_row_length(value, dim);
    const bool is_reference = place.is_reference;
    float *to = is_reference ? w->column + w->count.references : w->unit;
    const int64_t stride = is_reference ? w->of.references : 1;
    for (int64_t d = 0; d < dim; d++) {
        to[d * stride] = (float)((double)value[d] / length);
    }
    if (is_reference) {
        w->label[w->count.references++] = (int)place.label;
    } else {
        classify(w, place.label);
    }
    return LVN_OK;
}

/* ---- how many directions the features have ---- */

/* exp of the entropy of the singular values, as parts of their sum. */
static double rank_of(const double *value, int64_t n)
{
    double sum = 0.0, entropy = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += value[i];
    }
    for (int64_t i = 0; i < n && sum > 0.0; i++) {
        const double part = value[i] / sum;
        entropy -= part > 0.0 ? part * lvni_core_log(part) : 0.0;
    }
    return sum > 0.0 ? lvni_core_exp(entropy) : 0.0;
}

lvn_status lvni_pretrain_votes_rank(const votes *w, double *out)
{
    enum { ROWS = 256 };
    const int64_t rows = w->count.references < ROWS ? w->count.references : ROWS;
    lvn_tensor *x = NULL, *values = NULL;
    *out = 0.0;
    if (rows == 0 || w->dim > LVN_LINALG_MAX) {
        return LVN_OK;
    }
    x = lvn_tensor_create(LVN_F32, LVN_SHAPE(rows, w->dim));
    if (x == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t d = 0; d < w->dim; d++) {
            ((float *)lvn_data(x))[r * w->dim + d] = w->column[d * w->of.references + r];
        }
    }
    const lvn_status s = lvn_svd(x, NULL, &values, NULL);
    if (s == LVN_OK) {
        *out = rank_of(lvn_const_data(values), lvn_numel(values));
    }
    lvn_release(x);
    lvn_release(values);
    return s;
}
