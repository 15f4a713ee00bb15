/* levin COMMAND [key=value ...]: looks the command up and runs it. Nothing else happens before, but
 * that of several ranks one does what is one rank's work. */
#include "cli/cli.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/signals.h"
#include "kernels/kernels.h"
#include "tensor/ctx.h"

#include <errno.h>
#include <fcntl.h>
#include <levin/version.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int unknown(const char *name)
{
    const char *near = lvni_cli_command_near(name), *end = strrchr(name, '.');
    if (end != NULL && strcmp(end, ".py") == 0 && access(name, F_OK) == 0) {
        lvni_core_print(stderr, "error: %s is a Python script: levin launch %s\n", name, name);
        return LVNI_EXIT_USAGE;
    }
    lvni_core_print(stderr, "error: unknown command %s%s%s%s; `levin help` lists all\n", name,
                    near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                    near != NULL ? "?" : "");
    return LVNI_EXIT_USAGE;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int run(const lvni_cli_command *c, int argc, char **argv)
{
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++) {
        /* behind it stands another program, with a help of its own */
        if (asks_for_help(argv[i])) {
            lvni_cli_command_print_help(c);
            return LVNI_EXIT_OK;
        }
    }
    int code = lvni_cli_bare_arguments(c, argc - 1, (const char *const *)argv + 1);
    if (code != LVNI_EXIT_OK) {
        return code;
    }
    if (c->alone && lvni_cli_command_is_done_elsewhere(c->name, &code)) {
        return code;
    }
    if (c->trains) {
        lvni_core_signals_defer();
    }
    if (c->computes) {
        lvni_tensor_thread_set_ftz();
        lvni_cpu_clean_environment(argv);
    }
    return c->run(argc - 2, (const char *const *)argv + 2);
}

/* Where somebody has closed a standard descriptor the next file or socket would get its number, and
 * output would go there. */
static void open_standard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) {
            return; /* the system has none: nothing better can be had */
        }
    }
}

/* What was printed has to arrive, too: a full disk behind `levin ckpt hash out/x >FILE` is an
 * error. What a training reports does not come by here, and is in its train.log. */
static int finish(int code)
{
    errno = 0;
    if ((fflush(stdout) == 0 && ferror(stdout) == 0) || code != LVNI_EXIT_OK) {
        return code;
    }
    lvni_core_print(stderr, "error: cannot write all of it to standard output%s%s\n",
                    errno != 0 ? ": " : "", errno != 0 ? strerror(errno) : "");
    return LVNI_EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    open_standard();
    /* a file that may not grow (ulimit -f) is an error of the write, told as a full disk is */
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        fputs("error: a command is missing: levin COMMAND [key=value ...]\n", stderr);
        lvni_cli_cmd_help(0, NULL);
        return LVNI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("levin " LEVIN_VERSION);
        return finish(LVNI_EXIT_OK);
    }
    if (asks_for_help(argv[1])) {
        return finish(lvni_cli_cmd_help(0, NULL));
    }
    const lvni_cli_command *c = lvni_cli_command_find(argv[1]);
    return c == NULL ? unknown(argv[1]) : finish(run(c, argc, argv));
}
