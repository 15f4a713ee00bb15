/* The program of `levin launch`: where it begins among the arguments, whether Python runs it, and
 * which file it is (launch_options.h). */
#include "launch/launch_options.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "launch/env_vars.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *lvni_launch_short_form(const char *arg)
{
    static const char *const forms[][2] = {{"-n", "--nproc"},     {"-q", "--quiet"},
                                           {"-v", "--verbose"},   {"-m", "--module"},
                                           {"-r", "--redirects"}, {"-t", "--tee"}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(arg, forms[i][0]) == 0) {
            return forms[i][1];
        }
    }
    return arg;
}

/* ---- where it begins ---- */

static int option_args(const lvni_core_config *config, int n, const char *const *args)
{
    const char *two[] = {lvni_launch_short_form(args[0]), n > 1 ? args[1] : NULL};
    const char *name, *text;
    return lvni_core_config_arguments_of(config, n > 1 ? 2 : 1, two, &name, &text);
}

void lvni_launch_program_find(const lvni_core_config *config, int n, const char *const *args,
                              lvni_launch_program_place *out)
{
    int own = 0, at = 0;
    while (own < n && strcmp(args[own], "--") != 0) {
        own++;
    }
    for (int used; at < own && (used = option_args(config, own - at, args + at)) > 0;) {
        at += used;
    }
    if (at < own && strchr("-+~", args[at][0]) == NULL && strchr(args[at], '=') == NULL) {
        *out = (lvni_launch_program_place){.n_options = at, .first = at, .bare = true};
        return;
    }
    /* of an unknown option the table reports the error; what follows it may be anything */
    const int read = at < own && own == n ? at + 1 : own;
    *out = (lvni_launch_program_place){.n_options = read, .first = own < n ? own + 1 : n};
}

/* ---- what it is ---- */

static bool ends_in(const char *arg, const char *end)
{
    const size_t n = strlen(arg), k = strlen(end);
    return n > k && strcmp(arg + n - k, end) == 0;
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
static bool is_command(const char *arg)
{
    return strcmp(arg, "train") == 0 || strcmp(arg, "predict") == 0 || strcmp(arg, "eval") == 0;
}

/* Not a script, so `--` has to mark where the program begins, as options are key=value, too. */
static lvn_status refuse(int at, int n, const char *const *args)
{
    const bool ours = is_command(args[at]);
    lvni_core_str line = {0};
    lvni_core_str_append(&line, ours && at == 0 ? " -n N" : "");
    for (int i = 0; i < n; i++) {
        lvni_core_str_append(&line, i != at ? " " : ours ? " -- levin " : " -- ");
        lvni_core_shell_quote(&line, args[i]);
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
                               const char *const *args)
{
    const char *arg = args[place->first];
    struct stat info;
    if (!ends_in(arg, ".py") && !names_python(arg)) {
        return refuse(place->first, n, args);
    }
    if (stat(arg, &info) != 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: there is no such script", arg);
    }
    return LVN_OK;
}

/* ---- putting it together ---- */

static lvn_status take_python(lvni_launch_options *o, bool module, int n, const char *const *args)
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
    memcpy(all + at, args, (size_t)n * sizeof *all);
    o->own_program = all;
    o->program = all;
    o->n_program = at + n;
    return LVN_OK;
}

lvn_status lvni_launch_program_take(lvni_launch_options *o, const lvni_launch_program_place *place,
                                    int n, const char *const *args)
{
    const bool module = lvni_core_config_bool(o->config, "module"),
               plain = lvni_core_config_bool(o->config, "no_python");
    if (module && plain) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "--module and --no-python: a module is run by Python; give one of them");
    }
    o->n_program = n - place->first;
    o->program = args + place->first;
    if (o->n_program <= 0) {
        LVN_FAIL(LVN_ERR_USAGE, "no program: give levin launch [options] SCRIPT.py [ARGS...], or "
                                "any other program after "
                                "two dashes: levin launch [options] -- PROGRAM [ARGS...]");
    }
    if (plain || (!place->bare && !module)) {
        return LVN_OK;
    }
    LVN_TRY(module ? LVN_OK : check_script(place, n, args));
    return take_python(o, module, o->n_program, o->program);
}

/* ---- the file ---- */

/* 0: it can be run; 126: it is there; 127: it is not. */
static int classify_program(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return errno == EACCES ? LVNI_EXIT_NOT_EXECUTABLE : LVNI_EXIT_NO_PROGRAM;
    }
    return S_ISREG(info.st_mode) && access(path, X_OK) == 0 ? LVNI_EXIT_OK
                                                            : LVNI_EXIT_NOT_EXECUTABLE;
}

static lvn_status search_path(const char *name, const char *search, lvni_core_str *found,
                              int *exit_code)
{
    *exit_code = LVNI_EXIT_NO_PROGRAM;
    for (const char *p = search; *exit_code != LVNI_EXIT_OK;) {
        const size_t n = strcspn(p, ":");
        lvni_core_str s = {0};
        lvni_core_str_append_n(&s, n > 0 ? p : ".", n > 0 ? n : 1);
        lvni_core_str_char(&s, '/');
        lvni_core_str_append(&s, name);
        LVN_TRY(lvni_core_str_status(&s));
        const int here = classify_program(lvni_core_str_text(&s));
        if (here < *exit_code) {
            *exit_code = here;
            lvni_core_str_free(found);
            *found = s;
        } else {
            lvni_core_str_free(&s);
        }
        if (p[n] == '\0') {
            break;
        }
        p += n + 1;
    }
    return LVN_OK;
}

lvn_status lvni_launch_program_search(const char *name, const char *search, char **path,
                                      int *exit_code)
{
    lvni_core_str found = {0};
    *path = NULL;
    if (strchr(name, '/') != NULL) {
        *exit_code = classify_program(name);
        lvni_core_str_append(&found, name);
    } else if (name[0] == '\0') {
        *exit_code = LVNI_EXIT_NO_PROGRAM;
    } else {
        LVN_TRY(search_path(name, search != NULL ? search : "/usr/local/bin:/usr/bin:/bin", &found,
                            exit_code));
    }
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&found));
    if (*exit_code == LVNI_EXIT_NO_PROGRAM) {
        s = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__, "%s: there is no such program%s",
                          name,
                          strchr(name, '/') != NULL
                              ? ""
                              : " in the folders of PATH; one in this folder is written ./NAME");
        goto done;
    }
    if (*exit_code == LVNI_EXIT_NOT_EXECUTABLE) {
        s = lvn_error_set(
            LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
            "%s cannot be executed: chmod +x it, or name its interpreter (python3 %s)",
            lvni_core_str_text(&found), name);
        goto done;
    }
    *path = lvni_core_str_take(&found);
    return *path != NULL ? LVN_OK : LVN_ERR_MEMORY;
done:
    lvni_core_str_free(&found);
    return s;
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
    } else if (lvni_launch_program_search("python3", search, &path, &code) != LVN_OK) {
        if (lvni_launch_program_search("python", search, &path, &code) == LVN_OK) {
            o->own_program[0] = "python";
        }
        lvn_clear_error(); /* the search for the program will report it */
    }
    lvni_core_free(path);
    return LVN_OK;
}
