/* `predict` with an array of images (.npy) instead of a folder: plain logits into another array.
 * Called by classify_predict.c. */
#include "recipes/classify/classify.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "core/math.h"
#include "core/vfs.h"
#include "data/array.h"
#include "images/image_data.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "recipes/classify/classify_card.h"
#include "run/devices.h"
#include "run/inference.h"
#include "run/options.h"
#include "run/output_file.h"
#include "run/ranks.h"
#include "tensor/device.h"
#include "trainer/lanes.h"

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

typedef struct work {
    const lvni_core_config *config;
    lvni_run_ranks *ranks;
    lvni_data_array array;
    int64_t n_classes;
    float *logits; /* (N, classes), with rank 0 */
} work;

static int64_t classes_of(const lvni_run_exported *e)
{
    return lvni_classify_card_of(e)->images.n_classes;
}

/* A rank at its chunks: every one of as many as there are ranks. */
typedef struct part {
    work *w;
    const lvni_run_rank *rank;
    lvni_run_exported *exported;
    lvni_trainer_lanes *lanes;
    int64_t first, n; /* of the chunk */
    float *chunk;     /* (eval_batch_size, classes), its logits */
} part;

static lvn_status check(const work *w)
{
    char shape[192];
    static const lvni_run_output_kind kind = {
        .what = "logits of an array are a .npy array", .endings = ".npy", .binary = true};
    const char *data = lvni_core_config_str(w->config, "data");
    if (w->array.ndim != 4 || w->array.shape[3] != 3 || w->array.count == 0) {
        LVN_FAIL(LVN_ERR_SHAPE, "data=%s is %s; needed are images (N, height, width, 3)", data,
                 lvni_data_array_shape_text(&w->array, shape));
    }
    if (lvni_core_config_str(w->config, "sheet") != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "sheet= draws images of a folder; data=%s is an array of numbers",
                 data);
    }
    return w->ranks->rank->rank == 0 ? lvni_run_output_check(w->config, &kind) : LVN_OK;
}

/* An array goes to the network as it is: warn where it is unlike the training. */
static void report_unlike_training(const work *w, const lvni_run_exported *e)
{
    const char *data = lvni_core_config_str(w->config, "data");
    const int64_t height = w->array.shape[1], width = w->array.shape[2];
    const int size = lvni_classify_card_of(e)->images.eval.image_size;
    if (w->array.type < LVNI_ARRAY_F16) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "data=%s holds %s: the numbers are used as they are, and the network expects "
                      "them normalised as in training; "
                      "without output=NAME.npy levin does that to uint8 images itself",
                      data, lvni_data_array_type_name(w->array.type));
    }
    if (height != size || width != size) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "data=%s holds images of %lld x %lld (height x width), those of the "
                      "training were %d x %d",
                      data, (long long)height, (long long)width, size, size);
    }
}

static lvn_status open_model(const work *w, lvni_run_exported **out)
{
    const char *model = lvni_core_config_str(w->config, "model");
    const lvni_run_weights_source from = {.path = lvni_core_config_str(w->config, "weights"),
                                          .key = lvni_core_config_str(w->config, "weights.key")};
    if (from.path == NULL) {
        const lvni_run_exported_place place = lvni_run_inference_place(w->config);
        LVN_TRY(lvni_run_exported_open(&lvni_classify_recipe, &place, w->config, out));
        report_unlike_training(w, *out);
        return LVN_OK;
    }
    return lvni_classify_from_weights(model, &from, (int)w->array.shape[1], out);
}

/* One chunk, on the lane's thread. */
static lvn_status forward(void *user, int lane)
{
    (void)lane;
    const part *p = user;
    const work *w = p->w;
    const int64_t *s = w->array.shape, shape[] = {p->n, s[1], s[2], s[3]};
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 4, shape);
    if (x == NULL) {
        return LVN_ERR_MEMORY;
    }
    const int64_t each = s[1] * s[2] * s[3];
    lvn_status status =
        lvni_data_array_read_f32(&w->array, p->first * each, p->n * each, LVNI_F32(x));
    if (status == LVN_OK) {
        status = lvn_scope_open();
    }
    if (status == LVN_OK) {
        const bool before = lvn_set_grad_enabled(false);
        lvni_tensor_ctx_get()->at = (lvni_tensor_position){0};
        const lvn_tensor *y = lvn_forward(p->exported->model->root, x);
        if (y != NULL) {
            status = lvni_tensor_mem_copy(p->chunk, y->data,
                                          (size_t)(p->n * classes_of(p->exported)) * sizeof(float));
        }
        const lvn_status closed = lvn_scope_close();
        status = closed != LVN_OK ? closed : status;
        lvn_set_grad_enabled(before);
    }
    lvn_release(x);
    return status;
}

static lvn_status check_finite(const work *w)
{
    for (int64_t i = 0; i < w->array.shape[0] * w->n_classes; i++) {
        if (!isfinite(w->logits[i])) {
            LVN_FAIL(LVN_ERR_NON_FINITE,
                     "the model %s gives %g as a logit of image %lld of data=%s: its weights or "
                     "the numbers of that image are not finite or too large",
                     lvni_core_config_str(w->config, "model"),
                     lvni_core_unsigned_nan((double)w->logits[i]), (long long)(i / w->n_classes),
                     lvni_core_config_str(w->config, "data"));
        }
    }
    return LVN_OK;
}

/* The chunks of a round stand one behind the other, in the order of ranks. */
static lvn_status take_round(const part *p, int64_t first)
{
    const int64_t classes = classes_of(p->exported);
    const size_t bytes = (size_t)(p->n * classes) * sizeof(float);
    if (p->rank->comm == NULL) {
        memcpy(p->w->logits + first * classes, p->chunk, bytes);
        return LVN_OK;
    }
    void *all = NULL;
    size_t *size = lvni_core_calloc(LVNI_TAG_DATA, (size_t)p->rank->world, sizeof *size), sum = 0;
    lvn_status s =
        size == NULL ? LVN_ERR_MEMORY
                     : lvni_dist_comm_all_gather_sized(p->rank->comm, p->chunk, bytes, &all, size);
    for (int i = 0; s == LVN_OK && i < p->rank->world; i++) {
        sum += size[i];
    }
    if (s == LVN_OK && p->rank->rank == 0) {
        memcpy(p->w->logits + first * classes, all, sum);
    }
    lvni_core_free(all);
    lvni_core_free(size);
    return s;
}

static lvn_status run_rounds(part *p)
{
    work *w = p->w;
    const int64_t n = w->array.shape[0], chunk = lvni_core_config_int(w->config, "eval_batch_size"),
                  classes = classes_of(p->exported);
    const bool leads = p->rank->rank == 0;
    LVN_TRY(lvni_trainer_lanes_create(1, p->rank->cores, &p->exported->card.pins, &p->lanes));
    p->chunk = lvni_core_alloc(LVNI_TAG_DATA,
                               (size_t)((chunk < n ? chunk : n) * classes) * sizeof *p->chunk);
    if (leads) { /* no other rank touches these */
        w->n_classes = classes;
        w->logits = lvni_core_alloc(LVNI_TAG_DATA, (size_t)(n * classes) * sizeof *w->logits);
    }
    if (p->chunk == NULL || (leads && w->logits == NULL)) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t first = 0; first < n; first += chunk * p->rank->world) {
        const int64_t left = n - first - chunk * p->rank->rank;
        p->first = first + chunk * p->rank->rank;
        p->n = left < 0 ? 0 : left < chunk ? left : chunk;
        LVN_TRY(p->n > 0 ? lvni_trainer_lanes_run(p->lanes, 1, forward, p) : LVN_OK);
        LVN_TRY(take_round(p, first));
    }
    return LVN_OK;
}

/* Fixed chunks, one after the other with all of the rank's cores. */
static lvn_status rank_work(void *user, const lvni_run_rank *rank)
{
    part p = {.w = user, .rank = rank};
    LVN_TRY(lvni_cpu_start());
    LVN_TRY(lvni_run_accelerator_use(p.w->config, rank->device));
    LVN_TRY(open_model(p.w, &p.exported));
    const lvn_status s = run_rounds(&p);
    lvni_core_free(p.chunk);
    lvni_trainer_lanes_destroy(p.lanes);
    lvni_run_exported_close(p.exported);
    return s;
}

static lvn_status write_logits(const work *w)
{
    const int64_t shape[] = {w->array.shape[0], w->n_classes};
    LVN_TRY(check_finite(w));
    const char *output = lvni_run_output_path(w->config);
    LVN_TRY(lvni_data_npy_write_f32(output, 2, shape, w->logits));
    if (!lvni_run_output_is_stdout(w->config)) {
        lvni_core_print(stdout, "logits (%lld, %lld) in %s\n", (long long)shape[0],
                        (long long)shape[1], output);
    }
    return LVN_OK;
}

static lvn_status open_array(const lvni_core_config *c, lvni_data_array *out)
{
    const lvn_status s = lvni_data_npy_open(lvni_core_config_str(c, "data"), out);
    if (s == LVN_ERR_NOT_FOUND) { /* a usage error, as with folders */
        LVN_FAIL(LVN_ERR_USAGE, "data: %s", lvn_last_error()->message);
    }
    if (s == LVN_OK && out->type >= LVNI_ARRAY_C64) {
        lvni_data_array_free(out);
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "data=%s holds complex numbers; images are real ones",
                 lvni_core_config_str(c, "data"));
    }
    return s;
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
        /* reading it may take long and is left to with_ranks() */
        return LVN_OK;
    }
    lvni_data_array late = {0};
    const lvn_status s = open_array(c, &late);
    lvni_data_array_free(&late);
    return s;
}

static lvn_status predict(work *w)
{
    LVN_TRY(open_array(w->config, &w->array));
    LVN_TRY(check(w));
    LVN_TRY(lvni_run_ranks_each(w->ranks, rank_work, w));
    return w->ranks->rank->rank == 0 ? write_logits(w) : LVN_OK;
}

/* Called by lvni_run_ranks_run. */
static lvn_status with_ranks(void *user, lvni_run_ranks *ranks)
{
    work *w = user;
    w->ranks = ranks;
    const lvn_status s = predict(w);
    lvni_core_free(w->logits);
    lvni_data_array_free(&w->array);
    return s;
}

lvn_status lvni_classify_predict_array(lvni_core_config *config,
                                       const lvni_run_ranks_command *command)
{
    work w = {.config = config};
    lvni_run_ranks_command c = *command;
    c.check = check_arguments;
    c.run = with_ranks;
    c.user = &w;
    return lvni_run_ranks_run(config, &c);
}
