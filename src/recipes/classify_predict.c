/* Using a trained classifier: `predict` writes a table, `eval` measures; both can draw a page of pictures. */
#include "core/alloc.h"
#include "core/math.h"
#include "core/vfs.h"
#include "data/dataset.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "recipes/accelerator.h"
#include "recipes/classify.h"
#include "recipes/fit.h"
#include "recipes/image_data.h"
#include "recipes/image_source.h"
#include "recipes/picks.h"
#include "recipes/predict_array.h"
#include "recipes/train_options.h"
#include "tensor/device.h"
#include "trainer/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const lvni_option use_rows[] = {
    {.name = "config", .type = LVNI_OPT_PATH, .help = "YAML file with any of these keys.", .flags = LVNI_OPT_NOT_SAVED},
    {.name = "model", .type = LVNI_OPT_PATH, .help = "Run directory or exported .safetensors file."},
    {.name = "checkpoint", .type = LVNI_OPT_CHOICE, .choices = "best|last", .help = "Which model of a run directory; unset: best."},
    {.name = "eval_batch_size", .type = LVNI_OPT_INT, .unit = "samples", .fallback = "64", .range = LVNI_AT_LEAST(1), .help = "Chunk of prediction."},
    {.name = "lanes", .type = LVNI_OPT_INT, .range = LVNI_BETWEEN(1, 64), .flags = LVNI_OPT_AUTO, .help = "Chunks in work at once; auto: one per core."},
    {.name = "num_workers", .type = LVNI_OPT_INT, .unit = "threads", .range = {.used = true, .min = 0, .max = 256}, .flags = LVNI_OPT_AUTO,
     .help = "Threads that decode."},
    {.name = "accelerator", .type = LVNI_OPT_CHOICE, .choices = "auto|cpu|gpu|sim", .fallback = "auto", .spellings = "cuda=gpu",
     .help = "Kind of device, as in training."},
    {.name = "on_error", .type = LVNI_OPT_CHOICE, .choices = "stop|skip", .fallback = "stop", .help = "What an unreadable picture does."},
    {.name = "use_ema", .type = LVNI_OPT_BOOL, .fallback = "true",
     .help = "false: of a run with ema.decay, the weights themselves and not their average; needs the run directory or a checkpoint."},
    {.name = "sheet", .type = LVNI_OPT_PATH, .help = "Draw pictures with their predictions into this PNG file (.png)."},
};
static const lvni_option_table use_table = LVNI_OPTION_TABLE("model in use", use_rows);
static const lvni_option predict_rows[] = {
    {.name = "weights", .type = LVNI_OPT_PATH,
     .help = "Of an array: weights with the names of torchvision for the network that model= names (resnet18, ...)."},
    {.name = "output", .type = LVNI_OPT_PATH, .fallback = "predictions.csv",
     .help = "Table to write: file, class, probability. For data=FILE.npy, pictures (N, height, width, 3) used as they are: plain logits, as .npy."},
};
static const lvni_option_table predict_table = LVNI_OPTION_TABLE("predict", predict_rows);
static const lvni_option eval_rows[] = {
    {.name = "split", .type = LVNI_OPT_CHOICE, .choices = "all|train|val", .fallback = "all",
     .help = "Part of the data to measure on: the folder's train/ or val/, or else the part of the training run, given the same data."},
};
static const lvni_option_table eval_table = LVNI_OPTION_TABLE("eval", eval_rows);

const lvni_option_table *lvni_classify_predict_tables(size_t *n)
{
    static lvni_option_table all[3];
    all[0] = lvni_image_options;
    all[1] = use_table;
    all[2] = predict_table;
    *n = 3;
    return all;
}

const lvni_option_table *lvni_classify_eval_tables(size_t *n)
{
    static lvni_option_table all[3];
    all[0] = lvni_image_options;
    all[1] = use_table;
    all[2] = eval_table;
    *n = 3;
    return all;
}

typedef struct class_count {
    int64_t right, n;
} class_count;

/* What the rows of a prediction are turned into. */
typedef struct use {
    const lvni_config *config;
    lvni_exported *exported;
    lvni_image_data data;
    bool labels;
    lvni_str csv;
    int64_t n, right;
    double loss;
    class_count *classes; /* (n_classes), of known labels */
    lvni_picks *picks;    /* for the page; NULL without */
} use;

static const char *name_of(const use *u, int64_t sample, char number[24])
{
    const lvn_dataset *d = u->data.train;
    snprintf(number, 24, "%lld", (long long)sample);
    return d->cls->sample_name == NULL ? number : d->cls->sample_name(d, sample);
}

/* RFC 4180: quoted when needed. */
static void csv_field(lvni_str *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        lvni_str_append(out, text);
        return;
    }
    lvni_str_char(out, '"');
    for (; *text != '\0'; text++) {
        lvni_str_append_n(out, text, 1);
        if (*text == '"') {
            lvni_str_char(out, '"');
        }
    }
    lvni_str_char(out, '"');
}

/* -1: not known. `predict` never knows: its data need not have the model's classes. */
static int64_t label_of(const use *u, int64_t sample)
{
    const lvn_dataset *d = u->data.train;
    const int64_t label = !u->labels || d->cls->label == NULL ? -1 : d->cls->label(d, sample);
    return label < u->exported->card.n_classes ? label : -1;
}

static lvn_status take_row(void *user, int64_t sample, const float *p, int64_t k)
{
    use *u = user;
    int64_t best = 0;
    for (int64_t i = 1; i < k; i++) {
        best = p[i] > p[best] ? i : best;
    }
    if (!isfinite(p[best])) {
        LVN_FAIL(LVN_ERR_NON_FINITE, "the model %s gives %g as a probability: its weights are not finite; train again with a smaller optim.lr",
                 lvni_config_str(u->config, "model"), (double)p[best]);
    }
    const int64_t label = label_of(u, sample);
    u->n++;
    if (label >= 0) {
        u->right += best == label;
        u->classes[label].right += best == label;
        u->classes[label].n++;
        u->loss -= lvni_log((double)p[label] > 1e-38 ? (double)p[label] : 1e-38);
    }
    if (u->picks != NULL) {
        const lvni_pick pick = {.sample = sample, .label = label, .predicted = best, .probability = p[best]};
        LVN_TRY(lvni_picks_offer(u->picks, &pick));
    }
    if (!u->labels) {
        char number[24];
        csv_field(&u->csv, name_of(u, sample, number));
        lvni_str_char(&u->csv, ',');
        csv_field(&u->csv, u->exported->card.class_names[best]);
        lvni_str_printf(&u->csv, ",%.6f\n", (double)p[best]);
    }
    return lvni_str_status(&u->csv);
}

/* Run the model over the data in order. */
static lvn_status run_model(use *u)
{
    const lvni_config *c = u->config;
    const int cores = lvni_usable_cores();
    const int64_t n = u->data.train->cls->length(u->data.train);
    const lvni_plan_options o = {.n_samples = n, .batch_size = 1, .devices = 1, .cores = cores, .eval_batch_size = lvni_config_int(c, "eval_batch_size")};
    lvni_plan plan;
    LVN_TRY(lvni_plan_make(&o, &plan));
    const int64_t chunks = lvni_plan_eval_chunks(&plan, n);
    int lanes = lvni_config_is_set(c, "lanes") ? (int)lvni_config_int(c, "lanes") : cores;
    lanes = lanes > chunks ? (int)chunks : lanes;
    plan.lanes = lanes;
    const lvni_loader_options lo = {.dataset = u->data.train,
                                    .plan = &plan,
                                    .workers = lvni_worker_count(c, cores),
                                    .skip_unreadable = strcmp(lvni_config_str(c, "on_error"), "skip") == 0};
    lvni_loader *loader = NULL;
    lvni_lanes *all = NULL;
    lvn_status s = lvni_loader_create(&lo, &loader);
    if (s == LVN_OK) {
        s = lvni_lanes_create(lanes, cores / lanes > 1 ? cores / lanes : 1, u->exported->card.wgrad_threads, &all);
    }
    if (s == LVN_OK) {
        s = lvni_predict(u->exported->model, loader, all, take_row, u);
    }
    if (s == LVN_OK) {
        lvni_str text = {0};
        if (lvni_loader_report(loader, &text)) {
            lvni_log_line(LVNI_LOG_WARNING, "%s", lvni_str_text(&text));
        }
        lvni_str_free(&text);
    }
    lvni_loader_destroy(loader);
    lvni_lanes_destroy(all);
    return s;
}

static bool ends_in_png(const char *path)
{
    const size_t n = strlen(path);
    return n > 4 && strcasecmp(path + n - 4, ".png") == 0;
}

static lvn_status check_words(const use *u)
{
    const char *sheet = lvni_config_str(u->config, "sheet");
    if (lvni_config_str(u->config, "model") == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "model= is missing: a run directory or an exported .safetensors file");
    }
    if (sheet != NULL && !ends_in_png(sheet)) {
        LVN_FAIL(LVN_ERR_USAGE, "sheet=%s: the page is a PNG file; give a name that ends in .png", sheet);
    }
    if (!u->labels && lvni_config_str(u->config, "weights") != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "weights= has no names of classes and no picture size: it needs data=FILE.npy, an array of pictures");
    }
    return LVN_OK;
}

static void tell_trained(const use *u)
{
    const int64_t n = u->data.train->cls->length(u->data.train), trained = u->data.n_trained;
    if (trained == n) {
        lvni_log_line(LVNI_LOG_INFO, "note: all of these %lld pictures were trained on", (long long)n);
    } else if (trained > 0) {
        lvni_log_line(LVNI_LOG_INFO, "note: %lld of these %lld pictures were trained on; split=val measures the others", (long long)trained,
                      (long long)n);
    }
}

static lvn_status open_and_run(use *u)
{
    LVN_TRY(check_words(u));
    LVN_TRY(lvni_cpu_start());
    LVN_TRY(lvni_accelerator_use(u->config, 0));
    LVN_TRY(lvni_exported_open(lvni_config_str(u->config, "model"), lvni_config_str(u->config, "checkpoint"),
                               lvni_config_bool(u->config, "use_ema"), &u->exported));
    const lvni_classifier_card *card = &u->exported->card;
    LVN_TRY(u->labels ? lvni_image_data_for_eval(u->config, card, &u->data) : lvni_image_data_for_model(u->config, card, &u->data));
    tell_trained(u);
    if (lvni_config_str(u->config, "sheet") != NULL) {
        LVN_TRY(lvni_picks_create(card->n_classes, &u->picks));
    }
    u->classes = lvni_calloc(LVNI_TAG_DATA, (size_t)card->n_classes, sizeof *u->classes);
    if (u->classes == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(run_model(u));
    if (u->n == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "data=%s: none of its %lld pictures could be read: see the warning for their names",
                 lvni_config_str(u->config, "data"), (long long)u->data.train->cls->length(u->data.train));
    }
    return LVN_OK;
}

/* After the results: a page that cannot be written must not cost them. */
static lvn_status draw_sheet(const use *u)
{
    const char *path = lvni_config_str(u->config, "sheet");
    if (path == NULL) {
        return LVN_OK;
    }
    LVN_TRY(lvni_picks_draw(u->picks, u->data.train, &u->data.transform, u->exported->card.class_names, path));
    printf("sheet in %s\n", path);
    return LVN_OK;
}

static void use_free(use *u)
{
    lvni_image_data_free(&u->data);
    lvni_exported_close(u->exported);
    lvn_device_use(LVN_CPU);
    lvni_str_free(&u->csv);
    lvni_picks_destroy(u->picks);
    lvni_free(u->classes);
}

static lvn_status write_table(const use *u)
{
    const char *output = lvni_config_str(u->config, "output");
    LVN_TRY(lvni_file_write(output, lvni_str_text(&u->csv), u->csv.len));
    printf("%lld predictions in %s\n", (long long)u->n, output);
    return LVN_OK;
}

/* Before the work: afterwards it would be in vain. */
static lvn_status check_output(const lvni_config *c)
{
    const char *output = lvni_config_str(c, "output");
    static const char *const others[] = {".npy", ".safetensors"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const size_t n = strlen(output), k = strlen(others[i]);
        if (n > k && strcasecmp(output + n - k, others[i]) == 0) {
            LVN_FAIL(LVN_ERR_USAGE, "output=%s: predictions of pictures are a table; give a name that ends in .csv", output);
        }
    }
    return lvni_file_check(output);
}

lvn_status lvni_classify_predict(int n, const char *const *words)
{
    size_t n_tables;
    const lvni_option_table *tables = lvni_classify_predict_tables(&n_tables);
    lvni_config *c;
    LVN_TRY(lvni_read_config(tables, n_tables, "levin help predict", NULL, n, words, &c));
    if (lvni_is_array(c)) {
        const lvn_status s = lvni_predict_array(c);
        lvni_config_destroy(c);
        return s;
    }
    use u = {.config = c};
    lvni_str_append(&u.csv, "file,class,probability\n");
    lvn_status s = check_output(c);
    s = s == LVN_OK ? open_and_run(&u) : s;
    s = s == LVN_OK ? write_table(&u) : s;
    s = s == LVN_OK ? draw_sheet(&u) : s;
    use_free(&u);
    lvni_config_destroy(c);
    return s;
}

/* Characters, not bytes: continuation bytes of UTF-8 take no room. */
static int width_of(const char *text)
{
    int n = 0;
    for (; *text != '\0'; text++) {
        n += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return n;
}

/* acc, and a line for each class that has pictures here. */
static void print_accuracy(const use *u)
{
    const lvni_classifier_card *card = &u->exported->card;
    printf("acc %.4f  loss %.4f  (%lld of %lld right)\n", (double)u->right / (double)u->n, u->loss / (double)u->n, (long long)u->right,
           (long long)u->n);
    int name = 0, digits = 0;
    for (int i = 0; i < card->n_classes; i++) {
        if (u->classes[i].n > 0) {
            const int width = width_of(card->class_names[i]), of = snprintf(NULL, 0, "%lld", (long long)u->classes[i].n);
            name = width > name ? width : name;
            digits = of > digits ? of : digits;
        }
    }
    for (int i = 0; i < card->n_classes; i++) {
        const class_count *k = &u->classes[i];
        if (k->n > 0) {
            printf("  %s%*s  %*lld/%-*lld  %5.1f %%\n", card->class_names[i], name - width_of(card->class_names[i]), "", digits,
                   (long long)k->right, digits, (long long)k->n, 100.0 * (double)k->right / (double)k->n);
        }
    }
}

lvn_status lvni_classify_eval(int n, const char *const *words)
{
    size_t n_tables;
    const lvni_option_table *tables = lvni_classify_eval_tables(&n_tables);
    lvni_config *c;
    LVN_TRY(lvni_read_config(tables, n_tables, "levin help eval", NULL, n, words, &c));
    use u = {.config = c, .labels = true};
    lvn_status s = open_and_run(&u);
    if (s == LVN_OK) {
        print_accuracy(&u);
        s = draw_sheet(&u);
    }
    use_free(&u);
    lvni_config_destroy(c);
    return s;
}
