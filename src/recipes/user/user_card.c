/* The model card of a user's recipe (user_impl.h): the keys of the training, and what the recipe
 * puts beside them. With these a trained model is opened again. */
#include "recipes/user/user_impl.h"

#include "core/alloc.h"

#include <string.h>

/* ---- entries ---- */

static lvn_status set_entry(lvn_card *card, const char *name, const char *value)
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

static int find_entry(const lvn_card *card, const char *name)
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
    const int i = find_entry(card, name);
    if (i < 0) {
        return set_entry(card, name, value);
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
    const int i = find_entry(card, name);
    return i < 0 ? NULL : card->value[i];
}

/* ---- writing ---- */

lvn_status lvni_user_keep(lvni_user_card *card)
{
    const lvn_recipe_use *use = lvni_user_loaded.recipe->use;
    if (use == NULL || use->write_card == NULL) {
        return LVN_OK;
    }
    return lvni_user_returned(
        use->write_card((const lvn_keys *)(const void *)card->keys, &card->job, &card->entries),
        "use->write_card");
}

void lvni_user_card_write(const lvni_run_card *general, const void *own, lvni_core_str *out)
{
    (void)general;
    const lvni_user_card *card = own;
    lvni_core_str config = {0};
    if (lvni_core_config_to_model_json(card->keys, &config) != LVN_OK) {
        out->failed = true;
    }
    lvni_core_str_printf(out, ",\"config\":%s,\"card\":{", lvni_core_str_text(&config));
    for (int i = 0; i < card->entries.n; i++) {
        lvni_core_str_append(out, i == 0 ? "" : ",");
        lvni_core_str_json(out, card->entries.name[i]);
        lvni_core_str_append(out, ":");
        lvni_core_str_json(out, card->entries.value[i]);
    }
    lvni_core_str_append(out, "}");
    lvni_core_str_free(&config);
}

/* ---- reading ---- */

/* A value of the command as it would be typed. */
static void print_value(const lvni_core_config *c, const lvni_core_option *row, lvni_core_str *out)
{
    if (!lvni_core_config_is_set(c, row->name)) {
        lvni_core_str_append(out, "null");
        return;
    }
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

/* The recipe's keys that the command gives stand in front of those of the training. */
static lvn_status take_given(const lvni_core_config *given, lvni_core_config *keys)
{
    const lvni_core_option_table *own = &lvni_user_loaded.own;
    for (size_t i = 0; i < own->n; i++) {
        const char *name = own->rows[i].name;
        if (!lvni_core_config_has(given, name) ||
            lvni_core_config_layer(given, name) == LVNI_LAYER_DEFAULT) {
            continue;
        }
        lvni_core_str text = {0};
        print_value(given, &own->rows[i], &text);
        lvn_status s = lvni_core_str_status(&text);
        if (s == LVN_OK) {
            s = lvni_core_config_set(keys, name, lvni_core_str_text(&text),
                                     lvni_core_config_origin(given, name));
        }
        lvni_core_str_free(&text);
        LVN_TRY(s);
    }
    return LVN_OK;
}

static lvn_status read_keys(const json_t *config, const lvni_core_config *given,
                            lvni_core_config **out)
{
    const lvni_user_recipe *l = &lvni_user_loaded;
    LVN_TRY(lvni_run_card_keys(l->keys, l->recipe->options, config, out));
    LVN_TRY(take_given(given, *out));
    return lvni_core_config_finish(*out);
}

static lvn_status read_entries(const json_t *entries, lvn_card *card)
{
    const char *name;
    const json_t *value;
    void *at = json_object_iter((json_t *)(uintptr_t)entries);
    for (; at != NULL; at = json_object_iter_next((json_t *)(uintptr_t)entries, at)) {
        name = json_object_iter_key(at);
        value = json_object_iter_value(at);
        LVN_TRY(set_entry(card, name, json_is_string(value) ? json_string_value(value) : ""));
    }
    return LVN_OK;
}

static lvn_status open_job(lvni_user_card *card)
{
    const lvn_recipe *r = lvni_user_loaded.recipe;
    const lvn_keys *keys = (const lvn_keys *)(const void *)card->keys;
    const bool own = r->use != NULL && r->use->open != NULL;
    LVN_TRY(lvni_user_returned(
        own ? r->use->open(keys, &card->entries, lvni_user_loaded.use, &card->job)
            : r->open(keys, &card->job),
        own ? "use->open" : "open"));
    LVN_ARG(card->job.module != NULL, "%s needs a module class", lvni_user_loaded.path);
    return LVN_OK;
}

lvn_status lvni_user_card_read(lvni_run_exported *e, const json_t *json)
{
    lvni_user_card *card = e->own = LVNI_NEW(LVNI_TAG_CONFIG, lvni_user_card);
    if (card == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(read_keys(json_object_get(json, "config"), e->config, &card->own_keys));
    card->keys = card->own_keys;
    LVN_TRY(read_entries(json_object_get(json, "card"), &card->entries));
    LVN_TRY(open_job(card));
    e->cls = card->job.module;
    e->arguments = card->job.arguments;
    return LVN_OK;
}

void lvni_user_card_free(void *own)
{
    lvni_user_card *card = own;
    lvni_run_close_job(&card->job);
    for (int i = 0; i < card->entries.n; i++) {
        lvni_core_free(card->entries.name[i]);
        lvni_core_free(card->entries.value[i]);
    }
    lvni_core_free(card->entries.name);
    lvni_core_free(card->entries.value);
    lvni_core_config_destroy(card->own_keys);
    lvni_core_free(card);
}
