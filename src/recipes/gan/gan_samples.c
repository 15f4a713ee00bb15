/* A trained sampler in use, on the way of inference.h: `predict` writes for every measurement the
 * mean and the deviation of its samples, and the samples; `eval` measures them against the truth
 * (gan_eval.c). */
#include "recipes/gan/gan_samples.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "core/math.h"
#include "core/vfs.h"
#include "data/array.h"
#include "data/inverse_truth.h"
#include "recipes/gan/gan_metrics.h"
#include "run/options.h"
#include "run/output_file.h"
#include "run/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- keys ---- */

#define DATA_ROWS                                                                                  \
    {.name = "data",                                                                               \
     .type = LVNI_OPT_PATH,                                                                        \
     .no_file = "builtin:",                                                                        \
     .check = lvni_gan_check_data,                                                                 \
     .help = "Folder of the maps, a file with a single map or volume, or builtin data; unset: "    \
             "those of the training."},                                                            \
        LVNI_OPTION_ALIAS("data_path", "data"),                                                    \
        {.name = "cosmo_dir_path",                                                                 \
         .type = LVNI_OPT_PATH,                                                                    \
         .help =                                                                                   \
             "mass_mapping: where the survey's mask and noise are now; unset: as in training, "    \
             "and without one there none."},                                                       \
        LVNI_OPTION_ALIAS("cosmos_dir_path", "cosmo_dir_path"),                                    \
        {.name = "sense_maps_path",                                                                \
         .type = LVNI_OPT_PATH,                                                                    \
         .help = "mri: where the coil maps are now; unset: as in training."},                      \
        {.name = "data.count",                                                                     \
         .type = LVNI_OPT_INT,                                                                     \
         .unit = "samples",                                                                        \
         .range = LVNI_AT_LEAST(1),                                                                \
         .flags = LVNI_OPT_AUTO,                                                                   \
         .help = "Builtin data: samples; auto: as in training."},                                  \
        {.name = "split",                                                                          \
         .type = LVNI_OPT_CHOICE,                                                                  \
         .choices = "train|val|test", /* in the order of lvni_data_inverse_split */                \
         .fallback = "test",                                                                       \
         .help = "Part of the data."},                                                             \
        {.name = "num_samples",                                                                    \
         .type = LVNI_OPT_INT,                                                                     \
         .unit = "samples",                                                                        \
         .fallback = "32",                                                                         \
         .range = LVNI_BETWEEN(2, LVNI_GAN_SAMPLES),                                               \
         .help = "Samples of each measurement."},                                                  \
        LVNI_OPTION_ALIAS("num_z_test", "num_samples")

static const lvni_core_option predict_rows[] = {
    DATA_ROWS,
    {.name = "output",
     .type = LVNI_OPT_PATH,
     .fallback = "predictions",
     .help =
         "Folder for np_avgs_<i>.npy and np_stds_<i>.npy, the mean and the deviation of the "
         "samples of measurement i in the units of the data. Those of an earlier prediction are "
         "removed from it."},
    {.name = "keep_samples",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .help = "The samples, too: np_samps_<i>.npy."},
};
static const lvni_core_option_table predict_table = LVNI_OPTION_TABLE("predict", predict_rows);

static const lvni_core_option eval_rows[] = {
    DATA_ROWS,
    {.name = "output",
     .type = LVNI_OPT_PATH,
     .help = "Folder for a page with the metrics and figures of some measurements, and for their "
             "arrays; with choose for one with the table of epochs; unset: only numbers."},
    {.name = "num_figs",
     .type = LVNI_OPT_INT,
     .unit = "measurements",
     .fallback = "1",
     .range = LVNI_AT_LEAST(0),
     .needs = "output&choose=none",
     .help = "So many of them have figures: the first ones of the data."},
    {.name = "seed",
     .type = LVNI_OPT_INT,
     .fallback = "1",
     .range = LVNI_AT_LEAST(0),
     .needs = "output&choose=none",
     .help = "Of the place that figures enlarge."},
    {.name = "choose",
     .type = LVNI_OPT_CHOICE,
     .choices = "none|cfid|rmse",
     .fallback = "none",
     .help = "The best epoch of a run: of the acceptable checkpoints in checkpoints/ the one with "
             "the least CFID of a sample (of num_samples, if that is given), or RMSE of the mean "
             "of num_samples, on split=val unless another is given, becomes the run's best."},
    {.name = "prune",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .needs = "choose=cfid|rmse",
     .help = "Then remove the other checkpoints, except last."},
};
static const lvni_core_option_table eval_table = LVNI_OPTION_TABLE("eval", eval_rows);

const lvni_core_option_table *const lvni_gan_predict_keys[] = {&lvni_run_inference_options,
                                                               &predict_table, NULL};
const lvni_core_option_table *const lvni_gan_eval_keys[] = {&lvni_run_inference_options,
                                                            &eval_table, NULL};

/* ---- samples ---- */

/* (N, n_samples H W out_chans), normalised */
lvn_tensor *lvni_gan_samples(const lvn_module *root, const lvn_batch *batch, void *user)
{
    const lvni_run_inference *u = user;
    const lvni_gan_work *w = u->own;
    lvn_tensor *sample[LVNI_GAN_SAMPLES] = {NULL};
    char name[16];
    for (int i = 0; i < w->n_samples; i++) {
        snprintf(name, sizeof name, "z%d", i);
        sample[i] = lvni_gan_sample(root, batch, name);
    }
    return lvn_flatten(lvn_stack(sample, w->n_samples, 1), 1);
}

/* ---- the data ---- */

static lvn_status take_mask(lvni_gan_work *w)
{
    const double *mask = lvni_data_inverse_mask(w->data);
    if (mask == NULL) {
        return LVN_OK;
    }
    w->mask = lvni_core_calloc(LVNI_TAG_DATA, (size_t)w->pixels, sizeof *w->mask);
    for (int64_t i = 0; i < w->pixels && w->mask != NULL; i++) {
        w->mask[i] = mask[i] != 0.0;
    }
    return w->mask != NULL ? LVN_OK : LVN_ERR_MEMORY;
}

static lvn_status open_item(lvni_gan_work *w)
{
    const lvni_nn_rcgan_sizes *s = &w->settings->sizes;
    const size_t pixels = (size_t)s->im_size * (size_t)s->im_size;
    lvn_field field[LVN_MAX_FIELDS];
    w->pixels = (int64_t)pixels;
    w->n_fields = w->data->cls->fields(w->data, field);
    for (int i = 0; i < w->n_fields; i++) {
        size_t n = 1;
        for (int d = 0; d < field[i].ndim; d++) {
            n *= (size_t)field[i].shape[d];
        }
        w->field[i] = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof(float));
        if (w->field[i] == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    w->sum = lvni_core_calloc(LVNI_TAG_DATA, pixels * (size_t)s->out_chans, sizeof *w->sum);
    w->mean = lvni_core_calloc(LVNI_TAG_DATA, pixels * (size_t)s->out_chans, sizeof *w->mean);
    w->images = lvni_core_calloc(LVNI_TAG_DATA, pixels * (size_t)w->n_samples, sizeof *w->images);
    w->image = lvni_core_calloc(LVNI_TAG_DATA, 3 * pixels, sizeof *w->image);
    w->std = lvni_core_calloc(LVNI_TAG_DATA, pixels, sizeof *w->std);
    return w->sum == NULL || w->mean == NULL || w->images == NULL || w->image == NULL ||
                   w->std == NULL
               ? LVN_ERR_MEMORY
               : take_mask(w);
}

/* Of radio images it takes three arrays. */
static lvn_status check_file(const lvni_data_inverse_options *o)
{
    struct stat info;
    if (o->experience == LVNI_INVERSE_RADIO && stat(o->path, &info) == 0 && S_ISREG(info.st_mode)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data=%s is a file: radio images are a folder with test/x.npy, test/y.npy and "
                 "test/uv.npy, each (1, %d, %d) for a single one",
                 o->path, o->im_size, o->im_size);
    }
    return LVN_OK;
}

lvn_status lvni_gan_open_measurements(lvni_run_job *q, lvni_gan_job *out)
{
    lvni_data_inverse_options o;
    const lvni_data_inverse_split split =
        (lvni_data_inverse_split)lvni_core_config_choice(q->config, "split");
    if (!lvni_core_config_is_set(q->keys, "data")) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "data is unset: give data=DIR, or leave the key out for the data of "
                 "the training");
    }
    LVN_TRY(lvni_gan_resolve_folders(q->keys));
    lvni_gan_data_options(q->keys, split, &o);
    if (lvni_core_config_is_set(q->config, "data.count")) {
        o.count = lvni_core_config_int(q->config, "data.count");
    }
    o.one_file = true;
    LVN_TRY(check_file(&o));
    LVN_TRY(lvni_data_inverse_open(&o, &out->used));
    q->used = out->used;
    return LVN_OK;
}

/* ---- an item ---- */

void lvni_gan_image(const lvni_gan_work *w, const float *x, float *out)
{
    const int c = w->settings->sizes.out_chans;
    const double mean = (double)w->field[LVNI_GAN_MEAN][0], std = (double)w->field[LVNI_GAN_STD][0];
    const bool mri = w->settings->experience == LVNI_INVERSE_MRI,
               mass = w->settings->experience == LVNI_INVERSE_MASS;
    for (int64_t i = 0; i < w->pixels; i++) {
        const float *at = x + i * c;
        double re = (double)at[0] * std + mean, im = 0.0;
        if (mri) {
            const float *map = w->field[LVNI_GAN_MAPS] + i * c;
            re = 0.0;
            for (int k = 0; k < c / 2; k++) {
                const double a = (double)at[k] * std + mean, b = (double)at[c / 2 + k] * std + mean,
                             p = (double)map[k], q = (double)map[c / 2 + k];
                re += p * a + q * b;
                im += p * b - q * a;
            }
        } else if (c > 1 && !mass) {
            im = (double)at[1] * std + mean;
        }
        const double length = lvni_core_sqrt(re * re + im * im);
        out[i] = (float)(mri || (c > 1 && !mass) ? length : re);
    }
}

const float *lvni_gan_truth(const lvni_gan_work *w)
{
    return w->image + 2 * w->pixels;
}

static lvn_status read_item(lvni_gan_work *w, int64_t sample)
{
    void *field[LVN_MAX_FIELDS];
    for (int i = 0; i < w->n_fields; i++) {
        field[i] = w->field[i];
    }
    const lvn_sample_key key = {.sample = sample};
    return w->data->cls->get(w->data, &key, field);
}

/* Images of all samples, of their mean (taken of what the network gives), and the deviation. */
static void take_samples(lvni_gan_work *w, const float *value)
{
    const int64_t n = w->pixels * w->settings->sizes.out_chans;
    memset(w->sum, 0, (size_t)n * sizeof *w->sum);
    for (int s = 0; s < w->n_samples; s++) {
        lvni_gan_image(w, value + s * n, w->images + s * w->pixels);
        for (int64_t i = 0; i < n; i++) {
            w->sum[i] += (double)value[s * n + i];
            w->mean[i] = (float)(w->sum[i] / (s + 1));
        }
        if (w->with_mean != NULL) {
            lvni_gan_image(w, w->mean, w->image);
            w->with_mean(w, s + 1);
        }
    }
    lvni_gan_image(w, w->mean, w->image);
    lvni_gan_mean_std(w->images, w->n_samples, w->pixels, NULL, w->std);
}

lvn_status lvni_gan_take_row(lvni_run_inference *u, int64_t sample, const float *value, int64_t k)
{
    lvni_gan_work *w = u->own;
    for (int64_t i = 0; i < k; i++) {
        if (!isfinite(value[i])) {
            LVN_FAIL(
                LVN_ERR_NON_FINITE, "the model %s gives %g as a sample: its weights are not finite",
                lvni_core_config_str(u->config, "model"), lvni_core_unsigned_nan((double)value[i]));
        }
    }
    LVN_TRY(read_item(w, sample));
    lvni_gan_image(w, w->field[LVNI_GAN_X], w->image + 2 * w->pixels);
    take_samples(w, value);
    u->n++;
    return w->item(w, sample, value);
}

/* ---- the work ---- */

lvn_status lvni_gan_work_create(lvni_run_inference *u, int n_samples, void *own,
                                lvni_gan_work **out)
{
    lvni_gan_work *w = *out = u->own = LVNI_NEW(LVNI_TAG_DATA, lvni_gan_work);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    w->use = u;
    w->n_samples = n_samples;
    w->own = own;
    w->settings = u->exported->job.arguments;
    w->data = u->data;
    return open_item(w);
}

void lvni_gan_work_destroy(lvni_gan_work *w)
{
    if (w == NULL) {
        return;
    }
    for (int i = 0; i < LVN_MAX_FIELDS; i++) {
        lvni_core_free(w->field[i]);
    }
    lvni_core_free(w->sum);
    lvni_core_free(w->mean);
    lvni_core_free(w->images);
    lvni_core_free(w->image);
    lvni_core_free(w->std);
    lvni_core_free(w->mask);
    lvni_core_free(w);
}

/* ---- predict ---- */

static lvn_status write_array(const lvni_gan_work *w, const char *name, int64_t sample, int n,
                              const float *data)
{
    const int64_t side = w->settings->sizes.im_size;
    lvni_core_str path = {0};
    lvni_core_str_printf(&path, "%s/np_%s_%lld.npy", w->folder, name, (long long)sample);
    lvn_status s = lvni_core_str_status(&path);
    if (s == LVN_OK) {
        s = lvni_data_npy_write_f32(
            lvni_core_str_text(&path), n > 0 ? 3 : 2,
            n > 0 ? (const int64_t[]){n, side, side} : (const int64_t[]){side, side}, data);
    }
    lvni_core_str_free(&path);
    return s;
}

static lvn_status write_item(lvni_gan_work *w, int64_t sample, const float *value)
{
    (void)value;
    LVN_TRY(write_array(w, "avgs", sample, 0, w->image));
    LVN_TRY(write_array(w, "stds", sample, 0, w->std));
    return lvni_core_config_bool(w->use->config, "keep_samples")
               ? write_array(w, "samps", sample, w->n_samples, w->images)
               : LVN_OK;
}

lvn_status lvni_gan_make_folder(lvni_gan_work *w)
{
    w->folder = lvni_core_config_str(w->use->config, "output");
    return w->folder == NULL || !lvni_run_inference_leads(w->use) ? LVN_OK
                                                                  : lvni_core_mkdirs(w->folder);
}

/* "np_avgs_12.npy", as write_array names them. */
static bool is_ours(const char *name)
{
    static const char *const kinds[] = {"np_avgs_", "np_stds_", "np_samps_"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t n = strlen(kinds[i]);
        const size_t digits = strncmp(name, kinds[i], n) == 0 ? strspn(name + n, "0123456789") : 0;
        if (digits > 0 && strcmp(name + n + digits, ".npy") == 0) {
            return true;
        }
    }
    return false;
}

/* A prediction of fewer measurements is not to stand beside the rest of an earlier one. */
static lvn_status remove_earlier(const char *folder)
{
    DIR *dir = opendir(folder);
    lvn_status s = LVN_OK;
    if (dir == NULL) {
        LVN_FAIL(LVN_ERR_IO, "output=%s: cannot read the folder: %s", folder, strerror(errno));
    }
    for (const struct dirent *e; s == LVN_OK && (e = readdir(dir)) != NULL;) {
        if (is_ours(e->d_name)) {
            char *path = lvni_run_path_join(folder, e->d_name);
            s = path == NULL ? LVN_ERR_MEMORY : lvni_core_file_remove(path);
            lvni_core_free(path);
        }
    }
    closedir(dir);
    return s;
}

static lvn_status begin_predict(lvni_run_inference *u)
{
    lvni_gan_work *w;
    LVN_TRY(lvni_gan_work_create(u, (int)lvni_core_config_int(u->config, "num_samples"), NULL, &w));
    w->item = write_item;
    LVN_TRY(lvni_gan_make_folder(w));
    return lvni_run_inference_leads(u) ? remove_earlier(w->folder) : LVN_OK;
}

static void end_predict(lvni_run_inference *u)
{
    lvni_gan_work_destroy(u->own);
}

static lvn_status check_predict(const lvni_core_config *c)
{
    static const char *const files[] = {".csv", ".jsonl", ".npy"};
    const char *output = lvni_core_config_str(c, "output");
    if (lvni_core_config_bool(c, "json")) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "json=true: samples are arrays in the folder output=DIR; levin eval "
                 "has numbers as JSON");
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (lvni_run_output_ends_in(output, files[i], strlen(files[i]))) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "output=%s is the name of a file: samples are arrays in a folder, .npy files "
                     "for each measurement; give output=DIR",
                     output);
        }
    }
    return lvni_run_inference_check(c);
}

static lvn_status report_written(lvni_run_inference *u)
{
    const lvni_gan_work *w = u->own;
    lvni_core_print(stdout, "%lld measurement%s, %d samples each, in %s\n", (long long)u->n,
                    lvni_core_plural(u->n, "", "s"), w->n_samples, w->folder);
    return LVN_OK;
}

const lvni_run_results lvni_gan_predictions = {.check = check_predict,
                                               .begin = begin_predict,
                                               .output = lvni_gan_samples,
                                               .row = lvni_gan_take_row,
                                               .finish = report_written,
                                               .end = end_predict};
