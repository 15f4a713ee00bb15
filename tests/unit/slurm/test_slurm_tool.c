/* A command of Slurm as a child, with the shell in its place: what is heard, what it ended with,
 * and that no command takes longer than its limit. */
#include "slurm/slurm_tool.h"
#include "core/machine.h"
#include "support/test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONG_MS = 20000, MOST = 1000 };

static int run(const char *script, int timeout_ms, size_t most, lvni_core_str *out)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    int code = -1;
    assert_int_equal(lvni_slurm_tool_run(argv, timeout_ms, most, out, &code), LVN_OK);
    return code;
}

static void check(const char *script, int code, const char *text)
{
    lvni_core_str out = {0};
    assert_int_equal(run(script, LONG_MS, MOST, &out), code);
    assert_string_equal(lvni_core_str_text(&out), text);
    lvni_core_str_free(&out);
}

TEST(both_outputs_and_the_exit_code_are_heard)
{
    check("echo one; echo two >&2", 0, "one\ntwo\n");
    check("printf x; exit 7", 7, "x");
    check("kill -9 $$", 128 + SIGKILL, "");
    check("cat", 0, "");                              /* its input is empty */
    check("exec >&- 2>&-; sleep 0.1; exit 3", 3, ""); /* it ends later than its output */
}

TEST(a_long_output_is_cut)
{
    lvni_core_str out = {0};
    lvni_core_str_append(&out, "before ");
    assert_int_equal(run("head -c 300000 /dev/zero | tr '\\0' a; exit 2", LONG_MS, MOST, &out), 2);
    assert_int_equal(out.len, strlen("before ") + MOST);
    lvni_core_str_free(&out);
}

TEST(no_command_takes_longer_than_its_limit)
{
    static const char *const scripts[] = {"sleep 60", "echo a; sleep 60 & wait",
                                          "exec >&- 2>&-; sleep 60", "trap '' TERM; sleep 60",
                                          "while :; do echo a; done"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        lvni_core_str out = {0};
        const uint64_t start = lvni_core_now_ns();
        assert_int_equal(run(scripts[i], 200, MOST, &out), LVNI_SLURM_TOOL_TIMED_OUT);
        assert_non_null(strstr(lvni_core_str_text(&out), "no answer within 0.2 s"));
        assert_true(lvni_core_seconds_since(start) < 10.0);
        lvni_core_str_free(&out);
    }
}

TEST(a_grandchild_that_keeps_the_output_is_not_waited_for)
{
    lvni_core_str out = {0};
    const uint64_t start = lvni_core_now_ns();
    assert_int_equal(run("sleep 15 & echo $!; exit 4", LONG_MS, MOST, &out), 4);
    assert_true(lvni_core_seconds_since(start) < 10.0);
    kill((pid_t)strtol(lvni_core_str_text(&out), NULL, 10), SIGKILL);
    lvni_core_str_free(&out);
}

TEST(a_command_that_is_not_there)
{
    static const char *const argv[] = {"levin-has-not-this-command", NULL};
    lvni_core_str out = {0};
    int code = 0;
    assert_int_equal(lvni_slurm_tool_run(argv, LONG_MS, MOST, &out, &code), LVN_OK);
    assert_int_equal(code, LVNI_SLURM_TOOL_NOT_FOUND);
    assert_string_equal(lvni_core_str_text(&out), "No such file or directory");
    lvni_core_str_free(&out);
}

/* A training blocks its signals in all threads but one; its children must not inherit that. */
TEST(signals_are_those_of_a_new_process)
{
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    check("kill -USR1 $$; echo alive", 128 + SIGUSR1, "");
    sigprocmask(SIG_SETMASK, &before, NULL);
}
