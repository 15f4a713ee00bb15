/* Recipes in shared objects (levin/recipe.h): one is loaded in a process, and becomes a row like
 * those of the registry. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "recipes/user/user_impl.h"
#include "recipes/user/user_recipe.h"
#include "run/options.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

lvni_user_recipe lvni_user_loaded;
#define loaded lvni_user_loaded

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

static bool has_row(const lvni_core_option_table *table, const char *name)
{
    for (size_t i = 0; i < table->n; i++) {
        if (strcmp(name, table->rows[i].name) == 0) {
            return true;
        }
    }
    return false;
}

/* By which command; NULL: by none. */
static const char *taken_by(const char *name)
{
    for (lvni_core_option_list t = lvni_run_job_keys; *t != NULL; t++) {
        if (has_row(*t, name)) {
            return "training";
        }
    }
    return has_row(&lvni_run_inference_options, name) || has_row(&lvni_user_predict_options, name)
               ? "levin predict"
           : has_row(&lvni_user_eval_options, name)  ? "levin eval"
           : has_row(&lvni_run_export_options, name) ? "levin export"
                                                     : NULL;
}

static lvn_status check_key(const lvn_key *key, const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_.";
    if (key->name == NULL || key->help == NULL) {
        LVN_FAIL(LVN_ERR_INVALID, "%s: the key %s has no %s", path,
                 key->name == NULL ? "behind the others" : key->name,
                 key->name == NULL ? "name: is .n_keys their number?" : "help text");
    }
    if (key->name[0] == '\0' || strspn(key->name, letters) != strlen(key->name)) {
        LVN_FAIL(LVN_ERR_INVALID, "%s: the key '%.40s': lower case letters, digits, _ and .", path,
                 key->name);
    }
    const char *command = taken_by(key->name);
    if (command != NULL) {
        LVN_FAIL(LVN_ERR_INVALID, "%s: the key %s is one of every %s: give it another name", path,
                 key->name, command);
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
        for (int k = 0; k < i; k++) {
            if (strcmp(r->keys[k].name, r->keys[i].name) == 0) {
                LVN_FAIL(LVN_ERR_INVALID, "%s: the key %s is there twice", path, r->keys[i].name);
            }
        }
        loaded.rows[i] = (lvni_core_option){.name = r->keys[i].name,
                                            .type = type_of(r->keys[i].type),
                                            .fallback = r->keys[i].fallback,
                                            .help = r->keys[i].help,
                                            .no_file = "builtin:"}; /* as data= of classify */
    }
    loaded.own =
        (lvni_core_option_table){.title = r->name, .rows = loaded.rows, .n = (size_t)r->n_keys};
    return LVN_OK;
}

/* lvn_keys is a configuration. */
static const lvni_core_config *config_of(const lvn_keys *keys)
{
    return (const lvni_core_config *)(const void *)keys;
}

/* The row, of one of two types; NULL: a mistake of the recipe's author, which open_training
 * reports, whatever open makes of it. */
static const lvni_core_option *find_row(const lvn_keys *keys, const char *name,
                                        lvni_core_option_type type, lvni_core_option_type or_type)
{
    const lvni_core_config *c = config_of(keys);
    const lvni_core_option *row =
        lvni_core_config_has(c, name) ? lvni_core_config_row(c, name) : NULL;
    if (row != NULL && (row->type == type || row->type == or_type)) {
        return row;
    }
    (void)lvn_error_set(
        LVN_ERR_INVALID, __FILE__, __LINE__, "the recipe asks for the key %s%s", name,
        row == NULL ? ", which there is not" : " with the function of another type");
    if (loaded.wrong_key.code == LVN_OK) {
        loaded.wrong_key = *lvn_last_error();
    }
    return NULL;
}

static bool has_value(const lvn_keys *keys, const char *name, lvni_core_option_type type,
                      lvni_core_option_type or_type)
{
    return find_row(keys, name, type, or_type) != NULL &&
           lvni_core_config_is_set(config_of(keys), name);
}

bool lvn_key_is_set(const lvn_keys *keys, const char *name)
{
    return lvni_core_config_has(config_of(keys), name) &&
           lvni_core_config_is_set(config_of(keys), name);
}

const char *lvn_key_text(const lvn_keys *keys, const char *name)
{
    return has_value(keys, name, LVNI_OPT_STRING, LVNI_OPT_PATH)
               ? lvni_core_config_str(config_of(keys), name)
               : NULL;
}

int64_t lvn_key_int(const lvn_keys *keys, const char *name)
{
    return has_value(keys, name, LVNI_OPT_INT, LVNI_OPT_INT)
               ? lvni_core_config_int(config_of(keys), name)
               : 0;
}

double lvn_key_float(const lvn_keys *keys, const char *name)
{
    return has_value(keys, name, LVNI_OPT_FLOAT, LVNI_OPT_FLOAT)
               ? lvni_core_config_float(config_of(keys), name)
               : 0.0;
}

bool lvn_key_bool(const lvn_keys *keys, const char *name)
{
    return has_value(keys, name, LVNI_OPT_BOOL, LVNI_OPT_BOOL) &&
           lvni_core_config_bool(config_of(keys), name);
}

/* ---- its data and module ---- */

static void close_training(void *state)
{
    if (state != NULL) {
        lvni_user_card_free(state);
    }
}

lvn_status lvni_user_returned(lvn_status status, const char *name)
{
    if (loaded.wrong_key.code != LVN_OK) {
        (void)lvn_error_adopt(&loaded.wrong_key);
    } else if (status == LVN_OK) {
        return LVN_OK;
    } else if (lvn_last_error()->code != status) {
        return lvn_error_set(status, __FILE__, __LINE__, "%s of the recipe failed (%s)", name,
                             loaded.path);
    }
    lvn_error_frame("%s", loaded.path);
    return lvn_last_error()->code;
}

static lvn_status open_training(const lvni_run_recipe *row, lvni_run_fit_request *request,
                                void **state)
{
    const lvn_recipe *r = row->user;
    lvni_user_card *card = *state = LVNI_NEW(LVNI_TAG_DATA, lvni_user_card);
    if (card == NULL) {
        return LVN_ERR_MEMORY;
    }
    card->keys = request->config;
    LVN_TRY(lvni_user_returned(r->open((const lvn_keys *)(const void *)card->keys, &card->job),
                               "open"));
    LVN_TRY(lvni_run_open_job(&card->job, loaded.path, request));
    LVN_TRY(lvni_user_keep(card));
    request->model = card->job.module->name;
    request->own_card = card;
    return LVN_OK;
}

/* ---- loading ---- */

typedef const lvni_run_recipe *(*find_own)(const char *name);

static lvn_status check_recipe(const lvn_recipe *r, const char *path, find_own find)
{
    if (r == NULL) {
        LVN_FAIL(LVN_ERR_INVALID, "%s: %s returns NULL, not a recipe", path, LVN_RECIPE_SYMBOL);
    }
    if (r->abi != LVN_RECIPE_ABI) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s was made for version %u of levin/recipe.h, this is version %d: set .abi = "
                 "LVN_RECIPE_ABI and make it again with levin cc",
                 path, r->abi, LVN_RECIPE_ABI);
    }
    const char *missing = r->name == NULL || r->name[0] == '\0' ? "name"
                          : r->help == NULL                     ? "help"
                          : r->open == NULL                     ? "open"
                          : r->n_keys > 0 && r->keys == NULL    ? "keys"
                          : r->n_keys < 0                       ? "n_keys"
                                                                : NULL;
    if (missing != NULL) {
        LVN_FAIL(LVN_ERR_INVALID, "%s: the recipe's .%s is missing", path, missing);
    }
    if (find(r->name) != NULL) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "%s: the recipe's name is %s, that of one of levin's own: give it "
                 "another",
                 path, r->name);
    }
    if (strspn(r->name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(r->name)) {
        LVN_FAIL(LVN_ERR_INVALID, "%s: the recipe's name is '%s': lower case letters, digits and _",
                 path, r->name);
    }
    return LVN_OK;
}

typedef struct range {
    uintptr_t within, from, to;
} range;

static int find_range(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    range *r = user;
    uintptr_t from = UINTPTR_MAX, to = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            const uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            from = at < from ? at : from;
            to = at + info->dlpi_phdr[i].p_memsz > to ? at + info->dlpi_phdr[i].p_memsz : to;
        }
    }
    if (r->within < from || r->within >= to) {
        return 0;
    }
    r->from = from;
    r->to = to;
    return 1;
}

/* A crash in it names the object: the process of one device has no launcher that reports it. */
static lvn_status report_crashes(const char *path, const void *symbol)
{
    range r = {.within = (uintptr_t)symbol};
    (void)dl_iterate_phdr(find_range, &r);
    return lvni_core_error_report_crashes(path, (const void *)r.from, (const void *)r.to);
}

static lvn_status find_table(const char *path, find_own find, const lvn_recipe **out)
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
    LVN_TRY(report_crashes(path, symbol));
    *out = get();
    return check_recipe(*out, path, find);
}

/* The lists of keys, each with the recipe's own in front. */
static void make_lists(lvni_user_recipe *l)
{
    size_t n = 0;
    l->keys[n++] = &l->own;
    for (lvni_core_option_list t = lvni_run_job_keys; *t != NULL; t++) {
        l->keys[n++] = *t;
    }
    l->predict_keys[0] = l->eval_keys[0] = l->export_keys[0] = &l->own;
    l->predict_keys[1] = l->eval_keys[1] = &lvni_run_inference_options;
    l->predict_keys[2] = &lvni_user_predict_options;
    l->eval_keys[2] = &lvni_user_eval_options;
    l->export_keys[1] = &lvni_run_export_options;
}

const lvni_run_recipe *lvni_user_row(void)
{
    static const lvni_run_recipe row = {.use = "[key=value ...]",
                                        .model_keys = "the keys of the recipe",
                                        .keys = loaded.keys,
                                        .open = open_training,
                                        .close = close_training,
                                        .card_key = LVNI_CARD,
                                        .noun = "model of this recipe",
                                        .card_write = lvni_user_card_write,
                                        .card_read = lvni_user_card_read,
                                        .card_free = lvni_user_card_free,
                                        .predict_keys = loaded.predict_keys,
                                        .predict = lvni_user_predict,
                                        .eval_keys = loaded.eval_keys,
                                        .eval = lvni_user_eval,
                                        .export_keys = loaded.export_keys};
    if (loaded.recipe == NULL) {
        loaded.own = (lvni_core_option_table){.title = "recipe"};
        loaded.row = row;
        make_lists(&loaded);
    }
    return &loaded.row;
}

static lvn_status make_row(const lvn_recipe *r, const char *path)
{
    loaded.path = lvni_core_strdup(LVNI_TAG_CONFIG, path);
    if (loaded.path == NULL) {
        return LVN_ERR_MEMORY;
    }
    (void)lvni_user_row(); /* the tables */
    LVN_TRY(make_rows(r, path));
    loaded.row.name = r->name;
    loaded.row.argument = loaded.path;
    loaded.row.help = r->help;
    loaded.row.defaults.job = r->options;
    loaded.row.user = r;
    loaded.recipe = r;
    return LVN_OK;
}

bool lvni_user_is_file(const char *name)
{
    const size_t n = strlen(name);
    return n > 3 && strcmp(name + n - 3, ".so") == 0;
}

lvn_status lvni_user_load(const char *path, find_own find, const lvni_run_recipe **out)
{
    *out = NULL;
    if (loaded.recipe == NULL) {
        const lvn_recipe *r = NULL;
        LVN_TRY(find_table(path, find, &r));
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
