/* classify's model card (classify_card.h): written beside the weights, read again, compared on
 * resume. */
#include "recipes/classify/classify_card.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/str.h"
#include "recipes/classify/classify.h"
#include "run/recipe.h"
#include "run/weights.h"

#include <string.h>

/* Of a trained model: the card and what it points at. */
typedef struct trained {
    lvni_classify_card card; /* first: own points at it */
    lvni_nn_zoo_arguments arguments;
    char **class_names;
    char *name; /* of the network; NULL: the exported model has it */
} trained;

const lvni_classify_card *lvni_classify_card_of(const lvni_run_exported *e)
{
    return e->own;
}

static void free_card(void *own)
{
    trained *t = own;
    for (int i = 0; t->class_names != NULL && i < t->card.images.n_classes; i++) {
        lvni_core_free(t->class_names[i]);
    }
    lvni_core_free(t->class_names);
    lvni_core_free(t->name);
    lvni_core_free(t);
}

/* ---- writing ---- */

static void write_card(const lvni_run_card *general, const void *own, lvni_core_str *out)
{
    const lvni_classify_card *card = own;
    lvni_core_str_printf(out, ",\"image_size\":%d,\"dropout\":", card->images.eval.image_size);
    lvni_core_str_double(out, card->dropout);
    lvni_images_eval_write(&card->images.eval, out);
    lvni_core_str_append(out, ",\"classes\":[");
    for (int i = 0; i < card->images.n_classes; i++) {
        lvni_core_str_append(out, i == 0 ? "" : ",");
        lvni_core_str_json(out, card->images.class_names[i]);
    }
    lvni_core_str_append(out, "]");
    if (general->data != NULL) {
        lvni_core_str_append(out, ",\"val_split\":");
        lvni_core_str_double(out, card->images.val_split);
    }
}

void lvni_classify_summary(const lvni_run_job *job, lvni_core_str *out)
{
    const lvni_classify_card *card = job->own_card;
    lvni_core_str_printf(out, " with %d class%s", card->images.n_classes,
                         lvni_core_plural(card->images.n_classes, "", "es"));
}

/* ---- reading ---- */

/* Of a file from anywhere: the numbers that sizes and divisions are made of. */
static lvn_status check_card(const lvni_classify_card *card)
{
    if (card->images.eval.image_size < 4 || card->images.eval.image_size > 2048) {
        LVN_FAIL(LVN_ERR_CORRUPT, "its model card has image_size=%d: must be 4 to 2048",
                 card->images.eval.image_size);
    }
    if (!(card->dropout >= 0 && card->dropout < 1)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "its model card has dropout=%g: must be at least 0 and below 1",
                 card->dropout);
    }
    return LVN_OK;
}

/* The split of the training, for `eval`. Early files do not have it. */
static lvn_status read_split(const json_t *j, lvni_classify_card *card)
{
    const json_t *val_split = json_object_get(j, "val_split");
    if (card->images.general.data == NULL) {
        return LVN_OK;
    }
    card->images.val_split = json_number_value(val_split);
    if (!json_is_number(val_split) ||
        !(card->images.val_split >= 0 && card->images.val_split < 1)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "its model card has val_split=%g: must be at least 0 and below 1",
                 card->images.val_split);
    }
    return LVN_OK;
}

static lvn_status read_classes(const json_t *classes, trained *t)
{
    const size_t n = json_array_size(classes);
    t->class_names = lvni_core_calloc(LVNI_TAG_CONFIG, n, sizeof *t->class_names);
    if (t->class_names == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        const char *c = json_string_value(json_array_get(classes, i));
        lvni_core_str s = {0}; /* a file from anywhere may hold control characters here */
        lvni_core_str_escape(&s, c == NULL ? "?" : c, c == NULL ? 1 : strlen(c), LVNI_ESCAPE_TEXT);
        t->class_names[i] = lvni_core_str_take(&s);
        if (t->class_names[i] == NULL) {
            return LVN_ERR_MEMORY;
        }
        t->card.images.n_classes++;
    }
    t->card.images.class_names = (const char *const *)t->class_names;
    return LVN_OK;
}

static lvn_status choose_network(lvni_run_exported *e, trained *t)
{
    e->job.cls = lvni_nn_zoo_find(e->card.model);
    if (e->job.cls == NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s holds a model %s, which this version does not have",
                 e->file, e->card.model);
    }
    t->arguments = (lvni_nn_zoo_arguments){.image_size = t->card.images.eval.image_size,
                                           .n_classes = t->card.images.n_classes,
                                           .dropout = t->card.dropout};
    e->job.arguments = &t->arguments;
    return LVN_OK;
}

static lvn_status read_card(lvni_run_exported *e, const json_t *j)
{
    const json_t *classes = json_object_get(j, "classes");
    trained *t = e->own = LVNI_NEW(LVNI_TAG_CONFIG, trained);
    const size_t n = json_array_size(classes);
    if (t == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (n == 0 || n > 1000000) {
        LVN_FAIL(LVN_ERR_CORRUPT, "its model card is not complete");
    }
    e->job.own_card = &t->card;
    t->card.images.general = e->card;
    t->card.images.eval.image_size = lvni_run_card_int(json_object_get(j, "image_size"));
    t->card.dropout = json_number_value(json_object_get(j, "dropout"));
    LVN_TRY(check_card(&t->card));
    LVN_TRY(lvni_images_eval_read(j, &t->card.images.eval));
    LVN_TRY(read_split(j, &t->card));
    LVN_TRY(read_classes(classes, t));
    return choose_network(e, t);
}

/* ---- a network with weights of others ---- */

static lvn_status build_for(const lvni_run_weights_source *from, lvni_run_exported *e, trained *t)
{
    lvni_classify_card *card = &t->card;
    const lvn_module_class *cls = e->job.cls = lvni_nn_zoo_find(e->card.model);
    if (cls == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "model=%s: with weights= it names a network (resnet18, ...; `levin help "
                 "train.classify` lists them)",
                 e->card.model);
    }
    t->arguments =
        (lvni_nn_zoo_arguments){.image_size = card->images.eval.image_size, .n_classes = 1};
    lvni_nn_model *probe;
    /* for the name of its last layer */
    LVN_TRY(lvni_nn_model_build_empty(cls, &t->arguments, &probe));
    const lvn_status s = lvni_run_weights_classes(probe, from, &card->images.n_classes);
    lvni_nn_model_destroy(probe);
    LVN_TRY(s);
    t->arguments.n_classes = card->images.n_classes;
    e->job.arguments = &t->arguments;
    LVN_TRY(lvni_nn_model_build_empty(cls, &t->arguments, &e->model));
    lvni_run_weights_report report;
    const lvn_status loaded = lvni_run_model_load(e->model, from, &report);
    if (loaded == LVN_OK) {
        lvni_run_weights_report_log(&report, from->path);
    }
    lvni_run_weights_report_free(&report);
    return loaded;
}

lvn_status lvni_classify_from_weights(const char *name, const lvni_run_weights_source *from,
                                      int image_size, lvni_run_exported **out)
{
    *out = NULL;
    lvni_run_exported *e = LVNI_NEW(LVNI_TAG_CONFIG, lvni_run_exported);
    trained *t = LVNI_NEW(LVNI_TAG_CONFIG, trained);
    if (e == NULL || t == NULL) {
        lvni_core_free(e);
        lvni_core_free(t);
        return LVN_ERR_MEMORY;
    }
    t->name = lvni_core_strdup(LVNI_TAG_CONFIG, name);
    t->card.images.eval.image_size = image_size;
    *e = (lvni_run_exported){.recipe = &lvni_classify_recipe,
                             .own = t,
                             .card = {.model = t->name, .pins = lvni_core_pins_least()}};
    const lvn_status s = t->name == NULL ? LVN_ERR_MEMORY : build_for(from, e, t);
    if (s != LVN_OK) {
        lvni_run_exported_close(e);
        return s;
    }
    *out = e;
    return LVN_OK;
}

/* ---- on resume: the classes ---- */

static const char *name_at(const json_t *classes, size_t i)
{
    const char *name = json_string_value(json_array_get(classes, i));
    return name == NULL ? "" : name;
}

/* A set of the names, to look them up. NULL: memory is out. */
static json_t *set_of(const json_t *classes)
{
    json_t *set = json_object();
    for (size_t i = 0; set != NULL && i < json_array_size(classes); i++) {
        if (json_object_set_new(set, name_at(classes, i), json_null()) != 0) {
            json_decref(set);
            return NULL;
        }
    }
    return set;
}

/* "WHAT a, b and 3 more": those of `classes` that are not in `others`. Nothing when there are
 * none. */
static lvn_status list_missing(const json_t *classes, const json_t *others, const char *what,
                               lvni_core_str *out)
{
    enum { SHOWN = 3 };
    lvni_core_str names = {0};
    size_t n = 0;
    json_t *set = set_of(others);
    for (size_t i = 0; set != NULL && i < json_array_size(classes); i++) {
        if (json_object_get(set, name_at(classes, i)) == NULL) {
            if (n < SHOWN) {
                lvni_core_str_printf(&names, "%s%s", n == 0 ? "" : ", ", name_at(classes, i));
            }
            n++;
        }
    }
    if (n > 0) {
        lvni_core_str_printf(out, "%s%s %s", out->len == 0 ? "" : "; ", what,
                             lvni_core_str_text(&names));
    }
    if (n > SHOWN) {
        lvni_core_str_printf(out, " and %zu more", n - SHOWN);
    }
    const lvn_status s = set == NULL ? LVN_ERR_MEMORY : lvni_core_str_status(&names);
    json_decref(set);
    lvni_core_str_free(&names);
    return s;
}

/* The first class that stands elsewhere, where all names are there. */
static void report_order(const json_t *was, const json_t *is, lvni_core_str *out)
{
    for (size_t i = 0; i < json_array_size(is) && out->len == 0; i++) {
        if (strcmp(name_at(was, i), name_at(is, i)) != 0) {
            lvni_core_str_printf(out, "class %zu is %s here and was %s", i, name_at(is, i),
                                 name_at(was, i));
        }
    }
}

static lvn_status compare(const char *path, const json_t *was, const json_t *is)
{
    if (was == NULL || is == NULL || json_equal(was, is)) {
        return LVN_OK;
    }
    lvni_core_str text = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, list_missing(is, was, "the data has the class", &text));
    LVNI_TRY_DONE(s, list_missing(was, is, "it no longer has the class", &text));
    report_order(was, is, &text);
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    s = lvn_error_set(
        LVN_ERR_USAGE, __FILE__, __LINE__,
        "resume=true, and the classes are not those that %s was trained on: %s (%zu class%s "
        "now, %zu then); give the data the classes that it had, "
        "or start a new run in another out from its weights (weights=%s reset_head=true)",
        path, lvni_core_str_text(&text), json_array_size(is),
        lvni_core_plural((int64_t)json_array_size(is), "", "es"), json_array_size(was), path);
done:
    lvni_core_str_free(&text);
    return s;
}

static lvn_status compare_cards(const char *path, const json_t *saved, const json_t *now)
{
    return compare(path, json_object_get(saved, "classes"), json_object_get(now, "classes"));
}

const lvni_run_card_format lvni_classify_card_format = {.key = LVNI_CARD_CLASSIFIER,
                                                        .write = write_card,
                                                        .read = read_card,
                                                        .free = free_card,
                                                        .compare = compare_cards};
