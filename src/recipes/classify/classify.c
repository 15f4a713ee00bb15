/* The recipe `classify`, images in and classes out, as a row of the registry (recipe.h): its keys,
 * data, network and loss of a training. classify_card.c has its model card, classify_predict.c what
 * `levin predict` and `levin eval` do with a trained model. */
#include "recipes/classify/classify.h"

#include "core/alloc.h"
#include "core/str.h"
#include "images/image_data.h"
#include "recipes/classify/classify_card.h"
#include "recipes/classify/classify_mix.h"
#include "run/options.h"
#include "run/recipe.h"
#include "run/weights.h"

#include <stdio.h>
#include <string.h>

static const lvni_core_option model_rows[] = {
    {.name = "model.name",
     .type = LVNI_OPT_CHOICE,
     .choices = "cnn|mlp|" LVNI_ZOO_BACKBONES "|_vittest14",
     .fallback = "cnn",
     .respell = lvni_nn_zoo_respell,
     .help =
         "Network: cnn (three convolutions with batch norm), mlp (two hidden layers), or one "
         "with the names and shapes of torchvision, of timm (timm/vit_tiny_patch16_224), of DINO "
         "(dino_vits16) or of DINOv2 (dinov2/vits14, whose weights= is needed; "
         "dinov2/vits14-notpretrained)."},
    LVNI_OPTION_ALIAS("model", "model.name"),
    {.name = "model.dropout",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .flags = LVNI_OPT_AUTO,
     .help = "Dropout before the last layer; auto: 0.1 for cnn and mlp, those of "
             "EfficientNets (0.2, b2 0.3), else 0."},
    {.name = "model.drop_path",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .help = "Probability that an image passes a half of a transformer's layer, or a block of a "
             "ConvNeXt or EfficientNet, by in training (stochastic depth): of all layers for "
             "DINOv2's, else of the "
             "last one, less in front of it."},
};
static const lvni_core_option_table model_table = LVNI_OPTION_TABLE("model", model_rows);

static const lvni_core_option_table *const train_keys[] = {&lvni_images_options,
                                                           &model_table,
                                                           &lvni_run_options,
                                                           &lvni_run_batch_options,
                                                           &lvni_run_optim_table,
                                                           &lvni_images_augment_options,
                                                           &lvni_classify_criterion_options,
                                                           &lvni_images_preprocess_options,
                                                           &lvni_run_loop_options,
                                                           &lvni_run_checkpoint_options,
                                                           NULL};
static const lvni_core_option_table *const predict_keys[] = {
    &lvni_images_options, &lvni_run_inference_options, &lvni_classify_predict_options,
    &lvni_images_preprocess_options, NULL};
static const lvni_core_option_table *const eval_keys[] = {
    &lvni_images_options,     &lvni_run_inference_options,     &lvni_classify_eval_options,
    &lvni_run_choose_options, &lvni_images_preprocess_options, NULL};

/* What a training keeps open. */
typedef struct opened {
    const lvni_core_config *config;
    lvni_images_data data;
    lvni_classify_criterion criterion;
    lvni_core_str note;
    lvni_nn_zoo_arguments arguments;
    lvni_classify_mix mix;
    lvni_classify_card card;
} opened;

static lvn_status write_files(void *user, const char *dir)
{
    const opened *o = user;
    return lvni_images_data_write_index(o->config, &o->data, dir);
}

static lvn_status resolve(lvni_core_config *c, const char *name, double value)
{
    char text[32];
    lvni_core_format(text, sizeof text, "%.9g", value);
    return lvni_core_config_is_set(c, name)
               ? LVN_OK
               : lvni_core_config_set(c, name, text, "resolved at start");
}

static lvn_status open_data(lvni_core_config *c, const lvni_run_ranks *ranks, opened *o)
{
    LVN_TRY(lvni_images_data_open(c, ranks, &o->data));
    lvni_core_str_append(&o->note, lvni_core_str_text(&o->data.note));
    LVN_TRY(lvni_classify_criterion_read(c, o->data.train, &o->criterion, &o->note));
    LVN_TRY(lvni_core_str_status(&o->note));
    LVN_TRY(resolve(c, "image_size", o->data.transform.size));
    LVN_TRY(lvni_images_preprocess_resolve(c, &o->data.preprocess, &o->data.eval));
    return lvni_images_preprocess_check_size(c, lvni_core_config_str(c, "model.name"),
                                             o->data.transform.size, o->data.eval.size);
}

static void fill_card(opened *o)
{
    const lvni_images_data *data = &o->data;
    lvni_images_trained *images = &o->card.images;
    o->card.dropout = o->arguments.dropout;
    *images = (lvni_images_trained){.eval = {.image_size = o->arguments.image_size,
                                             .resize = data->eval.eval_resize,
                                             .crop = data->eval.size,
                                             .filter = data->eval.eval_filter,
                                             .as_stored = data->eval.as_stored},
                                    .n_classes = o->arguments.n_classes,
                                    .class_names = data->train->class_names,
                                    .val_split = lvni_core_config_float(o->config, "val_split")};
    memcpy(images->eval.mean, data->transform.mean, sizeof images->eval.mean);
    memcpy(images->eval.std, data->transform.std, sizeof images->eval.std);
}

/* The network, with the mixing of images and the loss around it where they are asked for. */
static const lvn_module_class *choose_class(opened *o, const char *model)
{
    const double mixup = lvni_core_config_float(o->config, "augment.mixup_alpha"),
                 cutmix = lvni_core_config_float(o->config, "augment.cutmix_alpha");
    if (!(mixup > 0.0 || cutmix > 0.0) && lvni_classify_criterion_is_plain(&o->criterion)) {
        return lvni_nn_zoo_find(model);
    }
    lvni_classify_mix_init(&o->mix, lvni_nn_zoo_find(model), mixup, cutmix);
    o->mix.criterion = o->criterion;
    return &o->mix.cls;
}

static lvn_status open_training(lvni_run_job *request, opened *o)
{
    lvni_core_config *c = request->config;
    o->config = c;
    LVN_TRY(open_data(c, request->ranks, o));
    const char *model = lvni_core_config_str(c, "model.name");
    LVN_TRY(resolve(c, "model.dropout", lvni_nn_zoo_dropout(model)));
    o->arguments =
        (lvni_nn_zoo_arguments){.image_size = o->data.transform.size,
                                .n_classes = o->data.train->n_classes,
                                .dropout = lvni_core_config_float(c, "model.dropout"),
                                .drop_path = lvni_core_config_float(c, "model.drop_path")};
    fill_card(o);
    request->cls = choose_class(o, model);
    request->arguments = &o->arguments;
    request->train = o->data.train;
    request->val = o->data.val;
    request->balanced = o->criterion.balanced;
    request->note = lvni_core_str_text(&o->note);
    request->ignored = lvni_core_str_text(&o->data.ignored);
    request->model = model;
    request->data = o->data.identity;
    request->own_card = &o->card;
    request->headers_read = o->data.headers_read;
    request->data_files = o->data.files;
    request->decode_bytes = o->data.decode_bytes;
    request->val_decode_bytes = o->data.val_decode_bytes;
    request->write_files = write_files;
    request->kept_file = lvni_core_config_str(c, "data.index");
    request->user = o;
    return LVN_OK;
}

/* The images of a command with a trained model. */
static lvn_status open_images(lvni_run_job *request, opened *o)
{
    const lvni_classify_card *card = request->own_card;
    LVN_TRY((request->purpose == LVNI_RUN_EVAL
                 ? lvni_images_data_for_eval
                 : lvni_images_data_for_model)(request->config, &card->images, &o->data));
    request->used = o->data.train;
    request->headers_read = o->data.headers_read;
    return LVN_OK;
}

static lvn_status open_job(lvni_run_job *request)
{
    opened *o = request->state = LVNI_NEW(LVNI_TAG_DATA, opened);
    if (o == NULL) {
        return LVN_ERR_MEMORY;
    }
    return request->purpose == LVNI_RUN_TRAIN    ? open_training(request, o)
           : request->purpose == LVNI_RUN_EXPORT ? LVN_OK
                                                 : open_images(request, o);
}

const lvni_images_data *lvni_classify_data(const lvni_run_job *job)
{
    return &((const opened *)job->state)->data;
}

static void close_job(lvni_run_job *request)
{
    opened *o = request->state;
    if (o != NULL) {
        lvni_classify_criterion_free(&o->criterion);
        lvni_core_str_free(&o->note);
        lvni_images_data_free(&o->data);
        lvni_core_free(o);
    }
}

static lvn_status check_run(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_source_check_model(c));
    return lvni_images_source_check_run(c);
}

const lvni_run_recipe lvni_classify_recipe = {
    .name = LVNI_CARD_CLASSIFIER_RECIPE,
    .is_default = true,
    .use = "data=DIR [key=value ...]",
    .help = "train a classifier of images (one sub-folder per class)",
    .model_keys = "model, model.* and the data's classes",
    .size_key = "image_size",
    .keys = train_keys,
    .check = check_run,
    .open = open_job,
    .close = close_job,
    .card = &lvni_classify_card_format,
    .noun = "classifier",
    .summary = lvni_classify_summary,
    .predict_keys = predict_keys,
    .predict = &lvni_classify_predictions,
    .eval_keys = eval_keys,
    .eval = &lvni_classify_measures,
    .page = &lvni_classify_page,
    .export_keys = lvni_run_export_keys};
