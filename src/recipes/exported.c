/* Reading exported models (exported.h). */
#include "recipes/exported.h"

#include "ckpt/checkpoint.h"
#include "core/alloc.h"
#include "core/escape.h"
#include "core/json_read.h"
#include "core/option.h"
#include "core/str.h"
#include "core/vfs.h"
#include "plan/plan.h"
#include "recipes/run_dir.h"
#include "recipes/weights.h"
#include "trainer/identity.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static lvn_status read_three(json_t *array, float out[3])
{
    for (size_t i = 0; i < 3; i++) {
        out[i] = (float)json_number_value(json_array_get(array, i));
    }
    return json_array_size(array) == 3 ? LVN_OK : LVN_ERR_CORRUPT;
}

/* Early files do not have all of them. */
static lvn_status read_pins(const json_t *j, lvni_core_pins *pins)
{
    *pins = lvni_core_pins_least();
    for (int i = 0; i < LVNI_PIN_COUNT; i++) {
        const lvni_core_pin *row = &lvni_core_pin_table[i];
        const json_t *value = json_object_get(j, row->key);
        const json_int_t n = json_integer_value(value);
        if (value != NULL && (n < row->min || n > row->max)) {
            LVN_FAIL(LVN_ERR_CORRUPT, "its model card has %s=%lld: must be %d to %d", row->key,
                     (long long)n, row->min, row->max);
        }
        *lvni_core_pins_at(pins, i) = value == NULL ? row->min : (int)n;
    }
    return LVN_OK;
}

/* Of a file from anywhere: the numbers that sizes and divisions are made of. */
static lvn_status check_card(const lvni_recipes_classifier_card *card)
{
    if (card->image_size < 4 || card->image_size > 2048) {
        LVN_FAIL(LVN_ERR_CORRUPT, "its model card has image_size=%d: must be 4 to 2048",
                 card->image_size);
    }
    if (!(card->dropout >= 0 && card->dropout < 1)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "its model card has dropout=%g: must be at least 0 and below 1",
                 card->dropout);
    }
    return LVN_OK;
}

static lvn_status check_eval(const lvni_recipes_classifier_card *card)
{
    if (card->eval_crop < 4 || card->eval_crop > 2048 || card->eval_resize < 1 ||
        card->eval_resize > LVNI_RESAMPLE_MAX_SIDE) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "its model card has eval resize=%d and crop=%d: must be 1 to %d and 4 to 2048",
                 card->eval_resize, card->eval_crop, LVNI_RESAMPLE_MAX_SIDE);
    }
    for (int i = 0; i < 3; i++) {
        if (!isfinite(card->mean[i]) || !(card->std[i] >= 1e-6f && card->std[i] <= 1000.0f)) {
            LVN_FAIL(
                LVN_ERR_CORRUPT,
                "its model card has mean=%g and std=%g for colour %d: must be finite, std 1e-06 "
                "to 1000",
                (double)card->mean[i], (double)card->std[i], i);
        }
    }
    return LVN_OK;
}

/* The split of the training, for `eval`. Early files do not have it. */
static lvn_status read_split(lvni_recipes_exported *e, const json_t *j)
{
    const char *data = json_string_value(json_object_get(j, "data"));
    const json_t *val_split = json_object_get(j, "val_split"), *seed = json_object_get(j, "seed");
    if (data == NULL) {
        return LVN_OK;
    }
    e->card.val_split = json_number_value(val_split);
    e->card.seed = json_integer_value(seed);
    if (!json_is_number(val_split) || !(e->card.val_split >= 0 && e->card.val_split < 1)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "its model card has val_split=%g: must be at least 0 and below 1",
                 e->card.val_split);
    }
    if (!json_is_integer(seed) || e->card.seed < 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "its model card has seed=%lld: must be a whole number, at least 0",
                 (long long)e->card.seed);
    }
    e->data = lvni_core_strdup(LVNI_TAG_CONFIG, data);
    e->card.data = e->data;
    return e->data == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* A number of a file in an int, whatever it is. */
static int int_of(const json_t *number)
{
    const double x = json_number_value(number);
    return x > -1e9 && x < 1e9 ? (int)x : -1;
}

static lvn_status read_eval(const json_t *j, lvni_recipes_classifier_card *card)
{
    const json_t *eval = json_object_get(j, "eval"), *part = json_object_get(j, "eval_crop");
    const char *filter = json_string_value(json_object_get(eval, "filter"));
    card->image_size = int_of(json_object_get(j, "image_size"));
    if (read_three(json_object_get(j, "mean"), card->mean) != LVN_OK ||
        read_three(json_object_get(j, "std"), card->std) != LVN_OK) {
        LVN_FAIL(LVN_ERR_CORRUPT, "its model card is not complete");
    }
    if (!json_is_object(eval) && part != NULL) { /* early */
        const double crop = json_number_value(part);
        if (!(crop >= 0.01 && crop <= 1)) {
            LVN_FAIL(LVN_ERR_CORRUPT, "its model card has eval_crop=%g: must be 0.01 to 1", crop);
        }
        card->eval_crop = card->image_size;
        card->eval_resize = (int)floor(card->image_size / crop + 0.5);
        card->eval_filter = LVNI_FILTER_BILINEAR;
        return check_eval(card);
    }
    const int choice =
        filter == NULL ? -1 : lvni_core_option_choice_index(LVNI_FILTERS, filter, strlen(filter));
    if (choice < 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "its model card has eval filter=%s%s: must be one of " LVNI_FILTERS,
                 filter == NULL ? "nothing" : "", filter == NULL ? "" : filter);
    }
    card->eval_filter = (lvni_data_filter)choice;
    card->eval_resize = int_of(json_object_get(eval, "resize"));
    card->eval_crop = int_of(json_object_get(eval, "crop"));
    return check_eval(card);
}

lvn_status lvni_recipes_classifier_card_read_eval(const char *text,
                                                  lvni_recipes_classifier_card *out)
{
    json_t *j = lvni_core_json_try(text, LVNI_JSON_INNER);
    const lvn_status s = read_eval(j, out);
    json_decref(j);
    return s;
}

static lvn_status read_card(lvni_recipes_exported *e, json_t *j)
{
    lvni_recipes_classifier_card *card = &e->card;
    json_t *classes = json_object_get(j, "classes");
    const char *name = json_string_value(json_object_get(j, "model"));
    const size_t n = json_array_size(classes);
    if (name == NULL || n == 0 || n > 1000000) {
        LVN_FAIL(LVN_ERR_CORRUPT, "its model card is not complete");
    }
    card->image_size = int_of(json_object_get(j, "image_size"));
    card->dropout = json_number_value(json_object_get(j, "dropout"));
    card->ema_decay = json_number_value(json_object_get(j, "ema_decay"));
    LVN_TRY(check_card(card));
    LVN_TRY(read_pins(j, &card->pins));
    LVN_TRY(read_eval(j, card));
    LVN_TRY(read_split(e, j));
    e->model_name = lvni_core_strdup(LVNI_TAG_CONFIG, name);
    e->class_names = lvni_core_calloc(LVNI_TAG_CONFIG, n, sizeof *e->class_names);
    if (e->model_name == NULL || e->class_names == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        const char *c = json_string_value(json_array_get(classes, i));
        lvni_core_str s = {0}; /* a file from anywhere may hold control characters here */
        lvni_core_str_escape(&s, c == NULL ? "?" : c, c == NULL ? 1 : strlen(c), LVNI_ESCAPE_TEXT);
        e->class_names[i] = lvni_core_str_take(&s);
        if (e->class_names[i] == NULL) {
            return LVN_ERR_MEMORY;
        }
        card->n_classes++;
    }
    card->model = e->model_name;
    card->class_names = (const char *const *)e->class_names;
    return LVN_OK;
}

/* What backends recorded in the training; NULL: nothing. */
static lvn_status read_entries(lvni_recipes_exported *e, const char *text)
{
    char entry[2 * LVNI_PIN_TEXT];
    LVN_TRY(lvni_core_pin_entries_create(&e->pins));
    e->card.pins.entries = e->pins;
    while (text != NULL && lvni_core_pin_entries_next(&text, entry)) {
        if (lvni_core_pin_entries_read(e->pins, entry) != LVN_OK) {
            LVN_FAIL(LVN_ERR_CORRUPT,
                     "its metadata " LVNI_IDENTITY_PINS " has %s, not one value for a key", entry);
        }
    }
    return LVN_OK;
}

/* A checkpoint has the weights themselves and their average, if there is one; its run validated and
 * exported the average, except with use_ema=false. 0: no average to take. */
static double shown_average(const lvni_ckpt_st_file *file)
{
    const char *text = lvni_ckpt_st_meta_get(file, LVNI_CKPT_CONFIG);
    const bool is_checkpoint = lvni_ckpt_st_meta_get(file, LVNI_CKPT_FORMAT) != NULL;
    json_t *config = is_checkpoint ? lvni_core_json_try(text, LVNI_JSON_INNER) : NULL;
    const bool shown = !json_is_false(json_object_get(config, "use_ema"));
    const double decay = shown ? json_number_value(json_object_get(config, "ema.decay")) : 0.0;
    json_decref(config);
    return decay;
}

static lvn_status open_file(const char *path, bool use_ema, lvni_recipes_exported *e)
{
    lvni_ckpt_st_file *file;
    LVN_TRY(lvni_ckpt_st_open(path, LVNI_ST_VERIFY, &file));
    const char *text = lvni_ckpt_st_meta_get(file, LVNI_CARD);
    json_t *j = lvni_core_json_try(text, LVNI_JSON_INNER);
    lvn_status s = LVN_OK;
    if (j == NULL) {
        s = lvn_error_set(LVN_ERR_MISMATCH, __FILE__, __LINE__,
                          "%s is not a classifier of levin; give model= a run directory, a file of "
                          "its exported_models/ or one of its checkpoints",
                          path);
    } else {
        s = read_card(e, j);
    }
    json_decref(j);
    if (s == LVN_OK) {
        s = read_entries(e, lvni_ckpt_st_meta_get(file, LVNI_IDENTITY_PINS));
    }
    const lvn_module_class *cls = s == LVN_OK ? lvni_nn_zoo_find(e->card.model) : NULL;
    if (s == LVN_OK && cls == NULL) {
        s = lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                          "%s holds a model %s, which this version does not have", path,
                          e->card.model);
    }
    const lvni_nn_zoo_arguments arguments = {.image_size = e->card.image_size,
                                             .n_classes = e->card.n_classes,
                                             .dropout = e->card.dropout};
    if (s == LVN_OK) {
        s = lvni_nn_model_build_empty(cls, &arguments, &e->model);
    }
    if (s == LVN_OK) {
        const double decay = use_ema ? shown_average(file) : 0.0;
        e->card.ema_decay = decay > 0.0 ? decay : e->card.ema_decay;
        s = lvni_recipes_model_load_shown(e->model, file, path, decay > 0.0);
    }
    lvni_ckpt_st_close(file);
    return s;
}

/* The file behind model=PATH; freed by the caller. */
static lvn_status find_file(const char *path, const char *which, char **file)
{
    char *inside = lvni_recipes_path_join(path, "exported_models");
    const bool is_run = inside != NULL && lvni_core_path_exists(inside);
    lvni_core_free(inside);
    *file = is_run ? NULL : lvni_core_strdup(LVNI_TAG_CONFIG, path);
    if (!is_run && which != NULL && lvni_core_path_exists(path)) {
        lvni_core_free(*file);
        *file = NULL;
        LVN_FAIL(LVN_ERR_USAGE,
                 "checkpoint=%s chooses within a run directory, and model=%s is not one: omit "
                 "checkpoint=, or give the run",
                 which, path);
    }
    const char *const names[] = {which != NULL ? which : "best", which != NULL ? which : "last"};
    for (int i = 0; is_run && i < 2; i++) {
        lvni_core_str s = {0};
        lvni_core_str_printf(&s, "%s/exported_models/exported_%s.safetensors", path, names[i]);
        lvni_core_free(*file);
        *file = lvni_core_str_take(&s);
        if (*file == NULL || lvni_core_path_exists(*file)) {
            break;
        }
    }
    if (*file != NULL && !lvni_core_path_exists(*file)) {
        lvn_error_set(
            LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
            "%s does not exist: model= takes a run directory or an exported .safetensors file",
            *file);
        lvni_core_free(*file);
        return LVN_ERR_NOT_FOUND;
    }
    return *file == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

lvn_status lvni_recipes_exported_check(const char *path, const char *which)
{
    char *file;
    LVN_TRY(find_file(path, which, &file));
    lvni_core_free(file);
    return LVN_OK;
}

/* The weights that an average was made of: RUN/exported_models/exported_NAME has them in
 * RUN/checkpoints/NAME. */
static lvn_status load_without_average(lvni_recipes_exported *e, const char *file)
{
    static const char folder[] = "exported_models/exported_";
    const char *at = strstr(file, folder);
    while (at != NULL && strstr(at + 1, folder) != NULL) {
        at = strstr(at + 1, folder);
    }
    lvni_core_str checkpoint = {0};
    if (at != NULL) {
        lvni_core_str_append_n(&checkpoint, file, (size_t)(at - file));
        lvni_core_str_printf(&checkpoint, "checkpoints/%s", at + sizeof folder - 1);
    }
    lvn_status s = lvni_core_str_status(&checkpoint);
    if (s == LVN_OK && (at == NULL || !lvni_core_path_exists(lvni_core_str_text(&checkpoint)))) {
        s = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                          "it holds averaged weights (ema.decay=%g), and use_ema=false requests "
                          "the others, which are in the checkpoints of the run: give "
                          "model= the run directory",
                          e->card.ema_decay);
    }
    if (s == LVN_OK) {
        s = lvni_recipes_model_load(e->model, lvni_core_str_text(&checkpoint), false, NULL);
    }
    lvni_core_str_free(&checkpoint);
    return s;
}

lvn_status lvni_recipes_exported_open(const char *path, const char *which, bool use_ema,
                                      lvni_recipes_exported **out)
{
    *out = NULL;
    char *file;
    LVN_TRY(find_file(path, which, &file));
    lvni_recipes_exported *e = LVNI_NEW(LVNI_TAG_CONFIG, lvni_recipes_exported);
    lvn_status s = e == NULL ? LVN_ERR_MEMORY : open_file(file, use_ema, e);
    if (s == LVN_OK && !use_ema && e->card.ema_decay > 0.0) {
        s = load_without_average(e, file);
        e->card.ema_decay = 0.0;
    }
    if (s != LVN_OK) {
        lvn_error_frame("reading the model %s", file);
        lvni_recipes_exported_close(e);
    } else {
        *out = e;
    }
    lvni_core_free(file);
    return s;
}

static lvn_status build_for(const char *weights, lvni_recipes_exported *e)
{
    lvni_recipes_classifier_card *card = &e->card;
    const lvn_module_class *cls = lvni_nn_zoo_find(card->model);
    if (cls == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "model=%s: with weights= it names a network (resnet18, ...; `levin help "
                 "train.classify` lists them)",
                 card->model);
    }
    lvni_nn_zoo_arguments arguments = {.image_size = card->image_size, .n_classes = 1};
    lvni_nn_model *probe;
    /* for the name of its last layer */
    LVN_TRY(lvni_nn_model_build_empty(cls, &arguments, &probe));
    const lvn_status s = lvni_recipes_weights_classes(probe, weights, &card->n_classes);
    lvni_nn_model_destroy(probe);
    LVN_TRY(s);
    arguments.n_classes = card->n_classes;
    LVN_TRY(lvni_nn_model_build_empty(cls, &arguments, &e->model));
    lvni_recipes_weights_report report;
    const lvn_status loaded = lvni_recipes_model_load(e->model, weights, false, &report);
    if (loaded == LVN_OK) {
        lvni_recipes_weights_report_log(&report, weights);
    }
    lvni_recipes_weights_report_free(&report);
    return loaded;
}

lvn_status lvni_recipes_exported_from_weights(const char *name, const char *weights, int image_size,
                                              lvni_recipes_exported **out)
{
    *out = NULL;
    lvni_recipes_exported *e = LVNI_NEW(LVNI_TAG_CONFIG, lvni_recipes_exported);
    if (e == NULL) {
        return LVN_ERR_MEMORY;
    }
    e->model_name = lvni_core_strdup(LVNI_TAG_CONFIG, name);
    e->card = (lvni_recipes_classifier_card){
        .model = e->model_name, .image_size = image_size, .pins = lvni_core_pins_least()};
    const lvn_status s = e->model_name == NULL ? LVN_ERR_MEMORY : build_for(weights, e);
    if (s != LVN_OK) {
        lvni_recipes_exported_close(e);
        return s;
    }
    *out = e;
    return LVN_OK;
}

void lvni_recipes_exported_close(lvni_recipes_exported *e)
{
    if (e == NULL) {
        return;
    }
    lvni_nn_model_destroy(e->model);
    for (int i = 0; e->class_names != NULL && i < e->card.n_classes; i++) {
        lvni_core_free(e->class_names[i]);
    }
    lvni_core_free(e->class_names);
    lvni_core_free(e->model_name);
    lvni_core_free(e->data);
    lvni_core_pin_entries_destroy(e->pins);
    lvni_core_free(e);
}
