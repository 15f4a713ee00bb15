/* Reading trained models (exported.h). */
#include "run/exported.h"

#include "ckpt/checkpoint.h"
#include "ckpt/torch_file.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/json_read.h"
#include "core/str.h"
#include "core/vfs.h"
#include "plan/plan.h"
#include "run/recipe.h"
#include "run/run_dir.h"
#include "run/weights.h"
#include "trainer/identity.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the card ---- */

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

/* What backends recorded in the training; NULL: nothing. */
static lvn_status read_entries(lvni_run_exported *e, const char *text)
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

/* What the data of the training was. Early files do not have it. */
static lvn_status read_data(lvni_run_exported *e, const json_t *j)
{
    const char *data = json_string_value(json_object_get(j, "data"));
    const json_t *seed = json_object_get(j, "seed");
    e->card.seed = json_integer_value(seed);
    if (data == NULL && seed == NULL) {
        return LVN_OK;
    }
    if (!json_is_integer(seed) || e->card.seed < 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "its model card has seed=%lld: must be a whole number, at least 0",
                 (long long)e->card.seed);
    }
    e->data = data == NULL ? NULL : lvni_core_strdup(LVNI_TAG_CONFIG, data);
    e->card.data = e->data;
    return data != NULL && e->data == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static lvn_status read_card(lvni_run_exported *e, const json_t *j)
{
    const char *name = json_string_value(json_object_get(j, "model"));
    const json_t *version = json_object_get(j, "version");
    if (version != NULL && lvni_run_card_int(version) != LVNI_CARD_VERSION) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "its model card is of version %d, this levin reads version %d",
                 lvni_run_card_int(version), LVNI_CARD_VERSION);
    }
    if (name == NULL) {
        LVN_FAIL(LVN_ERR_CORRUPT, "its model card is not complete");
    }
    e->model_name = lvni_core_strdup(LVNI_TAG_CONFIG, name);
    if (e->model_name == NULL) {
        return LVN_ERR_MEMORY;
    }
    e->card.model = e->model_name;
    e->decay = json_number_value(json_object_get(j, "ema_decay"));
    LVN_TRY(read_pins(j, &e->card.pins));
    LVN_TRY(read_data(e, j));
    return e->recipe->card->read(e, j);
}

/* The recipe that a file names; NULL: none. */
static const char *recipe_of(const lvni_ckpt_st_file *file)
{
    const char *name = lvni_ckpt_st_meta_get(file, LVNI_CARD_RECIPE);
    const bool early = name == NULL && lvni_ckpt_st_meta_get(file, LVNI_CARD_CLASSIFIER) != NULL;
    return early ? LVNI_CARD_CLASSIFIER_RECIPE : name;
}

/* Trainings of recipes have a card in every file; other programs' files have no step of ours. */
bool lvni_run_is_of_program(const lvni_ckpt_st_file *file)
{
    return recipe_of(file) == NULL && lvni_ckpt_st_meta_get(file, LVNI_CKPT_STEP) != NULL;
}

static lvn_status fail_of_program(const char *path, const lvni_ckpt_st_file *file)
{
    const bool checkpoint = lvni_ckpt_st_meta_get(file, LVNI_CKPT_FORMAT) != NULL;
    LVN_FAIL(LVN_ERR_MISMATCH,
             "%s is of a program of your own, whose module levin does not have. %s. For levin "
             "eval, predict and export the module has to be a recipe in a shared object "
             "(examples/07_recipe, levin cc): levin train ./mine.so weights=FILE out=... starts "
             "from these weights, and levin eval ./mine.so model=... uses the result",
             path,
             checkpoint ? "The exported_models/ of its run has the weights as safetensors"
                        : "It has the weights as safetensors, and levin ckpt convert writes them "
                          "for torch.load");
}

/* With the recipe and the file. */
#define MAKES                                                                                      \
    "levin export %s weights=%s output=W.safetensors with the keys of a training, or with "        \
    "config=FILE, makes one of weights of another program"

/* The first recipe is that of a command that names none; `export` does not take a word that is
 * typed for one of levin's own. */
static const char *recipe_to_type(const lvni_run_recipe *recipe)
{
    return recipe == NULL || recipe->is_default ? "RECIPE"
           : lvni_run_is_own(recipe)            ? recipe->name
                                                : lvni_run_typed(recipe);
}

/* Opened for a model: weights alone do not show of which network they are. recipe NULL: not
 * known. */
static lvn_status open_st(const char *file, const lvni_run_recipe *recipe, unsigned flags,
                          lvni_ckpt_st_file **out)
{
    if (lvni_ckpt_is_torch(file)) {
        LVN_FAIL(LVN_ERR_MISMATCH, "%s holds tensors of PyTorch and is not a %s of levin; " MAKES,
                 file, recipe != NULL ? recipe->noun : "model", recipe_to_type(recipe), file);
    }
    return lvni_ckpt_st_open(file, flags, out);
}

static lvn_status check_recipe(const lvni_run_exported *e, const char *name)
{
    const lvni_run_recipe *r = e->recipe;
    if (name != NULL && strcmp(name, r->name) != 0) {
        LVN_FAIL(LVN_ERR_MISMATCH, "%s is a model of the recipe %s, not of %s", e->file, name,
                 r->name);
    }
    return LVN_OK;
}

static lvn_status read_metadata(lvni_run_exported *e, const lvni_ckpt_st_file *file)
{
    LVN_TRY(check_recipe(e, recipe_of(file)));
    json_t *j =
        lvni_core_json_try(lvni_ckpt_st_meta_get(file, e->recipe->card->key), LVNI_JSON_INNER);
    if (j == NULL && lvni_run_is_of_program(file)) {
        return fail_of_program(e->file, file);
    }
    if (j == NULL) {
        LVN_FAIL(LVN_ERR_MISMATCH,
                 "%s is not a %s of levin; give model= a run directory, a file of its "
                 "exported_models/ or one of its checkpoints; " MAKES,
                 e->file, e->recipe->noun, recipe_to_type(e->recipe), e->file);
    }
    const lvn_status s = read_card(e, j);
    json_decref(j);
    LVN_TRY(s);
    return read_entries(e, lvni_ckpt_st_meta_get(file, LVNI_IDENTITY_PINS));
}

/* ---- files ---- */

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

static const char MODELS[] = "exported_models";

/* A run that has saved a model, and when its last one was named; false: none. */
static bool is_run_folder(const char *path, struct timespec *when)
{
    struct stat st;
    char *inside = lvni_run_path_join(path, MODELS);
    const bool found = inside != NULL && stat(inside, &st) == 0 && S_ISDIR(st.st_mode);
    *when = found ? st.st_mtim : (struct timespec){0};
    lvni_core_free(inside);
    return found;
}

/* The run that a folder without a model is near: the one that holds it, or else the newest of those
 * in it; freed by the caller. NULL: none. */
static char *find_run_near(const char *path)
{
    struct timespec when, newest = {0};
    lvni_core_str above = {0};
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    while (n > 0 && path[n - 1] != '/') {
        n--;
    }
    lvni_core_str_append_n(&above, n > 0 ? path : ".", n > 1 ? n - 1 : 1);
    char *near = lvni_core_str_take(&above);
    if (near != NULL && is_run_folder(near, &when)) {
        return near;
    }
    lvni_core_free(near);
    near = NULL;
    DIR *d = opendir(path);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char *one = e->d_name[0] == '.' ? NULL : lvni_run_path_join(path, e->d_name);
        const bool newer = one != NULL && is_run_folder(one, &when) &&
                           (near == NULL || when.tv_sec > newest.tv_sec ||
                            (when.tv_sec == newest.tv_sec && when.tv_nsec > newest.tv_nsec));
        char **unused = newer ? &near : &one;
        lvni_core_free(*unused);
        *unused = NULL;
        near = newer ? one : near;
        newest = newer ? when : newest;
    }
    if (d != NULL) {
        closedir(d);
    }
    return near;
}

static lvn_status fail_no_models(const char *path)
{
    char *near = find_run_near(path);
    lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                  "%s has no %s/: model= takes the directory of a run that has saved a model, as "
                  "out/NAME, or an exported .safetensors file%s%s",
                  path, MODELS, near != NULL ? "; did you mean model=" : "",
                  near != NULL ? near : "");
    lvni_core_free(near);
    return LVN_ERR_NOT_FOUND;
}

/* What a model was exported from: RUN/exported_models/exported_NAME has its weights in
 * RUN/checkpoints/NAME. Empty: it is of no run, or its checkpoint is gone. */
static lvn_status find_checkpoint(const char *file, lvni_core_str *out)
{
    static const char folder[] = "exported_models/exported_";
    const char *at = strstr(file, folder);
    while (at != NULL && strstr(at + 1, folder) != NULL) {
        at = strstr(at + 1, folder);
    }
    if (at == NULL) {
        return LVN_OK;
    }
    lvni_core_str_append_n(out, file, (size_t)(at - file));
    lvni_core_str_printf(out, "checkpoints/%s", at + sizeof folder - 1);
    LVN_TRY(lvni_core_str_status(out));
    if (!lvni_core_path_exists(lvni_core_str_text(out))) {
        lvni_core_str_clear(out);
    }
    return LVN_OK;
}

/* In a run directory. Each checkpoint is followed by its model, so there is at most one more. */
static lvn_status fail_not_exported(const char *file)
{
    lvni_core_str newest = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, find_checkpoint(file, &newest));
    s = newest.len > 0
            ? lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                            "%s does not exist: the run has not exported a model yet; model=%s "
                            "takes its newest checkpoint",
                            file, lvni_core_str_text(&newest))
            : lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                            "%s does not exist: the run has not exported a model yet, which it "
                            "does with its first checkpoint; if it has ended before, start it "
                            "again with resume=true",
                            file);
done:
    lvni_core_str_free(&newest);
    return s;
}

/* The file behind model=PATH; freed by the caller. */
static lvn_status find_file(const char *path, const char *which, char **file)
{
    struct timespec when;
    const bool is_run = is_run_folder(path, &when);
    *file = NULL;
    if (!is_run && lvni_core_path_is_folder(path)) {
        return fail_no_models(path);
    }
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
        lvni_core_str_printf(&s, "%s/%s/exported_%s.safetensors", path, MODELS, names[i]);
        lvni_core_free(*file);
        *file = lvni_core_str_take(&s);
        if (*file == NULL || lvni_core_path_exists(*file)) {
            break;
        }
    }
    if (*file == NULL || lvni_core_path_exists(*file)) {
        return *file == NULL ? LVN_ERR_MEMORY : LVN_OK;
    }
    const lvn_status s =
        is_run ? fail_not_exported(*file)
               : lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                               "%s does not exist: model= takes a run directory or an exported "
                               ".safetensors file",
                               *file);
    lvni_core_free(*file);
    *file = NULL;
    return s;
}

lvn_status lvni_run_exported_check(const char *path, const char *which)
{
    char *file;
    LVN_TRY(find_file(path, which, &file));
    lvni_core_free(file);
    return LVN_OK;
}

/* The weights that an average was made of. */
static lvn_status load_without_average(const lvni_run_exported *e, lvni_nn_model *model)
{
    lvni_core_str checkpoint = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, find_checkpoint(e->file, &checkpoint));
    if (checkpoint.len == 0) {
        s = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                          "it holds averaged weights (ema.decay=%g), and use_ema=false requests "
                          "the others, which are in the checkpoints of the run: give "
                          "model= the run directory",
                          e->decay);
        goto done;
    }
    const lvni_run_weights_source from = {.path = lvni_core_str_text(&checkpoint)};
    s = lvni_run_model_load(model, &from, NULL);
done:
    lvni_core_str_free(&checkpoint);
    return s;
}

/* ---- the model ---- */

static int64_t read_step(const lvni_ckpt_st_file *file)
{
    const char *text = lvni_ckpt_st_meta_get(file, LVNI_CKPT_STEP);
    char *end = NULL;
    const int64_t step = text == NULL ? -1 : strtoll(text, &end, 10);
    return end == NULL || end == text || *end != '\0' || step < 0 ? -1 : step;
}

static lvn_status read_model(lvni_run_exported *e, const lvni_ckpt_st_file *file,
                             lvni_nn_model **out)
{
    e->step = read_step(file);
    const double decay = e->use_ema ? shown_average(file) : 0.0;
    LVN_TRY(lvni_nn_model_build_empty(e->job.cls, e->job.arguments, out));
    const bool whole = lvni_ckpt_st_meta_get(file, LVNI_CKPT_FORMAT) != NULL;
    LVN_TRY(lvni_run_model_load_shown(*out, file, whole ? NULL : e->job.exported_part, e->file,
                                      decay > 0.0));
    if (!e->use_ema && e->decay > 0.0) {
        return load_without_average(e, *out);
    }
    e->card.ema_decay = decay > 0.0 ? decay : e->decay;
    return LVN_OK;
}

lvn_status lvni_run_exported_again(const lvni_run_exported *exported, lvni_nn_model **out)
{
    lvni_run_exported other = *exported;
    lvni_ckpt_st_file *file;
    *out = NULL;
    lvn_status s = open_st(exported->file, exported->recipe, LVNI_ST_VERIFY, &file);
    if (s == LVN_OK) {
        s = read_model(&other, file, out);
        lvni_ckpt_st_close(file);
    }
    if (s != LVN_OK) {
        lvn_error_frame("reading the model %s", exported->file);
        lvni_nn_model_destroy(*out);
        *out = NULL;
    }
    return s;
}

/* The card, the weights, and the data that the recipe opens, which may take long: of a damaged
 * model the error comes before. A recipe of one's own opens its network with them. What is wrong
 * with the data is not a mistake of the file. */
static lvn_status read_file(lvni_run_exported *e, const lvni_ckpt_st_file *file, bool *of_data)
{
    LVN_TRY(read_metadata(e, file));
    e->opened = true;
    e->job.data = e->card.data;
    e->job.part_alone = lvni_ckpt_st_meta_get(file, LVNI_CKPT_FORMAT) == NULL;
    LVN_TRY(e->recipe->network != NULL ? e->recipe->network(&e->job) : LVN_OK);
    const bool known = e->job.cls != NULL;
    LVN_TRY(known ? read_model(e, file, &e->model) : LVN_OK);
    *of_data = true;
    LVN_TRY(e->recipe->open(&e->job));
    *of_data = false;
    return known ? LVN_OK : read_model(e, file, &e->model);
}

/* A damaged file of a run has the same weights in its checkpoint. */
static void append_checkpoint(const char *file)
{
    lvni_core_str checkpoint = {0};
    if (find_checkpoint(file, &checkpoint) == LVN_OK && checkpoint.len > 0) {
        lvn_error_append("; it was exported from a checkpoint: model=%s",
                         lvni_core_str_text(&checkpoint));
    }
    lvni_core_str_free(&checkpoint);
}

static lvn_status read_all(lvni_run_exported *e)
{
    bool of_data = false;
    lvni_ckpt_st_file *file;
    lvn_status s = open_st(e->file, e->recipe, LVNI_ST_VERIFY, &file);
    if (s == LVN_OK) {
        s = read_file(e, file, &of_data);
        lvni_ckpt_st_close(file);
    }
    if (s == LVN_ERR_CORRUPT && !of_data) {
        append_checkpoint(e->file);
    }
    if (s != LVN_OK && !of_data) {
        lvn_error_frame("reading the model %s", e->file);
    }
    return s;
}

lvn_status lvni_run_exported_open(const lvni_run_recipe *recipe,
                                  const lvni_run_exported_place *place, lvni_run_purpose purpose,
                                  lvni_core_config *config, lvni_run_exported **out)
{
    *out = NULL;
    char *file;
    LVN_TRY(find_file(place->path, place->which, &file));
    lvni_run_exported *e = LVNI_NEW(LVNI_TAG_CONFIG, lvni_run_exported);
    if (e == NULL) {
        lvni_core_free(file);
        return LVN_ERR_MEMORY;
    }
    *e = (lvni_run_exported){.recipe = recipe,
                             .job = {.purpose = purpose, .config = config, .recipe = recipe},
                             .file = file,
                             .use_ema = place->use_ema};
    const lvn_status s = read_all(e);
    if (s != LVN_OK) {
        lvni_run_exported_close(e);
        return s;
    }
    *out = e;
    return LVN_OK;
}

lvn_status lvni_run_exported_recipe(const char *path, const char *which, char **name)
{
    char *file;
    lvni_ckpt_st_file *opened;
    *name = NULL;
    LVN_TRY(find_file(path, which, &file));
    lvn_status s = open_st(file, NULL, LVNI_ST_HEADER_ONLY, &opened);
    if (s == LVN_OK) {
        const char *text = recipe_of(opened);
        *name = text == NULL ? NULL : lvni_core_strdup(LVNI_TAG_CONFIG, text);
        s = text != NULL && *name == NULL ? LVN_ERR_MEMORY : LVN_OK;
        s = lvni_run_is_of_program(opened) ? fail_of_program(file, opened) : s;
        lvni_ckpt_st_close(opened);
    } else {
        lvn_error_frame("reading the model %s", file);
    }
    lvni_core_free(file);
    return s;
}

void lvni_run_exported_close(lvni_run_exported *e)
{
    if (e == NULL) {
        return;
    }
    lvni_nn_model_destroy(e->model);
    if (e->opened && e->recipe->close != NULL) {
        e->recipe->close(&e->job);
    }
    if (e->own != NULL) {
        e->recipe->card->free(e->own);
    }
    lvni_core_free(e->model_name);
    lvni_core_free(e->data);
    lvni_core_pin_entries_destroy(e->pins);
    lvni_core_free(e->file);
    lvni_core_free(e);
}
