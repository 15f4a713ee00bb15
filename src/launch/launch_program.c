/* Where the program begins, and what runs it (launch_program.h). */
#include "launch/launch_program.h"

#include "core/alloc.h"
#include "core/escape.h"
#include "launch/env_vars.h"
#include "launch/launch_child.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const char *lvni_launch_short_form(const char *word)
{
    static const char *const forms[][2] = {{"-n", "--nproc"},     {"-q", "--quiet"},
                                           {"-v", "--verbose"},   {"-m", "--module"},
                                           {"-r", "--redirects"}, {"-t", "--tee"}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(word, forms[i][0]) == 0) {
            return forms[i][1];
        }
    }
    return word;
}

/* ---- where it begins ---- */

static int option_arguments(const lvni_core_config *config, int n, const char *const *words)
{
    const char *two[] = {lvni_launch_short_form(words[0]), n > 1 ? words[1] : NULL};
    const char *name, *text;
    return lvni_core_config_arguments_of(config, n > 1 ? 2 : 1, two, &name, &text);
}

void lvni_launch_program_find(const lvni_core_config *config, int n, const char *const *words,
                              lvni_launch_program_place *out)
{
    int own = 0, at = 0;
    while (own < n && strcmp(words[own], "--") != 0) {
        own++;
    }
    for (int used; at < own && (used = option_arguments(config, own - at, words + at)) > 0;) {
        at += used;
    }
    if (at < own && strchr("-+~", words[at][0]) == NULL && strchr(words[at], '=') == NULL) {
        *out = (lvni_launch_program_place){.n_options = at, .first = at, .bare = true};
        return;
    }
    /* Of an option that is none the table says what is wrong; behind it stands anything. */
    const int read = at < own && own == n ? at + 1 : own;
    *out = (lvni_launch_program_place){.n_options = read, .first = own < n ? own + 1 : n};
}

/* ---- what it is ---- */

static bool ends_in(const char *word, const char *end)
{
    const size_t n = strlen(word), k = strlen(end);
    return n > k && strcmp(word + n - k, end) == 0;
}

/* A file whose first line is "#!...python...". */
static bool names_python(const char *path)
{
    char line[256] = "";
    struct stat info;
    FILE *f = stat(path, &info) == 0 && S_ISREG(info.st_mode) ? fopen(path, "re") : NULL;
    const bool read = f != NULL && fgets(line, sizeof line, f) != NULL;
    if (f != NULL) {
        fclose(f);
    }
    return read && strncmp(line, "#!", 2) == 0 && strstr(line, "python") != NULL;
}

/* Commands of this program that have ranks. */
static bool is_command(const char *word)
{
    return strcmp(word, "train") == 0 || strcmp(word, "predict") == 0 || strcmp(word, "eval") == 0;
}

/* No script, so `--` must say where the program begins, as options are key=value, too. */
static lvn_status refuse(int at, int n, const char *const *words)
{
    const bool ours = is_command(words[at]);
    lvni_core_str line = {0};
    lvni_core_str_append(&line, ours && at == 0 ? " -n N" : "");
    for (int i = 0; i < n; i++) {
        lvni_core_str_append(&line, i != at ? " " : ours ? " -- levin " : " -- ");
        lvni_core_shell_quote(&line, words[i]);
    }
    lvn_status s = lvni_core_str_status(&line);
    s = s != LVN_OK
            ? s
            : lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                            "put %s before the %s: levin launch%s", ours ? "-- levin" : "--",
                            ours ? "command" : "program", lvni_core_str_text(&line));
    lvni_core_str_free(&line);
    return s;
}

static lvn_status check_script(const lvni_launch_program_place *place, int n,
                               const char *const *words)
{
    const char *word = words[place->first];
    struct stat info;
    if (!ends_in(word, ".py") && !names_python(word)) {
        return refuse(place->first, n, words);
    }
    if (stat(word, &info) != 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: there is no such script", word);
    }
    return LVN_OK;
}

/* ---- putting it together ---- */

static lvn_status take_python(lvni_launch_options *o, bool module, int n, const char *const *words)
{
    const char **all = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)n + 4, sizeof *all);
    if (all == NULL) {
        return LVN_ERR_MEMORY;
    }
    int at = 0;
    all[at++] = "python3";
    all[at++] = "-u";
    if (module) {
        all[at++] = "-m";
    }
    memcpy(all + at, words, (size_t)n * sizeof *all);
    o->own_program = all;
    o->program = all;
    o->n_program = at + n;
    return LVN_OK;
}

lvn_status lvni_launch_program_take(lvni_launch_options *o, const lvni_launch_program_place *place,
                                    int n, const char *const *words)
{
    const bool module = lvni_core_config_bool(o->config, "module"),
               plain = lvni_core_config_bool(o->config, "no_python");
    if (module && plain) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "--module and --no-python: a module is run by Python; give one of them");
    }
    o->n_program = n - place->first;
    o->program = words + place->first;
    if (o->n_program <= 0) {
        LVN_FAIL(
            LVN_ERR_USAGE,
            "which program? levin launch [options] SCRIPT.py [ARGS...], or any other behind two "
            "dashes: levin launch [options] -- PROGRAM [ARGS...]");
    }
    if (plain || (!place->bare && !module)) {
        return LVN_OK;
    }
    LVN_TRY(module ? LVN_OK : check_script(place, n, words));
    return take_python(o, module, o->n_program, o->program);
}

lvn_status lvni_launch_program_find_python(lvni_launch_options *o, char *const *environment)
{
    if (o->own_program == NULL) {
        return LVN_OK;
    }
    char *path = NULL;
    int code;
    const char *given = lvni_launch_env_get(environment, "PYTHON_EXEC");
    const char *search = lvni_launch_env_get(environment, "PATH");
    if (given != NULL) {
        o->own_program[0] = given;
    } else if (lvni_launch_child_find_program("python3", search, &path, &code) != LVN_OK) {
        if (lvni_launch_child_find_program("python", search, &path, &code) == LVN_OK) {
            o->own_program[0] = "python";
        }
        lvn_clear_error(); /* who looks for the program next says it again */
    }
    lvni_core_free(path);
    return LVN_OK;
}
