/* What PCA keeps of the labels of the training frames, for the losses of clips and for the errors
 * that predictions are written with (pose.h). */
#include "recipes/pose/pose.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/str.h"
#include "log/run_log.h"
#include "recipes/pose/pose_split.h"
#include "run/card.h"
#include "run/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char fact_single[] = "pca_singleview", fact_multi[] = "pca_multiview",
                  fact_keypoints[] = "keypoints";

/* Coordinates of the training frames, in their order. */
static double *training_points(const lvni_pose_labels *labels, const int8_t *set, int64_t *n)
{
    const size_t row = 2 * (size_t)labels->k;
    double *xy = lvni_core_calloc(LVNI_TAG_DATA, (size_t)labels->n, row * sizeof *xy);
    *n = 0;
    for (int64_t i = 0; xy != NULL && i < labels->n; i++) {
        if (set[i] == LVNI_POSE_TRAIN) {
            memcpy(xy + (size_t)(*n)++ * row, labels->xy + (size_t)i * row, row * sizeof *xy);
        }
    }
    return xy;
}

/* ---- fitting ---- */

typedef struct fitting {
    const lvni_pose_settings *settings;
    const lvni_pose_labels *labels;
    const double *xy; /* (n, k, 2), of training frames */
    int64_t n;
    bool leads;
} fitting;

static const lvni_pose_unsupervised_settings *loss_of(const lvni_pose_settings *s, bool multiview)
{
    return &s->unsupervised[multiview ? LVNI_POSE_PCA_MULTIVIEW : LVNI_POSE_PCA_SINGLEVIEW];
}

/* A loss needs the fit, and its tolerance. */
static lvn_status check_loss(lvn_status fitted, const char *loss, const lvni_pose_pca *pca)
{
    if (fitted == LVN_ERR_INVALID) {
        const lvn_error why = *lvn_last_error();
        LVN_FAIL(LVN_ERR_USAGE, "model.losses_to_use %s: %s", loss, why.message);
    }
    if (fitted == LVN_OK && isnan(pca->epsilon)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "model.losses_to_use %s: its tolerance is taken from the errors of training "
                 "frames that have all of these keypoints, and there is none; give "
                 "losses.%s.epsilon, in pixels of the frame",
                 loss, loss);
    }
    return fitted;
}

/* Too few labels: without a loss that needs them this costs an error of predictions. */
static lvn_status fit(const fitting *f, const lvni_pose_pca_options *options, bool multiview,
                      lvni_pose_fits *out)
{
    lvni_pose_pca *pca = multiview ? &out->multiview : &out->singleview;
    bool *has = multiview ? &out->has_multiview : &out->has_singleview;
    const lvn_status s = lvni_pose_pca_fit(options, f->xy, f->n, f->labels->k, pca);
    *has = s == LVN_OK;
    if (loss_of(f->settings, multiview)->used) {
        const int which = multiview ? LVNI_POSE_PCA_MULTIVIEW : LVNI_POSE_PCA_SINGLEVIEW;
        return check_loss(s, lvni_pose_unsupervised_names[which], pca);
    }
    if (s != LVN_ERR_INVALID) {
        return s;
    }
    if (f->leads) {
        lvni_log_line(LVNI_LOG_INFO, "note: no PCA errors: %s", lvn_last_error()->message);
    }
    lvn_clear_error();
    return LVN_OK;
}

/* singleview: data.columns_for_singleview_pca; multiview: data.mirrored_column_matches. */
static lvn_status options_of(const lvni_pose_settings *s, const lvni_pose_labels *labels,
                             bool multiview, int **column, lvni_pose_pca_options *out)
{
    const lvni_pose_unsupervised_settings *u = loss_of(s, multiview);
    *column = NULL;
    *out = (lvni_pose_pca_options){
        .column = s->match,
        .n_columns = multiview ? s->views * s->matched : (int)s->n_pca_columns,
        .views = multiview ? s->views : 0,
        .centring = multiview ? LVNI_POSE_CENTRING_NONE : (lvni_pose_centring)u->centering,
        .components = u->components_counted ? (int)u->components : 0,
        .variance = u->components_counted ? 0.0 : u->components,
        .epsilon = u->has_epsilon ? u->pca_epsilon : (double)NAN,
        .percentile = u->epsilon_percentile,
        .multiplier = u->epsilon_multiplier,
        .keypoint = (const char *const *)labels->keypoint};
    if (multiview || s->n_pca_columns == 0) {
        return LVN_OK;
    }
    *column = lvni_core_calloc(LVNI_TAG_DATA, s->n_pca_columns, sizeof **column);
    for (size_t i = 0; *column != NULL && i < s->n_pca_columns; i++) {
        (*column)[i] = (int)s->pca_columns[i];
    }
    out->column = *column;
    return *column == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* Errors are of keypoints that the project names; a loss takes all where it names none. */
static bool is_wanted(const lvni_pose_settings *s, bool multiview)
{
    return multiview ? s->match != NULL
                     : s->n_pca_columns > 0 || s->unsupervised[LVNI_POSE_PCA_SINGLEVIEW].used;
}

static lvn_status fit_all(const fitting *f, lvni_pose_fits *out)
{
    lvn_status status = LVN_OK;
    for (int multiview = 0; multiview < 2 && status == LVN_OK; multiview++) {
        lvni_pose_pca_options options;
        int *column = NULL;
        if (is_wanted(f->settings, multiview)) {
            status = options_of(f->settings, f->labels, multiview, &column, &options);
            status = status != LVN_OK ? status : fit(f, &options, multiview, out);
        }
        lvni_core_free(column);
    }
    return status;
}

/* ---- one fit for all ranks ---- */

/* The text of rank 0 in the place of this rank's own. */
static lvn_status share_text(const lvni_run_ranks *ranks, lvni_core_str *text)
{
    size_t room = text->len + 1;
    LVN_TRY(lvni_run_ranks_share(ranks, (char *)&room, sizeof room));
    char *given = lvni_core_calloc(LVNI_TAG_DATA, room, 1);
    if (given == NULL) {
        return LVN_ERR_MEMORY;
    }
    snprintf(given, room, "%s", lvni_core_str_text(text));
    const lvn_status s = lvni_run_ranks_share(ranks, given, room);
    lvni_core_str_clear(text);
    lvni_core_str_append(text, given);
    lvni_core_free(given);
    return s == LVN_OK ? lvni_core_str_status(text) : s;
}

/* Rank 0's, whether it has one and whether this rank does: no label has been compared yet. */
static lvn_status share_fit(const lvni_run_ranks *ranks, lvni_pose_pca *pca, bool *has)
{
    lvni_core_str text = {0};
    if (*has) {
        lvni_pose_pca_print(pca, &text);
        lvni_pose_pca_free(pca);
        *has = false;
    }
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    LVNI_TRY_DONE(s, share_text(ranks, &text));
    if (text.len > 0) {
        s = lvni_pose_pca_read(lvni_core_str_text(&text), pca);
        *has = s == LVN_OK;
    }
done:
    lvni_core_str_free(&text);
    return s;
}

lvn_status lvni_pose_fits_make(const lvni_pose_settings *s, const lvni_pose_labels *labels,
                               const int8_t *set, const lvni_run_ranks *ranks, lvni_pose_fits *out)
{
    fitting f = {.settings = s, .labels = labels, .leads = ranks != NULL && ranks->rank->rank == 0};
    double *xy = training_points(labels, set, &f.n);
    f.xy = xy;
    const lvn_status status = xy == NULL ? LVN_ERR_MEMORY : fit_all(&f, out);
    lvni_core_free(xy);
    LVN_TRY(status);
    if (ranks == NULL || ranks->world == 1) {
        return LVN_OK;
    }
    /* the libraries of another machine may round otherwise */
    LVN_TRY(share_fit(ranks, &out->singleview, &out->has_singleview));
    return share_fit(ranks, &out->multiview, &out->has_multiview);
}

/* ---- when a run is resumed ---- */

#define FIT_KEYS(loss)                                                                             \
    "losses." loss ".components_to_keep", "losses." loss ".epsilon",                               \
        "losses." loss ".empirical_epsilon_percentile",                                            \
        "losses." loss ".empirical_epsilon_multiplier", "losses." loss ".centering_method"

void lvni_pose_fits_fix(const lvni_pose_settings *s, lvni_run_job *job)
{
    enum { KEYS = 6 };
    static const char *const keys[2][KEYS] = {
        {FIT_KEYS("pca_singleview"), "data.columns_for_singleview_pca"},
        {FIT_KEYS("pca_multiview"), "data.mirrored_column_matches"}};
    for (int multiview = 0; multiview < 2; multiview++) {
        for (int i = 0; i < KEYS && loss_of(s, multiview)->used; i++) {
            job->fixed[job->n_fixed++] = keys[multiview][i];
        }
    }
}

/* ---- in the card of a model ---- */

static lvn_status keep(const lvni_pose_pca *pca, const char *name, lvn_card *facts)
{
    lvni_core_str text = {0};
    lvni_pose_pca_print(pca, &text);
    lvn_status s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        s = lvn_card_set(facts, name, lvni_core_str_text(&text));
    }
    lvni_core_str_free(&text);
    return s;
}

lvn_status lvni_pose_fits_keep(const lvni_pose_fits *fits, const lvni_pose_labels *labels,
                               lvn_card *facts)
{
    lvni_core_str names = {0};
    for (int i = 0; i < labels->k; i++) {
        lvni_core_str_append(&names, i == 0 ? "[" : ", ");
        lvni_core_str_json(&names, labels->keypoint[i]);
    }
    lvni_core_str_append(&names, "]");
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&names));
    LVNI_TRY_DONE(s, lvn_card_set(facts, fact_keypoints, lvni_core_str_text(&names)));
    if (fits->has_singleview) {
        LVNI_TRY_DONE(s, keep(&fits->singleview, fact_single, facts));
    }
    if (fits->has_multiview) {
        LVNI_TRY_DONE(s, keep(&fits->multiview, fact_multi, facts));
    }
done:
    lvni_core_str_free(&names);
    return s;
}

/* Of what stands in the card: its columns are numbers of the model's keypoints. */
static lvn_status read_fit(const char *text, int keypoints, lvni_pose_pca *out, bool *has)
{
    LVN_TRY(lvni_pose_pca_read(text, out));
    *has = true;
    if (out->k != keypoints) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "the principal components in the model's card are of %d keypoints, and the model "
                 "has %d",
                 out->k, keypoints);
    }
    return LVN_OK;
}

lvn_status lvni_pose_fits_read(const lvn_card *facts, int keypoints, lvni_pose_fits *out)
{
    const char *single = facts == NULL ? NULL : lvn_card_text(facts, fact_single),
               *multi = facts == NULL ? NULL : lvn_card_text(facts, fact_multi);
    if (single != NULL) {
        LVN_TRY(read_fit(single, keypoints, &out->singleview, &out->has_singleview));
    }
    if (multi != NULL) {
        LVN_TRY(read_fit(multi, keypoints, &out->multiview, &out->has_multiview));
    }
    return LVN_OK;
}

lvn_status lvni_pose_names_read(const lvn_card *facts, lvni_pose_labels *out)
{
    const char *text = facts == NULL ? NULL : lvn_card_text(facts, fact_keypoints);
    json_t *names = text == NULL ? NULL : lvni_core_json_try(text, LVNI_JSON_INNER);
    const size_t n = json_array_size(names);
    lvn_status s = LVN_OK;
    *out = (lvni_pose_labels){0};
    if (n == 0) {
        s = lvn_error_set(LVN_ERR_CORRUPT, __FILE__, __LINE__,
                          "its model card has no names of keypoints");
    } else {
        out->keypoint = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *out->keypoint);
        s = out->keypoint == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    for (size_t i = 0; i < n && s == LVN_OK; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        out->keypoint[i] = lvni_core_strdup(LVNI_TAG_DATA, name != NULL ? name : "");
        s = out->keypoint[i] == NULL ? LVN_ERR_MEMORY : LVN_OK;
        out->k = (int)i + 1;
    }
    json_decref(names);
    return s;
}

void lvni_pose_fits_free(lvni_pose_fits *fits)
{
    if (fits->has_singleview) {
        lvni_pose_pca_free(&fits->singleview);
    }
    if (fits->has_multiview) {
        lvni_pose_pca_free(&fits->multiview);
    }
    *fits = (lvni_pose_fits){0};
}
