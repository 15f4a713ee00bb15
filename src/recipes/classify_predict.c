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
#include "recipes/predict_rank.h"
#include "recipes/ranks.h"
#include "recipes/train_options.h"
#include "recipes/use_options.h"
#include "tensor/device.h"
#include "trainer/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const lvni_option_table *lvni_classify_predict_tables(size_t *n)
{
    static lvni_option_table all[3];
    all[0] = lvni_image_options;
    all[1] = lvni_use_options;
    all[2] = lvni_predict_options;
    *n = 3;
    return all;
}

const lvni_option_table *lvni_classify_eval_tables(size_t *n)
{
    static lvni_option_table all[3];
    all[0] = lvni_image_options;
    all[1] = lvni_use_options;
    all[2] = lvni_eval_options;
    *n = 3;
    return all;
}

typedef struct class_count {
    int64_t right, n;
} class_count;

/* What the rows of a prediction are turned into; with several ranks rank 0 gets them all. */
typedef struct use {
    const lvni_config *config;
    lvni_ranks ranks;
    lvni_exported *exported; /* of the first rank here; the others have one each, on their devices */
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

static bool leads(const use *u)
{
    return u->ranks.rank->rank == 0;
}

static lvn_status open_model(const use *u, lvni_exported **out)
{
    const lvni_config *c = u->config;
    return lvni_exported_open(lvni_config_str(c, "model"), lvni_config_str(c, "checkpoint"), lvni_config_bool(c, "use_ema"), out);
}

static lvn_status rank_work(void *user, const lvni_rank *rank)
{
    use *u = user;
    lvni_exported *own = NULL;
    const bool first = rank == u->ranks.rank;
    LVN_TRY(lvni_accelerator_use(u->config, rank->device));
    lvn_status s = first ? LVN_OK : lvni_cpu_start();
    s = s == LVN_OK && !first ? open_model(u, &own) : s;
    const lvni_predict_work work = {.config = u->config,
                                    .data = u->data.train,
                                    .exported = first ? u->exported : own,
                                    .row = take_row,
                                    .user = u};
    s = s == LVN_OK ? lvni_predict_rank(&work, rank) : s;
    lvni_exported_close(own);
    return s;
}

static bool ends_in_png(const char *path)
{
    const size_t n = strlen(path);
    return n > 4 && strcasecmp(path + n - 4, ".png") == 0;
}

static lvn_status check_words(const lvni_config *c)
{
    const char *sheet = lvni_config_str(c, "sheet");
    if (lvni_config_str(c, "model") == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "model= is missing: a run directory or an exported .safetensors file");
    }
    if (sheet != NULL && !ends_in_png(sheet)) {
        LVN_FAIL(LVN_ERR_USAGE, "sheet=%s: the page is a PNG file; give a name that ends in .png", sheet);
    }
    LVN_TRY(lvni_exported_check(lvni_config_str(c, "model"), lvni_config_str(c, "checkpoint")));
    return lvni_image_source_check(c);
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
    int failed;
    LVN_TRY(lvni_cpu_start());
    LVN_TRY(lvni_accelerator_use(u->config, u->ranks.rank->device));
    LVN_TRY(open_model(u, &u->exported));
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
    LVN_TRY(lvni_ranks_each(&u->ranks, rank_work, u, &failed));
    if (u->n == 0 && leads(u)) {
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
static lvn_status check_predict(const lvni_config *c)
{
    if (lvni_config_str(c, "weights") != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "weights= has no names of classes and no picture size: it needs data=FILE.npy, an array of pictures");
    }
    LVN_TRY(check_words(c));
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
static lvn_status print_accuracy(const use *u)
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
    return LVN_OK;
}

/* `finish` by rank 0, with all rows taken. */
static lvn_status use_model(use *u, lvni_config *c, const lvni_ranks_command *command, lvn_status (*finish)(const use *u))
{
    u->config = c;
    lvn_status s = lvni_ranks_open(c, command, &u->ranks);
    const bool open = s == LVN_OK;
    s = open ? open_and_run(u) : s;
    if (s == LVN_OK && leads(u)) {
        s = finish(u);
        s = s == LVN_OK ? draw_sheet(u) : s;
    }
    const lvn_error error = *lvn_last_error();
    use_free(u);
    lvn_error_adopt(&error);
    return open ? lvni_ranks_close(&u->ranks, s) : s;
}

lvn_status lvni_classify_predict(int n, const char *const *words)
{
    size_t n_tables;
    const lvni_option_table *tables = lvni_classify_predict_tables(&n_tables);
    lvni_config *c;
    LVN_TRY(lvni_read_config(tables, n_tables, "levin help predict", NULL, n, words, &c));
    lvni_ranks_command command = {.command = {"predict"}, .n = n, .words = words, .uses = true};
    lvn_status s;
    if (lvni_is_array(c)) {
        s = lvni_predict_array(c, &command);
    } else {
        use u = {0};
        command.check = check_predict;
        lvni_str_append(&u.csv, "file,class,probability\n");
        s = use_model(&u, c, &command, write_table);
    }
    lvni_config_destroy(c);
    return s;
}

lvn_status lvni_classify_eval(int n, const char *const *words)
{
    size_t n_tables;
    const lvni_option_table *tables = lvni_classify_eval_tables(&n_tables);
    lvni_config *c;
    LVN_TRY(lvni_read_config(tables, n_tables, "levin help eval", NULL, n, words, &c));
    use u = {.labels = true};
    const lvni_ranks_command command = {.command = {"eval"}, .n = n, .words = words, .check = check_words, .uses = true};
    const lvn_status s = use_model(&u, c, &command, print_accuracy);
    lvni_config_destroy(c);
    return s;
}
