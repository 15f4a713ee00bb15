/* Recipes in shared objects (levin/recipe.h): loaded, each becomes a row like those of the
 * registry, on the general card and the general results. */
#include "recipes/user/user_recipe.h"

#include "autograd/tape.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "run/card.h"
#include "run/best_checkpoint.h"
#include "run/image_headers.h"
#include "run/inference.h"
#include "run/options.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

/* An object that is loaded. */
typedef struct lvni_user_recipe {
    const lvn_recipe *recipe;
    char *path;
    lvni_core_option *rows;
    lvni_core_option_table own; /* these */
    lvni_core_option_table
        moved[LVNI_RUN_JOB_TABLES]; /* of every training, where own keys take names */
    /* lists, with `own` in front */
    const lvni_core_option_table *keys[LVNI_RUN_JOB_TABLES + 3], *predict_keys[4], *eval_keys[5],
        *export_keys[3];
    lvni_run_recipe row;
    struct lvni_user_recipe *next;
} lvni_user_recipe;

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

static const lvni_core_option *row_of(const lvni_core_option_table *table, const char *name)
{
    for (size_t i = 0; i < table->n; i++) {
        if (strcmp(name, table->rows[i].name) == 0) {
            return &table->rows[i];
        }
    }
    return NULL;
}

static bool has_row(const lvni_core_option_table *table, const char *name)
{
    return row_of(table, name) != NULL;
}

static bool share_name(const lvni_core_option_table *a, const lvni_core_option_table *b)
{
    for (size_t i = 0; i < b->n; i++) {
        if (has_row(a, b->rows[i].name)) {
            return true;
        }
    }
    return false;
}

/* By which command; NULL: by none. */
static const char *taken_by(const char *name)
{
    for (lvni_core_option_list t = lvni_run_job_keys; *t != NULL; t++) {
        const lvni_core_option *row = row_of(*t, name);
        if (row != NULL && (row->flags & LVNI_OPT_YIELDS) == 0) {
            return "training";
        }
    }
    return has_row(&lvni_run_inference_options, name) || has_row(&lvni_run_predict_options, name)
               ? "levin predict"
           : has_row(&lvni_run_eval_options, name)   ? "levin eval"
           : has_row(&lvni_run_export_options, name) ? "levin export"
                                                     : NULL;
}

static lvn_status check_key(const lvn_key *key, bool previews, const char *path)
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
    const char *command = previews && has_row(&lvni_run_preview_options, key->name)
                              ? "training with .preview"
                              : taken_by(key->name);
    if (command != NULL) {
        LVN_FAIL(LVN_ERR_INVALID, "%s: the key %s is one of every %s: give it another name", path,
                 key->name, command);
    }
    return LVN_OK;
}

static lvn_status make_rows(lvni_user_recipe *l)
{
    const lvn_recipe *r = l->recipe;
    l->rows = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)r->n_keys + 1, sizeof *l->rows);
    if (l->rows == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < r->n_keys; i++) {
        LVN_TRY(check_key(&r->keys[i], r->preview != NULL, l->path));
        for (int k = 0; k < i; k++) {
            if (strcmp(r->keys[k].name, r->keys[i].name) == 0) {
                LVN_FAIL(LVN_ERR_INVALID, "%s: the key %s is there twice", l->path,
                         r->keys[i].name);
            }
        }
        l->rows[i] = (lvni_core_option){.name = r->keys[i].name,
                                        .type = type_of(r->keys[i].type),
                                        .fallback = r->keys[i].fallback,
                                        .help = r->keys[i].help,
                                        .no_file = "builtin:"}; /* as data= of classify */
    }
    l->own = (lvni_core_option_table){.title = r->name, .rows = l->rows, .n = (size_t)r->n_keys};
    return LVN_OK;
}

/* ---- what it reads of them (levin/recipe.h) ---- */

/* The row, of one of two types; NULL: a mistake of the recipe's author, which is
 * reported whatever open makes of it. */
static const lvni_core_option *find_row(const lvn_keys *keys, const char *name,
                                        lvni_core_option_type type, lvni_core_option_type or_type)
{
    const lvni_core_config *c = keys->config;
    const lvni_core_option *row =
        lvni_core_config_has(c, name) ? lvni_core_config_row(c, name) : NULL;
    if (row != NULL && (row->type == type || row->type == or_type)) {
        return row;
    }
    (void)lvn_error_set(
        LVN_ERR_INVALID, __FILE__, __LINE__, "the recipe asks for the key %s%s", name,
        row == NULL ? ", which there is not" : " with the function of another type");
    if (keys->wrong.code == LVN_OK) {
        lvn_keys *own = (lvn_keys *)(uintptr_t)keys; /* the recipe's are const */
        own->wrong = *lvn_last_error();
    }
    return NULL;
}

static bool has_value(const lvn_keys *keys, const char *name, lvni_core_option_type type,
                      lvni_core_option_type or_type)
{
    return find_row(keys, name, type, or_type) != NULL &&
           lvni_core_config_is_set(keys->config, name);
}

bool lvn_key_is_set(const lvn_keys *keys, const char *name)
{
    return lvni_core_config_has(keys->config, name) && lvni_core_config_is_set(keys->config, name);
}

const char *lvn_key_text(const lvn_keys *keys, const char *name)
{
    return has_value(keys, name, LVNI_OPT_STRING, LVNI_OPT_PATH)
               ? lvni_core_config_str(keys->config, name)
               : NULL;
}

int64_t lvn_key_int(const lvn_keys *keys, const char *name)
{
    return has_value(keys, name, LVNI_OPT_INT, LVNI_OPT_INT)
               ? lvni_core_config_int(keys->config, name)
               : 0;
}

double lvn_key_float(const lvn_keys *keys, const char *name)
{
    return has_value(keys, name, LVNI_OPT_FLOAT, LVNI_OPT_FLOAT)
               ? lvni_core_config_float(keys->config, name)
               : 0.0;
}

bool lvn_key_bool(const lvn_keys *keys, const char *name)
{
    return has_value(keys, name, LVNI_OPT_BOOL, LVNI_OPT_BOOL) &&
           lvni_core_config_bool(keys->config, name);
}

/* ---- its data and module ---- */

/* What a job of it keeps open. */
typedef struct opened {
    lvn_job job;
    lvn_keys keys;
    lvn_card facts; /* of a training */
} opened;

static const lvni_user_recipe *of_row(const lvni_run_recipe *row)
{
    return row->user;
}

/* What a function of the recipe's returned; `name` of it stands in the error. */
static lvn_status returned(const lvni_user_recipe *l, const lvn_keys *keys, lvn_status status,
                           const char *name)
{
    if (keys->wrong.code != LVN_OK) {
        (void)lvn_error_adopt(&keys->wrong);
    } else if (status == LVN_OK) {
        return LVN_OK;
    } else if (lvn_last_error()->code != status) {
        return lvn_error_set(status, __FILE__, __LINE__, "%s of the recipe failed (%s)", name,
                             l->path);
    }
    lvn_error_frame("%s", l->path);
    return lvn_last_error()->code;
}

static lvn_status open_training(const lvni_user_recipe *l, lvni_run_job *q, opened *o)
{
    const lvn_recipe_use *use = l->recipe->use;
    const lvn_keys *keys = &o->keys;
    LVN_TRY(returned(l, keys, l->recipe->open(keys, &o->job), "open"));
    LVN_TRY(lvni_run_open_job(&o->job, l->path, q));
    if (use != NULL && use->write_card != NULL) {
        LVN_TRY(returned(l, keys, use->write_card(keys, &o->job, &o->facts), "use->write_card"));
    }
    q->facts = &o->facts;
    q->model = o->job.module->name;
    q->preview_every = l->recipe->preview == NULL
                           ? 0
                           : (int)lvni_core_config_int(q->config, "image_every_n_epochs");
    return LVN_OK;
}

static lvn_status open_trained(const lvni_user_recipe *l, lvni_run_job *q, opened *o)
{
    static const lvn_use uses[] = {[LVNI_RUN_EVAL] = LVN_USE_EVAL,
                                   [LVNI_RUN_PREDICT] = LVN_USE_PREDICT,
                                   [LVNI_RUN_EXPORT] = LVN_USE_EXPORT};
    const lvn_recipe *r = l->recipe;
    const lvn_card *facts = q->facts != NULL ? q->facts : &o->facts;
    const bool own = r->use != NULL && r->use->open != NULL;
    const lvn_keys *keys = &o->keys;
    LVN_TRY(returned(l, keys,
                     own ? r->use->open(keys, facts, uses[q->purpose], &o->job)
                         : r->open(keys, &o->job),
                     own ? "use->open" : "open"));
    LVN_ARG(o->job.module != NULL, "%s needs a module class", l->path);
    q->cls = o->job.module;
    q->arguments = o->job.arguments;
    q->train = o->job.train;
    q->val = o->job.val;
    return lvni_run_look_at_images(&o->job, q);
}

static lvn_status open_run(lvni_run_job *q)
{
    const lvni_user_recipe *l = of_row(q->recipe);
    opened *o = q->state = LVNI_NEW(LVNI_TAG_DATA, opened);
    if (o == NULL) {
        return LVN_ERR_MEMORY;
    }
    o->keys.config = q->keys;
    return q->purpose == LVNI_RUN_TRAIN ? open_training(l, q, o) : open_trained(l, q, o);
}

static void close_run(lvni_run_job *q)
{
    opened *o = q->state;
    if (o != NULL) {
        lvni_run_close_job(&o->job);
        lvni_run_facts_free(&o->facts);
        lvni_core_free(o);
    }
}

/* ---- predictions and images ---- */

/* What `name` of the recipe's gave, which may have failed without a message. */
static lvn_tensor *given(lvn_tensor *y, uint64_t before, const lvni_user_recipe *l,
                         const char *name)
{
    if (y == NULL && !lvni_autograd_scope_failed()) {
        lvni_core_error_of_null(before, "%s of the recipe %s", name, l->recipe->name);
        return lvni_autograd_op_fail(NULL);
    }
    return y;
}

static lvn_tensor *images(const lvn_module *root, const lvn_batch *batch, const lvni_run_job *job)
{
    const lvni_user_recipe *l = of_row(job->recipe);
    const uint64_t before = lvn_last_error()->serial;
    lvn_tensor *y = given(l->recipe->preview(root, batch), before, l, "preview");
    lvni_core_str of = {0};
    lvni_core_str_printf(&of, "%s: preview", l->path);
    const bool good = y == NULL || lvni_run_preview_check(lvni_core_str_text(&of), y) == LVN_OK;
    lvni_core_str_free(&of);
    return good ? y : lvni_autograd_op_fail("preview");
}

static const lvni_run_preview preview = {.images = images};

/* On a lane's thread: the recipe's, whose shape is not taken on trust. */
static lvn_tensor *output(const lvn_module *root, const lvn_batch *batch, void *user)
{
    const lvni_run_inference *u = user;
    const lvni_user_recipe *l = of_row(u->recipe);
    const uint64_t before = lvn_last_error()->serial;
    lvn_tensor *y = given(l->recipe->use->predict(root, batch), before, l, "use->predict");
    if (y == NULL || (y->ndim == 2 && y->shape[0] == batch->size && y->dtype == LVN_F32)) {
        return y;
    }
    (void)lvn_error_set(LVN_ERR_SHAPE, __FILE__, __LINE__,
                        "%s: use->predict gives %d dimensions%s; needed is f32 (%lld, K), a row "
                        "for each sample",
                        l->path, y->ndim, y->dtype == LVN_F32 ? "" : " of another type",
                        (long long)batch->size);
    return lvni_autograd_op_fail("use->predict");
}

static const char *column(const lvni_run_inference *u, int i)
{
    static const lvn_card none;
    const lvn_recipe_use *use = of_row(u->recipe)->recipe->use;
    const lvn_card *facts = u->exported->job.facts;
    return use->column == NULL ? NULL : use->column(facts != NULL ? facts : &none, i);
}

static const lvni_run_results predictions = {.output = output, .column = column};

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

/* ---- its row ---- */

static const lvni_run_recipe no_object = {.use = "[key=value ...]",
                                          .model_keys = "the keys of the recipe",
                                          .open = open_run,
                                          .close = close_run,
                                          .card = &lvni_run_general_card,
                                          .noun = "model of this recipe"};

/* Its rows with other names for those that its own keys have (LVNI_OPT_YIELDS). */
static lvn_status move_names(const lvni_user_recipe *l, const lvni_core_option_table *shared,
                             lvni_core_option_table *moved)
{
    lvni_core_option *rows = lvni_core_calloc(LVNI_TAG_CONFIG, shared->n, sizeof *rows);
    *moved = (lvni_core_option_table){.title = shared->title, .rows = rows, .n = shared->n};
    for (size_t i = 0; rows != NULL && i < shared->n; i++) {
        rows[i] = shared->rows[i];
        if (has_row(&l->own, rows[i].name)) {
            lvni_core_str name = {0}; /* stays, as the object does */
            lvni_core_str_printf(&name, LVNI_RUN_YIELDED "%s", rows[i].name);
            LVN_TRY(lvni_core_str_status(&name));
            rows[i].name = name.data;
        }
    }
    return rows == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* Its lists of keys have its own in front. */
static lvn_status make_row(lvni_user_recipe *l)
{
    l->keys[0] = &l->own;
    for (size_t i = 0; i < LVNI_RUN_JOB_TABLES; i++) {
        const lvni_core_option_table *shared = lvni_run_job_keys[i];
        const bool moves = share_name(shared, &l->own);
        LVN_TRY(moves ? move_names(l, shared, &l->moved[i]) : LVN_OK);
        l->keys[i + 1] = moves ? &l->moved[i] : shared;
    }
    if (l->recipe != NULL && l->recipe->preview != NULL) {
        l->keys[LVNI_RUN_JOB_TABLES + 1] = &lvni_run_preview_options;
    }
    l->predict_keys[0] = l->eval_keys[0] = l->export_keys[0] = &l->own;
    l->predict_keys[1] = l->eval_keys[1] = &lvni_run_inference_options;
    l->predict_keys[2] = &lvni_run_predict_options;
    l->eval_keys[2] = &lvni_run_eval_options;
    /* a recipe of before this table may have a key of that name */
    l->eval_keys[3] =
        share_name(&l->own, &lvni_run_choose_options) ? NULL : &lvni_run_choose_options;
    l->export_keys[1] = &lvni_run_export_options;
    l->row = no_object;
    l->row.keys = l->keys;
    l->row.predict_keys = l->predict_keys;
    l->row.eval_keys = l->eval_keys;
    l->row.export_keys = l->export_keys;
    l->row.own = &l->own;
    return LVN_OK;
}

const lvni_run_recipe *lvni_user_row(void)
{
    static lvni_user_recipe none = {.own = {.title = "recipe"}};
    (void)make_row(&none); /* without keys of its own nothing fails */
    return &none.row;
}

static lvn_status fill(lvni_user_recipe *l, const lvn_recipe *r, const char *path)
{
    l->path = lvni_core_strdup(LVNI_TAG_CONFIG, path);
    l->recipe = r;
    if (l->path == NULL) {
        return LVN_ERR_MEMORY;
    }
    LVN_TRY(make_rows(l));
    LVN_TRY(make_row(l));
    l->row.name = r->name;
    l->row.argument = l->path;
    l->row.help = r->help;
    l->row.defaults.job = r->options;
    l->row.predict = r->use != NULL && r->use->predict != NULL ? &predictions : NULL;
    l->row.preview = r->preview != NULL ? &preview : NULL;
    l->row.user = l;
    return LVN_OK;
}

bool lvni_user_is_file(const char *name)
{
    const size_t n = strlen(name);
    return n > 3 && strcmp(name + n - 3, ".so") == 0;
}

lvn_status lvni_user_load(const char *path, find_own find, const lvni_run_recipe **out)
{
    static lvni_user_recipe *loaded; /* objects stay loaded; by the main thread alone */
    *out = NULL;
    for (lvni_user_recipe *l = loaded; l != NULL && *out == NULL; l = l->next) {
        *out = strcmp(path, l->path) == 0 ? &l->row : NULL;
    }
    if (*out != NULL) {
        return LVN_OK;
    }
    const lvn_recipe *r = NULL;
    LVN_TRY(find_table(path, find, &r));
    lvni_user_recipe *l = LVNI_NEW(LVNI_TAG_CONFIG, lvni_user_recipe);
    const lvn_status s = l == NULL ? LVN_ERR_MEMORY : fill(l, r, path);
    if (s != LVN_OK) {
        lvni_core_free(l == NULL ? NULL : l->rows);
        lvni_core_free(l == NULL ? NULL : l->path);
        lvni_core_free(l);
        return s;
    }
    l->next = loaded;
    loaded = l;
    *out = &l->row;
    return LVN_OK;
}
