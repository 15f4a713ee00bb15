/* Logits of an array of pictures (predict_array.h). */
#include "recipes/predict_array.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "data/npy.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "recipes/accelerator.h"
#include "recipes/exported.h"
#include "recipes/train_options.h"
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

bool lvni_is_array(const lvni_config *c)
{
    return is_npy(lvni_config_str(c, "data")) && (is_npy(lvni_config_str(c, "output")) || lvni_config_str(c, "weights") != NULL);
}

typedef struct work {
    const lvni_config *config;
    lvni_array array;
    lvni_exported *exported;
    lvni_lanes *lanes;
    int64_t first, n; /* of the chunk */
    float *logits;    /* (N, classes) */
} work;

static lvn_status check(const work *w)
{
    char shape[192];
    const char *data = lvni_config_str(w->config, "data"), *output = lvni_config_str(w->config, "output");
    if (w->array.ndim != 4 || w->array.shape[3] != 3 || w->array.count == 0) {
        LVN_FAIL(LVN_ERR_SHAPE, "data=%s is %s; needed are pictures (N, height, width, 3)", data, lvni_array_shape_text(&w->array, shape));
    }
    if (lvni_config_str(w->config, "sheet") != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "sheet= draws pictures of a folder; data=%s is an array of numbers", data);
    }
    if (!is_npy(output)) {
        LVN_FAIL(LVN_ERR_USAGE, "output=%s: of an array levin writes logits as an array; give a name that ends in .npy", output);
    }
    return lvni_file_check(output);
}

/* An array goes to the network as it is: what does not look like what it was trained on is worth a line. */
static void tell_unlike_training(const work *w)
{
    const char *data = lvni_config_str(w->config, "data");
    const int64_t height = w->array.shape[1], width = w->array.shape[2];
    const int size = w->exported->card.image_size;
    if (w->array.type < LVNI_ARRAY_F16) {
        lvni_log_line(LVNI_LOG_WARNING, "data=%s holds %s: the numbers are used as they are, and the network expects them normalised as in training; "
                      "without output=NAME.npy levin does that to uint8 pictures itself", data, lvni_array_type_name(w->array.type));
    }
    if (height != size || width != size) {
        lvni_log_line(LVNI_LOG_WARNING, "data=%s holds pictures of %lld x %lld (height x width), those of the training were %d x %d", data,
                      (long long)height, (long long)width, size, size);
    }
}

static lvn_status open_model(work *w)
{
    const char *model = lvni_config_str(w->config, "model"), *weights = lvni_config_str(w->config, "weights");
    if (model == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "model= is missing: a run directory or an exported .safetensors file, or with weights=FILE the name of a network");
    }
    const char *checkpoint = lvni_config_str(w->config, "checkpoint");
    if (weights == NULL) {
        LVN_TRY(lvni_exported_open(model, checkpoint, lvni_config_bool(w->config, "use_ema"), &w->exported));
        tell_unlike_training(w);
        return LVN_OK;
    }
    if (checkpoint != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "checkpoint=%s chooses within a run directory; with weights= model=%s names a network", checkpoint, model);
    }
    return lvni_exported_from_weights(model, weights, (int)w->array.shape[1], &w->exported);
}

/* One chunk, on the lane's thread. */
static lvn_status forward(void *user, int lane)
{
    (void)lane;
    const work *w = user;
    const int64_t *s = w->array.shape, shape[] = {w->n, s[1], s[2], s[3]}, classes = w->exported->card.n_classes;
    lvn_tensor *x = lvn_tensor_create(LVN_F32, 4, shape);
    if (x == NULL) {
        return LVN_ERR_MEMORY;
    }
    const int64_t each = s[1] * s[2] * s[3];
    lvn_status status = lvni_array_read_f32(&w->array, w->first * each, w->n * each, LVNI_F32(x));
    if (status == LVN_OK) {
        status = lvn_scope_open();
    }
    if (status == LVN_OK) {
        const bool before = lvn_set_grad_enabled(false);
        lvni_ctx_get()->at = (lvni_position){0};
        const lvn_tensor *y = lvn_forward(w->exported->model->root, x);
        if (y != NULL) {
            status = lvni_mem_copy(w->logits + w->first * classes, y->data, (size_t)(w->n * classes) * sizeof(float));
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
    const int64_t classes = w->exported->card.n_classes;
    for (int64_t i = 0; i < w->array.shape[0] * classes; i++) {
        if (!isfinite(w->logits[i])) {
            LVN_FAIL(LVN_ERR_NON_FINITE, "the model %s gives %g as a logit of picture %lld of data=%s: its weights or the numbers of that picture are not finite or too large",
                     lvni_config_str(w->config, "model"), (double)w->logits[i], (long long)(i / classes), lvni_config_str(w->config, "data"));
        }
    }
    return LVN_OK;
}

/* Fixed chunks, one after the other with all cores. */
static lvn_status run(work *w)
{
    const int64_t n = w->array.shape[0], chunk = lvni_config_int(w->config, "eval_batch_size");
    const int64_t shape[] = {n, w->exported->card.n_classes};
    LVN_TRY(lvni_lanes_create(1, lvni_usable_cores(), w->exported->card.wgrad_threads, &w->lanes));
    w->logits = lvni_alloc(LVNI_TAG_DATA, (size_t)(shape[0] * shape[1]) * sizeof *w->logits);
    if (w->logits == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (w->first = 0; w->first < n; w->first += w->n) {
        w->n = n - w->first < chunk ? n - w->first : chunk;
        LVN_TRY(lvni_lanes_run(w->lanes, 1, forward, w));
    }
    LVN_TRY(check_finite(w));
    const char *output = lvni_config_str(w->config, "output");
    LVN_TRY(lvni_npy_write_f32(output, 2, shape, w->logits));
    printf("logits (%lld, %lld) in %s\n", (long long)shape[0], (long long)shape[1], output);
    return LVN_OK;
}

lvn_status lvni_predict_array(const lvni_config *config)
{
    work w = {.config = config};
    lvn_status s = lvni_npy_open(lvni_config_str(config, "data"), &w.array);
    s = s == LVN_OK ? check(&w) : s;
    s = s == LVN_OK ? lvni_cpu_start() : s;
    s = s == LVN_OK ? lvni_accelerator_use(config, 0) : s;
    s = s == LVN_OK ? open_model(&w) : s;
    s = s == LVN_OK ? run(&w) : s;
    lvni_free(w.logits);
    lvni_lanes_destroy(w.lanes);
    lvni_exported_close(w.exported);
    lvn_device_use(LVN_CPU);
    lvni_array_free(&w.array);
    return s;
}
