/* The arguments of a command line and the defaults of a job, which have the same form (config.h):
 * key=value, --key value, --flag, ~key and short options of other trainers. */
#include "core/config_impl.h"

#include "core/alloc.h"
#include "core/error.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { ARGUMENTS_MAX = 4096, KEY_MAX = 128 };
static const char command_line[] = "command line";

/* One argument, or two for "--key value". */
typedef struct setting {
    char key[KEY_MAX];
    const char *text;
    bool back;
    int used; /* arguments */
} setting;

static bool is_flag(const lvni_core_config *config, const char *key)
{
    const lvni_core_slot *slot = lvni_core_config_target(config, key);
    return slot != NULL && slot->row->type == LVNI_OPT_BOOL;
}

static bool is_bool_text(const char *text)
{
    static const char choices[] = "true|false|yes|no|on|off|1|0";
    return lvni_core_option_choice_index(choices, text, strlen(text)) >= 0;
}

/* ---- the parts of an argument ---- */

typedef struct argument_parts {
    const char *key;
    size_t n;         /* bytes of the key */
    const char *text; /* behind `=`; NULL: there is none */
    bool dashes;      /* "--key": the value may be the next argument */
    bool back;        /* "~key" */
} argument_parts;

/* "-b", "-b=64", "-b64": short options of other trainers. */
static bool split_short(const lvni_core_config *config, const char *arg, argument_parts *out)
{
    char name[KEY_MAX];
    const char *equals = strchr(arg, '=');
    if (arg[0] != '-' || !isalpha((unsigned char)arg[1])) {
        return false;
    }
    *out = (argument_parts){.key = arg, .dashes = true, .text = equals != NULL ? equals + 1 : NULL};
    out->n = equals != NULL ? (size_t)(equals - arg) : strlen(arg);
    snprintf(name, sizeof name, "%.*s", (int)out->n, arg);
    if (out->n < sizeof name && lvni_core_config_foreign(config, name) != NULL) {
        return true;
    }
    snprintf(name, sizeof name, "%.2s", arg);
    out->n = 2;
    out->text = arg + 2;
    return isdigit((unsigned char)arg[2]) && lvni_core_config_foreign(config, name) != NULL;
}

static void split_parts(const lvni_core_config *config, const char *arg, argument_parts *out)
{
    if (split_short(config, arg, out)) {
        return;
    }
    *out = (argument_parts){.key = arg, .dashes = strncmp(arg, "--", 2) == 0, .back = *arg == '~'};
    const bool two = out->dashes || strncmp(arg, "++", 2) == 0;
    out->key += two ? 2 : *arg == '+' || *arg == '~' ? 1 : 0;
    const char *equals = strchr(out->key, '=');
    out->n = equals != NULL ? (size_t)(equals - out->key) : strlen(out->key);
    out->text = equals != NULL ? equals + 1 : NULL;
}

/* "--key value" and "--flag". */
static lvn_status split_dashes(const lvni_core_config *config, int left, const char *const *args,
                               const char *origin, setting *out)
{
    const char *next = left > 1 ? args[1] : NULL;
    if (is_flag(config, out->key) && (next == NULL || !is_bool_text(next))) {
        out->text = "true";
        return LVN_OK;
    }
    const lvni_core_foreign *entry = lvni_core_config_foreign(config, out->key);
    if (lvni_core_config_target(config, out->key) == NULL &&
        (entry == NULL || entry->harmless == 0)) {
        return lvni_core_config_unknown(config, out->key, origin);
    }
    if (lvni_core_config_target(config, out->key) == NULL &&
        (next == NULL || *next == '-' || strchr(next, '=') != NULL)) {
        out->text = "true"; /* of another trainer, a switch */
        return LVN_OK;
    }
    if (next == NULL || strncmp(next, "--", 2) == 0) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.80s` needs a value: %.80s=VALUE  (%s)", args[0], out->key,
                 origin);
    }
    out->text = next;
    out->used = 2;
    return LVN_OK;
}

static lvn_status split_argument(const lvni_core_config *config, int left, const char *const *args,
                                 const char *origin, setting *out)
{
    argument_parts p;
    split_parts(config, args[0], &p);
    *out = (setting){.back = p.back, .used = 1, .text = ""};
    const bool bare = p.text == NULL && !p.dashes && !p.back;
    if (bare && p.n > 0 && lvni_core_config_target(config, args[0]) != NULL) {
        LVN_FAIL(LVN_ERR_USAGE, "`%.80s` has no value: %.80s=VALUE, with no spaces around =  (%s)",
                 args[0], args[0], origin);
    }
    if (p.n == 0 || bare) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "`%.80s` is not understood: arguments are key=value or --key value  (%s)", args[0],
                 origin);
    }
    if (p.n >= KEY_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, "the key of `%.80s...` is longer than any known key  (%s)", args[0],
                 origin);
    }
    memcpy(out->key, p.key, p.n);
    if (p.text != NULL) {
        out->text = p.text;
        return LVN_OK;
    }
    return out->back ? LVN_OK : split_dashes(config, left, args, origin, out);
}

int lvni_core_config_arguments_of(const lvni_core_config *config, int n, const char *const *args,
                                  const char **name, const char **text)
{
    argument_parts p;
    char key[KEY_MAX];
    split_parts(config, args[0], &p);
    snprintf(key, sizeof key, "%.*s", (int)p.n, p.key);
    const lvni_core_slot *slot =
        p.n > 0 && p.n < sizeof key ? lvni_core_config_target(config, key) : NULL;
    *name = slot != NULL ? slot->row->name : NULL;
    *text = p.text;
    if (slot == NULL || (p.text == NULL && !p.dashes && !p.back)) {
        return 0;
    }
    const char *next = n > 1 ? args[1] : NULL;
    const bool two = p.text == NULL && p.dashes && next != NULL &&
                     (slot->row->type != LVNI_OPT_BOOL || is_bool_text(next));
    *text = two ? next : p.text;
    return two ? 2 : 1;
}

/* "training.imgaug={Rotate: {p: 0.4}}" */
static bool is_json(const lvni_core_config *config, const setting *s)
{
    const lvni_core_slot *slot = lvni_core_config_target(config, s->key);
    return !s->back && slot != NULL && (slot->row->flags & LVNI_OPT_JSON) != 0 &&
           (*s->text == '{' || *s->text == '[');
}

/* LightlyTrain's groups: "optim_args={lr: 0.1}", and "optim_args=null", which gives nothing. */
static bool is_group(const lvni_core_config *config, const setting *s)
{
    const bool map = *s->text == '{', nothing = lvni_core_option_is_null(s->text) &&
                                                lvni_core_config_target(config, s->key) == NULL;
    return !s->back && (map || nothing) && lvni_core_config_is_prefix(config, s->key);
}

/* A group that a file has as null is there again. */
static lvn_status load_group(lvni_core_config *config, const setting *s, lvni_core_layer layer,
                             int source, const char *origin)
{
    const lvni_core_slot *slot = lvni_core_config_find(config, s->key);
    if (slot != NULL && slot->row->alias_of == NULL && slot->row->type == LVNI_OPT_BOOL &&
        (!lvni_core_config_is_set(config, s->key) || !lvni_core_config_bool(config, s->key))) {
        LVN_TRY(lvni_core_config_assign(config, &(lvni_core_assignment){.key = s->key,
                                                                        .text = "true",
                                                                        .layer = layer,
                                                                        .source = source,
                                                                        .origin = origin}));
    }
    return lvni_core_config_keep(config,
                                 lvni_core_config_load_map(config, layer, s->key, s->text, origin));
}

static lvn_status load_all(lvni_core_config *config, lvni_core_layer layer, int n,
                           const char *const *args, const char *origin)
{
    const int source = ++config->sources;
    for (int i = 0; i < n;) {
        setting s;
        LVN_TRY(split_argument(config, n - i, args + i, origin, &s));
        i += s.used;
        if (is_group(config, &s) || is_json(config, &s)) {
            LVN_TRY(load_group(config, &s, layer, source, origin));
            continue;
        }
        LVN_TRY(lvni_core_config_assign(config, &(lvni_core_assignment){.key = s.key,
                                                                        .text = s.text,
                                                                        .back = s.back,
                                                                        .layer = layer,
                                                                        .source = source,
                                                                        .origin = origin}));
    }
    return LVN_OK;
}

/* The files first: their layer is below the command line's, so only the order among files matters.
 */
static lvn_status load_files(lvni_core_config *config, int n, const char *const *args)
{
    for (int i = 0; i < n;) {
        setting s;
        LVN_TRY(split_argument(config, n - i, args + i, command_line, &s));
        i += s.used;
        const lvni_core_slot *slot = lvni_core_config_target(config, s.key);
        const bool given = !s.back && s.text[0] != '\0';
        if (slot != NULL && strcmp(slot->row->name, "config") == 0 && given) {
            LVN_TRY(lvni_core_config_load_file(config, LVNI_LAYER_FILE, s.text));
        }
    }
    return LVN_OK;
}

lvn_status lvni_core_config_load_arguments(lvni_core_config *config, int n, const char *const *args)
{
    if (n > ARGUMENTS_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, "%d arguments: a command takes at most %d", n, ARGUMENTS_MAX);
    }
    LVN_TRY(load_files(config, n, args));
    LVN_TRY(load_all(config, LVNI_LAYER_ARGUMENTS, n, args, command_line));
    return lvni_core_config_resolve(config);
}

/* One variable, behind the prefix. */
static lvn_status load_variable(lvni_core_config *config, int source, const char *variable,
                                size_t prefix)
{
    char name[KEY_MAX], key[KEY_MAX];
    const size_t n = strcspn(variable, "=");
    if (n <= prefix || n >= sizeof name || variable[n] == '\0' || variable[n + 1] == '\0') {
        return LVN_OK;
    }
    snprintf(name, sizeof name, "%.*s", (int)n, variable);
    for (size_t i = prefix; i <= n; i++) {
        key[i - prefix] = (char)tolower((unsigned char)name[i]);
    }
    const lvni_core_assignment a = {.key = key,
                                    .text = variable + n + 1,
                                    .layer = LVNI_LAYER_JOB,
                                    .source = source,
                                    .origin = name};
    const lvni_core_foreign *entry = lvni_core_config_foreign(config, key);
    if (lvni_core_config_target(config, key) != NULL) {
        return lvni_core_config_assign(config, &a);
    }
    if (entry != NULL) {
        lvni_core_config_add_note(config, name, entry, "environment");
    }
    return lvni_core_str_status(&config->notes);
}

lvn_status lvni_core_config_load_variables(lvni_core_config *config, const char *prefix,
                                           char *const *environment)
{
    const int source = ++config->sources;
    for (char *const *e = environment; *e != NULL; e++) {
        if (strncmp(*e, prefix, strlen(prefix)) == 0) {
            LVN_TRY(load_variable(config, source, *e, strlen(prefix)));
        }
    }
    return LVN_OK;
}

/* The end of the argument that begins at p: blanks inside quotes and brackets belong to it. */
static char *argument_end(char *p)
{
    char quote = '\0';
    int depth = 0;
    for (; *p != '\0'; p++) {
        if (quote != '\0') {
            quote = *p == quote ? '\0' : quote;
        } else if (*p == '\'' || *p == '"') {
            quote = *p;
        } else if (*p == '[' || *p == '{') {
            depth++;
        } else if (*p == ']' || *p == '}') {
            depth--;
        } else if (depth <= 0 && strchr(" \t\r\n", *p) != NULL) {
            break;
        }
    }
    return p;
}

lvn_status lvni_core_config_load_job(lvni_core_config *config, const char *job)
{
    if (job == NULL) {
        return LVN_OK;
    }
    char *copy = lvni_core_strdup(LVNI_TAG_CONFIG, job);
    const char **args = lvni_core_calloc(LVNI_TAG_CONFIG, strlen(job) / 2 + 1, sizeof *args);
    lvn_status status;
    int n = 0;
    LVNI_TRY_DONE(status, copy == NULL || args == NULL ? LVN_ERR_MEMORY : LVN_OK);
    for (char *p = copy; *p != '\0';) {
        p += strspn(p, " \t\r\n");
        if (*p != '\0') {
            char *end = argument_end(p);
            args[n++] = p;
            p = *end != '\0' ? end + 1 : end;
            *end = '\0';
        }
    }
    status = load_all(config, LVNI_LAYER_JOB, n, args, "job");
done:
    lvni_core_free(args);
    lvni_core_free(copy);
    return status;
}
