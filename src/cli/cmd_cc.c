/* levin cc mine.c [-o mine.so] [FLAG...]: the compiler's command for a recipe of a user's
 * (levin/recipe.h). */
#include "cli/cli.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/str.h"
#include "recipes/report_error.h"

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
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    static const char *const from_program[] = {"/include", "/../include", "/../../include"};
    if (n <= 0) {
        return false;
    }
    program[n] = '\0';
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
    const char *source = NULL;
    bool named = false;
    for (int i = 0; i < n; i++) {
        const bool output = strncmp(args[i], "-o", 2) == 0;
        named = named || output;
        if (output && args[i][2] == '\0') {
            i++; /* its name follows */
        } else if (source == NULL && ends_in_c(args[i])) {
            source = args[i];
        }
    }
    if (source == NULL) {
        fputs("error: which source file? Its name ends in .c\n", stderr);
        return lvni_cli_command_misused("cc");
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
    lvn_status s = line == NULL ? LVN_ERR_MEMORY : name_output(source, &output);
    if (s != LVN_OK) {
        lvni_core_free((void *)line);
        lvni_core_str_free(&output);
        return lvni_recipes_report_status(s);
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
    if (!named) {
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
