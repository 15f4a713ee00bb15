/* `levin eval linear` (pretrain.h): a linear classifier on the features of a backbone that stays as
 * it is, trained on the references and measured on the queries of `eval knn`. Ranks compute the
 * features, once; rank 0 has them all, in order, and trains on them (pretrain_probe.c). */
#include "recipes/pretrain/pretrain.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "core/str.h"
#include "images/image_data.h"
#include "log/run_log.h"
#include "run/inference.h"
#include "run/options.h"
#include "trainer/lanes.h"

#include <levin/device.h>
#include <stdio.h>
#include <string.h>

static const lvni_core_option linear_rows[] = {
    {.name = "epochs",
     .type = LVNI_OPT_INT,
     .fallback = "90",
     .range = LVNI_BETWEEN(1, 1000000),
     .help =
         "Epochs of the classifier; its learning rate falls to a thousandth along half a cosine."},
    {.name = "batch_size",
     .type = LVNI_OPT_INT,
     .unit = "images",
     .fallback = "256",
     .range = LVNI_BETWEEN(1, 1048576),
     .help =
         "Of a step of the classifier; fewer references than that are one batch, and a last batch "
         "that is incomplete is left out of its epoch."},
    {.name = "lr",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.1",
     .range = LVNI_BETWEEN(0, 1e6),
     .help =
         "Learning rate of the classifier for a step of 256 images; that of a run is multiplied "
         "by batch_size / 256."},
    {.name = "momentum",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.9",
     .range = LVNI_BETWEEN(0, 1),
     .help = "Of its SGD."},
    {.name = "weight_decay",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 1e6),
     .help = "Of its SGD."},
    {.name = "standardize",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Each feature with mean 0 and deviation 1 over the references, so that the learning "
             "rate fits features of any size."},
    {.name = "seed",
     .type = LVNI_OPT_INT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Of the order of its images; the classifier begins with zeros."},
};
const lvni_core_option_table lvni_pretrain_linear_options =
    LVNI_OPTION_TABLE("linear", linear_rows);

/* ---- features ---- */

typedef struct linear {
    const lvni_run_inference *use;
    lvni_pretrain_images_used of;
    float *feature; /* (images, dim): references, and behind them the queries */
    int64_t *label;
    int64_t at, dim, references; /* seen of them */
    lvn_tensor *weight, *bias;
    lvni_pretrain_probe_count found;
    double loss;        /* of the last epoch */
    uint64_t mentioned; /* when an epoch was last reported */
} linear;

static lvn_status begin(lvni_run_inference *u)
{
    linear *w = u->own = LVNI_NEW(LVNI_TAG_DATA, linear);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    w->use = u;
    w->of = lvni_pretrain_used(&u->exported->job);
    const size_t n = (size_t)w->of.data->cls->length(w->of.data);
    w->label = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *w->label);
    return w->label == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static lvn_status take_row(lvni_run_inference *u, int64_t sample, const float *value, int64_t dim)
{
    linear *w = u->own;
    lvni_pretrain_place place;
    if (w->feature == NULL) {
        const size_t n = (size_t)w->of.data->cls->length(w->of.data);
        w->dim = dim;
        w->feature = lvni_core_calloc(LVNI_TAG_DATA, n, (size_t)dim * sizeof *w->feature);
    }
    if (w->feature == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvn_status s = lvni_pretrain_images_place(&w->of, &w->at, sample, value, dim, &place);
    if (s != LVN_OK) {
        lvn_error_frame("the model %s", lvni_core_config_str(u->config, "model"));
        return s;
    }
    memcpy(w->feature + u->n * dim, value, (size_t)dim * sizeof *value);
    w->label[u->n++] = place.label;
    w->references += place.is_reference;
    return LVN_OK;
}

/* ---- the classifier, of rank 0 ---- */

/* Every ten seconds: many images and classes take minutes. */
static lvn_status report_epoch(void *user, int64_t epoch, double loss)
{
    static const double apart = 10.0;
    linear *w = user;
    w->loss = loss;
    if (lvni_core_seconds_since(w->mentioned) >= apart) {
        w->mentioned = lvni_core_now_ns();
        lvni_log_line(LVNI_LOG_INFO, "linear: epoch %lld of %lld, loss %.4g", (long long)epoch + 1,
                      (long long)lvni_core_config_int(w->use->config, "epochs"), loss);
    }
    return LVN_OK;
}

/* On lane 0, with the pins of the model. */
static lvn_status train(void *user, int lane)
{
    linear *w = user;
    const lvni_core_config *c = w->use->config;
    const int64_t classes = w->use->data->n_classes;
    const lvni_pretrain_probe_images references = {.feature = w->feature,
                                                   .label = w->label,
                                                   .n = w->references,
                                                   .dim = w->dim,
                                                   .classes = classes},
                                     queries = {.feature = w->feature + w->references * w->dim,
                                                .label = w->label + w->references,
                                                .n = w->use->n - w->references,
                                                .dim = w->dim,
                                                .classes = classes};
    const lvni_pretrain_probe_options o = {.epochs = lvni_core_config_int(c, "epochs"),
                                           .batch_size = lvni_core_config_int(c, "batch_size"),
                                           .lr = lvni_core_config_float(c, "lr"),
                                           .momentum = lvni_core_config_float(c, "momentum"),
                                           .weight_decay =
                                               lvni_core_config_float(c, "weight_decay"),
                                           .seed = (uint64_t)lvni_core_config_int(c, "seed"),
                                           .epoch = report_epoch,
                                           .user = w};
    (void)lane;
    if (lvni_core_config_bool(c, "standardize")) {
        lvni_pretrain_probe_standardize(&references, w->feature, w->use->n);
    }
    LVN_TRY(lvni_pretrain_probe_train(&references, &o, w->weight, w->bias));
    return lvni_pretrain_probe_measure(&queries, w->weight, w->bias, &w->found);
}

static lvn_status check_seen(const linear *w)
{
    const int64_t queries = w->use->n - w->references;
    LVN_TRY(lvni_run_check_rows(w->use));
    if (w->references == 0 || queries == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "of %lld images to train the classifier on and %lld to measure it on none could "
                 "be read of the %s: see the warning",
                 (long long)w->of.references,
                 (long long)(w->of.data->cls->length(w->of.data) - w->of.references),
                 queries == 0 ? "latter" : "former");
    }
    return LVN_OK;
}

static void print_result(const linear *w, bool json, lvni_core_str *out)
{
    const lvni_core_config *c = w->use->config;
    const int64_t batch = lvni_core_config_int(c, "batch_size");
    const double n = (double)w->found.n;
    lvni_core_str_printf(
        out,
        json ? "{\"top1\": %.9g, \"top5\": %.9g, \"loss\": %.9g, \"epochs\": %lld, "
               "\"batch_size\": %lld, \"references\": %lld, \"n\": %lld, \"classes\": %d}"
             : "linear top1 %.4f top5 %.4f loss %.4g (%lld epochs of batches of %lld of %lld "
               "references, %lld images of %d classes)",
        (double)w->found.first / n, (double)w->found.five / n, w->loss,
        (long long)lvni_core_config_int(c, "epochs"),
        (long long)(batch < w->references ? batch : w->references), (long long)w->references,
        (long long)w->found.n, w->use->data->n_classes);
}

static lvn_status finish(lvni_run_inference *u)
{
    linear *w = u->own;
    lvni_trainer_lanes *lanes = NULL;
    lvni_core_str text = {0};
    lvn_status s;
    LVN_TRY(check_seen(w));
    lvn_device_use(LVN_CPU);
    w->weight = lvn_tensor_create(LVN_F32, LVN_SHAPE(u->data->n_classes, w->dim));
    w->bias = lvn_tensor_create(LVN_F32, LVN_SHAPE(u->data->n_classes));
    if (w->weight == NULL || w->bias == NULL) {
        return LVN_ERR_MEMORY;
    }
    w->mentioned = lvni_core_now_ns();
    LVNI_TRY_DONE(
        s, lvni_trainer_lanes_create(1, u->ranks->rank->cores, &u->exported->card.pins, &lanes));
    LVNI_TRY_DONE(s, lvni_trainer_lanes_run(lanes, 1, train, w));
    print_result(w, lvni_core_config_bool(u->config, "json"), &text);
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    puts(lvni_core_str_text(&text));
done:
    lvni_trainer_lanes_destroy(lanes);
    lvni_core_str_free(&text);
    return s;
}

static void end(lvni_run_inference *u)
{
    linear *w = u->own;
    if (w != NULL) {
        lvni_core_free(w->feature);
        lvni_core_free(w->label);
        lvn_release(w->weight);
        lvn_release(w->bias);
        lvni_core_free(w);
    }
}

static lvn_status check(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_inference_check(c));
    return lvni_images_source_check(c);
}

const lvni_run_results lvni_pretrain_linear = {.check = check,
                                               .begin = begin,
                                               .output = lvni_pretrain_features,
                                               .row = take_row,
                                               .finish = finish,
                                               .end = end};
