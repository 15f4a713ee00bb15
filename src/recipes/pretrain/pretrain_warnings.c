/* What a pretraining warns of at its start, of keys that are allowed and seldom meant (pretrain.h):
 * once, on rank 0. */
#include "recipes/pretrain/pretrain.h"

#include "core/error.h"
#include "core/str.h"
#include "images/image_data.h"
#include "log/run_log.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the batch ---- */

static bool has_one_image(const lvni_run_job *job)
{
    const lvni_core_config *c = job->config;
    const bool each = lvni_core_config_is_set(c, "batch_size_per_device");
    const int64_t devices = job->ranks == NULL ? 1 : job->ranks->world,
                  batch = each ? devices * lvni_core_config_int(c, "batch_size_per_device")
                               : lvni_core_config_int(c, "batch_size");
    return batch == 1;
}

/* An error of all ranks, as each of them counts the same. */
static lvn_status check_comparisons(const lvni_run_job *job)
{
    if (has_one_image(job) && strcmp(lvni_core_config_str(job->config, "method"), "simclr") == 0) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "batch_size=1: method=simclr compares each image with the others of its batch, and "
            "there is none; give more images, or a larger batch_size");
    }
    return LVN_OK;
}

static void warn_of_one_image(const lvni_run_job *job, const lvni_pretrain_settings *s,
                              const lvni_pretrain_scale *scale)
{
    const lvni_core_config *c = job->config;
    if (has_one_image(job)) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "batch_size=1: a step has a single image, and method=%s learns from several "
                      "that it compares; give a larger batch_size",
                      lvni_core_config_str(c, "method"));
    } else if (scale->batch <= scale->micro_batches &&
               strcmp(lvni_core_config_str(c, "method"), "dinov2") == 0 &&
               s->dinov2.koleo_loss_weight > 0.0) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "micro_batches=%lld with batches of %lld: a micro-batch has a single image, "
                      "and train/koleo_loss, of the images of a micro-batch, is 0; give fewer "
                      "micro_batches, a larger batch_size, or method_args.koleo_loss_weight=0",
                      (long long)scale->micro_batches, (long long)scale->batch);
    }
}

/* ---- the teacher of distillation ---- */

static bool differ(const double *given, size_t n, const float expected[3])
{
    bool other = false;
    for (size_t i = 0; n > 0 && i < 3; i++) {
        other = other || fabs(given[i % n] - (double)expected[i]) > 1e-3;
    }
    return other;
}

static void print_numbers(const double *x, size_t n, lvni_core_str *out)
{
    for (size_t i = 0; i < n; i++) {
        lvni_core_str_printf(out, "%s%.4g", i == 0 ? "[" : ",", x[i]);
    }
    lvni_core_str_append(out, "]");
}

static void print_both(const double *mean, size_t n_mean, const double *std, size_t n_std,
                       lvni_core_str *out)
{
    lvni_core_str_append(out, "transform_args.normalize.mean=");
    print_numbers(mean, n_mean, out);
    lvni_core_str_append(out, " transform_args.normalize.std=");
    print_numbers(std, n_std, out);
}

/* It sees the student's views, with their normalisation. */
static lvn_status warn_of_normalisation(const lvni_core_config *c)
{
    lvni_images_preprocess p;
    bool known;
    size_t n_mean, n_std;
    const double *mean = lvni_core_config_float_list(c, "transform_args.normalize.mean", &n_mean),
                 *std = lvni_core_config_float_list(c, "transform_args.normalize.std", &n_std);
    LVN_TRY(lvni_images_preprocess_of_file(lvni_core_config_str(c, "method_args.teacher_weights"),
                                           &p, &known));
    if (!known || n_mean != 3 || (!differ(mean, n_mean, p.mean) && !differ(std, n_std, p.std))) {
        return LVN_OK;
    }
    const double own_mean[] = {(double)p.mean[0], (double)p.mean[1], (double)p.mean[2]},
                 own_std[] = {(double)p.std[0], (double)p.std[1], (double)p.std[2]};
    lvni_core_str text = {0};
    lvni_core_str_printf(&text,
                         "method_args.teacher=%s was trained with other images than its "
                         "student's views, which have ",
                         lvni_core_config_given(c, "method_args.teacher"));
    print_both(mean, n_mean, std, n_std, &text);
    lvni_core_str_append(&text, "; its own are ");
    print_both(own_mean, 3, own_std, 3, &text);
    const lvn_status s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        lvni_log_line(LVNI_LOG_WARNING, "%s", lvni_core_str_text(&text));
    }
    lvni_core_str_free(&text);
    return s;
}

/* Positions within an image are compared with each other. */
static void warn_of_small_maps(const lvni_core_config *c, const lvni_pretrain_settings *s)
{
    size_t n;
    const int64_t *size = lvni_core_config_int_list(c, "transform_args.image_size", &n);
    const char *models[] = {s->distill.teacher, s->model};
    for (int i = 0; i < 2 && n > 0 && s->distill.version == 3; i++) {
        const int height = lvni_nn_zoo_map_side(models[i], (int)size[0]),
                  width = lvni_nn_zoo_map_side(models[i], (int)size[n - 1]);
        if (height == 1 && width == 1 && s->distill.loss_local_weight > 0.0) {
            lvni_log_line(LVNI_LOG_WARNING,
                          "transform_args.image_size=%lld: the map of %s=%s has a single "
                          "position, so that nothing is learned within an image "
                          "(train/local_loss); give larger images",
                          (long long)size[0], i == 0 ? "method_args.teacher" : "model", models[i]);
            return;
        }
    }
}

/* ---- knn.data= ---- */

static bool is_in(const char *path, const char *folder, const char **rest)
{
    const size_t n = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
    *rest = path + n;
    return strncmp(path, folder, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* Of one entry of data=. That references are trained on is a usual protocol, so knn.data=DIR may
 * have data=DIR/train. */
static bool has_held(const char *entry, const char *held)
{
    static const char references[] = "/train";
    char pool[PATH_MAX], classes[PATH_MAX];
    const char *rest;
    if (realpath(entry, pool) == NULL || realpath(held, classes) == NULL) {
        return false;
    }
    return is_in(classes, pool, &rest) ||
           (is_in(pool, classes, &rest) && strncmp(rest, references, sizeof references - 1) != 0);
}

static bool has_held_shapes(const lvni_core_config *c)
{
    static const char shapes[] = "builtin:shapes";
    return strcmp(lvni_core_config_str(c, "data"), shapes) == 0 &&
           strcmp(lvni_core_config_str(c, "knn.data"), shapes) == 0 &&
           lvni_core_config_int(c, "data.seed") == lvni_core_config_int(c, "knn.seed");
}

static void warn_of_held(const lvni_core_config *c)
{
    size_t n;
    const char *held = lvni_core_config_str(c, "knn.data"), *data = lvni_core_config_str(c, "data");
    const char *const *entries = lvni_core_config_paths(c, "data", &n);
    bool found = held != NULL && n == 0 && (has_held_shapes(c) || has_held(data, held));
    for (size_t i = 0; held != NULL && i < n; i++) {
        found = found || has_held(entries[i], held);
    }
    if (found) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "knn.data=%s: images that val/knn is measured on are among those of data=%s, "
                      "which are trained on, so that it is too good; keep them apart",
                      held, data);
    }
}

lvn_status lvni_pretrain_warn(const lvni_run_job *job, const lvni_pretrain_settings *s,
                              const lvni_pretrain_scale *scale)
{
    const lvni_core_config *c = job->config;
    LVN_TRY(check_comparisons(job));
    if (job->ranks != NULL && job->ranks->rank->rank != 0) {
        return LVN_OK;
    }
    warn_of_one_image(job, s, scale);
    warn_of_held(c);
    if (!s->distill.taught) {
        return LVN_OK;
    }
    warn_of_small_maps(c, s);
    return warn_of_normalisation(c);
}
