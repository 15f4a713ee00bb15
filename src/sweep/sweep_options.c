/* The options of a sweep's plan (sweep_options.h), and what they make. */
#include "sweep/sweep_options.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/vfs.h"
#include "run/options.h"
#include "sweep/sweep_space.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

/* test-tube's names of them, too. */
static const char *const strategies[][2] = {{"grid", "grid"},        {"random", "random"},
                                            {"list", "list"},        {"asha", "asha"},
                                            {"grid_search", "grid"}, {"random_search", "random"}};

/* NULL: there is none of that name. */
static const char *strategy_of(const char *text)
{
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        if (strcmp(text, strategies[i][0]) == 0) {
            return strategies[i][1];
        }
    }
    return strncmp(text, "exec:", 5) == 0 && text[5] != '\0' ? text : NULL;
}

static lvn_status check_strategy(const lvni_core_option *row, const lvni_core_value *value,
                                 const char *origin)
{
    return strategy_of(value->text) != NULL
               ? LVN_OK
               : lvni_core_option_fail(
                     row, value, origin,
                     "expected grid, random, list, asha or exec:COMMAND, a program "
                     "that is asked for each trial");
}

#define DECLARATION(key, text)                                                                     \
    {                                                                                              \
        .name = (key), .type = LVNI_OPT_STRING, .flags = LVNI_OPT_JSON, .help = (text)             \
    }

static const lvni_core_option rows[] = {
    {.name = "config",
     .type = LVNI_OPT_PATH,
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "A YAML file whose section `sweep:` has these keys, list, range, sample and fixed as "
             "maps of names."},
    DECLARATION("list", "NAME=v1,v2,...[:int|float|bool|str]: values of a parameter. May be "
                        "repeated, as all that declare one."),
    DECLARATION("range", "NAME=LOW:HIGH[:N][:log[BASE]][:int|float]: N values (10) drawn once in "
                         "[LOW, HIGH), whole numbers all different."),
    DECLARATION("sample", "NAME=uniform(a,b), loguniform(a,b), int(a,b), choice(v1|v2) or "
                          "normal(m,s): each trial draws one."),
    DECLARATION("fixed", "NAME=VALUE: the same in all trials."),
    DECLARATION("when", "'OTHER==a|b: NAME=v1,v2' (or !=): NAME is there where OTHER has such a "
                        "value."),
    DECLARATION("zip", "NAME,NAME: lists that go together, the i-th values of all."),
    {.name = "strategy",
     .type = LVNI_OPT_STRING,
     .fallback = "grid",
     .check = check_strategy,
     .help = "grid: all combinations, the last parameter fastest; random: trials=N of them; list: "
             "trial i has the i-th value of each list; asha: as random, without trials=N as grid, "
             "and the worse trials stop early; exec:COMMAND asks a program."},
    {.name = "asha.eta",
     .type = LVNI_OPT_INT,
     .fallback = "3",
     .range = LVNI_BETWEEN(2, 1000),
     .help = "strategy=asha: 1/eta of the trials go on at each rung, and rungs lie at epochs "
             "asha.min, asha.min * eta, ..."},
    {.name = "asha.min",
     .type = LVNI_OPT_INT,
     .fallback = "1",
     .range = LVNI_BETWEEN(1, LVNI_SWEEP_MOST_EPOCHS),
     .help = "strategy=asha: the epoch of the first rung."},
    {.name = "asha.max",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(2, LVNI_SWEEP_MOST_EPOCHS),
     .help =
         "strategy=asha: the epoch at which trials end, above all rungs; of trainings max_epochs."},
    {.name = "asha.stop",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help =
         "strategy=asha: trials stop at rungs for good; false, to go on later, is not there yet."},
    {.name = "trials",
     .type = LVNI_OPT_INT,
     .fallback = "0",
     .range = LVNI_BETWEEN(0, LVNI_SWEEP_MOST_TRIALS),
     .help = "At most so many, the first ones; 0: all."},
    {.name = "seed",
     .type = LVNI_OPT_INT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Of what is drawn; {seed} of the command."},
    {.name = "metric",
     .type = LVNI_OPT_STRING,
     .fallback = "val/loss",
     .help = "Its best value is the result of a trial."},
    {.name = "mode",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|min|max",
     .fallback = "auto",
     .help = "What is better, less or more; auto: more of accuracies (acc, accuracy, f1, auc, "
             "psnr, ssim), less of all else."},
    {.name = "name", .type = LVNI_OPT_STRING, .help = "Of the sweep, and of its folder."},
    {.name = "dir",
     .type = LVNI_OPT_PATH,
     .fallback = ".",
     .help = "Where the sweep's folder is made: dir/name."},
    {.name = "out", .type = LVNI_OPT_PATH, .help = "The sweep's folder, in place of dir/name."},
    {.name = "command",
     .type = LVNI_OPT_STRING_LIST,
     .help = "Of a file: the words of the command, in place of those behind `--`."},
    {.name = "style",
     .type = LVNI_OPT_CHOICE,
     .choices = "keys|dashes|equals",
     .fallback = "keys",
     .help = "How parameters without a {NAME} in the command follow it: name=value, --name value, "
             "--name=value."},
    {.name = "dead_after",
     .type = LVNI_OPT_INT,
     .unit = "s",
     .fallback = "300",
     .range = LVNI_BETWEEN(1, 2147483647),
     .help = "A worker that gave no sign of life for so long, and whose process is gone, has lost "
             "its trial to others."},
    {.name = "extend",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Add trials to a sweep that is there; those that it has keep their numbers, and its "
             "command stays."},
    {.name = "plan",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .help = "Of levin trainings: check the keys of each trial, and plan the first one as levin "
             "plan does, before anything is written."},
    {.name = "dry_run",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Print the trials with their commands, and write nothing."},
    {.name = "json", .type = LVNI_OPT_BOOL, .fallback = "false", .help = "Print one JSON object."},
};
const lvni_core_option_table lvni_sweep_plan_table = LVNI_OPTION_TABLE("sweep", rows);

static const char *const kinds[] = {"list", "range", "sample", "fixed", "when", "zip"};
enum { KINDS = 6, WHEN = 4, ZIP = 5 };

/* ---- declarations ---- */

static bool is_kind(const char *name)
{
    for (int i = 0; name != NULL && i < KINDS; i++) {
        if (strcmp(name, kinds[i]) == 0) {
            return true;
        }
    }
    return false;
}

static lvn_status declare(char ***space, const char *kind, const char *text)
{
    LVN_TRY(lvni_sweep_texts_add(space, kind, strlen(kind)));
    return lvni_sweep_texts_add(space, text, strlen(text));
}

/* A value of a file as the text of a declaration: a text in quotes where it needs them. */
static lvn_status print_value(const json_t *value, bool inner, lvni_core_str *out)
{
    const char *text = json_string_value(value);
    if (text == NULL && !json_is_array(value)) {
        lvni_core_json_print(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17), out);
    } else if (text == NULL) {
        lvni_core_str_char(out, '[');
        for (size_t i = 0; i < json_array_size(value); i++) {
            lvni_core_str_append(out, i > 0 ? "," : "");
            LVN_TRY(print_value(json_array_get(value, i), true, out));
        }
        lvni_core_str_char(out, ']');
    } else if (!inner) {
        lvni_core_str_append(out, text);
    } else if (strchr(text, '\'') != NULL && strchr(text, '"') != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.80s`: a value cannot have both kinds of quotes", text);
    } else {
        const char *quote = strchr(text, '\'') != NULL ? "\"" : "'";
        lvni_core_str_printf(out, "%s%s%s", quote, text, quote);
    }
    return lvni_core_str_status(out);
}

/* "lr: [0.1, 0.01]" */
static lvn_status declare_named(char ***space, const char *kind, const char *name,
                                const json_t *value)
{
    lvni_core_str text = {0};
    lvni_core_str_printf(&text, "%s=", name);
    lvn_status s = print_value(value, false, &text);
    s = s == LVN_OK ? declare(space, kind, lvni_core_str_text(&text)) : s;
    lvni_core_str_free(&text);
    return s;
}

/* "zip: [[a, b], [c, d]]", "zip: [a, b]", "when: [TEXT, TEXT]", "list: [NAME=v, NAME=v]" */
static lvn_status declare_array(char ***space, int kind, const json_t *array)
{
    lvni_core_str text = {0};
    lvn_status s = LVN_OK;
    const size_t n = json_array_size(array);
    const bool one = kind == ZIP && n > 0 && json_is_string(json_array_get(array, 0)) &&
                     strchr(json_string_value(json_array_get(array, 0)), ',') == NULL;
    for (size_t i = 0; s == LVN_OK && i < (one ? 1 : n); i++) {
        const json_t *item = one ? array : json_array_get(array, i);
        lvni_core_str_clear(&text);
        s = json_is_string(item) || kind == ZIP
                ? print_value(item, false, &text)
                : lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                                "%s: a list of texts is expected here", kinds[kind]);
        if (s == LVN_OK) {
            /* names between brackets are one zip, and need no quotes */
            for (size_t k = 0; kind == ZIP && k < text.len; k++) {
                text.data[k] = text.data[k] == '\'' ? ' ' : text.data[k];
            }
            s = declare(space, kinds[kind], lvni_core_str_text(&text));
        }
    }
    lvni_core_str_free(&text);
    return s;
}

/* What the file has of one kind. */
static lvn_status declare_file(const lvni_core_config *c, int kind, char ***space)
{
    const char *text =
        lvni_core_config_is_set(c, kinds[kind]) ? lvni_core_config_str(c, kinds[kind]) : NULL;
    lvn_status s = LVN_OK;
    if (text == NULL) {
        return LVN_OK;
    }
    json_t *j = text[0] == '{' || text[0] == '[' ? lvni_core_json_try(text, LVNI_JSON_INNER) : NULL;
    if (json_is_object(j) && kind < WHEN) {
        for (void *at = json_object_iter(j); s == LVN_OK && at != NULL;
             at = json_object_iter_next(j, at)) {
            s = declare_named(space, kinds[kind], json_object_iter_key(at),
                              json_object_iter_value(at));
        }
    } else if (json_is_object(j)) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "%s: a list is expected, not a map  "
                          "(%s)",
                          kinds[kind], lvni_core_config_origin(c, kinds[kind]));
    } else {
        s = j != NULL ? declare_array(space, kind, j) : declare(space, kinds[kind], text);
    }
    json_decref(j);
    return s;
}

static bool is_named(const char *kind)
{
    return strcmp(kind, kinds[WHEN]) != 0 && strcmp(kind, kinds[ZIP]) != 0;
}

/* Where one list declares the name of this declaration of the other; -1: nowhere. */
static int64_t find_name(char *const *space, const char *kind, const char *text)
{
    const size_t n = strcspn(text, "=") + 1;
    for (int64_t i = 0; is_named(kind) && space != NULL && space[i] != NULL; i += 2) {
        if (is_named(space[i]) && strncmp(space[i + 1], text, n) == 0) {
            return i;
        }
    }
    return -1;
}

/* Those of the file, in their places those of the command line with the same name; then its others.
 */
static lvn_status join_declarations(const lvni_core_config *c, char *const *own, char ***out)
{
    char **file = NULL;
    lvn_status s = LVN_OK;
    for (int kind = 0; s == LVN_OK && kind < KINDS; kind++) {
        s = declare_file(c, kind, &file);
    }
    for (int64_t i = 0; s == LVN_OK && file != NULL && file[i] != NULL; i += 2) {
        const int64_t at = find_name(own, file[i], file[i + 1]);
        char *const *from = at >= 0 ? own + at : file + i;
        s = declare(out, from[0], from[1]);
    }
    for (int64_t i = 0; s == LVN_OK && own != NULL && own[i] != NULL; i += 2) {
        if (find_name(file, own[i], own[i + 1]) < 0) {
            s = declare(out, own[i], own[i + 1]);
        }
    }
    lvni_sweep_texts_free(file);
    return s;
}

/* ---- loading ---- */

/* Each argument into the declarations, or to the configuration, which keeps its mistakes. */
static lvn_status load_arguments(lvni_core_config *c, int n, const char *const *args, char ***own)
{
    for (int i = 0; i < n;) {
        const char *name, *text;
        const int used = lvni_core_config_arguments_of(c, n - i, args + i, &name, &text);
        if (used > 0 && is_kind(name) && text != NULL) {
            LVN_TRY(declare(own, name, text));
        } else {
            LVN_TRY(lvni_core_config_load_arguments(c, used > 0 ? used : 1, args + i));
        }
        i += used > 0 ? used : 1;
    }
    return LVN_OK;
}

lvn_status lvni_sweep_options_load(lvni_core_option_list keys, int n, const char *const *args,
                                   char *const *inner, lvni_sweep_options *out)
{
    char **own = NULL;
    lvn_status s;
    *out = (lvni_sweep_options){.config = NULL};
    LVNI_TRY_DONE(s, lvni_core_config_create(keys, &out->config));
    lvni_core_config_set_help(out->config, "levin help sweep");
    lvni_core_config_set_section(out->config, "sweep");
    lvni_core_config_collect(out->config);
    LVNI_TRY_DONE(s, load_arguments(out->config, n, args, &own));
    for (int64_t i = 0; inner != NULL && inner[i] != NULL; i += 2) {
        LVNI_TRY_DONE(s, declare(&own, inner[i], inner[i + 1]));
    }
    LVNI_TRY_DONE(s, lvni_core_config_check(out->config));
    s = join_declarations(out->config, own, &out->space);
done:
    lvni_sweep_texts_free(own);
    if (s != LVN_OK) {
        lvni_sweep_options_free(out);
    }
    return s;
}

void lvni_sweep_options_free(lvni_sweep_options *o)
{
    lvni_core_config_destroy(o->config);
    lvni_sweep_texts_free(o->space);
    *o = (lvni_sweep_options){.config = NULL};
}

/* ---- the plan ---- */

static lvn_status copy_texts(char *const *texts, char ***out)
{
    for (int64_t i = 0; texts != NULL && texts[i] != NULL; i++) {
        LVN_TRY(lvni_sweep_texts_add(out, texts[i], strlen(texts[i])));
    }
    return LVN_OK;
}

static lvn_status copy_text(const char *text, char **out)
{
    *out = lvni_core_strdup(LVNI_TAG_CONFIG, text);
    return *out == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* out, or dir/name. */
static lvn_status choose_dir(const lvni_core_config *c, lvni_core_str *out)
{
    const bool whole = lvni_core_config_is_set(c, "out"),
               named = lvni_core_config_is_set(c, "name");
    if (whole) {
        lvni_core_str_append(out, lvni_core_config_str(c, "out"));
    } else if (named) {
        const char *name = lvni_core_config_str(c, "name");
        if (strchr(name, '/') != NULL || name[0] == '.' || name[0] == '\0') {
            LVN_FAIL(LVN_ERR_USAGE,
                     "name %.100s: it is the name of a folder, too, without `/` and "
                     "not with `.` in front; out=DIR is a path",
                     name);
        }
        const char *dir = lvni_core_config_str(c, "dir");
        const bool here = strcmp(dir, ".") == 0;
        lvni_core_str_printf(out, "%s%s%s", here ? "" : dir, here ? "" : "/", name);
    } else {
        LVN_FAIL(LVN_ERR_USAGE, "where to? name=NAME, or out=DIR, the folder of the sweep");
    }
    while (out->len > 1 && out->data != NULL && out->data[out->len - 1] == '/') {
        out->data[--out->len] = '\0';
    }
    return lvni_core_str_status(out);
}

/* The metric as levin writes it. */
static lvn_status make_metric(const lvni_core_config *c, lvni_sweep_plan *plan)
{
    static const char *const parts[] = {"val_", "train_"};
    LVN_TRY(copy_text(lvni_core_config_str(c, "metric"), &plan->metric));
    for (int i = 0; plan->training && i < 2; i++) {
        const size_t n = strlen(parts[i]);
        if (strncmp(plan->metric, parts[i], n) == 0 && plan->metric[n] != '\0') {
            plan->metric[n - 1] = '/';
        }
    }
    const char *mode = lvni_core_config_str(c, "mode");
    plan->maximize = strcmp(mode, "auto") == 0 ? lvni_run_is_better_when_more(plan->metric)
                                               : strcmp(mode, "max") == 0;
    return LVN_OK;
}

static lvn_status make_command(const lvni_core_config *c, const lvni_sweep_command *command,
                               lvni_sweep_plan *plan)
{
    size_t n;
    const char *const *words = lvni_core_config_str_list(c, "command", &n);
    if (command->words != NULL) {
        LVN_TRY(copy_texts(command->words, &plan->command));
    }
    for (size_t i = 0; command->words == NULL && i < n; i++) {
        LVN_TRY(lvni_sweep_texts_add(&plan->command, words[i], strlen(words[i])));
    }
    if (lvni_sweep_texts_count(plan->command) == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "what is a trial to run? `-- COMMAND {NAME} {trial_dir}`, or `-- "
                                "levin train RECIPE key=value ...`");
    }
    plan->training = command->training;
    return LVN_OK;
}

static lvn_status refuse_asha(const lvni_core_config *c, const lvni_sweep_plan *plan)
{
    static const char *const keys[] = {"asha.eta", "asha.min", "asha.max", "asha.stop"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (lvni_core_config_is_given(c, keys[i])) {
            LVN_FAIL(LVN_ERR_USAGE, "%s belongs to strategy=asha, and the strategy is %s", keys[i],
                     plan->strategy);
        }
    }
    return LVN_OK;
}

/* The epoch at which trials end: of trainings that of their max_epochs, which never differs, as it
 * would change their schedules. */
static lvn_status find_last(const lvni_core_config *c, const lvni_sweep_plan *plan, int64_t *last)
{
    static const char key[] = "max_epochs=";
    const bool given = lvni_core_config_is_set(c, "asha.max");
    *last = given ? lvni_core_config_int(c, "asha.max") : 0;
    if (!plan->training) {
        if (!given) {
            LVN_FAIL(LVN_ERR_USAGE, "strategy=asha: at which epoch do trials end? asha.max=N");
        }
        return LVN_OK;
    }
    int64_t epochs = 0;
    for (int64_t i = 0; plan->command[i] != NULL; i++) {
        const char *word = plan->command[i] + (strncmp(plan->command[i], "--", 2) == 0 ? 2 : 0);
        if (strncmp(word, key, strlen(key)) == 0) {
            epochs = strtoll(word + strlen(key), NULL, 10);
        }
    }
    if (epochs < 1 || (given && epochs != *last)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "strategy=asha: trainings end at asha.max, which is their max_epochs: give "
                 "max_epochs=%s in their command, the same in all trials",
                 "N");
    }
    *last = epochs;
    return LVN_OK;
}

static lvn_status make_asha(const lvni_core_config *c, lvni_sweep_plan *plan)
{
    if (!lvni_sweep_plan_prunes(plan)) {
        return refuse_asha(c, plan);
    }
    if (!lvni_core_config_bool(c, "asha.stop")) {
        LVN_FAIL(LVN_ERR_USAGE, "strategy=asha needs asha.stop=true, with which a trial that stops "
                                "at a rung stays there; trials that go on later are not there yet");
    }
    int64_t last = 0;
    LVN_TRY(find_last(c, plan, &last));
    plan->asha = (lvni_sweep_asha){.eta = lvni_core_config_int(c, "asha.eta"),
                                   .min = lvni_core_config_int(c, "asha.min"),
                                   .max = last};
    if (plan->asha.min >= plan->asha.max) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "asha.min=%lld: the first rung must lie below asha.max=%lld, where trials end",
                 (long long)plan->asha.min, (long long)plan->asha.max);
    }
    return LVN_OK;
}

static lvn_status make_plan(const lvni_sweep_options *o, const lvni_sweep_command *command,
                            const char *dir, lvni_sweep_plan *plan)
{
    const lvni_core_config *c = o->config;
    const char *name = strrchr(dir, '/');
    LVN_TRY(copy_text(dir, &plan->dir));
    LVN_TRY(copy_text(lvni_core_config_is_set(c, "name") ? lvni_core_config_str(c, "name")
                      : name != NULL && name[1] != '\0'  ? name + 1
                                                         : dir,
                      &plan->name));
    LVN_TRY(copy_text(strategy_of(lvni_core_config_str(c, "strategy")), &plan->strategy));
    LVN_TRY(make_command(c, command, plan));
    LVN_TRY(make_metric(c, plan));
    LVN_TRY(make_asha(c, plan));
    LVN_TRY(copy_texts(o->space, &plan->space));
    plan->seed = (uint64_t)lvni_core_config_int(c, "seed");
    plan->dead_after_s = lvni_core_config_int(c, "dead_after");
    plan->style = (lvni_sweep_style)lvni_core_config_choice(c, "style");
    return LVN_OK;
}

/* What is fixed when a sweep is planned, and now given otherwise. */
static lvn_status check_extension(const lvni_core_config *c, const lvni_sweep_command *command,
                                  const lvni_sweep_plan *plan)
{
    static const char *const keys[] = {"strategy", "seed",       "metric",   "mode",
                                       "style",    "dead_after", "asha.eta", "asha.min",
                                       "asha.max", "asha.stop"};
    const int64_t asha[] = {plan->asha.eta, plan->asha.min, plan->asha.max};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!lvni_core_config_is_given(c, keys[i])) {
            continue;
        }
        const bool same =
            (i == 0 &&
             strcmp(strategy_of(lvni_core_config_str(c, keys[i])), plan->strategy) == 0) ||
            (i == 1 && (uint64_t)lvni_core_config_int(c, keys[i]) == plan->seed) || i == 2 ||
            (i == 3 &&
             strcmp(lvni_core_config_str(c, keys[i]), plan->maximize ? "max" : "min") == 0) ||
            (i == 4 && (lvni_sweep_style)lvni_core_config_choice(c, keys[i]) == plan->style) ||
            (i == 5 && lvni_core_config_int(c, keys[i]) == plan->dead_after_s) ||
            (i > 5 && i < 9 && lvni_core_config_int(c, keys[i]) == asha[i - 6]) ||
            (i == 9 && lvni_core_config_bool(c, keys[i]) == lvni_sweep_plan_prunes(plan));
        if (!same) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s is fixed when a sweep is planned: extend=true adds trials to %s; leave "
                     "%s out, or plan another sweep",
                     keys[i], plan->dir, keys[i]);
        }
    }
    int64_t i = 0;
    while (command->words != NULL && plan->command[i] != NULL && command->words[i] != NULL &&
           strcmp(plan->command[i], command->words[i]) == 0) {
        i++;
    }
    if (command->words != NULL && (plan->command[i] != NULL || command->words[i] != NULL)) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "the command is fixed when a sweep is planned, and `%.100s` is not its word `%.100s`: "
            "leave the command out, or plan another sweep",
            command->words[i] != NULL ? command->words[i] : "",
            plan->command[i] != NULL ? plan->command[i] : "");
    }
    return LVN_OK;
}

/* The plan that is there, with the declarations that are given now. */
static lvn_status take_plan(const lvni_sweep_options *o, const lvni_sweep_command *command,
                            const char *dir, lvni_sweep_plan *plan)
{
    if (!lvni_core_config_bool(o->config, "extend")) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s/sweep.json is there: this sweep is planned already; levin sweep run goes on "
                 "with it, extend=true adds trials, another name=NAME or out=DIR is another sweep",
                 dir);
    }
    LVN_TRY(lvni_sweep_plan_read(dir, plan));
    LVN_TRY(check_extension(o->config, command, plan));
    if (lvni_sweep_texts_count(o->space) > 0) {
        lvni_sweep_texts_free(plan->space);
        plan->space = NULL;
        LVN_TRY(copy_texts(o->space, &plan->space));
    }
    return LVN_OK;
}

/* All mistakes of the declarations at once. */
static lvn_status add_declarations(const lvni_sweep_plan *plan, lvni_sweep_space *space)
{
    lvni_core_str mistakes = {0};
    lvn_status s = LVN_OK;
    for (int64_t i = 0; plan->space != NULL && plan->space[i] != NULL; i += 2) {
        s = lvni_sweep_space_add(space, plan->space[i], plan->space[i + 1], plan->seed);
        if (s == LVN_ERR_USAGE) {
            lvni_core_str_append(&mistakes, mistakes.len > 0 ? "; " : "");
            lvni_core_str_append(&mistakes, lvn_last_error()->message);
        } else if (s != LVN_OK) {
            break;
        }
    }
    if ((s == LVN_OK || s == LVN_ERR_USAGE) && mistakes.len > 0) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__, "%s", lvni_core_str_text(&mistakes));
    }
    lvni_core_str_free(&mistakes);
    return s;
}

static lvn_status make_space(const lvni_sweep_plan *plan, lvni_sweep_space *space,
                             lvni_core_str *notes)
{
    LVN_TRY(add_declarations(plan, space));
    return lvni_sweep_space_finish(space, strcmp(plan->strategy, "list") == 0, notes);
}

/* A plan's parameters stay: columns of trials that are there. */
static lvn_status check_names(const lvni_sweep_plan *plan, const lvni_sweep_space *space)
{
    int64_t i = 0;
    while (plan->parameters != NULL && plan->parameters[i] != NULL && space->names != NULL &&
           space->names[i] != NULL && strcmp(plan->parameters[i], space->names[i]) == 0) {
        i++;
    }
    const char *old = plan->parameters != NULL ? plan->parameters[i] : NULL,
               *new = space->names != NULL ? space->names[i] : NULL;
    if (old != NULL || new != NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "extend: the parameters of %s stay, in their order, and %s stands where %s is; "
                 "other parameters are another sweep",
                 plan->dir, new != NULL ? new : "nothing", old != NULL ? old : "nothing");
    }
    return LVN_OK;
}

/* The trials that are there, by columns. */
static lvn_status read_points(const lvni_sweep_plan *plan, lvni_sweep_points *out)
{
    *out = (lvni_sweep_points){.n_parameters = lvni_sweep_texts_count(plan->parameters)};
    out->values = lvni_core_calloc(
        LVNI_TAG_CONFIG, (size_t)(plan->n_trials * out->n_parameters) + 1, sizeof *out->values);
    if (out->values == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (; out->n < plan->n_trials; out->n++) {
        lvni_sweep_trial t;
        LVN_TRY(lvni_sweep_trial_read(plan, out->n, &t));
        for (int64_t k = 0; t.names != NULL && t.names[k] != NULL; k++) {
            for (int64_t at = 0; at < out->n_parameters; at++) {
                char **place = &out->values[out->n * out->n_parameters + at];
                if (*place == NULL && strcmp(plan->parameters[at], t.names[k]) == 0) {
                    *place = lvni_core_strdup(LVNI_TAG_CONFIG, t.values[k]);
                    break;
                }
            }
        }
        lvni_sweep_trial_free(&t);
    }
    return LVN_OK;
}

static lvn_status draw(const lvni_core_config *c, const lvni_sweep_space *space,
                       lvni_sweep_made *out)
{
    lvni_sweep_plan *plan = &out->plan;
    lvni_sweep_points have = {0};
    const int64_t trials = lvni_core_config_int(c, "trials");
    const char *strategy = !lvni_sweep_plan_prunes(plan) ? plan->strategy
                           : trials > 0                  ? "random"
                                                         : "grid";
    if (lvni_sweep_plan_asks(plan)) {
        plan->most = trials;
        out->points.n_parameters = lvni_sweep_texts_count(plan->parameters);
        return LVN_OK;
    }
    if (space->n == 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "no parameter has choices: list NAME=v1,v2, or of a training KEY=[v1,v2]");
    }
    lvn_status s = out->extends ? read_points(plan, &have) : LVN_OK;
    if (s == LVN_OK) {
        s = lvni_sweep_space_draw(
            space,
            &(lvni_sweep_draw){
                .strategy = strategy, .seed = plan->seed, .trials = trials, .have = &have},
            &out->points, &out->notes);
    }
    lvni_sweep_points_free(&have);
    return s;
}

lvn_status lvni_sweep_make(const lvni_sweep_options *o, const lvni_sweep_command *command,
                           lvni_sweep_made *out)
{
    lvni_core_str dir = {0}, file = {0};
    lvni_sweep_space space = {0};
    lvn_status s;
    *out = (lvni_sweep_made){.extends = false};
    LVNI_TRY_DONE(s, choose_dir(o->config, &dir));
    lvni_core_str_printf(&file, "%s/sweep.json", lvni_core_str_text(&dir));
    LVNI_TRY_DONE(s, lvni_core_str_status(&file));
    out->extends = lvni_core_path_exists(lvni_core_str_text(&file));
    if (!out->extends && lvni_core_config_bool(o->config, "extend")) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "extend: %s is not there, so there is no sweep that gets more trials; "
                          "leave extend out to plan one, or correct out= or name=",
                          lvni_core_str_text(&file));
        goto done;
    }
    LVNI_TRY_DONE(s, (out->extends ? take_plan : make_plan)(o, command, lvni_core_str_text(&dir),
                                                            &out->plan));
    LVNI_TRY_DONE(s, make_space(&out->plan, &space, &out->notes));
    if (out->extends) {
        LVNI_TRY_DONE(s, check_names(&out->plan, &space));
    } else {
        LVNI_TRY_DONE(s, copy_texts(space.names, &out->plan.parameters));
    }
    s = draw(o->config, &space, out);
done:
    lvni_sweep_space_free(&space);
    lvni_core_str_free(&dir);
    lvni_core_str_free(&file);
    if (s != LVN_OK) {
        lvni_sweep_made_free(out);
    }
    return s;
}

void lvni_sweep_made_free(lvni_sweep_made *made)
{
    lvni_sweep_plan_free(&made->plan);
    lvni_sweep_points_free(&made->points);
    lvni_core_str_free(&made->notes);
}
