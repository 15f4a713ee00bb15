/* The recipe pretrain (pretrain.h) as a row of the registry: data and network of a training, and
 * the images that a trained backbone is used on. */
#include "recipes/pretrain/pretrain.h"

#include "core/alloc.h"
#include "core/str.h"
#include "images/image_data.h"
#include "images/view_presets.h"
#include "log/run_log.h"
#include "run/card.h"
#include "run/inference.h"
#include "run/options.h"
#include "run/weights.h"

#include <stdio.h>
#include <string.h>

typedef struct opened {
    const lvni_core_config *config;
    lvni_images_data data; /* of a training */
    const lvni_pretrain_method *method;
    lvni_pretrain_scale scale; /* of a training */
    lvni_pretrain_settings settings;
    lvni_pretrain_images_used used;
    lvni_pretrain_held held;
    lvni_pretrain_watch watch;
    lvni_core_str chosen;
} opened;

lvni_pretrain_images_used lvni_pretrain_used(const lvni_run_job *job)
{
    return ((const opened *)job->state)->used;
}

/* ---- training ---- */

static lvn_status write_files(void *user, const char *dir)
{
    const opened *o = user;
    return lvni_images_data_write_index(o->config, &o->data, dir);
}

/* Fewer images than a batch are one batch. */
static lvn_status limit_batch(lvni_core_config *c, const lvni_run_job *job, int64_t images)
{
    const int64_t batch =
        lvni_core_config_is_set(c, "batch_size") ? lvni_core_config_int(c, "batch_size") : 0;
    char text[32];
    if (batch <= images || lvni_core_config_is_set(c, "batch_size_per_device")) {
        return LVN_OK;
    }
    if (job->ranks == NULL || job->ranks->rank->rank == 0) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "data=%s has %lld image%s, fewer than batch_size=%lld: a batch has %lld",
                      lvni_core_config_str(c, "data"), (long long)images,
                      lvni_core_plural(images, "", "s"), (long long)batch, (long long)images);
    }
    snprintf(text, sizeof text, "%lld", (long long)images);
    return lvni_core_config_set(c, "batch_size", text, "resolved at start");
}

static void note_held(opened *o)
{
    const lvni_pretrain_images_used *used = &o->held.images;
    const int64_t n = used->data->cls->length(used->data);
    lvni_core_str_printf(&o->data.note,
                         "; val/knn: %lld images of %s by their neighbours among %lld",
                         (long long)(n - used->references),
                         lvni_core_config_str(o->held.keys, "data"), (long long)used->references);
}

/* Of that many steps and no fewer: the last, short step of an epoch may be left out. */
static int64_t epochs_of(int64_t steps, const lvni_plan *plan)
{
    int64_t epoch = 0; /* where it looks from */
    return lvni_plan_locate(plan, steps, &epoch) > 0 ? epoch + 1 : epoch;
}

static lvn_status take_scale(lvni_core_config *c, const lvni_run_rank *rank, lvni_plan *plan,
                             lvni_pretrain_scale *scale)
{
    LVN_TRY(lvni_run_count_steps(c, scale->images, rank, plan, &scale->steps));
    scale->batch = plan->effective_batch;
    scale->micro_batches = plan->micro_batches;
    return LVN_OK;
}

/* The length of the run: the method's where none is given, and a warning where it is shorter. */
static lvn_status count_steps(lvni_core_config *c, const lvni_run_job *job,
                              const lvni_pretrain_method *m, lvni_pretrain_scale *scale)
{
    const lvni_run_rank *rank = job->ranks == NULL ? NULL : job->ranks->rank;
    lvni_plan plan;
    const bool chosen = lvni_core_config_layer(c, "max_epochs") <= LVNI_LAYER_JOB &&
                        lvni_core_config_layer(c, "max_steps") <= LVNI_LAYER_JOB;
    LVN_TRY(take_scale(c, rank, &plan, scale));
    if (m->usual_steps > 0 && chosen) {
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)epochs_of(m->usual_steps, &plan));
        LVN_TRY(lvni_core_config_set(c, "max_epochs", text, "method's default"));
        LVN_TRY(take_scale(c, rank, &plan, scale));
    } else if (scale->steps < m->usual_steps && scale->steps > 0 &&
               (rank == NULL || rank->rank == 0)) {
        lvni_log_line(LVNI_LOG_WARNING,
                      "the run has %lld steps, and method=%s is made for %lld or more: "
                      "max_epochs=%lld for %lld images in batches of %lld",
                      (long long)scale->steps, m->name, (long long)m->usual_steps,
                      (long long)epochs_of(m->usual_steps, &plan), (long long)scale->images,
                      (long long)scale->batch);
    }
    return LVN_OK;
}

/* The method's automatic values, now that the number of images is known. */
static lvn_status resolve_method(lvni_core_config *c, lvni_run_job *job, opened *o)
{
    lvni_pretrain_scale *scale = &o->scale;
    scale->images = o->data.train->cls->length(o->data.train);
    LVN_TRY(count_steps(c, job, o->method, scale));
    LVN_TRY(o->method->resolve(c, scale));
    /* layer scale lets class tokens of DINOv2's networks begin alike, and the teacher follows */
    const int64_t begin = scale->steps / 2, most = o->method->usual_steps / 10;
    o->watch.advice = o->method->advice;
    o->watch.from = begin < most ? begin : most;
    lvni_pretrain_read_settings(c, &o->settings);
    if (o->settings.distill.teacher != NULL) {
        o->settings.distill.taught = true;
        job->complete = lvni_pretrain_load_teacher;
        job->other_file = "method_args.teacher_sha256";
    }
    return LVN_OK;
}

static lvn_status open_training(lvni_run_job *job, opened *o)
{
    lvni_core_config *c = job->config;
    o->config = c;
    LVN_TRY(lvni_images_data_open_views(c, job->ranks, lvni_pretrain_read_views, &o->data));
    LVN_TRY(limit_batch(c, job, o->data.train->cls->length(o->data.train)));
    LVN_TRY(resolve_method(c, job, o));
    o->settings.backbone.image_size = o->data.transform.size;
    job->train = o->data.train;
    LVN_TRY(lvni_pretrain_held_open(c, &o->held));
    if (o->held.keys != NULL) {
        job->val = o->held.images.data;
        job->evaluation = lvni_pretrain_evaluation(&o->held);
        job->val_decode_bytes = o->held.decode_bytes;
        note_held(o);
    }
    LVN_TRY(lvni_pretrain_warn(job, &o->settings, &o->scale));
    LVN_TRY(lvni_pretrain_print_choices(job, &o->chosen));
    job->chosen = lvni_core_str_text(&o->chosen);
    job->note = lvni_core_str_text(&o->data.note);
    job->ignored = lvni_core_str_text(&o->data.ignored);
    job->data = o->data.identity;
    job->headers_read = o->data.headers_read;
    job->data_files = o->data.files;
    job->decode_bytes = o->data.decode_bytes;
    job->write_files = write_files;
    if (job->ranks != NULL && job->ranks->rank->rank == 0) {
        if (strcmp(lvni_core_config_origin(c, "resume"), LVNI_PRETRAIN_BEGINS) == 0) {
            lvni_log_line(LVNI_LOG_WARNING,
                          "resume_interrupted=true: out=%s has no run yet, and this one starts "
                          "from its beginning",
                          lvni_core_config_str(c, "out"));
        }
        o->watch.every = lvni_core_config_int(c, "log_every_n_steps");
        job->hooks = lvni_pretrain_watch_hooks(&o->watch);
    }
    job->kept_file = lvni_core_config_str(c, "data.index");
    job->newest_is_best = true;
    job->user = o;
    return LVN_OK;
}

/* ---- weights of others as a model ---- */

/* Without images. Heads are not exported: they are those of a small set. */
static lvn_status open_export(lvni_run_job *job, opened *o)
{
    static const char queue[] = "method_args.queue_size";
    lvni_core_config *c = job->config;
    lvni_data_views views;
    const lvni_pretrain_scale scale = {
        .images = lvni_core_config_is_set(c, queue) ? lvni_core_config_int(c, queue) + 1 : 1,
        .steps = INT64_MAX};
    LVN_TRY(
        lvni_pretrain_read_views(c, lvni_images_view_preset(o->method->views)->size[0], &views));
    LVN_TRY(o->method->resolve(c, &scale));
    lvni_pretrain_read_settings(c, &o->settings);
    o->settings.backbone.image_size = views.view[0].size;
    return LVN_OK;
}

/* ---- a trained model ---- */

/* Some of all images. */
static lvn_status open_shown(const lvni_images_source *s, const lvni_data_transform *view,
                             lvni_pretrain_images_used *out)
{
    int64_t at[LVNI_PRETRAIN_SHOWN];
    lvn_dataset *all;
    LVN_TRY(lvni_images_source_view(s, NULL, 0, view, &all));
    out->view = *view;
    out->all = all->cls->length(all);
    lvn_dataset_destroy(all);
    const int64_t n = out->all < LVNI_PRETRAIN_SHOWN ? out->all : LVNI_PRETRAIN_SHOWN;
    for (int64_t i = 0; i < n; i++) {
        at[i] = i * out->all / n;
    }
    return lvni_images_source_view(s, at, n, view, &out->data);
}

/* Height and width that are given, of features alone both; 0: not. */
static void read_size(const lvni_core_config *c, lvni_run_purpose purpose, int size[2])
{
    size_t n;
    size[0] = size[1] = 0;
    if (purpose == LVNI_RUN_PREDICT) {
        const int64_t *given = lvni_core_config_int_list(c, "image_size", &n);
        size[0] = n > 0 ? (int)given[0] : 0;
        size[1] = n > 1 ? (int)given[1] : 0;
    } else if (lvni_core_config_is_set(c, "image_size")) {
        size[0] = (int)lvni_core_config_int(c, "image_size");
    }
}

static lvn_status open_used(lvni_run_job *job, opened *o)
{
    const lvni_core_config *c = job->config;
    const bool measures = job->purpose == LVNI_RUN_EVAL;
    lvni_images_source s;
    lvni_data_transform view;
    const lvni_images_opening how = {.mode = measures ? LVNI_SCAN_CLASSES : LVNI_SCAN_FLAT,
                                     .run = lvni_core_config_str(c, "model")};
    LVN_TRY(lvni_images_source_open(c, &how, &s));
    lvni_images_source_take_shapes(c, job->data, &s);
    int size[2];
    read_size(c, job->purpose, size);
    lvni_pretrain_eval_view(job->keys, s.scan != NULL, size[0], &view);
    view.width = size[1];
    view.whole = !measures && s.scan != NULL; /* embed, as LightlyTrain does */
    const bool trained = view.as_stored;
    view.as_stored = lvni_images_source_as_stored(c, &trained);
    const lvn_status status =
        measures ? lvni_pretrain_open_parts(c, (uint64_t)lvni_core_config_int(job->keys, "seed"),
                                            &s, &view, &o->used)
        : job->purpose == LVNI_RUN_SHOW
            ? open_shown(&s, &view, &o->used)
            : lvni_images_source_view(&s, NULL, 0, &view, &o->used.data);
    job->used = o->used.data;
    job->headers_read = s.scan != NULL;
    lvni_images_source_close(&s);
    return status;
}

/* ---- the row ---- */

static lvn_status open_job(lvni_run_job *job)
{
    opened *o = job->state = LVNI_NEW(LVNI_TAG_DATA, opened);
    if (o == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_pretrain_read_settings(job->keys, &o->settings);
    o->method = lvni_pretrain_method_find(lvni_core_config_str(job->keys, "method"));
    job->cls = o->method->cls;
    if (job->part_alone && o->settings.embed_dim > 0) {
        lvni_log_line(LVNI_LOG_INFO,
                      "note: features are those of the backbone: the layer of embed_dim=%d is in "
                      "checkpoints, not in exported models",
                      o->settings.embed_dim);
        o->settings.embed_dim = 0;
    }
    job->arguments = &o->settings;
    job->model = o->settings.model;
    job->exported_part = o->method->exported_part;
    job->trained_part = o->method->trained_part;
    return job->exports                      ? open_export(job, o)
           : job->purpose == LVNI_RUN_TRAIN  ? open_training(job, o)
           : job->purpose == LVNI_RUN_EXPORT ? LVN_OK
                                             : open_used(job, o);
}

static void close_job(lvni_run_job *job)
{
    opened *o = job->state;
    if (o != NULL) {
        lvni_images_data_free(&o->data);
        lvn_dataset_destroy(o->used.data);
        lvni_pretrain_held_close(&o->held);
        lvni_core_str_free(&o->chosen);
        lvni_core_free(o);
        job->state = NULL;
    }
}

static lvn_status check_run(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_source_check_model(c));
    return lvni_images_source_check_run(c);
}

static const lvni_core_option_table *const predict_keys[] = {
    &lvni_images_options, &lvni_run_inference_options, &lvni_pretrain_output_options, NULL};
const lvni_core_option_table *const lvni_pretrain_eval_keys[] = {
    &lvni_images_options,         &lvni_run_inference_options, &lvni_pretrain_embed_options,
    &lvni_pretrain_parts_options, &lvni_pretrain_knn_options,  NULL};
static const lvni_core_option_table *const page_keys[] = {
    &lvni_images_options, &lvni_run_inference_options, &lvni_pretrain_embed_options, NULL};
static const lvni_core_option_table *const linear_keys[] = {
    &lvni_images_options,         &lvni_run_inference_options,   &lvni_pretrain_embed_options,
    &lvni_pretrain_parts_options, &lvni_pretrain_linear_options, NULL};

const lvni_run_recipe lvni_pretrain_recipe = {
    .name = "pretrain",
    .use = "data=DIR model=torchvision/resnet18 [key=value ...]",
    .help = "pretrain a backbone on images without classes (SimCLR, DINO, DINOv2, distillation)",
    .defaults = {.job =
                     "data.exif=ignore max_epochs=100 batch_size=128 precision=auto drop_last=true "
                     "sync_batchnorm=true "
                     "scheduler=cosine scheduler.end_factor=0.001 scheduler.warmup_steps=auto "
                     "optim.decay_norm_bias=false",
                 .prepare = lvni_pretrain_prepare,
                 .prepare_export = lvni_pretrain_prepare_export},
    .needs_keys = true,
    .model_keys = "model, embed_dim and method_args.*",
    .size_key = "transform_args.image_size",
    .keys = lvni_pretrain_train_keys,
    .check = check_run,
    .open = open_job,
    .close = close_job,
    .card = &lvni_run_general_card,
    .noun = "backbone",
    .shown = &lvni_pretrain_page_recipe,
    .predict_keys = predict_keys,
    .predict = &lvni_pretrain_embeddings,
    .eval_keys = lvni_pretrain_eval_keys,
    .eval = &lvni_pretrain_knn,
    .export_keys = lvni_run_export_keys};

/* What rows of other uses of a trained model have alike. */
#define OF_A_MODEL                                                                                 \
    .name = "pretrain", .use = "data=DIR model=out/x [key=value ...]",                             \
    .model_keys = "model, embed_dim and method_args.*", .size_key = "transform_args.image_size",   \
    .keys = lvni_pretrain_train_keys, .open = open_job, .close = close_job,                        \
    .card = &lvni_run_general_card, .noun = "backbone"

const lvni_run_recipe lvni_pretrain_linear_recipe = {
    OF_A_MODEL, .argument = "linear",
    .help = "measure a backbone by a linear classifier on its features", .eval_keys = linear_keys,
    .eval = &lvni_pretrain_linear};
const lvni_run_recipe lvni_pretrain_page_recipe = {
    OF_A_MODEL, .help = "show features of a backbone on the page of its run",
    .eval_keys = page_keys, .page = &lvni_pretrain_page};
