/* levin COMMAND [key=value ...]: looks the command up and runs it. Nothing else happens before,
 * except that a command that is one rank's work runs on rank 0 alone. */
#include "cli/cli.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/signals.h"
#include "kernels/kernels.h"
#include "launch/env_vars.h"
#include "launch/rank_info.h"
#include "recipes/registry.h"
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

static bool asks_for_help(const char *arg)
{
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

/* Of rank 0: the work is done, or under LEVIN_STRICT=1 refused. */
static bool warn_alone(const char *name, int world)
{
    lvni_core_notices note = {0};
    bool strict = false;
    lvni_core_notice_warn(&note, 203,
                          "levin %s is the work of one rank: rank 0 does it, the other%s of the %d "
                          "ranks ha%s nothing to do",
                          name, world > 2 ? "s" : "", world, world > 2 ? "ve" : "s");
    lvn_status s = lvni_launch_env_strict(environ, -1, &note, &strict);
    if (s == LVN_OK && strict) {
        s = lvni_core_notices_refuse_warnings(&note);
    }
    fputs(lvni_core_str_text(s == LVN_OK ? &note.warnings : &note.text), stderr);
    lvni_core_notices_free(&note);
    return s != LVN_OK;
}

/* Of a command that is one rank's work: is this another rank? Then it leaves with *code. Rank 0
 * warns that it does it (W203), or under LEVIN_STRICT=1 refuses. */
static bool is_done_elsewhere(const char *name, int *code)
{
    /* in the shell of a batch job it is alone */
    const lvni_launch_rank_info_options o = {.launcher = true};
    lvni_core_notices message = {0};
    lvni_launch_rank_info info;
    const bool known = lvni_launch_rank_info_detect(environ, &o, &message, &info) == LVN_OK;
    lvni_core_notices_free(&message);
    if (!known) {
        /* variables that contradict each other do not matter to a command without ranks */
        lvn_clear_error();
        return false;
    }
    const bool refused = info.world > 1 && info.rank == 0 && warn_alone(name, info.world);
    *code = refused ? LVNI_EXIT_USAGE : LVNI_EXIT_OK;
    const bool elsewhere = info.rank > 0;
    lvni_launch_rank_info_free(&info);
    return elsewhere || refused;
}

static int run(const lvni_cli_command *c, int argc, char **argv)
{
    const int own = c->own_arguments != NULL
                        ? 2 + c->own_arguments(argc - 2, (const char *const *)argv + 2)
                        : argc;
    for (int i = 2; i < own && strcmp(argv[i], "--") != 0; i++) {
        /* what follows is another program, with a help of its own */
        if (asks_for_help(argv[i])) {
            lvni_cli_command_print_help_of(c, argv[2]);
            return LVNI_EXIT_OK;
        }
    }
    int code = lvni_cli_bare_arguments(c, argc - 1, (const char *const *)argv + 1);
    if (code != LVNI_EXIT_OK) {
        return code;
    }
    if (c->alone && is_done_elsewhere(c->name, &code)) {
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

/* Where a standard descriptor is closed the next file or socket would get its number, and output
 * would go there. */
static void open_standard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) {
            return; /* the system has none */
        }
    }
}

/* What was printed has to arrive, too: a full disk under `levin ckpt hash out/x >FILE` is an
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

/* `levin pretrain ...` is `levin train pretrain ...`, and `levin pretrain help` its help. NULL:
 * memory is out. */
static char **insert_train(int argc, char **argv)
{
    static char train[] = "train", help[] = "--help";
    char **out = lvni_core_calloc(LVNI_TAG_CORE, (size_t)argc + 2, sizeof *out);
    for (int i = 0; out != NULL && i < argc; i++) {
        out[i + (i > 0)] = i > 1 && strcmp(argv[i], "help") == 0 ? help : argv[i];
    }
    if (out != NULL) {
        out[1] = train;
    }
    return out;
}

/* argv: of main, where its first word is a command. */
static int run_command(int argc, char **argv)
{
    const lvni_cli_command *c = lvni_cli_command_find(argv[1]);
    if (c != NULL) {
        return run(c, argc, argv);
    }
    char **longer = lvni_recipes_find(argv[1]) == NULL ? NULL : insert_train(argc, argv);
    const int code = longer == NULL ? unknown(argv[1]) : run_command(argc + 1, longer);
    lvni_core_free((void *)longer);
    return code;
}

int main(int argc, char **argv)
{
    open_standard();
    /* a file that may not grow (ulimit -f) is an error of the write, as a full disk is */
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        fputs("error: a command is missing: levin COMMAND [key=value ...]\n", stderr);
        lvni_cli_cmd_help(0, NULL);
        return LVNI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        puts("levin " LEVIN_VERSION);
        return finish(LVNI_EXIT_OK);
    }
    if (asks_for_help(argv[1])) {
        return finish(lvni_cli_cmd_help(0, NULL));
    }
    return finish(run_command(argc, argv));
}
