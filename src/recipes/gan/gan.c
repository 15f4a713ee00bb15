/* The recipe gan: posterior samples of inverse problems with a regularised conditional GAN
 * (Bendel, Ahmad & Schniter 2023). The row of the registry; keys are gan_keys.c's, the step is
 * gan_step.c's. */
#include "recipes/gan/gan.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "recipes/gan/gan_preview.h"
#include "recipes/gan/gan_samples.h"
#include "run/options.h"
#include "run/run_dir.h"

#include <string.h>

lvn_status lvni_gan_load_saved(const lvni_core_config *c, lvni_core_config **out)
{
    const char *dir = lvni_core_config_str(c, "out");
    char *path = dir == NULL ? NULL : lvni_run_path_join(dir, "config.yaml");
    *out = NULL;
    lvn_status s = LVN_OK;
    if (path != NULL && lvni_core_path_exists(path)) {
        LVNI_TRY_DONE(s, lvni_core_config_create(lvni_gan_train_keys, out));
        s = lvni_core_config_load_file(*out, LVNI_LAYER_SAVED, path);
    }
done:
    lvni_core_free(path);
    return s;
}

/* Unset in the configuration that the run in `out` has saved; false: there is none. */
static lvn_status saved_without(const lvni_core_config *c, const char *key, bool *without)
{
    lvni_core_config *saved;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_gan_load_saved(c, &saved));
    *without = saved != NULL && !lvni_core_config_is_set(saved, key);
done:
    lvni_core_config_destroy(saved);
    return s;
}

/* NULL: the folder can be used. */
static const char *fault_of(const char *key, const char *path)
{
    if (!lvni_core_path_exists(path)) {
        return "there is no such folder";
    }
    return strcmp(key, "sense_maps_path") != 0 || lvni_data_inverse_has_maps(path)
               ? NULL
               : "it has no .npy file with the maps of a volume (those of rcGAN, a .pkl file for "
                 "each slice, are not read)";
}

static lvn_status refuse_folder(const lvni_core_config *c, const char *key, const char *path,
                                const char *fault, const char *otherwise)
{
    const char *origin = lvni_core_config_origin(c, key);
    if (lvni_core_path_exists(path)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s %s: %s: give %s=DIR, a folder with them, or leave it out, and %s  (%s)", key,
                 path, fault, key, otherwise, origin);
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "%s %s: %s, and without it the data would be others: give %s=DIR, where it is now  "
             "(%s)",
             key, path, fault, key, origin);
}

/* A folder that a file of the original names, and another machine has, or that has nothing for
 * levin: a new run goes without it, and its saved configuration has that, so that nothing changes
 * where the folder comes back. */
static lvn_status resolve_folder(lvni_core_config *c, const char *key, const char *otherwise)
{
    const char *path = lvni_core_config_str(c, key);
    if (path == NULL) {
        return LVN_OK;
    }
    const char *fault = fault_of(key, path);
    const bool resumes = lvni_core_config_is_on(c, "resume");
    bool without = lvni_gan_is_of_original(c, key);
    if (without && resumes) {
        LVN_TRY(saved_without(c, key, &without));
    }
    if (fault == NULL && !(without && resumes)) {
        return LVN_OK;
    }
    if (!without) {
        return refuse_folder(c, key, path, fault, otherwise);
    }
    lvni_log_line(LVNI_LOG_WARNING, "%s %s: %s: %s  (%s)", key, path,
                  fault != NULL ? fault
                                : "the run began without it and goes on so, unless the key stands "
                                  "on the command line",
                  otherwise, lvni_core_config_origin(c, key));
    return lvni_core_config_set(c, key, "null", "a folder that is missing");
}

lvn_status lvni_gan_resolve_folders(lvni_core_config *c)
{
    LVN_TRY(resolve_folder(c, "cosmo_dir_path", "no mask, and the same noise everywhere"));
    return resolve_folder(c, "sense_maps_path", "coil maps are estimated");
}

static lvn_status open_data(const lvni_core_config *c, lvni_gan_job *o)
{
    lvni_data_inverse_options data;
    lvni_gan_data_options(c, LVNI_INVERSE_TRAIN, &data);
    LVN_TRY(lvni_data_inverse_open(&data, &o->train));
    lvni_gan_data_options(c, LVNI_INVERSE_VAL, &data);
    return lvni_data_inverse_open(&data, &o->val);
}

static void describe(const lvni_core_config *c, lvni_gan_job *o)
{
    const lvni_nn_rcgan_sizes *s = &o->settings.sizes;
    const int64_t n = o->train->cls->length(o->train), v = o->val->cls->length(o->val);
    lvni_core_str_printf(&o->note,
                         "%s: %lld measurement%s of %d x %d to train on, %lld to validate with",
                         lvni_core_config_str(c, "experience"), (long long)n,
                         lvni_core_plural(n, "", "s"), s->im_size, s->im_size, (long long)v);
    if (!s->unused) {
        lvni_core_str_printf(&o->note,
                             "; %lld parameters that the original's generator never runs are left "
                             "out",
                             (long long)lvni_nn_rcgan_unused(s));
    }
}

static void report_notes(const lvni_core_config *c)
{
    lvni_core_str text = {0};
    lvni_gan_print_notes(c, &text);
    for (char *line = text.data, *end; line != NULL; line = end) {
        end = strchr(line, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        lvni_log_line(LVNI_LOG_INFO, "%s", line);
    }
    lvni_core_str_free(&text);
}

static int image_every(const lvni_core_config *c, const lvni_gan_job *o)
{
    const int usual = o->settings.experience == LVNI_INVERSE_MRI ? 5 : 1;
    return lvni_core_config_is_set(c, "image_every_n_epochs")
               ? (int)lvni_core_config_int(c, "image_every_n_epochs")
               : usual;
}

/* From here on validations are real: estimates of memory run their step before. */
static lvn_status begin(void *user, const char *dir)
{
    const lvni_gan_job *o = user;
    (void)dir;
    lvni_gan_preview_begin(o->settings.preview);
    return LVN_OK;
}

static lvn_status open_training(lvni_run_job *request, lvni_gan_job *o)
{
    lvni_core_config *c = request->config;
    request->preview_every = image_every(c, o);
    LVN_TRY(request->preview_every == 0
                ? LVN_OK
                : lvni_gan_preview_create(o->settings.sizes.im_size, &o->settings.preview));
    o->settings.warned = &o->warned;
    LVN_TRY(lvni_gan_resolve_folders(c));
    if (request->ranks == NULL || request->ranks->rank->rank == 0) {
        report_notes(c); /* what a file was taken for explains errors of the data */
    }
    LVN_TRY(open_data(c, o));
    describe(c, o);
    LVN_TRY(lvni_core_str_status(&o->note));
    request->train = o->train;
    request->val = o->val;
    request->note = lvni_core_str_text(&o->note);
    request->model = "rcgan";
    request->write_files = begin;
    request->user = o;
    return LVN_OK;
}

static lvn_status open_network(lvni_run_job *request)
{
    lvni_gan_job *o = request->state = LVNI_NEW(LVNI_TAG_DATA, lvni_gan_job);
    if (o == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(lvni_gan_read_settings(request->keys, &o->settings));
    request->cls = &lvni_gan_class;
    request->arguments = &o->settings;
    return LVN_OK;
}

static lvn_status open_job(lvni_run_job *request)
{
    LVN_TRY(request->state == NULL ? open_network(request) : LVN_OK);
    lvni_gan_job *o = request->state;
    return request->purpose == LVNI_RUN_TRAIN    ? open_training(request, o)
           : request->purpose == LVNI_RUN_EXPORT ? LVN_OK
                                                 : lvni_gan_open_measurements(request, o);
}

static void close_job(lvni_run_job *request)
{
    lvni_gan_job *o = request->state;
    if (o != NULL) {
        lvn_dataset_destroy(o->train);
        lvn_dataset_destroy(o->val);
        lvn_dataset_destroy(o->used);
        lvni_core_str_free(&o->note);
        lvni_gan_preview_destroy(o->settings.preview);
        lvni_core_free(o);
        request->state = NULL;
    }
}

static void summary(const lvni_run_job *job, lvni_core_str *out)
{
    const lvni_nn_rcgan_sizes *s = &((const lvni_gan_job *)job->state)->settings.sizes;
    lvni_core_str_printf(out, " of %d x %d pixels, %d to %d channels", s->im_size, s->im_size,
                         s->in_chans, s->out_chans);
}

static lvn_tensor *images(const lvn_module *root, const lvn_batch *batch, const lvni_run_job *job)
{
    (void)root;
    (void)batch;
    return lvni_gan_preview_images(((const lvni_gan_job *)job->state)->settings.preview);
}

static const lvni_run_preview preview = {.images = images,
                                         .draw = lvni_gan_preview_draw,
                                         .needs_cairo = true,
                                         .before = lvni_gan_validations};

const lvni_run_recipe lvni_gan_recipe = {
    .name = "gan",
    .use = "data=DIR|builtin:mass [key=value ...]",
    .help = "train a sampler of what was measured (rcGAN: mass maps, MRI, radio)",
    .defaults = {.job = "max_epochs=100 batch_size=8 optim=adam optim.lr=1e-3 optim.betas=[0,0.99] "
                        "optim.weight_decay=0 checkpoint.monitor=val/score checkpoint.mode=max "
                        "checkpoint.save_top_k=20",
                 .prepare = lvni_gan_prepare},
    .model_keys = "gen_*, disc_*, the channels and im_size",
    .size_key = "im_size",
    .keys = lvni_gan_train_keys,
    .takes_file = lvni_gan_is_original,
    .sign = lvni_gan_sign,
    .network = open_network,
    .open = open_job,
    .close = close_job,
    .preview = &preview,
    .card = &lvni_run_general_card,
    .noun = "sampler",
    .summary = summary,
    .own = &lvni_gan_options,
    .predict_keys = lvni_gan_predict_keys,
    .predict = &lvni_gan_predictions,
    .eval_keys = lvni_gan_eval_keys,
    .eval = &lvni_gan_measures,
    .choice = &lvni_gan_choice,
    .export_keys = lvni_run_export_keys};
