/* The recipe pose (pose.h) as a row of the registry: labels, frames and network of a training, and
 * the label file that a trained network is used on. */
#include "recipes/pose/pose.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/str.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "recipes/pose/pose_context.h"
#include "recipes/pose/pose_frames.h"
#include "recipes/pose/pose_keys.h"
#include "recipes/pose/pose_labeled.h"
#include "recipes/pose/pose_page.h"
#include "recipes/pose/pose_split.h"
#include "recipes/pose/pose_stream.h"
#include "recipes/pose/pose_video.h"
#include "run/card.h"
#include "run/inference.h"
#include "run/options.h"
#include "run/run_dir.h"
#include "run/weights.h"

#include <stdio.h>
#include <string.h>

typedef struct opened {
    lvni_pose_settings settings; /* of the training */
    lvni_pose_arguments arguments;
    lvni_pose_labels labels;
    char *file;                   /* that they are of */
    lvni_core_str folder;         /* that the paths of their images are relative to */
    int8_t *set;                  /* of each frame; NULL: not a training file's */
    int64_t *at;                  /* frames of the training, then those of the validation, or all */
    lvni_pose_pipeline *pipeline; /* of training frames */
    lvn_dataset *train, *val, *used;
    lvni_pose_stream clips; /* of training */
    lvni_pose_fits fits;
    lvn_card facts;
    lvni_core_str note, identity;
    lvni_pose_progress progress;
    lvni_pose_used shown;
} opened;

const lvni_pose_used *lvni_pose_used_of(const lvni_run_job *job)
{
    return &((const opened *)job->state)->shown;
}

/* ---- frames ---- */

static lvn_status open_frames(const opened *o, const int64_t *at, int64_t n,
                              const lvni_pose_pipeline *pipeline, lvn_dataset **out)
{
    const lvni_pose_settings *s = &o->settings;
    const lvni_pose_frames_options options = {.labels = &o->labels,
                                              .data_dir = lvni_core_str_text(&o->folder),
                                              .at = at,
                                              .n = n,
                                              .height = s->height,
                                              .width = s->width,
                                              .pipeline = pipeline,
                                              .uniform_for_nan = s->uniform_for_nan,
                                              .context = s->type == LVNI_POSE_CONTEXT};
    return lvni_pose_frames_open(&options, out);
}

/* Frames of the set, appended to o->at from `begin` on. */
static int64_t list_set(const opened *o, lvni_pose_set set, int64_t begin)
{
    int64_t n = 0;
    for (int64_t i = 0; i < o->labels.n; i++) {
        if (o->set[i] == (int8_t)set) {
            o->at[begin + n++] = i;
        }
    }
    return n;
}

/* ---- training ---- */

/* Which frames are of which set. */
static lvn_status divide(opened *o)
{
    const lvni_pose_settings *s = &o->settings;
    o->set = lvni_core_calloc(LVNI_TAG_DATA, (size_t)o->labels.n, sizeof *o->set);
    if (o->set == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(s->split != NULL ? lvni_pose_split_read(s->split, &o->labels, o->set)
                             : lvni_pose_split(o->labels.n, s->train_prob, s->val_prob,
                                               s->train_frames, s->seed_data, o->set));
    return lvni_pose_split_check(&o->labels, o->set);
}

/* ---- which labels these are ---- */

static const char fact_labels[] = "labels", fact_split[] = "split";

/* Names, coordinates and files. */
static uint64_t hash_labels(const lvni_pose_labels *l)
{
    const size_t numbers = (size_t)l->n * (size_t)l->k;
    uint64_t h = lvni_core_hash(LVNI_CORE_HASH, l->xy, 2 * numbers * sizeof *l->xy);
    h = l->visible == NULL ? h : lvni_core_hash(h, l->visible, numbers * sizeof *l->visible);
    for (int i = 0; i < l->k; i++) {
        h = lvni_core_hash_text(h, l->keypoint[i]);
    }
    for (int64_t i = 0; i < l->n; i++) {
        h = lvni_core_hash_text(h, l->image[i]);
    }
    return h;
}

static const char *print_hash(uint64_t h, char text[24])
{
    snprintf(text, 24, "%016llx", (unsigned long long)h);
    return text;
}

static uint64_t hash_sets(const opened *o)
{
    return lvni_core_hash(hash_labels(&o->labels), o->set, (size_t)o->labels.n);
}

/* The data in a model's card, and what predictions know the training's frames by: the
 * letters of their sets. */
static lvn_status identify(opened *o)
{
    const lvni_pose_labels *l = &o->labels;
    char text[24];
    lvni_core_str sets = {0};
    for (int64_t i = 0; i < l->n; i++) {
        lvni_core_str_char(&sets, (char)('0' + o->set[i]));
    }
    lvni_core_str_printf(&o->identity, "%lld frames, %d keypoints, %s", (long long)l->n, l->k,
                         print_hash(hash_sets(o), text));
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&sets));
    LVNI_TRY_DONE(s, lvni_core_str_status(&o->identity));
    LVNI_TRY_DONE(s, lvn_card_set(&o->facts, fact_labels, print_hash(hash_labels(l), text)));
    s = lvn_card_set(&o->facts, fact_split, lvni_core_str_text(&sets));
done:
    lvni_core_str_free(&sets);
    return s;
}

/* The sets of the training, where the labels are its labels. */
static lvn_status find_sets(opened *o, const lvn_card *facts)
{
    char text[24];
    const char *labels = facts == NULL ? NULL : lvn_card_text(facts, fact_labels),
               *sets = facts == NULL ? NULL : lvn_card_text(facts, fact_split);
    const size_t n = (size_t)o->labels.n;
    if (labels == NULL || sets == NULL || strlen(sets) != n || strspn(sets, "0123") != n ||
        strcmp(labels, print_hash(hash_labels(&o->labels), text)) != 0) {
        return LVN_OK;
    }
    o->set = lvni_core_calloc(LVNI_TAG_DATA, n, sizeof *o->set);
    for (size_t i = 0; o->set != NULL && i < n; i++) {
        o->set[i] = (int8_t)(sets[i] - '0');
    }
    return o->set == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static lvn_status describe(opened *o)
{
    int64_t count[LVNI_POSE_SETS];
    lvni_pose_split_count(o->set, o->labels.n, count);
    lvni_core_str_printf(&o->note,
                         "%lld frames with %d keypoints: %lld train, %lld validate, %lld test",
                         (long long)o->labels.n, o->labels.k, (long long)count[LVNI_POSE_TRAIN],
                         (long long)count[LVNI_POSE_VALIDATION], (long long)count[LVNI_POSE_TEST]);
    if (count[LVNI_POSE_UNUSED] > 0) {
        lvni_core_str_printf(&o->note, ", %lld unused", (long long)count[LVNI_POSE_UNUSED]);
    }
    lvni_core_str remarks = {0};
    lvni_pose_labels_remarks(&o->labels, &remarks);
    if (remarks.len > 0) {
        lvni_core_str_printf(&o->note, "; %s", lvni_core_str_text(&remarks));
    }
    lvni_core_str_free(&remarks);
    lvni_core_str_append(&o->note, o->clips.stream.dataset != NULL ? "; " : "");
    lvni_pose_stream_describe(&o->clips, &o->note);
    return lvni_core_str_status(&o->note);
}

/* The label file's copy, so that the run shows what it learned from. */
static lvn_status write_files(void *user, const char *dir)
{
    opened *o = user;
    lvni_core_str path = {0};
    char *text = NULL;
    size_t bytes;
    lvn_status s;
    lvni_core_str_printf(&path, "%s/%s", dir, lvni_pose_base_name(o->file));
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_core_file_read(o->file, SIZE_MAX, &text, &bytes));
    LVNI_TRY_DONE(s, lvni_core_file_write(lvni_core_str_text(&path), text, bytes));
    LVNI_TRY_DONE(s,
                  o->arguments.clips ? lvni_pose_clips_keep(o->clips.stream.dataset, dir) : LVN_OK);
    s = lvni_pose_progress_begin(&o->progress, dir);
done:
    lvni_core_free(text);
    lvni_core_str_free(&path);
    return s;
}

/* ---- weights of the backbone ---- */

/* Where weights= is not given: the file that the backbone is named for, from where torch keeps it;
 * else a sentence on where it is, and first weights of this run. */
static lvn_status find_weights(lvni_core_config *c, const opened *o, bool leads)
{
    const lvni_pose_settings *s = &o->settings;
    char *path = NULL;
    if (lvni_core_config_is_set(c, "weights") || !s->pretrained ||
        lvni_core_config_bool(c, "resume")) {
        return LVN_OK;
    }
    LVN_TRY(lvni_run_source_cached(s->backbone, &path));
    if (path != NULL) {
        const lvn_status status = lvni_core_config_set(c, "weights", path, "torch's cache");
        lvni_core_free(path);
        return status;
    }
    const lvni_run_source_place place = lvni_run_source_of(s->backbone);
    if (lvni_core_config_bool(c, "strict")) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "model.backbone=%s: its weights are not here: get %s%s, then give weights=%s; or "
                 "model.backbone_pretrained=false",
                 s->backbone, place.folder, place.file, place.file);
    }
    if (leads) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "model.backbone=%s: the backbone begins with random weights, as its own are "
                      "not here: get %s%s, then give weights=%s (model.backbone_pretrained=false "
                      "leaves this line out, strict=true makes it an error)",
                      s->backbone, place.folder, place.file, place.file);
    }
    return LVN_OK;
}

/* Importance begins to grow behind this epoch. */
static void warn_importance(const opened *o, int64_t steps, int64_t steps_per_epoch)
{
    const lvni_pose_settings *s = &o->settings;
    if (o->clips.stream.dataset != NULL && s->anneal_init == 0.0 && steps > 0 &&
        (steps - 1) / steps_per_epoch <= s->anneal_from_epoch) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "callbacks.anneal_weight.freeze_until_epoch=%lld: the losses of "
                      "model.losses_to_use count 0 in all of the run's %lld step%s, as "
                      "callbacks.anneal_weight.init_val is 0: train longer, or give a larger one",
                      (long long)s->anneal_from_epoch, (long long)steps,
                      lvni_core_plural(steps, "", "s"));
    }
}

/* The best checkpoint is one of a validation. */
static lvn_status warn_end(lvni_core_config *c, const lvni_run_job *job, const opened *o,
                           int64_t frames)
{
    lvni_plan plan;
    int64_t steps;
    const lvni_run_rank *rank = job->ranks == NULL ? NULL : job->ranks->rank;
    LVN_TRY(lvni_run_count_steps(c, frames, rank, &plan, &steps));
    const int64_t every = lvni_core_config_int(c, "check_val_every_n_epoch"),
                  first = every * plan.steps_per_epoch;
    const bool leads = rank == NULL || rank->rank == 0;
    if (leads) {
        warn_importance(o, steps, plan.steps_per_epoch);
    }
    if (every > 0 && steps < first && steps > 0 && leads) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "the run ends after %lld step%s, before its first validation after step %lld "
                      "(check_val_every_n_epoch=%lld): its last checkpoint counts as the best",
                      (long long)steps, lvni_core_plural(steps, "", "s"), (long long)first,
                      (long long)every);
    }
    return LVN_OK;
}

/* A decoded frame, and what an augmentation makes of it. */
enum { BYTES_OF_A_PIXEL = 9 };

/* Steps take clips beside labelled frames where a loss is of them. */
static void give_clips(lvni_run_job *job, opened *o)
{
    o->arguments.clips = o->clips.stream.dataset != NULL;
    job->streams = &o->clips.stream;
    job->n_streams = o->arguments.clips ? 1 : 0;
    lvni_pose_fits_fix(&o->settings, job);
}

static lvn_status open_training(lvni_run_job *job, opened *o)
{
    lvni_pose_images images;
    lvni_core_config *c = job->config;
    const bool leads = job->ranks != NULL && job->ranks->rank->rank == 0;
    o->at = lvni_core_calloc(LVNI_TAG_DATA, (size_t)o->labels.n, sizeof *o->at);
    LVN_TRY(o->at == NULL ? LVN_ERR_MEMORY : divide(o));
    LVN_TRY(lvni_pose_fits_make(&o->settings, &o->labels, o->set, job->ranks, &o->fits));
    LVN_TRY(lvni_pose_images_look(&o->labels, lvni_core_str_text(&o->folder),
                                  o->settings.type == LVNI_POSE_CONTEXT, &images));
    LVN_TRY(identify(o));
    const lvni_pose_settings *s = &o->settings;
    const int64_t n = list_set(o, LVNI_POSE_TRAIN, 0), val = list_set(o, LVNI_POSE_VALIDATION, n);
    LVN_TRY(
        lvni_pose_stream_open(c, s, job->ranks == NULL ? NULL : job->ranks->rank, n, &o->clips));
    LVN_TRY(describe(o));
    LVN_TRY(find_weights(c, o, leads));
    LVN_TRY(lvni_pose_pipeline_make(s->imgaug, s->height, s->width, s->hflip, &o->pipeline));
    LVN_TRY(open_frames(o, o->at, n, o->pipeline, &o->train));
    LVN_TRY(open_frames(o, o->at + n, val, NULL, &o->val));
    LVN_TRY(lvni_pose_fits_keep(&o->fits, &o->labels, &o->facts));
    LVN_TRY(warn_end(c, job, o, n));
    job->train = o->train;
    job->val = o->val;
    give_clips(job, o);
    job->facts = &o->facts;
    job->note = lvni_core_str_text(&o->note);
    job->data = lvni_core_str_text(&o->identity);
    const uint64_t labels =
        hash_sets(o); /* other ones make another run, and no rank may have them */
    job->data_files = lvni_core_hash(images.files, &labels, sizeof labels);
    if (job->n_streams > 0) {
        const uint64_t videos = o->clips.info.files;
        job->data_files = lvni_core_hash(job->data_files, &videos, sizeof videos);
    }
    job->val_decode_bytes = BYTES_OF_A_PIXEL * images.most_pixels;
    job->decode_bytes = job->val_decode_bytes + o->clips.info.bytes;
    job->headers_read = true;
    job->write_files = write_files;
    job->kept_file = o->file;
    job->user = o;
    o->shown = (lvni_pose_used){.settings = s,
                                .labels = &o->labels,
                                .fits = &o->fits,
                                .file = o->file,
                                .set = o->set,
                                .progress = &o->progress};
    if (leads) {
        job->hooks = lvni_pose_progress_hooks(&o->progress, c);
    }
    return LVN_OK;
}

/* The labels of data= in the model's order. */
static lvn_status arrange(const lvni_run_job *job, opened *o)
{
    lvni_pose_labels names;
    lvn_status s = lvni_pose_names_read(job->facts, &names);
    if (s == LVN_OK) {
        s = lvni_pose_labels_arrange(&o->labels, names.k, (const char *const *)names.keypoint);
    }
    lvni_pose_labels_free(&names);
    return s;
}

/* Of data=, or the file of the training. */
static lvn_status read_labels(const lvni_run_job *job, opened *o)
{
    const bool used = job->purpose == LVNI_RUN_EVAL || job->purpose == LVNI_RUN_PREDICT;
    const char *path = used ? lvni_core_config_str(job->config, "data") : o->settings.csv_file,
               *folder =
                   used ? lvni_core_config_str(job->config, "data.data_dir") : o->settings.data_dir;
    const int length = (int)(lvni_pose_base_name(path) - path);
    if (folder != NULL) {
        lvni_core_str_append(&o->folder, folder);
    } else {
        lvni_core_str_printf(&o->folder, "%.*s.", length, path);
    }
    o->file = lvni_core_strdup(LVNI_TAG_DATA, path);
    LVN_TRY(o->file == NULL ? LVN_ERR_MEMORY : lvni_core_str_status(&o->folder));
    LVN_TRY(lvni_pose_labels_read(path, &o->labels));
    LVN_TRY(used ? arrange(job, o)
                 : lvni_pose_labels_check_count(&o->labels, o->settings.keypoints));
    return lvni_pose_labels_check_images(&o->labels, lvni_core_str_text(&o->folder));
}

/* ---- a trained model ---- */

/* Frames of a video that are predicted at once. */
static lvn_status choose_chunk(const lvni_run_job *job, const opened *o, int64_t *out)
{
    static const char key[] = "eval_batch_size";
    const lvni_pose_settings *s = &o->settings;
    const bool given = lvni_core_config_layer(job->config, key) != LVNI_LAYER_DEFAULT,
               context = s->type == LVNI_POSE_CONTEXT;
    *out = given     ? lvni_core_config_int(job->config, key)
           : context ? s->context_predict_clip
                     : s->predict_clip;
    if (context && *out < LVNI_POSE_WINDOW) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s=%lld: heatmap_mhcrnn looks at %d frames of a video at a time, so it takes %d "
                 "or more at once",
                 key, (long long)*out, LVNI_POSE_WINDOW, LVNI_POSE_WINDOW);
    }
    return LVN_OK;
}

/* on_error=stop, given for this command: else a few frames may be left out, as in the training. */
static bool stops_at_errors(const lvni_core_config *c)
{
    static const char key[] = "on_error";
    return lvni_core_config_layer(c, key) != LVNI_LAYER_DEFAULT &&
           strcmp(lvni_core_config_str(c, key), "stop") == 0;
}

/* The video of data=, whose frames have no labels. */
static lvn_status open_video(lvni_run_job *job, opened *o)
{
    const lvni_pose_settings *s = &o->settings;
    LVN_TRY(lvni_pose_names_read(job->facts, &o->labels));
    LVN_TRY(choose_chunk(job, o, &o->shown.chunk));
    const lvni_pose_video_options options = {.path = lvni_core_config_str(job->config, "data"),
                                             .dir = lvni_core_config_str(job->config, "model"),
                                             .height = s->height,
                                             .width = s->width,
                                             .keypoints = o->labels.k,
                                             .clip =
                                                 s->type == LVNI_POSE_CONTEXT ? o->shown.chunk : 0,
                                             .strict = stops_at_errors(job->config)};
    LVN_TRY(lvni_pose_video_open(&options, &o->used));
    o->shown.cut = *lvni_pose_video_cut(o->used);
    if (options.clip > 0) {
        o->shown.chunk = o->shown.cut.clip;
    }
    return LVN_OK;
}

/* The label file of data=, all of whose frames are looked at. */
static lvn_status open_labelled(lvni_run_job *job, opened *o)
{
    LVN_TRY(read_labels(job, o));
    const int64_t n = o->labels.n;
    o->at = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *o->at);
    if (o->at == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        o->at[i] = i;
    }
    LVN_TRY(open_frames(o, o->at, n, NULL, &o->used));
    o->shown.cut = lvni_pose_cut_none(n);
    return find_sets(o, job->facts);
}

static lvn_status open_used(lvni_run_job *job, opened *o)
{
    LVN_TRY(lvni_pose_is_video(job->config) ? open_video(job, o) : open_labelled(job, o));
    LVN_TRY(lvni_pose_fits_read(job->facts, o->labels.k, &o->fits));
    job->used = o->used;
    job->headers_read = true; /* a few frames may be left out, as in the training */
    o->shown.settings = &o->settings;
    o->shown.labels = &o->labels;
    o->shown.fits = &o->fits;
    o->shown.file = o->file;
    o->shown.set = o->set;
    return LVN_OK;
}

/* ---- the row ---- */

static lvn_status open_job(lvni_run_job *job)
{
    opened *o = job->state = LVNI_NEW(LVNI_TAG_DATA, opened);
    if (o == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(lvni_pose_settings_read(job->keys, &o->settings));
    const lvni_pose_settings *s = &o->settings;
    o->arguments = (lvni_pose_arguments){
        .type = s->type,
        .network = {.model = s->zoo_model, .keypoints = s->keypoints, .downsample = s->downsample},
        .height = s->height,
        .width = s->width,
        .loss = (lvni_pose_loss)s->loss,
        .settings = s,
        .fits = &o->fits};
    job->cls = &lvni_pose_module;
    job->arguments = &o->arguments;
    job->weights_seed = &o->settings.seed_model;
    job->part_of_file = "backbone";
    job->model = s->backbone;
    if (job->exports || job->purpose == LVNI_RUN_EXPORT) {
        return LVN_OK;
    }
    if (job->purpose != LVNI_RUN_TRAIN) {
        return open_used(job, o);
    }
    LVN_TRY(read_labels(job, o));
    return open_training(job, o);
}

static void close_job(lvni_run_job *job)
{
    opened *o = job->state;
    if (o != NULL) {
        lvn_dataset_destroy(o->train);
        lvn_dataset_destroy(o->val);
        lvn_dataset_destroy(o->used);
        lvni_pose_stream_close(&o->clips);
        lvni_pose_pipeline_free(o->pipeline);
        lvni_pose_progress_end(&o->progress);
        lvni_pose_fits_free(&o->fits);
        lvni_pose_labels_free(&o->labels);
        lvni_pose_settings_free(&o->settings);
        lvni_run_facts_free(&o->facts);
        lvni_core_free(o->file);
        lvni_core_str_free(&o->folder);
        lvni_core_free(o->set);
        lvni_core_free(o->at);
        lvni_core_str_free(&o->note);
        lvni_core_str_free(&o->identity);
        lvni_core_free(o);
        job->state = NULL;
    }
}

static const lvni_core_option_table *const train_keys[] = {
    &lvni_pose_data_options,      &lvni_pose_training_options, &lvni_pose_model_options,
    &lvni_pose_loss_options,      &lvni_pose_eval_options,     &lvni_pose_unused_options,
    &lvni_run_batch_options,      &lvni_run_optim_table,       &lvni_run_loop_options,
    &lvni_run_checkpoint_options, &lvni_run_options,           NULL};
static const lvni_core_option_table *const predict_keys[] = {
    &lvni_pose_used_options, &lvni_pose_predict_options, &lvni_pose_labeled_keys,
    &lvni_run_inference_options, NULL};
static const lvni_core_option_table *const eval_keys[] = {&lvni_pose_used_options,
                                                          &lvni_run_inference_options, NULL};

const lvni_run_recipe lvni_pose_recipe = {
    .name = "pose",
    .use = "config=FILE out=DIR [key=value ...]",
    .help = "find keypoints in images and video, from labelled frames (Lightning Pose projects)",
    .needs_keys = true,
    .defaults = {.job = lvni_pose_job,
                 .prepare = lvni_pose_prepare,
                 .prepare_export = lvni_pose_prepare_export},
    .model_keys = "model.* and data.num_keypoints",
    .size_key = "data.image_resize_dims.height",
    .keys = train_keys,
    .open = open_job,
    .close = close_job,
    .ended = lvni_pose_ended,
    .card = &lvni_run_general_card,
    .noun = "pose network",
    .predict_keys = predict_keys,
    .predict = &lvni_pose_predictions_of_frames,
    .eval_keys = eval_keys,
    .eval = &lvni_pose_metrics,
    .page_sections = lvni_pose_page,
    .export_keys = lvni_run_export_keys};
