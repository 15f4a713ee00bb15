/* `predict` with an array of images (.npy) that are used as they are, without scaling and cropping:
 * plain logits into another array. Results in place of those of classify_predict.c. */
#include "recipes/classify/classify.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "core/math.h"
#include "core/vfs.h"
#include "data/array.h"
#include "images/image_data.h"
#include "log/run_log.h"
#include "recipes/classify/classify_card.h"
#include "run/inference.h"
#include "run/options.h"
#include "run/output_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_npy(const char *path)
{
    const size_t n = path == NULL ? 0 : strlen(path);
    return n > 4 && strcasecmp(path + n - 4, ".npy") == 0;
}

bool lvni_classify_is_array(const lvni_core_config *c)
{
    return is_npy(lvni_core_config_str(c, "data")) && (is_npy(lvni_core_config_str(c, "output")) ||
                                                       lvni_core_config_str(c, "weights") != NULL);
}

/* ---- the images as a dataset ---- */

typedef struct images {
    lvn_dataset base;
    lvni_data_array array; /* (N, H, W, 3) */
} images;

static const images *of_dataset(const lvn_dataset *d)
{
    return (const images *)(const void *)d;
}

static int fields(const lvn_dataset *d, lvn_field out[LVN_MAX_FIELDS])
{
    const int64_t *s = of_dataset(d)->array.shape;
    out[0] = (lvn_field){.name = "image", .dtype = LVN_F32, .ndim = 3, .shape = {s[1], s[2], s[3]}};
    return 1;
}

static int64_t length(const lvn_dataset *d)
{
    return of_dataset(d)->array.shape[0];
}

static lvn_status get(const lvn_dataset *d, const lvn_sample_key *key, void *const field[])
{
    const lvni_data_array *a = &of_dataset(d)->array;
    const int64_t each = a->shape[1] * a->shape[2] * a->shape[3];
    return lvni_data_array_read_f32(a, key->sample * each, each, field[0]);
}

static void destroy(lvn_dataset *d)
{
    images *i = (images *)(void *)d;
    lvni_data_array_free(&i->array);
    lvni_core_free(i);
}

static const lvn_dataset_class as_it_is = {
    .name = "array", .fields = fields, .length = length, .get = get, .destroy = destroy};

/* The header alone. */
static lvn_status peek_array(const lvni_core_config *c, lvni_data_array *out)
{
    size_t at;
    LVN_TRY(lvni_data_npy_peek(lvni_core_config_str(c, "data"), out, &at));
    if (out->type >= LVNI_ARRAY_C64) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "data=%s holds complex numbers; images are real ones",
                 lvni_core_config_str(c, "data"));
    }
    return LVN_OK;
}

/* ---- the work ---- */

typedef struct work {
    images *data;
    int64_t n_classes;
    float *logits; /* (N, n_classes), with rank 0 */
} work;

/* Shape and output, before the model is read; the images are read after it. */
static lvn_status check_array(const lvni_run_inference *u, const lvni_data_array *a)
{
    char shape[192];
    static const lvni_run_output_kind kind = {
        .what = "logits of an array are a .npy array", .endings = ".npy", .binary = true};
    const char *data = lvni_core_config_str(u->config, "data");
    if (a->ndim != 4 || a->shape[3] != 3 || a->count == 0) {
        LVN_FAIL(LVN_ERR_SHAPE, "data=%s is %s; needed are images (N, height, width, 3)", data,
                 lvni_data_array_shape_text(a, shape));
    }
    if (lvni_core_config_str(u->config, "sheet") != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "sheet= draws images of a folder; data=%s is an array of numbers",
                 data);
    }
    return lvni_run_inference_leads(u) ? lvni_run_output_check(u->config, &kind) : LVN_OK;
}

/* An array goes to the network as it is: warn where it is unlike the training. */
static void report_unlike_training(const lvni_run_inference *u, const lvni_data_array *a,
                                   const lvni_run_exported *e)
{
    const char *data = lvni_core_config_str(u->config, "data");
    const int64_t height = a->shape[1], width = a->shape[2];
    const int size = lvni_classify_card_of(e)->images.eval.image_size;
    if (a->type < LVNI_ARRAY_F16) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "data=%s holds %s: the numbers are used as they are, and the network expects "
                      "them normalised as in training; "
                      "without output=NAME.npy levin does that to uint8 images itself",
                      data, lvni_data_array_type_name(a->type));
    }
    if (height != size || width != size) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "data=%s holds images of %lld x %lld (height x width), those of the "
                      "training were %d x %d",
                      data, (long long)height, (long long)width, size, size);
    }
}

static lvn_status open_work(lvni_run_inference *u)
{
    work *w = u->own = LVNI_NEW(LVNI_TAG_DATA, work);
    images *i = LVNI_NEW(LVNI_TAG_DATA, images);
    if (w == NULL || i == NULL) {
        lvni_core_free(i);
        return LVN_ERR_MEMORY;
    }
    i->base.cls = &as_it_is;
    w->data = i;
    u->data = &i->base;
    LVN_TRY(peek_array(u->config, &i->array));
    return check_array(u, &i->array);
}

/* The model of model=, or with weights= the network of that name. */
static lvn_status open_model(lvni_run_inference *u, lvni_run_exported **out)
{
    const lvni_run_weights_source from = {.path = lvni_core_config_str(u->config, "weights"),
                                          .key = lvni_core_config_str(u->config, "weights.key")};
    LVN_TRY(u->own == NULL ? open_work(u) : LVN_OK);
    lvni_data_array *array = &((work *)u->own)->data->array;
    if (from.path != NULL) {
        LVN_TRY(lvni_classify_from_weights(lvni_core_config_str(u->config, "model"), &from,
                                           (int)array->shape[1], out));
    } else {
        const lvni_run_exported_place place = lvni_run_inference_place(u->config);
        LVN_TRY(
            lvni_run_exported_open(&lvni_classify_recipe, &place, LVNI_RUN_EXPORT, u->config, out));
        report_unlike_training(u, array, *out);
    }
    return array->data == NULL ? lvni_data_npy_open(lvni_core_config_str(u->config, "data"), array)
                               : LVN_OK;
}

/* Rank 0 has room for all logits. */
static lvn_status begin(lvni_run_inference *u)
{
    work *w = u->own;
    w->n_classes = lvni_classify_card_of(u->exported)->images.n_classes;
    if (!lvni_run_inference_leads(u)) {
        return LVN_OK;
    }
    const size_t n = (size_t)(w->data->array.shape[0] * w->n_classes);
    w->logits = lvni_core_alloc(LVNI_TAG_DATA, n * sizeof *w->logits);
    return w->logits == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static lvn_tensor *logits(const lvn_module *root, const lvn_batch *batch, void *user)
{
    (void)user;
    return lvn_forward(root, batch->image);
}

static lvn_status take_row(lvni_run_inference *u, int64_t sample, const float *value, int64_t k)
{
    const work *w = u->own;
    for (int64_t i = 0; i < k; i++) {
        if (!isfinite(value[i])) {
            LVN_FAIL(LVN_ERR_NON_FINITE,
                     "the model %s gives %g as a logit of image %lld of data=%s: its weights or "
                     "the numbers of that image are not finite or too large",
                     lvni_core_config_str(u->config, "model"),
                     lvni_core_unsigned_nan((double)value[i]), (long long)sample,
                     lvni_core_config_str(u->config, "data"));
        }
    }
    memcpy(w->logits + sample * w->n_classes, value, (size_t)k * sizeof *value);
    u->n++;
    return LVN_OK;
}

static lvn_status finish(lvni_run_inference *u)
{
    const work *w = u->own;
    const int64_t shape[] = {w->data->array.shape[0], w->n_classes};
    const char *output = lvni_run_output_path(u->config);
    LVN_TRY(lvni_data_npy_write_f32(output, 2, shape, w->logits));
    if (!lvni_run_output_is_stdout(u->config)) {
        lvni_core_print(stdout, "logits (%lld, %lld) in %s\n", (long long)shape[0],
                        (long long)shape[1], output);
    }
    return LVN_OK;
}

static void end(lvni_run_inference *u)
{
    work *w = u->own;
    if (w != NULL) {
        lvn_dataset_destroy(w->data == NULL ? NULL : &w->data->base);
        lvni_core_free(w->logits);
        lvni_core_free(w);
    }
}

static lvn_status check_arguments(const lvni_core_config *c)
{
    static const char *const of_rows[] = {"json", "top_k", "probabilities"};
    const char *model = lvni_core_config_str(c, "model"),
               *checkpoint = lvni_core_config_str(c, "checkpoint");
    if (model == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "model= is missing: a run directory or an exported .safetensors "
                                "file, or with weights=FILE the name of a network");
    }
    LVN_TRY(lvni_images_preprocess_no_effect(c, "on an array whose numbers are used as they are"));
    for (size_t i = 0; i < sizeof of_rows / sizeof *of_rows; i++) {
        LVN_TRY(lvni_core_config_no_effect(c, of_rows[i], "on the logits of an array"));
    }
    if (lvni_core_config_str(c, "weights") != NULL && checkpoint != NULL) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "checkpoint=%s chooses within a run directory; with weights= model=%s names a network",
            checkpoint, model);
    }
    LVN_TRY(lvni_core_config_str(c, "weights") == NULL ? lvni_run_exported_check(model, checkpoint)
                                                       : LVN_OK);
    if (lvni_core_path_exists(lvni_core_config_str(c, "data"))) {
        return LVN_OK; /* reading it may take long */
    }
    lvni_data_array missing = {0};
    const lvn_status s = lvni_data_npy_open(lvni_core_config_str(c, "data"), &missing);
    lvni_data_array_free(&missing);
    if (s == LVN_ERR_NOT_FOUND) { /* a usage error, as with folders */
        LVN_FAIL(LVN_ERR_USAGE, "data: %s", lvn_last_error()->message);
    }
    return s;
}

const lvni_run_results lvni_classify_logits = {.check = check_arguments,
                                               .open = open_model,
                                               .begin = begin,
                                               .output = logits,
                                               .row = take_row,
                                               .finish = finish,
                                               .end = end};
