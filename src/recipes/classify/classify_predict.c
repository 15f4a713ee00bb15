/* A trained classifier in use, on the way of inference.h: `predict` writes a table, `eval`
 * measures; both can draw a page of images. An array of images goes to classify_array.c. */
#include "recipes/classify/classify.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/math.h"
#include "core/vfs.h"
#include "data/dataset.h"
#include "images/image_data.h"
#include "log/run_log.h"
#include "recipes/classify/classify_card.h"
#include "recipes/classify/classify_metrics.h"
#include "recipes/classify/classify_sheet.h"
#include "report/canvas.h"
#include "report/page.h"
#include "run/best_checkpoint.h"
#include "run/inference.h"
#include "run/options.h"
#include "run/output_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

#define SHEET_ROW                                                                                  \
    {                                                                                              \
        .name = "sheet", .type = LVNI_OPT_PATH,                                                    \
        .help = "Draw images with their predictions into this file, .png or .svg."                 \
    }

static const lvni_core_option predict_rows[] = {
    {.name = "weights",
     .type = LVNI_OPT_PATH,
     .help = "Of an array: weights with the names of torchvision or timm for the network that "
             "model= names (resnet18, ...)."},
    LVNI_RUN_WEIGHTS_KEY_ROW,
    {.name = "output",
     .type = LVNI_OPT_PATH,
     .fallback = "predictions.csv",
     .help = "File to write: a table (.csv: file, class, probability) or JSON lines (.jsonl); -: "
             "stdout. For data=FILE.npy, "
             "images (N, height, width, 3) used as they are: plain logits, as .npy (with weights= "
             "also to -)."},
    {.name = "top_k",
     .type = LVNI_OPT_INT,
     .unit = "classes",
     .fallback = "1",
     .range = LVNI_AT_LEAST(1),
     .help = "Most probable classes of each image, with their probabilities."},
    {.name = "probabilities",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "The probability of every class, too."},
    SHEET_ROW,
};
const lvni_core_option_table lvni_classify_predict_options =
    LVNI_OPTION_TABLE("predict", predict_rows);

static const lvni_core_option eval_rows[] = {
    {.name = "split",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|all|train|val|test",
     .fallback = "auto",
     .help = "Part of the data to measure on: the folder's train/, val/ or test/, else the part of "
             "the training run, given the same data; auto: "
             "test/ where the folder has one, else its val/, else all."},
    {.name = "confusion",
     .type = LVNI_OPT_PATH,
     .help =
         "Write the confusion matrix of all classes (rows: true class, columns: predicted) into "
         "this file: .csv, or a figure with shares of each row as shades, .png or .svg."},
    SHEET_ROW,
};
const lvni_core_option_table lvni_classify_eval_options = LVNI_OPTION_TABLE("eval", eval_rows);

/* ---- rows ---- */

/* What the rows of a prediction are turned into. */
typedef struct work {
    bool labels; /* eval */
    lvni_run_predict_format format;
    lvni_classify_metrics *metrics;       /* eval; of known labels */
    lvni_classify_sheet_samples *samples; /* for the page; NULL without */
} work;

static const lvni_images_data *data_of(const lvni_run_inference *u)
{
    return lvni_classify_data(&u->exported->job);
}

/* -1: not known, as always in `predict`, whose data need not have the model's classes. */
static int64_t label_of(const lvni_run_inference *u, int64_t sample)
{
    const work *w = u->own;
    const lvn_dataset *d = u->data;
    const int64_t label = !w->labels || d->cls->label == NULL ? -1 : d->cls->label(d, sample);
    return label < lvni_classify_card_of(u->exported)->images.n_classes ? label : -1;
}

static lvn_status take_row(lvni_run_inference *u, int64_t sample, const float *p, int64_t k)
{
    work *w = u->own;
    int64_t best = 0;
    for (int64_t i = 0; i < k; i++) {
        if (!isfinite(p[i])) {
            LVN_FAIL(LVN_ERR_NON_FINITE,
                     "the model %s gives %g as a probability: its weights are not finite; train "
                     "again with a "
                     "smaller optim.lr",
                     lvni_core_config_str(u->config, "model"),
                     lvni_core_unsigned_nan((double)p[i]));
        }
        best = p[i] > p[best] ? i : best;
    }
    const int64_t label = label_of(u, sample);
    u->n++;
    if (label >= 0) {
        lvni_classify_metrics_add(w->metrics, (int)label, (int)best, p);
    }
    if (w->samples != NULL) {
        const lvni_classify_sheet_sample pick = {
            .sample = sample, .label = label, .predicted = best, .probability = p[best]};
        LVN_TRY(lvni_classify_sheet_samples_offer(w->samples, &pick));
    }
    if (!w->labels) {
        char number[24];
        lvni_run_predict_row_write(&w->format, lvni_run_sample_name(u, sample, number), p,
                                   &u->text);
    }
    return lvni_core_str_status(&u->text);
}

static lvn_tensor *probabilities(const lvn_module *root, const lvn_batch *batch, void *user)
{
    (void)user;
    return lvn_softmax(lvn_forward(root, batch->image));
}

/* ---- the data ---- */

static void report_trained(const lvni_run_inference *u)
{
    const int64_t n = u->data->cls->length(u->data), trained = data_of(u)->n_trained;
    if (trained == n && n == 1) {
        lvni_log_line(LVNI_LOG_INFO, "note: this image was trained on");
    } else if (trained == n) {
        lvni_log_line(LVNI_LOG_INFO, "note: all of these %lld images were trained on",
                      (long long)n);
    } else if (trained > 0) {
        lvni_log_line(
            LVNI_LOG_INFO,
            "note: %lld of these %lld images %s trained on; split=val measures the others",
            (long long)trained, (long long)n, lvni_core_plural(trained, "was", "were"));
    }
}

static lvn_status choose_format(const lvni_run_inference *u, work *w)
{
    const lvni_core_config *c = u->config;
    const lvni_classify_card *card = lvni_classify_card_of(u->exported);
    const int n = card->images.n_classes, top_k = (int)lvni_core_config_int(c, "top_k");
    if (top_k > n) {
        LVN_FAIL(LVN_ERR_USAGE, "top_k=%d: the model %s has %d class%s; give at most %d", top_k,
                 lvni_core_config_str(c, "model"), n, lvni_core_plural(n, "", "es"), n);
    }
    w->format =
        (lvni_run_predict_format){.class_names = card->images.class_names,
                                  .n_classes = n,
                                  .top_k = top_k,
                                  .probabilities = lvni_core_config_bool(c, "probabilities"),
                                  .json = lvni_run_inference_wants_lines(c)};
    return LVN_OK;
}

static lvn_status begin(lvni_run_inference *u)
{
    work *w = u->own = LVNI_NEW(LVNI_TAG_DATA, work);
    const lvni_classify_card *card = lvni_classify_card_of(u->exported);
    if (w == NULL) {
        return LVN_ERR_MEMORY;
    }
    w->labels = strcmp(u->command, "eval") == 0;
    report_trained(u);
    if (lvni_core_config_str(u->config, "sheet") != NULL) {
        LVN_TRY(lvni_classify_sheet_samples_create(card->images.n_classes, &w->samples));
    }
    if (w->labels) {
        return lvni_classify_metrics_create(card->images.class_names, card->images.n_classes,
                                            &w->metrics);
    }
    LVN_TRY(choose_format(u, w));
    lvni_run_predict_head(&w->format, &u->text);
    return LVN_OK;
}

/* ---- the results ---- */

/* After the results: a page that cannot be written must not cost them. */
static lvn_status draw_sheet(const lvni_run_inference *u)
{
    const work *w = u->own;
    const char *path = lvni_core_config_str(u->config, "sheet");
    if (path == NULL) {
        return LVN_OK;
    }
    LVN_TRY(lvni_classify_sheet_samples_draw(w->samples, u->data, &data_of(u)->transform,
                                             lvni_classify_card_of(u->exported)->images.class_names,
                                             path));
    if (lvni_core_config_bool(u->config, "json") ||
        (!w->labels && lvni_run_output_is_stdout(u->config))) {
        return LVN_OK; /* stdout holds results alone */
    }
    lvni_core_print(stdout, "sheet in %s\n", path);
    return LVN_OK;
}

/* The matrix is written first: where that fails nothing is printed that looks like success. */
static lvn_status report_metrics(const lvni_run_inference *u)
{
    const work *w = u->own;
    lvni_core_str text = {0};
    const lvni_core_config *c = u->config;
    const char *confusion = lvni_core_config_str(c, "confusion");
    lvn_status s;
    LVNI_TRY_DONE(s, confusion == NULL ? LVN_OK
                                       : lvni_classify_metrics_confusion(w->metrics, confusion));
    if (lvni_core_config_bool(c, "json")) {
        lvni_core_str_append(&text, "{\"model\": ");
        lvni_core_str_json(&text, lvni_core_config_str(c, "model"));
        lvni_core_str_append(&text, ", \"data\": ");
        lvni_core_str_json(&text, lvni_core_config_str(c, "data"));
        lvni_core_str_printf(&text, ", \"split\": \"%s\", ", data_of(u)->split);
        lvni_classify_metrics_json(w->metrics, &text);
        lvni_core_str_append(&text, "}\n");
    } else {
        lvni_classify_metrics_print(w->metrics, &text);
    }
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    LVNI_TRY_DONE(s, lvni_core_file_write(LVNI_STDOUT_PATH, lvni_core_str_text(&text), text.len));
    if (confusion != NULL && !lvni_core_config_bool(c, "json")) {
        lvni_core_print(stdout, "confusion matrix in %s\n", confusion);
    }
done:
    lvni_core_str_free(&text);
    return s;
}

static lvn_status check_read(const lvni_run_inference *u)
{
    if (u->n == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "data=%s: none of its %lld images could be read: see the warning for their names",
                 lvni_core_config_str(u->config, "data"), (long long)u->data->cls->length(u->data));
    }
    return LVN_OK;
}

static lvn_status finish(lvni_run_inference *u)
{
    const work *w = u->own;
    LVN_TRY(check_read(u));
    LVN_TRY(w->labels ? report_metrics(u) : lvni_run_write_rows(u));
    return draw_sheet(u);
}

static lvn_status check_score(const lvni_run_inference *u, const char *metric)
{
    const work *w = u->own;
    double value;
    bool more;
    if (!lvni_classify_metrics_find(w->metrics, metric, &value, &more)) {
        LVN_FAIL(LVN_ERR_USAGE, "choose=%s: must be " LVNI_CLASSIFY_SCORES, metric);
    }
    return LVN_OK;
}

static lvn_status score(lvni_run_inference *u, const char *metric, double *out, bool *more)
{
    const work *w = u->own;
    if (u->n == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "data=%s: none of its images could be read: see the warning",
                 lvni_core_config_str(u->config, "data"));
    }
    (void)lvni_classify_metrics_find(w->metrics, metric, out, more);
    return LVN_OK;
}

/* The samples are kept for the mistakes. */
static lvn_status begin_page(lvni_run_inference *u)
{
    LVN_TRY(begin(u));
    work *w = u->own;
    return w->samples != NULL
               ? LVN_OK
               : lvni_classify_sheet_samples_create(
                     lvni_classify_card_of(u->exported)->images.n_classes, &w->samples);
}

static lvn_status finish_page(lvni_run_inference *u)
{
    const work *w = u->own;
    lvni_core_str *out = u->user;
    LVN_TRY(check_read(u));
    lvni_report_heading(out, "Predictions");
    lvni_core_str_append(out, "<p class=soft>");
    lvni_report_escape(out, lvni_core_config_str(u->config, "data"));
    lvni_core_str_append(out, ", ");
    lvni_report_escape(out, data_of(u)->split);
    lvni_core_str_append(out, ", by ");
    lvni_report_escape(out, u->exported->file);
    if (data_of(u)->n_trained > 0) {
        lvni_core_str_printf(out, "; %lld of these images were trained on",
                             (long long)data_of(u)->n_trained);
    }
    lvni_core_str_append(out, "</p>\n");
    LVN_TRY(lvni_classify_metrics_html(w->metrics, out));
    return lvni_classify_sheet_samples_html(w->samples, u->data, &data_of(u)->transform,
                                            lvni_classify_card_of(u->exported)->images.class_names,
                                            out);
}

static void end(lvni_run_inference *u)
{
    work *w = u->own;
    if (w != NULL) {
        lvni_classify_sheet_samples_destroy(w->samples);
        lvni_classify_metrics_destroy(w->metrics);
        lvni_core_free(w);
    }
}

/* ---- the commands ---- */

/* Before any work that an error here would waste. */
static lvn_status check_arguments(const lvni_core_config *c)
{
    const char *sheet = lvni_core_config_str(c, "sheet");
    if (sheet != NULL && !lvni_report_canvas_writes(sheet)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "sheet=%s: the page is a PNG or SVG file; give a name that ends in .png or .svg",
                 sheet);
    }
    LVN_TRY(sheet != NULL ? lvni_report_canvas_check("sheet=") : LVN_OK);
    LVN_TRY(lvni_run_inference_check(c));
    return lvni_images_source_check(c);
}

static lvn_status check_predict(const lvni_core_config *c)
{
    if (lvni_core_config_str(c, "weights") != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "weights= has no names of classes and no image size: it needs "
                                "data=FILE.npy, an array of images");
    }
    LVN_TRY(check_arguments(c));
    return lvni_run_inference_check_output(c, "predictions of images");
}

static lvn_status check_eval(const lvni_core_config *c)
{
    const char *confusion = lvni_core_config_str(c, "confusion");
    LVN_TRY(check_arguments(c));
    if (lvni_run_chooses(&lvni_classify_recipe, "eval", c)) {
        LVN_TRY(lvni_core_config_no_effect(c, "sheet", "with choose=, which prints a table"));
        LVN_TRY(lvni_core_config_no_effect(c, "confusion", "with choose=, which prints a table"));
    }
    if (confusion == NULL) {
        return LVN_OK;
    }
    if (lvni_report_canvas_writes(confusion)) {
        LVN_TRY(lvni_report_canvas_check("confusion="));
    } else if (!lvni_run_output_ends_in(confusion, ".csv", 4)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "confusion=%s: the matrix is a table or a figure; give a name that ends in .csv, "
                 ".png or .svg",
                 confusion);
    }
    return lvni_core_file_check(confusion);
}

static const lvni_run_results *by_data(const lvni_core_config *c)
{
    return lvni_classify_is_array(c) ? &lvni_classify_logits : NULL;
}

const lvni_run_results lvni_classify_predictions = {.instead = by_data,
                                                    .check = check_predict,
                                                    .begin = begin,
                                                    .output = probabilities,
                                                    .row = take_row,
                                                    .finish = finish,
                                                    .end = end};
const lvni_run_results lvni_classify_measures = {.check = check_eval,
                                                 .begin = begin,
                                                 .output = probabilities,
                                                 .row = take_row,
                                                 .finish = finish,
                                                 .score = score,
                                                 .check_score = check_score,
                                                 .end = end};
const lvni_run_results lvni_classify_page = {.check = check_eval,
                                             .begin = begin_page,
                                             .output = probabilities,
                                             .row = take_row,
                                             .finish = finish_page,
                                             .end = end};
