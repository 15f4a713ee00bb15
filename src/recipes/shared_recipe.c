/* Recipes in shared objects (levin/recipe.h): one is loaded in a process, and becomes a row like
 * those of the registry. */
#include "core/alloc.h"
#include "core/str.h"
#include "recipes/options.h"
#include "recipes/recipe.h"

#include <levin/recipe.h>
#include <dlfcn.h>
#include <string.h>

static struct {
    const lvn_recipe *recipe; /* NULL: none is loaded */
    char *path;
    lvni_core_option *rows;
    lvni_core_option_table tables[4];
    lvni_recipes_recipe row;
} loaded;

/* ---- its keys ---- */

static lvni_core_option_type type_of(lvn_key_type type)
{
    switch (type) {
    case LVN_KEY_PATH: return LVNI_OPT_PATH;
    case LVN_KEY_INT: return LVNI_OPT_INT;
    case LVN_KEY_FLOAT: return LVNI_OPT_FLOAT;
    case LVN_KEY_BOOL: return LVNI_OPT_BOOL;
    case LVN_KEY_TEXT: break;
    }
    return LVNI_OPT_STRING;
}

static bool is_taken(const char *name)
{
    for (size_t t = 1; t < sizeof loaded.tables / sizeof *loaded.tables; t++) {
        for (size_t i = 0; i < loaded.tables[t].n; i++) {
            if (strcmp(name, loaded.tables[t].rows[i].name) == 0) {
                return true;
            }
        }
    }
    return false;
}

static lvn_status check_key(const lvn_key *key, const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_.";
    if (key->name == NULL || key->name[0] == '\0' ||
        strspn(key->name, letters) != strlen(key->name) || key->help == NULL) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "%s: the key %s: a name has lower case letters, digits, _ and ., and a key has "
                 "a help text",
                 path, key->name == NULL ? "without a name" : key->name);
    }
    if (is_taken(key->name)) {
        LVN_FAIL(LVN_ERR_INVALID, "%s: the key %s is one of every training: give it another name",
                 path, key->name);
    }
    return LVN_OK;
}

/* After the tables of every training are there. */
static lvn_status make_rows(const lvn_recipe *r, const char *path)
{
    loaded.rows = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)r->n_keys + 1, sizeof *loaded.rows);
    if (loaded.rows == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < r->n_keys; i++) {
        LVN_TRY(check_key(&r->keys[i], path));
        loaded.rows[i] = (lvni_core_option){.name = r->keys[i].name,
                                            .type = type_of(r->keys[i].type),
                                            .fallback = r->keys[i].fallback,
                                            .help = r->keys[i].help};
    }
    loaded.tables[0] =
        (lvni_core_option_table){.title = r->name, .rows = loaded.rows, .n = (size_t)r->n_keys};
    return LVN_OK;
}

static const lvni_core_option_table *tables(size_t *n)
{
    *n = sizeof loaded.tables / sizeof *loaded.tables;
    return loaded.tables;
}

/* lvn_keys is a configuration. NULL: unset, or of another type. */
static const lvni_core_config *holder(const lvn_keys *keys, const char *name,
                                      lvni_core_option_type type)
{
    const lvni_core_config *c = (const lvni_core_config *)(const void *)keys;
    const lvni_core_option *row =
        lvni_core_config_has(c, name) ? lvni_core_config_row(c, name) : NULL;
    const bool text = row != NULL && type == LVNI_OPT_STRING &&
                      (row->type == LVNI_OPT_PATH || row->type == LVNI_OPT_CHOICE);
    return row != NULL && (row->type == type || text) && lvni_core_config_is_set(c, name) ? c
                                                                                          : NULL;
}

bool lvn_key_is_set(const lvn_keys *keys, const char *name)
{
    const lvni_core_config *c = (const lvni_core_config *)(const void *)keys;
    return lvni_core_config_has(c, name) && lvni_core_config_is_set(c, name);
}

const char *lvn_key_text(const lvn_keys *keys, const char *name)
{
    const lvni_core_config *c = holder(keys, name, LVNI_OPT_STRING);
    return c == NULL ? NULL : lvni_core_config_str(c, name);
}

int64_t lvn_key_int(const lvn_keys *keys, const char *name)
{
    const lvni_core_config *c = holder(keys, name, LVNI_OPT_INT);
    return c == NULL ? 0 : lvni_core_config_int(c, name);
}

double lvn_key_float(const lvn_keys *keys, const char *name)
{
    const lvni_core_config *c = holder(keys, name, LVNI_OPT_FLOAT);
    return c == NULL ? 0.0 : lvni_core_config_float(c, name);
}

bool lvn_key_bool(const lvn_keys *keys, const char *name)
{
    const lvni_core_config *c = holder(keys, name, LVNI_OPT_BOOL);
    return c != NULL && lvni_core_config_bool(c, name);
}

/* ---- its data and module ---- */

static void close_training(void *state)
{
    lvn_job *job = state;
    if (job != NULL) {
        lvn_dataset_destroy(job->train);
        lvn_dataset_destroy(job->val);
        lvni_core_free(job);
    }
}

static lvn_status open_training(const lvni_recipes_recipe *row, lvni_recipes_fit_request *request,
                                void **state)
{
    const lvn_recipe *r = row->user;
    lvn_job *job = *state = LVNI_NEW(LVNI_TAG_DATA, lvn_job);
    if (job == NULL) {
        return LVN_ERR_MEMORY;
    }
    const lvn_status s = r->open((const lvn_keys *)(const void *)request->config, job);
    if (s != LVN_OK) {
        return lvn_last_error()->code == s
                   ? s
                   : lvn_error_set(s, __FILE__, __LINE__, "%s: open of the recipe %s failed",
                                   loaded.path, r->name);
    }
    return lvni_recipes_open_job(job, loaded.path, request);
}

/* ---- loading ---- */

static lvn_status check_recipe(const lvn_recipe *r, const char *path)
{
    if (r == NULL || r->abi != LVN_RECIPE_ABI) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s was made for version %u of levin/recipe.h, this is version %d: make it again "
                 "with levin cc",
                 path, r == NULL ? 0 : r->abi, LVN_RECIPE_ABI);
    }
    if (r->name == NULL || r->name[0] == '\0' || r->help == NULL || r->open == NULL ||
        r->n_keys < 0 || (r->n_keys > 0 && r->keys == NULL)) {
        LVN_FAIL(LVN_ERR_INVALID, "%s: a recipe has a name, a help text and open", path);
    }
    if (strspn(r->name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(r->name)) {
        LVN_FAIL(LVN_ERR_INVALID, "%s: the recipe's name is '%s': lower case letters, digits and _",
                 path, r->name);
    }
    return LVN_OK;
}

static lvn_status find_table(const char *path, const lvn_recipe **out)
{
    lvni_core_str file = {0}; /* without a slash the system's folders would be searched */
    lvni_core_str_printf(&file, "%s%s", strchr(path, '/') == NULL ? "./" : "", path);
    LVN_TRY(lvni_core_str_status(&file));
    void *object = dlopen(lvni_core_str_text(&file), RTLD_NOW | RTLD_LOCAL);
    lvni_core_str_free(&file);
    if (object == NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "the recipe cannot be loaded: %s", dlerror());
    }
    void *symbol = dlsym(object, LVN_RECIPE_SYMBOL);
    lvn_recipe_table_fn get;
    if (symbol == NULL) {
        dlclose(object);
        LVN_FAIL(LVN_ERR_USAGE, "%s does not export %s: it is not a recipe of levin", path,
                 LVN_RECIPE_SYMBOL);
    }
    memcpy(&get, &symbol, sizeof get);
    *out = get();
    return check_recipe(*out, path);
}

static lvn_status make_row(const lvn_recipe *r, const char *path)
{
    loaded.path = lvni_core_strdup(LVNI_TAG_CONFIG, path);
    if (loaded.path == NULL) {
        return LVN_ERR_MEMORY;
    }
    loaded.tables[1] = lvni_recipes_run_options;
    loaded.tables[2] = lvni_recipes_batch_options;
    loaded.tables[3] = lvni_recipes_optim_table;
    LVN_TRY(make_rows(r, path));
    loaded.row = (lvni_recipes_recipe){.name = r->name,
                                       .argument = loaded.path,
                                       .use = "[key=value ...]",
                                       .help = r->help,
                                       .defaults = r->options,
                                       .train_tables = tables,
                                       .open = open_training,
                                       .close = close_training,
                                       .user = r};
    loaded.recipe = r;
    return LVN_OK;
}

bool lvni_recipes_is_file(const char *name)
{
    const size_t n = strlen(name);
    return n > 3 && strcmp(name + n - 3, ".so") == 0;
}

lvn_status lvni_recipes_load(const char *path, const lvni_recipes_recipe **out)
{
    *out = NULL;
    if (loaded.recipe == NULL) {
        const lvn_recipe *r = NULL;
        LVN_TRY(find_table(path, &r));
        const lvn_status s = make_row(r, path);
        if (s != LVN_OK) {
            lvni_core_free(loaded.rows);
            lvni_core_free(loaded.path);
            memset(&loaded, 0, sizeof loaded);
            return s;
        }
    } else if (strcmp(path, loaded.path) != 0) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: a process trains one recipe, and has loaded %s", path,
                 loaded.path);
    }
    *out = &loaded.row;
    return LVN_OK;
}
