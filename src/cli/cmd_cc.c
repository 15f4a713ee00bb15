/* levin cc mine.c [-o mine.so] [FLAG...]: the compiler's command for a recipe of a user's
 * (levin/recipe.h). */
#include "cli/cli.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/own_program.h"
#include "core/str.h"
#include "run/error_record.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of levin/levin.h: where the program is installed, or a link that lies in build
 * folders. */
static bool find_headers(char out[PATH_MAX])
{
    char program[PATH_MAX], header[PATH_MAX + 32];
    static const char *const from_program[] = {"/include", "/../include", "/../../include"};
    if (!lvni_core_self(program, sizeof program)) {
        return false;
    }
    *strrchr(program, '/') = '\0';
    for (size_t i = 0; i < sizeof from_program / sizeof *from_program; i++) {
        snprintf(header, sizeof header, "%s%s/levin/recipe.h", program, from_program[i]);
        snprintf(out, PATH_MAX, "%.*s%s", PATH_MAX - 32, program, from_program[i]);
        if (access(header, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* "mine.c" becomes "mine.so" in the same folder. */
static lvn_status name_output(const char *source, lvni_core_str *out)
{
    const char *dot = strrchr(source, '.'), *slash = strrchr(source, '/');
    const size_t n =
        dot != NULL && (slash == NULL || dot > slash) ? (size_t)(dot - source) : strlen(source);
    lvni_core_str_printf(out, "%.*s.so", (int)n, source);
    return lvni_core_str_status(out);
}

/* Other arguments may be what follows -I or -L. */
static bool ends_in_c(const char *argument)
{
    const size_t n = strlen(argument);
    return n > 2 && argument[0] != '-' && strcmp(argument + n - 2, ".c") == 0;
}

/* What the arguments name. */
typedef struct cc_files {
    const char *source, *output; /* NULL: not given */
    bool linked;                 /* not with -c, -S or -E, whose output has other names */
} cc_files;

static cc_files find_files(int n, const char *const *args)
{
    cc_files f = {.linked = true};
    for (int i = 0; i < n; i++) {
        if (strncmp(args[i], "-o", 2) == 0) {
            const bool follows = args[i][2] == '\0';
            i += follows ? 1 : 0;
            f.output = !follows ? args[i] + 2 : i < n ? args[i] : "";
        } else if (strcmp(args[i], "-c") == 0 || strcmp(args[i], "-S") == 0 ||
                   strcmp(args[i], "-E") == 0) {
            f.linked = false;
        } else if (f.source == NULL && ends_in_c(args[i])) {
            f.source = args[i];
        }
    }
    return f;
}

/* Run as a program, a shared object crashes without a message. */
static bool is_named_well(const cc_files *f)
{
    const char *name = f->output;
    const size_t n = name == NULL ? 0 : strlen(name);
    if (name == NULL || !f->linked || (n > 3 && strcmp(name + n - 3, ".so") == 0)) {
        return true;
    }
    if (n == 0) {
        fputs("error: -o needs a name, which ends in .so\n", stderr);
        return false;
    }
    lvni_core_print(stderr,
                    "error: -o %s: levin cc makes a shared object, for levin train ./%s.so, and "
                    "its name ends in .so; a program with a main() of its own is compiled by cc %s "
                    "-o %s $(pkg-config --cflags --libs levin)\n",
                    name, name, f->source, name);
    return false;
}

int lvni_cli_cmd_cc(int n, const char *const *args)
{
    static const char *const flags[] = {"-std=gnu11",
                                        "-O2",
                                        "-g",
                                        "-fPIC",
                                        "-shared",
                                        "-Wall",
                                        "-Werror=implicit-function-declaration",
                                        "-Wextra"};
    enum { FLAGS = sizeof flags / sizeof *flags, MORE = 8 };
    const char *given = getenv("CC");
    const char *compiler = given != NULL && given[0] != '\0' ? given : "cc";
    const cc_files files = find_files(n, args);
    if (files.source == NULL) {
        fputs("error: which source file? Its name ends in .c\n", stderr);
        return lvni_cli_command_misused("cc");
    }
    if (!is_named_well(&files)) {
        return LVNI_EXIT_USAGE;
    }
    char headers[PATH_MAX];
    if (!find_headers(headers)) {
        fputs("error: levin's headers lie neither in ../include of this program nor beside it: "
              "install it with make install\n",
              stderr);
        return LVNI_EXIT_FAILURE;
    }
    lvni_core_str output = {0};
    const char **line = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)n + FLAGS + MORE, sizeof *line);
    lvn_status s = line == NULL ? LVN_ERR_MEMORY : name_output(files.source, &output);
    if (s != LVN_OK) {
        lvni_core_free((void *)line);
        lvni_core_str_free(&output);
        return lvni_run_report_status(s);
    }
    int at = 0;
    line[at++] = compiler;
    for (int i = 0; i < FLAGS; i++) {
        line[at++] = flags[i];
    }
    line[at++] = "-I";
    line[at++] = headers;
    for (int i = 0; i < n; i++) {
        line[at++] = args[i];
    }
    if (files.output == NULL) {
        line[at++] = "-o";
        line[at++] = lvni_core_str_text(&output);
    }
    execvp(compiler, (char *const *)(uintptr_t)line);
    lvni_core_print(stderr, "error: the compiler %s cannot be started: %s; set CC\n", compiler,
                    strerror(errno));
    lvni_core_free((void *)line);
    lvni_core_str_free(&output);
    return LVNI_EXIT_FAILURE;
}
