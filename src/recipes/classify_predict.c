/* Using a trained classifier: `predict` writes a table, `eval` measures; both can draw a page of pictures. */
#include "core/alloc.h"
#include "core/math.h"
#include "core/vfs.h"
#include "data/contact_sheet.h"
#include "data/dataset.h"
#include "kernels/kernels.h"
#include "log/run_log.h"
#include "recipes/classify.h"
#include "recipes/fit.h"
#include "recipes/image_data.h"
#include "recipes/train_options.h"
#include "trainer/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHEET_COLUMNS = 8, SHEET_ROWS = 4, SHEET = SHEET_COLUMNS * SHEET_ROWS };

static const lvni_option use_rows[] = {
    {.name = "config", .type = LVNI_OPT_PATH, .help = "YAML file with any of these keys.", .flags = LVNI_OPT_NOT_SAVED},
    {.name = "model", .type = LVNI_OPT_PATH, .help = "Run directory or exported .safetensors file."},
    {.name = "checkpoint", .type = LVNI_OPT_CHOICE, .choices = "best|last", .help = "Which model of a run directory; unset: best."},
    {.name = "eval_batch_size", .type = LVNI_OPT_INT, .unit = "samples", .fallback = "64", .range = LVNI_AT_LEAST(1), .help = "Chunk of prediction."},
    {.name = "lanes", .type = LVNI_OPT_INT, .range = LVNI_BETWEEN(1, 64), .flags = LVNI_OPT_AUTO, .help = "Chunks in work at once; auto: one per core."},
    {.name = "num_workers", .type = LVNI_OPT_INT, .unit = "threads", .range = {.used = true, .min = 0, .max = 256}, .flags = LVNI_OPT_AUTO,
     .help = "Threads that decode."},
    {.name = "on_error", .type = LVNI_OPT_CHOICE, .choices = "stop|skip", .fallback = "stop", .help = "What an unreadable picture does."},
    {.name = "sheet", .type = LVNI_OPT_PATH, .help = "Draw pictures with their predictions into this PNG file."},
};
static const lvni_option_table use_table = LVNI_OPTION_TABLE("model in use", use_rows);
static const lvni_option predict_rows[] = {
    {.name = "output", .type = LVNI_OPT_PATH, .fallback = "predictions.csv", .help = "Table to write: file, class, probability."},
};
static const lvni_option_table predict_table = LVNI_OPTION_TABLE("predict", predict_rows);

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
    return *n = 2, lvni_classify_predict_tables(&(size_t){0}); /* the same without the table to write */
}

/* What the rows of a prediction are turned into. */
typedef struct use {
    const lvni_config *config;
    lvni_exported *exported;
    lvni_image_data data;
    bool labels;
    lvni_str csv;
    int64_t n, right;
    double loss;
    int64_t *picked[2]; /* sample numbers for the page: wrong ones, right ones */
    int n_picked[2];
    int64_t predicted[2][SHEET];
    float probability[2][SHEET];
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

static void pick(use *u, int64_t sample, int64_t best, float p, bool right)
{
    const int side = right ? 1 : 0, most = SHEET;
    if (u->picked[side] != NULL && u->n_picked[side] < most) {
        const int i = u->n_picked[side]++;
        u->picked[side][i] = sample;
        u->predicted[side][i] = best;
        u->probability[side][i] = p;
    }
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
        u->loss -= lvni_log((double)p[label] > 1e-38 ? (double)p[label] : 1e-38);
    }
    pick(u, sample, best, p[best], label < 0 || best == label);
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
                                    .workers = lvni_worker_count(c),
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

/* One picture as bytes, drawn by the dataset itself. */
static lvn_status fetch_rgb(const use *u, int64_t sample, float *image, uint8_t *rgb)
{
    int64_t label;
    void *fields[LVN_MAX_FIELDS] = {image, &label};
    const lvn_sample_key key = {.sample = sample};
    LVN_TRY(u->data.train->cls->get(u->data.train, &key, fields));
    lvni_transform_to_rgb(&u->data.transform, image, rgb);
    return LVN_OK;
}

/* Up to half a page of wrong ones, then right ones. */
static lvn_status draw_sheet(const use *u, const char *path)
{
    const size_t pixels = (size_t)u->data.transform.size * (size_t)u->data.transform.size * 3;
    float *image = lvni_alloc(LVNI_TAG_DATA, pixels * sizeof *image);
    uint8_t *rgb = lvni_alloc(LVNI_TAG_DATA, pixels * SHEET);
    lvni_sheet_item *item = lvni_calloc(LVNI_TAG_DATA, SHEET, sizeof *item);
    char (*text)[2][48] = lvni_calloc(LVNI_TAG_DATA, SHEET, sizeof *text);
    lvn_status s = image == NULL || rgb == NULL || item == NULL || text == NULL ? LVN_ERR_MEMORY : LVN_OK;
    const char *const *classes = u->exported->card.class_names;
    const int wrong = u->n_picked[0] < SHEET / 2 ? u->n_picked[0] : SHEET / 2;
    int n = 0;
    for (int i = 0; s == LVN_OK && n < SHEET && (i < wrong + u->n_picked[1]); i++) {
        const int side = i < wrong ? 0 : 1, at = i < wrong ? i : i - wrong;
        const int64_t sample = u->picked[side][at];
        const int64_t label = label_of(u, sample);
        s = fetch_rgb(u, sample, image, rgb + pixels * (size_t)n);
        snprintf(text[n][0], sizeof text[n][0], "%s %.0f%%", classes[u->predicted[side][at]], 100.0 * (double)u->probability[side][at]);
        if (side == 0 && label >= 0) {
            snprintf(text[n][1], sizeof text[n][1], "is %s", classes[label]);
        }
        item[n] = (lvni_sheet_item){.rgb = rgb + pixels * (size_t)n,
                                    .verdict = label < 0 ? LVNI_VERDICT_NONE : side == 0 ? LVNI_VERDICT_WRONG : LVNI_VERDICT_RIGHT,
                                    .line1 = text[n][0],
                                    .line2 = text[n][1]};
        n++;
    }
    if (s == LVN_OK && n > 0) {
        s = lvni_contact_sheet_write(path, item, n, SHEET_COLUMNS, u->data.transform.size);
    }
    lvni_free(image);
    lvni_free(rgb);
    lvni_free(item);
    lvni_free(text);
    return s;
}

static lvn_status open_and_run(use *u)
{
    const char *model = lvni_config_str(u->config, "model"), *sheet = lvni_config_str(u->config, "sheet");
    if (model == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "model= is missing: a run directory or an exported .safetensors file");
    }
    LVN_TRY(lvni_cpu_start());
    LVN_TRY(lvni_exported_open(model, lvni_config_str(u->config, "checkpoint"), &u->exported));
    LVN_TRY(lvni_image_data_for_model(u->config, &u->exported->card, u->labels, &u->data));
    for (int i = 0; i < 2 && sheet != NULL; i++) {
        u->picked[i] = lvni_calloc(LVNI_TAG_DATA, SHEET, sizeof *u->picked[i]);
        if (u->picked[i] == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    LVN_TRY(run_model(u));
    if (u->n == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "data=%s: none of its %lld pictures could be read: see the warning for their names",
                 lvni_config_str(u->config, "data"), (long long)u->data.train->cls->length(u->data.train));
    }
    return sheet == NULL ? LVN_OK : draw_sheet(u, sheet);
}

static void use_free(use *u)
{
    lvni_image_data_free(&u->data);
    lvni_exported_close(u->exported);
    lvni_str_free(&u->csv);
    lvni_free(u->picked[0]);
    lvni_free(u->picked[1]);
}

lvn_status lvni_classify_predict(int n, const char *const *words)
{
    size_t n_tables;
    const lvni_option_table *tables = lvni_classify_predict_tables(&n_tables);
    lvni_config *c;
    LVN_TRY(lvni_read_config(tables, n_tables, "levin help predict", NULL, n, words, &c));
    use u = {.config = c};
    lvni_str_append(&u.csv, "file,class,probability\n");
    lvn_status s = open_and_run(&u);
    const char *output = lvni_config_str(c, "output");
    if (s == LVN_OK) {
        s = lvni_file_write(output, lvni_str_text(&u.csv), u.csv.len);
    }
    if (s == LVN_OK) {
        printf("%lld predictions in %s\n", (long long)u.n, output);
    }
    use_free(&u);
    lvni_config_destroy(c);
    return s;
}

lvn_status lvni_classify_eval(int n, const char *const *words)
{
    size_t n_tables;
    const lvni_option_table *tables = lvni_classify_eval_tables(&n_tables);
    lvni_config *c;
    LVN_TRY(lvni_read_config(tables, n_tables, "levin help eval", NULL, n, words, &c));
    use u = {.config = c, .labels = true};
    const lvn_status s = open_and_run(&u);
    if (s == LVN_OK && u.n > 0) {
        printf("acc %.4f  loss %.4f  (%lld of %lld right)\n", (double)u.right / (double)u.n, u.loss / (double)u.n, (long long)u.right,
               (long long)u.n);
    }
    use_free(&u);
    lvni_config_destroy(c);
    return s;
}
