/* Training of image classifiers: options, data, model, export. The way down, each step called by
 * the one before, which returns when the run is over:
 *
 *   lvni_recipes_classify_train  here: the options
 *   lvni_recipes_ranks_run       ranks.c: which ranks this process has; then train() here: the data
 *   lvni_recipes_fit             fit.c: the run of each rank: directory, model, trainer
 *   lvni_trainer_fit             trainer/loop.c: the steps */
#include "recipes/classify.h"

#include "core/signals.h"
#include "log/run_log.h"
#include "recipes/fit.h"
#include "recipes/image_data.h"
#include "recipes/mix.h"
#include "recipes/options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const lvni_core_option model_rows[] = {
    {.name = "model.name",
     .type = LVNI_OPT_CHOICE,
     .choices = "cnn|mlp|resnet18|resnet34|resnet50|vit_s_16|vit_b_16",
     .fallback = "cnn",
     .help = "Network: cnn (three convolutions with batch norm), mlp (two hidden layers), or one "
             "with the names and shapes of torchvision."},
    LVNI_OPTION_ALIAS("model", "model.name"),
    {.name = "model.dropout",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .flags = LVNI_OPT_AUTO,
     .help = "Dropout before the last layer; auto: 0.1 for cnn and mlp, else 0."},
};
static const lvni_core_option_table model_table = LVNI_OPTION_TABLE("model", model_rows);

const lvni_core_option_table *lvni_recipes_classify_train_tables(size_t *n)
{
    static lvni_core_option_table all[8];
    all[0] = lvni_recipes_image_options;
    all[1] = model_table;
    all[2] = lvni_recipes_run_options;
    all[3] = lvni_recipes_batch_options;
    all[4] = lvni_recipes_optim_table;
    all[5] = lvni_recipes_augment_options;
    all[6] = lvni_recipes_criterion_options;
    all[7] = lvni_recipes_preprocess_options;
    *n = sizeof all / sizeof *all;
    return all;
}

typedef struct exporting {
    lvni_recipes_classifier_card card;
    const lvni_core_config *config;
    lvni_core_pin_entries *pins; /* NULL: of `levin plan` */
    const lvni_recipes_image_data *data;
} exporting;

static lvn_status write_files(void *user, const char *dir)
{
    const exporting *e = user;
    return lvni_recipes_image_data_write_index(e->config, e->data, dir);
}

static lvn_status export_model(void *user, const lvni_nn_model *model, const float *values,
                               int64_t step, const char *path)
{
    const exporting *e = user;
    lvni_recipes_classifier_card card = e->card;
    /* resolved by now */
    card.pins = lvni_recipes_read_pins(e->config);
    card.pins.entries = e->pins;
    card.ema_decay = lvni_core_config_bool(e->config, "use_ema")
                         ? lvni_core_config_float(e->config, "ema.decay")
                         : 0.0;
    return lvni_recipes_export_model(model, values, &card, step, path);
}

/* For checkpoints: model/ is never the average; whether they have one is in their configuration. */
static void describe(void *user, lvni_core_str *out)
{
    const exporting *e = user;
    lvni_recipes_classifier_card card = e->card;
    card.pins = lvni_recipes_read_pins(e->config);
    lvni_recipes_classifier_card_print(&card, out);
}

typedef lvn_status (*fit_function)(const lvni_recipes_fit_request *request);

/* A running command. */
typedef struct work {
    lvni_core_config *config;
    int n_arguments;
    const char *const *args;
    lvni_recipes_ranks *ranks; /* training */
    fit_function fit;
} work;

static lvn_status resolve(lvni_core_config *c, const char *name, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    return lvni_core_config_is_set(c, name)
               ? LVN_OK
               : lvni_core_config_set(c, name, text, "resolved at start");
}

static lvn_status fit_with(const work *w, const lvni_recipes_image_data *data,
                           const lvni_recipes_criterion *criterion, const char *note)
{
    lvni_core_config *c = w->config;
    const char *name = lvni_core_config_str(c, "model.name");
    LVN_TRY(resolve(c, "image_size", data->transform.size));
    LVN_TRY(lvni_recipes_preprocess_resolve(c, &data->preprocess, &data->eval));
    LVN_TRY(lvni_recipes_preprocess_check_size(c, name, data->transform.size, data->eval.size));
    LVN_TRY(resolve(c, "model.dropout", lvni_nn_zoo_dropout(name)));
    const lvni_nn_zoo_arguments arguments = {.image_size = data->transform.size,
                                             .n_classes = data->train->n_classes,
                                             .dropout = lvni_core_config_float(c, "model.dropout")};
    exporting e = {.card = {.model = name,
                            .image_size = arguments.image_size,
                            .n_classes = arguments.n_classes,
                            .class_names = data->train->class_names,
                            .dropout = arguments.dropout,
                            .eval_resize = data->eval.eval_resize,
                            .eval_crop = data->eval.size,
                            .eval_filter = data->eval.eval_filter,
                            .data = data->identity,
                            .val_split = lvni_core_config_float(c, "val_split"),
                            .seed = lvni_core_config_int(c, "seed")},
                   .config = c,
                   .pins = w->ranks == NULL ? NULL : w->ranks->pins,
                   .data = data};
    memcpy(e.card.mean, data->transform.mean, sizeof e.card.mean);
    memcpy(e.card.std, data->transform.std, sizeof e.card.std);
    const double mixup = lvni_core_config_float(c, "augment.mixup_alpha"),
                 cutmix = lvni_core_config_float(c, "augment.cutmix_alpha");
    const bool plain = !(mixup > 0.0 || cutmix > 0.0) && lvni_recipes_criterion_is_plain(criterion);
    lvni_recipes_mix mix;
    lvni_recipes_mix_init(&mix, lvni_nn_zoo_find(name), mixup, cutmix);
    mix.criterion = *criterion;
    const lvni_recipes_fit_request request = {.config = c,
                                              .ranks = w->ranks,
                                              .recipe = "classify",
                                              .cls = plain ? lvni_nn_zoo_find(name) : &mix.cls,
                                              .arguments = &arguments,
                                              .train = data->train,
                                              .val = data->val,
                                              .balanced = criterion->balanced,
                                              .note = note,
                                              .ignored = lvni_core_str_text(&data->ignored),
                                              .export_model = export_model,
                                              .describe = describe,
                                              .decode_bytes = data->decode_bytes,
                                              .val_decode_bytes = data->val_decode_bytes,
                                              .write_files = write_files,
                                              .kept_file = lvni_core_config_str(c, "data.index"),
                                              .user = &e};
    return w->fit(&request);
}

static lvn_status with_data(const work *w)
{
    lvni_recipes_image_data data;
    LVN_TRY(lvni_recipes_image_data_open(w->config, &data));
    lvni_recipes_criterion criterion = {0};
    lvni_core_str note = {0};
    lvni_core_str_append(&note, lvni_core_str_text(&data.note));
    lvn_status s = lvni_recipes_criterion_read(w->config, data.train, &criterion, &note);
    if (s == LVN_OK) {
        s = lvni_core_str_status(&note);
    }
    if (s == LVN_OK) {
        s = fit_with(w, &data, &criterion, lvni_core_str_text(&note));
    }
    lvni_recipes_criterion_free(&criterion);
    lvni_core_str_free(&note);
    lvni_recipes_image_data_free(&data);
    return s;
}

/* Called by lvni_recipes_ranks_run: data, loss and network, then lvni_recipes_fit. */
static lvn_status train(void *user, lvni_recipes_ranks *ranks)
{
    work *w = user;
    w->ranks = ranks;
    return with_data(w);
}

/* The options are known: to the ranks. */
static lvn_status train_on_ranks(work *w)
{
    const lvni_recipes_ranks_command command = {.command = {"train", "classify"},
                                                .n = w->n_arguments,
                                                .args = w->args,
                                                .recipe = "classify",
                                                .check = lvni_recipes_image_source_check_run,
                                                .run = train,
                                                .user = w};
    return lvni_recipes_fit_end(lvni_recipes_ranks_run(w->config, &command));
}

static lvn_status run(int n, const char *const *args, fit_function fit)
{
    size_t n_tables;
    const lvni_core_option_table *tables = lvni_recipes_classify_train_tables(&n_tables);
    work w = {.n_arguments = n, .args = args, .fit = fit};
    LVN_TRY(lvni_recipes_read_config(tables, n_tables, "levin help train.classify", NULL, n, args,
                                     &w.config));
    lvni_log_set_quiet(lvni_core_config_bool(w.config, "quiet"));
    const lvn_status s = fit == lvni_recipes_fit ? train_on_ranks(&w) : with_data(&w);
    lvni_core_config_destroy(w.config);
    return s;
}

lvn_status lvni_recipes_classify_train(int n, const char *const *args)
{
    lvni_core_signals_install_early();
    lvni_log_set_report(STDOUT_FILENO);
    lvni_log_buffer();
    const lvn_status s = run(n, args, lvni_recipes_fit);
    lvni_log_close();
    return s;
}

lvn_status lvni_recipes_classify_plan(int n, const char *const *args)
{
    return run(n, args, lvni_recipes_fit_plan);
}
