/* Arguments that name a file or folder without a key, resume=PATH, and what a shell has parted at a
 * space: what is meant is clear, so the error is the line that works (cli.h). */
#include "cli/cli.h"
#include "core/config.h"
#include "core/error.h"
#include "core/escape.h"
#include "recipes/registry.h"
#include "recipes/user/user_recipe.h"
#include "run/error_record.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { LINE_MAX_BYTES = 800, PATH_MAX_BYTES = 2048, KEY_MAX_BYTES = 128 };

typedef enum fault { BARE, SPACED, UNQUOTED, RESUME } fault;

/* The command line, and the line that would work. */
typedef struct line {
    const lvni_core_config *config;
    int n;
    const char *const *args; /* after the command */
    bool trains;
    lvni_core_str text; /* the line */
    const char *wrong;  /* the first argument that was changed; NULL: none */
    fault fault;        /* of that one */
    const char *script; /* a Python script among the arguments */
    bool resumes;       /* the line has the run to continue: out= of the arguments is omitted */
    bool unfit;         /* an argument that makes no sense */
} line;

/* ---- what a path is ---- */

static bool is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

static bool has_entry(const char *dir, const char *name)
{
    char path[PATH_MAX_BYTES];
    return snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path && exists(path);
}

static bool is_run(const char *dir)
{
    return is_dir(dir) && (has_entry(dir, "checkpoints") || has_entry(dir, "exported_models"));
}

static bool ends_in(const char *path, const char *end)
{
    const size_t n = strlen(path), k = strlen(end);
    return n > k && strcasecmp(path + n - k, end) == 0;
}

/* The run directory of a checkpoint, "." for "checkpoints/last.safetensors"; false: it is in
 * none. */
static bool run_of(const char *path, char dir[PATH_MAX_BYTES])
{
    static const char folder[] = "checkpoints";
    const char *slash = strrchr(path, '/');
    if (slash == NULL || (size_t)(slash - path) >= PATH_MAX_BYTES) {
        return false;
    }
    snprintf(dir, PATH_MAX_BYTES, "%.*s", (int)(slash - path), path);
    char *last = strrchr(dir, '/');
    if (strcmp(last != NULL ? last + 1 : dir, folder) != 0) {
        return false;
    }
    if (last == NULL) {
        snprintf(dir, PATH_MAX_BYTES, ".");
    } else {
        last[last == dir ? 1 : 0] = '\0';
    }
    return true;
}

/* ---- the line ---- */

static void add(line *l, const char *key, const char *value)
{
    lvni_core_str arg = {0};
    lvni_core_str_printf(&arg, "%s%s", key, value);
    lvni_core_str_char(&l->text, ' ');
    lvni_core_shell_quote(&l->text, lvni_core_str_text(&arg));
    l->text.failed = l->text.failed || arg.failed;
    lvni_core_str_free(&arg);
}

static bool has_row(const line *l, const char *name)
{
    return lvni_core_config_row(l->config, name) != NULL;
}

static void add_resumed(line *l, const char *path)
{
    char dir[PATH_MAX_BYTES];
    if (is_dir(path) || run_of(path, dir)) {
        add(l, "out=", is_dir(path) ? path : dir);
        add(l, "", "resume=true");
        l->resumes = true;
    } else if (exists(path)) { /* not in a run: its weights can be used */
        add(l, "weights=", path);
    } else {
        l->unfit = true;
    }
}

/* A path without a key. */
static void add_bare(line *l, const char *path)
{
    const bool dir = is_dir(path), run = is_run(path);
    if (run && l->trains) {
        add_resumed(l, path);
    } else if (run || (!l->trains && ends_in(path, ".safetensors"))) {
        add(l, "model=", path);
    } else if (!dir && ends_in(path, ".py")) {
        l->script = path;
        add(l, "", path);
    } else if (!dir && (ends_in(path, ".yaml") || ends_in(path, ".yml"))) {
        add(l, "config=", path);
    } else if (!dir && (ends_in(path, ".safetensors") || ends_in(path, ".pt") ||
                        ends_in(path, ".pth") || ends_in(path, ".ckpt"))) {
        add(l, "weights=", path);
    } else if (has_row(l, "data")) {
        add(l, "data=", path);
    } else {
        l->unfit = true;
    }
}

static bool is_truth(const char *text)
{
    static const char truths[] = "true|false|yes|no|on|off|1|0";
    return lvni_core_option_choice_index(truths, text, strlen(text)) >= 0;
}

static void record_fault(line *l, int i, fault f)
{
    l->fault = l->wrong != NULL ? l->fault : f;
    l->wrong = l->wrong != NULL ? l->wrong : l->args[i];
}

/* ---- what a space has parted ---- */

/* A key and its value, in one argument or several. */
typedef struct given {
    char front[KEY_MAX_BYTES]; /* "data=", or "" for "--data VALUE" */
    const char *value;
    const lvni_core_option *row;
    int used; /* arguments */
} given;

/* "data = DIR", "data =DIR", "data= DIR", "data DIR". */
static bool find_spaced(const line *l, int i, given *out)
{
    const char *arg = l->args[i], *next = i + 1 < l->n ? l->args[i + 1] : "";
    const size_t n = strcspn(arg, "=");
    if (n == 0 || n + 2 > sizeof out->front || (arg[n] != '\0' && arg[n + 1] != '\0')) {
        return false;
    }
    *out = (given){.used = 0};
    memcpy(out->front, arg, n);
    out->row = arg[0] == '-' ? NULL : lvni_core_config_row(l->config, out->front);
    const bool alone = arg[n] == '\0' && strcmp(next, "=") == 0;
    if (arg[n] == '\0' && next[0] != '=' && exists(arg)) {
        return false; /* a path that has the name of a key */
    }
    out->used = alone ? 3 : 2;
    out->value = !alone         ? next + (arg[n] == '\0' && next[0] == '=' ? 1 : 0)
                 : i + 2 < l->n ? l->args[i + 2]
                                : "";
    out->front[n] = '='; /* behind it the zeros of `given` */
    return out->row != NULL && out->value[0] != '\0' && strchr("-+~", out->value[0]) == NULL &&
           strchr(out->value, '=') == NULL;
}

/* How many arguments at i are neither a key nor an option. */
static int count_bare(const line *l, int i)
{
    int n = 0;
    while (i + n < l->n && l->args[i + n][0] != '\0' && strchr("-+~", l->args[i + n][0]) == NULL &&
           strchr(l->args[i + n], '=') == NULL) {
        n++;
    }
    return n;
}

static void join(const line *l, const given *g, int i, int n, lvni_core_str *out)
{
    lvni_core_str_clear(out);
    lvni_core_str_append(out, g->value);
    for (int k = 0; k < n; k++) {
        lvni_core_str_printf(out, " %s", l->args[i + k]);
    }
}

/* How many of the arguments behind a value, at i, belong to it, as those of data=my photos; *value
 * is all of it. */
static int find_rest(const line *l, const given *g, int i, lvni_core_str *value)
{
    const int all = count_bare(l, i);
    const bool path = g->row->type == LVNI_OPT_PATH;
    if (!path && g->row->type != LVNI_OPT_STRING) {
        return 0;
    }
    for (int n = path ? all : 0; n > 0; n--) {
        join(l, g, i, n, value);
        if (exists(lvni_core_str_text(value))) {
            return n;
        }
    }
    const bool is_data = strcmp(g->row->name, "data") == 0;
    if (all == 0 || (path && exists(g->value)) || (!is_data && exists(l->args[i]))) {
        return 0;
    }
    join(l, g, i, all, value);
    return all;
}

/* Appends what a space has parted; returns how many arguments that takes. 0: nothing is. */
static int add_parted(line *l, int i)
{
    given g;
    const char *name, *text;
    const int used = lvni_core_config_arguments_of(l->config, l->n - i, l->args + i, &name, &text);
    const bool spaced = find_spaced(l, i, &g);
    if (!spaced && (used == 0 || text == NULL || text[0] == '\0')) {
        return 0;
    }
    if (!spaced) {
        const size_t front = used == 1 ? (size_t)(text - l->args[i]) : 0;
        g = (given){.value = text, .row = lvni_core_config_row(l->config, name), .used = used};
        if (front >= sizeof g.front || g.row == NULL) {
            return 0;
        }
        snprintf(g.front, sizeof g.front, "%.*s", (int)front, l->args[i]);
    }
    lvni_core_str value = {0};
    const int rest = find_rest(l, &g, i + g.used, &value);
    if (spaced || rest > 0) {
        record_fault(l, spaced ? i : i + g.used, spaced ? SPACED : UNQUOTED);
        if (g.front[0] == '\0') {
            add(l, "", l->args[i]); /* --data */
        }
        add(l, g.front, rest > 0 ? lvni_core_str_text(&value) : g.value);
    }
    l->text.failed = l->text.failed || value.failed;
    lvni_core_str_free(&value);
    return spaced || rest > 0 ? g.used + rest : 0;
}

/* Appends the replacement of the argument at i; returns how many arguments that takes. 0: the
 * errors of the options are better. */
static int add_arg(line *l, int i)
{
    const char *name, *text, *arg = l->args[i];
    const int used = lvni_core_config_arguments_of(l->config, l->n - i, l->args + i, &name, &text);
    const bool resume = used > 0 && strcmp(name, "resume") == 0;
    if (resume && text != NULL && text[0] != '\0' && !is_truth(text)) {
        record_fault(l, i, RESUME);
        add_resumed(l, text);
        return 1;
    }
    if (resume && text == NULL && i + 1 < l->n && exists(l->args[i + 1])) { /* --resume PATH */
        record_fault(l, i, RESUME);
        add_resumed(l, l->args[i + 1]);
        return 2;
    }
    const int parted = add_parted(l, i);
    if (parted > 0) {
        return parted;
    }
    if (used == 0 && (strchr("-+~", arg[0]) != NULL || strchr(arg, '=') != NULL || !exists(arg))) {
        return 0;
    }
    if (used == 0) {
        record_fault(l, i, BARE);
        add_bare(l, arg);
        return 1;
    }
    for (int k = 0; k < used && !(l->resumes && strcmp(name, "out") == 0); k++) {
        add(l, "", l->args[i + k]);
    }
    return used;
}

static bool add_args(line *l)
{
    for (int i = 0, used; i < l->n && !l->unfit && l->script == NULL; i += used) {
        used = add_arg(l, i);
        if (used == 0) {
            return false;
        }
    }
    return !l->unfit;
}

/* A run to continue may follow an out= that it replaces: then all is put together again. */
static bool put_together(line *l, const char *command)
{
    lvni_core_str_append(&l->text, command);
    bool good = add_args(l);
    if (good && l->resumes) {
        lvni_core_str_clear(&l->text);
        lvni_core_str_append(&l->text, command);
        good = add_args(l);
    }
    return good;
}

/* ---- the error ---- */

/* levin train classify SCRIPT.py ARGS: a script has a loop of its own. */
static lvn_status fail_script(const line *l)
{
    lvni_core_str text = {0};
    bool found = false;
    for (int i = 0; i < l->n; i++) {
        found = found || l->args[i] == l->script;
        if (found) {
            lvni_core_str_char(&text, ' ');
            lvni_core_shell_quote(&text, l->args[i]);
        }
    }
    lvn_status s = lvni_core_str_status(&text);
    if (s == LVN_OK) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "%s is a Python script, which trains by itself: levin launch%.*s",
                          l->script, LINE_MAX_BYTES, lvni_core_str_text(&text));
    }
    lvni_core_str_free(&text);
    return s;
}

static const char *explain(const line *l)
{
    switch (l->fault) {
    case SPACED: return "is not key=value, with no spaces around =";
    case UNQUOTED: return "is behind a space, and a value with spaces needs quotes";
    case RESUME:
        return l->resumes ? "is not a switch; out names the run to continue"
                          : "is not in a run directory; a new run takes its weights";
    default: return "has no key";
    }
}

static lvn_status fail_line(const line *l)
{
    LVN_TRY(lvni_core_str_status(&l->text));
    if (l->text.len > LINE_MAX_BYTES && l->fault != BARE) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.200s` %s", l->wrong, explain(l));
    }
    if (l->text.len > LINE_MAX_BYTES) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "`%.200s` has no key; a folder of images is data=DIR, the run to "
                 "continue out=DIR resume=true",
                 l->wrong);
    }
    LVN_FAIL(LVN_ERR_USAGE, "`%.100s` %s: %s", l->wrong, explain(l), lvni_core_str_text(&l->text));
}

static lvn_status check(line *l, const char *command)
{
    if (!put_together(l, command) || l->wrong == NULL) {
        return LVN_OK; /* errors, if any, are those of the options */
    }
    return l->script != NULL ? fail_script(l) : fail_line(l);
}

enum { COMMAND = 512 };

/* The first of the arguments behind the command, and behind its recipe; the command as it is typed
 * up to there ("levin train classify"). False: nothing is known of what follows. */
static bool find_begin(const lvni_cli_command *c, int n, const char *const *args,
                       lvni_cli_topic *topic, int *skip, char command[COMMAND])
{
    const bool plan = c->by_recipe && !c->trains;
    *skip = 1;
    if (!c->by_recipe) {
        const char *first = c->uses && n > 1 ? args[1] : "";
        const bool own = lvni_user_is_file(first) || lvni_recipes_find(first) != NULL;
        *skip += c->uses && own ? 1 : 0;
        snprintf(command, COMMAND, "levin %s%s%s", c->name, own ? " " : "", own ? first : "");
        return lvni_cli_topic_of(c, own ? first : NULL, topic);
    }
    if (plan && (n < 2 || strcmp(args[1], "train") != 0)) {
        return false;
    }
    *skip += plan ? 1 : 0;
    const char *recipe = n > *skip ? args[*skip] : "";
    const bool named = lvni_recipes_find(recipe) != NULL || lvni_user_is_file(recipe);
    const size_t length = strlen(recipe);
    const bool source = length > 2 && strcmp(recipe + length - 2, ".c") == 0; /* levin cc first */
    if ((!named && (source || !exists(recipe))) || !lvni_cli_topic_of(c, recipe, topic)) {
        return false;
    }
    *skip += named ? 1 : 0;
    snprintf(command, COMMAND, "levin %strain %s", plan ? "plan " : "",
             topic->recipe->argument != NULL ? topic->recipe->argument : topic->recipe->name);
    return true;
}

int lvni_cli_bare_arguments(const lvni_cli_command *c, int n, const char *const *args)
{
    int skip;
    char command[COMMAND];
    lvni_cli_topic topic;
    const bool takes_paths = !c->by_recipe && !c->uses; /* programs, run directories */
    if (takes_paths || !find_begin(c, n, args, &topic, &skip, command)) {
        return LVNI_EXIT_OK;
    }
    lvni_core_config *config;
    lvn_status s = lvni_core_config_create(topic.keys, &config);
    if (s == LVN_OK) {
        line l = {
            .config = config, .n = n - skip, .args = args + skip, .trains = topic.command->trains};
        s = check(&l, command);
        lvni_core_str_free(&l.text);
        lvni_core_config_destroy(config);
    }
    return lvni_run_report_status(s);
}
