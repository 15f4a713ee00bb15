/* The general model card (card.h): the keys of the training, and the recipe's facts. */
#include "run/card.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "run/exported.h"
#include "run/recipe.h"

#include <string.h>

int lvni_run_card_int(const json_t *number)
{
    const double x = json_number_value(number);
    return x > -1e9 && x < 1e9 ? (int)x : -1;
}

/* ---- facts ---- */

static lvn_status add_fact(lvn_card *card, const char *name, const char *value)
{
    const size_t room = (size_t)card->n + 1;
    char **names = lvni_core_realloc(LVNI_TAG_CONFIG, card->name, room * sizeof *names);
    card->name = names != NULL ? names : card->name;
    char **values = lvni_core_realloc(LVNI_TAG_CONFIG, card->value, room * sizeof *values);
    card->value = values != NULL ? values : card->value;
    char *own_name = lvni_core_strdup(LVNI_TAG_CONFIG, name),
         *own_value = lvni_core_strdup(LVNI_TAG_CONFIG, value);
    if (names == NULL || values == NULL || own_name == NULL || own_value == NULL) {
        lvni_core_free(own_name);
        lvni_core_free(own_value);
        return LVN_ERR_MEMORY;
    }
    card->name[card->n] = own_name;
    card->value[card->n++] = own_value;
    return LVN_OK;
}

static int find_fact(const lvn_card *card, const char *name)
{
    for (int i = 0; i < card->n; i++) {
        if (strcmp(card->name[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

lvn_status lvn_card_set(lvn_card *card, const char *name, const char *value)
{
    LVN_ARG(card != NULL && name != NULL && value != NULL, "a card needs a name and a value");
    const int i = find_fact(card, name);
    if (i < 0) {
        return add_fact(card, name, value);
    }
    char *other = lvni_core_strdup(LVNI_TAG_CONFIG, value);
    if (other == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_core_free(card->value[i]);
    card->value[i] = other;
    return LVN_OK;
}

const char *lvn_card_text(const lvn_card *card, const char *name)
{
    const int i = find_fact(card, name);
    return i < 0 ? NULL : card->value[i];
}

void lvni_run_facts_free(lvn_card *facts)
{
    for (int i = 0; i < facts->n; i++) {
        lvni_core_free(facts->name[i]);
        lvni_core_free(facts->value[i]);
    }
    lvni_core_free(facts->name);
    lvni_core_free(facts->value);
    *facts = (lvn_card){0};
}

/* ---- writing ---- */

static void write_card(const lvni_run_card *general, const void *own, lvni_core_str *out)
{
    (void)general;
    const lvni_run_job *job = own;
    lvni_core_str config = {0};
    if (lvni_core_config_to_model_json(job->keys, &config) != LVN_OK) {
        out->failed = true;
    }
    lvni_core_str_printf(out, ",\"config\":%s", lvni_core_str_text(&config));
    lvni_core_str_free(&config);
    if (job->facts == NULL) {
        return;
    }
    lvni_core_str_append(out, ",\"card\":{");
    for (int i = 0; i < job->facts->n; i++) {
        lvni_core_str_append(out, i == 0 ? "" : ",");
        lvni_core_str_json(out, job->facts->name[i]);
        lvni_core_str_append(out, ":");
        lvni_core_str_json(out, job->facts->value[i]);
    }
    lvni_core_str_append(out, "}");
}

/* ---- reading ---- */

/* Of a trained model: what its job points at. */
typedef struct trained {
    lvni_core_config *keys;
    lvn_card facts;
} trained;

static void free_card(void *own)
{
    trained *t = own;
    lvni_run_facts_free(&t->facts);
    lvni_core_config_destroy(t->keys);
    lvni_core_free(t);
}

/* A value of the command as it would be typed. */
static void print_value(const lvni_core_config *c, const lvni_core_option *row, lvni_core_str *out)
{
    switch (row->type) {
    case LVNI_OPT_BOOL:
        lvni_core_str_append(out, lvni_core_config_bool(c, row->name) ? "true" : "false");
        break;
    case LVNI_OPT_INT:
        lvni_core_str_printf(out, "%lld", (long long)lvni_core_config_int(c, row->name));
        break;
    case LVNI_OPT_FLOAT:
        lvni_core_str_printf(out, "%.17g", lvni_core_config_float(c, row->name));
        break;
    default: lvni_core_str_append(out, lvni_core_config_str(c, row->name));
    }
}

/* The recipe's keys that the command gives stand in front of those of the training; null and auto
 * give nothing, as in a file that lists all keys. */
static lvn_status take_given(const lvni_core_option_table *own, const lvni_core_config *given,
                             lvni_core_config *keys)
{
    for (size_t i = 0; own != NULL && given != NULL && i < own->n; i++) {
        const lvni_core_option *row = &own->rows[i];
        if (row->alias_of != NULL || !lvni_core_config_has(given, row->name) ||
            lvni_core_config_layer(given, row->name) == LVNI_LAYER_DEFAULT ||
            !lvni_core_config_is_set(given, row->name)) {
            continue;
        }
        lvni_core_str text = {0};
        print_value(given, row, &text);
        lvn_status s = lvni_core_str_status(&text);
        if (s == LVN_OK) {
            s = lvni_core_config_set(keys, row->name, lvni_core_str_text(&text),
                                     lvni_core_config_origin(given, row->name));
        }
        lvni_core_str_free(&text);
        LVN_TRY(s);
    }
    return LVN_OK;
}

static lvn_status load_keys(const lvni_run_recipe *recipe, const json_t *json,
                            lvni_core_config **out)
{
    if (!json_is_object(json)) {
        LVN_FAIL(LVN_ERR_CORRUPT, "its model card has no keys of the training");
    }
    lvni_core_str text = {0};
    lvni_core_json_print(json, JSON_REAL_PRECISION(17), &text);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    LVNI_TRY_DONE(s, lvni_core_config_create(recipe->keys, out));
    LVNI_TRY_DONE(s, lvni_core_config_load_job(*out, recipe->defaults.job));
    s = lvni_core_config_load_yaml(*out, LVNI_LAYER_SAVED, "model card", lvni_core_str_text(&text),
                                   text.len);
done:
    lvni_core_str_free(&text);
    return s;
}

static lvn_status read_facts(const json_t *json, lvn_card *facts)
{
    json_t *object = (json_t *)(uintptr_t)json; /* jansson's iterators take no const */
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        const char *text = json_string_value(json_object_iter_value(at));
        LVN_TRY(add_fact(facts, json_object_iter_key(at), text != NULL ? text : ""));
    }
    return LVN_OK;
}

static lvn_status read_card(lvni_run_exported *e, const json_t *json)
{
    trained *t = e->own = LVNI_NEW(LVNI_TAG_CONFIG, trained);
    if (t == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(load_keys(e->recipe, json_object_get(json, "config"), &t->keys));
    LVN_TRY(take_given(e->recipe->own, e->job.config, t->keys));
    LVN_TRY(lvni_core_config_finish(t->keys));
    LVN_TRY(read_facts(json_object_get(json, "card"), &t->facts));
    e->job.keys = t->keys;
    e->job.facts = json_object_get(json, "card") != NULL ? &t->facts : NULL;
    return LVN_OK;
}

const lvni_run_card_format lvni_run_general_card = {
    .key = LVNI_CARD, .write = write_card, .read = read_card, .free = free_card};
