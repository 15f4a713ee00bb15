/* levin sweep plan [options] -- COMMAND, and levin sweep train RECIPE key=value ...: of the keys
 * behind a recipe, those with a list are choices, except where the key itself takes one. */
#include "cli/cli.h"
#include "cli/sweep.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/option_list.h"
#include "run/error_record.h"

#include <stdio.h>
#include <string.h>

static const lvni_core_option_table *const plan_keys[] = {&lvni_sweep_plan_table, NULL};

/* ---- a plan, from its options to the folder ---- */

/* Of a levin training, whose run directories are the trials' own. */
static lvn_status check_out(char *const *words)
{
    for (int64_t i = 0; words != NULL && words[i] != NULL; i++) {
        const char *w = words[i] + (strncmp(words[i], "--", 2) == 0 ? 2 : 0);
        if (strncmp(w, "out=", 4) == 0 || (w != words[i] && strcmp(w, "out") == 0)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s: each trial's run has a folder of its own, trials/N/run of the sweep's: "
                     "omit it",
                     words[i]);
        }
    }
    return LVN_OK;
}

/* The words of the command line, else those of the file. */
static lvn_status find_command(const lvni_sweep_options *o, char **words, char ***own,
                               lvni_sweep_command *out)
{
    size_t n = 0;
    const char *const *file = lvni_core_config_str_list(o->config, "command", &n);
    for (size_t i = 0; words == NULL && i < n; i++) {
        LVN_TRY(lvni_sweep_texts_add(own, file[i], strlen(file[i])));
    }
    out->words = words != NULL ? words : *own;
    out->training =
        lvni_cli_sweep_recipe_at((int)lvni_sweep_texts_count(out->words), out->words) > 0;
    return out->training ? check_out(out->words) : LVN_OK;
}

static lvn_status finish(const lvni_sweep_options *o, const char *about, lvni_sweep_made *made,
                         int *code)
{
    const lvni_core_config *c = o->config;
    const bool dry = lvni_core_config_bool(c, "dry_run");
    const lvni_cli_sweep_form form = {
        .json = lvni_core_config_bool(c, "json"), .commands = dry, .about = about};
    lvni_core_print(stderr, "%-s", lvni_core_str_text(&made->notes));
    if (made->plan.training && lvni_core_config_bool(c, "plan")) {
        LVN_TRY(lvni_cli_sweep_check(made, code));
        if (*code != LVNI_EXIT_OK) {
            return LVN_OK;
        }
    }
    LVN_TRY(lvni_cli_sweep_print(made, &form));
    return dry ? LVN_OK : lvni_sweep_plan_write(&made->plan, &made->points);
}

/* dir: of the sweep, the caller's; NULL where nothing is to run. */
static lvn_status plan(int n, const char *const *args, char *const *inner, char **words,
                       const char *about, char **dir, int *code)
{
    lvni_sweep_options o;
    lvni_sweep_made made = {.extends = false};
    lvni_sweep_command command;
    char **own = NULL;
    LVN_TRY(lvni_sweep_options_load(plan_keys, n, args, inner, &o));
    lvn_status s;
    LVNI_TRY_DONE(s, find_command(&o, words, &own, &command));
    LVNI_TRY_DONE(s, lvni_sweep_make(&o, &command, &made));
    LVNI_TRY_DONE(s, finish(&o, about, &made, code));
    if (*code == LVNI_EXIT_OK && !lvni_core_config_bool(o.config, "dry_run")) {
        *dir = made.plan.dir;
        made.plan.dir = NULL;
    }
done:
    lvni_sweep_made_free(&made);
    lvni_sweep_texts_free(own);
    lvni_sweep_options_free(&o);
    return s;
}

/* Where the options end; *words: what is behind `--`, NULL without it. */
static lvn_status split(int n, const char *const *args, int *end, char ***words)
{
    *end = 0;
    while (*end < n && strcmp(args[*end], "--") != 0) {
        ++*end;
    }
    for (int i = *end + 1; i < n; i++) {
        LVN_TRY(lvni_sweep_texts_add(words, args[i], strlen(args[i])));
    }
    return LVN_OK;
}

int lvni_cli_sweep_plan(int n, const char *const *args)
{
    char **words = NULL, *dir = NULL;
    int end, code = LVNI_EXIT_OK;
    lvn_status s = split(n, args, &end, &words);
    if (s == LVN_OK) {
        s = plan(end, args, NULL, words, NULL, &dir, &code);
    }
    lvni_core_free(dir);
    lvni_sweep_texts_free(words);
    return s == LVN_OK ? code : lvni_run_report_status(s);
}

/* ---- levin sweep train ---- */

/* The arguments, sorted. */
typedef struct parts {
    lvni_core_config *training, *sweep, *all; /* whose keys they may be */
    char **options;                           /* of the plan */
    char **running;                           /* of levin sweep run */
    char **words;                             /* of the command */
    char **inner;                             /* declarations */
    lvni_core_str about;
    int mistakes;
} parts;

static lvn_status add(char ***texts, const char *text)
{
    return lvni_sweep_texts_add(texts, text, strlen(text));
}

static lvn_status add_pair(char ***texts, const char *key, const char *text)
{
    lvni_core_str s = {0};
    lvni_core_str_printf(&s, "%s=%s", key, text);
    lvn_status status = lvni_core_str_status(&s);
    status = status == LVN_OK ? add(texts, lvni_core_str_text(&s)) : status;
    lvni_core_str_free(&s);
    return status;
}

static void mistake(parts *p, const char *text)
{
    lvni_core_print(stderr, "error: %s\n", text);
    p->mistakes++;
}

static bool is_list(const char *text)
{
    const size_t n = strlen(text);
    return n >= 2 && text[0] == '[' && text[n - 1] == ']';
}

/* Of a key that takes lists: are all elements lists? */
static lvn_status look_at_list(const char *text, bool takes, bool *choices, int64_t *n)
{
    char **elements = NULL;
    const lvn_status s = lvni_sweep_split(text, &elements);
    *choices = s == LVN_OK;
    *n = lvni_sweep_texts_count(elements);
    for (int64_t i = 0; i < *n && takes; i++) {
        *choices = *choices && is_list(elements[i]);
    }
    lvni_sweep_texts_free(elements);
    return s;
}

/* A key of the training, as it was spelled, with its value. */
static lvn_status sort_key(parts *p, const char *name, const char *key, const char *text, int used,
                           const char *const *args)
{
    const bool takes = lvni_core_option_takes_list(lvni_core_config_row(p->training, name));
    bool choices = false;
    int64_t n = 0;
    if (text != NULL && is_list(text)) {
        const lvn_status s = look_at_list(text, takes, &choices, &n);
        if (s == LVN_ERR_USAGE && !takes) {
            mistake(p, lvn_last_error()->message);
            lvn_clear_error();
            return LVN_OK;
        }
        if (s == LVN_ERR_MEMORY) {
            return s;
        }
        lvn_clear_error();
        if (choices) {
            lvni_core_str_message(&p->about, "  %s: %lld choices%s\n", key, (long long)n,
                                  takes ? ", each a list" : "");
        } else {
            lvni_core_str_message(&p->about,
                                  "  %s: one list, %s, the value of all trials; "
                                  "[[..],[..]] are choices\n",
                                  key, text);
        }
    }
    if (choices) {
        LVN_TRY(add(&p->inner, "list"));
        return add_pair(&p->inner, key, text);
    }
    for (int k = 0; k < used; k++) {
        LVN_TRY(add(&p->words, args[k]));
    }
    return LVN_OK;
}

/* Can the row have that value? */
static bool fits(const lvni_core_option *row, const char *text)
{
    lvni_core_value value;
    bool right = lvni_core_option_parse(row, text, false, "command line", &value) == LVN_OK;
    if (right) {
        right = row->check == NULL || row->check(row, &value, "command line") == LVN_OK;
        lvni_core_value_free(&value);
    }
    lvn_clear_error();
    return right;
}

/* A value that the training's key cannot have, and the sweep's key of that name can. */
static bool is_meant_for_sweep(const parts *p, const char *name, const char *text)
{
    const lvni_core_option *row = lvni_core_config_row(p->training, name),
                           *own = lvni_core_config_row(p->sweep, name);
    return own != NULL && text != NULL && !is_list(text) && !fits(row, text) && fits(own, text);
}

/* "sweep.KEY=VALUE", without its front. */
static lvn_status sort_own(parts *p, const char *arg)
{
    const char *key = arg + strlen(LVNI_SWEEP_PREFIX) + (strncmp(arg, "--", 2) == 0 ? 2 : 0);
    const char *name, *text;
    if (strchr(key, '=') == NULL) {
        lvni_core_print(stderr, "error: %s has no value: " LVNI_SWEEP_PREFIX "KEY=VALUE\n", arg);
        p->mistakes++;
        return LVN_OK;
    }
    const bool runs = lvni_core_config_arguments_of(p->sweep, 1, &key, &name, &text) == 0 &&
                      lvni_core_config_arguments_of(p->all, 1, &key, &name, &text) > 0;
    return add(runs ? &p->running : &p->options, key);
}

static bool is_own_key(const char *arg)
{
    return strncmp(arg, LVNI_SWEEP_PREFIX, strlen(LVNI_SWEEP_PREFIX)) == 0 ||
           strncmp(arg, "--" LVNI_SWEEP_PREFIX, strlen(LVNI_SWEEP_PREFIX) + 2) == 0;
}

/* The key as it was spelled, without what stands around it. */
static lvn_status spelled(const char *arg, lvni_core_str *out)
{
    const char *key = arg + strspn(arg, "-+~");
    lvni_core_str_append_n(out, key, strcspn(key, "="));
    return lvni_core_str_status(out);
}

static lvn_status sort_training(parts *p, int used, const char *const *args, const char *name,
                                const char *text)
{
    lvni_core_str key = {0};
    lvn_status s = spelled(args[0], &key);
    if (s == LVN_OK && strcmp(name, "out") == 0) {
        s = text != NULL ? add_pair(&p->options, "out", text) : LVN_OK;
    } else if (s == LVN_OK && is_meant_for_sweep(p, name, text)) {
        lvni_core_print(stderr,
                        "error: %s=%s: behind a recipe this is the training's key, which has no "
                        "such value; " LVNI_SWEEP_PREFIX "%s=%s is the sweep's\n",
                        name, text, name, text);
        p->mistakes++;
    } else if (s == LVN_OK) {
        if (strcmp(name, "config") == 0 && text != NULL) { /* its section sweep: */
            s = add_pair(&p->options, "config", text);
        }
        s = s == LVN_OK ? sort_key(p, name, lvni_core_str_text(&key), text, used, args) : s;
    }
    lvni_core_str_free(&key);
    return s;
}

/* The argument at args[0]; *used: how many it takes. */
static lvn_status sort_one(parts *p, int n, const char *const *args, int *used)
{
    const char *name, *text, *ignored;
    *used = 1;
    if (is_own_key(args[0])) {
        return sort_own(p, args[0]);
    }
    const int theirs = lvni_core_config_arguments_of(p->training, n, args, &name, &text);
    if (theirs > 0) {
        *used = theirs;
        return sort_training(p, theirs, args, name, text);
    }
    const int plans = lvni_core_config_arguments_of(p->sweep, n, args, &name, &ignored),
              runs = lvni_core_config_arguments_of(p->all, n, args, &name, &ignored);
    if (plans == 0 && runs == 0) {
        if (lvni_core_config_load_arguments(p->training, 1, args) != LVN_OK) {
            mistake(p, lvn_last_error()->message);
            lvn_clear_error();
        }
        return LVN_OK;
    }
    *used = plans > 0 ? plans : runs;
    for (int k = 0; k < *used; k++) {
        LVN_TRY(add(plans > 0 ? &p->options : &p->running, args[k]));
    }
    return LVN_OK;
}

static lvn_status sort(parts *p, const lvni_run_recipe *recipe, int n, const char *const *args)
{
    LVN_TRY(lvni_core_config_create(recipe->keys, &p->training));
    LVN_TRY(lvni_core_config_create(plan_keys, &p->sweep));
    LVN_TRY(lvni_core_config_create(lvni_cli_sweep_keys, &p->all));
    lvni_core_config_set_help(p->training, "levin help train");
    LVN_TRY(add(&p->words, "levin"));
    LVN_TRY(add(&p->words, "train"));
    LVN_TRY(add(&p->words, args[0]));
    for (int i = 1; i < n;) {
        int used;
        LVN_TRY(sort_one(p, n - i, args + i, &used));
        i += used;
    }
    return lvni_core_str_status(&p->about);
}

static void free_parts(parts *p)
{
    lvni_core_config_destroy(p->training);
    lvni_core_config_destroy(p->sweep);
    lvni_core_config_destroy(p->all);
    lvni_sweep_texts_free(p->options);
    lvni_sweep_texts_free(p->running);
    lvni_sweep_texts_free(p->words);
    lvni_sweep_texts_free(p->inner);
    lvni_core_str_free(&p->about);
}

/* levin sweep run DIR, with its options. */
static int run(const char *dir, char *const *options)
{
    const int n = (int)lvni_sweep_texts_count(options);
    const char **args = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n + 3, sizeof *args);
    if (args == NULL) {
        return lvni_run_report_status(LVN_ERR_MEMORY);
    }
    args[0] = "run";
    args[1] = dir;
    for (int i = 0; i < n; i++) {
        args[i + 2] = options[i];
    }
    fflush(stdout);
    const int code = lvni_cli_cmd_sweep(n + 2, args);
    lvni_core_free(args);
    return code;
}

int lvni_cli_sweep_train(int n, const char *const *args)
{
    parts p = {.mistakes = 0};
    char *dir = NULL;
    int code;
    const lvni_run_recipe *recipe = lvni_cli_find_recipe(n, args, "train", &code);
    if (recipe == NULL) {
        return code;
    }
    code = LVNI_EXIT_OK;
    lvn_status s = sort(&p, recipe, n, args);
    if (s == LVN_OK && p.mistakes > 0) {
        code = LVNI_EXIT_USAGE;
    } else if (s == LVN_OK) {
        s = plan((int)lvni_sweep_texts_count(p.options), (const char *const *)p.options, p.inner,
                 p.words, lvni_core_str_text(&p.about), &dir, &code);
    }
    if (s != LVN_OK) {
        code = lvni_run_report_status(s);
    } else if (code == LVNI_EXIT_OK && dir != NULL) {
        code = run(dir, p.running);
    }
    lvni_core_free(dir);
    free_parts(&p);
    return code;
}
