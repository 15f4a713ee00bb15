/* A trained model of a user's recipe in use, on the way of inference.h: `predict` writes what the
 * recipe's function gives for each sample, `eval` what the module's validation step logs. */
#include "recipes/user/user_impl.h"

#include "autograd/tape.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "run/inference.h"
#include "run/options.h"
#include "run/output_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

static const lvni_core_option predict_rows[] = {
    {.name = "output",
     .type = LVNI_OPT_PATH,
     .fallback = "predictions.csv",
     .help = "File to write: a table (.csv) or JSON lines (.jsonl), a line for each sample; -: "
             "stdout."},
};
const lvni_core_option_table lvni_user_predict_options = LVNI_OPTION_TABLE("predict", predict_rows);

static const lvni_core_option eval_rows[] = {
    {.name = "split",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|val|train",
     .fallback = "auto",
     .help = "Dataset of the recipe to measure on; auto: that of the validation, where it has one, "
             "else that of the training."},
};
const lvni_core_option_table lvni_user_eval_options = LVNI_OPTION_TABLE("eval", eval_rows);

/* ---- rows ---- */

typedef struct work {
    lvni_run_inference use; /* first */
    const char *split;
    bool json;
    int64_t columns; /* of the first row */
    lvni_core_str text;
} work;

static const lvni_user_card *card_of(const lvni_run_inference *u)
{
    return u->exported->own;
}

/* On a lane's thread: the recipe's, whose shape is not taken on trust. */
static lvn_tensor *output(const lvn_module *root, const lvn_batch *batch)
{
    const uint64_t before = lvn_last_error()->serial;
    lvn_tensor *y = lvni_user_loaded.recipe->use->predict(root, batch);
    if (y == NULL && !lvni_autograd_scope_failed()) {
        lvni_core_error_of_null(before, "use->predict of the recipe %s",
                                lvni_user_loaded.recipe->name);
        return lvni_autograd_op_fail(NULL);
    }
    if (y == NULL || (y->ndim == 2 && y->shape[0] == batch->size && y->dtype == LVN_F32)) {
        return y;
    }
    (void)lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                        "%s: use->predict gives %d dimensions%s; needed is f32 (%lld, K), a row "
                        "for each sample",
                        lvni_user_loaded.path, y->ndim,
                        y->dtype == LVN_F32 ? "" : " of another type", (long long)batch->size);
    return lvni_autograd_op_fail("use->predict");
}

static const char *column_of(const work *w, int64_t i, char number[24])
{
    const lvn_recipe_use *use = lvni_user_loaded.recipe->use;
    const char *name = use->column == NULL ? NULL : use->column(&card_of(&w->use)->entries, (int)i);
    snprintf(number, 24, "%lld", (long long)i);
    return name == NULL ? number : name;
}

static void write_head(work *w)
{
    char number[24];
    lvni_core_str_append(&w->text, "sample");
    for (int64_t i = 0; i < w->columns; i++) {
        lvni_core_str_append(&w->text, ",");
        lvni_run_csv_field(&w->text, column_of(w, i, number));
    }
    lvni_core_str_append(&w->text, "\n");
}

static void write_value(lvni_core_str *out, float x, bool json)
{
    if (json && !isfinite(x)) {
        lvni_core_str_append(out, "null");
    } else {
        lvni_core_str_printf(out, "%.9g", (double)x);
    }
}

static lvn_status take_row(void *user, int64_t sample, const float *value, int64_t k)
{
    lvni_run_inference *u = user;
    work *w = u->user;
    char number[24];
    const lvn_dataset *d = u->data;
    if (u->n++ == 0) {
        w->columns = k;
        if (!w->json) {
            write_head(w);
        }
    }
    snprintf(number, sizeof number, "%lld", (long long)sample);
    const char *own = d->cls->sample_name == NULL ? NULL : d->cls->sample_name(d, sample);
    const char *name = own == NULL ? number : own;
    if (w->json) {
        lvni_core_str_append(&w->text, "{\"sample\": ");
        lvni_core_str_json(&w->text, name);
    } else {
        lvni_run_csv_field(&w->text, name);
    }
    for (int64_t i = 0; i < k; i++) {
        lvni_core_str_append(&w->text, w->json ? ", " : ",");
        if (w->json) {
            lvni_core_str_json(&w->text, column_of(w, i, number));
            lvni_core_str_append(&w->text, ": ");
        }
        write_value(&w->text, value[i], w->json);
    }
    lvni_core_str_append(&w->text, w->json ? "}\n" : "\n");
    return lvni_core_str_status(&w->text);
}

/* ---- the data ---- */

static lvn_status open_data(lvni_run_inference *u)
{
    work *w = u->user;
    const lvni_user_card *card = card_of(u);
    const char *split = w->split;
    const bool val =
        strcmp(split, "val") == 0 || (strcmp(split, "auto") == 0 && card->job.val != NULL);
    w->split = val ? "val" : "train";
    u->data = val ? card->job.val : card->job.train;
    if (u->data == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: the recipe opens no dataset for %s%s", lvni_user_loaded.path,
                 val ? "validation" : "training",
                 val ? "; split=train measures on that of the training" : "");
    }
    if (lvni_core_config_layer(u->config, "eval_batch_size") == LVNI_LAYER_DEFAULT &&
        lvni_core_config_is_set(card->keys, "eval_batch_size")) {
        u->chunk = lvni_core_config_int(card->keys, "eval_batch_size");
    }
    if (u->output == NULL) { /* the numbers of the validation */
        u->low = lvni_trainer_precision_low(
            lvni_trainer_precision_of(lvni_core_config_str(card->keys, "precision")));
    }
    return LVN_OK;
}

/* ---- the results ---- */

static lvn_status write_rows(const lvni_run_inference *u)
{
    const work *w = u->user;
    if (u->n == 0) {
        int64_t n = u->data->cls->length(u->data);
        LVN_FAIL(LVN_ERR_CORRUPT, "none of the %lld sample%s could be read: see the warning",
                 (long long)n, lvni_core_plural(n, "", "s"));
    }
    const char *path = lvni_run_output_path(u->config);
    LVN_TRY(lvni_core_file_write(path, lvni_core_str_text(&w->text), w->text.len));
    if (!lvni_run_output_is_stdout(u->config)) {
        lvni_core_print(stdout, "%lld prediction%s in %s\n", (long long)u->n,
                        lvni_core_plural(u->n, "", "s"), path);
    }
    return LVN_OK;
}

static void print_metrics(const work *w, lvni_core_str *out)
{
    const lvni_nn_step *m = &w->use.metrics;
    const char *model = lvni_core_config_str(w->use.config, "model");
    const int64_t n = w->use.data->cls->length(w->use.data);
    if (w->json) {
        lvni_core_str_append(out, "{\"model\": ");
        lvni_core_str_json(out, model);
        lvni_core_str_printf(out, ", \"split\": \"%s\", \"samples\": %lld, \"metrics\": {",
                             w->split, (long long)n);
    } else {
        lvni_core_str_printf(out, "%s: %lld sample%s\n", w->split, (long long)n,
                             lvni_core_plural(n, "", "s"));
    }
    for (int i = 0; i < m->n_metrics; i++) {
        const double mean = lvni_trainer_metric_mean(m, m->metric[i].name);
        if (!w->json) {
            lvni_core_str_printf(out, "%s %.6g\n", m->metric[i].name, mean);
            continue;
        }
        lvni_core_str_append(out, i == 0 ? "" : ", ");
        lvni_core_str_json(out, m->metric[i].name);
        lvni_core_str_append(out, ": ");
        if (isfinite(mean)) {
            lvni_core_str_double(out, mean);
        } else {
            lvni_core_str_append(out, "null");
        }
    }
    lvni_core_str_append(out, w->json ? "}}\n" : "");
}

static lvn_status report_metrics(const lvni_run_inference *u)
{
    const work *w = u->user;
    lvni_core_str text = {0};
    if (u->metrics.n_metrics == 0) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "%s: the module %s logs nothing to measure: call lvn_log in its validation step",
                 lvni_user_loaded.path, u->exported->cls->name);
    }
    print_metrics(w, &text);
    lvn_status s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        s = lvni_core_file_write(LVNI_STDOUT_PATH, lvni_core_str_text(&text), text.len);
    }
    lvni_core_str_free(&text);
    return s;
}

/* ---- the commands ---- */

static lvn_status check_predict(const lvni_core_config *c)
{
    LVN_TRY(lvni_run_inference_check(c));
    return lvni_run_inference_check_output(c, "predictions");
}

static lvn_status run(work *w, int n, const char *const *args)
{
    w->use.open = open_data;
    w->use.user = w;
    const lvn_status s = lvni_run_inference_run(&w->use, n, args);
    const lvn_error error = *lvn_last_error();
    lvni_core_str_free(&w->text);
    lvni_core_config_destroy(w->use.config);
    lvn_error_adopt(&error);
    return s;
}

lvn_status lvni_user_predict(const lvni_run_recipe *recipe, int n, const char *const *args)
{
    const lvn_recipe *r = recipe->user;
    lvni_core_config *c;
    if (r->use == NULL || r->use->predict == NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: the recipe %s has no use->predict, without which nothing is predicted (see "
                 "levin/recipe.h)",
                 recipe->argument, recipe->name);
    }
    lvni_user_loaded.use = LVN_USE_PREDICT;
    LVN_TRY(lvni_run_inference_read(recipe, "predict", n, args, &c));
    work w = {.use = {.recipe = recipe,
                      .command = "predict",
                      .config = c,
                      .check = check_predict,
                      .output = output,
                      .row = take_row,
                      .finish = write_rows},
              .split = "auto",
              .json = lvni_run_inference_wants_lines(c)};
    return run(&w, n, args);
}

lvn_status lvni_user_eval(const lvni_run_recipe *recipe, int n, const char *const *args)
{
    lvni_core_config *c;
    lvni_user_loaded.use = LVN_USE_EVAL;
    LVN_TRY(lvni_run_inference_read(recipe, "eval", n, args, &c));
    work w = {.use = {.recipe = recipe,
                      .command = "eval",
                      .config = c,
                      .check = lvni_run_inference_check,
                      .finish = report_metrics},
              .split = lvni_core_config_str(c, "split"),
              .json = lvni_core_config_bool(c, "json")};
    return run(&w, n, args);
}
